"""Conditions: what is asked for is what the cells and the values satisfy, or an error says why."""

import math
from datetime import date, datetime

import numpy as np
import pandas as pd
import pytest
from hypothesis import assume, given, settings
from hypothesis import strategies as st

from skdpot.preprocessing import CategoricalColumn, NumericColumn
from skdpot.tables.conditions import parse_conditions
from tests.tables.table_cases import COLUMNS as KNOWN
from tests.tables.table_cases import ROME

COLUMNS = KNOWN | {
    "log integers": NumericColumn("c", lower=0, upper=10**5, log_scale=True, dtype="int64"),
    "colour": CategoricalColumn("c", categories=["red", "green", "blue"], dtype="object"),
}
COLUMNS = {name: column.replace(name=name) for name, column in COLUMNS.items()}
GRIDS = tuple(column.grid() for column in COLUMNS.values())
PLACES = {name: place for place, name in enumerate(COLUMNS)}
NUMBERS = [name for name, column in COLUMNS.items() if column.kind == "numeric"]
TIMES = [name for name, column in COLUMNS.items() if column.kind == "datetime"]


def parsed(name, wanted):
    found = parse_conditions({name: wanted}, GRIDS)
    assert list(found) == [PLACES[name]]
    return found[PLACES[name]]


def drawn(name, wanted, seed=0):
    """Values as `sample` draws them from the cells that a condition keeps."""
    grid, rng = GRIDS[PLACES[name]], np.random.default_rng(seed)
    condition = parsed(name, wanted)
    assert condition.kept.shape == (grid.size,)
    assert condition.kept.min() >= 0
    assert 0 < condition.kept.max() <= 1 + 1e-9
    cells = np.repeat(np.flatnonzero(condition.kept), 20)
    return condition.enforce(grid.values(cells, rng, condition.within))


# --- scales -------------------------------------------------------------------------------------


def exists(column, lowest, highest):
    """Whether a value lies in the interval; None is no limit."""
    lowest = max(column.lower, column.lower if lowest is None else lowest)
    highest = min(column.upper, column.upper if highest is None else highest)
    if not column.integer or lowest > highest:
        return lowest <= highest
    return math.ceil(lowest) <= math.floor(highest)


@pytest.mark.parametrize("name", NUMBERS)
@settings(max_examples=40, deadline=None)
@given(data=st.data())
def test_numbers_lie_in_the_interval(name, data):
    column = COLUMNS[name]
    length = column.upper - column.lower
    ends = st.one_of(
        st.sampled_from([None, -math.inf, math.inf, 0, 0.5, 7]),
        st.floats(column.lower - 0.2 * length, column.upper + 0.2 * length),
        st.integers(0, 256).map(lambda k: column.lower + k / 256 * length),
        st.integers(math.ceil(column.lower), max(math.ceil(column.lower), int(column.upper))),
    )
    lowest, highest = data.draw(ends), data.draw(ends)
    wanted = (lowest, highest)
    if lowest is not None and data.draw(st.booleans()):  # a single number
        wanted = highest = lowest
    if not exists(column, lowest, highest):
        with pytest.raises(ValueError, match=f"No value of '{name}' lies in"):
            parsed(name, wanted)
        return
    values = drawn(name, wanted, data.draw(st.integers(0, 99)))
    assert not values.isna().any()
    exact = [float(value) for value in values]
    if column.dtype == "float32":
        low = max(column.lower, -math.inf if lowest is None else lowest)
        high = min(column.upper, math.inf if highest is None else highest)
        assume(np.float32(low) < np.float32(high))  # else nothing need be inside
    assert lowest is None or min(exact) >= lowest
    assert highest is None or max(exact) <= highest
    assert str(values.dtype) == column.dtype


@pytest.mark.parametrize("name", ["floats", "log floats", "few integers", "integers"])
def test_shares_of_cells_are_the_lengths_that_are_kept(name):
    column, grid = COLUMNS[name], GRIDS[PLACES[name]]
    middle = math.floor((column.lower + column.upper) / 2)
    below, above = (parsed(name, ends).kept for ends in ((None, middle), (middle, None)))
    np.testing.assert_allclose(parsed(name, (None, None)).kept, 1.0)
    assert (below + above > 0.99).all()
    assert (below + above).sum() <= grid.n_cells + 1 + 1e-6


