"""What private estimators declare, and which steps of a pipeline learn without noise."""

import math
from collections.abc import Iterator, Sequence
from numbers import Integral, Real
from typing import Any, ClassVar, TypeVar

import numpy as np
from sklearn.base import BaseEstimator, clone
from sklearn.compose import ColumnTransformer, make_column_selector
from sklearn.feature_extraction.image import PatchExtractor
from sklearn.frozen import FrozenEstimator
from sklearn.impute import SimpleImputer
from sklearn.pipeline import FeatureUnion, Pipeline
from sklearn.preprocessing import FunctionTransformer, OneHotEncoder, OrdinalEncoder
from sklearn.utils import get_tags

from skdpot._utils.parameters import DEVICE, Interval
from skdpot._utils.rows import read_rows
from skdpot.exceptions import warn_of_privacy
from skdpot.privacy.budget import PrivacyBudget

_Estimator = TypeVar("_Estimator")
COMPOSITES = (Pipeline, FeatureUnion, ColumnTransformer)
# What these must be told, so that their fit learns nothing that was not declared. Unknown values
# must pass: an error, or a warning, that names one is an output.
_DECLARED: dict[type, dict[str, tuple[Any, ...]]] = {
    OneHotEncoder: {
        "handle_unknown": ("ignore",),
        "drop": (None,),  # with others, rows of unknown values make it warn
        "min_frequency": (None,),
        "max_categories": (None,),
        "sparse_output": (False,),  # how dense a table is decides the form of what follows
    },
    OrdinalEncoder: {
        "handle_unknown": ("use_encoded_value",),
        "min_frequency": (None,),
        "max_categories": (None,),
    },
    SimpleImputer: {
        "strategy": ("constant",),
        "add_indicator": (False,),
        "keep_empty_features": (True,),
    },
}
# What parts that learn nothing set: the form of the rows, and which object their stop words are.
_FORM = frozenset({"n_features_in_", "feature_names_in_", "_stop_words_id"})


class PrivateEstimatorMixin:
    """Mixin for estimators that charge every fit to `budget` and state it in `privacy_spent_`.

    The estimator has the parameters `epsilon`, `delta` and `budget`. `PrivateSearchCV` and
    `check_pipeline` treat estimators with this mixin as private. `_stated_in` names attributes that
    hold further estimators of this kind. An estimator that keeps its statement in another form
    overrides `_restate`.
    """

    epsilon: float
    delta: float
    budget: PrivacyBudget | None
    privacy_spent_: Any
    reliability_: Any
    _stated_in: ClassVar[tuple[str, ...]] = ()
    _canaries: ClassVar[str] = "corners"  # what shows most of it in an audit

    _parameter_constraints: dict[str, list[Any]] = {
        "epsilon": [Interval(Real, 0, None, closed="right")],
        "delta": [Interval(Real, 0, 1, closed="neither")],
        "budget": [PrivacyBudget, None],
        "random_state": ["random_state"],
        # Where an estimator has them:
        "callbacks": [list, tuple, None],
        "device": [DEVICE],
        "verbose": ["verbose"],
    }

    def _epsilon_due(self) -> float:
        """Return the epsilon of the next fit: inf without noise, 0 if it will release nothing."""
        return self.epsilon

    def _seen_by(self, release: Any, X: Any, y: Any) -> tuple[Any, Any]:
        """Return rows and labels as the mechanism of a release is given them, for audits."""
        parts = (getattr(self, name, None) for name in self._stated_in)
        inner = next((part for part in parts if part is not None), None)
        return (X, y) if inner is None else inner._seen_by(release, X, y)

    def _restate(self, spent: Any) -> None:
        """State the cost of the larger release that this fit became a part of; drop its budget."""
        self.epsilon, self.delta, self.budget = spent.epsilon, spent.delta, None
        if getattr(self, "privacy_spent_", None) is not None:  # None has released nothing
            self.privacy_spent_ = spent
        for name in self._stated_in:
            part = getattr(self, name, None)
            if part is not None:
                part._restate(spent)


