"""Sensitive features: what is read as groups, and how many of each a batch takes."""

import numpy as np
import pandas as pd
import polars as pl
import pytest

from skdpot.fair.predictor import read_groups
from skdpot.nets.cells import Cells

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
