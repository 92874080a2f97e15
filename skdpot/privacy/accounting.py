r"""Accounting: from an event to the privacy that it costs, and from a target to the least noise.

`compose` splits an event into steps: steps in closed form, which may leak with a known probability,
and sampled steps, which have loss distributions. If nothing leaks, which is equally probable under
both neighbours, the rest is the composition of the other parts, so
``delta = leak + (1 - leak) * delta of the rest``.

Data sets that differ in :math:`k` records
------------------------------------------
Such data sets are the ends of a chain of :math:`k` neighbours (`PrivacyLoss.group_epsilon`). If the
profile of every link is at most :math:`H`, the probabilities of any output set satisfy
:math:`P_{i} \le e^x P_{i+1} + H(x)` along the chain for :math:`x \ge 0`, and so

.. math:: P_0 \le e^{kx} P_k + H(x) \sum_{i<k} e^{ix}:

the group is :math:`(kx,\; H(x)\,(e^{kx} - 1)/(e^x - 1))`-private. A link that is
:math:`\mu`-GDP makes a group :math:`k\mu`-GDP [1]_, which is less, and is attained where one
statistic moves by :math:`k\Delta`. The sampler's error :math:`\tau` in total variation counts once
at each end of the chain there, :math:`(1 + e^\epsilon)\tau`, and in every :math:`H` here. A release
that leaks with a probability known for whole groups (`Event.group_leak`) and is :math:`\mu`-GDP
otherwise adds that probability to delta once. Public facts must be the same along the chain.

From a target to the least noise
--------------------------------
A fit without a budget is measured by its own privacy loss. A fit that draws on a budget is measured
in the ledger's units, which add up over fits: `LEAK_SHARE` of delta pays for leaks (infinite losses
of sampled steps, counts of one above a threshold, the sampler's error), and the rest caps the sum
of squared mu. Costs are rounded up and caps down to whole units: squared mu in 1e-12, leaks in
1e-18. Infinity stands for no cap, and for no noise.

Fits that are planned before the first release
----------------------------------------------
Let :math:`e_1, \dots, e_m` be events that are fixed in advance, each of which may happen once, and
let everything else be admitted while its squared mu sum to at most :math:`c`. In whatever order all
this happens, and however what comes next depends on earlier results, the privacy profile is at most
that of the composition of :math:`e_1, \dots, e_m` with one :math:`\sqrt c`-GDP release.

*Proof.* Let :math:`D_i` be the pair that dominates :math:`e_i`, for a fixed order of the
neighbours, and :math:`G(c)` that of :math:`\sqrt c`-GDP, so that :math:`G(a) \otimes G(b) =
G(a + b)`. Claim: after any history that leaves the events R unused and c unspent, the rest is
dominated by :math:`\bigotimes_{i \in R} D_i \otimes G(c)`. Without a further release that is
true. By induction on their number let the next one be :math:`e_i` with :math:`i \in R`: for each
of its results the rest is dominated by the *same* pair
:math:`\bigotimes_{R \setminus i} D_j \otimes G(c)`. So both together are dominated by its product
with :math:`D_i` [2]_, which is the claim. If the next one is admitted at a squared mu of :math:`a`,
the product is with :math:`G(a)`, and :math:`G(a) \otimes G(c - a) = G(c)`. ∎

The choice of what is next needs no allowance because what remains is dominated by the same pair
whatever comes first. That is false for an event that is not fixed in advance and fits exactly into
what is left at one epsilon: its profile is above that of :math:`G(c)` elsewhere, and a choice by
earlier results would add up the larger of both.

References
----------
.. [1] J. Dong, A. Roth, W. Su, "Gaussian Differential Privacy", 2022, theorem 2.14 (groups).
.. [2] Y. Zhu, J. Dong, Y.-X. Wang, "Optimal accounting of differential privacy via characteristic
   function", 2022, theorem 10 (adaptive composition of dominating pairs).
"""

import math
import operator
from collections import Counter
from collections.abc import Callable, Iterable, Sequence
from contextlib import suppress
from dataclasses import dataclass
from fractions import Fraction
from functools import lru_cache, partial, reduce
from typing import Any, SupportsIndex, TypeAlias

