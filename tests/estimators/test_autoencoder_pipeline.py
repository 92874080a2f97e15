"""An autoencoder and a sampler of its codes: one estimator that samples images."""

import warnings

import numpy as np
import pytest
from sklearn.datasets import load_digits
from sklearn.frozen import FrozenEstimator
from sklearn.model_selection import GridSearchCV
from sklearn.pipeline import Pipeline

from skdpot import DPSlicedFlowSampler, PrivacyBudget, PrivateSWAutoencoder
from skdpot.exceptions import BudgetExceededError, PrivacyWarning
from skdpot.privacy.spent import total_spent
from tests.flat_options import flow_sampler, made

DIGITS = load_digits().data
PUBLIC, PRIVATE = DIGITS[:900], DIGITS[900:]
UNPROTECTED = pytest.mark.filterwarnings("ignore:.*fitted on the same rows without privacy")


def autoencoder(**changes):
    options = {"private": False, "latent_dim": 4, "bounds": (0, 16), "n_steps": 150}
    return made(PrivateSWAutoencoder, **(options | changes))


def sampler(**changes):
    options = {
        "norm_bound": 1.0,
        "n_steps": 20,
        "n_particles": 200,
        "n_projections": 8,
        "n_bins": 16,
    }
    return flow_sampler(**(options | changes))


def pipeline(first, **changes):
    return Pipeline([("ae", first), ("flow", sampler(**changes))])


def images(fitted, n_samples=20):
    return fitted[:-1].inverse_transform(fitted[-1].sample(n_samples, random_state=0))


@UNPROTECTED
def test_the_default_steps_fit_and_sample_images():
    steps = [("ae", made(PrivateSWAutoencoder, private=False)), ("flow", DPSlicedFlowSampler())]
    fitted = Pipeline(steps).fit(DIGITS)
    assert images(fitted).shape == (20, 64)
    assert np.isfinite(fitted.score(DIGITS))


@UNPROTECTED
def test_it_goes_through_a_grid_search():
    grid = {"ae__latent_dim": [2, 3], "flow__epsilon": [1.0, 5.0]}
    made = pipeline(autoencoder(n_steps=5), bounds=(-1, 1), norm_bound=None)
    with warnings.catch_warnings():  # worker processes have filters of their own
        warnings.simplefilter("ignore")
        search = GridSearchCV(made, grid, cv=2, n_jobs=2, error_score="raise").fit(DIGITS[:200])
    assert np.isfinite(search.cv_results_["mean_test_score"]).all()
    assert images(search.best_estimator_).shape == (20, 64)


@pytest.mark.parametrize("output", ["default", "pandas"])
def test_training_and_sampling_on_the_same_rows_warns(output):
    first = autoencoder(n_steps=5).set_output(transform=output)
    with pytest.warns(PrivacyWarning, match="DPSlicedFlowSampler: .*without privacy"):
        fitted = pipeline(first).fit(PRIVATE)
    assert total_spent(fitted).epsilon == np.inf


def test_a_frozen_public_autoencoder_needs_no_warning():
    """How it is meant to be used: public rows train the first step, private ones the second."""
    frozen = FrozenEstimator(autoencoder(n_steps=600).fit(PUBLIC))
    fitted = pipeline(frozen, epsilon=5.0).fit(PRIVATE)
    sample = images(fitted, 500)
    # Better than one mean image, which a sampler that knows nothing would be near to.
    assert fitted[-1].privacy_spent_.epsilon == 5.0
    assert np.abs(sample.mean(0) - PRIVATE.mean(0)).mean() < 1.5
    assert sample.std(0).mean() > 0.3 * PRIVATE.std(0).mean()


def test_one_budget_pays_for_both_private_steps():
    budget = PrivacyBudget(10.0)
    first = autoencoder(private=True, epsilon=3.0, n_steps=5, budget=budget)
    fitted = pipeline(first, epsilon=3.0, budget=budget).fit(PRIVATE)
    assert list(budget.history()["label"]) == ["PrivateSWAutoencoder", "DPSlicedFlowSampler"]
    assert 3.0 < total_spent(fitted).epsilon < 6.0


def test_two_private_steps_without_a_budget_say_what_they_cost_together():
    with pytest.warns(PrivacyWarning, match="together with this fit"):
        pipeline(autoencoder(private=True, n_steps=5)).fit(PRIVATE)


def test_a_finite_budget_does_not_let_unprotected_training_through():
    budget = PrivacyBudget(10.0)
    with pytest.raises(BudgetExceededError, match="left"):
        pipeline(autoencoder(budget=budget), budget=budget).fit(PRIVATE)
    assert len(budget.history()) == 0
