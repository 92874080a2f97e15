"""Predictions that are alike given a private target, and codes that are alike given a class."""

import math

import numpy as np
import pytest

from skdpot import FairPrivateRegressor, PrivacyBudget, PrivateSWAutoencoder
from skdpot.datasets import make_biased_classification
from skdpot.mechanisms import DPSGD, CodeParity, SketchedOutputs
from skdpot.metrics import wasserstein_parity
from skdpot.release.gate import record_releases

pytestmark = pytest.mark.filterwarnings(
    "ignore:.*makes the privacy noise reproducible:skdpot.exceptions.PrivacyWarning"
)


def hinted(n, seed):
    """The target depends on the group, of which a feature tells what the target does not need."""
    rng = np.random.default_rng(seed)
    group = rng.integers(0, 2, n)
    z = 0.6 * rng.standard_normal(n) + 0.5 * group
    hint = 0.8 * (2 * group - 1) + 0.3 * rng.standard_normal(n)
    X = np.column_stack([z + 0.3 * rng.standard_normal(n), hint])
    return X / 2, z + 0.3 * rng.standard_normal(n), group


def made(alpha=0.75, **options):
    options = {"random_state": 0, "target_bounds": (-4, 4)} | options
    return FairPrivateRegressor(
        mechanism=SketchedOutputs(alpha), fairness="equalized_odds", **options
    )


@pytest.mark.slow
@pytest.mark.parametrize("epsilon", [math.inf, 3.0])
def test_predictions_are_alike_given_the_target(epsilon):
    """Not alike in all: the target differs, and so may what is right of it."""
    (X, y, group), (X_test, y_test, of_test) = hinted(15_000, 0), hinted(15_000, 1)
    fitted = made(epsilon=epsilon).fit(X, y, sensitive_features=group)
    np.testing.assert_allclose(fitted.target_bins_, np.quantile(y, [0.2, 0.4, 0.6, 0.8]), atol=0.05)
    given = {"sensitive_features": of_test, "y_true": np.digitize(y_test, fitted.target_bins_)}
    left = wasserstein_parity(fitted.predict(X_test), **given)
    plain = made(0.0, epsilon=epsilon).fit(X, y)
    assert left < 0.5 * wasserstein_parity(plain.predict(X_test), **given)
    assert wasserstein_parity(fitted.predict(X_test), sensitive_features=of_test) > 0.2
    assert fitted.score(X_test, y_test) > plain.score(X_test, y_test) - 0.04 > 0.5


def test_a_record_that_changes_its_bin_is_paid_for():
    """Each record and one of its group in its place, through the map to each table of a fit."""
    X, y, group = hinted(600, 2)
    with record_releases() as releases:
        fitted = made(epsilon=30.0).fit(X, y, sensitive_features=group)
    tables = [release for release in releases if release.kind == "table"]
    assert len(tables) == 2 + 5
    other, rng, largest = np.arange(len(X)), np.random.default_rng(0), []
    for code in (0, 1):
        other[group == code] = rng.permutation(other[group == code])
    records = np.vstack([X, X[other]]), np.concatenate([y, y[other]])
    for release in tables:
        assert set(release.linear.args[1]) <= {0, 1}  # the groups: bins follow from targets
        (part,) = release.parts(fitted._seen_by(release, *records), np.full(2 * len(X), 0.5))
        first, second = np.split(part.rows.array, 2)
        assert np.abs(release.value.ravel() - first.sum(axis=0)).max() < 6 * release.sigma
        moved = np.linalg.norm(first - second, axis=1).max()
        largest.append(moved / release.sensitivity)
    assert 0.9 < min(largest[2:])
    assert max(largest) <= 1.0 + 1e-9


@pytest.mark.parametrize(
    ("options", "width", "message"),
    [
        ({"mechanism": "barycenter"}, 1, 'needs mechanism="sketch"'),
        ({"mechanism": "ranks"}, 1, 'needs mechanism="sketch"'),
        ({}, 2, "a single target"),
    ],
)
def test_what_cannot_be_alike_given_the_target_is_refused(options, width, message):
    X, y, group = hinted(60, 3)
    budget = PrivacyBudget(1.0)
    with pytest.raises(ValueError, match=message):
        made(budget=budget).set_params(**options).fit(
            X, np.column_stack([y] * width), sensitive_features=group
        )
    assert budget.history().empty


@pytest.mark.slow
@pytest.mark.parametrize("comparison", ["sketch", "ranks"])
def test_codes_are_alike_given_the_class(comparison):
    X, y, group = make_biased_classification(4000, random_state=0)
    given = {"sensitive_features": group, "y_true": y}

    def left(penalty):
        encoder = PrivateSWAutoencoder(
            epsilon=math.inf,
            penalty=penalty,
            mechanism=DPSGD(100, learning_rate=0.02, batch_size=400),
            bounds=(-1.5, 2.5),
            latent_dim=3,
            random_state=0,
        )
        return wasserstein_parity(encoder.fit(X, y, sensitive_features=group).transform(X), **given)

    penalty = CodeParity(0.75, comparison=comparison, fairness="equalized_odds")
    assert left(penalty) < 0.5 * left(None)
    with pytest.raises(ValueError, match="requires y to be passed"):
        PrivateSWAutoencoder(penalty=penalty).fit(X, sensitive_features=group)
