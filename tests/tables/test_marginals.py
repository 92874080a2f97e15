"""Distances between tables, and what the picture of marginals counts and draws."""

import itertools
import math

import numpy as np
import pandas as pd
import polars as pl
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from scipy.stats import wasserstein_distance

from skdpot import DPSlicedFlowSampler
from skdpot.metrics import MarginalsDisplay, marginal_total_variation
from skdpot.tables.marginals import (
    distance_by_chance,
    marginal_total_variations,
    normalized_wasserstein_distance,
)


def table(n_rows, seed):
    rng = np.random.default_rng(seed)
    frame = pd.DataFrame(
        {
            "number": rng.normal(size=n_rows),
            "whole": rng.integers(0, 4 + 2 * seed, n_rows),
            "text": rng.choice(["a", "b", "c", "d"][: 3 + seed], n_rows),
            "flag": rng.random(n_rows) < 0.4,
            "when": pd.Timestamp("2024-01-01") + pd.to_timedelta(rng.integers(0, 90, n_rows), "D"),
        }
    )
    frame.loc[rng.random(n_rows) < 0.2, ["number", "text"]] = None
    return frame


REAL, OTHER = table(500, 0), table(300, 1)


def by_hand(real, synthetic, columns, n_bins=16):
    """Count with dictionaries, and cut numbers by pandas."""
    parts = [real[columns].copy(), synthetic[columns].copy()]
    for name in columns:
        if real[name].dtype.kind in "ifM":
            cuts = real[name].dropna().quantile(np.linspace(0, 1, n_bins + 1)[1:-1]).unique()
            for part in parts:
                part[name] = [str((cuts < v).sum()) if pd.notna(v) else None for v in part[name]]
    keys = [list(map(str, part.fillna("missing").itertuples(index=False))) for part in parts]
    shares = [{key: rows.count(key) / len(rows) for key in set(rows)} for rows in keys]
    cells = set(shares[0]) | set(shares[1])
    return sum(abs(shares[0].get(cell, 0) - shares[1].get(cell, 0)) for cell in cells) / 2


@pytest.mark.parametrize("n_way", [1, 2, 3])
def test_every_marginal_is_what_counting_by_hand_gives(n_way):
    found = marginal_total_variations(REAL, OTHER, n_way=n_way)
    assert len(found) == math.comb(5, n_way)
    for columns in itertools.combinations(REAL, n_way):
        due = by_hand(REAL, OTHER, list(columns))
        assert found[columns if n_way > 1 else columns[0]] == pytest.approx(due, abs=1e-12)
    assert marginal_total_variation(REAL, OTHER, n_way=n_way) == pytest.approx(found.mean())


def test_many_cells_are_counted_sparsely(monkeypatch):
    whole = marginal_total_variations(REAL, OTHER, n_way=3)
    monkeypatch.setattr("skdpot.tables.marginals._MOST_CELLS", 7)
    pd.testing.assert_series_equal(whole, marginal_total_variations(REAL, OTHER, n_way=3))


def test_polars_arrays_and_pandas_agree():
    frames = [frame[["number", "flag"]].astype(np.float64) for frame in (REAL, OTHER)]
    parts = [
        pl.from_dict({k: pl.Series(v, nan_to_null=True) for k, v in frame.items()})
        for frame in frames
    ]
    arrays = [frame.to_numpy() for frame in frames]
    due = marginal_total_variation(*frames)
    assert marginal_total_variation(*arrays) == marginal_total_variation(*parts) == due
    distances = normalized_wasserstein_distance(*frames)
    pd.testing.assert_series_equal(normalized_wasserstein_distance(*parts), distances)


@settings(max_examples=25, deadline=None, derandomize=True)
@given(st.lists(st.tuples(st.integers(0, 2), st.integers(0, 2)), min_size=1), st.data())
def test_it_is_a_distance_between_0_and_1(rows, data):
    real = pd.DataFrame(rows, columns=["a", "b"]).astype(str)
    other = data.draw(st.lists(st.tuples(st.integers(0, 3), st.integers(0, 3)), min_size=1))
    synthetic = pd.DataFrame(other, columns=["a", "b"]).astype(str)
    for n_way in (1, 2):
        there = marginal_total_variations(real, synthetic, n_way=n_way)
        back = marginal_total_variations(synthetic, real, n_way=n_way)
        assert there.between(0, 1 + 1e-12).all()
        np.testing.assert_allclose(there, back, atol=1e-12)
    assert marginal_total_variation(real, real) == 0
    # Leaving out a column never increases the distance.
    assert there.iloc[0] >= marginal_total_variations(real, synthetic, n_way=1).max() - 1e-12


