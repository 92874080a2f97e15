"""What a fit spends: its statement, its charge, and warnings of other steps on the same rows.

Two things are visible during a fit. A pipeline, union or column transformer that calls it is on the
stack, and all its steps are checked. And a private step remembers the object that it returned, so a
fit on this object knows of it. Steps of other libraries in between, cached transformers, worker
processes, and separate calls of ``transform`` break the chain.
"""

import math
import sys
import weakref
from collections.abc import Iterable, Iterator, Sequence
from contextlib import contextmanager, suppress
from contextvars import ContextVar
from dataclasses import dataclass, fields
from fractions import Fraction
from types import FrameType
from typing import Any, SupportsIndex, TypeAlias

import pandas as pd
from sklearn.base import clone
from sklearn.frozen import FrozenEstimator

from skdpot._utils.pages import html_card
from skdpot._utils.records import LARGEST_COUNT
from skdpot.exceptions import CalibrationError, warn_of_privacy
from skdpot.privacy.accounting import PrivacyLoss, compose, exact_leak, privacy_target
from skdpot.privacy.budget import PrivacyBudget, epsilon_text
from skdpot.privacy.events import ROUNDING, ComposedEvent, Event, Relation, check_group_size
from skdpot.privacy.journal import charge_fit
from skdpot.privacy.pipelines import (
    COMPOSITES,
    PrivateEstimatorMixin,
    is_last_in_columns,
    is_shared,
    leaks,
    learns,
    leaves,
    parts_of,
    warn_of_budgets,
)
from skdpot.privacy.searches import faults_of_callers, is_wrapper, parts_within

# One number, one for each phase of the fit, or none where no single one exists.
Scale: TypeAlias = float | tuple[float, ...] | None


