"""Finitely many points with masses, and optimal transport plans between them.

Costs are squared Euclidean distances. A plan comes with the prices that certify it, and that say
what each row contributes to a distance.
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

from skdpot._utils.arguments import check_count, check_real
from skdpot._utils.finite import as_points
from skdpot._utils.labels import encode_labels
from skdpot.ot.slices import CDFTable
from skdpot.ot.transport import exact_plan, point_masses


@dataclass(frozen=True, eq=False, repr=False)
class DiscreteMeasure:
    """Points of R^d with masses that sum to one, ``sum_i a_i δ(x_i)``; the repr shows no point."""

    points: np.ndarray
    masses: np.ndarray | None = None

    def __post_init__(self) -> None:
        """Copy, check and lock the arrays."""
        points = np.ascontiguousarray(as_points(self.points, "points"))
        masses = point_masses(self.masses, len(points), "masses")
        points.setflags(write=False)
        object.__setattr__(self, "points", points)
        if masses is not None:
            masses.setflags(write=False)
            object.__setattr__(self, "masses", masses)

    @property
    def n_points(self) -> int:
        """Number of points, those without mass included."""
        return len(self.points)

    @property
    def n_features(self) -> int:
        """Dimension d of the space."""
        return int(self.points.shape[1])

    @property
    def weights(self) -> np.ndarray:
        """Masses as an array of shape (n_points,), also when they are uniform."""
        if self.masses is None:
            return np.full(self.n_points, 1.0 / self.n_points)
        return self.masses

    def __repr__(self) -> str:
        kind = "uniform" if self.masses is None else "weighted"
        return f"DiscreteMeasure({self.n_points} points, {self.n_features} features, {kind})"


def weights_of(masses: ArrayLike | None, size: int, name: str = "masses") -> np.ndarray:
    """Return masses that sum to one, also when they are uniform and not given."""
    given = point_masses(masses, size, name)
    return np.full(size, 1.0 / size) if given is None else given


def gaussian_reference(
    n_support: int,
    n_features: int,
    *,
    mean: ArrayLike = 0.0,
    scale: float = 1.0,
    rng: np.random.Generator,
) -> DiscreteMeasure:
    """Draw the reference measure γ that the parties of TriangleWad share."""
    shape = check_count(n_support, "n_support"), check_count(n_features, "n_features")
    spread = check_real(scale, "scale") * rng.standard_normal(shape)
    return DiscreteMeasure(np.asarray(mean, dtype=np.float64) + spread)


def labelled_measure(
    X: ArrayLike, y: ArrayLike, *, masses: ArrayLike | None = None, covariance: str = "full"
) -> DiscreteMeasure:
    """Lift labelled rows to a space in which the Euclidean distance also compares labels.

    Every row becomes ``[x; m_y; vec(Σ_y^½)]`` with the mean m_y and the symmetric square root
    of the covariance Σ_y of its class. The squared distance between two lifted rows is
    ``‖x − x'‖² + ‖m_y − m_y'‖² + ‖Σ_y^½ − Σ_y'^½‖²`` (Frobenius norm), so that labels of two
    data sets are compared by how their rows are distributed, not by their names. The last two
    terms are W₂² between the Gaussians of the two classes when the covariances commute, and at
    least that otherwise. Means and covariances are written into every row, without noise.

    References
    ----------
    Alvarez-Melis, Fusi, "Geometric dataset distances via optimal transport", NeurIPS 2020;
    Rakotomamonjy, Nadjahi, Ralaivola, "Federated Wasserstein distance", ICLR 2024 (the
    vectorial form).
    """
    if covariance not in ("full", "diagonal"):
        raise ValueError(f"covariance={covariance!r} must be 'full' or 'diagonal'.")
    rows = DiscreteMeasure(np.asarray(X), None if masses is None else np.asarray(masses))
    codes, classes = encode_labels(y, rows.n_points)
    moments = np.stack(
        [
            _moments(rows.points[codes == label], rows.weights[codes == label], covariance)
            for label in range(len(classes))
        ]
    )
    return DiscreteMeasure(np.hstack([rows.points, moments[codes]]), rows.masses)


def _moments(points: np.ndarray, weights: np.ndarray, covariance: str) -> np.ndarray:
    """Return the mean and the root of the covariance of one class as one vector."""
    shares = weights if weights.any() else np.ones(len(points))  # a class may have no mass
    shares = shares / shares.sum()
    mean = shares @ points
    centred = np.sqrt(shares)[:, None] * (points - mean)
    if covariance == "diagonal":
        return np.concatenate([mean, np.linalg.norm(centred, axis=0)])
    # With the singular values s and right vectors V of the centred rows, Σ^½ = V s Vᵀ: the
    # covariance, whose small eigenvalues rounding would turn negative, is never formed.
    _, values, axes = np.linalg.svd(centred, full_matrices=False)
    return np.concatenate([mean, ((axes.T * values) @ axes).ravel()])


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
        return cdist(X, Y, "sqeuclidean")
    step = max(1, _CHUNK // X.shape[1])
    for start in range(0, len(rows), step):
        i, j = rows[start : start + step], columns[start : start + step]
        gaps = X[i] - Y[j]
        costs[i, j] = np.einsum("ij,ij->i", gaps, gaps)
    return costs


_DUST = 1e-12  # share of a row's mass below which a flow is rounding


@dataclass(frozen=True, eq=False, repr=False, kw_only=True)
class TransportPlan:
    """Which share of mass goes from where to where, and the prices that prove it optimal."""

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
        """Whether the plan sends every source point to one target, undivided."""
        return np.array_equal(self.rows, np.arange(len(self.source_potential)))

    def barycenters(self) -> np.ndarray:
        """Where the mass of each source point goes on average, ``sum_j P_ij y_j / sum_j P_ij``."""
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


_BAR: ContextVar[Any] = ContextVar("bar of exact plans", default=None)
_SECONDS, _GROWTH = 2e-9, 2.65  # of a plan between n points each: measured to n = 4,000


@contextmanager
def shown_plans(label: str | None) -> Iterator[None]:
    """Count the exact plans of the block on a progress bar; None for no bar."""
    if label is None:  # no bar, no lock of tqdm, which forked processes share
        yield
        return
    with tqdm(desc=label, unit=" plans") as bar:
        token = _BAR.set(bar)
        try:
            yield
        finally:
            _BAR.reset(token)


def cost_of_plan(n: int, m: int) -> str:
    """Say about what an exact plan between so many points takes."""
    seconds = max(1.0, _SECONDS * math.sqrt(n * m) ** _GROWTH)
    time = f"{seconds:.0f} s" if seconds < 120 else f"{seconds / 60:,.0f} minutes"
    return f"{n:,} x {m:,} points: about {time} and {24e-9 * n * m:.1f} GB each"


def optimal_plan(source: DiscreteMeasure, target: DiscreteMeasure) -> TransportPlan:
    """Solve optimal transport between two measures for the cost ``‖x − y‖²``.

    Potentials of discrete measures need not be unique; those of two clouds of equally many
    points of equal mass never are. Another solver may give other ones of the same total worth.
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
    # The solver's tolerances are absolute: give it costs of size one, whatever the unit.
    unit = float(active.max()) or 1.0
    active = active / unit
    # Prices that are free to guess, subtracted first, leave the simplex fewer pivots to make:
    # against a Gaussian reference a third of its time. The optimal plans stay the same.
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


