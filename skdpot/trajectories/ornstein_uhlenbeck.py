"""Made-up people on Ornstein-Uhlenbeck processes, with the law of their paths."""

from dataclasses import dataclass
from typing import Any, Self

import numpy as np
from numpy.typing import ArrayLike
from scipy import stats

from skdpot._utils.arguments import check_count, check_covariance, check_real
from skdpot._utils.finite import as_finite
from skdpot._utils.streams import solver_generator
from skdpot.trajectories.observed_once import process_times, rows_per_time


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
        vectors = {
            name: as_finite(row, name, "must be finite.")
            for name, row in (
                ("mean_reversion", mean_reversion),
                ("mean", mean),
                ("initial_mean", initial_mean),
            )
        }
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
        # Only the earlier of the two points decays; the decay over no time is the identity.
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
        # Distances from the level c; the first column of noise is that of the start.
        current = self.initial_mean - self.mean_level + noise[:, 0] @ root.T
        paths = np.empty((n_paths, len(stamps), self.n_features))
        for k, wait in enumerate(np.diff(stamps, prepend=0.0)):
            spread = np.sqrt(self._added_variance(wait))
            current = current @ self._decay(wait).T + spread * noise[:, k + 1]
            paths[:, k] = self.mean_level + current
        return paths[:, order]

    def _decay(self, waits: np.ndarray) -> np.ndarray:
        """Return the linear maps of the distance from c over each wait, (..., d, d)."""
        waits = np.asarray(waits)
        shrunk = np.exp(-np.multiply.outer(waits, self.mean_reversion))
        decay = shrunk[..., np.newaxis] * np.eye(self.n_features)
        angles = np.multiply.outer(waits, self.rotation)
        first = np.arange(0, 2 * len(self.rotation), 2)
        decay[..., first, first + 1] = -shrunk[..., first] * np.sin(angles)
        decay[..., first + 1, first] = shrunk[..., first] * np.sin(angles)
        decay[..., first, first] *= np.cos(angles)
        decay[..., first + 1, first + 1] *= np.cos(angles)
        return decay

    def _added_variance(self, waits: np.ndarray) -> np.ndarray:
        """Return the variance added by the noise of each wait s, ``τ(1 − e^(−2θs))/(2θ)``."""
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
    """Transpose the last two axes."""
    return np.swapaxes(matrices, -1, -2)


def _as_row(vector: np.ndarray, name: str, n_features: int) -> np.ndarray:
    """Return a number, or a row, as a row of n_features numbers."""
    if vector.shape not in ((), (1,), (n_features,)):
        raise ValueError(
            f"{name} must be a number or have shape ({n_features},); got {vector.shape}."
        )
    return np.broadcast_to(vector, n_features).copy()


def _as_covariance(covariance: np.ndarray, n_features: int) -> np.ndarray:
    """Return a covariance matrix, made of a number, a row of variances, or a matrix."""
    if covariance.ndim < 2:
        covariance = np.diag(_as_row(covariance, "initial_covariance", n_features))
    if covariance.shape != (n_features, n_features):
        raise ValueError(
            f"initial_covariance must be a number or have shape ({n_features},) or "
            f"({n_features}, {n_features}); got {covariance.shape}."
        )
    check_covariance(covariance, "initial_covariance")
    return covariance.copy()
