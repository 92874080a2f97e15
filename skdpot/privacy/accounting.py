r"""Accounting: the privacy cost of an event.

`compose` splits an event into steps: steps in closed form, which may leak with a known probability,
and sampled steps, which have loss distributions. Both neighbours have the same probability of no
leak. Given no leak, the loss is the composition of the steps without their leaks, so
``delta = leak + (1 - leak) * delta without leaks``.

Data sets that differ in :math:`k` records
------------------------------------------
Such data sets are the ends of a chain of :math:`k` pairs of neighbours
(`PrivacyLoss.group_epsilon`). If the profile of every pair is at most :math:`H`, the probabilities
of any output set satisfy :math:`P_{i} \le e^x P_{i+1} + H(x)` along the chain for :math:`x \ge 0`,
and so

.. math:: P_0 \le e^{kx} P_k + H(x) \sum_{i<k} e^{ix}.

The group is therefore :math:`(kx,\; H(x)\,(e^{kx} - 1)/(e^x - 1))`-private. If all pairs are
:math:`\mu`-GDP, the group is :math:`k\mu`-GDP [1]_. This bound is smaller, and it is attained if
one statistic moves by :math:`k\Delta`. The error :math:`\tau` of the noise sampler in total
variation counts once at each end of the chain in the second bound, :math:`(1 + e^\epsilon)\tau`,
and in every :math:`H` in the first one. If a release leaks with a probability that is known for
whole groups (`Event.group_leak`) and is :math:`\mu`-GDP otherwise, this probability adds to delta
once. Public facts must be the same along the chain.

References
----------
.. [1] J. Dong, A. Roth, W. Su, "Gaussian Differential Privacy", 2022, theorem 2.14 (groups).
"""

import math
import operator
from collections import Counter
from collections.abc import Callable, Iterable
from dataclasses import dataclass
from functools import lru_cache, reduce
from typing import SupportsIndex, TypeAlias

from skdpot.exceptions import UnknownEventError
from skdpot.privacy.events import (
    CountedStep,
    Event,
    LossStep,
    Relation,
    Step,
    check_group_size,
    leak_of_steps,
    mu_of_steps,
)
from skdpot.privacy.gdp import ApproximateGDP, gdp_delta, gdp_epsilon, raised_gdp_delta
from skdpot.privacy.loss_distribution import LossPair
from skdpot.privacy.units import SAMPLER_LEAK

StepCounts: TypeAlias = tuple[CountedStep, ...]  # different steps in a fixed order
LossSteps: TypeAlias = tuple[tuple[LossStep, int], ...]

# Grids of loss distributions: intervals, numbers of points, points per standard deviation.
_INTERVAL = 1e-4
_COARSEST = 0.05
_STEP_POINTS = 2**18
_COMPOSED_POINTS = 2**23
_POINTS_PER_DEVIATION = 20


