"""Columns of a schema: what comes back exactly, what is clipped, and what is refused."""

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
    TimedeltaColumn,
)

SECRET = "Secret-4711"
NUMBER, TIME, SPAN, LIST = NumericColumn, DatetimeColumn, TimedeltaColumn, CategoricalColumn

# ------------------------------------------------------------ there and back again


@given(st.data(), st.booleans(), st.integers(-(2**61), 2**61))
def test_integers_come_back_exactly(data, log_scale, lower):
    length = data.draw(st.integers(0, 2**40 if log_scale else 2**48))
    column = NUMBER("n", lower=lower, upper=lower + length, log_scale=log_scale, dtype="int64")
    near = st.integers(0, min(length, 5)) | st.integers(max(length - 5, 0), length)
    steps = data.draw(st.lists(near | st.integers(0, length), max_size=20))
    values = lower + np.array(steps, dtype=np.int64)
    unit = column.to_unit(values)
    assert ((unit >= 0) & (unit <= 1)).all()
    np.testing.assert_array_equal(column.from_unit(unit), values)


@pytest.mark.parametrize("log_scale", [False, True])
def test_integers_at_the_largest_range_are_still_told_apart(log_scale):
    largest = 2**40 if log_scale else 2**48
    column = NUMBER("n", lower=2**61, upper=2**61 + largest, integer=True)
    column = column.replace(log_scale=log_scale)
    values = 2**61 + np.random.default_rng(0).integers(0, largest, size=100_000, endpoint=True)
    np.testing.assert_array_equal(column.from_unit(column.to_unit(values)), values)
    with pytest.raises(ValueError, match="'n': integers between bounds more than"):
        column.replace(upper=2**61 + largest + 1)


@given(
    st.floats(-4e299, 4e299),
    st.floats(1e-300, 4e299),
    st.lists(st.floats(0, 1), max_size=10),
    st.booleans(),
)
def test_floats_come_back_to_a_trillionth_of_the_range(lower, length, shares, log_scale):
    upper = lower + length
    column = NUMBER("x", lower=lower, upper=upper, log_scale=log_scale)
    values = np.clip(lower + np.array(shares, dtype=float) * (upper - lower), lower, upper)
    unit = column.to_unit(values)
    assert ((unit >= 0) & (unit <= 1)).all()
    back = column.from_unit(unit)
    tolerance = 1e-12 * (upper - lower) + 2 * np.spacing(np.abs(values))
    assert (np.abs(back - values) <= tolerance).all()
    assert ((back >= lower) & (back <= upper)).all()


@given(
    st.datetimes(datetime.datetime(1678, 1, 2), datetime.datetime(2261, 1, 1)),
    st.integers(0, 10**10),
    st.lists(st.floats(0, 1), max_size=10),
    st.sampled_from(["D", "h", "min", "s"]),
    st.sampled_from(["s", "ms", "us", "ns"]),
    st.sampled_from(["", ", UTC", ", Europe/Berlin", ", Asia/Kolkata", ", America/Havana"]),
)
@settings(max_examples=200)
def test_times_on_ticks_come_back_exactly(first, length, shares, resolution, unit, zone):
    upper = min(first + datetime.timedelta(seconds=length), datetime.datetime(2261, 12, 30))
    dtype = f"datetime64[{unit}{zone}]"
    column = TIME("t", lower=first, upper=upper, resolution=resolution, dtype=dtype)
    last = column.n_values - 1
    ticks = np.rint(np.array(shares, dtype=float) * last)
    values = column.from_unit(ticks / max(last, 1))
    assert str(values.dtype) == dtype
    unit_again = column.to_unit(pd.Series(values))
    np.testing.assert_array_equal(np.rint(unit_again * last), ticks)
    pd.testing.assert_series_equal(pd.Series(column.from_unit(unit_again)), pd.Series(values))


