"""What a party answers in the protocols that are not private."""

from typing import Any

import numpy as np

from skdpot._utils.records import MOST_BYTES
from skdpot.exceptions import MessageError
from skdpot.federated.measures import DiscreteMeasure
from skdpot.federated.plain_messages import (
    INTERPOLATIONS,
    CostMatrices,
    DistanceMessage,
    DistancesAtFractions,
    FractionRequest,
    GeodesicMeasure,
    InterpolatingMeasure,
    ReferenceMeasure,
    as_fraction,
    as_fractions,
    check_type,
)
from skdpot.federated.plans import interpolate, optimal_plan, squared_distances
from skdpot.federated.triangle import FRACTIONS
from skdpot.federated.valuation import DataValues, calibrated_values
from skdpot.federated.vault import Vault, vault_of

__all__ = ["PlainAnswers"]


class PlainAnswers:
    """Methods of `Party` whose results carry no noise: rows follow from them.

    Each refuses first what the party's owner has not agreed to, then what does not fit, and then
    charges the budget, if there is one, before a row is touched.
    """

    __slots__ = ()

    def interpolate(
        self,
        target: ReferenceMeasure | GeodesicMeasure,
        t: float | None = None,
        kind: str | None = None,
    ) -> InterpolatingMeasure:
        """Move the rows a fraction of the way to a measure; **not private**.

        Parameters
        ----------
        target : ReferenceMeasure or GeodesicMeasure
            What to move towards: of "triangle", or of "fedwad".
        t : float, optional
            How far, in (0, 1); by default as the message says.
        kind : {"barycentric", "exact"}, optional
            Which interpolating measure; by default as the message says.

        Returns
        -------
        InterpolatingMeasure
            From which every row follows.

        Raises
        ------
        ProtocolRefusedError
            If the party does not take part in the protocol.
        BudgetExceededError
            If the party has a budget with a finite epsilon, which no release without noise fits.
        MessageError
            If the measure has another number of features, or nobody says how far to go.

        Privacy
        -------
        None: see `InterpolatingMeasure`. A budget is charged with a `NonPrivateEvent`.
        """
        check_type(target, ReferenceMeasure, GeodesicMeasure)
        protocol = "triangle" if isinstance(target, ReferenceMeasure) else "fedwad"
        eta = _interpolated(vault_of(self), target, protocol, target.t if t is None else t, kind)
        return InterpolatingMeasure(eta.points, eta.masses)

    def fraction_request(
        self,
        reference: ReferenceMeasure,
        t: float,
        fractions: Any = FRACTIONS,
        kind: str | None = None,
    ) -> FractionRequest:
        """Ask how far another party's interpolating measures are from one's own; **not private**.

        Parameters
        ----------
        reference : ReferenceMeasure
            What both parties move towards.
        t : float
            How far this party goes, in (0, 1). It is not sent.
        fractions : array-like of shape (n_fractions,), default=(0.25, 0.5, 0.75)
            How far the other one shall go.
        kind : {"barycentric", "exact"}, optional
            Which interpolating measure; by default as the reference says.

        Returns
        -------
        FractionRequest
            From which every row follows, up to t.

        Raises
        ------
        ProtocolRefusedError, BudgetExceededError, MessageError
            As `interpolate`.

        Privacy
        -------
        None: see `FractionRequest`. A budget is charged with a `NonPrivateEvent`.
        """
        check_type(reference, ReferenceMeasure)
        due = as_fractions(fractions)
        eta = _interpolated(vault_of(self), reference, "triangle", t, kind)
        return FractionRequest(eta.points, eta.masses, due)

    def distances_at(
        self, request: FractionRequest, reference: ReferenceMeasure
    ) -> DistancesAtFractions:
        """Answer a party that keeps its fraction for itself; **not private**.

        Parameters
        ----------
        request : FractionRequest
            The other party's interpolating measure and the fractions it asks about.
        reference : ReferenceMeasure
            What both parties move towards.

        Returns
        -------
        DistancesAtFractions
            W₂² between this party's interpolating measures and the other's.

        Raises
        ------
        ProtocolRefusedError, BudgetExceededError, MessageError
            As `interpolate`.

        Privacy
        -------
        None: see `DistancesAtFractions`. A budget is charged with a `NonPrivateEvent`.
        """
        vault = vault_of(self)
        moved = _at_fractions(vault, request, reference, "distances")
        distances = [
            optimal_plan(eta, request.measure, solver=vault.terms.solver).squared_distance
            for eta in moved
        ]
        return DistancesAtFractions(request.fractions, np.array(distances))

    def cost_matrices(self, request: FractionRequest, reference: ReferenceMeasure) -> CostMatrices:
        """Tell the squared distances between all points, for a union of sources; **not private**.

        Parameters
        ----------
        request : FractionRequest
            The other party's interpolating measure and the fractions it asks about.
        reference : ReferenceMeasure
            What all parties move towards.

        Returns
        -------
        CostMatrices
            From which every row follows once there are more points than features.

        Raises
        ------
        ProtocolRefusedError, BudgetExceededError, MessageError
            As `interpolate`.

        Privacy
        -------
        None: see `CostMatrices`. A budget is charged with a `NonPrivateEvent`.
        """
        vault = vault_of(self)
        vault.check_agreed("triangle")
        check_type(request, FractionRequest)
        # The exact interpolation has fewer points than rows and reference points together.
        n_rows = len(vault.rows) + (0 if _is_barycentric(reference) else len(reference.points))
        n_bytes = 8 * len(request.fractions) * n_rows * len(request.points)
        if n_bytes > MOST_BYTES:
            raise MessageError(
                f"The answer would have {n_bytes} bytes, and a message at most {MOST_BYTES}."
            )
        moved = _at_fractions(vault, request, reference, "cost matrices")
        costs = np.stack([squared_distances(eta.points, request.points) for eta in moved])
        return CostMatrices(request.fractions, costs, moved[0].masses)

    def squared_distance_to(self, target: GeodesicMeasure) -> DistanceMessage:
        """Tell the distance to the measure between both parties; **not private**.

        Parameters
        ----------
        target : GeodesicMeasure
            The measure.

        Returns
        -------
        DistanceMessage
            W₂².

        Raises
        ------
        ProtocolRefusedError, BudgetExceededError, MessageError
            As `interpolate`.

        Privacy
        -------
        None: see `DistanceMessage`. A budget is charged with a `NonPrivateEvent`.
        """
        check_type(target, GeodesicMeasure)
        plan = vault_of(self).plan_to(target.measure, "fedwad", "distance")
        return DistanceMessage(plan.squared_distance)

    def values_against(self, target: Any) -> DataValues:
        """Value the rows by what they add to a distance, for their owner; **not private**.

        The client's side of FedBary: the values are computed where the rows are. They are
        not a message: each value tells how far away its row is, and rows follow from values
        against a few measures.

        Parameters
        ----------
        target : DiscreteMeasure, ReferenceMeasure, GeodesicMeasure or InterpolatingMeasure
            What the rows are compared with.

        Returns
        -------
        DataValues
            One value a row; large positive ones are likely noise.

        Raises
        ------
        ProtocolRefusedError
            If the party does not allow "values".
        BudgetExceededError, MessageError
            As `interpolate`.

        Privacy
        -------
        None: they are for those who may see the rows. A budget is charged with a
        `NonPrivateEvent`.

        References
        ----------
        Li, Fu, Pang, "Data valuation and detections in federated learning", CVPR 2024 (FedBary).
        """
        measure = target
        if not isinstance(target, DiscreteMeasure):
            check_type(target, ReferenceMeasure, GeodesicMeasure, InterpolatingMeasure)
            measure = target.measure
        plan = vault_of(self).plan_to(measure, "values", "data values")
        return DataValues(calibrated_values(plan.source_potential, plan.source.masses))


