r"""The exact privacy cost of releasing the best of a random number of private trials.

A trial is any mechanism :math:`Q` (draw a candidate, fit it, score it with noise). K independent
trials are made, where K is random and secret, and the trial with the best score is released as a
whole. A fixed number K costs almost as much as K releases [1]_. A random K that is often small
costs little more than one trial [1]_ [2]_.

[2]_ bounds Rényi divergences and [3]_ bounds privacy profiles. The theorem below is the *exact*
worst case over all trials that a given pair of distributions dominates. It is smaller than both
bounds, needs no Rényi accountant, and holds for every law of K.

Theorem
-------
Let f be the generating function of K and :math:`h = f'`, which is positive and increasing. Let a
symmetric pair :math:`(P, P')`, whose points x are ordered by their privacy loss, dominate the
profile of a trial in both orders of the neighbours. For :math:`\lambda = e^\varepsilon \ge 1` the
profile of the best trial is at most

.. math:: J(\lambda) = \sup_l \int_{x \ge l} \sup_{z \le l} \left(h(P[z, x])\, dP(x)
          - \lambda\, h(P'[z, x])\, dP'(x)\right).

*Proof.* (1) By Blackwell's theorem a trial is a post-processing of a draw from P or P'. Releasing
that draw as well does not lower the cost, so a trial can be taken as a point of likelihood ratio
:math:`dP/dP'`, in an arbitrary order of preference, where equally good trials are ordered by coins.
(The first of equally good trials may be kept instead: given K, each of them is the best with the
same law, :math:`\sum_i a^{i-1} b^{K-i} = (b^K - a^K)/(b - a)`, where a and b are the probabilities
of a lower score, and of this score or a lower one.) (2) Let the position of a point be the
probability :math:`t = P[\text{no better}]`, and let :math:`v(t)` be the same probability under P'.
Then :math:`r = dv/dt` is the inverse of the likelihood ratio. The best of K trials has the density
:math:`h(t)\, dt` under P and :math:`h(v)\, dv` under P'. The profile is the supremum of
:math:`\int_S h(t) dt - \lambda \int_S h(v) dv` over sets S of positions. (3) Fix S. The first
integral is then fixed. The second one, :math:`\Phi(r) = \int_S h(v) r\, dt`, is minimised over the
rearrangements r of the inverse likelihood ratios. Its derivative with respect to :math:`r(\tau)` is

.. math:: g(\tau) = 1_S(\tau)\, h(v(\tau)) + \int_{t > \tau,\, t \in S} h'(v)\, r\, dt.

On S, g does not decrease in :math:`\tau`, because h gains what the integral loses. On the
complement C, g does not increase, and the value of g at the first point of S is at least its value
anywhere on C. This order of g is the same *for every r*. Let r* have its smallest values on S, in
decreasing order, and the others on C in increasing order. Along the straight line from r to r* the
derivative of :math:`\Phi` is :math:`\langle g, r^* - r \rangle \le 0` by the rearrangement
inequality, so that :math:`\Phi(r^*) \le \Phi(r)`. (4) In the order r*, S is the set of points above
a loss l, where better points have larger losses, and C is the set below l, where better points have
*smaller* losses. So the points that are no better than a point x of S are an interval
:math:`[z, x]` with :math:`z \le l`, and allowing any z gives J. If the best z does not increase
with x, it defines an order, and the bound is attained.

The pair is symmetric, so both orders of the neighbours have the same bound. Let a trial leak with
probability d and be :math:`\mu`-GDP otherwise. Then one of the K trials leaks with probability at
most :math:`d\, E[K]`. Given that none leaks, K has the law `TrialLaw.thinned`, and the trials are
:math:`\mu`-GDP.

All computed values are upper bounds on J. The Gaussian pair is replaced by a pair on finitely many
losses that dominates it (its profile connects points of the Gaussian profile), and convexity bounds
the values between the points.

References
----------
.. [1] J. Liu, K. Talwar, "Private selection from private candidates", 2019.
.. [2] N. Papernot, T. Steinke, "Hyperparameter tuning with Rényi differential privacy", 2022,
   theorems 2 and 6.
.. [3] A. Koskela, R. Redberg, Y.-X. Wang, "Privacy profiles for private selection", 2024.
"""

