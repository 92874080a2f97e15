"""The flow paper's mechanisms in the sampler: what they release, cost, keep and refuse."""

import math

import numpy as np
import pytest

from skdpot import DPSlicedFlowSampler, PrivacyBudget
from skdpot.mechanisms import Presample, Resample
from skdpot.ot.directions import uniform_directions
from skdpot.ot.transport import sliced_distance
from skdpot.privacy.events import NonPrivateEvent
from tests.flat_options import flow_sampler

RNG = np.random.default_rng(8841)
LABELS = (RNG.random(600) < 0.25).astype(int)
X = np.clip(0.5 - LABELS[:, None] + 0.1 * RNG.normal(size=(600, 3)), -1, 1)
MECHANISMS = ("resample", "presample")
BOTH = pytest.mark.parametrize("mechanism", MECHANISMS)
QUICK = {"bounds": (-1, 1), "n_projections": 6, "n_steps": 4, "batch_size": 60, "n_particles": 80}


def sampler(mechanism, **changes):
    options = QUICK | changes
    if mechanism != "resample":
        del options["batch_size"]
    return flow_sampler(mechanism, **options)


def distance(rows, others):
    directions = uniform_directions(60, rows.shape[1], np.random.default_rng(0))
    return sliced_distance(rows, others, directions)


@pytest.mark.parametrize(
    "options",
    [
        {"mechanism": "resample", "batch_size": 200, "n_projections": 12},
        {"mechanism": "resample", "batch_size": 200, "sampling": "poisson", "n_projections": 12},
        {"mechanism": "presample", "n_projections": 30, "n_projections_per_step": 12},
        {"mechanism": "presample", "projections": "uniform", "n_projections": 30},
    ],
)
def test_without_noise_the_rows_come_back(options):
    """A start of spread 1 is 0.6 from the rows; means of 15 fits were 0.06 and at most 0.14.

    The last batches of 200 move the mean of a coordinate by 0.008 (standard deviation).
    """
    fitted = sampler(**({"epsilon": np.inf, "n_particles": 600, "n_steps": 60} | options)).fit(X)
    assert distance(fitted.particles_, X) < 0.3
    np.testing.assert_allclose(fitted.particles_.mean(axis=0), X.mean(axis=0), atol=0.06)
    assert fitted.privacy_spent_.epsilon == math.inf
    assert fitted.privacy_spent_.event == NonPrivateEvent()
    assert fitted.releases_.sigma == 0


def test_samples_that_may_all_be_empty_are_refused_before_the_charge():
    budget = PrivacyBudget(1.0)
    few = sampler("resample", sampling="poisson", batch_size=5, budget=budget)
    with pytest.raises(ValueError, match="may draw no row.* at least 21"):
        few.fit(X)
    assert budget.epsilon_spent() == 0.0
    few.set_params(n_steps=5).fit(X)


@pytest.mark.parametrize(
    ("mechanism", "n_batches", "n_rows"), [("resample", 5, 60), ("presample", 1, 600)]
)
def test_a_batch_per_step_or_all_rows_once(mechanism, n_batches, n_rows):
    fitted = sampler(mechanism, n_steps=5).fit(X)
    batches = fitted.releases_.batches
    assert [batch.values.shape for batch in batches] == [(6, n_rows)] * n_batches
    assert len({batch.directions.tobytes() for batch in batches}) == n_batches
    assert fitted.displacements_.shape == (1, 5)


def test_the_cost_of_presampling_does_not_depend_on_the_number_of_steps():
    few, many = (sampler("presample", n_steps=n).fit(X).privacy_spent_ for n in (1, 40))
    assert few.event == many.event
    assert getattr(few.event, "n_steps", 1) == 1


@BOTH
@pytest.mark.parametrize("projections", ["orthogonal", "uniform"])
def test_values_are_sorted_after_the_noise(mechanism, projections):
    for batch in sampler(mechanism, projections=projections).fit(X).releases_.batches:
        assert np.all(np.diff(batch.values, axis=1) >= 0)
        assert batch.values.dtype == batch.directions.dtype == np.float32
        theta = batch.directions.astype(float)
        np.testing.assert_allclose(np.linalg.norm(theta, axis=1), 1, atol=1e-6)
        orthogonal = np.allclose(theta.T @ theta, 2 * np.eye(3), atol=1e-5)
        assert orthogonal == (projections == "orthogonal")


