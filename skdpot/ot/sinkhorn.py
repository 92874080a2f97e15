"""Schrödinger potentials between neighbouring clouds of particles, all pairs at once.

Sinkhorn's iterations use kernels that include potentials: with a (source) and b (target) in units
of ε, ``K = exp(a₀ ⊕ b₀ − c / ε)`` costs one pass of exponentials, and iterations near a₀ and b₀ are
two products of a matrix with a vector. When the scalings ``exp(a − a₀)`` leave a safe range, the
kernel is computed again; where it vanishes or overflows, log-sum-exp is used. Combining iterations
(Anderson mixing) removes slow modes, such as mass that must pass between clusters. Masses are
uniform, and sums over them are means.

References
----------
Cuturi, "Sinkhorn distances", NeurIPS 2013; Schmitzer, "Stabilized sparse scaling algorithms for
entropy regularized transport problems", SIAM Journal on Scientific Computing 2019; Walker, Ni,
"Anderson acceleration for fixed-point iterations", SIAM Journal on Numerical Analysis 2011;
Janati, Muzellec, Peyré, Cuturi, "Entropic optimal transport between unbalanced Gaussian measures
has a closed form", NeurIPS 2020; Thornton, Cuturi, "Rethinking initialization of the Sinkhorn
algorithm", AISTATS 2023 (the start).
"""

from dataclasses import dataclass
from typing import Any, NamedTuple

import numpy as np
from scipy.special import logsumexp, softmax

from skdpot._utils.threads import one_blas_thread

_NARROWEST = 1e-6  # least variance of a direction, as a share of the largest
_FARTHEST = 14.0  # |log| of a scaling beyond which the kernel is computed again
_SINGLE_TOLERANCE = 1e-5  # smaller tolerances need a kernel in double precision
_ROUNDINGS = 32  # bound on the rounding error of an exponent, in units of the precision
_MEMORY = 6  # iterations that are combined
_PLAIN = 2  # plain iterations before combinations, at the start and after a failure
_WORSE = 5.0  # a combination fails if its error exceeds the smallest one by this factor
_SAME = 1e-9  # relative difference up to which errors count as equal
_PATIENCE = 18  # iterations without a smaller error after which combinations have failed
_FIRST_REACH, _LEAST_REACH, _LARGEST_REACH = 4.0, 0.5, 1e4  # of a combination, in units of ε
_COARSER = 4.0  # ratio of successive regularisations of a search without a guess
_COARSEST = 0.04  # largest regularisation, as a share of the summed variances
_COARSE_TOLERANCE, _COARSE_ITERATIONS = 0.1, 30
_RIDGE = 1e-8  # relative ridge on the normal equations of nearly dependent differences


class Pair(NamedTuple):
    """Two clouds of points, and the regularisation ε of their coupling."""

    first: np.ndarray
    second: np.ndarray
    regularization: float


def gaussian_potentials(pair: Pair) -> tuple[np.ndarray, np.ndarray]:
    """Return start values for the potentials of two clouds.

    Between two Gaussian laws the potentials for the cost ½‖x − y‖² are quadratic with a closed
    form. They are a good start for other clouds with the same means and covariances.
    """
    first, second, regularization = pair
    x, y = first - first.mean(axis=0), second - second.mean(axis=0)
    shift = second.mean(axis=0) - first.mean(axis=0)
    covariances = x.T @ x / len(x), y.T @ y / len(y)
    source = _quadratic(x, covariances[1], covariances[0], regularization) - x @ shift
    target = _quadratic(y, covariances[0], covariances[1], regularization) + y @ shift
    return source + shift @ shift / 2, target


def _quadratic(
    points: np.ndarray, partner: np.ndarray, covariance: np.ndarray, regularization: float
) -> np.ndarray:
    """Return ½ zᵀ(I − slope) z for each centred point z."""
    values, vectors = np.linalg.eigh(covariance)
    if values[-1] <= 0:  # all points are equal
        return np.zeros(len(points))
    root = np.sqrt(np.maximum(values, _NARROWEST * values[-1]))
    coordinates = points @ vectors
    inner = root[:, None] * (vectors.T @ partner @ vectors) * root
    inner_values, inner_vectors = np.linalg.eigh(inner)
    half = regularization / 2
    gains = np.sqrt(np.maximum(inner_values, 0.0) + half**2) - half
    projected = (coordinates / root) @ inner_vectors
    return ((coordinates**2).sum(axis=1) - projected**2 @ gains) / 2