def leaves(estimator: Any, composite: bool = False, prefix: str = "") -> Iterator[tuple[str, Any]]:
    """Yield the parts, in the order of their fits, with their prefixes; or the composites."""
    if isinstance(estimator, COMPOSITES) is composite:
        yield prefix, estimator
    for name, part in _children(estimator):
        yield from leaves(part, composite, f"{prefix}{name}__")


def learns(part: Any) -> bool:
    """Whether the fit of a part learns from rows without noise, by its tags and parameters."""
    if isinstance(part, FrozenEstimator) or _is_declared(part):
        return False
    if not isinstance(part, BaseEstimator) or get_tags(part).requires_fit:
        return True
    # A Gaussian process predicts without a fit, by its prior, and keeps all rows once it has one.
    return hasattr(part, "predict") or not hasattr(part, "transform")


def keeps_more(part: Any) -> bool:
    """Whether a part that declares to learn nothing has new attributes after its fit."""
    if isinstance(part, FrozenEstimator) or _is_declared(part):
        return False
    return not set(vars(part)) <= set(vars(clone(part))) | _FORM


def _is_declared(part: Any) -> bool:
    needed = _DECLARED.get(type(part))
    if needed is None or isinstance(getattr(part, "categories", None), str):  # "auto"
        return False
    return all(getattr(part, name) in allowed for name, allowed in needed.items())


def _children(estimator: Any) -> Iterator[tuple[str, Any]]:
    if isinstance(estimator, ColumnTransformer):
        # What has been fitted are clones of the parts, the remainder among them.
        found = getattr(estimator, "transformers_", None)
        entries = found or [*estimator.transformers, ("remainder", estimator.remainder)]
    elif isinstance(estimator, FeatureUnion):
        entries = estimator.transformer_list
    else:
        entries = estimator.steps if isinstance(estimator, Pipeline) else ()
    for name, part, *_ in entries:
        if part is not None and not isinstance(part, str):
            yield name, part