def test_some_combinations_at_random():
    few = marginal_total_variations(REAL, OTHER, n_way=2, n_marginals=3, random_state=0)
    whole = marginal_total_variations(REAL, OTHER, n_way=2)
    assert len(few) == 3
    assert few.index.is_unique
    pd.testing.assert_series_equal(few, whole[few.index])
    assert marginal_total_variations(REAL, OTHER, n_marginals=99).equals(whole)
    wide = pd.DataFrame(np.zeros((4, 300)))
    drawn = marginal_total_variations(wide, wide, n_way=3, n_marginals=50, random_state=1)
    assert len(drawn) == len(set(drawn.index)) == 50


@pytest.mark.parametrize(
    ("arguments", "text"),
    [
        ({"n_way": 6}, "n_way == 6, must be <= 5"),
        ({"n_bins": 1}, "n_bins == 1, must be >= 2"),
        ({"n_marginals": 0}, "n_marginals == 0, must be >= 1"),
        ({"synthetic": OTHER.drop(columns="flag")}, r"same columns; \['flag'\] are in one only"),
        ({"synthetic": OTHER.assign(number="x")}, "is a category in one table and a number"),
        ({"synthetic": OTHER[:0]}, "synthetic is empty"),
    ],
)
def test_what_is_refused(arguments, text):
    with pytest.raises(ValueError, match=text):
        marginal_total_variation(REAL, **{"synthetic": OTHER} | arguments)


def test_wasserstein_distance_of_each_column():
    real, other = REAL.assign(same=2.0, lost=np.nan), OTHER.assign(same=2.0, lost=np.nan)
    found = normalized_wasserstein_distance(real, other)
    numbers = real["number"].dropna(), other["number"].dropna()
    days = [frame["when"].dt.day_of_year for frame in (real, other)]
    due = {
        "number": wasserstein_distance(*numbers) / np.ptp(numbers[0]),
        "whole": wasserstein_distance(real["whole"], other["whole"]) / 3,
        "when": wasserstein_distance(*days) / 89,
        "same": 0.0,
        "lost": math.nan,
    }
    assert found.to_dict() == pytest.approx(due, nan_ok=True)
    moved = normalized_wasserstein_distance(real[["same"]], real[["same"]] + 1)
    assert moved["same"] == math.inf
    assert normalized_wasserstein_distance(REAL[["text"]], OTHER[["text"]]).empty


@pytest.mark.parametrize("shares", [[0.9, 0.1], list(np.full(60, 1 / 60))])
def test_what_chance_explains_is_what_simulation_gives(shares):
    """10,000 pairs of samples: the mean to 3 %, and none of them beyond the limit twice."""
    rng = np.random.default_rng(3)
    shares = np.array(shares)
    counts = rng.multinomial(400, shares, 10_000) / 400, rng.multinomial(900, shares, 10_000) / 900
    distances = np.abs(counts[0] - counts[1]).sum(axis=1) / 2
    expected, limit = distance_by_chance(shares, shares, 400, 900)
    assert expected == pytest.approx(distances.mean(), rel=0.03)
    assert np.mean(distances > limit) <= 2e-4


# --- the picture --------------------------------------------------------------------------------


def shares_of(column, found):
    """Shares of the values of a column and of the missing ones, by other means."""
    known = column.dropna()
    if found.kind == "category":
        counts = known.astype(str).value_counts().reindex(found.values, fill_value=0).to_numpy()
    else:
        if found.kind == "date":
            known = (known - pd.Timestamp("1970-01-01")) / pd.Timedelta(days=1)
        # The end bins take in what is beyond.
        counts, _ = np.histogram(known.clip(*found.values[[0, -1]]), found.values)
    return np.append(counts, len(column) - len(known)) / len(column)


