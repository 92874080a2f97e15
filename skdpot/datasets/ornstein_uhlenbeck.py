"""Trajectories whose marginals and whose law as a whole are known: Ornstein-Uhlenbeck."""

from dataclasses import dataclass
from numbers import Real
from typing import Self

import numpy as np
from numpy.typing import ArrayLike
from scipy import stats
from sklearn.utils import check_scalar

from skdpot._utils.rng import solver_generator
from skdpot._utils.validation import as_finite
from skdpot.datasets._counts import check_count
from skdpot.datasets.trajectories import rows_a_time

__all__ = ["OrnsteinUhlenbeck", "make_ornstein_uhlenbeck_trajectories"]


@dataclass(frozen=True, eq=False)
class OrnsteinUhlenbeck:
    """Law of the process ``dX = −θ(X − c) dt + √τ dB`` that starts from a normal distribution.

    Every marginal is normal, and so is every path at finitely many times. The drift is the
    gradient of ``−θ‖x − c‖²/2``. For θ = 0 the process is a Brownian motion.

    Parameters
    ----------
    mean_reversion : ndarray of shape (d,)
        θ of each coordinate, at least 0, per unit of time.
    mean_level : ndarray of shape (d,)
        The point c to which the process returns.
    diffusivity : float
        Variance τ that the noise adds to each coordinate per unit of time; at least 0.
    initial_mean : ndarray of shape (d,)
        Mean at time 0.
    initial_covariance : ndarray of shape (d, d)
        Covariance at time 0; symmetric, without negative eigenvalues.

    See Also
    --------
    make_ornstein_uhlenbeck_trajectories : One point a person of such a process.

    References
    ----------
    Uhlenbeck and Ornstein, "On the theory of the Brownian motion", Physical Review, 1930.

    Examples
    --------
    >>> from skdpot.datasets import OrnsteinUhlenbeck
    >>> law = OrnsteinUhlenbeck.of(mean_reversion=2.0, initial_mean=[1.0, 0.0], diffusivity=0.4)
    >>> law.mean(0.5).round(3)
    array([0.368, 0.   ])
    >>> law.covariance(100.0).round(3)
    array([[0.1, 0. ],
           [0. , 0.1]])
    """

    mean_reversion: np.ndarray
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
        mean: ArrayLike = 0.0,
        diffusivity: float = 0.1,
        initial_mean: ArrayLike = 1.0,
        initial_covariance: ArrayLike = 0.05,
    ) -> Self:
        """Make a law from numbers, rows or matrices, whichever is handy.

        Parameters
        ----------
        n_features : int, optional
            Dimension d; by default that of the longest parameter, 1 if all are numbers.
        mean_reversion, mean, initial_mean : float or array-like of shape (d,)
            θ, c and the mean at time 0.
        diffusivity : float, default=0.1
            τ, see the class.
        initial_covariance : float or array-like of shape (d,) or (d, d), default=0.05
            A variance, a variance a coordinate, or a covariance.

        Returns
        -------
        OrnsteinUhlenbeck
            The law.

        Raises
        ------
        TypeError, ValueError
            If a parameter is of another type, out of its range or of another length.
        """
        covariance = np.asarray(initial_covariance, dtype=np.float64)
        vectors = {
            "mean_reversion": np.asarray(mean_reversion, dtype=np.float64),
            "mean": np.asarray(mean, dtype=np.float64),
            "initial_mean": np.asarray(initial_mean, dtype=np.float64),
        }
        if n_features is None:
            n_features = max(len(np.atleast_1d(row)) for row in (covariance, *vectors.values()))
        n_features = check_count(n_features, "n_features", least=1)
        for name, vector in vectors.items():
            vectors[name] = _as_row(vector, name, n_features)
        if (vectors["mean_reversion"] < 0).any():
            raise ValueError("mean_reversion must be at least 0 in every coordinate.")
        # Written so that a NaN is refused as well.
        if not 0 <= check_scalar(diffusivity, "diffusivity", Real) < np.inf:
            raise ValueError(f"diffusivity={diffusivity!r} must be finite and at least 0.")
        return cls(
            mean_reversion=vectors["mean_reversion"],
            mean_level=vectors["mean"],
            diffusivity=float(diffusivity),
            initial_mean=vectors["initial_mean"],
            initial_covariance=_as_covariance(covariance, n_features),
        )

    @property
    def n_features(self) -> int:
        """Dimension d."""
        return len(self.initial_mean)

    def mean(self, times: ArrayLike) -> np.ndarray:
        """Mean at each time.

        Parameters
        ----------
        times : float or array-like
            Times, at least 0.

        Returns
        -------
        ndarray of shape (..., d)
            Means, ``c + e^(−θt)·(m − c)`` with m the mean at time 0.
        """
        stamps = _as_times(times)
        gap = self.initial_mean - self.mean_level
        return self.mean_level + self._decay(stamps) * gap

    def covariance(self, times: ArrayLike) -> np.ndarray:
        """Covariance of the marginal at each time.

        Parameters
        ----------
        times : float or array-like
            Times, at least 0.

        Returns
        -------
        ndarray of shape (..., d, d)
            Covariances.
        """
        return self.cross_covariance(times, times)

    def cross_covariance(self, first: ArrayLike, second: ArrayLike) -> np.ndarray:
        """Covariance between the points of one path at two times.

        Parameters
        ----------
        first, second : float or array-like
            Times, at least 0; broadcast against each other, so that
            ``cross_covariance(times[:, None], times)`` is the covariance of a whole path.

        Returns
        -------
        ndarray of shape (..., d, d)
            ``E[(X_s − E X_s)(X_t − E X_t)ᵀ]``.
        """
        s, t = np.broadcast_arrays(_as_times(first), _as_times(second))
        inherited = (
            self._decay(s)[..., :, np.newaxis]
            * self.initial_covariance
            * self._decay(t)[..., np.newaxis, :]
        )
        added = self._decay(np.abs(t - s)) * self._added_variance(np.minimum(s, t))
        return inherited + added[..., np.newaxis] * np.eye(self.n_features)

    def density(self, X: ArrayLike, time: float) -> np.ndarray:
        """Density of the marginal at one time.

        Parameters
        ----------
        X : array-like of shape (n, d)
            Points.
        time : float
            Time, at least 0.

        Returns
        -------
        ndarray of shape (n,)
            Densities.

        Raises
        ------
        ValueError
            If the points have another dimension, or the marginal has no density.
        """
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
        """Draw paths, with the exact transition from one time to the next.

        Parameters
        ----------
        n_paths : int
            Number of paths.
        times : array-like of shape (n_times,)
            Times, at least 0, in any order; at a time that occurs twice a path has one point.
        rng : numpy.random.Generator
            Source of randomness.

        Returns
        -------
        ndarray of shape (n_paths, n_times, d)
            Points of each path, in the order of `times`.

        Raises
        ------
        ValueError
            If `n_paths` is less than 1 or a time is negative.
        """
        n_paths = check_count(n_paths, "n_paths", least=1)
        stamps, order = np.unique(np.atleast_1d(_as_times(times)), return_inverse=True)
        values, vectors = np.linalg.eigh(self.initial_covariance)
        root = vectors * np.sqrt(np.maximum(values, 0.0))
        noise = rng.standard_normal((n_paths, len(stamps) + 1, self.n_features))
        # Distances from the level c; the first column of noise is the start.
        current = self.initial_mean - self.mean_level + noise[:, 0] @ root.T
        paths = np.empty((n_paths, len(stamps), self.n_features))
        for k, wait in enumerate(np.diff(stamps, prepend=0.0)):
            spread = np.sqrt(self._added_variance(wait))
            current = self._decay(wait) * current + spread * noise[:, k + 1]
            paths[:, k] = self.mean_level + current
        return paths[:, order]

    def _decay(self, waits: np.ndarray) -> np.ndarray:
        """Share of the distance from c that is left after each wait; (..., d)."""
        decay: np.ndarray = np.exp(-np.multiply.outer(waits, self.mean_reversion))
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
    mean_reversion: ArrayLike = 2.0,
    mean: ArrayLike = 0.0,
    diffusivity: float = 0.1,
    initial_mean: ArrayLike = 1.0,
    initial_covariance: ArrayLike = 0.05,
    random_state: int | np.random.RandomState | None = None,
) -> tuple[np.ndarray, np.ndarray, OrnsteinUhlenbeck]:
    """Make points of independent Ornstein-Uhlenbeck paths, each of them seen once.

    The process is ``dX = −θ(X − c) dt + √τ dB``. The law comes with the data, so that what is
    recovered can be compared with the truth: marginals and whole paths.

    Parameters
    ----------
    n_per_time : int or array-like of shape (n_times,), default=1000
        Number of people seen at each time.
    n_times : int, default=10
        Number of time stamps T, equally spaced from 0 to `duration`.
    n_features : int, default=2
        Dimension d.
    duration : float, default=1.0
        Last time stamp.
    mean_reversion : float or array-like of shape (d,), default=2.0
        θ, at least 0.
    mean : float or array-like of shape (d,), default=0.0
        The level c to which paths return.
    diffusivity : float, default=0.1
        τ: variance that the noise adds to each coordinate per unit of time.
    initial_mean : float or array-like of shape (d,), default=1.0
        Mean at time 0.
    initial_covariance : float or array-like of shape (d,) or (d, d), default=0.05
        A variance, a variance a coordinate, or a covariance at time 0.
    random_state : int, RandomState or None, default=None
        Makes the data reproducible.

    Returns
    -------
    X : ndarray of shape (n, d)
        One point a person.
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
    Made-up data belong to nobody.

    Examples
    --------
    >>> from skdpot.datasets import make_ornstein_uhlenbeck_trajectories
    >>> X, t, law = make_ornstein_uhlenbeck_trajectories(500, 4, random_state=0)
    >>> X.shape
    (2000, 2)
    >>> bool(abs(X[t == 1.0].mean(axis=0) - law.mean(1.0)).max() < 0.1)
    True
    """
    counts = rows_a_time(n_per_time, n_times)
    if not 0 < check_scalar(duration, "duration", Real) < np.inf:
        raise ValueError(f"duration={duration!r} must be finite and above 0.")
    law = OrnsteinUhlenbeck.of(
        n_features=n_features,
        mean_reversion=mean_reversion,
        mean=mean,
        diffusivity=diffusivity,
        initial_mean=initial_mean,
        initial_covariance=initial_covariance,
    )
    rng = solver_generator(random_state)
    times = np.linspace(0.0, duration, len(counts))
    parts = [
        law.sample_paths(int(count), [time], rng)[:, 0]
        for count, time in zip(counts, times, strict=True)
    ]
    return np.concatenate(parts), np.repeat(times, counts), law


