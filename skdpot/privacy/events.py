r"""Frozen descriptions of everything that touches private data.

An event holds public facts only: the noise, the sensitivity, how often and on which
sample. It keeps `sigma` and `sensitivity` apart, because a bare "noise multiplier" does not
say what it is a multiple of: the clipping norm, or the distance between neighbours.

Counts above a threshold, replace-one
-------------------------------------
A column holds one category a record. Each category of count :math:`c \ge 1` draws its own noise
:math:`Z \sim N(0, \sigma^2)` and shows :math:`c + Z` if that exceeds :math:`\tau`, else nothing;
a category of count 0 shows nothing. Let :math:`q = P[1 + Z > \tau]`. Neighbours ``D`` and ``D'``
differ in one record, which has the category ``a`` in ``D`` and ``b`` in ``D'``. All other
categories show the same under both, and what two categories show is independent.

1. *Counts of at least one under both.* Showing or hiding ``c + Z`` is post-processing of it, so
   that one such category is :math:`1/\sigma`-GDP.
2. *A category that only the replaced record has* (``a`` under ``D``, or ``b`` under ``D'``). Under
   one neighbour nothing is shown; under the other, something with probability ``q``. That is
   post-processing of "with probability ``q`` learn which data set it is, otherwise nothing".
   Counts are integers: from 1 to 2 it is case 1 again. Had only counts of at least two been
   admitted, ``q`` would be :math:`P[2 + Z > \tau]`, the same leak at a threshold higher by one:
   a second condition costs categories and buys nothing.
3. *Both.* If only the record has ``a`` under ``D`` and only it has ``b`` under ``D'``, both
   neighbours show nothing with the same probability ``1 - q``, and disjoint things otherwise: a
   leak of ``q``, not of ``2q``.

With :math:`G_\mu` for the profile of :math:`N(0, 1)` against :math:`N(\mu, 1)`, a column has
the profile :math:`\max\{G_{\sqrt 2/\sigma}(\varepsilon),\; q + (1 - q) G_{1/\sigma}(\varepsilon)\}`
at most. ``k`` columns with noise of their own have at most

.. math:: \max_{0 \le m \le k} L_m + (1 - L_m)\, G_{\sqrt{2k - m}/\sigma}(\varepsilon),
          \qquad L_m = 1 - (1 - q)^m,

where ``m`` counts the columns of cases 2 and 3. With continuous noise this is tight: neighbours
with ``m = 0`` attain their term as their counts grow, those of case 2 with ``m > 0`` theirs up to a
factor :math:`1 - O(kq)`. What is charged is simpler and at least as much: *a leak of* :math:`L_k`,
*otherwise* :math:`G_{\sqrt{2k}/\sigma}`. At the same delta the maximum would need at most one
percent less noise, when the leak is a tenth of delta.

When one record is added or removed, one count of a column changes: :math:`G_{\sqrt k/\sigma}`
with the same leak.

On a lattice of spacing ``g`` the discrete Gaussian pays its factor on ``mu``
(`skdpot.privacy.lattice_sampler`). Its tail has a bound in closed form. Let :math:`s = \sigma / g`.
Where :math:`x \ge s`, the function :math:`f(x) = e^{-x^2/2s^2}` is convex and hence no larger at an
integer than on average over the unit interval around it, and
:math:`\sum_j f(j) \ge s\sqrt{2\pi}` by Poisson summation. So for every integer
:math:`m \ge s + 1/2`

.. math:: P[Z \ge m g] \le 1 - \Phi\left(\frac{m - 1/2}{s}\right).

References
----------
Wilkins, Kifer, Zhang, Karrer, "Exact Privacy Analysis of the Gaussian Sparse Histogram Mechanism",
Journal of Privacy and Confidentiality 14(1), 2024 (the maximum over the cases, add or remove).
Korolova, Kenthapadi, Mishra, Ntoulas, "Releasing Search Queries and Clicks Privately", 2009, and
Bun, Nissim, Stemmer, "Simultaneous Private Learning of Multiple Concepts", 2016 (thresholds).
"""

import math
from dataclasses import dataclass, field, replace
from fractions import Fraction
from typing import Any, ClassVar