TEXTS = {"categories": ["b", "a"], "other": "z", "ordered": True}
LEVELS = [
    (LIST("c", **TEXTS, dtype="string"), "string", "string"),
    (LIST("c", **TEXTS, dtype="enum"), "category", "category"),
    (LIST("c", **TEXTS, dtype="category[string]"), "category", "category"),
    (LIST("c", categories=["b", "a"], dtype="category[object]"), "category", "category"),
    (LIST("c", categories=["b", 1, True, 0.5, ""], dtype="object"), "object", "object"),
    (LIST("c", categories=[2**64 - 1, 3], dtype="uint64"), "uint64", "UInt64"),
    (LIST("c", categories=[2**64 - 1, 2**63], dtype="UInt64"), "UInt64", "UInt64"),
    (LIST("c", categories=[-128, 127], dtype="int8"), "int8", "Int8"),
    (LIST("c", categories=[2**60, 0.5], dtype="float64"), "float64", "float64"),
    (LIST("c", categories=[2**64 - 1, 3], dtype="category[uint64]"), "category", "category"),
    (LIST("c", categories=[250, -1], dtype="category[uint8]"), "category", "category"),
    (LIST("c", categories=[1, 0.5], dtype="category[int64]"), "category", "category"),
    (BooleanColumn("c", dtype="bool"), "bool", "boolean"),
    (BooleanColumn("c", dtype="object"), "object", "object"),
    (BooleanColumn("c", dtype="int64"), "int64", "Int64"),
    (BooleanColumn("c", dtype="float32"), "float32", "float32"),
]


@pytest.mark.parametrize("missing", [False, True])
@pytest.mark.parametrize(("column", "plain", "nullable"), LEVELS)
def test_levels_come_back_in_every_data_type(column, plain, nullable, missing):
    column, expected = column.replace(missing=missing), nullable if missing else plain
    codes = [*range(column.n_categories), *([-1] if column.missing else [])]
    found = column.from_codes(codes)
    assert found.dtype == expected
    assert found.isna().tolist() == [code < 0 for code in codes]
    back = found.tolist()[: column.n_categories]
    assert back == list(column.levels)
    assert expected != "object" or [*map(type, back)] == [*map(type, column.levels)]
    assert column.to_codes(found).tolist() == codes
    if expected == "category":
        assert found.cat.categories.tolist() == list(column.levels)
        assert found.cat.ordered is column.ordered


# ------------------------------------------------------------ what a value becomes


def objects(*values):
    return pd.Series(values, dtype=object)


def at(*texts, zone=None):
    return [pd.Timestamp(text, tz=zone) for text in texts]


