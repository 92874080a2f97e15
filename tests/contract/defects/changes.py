"""Changes that defects of several rooms make."""

import math

from tests.contract.injection import (
    all_of,
    given,
)


def of_a_costly_search(checked):
    events, charged = checked
    return events, charged and math.inf


_ONE_STEP = all_of(
    given("GaussianEvent.__init__", "plan_rows", n_steps=1),
    given("SampledGaussianEvent.__init__", "plan_rows", n_steps=1),
)
