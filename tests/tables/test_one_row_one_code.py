"""What holds of every kind of column, for every data type and in every library."""

import numpy as np
import pandas as pd
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from skdpot.cli.table_files import MISSING_TEXTS
from skdpot.preprocessing import CategoricalColumn, NumericColumn, TableEncoder, TableSchema
from skdpot.tables.frames import Table, build_table
from skdpot.tables.proposals import KINDS
from tests.tables.table_cases import COLUMNS, DIGITS, FILE_TEXTS, FRAMES, SERIES

# A table of Arrow is read as one of polars: one series of it is enough for a quick run.
CASES = [
    pytest.param(
        *(library, series),
        id=f"{library}-{name}",
        marks=[pytest.mark.slow] * (library == "arrow" and name != "String"),
    )
    for library in FRAMES
    for name, series in SERIES["pandas" if library == "pandas" else "polars"].items()
]


def codes_of(frame, column):
    """Return what is read of each row: its number or code, its cell, and its place in the ball."""
    schema = TableSchema([column]).bind(frame)
    values = schema.read(Table.of(frame))["c"]
    column = schema["c"]
    read = column.to_unit if column.on_scale else column.to_codes
    places = TableEncoder(schema).fit_transform(frame)
    return np.column_stack([read(values), column.grid().codes(values), places])


@pytest.mark.slow
@pytest.mark.parametrize(("library", "series"), CASES)
@given(data=st.data())
@settings(deadline=None, max_examples=15)
def test_changing_a_row_changes_its_code_alone(library, series, data):
    """A row is read the same beside any others, alone, and at any place."""
    column = data.draw(st.sampled_from([*series.columns, *series.rough]))
    column = column.replace(missing=series.can_miss)
    pool = [*series.inside, *series.beyond, *([None] if series.can_miss else [])]
    values = data.draw(st.lists(st.sampled_from(pool), min_size=2, max_size=6))
    row, other = data.draw(st.integers(0, len(values) - 1)), data.draw(st.sampled_from(pool))

    def codes(rows):
        return codes_of(FRAMES[library]({"c": series.make(rows)}), column)

    before, after = codes(values), codes([*values[:row], other, *values[row + 1 :]])
    assert len(before) == len(after) == len(values)
    np.testing.assert_array_equal(np.delete(after, row, 0), np.delete(before, row, 0))
    np.testing.assert_array_equal(codes([values[row]])[0], before[row])
    np.testing.assert_array_equal(codes(values[::-1])[::-1], before)


def test_every_kind_of_column_is_tried():
    for cases in SERIES.values():
        tried = {column.kind for series in cases.values() for column in series.columns}
        assert tried == {kind.kind for kind in KINDS}
    assert {column.kind for column in COLUMNS.values()} == {kind.kind for kind in KINDS}


# --- cells ----------------------------------------------------------------------------------------


@pytest.mark.parametrize("library", ["pandas", "polars"])
@pytest.mark.parametrize("name", COLUMNS)
@settings(max_examples=5, deadline=None)
@given(seed=st.integers(0, 2**32))
def test_values_of_cells_are_in_them(name, library, seed):
    column, rng = COLUMNS[name], np.random.default_rng(seed)
    grid = column.grid()
    codes = np.concatenate((np.arange(grid.size), rng.integers(0, grid.size, 300)))
    frame = build_table(library, {"c": grid.values(codes, rng)}, {"c": column})
    values = Table.of(frame).series("c")
    found = grid.codes(values)
    assert found.dtype == np.int32
    if name.startswith("short floats"):
        # Those at the edge of a cell are rounded beyond it, a few in 10^5; and 7.1 in single
        # precision is below the upper bound, which has a cell of its own.
        assert np.mean(found != codes) < 0.02
        assert np.abs(found - codes).max() <= 1
    else:
        np.testing.assert_array_equal(found, codes)
    missing = pd.Series(values.to_list()).isna()
    np.testing.assert_array_equal(missing, codes == grid.n_cells)


@pytest.mark.parametrize("name", COLUMNS)
def test_cells_are_few_and_cover_the_values(name):
    column = COLUMNS[name]
    grid = column.grid()
    assert grid.size == grid.n_cells + column.missing
    assert 1 <= grid.n_cells <= 512
    assert grid.is_doubtful.shape == (grid.size,)
    assert grid.ordered == (grid.on_scale or name.startswith("ordered"))
    if not grid.on_scale:
        assert grid.n_cells == column.n_categories
        return
    assert (np.diff(grid.edges) > 0).all()
    unit = np.linspace(0, 1, 3001)
    codes = grid.codes(column.from_unit(unit))
    assert codes.min() >= 0
    assert codes.max() < grid.n_cells
    place = column.to_unit(column.from_unit(unit))
    assert (place >= grid.edges[codes]).all()
    assert (place < grid.edges[codes + 1]).all()
    if not grid.has_intervals or name.startswith("short floats"):
        return
    # The bounds, and zero between them, have cells of their own.
    known = [*column.from_unit([0.0, 1.0]), *([0.0] if name in ("integers", "floats") else [])]
    own = grid.codes(pd.Series(known))
    assert grid.alone[own].all()
    drawn = grid.values(np.repeat(own, 10), np.random.default_rng(0))
    assert set(drawn) == set(column.from_unit(column.to_unit(pd.Series(known))))


# --- texts of files -------------------------------------------------------------------------------

TYPED = {name: column for name, column in COLUMNS.items() if "zone" not in name} | {
    "largest integers": NumericColumn("c", lower=2**53, upper=2**53 + 9, integer=True),
    "largest numbers": CategoricalColumn("c", categories=[2**53 + 1, 2**53 + 3, 0.5], other=-1),
    "several kinds": CategoricalColumn("c", categories=[1, "one", True]),
}
KINDS_OF_TEXT = ["1", "1.0", "one", "True", "true", ""]


@pytest.mark.slow
@pytest.mark.parametrize("name", TYPED)
@given(data=st.data())
@settings(deadline=None, max_examples=25)
def test_one_text_has_no_part_in_how_others_are_read(name, data):
    pool = KINDS_OF_TEXT if name == "several kinds" else FILE_TEXTS[TYPED[name].kind]
    pool = DIGITS if pool is FILE_TEXTS["categorical"] and name.endswith("numbers") else pool
    column = TYPED[name].replace(missing=True).stated()

    def codes(texts):
        return column.to_unit(column.parse(texts, MISSING_TEXTS))

    texts = data.draw(st.lists(st.sampled_from(pool), min_size=2, max_size=6))
    before = codes(texts)
    row = data.draw(st.integers(0, len(texts) - 1))
    after = codes([*texts[:row], data.draw(st.sampled_from(pool)), *texts[row + 1 :]])
    np.testing.assert_array_equal(np.delete(after, row), np.delete(before, row))
    np.testing.assert_array_equal([codes([text])[0] for text in texts], before)
