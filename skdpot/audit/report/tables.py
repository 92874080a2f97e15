"""The facts of a privacy report as rows and as plain values."""

import math
from collections.abc import Iterator
from dataclasses import asdict
from typing import TYPE_CHECKING, Any

from skdpot.audit.report.words import mechanism_in_words, protected_in_words
from skdpot.privacy.display import describe_event

if TYPE_CHECKING:
    from skdpot.audit.report.privacy_report import PrivacyReport

__all__ = ["report_dict", "report_rows"]

_HEAD = (
    "estimator", "created", "version", "records", "features", "refuted",
    "utility_not_measured_because",
)  # fmt: skip


def report_dict(report: "PrivacyReport") -> dict[str, Any]:
    """Return the facts of a report as values that strict JSON can hold.

    Parameters
    ----------
    report : PrivacyReport
        The report.

    Returns
    -------
    dict
        Of numbers, text, lists and dicts. Infinity, which JSON does not know, is the text "inf".
    """
    strict: dict[str, Any] = _strict(_facts(report))
    return strict


def _strict(value: Any) -> Any:
    """Return a value without infinity, however it is nested."""
    if isinstance(value, dict):
        return {key: _strict(item) for key, item in value.items()}
    if isinstance(value, list):
        return [_strict(item) for item in value]
    if isinstance(value, float) and not math.isfinite(value):
        return None if math.isnan(value) else str(float(value))
    return value


def _facts(report: "PrivacyReport") -> dict[str, Any]:
    """Return the facts of a report as nested values."""
    spent, membership = report.spent, report.membership
    return {
        "estimator": report.estimator,
        "parts": list(report.parts),
        "created": report.created.isoformat(timespec="seconds"),
        "version": report.version,
        "records": report.n_samples,
        "features": report.n_features,
        "unprotected_parts": list(report.silent),
        "privacy": {
            "epsilon": spent.epsilon,
            "delta": spent.delta,
            "relation": str(spent.relation),
            "protected": protected_in_words(spent),
            "mechanism": mechanism_in_words(spent),
            "event": describe_event(spent.event),
            "event_in_words": list(report.releases),
            "sigma": _plain(spent.sigma),
            "sensitivity": _plain(spent.sensitivity),
            "assumptions": list(spent.assumptions),
        },
        "meaning": asdict(report.meaning),
        "warnings": [asdict(caution) for caution in report.cautions],
        "budgets": [_budget(budget) for budget in report.budgets],
        "audit": [_audit(part) for part in report.audits],
        "refuted": report.refuted,
        "membership": {
            "of_members": membership.of_members,
            "not_tried_because": membership.reason,
            "attacks": {}
            if membership.found is None
            else {name: found.figures() for name, found in membership.found.results.items()},
            "closest_record_share": None
            if membership.found is None
            else {
                "share": membership.found.share.share.value,
                "expected": membership.found.share.expected,
                "deviation": membership.found.share.deviation,
            },
        },
        "utility": [asdict(figure) for figure in report.utility],
        "utility_not_measured_because": report.utility_reason,
        "not_covered": list(report.not_covered),
    }


def report_rows(report: "PrivacyReport") -> list[tuple[str, str, Any]]:
    """Return the facts of a report as rows.

    Parameters
    ----------
    report : PrivacyReport
        The report.

    Returns
    -------
    list of (str, str, object)
        Section, fact and value.
    """
    facts = _facts(report)
    head = {key: facts.pop(key) for key in _HEAD}
    rows = [("report", name, value) for name, value in head.items()]
    for section, content in facts.items():
        rows += [(section, name, value) for name, value in _flat("", content)]
    return rows


def _flat(name: str, value: Any) -> Iterator[tuple[str, Any]]:
    """Yield the leaves of nested lists and dicts with the way to them."""
    if isinstance(value, dict):
        for key, item in value.items():
            yield from _flat(f"{name}.{key}" if name else key, item)
    elif isinstance(value, list):
        for number, item in enumerate(value, start=1):
            yield from _flat(f"{name} {number}".strip(), item)
    else:
        yield name, value


def _plain(value: float | tuple[float, ...] | None) -> Any:
    return list(value) if isinstance(value, tuple) else value


def _budget(budget: Any) -> dict[str, Any]:
    history = []
    if budget.history is not None:
        history = [
            {
                "time": row["time"].isoformat(timespec="seconds"),
                **{name: row[name] for name in ("label", "event", "epsilon")},
            }
            for row in budget.history.to_dict("records")
        ]
    return {
        "epsilon": budget.epsilon,
        "delta": budget.delta,
        "spent": budget.spent,
        "remaining": budget.remaining,
        "problem": budget.problem,
        "history": history,
    }


def _audit(part: Any) -> dict[str, Any]:
    if part.result is None:
        return {"part": part.name, "not_audited_because": part.reason}
    found = part.result
    return {
        "part": part.name,
        "epsilon_lower": found.epsilon_lower,
        "confidence": found.confidence,
        "claimed_epsilon": found.epsilon,
        "claimed_delta": found.delta,
        "canaries": found.n_canaries,
        "guesses": found.n_guesses,
        "correct": found.n_correct,
        "made_up_rows": part.n_rows,
        "refuted": found.refuted,
        "verdict": part.verdict,
        "most_that_guesses_could_show": found.ceiling,
        "gaussian_epsilon_lower": found.gaussian_epsilon_lower,
        "noise_seen_below": found.power,
        "leak": found.leak,
        "could_refute": part.could_refute,
        "sight": part.sight,
    }
