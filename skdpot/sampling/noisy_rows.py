"""The mechanisms of the flow paper: projections of rows with noise on every value."""

import math
from dataclasses import KW_ONLY, dataclass, replace
from numbers import Real
from typing import Any, ClassVar

import numpy as np

from skdpot._utils.parameters import Interval, StrOptions
from skdpot.base import COUNT, FitContext, MechanismResult, refuse_classes
from skdpot.ot.flow import FlowSchedule
from skdpot.ot.flow_problems import SmoothedFlowProblem
from skdpot.privacy.reliability import Reliability
from skdpot.release.bounds import public_bounds
from skdpot.sampling.feature_laws import FeatureLaws, half_width, laws_of_rows, start_of_rows
from skdpot.sampling.row_mechanism import FlowMechanism
from skdpot.sampling.row_releases import (
    SmoothedProjections,
    StepDirections,
    noisy_batches,
    plan_rows,
)

# Choices of the flow paper: the step (its code has h = 3 in dimension 8, where a full step is 8),
# and the number of frozen directions with the share that a step uses.
_STEP_SIZE = 0.375
_FROZEN_SLICES = 31
_SHARE_OF_FROZEN = 25 / 31
# Quantiles of noisy values move a particle at random in each step. The mean square of the error of
# n normal quantiles is about this, over n, in squared deviations (it grows like log log n).
_QUANTILE_NOISE = 3.0
_WALK = 0.1  # largest spread of these moves over all steps, as a share of half the range
# What few steps leave of the difference between the spread of a feature and the common one, if
# nothing is known of it, as a share of the common spread.
_COMMON = 0.25
_ADVICE = "Use a Sketch, which needs far less noise, more rows or a larger epsilon."
# Expected rows of all Poisson samples: they are all empty with a probability below 1e-9.
_FEWEST_ROWS = 21
# The default number of steps is this many passes over the rows, within limits.
_EPOCHS = 20
_FEWEST_STEPS, _MOST_STEPS = 60, 2000

_NOISE_CONSTRAINTS: dict[str, list[Any]] = {
    "projections": [StrOptions({"orthogonal", "uniform"})],
    "sigma": [Interval(Real, 0, np.inf, closed="left"), None],
    "noise": [StrOptions({"discrete", "float"})],
}


