"""Attacks: the rows of other parties, from what a participant of TriangleWad or FedWad has seen.

In TriangleWad the server, which sees a party's η and knows the reference and t, recovers every row
of that party exactly. In FedWad each party also recovers the rows of the other. Neither the size or
the scale of the reference nor t protects. `reconstruct` attacks the transcript of a protocol.
"""

from collections.abc import Iterator
from dataclasses import dataclass, replace
from itertools import chain
from typing import TypeAlias

import numpy as np
from numpy.typing import ArrayLike
from scipy.spatial.distance import cdist

from skdpot._utils.parameters import check_is_fitted
from skdpot.distance.messages import (
    CostMatrices,
    FractionRequest,
    GeodesicMeasure,
    InterpolatingMeasure,
    MeasureMessage,
    ReferenceMeasure,
)
from skdpot.distance.transcript import Transcript
from skdpot.ot.flow import FlowSchedule, sliced_flow
from skdpot.ot.flow_problems import SlicedFlowProblem
from skdpot.ot.measures import DiscreteMeasure
from skdpot.ot.plans import optimal_plan
from skdpot.release.sketch import SlicedSketch

Seen: TypeAlias = DiscreteMeasure | MeasureMessage

_NEGLIGIBLE = 1e-14  # relative duality gap at which the search ends
_ROUNDING = 2.0**-52  # relative duality gap that arithmetic cannot tell from 0
_WINDOW = 1e-10  # width in which quotients count as equal
_FEWEST = 12  # equal quotients that are no coincidence
_SAME_ROW = 1e-9  # relative distance of two copies of one row

_FLAT = 1e-9  # relative singular value below which the points do not span a direction


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
        """Return the distance of each true row from the nearest reconstructed one."""
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
        stated = "".join(f", {name}={value!r}" for name, value in facts.items() if value)
        return f"Reconstruction({n_rows} rows, {n_features} features{stated})"


def as_measure(seen: Seen) -> DiscreteMeasure:
    """Return a message as a measure."""
    return seen if isinstance(seen, DiscreteMeasure) else seen.measure


