"""What the page of a privacy report shows, from its facts."""

import math
from collections.abc import Iterator, Mapping
from typing import Any

import numpy as np
from matplotlib.figure import Figure
from scipy.stats import norm

from skdpot._utils.pages import render
from skdpot.audit.membership.synthetic import SyntheticMembership
from skdpot.audit.report.audit import PartAudit
from skdpot.audit.report.cautions import MEMBERS
from skdpot.audit.report.words import (
    beside_claim,
    claim_of,
    mechanism_in_words,
    one_in,
    percent_at_most,
    protected_in_words,
    shown_at_least,
)
from skdpot.metrics._panels import COLORS, data_address
from skdpot.privacy.accounting import compose
from skdpot.privacy.display import epsilon_text, rounded_down, rounded_up
from skdpot.privacy.gdp import gdp_mu
from skdpot.privacy.spent import PrivacySpent

__all__ = ["report_fragment"]


def report_fragment(report: Any) -> str:
    """Return a report as a part of a page, for notebooks."""
    what = " + ".join(report.parts)
    if report.parts != (report.estimator,):
        what = f"{report.estimator} ({what})"
    verdict, members = _verdict(report)
    trial = report.membership
    return render(
        "privacy_report.html",
        title="Privacy report",
        subject=what,
        report=report,
        spent=report.spent,
        finite=math.isfinite(report.spent.epsilon),
        infinity=math.inf,
        verdict=verdict,
        members=members,
        headlines=list(_headlines(report)),
        released=list(_released(report)),
        protected=protected_in_words(report.spent),
        protection=list(_protection(report)),
        budgets=list(map(_budget, report.budgets)),
        audits=[_bounds(part) for part in report.audits if part.result is not None],
        trial=trial,
        attacks=[] if trial.found is None else list(_attacks(trial.found)),
        n_others=0 if trial.found is None else len(trial.found.best.other_scores),
        utility=[(f"{f.name} ({f.meaning})", f"{f.value:.4g}") for f in report.utility],
        details=_details(report),
        event=str(report.spent.event),
        claim_picture=claim_picture,
        membership_picture=membership_picture,
    )


def _verdict(report: Any) -> tuple[tuple[str, str], str]:
    """Return the first thing to read, and what to say of members."""
    stops = [caution.text for caution in report.cautions if caution.level == "stop"]
    if report.refuted:
        first = ("stop", "Do not publish: the audit below refutes what is claimed.")
    elif stops == [MEMBERS]:
        first = ("stop", f"Do not pass this report on. {_claim(report)}")
    elif stops:
        first = ("stop", "Do not publish before the red warnings below are settled.")
    else:
        first = ("good", _claim(report))
    return first, MEMBERS if MEMBERS in stops else ""


def _claim(report: Any) -> str:
    """Return what is guaranteed, of this fit and of all that are on its ledger."""
    text = (
        f"What was released is differentially private with ε = {rounded_up(report.spent.epsilon)} "
        f"and δ = {report.spent.delta:g}: these bound how much any one record can change it, under "
        "the assumptions listed below."
    )
    for total, count in _other_fits(report):
        text += f" It is one of {count} charges on its ledger, which come to ε = {total} together."
    return text


def _other_fits(report: Any) -> Iterator[tuple[str, int]]:
    """Yield what each ledger holds that was charged by more than this."""
    for budget in report.budgets:
        if budget.spent is None or budget.history is None:
            continue
        # What calibration leaves of ε is no other fit.
        if budget.spent > report.spent.epsilon * 1.0001:
            yield rounded_up(budget.spent).replace("inf", "∞"), len(budget.history)


def _headlines(report: Any) -> Iterator[tuple[str, str]]:
    """Yield the most important figures."""
    spent = report.spent
    epsilon = rounded_up(spent.epsilon).replace("inf", "∞")
    if math.isinf(spent.epsilon):
        yield f"ε = {epsilon}", "no privacy is claimed"
    else:
        whose = f" by {' + '.join(report.parts)} alone" if report.silent else ""
        yield f"ε = {epsilon}", f"is claimed{whose}: the smaller, the more private"
        for total, count in _other_fits(report):
            yield f"ε = {total}", f"in all, by the {count} charges on the ledger"
        yield one_in(spent.delta), "is δ, the room that is claimed for rare failures"
        yield (
            f"≤ {percent_at_most(report.meaning.right_at_most)}",
            "right guesses about one record, where blind ones reach 50 %",
        )
    found = [part.result for part in report.audits if part.result is not None]
    if found:
        best = max(found, key=lambda result: result.epsilon_lower)
        shown, _ = beside_claim(best.epsilon_lower, best.epsilon)
        sure = f"at {100 * report.confidence:.4g} % confidence"
        if float(shown) > 0.0:
            yield f"ε ≥ {shown}", f"is what an attack shows, {sure}"
        else:
            yield "nothing shown", f"by an attack, {sure}: no proof, see below"


