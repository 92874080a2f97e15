"""Fair and private predictors: what they learn, what they accept, what they refuse."""

import math
import pickle
import warnings

import numpy as np
import pandas as pd
import polars as pl
import pytest
import torch
from scipy.special import logit
from sklearn.datasets import load_breast_cancer
from sklearn.metrics import accuracy_score, r2_score
from torch import nn

from skdpot import FairPrivateClassifier, FairPrivateRegressor, PrivacyBudget
from skdpot.datasets import make_biased_classification, make_biased_regression
from skdpot.exceptions import FairnessWarning, PrivacyWarning
from skdpot.metrics import disparate_impact, wasserstein_parity
from tests.flat_options import made

pytestmark = pytest.mark.filterwarnings(
    "ignore:.*makes the privacy noise reproducible:skdpot.exceptions.PrivacyWarning"
)

X, Y, GROUP = make_biased_classification(4000, random_state=0)
X_TEST, Y_TEST, GROUP_TEST = make_biased_classification(4000, random_state=1)
GRADIENTS = ("sketch", "ranks")
RNG = np.random.default_rng(8841)


def classifier(**changes):
    options = {"epsilon": math.inf, "n_steps": 120, "random_state": 0, "clip_jacobian": 1.0}
    return made(FairPrivateClassifier, **(options | changes))


def impact(fitted):
    return disparate_impact(fitted.predict(X_TEST), sensitive_features=GROUP_TEST)


@pytest.mark.parametrize("gradient", GRADIENTS)
def test_a_larger_alpha_makes_groups_more_alike(gradient):
    fits = [
        classifier(alpha=alpha, mechanism=gradient).fit(X, Y, sensitive_features=GROUP)
        for alpha in (0.0, 0.8)
    ]
    unfair, fair = (impact(fitted) for fitted in fits)
    assert unfair < 0.5
    assert fair > 0.7
    scores = [fitted.predict_proba(X_TEST)[:, 1] for fitted in fits]
    apart, near = (wasserstein_parity(s, sensitive_features=GROUP_TEST) for s in scores)
    assert near < apart / 4
    assert accuracy_score(Y_TEST, fits[0].predict(X_TEST)) > 0.8


def test_with_noise_the_sketch_is_nearly_as_good():
    fitted = classifier(alpha=0.75, epsilon=3.0)
    fitted.fit(X, Y, sensitive_features=GROUP)
    assert impact(fitted) > 0.7
    assert fitted.score(X_TEST, Y_TEST) > 0.7


@pytest.mark.parametrize("gradient", GRADIENTS)
def test_equalized_odds_compares_within_classes(gradient):
    def gap(fitted):
        scores = fitted.predict_proba(X_TEST)[:, 1]
        return wasserstein_parity(scores, sensitive_features=GROUP_TEST, y_true=Y_TEST)

    options = {"alpha": 0.8, "mechanism": gradient}
    plain = classifier(alpha=0.0).fit(X, Y, sensitive_features=GROUP)
    parity = classifier(**options).fit(X, Y, sensitive_features=GROUP)
    odds = classifier(fairness="equalized_odds", **options).fit(X, Y, sensitive_features=GROUP)
    assert gap(odds) < 0.4 * gap(plain)
    # What the classes explain may differ between groups, so that less has to be given up.
    assert impact(odds) < impact(parity)
    assert odds.score(X_TEST, Y_TEST) > parity.score(X_TEST, Y_TEST)
    assert "same class" in str(odds.privacy_spent_)
    assert "same class" not in str(parity.privacy_spent_)
    assert "has the same group" in str(parity.privacy_spent_)


@pytest.mark.parametrize("gradient", GRADIENTS)
def test_three_classes_and_three_groups(gradient):
    centres = np.array([[1.0, 0], [-1, 1], [-1, -1]])
    labels, groups = RNG.integers(0, 3, 3000), RNG.integers(0, 3, 3000)
    rows = centres[labels] + 0.4 * RNG.standard_normal((3000, 2))
    rows = np.c_[rows, np.eye(3)[groups] + 0.1 * RNG.standard_normal((3000, 3))]
    names = np.array(["low", "mid", "top"])[labels]
    biased = np.where(RNG.random(3000) < 0.5, names, np.array(["low", "mid", "top"])[groups])
    gaps = []
    for alpha in (0.0, 0.8):
        fitted = classifier(alpha=alpha, mechanism=gradient, n_projections=4)
        fitted.fit(rows, biased, sensitive_features=groups)
        assert fitted.predict_proba(rows).sum(axis=1) == pytest.approx(1.0)
        assert set(fitted.predict(rows)) <= set(names)
        gaps.append(wasserstein_parity(fitted.predict_proba(rows), sensitive_features=groups))
    assert gaps[1] < 0.4 * gaps[0]


