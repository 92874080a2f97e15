"""What a fitted trajectory sampler gives; all of it is post-processing."""

import math
from typing import Any

import numpy as np
import pandas as pd
from sklearn.base import BaseEstimator

from skdpot._utils.rng import solver_generator
from skdpot._utils.validation import check_is_fitted, validate_rows
from skdpot.estimators._synthetic_rows import check_n_samples, like_input
from skdpot.estimators._trajectory_mechanisms import TRAJECTORY_MECHANISMS
from skdpot.estimators._trajectory_rows import given_stamps
from skdpot.metrics import wasserstein_distance
from skdpot.privacy.data_bounds import DataBounds
from skdpot.trajectories.paths import PathMeasure, entropic_plans, exact_plans
from skdpot.trajectories.time_axis import TimeAxis, read_stamps

__all__ = ["TrajectoryPaths"]

_MOST_SCORED = 2000  # rows of a time that a score looks at


class TrajectoryPaths(BaseEstimator):
    """Paths, marginals and scores; a part of `PrivateTrajectorySampler`."""

    coupling: str
    diffusivity: float
    bounds_: DataBounds
    path_: PathMeasure
    _axis: TimeAxis
    _fitted_mechanism: str

    def sample(self, n_samples: int = 1, times: Any = None, random_state: Any = None) -> np.ndarray:
        """Draw paths; free of any privacy cost.

        Parameters
        ----------
        n_samples : int, default=1
            Number of paths.
        times : array-like of shape (n_times,), optional
            Times in the unit of the time stamps, from the first to the last that was fitted. By
            default `times_`.
        random_state : int, RandomState or None, default=None
            Randomness of this call, which protects nothing.

        Returns
        -------
        ndarray of shape (n_samples, n_times, n_features)
            Positions in the units of the data.

        Raises
        ------
        ValueError
            If `n_samples` is not a positive integer, or a time lies outside the fitted ones.
        """
        rng = self._ready(random_state)
        n_samples = check_n_samples(n_samples)
        at = self._axis.unit_knots if times is None else self._axis.to_unit(times)
        paths = self.path_.sample(n_samples, at, rng)
        return self._to_data(paths)

    def sample_frame(
        self, n_samples: int = 1, times: Any = None, random_state: Any = None
    ) -> pd.DataFrame:
        """Draw paths as a long table.

        Parameters
        ----------
        n_samples, times, random_state
            As for `sample`.

        Returns
        -------
        DataFrame
            One row a path and time, with the columns ``path``, ``time`` and one a feature.

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
                'A feature is called "path" or "time", like the columns that sample_frame adds. '
                "Rename it before fit, or use sample."
            )
        table = pd.DataFrame(paths.reshape(-1, paths.shape[2]), columns=names)
        table.insert(0, "time", np.tile(stamps, n_samples))
        table.insert(0, "path", np.repeat(np.arange(n_samples), len(stamps)))
        return table

    def sample_marginal(self, time: Any, n_samples: int = 1, random_state: Any = None) -> Any:
        """Draw rows at one time, which need not be one of `times_`; free of any privacy cost.

        Parameters
        ----------
        time : float or date
            A time from the first to the last that was fitted.
        n_samples : int, default=1
            Number of rows.
        random_state : int, RandomState or None, default=None
            Randomness of this call, which protects nothing.

        Returns
        -------
        ndarray or DataFrame of shape (n_samples, n_features)
            Synthetic rows; a DataFrame when the estimator was fitted on one.

        Raises
        ------
        ValueError
            If `n_samples` is not a positive integer, or the time lies outside the fitted ones.
        """
        rng = self._ready(random_state)
        n_samples = check_n_samples(n_samples)
        if np.ndim(time) > 0:
            raise ValueError("time must be a single time; for several at once use sample.")
        (at,) = self._axis.to_unit(time)
        return like_input(self, self._to_data(self.path_.sample_marginal(at, n_samples, rng)))

    def score(self, X: Any, y: Any = None, *, t: Any = None) -> float:
        """Negative mean, over times, of the Wasserstein-2 distance from X to synthetic rows.

        Parameters
        ----------
        X : array-like of shape (n_samples, n_features)
            **Public** rows: the score is computed from them without noise.
        y : array-like of shape (n_samples,)
            Their time stamps, from the first to the last that was fitted; each counts for the
            time of `times_` that it belongs to.
        t : array-like of shape (n_samples,), optional
            The same by a better name, in place of `y`.

        Returns
        -------
        float
            −W₂ in the units of the data, averaged over the times that occur; higher is better. Of
            more than 2,000 rows a time so many are looked at.
        """
        rng = self._ready(0)
        rows = validate_rows(self, X, reset=False)
        positions = self._axis.positions(read_stamps(given_stamps(y, t), "t", len(rows)))
        distances = []
        for i in np.unique(positions):
            seen = rng.permutation(np.flatnonzero(positions == i))[:_MOST_SCORED]
            distances.append(wasserstein_distance(rows[seen], self.particles_[i]))
        return -float(np.mean(distances))

    def _generate(self, rng: np.random.Generator) -> None:
        """Run what follows from the release, and keep particles and paths."""
        mechanism = TRAJECTORY_MECHANISMS[self._fitted_mechanism]
        particles, self.displacements_ = mechanism.particles(self, rng)
        self.particles_ = self._to_data(particles)
        if hasattr(self, "_centers"):
            self.centers_ = self._to_data(self._centers)
        if self.coupling == "exact":
            plans = exact_plans(particles)
        else:
            plans = entropic_plans(particles, self._axis.spacings, self.diffusivity)
        # Last, because it tells that everything is done.
        self.path_ = PathMeasure(self._axis.unit_knots, particles, plans, self.diffusivity)

    def _ready(self, random_state: Any) -> np.random.Generator:
        """Return a generator; run what an interrupted fit has left undone."""
        check_is_fitted(self)
        rng = solver_generator(random_state)
        if not hasattr(self, "path_"):
            self._generate(rng)
        return rng

    def _to_data(self, points: np.ndarray) -> np.ndarray:
        """Map to the units of the data, inside the bounds that the rows were in."""
        bounds = self.bounds_
        unit = bounds.radius / math.sqrt(bounds.n_features)
        rows = bounds.from_ball(points.reshape(-1, points.shape[-1]) * unit)
        inside: np.ndarray = bounds.from_ball(bounds.to_ball(rows))
        return inside.reshape(points.shape)
