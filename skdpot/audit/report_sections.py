"""The sections of a privacy report, as HTML."""

import math
from collections.abc import Iterable, Iterator, Mapping
from html import escape
from typing import TYPE_CHECKING, Any

from skdpot.audit.report_audit import PartAudit
from skdpot.audit.report_budget import BudgetState
from skdpot.audit.report_pictures import claim_picture, membership_picture
from skdpot.audit.report_words import (
    event_in_words,
    one_in,
    percent_at_most,
    protected_in_words,
    shown_at_least,
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
    from skdpot.audit.report import PrivacyReport

__all__ = ["sections"]

_NO_PROOF = (
    "A low bound is no proof of privacy: another attack may do better. What guarantees privacy is "
    "the mechanism and its accounting; the audit would show a gross mistake in them."
)


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
    yield (
        "What is taken for granted",
        _text(
            "These things are public knowledge, or a condition. The guarantee holds if they are "
            "so; check each."
        )
        + _list(report.spent.assumptions),
    )
    yield (
        "Budget and history",
        "".join(map(_budget, report.budgets))
        or _text(
            "No budget was given. What other fits on the same records have released is not known "
            "here, and adds to what is stated above."
        ),
    )
    yield "Audit: an attack on a copy", _audits(report)
    yield "Membership: can synthetic rows tell who was in the data?", _membership(report)
    yield "Usefulness", _utility(report)
    yield "What this report does not cover", _list(report.not_covered)
    yield "For experts", _details(report)


def _escape(text: str) -> str:
    """Escape text, and keep numbers and the signs after them on one line."""
    return escape(text).replace(" %", "&nbsp;%").replace("ε ≥ ", "ε&nbsp;≥&nbsp;")


def _text(*paragraphs: str) -> str:
    return "".join(f"<p>{_escape(paragraph)}</p>" for paragraph in paragraphs)


def _list(items: Iterable[str]) -> str:
    # Assumptions and the like begin with small letters elsewhere.
    return (
        f"<ul>{''.join(f'<li>{escape(item[:1].upper() + item[1:])}</li>' for item in items)}</ul>"
    )


def _box(kind: str, text: str) -> str:
    return f'<div class="box {kind}">{_escape(text)}</div>'


def _picture(address: str, words: str) -> str:
    return f'<img src="{address}" alt="{escape(words)}">'


def _table(columns: Iterable[str], rows: Iterable[Iterable[str]]) -> str:
    """Return a table with a head; all columns but the first hold numbers."""
    heads = "".join(
        f"<th{' class=n' if i else ''}>{escape(column)}</th>" for i, column in enumerate(columns)
    )
    lines = "".join(
        "<tr>"
        + "".join(
            f"<td{' class=n' if i else ''}>{_escape(cell)}</td>" for i, cell in enumerate(row)
        )
        + "</tr>"
        for row in rows
    )
    table = f"<table><thead><tr>{heads}</tr></thead><tbody>{lines}</tbody></table>"
    return f'<div class="wide">{table}</div>'


def _warnings(report: "PrivacyReport") -> str:
    """Return all warnings, those of the audit first."""
    refuted = [part.name for part in report.audits if part.result and part.result.refuted]
    boxes = [
        _box(
            "stop",
            f"The audit refutes the privacy claimed for {name}: see below. Either this was one of "
            "the rare errors that its confidence allows for, or the mechanism is broken. Repeat it "
            "with more canaries.",
        )
        for name in refuted
    ]
    boxes += [_box(caution.level, caution.text) for caution in report.cautions]
    return "".join(boxes) or _box("good", "None: nothing in the public facts gives reason for one.")


def _released(report: "PrivacyReport") -> str:
    spent = report.spent
    rows = [("Made by", " + ".join(report.parts))]
    if spent.mechanism:
        rows.append(("Mechanism", spent.mechanism))
    rows += [
        (name, _numbers(value))
        for name, value in (("Noise (σ)", spent.sigma), ("Sensitivity (Δ)", spent.sensitivity))
        if value is not None
    ]
    return (
        html_table(rows)
        + _text("Everything that touched the records, in the order in which it happened:")
        + _list(event_in_words(spent.event))
        + _text(
            "Whatever is computed from this release afterwards (samples, predictions, distances, "
            "scores on public rows) adds nothing to what it reveals."
        )
    )


def _numbers(value: float | tuple[float, ...]) -> str:
    return ", ".join(f"{number:.4g}" for number in (value if isinstance(value, tuple) else [value]))


def _protection(report: "PrivacyReport") -> str:
    spent, meaning = report.spent, report.meaning
    body = _text(protected_in_words(spent))
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
            f"No result is more than {factor} as likely with a record of yours as with any other "
            "record in its place. Whatever else somebody knows and computes, the release changes "
            "their odds for any suspicion about you by this factor at most.",
        ),
        (
            f"δ = {spent.delta:g}",
            f"Room for rare failures: a probability of {one_in(spent.delta)} at most goes beyond "
            "that factor.",
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
    return body + html_table(rows) + _picture(claim_picture(spent), words)


def _budget(budget: BudgetState) -> str:
    """Return what a ledger holds."""
    cap = f"Cap: {epsilon_text(budget.epsilon)} at δ = {budget.delta:g}."
    if budget.spent is None or budget.remaining is None or budget.history is None:
        return _text(cap) + _box("caution", f"The ledger could not be read. {budget.problem}")
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
    return (
        _text(
            f"{cap} Whatever has been and will be charged to it stays below; a fit that does not "
            "fit in is refused."
        )
        + html_meter(share, done, left)
        + _table(("charge", "time (UTC)", "ε alone"), rows)
        + _text("Charges together cost less than the sum of their single ε.")
    )


def _audits(report: "PrivacyReport") -> str:
    if not report.audits:
        return _text("None was asked for.")
    intro = _text(
        "Pairs of made-up records (canaries) were planted in made-up rows, one of each pair by the "
        "toss of a coin. A copy of the estimator was fitted to them, and an attacker who sees all "
        "that a fit releases, and knows everything but the coins, guessed the coins. Right guesses "
        "beyond what ε allows would refute the claim. Nobody's record was touched."
    )
    rows = [
        (
            part.name,
            rounded_up(part.result.epsilon).replace("inf", "∞"),
            f"≥ {shown_at_least(part.result.epsilon_lower)}",
            f"{part.result.n_correct:,} of {part.result.n_guesses:,}",
        )
        for part in report.audits
        if part.result is not None
    ]
    body = intro
    if rows:
        body += _table(("estimator", "ε claimed", "ε shown", "right guesses"), rows)
    body += "".join(map(_audit_verdict, report.audits))
    return body + (_text(_NO_PROOF) if rows else "")


def _audit_verdict(part: PartAudit) -> str:
    if part.result is None:
        return _box("caution", f"{part.name} was not audited. {part.reason}")
    found = part.result
    size = f"{found.n_canaries:,} canaries among {part.n_rows:,} other rows"
    return _box("stop" if found.refuted else "good", f"{part.name}: {found.verdict} ({size}.)")


def _membership(report: "PrivacyReport") -> str:
    trial = report.membership
    if trial.found is None:
        return _text(f"Not tried. {trial.reason}")
    if trial.of_members:
        body = _box(
            "caution",
            "This section was computed from rows that the release was made from, without noise. It "
            "is not private: keep it, and this report, to those who may see these rows.",
        )
    else:
        body = _text(
            "A copy of the estimator was fitted to one half of the public hold-out, and attackers "
            "who see its synthetic rows alone tried to tell that half from the rest. No private "
            "record was touched."
        )
    figures = trial.found.to_frame()
    rows = [
        (
            str(name),
            f"{row['auc']:.2f} ({row['auc_low']:.2f}–{row['auc_high']:.2f})",
            *(_rate(row, fpr) for fpr in ("0.01", "0.1")),
        )
        for name, row in figures.to_dict("index").items()
    ]
    share = trial.found.share
    n_others = len(trial.found.best.other_scores)
    return (
        body
        + _table(("attack", "AUC", "found at 1 %", "found at 10 %"), rows)
        + _text(
            "AUC: 0.5 is blind guessing, 1 is certainty. Found: share of members who are found "
            "while 1 % or 10 % of the others are wrongly suspected. In brackets, 95 % confidence "
            f"limits. There were {n_others:,} others, so that no rate below {100 / n_others:.2g} % "
            "can be told from none.",
            f"Of the synthetic rows {100 * share.share.value:.1f} % are closest to a member, where "
            f"{100 * share.expected:.1f} % would be expected; chance alone moves that by about "
            f"{100 * share.deviation:.1f} points.",
        )
        + _picture(
            membership_picture(trial.found),
            "Operating characteristics of all attacks, on linear and on logarithmic axes.",
        )
        + _text(
            "These attackers know little and judge the average person: they find a generator that "
            "repeats its rows, and miss much else. That they fail is no proof either."
        )
    )


def _rate(row: Mapping[Any, float], fpr: str) -> str:
    key = f"tpr_at_{fpr}"
    value, low, high = (100 * row[name] for name in (key, f"{key}_low", f"{key}_high"))
    return f"{value:.1f} % ({low:.1f}–{high:.1f})"


def _utility(report: "PrivacyReport") -> str:
    if not report.utility:
        return _text(
            "Not measured: it takes public rows (X_holdout), and labels where there are any."
        )
    rows = [
        (f"{figure.name} ({figure.meaning})", f"{figure.value:.4g}") for figure in report.utility
    ]
    return _text("Measured on the public hold-out.") + _table(("figure", "value"), rows)


def _details(report: "PrivacyReport") -> str:
    spent = report.spent
    rows = [
        ("Relation", str(spent.relation)),
        ("ε, unrounded", repr(spent.epsilon)),
        (
            "Advantage",
            f"at most {report.meaning.advantage_bound:.4g} = (e^ε − 1 + 2 δ) / (e^ε + 1)",
        ),
        ("Audit", "T. Steinke, M. Nasr, M. Jagielski, NeurIPS 2023"),
        ("Membership", "B. van Breugel et al., AISTATS 2023 (density ratio)"),
    ]
    event = escape(describe_event(spent.event))
    return html_table(rows) + f"<h3>Event</h3><p><code>{event}</code></p>"
