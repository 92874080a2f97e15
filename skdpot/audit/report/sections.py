"""The sections of a privacy report, as HTML."""

import math
from collections.abc import Iterator
from html import escape
from typing import TYPE_CHECKING

from skdpot._utils.report_page import box, bullets, paragraphs, picture, table
from skdpot.audit.report.attacks import audit_section, membership_section
from skdpot.audit.report.budget import BudgetState
from skdpot.audit.report.pictures import claim_picture
from skdpot.audit.report.words import (
    mechanism_in_words,
    one_in,
    percent_at_most,
    protected_in_words,
)
from skdpot.privacy.display import (
    describe_event,
    epsilon_text,
    html_meter,
    html_table,
    rounded_down,
    rounded_up,
)
from skdpot.privacy.gdp import gdp_mu

if TYPE_CHECKING:
    from skdpot.audit.report.privacy_report import PrivacyReport
    from skdpot.privacy.spent import PrivacySpent

__all__ = ["sections"]


def sections(report: "PrivacyReport") -> Iterator[tuple[str, str]]:
    """Yield the sections of a report.

    Parameters
    ----------
    report : PrivacyReport
        The report.

    Yields
    ------
    title : str
        Text.
    body : str
        HTML.
    """
    yield "Warnings", _warnings(report)
    yield "What was released", _released(report)
    yield "Who is protected, and how well", _protection(report)
    yield "What is taken for granted", _assumptions(report)
    yield (
        "Budget and history",
        "".join(map(_budget, report.budgets))
        or paragraphs(
            "No budget was given. What other fits on the same records have released is not known "
            "here, and adds to what is stated above."
        ),
    )
    yield "Audit: an attack on a copy", audit_section(report)
    yield "Membership: can synthetic rows tell who was in the data?", membership_section(report)
    yield "Usefulness", _utility(report)
    yield "What this report does not cover", bullets(report.not_covered)
    yield "For experts", _details(report)


def _warnings(report: "PrivacyReport") -> str:
    """Return all warnings, those of the audit first."""
    refuted = [part.name for part in report.audits if part.result and part.result.refuted]
    boxes = [
        box(
            "stop",
            f"The audit refutes the privacy claimed for {name}: see below. Either this was one of "
            "the rare errors that its confidence allows for, or the mechanism is broken. Repeat it "
            "with more canaries.",
        )
        for name in refuted
    ]
    boxes += [box(caution.level, caution.text) for caution in report.cautions]
    return "".join(boxes) or box("good", "None: nothing in the public facts gives reason for one.")


def _released(report: "PrivacyReport") -> str:
    spent = report.spent
    rows = [("Made by", " + ".join(report.parts))]
    if spent.mechanism:
        rows.append(("Mechanism", mechanism_in_words(spent)))
    sizes = (("Records", report.n_samples), ("Features", report.n_features))
    rows += [
        (name, "not kept by this estimator" if size is None else f"{size:,}")
        for name, size in sizes
    ]
    rows += [
        (name, _numbers(value))
        for name, value in (("Noise (σ)", spent.sigma), ("Sensitivity (Δ)", spent.sensitivity))
        if value is not None
    ]
    return (
        html_table(rows)
        + paragraphs("Everything that touched the records, in the order in which it happened:")
        + bullets(report.releases)
        + paragraphs(
            "Whatever is computed from this release afterwards (samples, predictions, distances, "
            "scores on public rows) adds nothing to what it reveals."
        )
    )


def _assumptions(report: "PrivacyReport") -> str:
    """Return what is taken to be public."""
    assumed = report.spent.assumptions
    if not assumed:
        return paragraphs(
            "Nothing is listed: where nothing is guaranteed, nothing need be assumed."
        )
    intro = (
        "These things are public knowledge, or a condition. The guarantee holds if they are so; "
        "check each."
    )
    if math.isinf(report.spent.epsilon):
        intro = "There is no guarantee. These things were taken to be public:"
    return paragraphs(intro) + bullets(assumed)


def _numbers(value: float | tuple[float, ...]) -> str:
    return ", ".join(f"{number:.4g}" for number in (value if isinstance(value, tuple) else [value]))


def _of_group(spent: "PrivacySpent", size: int) -> str:
    """Write the epsilon of several records."""
    epsilon = spent.for_group(size)
    return rounded_up(epsilon) if math.isfinite(epsilon) else "∞ (nothing is proved)"


