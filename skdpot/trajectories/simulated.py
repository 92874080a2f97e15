"""People on moving clusters or on an Ornstein-Uhlenbeck process, with one point per person."""

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any, Self

import numpy as np
from numpy.typing import ArrayLike
from scipy import stats
from sklearn.utils import check_array

from skdpot._utils.validation import (
    as_finite,
    check_count,
    check_covariance,
    check_real,
    solver_generator,
)

_FAR = 1e100


@dataclass(frozen=True, eq=False)
class MovingClusters:
    """Law of people in clusters that move from time 0 to time 1, in equal numbers.

    A person stays in one cluster and keeps the same normal displacement from its centre. How the
    points of one person are related is a choice: data with one point per person do not determine
    it.
    """

    centers: Callable[[np.ndarray], np.ndarray]  # times (...) to centres (..., n_clusters, d)
    noise_variance: float

    def sample(
        self, n_per_time: int | ArrayLike, n_times: int, random_state: Any
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
        rows = np.clip(rows, -_FAR, _FAR)  # so far away that the angle to centres is all there is
        return np.argmin(np.sum((rows[..., np.newaxis, :] - centers) ** 2, axis=-1), axis=-1)

    def _even_clusters(self, n: int, rng: np.random.Generator) -> np.ndarray:
        """Return n clusters in random order, in equal numbers; what remains of n falls anywhere."""
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
    """Draw whole paths of the people of `make_branching_trajectories`."""
    law = MovingClusters(_branches, noise_variance)
    return law.sample_paths(n_paths, times, solver_generator(random_state))


def branch_of(points: ArrayLike, times: ArrayLike) -> np.ndarray:
    """Return the branch whose centre is nearest at the time of each point."""
    return MovingClusters(_branches, 0.0).cluster_of(points, times)


def _branches(times: np.ndarray) -> np.ndarray:
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
    """Make points of people on a way that forks, each person observed once.

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


def rows_per_time(n_per_time: int | ArrayLike, n_times: int) -> np.ndarray:
    """Return the number of rows at each time."""
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
    """Return float64 times from 0, where a process starts, to `last`."""
    must = "must be finite and at least 0, where the process starts."
    if last == 1.0:
        must = "must lie in [0, 1]: the branches start at 0 and end at 1."
    stamps = as_finite(times, "times", must)
    if np.any((stamps < 0) | (stamps > last)):
        raise ValueError(f"times {must}")
    return stamps


@dataclass(frozen=True, eq=False)
class OrnsteinUhlenbeck:
    """Law of the process ``dX = (Ω − θ)(X − c) dt + √τ dB`` that starts from a normal distribution.

    Every marginal is normal, and so is every path at finitely many times. Without rotation, Ω = 0,
    the drift is the gradient of ``−θ‖x − c‖²/2``. Ω rotates the planes of the first two, the next
    two ... features, in which θ is one number. For Ω = 0 and θ = 0 the process is a Brownian
    motion.

    References
    ----------
    Uhlenbeck and Ornstein, "On the theory of the Brownian motion", Physical Review, 1930.
    """

    mean_reversion: np.ndarray
    rotation: np.ndarray
    mean_level: np.ndarray
    diffusivity: float
    initial_mean: np.ndarray
    initial_covariance: np.ndarray

    @classmethod
    def of(
        cls,
        *,
        n_features: int | None = None,
        mean_reversion: ArrayLike = 2.0,
        rotation: ArrayLike = 0.0,
        mean: ArrayLike = 0.0,
        diffusivity: float = 0.1,
        initial_mean: ArrayLike = 1.0,
        initial_covariance: ArrayLike = 0.05,
    ) -> Self:
        """Make a law from numbers, rows or matrices; rotations are radians per unit of time."""
        covariance = as_finite(initial_covariance, "initial_covariance", "must be finite.")
        given = {"mean_reversion": mean_reversion, "mean": mean, "initial_mean": initial_mean}
        vectors = {name: as_finite(row, name, "must be finite.") for name, row in given.items()}
        if n_features is None:
            n_features = max(len(np.atleast_1d(row)) for row in (covariance, *vectors.values()))
        n_features = check_count(n_features, "n_features")
        vectors = {name: _as_row(row, name, n_features) for name, row in vectors.items()}
        if (vectors["mean_reversion"] < 0).any():
            raise ValueError("mean_reversion must be at least 0 in every coordinate.")
        n_planes = n_features // 2
        turning = as_finite(rotation, "rotation", "must be finite.")
        turning = _as_row(turning, "rotation", n_planes)
        planes = vectors["mean_reversion"][: 2 * n_planes].reshape(n_planes, 2)
        if (planes[:, 0] != planes[:, 1])[turning != 0].any():
            raise ValueError("mean_reversion must be one number in each plane that rotates.")
        return cls(
            mean_reversion=vectors["mean_reversion"],
            rotation=turning,
            mean_level=vectors["mean"],
            diffusivity=check_real(diffusivity, "diffusivity"),
            initial_mean=vectors["initial_mean"],
            initial_covariance=_as_covariance(covariance, n_features),
        )

    @property
    def n_features(self) -> int:
        """Dimension d."""
        return len(self.initial_mean)

    def mean(self, times: ArrayLike) -> np.ndarray:
        """Mean at each time."""
        stamps = process_times(times)
        gap = self.initial_mean - self.mean_level
        return self.mean_level + self._decay(stamps) @ gap

    def covariance(self, times: ArrayLike) -> np.ndarray:
        """Covariance of the marginal at each time."""
        return self.cross_covariance(times, times)

    def cross_covariance(self, first: ArrayLike, second: ArrayLike) -> np.ndarray:
        """Covariance between the points of one path at two times."""
        s, t = np.broadcast_arrays(process_times(first), process_times(second))
        inherited = self._decay(s) @ self.initial_covariance @ _transposed(self._decay(t))
        shared = self._added_variance(np.minimum(s, t))[..., np.newaxis]
        # One of the two is later, and the decay of no time is one.
        before, after = self._decay(np.maximum(s - t, 0.0)), self._decay(np.maximum(t - s, 0.0))
        return inherited + before @ (shared * _transposed(after))

    def density(self, X: ArrayLike, time: float) -> np.ndarray:
        """Density of the marginal at one time."""
        points = np.atleast_2d(as_finite(X, "X"))
        if points.ndim != 2 or points.shape[1] != self.n_features:
            raise ValueError(f"X must have shape (n, {self.n_features}); got {points.shape}.")
        covariance = self.covariance(time)
        if np.linalg.matrix_rank(covariance) < self.n_features:
            raise ValueError(f"The marginal at time {time!r} is degenerate: it has no density.")
        marginal = stats.multivariate_normal(self.mean(time), covariance)
        with np.errstate(over="ignore"):  # far away, where the density is 0
            return np.atleast_1d(marginal.pdf(points))

    def sample_paths(self, n_paths: int, times: ArrayLike, rng: np.random.Generator) -> np.ndarray:
        """Draw paths, with the exact transition from one time to the next."""
        n_paths = check_count(n_paths, "n_paths")
        stamps, order = np.unique(np.atleast_1d(process_times(times)), return_inverse=True)
        values, vectors = np.linalg.eigh(self.initial_covariance)
        root = vectors * np.sqrt(np.maximum(values, 0.0))
        noise = rng.standard_normal((n_paths, len(stamps) + 1, self.n_features))
        # Distances from the level c; the first column of noise is the start.
        current = self.initial_mean - self.mean_level + noise[:, 0] @ root.T
        paths = np.empty((n_paths, len(stamps), self.n_features))
        for k, wait in enumerate(np.diff(stamps, prepend=0.0)):
            spread = np.sqrt(self._added_variance(wait))
            current = current @ self._decay(wait).T + spread * noise[:, k + 1]
            paths[:, k] = self.mean_level + current
        return paths[:, order]

    def _decay(self, waits: np.ndarray) -> np.ndarray:
        """Map from the distance from c to what is left after each wait; (..., d, d)."""
        waits = np.asarray(waits)
        left = np.exp(-np.multiply.outer(waits, self.mean_reversion))
        decay = left[..., np.newaxis] * np.eye(self.n_features)
        angles = np.multiply.outer(waits, self.rotation)
        first = np.arange(0, 2 * len(self.rotation), 2)
        decay[..., first, first + 1] = -left[..., first] * np.sin(angles)
        decay[..., first + 1, first] = left[..., first] * np.sin(angles)
        decay[..., first, first] *= np.cos(angles)
        decay[..., first + 1, first + 1] *= np.cos(angles)
        return decay

    def _added_variance(self, waits: np.ndarray) -> np.ndarray:
        """Variance that the noise of each wait leaves behind, ``τ(1 − e^(−2θs))/(2θ)``."""
        rate = 2 * self.mean_reversion
        brownian = rate == 0
        safe = np.where(brownian, 1.0, rate)
        reverting = -np.expm1(-np.multiply.outer(waits, rate)) / safe
        growth = np.multiply.outer(waits, np.ones_like(rate))
        return self.diffusivity * np.where(brownian, growth, reverting)


def make_ornstein_uhlenbeck_trajectories(
    n_per_time: int | ArrayLike = 1000,
    n_times: int = 10,
    *,
    n_features: int = 2,
    duration: float = 1.0,
    random_state: int | np.random.RandomState | None = None,
    **law: Any,
) -> tuple[np.ndarray, np.ndarray, OrnsteinUhlenbeck]:
    """Make points of independent Ornstein-Uhlenbeck paths, each path observed once.

    The process is ``dX = (Ω − θ)(X − c) dt + √τ dB``, where Ω rotates the planes of the features
    (0, 1), (2, 3) ... . The law is returned with the data, so that
    recovered marginals and paths can be compared with the true ones.

    Parameters
    ----------
    n_per_time : int or array-like of shape (n_times,), default=1000
        Number of people observed at each time.
    n_times : int, default=10
        Number of time stamps T, equally spaced from 0 to `duration`.
    n_features : int, default=2
        Dimension d.
    duration : float, default=1.0
        Last time stamp.
    random_state : int, RandomState or None, default=None
        Makes the data reproducible.
    **law : float or array-like
        Parameters of `OrnsteinUhlenbeck.of`: `mean_reversion` and `mean`, `diffusivity`,
        `initial_mean` and `initial_covariance`; `rotation`, in radians per unit of time, one
        number or one per plane.

    Returns
    -------
    X : ndarray of shape (n, d)
        One point per person.
    t : ndarray of shape (n,)
        Their time stamps, in increasing order.
    law : OrnsteinUhlenbeck
        The law of the paths.

    Raises
    ------
    TypeError, ValueError
        If a parameter is of another type or out of its range.

    Privacy
    -------
    The data are synthetic.

    Examples
    --------
    >>> from skdpot.datasets import make_ornstein_uhlenbeck_trajectories
    >>> X, t, law = make_ornstein_uhlenbeck_trajectories(500, 4, random_state=0)
    >>> X.shape
    (2000, 2)
    >>> bool(abs(X[t == 1.0].mean(axis=0) - law.mean(1.0)).max() < 0.1)
    True
    """
    counts = rows_per_time(n_per_time, n_times)
    duration = check_real(duration, "duration", positive=True)
    process = OrnsteinUhlenbeck.of(n_features=n_features, **law)
    rng = solver_generator(random_state)
    times = np.linspace(0.0, duration, len(counts))
    parts = [
        process.sample_paths(int(count), [time], rng)[:, 0]
        for count, time in zip(counts, times, strict=True)
    ]
    return np.concatenate(parts), np.repeat(times, counts), process


def _transposed(matrices: np.ndarray) -> np.ndarray:
    return np.swapaxes(matrices, -1, -2)


def _as_row(vector: np.ndarray, name: str, n_features: int) -> np.ndarray:
    if vector.shape not in ((), (1,), (n_features,)):
        raise ValueError(
            f"{name} must be a number or have shape ({n_features},); got {vector.shape}."
        )
    return np.broadcast_to(vector, n_features).copy()


def _as_covariance(covariance: np.ndarray, n_features: int) -> np.ndarray:
    """Return a covariance from a variance, from variances, or from itself."""
    if covariance.ndim < 2:
        covariance = np.diag(_as_row(covariance, "initial_covariance", n_features))
    if covariance.shape != (n_features, n_features):
        raise ValueError(
            f"initial_covariance must be a number or have shape ({n_features},) or "
            f"({n_features}, {n_features}); got {covariance.shape}."
        )
    check_covariance(covariance, "initial_covariance")
    return covariance.copy()
