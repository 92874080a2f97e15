"""What can be audited of distances between parties, and what claims nothing."""

import numpy as np
import pytest

from skdpot import ClientContribution
from skdpot.audit import one_run_audit
from tests.flat_options import private_distance


@pytest.mark.parametrize("protocol", ["triangle", "fedwad"])
@pytest.mark.parametrize("inside", [False, True])
def test_protocols_without_a_claim_are_refused(protocol: str, inside: bool) -> None:
    estimator = private_distance(protocol)
    if inside:
        estimator = ClientContribution(estimator)
    with pytest.raises(ValueError, match=f"(?i){protocol}.*claims no privacy"):
        one_run_audit(estimator, np.zeros((5, 2)), canaries=10)


def test_the_reference_of_contributions_is_what_its_estimator_publishes() -> None:
    estimator = private_distance(
        epsilon=np.inf, bounds=(-1, 1), n_projections=64, n_bins=16, projections="orthogonal"
    )
    result = one_run_audit(ClientContribution(estimator), np.empty((0, 32)), canaries=100)
    assert result.n_correct == 50
