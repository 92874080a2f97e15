"""Columns of a schema: what round trips exactly, what is clipped, and what is refused."""

import datetime
import math
from fractions import Fraction

import numpy as np
import pandas as pd
import polars as pl
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from skdpot.preprocessing import (
    BooleanColumn,
    CategoricalColumn,
    DatetimeColumn,
    NumericColumn,
)

SECRET = "Secret-4711"


# ------------------------------------------------------------------ numbers


@st.composite
def integer_columns(draw):
    log_scale = draw(st.booleans())
    lower = draw(st.integers(-(2**61), 2**61))
    length = draw(st.integers(0, 2**40 if log_scale else 2**48))
    column = NumericColumn(
        "n", lower=lower, upper=lower + length, integer=True, log_scale=log_scale, dtype="int64"
    )
    near = st.one_of(
        st.integers(0, min(length, 5)),
        st.integers(max(length - 5, 0), length),
        st.integers(0, length),
    )
    values = draw(st.lists(near, max_size=20))
    return column, [lower + value for value in values]


@given(integer_columns())
def test_integers_come_back_exactly(case):
    column, values = case
    unit = column.to_unit(np.array(values, dtype=np.int64))
    assert ((unit >= 0) & (unit <= 1)).all()
    assert column.from_unit(unit).tolist() == values


@pytest.mark.parametrize("log_scale", [False, True])
def test_integers_at_the_largest_range_are_still_told_apart(log_scale):
    largest = 2**40 if log_scale else 2**48
    column = NumericColumn("n", lower=2**61, upper=2**61 + largest, integer=True)
    column = column.replace(log_scale=log_scale)
    values = 2**61 + np.random.default_rng(0).integers(0, largest, size=100_000, endpoint=True)
    np.testing.assert_array_equal(column.from_unit(column.to_unit(values)), values)
    with pytest.raises(ValueError, match="'n': integers between bounds more than"):
        column.replace(upper=2**61 + largest + 1)


@given(
    st.floats(-1e300, 1e300),
    st.floats(1e-300, 1e300),
    st.lists(st.floats(0, 1), max_size=10),
    st.booleans(),
)
def test_floats_come_back_to_a_trillionth_of_the_range(lower, length, shares, log_scale):
    upper = lower + length
    column = NumericColumn("x", lower=lower, upper=upper, log_scale=log_scale)
    values = np.clip(lower + np.array(shares, dtype=float) * (upper - lower), lower, upper)
    unit = column.to_unit(values)
    assert ((unit >= 0) & (unit <= 1)).all()
    back = column.from_unit(unit)
    tolerance = 1e-12 * (upper - lower) + 2 * np.spacing(np.abs(values))
    assert (np.abs(back - values) <= tolerance).all()
    assert ((back >= lower) & (back <= upper)).all()


@pytest.mark.parametrize("integer", [False, True])
@pytest.mark.parametrize("log_scale", [False, True])
def test_values_outside_are_clipped(integer, log_scale):
    column = NumericColumn("x", lower=-3, upper=9, integer=integer, log_scale=log_scale)
    unit = column.to_unit([-1e300, -4, -3, 9, 10, 1e300])
    assert unit.tolist() == [0, 0, 0, 1, 1, 1]
    assert column.from_unit([-5.0, 2.0]).tolist() == [-3, 9]


def test_unsigned_integers_beyond_the_signed_ones_are_clipped_and_not_wrapped():
    column = NumericColumn("n", lower=0, upper=1000, integer=True)
    values = np.array([2**64 - 1, 2**63, 5], dtype=np.uint64)
    assert column.to_unit(values).tolist() == [1.0, 1.0, 0.005]


def test_every_way_to_store_a_number():
    column = NumericColumn("n", lower=0, upper=4, integer=True, missing=True)
    expected = np.array([0.25, np.nan, 1.0])
    for values in (
        [1, None, 4],
        np.array([1.0, np.nan, 4.0]),
        pd.Series([1, None, 4], dtype="Int8"),
        pd.Series([1, None, 4], dtype="Float32"),
        pd.Series([1, None, 4], dtype=object),
        pl.Series([1, None, 4]),
        pl.Series([1.0, None, 4.0]),
        pl.Series([1.0, float("nan"), 4.0]),
    ):
        np.testing.assert_array_equal(column.to_unit(values), expected)
    big = [2**62 - 3, None]
    column = NumericColumn("n", lower=2**62 - 9, upper=2**62, integer=True, missing=True)
    for values in (pd.Series(big, dtype="Int64"), pl.Series(big), pd.Series(big, dtype=object)):
        assert column.from_unit(column.to_unit(values))[0] == big[0]


