"""How each type of event splits into steps, by a registry.

A step is one release. Events that do the same thing in other units (sigma 10 for sensitivity 2,
or 5 for 1) give equal steps, so that steps can be counted and what is computed for them reused.
"""

import math
from collections.abc import Callable, Iterator
from dataclasses import dataclass, replace
from typing import Any, TypeAlias

from skdpot.exceptions import UnknownEventError
from skdpot.privacy.events import (
    BudgetedEvent,
    ComposedEvent,
    Event,
    FixedSizeGaussianEvent,
    GaussianEvent,
    NonPrivateEvent,
    PoissonGaussianEvent,
    PoissonRowsGaussianEvent,
    PrivateSelectionEvent,
    ThresholdedCountsEvent,
)
from skdpot.privacy.grid import SampledStep
from skdpot.privacy.number_of_trials import TrialLaw
from skdpot.privacy.poisson import PoissonAddRemoveStep, PoissonClippedSumStep
from skdpot.privacy.poisson_rows import PoissonRowsStep
from skdpot.privacy.private_selection import LARGEST_MU, SelectionStep
from skdpot.privacy.relation import Relation
from skdpot.privacy.without_replacement import SubsetStep

__all__ = ["GaussianStep", "LeakyStep", "NonPrivateStep", "Step", "steps_of"]


@dataclass(frozen=True)
class GaussianStep:
    """One mu-GDP release that touches all records."""

    mu: float


@dataclass(frozen=True)
class LeakyStep:
    """One release that tells everything with probability `leak`, and is mu-GDP otherwise."""

    mu: float
    leak: float


@dataclass(frozen=True)
class NonPrivateStep:
    """One release without noise."""

    mu: float = math.inf


Step: TypeAlias = GaussianStep | LeakyStep | NonPrivateStep | SampledStep
CountedSteps: TypeAlias = Iterator[tuple[Step, int]]


def steps_of(event: Event) -> CountedSteps:
    """Split an event into steps.

    Parameters
    ----------
    event : Event
        Its exact type must be registered: a subclass may mean something else.

    Yields
    ------
    tuple of (Step, int)
        A step and how often it is repeated.

    Raises
    ------
    UnknownEventError
        If the type of `event`, or of a phase of it, is not registered.
    """
    try:
        steps = _STEPS[type(event)]
    except KeyError:
        known = ", ".join(sorted(kind.__name__ for kind in _STEPS))
        raise UnknownEventError(
            f"No accountant is known for {type(event).__name__}; there is one for {known}."
        ) from None
    return steps(event)


def _gaussian_steps(event: GaussianEvent) -> CountedSteps:
    yield GaussianStep(replace(event, n_steps=1).mu), event.n_steps


def _poisson_steps(event: PoissonGaussianEvent) -> CountedSteps:
    mu, rate = event.mu, event.sampling_rate
    step: Step
    if rate == 1.0:  # a sample of everything is no sample
        step = GaussianStep(mu)
    elif event.relation is Relation.ADD_REMOVE:
        step = PoissonAddRemoveStep(mu, rate)
    elif event.clipped_sum:
        step = PoissonClippedSumStep(mu, rate)
    else:
        step = SubsetStep(mu, rate)
    yield step, event.n_steps


def _fixed_size_steps(event: FixedSizeGaussianEvent) -> CountedSteps:
    mu, rate = event.mu, event.sampling_rate
    yield (GaussianStep(mu) if rate == 1.0 else SubsetStep(mu, rate)), event.n_steps


def _poisson_rows_steps(event: PoissonRowsGaussianEvent) -> CountedSteps:
    mu, rate = event.mu, event.sampling_rate
    sampled = rate < 1.0  # a sample of everything is no sample
    step = PoissonRowsStep(mu, rate, event.n_samples) if sampled else GaussianStep(mu)
    yield step, event.n_steps


def _thresholded_steps(event: ThresholdedCountsEvent) -> CountedSteps:
    column = replace(event, n_columns=1)
    yield LeakyStep(column.mu, column.delta_tail), event.n_columns


def _budgeted_steps(event: BudgetedEvent) -> CountedSteps:
    yield LeakyStep(event.mu, event.leak), 1


def _selection_steps(event: PrivateSelectionEvent) -> CountedSteps:
    if event.mu > LARGEST_MU:
        yield NonPrivateStep(), 1
        return
    law = TrialLaw.with_mean(event.mean_trials, event.shape)
    step = SelectionStep(event.mu, law.thinned(event.leak))
    yield step, 1
    yield LeakyStep(0.0, min(1.0 - 1e-9, event.mean_trials * event.leak + step.leak)), 1


def _composed_steps(event: ComposedEvent) -> CountedSteps:
    for phase in event.events:
        yield from steps_of(phase)


def _no_noise(event: NonPrivateEvent) -> CountedSteps:
    yield NonPrivateStep(), 1


_STEPS: dict[type[Event], Callable[[Any], CountedSteps]] = {
    GaussianEvent: _gaussian_steps,
    PoissonGaussianEvent: _poisson_steps,
    FixedSizeGaussianEvent: _fixed_size_steps,
    PoissonRowsGaussianEvent: _poisson_rows_steps,
    ThresholdedCountsEvent: _thresholded_steps,
    BudgetedEvent: _budgeted_steps,
    PrivateSelectionEvent: _selection_steps,
    ComposedEvent: _composed_steps,
    NonPrivateEvent: _no_noise,
}