FEW = NUMBER("c", lower=0, upper=4, integer=True, missing=True)
HUGE = NUMBER("c", lower=2**62 - 9, upper=2**62, integer=True, missing=True)
BIG = NUMBER("c", lower=2**53, upper=2**53 + 9, integer=True)
JANUARY = TIME("c", lower="2020-01-01", upper="2020-01-11", missing=True)
SIXTIES = TIME("c", lower="1960-01-01", upper="1970-01-01", resolution="D")
MOMENTS = TIME("c", lower="1969-01-01", upper="1970-01-01", dtype="datetime64[us]")
DAY = datetime.datetime(2020, 1, 6)
CLOCKS = pd.date_range("2024-10-26", "2024-10-28", freq="h", tz="Europe/Berlin")
CHANGE = {"lower": "2024-10-26", "upper": "2024-10-28", "dtype": str(CLOCKS.dtype)}
MIDNIGHTS = pd.to_datetime(["2024-11-03T04:00Z", "2024-11-03T05:00Z"]).tz_convert("America/Havana")
NOVEMBER = TIME(
    *["c"], lower="2024-11-01", upper="2024-11-05", resolution="D", dtype=str(MIDNIGHTS.dtype)
)
AB = LIST("c", categories=["a", "b"])
UNKNOWN = ["a", SECRET, "b"]
LARGE = [-0.0, "1e400", "9" * 5000, 10**400, Fraction(10**400, 3), 1.7e308]
LARGE += [5e-324, "-1e400", "-" + "9" * 400, -(10**400), Fraction(-(10**400), 3), -1.7e308]
TOKYO = "datetime64[s, Asia/Tokyo]"
ALL_YEARS = {"lower": "0001-01-02", "upper": "9999-12-30"}
FAR_DATES = ["10000-01-01", "+123456789-01-01T12:00", "31/12/10000", np.datetime64("300000-01-01")]
FAR_DATES += [np.datetime64(2**62, "Y"), "9" * 5000 + "-01-01", "0000-12-31", "-0001-01-01"]
FAR_DATES += ["01/01/0000", np.datetime64("-300000-01-01"), np.datetime64(-(2**62), "Y")]
FAR_DATES += ["-12345-01-01"]
BECOMES = {
    **{
        f"numbers outside, {integer}, {log}": (
            NUMBER("c", lower=-3, upper=9, integer=integer, log_scale=log),
            [-1e300, -4, -3, 9, 10, 1e300],
            [-3, -3, -3, 9, 9, 9],
        )
        for integer in (False, True)
        for log in (False, True)
    },
    **{
        f"a number, way {way}": (FEW, values, [1, None, 4])
        for way, values in enumerate(
            (
                *([1, None, 4], np.array([1.0, np.nan, 4.0]), objects(1, None, 4)),
                pl.Series([1.0, float("nan"), 4.0]),
            )
        )
    },
    **{
        f"a huge number, way {way}": (HUGE, values, [2**62 - 3, None])
        for way, values in enumerate(
            (
                *(pd.Series([2**62 - 3, None], dtype=dtype) for dtype in ("Int64", "object")),
                pl.Series([2**62 - 3, None]),
            )
        )
    },
    "unsigned beyond the signed": (FEW, np.array([2**64 - 1, 2**63, 3], np.uint64), [4, 4, 3]),
    "one half beside large integers": (
        BIG, objects(2**53 + 1, np.uint64(2**53 + 3), 0.5), [2**53 + 1, 2**53 + 3, 2**53]
    ),
    **{
        f"a date, way {way}": (JANUARY, values, [pd.Timestamp(DAY), None])
        for way, values in enumerate(
            (
                *(["2020-01-06", None], [DAY, None], [DAY.date(), None], pd.Series([DAY, None])),
                *(np.array(["2020-01-06", "NaT"], "datetime64[D]"), pl.Series([DAY.date(), None])),
            )
        )
    },
    # One hour occurs twice; of days the zone has three.
    "hours around the change of clocks": (TIME("c", resolution="h", **CHANGE), CLOCKS, [*CLOCKS]),
    "days around it": (TIME("c", resolution="D", **CHANGE), CLOCKS, [*CLOCKS.normalize()]),
    "a day with two midnights": (NOVEMBER, MIDNIGHTS, [MIDNIGHTS[0]] * 2),
    "between ticks, before 1970": (
        SIXTIES,
        pd.Series(at("1965-03-04 23:59:59.999", "1950-01-01", "2000-01-01 01:02:03.5")),
        at("1965-03-04", "1960-01-01", "1970-01-01"),
    ),
    "parts of a microsecond, before 1970": (
        MOMENTS,
        objects(
            *(kind("1969-12-31T23:59:59.999999999") for kind in (str, pd.Timestamp, np.datetime64))
        ),
        at(*["1969-12-31T23:59:59"] * 3),
    ),
    **{
        f"a number beyond all numbers, {kind}": (
            FEW.replace(**changes), objects(*LARGE), [0, *[4] * 5, *[0] * 6]
        )
        for kind, changes in (
            ("whole", {}), ("real", {"integer": False}), ("short", {"dtype": "int8"})
        )
    },
    "an amount beyond all numbers": (
        NUMBER("c", lower=-1, upper=5, written="1.234,50 EUR"),
        [f"{'9' * 400} EUR", f"({'9' * 5000},5)", f"-{'9' * 400},00"],
        [5, -1, -1],
    ),
    "a date beyond all years": (
        TIME("c", **ALL_YEARS, formats=["%d/%m/%Y"], dtype="datetime64[s]"),
        objects(*FAR_DATES),
        [*at("9999-12-30") * 6, *at("0001-01-02") * 6],
    ),
    "a time beyond all years": (
        TIME("c", **ALL_YEARS, dtype="datetime64[us, UTC]"),
        ["9999-12-31T23:59-05:00", "10000-01-01T00:00Z",
         "0001-01-01T00:00+14:00", "0000-06-01T00:00Z"],
        [*at("9999-12-30", zone="UTC") * 2, *at("0001-01-02", zone="UTC") * 2],
    ),
    "a duration beyond all durations": (
        SPAN("c", lower="-100000 D", upper="100000 D"),
        objects(
            "100001 days", "9" * 5000 + " s", "PT" + "9" * 30 + "S", datetime.timedelta(days=10**6),
            np.timedelta64(10**6, "D"), "-" + "9" * 30 + " h", "-P900000D",
            np.timedelta64(-(2**62), "s"), "P-99999999999D", "-P-99999999999D",
        ),
        [
            *[pd.Timedelta("100000 D")] * 5,
            *[pd.Timedelta("-100000 D")] * 4,
            pd.Timedelta("100000 D"),
        ],
    ),
    "unknown, missing": (AB.replace(missing=True), UNKNOWN, ["a", None, "b"]),
    "unknown, other": (
        AB.replace(missing=True, other="rest"), [*UNKNOWN, None], ["a", "rest", "b", None]
    ),
    "unknown, other is listed": (AB.replace(other="b"), UNKNOWN, ["a", "b", "b"]),
    "nothing known": (LIST("c", categories=(), other="rest"), UNKNOWN, ["rest"] * 3),
}  # fmt: skip


