"""How noisy projections of rows will be released, settled before any row is read."""

import math
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any, Literal

import numpy as np

from skdpot.exceptions import CalibrationError
from skdpot.privacy.bounds_plan import BoundsPlan
from skdpot.privacy.calibration import PrivacyTarget, calibrate
from skdpot.privacy.data_bounds import DataBounds
from skdpot.privacy.events import (
    ComposedEvent,
    Event,
    GaussianEvent,
    NonPrivateEvent,
    SampledGaussianEvent,
)
from skdpot.privacy.lattice_sampler import MAX_S, required_bits
from skdpot.privacy.noise import rounded_sensitivity
from skdpot.slicing.plan import bounds_or_plan

__all__ = ["RowParameters", "RowPlan", "one_step_mu", "plan_rows"]

_ROUNDING_SHARE = 1 / 1024  # of the sensitivity, that rounding to the lattice may add
_LATTICE_STEPS = 16.0

RowsEvent = GaussianEvent | SampledGaussianEvent


@dataclass(frozen=True, kw_only=True)
class RowParameters:
    """What an estimator asks for.

    Parameters
    ----------
    n_steps : int
        Number of releases, each with fresh directions and a fresh batch.
    n_slices : int
        Number of directions of a release.
    slices : {"orthogonal", "uniform"}, default="orthogonal"
        How directions are drawn.
    batch_size : int or None, default=None
        Rows of a release; with "poisson" their expected number. ``None``, or as many rows as
        there are: all rows in every release.
    sampling : {"without_replacement", "poisson"}, default="without_replacement"
        How a batch is drawn.
    sigma : float or None, default=None
        Standard deviation of the noise in the units of the mapped rows; the statement then says
        what that costs. ``None`` calibrates it to the target; 0 is no privacy.
    noise : {"discrete", "float"}, default="discrete"
        Discrete Gaussian noise on a lattice, or floating-point noise, which is not hardened
        against attacks on floating-point arithmetic.

    Raises
    ------
    ValueError
        If a value is out of range.
    """

    n_steps: int
    n_slices: int
    slices: Literal["orthogonal", "uniform"] = "orthogonal"
    batch_size: int | None = None
    sampling: Literal["without_replacement", "poisson"] = "without_replacement"
    sigma: float | None = None
    noise: Literal["discrete", "float"] = "discrete"

    def __post_init__(self) -> None:
        """Check the ranges."""
        counts: dict[str, Any] = {"n_steps": self.n_steps, "n_slices": self.n_slices}
        if self.batch_size is not None:
            counts["batch_size"] = self.batch_size
        for name, value in counts.items():
            if isinstance(value, bool) or not isinstance(value, int | np.integer) or value < 1:
                raise ValueError(f"{name}={value!r} must be an integer of at least 1.")
            object.__setattr__(self, name, int(value))
        for name, allowed in {
            "slices": ("orthogonal", "uniform"),
            "sampling": ("without_replacement", "poisson"),
            "noise": ("discrete", "float"),
        }.items():
            if getattr(self, name) not in allowed:
                raise ValueError(
                    f"{name}={getattr(self, name)!r} must be {' or '.join(map(repr, allowed))} "
                    "for a release of projected rows."
                )
        if self.sigma is not None and not (math.isfinite(self.sigma) and self.sigma >= 0.0):
            raise ValueError(f"sigma={self.sigma!r} must be finite and at least 0, or None.")


@dataclass(frozen=True)
class RowPlan:
    """The public parameters of one release of projected rows.

    Parameters
    ----------
    parameters : RowParameters
        What was asked for.
    n_samples : int
        Number of rows.
    sigma : float
        Standard deviation of the noise, 0 without privacy. In the units of the mapped rows
        where `unit` is their public radius; in shares of the radius where `unit` is 1 because
        the radius is estimated first.
    sensitivity : float
        L2 sensitivity Δ of one release under replace-one, rounding included; same units.
    unit : float
        See `sigma`.
    lattice : float or None
        Spacing of the noise as a share of the radius, a power of two; None without a lattice.
    bounds : DataBounds or BoundsPlan
        Public bounds, or how bounds are estimated first.
    event : Event
        Everything together: what is charged.
    """

    parameters: RowParameters
    n_samples: int
    sigma: float
    sensitivity: float
    unit: float
    lattice: float | None
    bounds: DataBounds | BoundsPlan
    event: Event

    @property
    def all_rows(self) -> bool:
        """Whether every release holds all rows."""
        size = self.parameters.batch_size
        return size is None or size >= self.n_samples

    @property
    def noise_event(self) -> RowsEvent | None:
        """The part of the event that pays for the rows; None without noise."""
        return self.event.phases[-1] if self.event.is_private else None

    @property
    def mechanism(self) -> str:
        """What is done, for the privacy statement."""
        asked = self.parameters
        along = f"along {asked.n_slices} {asked.slices} directions"
        units = "" if isinstance(self.bounds, DataBounds) else ", noise in shares of the radius"
        if self.all_rows:
            times = "" if asked.n_steps == 1 else f", {asked.n_steps} times"
            return f"noisy projections of all rows {along}{times}{units}"
        size = f"about {asked.batch_size}" if asked.sampling == "poisson" else asked.batch_size
        return f"noisy projections of {asked.n_steps} secret batches of {size} rows {along}{units}"