from scipy.optimize import brentq

from skdpot.exceptions import CalibrationError, UnknownEventError
from skdpot.privacy.events import (
    ROUNDING,
    ApproximateGDP,
    ComposedEvent,
    Event,
    NonPrivateEvent,
    Relation,
    Step,
    bisected,
    check_group_size,
    gdp_delta,
    gdp_epsilon,
    gdp_mu,
    leak_of_steps,
    mu_of_steps,
    raised_gdp_delta,
)
from skdpot.privacy.loss_distribution import LossPair

Steps: TypeAlias = tuple[tuple[Any, int], ...]

_INTERVAL = 1e-4
_COARSEST = 0.05
_STEP_POINTS = 2**18
_COMPOSED_POINTS = 2**23
_POINTS_PER_DEVIATION = 20


@dataclass(frozen=True)
class PrivacyLoss:
    """Everything that has been released, as a count of steps; all figures are upper bounds."""

    relation: Relation
    steps: Steps

    @property
    def n_steps(self) -> int:
        """Number of releases, sampled or not."""
        return sum(count for _, count in self.steps)

    @property
    def is_sampled(self) -> bool:
        """Whether some steps touch secret samples only, so that there is no closed form."""
        return not all(isinstance(step, Step) for step, _ in self.steps)

    @property
    def leak(self) -> float:
        """Probability that a threshold lets something through that only one record has."""
        return leak_of_steps(self.steps)

    @property
    def infinity_mass(self) -> float:
        """Probability that the sampled steps leave unaccounted; no smaller delta is resolved."""
        losses, _ = _losses(self.steps)
        return 0.0 if losses is None else losses.infinity_mass

    @property
    def mu_without_sampling(self) -> float:
        """The mu of the same steps had each touched all records: a bound, tight without samples."""
        return mu_of_steps(self.steps)

    def compose(self, other: "PrivacyLoss") -> "PrivacyLoss":
        """Return the loss of both releases together; the second may depend on the first."""
        if other.relation is not self.relation:
            raise ValueError(
                f"Losses under {str(self.relation)!r} and {str(other.relation)!r} do not compose."
            )
        return PrivacyLoss(self.relation, _counted([*self.steps, *other.steps]))

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
        """Convert to approximate GDP; sampled steps are converted with `leak` where that helps."""
        if not 0.0 <= leak < 1.0:
            raise ValueError(f"`leak` must lie in [0, 1), got {leak!r}.")
        return _to_gdp(self.steps, float(leak))

    def group_epsilon(self, group_size: SupportsIndex, delta: float, leak: float) -> float:
        """Return the smaller of the two bounds above at `delta`; `leak` is `Event.group_leak`."""
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
    500 steps on secret batches of a fifth of the records; sigma is five times the sensitivity:

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
    steps = _counted((step, n * repetitions) for step, n in event.steps())
    return PrivacyLoss(event.relation, steps)


def _counted(steps: Iterable[tuple[Any, int]]) -> Steps:
    """Merge equal steps and put them in an order that does not depend on how they came."""
    counts: Counter[Any] = Counter()
    for step, count in steps:
        counts[step] += count
    return tuple(sorted(counts.items(), key=lambda item: repr(item[0])))


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
    losses, mu = _losses(steps)
    return bound if losses is None else min(bound, losses.epsilon(delta, mu))


@lru_cache(maxsize=1024)
def _to_gdp(steps: Steps, leak: float) -> ApproximateGDP:
    bound, own = mu_of_steps(steps), leak_of_steps(steps)
    losses, mu = _losses(steps)
    mu = math.inf if losses is None else math.hypot(mu, losses.to_gdp(leak).mu)
    if mu < bound:
        return ApproximateGDP(mu, leak + (1.0 - leak) * own)
    return ApproximateGDP(bound, own)


def _losses(steps: Steps) -> tuple[LossPair | None, float]:
    """Return the losses of sampled steps, if that makes a difference, and the mu of the others."""
    sampled = tuple(item for item in steps if not isinstance(item[0], Step))
    mu = mu_of_steps(item for item in steps if isinstance(item[0], Step))
    unused = not sampled or math.isinf(mu_of_steps(steps))
    return None if unused else _composed(sampled), mu


