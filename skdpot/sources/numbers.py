"""Rows of numbers, with or without labels, of a source."""

from collections import Counter
from dataclasses import dataclass
from functools import partial
from typing import Any, TypeAlias

import numpy as np
from sklearn.base import BaseEstimator

from skdpot._utils.validation import encode_labels, read_rows, record_features, validate_rows
from skdpot.sources.base import Source, SourceRows, Tables, head_of
from skdpot.sources.engines import source_of

Batch: TypeAlias = tuple[np.ndarray, np.ndarray | None]


def read_numbers(
    estimator: BaseEstimator,
    source: Source,
    label: Any = None,
    classes: Any = None,
    *,
    labelled: bool = False,
    min_samples: int = 1,
) -> tuple[SourceRows, np.ndarray | None]:
    """Count the rows of a source, refuse what are no numbers, and record the columns.

    Returns batches of rows and of the positions of their labels among classes, and these. `label`
    is the name of a column.
    """
    head = head_of(source)
    names = None
    if labelled:
        there = list(getattr(head, "columns", ()))
        if not isinstance(label, str) or label not in there:
            lacking = f" There is no column {label!r}." if isinstance(label, str) else ""
            raise ValueError(
                "y must be the name of the column of X that holds the labels, where X is read in "
                f"batches.{lacking}"
            )
        head = head[[name for name in there if name != label]]
    if hasattr(head, "columns"):
        names = tuple(head.columns)
    record_features(estimator, head)
    reader = _Reader(names, head.shape[1], label if labelled else None)
    caller = type(estimator).__name__
    rows, found = SourceRows.checked(source, reader, caller, min_samples, _labels)
    if not labelled:
        return rows, None
    labels = list(found[0])
    known = encode_labels(labels, len(labels), classes)[1]
    return rows.map(partial(_encoded, classes=known)), known


def fit_rows(
    estimator: BaseEstimator, X: Any, groups: Any, needs: str = "", label: Any = None
) -> Any:
    """Validate rows; or return the source of rows in batches, which only a sketch adds up.

    `needs` names what makes a sketch, if the estimator would make something else.
    """
    source = source_of(X, label)
    if needs and (groups is not None or source is not None):
        given = "X in batches" if groups is None else "groups"
        raise ValueError(f"{given} needs {needs}. Pass one row of each person, in memory.")
    fewest = 2 if groups is None else 1  # of rows; a refusal counts them
    return source or validate_rows(estimator, X, reset=True, min_samples=fewest)


def record_columns(estimator: BaseEstimator, sketch: BaseEstimator) -> None:
    """Record the columns of a source that a sketch has read, without that of labels."""
    estimator.n_features_in_ = sketch.n_features_in_
    if hasattr(sketch, "feature_names_in_"):
        estimator.feature_names_in_ = sketch.feature_names_in_


@dataclass(frozen=True)
class _Reader:
    """Reads a batch; depends on each row alone."""

    names: tuple[str, ...] | None
    n_features: int
    label: str | None

    def __call__(self, batch: Any) -> Batch:
        if self.names is None:
            rows, labels = read_rows(batch), None
        else:
            needed = (*self.names, self.label) if self.label else self.names
            lacking = [name for name in needed if name not in batch.columns]
            if lacking:
                raise ValueError(f"A batch lacks the columns {', '.join(map(repr, lacking))}.")
            rows = read_rows(batch[list(self.names)])
            labels = batch[self.label] if self.label else None
        if rows.shape[1] != self.n_features:
            raise ValueError(f"A batch has {rows.shape[1]} columns, not {self.n_features}.")
        if labels is not None:
            codes, known = encode_labels(labels, len(rows))
            labels = known[codes]
        return rows, labels


def _labels(batch: Batch) -> Tables:
    """Count labels, which fits take to be public."""
    return (Counter([] if batch[1] is None else batch[1].tolist()),)


def _encoded(batch: Batch, classes: np.ndarray) -> Batch:
    rows, labels = batch
    return rows, None if labels is None else np.searchsorted(classes, labels)