class NoisyRows(FlowMechanism):
    """Base of both mechanisms of the flow paper: noise on projected rows, equal steps."""

    projections: Any
    sigma: float | None
    noise: str

    def problem(
        self, released: SmoothedProjections, radius: float, label: Any
    ) -> SmoothedFlowProblem:
        """Return the distance to the released projections; particles start at their moments."""
        location, spread = start_of_rows(released)
        return SmoothedFlowProblem(
            released.batches,
            released.sigma,
            radius,
            self._per_step(len(released.batches[0].directions)),
            location=location,
            spread=spread,
        )

    def _per_step(self, n_projections: int) -> int:
        """Return the number of directions of a step of the flow."""
        return n_projections

    def schedule(
        self,
        released: SmoothedProjections,
        n_steps: int,
        step_size: float | str,
        diffusion: float,
    ) -> FlowSchedule:
        """Return Euler-Maruyama steps.

        Steps of a given length are equal, as in the paper. By default they are shorter where the
        noise would scatter the particles, and fall in the second half.
        """
        n_batches = len(released.batches)
        n_steps = n_steps if n_batches == 1 else n_batches
        if not isinstance(step_size, str):
            return FlowSchedule(n_steps, step_size, diffusion, momentum=0.0, decay=False)
        schedule = FlowSchedule(n_steps, _STEP_SIZE, diffusion, momentum=0.0)
        walk = self._walk(released, schedule) / half_width(released.bounds)
        return replace(schedule, step_size=_STEP_SIZE * min(1.0, _WALK / max(walk, _WALK)))

    def _noise_of_step(self, released: SmoothedProjections) -> float:
        """Return the deviation that one noisy value per direction gives a full step."""
        batch = released.batches[0]
        n_projections, n_features = batch.directions.shape
        ratio = self._per_step(n_projections) / n_features
        return released.sigma * math.sqrt(ratio) / max(1.0, ratio)

    def _walk(self, released: SmoothedProjections, schedule: FlowSchedule) -> float:
        """Return the spread that noise gives particles over all steps, in mapped units."""
        of_step = self._noise_of_step(released) * math.sqrt(_QUANTILE_NOISE / released.n_rows)
        shares = [schedule.share(step) for step in range(schedule.n_steps)]
        return of_step * math.sqrt(math.fsum(share**2 for share in shares))

    def reliability_of_flow(
        self, result: MechanismResult, schedule: FlowSchedule, names: Any
    ) -> Reliability:
        """Add the errors of a flow to those of the means and the spread of the release.

        Noisy quantiles scatter the particles, and pull them weakly: what few steps leave of the
        common spread at the start is an error of the spreads of single features.
        """
        released = result.value
        laws = laws_of_rows(released)
        variance, sigma = float(laws.spreads[0]) ** 2, released.sigma
        walk, of_step = self._walk(released, schedule), self._noise_of_step(released)
        shares = [schedule.share(step) for step in range(schedule.n_steps)]
        left = math.exp(-math.fsum(shares) * variance / (variance + sigma**2)) if sigma else 0.0
        moved = laws.mean_errors**2
        for share in shares:
            moved = (1 - share) ** 2 * moved + share**2 * of_step**2 / released.n_rows
        squares = laws.spread_errors**2 + walk**2 + (_COMMON * left) ** 2 * variance
        laws = replace(
            laws,
            mean_errors=np.sqrt(np.maximum(moved, laws.mean_errors**2)),
            spread_errors=np.sqrt(squares),
        )
        return laws.reliability(names, released.bounds, _ADVICE)

    def _noisy_rows(
        self,
        context: FitContext,
        rows: np.ndarray,
        n_steps: int,
        n_projections: int,
        batch_size: int | None = None,
        sampling: str = "without_replacement",
    ) -> MechanismResult:
        """Plan and charge, and only then read the rows and draw the noise.

        Releases ``Θ_k B_kᵀ + noise`` for the batches B_k of all steps, as one event under
        replace-one with sensitivity ``2 R max_k ‖Θ_k‖₂``, after the events of private bounds.
        Batches are secret; their sizes and all directions are public. Values are sorted after the
        noise, which removes the order of the rows.
        """
        n_samples, n_features = rows.shape
        streams = context.streams
        directions = StepDirections(
            self.projections, n_steps, n_projections, n_features, streams.public
        )
        plan = plan_rows(
            context.target,
            directions,
            n_samples,
            bounds=public_bounds(context.bounds, context.norm_bound, n_features) or n_samples,
            sigma=self.sigma,
            noise=self.noise,
            batch_size=batch_size,
            sampling=sampling,
        )
        is_float = plan.sigma > 0 and plan.lattice is None
        assumed = ("floating-point noise counts as Gaussian (not hardened)",) if is_float else ()
        spent = context.charge(plan, assumed, plan.mechanism, sigma_given=self.sigma is not None)
        bounds = plan.bounds.settled(rows, streams)
        progress = context.progress("releases")
        releases = tuple(noisy_batches(rows, plan, bounds, streams.secret, progress))
        if not releases:
            raise ValueError(
                "All Poisson samples were empty, so nothing was released, but the charge stands. "
                "Increase batch_size or n_steps."
            )
        released = SmoothedProjections(releases)
        laws = _laws_of_network(released)
        reliability = laws.reliability(context.feature_names, bounds, _ADVICE)
        return MechanismResult(released, bounds, spent, reliability=reliability)


def _laws_of_network(released: SmoothedProjections) -> FeatureLaws:
    """Return the errors of a generator, whose spread shrinks by the noise's share of a variance."""
    laws, sigma = laws_of_rows(released), released.sigma
    if sigma == 0:
        return laws
    lost = laws.spreads * sigma**2 / (laws.spreads**2 + sigma**2)
    return replace(laws, spread_errors=np.hypot(laws.spread_errors, lost))