@lru_cache(maxsize=4)
def _composed(steps: Steps) -> LossPair | None:
    """Compose sampled steps on a common grid; None where losses are too wide for a useful one."""
    interval = _interval(steps)
    if interval > _COARSEST:
        return None
    parts = [step.losses(interval).self_compose(count) for step, count in steps]
    return reduce(LossPair.compose, parts)


def _interval(steps: Steps) -> float:
    """Choose 1e-4, finer for cheap steps, coarser for wide losses; every one gives a bound."""
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


def _largest_loss(step: Any) -> float:
    """Estimate the loss that is exceeded with probability 1e-20 only."""
    without_sampling = step.mu**2 / 2.0 + 10.0 * step.mu
    if without_sampling > 100.0:
        return max(float(without_sampling) + math.log(step.rate), 1.0)
    return math.log1p(float(step.rate) * math.expm1(without_sampling))


def _chi_squared(step: Any) -> float:
    return float(step.rate) ** 2 * math.expm1(min(step.mu**2, 100.0))


# A whole number of units, or math.inf.
Units: TypeAlias = int | float

MU_SQUARED_UNITS = 10**12
_LEAK_UNITS = 10**18

# The noise sampler's own error in one release is one unit of leak.
SAMPLER_LEAK = 1 / _LEAK_UNITS


def _squared(mu: float, rounded: Callable[[Fraction], int]) -> Units:
    """Return the squared mu in units."""
    return math.inf if math.isinf(mu) else rounded(Fraction(mu) ** 2 * MU_SQUARED_UNITS)


def mu_of(mu_squared_units: Units) -> float:
    """Return a mu whose square is at least that many units."""
    if isinstance(mu_squared_units, float) or mu_squared_units == 0:
        return float(mu_squared_units)
    scale = 2**64
    root = math.isqrt(mu_squared_units * scale**2) + 1
    return math.nextafter(root / (math.isqrt(MU_SQUARED_UNITS) * scale), math.inf)


def _in_leak_units(leak: float, rounded: Callable[[Fraction], int]) -> int:
    """Return a probability in units."""
    return rounded(Fraction(leak) * _LEAK_UNITS)


def leak_of(leak_units: Units) -> float:
    """Return the probability that stands for that many units."""
    return min(leak_units / _LEAK_UNITS, 1.0)


def exact_leak(leak_units: int) -> Fraction:
    """Return the same without rounding."""
    return Fraction(leak_units, _LEAK_UNITS)


LEAK_SHARE = 0.1
_SHARING_FITS = 1000  # with sampled steps or thresholds, in one ledger
_SAMPLER_ROOM = 1e-14  # of delta, for the noise sampler's error in ten thousand releases
_HOPELESS = 200.0
_HUGE = 10**300
_LARGEST_LOG_SIGMA = 300.0


