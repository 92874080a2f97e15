"""The estimator: trajectories of a population from one point per person, with privacy."""

import math
from collections.abc import Callable
from copy import copy
from dataclasses import KW_ONLY, dataclass
from numbers import Integral, Real
from typing import Any, Self
from weakref import WeakKeyDictionary

import numpy as np
import pandas as pd
from numpy.typing import ArrayLike
from scipy.stats import t as student_t
from sklearn.base import clone
from sklearn.model_selection import ParameterGrid
from sklearn.utils import Tags

from skdpot._utils.arguments import check_confidence, check_count
from skdpot._utils.finite import as_finite
from skdpot._utils.parameters import (
    Interval,
    StrOptions,
    all_or_nothing,
    check_parameters,
    fit_context,
)
from skdpot._utils.rows import validate_rows
from skdpot._utils.streams import solver_generator, spawn_streams
from skdpot.base import FitContext, PrivateSampler, chosen_mechanism, like_input
from skdpot.ot.distances import wasserstein_distance
from skdpot.release.releases import Records, Release
from skdpot.release.sketch import SlicedSketch
from skdpot.trajectories.couplings import drifting_plans, entropic_plans, exact_plans, kept_plans
from skdpot.trajectories.langevin_mechanism import MeanFieldLangevin
from skdpot.trajectories.mechanism import MovedParticles, TrajectoryMechanism
from skdpot.trajectories.path_measure import PathMeasure
from skdpot.trajectories.sketch_mechanism import TrajectorySketch
from skdpot.trajectories.time_axis import read_stamps
from skdpot.trajectories.timed_rows import divide_by_time

MECHANISMS: dict[str, type[TrajectoryMechanism]] = {
    "sketch": TrajectorySketch,
    "mfld": MeanFieldLangevin,
}
# A score is computed from at most this many rows of a time.
_MOST_SCORED = 2000
# Parameters that can change after any release, and after the release of a sketch.
_FREE = ("coupling", "diffusivity")
_FREE_OF_SKETCH = (
    "n_particles",
    "mechanism__regularization",
    "mechanism__smooth",
    "mechanism__schedule",
)
# Points that are drawn to be compared with a table that was left out.
_DRAWN_AT_LEFT_OUT = 1000
# Simulated fits of a fit, kept as long as its paths.
_SIMULATED: WeakKeyDictionary[PathMeasure, list[Any]] = WeakKeyDictionary()


@dataclass(frozen=True, eq=False)
class SimulatedEstimate:
    """A statistic of the population, and its error in simulated fits.

    A fit that smooths is biased. Simulations of the smooth fit show part of this bias: it is
    subtracted from the value, and it is also counted as an error.
    """

    value: np.ndarray  # bias subtracted
    standard_error: np.ndarray
    bias: np.ndarray  # mean of the simulated fits less the fit
    n_simulations: int

    @classmethod
    def of(cls, fitted: np.ndarray, simulated: np.ndarray) -> Self:
        """Estimate a statistic from its value (...) and simulated values (n_simulations, ...)."""
        bias = simulated.mean(axis=0) - fitted
        error = np.hypot(simulated.std(axis=0, ddof=1), bias)
        return cls(fitted - bias, error, bias, len(simulated))

    def interval(self, confidence: float = 0.95) -> tuple[np.ndarray, np.ndarray]:
        """Return the lower and upper ends of a confidence interval for each number."""
        check_confidence(confidence)
        quantile = student_t.ppf(0.5 + confidence / 2, self.n_simulations - 1)
        reach = quantile * self.standard_error
        return self.value - reach, self.value + reach


