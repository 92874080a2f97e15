"""What pipelines are made of, and which of their parts learn from the rows that they are fitted on.

Pipelines, unions and column transformers are looked into; everything else is one part.
"""

from collections.abc import Iterator
from typing import Any

from sklearn.base import BaseEstimator, clone
from sklearn.compose import ColumnTransformer
from sklearn.frozen import FrozenEstimator
from sklearn.impute import SimpleImputer
from sklearn.pipeline import FeatureUnion, Pipeline
from sklearn.preprocessing import OneHotEncoder, OrdinalEncoder
from sklearn.utils import get_tags

__all__ = ["COMPOSITES", "composites", "keeps_more", "learns", "leaves"]

COMPOSITES = (Pipeline, FeatureUnion, ColumnTransformer)

# What these must be told, so that their fit learns nothing that was not declared. Unknown values
# must pass: an error, or a warning, that names one is an output.
_DECLARED: dict[type, dict[str, tuple[Any, ...]]] = {
    OneHotEncoder: {
        "handle_unknown": ("ignore",),
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


def leaves(estimator: Any, prefix: str = "") -> Iterator[tuple[str, Any]]:
    """Yield the parts that are no composites, in the order of their fits, with their prefixes."""
    if not isinstance(estimator, COMPOSITES):
        yield prefix, estimator
    for name, part in _children(estimator):
        yield from leaves(part, f"{prefix}{name}__")


def composites(estimator: Any, prefix: str = "") -> Iterator[tuple[str, Any]]:
    """Yield the composites themselves, with their prefixes."""
    if isinstance(estimator, COMPOSITES):
        yield prefix, estimator
    for name, part in _children(estimator):
        yield from composites(part, f"{prefix}{name}__")


def learns(part: Any) -> bool:
    """Whether the fit of a part that is not private keeps more than the form of the rows.

    By the word of the part itself (its tag ``requires_fit``), and for encoders and imputers by
    whether everything that they would learn was declared.
    """
    if isinstance(part, FrozenEstimator) or _is_declared(part):
        return False
    if not isinstance(part, BaseEstimator) or get_tags(part).requires_fit:
        return True
    # A Gaussian process predicts without a fit, by its prior, and keeps all rows once it has one.
    return hasattr(part, "predict") or not hasattr(part, "transform")


def keeps_more(part: Any) -> bool:
    """Whether a part that should learn nothing holds more than before its fit."""
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
