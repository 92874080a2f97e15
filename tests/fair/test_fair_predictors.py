"""Fair and private predictors: what they learn, and what they accept."""

import math
import warnings

import numpy as np
import pandas as pd
import polars as pl
import pytest
import torch
from scipy.special import logit
from sklearn.base import clone
from sklearn.datasets import load_breast_cancer
from sklearn.frozen import FrozenEstimator
from sklearn.linear_model import LogisticRegression
from torch import nn

from skdpot import (
    FairPrivateClassifier,
    FairPrivatePostProcessor,
    FairPrivateRegressor,
    FairPrivateTransformer,
    PrivateSWAutoencoder,
)
from skdpot.datasets import make_biased_classification, make_biased_regression
from skdpot.exceptions import FairnessWarning, PrivacyWarning
from skdpot.mechanisms import DPSGD, SketchedOutputs
from skdpot.metrics import disparate_impact, wasserstein_parity
from tests.flat_options import made

pytestmark = pytest.mark.filterwarnings(
    "ignore:.*makes the privacy noise reproducible:skdpot.exceptions.PrivacyWarning"
)

X, Y, GROUP = make_biased_classification(4000, random_state=0)
X_TEST, Y_TEST, GROUP_TEST = make_biased_classification(4000, random_state=1)
RNG = np.random.default_rng(8841)
both_gradients = pytest.mark.parametrize("gradient", ["sketch", "ranks"])


def estimator(kind=FairPrivateClassifier, **changes):
    options = {"epsilon": math.inf, "n_steps": 120, "random_state": 0, "clip_jacobian": 1.0}
    return made(kind, **(options | changes))


def fitted(rows=X, y=Y, groups=GROUP, **changes):
    return estimator(**changes).fit(rows, y, sensitive_features=groups)


def impact(classifier):
    return disparate_impact(classifier.predict(X_TEST), sensitive_features=GROUP_TEST)


def gap(classifier, **options):
    scores = classifier.predict_proba(X_TEST)[:, 1]
    return wasserstein_parity(scores, sensitive_features=GROUP_TEST, **options)


@pytest.mark.slow
@both_gradients
def test_a_larger_alpha_makes_groups_more_alike(gradient):
    """Under equalised odds within classes: what these explain may differ between groups."""
    plain, parity, odds = (
        fitted(mechanism=gradient, **options)
        for options in (
            {"alpha": 0.0},
            {"alpha": 0.8},
            {"alpha": 0.8, "fairness": "equalized_odds"},
        )
    )
    assert impact(plain) < 0.5
    assert impact(parity) > 0.7
    assert gap(parity) < gap(plain) / 4
    assert plain.score(X_TEST, Y_TEST) > 0.8
    assert gap(odds, y_true=Y_TEST) < 0.4 * gap(plain, y_true=Y_TEST)
    assert impact(odds) < impact(parity)
    assert odds.score(X_TEST, Y_TEST) > parity.score(X_TEST, Y_TEST)
    said = [str(one.privacy_spent_) for one in (odds, parity)]
    assert ["same class" in text for text in said] == [True, False]
    assert all("has the same group" in text for text in said)


@pytest.mark.slow
def test_with_noise_the_sketch_is_nearly_as_good():
    classifier = fitted(alpha=0.75, epsilon=3.0)
    assert impact(classifier) > 0.7
    assert classifier.score(X_TEST, Y_TEST) > 0.7


def three_classes():
    centres, names = np.array([[1.0, 0], [-1, 1], [-1, -1]]), np.array(["low", "mid", "top"])
    labels, groups = RNG.integers(0, 3, 3000), RNG.integers(0, 3, 3000)
    rows = centres[labels] + 0.4 * RNG.standard_normal((3000, 2))
    rows = np.c_[rows, np.eye(3)[groups] + 0.1 * RNG.standard_normal((3000, 3))]
    return rows, names[np.where(RNG.random(3000) < 0.5, labels, groups)], groups


OUTPUTS = {
    "classes": (three_classes(), {"n_projections": 4}, "predict_proba"),
    "targets": (
        make_biased_regression(3000, random_state=2),
        {"kind": FairPrivateRegressor, "target_bounds": (0, 1), "n_steps": None}
        | {"clip_gradient": 5.0, "clip_jacobian": 2.0, "n_projections": 6},
        "predict",
    ),
}