@dataclass(eq=False, repr=False)
class PrivateTrajectorySampler(PrivateSampler):
    """Differentially private trajectories of a population, from one point per person.

    Each person is observed once, at some time. `fit` releases the distribution of the population at
    each time, and couples neighbouring times as by a diffusion. Sampled paths, marginals at and
    between the times, and scores are post-processing and cost no privacy.

    Parameters
    ----------
    mechanism : {"sketch", "mfld"}, TrajectorySketch or MeanFieldLangevin, default="sketch"
        What is released. "sketch", short for `TrajectorySketch()`, releases noisy distribution
        functions along many directions at each time, once. "mfld", short for `MeanFieldLangevin()`,
        is private mean-field Langevin dynamics (Algorithm 1 of the paper): particles follow noisy
        gradients, each of which is a release.
    epsilon : float, default=1.0
        Privacy parameter of the whole fit; ``inf`` for no noise and no privacy. If the mechanism is
        given its noise, only private bounds and a warm start depend on it.
    delta : float, default=1e-5
        Privacy parameter of the whole fit, in (0, 1).
    budget : PrivacyBudget, optional
        Shared budget that every fit is charged to.
    bounds : "private" or (low, high), default="private"
        Range of each feature over all times. ``(low, high)``, scalars or arrays of shape
        (n_features,), is public and costs nothing; "private" spends at most 25 % of the squared mu
        on estimating location and scale.
    norm_bound : float, optional
        Public bound of the norm of every row, in place of `bounds`.
    n_times : int, optional
        Number of bins of equal width for the time stamps; empty bins are dropped. By default each
        distinct time stamp is a time; with more than 50 of them there are 20 bins.
    n_time_subsample : int, optional
        Number of times to use: the first, the last, and a random choice of the others. Rows of
        other times are not used. This saves computing time, not privacy.
    group_size : int, default=1
        Maximum number of rows per person, at different times; the guarantee covers all of them
        together. With ``groups=`` in `fit` the limit is enforced. Otherwise it is trusted, and
        values above 1 are refused if distinct time stamps share a bin.
    n_particles : int, optional
        Number of particles m at each time. By default 500 for a sketch and 300 for "mfld".
    diffusivity : float, default=0.05
        Variance per unit of time of the Brownian motion that couples times and interpolates
        between them. The unit of time is the span of all times; the unit of length is half the
        side of the box of `bounds` (in general, the radius of the ball of all rows over sqrt(d)).
        If paths follow the flow (see `TrajectorySketch`), marginals hardly depend on it. Otherwise
        it widens the marginals between the times.
    coupling : {"entropic", "exact"}, default="entropic"
        Transport plan between neighbouring times: that of the diffusion, which drifts with the flow
        of the population, or that of the flow alone (optimal transport, smoothed as the tables
        are), which mixes clusters less and adds no random motion.
    random_state : int, RandomState or None, default=None
        Seed of everything, the noise included. For tests only: it lets anyone remove the noise.
    verbose : int, default=0
        1 shows a progress bar.

    Attributes
    ----------
    times_ : ndarray of shape (n_times,)
        The times, in the unit of the time stamps.
    time_counts_ : ndarray of shape (n_times,)
        Number of rows used at each time; public.
    mechanism_ : TrajectorySketch or MeanFieldLangevin
        The mechanism that was used.
    particles_ : ndarray of shape (n_times, n_particles, n_features)
        Synthetic rows of each time, in the units of the data.
    path_ : PathMeasure
        Law of the paths: particles, plans between neighbouring times, and bridges, in mapped
        units and on a time axis from 0 to 1. ``path_.objective`` is the objective at the particles;
        its ``fit`` is None if the release does not determine it (private "mfld").
    sketch_ : SlicedSketch
        The release; only with "sketch". Its classes are the indices of the times.
    centers_ : ndarray of shape (n_times, n_clusters, n_features)
        Released centers; only with a warm start, one center per time with "mean".
    cluster_shares_ : ndarray of shape (n_times, n_clusters)
        Released shares of the centers; only with ``MeanFieldLangevin(warm_start="kmeans")``.
    noise_multiplier_ : tuple of float
        Noise of each phase in units of `clip_gradient`; only with "mfld".
    displacements_ : ndarray of shape (n_iter,)
        Root mean square displacement of the particles in each iteration, in mapped units.
    bounds_ : DataBounds
        Map from the data to the ball that is used.
    n_samples_ : int
        Number of rows that were used.
    privacy_spent_ : PrivacySpent
        Cost of the fit, and the assumptions behind it.
    reliability_ : Reliability
        Standard errors of the means at all times, beside the distance from the mean of all times.
        Root mean squares over the features, in units of length (see `diffusivity`).
    n_features_in_ : int
        Number of features.
    feature_names_in_ : ndarray of shape (n_features_in_,)
        Names of features, when X has names that are all strings.

    Privacy
    -------
    One event under replace-one of a row given its time stamp: time stamps, and with them the number
    of rows at each time, are public, and so is `groups`. All steps together are charged before
    noise is drawn. One row affects the releases of one time only, so these are the whole charge.
    The mechanism documents its releases and their sensitivities. A person with k rows at different
    times costs k times the steps of "mfld", or sqrt(k) times the sensitivity of a table, and k
    times that of private bounds, which use all times together.

    Neither `diffusivity` nor the randomness of the solver counts towards privacy. Rows passed to
    `score` are treated as public.

    See Also
    --------
    skdpot.mechanisms.TrajectorySketch, skdpot.mechanisms.MeanFieldLangevin : The mechanisms.
    DPSlicedFlowSampler : Samples rows without times.
    skdpot.metrics.TrajectoryDisplay : Draws paths.

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

    _: KW_ONLY
    n_times: int | None = None
    n_time_subsample: int | None = None
    group_size: int = 1
    n_particles: int | None = None
    diffusivity: float = 0.05
    coupling: str = "entropic"

    _mechanisms = MECHANISMS
    _made_last = "path_"
    _parameter_constraints = PrivateSampler._parameter_constraints | {
        "group_size": SlicedSketch._parameter_constraints["group_size"],
        "mechanism": [StrOptions(set(MECHANISMS)), TrajectoryMechanism],
        "n_times": [Interval(Integral, 1, None, closed="left"), None],
        "n_time_subsample": [Interval(Integral, 2, None, closed="left"), None],
        "n_particles": [Interval(Integral, 1, None, closed="left"), None],
        "diffusivity": [Interval(Real, 0, None, closed="neither")],
        "coupling": [StrOptions({"entropic", "exact"})],
    }

    @fit_context(prefer_skip_nested_validation=True)
    def fit(
        self, X: Any, y: ArrayLike | None = None, *, t: ArrayLike | None = None, groups: Any = None
    ) -> Self:
        """Release the distribution of X at each time and couple the times.

        If a fit with "sketch" is interrupted after the release, the first `sample` or `score`
        completes it. With "mfld" each step is a release: a fit that is interrupted, or whose
        particles overflow, stays charged, and nothing is kept.

        Parameters
        ----------
        X : array-like of shape (n_samples, n_features)
            Private rows, at least two.
        y : array-like of shape (n_samples,)
            Public time stamps: numbers or dates.
        t : array-like of shape (n_samples,), optional
            Alias of `y`.
        groups : array-like of shape (n_samples,), optional
            Public identifier of the person that each row belongs to. At most one row per person
            and time, and `group_size` rows per person, are used, chosen at random.

        Returns
        -------
        self : PrivateTrajectorySampler
            Fitted sampler.

        Raises
        ------
        ValueError
            If parameters or data are not usable. Nothing is charged, unless the steps of "mfld"
            diverge.
        BudgetExceededError
            If `budget` is insufficient. Nothing is charged and nothing changes.
        """
        streams = spawn_streams(self.random_state, type(self).__name__)
        with all_or_nothing(self, forget=True):
            # Validate.
            rows = validate_rows(self, X, reset=True, min_samples=2)
            data = divide_by_time(
                rows,
                _one_of(y, t),
                n_times=self.n_times,
                n_time_subsample=self.n_time_subsample,
                group_size=self.group_size,
                groups=groups,
                rng=streams.public,
            )
            mechanism = chosen_mechanism(self.mechanism, MECHANISMS)
            # Plan, charge and release.
            result = mechanism.release(
                FitContext.of(self, X, streams),
                data,
                n_particles=self._n_particles(mechanism),
                diffusivity=self.diffusivity,
            )
            # Store.
            self._store(mechanism, result, X)
            self.n_samples_, self.time_counts_ = len(data.rows), data.counts
            self.times_, self._axis = data.axis.stamps, data.axis
            if "centers_" in result.attributes:
                self.centers_ = self._to_data(result.attributes["centers_"])
        # Solve: particles and paths are post-processing.
        self._make(streams.solver)
        return self

    def sample(
        self,
        n_samples: int = 1,
        times: ArrayLike | None = None,
        random_state: int | np.random.RandomState | None = None,
    ) -> np.ndarray:
        """Draw paths, at no privacy cost.

        Parameters
        ----------
        n_samples : int, default=1
            Number of paths.
        times : array-like of shape (n_times,), optional
            Times in the unit of the time stamps, between the first and the last fitted one. By
            default `times_`.
        random_state : int, RandomState or None, default=None
            Seed; does not affect privacy.

        Returns
        -------
        ndarray of shape (n_samples, n_times, n_features)
            Positions in the units of the data.

        Raises
        ------
        TypeError, ValueError
            If `n_samples` is not a positive integer, or a time lies outside the fitted ones.
        """
        rng = self._ready(random_state)
        at = self._axis.unit_knots if times is None else self._axis.to_unit(times)
        return self._to_data(self.path_.sample(check_count(n_samples, "n_samples"), at, rng))

    def sample_frame(
        self,
        n_samples: int = 1,
        times: ArrayLike | None = None,
        random_state: int | np.random.RandomState | None = None,
    ) -> pd.DataFrame:
        """Draw paths as a long table.

        Parameters
        ----------
        n_samples, times, random_state
            As for `sample`.

        Returns
        -------
        DataFrame
            One row per path and time, with the columns ``path``, ``time`` and one per feature.

        Raises
        ------
        ValueError
            As for `sample`, or if a feature is called "path" or "time".
        """
        paths = self.sample(n_samples, times, random_state)
        n_samples = len(paths)
        stamps = self.times_ if times is None else np.atleast_1d(np.asarray(times))
        names = getattr(self, "feature_names_in_", None)
        if names is None:
            names = [f"x{j}" for j in range(paths.shape[2])]
        if {"path", "time"} & set(names):
            raise ValueError(
                'A feature is named "path" or "time", like the columns that sample_frame adds. '
                "Rename it before fit, or use sample."
            )
        table = pd.DataFrame(paths.reshape(-1, paths.shape[2]), columns=names)
        table.insert(0, "time", np.tile(stamps, n_samples))
        table.insert(0, "path", np.repeat(np.arange(n_samples), len(stamps)))
        return table

    def sample_marginal(
        self, time: Any, n_samples: int = 1, random_state: int | np.random.RandomState | None = None
    ) -> Any:
        """Draw rows at one time, which need not be in `times_`, at no privacy cost.

        Parameters
        ----------
        time : float or date
            A time between the first and the last fitted one.
        n_samples : int, default=1
            Number of rows.
        random_state : int, RandomState or None, default=None
            Seed; does not affect privacy.

        Returns
        -------
        ndarray or DataFrame of shape (n_samples, n_features)
            Synthetic rows; a DataFrame when the estimator was fitted on one.

        Raises
        ------
        TypeError, ValueError
            If `n_samples` is not a positive integer, or the time lies outside the fitted ones.
        """
        rng = self._ready(random_state)
        n_samples = check_count(n_samples, "n_samples")
        if np.ndim(time) > 0:
            raise ValueError("time must be a single time; for several at once use sample.")
        (at,) = self._axis.to_unit(time)
        return like_input(self, self._to_data(self.path_.sample_marginal(at, n_samples, rng)))

    def score(self, X: Any, y: ArrayLike | None = None, *, t: ArrayLike | None = None) -> float:
        """Negative mean, over times, of the Wasserstein-2 distance from X to synthetic rows.

        Parameters
        ----------
        X : array-like of shape (n_samples, n_features)
            **Public** rows: the score is computed from them without noise.
        y : array-like of shape (n_samples,)
            Their time stamps, between the first and the last fitted one; each is assigned to its
            time in `times_`.
        t : array-like of shape (n_samples,), optional
            Alias of `y`.

        Returns
        -------
        float
            −W₂ in the units of the data, averaged over the times that occur; higher is better. At
            most 2,000 rows per time are used. Few rows or particles are further from the population
            than many, and the difference grows with the number of features. `estimate` does not
            correct it.
        """
        rng = self._ready(0)
        rows = validate_rows(self, X, reset=False)
        positions = self._axis.positions(read_stamps(_one_of(y, t), "t", len(rows)))
        distances = []
        for i in np.unique(positions):
            scored = rng.permutation(np.flatnonzero(positions == i))[:_MOST_SCORED]
            distances.append(wasserstein_distance(rows[scored], self.particles_[i]))
        return -float(np.mean(distances))

    def estimate(
        self, statistic: Callable[[Any], ArrayLike] | None = None, *, n_simulations: int = 20
    ) -> SimulatedEstimate:
        """Estimate statistics of the population with their errors, at no privacy cost.

        A parametric bootstrap of the fit: people are drawn from the particles of each time and
        released with noise of the same law, and paths are made of the release. The differences
        between the statistic of these simulated fits and that of this one show the error due to
        noise and sampling.

        Parameters
        ----------
        statistic : callable, optional
            Function of a fitted sampler that returns a number or an array. It is called with this
            sampler and with the simulated ones. By default the means of all features at all times,
            shape (n_times, n_features). Others are, for example, ``lambda fitted:
            (fitted.particles_[..., 0] > 0).mean(axis=1)``, a share of the population at each
            time, ``lambda fitted: fitted.score(X, t)``, and functions of ``fitted.sample(1000,
            random_state=0)``, which are about paths.
        n_simulations : int, default=20
            Number of simulated fits, at least 8. Each takes about as long as `fit`. They are the
            same in every call, and kept for the next one.

        Returns
        -------
        SimulatedEstimate
            The ``value`` of the statistic, less the mean ``bias`` of the simulated fits; its
            ``standard_error``, which is that of the simulations and the bias together; all of the
            shape of the statistic. ``interval(confidence)`` returns the two ends of intervals.

        Raises
        ------
        ValueError
            If the mechanism is not a `TrajectorySketch` (for "mfld" the effect of the noise on the
            particles is not known), or the statistic is not finite.

        Notes
        -----
        The errors cover the noise and the sampling of people. For a statistic of paths they do not
        cover the assumption that the population moves like the diffusion, which points of different
        people cannot test (see the user guide).

        References
        ----------
        Efron and Tibshirani, "An introduction to the bootstrap", 1993, chapters 6 and 10.
        """
        self._ready(0)
        self._check_sketched("estimate")
        n_simulations = check_count(n_simulations, "n_simulations", least=8)
        simulated: list[Self] = _SIMULATED.setdefault(self.path_, [])
        for number in range(len(simulated), n_simulations):
            simulated.append(self._simulated(np.random.default_rng(number)))
        function = _means if statistic is None else statistic
        values = [
            as_finite(function(fitted), "The statistic", "must return finite numbers.")
            for fitted in (self, *simulated[:n_simulations])
        ]
        return SimulatedEstimate.of(values[0], np.stack(values[1:]))

    def with_params(
        self, *, random_state: int | np.random.RandomState | None = None, **params: Any
    ) -> Self:
        """Return a fitted copy with other paths from the same release, at no privacy cost.

        Parameters
        ----------
        random_state : int, RandomState or None, default=None
            Seed; does not affect privacy.
        **params
            Parameters that do not affect the release, as for `set_params`: `diffusivity`,
            `coupling`, `n_particles`, `mechanism__regularization`, `mechanism__smooth` and
            `mechanism__schedule`. With "mfld" the first two, which then only join the particles.

        Returns
        -------
        sampler : PrivateTrajectorySampler
            Copy that shares the release of this one. Both are covered by one charge.

        Raises
        ------
        ValueError
            If a parameter affects the release or its value is not allowed.
        """
        rng = self._ready(random_state)
        free = _FREE + (_FREE_OF_SKETCH if hasattr(self, "sketch_") else ())
        paid = sorted(set(params) - set(free))
        if paid:
            raise ValueError(
                f"{', '.join(paid)} cannot change after fit: what is released depends on it. These "
                f"can: {', '.join(free)}."
            )
        other = copy(self)
        other.mechanism = clone(self.mechanism_)
        other.set_params(**params)
        check_parameters(other)
        other.mechanism_ = chosen_mechanism(other.mechanism, MECHANISMS)
        if set(params) == {"coupling"}:
            other._join(
                MovedParticles(
                    self.path_.particles, self.displacements_, self.path_.fit, self.path_.followed
                )
            )
        else:
            other._make(rng)
        return other

    def select(
        self,
        param_grid: dict[str, Any] | list[dict[str, Any]],
        *,
        random_state: int | np.random.RandomState | None = 0,
    ) -> Self:
        """Choose how paths are made by how well they predict times left out, at no privacy cost.

        The tables of every other time are left out, paths are made of the rest, and their marginals
        at these times are compared with the released tables; then the same with the other times.
        The noise of a table that was left out is independent of the prediction and the same for
        all candidates. Bad candidates are avoided, but the best need not be found, and the default
        may be better: points of different people tell little about paths.

        Parameters
        ----------
        param_grid : dict or list of dict
            Lists of values, as for `sklearn.model_selection.GridSearchCV`, of parameters that
            `with_params` accepts.
        random_state : int, RandomState or None, default=0
            Seed; does not affect privacy.

        Returns
        -------
        sampler : PrivateTrajectorySampler
            A fitted copy with the best parameters. Its ``search_results_`` is a DataFrame of the
            candidates: ``params``, ``left_out_distance`` (root of the mean squared sliced distance
            in mapped units, the noise of the tables included) and ``rank``.

        Raises
        ------
        ValueError
            If there are fewer than three times, the mechanism is not a `TrajectorySketch`, or a
            parameter is not allowed.

        References
        ----------
        Schiebinger et al., "Optimal-transport analysis of single-cell gene expression identifies
        developmental trajectories in reprogramming", Cell 2019: held-out times as validation.
        """
        self._ready(random_state)
        self._check_sketched("select")
        if len(self.times_) < 3:
            raise ValueError("select leaves inner times out and needs at least three times.")
        rows = []
        for params in ParameterGrid(param_grid):
            candidate = self.with_params(random_state=random_state, **params)
            squared = candidate._left_out(solver_generator(random_state))
            rows.append((params, math.sqrt(squared), candidate))
        table = pd.DataFrame([row[:2] for row in rows], columns=["params", "left_out_distance"])
        table["rank"] = table["left_out_distance"].rank(method="min").astype(int)
        best: Self = rows[int(table["left_out_distance"].argmin())][2]
        best.search_results_ = table
        return best

    def _check_sketched(self, method: str) -> None:
        """Refuse a method that needs the release of a sketch."""
        if not hasattr(self, "sketch_"):
            raise ValueError(
                f'{method} needs mechanism="sketch". The effect of noise on the particles of '
                '"mfld" is not known, because each step depends on earlier ones.'
            )

    def _simulated(self, rng: np.random.Generator) -> Self:
        """Return a copy that was fitted to people drawn from the particles."""
        other = copy(self)
        other.verbose = 0
        other.sketch_ = self.mechanism_.simulate(self.sketch_, self.particles_, rng)
        other._make(rng)
        return other

    def _left_out(self, rng: np.random.Generator) -> float:
        """Return the mean squared distance of predictions to the tables of times left out."""
        sketch, squared = self.sketch_, []
        inner = np.arange(1, len(self.times_) - 1)
        for left_out in filter(len, (inner[::2], inner[1::2])):
            kept = np.setdiff1d(np.arange(len(self.times_)), left_out)
            part = copy(self)
            part.sketch_ = sketch._with_statistic(sketch.statistic_[kept], kept)
            part._axis = self._axis.subset(kept)
            part._make(rng)
            for k in left_out:
                rows = part.path_.sample_marginal(self._axis.unit_knots[k], _DRAWN_AT_LEFT_OUT, rng)
                rows = rows * (self.bounds_.radius / math.sqrt(self.bounds_.n_features))
                projections = sketch.directions_ @ rows.T
                table = sketch.table(sketch.classes_[k])
                squared.append(table.squared_distances_to_sample(projections).mean())
        return float(np.mean(squared))

    def _keep(self, value: SlicedSketch | MovedParticles) -> None:
        """Keep a released sketch as `sketch_`, and released particles for `_make`."""
        if isinstance(value, SlicedSketch):
            super()._keep(value)
        else:
            self._released_particles = value

    def _seen_by(self, release: Release, X: Any, y: Any) -> Records:
        """Return rows, in mapped units for gradients and warm starts, and the indices of times."""
        positions = self._axis.positions(np.asarray(y))
        if hasattr(self, "sketch_") or release.kind == "histogram":
            return super()._seen_by(release, X, positions)
        return self.bounds_.to_units(X), positions

    def _n_particles(self, mechanism: TrajectoryMechanism) -> int:
        return int(self.n_particles or mechanism.default_particles)

    def _make(self, rng: np.random.Generator) -> None:
        """Make particles and paths from the release."""
        sketched = hasattr(self, "sketch_")
        moved = self.mechanism_.move(
            self.sketch_ if sketched else self._released_particles,
            self._axis,
            n_particles=self._n_particles(self.mechanism_),
            diffusivity=self.diffusivity,
            rng=rng,
            progress=bool(self.verbose),
        )
        self.displacements_ = moved.displacements
        self.particles_ = self._to_data(moved.particles)
        self._join(moved)

    def _join(self, moved: MovedParticles) -> None:
        """Couple particles of neighbouring times, and keep the law of their paths."""
        particles, followed = moved.particles, moved.followed
        if self.coupling == "exact":
            plans = (kept_plans if followed else exact_plans)(particles)
        else:
            join = drifting_plans if followed else entropic_plans
            plans = join(particles, self._axis.spacings, self.diffusivity)
        self.path_ = PathMeasure(
            times=self._axis.unit_knots,
            particles=particles,
            plans=plans,
            diffusivity=self.diffusivity,
            followed=followed,
            fit=moved.fit,
        )

    def _to_data(self, points: np.ndarray) -> np.ndarray:
        """Map points (..., d) to the units of the data, within the bounds of the rows."""
        rows = self.bounds_.from_units(points.reshape(-1, points.shape[-1]))
        return rows.reshape(points.shape)

    def __sklearn_tags__(self) -> Tags:
        tags = super().__sklearn_tags__()
        tags.target_tags.required = True  # the time stamps
        return tags


def _means(fitted: Any) -> np.ndarray:
    """Return the mean of each feature at each time."""
    means: np.ndarray = fitted.particles_.mean(axis=1)
    return means


def _one_of(y: ArrayLike | None, t: ArrayLike | None) -> ArrayLike | None:
    """Return the time stamps, passed either as y or as t."""
    if y is not None and t is not None:
        raise TypeError("The time stamps were given twice, as y and t; pass them once.")
    return t if y is None else y
