"""A report on one release, for the person who answers for data protection."""

import math
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import asdict, dataclass
from datetime import UTC, datetime
from numbers import Integral, Real
from typing import Any

import numpy as np
import pandas as pd
from tqdm.auto import tqdm

import skdpot
from skdpot._utils.pages import HtmlReport
from skdpot._utils.rng import solver_generator
from skdpot._utils.validation import check_is_fitted
from skdpot.audit.membership.attacks import read_rows
from skdpot.audit.report.audit import PartAudit, audit_copies, private_parts
from skdpot.audit.report.cautions import NOT_COVERED, Caution, cautions_of
from skdpot.audit.report.page import report_fragment
from skdpot.audit.report.trials import Figure, MembershipTrial, measure_utility, try_membership
from skdpot.audit.report.words import (
    Meaning,
    meaning_of,
    mechanism_in_words,
    protected_in_words,
    shown_at_least,
)
from skdpot.exceptions import LedgerError
from skdpot.preprocessing.table_frames import Table
from skdpot.privacy.budget import PrivacyBudget
from skdpot.privacy.spent import PrivacySpent, silent_parts, total_spent

__all__ = ["PrivacyReport", "privacy_report"]


_HEAD = (
    "estimator", "created", "version", "records", "features", "refuted",
    "utility_not_measured_because",
)  # fmt: skip


def privacy_report(
    estimator: Any,
    X_holdout: Any = None,
    *,
    y_holdout: Any = None,
    X_members: Any = None,
    budget: PrivacyBudget | None = None,
    audit: bool = True,
    n_canaries: int | None = None,
    confidence: float = 0.95,
    random_state: Any = None,
    verbose: int = 0,
) -> "PrivacyReport":
    """Say what a fitted estimator has released, what that protects, and test it.

    Parameters
    ----------
    estimator : estimator
        Fitted: a private estimator of this package, or a pipeline that holds some.
    X_holdout : array-like of shape (n_holdout, n_features), optional
        **Public** rows of the same population, which it was not fitted on. With them the report
        has figures of utility, and for samplers attacks on a copy that is fitted to one half.
    y_holdout : array-like of shape (n_holdout,), optional
        Their labels, targets or time stamps.
    X_members : array-like of shape (n_members, n_features), optional
        Rows that the estimator was fitted on. With them the attacks are on the release itself,
        and the report is **not private**: it says so at its top.
    budget : PrivacyBudget, optional
        Whose history is shown; by default those of the estimator.
    audit : bool, default=True
        Whether to attack a copy of the estimator, see Notes. It costs a fit.
    n_canaries : int, optional
        How many records the audit plants. By default as many as half the numbers in a sketch, from
        100 to 1,000, and 100 where none is released.
    confidence : float, default=0.95
        Of the lower bounds, in (0, 1). Of a pipeline with several private parts each one is
        audited, and all bounds hold together with this confidence.
    random_state : int, RandomState or None, default=None
        For made-up rows and draws; no privacy depends on it.
    verbose : int, default=0
        If positive, a progress bar is shown.

    Returns
    -------
    PrivacyReport
        With an HTML repr, `to_html`, `to_dict` and `to_frame`.

    Raises
    ------
    sklearn.exceptions.NotFittedError
        If the estimator is not fitted.
    TypeError
        If it is fitted and has spent nothing, or is a search, whose fits are not all kept; or an
        option is of another type. No value is quoted.
    ValueError
        If an option is out of range, `X_members` or `y_holdout` come without `X_holdout`, or rows
        and labels do not fit each other or the estimator.

    Privacy
    -------
    Made of public facts and post-processing of the release: no private row is touched, unless
    `X_members` holds some. The audit and the attacks fit copies without budget, to made-up rows and
    to public ones.

    Notes
    -----
    The audit (`one_run_audit`) fits a copy of the estimator to rows that are sampled from the
    release, with canaries among them. Its lower bound of ε can refute a claim and never prove one.

    Examples
    --------
    >>> from sklearn.datasets import load_iris
    >>> from skdpot import DPSlicedFlowSampler
    >>> from skdpot.audit import privacy_report
    >>> X, y = load_iris(return_X_y=True)
    >>> sampler = DPSlicedFlowSampler(epsilon=1.0, bounds=(0, 8)).fit(X[::2])
    >>> report = privacy_report(sampler, X[1::2], n_canaries=200)
    >>> report.spent.epsilon, report.refuted
    (1.0, False)
    >>> page = report.to_html()
    """
    _check_options(audit, n_canaries, confidence, verbose)
    _check_rows(X_holdout, y_holdout, X_members)
    spent = _statement(estimator)
    parts = tuple(private_parts(estimator))
    silent = silent_parts(estimator)
    n_samples, n_features = _known_sizes(parts, spent)
    budgets = _budgets(parts, budget)
    rng = solver_generator(random_state)
    with tqdm(total=3, desc="report", disable=verbose <= 0) as bar:
        audits = audit_copies(parts, n_canaries, confidence, rng, verbose) if audit else ()
        bar.update()
        membership = try_membership(estimator, X_holdout, y_holdout, X_members, rng)
        bar.update()
        utility, utility_reason = measure_utility(estimator, X_holdout, y_holdout, rng)
        bar.update()
    return PrivacyReport(
        estimator=type(estimator).__name__,
        parts=tuple(name for name, _ in parts),
        silent=silent,
        n_samples=n_samples,
        n_features=n_features,
        created=datetime.now(UTC),
        version=skdpot.__version__,
        spent=spent,
        releases=_releases(parts, spent),
        meaning=meaning_of(spent),
        cautions=cautions_of(
            parts,
            spent,
            budgets,
            n_samples=n_samples,
            silent=silent,
            of_members=membership.of_members,
        ),
        budgets=tuple(map(_read_ledger, budgets)),
        audits=audits,
        confidence=float(confidence),
        membership=membership,
        utility=utility,
        utility_reason=utility_reason,
    )


