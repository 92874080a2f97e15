"""Contingency tables and misfits: their cells, their noise, and what a row can change."""

import itertools
import math
from dataclasses import replace

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from hypothesis.extra.numpy import arrays

from skdpot._utils.streams import SecretStream
from skdpot.privacy.events import NonPrivateEvent
from skdpot.release.gate import record_releases
from skdpot.sources import HeldRows
from skdpot.tables import contingency, marginal_release
from skdpot.tables.contingency import (
    CountedRows,
    JointTables,
    Marginal,
    NoisyMarginal,
    counts_of,
    exact_counts,
)
from skdpot.tables.marginal_release import (
    MARGINAL_SENSITIVITY,
    largest_change,
    misfit_sensitivity,
    release_marginals,
    release_misfits,
    tables_of,
)

RNG = np.random.default_rng(77)
N_ROWS, SIZES = 60, (3, 4, 2, 5)
CODES = np.column_stack([RNG.integers(0, size, N_ROWS) for size in SIZES]).astype(np.int32)


def marginal_of(*columns):
    return Marginal(columns, tuple(np.arange(SIZES[column]) for column in columns))


ALONE = tuple(marginal_of(j) for j in range(4))
PAIRS = tuple(marginal_of(*pair) for pair in itertools.combinations(range(4), 2))
TRIPLES = tuple(marginal_of(*triple) for triple in itertools.combinations(range(4), 3))
ALL = (*ALONE, *PAIRS)
SIGMAS = np.geomspace(0.3, 300.0, len(ALL))


def released(marginals, sigmas, stream=None):
    stream = SecretStream() if stream is None else stream
    return tables_of(release_marginals(CODES, marginals, sigmas, stream, NonPrivateEvent()))


def misfits(marginals, predictions, sigma=0.0, codes=CODES):
    return release_misfits(codes, marginals, predictions, sigma, SecretStream(), NonPrivateEvent())


def replaced(row, place=0):
    changed = CODES.copy()
    changed[place] = row
    return changed


OTHER = [(code + 1) % size for code, size in zip(CODES[0], SIZES, strict=True)]


def predictions_for(marginals, rng, spread=2.0):
    return [np.maximum(m.counts(CODES) + rng.normal(0, spread, m.n_cells), 0.0) for m in marginals]


# --- cells -------------------------------------------------------------------------------------


@pytest.mark.parametrize("columns", [(0,), (2,), (0, 1), (1, 2), (0, 1, 2)])
def test_counts_are_those_of_a_loop_over_rows(columns):
    marginal = marginal_of(*columns)
    expected = np.zeros(marginal.shape)
    for row in CODES:
        expected[tuple(row[list(columns)])] += 1
    assert marginal.shape == tuple(SIZES[column] for column in columns)
    np.testing.assert_array_equal(marginal.counts(CODES), expected.ravel())
    np.testing.assert_array_equal(
        marginal.counts(CODES, np.full(N_ROWS, 0.5)), expected.ravel() / 2
    )


def test_groups_join_codes():
    groups = (np.array([0, 1, 1]), np.array([0, 0, 1, 1, 2]))
    marginal = Marginal((0, 3), groups, levels=(1, 1))
    fine = marginal_of(0, 3).counts(CODES)
    expected = np.zeros((2, 3))
    np.add.at(expected, (groups[0][:, None], groups[1][None]), fine.reshape(3, 5))
    for found in (marginal.counts(CODES), marginal.joined(fine)):
        np.testing.assert_array_equal(found, expected.ravel())
    # They are keys of dictionaries: groups follow from the level.
    assert marginal != marginal_of(0, 3) == Marginal((0, 3), groups)


def test_many_cells_do_not_overflow_the_type_of_the_codes():
    """300 ^ 4 cells are more than 32 bits hold."""
    marginal = Marginal((0, 1, 2, 3), tuple(np.arange(300) for _ in range(4)))
    assert marginal.cells(np.full((1, 4), 299, dtype=np.int32)).tolist() == [300**4 - 1]