NUMBER, TIME, LIST = NumericColumn, DatetimeColumn, CategoricalColumn


@pytest.mark.parametrize(
    ("kind", "fields", "message"),
    [
        (NUMBER, {"lower": 2, "upper": 1}, "lower=2.0 is above upper=1.0"),
        *((NUMBER, {"upper": v}, "upper must be") for v in (math.inf, math.nan, "9", True)),
        (NUMBER, {"upper": 10**400, "integer": True}, "upper must be"),
        (NUMBER, {"lower": 0.5, "integer": True}, "lower must be None or a finite .*, an integer"),
        (NUMBER, {"lower": 0.5, "dtype": "Int32"}, "lower must be None or a finite .*, an integer"),
        (NUMBER, {"lower": -1.7e308, "upper": 1.7e308}, "too far apart"),
        (NUMBER, {"lower": 0, "upper": 300, "dtype": "uint8"}, "beyond what 'uint8' can hold"),
        (NUMBER, {"missing": "yes"}, "missing must be True or False"),
        (NUMBER, {"integer": 1}, "integer must be True or False"),
        (NUMBER, {"dtype": "str"}, "a numeric column cannot have the data type 'str'"),
        (NUMBER, {"dtype": "complex128"}, "data type 'complex128.*not supported"),
        (NUMBER, {"dtype": 3}, "a numeric column cannot have the data type 3"),
        (TIME, {"lower": "yesterday"}, "lower must be None or a date"),
        (TIME, {"upper": 5}, "upper must be None or a date"),
        (TIME, {"lower": "2021-01-01", "upper": "2020-01-01"}, "is after"),
        *((TIME, {"resolution": v}, "resolution must be one of D, h, min") for v in ("week", [])),
        (TIME, {"lower": "1200-01-01", "dtype": "datetime64[ns]"}, "1678-01-01 and 2261-12-31"),
        (
            TIME,
            {"lower": "2020-01-01T00:00+01:00", "upper": "2021-01-01", "dtype": "datetime64[s]"},
            "has no time zone",
        ),
        *((LIST, {"categories": v}, "categories must be a list") for v in ("abc", 5)),
        (LIST, {"categories": []}, "needs at least one category"),
        *((LIST, {"categories": v}, "category is listed twice") for v in (["a", "a"], [1, 1.0])),
        *((LIST, {"categories": [v]}, "categories must hold") for v in (None, math.nan, [1], b"")),
        (LIST, {"categories": ["a"], "other": math.inf}, "other must hold"),
        (LIST, {"categories": [1], "dtype": "str"}, "must hold a text each, for its data type"),
        (LIST, {"categories": ["a"], "dtype": "int64"}, "must hold a number each"),
        (LIST, {"categories": [0.5], "dtype": "int64"}, "must hold integers, for its data type"),
        (LIST, {"categories": [3, 256], "dtype": "uint8"}, "must hold integers from 0 to 255"),
        (LIST, {"other": -1, "dtype": "UInt64"}, "other must hold integers from 0 to "),
        (LIST, {"categories": ["a"], "dtype": "bool"}, "column cannot have the data type"),
        (BooleanColumn, {"dtype": "str"}, "cannot have the data type 'str'"),
    ],
)
def test_wrong_columns_are_refused(kind, fields, message):
    with pytest.raises(ValueError, match=f"'x'.*{message}"):
        kind("x", **fields)


@pytest.mark.parametrize("name", ["", 3, None])
def test_a_name_is_a_string(name):
    with pytest.raises(ValueError, match="must be a non-empty string"):
        BooleanColumn(name)


NUMBERS = NumericColumn("x", lower=0, upper=1)
TIMES = DatetimeColumn("x", lower="2020-01-01", upper="2021-01-01", dtype="datetime64[us]")
LETTERS = CategoricalColumn("x", categories=["a"], other="b")


