"""Texts of a file are read one by one: no row has a part in how the others are read."""

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from skdpot.cli.table_files import MISSING_TEXTS, inferred_values
from skdpot.preprocessing import (
    BooleanColumn,
    CategoricalColumn,
    DatetimeColumn,
    NumericColumn,
)

BIG = 2**53
NUMBERS = [
    *(f"{BIG + 1}", f"{BIG + 3}", f"{BIG}.5", f" {BIG + 5} ", f"{2**64}", "9" * 300, "-1e300"),
    *("0.5", "0.1", "1e16", "007", "+3", "", "NaN", "-0"),
]
LIMITS = {"lower": "2020-01-01", "upper": "2021-01-01"}
DATES = ["2020-06-01", "2020-06-01T12:00:00.123456789", "1066-01-01", "9999-12-31", "20200601", ""]
COLUMNS = {
    "integers": (NumericColumn("c", lower=BIG, upper=BIG + 9, integer=True, missing=True), NUMBERS),
    "short integers": (NumericColumn("c", lower=0, upper=9, missing=True, dtype="int8"), NUMBERS),
    "floats": (NumericColumn("c", lower=0, upper=2.0**54, missing=True), NUMBERS),
    "numeric categories": (
        CategoricalColumn("c", categories=[BIG + 1, BIG + 3, 0.5], other=-1, missing=True),
        NUMBERS,
    ),
    "texts": (CategoricalColumn("c", categories=["007", "None"], other="?", missing=True), NUMBERS),
    "several kinds": (
        CategoricalColumn("c", categories=[1, "one", True], missing=True),
        ["1", "1.0", "one", "True", "true", ""],
    ),
    "truth values": (BooleanColumn("c", missing=True), ["True", "false", "1", "0.0", "", "NA"]),
    "dates": (DatetimeColumn("c", missing=True, **LIMITS), DATES),
}


def read(column, texts):
    values = column.parse(texts, MISSING_TEXTS)
    return (column.to_unit if column.on_scale else column.to_codes)(values)


@pytest.mark.parametrize("name", COLUMNS)
@given(data=st.data())
@settings(deadline=None, max_examples=60)
def test_one_text_has_no_part_in_how_others_are_read(name, data):
    column, pool = COLUMNS[name]
    column = column.stated()
    texts = data.draw(st.lists(st.sampled_from(pool), min_size=2, max_size=6))
    before = read(column, texts)
    row = data.draw(st.integers(0, len(texts) - 1))
    changed = texts.copy()
    changed[row] = data.draw(st.sampled_from(pool))
    after = read(column, changed)
    np.testing.assert_array_equal(np.delete(after, row), np.delete(before, row))
    for place, text in enumerate(texts):
        np.testing.assert_array_equal(read(column, [text])[0], before[place])


@pytest.mark.parametrize("text", ["1_000", "٣", "0x10", "1,5", "one", "--1"])
def test_what_is_no_number_is_refused(text):
    for column in (COLUMNS["integers"][0], COLUMNS["floats"][0], COLUMNS["numeric categories"][0]):
        with pytest.raises(ValueError, match="not a number .not shown"):
            read(column, ["1", text])


@pytest.mark.parametrize("text", ["inf", "-Infinity", "1e999", "9" * 5000])
def test_infinity_is_refused(text):
    with pytest.raises(ValueError, match="holds infinity"):
        read(COLUMNS["integers"][0], ["1", text])
    with pytest.raises(ValueError, match="holds infinity"):
        read(COLUMNS["floats"][0], ["1", text])


@given(st.lists(st.integers(-(2**63), 2**63 - 1), min_size=1), st.booleans())
def test_numbers_are_the_nearest_doubles_beside_integers_or_floats(numbers, whole):
    texts = [str(number) for number in numbers]
    found = inferred_values(texts if whole else [*texts, "0.1"], MISSING_TEXTS)
    assert found.dtype == ("int64" if whole else "float64")
    assert found.astype("float64").tolist()[: len(texts)] == [float(text) for text in texts]