@pytest.mark.parametrize(
    ("mechanism", "n_features", "n_projections", "n_used"),
    [(Resample(batch_size=20), 2, 70, 70), (Presample(), 2, 31, 25), (Presample(), 40, 40, 32)],
)
def test_the_papers_numbers_of_slices_are_the_defaults(
    mechanism, n_features, n_projections, n_used
):
    rows = RNG.uniform(-1, 1, (30, n_features))
    options = {"bounds": (-1, 1), "n_particles": 80, "n_steps": 2}
    fitted = DPSlicedFlowSampler(mechanism, **options).fit(rows)
    assert len(fitted.releases_.batches[0].directions) == n_projections
    assert mechanism.problem(fitted.releases_, 1.0, None).largest_batch == n_used


def algorithm_2(release, start, n_steps, step, diffusion, sigma, n_directions, rng):
    """The paper's Algorithm 2, word for word (with ``x +``), and with ranks in place of cells."""
    n, x = len(start), start.copy()
    levels = (np.arange(release.values.shape[1]) + 0.5) / release.values.shape[1]
    for _ in range(n_steps):
        chosen = rng.choice(len(release.directions), n_directions, replace=False)
        drift = np.zeros_like(x)
        for theta, target in zip(release.directions[chosen], release.values[chosen], strict=True):
            noisy = x @ theta + sigma * rng.normal(size=n)
            ranks = np.searchsorted(np.sort(noisy), noisy) + 0.5
            drift -= np.outer(noisy - np.interp(ranks / n, levels, target), theta) / n_directions
        x += step * drift + math.sqrt(2 * diffusion * step) * rng.normal(size=x.shape)
    return x


@pytest.mark.slow
@pytest.mark.parametrize("diffusion", [0.0, 0.01])
def test_presampling_at_large_noise_is_the_papers_algorithm(diffusion):
    """At σ = 5 radii nothing pulls particles into the ball: they leave it, in both, and it warns.

    Spreads of ten seeds vary by 3 % (standard deviation); cut to the ball they would be 0.3.
    """
    rows = 0.1 * np.random.default_rng(5).normal(size=(800, 8))
    mechanism = Presample(n_projections=32, n_projections_per_step=26, sigma=5.0)
    options = {"norm_bound": 1.0, "n_particles": 800, "n_steps": 150, "device": "cpu"}
    sampler = DPSlicedFlowSampler(mechanism, diffusion=diffusion, step_size=0.375, **options)
    (release,) = sampler.fit(rows).releases_.batches
    rng = np.random.default_rng(6)
    start = rng.normal(size=(800, 8)) / math.sqrt(8)
    expected = algorithm_2(release, start, 150, 3.0, diffusion, 5.0, 26, rng)
    assert sampler.particles_.std() == pytest.approx(expected.std(), rel=0.12)
    assert np.mean(np.linalg.norm(sampler.particles_, axis=1) > 1) > 0.5
    assert np.linalg.norm(sampler.sample(2000), axis=1).max() > 1.5


def test_diffusion_is_not_cut_to_the_ball():
    """The stationary spread s solves s² - 0.15 s = λ d: 1.08, in a ball of radius 1."""
    rows = np.random.default_rng(7).normal(scale=0.15, size=(3000, 2))
    options = {"norm_bound": 1.0, "n_steps": 250, "step_size": 0.3, "n_particles": 3000}
    wide, narrow = (
        DPSlicedFlowSampler(epsilon=np.inf, diffusion=diffusion, **options).fit(rows)
        for diffusion in (0.5, 0.0)
    )
    assert wide.particles_.std() == pytest.approx(1.08, rel=0.05)
    assert np.linalg.norm(narrow.particles_, axis=1).max() <= 1 + 1e-12