def _released(report: Any) -> Iterator[tuple[str, str]]:
    """Yield who made the release, of how much, and with which noise."""
    spent = report.spent
    yield "Made by", " + ".join(report.parts)
    if spent.mechanism:
        yield "Mechanism", mechanism_in_words(spent)
    for name, size in (("Records", report.n_samples), ("Features", report.n_features)):
        yield name, "not kept by this estimator" if size is None else f"{size:,}"
    for name, value in (("Noise (σ)", spent.sigma), ("Sensitivity (Δ)", spent.sensitivity)):
        if value is not None:
            numbers = value if isinstance(value, tuple) else [value]
            yield name, ", ".join(f"{number:.4g}" for number in numbers)


def _protection(report: Any) -> Iterator[tuple[str, str]]:
    """Yield what ε and δ mean; nothing where there is no guarantee."""
    spent, meaning = report.spent, report.meaning
    if math.isinf(spent.epsilon):
        return
    better = ""
    if percent_at_most(meaning.right_by_noise) != percent_at_most(meaning.right_at_most):
        better = (
            f" Counting with the noise that was really drawn, and not with ε alone, it is at most "
            f"{percent_at_most(meaning.right_by_noise)}."
        )
    yield (
        f"ε = {rounded_up(spent.epsilon)}",
        f"Whatever may follow from the release is at most {rounded_up(meaning.odds_factor)} times "
        "as probable with a record of yours as with any other record in its place, plus δ; "
        "whatever else somebody knows and computes.",
    )
    yield (
        f"δ = {spent.delta:g}",
        f"What is added to that: a probability of {one_in(spent.delta)} at most, as room for "
        "rare failures.",
    )
    yield (
        "Several records of one person",
        "All of this is for one record. At the same δ, "
        + ", ".join(f"{k} records have ε = {_of_group(spent, k)}" for k in (2, 5, 10))
        + ".",
    )
    yield (
        "Guessing one record",
        "Somebody who knows that one of two records was used, each as likely as the other, "
        f"finds out which with probability {percent_at_most(meaning.right_at_most)} at most; "
        f"by blind guessing, 50 %.{better}",
    )
    yield (
        "Finding members",
        "An attack that wrongly suspects 1 of 100 persons who are not in the data finds at "
        f"most {rounded_up(100 * meaning.tpr_bound)} of 100 who are.",
    )


def _of_group(spent: PrivacySpent, size: int) -> str:
    """Write the epsilon of several records."""
    epsilon = spent.for_group(size)
    return rounded_up(epsilon) if math.isfinite(epsilon) else "∞ (nothing is proved)"


def _budget(budget: Any) -> dict[str, Any]:
    """Return what a ledger holds; a problem only if it could not be read."""
    facts = {"cap": epsilon_text(budget.epsilon), "delta": f"{budget.delta:g}", "problem": None}
    if budget.spent is None or budget.remaining is None or budget.history is None:
        return facts | {"problem": budget.problem}
    capped, share = math.isfinite(budget.epsilon), 0.0
    if capped and budget.spent > 0.0:
        # Squares of μ add up, not ε.
        share = (gdp_mu(budget.spent, budget.delta) / gdp_mu(budget.epsilon, budget.delta)) ** 2
    left = f"left for one more fit: ε = {rounded_down(budget.remaining)}" if capped else "no cap"
    count = len(budget.history)
    done = f"{epsilon_text(budget.spent)} spent in {count} charge{'s' * (count != 1)}"
    rows = [
        (
            row["label"] or "no label",
            row["time"].strftime("%Y-%m-%d %H:%M"),
            rounded_up(row["epsilon"]).replace("inf", "∞"),
        )
        for row in budget.history.to_dict("records")
    ]
    return facts | {"capped": capped, "meter": (share, done, left), "rows": rows}