@pytest.mark.slow
@both_gradients
@pytest.mark.parametrize("case", OUTPUTS)
def test_several_outputs_and_three_groups(case, gradient):
    (rows, y, groups), options, method = OUTPUTS[case]
    gaps = []
    for alpha in (0.8, 0.0):
        predictor = fitted(rows, y, groups, alpha=alpha, mechanism=gradient, **options)
        outputs = getattr(predictor, method)(rows)
        assert 0 <= outputs.min() <= outputs.max() <= 1
        gaps.append(wasserstein_parity(outputs, sensitive_features=groups))
    assert gaps[0] < 0.4 * gaps[1]
    assert predictor.predict(rows).shape == y.shape
    assert predictor.score(rows, y) > 0.5


@pytest.mark.slow
def test_regression_of_one_target_with_private_bounds():
    rows = RNG.uniform(-1, 1, (5000, 2))
    targets = 1000 + 50 * rows[:, 0]
    with pytest.warns(FairnessWarning, match="one group"):
        regressor = made(FairPrivateRegressor, epsilon=8.0, random_state=0).fit(rows, targets)
    assert regressor.predict(rows).shape == (5000,)
    assert regressor.score(rows, targets) > 0.7
    assert regressor.groups_ is None


class Double(nn.Module):
    def __init__(self):
        super().__init__()
        self.layer = nn.Linear(16, 1).double()

    def forward(self, rows):
        return self.layer(rows.double())


def test_module_may_be_a_network_a_function_or_a_name():
    given = nn.Sequential(nn.Linear(16, 5), nn.ReLU(), nn.Linear(5, 1))
    before = [parameter.clone() for parameter in given.parameters()]
    for module in ("linear", "mlp", given, lambda: nn.Linear(16, 1), Double()):
        assert fitted(module=module, n_steps=30).score(X, Y) > 0.6
    assert all(torch.equal(a, b) for a, b in zip(before, given.parameters(), strict=True))


def test_tables_of_pandas_and_polars():
    names = [f"x{k}" for k in range(16)]
    of_pandas, of_polars = pd.DataFrame(X, columns=names), pl.DataFrame(X, schema=names)
    tables = ((X, Y), (of_pandas, pd.Series(Y)), (of_polars, pl.Series(Y)))
    fits = [fitted(*table, n_steps=3) for table in tables]
    for one, (rows, _) in zip(fits, tables, strict=True):
        np.testing.assert_allclose(one.predict_proba(rows), fits[0].predict_proba(X), rtol=1e-12)
    assert list(fits[1].feature_names_in_) == names


def test_one_group_is_as_alpha_zero_and_says_so():
    with pytest.warns(FairnessWarning, match="one group"):
        alone = estimator(alpha=0.8).fit(X, Y)
    plain = fitted(groups=["a"] * 4000, alpha=0.0)
    assert plain.groups_ is alone.groups_ is None
    np.testing.assert_array_equal(alone.predict_proba(X), plain.predict_proba(X))


def test_the_tuned_threshold_selects_as_many_as_there_are():
    """Where one class in five is 1, a strong penalty leaves hardly any prediction of it."""
    keep = (Y == 0) | (np.random.default_rng(3).random(len(Y)) < 0.25)
    rows, labels, groups = X[keep], Y[keep], GROUP[keep]
    tuned, untuned = (
        fitted(rows, labels, groups, alpha=0.9, tune_threshold=tune) for tune in (True, False)
    )
    assert 0 < tuned.threshold_ < untuned.threshold_ == 0.5
    assert abs(tuned.predict(rows).mean() - labels.mean()) < 0.02
    assert untuned.predict(rows).mean() < 0.5 * labels.mean()
    raw = logit(tuned.threshold_) + tuned.decision_function(X[:50])
    with torch.no_grad():
        network = tuned.network_.double()(torch.from_numpy(X[:50]))[:, 0].numpy()
    np.testing.assert_allclose(raw, network, atol=1e-9)
    probabilities = tuned.predict_proba(X)[:, 1]
    np.testing.assert_array_equal(tuned.predict(X), (probabilities > 0.5).astype(int))


