"""The scikit-learn contract of searches, without a single expected failure."""

import pytest
from sklearn.utils.estimator_checks import parametrize_with_checks

from skdpot import FairPrivateClassifier, FairPrivateRegressor
from skdpot.estimators.private_search import PrivateSearchCV
from tests.flat_options import flow_sampler, made

# The checks set random_state, and have features about 100.
pytestmark = [
    pytest.mark.filterwarnings(f"ignore:{text}:skdpot.exceptions.PrivacyWarning")
    for text in (".*makes the privacy noise reproducible", ".*a feature beyond 100")
]
QUICK = {"alpha": 0.0, "batch_fraction": 1.0, "n_steps": 2}
FLOW = {"bounds": (-3, 3), "n_projections": 2, "n_steps": 2, "n_particles": 20}

SEARCHES = [
    PrivateSearchCV(
        made(FairPrivateClassifier, **QUICK), {"mechanism__learning_rate": [0.1, 0.2]}, n_trials=2
    ),
    PrivateSearchCV(
        made(FairPrivateRegressor, target_bounds=(-3, 3), **QUICK),
        {"mechanism__learning_rate": [0.1, 0.2]},
        n_trials=2,
        score_bounds=(-3, 3),
    ),
    PrivateSearchCV(
        flow_sampler(**FLOW), {"mechanism__n_bins": [4, 8]}, n_trials=2, score_bounds=(-3, 3)
    ),
]


@parametrize_with_checks(SEARCHES)
def test_scikit_learn_checks(estimator, check):
    check(estimator)


@pytest.mark.parametrize("estimator", SEARCHES, ids=lambda e: type(e.estimator).__name__)
def test_a_notebook_can_show_it(estimator):
    assert "PrivateSearchCV" in estimator._repr_html_()
