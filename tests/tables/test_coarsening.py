"""Bins by noisy histograms: what holds of them whatever the noise."""

from types import SimpleNamespace

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from hypothesis.extra.numpy import arrays
from scipy.optimize import brentq

from skdpot.release.contingency import NoisyMarginal
from skdpot.tables import model
from skdpot.tables.model import (
    group_intervals,
    project_to_total,
)

RNG = np.random.default_rng(5)
N_GROUPS = 8


def coarsen(counts, sigma, n_rows, *, ordered, missing, doubtful):
    noisy = NoisyMarginal(None, np.asarray(counts, dtype=float), sigma)
    column = SimpleNamespace(missing=missing)
    grid = SimpleNamespace(ordered=ordered, column=column, is_doubtful=doubtful)
    return model.coarsen(noisy, grid, n_rows, N_GROUPS)


@st.composite
def histograms(draw, smallest=1):
    """A noisy histogram, and what is known of it."""
    missing = draw(st.booleans())
    n_cells = draw(st.integers(smallest, 300)) + missing
    sigma = draw(st.sampled_from([0.0, 0.5, 10.0, 1e3, 1e7]))
    n_rows = draw(st.sampled_from([2, 50, 10_000, 10**7]))
    rng = np.random.default_rng(draw(st.integers(0, 2**32)))
    shares = rng.dirichlet(np.full(n_cells, draw(st.sampled_from([0.01, 0.3, 10.0]))))
    counts = rng.multinomial(n_rows, shares) + sigma * rng.normal(size=n_cells)
    doubtful = np.zeros(n_cells, dtype=bool)
    doubtful[n_cells - missing :] = True
    if draw(st.booleans()):
        doubtful[draw(st.integers(0, n_cells - 1))] = True
    return {
        "counts": counts,
        "sigma": sigma,
        "n_rows": n_rows,
        "ordered": draw(st.booleans()),
        "missing": missing,
        "doubtful": doubtful,
    }


@given(histograms())
@settings(max_examples=300, deadline=None)
def test_bins_are_a_partition(given_histogram):
    found = coarsen(**given_histogram)
    n_cells = len(given_histogram["counts"])
    assert found.bins.shape == found.cell_shares.shape == (n_cells,)
    for groups, size in ((found.bins, found.n_bins), (found.coarse, found.coarse.max() + 1)):
        np.testing.assert_array_equal(np.unique(groups), np.arange(size))
    assert found.coarse.shape == (found.n_bins,)


@given(histograms())
@settings(max_examples=300, deadline=None)
def test_shares_are_positive_and_add_up_to_one(given_histogram):
    """What the noise hides may occur: no cell is impossible."""
    found = coarsen(**given_histogram)
    assert found.cell_shares.min() > 0
    assert found.cell_shares.sum() == pytest.approx(1.0, abs=1e-9)
    assert found.shares.shape == (found.n_bins,)
    np.testing.assert_allclose(
        found.shares,
        [found.cell_shares[found.bins == b].sum() for b in range(found.n_bins)],
        rtol=1e-9,
    )


@given(histograms())
@settings(max_examples=300, deadline=None)
def test_missing_values_have_a_bin_of_their_own(given_histogram):
    found = coarsen(**given_histogram)
    if given_histogram["missing"]:
        assert np.sum(found.bins == found.bins[-1]) == 1
        assert np.sum(found.coarse == found.coarse[-1]) == 1
        assert found.bins[-1] == found.n_bins - 1


@given(histograms())
@settings(max_examples=300, deadline=None)
def test_bins_of_a_scale_are_intervals(given_histogram):
    found = coarsen(**given_histogram | {"ordered": True})
    present = found.bins[: len(found.bins) - given_histogram["missing"]]
    assert set(np.diff(present)) <= {0, 1}
    groups = found.coarse[: present.max() + 1]
    assert set(np.diff(groups)) <= {0, 1}


def no_doubt(n_cells):
    return np.zeros(n_cells, dtype=bool)


def test_without_noise_shares_of_bins_are_exact():
    counts = RNG.multinomial(100_000, RNG.dirichlet(np.ones(200))).astype(float)
    for ordered in (True, False):
        found = coarsen(
            counts, 0.0, 100_000, ordered=ordered, missing=False, doubtful=no_doubt(200)
        )
        np.testing.assert_allclose(found.cell_shares, counts / 1e5, atol=1e-6)


def test_categories_below_the_noise_share_a_bin():
    counts = np.array([500.0, 20.0, 10.0, 480.0, -15.0])
    found = coarsen(counts, 15.0, 1000, ordered=False, missing=False, doubtful=no_doubt(5))
    assert found.bins[1] == found.bins[2] == found.bins[4]
    assert found.n_bins == 3


def test_a_doubtful_cell_in_the_noise_counts_as_empty():
    counts = np.array([500.0, 480.0, 30.0])
    doubtful = np.array([False, False, True])
    kept, lost = (
        coarsen(counts, 15.0, 1000, ordered=False, missing=True, doubtful=doubt)
        for doubt in (no_doubt(3), doubtful)
    )
    counts[2] = 90.0
    seen = coarsen(counts, 15.0, 1000, ordered=False, missing=True, doubtful=doubtful)
    assert kept.cell_shares[2] == pytest.approx(0.03, abs=0.01)
    assert 0 < lost.cell_shares[2] < 1e-6
    assert seen.cell_shares[2] == pytest.approx(0.07, abs=0.01)


# --- parts --------------------------------------------------------------------------------------


@given(arrays(np.float64, st.integers(1, 40), elements=st.floats(-1e6, 1e6)), st.floats(1.0, 1e6))
def test_the_projection_is_the_nearest_point_of_the_simplex(counts, total):
    """By another route: the shift at which what is left of the counts adds up."""
    found = project_to_total(counts, total)

    def excess(shift):
        return np.maximum(counts - shift, 0).sum() - total

    shift = brentq(excess, counts.min() - total - 1, counts.max(), xtol=1e-12, rtol=1e-14)
    np.testing.assert_allclose(found, np.maximum(counts - shift, 0), atol=1e-6 * max(total, 1))
    assert found.sum() == pytest.approx(total, rel=1e-6)


@given(
    arrays(np.float64, st.integers(1, 100), elements=st.floats(0, 1e5)),
    st.integers(1, 30),
    st.floats(0, 1e5),
)
def test_intervals_are_as_few_as_wanted(counts, n_groups, least):
    """Twice as many at most: each that stands alone may have a small one beside it."""
    groups = group_intervals(counts, n_groups, least)
    assert groups[0] == 0
    assert set(np.diff(groups)) <= {0, 1}
    assert groups[-1] + 1 <= 2 * n_groups + 1
