"""Rows of other parties, from nothing but what a participant of TriangleWad or FedWad saw.

In TriangleWad the server, which sees a party's η and knows the reference and t, recovers every row
of that party exactly; in FedWad each party also recovers the other's rows. Neither the size or
scale of the reference nor t protects. `skdpot.audit.reconstruct` attacks a recorded protocol.
"""

from dataclasses import dataclass
from typing import TypeAlias

import numpy as np
from numpy.typing import ArrayLike
from scipy.spatial.distance import cdist

from skdpot.federated.messages import MeasureMessage
from skdpot.ot.measures import DiscreteMeasure, optimal_plan

Seen: TypeAlias = DiscreteMeasure | MeasureMessage

_NEGLIGIBLE = 1e-14  # relative duality gap at which the search ends
_ROUNDING = 2.0**-52  # relative duality gap that arithmetic cannot tell from 0
_WINDOW = 1e-10  # width in which quotients count as equal
_FEWEST = 12  # equal quotients that chance does not bring about
_SAME_ROW = 1e-9  # relative distance of two copies of one row


@dataclass(frozen=True, eq=False, repr=False, kw_only=True)
class Reconstruction:
    """Rows that an attack found."""

    rows: np.ndarray
    masses: np.ndarray | None = None
    t: float | None = None
    error_bound: float | None = None
    n_plans: int = 1
    victim: str | None = None
    method: str = ""

    def row_errors(self, truth: ArrayLike) -> np.ndarray:
        """Return how far each true row is from the nearest reconstructed one."""
        true_rows = np.atleast_2d(np.asarray(truth, dtype=np.float64))
        if true_rows.ndim != 2 or true_rows.shape[1] != self.rows.shape[1]:
            raise ValueError(
                f"truth has shape {true_rows.shape}; it must be (n_truth, {self.rows.shape[1]})."
            )
        nearest = cdist(true_rows, self.rows).min(axis=1)
        return nearest / np.sqrt(true_rows.shape[1])

    def rmse(self, truth: ArrayLike) -> float:
        """Return the root mean square of `row_errors`."""
        return float(np.sqrt(np.mean(self.row_errors(truth) ** 2)))

    def n_exact(self, truth: ArrayLike, tol: float = 1e-9) -> int:
        """Count the true rows that were found."""
        return int(np.count_nonzero(self.row_errors(truth) <= tol))

    def __repr__(self) -> str:
        n_rows, n_features = self.rows.shape
        facts = {name: getattr(self, name) for name in ("victim", "t", "error_bound", "method")}
        known = "".join(f", {name}={value!r}" for name, value in facts.items() if value)
        return f"Reconstruction({n_rows} rows, {n_features} features{known})"


def as_measure(seen: Seen) -> DiscreteMeasure:
    """Return what was seen as a measure."""
    return seen if isinstance(seen, DiscreteMeasure) else seen.measure


