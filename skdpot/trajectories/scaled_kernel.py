"""Sinkhorn's iteration for one pair of clouds, on a kernel that has swallowed the potentials.

All potentials here are in units of ε and called a (source) and b (target). The kernel
``K = exp(a₀ ⊕ b₀ − c / ε)`` costs one pass of exponentials; every iteration from potentials near
a₀ and b₀ is then two products of a matrix with a vector. When potentials have moved so far that the
scalings ``u = exp(a − a₀)`` and ``v = exp(b − b₀)`` leave a safe range, the kernel is computed
again around the new ones. Where a row or a column of it vanishes or overflows, that iteration is
done with log-sum-exp.

Masses are uniform and sums over them are means, so that ``u K v`` is the density of the plan with
respect to the independent coupling.

References
----------
Schmitzer, "Stabilized sparse scaling algorithms for entropy regularized transport problems",
SIAM Journal on Scientific Computing 2019.
"""

from typing import NamedTuple

import numpy as np
from scipy.special import logsumexp, softmax

__all__ = ["HalfSteps", "ScaledKernel", "kernel_type"]

_FARTHEST = 14.0  # |log| of a scaling, beyond which the kernel is computed again
_SINGLE_TOLERANCE = 1e-5  # tighter ones need a kernel in double precision
_ROUNDINGS = 32  # times the precision: what rounding may do to the sum that is an exponent


def kernel_type(tol: float) -> type[np.floating]:
    """Return the type of kernels that resolve a marginal error of `tol`.

    Single precision makes them two to three times faster.
    """
    return np.float32 if tol >= _SINGLE_TOLERANCE else np.float64


class HalfSteps(NamedTuple):
    """Both halves of Sinkhorn's iteration from source potentials a."""

    target: np.ndarray  # b, with which the column marginal of (a, b) is exact
    source: np.ndarray  # the next a, with which the row marginal of (a, b) would be exact
    error: float  # L1 violation of the row marginal by (a, b); infinite if not to be trusted


class ScaledKernel:
    """Kernel of one pair of clouds for one regularisation.

    Parameters
    ----------
    first, second : ndarray of shape (m, d), (k, d)
        The clouds.
    regularization : float
        ε.
    source, target : ndarray of shape (m,), (k,)
        Finite potentials a₀ and b₀, in units of ε.
    tol : float
        Marginal error that iterations must be able to resolve.
    kernel : ndarray of shape (m, k)
        Memory for the kernel, of the type that `kernel_type` tells. Memory that is used for
        one pair after the other stays in the processor's cache.
    """

    def __init__(
        self,
        first: np.ndarray,
        second: np.ndarray,
        regularization: float,
        source: np.ndarray,
        target: np.ndarray,
        tol: float,
        kernel: np.ndarray,
    ) -> None:
        self._scale = float(np.sqrt(regularization))
        self._center = (first.mean(axis=0) + second.mean(axis=0)) / 2  # smaller sums round less
        self._first = (first - self._center) / self._scale
        self._second = (second - self._center) / self._scale
        self._first_squares = np.einsum("ij,ij->i", self._first, self._first) / 2
        self._second_squares = np.einsum("ij,ij->i", self._second, self._second) / 2
        self._tol = tol
        self._kernel = kernel
        self._fill(source, target)

    def half_steps(self, source: np.ndarray) -> HalfSteps:
        """Return both halves of Sinkhorn's iteration.

        Parameters
        ----------
        source : ndarray of shape (m,)
            Finite potentials a.

        Returns
        -------
        HalfSteps
            Finite potentials.
        """
        m, k = self._kernel.shape
        with np.errstate(all="ignore"):  # what went wrong shows in the results
            rows = np.exp(source - self._source).astype(self._kernel.dtype)
            columns = m / np.dot(rows, self._kernel)
            sums = np.dot(self._kernel, columns) / k
            target = self._target + np.log(columns)
            following = self._source - np.log(sums)
            error = float(np.abs(rows * sums - 1).mean())
            farthest = max(np.abs(source - self._source).max(), np.abs(target - self._target).max())
        if farthest <= _FARTHEST and np.isfinite(following).all():
            return HalfSteps(target, following, error)
        if np.isfinite(target).all() and np.isfinite(following).all():
            self._fill(following, target)
            return HalfSteps(target, following, np.inf)
        return self.half_steps_in_logarithms(source)

    def half_steps_in_logarithms(self, source: np.ndarray) -> HalfSteps:
        """Return what `half_steps` does, from log-sum-exp, which is slow and always works.

        The kernel is computed again around the result, with no scalings left for (a, b).
        """
        left, right = self._factors(source, np.zeros(len(self._second)))
        exponent = left @ right.T
        m, k = exponent.shape
        target = np.log(m) - logsumexp(exponent, axis=0)
        exponent += target
        excess = logsumexp(exponent, axis=1) - np.log(k)
        self._fill(source, target)
        return HalfSteps(target, source - excess, float(np.abs(np.expm1(excess)).mean()))

    def source_barycentres(self, target: np.ndarray) -> np.ndarray:
        """Return the mean partner of each point of the first cloud, under the potentials b."""
        left, right = self._factors(np.zeros(len(self._first)), target)
        return self._barycentres(self._kernel, self._second, target - self._target, (left, right))

    def target_barycentres(self, source: np.ndarray) -> np.ndarray:
        """Return the mean partner of each point of the second cloud, under the potentials a."""
        left, right = self._factors(source, np.zeros(len(self._second)))
        return self._barycentres(self._kernel.T, self._first, source - self._source, (right, left))

    def _barycentres(
        self,
        kernel: np.ndarray,
        points: np.ndarray,
        logarithms: np.ndarray,
        factors: tuple[np.ndarray, np.ndarray],
    ) -> np.ndarray:
        with np.errstate(all="ignore"):  # what went wrong is mended below
            scaled = np.hstack([points, np.ones((len(points), 1))])
            scaled *= np.exp(logarithms)[:, None]
            sums = (kernel @ scaled.astype(kernel.dtype)).astype(np.float64)
            means: np.ndarray = sums[:, :-1] / sums[:, -1:]
        vanished = ~((sums[:, -1] > np.finfo(kernel.dtype).tiny) & np.isfinite(means).all(axis=1))
        if vanished.any():  # a point so far from all others that its row of the kernel underflows
            means[vanished] = softmax(factors[0][vanished] @ factors[1].T, axis=1) @ points
        barycentres: np.ndarray = self._center + self._scale * means
        return barycentres

    def _fill(self, source: np.ndarray, target: np.ndarray) -> None:
        """Compute the kernel around these potentials."""
        self._source, self._target = source, target
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
        """Whether exponents summed in single precision are exact to a part of the tolerance."""
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
