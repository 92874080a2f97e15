"""The mechanisms that release once: a sketch of the rows, or their moments. All else is free."""

from dataclasses import KW_ONLY, dataclass
from typing import Any, ClassVar

import numpy as np
from numpy.typing import ArrayLike

from skdpot._utils.validation import encode_labels
from skdpot.base import COUNT, FitContext, Mechanism, MechanismResult
from skdpot.exceptions import warn_of_privacy
from skdpot.ot.flow import FlowSchedule, GaussianFlowProblem, SlicedFlowProblem
from skdpot.privacy.events import Event
from skdpot.release.bounds import MAX_AUTO_FEATURES, ball_radius, public_bounds
from skdpot.release.decoding import measured_cdf
from skdpot.release.moments import NoisyMoments, plan_moments, release_moments
from skdpot.release.sketch import SlicedSketch

_OF_SKETCH = ("n_projections", "n_bins", "projections", "classes", "public_labels", "group_size")
_MOST_NOISE = 0.2
_MOST_NOISE_OF_MOMENTS = 0.3  # .08 for MNIST at ε = .2, which serves; .5 for 900 digits at 1 not
_MOST_NARROW = 0.05  # of more than MAX_AUTO_FEATURES features
_MOST_NARROW_OF_FEW = 0.5


@dataclass(eq=False, repr=False)
class Sketch(Mechanism):
    r"""Release a `SlicedSketch` of the rows, once.

    Any number of flows and training steps on the sketch is free.

    Parameters
    ----------
    n_projections : int or "auto", default="auto"
        Number of directions L. "auto" follows a public rule in n, d and epsilon
        (`skdpot.release.histogram.recommended_n_projections`).
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
        **{name: SlicedSketch._parameter_constraints[name] for name in _OF_SKETCH},
        "n_projections_per_step": [COUNT, None],
    }

    def release(
        self, context: FitContext, rows: np.ndarray, y: Any, *, conditional: bool, n_steps: Any
    ) -> MechanismResult:
        """Charge, then release a closed `SlicedSketch`; any number of steps costs the same."""
        options = {name: getattr(self, name) for name in _OF_SKETCH}
        options |= {"conditional": conditional, "device": context.device}
        sketch = context.sketch(rows, y, **options)
        if context.feature_names is not None:
            sketch.feature_names_in_ = context.feature_names
        return self.result_of(sketch, context.caller)

    def result_of(self, sketch: SlicedSketch, caller: str) -> MechanismResult:
        """Return what a sampler stores of a closed sketch."""
        warn_of_noise(sketch, caller)
        counts = sketch.class_counts_  # noisy where labels are private
        shares = counts / counts.sum()
        classes = getattr(sketch, "classes_", None)
        return MechanismResult(sketch, sketch.bounds_, sketch.privacy_spent_, classes, shares)

    def problem(self, sketch: SlicedSketch, radius: float, label: Any) -> SlicedFlowProblem:
        """Return the distance to a table of the sketch."""
        return SlicedFlowProblem(sketch.table(label), self.n_projections_per_step)

    def schedule(
        self, sketch: SlicedSketch, n_steps: int, step_size: float | str, diffusion: float
    ) -> FlowSchedule:
        """Return steps that shorten, with momentum unless particles diffuse."""
        momentum = 0.0 if diffusion > 0 else FlowSchedule.momentum
        share = 1.0 if isinstance(step_size, str) else step_size
        return FlowSchedule(n_steps, share, diffusion, momentum)


def warn_of_noise(sketch: SlicedSketch, caller: str) -> None:
    """Warn of synthetic rows that would show noise, or leave the range of the data.

    Reads released values and the law of their noise alone. The thresholds are calibrated: beyond
    the first, rows were at least 0.6 times, mostly more than 0.8 times, as far from the data as
    their repeated mean (`doc/bounds.rst`).
    """
    noise = _typical_noise(sketch)
    if noise > _MOST_NOISE:
        classes = " conditional=False," if sketch.conditional else ""
        warn_of_privacy(
            f"{caller}: the noise hides the data: averaged over the slices, its standard deviation "
            f"is about {noise:.2f} on the scale of a distribution function, from 0 to 1. Use more "
            f"rows, a larger epsilon,{classes} fewer features or tight bounds."
        )
        return
    bounds, n_features = sketch.bounds_, len(sketch.bounds_.center)
    # Private bounds may be one radius that was found; a fallback has its own warning.
    found = not sketch._is_declared and bounds.radius != ball_radius(n_features)
    if found and np.all(bounds.scale == 1.0):
        few = n_features <= MAX_AUTO_FEATURES
        share = _narrow_features(sketch)
        if share > (_MOST_NARROW_OF_FEW if few else _MOST_NARROW):
            why = "too few rows" if few else f"more than {MAX_AUTO_FEATURES} features"
            warn_of_privacy(
                f"{caller}: private bounds of {why} are one ball, and about {share:.0%} of the "
                "features vary less than its resolution, so synthetic values leave their range. "
                "Declare the limits of the features, such as bounds=(0, 1) for pixels."
            )


def _typical_noise(sketch: SlicedSketch) -> float:
    """Return the noise of a distribution function after averaging over slices."""
    n_projections, n_features = sketch.directions_.shape
    labels = getattr(sketch, "classes_", (None,))
    shares = sketch.class_counts_ / sketch.class_counts_.sum()
    noise = [
        share * np.sqrt(np.mean(measured_cdf(sketch, label)[1][:, 1:-1] ** 2))
        for label, share in zip(labels, shares, strict=True)
        if share > 0
    ]
    return float(np.sum(noise) * np.sqrt(n_features / n_projections))


def _narrow_features(sketch: SlicedSketch) -> float:
    """Return the share of features whose released distribution is narrower than a bin."""
    n_features = sketch.directions_.shape[1]
    if not isinstance(sketch.projections, str) or not sketch.projections.startswith("axes"):
        return 0.0
    smooth = sketch.table(None).cdf[:n_features]
    masses, places = np.diff(smooth, axis=1), np.arange(smooth.shape[1] - 1)
    variances = masses @ places**2 - (masses @ places) ** 2
    return float(np.mean(variances < 1.0))


@dataclass(eq=False, repr=False)
class Moments(Mechanism):
    r"""Release the size, mean and covariance of each class, or of parts of each class.

    Particles are draws of one Gaussian per class or part, so that the flow has nothing to do and
    takes one step. For many features, such as `~skdpot.preprocessing.ImageCodes`, relations between
    pairs of features distinguish classes, and covariances hold all of them. A `Sketch` sees shapes
    that are not Gaussian, and has less noise for few features or rows.

    Parameters
    ----------
    classes : array-like, optional
        The public set of classes of an estimator with ``conditional=True``. By default the labels
        found in `y`, which then count as public. The label of each row is private.
    n_components : int, default=1
        Number of parts that each class is divided in. With more than one, a tenth of the squared mu
        is spent on one Gaussian per class. Its draws are clustered, each row belongs to the nearest
        centre of its class, and the moments of these parts are released. Parts show shapes that
        are not Gaussian, and need thousands of rows or more each: 10 for the digits of MNIST at
        ε = 10, but 1 at ε = 1.

    Privacy
    -------
    One Gaussian event under replace-one, or two with parts, after the events of private bounds. The
    sensitivity, of all moments of all classes or parts together, is proved in
    `skdpot.release.moments.release_moments`.

    See Also
    --------
    Sketch : Distribution functions along many directions.

    References
    ----------
    Dwork, Talwar, Thakurta and Zhang, "Analyze Gauss: optimal bounds for privacy-preserving
    principal component analysis", STOC 2014: Gaussian noise on second moments. Here means and sizes
    are part of the same matrix. James and Stein, "Estimation with quadratic loss", 1961.

    Examples
    --------
    >>> from sklearn.datasets import load_digits
    >>> from skdpot import DPSlicedFlowSampler
    >>> from skdpot.mechanisms import Moments
    >>> from skdpot.preprocessing import ImageCodes
    >>> X, y = load_digits(return_X_y=True)
    >>> images = ImageCodes((8, 8), size=5, pixel_range=(0, 16), background=5)
    >>> sampler = DPSlicedFlowSampler(
    ...     Moments(), epsilon=5.0, norm_bound=images.norm_bound, conditional=True
    ... )
    >>> codes, labels = sampler.fit(images.fit_transform(X), y).sample_labeled(100)
    >>> images.inverse_transform(codes).shape
    (100, 64)
    >>> sampler.moments_.means.shape
    (10, 25)
    """

    classes: ArrayLike | None = None
    _: KW_ONLY
    n_components: int = 1

    _parameter_constraints: ClassVar[dict[str, list[Any]]] = {
        "classes": ["array-like", None],
        "n_components": [COUNT],
    }

    def release(
        self, context: FitContext, rows: np.ndarray, y: Any, *, conditional: bool, n_steps: Any
    ) -> MechanismResult:
        """Charge, then release `NoisyMoments`."""
        n, d = rows.shape
        codes, classes = np.zeros(n, dtype=int), None
        if conditional:
            codes, classes = encode_labels(y, n, self.classes)
        declared = public_bounds(context.bounds, context.norm_bound, d)
        plan = plan_moments(context.target, n, d, declared or n, self.n_components)
        facts = context.assumptions(
            classes=classes is not None, declared_bounds=declared is not None
        )
        of = "all rows" if classes is None else f"{len(classes)} classes"
        of += f", in {self.n_components} parts each" if self.n_components > 1 else ""
        spent = context.charge_event(
            plan.event,
            n,
            facts,
            f"noisy sizes, means and second moments of {of}, in shares of the radius",
            scales=plan.scales,
        )
        bounds = plan.bounds.settled(rows, context.streams)
        n_classes = 1 if classes is None else len(classes)

        def released_around(centres: np.ndarray, noise: Event) -> NoisyMoments:
            given = (rows, codes, centres, noise, bounds, context.streams.secret)
            return NoisyMoments(release_moments(*given), n, classes)

        moments = released_around(np.zeros((n_classes, 1, d)), plan.noises[0])
        if self.n_components > 1:
            moments = released_around(moments.centres(self.n_components), plan.noises[1])
        if moments.relative_noise > _MOST_NOISE_OF_MOMENTS:
            warn_of_privacy(
                f"{context.caller}: the noise hides the data: the means of classes have an error "
                f"of about {moments.relative_noise:.0%} of the spread of the rows. Use more rows, "
                "a larger epsilon, fewer features or classes, tight bounds or a Sketch."
            )
        return MechanismResult(moments, bounds, spent, classes, moments.class_shares)

    def problem(self, moments: NoisyMoments, radius: float, label: Any) -> GaussianFlowProblem:
        """Return the Gaussians of the parts of a class."""
        k = 0 if moments.classes is None else int(np.flatnonzero(moments.classes == label)[0])
        own = slice(k * self.n_components, (k + 1) * self.n_components)
        shares = moments.sizes[own] / np.sum(moments.sizes[own])
        return GaussianFlowProblem(shares, moments.means[own], moments.covariances[own])

    def schedule(
        self, moments: NoisyMoments, n_steps: int, step_size: float | str, diffusion: float
    ) -> FlowSchedule:
        """Return one step: particles start where they belong."""
        share = 1.0 if isinstance(step_size, str) else step_size
        return FlowSchedule(1, share, diffusion, momentum=0.0)
