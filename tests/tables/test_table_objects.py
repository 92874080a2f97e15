"""What one row holds has no part in how the others are read."""

import datetime
from fractions import Fraction

import numpy as np
import pandas as pd
import pytest
from hypothesis import example, given, settings
from hypothesis import strategies as st

from skdpot.preprocessing import (
    BooleanColumn,
    CategoricalColumn,
    DatetimeColumn,
    NumericColumn,
)
from skdpot.tables.numeric_column import as_integer

BIG = 2**53
INTEGERS = [BIG + 1, BIG + 3, np.int64(BIG + 5), np.uint64(BIG + 7), np.uint64(2**64 - 1)]
NUMBERS = [*INTEGERS, BIG + 0.5, 0.5, 2**64, -(10**30), np.float32(0.1), Fraction(1, 3)]
TIMES = [
    datetime.datetime(2020, 6, 1, 12, 1),
    datetime.date(2020, 6, 1),
    datetime.datetime(1, 1, 1),
    np.datetime64("2020-06-01T12:00:03"),
    np.datetime64("2020-06-01T12:00:03.123456789"),
    np.datetime64("1066-01-01"),
    pd.Timestamp("2020-06-01 12:00:01.123456789"),
    "2020-06-01",
    "2020-06-01 12:30",
    "2020-06-01T12:00:00.123456789",
    "9999-12-31",
]
EASTERN = datetime.timezone(datetime.timedelta(hours=3))
ZONED = [
    datetime.datetime(2020, 6, 1, 12, tzinfo=EASTERN),
    pd.Timestamp("2020-06-01 12:00:01.123456789", tz="Europe/Rome"),
    "2020-06-01T12:00:00Z",
    "2020-06-01T12:00:00+03:00",
    "2020-06-01 12:00:00.5-05:00",
]
LIMITS = {"lower": "2020-01-01", "upper": "2021-01-01"}
COLUMNS = {
    "integers": (NumericColumn("c", lower=BIG, upper=BIG + 9, integer=True), NUMBERS),
    "floats": (NumericColumn("c", lower=0, upper=2.0**54), NUMBERS),
    "categories": (CategoricalColumn("c", categories=INTEGERS, other=-1), [*NUMBERS, "1", True]),
    "truth values": (BooleanColumn("c"), [True, False, 1, 0.0, np.bool_(True), np.int8(1)]),
    "times": (DatetimeColumn("c", **LIMITS), TIMES),
    "days": (DatetimeColumn("c", resolution="D", **LIMITS), TIMES),
    "zones": (DatetimeColumn("c", dtype="datetime64[s, Asia/Tokyo]", **LIMITS), ZONED),
}


def read(column, values):
    return (column.to_codes if hasattr(column, "to_codes") else column.to_unit)(values)


def as_objects(values):
    found = np.empty(len(values), dtype=object)
    found[:] = values
    return pd.Series(found, dtype=object)


@pytest.mark.parametrize("make", [as_objects, list], ids=["objects", "list"])
@pytest.mark.parametrize("name", COLUMNS)
@given(data=st.data())
@settings(deadline=None, max_examples=40)
def test_one_value_has_no_part_in_how_others_are_read(name, make, data):
    column, pool = COLUMNS[name]
    values = data.draw(st.lists(st.sampled_from(pool), min_size=2, max_size=6))
    before = read(column, make(values))
    row = data.draw(st.integers(0, len(values) - 1))
    changed = values.copy()
    changed[row] = data.draw(st.sampled_from(pool))
    after = read(column, make(changed))
    np.testing.assert_array_equal(np.delete(after, row), np.delete(before, row))
    for place, value in enumerate(values):  # alone, too
        assert read(column, as_objects([value]))[0] == before[place]


def test_one_half_does_not_round_large_integers():
    column = COLUMNS["integers"][0]
    before = column.to_unit(as_objects([BIG + 1, BIG + 3, BIG + 5]))
    after = column.to_unit(as_objects([BIG + 1, BIG + 3, 0.5]))
    np.testing.assert_array_equal(after[:2], before[:2])


@given(st.integers(), st.integers(-2, 2))
@example(2**62, 1)
@example(-(2**62), -1)
def test_integers_are_exact_and_others_the_nearest(number, more):
    clipped = max(-(2**62), min(2**62, number))
    assert as_integer(number) == clipped
    assert as_integer(float(more) + 0.25) == more
    assert as_integer(Fraction(4 * more - 1, 4)) == more


@pytest.mark.parametrize("value", [np.inf, -np.inf, Fraction(10**400, 3)])
def test_infinity_is_refused_also_as_an_object(value):
    for column in (
        NumericColumn("c", lower=0, upper=9, integer=True),
        NumericColumn("c", lower=0, upper=9),
    ):
        with pytest.raises(ValueError, match="'c' holds infinity"):
            column.to_unit(as_objects([1, value]))


@pytest.mark.parametrize(
    "values",
    [
        ["2020-06-01", "2020-06-01T12:00Z"],
        ["2020-06-01", 5],
        ["1 June 2020"],
        ["2020-02-30"],
        [np.datetime64("300000-01-01")],
        [datetime.datetime(1, 1, 1, tzinfo=EASTERN)],
    ],
)
def test_what_is_no_time_or_not_of_one_kind(values):
    with pytest.raises(ValueError, match="'c' must hold dates or times"):
        DatetimeColumn("c", **LIMITS).to_unit(as_objects(values))


def test_parts_of_a_microsecond_are_cut_off_also_before_1970():
    late = "1969-12-31T23:59:59.999999"
    values = [f"{late}999", pd.Timestamp(f"{late}999"), np.datetime64(f"{late}999")]
    column = DatetimeColumn("c", **LIMITS).read(as_objects(values))
    assert column.dtype == "datetime64[us]"
    assert column.values.tolist() == [datetime.datetime.fromisoformat(late)] * 3
