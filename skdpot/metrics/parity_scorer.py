"""Parity as a score that searches and cross-validation understand."""

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

from sklearn import config_context
from sklearn.metrics import make_scorer

__all__ = ["make_parity_scorer"]


def make_parity_scorer(
    metric: Callable[..., float],
    *,
    greater_is_better: bool,
    response_method: str = "predict",
    **options: Any,
) -> Any:
    """Make a scorer of a measure of parity, which looks at predictions and groups alone.

    Parameters
    ----------
    metric : callable
        ``metric(predictions, *, sensitive_features, **options)``: `disparate_impact`,
        `demographic_parity_difference` or `wasserstein_parity`.
    greater_is_better : bool
        True for `disparate_impact`, False for the others, whose sign is then changed.
    response_method : str, default="predict"
        What predictions are; "predict_proba" or "decision_function" for `wasserstein_parity`.
    **options : dict
        For the metric, such as `pos_label`.

    Returns
    -------
    scorer
        Asks for `sensitive_features` where metadata routing is enabled:
        ``sklearn.set_config(enable_metadata_routing=True)``.

    Privacy
    -------
    Rows that are scored count as public, and so do the choice and the scores of a search.

    Examples
    --------
    >>> import sklearn
    >>> from sklearn.linear_model import LogisticRegression
    >>> from sklearn.model_selection import cross_validate
    >>> from skdpot.datasets import make_biased_classification
    >>> from skdpot.metrics import disparate_impact, make_parity_scorer
    >>> X, y, group = make_biased_classification(1000, random_state=0)
    >>> scorer = make_parity_scorer(disparate_impact, greater_is_better=True)
    >>> with sklearn.config_context(enable_metadata_routing=True):
    ...     scores = cross_validate(
    ...         LogisticRegression(), X, y, scoring=scorer, params={"sensitive_features": group}
    ...     )
    >>> scores["test_score"].shape
    (5,)
    """
    scorer = make_scorer(
        _OfPredictions(metric),
        greater_is_better=greater_is_better,
        response_method=response_method,
        **options,
    )
    with config_context(enable_metadata_routing=True):
        return scorer.set_score_request(sensitive_features=True)


@dataclass(frozen=True)
class _OfPredictions:
    """A metric that leaves the true values aside; it can be pickled."""

    metric: Callable[..., float]

    def __call__(
        self, y_true: Any, y_pred: Any, *, sensitive_features: Any, **options: Any
    ) -> float:
        return float(self.metric(y_pred, sensitive_features=sensitive_features, **options))

    @property
    def __name__(self) -> str:
        return getattr(self.metric, "__name__", "metric")
