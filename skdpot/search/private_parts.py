"""The private parts of an estimator that is searched, and the parameters that are reserved."""

from collections.abc import Iterable
from typing import Any

from numpy.typing import ArrayLike
from sklearn.base import BaseEstimator, MetaEstimatorMixin

from skdpot.base import chosen_mechanism
from skdpot.privacy.pipelines import COMPOSITES, PrivateEstimatorMixin, leaks, leaves

# Ends messages about persons with several rows.
ONE_ROW = "all rows of a person would be in both parts of the split. Keep one row of each person."
# Parameters of private parts that the search sets.
_SET_BY_SEARCH = "epsilon delta budget random_state classes mechanism__classes verbose".split()
# Parameters of composites that hold other estimators, or say where their fits are cached.
_STRUCTURE = ("steps", "transformer_list", "transformers", "remainder", "memory")


def private_prefixes(estimator: Any) -> tuple[str, ...]:
    """Return the prefixes of the parameter names of all private parts of an estimator."""
    for _, composite in leaves(estimator, composite=True):
        _check_composite(composite)
    if leaking := leaks(estimator):
        raise ValueError(
            f"{leaking[0]} A candidate is made of parts of skdpot and steps that learn nothing."
        )
    prefixes = []
    for prefix, part in leaves(estimator):
        if isinstance(part, MetaEstimatorMixin):
            raise ValueError(
                f"{type(part).__name__} in a search would release a choice of every candidate. "
                "Search all parameters in one search."
            )
        if isinstance(part, PrivateEstimatorMixin):
            prefixes.append(prefix)
            if part.budget is not None:
                raise ValueError(f"`{prefix}budget` must be None: the search itself is charged.")
            _check_records(part)
    if not prefixes:
        raise ValueError("`estimator` has no private part. Pass a private estimator of skdpot.")
    return tuple(prefixes)


def _check_records(part: BaseEstimator) -> None:
    """Refuse records of several rows: a search splits and scores by row."""
    for name, value in part.get_params().items():
        if {"unit": value is not None, "group_size": value != 1}.get(name.rpartition("__")[2]):
            raise ValueError(
                f"`{name}` cannot be used in a search, whose records are single rows: {ONE_ROW}"
            )


def refuse_reserved(names: Iterable[str], prefixes: tuple[str, ...]) -> None:
    """Refuse parameters that the search sets, or that hold estimators."""
    reserved = {prefix + name for prefix in prefixes for name in _SET_BY_SEARCH}
    for name in names:
        reason = ""
        if name in reserved:
            reason = "the search sets it, alike for every candidate. Leave it out."
        elif name.rpartition("__")[2] in _STRUCTURE:
            reason = "it says which parts there are. Search parameters of parts, or single parts."
        elif any(prefix.startswith(f"{name}__") for prefix in prefixes):
            reason = "it replaces a private part. Search its parameters, or run several searches."
        if reason:
            raise ValueError(f"`{name}` cannot be searched: {reason}")


def _check_composite(composite: BaseEstimator) -> None:
    """Refuse composites that are not scikit-learn's own."""
    if type(composite) not in COMPOSITES:
        raise ValueError(
            f"{type(composite).__name__} is not scikit-learn's own: for all that is known it would "
            "learn from private rows. Use Pipeline, FeatureUnion or ColumnTransformer."
        )


def listed_parts(prefixes: tuple[str, ...]) -> str:
    """Return the names of parts for a message."""
    names = [f"`{prefix.removesuffix('__')}`" for prefix in prefixes if prefix]
    return f"the private parts {', '.join(names)}" if names else "no parts"


def undeclared_classes(part: Any, classes: ArrayLike) -> dict[str, Any]:
    """Return the parameters that declare classes for a part that would read them from labels."""
    if not getattr(part, "conditional", True):
        return {}
    if hasattr(part, "mechanism") and hasattr(part, "_mechanisms"):
        mechanism = chosen_mechanism(part.mechanism, part._mechanisms)
        if getattr(mechanism, "classes", classes) is None:
            return {"mechanism": mechanism.set_params(classes=classes)}
    return {"classes": classes} if getattr(part, "classes", classes) is None else {}
