"""How the flow sampler touches private data, and where its particles go from there.

A mechanism publishes something in `release`, which is the only step that sees private rows, and
answers from what was published whatever the flow needs to know.
"""

from typing import Any, Protocol

import numpy as np
from sklearn.base import BaseEstimator

from skdpot._utils.rng import Streams
from skdpot._utils.validation import validate_rows
from skdpot.flows import FlowProblem, FlowSchedule, SlicedFlowProblem, SmoothedFlowProblem
from skdpot.privacy.calibration import privacy_target
from skdpot.slicing.noise_bands import warn_of_noise
from skdpot.slicing.row_plan import RowParameters
from skdpot.slicing.row_release import release_projections
from skdpot.slicing.sketch import SlicedSketch

__all__ = ["MECHANISMS", "FlowMechanism"]

# The flow paper's choices; steps of h = 3 in dimension 8, where a full one is 8, are its code's.
_STEP_SIZE = 0.375
_SLICES_RESAMPLED = 70
_SLICES_FROZEN = 31
_SHARE_OF_FROZEN = 25 / 31


class FlowMechanism(Protocol):
    """What the sampler asks of a mechanism."""

    def release(self, sampler: BaseEstimator, streams: Streams, X: Any, y: Any) -> dict[str, Any]:
        """Charge, publish, and return the fitted attributes that follow."""

    def class_shares(self, sampler: BaseEstimator) -> np.ndarray:
        """Return the share of each class among the rows, shape (n_classes,)."""

    def problem(self, sampler: BaseEstimator, label: Any) -> FlowProblem:
        """Return what the particles of a class move towards."""

    def schedule(self, sampler: BaseEstimator) -> FlowSchedule:
        """Return the steps that they take."""


class SketchMechanism:
    """Publish distribution functions, once."""

    def release(self, sampler: BaseEstimator, streams: Streams, X: Any, y: Any) -> dict[str, Any]:
        """Publish a `SlicedSketch`."""
        if sampler.sigma is not None or sampler.noise != "discrete":
            raise ValueError(
                'mechanism="sketch" takes its noise from epsilon and delta and adds it on a '
                'lattice: leave sigma=None and noise="discrete". The other mechanisms take them.'
            )
        options = {
            name: value
            for name, value in sampler.get_params(deep=False).items()
            if name in SlicedSketch._parameter_constraints and name != "random_state"
        }
        caller = type(sampler).__name__
        sketch = SlicedSketch(**options)._release(caller, streams, X, y)
        warn_of_noise(sketch, caller)
        names = ("n_features_in_", "feature_names_in_", "classes_", "privacy_spent_", "bounds_")
        return {"sketch_": sketch} | {
            name: getattr(sketch, name) for name in (*names, "n_samples_") if hasattr(sketch, name)
        }

    def class_shares(self, sampler: BaseEstimator) -> np.ndarray:
        """Return the frequencies of the classes, noisy where labels are private; 1 without."""
        counts: np.ndarray = sampler.sketch_.class_counts_
        return counts / counts.sum()

    def problem(self, sampler: BaseEstimator, label: Any) -> SlicedFlowProblem:
        """Return the distance to a table of the sketch."""
        return SlicedFlowProblem(sampler.sketch_.table(label), sampler.n_subslices)

    def schedule(self, sampler: BaseEstimator) -> FlowSchedule:
        """Return steps that shorten, with momentum unless particles diffuse."""
        momentum = 0.0 if sampler.diffusion > 0 else FlowSchedule.momentum
        step_size = 1.0 if sampler.step_size == "auto" else sampler.step_size
        return FlowSchedule(sampler.n_steps, step_size, sampler.diffusion, momentum)


