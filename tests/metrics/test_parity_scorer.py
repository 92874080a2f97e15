"""Parity as a score in searches."""

import pickle

import numpy as np
import pytest
import sklearn
from sklearn.linear_model import LogisticRegression
from sklearn.model_selection import GridSearchCV

from skdpot.datasets import make_biased_classification
from skdpot.metrics import (
    demographic_parity_difference,
    disparate_impact,
    make_parity_scorer,
    wasserstein_parity,
)

X, Y, GROUP = make_biased_classification(600, random_state=0)
MODEL = LogisticRegression().fit(X, Y)


@pytest.fixture(autouse=True)
def _routing():
    with sklearn.config_context(enable_metadata_routing=True):
        yield


@pytest.mark.parametrize(
    ("metric", "greater", "sign"),
    [(disparate_impact, True, 1), (demographic_parity_difference, False, -1)],
)
def test_a_score_is_the_metric_of_the_predictions(metric, greater, sign):
    scorer = make_parity_scorer(metric, greater_is_better=greater)
    expected = sign * metric(MODEL.predict(X), sensitive_features=GROUP)
    assert scorer(MODEL, X, Y, sensitive_features=GROUP) == pytest.approx(expected)


def test_scores_of_probabilities():
    scorer = make_parity_scorer(
        wasserstein_parity, greater_is_better=False, response_method="predict_proba"
    )
    expected = -wasserstein_parity(MODEL.predict_proba(X)[:, 1], sensitive_features=GROUP)
    assert scorer(MODEL, X, Y, sensitive_features=GROUP) == pytest.approx(expected)


def test_a_search_weighs_accuracy_and_parity_and_survives_pickling():
    scorer = pickle.loads(
        pickle.dumps(make_parity_scorer(disparate_impact, greater_is_better=True))
    )
    search = GridSearchCV(
        LogisticRegression(),
        {"C": [0.01, 1.0]},
        scoring={"accuracy": "accuracy", "impact": scorer},
        refit="impact",
        cv=3,
        error_score="raise",
    ).fit(X, Y, sensitive_features=GROUP)
    assert np.isfinite(search.cv_results_["mean_test_impact"]).all()
    assert np.isfinite(search.cv_results_["mean_test_accuracy"]).all()
