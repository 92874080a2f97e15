"""Made-up people in clusters that move: branches, spirals and forks."""

from collections.abc import Callable
from dataclasses import dataclass

import numpy as np
from numpy.typing import ArrayLike

from skdpot._utils.arguments import check_count, check_real
from skdpot._utils.finite import as_finite
from skdpot._utils.streams import solver_generator
from skdpot.trajectories.observed_once import process_times, rows_per_time

# Points further away are clipped: only their angle to the centres matters.
_FAR = 1e100


@dataclass(frozen=True, eq=False)
class MovingClusters:
    """Law of people in clusters that move from time 0 to time 1, in equal numbers.

    A person stays in one cluster, at a constant normal displacement from its centre. This relation
    between the points of one person is a choice: data with one point per person do not determine
    it.
    """

    centers: Callable[[np.ndarray], np.ndarray]  # times (...) to centres (..., n_clusters, d)
    noise_variance: float

    def sample(
        self,
        n_per_time: int | ArrayLike,
        n_times: int,
        random_state: int | np.random.RandomState | None,
    ) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
        """Draw people who are observed once: points, times and clusters."""
        counts = rows_per_time(n_per_time, n_times)
        deviation = np.sqrt(check_real(self.noise_variance, "noise_variance"))
        rng = solver_generator(random_state)
        t = np.repeat(np.linspace(0.0, 1.0, len(counts)), counts)
        cluster = np.concatenate([self._even_clusters(count, rng) for count in counts])
        centers = self.centers(t)
        centers = np.take_along_axis(centers, cluster[:, np.newaxis, np.newaxis], axis=1)[:, 0]
        return centers + deviation * rng.standard_normal(centers.shape), t, cluster

    def sample_paths(
        self, n_paths: int, times: ArrayLike, rng: np.random.Generator
    ) -> tuple[np.ndarray, np.ndarray]:
        """Draw whole paths, shape (n_paths, n_times, d), and their clusters."""
        n_paths = check_count(n_paths, "n_paths")
        deviation = np.sqrt(check_real(self.noise_variance, "noise_variance"))
        stamps = np.atleast_1d(process_times(times, 1.0))
        if stamps.ndim != 1 or not len(stamps):
            raise ValueError(f"times must have shape (n_times,), at least one; got {stamps.shape}.")
        cluster = self._even_clusters(n_paths, rng)
        centers = np.moveaxis(self.centers(stamps), 1, 0)[cluster]
        noise = rng.standard_normal((n_paths, 1, centers.shape[2]))
        return centers + deviation * noise, cluster

    def cluster_of(self, points: ArrayLike, times: ArrayLike) -> np.ndarray:
        """Return the cluster whose centre is nearest at the time of each point."""
        rows, centers = as_finite(points, "points"), self.centers(process_times(times, 1.0))
        if rows.ndim == 0 or rows.shape[-1] != centers.shape[-1]:
            raise ValueError(
                f"points must have shape (..., {centers.shape[-1]}); got {rows.shape}."
            )
        rows = np.clip(rows, -_FAR, _FAR)
        return np.argmin(np.sum((rows[..., np.newaxis, :] - centers) ** 2, axis=-1), axis=-1)

    def _even_clusters(self, n: int, rng: np.random.Generator) -> np.ndarray:
        """Return n clusters in random order, in numbers that differ by at most one."""
        names = rng.permutation(self.centers(np.zeros(())).shape[0])
        return rng.permutation(names[np.arange(n) % len(names)])


