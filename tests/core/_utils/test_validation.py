"""Validation speaks of shapes and types, and never quotes a value."""

import datetime
import decimal
from functools import partial

import numpy as np
import pandas as pd
import polars as pl
import pytest
from sklearn.base import BaseEstimator

from skdpot._utils.labels import encode_labels, validate_targets
from skdpot._utils.parameters import all_or_nothing
from skdpot._utils.rows import _PUBLIC_TEXTS, validate_rows
from tests.contract.fuzz_harness import attempt
from tests.contract.fuzz_strategies import BAD_LABELS, FORMS, LABELS, NUMBER, PLAIN_FORMS, TEXT


@pytest.mark.parametrize("form", PLAIN_FORMS | FORMS)
def test_every_table_is_read_as_finite_numbers_or_refused_without_a_quotation(form):
    make = (PLAIN_FORMS | FORMS)[form]
    for value in (NUMBER, np.nan, -np.inf):
        table = make(np.full((4, 2), value))
        outcome = attempt(form, partial(validate_rows, BaseEstimator(), table, reset=True))
        if outcome.error is None:
            assert np.isfinite(outcome.value).all()
        assert outcome.error is None or form in FORMS or value != NUMBER


@pytest.mark.parametrize("kind", LABELS | BAD_LABELS)
def test_every_column_is_read_as_labels_or_refused_without_a_quotation(kind):
    outcome = attempt(kind, lambda: encode_labels((LABELS | BAD_LABELS)[kind](6), 6))
    assert outcome.error is None or kind in BAD_LABELS


TIMES = {
    "numpy": np.array([["1988-04-01"], ["NaT"]], dtype="datetime64[D]"),
    "durations": np.array([[1988], [2]], dtype="timedelta64[s]"),
    "pandas": pd.DataFrame({"a": pd.to_datetime(["1988-04-01", None])}),
    "pandas, zone": pd.DataFrame({"a": pd.to_datetime(["1988-04-01"], utc=True)}),
    "polars": pl.DataFrame({"a": [datetime.date(1988, 4, 1), None]}),
    "polars, mixed": pl.DataFrame({"b": 1.0, "a": [datetime.datetime(1988, 4, 1)]}),
}
TEXT_IN_ROWS = "cannot be read as numbers"
BAD_ROWS = {f"times, {name}": (table, "dates, times or dur") for name, table in TIMES.items()} | {
    "one dimension": (np.array([NUMBER, 1.0]), "Reshape your data"),
    "a series": (pd.Series([NUMBER, 1.0]), "2-dimensional container"),
    "three dimensions": (np.full((2, 2, 2), NUMBER), "dim > 2"),
    "complex": (np.array([[NUMBER + 1j], [2.0]]), "Complex data not supported"),
    "strings": ([[TEXT, "b"], ["c", "d"]], TEXT_IN_ROWS),
    "dates": (np.array([[datetime.date(1988, 4, 1)]], dtype=object), TEXT_IN_ROWS),
    "periods": (pd.DataFrame({"a": pd.period_range("2020-01-01", periods=2)}), TEXT_IN_ROWS),
    "ragged": ([[NUMBER], [1.0, 2.0]], "inhomogeneous"),
    "NaN": ([[np.nan, NUMBER], [1.0, 2.0]], "contains NaN.* imputer that learns .* not be private"),
    "infinity": ([[np.inf, NUMBER], [1.0, 2.0]], "infinity"),
    "no feature": (np.empty((3, 0)), "0 feature"),
    "no row": (np.empty((0, 3)), "0 sample"),
    "sparse": (FORMS["sparse csr"](np.eye(2)), "dense data is required"),
    "mixed names": (pd.DataFrame({"a": [NUMBER], 1: [2.0]}), "[Ff]eature names"),
}


@pytest.mark.parametrize("name", BAD_ROWS)
def test_bad_rows_are_refused_for_a_reason(name):
    X, text = BAD_ROWS[name]
    outcome = attempt(name, lambda: validate_rows(BaseEstimator(), X, reset=True))
    assert "1988" not in str(outcome.texts)
    with pytest.raises(type(outcome.error), match=text):
        raise outcome.error


@pytest.mark.parametrize("phrase", _PUBLIC_TEXTS)
def test_a_value_that_holds_a_known_phrase_is_not_quoted_either(phrase):
    outcome = attempt(
        phrase, lambda: validate_rows(BaseEstimator(), [[f"{phrase} {TEXT}"]], reset=True)
    )
    assert isinstance(outcome.error, ValueError)


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


@pytest.mark.parametrize("name", TIMES)
def test_targets_are_no_times_either(name):
    """A missing date would be read as the number -9.2e18, which is finite."""
    X = TIMES[name]
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


REFUSED_LABELS = {
    "none": (None, {}, "requires y"),
    "another length": ([1, 2], {}, "2 labels for 3 rows"),
    "continuous": ([NUMBER, 0.5, 1.0], {}, "continuous"),
    "NaN": ([NUMBER, np.nan, 1.0], {}, "NaN"),
    "missing text": (np.array([TEXT, None, "a"], dtype=object), {}, "missing"),
    "missing in pandas": (pd.Series([TEXT, pd.NA, "a"], dtype="string"), {}, "missing"),
    "mixed": (np.array([TEXT, 1, 2], dtype=object), {}, "mixed"),
    "two columns": ([[TEXT, "a"]] * 3, {}, r"shape \(3, 2\)"),
    "undeclared": ([TEXT, "a", "a"], {"classes": ["a", "b"]}, "among the 2 declared"),
    "undeclared number": ([7, 8765, 1], {"classes": [1, 7]}, "among the 2 declared"),
    "longer than declared": (["a", "ab", TEXT], {"classes": ["a", "ab"]}, "among the 2"),
    "other kind": (["1", "7", "1"], {"classes": [1, 7]}, "among the 2 declared"),
}


@pytest.mark.parametrize("name", REFUSED_LABELS)
def test_bad_labels_are_refused_for_a_reason(name):
    y, options, text = REFUSED_LABELS[name]
    outcome = attempt(name, lambda: encode_labels(y, 3, **options))
    with pytest.raises(ValueError, match=text):
        raise outcome.error


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
