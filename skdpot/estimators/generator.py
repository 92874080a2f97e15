"""A network that draws synthetic rows, trained with differential privacy."""

from numbers import Integral, Real
from typing import Any, Self

import numpy as np
import pandas as pd
from numpy.typing import ArrayLike

from skdpot._utils.devices import resolve_device
from skdpot._utils.rng import Streams, solver_generator, spawn_streams
from skdpot._utils.validation import (
    HasMethods,
    Interval,
    StrOptions,
    all_or_nothing,
    check_is_fitted,
    fit_context,
)
from skdpot.estimators._generated_rows import GeneratedRows
from skdpot.estimators._generator_mechanisms import GENERATOR_MECHANISMS
from skdpot.privacy.budget import PrivacyBudget
from skdpot.privacy.spent import PrivateEstimatorMixin
from skdpot.slicing.sketch import SlicedSketch

__all__ = ["DPSlicedGenerator"]

_FITTED = (
    "sketch_",
    "releases_",
    "module_",
    "n_steps_",
    "bounds_",
    "n_samples_",
    "classes_",
    "privacy_spent_",
    "n_features_in_",
    "feature_names_in_",
)


class DPSlicedGenerator(PrivateEstimatorMixin, GeneratedRows):
    """Network that turns random numbers into differentially private synthetic rows.

    Like `DPSlicedFlowSampler` it makes the sliced Wasserstein distance to private rows small,
    but what it leaves is a function: rows of any number cost one pass through a network.

    Parameters
    ----------
    mechanism : {"sketch", "smoothing", "gradient"}, default="sketch"
        How private data are touched. "sketch" releases a `SlicedSketch`, once, and trains on
        its quantiles for as long as one likes. The other two pay for every step: "smoothing"
        (DPSWgen) releases noisy projections of a batch of rows, and compares them with equally
        noisy projections of generated ones; "gradient" releases the gradient with noise.
    epsilon : float, default=1.0
        Privacy parameter of the whole fit; ``inf`` for no privacy.
    delta : float, default=1e-5
        Privacy parameter of the whole fit, in (0, 1).
    module : torch.nn.Module or callable, optional
        The network: from `latent_dim` standard normal numbers (and, with classes, one indicator
        a class) to one number a feature, whose mean 0 and variance 1 stand for the centre and
        spread of the rows. A module is copied and starts from its weights, which must be public;
        a function without arguments makes one. By default a perceptron with two hidden
        layers, as wide as a public rule in n says, which draws one of 64 components first.
        With "gradient", where every parameter gets noise, its layers have 32 units, and it
        must treat inputs one by one (no batch normalisation).
    latent_dim : int, optional
        Number of random numbers; by default one a feature, at most 32, and one more.
    n_steps : int, optional
        Training steps, by a public rule. With a sketch ``15 sqrt(n)`` between 60 and 2000, and
        more are free; otherwise 20 passes over the rows within the same limits.
    learning_rate : float, default=5e-3
        Of Adam, at the start; it falls to zero along a half cosine.
    batch_size : int, default=250
        Rows a step of "smoothing" and "gradient", at most all of them.
    n_latents : int, optional
        Generated points a step. By default 1000 with a sketch (fewer for fewer rows), otherwise
        `batch_size`.
    n_slices : int or "auto", default="auto"
        Number of directions of the sketch, by a public rule, or of a step: 70 of "smoothing"
        and about 64 of "gradient".
    n_bins : int or "auto", default="auto"
        Number of bins along each direction of a sketch.
    slices : {"axes+orthogonal", "orthogonal", "uniform"} or array of shape (n_slices, \
n_features), default="axes+orthogonal"
        How directions are drawn, or public directions (of a sketch only). The axes come first
        in a sketch only.
    clip_jacobian : float, default=1.0
        With "gradient": the Jacobian of every output by all parameters is shortened to this
        spectral norm, from 1e-30 to 1e30.
    sampling : {"without_replacement", "poisson"}, default="without_replacement"
        How "smoothing" draws batches: of exactly `batch_size` rows, or of so many on average.
        "gradient" needs the former.
    sigma : float, optional
        Standard deviation of the noise: on projections in the units of the mapped rows
        ("smoothing"), or on `batch_size` times the gradient ("gradient"). `privacy_spent_`
        then says what epsilon that costs at `delta`; it needs public bounds. By default the
        least noise for `epsilon`.
    noise : {"discrete", "float"}, default="discrete"
        "float" draws the noise of "smoothing" as floating-point numbers, which is not hardened
        against attacks on their last bits. That of "gradient" always is.
    conditional : bool, default=False
        Learn the rows of each class of `y`, so that `sample_labeled` works. Otherwise `y` is
        ignored. Needs a sketch.
    classes : array-like, optional
        The public set of classes; by default the labels found in `y`, which then count as
        public.
    bounds : "private" or (low, high), default="private"
        What is known about the range of each feature: ``(low, high)``, scalars or arrays of
        shape (n_features,), is public and costs nothing; "private" spends at most 10 % of the
        squared mu on estimating location and scale.
    norm_bound : float, optional
        Public bound of the norm of every row, in place of `bounds`.
    budget : PrivacyBudget, optional
        Shared budget that every fit is charged to.
    device : {"auto", "cpu", "cuda"}, default="auto"
        Where the network runs; "auto" is a GPU if there is one.
    random_state : int, RandomState or None, default=None
        Makes everything reproducible, the privacy noise included. For tests only: whoever
        knows it can remove the noise.
    verbose : int, default=0
        1 shows progress bars, of steps and not of losses.

    Attributes
    ----------
    module_ : torch.nn.Module
        The trained network. Missing after a fit that was interrupted after its release: the
        first `sample` or `score` then trains it.
    sketch_ : SlicedSketch
        The release; only with ``mechanism="sketch"``.
    releases_ : SmoothedProjections
        The release, a batch a step; only with ``mechanism="smoothing"``. It can be large:
        ``n_steps * n_slices * batch_size`` numbers of 4 bytes.
    bounds_ : DataBounds
        Map from the data to the ball in which rows are projected.
    n_samples_ : int
        Number of rows.
    n_steps_ : int
        Number of training steps.
    classes_ : ndarray of shape (n_classes,)
        Classes; only with ``conditional=True``.
    privacy_spent_ : PrivacySpent
        What the fit cost, and under which assumptions.
    n_features_in_ : int
        Number of features.
    feature_names_in_ : ndarray of shape (n_features_in_,)
        Names of features, when X has names that are all strings.

    Privacy
    -------
    Releases `sketch_`, `releases_`, or the noisy gradients of all steps, as one event under
    replace-one, charged before noise is drawn; training on the first two is free. Sensitivities:
    `SlicedSketch`, `skdpot.privacy.projection_sensitivity`, and
    `skdpot.nets.wasserstein_gradient.fixed_side_sensitivity`. No loss is recorded or shown.
    Public: what `SlicedSketch` lists, and the network with its first weights. Protected are
    each row of X and, with ``conditional=True``, its label. Rows given to `score` are treated
    as public; a score on private rows is not private.

    See Also
    --------
    DPSlicedFlowSampler : Particles in place of a network.

    References
    ----------
    "smoothing": Rakotomamonjy and Ralaivola, "Differentially private sliced Wasserstein
    distance", ICML 2021, as "DPSWgen" in "Differentially private gradient flow based on the
    sliced Wasserstein distance", with exact sensitivities and accounting. "gradient":
    "Differentially private gradients of the Wasserstein distance", corrected.

    Examples
    --------
    >>> from sklearn.datasets import load_iris
    >>> from skdpot import DPSlicedGenerator
    >>> X, y = load_iris(return_X_y=True)
    >>> generator = DPSlicedGenerator(epsilon=5.0, bounds=(0, 8), conditional=True, n_steps=50)
    >>> X_new, y_new = generator.fit(X, y).sample_labeled(500)
    >>> X_new.shape, y_new.shape
    ((500, 4), (500,))
    >>> generator.privacy_spent_.epsilon
    5.0
    """

    _stated_in = ("sketch_",)
    _parameter_constraints: dict[str, list[Any]] = {
        **SlicedSketch._parameter_constraints,
        "mechanism": [StrOptions(set(GENERATOR_MECHANISMS))],
        "module": [HasMethods("forward"), callable, None],
        "latent_dim": [Interval(Integral, 1, None, closed="left"), None],
        "n_steps": [Interval(Integral, 1, None, closed="left"), None],
        "learning_rate": [Interval(Real, 0, 10, closed="right")],
        "batch_size": [Interval(Integral, 1, None, closed="left")],
        "n_latents": [Interval(Integral, 2, None, closed="left"), None],
        "clip_jacobian": [Interval(Real, 1e-30, 1e30, closed="both")],
        "sampling": [StrOptions({"without_replacement", "poisson"})],
        "sigma": [Interval(Real, 0, None, closed="left"), None],
        "noise": [StrOptions({"discrete", "float"})],
        "verbose": ["verbose"],
    }

    def __init__(
        self,
        mechanism: str = "sketch",
        epsilon: float = 1.0,
        delta: float = 1e-5,
        *,
        module: Any = None,
        latent_dim: int | None = None,
        n_steps: int | None = None,
        learning_rate: float = 5e-3,
        batch_size: int = 250,
        n_latents: int | None = None,
        n_slices: int | str = "auto",
        n_bins: int | str = "auto",
        slices: Any = "axes+orthogonal",
        clip_jacobian: float = 1.0,
        sampling: str = "without_replacement",
        sigma: float | None = None,
        noise: str = "discrete",
        conditional: bool = False,
        classes: ArrayLike | None = None,
        bounds: Any = "private",
        norm_bound: float | None = None,
        budget: PrivacyBudget | None = None,
        device: str = "auto",
        random_state: Any = None,
        verbose: int = 0,
    ) -> None:
        self.mechanism = mechanism
        self.epsilon = epsilon
        self.delta = delta
        self.module = module
        self.latent_dim = latent_dim
        self.n_steps = n_steps
        self.learning_rate = learning_rate
        self.batch_size = batch_size
        self.n_latents = n_latents
        self.n_slices = n_slices
        self.n_bins = n_bins
        self.slices = slices
        self.clip_jacobian = clip_jacobian
        self.sampling = sampling
        self.sigma = sigma
        self.noise = noise
        self.conditional = conditional
        self.classes = classes
        self.bounds = bounds
        self.norm_bound = norm_bound
        self.budget = budget
        self.device = device
        self.random_state = random_state
        self.verbose = verbose

    @fit_context(prefer_skip_nested_validation=True)
    def fit(self, X: Any, y: Any = None) -> Self:
        """Publish a release of X and train the network on it.

        An interrupt during the training on a sketch or on projections loses nothing that was
        paid for: the release stays, and the first `sample` or `score` trains.

        Parameters
        ----------
        X : array-like of shape (n_samples, n_features)
            Private rows, at least two.
        y : array-like of shape (n_samples,), optional
            Private class labels; only used with ``conditional=True``.

        Returns
        -------
        self : DPSlicedGenerator
            Fitted generator.

        Raises
        ------
        ValueError
            If parameters or data are not usable. Nothing is charged.
        BudgetExceededError
            If `budget` cannot pay. Nothing is charged and nothing changes.
        """
        streams = spawn_streams(self.random_state, type(self).__name__)
        with all_or_nothing(self):
            self._release(streams, X, y)
        self._train(streams.solver)
        return self

    @fit_context(prefer_skip_nested_validation=True)
    def retrain(self, random_state: Any = None) -> Self:
        """Train a new network on the release of the last fit; free of any privacy cost.

        Parameters of the network and of its training can be changed before with `set_params`.

        Parameters
        ----------
        random_state : int, RandomState or None, default=None
            Randomness of this call, which protects nothing.

        Returns
        -------
        self : DPSlicedGenerator
            With another `module_`.

        Raises
        ------
        ValueError
            If a parameter is not usable, or the mechanism was "gradient", where the training
            itself is the release.
        """
        check_is_fitted(self)
        if not GENERATOR_MECHANISMS[self._fitted_mechanism].retrains:
            raise ValueError(
                'With mechanism="gradient" nothing is released but the training steps '
                "themselves: call fit, which is charged, or use another mechanism."
            )
        self._train(solver_generator(random_state))
        return self

    def _release(self, streams: Streams, X: Any, y: Any) -> None:
        """Publish: the only step that sees private rows."""
        resolve_device(self.device)  # refused before any charge
        for name in _FITTED:
            self.__dict__.pop(name, None)
        mechanism = GENERATOR_MECHANISMS[self.mechanism]
        for name, value in mechanism.release(self, streams, X, y).items():
            setattr(self, name, value)
        self._fitted_mechanism = self.mechanism
        self._frame_out = isinstance(X, pd.DataFrame)

    def _train(self, rng: np.random.Generator) -> None:
        """Train on what was published; the mechanism is that of the release."""
        for name, value in GENERATOR_MECHANISMS[self._fitted_mechanism].train(self, rng).items():
            setattr(self, name, value)
