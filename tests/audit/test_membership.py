"""Membership from a sketch: as likely as its ε allows, and certain where there is too little noise.

Noise is secret, so these tests are random: their margins hold for false alarms of less than 1e-6.
"""

import dataclasses

import matplotlib as mpl
import matplotlib.pyplot as plt
import numpy as np
import pytest
from scipy.stats import binomtest, norm

import skdpot.release.sketch as sketch_module
from skdpot import SlicedSketch
from skdpot.audit import gaussian_audit
from skdpot.audit.canaries import CanaryPairs
from skdpot.audit.membership import MembershipResult
from skdpot.audit.message_attacks import log_likelihood_ratio, statistic_of
from skdpot.privacy.events import gdp_mu

N_TRIALS = 400
SURE = 1 - 1e-6
# The largest deviation of an empirical distribution function (Dvoretzky, Kiefer, Wolfowitz).
BAND = np.sqrt(np.log(2 / 2.5e-7) / (2 * N_TRIALS))
X = np.random.default_rng(0).uniform(-1, 1, size=(60, 2))
X_NEIGHBOUR = X.copy()
# Projections in the first and the last bin of every slice: as far apart as can be.
X[0], X_NEIGHBOUR[0] = (1, 0.99), (-1, -0.99)
SLICES = np.array([[0.8, 0.6], [0.6, 0.8]])


@pytest.fixture(autouse=True)
def undecoded(monkeypatch):
    """Leave out what follows from the table, which the attack does not read."""
    monkeypatch.setattr(SlicedSketch, "_decode", lambda self: None)


def make(epsilon=1.0, **options):
    options = {"bounds": (-1, 1), "projections": SLICES, "n_bins": 8} | options
    return SlicedSketch(epsilon, **options)


def weaken(monkeypatch, factor):
    """Draw less noise than is charged for."""
    plan = sketch_module.plan_sketch

    def too_quiet(*args, **kwargs):
        right = plan(*args, **kwargs)
        return dataclasses.replace(right, sigma=right.sigma / factor)

    monkeypatch.setattr(sketch_module, "plan_sketch", too_quiet)


def game(sketch, n_trials):
    """Release many sketches of both data sets, and attack each of them with the best test."""

    def score(audited):
        worlds = (
            np.vstack([audited.X, row]) for row in (audited.pairs.first, audited.pairs.second)
        )
        return [log_likelihood_ratio(audited.fitted, *worlds)]

    pair = CanaryPairs(first=X[:1], second=X_NEIGHBOUR[:1])
    return gaussian_audit(sketch, X[1:], canaries=pair, score=score, n_trials=n_trials)


def breaks_claim(result):
    fpr, tpr, _ = result.roc()
    return bool(np.any(tpr - BAND > np.exp(result.epsilon) * (fpr + BAND) + result.delta))


@pytest.mark.parametrize("epsilon", [0.3, 1.0, 3.0])
def test_attack_fails_as_epsilon_says(epsilon):
    result = game(make(epsilon), N_TRIALS)
    assert (result.epsilon, result.delta) == (epsilon, 1e-5)
    assert not breaks_claim(result)
    assert result.epsilon_lower_bound(SURE) <= epsilon
    # It is the best test all the same: its scores are those of N(0, 1) against N(μ, 1), with
    # nearly all of the μ that was paid for.
    release = make(epsilon).fit(X)
    signal = np.linalg.norm(statistic_of(release, X) - statistic_of(release, X_NEIGHBOUR))
    mu = signal / release.noise_scale_
    assert 0.95 * gdp_mu(epsilon, 1e-5) < mu <= gdp_mu(epsilon, 1e-5)
    for scores, sign in ((result.member_scores, 1), (result.other_scores, -1)):
        assert abs(scores.mean() - sign * mu**2 / 2) < 5.5 * mu / np.sqrt(N_TRIALS)
        assert abs(scores.std() / mu - 1) < 5.5 / np.sqrt(2 * N_TRIALS)
    optimum = 2 * norm.cdf(mu / 2) - 1
    assert abs(result.advantage - optimum) < 2 * BAND
    assert optimum < result.advantage_bound


def test_a_tenth_of_the_noise_is_caught(monkeypatch):
    weaken(monkeypatch, 10)
    result = game(make(1.0), N_TRIALS)
    assert result.epsilon == 1.0  # what is claimed
    assert breaks_claim(result)
    assert result.epsilon_lower_bound() > 1.0
    assert result.advantage > result.advantage_bound