def make_branching_trajectories(
    n_per_time: int | ArrayLike = 3000,
    n_times: int = 10,
    *,
    noise_variance: float = 0.005,
    random_state: int | np.random.RandomState | None = None,
) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
    """Make points of people on three branches, each person observed once.

    All branches lead from (−1, 0) at time 0 to (1, 0) at time 1, each at constant speed: the
    upper half of the unit circle, the straight line, and the lower half. At every time a third
    of the people is on each branch, displaced by normal noise.

    Parameters
    ----------
    n_per_time : int or array-like of shape (n_times,), default=3000
        Number of people observed at each time.
    n_times : int, default=10
        Number of time stamps T, equally spaced from 0 to 1.
    noise_variance : float, default=0.005
        Variance of the displacement in each coordinate.
    random_state : int, RandomState or None, default=None
        Makes the data reproducible.

    Returns
    -------
    X : ndarray of shape (n, 2)
        One point per person.
    t : ndarray of shape (n,)
        Their time stamps, in increasing order.
    branch : ndarray of shape (n,)
        Their branches: 0 upper, 1 straight, 2 lower. At each time the numbers of people on two
        branches differ by at most one.

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
    The data are synthetic.

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
    return MovingClusters(_branches, noise_variance).sample(n_per_time, n_times, random_state)


def branching_paths(
    n_paths: int,
    times: ArrayLike,
    *,
    noise_variance: float = 0.005,
    random_state: int | np.random.RandomState | None = None,
) -> tuple[np.ndarray, np.ndarray]:
    """Draw whole paths of the people of `make_branching_trajectories`, and their branches."""
    law = MovingClusters(_branches, noise_variance)
    return law.sample_paths(n_paths, times, solver_generator(random_state))


def branch_of(points: ArrayLike, times: ArrayLike) -> np.ndarray:
    """Return the branch whose centre is nearest at the time of each point."""
    return MovingClusters(_branches, 0.0).cluster_of(points, times)


def _branches(times: np.ndarray) -> np.ndarray:
    """Return the centres of the three branches at times (...), shape (..., 3, 2)."""
    angle = np.pi * times
    arc_x, arc_y = -np.cos(angle), np.sin(angle)
    line = 2 * times - 1
    x = np.stack([arc_x, line, arc_x], axis=-1)
    y = np.stack([arc_y, np.zeros_like(times), -arc_y], axis=-1)
    return np.stack([x, y], axis=-1)


def make_spiral_trajectories(
    n_per_time: int | ArrayLike = 400,
    n_times: int = 12,
    *,
    turns: float = 1.0,
    noise_variance: float = 0.01,
    random_state: int | np.random.RandomState | None = None,
) -> tuple[np.ndarray, np.ndarray, np.ndarray, MovingClusters]:
    """Make points of people on two arms of a spiral, each person observed once.

    Two clusters, always opposite to each other, circle the origin while their distance from it
    grows from 0.35 at time 0 to 1 at time 1. They pass each other along every direction, so that a
    method that follows quantiles along directions exchanges them.

    Parameters
    ----------
    n_per_time : int or array-like of shape (n_times,), default=400
        Number of people observed at each time.
    n_times : int, default=12
        Number of time stamps T, equally spaced from 0 to 1.
    turns : float, default=1.0
        Number of turns of each cluster, at most 1000. Unless they turn by less than a quarter
        between neighbouring times, the points do not determine which cluster went where.
    noise_variance : float, default=0.01
        Variance of the displacement in each coordinate.
    random_state : int, RandomState or None, default=None
        Makes the data reproducible.

    Returns
    -------
    X : ndarray of shape (n, 2)
        One point per person.
    t : ndarray of shape (n,)
        Their time stamps, in increasing order.
    arm : ndarray of shape (n,)
        Their arms, 0 and 1, in equal numbers at each time (but for one person).
    law : MovingClusters
        The law of the paths: ``sample_paths`` draws whole paths and their arms, ``cluster_of`` the
        arm that is nearest to a point.

    Raises
    ------
    TypeError, ValueError
        If a parameter is of another type or out of its range.

    Privacy
    -------
    The data are synthetic.

    Examples
    --------
    >>> import numpy as np
    >>> from skdpot.datasets import make_spiral_trajectories
    >>> X, t, arm, law = make_spiral_trajectories(random_state=0)
    >>> X.shape
    (4800, 2)
    >>> paths, arm = law.sample_paths(20, [0.0, 0.3, 1.0], np.random.default_rng(0))
    >>> paths.shape
    (20, 3, 2)
    """
    turns = check_real(turns, "turns", most=1000)

    def arms(times: np.ndarray) -> np.ndarray:
        angle = 2 * np.pi * turns * times
        place = (0.35 + 0.65 * times) * np.stack([np.cos(angle), np.sin(angle)])
        return np.stack([np.moveaxis(place, 0, -1), -np.moveaxis(place, 0, -1)], axis=-2)

    law = MovingClusters(arms, noise_variance)
    return *law.sample(n_per_time, n_times, random_state), law


def make_forking_trajectories(
    n_per_time: int | ArrayLike = 400,
    n_times: int = 12,
    *,
    n_features: int = 5,
    noise_variance: float = 0.01,
    random_state: int | np.random.RandomState | None = None,
) -> tuple[np.ndarray, np.ndarray, np.ndarray, MovingClusters]:
    """Make points of people on a path that forks, each person observed once.

    The population moves as one cluster until time 0.3, in a curve, and then divides in two halves
    that go apart at constant speed.

    Parameters
    ----------
    n_per_time : int or array-like of shape (n_times,), default=400
        Number of people observed at each time.
    n_times : int, default=12
        Number of time stamps T, equally spaced from 0 to 1.
    n_features : int, default=5
        Dimension d, at least 3. The population moves in the first three.
    noise_variance : float, default=0.01
        Variance of the displacement in each coordinate.
    random_state : int, RandomState or None, default=None
        Makes the data reproducible.

    Returns
    -------
    X : ndarray of shape (n, n_features)
        One point per person.
    t : ndarray of shape (n,)
        Their time stamps, in increasing order.
    branch : ndarray of shape (n,)
        Their branches, 0 and 1, in equal numbers at each time (but for one person).
    law : MovingClusters
        The law of the paths: ``sample_paths`` draws whole paths and their branches, ``cluster_of``
        the branch that is nearest to a point, which says little before the fork.

    Raises
    ------
    TypeError, ValueError
        If a parameter is of another type or out of its range.

    Privacy
    -------
    The data are synthetic.

    Examples
    --------
    >>> from skdpot.datasets import make_forking_trajectories
    >>> X, t, branch, law = make_forking_trajectories(random_state=0)
    >>> X.shape
    (4800, 5)
    """
    n_features = check_count(n_features, "n_features", least=3)

    def branches(times: np.ndarray) -> np.ndarray:
        centers = np.zeros((*times.shape, 2, n_features))
        centers[..., 0] = (1.6 * times - 0.8)[..., np.newaxis]
        centers[..., 2] = (0.5 * np.sin(np.pi * times))[..., np.newaxis]
        apart = np.maximum(times - 0.3, 0.0)
        centers[..., 1] = np.stack([apart, -apart], axis=-1)
        return centers

    law = MovingClusters(branches, noise_variance)
    return *law.sample(n_per_time, n_times, random_state), law
