"""A report on one release, for the person who answers for data protection."""

import math
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field, is_dataclass
from datetime import UTC, datetime
from typing import Any

import numpy as np
import pandas as pd

import skdpot
from skdpot._utils.pages import HtmlReport
from skdpot._utils.validation import as_points, check_count, check_is_fitted, solver_generator
from skdpot.audit.membership import check_confidence
from skdpot.audit.one_run import lower_text
from skdpot.audit.report_page import (
    NOT_COVERED,
    Caution,
    Meaning,
    cautions_of,
    meaning_of,
    mechanism_in_words,
    protected_in_words,
    report_fragment,
)
from skdpot.audit.report_trials import (
    Figure,
    MembershipTrial,
    PartAudit,
    audit_copies,
    measure_utility,
    private_parts,
    try_membership,
)
from skdpot.exceptions import LedgerError
from skdpot.privacy.budget import PrivacyBudget
from skdpot.privacy.spent import PrivacySpent, silent_parts, total_spent
from skdpot.tables.frames import Table


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
        If positive, the audits have a progress bar.

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
    if not isinstance(audit, bool | np.bool_):
        raise TypeError(f"audit must be True or False, not {type(audit).__name__}.")
    if n_canaries is not None:
        check_count(n_canaries, "n_canaries")
    check_count(verbose, "verbose", least=0)
    check_confidence(confidence)
    if not isinstance(budget, PrivacyBudget | None):
        raise TypeError(f"budget must be a PrivacyBudget or None, not {type(budget).__name__}.")
    _check_rows(X_holdout, y_holdout, X_members)
    spent = _statement(estimator)
    parts = tuple(private_parts(estimator))
    silent = silent_parts(estimator)
    n_samples, n_features = _known_sizes(parts, spent)
    charged = [budget] if budget else [getattr(part, "budget", None) for _, part in parts]
    # Each ledger once.
    budgets = tuple({owner.ledger: owner for owner in charged if owner is not None}.values())
    rng = solver_generator(random_state)
    audits = audit_copies(parts, n_canaries, confidence, rng, verbose) if audit else ()
    membership = try_membership(estimator, X_holdout, y_holdout, X_members, rng)
    utility, utility_reason = measure_utility(estimator, X_holdout, y_holdout, rng)
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
            parts, spent, budgets, n_samples, silent=silent, of_members=membership.of_members
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
    """What a ledger held when the report was made, or why it could not be read."""

    epsilon: float
    delta: float
    spent: float | None = None
    remaining: float | None = None
    problem: str = ""
    history: list[dict[Any, Any]] = field(default_factory=list)


@dataclass(frozen=True, eq=False, repr=False, kw_only=True)
class PrivacyReport(HtmlReport):
    """What was released, what it protects, and what tests of it found.

    `privacy_report` makes one. In a notebook it shows itself.
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
    not_covered: tuple[str, ...] = NOT_COVERED

    @property
    def refuted(self) -> bool:
        """Whether an audit refutes what is claimed."""
        return any(part.result is not None and part.result.refuted for part in self.audits)

    @property
    def _title(self) -> str:
        return f"Privacy report: {self.estimator}"

    def to_dict(self) -> dict[str, Any]:
        """Return everything as numbers, text, lists and dicts."""
        return _facts(self, strict=True)

    def to_frame(self) -> pd.DataFrame:
        """Return the facts as a table of text and numbers."""
        rows: list[tuple[str, str, Any]] = []
        for section, content in _facts(self).items():
            if isinstance(content, dict | list):
                rows += [(section, name, value) for name, value in _flat("", content)]
            else:
                rows.append(("report", section, content))
        return pd.DataFrame(rows, columns=["section", "fact", "value"])

    def _repr_html_(self) -> str:
        """Return the report for notebooks."""
        return report_fragment(self)

    def __repr__(self) -> str:
        bounds = [part.result.epsilon_lower for part in self.audits if part.result is not None]
        audit = f"epsilon_lower={lower_text(max(bounds))}" if bounds else "not audited"
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
    if hasattr(estimator, "fit") and not hasattr(estimator, "cv_results_"):
        check_is_fitted(estimator)
    return total_spent(estimator)


def _read_ledger(budget: PrivacyBudget) -> LedgerState:
    """Read a budget once, whatever happens to its file."""
    cap: dict[str, Any] = {"epsilon": budget.epsilon, "delta": budget.delta}
    try:
        spent, remaining, history = budget.epsilon_spent(), budget.remaining(), budget.history()
    except LedgerError as error:
        return LedgerState(**cap, problem=str(error))
    times = [time.isoformat(timespec="seconds") for time in history["time"]]
    charges = history[["time", "label", "event", "epsilon"]].assign(time=times).to_dict("records")
    return LedgerState(**cap, spent=spent, remaining=remaining, history=charges)


def _nested(value: Any, strict: bool) -> Any:
    """Return dicts and lists in the place of dataclasses and tuples; if `strict`, for JSON."""
    if is_dataclass(value):
        return _nested(vars(value), strict)
    if isinstance(value, dict):
        return {key: _nested(item, strict) for key, item in value.items()}
    if isinstance(value, tuple | list):
        return [_nested(item, strict) for item in value]
    if strict and isinstance(value, float) and not math.isfinite(value):
        return None if math.isnan(value) else str(float(value))
    return value


def _facts(report: PrivacyReport, strict: bool = False) -> dict[str, Any]:
    """Return the facts of a report as nested values, by the names of its attributes."""
    spent = report.spent
    facts: dict[str, Any] = vars(report) | {
        "created": report.created.isoformat(timespec="seconds"),
        "spent": vars(spent)
        | {
            "relation": str(spent.relation),
            "event": str(spent.event),
            "mechanism": mechanism_in_words(spent),
            "protected": protected_in_words(spent),
        },
        "audits": [part.facts for part in report.audits],
        "refuted": report.refuted,
        "membership": report.membership.facts,
    }
    return _nested(facts, strict)


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


def _check_rows(X_holdout: Any, y_holdout: Any, X_members: Any) -> None:
    """Refuse rows and labels that do not belong together. No value is quoted."""
    if X_members is not None and X_holdout is None:
        raise ValueError("X_members needs X_holdout: others to tell the members from.")
    if y_holdout is not None:
        if X_holdout is None:
            raise ValueError("y_holdout needs X_holdout: the rows that it labels.")
        try:
            n_rows, n_labels = len(X_holdout), len(y_holdout)
        except TypeError as error:
            raise ValueError("X_holdout and y_holdout must be arrays, one entry a row.") from error
        if n_rows != n_labels:
            raise ValueError(f"y_holdout has {n_labels} labels for {n_rows} rows of X_holdout.")
    if X_members is not None and not Table.is_frame(X_members):  # which may hold text
        as_points(X_members, "X_members")


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
