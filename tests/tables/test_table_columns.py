"""Columns of a schema: what round trips exactly, what is clipped, and what is refused."""

import datetime
import math

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
    side = 1 / math.sqrt(3)  # also through the coordinates of an encoder
    unit = ((2 * column.to_unit(values) - 1) * side / side + 1) / 2
    np.testing.assert_array_equal(column.from_unit(unit), values)
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


def test_the_logarithmic_scale_makes_room_for_small_amounts():
    column = NumericColumn("x", lower=10, upper=10 + 99_999, log_scale=True)
    np.testing.assert_allclose(column.to_unit([10, 19, 109, 1009]), [0, 0.2, 0.4, 0.6], atol=0.001)


def test_unsigned_integers_beyond_the_signed_ones_are_clipped_and_not_wrapped():
    column = NumericColumn("n", lower=0, upper=1000, integer=True)
    assert column.to_unit(np.array([2**64 - 1, 2**63, 5], dtype=np.uint64)).tolist() == [
        1.0,
        1.0,
        0.005,
    ]


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


def test_a_number_of_values():
    assert NumericColumn("n", lower=1, upper=16, integer=True).n_values == 16
    assert NumericColumn("n", lower=1, upper=16).n_values is None
    assert NumericColumn("n", lower=1, integer=True).n_values is None
    constant = NumericColumn("n", lower=7, upper=7, integer=True)
    assert constant.n_values == 1
    assert constant.from_unit(constant.to_unit([7, 8])).tolist() == [7, 7]


@pytest.mark.parametrize(
    ("fields", "message"),
    [
        ({"lower": 2, "upper": 1}, "'x': lower=2.0 is above upper=1.0"),
        ({"lower": math.nan}, "'x': lower must be None or a finite number"),
        ({"upper": math.inf}, "'x': upper must be"),
        ({"upper": "9"}, "'x': upper must be"),
        ({"upper": True}, "'x': upper must be"),
        ({"upper": 10**400}, "'x': upper must be"),
        ({"upper": 10**400, "integer": True}, "'x': upper must be"),
        ({"lower": 0.5, "integer": True}, "'x': lower must be None or a finite .*, an integer"),
        (
            {"lower": 0.5, "dtype": "Int32"},
            "'x': lower must be None or a finite .*, an integer",
        ),
        ({"lower": -1.7e308, "upper": 1.7e308}, "too far apart"),
        ({"lower": 0, "upper": 300, "dtype": "uint8"}, "beyond what 'uint8' can hold"),
        ({"missing": "yes"}, "'x': missing must be True or False"),
        ({"integer": 1}, "'x': integer must be True or False"),
        ({"dtype": "str"}, "'x': a numeric column cannot have the data type 'str'"),
        ({"dtype": "complex128"}, "'x': data type 'complex128.*not supported"),
        ({"dtype": 3}, "'x': a numeric column cannot have the data type 3"),
    ],
)
def test_wrong_numeric_columns_are_refused(fields, message):
    with pytest.raises(ValueError, match=message):
        NumericColumn("x", **fields)


@pytest.mark.parametrize("name", ["", 3, None])
def test_a_name_is_a_string(name):
    with pytest.raises(ValueError, match="name that is a string"):
        BooleanColumn(name)


@pytest.mark.parametrize(
    ("values", "message"),
    [
        ([1.0, math.inf], "'x' holds infinity"),
        ([1.0, math.nan], "'x' misses values, but missing=False"),
        ([SECRET, "b"], "'x' must hold numbers"),
        ([1.0, SECRET], "'x' must hold numbers"),
        (pd.to_datetime(["2020-01-01"]), "'x' must hold numbers"),
        (pd.to_timedelta([1]), "'x' must hold numbers"),
        (np.array([1j]), "'x': data type 'complex128' is not supported"),
        ([[1, 2], [3, 4]], "'x' must hold numbers"),
        (np.eye(2), "'x': a column must be a Series or an array of one dimension"),
        (pd.Series(pd.arrays.SparseArray([0, 1])), "'x': data type 'Sparse"),
        (pl.Series([datetime.time(1)]), "'x': data type .Time.*not supported"),
    ],
)
def test_values_that_are_no_numbers_are_refused_without_being_quoted(values, message):
    with pytest.raises(ValueError, match=message) as caught:
        NumericColumn("x", lower=0, upper=1).to_unit(values)
    assert SECRET not in str(caught.value)


