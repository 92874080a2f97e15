"""Synthetic rows from a private sketch."""

from dataclasses import replace
from numbers import Integral, Real
from typing import Any, Self

import numpy as np
import pandas as pd
from numpy.typing import ArrayLike
from sklearn.base import BaseEstimator

from skdpot._utils.devices import resolve_device
from skdpot._utils.rng import Streams, solver_generator, spawn_streams
from skdpot._utils.validation import (
    Interval,
    StrOptions,
    all_or_nothing,
    check_is_fitted,
    fit_context,
    validate_rows,
)
from skdpot.flows import FlowResult, FlowSchedule, SlicedFlowProblem, sliced_flow
from skdpot.privacy.budget import PrivacyBudget
from skdpot.slicing.directions import orthogonal_directions
from skdpot.slicing.sketch import SlicedSketch
from skdpot.slicing.transport import sliced_wasserstein_distance

__all__ = ["DPSlicedFlowSampler"]

_MIN_PARTICLES = 1000
_MAX_PARTICLES = 10_000
_FEWEST_PARTICLES = 256  # in a flow: a handful would sit at the quantiles of their ranks alone
_SCORING_SLICES = 256


class DPSlicedFlowSampler(BaseEstimator):
    """Differentially private synthetic rows by a sliced Wasserstein flow.

    `fit` releases a `SlicedSketch` of the data, once, and moves particles until their
    projections have the sketched distributions. Sampling and scoring are post-processing:
    free and unlimited.

    Parameters
    ----------
    mechanism : {"sketch"}, default="sketch"
        How private data are touched. "sketch" releases noisy distribution functions of the
        projections along L directions.
    epsilon : float, default=1.0
        Privacy parameter of the whole fit; ``inf`` for no privacy.
    delta : float, default=1e-5
        Privacy parameter of the whole fit, in (0, 1).
    budget : PrivacyBudget, optional
        Shared budget that every fit is charged to.
    bounds : "private" or (low, high), default="private"
        What is known about the range of each feature: ``(low, high)``, scalars or arrays of
        shape (n_features,), is public and costs nothing; "private" spends 10 % of the squared
        mu on estimating location and scale.
    norm_bound : float, optional
        Public bound of the norm of every row, in place of `bounds`.
    n_slices : int or "auto", default="auto"
        Number of directions L of the sketch; "auto" is a public rule in n, d and epsilon.
    n_bins : int or "auto", default="auto"
        Number of bins along each direction.
    slices : {"axes+orthogonal", "orthogonal", "uniform"} or array of shape (n_slices, \
n_features), default="axes+orthogonal"
        How directions are drawn, or public directions.
    conditional : bool, default=False
        Make one table and one flow a class of `y`, so that `sample_labeled` works. Otherwise
        `y` is ignored.
    classes : array-like, optional
        The public set of classes; by default the labels found in `y`, which then count as
        public.
    n_particles : int, optional
        Number of particles kept after `fit`. By default the number of rows, at least 1000 and
        at most 10,000.
    n_steps : int, default=200
        Steps of the flow.
    step_size : float, default=1.0
        First step, as a share of the longest stable one, in (0, 1].
    diffusion : float, default=0.0
        Entropic regularisation λ in the units of the mapped features, squared. It smooths the
        sample and buys no privacy. Above 0 the steps are those of the Euler-Maruyama scheme;
        at 0 they have momentum.
    n_subslices : int, optional
        Directions a step; by default about 64, in whole orthogonal blocks.
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
        The release.
    particles_ : ndarray of shape (n_particles, n_features)
        Synthetic rows in the units of the data.
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
    Releases `sketch_` and nothing else: one event under replace-one, charged before the
    noise is drawn; see `SlicedSketch` for its sensitivity and for what counts as public.
    Protected are each row of X and, with ``conditional=True``, its label. Rows given to
    `score` are treated as public; a score on private rows is not private.

    See Also
    --------
    SlicedSketch : The release alone.

    References
    ----------
    Sketch: this package. Flow: Liutkus et al., "Sliced-Wasserstein flows", ICML 2019.

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

    _parameter_constraints: dict[str, list[Any]] = {
        **{
            name: SlicedSketch._parameter_constraints[name]
            for name in SlicedSketch._parameter_constraints
            if name != "noise"
        },
        "mechanism": [StrOptions({"sketch"})],
        "n_particles": [Interval(Integral, 1, None, closed="left"), None],
        "n_steps": [Interval(Integral, 1, None, closed="left")],
        "step_size": [Interval(Real, 0, 1, closed="right")],
        "diffusion": [Interval(Real, 0, None, closed="left")],
        "n_subslices": [Interval(Integral, 1, None, closed="left"), None],
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
        n_particles: int | None = None,
        n_steps: int = 200,
        step_size: float = 1.0,
        diffusion: float = 0.0,
        n_subslices: int | None = None,
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
        self.n_particles = n_particles
        self.n_steps = n_steps
        self.step_size = step_size
        self.diffusion = diffusion
        self.n_subslices = n_subslices
        self.device = device
        self.random_state = random_state
        self.verbose = verbose

    @fit_context(prefer_skip_nested_validation=True)
    def fit(self, X: Any, y: Any = None) -> Self:
        """Release the sketch of X and move particles to it.

        Parameters
        ----------
        X : array-like of shape (n_samples, n_features)
            Private rows, at least two.
        y : array-like of shape (n_samples,), optional
            Private class labels; only used with ``conditional=True``.

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

    def sample(self, n_samples: int = 1, random_state: Any = None) -> Any:
        """Draw synthetic rows; free of any privacy cost.

        Parameters
        ----------
        n_samples : int, default=1
            Number of rows. Up to the number of particles they are a random subset of
            `particles_`; for more, a new flow with as many particles is run.
        random_state : int, RandomState or None, default=None
            Randomness of this call, which protects nothing.

        Returns
        -------
        ndarray or DataFrame of shape (n_samples, n_features)
            Synthetic rows; a DataFrame when the sampler was fitted on one.

        Raises
        ------
        ValueError
            If `n_samples` is not a positive integer.
        """
        rows, _ = self._draw(n_samples, solver_generator(random_state))
        return self._like_input(rows)

    def sample_labeled(self, n_samples: int = 1, random_state: Any = None) -> tuple[Any, Any]:
        """Draw synthetic rows with their classes; free of any privacy cost.

        Parameters
        ----------
        n_samples : int, default=1
            Number of rows. Classes occur with their (noisy) frequency in the private data.
        random_state : int, RandomState or None, default=None
            Randomness of this call, which protects nothing.

        Returns
        -------
        X : ndarray or DataFrame of shape (n_samples, n_features)
            Synthetic rows.
        y : ndarray of shape (n_samples,)
            Their classes.

        Raises
        ------
        ValueError
            If the sampler was fitted without classes, or `n_samples` is not positive.
        """
        check_is_fitted(self)
        if not hasattr(self, "classes_"):
            raise ValueError(
                "sample_labeled needs a sampler that was fitted with conditional=True; "
                "this one knows no classes. Use sample."
            )
        rows, positions = self._draw(n_samples, solver_generator(random_state))
        return self._like_input(rows), self.classes_[positions]

    def score(self, X: Any, y: Any = None) -> float:
        """Negative sliced Wasserstein-2 distance from X to the particles.

        Parameters
        ----------
        X : array-like of shape (n_samples, n_features)
            **Public** rows: the score is computed from them without noise.
        y : object, optional
            Ignored.

        Returns
        -------
        float
            −SW₂ in the units of the data, along 256 or more fixed directions; higher is
            better.
        """
        check_is_fitted(self)
        rows = validate_rows(self, X, reset=False)
        n_features = rows.shape[1]
        n_slices = n_features * -(-_SCORING_SLICES // n_features)
        directions = orthogonal_directions(n_slices, n_features, np.random.default_rng(0))
        return -sliced_wasserstein_distance(rows, self.particles_, directions)

    def _release(self, streams: Streams, X: Any, y: Any) -> None:
        """Publish the sketch: the only step that sees private rows."""
        shared = {
            name: value
            for name, value in self.get_params(deep=False).items()
            if name in SlicedSketch._parameter_constraints and name != "random_state"
        }
        self.sketch_ = SlicedSketch(**shared)._release(type(self).__name__, streams, X, y)
        for name in ("n_features_in_", "feature_names_in_", "classes_", "privacy_spent_"):
            self.__dict__.pop(name, None)
            if hasattr(self.sketch_, name):
                setattr(self, name, getattr(self.sketch_, name))
        self._frame_out = isinstance(X, pd.DataFrame)

    def _generate(self, rng: np.random.Generator) -> None:
        """Run the flows of all classes and keep their particles."""
        total = self.n_particles or int(
            np.clip(self.sketch_.n_samples_, _MIN_PARTICLES, _MAX_PARTICLES)
        )
        shares = self.sketch_.class_counts_ / self.sketch_.class_counts_.sum()
        sizes = np.maximum(np.rint(total * shares).astype(int), 1)
        results = [self._flow(k, int(size), rng) for k, size in enumerate(sizes)]
        self.particles_ = np.concatenate([self._to_data(result.particles) for result in results])
        self.displacements_ = np.stack([result.displacements for result in results])
        self._positions = np.repeat(np.arange(len(sizes)), sizes)
        self.__dict__.pop("particle_labels_", None)
        if hasattr(self, "classes_"):
            self.particle_labels_ = self.classes_[self._positions]

    def _flow(self, position: int, n_particles: int, rng: np.random.Generator) -> FlowResult:
        """Run the flow of the class at `position`."""
        label = self.classes_[position] if hasattr(self, "classes_") else None
        progress = "flow" if label is None else f"flow of class {label}"
        result = sliced_flow(
            SlicedFlowProblem(self.sketch_.table(label), self.n_subslices),
            max(n_particles, _FEWEST_PARTICLES),
            self._schedule(),
            rng,
            device=resolve_device(self.device),
            progress=progress if self.verbose else None,
        )
        return replace(result, particles=result.particles[:n_particles])

    def _schedule(self) -> FlowSchedule:
        momentum = {"momentum": 0.0} if self.diffusion > 0 else {}
        return FlowSchedule(self.n_steps, self.step_size, self.diffusion, **momentum)

    def _draw(self, n_samples: int, rng: np.random.Generator) -> tuple[np.ndarray, np.ndarray]:
        """Return rows and the positions of their classes, in random order."""
        check_is_fitted(self)
        if not isinstance(n_samples, Integral) or n_samples < 1:
            raise ValueError(f"n_samples={n_samples!r} must be an integer of at least 1.")
        shares = self.sketch_.class_counts_ / self.sketch_.class_counts_.sum()
        sizes = rng.multinomial(n_samples, shares)
        parts = [self._draw_class(k, int(size), rng) for k, size in enumerate(sizes) if size]
        order = rng.permutation(n_samples)
        positions = np.repeat(np.arange(len(sizes)), sizes)
        return np.concatenate(parts)[order], positions[order]

    def _draw_class(self, position: int, size: int, rng: np.random.Generator) -> np.ndarray:
        particles = self.particles_[self._positions == position]
        if size > len(particles):
            return self._to_data(self._flow(position, size, rng).particles)
        drawn: np.ndarray = particles[rng.choice(len(particles), size, replace=False)]
        return drawn

    def _to_data(self, particles: np.ndarray) -> np.ndarray:
        """Map particles to the units of the data, inside the bounds that the rows were in."""
        bounds = self.sketch_.bounds_
        rows = bounds.from_ball(particles.astype(np.float64))
        return bounds.from_ball(bounds.to_ball(rows))

    def _like_input(self, rows: np.ndarray) -> Any:
        if not self._frame_out:
            return rows
        return pd.DataFrame(rows, columns=getattr(self, "feature_names_in_", None))