@given(
    arrays(np.float64, (2, 3), elements=st.floats(-1e6, 1e6)),
    st.tuples(st.floats(0.01, 1e4), st.floats(0.01, 1e4)),
)
def test_merging_is_the_weighted_mean_with_the_least_variance(counts, sigmas):
    noisy = [NoisyMarginal(ALONE[0], *known) for known in zip(counts, sigmas, strict=True)]
    merged = noisy[0].merge(noisy[1])
    weights = np.linspace(0, 1, 100_001)
    best = np.min(np.hypot(weights * sigmas[0], (1 - weights) * sigmas[1]))
    assert merged.sigma <= min(sigmas)
    assert merged.sigma == pytest.approx(best, rel=1e-3, abs=1e-4 * min(sigmas))
    mean = np.average(counts, axis=0, weights=np.array(sigmas) ** -2.0)
    np.testing.assert_allclose(merged.counts, mean, rtol=1e-9, atol=1e-6)
    exact = NoisyMarginal(ALONE[0], counts[0], 0.0)  # stands alone
    assert exact.merge(noisy[1]) is noisy[1].merge(exact) is exact


# --- noise -------------------------------------------------------------------------------------


@pytest.mark.parametrize("sigma", [4.0, 40.0])
def test_noise_of_marginals_has_the_stated_standard_deviation(sigma):
    """A band of 5.5 standard errors is left once in 3e7 runs."""
    tables = released([ALONE[0]] * 4000, np.full(4000, sigma))
    noise = np.concatenate([noisy.counts - ALONE[0].counts(CODES) for noisy in tables])
    assert abs(noise.mean()) < 5.5 * sigma / math.sqrt(len(noise))
    assert noise.std() == pytest.approx(sigma, rel=5.5 / math.sqrt(2 * len(noise)))
    # Neighbouring counts and tables have noise of their own.
    assert abs(np.corrcoef(noise[:-1], noise[1:])[0, 1]) < 5.5 / math.sqrt(len(noise))


def test_noise_of_misfits_has_the_stated_standard_deviation():
    n, sigma = 12_000, 25.0
    noisy = misfits([ALONE[0]] * n, [np.full(3, 7.0)] * n, sigma)
    noise = noisy - np.abs(ALONE[0].counts(CODES) - 7.0).sum()
    assert abs(noise.mean()) < 5.5 * sigma / math.sqrt(n)
    assert noise.std() == pytest.approx(sigma, rel=5.5 / math.sqrt(2 * n))


def test_without_noise_everything_is_exact():
    for noisy in released(ALL, np.zeros(len(ALL))):
        np.testing.assert_array_equal(noisy.counts, noisy.marginal.counts(CODES))
    found = misfits(ALL, [np.zeros(m.n_cells) for m in ALL])
    np.testing.assert_array_equal(found, np.full(len(ALL), N_ROWS))


def test_noise_is_drawn_before_the_rows_are_counted(monkeypatch):
    order = []
    draw = marginal_release.lattice_noise
    monkeypatch.setattr(
        marginal_release, "lattice_noise", lambda *a, **kw: order.append("noise") or draw(*a, **kw)
    )
    count = JointTables.count
    monkeypatch.setattr(JointTables, "count", lambda *a: order.append("rows") or count(*a))
    released(ALL[:2], SIGMAS[:2])
    assert order == ["noise", "noise", "rows"]
    order.clear()
    misfits(ALL[:2], [np.zeros(3), np.zeros(4)], 5.0)
    assert order == ["noise", "rows"]


