"""Conditions: what is asked for is what the cells and the values satisfy, or an error says why."""

import math
from datetime import date, datetime

import numpy as np
import pandas as pd
import pytest
from hypothesis import assume, given, settings
from hypothesis import strategies as st

from skdpot.preprocessing import BooleanColumn, CategoricalColumn, DatetimeColumn, NumericColumn
from skdpot.tables.conditions import parse_conditions

ROME = "datetime64[ns, Europe/Rome]"
SCALES = {
    "few": NumericColumn("few", lower=0, upper=90, integer=True, dtype="int64"),
    "many": NumericColumn("many", lower=-500, upper=5000, integer=True, dtype="int64"),
    "gaps": NumericColumn("gaps", lower=0, upper=900, missing=True, dtype="Int64"),
    "spare": NumericColumn("spare", lower=0, upper=9, missing=True, dtype="Int64"),
    "real": NumericColumn("real", lower=-1.5, upper=7.1, dtype="float64"),
    "short": NumericColumn("short", lower=-1.5, upper=7.1, missing=True, dtype="float32"),
    "pounds": NumericColumn("pounds", lower=0, upper=1e5, log_scale=True, dtype="float64"),
    "pence": NumericColumn("pence", lower=0, upper=10**5, log_scale=True, dtype="int64"),
}
TIMES = {
    "day": DatetimeColumn(
        "day", lower="2024-01-01", upper="2024-12-31", resolution="D", dtype="datetime64[s]"
    ),
    "second": DatetimeColumn("second", lower="2024-01-01", upper="2024-12-31", missing=True),
    "hour": DatetimeColumn(
        "hour", lower="2024-01-01", upper="2024-12-31", resolution="h", dtype=ROME
    ),
    "local day": DatetimeColumn(
        "local day", lower="2024-01-01", upper="2024-12-31", resolution="D", dtype=ROME
    ),
}
NAMED = {
    "colour": CategoricalColumn("colour", categories=["red", "green", "blue"], dtype="object"),
    "grade": CategoricalColumn(
        "grade", categories=[1, 2, 3], ordered=True, missing=True, dtype="float64"
    ),
    "other": CategoricalColumn("other", categories=["a"], other="rest", dtype="object"),
    "flag": BooleanColumn("flag", missing=True, dtype="boolean"),
    "tall": CategoricalColumn("tall", categories=["S", "M"], ordered=True, other="huge"),
}
COLUMNS = SCALES | TIMES | NAMED
GRIDS = tuple(column.grid() for column in COLUMNS.values())


def parsed(name, wanted):
    found = parse_conditions({name: wanted}, GRIDS)
    assert list(found) == [list(COLUMNS).index(name)]
    return found[list(COLUMNS).index(name)]


def drawn(name, wanted, seed=0):
    """Values as `sample` draws them from the cells that a condition keeps."""
    grid, rng = GRIDS[list(COLUMNS).index(name)], np.random.default_rng(seed)
    condition = parsed(name, wanted)
    assert condition.kept.shape == (grid.size,)
    assert condition.kept.min() >= 0
    assert 0 < condition.kept.max() <= 1 + 1e-9
    cells = np.repeat(np.flatnonzero(condition.kept), 20)
    return condition.enforce(grid.values(cells, rng, condition.within))


# --- scales -------------------------------------------------------------------------------------


def numbers(column):
    beyond = (column.upper - column.lower) * 0.2
    reals = st.floats(column.lower - beyond, column.upper + beyond)
    edges = st.integers(0, 256).map(
        lambda k: column.lower + k / 256 * (column.upper - column.lower)
    )
    return st.one_of(reals, edges, st.integers(math.ceil(column.lower), int(column.upper)))


def exists(column, lowest, highest):
    """Whether a value lies in the interval; None is no limit."""
    lowest = max(column.lower, column.lower if lowest is None else lowest)
    highest = min(column.upper, column.upper if highest is None else highest)
    if not column.integer or lowest > highest:
        return lowest <= highest
    return math.ceil(lowest) <= math.floor(highest)


@pytest.mark.parametrize("name", SCALES)
@settings(max_examples=60, deadline=None)
@given(data=st.data())
def test_numbers_lie_in_the_interval(name, data):
    column = SCALES[name]
    ends = st.one_of(st.none(), numbers(column), st.sampled_from([-math.inf, math.inf]))
    lowest, highest = data.draw(ends), data.draw(ends)
    if not exists(column, lowest, highest):
        with pytest.raises(ValueError, match=f"No value of '{name}' lies in"):
            parsed(name, (lowest, highest))
        return
    values = drawn(name, (lowest, highest), data.draw(st.integers(0, 99)))
    assert not values.isna().any()
    exact = [float(value) for value in values]
    if name == "short":
        low = max(column.lower, -math.inf if lowest is None else lowest)
        high = min(column.upper, math.inf if highest is None else highest)
        assume(np.float32(low) < np.float32(high))  # else nothing need be inside
    assert lowest is None or min(exact) >= lowest
    assert highest is None or max(exact) <= highest
    assert min(exact) >= np.dtype(np.float32).type(column.lower) if name == "short" else True
    assert str(values.dtype) == (column.dtype or "float64")