import math
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from functools import lru_cache
from typing import TypeAlias

import numpy as np
import numpy.typing as npt

from skdpot._utils.streams import SecretStream
from skdpot.privacy.events import Event, Step, Steps, check_field, or_none, positive, real
from skdpot.privacy.gdp import gdp_delta, gdp_epsilon
from skdpot.privacy.loss_distribution import LossPair, losses_of_profiles

STEEP_SHAPE = 3.0  # laws of a larger shape fall steeply and need more losses
MOST_STEEP_TRIALS = 50.0  # largest mean of steep laws
LARGEST_MU = 20.0  # a trial with a larger mu protects nothing

_N_LOSSES = 256  # smallest number of positive losses of the pair that dominates a trial
_LOSSES_PER_TRIAL = 9  # for steep laws, which are close to Poisson's
_N_NODES = 128
_BEYOND = 1e-26  # probability of the losses that are counted as infinite
_TAIL = 1e-20
_ROUNDING = 1.0 + 1e-8
_NEVER = 1e300  # subtracted for impossible sets of losses
_SMALLEST_LOG = -40.0  # smallest logarithm of the parameter of a law, for means above any search
_NEGLIGIBLE = 1e-25

_Floats: TypeAlias = npt.NDArray[np.float64]

_probability = check_field(real, lambda x: 0.0 <= x < 1.0, "must lie in [0, 1)")
_shape = check_field(real, lambda x: x >= -0.5, "must be at least -0.5, or infinity")


@dataclass(frozen=True)
class TrialLaw:
    r"""The law of the number K of trials, at least one.

    It is the truncated negative binomial law, :math:`P[K = k] \propto (1 - \gamma)^k \prod_{l<k}
    \frac{l + \eta}{l + 1}`. The shape :math:`\eta = 1` is the geometric law, :math:`\eta = 0` the
    logarithmic law, and :math:`\eta = \infty` the Poisson law given :math:`K \ge 1`.
    """

    shape: float
    parameter: float

    @classmethod
    def with_mean(cls, mean: float, shape: float) -> "TrialLaw":
        """Return the law of this shape with ``E[K] = mean``, for a mean of at least 1."""
        if mean <= 1.0:
            return cls(shape, _NEGLIGIBLE if math.isinf(shape) else 1.0)

        from scipy.optimize import brentq  # loading it takes half a second

        def excess(log_parameter: float) -> float:
            return math.log(cls(shape, math.exp(log_parameter)).mean / mean)

        highest = math.log(mean) + 1.0 if math.isinf(shape) else -1e-12
        root = brentq(excess, _SMALLEST_LOG, highest, xtol=1e-14, rtol=1e-14)
        return cls(shape, math.exp(float(root)))

    @property
    def mean(self) -> float:
        """Expected number of trials."""
        if math.isinf(self.shape):
            return self.parameter / -math.expm1(-self.parameter)
        if self.parameter == 1.0:
            return 1.0
        log = math.log(self.parameter)
        scale = -1.0 / log if self.shape == 0.0 else self.shape / -math.expm1(self.shape * log)
        return (1.0 - self.parameter) / self.parameter * scale

    def slope(self, above: _Floats, order: int = 1) -> _Floats:
        r"""Return a derivative of the generating function f at :math:`1 - t`, t being `above`.

        The first derivative is the density, relative to one trial, at which the best of all trials
        has a rank that a share t of trials exceeds.
        """
        poisson, odds = math.isinf(self.shape), (1.0 - self.parameter) / self.parameter
        if order > 1:
            less = self.slope(above, order - 1)
            if poisson:
                return self.parameter * less
            return (self.shape + (order - 1)) * odds * less / (1.0 + odds * above)
        if poisson:
            return self.mean * np.exp(-self.parameter * above)
        return self.mean * (1.0 + odds * above) ** -(self.shape + 1.0)

    def misses(self, share: float) -> float:
        """Return the probability that no trial is among the best `share` of all trials."""
        below = 1.0 - share
        if math.isinf(self.shape):
            return math.expm1(self.parameter * below) / math.expm1(self.parameter)
        if self.parameter == 1.0:
            return below
        inner, outer = math.log1p(-(1.0 - self.parameter) * below), math.log(self.parameter)
        if self.shape == 0.0:
            return inner / outer
        return math.expm1(-self.shape * inner) / math.expm1(-self.shape * outer)

    def quantile(self, level: float) -> int:
        """Return the smallest k with ``P[K <= k] >= level``, for a level in (0, 1)."""
        for k, mass in self._masses():
            level -= mass
            if level <= 0.0 or (mass < _NEGLIGIBLE and k > self.mean):
                return k
        raise AssertionError  # the masses never end

    def draw(self, stream: SecretStream) -> int:
        """Draw the number of trials."""
        return self.quantile((int(stream.random_uint64(1)[0]) + 0.5) / 2.0**64)

    def thinned(self, leak: float) -> "TrialLaw":
        """Return the law of K given that none of K coins of probability `leak` falls heads.

        Its probabilities are proportional to ``(1 - leak) ** k`` times those of K. This changes the
        parameter and not the shape.
        """
        if math.isinf(self.shape):
            return TrialLaw(self.shape, self.parameter * (1.0 - leak))
        return TrialLaw(self.shape, self.parameter + (1.0 - self.parameter) * leak)

    def _masses(self) -> Iterator[tuple[int, float]]:
        """Yield k and P[K = k] for k = 1, 2, ..."""
        poisson, k = math.isinf(self.shape), 1
        mass = float(self.slope(np.ones(1))[0])  # f'(0)
        while True:
            yield k, mass
            grows = self.parameter if poisson else (1.0 - self.parameter) * (k + self.shape)
            mass *= grows / (k + 1)
            k += 1


