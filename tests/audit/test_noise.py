"""Whether stated noise is there: levels, power and what hides it."""

import numpy as np
import pytest
from scipy.stats import chi2, kstest, ncx2

from skdpot.audit.matched_filter import EvidenceSum, NoiseCheck, NoiseEvidence
from skdpot.privacy.events import gdp_epsilon


def evidence_of(energies, n_numbers=100, **options):
    checks = [
        NoiseCheck(name=f"table {i + 1}", n_numbers=n_numbers, energy=float(e), **options)
        for i, e in enumerate(energies)
    ]
    return NoiseEvidence.of(checks, 0.95)


def test_p_values_of_correct_noise_are_uniform():
    """Of 2,000 releases through `EvidenceSum`; false alarms of less than one in a million."""
    rng = np.random.default_rng(0)
    heads = rng.random(5) < 0.5
    evidence = EvidenceSum(5, heads)
    for _ in range(2000):
        differences = 3.0 * rng.normal(size=(5, 20))
        exact = np.where(heads, 0.5, -0.5) @ differences
        evidence.add(exact + 0.7 * rng.normal(size=20), differences, 0.7)
    p_values = [check.p_value for check in evidence.checks]
    assert kstest(p_values, "uniform").pvalue > 1e-6


@pytest.mark.parametrize("hidden", [0.0, 20.0])
def test_noise_below_the_power_is_seen_and_correct_noise_is_not_refuted(hidden):
    """n = 4,000 releases; misses of more than 5 % + 2 % have a chance of less than 1e-6."""
    level, n = 1e-3, 100
    check = NoiseCheck(name="t", n_numbers=n, energy=1.0, hidden=hidden)
    factor = check.seen_below(level)
    assert 0.3 < factor < 0.8
    refuted = chi2.ppf(level, n)
    energies = factor**2 * ncx2.rvs(n, hidden / factor**2 + 1e-12, size=4000, random_state=0)
    missed = np.mean(energies > refuted)
    assert missed < 0.07
    if hidden == 0.0:
        assert missed > 0.03  # and no stronger than it says
    assert ncx2.cdf(refuted, n, hidden + 1e-12) <= level * (1 + 1e-6)


def test_what_hides_all_noise_has_no_power():
    assert NoiseCheck(name="t", n_numbers=20, energy=1.0, hidden=40.0).seen_below(1e-3) is None
    assert NoiseCheck(name="t", n_numbers=20, energy=1.0, hidden=np.nan).seen_below(1e-3) is None
    found = evidence_of([100.0], hidden=np.nan)
    assert found.seen_below is None
    assert found.blind == ("table 1",)
    assert "only have been seen by the guesses" in found.verdict


def test_one_bad_release_among_many_is_named():
    rng = np.random.default_rng(0)
    found = evidence_of([*chi2.rvs(100, size=50, random_state=rng), 25.0])
    assert [check.name for check in found.refuting] == ["table 51"]
    assert "REFUTED: table 51 has 0.5 of the noise that it states" in found.verdict
    assert len(found.to_frame()) == 52  # and one of all together


def test_a_little_missing_everywhere_is_seen_in_all_together():
    found = evidence_of([65.0] * 40)
    assert [check.name for check in found.refuting] == ["all together"]


def test_small_releases_are_tested_together():
    found = evidence_of([1.0] * 10, n_numbers=4)
    assert [check.name for check in found.checks] == ["all table"]
    assert found.refuting
    few = evidence_of([1.0], n_numbers=4)
    assert few.blind == ("all table",)
    assert not few.refuting


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


def test_scores_do_not_depend_on_the_coins():
    rng = np.random.default_rng(0)
    residual, differences = rng.normal(size=30), rng.normal(size=(5, 30))
    scores = []
    for heads in (None, np.zeros(5, bool), np.ones(5, bool)):
        evidence = EvidenceSum(5, heads)
        evidence.add(residual, differences, 1.0)
        scores.append(evidence.scores())
    np.testing.assert_array_equal(scores[0], scores[1])
    np.testing.assert_array_equal(scores[0], scores[2])