@dataclass(frozen=True, eq=False, kw_only=True)
class LedgerState:
    """What a ledger held when the report was made; None where it could not be read."""

    epsilon: float
    delta: float
    spent: float | None
    remaining: float | None
    history: pd.DataFrame | None
    problem: str = ""


@dataclass(frozen=True, eq=False, repr=False, kw_only=True)
class PrivacyReport(HtmlReport):
    """What was released, what it protects, and what tests of it found.

    `privacy_report` makes one. In a notebook it shows itself.

    Parameters
    ----------
    estimator : str
        Name of the estimator.
    parts : tuple of str
        Names of the private estimators in it.
    silent : tuple of str
        Names of other parts of it, which learned from the rows without noise.
    n_samples, n_features : int or None
        Public sizes of the data; None where the estimator does not keep them.
    created : datetime
        When the report was made (UTC).
    version : str
        Of this package.
    spent : PrivacySpent
        The statement: ε, δ, relation, event, noise, sensitivity, assumptions.
    releases : tuple of str
        What touched private data, a sentence for each phase.
    meaning : Meaning
        What ε and δ leave to an attacker.
    cautions : tuple of Caution
        Warnings, the gravest first.
    budgets : tuple of LedgerState
        Ledgers, as they were.
    audits : tuple of PartAudit
        The audit of each part; empty if none was asked for.
    confidence : float
        Of all lower bounds together.
    membership : MembershipTrial
        Attacks on synthetic rows.
    utility : tuple of Figure
        Figures on public rows.
    utility_reason : str
        Why there are none.
    """

    estimator: str
    parts: tuple[str, ...]
    silent: tuple[str, ...]
    n_samples: int | None
    n_features: int | None
    created: datetime
    version: str
    spent: PrivacySpent
    releases: tuple[str, ...]
    meaning: Meaning
    cautions: tuple[Caution, ...]
    budgets: tuple[LedgerState, ...]
    audits: tuple[PartAudit, ...]
    confidence: float
    membership: MembershipTrial
    utility: tuple[Figure, ...]
    utility_reason: str

    @property
    def refuted(self) -> bool:
        """Whether an audit refutes what is claimed."""
        return any(part.result is not None and part.result.refuted for part in self.audits)

    @property
    def not_covered(self) -> tuple[str, ...]:
        """What no such report can vouch for."""
        return NOT_COVERED

    @property
    def _title(self) -> str:
        return f"Privacy report: {self.estimator}"

    def to_dict(self) -> dict[str, Any]:
        """Return everything as numbers, text, lists and dicts.

        Returns
        -------
        dict
            For strict JSON: infinity is the text ``"inf"``, what is not known is None.
        """
        strict: dict[str, Any] = _strict(_facts(self))
        return strict

    def to_frame(self) -> pd.DataFrame:
        """Return the facts as a table of text and numbers.

        Returns
        -------
        DataFrame
            With the columns "section", "fact" and "value".
        """
        facts = _facts(self)
        rows = [("report", name, facts.pop(name)) for name in _HEAD]
        for section, content in facts.items():
            rows += [(section, name, value) for name, value in _flat("", content)]
        return pd.DataFrame(rows, columns=["section", "fact", "value"])

    def _repr_html_(self) -> str:
        """Return the report for notebooks."""
        return report_fragment(self)

    def __repr__(self) -> str:
        bounds = [part.result.epsilon_lower for part in self.audits if part.result is not None]
        audit = f"epsilon_lower={shown_at_least(max(bounds))}" if bounds else "not audited"
        warned = f"{len(self.cautions)} warning{'s'[: len(self.cautions) != 1]}"
        return (
            f"PrivacyReport({self.estimator}, epsilon={self.spent.epsilon:.4g}, "
            f"delta={self.spent.delta:.2g}, {audit}, {warned})"
        )


