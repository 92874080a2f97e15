"""Optimal transport plans for squared Euclidean costs, and what certifies them."""

import math
from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import ArrayLike
from scipy.sparse import csr_array

from skdpot.federated.costs import squared_distances
from skdpot.federated.entropic import entropic_coupling
from skdpot.federated.measures import DiscreteMeasure
from skdpot.slicing.transport import exact_plan, point_masses

__all__ = ["MAX_EXACT_ENTRIES", "Coupling", "TransportPlan", "optimal_plan", "plan_from_costs"]

MAX_EXACT_ENTRIES = 10**8
"""Entries of the largest cost matrix that ``solver="auto"`` solves exactly.

10,000 points a side: about 5 GB of memory and some minutes of network simplex.
"""

_DUST = 1e-12  # share of a row's mass below which a flow is rounding


@dataclass(frozen=True, eq=False, repr=False, kw_only=True)
class Coupling:
    """Which share of mass goes from where to where, and the prices that prove it optimal.

    Parameters
    ----------
    rows, columns : ndarray of shape (n_entries,)
        Positions of the positive entries of the coupling P, row by row.
    masses : ndarray of shape (n_entries,)
        Their values.
    squared_distance : float
        ``sum_ij P_ij c_ij``: W₂² of an exact plan, more than W₂² of an entropic one.
    source_potential : ndarray of shape (n,)
        Prices f with ``f_i + g_j ≤ c_ij`` for all pairs, those without mass included. On the
        entries of an exact plan this is an equality, up to rounding.
    target_potential : ndarray of shape (m,)
        Prices g. The constant that can be moved between f and g is chosen such that both
        sides, weighed by their masses, are worth the same.
    """

    rows: np.ndarray
    columns: np.ndarray
    masses: np.ndarray
    squared_distance: float
    source_potential: np.ndarray
    target_potential: np.ndarray

    def __post_init__(self) -> None:
        """Lock the arrays."""
        for name in ("rows", "columns", "masses", "source_potential", "target_potential"):
            getattr(self, name).setflags(write=False)

    @property
    def distance(self) -> float:
        """Root of `squared_distance`: W₂ of an exact plan."""
        return math.sqrt(self.squared_distance)

    @property
    def duality_gap(self) -> float:
        """How much `squared_distance` can exceed W₂² at most; rounding for an exact plan."""
        prices = self.source_potential[self.rows] + self.target_potential[self.columns]
        return self.squared_distance - float(self.masses @ prices)

    def __repr__(self) -> str:
        return (
            f"{type(self).__name__}({len(self.source_potential)} × "
            f"{len(self.target_potential)} points, {len(self.masses)} entries)"
        )


@dataclass(frozen=True, eq=False, repr=False, kw_only=True)
class TransportPlan(Coupling):
    """A coupling together with the two measures that it couples.

    Parameters
    ----------
    source, target : DiscreteMeasure
        The measures, of n and m points.
    rows, columns, masses, squared_distance, source_potential, target_potential
        As in `Coupling`.
    """

    source: DiscreteMeasure
    target: DiscreteMeasure

    @property
    def is_map(self) -> bool:
        """Whether the plan sends every source point to one target, undivided."""
        return np.array_equal(self.rows, np.arange(self.source.n_points))

    def barycenters(self) -> np.ndarray:
        """Where the mass of each source point goes on average, ``sum_j P_ij y_j / sum_j P_ij``.

        Returns
        -------
        ndarray of shape (n, n_features)
            Means of targets. A point without mass goes to the target that its price is for.
        """
        if self.is_map:
            moved: np.ndarray = self.target.points[self.columns]
            return moved
        n = self.source.n_points
        starts = np.searchsorted(self.rows, np.arange(n + 1))
        sums = np.bincount(self.rows, self.masses, minlength=n)
        empty = np.flatnonzero(sums == 0)
        shares = self.masses / sums[self.rows]
        matrix = csr_array((shares, self.columns, starts), shape=(n, self.target.n_points))
        means: np.ndarray = matrix @ self.target.points
        if len(empty):
            costs = squared_distances(self.source.points[empty], self.target.points)
            means[empty] = self.target.points[np.argmin(costs - self.target_potential, axis=1)]
        return means


def optimal_plan(
    source: DiscreteMeasure, target: DiscreteMeasure, *, solver: str = "auto"
) -> TransportPlan:
    """Solve optimal transport between two measures for the cost ``‖x − y‖²``.

    Parameters
    ----------
    source, target : DiscreteMeasure
        Measures in the same space, of n and m points.
    solver : {"auto", "exact", "entropic"}, default="auto"
        "exact" is the network simplex of POT, whose plan has at most n + m − 1 entries.
        "entropic" is Sinkhorn's algorithm, rounded to a coupling; `Coupling.duality_gap` says
        how far from the optimum it can be. "auto" is exact while ``n · m`` is at most
        `MAX_EXACT_ENTRIES`.

    Returns
    -------
    TransportPlan
        The plan with its dual potentials.

    Raises
    ------
    ValueError
        If the measures live in different spaces.
    RuntimeError
        If the solver gives up.

    Notes
    -----
    Potentials of discrete measures need not be unique; those of two clouds of equally many
    points of equal mass never are. Another solver may give other ones of the same total worth.

    References
    ----------
    Bonneel, van de Panne, Paris, Heidrich, "Displacement interpolation using Lagrangian mass
    transport", SIGGRAPH Asia 2011 (the network simplex).

    Examples
    --------
    >>> from skdpot.federated.measures import DiscreteMeasure
    >>> from skdpot.federated.plans import optimal_plan
    >>> plan = optimal_plan(DiscreteMeasure([[0.0], [1.0]]), DiscreteMeasure([[5.0], [4.0]]))
    >>> plan.distance, plan.columns
    (4.0, array([1, 0]))
    """
    if source.n_features != target.n_features:
        raise ValueError(
            f"The source has {source.n_features} features and the target {target.n_features}; "
            "both must have the same, in the same order."
        )
    costs = squared_distances(source.points, target.points)
    fields = _solve(costs, source.masses, target.masses, solver)
    return TransportPlan(source=source, target=target, **fields)


