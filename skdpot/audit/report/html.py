"""A privacy report as a page: for a screen, a phone, and paper."""

import math
from collections.abc import Iterator
from html import escape
from typing import TYPE_CHECKING

from skdpot._utils.report_page import report_fragment as fragment
from skdpot._utils.report_page import report_page, tiles
from skdpot.audit.report.cautions import MEMBERS
from skdpot.audit.report.sections import sections
from skdpot.audit.report.words import beside_claim, one_in, percent_at_most
from skdpot.privacy.display import rounded_up

if TYPE_CHECKING:
    from skdpot.audit.report.privacy_report import PrivacyReport

__all__ = ["page", "report_fragment"]


def page(report: "PrivacyReport") -> str:
    """Return a report as a whole page.

    Parameters
    ----------
    report : PrivacyReport
        The report.

    Returns
    -------
    str
        HTML without scripts that loads nothing.
    """
    return report_page(f"Privacy report: {report.estimator}", report_fragment(report))


def report_fragment(report: "PrivacyReport") -> str:
    """Return a report as a part of a page, for notebooks.

    Parameters
    ----------
    report : PrivacyReport
        The report.

    Returns
    -------
    str
        HTML.
    """
    what = " + ".join(report.parts)
    if report.parts != (report.estimator,):
        what = f"{report.estimator} ({what})"
    head = [_verdict(report), tiles(_headlines(report))]
    return fragment("Privacy report", what, report.created, report.version, head, sections(report))


def _verdict(report: "PrivacyReport") -> str:
    """Return the first thing to read."""
    stops = [caution.text for caution in report.cautions if caution.level == "stop"]
    if report.refuted:
        kind, text = "stop", "Do not publish: the audit below refutes what is claimed."
    elif stops == [MEMBERS]:
        kind, text = "stop", f"Do not pass this report on. {_claim(report)}"
    elif stops:
        kind, text = "stop", "Do not publish before the red warnings below are settled."
    else:
        kind, text = "good", _claim(report)
    first = f'<div class="box {kind}"><strong>{escape(text)}</strong></div>'
    if MEMBERS in stops:
        first += f'<div class="box stop">{escape(MEMBERS)}</div>'
    return first


def _claim(report: "PrivacyReport") -> str:
    """Return what is guaranteed, of this fit and of all that are on its ledger."""
    text = (
        f"What was released is differentially private with ε = {rounded_up(report.spent.epsilon)} "
        f"and δ = {report.spent.delta:g}: these bound how much any one record can change it, under "
        "the assumptions listed below."
    )
    for total, count in _other_fits(report):
        text += f" It is one of {count} charges on its ledger, which come to ε = {total} together."
    return text


def _other_fits(report: "PrivacyReport") -> Iterator[tuple[str, int]]:
    """Yield what each ledger holds that was charged by more than this."""
    for budget in report.budgets:
        if budget.spent is None or budget.history is None:
            continue
        # What calibration leaves of ε is no other fit.
        if budget.spent > report.spent.epsilon * 1.0001:
            yield rounded_up(budget.spent).replace("inf", "∞"), len(budget.history)


def _headlines(report: "PrivacyReport") -> Iterator[tuple[str, str]]:
    """Yield the most important figures."""
    spent = report.spent
    epsilon = rounded_up(spent.epsilon).replace("inf", "∞")
    if math.isinf(spent.epsilon):
        yield f"ε = {epsilon}", "no privacy is claimed"
    else:
        whose = f" by {' + '.join(report.parts)} alone" if report.silent else ""
        yield (
            f"ε = {epsilon}",
            f"is claimed{whose}: the smaller, the more private",
        )
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