def check_pipeline(estimator: _Estimator) -> _Estimator:
    """Raise an error if a step of a pipeline would learn from private rows without noise.

    Call it before the fit; it does not look at rows. Every fit of a private estimator within a
    pipeline makes the same checks, and warns instead, because rows may be public. Only what errors
    may quote is not warned of: a fit that reaches a private step had no such error.

    Parameters
    ----------
    estimator : estimator
        A pipeline, union, column transformer or single estimator, fitted or not.

    Returns
    -------
    estimator
        The same object, so that ``check_pipeline(make_pipeline(...)).fit(X)`` is one line.

    Raises
    ------
    TypeError
        If `estimator` is not an estimator.
    ValueError
        If a step learns from the rows and is not private, has no noise (``epsilon=inf``), makes
        several rows of one, or may quote private values in an error; or if a pipeline has a
        `memory`, which writes rows to files. The error lists all such steps and what to do.

    Warns
    -----
    PrivacyWarning
        If several private steps are fitted on the same rows without sharing one `PrivacyBudget`.
        The warning bounds their total cost.

    Notes
    -----
    Private steps inherit `PrivateEstimatorMixin`. The following steps learn nothing: "passthrough"
    and "drop"; steps whose tag ``requires_fit`` is False, such as `FunctionTransformer` (with
    ``check_inverse=False`` if it has an inverse) and `Normalizer`; `FrozenEstimator`, which must
    have been fitted on **public** rows; and, because everything that they would learn is declared,
    ``OneHotEncoder(categories=[...], handle_unknown="ignore", sparse_output=False)``,
    ``OrdinalEncoder(categories=[...], handle_unknown="use_encoded_value", unknown_value=-1)`` and
    ``SimpleImputer(strategy="constant", fill_value=..., keep_empty_features=True)``. With
    ``handle_unknown="error"`` an encoder's error would name private values, and an imputer that
    drops empty columns reveals which columns are empty. It is not checked that a function maps each
    row to one row by that row alone, nor what its errors say.

    scikit-learn's numerical steps, such as `Normalizer`, quote a text that they find among numbers.
    They, ``FunctionTransformer(validate=True)`` and frozen steps of other libraries need numbers: a
    private step before them, or ``FunctionTransformer(skdpot.preprocessing.finite_rows)``, which
    refuses such rows without quoting them. X itself must have two dimensions; scikit-learn's error
    for another form shows it.

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
    quoting: list[str] = []
    _makes_numbers(estimator, False, quoting)
    found |= dict.fromkeys(quoting)
    parts = private_parts_of(estimator)
    found |= dict.fromkeys(
        f"{type(part).__name__} has no noise (epsilon is infinite for these parameters): give it a "
        "finite epsilon, or fit it to public rows and pass sklearn.frozen.FrozenEstimator of it."
        for part in parts
        if math.isinf(part._epsilon_due())
    )
    if found:
        raise ValueError(f"This pipeline is not private as a whole: {' '.join(found)}")
    warn_of_budgets(parts)
    return estimator


def leaks(estimator: Any) -> tuple[str, ...]:
    """List everything in a pipeline that reveals private rows without noise."""
    found = []
    for _, composite in leaves(estimator, composite=True):
        if getattr(composite, "memory", None) is not None:
            found.append(
                f"A {type(composite).__name__} with `memory` writes the rows that its steps are "
                "given to files, which outlive the fit and which others may read: pass memory=None."
            )
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
                f"{name} makes several rows of one, but only one row is protected: extract patches "
                "of one image per person beforehand."
            )
        elif learns(part):
            found.append(
                f"{name} would learn from private rows without noise: it does not inherit "
                "PrivateEstimatorMixin. Use a private one (PrivateScaler in place of a scaler), "
                "declare what it would learn, or pass sklearn.frozen.FrozenEstimator of one that "
                "was fitted to public rows."
            )
        else:
            found += _told_by_form(part, name)
    return tuple(dict.fromkeys(found))


def _told_by_form(part: Any, name: str) -> Iterator[str]:
    """List what a part that learns nothing reveals about private rows."""
    if isinstance(part, FunctionTransformer) and part.check_inverse and part.inverse_func:
        yield f"{name} tries inverse_func on private rows and warns: pass check_inverse=False."
    try:
        if keeps_more(part):
            yield (
                f"{name} declares that it needs no fit, but has more attributes after one: what it "
                "learned or kept of private rows is not private."
            )
    except Exception:  # of its constructor: a check must not end a fit that was charged
        yield (
            f"{name} cannot be cloned, so what it keeps of private rows cannot be checked: its "
            "constructor must store its parameters unchanged."
        )


def finite_rows(X: Any) -> Any:
    """Return X as finite numbers, or refuse it without quoting a value.

    Steps of scikit-learn name a text that they find among numbers. In a pipeline for private rows
    ``FunctionTransformer(finite_rows)`` stands before them.

    Parameters
    ----------
    X : array-like of shape (n_samples, n_features)
        Rows.

    Returns
    -------
    ndarray or DataFrame of shape (n_samples, n_features)
        The rows as float64, or float32 if they were. A DataFrame of pandas stays one.

    Raises
    ------
    TypeError, ValueError
        If X is no table of finite numbers. That it is none becomes known; its values do not.

    Privacy
    -------
    Each row is returned as it is. Nothing is released and nothing charged.

    Examples
    --------
    >>> from sklearn.pipeline import make_pipeline
    >>> from sklearn.preprocessing import FunctionTransformer, Normalizer
    >>> from skdpot import DPSlicedFlowSampler, check_pipeline
    >>> from skdpot.preprocessing import finite_rows
    >>> sampler = DPSlicedFlowSampler(norm_bound=1.0)
    >>> pipeline = make_pipeline(FunctionTransformer(finite_rows), Normalizer(), sampler)
    >>> check_pipeline(pipeline) is pipeline
    True
    >>> pipeline.fit([["secret", 1.0], [0.0, 2.0]])
    Traceback (most recent call last):
    ...
    ValueError: X cannot be read as numbers: ...
    """
    rows = read_rows(X)
    return type(X)(rows, index=X.index, columns=X.columns) if hasattr(X, "iloc") else rows


def _makes_numbers(part: Any, numbers: bool, quoting: list[str]) -> bool:
    """Whether a step returns numbers; collect what is named if a row given to it holds a text.

    `numbers` says whether the rows that it is given are known to be numbers.
    """
    if part is None or isinstance(part, str):
        return numbers or part == "drop"
    if isinstance(part, Pipeline):
        for _, step in part.steps:
            numbers = _makes_numbers(step, numbers, quoting)
        return numbers
    if isinstance(part, COMPOSITES):
        _check_columns(part, quoting)
        union = isinstance(part, FeatureUnion)
        entries = part.transformer_list if union else part.transformers
        beside = [entry[1] for entry in entries] + [getattr(part, "remainder", "drop")]
        return all([_makes_numbers(one, numbers, quoting) for one in beside])
    made_by = part.estimator if isinstance(part, FrozenEstimator) else part
    if isinstance(made_by, PrivateEstimatorMixin) or type(made_by).__module__.startswith("skdpot."):
        return True
    if isinstance(part, FunctionTransformer) and not part.validate:
        keeps = part.func is None or isinstance(part.func, np.ufunc)
        return part.func is finite_rows or (numbers and keeps)
    if _is_declared(part):
        return numbers or not isinstance(part, SimpleImputer)
    if not numbers and not learns(part):
        quoting.append(
            f"{type(made_by).__name__} may quote a private value in an error, such as a text among "
            "numbers: put FunctionTransformer(skdpot.preprocessing.finite_rows) or a private step "
            "directly before it."
        )
    return type(made_by).__module__.startswith("sklearn.")


def _check_columns(part: Any, quoting: list[str]) -> None:
    """Name columns that are given to a step as an array of one dimension, which an error shows."""
    for name, step, columns in getattr(part, "transformers", ()):
        alone = isinstance(columns, str | Integral) and not isinstance(columns, bool)
        if alone and not isinstance(step, str | FunctionTransformer):
            quoting.append(
                f"The columns of {name!r} in {type(part).__name__} are a single name, so its step "
                f"is given no table and shows the values in its error: write [{columns!r}]."
            )


def private_parts_of(estimator: Any) -> list[Any]:
    """Return the private parts of a composite, or the estimator itself if it is private."""
    return [part for _, part in leaves(estimator) if isinstance(part, PrivateEstimatorMixin)]


def is_shared(budgets: Sequence[PrivacyBudget | None]) -> bool:
    """Whether all charges go to one budget."""
    return all(budget is not None and budget is budgets[0] for budget in budgets)


def warn_of_budgets(parts: Sequence[Any]) -> None:
    """Warn of private steps that do not share a budget, with a bound of their sum."""
    parts = [part for part in parts if part._epsilon_due() > 0.0]
    if len(parts) > 1 and not is_shared([part.budget for part in parts]):
        names = ", ".join(type(part).__name__ for part in parts)
        epsilon, delta = math.fsum(p.epsilon for p in parts), math.fsum(p.delta for p in parts)
        warn_of_privacy(
            f"{names} are fitted on the same people and do not share a budget: together they cost "
            f"up to epsilon={epsilon:.3g} at delta={delta:.3g}. Pass one PrivacyBudget to all "
            "steps to cap the sum."
        )


def is_last_in_columns(around: Any) -> bool:
    """Whether the last private part is in a ColumnTransformer, which fits clones of its parts."""
    last = private_parts_of(around)[-1:]
    columns = (
        one for _, one in leaves(around, composite=True) if isinstance(one, ColumnTransformer)
    )
    return any(part is last[0] for one in columns for part in private_parts_of(one))
