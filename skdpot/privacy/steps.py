r"""Steps: one release each, in units of its own noise.

Events that do the same thing in other units (sigma 10 for sensitivity 2, or 5 for 1) give equal
steps, so that steps can be counted and what is computed for them reused. A step is mu-GDP on all
records. One that sees a secret sample only tells less: its privacy profile is below, in closed
form, and `skdpot.privacy.loss_distribution` makes of it what can be composed.

Samples under replace-one, of a fixed size
------------------------------------------
The privacy profile of one step on a uniformly random subset that holds a given record with
probability p is at most, for every :math:`\varepsilon \ge 0`,

.. math:: C_p(\varepsilon) = p \, \delta_G(\log(1 + (e^\varepsilon - 1) / p)),

:math:`\delta_G` being the profile of the same step on all records [1]_. Replace-one is symmetric,
so the profile at negative epsilon follows and :math:`C_p` belongs to one pair of distributions,
whose composition bounds the composition of the steps [2]_. Normal approximations of that
composition are not bounds: they can fall below what an adversary attains.

Rows of a Poisson sample, whose number anyone can count
-------------------------------------------------------
Let b be the size of the sample and :math:`P_b, Q_b` the laws of the release given it, for two
neighbours under replace-one. The sample size follows Bin(n, q) whatever the data are, and can
be read off the release. The profile of a pair of which a part with a common law is visible is
the mean of the profiles given that part:

.. math:: H_\varepsilon(P \| Q) = \sum_b \Pr[b] \, H_\varepsilon(P_b \| Q_b).

Given b, a Poisson sample is a uniform subset of b of the n records, drawn without replacement. So
the profile of a step is at most

.. math:: \bar C(\varepsilon) = \mathrm{E}_{b \sim \mathrm{Bin}(n, q)} \, C_{b/n}(\varepsilon),

attained when each :math:`C_{b/n}` is. A mean of symmetric profiles is the symmetric profile of
one pair of distributions, so that what is said there of composition holds here too.

:math:`C_p(\varepsilon) = p f((e^\varepsilon - 1)/p)`, with the convex and decreasing
:math:`f(t) = \delta_G(\log(1 + t))`, is the perspective of f: convex and increasing in p. By
Jensen's inequality the mean is therefore *larger* than :math:`C_q`, the account of a sample of
the expected size, which is no bound. The same convexity lets the law of b be moved outwards to
a few nodes, each mass split between two neighbouring nodes so that its mean is kept: the result
is an upper bound, and so is what rounds b up.

Poisson samples whose size is hidden
------------------------------------
*One record more or less.* :math:`M = (1 - p) N(0, 1) + p N(\mu, 1)` against :math:`N = N(0, 1)`.
Sorting terms, :math:`M - e^\varepsilon N = p N(\mu, 1) - (e^\varepsilon - 1 + p) N`, so that one
order has the profile :math:`C_p`. In the other,
:math:`N - e^\varepsilon M = a N - e^\varepsilon p N(\mu, 1)` with
:math:`a = 1 - (1 - p) e^\varepsilon`, which gives :math:`a\, \delta_G(\log(e^\varepsilon p / a))`,
and 0 once a is not positive.

*A sum of clipped vectors, one of them replaced.* :math:`P = (1 - p) N(0, 1) + p N(-m, 1)` against
its mirror image :math:`Q`, where :math:`m = \mu / 2`. The likelihood ratio falls with x, and equals
:math:`e^\varepsilon` where :math:`y = e^{xm}` solves
:math:`e^\varepsilon c y^2 + (1 - p)(e^\varepsilon - 1) y = c`, with :math:`c = p e^{-m^2/2}`. The
profile is :math:`P[X < x] - e^\varepsilon Q[X < x]`; eliminating :math:`1 - p` by this equation
leaves two differences that are both positive,

.. math:: \left[p\,\Phi(x + m) - \frac{c}{y} \Phi(x)\right]
          + e^\varepsilon \left[c y\, \Phi(x) - p\, \Phi(x - m)\right].

References
----------
.. [1] B. Balle, G. Barthe, M. Gaboardi, "Privacy Amplification by Subsampling", 2018, theorem 9.
.. [2] Y. Zhu, J. Dong, Y.-X. Wang, "Optimal Accounting of Differential Privacy via
   Characteristic Function", 2022, proposition 30.
"""

import math
from collections.abc import Iterable
from dataclasses import dataclass
from functools import lru_cache
from typing import Any, Protocol, TypeAlias, runtime_checkable

import numpy as np
import numpy.typing as npt
from scipy import stats
from scipy.special import log_ndtr

from skdpot.privacy.gdp import gdp_delta
from skdpot.privacy.lattice_sampler import required_bits, rounding_width
from skdpot.privacy.loss_distribution import LossPair, losses_of_profile

