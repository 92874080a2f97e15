"""Canaries and score for distances between parties, of which one protocol is private."""

from dataclasses import replace

from skdpot.audit.audited_fit import AuditedFit, NoKnownAttackError
from skdpot.audit.canaries import CanaryPairs, CanaryRequest
from skdpot.audit.evidence.linear import EvidenceSum
from skdpot.audit.evidence.sketch import add_sketch, sketch_canaries
from skdpot.estimators.wasserstein_distance import PrivateWassersteinDistance

__all__ = ["add_contribution", "contribution_canaries", "refuse_without_claim"]


def refuse_without_claim(request: CanaryRequest) -> CanaryPairs:
    """Refuse a protocol that claims no privacy.

    Raises
    ------
    ValueError
        Always.
    """
    raise NoKnownAttackError(
        f"No attack on PrivateWassersteinDistance(protocol={request.estimator.protocol!r}): it "
        "claims no privacy that could be refuted. skdpot.audit.reconstruction recovers rows from "
        'its messages; audit protocol="sliced".'
    )


def contribution_canaries(request: CanaryRequest) -> CanaryPairs:
    """Make canaries among the reference rows, which the inner estimator publishes."""
    estimator = request.estimator
    inner = PrivateWassersteinDistance() if estimator.estimator is None else estimator.estimator
    make = sketch_canaries if inner.protocol == "sliced" else refuse_without_claim
    return make(replace(request, estimator=inner))


def add_contribution(evidence: EvidenceSum, audited: AuditedFit) -> None:
    """Add the table that the inner estimator published."""
    add_sketch(evidence, replace(audited, fitted=audited.fitted.estimator_))
