"""Mechanisms of the flow paper: projections of rows with noise on every value."""

from numbers import Integral, Real
from typing import Any, ClassVar

import numpy as np

from skdpot._utils.validation import Interval, StrOptions
from skdpot.flows import FlowSchedule, SmoothedFlowProblem
from skdpot.mechanisms.base import FitContext, Mechanism, Released, refuse_classes
from skdpot.slicing.row_plan import RowParameters
from skdpot.slicing.row_release import release_projections
from skdpot.slicing.smoothed import SmoothedProjections

__all__ = ["Presample", "Resample"]

# The flow paper's choices; steps of h = 3 in dimension 8, where a full one is 8, are its code's.
_STEP_SIZE = 0.375
_FROZEN_SLICES = 31
_SHARE_OF_FROZEN = 25 / 31
# Without a given number of steps: so many passes over the rows, within limits.
_EPOCHS = 20
_FEWEST_STEPS, _MOST_STEPS = 60, 2000

_OF_NOISE: dict[str, list[Any]] = {
    "slices": [StrOptions({"orthogonal", "uniform"})],
    "sigma": [Interval(Real, 0, np.inf, closed="left"), None],
    "noise": [StrOptions({"discrete", "float"})],
}


class Resample(Mechanism):
    """Release in each step the noisy projections of a new batch along new directions.

    Algorithm 1 of the flow paper (DPSWflow-r), and of a generator DPSWgen. Every step has to be
    paid for. For comparison: `Sketch` needs far less noise.

    Parameters
    ----------
    batch_size : int, default=250
        Rows per step, at most all of them.
    sampling : {"without_replacement", "poisson"}, default="without_replacement"
        How batches are drawn: of exactly `batch_size` rows, or of so many on average.
    n_slices : int, default=70
        Number of directions per step.
    slices : {"orthogonal", "uniform"}, default="orthogonal"
        How directions are drawn.
    sigma : float, optional
        Standard deviation of the noise on each projection, in the units of the mapped rows.
        `privacy_spent_` then says what epsilon that costs at `delta`; it needs public bounds. By
        default the least noise for `epsilon`.
    noise : {"discrete", "float"}, default="discrete"
        "float" draws floating-point noise, which is not hardened against attacks on its last bits.

    Privacy
    -------
    All steps together are one event under replace-one. Sensitivity:
    `skdpot.privacy.projection_sensitivity`. Batches stay secret; directions are public.

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

    _parameter_constraints: ClassVar[dict[str, list[Any]]] = _OF_NOISE | {
        "batch_size": [Interval(Integral, 1, None, closed="left")],
        "sampling": [StrOptions({"without_replacement", "poisson"})],
        "n_slices": [Interval(Integral, 1, None, closed="left")],
    }

    def __init__(
        self,
        batch_size: int = 250,
        sampling: str = "without_replacement",
        n_slices: int = 70,
        slices: str = "orthogonal",
        sigma: float | None = None,
        noise: str = "discrete",
    ) -> None:
        self.batch_size = batch_size
        self.sampling = sampling
        self.n_slices = n_slices
        self.slices = slices
        self.sigma = sigma
        self.noise = noise

    def release(
        self,
        context: FitContext,
        rows: np.ndarray,
        y: Any,
        *,
        conditional: bool,
        n_steps: int | None,
    ) -> Released:
        """Charge, then release `SmoothedProjections` with a batch per step."""
        size = min(self.batch_size, len(rows))
        return _released(
            self,
            context,
            rows,
            conditional,
            n_steps=n_steps or epochs(len(rows), size),
            n_slices=self.n_slices,
            batch_size=size,
            sampling=self.sampling,
        )

    def problem(
        self, projections: SmoothedProjections, radius: float, label: Any
    ) -> SmoothedFlowProblem:
        """Return the distance to the released projections."""
        return SmoothedFlowProblem(projections, radius)

    def schedule(
        self,
        projections: SmoothedProjections,
        n_steps: int,
        step_size: float | str,
        diffusion: float,
    ) -> FlowSchedule:
        """Return the steps of the paper, one per batch that holds rows."""
        n_turns = self.problem(projections, 1.0, None).n_turns
        return _equal_steps(n_steps if n_turns is None else n_turns, step_size, diffusion)


class Presample(Mechanism):
    """Release the noisy projections of all rows along L directions, once.

    Algorithm 2 of the flow paper (DPSWflow). For comparison: `Sketch` needs far less noise.

    Parameters
    ----------
    n_slices : int or "auto", default="auto"
        Number of directions L; "auto" is 31, or the number of features if that is more.
    slices : {"orthogonal", "uniform"}, default="orthogonal"
        How directions are drawn.
    sigma : float, optional
        Standard deviation of the noise on each projection, in the units of the mapped rows.
        `privacy_spent_` then says what epsilon that costs at `delta`; it needs public bounds. By
        default the least noise for `epsilon`.
    noise : {"discrete", "float"}, default="discrete"
        "float" draws floating-point noise, which is not hardened against attacks on its last bits.
    n_subslices : int, optional
        Number of directions per step of the flow, drawn anew in each; by default 25 in 31. It does
        not affect privacy.

    Privacy
    -------
    One event under replace-one, however many steps follow. Sensitivity:
    `skdpot.privacy.projection_sensitivity`.

    References
    ----------
    "Differentially private gradient flow based on the sliced Wasserstein distance", Algorithm 2,
    with exact sensitivities and accounting.

    Examples
    --------
    >>> from skdpot import DPSlicedFlowSampler
    >>> from skdpot.mechanisms import Presample
    >>> DPSlicedFlowSampler(mechanism=Presample(n_slices=16)).mechanism.n_slices
    16
    """

    _parameter_constraints: ClassVar[dict[str, list[Any]]] = _OF_NOISE | {
        "n_slices": [StrOptions({"auto"}), Interval(Integral, 1, None, closed="left")],
        "n_subslices": [Interval(Integral, 1, None, closed="left"), None],
    }

    def __init__(
        self,
        n_slices: int | str = "auto",
        slices: str = "orthogonal",
        sigma: float | None = None,
        noise: str = "discrete",
        n_subslices: int | None = None,
    ) -> None:
        self.n_slices = n_slices
        self.slices = slices
        self.sigma = sigma
        self.noise = noise
        self.n_subslices = n_subslices

    def release(
        self, context: FitContext, rows: np.ndarray, y: Any, *, conditional: bool, n_steps: Any
    ) -> Released:
        """Charge, then release `SmoothedProjections`; any number of steps costs the same."""
        n_slices = self.n_slices
        if isinstance(n_slices, str):
            n_slices = max(_FROZEN_SLICES, rows.shape[1])
        return _released(self, context, rows, conditional, n_steps=1, n_slices=n_slices)

    def problem(
        self, projections: SmoothedProjections, radius: float, label: Any
    ) -> SmoothedFlowProblem:
        """Return the distance to the released projections, along some directions per step."""
        n_slices = len(projections.batches[0].directions)
        n_subslices = self.n_subslices or max(1, round(_SHARE_OF_FROZEN * n_slices))
        return SmoothedFlowProblem(projections, radius, n_subslices)

    def schedule(
        self,
        projections: SmoothedProjections,
        n_steps: int,
        step_size: float | str,
        diffusion: float,
    ) -> FlowSchedule:
        """Return the steps of the paper."""
        return _equal_steps(n_steps, step_size, diffusion)


def epochs(n_samples: int, batch_size: int) -> int:
    """Return the steps of so many passes over the rows, within public limits."""
    return int(np.clip(_EPOCHS * n_samples // batch_size, _FEWEST_STEPS, _MOST_STEPS))


def _released(
    mechanism: Resample | Presample,
    context: FitContext,
    rows: np.ndarray,
    conditional: bool,
    **shape: Any,
) -> Released:
    """Charge, then release noisy projections."""
    refuse_classes(mechanism, conditional)
    release = release_projections(
        context.caller,
        context.streams,
        rows,
        context.target,
        RowParameters(
            slices=mechanism.slices,  # type: ignore[arg-type]
            sigma=mechanism.sigma,
            noise=mechanism.noise,  # type: ignore[arg-type]
            **shape,
        ),
        bounds=context.bounds,
        norm_bound=context.norm_bound,
        budget=context.budget,
        X=context.source,
        progress=context.progress("releases"),
    )
    return Released(release.projections, release.bounds, release.privacy_spent)


def _equal_steps(n_steps: int, step_size: float | str, diffusion: float) -> FlowSchedule:
    """Return the Euler-Maruyama steps of the paper, all of equal length."""
    share = _STEP_SIZE if isinstance(step_size, str) else step_size
    return FlowSchedule(n_steps, share, diffusion, momentum=0.0, decay=False)
