"""The coupling of neighbouring times, solved again and again for particles that move."""

import numpy as np

from skdpot.trajectories.sinkhorn import SchrodingerPotentials, schrodinger_potentials

__all__ = ["WarmCoupling"]


class WarmCoupling:
    """Gradients of Schrödinger potentials, each call starting from the potentials before.

    Parameters
    ----------
    tol : float, default=1e-2
        Error of a plan's margins that is small enough for a step.
    max_iter : int, default=200
        Iterations of one call; what is left is taken up by the next.
    """

    def __init__(self, tol: float = 1e-2, max_iter: int = 200) -> None:
        self._tol, self._max_iter = tol, max_iter
        self._last: SchrodingerPotentials | None = None

    def __call__(
        self, particles: np.ndarray, spacings: np.ndarray, diffusivity: float
    ) -> tuple[np.ndarray, np.ndarray]:
        """Return the gradients at the earlier and at the later particles of each pair.

        Parameters
        ----------
        particles : ndarray of shape (T, m, d)
            Positions at each knot.
        spacings : ndarray of shape (T - 1,)
            Time between neighbouring knots.
        diffusivity : float
            τ of the reference process.

        Returns
        -------
        forward, backward : ndarray of shape (T - 1, m, d)
            ∇φ and ∇ψ.
        """
        self._last = schrodinger_potentials(
            particles[:-1],
            particles[1:],
            diffusivity * np.asarray(spacings, dtype=np.float64),
            start=self._last,
            tol=self._tol,
            max_iter=self._max_iter,
        )
        return self._last.source_gradients(), self._last.target_gradients()