__all__ = [
    "CountedSteps",
    "PoissonAddRemoveStep",
    "PoissonClippedSumStep",
    "PoissonRowsStep",
    "SampledStep",
    "Step",
    "SubsetStep",
    "amplified_delta",
    "leak_of_steps",
    "mean_amplified_delta",
    "mu_of_steps",
    "sampled_step_mu",
    "step_mu",
]

_Floats = npt.NDArray[np.float64]
CountedSteps: TypeAlias = Iterable[tuple[Any, int]]

_COIN_ERROR = 64.0 * 2.0**-53  # of the profiles of Poisson samples: differences, which cancel
# Nodes for the law of b, in standard deviations from the mean; below so many nodes, every size.
_DEVIATIONS = np.concatenate([np.arange(-4.0, 4.1, 0.5), [-10.0, -7.0, -5.0, 5.0, 7.0]])
_MOST_NODES = 64
_TAIL_MASS = 1e-22


@dataclass(frozen=True)
class Step:
    """One release that tells everything with probability `leak`, and is mu-GDP otherwise."""

    mu: float
    leak: float = 0.0


@runtime_checkable
class SampledStep(Protocol):
    """A mu-GDP step of which less is told, as on a secret sample."""

    @property
    def mu(self) -> float:
        """Privacy of the step on all records."""

    @property
    def rate(self) -> float:
        """Probability that a given record is in the sample."""

    def losses(self, interval: float) -> LossPair:
        """Discretise the privacy loss of the step on the multiples of `interval`."""


def step_mu(sigma: float, sensitivity: float, lattice: float | None) -> float:
    """Return mu of one Gaussian release on all the records that it sees.

    On a lattice the ratio ``sensitivity / sigma`` grows by 1 + 1 / (20 s^2), s = sigma / g: a
    discrete Gaussian is not dominated by the continuous one, its excess is about 1 / (24 s^2).
    """
    mu = sensitivity / sigma
    return mu if lattice is None else mu * (1.0 + (lattice / sigma) ** 2 / 20.0)


def sampled_step_mu(sigma: float, sensitivity: float, lattice: float | None) -> float:
    """Return mu of one Gaussian release of which records take part by secret coins.

    On a lattice the release is a random rounding of a continuous one that has the variance
    ``sigma**2 - (rho * g)**2`` (`skdpot.privacy.lattice_sampler`), in any mixture.
    """
    mu = sensitivity / sigma
    if lattice is None:
        return mu
    rho = rounding_width(required_bits(sigma / lattice, mu)) * lattice
    if sigma < 2.0 * rho:
        raise ValueError(
            f"`lattice` must not exceed sigma / {2.0 * rho / lattice:.3g} for Poisson samples, got "
            f"lattice={lattice!r} and sigma={sigma!r}; use a finer lattice or more noise."
        )
    return mu / math.sqrt((1.0 - rho / sigma) * (1.0 + rho / sigma)) * (1.0 + 1e-15)


def mu_of_steps(steps: CountedSteps) -> float:
    """Return the mu of all steps together had each touched all records and none leaked."""
    return math.sqrt(math.fsum(count * step.mu * step.mu for step, count in steps))


def leak_of_steps(steps: CountedSteps) -> float:
    """Return the probability that one of the steps tells everything."""
    leaks = [count * math.log1p(-s.leak) for s, count in steps if isinstance(s, Step) and s.leak]
    return -math.expm1(math.fsum(leaks)) if leaks else 0.0


def amplified_delta(epsilon: _Floats, mu: float, rate: float) -> _Floats:
    """Evaluate C_p for epsilon >= 0, `rate` being p in (0, 1]."""
    # log(1 + (e^eps - 1) / p) = eps - log(p) + log(1 - (1 - p) e^-eps), which cannot overflow;
    # near 0 the first form is the accurate one.
    near = np.log1p(np.expm1(np.minimum(epsilon, 1.0)) / rate)
    far = epsilon - math.log(rate) + np.log1p(-(1.0 - rate) * np.exp(-np.maximum(epsilon, 1.0)))
    return rate * gdp_delta(np.where(epsilon < 1.0, near, far), mu)


def mean_amplified_delta(epsilon: _Floats, mu: float, rate: float, n_samples: int) -> _Floats:
    """Evaluate the mean of C_{b/n} over b ~ Bin(n, rate), or slightly more, for epsilon >= 0."""
    sizes, masses = _sample_sizes(n_samples, rate)
    total = np.zeros(np.shape(epsilon))
    for size, mass in zip(sizes, masses, strict=True):
        if size > 0:  # an empty sample shows nothing
            total += mass * amplified_delta(epsilon, mu, size / n_samples)
    return total