@pytest.mark.parametrize("name", TIMES)
@settings(max_examples=30, deadline=None)
@given(data=st.data())
def test_times_lie_in_the_interval(name, data):
    column = COLUMNS[name]
    zone = "Europe/Rome" if column.dtype == ROME else None
    moments = st.datetimes(datetime(2023, 11, 1), datetime(2025, 2, 1))
    first, last = (pd.Timestamp(data.draw(moments)).floor("h") for _ in range(2))
    if zone:
        first, last = (
            end.tz_localize(zone, ambiguous=True, nonexistent="shift_forward")
            for end in (first, last)
        )
    wanted = data.draw(st.sampled_from([str, pd.Timestamp, lambda end: end.to_pydatetime()]))
    start, stop = (pd.Timestamp(day, tz=zone) for day in ("2024-01-01", "2024-12-31"))
    if max(first, start).ceil(column.resolution, ambiguous=True) > min(last, stop):
        with pytest.raises(ValueError, match="lies in the interval"):
            parsed(name, (wanted(first), wanted(last)))
        return
    values = drawn(name, (wanted(first), wanted(last)))
    assert (values >= first).all()
    assert (values <= last).all()
    # Ticks of the column, and not times between two.
    assert column.from_unit(column.to_unit(values)).equals(values)


# --- one value, several and missing ones --------------------------------------------------------


def days(*texts, zone=None):
    return {pd.Timestamp(text, tz=zone) for text in texts}


NOTHING = [None, pd.NA, pd.NaT, math.nan, np.datetime64("NaT")]
CLOCKS = ["2024-03-31", "2024-10-27"]


@pytest.mark.parametrize(
    ("name", "wanted", "expected"),
    [
        *(("colour", one, {"blue"}) for one in ("blue", {"blue"}, np.array(["blue"]))),
        *(("colour", some, {"red", "green"}) for some in (["red", "green"], ("red", "green"))),
        ("colour", pd.Series(["blue", "blue"]), {"blue"}),
        *(("ordered numbers", two, {2.0}) for two in (2, 2.0, np.float64(2))),
        ("ordered numbers", [1, 3], {1.0, 3.0}),
        ("ordered numbers", (1, 2), {1.0, 2.0}),
        ("ordered numbers", (2.0, None), {2.0, 3.0}),
        ("ordered numbers", (None, None), {1.0, 2.0, 3.0}),
        ("ordered numbers", (3, 3), {3.0}),
        ("others", "rest", {"rest"}),
        *(("truth, missing", truth, {True}) for truth in (True, np.True_, 1, [True])),
        ("truth, missing", [True, False], {True, False}),
        ("ordered, others", (None, None), {"S", "M"}),  # what takes all others has no place in it
        ("ordered, others", ("M", "huge"), {"M", "huge"}),
        ("few integers", [30, 31], {30, 31}),
        ("few integers", {90, 0}, {0, 90}),
        ("few integers", range(2, 5), {2, 3, 4}),
        *(("few integers", seven, {7}) for seven in (np.array([7.0]), np.array(7))),
        *(
            (name, way(day), days("2024-03-05"))
            for name, way in (("days", lambda day: day), ("seconds", lambda day: (day, day)))
            for day in (
                *("2024-03-05", date(2024, 3, 5), datetime(2024, 3, 5)),
                np.datetime64("2024-03-05"),
            )
        ),
        ("days", (None, "2024-01-01"), days("2024-01-01")),
        ("days", ("2024-12-30", None), days("2024-12-30", "2024-12-31")),
        # Between two ticks.
        ("days", ("2024-03-05T12:00", "2024-03-07T12:00"), days("2024-03-06", "2024-03-07")),
        ("hours of a zone", "2024-07-01T00+00:00", days("2024-07-01T02", zone="Europe/Rome")),
        ("days", ["2024-01-01", date(2024, 12, 31)], days("2024-01-01", "2024-12-31")),
        ("days of a zone", CLOCKS, days(*CLOCKS, zone="Europe/Rome")),
        ("durations", "36 h", {pd.Timedelta("36 h")}),
        # Missing values too.
        *(
            (name, nothing, {None})
            for name in ("integers, missing", "short floats, missing", "seconds")
            for nothing in NOTHING
        ),
        ("ordered numbers", [None, 2], {None, 2.0}),
        ("ordered numbers", [math.nan, pd.NA], {None}),
        ("truth, missing", [pd.NA, True], {None, True}),
        ("few integers, missing", [None, 3, 4], {None, 3, 4}),
        ("few integers, missing", np.array([math.nan, 5.0]), {None, 5}),
    ],
)  # fmt: skip
def test_values_are_those_that_are_listed(name, wanted, expected):
    assert {None if pd.isna(value) else value for value in drawn(name, wanted)} == expected