from scipy.special import ndtr

from skdpot.exceptions import UnknownEventError
from skdpot.privacy.event_base import (
    EVENTS,
    Check,
    Event,
    Steps,
    check_group_size,
    count,
    counts,
    or_none,
    positive,
    probability,
    rate_of_sampling,
    shape_of_law,
)
from skdpot.privacy.private_selection import (
    LARGEST_MU,
    MOST_STEEP_TRIALS,
    STEEP_SHAPE,
    SelectionStep,
    TrialLaw,
)
from skdpot.privacy.relation import Relation
from skdpot.privacy.steps import (
    PoissonAddRemoveStep,
    PoissonClippedSumStep,
    PoissonRowsStep,
    SampledStep,
    Step,
    SubsetStep,
    sampled_step_mu,
    step_mu,
)

__all__ = [
    "BudgetedEvent",
    "ComposedEvent",
    "Event",
    "GaussianEvent",
    "NonPrivateEvent",
    "SampledGaussianEvent",
    "ThresholdedCountsEvent",
    "check_group_size",
]

# Far above the rounding of the normal distribution function, far below anything else.
_UP = 1.0 + 1e-12


def _noise_words(event: "GaussianEvent | SampledGaussianEvent") -> str:
    return event._of_one_record(
        f"every number has Gaussian noise of standard deviation {event.sigma:.4g}, and "
        f"replacing one record moves all numbers of a release together by at most "
        f"{event.sensitivity:.4g}"
    )


def _releases(n_steps: int) -> str:
    return f"{n_steps:,} releases, one after the other" if n_steps > 1 else "1 release"


@dataclass(frozen=True, kw_only=True)
class GaussianEvent(Event):
    """`n_steps` statistics, each released once with Gaussian noise.

    Parameters
    ----------
    sigma : float
        Standard deviation of the noise on every coordinate.
    sensitivity : float
        Largest L2 distance between the statistics of neighbouring data sets.
    n_steps : int, default=1
        Number of such releases; later ones may depend on earlier ones.
    lattice : float or None, default=None
        Spacing g of the lattice on which discrete Gaussian noise is drawn; the statistic
        must lie on it. ``None`` is continuous noise.
    relation : Relation, default=Relation.REPLACE_ONE
        The neighbouring relation of `sensitivity`.
    label : str, default=""
        What is released, for reports.

    Raises
    ------
    ValueError
        If a field is out of range, or `sigma` is smaller than `lattice`.
    """

    sigma: float
    sensitivity: float
    n_steps: int = 1
    lattice: float | None = None

    _checks = {
        "sigma": positive,
        "sensitivity": positive,
        "n_steps": count,
        "lattice": or_none(positive),
    }

    def __post_init__(self) -> None:
        """Check the fields and give them their plain Python types."""
        super().__post_init__()
        self._check_lattice(self.sigma, self.lattice)

    @property
    def mu(self) -> float:
        """The event is mu-GDP: at least as private as telling N(0, 1) from N(mu, 1)."""
        return math.sqrt(self.n_steps) * step_mu(self.sigma, self.sensitivity, self.lattice)

    def _steps(self) -> Steps:
        yield Step(step_mu(self.sigma, self.sensitivity, self.lattice)), self.n_steps

    def _grouped(self, group_size: int) -> Event:
        return replace(self, n_steps=group_size * self.n_steps)

    def _words(self) -> str:
        releases = _releases(self.n_steps)
        return f"{releases}, of numbers computed from all records: {_noise_words(self)}."


