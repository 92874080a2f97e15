"""Released distributions of outputs: what one record moves, how noisy they are, where they pull."""

import math

import numpy as np
import pytest

from skdpot._utils.validation import SecretStream
from skdpot.privacy.events import NonPrivateEvent
from skdpot.release.histogram import square_root_strategy
from skdpot.release.output_tables import (
    ClippedOutputs,
    OutputTables,
    Probabilities,
    TableNoise,
    noisy_counts,
    plan_tables,
    pulls_between,
    release_tables,
)

RNG = np.random.default_rng(4409)
LINE, LINE_HALF = np.ones((1, 1)), np.full(1, 0.5)


def silent(n_bins):
    strategy = square_root_strategy(n_bins)
    return TableNoise(
        strategy=strategy,
        sigma=0.0,
        lattice=strategy.lattice,
        mu=math.inf,
        event=NonPrivateEvent(),
    )


def counted(values, codes, n_codes, directions, half_widths, n_bins):
    """The statistic without noise."""
    noise = silent(n_bins)
    return noisy_counts(values, codes, n_codes, directions, half_widths, noise, SecretStream(0))


def by_hand(values, codes, n_codes, directions, half_widths, n_bins):
    """Counts by numpy's histogram, times the strategy."""
    counts = np.zeros((n_codes, len(directions), n_bins))
    for c, s in np.ndindex(*counts.shape[:2]):
        half = half_widths[s]
        projected = np.clip(directions[s] @ values[codes == c].T, -half, half)
        counts[c, s] = np.histogram(projected, n_bins, (-half, half))[0]
    return counts @ square_root_strategy(n_bins).matrix.T


# --- sensitivity ---------------------------------------------------------------------------------


@pytest.mark.parametrize("compared", [Probabilities(1), Probabilities(3), ClippedOutputs(2, 0.7)])
def test_without_noise_the_statistic_is_that_of_the_histograms(compared):
    directions = compared.directions(5, RNG)
    halves = compared.half_widths(directions)
    values = RNG.uniform(-1, 1, (200, compared.n_outputs)) * halves.max()
    codes = RNG.integers(0, 3, 200)
    found = counted(values, codes, 3, directions, halves, 16)
    np.testing.assert_allclose(found, by_hand(values, codes, 3, directions, halves, 16), atol=1e-9)


# --- where the next release looks ---------------------------------------------------------------


def test_a_second_release_looks_where_the_first_found_outputs():
    """Squeezed outputs are resolved, and the ranges stay within the limits."""
    values = 0.3 + 0.01 * RNG.uniform(-1, 1, (600, 1))
    codes, sizes = np.repeat([0, 1], 300), (300, 300)
    args = (values, codes, sizes, LINE, LINE_HALF, silent(16), SecretStream(0))
    first = release_tables(*args)
    second = release_tables(*args, previous=first)
    third = release_tables(*args, previous=second)
    widths = [found.tables[0].half_widths[0] for found in (first, second, third)]
    assert widths[0] == 0.5
    assert widths[0] > 3 * widths[1] > 6 * widths[2] > 0.02
    for found in (second, third):
        centre, half = found.centres[0], found.tables[0].half_widths[0]
        assert centre - half <= values.min() <= values.max() <= centre + half
        assert -0.5 <= centre - half <= centre + half <= 0.5
    exact = np.quantile(values[:300, 0], [0.1, 0.5, 0.9])
    found = third.tables[0].quantiles_along(0, np.array([0.1, 0.5, 0.9])) + third.centres[0]
    np.testing.assert_allclose(found, exact, atol=0.002)


def test_outputs_that_are_all_equal_can_be_measured_for_ever():
    """Ranges stop shrinking before single precision cannot count in them any more."""
    values, codes = np.full((40, 1), 0.25), np.repeat([0, 1], 20)
    found = None
    for _ in range(60):
        found = release_tables(
            values, codes, (20, 20), LINE, LINE_HALF, silent(64), SecretStream(0), previous=found
        )
    assert found.tables[0].half_widths[0] == 0.5e-6
    assert np.abs(found.pull(values, 0, [1])).max() < 1e-6


# --- the pull ------------------------------------------------------------------------------------


def tables_of(samples, directions, halves, n_bins):
    values = np.concatenate(samples)
    sizes = tuple(map(len, samples))
    codes = np.repeat(np.arange(len(samples)), sizes)
    return release_tables(values, codes, sizes, directions, halves, silent(n_bins), SecretStream(0))


@pytest.mark.parametrize(
    ("compared", "n_groups"), [(Probabilities(3), 2), (ClippedOutputs(2, 0.8), 3)]
)
def test_without_noise_the_pull_converges_to_that_of_ranks(compared, n_groups):
    """The error falls with the number of bins, at about its rate."""
    n, k = 3000, compared.n_outputs
    directions = compared.directions(6, RNG)
    halves = compared.half_widths(directions)
    reach = 0.5 * halves.min() / math.sqrt(k)
    samples = [reach * RNG.uniform(-1, 1, (n, k)) * (1 - 0.2 * c) for c in range(n_groups)]
    samples = [sample + 0.3 * reach * c for c, sample in enumerate(samples)]
    exact = pulls_between(samples, directions)
    size = max(np.abs(vectors).mean() for vectors in exact)
    errors = []
    for n_bins in (8, 32, 128):
        tables = tables_of(samples, directions, halves, n_bins)
        for cell, sample in enumerate(samples):
            others = [b for b in range(n_groups) if b != cell]
            pull = tables.pull(sample, cell, others)
            errors.append(np.abs(pull / n - exact[cell]).mean() / size)
    errors = np.array(errors).reshape(3, n_groups).mean(axis=1)
    assert errors[1] < 0.5 * errors[0]
    assert errors[2] < 0.6 * errors[1]
    assert errors[2] < 0.05


def test_a_noisy_table_of_few_records_is_still_a_distribution():
    noise = plan_tables(0.01, 1, 3, 10)
    directions = ClippedOutputs(2, 1.0).directions(3, RNG)
    values = RNG.uniform(-0.5, 0.5, (4, 2))
    found = release_tables(
        values, np.array([0, 0, 1, 1]), (2, 2), directions, np.ones(3), noise, SecretStream()
    )
    assert isinstance(found, OutputTables)
    for table in found.tables:
        assert np.all(np.diff(table.cdf, axis=1) >= 0)
        assert np.all(table.cdf[:, [0, -1]] == [0, 1])
    pull = found.pull(values, 0, [1])
    assert np.isfinite(pull).all()
    assert np.linalg.norm(pull, axis=1).max() <= 4.0  # 2 (|u| + M) for one direction