@dataclass(frozen=True)
class PrivacyTarget:
    """The (epsilon, delta) that a budget must not exceed, or a fit that draws on one."""

    epsilon: float
    delta: float

    def __post_init__(self) -> None:
        """Check the ranges."""
        if isinstance(self.epsilon, bool) or not self.epsilon > 0.0:
            raise ValueError(f"`epsilon` must be > 0 (or infinity), got {self.epsilon!r}.")
        if isinstance(self.delta, bool) or not 0.0 < self.delta < 1.0:
            raise ValueError(f"`delta` must lie in (0, 1), got {self.delta!r}.")
        object.__setattr__(self, "epsilon", float(self.epsilon))
        object.__setattr__(self, "delta", float(self.delta))

    @property
    def leak_cap(self) -> float:
        """The part of delta that pays for leaks."""
        return LEAK_SHARE * self.delta

    @property
    def tail_delta(self) -> float:
        """The part of delta for the thresholds of one fit: a thousandth of all leaks."""
        return self.leak_cap / _SHARING_FITS

    @property
    def mu_cap(self) -> float:
        """The largest mu whose delta at `epsilon` fits in the rest of `delta`."""
        return gdp_mu(self.epsilon, (1.0 - LEAK_SHARE) * self.delta)

    @property
    def mu_squared_units(self) -> Units:
        """The cap on the sum of squared mu, in units of 1e-12, or ``math.inf``."""
        return _squared(self.mu_cap, math.floor)

    @property
    def leak_units(self) -> Units:
        """The cap on the sum of leaks, in units of 1e-18, or ``math.inf``."""
        return math.inf if math.isinf(self.epsilon) else _in_leak_units(self.leak_cap, math.floor)

    def admits(self, event: Event) -> bool:
        """Whether `event` alone fits in the whole target."""
        cost = event_cost(event, self.leak_cap)
        return cost.mu_squared_units <= self.mu_squared_units and cost.leak_units <= self.leak_units

    def log_excess(self, event: Event) -> float:
        """Return ``log(cost / cap)`` of `event`: positive when it does not fit."""
        cost = event_cost(event, self.leak_cap)
        return self._log_ratio(cost.mu_squared_units, cost.leak_units)

    def log_excess_without_sampling(self, event: Event) -> float:
        """Return the same by the closed form that counts every record in every step."""
        loss = compose(event)
        mu_squared = loss.mu_without_sampling * loss.mu_without_sampling * MU_SQUARED_UNITS
        leak = _certain_leak_units(loss) if math.isfinite(mu_squared) else math.inf
        return self._log_ratio(mu_squared, leak)

    def _log_ratio(self, mu_squared: float, leak: float) -> float:
        cap = self.mu_squared_units
        if leak > self.leak_units or cap == 0 or math.isinf(mu_squared):
            return _HOPELESS
        # The cap is an integer that may be beyond every float: then its logarithm is taken alone.
        if mu_squared > 0.0:
            huge = cap > _HUGE
            return math.log(mu_squared) - math.log(cap) if huge else math.log(mu_squared / cap)
        return -_HOPELESS


@dataclass(frozen=True)
class SingleFitTarget(PrivacyTarget):
    """The (epsilon, delta) of one fit without a budget, compared with the privacy loss itself.

    The ledger's units would cost Gaussian releases 0.2 to 1 %, sampled steps up to 17 % more noise.
    """

    @property
    def tail_delta(self) -> float:
        """The part of delta for what passes thresholds: a tenth, at 0.2 to 1 % more noise."""
        return LEAK_SHARE * self.delta

    @property
    def mu_cap(self) -> float:
        """The largest mu whose delta at `epsilon` fits in `delta` beside the sampler's error."""
        return gdp_mu(self.epsilon, self._delta_of_losses)

    def admits(self, event: Event) -> bool:
        """Whether `event` is (epsilon, delta)-private, whatever machine computes that."""
        if math.isinf(self.epsilon):
            return True
        loss = compose(event)
        raised = (1.0 + 2.0 * ROUNDING) * loss.delta(self.epsilon)
        return Fraction(raised) + exact_leak(loss.n_steps) <= Fraction(self.delta)

    def log_excess(self, event: Event) -> float:
        """Return the logarithm of the event's epsilon over the target's."""
        epsilon = compose(event).epsilon(self._delta_of_losses)
        if math.isinf(epsilon):
            return _HOPELESS
        return math.log(epsilon / self.epsilon) if epsilon > 0.0 else -_HOPELESS

    def log_excess_without_sampling(self, event: Event) -> float:
        """Return the same by the closed form that counts every record in every step."""
        loss = compose(event)
        left = (self._delta_of_losses - loss.leak) / (1.0 - loss.leak)
        hopeless = left <= 0.0 or math.isinf(loss.mu_without_sampling)
        if hopeless or loss.n_steps > self.leak_units:
            return _HOPELESS
        mu, cap = loss.mu_without_sampling, gdp_mu(self.epsilon, left)
        return 2.0 * (math.log(mu) - math.log(cap)) if mu > 0.0 else -_HOPELESS

    @property
    def _delta_of_losses(self) -> float:
        rounded = (1.0 - 4.0 * ROUNDING) * self.delta
        return max((1.0 - LEAK_SHARE) * self.delta, rounded - _SAMPLER_ROOM)


