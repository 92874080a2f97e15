"""Input of the picture of trajectories: data with their times, and features to draw."""

from typing import Any

import numpy as np
from sklearn.utils import check_consistent_length
from sklearn.utils.validation import column_or_1d

from skdpot.metrics._samples import as_points
from skdpot.metrics.paths import as_paths

__all__ = ["feature_numbers", "is_date", "timed_paths", "timed_rows"]


def timed_paths(
    paths: Any, times: Any, name: str, times_name: str
) -> tuple[np.ndarray, np.ndarray]:
    """Return paths and as many increasing times."""
    if paths is None or times is None:
        raise ValueError(f"{name} and {times_name} must be given together.")
    rows, stamps = as_paths(paths, name), _increasing(times, times_name)
    if len(stamps) != rows.shape[1]:
        raise ValueError(f"{name} have {rows.shape[1]} times and {times_name} has {len(stamps)}.")
    return rows, stamps


def timed_rows(rows: Any, times: Any, name: str, times_name: str) -> tuple[np.ndarray, np.ndarray]:
    """Return rows and as many times."""
    if rows is None or times is None:
        raise ValueError(f"{name} and {times_name} must be given together.")
    points, stamps = as_points(rows, name), _numbers(times)
    check_consistent_length(points, stamps)
    return points, stamps


def is_date(times: Any) -> bool:
    """Tell dates from numbers."""
    return np.asarray(times).dtype.kind == "M"


def _numbers(times: Any) -> np.ndarray:
    """Return times as numbers; dates become the days that matplotlib counts."""
    from matplotlib.dates import date2num

    stamps: np.ndarray = column_or_1d(times)
    return np.asarray(date2num(stamps) if is_date(stamps) else stamps, dtype=np.float64)


def _increasing(times: Any, name: str) -> np.ndarray:
    """Return times in the order in which a line can be drawn."""
    stamps = _numbers(times)
    if (np.diff(stamps) <= 0).any():
        raise ValueError(f"{name} must increase strictly.")
    return stamps


def feature_numbers(features: Any, n_features: int, names: Any) -> tuple[int, ...]:
    """Return one or two column numbers, from numbers or names."""
    if features is None:
        return (0, 1) if n_features > 1 else (0,)
    known = [] if names is None else list(names)
    given = [features] if isinstance(features, str) or np.ndim(features) == 0 else list(features)
    numbers = [known.index(one) if one in known else one for one in given]
    valid = [isinstance(one, int | np.integer) and 0 <= one < n_features for one in numbers]
    if not all(valid) or len(numbers) not in (1, 2):
        raise ValueError(
            f"features={features!r} must be one or two of the numbers 0 to {n_features - 1}"
            + (f", or of the names {known}." if known else ".")
        )
    return tuple(int(one) for one in numbers)
