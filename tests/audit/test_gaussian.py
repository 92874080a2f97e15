"""The audit by repeated runs: sharp where the noise is wrong by little, and silent where right."""

import dataclasses

import numpy as np
import pytest
from scipy.stats import norm

import skdpot.release.sketch as sketch_module
from skdpot import (
    ClientContribution,
    PrivacyBudget,
    SlicedSketch,
)
from skdpot.audit import gaussian_audit
from skdpot.audit.canaries import CanaryPairs
from skdpot.audit.gaussian import GaussianAuditResult
from skdpot.privacy.events import gdp_epsilon, gdp_mu
from tests.flat_options import private_distance

X = np.random.default_rng(0).uniform(-1, 1, size=(60, 2))
PAIR = CanaryPairs(first=np.array([[1, 0.99]]), second=np.array([[-1, -0.99]]))
SLICES = np.array([[0.8, 0.6], [0.6, 0.8]])
SURE = 1 - 1e-6


@pytest.fixture
def undecoded(monkeypatch):
    """Leave out what follows from the table, which the attack does not read."""
    monkeypatch.setattr(SlicedSketch, "_decode", lambda self: None)


def make(epsilon=1.0, **options):
    return SlicedSketch(
        epsilon, **{"bounds": (-1, 1), "projections": SLICES, "n_bins": 8} | options
    )


def weaken(monkeypatch, factor):
    plan = sketch_module.plan_sketch

    def too_quiet(*args, **kwargs):
        right = plan(*args, **kwargs)
        return dataclasses.replace(right, sigma=right.sigma / factor)

    monkeypatch.setattr(sketch_module, "plan_sketch", too_quiet)


@pytest.mark.usefixtures("undecoded")
@pytest.mark.parametrize("epsilon", [0.5, 3.0])
def test_a_sketch_has_all_the_noise_that_it_claims_and_no_more(epsilon):
    result = gaussian_audit(make(epsilon), X, canaries=PAIR, n_trials=400)
    assert (result.epsilon, result.delta) == (epsilon, 1e-5)
    assert not result.refuted_if_normal(SURE)
    assert result.epsilon_lower_bound(SURE) <= epsilon
    # Nearly all of the μ that was paid for is seen.
    allowed = gdp_mu(epsilon, 1e-5)
    error = 6 * np.sqrt(2 / 400 + allowed**2 / 1600)
    one, other = result.member_scores, result.other_scores
    pooled = np.sqrt((one.var(ddof=1) + other.var(ddof=1)) / 2)
    assert 0.95 * allowed - error < (one.mean() - other.mean()) / pooled < allowed + error
    assert result.mu_lower_bound(SURE) < allowed


@pytest.mark.usefixtures("undecoded")
def test_half_the_noise_is_caught(monkeypatch):
    weaken(monkeypatch, 2)
    result = gaussian_audit(make(6.0), X, canaries=PAIR, n_trials=600)
    assert result.epsilon == 6.0  # what is claimed
    assert result.refuted_if_normal(0.999)
    assert repr(result).startswith("GaussianAuditResult(600 + 600 fits, epsilon >= ")


@pytest.mark.usefixtures("undecoded")
def test_a_tenth_of_the_noise_is_caught_by_counting_too(monkeypatch):
    weaken(monkeypatch, 10)
    result = gaussian_audit(make(), X, canaries=PAIR, n_trials=300)
    assert result.epsilon_lower_bound(0.999) > 1.0
    assert result.epsilon_lower_bound(0.999) > result.epsilon
    assert result.refuted
    assert result.verdict.startswith("REFUTED: ")
    assert result.refuted_if_normal(SURE)


@pytest.mark.usefixtures("undecoded")
def test_labels_are_protected_too():
    y = np.arange(60) % 2
    pair = CanaryPairs(
        first=X[:1], second=X[:1], first_labels=np.array([0]), second_labels=np.array([1])
    )
    options = {"canaries": pair, "n_trials": 100}
    sketch = make(1.0, conditional=True, classes=[0, 1])
    assert not gaussian_audit(sketch, X, y, **options).refuted_if_normal(SURE)
    bare = gaussian_audit(make(np.inf, conditional=True, classes=[0, 1]), X, y, **options)
    assert bare.mu_lower_bound() == np.inf
    assert bare.gaussian_epsilon_lower_bound() == np.inf
    assert not bare.refuted
    assert bare.verdict.endswith("nothing was claimed.")
    assert bare.advantage == 1.0