class HalfSteps(NamedTuple):
    """Both halves of Sinkhorn's iteration from source potentials a."""

    target: np.ndarray  # b, with which the column marginal of (a, b) is exact
    source: np.ndarray  # the next a, with which the row marginal of (a, b) would be exact
    error: float  # L1 violation of the row marginal by (a, b); infinite if unreliable


class ScaledKernel:
    """Kernel of one pair of clouds for one regularisation."""

    def __init__(
        self, pair: Pair, potentials: tuple[np.ndarray, ...], tol: float, kernel: np.ndarray
    ) -> None:
        first, second, regularization = pair
        self._scale = float(np.sqrt(regularization))
        self._center = (first.mean(axis=0) + second.mean(axis=0)) / 2  # smaller sums round less
        self._first = (first - self._center) / self._scale
        self._second = (second - self._center) / self._scale
        self._first_squares = np.einsum("ij,ij->i", self._first, self._first) / 2
        self._second_squares = np.einsum("ij,ij->i", self._second, self._second) / 2
        self._tol = tol
        self._kernel = kernel
        self._fill(*(values / regularization for values in potentials))

    def half_steps(self, source: np.ndarray) -> HalfSteps:
        """Return both halves of Sinkhorn's iteration."""
        m, k = self._kernel.shape
        with np.errstate(all="ignore"):  # failures show in the results
            rows = np.exp(source - self.source).astype(self._kernel.dtype)
            columns = m / np.dot(rows, self._kernel)
            sums = np.dot(self._kernel, columns) / k
            target = self._target + np.log(columns)
            following = self.source - np.log(sums)
            error = float(np.abs(rows * sums - 1).mean())
            farthest = max(np.abs(source - self.source).max(), np.abs(target - self._target).max())
        if farthest <= _FARTHEST and np.isfinite(following).all():
            return HalfSteps(target, following, error)
        if np.isfinite(target).all() and np.isfinite(following).all():
            self._fill(following, target)
            return HalfSteps(target, following, np.inf)
        return self.half_steps_in_logarithms(source)

    def half_steps_in_logarithms(self, source: np.ndarray) -> HalfSteps:
        """Return the same half steps by log-sum-exp, which is slow and never fails."""
        left, right = self._factors(source, np.zeros(len(self._second)))
        exponent = left @ right.T
        m, k = exponent.shape
        target = np.log(m) - logsumexp(exponent, axis=0)
        exponent += target
        excess = logsumexp(exponent, axis=1) - np.log(k)
        self._fill(source, target)
        return HalfSteps(target, source - excess, float(np.abs(np.expm1(excess)).mean()))

    def barycentres(self, source: np.ndarray, target: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
        """Return the mean partner of each point of the first and of the second cloud."""
        left, right = self._factors(source, target)
        return (
            self._means(self._kernel, self._second, target - self._target, left, right),
            self._means(self._kernel.T, self._first, source - self.source, right, left),
        )

    def _means(
        self, kernel: np.ndarray, points: np.ndarray, logarithms: np.ndarray, *factors: np.ndarray
    ) -> np.ndarray:
        with np.errstate(all="ignore"):  # failures are corrected below
            scaled = np.hstack([points, np.ones((len(points), 1))])
            scaled *= np.exp(logarithms)[:, None]
            sums = (kernel @ scaled.astype(kernel.dtype)).astype(np.float64)
            means: np.ndarray = sums[:, :-1] / sums[:, -1:]
        vanished = ~((sums[:, -1] > np.finfo(kernel.dtype).tiny) & np.isfinite(means).all(axis=1))
        if vanished.any():  # points so far from all others that their kernel underflows
            means[vanished] = softmax(factors[0][vanished] @ factors[1].T, axis=1) @ points
        return np.asarray(self._center + self._scale * means)

    def _fill(self, source: np.ndarray, target: np.ndarray) -> None:
        self.source, self._target = source, target
        kernel = self._kernel
        left, right = self._factors(source, target)
        with np.errstate(over="ignore", under="ignore"):
            if kernel.dtype == np.float64:
                np.exp(np.matmul(left, right.T, out=kernel), out=kernel)
            elif self._single_is_enough(left, right):
                left, right = left.astype(np.float32), right.astype(np.float32)
                np.exp(np.matmul(left, right.T, out=kernel), out=kernel)
            else:
                np.exp(left @ right.T, out=kernel, dtype=np.float32, casting="same_kind")

    def _single_is_enough(self, left: np.ndarray, right: np.ndarray) -> bool:
        """Whether the rounding errors of exponents in single precision are below the tolerance."""
        largest = max(
            self._first_squares.max(),
            self._second_squares.max(),
            np.abs(left[:, -2]).max(),
            np.abs(right[:, -1]).max(),
        )
        return bool(_ROUNDINGS * np.finfo(np.float32).eps * largest <= self._tol)

    def _factors(self, source: np.ndarray, target: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
        """Return two thin matrices whose product is ``a ⊕ b − c / ε``."""
        d = self._first.shape[1]
        left, right = np.ones((len(source), d + 2)), np.ones((len(target), d + 2))
        left[:, :d], right[:, :d] = self._first, self._second
        np.subtract(source, self._first_squares, out=left[:, d])
        np.subtract(target, self._second_squares, out=right[:, d + 1])
        return left, right


def _solved(
    pair: Pair,
    potentials: tuple[np.ndarray, np.ndarray] | None,
    memory: np.ndarray,
    tol: float,
    max_iter: int,
) -> tuple[Any, ...]:
    """Solve one pair from a guess, or without one; `memory` holds the kernel."""
    if potentials is None:
        # Without a guess, solve along decreasing regularisations.
        spread = float(pair.first.var(axis=0).sum() + pair.second.var(axis=0).sum())
        coarser = [pair.regularization]
        while coarser[-1] < _COARSEST * spread:
            coarser.append(_COARSER * coarser[-1])
        potentials = gaussian_potentials(pair._replace(regularization=coarser[-1]))
        loose, few = max(tol, _COARSE_TOLERANCE), min(max_iter, _COARSE_ITERATIONS)
        for epsilon in coarser[:0:-1]:
            at = pair._replace(regularization=epsilon)
            source, half, _ = _search(ScaledKernel(at, potentials, tol, memory), loose, few)
            potentials = epsilon * source, epsilon * half.target
    kernel = ScaledKernel(pair, potentials, tol, memory)
    source, half, n_iter = _search(kernel, tol, max_iter)
    return source, half.target, *kernel.barycentres(source, half.target), n_iter, half.error


def _search(kernel: ScaledKernel, tol: float, max_iter: int) -> tuple[np.ndarray, HalfSteps, int]:
    """Iterate from the potentials of a kernel until the error is small enough."""
    source = kernel.source
    search = _Search(len(source))
    for n_iter in range(1, max_iter + 1):
        half = kernel.half_steps(source)
        if half.error <= tol:
            break
        if n_iter < max_iter:
            source = search.next_source(source, half)
    if not np.isfinite(half.error):
        half = kernel.half_steps_in_logarithms(source)
    return source, half, n_iter


class _Search:
    """Choice of the next point: Sinkhorn's next point, or a combination of recent iterations."""

    def __init__(self, size: int) -> None:
        self._mixing = AndersonMixing(size, _MEMORY)
        self._best_error, self._after_best = np.inf, np.zeros(size)
        self._reach = _FIRST_REACH
        self._n_plain = self._n_first = _PLAIN
        self._n_worse = 0  # iterations since the best one
        self._combined = False

    def next_source(self, source: np.ndarray, half: HalfSteps) -> np.ndarray:
        """Return the next potentials a after an iteration from `source`."""
        self._n_worse += 1
        if self._n_worse > _PATIENCE:
            self._n_worse, self._n_first = 0, 2 * self._n_first
            self._reach = max(self._reach / 4, _LEAST_REACH)
            return self._plain(self._after_best)
        if not np.isfinite(half.error):
            self._n_first *= 2 if self._combined else 1
            return self._plain(half.source)
        if self._combined and half.error > _WORSE * self._best_error:
            self._reach = max(self._reach / 4, _LEAST_REACH)
            return self._plain(self._after_best)
        if half.error <= self._best_error * (1 + _SAME):  # the error may stay constant for long
            self._n_worse = 0
            if self._combined:
                self._reach = min(2 * self._reach, _LARGEST_REACH)
            if half.error < 0.9 * self._best_error:
                self._n_first = _PLAIN
            self._best_error = min(half.error, self._best_error)
            self._after_best = half.source
        self._mixing.record(source, half.source)
        self._combined = self._n_plain <= 0 and half.error <= 1
        self._n_plain -= 1
        if not self._combined:
            return half.source
        beyond = self._mixing.next_point() - half.source
        farthest = float(np.abs(beyond).max())
        if not np.isfinite(farthest):
            return half.source
        return half.source + self._reach / max(farthest, self._reach) * beyond

    def _plain(self, following: np.ndarray) -> np.ndarray:
        self._mixing.clear()
        self._n_plain, self._combined = self._n_first, False
        return following


@dataclass(frozen=True, eq=False)
class SchrodingerPotentials:
    """Potentials of P pairs of clouds, with plans, barycentres and gradients.

    Pair p couples the points x of its first cloud with the points y of its second by a plan
    with the density ``exp((φ(x) + ψ(y) − ½‖x − y‖²) / ε)`` with respect to the independent
    coupling of uniform masses.
    """

    first: np.ndarray
    second: np.ndarray
    regularization: np.ndarray
    source: np.ndarray  # φ at the first clouds, (P, m)
    target: np.ndarray  # ψ at the second clouds, (P, k)
    source_barycentres: np.ndarray  # mean partner of each point, (P, m, d)
    target_barycentres: np.ndarray
    n_iter: int  # largest number of iterations of a pair
    marginal_error: np.ndarray  # (P,), L1 distance of the row marginal from uniform

    def plans(self) -> np.ndarray:
        """Return the plans, of shape (P, m, k), each with sum one."""
        plans = np.empty((len(self.first), self.first.shape[1], self.second.shape[1]))
        for p, epsilon in enumerate(self.regularization):
            pair = Pair(self.first[p], self.second[p], epsilon)
            ScaledKernel(pair, (self.source[p], self.target[p]), 0.0, plans[p])
            plans[p] /= plans[p].sum()
        return plans

    def gradients(self) -> tuple[np.ndarray, np.ndarray]:
        """Return ∇φ at the first and ∇ψ at the second clouds, (P, m, d) and (P, k, d).

        φ is extended to all x by ``φ(x) = −ε log mean_j exp((ψ(y_j) − ½‖x − y_j‖²) / ε)``. Its
        gradient is x minus the mean of the y_j under the conditional plan; likewise ψ.
        """
        return self.first - self.source_barycentres, self.second - self.target_barycentres

    def moved_to(self, first: np.ndarray, second: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
        """Return φ and ψ at other points near the clouds, to first order.

        ``½‖x‖² − φ(x)`` is convex, with the mean partner of x as its gradient; it is replaced
        by its tangent.
        """
        return (
            self.source + _change(self.first, first, self.source_barycentres),
            self.target + _change(self.second, second, self.target_barycentres),
        )


def schrodinger_potentials(
    first: np.ndarray,
    second: np.ndarray,
    regularization: np.ndarray,
    *,
    start: SchrodingerPotentials | None = None,
    tol: float = 1e-3,
    max_iter: int = 1000,
) -> SchrodingerPotentials:
    """Solve the entropic transport problems between pairs of clouds of uniform mass.

    The cost is ½‖x − y‖² and the entropy is relative to the independent coupling, so that with
    ε = τΔ the plan is that of the Schrödinger bridge of a Brownian motion with variance τ per
    unit time over the time Δ.
    """
    first, second = np.asarray(first, dtype=np.float64), np.asarray(second, dtype=np.float64)
    epsilon = np.asarray(regularization, dtype=np.float64)
    if not (np.isfinite(first).all() and np.isfinite(second).all()):
        raise ValueError("first and second must be finite.")
    if not np.all((epsilon > 0) & np.isfinite(epsilon)):
        raise ValueError("regularization must hold one positive finite number for each pair.")
    guesses = (
        [None] * len(first) if start is None else zip(*start.moved_to(first, second), strict=True)
    )
    # Single precision is two to three times as fast.
    precision = np.float32 if tol >= _SINGLE_TOLERANCE else np.float64
    memory = np.empty((first.shape[1], second.shape[1]), precision)
    with one_blas_thread():
        solved = [
            _solved(Pair(x, y, regularization=eps), guess, memory, tol, max_iter)
            for x, y, eps, guess in zip(first, second, epsilon, guesses, strict=True)
        ]
    columns: Any = zip(*solved, strict=True) if solved else [()] * 6
    source, target, of_first, of_second, n_iter, error = columns
    return SchrodingerPotentials(
        first=first,
        second=second,
        regularization=epsilon,
        source=np.reshape(source, first.shape[:2]) * epsilon[:, None],
        target=np.reshape(target, second.shape[:2]) * epsilon[:, None],
        source_barycentres=np.reshape(of_first, first.shape),
        target_barycentres=np.reshape(of_second, second.shape),
        n_iter=max(n_iter, default=0),
        marginal_error=np.array(error),
    )


def _change(old: np.ndarray, new: np.ndarray, barycentres: np.ndarray) -> np.ndarray:
    moved = new - old
    return np.sum(moved * ((old + new) / 2 - barycentres), axis=-1)


class WarmCoupling:
    """Gradients of Schrödinger potentials; each call starts from the potentials of the last."""

    def __init__(self, tol: float = 1e-2, max_iter: int = 200) -> None:
        self._tol, self._max_iter = tol, max_iter
        self._last: SchrodingerPotentials | None = None

    def __call__(
        self, particles: np.ndarray, spacings: np.ndarray, diffusivity: float
    ) -> tuple[np.ndarray, np.ndarray]:
        """Return the gradients at the earlier and at the later particles of each pair."""
        self._last = schrodinger_potentials(
            particles[:-1],
            particles[1:],
            diffusivity * np.asarray(spacings, dtype=np.float64),
            start=self._last,
            tol=self._tol,
            max_iter=self._max_iter,
        )
        return self._last.gradients()


class AndersonMixing:
    """Anderson mixing: combine the last iterations of ``x ← g(x)`` so that residuals cancel.

    The next point is ``g_n − Σ_i γ_i (g_{i+1} − g_i)`` with the weights γ for which the same
    combination of the residuals ``f_i = g(x_i) − x_i`` is shortest. For a linear map this is
    GMRES: a few slow modes cost a few iterations, whatever their rate.
    """

    def __init__(self, size: int, memory: int) -> None:
        self._residuals = np.empty((memory, size))
        self._images = np.empty((memory, size))
        self.clear()

    def clear(self) -> None:
        """Forget all iterations."""
        self._count = 0
        self._last: Any = None  # residual and image

    def record(self, point: np.ndarray, image: np.ndarray) -> None:
        """Record ``image = g(point)``."""
        residual = image - point
        if self._last is not None:
            slot = self._count % len(self._residuals)
            self._residuals[slot] = residual - self._last[0]
            self._images[slot] = image - self._last[1]
            self._count += 1
        self._last = residual, image

    def next_point(self) -> np.ndarray:
        """Return the combination of the recorded images, or the only image."""
        residual, image = self._last
        if self._count == 0:
            return image
        residuals, images = self._residuals[: self._count], self._images[: self._count]
        products = residuals @ residuals.T
        diagonal = products.ravel()[:: len(products) + 1]
        diagonal *= 1 + _RIDGE
        diagonal += np.finfo(np.float64).tiny
        try:
            weights = np.linalg.solve(products, residuals @ residual)
        except np.linalg.LinAlgError:
            return image
        return image - weights @ images