def test_the_sampler_is_told_of_the_whole_release(monkeypatch):
    """Its error is charged once a release, so that it must know how private that is."""
    told = []
    draw = marginal_release.lattice_noise

    def spy(sigma, *args, mu, **options):
        told.append(mu)
        return draw(sigma, *args, mu=mu, **options)

    monkeypatch.setattr(marginal_release, "lattice_noise", spy)
    released(ALL, SIGMAS)
    assert told == pytest.approx([math.sqrt(np.sum(2 / SIGMAS**2))] * len(ALL))
    told.clear()
    misfits(ALL[:2], [np.zeros(3), np.zeros(4)], 5.0)
    assert told == pytest.approx([2 * math.sqrt(2) / 5.0])


# --- what a neighbour changes ------------------------------------------------------------------


@given(st.tuples(*(st.integers(0, size - 1) for size in SIZES)), st.integers(0, N_ROWS - 1))
@settings(max_examples=60)
def test_no_neighbour_moves_marginals_further_than_charged(row, place):
    """In the norm in which the noise is round; a row that differs in all columns attains it."""
    limit = MARGINAL_SENSITIVITY * math.hypot(*(1 / SIGMAS))

    def moved(neighbour):
        steps = (m.counts(CODES) - m.counts(neighbour) for m in ALL)
        return math.hypot(
            *(np.linalg.norm(s) / sigma for s, sigma in zip(steps, SIGMAS, strict=True))
        )

    assert moved(replaced(row, place)) <= limit * (1 + 1e-12)
    assert moved(replaced(OTHER)) == pytest.approx(limit)


@given(st.data())
@settings(max_examples=60)
def test_no_neighbour_moves_misfits_further_than_charged(data):
    rng = np.random.default_rng(data.draw(st.integers(0, 2**32)))
    spread = data.draw(st.sampled_from([0.0, 0.3, 1.0, 30.0]))
    chosen = data.draw(st.lists(st.sampled_from((*ALL, *TRIPLES)), min_size=1, max_size=12))
    predictions = predictions_for(chosen, rng, spread)
    row = [data.draw(st.integers(0, size - 1)) for size in SIZES]
    neighbour = replaced(row, data.draw(st.integers(0, N_ROWS - 1)))
    moved = misfits(chosen, predictions) - misfits(chosen, predictions, codes=neighbour)
    assert np.all(np.abs(moved) <= [largest_change(marginal) for marginal in chosen])
    assert np.linalg.norm(moved) <= misfit_sensitivity(chosen) * (1 + 1e-12)


@pytest.mark.parametrize("n_marginals", [1, 4, len(ALL)])
def test_the_worst_predictions_attain_the_sensitivity_of_misfits(n_marginals):
    """Too small where the row goes, too large where it comes from: both counts fit worse."""
    chosen, neighbour = ALL[-n_marginals:], replaced(OTHER)
    # Halfway between would not move at all; beyond both ends everything counts.
    predictions = [
        m.counts(CODES) + 3 * (m.counts(CODES) - m.counts(neighbour)) + 3.0 for m in chosen
    ]
    for prediction, m in zip(predictions, chosen, strict=True):
        goes, comes = m.cells(neighbour[:1])[0], m.cells(CODES[:1])[0]
        prediction[goes], prediction[comes] = 0.0, N_ROWS + 1.0
    moved = misfits(chosen, predictions) - misfits(chosen, predictions, codes=neighbour)
    assert np.linalg.norm(moved) == pytest.approx(misfit_sensitivity(chosen))


def test_the_worst_triple_attains_its_sensitivity():
    """Its own misfit falls by two, and that of the pair that is off most grows by two."""
    triple = Marginal((0, 1, 2), (np.arange(2),) * 3)
    before, after = np.zeros((4, 3), dtype=np.int32), np.zeros((4, 3), dtype=np.int32)
    before[0], after[0] = (0, 0, 1), (1, 1, 0)
    prediction = np.zeros((2, 2, 2))
    # At (0, 0, 1) there is a row too many and at (1, 1, 0) one too few, other than for the pairs.
    prediction[1, 1, 0], prediction[0, 0, 0], prediction[1, 1, 1] = 9.0, 900.0, -900.0
    prediction[0, 1] = prediction[1, 0] = -100.0  # the first pair is the worst one
    options = [triple], [prediction.ravel()]
    moved = misfits(*options, codes=before) - misfits(*options, codes=after)
    assert moved.tolist() == [misfit_sensitivity([triple])] == [largest_change(triple)] == [4.0]


