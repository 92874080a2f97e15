"""Train on synthetic, test on real."""

import numpy as np
import pandas as pd
import pytest
from sklearn.base import BaseEstimator
from sklearn.datasets import load_diabetes, load_iris
from sklearn.exceptions import NotFittedError
from sklearn.linear_model import LinearRegression
from sklearn.metrics import balanced_accuracy_score, make_scorer, mean_squared_error
from sklearn.neighbors import KNeighborsClassifier
from sklearn.utils.validation import check_is_fitted

from skdpot.metrics import train_synthetic_test_real

X, y = load_iris(return_X_y=True)
REAL = np.arange(len(X)) % 5 > 0
SYNTHETIC = ~REAL


def test_equals_the_same_steps_by_hand():
    model = KNeighborsClassifier(3).fit(X[SYNTHETIC], y[SYNTHETIC])
    arguments = (KNeighborsClassifier(3), X[SYNTHETIC], y[SYNTHETIC], X[REAL], y[REAL])
    found = train_synthetic_test_real(*arguments)
    assert isinstance(found, float)
    assert found == np.mean(model.predict(X[REAL]) == y[REAL])
    assert found != train_synthetic_test_real(
        KNeighborsClassifier(3), X[REAL], y[REAL], X[SYNTHETIC], y[SYNTHETIC]
    )
    balanced = balanced_accuracy_score(y[REAL], model.predict(X[REAL]))
    for scoring in ("balanced_accuracy", make_scorer(balanced_accuracy_score)):
        assert train_synthetic_test_real(*arguments, scoring=scoring) == pytest.approx(balanced)


def test_regressors_and_tables():
    frame, target = load_diabetes(return_X_y=True, as_frame=True)
    arguments = (frame[:200], target[:200], frame[200:], target[200:])
    model = LinearRegression().fit(frame[:200], target[:200])
    assert train_synthetic_test_real(LinearRegression(), *arguments) == pytest.approx(
        model.score(frame[200:], target[200:])
    )
    error = mean_squared_error(target[200:], model.predict(frame[200:]))
    assert train_synthetic_test_real(
        LinearRegression(), *arguments, scoring="neg_mean_squared_error"
    ) == pytest.approx(-error)


def test_the_estimator_stays_as_it_is():
    model = KNeighborsClassifier()
    train_synthetic_test_real(model, pd.DataFrame(X), y, pd.DataFrame(X), y)
    with pytest.raises(NotFittedError):
        check_is_fitted(model)
    model.fit(X[:60], y[:60])  # two classes only
    before = model.classes_
    train_synthetic_test_real(model, X, y, X, y)
    assert model.classes_ is before


def test_what_is_refused():
    class Silent(BaseEstimator):
        def fit(self, X, y):
            return self

    with pytest.raises(
        TypeError, match="should be an estimator with a 'score' method|have a 'score' method"
    ):
        train_synthetic_test_real(Silent(), X, y, X, y)
    with pytest.raises(ValueError, match="scoring"):
        train_synthetic_test_real(KNeighborsClassifier(), X, y, X, y, scoring="nonsense")
