"""No replaced record moves a release by more than it is charged for, and the worst one attains it.

Everything but the record is equal: random choices, and what was released before. What a sketch
moves is in `test_sensitivity`, projected rows in `test_rows`, sums of gradients in
`tests/nets`.
"""

from functools import partial

import numpy as np
import pytest

from skdpot._utils.streams import SecretStream
from skdpot.fair.thresholds import plan_threshold, tuned_threshold
from skdpot.nets.compared_outputs import ClippedOutputs, Probabilities
from skdpot.nets.output_tables import plan_output_tables, release_tables
from skdpot.privacy.targets import PrivacyTarget
from skdpot.release.bounds import DataBounds
from skdpot.release.private_bounds import (
    plan_private_bounds,
    release_private_bounds,
    release_scales,
)
from skdpot.tables.category_selection import plan_category_selection, select_categories
from skdpot.trajectories.langevin_release import mean_field_langevin, plan_langevin
from skdpot.trajectories.schedule import Phase
from skdpot.trajectories.warm_start_release import (
    plan_warm_start,
    release_kmeans_start,
    release_mean_start,
)
from tests.core.release.exact import moves, streams

EXTREMES = (0.0, -0.0, 1.0, -1.0, 5e-324, 1e-8, 1e5, -1e200, 1e308)
ROUNDING = 1 + 1e-12


def entries(rng, shape):
    """Numbers of all sizes, and special ones among them."""
    ordinary = rng.normal(size=shape) * np.exp2(rng.integers(-8, 8, shape))
    return np.where(rng.random(shape) < 0.5, ordinary, rng.choice(EXTREMES, shape))


def bounds(mode, group_size=1):
    def make(rng):
        n, d = int(rng.integers(group_size, 9)), int(rng.integers(1, 4))
        X = entries(rng, (n, d)) if rng.random() < 0.5 else np.full((n, d), 0.1)
        Y = X.copy()
        # All rows of a person from one cell to another, which is the most that they can do.
        Y[:group_size] = 1e6 if rng.random() < 0.5 else entries(rng, (group_size, d))
        plan = plan_private_bounds(n, d, rng.uniform(0.3, 3), mode=mode, group_size=group_size)
        run = release_private_bounds if mode == "norm" else release_scales
        return lambda Z: run(Z, plan, streams()), X, Y, 1

    return make


def warm_start(method):
    def make(rng):
        d, radius = int(rng.choice([1, 2, 7])), 10.0 ** rng.uniform(-6, 6)
        clusters = 1 if method == "mean" else int(rng.choice([1, 3]))
        plan = plan_warm_start(method, rng.choice([0.05, 3.0, 100.0]), radius, d, clusters)
        rows = np.clip(radius * rng.normal(size=(15, d)), -radius, radius)
        other = rows.copy()
        record = rng.normal(size=d)
        record *= radius / np.linalg.norm(record)
        rows[3], other[3] = record, -record if rng.random() < 0.7 else entries(rng, d)

        def run(given):
            if method == "mean":
                return release_mean_start([given], plan, SecretStream(0))
            return release_kmeans_start([given], plan, SecretStream(0), np.random.default_rng(0))

        return run, rows, other, 1

    return make


def langevin(rng):
    """A record on either side of a particle that stands alone, or anywhere."""
    made = plan_langevin(
        PrivacyTarget(1.0, 1e-3),
        [Phase(0.01, 0.3, 2), Phase(0.02, 0.1, 1)],
        clip=10.0 ** rng.uniform(-3, 3),
        dim=12,
        sampling_rate=rng.choice([1.0, 0.7]),
        bounds=DataBounds.from_box(-1, 1, 2),
        n_samples=100,
        noise_multiplier=(1.7, 0.4),
    )
    rows = [rng.uniform(-1, 1, (n, 2)) for n in (12, 7, 15)]
    others, time = [of_time.copy() for of_time in rows], rng.integers(3)
    start = np.stack([np.arange(6) * 50.0, np.zeros(6)], axis=1)[None].repeat(3, axis=0)
    if rng.random() < 0.5:
        rows[time][0], others[time][0] = (0.9, 0.0), (-0.9, 0.0)
    else:
        others[time][0], start = rng.choice([-1.0, 0.0, 1.0, 1e9], 2), rng.normal(size=(3, 6, 2))
    options = {"bandwidth": rng.choice([0.02, 0.2, 5.0])}
    options["regularization"] = rng.choice([1e-6, 1e-3, 1.0])

    def run(given):
        options["secret"] = SecretStream(5)  # the same batches
        return mean_field_langevin(
            given, start, np.array([0.2, 0.5]), made, coupling=no_coupling, **options
        )

    return run, rows, others, 1


