"""Couplings between the particles of neighbouring knots."""

from dataclasses import dataclass
from functools import cached_property
from typing import Self

import numpy as np
from scipy.spatial.distance import cdist

from skdpot.trajectories.sinkhorn import schrodinger_potentials

__all__ = ["CouplingPlan", "entropic_plans", "exact_plans"]

_MAX_PIVOTS = 10**8  # of the network simplex; a few times m suffice in practice
_TOLERANCE, _MAX_ITERATIONS = 1e-6, 2000  # of entropic plans; their margins are mended after
_NEGLIGIBLE = 1e-6  # density with respect to the independent coupling
_ROUNDING = 1e-9  # share of a particle's mass that the simplex may leave behind by rounding


@dataclass(frozen=True, eq=False)
class CouplingPlan:
    """A coupling of m particles with k others, stored by its entries.

    Parameters
    ----------
    rows, columns : ndarray of shape (n_entries,), integer
        Indices of the coupled particles, ordered by row.
    masses : ndarray of shape (n_entries,)
        Positive masses of sum one.
    shape : tuple of (m, k)
        Numbers of particles.

    Raises
    ------
    ValueError
        If the entries are not ordered, not positive, or leave a particle without mass.

    Examples
    --------
    >>> import numpy as np
    >>> from skdpot.trajectories.plans import CouplingPlan
    >>> plan = CouplingPlan.from_matrix(np.array([[0.0, 0.5], [0.5, 0.0]]))
    >>> plan.sample_next(np.array([0, 0, 1]), np.random.default_rng(0)).tolist()
    [1, 1, 0]
    """

    rows: np.ndarray
    columns: np.ndarray
    masses: np.ndarray
    shape: tuple[int, int]

    def __post_init__(self) -> None:
        ordered = np.all(np.diff(self.rows) >= 0)
        if not ordered or not np.all((self.masses > 0) & np.isfinite(self.masses)):
            raise ValueError("A coupling needs positive finite masses, ordered by row.")
        for indices, size in zip((self.rows, self.columns), self.shape, strict=True):
            if not np.array_equal(np.unique(indices), np.arange(size)):
                raise ValueError(
                    f"A coupling of shape {self.shape} needs mass in every row and every column, "
                    "and nothing outside."
                )

    @classmethod
    def from_matrix(cls, matrix: np.ndarray) -> Self:
        """Return the coupling with these masses, scaled to sum to one."""
        rows, columns = np.nonzero(matrix)
        masses = matrix[rows, columns]
        indices = rows.astype(np.int32), columns.astype(np.int32)  # half the memory
        return cls(*indices, masses / masses.sum(), matrix.shape)

    def toarray(self) -> np.ndarray:
        """Return the masses as a matrix of shape (m, k)."""
        cells = self.rows.astype(np.intp) * self.shape[1] + self.columns
        masses = np.bincount(cells, self.masses, minlength=self.shape[0] * self.shape[1])
        return masses.reshape(self.shape)

    def sample_next(self, index: np.ndarray, rng: np.random.Generator) -> np.ndarray:
        """Draw the partner of each particle of the first cloud.

        Parameters
        ----------
        index : ndarray of shape (n,)
            Particles of the first cloud, with repetitions or without.
        rng : numpy Generator
            Draws the partners, independently.

        Returns
        -------
        ndarray of shape (n,)
            Particles of the second cloud.
        """
        return self._forward.draw(index, rng)

    def __getstate__(self) -> dict[str, object]:
        """Leave the tables for sampling out of pickles; they are made again when needed."""
        return {name: value for name, value in self.__dict__.items() if name[0] != "_"}

    @cached_property
    def _forward(self) -> "_Conditional":
        return _Conditional.of(self.rows, self.columns, self.masses, self.shape[0])


@dataclass(frozen=True, eq=False)
class _Conditional:
    """The conditional laws of a coupling, as one running sum over all of its entries."""

    partners: np.ndarray
    cumulated: np.ndarray  # (n_entries + 1,)
    begins: np.ndarray  # (m + 1,): where the entries of each particle begin

    @classmethod
    def of(cls, given: np.ndarray, drawn: np.ndarray, masses: np.ndarray, size: int) -> Self:
        begins = np.searchsorted(given, np.arange(size + 1))
        return cls(drawn, np.concatenate([[0.0], np.cumsum(masses)]), begins)

    def draw(self, index: np.ndarray, rng: np.random.Generator) -> np.ndarray:
        first, last = self.begins[index], self.begins[index + 1]
        low, high = self.cumulated[first], self.cumulated[last]
        level = low + rng.random(len(index)) * (high - low)
        entry = np.searchsorted(self.cumulated, level, side="right") - 1
        partner: np.ndarray = self.partners[np.clip(entry, first, last - 1)]
        return partner


