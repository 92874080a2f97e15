import math

from skdpot.privacy.accounting import compose
from skdpot.privacy.laplace import LaplaceEvent
from tests.contract.event_suite import NOT_COUNTS, NOT_POSITIVE, EventSuite


class TestLaplaceEvent(EventSuite):
    kind = LaplaceEvent
    parameters = {"scale": 2.0, "sensitivity": 1.0, "n_steps": 1}
    invalid = {"scale": NOT_POSITIVE, "sensitivity": NOT_POSITIVE, "n_steps": NOT_COUNTS}

    def at_noise(self, factor):
        return self.make(scale=2.0 * factor)


def test_one_release_is_pure():
    loss = compose(LaplaceEvent(scale=2.0, sensitivity=1.0))
    assert loss.epsilon(1e-9) <= 0.5 + 2e-4
    assert loss.delta(0.25) >= -math.expm1(-0.125)
