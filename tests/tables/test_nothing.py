"""What spells nothing is missing or refused: in every kind of column, by every way to read it.

Half of all texts empty once made half of all dates the lower bound, without a word.
"""

import numpy as np
import pandas as pd
import polars as pl
import pytest

from skdpot._utils.nothing import MISSING_TEXTS
from skdpot.cli.table_files import FileFormat, read_guessable, read_table_file
from skdpot.preprocessing import (
    BooleanColumn,
    CategoricalColumn,
    DatetimeColumn,
    NumericColumn,
    TableSchema,
    TimedeltaColumn,
)

BLANKS = ["", " ", "\t", " \u00a0 ", "\u200b", "\ufeff", "\u2060 "]
WORDS = ["NaT", "nan", "NaN", "None", "none", "NA", " na ", "N/A", "NULL", "<NA>", "\u200bnull"]
OBJECTS = [None, np.nan, pd.NaT, pd.NA, np.datetime64("NaT"), np.timedelta64("NaT"), float("nan")]
YEARS = {"lower": "2000-01-01", "upper": "2024-12-31"}
# A column and a value that it has, as text.
COLUMNS = {
    "numbers": (NumericColumn("c", lower=0, upper=9), "5"),
    "integers": (NumericColumn("c", lower=0, upper=9, integer=True), "5"),
    "amounts": (NumericColumn("c", lower=0, upper=9, written="$1,234.50"), "$5.00"),
    "dates": (DatetimeColumn("c", **YEARS), "2024-05-05"),
    "days of a zone": (
        DatetimeColumn("c", **YEARS, resolution="D", dtype="datetime64[s, Europe/Rome]"),
        "2024-05-05T12:00Z",
    ),
    "dates of a format": (DatetimeColumn("c", **YEARS, formats=["%d/%m/%Y"]), "05/05/2024"),
    "durations": (TimedeltaColumn("c", lower="0 h", upper="9 h"), "5 h"),
    "truth": (BooleanColumn("c"), "yes"),
}
WAYS = {
    "list": list,
    "pandas object": lambda values: pd.Series(values, dtype=object),
    "pandas str": lambda values: pd.Series(values, dtype="str"),
    "pandas string": lambda values: pd.Series(values, dtype="string"),
    "pandas category": lambda values: pd.Series(values, dtype="category"),
    "polars": pl.Series,
    "polars Categorical": lambda values: pl.Series(values, dtype=pl.Categorical),
}


@pytest.mark.parametrize("way", WAYS)
@pytest.mark.parametrize("kind", COLUMNS)
def test_texts_that_spell_nothing_are_missing_or_refused(kind, way):
    column, value = COLUMNS[kind]
    for spelled in (*BLANKS, *WORDS):
        values = WAYS[way]([value, spelled, value])
        unit = column.replace(missing=True).to_unit(values)
        assert np.isnan(unit).tolist() == [False, True, False], repr(spelled)
        with pytest.raises(ValueError, match="has missing values, but missing=False"):
            column.to_unit(values)


@pytest.mark.parametrize("kind", COLUMNS)
def test_objects_that_are_nothing_are_missing_or_refused(kind):
    column, value = COLUMNS[kind]
    for nothing in OBJECTS:
        values = pd.Series([value, nothing], dtype=object)
        assert np.isnan(column.replace(missing=True).to_unit(values)).tolist() == [False, True]
        with pytest.raises(ValueError, match="has missing values, but missing=False"):
            column.to_unit(values)


@pytest.mark.parametrize("unit", ["D", "s", "ns"])
def test_times_that_are_none_are_missing_or_refused(unit):
    for name, value in (("dates", "2024-05-05"), ("durations", 0)):
        column = COLUMNS[name][0]
        values = np.array([value, "NaT"], dtype=f"{column.kind}64[{unit}]")
        assert np.isnan(column.replace(missing=True).to_unit(values)).tolist() == [False, True]
        with pytest.raises(ValueError, match="has missing values, but missing=False"):
            column.to_unit(values)


def write(path, texts):
    path.write_text("c,d\n" + "".join(f'"{text}",1\n' for text in texts), encoding="utf-8")
    return str(path)


@pytest.mark.parametrize(
    "kind", [*COLUMNS, "categories", "categories of numbers", "categories of both", "open"]
)
def test_cells_of_a_file_that_spell_nothing_are_missing_or_refused(kind, tmp_path):
    of_categories = {
        "categories": (["x"], "x"), "categories of numbers": ([5], "5"),
        "categories of both": (["x", 5], "x"), "open": (None, "x"),
    }  # fmt: skip
    if kind in of_categories:
        listed, value = of_categories[kind]
        column = CategoricalColumn("c", categories=listed, other=listed and listed[0])
        told = [*BLANKS, *(WORDS if kind == "categories of numbers" else MISSING_TEXTS)]
    else:
        (column, value), told = COLUMNS[kind], [*BLANKS, *WORDS]
    path = write(tmp_path / "rows.csv", [value, *told, value])
    for missing in (True, False):
        schema = TableSchema([column.replace(missing=missing)], excluded=["d"])
        if not missing:
            with pytest.raises(ValueError, match="has missing values, but missing=False"):
                read_and_check(path, schema)
            continue
        found = read_and_check(path, schema)
        assert found.missing.tolist() == [False, *[True] * len(told), False]


def read_and_check(path, schema):
    table, stated = read_table_file(path, schema, FileFormat())
    return stated.bind(table).read(table)["c"]


def test_listed_categories_are_what_they_say(tmp_path):
    column = CategoricalColumn("c", categories=["x", " ", "NA"], missing=True)
    path = write(tmp_path / "rows.csv", ["x", " ", "NA", ""])
    assert read_and_check(path, TableSchema([column], excluded=["d"])).keys == [
        ("text", "x"), ("text", " "), ("text", "NA"),
    ]  # fmt: skip
    assert column.to_codes(["x", " ", "NA", ""]).tolist() == [0, 1, 2, -1]


@pytest.mark.parametrize("kind", [k for k in COLUMNS if k != "integers"])
def test_a_guess_sees_through_nothing(kind, tmp_path):
    """One blank cell does not make texts of numbers and dates."""
    column, value = COLUMNS[kind]
    texts = {
        "numbers": [f"{k}.5" for k in range(30)], "amounts": [f"${k},000.50" for k in range(1, 30)],
        "truth": ["yes", "no", "Yes", "No"],
        "dates": [f"2024-05-{k:02d}" for k in range(1, 30)],
        "days of a zone": [f"2024-05-{k:02d}T12:00Z" for k in range(1, 30)],
        "dates of a format": [f"{k:02d}/05/2024" for k in range(1, 30)],
        "durations": [f"{k} h" for k in range(1, 30)],
    }[kind]  # fmt: skip
    path = write(tmp_path / "rows.csv", [*texts, *BLANKS, *WORDS])
    for table in (
        read_guessable(path, FileFormat()),
        pd.DataFrame({"c": [*texts, *BLANKS, *WORDS], "d": 1}),
    ):
        found = TableSchema.guess(table)["c"]
        assert isinstance(found, type(column))
        assert found.missing
        assert np.isnan(found.to_unit(table["c"])).sum() == len(BLANKS) + len(WORDS)


@pytest.mark.parametrize("text", ["now", "today", " today ", "Today"])
def test_no_word_is_a_date_that_depends_on_the_clock(text):
    with pytest.raises(ValueError, match="must hold dates or times"):
        DatetimeColumn("c", **YEARS, missing=True).read([text])
