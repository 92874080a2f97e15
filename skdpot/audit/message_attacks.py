"""Attacks on the messages of a protocol: those of a transcript, and a private sketch."""

from collections.abc import Iterator
from dataclasses import dataclass, replace
from itertools import chain

import numpy as np
from numpy.typing import ArrayLike

from skdpot._utils.validation import check_is_fitted
from skdpot.audit.reconstruction import (
    Reconstruction,
    Seen,
    as_measure,
    rows_from_interpolation,
    rows_from_one_round,
)
from skdpot.federated.exchange import Transcript
from skdpot.federated.messages import (
    CostMatrices,
    FractionRequest,
    GeodesicMeasure,
    InterpolatingMeasure,
    ReferenceMeasure,
)
from skdpot.ot.flow import FlowSchedule, SlicedFlowProblem, sliced_flow
from skdpot.ot.measures import DiscreteMeasure, optimal_plan
from skdpot.release.sketch import SlicedSketch

_FLAT = 1e-9  # relative singular value below which the points do not span a direction


@dataclass(frozen=True, eq=False, repr=False, kw_only=True)
class PairedDifferences:
    """Differences between rows of two parties, as a server that sees two messages finds them."""

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
    `skdpot.audit.message_attacks.rows_from_sketch`.

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
    >>> from skdpot.audit.message_attacks import reconstruct
    >>> from skdpot.federated.messages import InterpolatingMeasure, ReferenceMeasure
    >>> from skdpot.federated.exchange import Transcript
    >>> transcript = Transcript()
    >>> transcript.record(0, "server", "clinic", ReferenceMeasure([[5.0], [9.0]], t=0.5))
    >>> transcript.record(0, "clinic", "server", InterpolatingMeasure([[3.0], [5.5]]))
    >>> reconstruct(transcript, "server")["clinic"].rows.ravel()
    array([1., 2.])
    """
    found: dict[str, Reconstruction] = {}
    seen = transcript.seen_by(observer)
    attacks = (
        _from_measures(seen, observer, t),
        _from_costs(seen, observer),
        _from_rounds(seen, observer, is_first),
    )
    for victim, reconstruction in chain(*attacks):
        found.setdefault(victim, replace(reconstruction, victim=victim))
    return found


Found = Iterator[tuple[str, Reconstruction]]


def _from_measures(seen: Transcript, observer: str, t: float | None) -> Found:
    """Undo interpolating measures with the reference of their senders."""
    references: dict[str, ReferenceMeasure | GeodesicMeasure] = {}
    done: set[str] = set()
    for entry in seen:
        message = entry.message
        if isinstance(message, (ReferenceMeasure, GeodesicMeasure)):
            references[entry.recipient] = message
        elif isinstance(message, (InterpolatingMeasure, FractionRequest)):
            # What the server sent to this party; a party sees its own copy only.
            reference = references.get(entry.sender, references.get(observer))
            if entry.sender in (observer, *done) or reference is None:
                continue
            fraction = t if isinstance(message, FractionRequest) else reference.t or t
            try:
                found = rows_from_interpolation(
                    message, reference, fraction, interpolation=reference.interpolation
                )
            except ValueError:  # t is secret, and nothing in the data tells it
                continue
            done.add(entry.sender)
            yield entry.sender, found


def _from_costs(seen: Transcript, observer: str) -> Found:
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
                found = rows_from_cost_matrices(message.fractions, message.costs, asked.points)
                yield entry.sender, replace(found, masses=message.masses)
            elif reference is not None:
                points, _ = positions_from_distances(message.costs[0], asked.points)
                moved = DiscreteMeasure(points, message.masses)
                fraction = float(message.fractions[0])
                yield entry.sender, rows_from_interpolation(moved, reference, fraction)


def _from_rounds(seen: Transcript, observer: str, is_first: bool) -> Found:
    """Undo the server's step and then the other party's, in rounds of FedWad."""
    sent = [e.message for e in seen if e.sender == observer]
    if any(isinstance(message, GeodesicMeasure) for message in sent):
        return  # the server, which needs no such detour
    own = [message for message in sent if isinstance(message, InterpolatingMeasure)]
    path = seen.messages(GeodesicMeasure)
    rounds = [
        (abs(reference.t - 0.5), reference.t, reference, message, after)
        for reference, message, after in zip(path, own, path[1:], strict=False)
        if reference.t is not None
    ]
    if rounds:  # a fraction near one half loses least to rounding
        _, t, reference, message, after = min(rounds, key=lambda part: part[0])
        found = rows_from_one_round(reference, message, after, t, is_first=is_first)
        yield "the other party", found


def statistic_of(sketch: SlicedSketch, X: ArrayLike, y: ArrayLike | None = None) -> np.ndarray:
    """Compute the noiseless table of a sketch for given rows, from its public facts."""
    check_is_fitted(sketch, "release_")
    rows = np.atleast_2d(np.asarray(X, dtype=np.float64))
    if rows.ndim != 2 or rows.shape[1] != sketch.directions_.shape[1]:
        n_features = sketch.directions_.shape[1]
        raise ValueError(f"X has shape {rows.shape}; it must be (n_rows, {n_features}).")
    n_classes, _, n_bins = sketch.statistic_.shape
    records = sketch._seen_by(sketch.release_, rows, y)
    centers = (part.center for part in sketch.release_.parts(records, np.ones(len(rows))))
    blocks = [center.reshape(n_classes, -1, n_bins) for center in centers if center is not None]
    return np.concatenate(blocks, axis=1)


def row_from_sketch(
    sketch: SlicedSketch,
    others: ArrayLike,
    candidates: ArrayLike,
    *,
    y_others: ArrayLike | None = None,
    y_candidates: ArrayLike | None = None,
) -> Reconstruction:
    """Reconstruct one row of M equally likely candidates, by an attacker who knows all others.

    No attack finds the row more often. If the sketch is μ-GDP, it is found with probability at most
    ``Φ(Φ⁻¹(1/M) + μ)``: naming one of M rows tells its data set from one without it, so that the
    bound on TPR at FPR = 1/M applies (Hayes, Mahloujifar, Balle, NeurIPS 2023).
    """
    rows = np.atleast_2d(np.asarray(candidates, dtype=np.float64))
    known = statistic_of(sketch, others, y_others)
    labels = [None] * len(rows) if y_candidates is None else np.asarray(y_candidates)[:, None]
    pairs = zip(rows[:, None], labels, strict=True)
    # The noise is a discrete Gaussian on a lattice that holds all possible tables s, so that
    # log p = −‖S − s‖² / 2 σ² up to a constant, and no test does better (Neyman and Pearson).
    tables = np.stack([known + statistic_of(sketch, *pair) for pair in pairs])
    nearest = np.argmin(np.sum((sketch.statistic_ - tables) ** 2, axis=(1, 2, 3)))
    method = f"likeliest of {len(rows)} candidates"
    return Reconstruction(rows=rows[[nearest]], n_plans=0, method=method)


def rows_from_sketch(
    sketch: SlicedSketch,
    n_rows: int,
    rng: np.random.Generator,
    *,
    label: object = None,
    n_steps: int = 200,
) -> Reconstruction:
    """Fit rows to the distribution functions of a sketch, as a flow sampler does.

    People in the data and other people of the same population are equally far from them, up to ε.
    """
    check_is_fitted(sketch, "release_")
    problem = SlicedFlowProblem(sketch.table(label), None)
    flow = sliced_flow(problem, n_rows, FlowSchedule(n_steps, 1.0, 0.0, FlowSchedule.momentum), rng)
    rows = sketch.bounds_.from_ball(flow.particles.astype(np.float64))
    return Reconstruction(rows=rows, n_plans=0, method="flow towards the sketch")
