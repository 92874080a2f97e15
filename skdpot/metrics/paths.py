"""How far trajectories are apart: time by time, and as whole paths."""

from collections.abc import Callable
from numbers import Integral
from typing import Any

import numpy as np
import pandas as pd
from numpy.typing import ArrayLike
from sklearn.utils import check_consistent_length, check_scalar
from sklearn.utils.validation import column_or_1d

from skdpot._utils.rng import solver_generator
from skdpot.metrics.distances import (
    as_numbers,
    as_points,
    sliced_wasserstein_distance,
    wasserstein_distance,
)

__all__ = [
    "feature_numbers",
    "is_date",
    "marginal_wasserstein_distances",
    "path_sliced_wasserstein_distance",
    "resample_paths",
    "timed_paths",
    "timed_rows",
]


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


def resample_paths(paths: ArrayLike, times: ArrayLike, at: ArrayLike) -> np.ndarray:
    """Read paths at other times, on the straight lines between their points.

    Parameters
    ----------
    paths : array-like of shape (n, k, d)
        Points of n paths at k times.
    times : array-like of shape (k,)
        Those times, increasing.
    at : array-like of shape (j,)
        Times to read, in any order, between the first and the last of `times`.

    Returns
    -------
    ndarray of shape (n, j, d)
        Points at the times `at`.

    Raises
    ------
    ValueError
        If the times do not increase or do not fit the paths, or `at` lies outside them.

    Privacy
    -------
    Paths are treated as public.

    Examples
    --------
    >>> from skdpot.metrics import resample_paths
    >>> resample_paths([[[0.0], [2.0]]], [0.0, 1.0], [0.25, 1.0])
    array([[[0.5],
            [2. ]]])
    """
    points = as_paths(paths, "paths")
    stamps, wanted = _as_times(times, "times"), _as_times(at, "at")
    if len(stamps) != points.shape[1]:
        raise ValueError(f"paths have {points.shape[1]} times and times has {len(stamps)}.")
    if (np.diff(stamps) <= 0).any():
        raise ValueError("times must increase strictly.")
    if wanted.min() < stamps[0] or wanted.max() > stamps[-1]:
        raise ValueError(
            f"at must lie in [{stamps[0]:g}, {stamps[-1]:g}]: paths are not continued beyond "
            "their ends."
        )
    position = np.interp(wanted, stamps, np.arange(len(stamps)))
    before = np.floor(position).astype(np.intp)
    after = np.minimum(before + 1, len(stamps) - 1)
    share = (position - before)[:, np.newaxis]
    return (1 - share) * points[:, before] + share * points[:, after]


def path_sliced_wasserstein_distance(
    first: ArrayLike,
    second: ArrayLike,
    *,
    n_slices: int = 256,
    random_state: int | np.random.RandomState | None = 0,
) -> float:
    """Sliced Wasserstein-2 distance between two samples of whole paths.

    A path at k times in d dimensions is one vector of k·d numbers; the distance is that of
    `sliced_wasserstein_distance` between these vectors. Two samples may agree at every single
    time and still be apart: at each time the same crowd, along other paths.

    Parameters
    ----------
    first : array-like of shape (n, k, d)
        Sample of paths.
    second : array-like of shape (m, k, d)
        Sample of paths at the same times; m may differ from n. All times weigh alike, so choose
        equally spaced ones; `resample_paths` helps.
    n_slices : int, default=256
        Number of directions, rounded up to a multiple of k·d.
    random_state : int, RandomState or None, default=0
        Draws the directions; the same integer gives the same ones.

    Returns
    -------
    float
        The distance (not its square), in the unit of the features and on the scale of the
        distance at a single time: if the second sample is the first one moved by v at all times,
        it is ``‖v‖ / √d`` exactly, for any number of times. For k = 1 it is
        `sliced_wasserstein_distance`.

    Raises
    ------
    ValueError
        If the samples have different times or features, or `n_slices` is below 1.

    See Also
    --------
    marginal_wasserstein_distances : Time by time.

    Notes
    -----
    Why the scale is right: a sliced distance in D dimensions divides the length of a translation
    by √D. Moving k points by v moves the vector of the path by √k·‖v‖, and D = k·d.

    Privacy
    -------
    Both samples are treated as public.

    Examples
    --------
    >>> import numpy as np
    >>> from skdpot.metrics import path_sliced_wasserstein_distance
    >>> paths = np.random.default_rng(0).normal(size=(100, 6, 2)).cumsum(axis=1)
    >>> path_sliced_wasserstein_distance(paths, paths + 1.0)
    1.0
    """
    one, other = as_paths(first, "first"), as_paths(second, "second")
    if one.shape[1:] != other.shape[1:]:
        raise ValueError(
            f"first has {one.shape[1]} times and {one.shape[2]} features, second has "
            f"{other.shape[1]} and {other.shape[2]}: both must be the same."
        )
    return sliced_wasserstein_distance(
        one.reshape(len(one), -1),
        other.reshape(len(other), -1),
        n_slices=n_slices,
        random_state=random_state,
    )