@dataclass(frozen=True)
class PrivacySpent:
    """The privacy statement of one fit. It holds public facts only.

    Parameters
    ----------
    epsilon, delta : float
        The whole fit is (epsilon, delta)-differentially private.
    relation : Relation
        Definition of neighbouring data sets.
    event : Event
        Everything that read private data.
    sigma : float, tuple of float or None
        Standard deviation of the noise, or one per phase.
    sensitivity : float, tuple of float or None
        L2 sensitivity to which `sigma` was calibrated.
    assumptions : tuple of str
        Facts assumed to be public; the statement holds only if they are.
    mechanism : str, default=""
        Description of the mechanism.
    """

    epsilon: float
    delta: float
    relation: Relation
    event: Event
    sigma: Scale
    sensitivity: Scale
    assumptions: tuple[str, ...]
    mechanism: str = ""

    def for_group(self, group_size: SupportsIndex) -> float:
        """Return the epsilon, at the same delta, for groups of records.

        Parameters
        ----------
        group_size : int
            Number k of records that change together, for example all rows of one person. Under
            replace-one, their values change and what the assumptions call public does not.

        Returns
        -------
        float
            Rounded up; infinity if no bound is known at this delta. For Gaussian releases of all
            records this is the epsilon of k times their mu, which is attained. In general it is
            k x for the smallest x at which delta(x) (e^(k x) - 1) / (e^x - 1) is at most `delta`,
            where delta(x) is the profile for one record.

        Raises
        ------
        UnknownEventError
            If no accountant is known for the event.
        ValueError
            If `group_size` is not an integer of at least 1.

        Notes
        -----
        Dividing epsilon by k is *not* enough: the group gets a larger epsilon at the same delta.
        For epsilon = 3 with five rows per person, spend 0.5, not 0.6:

        >>> from skdpot.privacy.accounting import SingleFitTarget, calibrate
        >>> from skdpot.privacy.events import GaussianEvent
        >>> def spent(epsilon):
        ...     target = SingleFitTarget(epsilon, 1e-5)
        ...     event = calibrate(target, lambda s: GaussianEvent(sigma=s, sensitivity=1.0))
        ...     return PrivacySpent(epsilon, 1e-5, event.relation, event, None, None, ())
        >>> spent(0.6).for_group(5)
        3.58
        >>> spent(0.5).for_group(5)
        2.96
        """
        size = check_group_size(group_size)
        if math.isinf(self.epsilon) or size == 1:
            return self.epsilon
        delta = self.delta * (1.0 - 2.0 * ROUNDING)
        return compose(self.event).group_epsilon(size, delta, self.event.group_leak(size))

    def to_frame(self) -> pd.DataFrame:
        """Return the statement as one row of a table, with one column per field.

        Returns
        -------
        DataFrame
            The event is text; the assumptions are joined by semicolons.
        """
        row = {item.name: getattr(self, item.name) for item in fields(self)}
        row |= {"relation": str(self.relation), "event": str(self.event)}
        row["assumptions"] = "; ".join(self.assumptions)
        return pd.DataFrame([row])

    def __repr__(self) -> str:
        """Return the guarantee and the noise on one line."""
        mechanism = f"mechanism={self.mechanism!r}, " if self.mechanism else ""
        return (
            f"PrivacySpent(epsilon={self.epsilon!r}, delta={self.delta!r}, "
            f"relation={str(self.relation)!r}, {mechanism}"
            f"sigma={self.sigma!r}, sensitivity={self.sensitivity!r})"
        )

    def __str__(self) -> str:
        """Return the whole statement, one fact per line."""
        guarantee = f"{epsilon_text(self.epsilon)}, δ = {self.delta:g}"
        rows = [("guarantee", guarantee), *self._facts()]
        width = max(len(name) for name, _ in rows)
        return "\n".join(f"{name:<{width}}  {value}" for name, value in rows)

    def _repr_html_(self) -> str:
        """Return the statement as a card for notebooks."""
        rows = [
            (name.capitalize(), self.event.describe() if name == "event" else value)
            for name, value in self._facts()
        ]
        title = f"Privacy statement: {epsilon_text(self.epsilon)}"
        aside = f"δ = {self.delta:g} · {str(self.relation).replace('_', ' ')}"
        return html_card(title, aside, rows)

    def _facts(self) -> Iterator[tuple[str, str]]:
        """Yield the rows of the statement after the guarantee."""
        meaning = {
            Relation.REPLACE_ONE: "one record replaced by another (their number is public)",
            Relation.ADD_REMOVE: "one record added or removed",
        }
        nothing = "nothing (epsilon is infinite)"
        yield "protects against", nothing if math.isinf(self.epsilon) else meaning[self.relation]
        if self.mechanism:
            yield "mechanism", self.mechanism
        if self.sigma is not None:
            yield "noise sigma", _numbers(self.sigma)
        if self.sensitivity is not None:
            yield "sensitivity", _numbers(self.sensitivity)
        yield "event", str(self.event)
        for number, assumption in enumerate(self.assumptions, start=1):
            yield f"assumes {number}", assumption


def scales_of(event: Event) -> tuple[Scale, Scale]:
    """Return noise and sensitivity of each phase of an event, of all its steps together."""
    phases: tuple[Any, ...] = event.phases if event.is_private else ()
    sensitivities = (phase.sensitivity * math.sqrt(phase.n_steps) for phase in phases)
    return tuple(phase.sigma for phase in phases) or None, tuple(sensitivities) or None


