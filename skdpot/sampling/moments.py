"""The mechanism "moments": sizes, means and covariances of classes, released once."""

from dataclasses import KW_ONLY, dataclass
from typing import Any, ClassVar

import numpy as np
from numpy.typing import ArrayLike

from skdpot._utils.labels import encode_labels
from skdpot.base import COUNT, FitContext, MechanismResult
from skdpot.ot.flow import FlowSchedule
from skdpot.ot.flow_problems import GaussianFlowProblem
from skdpot.privacy.events import Event
from skdpot.release.bounds import public_bounds
from skdpot.release.moments import NoisyMoments, plan_moments, release_moments
from skdpot.sampling.feature_laws import laws_of_moments
from skdpot.sampling.row_mechanism import FlowMechanism

_ADVICE = "Use more rows, a larger epsilon, fewer features{}, tight bounds or a Sketch."


@dataclass(eq=False, repr=False)
class Moments(FlowMechanism):
    r"""Release the size, mean and covariance of each class, or of parts of each class.

    Particles are draws from one Gaussian per class or part, so the flow takes a single step. For
    many features, such as `~skdpot.preprocessing.ImageCodes`, classes differ in the relations
    between pairs of features, and covariances hold all of them. A `Sketch` sees shapes that are not
    Gaussian, and has less noise for few features or rows.

    Parameters
    ----------
    classes : array-like, optional
        The public set of classes of an estimator with ``conditional=True``. By default the labels
        found in `y`, which then count as public. The label of each row is private.
    n_components : int, default=1
        Number of parts of each class. With more than one, a tenth of the squared mu is spent on one
        Gaussian per class. Its draws are clustered, each row belongs to the nearest centre of its
        class, and the moments of these parts are released. Parts show shapes that are not Gaussian,
        and each needs thousands of rows or more. For the digits of MNIST use 10 at ε = 10 and 1 at
        ε = 1.

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
        self,
        context: FitContext,
        rows: np.ndarray,
        y: Any,
        *,
        conditional: bool,
        n_steps: int | None,
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
        parts = "all rows" if classes is None else f"{len(classes)} classes"
        parts += f", in {self.n_components} parts each" if self.n_components > 1 else ""
        spent = context.charge_event(
            plan.event,
            n,
            facts,
            f"noisy sizes, means and second moments of {parts}, in shares of the radius",
            scales=plan.scales,
        )
        bounds = plan.bounds.settled(rows, context.streams)
        n_classes = 1 if classes is None else len(classes)

        def released_around(centres: np.ndarray, noise: Event) -> NoisyMoments:
            secret = context.streams.secret
            release = release_moments(rows, codes, centres, noise, bounds, secret)
            return NoisyMoments(release, n, classes)

        moments = released_around(np.zeros((n_classes, 1, d)), plan.noises[0])
        if self.n_components > 1:
            moments = released_around(moments.centres(self.n_components), plan.noises[1])
        shares, laws = moments.class_shares, laws_of_moments(moments)
        if n_classes > 1:
            advice = _ADVICE.format(", no classes")
            reliability = laws.reliability_of_classes(classes, shares, bounds, advice)
        else:
            advice = _ADVICE.format("")
            reliability = laws.of_class(0).reliability(context.feature_names, bounds, advice)
        return MechanismResult(moments, bounds, spent, classes, shares, reliability=reliability)

    def problem(self, released: NoisyMoments, radius: float, label: Any) -> GaussianFlowProblem:
        """Return the Gaussians of the parts of a class."""
        k = 0 if released.classes is None else int(np.flatnonzero(released.classes == label)[0])
        parts = slice(k * self.n_components, (k + 1) * self.n_components)
        shares = released.sizes[parts] / np.sum(released.sizes[parts])
        return GaussianFlowProblem(shares, released.means[parts], released.covariances[parts])

    def schedule(
        self, released: NoisyMoments, n_steps: int, step_size: float | str, diffusion: float
    ) -> FlowSchedule:
        """Return one step: particles start as draws from the Gaussians."""
        share = 1.0 if isinstance(step_size, str) else step_size
        return FlowSchedule(1, share, diffusion, momentum=0.0)
