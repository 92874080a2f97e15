"""The noise of releases, measured from outside: what is released, minus what is without noise.

Streams are seeded; with fresh ones each test would fail with a probability below 1e-6.
"""

import math
from functools import partial

import numpy as np
import pytest
from scipy import stats

from skdpot import SlicedSketch
from skdpot.nets.compared_outputs import ClippedOutputs
from skdpot.nets.output_tables import plan_output_tables, release_tables
from skdpot.ot.directions import uniform_directions
from skdpot.privacy import Reliability
from skdpot.privacy.targets import PrivacyTarget
from skdpot.release import sketch as sketches
from skdpot.release.bounds import DataBounds
from skdpot.release.gate import record_releases
from skdpot.release.private_bounds import (
    plan_private_bounds,
    release_private_bounds,
    release_scales,
)
from skdpot.sampling.row_releases import StepDirections, noisy_batches, plan_rows
from skdpot.tables.category_selection import plan_category_selection, select_categories
from skdpot.trajectories.langevin_release import mean_field_langevin, plan_langevin
from skdpot.trajectories.schedule import Phase
from skdpot.trajectories.warm_start_release import (
    plan_warm_start,
    release_kmeans_start,
    release_mean_start,
)
from tests.contract.test_replaced_records import no_coupling
from tests.core.release.exact import again, gaps, streams

pytestmark = pytest.mark.filterwarnings("ignore::skdpot.exceptions.PrivacyWarning")
RNG = np.random.default_rng(8841)
ROWS, LABELS = RNG.uniform(-1, 1, (60, 2)), np.arange(60) % 3
DIRECTIONS = uniform_directions(400, 2, RNG)
LEVEL = 1e-8


def sketch(seed, **options):
    given = {"bounds": (-1, 1), "projections": DIRECTIONS, "n_bins": 100} | options
    SlicedSketch(1.5, delta=1e-6, random_state=seed, **given).fit(ROWS, LABELS)


def bounds(seed, mode):
    X = np.zeros((4, 3 if mode == "features" else 2000))
    plan = plan_private_bounds(*X.shape, 0.2, mode=mode)
    run = release_private_bounds if mode == "norm" else release_scales
    run(X, plan, streams(seed))


def tables(seed):
    noise, secret = plan_output_tables(0.05, 2, 40, 500), streams(seed).secret
    directions = ClippedOutputs(2, 1.0).directions(40, np.random.default_rng(0))
    args = (np.zeros((30, 2)), np.arange(30) % 3, (10,) * 3, directions, np.ones(40), noise, secret)
    release_tables(*args, previous=release_tables(*args))


def langevin(seed):
    phases = [Phase(0.03, 0.3, 1), Phase(0.01, 0.3, 2)]
    target, box = PrivacyTarget(1.0, 1e-3), DataBounds.from_box(-1, 1, 2)
    shape = {"dim": 4000, "sampling_rate": 1.0, "bounds": box, "n_samples": 100}
    made = plan_langevin(target, phases, clip=0.6, noise_multiplier=(1.7, 5.0), **shape)
    # Particles stand still without noise: nothing is left of the data fit.
    start, options = np.zeros((2, 2000, 2)), {"bandwidth": 0.4, "regularization": 1e12}
    options |= {"secret": streams(seed).secret, "coupling": no_coupling}
    mean_field_langevin([ROWS, ROWS[:30]], start, np.ones(1), made, **options)


def means(seed):
    plan = plan_warm_start("mean", 0.8, 3.0, 2)
    release_mean_start([np.full((200, 2), 0.25)] * 1000, plan, streams(seed).secret)


def clusters(seed):
    plan, secret = plan_warm_start("kmeans", 0.8, 3.0, 5, 4, 1), streams(seed).secret
    release_kmeans_start([np.zeros((50, 5))] * 200, plan, secret, np.random.default_rng(0))


def categories(seed, n_columns):
    plan = plan_category_selection(600_000, mu=0.5, delta=1e-6, n_columns=n_columns)
    select_categories(np.repeat(np.arange(2000), 300), plan, streams(seed).secret)


def rows(seed, noise, radius):
    """Rows at the origin, which sorting does not move."""
    directions = StepDirections("orthogonal", 4, 6, 3, np.random.default_rng(0))
    ball = DataBounds.from_norm(radius, 3)
    plan = plan_rows(PrivacyTarget(5.0, 1e-5), directions, 1000, bounds=ball, noise=noise)
    list(noisy_batches(np.zeros((1000, 3)), plan, ball, streams(seed).secret))