@pytest.mark.parametrize("case", BECOMES)
def test_what_a_value_becomes(case):
    column, values, expected = BECOMES[case]
    unit = column.to_unit(values)
    assert ((unit >= 0) & (unit <= 1) | np.isnan(unit)).all()
    back = column.from_unit(unit)
    assert [None if pd.isna(value) else value for value in back] == expected


@pytest.mark.parametrize("listed", [["a", "b"], None], ids=["a list", "no list"])
def test_categories_that_no_row_has_are_not_read(listed):
    """A data type may list what no row has: it is no value, refuses nothing and is not counted."""
    column = LIST("c", categories=listed, dtype=None if listed else "str")
    values = pd.Series(["a", "b", "a"], dtype=pd.CategoricalDtype(["z", "b", "a", SECRET]))
    found = column.read(values)
    assert found.keys == [("text", "b"), ("text", "a")]
    assert column.labels(found).tolist() == ["a", "b", "a"]
    if listed:
        assert column.to_codes(values).tolist() == [0, 1, 0]


@pytest.mark.parametrize("zone", ["Asia/Tokyo", "America/New_York"])
def test_no_day_of_a_zone_is_too_far(zone):
    """What a clock shows there overflows: an error would tell of such a value."""
    column = TIME("c", **ALL_YEARS, resolution="D", dtype=f"datetime64[s, {zone}]")
    ticks = np.array([-(2**63) + 1, -(2**60), -62135596801, 253402300800, 2**60, 2**63 - 1])
    values = pd.Series(ticks.astype("datetime64[s]")).dt.tz_localize("UTC")
    try:
        days = column.from_unit(column.to_unit(values)).tolist()
    except ValueError as error:
        pytest.fail(f"a day was refused: {error}")
    assert days == at(*["0001-01-02"] * 3, *["9999-12-30"] * 3, zone=zone)


def test_places_beyond_both_ends_are_clipped():
    assert NUMBER("x", lower=-3, upper=9).from_unit([-5.0, 2.0]).tolist() == [-3, 9]


def test_bounds_may_be_dates_of_any_library():
    text = TIME("t", lower="2020-01-01T00:00:00", upper="2021-01-01T00:00:00")
    for make in (pd.Timestamp, np.datetime64, datetime.datetime.fromisoformat):
        assert TIME("t", lower=make("2020-01-01"), upper=make("2021-01-01")) == text
    bounds = {"lower": "2020-01-01T01:00+01:00", "upper": "2020-01-02"}
    assert TIME("t", **bounds, dtype="datetime64[us, UTC]", resolution="h").n_values == 25


