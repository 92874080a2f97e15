r"""The front door: from an event to the privacy that it costs.

`compose` turns an event into steps: those in closed form, which may leak with a known probability,
and sampled ones (loss distributions). Leaks come on top of the rest: if nothing has leaked, which
is equally probable under both neighbours, what remains is the composition of the other parts, so
that ``delta = leak + (1 - leak) * delta of the rest``. A `PrivacyLoss` only counts steps; what is
expensive is computed on request and remembered, so that composing the same fit again costs nothing.

Data sets that differ in :math:`k` records
------------------------------------------
They are the ends of a chain of :math:`k` neighbours (`PrivacyLoss.group_epsilon`). If the profile
of every link is at most :math:`H`, then at any :math:`x \ge 0` the probabilities of an event
satisfy :math:`P_{i} \le e^x P_{i+1} + H(x)` along the chain, and so

.. math:: P_0 \le e^{kx} P_k + H(x) \sum_{i<k} e^{ix}:

the group is :math:`(kx,\; H(x)\,(e^{kx} - 1)/(e^x - 1))`-private. A link that is
:math:`\mu`-GDP makes a group :math:`k\mu`-GDP [1]_, which is less, and is attained where one
statistic moves by :math:`k\Delta`. A noise sampler that is wrong by :math:`\tau` in total
variation is counted once at each end of the chain there, :math:`(1 + e^\epsilon)\tau`, and in every
:math:`H` here. A release that tells everything with a probability that is known for whole groups
(`Event.group_leak`), and is :math:`\mu`-GDP otherwise, adds that probability to delta once. All of
this needs what is public to be the same along the whole chain.

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
from typing import Any, Protocol, Self, SupportsIndex, TypeAlias

from skdpot.exceptions import UnknownEventError
from skdpot.privacy.events import Event, check_group_size
from skdpot.privacy.gdp import ApproximateGDP, gdp_delta, gdp_epsilon, raised_gdp_delta
from skdpot.privacy.loss_distribution import LossPair
from skdpot.privacy.relation import Relation
from skdpot.privacy.steps import SampledStep, Step, leak_of_steps, mu_of_steps
from skdpot.privacy.units import SAMPLER_LEAK

__all__ = ["Accountant", "PrivacyLoss", "compose"]

Steps: TypeAlias = tuple[tuple[Any, int], ...]

_INTERVAL = 1e-4
_COARSEST = 0.05
_STEP_POINTS = 2**18
_COMPOSED_POINTS = 2**23
_POINTS_PER_DEVIATION = 20


class Accountant(Protocol):
    """What is known of the privacy of some releases together; every number is an upper bound.

    There are three: `ApproximateGDP` (closed form, with a leak), `LossPair` (numerical), and
    `PrivacyLoss`, which takes for each part of an event the one of these that suits it. All pass
    the contract in ``tests/contract/accountant_suite.py``.
    """

    def delta(self, epsilon: float) -> float:
        """Return a delta for which the releases are (epsilon, delta)-private."""

    def epsilon(self, delta: float) -> float:
        """Return an epsilon for which they are, infinity when there is none."""

    def compose(self, other: Self) -> Self:
        """Return what is known of both; the second may depend on the first."""

    def to_gdp(self, leak: float) -> ApproximateGDP:
        """Convert; what is not in closed form may use up to `leak`."""


@dataclass(frozen=True)
class PrivacyLoss:
    """Everything that has been released, as a count of steps.

    Every number that it returns is an upper bound, raised by more than rounding may have lost on
    any machine; on another one the last digits may differ (`skdpot.privacy.gdp.ROUNDING`).

    Parameters
    ----------
    relation : Relation
        The neighbouring relation of all steps.
    steps : tuple of (step, int)
        The distinct steps in a fixed order, each with its number of repetitions.
    """

    relation: Relation
    steps: Steps

    @property
    def n_steps(self) -> int:
        """Number of releases, sampled or not."""
        return sum(count for _, count in self.steps)

    @property
    def is_sampled(self) -> bool:
        """Whether some steps touch secret samples only, so that there is no closed form."""
        return bool(_sampled(self.steps))

    @property
    def leak(self) -> float:
        """Probability that a threshold lets something through that only one record has."""
        return leak_of_steps(self.steps)

    @property
    def infinity_mass(self) -> float:
        """Probability that the sampled steps leave unaccounted; no smaller delta is resolved."""
        losses = _losses(self.steps)
        return 0.0 if losses is None else losses.infinity_mass

    @property
    def mu_without_sampling(self) -> float:
        """The mu of the same steps had each touched all records: a bound, tight without samples."""
        return mu_of_steps(self.steps)

    def compose(self, other: "PrivacyLoss") -> "PrivacyLoss":
        """Return the loss of both releases together; the second may depend on the first.

        Raises
        ------
        ValueError
            If `other` was accounted under another relation.
        """
        if other.relation is not self.relation:
            raise ValueError(
                f"Losses under {str(self.relation)!r} and {str(other.relation)!r} do not compose."
            )
        return PrivacyLoss(self.relation, _counted([*self.steps, *other.steps]))

    def epsilon(self, delta: float) -> float:
        """Return an epsilon such that all releases together are (epsilon, delta)-private.

        Parameters
        ----------
        delta : float
            In (0, 1).

        Returns
        -------
        float
            Infinity when there is none.

        Raises
        ------
        ValueError
            If `delta` is out of range.
        """
        return _epsilon(self.steps, float(delta))

    def delta(self, epsilon: float) -> float:
        """Return a delta such that all releases together are (epsilon, delta)-private.

        Parameters
        ----------
        epsilon : float
            At least 0.

        Raises
        ------
        ValueError
            If `epsilon` is out of range.
        """
        if not epsilon >= 0.0:
            raise ValueError(f"`epsilon` must be >= 0, got {epsilon!r}.")
        rest = raised_gdp_delta(float(epsilon), self.mu_without_sampling)
        losses = _losses(self.steps)
        if losses is not None:
            mu = mu_of_steps(_not_sampled(self.steps))
            rest = min(rest, losses.delta(float(epsilon), mu))
        return self.leak + (1.0 - self.leak) * rest

    def to_gdp(self, leak: float) -> ApproximateGDP:
        """Convert to approximate Gaussian differential privacy.

        Gaussian steps keep their exact mu; the sampled ones are composed, converted once with
        `leak`, and the squares of both mu are added.

        Parameters
        ----------
        leak : float
            Probability in [0, 1) that the sampled steps may charge to the leak.

        Returns
        -------
        ApproximateGDP
            With the leak of this loss alone when nothing is sampled, or where sampling does not
            help; otherwise `leak` is added to it.

        Raises
        ------
        ValueError
            If `leak` is out of range.
        """
        if not 0.0 <= leak < 1.0:
            raise ValueError(f"`leak` must lie in [0, 1), got {leak!r}.")
        return _to_gdp(self.steps, float(leak))

    def group_epsilon(self, group_size: SupportsIndex, delta: float, leak: float) -> float:
        """Return an epsilon at `delta` for data sets that differ in `group_size` records.

        Parameters
        ----------
        group_size : int
            Number of records that change together.
        delta : float
            In (0, 1).
        leak : float
            From `Event.group_leak`.

        Returns
        -------
        float
            The smaller one of the two bounds that the module proves; infinity where neither says
            anything at this `delta`.
        """
        k = check_group_size(group_size)
        error = self.n_steps * SAMPLER_LEAK

        def chain(x: float) -> float:
            """Return the logarithm of the sum of exp(i x) over i < k."""
            steps = math.log(k) if x == 0.0 else math.log(math.expm1(-k * x) / math.expm1(-x))
            return steps + (k - 1) * x

        def of_links(x: float) -> bool:
            return math.log(self.delta(x) + error) + chain(x) <= math.log(delta)

        def never(x: float) -> bool:
            return math.log(self.leak + error) + chain(x) > math.log(delta)

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
        What was released, or is going to be.
    count : int, default=1
        How often; later releases may depend on earlier ones.

    Returns
    -------
    PrivacyLoss
        Equal to `count` times ``compose(event)``.

    Raises
    ------
    UnknownEventError
        If the type of `event`, or of a phase of it, does not define its steps. A subclass of a
        known event is unknown too: it may mean something else.
    ValueError
        If `count` is not an integer of at least 1.

    Examples
    --------
    Five hundred steps on secret batches of a fifth of the records, with five times as much noise
    as one record can change:

    >>> from skdpot.privacy.events import SampledGaussianEvent
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
    steps = _counted((step, n * repetitions) for step, n in event.steps())
    return PrivacyLoss(event.relation, steps)


def _counted(steps: Iterable[tuple[Step | SampledStep, int]]) -> Steps:
    """Merge equal steps and put them in an order that does not depend on how they came."""
    counts: Counter[Step | SampledStep] = Counter()
    for step, count in steps:
        counts[step] += count
    return tuple(sorted(counts.items(), key=lambda item: repr(item[0])))


def _sampled(steps: Steps) -> Steps:
    return tuple(item for item in steps if isinstance(item[0], SampledStep))


def _not_sampled(steps: Steps) -> Steps:
    return tuple(item for item in steps if not isinstance(item[0], SampledStep))


def _least(fits: Callable[[float], bool], never: Callable[[float], bool], start: float) -> float:
    """Return a number from `start` on that fits, nearly the first; infinity once none can."""
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
def _epsilon(steps: Steps, delta: float) -> float:
    if leak := leak_of_steps(steps):
        # A few roundings less, so that the recomputed delta does not exceed the given one.
        delta = (delta * (1.0 - 1e-15) - leak) / (1.0 - leak)
        if delta <= 0.0:
            return math.inf
    bound = gdp_epsilon(mu_of_steps(steps), delta)
    losses = _losses(steps)
    if losses is None:
        return bound
    return min(bound, losses.epsilon(delta, mu_of_steps(_not_sampled(steps))))


@lru_cache(maxsize=1024)
def _to_gdp(steps: Steps, leak: float) -> ApproximateGDP:
    bound, own = mu_of_steps(steps), leak_of_steps(steps)
    losses = _losses(steps)
    if losses is None:
        return ApproximateGDP(bound, own)
    mu = math.hypot(mu_of_steps(_not_sampled(steps)), losses.to_gdp(leak).mu)
    both = leak + (1.0 - leak) * own
    return ApproximateGDP(mu, both) if mu < bound else ApproximateGDP(bound, own)


def _losses(steps: Steps) -> LossPair | None:
    """Return the losses of the sampled steps, if there are any and it makes a difference."""
    sampled = _sampled(steps)
    if not sampled or math.isinf(mu_of_steps(steps)):
        return None
    return _composed(sampled)


@lru_cache(maxsize=4)
def _composed(steps: Steps) -> LossPair | None:
    """Compose sampled steps on a common grid of losses.

    None when the losses are too wide for any useful grid (epsilon in the thousands); sampling
    hardly helps there.
    """
    interval = _interval(steps)
    if interval > _COARSEST:
        return None
    parts = [step.losses(interval).self_compose(count) for step, count in steps]
    composed: LossPair = reduce(LossPair.compose, parts)
    return composed


def _interval(steps: Steps) -> float:
    """Choose 1e-4, finer for steps that cost less than the grid resolves, coarser for wide ones.

    Every interval gives a bound; what follows only estimates how many points there will be.
    """
    # The total variation of a step is about 2/5 of the standard deviation of its loss.
    deviation = min(2.5 * step.rate * gdp_delta(0.0, step.mu) for step, _ in steps)
    finer = math.floor(math.log2(min(1.0, deviation / (_POINTS_PER_DEVIATION * _INTERVAL))))
    widest = max(_largest_loss(step) for step, _ in steps)
    # The mean loss by convexity, and its variance, which is that of N(mu^2 / 2, mu^2) with
    # probability `rate` and else near 0; both also by the chi-squared divergence.
    mean = math.fsum(n * min(s.rate * s.mu**2 / 2.0, _chi_squared(s)) for s, n in steps)
    variance = math.fsum(
        n * min(s.rate * (s.mu**2 + s.mu**4 / 4.0), _chi_squared(s)) for s, n in steps
    )
    total = mean + 9.0 * math.sqrt(variance) + widest
    coarsest = 2.0 * max(widest / _STEP_POINTS, total / _COMPOSED_POINTS)
    coarser = math.ceil(math.log2(coarsest / _INTERVAL))
    return _INTERVAL * 2.0 ** max(finer, coarser)


def _largest_loss(step: SampledStep) -> float:
    """Estimate the loss that is exceeded with probability 1e-20 only."""
    without_sampling = step.mu**2 / 2.0 + 10.0 * step.mu
    if without_sampling > 100.0:
        return max(without_sampling + math.log(step.rate), 1.0)
    return math.log1p(step.rate * math.expm1(without_sampling))


def _chi_squared(step: SampledStep) -> float:
    return step.rate**2 * math.expm1(min(step.mu**2, 100.0))
