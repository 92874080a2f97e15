r"""Fits that are planned before the first release, and what a budget reserves for them.

*Theorem.* Let :math:`e_1, \dots, e_m` be events that are fixed in advance, each of which may happen
once. Let other events be admitted while their squared mu sum to at most :math:`c`. In any order of
all these events, where each choice may depend on earlier results, the privacy profile is at most
that of the composition of :math:`e_1, \dots, e_m` with one :math:`\sqrt c`-GDP release.

*Proof.* Fix an order of the neighbours. Let :math:`D_i` be a pair that dominates :math:`e_i`, and
:math:`G(c)` the pair of :math:`\sqrt c`-GDP, so that :math:`G(a) \otimes G(b) = G(a + b)`. Claim:
after any history that leaves the events R unused and c unspent, the remaining releases are
dominated by :math:`\bigotimes_{i \in R} D_i \otimes G(c)`. The proof is by induction on the number
of remaining releases. The claim holds without a further release. Let the next release be
:math:`e_i` with :math:`i \in R`. For each of its results, the releases after it are dominated by
the *same* pair :math:`\bigotimes_{R \setminus i} D_j \otimes G(c)`. So all of them together are
dominated by its product with :math:`D_i` [1]_, which is the claim. If instead the next release is
admitted at a squared mu of :math:`a`, the product is with :math:`G(a)`, and :math:`G(a) \otimes
G(c - a) = G(c)`. ∎

The choice of the next event costs nothing, because the same pair dominates the remaining releases
whichever event comes first. This is false for an event that is not fixed in advance and fits
exactly into the rest of the budget at one epsilon. Its profile exceeds that of :math:`G(c)` at
other epsilons, and a choice by earlier results would add up the larger values of both profiles.

References
----------
.. [1] Y. Zhu, J. Dong, Y.-X. Wang, "Optimal accounting of differential privacy via characteristic
   function", 2022, theorem 10 (adaptive composition of dominating pairs).
"""

import math
from collections.abc import Sequence
from dataclasses import asdict, dataclass
from fractions import Fraction
from typing import Any

from skdpot.privacy.accounting import PrivacyLoss, StepCounts, compose, counted_steps
from skdpot.privacy.events import ComposedEvent, Event, Step, leak_of_steps, mu_of_steps
from skdpot.privacy.gdp import ROUNDING, bisected
from skdpot.privacy.targets import LEAK_SHARE, PrivacyTarget, SingleFitTarget
from skdpot.privacy.units import Units, exact_leak, squared_mu_units

# A fit that draws new directions has slightly other sensitivities, which change mu in its last
# digits.
_RESERVE_MARGIN = 1e-6


@dataclass(frozen=True)
class Reserve:
    """The reserve for a planned event: one step for all in closed form, and the other steps."""

    closed: Step
    others: StepCounts
    n_steps: int

    @classmethod
    def of(cls, event: Event, margin: float = 0.0) -> "Reserve":
        """Return the reserve for an event, with a relative margin on the steps in closed form."""
        loss, raised = compose(event), 1.0 + margin
        steps = tuple(item for item in loss.steps if isinstance(item[0], Step))
        others = tuple(item for item in loss.steps if not isinstance(item[0], Step))
        closed = Step(raised * mu_of_steps(steps), raised * leak_of_steps(steps))
        return cls(closed, others, loss.n_steps)

    @property
    def account(self) -> dict[str, Any]:
        """The fields of a `PlannedFit` in a ledger; `others` is a text."""
        return asdict(self.closed) | {"n_steps": self.n_steps, "others": repr(self.others)}


def reserve(
    target: PrivacyTarget, planned: Sequence[Event]
) -> tuple[tuple[Reserve, ...], tuple[Units, Units]]:
    """Return the reserves for planned events, and the caps on mu squared and leak of other events.

    The caps are 0 if the planned events use all of (epsilon, delta).
    """
    caps: tuple[Units, Units] = target.mu_squared_units, target.leak_units
    reserves = tuple(Reserve.of(event, _RESERVE_MARGIN) for event in planned)
    if not planned or math.isinf(target.epsilon):
        return reserves, caps
    steps = [item for r in reserves for item in ((r.closed, 1), *r.others)]
    most = Fraction(target.delta) * Fraction(1.0 - LEAK_SHARE)
    most -= exact_leak(sum(r.n_steps for r in reserves))

    def exceeds(mu: float) -> bool:
        """Whether the plan and a mu-GDP release exceed delta, less its part for leaks."""
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
