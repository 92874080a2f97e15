"""Synthetic rows from a private release, by a particle flow."""

from numbers import Integral, Real
from typing import Any, Self

import pandas as pd
from numpy.typing import ArrayLike

from skdpot._utils.devices import resolve_device
from skdpot._utils.rng import Streams, spawn_streams
from skdpot._utils.validation import (
    Interval,
    StrOptions,
    all_or_nothing,
    fit_context,
)
from skdpot.estimators._mechanisms import MECHANISMS
from skdpot.estimators._particles import FlowParticles
from skdpot.privacy.budget import PrivacyBudget
from skdpot.privacy.spent import PrivateEstimatorMixin
from skdpot.slicing.sketch import SlicedSketch

__all__ = ["DPSlicedFlowSampler"]

# What a fit sets, beyond what scikit-learn takes care of.
_FITTED = (
    *("sketch_", "releases_", "bounds_", "n_samples_", "classes_", "privacy_spent_"),
    *("particles_", "particle_labels_", "displacements_", "feature_names_in_"),
)


class DPSlicedFlowSampler(PrivateEstimatorMixin, FlowParticles):
    """Differentially private synthetic rows by a sliced Wasserstein flow.

    `fit` releases projections of the data with noise and moves particles until theirs have the
    same distributions. Sampling and scoring are post-processing: free and unlimited. The release
    is by default a `SlicedSketch`; the two mechanisms of the flow paper, which add noise to
    every row, are there for comparison: they need far more noise.

    Parameters
    ----------
    mechanism : {"sketch", "resample", "presample"}, default="sketch"
        How private data are touched. "sketch" releases noisy distribution functions of the
        projections along L directions. "resample" (Algorithm 1 of the paper, DPSWflow-r)
        releases in each step the noisy projections of a new batch of rows along new
        directions; "presample" (Algorithm 2, DPSWflow) those of all rows along L directions,
        once.
    epsilon : float, default=1.0
        Privacy parameter of the whole fit; ``inf`` for no privacy. Not used when `sigma` is
        given.
    delta : float, default=1e-5
        Privacy parameter of the whole fit, in (0, 1).
    budget : PrivacyBudget, optional
        Shared budget that every fit is charged to.
    bounds : "private" or (low, high), default="private"
        What is known about the range of each feature: ``(low, high)``, scalars or arrays of
        shape (n_features,), is public and costs nothing; "private" spends at most 10 % of the
        squared mu on estimating location and scale.
    norm_bound : float, optional
        Public bound of the norm of every row, in place of `bounds`.
    n_slices : int or "auto", default="auto"
        Number of directions L. "auto" is for a sketch a public rule in n, d and epsilon, for
        "resample" 70 in each step, and for "presample" 31, or d if that is more.
    n_bins : int or "auto", default="auto"
        Number of bins along each direction of a sketch.
    slices : {"axes+orthogonal", "orthogonal", "uniform"} or array of shape (n_slices, \
n_features), default="axes+orthogonal"
        How directions are drawn, or public directions (of a sketch only). The axes come first
        in a sketch only.
    conditional : bool, default=False
        Make one table and one flow a class of `y`, so that `sample_labeled` works. Otherwise
        `y` is ignored. Needs a sketch.
    classes : array-like, optional
        The public set of classes; by default the labels found in `y`, which then count as
        public.
    public_labels : bool, default=False
        Whether everybody may know the label of every row: time stamps, hospitals, arms of a
        trial. That takes less noise, and classes then occur exactly as often as in the data. Needs
        ``conditional=True``.
    group_size : int, default=1
        How many rows one person may have given, all of different labels: the guarantee is for all
        of them together. More than 1 needs ``public_labels=True``.
    n_particles : int, optional
        Number of particles kept after `fit`. By default the number of rows, at least 1000 and
        at most 10,000.
    n_steps : int, default=200
        Steps of the flow. With "resample" each is a release that has to be paid for.
    step_size : float or "auto", default="auto"
        First step, as a share of the longest stable one, in (0, 1]. "auto" is 1 for a sketch;
        otherwise all steps are equal and "auto" is 0.375, as in the code of the paper (h = 3
        where d = 8).
    diffusion : float, default=0.0
        Entropic regularisation λ in the units of the mapped features, squared. It smooths the
        sample and buys no privacy. Above 0 the steps are those of the Euler-Maruyama scheme;
        at 0 those towards a sketch have momentum.
    n_subslices : int, optional
        Directions a step. By default about 64 of a sketch, in whole orthogonal blocks; all of
        those of "resample"; and a random 25 in 31 of those of "presample".
    batch_size : int, default=250
        Rows of a step of "resample", at most all of them.
    sampling : {"without_replacement", "poisson"}, default="without_replacement"
        How "resample" draws its batches: of exactly `batch_size` rows, or of so many on average.
    sigma : float, optional
        Standard deviation of the noise on each projection of "resample" and "presample", in
        the units of the mapped rows. `privacy_spent_` then says what epsilon that costs at
        `delta`; it needs public bounds. By default the least noise for `epsilon`.
    noise : {"discrete", "float"}, default="discrete"
        "float" draws the noise of "resample" and "presample" as floating point numbers, which
        is not hardened against attacks on their last bits.
    device : {"auto", "cpu", "cuda"}, default="auto"
        Where the flow runs; "auto" is a GPU if there is one.
    random_state : int, RandomState or None, default=None
        Makes everything reproducible, the privacy noise included. For tests only: whoever
        knows it can remove the noise.
    verbose : int, default=0
        1 shows a progress bar.

    Attributes
    ----------
    sketch_ : SlicedSketch
        The release; only with ``mechanism="sketch"``.
    releases_ : SmoothedProjections
        The release; only with ``mechanism="resample"`` (a batch a step) or "presample".
    bounds_ : DataBounds
        Map from the data to the ball in which rows are projected and particles move.
    n_samples_ : int
        Number of rows.
    particles_ : ndarray of shape (n_particles, n_features)
        Synthetic rows in the units of the data. `sample` draws from them without
        replacement, and runs a new flow for more. Missing after a fit that was interrupted in
        its flow: the first `sample` or `score` then runs it.
    particle_labels_ : ndarray of shape (n_particles,)
        Their classes; only with ``conditional=True``.
    displacements_ : ndarray of shape (n_classes, n_steps)
        How far particles moved in each step (root mean square, mapped units).
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
    Releases `sketch_` or `releases_` and nothing else: one event under replace-one, all steps
    together, charged before noise is drawn. For sensitivity and for what counts as public see
    `SlicedSketch`, and for rows `skdpot.privacy.projection_sensitivity`; neither diffusion nor
    the solver's own noise is counted. Protected are each row of X and, with
    ``conditional=True``, its label unless ``public_labels=True``. Rows given to `score` are
    treated as public; a score on private rows is not private.

    See Also
    --------
    SlicedSketch : The default release alone.

    References
    ----------
    Sketch: this package. Flow: Liutkus et al., "Sliced-Wasserstein flows", ICML 2019.
    "resample" and "presample": "Differentially private gradient flow based on the sliced
    Wasserstein distance", Algorithms 1 and 2, with exact sensitivities and accounting.

    Examples
    --------
    >>> from sklearn.datasets import load_iris
    >>> from skdpot import DPSlicedFlowSampler
    >>> X, y = load_iris(return_X_y=True)
    >>> sampler = DPSlicedFlowSampler(epsilon=5.0, bounds=(0, 8), conditional=True)
    >>> X_new, y_new = sampler.fit(X, y).sample_labeled(500)
    >>> X_new.shape, y_new.shape
    ((500, 4), (500,))
    >>> sampler.privacy_spent_.epsilon
    5.0
    """

    _stated_in = ("sketch_",)
    _parameter_constraints: dict[str, list[Any]] = {
        **SlicedSketch._parameter_constraints,
        "mechanism": [StrOptions(set(MECHANISMS))],
        "n_particles": [Interval(Integral, 1, None, closed="left"), None],
        "n_steps": [Interval(Integral, 1, None, closed="left")],
        "step_size": [StrOptions({"auto"}), Interval(Real, 0, 1, closed="right")],
        "diffusion": [Interval(Real, 0, None, closed="left")],
        "n_subslices": [Interval(Integral, 1, None, closed="left"), None],
        "batch_size": [Interval(Integral, 1, None, closed="left")],
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
        budget: PrivacyBudget | None = None,
        bounds: Any = "private",
        norm_bound: float | None = None,
        n_slices: int | str = "auto",
        n_bins: int | str = "auto",
        slices: Any = "axes+orthogonal",
        conditional: bool = False,
        classes: ArrayLike | None = None,
        public_labels: bool = False,
        group_size: int = 1,
        n_particles: int | None = None,
        n_steps: int = 200,
        step_size: float | str = "auto",
        diffusion: float = 0.0,
        n_subslices: int | None = None,
        batch_size: int = 250,
        sampling: str = "without_replacement",
        sigma: float | None = None,
        noise: str = "discrete",
        device: str = "auto",
        random_state: Any = None,
        verbose: int = 0,
    ) -> None:
        self.mechanism = mechanism
        self.epsilon = epsilon
        self.delta = delta
        self.budget = budget
        self.bounds = bounds
        self.norm_bound = norm_bound
        self.n_slices = n_slices
        self.n_bins = n_bins
        self.slices = slices
        self.conditional = conditional
        self.classes = classes
        self.public_labels = public_labels
        self.group_size = group_size
        self.n_particles = n_particles
        self.n_steps = n_steps
        self.step_size = step_size
        self.diffusion = diffusion
        self.n_subslices = n_subslices
        self.batch_size = batch_size
        self.sampling = sampling
        self.sigma = sigma
        self.noise = noise
        self.device = device
        self.random_state = random_state
        self.verbose = verbose

    @fit_context(prefer_skip_nested_validation=True)
    def fit(self, X: Any, y: Any = None) -> Self:
        """Publish a release of X and move particles to it.

        An interrupt during the flow loses nothing that was paid for: the release stays, and
        the first `sample` or `score` runs the flow.

        Parameters
        ----------
        X : array-like of shape (n_samples, n_features)
            Private rows, at least two.
        y : array-like of shape (n_samples,), optional
            Class labels, private unless `public_labels`; only used with ``conditional=True``.

        Returns
        -------
        self : DPSlicedFlowSampler
            Fitted sampler.

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
        self._generate(streams.solver)
        return self

    def _release(self, streams: Streams, X: Any, y: Any) -> None:
        """Publish: the only step that sees private rows."""
        resolve_device(self.device)  # refused before any charge
        for name in _FITTED:
            self.__dict__.pop(name, None)
        for name, value in MECHANISMS[self.mechanism].release(self, streams, X, y).items():
            setattr(self, name, value)
        self._fitted_mechanism = self.mechanism
        self._frame_out = isinstance(X, pd.DataFrame)