def test_nothing_is_encoded_or_decoded_before_the_bounds_are_known():
    for column in (NumericColumn("x", lower=0), DatetimeColumn("x", upper="2020-01-01")):
        assert not column.is_resolved
        with pytest.raises(ValueError, match="'x' has no bounds yet"):
            column.to_unit([1.0])
        with pytest.raises(ValueError, match="'x' has no bounds yet"):
            column.from_unit([0.5])
    with pytest.raises(ValueError, match="'x' has no categories yet"):
        CategoricalColumn("x").to_codes(["a"])


def test_what_cannot_be_missing_is_not_decoded_as_missing():
    for column in (
        NumericColumn("x", lower=0, upper=1),
        NumericColumn("x", lower=0, upper=1, integer=True),
        DatetimeColumn("x", lower="2020-01-01", upper="2021-01-01"),
    ):
        with pytest.raises(ValueError, match="'x' has missing=False"):
            column.from_unit([0.5, np.nan])
    for column in (BooleanColumn("x"), CategoricalColumn("x", categories=["a", "b"])):
        with pytest.raises(ValueError, match="'x' has missing=False"):
            column.from_codes([0, -1])


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


@pytest.mark.parametrize(
    ("fields", "message"),
    [
        ({"lower": "yesterday"}, "'t': lower must be None or a date"),
        ({"upper": 5}, "'t': upper must be None or a date"),
        ({"lower": "2021-01-01", "upper": "2020-01-01"}, "is after"),
        ({"resolution": "week"}, "resolution must be one of D, h, min, s"),
        ({"resolution": []}, "resolution must be one of"),
        ({"dtype": "int64"}, "a datetime column cannot have the data type 'int64'"),
        ({"lower": "1200-01-01", "dtype": "datetime64[ns]"}, "between 1678-01-01 and 2261-12-31"),
        (
            {"lower": "2020-01-01T00:00+01:00", "upper": "2021-01-01", "dtype": "datetime64[s]"},
            "has no time zone",
        ),
    ],
)
def test_wrong_datetime_columns_are_refused(fields, message):
    with pytest.raises(ValueError, match=message):
        DatetimeColumn("t", **fields)


@pytest.mark.parametrize(
    ("values", "message"),
    [
        ([1, 2], "'t' must hold dates or times"),
        ([SECRET], "'t' must hold dates or times"),
        (pd.Series([5, "2020"], dtype=object), "'t' must hold dates or times"),
        (pd.Series([None, "2020-01-01"]), "'t' misses values"),
        (
            pd.to_datetime(["2020-01-01"]).tz_localize("UTC"),
            "'t' has a time zone, unlike the data type of its schema",
        ),
    ],
)
def test_values_that_are_no_times_are_refused(values, message):
    column = DatetimeColumn("t", lower="2020-01-01", upper="2021-01-01", dtype="datetime64[us]")
    with pytest.raises(ValueError, match=message) as caught:
        column.to_unit(values)
    assert SECRET not in str(caught.value)


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


@pytest.mark.parametrize(
    "dtype",
    ["str", "string", "object", "category[str]", "category[object]", "category[string]", "enum"],
)
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


def test_numbers_can_be_categories():
    column = CategoricalColumn("c", categories=[3, 1], other=-1, dtype="int64")
    assert column.to_codes(np.array([1.0, 3.0, 7.0])).tolist() == [1, 0, 2]
    back = column.from_codes([1, 0, 2])
    assert back.dtype == np.int64
    assert back.tolist() == [1, 3, -1]
    assert str(pd.Series(column.replace(missing=True).from_codes([0, -1])).dtype) == "Int64"
    halves = CategoricalColumn("c", categories=[0.5, 1], dtype="float32", missing=True)
    np.testing.assert_array_equal(halves.from_codes([0, -1]), np.float32([0.5, np.nan]))


