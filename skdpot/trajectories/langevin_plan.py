r"""What mean-field Langevin dynamics spends, settled before any record is read.

Why one time's releases are the whole charge
--------------------------------------------
Records are :math:`(x, t)` with public time stamps: neighbours replace the :math:`x` of one record
and keep its :math:`t`, so that they differ in the records of one time :math:`i` only. Were the
times worked on one after the other, without regard to each other, this would be parallel
composition. Here they are not: the particles of time :math:`i` are drawn to those of the
neighbouring times, which depend on other records. It holds all the same:

* The algorithm is a sequence of releases, one a time and step; each is drawn from a distribution
  that is determined by the records of *its* time and by what was released before.
* Take two neighbours, and let them differ in time :math:`i`. Every release of another time has
  the same conditional distribution, given the past, under both. It is a random function of
  the past that knows nothing of which neighbour it serves: post-processing.
* Every release of time :math:`i` is, given the past, a Gaussian sum of clipped vectors over a fresh
  Poisson sample, with particles, noise and rate that the past determines (and noise and rate are
  even fixed beforehand).
* So the joint law of all releases, under the two neighbours, is an adaptive composition of the
  releases of time :math:`i` alone, interleaved with post-processing. Its loss is bounded by the
  composition of the bounds of each.

The bounds are the same whatever the time, since the rate, the noise and the number of steps are.
The steps of one time are therefore the event. Before them come the warm start, for which the same
holds, and private bounds, which see all records together.

A person with up to k rows, all at different times, changes k of the times:
`skdpot.privacy.group_privacy` says why the steps then count k times. Bounds pool all times, and
there the sensitivity is k times larger.
"""

import math
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass

from skdpot.exceptions import CalibrationError
from skdpot.privacy.bounds_plan import BoundsPlan
from skdpot.privacy.calibration import PrivacyTarget, calibrate
from skdpot.privacy.data_bounds import DataBounds
from skdpot.privacy.events import ComposedEvent, Event, NonPrivateEvent, PoissonGaussianEvent
from skdpot.privacy.group_privacy import check_group_size, in_different_parts
from skdpot.privacy.noise import LatticeNoise, noise_for_sums
from skdpot.trajectories.warm_start_plan import WarmStartPlan

__all__ = ["LangevinPhase", "LangevinPlan", "plan_langevin"]

_SMALLEST, _LARGEST = 1e-12, 1e12  # beyond, potentials and steps are no longer finite


@dataclass(frozen=True)
class LangevinPhase:
    """Iterations with one step size and one diffusivity.

    Parameters
    ----------
    step_size : float
        Length of a step along the gradient.
    diffusivity : float
        Diffusivity of the reference process, which sets how strictly the particles of
        neighbouring times are coupled. It has nothing to do with the privacy noise.
    n_iter : int
        Number of iterations.

    Raises
    ------
    ValueError
        If a field is out of range.
    """

    step_size: float
    diffusivity: float
    n_iter: int

    def __post_init__(self) -> None:
        """Check the ranges."""
        for name in ("step_size", "diffusivity"):
            value = getattr(self, name)
            if isinstance(value, bool) or not _SMALLEST <= value <= _LARGEST:
                raise ValueError(
                    f"`{name}` of a phase must lie between {_SMALLEST:g} and {_LARGEST:g}, got "
                    f"{value!r}."
                )
        if isinstance(self.n_iter, bool) or int(self.n_iter) != self.n_iter or self.n_iter < 1:
            raise ValueError(f"`n_iter` of a phase must be an integer >= 1, got {self.n_iter!r}.")


