r"""Fits that are planned before the first release: what a budget reserves for them.

Let :math:`e_1, \dots, e_m` be events that are fixed in advance, each of which may happen once, and
let everything else be admitted while its squared mu sum to at most :math:`c`. In whatever order all
this happens, and however what comes next depends on earlier results, the privacy profile is at most
that of the composition of :math:`e_1, \dots, e_m` with one :math:`\sqrt c`-GDP release.

*Proof.* Let :math:`D_i` be the pair that dominates :math:`e_i`, for a fixed order of the
neighbours, and :math:`G(c)` that of :math:`\sqrt c`-GDP, so that :math:`G(a) \otimes G(b) =
G(a + b)`. Claim: after any history that leaves the events R unused and c unspent, the rest is
dominated by :math:`\bigotimes_{i \in R} D_i \otimes G(c)`. Without a further release that is
true. By induction on their number let the next one be :math:`e_i` with :math:`i \in R`: for each
of its results the rest is dominated by the *same* pair
:math:`\bigotimes_{R \setminus i} D_j \otimes G(c)`. So both together are dominated by its product
with :math:`D_i` [1]_, which is the claim. If the next one is admitted at a squared mu of :math:`a`,
the product is with :math:`G(a)`, and :math:`G(a) \otimes G(c - a) = G(c)`. ∎

The choice of what is next needs no allowance because what remains is dominated by the same pair
whatever comes first. That is false for an event that is not fixed in advance and fits exactly into
what is left at one epsilon: its profile is above that of :math:`G(c)` elsewhere, and a choice by
earlier results would add up the larger of both.

References
----------
.. [1] Y. Zhu, J. Dong, Y.-X. Wang, "Optimal accounting of differential privacy via characteristic
   function", 2022, theorem 10 (adaptive composition of dominating pairs).
"""

import math
from collections.abc import Sequence
from dataclasses import dataclass
from fractions import Fraction

from skdpot.privacy.accounting import PrivacyLoss, Steps, compose, counted_steps
from skdpot.privacy.events import ComposedEvent, Event, Step, leak_of_steps, mu_of_steps
from skdpot.privacy.gdp import (
    ROUNDING,
    bisected,
)
from skdpot.privacy.targets import LEAK_SHARE, PrivacyTarget, SingleFitTarget
from skdpot.privacy.units import Units, exact_leak, squared_mu_units

# Directions that are drawn anew, and so sensitivities, change mu in the last digits.
_RESERVE_MARGIN = 1e-6


@dataclass(frozen=True)
class Reserve:
    """What is reserved for a planned event: a Step for all that is in closed form, and the rest."""

    closed: Step
    others: Steps
    n_steps: int

    @classmethod
    def of(cls, event: Event, margin: float = 0.0) -> "Reserve":
        """Return the steps of an event, those in closed form with a little more than they cost."""
        loss, raised = compose(event), 1.0 + margin
        steps = tuple(item for item in loss.steps if isinstance(item[0], Step))
        others = tuple(item for item in loss.steps if not isinstance(item[0], Step))
        closed = Step(raised * mu_of_steps(steps), raised * leak_of_steps(steps))
        return cls(closed, others, loss.n_steps)

    @property
    def account(self) -> tuple[float, float, int, str]:
        """Return its parts as a ledger keeps them: numbers, and a text for what has no number."""
        return self.closed.mu, self.closed.leak, self.n_steps, repr(self.others)


def reserve(
    target: PrivacyTarget, planned: Sequence[Event]
) -> tuple[tuple[Reserve, ...], tuple[Units, Units]]:
    """Return what is reserved for planned events, and the caps of all that is admitted beside them.

    The caps are 0 where the events alone take all of (epsilon, delta).
    """
    caps: tuple[Units, Units] = target.mu_squared_units, target.leak_units
    reserves = tuple(Reserve.of(event, _RESERVE_MARGIN) for event in planned)
    if not planned or math.isinf(target.epsilon):
        return reserves, caps
    steps = [item for r in reserves for item in ((r.closed, 1), *r.others)]
    most = Fraction(target.delta) * Fraction(1.0 - LEAK_SHARE)
    most -= exact_leak(sum(r.n_steps for r in reserves))

    def exceeds(mu: float) -> bool:
        """Whether the plan and a mu-GDP release cost more than delta less the part for leaks."""
        whole = PrivacyLoss(planned[0].relation, counted_steps([*steps, (Step(mu), 1)]))
        return Fraction((1.0 + 2.0 * ROUNDING) * whole.delta(target.epsilon)) > most

    low = 0.0 if exceeds(0.0) else bisected(exceeds, 1e-9)[0]
    if units := squared_mu_units(low, math.floor):
        return reserves, (units, caps[1])
    if SingleFitTarget(target.epsilon, target.delta).admits(ComposedEvent(events=tuple(planned))):
        return tuple(map(Reserve.of, planned)), (0, 0)
    raise ValueError(
        f"`planned` costs more than epsilon={target.epsilon:g} at delta={target.delta:g}: plan "
        "fits of smaller epsilon, or set up a larger budget."
    )