def plan_from_costs(
    costs: ArrayLike,
    source_masses: ArrayLike | None = None,
    target_masses: ArrayLike | None = None,
    *,
    solver: str = "auto",
) -> Coupling:
    """Solve optimal transport for a given matrix of costs.

    Cost matrices of several sources against the same target can be stacked: the result is the
    plan of the union of the sources.

    Parameters
    ----------
    costs : array-like of shape (n, m)
        Finite, non-negative costs, for distances the squared ones.
    source_masses, target_masses : array-like of shape (n,), (m,), optional
        Non-negative masses, scaled to sum to one; uniform by default.
    solver : {"auto", "exact", "entropic"}, default="auto"
        As in `optimal_plan`.

    Returns
    -------
    Coupling
        The plan with its dual potentials.

    Raises
    ------
    ValueError
        If costs or masses are not usable.
    RuntimeError
        If the solver gives up.
    """
    matrix = np.ascontiguousarray(costs, dtype=np.float64)
    if matrix.ndim != 2 or 0 in matrix.shape:
        raise ValueError(f"costs has shape {matrix.shape}; it must be (n, m), both at least 1.")
    if not (matrix.min() >= 0 and matrix.max() < np.inf):
        raise ValueError("costs must be finite and not negative.")
    a = point_masses(source_masses, len(matrix), "source_masses")
    b = point_masses(target_masses, matrix.shape[1], "target_masses")
    return Coupling(**_solve(matrix, a, b, solver))


def _solve(
    costs: np.ndarray, a: np.ndarray | None, b: np.ndarray | None, solver: str
) -> dict[str, Any]:
    """Return the fields of a `Coupling`; points without mass take no part in the solution."""
    if solver not in ("auto", "exact", "entropic"):
        raise ValueError(f"solver={solver!r} must be 'auto', 'exact' or 'entropic'.")
    n, m = costs.shape
    a = np.full(n, 1.0 / n) if a is None else a
    b = np.full(m, 1.0 / m) if b is None else b
    sources, targets = np.flatnonzero(a), np.flatnonzero(b)
    active = costs if len(sources) == n and len(targets) == m else costs[np.ix_(sources, targets)]
    # The solvers' tolerances are absolute: give them costs of size one, whatever the unit.
    unit = float(active.max()) or 1.0
    exact = solver == "exact" or (solver == "auto" and costs.size <= MAX_EXACT_ENTRIES)
    solve = _exact_coupling if exact else entropic_coupling
    rows, columns, masses, prices = solve(active / unit, a[sources], b[targets])
    rows, columns = sources[rows], targets[columns]
    f, g = _feasible_potentials(costs, unit * prices, sources, targets)
    shift = (b @ g - a @ f) / 2
    return {
        "rows": rows,
        "columns": columns,
        "masses": masses,
        "squared_distance": float(masses @ costs[rows, columns]),
        "source_potential": f + shift,
        "target_potential": g - shift,
    }


def _exact_coupling(
    costs: np.ndarray, a: np.ndarray, b: np.ndarray
) -> tuple[np.ndarray, np.ndarray, np.ndarray, np.ndarray]:
    """Return the entries of an optimal plan and its target prices; `costs` are used up."""
    # Prices that are free to guess, subtracted first, leave the simplex fewer pivots to make:
    # against a Gaussian reference a third of its time. The optimal plans stay the same.
    guess = costs.mean(axis=0)
    costs -= guess
    costs -= costs.min(axis=1, keepdims=True)
    rest = costs.min(axis=0)
    costs -= rest
    plan, log = exact_plan(costs, a, b)
    entries = np.flatnonzero(plan > _DUST * min(a.min(), b.min()))
    rows, columns = np.divmod(entries, len(b))
    return rows, columns, plan.ravel()[entries], log["v"] + guess + rest


def _feasible_potentials(
    costs: np.ndarray, prices: np.ndarray, sources: np.ndarray, targets: np.ndarray
) -> tuple[np.ndarray, np.ndarray]:
    """Return prices for all points, with ``f_i + g_j ≤ c_ij``, from those of `targets`.

    Each step takes the largest prices that the earlier ones allow. For points with mass this
    repairs the rounding of the solver and keeps every equality; the others get the price at
    which their first crumb of mass would be shipped.
    """
    n, m = costs.shape
    if len(sources) == n and len(targets) == m:
        return (costs - prices).min(axis=1), prices
    f, g = np.empty(n), np.empty(m)
    g[targets] = prices
    f[sources] = (costs[np.ix_(sources, targets)] - prices).min(axis=1)
    without = np.setdiff1d(np.arange(m), targets)
    g[without] = (costs[np.ix_(sources, without)] - f[sources, None]).min(axis=0)
    without = np.setdiff1d(np.arange(n), sources)
    f[without] = (costs[without] - g).min(axis=1)
    return f, g
