"""Which private steps made an array, so that a later step can say what all cost together.

A pipeline hands the very object that one step returns to the next. Private steps on the same
rows compose; with a shared budget that is accounted for, without one the caller is told the
sum. Only what is passed on directly is known: a step of another library in between, a cached
transformer, or ``transform`` in a call of its own breaks the chain.
"""

import math
import weakref
from typing import Any, TypeAlias

from skdpot._utils.notices import warn_of_privacy
from skdpot.privacy.accounting import compose
from skdpot.privacy.budget import PrivacyBudget
from skdpot.privacy.events import ComposedEvent
from skdpot.privacy.spent import PrivacySpent

__all__ = ["made_by", "passed_on", "warn_of_composition"]

Steps: TypeAlias = tuple[tuple[PrivacySpent, PrivacyBudget | None], ...]

_ORIGINS: dict[int, Steps] = {}


def made_by(X: Any, output: Any, spent: PrivacySpent, budget: PrivacyBudget | None) -> Any:
    """Remember that a private fit returned `output` for the rows that it was fitted on.

    Parameters
    ----------
    X : object
        What it was fitted on, perhaps itself the output of a private step.
    output : ndarray or DataFrame
        Transformed private rows. The memory ends with the object.
    spent : PrivacySpent
        What the fit cost.
    budget : PrivacyBudget or None
        What it was charged to.

    Returns
    -------
    ndarray or DataFrame
        `output` itself.
    """
    return _remembered(output, (*_ORIGINS.get(id(X), ()), (spent, budget)))


def passed_on(X: Any, output: Any) -> Any:
    """Remember that a fit which released nothing made `output` of the rows `X`.

    Parameters
    ----------
    X : object
        What it was fitted on, perhaps the output of a private step.
    output : ndarray or DataFrame
        Transformed private rows.

    Returns
    -------
    ndarray or DataFrame
        `output` itself.
    """
    steps = _ORIGINS.get(id(X), ())
    return _remembered(output, steps) if steps else output


def _remembered(output: Any, steps: Steps) -> Any:
    try:
        weakref.finalize(output, _ORIGINS.pop, id(output), None).atexit = False
    except TypeError:  # an object without weak references cannot be remembered
        return output
    _ORIGINS[id(output)] = steps
    return output


def warn_of_composition(
    X: Any, spent: PrivacySpent, budget: PrivacyBudget | None, caller: str
) -> None:
    """Warn when `X` comes from private steps that do not share this fit's budget.

    Parameters
    ----------
    X : object
        What the estimator was given to fit.
    spent : PrivacySpent
        What this fit costs.
    budget : PrivacyBudget or None
        What it is charged to.
    caller : str
        Name of the estimator.

    Warns
    -----
    PrivacyWarning
        With the epsilon of all fits together, or saying that a step before had no privacy.
        It depends on public facts only.
    """
    steps = _ORIGINS.get(id(X), ())
    if all(budget is not None and budget is charged_to for _, charged_to in steps):
        return
    before = [step for step, _ in steps]
    if any(math.isinf(step.epsilon) for step in before):
        warn_of_privacy(
            f"{caller}: the rows come from a step that was fitted on the same rows without "
            "privacy (epsilon=inf), so that nothing protects them, whatever this fit adds. Fit "
            "that step on public rows first (sklearn.frozen.FrozenEstimator keeps it in a "
            "pipeline), or privately."
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