# ------------------------------------------------------------ what is refused


@pytest.mark.parametrize(
    ("kind", "fields", "message"),
    [
        (NUMBER, {"lower": 2, "upper": 1}, "lower=2.0 is above upper=1.0"),
        *((NUMBER, {"upper": v}, "upper must be") for v in (math.inf, math.nan, "9", True)),
        (NUMBER, {"upper": 10**400, "integer": True}, "upper must be"),
        (NUMBER, {"lower": 0.5, "integer": True}, "lower must be None or a finite .*, an integer"),
        (NUMBER, {"lower": 0.5, "dtype": "Int32"}, "lower must be None or a finite .*, an integer"),
        (NUMBER, {"lower": 0, "upper": 1.1e300}, "upper must be .* between -1e300 and 1e300"),
        (NUMBER, {"upper": np.timedelta64(1, "s")}, "upper must be"),
        (NUMBER, {"lower": 0, "upper": 1e39, "dtype": "float32"}, "beyond what 'float32' can hold"),
        *((SPAN, {"upper": v}, "upper must be None or a") for v in ("100001 D", "9" * 50 + " D")),
        (NUMBER, {"lower": 0, "upper": 300, "dtype": "uint8"}, "beyond what 'uint8' can hold"),
        (NUMBER, {"missing": "yes"}, "missing must be True or False"),
        (NUMBER, {"dtype": "str"}, "a numeric column cannot have the data type 'str'"),
        (NUMBER, {"dtype": "complex128"}, "data type 'complex128.*not supported"),
        (NUMBER, {"dtype": 3}, "a numeric column cannot have the data type 3"),
        (TIME, {"lower": "yesterday"}, "lower must be None or a date"),
        (TIME, {"upper": 5}, "upper must be None or a date"),
        (TIME, {"lower": "2021-01-01", "upper": "2020-01-01"}, "is after"),
        *((TIME, {"resolution": v}, "resolution must be one of D, h, min") for v in ("week", [])),
        (TIME, {"lower": "1200-01-01", "dtype": "datetime64[ns]"}, "1678-01-01 and 2261-12-31"),
        (TIME, {"lower": "2020-01-01T00:00+01:00", "upper": "2021-01-01",
                "dtype": "datetime64[s]"}, "has no time zone"),
        *((SPAN, {"lower": v}, "lower must be None or a duration") for v in ("90", "soon", 90)),
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
        (BooleanColumn, {"dtype": "str"}, "cannot have the data type 'str'"),
    ],
)  # fmt: skip
def test_wrong_columns_are_refused(kind, fields, message):
    with pytest.raises(ValueError, match=f"'x'.*{message}"):
        kind("x", **fields)


@pytest.mark.parametrize("name", ["", 3, None])
def test_a_name_is_a_string(name):
    with pytest.raises(ValueError, match="must be a non-empty string"):
        BooleanColumn(name)


NUMBERS = NUMBER("x", lower=0, upper=1)
TIMES = TIME("x", lower="2020-01-01", upper="2021-01-01", dtype="datetime64[us]")
SPANS = SPAN("x", lower="0 h", upper="9 h")
DATED = TIMES.replace(dtype=None, formats=["%d/%m/%Y", "%d/%m/%Y %H:%M:%S.%f"])
LETTERS = LIST("x", categories=["a"], other="b")