def plan_rows(
    target: PrivacyTarget,
    parameters: RowParameters,
    n_samples: int,
    n_features: int,
    *,
    bounds: DataBounds | int,
    directions_norm: float,
) -> RowPlan:
    """Choose the least noise that meets a target, or cost the noise that is given.

    Parameters
    ----------
    target : PrivacyTarget
        Epsilon and delta of everything together; with a given sigma its epsilon is not used.
    parameters : RowParameters
        What is asked for.
    n_samples, n_features : int
        Public size of the data.
    bounds : DataBounds or int
        Public bounds, or the number of rows from which bounds are estimated first, for
        `bounds_share` of the squared mu.
    directions_norm : float
        Upper bound of the largest singular value of the directions of any step
        (`StepDirections.largest_norm`).

    Returns
    -------
    RowPlan
        Without a given sigma its event fits the target exactly once.

    Raises
    ------
    CalibrationError
        If no noise meets the target, or the noise given cannot be drawn.
    ValueError
        If sigma is given while bounds are to be estimated.
    """
    fixed = parameters.sigma
    no_noise = fixed == 0 or (fixed is None and math.isinf(target.epsilon))
    if fixed and not isinstance(bounds, DataBounds):
        raise ValueError(
            "sigma= is in the units of the mapped rows, which bounds='private' fixes only after "
            "a part of the budget was spent: give bounds=(low, high) or norm_bound=, or leave "
            "sigma=None to calibrate it to epsilon."
        )
    limits = bounds_or_plan(bounds, n_features, math.inf if no_noise else target.mu_cap)
    unit = limits.radius if isinstance(limits, DataBounds) else 1.0
    exact = 2.0 * directions_norm * (1.0 + 1e-15)
    if no_noise:
        return RowPlan(
            parameters, n_samples, 0.0, exact * unit, unit, None, limits, NonPrivateEvent()
        )
    rows_event = _event_maker(parameters, n_samples, exact, unit)

    def fit_event(sigma: float) -> Event:
        if isinstance(limits, DataBounds):
            return rows_event(sigma)
        return ComposedEvent(events=(limits.event, rows_event(sigma)))

    event = fit_event(fixed) if fixed else calibrate(target, fit_event)
    noise = event.phases[-1]
    lattice = None if noise.lattice is None else _lattice(parameters, exact, noise.sigma / unit)
    _check_noise_can_be_drawn(noise)
    return RowPlan(
        parameters, n_samples, noise.sigma, noise.sensitivity, unit, lattice, limits, event
    )


def _event_maker(
    parameters: RowParameters, n_samples: int, exact: float, unit: float
) -> Callable[[float], RowsEvent]:
    """Return the event of the rows as a function of sigma; `exact` is Δ in the unit ball."""
    size = parameters.batch_size or n_samples

    def make(sigma: float) -> RowsEvent:
        sensitivity, lattice = exact, None
        if parameters.noise == "discrete":
            lattice = _lattice(parameters, exact, sigma / unit)
            sensitivity = rounded_sensitivity(exact, lattice, parameters.n_slices)
            lattice *= unit
        shared: dict[str, Any] = {
            "sigma": sigma,
            "sensitivity": sensitivity * unit * (1.0 + 1e-15),
            "n_steps": parameters.n_steps,
            "lattice": lattice,
            "label": "Noisy rows",
        }
        if size >= n_samples:
            return GaussianEvent(**shared)
        if parameters.sampling == "poisson":
            return SampledGaussianEvent(
                sampling="poisson_rows",
                sampling_rate=size / n_samples,
                n_samples=n_samples,
                **shared,
            )
        return SampledGaussianEvent(
            sampling="fixed_size", batch_sizes=(size,), group_sizes=(n_samples,), **shared
        )

    return make


def _lattice(parameters: RowParameters, exact: float, sigma: float) -> float:
    """Return a power of two, fine beside what one record changes and beside the noise."""
    rounding = exact * _ROUNDING_SHARE / math.sqrt(parameters.n_slices)
    return float(2.0 ** math.floor(math.log2(min(rounding, sigma / _LATTICE_STEPS))))


def _check_noise_can_be_drawn(noise: RowsEvent) -> None:
    """Refuse noise that the sampler would refuse, before any charge."""
    if noise.lattice is None:
        return
    s = noise.sigma / noise.lattice
    if s > MAX_S:
        raise CalibrationError(
            f"sigma = {noise.sigma:.4g} is more than 2**40 times the lattice of the rows: epsilon "
            "is too small, or sigma too large, for anything to be learned."
        )
    try:
        required_bits(s, one_step_mu(noise))
    except CalibrationError as error:
        raise CalibrationError(f'{error} noise="float" draws it without a guarantee.') from error


def one_step_mu(noise: RowsEvent) -> float:
    """Return mu of one release to the rows that it sees; its leak is charged once a step."""
    return noise.mu / math.sqrt(noise.n_steps) if isinstance(noise, GaussianEvent) else noise.mu