@dataclass(frozen=True, kw_only=True)
class SampledGaussianEvent(Event):
    """`n_steps` Gaussian releases, each on a fresh, secret sample of the records.

    Nobody learns which records took part in a step, and every step draws its sample independently
    of all others. An epoch of a shuffled data loader is not such a draw.

    Parameters
    ----------
    sigma : float
        Standard deviation of the noise on every coordinate of the batch statistic.
    sensitivity : float
        L2 sensitivity of the statistic as a function of the *batch*, under `relation`. For a
        Poisson sample under replace-one it is 2C for a sum of vectors clipped to norm C; without
        `clipped_sum` it must bound both what replacing a record of the batch does and what adding
        or removing one does.
    sampling : {"fixed_size", "poisson", "poisson_rows"}
        "fixed_size": from each group j of ``group_sizes[j]`` records a uniformly random subset of
        ``batch_sizes[j]`` is drawn without replacement; the sizes are public. "poisson": each
        record takes part with probability `sampling_rate`, independently of the others, and the
        size of the sample stays hidden. "poisson_rows": the same, but one vector a record of the
        sample is released, in uniformly random order or sorted after the noise, so that anyone can
        count them.
    sampling_rate : float or None, default=None
        Probability in (0, 1] that a record takes part in a step of a Poisson sample.
    n_samples : int or None, default=None
        Number of records, for "poisson_rows".
    batch_sizes : tuple of int or None, default=None
        For "fixed_size": records drawn from each group (one entry when there are no groups).
    group_sizes : tuple of int or None, default=None
        For "fixed_size": records in each group.
    n_steps : int
        Number of steps.
    clipped_sum : bool, default=False
        For "poisson" under replace-one: the statistic is a sum, over the records of the batch, of
        one vector a record, and each moves the sum, rounded if there is a lattice, by at most
        ``sensitivity / 2``. This admits a tighter account.
    lattice : float or None, default=None
        Spacing of the lattice of discrete Gaussian noise; ``None`` is continuous noise.
    relation : Relation, default=Relation.REPLACE_ONE
        The neighbouring relation of `sensitivity`; replace-one unless `sampling` is "poisson",
        since sizes of samples reveal the number of records.
    label : str, default=""
        What is released, for reports.

    Raises
    ------
    ValueError
        If a field is out of range, is not for this `sampling`, or the sizes do not match.
    """

    sigma: float
    sensitivity: float
    sampling: str
    sampling_rate: float | None = None
    n_samples: int | None = None
    batch_sizes: tuple[int, ...] | None = None
    group_sizes: tuple[int, ...] | None = None
    n_steps: int
    clipped_sum: bool = False
    lattice: float | None = None

    _checks = GaussianEvent._checks | {"clipped_sum": bool}
    _of_sample: ClassVar[dict[str, Check]] = {
        "sampling_rate": rate_of_sampling,
        "n_samples": count,
        "batch_sizes": counts,
        "group_sizes": counts,
    }
    _read: ClassVar[dict[str, tuple[str, ...]]] = {
        "fixed_size": ("batch_sizes", "group_sizes"),
        "poisson": ("sampling_rate",),
        "poisson_rows": ("sampling_rate", "n_samples"),
    }

    def __post_init__(self) -> None:
        """Check the fields and give them their plain Python types."""
        super().__post_init__()
        if self.sampling not in self._read:
            allowed = ", ".join(map(repr, self._read))
            raise self._error("sampling", f"must be one of {allowed}, got {self.sampling!r}")
        for name, check in self._of_sample.items():
            if name in self._read[self.sampling]:
                self._store(name, check)
            elif getattr(self, name) is not None:
                raise self._error(name, f"is not for sampling={self.sampling!r}")
        self._check_lattice(self.sigma, self.lattice)
        self._check_sizes()
        self._check_relation()
        if self.sampling == "poisson":
            sampled_step_mu(self.sigma, self.sensitivity, self.lattice)  # refuses coarse lattices

    def _check_sizes(self) -> None:
        drawn, of = self.batch_sizes or (), self.group_sizes or ()
        if len(drawn) != len(of):
            raise ValueError(
                f"{type(self).__name__}: `batch_sizes` and `group_sizes` must have one entry a "
                f"group, got {len(drawn)} and {len(of)} entries."
            )
        if any(b > n for b, n in zip(drawn, of, strict=True)):
            raise self._error("batch_sizes", f"must not exceed `group_sizes`, got {drawn} of {of}")

    def _check_relation(self) -> None:
        if self.clipped_sum and self.sampling != "poisson":
            raise self._error("clipped_sum", f"is not for sampling={self.sampling!r}")
        if self.relation is Relation.REPLACE_ONE:
            return
        if self.clipped_sum:
            raise self._error(
                "clipped_sum",
                "says that the sensitivity is twice the clipping norm, which holds under "
                f"replace-one only, not {str(self.relation)!r}",
            )
        if self.sampling != "poisson":
            raise self._error(
                "relation",
                f"must be 'replace_one', got {str(self.relation)!r}; samples of which the size "
                "shows reveal the number of records",
            )

    @property
    def mu(self) -> float:
        """Privacy of one step on all records."""
        coins = self.sampling == "poisson"
        return (sampled_step_mu if coins else step_mu)(self.sigma, self.sensitivity, self.lattice)

    @property
    def rate(self) -> float:
        """Probability that a record takes part in a step, in the group where it is largest."""
        if self.sampling_rate is not None:
            return self.sampling_rate
        sizes = zip(self.batch_sizes or (), self.group_sizes or (), strict=True)
        return max(b / n for b, n in sizes)

    @property
    def n_records(self) -> int | None:
        """Public number of records, if the event depends on it."""
        return sum(self.group_sizes) if self.group_sizes else self.n_samples

    def _steps(self) -> Steps:
        mu, rate = self.mu, self.rate
        step: Step | SampledStep = SubsetStep(mu, rate)
        if rate == 1.0:  # a sample of everything is no sample
            step = Step(mu)
        elif self.n_samples is not None:
            step = PoissonRowsStep(mu, rate, self.n_samples)
        elif self.relation is Relation.ADD_REMOVE:
            step = PoissonAddRemoveStep(mu, rate)
        elif self.clipped_sum:
            step = PoissonClippedSumStep(mu, rate)
        yield step, self.n_steps

    def _grouped(self, group_size: int) -> Event:
        if self.sampling != "poisson":
            raise UnknownEventError(
                f"It is not known what sampling={self.sampling!r} costs a person with {group_size} "
                "rows; use group_size=1, with one row a person."
            )
        return replace(self, n_steps=group_size * self.n_steps)

    def _words(self) -> str:
        kind = "one vector a record of" if self.sampling == "poisson_rows" else "from"
        batch = f"a secret sample, in which each record is with probability {self.rate:.4g}"
        if self.sampling == "fixed_size":
            drawn, of = (
                " + ".join(f"{k:,}" for k in n or ()) for n in (self.batch_sizes, self.group_sizes)
            )
            batch = f"{drawn} records drawn afresh and secretly from {of}"
        return f"{_releases(self.n_steps)}, each computed {kind} {batch}: {_noise_words(self)}."