def _statement(estimator: Any) -> PrivacySpent:
    """Return what an estimator has spent, or say why there is nothing to report."""
    spent = getattr(estimator, "privacy_spent_", None)
    if isinstance(spent, PrivacySpent):
        return spent
    if not hasattr(estimator, "fit"):
        raise TypeError(
            "estimator must be a fitted private estimator or a pipeline with one, not "
            f"{type(estimator).__name__}."
        )
    if not hasattr(estimator, "cv_results_"):
        check_is_fitted(estimator)
    return total_spent(estimator)


def _budgets(
    parts: Sequence[tuple[str, Any]], given: PrivacyBudget | None
) -> tuple[PrivacyBudget, ...]:
    """Return the budgets to show, each ledger once."""
    if given is not None:
        if not isinstance(given, PrivacyBudget):
            raise TypeError(f"budget must be a PrivacyBudget or None, not {type(given).__name__}.")
        return (given,)
    charged = [getattr(part, "budget", None) for _, part in parts]
    unique: Mapping[str, PrivacyBudget] = {
        budget.ledger: budget for budget in charged if isinstance(budget, PrivacyBudget)
    }
    return tuple(unique.values())


def _read_ledger(budget: PrivacyBudget) -> LedgerState:
    """Read a budget once, whatever happens to its file."""
    found: dict[str, Any] = {"spent": None, "remaining": None, "history": None}
    try:
        spent, remaining, history = budget.epsilon_spent(), budget.remaining(), budget.history()
        found = {"spent": spent, "remaining": remaining, "history": history}
    except LedgerError as error:
        found["problem"] = str(error)
    return LedgerState(epsilon=budget.epsilon, delta=budget.delta, **found)


def _strict(value: Any) -> Any:
    """Return a value without infinity, however it is nested."""
    if isinstance(value, dict):
        return {key: _strict(item) for key, item in value.items()}
    if isinstance(value, list):
        return [_strict(item) for item in value]
    if isinstance(value, float) and not math.isfinite(value):
        return None if math.isnan(value) else str(float(value))
    return value


def _facts(report: PrivacyReport) -> dict[str, Any]:
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
            "event": str(spent.event),
            "event_in_words": list(report.releases),
            "sigma": _plain(spent.sigma),
            "sensitivity": _plain(spent.sensitivity),
            "assumptions": list(spent.assumptions),
        },
        "meaning": asdict(report.meaning),
        "warnings": [asdict(caution) for caution in report.cautions],
        "budgets": [_of_ledger(budget) for budget in report.budgets],
        "audit": [_of_audit(part) for part in report.audits],
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