def test_no_noise_no_doubt():
    sketch = make(np.inf)
    result = game(sketch, 5)
    assert result.advantage == result.advantage_bound == 1.0
    np.testing.assert_array_equal(result.member_scores, np.inf)
    assert log_likelihood_ratio(sketch.fit(X), X, X) == 0.0


def test_refusals():
    with pytest.raises(ValueError, match="X has shape"):
        log_likelihood_ratio(make().fit(X), X[:, :1], X_NEIGHBOUR)


# What a result says about given scores.


def some_result(epsilon=1.0):
    return MembershipResult(np.array([3.0, 2.0, 0.0]), np.array([1.0, 0.0]), epsilon, 1e-5)


def test_roc():
    fpr, tpr, thresholds = some_result().roc()
    np.testing.assert_allclose(thresholds, [np.inf, 3, 2, 1, 0])
    np.testing.assert_allclose(tpr, [0, 1 / 3, 2 / 3, 2 / 3, 1])
    np.testing.assert_allclose(fpr, [0, 0, 0, 0.5, 1])
    assert some_result().advantage == pytest.approx(2 / 3)
    assert repr(some_result()) == (
        "MembershipResult(3 + 2 releases, epsilon=1, delta=1e-05, advantage=0.667 of at most 0.462)"
    )


@pytest.mark.parametrize("epsilon", [0.0, 0.5, 3.0, np.inf])
def test_bounds_agree(epsilon):
    result = some_result(epsilon)
    fpr = np.linspace(0, 1, 100_001)
    bound = result.tpr_bound(fpr)
    assert np.max(bound - fpr) == pytest.approx(result.advantage_bound, abs=1e-4)
    assert np.all(np.diff(bound) >= 0)
    if np.isfinite(epsilon):
        # The region is its own mirror image: the complement of an attack is an attack.
        np.testing.assert_allclose(result.tpr_bound(1 - bound), 1 - fpr, atol=2e-5)


def test_lower_bound_of_normal_scores():
    rng = np.random.default_rng(0)
    scores = rng.normal(2.0, 1.0, 20_000), rng.normal(0.0, 1.0, 20_000)
    result = MembershipResult(*scores, epsilon=1.0, delta=1e-5)
    assert 3.0 < result.epsilon_lower_bound() < result.epsilon_lower_bound(0.5) < 9
    # Backwards it is as good an attack for the other side, but not for this one.
    assert MembershipResult(*scores[::-1], epsilon=1.0, delta=1e-5).epsilon_lower_bound() == 0
    with pytest.raises(ValueError, match="confidence=1"):
        result.epsilon_lower_bound(1)
    with pytest.raises(ValueError, match="Two scores"):
        MembershipResult(scores[0], scores[1][:1], 1.0, 1e-5).epsilon_lower_bound()


def test_lower_bound_by_hand():
    # The first half (even positions) chooses the complement, where low scores speak for the
    # other data set: 40 of 50 against 2 of 50. The second half is counted.
    members, others = np.zeros(100), np.zeros(100)
    members[0:96:2], others[0:20:2] = 1, 1
    members[1:91:2], others[1:25:2] = 1, 1  # low: 5 and 38 of 50
    result = MembershipResult(members, others, epsilon=1.0, delta=1e-3)
    least = binomtest(38, 50).proportion_ci(0.9, method="exact").low
    most = binomtest(5, 50).proportion_ci(0.9, method="exact").high
    assert result.epsilon_lower_bound(0.9) == pytest.approx(np.log((least - 1e-3) / most))


def test_choosing_among_thresholds_costs_no_confidence():
    rng = np.random.default_rng(1)
    wrong = sum(
        MembershipResult(*rng.normal(size=(2, 200)), 1.0, 0.0).epsilon_lower_bound(0.5) > 0
        for _ in range(60)
    )
    assert wrong <= 30


def test_picture():
    before = mpl.get_backend()
    plt.switch_backend("Agg")
    try:
        ax = some_result().plot(color="red")
        assert ax.lines[0].get_color() == "red"
        np.testing.assert_allclose(ax.lines[0].get_xydata().T, some_result().roc()[:2])
        labels = [text.get_text() for text in ax.get_legend().get_texts()]
        assert labels == ["allowed by ε = 1", "attack", "guessing"]
        _, ax = plt.subplots()
        assert some_result().plot(ax=ax, legend=False) is ax
        assert ax.get_legend() is None
    finally:
        plt.close("all")
        plt.switch_backend(before)
