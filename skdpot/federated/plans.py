"""Optimal transport plans for squared Euclidean costs, and what certifies them."""

import math
from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import ArrayLike
from scipy.sparse import csr_array
from scipy.spatial.distance import cdist

from skdpot.federated.measures import DiscreteMeasure
from skdpot.slicing.transport import exact_plan, point_masses

__all__ = [
    "MAX_EXACT_ENTRIES",
    "Coupling",
    "TransportPlan",
    "check_fraction",
    "entropic_coupling",
    "interpolate",
    "optimal_plan",
    "plan_from_costs",
    "squared_distances",
]

_NEAR = 1e-3  # share of the squared radii below which a difference of squares is not trusted
_CHUNK = 2**22  # numbers held at once when distances are computed one by one


def squared_distances(X: np.ndarray, Y: np.ndarray) -> np.ndarray:
    """Return ``‖x_i − y_j‖²`` for all pairs.

    Computed as ``‖x‖² + ‖y‖² − 2 x·y`` around the common centre, by one matrix product, which
    for hundreds of features is ten times as fast as subtracting rows. Its error is a few units
    of rounding of ``‖x‖² + ‖y‖²``; distances below a thousandth of that are computed again
    from the difference of the rows (all of them, when there are many). So every entry is good
    to about 1e-12 of itself, whatever the units and wherever the origin, and rows that are
    equal are at distance 0.
    """
    centre = (X.mean(axis=0) + Y.mean(axis=0)) / 2
    x, y = X - centre, Y - centre
    x_squared, y_squared = np.einsum("ij,ij->i", x, x), np.einsum("ij,ij->i", y, y)
    x *= -2.0
    costs: np.ndarray = x @ y.T
    costs += x_squared[:, None]
    costs += y_squared
    if costs.min() >= _NEAR * (x_squared.max() + y_squared.max()):
        return costs
    rows, columns = np.nonzero(costs <= _NEAR * (x_squared[:, None] + y_squared))
    if len(rows) > costs.size // 8:
        exact: np.ndarray = cdist(X, Y, "sqeuclidean")
        return exact
    step = max(1, _CHUNK // X.shape[1])
    for start in range(0, len(rows), step):
        i, j = rows[start : start + step], columns[start : start + step]
        gaps = X[i] - Y[j]
        costs[i, j] = np.einsum("ij,ij->i", gaps, gaps)
    return costs


_REGULARIZATION = 0.005  # in units of the mean cost
_MAX_ITERATIONS = 300
_TOLERANCE = 1e-6
_NEGLIGIBLE = 1e-3  # share of a row's largest entry below which an entry is dropped


def entropic_coupling(
    costs: np.ndarray, a: np.ndarray, b: np.ndarray
) -> tuple[np.ndarray, np.ndarray, np.ndarray, np.ndarray]:
    """Return a coupling near the optimum, and target prices near the optimal ones.

    Sinkhorn's plan is dense and meets its margins only in the limit. Small entries are
    dropped, rows and columns that have too much are scaled down, and the mass that is then
    missing is moved along the north-west rule, which adds at most n + m − 1 entries: the
    result is a coupling of `a` and `b` up to rounding, so its cost bounds the optimum from above.
    """
    from ot import sinkhorn  # here, because POT loads torch

    regularization = _REGULARIZATION * (float(a @ costs @ b) or 1.0)
    # Stopping early costs accuracy, not validity: the duality gap of the result shows it.
    with np.errstate(over="ignore"):
        plan, log = sinkhorn(
            a,
            b,
            costs,
            regularization,
            method="sinkhorn_log",
            numItermax=_MAX_ITERATIONS,
            stopThr=_TOLERANCE,
            warn=False,
            log=True,
        )
    plan[plan < _NEGLIGIBLE * plan.max(axis=1, keepdims=True)] = 0.0
    plan *= _at_most(a, plan.sum(axis=1))[:, None]
    plan *= _at_most(b, plan.sum(axis=0))
    rows, columns = np.nonzero(plan)
    masses = plan[rows, columns]
    i, j, rest = _north_west(
        np.maximum(a - plan.sum(axis=1), 0.0), np.maximum(b - plan.sum(axis=0), 0.0)
    )
    rows, columns = np.concatenate([rows, i]), np.concatenate([columns, j])
    cells, where = np.unique(rows * len(b) + columns, return_inverse=True)
    merged = np.bincount(where, np.concatenate([masses, rest]))
    return cells // len(b), cells % len(b), merged, regularization * log["log_v"]


def _at_most(allowed: np.ndarray, present: np.ndarray) -> np.ndarray:
    """Return the factors that bring sums down to what is allowed, and leave others alone."""
    with np.errstate(divide="ignore"):
        factors: np.ndarray = np.minimum(allowed / present, 1.0)
    return factors


def _north_west(
    supply: np.ndarray, demand: np.ndarray
) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
    """Couple two vectors of the same sum in the order of their positions."""
    sent, received = np.cumsum(supply), np.cumsum(demand)
    levels = np.unique(np.concatenate([sent, received]))
    levels = levels[levels <= min(sent[-1], received[-1])]
    masses = np.diff(levels, prepend=0.0)
    middles = levels - masses / 2
    i = np.minimum(np.searchsorted(sent, middles), len(supply) - 1)
    j = np.minimum(np.searchsorted(received, middles), len(demand) - 1)
    keep = masses > 0
    return i[keep], j[keep], masses[keep]


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
        """Where the mass of each source point goes on average, ``sum_j P_ij y_j / sum_j P_ij``."""
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


def interpolate(plan: TransportPlan, t: float, *, kind: str = "barycentric") -> DiscreteMeasure:
    """Return the measure at fraction t of the way from the plan's source to its target.

    Parameters
    ----------
    plan : TransportPlan
        Optimal plan between the two measures.
    t : float
        Fraction of the way, in [0, 1]: 0 is the source.
    kind : {"barycentric", "exact"}, default="barycentric"
        "exact" has a point ``(1 − t) x_i + t y_j`` of mass P_ij for every entry of the plan,
        n + m − 1 at most. It lies on a geodesic: ``W(source, ·) = t W`` and
        ``W(·, target) = (1 − t) W``.
        "barycentric" has one point for each source point, of its mass, on the way to the mean
        of its targets. Both are the same when the plan splits no source point, in particular
        between equally many points of equal mass; otherwise the barycentric measure is nearer
        to the source than t says, ``W(source, ·) ≤ t W``.

    Returns
    -------
    DiscreteMeasure
        The interpolating measure.

    Raises
    ------
    ValueError
        If t or the kind is not allowed.

    Privacy
    -------
    Reveals every row of the source to whoever knows the target and t: the plan between the
    measure and the target is again optimal, and the step can be undone.

    References
    ----------
    Ambrosio, Gigli, Savaré, "Gradient flows", 2005, section 7.2.

    Examples
    --------
    >>> from skdpot.federated.plans import interpolate
    >>> from skdpot.federated.measures import DiscreteMeasure
    >>> from skdpot.federated.plans import optimal_plan
    >>> plan = optimal_plan(DiscreteMeasure([[0.0], [1.0]]), DiscreteMeasure([[5.0], [4.0]]))
    >>> interpolate(plan, 0.25).points.ravel()
    array([1., 2.])
    """
    check_fraction(t)
    source, target = plan.source, plan.target
    if kind not in ("barycentric", "exact"):
        raise ValueError(f"kind={kind!r} must be 'barycentric' or 'exact'.")
    if kind == "barycentric" or plan.is_map:
        return DiscreteMeasure((1 - t) * source.points + t * plan.barycenters(), source.masses)
    points = (1 - t) * source.points[plan.rows] + t * target.points[plan.columns]
    return DiscreteMeasure(points, plan.masses)


def check_fraction(t: float, name: str = "t", *, below_one: bool = False) -> None:
    """Refuse fractions of the way outside of [0, 1], or of [0, 1)."""
    if not 0 <= t <= 1 or (below_one and t == 1):
        allowed = "[0, 1)" if below_one else "[0, 1]"
        raise ValueError(f"{name}={t!r} must be a fraction in {allowed}.")
