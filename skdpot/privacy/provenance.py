"""What happens to the rows before and beside a private fit: other releases, or steps without noise.

A private estimator cannot see what came before it. A pipeline can be checked (`check_pipeline`),
and two things are seen during a fit. A pipeline, union or column transformer that calls it is among
the callers, and all its steps are checked then. And a private step remembers the very object that
it returned, so that a fit on this object knows of it. A step of another library in between, a
cached transformer, worker processes, or ``transform`` in a call of its own break the chain.
"""

import math
import sys
import weakref
from collections.abc import Sequence
from contextlib import suppress
from types import FrameType
from typing import Any, TypeAlias, TypeVar

from sklearn.base import clone
from sklearn.compose import ColumnTransformer, make_column_selector
from sklearn.feature_extraction.image import PatchExtractor

from skdpot.exceptions import warn_of_privacy
from skdpot.privacy.accounting import compose
from skdpot.privacy.budget import PrivacyBudget
from skdpot.privacy.events import ComposedEvent
from skdpot.privacy.spent import (
    COMPOSITES,
    PrivacySpent,
    PrivateEstimatorMixin,
    keeps_more,
    learns,
    leaves,
)

Steps: TypeAlias = tuple[tuple[PrivacySpent, PrivacyBudget | None], ...]
_Estimator = TypeVar("_Estimator")

_ORIGINS: dict[int, Steps] = {}


def made_by(X: Any, output: Any, spent: PrivacySpent | None, budget: PrivacyBudget | None) -> Any:
    """Remember that a private fit returned `output` for the rows that it was fitted on.

    A fit that released nothing, and has no `spent`, adds nothing to what is known of the rows.
    """
    steps = _ORIGINS.get(id(X), ()) + (() if spent is None else ((spent, budget),))
    with suppress(TypeError):  # an object without weak references cannot be remembered
        if steps:
            weakref.finalize(output, _ORIGINS.pop, id(output), None).atexit = False
            _ORIGINS[id(output)] = steps
    return output


def check_pipeline(estimator: _Estimator) -> _Estimator:
    """Raise an error if a step of a pipeline would tell of private rows without noise.

    Call it before the fit; it looks at no rows. Every fit of a private estimator within a pipeline
    makes the same checks and warns, since rows may be public.

    Parameters
    ----------
    estimator : estimator
        A pipeline, union or column transformer, or a single estimator; fitted or not.

    Returns
    -------
    estimator
        What was given, so that ``check_pipeline(make_pipeline(...)).fit(X)`` is one line.

    Raises
    ------
    TypeError
        If it is no estimator.
    ValueError
        If a step learns from the rows and is not private, has no noise (``epsilon=inf``), or makes
        several rows of one; the error lists all such steps and what to do.

    Warns
    -----
    PrivacyWarning
        If several private steps fit the same rows and do not share one `PrivacyBudget`, with a
        bound of what they cost together.

    Notes
    -----
    Private are estimators of skdpot (those that inherit `PrivateEstimatorMixin`). These steps learn
    nothing: "passthrough" and "drop"; those of which the tag ``requires_fit`` is False, such as
    `FunctionTransformer` and `Normalizer`; `FrozenEstimator`, which was fitted before, on
    **public** rows; and, since all that they would learn is declared,
    ``OneHotEncoder(categories=[...], handle_unknown="ignore", sparse_output=False)``,
    ``OrdinalEncoder(categories=[...], handle_unknown="use_encoded_value", unknown_value=-1)`` and
    ``SimpleImputer(strategy="constant", fill_value=..., keep_empty_features=True)``. With
    ``handle_unknown="error"`` an encoder's error would name values of private rows, and an imputer
    that drops columns without a value shows which ones these are. That a function makes of each row
    one row, by that row alone, cannot be seen.

    Examples
    --------
    >>> from sklearn.pipeline import make_pipeline
    >>> from sklearn.preprocessing import StandardScaler
    >>> from skdpot import FairPrivateClassifier, PrivacyBudget, PrivateScaler, check_pipeline
    >>> check_pipeline(make_pipeline(StandardScaler(), FairPrivateClassifier()))
    Traceback (most recent call last):
    ...
    ValueError: This pipeline is not private as a whole: StandardScaler would learn ...
    >>> budget = PrivacyBudget(epsilon=2.0)
    >>> model = make_pipeline(
    ...     PrivateScaler(epsilon=0.5, budget=budget),
    ...     FairPrivateClassifier(epsilon=1.5, budget=budget),
    ... )
    >>> check_pipeline(model) is model
    True
    """
    if not hasattr(estimator, "fit") or isinstance(estimator, type):
        raise TypeError(
            "check_pipeline takes an estimator or a pipeline, an object with a method fit; got "
            f"{type(estimator).__name__}."
        )
    # What was fitted, and what the next fit would be made of.
    found = dict.fromkeys([*leaks(estimator), *leaks(clone(estimator, safe=False))])
    parts = parts_of(estimator)
    found |= dict.fromkeys(
        f"{type(part).__name__} has no noise (epsilon is infinite for these parameters): give it a "
        "finite epsilon, or fit it to public rows and pass sklearn.frozen.FrozenEstimator of it."
        for part in parts
        if math.isinf(part._epsilon_due())
    )
    if found:
        raise ValueError(f"This pipeline is not private as a whole: {' '.join(found)}")
    _warn_of_budgets(parts)
    return estimator


