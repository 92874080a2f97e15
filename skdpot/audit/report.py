"""The privacy report: what was released, what that protects, and what tests of it found.

The page is the template `privacy_report.html`. Figures are rounded to the safe side.
"""

import math
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field, is_dataclass
from datetime import UTC, datetime
from typing import Any

import numpy as np
import pandas as pd
from matplotlib.figure import Figure as Picture
from numpy.typing import ArrayLike
from scipy.stats import norm

import skdpot
from skdpot._utils.arguments import check_confidence, check_count
from skdpot._utils.finite import as_points
from skdpot._utils.pages import HtmlReport, render
from skdpot._utils.panels import COLORS, data_address
from skdpot._utils.parameters import check_is_fitted
from skdpot._utils.streams import solver_generator
from skdpot.audit.claims import lower_text
from skdpot.audit.part_audits import PartAudit, audit_copies, private_estimators
from skdpot.audit.report_membership import MembershipTrial, try_membership
from skdpot.audit.report_utility import Figure, measure_utility
from skdpot.audit.report_words import (
    MEMBERS_WARNING,
    Caution,
    Meaning,
    beside_claim,
    cautions_of,
    claim_of,
    meaning_of,
    mechanism_in_words,
    one_in,
    percent_at_most,
    protected_in_words,
)
from skdpot.audit.synthetic_rows import SyntheticMembership
from skdpot.exceptions import LedgerError
from skdpot.privacy.accounting import compose
from skdpot.privacy.budget import PrivacyBudget
from skdpot.privacy.gdp import gdp_mu
from skdpot.privacy.reliability import Reliability
from skdpot.privacy.rounding import epsilon_text, rounded_down, rounded_up
from skdpot.privacy.spent import silent_parts, total_spent
from skdpot.privacy.statement import PrivacySpent
from skdpot.tables.frames import Table

NOT_COVERED = (
    "Fits that are not in the history above. Every fit on the same persons reveals more about "
    "them, even if it was discarded, repeated or made with other software. One PrivacyBudget for "
    "all fits counts and caps the sum.",
    "Choices made by looking at the data. A search over parameters (GridSearchCV) makes many fits, "
    "and its scores and its choice reveal information about the rows that it was scored on.",
    "Rows that private values chose for the fit: a split that is stratified by labels moves the "
    "rows of several persons when one of them changes, and a bootstrap repeats rows.",
    "Rows passed to predict, transform, score or distance: they are treated as public.",
    "Persons with more than one record, unless the assumptions say how many each may have.",
    "Facts about a whole group. A release may show that smoking is harmful, and so reveal "
    "something about you, whether or not your record was used.",
    "Security of the machine. Anyone who can read its memory or disk needs no release.",
)


_ATTACK_AXES = {"xlabel": "share of others wrongly suspected", "ylabel": "share of members found"}


