"""The mixin of private estimators, and checks for steps of a pipeline that learn without noise."""

import math
from collections.abc import Callable, Iterator, Sequence
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
from skdpot.privacy.reliability import Reliability
from skdpot.privacy.statement import PrivacySpent

_Estimator = TypeVar("_Estimator")
COMPOSITES = (Pipeline, FeatureUnion, ColumnTransformer)
# The parameter values with which these steps learn nothing that was not declared. They must accept
# unknown values, because an error or a warning that names one is an output.
_DECLARED: dict[type, dict[str, tuple[Any, ...]]] = {
    OneHotEncoder: {
        "handle_unknown": ("ignore",),
        "drop": (None,),  # other values warn of unknown values
        "min_frequency": (None,),
        "max_categories": (None,),
        "sparse_output": (False,),  # the density of a table would decide the form of later tables
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
# Attributes that steps set without learning: the form of the rows, the identity of the stop words.
_FORM = frozenset({"n_features_in_", "feature_names_in_", "_stop_words_id"})


class PrivateEstimatorMixin:
    """Mixin for estimators that charge every fit to `budget` and state it in `privacy_spent_`.

    The estimator has the parameters `epsilon`, `delta` and `budget`. `PrivateSearchCV` and
    `check_pipeline` treat estimators with this mixin as private. `_stated_in` names the attributes
    that hold other private estimators. An estimator that stores its statement in another form
    overrides `_restate`.
    """

    epsilon: float
    delta: float
    budget: PrivacyBudget | None
    privacy_spent_: Any  # a PrivacySpent; may be None only where a fit may release nothing
    reliability_: Reliability
    _validate_params: Callable[[], None]
    _stated_in: ClassVar[tuple[str, ...]] = ()
    _canaries: ClassVar[str] = "corners"  # the kind of canaries that an audit detects best

    _parameter_constraints: dict[str, list[Any]] = {
        "epsilon": [Interval(Real, 0, None, closed="right")],
        "delta": [Interval(Real, 0, 1, closed="neither")],
        "budget": [PrivacyBudget, None],
        "random_state": ["random_state"],
        # Parameters of some estimators:
        "callbacks": [list, tuple, None],
        "device": [DEVICE],
        "verbose": ["verbose"],
    }

    def _epsilon_due(self) -> float:
        """Return the epsilon of the next fit: inf without noise, 0 if it releases nothing."""
        return self.epsilon

    def _seen_by(self, release: Any, X: Any, y: Any) -> tuple[Any, Any]:
        """Return the rows and labels that the mechanism of a release reads, for audits."""
        parts = (getattr(self, name, None) for name in self._stated_in)
        inner = next((part for part in parts if part is not None), None)
        return (X, y) if inner is None else inner._seen_by(release, X, y)

    def _restate(self, spent: PrivacySpent) -> None:
        """Replace the statement by that of a larger release, and remove the budget."""
        self.epsilon, self.delta, self.budget = spent.epsilon, spent.delta, None
        if getattr(self, "privacy_spent_", None) is not None:  # None if it released nothing
            self.privacy_spent_ = spent
        for name in self._stated_in:
            part = getattr(self, name, None)
            if part is not None:
                part._restate(spent)


def leaves(
    estimator: object, composite: bool = False, prefix: str = ""
) -> Iterator[tuple[str, Any]]:
    """Yield the parts, or else the composites, with their prefixes in the order of their fits."""
    if isinstance(estimator, COMPOSITES) is composite:
        yield prefix, estimator
    for name, part in _children(estimator):
        yield from leaves(part, composite, f"{prefix}{name}__")


def learns(part: object) -> bool:
    """Whether the fit of a part learns from rows without noise, by its tags and parameters."""
    if isinstance(part, FrozenEstimator) or _is_declared(part):
        return False
    if not isinstance(part, BaseEstimator) or get_tags(part).requires_fit:
        return True
    # A Gaussian process needs no fit, since it can predict by its prior, but a fit keeps all rows.
    return hasattr(part, "predict") or not hasattr(part, "transform")


def keeps_more(part: object) -> bool:
    """Whether a part that declares that it learns nothing has new attributes after its fit."""
    if isinstance(part, FrozenEstimator) or _is_declared(part):
        return False
    return not set(vars(part)) <= set(vars(clone(part))) | _FORM


def _is_declared(part: object) -> bool:
    """Whether everything that a step would learn is declared in its parameters."""
    required = _DECLARED.get(type(part))
    if required is None or isinstance(getattr(part, "categories", None), str):  # "auto"
        return False
    return all(getattr(part, name) in allowed for name, allowed in required.items())


def _children(estimator: Any) -> Iterator[tuple[str, Any]]:
    """Yield the names and the estimators of the steps of a composite."""
    if isinstance(estimator, ColumnTransformer):
        # A ColumnTransformer fits clones of its parts, which include the remainder.
        fitted = getattr(estimator, "transformers_", None)
        entries = fitted or [*estimator.transformers, ("remainder", estimator.remainder)]
    elif isinstance(estimator, FeatureUnion):
        entries = estimator.transformer_list
    else:
        entries = estimator.steps if isinstance(estimator, Pipeline) else ()
    for name, part, *_ in entries:
        if part is not None and not isinstance(part, str):
            yield name, part


def check_pipeline(estimator: _Estimator) -> _Estimator:
    """Raise an error if a step of a pipeline would learn from private rows without noise.

    Call this function before the fit; it reads no rows. Every fit of a private estimator in a
    pipeline makes the same checks and warns instead, because rows may be public. The fit does not
    warn of values in errors, since no error was raised if the fit reached a private step.

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
        `memory`, which writes rows to files. The error lists all such steps and their remedies.

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
    have been fitted on **public** rows; and the following steps, which declare all that they learn:
    ``OneHotEncoder(categories=[...], handle_unknown="ignore", sparse_output=False)``,
    ``OrdinalEncoder(categories=[...], handle_unknown="use_encoded_value", unknown_value=-1)`` and
    ``SimpleImputer(strategy="constant", fill_value=..., keep_empty_features=True)``. With
    ``handle_unknown="error"`` the error of an encoder would name private values, and an imputer
    that drops empty columns reveals which columns are empty. The check does not verify that a
    function maps each row to one row independently of the others, or what its errors say.

    The numerical steps of scikit-learn, such as `Normalizer`, quote any text that they find among
    numbers. They, ``FunctionTransformer(validate=True)`` and frozen steps of other libraries must
    receive numbers. Place a private step before them, or
    ``FunctionTransformer(skdpot.preprocessing.finite_rows)``, which refuses texts without quoting
    them. X must have two dimensions, because scikit-learn's error for other shapes shows values.

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
    # The fitted parts, and those of the next fit.
    faults = dict.fromkeys([*leaks(estimator), *leaks(clone(estimator, safe=False))])
    quoting: list[str] = []
    _makes_numbers(estimator, False, quoting)
    faults |= dict.fromkeys(quoting)
    parts = private_parts_of(estimator)
    faults |= dict.fromkeys(
        f"{type(part).__name__} has no noise (epsilon is infinite for these parameters): give it a "
        "finite epsilon, or fit it to public rows and pass sklearn.frozen.FrozenEstimator of it."
        for part in parts
        if math.isinf(part._epsilon_due())
    )
    if faults:
        raise ValueError(f"This pipeline is not private as a whole: {' '.join(faults)}")
    warn_of_budgets(parts)
    return estimator


def leaks(estimator: object) -> tuple[str, ...]:
    """List everything in a pipeline that reveals private rows without noise."""
    faults = []
    for _, composite in leaves(estimator, composite=True):
        if getattr(composite, "memory", None) is not None:
            faults.append(
                f"A {type(composite).__name__} with `memory` writes the rows that its steps are "
                "given to files, which outlive the fit and which others may read: pass memory=None."
            )
        for name, _, columns in getattr(composite, "transformers", ()):
            if callable(columns) and not isinstance(columns, make_column_selector):
                faults.append(
                    f"The columns of {name!r} in {type(composite).__name__} are chosen by a "
                    "function of the private rows: list them, or use make_column_selector, which "
                    "goes by names and data types."
                )
    for _, part in leaves(estimator):
        name = type(part).__name__
        if isinstance(part, PrivateEstimatorMixin):
            continue
        if isinstance(part, PatchExtractor):
            faults.append(
                f"{name} makes several rows of one, but only one row is protected: extract patches "
                "of one image per person beforehand."
            )
        elif learns(part):
            faults.append(
                f"{name} would learn from private rows without noise: it does not inherit "
                "PrivateEstimatorMixin. Use a private one (PrivateScaler in place of a scaler), "
                "declare what it would learn, or pass sklearn.frozen.FrozenEstimator of one that "
                "was fitted to public rows."
            )
        else:
            faults += _leaks_without_learning(part, name)
    return tuple(dict.fromkeys(faults))


def _leaks_without_learning(part: object, name: str) -> Iterator[str]:
    """List how a part that should learn nothing still reveals private rows."""
    if isinstance(part, FunctionTransformer) and part.check_inverse and part.inverse_func:
        yield f"{name} tries inverse_func on private rows and warns: pass check_inverse=False."
    try:
        if keeps_more(part):
            yield (
                f"{name} declares that it needs no fit, but has more attributes after one: what it "
                "learned or kept of private rows is not private."
            )
    except Exception:  # in its constructor; a check must not end a fit that was charged
        yield (
            f"{name} cannot be cloned, so what it keeps of private rows cannot be checked: its "
            "constructor must store its parameters unchanged."
        )


def finite_rows(X: Any) -> Any:
    """Return X as finite numbers, or refuse it without quoting a value.

    Steps of scikit-learn quote any text that they find among numbers. In a pipeline for private
    rows, place ``FunctionTransformer(finite_rows)`` before them.

    Parameters
    ----------
    X : array-like of shape (n_samples, n_features)
        Rows.

    Returns
    -------
    ndarray or DataFrame of shape (n_samples, n_features)
        The rows as float64, or as float32 if they are float32. A DataFrame remains a DataFrame.

    Raises
    ------
    TypeError, ValueError
        If X is not a table of finite numbers. The error reveals this fact, but no values.

    Privacy
    -------
    Each row is returned unchanged. Nothing is released and nothing is charged.

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
    """Whether a step returns numbers; steps that may quote a text are added to `quoting`.

    `numbers` says whether the input of the step is known to be numbers.
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
        return all([_makes_numbers(step, numbers, quoting) for step in beside])
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


def _check_columns(part: object, quoting: list[str]) -> None:
    """Report single columns that a step receives as a one-dimensional array, shown in an error."""
    for name, step, columns in getattr(part, "transformers", ()):
        alone = isinstance(columns, str | Integral) and not isinstance(columns, bool)
        if alone and not isinstance(step, str | FunctionTransformer):
            quoting.append(
                f"The columns of {name!r} in {type(part).__name__} are a single name, so its step "
                f"is given no table and shows the values in its error: write [{columns!r}]."
            )


def private_parts_of(estimator: object) -> list[PrivateEstimatorMixin]:
    """Return the private parts of a composite, or the estimator itself if it is private."""
    return [part for _, part in leaves(estimator) if isinstance(part, PrivateEstimatorMixin)]


def is_shared(budgets: Sequence[PrivacyBudget | None]) -> bool:
    """Whether all fits are charged to one budget."""
    return all(budget is not None and budget is budgets[0] for budget in budgets)


def warn_of_budgets(parts: Sequence[PrivateEstimatorMixin]) -> None:
    """Warn of private steps that do not share a budget, with a bound on their total cost."""
    parts = [part for part in parts if part._epsilon_due() > 0.0]
    if len(parts) > 1 and not is_shared([part.budget for part in parts]):
        names = ", ".join(type(part).__name__ for part in parts)
        epsilon, delta = math.fsum(p.epsilon for p in parts), math.fsum(p.delta for p in parts)
        warn_of_privacy(
            f"{names} are fitted on the same people and do not share a budget: together they cost "
            f"up to epsilon={epsilon:.3g} at delta={delta:.3g}. Pass one PrivacyBudget to all "
            "steps to cap the sum."
        )


def is_last_in_columns(around: object) -> bool:
    """Whether the last private part is in a ColumnTransformer, which fits clones of its parts."""
    last = private_parts_of(around)[-1:]
    composites = (composite for _, composite in leaves(around, composite=True))
    columns = (part for part in composites if isinstance(part, ColumnTransformer))
    return any(part is last[0] for column in columns for part in private_parts_of(column))