@dataclass(frozen=True)
class SelectionStep:
    """The best of a random number of trials, each mu-GDP."""

    trial_mu: float
    law: TrialLaw

    @property
    def rate(self) -> float:
        """The probability that the step reads a given record: 1, because it uses no sample."""
        return 1.0

    @property
    def mu(self) -> float:
        """The step is `mu`-GDP, except with probability `leak`."""
        return _as_gdp(self.trial_mu, self.law)[0]

    @property
    def leak(self) -> float:
        """Probability of the losses that are not resolved."""
        return _as_gdp(self.trial_mu, self.law)[1]

    def losses(self, interval: float) -> LossPair:
        """Discretise the worst profile."""
        return losses_of_profiles([_profile(self.trial_mu, self.law)], interval)


def worst_profile(
    mu: float, law: TrialLaw, epsilon: npt.ArrayLike, *, n_losses: int | None = None
) -> _Floats:
    """Return the largest profile that the best of a random number of mu-GDP trials can have."""
    table = _Table.of(mu, law, n_losses or _enough(law))
    return np.array([table.delta(float(e)) for e in np.atleast_1d(epsilon)])


def _gaussian_pair(mu: float, n_losses: int, mean: float) -> tuple[_Floats, _Floats]:
    """Return a symmetric pair on increasing losses that connects points of the Gaussian profile."""
    epsilon = np.linspace(0.0, gdp_epsilon(mu, _BEYOND / mean), n_losses + 1)
    delta = gdp_delta(epsilon, mu)
    slope = np.append(np.diff(delta) / np.diff(np.exp(epsilon)), 0.0)
    second = np.maximum(np.diff(slope), 0.0)  # at the positive losses
    first = second * np.exp(epsilon[1:])
    rest = 1.0 - math.fsum([*first, *second, float(delta[-1])])
    # In the order of losses: minus infinity, negative, 0, positive, infinity.
    infinite = [float(delta[-1])]
    ahead = np.concatenate([[0.0], second[::-1], [rest], first, infinite])
    return ahead, np.concatenate([infinite, first[::-1], [rest], second, [0.0]])


