r"""Gaussian releases of the rows of a Poisson sample, whose number anyone can count.

Let b be the size of the sample and :math:`P_b, Q_b` the laws of the release given it, for two
neighbours under replace-one. The sample size follows Bin(n, q) whatever the data are, and can
be read off the release. The profile of a pair of which a part with a common law is visible is
the mean of the profiles given that part:

.. math:: H_\varepsilon(P \| Q) = \sum_b \Pr[b] \, H_\varepsilon(P_b \| Q_b).

Given b, a Poisson sample is a uniform subset of b of the n records, drawn without replacement.
So each term is at most :math:`C_{b/n}(\varepsilon)`, the account of fixed-size subsets
(`skdpot.privacy.without_replacement`), and the profile of a step is at most

.. math:: \bar C(\varepsilon) = \mathrm{E}_{b \sim \mathrm{Bin}(n, q)} \, C_{b/n}(\varepsilon),

attained when each :math:`C_{b/n}` is. A mean of symmetric profiles is the symmetric profile of
one pair of distributions, so that what is said there of composition holds here too.

:math:`C_p(\varepsilon) = p f((e^\varepsilon - 1)/p)`, with the convex and decreasing
:math:`f(t) = \delta_G(\log(1 + t))`, is the perspective of f: convex and increasing in p. By
Jensen's inequality the mean is therefore *larger* than :math:`C_q`, the account of a sample of
the expected size, which is no bound. The same convexity lets the law of b be moved outwards to
a few nodes, each mass split between two neighbouring nodes so that its mean is kept: the result
is an upper bound, and so is what rounds b up.
"""

import math
from dataclasses import dataclass
from functools import lru_cache

import numpy as np
import numpy.typing as npt
from scipy import stats

from skdpot.privacy.loss_distribution import LossPair
from skdpot.privacy.symmetric_profile import symmetric_losses
from skdpot.privacy.without_replacement import amplified_delta

__all__ = ["PoissonRowsStep", "mean_amplified_delta"]

_Floats = npt.NDArray[np.float64]

# Nodes for the law of b, in standard deviations from the mean; below so many nodes, every size.
_DEVIATIONS = np.concatenate([np.arange(-4.0, 4.1, 0.5), [-10.0, -7.0, -5.0, 5.0, 7.0]])
_MOST_NODES = 64
_TAIL_MASS = 1e-22


def mean_amplified_delta(epsilon: _Floats, mu: float, rate: float, n_samples: int) -> _Floats:
    """Evaluate the mean of C_{b/n} over b ~ Bin(n, rate), or slightly more.

    Parameters
    ----------
    epsilon : ndarray
        At least 0.
    mu : float
        Privacy of the step on all records, ``sensitivity / sigma``.
    rate : float
        Probability in (0, 1) that a record is in the sample.
    n_samples : int
        Number of records n.

    Returns
    -------
    ndarray
        An upper bound of delta at every `epsilon`.
    """
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


@dataclass(frozen=True)
class PoissonRowsStep:
    """One Gaussian release of the rows of a Poisson sample, under replace-one.

    Parameters
    ----------
    mu : float
        Privacy of the step on all records, ``sensitivity / sigma``.
    rate : float
        Probability in (0, 1) that a given record is in the sample.
    n_samples : int
        Number of records.
    """

    mu: float
    rate: float
    n_samples: int

    def losses(self, interval: float) -> LossPair:
        """Discretise the mean profile."""
        return symmetric_losses(
            lambda epsilon: mean_amplified_delta(epsilon, self.mu, self.rate, self.n_samples),
            interval,
        )
