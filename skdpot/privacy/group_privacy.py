r"""What an event costs when a person has several rows instead of one.

Neighbouring data sets then differ in all rows of one person, up to :math:`k` of them. Two cases
are different and must not be confused with each other.

*Rows in different parts.* The records are divided by something public, for example by time, every
part has releases of its own, and a person has at most one row in each part. One changed row costs
one part's releases; :math:`k` changed rows cost those of :math:`k` parts. Each of these releases
is private for its own row by itself, so that together they are a composition: the steps are
counted :math:`k` times. For Gaussian releases this is :math:`\sqrt k \mu`.

*Rows in one statistic.* All :math:`k` rows enter the same sum or histogram. Then the distances add
up: the sensitivity is :math:`k\Delta`, by the triangle inequality along a chain of data sets that
differ in one row each. For a Gaussian release this is :math:`k\mu`; the plan of such a release has
to know of it (`skdpot.privacy.bounds_plan`). It does not carry over to secret samples, where the
rows of a group enter by coins of their own.

Multiplying :math:`(\epsilon, \delta)` by :math:`k` is right in neither case: delta of a group of
:math:`k` grows by about :math:`k e^{(k-1)\epsilon}`.

*Whatever was released* (`epsilon_of_group`). Data sets that differ in :math:`k` records are the
ends of a chain of :math:`k` neighbours. If the profile of every link is at most :math:`H`, then at
any :math:`x \ge 0` the probabilities of an event satisfy :math:`P_{i} \le e^x P_{i+1} + H(x)` along
the chain, and so

.. math:: P_0 \le e^{kx} P_k + H(x) \sum_{i<k} e^{ix}:

the group is :math:`(kx,\; H(x)\,(e^{kx} - 1)/(e^x - 1))`-private. A link that is
:math:`\mu`-GDP makes a group :math:`k\mu`-GDP [1]_, which is less, and is attained where one
statistic moves by :math:`k\Delta`. A noise sampler that is wrong by :math:`\tau` in total
variation is counted once at each end of the chain there, :math:`(1 + e^\epsilon)\tau`, and in every
:math:`H` here. A release that tells everything with a probability that is known for whole groups
(`ThresholdedCountsEvent.group_tail`), and is :math:`\mu`-GDP otherwise, adds that probability to
delta once. All of this needs what is public to be the same along the whole chain.

References
----------
.. [1] J. Dong, A. Roth, W. Su, "Gaussian Differential Privacy", 2022, theorem 2.14 (groups).
"""

import math
import operator
from collections.abc import Callable
from dataclasses import replace
from typing import SupportsIndex

from skdpot.exceptions import UnknownEventError
from skdpot.privacy.accounting import PrivacyLoss, compose
from skdpot.privacy.events import (
    ComposedEvent,
    Event,
    GaussianEvent,
    NonPrivateEvent,
    PoissonGaussianEvent,
    ThresholdedCountsEvent,
)
from skdpot.privacy.gdp import gdp_epsilon, raised_gdp_delta
from skdpot.privacy.relation import Relation

__all__ = ["check_group_size", "epsilon_of_group", "in_different_parts", "leak_of_group"]

_SAMPLER_ERROR = 1e-18  # of one release, as a ledger charges it


