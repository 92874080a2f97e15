"""Noisy marginals and misfits: the lattice, the scale of the noise, and what a row can change."""

import itertools
import math

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from skdpot._utils.validation import SecretStream
from skdpot.privacy.events import NonPrivateEvent
from skdpot.privacy.noise import noise_lattice
from skdpot.release import contingency as tables_of_counts
from skdpot.release.contingency import (
    MARGINAL_SENSITIVITY,
    Marginal,
    misfit_sensitivity,
    release_marginals,
    release_misfits,
    tables_of,
)
from skdpot.release.release import record_releases

RNG = np.random.default_rng(77)
N_ROWS, SIZES = 60, (3, 4, 2, 5)
CODES = np.column_stack([RNG.integers(0, size, N_ROWS) for size in SIZES]).astype(np.int32)
ALONE = tuple(Marginal((j,), (np.arange(size),)) for j, size in enumerate(SIZES))
PAIRS = tuple(
    Marginal((a, b), (np.arange(SIZES[a]), np.arange(SIZES[b])))
    for a, b in itertools.combinations(range(len(SIZES)), 2)
)
ALL = (*ALONE, *PAIRS)
SIGMAS = np.geomspace(0.3, 300.0, len(ALL))


def replaced(codes, row, place=0):
    changed = codes.copy()
    changed[place] = row
    return changed


def predictions_for(marginals, rng, spread=2.0):
    return [np.maximum(m.counts(CODES) + rng.normal(0, spread, m.n_cells), 0.0) for m in marginals]


# --- noise -------------------------------------------------------------------------------------


def test_the_noise_of_a_marginal_is_a_multiple_of_its_lattice():
    """And so are the counts, so that nothing about them is in the last bits of a sum."""
    released = tables_of(release_marginals(CODES, ALL, SIGMAS, SecretStream(3), NonPrivateEvent()))
    for noisy, sigma in zip(released, SIGMAS, strict=True):
        lattice = noise_lattice(sigma, 1 / 16)
        steps = (noisy.counts - noisy.marginal.counts(CODES)) / lattice
        assert sigma / lattice >= 16
        assert np.abs(steps - np.rint(steps)).max() == 0
        assert noisy.sigma == sigma
        assert len(noisy.counts) == noisy.marginal.n_cells


@pytest.mark.parametrize("sigma", [0.3, 7.0, 1000.0])
def test_the_noise_of_misfits_is_a_multiple_of_its_lattice(sigma):
    """The misfits are multiples of 1 / 16, and the lattice divides that, whatever is predicted."""
    predictions = predictions_for(ALL, np.random.default_rng(0), spread=math.pi)
    noisy = release_misfits(CODES, ALL, predictions, sigma, SecretStream(4), NonPrivateEvent())
    exact = release_misfits(CODES, ALL, predictions, 0.0, SecretStream(), NonPrivateEvent())
    lattice = noise_lattice(sigma, 1 / 16)
    for statistic, unit in ((exact, 1 / 16), (noisy - exact, lattice), (noisy, lattice)):
        assert np.abs(statistic / unit - np.rint(statistic / unit)).max() == 0
    assert (1 / 16) % lattice == 0


@pytest.mark.parametrize("sigma", [4.0, 40.0])
def test_noise_of_marginals_has_the_stated_standard_deviation(sigma):
    """A band of 5.5 standard errors is left once in 3e7 runs."""
    many = [Marginal((0,), (np.arange(3),))] * 4000
    released = tables_of(
        release_marginals(CODES, many, np.full(4000, sigma), SecretStream(), NonPrivateEvent())
    )
    noise = np.concatenate([noisy.counts - ALONE[0].counts(CODES) for noisy in released])
    assert abs(noise.mean()) < 5.5 * sigma / math.sqrt(len(noise))
    assert noise.std() == pytest.approx(sigma, rel=5.5 / math.sqrt(2 * len(noise)))
    # Neighbouring counts and tables have noise of their own.
    assert abs(np.corrcoef(noise[:-1], noise[1:])[0, 1]) < 5.5 / math.sqrt(len(noise))


def test_noise_of_misfits_has_the_stated_standard_deviation():
    many, sigma = [ALONE[0]] * 12_000, 25.0
    predictions = [np.full(3, 7.0)] * len(many)
    noisy = release_misfits(CODES, many, predictions, sigma, SecretStream(), NonPrivateEvent())
    noise = noisy - np.abs(ALONE[0].counts(CODES) - 7.0).sum()
    assert abs(noise.mean()) < 5.5 * sigma / math.sqrt(len(noise))
    assert noise.std() == pytest.approx(sigma, rel=5.5 / math.sqrt(2 * len(noise)))


def test_without_noise_everything_is_exact():
    released = tables_of(
        release_marginals(CODES, ALL, np.zeros(len(ALL)), SecretStream(), NonPrivateEvent())
    )
    for noisy, marginal in zip(released, ALL, strict=True):
        np.testing.assert_array_equal(noisy.counts, marginal.counts(CODES))
    predictions = [np.zeros(m.n_cells) for m in ALL]
    misfits = release_misfits(CODES, ALL, predictions, 0.0, SecretStream(), NonPrivateEvent())
    np.testing.assert_array_equal(misfits, np.full(len(ALL), N_ROWS))


def test_noise_is_drawn_before_the_rows_are_counted(monkeypatch):
    order = []
    draw = tables_of_counts.lattice_noise

    def spy(*args, **options):
        order.append("noise")
        return draw(*args, **options)

    monkeypatch.setattr(tables_of_counts, "lattice_noise", spy)
    monkeypatch.setattr(
        Marginal, "counts", lambda self, codes: order.append("rows") or np.zeros(self.n_cells)
    )
    tables_of(release_marginals(CODES, ALL[:2], SIGMAS[:2], SecretStream(), NonPrivateEvent()))
    assert order == ["noise", "rows", "noise", "rows"]
    order.clear()
    release_misfits(
        CODES, ALL[:2], [np.zeros(3), np.zeros(4)], 5.0, SecretStream(), NonPrivateEvent()
    )
    assert order == ["noise", "rows", "rows"]


