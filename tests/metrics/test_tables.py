"""Distances between tables: closed forms, another route, invariances, and refusals."""

import itertools
import math

import numpy as np
import pandas as pd
import polars as pl
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from scipy.stats import wasserstein_distance

from skdpot.metrics import marginal_total_variation
from skdpot.metrics.marginals import (
    _shared_codes,
    distance_by_chance,
    marginal_total_variations,
    normalized_wasserstein_distance,
)


def table(n_rows, seed):
    rng = np.random.default_rng(seed)
    frame = pd.DataFrame(
        {
            "number": rng.normal(size=n_rows),
            "text": rng.choice(["a", "b", "c"], n_rows, p=[0.6, 0.3, 0.1]),
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
        if real[name].dtype.kind in "fM":
            cuts = real[name].dropna().quantile(np.linspace(0, 1, n_bins + 1)[1:-1]).unique()
            for part in parts:
                part[name] = [str((cuts < v).sum()) if pd.notna(v) else None for v in part[name]]
    keys = [list(map(str, part.fillna("missing").itertuples(index=False))) for part in parts]
    shares = [{key: rows.count(key) / len(rows) for key in set(rows)} for rows in keys]
    cells = set(shares[0]) | set(shares[1])
    return sum(abs(shares[0].get(cell, 0) - shares[1].get(cell, 0)) for cell in cells) / 2


@pytest.mark.parametrize("n_way", [1, 2, 3, 4])
def test_every_marginal_is_what_counting_by_hand_gives(n_way):
    found = marginal_total_variations(REAL, OTHER, n_way=n_way)
    assert len(found) == math.comb(4, n_way)
    for columns in itertools.combinations(REAL, n_way):
        due = by_hand(REAL, OTHER, list(columns))
        assert found[columns if n_way > 1 else columns[0]] == pytest.approx(due, abs=1e-12)
    assert marginal_total_variation(REAL, OTHER, n_way=n_way) == pytest.approx(found.mean())


def test_many_cells_are_counted_sparsely(monkeypatch):
    whole = marginal_total_variations(REAL, OTHER, n_way=3)
    monkeypatch.setattr("skdpot.metrics.marginals._MOST_CELLS", 7)
    pd.testing.assert_series_equal(whole, marginal_total_variations(REAL, OTHER, n_way=3))


def test_polars_arrays_and_pandas_agree():
    frame = REAL[["number", "flag"]].astype(np.float64)
    other = OTHER[["number", "flag"]].astype(np.float64)
    due = marginal_total_variation(frame, other)
    assert marginal_total_variation(frame.to_numpy(), other.to_numpy()) == due
    parts = [
        pl.DataFrame(
            {name: pl.Series(values.to_numpy(), nan_to_null=True) for name, values in f.items()}
        )
        for f in (frame, other)
    ]
    assert marginal_total_variation(*parts) == due
    assert normalized_wasserstein_distance(*parts).to_dict() == pytest.approx(
        normalized_wasserstein_distance(frame, other).to_dict()
    )


@settings(max_examples=50, deadline=None, derandomize=True)
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
        ({"n_way": 0}, "n_way == 0, must be >= 1"),
        ({"n_way": 5}, "n_way == 5, must be <= 4"),
        ({"n_way": True}, "n_way must be an instance of int, not bool"),
        ({"n_bins": 1}, "n_bins == 1, must be >= 2"),
        ({"n_bins": 2.5}, "n_bins must be an instance of"),
        ({"n_marginals": 0}, "n_marginals == 0, must be >= 1"),
        ({"n_marginals": "3"}, "n_marginals must be an instance of"),
    ],
)
def test_wrong_arguments_are_refused(arguments, text):
    with pytest.raises((TypeError, ValueError), match=text):
        marginal_total_variation(REAL, OTHER, **arguments)


@pytest.mark.parametrize("function", [marginal_total_variation, normalized_wasserstein_distance])
def test_tables_that_do_not_fit_are_refused(function):
    with pytest.raises(ValueError, match=r"same columns; \['flag'\] are in one only"):
        function(REAL, OTHER.drop(columns="flag"))
    with pytest.raises(ValueError, match="Column 'number' is a category in one table and a number"):
        function(REAL, OTHER.assign(number="x"))
    with pytest.raises(ValueError, match="synthetic is empty"):
        function(REAL, OTHER[:0])


def test_wasserstein_distance_of_each_column():
    found = normalized_wasserstein_distance(REAL, OTHER)
    assert found.index.tolist() == ["number", "when"]
    real, other = REAL["number"].dropna(), OTHER["number"].dropna()
    assert found["number"] == pytest.approx(wasserstein_distance(real, other) / np.ptp(real))
    days = [frame["when"].dt.day_of_year for frame in (REAL, OTHER)]
    assert found["when"] == pytest.approx(wasserstein_distance(*days) / 89)


def test_wasserstein_distance_of_columns_without_spread_or_values():
    real = pd.DataFrame({"same": [2.0, 2.0], "other": [2.0, 2.0], "lost": [np.nan, np.nan]})
    found = normalized_wasserstein_distance(real, real.assign(other=[2.0, 3.0]))
    assert found["same"] == 0.0
    assert found["other"] == math.inf
    assert math.isnan(found["lost"])
    assert normalized_wasserstein_distance(REAL[["text"]], OTHER[["text"]]).empty


@pytest.mark.parametrize("shares", [[0.5, 0.5], [0.9, 0.1], [0.25] * 4, list(np.full(60, 1 / 60))])
def test_what_chance_explains_is_what_simulation_gives(shares):
    """10,000 pairs of samples: the mean to 3 %, and none of them beyond the limit twice."""
    rng = np.random.default_rng(3)
    shares = np.array(shares)
    counts = rng.multinomial(400, shares, 10_000) / 400, rng.multinomial(900, shares, 10_000) / 900
    distances = np.abs(counts[0] - counts[1]).sum(axis=1) / 2
    expected, limit = distance_by_chance(shares, shares, 400, 900)
    assert expected == pytest.approx(distances.mean(), rel=0.03)
    assert np.mean(distances > limit) <= 2e-4


def test_the_text_of_mixed_values():
    mixed = pd.Series([True, 1, "1", 1.0, None, "True"], dtype=object)
    codes, _, known = _shared_codes(mixed, mixed)
    assert known.tolist() == ["True", "1", "1.0"]
    assert codes.tolist() == [0, 1, 1, 2, -1, 0]
    rising = pd.Series(pd.Categorical(["M", "S"], categories=["S", "M", "L"], ordered=True))
    codes, others, known = _shared_codes(rising, pd.Series(["L", "XL"]))
    assert known.tolist() == ["S", "M", "L", "XL"]
    assert codes.tolist() == [1, 0]
    assert others.tolist() == [2, 3]
