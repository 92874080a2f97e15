r"""Zero-concentrated privacy as approximate GDP: the least charge that covers every such release.

A release is :math:`\rho`-zCDP if :math:`D_\alpha(P \| Q) \le \rho \alpha` for all
:math:`\alpha > 1`, in both orders of the laws P and Q of neighbours, and so in the limit
:math:`\mathrm{KL} \le \rho` [1]_. A Gaussian release with :math:`\mu = \sqrt{2 \rho}` is
:math:`\rho`-zCDP. So are other releases, such as Laplace noise and randomised response, whose
neighbours are easier to tell apart.

*The class.* Let a test accept with probabilities p under P and q under Q. It is a post-processing,
so the divergence of Bernoulli laws satisfies :math:`d_\alpha(p \| q) \le \rho \alpha` in both
orders. So (p, q) lies in the set R of all pairs with these properties, and the profile of the
release is at most :math:`\sup_R (p - e^\varepsilon q)`, which is convex in :math:`e^\varepsilon`.
Every pair of R is itself a :math:`\rho`-zCDP release of one bit, so no smaller profile holds for
the class.

*Points of the profile.* Let :math:`d_\alpha(p_0 \| q_0) \ge \rho \alpha` for some
:math:`\alpha \ge 1`. The set of pairs whose :math:`d_\alpha` is at most
:math:`d_\alpha(p_0 \| q_0)` is convex and contains R. So R lies in the half-plane of its tangent,
:math:`p - e^\varepsilon q \le p_0 - e^\varepsilon q_0`, with the slope

.. math:: e^\varepsilon = \frac{p_0}{q_0} \Bigl(1 - \frac1\alpha\Bigr)
          \frac{1 - e^{-\alpha s}}{1 - e^{-(\alpha - 1) s}}, \qquad
          s = \operatorname{logit} p_0 - \operatorname{logit} q_0,

whose limit at :math:`\alpha = 1` is :math:`(p_0/q_0)(1 - e^{-s})/s`. The choice of points and
orders affects only the tightness. With :math:`a = \operatorname{logit} p_0`,
:math:`y = -\operatorname{logit} q_0 \ge |a|` and :math:`\ell(z) = \log \cosh(z/2)` they are

- for :math:`a \ge 0`: :math:`\alpha = 1`, with
  :math:`\mathrm{KL} = \frac12 \tanh(a/2) (a + y) + \ell(y) - \ell(a)`;
- for :math:`a < 0`: :math:`\alpha = (y - a) / (y + a)`. There the tilted law is the mirror image
  of the law, as in the inequality of Kearns and Saul for sums of Bernoulli variables, so that
  :math:`d_\alpha = \ell(y) - \ell(a)`.

Both divergences increase with y, so the equation with :math:`\rho \alpha` is solved for y.

*At* :math:`\varepsilon = 0`. R is symmetric: if it contains (p, q), it contains
:math:`(1 - q, 1 - p)`. Adding the tangents at :math:`a = y` of both gives
:math:`p - q \le 2 p_0 - 1 = \tanh(a/2)`, where :math:`a \tanh(a/2) = \rho`. Between the points the
profile is below its chords, and :math:`\mu` is the smallest one that dominates all of them.

*Tightness.* Randomised response with :math:`a \tanh(a/2) = \rho` has :math:`\mathrm{KL} = \rho` and
needs :math:`\mu = 2 \Phi^{-1}(e^a / (1 + e^a))`. The computed :math:`\mu` exceeds that by less than
a millionth for :math:`\rho \le 10`. It is :math:`\sqrt{\pi / 2} = 1.2533` times
:math:`\sqrt{2 \rho}` for small :math:`\rho`, 1.32 times for :math:`\rho = 1` and 1.75 times for
:math:`\rho = 10`. The profile near :math:`\varepsilon = 0` decides, so a small leak would not
reduce :math:`\mu`.

References
----------
.. [1] M. Bun, T. Steinke, "Concentrated differential privacy: simplifications, extensions, and
   lower bounds", 2016, definitions 1.1 and 8.1.
"""

import math
from functools import lru_cache

import numpy as np
import numpy.typing as npt
from scipy.special import expit

from skdpot.privacy.gdp import ROUNDING, ApproximateGDP, bisected
from skdpot.privacy.loss_distribution import least_mu

# Differences lose digits below the smallest rho. Above the largest rho, the profile is closer to 1
# than its rounding margin.
_SMALLEST, LARGEST_RHO = 1e-8, 20.0
_N_POINTS = 3000
_LEAST_LOGIT = -48.0  # below it the profile is smaller than the leak
_LEAK = 1e-20

_Floats = npt.NDArray[np.float64]


@lru_cache(maxsize=1024)
def gdp_of_zcdp(rho: float) -> ApproximateGDP:
    """Return the least approximate GDP that covers every rho-zCDP release, rounded up."""
    if not 0.0 <= rho <= LARGEST_RHO:
        raise ValueError(
            f"rho={rho!r} must lie in [0, {LARGEST_RHO:g}]: a release that costs more "
            "protects nothing."
        )
    epsilon, delta = zcdp_profile(max(rho, _SMALLEST))
    return ApproximateGDP(least_mu(epsilon, delta, _LEAK), _LEAK)


def zcdp_profile(rho: float) -> tuple[_Floats, _Floats]:
    """Return increasing epsilons from 0 on, and bounds on the deltas of the class at each."""
    largest = bisected(lambda a: a * math.tanh(a / 2.0) >= rho)[1]
    # Dense near the largest logit, where the profile determines mu.
    a = largest - (largest - _LEAST_LOGIT) * np.linspace(0.0, 1.0, _N_POINTS) ** 3
    y = _larger_logits(a, rho)
    s, negative = a + y, a < 0.0
    alpha = np.where(negative, (y - a) / s, 1.0)
    with np.errstate(invalid="ignore"):  # 0 / 0 where alpha is 1
        factor = (1.0 - 1.0 / alpha) * np.expm1(-s * alpha) / np.expm1(-s * (alpha - 1.0))
    factor = np.where(negative, factor, -np.expm1(-s) / s)
    # log(p / q) is a + y plus the logarithm of (1 - p) / (1 - q).
    epsilon = s + np.log1p(np.exp(-y)) - np.logaddexp(0.0, a) + np.log(factor)
    delta = np.append(math.tanh(largest / 2.0), expit(a) * (1.0 - factor))
    return np.append(0.0, epsilon), np.minimum(delta * (1.0 + ROUNDING), 1.0)


def _larger_logits(a: _Floats, rho: float) -> _Floats:
    """Solve for y, rounded up: a larger y is a larger set and therefore also a bound."""
    low, high = np.abs(a), np.abs(a) + 1.0
    while np.any(short := _cost(a, high) < rho):
        low, high = np.where(short, high, low), np.where(short, 2.0 * high, high)
    for _ in range(80):
        middle = 0.5 * (low + high)
        short = _cost(a, middle) < rho
        low, high = np.where(short, middle, low), np.where(short, high, middle)
    return high


def _cost(a: _Floats, y: _Floats) -> _Floats:
    """Return the divergence divided by its order, for y > -a."""
    gained = _log_cosh(y) - _log_cosh(np.abs(a))
    kl = 0.5 * np.tanh(a / 2.0) * (a + y) + gained
    return np.where(a < 0.0, gained * (y + a) / (y - np.minimum(a, 0.0)), kl)


def _log_cosh(y: _Floats) -> _Floats:
    """Return log cosh(y / 2) for y >= 0, without overflow."""
    return y / 2.0 + np.log1p(np.exp(-y)) - math.log(2.0)