def no_coupling(particles, spacings, diffusivity):
    return np.zeros_like(particles[1:]), np.zeros_like(particles[1:])


def output_tables(compared, n_projections):
    """Anywhere, at the ends of the range, or as large as single precision holds."""

    def make(rng):
        directions = compared.directions(n_projections, rng)
        limits, sizes = compared.half_widths(directions), (7, 5)
        noise = plan_output_tables(0.5, 2, len(directions), int(rng.choice([10, 400, 20_000])))
        values = rng.normal(scale=limits.max(), size=(12, compared.n_outputs))
        other, n_bins = values.copy(), noise.strategy.n_bins
        columns = noise.strategy.matrix.T
        apart = np.linalg.norm(columns[:, None] - columns[None], axis=2)
        worst = (np.array(np.unravel_index(apart.argmax(), apart.shape)) + 0.5) / n_bins - 0.5
        along = directions[rng.integers(len(directions))]
        if rng.random() < 0.5:
            values[0], other[0] = np.outer(2 * limits[0] * worst, along)
        else:
            values[0] *= rng.choice([0.0, 1.0, 1e30])
            other[0] = rng.choice([-1e30, -1.0, 1.0, 1e30]) * along

        def run(given):
            cells = np.repeat([0, 1], sizes)
            release = partial(release_tables, given, cells, sizes, directions, limits, noise)
            return release(SecretStream(), previous=release(SecretStream()))

        return run, values, other, 1

    return make


def threshold(rng):
    """A change of class moves the number of records of the second class, and nothing else."""
    noise = plan_threshold(0.5, int(rng.choice([20, 20_000])), public_classes=False)
    scores, labels = rng.uniform(size=20), np.arange(20) % 2
    others, changed = scores.copy(), labels.copy()
    changed[0] = 1 - changed[0]
    others[0] = rng.choice([scores[0], 0.0, 1.0])
    given = (scores, labels), (others, changed)
    return lambda pair: tuned_threshold(*pair, noise, SecretStream()), *given, 1


def categories(rng):
    plan = plan_category_selection(2000, mu=2.0, delta=1e-6, n_columns=1)
    column = np.repeat(np.array(["a", "b", "c", "d"], dtype=object), 500)
    other = column.copy()
    other[0] = rng.choice(["b", "c", "new"])
    return lambda values: select_categories(values, plan, SecretStream()), column, other, 1


# How data sets are drawn that differ in one record (or the rows of one person), and whether some
# of them attain what is charged.
CASES = {
    "bounds of features": (bounds("features"), 1.0),
    "bounds of norms": (bounds("norm"), 1.0),
    "bounds of features, three rows of a person": (bounds("features", 3), 1.0),
    "bounds of norms, three rows of a person": (bounds("norm", 3), 1.0),
    "means": (warm_start("mean"), 0.95),
    "clusters": (warm_start("kmeans"), 0.95),
    "mean-field Langevin": (langevin, 0.99),
    "outputs, one probability": (output_tables(Probabilities(1), 1), 1.0),
    "outputs, probabilities": (output_tables(Probabilities(4), 6), 0.95),
    "outputs in a ball": (output_tables(ClippedOutputs(2, 2.0), 6), 0.9),
    "threshold": (threshold, 1.0),
    "categories": (categories, 1.0),
}


@pytest.mark.filterwarnings("ignore::skdpot.exceptions.PrivacyWarning")
@pytest.mark.parametrize("name", CASES)
def test_no_release_moves_further_than_its_sensitivity(name):
    make, attained = CASES[name]
    best = 0.0
    for seed in range(100):
        run, first, second, together = make(np.random.default_rng(seed))
        distances, stated = moves(run, first, second)
        distances = np.linalg.norm(distances.reshape(-1, together), axis=1)
        assert (distances <= stated[::together] * ROUNDING).all()
        best = max(best, (distances / stated[::together]).max())
    assert best >= attained * (1 - 1e-12)