@pytest.mark.parametrize("name", ["few", "many", "gaps", "pence", "real", "pounds"])
@settings(max_examples=30, deadline=None)
@given(data=st.data())
def test_a_single_number_is_met_exactly(name, data):
    column = SCALES[name]
    value = data.draw(st.integers(math.ceil(column.lower), int(column.upper)))
    kinds = (int, float, np.int64, np.float64)
    values = drawn(name, data.draw(st.sampled_from(kinds))(value))
    assert (values == value).all()


@pytest.mark.parametrize("name", ["real", "pounds", "few", "many"])
def test_shares_of_cells_are_the_lengths_that_are_kept(name):
    column, grid = COLUMNS[name], GRIDS[list(COLUMNS).index(name)]
    middle = (column.lower + column.upper) / 2
    below, above = (parsed(name, ends).kept for ends in ((None, middle), (middle, None)))
    whole = parsed(name, (None, None)).kept
    np.testing.assert_allclose(whole, 1.0)
    both = below + above
    assert (both > 0.99).all()
    assert both.sum() <= grid.n_cells + 1 + 1e-6


@pytest.mark.parametrize("name", TIMES)
@settings(max_examples=30, deadline=None)
@given(data=st.data())
def test_times_lie_in_the_interval(name, data):
    column = TIMES[name]
    zone = "Europe/Rome" if column.dtype == ROME else None
    moments = st.datetimes(datetime(2023, 11, 1), datetime(2025, 2, 1))
    lowest, highest = data.draw(moments), data.draw(moments)
    first, last = (pd.Timestamp(end).floor("h") for end in (lowest, highest))
    if zone:
        first, last = (
            end.tz_localize(zone, ambiguous=True, nonexistent="shift_forward")
            for end in (first, last)
        )
    wanted = data.draw(st.sampled_from([str, pd.Timestamp, lambda end: end.to_pydatetime()]))
    tick = "s" if name == "second" else "h" if name == "hour" else "D"
    start, stop = (pd.Timestamp(day, tz=zone) for day in ("2024-01-01", "2024-12-31"))
    if max(first, start).ceil(tick, ambiguous=True) > min(last, stop):
        with pytest.raises(ValueError, match="lies in the interval"):
            parsed(name, (wanted(first), wanted(last)))
        return
    values = drawn(name, (wanted(first), wanted(last)))
    assert (values >= first).all()
    assert (values <= last).all()
    # Ticks of the column, and not times between two.
    assert column.from_unit(column.to_unit(values)).equals(values)


def test_days_may_be_given_in_many_ways():
    for day in ("2024-03-05", date(2024, 3, 5), datetime(2024, 3, 5), np.datetime64("2024-03-05")):
        assert (drawn("day", day) == pd.Timestamp("2024-03-05")).all()
        values = drawn("second", (day, day))
        assert (values == pd.Timestamp("2024-03-05")).all()
    assert drawn("day", (None, "2024-01-01")).nunique() == 1
    assert drawn("day", ("2024-12-30", None)).nunique() == 2
    values = drawn("day", ("2024-03-05T12:00", "2024-03-07T12:00"))  # between two ticks
    assert sorted(values.dt.day.unique()) == [6, 7]
    utc = drawn("hour", ("2024-07-01T00:00+00:00", "2024-07-01T00:00+00:00"))
    assert utc.nunique() == 1
    assert utc[0] == pd.Timestamp("2024-07-01T02:00", tz="Europe/Rome")


# --- categories and missing values --------------------------------------------------------------


DAYS = [pd.Timestamp(day) for day in ("2024-01-01", "2024-12-31")]
NOTHING = [None, pd.NA, pd.NaT, math.nan, np.datetime64("NaT")]
CLOCKS = [pd.Timestamp(day, tz="Europe/Rome") for day in ("2024-03-31", "2024-10-27")]


