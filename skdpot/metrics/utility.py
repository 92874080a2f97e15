"""How useful synthetic rows are in the place of real ones."""

from collections.abc import Callable
from typing import Any

from sklearn.base import BaseEstimator, clone
from sklearn.metrics import check_scoring

__all__ = ["train_synthetic_test_real"]


def train_synthetic_test_real(
    estimator: BaseEstimator,
    X_synthetic: Any,
    y_synthetic: Any,
    X_real: Any,
    y_real: Any,
    *,
    scoring: str | Callable[..., float] | None = None,
) -> float:
    """Score on real rows of a model that was trained on synthetic ones (TSTR).

    Parameters
    ----------
    estimator : estimator
        Classifier or regressor. A clone of it is fitted; it stays as it is.
    X_synthetic : array-like of shape (n, d)
        Synthetic rows to train on. Real rows in their place give the score to compare with
        (train on real, test on real).
    y_synthetic : array-like of shape (n,) or (n, n_outputs)
        Their targets.
    X_real : array-like of shape (m, d)
        Real rows to test on, which the synthetic ones were not made from.
    y_real : array-like of shape (m,) or (m, n_outputs)
        Their targets.
    scoring : str or callable, optional
        A name that scikit-learn knows or ``scorer(estimator, X, y)``; by default the
        estimator's own ``score``: accuracy for classifiers, R² for regressors.

    Returns
    -------
    float
        The score; scikit-learn's scorers are higher when better.

    Raises
    ------
    ValueError
        If scikit-learn does not know `scoring`, or the estimator refuses the rows.
    TypeError
        If the estimator has no ``score`` and `scoring` is not given.

    Privacy
    -------
    All rows are treated as public. The score of a private copy is a public figure only if the
    real rows it is tested on are.

    References
    ----------
    C. Esteban, S. L. Hyland, G. Rätsch, "Real-valued (medical) time series generation with
    recurrent conditional GANs", 2017.

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
