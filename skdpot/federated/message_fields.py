"""What the fields of messages without noise may hold."""

from collections.abc import Callable
from functools import partial
from numbers import Real
from typing import Any

import numpy as np
from numpy.typing import ArrayLike

from skdpot._utils.validation import as_finite
from skdpot.exceptions import MessageError

FRACTIONS = (0.25, 0.5, 0.75)
"""Fractions at which the paper asks for distances when t is not disclosed."""
INTERPOLATIONS = ("barycentric", "exact")
_LARGEST_COORDINATE = 1e100  # beyond it squares and their sums may overflow
_LARGEST_SQUARE = 1e210
_MOST_FRACTIONS = 64
_MASS_ERROR = 1e-6


def _points(value: ArrayLike, _: Any) -> np.ndarray:
    """Return points as a read-only table, or raise MessageError."""
    points = _as_floats("points", value)
    if points.ndim != 2 or 0 in points.shape:
        raise MessageError(
            f"points must have shape (n_points, n_features), both at least 1; got {points.shape}."
        )
    if np.abs(points).max() > _LARGEST_COORDINATE:
        raise MessageError(
            f"points holds coordinates beyond {_LARGEST_COORDINATE:g}; use another unit."
        )
    return points


def _masses(value: ArrayLike | None, message: Any) -> np.ndarray | None:
    """Return the share of each point, or None for equal shares, or raise MessageError."""
    if value is None:
        return None
    n_points = message.n_points
    masses = _as_floats("masses", value)
    if masses.shape != (n_points,) or masses.min() < 0 or masses.max() > 1 + _MASS_ERROR:
        raise MessageError(f"masses must hold one share in [0, 1] for each of {n_points} points.")
    if abs(masses.sum() - 1) > _MASS_ERROR:
        raise MessageError("masses must sum to 1; divide them by their sum.")
    return masses


def as_fractions(value: ArrayLike, _: Any = None) -> np.ndarray:
    """Return increasing fractions of the way to the reference, or raise MessageError."""
    fractions = _as_floats("fractions", value)
    if fractions.ndim != 1 or not 1 <= fractions.size <= _MOST_FRACTIONS:
        raise MessageError(
            f"fractions must have shape (n_fractions,), with 1 to {_MOST_FRACTIONS} of them."
        )
    if fractions[0] <= 0 or fractions[-1] >= 1 or (np.diff(fractions) <= 0).any():
        raise MessageError("fractions must increase and lie strictly between 0 and 1.")
    return fractions


def _costs(value: ArrayLike, message: Any, name: str = "costs", ndim: int = 3) -> np.ndarray:
    """Return squared distances for each fraction, or raise MessageError."""
    costs, n_fractions = _as_floats(name, value), len(message.fractions)
    if costs.ndim != ndim or 0 in costs.shape or len(costs) != n_fractions:
        due = ", ".join([str(n_fractions), *["any"] * (ndim - 1)])
        raise MessageError(f"{name} must have shape ({due}), got {costs.shape}.")
    if costs.min() < 0 or costs.max() > _LARGEST_SQUARE:
        raise MessageError(f"{name} must lie between 0 and {_LARGEST_SQUARE:g}.")
    return costs


def _is_number(value: Any) -> bool:
    return isinstance(value, Real) and not isinstance(value, bool)


def as_fraction(name: str, value: Any) -> float:
    """Return one fraction of the way to the reference, or raise MessageError."""
    if not (_is_number(value) and 0 < value < 1):
        raise MessageError(f"{name} must be a number strictly between 0 and 1.")
    return float(value)


def as_interpolation(value: Any, _: Any = None) -> str:
    """Return the kind of an interpolating measure, or raise MessageError."""
    if value not in INTERPOLATIONS:
        raise MessageError('interpolation must be "barycentric" or "exact".')
    return str(value)


def _squared_distance(value: Any, _: Any) -> float:
    """Return a squared distance as a float, or raise MessageError."""
    if not (_is_number(value) and 0 <= value <= _LARGEST_SQUARE):
        raise MessageError(f"squared_distance must be a number between 0 and {_LARGEST_SQUARE:g}.")
    return float(value)


def _as_floats(name: str, value: ArrayLike) -> np.ndarray:
    """Return a read-only copy in double precision, finite."""
    try:
        array: np.ndarray = as_finite(value, name).copy()
    except ValueError as error:
        raise MessageError(str(error)) from None
    array.setflags(write=False)
    return array


# What a field may hold depends on its name alone, and on the fields before it.
CHECKS: dict[str, Callable[[Any, Any], Any]] = {
    "points": _points,
    "masses": _masses,
    "t": lambda value, _: None if value is None else as_fraction("t", value),
    "interpolation": as_interpolation,
    "fractions": as_fractions,
    "squared_distances": partial(_costs, name="squared_distances", ndim=1),
    "costs": _costs,
    "squared_distance": _squared_distance,
}
