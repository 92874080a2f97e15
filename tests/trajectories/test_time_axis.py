"""Time stamps: what is one time, where it lies, what is refused."""

from datetime import UTC, date, datetime

import numpy as np
import pandas as pd
import pytest
from hypothesis import given
from hypothesis import strategies as st

from skdpot.trajectories.time_axis import TimeAxis, read_stamps

DAYS = np.array(["2020-01-01", "2020-01-02", "2020-01-05"], dtype="datetime64[D]")
IN_PARIS = pd.to_datetime(["2020-01-01 01:00", "2020-01-02 01:00", "2020-01-05 01:00"]).tz_localize(
    "Europe/Paris"
)


def axis_of(t, n_times=None):
    return TimeAxis.of_stamps(read_stamps(t, "t"), n_times)


BINNED = [0.0, 0.1, 0.1, 9.9, 10.0, 5.2]
# Stamps, number of times, the times, and to which of them stamps belong. A stamp on an edge belongs
# to the bin above, and empty bins are dropped.
AXES = {
    "stamps": ([3.0, 1.0, 1.0, 7.0, 3.0], None, [1, 3, 7], [3, 1, 1.9, 2.1, 7], [1, 0, 0, 1, 2]),
    "means of bins": (BINNED, 10, [0.2 / 3, 5.2, 9.95], BINNED, [0, 0, 0, 2, 2, 1]),
    "edges of bins": (BINNED, 10, [0.2 / 3, 5.2, 9.95], [4.9, 5, 8.9, 9], [0, 1, 1, 2]),
    "rounding": ([0.1 + 0.2, 0.3, 0.6, 0.1 * 6, 1.0], None, [0.3, 0.6, 1], [0.3, 0.6], [0, 1]),
    "one time": ([4.5, 4.5], None, [4.5], [4.5], [0]),
    "one time, bins": ([4.5, 4.5], 7, [4.5], [4.5], [0]),
}  # fmt: skip


@pytest.mark.parametrize("name", AXES)
def test_what_is_one_time_and_where_it_lies(name):
    t, n_times, times, asked, positions = AXES[name]
    axis = axis_of(t, n_times)
    np.testing.assert_allclose(axis.stamps, times)
    np.testing.assert_array_equal(axis.positions(np.array(asked, float)), positions)
    unit = (axis.stamps - axis.stamps[0]) / max(np.ptp(axis.stamps), 1e-300)
    for found in (axis.unit_knots, axis.to_unit(axis.stamps)):
        np.testing.assert_allclose(found, unit)
    np.testing.assert_allclose(axis.spacings, np.diff(unit))
    with pytest.raises(ValueError, match=f"fitted time, {min(t)} and {max(t)}"):
        axis.to_unit(max(t) + 0.1)


@given(
    st.lists(st.integers(-1000, 1000), min_size=1, max_size=80),
    st.none() | st.integers(1, 30),
    st.integers(-30, 30),
)
def test_an_axis_holds_every_stamp_once(values, n_times, exponent):
    t = np.array(values) / 8
    axis = axis_of(t, n_times)
    positions = axis.positions(t)
    counts = np.bincount(positions, minlength=axis.n_times)
    assert counts.min() > 0
    assert np.all(np.diff(axis.knots) > 0)
    assert len(axis.boundaries) == axis.n_times - 1 == len(axis.spacings)
    assert axis.n_times <= (n_times or 50)
    # Later stamps never belong to earlier knots, and each knot is among its own stamps.
    assert np.all(np.diff(positions[np.argsort(t)]) >= 0)
    np.testing.assert_allclose(np.bincount(positions, t) / counts, axis.knots, atol=1e-9)
    # Units do not matter, up to rounding that a power of two does not make.
    scaled = axis_of(t * 2.0**exponent, n_times)
    np.testing.assert_allclose(scaled.unit_knots, axis.unit_knots)
    np.testing.assert_array_equal(scaled.positions(t * 2.0**exponent), positions)


def test_a_subset_takes_the_stamps_that_are_nearest():
    axis = axis_of([0.0, 1.0, 2.0, 10.0]).subset(np.array([0, 2, 3]))
    np.testing.assert_array_equal(axis.stamps, [0, 2, 10])
    np.testing.assert_array_equal(axis.positions(np.array([0.9, 1.1, 5.9, 6.1])), [0, 1, 1, 2])


# Times that are asked for -------------------------------------------------------------------


def test_times_between_the_first_stamp_and_the_first_knot_are_the_knots():
    axis = axis_of([0.0, 1.0, 4.0, 5.0], 2)
    np.testing.assert_array_equal(axis.stamps, [0.5, 4.5])
    np.testing.assert_array_equal(axis.to_unit([0.0, 0.5, 4.5, 5.0]), [0, 0, 1, 1])


