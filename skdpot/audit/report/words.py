"""Events, relations and figures of privacy in plain words, from public facts alone."""

import math
from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any

import numpy as np

from skdpot.audit.membership.result import MembershipResult
from skdpot.privacy.accounting import compose
from skdpot.privacy.display import rounded_up
from skdpot.privacy.event_base import Event
from skdpot.privacy.events import (
    BudgetedEvent,
    ComposedEvent,
    FixedSizeGaussianEvent,
    GaussianEvent,
    NonPrivateEvent,
    PoissonGaussianEvent,
    PoissonRowsGaussianEvent,
    PrivateSelectionEvent,
    ThresholdedCountsEvent,
)
from skdpot.privacy.relation import Relation
from skdpot.privacy.spent import PrivacySpent

__all__ = [
    "Meaning",
    "beside_claim",
    "claim_of",
    "event_in_words",
    "is_bare",
    "meaning_of",
    "mechanism_in_words",
    "one_in",
    "percent_at_most",
    "protected_in_words",
    "shown_at_least",
    "single_events",
]

_NOISY = (
    GaussianEvent,
    FixedSizeGaussianEvent,
    PoissonGaussianEvent,
    PoissonRowsGaussianEvent,
)
# The false positive rate at which an attack is judged.
SMALL_FPR = 0.01


def single_events(event: Event) -> Iterator[Event]:
    """Yield the phases of an event, however they are nested.

    Parameters
    ----------
    event : Event
        One fit.

    Yields
    ------
    Event
        Never a `ComposedEvent`.
    """
    if isinstance(event, ComposedEvent):
        for part in event.events:
            yield from single_events(part)
    else:
        yield event


def event_in_words(event: Event) -> tuple[str, ...]:
    """Say what touched private data, a sentence for each phase.

    Parameters
    ----------
    event : Event
        One fit.

    Returns
    -------
    tuple of str
        In the order of the phases.
    """
    return tuple(_phase_in_words(part) for part in single_events(event))


def _phase_in_words(event: Event) -> str:
    """Say what one phase releases."""
    if isinstance(event, NonPrivateEvent):
        return "Something was released without any noise."
    if isinstance(event, ThresholdedCountsEvent):
        return _categories_in_words(event)
    if isinstance(event, BudgetedEvent):
        return f"Whatever a budget of its own admitted: {_in_gaussian_units(event)}."
    if isinstance(event, PrivateSelectionEvent):
        return (
            f"The best of a random, secret number of trials, {event.mean_trials:.4g} on average, "
            f"and nothing of the others; each trial, its score included: "
            f"{_in_gaussian_units(event.trial)}."
        )
    if not isinstance(event, _NOISY):
        return f"A release that is accounted for as {type(event).__name__}."
    noise = (
        f"every number has Gaussian noise of standard deviation {event.sigma:.4g}, and "
        f"replacing one record moves all numbers of a release together by at most "
        f"{event.sensitivity:.4g}"
    )
    if event.relation is Relation.ADD_REMOVE:
        noise = noise.replace("replacing", "adding or removing")
    steps = f"{event.n_steps:,} releases, one after the other" if event.n_steps > 1 else "1 release"
    if isinstance(event, GaussianEvent):
        return f"{steps}, of numbers computed from all records: {noise}."
    if isinstance(event, FixedSizeGaussianEvent):
        drawn, of = (
            " + ".join(f"{k:,}" for k in n) for n in (event.batch_sizes, event.group_sizes)
        )
        batch = f"{drawn} records drawn afresh and secretly from {of}"
    else:
        batch = (
            f"a secret sample, in which each record is with probability {event.sampling_rate:.4g}"
        )
    kind = "one vector a record of" if isinstance(event, PoissonRowsGaussianEvent) else "from"
    return f"{steps}, each computed {kind} {batch}: {noise}."


def _in_gaussian_units(event: BudgetedEvent) -> str:
    """Say how much something tells, by what is as hard to tell."""
    text = (
        "replacing one record is no easier to notice than a shift of one Gaussian number by "
        f"{event.mu:.4g} standard deviations"
    )
    if event.relation is Relation.ADD_REMOVE:
        text = text.replace("replacing", "adding or removing")
    return f"{text}, except with probability {event.leak:.2g}" if event.leak > 0.0 else text


def _categories_in_words(event: ThresholdedCountsEvent) -> str:
    """Say what a selection of categories releases."""
    columns = f"{event.n_columns:,} columns" if event.n_columns > 1 else "1 column"
    change = "replacing one record moves two counts"
    if event.relation is Relation.ADD_REMOVE:
        change = "adding or removing one record moves one count"
    return (
        f"The categories of {columns}: every count has Gaussian noise of standard deviation "
        f"{event.sigma:.4g}, {change} of a column by 1, and only categories whose noisy counts "
        f"exceed {event.threshold:.4g} are released. With probability {event.delta_tail:.2g} at "
        "most, this shows a category that one record alone has."
    )


