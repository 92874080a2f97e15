"""Anderson's acceleration of a fixed-point iteration."""

import numpy as np

__all__ = ["AndersonMixing"]

_RIDGE = 1e-8  # relative, on the normal equations of differences that are nearly dependent


class AndersonMixing:
    """Combine the last iterations of ``x ← g(x)`` so that their residuals nearly cancel.

    The next point is ``g_n − Σ_i γ_i (g_{i+1} − g_i)`` with the weights γ for which the same
    combination of the residuals ``f_i = g(x_i) − x_i`` is shortest. For a linear map this is
    GMRES: a few slow modes cost a few iterations, however slow they are.

    Parameters
    ----------
    size : int
        Length of x.
    memory : int
        Number of differences that are combined.

    References
    ----------
    Walker, Ni, "Anderson acceleration for fixed-point iterations", SIAM Journal on Numerical
    Analysis 2011.
    """

    def __init__(self, size: int, memory: int) -> None:
        self._residuals = np.empty((memory, size))
        self._images = np.empty((memory, size))
        self._products = np.zeros((memory, memory))
        self.clear()

    def clear(self) -> None:
        """Forget all iterations."""
        self._count = 0
        self._last: tuple[np.ndarray, np.ndarray] | None = None

    def record(self, point: np.ndarray, image: np.ndarray) -> None:
        """Take note of ``image = g(point)``."""
        residual = image - point
        if self._last is not None:
            slot = self._count % len(self._residuals)
            self._residuals[slot] = residual - self._last[0]
            self._images[slot] = image - self._last[1]
            self._count += 1
            n_used = min(self._count, len(self._residuals))
            self._products[slot, :n_used] = self._residuals[:n_used] @ self._residuals[slot]
            self._products[:n_used, slot] = self._products[slot, :n_used]
        self._last = residual, image

    def next_point(self) -> np.ndarray:
        """Return the combination; the last image if there is nothing to combine."""
        if self._last is None:
            raise RuntimeError("Record an iteration first.")
        residual, image = self._last
        n_used = min(self._count, len(self._residuals))
        if n_used == 0:
            return image
        products = self._products[:n_used, :n_used].copy()
        diagonal = products.ravel()[:: n_used + 1]
        diagonal *= 1 + _RIDGE
        diagonal += np.finfo(np.float64).tiny
        try:
            weights = np.linalg.solve(products, self._residuals[:n_used] @ residual)
        except np.linalg.LinAlgError:
            return image
        mixed: np.ndarray = image - weights @ self._images[:n_used]
        return mixed
