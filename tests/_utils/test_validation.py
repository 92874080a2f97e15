"""Validation speaks of shapes and types, and never quotes a value."""

import datetime
import decimal
import warnings

import numpy as np
import pandas as pd
import polars as pl
import pytest
from scipy import sparse
from sklearn.base import BaseEstimator

from skdpot._utils.validation import all_or_nothing, encode_labels, validate_rows, validate_targets

SECRET, NUMBER = "SECRET-8841", 123456.789

BAD_ROWS = {
    "one dimension": (np.array([NUMBER, 1.0]), "Reshape your data"),
    "a number": (NUMBER, "Reshape your data"),
    "a series": (pd.Series([NUMBER, 1.0]), "2-dimensional container"),
    "three dimensions": (np.full((2, 2, 2), NUMBER), "dim 3"),
    "complex": (np.array([[NUMBER + 1j], [2.0]]), "Complex data not supported"),
    "complex objects": (
        np.array([[NUMBER + 1j], [2.0]], dtype=object),
        "cannot be read as numbers|Complex",
    ),
    "strings": ([[SECRET, "b"], ["c", "d"]], "cannot be read as numbers"),
    "string array": (np.array([[SECRET], ["x"]]), "cannot be read as numbers"),
    "bytes": (np.array([[SECRET.encode()], [b"x"]]), "cannot be read as numbers"),
    "mixed objects": (np.array([[SECRET, 1.0]], dtype=object), "cannot be read as numbers"),
    "dictionaries": (np.array([[{SECRET: 1}], [2]], dtype=object), "cannot be read as numbers"),
    "categories": (pd.DataFrame({"a": pd.Categorical([SECRET, "x"])}), "cannot be read as numbers"),
    "text column": (pd.DataFrame({"a": [SECRET, "x"]}), "cannot be read as numbers"),
    "missing": (pd.DataFrame({"a": [pd.NA, NUMBER]}), "cannot be read as numbers|NaN"),
    "periods": (
        pd.DataFrame({"a": pd.period_range("2020-01-01", periods=2)}),
        "cannot be read as numbers",
    ),
    "dates": (np.array([[datetime.date(1988, 4, 1)]], dtype=object), "cannot be read as numbers"),
    **{
        f"times, {name}": (table, "dates, times or durations")
        for name, table in {
            "numpy": np.array([["1988-04-01"], ["NaT"]], dtype="datetime64[D]"),
            "durations": np.array([[1988], [2]], dtype="timedelta64[s]"),
            "pandas": pd.DataFrame({"a": pd.to_datetime(["1988-04-01", None])}),
            "pandas, zone": pd.DataFrame({"a": pd.to_datetime(["1988-04-01"], utc=True)}),
            "polars": pl.DataFrame({"a": [datetime.date(1988, 4, 1), None]}),
            "polars, mixed": pl.DataFrame({"b": 1.0, "a": [datetime.datetime(1988, 4, 1)]}),
        }.items()
    },
    "huge integers": ([[10**400], [1]], "cannot be read as numbers|too large"),
    "ragged": ([[NUMBER], [1.0, 2.0]], "inhomogeneous"),
    "NaN": ([[np.nan, NUMBER], [1.0, 2.0]], "contains NaN.* imputer that learns .* not be private"),
    "infinity": ([[np.inf, NUMBER], [1.0, 2.0]], "infinity"),
    "no feature": (np.empty((3, 0)), "0 feature"),
    "no row": (np.empty((0, 3)), "0 sample"),
    "sparse": (sparse.csr_matrix([[NUMBER, 0.0]]), "dense data is required"),
    "mixed names": (pd.DataFrame({"a": [NUMBER], 1: [2.0]}), "[Ff]eature names"),
}


def assert_nothing_is_quoted(text, call, *args, **options):
    with warnings.catch_warnings(record=True) as shown:
        warnings.simplefilter("always")
        with pytest.raises((ValueError, TypeError), match=text) as refusal:
            call(*args, **options)
    # A logger writes the chain of causes and contexts too.
    said, error = [str(warning.message) for warning in shown], refusal.value
    while error is not None:
        said += [str(error), repr(error)]
        error = error.__cause__ or error.__context__
    for hidden in (SECRET, "123456", "1.23456", "1988"):
        assert not any(hidden in text for text in said)


@pytest.mark.parametrize("name", BAD_ROWS)
def test_no_value_is_quoted(name):
    X, text = BAD_ROWS[name]
    assert_nothing_is_quoted(text, validate_rows, BaseEstimator(), X, reset=True)


def test_other_numbers_are_read_as_numbers():
    for X in ([[decimal.Decimal("1.5")]], [[True]], [[np.float16(1.5)]], [["1.5"]][:0] or [[2]]):
        assert validate_rows(BaseEstimator(), X, reset=True).dtype == np.float64
    assert validate_rows(BaseEstimator(), np.float32([[1]]), reset=True).dtype == np.float32


