"""Classifiers and scores of callers (strangers): tried before the charge, applied after it.

They are tried on made-up rows with the columns and data types of the private rows and none of their
values. Whether a stranger refuses a row is a fact about that row, which no charge covers, so an
error after the charge would reveal it. Instead a refused row scores zero, and the other rows keep
their scores to the last bit.
"""

import warnings
from collections.abc import Callable, Iterator
from typing import Any

import numpy as np
import pandas as pd

from skdpot._utils.parameters import safe_indexing

_TEXTS, _NUMBERS = ["a", "b"], [0, 1]


def check_scores(name: str, model: Any, rows: Any, group_column: str | None) -> None:
    """Refuse a fitted classifier that does not score rows of these columns and data types."""
    if getattr(model, "classes_", None) is None:
        raise ValueError(f"{name} has no classes_: it must be a fitted classifier.")
    problem = ""
    for made_up in _made_up(rows):
        problem = _problem(model, made_up)
        if not problem:
            return
    if problem:
        raise ValueError(
            f"{name} does not score two made-up rows with the columns and data types of X. "
            f"{_difference(name, model, rows, group_column)}{problem}"
        )


def stranger_scores(model: Any, rows: Any) -> np.ndarray:
    """Return probabilities of classes for private rows; zeros for rows that the model refuses."""

    def ask(positions: np.ndarray) -> np.ndarray:
        scores = np.asarray(model.predict_proba(safe_indexing(rows, positions)), dtype=np.float64)
        return bounded(scores)

    return answers(ask, (len(rows), len(model.classes_)))


def answers(ask: Callable[[np.ndarray], np.ndarray], shape: tuple[int, ...]) -> np.ndarray:
    """Return a stranger's scores of the rows at positions; zeros for rows that it refuses.

    If the stranger treats each row by itself, the score of a row does not depend on the other rows.
    Nor does its rounding: refused rows are replaced by an accepted one, so that the number of rows
    stays the same.
    """

    def answer(positions: np.ndarray) -> np.ndarray | None:
        try:
            with warnings.catch_warnings(action="ignore"), np.errstate(all="ignore"):
                answered = ask(positions)
        except Exception:  # strangers may raise any exception, and quote values
            return None
        return answered if answered.shape == (len(positions), *shape[1:]) else None

    def accepted(positions: np.ndarray) -> Iterator[tuple[np.ndarray, np.ndarray]]:
        answered = answer(positions)
        if answered is not None:
            yield positions, answered
        elif len(positions) > 1:
            for half in np.array_split(positions, 2):
                yield from accepted(half)

    scores, scored = np.zeros(shape), np.zeros(shape[0], dtype=bool)
    for positions, part in accepted(np.arange(shape[0])):
        scores[positions], scored[positions] = part, True
    if scored.any() and not scored.all():
        again = answer(np.where(scored, np.arange(shape[0]), np.flatnonzero(scored)[0]))
        scores = scores if again is None else again
        scores[~scored] = 0.0
    return scores


def bounded(probabilities: np.ndarray) -> np.ndarray:
    """Clip probabilities to [0, 1]; NaN becomes zero."""
    return np.clip(np.nan_to_num(probabilities, nan=0.0), 0.0, 1.0)


def _problem(model: Any, made_up: Any) -> str:
    """Return the fault of a model's scores of made-up rows, or an empty text."""
    try:
        with warnings.catch_warnings(action="ignore"), np.errstate(all="ignore"):
            scores = np.asarray(model.predict_proba(made_up), dtype=np.float64)
    except Exception as error:  # its text may be shown, because the rows are made up
        return (
            f"Its {type(error).__name__} says: {error} It must score every row; an encoder in it "
            'needs handle_unknown="ignore", and a column of numbers must not have the type object.'
        )
    shape = len(made_up), len(model.classes_)
    if scores.shape != shape:
        return (
            f"Its predict_proba returns the shape {scores.shape}; it must be {shape}, one "
            "probability for each of its classes_."
        )
    return "" if np.isfinite(scores).all() else "Its predict_proba returns NaN or infinity."


def _difference(name: str, model: Any, rows: Any, group_column: str | None) -> str:
    """Describe how the columns differ from those that a model was fitted with; all are public."""
    names = getattr(model, "feature_names_in_", None)
    columns = getattr(rows, "columns", None)
    if names is None or columns is None:
        wanted, shape = getattr(model, "n_features_in_", None), np.shape(rows)
        if wanted is None or shape[1:] == (wanted,):
            return ""
        return f"{name} was fitted with {wanted} columns, and X has the shape {shape}. "
    lacking = [column for column in names if column not in list(columns)]
    if group_column in lacking:
        return (
            f"{name} was fitted with the column {group_column!r}, which holds the groups and is no "
            "feature of X here: pass the groups as an array, X[...], to keep it. "
        )
    if lacking:
        return f"X lacks the columns {_listed(lacking)}, which {name} was fitted with. "
    unknown = [column for column in columns if column not in list(names)]
    if unknown:
        return f"{name} was fitted without the columns {_listed(unknown)}: drop them. "
    if list(names) != list(columns):
        return f"The columns of X have another order than {name} was fitted with. "
    return ""


def _listed(columns: list[Any]) -> str:
    return ", ".join(map(repr, columns))


def _made_up(rows: Any) -> Iterator[Any]:
    """Yield tables of two rows with the data types of `rows`; objects as texts and as numbers.

    Yield no table if a type has no obvious value.
    """
    if isinstance(rows, pd.DataFrame):
        for values in (_TEXTS, _NUMBERS) if "O" in {t.kind for t in rows.dtypes} else (_TEXTS,):
            try:
                columns = [_column(dtype, values) for dtype in rows.dtypes]
            except (TypeError, ValueError):
                return
            yield pd.concat(columns, axis=1).set_axis(rows.columns, axis=1)
    elif type(rows).__module__.partition(".")[0] == "polars":
        yield rows.clear(2).fill_null(0).fill_null(False).fill_null(_TEXTS[0])
    elif isinstance(rows, np.ndarray):
        if rows.dtype.kind in "OUS":
            yield np.full((2, *rows.shape[1:]), _TEXTS[0]).astype(rows.dtype)
        yield np.zeros((2, *rows.shape[1:])).astype(rows.dtype)


def _column(dtype: Any, values: list[Any]) -> pd.Series:
    """Return a column of two values of a data type of pandas, with made-up categories."""
    if isinstance(dtype, pd.CategoricalDtype):
        made = _column(dtype.categories.dtype, values)
        return made.astype(pd.CategoricalDtype(made, ordered=dtype.ordered))
    if not pd.api.types.is_object_dtype(dtype):
        values = _TEXTS if pd.api.types.is_string_dtype(dtype) else _NUMBERS
    return pd.Series(values, dtype=dtype)
