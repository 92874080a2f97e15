"""Texts of a file: what is a number and what is none. `test_one_row_one_code` tries all columns."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from skdpot.cli.table_files import MISSING_TEXTS, inferred_values
from skdpot.preprocessing import CategoricalColumn, NumericColumn

NUMBERS = [
    NumericColumn("c", lower=0, upper=9, integer=True, missing=True),
    NumericColumn("c", lower=0, upper=2.0**54, missing=True),
]
LISTED = CategoricalColumn("c", categories=[1, 0.5], other=-1, missing=True)


def read(column, texts):
    return column.to_unit(column.parse(texts, MISSING_TEXTS))


@pytest.mark.parametrize("text", ["1_000", "٣", "0x10", "1,5", "one", "--1"])
def test_what_is_no_number_is_refused(text):
    for column in (*NUMBERS, LISTED):
        with pytest.raises(ValueError, match="not a number .not shown"):
            read(column, ["1", text])


@pytest.mark.parametrize("text", ["inf", "-Infinity", "1e999", "9" * 5000])
def test_infinity_is_refused(text):
    for column in NUMBERS:
        with pytest.raises(ValueError, match="holds infinity"):
            read(column, ["1", text])


@given(st.lists(st.integers(-(2**63), 2**63 - 1), min_size=1), st.booleans())
def test_numbers_are_the_nearest_doubles_beside_integers_or_floats(numbers, whole):
    texts = [str(number) for number in numbers]
    found = inferred_values(texts if whole else [*texts, "0.1"], MISSING_TEXTS)
    assert found.dtype == ("int64" if whole else "float64")
    assert found.astype("float64").tolist()[: len(texts)] == [float(text) for text in texts]
