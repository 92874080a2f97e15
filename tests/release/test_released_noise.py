"""The noise of a release, measured from outside: released statistic minus the exact one.

The number of noise values and the tolerance are stated with each test. Streams are not
seeded; tolerances are five standard errors or more (false alarms below 1e-6).
"""

import functools
import math
import warnings

import numpy as np
import pytest

from skdpot import PrivacyBudget, SlicedSketch
from skdpot.exceptions import PrivacyWarning
from skdpot.ot.slices import uniform_directions
from skdpot.release import sketch as sketches
from skdpot.release.histogram import square_root_strategy
from tests.flat_options import flow_sampler

RNG = np.random.default_rng(8841)
X = RNG.uniform(-1, 1, (60, 2))
Y = RNG.integers(0, 3, 60)
DIRECTIONS = uniform_directions(2500, 2, RNG)
N_BINS = 200  # 500,000 noise values a table: the variance is known to 0.2 %


def decode_nothing(statistic, strategy, n_samples, *args):
    """Uniform distribution functions: decoding half a million noise values takes seconds."""
    shape = (*statistic.shape[:2], strategy.n_bins + 1)
    totals = np.full(len(statistic), n_samples / len(statistic))
    return np.broadcast_to(np.linspace(0, 1, shape[-1]), shape), totals


@pytest.fixture(autouse=True)
def _without_decoding(monkeypatch):
    """What is released is not changed by what is read from it later."""
    monkeypatch.setattr(sketches, "decode", decode_nothing)


def exact_statistic(X, codes, sketch):
    """Map, clip, project, count and apply the strategy, independently of the package's pass."""
    bounds = sketch.bounds_
    U = (X - bounds.center) / bounds.scale
    if bounds.box:
        U = np.clip(U, -1, 1)
    else:
        U = U * np.minimum(1, bounds.radius / np.linalg.norm(U, axis=1))[:, None]
    n_bins = sketch.statistic_.shape[-1]
    share = (sketch.directions_ @ U.T / sketch.half_widths_[:, None] + 1) / 2
    bins = np.clip(np.floor(share * n_bins), 0, n_bins - 1).astype(int)
    counts = np.zeros(sketch.statistic_.shape)
    for column, code in zip(bins.T, codes, strict=True):
        counts[code, np.arange(len(column)), column] += 1
    return counts @ square_root_strategy(n_bins).matrix.T


@functools.cache
def release(*, estimator=SlicedSketch, conditional=False, bounds=(-1, 1), draw=0):
    """One fit under a budget, its noise and the budget; `draw` tells repetitions apart."""
    budget = PrivacyBudget(1.5, 1e-6)
    parameters = {"n_steps": 1, "n_particles": 5} if estimator is flow_sampler else {}
    fitted = estimator(
        epsilon=1.5,
        delta=1e-6,
        budget=budget,
        bounds=bounds,
        projections=DIRECTIONS,
        n_bins=N_BINS,
        conditional=conditional,
        **parameters,
    )
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", PrivacyWarning)  # private bounds from 60 rows
        fitted.fit(X, Y)
    sketch = getattr(fitted, "sketch_", fitted)
    codes = Y if conditional else np.zeros(len(X), dtype=int)
    return fitted, sketch.statistic_ - exact_statistic(X, codes, sketch), budget


def table_event(spent):
    """The event of the table itself, the last one after those of the bounds."""
    return getattr(spent.event, "events", (spent.event,))[-1]


@pytest.mark.parametrize("estimator", [SlicedSketch, flow_sampler])
@pytest.mark.parametrize("conditional", [False, True])
@pytest.mark.parametrize("bounds", [(-1, 1), "private"], ids=["public", "private"])
def test_noise_has_the_stated_variance(estimator, conditional, bounds):
    """1 % is at least five standard errors of a variance from 500,000 values."""
    fitted, noise, _ = release(estimator=estimator, conditional=conditional, bounds=bounds)
    spent = fitted.privacy_spent_
    # Single precision may put a projection on the other side of an edge, which moves a row
    # of the statistic by about one: nothing beside sigma, which is several hundred.
    assert spent.sigma > 200
    for table in noise:
        assert table.var() == pytest.approx(spent.sigma**2, rel=0.01)
        assert abs(table.mean()) < 5 * spent.sigma / math.sqrt(table.size)
    event = table_event(spent)
    assert (event.sigma, event.sensitivity) == (spent.sigma, spent.sensitivity)
    assert spent.sensitivity == square_root_strategy(N_BINS).sensitivity(
        len(DIRECTIONS), conditional=conditional
    )


def test_private_bounds_are_paid_for_by_more_noise():
    public, private = (release(bounds=bounds)[0].privacy_spent_ for bounds in ((-1, 1), "private"))
    assert private.sigma > 1.04 * public.sigma  # 1 / sqrt(0.9) = 1.054 when all is used
    squared = sum(event.mu**2 for event in private.event.events)
    assert squared <= public.event.mu**2 * (1 + 1e-9)
    assert len(private.event.events) > 1


@pytest.mark.parametrize("conditional", [False, True])
def test_released_values_lie_on_the_lattice_of_the_event(conditional):
    sketch, _, _ = release(conditional=conditional)
    lattice = sketch.privacy_spent_.event.lattice
    units = sketch.statistic_ / lattice
    np.testing.assert_array_equal(units, np.rint(units))
    assert sketch.privacy_spent_.sigma / lattice >= 1
    # The data alone do not lie on a coarser one: the noise uses every point of its lattice.
    assert len(np.unique(units % 4)) == 4
    strategy = square_root_strategy(N_BINS)
    assert (strategy.lattice / lattice).is_integer()


def test_noise_is_independent_between_slices_bins_and_classes():
    """Mean squared correlation of all pairs, against 1 / (m - 1) for independent noise.

    With 3,100,000 pairs of slices its relative standard error is 0.1 %; 1 % is allowed.
    """
    _, noise, _ = release(conditional=True)
    for table in (noise[0], noise[0].T, noise.reshape(3, -1)):
        correlations = np.corrcoef(table)
        above = correlations[np.triu_indices(len(correlations), 1)]
        expected = 1 / (table.shape[1] - 1)
        error = math.sqrt(2 / above.size)
        assert np.mean(above**2) == pytest.approx(expected, rel=max(0.01, 8 * error))


def test_without_privacy_there_is_no_noise():
    sketch = SlicedSketch(np.inf, bounds=(-1, 1), projections=DIRECTIONS, n_bins=N_BINS).fit(X)
    difference = sketch.statistic_ - exact_statistic(X, np.zeros(len(X), int), sketch)
    # Single precision moves a projection across an edge once in ten thousand.
    assert np.mean(np.any(difference != 0, axis=2)) < 0.02