def exact_plans(particles: np.ndarray) -> tuple[CouplingPlan, ...]:
    """Couple neighbouring knots by optimal transport with the squared Euclidean cost.

    This is the limit of `entropic_plans` for small diffusivities.

    Parameters
    ----------
    particles : ndarray of shape (T, m, d)
        Particles of equal mass at each knot.

    Returns
    -------
    tuple of CouplingPlan
        T − 1 plans with uniform margins.

    Raises
    ------
    RuntimeError
        If the network simplex gives up.

    References
    ----------
    Bonneel, van de Panne, Paris, Heidrich, "Displacement interpolation using Lagrangian mass
    transport", SIGGRAPH Asia 2011 (the solver, as in POT).

    Examples
    --------
    >>> import numpy as np
    >>> from skdpot.trajectories.plans import exact_plans
    >>> (plan,) = exact_plans(np.array([[[0.0], [1.0]], [[1.1], [0.1]]]))
    >>> plan.toarray()
    array([[0. , 0.5],
           [0.5, 0. ]])
    """
    return tuple(
        _exact_plan(first, second)
        for first, second in zip(particles[:-1], particles[1:], strict=True)
    )


def entropic_plans(
    particles: np.ndarray, spacings: np.ndarray, diffusivity: float
) -> tuple[CouplingPlan, ...]:
    """Couple neighbouring knots by the Schrödinger bridges of a Brownian motion.

    Parameters
    ----------
    particles : ndarray of shape (T, m, d)
        Particles of equal mass at each knot.
    spacings : ndarray of shape (T − 1,)
        Times between neighbouring knots.
    diffusivity : float
        τ > 0, the variance of the Brownian motion per unit time: the plan of two knots at the
        distance Δ is the solution of entropic transport with cost ½‖x − y‖² and ε = τΔ.

    Returns
    -------
    tuple of CouplingPlan
        T − 1 plans with uniform margins, exact up to rounding whatever the solver leaves.

    Raises
    ------
    ValueError
        If a spacing or `diffusivity` is not positive.

    References
    ----------
    Léonard, "A survey of the Schrödinger problem and some of its connections with optimal
    transport", Discrete and Continuous Dynamical Systems 2014.
    """
    if len(particles) < 2:
        return ()
    solved = schrodinger_potentials(
        particles[:-1],
        particles[1:],
        diffusivity * np.asarray(spacings, dtype=np.float64),
        tol=_TOLERANCE,
        max_iter=_MAX_ITERATIONS,
    )
    return tuple(CouplingPlan.from_matrix(_rounded(plan)) for plan in solved.plans())


def _exact_plan(first: np.ndarray, second: np.ndarray) -> CouplingPlan:
    from ot import emd  # here, because POT loads torch

    costs = cdist(first, second, metric="sqeuclidean")
    unit = float(costs.max())
    if unit > 0:  # the solver's tolerances are absolute
        costs /= unit
    uniform: list[float] = []  # as POT writes it
    plan, log = emd(uniform, uniform, costs, numItermax=_MAX_PIVOTS, log=True)
    if log["warning"] is not None:
        raise RuntimeError(f"The network simplex of POT stopped early: {log['warning']}")
    plan[plan < _ROUNDING / max(plan.shape)] = 0.0
    return CouplingPlan.from_matrix(plan)


def _rounded(plan: np.ndarray) -> np.ndarray:
    """Return a coupling of the uniform masses near an approximate one, with fewer entries.

    Negligible entries are dropped and rows and columns that have too much are scaled down
    (Altschuler, Weed, Rigollet, NeurIPS 2017). The margins that are then missing are coupled in
    the order of the particles, which adds few entries.
    """
    m, k = plan.shape
    plan = np.where(plan < _NEGLIGIBLE / (m * k), 0.0, plan)
    with np.errstate(divide="ignore"):
        plan *= np.minimum(1 / (m * plan.sum(axis=1, keepdims=True)), 1.0)
        plan *= np.minimum(1 / (k * plan.sum(axis=0)), 1.0)
    sent = np.cumsum(np.maximum(1 / m - plan.sum(axis=1), 0.0))
    received = np.cumsum(np.maximum(1 / k - plan.sum(axis=0), 0.0))
    levels = np.unique(np.concatenate([sent, received]))
    masses = np.diff(levels, prepend=0.0)
    middles = levels - masses / 2
    rows = np.minimum(np.searchsorted(sent, middles), m - 1)
    columns = np.minimum(np.searchsorted(received, middles), k - 1)
    np.add.at(plan, (rows, columns), masses)
    return plan
