"""The matched filter: estimates of coins, and whether stated noise is there."""

import numpy as np
import pytest
from scipy.sparse import csr_array
from scipy.stats import chi2, kstest, ncx2

from skdpot.audit.matched_filter import EvidenceSum
from skdpot.audit.noise_evidence import NoiseCheck, NoiseEvidence
from skdpot.privacy.gdp import gdp_epsilon

# --- the estimate --------------------------------------------------------------------------------


@pytest.mark.parametrize("form", [np.asarray, csr_array])
def test_the_sum_is_the_evidence_of_all_numbers_side_by_side(form):
    rng = np.random.default_rng(0)
    pairs = (np.arange(5), np.arange(5), np.array([1, 3]))  # the last is of some pairs only
    evidence, together = EvidenceSum(5), EvidenceSum(5)
    residuals, apart = [], []
    for k, sigma, members in zip((7, 20, 3), (0.5, 2.0, 1.0), pairs, strict=True):
        residual, differences = rng.normal(size=k), np.zeros((5, k))
        differences[members] = rng.normal(size=(len(members), k))
        evidence.add(residual, form(differences[members]), sigma, members)
        residuals.append(residual / sigma)
        apart.append(differences / sigma)
    together.add(np.concatenate(residuals), np.concatenate(apart, axis=1), 1.0)
    np.testing.assert_allclose(evidence.scores(), together.scores(), rtol=1e-9)


def test_without_noise_the_equations_are_solved():
    rng = np.random.default_rng(1)
    coins, differences = np.sign(rng.normal(size=30)), rng.normal(size=(30, 40))

    def estimate(residual, differences, sigma=0.0):
        evidence = EvidenceSum(len(differences))
        evidence.add(residual, differences, sigma)
        return evidence.scores()

    np.testing.assert_allclose(estimate(coins @ differences / 2, differences), coins, atol=1e-4)
    # One canary: the matched filter, scaled.
    half, residual = differences[0] / 2, rng.normal(size=40)
    [one] = estimate(residual, differences[:1], 3.0)
    assert one == pytest.approx(residual @ half / (half @ half + 9.0))
    # Canaries that cannot be told apart do not spoil the others.
    twins = differences[[0, 0, 5]]
    assert np.sign(estimate(differences[5] / 2, twins)[2]) == 1


@pytest.mark.parametrize("factor", [0.02, 1.0, 30.0])
def test_the_noise_is_learned_where_the_statement_is_wrong(factor):
    rng = np.random.default_rng(2)
    coins, differences = np.sign(rng.normal(size=60)), rng.normal(size=(60, 200))
    residual = coins @ differences / 2 + 0.8 * rng.normal(size=200)
    stated, true, few = EvidenceSum(60), EvidenceSum(60), EvidenceSum(60)
    stated.add(residual, differences, 0.8 * factor)
    true.add(residual, differences, 0.8)
    np.testing.assert_allclose(stated.scores(), true.scores(), rtol=1e-6)
    # With few numbers there is nothing to learn from: the statement is taken.
    some = differences[:, :100]
    few.add(residual[:100], some, 0.8 * factor)
    system = some @ some.T / 4 + (0.8 * factor) ** 2 * np.eye(60)
    taken = np.linalg.solve(system, some @ residual[:100] / 2)
    np.testing.assert_allclose(few.scores(), taken, rtol=1e-6)


@pytest.mark.parametrize("rate", [1.0, 0.3])
@pytest.mark.parametrize("noise_scale", [0.1, 3.0])
def test_the_estimate_from_batches_is_that_of_least_error(rate, noise_scale):
    rng = np.random.default_rng(0)
    m, n, p = 5, 2, 9
    g, residual = rng.normal(size=(n + 2 * m, p)), rng.normal(size=p)
    evidence = EvidenceSum(m)
    evidence.add_batch(g @ g.T, g @ residual, noise_scale, np.full(len(g), rate))
    shares = np.concatenate([np.ones(n), np.full(2 * m, 0.5)])
    covariance = noise_scale**2 * np.eye(p) + (g.T * (shares * rate * (1 - rate))) @ g
    half = rate * (g[n : n + m] - g[n + m :]) / 2
    expected = half @ np.linalg.solve(covariance + half.T @ half, residual)
    np.testing.assert_allclose(evidence.scores(), expected, rtol=1e-6)