def charge(
    owner: Any,
    event: Event,
    *,
    n_samples: int | None,
    assumptions: Iterable[str],
    mechanism: str = "",
    scales: tuple[Scale, Scale] | None = None,
    noise_given: bool = False,
    label: str | None = None,
) -> PrivacySpent:
    """Charge a fit. Call it before the fit draws noise or looks at its data.

    Parameters
    ----------
    owner : estimator or FitContext
        Has the attributes `epsilon`, `delta` and `budget`, which is None without a budget.
    event : Event
        The whole fit. It must not cost more than (epsilon, delta).
    n_samples : int or None
        Number of records, which must be public; None if there are no private records.
    assumptions : iterable of str
        Facts that the fit takes to be public.
    mechanism : str, default=""
        Description of the mechanism for the statement.
    scales : tuple, optional
        Noise and sensitivity for the statement. By default those of each phase of the event.
    noise_given : bool, default=False
        If True, the noise was given rather than calibrated: `epsilon` is ignored and the statement
        says what the event costs at `delta`.
    label : str, optional
        Name in the budget's history. By default that of the estimator.

    Returns
    -------
    PrivacySpent
        The statement, to be stored as ``privacy_spent_``.

    Raises
    ------
    BudgetExceededError
        If too little of the budget is left. Nothing is charged.
    CalibrationError
        If the event costs more than (epsilon, delta). Nothing is charged.
    LedgerError
        If the ledger of the budget cannot be used.
    ValueError
        If `epsilon` or `delta` is out of range, or event and budget have different relations.

    Warns
    -----
    PrivacyWarning
        If `delta`, or that of the budget, is not below ``1 / n_samples``: a mechanism that
        publishes one random record is (0, 1/n)-private. If a search or ensemble of scikit-learn
        that is calling divides rows by private values (`check_search`). The warnings come before
        the charge.
    """
    budget, delta = owner.budget, owner.delta
    name = label or str(getattr(owner, "caller", type(owner).__name__))
    if not (budget is None or isinstance(budget, PrivacyBudget)):
        raise TypeError(f"`budget` must be a PrivacyBudget or None, got {type(budget).__name__}.")
    target = privacy_target(math.inf if noise_given else owner.epsilon, delta, budget)
    if not target.admits(event):
        raise CalibrationError(
            f"{name}: the noise is too small for epsilon={target.epsilon:g} at delta={delta:g}. "
            "Calibrate the event to that target; nothing was charged."
        )
    assumed = tuple(assumptions)
    if noise_given or math.isfinite(target.epsilon):
        _warn_of_delta(name, event, n_samples, target.delta, budget)
    if event.is_private:
        for text in faults_of_callers():
            warn_of_privacy(f"{name}: {text}")
        assumed += (ROWS_GIVEN,)
    stated = _epsilon(compose(event), target.delta) if noise_given else target.epsilon
    facts = event.relation, event, *(scales or scales_of(event)), assumed, mechanism
    spent = PrivacySpent(stated, target.delta, *facts)
    if _PLANNING.get():
        raise _PlannedError(spent)
    charge_fit(budget, event, name, spent, n_samples)
    return spent


_PLANNING: ContextVar[bool] = ContextVar("planning", default=False)


class _PlannedError(BaseException):
    """Ends a fit where it would have been charged."""


def plan_fit(
    estimator: PrivateEstimatorMixin, X: Any, y: Any = None, **params: Any
) -> PrivacySpent:
    """State what a fit will cost, without making it.

    The fit runs up to the point where it would be charged: it validates its data, and releases,
    charges and stores nothing. A `PrivacyBudget` that is made with ``planned=[plan_fit(...)]``
    accounts for these fits exactly, together with everything else that it admits.

    Parameters
    ----------
    estimator : estimator
        A private estimator; for a pipeline, plan its steps. It is not changed.
    X : array-like or DataFrame
        Rows of the fit, or public rows of the same form: number, columns and data types.
    y : array-like, optional
        Labels or targets of the fit.
    **params : object
        Further arguments of ``fit``.

    Returns
    -------
    PrivacySpent
        The statement that the fit will have. Calibrated as without a budget.

    Raises
    ------
    TypeError
        If `estimator` is not a private estimator.
    ValueError
        If the fit releases nothing, or would raise this error.

    Privacy
    -------
    The statement holds public facts only, and the plan depends on nothing else.

    Examples
    --------
    >>> import numpy as np
    >>> from skdpot import DPSlicedFlowSampler, PrivacyBudget
    >>> from skdpot.privacy import plan_fit
    >>> X = np.random.default_rng(0).normal(size=(1000, 2))
    >>> sampler = DPSlicedFlowSampler(epsilon=2.0, bounds=(-5, 5))
    >>> budget = PrivacyBudget(epsilon=3.0, planned=[plan_fit(sampler, X)])
    >>> round(budget.remaining(), 2)
    2.05
    >>> sampler = sampler.set_params(budget=budget).fit(X)
    >>> round(budget.remaining(), 2)
    2.05
    """
    if not isinstance(estimator, PrivateEstimatorMixin):
        raise TypeError(
            "plan_fit takes one private estimator; of a pipeline, plan each private step. Got "
            f"{type(estimator).__name__}."
        )
    with planning(True) as found:
        clone(estimator).set_params(budget=None).fit(X, y, **params)
    if found:
        return found[0]
    raise ValueError(f"{type(estimator).__name__} releases nothing in this fit: no plan is needed.")


