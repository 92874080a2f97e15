"""What a privacy report says: what ε and δ mean, what to be warned of, and the page.

Figures are rounded to the safe side. The page itself is `privacy_report.html` among the templates.
"""

import math
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import Any, Literal

import numpy as np
from matplotlib.figure import Figure
from scipy.stats import norm

from skdpot._utils.pages import render
from skdpot.audit.membership import MembershipResult
from skdpot.audit.one_run import lower_text
from skdpot.audit.synthetic import SyntheticMembership
from skdpot.metrics._panels import COLORS, data_address
from skdpot.privacy.accounting import compose
from skdpot.privacy.budget import PrivacyBudget, epsilon_text, rounded_down, rounded_up
from skdpot.privacy.events import Relation, gdp_mu
from skdpot.privacy.spent import PrivacySpent

_SMALL_FPR = 0.01  # the false positive rate at which an attack is judged
_MOST_EPSILON = 10.0
_MOST_FAILURES = 0.1  # records that a release may publish in the mean and still keep its δ

_MEMBERS = (
    "This report is not private: attacks in it were computed, without noise, from rows that the "
    "release was made from (X_members). Keep it to those who may see these rows; make another one "
    "without X_members for everybody else."
)

NOT_COVERED = (
    "Fits that are not in the history above: another fit on the same persons adds to what is known "
    "of them, also one that was thrown away, repeated, or made with other software. One "
    "PrivacyBudget for all of them counts and caps the sum.",
    "Choices made by looking at the data: a search over parameters (GridSearchCV) makes many "
    "fits, and its scores and its choice tell about the rows that it was scored on.",
    "Rows handed to predict, transform, score or distance: they count as public.",
    "Persons with more than one record, unless the assumptions say how many each may have.",
    "What is true of a whole group: somebody may learn from the release that smoking harms, and so "
    "something about you, whether or not your record was used.",
    "Security of the machine: who reads its memory or its disk needs no release.",
)


@dataclass(frozen=True)
class Caution:
    """One warning: "stop" where the release must not be trusted, and what to do."""

    level: Literal["stop", "caution"]
    text: str