@dataclass(eq=False, repr=False)
class Resample(NoisyRows):
    """Release the noisy projections of a new batch along new directions in each step.

    Algorithm 1 of the flow paper (DPSWflow-r), and of its generator DPSWgen. Every step is charged.
    For comparison: `Sketch` needs far less noise.

    Parameters
    ----------
    batch_size : int, default=250
        Batch size, capped at n.
    sampling : {"without_replacement", "poisson"}, default="without_replacement"
        How batches are drawn: of exactly `batch_size` rows, or of `batch_size` rows on average.
        Averages must add up to 21 rows or more over all steps.
    n_projections : int, default=70
        Number of directions per step.
    projections : {"orthogonal", "uniform"}, default="orthogonal"
        How directions are drawn.
    sigma : float, optional
        Standard deviation of the noise on each projection, in the units of the mapped rows; needs
        public bounds. `privacy_spent_` then states its epsilon at `delta`. By default the least
        noise for `epsilon`.
    noise : {"discrete", "float"}, default="discrete"
        "float" draws floating-point noise, which is not hardened against attacks on its last bits.

    Privacy
    -------
    All steps together are one event under replace-one. Sensitivity:
    `skdpot.sampling.row_releases.projection_sensitivity`. Batches are secret; directions are
    public.

    References
    ----------
    "Differentially private gradient flow based on the sliced Wasserstein distance", Algorithm 1,
    and Rakotomamonjy and Ralaivola, "Differentially private sliced Wasserstein distance", ICML
    2021, with exact sensitivities and accounting.

    Examples
    --------
    >>> from skdpot import DPSlicedFlowSampler
    >>> from skdpot.mechanisms import Resample
    >>> sampler = DPSlicedFlowSampler(mechanism=Resample(batch_size=100))
    >>> sampler.set_params(mechanism__batch_size=50).mechanism
    Resample(batch_size=50)
    """

    batch_size: int = 250
    _: KW_ONLY
    sampling: str = "without_replacement"
    n_projections: int = 70
    projections: str = "orthogonal"
    sigma: float | None = None
    noise: str = "discrete"

    _parameter_constraints: ClassVar[dict[str, list[Any]]] = _NOISE_CONSTRAINTS | {
        "batch_size": [COUNT],
        "sampling": [StrOptions({"without_replacement", "poisson"})],
        "n_projections": [COUNT],
    }

    def release(
        self,
        context: FitContext,
        rows: np.ndarray,
        y: Any,
        *,
        conditional: bool,
        n_steps: int | None,
    ) -> MechanismResult:
        """Charge, then release `SmoothedProjections` with a batch per step."""
        refuse_classes(self, conditional)
        size = min(self.batch_size, len(rows))
        n_steps = n_steps or steps_of_epochs(len(rows), size)
        if self.sampling == "poisson" and size * n_steps < _FEWEST_ROWS and size < len(rows):
            raise ValueError(
                f'batch_size={size} and n_steps={n_steps} with sampling="poisson" may draw no row '
                f"at all. batch_size * n_steps must be at least {_FEWEST_ROWS}."
            )
        return self._noisy_rows(
            context,
            rows,
            n_steps=n_steps,
            n_projections=self.n_projections,
            batch_size=size,
            sampling=self.sampling,
        )


@dataclass(eq=False, repr=False)
class Presample(NoisyRows):
    """Release the noisy projections of all rows along L directions, once.

    Algorithm 2 of the flow paper (DPSWflow). For comparison: `Sketch` needs far less noise.

    Parameters
    ----------
    n_projections : int or "auto", default="auto"
        Number of directions L. "auto" is max(31, d).
    projections : {"orthogonal", "uniform"}, default="orthogonal"
        How directions are drawn.
    sigma : float, optional
        Standard deviation of the noise on each projection, in the units of the mapped rows; needs
        public bounds. `privacy_spent_` then states its epsilon at `delta`. By default the least
        noise for `epsilon`.
    noise : {"discrete", "float"}, default="discrete"
        "float" draws floating-point noise, which is not hardened against attacks on its last bits.
    n_projections_per_step : int, optional
        Number of directions per step of the flow, with a new draw in each step; by default 25 of
        31. Does not affect privacy.

    Privacy
    -------
    One event under replace-one, for any number of steps. Sensitivity:
    `skdpot.sampling.row_releases.projection_sensitivity`.

    References
    ----------
    "Differentially private gradient flow based on the sliced Wasserstein distance", Algorithm 2,
    with exact sensitivities and accounting.

    Examples
    --------
    >>> from skdpot import DPSlicedFlowSampler
    >>> from skdpot.mechanisms import Presample
    >>> DPSlicedFlowSampler(mechanism=Presample(n_projections=16)).mechanism.n_projections
    16
    """

    n_projections: int | str = "auto"
    _: KW_ONLY
    projections: str = "orthogonal"
    sigma: float | None = None
    noise: str = "discrete"
    n_projections_per_step: int | None = None

    _parameter_constraints: ClassVar[dict[str, list[Any]]] = _NOISE_CONSTRAINTS | {
        "n_projections": [StrOptions({"auto"}), COUNT],
        "n_projections_per_step": [COUNT, None],
    }

    def release(
        self,
        context: FitContext,
        rows: np.ndarray,
        y: Any,
        *,
        conditional: bool,
        n_steps: int | None,
    ) -> MechanismResult:
        """Charge, then release `SmoothedProjections`; any number of steps costs the same."""
        refuse_classes(self, conditional)
        n_projections = self.n_projections
        if isinstance(n_projections, str):
            n_projections = max(_FROZEN_SLICES, rows.shape[1])
        return self._noisy_rows(context, rows, n_steps=1, n_projections=n_projections)

    def _per_step(self, n_projections: int) -> int:
        """Return the number of directions of a step, which are drawn anew in each."""
        some = max(1, round(_SHARE_OF_FROZEN * n_projections))
        return min(self.n_projections_per_step or some, n_projections)


def steps_of_epochs(n_samples: int, batch_size: int) -> int:
    """Return the default number of steps, from public facts."""
    return int(np.clip(_EPOCHS * n_samples // batch_size, _FEWEST_STEPS, _MOST_STEPS))