@lru_cache(maxsize=64)
def _sample_sizes(n_samples: int, rate: float) -> tuple[tuple[int, ...], tuple[float, ...]]:
    """Return nodes and masses of a law that dominates Bin(n, rate) for increasing convex f."""
    law = stats.binom(n_samples, rate)
    mean, deviation = n_samples * rate, math.sqrt(n_samples * rate * (1.0 - rate))
    last = mean + 10.0 * deviation
    while law.sf(last) > _TAIL_MASS:  # where the mean is small, there is more mass far out
        last *= 1.2
    if last < _MOST_NODES:
        nodes = np.arange(math.ceil(last) + 1.0)
    else:
        nodes = np.append(np.ceil(mean + deviation * _DEVIATIONS), [0.0, math.ceil(last)])
    nodes = np.unique(np.clip(np.append(nodes, n_samples), 0.0, n_samples)).astype(np.int64)
    masses = np.zeros(len(nodes))
    for k, (low, high) in enumerate(zip(nodes[:-1], nodes[1:], strict=True)):
        if k == len(nodes) - 2:  # the far tail is rounded up
            masses[-1] += law.sf(low)
            break
        inside = np.arange(low + 1, high + 1)
        mass = law.pmf(inside)
        upper = (inside - low) / (high - low)
        masses[k] += float(np.sum(mass * (1.0 - upper)))
        masses[k + 1] += float(np.sum(mass * upper))
    masses[0] += law.cdf(nodes[0])
    return tuple(nodes.tolist()), tuple((masses * (1.0 + 1e-9)).tolist())


def absent_delta(epsilon: _Floats, mu: float, rate: float) -> _Floats:
    """Evaluate the profile of N(0, 1) against the mixture, for epsilon >= 0."""
    with np.errstate(over="ignore", divide="ignore"):
        a = np.maximum(rate - (1.0 - rate) * np.expm1(epsilon), 0.0)
        shifted = np.where(a > 0.0, epsilon + math.log(rate) - np.log(a), np.inf)
    return a * gdp_delta(shifted, mu)


def clipped_sum_delta(epsilon: _Floats, mu: float, rate: float) -> _Floats:
    """Evaluate the profile of (1 - p) N(0, 1) + p N(-m, 1) against its mirror image, m = mu / 2.

    By logarithms, in which no factor overflows.
    """
    m, log_p = mu / 2.0, math.log(rate)
    log_c = log_p - m * m / 2.0
    with np.errstate(divide="ignore"):
        log_b = np.log1p(-rate) + np.log(-np.expm1(-epsilon))
    # y = 2 c e^-eps / (b + sqrt(b^2 + 4 c^2 e^-eps)), where b = (1 - p)(1 - e^-eps)
    log_s = math.log(2.0) + log_c - epsilon / 2.0
    largest = np.maximum(log_b, log_s)
    b, s = np.exp(log_b - largest), np.exp(log_s - largest)
    log_y = math.log(2.0) + log_c - epsilon - largest - np.log(b + np.hypot(b, s))
    x = log_y / m
    middle = log_c + log_ndtr(x)
    first, second = log_p + log_ndtr(x + m), middle - log_y
    third, fourth = epsilon + middle + log_y, epsilon + log_p + log_ndtr(x - m)
    gain: _Floats = np.exp(first) * -np.expm1(second - first)
    gain += np.exp(third) * -np.expm1(fourth - third)
    return np.maximum(gain, 0.0)


@dataclass(frozen=True)
class SubsetStep:
    """One Gaussian step on a secret sample that holds a record with probability `rate`."""

    mu: float
    rate: float

    def losses(self, interval: float) -> LossPair:
        """Discretise C_p."""
        return losses_of_profile(lambda e: amplified_delta(e, self.mu, self.rate), interval)


@dataclass(frozen=True)
class PoissonRowsStep:
    """One Gaussian release of the rows of a Poisson sample of `n_samples`, under replace-one."""

    mu: float
    rate: float
    n_samples: int

    def losses(self, interval: float) -> LossPair:
        """Discretise the mean profile."""
        return losses_of_profile(
            lambda e: mean_amplified_delta(e, self.mu, self.rate, self.n_samples), interval
        )


@dataclass(frozen=True)
class PoissonAddRemoveStep:
    """One Gaussian step on a Poisson sample, under add/remove."""

    mu: float
    rate: float

    def losses(self, interval: float) -> LossPair:
        """Discretise the mixture against N(0, 1), in both orders."""
        return losses_of_profile(
            lambda e: amplified_delta(e, self.mu, self.rate),
            interval,
            backward=lambda e: absent_delta(e, self.mu, self.rate),
            error=_COIN_ERROR,
        )


@dataclass(frozen=True)
class PoissonClippedSumStep:
    """One noisy sum of clipped vectors over a Poisson sample, under replace-one.

    The sensitivity is twice the clipping norm: ``mu = 2 * clipping_norm / sigma``.
    """

    mu: float
    rate: float

    def losses(self, interval: float) -> LossPair:
        """Discretise the mixture against its mirror image."""
        return losses_of_profile(
            lambda e: clipped_sum_delta(e, self.mu, self.rate), interval, error=_COIN_ERROR
        )