@pytest.mark.parametrize(
    ("conditions", "error", "message"),
    [
        ({"size": 3}, ValueError, "conditions names 'size'; the columns are 'few integers', 'int"),
        ([("days", 3)], TypeError, "must be a mapping from names of columns to values, got list"),
        ({"colour": "mauve"}, ValueError, "'colour' cannot be 'mauve'; its categories are 'red'"),
        ({"colour": []}, ValueError, "The condition on 'colour' lists no value"),
        *(
            ({name: nothing}, ValueError, f"Values of '{name}' are never missing")
            for name in ("few integers", "days", "colour")
            for nothing in (None, [None])
        ),
        ({"ordered numbers": True}, ValueError, "cannot be True; its categories are 1, 2, 3"),
        ({"ordered numbers": (1, 4)}, ValueError, "'ordered numbers' cannot be 4"),
        ({"ordered numbers": (3, 1)}, ValueError, "No category .* first comes after the last"),
        ({"truth": "so"}, ValueError, "'truth' cannot be 'so'; its categories are False, True"),
        ({"truth": [[]]}, ValueError, r"'truth' cannot be \[\]"),
        ({"others": "b"}, ValueError, "'others' cannot be 'b'; its categories are 'x', 'y', 'r"),
        ({"integers": (1, 2, 3)}, ValueError, r"must be one value or a tuple \(smallest, largest"),
        *(
            ({name: listed}, ValueError, f"'{name}' is a scale with too many values for a list")
            for name, listed in (("integers", [1, 2]), ("floats", [1.0]), ("seconds", CLOCKS))
        ),
        *(
            ({"few integers": v}, ValueError, "the smallest value that it allows exceeds the larg")
            for v in ((5, 4), (40.5, 40.2), (120, 110))
        ),
        *(({"few integers": v}, ValueError, "has bounds -3 and 90") for v in (91, [1, 91])),
        *(({"few integers": v}, ValueError, "no integer lies in it") for v in (1.5, (30.2, 30.8))),
        *(
            ({"few integers": v}, ValueError, "must be a number .True and False are no numbers")
            for v in (True, np.True_, (False, 3), [True], "3", (math.nan, 3), {"low": 3})
        ),
        *(({name: math.inf}, ValueError, "No value of") for name in ("integers", "floats")),
        ({"days": ("2024-03-02", "2024-03-01")}, ValueError, "the smallest value .* exceeds"),
        ({"days": "2024-03-05T12:00"}, ValueError, "no value of the resolution 'D'"),
        ({"days": "2024-03-05T00:00+01:00"}, ValueError, "without an offset from UTC"),
        ({"days": "2031-01-01"}, ValueError, "No value of 'days'"),
        *(
            ({"days": value}, ValueError, "'days' must be a date or time")
            for value in (True, 19_800, 3.5j, "NaT", "yesterday, perhaps")
        ),
        ({"durations": 3}, ValueError, "'durations' must be a duration"),
    ],
)  # fmt: skip
def test_errors_say_what_is_wrong(conditions, error, message):
    with pytest.raises(error, match=message):
        parse_conditions(conditions, GRIDS)
