"""Samplers know their errors: from the release, or from public facts before the charge."""

import math

import numpy as np
import pandas as pd
import pytest

from skdpot import DPSlicedFlowSampler, DPSlicedGenerator, PrivacyBudget
from skdpot.exceptions import PrivacyWarning, ReliabilityWarning
from skdpot.mechanisms import Gradient, Moments, Presample, Resample
from skdpot.metrics import sliced_wasserstein_distance
from skdpot.release.bounds import DataBounds
from skdpot.sampling.feature_laws import laws_of_moments, laws_of_rows, uniform_spread

pytestmark = pytest.mark.filterwarnings("ignore:.*random_state")
BOX = {"bounds": (-1, 1)}


def rows(n, d, seed=0, mean=0.2, spread=0.25):
    rng = np.random.default_rng(seed)
    return np.clip(rng.normal(mean, spread, size=(n, d)), -1, 1)


def far(X, fitted):
    return sliced_wasserstein_distance(X, fitted.sample(1000, random_state=0))


@pytest.mark.parametrize("mechanism", [Resample(batch_size=60, n_projections=12), Presample()])
def test_noise_on_every_row_does_not_scatter_the_samples(mechanism):
    """The steps of the paper leave the bounds far behind, and the fit says so."""
    X = rows(600, 3)
    uniform = np.random.default_rng(1).uniform(-1, 1, (1000, 3))
    options = BOX | {"n_steps": 60, "n_particles": 1000, "random_state": 0}
    short, given = (
        DPSlicedFlowSampler(mechanism, step_size=step, **options).fit(X) for step in ("auto", 0.375)
    )
    assert np.abs(short.particles_).max() <= 1 + 1e-9
    assert far(X, short) < sliced_wasserstein_distance(X, uniform) + 0.1
    assert far(X, given) > 1.5 * sliced_wasserstein_distance(X, uniform)
    assert given.reliability_.unreliable
    errors = [item.reliability_.outputs[0].standard_error for item in (short, given)]
    assert errors[0] < errors[1] <= 1.0  # half of the range


def test_little_noise_leaves_the_steps_of_the_paper_and_says_nothing(recwarn):
    options = BOX | {"n_steps": 60, "n_particles": 500, "random_state": 0}
    fitted = DPSlicedFlowSampler(Presample(sigma=0.1), **options).fit(rows(600, 3))
    schedule = fitted._schedule(fitted.mechanism_, fitted.releases_)
    assert schedule.step_size == 0.375
    assert not fitted.reliability_.unreliable
    assert not [w for w in recwarn if w.category is ReliabilityWarning]


@pytest.mark.parametrize("mechanism", ["sketch", "moments", "resample"])
def test_the_warning_names_the_features(mechanism):
    frame = pd.DataFrame(rows(60, 2), columns=["age", "size"])
    fitted = DPSlicedFlowSampler(mechanism, epsilon=0.01, n_steps=5, random_state=0, **BOX)
    with pytest.warns(ReliabilityWarning, match="distribution of age and the distribution of size"):
        fitted.fit(frame)
    assert list(fitted.reliability_.to_frame().index) == [
        "the distribution of age",
        "the distribution of size",
    ]


def test_moments_of_classes_are_compared_with_all_classes_together():
    y = np.arange(4000) % 2
    X = rows(4000, 2) * np.where(y, 1.0, -1.0)[:, None]
    options = {"conditional": True, "random_state": 0} | BOX
    good = DPSlicedFlowSampler(Moments(), epsilon=5.0, **options).fit(X, y)
    assert not good.reliability_.unreliable
    for item in good.reliability_:
        assert item.trivial == "that of all classes together"
        assert item.trivial_error == pytest.approx(0.2, abs=0.05)
    with pytest.warns(ReliabilityWarning, match="class 0 and the distribution of class 1"):
        DPSlicedFlowSampler(Moments(), epsilon=0.02, **options).fit(X, y)