def _interpolated(
    vault: Vault,
    target: ReferenceMeasure | GeodesicMeasure,
    protocol: str,
    t: float | None,
    kind: str | None,
) -> DiscreteMeasure:
    """Return the rows moved towards a measure, once everything has been checked."""
    vault.check_agreed(protocol)
    if t is None:
        raise MessageError("The message does not say how far to go: pass t.")
    fraction, kind = as_fraction("t", t), kind or target.interpolation
    if kind not in INTERPOLATIONS:
        raise MessageError(f"kind must be one of {INTERPOLATIONS}.")
    plan = vault.plan_to(target.measure, protocol, "interpolated rows")
    return interpolate(plan, fraction, kind=kind)


def _is_barycentric(reference: ReferenceMeasure) -> bool:
    check_type(reference, ReferenceMeasure)
    return reference.interpolation == "barycentric"


def _at_fractions(
    vault: Vault, request: FractionRequest, reference: ReferenceMeasure, release: str
) -> list[DiscreteMeasure]:
    """Return the rows moved to all fractions that are asked for, by one plan."""
    vault.check_agreed("triangle")
    check_type(request, FractionRequest)
    check_type(reference, ReferenceMeasure)
    vault.check_features(request.points.shape[1], vault.n_dimensions)
    plan = vault.plan_to(reference.measure, "triangle", release)
    return [interpolate(plan, float(s), kind=reference.interpolation) for s in request.fractions]