@pytest.mark.parametrize(
    ("column", "values", "message"),
    [
        (NUMBERS, [1.0, math.inf], "holds infinity"),
        *(
            (NUMBERS.replace(integer=whole), pd.Series([1, value], dtype=object), "holds infinity")
            for value in (-math.inf, Fraction(10**400, 3))
            for whole in (False, True)
        ),
        (NUMBERS, [1.0, math.nan], "has missing values, but missing"),
        (NUMBERS, [1.0, SECRET], "must hold numbers"),
        (NUMBERS, pd.to_datetime(["2020-01-01"]), "must hold numbers"),
        (NUMBERS, np.array([1j]), "data type 'complex128' is not supported"),
        (NUMBERS, [[1, 2], [3, 4]], "must hold numbers"),
        (NUMBERS, np.eye(2), "a column must be a Series or an array of one dimension"),
        (NUMBERS, pd.Series(pd.arrays.SparseArray([0, 1])), "data type 'Sparse"),
        (NUMBERS, pl.Series([datetime.time(1)]), "data type .Time.*not supported"),
        *(
            (TIMES, pd.Series(values, dtype=object), "must hold dates or times")
            for values in (
                *([1, 2], [SECRET], [5, "2020"], ["2020-06-01", "2020-06-01T12:00Z"]),
                *(["1 June 2020"], ["2020-02-30"], [np.datetime64("300000-01-01")]),
            )
        ),
        (TIMES, pd.Series([None, "2020-01-01"]), "has missing values"),
        (TIMES, pd.to_datetime(["2020-01-01"]).tz_localize("UTC"), "has a time zone, unlike"),
        *(
            (column, pd.Series([value, "a"], dtype=object), "neither a string nor")
            for value in (b"x", [1], 1j, math.inf, datetime.date(2020, 1, 1))
            for column in (LETTERS, CategoricalColumn("x"))
        ),
        (CategoricalColumn("x", categories=["a"]), ["a", SECRET], "not among its 1 categories"),
        # Of open categories these could not be decoded: they are refused before the charge.
        (CategoricalColumn("x", dtype="int8"), [1, 128], "must hold integers from -128 to 127"),
        (CategoricalColumn("x", dtype="int64"), [1, 0.5], "must hold integers, for"),
        (CategoricalColumn("x", dtype="int64"), [1, SECRET], "must hold a number each"),
        (CategoricalColumn("x", dtype="str"), ["a", 4711], "must hold a text each"),
        *((BooleanColumn("x"), [value], "must hold True and False") for value in (SECRET, 2, 0.5)),
    ],
)
def test_values_that_a_column_cannot_hold_are_not_quoted(column, values, message):
    if type(values) is list and "each" in message:
        values = pd.Series(values, dtype=object)
    with pytest.raises(ValueError, match=f"'x'.*{message}") as caught:
        column.read(values)
    assert "4711" not in str(caught.value)


def test_one_half_does_not_round_large_integers():
    big = 2**53
    column = NumericColumn("c", lower=big, upper=big + 9, integer=True)
    values = pd.Series([big + 1, np.uint64(big + 3), 0.5], dtype=object)
    np.testing.assert_array_equal(column.to_unit(values), [1 / 9, 3 / 9, 0])


def test_nothing_is_encoded_or_decoded_before_the_column_is_known():
    for column in (NumericColumn("x", lower=0), DatetimeColumn("x", upper="2020-01-01")):
        for call, value in ((column.to_unit, [1.0]), (column.from_unit, [0.5])):
            with pytest.raises(ValueError, match="'x' has no bounds yet"):
                call(value)
    with pytest.raises(ValueError, match="'x' has no categories yet"):
        CategoricalColumn("x").to_codes(["a"])


@pytest.mark.parametrize("column", [NUMBERS, NUMBERS.replace(integer=True), TIMES, LETTERS])
def test_what_cannot_be_missing_is_not_decoded_as_missing(column):
    with pytest.raises(ValueError, match="'x' has missing=False"):
        column.from_unit([0.5, np.nan])


# -------------------------------------------------------------------- times


