"""What a generator spends, refuses, keeps and shows."""

import numpy as np
import pytest
from sklearn.model_selection import GridSearchCV
from skorch.callbacks import EarlyStopping
from torch import nn

from skdpot import DPSlicedGenerator, PrivacyBudget
from skdpot.estimators import generator as of_generator
from skdpot.exceptions import BudgetExceededError
from skdpot.mechanisms import Gradient, LatentNetwork, Resample
from skdpot.mechanisms import gradient as of_gradient
from skdpot.nets import training
from skdpot.privacy.accounting import compose
from skdpot.release.bounds import DataBounds
from tests.flat_options import sliced_generator

RNG = np.random.default_rng(2204)
X = RNG.uniform(-0.9, 0.9, size=(1500, 3))
LABELS = RNG.integers(0, 2, size=1500)
SMALL = RNG.uniform(-0.9, 0.9, size=(60, 2))
MECHANISMS = ["sketch", "smoothing", "gradient"]
QUICK = {"bounds": (-1, 1), "n_projections": 12, "n_bins": 64, "n_steps": 10, "n_latents": 50}


def generator(mechanism="sketch", **changes):
    return sliced_generator(mechanism, **(QUICK | changes))


@pytest.mark.parametrize("mechanism", MECHANISMS)
@pytest.mark.parametrize("bounds", [(-1, 1), "private"])
def test_a_private_fit_spends_what_it_says(mechanism, bounds):
    budget = PrivacyBudget(5.0)
    rows = np.tile(SMALL, (40, 1))  # enough for bounds to be found without a warning
    fitted = generator(mechanism, epsilon=3.0, bounds=bounds, budget=budget, batch_size=100)
    spent = fitted.fit(rows).privacy_spent_
    assert (spent.epsilon, spent.delta) == (3.0, 1e-5)
    assert len(budget.history()) == 1
    assert 2.0 < compose(spent.event).epsilon(1e-5) <= 3.0
    stated = " ".join(spent.assumptions)
    assert ("bounds given by the caller" in stated) == (bounds != "private")
    assert np.all(np.isfinite(fitted.sample(5)))
    assert len(budget.history()) == 1


@pytest.mark.parametrize("mechanism", ["smoothing", "gradient"])
def test_a_given_sigma_is_costed(mechanism):
    small, large = (
        generator(mechanism, sigma=sigma, batch_size=100).fit(X).privacy_spent_
        for sigma in (20.0, 200.0)
    )
    assert small.sigma == 20.0
    assert small.epsilon > 3 * large.epsilon
    assert small.epsilon == pytest.approx(compose(small.event).epsilon(1e-5), rel=1e-3)
    free = generator(mechanism, sigma=0.0).fit(X).privacy_spent_
    assert free.epsilon == np.inf
    with pytest.raises(ValueError, match="sigma"):
        generator(mechanism, sigma=1.0, bounds="private").fit(X)


def test_the_events_describe_the_batches():
    rows, d = 1500, 3
    smoothing, gradient = (
        generator(m, batch_size=100, n_projections=9).fit(X).privacy_spent_ for m in MECHANISMS[1:]
    )
    for spent in (smoothing, gradient):
        assert (spent.event.batch_sizes, spent.event.group_sizes) == ((100,), (rows,))
        assert spent.event.n_steps == 10
    # Box of side 2: radius √3; nine directions are three blocks.
    assert smoothing.sensitivity == pytest.approx(2 * np.sqrt(d) * np.sqrt(3), rel=5e-3)
    # In the network's units the radius is √3 too, and whole blocks gain a factor √3.
    assert gradient.sensitivity == pytest.approx(4.0, rel=1 / 500)
    poisson = generator("smoothing", sampling="poisson", batch_size=100).fit(X)
    assert poisson.privacy_spent_.event.sampling_rate == pytest.approx(1 / 15)


@pytest.mark.parametrize("clip", [0.25, 8.0])
def test_the_sensitivity_is_that_of_the_clip_that_is_used(clip, monkeypatch):
    used, make = [], of_gradient.noisy_gradient_steps

    def spy(*args):
        used.append(args[5])
        return make(*args)

    monkeypatch.setattr(of_gradient, "noisy_gradient_steps", spy)
    spent = generator("gradient", clip_jacobian=clip, n_projections=9).fit(SMALL).privacy_spent_
    (found,) = used
    assert found == clip
    radius, share = np.sqrt(2), np.sqrt(5 / 9)  # nine directions of the plane: five blocks
    assert spent.sensitivity == pytest.approx(4 * radius * share * clip, rel=1 / 500)