@pytest.mark.parametrize("weighted", [False, True])
@pytest.mark.parametrize("most", [2**14, 40, 1])
def test_counts_by_joint_tables_are_those_of_single_marginals(weighted, most, monkeypatch):
    """Of one to three columns, in several groupings, in any order of the columns."""
    weights = RNG.integers(0, 16, N_ROWS) / 16 if weighted else None
    monkeypatch.setattr(contingency, "_MOST_CELLS", most)
    monkeypatch.setattr(contingency, "_ROWS_AT_ONCE", 7)
    fine = [np.arange(size) for size in SIZES]
    coarse = [np.minimum(groups, 1 + place % 2) for place, groups in enumerate(fine)]
    some = [
        Marginal(columns, tuple(groups[c] for c in columns))
        for order in (1, 2, 3)
        for columns in itertools.permutations(range(len(SIZES)), order)
        for groups in ((coarse,), (fine, coarse))[columns[0] % 2]
    ]
    for marginal, table in zip(some, counts_of(CODES, some, weights), strict=True):
        np.testing.assert_array_equal(table, marginal.counts(CODES, weights))


@pytest.mark.parametrize("order", [1, 2])
def test_columns_that_noise_left_one_cell_are_counted_by_the_hundred(order):
    """Numpy has at most 64 axes; how many columns have one cell follows from noise."""
    n_columns = 150
    codes = np.random.default_rng(3).integers(0, 3, (50, n_columns)).astype(np.int32)
    groups = [np.arange(3) if c % 40 == 7 else np.zeros(3, dtype=np.int64) for c in range(150)]
    places = itertools.permutations(range(0, n_columns, order), order)
    some = [Marginal(columns, tuple(groups[c] for c in columns)) for columns in places]
    for marginal, table in zip(some, counts_of(codes, some), strict=True):
        np.testing.assert_array_equal(table, marginal.counts(codes))
    joint = JointTables(some, len(codes))
    sizes = [math.prod(joint.parts[part].n_cells for part in table) for table in joint.tables]
    assert max(sizes) <= len(codes)


def test_rows_are_read_once_for_each_marginal(monkeypatch):
    reads = []
    rows = HeldRows((CODES, None), N_ROWS)
    monkeypatch.setattr(HeldRows, "sum", lambda own, count: reads.append(1) or count(own.value))
    counted = CountedRows(rows)
    grouped = [replace(m, groups=tuple(np.minimum(g, 1) for g in m.groups)) for m in PAIRS]
    for some, n_reads in ((PAIRS[:2], 1), (PAIRS[:2], 1), (PAIRS, 2), (grouped, 3), (PAIRS, 3)):
        for marginal, table in zip(some, exact_counts(counted, some), strict=True):
            np.testing.assert_array_equal(table, marginal.counts(CODES))
        assert len(reads) == n_reads


def test_what_is_recorded_has_its_noise():
    predictions = predictions_for(ALL, np.random.default_rng(1))
    with record_releases() as releases:
        tables = released(ALL, np.full(len(ALL), 80.0))
        found = misfits(ALL, predictions, 60.0)
    first, second = releases
    assert (first.kind, second.kind) == ("marginals", "misfits")
    assert set(first.facts) == {"marginals"}
    assert first.sigma == (80.0,) * len(ALL)
    for table, noisy in zip(first.value, tables, strict=True):
        np.testing.assert_array_equal(table, noisy.counts)
        assert not np.array_equal(table, noisy.marginal.counts(CODES))
    np.testing.assert_array_equal(second.value, found)
    assert second.sigma == 60.0
    assert np.abs(found - misfits(ALL, predictions)).min() > 0