@pytest.mark.parametrize(
    ("name", "wanted", "expected"),
    [
        *(("colour", one, {"blue"}) for one in ("blue", {"blue"}, np.array(["blue"]))),
        *(("colour", some, {"red", "green"}) for some in (["red", "green"], ("red", "green"))),
        ("colour", pd.Series(["blue", "blue"]), {"blue"}),
        *(("grade", two, {2.0}) for two in (2, 2.0, np.float64(2))),
        ("grade", [1, 3], {1.0, 3.0}),
        ("grade", (1, 2), {1.0, 2.0}),
        ("grade", (2.0, None), {2.0, 3.0}),
        ("grade", (None, None), {1.0, 2.0, 3.0}),
        ("grade", (3, 3), {3.0}),
        ("other", "rest", {"rest"}),
        *(("flag", truth, {True}) for truth in (True, np.True_, 1, [True])),
        ("flag", [True, False], {True, False}),
        ("tall", (None, None), {"S", "M"}),  # what takes all others has no place in the order
        ("tall", ("M", "huge"), {"M", "huge"}),
        ("few", [30, 31], {30, 31}),
        ("few", {90, 0}, {0, 90}),
        ("few", range(2, 5), {2, 3, 4}),
        *(("few", seven, {7}) for seven in (np.array([7.0]), np.array(7), pd.Series([7, 7]))),
        ("day", ["2024-01-01", date(2024, 12, 31)], set(DAYS)),
        ("local day", ["2024-03-31", "2024-10-27"], set(CLOCKS)),
        # Missing values too.
        *((name, nothing, {None}) for name in ("gaps", "short", "second") for nothing in NOTHING),
        ("grade", [None, 2], {None, 2.0}),
        ("grade", [math.nan, pd.NA], {None}),
        ("flag", [pd.NA, True], {None, True}),
        ("spare", [None, 3, 4], {None, 3, 4}),
        ("spare", np.array([math.nan, 5.0]), {None, 5}),
    ],
)
def test_values_are_those_that_are_listed(name, wanted, expected):
    assert {None if pd.isna(value) else value for value in drawn(name, wanted)} == expected


@pytest.mark.parametrize(
    ("conditions", "error", "message"),
    [
        ({"size": 3}, ValueError, "conditions names 'size'; the columns are 'few', 'many'"),
        ([("few", 3)], TypeError, "must be a mapping from names of columns to values, got list"),
        ({"colour": "mauve"}, ValueError, "'colour' cannot be 'mauve'; its categories are 'red'"),
        ({"colour": []}, ValueError, "The condition on 'colour' lists no value"),
        *(
            ({name: nothing}, ValueError, f"Values of '{name}' are never missing")
            for name in ("few", "real", "day", "colour")
            for nothing in (None, [None])
            if (name, nothing) != ("real", [None])
        ),
        ({"grade": True}, ValueError, "'grade' cannot be True; its categories are 1, 2, 3"),
        ({"grade": (1, 4)}, ValueError, "'grade' cannot be 4"),
        ({"grade": (3, 1)}, ValueError, "No category of 'grade' .* the first comes after the last"),
        ({"flag": "yes"}, ValueError, "'flag' cannot be 'yes'; its categories are False, True"),
        ({"flag": [[]]}, ValueError, r"'flag' cannot be \[\]"),
        ({"other": "b"}, ValueError, "'other' cannot be 'b'; its categories are 'a', 'rest'"),
        ({"few": (1, 2, 3)}, ValueError, r"must be one value or a tuple \(smallest, largest\)"),
        *(
            ({name: listed}, ValueError, f"'{name}' is a scale with too many values for a list")
            for name, listed in (("many", [1, 2]), ("real", [1.0]), ("second", ["2024-02-01"]))
        ),
        *(
            ({"few": ends}, ValueError, "the smallest value that it allows exceeds the largest")
            for ends in ((5, 4), (40.5, 40.2), (120, 110))
        ),
        *(({"few": value}, ValueError, "has bounds 0 and 90") for value in (91, [1, 91])),
        *(({"few": v}, ValueError, "no integer lies in it") for v in (1.5, (30.2, 30.8))),
        *(
            ({"few": value}, ValueError, "must be a number .True and False are no numbers")
            for value in (True, np.True_, (False, 3), [True], "3", (math.nan, 3), {"low": 3})
        ),
        *(({name: v}, ValueError, "No value of") for name, v in (("few", math.inf), ("real", 8))),
        ({"day": ("2024-03-02", "2024-03-01")}, ValueError, "the smallest value .* exceeds"),
        ({"day": "2024-03-05T12:00"}, ValueError, "no value of the resolution 'D'"),
        ({"day": "2024-03-05T00:00+01:00"}, ValueError, "without an offset from UTC"),
        ({"day": "2031-01-01"}, ValueError, "No value of 'day'"),
        *(
            ({"day": value}, ValueError, "'day' must be a date or time")
            for value in (True, 19_800, 3.5j, "NaT", "yesterday, perhaps")
        ),
    ],
)
def test_errors_say_what_is_wrong(conditions, error, message):
    with pytest.raises(error, match=message):
        parse_conditions(conditions, GRIDS)
