"""The attacks in a privacy report, as HTML: the audit, and membership from synthetic rows."""

import math
from collections.abc import Mapping
from typing import TYPE_CHECKING, Any

from skdpot._utils.report_page import box, paragraphs, picture, table
from skdpot.audit.report.audit import PartAudit
from skdpot.audit.report.pictures import membership_picture
from skdpot.audit.report.words import beside_claim, shown_at_least

if TYPE_CHECKING:
    from skdpot.audit.report.privacy_report import PrivacyReport

__all__ = ["audit_section", "membership_section"]

_NO_PROOF = (
    "A low bound is no proof of privacy: another attack may do better. What guarantees privacy is "
    "the mechanism and its accounting."
)


def audit_section(report: "PrivacyReport") -> str:
    """Return what the audits found.

    Parameters
    ----------
    report : PrivacyReport
        The report.

    Returns
    -------
    str
        HTML.
    """
    if not report.audits:
        return paragraphs("None was asked for.")
    intro = paragraphs(
        "Pairs of made-up records (canaries) were planted in made-up rows, one of each pair by the "
        "toss of a coin. A copy of the estimator was fitted to them, and an attacker who sees all "
        "that a fit releases, and knows everything but the coins, guessed the coins. Right guesses "
        "beyond what the claim allows would refute it. Nobody's record was touched."
    )
    rows = [_bounds(part) for part in report.audits if part.result is not None]
    body = intro
    if rows:
        body += table(
            (
                "estimator",
                "ε claimed",
                "ε shown by guesses",
                "most they could show",
                "right guesses",
                "ε shown by normal noise",
                "noise seen below",
            ),
            rows,
        )
    if len(rows) > 1:
        body += paragraphs(
            f"All bounds hold together at {100 * report.confidence:.4g} % confidence; to that end "
            "each one alone has a larger one."
        )
    body += "".join(map(_audit_verdict, report.audits))
    return body + (paragraphs(_NO_PROOF) if rows else "")


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


def _audit_verdict(part: PartAudit) -> str:
    """Return what follows from one audit; green only if it could refute a broken claim."""
    found = part.result
    if found is None:
        return box("caution", part.verdict)
    size = f"({found.n_canaries:,} canaries among {part.n_rows:,} other rows.)"
    if math.isinf(found.epsilon):
        return box("caution", f"{part.verdict} {size}")
    kind = "stop" if found.refuted else "good" if part.could_refute else "neutral"
    return box(kind, f"{part.verdict} {size} {part.sight}".rstrip())


def membership_section(report: "PrivacyReport") -> str:
    """Return what attacks on synthetic rows found.

    Parameters
    ----------
    report : PrivacyReport
        The report.

    Returns
    -------
    str
        HTML.
    """
    trial = report.membership
    if trial.found is None:
        return paragraphs(f"Not tried. {trial.reason}")
    if trial.of_members:
        body = box(
            "caution",
            "This section was computed from rows that the release was made from, without noise. It "
            "is not private: keep it, and this report, to those who may see these rows.",
        )
    else:
        body = paragraphs(
            "A copy of the estimator was fitted to one half of the public hold-out, and attackers "
            "who see its synthetic rows alone tried to tell that half from the rest. No private "
            "record was touched."
        )
    figures = trial.found.to_frame()
    n_others = len(trial.found.best.other_scores)
    rows = [
        (
            str(name),
            _limited(row["auc"], row["auc_low"], row["auc_high"], 2),
            *(
                _rate(row, fpr) if n_others * float(fpr) >= 1 else "too few others"
                for fpr in ("0.01", "0.1")
            ),
        )
        for name, row in figures.to_dict("index").items()
    ]
    share = trial.found.share
    return (
        body
        + table(("attack", "AUC", "found at 1 %", "found at 10 %"), rows)
        + paragraphs(
            "AUC: 0.5 is blind guessing, 1 is certainty. Found: share of members who are found "
            f"while 1 % or 10 % of the {n_others:,} others of this trial are wrongly suspected. In "
            "brackets, 95 % confidence limits, for the choice of members; with few others the "
            f"threshold is uncertain too, and no rate below {100 / n_others:.2g} % can be told "
            "from none.",
            f"Of the synthetic rows {100 * share.share.value:.1f} % are closest to a member, where "
            f"{100 * share.expected:.1f} % would be expected; chance alone moves that by about "
            f"{100 * share.deviation:.1f} points.",
        )
        + picture(
            membership_picture(trial.found),
            "Operating characteristics of all attacks, on linear and on logarithmic axes.",
        )
        + paragraphs(
            "These attackers know little and judge the average person: they find a generator that "
            "repeats its rows, and miss much else. That they fail is no proof either."
        )
    )


def _rate(row: Mapping[Any, float], fpr: str) -> str:
    key = f"tpr_at_{fpr}"
    value, low, high = (100 * row[name] for name in (key, f"{key}_low", f"{key}_high"))
    return _limited(value, low, high, 1).replace(" (", " % (")


def _limited(value: float, low: float, high: float, digits: int) -> str:
    """Write a figure with its limits, which are rounded outwards."""
    unit = 10**digits
    most = math.ceil(round(unit * high, 6)) / unit
    return f"{value:.{digits}f} ({shown_at_least(low, digits)}–{most:.{digits}f})"