def privacy_target(epsilon: float, delta: float, budget: Any) -> PrivacyTarget:
    """Return what a fit is calibrated to: in a ledger's units if it draws on one without a plan."""
    alone = budget is None or budget.plans(epsilon, delta)
    return (SingleFitTarget if alone else PrivacyTarget)(epsilon, delta)


@dataclass(frozen=True)
class Reserve:
    """What is reserved for a planned event: a Step for all that is in closed form, and the rest."""

    closed: Step
    others: Steps
    n_steps: int

    @classmethod
    def of(cls, event: Event, margin: float = 0.0) -> "Reserve":
        """Return the steps of an event, those in closed form with a little more than they cost."""
        loss, raised = compose(event), 1.0 + margin
        steps = tuple(item for item in loss.steps if isinstance(item[0], Step))
        others = tuple(item for item in loss.steps if not isinstance(item[0], Step))
        closed = Step(raised * mu_of_steps(steps), raised * leak_of_steps(steps))
        return cls(closed, others, loss.n_steps)

    @property
    def account(self) -> tuple[float, float, int, str]:
        """Return its parts as a ledger keeps them: numbers, and a text for what has no number."""
        return self.closed.mu, self.closed.leak, self.n_steps, repr(self.others)


# Directions that are drawn anew, and so sensitivities, change mu in the last digits.
_RESERVE_MARGIN = 1e-6


def reserve(
    target: PrivacyTarget, planned: Sequence[Event]
) -> tuple[tuple[Reserve, ...], tuple[Units, Units]]:
    """Return what is reserved for planned events, and the caps of all that is admitted beside them.

    The caps are 0 where the events alone take all of (epsilon, delta).
    """
    caps: tuple[Units, Units] = target.mu_squared_units, target.leak_units
    reserves = tuple(Reserve.of(event, _RESERVE_MARGIN) for event in planned)
    if not planned or math.isinf(target.epsilon):
        return reserves, caps
    steps = [item for r in reserves for item in ((r.closed, 1), *r.others)]
    most = Fraction(target.delta) * Fraction(1.0 - LEAK_SHARE)
    most -= exact_leak(sum(r.n_steps for r in reserves))

    def exceeds(mu: float) -> bool:
        """Whether the plan and a mu-GDP release cost more than delta less the part for leaks."""
        whole = PrivacyLoss(planned[0].relation, _counted([*steps, (Step(mu), 1)]))
        return Fraction((1.0 + 2.0 * ROUNDING) * whole.delta(target.epsilon)) > most

    low = 0.0 if exceeds(0.0) else bisected(exceeds, 1e-9)[0]
    if units := _squared(low, math.floor):
        return reserves, (units, caps[1])
    if SingleFitTarget(target.epsilon, target.delta).admits(ComposedEvent(events=tuple(planned))):
        return tuple(map(Reserve.of, planned)), (0, 0)
    raise ValueError(
        f"`planned` costs more than epsilon={target.epsilon:g} at delta={target.delta:g}: plan "
        "fits of smaller epsilon, or set up a larger budget."
    )


@dataclass(frozen=True)
class EventCost:
    """What an event takes from a ledger; infinity for a release without noise."""

    mu_squared_units: Units
    leak_units: Units