def test_other_columns_are_refused_by_name_or_number():
    estimator = BaseEstimator()
    validate_rows(estimator, pd.DataFrame({"a": [1.0], "b": [2.0]}), reset=True)
    assert list(estimator.feature_names_in_) == ["a", "b"]
    with pytest.raises(ValueError, match="feature names should match"):
        validate_rows(estimator, pd.DataFrame({"a": [1.0], "c": [2.0]}), reset=False)
    with pytest.raises(ValueError, match="1 sample"):
        validate_rows(BaseEstimator(), [[1.0]], reset=True, min_samples=2)
    unnamed = BaseEstimator()
    validate_rows(unnamed, np.zeros((2, 2)), reset=True)
    with pytest.raises(ValueError, match="3 features"):
        validate_rows(unnamed, np.zeros((1, 3)), reset=False)


@pytest.mark.parametrize("name", [name for name in BAD_ROWS if name.startswith("times")])
def test_targets_are_no_times_either(name):
    """A missing date would be read as the number -9.2e18, which is finite."""
    X, _ = BAD_ROWS[name]
    with pytest.raises(ValueError, match="y must hold numbers"):
        validate_targets(X["a"] if hasattr(X, "columns") else X[:, 0], len(X))


GOOD_LABELS = {
    "integers": [3, 1, 3],
    "whole floats": [3.0, 1.0, 3.0],
    "booleans": [True, False, True],
    "strings": ["b", "a", "b"],
    "objects": np.array(["b", "a", "b"], dtype=object),
    "categories": pd.Series(pd.Categorical(["b", "a", "b"])),
    "pandas strings": pd.Series(["b", "a", "b"], dtype="string"),
    "pandas integers": pd.Series([3, 1, 3], dtype="Int64"),
    "dates": pd.to_datetime(["2021-01-01", "2020-01-01", "2021-01-01"]),
}


@pytest.mark.parametrize("name", GOOD_LABELS)
def test_labels_become_positions_of_sorted_classes(name):
    codes, classes = encode_labels(GOOD_LABELS[name], 3)
    np.testing.assert_array_equal(codes, [1, 0, 1])
    assert len(classes) == 2
    assert classes[0] < classes[1]


def test_declared_classes_may_be_more_than_those_that_occur():
    codes, classes = encode_labels(["b", "d"], 2, ["d", "c", "b", "a"])
    np.testing.assert_array_equal(codes, [1, 3])
    np.testing.assert_array_equal(classes, ["a", "b", "c", "d"])
    codes, _ = encode_labels([1.0, 0.0], 2, [0, 1])
    np.testing.assert_array_equal(codes, [1, 0])


BAD_LABELS = {
    "none": (None, {}, "requires y"),
    "another length": ([1, 2], {}, "2 labels for 3 rows"),
    "continuous": ([NUMBER, 0.5, 1.0], {}, "continuous"),
    "NaN": ([NUMBER, np.nan, 1.0], {}, "NaN"),
    "missing text": (np.array([SECRET, None, "a"], dtype=object), {}, "missing"),
    "missing in pandas": (pd.Series([SECRET, pd.NA, "a"], dtype="string"), {}, "missing"),
    "mixed": (np.array([SECRET, 1, 2], dtype=object), {}, "mixed"),
    "complex": ([NUMBER + 1j, 2, 3], {}, "unknown"),
    "two columns": ([[SECRET, "a"]] * 3, {}, r"shape \(3, 2\)"),
    "a scalar": (SECRET, {}, "shape|unknown"),
    "bytes": ([SECRET.encode()] * 3, {}, "unknown"),
    "undeclared": ([SECRET, "a", "a"], {"classes": ["a", "b"]}, "among the 2 declared"),
    "undeclared number": ([7, 123456, 1], {"classes": [1, 7]}, "among the 2 declared"),
    "longer than declared": (["a", "ab", SECRET], {"classes": ["a", "ab"]}, "among the 2"),
    "other kind": (["1", "7", "1"], {"classes": [1, 7]}, "among the 2 declared"),
}


@pytest.mark.parametrize("name", BAD_LABELS)
def test_bad_labels_are_refused_and_not_quoted(name):
    y, options, text = BAD_LABELS[name]
    assert_nothing_is_quoted(text, encode_labels, y, 3, **options)


def test_many_different_labels_cause_no_warning():
    """How many of the declared classes occur is private."""
    codes, _ = encode_labels(np.arange(60), 60, np.arange(100))
    np.testing.assert_array_equal(codes, np.arange(60))


def test_a_failed_block_leaves_the_estimator_as_it_was():
    estimator = BaseEstimator()
    estimator.kept, estimator.changed = 1, 1

    @all_or_nothing(estimator)
    def interrupted():
        estimator.changed, estimator.added = 2, 3
        del estimator.kept
        raise KeyboardInterrupt

    with pytest.raises(KeyboardInterrupt):
        interrupted()
    assert vars(estimator) == {"kept": 1, "changed": 1}
    with all_or_nothing(estimator):
        estimator.changed = 2
    assert estimator.changed == 2
