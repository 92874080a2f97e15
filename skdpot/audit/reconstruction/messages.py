"""What a participant of a protocol reads in its messages, also without the reference."""

from collections.abc import Iterator
from dataclasses import dataclass, replace
from functools import cached_property

import numpy as np
from numpy.typing import ArrayLike

from skdpot.audit.reconstruction.interpolation import (
    Reconstruction,
    SeenMeasure,
    as_measure,
    rows_from_interpolation,
    rows_from_one_round,
)
from skdpot.federated.measures import DiscreteMeasure
from skdpot.federated.messages import (
    CostMatrices,
    FractionRequest,
    GeodesicMeasure,
    InterpolatingMeasure,
    ReferenceMeasure,
)
from skdpot.federated.plans import optimal_plan
from skdpot.federated.transcript import Transcript

__all__ = [
    "PairedDifferences",
    "differences_seen",
    "paired_differences",
    "positions_from_distances",
    "reconstruct",
    "rows_from_cost_matrices",
]

_FLAT = 1e-9  # relative singular value below which the points do not span a direction


@dataclass(frozen=True, eq=False, repr=False, kw_only=True)
class PairedDifferences:
    """Differences between rows of two parties, as a server that sees two messages finds them.

    Parameters
    ----------
    first_rows, second_rows : ndarray of shape (n_pairs,)
        Positions of the two rows of each pair in the two messages, which are those in the
        parties' own tables.
    differences : ndarray of shape (n_pairs, n_features)
        ``x_i - y_j``; up to the unknown factor ``1 - t`` when t was not given.
    """

    first_rows: np.ndarray
    second_rows: np.ndarray
    differences: np.ndarray

    @cached_property
    def n_pairs(self) -> int:
        """Number of pairs."""
        return len(self.differences)

    def errors(self, first: ArrayLike, second: ArrayLike) -> np.ndarray:
        """Return how wrong each difference is.

        Parameters
        ----------
        first, second : array-like of shape (n, n_features), (m, n_features)
            The rows that were attacked.

        Returns
        -------
        ndarray of shape (n_pairs,)
            Root mean squared error over the features.
        """
        truth = np.asarray(first)[self.first_rows] - np.asarray(second)[self.second_rows]
        errors: np.ndarray = np.sqrt(np.mean((self.differences - truth) ** 2, axis=1))
        return errors

    def n_exact(self, first: ArrayLike, second: ArrayLike, tol: float = 1e-9) -> int:
        """Count the differences that are right.

        Parameters
        ----------
        first, second : array-like of shape (n, n_features), (m, n_features)
            The rows that were attacked.
        tol : float, default=1e-9
            Largest root mean squared error over the features that counts as right.

        Returns
        -------
        int
            Number of pairs.
        """
        return int(np.count_nonzero(self.errors(first, second) <= tol))

    def __repr__(self) -> str:
        return f"PairedDifferences({self.n_pairs} pairs, {self.differences.shape[1]} features)"


