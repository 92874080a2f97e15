"""Stated errors of fair estimators beside true ones, over fits of known laws."""

import math
import warnings

import numpy as np
import pytest

from skdpot import FairPrivateClassifier, FairPrivateRegressor, FairPrivateTransformer
from skdpot.exceptions import ReliabilityWarning
from skdpot.fair.score_law import ScoreLaw
from skdpot.fair.score_lists import ScoreLists
from skdpot.fair.score_noise import ScoreSpread
from skdpot.metrics import wasserstein_parity

pytestmark = [
    pytest.mark.filterwarnings("ignore::skdpot.exceptions.PrivacyWarning"),
    pytest.mark.filterwarnings("ignore::skdpot.exceptions.FairnessWarning"),
]
N_FITS = 200


def drawn(seed, n=1000, d=4, n_groups=2, gap=0.4):
    """Draw rows, a value that they explain in part, and groups that differ in two features."""
    rng = np.random.default_rng(seed)
    group = rng.integers(0, n_groups, n)
    rows = 0.35 * rng.normal(size=(n, d)) + gap * (group[:, None] - 0.5) * (np.arange(d) < 2)
    rows = rows.clip(-1.0, 1.0)
    return rows, rows[:, 0] + rows[:, -1] + 0.3 * rng.normal(size=n), group


def stated(fitted):
    return {item.output: item for item in fitted.reliability_}


def epsilon_of(seed):
    return (0.5, 1.0, 3.0, 10.0)[seed % 4]


@pytest.mark.slow
def test_the_mean_of_predictions_is_within_two_errors():
    errors = []
    for seed in range(N_FITS):
        rows, value, group = drawn(seed)
        model = FairPrivateRegressor(
            epsilon=epsilon_of(seed), target_bounds=(-3, 4), random_state=seed
        ).fit(rows, value, sensitive_features=group)
        off = model.predict(rows).mean() - value.mean()
        errors.append(off / stated(model)["mean of the target"].standard_error)
    assert 0.90 <= np.mean(np.abs(errors) < 2.0) <= 0.99


