"""Selected categories: what a plan costs, what is shown, and what is not."""

import math
from dataclasses import replace

import numpy as np
import pandas as pd
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from skdpot._utils.streams import SecretStream
from skdpot.exceptions import CalibrationError
from skdpot.release.gate import record_releases
from skdpot.tables.category_selection import plan_category_selection, select_categories

SECRET = SecretStream  # without a seed: the operating system's entropy


def plan_for(n_samples, mu=1.0, delta=1e-6, n_columns=1):
    return plan_category_selection(n_samples, mu=mu, delta=delta, n_columns=n_columns)


# The plan.


@settings(max_examples=60, deadline=None)
@given(st.floats(1e-3, 20.0), st.floats(1e-15, 0.1), st.integers(1, 60))
def test_the_threshold_is_the_lowest_that_its_delta_admits(mu, delta, n_columns):
    event = plan_for(1000, mu, delta, n_columns).event
    assert event.delta_tail <= delta
    lower = event.threshold - event.lattice
    if lower >= 1 + event.sigma + event.lattice:
        assert replace(event, threshold=lower).delta_tail > delta


@pytest.mark.parametrize(
    ("changes", "message"),
    [
        ({"n_samples": 0}, "`n_samples` must be an integer >= 1"),
        ({"n_columns": True}, "`n_columns` must be an integer >= 1"),
        ({"mu": 0.0}, "`mu` must be > 0"),
        ({"mu": math.nan}, "`mu` must be > 0"),
        ({"mu": 1000.0}, "protects nothing"),
        ({"delta": 0.0}, r"`delta` must lie in \(0, 1\)"),
        ({"delta": math.nan}, r"`delta` must lie in \(0, 1\)"),
    ],
)
def test_a_plan_refuses(changes, message):
    with pytest.raises((ValueError, CalibrationError), match=message):
        plan_for(**({"n_samples": 10} | changes))


# What is shown.


def test_counts_of_one_are_shown_as_often_as_the_event_says():
    """400,000 of them, so that a tail that is wrong by 6 % shows: 5.5 standard errors (4e-8)."""
    n = 400_000
    plan = plan_for(n, mu=0.3, delta=0.02)
    categories, counts = select_categories(np.arange(n), plan, SecretStream(1))
    assert len(categories) == pytest.approx(
        n * plan.event.delta_tail, abs=5.5 * math.sqrt(n * plan.event.delta_tail)
    )
    assert counts.min() > plan.event.threshold
    assert counts.min() == pytest.approx(plan.event.threshold + plan.event.lattice)


def test_the_order_of_the_records_makes_no_difference():
    plan = plan_for(6000, mu=0.5)
    values = np.repeat(np.array(["b", "a", "c", 3, 2.5, True], dtype=object), 1000)
    expected = select_categories(values, plan, SecretStream(3))
    assert expected[0] == (True, 2.5, 3, "a", "b", "c")
    for seed in range(5):
        shuffled = np.random.default_rng(seed).permutation(values)
        categories, counts = select_categories(shuffled, plan, SecretStream(3))
        assert list(map(repr, categories)) == list(map(repr, expected[0]))
        np.testing.assert_array_equal(counts, expected[1])


def test_equal_values_of_different_types_are_not_merged():
    """Which of 1 and True stood for both would tell which record came first."""
    plan = plan_for(6000, mu=math.inf)
    for values in ([1, True, 1.0], [True, 1.0, 1], [1.0, 1, True]):
        categories, counts = select_categories(values * 10, plan, SECRET())
        assert [type(c) for c in categories] == [bool, float, int]
        assert counts.tolist() == [10.0] * 3
    for values in ([0.0, -0.0], [-0.0, 0.0], np.array([-0.0, 0.0])):
        (zero,), counts = select_categories(values, plan, SECRET())
        assert math.copysign(1.0, zero) == 1.0
        assert counts.tolist() == [2.0]
    values = [np.str_("a"), "a", np.int64(2), 2, np.float64(0.5), 0.5, np.bool_(True), True]
    categories, counts = select_categories(values, plan, SECRET())
    assert [type(c) for c in categories] == [bool, float, int, str]
    assert counts.tolist() == [2.0] * 4


@pytest.mark.parametrize(
    ("values", "expected"),
    [
        (np.array(["b", "a", "b"]), ("a", "b")),
        (np.array([3, 1, 3], dtype=np.uint8), (1, 3)),
        (np.array([True, False]), (False, True)),
        (np.array([0.5, np.nan, -1.0], dtype=np.float32), (-1.0, 0.5)),
        (pd.Series(["b", None, "a"], dtype="string"), ("a", "b")),
        (pd.Series(["b", np.nan, "a"], dtype="category"), ("a", "b")),
        (pd.Series([2, None, 1], dtype="Int64"), (1, 2)),
        (["b", None, float("nan"), pd.NA, pd.NaT, "a"], ("a", "b")),
        (("b", "a"), ("a", "b")),
        ([], ()),
        ([None, None], ()),
    ],
)
def test_columns_of_many_kinds_are_read_without_their_missing_values(values, expected):
    plan = plan_for(10, mu=math.inf)
    categories, counts = select_categories(values, plan, SECRET())
    assert categories == expected
    assert all(type(c) in (str, int, float, bool) for c in categories)
    assert counts.dtype == np.float64


@pytest.mark.parametrize(
    "values",
    [[b"bytes"], [("a", "b")], [["a"]], ["a", object()], np.array(["2020-01-01"], "datetime64[D]")],
)
def test_other_types_are_refused_by_type_and_not_by_value(values):
    with pytest.raises(TypeError, match="must be strings, integers, floats or booleans") as caught:
        select_categories(values, plan_for(10), SECRET())
    assert "2020" not in str(caught.value)
    assert "bytes'" not in str(caught.value)


@pytest.mark.parametrize("values", [np.array([["a"]]), ["a"] * 11, np.array("a")])
def test_other_shapes_are_refused(values):
    with pytest.raises(ValueError, match="one-dimensional|more values than the plan's 10"):
        select_categories(values, plan_for(10), SECRET())


# What is not told.


def test_only_what_is_shown_is_recorded():
    plan = plan_for(2000, mu=0.5)
    values = ["shown"] * 1000 + [f"hidden {i}" for i in range(1000)]
    with record_releases() as releases:
        categories, counts = select_categories(values, plan, SecretStream(4))
    (release,) = releases
    assert categories == ("shown",)
    assert release.value == list(zip(categories, counts, strict=True))
    assert set(release.facts) == {"plan"}
    assert "hidden" not in repr(plan) + repr(release)