@pytest.mark.parametrize("name", REAL)
def test_both_tables_are_counted_in_the_same_cells(name):
    display = MarginalsDisplay.from_frames(REAL[[name]], OTHER[[name]])
    (found,) = display.marginals
    due = np.stack([shares_of(REAL[name], found), shares_of(OTHER[name], found)])
    np.testing.assert_allclose([*found.real, found.real_missing], due[0])
    np.testing.assert_allclose([*found.synthetic, found.synthetic_missing], due[1])
    assert found.total_variation == pytest.approx(np.abs(due[0] - due[1]).sum() / 2)
    for artists, shares in zip(display.artists_[name], (found.real, found.synthetic), strict=True):
        if found.kind == "category":
            drawn = [bar.get_width() for bar in artists][: len(shares)]
        else:
            drawn, edges, _ = artists.get_data()
            np.testing.assert_array_equal(edges, found.values)
        np.testing.assert_array_equal(drawn, shares)
    texts = [text.get_text() for text in display.axes_[0].texts]
    texts += [label.get_text() for label in display.axes_[0].get_yticklabels()]
    assert ("missing" in texts) == (name in ("number", "text"))


def cells(real, synthetic=None, **options):
    """Where the values of the single column of two tables are counted."""
    frames = [
        pd.DataFrame({"x": part}) for part in (real, real if synthetic is None else synthetic)
    ]
    return MarginalsDisplay.from_frames(*frames, **options).marginals[0].values


def test_where_the_cells_are():
    # Of categories, the frequent first, or in their order if they have one.
    frequent = REAL["text"].value_counts().index
    assert cells(REAL["text"], OTHER["text"]).tolist() == [*frequent, "d"]
    mixed = pd.Series([True, 1, "1", 1.0, None, "True", True], dtype=object)
    assert cells(mixed).tolist() == ["True", "1", "1.0"]
    rising = pd.Categorical(["M", "S"], ["S", "M", "L"], ordered=True)
    assert cells(rising, ["L", "XL"]).tolist() == ["S", "M", "L", "XL"]
    due = np.linspace(*REAL["number"].quantile([0.005, 0.995]), 21)
    np.testing.assert_allclose(cells(REAL["number"], OTHER["number"]), due)
    np.testing.assert_array_equal(cells(REAL["whole"], OTHER["whole"]), np.arange(7) - 0.5)
    # Without the outer half per cent on each side: 0 to 99, five years a bin.
    np.testing.assert_array_equal(cells(np.arange(100)), -0.5 + 5 * np.arange(21))
    infinite = cells([-np.inf, 0.5, 1.5, 2.5, np.inf], bins=4)
    assert np.isfinite(infinite).all()
    zoned = REAL[["when"]].assign(when=REAL["when"].dt.tz_localize("Europe/Berlin"))
    assert MarginalsDisplay.from_frames(zoned, zoned).marginals[0].kind == "date"


def test_rare_categories_share_a_bar():
    towns = pd.DataFrame({"town": list("aaaaabbbbcccdde")})
    display = MarginalsDisplay.from_frames(towns, towns, max_categories=3)
    widths = [bar.get_width() for bar in display.artists_["town"][0]]
    np.testing.assert_allclose(widths, [5 / 15, 4 / 15, 6 / 15])


def test_pairs_by_total_variation_or_correlation():
    names = ["text", "whole"]
    display = MarginalsDisplay.from_frames(REAL, OTHER, names, pairs="total_variation")
    due = [
        display.marginals[0].total_variation,
        marginal_total_variation(REAL[names], OTHER[names]),
    ]
    np.testing.assert_allclose(display.pairs.loc["text"], due)
    np.testing.assert_allclose(display.pairs, display.pairs.T)
    np.testing.assert_array_equal(display.image_.get_array(), display.pairs)
    names = ["number", "whole"]
    for real, other in ((REAL, OTHER), (OTHER, REAL)):  # whatever the sign
        display = MarginalsDisplay.from_frames(real, other, pairs="correlation")
        pd.testing.assert_frame_equal(display.pairs, other[names].corr() - real[names].corr())
        assert "synthetic − real" in display.axes_[-1].get_title()


def test_a_sampler_is_sampled():
    X = REAL[["number", "whole"]].dropna()
    sampler = DPSlicedFlowSampler(epsilon=9.0, bounds=(-4, 4), n_steps=5).fit(X)
    display = MarginalsDisplay.from_estimator(sampler, X[:50], random_state=0)
    again = MarginalsDisplay.from_frames(X[:50], sampler.sample(1000, random_state=0))
    np.testing.assert_array_equal(display.marginals[0].synthetic, again.marginals[0].synthetic)