@pytest.mark.parametrize("gradient", GRADIENTS)
def test_regression_of_two_targets(gradient):
    rows, targets, groups = make_biased_regression(3000, random_state=2)
    gaps = []
    for alpha in (0.0, 0.8):
        fitted = made(
            FairPrivateRegressor,
            alpha=alpha,
            epsilon=math.inf,
            mechanism=gradient,
            target_bounds=(0, 1),
            clip_loss=5.0,
            clip_jacobian=2.0,
            n_projections=6,
            random_state=0,
        ).fit(rows, targets, sensitive_features=groups)
        predicted = fitted.predict(rows)
        assert predicted.shape == targets.shape
        assert predicted.min() >= 0
        assert predicted.max() <= 1
        gaps.append(wasserstein_parity(predicted, sensitive_features=groups))
        if alpha == 0:
            assert r2_score(targets, predicted) > 0.5
    assert gaps[1] < 0.4 * gaps[0]


def test_regression_of_one_target_with_private_bounds():
    rows = RNG.uniform(-1, 1, (5000, 2))
    targets = 1000 + 50 * rows[:, 0]
    with pytest.warns(FairnessWarning, match="one group"):
        fitted = made(FairPrivateRegressor, epsilon=8.0, random_state=0).fit(rows, targets)
    assert fitted.predict(rows).shape == (5000,)
    assert fitted.score(rows, targets) > 0.7
    assert fitted.groups_ is None


def test_module_may_be_a_network_a_function_or_a_name():
    given = nn.Sequential(nn.Linear(16, 5), nn.ReLU(), nn.Linear(5, 1))
    before = [parameter.clone() for parameter in given.parameters()]
    for module in ("linear", "mlp", given, lambda: nn.Linear(16, 1)):
        fitted = classifier(module=module, n_steps=30).fit(X, Y, sensitive_features=GROUP)
        assert fitted.score(X, Y) > 0.6
    assert all(torch.equal(a, b) for a, b in zip(before, given.parameters(), strict=True))


@pytest.mark.parametrize(
    ("module", "text"),
    [
        (nn.Linear(16, 2), r"must be \(2, 1\)"),
        (nn.Linear(3, 1), "one column a feature"),
        (nn.Sequential(nn.BatchNorm1d(16), nn.Linear(16, 1)), "BatchNorm1d"),
    ],
)
def test_networks_that_do_not_fit_are_refused(module, text):
    budget = PrivacyBudget(3.0)
    with pytest.raises(ValueError, match=text):
        classifier(module=module, budget=budget, epsilon=1.0).fit(X, Y, sensitive_features=GROUP)
    assert len(budget.history()) == 0


@pytest.mark.parametrize(
    "kind",
    [
        list,
        np.asarray,
        pd.Series,
        pl.Series,
        lambda g: pd.DataFrame({"sex": g}),
        lambda g: pd.Categorical(np.where(g == 1, "m", "f")),
        lambda g: np.where(g == 1, "m", "f"),
        lambda g: g.astype(bool),
    ],
)
def test_groups_come_in_many_forms(kind):
    fitted = classifier(n_steps=3).fit(X, Y, sensitive_features=kind(GROUP))
    assert len(fitted.groups_) == 2


def test_tables_of_pandas_and_polars():
    names = [f"x{k}" for k in range(16)]
    of_pandas, of_polars = pd.DataFrame(X, columns=names), pl.DataFrame(X, schema=names)
    fits = [
        classifier(n_steps=3).fit(rows, labels, sensitive_features=GROUP)
        for rows, labels in ((X, Y), (of_pandas, pd.Series(Y)), (of_polars, pl.Series(Y)))
    ]
    reference = fits[0].predict_proba(X)
    np.testing.assert_allclose(fits[1].predict_proba(of_pandas), reference, rtol=1e-12)
    np.testing.assert_allclose(fits[2].predict_proba(of_polars), reference, rtol=1e-12)
    assert list(fits[1].feature_names_in_) == names


def test_no_groups_is_one_group_and_says_so():
    with pytest.warns(FairnessWarning, match="one group"):
        alone = classifier(alpha=0.8).fit(X, Y)
    plain = classifier(alpha=0.0).fit(X, Y, sensitive_features=GROUP)
    np.testing.assert_array_equal(alone.predict_proba(X), plain.predict_proba(X))


def test_the_tuned_threshold_selects_as_many_as_there_are():
    """Where one class in five is 1, a strong penalty leaves hardly any prediction of it."""
    keep = (Y == 0) | (np.random.default_rng(3).random(len(Y)) < 0.25)
    rows, labels, groups = X[keep], Y[keep], GROUP[keep]
    fitted = classifier(alpha=0.9, tune_threshold=True).fit(rows, labels, sensitive_features=groups)
    assert 0 < fitted.threshold_ < 0.5
    raw = logit(fitted.threshold_) + fitted.decision_function(X[:50])
    with torch.no_grad():
        network = fitted.network_.double()(torch.from_numpy(X[:50]))[:, 0].numpy()
    np.testing.assert_allclose(raw, network, atol=1e-9)
    untuned = classifier(alpha=0.9).fit(rows, labels, sensitive_features=groups)
    assert abs(fitted.predict(rows).mean() - labels.mean()) < 0.02
    assert untuned.predict(rows).mean() < 0.5 * labels.mean()
    probabilities = fitted.predict_proba(X)[:, 1]
    np.testing.assert_array_equal(fitted.predict(X), (probabilities > 0.5).astype(int))