def in_different_parts(event: Event, group_size: SupportsIndex) -> Event:
    r"""Return the event of a person with up to `group_size` rows, each in another part.

    Parameters
    ----------
    event : Event
        What is charged for *one* part when one of its rows is replaced.
    group_size : int
        Largest number :math:`k` of rows that a person has, at most one in a part.

    Returns
    -------
    Event
        The same releases, each :math:`k` times.

    Raises
    ------
    UnknownEventError
        If the event is none of which this is proved.
    ValueError
        If `group_size` is not an integer of at least one, or the relation is not replace-one.

    Privacy
    -------
    Fix two neighbours and the (at most :math:`k`) parts in which they differ. Every release of
    another part is the same function of the past under both. Every release of one of the
    :math:`k` parts is, given the past, a release of which `event` bounds the loss when one row
    is replaced. The losses of an adaptive sequence of releases are bounded by those of the
    composition of the bounds, in whatever order they come, so that :math:`k` times the steps of
    one part is an upper bound. Fewer rows cost less.

    References
    ----------
    Zhu, Dong and Wang, "Optimal accounting of differential privacy via characteristic function",
    AISTATS 2022 (dominating pairs compose adaptively).

    Examples
    --------
    >>> once = GaussianEvent(sigma=2.0, sensitivity=1.0)
    >>> once.mu, in_different_parts(once, 4).mu
    (0.5, 1.0)
    """
    if event.relation is not Relation.REPLACE_ONE:
        raise ValueError(
            "Groups of rows are accounted for under replace-one only, got an event under "
            f"{str(event.relation)!r}."
        )
    return _repeated(event, check_group_size(group_size))


def leak_of_group(event: Event, group_size: int) -> float:
    """Bound the probability that a release tells everything of a group; 1 where none is known.

    Otherwise it is k mu-GDP, for the mu of one record without sampling.
    """
    if type(event) is ComposedEvent:
        return min(1.0, math.fsum(leak_of_group(phase, group_size) for phase in event.events))
    if type(event) is ThresholdedCountsEvent:
        return event.group_tail(group_size)
    return 0.0 if compose(event).leak == 0.0 else 1.0


def epsilon_of_group(
    loss: PrivacyLoss, group_size: SupportsIndex, delta: float, leak: float
) -> float:
    """Return an epsilon at `delta` for data sets that differ in `group_size` records.

    Parameters
    ----------
    loss : PrivacyLoss
        What was released, when one record changes.
    group_size : int
        Number of records that change together.
    delta : float
        In (0, 1).
    leak : float
        From `leak_of_group`.

    Returns
    -------
    float
        The smaller one of the two bounds that the module proves; infinity where neither says
        anything at this `delta`.
    """
    k = check_group_size(group_size)
    error = loss.n_steps * _SAMPLER_ERROR

    def chain(x: float) -> float:
        """Return the logarithm of the sum of exp(i x) over i < k."""
        steps = math.log(k) if x == 0.0 else math.log(math.expm1(-k * x) / math.expm1(-x))
        return steps + (k - 1) * x

    def of_links(x: float) -> bool:
        return math.log(loss.delta(x) + error) + chain(x) <= math.log(delta)

    def never(x: float) -> bool:
        return math.log(loss.leak + error) + chain(x) > math.log(delta)

    start = loss.epsilon(delta / k)
    least = k * _least(of_links, never, start) if math.isfinite(start) else math.inf
    mu = k * loss.mu_without_sampling
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


def check_group_size(group_size: SupportsIndex) -> int:
    """Return `group_size` as an integer of at least one, or say what is wrong with it.

    Parameters
    ----------
    group_size : int
        Largest number of rows that a person has.

    Returns
    -------
    int

    Raises
    ------
    ValueError
        If it is not an integer of at least one.
    """
    try:
        size = 0 if isinstance(group_size, bool) else operator.index(group_size)
    except TypeError:
        size = 0
    if size < 1:
        raise ValueError(
            f"`group_size` must be an integer >= 1, got {group_size!r}: the largest number of "
            "rows that one person has."
        )
    return size


def _repeated(event: Event, group_size: int) -> Event:
    # The exact types: a subclass may mean something else.
    if group_size == 1 or type(event) is NonPrivateEvent:
        return event
    if type(event) is GaussianEvent or type(event) is PoissonGaussianEvent:
        return replace(event, n_steps=group_size * event.n_steps)
    if type(event) is ThresholdedCountsEvent:  # each part shows the counts of its own columns
        return replace(event, n_columns=group_size * event.n_columns)
    if type(event) is ComposedEvent:
        return ComposedEvent(events=tuple(_repeated(e, group_size) for e in event.events))
    raise UnknownEventError(
        f"It is not known what {type(event).__name__} costs a person with {group_size} rows; use "
        "group_size=1, with one row a person."
    )