@dataclass(frozen=True, kw_only=True)
class ThresholdedCountsEvent(Event):
    """Noisy counts of the categories that occur, shown where they exceed a threshold.

    Parameters
    ----------
    sigma : float
        Standard deviation of the noise on every count.
    threshold : float
        Noisy counts above it are shown, together with their categories. At least one plus
        `sigma` plus `lattice`.
    n_columns : int, default=1
        Number of columns that are released so, each with one category a record at most.
    lattice : float or None, default=None
        Spacing of the lattice of discrete Gaussian noise; ``None`` is continuous noise.
    relation : Relation, default=Relation.REPLACE_ONE
        What two neighbouring data sets are.
    label : str, default=""
        What is released, for reports.

    Raises
    ------
    ValueError
        If a field is out of range.
    """

    sigma: float
    threshold: float
    n_columns: int = 1
    lattice: float | None = None

    _checks = {
        "sigma": positive,
        "threshold": positive,
        "n_columns": count,
        "lattice": or_none(positive),
    }

    def __post_init__(self) -> None:
        """Check the fields and give them their plain Python types."""
        super().__post_init__()
        self._check_lattice(self.sigma, self.lattice)
        if self.threshold < 1.0 + self.sigma + (self.lattice or 0.0):
            raise self._error(
                "threshold",
                f"must be at least 1 + sigma + lattice, got {self.threshold!r} with "
                f"sigma={self.sigma!r} and lattice={self.lattice!r}",
            )

    @property
    def sensitivity(self) -> float:
        """L2 distance between the counts of one column in neighbouring data sets."""
        return math.sqrt(2.0) if self.relation is Relation.REPLACE_ONE else 1.0

    @property
    def n_steps(self) -> int:
        """Number of releases, one a column."""
        return self.n_columns

    @property
    def mu(self) -> float:
        """All columns are mu-GDP, except with probability `delta_tail`."""
        return math.sqrt(self.n_columns) * step_mu(self.sigma, self.sensitivity, self.lattice)

    @property
    def delta_tail(self) -> float:
        """Probability, rounded up, that categories are shown which only one record has."""
        return self.group_leak(1)

    def group_leak(self, group_size: int) -> float:
        """Bound the probability that categories are shown which only the records of a group have.

        The k records of a group may have up to k such categories in a column, with counts that sum
        to at most k. Of all ways to divide them the likeliest to be shown counts, by the sum of the
        probabilities. As in case 3, what is shown under one neighbour and under the other are
        disjoint, so that the larger one of the two probabilities is a leak; and other counts move
        by at most k times what one record moves them. It is 1 where a count of k lies too near to
        the threshold for the bound of the tail.
        """
        if self.threshold < group_size + self.sigma + (self.lattice or 0.0):
            return 1.0
        shown = [0.0]
        for k in range(1, group_size + 1):
            shown.append(max(self._passes(c) + shown[k - c] for c in range(1, k + 1)))
        if shown[-1] >= 1.0:
            return 1.0
        return -math.expm1(self.n_columns * math.log1p(-shown[-1])) * _UP

    def _passes(self, count: int) -> float:
        """Bound the probability that noise lifts a count past the threshold."""
        steps = Fraction(self.threshold) - count
        if self.lattice is not None:  # less the half that the bound of the discrete tail takes
            steps = (math.floor(steps / Fraction(self.lattice)) + Fraction(1, 2)) * Fraction(
                self.lattice
            )
        return float(ndtr(-float(steps) / self.sigma)) * _UP

    def _steps(self) -> Steps:
        column = replace(self, n_columns=1)
        yield Step(column.mu, column.delta_tail), self.n_columns

    def _grouped(self, group_size: int) -> Event:
        # Each part shows the counts of its own columns.
        return replace(self, n_columns=group_size * self.n_columns)

    def _words(self) -> str:
        columns = f"{self.n_columns:,} columns" if self.n_columns > 1 else "1 column"
        change = "replacing one record moves two counts"
        if self.relation is Relation.ADD_REMOVE:
            change = "adding or removing one record moves one count"
        return (
            f"The categories of {columns}: every count has Gaussian noise of standard deviation "
            f"{self.sigma:.4g}, {change} of a column by 1, and only categories whose noisy counts "
            f"exceed {self.threshold:.4g} are released. With probability {self.delta_tail:.2g} at "
            "most, this shows a category that one record alone has."
        )