def find_barycenters(
    message: DiscreteMeasure, reference: DiscreteMeasure, t: float, max_plans: int
) -> tuple[np.ndarray, float, int]:
    """Return the barycenters of an interpolating measure, a bound of their error, and plans taken.

    The bound is on the squared distance of ``t · barycenters`` from the truth, in the norm below.

    A party with rows x_i of masses a_i sends ``η = (1 − t) x + t B(P*)``, where
    ``B(Q) = diag(1/a) Q γ`` are the barycenters of a coupling Q of the masses and P* is an
    optimal plan between its rows and the reference γ.

    **Theorem.** For all sizes, masses, and t < 1, and whether or not P* is unique, ``t B(P*)``
    is the point nearest to η in the convex set ``Z = {t B(Q)}``, in the norm
    ``‖z‖² = sum_i a_i ‖z_i‖²``. Hence η, γ and t determine the rows, by
    ``(1 − t) x = η − projection of η on Z``.

    *Proof.* P* is optimal when ``sum_i ⟨x_i, (Q γ)_i⟩``, which is ``⟨x, B(Q)⟩`` in that norm's
    inner product, is maximal at Q = P*. As ``η − t B(P*) = (1 − t) x``, for every coupling Q
    ``⟨η − t B(P*), t B(Q) − t B(P*)⟩ = t (1 − t) ⟨x, B(Q) − B(P*)⟩ ≤ 0``, which is the
    condition that characterises the projection on a convex set. It is unique. ∎

    A message that was rounded or disturbed by e gives rows that are wrong by at most
    ``‖e‖ / (1 − t)``, because ``η ↦ η − projection`` does not increase distances: hiding rows
    takes as much noise in the message as there shall be in the rows.

    The projection is computed by the method of Frank and Wolfe. Each step solves an optimal
    transport between the rest of the message and the reference. The first plan, between η and γ, is
    P* if every row moved towards one reference point (`rows_from_interpolation`). Otherwise the
    search reaches P* after finitely many plans if P* is the only optimal plan, since close to the
    solution the linear problem answers P*. Where several plans are optimal, as between divided rows
    that are equal, the error may fall only as one over the number of plans.

    With the gap ``g = ⟨η − z, s − z⟩`` at the last point z, s being the solution of the linear
    problem, ``‖z − t B(P*)‖² ≤ g``, the sum of ``⟨η − z, z* − z⟩ ≤ g`` and ``⟨η − z*, z − z*⟩ ≤ 0``
    (Jaggi, "Revisiting Frank-Wolfe", ICML 2013).
    """
    weights = message.weights[:, None]
    scale = float(np.sum(weights * message.points**2)) or 1.0
    moved = t * optimal_plan(message, reference).barycenters()
    n_plans, gap = 1, np.inf
    for n_plans in range(2, max_plans + 1):
        residual = message.points - moved
        # The coupling Q that maximises ⟨residual, B(Q)⟩.
        linear = optimal_plan(DiscreteMeasure(residual, message.masses), reference)
        corner = t * linear.barycenters()
        step = corner - moved
        gap = float(np.sum(weights * residual * step))
        if gap <= _NEGLIGIBLE * scale or n_plans == max_plans:
            break
        length = gap / float(np.sum(weights * step**2))
        # A whole step lands on the corner itself, without the rounding of a sum.
        moved = corner if length >= 1 - 1e-9 else moved + length * step
    return moved / t if t else moved, max(gap, _ROUNDING * scale), n_plans


