"""The front door: from an event to the privacy that it costs.

`compose` turns an event into steps, of which there are four kinds: Gaussian ones (closed
form), Gaussian ones that leak with a known probability, sampled ones (loss distributions) and
those without noise. Leaks come on top of the rest: if nothing has leaked, which is equally
probable under both neighbours, what remains is the composition of the other parts, so that
``delta = leak + (1 - leak) * delta of the rest``. A `PrivacyLoss` only counts steps; what is
expensive is computed on request and remembered, so that composing the same fit
again costs nothing.
"""

import math
import operator
from collections import Counter
from collections.abc import Iterable
from dataclasses import dataclass
from functools import lru_cache
from typing import Any, SupportsIndex, TypeAlias

from skdpot.privacy.approximate_gdp import ApproximateGDP, smallest_mu
from skdpot.privacy.events import Event
from skdpot.privacy.gdp import gdp_epsilon, raised_gdp_delta
from skdpot.privacy.grid import SampledStep, composed_losses
from skdpot.privacy.loss_distribution import LossPair
from skdpot.privacy.relation import Relation
from skdpot.privacy.steps import LeakyStep, Step, steps_of

__all__ = ["PrivacyLoss", "compose"]


Steps: TypeAlias = tuple[tuple[Any, int], ...]


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
        return _leak(self.steps)

    @property
    def infinity_mass(self) -> float:
        """Probability that the sampled steps leave unaccounted; no smaller delta is resolved."""
        losses = _composed(self.steps)
        return 0.0 if losses is None else losses.infinity_mass

    @property
    def mu_without_sampling(self) -> float:
        """The mu of the same steps had each touched all records: a bound, tight without samples."""
        return _gaussian_mu(self.steps)

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
        losses = _composed(self.steps)
        if losses is not None:
            mu = _gaussian_mu(_not_sampled(self.steps))
            rest = min(rest, losses.delta(float(epsilon), mu))
        return self.leak + (1.0 - self.leak) * rest

    def approximate_gdp(self, leak: float) -> ApproximateGDP:
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
        return _approximate_gdp(self.steps, float(leak))


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
        If the type of `event`, or of a phase of it, has no accountant. A subclass of a known
        event is unknown too: it may mean something else.
    ValueError
        If `count` is not an integer of at least 1.

    Examples
    --------
    Five hundred steps on secret batches of a fifth of the records, with five times as much noise
    as one record can change:

    >>> from skdpot.privacy.events import FixedSizeGaussianEvent
    >>> training = FixedSizeGaussianEvent(
    ...     sigma=5.0, sensitivity=1.0, batch_sizes=(200,), group_sizes=(1000,), n_steps=500
    ... )
    >>> compose(training).epsilon(1 / 300_000)
    4.391
    >>> compose(training, 2).epsilon(1 / 300_000)
    6.555
    """
    repetitions = operator.index(count)
    if repetitions < 1:
        raise ValueError(f"`count` must be an integer >= 1, got {count!r}.")
    steps = _counted((step, n * repetitions) for step, n in steps_of(event))
    return PrivacyLoss(event.relation, steps)


def _counted(steps: Iterable[tuple[Step, int]]) -> Steps:
    """Merge equal steps and put them in an order that does not depend on how they came."""
    counts: Counter[Step] = Counter()
    for step, count in steps:
        counts[step] += count
    return tuple(sorted(counts.items(), key=lambda item: repr(item[0])))


def _sampled(steps: Steps) -> Steps:
    return tuple(item for item in steps if isinstance(item[0], SampledStep))


def _not_sampled(steps: Steps) -> Steps:
    return tuple(item for item in steps if not isinstance(item[0], SampledStep))


def _gaussian_mu(steps: Steps) -> float:
    return math.sqrt(math.fsum(count * step.mu * step.mu for step, count in steps))


def _composed(steps: Steps) -> LossPair | None:
    """Return the losses of the sampled steps, if there are any and it makes a difference."""
    sampled = _sampled(steps)
    if not sampled or math.isinf(_gaussian_mu(steps)):
        return None
    return composed_losses(sampled)


def _leak(steps: Steps) -> float:
    leaks = [count * math.log1p(-step.leak) for step, count in steps if isinstance(step, LeakyStep)]
    return -math.expm1(math.fsum(leaks)) if leaks else 0.0


@lru_cache(maxsize=1024)
def _epsilon(steps: Steps, delta: float) -> float:
    if leak := _leak(steps):
        # A few roundings less, so that the recomputed delta does not exceed the given one.
        delta = (delta * (1.0 - 1e-15) - leak) / (1.0 - leak)
        if delta <= 0.0:
            return math.inf
    bound = gdp_epsilon(_gaussian_mu(steps), delta)
    losses = _composed(steps)
    if losses is None:
        return bound
    return min(bound, losses.epsilon(delta, _gaussian_mu(_not_sampled(steps))))


@lru_cache(maxsize=1024)
def _approximate_gdp(steps: Steps, leak: float) -> ApproximateGDP:
    bound, own = _gaussian_mu(steps), _leak(steps)
    losses = _composed(steps)
    if losses is None:
        return ApproximateGDP(bound, own)
    mu = math.hypot(_gaussian_mu(_not_sampled(steps)), smallest_mu(losses, leak))
    both = leak + (1.0 - leak) * own
    return ApproximateGDP(mu, both) if mu < bound else ApproximateGDP(bound, own)
