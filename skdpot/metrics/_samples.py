"""Input of the metrics: samples of points, all of them public."""

from numbers import Integral
from typing import Any

import numpy as np
from numpy.typing import ArrayLike
from sklearn.utils import check_array

__all__ = ["as_numbers", "as_points", "check_order", "check_same_features", "check_slices"]

_LARGEST = 1e150
_MOST_SLICES = 10**6


def as_points(X: ArrayLike, name: str) -> np.ndarray:
    """Return X as finite float64 rows."""
    points = as_numbers(X, name)
    if np.abs(points).max(initial=0.0) > _LARGEST:
        raise ValueError(
            f"{name} must hold numbers of at most {_LARGEST:g} in absolute value, whose squares "
            "are finite."
        )
    return points


def as_numbers(values: Any, name: str, **options: Any) -> np.ndarray:
    """Return finite float64 numbers; `options` are those of scikit-learn's `check_array`."""
    try:
        with np.errstate(all="ignore"):  # infinities are refused, and their sum need not warn
            numbers: np.ndarray = check_array(values, dtype=np.float64, input_name=name, **options)
    except (ValueError, TypeError):
        raise
    except Exception as error:  # an array of another library may raise anything
        raise ValueError(f"{name} cannot be converted to an array of numbers.") from error
    return numbers


def check_same_features(first: int, second: int) -> None:
    """Refuse samples that do not live in the same space."""
    if first != second:
        raise ValueError(
            f"X has {first} features and Y has {second}; a distance needs the same features, in "
            "the same order, on both sides."
        )


def check_slices(n_slices: int) -> int:
    """Return a number of directions; refuse those that no machine has the time for."""
    if isinstance(n_slices, bool | np.bool_) or not isinstance(n_slices, Integral):
        raise TypeError(f"n_slices must be an integer, not {type(n_slices).__name__}.")
    if not 1 <= n_slices <= _MOST_SLICES:
        raise ValueError(f"n_slices={n_slices!r} must be at least 1 and at most {_MOST_SLICES}.")
    return int(n_slices)  # unsigned ones of numpy have no negative


def check_order(p: float) -> float:
    """Return an order as a float; refuse those for which there is no distance, or no finite one."""
    if not 1 <= p < np.inf:
        raise ValueError(f"p={p!r} must be finite and at least 1.")
    return float(p)
