"""Populations of which each person is observed once."""

from typing import Protocol

import numpy as np
from numpy.typing import ArrayLike
from sklearn.utils import check_array

from skdpot._utils.arguments import check_count
from skdpot._utils.finite import as_finite
from skdpot._utils.streams import solver_generator


class PathLaw(Protocol):
    """A law of paths of persons who belong to groups."""

    def sample_paths(
        self, n_paths: int, times: ArrayLike, rng: np.random.Generator
    ) -> tuple[np.ndarray, np.ndarray]:
        """Draw paths, shape (n_paths, n_times, d), and the groups of their persons, (n_paths,)."""


def one_point_per_person(
    paths: ArrayLike, times: ArrayLike, *, random_state: int | np.random.RandomState | None = None
) -> tuple[np.ndarray, np.ndarray]:
    """Keep one point of each person's path, at a time drawn at random.

    Parameters
    ----------
    paths : array-like of shape (n, n_times, d)
        Where each person is at each time.
    times : array-like of shape (n_times,)
        The times.
    random_state : int, RandomState or None, default=None
        Makes the choice reproducible.

    Returns
    -------
    X : ndarray of shape (n, d)
        One point per person, in the order of the paths.
    t : ndarray of shape (n,)
        Their times: uniform over `times`, independent of the paths and of other people.

    Raises
    ------
    ValueError
        If the paths do not have three axes, or their number of times differs from that of `times`.

    Privacy
    -------
    The result is a subsample without noise.

    Examples
    --------
    >>> import numpy as np
    >>> from skdpot.datasets import one_point_per_person
    >>> X, t = one_point_per_person(np.zeros((100, 3, 2)), [0.0, 0.5, 1.0], random_state=0)
    >>> X.shape, t.shape
    ((100, 2), (100,))
    """
    with np.errstate(all="ignore"):  # infinities are refused without a warning
        whole = check_array(paths, allow_nd=True, dtype="numeric", input_name="paths")
        stamps = check_array(times, ensure_2d=False, dtype=None, input_name="times")
    if whole.ndim != 3:
        raise ValueError(f"paths must have shape (n, n_times, d); got {whole.shape}.")
    if stamps.shape != whole.shape[1:2]:
        raise ValueError(
            f"paths have {whole.shape[1]} times, so times must have shape ({whole.shape[1]},); "
            f"got {stamps.shape}."
        )
    chosen = solver_generator(random_state).integers(len(stamps), size=len(whole))
    return whole[np.arange(len(whole)), chosen], stamps[chosen]


def rows_per_time(n_per_time: int | ArrayLike, n_times: int) -> np.ndarray:
    """Return the number of rows at each time, (n_times,); refuse numbers below 1."""
    n_times = check_count(n_times, "n_times")
    counts = np.asarray(n_per_time)
    if counts.dtype.kind not in "iu":
        raise TypeError("n_per_time must be an integer, or one integer per time.")
    if counts.shape not in ((), (n_times,)) or counts.min() < 1:
        raise ValueError("n_per_time must be at least 1: one number, or one per time.")
    rows: np.ndarray = np.broadcast_to(counts, n_times).astype(np.int64)
    check_count(sum(rows.tolist()), "The sum of n_per_time")
    return rows


def process_times(times: ArrayLike, last: float = np.inf) -> np.ndarray:
    """Return float64 times; refuse times before 0, the start of a process, and after `last`."""
    must = "must be finite and at least 0, where the process starts."
    if last == 1.0:
        must = "must lie in [0, 1]: the branches start at 0 and end at 1."
    stamps = as_finite(times, "times", must)
    if np.any((stamps < 0) | (stamps > last)):
        raise ValueError(f"times {must}")
    return stamps


def draw_seen_once(
    law: PathLaw,
    n_per_time: int | ArrayLike,
    times: np.ndarray,
    random_state: int | np.random.RandomState | None,
) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
    """Draw one point (n, d) per person, with its time and the person's group, both (n,)."""
    counts = rows_per_time(n_per_time, len(times))
    rng = solver_generator(random_state)
    pairs = zip(counts, times, strict=True)
    drawn = [law.sample_paths(int(count), [time], rng) for count, time in pairs]
    X, group = (np.concatenate(parts) for parts in zip(*drawn, strict=True))
    return X[:, 0], np.repeat(times, counts), group