def _as_row(vector: np.ndarray, name: str, n_features: int) -> np.ndarray:
    """Return d finite numbers from one or from d."""
    if vector.shape not in ((), (1,), (n_features,)):
        raise ValueError(
            f"{name} must be a number or have shape ({n_features},); got {vector.shape}."
        )
    if not np.isfinite(vector).all():
        raise ValueError(f"{name} must be finite.")
    return np.broadcast_to(vector, n_features).copy()


def _as_covariance(covariance: np.ndarray, n_features: int) -> np.ndarray:
    """Return a covariance from a variance, from variances, or from itself."""
    if covariance.ndim < 2:
        covariance = np.diag(_as_row(covariance, "initial_covariance", n_features))
    if covariance.shape != (n_features, n_features) or not np.isfinite(covariance).all():
        raise ValueError(
            f"initial_covariance must be a finite number or have shape ({n_features},) or "
            f"({n_features}, {n_features}); got {covariance.shape}."
        )
    largest = float(np.abs(covariance).max())
    symmetric = np.allclose(covariance, covariance.T, rtol=0.0, atol=1e-12 * largest)
    if not symmetric or np.linalg.eigvalsh(covariance)[0] < -1e-12 * largest:
        raise ValueError("initial_covariance must be symmetric, without negative eigenvalues.")
    return covariance.copy()


def _as_times(times: ArrayLike) -> np.ndarray:
    """Return finite float64 times of at least 0, where the process starts."""
    must = "must be finite and at least 0, where the process starts."
    stamps = as_finite(times, "times", must)
    if not np.all(stamps >= 0):
        raise ValueError(f"times {must}")
    return stamps
