"""Synthetic data sets with known bias, and trajectories with one point per person."""

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

__all__ = [
    "make_biased_classification",
    "make_biased_regression",
    "make_branching_trajectories",
    "make_ornstein_uhlenbeck_trajectories",
    "one_point_per_person",
]


def make_biased_classification(
    n_samples: int = 30_000,
    *,
    alignment: float = 0.7,
    n_core: int = 8,
    n_spurious: int = 8,
    core_variance: float = 0.2,
    spurious_variance: float = 0.4,
    random_state: int | np.random.RandomState | None = None,
) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
    """Make a binary task whose classes are unevenly spread over two groups.

    A response r is uniform on the unit square, and the class is ``y = 1`` above the diagonal
    ``r_1 + r_2 = 1``. The group equals the class with probability `alignment`. Core features repeat
    the response and spurious features the group, with independent normal noise. A model that trusts
    spurious features is right for most rows, and its errors fall on rows whose group and class
    differ.

    Parameters
    ----------
    n_samples : int, default=30000
        Number of rows.
    alignment : float, default=0.7
        Probability p that group and class are equal, in [0, 1]; at 0.5 they are independent.
        A perfect classifier has the (directed) disparate impact ``(1 − p) / p``.
    n_core : int, default=8
        Number of core features; even, for they alternate between r_1 and r_2.
    n_spurious : int, default=8
        Number of spurious features.
    core_variance, spurious_variance : float, default=0.2, 0.4
        Variances of the noise.
    random_state : int, RandomState or None, default=None
        Makes the data reproducible.

    Returns
    -------
    X : ndarray of shape (n_samples, n_core + n_spurious)
        Features, the core ones first.
    y : ndarray of shape (n_samples,)
        Classes 0 and 1, equally likely.
    sensitive_features : ndarray of shape (n_samples,)
        Groups 0 and 1, equally likely.

    Raises
    ------
    TypeError, ValueError
        If a parameter is of another type or out of its range.

    References
    ----------
    D. Rodríguez-Vítores, C. Lalanne, J.-M. Loubes, "Learning with differentially private
    (sliced) Wasserstein gradients", Appendix B; the default values are those of its figures.

    Examples
    --------
    >>> from skdpot.datasets import make_biased_classification
    >>> from skdpot.metrics import disparate_impact
    >>> X, y, sensitive_features = make_biased_classification(random_state=0)
    >>> X.shape
    (30000, 16)
    >>> round(disparate_impact(y, sensitive_features=sensitive_features), 1)
    0.4
    """
    X, response, group = make_biased_regression(
        n_samples,
        alignment=alignment,
        n_core=n_core,
        n_spurious=n_spurious,
        core_variance=core_variance,
        spurious_variance=spurious_variance,
        random_state=random_state,
    )
    return X, _classes(response), group


