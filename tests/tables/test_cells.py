"""Cells that are found where the rows are, and values that are as round as those counted."""

import warnings

import numpy as np
import pandas as pd
import pytest
from hypothesis import given
from hypothesis import strategies as st
from hypothesis.extra.numpy import arrays

from skdpot import DPTableSynthesizer
from skdpot.exceptions import PrivacyWarning
from skdpot.preprocessing import CategoricalColumn, DatetimeColumn, NumericColumn, TableSchema
from skdpot.release.gate import record_releases, replay_releases
from skdpot.tables.bins import coarsen
from skdpot.tables.cells import ROUNDS, combined
from skdpot.tables.contingency import Marginal, NoisyMarginal
from skdpot.tables.grids import ColumnGrid
from skdpot.tables.marginal_release import tables_of

N_ROWS, WIDE, LARGEST = 8000, 10**9, 2**62
DAY = np.timedelta64(1, "D")


def number(name, lower, upper, **options):
    return NumericColumn(name, lower=lower, upper=upper, **options)


SCHEMA = TableSchema(
    [
        number("limit", 0, WIDE, integer=True),
        number("bill", -WIDE, WIDE, integer=True),
        number("cents", 0, WIDE),
        number("short", -1000, 1000, dtype="float32"),
        number("large", LARGEST - 2**40, LARGEST, integer=True),
        number("nothing", 0, WIDE, missing=True),
        number("same", -WIDE, WIDE),
        DatetimeColumn("day", lower="1900-01-01", upper="2100-01-01", dtype="datetime64[s]"),
    ]
)


def test_cells_of_many_places_are_those_of_a_search():
    rng = np.random.default_rng(0)
    edges = np.concatenate(
        [[-0.5, 0.0, 5e-324, 2.0**-40], np.exp(-20 * rng.random(300)), np.linspace(0.5, 1.5, 200)]
    )
    edges = np.unique(np.concatenate([edges, np.nextafter(edges, 2.0)]))
    grid = ColumnGrid(number("any", 0, 1, missing=True), len(edges) - 1, True, edges)
    places = np.concatenate([edges, np.nextafter(edges, -1.0), rng.random(20_000), [-0.0, np.nan]])
    places = np.append(places[(places >= 0.0) & (places <= 1.0)], [np.nan, -np.nan])
    found = grid.cells(places)
    few = [grid.cells(part) for part in np.array_split(places, 100)]
    np.testing.assert_array_equal(found, np.concatenate(few))
    kept = places[:-2]
    np.testing.assert_array_equal(found[:-2], np.searchsorted(edges[1:-1], kept, side="right"))
    assert found[-2:].tolist() == [grid.n_cells] * 2


COUNTS = arrays(
    np.float64,
    st.integers(2, 200),
    elements=st.sampled_from([-30.0, -1.0, 0.0, 1e-6, 0.6, 1.0, 1.3, 70.0, 1e6]),
)


@given(COUNTS, st.sampled_from([0.0, 0.5, 300.0]), st.integers(2, 24), st.booleans())
def test_bins_and_groups_have_public_bounds_whatever_the_noise(counts, sigma, n_groups, ordered):
    """What is held and how long it takes follows from them."""
    column = CategoricalColumn("any", categories=range(len(counts)), ordered=ordered)
    grid = ColumnGrid(column, len(counts), ordered)
    noisy = NoisyMarginal(Marginal((0,), (np.arange(len(counts)),)), counts, sigma)
    found = coarsen([noisy], grid, 100, n_groups)
    assert found.n_bins <= (3 * 24 if ordered else 65)
    for level, most in ((0, 3 * 24), (1, 3 * n_groups), (2, 3 * 4 + 1)):
        assert found.groups(level).max() < most
    assert found.shares.sum() == pytest.approx(1.0)


def table(seed=0, n_rows=N_ROWS):
    """Return amounts as people have them: round, heavy-tailed, negative, and often zero."""
    rng = np.random.default_rng(seed)
    bill = np.rint(np.exp(rng.normal(8, 1.2, n_rows)) / 100).astype(int) * 100
    bill = np.where(rng.random(n_rows) < 0.1, -bill, bill)
    return pd.DataFrame(
        {
            "limit": np.clip(np.rint(np.exp(rng.normal(11.5, 0.6, n_rows)) / 1e4), 1, 80) * 10_000,
            "bill": np.where(rng.random(n_rows) < 0.3, 0, bill),
            "cents": np.exp(rng.normal(4, 1, n_rows)).round(2),
            "short": rng.normal(0, 3, n_rows).astype("float32"),
            "large": LARGEST - rng.integers(0, 1000, n_rows) * 1000,
            "nothing": np.full(n_rows, np.nan),
            "same": np.full(n_rows, 12.5),
            "day": np.datetime64("2020-01-01T00:00:00") + rng.integers(0, 700, n_rows) * DAY,
        }
    ).astype({"limit": "int64"})