def leaks(estimator: Any) -> tuple[str, ...]:
    """Say what in a pipeline tells of private rows without noise, a sentence or two for each."""
    found = []
    for _, composite in leaves(estimator, composite=True):
        for name, _, columns in getattr(composite, "transformers", ()):
            if callable(columns) and not isinstance(columns, make_column_selector):
                found.append(
                    f"The columns of {name!r} in {type(composite).__name__} are chosen by a "
                    "function of the private rows: list them, or use make_column_selector, which "
                    "goes by names and data types."
                )
    for _, part in leaves(estimator):
        name = type(part).__name__
        if isinstance(part, PrivateEstimatorMixin):
            continue
        if isinstance(part, PatchExtractor):
            found.append(
                f"{name} makes several rows of one, and what is protected is one row: extract "
                "patches of one image a person beforehand."
            )
        elif learns(part):
            found.append(
                f"{name} would learn from private rows without noise: it does not inherit "
                "PrivateEstimatorMixin. Use a private one (PrivateScaler in place of a scaler), "
                "declare what it would learn, or pass sklearn.frozen.FrozenEstimator of one that "
                "was fitted to public rows."
            )
        elif (kept := _kept(part)) is None:
            found.append(
                f"{name} cannot be cloned, so that nobody can see what it keeps of private rows: "
                "its constructor must store its parameters as they are."
            )
        elif kept:
            found.append(
                f"{name} says that it needs no fit, and holds more after one than before: what it "
                "has learned or kept of private rows is not private."
            )
    return tuple(dict.fromkeys(found))


def _kept(part: Any) -> bool | None:
    """Whether a part holds more than before its fit; None if that cannot be said."""
    try:
        return keeps_more(part)
    except Exception:  # of its constructor: a check must not end a fit that was charged
        return None


def parts_of(estimator: Any) -> list[Any]:
    """Return the private parts of a composite, or the estimator itself if it is private."""
    return [part for _, part in leaves(estimator) if isinstance(part, PrivateEstimatorMixin)]


def _is_shared(budgets: Sequence[PrivacyBudget | None]) -> bool:
    """Whether all charges go to one budget."""
    return all(budget is not None and budget is budgets[0] for budget in budgets)


def _warn_of_budgets(parts: Sequence[Any]) -> None:
    """Warn of private steps that do not share a budget, with a bound of their sum."""
    parts = [part for part in parts if part._epsilon_due() > 0.0]
    if len(parts) > 1 and not _is_shared([part.budget for part in parts]):
        names = ", ".join(type(part).__name__ for part in parts)
        epsilon, delta = math.fsum(p.epsilon for p in parts), math.fsum(p.delta for p in parts)
        warn_of_privacy(
            f"{names} are fitted on the same people and do not share a budget: together they cost "
            f"up to epsilon={epsilon:.3g} at delta={delta:.3g}. Pass one PrivacyBudget to all "
            "steps to cap the sum."
        )


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
        elif _is_last_in_columns(around) and not any(part is fitting for part in parts):
            _warn_of_budgets(parts)  # of parts whose clones are being fitted
    if steps and not _is_shared([budget, *(charged_to for _, charged_to in steps)]):
        _warn_of_sum(list({id(step): step for step, _ in steps}.values()), spent, caller)


def _is_last_in_columns(around: Any) -> bool:
    """Whether the last private part is in a ColumnTransformer, which fits clones of its parts."""
    last = parts_of(around)[-1:]
    columns = (
        one for _, one in leaves(around, composite=True) if isinstance(one, ColumnTransformer)
    )
    return any(part is last[0] for one in columns for part in parts_of(one))


def _statements(parts: Sequence[Any]) -> Steps:
    stated = ((getattr(part, "privacy_spent_", None), part.budget) for part in parts)
    return tuple((spent, budget) for spent, budget in stated if spent is not None)


def _warn_of_sum(before: Sequence[PrivacySpent], spent: PrivacySpent, caller: str) -> None:
    if any(math.isinf(step.epsilon) for step in before):
        warn_of_privacy(
            f"{caller}: the rows come from a step that was fitted on the same rows without "
            "privacy (epsilon=inf), so that nothing protects them. Fit that step on public rows "
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
