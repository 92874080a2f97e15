"""What a caller declares about the rows to come, checked before any charge."""

from numbers import Integral
from typing import Any

import numpy as np

from skdpot._utils.rng import Streams
from skdpot.privacy.data_bounds import DataBounds

__all__ = ["assumptions", "check_arrivals", "check_class_number", "declared_rows"]


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


def check_arrivals(n_before: int, n_rows: int, declared: int | None) -> None:
    """Refuse a chunk that does not fit in the declared number of rows, before any charge."""
    if declared is not None and n_before + n_rows > declared:
        raise ValueError(
            f"{n_before + n_rows} rows arrived but n_samples={declared} were declared; the "
            "chunk was not added."
        )


def assumptions(classes: Any, bounds: DataBounds | None, streams: Streams) -> tuple[str, ...]:
    """List what is taken as public, and what else the statement rests on."""
    public = ["the number of rows", "the number and names of the features"]
    if classes is not None:
        public.append("the set of classes")
    if bounds is not None:
        public.append("the bounds given by the caller")
    valid = "every value is a finite number"
    if classes is not None:
        valid += " and every label one of the classes"
    seeded = ("nobody knows random_state",) if streams.secret.reproducible else ()
    return (*public, f"{valid}; others are refused", "each person contributes one row", *seeded)
