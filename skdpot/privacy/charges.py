"""Charging a fit, planning it without a charge, and the assumptions of its statement."""

import math
from collections.abc import Iterable, Iterator, Sequence
from contextlib import contextmanager
from contextvars import ContextVar
from typing import Any

from sklearn.base import clone

from skdpot.exceptions import CalibrationError, warn_of_privacy
from skdpot.privacy.accounting import compose
from skdpot.privacy.budget import PrivacyBudget
from skdpot.privacy.events import Event, Relation
from skdpot.privacy.journal import charge_fit
from skdpot.privacy.pipelines import PrivateEstimatorMixin
from skdpot.privacy.searches import faults_of_callers
from skdpot.privacy.statement import PrivacySpent, Scale, scales_of, stated_epsilon
from skdpot.privacy.targets import privacy_target

_PLANNING: ContextVar[bool] = ContextVar("planning", default=False)
SEEDED = "nobody knows random_state"  # assumed by every fit with a seed
# Assumed by every fit, which cannot know how its rows were selected from a larger table.
ROWS_GIVEN = "no private value decides which rows the fit is given, and none is given twice"
KNOWN_LABELS = "every label is one of the classes; others are refused"


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
    """Charge a fit. Call it before the fit draws noise or reads its data.

    Parameters
    ----------
    owner : estimator or FitContext
        Has the attributes `epsilon`, `delta` and `budget` (None without a budget).
    event : Event
        The whole fit. It must not cost more than (epsilon, delta).
    n_samples : int or None
        Number of records, which must be public; None if there are no private records.
    assumptions : iterable of str
        Facts that the fit assumes to be public.
    mechanism : str, default=""
        Description of the mechanism for the statement.
    scales : tuple, optional
        Noise and sensitivity for the statement. By default those of each phase of the event.
    noise_given : bool, default=False
        If True, the noise was given rather than calibrated: `epsilon` is ignored and the statement
        reports the cost of the event at `delta`.
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
        publishes one random record is (0, 1/n)-private. If the fit is called by a scikit-learn
        search or ensemble that divides rows by private values (`check_search`). The warnings come
        before the charge.
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
    epsilon = stated_epsilon(compose(event), target.delta) if noise_given else target.epsilon
    sigma, sensitivity = scales or scales_of(event)
    spent = PrivacySpent(
        epsilon, target.delta, event.relation, event, sigma, sensitivity, assumed, mechanism
    )
    if _PLANNING.get():
        raise _PlannedError(spent)
    charge_fit(budget, name, spent, n_samples)
    return spent


class _PlannedError(BaseException):
    """Ends a fit where it would have been charged."""


def plan_fit(
    estimator: PrivateEstimatorMixin, X: Any, y: Any = None, **params: Any
) -> PrivacySpent:
    """State the cost of a fit without making it.

    The fit runs up to the point where it would be charged: it validates its data, and releases,
    charges and stores nothing. A `PrivacyBudget` with ``planned=[plan_fit(...)]`` accounts for the
    planned fits exactly, together with all other charges.

    Parameters
    ----------
    estimator : estimator
        A private estimator, which is not changed. For a pipeline, plan its steps.
    X : array-like or DataFrame
        Rows of the fit, or public rows with the same number, columns and data types.
    y : array-like, optional
        Labels or targets of the fit.
    **params : object
        Further arguments of ``fit``.

    Returns
    -------
    PrivacySpent
        The statement of the future fit, calibrated as without a budget.

    Raises
    ------
    TypeError
        If `estimator` is not a private estimator.
    ValueError
        If the fit releases nothing, or would itself raise a ValueError.

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
    with planning(True) as statements:
        clone(estimator).set_params(budget=None).fit(X, y, **params)
    if statements:
        return statements[0]
    raise ValueError(f"{type(estimator).__name__} releases nothing in this fit: no plan is needed.")


@contextmanager
def planning(on: bool) -> Iterator[list[PrivacySpent]]:
    """If `on`, end the block where a fit would be charged, and collect its statement."""
    statements: list[PrivacySpent] = []
    state = _PLANNING.set(on)
    try:
        yield statements
    except _PlannedError as end:
        if not on:
            raise
        statements.append(end.args[0])
    finally:
        _PLANNING.reset(state)


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
    """List the assumptions of a fit of rows: its public facts and its other conditions.

    `records` states the number of records and the meaning of one, if a record is not a row.
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
    """Warn of a delta of at least 1 / n, unless n is private."""
    if n_samples is None or event.relation is not Relation.REPLACE_ONE:
        return
    largest = delta
    if budget is not None and math.isfinite(budget.epsilon):
        largest = max(delta, budget.delta)
    if largest * n_samples >= 1.0:
        owner = "delta" if largest == delta else "the budget's delta"
        warn_of_privacy(
            f"{label}: {owner} = {largest:g} is not below one over the number of records "
            f"({n_samples:,}), so publishing one whole record would count as private. Choose a "
            f"delta well below {1 / n_samples:.1g}."
        )