def find_barycenters(
    message: DiscreteMeasure, reference: DiscreteMeasure, t: float, max_plans: int
) -> tuple[np.ndarray, float, int]:
    """Return the barycenters of an interpolating measure, a bound of their error, and plans used.

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
    ``‖e‖ / (1 − t)``, because ``η ↦ η − projection`` does not increase distances: to hide rows, the
    message needs as much noise as the rows shall have.

    The projection is computed by the method of Frank and Wolfe. Each step solves an optimal
    transport between the rest of the message and the reference. The first plan, between η and γ, is
    P* if every row moved towards one reference point (`rows_from_interpolation`). Otherwise the
    search reaches P* after finitely many plans if P* is the only optimal plan, since close to the
    solution the linear problem has the answer P*. If several plans are optimal, as for equal rows
    that are divided, the error may fall only as one over the number of plans.

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
    first, second = rng.integers(0, n, size=(2, n_pairs))
    rises, runs = ((rows[first] - rows[second]).ravel() for rows in (message.points, targets))
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
    """Return each row once, with the total mass of its copies."""
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


@dataclass(frozen=True, eq=False, repr=False, kw_only=True)
class PairedDifferences:
    """Differences between rows of two parties, from the two messages that a server sees."""

    first_rows: np.ndarray
    second_rows: np.ndarray
    differences: np.ndarray

    @property
    def n_pairs(self) -> int:
        """Number of pairs."""
        return len(self.differences)

    def n_exact(self, first: ArrayLike, second: ArrayLike, tol: float = 1e-9) -> int:
        """Count the differences that are right."""
        truth = np.asarray(first)[self.first_rows] - np.asarray(second)[self.second_rows]
        errors = np.sqrt(np.mean((self.differences - truth) ** 2, axis=1))
        return int(np.count_nonzero(errors <= tol))

    def __repr__(self) -> str:
        return f"PairedDifferences({self.n_pairs} pairs, {self.differences.shape[1]} features)"


def paired_differences(first: Seen, second: Seen, t: float | None = None) -> PairedDifferences:
    """Read differences between rows of two parties from their messages alone.

    In TriangleWad a server computes the plan between ``η = (1 − t) x + t γ_σ`` and
    ``η' = (1 − t) y + t γ_τ``. Where it pairs two rows that were moved towards the same reference
    point, γ cancels: ``η_i − η'_j = (1 − t) (x_i − y_j)``, exactly. Anyone who knows the rows of
    one party then knows those of the other, without γ or the plans.

    **All pairs are exact as soon as the reference hides anything**: if the rows of each party
    lie in a ball of radius R, it suffices that ``t / (1 − t) · min_k≠l ‖γ_k − γ_l‖ ≥ 2 R``.
    *Proof.* Number both parties' rows by their reference points. Taking a matching s in place
    of the identity changes ``sum_k ⟨η_k, η'_s(k)⟩`` by four sums: ``t (1 − t)`` times two that
    are not positive, as both plans are optimal; ``−t²/2 sum ‖γ_k − γ_s(k)‖²``; and
    ``(1 − t)² sum ⟨x_k − c, y_s(k) − y_k⟩`` for any centre c, which for each row that moves is
    at most ``(1 − t)² · R · 2 R``. ∎

    With a smaller reference or t fewer pairs are exact, and the others are wrong only by
    ``t (γ_σ(i) − γ_τ(j)) / (1 − t)``, which is then small.
    """
    fraction = 0.0 if t is None else t
    if not 0 <= fraction < 1:
        raise ValueError(f"t={t!r} must be in [0, 1).")
    plan = optimal_plan(as_measure(first), as_measure(second))
    differences = first.points[plan.rows] - second.points[plan.columns]
    return PairedDifferences(
        first_rows=plan.rows, second_rows=plan.columns, differences=differences / (1 - fraction)
    )


def positions_from_distances(
    squared_distances: ArrayLike, anchors: ArrayLike
) -> tuple[np.ndarray, int]:
    """Locate points by their squared distances to known ones (trilateration).

    ``‖y − p_j‖² − ‖y − p_0‖²`` is linear in y: d + 1 points in general position determine y.
    """
    distances, points = np.asarray(squared_distances, float), np.asarray(anchors, float)
    if distances.ndim != 2 or points.ndim != 2 or distances.shape[1] != len(points):
        shapes = f"{distances.shape}; it must be (n_rows, {len(points)}), one column per anchor"
        raise ValueError(f"squared_distances has shape {shapes}.")
    centre = points.mean(axis=0)
    arms = points - centre
    lengths = np.sum(arms**2, axis=1)
    sides = (lengths - lengths.mean()) - (distances - distances.mean(axis=1, keepdims=True))
    solution, _, rank, _ = np.linalg.lstsq(2 * arms, sides.T, rcond=_FLAT)
    return solution.T + centre, int(rank)


def rows_from_cost_matrices(
    fractions: ArrayLike, costs: ArrayLike, points: ArrayLike
) -> Reconstruction:
    """Recover a seller's rows from the cost matrices that it sends to the buyer.

    The buyer knows its own points and receives the squared distances of each ``η_i(s)`` from
    them, for several s. `positions_from_distances` locates the ``η_i(s)``. One plan serves all
    s, so that ``η_i(s) = (1 − s) x_i + s b_i`` is a straight line, and two fractions give the
    row at s = 0, without the plan, the reference or the buyer's t.
    """
    s = np.asarray(fractions, dtype=np.float64)
    if len(np.unique(s)) < 2 or len(s) != len(np.asarray(costs)):
        raise ValueError("fractions must hold at least two different values, one per cost matrix.")
    located = [positions_from_distances(matrix, points) for matrix in np.asarray(costs)]
    positions = np.stack([place for place, _ in located])
    # The value at 0 of the line through positions at s, by least squares.
    value_at_0 = np.linalg.pinv(np.stack([np.ones_like(s), s], axis=1))[0]
    return Reconstruction(
        rows=np.tensordot(value_at_0, positions, axes=1),
        n_plans=0,
        method=f"trilateration in {located[0][1]} of {positions.shape[2]} dimensions",
    )


def reconstruct(
    transcript: Transcript, observer: str, *, t: float | None = None, is_first: bool = True
) -> dict[str, Reconstruction]:
    """Recover the rows of all parties whose messages reveal them to one participant.

    The attack reads only what the observer sent or received: `InterpolatingMeasure`,
    `FractionRequest`, `CostMatrices` and `GeodesicMeasure`. A `SketchMessage` reveals no rows: see
    `skdpot.distance.reconstruction.rows_from_sketch`.

    Parameters
    ----------
    transcript : Transcript
        Transcript of the whole protocol, or what the observer saw.
    observer : str
        Name of the participant.
    t : float, optional
        The fraction, if the transcript does not contain it. By default it is estimated from equal
        values in the data, where there are some.
    is_first : bool, default=True
        Whether the observer is the first of the two parties of FedWad.

    Returns
    -------
    dict of str to Reconstruction
        Recovered ``rows`` by name of the party, from the first message that reveals them, with
        ``row_errors(truth)``, ``rmse(truth)`` and ``n_exact(truth)``. Parties whose rows are not
        revealed are missing. A party of FedWad does not see the other's name: "the other party".

    Examples
    --------
    >>> import numpy as np
    >>> from skdpot.distance.reconstruction import reconstruct
    >>> from skdpot.distance.messages import InterpolatingMeasure, ReferenceMeasure
    >>> from skdpot.distance.transcript import Transcript
    >>> transcript = Transcript()
    >>> transcript.record(0, "server", "clinic", ReferenceMeasure([[5.0], [9.0]], t=0.5))
    >>> transcript.record(0, "clinic", "server", InterpolatingMeasure([[3.0], [5.5]]))
    >>> reconstruct(transcript, "server")["clinic"].rows.ravel()
    array([1., 2.])
    """
    recovered: dict[str, Reconstruction] = {}
    seen = transcript.seen_by(observer)
    attacks = (
        _from_measures(seen, observer, t),
        _from_costs(seen, observer),
        _from_rounds(seen, observer, is_first),
    )
    for victim, reconstruction in chain(*attacks):
        recovered.setdefault(victim, replace(reconstruction, victim=victim))
    return recovered


Victims: TypeAlias = Iterator[tuple[str, Reconstruction]]


def _from_measures(seen: Transcript, observer: str, t: float | None) -> Victims:
    """Undo interpolating measures with the reference of their senders."""
    references: dict[str, ReferenceMeasure | GeodesicMeasure] = {}
    done: set[str] = set()
    for entry in seen:
        message = entry.message
        if isinstance(message, (ReferenceMeasure, GeodesicMeasure)):
            references[entry.recipient] = message
        elif isinstance(message, (InterpolatingMeasure, FractionRequest)):
            # What the server sent to this party; a party only sees its own copy.
            reference = references.get(entry.sender, references.get(observer))
            if entry.sender in (observer, *done) or reference is None:
                continue
            fraction = t if isinstance(message, FractionRequest) else reference.t or t
            try:
                recovered = rows_from_interpolation(
                    message, reference, fraction, interpolation=reference.interpolation
                )
            except ValueError:  # t is secret, and nothing in the data reveals it
                continue
            done.add(entry.sender)
            yield entry.sender, recovered


def _from_costs(seen: Transcript, observer: str) -> Victims:
    """Locate rows by their distances to points that the observer sent."""
    asked: FractionRequest | None = None
    reference: ReferenceMeasure | None = None
    for entry in seen:
        message = entry.message
        if isinstance(message, ReferenceMeasure):
            reference = message
        elif isinstance(message, FractionRequest) and entry.sender == observer:
            asked = message
        elif isinstance(message, CostMatrices) and entry.recipient == observer and asked:
            if len(message.fractions) > 1:
                recovered = rows_from_cost_matrices(message.fractions, message.costs, asked.points)
                yield entry.sender, replace(recovered, masses=message.masses)
            elif reference is not None:
                points, _ = positions_from_distances(message.costs[0], asked.points)
                moved = DiscreteMeasure(points, message.masses)
                fraction = float(message.fractions[0])
                yield entry.sender, rows_from_interpolation(moved, reference, fraction)


def _from_rounds(seen: Transcript, observer: str, is_first: bool) -> Victims:
    """Undo the server's step and then the other party's, in rounds of FedWad."""
    sent = [e.message for e in seen if e.sender == observer]
    if any(isinstance(message, GeodesicMeasure) for message in sent):
        return  # the server needs no such detour
    moved = [message for message in sent if isinstance(message, InterpolatingMeasure)]
    path = seen.messages(GeodesicMeasure)
    rounds = [
        (abs(reference.t - 0.5), reference.t, reference, message, after)
        for reference, message, after in zip(path, moved, path[1:], strict=False)
        if reference.t is not None
    ]
    if rounds:  # a fraction near one half loses least to rounding
        _, t, reference, message, after = min(rounds, key=lambda part: part[0])
        recovered = rows_from_one_round(reference, message, after, t, is_first=is_first)
        yield "the other party", recovered


def rows_from_sketch(
    sketch: SlicedSketch,
    n_rows: int,
    rng: np.random.Generator,
    *,
    label: object = None,
    n_steps: int = 200,
) -> Reconstruction:
    """Fit rows to the distribution functions of a sketch, as a flow sampler does.

    People in the data and other people of the same population are equally near to them, up to ε.
    """
    check_is_fitted(sketch, "release_")
    problem = SlicedFlowProblem(sketch.table(label), None)
    flow = sliced_flow(problem, n_rows, FlowSchedule(n_steps, 1.0, 0.0, FlowSchedule.momentum), rng)
    rows = sketch.bounds_.from_ball(flow.particles.astype(np.float64))
    return Reconstruction(rows=rows, n_plans=0, method="flow towards the sketch")