# Everything is charged for the noise of these releases, and each seed draws it anew.
CASES = {
    "sketch": sketch,
    "sketch of classes": partial(sketch, conditional=True),
    "sketch of public classes": partial(sketch, conditional=True, public_labels=True, group_size=2),
    "bounds of features": partial(bounds, mode="features"),
    "bounds of norms": partial(bounds, mode="norm"),
    "outputs": tables,
    "mean-field Langevin": langevin,
    "means": means,
    "clusters": clusters,
    "categories of a column": partial(categories, n_columns=1),
    "categories of columns": partial(categories, n_columns=8),
    "rows": partial(rows, noise="discrete", radius=11.0),
    "rows, float": partial(rows, noise="float", radius=1.0),
}


def noises(run, seed):
    """The noise of each release, in its standard deviations, and the releases."""
    with record_releases() as releases:
        run(seed)
    pairs = zip(releases, again(run, releases, seed), strict=True)
    return [gaps(*pair)[:-1] for pair in pairs], releases


def uncorrelated(first, second):
    return abs(np.corrcoef(first, second)[0, 1]) < 6 / math.sqrt(len(first))


@pytest.mark.parametrize("name", CASES)
def test_noise_has_the_law_that_is_charged(name, monkeypatch):
    """Its deviation, its shape and its lattice; it is fresh for each number, release and fit."""
    monkeypatch.setattr(sketches, "decode", lambda statistic, *_: (None, None))  # takes seconds
    monkeypatch.setattr(sketches, "sketch_reliability", lambda sketch: Reliability(()))
    drawn, sorted_rows = [], "rows" in name
    for seed in (0, 1):
        added, releases = noises(CASES[name], seed)
        for noise, release in zip(added, releases, strict=True):
            charged = [event for event in release.event.phases if event.sigma == release.sigma]
            if sorted_rows:  # and scaled by a public radius
                noise /= release.sigma
                continue
            assert release.sensitivity in (None, charged[-1].sensitivity)
            if release.lattice is not None:
                units = noise / release.lattice
                np.testing.assert_allclose(units, np.rint(units), atol=1e-6)
                # Less than a step is drawn on top, which makes the law continuous.
                noise += release.lattice * RNG.uniform(-0.5, 0.5, noise.size)
            noise /= release.sigma
        drawn.append(np.concatenate(added))
    for noise in drawn:
        assert noise.size >= 2000
        squares = float(noise @ noise)
        assert LEVEL < stats.chi2.cdf(squares, noise.size) < 1 - LEVEL
        assert stats.kstest(noise, "norm").pvalue > LEVEL
        for lag in () if sorted_rows else (1, 2, 100):
            assert uncorrelated(noise[lag:], noise[:-lag])
    assert sorted_rows or uncorrelated(*drawn)
    assert np.mean(drawn[0] == drawn[1]) < 1e-3


@pytest.mark.parametrize("noise", ["discrete", "float"])
def test_noise_of_rows_is_independent_over_directions_and_steps(noise):
    """Sorting hides rows: means of directions and of steps."""
    directions = StepDirections("orthogonal", 200, 6, 3, np.random.default_rng(0))
    ball = DataBounds.from_norm(1.0, 3)
    plan = plan_rows(PrivacyTarget(1.0, 1e-5), directions, 20, bounds=ball, sigma=2.0, noise=noise)
    found = list(noisy_batches(np.zeros((20, 3)), plan, ball, streams().secret))
    assert len({release.value.tobytes() for release in found}) == len(found)
    means = np.array([release.value.mean(axis=1) for release in found]) / 2.0 * math.sqrt(20)
    assert LEVEL < stats.chi2.cdf(np.sum(means**2), means.size) < 1 - LEVEL
    assert uncorrelated(means[:-1].ravel(), means[1:].ravel())
    assert uncorrelated(means[:, :-1].ravel(), means[:, 1:].ravel())


def test_private_bounds_are_paid_for_by_more_noise():
    public, private = (
        SlicedSketch(1.5, delta=1e-6, n_projections=4, **given).fit(ROWS).privacy_spent_
        for given in ({"bounds": (-1, 1)}, {})
    )
    assert private.sigma > 1.04 * public.sigma  # 1 / sqrt(0.9) = 1.054 when all is used
    squared = sum(event.mu**2 for event in private.event.events)
    assert squared <= public.event.mu**2 * (1 + 1e-9)
    assert len(private.event.events) > 1