def test_unknown_values_go_to_other_else_to_missing_else_are_refused():
    values = ["a", SECRET, "b"]
    column = CategoricalColumn("c", categories=["a", "b"])
    with pytest.raises(ValueError, match="'c' holds a value that is not among its 2") as caught:
        column.to_codes(values)
    assert SECRET not in str(caught.value)
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
    ("fields", "message"),
    [
        ({"categories": "abc"}, "categories must be a list"),
        ({"categories": 5}, "categories must be a list"),
        ({"categories": []}, "needs at least one category"),
        ({"categories": ["a", "a"]}, "a category is listed twice"),
        ({"categories": [1, 1.0]}, "a category is listed twice"),
        ({"categories": [None, "a"]}, "categories must hold strings, numbers or booleans"),
        ({"categories": [math.nan]}, "categories must hold"),
        ({"categories": [["a"]]}, "categories must hold"),
        ({"categories": [b"a"]}, "categories must hold"),
        ({"categories": ["a"], "other": math.inf}, "other must hold"),
        ({"categories": [1], "dtype": "str"}, "must hold a text each, for its data type is 'str'"),
        ({"categories": ["a"], "dtype": "int64"}, "must hold a number each"),
        ({"categories": [0.5], "dtype": "int64"}, "must hold integers, for its data type"),
        ({"categories": [3, 256], "dtype": "uint8"}, "must hold integers from 0 to 255, for its"),
        ({"other": -1, "dtype": "UInt64"}, "other must hold integers from 0 to "),
        ({"categories": [2**63], "dtype": "int64"}, "integers from -9223372036854775808 to "),
        ({"categories": ["a"], "dtype": "bool"}, "categorical column cannot have the data type"),
    ],
)
def test_wrong_categorical_columns_are_refused(fields, message):
    with pytest.raises(ValueError, match=message):
        CategoricalColumn("c", **fields)


@pytest.mark.parametrize("value", [b"x", [1], {"a": 1}, 1j, math.inf, datetime.date(2020, 1, 1)])
def test_values_that_are_no_categories_are_refused(value):
    column = CategoricalColumn("c", categories=["a"], other="b")
    values = pd.Series([value, "a"], dtype=object)
    with pytest.raises(ValueError, match="'c' holds something that is neither a string nor"):
        column.to_codes(values)
    with pytest.raises(ValueError, match="'c' holds something that is neither a string nor"):
        CategoricalColumn("c").read(values)


@pytest.mark.parametrize(
    ("dtype", "value", "message"),
    [
        ("int8", 128, "'c' must hold integers from -128 to 127, for its data type is 'int8'"),
        ("int64", 0.5, "'c' must hold integers, for"),
        ("int64", "4711", "'c' must hold a number each"),
        ("str", 4711, "'c' must hold a text each"),
    ],
)
def test_values_that_are_no_categories_of_the_data_type_are_refused(dtype, value, message):
    """Before a fit that selects categories is charged, for they cannot be decoded."""
    column = CategoricalColumn("c", dtype=dtype)
    good = "a" if dtype == "str" else 1
    column.read([good, good])
    with pytest.raises(ValueError, match=message) as refused:
        column.read(pd.Series([good, value], dtype=object))
    assert "4711" not in str(refused.value)


@pytest.mark.parametrize(
    ("dtype", "categories"),
    [
        ("uint64", [2**64 - 1, 3]),
        ("UInt64", [2**64 - 1, 2**63]),
        ("uint8", [250, 3]),
        ("int8", [-128, 127]),
        ("float64", [2**60, 0.5]),
        ("float32", [1, 2]),
        ("category[uint8]", [250, 3]),
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
    for wrong in ([SECRET], [2], [0.5], ["True"]):
        with pytest.raises(ValueError, match="'b' must hold True and False") as caught:
            plain.to_codes(wrong)
        assert SECRET not in str(caught.value)
    with pytest.raises(ValueError, match="cannot have the data type 'str'"):
        BooleanColumn("b", dtype="str")


# ---------------------------------------------------------------- in general


def test_columns_say_what_they_are():
    assert repr(NumericColumn("a", lower=0)) == "NumericColumn('a', lower=0.0)"
    assert "... 20 in all" in repr(CategoricalColumn("a", categories=range(20)))
    assert NumericColumn("a", lower=0, upper=9, integer=True).describe() == "integers from 0 to 9"
    assert "privately" in NumericColumn("a").describe()
    assert (
        "days from 2020-01-01 to ?"
        in DatetimeColumn("a", lower="2020-01-01", resolution="D").describe()
    )
    assert CategoricalColumn("a", categories=["x"], other="y").describe() == "2 categories: x, y"
    assert CategoricalColumn("a").describe() == "categories to be selected privately"
    assert BooleanColumn("a").describe() == "True and False"


def test_columns_cannot_be_changed():
    with pytest.raises(AttributeError):
        NumericColumn("a").lower = 3
