"""Data of which each person gives one point of a path, at one time."""

from numbers import Real

import numpy as np
from numpy.typing import ArrayLike
from sklearn.utils import check_array, check_consistent_length, check_scalar

from skdpot._utils.rng import solver_generator
from skdpot._utils.validation import as_finite
from skdpot.datasets._counts import check_count

__all__ = [
    "branch_of",
    "branching_paths",
    "make_branching_trajectories",
    "one_point_a_person",
    "rows_a_time",
]

_N_BRANCHES = 3
_FAR = 1e100


def make_branching_trajectories(
    n_per_time: int | ArrayLike = 3000,
    n_times: int = 10,
    *,
    noise_variance: float = 0.005,
    random_state: int | np.random.RandomState | None = None,
) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
    """Make points of people on three branches, each of them seen once.

    All branches lead from (−1, 0) at time 0 to (1, 0) at time 1, each at constant speed: the
    upper half of the unit circle, the straight line, and the lower half. At every time a third
    of the people is on each branch, displaced by normal noise.

    Parameters
    ----------
    n_per_time : int or array-like of shape (n_times,), default=3000
        Number of people seen at each time.
    n_times : int, default=10
        Number of time stamps T, equally spaced from 0 to 1.
    noise_variance : float, default=0.005
        Variance of the displacement in each coordinate.
    random_state : int, RandomState or None, default=None
        Makes the data reproducible.

    Returns
    -------
    X : ndarray of shape (n, 2)
        One point a person.
    t : ndarray of shape (n,)
        Their time stamps, in increasing order.
    branch : ndarray of shape (n,)
        Their branches: 0 for the upper, 1 for the straight, 2 for the lower one. At each time
        the numbers of people on two branches differ by one at most.

    Raises
    ------
    TypeError, ValueError
        If a parameter is of another type or out of its range.

    See Also
    --------
    branching_paths : Whole paths of such people.
    branch_of : The branch nearest to a point.

    Privacy
    -------
    Made-up data belong to nobody.

    References
    ----------
    A. Gu, E. Chien, K. Greenewald, "Private continuous-time synthetic trajectory generation via
    mean-field Langevin dynamics", Section 5; the default values are those of its multimodal
    experiment.

    Examples
    --------
    >>> from skdpot.datasets import make_branching_trajectories
    >>> X, t, branch = make_branching_trajectories(300, 5, random_state=0)
    >>> X.shape
    (1500, 2)
    >>> X[(t == 0.5) & (branch == 0)].mean(axis=0).round(1) + 0.0
    array([0., 1.])
    """
    counts = rows_a_time(n_per_time, n_times)
    deviation = _deviation(noise_variance)
    rng = solver_generator(random_state)
    t = np.repeat(np.linspace(0.0, 1.0, len(counts)), counts)
    branch = np.concatenate([_even_branches(count, rng) for count in counts])
    centers = np.take_along_axis(_centers(t), branch[:, np.newaxis, np.newaxis], axis=1)[:, 0]
    return centers + deviation * rng.standard_normal(centers.shape), t, branch


def branching_paths(
    n_paths: int,
    times: ArrayLike,
    *,
    noise_variance: float = 0.005,
    random_state: int | np.random.RandomState | None = None,
) -> tuple[np.ndarray, np.ndarray]:
    """Draw whole paths of the people of `make_branching_trajectories`.

    A person stays on one branch and keeps the same displacement from it. At any one time these
    people are distributed like the data; how the points of one person hang together is a choice,
    for data of one point a person do not tell.

    Parameters
    ----------
    n_paths : int
        Number of people.
    times : array-like of shape (n_times,)
        Times in [0, 1], in any order.
    noise_variance : float, default=0.005
        Variance of the displacement in each coordinate.
    random_state : int, RandomState or None, default=None
        Makes the paths reproducible.

    Returns
    -------
    paths : ndarray of shape (n_paths, n_times, 2)
        Where each person is at each time.
    branch : ndarray of shape (n_paths,)
        Their branches: 0 for the upper, 1 for the straight, 2 for the lower one.

    Raises
    ------
    TypeError, ValueError
        If a parameter is of another type or out of its range.

    See Also
    --------
    one_point_a_person : Keeps one point of each path.

    Privacy
    -------
    Made-up data belong to nobody.

    Examples
    --------
    >>> from skdpot.datasets import branching_paths
    >>> paths, branch = branching_paths(6, [0.0, 0.5, 1.0], noise_variance=0.0)
    >>> paths[branch == 2][0].round(6) + 0.0
    array([[-1.,  0.],
           [ 0., -1.],
           [ 1.,  0.]])
    """
    n_paths = check_count(n_paths, "n_paths", least=1)
    deviation = _deviation(noise_variance)
    stamps = np.atleast_1d(_unit_times(times))
    if stamps.ndim != 1 or not len(stamps):
        raise ValueError(f"times must have shape (n_times,), at least one; got {stamps.shape}.")
    rng = solver_generator(random_state)
    branch = _even_branches(n_paths, rng)
    centers = np.moveaxis(_centers(stamps), 1, 0)[branch]
    return centers + deviation * rng.standard_normal((n_paths, 1, 2)), branch


