"""What a fitted search does as its winner does."""

from collections.abc import Callable
from copy import deepcopy
from typing import Any

from sklearn.base import BaseEstimator, MetaEstimatorMixin
from sklearn.utils import Tags, get_tags
from sklearn.utils.metadata_routing import MetadataRouter, MethodMapping
from sklearn.utils.metaestimators import available_if

from skdpot._utils.validation import check_is_fitted

__all__ = ["SearchResult"]


def _winner_has(method: str) -> Callable[[Any], bool]:
    """Say whether the winner has a method, or raise what is missing."""

    def check(search: Any) -> bool:
        fitted = "privacy_spent_" in vars(search)
        getattr(search.best_estimator_ if fitted else search.estimator, method)
        return True

    return check


class SearchResult(MetaEstimatorMixin, BaseEstimator):
    """Methods of the winner; a part of `PrivateSearchCV`."""

    estimator: Any
    best_estimator_: Any

    @available_if(_winner_has("predict"))
    def predict(self, X: Any) -> Any:
        """Return what the winner predicts for public rows."""
        return self._fitted_winner().predict(X)

    @available_if(_winner_has("predict_proba"))
    def predict_proba(self, X: Any) -> Any:
        """Return the winner's probabilities of each class for public rows."""
        return self._fitted_winner().predict_proba(X)

    @available_if(_winner_has("decision_function"))
    def decision_function(self, X: Any) -> Any:
        """Return the winner's decision function for public rows."""
        return self._fitted_winner().decision_function(X)

    @available_if(_winner_has("transform"))
    def transform(self, X: Any) -> Any:
        """Return what the winner makes of public rows."""
        return self._fitted_winner().transform(X)

    @available_if(_winner_has("inverse_transform"))
    def inverse_transform(self, X: Any) -> Any:
        """Return rows from what the winner made of them."""
        return self._fitted_winner().inverse_transform(X)

    @available_if(_winner_has("score_samples"))
    def score_samples(self, X: Any) -> Any:
        """Return the winner's scores of public rows."""
        return self._fitted_winner().score_samples(X)

    @available_if(_winner_has("score"))
    def score(self, X: Any, y: Any = None) -> float:
        """Return the winner's own score on **public** rows, without noise."""
        targets = () if y is None else (y,)
        return float(self._fitted_winner().score(X, *targets))

    @available_if(_winner_has("sample"))
    def sample(self, n_samples: int = 1, *args: Any, **kwargs: Any) -> Any:
        """Draw synthetic rows from the winner; free of any privacy cost."""
        return self._fitted_winner().sample(n_samples, *args, **kwargs)

    @available_if(_winner_has("sample_labeled"))
    def sample_labeled(self, n_samples: int = 1, *args: Any, **kwargs: Any) -> Any:
        """Draw synthetic rows with their classes from the winner; free of any privacy cost."""
        return self._fitted_winner().sample_labeled(n_samples, *args, **kwargs)

    def _fitted_winner(self) -> Any:
        check_is_fitted(self, "privacy_spent_")
        return self.best_estimator_

    def get_metadata_routing(self) -> MetadataRouter:
        """Return how metadata is routed: what `fit` is given goes to the fits of the candidates.

        Returns
        -------
        MetadataRouter
            With the estimator as consumer.
        """
        mapping = MethodMapping().add(caller="fit", callee="fit")
        return MetadataRouter(owner=type(self).__name__).add(
            estimator=self.estimator, method_mapping=mapping
        )

    def __getattr__(self, name: str) -> Any:
        """Say why there is no winner, where that is not plain."""
        if name == "best_estimator_" and "privacy_spent_" in vars(self):
            raise AttributeError(
                f"{type(self).__name__} with several folds and refit=False has no single model: "
                "use refit=True, or hold out a share such as cv=0.2, or fit the estimator with "
                "best_params_ on another budget."
            )
        raise AttributeError(f"{type(self).__name__!r} object has no attribute {name!r}")

    def __sklearn_tags__(self) -> Tags:
        """Return the tags of the estimator that is searched."""
        tags = super().__sklearn_tags__()
        inner = get_tags(self.estimator)
        for name in (
            *("estimator_type", "target_tags", "classifier_tags", "regressor_tags"),
            *("transformer_tags", "input_tags", "non_deterministic"),
        ):
            setattr(tags, name, deepcopy(getattr(inner, name)))
        return tags
