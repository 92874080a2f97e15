"""Train on synthetic, test on real."""

import numpy as np
import pytest
from sklearn.base import BaseEstimator
from sklearn.datasets import load_diabetes, load_iris
from sklearn.linear_model import LinearRegression
from sklearn.metrics import balanced_accuracy_score, make_scorer, mean_squared_error
from sklearn.neighbors import KNeighborsClassifier

from skdpot.metrics import train_synthetic_test_real

X, y = load_iris(return_X_y=True)
REAL = np.arange(len(X)) % 5 > 0


def test_a_classifier_equals_the_same_steps_by_hand():
    model = KNeighborsClassifier(3).fit(X[:60], y[:60])  # two classes only
    before = model.classes_
    arguments = (model, X[~REAL], y[~REAL], X[REAL], y[REAL])
    predicted = KNeighborsClassifier(3).fit(X[~REAL], y[~REAL]).predict(X[REAL])
    found = train_synthetic_test_real(*arguments)
    assert isinstance(found, float)
    assert found == np.mean(predicted == y[REAL])
    balanced = balanced_accuracy_score(y[REAL], predicted)
    for scoring in ("balanced_accuracy", make_scorer(balanced_accuracy_score)):
        assert train_synthetic_test_real(*arguments, scoring=scoring) == pytest.approx(balanced)
    assert model.classes_ is before  # the estimator stays as it is


def test_a_regressor_of_tables_does_too():
    frame, target = load_diabetes(return_X_y=True, as_frame=True)
    arguments = (LinearRegression(), frame[:200], target[:200], frame[200:], target[200:])
    model = LinearRegression().fit(frame[:200], target[:200])
    expected = model.score(frame[200:], target[200:])
    assert train_synthetic_test_real(*arguments) == pytest.approx(expected)
    error = mean_squared_error(target[200:], model.predict(frame[200:]))
    found = train_synthetic_test_real(*arguments, scoring="neg_mean_squared_error")
    assert found == pytest.approx(-error)


def test_what_is_refused():
    class Silent(BaseEstimator):
        def fit(self, X, y):
            return self

    with pytest.raises(TypeError, match="'score' method"):
        train_synthetic_test_real(Silent(), X, y, X, y)
    with pytest.raises(ValueError, match="scoring"):
        train_synthetic_test_real(KNeighborsClassifier(), X, y, X, y, scoring="nonsense")