def test_a_generator_that_noise_hides_says_so_before_the_charge():
    budget = PrivacyBudget(1.0, 1e-5)
    generator = DPSlicedGenerator(
        Gradient(batch_size=20), epsilon=0.1, n_steps=4, budget=budget, random_state=0, **BOX
    )
    with pytest.warns(PrivacyWarning) as shown:
        generator.fit(rows(60, 2))
    assert sum(w.category is ReliabilityWarning for w in shown) == 1
    assert budget.epsilon_spent() > 0.0
    spent = budget.epsilon_spent()
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr("skdpot.privacy.reliability.warn_unreliable", _refuse)
        with pytest.raises(RuntimeError, match="network before training is as good"):
            generator.fit(rows(60, 2))
    assert budget.epsilon_spent() == spent


def _refuse(text):
    raise RuntimeError(text)


def test_the_spread_of_uniform_rows_in_a_box_and_in_a_ball():
    rng = np.random.default_rng(0)
    box = DataBounds.from_box(0.0, 4.0, 3)
    assert uniform_spread(box) == pytest.approx(1 / math.sqrt(3))
    directions = rng.normal(size=(100_000, 3))
    directions /= np.linalg.norm(directions, axis=1, keepdims=True)
    ball = 2.0 * directions * rng.uniform(size=(100_000, 1)) ** (1 / 3)
    assert uniform_spread(DataBounds.from_norm(2.0, 3)) == pytest.approx(ball.std(), rel=0.01)


@pytest.mark.slow
@pytest.mark.filterwarnings("ignore::skdpot.exceptions.ReliabilityWarning")
@pytest.mark.parametrize(
    ("n", "d", "epsilon"), [(300, 2, 1.0), (1000, 5, 0.3), (1000, 20, 10.0), (20_000, 5, 1.0)]
)
def test_errors_of_moments_cover_the_rows_without_noise(n, d, epsilon):
    """Distances of 100 fits are within two errors for 90 % or more, and as large in the mean."""
    within, squares, stated = [], [], []
    for seed in range(100):
        X = rows(n, d, seed)
        options = {"n_particles": 10, "random_state": seed} | BOX
        fitted = DPSlicedFlowSampler(Moments(), epsilon=epsilon, **options).fit(X)
        laws = laws_of_moments(fitted.moments_).of_class(0)
        square = (laws.means - X.mean(axis=0)) ** 2 + (laws.spreads - X.std(axis=0)) ** 2
        within.append(square <= 4 * laws.squared_errors)
        squares.append(square.mean())
        stated.append(laws.squared_errors.mean())
    assert np.mean(within) > 0.9
    assert 0.5 < math.sqrt(np.mean(squares) / np.mean(stated)) < 1.4


@pytest.mark.slow
@pytest.mark.filterwarnings("ignore::skdpot.exceptions.ReliabilityWarning")
@pytest.mark.parametrize(("mechanism", "epsilon"), [("resample", 1.0), ("presample", 30.0)])
def test_errors_of_means_of_noisy_rows_cover_the_rows_without_noise(mechanism, epsilon):
    """Batches of the rows add to the errors of "resample", which has little of them here."""
    within, flowed = [], []
    for seed in range(30):
        X = rows(1000, 3, seed)
        options = {"n_steps": 40, "n_particles": 1000, "random_state": seed} | BOX
        fitted = DPSlicedFlowSampler(mechanism, epsilon=epsilon, **options).fit(X)
        laws = laws_of_rows(fitted.releases_)
        within.append(np.abs(laws.means - X.mean(axis=0)) <= 2 * laws.mean_errors)
        made = fitted.particles_
        square = (made.mean(axis=0) - X.mean(axis=0)) ** 2 + (made.std(axis=0) - X.std(axis=0)) ** 2
        errors = np.array([item.standard_error for item in fitted.reliability_])
        flowed.append(np.sqrt(square) <= 2 * errors)
    assert 0.85 < np.mean(within) <= 1.0
    assert np.mean(flowed) > 0.9