def _of_ledger(budget: LedgerState) -> dict[str, Any]:
    history = []
    if budget.history is not None:
        history = [
            {
                "time": row["time"].isoformat(timespec="seconds"),
                **{name: row[name] for name in ("label", "event", "epsilon")},
            }
            for row in budget.history.to_dict("records")
        ]
    cap = {name: getattr(budget, name) for name in ("epsilon", "delta", "spent", "remaining")}
    return cap | {"problem": budget.problem, "history": history}


def _of_audit(part: PartAudit) -> dict[str, Any]:
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


def _check_options(audit: Any, n_canaries: Any, confidence: Any, verbose: Any) -> None:
    """Refuse options of a wrong type or out of range. No value is quoted that is not a number."""
    if not isinstance(audit, bool | np.bool_):
        raise TypeError(f"audit must be True or False, not {type(audit).__name__}.")
    if not _is_whole(verbose):
        raise TypeError(f"verbose must be an integer, not {type(verbose).__name__}.")
    if n_canaries is not None and not _is_whole(n_canaries):
        raise TypeError(f"n_canaries must be an integer or None, not {type(n_canaries).__name__}.")
    if n_canaries is not None and n_canaries < 1:
        raise ValueError(f"n_canaries={n_canaries!r} must be at least 1; audit=False makes none.")
    if not isinstance(confidence, Real) or isinstance(confidence, bool):
        raise TypeError(f"confidence must be a number, not {type(confidence).__name__}.")
    if not 0.0 < float(confidence) < 1.0:
        raise ValueError(f"confidence={confidence!r} must be in (0, 1).")


def _check_rows(X_holdout: Any, y_holdout: Any, X_members: Any) -> None:
    """Refuse rows and labels that do not belong together. No value is quoted."""
    for name, given in (("X_members", X_members), ("y_holdout", y_holdout)):
        if given is not None and X_holdout is None:
            raise ValueError(f"{name} needs X_holdout: {_WHY[name]}.")
    if y_holdout is not None:
        n_rows, n_labels = _length(X_holdout, "X_holdout"), _length(y_holdout, "y_holdout")
        if n_rows != n_labels:
            raise ValueError(
                f"y_holdout has {n_labels} labels for {n_rows} rows of X_holdout; pass one a row."
            )
    if X_members is not None and not Table.is_frame(X_members):  # which may hold text
        read_rows(X_members, "X_members")


_WHY = {
    "X_members": "others to tell the members from",
    "y_holdout": "the rows that it labels",
}


def _is_whole(value: Any) -> bool:
    return isinstance(value, Integral) and not isinstance(value, bool)


def _length(values: Any, name: str) -> int:
    """Return how many rows or labels there are."""
    shape = getattr(values, "shape", None)
    if shape is None and hasattr(values, "__len__"):
        return len(values)
    if not shape:
        raise ValueError(f"{name} must be an array, with one entry a row.")
    return int(shape[0])


def _releases(parts: Sequence[tuple[str, Any]], spent: PrivacySpent) -> tuple[str, ...]:
    """Say what touched private data, a sentence for each phase."""
    sentences = tuple(phase.describe() for phase in spent.event.phases)
    names = [name for name, part in parts for _ in part.privacy_spent_.event.phases]
    if len(parts) < 2 or len(names) != len(sentences):  # one fit, or one that occurs twice
        return sentences
    return tuple(map(": ".join, zip(names, sentences, strict=True)))


def _known_sizes(
    parts: Sequence[tuple[str, Any]], spent: PrivacySpent
) -> tuple[int | None, int | None]:
    """Return the public numbers of records, if anything keeps it, and of features."""
    known = [part.n_samples_ for _, part in parts if hasattr(part, "n_samples_")]
    known += [phase.n_records for phase in spent.event.phases if phase.n_records is not None]
    features = [part.n_features_in_ for _, part in parts if hasattr(part, "n_features_in_")]
    return int(min(known)) if known else None, int(features[0]) if features else None
