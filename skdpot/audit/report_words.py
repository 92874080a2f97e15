"""What a privacy statement means, in words: for officers, rounded to the safe side."""

import math
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any, Literal

import numpy as np

from skdpot.audit.claims import lower_text
from skdpot.audit.membership import MembershipResult
from skdpot.privacy.accounting import compose
from skdpot.privacy.budget import PrivacyBudget
from skdpot.privacy.charges import SEEDED
from skdpot.privacy.events import Relation
from skdpot.privacy.rounding import rounded_up
from skdpot.privacy.statement import PrivacySpent

_SMALL_FPR = 0.01  # the false positive rate at which an attack is judged
_MOST_EPSILON = 10.0  # the largest value that is called reasonable
_MOST_FAILURES = 0.1  # expected number of records that may be published without breaking δ

MEMBERS_WARNING = (
    "This report is not private: its attacks were computed without noise from rows that the "
    "release was made from (X_members). Show it only to those who may see these rows, and make "
    "another report without X_members for everybody else."
)


@dataclass(frozen=True)
class Caution:
    """One warning and what to do; "stop" if the release must not be trusted."""

    level: Literal["stop", "caution"]
    text: str


@dataclass(frozen=True, kw_only=True)
class Meaning:
    """What ε and δ say about an attacker.

    `odds_factor` is e^ε. The other fields bound the probability of guessing which of two records
    was used, by ε and δ and by the noise (`right_at_most`, `right_by_noise`), the difference of
    true and false positive rates, and the true positive rate at a false positive rate of 0.01.
    """

    odds_factor: float
    right_at_most: float
    right_by_noise: float
    advantage_bound: float
    tpr_bound: float


def cautions_of(
    parts: Sequence[tuple[str, Any]],
    spent: PrivacySpent,
    budgets: Sequence[PrivacyBudget],
    n_samples: int | None,
    *,
    silent: Sequence[str] = (),
    of_members: bool = False,
) -> tuple[Caution, ...]:
    """List the warnings about a release, the gravest first; they follow from public facts."""
    finite, names = math.isfinite(spent.epsilon), " + ".join(name for name, _ in parts)
    failures = spent.delta * (n_samples or 0) if finite else 0.0
    delta = f"δ = {spent.delta:g}"
    seeded = any(getattr(part, "random_state", None) is not None for _, part in parts)
    noisy = (phase for phase in spent.event.phases if hasattr(phase, "sigma"))
    lasting = all(budget.is_durable for budget in budgets)
    stop: dict[str, bool] = {
        MEMBERS_WARNING: of_members,
        **{
            f"{name} was fitted on the rows without noise. No ε bounds what it, and every part "
            "after it, reveals about them, and the ε stated here does not hold for the whole. Use "
            "a private estimator instead (PrivateScaler for a scaler), or fit it to public rows "
            "beforehand. skdpot.check_pipeline refuses such a pipeline before the fit.": True
            for name in silent
            if name != "FrozenEstimator"
        },
        "No privacy: something was released without noise (ε = ∞). Do not publish it if the "
        "records are personal.": not spent.event.is_private,
        "No privacy: the noise is too small for any finite ε.": (
            spent.event.is_private and not finite
        ),
        f"{delta} is not below 1/n for n = {n_samples or 0:,} records: with such a δ even the "
        "publication of one record, picked at random, would count as private. Choose a δ well "
        "below 1/n.": failures >= 1.0,
        "The noise can be repeated because random_state was set. Anyone who knows or guesses it "
        "can subtract the noise. Fit again with random_state=None before publishing.": (
            seeded or SEEDED in spent.assumptions
        ),
    }
    caution: dict[str, bool] = {
        "FrozenEstimator was fitted beforehand: the guarantee holds only if the rows of that fit "
        "were public.": "FrozenEstimator" in silent,
        f"ε = {spent.epsilon:.4g} is so large that the guarantee says little about a determined "
        "attacker. Values up to 1 are called strong, and up to 10 reasonable (N. Ponomareva et "
        "al., “How to DP-fy ML”, JAIR 2023).": finite and spent.epsilon > _MOST_EPSILON,
        f"{names} does not keep the number of records n. Check that {delta} is far below 1/n.": (
            finite and n_samples is None
        ),
        f"{delta} is not far below 1/n for n = {n_samples or 0:,} records: with such a δ the "
        f"publication of one record, picked at random, in {failures:.0%} of all releases would "
        "count as private. Choose a δ of less than a tenth of 1/n.": (
            _MOST_FAILURES < failures < 1.0
        ),
        "Noise was drawn as floating-point numbers (noise='float'). The proof assumes real "
        "numbers, and the last bits of a noisy number can reveal more. Do not publish raw noisy "
        "numbers of this release with all digits.": (
            any(getattr(phase, "lattice", 1.0) is None for phase in noisy)
        ),
        "No budget counts the fits on these records. If fit was called more than once, or another "
        "private estimator was fitted to the same persons, the total ε is larger than this one.": (
            finite and not budgets
        ),
        "Several budgets were charged: no single cap bounds their sum.": (len(budgets) > 1),
        "The budget has no cap (ε = ∞): it admits every further fit.": (
            any(math.isinf(budget.epsilon) for budget in budgets)
        ),
        "The ledger of the budget is a temporary file that is deleted when its process ends: later "
        "fits will not be counted. Pass ledger='<path>' for a permanent one.": not lasting,
    }
    return (
        *(Caution("stop", text) for text, holds in stop.items() if holds),
        *(Caution("caution", text) for text, holds in caution.items() if holds),
    )