@dataclass(frozen=True, eq=False)
class _Table:
    """The integrand of J at the edges between the losses of a pair.

    Edge i lies before loss i, so there is one more edge than losses. Entry (i, j), j <= i, is for
    the interval [z, x] of the theorem from z at edge j to x at edge i: the losses between them are
    those that are no better than x.
    """

    mu: float
    law: TrialLaw
    pair: tuple[_Floats, _Floats]
    slope_first: _Floats
    slope_second: _Floats
    usable: _Floats

    @classmethod
    def of(cls, mu: float, law: TrialLaw, n_losses: int) -> "_Table":
        """Tabulate h for both laws.

        The subtracted h is lowered by the largest distance to its chords inside of the cells around
        an edge: at most the squared width times the largest second derivative over 8, in either
        direction.
        """
        ahead, back = _gaussian_pair(mu, n_losses, law.mean)
        first, second = _outside(ahead), _outside(back)
        slope_second = law.slope(second)
        widths = np.maximum(np.append(back, 0.0), np.append(0.0, back))
        nearest = np.maximum(second - widths[:, None] - widths[None, :], 0.0)
        sag = law.slope(nearest, 3) * (widths[:, None] ** 2 + widths[None, :] ** 2) / 8.0
        valid = np.tri(len(first), dtype=bool)  # j <= i
        slope_first = np.where(valid, law.slope(first), 0.0)
        lowered = slope_second - sag
        # A loss can be in S only if its likelihood ratio exceeds lambda times the smallest ratio of
        # slopes.
        with np.errstate(divide="ignore", invalid="ignore"):
            gains = np.where(lowered > 0.0, slope_first / lowered, np.inf)
            gain = np.where(valid, gains, 0.0).max(axis=1)
            ratio = np.maximum(gain[:-1], gain[1:]) * ahead / back
        usable = np.where(back > 0.0, ratio, np.inf)
        lowest = np.where(valid, lowered, _NEVER)
        return cls(mu, law, (ahead, back), slope_first, lowest, usable)

    def delta(self, epsilon: float) -> float:
        """Evaluate the bound, the smaller one of two.

        If the losses are too coarse for the law, the computed bound may not decrease in epsilon. A
        simpler bound does: h(1) >= h >= h(0) under both laws gives h(1) times the profile of the
        trial at epsilon - log(h(1) / h(0)), as in [3]_ of the module.
        """
        ends = self.law.slope(np.array([0.0, 1.0]))
        shift = math.log(ends[0] / ends[1])
        simple = float(ends[0]) * gdp_delta(epsilon - shift, self.mu)
        return float(min(1.0, simple * _ROUNDING, self._computed(epsilon)))

    def _computed(self, epsilon: float) -> float:
        """Evaluate the upper bound on J on the finite losses."""
        scale = math.exp(min(epsilon, 700.0))
        used = np.flatnonzero(self.usable > scale)
        start = int(used[0])
        gains = self.pair[0][start:, None], scale * self.pair[1][start:, None]

        def best(edges: slice) -> _Floats:
            entries = gains[0] * self.slope_first[edges] - gains[1] * self.slope_second[edges]
            return np.maximum.accumulate(entries, axis=1)

        # In a cell the bound is linear in the position of x for every z. The maximum of linear
        # functions is convex, so its mean is at most the mean of its values at the ends.
        with np.errstate(over="ignore"):
            left, right = best(slice(start, -1)), best(slice(start + 1, None))
            n = len(left)
            cells = 0.5 * (left[:, start : start + n] + right[:, start : start + n])
        totals = np.where(np.tri(n, dtype=bool), cells, 0.0).sum(axis=0)
        return max(0.0, float(totals.max())) * _ROUNDING


def _outside(masses: _Floats) -> _Floats:
    """Return the mass outside of the losses between two edges, as entry (i, j) for edges j < i."""
    below = np.append(0.0, np.cumsum(masses))
    above = np.append(np.cumsum(masses[::-1])[::-1], 0.0)
    return np.clip(above[:, None] + below[None, :], 0.0, 1.0)


def _enough(law: TrialLaw) -> int:
    """Return the number of losses that resolves the third derivative of f."""
    steep = _LOSSES_PER_TRIAL * law.mean if law.shape > STEEP_SHAPE else 0.0
    return max(_N_LOSSES, math.ceil(steep))