@contextmanager
def planning(on: bool) -> Iterator[list[PrivacySpent]]:
    """End the block where a fit in it would be charged, and collect its statement, or do not."""
    found: list[PrivacySpent] = []
    state = _PLANNING.set(on)
    try:
        yield found
    except _PlannedError as end:
        if not on:
            raise
        found.append(end.args[0])
    finally:
        _PLANNING.reset(state)


SEEDED = "nobody knows random_state"  # the assumption of every fit with a seed
# That of every fit: it cannot see who divided the rows of a larger table before it.
ROWS_GIVEN = "no private value decides which rows the fit is given, and none is given twice"
KNOWN_LABELS = "every label is one of the classes; others are refused"


def row_assumptions(
    *,
    classes: bool = False,
    declared_bounds: bool,
    seeded: bool,
    public_labels: bool = False,
    group_size: int = 1,
    finite: bool = True,
    records: Sequence[str] = (),
    others: Sequence[str] = (),
) -> tuple[str, ...]:
    """List what a fit of rows takes to be public, and what else its statement rests on.

    `records` says how many records there are and what one is, if it is not one row.
    """
    labels = " and every label one of the classes" if classes else ""
    rows = "one row" if group_size == 1 else f"at most {group_size} rows, all of different labels"
    number, record = records or ("the number of rows", f"each person contributes {rows}")
    listed = (
        (True, number),
        (True, "the number and names of the features"),
        (classes, "the set of classes"),
        (public_labels, "the label of every row, and so the number of rows of each class"),
        (declared_bounds, "the bounds given by the caller"),
        (finite, f"every value is a finite number{labels}; others are refused"),
        (True, record),
        *((True, text) for text in others),
        (seeded, SEEDED),
    )
    return tuple(text for holds, text in listed if holds)


def _warn_of_delta(
    label: str, event: Event, n_samples: int | None, delta: float, budget: PrivacyBudget | None
) -> None:
    """Warn of a delta that lets a release of one record pass; where n is protected, say nothing."""
    if n_samples is None or event.relation is not Relation.REPLACE_ONE:
        return
    largest = delta
    if budget is not None and math.isfinite(budget.epsilon):
        largest = max(delta, budget.delta)
    if largest * n_samples >= 1.0:
        owner = "delta" if largest == delta else "the budget's delta"
        warn_of_privacy(
            f"{label}: {owner} = {largest:g} is not below one over the number of records "
            f"({n_samples:,}): publishing one would pass for private. Choose a delta well "
            f"below {1 / n_samples:.1g}."
        )


Steps: TypeAlias = tuple[tuple[PrivacySpent, PrivacyBudget | None], ...]

_ORIGINS: dict[int, Steps] = {}


def made_by(X: Any, output: Any, spent: PrivacySpent | None, budget: PrivacyBudget | None) -> Any:
    """Remember that a private fit on X returned `output`; without `spent` it released nothing."""
    steps = _ORIGINS.get(id(X), ()) + (() if spent is None else ((spent, budget),))
    with suppress(TypeError):  # an object without weak references cannot be remembered
        if steps:
            weakref.finalize(output, _ORIGINS.pop, id(output), None).atexit = False
            _ORIGINS[id(output)] = steps
    return output


def _surroundings() -> tuple[Any, Any]:
    """Return the outermost composite that is calling, and the private estimator that it calls."""
    frame: FrameType | None = sys._getframe()
    around = fitting = last = None
    while frame is not None:
        owner = frame.f_locals.get("self") if "self" in frame.f_code.co_varnames else None
        if isinstance(owner, PrivateEstimatorMixin):
            last = owner
        elif isinstance(owner, COMPOSITES):
            around, fitting = owner, last
        frame = frame.f_back
    return around, fitting


