"""Sensitive features: what is read as groups, what is refused, how many a batch takes."""

import warnings

import numpy as np
import pandas as pd
import polars as pl
import pytest

from skdpot.estimators.fair import read_groups
from skdpot.release.output_tables import Cells

SECRET, NUMBER = "SECRET-8841", 123456.789

GOOD = {
    "strings": ["b", "a", "b"],
    "objects": np.array(["b", "a", "b"], dtype=object),
    "integers": [3, 1, 3],
    "whole floats": [3.0, 1.0, 3.0],
    "booleans": [True, False, True],
    "tuple": ("b", "a", "b"),
    "column": np.array([[1], [0], [1]]),
    "series": pd.Series(["b", "a", "b"], index=[7, 7, 9]),
    "categories": pd.Series(pd.Categorical(["b", "a", "b"], categories=["c", "b", "a"])),
    "pandas strings": pd.Series(["b", "a", "b"], dtype="string"),
    "pandas integers": pd.Series([3, 1, 3], dtype="Int64"),
    "one-column frame": pd.DataFrame({"sex": ["b", "a", "b"]}),
    "polars strings": pl.Series(["b", "a", "b"]),
    "polars categories": pl.Series(["b", "a", "b"], dtype=pl.Categorical),
    "polars frame": pl.DataFrame({"sex": ["b", "a", "b"]}),
}


@pytest.mark.parametrize("name", GOOD)
def test_groups_are_sorted_and_counted(name):
    groups, labels = read_groups(GOOD[name], 3)
    assert groups.codes.tolist() == [1, 0, 1]
    assert groups.codes.dtype == np.intp
    assert labels[0] < labels[1]
    assert groups.sizes == (1, 2)
    assert [members.tolist() for members in groups.members] == [[1], [0, 2]]


BAD = {
    "none": (None, "requires sensitive_features to be passed"),
    "None inside": ([SECRET, None, "a"], "missing"),
    "NaN": ([NUMBER, np.nan, 1.0], "NaN"),
    "NaN among categories": (pd.Series(pd.Categorical([SECRET, None, "a"])), "missing"),
    "NA in strings": (pd.Series([SECRET, pd.NA, "a"], dtype="string"), "missing"),
    "NaT": (pd.Series(pd.to_datetime(["1988-04-01", None, "1988-04-01"])), "NaT"),
    "null in polars strings": (pl.Series([SECRET, None, "a"]), "missing"),
    "too short": ([SECRET, "a"], "2 labels for 3 rows"),
    "a scalar": (SECRET, "shape|unknown"),
    "two columns": ([[SECRET, "a"]] * 3, r"shape \(3, 2\).* Join several columns"),
    "continuous": ([NUMBER, 0.5, 1.0], "continuous.*pandas.cut"),
    "NaN in a list of strings": ([SECRET, np.nan, "a"], "missing"),
    "mixed": ([SECRET, 1, b"x"], "mixed"),
    "dictionary": ([{SECRET: 1}] * 3, "missing|unknown"),
}


@pytest.mark.parametrize("name", BAD)
def test_what_is_no_column_of_groups_is_refused_and_no_value_quoted(name):
    given, text = BAD[name]
    with warnings.catch_warnings(record=True) as shown:
        warnings.simplefilter("always")
        with pytest.raises(ValueError, match=text) as refusal:
            read_groups(given, 3)
    error = refusal.value
    assert "sensitive_features" in str(error)
    assert not shown
    said = [repr(error), repr(error.__cause__), repr(error.__context__)]
    for hidden in (SECRET, "123456", "1.23456", "1988"):
        assert not any(hidden in text for text in said)


@pytest.mark.parametrize("given", [["a"] * 3, [7] * 3, [False] * 3])
def test_one_group_is_refused_by_its_public_name(given):
    with pytest.raises(ValueError, match=f"at least two groups.*holds the group {given[0]!r} al"):
        read_groups(given, 3, needed_by='penalty="parity"')


def cells(sizes, names):
    return Cells(np.zeros(0, dtype=np.intp), sizes, (), tuple(names))


@pytest.mark.parametrize(
    ("sizes", "fraction", "taken"),
    [
        ((10, 23), 0.2, (2, 4)),
        ((5, 4), 1.0, (5, 4)),
        ((100, 10), 0.29, (29, 2)),
        ((3, 7, 1000), 1 / 3, (1, 2, 333)),
        ((10**9,), 0.7, (700_000_000,)),
    ],
)
def test_a_batch_takes_the_same_share_of_each_cell(sizes, fraction, taken):
    assert cells(sizes, map(str, range(len(sizes)))).batch_sizes(fraction) == taken


def test_a_share_of_less_than_one_row_is_refused_by_the_name_of_the_group():
    with pytest.raises(ValueError, match=r"sensitive_features: group b has 4 rows.*batch_fraction"):
        cells((500, 4), "ab").batch_sizes(0.2)
    with pytest.raises(ValueError, match="group 7 has 1 row, .* larger batch_size.*merge"):
        cells((500, 1), "37").batch_sizes(0.5, parameter="batch_size")