def _protection(report: "PrivacyReport") -> str:
    spent, meaning = report.spent, report.meaning
    body = paragraphs(protected_in_words(spent))
    if report.silent:
        body = box(
            "stop",
            f"What follows is claimed by {' + '.join(report.parts)} alone. It does not hold for "
            f"the whole, because of what {' + '.join(report.silent)} learned from the rows.",
        )
    if math.isinf(spent.epsilon):
        return body
    better = ""
    if percent_at_most(meaning.right_by_noise) != percent_at_most(meaning.right_at_most):
        better = (
            f" Counting with the noise that was really drawn, and not with ε alone, it is at most "
            f"{percent_at_most(meaning.right_by_noise)}."
        )
    factor = f"{rounded_up(meaning.odds_factor)} times"
    rows = [
        (
            f"ε = {rounded_up(spent.epsilon)}",
            f"Whatever may follow from the release is at most {factor} as probable with a record "
            "of yours as with any other record in its place, plus δ; whatever else somebody knows "
            "and computes.",
        ),
        (
            f"δ = {spent.delta:g}",
            f"What is added to that: a probability of {one_in(spent.delta)} at most, as room for "
            "rare failures.",
        ),
        (
            "Several records of one person",
            "All of this is for one record. At the same δ, "
            + ", ".join(f"{k} records have ε = {_of_group(spent, k)}" for k in (2, 5, 10))
            + ".",
        ),
        (
            "Guessing one record",
            "Somebody who knows that one of two records was used, each as likely as the other, "
            f"finds out which with probability {percent_at_most(meaning.right_at_most)} at most; "
            f"by blind guessing, 50 %.{better}",
        ),
        (
            "Finding members",
            "An attack that wrongly suspects 1 of 100 persons who are not in the data finds at "
            f"most {rounded_up(100 * meaning.tpr_bound)} of 100 who are.",
        ),
    ]
    words = (
        "Curve of the largest share of members that an attack can find, by the share of others "
        f"that it wrongly suspects, at epsilon {spent.epsilon:.4g}."
    )
    return body + html_table(rows) + picture(claim_picture(spent), words)


def _budget(budget: BudgetState) -> str:
    """Return what a ledger holds."""
    cap = f"Cap: {epsilon_text(budget.epsilon)} at δ = {budget.delta:g}."
    if budget.spent is None or budget.remaining is None or budget.history is None:
        return paragraphs(cap) + box("caution", f"The ledger could not be read. {budget.problem}")
    share = 0.0
    if math.isfinite(budget.epsilon) and budget.spent > 0.0:
        # Squares of μ add up, not ε.
        share = (gdp_mu(budget.spent, budget.delta) / gdp_mu(budget.epsilon, budget.delta)) ** 2
    left = (
        "no cap"
        if math.isinf(budget.epsilon)
        else f"left for one more fit: ε = {rounded_down(budget.remaining)}"
    )
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
    promise = (
        "It admits every fit, and bounds nothing: it counts."
        if math.isinf(budget.epsilon)
        else "Whatever has been and will be charged to it stays below; a fit that does not fit in "
        "is refused."
    )
    return (
        paragraphs(f"{cap} {promise}")
        + html_meter(share, done, left)
        + table(("charge", "time (UTC)", "ε alone"), rows)
        + paragraphs("Charges together cost less than the sum of their single ε.")
    )


def _utility(report: "PrivacyReport") -> str:
    if not report.utility:
        return paragraphs(f"Not measured. {report.utility_reason}")
    rows = [
        (f"{figure.name} ({figure.meaning})", f"{figure.value:.4g}") for figure in report.utility
    ]
    return paragraphs("Measured on the public hold-out.") + table(("figure", "value"), rows)


def _details(report: "PrivacyReport") -> str:
    spent = report.spent
    rows = [
        ("Relation", str(spent.relation)),
        ("ε, unrounded", repr(spent.epsilon)),
        (
            "Advantage",
            f"at most {report.meaning.advantage_bound:.4g} = (e^ε − 1 + 2 δ) / (e^ε + 1)",
        ),
        ("Audit", "T. Steinke et al., NeurIPS 2023; S. Mahloujifar et al., 2024"),
        ("Membership", "B. van Breugel et al., AISTATS 2023 (density ratio)"),
    ]
    event = escape(describe_event(spent.event))
    return html_table(rows) + f"<h3>Event</h3><p><code>{event}</code></p>"