@given(st.lists(st.integers(0, 40), min_size=1, max_size=40), st.sampled_from([0.0, 1.0, 1e9]))
def test_no_time_is_without_stamps(steps, offset):
    """Neighbouring floating-point numbers have no other number between them."""
    t = offset + np.array(steps) * np.spacing(max(offset, 1e-300))
    for n_times in (None, 1, 7):
        axis = axis_of(t, n_times)
        assert np.unique(axis.positions(t)).size == axis.n_times


@given(st.lists(st.integers(0, 10**18), min_size=2, max_size=60), st.integers(1, 12))
def test_the_knots_themselves_are_found_exactly(nanoseconds, n_times):
    """Also after the rounding of means of dates to nanoseconds."""
    t = np.datetime64("1990-01-01", "ns") + np.array(nanoseconds, dtype="timedelta64[ns]")
    axis = axis_of(t, n_times)
    found = axis.to_unit(axis.stamps)
    # Knots nearer than rounding, in seconds since the first, are one.
    tolerance = 4e-9 if np.diff(axis.knots).min(initial=1.0) < 1e-6 else 0.0
    np.testing.assert_allclose(found, axis.unit_knots, rtol=0, atol=tolerance)


# Dates --------------------------------------------------------------------------------------

THE_SAME_DATES = {
    "days": DAYS,
    "microseconds": DAYS.astype("datetime64[us]"),
    "series": pd.Series(DAYS),
    "index": pd.DatetimeIndex(DAYS),
    "series with a zone": pd.Series(IN_PARIS),
    "index with a zone": IN_PARIS,
    "dates of Python": [date(2020, 1, 1), date(2020, 1, 2), date(2020, 1, 5)],
    "moments of Python": [datetime(2020, 1, day, tzinfo=UTC) for day in (1, 2, 5)],
    "moments in other zones": list(IN_PARIS),
    "objects": np.array(list(DAYS), dtype=object),
}


@pytest.mark.parametrize("name", THE_SAME_DATES)
def test_dates_are_read_whatever_holds_them(name):
    stamps = read_stamps(THE_SAME_DATES[name], "t", 3)
    assert stamps.dtype == np.dtype("datetime64[ns]")
    np.testing.assert_array_equal(stamps, DAYS)
    axis = TimeAxis.of_stamps(stamps, None)
    np.testing.assert_array_equal(axis.stamps, DAYS)
    np.testing.assert_allclose(axis.unit_knots, [0, 0.25, 1])
    given = THE_SAME_DATES[name]
    one = given.iloc[1] if isinstance(given, pd.Series) else given[1]
    np.testing.assert_allclose(axis.to_unit(one), [0.25])


# What is refused ----------------------------------------------------------------------------

TEXTS = "must hold numbers or dates"
BAD = {
    "texts": (["2020-01-01", "2020-01-02"], TEXTS),
    "numbers as text": (["1", "2"], TEXTS),
    "text among objects": (np.array(["1", 2], dtype=object), TEXTS),
    "bytes": (np.array([b"1", b"2"]), TEXTS),
    "dictionaries": ([{}, {}], TEXTS),
    "dates and numbers": (np.array([date(2020, 1, 1), 3], dtype=object), TEXTS),
    "durations": (np.array([1, "NaT"], dtype="timedelta64[D]"), TEXTS),
    "periods": (pd.period_range("2020-01", periods=2, freq="M"), TEXTS),
    "complex": (np.array([1 + 1j, 2]), "Complex data not supported|" + TEXTS),
    "NaN": ([1.0, np.nan], "contains NaN"),
    "infinite": ([1.0, np.inf], "contains NaN, infinity"),
    "missing integer": (pd.array([1, None], dtype="Int64"), "contains NaN|" + TEXTS),
    "missing date": (pd.Series(pd.to_datetime(["2020-01-01", None])), "missing date"),
    "nanoseconds of an epoch": ([1_700_000_000_000_000_001, 0], "does not resolve"),
    "missing moment": ([datetime(2020, 1, 1), None], "missing date"),
    "beyond nanoseconds": (np.array(["3000-01-01", "2000-01-01"], "M8[D]"), "1678 to 2262"),
    "nobody's": ([None, None], "missing date|" + TEXTS),
    "None": (None, "the target y is None"),
    "two columns": (np.ones((2, 2)), "should be a 1d array"),
    "too long": ([1, 2, 3], "2 rows and 3 time stamps in t"),
}


@pytest.mark.parametrize("name", BAD)
def test_what_is_no_time_is_refused(name):
    given, message = BAD[name]
    with pytest.raises(ValueError, match=message):
        read_stamps(given, "t", 2)


@pytest.mark.parametrize(
    ("t", "message"), [([-1.7e308, 1.7e308], "too far apart"), ([], "at least one time")]
)
def test_stamps_without_an_axis_are_refused(t, message):
    with pytest.raises(ValueError, match=message):
        axis_of(t)