def test_a_declared_class_may_be_absent():
    scores = fitted(classes=[0, 1, 2], n_steps=40).predict_proba(X)
    assert scores.shape == (4000, 3)
    assert scores[:, 2].mean() < 0.2


def test_a_group_that_the_noise_hides_is_named():
    groups = np.where(np.arange(4000) < 30, "rare", GROUP.astype(str))
    with pytest.warns(FairnessWarning, match=r"too small .*: rare \(30 records\)\. .*hides the"):
        fitted(groups=groups, epsilon=1.0, n_steps=3)


@pytest.mark.parametrize("n_steps", [1, 2, 30])
def test_no_release_comes_before_the_first_step(n_steps):
    event = fitted(epsilon=3.0, n_steps=n_steps, n_releases=20).privacy_spent_.event
    assert sum(e.n_steps for e in event.phases[:-1]) == min(20, n_steps - 1)


@pytest.mark.filterwarnings("ignore:.*a feature beyond 10")
@pytest.mark.parametrize("scale", [1e9, 1e30])
def test_rows_beyond_what_is_resolved_are_clipped(scale):
    decide = fitted(n_steps=3).decision_function
    np.testing.assert_array_equal(decide(scale * np.sign(X)), decide(1e8 * np.sign(X)))


@pytest.mark.parametrize("kind", [FairPrivateClassifier, FairPrivateRegressor])
def test_rows_that_are_not_scaled_are_told_from_the_public_ones(kind):
    rows, y = load_breast_cancer(return_X_y=True)
    with warnings.catch_warnings():  # says nothing of private rows
        warnings.filterwarnings("ignore", "Private bounds")
        one = made(kind, n_steps=3, alpha=0.0).fit(rows, y)
    with pytest.warns(PrivacyWarning, match=r"feature beyond 10.* by a PrivateScaler"):
        one.predict(rows[:200])
    scaled = rows / rows.max(axis=0)
    one.predict(scaled)
    one.predict(np.vstack([scaled[:9], rows[:4]]))  # one of a few outliers says nothing


TABLE = pd.DataFrame({f"x{place}": column for place, column in enumerate(X.T)})
IN_COLUMN = {
    "classifier": FairPrivateClassifier(random_state=0),
    "group-aware": FairPrivateClassifier(group_aware=True, random_state=0),
    "penalty": FairPrivateClassifier(mechanism=SketchedOutputs(n_steps=5), random_state=0),
    "regressor": FairPrivateRegressor(target_bounds=(0, 1), random_state=0),
    "transformer": FairPrivateTransformer(bounds=(-3, 3), random_state=0),
    "post-processor": FairPrivatePostProcessor(
        FrozenEstimator(LogisticRegression().fit(TABLE, Y)), random_state=0
    ),
    "autoencoder": PrivateSWAutoencoder(
        2, penalty="parity", mechanism=DPSGD(n_steps=5), bounds=(-3, 3), random_state=0
    ),
}


@pytest.mark.slow
@pytest.mark.filterwarnings("ignore::skdpot.exceptions.FairnessWarning")
@pytest.mark.filterwarnings("ignore:X does not have valid feature names:UserWarning")
@pytest.mark.parametrize("frame", [pd.DataFrame, pl.DataFrame])
@pytest.mark.parametrize("name", IN_COLUMN)
def test_the_groups_may_be_a_column_of_the_table(name, frame):
    plain = frame({c: TABLE[c].to_numpy() for c in TABLE})
    table = frame({"group": GROUP} | {c: plain[c] for c in plain.columns})
    told, apart = (clone(IN_COLUMN[name]) for _ in range(2))
    told.fit(table, Y, sensitive_features="group")
    apart.fit(plain, Y, sensitive_features=GROUP)
    use = "predict" if hasattr(told, "predict") else "transform"
    found, due = getattr(told, use)(table), getattr(apart, use)
    needs = name in ("group-aware", "transformer", "post-processor")
    given = {"sensitive_features": GROUP} if needs else {}
    np.testing.assert_array_equal(found, due(plain, **given))
    if not needs:
        np.testing.assert_array_equal(getattr(told, use)(plain), found)  # no longer needed
    with pytest.raises(ValueError, match="no column of that name"):
        clone(told).fit(plain, Y, sensitive_features="group")