def paired_differences(
    first: SeenMeasure, second: SeenMeasure, t: float | None = None
) -> PairedDifferences:
    """Read differences between rows of two parties from their messages alone.

    A server that sees ``η = (1 − t) x + t γ_σ`` and ``η' = (1 − t) y + t γ_τ`` computes the plan
    between them, for that is its part of TriangleWad. Where it pairs two rows that were moved
    towards the same reference point, γ cancels: ``η_i − η'_j = (1 − t) (x_i − y_j)``, exactly.
    Who knows the rows of one party then knows those of the other; neither γ nor the plans
    are needed.

    **All pairs are exact as soon as the reference hides anything**: if the rows of each party
    lie in a ball of radius R, it suffices that ``t / (1 − t) · min_k≠l ‖γ_k − γ_l‖ ≥ 2 R``.
    *Proof.* Number both parties' rows by their reference points. Taking a matching s in place
    of the identity changes ``sum_k ⟨η_k, η'_s(k)⟩`` by four sums: ``t (1 − t)`` times two that
    are not positive, as both plans are optimal; ``−t²/2 sum ‖γ_k − γ_s(k)‖²``; and
    ``(1 − t)² sum ⟨x_k − c, y_s(k) − y_k⟩`` for any centre c, which for each row that moves is
    at most ``(1 − t)² · R · 2 R``. ∎

    With a smaller reference fewer pairs are exact, and the others are wrong only by
    ``t (γ_σ(i) − γ_τ(j)) / (1 − t)``: little, since then the reference is small or t is.

    Parameters
    ----------
    first, second : DiscreteMeasure or message
        Messages of two parties with as many rows as reference points, made with the same
        reference and t.
    t : float, optional
        The fraction, in [0, 1). Without it the differences are too small by ``1 − t``.

    Returns
    -------
    PairedDifferences
        Differences, and which rows they belong to.

    Raises
    ------
    ValueError
        If the messages or t do not fit.

    Examples
    --------
    >>> import numpy as np
    >>> from skdpot.audit.reconstruction import paired_differences
    >>> from skdpot.federated.plans import interpolate
    >>> from skdpot.federated.measures import DiscreteMeasure, gaussian_reference
    >>> from skdpot.federated.plans import optimal_plan
    >>> rng = np.random.default_rng(0)
    >>> X, Y = rng.uniform(size=(2, 40, 20))
    >>> gamma = gaussian_reference(40, 20, scale=5.0, rng=rng)
    >>> sent = [interpolate(optimal_plan(DiscreteMeasure(Z), gamma), 0.5) for Z in (X, Y)]
    >>> paired_differences(*sent, t=0.5).n_exact(X, Y)
    40
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
    """Locate points by their squared distances to known ones.

    ``‖y − p_j‖² − ‖y − p_0‖²`` is linear in y, so that distances to d + 1 points in general
    position determine y (trilateration).

    Parameters
    ----------
    squared_distances : array-like of shape (n_rows, n_anchors)
        Squared Euclidean distances.
    anchors : array-like of shape (n_anchors, n_features)
        The known points.

    Returns
    -------
    positions : ndarray of shape (n_rows, n_features)
        The points; if the anchors do not span the space, their projections on what they span.
    n_dimensions : int
        Dimension of what the anchors span: n_features when the positions are exact.

    Raises
    ------
    ValueError
        If the shapes do not fit.
    """
    distances, points = np.asarray(squared_distances, float), np.asarray(anchors, float)
    if distances.ndim != 2 or points.ndim != 2 or distances.shape[1] != len(points):
        raise ValueError(
            f"squared_distances has shape {distances.shape} and anchors {points.shape}; they "
            "must be (n_rows, n_anchors) and (n_anchors, n_features)."
        )
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

    Parameters
    ----------
    fractions : array-like of shape (n_fractions,)
        The s, at least two different ones.
    costs : array-like of shape (n_fractions, n_rows, n_points)
        Squared distances.
    points : array-like of shape (n_points, n_features)
        The buyer's points.

    Returns
    -------
    Reconstruction
        The rows: exact when the points span the space, which takes more points than features,
        otherwise their projections on what the points span. `method` tells the dimension.

    Raises
    ------
    ValueError
        If the shapes do not fit.
    """
    s = np.asarray(fractions, dtype=np.float64)
    if len(np.unique(s)) < 2 or len(s) != len(np.asarray(costs)):
        raise ValueError("fractions must hold two different values at least, one a cost matrix.")
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
    """Recover the rows of all whose messages give them away to one participant.

    Nothing is read but what the observer sent or received. A message is read with the
    reference that its sender had been sent (by the observer, or to the observer as to all): an
    `InterpolatingMeasure` and a `FractionRequest` by `rows_from_interpolation`,
    `CostMatrices` by `rows_from_cost_matrices`, and two `GeodesicMeasure` with the observer's own
    message between them by `rows_from_one_round`. A `SketchMessage` gives no rows away:
    `skdpot.audit.reconstruction.rows_from_sketch` shows what it gives.

    Parameters
    ----------
    transcript : Transcript
        Of the whole protocol, or what the observer saw.
    observer : str
        The participant.
    t : float, optional
        The fraction, where the transcript does not have it; without it, it is looked for
        with `fraction_from_ties`.
    is_first : bool, default=True
        Whether the observer is the first of the two parties of FedWad; public.

    Returns
    -------
    dict of str to Reconstruction
        By the name of the party, from the first message that gives its rows away. Who is missing
        sent none. In FedWad a party does not see the other's name: it is then "the other
        party".

    Examples
    --------
    >>> import numpy as np
    >>> from skdpot.audit.reconstruction import reconstruct
    >>> from skdpot.federated.messages import InterpolatingMeasure, ReferenceMeasure
    >>> from skdpot.federated.transcript import Transcript
    >>> transcript = Transcript()
    >>> transcript.record(0, "server", "clinic", ReferenceMeasure([[5.0], [9.0]], t=0.5))
    >>> transcript.record(0, "clinic", "server", InterpolatingMeasure([[3.0], [5.5]]))
    >>> reconstruct(transcript, "server")["clinic"].rows.ravel()
    array([1., 2.])
    """
    found: dict[str, Reconstruction] = {}
    seen = transcript.seen_by(observer)
    for attack in (_from_measures(seen, observer, t), _from_costs(seen, observer)):
        for victim, reconstruction in attack:
            found.setdefault(victim, replace(reconstruction, victim=victim))
    for victim, reconstruction in _from_rounds(seen, observer, is_first):
        found.setdefault(victim, replace(reconstruction, victim=victim))
        break
    return found


def differences_seen(
    transcript: Transcript, observer: str, first: str, second: str, *, t: float | None = None
) -> PairedDifferences:
    """Read differences between rows of two parties, without the reference.

    Parameters
    ----------
    transcript : Transcript
        Of the whole protocol, or what the observer saw.
    observer : str
        Who received both parties' messages.
    first, second : str
        The parties.
    t : float, optional
        The fraction; see `paired_differences`.

    Returns
    -------
    PairedDifferences
        From the first `InterpolatingMeasure` of each.

    Raises
    ------
    ValueError
        If the observer has not seen one of each.
    """
    seen = transcript.seen_by(observer)
    messages = [seen.messages(InterpolatingMeasure, sender=name) for name in (first, second)]
    if not all(messages):
        raise ValueError(f"{observer!r} has not seen interpolating measures of both parties.")
    return paired_differences(messages[0][0], messages[1][0], t)


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
                yield (
                    entry.sender,
                    rows_from_interpolation(moved, reference, float(message.fractions[0])),
                )


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
    # A fraction near one half loses least to rounding.
    for _, t, reference, message, after in sorted(rounds, key=lambda part: part[0]):
        yield (
            "the other party",
            rows_from_one_round(reference, message, after, t, is_first=is_first),
        )