@lru_cache(maxsize=64)
def _nodes(mu: float, law: TrialLaw) -> tuple[_Floats, _Floats]:
    """Return epsilons from 0 on and the bound at each; the last bound is negligible."""
    table = _Table.of(mu, law, _enough(law))
    last = gdp_epsilon(mu, _TAIL / law.mean)
    step = 0.5 * mu
    while table.delta(last) > _TAIL:
        last, step = last + step, 1.2 * step
    epsilon = np.linspace(0.0, last, _N_NODES)
    delta = np.array([table.delta(float(e)) for e in epsilon])
    return epsilon, np.minimum.accumulate(delta)


def _profile(mu: float, law: TrialLaw) -> Callable[[_Floats], _Floats]:
    """Return the bound for all epsilons, by chords, since it is convex in exp(epsilon)."""
    epsilon, delta = _nodes(mu, law)
    x = np.expm1(epsilon)

    def profile(at: _Floats) -> _Floats:
        return np.interp(np.expm1(np.minimum(at, epsilon[-1])), x, delta)

    return profile


@lru_cache(maxsize=1024)
def _as_gdp(mu: float, law: TrialLaw) -> tuple[float, float]:
    """Return the smallest mu of the whole step and its leak."""
    losses = losses_of_profiles([_profile(mu, law)], float(_nodes(mu, law)[0][-1]) / 2000.0)
    leak = losses.infinity_mass
    return losses.to_gdp(leak).mu, leak


@dataclass(frozen=True, kw_only=True)
class BudgetedEvent(Event):
    """All that a separate `PrivacyBudget` admits, or the best of several such trials.

    A budget is a privacy filter: all its fits, however they depend on each other, reveal no more
    about a bit b than "b with probability `leak`, otherwise one draw of N(mu b, 1)". So they can be
    charged before they are known. With `mean_trials`, a random, secret number of independent trials
    is made, each of which (with its score) is such a draw, and only the one with the best score is
    released. The theorem of this module proves the cost.
    """

    mu: float
    leak: float = 0.0
    mean_trials: float | None = None
    shape: float = 1.0

    in_files = is_budget = True
    _checks = {
        "mu": positive,
        "leak": _probability,
        "mean_trials": or_none(positive),
        "shape": _shape,
    }

    def __post_init__(self) -> None:
        """Check the fields and give them their plain Python types."""
        super().__post_init__()
        if self.mean_trials is None:
            return
        most = MOST_STEEP_TRIALS if self.shape > STEEP_SHAPE else 1e6
        if not 1.0 <= self.mean_trials <= most:
            raise self._error(
                "mean_trials",
                f"must lie in [1, {most:g}] for shape={self.shape:g}, got {self.mean_trials!r}",
            )
        if self.leak * self.mean_trials >= 1.0:
            raise self._error(
                "leak",
                "must be below one over the expected number of trials, got "
                f"{self.leak!r} with mean_trials={self.mean_trials!r}",
            )

    def _steps(self) -> Steps:
        if self.mean_trials is None:
            yield Step(self.mu, self.leak), 1
        elif self.mu > LARGEST_MU:
            yield Step(math.inf), 1
        else:
            law = TrialLaw.with_mean(self.mean_trials, self.shape)
            step = SelectionStep(self.mu, law.thinned(self.leak))
            yield step, 1
            yield Step(0.0, min(1.0 - 1e-9, self.mean_trials * self.leak + step.leak)), 1

    def _words(self) -> str:
        bound = self._of_one_record(
            "replacing one record is no easier to notice than a shift of one Gaussian number by "
            f"{self.mu:.4g} standard deviations"
        )
        bound += f", except with probability {self.leak:.2g}" if self.leak > 0.0 else ""
        if self.mean_trials is None:
            return f"All releases that a separate budget admitted: {bound}."
        return (
            f"The best of a random, secret number of trials, {self.mean_trials:.4g} on average, "
            f"and nothing of the others; for each trial with its score, {bound}."
        )