def fraction_from_ties(
    message: Seen,
    reference: Seen,
    *,
    max_comparisons: int = 2_000_000,
    rng: np.random.Generator | None = None,
) -> float:
    """Find t from values that occur more than once in a column of the secret rows.

    The message η and the reference γ alone do not determine t: for every smaller t' there is a data
    set with that message, on the segments between the rows and their reference points. But the plan
    is the same for all of them (`rows_from_interpolation`), and two rows with the same value of a
    feature, known or not, give ``(η_ij − η_lj) / (γ_σ(i)j − γ_σ(l)j) = t``. So t is the most
    frequent quotient in images with a background, counts, codes and rounded measurements. Columns
    of pairwise different real numbers do not reveal it.
    """
    rng = np.random.default_rng(0) if rng is None else rng
    targets = optimal_plan(as_measure(message), as_measure(reference)).barycenters()
    n, d = targets.shape
    n_pairs = min(max(1, max_comparisons // d), n * (n - 1) // 2 + 1)
    one, other = rng.integers(0, n, size=(2, n_pairs))
    rises, runs = ((rows[one] - rows[other]).ravel() for rows in (message.points, targets))
    wide = np.abs(runs) > 1e-3 * float(np.abs(runs).max(initial=0.0))
    rises, runs = rises[wide], runs[wide]
    quotients = rises / runs
    order = np.argsort(quotients)
    order = order[(quotients[order] > 0) & (quotients[order] < 1)]
    ordered = quotients[order]
    agreeing = np.searchsorted(ordered, ordered + _WINDOW, side="right") - np.arange(len(ordered))
    if len(ordered) == 0 or agreeing.max() < _FEWEST:
        raise ValueError(
            "t cannot be found: no quotient comes up again and again, so the rows have few "
            "equal values, or were divided among several reference points. Give t."
        )
    start = int(np.argmax(agreeing))
    mode = order[start : start + int(agreeing[start])]
    return float(rises[mode] @ runs[mode] / (runs[mode] @ runs[mode]))


def rows_from_interpolation(
    message: Seen,
    reference: Seen,
    t: float | None = None,
    *,
    interpolation: str = "barycentric",
    max_plans: int = 1000,
) -> Reconstruction:
    """Recover every row from an interpolating measure, exactly.

    A party with rows x_i sends ``η_i = (1 − t) x_i + t (m P* γ)_i`` and keeps the plan P* between
    its rows and the shared reference γ secret. Anyone who sees η and knows γ and t nevertheless
    recovers every row exactly, whatever the scale of γ and t < 1.

    **As many rows as reference points, equal masses** (and wherever every row moved towards
    one reference point, ``η_i = (1 − t) x_i + t γ_σ(i)``). The optimal plan between η and γ
    is the secret σ, and the only optimal one. *Proof.* A matching s is optimal when it maximises

        ``sum_i ⟨η_i, γ_s(i)⟩ = (1 − t) sum_i ⟨x_i, γ_s(i)⟩ + t sum_i ⟨γ_σ(i), γ_s(i)⟩``.

    The first sum is largest at s = σ, because P* is optimal between x and γ. So is the second,
    since ``2 sum ⟨γ_σ(i), γ_s(i)⟩ = 2 sum ‖γ_i‖² − sum ‖γ_σ(i) − γ_s(i)‖²``, and strictly: any
    other s moves a row to another point. ∎ Then ``x_i = (η_i − t γ_σ(i)) / (1 − t)``. The same
    sums, with masses, hold for couplings, for rows that share reference points, and for
    the points of an exact interpolating measure, each of which moved towards one.

    **Other sizes and masses.** `find_barycenters` has the theorem and the search, which solves up
    to `max_plans` transport problems. (Section 4.2 of Li, Pang, "Private Wasserstein distance",
    2024, calls finding the plan NP-hard.)
    """
    if interpolation not in ("barycentric", "exact"):
        raise ValueError(f"interpolation={interpolation!r} must be 'barycentric' or 'exact'.")
    if max_plans < 1:
        raise ValueError(f"max_plans={max_plans!r} must be at least 1.")
    eta, gamma = as_measure(message), as_measure(reference)
    if t is None:
        t = fraction_from_ties(eta, gamma)
    if not 0 <= t < 1:
        raise ValueError(f"t={t!r} must be in [0, 1).")
    barycenters, squared, n_plans = find_barycenters(eta, gamma, t, max_plans)
    bound = None if n_plans == 1 else np.sqrt(squared / eta.n_features) / (1 - t)
    rows, masses = (eta.points - t * barycenters) / (1 - t), eta.masses
    if interpolation == "exact":
        rows, masses = _joined(rows, eta.weights)
    return Reconstruction(rows=rows, masses=masses, t=t, error_bound=bound, n_plans=n_plans)


def _joined(rows: np.ndarray, weights: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
    """Return each row once, with the sum of the masses of its copies."""
    unit = float(np.abs(rows).max()) or 1.0
    # A random line separates different rows; copies, equal up to rounding, stay neighbours.
    line = np.random.default_rng(0).standard_normal(rows.shape[1])
    order = np.argsort(rows @ line, kind="stable")
    gaps = np.abs(np.diff(rows[order], axis=0)).max(axis=1) > _SAME_ROW * unit
    groups = np.empty(len(rows), dtype=np.int64)
    groups[order] = np.concatenate([[0], np.cumsum(gaps)])
    _, first, codes = np.unique(groups, return_index=True, return_inverse=True)
    masses = np.bincount(codes, weights)
    in_order = np.argsort(first)
    joined: np.ndarray = rows[first[in_order]]
    return joined, masses[in_order]


def rows_from_one_round(
    reference: Seen,
    own_message: Seen,
    next_reference: Seen,
    t: float,
    *,
    is_first: bool = True,
    max_plans: int = 1000,
) -> Reconstruction:
    """Recover the other party's rows from one round of FedWad, as one of the two parties.

    A party gets ξ, sends its η and gets the next ξ', which lies on a geodesic between its own η
    and the other's η': it is an interpolating measure of η' with η as reference. So
    `rows_from_interpolation` gives η', and once more, with ξ as reference, the rows.

    ξ' has a point for each point of the first party's η, t of the way to the second's. So the
    second party recovers the first one's rows exactly for all sizes. The first one recovers
    the second's rows exactly if sizes and masses are equal, otherwise means of neighbours.
    """
    if not 0 < t < 1:
        raise ValueError(f"t={t!r} must be in (0, 1).")
    way = 1 - t if is_first else t
    other = rows_from_interpolation(next_reference, own_message, way, max_plans=max_plans)
    return rows_from_interpolation(
        DiscreteMeasure(other.rows, other.masses), reference, t, max_plans=max_plans
    )