@dataclass(frozen=True, eq=False, repr=False)
class DataValues:
    """Values of rows: how fast the squared distance grows with the mass of each."""

    values: np.ndarray

    def __post_init__(self) -> None:
        """Copy, check and lock the values."""
        values = np.array(self.values, dtype=np.float64)
        if values.ndim != 1 or len(values) == 0 or not np.all(np.isfinite(values)):
            raise ValueError(
                f"values has shape {values.shape}; it must hold one finite number per row."
            )
        values.setflags(write=False)
        object.__setattr__(self, "values", values)

    def noisiest(self, n: int) -> np.ndarray:
        """Positions of the n rows with the largest values, the worst first; ties in order."""
        return self._first(np.argsort(-self.values, kind="stable"), n)

    def most_valuable(self, n: int) -> np.ndarray:
        """Positions of the n rows with the smallest values, the best first; ties in order."""
        return self._first(np.argsort(self.values, kind="stable"), n)

    def detection_curve(self, is_noisy: ArrayLike) -> tuple[np.ndarray, np.ndarray]:
        """Share of the noisy rows found when rows are inspected from the noisiest on."""
        noisy = np.asarray(is_noisy)
        if noisy.shape != self.values.shape or noisy.dtype != bool:
            raise ValueError(
                f"is_noisy must hold a bool per row, got shape {noisy.shape}, dtype {noisy.dtype}."
            )
        if not noisy.any():
            raise ValueError("is_noisy marks no row, so there is nothing to find.")
        found = np.concatenate([[0], np.cumsum(noisy[self.noisiest(len(noisy))])])
        return np.arange(len(found)) / len(noisy), found / found[-1]

    def __repr__(self) -> str:
        return f"DataValues({len(self.values)} rows)"

    def _first(self, order: np.ndarray, n: int) -> np.ndarray:
        if not 0 <= n <= len(order):
            raise ValueError(f"n={n!r} must be between 0 and the number of rows, {len(order)}.")
        return order[:n]