def branch_of(points: ArrayLike, times: ArrayLike) -> np.ndarray:
    """Return the branch whose centre is nearest at the time of each point.

    Parameters
    ----------
    points : array-like of shape (..., 2)
        Points in the units of `make_branching_trajectories`, for example paths.
    times : array-like
        Their times in [0, 1]; broadcast against the leading axes of `points`, so that one row
        of times serves all paths.

    Returns
    -------
    ndarray of int64, of the shape of the leading axes
        0 for the upper, 1 for the straight, 2 for the lower branch. Near the times 0 and 1, where
        the branches meet, this tells little.

    Raises
    ------
    ValueError
        If the points are not in the plane or a time is outside [0, 1].

    Examples
    --------
    >>> from skdpot.datasets import branch_of
    >>> branch_of([[0.1, 0.8], [0.0, 0.1], [0.0, -0.9]], 0.5)
    array([0, 1, 2])
    """
    rows = as_finite(points, "points")
    if rows.ndim == 0 or rows.shape[-1] != 2:
        raise ValueError(f"points must have shape (..., 2); got {rows.shape}.")
    rows = np.clip(rows, -_FAR, _FAR)  # so far away that the angle to the branches is all there is
    offsets = rows[..., np.newaxis, :] - _centers(_unit_times(times))
    nearest: np.ndarray = np.argmin(np.sum(offsets**2, axis=-1), axis=-1)
    return nearest


def one_point_a_person(
    paths: ArrayLike,
    times: ArrayLike,
    *,
    random_state: int | np.random.RandomState | None = None,
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
        A point of each person, in the order of the paths.
    t : ndarray of shape (n,)
        Its time: uniform over `times`, and independent of the path and of other people.

    Raises
    ------
    ValueError
        If the paths do not have three axes or their number of times differs.

    Privacy
    -------
    A plain subsample: nothing is noised.

    Examples
    --------
    >>> import numpy as np
    >>> from skdpot.datasets import one_point_a_person
    >>> X, t = one_point_a_person(np.zeros((100, 3, 2)), [0.0, 0.5, 1.0], random_state=0)
    >>> X.shape, t.shape
    ((100, 2), (100,))
    """
    with np.errstate(all="ignore"):  # infinities are refused, and their sum need not warn
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


def rows_a_time(n_per_time: int | ArrayLike, n_times: int) -> np.ndarray:
    """Return the number of rows at each time.

    Parameters
    ----------
    n_per_time : int or array-like of shape (n_times,)
        One number for all times, or one each.
    n_times : int
        Number of times.

    Returns
    -------
    ndarray of int64 of shape (n_times,)
        Numbers of rows, all at least 1.

    Raises
    ------
    TypeError, ValueError
        If a number is no integer, or less than 1, or there are not n_times of them.
    """
    n_times = check_count(n_times, "n_times", least=1)
    counts = np.asarray(n_per_time)
    if counts.dtype.kind not in "iu":
        raise TypeError("n_per_time must be an integer, or one integer a time.")
    if counts.ndim:
        check_consistent_length(counts, np.empty(n_times))
    if counts.ndim > 1 or counts.min() < 1:
        raise ValueError("n_per_time must be at least 1: one number, or one a time.")
    rows: np.ndarray = np.broadcast_to(counts, n_times).astype(np.int64)
    check_count(sum(rows.tolist()), "The sum of n_per_time", least=1)
    return rows


def _even_branches(n: int, rng: np.random.Generator) -> np.ndarray:
    """Return n branches in random order, in equal numbers; what remains of n falls anywhere."""
    names = rng.permutation(_N_BRANCHES)
    return rng.permutation(names[np.arange(n) % _N_BRANCHES])


def _centers(times: np.ndarray) -> np.ndarray:
    """Return where the branches are, (..., 3, 2) for times of shape (...)."""
    angle = np.pi * times
    arc_x, arc_y = -np.cos(angle), np.sin(angle)
    line = 2 * times - 1
    x = np.stack([arc_x, line, arc_x], axis=-1)
    y = np.stack([arc_y, np.zeros_like(times), -arc_y], axis=-1)
    return np.stack([x, y], axis=-1)


def _unit_times(times: ArrayLike) -> np.ndarray:
    """Return float64 times in [0, 1], where the branches are defined."""
    must = "must lie in [0, 1]: the branches start at 0 and end at 1."
    stamps = as_finite(times, "times", must)
    if not np.all((stamps >= 0) & (stamps <= 1)):
        raise ValueError(f"times {must}")
    return stamps


def _deviation(noise_variance: float) -> float:
    """Return the standard deviation of a checked variance."""
    variance = check_scalar(noise_variance, "noise_variance", Real)
    if not 0 <= variance < np.inf:
        raise ValueError(f"noise_variance={variance!r} must be finite and at least 0.")
    return float(np.sqrt(variance))