class RowMechanism:
    """Publish noisy projections of rows, as the flow paper does.

    Parameters
    ----------
    resample : bool
        Whether each step has a batch, directions and noise of its own (Algorithm 1), or all
        share one release of all rows (Algorithm 2).
    """

    def __init__(self, *, resample: bool) -> None:
        self._resample = resample

    def release(self, sampler: BaseEstimator, streams: Streams, X: Any, y: Any) -> dict[str, Any]:
        """Publish `SmoothedProjections`."""
        _check_rows_can_be_released(sampler)
        rows = validate_rows(sampler, X, reset=True, min_samples=2)
        release = release_projections(
            type(sampler).__name__,
            streams,
            rows,
            privacy_target(sampler.epsilon, sampler.delta, sampler.budget),
            self._parameters(sampler, *rows.shape),
            bounds=sampler.bounds,
            norm_bound=sampler.norm_bound,
            budget=sampler.budget,
            X=X,
            progress="releases" if sampler.verbose else None,
        )
        return {
            "releases_": release.projections,
            "bounds_": release.bounds,
            "privacy_spent_": release.privacy_spent,
            "n_samples_": len(rows),
        }

    def class_shares(self, sampler: BaseEstimator) -> np.ndarray:
        """Return the share of the only class there is."""
        return np.ones(1)

    def problem(self, sampler: BaseEstimator, label: Any) -> SmoothedFlowProblem:
        """Return the distance to the released projections."""
        releases, n_subslices = sampler.releases_, sampler.n_subslices
        if n_subslices is None and not self._resample:
            n_slices = len(releases.batches[0].directions)
            n_subslices = max(1, round(_SHARE_OF_FROZEN * n_slices))
        return SmoothedFlowProblem(releases, sampler.bounds_.radius, n_subslices)

    def schedule(self, sampler: BaseEstimator) -> FlowSchedule:
        """Return the Euler-Maruyama steps of the paper, all of equal length."""
        n_steps = self.problem(sampler, None).n_turns
        return FlowSchedule(
            sampler.n_steps if n_steps is None else n_steps,
            _STEP_SIZE if sampler.step_size == "auto" else sampler.step_size,
            sampler.diffusion,
            momentum=0.0,
            decay=False,
        )

    def _parameters(self, sampler: BaseEstimator, n_samples: int, n_features: int) -> RowParameters:
        """Read the sampler's parameters as those of a release."""
        n_slices = sampler.n_slices
        if n_slices == "auto":
            n_slices = _SLICES_RESAMPLED if self._resample else max(_SLICES_FROZEN, n_features)
        return RowParameters(
            n_steps=sampler.n_steps if self._resample else 1,
            n_slices=n_slices,
            slices="uniform" if sampler.slices == "uniform" else "orthogonal",
            batch_size=min(sampler.batch_size, n_samples) if self._resample else None,
            sampling=sampler.sampling,
            sigma=sampler.sigma,
            noise=sampler.noise,
        )


def _check_rows_can_be_released(sampler: BaseEstimator) -> None:
    """Refuse parameters that only a sketch can follow, before any charge."""
    if sampler.conditional:
        raise ValueError(
            f'conditional=True needs mechanism="sketch": with mechanism="{sampler.mechanism}" '
            "the rows of each class are released, so that a record that changes its class would "
            "change how many values there are, which no noise hides."
        )
    if sampler.public_labels or sampler.group_size > 1:
        raise ValueError(
            'public_labels=True and group_size above 1 need mechanism="sketch" and '
            f'conditional=True: mechanism="{sampler.mechanism}" knows no labels.'
        )
    if not isinstance(sampler.slices, str):
        raise ValueError(
            f'mechanism="{sampler.mechanism}" draws its directions: slices must be "orthogonal" '
            '(for which "axes+orthogonal" stands too) or "uniform". Own directions work with '
            'mechanism="sketch".'
        )


MECHANISMS: dict[str, FlowMechanism] = {
    "sketch": SketchMechanism(),
    "resample": RowMechanism(resample=True),
    "presample": RowMechanism(resample=False),
}
