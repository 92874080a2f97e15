"""What a participant of a recorded protocol can find out about the others."""

from collections.abc import Iterator
from dataclasses import replace

from skdpot.audit.reconstruction.differences import (
    paired_differences,
    positions_from_distances,
    rows_from_cost_matrices,
)
from skdpot.audit.reconstruction.geodesic import rows_from_one_round
from skdpot.audit.reconstruction.plan import rows_from_interpolation
from skdpot.audit.reconstruction.result import PairedDifferences, Reconstruction
from skdpot.federated.measures import DiscreteMeasure
from skdpot.federated.messages import (
    CostMatrices,
    FractionRequest,
    GeodesicMeasure,
    InterpolatingMeasure,
    ReferenceMeasure,
)
from skdpot.federated.transcript import Transcript

__all__ = ["differences_seen", "reconstruct"]


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
