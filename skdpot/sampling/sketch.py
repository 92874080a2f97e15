"""The mechanism "sketch": a `SlicedSketch` of the rows, released once."""

import math
from dataclasses import KW_ONLY, dataclass, replace
from typing import Any, ClassVar

import numpy as np
from numpy.typing import ArrayLike

from skdpot.base import COUNT, FitContext, MechanismResult
from skdpot.exceptions import warn_of_privacy
from skdpot.ot.flow import FlowSchedule
from skdpot.ot.flow_problems import SlicedFlowProblem
from skdpot.privacy.reliability import Reliability
from skdpot.release.private_bounds import MAX_AUTO_FEATURES, ball_radius
from skdpot.release.sketch import SlicedSketch
from skdpot.release.sketch_reliability import sketch_reliability
from skdpot.sampling.row_mechanism import FlowMechanism

# Parameters that are passed on to the sketch.
_PASSED_ON = ("n_projections", "n_bins", "projections", "classes", "public_labels", "group_size")
# Thresholds of the warning of bounds that do not fit.
_MOST_NARROW = 0.05  # share of the features, with more than MAX_AUTO_FEATURES
_MOST_NARROW_OF_FEW = 0.5


@dataclass(eq=False, repr=False)
class Sketch(FlowMechanism):
    r"""Release a `SlicedSketch` of the rows, once.

    Any number of flows and training steps on the sketch is free.

    Parameters
    ----------
    n_projections : int or "auto", default="auto"
        Number of directions L. "auto" follows a public rule in n, d and epsilon
        (`skdpot.release.sketch_plan.recommended_n_projections`).
    n_bins : int or "auto", default="auto"
        Number of bins along each direction, by a public rule.
    projections : {"axes+orthogonal", "orthogonal", "uniform"} or array of shape (n_projections, \
    n_features), default="axes+orthogonal"
        How directions are drawn. An array must be public and is used as it is.
    classes : array-like, optional
        The public set of classes of an estimator with ``conditional=True``. By default the labels
        found in `y`, which then count as public.
    public_labels : bool, default=False
        Whether the label of every row is public: time stamps, hospitals, arms of a trial. Needs
        less noise, and classes then occur exactly as often as in the data. Needs
        ``conditional=True``.
    group_size : int, default=1
        Largest number of rows per person, all with different labels. The guarantee covers all of
        them together. More than 1 needs ``public_labels=True``.
    n_projections_per_step : int, optional
        Number of directions per step of the solver, by default about 64, in whole orthogonal
        blocks. Does not affect privacy.

    Privacy
    -------
    One Gaussian event under replace-one, after the events of private bounds; sensitivity and public
    facts as for `SlicedSketch`.

    See Also
    --------
    Resample, Presample : Noise on every row, for comparison; they need far more noise.

    Examples
    --------
    >>> import numpy as np
    >>> from skdpot import DPSlicedFlowSampler
    >>> from skdpot.mechanisms import Sketch
    >>> X = np.random.default_rng(0).uniform(-1, 1, size=(1000, 2))
    >>> sampler = DPSlicedFlowSampler(mechanism=Sketch(n_bins=32), bounds=(-1, 1)).fit(X)
    >>> sampler.sketch_.cdf_.shape[-1]
    33
    """

    n_projections: int | str = "auto"
    _: KW_ONLY
    n_bins: int | str = "auto"
    projections: Any = "axes+orthogonal"
    classes: ArrayLike | None = None
    public_labels: bool = False
    group_size: int = 1
    n_projections_per_step: int | None = None

    _parameter_constraints: ClassVar[dict[str, list[Any]]] = {
        **{name: SlicedSketch._parameter_constraints[name] for name in _PASSED_ON},
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
        """Charge, then release a closed `SlicedSketch`; the number of steps does not matter."""
        options = {name: getattr(self, name) for name in _PASSED_ON}
        options |= {"conditional": conditional, "device": context.device}
        sketch = context.sketch(rows, y, **options)
        if context.feature_names is not None:
            sketch.feature_names_in_ = context.feature_names
            sketch.reliability_ = sketch_reliability(sketch)  # with their names
        return self.result_of(sketch, context.caller)

    def result_of(self, sketch: SlicedSketch, caller: str) -> MechanismResult:
        """Return a closed sketch, released now or before, as a result for samplers."""
        reliability = as_a_whole(sketch.reliability_)
        if not reliability.unreliable:
            warn_of_bounds(sketch, caller)
        counts = sketch.class_counts_  # noisy where labels are private
        shares = counts / counts.sum()
        classes = getattr(sketch, "classes_", None)
        return MechanismResult(
            sketch,
            sketch.bounds_,
            sketch.privacy_spent_,
            classes,
            shares,
            reliability=reliability,
        )

    def problem(self, released: SlicedSketch, radius: float, label: Any) -> SlicedFlowProblem:
        """Return the distance to the table of a class."""
        return SlicedFlowProblem(released.table(label), self.n_projections_per_step)

    def schedule(
        self, released: SlicedSketch, n_steps: int, step_size: float | str, diffusion: float
    ) -> FlowSchedule:
        """Return steps of decreasing length, with momentum unless particles diffuse."""
        momentum = 0.0 if diffusion > 0 else FlowSchedule.momentum
        share = 1.0 if isinstance(step_size, str) else step_size
        return FlowSchedule(n_steps, share, diffusion, momentum)


def as_a_whole(reliability: Reliability) -> Reliability:
    """Return the errors of a sketch for samplers, whose rows are compared as a whole.

    Where few features or classes are hidden, the rows are still far better than trivial ones.
    """
    squares = [item.trivial_error**2 for item in reliability]
    enough = math.sqrt(math.fsum(squares) / len(squares))
    outputs = (replace(item, margin=max(item.margin, enough)) for item in reliability)
    return Reliability(tuple(outputs), reliability.advice)


def warn_of_bounds(sketch: SlicedSketch, caller: str) -> None:
    """Warn if synthetic rows will leave the range of the data.

    Reads released values and the law of their noise alone.
    """
    bounds, n_features = sketch.bounds_, len(sketch.bounds_.center)
    # Private bounds may be a single estimated radius; the fallback has a warning of its own.
    is_estimated = not sketch._is_declared and bounds.radius != ball_radius(n_features)
    if is_estimated and np.all(bounds.scale == 1.0):
        is_few = n_features <= MAX_AUTO_FEATURES
        share = _narrow_features(sketch)
        if share > (_MOST_NARROW_OF_FEW if is_few else _MOST_NARROW):
            why = "too few rows" if is_few else f"more than {MAX_AUTO_FEATURES} features"
            warn_of_privacy(
                f"{caller}: private bounds of {why} are one ball, and about {share:.0%} of the "
                "features vary less than its resolution, so synthetic values leave their range. "
                "Declare the limits of the features, such as bounds=(0, 1) for pixels."
            )


def _narrow_features(sketch: SlicedSketch) -> float:
    """Return the share of features whose released distribution is narrower than a bin."""
    n_features = sketch.directions_.shape[1]
    if not isinstance(sketch.projections, str) or not sketch.projections.startswith("axes"):
        return 0.0
    smooth = sketch.table(None).cdf[:n_features]
    masses, places = np.diff(smooth, axis=1), np.arange(smooth.shape[1] - 1)
    variances = masses @ places**2 - (masses @ places) ** 2
    return float(np.mean(variances < 1.0))