def marginal_wasserstein_distances(
    X: ArrayLike,
    t: ArrayLike,
    sample_marginal: Callable[[Any, int], ArrayLike],
    *,
    max_points: int = 2000,
    random_state: int | np.random.RandomState | None = 0,
) -> pd.DataFrame:
    """Wasserstein-2 distance between points seen and points sampled, at each time.

    Parameters
    ----------
    X : array-like of shape (n, d)
        Points seen; public ones.
    t : array-like of shape (n,)
        Their time stamps.
    sample_marginal : callable
        ``sample_marginal(time, n)`` returns n points (or fewer) at a time, as an array-like of
        shape (n, d): a method of that name of a fitted sampler, or any function. It is asked for
        as many points as were seen.
    max_points : int, default=2000
        At a time with more rows than this, that many are drawn from them, for the exact distance
        takes about n³ time.
    random_state : int, RandomState or None, default=0
        Draws them.

    Returns
    -------
    DataFrame
        One row a time stamp, in increasing order: ``n_points``, ``wasserstein`` (W₂) and
        ``squared_wasserstein`` (W₂²). The mean of the squared column is not the square of the
        other's mean: say which one you report.

    Raises
    ------
    ValueError
        If the rows and stamps do not fit, or the sampled points are not usable.

    See Also
    --------
    path_sliced_wasserstein_distance : Whole paths.

    Notes
    -----
    Two samples of one law are still apart, by about n^(−1/d) when d > 2. Compare with the same
    figure of a second sample of the truth to see how much of a distance is that.

    Privacy
    -------
    Rows are treated as public: the distances are computed from them without noise.

    Examples
    --------
    >>> from skdpot.datasets import make_ornstein_uhlenbeck_trajectories
    >>> from skdpot.metrics import marginal_wasserstein_distances
    >>> X, t, _ = make_ornstein_uhlenbeck_trajectories(200, 2, random_state=0)
    >>> moved = lambda time, n: X[t == time] + [0.3, 0.4]
    >>> marginal_wasserstein_distances(X, t, moved).round(3)
          n_points  wasserstein  squared_wasserstein
    time
    0.0        200          0.5                 0.25
    1.0        200          0.5                 0.25
    """
    rows, stamps = as_points(X, "X"), column_or_1d(t)
    check_consistent_length(rows, stamps)
    check_scalar(max_points, "max_points", Integral, min_val=1)
    rng = solver_generator(random_state)
    times = np.unique(stamps)
    figures = []
    for time in times:
        seen = rows[stamps == time]
        if len(seen) > max_points:
            seen = seen[rng.choice(len(seen), max_points, replace=False)]
        distance = wasserstein_distance(seen, sample_marginal(time, len(seen)))
        figures.append((len(seen), distance, distance**2))
    return pd.DataFrame(
        figures,
        index=pd.Index(times, name="time"),
        columns=["n_points", "wasserstein", "squared_wasserstein"],
    )


def as_paths(paths: ArrayLike, name: str) -> np.ndarray:
    """Return finite float64 paths.

    Parameters
    ----------
    paths : array-like of shape (n, k, d)
        Paths.
    name : str
        Name of the argument, for the error.

    Returns
    -------
    ndarray of shape (n, k, d)
        The paths; none of the lengths is 0.

    Raises
    ------
    ValueError
        If they have another shape or are not finite.
    """
    points = as_numbers(paths, name, ensure_2d=False, allow_nd=True)
    if points.ndim != 3 or 0 in points.shape:
        raise ValueError(
            f"{name} must have shape (paths, times, features), all at least 1; got {points.shape}."
        )
    return points


def _as_times(times: ArrayLike, name: str) -> np.ndarray:
    """Return finite float64 times, at least one."""
    return as_numbers(column_or_1d(times), name, ensure_2d=False)