def privacy_report(
    estimator: Any,
    X_holdout: Any = None,
    *,
    y_holdout: ArrayLike | None = None,
    X_members: Any = None,
    budget: PrivacyBudget | None = None,
    audit: bool = True,
    n_canaries: int | None = None,
    confidence: float = 0.95,
    random_state: int | np.random.RandomState | None = None,
    verbose: int = 0,
) -> "PrivacyReport":
    """Report what a fitted estimator released, what that protects, and what tests of it found.

    Parameters
    ----------
    estimator : estimator
        A fitted private estimator of this package, or a fitted pipeline that contains some.
    X_holdout : array-like of shape (n_holdout, n_features), optional
        **Public** rows of the same population that the estimator was not fitted on, to measure
        utility and, for samplers, to attack a copy that is fitted to one half of them.
    y_holdout : array-like of shape (n_holdout,), optional
        Their labels, targets or time stamps.
    X_members : array-like of shape (n_members, n_features), optional
        Rows that the estimator was fitted on. If given, the attacks are on the release itself and
        the report is **not private**; it says so at its top.
    budget : PrivacyBudget, optional
        Budget whose history is shown. By default, the budgets of the estimator.
    audit : bool, default=True
        Whether to audit a copy of the estimator. This costs a fit.
    n_canaries : int, optional
        Number of canaries in the audit. By default half of the numbers in a sketch, from 100 to
        1,000, and 100 if there is no sketch.
    confidence : float, default=0.95
        Confidence of the lower bounds, in (0, 1). Each private part of a pipeline is audited, and
        the bounds from all guesses hold together with this confidence. Those from the noise add a
        hundredth of the chance of an error. Limits of attacks on synthetic rows are of 95 % each.
    random_state : int, RandomState or None, default=None
        Seed for made-up rows and draws; does not affect privacy.
    verbose : int, default=0
        If positive, show a progress bar over the audits.

    Returns
    -------
    PrivacyReport
        Shows itself in a notebook. ``to_html()`` returns a page, ``to_dict()`` and ``to_frame()``
        the facts, by the names of the attributes: ``estimator``, ``parts`` (its private parts),
        ``silent`` (parts that learned without noise), ``n_samples``, ``n_features``, ``created``,
        ``version``, ``spent`` (`~skdpot.privacy.PrivacySpent`), ``releases`` (in words),
        ``meaning`` (what epsilon and delta say about an attacker), ``cautions`` (``level`` and
        ``text`` of each warning), ``budgets``, ``audits`` (``name``, ``result``, ``reason`` and
        ``verdict`` of each part), ``reliability`` (name and `~skdpot.privacy.Reliability` of each
        part that states its errors), ``confidence``, ``refuted`` (whether an audit refutes the
        claim), ``membership`` (``found``, ``reason``, ``of_members``), ``utility`` (figures),
        ``utility_reason`` (why there are none) and ``not_covered``.

    Raises
    ------
    sklearn.exceptions.NotFittedError
        If the estimator is not fitted.
    TypeError
        If the estimator is not private, is a search whose fits are not all kept, or a parameter has
        the wrong type. The message contains no value of the rows.
    ValueError
        If a parameter is out of range, `X_members` or `y_holdout` is given without `X_holdout`, or
        the rows and labels do not match.

    Privacy
    -------
    The report uses public facts and post-processing of the release: no private row is read, unless
    `X_members` contains some. The attacks fit copies without a budget to public rows, and the audit
    (`one_run_audit`) to rows that are sampled from the release, with canaries among them. Its lower
    bound of epsilon can refute a claim but never prove one.

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
    parts = tuple(private_estimators(estimator))
    silent = silent_parts(estimator)
    n_samples, n_features = _known_sizes(parts, spent)
    charged = [budget] if budget else [getattr(part, "budget", None) for _, part in parts]
    budgets = tuple({each.ledger: each for each in charged if each is not None}.values())
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
        reliability=tuple(
            (name, part.reliability_) for name, part in parts if hasattr(part, "reliability_")
        ),
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
    """The outcome of `privacy_report`, which explains the attributes."""

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
    reliability: tuple[tuple[str, Reliability], ...]
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
        """Return all facts as numbers, text, lists and dicts."""
        return _facts(self, strict=True)

    def to_frame(self) -> pd.DataFrame:
        """Return the facts as a table of text and numbers."""
        rows = [
            (section, name, value) if name else ("report", section, value)
            for section, content in _facts(self).items()
            for name, value in _flat("", content)
        ]
        return pd.DataFrame(rows, columns=["section", "fact", "value"])

    def _repr_html_(self) -> str:
        results = [part.result for part in self.audits if part.result]
        words = (
            beside_claim, epsilon_text, lower_text, one_in, percent_at_most, rounded_down,
            rounded_up,
        )  # fmt: skip
        return render(
            "privacy_report.html",
            title="Privacy report",
            report=self,
            spent=self.spent,
            reliability_cards=[
                (name, stated, stated._repr_html_()) for name, stated in self.reliability
            ],
            stops=[caution.text for caution in self.cautions if caution.level == "stop"],
            members=MEMBERS_WARNING,
            protected=protected_in_words(self.spent),
            mechanism=mechanism_in_words(self.spent),
            # The rest that calibration leaves of ε is not another fit.
            other_fits=[b for b in self.budgets if (b.spent or 0.0) > self.spent.epsilon * 1.0001],
            share_spent=_share_spent,
            audited=[part for part in self.audits if part.result],
            best=max(results, key=lambda result: result.epsilon_lower, default=None),
            attack_rows=_attack_rows,
            claim_picture=claim_picture,
            membership_picture=membership_picture,
            infinity=math.inf,
            **{word.__name__: word for word in words},
        )

    def __repr__(self) -> str:
        bounds = [part.result.epsilon_lower for part in self.audits if part.result is not None]
        audit = f"epsilon_lower={lower_text(max(bounds))}" if bounds else "not audited"
        warned = f"{len(self.cautions)} warning{'s'[: len(self.cautions) != 1]}"
        return (
            f"PrivacyReport({self.estimator}, epsilon={self.spent.epsilon:.4g}, "
            f"delta={self.spent.delta:.2g}, {audit}, {warned})"
        )


def _statement(estimator: Any) -> PrivacySpent:
    """Return what an estimator has spent, or raise an error that says why nothing is known."""
    spent = getattr(estimator, "privacy_spent_", None)
    if isinstance(spent, PrivacySpent):
        return spent
    if hasattr(estimator, "fit") and not hasattr(estimator, "cv_results_"):
        check_is_fitted(estimator)
    return total_spent(estimator)


def _read_ledger(budget: PrivacyBudget) -> LedgerState:
    """Read a budget once; its file may be unreadable."""
    cap: dict[str, Any] = {"epsilon": budget.epsilon, "delta": budget.delta}
    try:
        spent, remaining, history = budget.epsilon_spent(), budget.remaining(), budget.history()
    except LedgerError as error:
        return LedgerState(**cap, problem=str(error))
    times = [time.isoformat(timespec="seconds") for time in history["time"]]
    charges = history[["time", "label", "event", "epsilon"]].assign(time=times).to_dict("records")
    return LedgerState(**cap, spent=spent, remaining=remaining, history=charges)


def _nested(value: Any, strict: bool) -> Any:
    """Return dicts and lists in place of dataclasses and tuples; if `strict`, only JSON values."""
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
    """Yield the leaves of nested lists and dicts with their paths."""
    if isinstance(value, dict):
        for key, item in value.items():
            yield from _flat(f"{name}.{key}" if name else key, item)
    elif isinstance(value, list):
        for number, item in enumerate(value, start=1):
            yield from _flat(f"{name} {number}".strip(), item)
    else:
        yield name, value


def _check_rows(X_holdout: Any, y_holdout: ArrayLike | None, X_members: Any) -> None:
    """Refuse rows and labels that do not match; messages contain no values."""
    if X_members is not None and X_holdout is None:
        raise ValueError("X_members needs X_holdout, rows that are not members.")
    if y_holdout is not None:
        if X_holdout is None:
            raise ValueError("y_holdout needs X_holdout, the rows that it labels.")
        try:
            n_rows, n_labels = len(X_holdout), len(y_holdout)  # type: ignore[arg-type]
        except TypeError as error:
            raise ValueError(
                "X_holdout and y_holdout must be arrays with one entry per row."
            ) from error
        if n_rows != n_labels:
            raise ValueError(f"y_holdout has {n_labels} labels for {n_rows} rows of X_holdout.")
    if X_members is not None and not Table.is_frame(X_members):  # which may hold text
        as_points(X_members, "X_members")


def _releases(parts: Sequence[tuple[str, Any]], spent: PrivacySpent) -> tuple[str, ...]:
    """Return one sentence for each phase that touched private data."""
    sentences = tuple(phase.describe() for phase in spent.event.phases)
    names = [name for name, part in parts for _ in part.privacy_spent_.event.phases]
    if len(parts) < 2 or len(names) != len(sentences):  # one fit, or one that occurs twice
        return sentences
    return tuple(map(": ".join, zip(names, sentences, strict=True)))


def _known_sizes(
    parts: Sequence[tuple[str, Any]], spent: PrivacySpent
) -> tuple[int | None, int | None]:
    """Return the public numbers of records, if known, and of features."""
    known = [part.n_samples_ for _, part in parts if hasattr(part, "n_samples_")]
    known += [phase.n_records for phase in spent.event.phases if phase.n_records is not None]
    features = [part.n_features_in_ for _, part in parts if hasattr(part, "n_features_in_")]
    return int(min(known)) if known else None, int(features[0]) if features else None


def _share_spent(budget: LedgerState) -> float:
    """Return the spent share of a ledger, by squares of μ, which add up."""
    if budget.spent is None or not 0.0 < budget.spent < math.inf > budget.epsilon:
        return 0.0
    used, whole = (gdp_mu(epsilon, budget.delta) for epsilon in (budget.spent, budget.epsilon))
    return float((used / whole) ** 2)


def _attack_rows(attacks: SyntheticMembership) -> Iterator[tuple[str, ...]]:
    """Yield one row for each attack on synthetic rows, with limits rounded outwards."""

    def limited(share: Sequence[float], unit: int, decimals: int, sign: str = "") -> str:
        value, low, high = (unit * figure for figure in share)
        least = math.floor(low * 10**decimals) / 10**decimals
        most = math.ceil(round(high * 10**decimals, 6)) / 10**decimals
        return f"{value:.{decimals}f}{sign} ({least:.{decimals}f}–{most:.{decimals}f})"

    for name, result in attacks.results.items():
        rates = (
            limited(result.tpr_at(fpr), 100, 1, " %")
            if len(result.other_scores) * fpr >= 1
            else "too few others"
            for fpr in (0.01, 0.1)
        )
        yield name, limited((result.auc, *result.auc_interval()), 1, 2), *rates


def claim_picture(spent: PrivacySpent) -> str:
    """Draw the attacks that a claim allows, as the data address of an SVG picture."""
    figure = Picture(figsize=(3.6, 3.4), layout="constrained")
    ax = figure.subplots()
    fpr = np.linspace(0, 1, 201)
    allowed = claim_of(spent).tpr_bound(fpr)
    ax.fill_between(fpr, fpr, allowed, color=COLORS[5], alpha=0.35, linewidth=0)
    ax.plot(fpr, allowed, color=COLORS[0], label="most that ε and δ allow")
    loss = compose(spent.event)
    if not loss.is_sampled and math.isfinite(loss.mu_without_sampling):
        best = loss.leak + (1.0 - loss.leak) * norm.cdf(norm.ppf(fpr) + loss.mu_without_sampling)
        ax.plot(fpr, best, color=COLORS[1], linestyle="--", label="most that the noise allows")
    ax.plot([0, 1], [0, 1], "k:", linewidth=1, label="blind guessing")
    ax.set(xlim=(0, 1), ylim=(0, 1), aspect="equal", **_ATTACK_AXES)
    ax.legend(loc="lower right", fontsize="small")
    return data_address(figure, "svg", "image/svg+xml")


def membership_picture(found: SyntheticMembership) -> str:
    """Draw the outcome of attacks on synthetic rows, as the data address of a PNG picture."""
    # No layout engine keeps the legend clear of axes with a fixed aspect.
    by_hand: Any = "none"  # matplotlib documents this value, and its stubs lack it
    figure = Picture(figsize=(7.2, 4.6), layout=by_hand)
    left, right = figure.subplots(1, 2)
    figure.subplots_adjust(left=0.09, right=0.98, top=0.94, bottom=0.28, wspace=0.3)
    for ax, log in ((left, False), (right, True)):
        found.plot(ax, log=log, legend=False).set(**_ATTACK_AXES)
    left.set_title("all attacks", fontsize="medium")
    right.set_title("small error rates", fontsize="medium")
    figure.legend(*left.get_legend_handles_labels(), loc="lower center", ncols=2, fontsize="small")
    # Curves of thousands of points are smaller as pixels.
    return data_address(figure, "png", "image/png")
