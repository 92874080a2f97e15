"""The audit by repeated runs: sharp where the noise is wrong by little, and silent where right."""

import numpy as np
import pytest
from scipy.stats import norm

from skdpot import ClientContribution, PrivacyBudget, SlicedSketch
from skdpot.audit import gaussian_audit
from skdpot.audit.canaries import CanaryPairs
from skdpot.audit.many_runs import GaussianAuditResult
from skdpot.privacy import Reliability
from skdpot.privacy.gdp import gdp_epsilon
from tests.flat_options import private_distance

X = np.random.default_rng(0).uniform(-1, 1, size=(60, 2))
PAIR = CanaryPairs(first=np.array([[1, 0.99]]), second=np.array([[-1, -0.99]]))
SLICES = np.array([[0.8, 0.6], [0.6, 0.8]])
SURE = 1 - 1e-6


@pytest.fixture(autouse=True)
def undecoded(monkeypatch):
    """Leave out what follows from the table, which the attack does not read."""
    monkeypatch.setattr(SlicedSketch, "_decode", lambda self: None)
    monkeypatch.setattr(SlicedSketch, "reliability_", Reliability(()), raising=False)


def make(epsilon=1.0, **options):
    options = {"bounds": (-1, 1), "projections": SLICES, "n_bins": 8} | options
    return SlicedSketch(epsilon, **options)


def result_of(members, others, epsilon=1.0):
    return GaussianAuditResult(members, others, epsilon=epsilon, delta=1e-5)


@pytest.mark.slow
@pytest.mark.parametrize(
    ("epsilon", "factor", "n_trials", "refuted", "refuted_by_counting"),
    [(3.0, 1, 100, False, False), (6.0, 2, 200, True, False), (1.0, 30, 120, True, True)],
)
def test_too_little_noise_is_caught(
    with_noise_over, epsilon, factor, n_trials, refuted, refuted_by_counting
):
    with_noise_over(factor)
    result = gaussian_audit(make(epsilon), X, canaries=PAIR, n_trials=n_trials)
    assert (result.epsilon, result.delta) == (epsilon, 1e-5)  # what is claimed
    confidence = 0.999 if refuted else SURE
    assert result.refuted_if_normal(confidence) == refuted
    assert (result.epsilon_lower_bound(confidence) > epsilon) == refuted_by_counting
    if refuted_by_counting:
        assert result.refuted
        assert result.verdict.startswith("REFUTED: ")


def test_without_noise_labels_are_told():
    labels = {"first_labels": np.array([0]), "second_labels": np.array([1])}
    pair = CanaryPairs(first=X[:1], second=X[:1], **labels)
    sketch = make(np.inf, conditional=True, classes=[0, 1])
    bare = gaussian_audit(sketch, X, np.arange(60) % 2, canaries=pair, n_trials=10)
    assert bare.mu_lower_bound() == bare.gaussian_epsilon_lower_bound() == np.inf
    assert not bare.refuted
    assert "nothing was claimed" in bare.verdict
    assert bare.advantage == 1.0


def test_a_function_and_a_score_of_ones_own():
    noise = np.random.default_rng(0)

    def fit(rows, labels):
        return rows[:, 0].sum() + noise.normal()

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
    members, others = np.array([2.0, 1.0, 3.0, 2.5]), np.array([1.0, 0.0, 2.0, 1.4])
    assert result_of(5 * members, 5 * others).mu_lower_bound() == pytest.approx(
        result_of(members, others).mu_lower_bound()
    )
    assert result_of(others, members).mu_lower_bound() == 0.0


@pytest.mark.parametrize("confidence", [1e-9, 0.1, 0.9, 1 - 1e-9])
def test_every_confidence_has_a_bound(confidence):
    rng = np.random.default_rng(0)
    bound = result_of(rng.normal(1.0, 1, 500), rng.normal(0, 1, 500)).mu_lower_bound(confidence)
    # By the normal law of an effect's estimate, whose error is about sqrt(2 / 500 + 1 / 4000).
    assert bound == pytest.approx(1.0 - norm.ppf(confidence) * 0.065, abs=0.1)


TWO = CanaryPairs(first=X[:2], second=X[2:4])
SEEDED = ClientContribution(private_distance(bounds=(-1, 1), random_state=0))


@pytest.mark.parametrize(
    ("fit", "options", "message"),
    [
        (make(budget=PrivacyBudget(1.0)), {}, "budget=None"),
        (make(random_state=0), {}, "random_state=None"),
        (SEEDED, {}, "estimator__random_state=None"),
        (make(), {"canaries": TWO}, "CanaryPairs of one pair"),
        (make(), {"n_trials": 3}, "n_trials == 3"),
        (make(), {"delta": 2}, "delta=2 must be"),
    ],
)
def test_refusals(fit, options, message):
    with pytest.raises((ValueError, TypeError), match=message):
        gaussian_audit(fit, X, **options)