@given(
    st.datetimes(datetime.datetime(1678, 1, 2), datetime.datetime(2261, 1, 1)),
    st.integers(0, 10**10),
    st.lists(st.floats(0, 1), max_size=10),
    st.sampled_from(["D", "h", "min", "s"]),
    st.sampled_from(["s", "ms", "us", "ns"]),
    st.sampled_from([None, "UTC", "Europe/Berlin", "Asia/Kolkata", "America/Havana"]),
)
@settings(max_examples=200)
def test_times_on_ticks_come_back_exactly(first, length, shares, resolution, unit, zone):
    upper = min(first + datetime.timedelta(seconds=length), datetime.datetime(2261, 12, 30))
    column = DatetimeColumn(
        "t",
        lower=first,
        upper=upper,
        resolution=resolution,
        dtype=f"datetime64[{unit}{f', {zone}' if zone else ''}]",
    )
    last = column.n_values - 1
    ticks = np.rint(np.array(shares, dtype=float) * last)
    values = column.from_unit(ticks / max(last, 1))
    assert str(values.dtype) == column.dtype
    unit_again = column.to_unit(pd.Series(values))
    np.testing.assert_array_equal(np.rint(unit_again * last), ticks)
    pd.testing.assert_series_equal(pd.Series(column.from_unit(unit_again)), pd.Series(values))


def test_hours_around_the_change_of_clocks():
    times = pd.date_range("2024-10-26", "2024-10-28", freq="h", tz="Europe/Berlin")
    assert len(times) == 50  # one hour twice, and the last midnight
    column = DatetimeColumn(
        "t", lower="2024-10-26", upper="2024-10-28", resolution="h", dtype=str(times.dtype)
    )
    assert column.n_values == 50
    assert (column.from_unit(column.to_unit(times)) == times).all()
    days = DatetimeColumn(
        "t", lower="2024-10-26", upper="2024-10-28", resolution="D", dtype=str(times.dtype)
    )
    assert days.n_values == 3
    assert (days.from_unit(days.to_unit(times)) == times.normalize()).all()


def test_a_day_with_two_midnights_begins_with_the_first():
    zone = "datetime64[s, America/Havana]"
    column = DatetimeColumn("t", lower="2024-11-01", upper="2024-11-05", resolution="D", dtype=zone)
    midnights = pd.to_datetime(["2024-11-03T04:00Z", "2024-11-03T05:00Z"])
    back = column.from_unit(column.to_unit(midnights.tz_convert("America/Havana")))
    assert (back == midnights[0]).all()


def test_times_between_ticks_become_the_earlier_also_before_1970():
    column = DatetimeColumn("t", lower="1960-01-01", upper="1970-01-01", resolution="D")
    times = pd.Series(
        pd.to_datetime(
            ["1965-03-04 23:59:59.999", "1950-01-01 00:00:00.0", "2000-01-01 01:02:03.5"]
        )
    )
    assert column.from_unit(column.to_unit(times)).astype(str).tolist() == [
        "1965-03-04",
        "1960-01-01",
        "1970-01-01",
    ]


def test_every_way_to_store_a_date():
    column = DatetimeColumn("t", lower="2020-01-01", upper="2020-01-11", missing=True)
    day = datetime.datetime(2020, 1, 6)
    for values in (
        ["2020-01-06", None],
        [day, None],
        [day.date(), None],
        pd.Series([day, None]),
        pd.Series([day, None], dtype="datetime64[ns]"),
        np.array(["2020-01-06", "NaT"], dtype="datetime64[D]"),
        pl.Series([day, None]),
        pl.Series([day.date(), None]),
        pl.Series([day, None], dtype=pl.Datetime("ns")),
    ):
        np.testing.assert_array_equal(column.to_unit(values), [0.5, np.nan])


def test_parts_of_a_microsecond_are_cut_off_also_before_1970():
    late = "1969-12-31T23:59:59.999999"
    values = [f"{late}999", pd.Timestamp(f"{late}999"), np.datetime64(f"{late}999")]
    column = DatetimeColumn("t").read(pd.Series(values, dtype=object))
    assert column.dtype == "datetime64[us]"
    assert column.values.tolist() == [datetime.datetime.fromisoformat(late)] * 3


def test_bounds_may_be_dates_of_any_library():
    text = DatetimeColumn("t", lower="2020-01-01T00:00:00", upper="2021-01-01T00:00:00")
    for make in (pd.Timestamp, np.datetime64, datetime.datetime.fromisoformat):
        column = DatetimeColumn("t", lower=make("2020-01-01"), upper=make("2021-01-01"))
        assert column == text
    zoned = DatetimeColumn(
        "t",
        lower="2020-01-01T01:00+01:00",
        upper="2020-01-02",
        dtype="datetime64[us, UTC]",
        resolution="h",
    )
    assert zoned.n_values == 25


# --------------------------------------------------------------- categories

CATEGORY = st.one_of(
    st.text(max_size=4), st.integers(-5, 5), st.booleans(), st.sampled_from([0.5, -1.5])
)