def warn_of_composition(
    X: Any, spent: PrivacySpent, budget: PrivacyBudget | None, caller: str
) -> None:
    """Warn of steps on the same rows without noise, or with a budget of their own."""
    around, fitting = _surroundings()
    steps = _ORIGINS.get(id(X), ())
    if around is not None:
        for text in leaks(around):
            warn_of_privacy(f"A pipeline is not private as a whole: {text}")
        parts = parts_of(around)
        if parts and parts[-1] is fitting:  # all others have been fitted
            steps = (*steps, *_statements(parts[:-1]))
        elif is_last_in_columns(around) and not any(part is fitting for part in parts):
            warn_of_budgets(parts)  # of parts whose clones are being fitted
    if steps and not is_shared([budget, *(charged_to for _, charged_to in steps)]):
        _warn_of_sum(list({id(step): step for step, _ in steps}.values()), spent, caller)


def _statements(parts: Sequence[Any]) -> Steps:
    stated = ((getattr(part, "privacy_spent_", None), part.budget) for part in parts)
    return tuple((spent, budget) for spent, budget in stated if spent is not None)


def _warn_of_sum(before: Sequence[PrivacySpent], spent: PrivacySpent, caller: str) -> None:
    if any(math.isinf(step.epsilon) for step in before):
        warn_of_privacy(
            f"{caller}: the rows come from a step that was fitted on the same rows without "
            "privacy (epsilon=inf), so nothing protects them. Fit that step on public rows "
            "first (and pass sklearn.frozen.FrozenEstimator of it), or privately."
        )
        return
    delta = max(step.delta for step in (*before, spent))
    events = tuple(step.event for step in (*before, spent))
    total = compose(ComposedEvent(events=events)).epsilon(delta)
    earlier = " and ".join(f"{step.epsilon:g}" for step in before)
    warn_of_privacy(
        f"{caller}: the rows come from a private step that spent epsilon={earlier} on "
        f"the same people; together with this fit that is epsilon={total:.3g} at "
        f"delta={delta:g}. Pass one PrivacyBudget to all steps to cap the sum."
    )


def total_spent(*fitted: Any, delta: float | None = None) -> PrivacySpent:
    """Compute what several fitted estimators have spent together on the same records.

    A shared `PrivacyBudget` adds up while the fits are made, and also counts refits and discarded
    fits, which this function cannot see.

    Parameters
    ----------
    *fitted : estimator or PrivacySpent
        Fitted estimators with a ``privacy_spent_``, or pipelines and other composites of them. An
        object that is passed several times counts once.
    delta : float, default=None
        The delta of the total. If None, the largest delta of the parts.

    Returns
    -------
    PrivacySpent
        The composition of all events. `epsilon` is infinite if a part has no noise. The assumptions
        name parts without an event, which must not have learned from the private records. Parts
        whose ``privacy_spent_`` is None released nothing and are not named.

    Raises
    ------
    TypeError
        If an estimator has no ``privacy_spent_``, if none has spent anything, or if one is a
        search, which does not keep all its fits.
    ValueError
        If nothing is passed, the relations differ, or `delta` is out of range.

    Notes
    -----
    If a later estimator, or its epsilon, was chosen after looking at earlier results, the total is
    only a running figure. The cap of a shared budget also covers that case.
    """
    parts = [part for estimator in fitted for part in _private_parts(estimator)]
    if not fitted:
        raise ValueError("total_spent needs at least one fitted estimator.")
    if not parts:
        names = ", ".join(dict.fromkeys(type(estimator).__name__ for estimator in fitted))
        raise TypeError(
            f"{names} spent nothing: the fit released nothing about private records, so that there "
            "is no event to add up. Pass estimators that were fitted privately."
        )
    spent = list({id(part): part for _, part in parts if part is not None}.values())
    delta = max(part.delta for part in spent) if delta is None else delta
    event = ComposedEvent(events=tuple(part.event for part in spent))
    assumptions = dict.fromkeys(text for part in spent for text in part.assumptions)
    assumptions |= dict.fromkeys(
        f"{name} (it has no event) learned nothing from the private records"
        for name in silent_parts(*fitted)
    )
    epsilon = _epsilon(compose(event), delta)
    mechanism = " + ".join(part.mechanism or "unnamed" for part in spent)
    facts = event.relation, event, None, None, tuple(assumptions), mechanism
    return PrivacySpent(epsilon, float(delta), *facts)