@dataclass(frozen=True)
class PrivacyLoss:
    """The privacy loss of all releases, as counted steps; all its numbers are upper bounds."""

    relation: Relation
    steps: StepCounts

    @property
    def n_steps(self) -> int:
        """Number of releases, including sampled ones."""
        return sum(count for _, count in self.steps)

    @property
    def is_sampled(self) -> bool:
        """Whether some steps use secret samples, so that there is no closed form."""
        return not all(isinstance(step, Step) for step, _ in self.steps)

    @property
    def leak(self) -> float:
        """Probability that a threshold releases a value that only one record has."""
        return leak_of_steps(self.steps)

    @property
    def infinity_mass(self) -> float:
        """Probability of infinite losses of the sampled steps; no smaller delta is resolved."""
        losses, _ = _losses(self.steps)
        return 0.0 if losses is None else losses.infinity_mass

    @property
    def mu_without_sampling(self) -> float:
        """The mu of the steps if each used all records: a bound, tight without samples."""
        return mu_of_steps(self.steps)

    def compose(self, other: "PrivacyLoss") -> "PrivacyLoss":
        """Return the loss of both together; the second one may depend on the first."""
        if other.relation is not self.relation:
            raise ValueError(
                f"Losses under {str(self.relation)!r} and {str(other.relation)!r} do not compose."
            )
        return PrivacyLoss(self.relation, counted_steps([*self.steps, *other.steps]))

    def epsilon(self, delta: float) -> float:
        """Return an epsilon such that all releases together are (epsilon, delta)-private."""
        return _epsilon(self.steps, float(delta))

    def delta(self, epsilon: float) -> float:
        """Return a delta such that all releases together are (epsilon, delta)-private."""
        if not epsilon >= 0.0:
            raise ValueError(f"`epsilon` must be >= 0, got {epsilon!r}.")
        rest = raised_gdp_delta(float(epsilon), self.mu_without_sampling)
        losses, mu = _losses(self.steps)
        if losses is not None:
            rest = min(rest, losses.delta(float(epsilon), mu))
        return self.leak + (1.0 - self.leak) * rest

    def to_gdp(self, leak: float) -> ApproximateGDP:
        """Convert to approximate GDP; sampled steps use `leak` if this gives a smaller mu."""
        if not 0.0 <= leak < 1.0:
            raise ValueError(f"`leak` must lie in [0, 1), got {leak!r}.")
        return _to_gdp(self.steps, float(leak))

    def group_epsilon(self, group_size: SupportsIndex, delta: float, leak: float) -> float:
        """Return the smaller of the two bounds of the module; `leak` is `Event.group_leak`."""
        k = check_group_size(group_size)
        error = self.n_steps * SAMPLER_LEAK

        def of_links(x: float) -> bool:
            return math.log(self.delta(x) + error) + _log_chain(x, k) <= math.log(delta)

        def never(x: float) -> bool:
            return math.log(self.leak + error) + _log_chain(x, k) > math.log(delta)

        start = self.epsilon(delta / k)
        least = k * _least(of_links, never, start) if math.isfinite(start) else math.inf
        mu = k * self.mu_without_sampling
        if k == 1 or leak >= delta or math.isinf(mu):
            return least

        def at_ends(epsilon: float) -> float:
            return leak + error * (1.0 + math.exp(min(epsilon, 700.0)))

        return min(
            least,
            _least(
                lambda epsilon: raised_gdp_delta(epsilon, mu) + at_ends(epsilon) <= delta,
                lambda epsilon: at_ends(epsilon) > delta,
                gdp_epsilon(mu, delta),
            ),
        )


def compose(event: Event, count: SupportsIndex = 1) -> PrivacyLoss:
    """Account for `count` releases of `event`.

    Parameters
    ----------
    event : Event
        A past or planned release.
    count : int, default=1
        Number of such releases; later ones may depend on earlier ones.

    Returns
    -------
    PrivacyLoss
        Has methods ``epsilon(delta)`` and ``delta(epsilon)``. Both return upper bounds.

    Raises
    ------
    UnknownEventError
        If the class of `event`, or of one of its phases, does not define its steps. This includes
        subclasses of known events.
    ValueError
        If `count` is not an integer of at least 1.

    Examples
    --------
    The cost of 500 steps on secret batches of a fifth of the records, with sigma equal to five
    times the sensitivity:

    >>> from skdpot.privacy.sampling import SampledGaussianEvent
    >>> training = SampledGaussianEvent(
    ...     sigma=5.0, sensitivity=1.0, sampling="fixed_size", batch_sizes=(200,),
    ...     group_sizes=(1000,), n_steps=500,
    ... )
    >>> compose(training).epsilon(1 / 300_000)
    4.391
    >>> compose(training, 2).epsilon(1 / 300_000)
    6.555
    """
    if not isinstance(event, Event):
        raise UnknownEventError(f"No accountant is known for {type(event).__name__}: no Event.")
    repetitions = operator.index(count)
    if repetitions < 1:
        raise ValueError(f"`count` must be an integer >= 1, got {count!r}.")
    steps = counted_steps((step, n * repetitions) for step, n in event.steps())
    return PrivacyLoss(event.relation, steps)


def counted_steps(steps: Iterable[CountedStep]) -> StepCounts:
    """Merge equal steps and sort them, so that the result does not depend on their order."""
    counts: Counter[Step | LossStep] = Counter()
    for step, count in steps:
        counts[step] += count
    return tuple(sorted(counts.items(), key=lambda item: repr(item[0])))


def _log_chain(x: float, k: int) -> float:
    """Return the logarithm of the sum of exp(i x) over i < k."""
    steps = math.log(k) if x == 0.0 else math.log(math.expm1(-k * x) / math.expm1(-x))
    return steps + (k - 1) * x


