"""Classifiers and scores of another maker: tried before a fit is charged, and asked afterwards.

What does not fit them is found on made-up rows, which have the columns and the data types of the
private ones and no value of theirs. Whether a stranger refuses a row is a fact about that row,
which nothing is charged for, so that an error after the charge would tell it: a refused row scores
zero, and the others keep their scores to the last bit.
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
    """Return probabilities of classes for private rows; zeros for those that the model refuses."""

    def ask(positions: np.ndarray) -> np.ndarray:
        scores = np.asarray(model.predict_proba(safe_indexing(rows, positions)), dtype=np.float64)
        return bounded(scores)

    return answers(ask, (len(rows), len(model.classes_)))


def answers(ask: Callable[[np.ndarray], np.ndarray], shape: tuple[int, ...]) -> np.ndarray:
    """Return what a stranger answers for the rows at positions; zeros for rows that it refuses.

    One who treats a row by that row alone gives each row the answer that it would have beside any
    others. Rounding too is that of the same number of rows: refused ones are replaced by one that
    is not.
    """

    def answer(positions: np.ndarray) -> np.ndarray | None:
        try:
            with warnings.catch_warnings(action="ignore"), np.errstate(all="ignore"):
                found = ask(positions)
        except Exception:  # strangers raise anything, and quote what they find
            return None
        return found if found.shape == (len(positions), *shape[1:]) else None

    def accepted(positions: np.ndarray) -> Iterator[tuple[np.ndarray, np.ndarray]]:
        found = answer(positions)
        if found is not None:
            yield positions, found
        elif len(positions) > 1:
            for half in np.array_split(positions, 2):
                yield from accepted(half)

    found, scored = np.zeros(shape), np.zeros(shape[0], dtype=bool)
    for positions, part in accepted(np.arange(shape[0])):
        found[positions], scored[positions] = part, True
    if scored.any() and not scored.all():
        again = answer(np.where(scored, np.arange(shape[0]), np.flatnonzero(scored)[0]))
        found = found if again is None else again
        found[~scored] = 0.0
    return found


def bounded(probabilities: np.ndarray) -> np.ndarray:
    """Return probabilities in [0, 1]; what is no number is zero."""
    return np.clip(np.nan_to_num(probabilities, nan=0.0), 0.0, 1.0)


def _problem(model: Any, made_up: Any) -> str:
    """Return what is wrong with a model's answer to made-up rows, or nothing."""
    try:
        with warnings.catch_warnings(action="ignore"), np.errstate(all="ignore"):
            scores = np.asarray(model.predict_proba(made_up), dtype=np.float64)
    except Exception as error:  # about made-up rows: its text may be shown
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
    """Return in words how columns differ from those that a model was fitted with; all public."""
    names = getattr(model, "feature_names_in_", None)
    given = getattr(rows, "columns", None)
    if names is None or given is None:
        wanted, shape = getattr(model, "n_features_in_", None), np.shape(rows)
        if wanted is None or shape[1:] == (wanted,):
            return ""
        return f"{name} was fitted with {wanted} columns, and X has the shape {shape}. "
    lacking = [column for column in names if column not in list(given)]
    if group_column in lacking:
        return (
            f"{name} was fitted with the column {group_column!r}, which holds the groups and is no "
            "feature of X here: pass the groups as an array, X[...], to keep it. "
        )
    if lacking:
        return (
            f"X lacks the columns {', '.join(map(repr, lacking))}, which {name} was fitted with. "
        )
    beside = [column for column in given if column not in list(names)]
    if beside:
        return f"{name} was fitted without the columns {_listed(beside)}: drop them. "
    if list(names) != list(given):
        return f"The columns of X have another order than {name} was fitted with. "
    return ""


def _listed(columns: list[Any]) -> str:
    return ", ".join(map(repr, columns))


def _made_up(rows: Any) -> Iterator[Any]:
    """Yield tables of two rows, of the types of others; those of type object as texts and numbers.

    None where a type has no obvious value.
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
    """Return two values of a data type of pandas; categories are made up too."""
    if isinstance(dtype, pd.CategoricalDtype):
        made = _column(dtype.categories.dtype, values)
        return made.astype(pd.CategoricalDtype(made, ordered=dtype.ordered))
    if not pd.api.types.is_object_dtype(dtype):
        values = _TEXTS if pd.api.types.is_string_dtype(dtype) else _NUMBERS
    return pd.Series(values, dtype=dtype)