@dataclass(frozen=True, kw_only=True)
class BudgetedEvent(Event):
    """Whatever a `PrivacyBudget` of its own admits, or the best of several such trials.

    A budget is a filter: however many fits draw on it, and however later ones depend on earlier
    ones, all together tell no more than "everything with probability `leak`, otherwise one draw of
    N(mu b, 1)". So what happens under it can be charged before it is known.

    With `mean_trials` a random, secret number of independent trials is made, each of which, its
    score included, is such a draw; the one with the best score is released whole, and nothing of
    the others. `skdpot.privacy.private_selection` proves what that costs.

    Parameters
    ----------
    mu : float
        Privacy of what is not leaked, ``PrivacyTarget.mu_cap``; of one trial.
    leak : float, default=0.0
        Probability in [0, 1) of telling everything, ``PrivacyTarget.leak_cap``; of one trial.
    mean_trials : float or None, default=None
        Expected number of trials, from 1 to a million; to 50 for a shape above 3. None is no
        selection.
    shape : float, default=1.0
        Shape of the law of their number: 1 is geometric, 0 logarithmic, infinity Poisson given at
        least one; any other number from -0.5 on a truncated negative binomial law.
    relation : Relation, default=Relation.REPLACE_ONE
        The neighbouring relation of the budget.
    label : str, default=""
        What is released, for reports.

    Raises
    ------
    ValueError
        If a field is out of range.
    """

    mu: float
    leak: float = 0.0
    mean_trials: float | None = None
    shape: float = 1.0

    _checks = {
        "mu": positive,
        "leak": probability,
        "mean_trials": or_none(positive),
        "shape": shape_of_law,
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
        told = self._of_one_record(
            "replacing one record is no easier to notice than a shift of one Gaussian number by "
            f"{self.mu:.4g} standard deviations"
        )
        told += f", except with probability {self.leak:.2g}" if self.leak > 0.0 else ""
        if self.mean_trials is None:
            return f"Whatever a budget of its own admitted: {told}."
        return (
            f"The best of a random, secret number of trials, {self.mean_trials:.4g} on average, "
            f"and nothing of the others; each trial, its score included: {told}."
        )


@dataclass(frozen=True, kw_only=True)
class ComposedEvent(Event):
    """Several events on the same records, all fixed before the first one starts.

    Parameters
    ----------
    events : tuple of Event
        The phases, all under one relation, which becomes the relation of the composition.

    Raises
    ------
    ValueError
        If there is no event, or the relations differ.
    """

    relation: Relation = field(init=False)
    label: str = field(default="", init=False, compare=False)
    events: tuple[Event, ...]

    def __post_init__(self) -> None:
        """Check that the phases exist and can be composed."""
        events = tuple(self.events)
        if not events or not all(isinstance(event, Event) for event in events):
            raise ValueError("ComposedEvent: `events` must hold one or more Event objects.")
        relations = {event.relation for event in events}
        if len(relations) > 1:
            raise ValueError(
                "ComposedEvent: `events` must share one relation, got "
                f"{', '.join(sorted(relations))}; derive every sensitivity under the same one."
            )
        object.__setattr__(self, "events", events)
        object.__setattr__(self, "relation", relations.pop())

    @property
    def phases(self) -> tuple[Any, ...]:
        """The single events that this one consists of, however they are nested."""
        return tuple(phase for event in self.events for phase in event.phases)

    @property
    def sigma(self) -> tuple[float, ...]:
        """Standard deviation of the noise of each phase that adds noise."""
        return tuple(phase.sigma for phase in self.phases if hasattr(phase, "sigma"))

    @property
    def sensitivity(self) -> tuple[float, ...]:
        """L2 sensitivity of each phase that adds noise."""
        return tuple(phase.sensitivity for phase in self.phases if hasattr(phase, "sigma"))

    @property
    def is_private(self) -> bool:
        """Whether everything that is released has noise."""
        return all(event.is_private for event in self.events)

    def group_leak(self, group_size: int) -> float:
        """Bound the probability that a phase tells everything of a group; at most 1."""
        return min(1.0, math.fsum(event.group_leak(group_size) for event in self.events))

    def describe(self) -> str:
        """Return a sentence on each phase: what it releases, with which noise."""
        return " ".join(phase.describe() for phase in self.phases)

    def to_dict(self) -> dict[str, Any]:
        """Return the event as what JSON can hold."""
        parts = [event.to_dict() for event in self.events]
        return {"type": type(self).__name__, "events": parts}

    def __str__(self) -> str:
        """Return the events, each with the fields that were chosen."""
        return f"{type(self).__name__}({', '.join(map(str, self.events))})"

    def _steps(self) -> Steps:
        for event in self.events:
            yield from event.steps()

    def _grouped(self, group_size: int) -> Event:
        return ComposedEvent(events=tuple(event.grouped(group_size) for event in self.events))


@dataclass(frozen=True, kw_only=True)
class NonPrivateEvent(Event):
    """A release without noise: epsilon is infinite and no finite budget admits it.

    Parameters
    ----------
    relation : Relation, default=Relation.REPLACE_ONE
        The relation of the ledger or composition that it belongs to.
    label : str, default=""
        What is released, for reports.
    """

    @property
    def is_private(self) -> bool:
        """Whether everything that is released has noise."""
        return False

    def _steps(self) -> Steps:
        yield Step(math.inf), 1

    def _grouped(self, group_size: int) -> Event:
        return self

    def _words(self) -> str:
        return "Something was released without any noise."


EVENTS |= {
    kind.__name__: kind
    for kind in (
        BudgetedEvent,
        ComposedEvent,
        GaussianEvent,
        NonPrivateEvent,
        SampledGaussianEvent,
        ThresholdedCountsEvent,
    )
}