def fit(frame):
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", PrivacyWarning)
        return DPTableSynthesizer(SCHEMA, epsilon=8.0, random_state=0).fit(frame)


@pytest.fixture(scope="module")
def recorded():
    with record_releases() as releases:
        fitted = fit(table())
    return fitted, list(releases), fitted.sample(20_000, random_state=0)


def distance(first, second, n_quantiles=16):
    """Return the total variation distance between quantiles of the first values."""
    edges = np.unique(np.quantile(first, np.linspace(0, 1, n_quantiles)))
    shares = [
        np.bincount(np.searchsorted(edges, v), minlength=len(edges) + 1) for v in (first, second)
    ]
    return np.abs(shares[0] / len(first) - shares[1] / len(second)).sum() / 2


@pytest.mark.parametrize("name", ["limit", "bill", "cents", "short", "large", "day"])
def test_a_wide_range_costs_little(name, recorded):
    """Equal cells of ranges of 10^9 would leave each column in one or two: at least 0.4."""
    own, drawn = (
        frame[name].astype("int64" if name == "day" else None or frame[name].dtype)
        for frame in (table(), recorded[2])
    )
    low = own.min()
    assert distance(*((v - low).to_numpy(float) for v in (own, drawn))) < 0.06


def test_values_are_as_round_as_those_that_were_counted(recorded):
    drawn = recorded[2]
    assert (drawn["limit"] % 10_000 == 0).mean() > 0.99
    assert (drawn["bill"] % 100 == 0).mean() > 0.99
    assert (drawn["large"] % 1000 == LARGEST % 1000).mean() < 0.5  # no round numbers, of which none
    assert (drawn["cents"] == drawn["cents"].round(2)).mean() > 0.98
    assert (drawn["day"] == drawn["day"].dt.floor("D")).mean() > 0.99
    assert (drawn["bill"] == 0).mean() == pytest.approx((table()["bill"] == 0).mean(), abs=0.02)
    exact = [frame["limit"].value_counts(normalize=True) for frame in (table(), drawn)]
    assert exact[0].sub(exact[1], fill_value=0).abs().sum() / 2 < 0.06


def test_columns_without_spread(recorded):
    drawn = recorded[2]
    assert drawn["nothing"].isna().mean() > 0.98
    assert (drawn["same"].sub(12.5).abs() < 0.5).mean() > 0.98


def test_each_row_is_in_one_cell_of_each_release(recorded):
    """So that neighbours are at most the root of 2 apart, in each round and for any row."""
    fitted, releases, _ = recorded
    rng = np.random.default_rng(1)
    odd = {"limit": [0, WIDE, 2**40], "bill": [-WIDE, 2**62, 1], "cents": [0.0, 1e300, 1e-300]}
    first, second = table(2, 300), table(3, 300)
    for name, values in odd.items():
        second[name] = rng.choice(values, 300)
    rounds = [r for r in releases if r.kind == "marginals"][: len(ROUNDS) + 1]
    assert len(rounds) == fitted.model_.n_rounds == len(ROUNDS) + 1
    for release in (*rounds, *fitted.releases_[: len(rounds)]):
        codes = [
            fitted.model_.seen_by(release, [frame[name] for name in SCHEMA.names])
            for frame in (first, second)
        ]
        for noisy in tables_of(release):
            cells = [noisy.marginal.cells(part) for part in codes]
            assert all(
                len(c) == 300 and 0 <= c.min() and c.max() < len(noisy.counts) for c in cells
            )
            assert len(noisy.counts) == noisy.marginal.n_cells


def test_cells_follow_from_releases_alone(recorded):
    fitted, releases, _ = recorded
    with replay_releases(releases):
        again = fit(table(4))
    for one, other in zip(fitted._grids, again._grids, strict=True):
        np.testing.assert_array_equal(one.edges, other.edges)
        np.testing.assert_array_equal(one.rounded, other.rounded)


def test_counts_of_all_rounds_are_combined_as_least_squares_do():
    rng = np.random.default_rng(0)
    middle = np.sort(np.r_[np.arange(5), rng.integers(0, 5, 4)])
    fine = np.sort(np.r_[np.arange(9), rng.integers(0, 9, 7)])
    groups, sigmas = (middle[fine], fine, np.arange(16)), (3.0, 1.0, 2.0)
    rounds = [
        NoisyMarginal(Marginal((0,), (part,)), 100 * rng.random(part.max() + 1), sigma)
        for part, sigma in zip(groups, sigmas, strict=True)
    ]
    design = np.concatenate(
        [np.eye(p.max() + 1)[p].T / s for p, s in zip(groups, sigmas, strict=True)]
    )
    wanted = np.concatenate([noisy.counts / noisy.sigma for noisy in rounds])
    expected = np.linalg.lstsq(design, wanted)[0]
    np.testing.assert_allclose(combined(rounds)[0], expected)
    exact = [NoisyMarginal(noisy.marginal, noisy.counts, 0.0) for noisy in rounds]
    np.testing.assert_array_equal(combined(exact)[0], rounds[-1].counts)
