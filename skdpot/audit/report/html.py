"""A privacy report as a page: for a screen, a phone, and paper."""

import math
from collections.abc import Iterable, Iterator
from html import escape
from typing import TYPE_CHECKING

from skdpot.audit.report.cautions import MEMBERS
from skdpot.audit.report.sections import sections
from skdpot.audit.report.words import beside_claim, one_in, percent_at_most
from skdpot.privacy.display import rounded_up

if TYPE_CHECKING:
    from skdpot.audit.report.privacy_report import PrivacyReport

__all__ = ["page", "report_fragment"]

# Colours are fixed, dark on white, whatever the page around it or the printer likes.
_STYLE = """<style>
.skdpot-report{all:revert;font:16px/1.55 system-ui,-apple-system,"Segoe UI",Roboto,sans-serif;
 color:#1c2127;background:#fff;max-width:48rem;margin:0 auto;padding:1.5rem 1.25rem 2rem;
 box-sizing:border-box;text-align:left;overflow-wrap:break-word;color-scheme:light}
.skdpot-report *{box-sizing:border-box}
.skdpot-report h1{font-size:1.75rem;line-height:1.2;margin:0 0 .2rem;color:#1c2127}
.skdpot-report h2{font-size:1.2rem;line-height:1.3;margin:2.2rem 0 .5rem;padding-top:.9rem;
 border-top:1px solid #d5dae1;color:#12395f;break-after:avoid}
.skdpot-report h3{font-size:1rem;margin:1.2rem 0 .3rem;color:#1c2127;break-after:avoid}
.skdpot-report p{margin:.5rem 0;color:#1c2127}
.skdpot-report ul{margin:.4rem 0;padding-left:1.3rem}
.skdpot-report li{margin:.25rem 0}
.skdpot-report .sub{color:#56606c;font-size:.9rem;margin:0}
.skdpot-report .tiles{display:grid;grid-template-columns:repeat(auto-fit,minmax(10.4rem,1fr));
 gap:.7rem;margin:1.2rem 0}
.skdpot-report .tile{border:1px solid #d5dae1;border-radius:8px;padding:.6rem .8rem .7rem}
.skdpot-report .tile .number{font-size:1.25rem;font-weight:650;line-height:1.3;
 white-space:nowrap;font-variant-numeric:tabular-nums}
.skdpot-report .tile .label{font-size:.82rem;line-height:1.35;color:#56606c}
.skdpot-report .box{border-left:5px solid;border-radius:4px;padding:.6rem .9rem;margin:.6rem 0;
 break-inside:avoid}
.skdpot-report .good{border-color:#1f7a5c;background:#eef7f3}
.skdpot-report .caution{border-color:#b3720a;background:#fdf6e9}
.skdpot-report .stop{border-color:#b3261e;background:#fcefee}
.skdpot-report .neutral{border-color:#7a8594;background:#f3f5f7}
.skdpot-report table{all:revert;width:100%;margin:.6rem 0;border-collapse:collapse;border:0;
 font-size:.9rem;line-height:1.45;color:#1c2127;background:#fff}
.skdpot-report tr{background:#fff!important;break-inside:avoid}
.skdpot-report td,.skdpot-report th{border:0;border-top:1px solid #e2e6eb;padding:.38rem .8rem
 .38rem 0;text-align:left;vertical-align:top;font-weight:400;white-space:normal;color:#1c2127;
 max-width:none}
.skdpot-report th{color:#56606c}
.skdpot-report tbody th{width:32%}
.skdpot-report .n{text-align:right;white-space:nowrap;font-variant-numeric:tabular-nums}
.skdpot-report td:last-child,.skdpot-report th:last-child{padding-right:0}
.skdpot-report img{display:block;max-width:100%;height:auto;margin:.8rem auto}
.skdpot-report code{font:13px/1.5 ui-monospace,SFMono-Regular,Menlo,Consolas,monospace;
 overflow-wrap:anywhere;color:#1c2127;background:none;padding:0;border:0}
.skdpot-report .meter{height:12px;margin:.7rem 0 .35rem;border-radius:6px;overflow:hidden;
 background:#e2e6eb}
.skdpot-report .meter>div{height:100%;min-width:2px;border-radius:6px}
.skdpot-report .ends{display:flex;justify-content:space-between;gap:1rem;font-size:.9rem}
@media (max-width:30rem){.skdpot-report{padding:1rem .9rem 1.5rem}
 .skdpot-report .tiles{grid-template-columns:1fr 1fr}
 .skdpot-report .tile .number{font-size:1.15rem}}
@media (max-width:36rem){.skdpot-report .stack thead{display:none}
 .skdpot-report .stack,.skdpot-report .stack tbody,.skdpot-report .stack tr,
 .skdpot-report .stack td{display:block;width:100%}
 .skdpot-report .stack tr{border-top:1px solid #e2e6eb;padding:.35rem 0}
 .skdpot-report .stack td{border:0;padding:.1rem 0}
 .skdpot-report .stack .n{display:flex;justify-content:space-between;gap:1rem}
 .skdpot-report .stack .n::before{content:attr(data-label);color:#56606c;white-space:normal;
  text-align:left}
 .skdpot-report .stack td:first-child{font-weight:650}}
@media print{.skdpot-report{font-size:10.5pt;max-width:none;padding:0}
 .skdpot-report *{-webkit-print-color-adjust:exact;print-color-adjust:exact}}
</style>"""


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
    title = escape(f"Privacy report: {report.estimator}")
    return (
        '<!DOCTYPE html>\n<html lang="en">\n<head>\n<meta charset="utf-8">\n'
        '<meta name="viewport" content="width=device-width, initial-scale=1">\n'
        f"<title>{title}</title>\n<style>body{{margin:0;background:#fff}}@page{{margin:18mm}}"
        f"</style>\n</head>\n<body>\n{report_fragment(report)}\n</body>\n</html>\n"
    )


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
    made = report.created.strftime("%d %B %Y, %H:%M UTC")
    what = " + ".join(report.parts)
    if report.parts != (report.estimator,):
        what = f"{report.estimator} ({what})"
    parts = [
        _STYLE,
        '<article class="skdpot-report">',
        f"<h1>Privacy report</h1><p class='sub'>{escape(what)} · made on {made} "
        f"with skdpot {escape(report.version)}</p>",
        _verdict(report),
        _tiles(_headlines(report)),
    ]
    parts += [
        f"<section><h2>{escape(title)}</h2>{body}</section>" for title, body in sections(report)
    ]
    return "\n".join([*parts, "</article>"])


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


def _tiles(facts: Iterable[tuple[str, str]]) -> str:
    cells = (
        f'<div class="tile"><div class="number">{escape(number)}</div>'
        f'<div class="label">{escape(label)}</div></div>'
        for number, label in facts
    )
    return f'<div class="tiles">{"".join(cells)}</div>'
