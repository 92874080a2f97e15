"""Trajectories of a population from one point a person, with privacy."""

from numbers import Integral, Real
from typing import Any, Self

import pandas as pd
from numpy.typing import ArrayLike
from sklearn.utils import Tags

from skdpot._utils.devices import resolve_device
from skdpot._utils.rng import Streams, spawn_streams
from skdpot._utils.validation import Interval, Options, StrOptions, all_or_nothing, fit_context
from skdpot.estimators._trajectory_mechanisms import TRAJECTORY_MECHANISMS
from skdpot.estimators._trajectory_paths import TrajectoryPaths
from skdpot.estimators._trajectory_rows import given_stamps, timed_rows
from skdpot.privacy.budget import PrivacyBudget
from skdpot.privacy.spent import PrivateEstimatorMixin
from skdpot.slicing.sketch import SlicedSketch

__all__ = ["PrivateTrajectorySampler"]

# What a fit sets, beyond what scikit-learn takes care of.
_FITTED = (
    *("sketch_", "bounds_", "n_samples_", "times_", "time_counts_", "privacy_spent_"),
    *("particles_", "path_", "displacements_", "noise_multiplier_", "cluster_shares_"),
    *("centers_", "feature_names_in_", "_released_particles", "_axis", "_centers"),
)