def test_a_function_and_a_score_of_ones_own():
    def fit(rows, labels):
        return rows[:, 0].sum() + np.random.default_rng().normal()

    def score(audited):
        return np.array([audited.fitted - audited.X[:, 0].sum()])

    pair = CanaryPairs(first=np.array([[1.5]]), second=np.array([[-1.5]]))
    claim = {"epsilon": 1.0, "delta": 1e-5}
    result = gaussian_audit(fit, X[:, :1], canaries=pair, score=score, n_trials=1000, **claim)
    assert 2.6 < result.mu_lower_bound() < 3.1
    assert result.gaussian_epsilon_lower_bound() == gdp_epsilon(result.mu_lower_bound(), 1e-5)


def test_other_noise_is_judged_by_counting():
    """Randomized response with ε = 1, whose scores are no normal ones."""
    rng = np.random.default_rng(0)
    told = rng.random((2, 2000)) < 1 / (1 + np.exp(-1))
    result = result_of(np.where(told[0], 1.0, -1.0), np.where(told[1], -1.0, 1.0))
    assert result.refuted_if_normal(0.999)
    assert 0.5 < result.epsilon_lower_bound() <= 1
    assert not result.refuted


def test_the_normal_bound_holds_as_often_as_it_says():
    rng = np.random.default_rng(5)
    for mu in (0.0, 0.3, 2.0):
        exceeded = sum(
            result_of(rng.normal(mu, 1, 40), rng.normal(0, 1, 30)).mu_lower_bound(0.9) > mu
            for _ in range(400)
        )
        assert 0.05 < exceeded / 400 < 0.15


def test_the_normal_bound_is_that_of_student_without_a_difference():
    members, others = np.array([2.0, 1.0, 3.0, 2.5]), np.array([1.0, 0.0, 2.0, 1.4])
    scaled = result_of(5 * members, 5 * others)
    assert scaled.mu_lower_bound() == pytest.approx(result_of(members, others).mu_lower_bound())
    assert result_of(others, members).mu_lower_bound() == 0.0
    assert result_of(np.ones(4), np.ones(4)).mu_lower_bound() == 0.0
    assert result_of(np.full(4, 2.0), np.ones(4)).mu_lower_bound() == np.inf
    with pytest.raises(ValueError, match="confidence=0"):
        scaled.mu_lower_bound(0)


def result_of(members, others):
    return GaussianAuditResult(members, others, epsilon=1.0, delta=1e-5)


def test_many_scores_give_the_mu_itself():
    grid = norm.ppf((np.arange(20_000) + 0.5) / 20_000)
    assert result_of(grid + 1.3, grid).mu_lower_bound(0.5) == pytest.approx(1.3, abs=1e-3)


@pytest.mark.parametrize("confidence", [1e-9, 0.1, 0.9, 1 - 1e-9])
def test_every_confidence_has_a_bound(confidence):
    rng = np.random.default_rng(0)
    bound = result_of(rng.normal(1.0, 1, 500), rng.normal(0, 1, 500)).mu_lower_bound(confidence)
    # By the normal law of an effect's estimate, whose error is about sqrt(2 / 500 + 1 / 4000).
    assert bound == pytest.approx(1.0 - norm.ppf(confidence) * 0.065, abs=0.1)


def test_refusals():
    with pytest.raises(ValueError, match="budget=None"):
        gaussian_audit(make(budget=PrivacyBudget(1.0)), X)
    with pytest.raises(ValueError, match="random_state=None"):
        gaussian_audit(make(random_state=0), X)
    nested = ClientContribution(private_distance(bounds=(-1, 1), random_state=0))
    with pytest.raises(ValueError, match="estimator__random_state=None"):
        gaussian_audit(nested, X)
    with pytest.raises(ValueError, match="CanaryPairs of one pair"):
        gaussian_audit(make(), X, canaries=1)
    with pytest.raises(TypeError, match="n_trials must be an instance of int, not str"):
        gaussian_audit(make(), X, n_trials="10")
    with pytest.raises(ValueError, match="delta=2 must be"):
        gaussian_audit(make(), X, delta=2)
    with pytest.raises(ValueError, match="n_trials == 3"):
        gaussian_audit(make(), X, n_trials=3)
    two = CanaryPairs(first=X[:2], second=X[2:4])
    with pytest.raises(ValueError, match="CanaryPairs of one pair"):
        gaussian_audit(make(), X, canaries=two)