def _least(fits: Callable[[float], bool], never: Callable[[float], bool], start: float) -> float:
    """Return nearly the smallest number from `start` on that fits, or infinity if none can."""
    low = high = start
    while not fits(high):
        if never(high):
            return math.inf
        low, high = high, 1.02 * high + 1e-6
    while high - low > 1e-12 * high:
        middle = 0.5 * (low + high)
        low, high = (low, middle) if fits(middle) else (middle, high)
    return high


@lru_cache(maxsize=1024)
def _epsilon(steps: StepCounts, delta: float) -> float:
    """Return the epsilon of composed steps at `delta`, the smaller of two bounds."""
    if leak := leak_of_steps(steps):
        # Slightly less than delta, so that rounding cannot raise the recomputed delta above it.
        delta = (delta * (1.0 - 1e-15) - leak) / (1.0 - leak)
        if delta <= 0.0:
            return math.inf
    bound = gdp_epsilon(mu_of_steps(steps), delta)
    losses, mu = _losses(steps)
    return bound if losses is None else min(bound, losses.epsilon(delta, mu))


@lru_cache(maxsize=1024)
def _to_gdp(steps: StepCounts, leak: float) -> ApproximateGDP:
    """Convert composed steps to approximate GDP, with the smaller mu of two bounds."""
    bound, certain_leak = mu_of_steps(steps), leak_of_steps(steps)
    losses, mu = _losses(steps)
    mu = math.inf if losses is None else math.hypot(mu, losses.to_gdp(leak).mu)
    if mu < bound:
        return ApproximateGDP(mu, leak + (1.0 - leak) * certain_leak)
    return ApproximateGDP(bound, certain_leak)


def _losses(steps: StepCounts) -> tuple[LossPair | None, float]:
    """Return the losses of the sampled steps, or None if unused, and the mu of the others."""
    sampled = tuple((step, n) for step, n in steps if not isinstance(step, Step))
    mu = mu_of_steps((step, n) for step, n in steps if isinstance(step, Step))
    unused = not sampled or math.isinf(mu_of_steps(steps))
    return None if unused else _composed(sampled), mu


@lru_cache(maxsize=4)
def _composed(steps: LossSteps) -> LossPair | None:
    """Compose sampled steps on a common grid, or return None if their losses are too large."""
    interval = _interval(steps)
    if interval > _COARSEST:
        return None
    parts = [step.losses(interval).self_compose(count) for step, count in steps]
    return reduce(LossPair.compose, parts)


def _interval(steps: LossSteps) -> float:
    """Choose the interval of the grid: 1e-4, less for cheap steps, more for large losses.

    Every interval gives an upper bound.
    """
    # The total variation of a step is about 2/5 of the standard deviation of its loss.
    deviation = min(2.5 * step.rate * gdp_delta(0.0, step.mu) for step, _ in steps)
    finer = math.floor(math.log2(min(1.0, deviation / (_POINTS_PER_DEVIATION * _INTERVAL))))
    widest = max(_largest_loss(step) for step, _ in steps)
    # The mean loss is bounded by convexity. Its variance is that of N(mu^2 / 2, mu^2) with
    # probability `rate` and of nearly 0 otherwise. The chi-squared divergence bounds both.
    mean = math.fsum(n * min(s.rate * s.mu**2 / 2.0, _chi_squared(s)) for s, n in steps)
    variance = math.fsum(
        n * min(s.rate * (s.mu**2 + s.mu**4 / 4.0), _chi_squared(s)) for s, n in steps
    )
    total = mean + 9.0 * math.sqrt(variance) + widest
    coarsest = 2.0 * max(widest / _STEP_POINTS, total / _COMPOSED_POINTS)
    coarser = math.ceil(math.log2(coarsest / _INTERVAL))
    return _INTERVAL * 2.0 ** max(finer, coarser)


def _largest_loss(step: LossStep) -> float:
    """Estimate the loss that is exceeded with probability 1e-20."""
    without_sampling = step.mu**2 / 2.0 + 10.0 * step.mu
    if without_sampling > 100.0:
        return max(without_sampling + math.log(step.rate), 1.0)
    return math.log1p(step.rate * math.expm1(without_sampling))


def _chi_squared(step: LossStep) -> float:
    """Return the chi-squared divergence of a sampled step, with mu cut at 10."""
    return step.rate**2 * math.expm1(min(step.mu**2, 100.0))
