"""Distances between samples of paths, or of marginals, and the reading of paths and times."""

from collections.abc import Callable
from typing import Any

import numpy as np
import pandas as pd
from numpy.typing import ArrayLike
from sklearn.utils import check_consistent_length
from sklearn.utils.validation import column_or_1d

from skdpot._utils.arguments import check_count
from skdpot._utils.arrays import FloatArray
from skdpot._utils.finite import FINITE, as_finite, as_points
from skdpot._utils.streams import solver_generator
from skdpot.ot.distances import sliced_wasserstein_distance, wasserstein_distance


def read_paths_and_times(
    paths: ArrayLike, times: ArrayLike, name: str, times_name: str
) -> tuple[FloatArray, FloatArray]:
    """Return finite paths (n, k, d) and k increasing times."""
    rows, stamps = as_paths(paths, name), read_times(times, times_name)
    if len(stamps) != rows.shape[1]:
        raise ValueError(f"{name} have {rows.shape[1]} times and {times_name} has {len(stamps)}.")
    if (np.diff(stamps) <= 0).any():
        raise ValueError(f"{times_name} must increase strictly.")
    return rows, stamps


def read_points_and_times(
    rows: ArrayLike, times: ArrayLike, name: str, times_name: str
) -> tuple[FloatArray, FloatArray]:
    """Return finite rows (n, d) and n times."""
    points, stamps = as_points(rows, name), read_times(times, times_name)
    check_consistent_length(points, stamps)
    return points, stamps


def is_date(times: ArrayLike) -> bool:
    """Return whether times are dates."""
    return np.asarray(times).dtype.kind == "M"


def read_times(times: ArrayLike, name: str) -> FloatArray:
    """Return finite times; dates become days as matplotlib counts them."""
    stamps: FloatArray = column_or_1d(times)
    if is_date(stamps):
        from matplotlib.dates import date2num

        stamps = date2num(stamps)
    return as_finite(stamps, name, FINITE)


def resample_paths(paths: ArrayLike, times: ArrayLike, at: ArrayLike) -> FloatArray:
    """Interpolate paths (n, k, d) with times (k,) linearly at other times, (n, n_at, d)."""
    points, stamps = read_paths_and_times(paths, times, "paths", "times")
    wanted = read_times(at, "at")
    if wanted.min() < stamps[0] or wanted.max() > stamps[-1]:
        raise ValueError(
            f"at must lie in [{stamps[0]:g}, {stamps[-1]:g}]; paths are not extrapolated."
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
    n_projections: int = 256,
    random_state: int | np.random.RandomState | None = 0,
) -> float:
    """Sliced Wasserstein-2 distance between two samples of whole paths.

    A path at k times in d dimensions is one vector of k·d numbers, and the distance is the
    `sliced_wasserstein_distance` between these vectors. Two samples may agree at every time and
    still differ as paths.

    Parameters
    ----------
    first, second : array-like of shape (n, k, d), (m, k, d)
        Samples of paths at the same times. All times have equal weight, so choose equally spaced
        ones (`skdpot.trajectories.path_metrics.resample_paths`).
    n_projections : int, default=256
        Number of directions, rounded up to a multiple of k·d.
    random_state : int, RandomState or None, default=0
        Seed of the directions.

    Returns
    -------
    float
        The distance (not its square), in the unit of the features. If the second sample is the
        first one moved by v at all times, it is exactly ``‖v‖ / √d`` for any number of times. For
        k = 1 it is `sliced_wasserstein_distance`.

    Raises
    ------
    ValueError
        If the samples have different times or features, or `n_projections` is below 1.

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
    first, second = as_paths(first, "first"), as_paths(second, "second")
    if first.shape[1:] != second.shape[1:]:
        raise ValueError(
            f"first has {first.shape[1]} times and {first.shape[2]} features, second has "
            f"{second.shape[1]} and {second.shape[2]}: both must be the same."
        )
    return sliced_wasserstein_distance(
        first.reshape(len(first), -1),
        second.reshape(len(second), -1),
        n_projections=n_projections,
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
    """Wasserstein-2 distance between observed and sampled points, at each time.

    Parameters
    ----------
    X, t : array-like of shape (n, d), (n,)
        Observed points, treated as public, and their time stamps.
    sample_marginal : callable
        ``sample_marginal(time, n)`` returns at most n points at a time, as an array-like of shape
        (n, d); for instance the method of a fitted sampler. It is called with the number of
        observed points.
    max_points : int, default=2000
        Maximum number of observed points per time; more are subsampled, because the exact distance
        takes about n³ time.
    random_state : int, RandomState or None, default=0
        Seed of the subsampling.

    Returns
    -------
    DataFrame
        One row per time stamp, in increasing order, with the columns ``n_points``, ``wasserstein``
        (W₂) and ``squared_wasserstein`` (W₂²). Two samples of one distribution are about n^(−1/d)
        apart if d > 2: compare with a second sample of the truth.

    Raises
    ------
    ValueError
        If the rows and time stamps do not match, or the sampled points are invalid.

    Privacy
    -------
    Rows are treated as public: no noise is added.

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
    max_points = check_count(max_points, "max_points")
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


def as_paths(paths: ArrayLike, name: str) -> FloatArray:
    """Return finite float64 paths (n, k, d)."""
    points = as_finite(paths, name, FINITE)
    if points.ndim != 3 or 0 in points.shape:
        raise ValueError(
            f"{name} must have shape (paths, times, features), all at least 1; got {points.shape}."
        )
    return points
