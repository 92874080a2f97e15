"""Released distributions of outputs: what one record moves, how noisy they are, where they pull."""

import math

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from scipy import stats

from skdpot._utils.validation import SecretStream
from skdpot.privacy.accounting import compose
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


def moved(values, codes, n_codes, directions, halves, n_bins, row, code, centres=None):
    """How far replacing the first record moves the statistic."""
    other, other_codes = values.copy(), codes.copy()
    other[0], other_codes[0] = row, code
    rest = (n_codes, directions, halves, silent(n_bins), SecretStream(0), centres)
    return np.linalg.norm(
        noisy_counts(other, other_codes, *rest) - noisy_counts(values, codes, *rest)
    )


@settings(max_examples=150, deadline=None)
@given(
    st.integers(0, 2**32 - 1),
    st.sampled_from([Probabilities(1), Probabilities(4), ClippedOutputs(1, 2.0)]),
    st.sampled_from([2, 5, 16, 32]),
    st.booleans(),
)
def test_one_record_never_moves_more_than_the_sensitivity(seed, compared, n_bins, changes_cell):
    """Anywhere, at the ends, or as large as single precision holds; in any public range."""
    rng = np.random.default_rng(seed)
    directions = compared.directions(6, rng)
    halves = compared.half_widths(directions)
    values = rng.normal(scale=halves.max(), size=(12, compared.n_outputs))
    values[0] *= rng.choice([0.0, 1.0, 1e30])
    row = rng.choice([-1e30, -1.0, 1.0, 1e30]) * directions[rng.integers(len(directions))]
    codes = rng.integers(0, 3, 12)
    code = (codes[0] + rng.integers(1, 3)) % 3 if changes_cell else codes[0]
    bound = square_root_strategy(n_bins).sensitivity(len(directions), conditional=changes_cell)
    centres, narrow = rng.uniform(-1, 1, len(halves)), halves * 10.0 ** rng.uniform(-8, 0)
    assert moved(values, codes, 3, directions, halves, n_bins, row, code) <= bound * (1 + 1e-12)
    values, row = np.clip(values, -1, 1), np.clip(row, -1, 1)  # as outputs are
    found = moved(values, codes, 3, directions, narrow, n_bins, row, code, centres)
    assert found <= bound * (1 + 1e-12)


def bin_centres(n_bins):
    return (np.arange(n_bins) + 0.5) / n_bins - 0.5


@pytest.mark.parametrize("n_bins", [2, 8, 32, 64])
@pytest.mark.parametrize("changes_cell", [False, True])
def test_the_sensitivity_is_attained_on_a_line(n_bins, changes_cell):
    centres, codes = bin_centres(n_bins), np.array([0, 0, 1])
    columns = square_root_strategy(n_bins).matrix.T
    apart = np.linalg.norm(columns[:, None] - columns[None], axis=2)
    a, b = np.unravel_index(apart.argmax(), apart.shape)
    if changes_cell:
        a = b = np.linalg.norm(columns, axis=1).argmax()
    values = np.array([[centres[a]], [0.0], [0.1]])
    code = 1 if changes_cell else 0
    best = moved(values, codes, 2, LINE, LINE_HALF, n_bins, centres[b], code)
    bound = square_root_strategy(n_bins).sensitivity(1, conditional=changes_cell)
    assert best == pytest.approx(bound, rel=1e-12)


# --- plans and noise -----------------------------------------------------------------------------


@pytest.mark.parametrize("n_projections", [1, 7])
def test_a_plan_costs_what_it_was_given(n_projections):
    noise = plan_tables(0.4, 5, n_projections, 1000)
    event = noise.event
    assert event.n_steps == 5
    assert event.sensitivity == noise.strategy.sensitivity(n_projections, conditional=False)
    assert (event.sigma, event.lattice) == (noise.sigma, noise.lattice)
    assert noise.mu == 0.4
    # mu of T Gaussian releases is sqrt(T) times the sensitivity over sigma.
    plain = math.sqrt(5) * event.sensitivity / noise.sigma
    assert 0.999 * 0.4 < plain <= 0.4
    assert 0.999 * 0.4 < compose(event).mu_without_sampling <= 0.4


def test_without_privacy_there_is_no_noise_and_a_plain_event():
    noise = plan_tables(math.inf, 3, 1, 1000)
    event = noise.event
    assert noise.sigma == 0
    assert event == NonPrivateEvent()


@pytest.mark.parametrize("n_codes", [2, 3])
def test_noise_has_the_stated_size_on_every_entry(n_codes):
    """Variance of N entries over sigma²: chi-squared with N degrees, false alarms 1e-6 each."""
    noise = plan_tables(0.05, 2, 40, 500)
    directions = ClippedOutputs(2, 1.0).directions(40, RNG)
    values, codes = np.zeros((30, 2)), np.repeat(np.arange(n_codes), 30 // n_codes)
    args = (values, codes, n_codes, directions, np.ones(40))
    clean = noisy_counts(*args, silent(noise.strategy.n_bins), SecretStream(0))
    stream = SecretStream(5)
    draws = [noisy_counts(*args, noise, stream) - clean for _ in range(2)]
    for drawn in draws:
        for part in (drawn, drawn[-1], drawn[:, :, -1], drawn[:, 0]):
            low, high = stats.chi2(part.size).ppf([5e-7, 1 - 5e-7])
            assert low < (part / noise.sigma).reshape(-1) @ (part / noise.sigma).reshape(-1) < high
            assert abs(part.sum()) < 4.9 * noise.sigma * math.sqrt(part.size)
        steps = drawn / noise.lattice
        np.testing.assert_array_equal(steps, np.rint(steps))
        between = np.corrcoef(drawn[0].ravel(), drawn[1].ravel())[0, 1]  # cells
        assert abs(between) < 4.9 / math.sqrt(drawn[0].size)
    # Two releases agree by chance in one entry of many.
    assert np.mean(draws[0] == draws[1]) < 0.05
    correlation = np.corrcoef(draws[0].ravel(), draws[1].ravel())[0, 1]
    assert abs(correlation) < 4.9 / math.sqrt(draws[0].size)


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