def cautions_of(
    parts: Sequence[tuple[str, Any]],
    spent: PrivacySpent,
    budgets: Sequence[PrivacyBudget],
    n_samples: int | None,
    *,
    silent: Sequence[str] = (),
    of_members: bool = False,
) -> tuple[Caution, ...]:
    """List what is wrong or open with a release, the gravest first, from public facts alone.

    `silent` are names of parts that learned from the rows and have no event; `of_members` says
    that the report was computed from rows that the release was made from.
    """
    finite, names = math.isfinite(spent.epsilon), " + ".join(name for name, _ in parts)
    failures = spent.delta * (n_samples or 0) if finite else 0.0
    delta = f"δ = {spent.delta:g}"
    seeded = any(getattr(part, "random_state", None) is not None for _, part in parts)
    noisy = (phase for phase in spent.event.phases if hasattr(phase, "sigma"))
    lasting = all(budget.is_durable for budget in budgets)
    stop: dict[str, bool] = {
        _MEMBERS: of_members,
        **{
            f"{name} was fitted on the rows without noise: no ε bounds what it, and every part "
            "after it, tell of them, and the ε stated here does not hold for the whole. Take a "
            "private estimator in its place (for a scaler, PrivateScaler), or fit it to public "
            "rows before. skdpot.check_pipeline refuses such a pipeline before the fit.": True
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
        "The noise can be repeated: random_state was set. Whoever knows or guesses it can "
        "subtract the noise. Fit again with random_state=None before publishing.": (
            seeded or any("random_state" in text for text in spent.assumptions)
        ),
    }
    caution: dict[str, bool] = {
        "FrozenEstimator was fitted before: the guarantee holds only if the rows of that fit were "
        "public.": "FrozenEstimator" in silent,
        f"ε = {spent.epsilon:.4g} is so large that the guarantee says little about a determined "
        "attacker. Values up to 1 are called strong, and up to 10 reasonable (N. Ponomareva et "
        "al., “How to DP-fy ML”, JAIR 2023).": finite and spent.epsilon > _MOST_EPSILON,
        f"{names} does not keep the number of records. Check that {delta} is well below one over "
        "it.": finite and n_samples is None,
        f"{delta} is not far below 1/n for n = {n_samples or 0:,} records: with such a δ the "
        f"publication of one record, picked at random, in {failures:.0%} of all releases would "
        "count as private. Choose a δ of less than a tenth of 1/n.": (
            _MOST_FAILURES < failures < 1.0
        ),
        "Noise was drawn as floating-point numbers (noise='float'). The proof is about real "
        "numbers, and the last bits of a noisy number can tell more; do not publish raw noisy "
        "numbers of this release with all digits.": (
            any(getattr(phase, "lattice", None) is None for phase in noisy)
        ),
        "No budget counts the fits on these records. If fit was called more than once, or another "
        "private estimator saw the same persons, the true ε is larger than this one.": (
            finite and not budgets
        ),
        "Several budgets were charged: what they admit together is not capped by one.": (
            len(budgets) > 1
        ),
        "The budget has no cap (ε = ∞): it admits every further fit.": (
            any(math.isinf(budget.epsilon) for budget in budgets)
        ),
        "The ledger of the budget is a temporary file, which ends with its process: later fits "
        "will not be counted. Pass ledger='<path>' for a lasting one.": not lasting,
    }
    found = [Caution("stop", text) for text, holds in stop.items() if holds]
    return (*found, *(Caution("caution", text) for text, holds in caution.items() if holds))


def protected_in_words(spent: PrivacySpent) -> str:
    """Say against what change of the data the release is insensitive."""
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


@dataclass(frozen=True, kw_only=True)
class Meaning:
    """What ε and δ say about an attacker.

    Nothing is more probable with one record than `odds_factor` = e^ε times what it is with
    another, plus δ. A guess which of two equally likely records was used is right with a
    probability of `right_at_most` after ε and δ, and of `right_by_noise` after the noise that was
    drawn. `advantage_bound` is the largest difference of true and false positive rates, and
    `tpr_bound` the largest true positive rate at a false positive rate of 0.01.
    """

    odds_factor: float
    right_at_most: float
    right_by_noise: float
    advantage_bound: float
    tpr_bound: float


def meaning_of(spent: PrivacySpent) -> Meaning:
    """Compute what a statement says about an attacker."""
    claim = _claim_of(spent)
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


def _claim_of(spent: PrivacySpent) -> MembershipResult:
    """Return a result without scores, that knows what (ε, δ) allow."""
    return MembershipResult(np.empty(0), np.empty(0), spent.epsilon, spent.delta)


def percent_at_most(share: float) -> str:
    """Write a share as percent, rounded up to a tenth."""
    return f"{min(100.0, math.ceil(round(1000.0 * share, 6)) / 10.0):.1f} %"


def beside_claim(shown: float, claimed: float) -> tuple[str, str]:
    """Write a lower bound and a claim: rounded down and up, and still told apart."""
    low, usual = lower_text(shown, claimed), rounded_up(claimed)
    if claimed < shown < math.inf and float(usual) >= float(low):
        usual = repr(claimed)
    return low, usual.replace("inf", "∞")


def one_in(delta: float) -> str:
    """Write a small probability as people say it, never as less than it is."""
    return f"1 in {math.floor(round(1.0 / delta, 6)):,}" if delta > 0.0 else "0"


def mechanism_in_words(spent: PrivacySpent) -> str:
    """Return how a release was made; what had no noise is not called noisy."""
    if not spent.mechanism or any(phase.is_private for phase in spent.event.phases):
        return spent.mechanism
    plain = spent.mechanism.replace("noisy ", "")
    return plain if "without" in plain else f"{plain}, without noise"


def report_fragment(report: Any) -> str:
    """Return a report as a part of a page, for notebooks."""
    found = [part for part in report.audits if part.result is not None]
    words = (
        beside_claim, epsilon_text, lower_text, one_in, percent_at_most, rounded_down, rounded_up,
    )  # fmt: skip
    return render(
        "privacy_report.html",
        title="Privacy report",
        report=report,
        spent=report.spent,
        stops=[caution.text for caution in report.cautions if caution.level == "stop"],
        members=_MEMBERS,
        protected=protected_in_words(report.spent),
        mechanism=mechanism_in_words(report.spent),
        # What calibration leaves of ε is no other fit.
        other_fits=[b for b in report.budgets if (b.spent or 0.0) > report.spent.epsilon * 1.0001],
        share_spent=_share_spent,
        audited=found,
        best=max((part.result for part in found), key=lambda r: r.epsilon_lower, default=None),
        attack_rows=_attack_rows,
        claim_picture=_claim_picture,
        membership_picture=_membership_picture,
        infinity=math.inf,
        **{word.__name__: word for word in words},
    )


def _share_spent(budget: Any) -> float:
    """Return which share of a ledger is spent: squares of μ add up, not ε."""
    if not 0.0 < budget.spent < math.inf > budget.epsilon:
        return 0.0
    used, whole = (gdp_mu(epsilon, budget.delta) for epsilon in (budget.spent, budget.epsilon))
    return float((used / whole) ** 2)


def _attack_rows(found: SyntheticMembership) -> Iterator[tuple[str, ...]]:
    """Yield a row for each attack on synthetic rows, with limits that are rounded outwards."""

    def limited(share: Sequence[float], unit: int, decimals: int, sign: str = "") -> str:
        value, low, high = (unit * figure for figure in share)
        least = math.floor(low * 10**decimals) / 10**decimals
        most = math.ceil(round(high * 10**decimals, 6)) / 10**decimals
        return f"{value:.{decimals}f}{sign} ({least:.{decimals}f}–{most:.{decimals}f})"

    for name, result in found.results.items():
        rates = (
            limited(result.tpr_at(fpr), 100, 1, " %")
            if len(result.other_scores) * fpr >= 1
            else "too few others"
            for fpr in (0.01, 0.1)
        )
        yield name, limited((result.auc, *result.auc_interval()), 1, 2), *rates


_ATTACK_AXES = {"xlabel": "share of others wrongly suspected", "ylabel": "share of members found"}


def _claim_picture(spent: PrivacySpent) -> str:
    """Draw which attacks a claim leaves possible, as a data address of an SVG picture."""
    figure = Figure(figsize=(3.6, 3.4), layout="constrained")
    ax = figure.subplots()
    fpr = np.linspace(0, 1, 201)
    allowed = _claim_of(spent).tpr_bound(fpr)
    ax.fill_between(fpr, fpr, allowed, color=COLORS[5], alpha=0.35, linewidth=0)
    ax.plot(fpr, allowed, color=COLORS[0], label="most that ε and δ allow")
    loss = compose(spent.event)
    if not loss.is_sampled and math.isfinite(loss.mu_without_sampling):
        best = loss.leak + (1.0 - loss.leak) * norm.cdf(norm.ppf(fpr) + loss.mu_without_sampling)
        ax.plot(fpr, best, color=COLORS[1], linestyle="--", label="most that the noise allows")
    ax.plot([0, 1], [0, 1], color="black", linestyle=":", linewidth=1, label="blind guessing")
    ax.set(xlim=(0, 1), ylim=(0, 1), aspect="equal", **_ATTACK_AXES)
    ax.legend(loc="lower right", fontsize="small")
    return data_address(figure, "svg", "image/svg+xml")


def _membership_picture(found: SyntheticMembership) -> str:
    """Draw what attacks on synthetic rows found, as a data address of a PNG picture."""
    figure = Figure(figsize=(7.2, 4.6))
    left, right = figure.subplots(1, 2)
    # No layout engine keeps a legend of the figure clear of axes with a fixed aspect.
    figure.subplots_adjust(left=0.09, right=0.98, top=0.94, bottom=0.28, wspace=0.3)
    for ax, log in ((left, False), (right, True)):
        found.plot(ax, log=log, legend=False).set(**_ATTACK_AXES)
    left.set_title("all attacks", fontsize="medium")
    right.set_title("small error rates", fontsize="medium")
    figure.legend(*left.get_legend_handles_labels(), loc="lower center", ncols=2, fontsize="small")
    # Curves of thousands of points are smaller as pixels.
    return data_address(figure, "png", "image/png")
