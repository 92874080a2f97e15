"""Optimal transport plans between measures, for squared Euclidean distances or given costs.

A plan has dual prices, which prove that it is optimal and give each row's share in the distance.
"""

import math
from collections.abc import Iterator
from contextlib import contextmanager
from contextvars import ContextVar
from dataclasses import dataclass, replace
from typing import Any

import numpy as np
from numpy.typing import ArrayLike
from scipy.sparse import csr_array
from scipy.spatial.distance import cdist
from tqdm.auto import tqdm

from skdpot.ot.measures import DiscreteMeasure, weights_of
from skdpot.ot.transport import exact_plan

_NEAR = 1e-3  # share of the squared radii below which a difference of squares is too imprecise
_CHUNK = 2**22  # numbers held at once when distances are computed pair by pair
_DUST = 1e-12  # share of the smallest mass below which a flow is a rounding error
_BAR: ContextVar[Any] = ContextVar("bar of exact plans", default=None)
_SECONDS, _GROWTH = 2e-9, 2.65  # a plan of n by n points takes _SECONDS * n**_GROWTH (n <= 4,000)


def squared_distances(X: np.ndarray, Y: np.ndarray) -> np.ndarray:
    """Return ``‖x_i − y_j‖²`` for all pairs.

    They are computed as ``‖x‖² + ‖y‖² − 2 x·y`` around the common centre by one matrix product,
    which for hundreds of features is ten times as fast as subtracting rows. The error is a few
    units of rounding of ``‖x‖² + ‖y‖²``; distances below a thousandth of that are computed again
    from the differences of the rows (all distances, when these are many). So every entry has a
    relative error of about 1e-12 for any unit and origin, and equal rows have distance 0.
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
        return cdist(X, Y, "sqeuclidean")
    step = max(1, _CHUNK // X.shape[1])
    for start in range(0, len(rows), step):
        i, j = rows[start : start + step], columns[start : start + step]
        gaps = X[i] - Y[j]
        costs[i, j] = np.einsum("ij,ij->i", gaps, gaps)
    return costs


@dataclass(frozen=True, eq=False, repr=False, kw_only=True)
class TransportPlan:
    """Masses sent from source rows to target columns, and the prices that prove optimality."""

    rows: np.ndarray
    columns: np.ndarray
    masses: np.ndarray
    squared_distance: float
    source_potential: np.ndarray
    target_potential: np.ndarray
    source: Any = None
    target: Any = None

    def __post_init__(self) -> None:
        """Lock the arrays."""
        for name in ("rows", "columns", "masses", "source_potential", "target_potential"):
            getattr(self, name).setflags(write=False)

    @property
    def distance(self) -> float:
        """Root of `squared_distance`: W₂."""
        return math.sqrt(self.squared_distance)

    @property
    def matrix(self) -> csr_array:
        """The masses as a sparse matrix of shape (n_source, n_target)."""
        n, m = len(self.source_potential), len(self.target_potential)
        starts = np.searchsorted(self.rows, np.arange(n + 1))
        return csr_array((self.masses, self.columns, starts), shape=(n, m))

    @property
    def is_map(self) -> bool:
        """Whether the plan sends the whole mass of every source point to one target point."""
        return np.array_equal(self.rows, np.arange(len(self.source_potential)))

    def barycenters(self) -> np.ndarray:
        """Mean target of each source point, ``sum_j P_ij y_j / sum_j P_ij``."""
        if self.is_map:
            return self.target.points[self.columns]
        shares = self.matrix
        sums = shares.sum(axis=1)
        shares.data = self.masses / sums[self.rows]
        means: np.ndarray = shares @ self.target.points
        if len(empty := np.flatnonzero(sums == 0)):
            costs = squared_distances(self.source.points[empty], self.target.points)
            means[empty] = self.target.points[np.argmin(costs - self.target_potential, axis=1)]
        return means

    def __repr__(self) -> str:
        n, m = len(self.source_potential), len(self.target_potential)
        return f"TransportPlan({n} × {m} points, {len(self.masses)} entries)"


@contextmanager
def shown_plans(label: str | None) -> Iterator[None]:
    """Count the exact plans of the block on a progress bar; None for no bar."""
    if label is None:  # tqdm has a lock that forked processes would share
        yield
        return
    with tqdm(desc=label, unit=" plans") as bar:
        token = _BAR.set(bar)
        try:
            yield
        finally:
            _BAR.reset(token)


def cost_of_plan(n: int, m: int) -> str:
    """Describe the approximate time and memory of an exact plan between n and m points."""
    seconds = max(1.0, _SECONDS * math.sqrt(n * m) ** _GROWTH)
    time = f"{seconds:.0f} s" if seconds < 120 else f"{seconds / 60:,.0f} minutes"
    return f"{n:,} x {m:,} points: about {time} and {24e-9 * n * m:.1f} GB each"


def optimal_plan(source: DiscreteMeasure, target: DiscreteMeasure) -> TransportPlan:
    """Solve optimal transport between two measures for the cost ``‖x − y‖²``.

    Potentials of discrete measures need not be unique; between two clouds of equally many points
    of equal mass they never are. Another solver may find other potentials of the same dual value.
    """
    if source.n_features != target.n_features:
        raise ValueError(
            f"The source has {source.n_features} features and the target {target.n_features}."
        )
    if (bar := _BAR.get()) is not None:
        bar.set_postfix_str(cost_of_plan(source.n_points, target.n_points))
    costs = squared_distances(source.points, target.points)
    plan = _solve(costs, source.weights, target.weights)
    if bar is not None:
        bar.update()
    return replace(plan, source=source, target=target)


def plan_from_costs(
    costs: ArrayLike, source_masses: ArrayLike | None = None, target_masses: ArrayLike | None = None
) -> TransportPlan:
    """Solve optimal transport for a given matrix of costs.

    Cost matrices of several sources against the same target can be stacked: the result is the
    plan of the union of the sources.
    """
    matrix = np.ascontiguousarray(costs, dtype=np.float64)
    if matrix.ndim != 2 or 0 in matrix.shape:
        raise ValueError(f"costs has shape {matrix.shape}; it must be (n, m), both at least 1.")
    if not (matrix.min() >= 0 and matrix.max() < np.inf):
        raise ValueError("costs must be finite and not negative.")
    a = weights_of(source_masses, len(matrix), "source_masses")
    b = weights_of(target_masses, matrix.shape[1], "target_masses")
    return _solve(matrix, a, b)


def _solve(costs: np.ndarray, a: np.ndarray, b: np.ndarray) -> TransportPlan:
    """Return the optimal plan; points without mass take no part in the solution."""
    sources, targets = np.flatnonzero(a), np.flatnonzero(b)
    whole = len(sources) == len(a) and len(targets) == len(b)
    active = costs if whole else costs[np.ix_(sources, targets)]
    # The solver's tolerances are absolute, so costs are scaled to a maximum of one.
    unit = float(active.max()) or 1.0
    active = active / unit
    # Subtracting guessed prices first leaves the simplex fewer pivots (a third of the time against
    # a Gaussian reference) and does not change the optimal plans.
    guess = active.mean(axis=0)
    active -= guess
    active -= active.min(axis=1, keepdims=True)
    rest = active.min(axis=0)
    active -= rest
    matrix, log = exact_plan(active, a[sources], b[targets])
    rows, columns = np.nonzero(matrix > _DUST * min(a[sources].min(), b[targets].min()))
    masses = matrix[rows, columns]
    rows, columns = sources[rows], targets[columns]
    f, g = _feasible_potentials(costs, unit * (log["v"] + guess + rest), sources, targets)
    shift = (b @ g - a @ f) / 2
    return TransportPlan(
        rows=rows,
        columns=columns,
        masses=masses,
        squared_distance=float(masses @ costs[rows, columns]),
        source_potential=f + shift,
        target_potential=g - shift,
    )


def _feasible_potentials(
    costs: np.ndarray, prices: np.ndarray, sources: np.ndarray, targets: np.ndarray
) -> tuple[np.ndarray, np.ndarray]:
    """Extend the prices of `targets` to all points, with ``f_i + g_j ≤ c_ij``.

    Each step takes the largest prices that the earlier ones allow. For points with mass this
    corrects the rounding of the solver and keeps every equality. Points without mass get the price
    of their first unit of mass.
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

    It reveals every row of the source to anyone who knows the target and t: the plan between the
    measure and the target is again optimal, and the step can be undone (Ambrosio, Gigli, Savaré,
    "Gradient flows", 2005, section 7.2).
    """
    if not 0 <= t <= 1:
        raise ValueError(f"t={t!r} must be a fraction in [0, 1].")
    source, target = plan.source, plan.target
    if kind not in ("barycentric", "exact"):
        raise ValueError(f"kind={kind!r} must be 'barycentric' or 'exact'.")
    if kind == "barycentric" or plan.is_map:
        return DiscreteMeasure((1 - t) * source.points + t * plan.barycenters(), source.masses)
    points = (1 - t) * source.points[plan.rows] + t * target.points[plan.columns]
    return DiscreteMeasure(points, plan.masses)