@dataclass(frozen=True, kw_only=True)
class LangevinPlan:
    """The public parameters of private mean-field Langevin dynamics.

    Parameters
    ----------
    phases : tuple of LangevinPhase
        What is done, in this order.
    noises : tuple of (LatticeNoise or None)
        Noise on the sum of clipped gradients in each phase; None without privacy.
    clip : float
        Norm that one record's gradient on all particles of its time is clipped to.
    sampling_rate : float
        Probability that a record takes part in an iteration, the same at all times.
    group_size : int
        Largest number of rows of a person, all at different times.
    bounds : DataBounds or BoundsPlan
        Public bounds, or how bounds are estimated first.
    warm : WarmStartPlan or None
        How starting points are released, if they are.
    event : Event
        Everything together: what is charged.
    """

    phases: tuple[LangevinPhase, ...]
    noises: tuple[LatticeNoise | None, ...]
    clip: float
    sampling_rate: float
    group_size: int
    bounds: DataBounds | BoundsPlan
    warm: WarmStartPlan | None
    event: Event

    @property
    def sigmas(self) -> tuple[float, ...]:
        """Standard deviation of the noise of each phase; 0 without privacy."""
        return tuple(0.0 if noise is None else noise.sigma for noise in self.noises)

    @property
    def noise_multipliers(self) -> tuple[float, ...]:
        """Noise of each phase in units of the *clipping norm* (half of the sensitivity)."""
        return tuple(sigma / self.clip for sigma in self.sigmas)

    @property
    def n_iter(self) -> int:
        """Number of iterations of all phases."""
        return sum(phase.n_iter for phase in self.phases)


def plan_langevin(
    target: PrivacyTarget,
    phases: Iterable[LangevinPhase],
    *,
    clip: float,
    dim: int,
    sampling_rate: float,
    bounds: DataBounds | BoundsPlan,
    noise_multiplier: float | Sequence[float] | None = None,
    warm: WarmStartPlan | None = None,
    group_size: int = 1,
) -> LangevinPlan:
    """Find the least noise that meets a target, or account for the noise that is given.

    Parameters
    ----------
    target : PrivacyTarget
        Epsilon and delta of everything together: bounds, warm start and all phases. Infinite
        epsilon is no noise in the phases, whatever else is given.
    phases : iterable of LangevinPhase
        At least one.
    clip : float
        Norm that one record's gradient on all particles of its time is clipped to.
    dim : int
        Number of entries m × d of such a gradient.
    sampling_rate : float
        Probability in (0, 1] that a record takes part in an iteration.
    bounds : DataBounds or BoundsPlan
        Public bounds, or the plan of the events that estimate them, with the same `group_size`.
    noise_multiplier : float or sequence of float, optional
        Noise of the sum of clipped gradients in units of `clip`: one number, or one a phase.
        Then the event is what it costs, and may exceed the target. By default the least that
        fits, the same in all phases. 0 is no noise and no privacy.
    warm : WarmStartPlan, optional
        Planned with the same `group_size`.
    group_size : int, default=1
        Largest number of rows of a person, all at different times.

    Returns
    -------
    LangevinPlan
        Without `noise_multiplier` its event fits the target.

    Raises
    ------
    CalibrationError
        If no noise meets the target.
    ValueError
        If a parameter is out of range, or does not match the others.

    Privacy
    -------
    Nothing is released here. One iteration releases, for each time, the sum of one clipped
    m × d gradient a record over a Poisson sample, with noise of standard deviation
    ``noise_multiplier * clip``. Replacing a record moves the sum by at most ``2 * clip``
    (`skdpot.trajectories.data_fit`), and slightly more once it is rounded to the lattice of the
    noise (`skdpot.privacy.noise.noise_for_sums`). The event is that of one time, as the notes of
    this module prove, under replace-one of ``x`` given its public time stamp.

    Examples
    --------
    >>> plan = plan_langevin(
    ...     PrivacyTarget(1.0, 5e-4),
    ...     [LangevinPhase(step_size=0.001, diffusivity=0.1, n_iter=20)],
    ...     clip=1.0,
    ...     dim=100,
    ...     sampling_rate=20 / 650,
    ...     bounds=DataBounds.from_box(0.0, 1.0, 2),
    ... )
    >>> plan.noise_multipliers
    (1.1...,)
    """
    phases = tuple(phases)
    group_size = check_group_size(group_size)
    _check(phases, clip, sampling_rate)
    before = _events_before(bounds, warm, group_size)

    def noise_of(multiplier: float) -> LatticeNoise:
        return noise_for_sums(multiplier * clip, 2.0 * clip, dim)

    def whole(multipliers: Sequence[float]) -> Event:
        steps = (
            PoissonGaussianEvent(
                sigma=noise.sigma,
                sensitivity=noise.sensitivity,
                sampling_rate=sampling_rate,
                n_steps=phase.n_iter,
                clipped_sum=True,
                lattice=noise.lattice,
            )
            for phase, noise in zip(phases, map(noise_of, multipliers), strict=True)
        )
        of_times = (in_different_parts(event, group_size) for event in steps)
        return ComposedEvent(events=(*before, *of_times))

    event, noises = _noise(target, whole, noise_of, noise_multiplier, len(phases))
    return LangevinPlan(
        phases=phases,
        noises=noises,
        clip=float(clip),
        sampling_rate=float(sampling_rate),
        group_size=group_size,
        bounds=bounds,
        warm=warm,
        event=event,
    )