@pytest.mark.parametrize(
    ("column", "values", "message"),
    [
        (NUMBERS, [1.0, math.inf], "holds infinity"),
        *(
            (NUMBERS.replace(integer=whole), objects(1, value), "holds infinity")
            for value in (-math.inf, np.float32(math.inf))
            for whole in (False, True)
        ),
        (NUMBERS, [1.0, math.nan], "has missing values, but missing"),
        (NUMBERS, [1.0, SECRET], "must hold numbers"),
        (NUMBERS, pd.to_datetime(["2020-01-01"]), "must hold numbers"),
        (NUMBERS, np.array([1j]), "data type 'Complex128DType' is not supported"),
        (NUMBERS, [[1, 2], [3, 4]], "must hold numbers"),
        (NUMBERS, np.eye(2), "a column must be a Series or an array of one dimension"),
        (NUMBERS, pd.Series(pd.arrays.SparseArray([0, 1])), "data type 'Sparse"),
        (NUMBERS, pl.Series([datetime.time(1)]), "data type .Time.*not supported"),
        *(
            (TIMES, objects(*values), "must hold dates or times")
            for values in (
                *([1, 2], [SECRET], [5, "2020"], ["2020-06-01", "2020-06-01T12:00Z"]),
                *(["1 June 2020"], ["2020-02-30"], ["99999-02-30"], ["20241301"], ["20000"]),
            )
        ),
        (TIMES, pd.Series([None, "2020-01-01"]), "has missing values"),
        (TIMES, pd.to_datetime(["2020-01-01"]).tz_localize("UTC"), "has a time zone, unlike"),
        *((SPANS, objects(v), "must hold durations") for v in ("90", "soon", "P000123", 90)),
        (DATED, objects("01/01/20000.1234567"), "must hold dates or times"),
        (DATED, objects("01/01/2000 00:00:00.1234567"), "must hold dates or times"),
        *(
            (column, objects(np.timedelta64(1, "s"), value), message)
            for column, value, message in (
                (NUMBERS, 1, "must hold numbers"),
                (NUMBERS.replace(integer=True), 1, "must hold numbers"),
                (LETTERS, "a", "neither a string nor"),
                (BooleanColumn("x"), True, "must hold True and False"),
                (TIMES, "2020-06-01", "must hold dates or times"),
            )
        ),
        *(
            (column, objects(value, "a"), "neither a string nor")
            for value in (b"x", [1], 1j, math.inf, datetime.date(2020, 1, 1))
            for column in (LETTERS, LIST("x"))
        ),
        (LIST("x", categories=["a"]), ["a", SECRET], "not among its 1 categories"),
        # Of open categories these could not be decoded: they are refused before the charge.
        (LIST("x", dtype="int8"), [1, 128], "must hold integers from -128 to 127"),
        (LIST("x", dtype="int64"), [1, 0.5], "must hold integers, for"),
        (LIST("x", dtype="int64"), objects(1, SECRET), "must hold a number each"),
        (LIST("x", dtype="str"), objects("a", 4711), "must hold a text each"),
        *((BooleanColumn("x"), [value], "must hold True and False") for value in (SECRET, 2, 0.5)),
    ],
)
def test_values_that_a_column_cannot_hold_are_not_quoted(column, values, message):
    with pytest.raises(ValueError, match=f"'x'.*{message}") as caught:
        column.read(values)
    assert "4711" not in str(caught.value)


def test_nothing_is_encoded_or_decoded_before_the_column_is_known():
    for column in (NUMBER("x", lower=0), TIME("x", upper="2020-01-01")):
        for call, value in ((column.to_unit, [1.0]), (column.from_unit, [0.5])):
            with pytest.raises(ValueError, match="'x' has no bounds yet"):
                call(value)
    with pytest.raises(ValueError, match="'x' has no categories yet"):
        LIST("x").to_codes(["a"])


@pytest.mark.parametrize("column", [NUMBERS, NUMBERS.replace(integer=True), TIMES, LETTERS])
def test_what_cannot_be_missing_is_not_decoded_as_missing(column):
    with pytest.raises(ValueError, match="'x' has missing=False"):
        column.from_unit([0.5, np.nan])


@pytest.mark.parametrize("codes", [[0.0], [2], [-2], ["a"]])
def test_codes_out_of_range_are_refused(codes):
    for column in (BooleanColumn("c"), AB):
        with pytest.raises(ValueError, match="'c': codes must be integers from -1"):
            column.from_codes(codes)
