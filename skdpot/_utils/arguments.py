"""Checks of single arguments: counts, numbers, confidences, covariances."""

from numbers import Integral, Real

import numpy as np
from sklearn.utils import check_scalar

MOST = 2**31 - 1  # no array can hold more


def check_confidence(confidence: object) -> None:
    """Refuse a value that is no probability in (0, 1); messages quote only numbers."""
    if not isinstance(confidence, Real) or isinstance(confidence, bool):
        raise TypeError(f"confidence must be a number, not {type(confidence).__name__}.")
    if not 0 < float(confidence) < 1:
        raise ValueError(f"confidence={confidence!r} must be in (0, 1).")


def check_count(value: int, name: str, *, least: int = 1, most: int = MOST) -> int:
    """Check that an integer of any type is in the range, and return it as an int."""
    if isinstance(value, bool | np.bool_):
        raise TypeError(f"{name} must be an instance of int, not bool.")
    check_scalar(value, name, Integral, min_val=least, max_val=most)
    return int(value)


def check_real(value: float, name: str, *, most: float = np.inf, positive: bool = False) -> float:
    """Check that a number is finite, nonnegative or positive, and at most `most`."""
    check_scalar(value, name, Real)
    # The condition also refuses NaN.
    if not 0 <= value <= most or value == np.inf or (positive and value == 0):
        least = "above 0" if positive else "at least 0"
        limit = "" if most == np.inf else f" and at most {most:g}"
        raise ValueError(f"{name}={value!r} must be finite, {least}{limit}.")
    return float(value)


def check_covariance(matrix: np.ndarray, name: str) -> None:
    """Check that a matrix is a covariance, up to rounding in single precision."""
    slack = 1e-6 * np.abs(matrix).max(initial=0.0)
    if not (
        np.isfinite(matrix).all()
        and np.abs(matrix - matrix.T).max(initial=0.0) <= slack
        and np.linalg.eigvalsh(matrix).min(initial=0.0) >= -slack * len(matrix)
    ):
        raise ValueError(f"{name} must be finite, symmetric and without negative eigenvalues.")