def protected_in_words(spent: PrivacySpent) -> str:
    """Say against what change of the data the release is insensitive.

    Parameters
    ----------
    spent : PrivacySpent
        The statement.

    Returns
    -------
    str
        A sentence.
    """
    if math.isinf(spent.epsilon):
        return "Nothing and nobody: the release has no noise, or too little for any guarantee."
    if spent.relation is Relation.ADD_REMOVE:
        return (
            "Each record: the release would be almost as likely had any one record been left out, "
            "or one been added. The number of records is protected as well."
        )
    return (
        "Each record: the release would be almost as likely had any one record been replaced by "
        "any other. The number of records is public."
    )


@dataclass(frozen=True, kw_only=True)
class Meaning:
    """What ε and δ say about an attacker.

    Parameters
    ----------
    odds_factor : float
        e^ε: nothing is more probable with one record than so many times what it is with another,
        plus δ.
    right_at_most : float
        Largest probability of a right guess which of two equally likely records was used, after
        ε and δ.
    right_by_noise : float
        The same after the noise that was drawn, which can be less.
    advantage_bound : float
        Largest difference of true and false positive rates after ε and δ.
    tpr_bound : float
        Largest true positive rate at a false positive rate of 0.01.
    """

    odds_factor: float
    right_at_most: float
    right_by_noise: float
    advantage_bound: float
    tpr_bound: float


def meaning_of(spent: PrivacySpent) -> Meaning:
    """Compute what a statement says about an attacker.

    Parameters
    ----------
    spent : PrivacySpent
        The statement.

    Returns
    -------
    Meaning
    """
    claim = claim_of(spent)
    bound = min(1.0, claim.advantage_bound)
    # The largest advantage is the total variation distance, which is the δ of ε = 0.
    total_variation = 1.0 if math.isinf(spent.epsilon) else compose(spent.event).delta(0.0)
    return Meaning(
        odds_factor=math.exp(min(spent.epsilon, 709.0)) if spent.epsilon < 709 else math.inf,
        right_at_most=(1.0 + bound) / 2.0,
        right_by_noise=(1.0 + min(bound, total_variation)) / 2.0,
        advantage_bound=bound,
        tpr_bound=float(claim.tpr_bound(SMALL_FPR)),
    )


def claim_of(spent: Any) -> MembershipResult:
    """Return a result without scores, that knows what (ε, δ) allow."""
    nothing = np.empty(0)
    return MembershipResult(nothing, nothing, spent.epsilon, spent.delta)


def percent_at_most(share: float) -> str:
    """Write a share as percent, rounded up to a tenth."""
    return f"{min(100.0, math.ceil(round(1000.0 * share, 6)) / 10.0):.1f} %"


def shown_at_least(epsilon: float, digits: int = 2) -> str:
    """Write a lower bound, rounded down."""
    unit = 10**digits
    return f"{math.floor(unit * epsilon) / unit:.{digits}f}"


def beside_claim(shown: float, claimed: float) -> tuple[str, str]:
    """Write a lower bound and a claim: rounded down and up, and still told apart.

    Parameters
    ----------
    shown : float
        The bound.
    claimed : float
        The claim.

    Returns
    -------
    shown, claimed : str
        With as many digits as it takes to see which is larger.
    """
    if math.isinf(claimed):
        return shown_at_least(shown), "∞"
    for digits in range(2, 16):
        low = shown_at_least(shown, digits)
        if shown <= claimed or float(low) > claimed:
            usual = rounded_up(claimed)
            exact = shown > claimed and float(usual) >= float(low)
            return low, repr(claimed) if exact else usual
    return repr(shown), repr(claimed)


def one_in(delta: float) -> str:
    """Write a small probability as people say it, never as less than it is."""
    return f"1 in {math.floor(round(1.0 / delta, 6)):,}" if delta > 0.0 else "0"


def is_bare(spent: PrivacySpent) -> bool:
    """Return whether all of a release is without noise."""
    return all(isinstance(event, NonPrivateEvent) for event in single_events(spent.event))


def mechanism_in_words(spent: PrivacySpent) -> str:
    """Return how a release was made; what had no noise is not called noisy."""
    if not spent.mechanism or not is_bare(spent):
        return spent.mechanism
    plain = spent.mechanism.replace("noisy ", "")
    return plain if "without" in plain else f"{plain}, without noise"
