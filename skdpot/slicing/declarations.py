"""What a caller declares about the rows to come, checked before any charge."""

from numbers import Integral
from typing import Any

import numpy as np

from skdpot._utils.rng import Streams
from skdpot.privacy.data_bounds import DataBounds

__all__ = [
    "assumptions",
    "check_arrivals",
    "check_class_number",
    "check_public_labels",
    "declared_rows",
]


def declared_rows(given: Any, before: int | None, first: bool) -> int | None:
    """Return the declared number of rows; only the first chunk can declare it."""
    if given is None:
        return before
    if isinstance(given, bool) or not isinstance(given, Integral) or given < 1:
        raise ValueError(f"n_samples={given!r} must be an integer of at least 1.")
    if not first and given != before:
        raise ValueError(
            f"n_samples={given} differs from the {before} of the first chunk, which fixed it."
        )
    return int(given)


def check_class_number(classes: Any, n_samples: int | None) -> None:
    """Refuse more classes than rows, before any charge."""
    n_classes = 0 if classes is None else len(np.unique(classes))
    if n_samples is not None and n_classes > n_samples:
        raise ValueError(
            f"There are {n_classes} classes for {n_samples} rows; a class-conditional fit needs "
            "at least one row a class."
        )


def check_public_labels(n_classes: int | None, public_labels: bool, group_size: int) -> None:
    """Refuse, before any charge, public labels without classes and groups without public labels.

    Parameters
    ----------
    n_classes : int or None
        Number of classes; None without.
    public_labels : bool
        Whether the label of every row is public.
    group_size : int
        How many rows, all of different labels, one person may have given.

    Raises
    ------
    ValueError
        If they do not fit together.
    """
    if public_labels and n_classes is None:
        raise ValueError(
            "public_labels=True needs conditional=True and the label of every row: without classes "
            "there are no labels."
        )
    if group_size > 1 and not public_labels:
        raise ValueError(
            f"group_size={group_size} needs public_labels=True: it counts the rows of one person "
            "that have different public labels, such as times. Otherwise leave group_size=1 and "
            "pass one row a person."
        )
    if group_size > (n_classes or 1):
        raise ValueError(
            f"group_size={group_size} is more than the {n_classes} labels: the rows of one person "
            "must have different labels, so that nobody has more rows than there are labels."
        )


def check_arrivals(n_before: int, n_rows: int, declared: int | None) -> None:
    """Refuse a chunk that does not fit in the declared number of rows, before any charge."""
    if declared is not None and n_before + n_rows > declared:
        raise ValueError(
            f"{n_before + n_rows} rows arrived but n_samples={declared} were declared; the "
            "chunk was not added."
        )


def assumptions(
    classes: Any,
    bounds: DataBounds | None,
    streams: Streams,
    *,
    public_labels: bool = False,
    group_size: int = 1,
) -> tuple[str, ...]:
    """List what is taken as public, and what else the statement rests on."""
    public = ["the number of rows", "the number and names of the features"]
    if classes is not None:
        public.append("the set of classes")
    if public_labels:
        public.append("the label of every row, and so the number of rows of each class")
    if bounds is not None:
        public.append("the bounds given by the caller")
    valid = "every value is a finite number"
    if classes is not None:
        valid += " and every label one of the classes"
    seeded = ("nobody knows random_state",) if streams.secret.reproducible else ()
    person = "each person contributes one row"
    if group_size > 1:
        person = f"each person contributes at most {group_size} rows, all of different labels"
    return (*public, f"{valid}; others are refused", person, *seeded)