@pytest.mark.parametrize("mechanism", MECHANISMS)
def test_a_refused_fit_changes_nothing(mechanism):
    budget = PrivacyBudget(1.2)
    fitted = generator(mechanism, budget=budget).fit(SMALL)
    before = dict(vars(fitted))
    with pytest.raises(BudgetExceededError, match="left"):
        fitted.fit(SMALL)
    assert vars(fitted) == before
    assert len(budget.history()) == 1


@pytest.mark.parametrize("mechanism", MECHANISMS)
def test_an_interrupt_keeps_what_was_released_or_leaves_the_last_fit(mechanism, monkeypatch):
    def interrupted(*args, **options):
        raise KeyboardInterrupt

    budget = PrivacyBudget(5.0)
    fitted = generator(mechanism, budget=budget).fit(SMALL)
    before = dict(vars(fitted))
    with monkeypatch.context() as patch:
        patch.setattr(of_generator, "train_network", interrupted)
        patch.setattr(training, "train_network", interrupted)
        with pytest.raises(KeyboardInterrupt):
            fitted.fit(SMALL / 2)
    assert len(budget.history()) == 2
    if mechanism == "gradient":  # training is the release
        assert vars(fitted) == before
    else:
        assert fitted.privacy_spent_ is not before["privacy_spent_"]
        assert not hasattr(fitted, "module_")
        assert fitted.sample(4).shape == (4, 2)


@pytest.mark.parametrize("mechanism", MECHANISMS)
def test_the_charge_comes_before_noise_and_rows(mechanism, monkeypatch):
    budget = PrivacyBudget(5.0)
    seen = []
    original = DataBounds.to_ball

    def spy(self, rows):
        seen.append(len(budget.history()))
        return original(self, rows)

    monkeypatch.setattr(DataBounds, "to_ball", spy)
    generator(mechanism, budget=budget).fit(SMALL)
    assert seen
    assert set(seen) == {1}


@pytest.mark.parametrize(
    ("options", "text"),
    [
        ({"mechanism": "smoothing", "conditional": True}, "conditional=True needs"),
        ({"mechanism": "gradient", "conditional": True}, "conditional=True needs"),
        ({"mechanism": "smoothing", "projections": np.eye(3)}, "'projections' parameter"),
        ({"mechanism": "gradient", "projections": np.eye(3)}, "'projections' parameter"),
        ({"mechanism": "gradient", "clip_jacobian": 1e-31}, "clip_jacobian"),
        ({"mechanism": "gradient", "clip_jacobian": 1e31}, "clip_jacobian"),
        ({"mechanism": "sketch", "callbacks": [EarlyStopping()]}, "losses or scores"),
        ({"mechanism": "gradient", "callbacks": [EarlyStopping()]}, "losses or scores"),
        ({"mechanism": "sketch", "module": nn.Linear(3, 2)}, "module"),
        ({"mechanism": "smoothing", "module": nn.Linear(3, 2)}, "module"),
        ({"mechanism": "gradient", "module": nn.Linear(3, 2)}, "module"),
        (
            {
                "mechanism": "gradient",
                "module": nn.Sequential(nn.Linear(4, 3), nn.BatchNorm1d(3)),
            },
            "BatchNorm",
        ),
    ],
)
def test_what_does_not_go_together_is_refused_free_of_charge(options, text):
    budget = PrivacyBudget(5.0)
    with pytest.raises((ValueError, RuntimeError), match=text):
        generator(**options, budget=budget).fit(X, LABELS)
    assert len(budget.history()) == 0


@pytest.mark.parametrize(
    ("mechanism", "values"),
    [
        (Resample(n_projections=6), {"mechanism__batch_size": [20, 30]}),
        (Gradient(n_projections=6), {"mechanism__clip_jacobian": [0.5, 1.0]}),
    ],
    ids=repr,
)
def test_a_search_over_parameters_of_a_mechanism_charges_every_fit(mechanism, values):
    network, budget = LatentNetwork(latent_dim=2), PrivacyBudget(50.0)
    options = {"bounds": (-1, 1), "n_steps": 2, "module": network, "budget": budget}
    searched = DPSlicedGenerator(mechanism, **options)
    search = GridSearchCV(searched, values | {"module__latent_dim": [1, 3]}, cv=2).fit(SMALL)
    (name, tried) = next(iter(values.items()))
    assert set(search.cv_results_[f"param_{name}"]) == set(tried)
    assert len(budget.history()) == 2 * 4 + 1
    assert network.latent_dim == 2
    chosen = search.best_estimator_
    assert chosen.mechanism_.get_params() == chosen.mechanism.get_params()
    assert chosen.mechanism_ is not chosen.mechanism