def _bounds(part: PartAudit) -> tuple[str, ...]:
    """Return a row of the table of audits."""
    found = part.result
    if found is None:  # never: only audits that were made have a row
        return (part.name,)
    shown, claimed = beside_claim(found.epsilon_lower, found.epsilon)
    normal = found.gaussian_epsilon_lower
    return (
        part.name,
        claimed,
        f"≥ {shown}",
        f"≥ {shown_at_least(found.ceiling)}",
        f"{found.n_correct:,} of {found.n_guesses:,}",
        "unknown" if normal is None else f"≥ {beside_claim(normal, found.epsilon)[0]}",
        "unknown" if found.power is None else f"{math.floor(100 * found.power):d} %",
    )


def _attacks(found: SyntheticMembership) -> Iterator[tuple[str, ...]]:
    """Yield a row for each attack on synthetic rows."""
    n_others = len(found.best.other_scores)
    for name, row in found.to_frame().to_dict("index").items():
        rates = (
            _rate(row, fpr) if n_others * float(fpr) >= 1 else "too few others"
            for fpr in ("0.01", "0.1")
        )
        yield str(name), _limited(row["auc"], row["auc_low"], row["auc_high"], 2), *rates


def _rate(row: Mapping[Any, float], fpr: str) -> str:
    key = f"tpr_at_{fpr}"
    value, low, high = (100 * row[name] for name in (key, f"{key}_low", f"{key}_high"))
    return _limited(value, low, high, 1).replace(" (", " % (")


def _limited(value: float, low: float, high: float, digits: int) -> str:
    """Write a figure with its limits, which are rounded outwards."""
    unit = 10**digits
    most = math.ceil(round(unit * high, 6)) / unit
    return f"{value:.{digits}f} ({shown_at_least(low, digits)}–{most:.{digits}f})"


def _details(report: Any) -> list[tuple[str, str]]:
    advantage = report.meaning.advantage_bound
    return [
        ("Relation", str(report.spent.relation)),
        ("ε, unrounded", repr(report.spent.epsilon)),
        ("Advantage", f"at most {advantage:.4g} = (e^ε − 1 + 2 δ) / (e^ε + 1)"),
        ("Audit", "T. Steinke et al., NeurIPS 2023; S. Mahloujifar et al., 2024"),
        ("Membership", "B. van Breugel et al., AISTATS 2023 (density ratio)"),
    ]


def claim_picture(spent: PrivacySpent) -> str:
    """Draw which attacks a claim leaves possible, as a data address of an SVG picture."""
    figure = Figure(figsize=(3.6, 3.4), layout="constrained")
    ax = figure.subplots()
    fpr = np.linspace(0, 1, 201)
    allowed = claim_of(spent).tpr_bound(fpr)
    ax.fill_between(fpr, fpr, allowed, color=COLORS[5], alpha=0.35, linewidth=0)
    ax.plot(fpr, allowed, color=COLORS[0], label="most that ε and δ allow")
    loss = compose(spent.event)
    if not loss.is_sampled and math.isfinite(loss.mu_without_sampling):
        best = loss.leak + (1.0 - loss.leak) * norm.cdf(norm.ppf(fpr) + loss.mu_without_sampling)
        ax.plot(fpr, best, color=COLORS[1], linestyle="--", label="most that the noise allows")
    ax.plot([0, 1], [0, 1], color="black", linestyle=":", linewidth=1, label="blind guessing")
    ax.set(
        xlim=(0, 1),
        ylim=(0, 1),
        aspect="equal",
        xlabel="share of others wrongly suspected",
        ylabel="share of members found",
    )
    ax.legend(loc="lower right", fontsize="small")
    return data_address(figure, "svg", "image/svg+xml")


def membership_picture(found: SyntheticMembership) -> str:
    """Draw what attacks on synthetic rows found, as a data address of a PNG picture."""
    figure = Figure(figsize=(7.2, 4.6))
    left, right = figure.subplots(1, 2)
    # No layout engine keeps a legend of the figure clear of axes with a fixed aspect.
    figure.subplots_adjust(left=0.09, right=0.98, top=0.94, bottom=0.28, wspace=0.3)
    for ax, log in ((left, False), (right, True)):
        found.plot(ax=ax, log=log)
        ax.get_legend().remove()
        ax.set(xlabel="share of others wrongly suspected", ylabel="share of members found")
    left.set_title("all attacks", fontsize="medium")
    right.set_title("small error rates", fontsize="medium")
    figure.legend(*left.get_legend_handles_labels(), loc="lower center", ncols=2, fontsize="small")
    # Curves of thousands of points are smaller as pixels.
    return data_address(figure, "png", "image/png")