# --- the noise -----------------------------------------------------------------------------------


def evidence_of(energies, n_numbers=100, **options):
    checks = [
        NoiseCheck(name=f"table {i + 1}", n_numbers=n_numbers, energy=float(e), **options)
        for i, e in enumerate(energies)
    ]
    return NoiseEvidence.of(checks, 0.95)


def test_p_values_of_correct_noise_are_uniform():
    """Of 1,000 releases through `EvidenceSum`; false alarms of less than one in a million."""
    rng = np.random.default_rng(0)
    heads = rng.random(5) < 0.5
    evidence, deaf = EvidenceSum(5, heads), EvidenceSum(5)
    for _ in range(1000):
        differences = 3.0 * rng.normal(size=(5, 20))
        residual = np.where(heads, 0.5, -0.5) @ differences + 0.7 * rng.normal(size=20)
        for one in (evidence, deaf):
            one.add(residual, differences, 0.7)
    p_values = [check.p_value for check in evidence.checks]
    assert kstest(p_values, "uniform").pvalue > 1e-6
    np.testing.assert_array_equal(evidence.scores(), deaf.scores())  # coins change no score


@pytest.mark.parametrize("hidden", [0.0, 20.0])
def test_noise_below_the_power_is_seen_and_correct_noise_is_not_refuted(hidden):
    """n = 4,000 releases; misses of more than 5 % + 2 % have a chance of less than 1e-6."""
    level, n = 1e-3, 100
    factor = NoiseCheck(name="t", n_numbers=n, energy=1.0, hidden=hidden).seen_below(level)
    assert 0.3 < factor < 0.8
    refuted = chi2.ppf(level, n)
    energies = factor**2 * ncx2.rvs(n, hidden / factor**2 + 1e-12, size=4000, random_state=0)
    missed = np.mean(energies > refuted)
    assert missed < 0.07
    if hidden == 0.0:
        assert missed > 0.03  # and no stronger than it says
    assert ncx2.cdf(refuted, n, hidden + 1e-12) <= level * (1 + 1e-6)


def test_what_hides_all_noise_has_no_power():
    for hidden in (40.0, np.nan):
        check = NoiseCheck(name="t", n_numbers=20, energy=1.0, hidden=hidden)
        assert check.seen_below(1e-3) is None
    found = evidence_of([100.0], hidden=np.nan)
    assert found.seen_below is None
    assert found.blind == ("table 1",)
    assert "by the guesses" in found.verdict


def test_small_releases_are_tested_together():
    found = evidence_of([1.0] * 10, n_numbers=4)
    assert [check.name for check in found.checks] == ["all table"]
    assert found.refuting
    few = evidence_of([1.0], n_numbers=4)
    assert few.blind == ("all table",)
    assert not few.refuting


def test_what_is_missing_is_named():
    """One bad release among many, and a little that is missing everywhere."""
    found = evidence_of([*chi2.rvs(100, size=50, random_state=np.random.default_rng(0)), 25.0])
    assert [check.name for check in found.refuting] == ["table 51"]
    assert "REFUTED: table 51 has 0.5 of" in found.verdict
    assert len(found.to_frame()) == 52  # and one of all together
    found = evidence_of([65.0] * 40)
    assert [check.name for check in found.refuting] == ["all together"]


def test_the_bound_of_normal_noise_is_nearly_that_of_the_surest_pair():
    signals = np.array([0.1, 0.5])
    found = evidence_of([10_000.0] * 3, n_numbers=10_000, signals=signals)
    most = gdp_epsilon(np.sqrt(1.5), 1e-5)
    assert 0.9 * most < found.gaussian_epsilon_lower(1e-5) < most
    third = evidence_of([10_000.0 / 9] * 3, n_numbers=10_000, signals=signals)
    assert third.gaussian_epsilon_lower(1e-5) > 2.5 * most
    assert evidence_of([0.0], signals=signals).gaussian_epsilon_lower(1e-5) == np.inf
    assert found.gaussian_epsilon_lower(0.0) is None
    assert evidence_of([100.0]).gaussian_epsilon_lower(1e-5) is None