class PrivateTrajectorySampler(PrivateEstimatorMixin, TrajectoryPaths):
    """Differentially private trajectories of a population, from one point a person.

    Everybody is seen once, at some time. `fit` releases what the population looks like at each
    time, and couples neighbouring times as a diffusion would. Sampled paths, marginals between
    the times and scores are post-processing: free and unlimited.

    Parameters
    ----------
    mechanism : {"sketch", "mfld"}, default="sketch"
        How private data are touched. "sketch" releases noisy distribution functions along many
        directions at each time, once. "mfld" is private mean-field Langevin dynamics (Algorithm
        1 of the paper): particles follow noisy gradients, each of which is a release.
    epsilon : float, default=1.0
        Privacy parameter of the whole fit; ``inf`` for no privacy and no noise. When
        `noise_multiplier` is given, it only says how much private bounds and a warm start take.
    delta : float, default=1e-5
        Privacy parameter of the whole fit, in (0, 1).
    budget : PrivacyBudget, optional
        Shared budget that every fit is charged to.
    bounds : "private" or (low, high), default="private"
        What is known about the range of each feature over all times: ``(low, high)``, scalars
        or arrays of shape (n_features,), is public and costs nothing; "private" spends at most 10 %
        of the squared mu on estimating location and scale.
    norm_bound : float, optional
        Public bound of the norm of every row, in place of `bounds`.
    n_times : int, optional
        Number of bins of equal width that time stamps are put in; empty ones are dropped. By
        default every different time stamp is a time, and 20 bins where more than 50 are
        different.
    n_time_subsample : int, optional
        Use so many times only: the first, the last, and a random choice of the others. The rows
        of other times are not touched. It saves time and no privacy.
    group_size : int, default=1
        How many rows one person may have given, at different times: the guarantee is for all of
        them together. With ``groups=`` in `fit` the limit is enforced. Otherwise it is trusted,
        and more than 1 is refused where different time stamps share a bin.
    n_particles : int, optional
        Particles m at each time. By default 500 for a sketch and 300 for "mfld".
    diffusivity : float, default=0.05
        Variance per unit of time of the Brownian motion that couples times and fills the gaps
        between them. Unit of time is the span of all times; unit of length half the side of the
        box of `bounds` (in general the radius of the ball that holds all rows over sqrt(d)).
    regularization : float, optional
        Divisor λ of the data fit: the larger, the more neighbouring times pull at each other. By
        default 1e-4 for a sketch, where 0 turns the pull off, and 0.01 for "mfld".
    smooth : bool, default=True
        Whether noise is smoothed away. The tables of a sketch borrow from neighbouring times, as
        strongly as the released tables themselves show to be right. The noisy gradients of
        "mfld" are averaged over particles within twice the `bandwidth` of each other; the paper's
        algorithm does not do that.
    coupling : {"entropic", "exact"}, default="entropic"
        How paths pass from one time to the next: by the plan of the diffusion, or by an optimal
        transport plan, which crosses less between clusters.
    schedule : list of (step, tau, n_iter), optional
        Phases of the iteration: step size, diffusivity of the reference process (None for
        `diffusivity`) and number of iterations. Steps are shares of the longest stable one for
        a sketch, and η for "mfld", where by default they are short enough for the times.
    warm_start : {"mean", "kmeans"} or None, default=None
        Where the particles of "mfld" start: at private means, or private k-means centres with
        noisy counts. None (or False) is around the centre of the bounds, from where the steps of
        the default schedule are too short to arrive: choose a start, or take hundreds of steps.
    warm_start_share : float, default=0.2
        Share of the squared mu that the warm start takes.
    n_clusters : int, default=3
        Centres of k-means at each time.
    sampling_rate : float, default=1.0
        Probability ρ that a row takes part in a step of "mfld".
    clip : float, optional
        Norm C that the gradient of one row on all particles is clipped to, from 1e-30 to 1e30.
        By default 35 times the root of `n_particles`: 35 for each particle.
    bandwidth : float, default=0.1
        Width σ of the kernel of the data fit of "mfld", in the unit of length.
    noise_multiplier : float or list of float, optional
        Noise of a step of "mfld" in units of `clip`, one number or one a phase. `privacy_spent_`
        then says what epsilon that costs at `delta`. By default the least noise for `epsilon`.
    n_slices : int or "auto", default="auto"
        Number of directions L of a sketch.
    n_bins : int or "auto", default="auto"
        Number of bins along each direction of a sketch.
    slices : {"axes+orthogonal", "orthogonal", "uniform"} or array of shape (n_slices, \
n_features), default="axes+orthogonal"
        How directions of a sketch are drawn, or public directions.
    device : {"auto", "cpu", "cuda"}, default="auto"
        Where projections are counted.
    random_state : int, RandomState or None, default=None
        Makes everything reproducible, the privacy noise included. For tests only: whoever
        knows it can remove the noise.
    verbose : int, default=0
        1 shows a progress bar.

    Attributes
    ----------
    times_ : ndarray of shape (n_times,)
        The times, in the unit of the time stamps.
    time_counts_ : ndarray of shape (n_times,)
        Number of rows used at each time; public.
    particles_ : ndarray of shape (n_times, n_particles, n_features)
        Synthetic rows of each time, in the units of the data.
    path_ : PathMeasure
        Law of the paths: particles, plans between neighbouring times, and bridges, in mapped
        units and on a time axis from 0 to 1.
    sketch_ : SlicedSketch
        The release; only with ``mechanism="sketch"``. Its classes are the numbers of the times.
    centers_ : ndarray of shape (n_times, n_clusters, n_features)
        Released centres; only with a warm start, one centre a time with "mean".
    cluster_shares_ : ndarray of shape (n_times, n_clusters)
        Released shares of the centres; only with ``warm_start="kmeans"``.
    noise_multiplier_ : tuple of float
        Noise of each phase in units of `clip`; only with ``mechanism="mfld"``.
    displacements_ : ndarray of shape (n_iter,)
        How far particles moved in each iteration (root mean square, mapped units).
    bounds_ : DataBounds
        Map from the data to the ball that is used.
    n_samples_ : int
        Number of rows that were used.
    privacy_spent_ : PrivacySpent
        What the fit cost, and under which assumptions.
    n_features_in_ : int
        Number of features.
    feature_names_in_ : ndarray of shape (n_features_in_,)
        Names of features, when X has names that are all strings.

    Privacy
    -------
    One event under replace-one of a row given its time stamp: time stamps, and with them the
    number of rows at each time, are public; so is `groups`. All steps together are charged
    before noise is drawn. One row touches the releases of one time only, so that these are the
    whole charge (parallel composition; for the interleaved steps of "mfld" see the proof in
    `skdpot.trajectories.langevin`).

    "sketch" releases `sketch_`: sensitivity as in `SlicedSketch` with public labels. "mfld"
    releases in each step, for each time, the sum over a secret Poisson sample of the rows of their
    gradients on all m particles, each clipped *as one m × d matrix* to C, with Gaussian noise;
    replacing a row moves the sum by at most 2C, and rounding to the lattice of the noise adds at
    most 1/512 of that (`skdpot.privacy.noise.noise_for_sums`). Sums are divided by the expected
    size of the sample. Warm starts are events of their own (Gaussian, on a lattice). A person
    with k rows at different times pays k times the steps, or sqrt(k) times the sensitivity of a
    table, and k times that of private bounds, which see all times together.

    Neither `diffusivity` nor any randomness of the solver is counted. Rows given to `score` are
    treated as public.

    See Also
    --------
    DPSlicedFlowSampler : Rows without time.
    skdpot.metrics.TrajectoryDisplay : Pictures of paths.

    References
    ----------
    Gu, Chien and Greenewald, "Private continuous-time synthetic trajectory generation via
    mean-field Langevin dynamics", 2025: the task, and "mfld", with an account that is a bound.
    Chizat, Zhang, Heitz and Schiebinger, "Trajectory inference via mean-field Langevin in path
    space", NeurIPS 2022. Sketch: this package.

    Examples
    --------
    >>> from skdpot import PrivateTrajectorySampler
    >>> from skdpot.datasets import make_branching_trajectories
    >>> X, t, _ = make_branching_trajectories(n_per_time=1000, random_state=0)
    >>> sampler = PrivateTrajectorySampler(epsilon=1.0, delta=1e-5, bounds=(-2, 2))
    >>> paths = sampler.fit(X, t).sample(20)
    >>> paths.shape
    (20, 10, 2)
    >>> sampler.sample_marginal(0.35, 100).shape
    (100, 2)
    >>> sampler.privacy_spent_.epsilon
    1.0
    """

    _stated_in = ("sketch_",)
    _parameter_constraints: dict[str, list[Any]] = {
        **{
            name: SlicedSketch._parameter_constraints[name]
            for name in ("epsilon", "delta", "budget", "bounds", "norm_bound", "n_slices")
        },
        **{
            name: SlicedSketch._parameter_constraints[name]
            for name in ("n_bins", "slices", "group_size", "device", "random_state")
        },
        "mechanism": [StrOptions(set(TRAJECTORY_MECHANISMS))],
        "n_times": [Interval(Integral, 1, None, closed="left"), None],
        "n_time_subsample": [Interval(Integral, 2, None, closed="left"), None],
        "n_particles": [Interval(Integral, 1, None, closed="left"), None],
        "diffusivity": [Interval(Real, 0, None, closed="neither")],
        "regularization": [Interval(Real, 0, None, closed="left"), None],
        "smooth": ["boolean"],
        "coupling": [StrOptions({"entropic", "exact"})],
        "schedule": ["array-like", None],
        # Checks of scikit-learn switch every warm start off in this way.
        "warm_start": [StrOptions({"mean", "kmeans"}), Options(bool, {False}), None],
        "warm_start_share": [Interval(Real, 0, 1, closed="neither")],
        "n_clusters": [Interval(Integral, 1, None, closed="left")],
        "sampling_rate": [Interval(Real, 1e-6, 1, closed="both")],
        "clip": [Interval(Real, 1e-30, 1e30, closed="both"), None],
        "bandwidth": [Interval(Real, 1e-6, 1e6, closed="both")],
        "noise_multiplier": [Interval(Real, 0, None, closed="left"), "array-like", None],
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
        n_times: int | None = None,
        n_time_subsample: int | None = None,
        group_size: int = 1,
        n_particles: int | None = None,
        diffusivity: float = 0.05,
        regularization: float | None = None,
        smooth: bool = True,
        coupling: str = "entropic",
        schedule: Any = None,
        warm_start: str | None = None,
        warm_start_share: float = 0.2,
        n_clusters: int = 3,
        sampling_rate: float = 1.0,
        clip: float | None = None,
        bandwidth: float = 0.1,
        noise_multiplier: Any = None,
        n_slices: int | str = "auto",
        n_bins: int | str = "auto",
        slices: Any = "axes+orthogonal",
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
        self.n_times = n_times
        self.n_time_subsample = n_time_subsample
        self.group_size = group_size
        self.n_particles = n_particles
        self.diffusivity = diffusivity
        self.regularization = regularization
        self.smooth = smooth
        self.coupling = coupling
        self.schedule = schedule
        self.warm_start = warm_start
        self.warm_start_share = warm_start_share
        self.n_clusters = n_clusters
        self.sampling_rate = sampling_rate
        self.clip = clip
        self.bandwidth = bandwidth
        self.noise_multiplier = noise_multiplier
        self.n_slices = n_slices
        self.n_bins = n_bins
        self.slices = slices
        self.device = device
        self.random_state = random_state
        self.verbose = verbose

    @fit_context(prefer_skip_nested_validation=True)
    def fit(
        self, X: Any, y: ArrayLike | None = None, *, t: ArrayLike | None = None, groups: Any = None
    ) -> Self:
        """Publish a release of X at each time and couple the times.

        The release of a sketch survives an interrupt: the first `sample` or `score` then runs
        what is left. The steps of "mfld" are all releases; if they are interrupted, or their
        parameters let the particles overflow, what was charged stays charged and nothing is kept.

        Parameters
        ----------
        X : array-like of shape (n_samples, n_features)
            Private rows, at least two.
        y : array-like of shape (n_samples,)
            Public time stamps: numbers or dates.
        t : array-like of shape (n_samples,), optional
            The same by a better name, in place of `y`.
        groups : array-like of shape (n_samples,), optional
            Public number of the person that each row belongs to. Of every person at most one
            row a time and `group_size` rows in all are used, chosen at random.

        Returns
        -------
        self : PrivateTrajectorySampler
            Fitted sampler.

        Raises
        ------
        ValueError
            If parameters or data are not usable. Nothing is charged, except where the steps of
            "mfld" diverge.
        BudgetExceededError
            If `budget` cannot pay. Nothing is charged and nothing changes.
        """
        streams = spawn_streams(self.random_state, type(self).__name__)
        with all_or_nothing(self):
            self._release(streams, X, given_stamps(y, t), groups)
        self._generate(streams.solver)
        return self

    def _release(self, streams: Streams, X: Any, t: Any, groups: Any) -> None:
        """Publish: the only step that sees private rows."""
        resolve_device(self.device)  # refused before any charge
        for name in _FITTED:
            self.__dict__.pop(name, None)
        data = timed_rows(self, X, t, groups, streams.public)
        mechanism = TRAJECTORY_MECHANISMS[self.mechanism]
        for name, value in mechanism.release(self, streams, data, X).items():
            setattr(self, name, value)
        self.n_samples_, self.time_counts_ = len(data.rows), data.counts
        self.times_, self._axis = data.axis.stamps, data.axis
        self._fitted_mechanism = self.mechanism
        self._frame_out = isinstance(X, pd.DataFrame)

    def __sklearn_tags__(self) -> Tags:
        """Return the tags of this estimator."""
        tags = super().__sklearn_tags__()
        tags.target_tags.required = True  # the time stamps
        return tags
