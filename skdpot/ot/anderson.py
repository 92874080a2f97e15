"""Anderson acceleration of fixed-point iterations."""

from typing import Any

import numpy as np

_RIDGE = 1e-8  # relative, on the normal equations of differences that are nearly dependent


class AndersonMixing:
    """Combine the last iterations of ``x ← g(x)`` so that their residuals nearly cancel.

    The next point is ``g_n − Σ_i γ_i (g_{i+1} − g_i)`` with the weights γ for which the same
    combination of the residuals ``f_i = g(x_i) − x_i`` is shortest. For a linear map this is
    GMRES: a few slow modes cost a few iterations, however slow they are.
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
        """Take note of ``image = g(point)``."""
        residual = image - point
        if self._last is not None:
            slot = self._count % len(self._residuals)
            self._residuals[slot] = residual - self._last[0]
            self._images[slot] = image - self._last[1]
            self._count += 1
        self._last = residual, image

    def next_point(self) -> np.ndarray:
        """Return the combination of what was recorded, or the one image."""
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