def calibrated_values(potential: ArrayLike, masses: ArrayLike | None = None) -> np.ndarray:
    """Turn a dual potential into data values, ``s_l = f_l − sum_{j≠l} a_j f_j / (1 − a_l)``.

    s_l is the derivative of the transport cost when row l gains mass and all others give it in
    proportion to theirs (Just et al., "LAVA", ICLR 2023, equation 3). Where the optimal potential
    is not unique the cost has a kink, and the value is one of its slopes there.
    """
    f = np.asarray(potential, dtype=np.float64)
    if f.ndim != 1 or len(f) == 0:
        raise ValueError(f"potential has shape {f.shape}; it must be (n_rows,), with a row.")
    a = weights_of(masses, len(f))
    rest = 1.0 - a
    centred = f - a @ f
    return np.divide(centred, rest, out=np.zeros_like(f), where=rest > 0)


def sliced_potential(
    rows: ArrayLike, table: CDFTable, *, masses: ArrayLike | None = None
) -> np.ndarray:
    """Kantorovich potential of public rows against a sketch, averaged over its directions.

    *Derivation.* Along one direction let ``u_1 ≤ … ≤ u_n`` be the sorted projections and
    ``C_i = a_1 + … + a_i``. The optimal plan keeps the order (Santambrogio 2015, theorem 2.9): u_i
    gets the part of F between the levels C_{i−1} and C_i. Prices f and g are optimal when
    ``f_i + g(y) = (u_i − y)²`` on that part and nowhere more. Both u_i and u_{i+1} touch
    ``b_i = F⁻¹(C_i)``, and the difference of the two equations at ``y = b_i`` is

    ``f_{i+1} − f_i = (u_{i+1} − b_i)² − (u_i − b_i)² = ∫_{u_i}^{u_{i+1}} 2 (x − F⁻¹(C_i)) dx``,

    which is ``φ' = 2 (x − T(x))`` with ``T = F⁻¹∘F_rows``, integrated without error: between two
    points F_rows is constant. Such prices are feasible everywhere, because
    ``(u_{i+1} − y)² − (u_i − y)²`` decreases in y. They are unique up to a constant unless F has
    a gap at a level C_i; then b_i is its lower end.
    The cost of a coupling is linear in its masses, hence by the envelope theorem f_θ is the
    derivative of W₂² along θ with respect to them, and the mean over θ that of SW₂².
    """
    points = as_points(rows, "rows")
    weights = weights_of(masses, len(points))
    n_features = table.directions.shape[1]
    if points.shape[1] != n_features:
        raise ValueError(f"rows has shape {points.shape}; it must be (n_rows, {n_features}).")
    total = np.zeros(len(points))
    for k, direction in enumerate(table.directions):
        projections = points @ direction
        order = np.argsort(projections, kind="stable")
        u = projections[order]
        # Rows before the first mass would touch the end of the range, not of the distribution.
        levels = np.clip(np.cumsum(weights[order])[:-1], np.finfo(float).tiny, 1.0)
        borders = table.quantiles_along(k, levels)
        steps = (u[1:] - u[:-1]) * (u[1:] + u[:-1] - 2 * borders)
        total[order[1:]] += np.cumsum(steps)
    potential: np.ndarray = total / len(table.directions)
    potential -= weights @ potential
    return potential


def sliced_values(
    rows: ArrayLike, table: CDFTable, *, masses: ArrayLike | None = None
) -> np.ndarray:
    """Values of public rows against a sketch: how fast SW₂² grows with the mass of each row."""
    return calibrated_values(sliced_potential(rows, table, masses=masses), masses)