@pytest.mark.slow
def test_the_predictions_are_within_two_errors_of_those_without_noise():
    inside = []
    for seed in range(N_FITS // 2):
        rows, value, group = drawn(seed)

        def fit(epsilon, seed=seed, rows=rows, value=value, group=group):
            options = {"target_bounds": (-3, 4), "level": 0.0, "random_state": seed}
            model = FairPrivateRegressor(epsilon=epsilon, **options)
            return model.fit(rows, value, sensitive_features=group)

        private = fit(epsilon_of(seed))
        off = private.predict(rows) - fit(math.inf).predict(rows)
        error = stated(private)["predictions of the target"].standard_error
        inside.append(np.sqrt(np.mean(off**2)) < 2.0 * error)
    assert np.mean(inside) >= 0.9


@pytest.mark.slow
def test_the_moves_are_within_two_errors_of_those_without_noise():
    inside = []
    for seed in range(N_FITS // 4):
        rows, _, group = drawn(seed)

        def fit(epsilon, seed=seed, rows=rows, group=group):
            model = FairPrivateTransformer(epsilon=epsilon, bounds=(-1, 1), random_state=seed)
            return model.fit(rows, sensitive_features=group)

        private = fit(epsilon_of(seed))
        options = {"sensitive_features": group}
        off = private.transform(rows, **options) - fit(math.inf).transform(rows, **options)
        for k, item in enumerate(private.reliability_):
            inside.append(np.sqrt(np.mean(off[group == k] ** 2)) < 2.0 * item.standard_error)
    assert np.mean(inside) >= 0.9


@pytest.mark.slow
def test_accuracy_and_rates_of_a_rule_are_within_two_errors():
    """Rates are those of the rows of the fit, which differ from the estimates by noise alone."""
    of_accuracy, of_rates = [], []
    for seed in range(N_FITS // 2):
        rows, value, group = drawn(seed, n=2000)
        y = (value > 0.1).astype(int)
        model = FairPrivateClassifier(
            epsilon=epsilon_of(seed), classes=[0, 1], group_aware=True, random_state=seed
        ).fit(rows, y, sensitive_features=group)
        decided, found = model.predict(rows, sensitive_features=group), stated(model)
        accuracy = found["accuracy"]
        of_accuracy.append((np.mean(decided == y) - accuracy.estimate) / accuracy.standard_error)
        for k in range(2):
            rate = found[f"rate of group {k}"]
            if not rate.replaced:
                off = decided[group == k].mean() - rate.estimate
                of_rates.append(off / rate.standard_error)
    assert np.mean(np.abs(of_accuracy) < 2.0) >= 0.9
    assert np.mean(np.abs(of_rates) < 2.0) >= 0.9


def test_groups_below_the_noise_are_pooled_and_named():
    rows, value, _ = drawn(0, n=6000)
    sizes = [2900, 2900, 100, 60, 40]
    group, y = np.repeat(np.arange(5), sizes), (value > 0.1).astype(int)
    model = FairPrivateClassifier(level=0.8, random_state=0)
    with pytest.warns(ReliabilityWarning, match=r"rate of group 2, rate of group 3 and 1 more"):
        model.fit(rows, y, sensitive_features=group)
    pools = model.score_law_.pools
    assert len({*pools[2:]}) == 1
    assert pools[0] != pools[1]
    for column in ("accuracy_se", "disparate_impact_se", "equalized_odds_difference_se"):
        assert model.frontier_[column].between(0.0, 1.0).all()
    other = model.with_constraint("equal_opportunity")
    assert list(stated(other)) != []


def test_pools_follow_from_sizes_and_noise():
    lists = ScoreLists(np.full(4, 0.25), 2, True)
    sizes, shape = np.array([1000, 1000, 30, 20]), (4, 4, 2, 3)

    def law(sigma):
        covariance = sigma**2 * np.eye(3)
        return ScoreLaw(lists, sizes, np.zeros(shape), covariance, np.eye(4))

    assert law(0.0).pools.tolist() == [0, 1, 2, 3]
    assert law(4.0).pools.tolist() == [0, 1, 2, 2]
    assert law(1e9).pools.tolist() == [0, 0, 0, 0]


def test_predictions_that_are_noise_shrink_to_the_released_mean():
    rows, value, group = drawn(0, n=300, d=40)
    noise = np.random.default_rng(1).permutation(value)
    model = FairPrivateRegressor(epsilon=0.3, target_bounds=(-3, 4), random_state=0)
    with pytest.warns(ReliabilityWarning, match="predictions of the target"):
        model.fit(rows, noise, sensitive_features=group)
    assert model.predict(rows).std() < 0.5 * noise.std()
    before, after = (
        wasserstein_parity(model.with_level(k).predict(rows), sensitive_features=group)
        for k in (0.0, 1.0)
    )
    assert after < before + 0.1


def test_a_lost_range_is_said_with_the_parameter_that_declares_it():
    rows, value, group = drawn(0, n=60)
    model = FairPrivateRegressor(epsilon=0.3, random_state=0)
    with warnings.catch_warnings(record=True) as caught:
        warnings.simplefilter("always")
        model.fit(rows, 1000.0 + value, sensitive_features=group)
    told = [str(item.message) for item in caught if "reproducible" not in str(item.message)]
    assert len(told) == 1
    assert "range of the target;" in told[0]
    assert "target_bounds=(low, high)" in told[0]


def test_scores_that_noise_explains_have_no_signal():
    spread = ScoreSpread(np.array([1.0, 4.0]), np.array([2.0, 1.0]), 0.0, np.zeros(2))
    assert spread.kept.tolist() == [0.0, 0.75]
    assert spread.signal.tolist() == [0.0, 3.0]
    np.testing.assert_allclose(spread.error, [0.0, 0.75**2 + 0.25**2 * 3.0])
    mapped = spread.mapped(2.0, np.ones(2))
    np.testing.assert_allclose(mapped.error, 4.0 * spread.error)
    assert mapped.mean.tolist() == [1.0, 1.0]
