"""Relations and figures of privacy in plain words, from public facts alone."""

import math
from dataclasses import dataclass
from typing import Any

import numpy as np

from skdpot.audit.membership.result import MembershipResult
from skdpot.privacy.accounting import compose
from skdpot.privacy.display import rounded_up
from skdpot.privacy.relation import Relation
from skdpot.privacy.spent import PrivacySpent

__all__ = [
    "Meaning",
    "beside_claim",
    "claim_of",
    "is_bare",
    "meaning_of",
    "mechanism_in_words",
    "one_in",
    "percent_at_most",
    "protected_in_words",
    "shown_at_least",
]

# The false positive rate at which an attack is judged.
SMALL_FPR = 0.01


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
    return not any(phase.is_private for phase in spent.event.phases)


def mechanism_in_words(spent: PrivacySpent) -> str:
    """Return how a release was made; what had no noise is not called noisy."""
    if not spent.mechanism or not is_bare(spent):
        return spent.mechanism
    plain = spent.mechanism.replace("noisy ", "")
    return plain if "without" in plain else f"{plain}, without noise"