def make_biased_regression(
    n_samples: int = 30_000,
    *,
    alignment: float = 0.7,
    n_core: int = 8,
    n_spurious: int = 8,
    core_variance: float = 0.2,
    spurious_variance: float = 0.4,
    random_state: int | np.random.RandomState | None = None,
) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
    """Make a task with two outputs whose distributions differ between two groups.

    The rows of `make_biased_classification` for the same parameters and random state, with the
    response r on the unit square as target. Given the group, r lies in the triangle of the group's
    number with probability `alignment`, and is uniform there: triangle 0 lies below the diagonal
    ``r_1 + r_2 = 1`` and triangle 1 above.

    Parameters
    ----------
    n_samples : int, default=30000
        Number of rows.
    alignment : float, default=0.7
        Probability that the response lies in the triangle of its group, in [0, 1].
    n_core : int, default=8
        Number of core features; even, for they alternate between r_1 and r_2.
    n_spurious : int, default=8
        Number of spurious features.
    core_variance, spurious_variance : float, default=0.2, 0.4
        Variances of the noise.
    random_state : int, RandomState or None, default=None
        Makes the data reproducible.

    Returns
    -------
    X : ndarray of shape (n_samples, n_core + n_spurious)
        Features, the core ones first.
    Y : ndarray of shape (n_samples, 2)
        Responses in [0, 1].
    sensitive_features : ndarray of shape (n_samples,)
        Groups 0 and 1, equally likely.

    Raises
    ------
    TypeError, ValueError
        If a parameter is of another type or out of its range.

    Examples
    --------
    >>> from skdpot.datasets import make_biased_regression
    >>> X, Y, sensitive_features = make_biased_regression(random_state=0)
    >>> Y.shape
    (30000, 2)
    >>> bool(Y[sensitive_features == 1].mean() > Y[sensitive_features == 0].mean())
    True
    """
    n_samples = check_count(n_samples, "n_samples")
    n_core = check_count(n_core, "n_core", least=2)
    n_spurious = check_count(n_spurious, "n_spurious", least=0)
    if n_core % 2:
        raise ValueError(
            f"n_core={n_core} must be even: the core features come in pairs, one for each "
            "coordinate of the response."
        )
    alignment = check_real(alignment, "alignment", most=1)
    variances = [
        check_real(core_variance, "core_variance"),
        check_real(spurious_variance, "spurious_variance"),
    ]
    rng = solver_generator(random_state)
    response = rng.random((n_samples, 2))
    label = _classes(response)
    group = np.where(rng.random(n_samples) < alignment, label, 1 - label)
    spurious = np.repeat(group[:, np.newaxis], n_spurious, axis=1)
    X = np.hstack([np.tile(response, n_core // 2), spurious])
    deviations = np.repeat(np.sqrt(variances), [n_core, n_spurious])
    return X + deviations * rng.standard_normal(X.shape), response, group


def _classes(response: np.ndarray) -> np.ndarray:
    """Return 1 above the diagonal of the unit square and 0 below."""
    return np.asarray(response[:, 1] > 1 - response[:, 0], dtype=np.int64)


_N_BRANCHES = 3
_FAR = 1e100


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
    counts = _rows_per_time(n_per_time, n_times)
    deviation = np.sqrt(check_real(noise_variance, "noise_variance"))
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
    people are distributed like the data. How the points of one person are related is a choice:
    data with one point per person do not determine it.
    """
    n_paths = check_count(n_paths, "n_paths")
    deviation = np.sqrt(check_real(noise_variance, "noise_variance"))
    stamps = np.atleast_1d(_times(times, 1.0))
    if stamps.ndim != 1 or not len(stamps):
        raise ValueError(f"times must have shape (n_times,), at least one; got {stamps.shape}.")
    rng = solver_generator(random_state)
    branch = _even_branches(n_paths, rng)
    centers = np.moveaxis(_centers(stamps), 1, 0)[branch]
    return centers + deviation * rng.standard_normal((n_paths, 1, 2)), branch


def branch_of(points: ArrayLike, times: ArrayLike) -> np.ndarray:
    """Return the branch whose centre is nearest at the time of each point."""
    rows = as_finite(points, "points")
    if rows.ndim == 0 or rows.shape[-1] != 2:
        raise ValueError(f"points must have shape (..., 2); got {rows.shape}.")
    rows = np.clip(rows, -_FAR, _FAR)  # so far away that the angle to the branches is all there is
    offsets = rows[..., np.newaxis, :] - _centers(_times(times, 1.0))
    return np.argmin(np.sum(offsets**2, axis=-1), axis=-1)


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


def _rows_per_time(n_per_time: int | ArrayLike, n_times: int) -> np.ndarray:
    n_times = check_count(n_times, "n_times")
    counts = np.asarray(n_per_time)
    if counts.dtype.kind not in "iu":
        raise TypeError("n_per_time must be an integer, or one integer per time.")
    if counts.shape not in ((), (n_times,)) or counts.min() < 1:
        raise ValueError("n_per_time must be at least 1: one number, or one per time.")
    rows: np.ndarray = np.broadcast_to(counts, n_times).astype(np.int64)
    check_count(sum(rows.tolist()), "The sum of n_per_time")
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


def _times(times: ArrayLike, last: float = np.inf) -> np.ndarray:
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
    """Law of the process ``dX = −θ(X − c) dt + √τ dB`` that starts from a normal distribution.

    Every marginal is normal, and so is every path at finitely many times. The drift is the
    gradient of ``−θ‖x − c‖²/2``. For θ = 0 the process is a Brownian motion.

    References
    ----------
    Uhlenbeck and Ornstein, "On the theory of the Brownian motion", Physical Review, 1930.
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
        """Make a law from numbers, rows or matrices."""
        covariance = as_finite(initial_covariance, "initial_covariance", "must be finite.")
        given = {"mean_reversion": mean_reversion, "mean": mean, "initial_mean": initial_mean}
        vectors = {name: as_finite(row, name, "must be finite.") for name, row in given.items()}
        if n_features is None:
            n_features = max(len(np.atleast_1d(row)) for row in (covariance, *vectors.values()))
        n_features = check_count(n_features, "n_features")
        vectors = {name: _as_row(row, name, n_features) for name, row in vectors.items()}
        if (vectors["mean_reversion"] < 0).any():
            raise ValueError("mean_reversion must be at least 0 in every coordinate.")
        return cls(
            mean_reversion=vectors["mean_reversion"],
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
        stamps = _times(times)
        gap = self.initial_mean - self.mean_level
        return self.mean_level + self._decay(stamps) * gap

    def covariance(self, times: ArrayLike) -> np.ndarray:
        """Covariance of the marginal at each time."""
        return self.cross_covariance(times, times)

    def cross_covariance(self, first: ArrayLike, second: ArrayLike) -> np.ndarray:
        """Covariance between the points of one path at two times."""
        s, t = np.broadcast_arrays(_times(first), _times(second))
        inherited = (
            self._decay(s)[..., :, np.newaxis]
            * self.initial_covariance
            * self._decay(t)[..., np.newaxis, :]
        )
        added = self._decay(np.abs(t - s)) * self._added_variance(np.minimum(s, t))
        return inherited + added[..., np.newaxis] * np.eye(self.n_features)

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
        stamps, order = np.unique(np.atleast_1d(_times(times)), return_inverse=True)
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
        return np.asarray(np.exp(-np.multiply.outer(waits, self.mean_reversion)))

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

    The process is ``dX = −θ(X − c) dt + √τ dB``. The law is returned with the data, so that
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
        Parameters of `OrnsteinUhlenbeck.of`: `mean_reversion`, `mean`, `diffusivity`,
        `initial_mean` and `initial_covariance`.

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
    counts = _rows_per_time(n_per_time, n_times)
    duration = check_real(duration, "duration", positive=True)
    process = OrnsteinUhlenbeck.of(n_features=n_features, **law)
    rng = solver_generator(random_state)
    times = np.linspace(0.0, duration, len(counts))
    parts = [
        process.sample_paths(int(count), [time], rng)[:, 0]
        for count, time in zip(counts, times, strict=True)
    ]
    return np.concatenate(parts), np.repeat(times, counts), process


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
