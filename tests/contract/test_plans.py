"""A plan costs what it was given, and no more; without privacy it says so."""

import math

import pytest
from hypothesis import example, given, settings
from hypothesis import strategies as st

from skdpot.fair.thresholds import plan_threshold
from skdpot.nets.output_tables import plan_output_tables
from skdpot.privacy.accounting import compose
from skdpot.privacy.events import ComposedEvent
from skdpot.release.private_bounds import plan_private_bounds
from skdpot.tables.category_selection import plan_category_selection
from skdpot.trajectories.warm_start_release import plan_warm_start


def threshold(mu, n, public_classes):
    return ComposedEvent(events=plan_threshold(mu, n, public_classes=public_classes).events)


# From squared mu, rows, features and rows of a person to the event.
PLANS = {
    "bounds of features": lambda mu, n, d, k: (
        plan_private_bounds(n, d, mu, mode="features", group_size=k).event
    ),
    "bounds of norms": lambda mu, n, d, k: (
        plan_private_bounds(n, d, mu, mode="norm", group_size=k).event
    ),
    "bounds of few rows": lambda mu, n, d, k: (
        plan_private_bounds(max(round(13 * k * d**0.5 / mu), 1), d, mu, group_size=k).event
    ),
    "outputs": lambda mu, n, d, k: plan_output_tables(mu, k, d, n).event,
    "threshold": lambda mu, n, d, k: threshold(mu, n, False),
    "threshold, public classes": lambda mu, n, d, k: threshold(mu, n, True),
    "categories": lambda mu, n, d, k: (
        plan_category_selection(n, mu=mu, delta=1e-6, n_columns=d).event
    ),
    "means": lambda mu, n, d, k: plan_warm_start("mean", mu, n / 99, d, group_size=k).event,
    "clusters": lambda mu, n, d, k: plan_warm_start("kmeans", mu, n, d, 5, 4, group_size=k).event,
}
# Phases, and the steps of the last one for three columns and three rows of a person.
SHAPES = {
    "bounds of features": (1, 5), "bounds of norms": (1, 1), "outputs": (1, 3),
    "bounds of few rows": (1, 1),
    "threshold": (3, 1), "threshold, public classes": (2, 1), "categories": (1, 3),
    "means": (1, 3), "clusters": (1, 12),
}  # fmt: skip


@pytest.mark.parametrize("name", PLANS)
@settings(max_examples=40, deadline=None)
@given(mu=st.floats(1e-3, 20.0), n=st.integers(1, 10**7), d=st.integers(1, 60), k=st.integers(1, 4))
@example(mu=0.4, n=400, d=3, k=3)
def test_a_plan_costs_what_it_was_given(name, mu, n, d, k):
    event = PLANS[name](mu, n, d, k)
    assert mu * (1 - 1e-3) <= compose(event).mu_without_sampling <= mu
    assert math.fsum(phase.mu**2 for phase in event.phases) <= mu**2 * (1 + 1e-14)
    for phase in event.phases:
        assert phase.sigma >= 16 * phase.lattice
        assert math.frexp(phase.lattice)[0] == 0.5
    if d == k == 3:
        assert (len(event.phases), event.phases[-1].n_steps) == SHAPES[name]
    free = PLANS[name](math.inf, n, d, k)
    assert not free.is_private
    assert compose(free).epsilon(1e-5) == math.inf