def protected_in_words(spent: PrivacySpent) -> str:
    """Return which change of the data the release hides."""
    if math.isinf(spent.epsilon):
        return "No one is protected: the release has no noise, or too little for any guarantee."
    if spent.relation is Relation.ADD_REMOVE:
        change, number = "been left out, or one been added", "protected as well"
    else:
        change, number = "been replaced by any other", "public"
    return (
        "Each record: the release would be almost as likely had any one record "
        f"{change}. The number of records is {number}."
    )


def meaning_of(spent: PrivacySpent) -> Meaning:
    """Return what a statement says about an attacker."""
    claim = claim_of(spent)
    bound = min(1.0, claim.advantage_bound)
    # The largest advantage is the total variation distance, which is the δ of ε = 0.
    total_variation = 1.0 if math.isinf(spent.epsilon) else compose(spent.event).delta(0.0)
    return Meaning(
        odds_factor=math.exp(spent.epsilon) if spent.epsilon < 709.0 else math.inf,
        right_at_most=(1.0 + bound) / 2.0,
        right_by_noise=(1.0 + min(bound, total_variation)) / 2.0,
        advantage_bound=bound,
        tpr_bound=float(claim.tpr_bound(_SMALL_FPR)),
    )


def claim_of(spent: PrivacySpent) -> MembershipResult:
    """Return a membership result without scores, for its bounds."""
    return MembershipResult(np.empty(0), np.empty(0), spent.epsilon, spent.delta)


def percent_at_most(share: float) -> str:
    """Return a share in percent, rounded up to a tenth."""
    return f"{min(100.0, math.ceil(round(1000.0 * share, 6)) / 10.0):.1f} %"


def beside_claim(shown: float, claimed: float) -> tuple[str, str]:
    """Return a lower bound and a claim as text, rounded down and up but distinguishable."""
    low, usual = lower_text(shown, claimed), rounded_up(claimed)
    if claimed < shown < math.inf and float(usual) >= float(low):
        usual = repr(claimed)
    return low, usual.replace("inf", "∞")


def one_in(delta: float) -> str:
    """Return a small probability as "1 in n", never smaller than it is."""
    return f"1 in {math.floor(round(1.0 / delta, 6)):,}" if delta > 0.0 else "0"


def mechanism_in_words(spent: PrivacySpent) -> str:
    """Return how a release was made; a release without noise is not called noisy."""
    if not spent.mechanism or any(phase.is_private for phase in spent.event.phases):
        return spent.mechanism
    plain = spent.mechanism.replace("noisy ", "")
    return plain if "without" in plain else f"{plain}, without noise"
