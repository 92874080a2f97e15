"""The account of Poisson samples whose size shows, against brute force."""

import math

import numpy as np
import pytest
from scipy import integrate, stats

from skdpot.privacy.accounting import compose
from skdpot.privacy.sampling import SampledGaussianEvent, amplified_delta, mean_amplified_delta

NORMAL = stats.norm


def _profile(first, second, epsilon, low=-40.0, high=40.0) -> float:
    """Integrate max(first - e^eps second, 0) over a line."""
    points = np.linspace(low, high, 400_001)
    gain = np.maximum(first(points) - math.exp(epsilon) * second(points), 0.0)
    return float(integrate.trapezoid(gain, points))


def event_of(sampling="poisson_rows", **options):
    return SampledGaussianEvent(sampling=sampling, sigma=1.0, **options)


def _worst_mechanism(epsilon, mu, rate, n) -> float:
    """Profile of "is the record in the sample?", told with noise beside the size of the sample.

    A record that is absent gives 0, present -> mu, and its replacement gives 0 as well: the
    statistic changes by mu when the record of the batch is replaced, and no pair is worse.
    """
    total = 0.0
    for size in range(n + 1):
        share = size / n
        total += stats.binom.pmf(size, n, rate) * _profile(
            lambda x, p=share: (1 - p) * NORMAL.pdf(x) + p * NORMAL.pdf(x, mu),
            NORMAL.pdf,
            epsilon,
        )
    return total


@pytest.mark.parametrize(("n", "rate", "mu"), [(2, 0.5, 1.0), (4, 0.3, 2.0), (7, 0.6, 0.5)])
def test_mean_profile_is_attained_by_brute_force(n, rate, mu):
    for epsilon in (0.0, 0.3, 1.0, 2.0):
        exact = _worst_mechanism(epsilon, mu, rate, n)
        bound = float(mean_amplified_delta(np.array([epsilon]), mu, rate, n)[0])
        assert bound == pytest.approx(exact, rel=1e-6, abs=1e-12)
        event = event_of(sensitivity=mu, sampling_rate=rate, n_samples=n, n_steps=1)
        assert exact * (1 - 1e-6) <= compose(event).delta(epsilon) <= exact * (1 + 1e-3) + 1e-12


@pytest.mark.parametrize(
    ("n", "rate"),
    [(31, 0.5), (32, 0.5), (40, 0.01), (250, 0.9), (3000, 0.25), (30_000, 0.01), (30_000, 1e-6)],
)
def test_few_sizes_stand_for_all_on_the_private_side(n, rate):
    sizes = np.arange(1, n + 1)
    weights = stats.binom.pmf(sizes, n, rate)
    kept = weights > 1e-30
    for mu in (0.2, 1.5, 6.0):
        for epsilon in (0.0, 0.01, 0.5, 3.0):
            at = np.array([epsilon])
            exact = sum(
                w * amplified_delta(at, mu, s / n)[0]
                for s, w in zip(sizes[kept], weights[kept], strict=True)
            )
            bound = mean_amplified_delta(at, mu, rate, n)[0]
            assert exact <= bound <= 1.1 * exact + 1e-13


def test_composition_by_monte_carlo():
    # Three releases of the mechanism that attains one; 400,000 draws, five standard errors.
    n, rate, mu, n_steps, n_draws = 3, 0.4, 1.5, 3, 400_000
    rng = np.random.default_rng(0)
    loss = np.zeros(n_draws)
    for _ in range(n_steps):
        share = rng.binomial(n, rate, n_draws) / n
        x = rng.standard_normal(n_draws) + mu * (rng.uniform(size=n_draws) < share)
        loss += np.log1p(share * np.expm1(mu * x - mu**2 / 2))
    options = {"sensitivity": mu, "sampling_rate": rate, "n_steps": n_steps}
    event = event_of(n_samples=n, **options)
    for epsilon in (0.5, 1.5, 3.0):
        gains = np.maximum(-np.expm1(epsilon - loss), 0.0)
        error = gains.std() / math.sqrt(n_draws)
        bound = compose(event).delta(epsilon)
        assert gains.mean() - 5 * error <= bound <= 1.2 * (gains.mean() + 5 * error)
    # Where the size of the sample is hidden, less is charged.
    assert gains.mean() - 5 * error > compose(event_of("poisson", **options)).delta(3.0)