def silent_parts(*fitted: Any) -> tuple[str, ...]:
    """Name the parts of fitted estimators that learned something and have no event."""
    parts = [part for estimator in fitted for part in _private_parts(estimator)]
    return tuple(dict.fromkeys(name for name, spent in parts if spent is None))


def _private_parts(estimator: object) -> list[tuple[str, PrivacySpent | None]]:
    """Return the parts that learned something with what they spent; at least one must have."""
    parts: list[tuple[str, PrivacySpent | None]] = []
    for _, part in leaves(estimator):
        name = type(part).__name__
        fits_private = is_wrapper(part) and next(parts_within(part), None) is not None
        if fits_private or hasattr(part, "cv_results_"):
            raise TypeError(
                f"{name} made many fits and does not keep them all. Give its estimator a "
                "PrivacyBudget, which counts them all."
            )
        spent = getattr(part, "privacy_spent_", part)  # None: it released nothing
        if isinstance(spent, PrivacySpent):
            parts.append((name, spent))
        elif spent is part:
            if part is estimator or learns(part) or isinstance(part, FrozenEstimator):
                parts.append((name, None))
    if parts and all(spent is None for _, spent in parts):
        raise TypeError(
            f"{type(estimator).__name__} has no `privacy_spent_`: fit it first, and pass private "
            "estimators or pipelines that hold one."
        )
    return parts


def _epsilon(loss: PrivacyLoss, delta: float) -> float:
    """Return an epsilon for any machine: rounding and the sampler's error are taken from delta."""
    rest = float(Fraction(delta) - exact_leak(loss.n_steps)) * (1.0 - 2.0 * ROUNDING)
    return loss.epsilon(rest) if rest > 0.0 else math.inf


def _numbers(value: float | tuple[float, ...]) -> str:
    """Write one number or several with four digits."""
    return ", ".join(f"{number:.4g}" for number in (value if isinstance(value, tuple) else [value]))


_ROUNDING = 1e-6  # of delta, between machines


def check_statement(spent: PrivacySpent, noun: str) -> tuple[tuple[Any, ...], float | None]:
    """Refuse a statement that promises more than its own events give.

    Returns the events (none if nothing is private), and the mu that was charged if the release is
    the best of a private search: it is then a part of one trial or of the refit.
    """
    check_epsilon_delta(spent.epsilon, spent.delta, noun)
    stated = [
        scale if isinstance(scale, tuple) else () if scale is None else (scale,)
        for scale in (spent.sigma, spent.sensitivity)
    ]
    if not all(is_number(n) and 0 <= n < math.inf for numbers in stated for n in numbers):
        raise ValueError(f"The {noun} states an impossible noise or sensitivity.")
    if spent.relation is not Relation.REPLACE_ONE or spent.event.relation is not spent.relation:
        raise ValueError(f"A {noun} is private under replace-one, and states no other relation.")
    events = spent.event.phases
    chosen = all(event.is_budget for event in events)
    for event in events:
        if not event.in_files or event.is_budget is not chosen:
            raise ValueError(
                f"The {noun} states an event of type {type(event).__name__}, which releases none."
            )
    if not spent.event.is_private:
        if math.isfinite(spent.epsilon):
            raise ValueError(f"The {noun} states a finite epsilon for a release without noise.")
        if any(stated[0]):
            raise ValueError(f"The {noun} states noise of a release without noise.")
        return (), None
    if not compose(spent.event).delta(spent.epsilon) <= spent.delta * (1 + _ROUNDING):
        raise ValueError(f"The {noun} states a smaller epsilon than its own events cost.")
    return events, events[-1].mu if chosen else None


def check_epsilon_delta(epsilon: Any, delta: Any, noun: str) -> None:
    """Refuse parameters that no mechanism has."""
    if not (is_number(epsilon) and is_number(delta) and epsilon > 0 and 0 < delta < 1):
        raise ValueError(f"The {noun} states an epsilon that is not > 0, or a delta not in (0, 1).")


def is_number(value: Any) -> bool:
    """Whether it is a number that arithmetic in double precision can use."""
    return type(value) is float or (type(value) is int and abs(value) <= LARGEST_COUNT)
