"""Schrödinger potentials between neighbouring clouds of particles, all pairs at once."""

from dataclasses import dataclass

import numpy as np

from skdpot._utils.threads import one_blas_thread
from skdpot.trajectories.pair_solver import PairSolver
from skdpot.trajectories.scaled_kernel import ScaledKernel

__all__ = ["SchrodingerPotentials", "schrodinger_potentials"]


@dataclass(frozen=True, eq=False)
class SchrodingerPotentials:
    """Potentials of P pairs of clouds, and what follows from them.

    Pair p couples the points x of its first cloud with the points y of its second by a plan
    with the density ``exp((φ(x) + ψ(y) − ½‖x − y‖²) / ε)`` with respect to the independent
    coupling of uniform masses.

    Attributes
    ----------
    first, second : ndarray of shape (P, m, d), (P, k, d)
        The clouds.
    regularization : ndarray of shape (P,)
        ε of each pair.
    source, target : ndarray of shape (P, m), (P, k)
        φ at the first and ψ at the second clouds.
    source_barycentres, target_barycentres : ndarray of shape (P, m, d), (P, k, d)
        Mean partner of each point of the first and of the second clouds.
    n_iter : int
        Iterations of the pair that took the most, those at larger regularisations not counted.
    marginal_error : ndarray of shape (P,)
        L1 distance between the row marginal of the plan, whose total mass is one, and the
        uniform one. The column marginal is exact up to rounding.
    """

    first: np.ndarray
    second: np.ndarray
    regularization: np.ndarray
    source: np.ndarray
    target: np.ndarray
    source_barycentres: np.ndarray
    target_barycentres: np.ndarray
    n_iter: int
    marginal_error: np.ndarray

    def plans(self) -> np.ndarray:
        """Return the plans, of shape (P, m, k), each of sum one."""
        plans = np.empty((len(self.first), self.first.shape[1], self.second.shape[1]))
        for pair, epsilon in enumerate(self.regularization):
            plan = plans[pair]
            ScaledKernel(
                self.first[pair],
                self.second[pair],
                epsilon,
                self.source[pair] / epsilon,
                self.target[pair] / epsilon,
                0.0,
                plan,
            )
            plan /= plan.sum()
        return plans

    def source_gradients(self) -> np.ndarray:
        """Return ∇φ at the first clouds, of shape (P, m, d).

        φ is extended to all x by ``φ(x) = −ε log mean_j exp((ψ(y_j) − ½‖x − y_j‖²) / ε)``. Its
        gradient is x minus the mean of the y_j under the conditional plan.
        """
        gradients: np.ndarray = self.first - self.source_barycentres
        return gradients

    def target_gradients(self) -> np.ndarray:
        """Return ∇ψ at the second clouds, of shape (P, k, d), likewise."""
        gradients: np.ndarray = self.second - self.target_barycentres
        return gradients

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

    Parameters
    ----------
    first, second : ndarray of shape (P, m, d), (P, k, d)
        The clouds of the pairs; P may be 0.
    regularization : ndarray of shape (P,)
        ε of each pair, positive.
    start : SchrodingerPotentials, optional
        Potentials of clouds with the same numbers of points and nearly the same places, for
        instance those of the last step of a flow, whatever their regularisation. By default the
        search begins from the potentials between Gaussians, at larger regularisations first
        when these do not fit.
    tol : float, default=1e-3
        Marginal error at which a pair is solved. Below 1e-5 double precision is used.
    max_iter : int, default=1000
        Most iterations of a pair. A pair that is not solved then keeps the potentials that it
        has; `marginal_error` tells.

    Returns
    -------
    SchrodingerPotentials
        Finite potentials, plans and gradients for any regularisation.

    Raises
    ------
    ValueError
        If the shapes do not fit together or a number is not usable.

    Notes
    -----
    Sinkhorn's iterations on kernels that have swallowed the potentials, each one pass of
    exponentials; slow modes, such as mass that must pass from one cluster to another, are taken out
    by combining iterations (Anderson). A call with a good start costs about one pass of
    exponentials, which are in single precision when `tol` lets them.

    References
    ----------
    Cuturi, "Sinkhorn distances", NeurIPS 2013; Schmitzer, "Stabilized sparse scaling algorithms
    for entropy regularized transport problems", SIAM Journal on Scientific Computing 2019;
    Walker, Ni, "Anderson acceleration for fixed-point iterations", SIAM Journal on Numerical
    Analysis 2011.

    Examples
    --------
    >>> import numpy as np
    >>> from skdpot.trajectories.sinkhorn import schrodinger_potentials
    >>> clouds = np.random.default_rng(0).normal(size=(3, 50, 2))
    >>> solved = schrodinger_potentials(clouds[:-1], clouds[1:], np.full(2, 0.5))
    >>> solved.plans().sum(axis=(1, 2))
    array([1., 1.])
    >>> bool(np.all(solved.marginal_error <= 1e-3))
    True
    """
    first, second = np.asarray(first, dtype=np.float64), np.asarray(second, dtype=np.float64)
    _check_clouds(first, second)
    n_pairs = len(first)
    epsilon = _checked_regularization(regularization, n_pairs)
    if not 0 < tol < np.inf or max_iter < 1:
        raise ValueError(
            f"tol={tol!r} must be positive and finite, and max_iter={max_iter!r} at least 1."
        )
    guess = None if start is None else _checked_start(start, first, second)

    solver = PairSolver(first.shape[1], second.shape[1], tol, max_iter)
    with one_blas_thread():
        solutions = [
            solver.from_nothing(first[pair], second[pair], epsilon[pair])
            if guess is None
            else solver.from_potentials(
                first[pair], second[pair], epsilon[pair], (guess[0][pair], guess[1][pair])
            )
            for pair in range(n_pairs)
        ]
    return SchrodingerPotentials(
        first,
        second,
        epsilon,
        _stacked([s.source for s in solutions], first.shape[:2]) * epsilon[:, None],
        _stacked([s.target for s in solutions], second.shape[:2]) * epsilon[:, None],
        _stacked([s.source_barycentres for s in solutions], first.shape),
        _stacked([s.target_barycentres for s in solutions], second.shape),
        max((s.n_iter for s in solutions), default=0),
        np.array([s.error for s in solutions]),
    )


def _change(old: np.ndarray, new: np.ndarray, barycentres: np.ndarray) -> np.ndarray:
    moved = new - old
    change: np.ndarray = np.sum(moved * ((old + new) / 2 - barycentres), axis=-1)
    return change


def _stacked(parts: list[np.ndarray], shape: tuple[int, ...]) -> np.ndarray:
    stacked: np.ndarray = np.reshape(parts, shape)
    return stacked


def _check_clouds(first: np.ndarray, second: np.ndarray) -> None:
    shapes = f"got {first.shape} and {second.shape}."
    if first.ndim != 3 or second.ndim != 3 or 0 in first.shape[1:] + second.shape[1:]:
        raise ValueError(f"first and second must have shapes (P, m, d) and (P, k, d); {shapes}")
    if len(first) != len(second) or first.shape[2] != second.shape[2]:
        raise ValueError(f"first and second must have as many pairs and features; {shapes}")
    if not (np.isfinite(first).all() and np.isfinite(second).all()):
        raise ValueError("first and second must be finite.")


def _checked_regularization(regularization: np.ndarray, n_pairs: int) -> np.ndarray:
    epsilon = np.asarray(regularization, dtype=np.float64)
    if epsilon.shape != (n_pairs,) or not np.all((epsilon > 0) & np.isfinite(epsilon)):
        raise ValueError(
            f"regularization must hold one positive finite number for each of {n_pairs} pairs."
        )
    return epsilon


def _checked_start(
    start: SchrodingerPotentials, first: np.ndarray, second: np.ndarray
) -> tuple[np.ndarray, np.ndarray]:
    if start.first.shape != first.shape or start.second.shape != second.shape:
        raise ValueError(
            "start must come from clouds of the same shapes; got "
            f"{start.first.shape} and {start.second.shape} for {first.shape} and {second.shape}."
        )
    moved: tuple[np.ndarray, np.ndarray] = start.moved_to(first, second)
    return moved