def test_the_sampler_is_told_of_the_whole_release(monkeypatch):
    """Its error is charged once a release, so that it must know how private that is."""
    told = []
    draw = tables_of_counts.lattice_noise

    def spy(sigma, *args, mu, **options):
        told.append(mu)
        return draw(sigma, *args, mu=mu, **options)

    monkeypatch.setattr(tables_of_counts, "lattice_noise", spy)
    tables_of(release_marginals(CODES, ALL, SIGMAS, SecretStream(), NonPrivateEvent()))
    assert told == pytest.approx([math.sqrt(np.sum(2 / SIGMAS**2))] * len(ALL))
    told.clear()
    release_misfits(
        CODES, ALL[:2], [np.zeros(3), np.zeros(4)], 5.0, SecretStream(), NonPrivateEvent()
    )
    assert told == pytest.approx([2 * math.sqrt(2) / 5.0])


# --- what a neighbour changes ------------------------------------------------------------------


def marginal_distance(first, second, marginals, weights):
    """Norm in which the noise is round: each marginal in units of its sigma."""
    return math.sqrt(
        sum(
            w * np.sum((m.counts(first) - m.counts(second)) ** 2)
            for m, w in zip(marginals, weights, strict=True)
        )
    )


@given(st.data())
@settings(max_examples=60)
def test_no_neighbour_moves_marginals_further_than_charged(data):
    row = [data.draw(st.integers(0, size - 1)) for size in SIZES]
    place = data.draw(st.integers(0, N_ROWS - 1))
    weights = 1 / SIGMAS**2
    moved = marginal_distance(CODES, replaced(CODES, row, place), ALL, weights)
    assert moved <= MARGINAL_SENSITIVITY * math.sqrt(weights.sum()) * (1 + 1e-12)


def test_a_row_that_differs_in_all_columns_attains_the_sensitivity():
    weights = 1 / SIGMAS**2
    other = [(code + 1) % size for code, size in zip(CODES[0], SIZES, strict=True)]
    moved = marginal_distance(CODES, replaced(CODES, other), ALL, weights)
    assert moved == pytest.approx(MARGINAL_SENSITIVITY * math.sqrt(weights.sum()))


def exact_misfits(codes, marginals, predictions):
    return release_misfits(codes, marginals, predictions, 0.0, SecretStream(), NonPrivateEvent())


@given(st.data())
@settings(max_examples=60)
def test_no_neighbour_moves_misfits_further_than_charged(data):
    rng = np.random.default_rng(data.draw(st.integers(0, 2**32)))
    spread = data.draw(st.sampled_from([0.0, 0.3, 1.0, 30.0]))
    chosen = data.draw(st.lists(st.sampled_from(ALL), min_size=1, max_size=12))
    predictions = predictions_for(chosen, rng, spread)
    row = [data.draw(st.integers(0, size - 1)) for size in SIZES]
    place = data.draw(st.integers(0, N_ROWS - 1))
    before = exact_misfits(CODES, chosen, predictions)
    after = exact_misfits(replaced(CODES, row, place), chosen, predictions)
    assert np.abs(before - after).max() <= 2.0
    assert np.linalg.norm(before - after) <= misfit_sensitivity(len(chosen)) * (1 + 1e-12)


@pytest.mark.parametrize("n_marginals", [1, 4, len(ALL)])
def test_the_worst_predictions_attain_the_sensitivity_of_misfits(n_marginals):
    """Too small where the row goes, too large where it comes from: both counts fit worse."""
    chosen = ALL[-n_marginals:]
    other = [(code + 1) % size for code, size in zip(CODES[0], SIZES, strict=True)]
    neighbour = replaced(CODES, other)
    # Halfway between would not move at all; beyond both ends everything counts.
    predictions = [
        m.counts(CODES) + 3 * (m.counts(CODES) - m.counts(neighbour)) + 3.0 for m in chosen
    ]
    for prediction, m in zip(predictions, chosen, strict=True):
        goes, comes = m.cells(neighbour[:1])[0], m.cells(CODES[:1])[0]
        prediction[goes], prediction[comes] = 0.0, N_ROWS + 1.0
    moved = exact_misfits(CODES, chosen, predictions) - exact_misfits(
        neighbour, chosen, predictions
    )
    assert np.linalg.norm(moved) == pytest.approx(misfit_sensitivity(n_marginals))


# --- what is recorded --------------------------------------------------------------------------


def test_what_is_recorded_has_its_noise():
    predictions = predictions_for(ALL, np.random.default_rng(1))
    with record_releases() as releases:
        marginals = tables_of(
            release_marginals(
                CODES, ALL, np.full(len(ALL), 80.0), SecretStream(), NonPrivateEvent()
            )
        )
        misfits = release_misfits(CODES, ALL, predictions, 60.0, SecretStream(), NonPrivateEvent())
    first, second = releases
    assert (first.kind, second.kind) == ("marginals", "misfits")
    assert set(first.facts) == {"marginals"}
    assert first.sigma == (80.0,) * len(ALL)
    for table, noisy, marginal in zip(first.value, marginals, ALL, strict=True):
        np.testing.assert_array_equal(table, noisy.counts)
        assert not np.array_equal(table, marginal.counts(CODES))
    np.testing.assert_array_equal(second.value, misfits)
    assert second.sigma == 60.0
    assert np.abs(misfits - exact_misfits(CODES, ALL, predictions)).min() > 0