def _check(phases: tuple[LangevinPhase, ...], clip: float, sampling_rate: float) -> None:
    if not phases or not all(isinstance(phase, LangevinPhase) for phase in phases):
        raise ValueError("`phases` must hold one or more LangevinPhase objects.")
    if isinstance(clip, bool) or not (math.isfinite(clip) and clip > 0):
        raise ValueError(f"`clip` must be positive and finite, got {clip!r}.")
    if isinstance(sampling_rate, bool) or not 0.0 < sampling_rate <= 1.0:
        raise ValueError(f"`sampling_rate` must lie in (0, 1], got {sampling_rate!r}.")


def _events_before(
    bounds: DataBounds | BoundsPlan, warm: WarmStartPlan | None, group_size: int
) -> tuple[Event, ...]:
    """Return what is released before the first step, each for a whole group of rows."""
    releases = {"bounds": bounds if isinstance(bounds, BoundsPlan) else None, "warm": warm}
    events = []
    for name, release in releases.items():
        if release is None:
            continue
        if release.group_size != group_size and type(release.event) is not NonPrivateEvent:
            raise ValueError(
                f"`{name}` was planned for group_size={release.group_size}, but group_size="
                f"{group_size} is asked for; plan all for the same number of rows a person."
            )
        events.append(release.event)
    return tuple(events)


def _noise(
    target: PrivacyTarget,
    whole: Callable[[Sequence[float]], Event],
    noise_of: Callable[[float], LatticeNoise],
    given: float | Sequence[float] | None,
    n_phases: int,
) -> tuple[Event, tuple[LatticeNoise | None, ...]]:
    """Return the event of the whole fit and the noise of each phase."""
    if math.isinf(target.epsilon):
        if given is not None and any(_multipliers(given, n_phases)):
            raise ValueError(
                "`noise_multiplier` asks for noise and epsilon=inf for none: leave "
                "noise_multiplier=None, or give the epsilon that private bounds and a warm start "
                "may take."
            )
        return NonPrivateEvent(), (None,) * n_phases
    if given is None:
        event = calibrate(target, lambda multiplier: whole((multiplier,) * n_phases))
    else:
        multipliers = _multipliers(given, n_phases)
        if 0.0 in multipliers:
            return NonPrivateEvent(), tuple(noise_of(m) if m > 0.0 else None for m in multipliers)
        event = whole(multipliers)
    if not isinstance(event, ComposedEvent):
        raise CalibrationError("The noise of the steps could not be calibrated.")
    return event, tuple(
        LatticeNoise(sigma=step.sigma, sensitivity=step.sensitivity, lattice=step.lattice)
        for step in event.events
        if isinstance(step, PoissonGaussianEvent) and step.lattice is not None
    )


def _multipliers(given: float | Sequence[float], n_phases: int) -> tuple[float, ...]:
    """Return one noise multiplier a phase."""
    listed = tuple(given) if isinstance(given, Iterable) else (given,) * n_phases
    if len(listed) != n_phases:
        raise ValueError(
            f"`noise_multiplier` must be one number or one a phase, of which there are {n_phases}; "
            f"got {len(listed)}."
        )
    for value in listed:
        if isinstance(value, bool) or not (math.isfinite(value) and value >= 0):
            raise ValueError(f"`noise_multiplier` must be finite and >= 0, got {value!r}.")
    return tuple(float(value) for value in listed)