@given(st.lists(CATEGORY, min_size=1, max_size=8), st.lists(st.integers(-1, 20), max_size=10))
def test_categories_come_back_exactly_with_their_types(categories, picks):
    unique = list({(isinstance(c, bool), c): c for c in categories}.values())
    column = CategoricalColumn("c", categories=unique, missing=True, dtype="object")
    values = [None if pick < 0 else unique[pick % len(unique)] for pick in picks]
    codes = column.to_codes(pd.Series(values, dtype=object))
    assert codes.dtype == np.int64
    back = column.from_codes(codes)
    assert [(type(v), v) for v in back] == [(type(v), v) for v in values]


@pytest.mark.parametrize("dtype", ["string", "category[object]", "category[string]", "enum"])
@pytest.mark.parametrize("ordered", [False, True])
def test_data_types_of_texts_come_back(dtype, ordered):
    column = CategoricalColumn(
        "c", categories=["b", "a"], other="z", missing=True, dtype=dtype, ordered=ordered
    )
    values = pd.Series(column.from_codes([1, 0, 2, -1]))
    expected = "category" if dtype.startswith("category") or dtype == "enum" else dtype
    assert values.dtype == expected
    assert values.isna().tolist() == [False, False, False, True]
    assert column.to_codes(values).tolist() == [1, 0, 2, -1]
    if expected == "category":
        assert values.cat.categories.tolist() == ["b", "a", "z"]
        assert values.cat.ordered is ordered


def test_unknown_values_go_to_other_else_to_missing_else_are_refused():
    values = ["a", SECRET, "b"]
    column = CategoricalColumn("c", categories=["a", "b"])
    assert column.replace(missing=True).to_codes(values).tolist() == [0, -1, 1]
    with_other = column.replace(missing=True, other="rest")
    assert with_other.levels == ("a", "b", "rest")
    assert with_other.to_codes([*values, None]).tolist() == [0, 2, 1, -1]
    inside = column.replace(other="b")
    assert inside.levels == ("a", "b")
    assert inside.to_codes(values).tolist() == [0, 1, 1]
    nothing = CategoricalColumn("c", categories=(), other="rest")
    assert nothing.n_categories == 1
    assert nothing.to_codes(values).tolist() == [0, 0, 0]


@pytest.mark.parametrize(
    ("dtype", "categories"),
    [
        ("uint64", [2**64 - 1, 3]),
        ("UInt64", [2**64 - 1, 2**63]),
        ("int8", [-128, 127]),
        ("float64", [2**60, 0.5]),
        ("float32", [1, 2]),
        ("category[uint64]", [2**64 - 1, 3]),
        ("category[uint8]", [250, -1]),
        ("category[int64]", [1, 0.5]),
    ],
)
@pytest.mark.parametrize("missing", [False, True])
def test_numeric_categories_come_back_in_every_data_type(dtype, categories, missing):
    column = CategoricalColumn("c", categories=categories, dtype=dtype, missing=missing)
    codes = [0, 1, 0, -1] if missing else [0, 1, 0]
    found = column.from_codes(codes)
    assert found.isna().tolist() == [code < 0 for code in codes]
    assert found.tolist()[:3] == [categories[code] for code in codes[:3]]
    assert column.to_codes(found).tolist() == codes


@pytest.mark.parametrize("codes", [[0.0], [2], [-2], ["a"]])
def test_codes_out_of_range_are_refused(codes):
    for column in (BooleanColumn("c"), CategoricalColumn("c", categories=["a", "b"])):
        with pytest.raises(ValueError, match="'c': codes must be integers from -1"):
            column.from_codes(codes)


@pytest.mark.parametrize(
    ("dtype", "expected"),
    [
        ("bool", "boolean"),
        ("boolean", "boolean"),
        ("object", "object"),
        ("int64", "Int64"),
        ("float32", "float32"),
    ],
)
def test_truth_values(dtype, expected):
    column = BooleanColumn("b", missing=True, dtype=dtype)
    values = pd.Series(column.from_codes([1, 0, -1]))
    assert values.dtype == expected
    assert values.isna().tolist() == [False, False, True]
    assert column.to_codes(values).tolist() == [1, 0, -1]
    assert column.to_codes(pl.Series([True, False, None])).tolist() == [1, 0, -1]
    plain = column.replace(missing=False)
    assert pd.Series(plain.from_codes([1, 0])).dtype == dtype