def event_cost(event: Event, max_leak: float) -> EventCost:
    """Convert an event to ledger units.

    Every release is charged one unit of leak (1e-18) for the error of the noise sampler, and what
    its threshold may let through. Sampled steps are converted with a thousandth of `max_leak`,
    sampler included, or with twice what rounding leaves unresolved if that is more.
    """
    loss = compose(event)
    if math.isinf(loss.mu_without_sampling):
        return EventCost(math.inf, math.inf)
    certain, leak_units = _certain_leak_units(loss), 0
    if loss.is_sampled:
        total = _in_leak_units(max_leak, math.floor)
        unresolved = _in_leak_units(2.0 * loss.infinity_mass, math.ceil)
        leak_units = max(total // _SHARING_FITS - loss.n_steps, unresolved)
        if leak_units > total - certain:  # then sampling cannot be counted on
            leak_units = 0
    private = loss.to_gdp(leak_of(leak_units))
    spent = leak_units if private.mu < loss.mu_without_sampling else 0
    return EventCost(_squared(private.mu, math.ceil), spent + certain)


def calibrate(target: PrivacyTarget, make_event: Callable[[float], Event]) -> Event:
    """Find the least noise with which an event fits in a privacy target.

    Parameters
    ----------
    target : PrivacyTarget
        The epsilon and delta to spend.
    make_event : callable
        Maps sigma to an event. It may raise ``ValueError`` if sigma is too small, for example for
        its lattice. The cost must not increase with sigma.

    Returns
    -------
    Event
        ``make_event(sigma)`` for the smallest sigma that fits, up to a relative 1e-12 (1e-4 with
        sampled steps). If epsilon is infinite, a `NonPrivateEvent`.

    Raises
    ------
    CalibrationError
        If no sigma fits, or if every sigma fits.

    Examples
    --------
    >>> from skdpot.privacy.events import GaussianEvent
    >>> target = PrivacyTarget(epsilon=1.0, delta=1e-5)
    >>> event = calibrate(target, lambda sigma: GaussianEvent(sigma=sigma, sensitivity=2.0))
    >>> event.sigma
    7.5085
    >>> compose(event).epsilon(1e-5)
    0.9931
    """

    def made(log_sigma: float) -> Event | None:
        """Return the event, or None where the noise is refused, for example by its lattice."""
        with suppress(ValueError):
            return make_event(math.exp(log_sigma))
        return None

    def excess(measure: Callable[[Event], float], log_sigma: float) -> float:
        """Return ``log(cost / cap)`` as a function of log(sigma)."""
        event = made(log_sigma)
        if event is None:
            return _HOPELESS
        return -_HOPELESS if math.isinf(target.epsilon) else measure(event)

    of_bound = partial(excess, target.log_excess_without_sampling)
    high = _above(of_bound, 0.0, target, make_event)
    if math.isinf(target.epsilon):
        return NonPrivateEvent(relation=make_event(math.exp(high)).relation)
    root, step = _crossing(of_bound, high, 1e-13), 1e-13
    if compose(make_event(math.exp(high))).is_sampled:
        # All records in every step is the costlier event, so that its sigma is an upper end.
        of_losses = partial(excess, target.log_excess)
        high = _above(of_losses, root + 1e-9, target, make_event)
        root, step = _crossing(of_losses, high, 1e-5), 1e-5
    # Walk up from the crossing to the first event whose recomputed cost fits.
    while (event := made(root)) is None or not target.admits(event):
        root += step
        step *= 2.0
    return event


def _above(
    excess: Callable[[float], float],
    start: float,
    target: PrivacyTarget,
    make_event: Callable[[float], Event],
) -> float:
    """Return a log(sigma) of at least `start` that fits."""
    x = start
    while (value := excess(x)) > 0.0:
        x += max(0.7, 0.5 * value if value < _HOPELESS else 0.0)
        if x > _LARGEST_LOG_SIGMA:
            try:
                make_event(math.exp(_LARGEST_LOG_SIGMA))
            except ValueError as error:
                raise CalibrationError(f"No noise scale is accepted: {error}") from error
            raise CalibrationError(
                f"No noise reaches epsilon={target.epsilon:g} at delta={target.delta:g}: what does "
                "not depend on sigma already costs more. Raise epsilon or delta, or release less."
            )
    return x


def _crossing(excess: Callable[[float], float], start: float, tolerance: float) -> float:
    """Walk down from `start`, which fits, to what does not, and return where it crosses."""
    fitting = x = start
    step = 1e-3
    while (value := excess(x)) <= 0.0:
        fitting = x
        step = min(1.4, max(2.0 * step, -0.6 * value))
        x -= step
        if x < -_LARGEST_LOG_SIGMA:
            raise CalibrationError(
                "Every noise scale fits: the event made for the search does not depend on sigma. "
                "Check the function that makes it."
            )
    return float(brentq(excess, x, fitting, xtol=tolerance, rtol=1e-15, maxiter=200))


def _certain_leak_units(loss: PrivacyLoss) -> int:
    """Return what leaks whatever becomes of samples: past thresholds, and from the sampler."""
    return _in_leak_units(loss.leak, math.ceil) + loss.n_steps
