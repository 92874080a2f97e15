"""Cells of columns: from values to cells and back."""

import numpy as np
import pandas as pd
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from skdpot.preprocessing import BooleanColumn, CategoricalColumn, DatetimeColumn, NumericColumn
from skdpot.tables.frames import Table, build_table

YEAR = {"lower": "2024-01-01", "upper": "2024-12-31"}
ROME = "datetime64[ns, Europe/Rome]"
COLUMNS = {
    "few integers": NumericColumn("c", lower=-3, upper=90, integer=True, dtype="int32"),
    "integers": NumericColumn("c", lower=-3, upper=600, integer=True, dtype="int64"),
    "integers, missing": NumericColumn("c", lower=0, upper=999, missing=True, dtype="Int64"),
    "integers as floats": NumericColumn(
        "c", lower=0, upper=511, integer=True, missing=True, dtype="float64"
    ),
    "huge integers": NumericColumn("c", lower=5, upper=2**40, dtype="int64"),
    "one integer": NumericColumn("c", lower=7, upper=7, dtype="int64"),
    "two integers": NumericColumn("c", lower=0, upper=1, dtype="int8"),
    "floats": NumericColumn("c", lower=-1.5, upper=7.1, dtype="float64"),
    "short floats": NumericColumn("c", lower=-1.5, upper=7.1, dtype="float32"),
    "floats, missing": NumericColumn("c", lower=0.0, upper=1e-6, missing=True, dtype="Float64"),
    "one float": NumericColumn("c", lower=2.5, upper=2.5, dtype="float64"),
    "log floats": NumericColumn("c", lower=0, upper=1e5, log_scale=True, dtype="float64"),
    "days": DatetimeColumn("c", **YEAR, resolution="D", dtype="datetime64[s]"),
    "dates": DatetimeColumn("c", **YEAR, resolution="D", dtype="date", missing=True),
    "seconds": DatetimeColumn("c", **YEAR, dtype="datetime64[us]"),
    "minutes": DatetimeColumn("c", **YEAR, resolution="min", dtype="datetime64[ns]", missing=True),
    "hours of a zone": DatetimeColumn("c", **YEAR, resolution="h", dtype=ROME),
    "days of a zone": DatetimeColumn(
        "c", lower="2020-01-01", upper="2024-12-31", resolution="D", dtype=ROME, missing=True
    ),
    "categories": CategoricalColumn("c", categories=["x", "y", "z"], dtype="object"),
    "one category": CategoricalColumn("c", categories=["x"], dtype="str"),
    "ordered": CategoricalColumn(
        "c", categories=["lo", "hi"], ordered=True, missing=True, dtype="category[str]"
    ),
    "others": CategoricalColumn("c", categories=["x", "y"], other="rest", dtype="string"),
    "numbers": CategoricalColumn("c", categories=[3, 1, 2], dtype="int64"),
    "numbers, missing": CategoricalColumn(
        "c", categories=[0.5, 1.5], missing=True, dtype="float64"
    ),
    "truth": BooleanColumn("c", dtype="bool"),
    "truth, missing": BooleanColumn("c", missing=True, dtype="boolean"),
    "truth as numbers": BooleanColumn("c", dtype="int64"),
}
POLARS = [name for name in COLUMNS if name not in ("others",)]


@pytest.mark.parametrize("name", COLUMNS)
@settings(max_examples=25, deadline=None)
@given(seed=st.integers(0, 2**32))
def test_values_of_cells_are_in_them(name, seed):
    column, rng = COLUMNS[name], np.random.default_rng(seed)
    grid = column.grid()
    codes = np.concatenate((np.arange(grid.size), rng.integers(0, grid.size, 500)))
    values = grid.values(codes, rng)
    found = grid.codes(values)
    assert found.dtype == np.int32
    if name == "short floats":
        # Those at the edge of a cell are rounded beyond it, a few in 10^5; and 7.1 in single
        # precision is below the upper bound, which has a cell of its own.
        assert np.mean(found != codes) < 0.02
        assert np.abs(found - codes).max() <= 1
    else:
        np.testing.assert_array_equal(found, codes)
    assert pd.Series(values).isna().sum() == np.sum(codes == grid.n_cells)


@pytest.mark.parametrize("name", POLARS)
def test_values_of_cells_survive_polars(name):
    pytest.importorskip("polars")
    column, rng = COLUMNS[name], np.random.default_rng(0)
    grid = column.grid()
    codes = np.concatenate((np.arange(grid.size), rng.integers(0, grid.size, 300)))
    frame = build_table("polars", {"c": grid.values(codes, rng)}, {"c": column})
    found = grid.codes(Table.of(frame).series("c"))
    assert np.abs(found - codes).max() <= (name == "short floats")
    assert np.mean(found != codes) < 0.01


@pytest.mark.parametrize("name", COLUMNS)
def test_cells_are_few_and_cover_the_values(name):
    column = COLUMNS[name]
    grid = column.grid()
    assert grid.size == grid.n_cells + column.missing
    assert 1 <= grid.n_cells <= 512
    assert grid.is_doubtful.shape == (grid.size,)
    assert grid.ordered == (grid.on_scale or name == "ordered")
    if not grid.on_scale:
        assert grid.n_cells == column.n_categories
        return
    assert (np.diff(grid.starts) >= 0).all()
    assert (grid.stops >= grid.starts).all()
    unit = np.linspace(0, 1, 3001)
    codes = grid.codes(column.from_unit(unit))
    assert codes.min() >= 0
    assert codes.max() < grid.n_cells
    place = column.to_unit(column.from_unit(unit))
    assert (place >= grid.starts[codes] - 1e-7).all()
    assert (place <= grid.stops[codes] + 1e-7).all()


@pytest.mark.parametrize("name", ["integers", "floats", "log floats", "huge integers", "seconds"])
def test_bounds_and_zero_have_cells_of_their_own(name):
    column = COLUMNS[name]
    grid = column.grid()
    values = column.from_unit([0.0, 1.0])
    special = grid.codes(values)
    assert (grid.starts[special] == grid.stops[special]).all()
    if name in ("integers", "floats"):
        zero = grid.codes(np.zeros(1))
        assert grid.starts[zero] == grid.stops[zero]
        assert grid.codes(np.full(1, 0.5 if name == "floats" else 1)) != zero
    drawn = grid.values(np.repeat(special, 10), np.random.default_rng(0))
    assert set(drawn) == set(values)
