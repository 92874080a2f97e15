"""Warnings of earlier steps on the same rows, without noise or with another budget.

A fit learns of earlier steps in two ways. A pipeline, union or column transformer that calls the
fit is on the stack, and all its steps are checked. A private step remembers the object that it
returned, so a fit on this object knows the step. Steps of other libraries in between, cached
transformers, worker processes and separate calls of ``transform`` break this chain.
"""

import math
import sys
import weakref
from collections.abc import Sequence
from contextlib import suppress
from types import FrameType
from typing import Any, TypeAlias

from skdpot.exceptions import warn_of_privacy
from skdpot.privacy.accounting import compose
from skdpot.privacy.budget import PrivacyBudget
from skdpot.privacy.events import ComposedEvent
from skdpot.privacy.pipelines import (
    COMPOSITES,
    PrivateEstimatorMixin,
    is_last_in_columns,
    is_shared,
    leaks,
    private_parts_of,
    warn_of_budgets,
)
from skdpot.privacy.statement import PrivacySpent

_Earlier: TypeAlias = tuple[tuple[PrivacySpent, PrivacyBudget | None], ...]

_ORIGINS: dict[int, _Earlier] = {}


def made_by(X: Any, output: Any, spent: PrivacySpent | None, budget: PrivacyBudget | None) -> Any:
    """Remember that a private fit on X returned `output`; without `spent` it released nothing."""
    steps = _ORIGINS.get(id(X), ()) + (() if spent is None else ((spent, budget),))
    with suppress(TypeError):  # an object without weak references cannot be remembered
        if steps:
            weakref.finalize(output, _ORIGINS.pop, id(output), None).atexit = False
            _ORIGINS[id(output)] = steps
    return output


def _surroundings() -> tuple[Any, Any]:
    """Return the outermost composite on the stack, and the private estimator that it calls."""
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
    """Warn of earlier steps on the same rows without noise, or with another budget."""
    around, fitting = _surroundings()
    steps = _ORIGINS.get(id(X), ())
    if around is not None:
        for text in leaks(around):
            warn_of_privacy(f"A pipeline is not private as a whole: {text}")
        parts = private_parts_of(around)
        if parts and parts[-1] is fitting:  # all other parts are fitted already
            steps = (*steps, *_statements(parts[:-1]))
        elif is_last_in_columns(around) and not any(part is fitting for part in parts):
            warn_of_budgets(parts)  # clones of the parts are being fitted
    if steps and not is_shared([budget, *(charged_to for _, charged_to in steps)]):
        _warn_of_sum(list({id(step): step for step, _ in steps}.values()), spent, caller)


def _statements(parts: Sequence[PrivateEstimatorMixin]) -> _Earlier:
    """Return the statements and budgets of fitted private parts."""
    stated = ((getattr(part, "privacy_spent_", None), part.budget) for part in parts)
    return tuple((spent, budget) for spent, budget in stated if spent is not None)


def _warn_of_sum(before: Sequence[PrivacySpent], spent: PrivacySpent, caller: str) -> None:
    """Warn of the total cost of a fit and of the steps before it."""
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
