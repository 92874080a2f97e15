"""Conversion of public values to arrays of finite doubles; no error quotes a value."""

from contextlib import suppress

import numpy as np
from numpy.typing import ArrayLike

FINITE = "must hold finite numbers, without NaN or infinity."
_LARGEST = 1e150  # its square is finite


def as_finite(values: ArrayLike, name: str, must: str = "must hold finite numbers.") -> np.ndarray:
    """Return finite numbers as an array of doubles."""
    numbers = np.full(1, np.nan)
    # An array of another library may raise anything.
    with suppress(Exception), np.errstate(all="ignore"):
        array = np.asarray(values)
        if array.dtype.kind not in "cmMSUV":
            numbers = array.astype(np.float64)
    if not np.isfinite(numbers).all():
        raise ValueError(f"{name} {must}")
    return numbers


def as_line(values: ArrayLike, name: str, must: str = "must hold finite numbers.") -> np.ndarray:
    """Return one or several finite numbers as a one-dimensional array."""
    numbers = np.atleast_1d(as_finite(values, name, must))
    if numbers.ndim > 1:
        raise ValueError(f"{name} must hold numbers along one axis; got shape {numbers.shape}.")
    return numbers


def as_points(X: ArrayLike, name: str) -> np.ndarray:
    """Return a copy of X as float64 rows whose squares are finite; no error quotes a value."""
    points = as_finite(X, name, FINITE)
    if points.ndim != 2 or 0 in points.shape:
        raise ValueError(
            f"{name} has shape {points.shape}; it must be a table (n_rows, n_features), not empty."
        )
    if np.abs(points).max() > _LARGEST:
        raise ValueError(
            f"{name} must hold numbers of at most {_LARGEST:g} in absolute value, whose squares "
            "are finite."
        )
    return points


def check_same_features(first: int, second: int) -> None:
    """Check that two samples have the same number of features."""
    if first != second:
        raise ValueError(
            f"X has {first} features and Y has {second}; both must have the same features in the "
            "same order."
        )
