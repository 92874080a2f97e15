"""Canaries and score for distances between parties, of which one protocol is private."""

from dataclasses import replace

import numpy as np

from skdpot.audit.audited_fit import AuditedFit, NoKnownAttackError
from skdpot.audit.canaries import CanaryPairs, CanaryRequest
from skdpot.audit.evidence.sketch import sketch_canaries, sketch_score
from skdpot.estimators.wasserstein_distance import PrivateWassersteinDistance

__all__ = ["contribution_canaries", "contribution_score", "refuse_without_claim"]


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


def contribution_score(audited: AuditedFit) -> np.ndarray:
    """Score pairs by the table that the inner estimator published."""
    return sketch_score(replace(audited, fitted=audited.fitted.estimator_))
