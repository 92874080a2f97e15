"""The score of a model that is trained on synthetic rows and tested on real rows."""

from collections.abc import Callable
from typing import Any

from sklearn.base import BaseEstimator, clone
from sklearn.metrics import check_scoring


def train_synthetic_test_real(
    estimator: BaseEstimator,
    X_synthetic: Any,
    y_synthetic: Any,
    X_real: Any,
    y_real: Any,
    *,
    scoring: str | Callable[..., float] | None = None,
) -> float:
    """Train on synthetic rows and score on real rows (TSTR).

    Parameters
    ----------
    estimator : estimator
        Classifier or regressor; cloned.
    X_synthetic, y_synthetic : array-like of shape (n, d), (n,) or (n, n_outputs)
        Synthetic training rows with targets. Real training rows give the score to compare with.
    X_real, y_real : array-like of shape (m, d), (m,) or (m, n_outputs)
        Real test rows with targets, from which the synthetic rows were not made.
    scoring : str or callable, optional
        Scorer of scikit-learn, or ``scorer(estimator, X, y)``. By default the estimator's
        ``score``.

    Returns
    -------
    float
        The score; higher is better.

    Raises
    ------
    ValueError, TypeError
        If `scoring` is unknown; if it is not given and the estimator has no ``score``.

    Privacy
    -------
    All rows are treated as public. The score is public only if the real test rows are.

    Examples
    --------
    >>> from sklearn.datasets import load_iris
    >>> from sklearn.model_selection import train_test_split
    >>> from sklearn.neighbors import KNeighborsClassifier
    >>> from skdpot import DPSlicedFlowSampler
    >>> from skdpot.metrics import train_synthetic_test_real
    >>> X, X_test, y, y_test = train_test_split(*load_iris(return_X_y=True), random_state=0)
    >>> sampler = DPSlicedFlowSampler(epsilon=50.0, bounds=(0, 8), conditional=True)
    >>> copy = sampler.fit(X, y).sample_labeled(500)
    >>> accuracy = train_synthetic_test_real(KNeighborsClassifier(), *copy, X_test, y_test)
    >>> accuracy > 0.6
    True
    """
    fitted = clone(estimator).fit(X_synthetic, y_synthetic)
    return float(check_scoring(fitted, scoring=scoring)(fitted, X_real, y_real))