def test_pickles_predict_alike():
    fitted = classifier(n_steps=3).fit(X, Y, sensitive_features=GROUP)
    again = pickle.loads(pickle.dumps(fitted))
    np.testing.assert_array_equal(again.predict_proba(X), fitted.predict_proba(X))


BAD = {
    "missing group": ({"sensitive_features": [None, *["a"] * 3999]}, {}, "mixed or missing"),
    "short groups": ({"sensitive_features": ["a", "b"]}, {}, "2 labels for 4000 rows"),
    "one group": ({"sensitive_features": ["a"] * 4000}, {}, "at least two groups"),
    "continuous groups": ({"sensitive_features": X[:, 0]}, {}, "continuous"),
    "weights": ({"sample_weight": np.ones(4000)}, {}, "sample_weight is not supported"),
    "tiny group": (
        {"sensitive_features": ["a"] * 3998 + ["b"] * 2},
        {"mechanism": "ranks"},
        "batch_fraction",
    ),
    "empty cell": (
        {"sensitive_features": np.where((GROUP == 1) & (Y == 1), "z", GROUP.astype(str))},
        {"fairness": "equalized_odds"},
        "class 0 has none in group z",
    ),
}


@pytest.mark.parametrize("case", BAD)
def test_bad_groups_are_refused_and_charge_nothing(case):
    given, changes, text = BAD[case]
    budget = PrivacyBudget(3.0)
    estimator = classifier(epsilon=1.0, budget=budget, **changes)
    before = vars(estimator).copy()
    with pytest.raises(ValueError, match=text):
        estimator.fit(X, Y, **({"sensitive_features": GROUP} | given))
    assert len(budget.history()) == 0
    assert vars(estimator) == before


def test_other_refusals():
    with pytest.raises(ValueError, match="single class"):
        classifier().fit(X, np.zeros(4000), sensitive_features=GROUP)
    with pytest.raises(ValueError, match="two classes, and there are 3"):
        classifier(tune_threshold=True).fit(X, np.arange(4000) % 3, sensitive_features=GROUP)
    with pytest.raises(ValueError, match="at most 50"):
        classifier().fit(X, Y, sensitive_features=np.arange(4000))
    with pytest.raises(TypeError, match="function without arguments"):
        classifier(module=nn.Linear).fit(X, Y, sensitive_features=GROUP)
    with pytest.raises(TypeError, match="not groups"):
        classifier().fit(X, Y, groups=GROUP)
    with pytest.raises(ValueError, match="not among the 2 declared"):
        classifier(classes=[0, 2]).fit(X, Y, sensitive_features=GROUP)
    with pytest.raises(ValueError, match='"private" or a pair'):
        made(FairPrivateRegressor, target_bounds="public").fit(X, Y, sensitive_features=GROUP)


def test_a_declared_class_may_be_absent():
    fitted = classifier(classes=[0, 1, 2], n_steps=40).fit(X, Y, sensitive_features=GROUP)
    assert fitted.predict_proba(X).shape == (4000, 3)
    assert fitted.predict_proba(X)[:, 2].mean() < 0.2


def test_a_group_that_the_noise_hides_is_named():
    groups = np.where(np.arange(4000) < 30, "rare", GROUP.astype(str))
    with pytest.warns(FairnessWarning, match=r"too small .*: rare \(30 records\)\. .*hides the"):
        classifier(epsilon=1.0, n_steps=3).fit(X, Y, sensitive_features=groups)


def test_with_alpha_zero_nothing_is_compared_and_one_group_is_enough():
    fitted = classifier(alpha=0.0, n_steps=3).fit(X, Y, sensitive_features=["a"] * 4000)
    assert fitted.groups_ is None


def test_no_release_comes_before_the_first_step():
    for n_steps, n_releases in ((1, 20), (2, 20), (10, 20), (200, 20)):
        fitted = classifier(epsilon=3.0, n_steps=n_steps, n_releases=n_releases)
        event = fitted.fit(X, Y, sensitive_features=GROUP).privacy_spent_.event
        parts = getattr(event, "events", (event,))
        assert sum(e.n_steps for e in parts[:-1]) == min(n_releases, n_steps - 1)


@pytest.mark.parametrize("estimator", [FairPrivateClassifier, FairPrivateRegressor])
def test_rows_that_are_not_scaled_are_told_from_the_public_ones(estimator):
    X, y = load_breast_cancer(return_X_y=True)
    with warnings.catch_warnings():
        warnings.filterwarnings("ignore", category=FairnessWarning)
        warnings.filterwarnings("ignore", "Private bounds")
        fitted = made(estimator, n_steps=3, alpha=0.0).fit(
            X, y
        )  # says nothing: these rows are private
    with pytest.warns(PrivacyWarning, match=r"feature beyond 100.* after PrivateScaler"):
        fitted.predict(X[:200])
    scaled = X / X.max(axis=0)
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        fitted.predict(scaled)
        fitted.predict(np.vstack([scaled[:9], X[:4]]))  # one of a few outliers says nothing
