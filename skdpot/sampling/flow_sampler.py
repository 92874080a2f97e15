"""The sampler with particles: a flow moves them to the released distribution.

`fit` and `sample` stand in `skdpot.sampling.synthetic_rows`. They call `_make`, which runs the flow
of each class, and `_draw`, which draws from the particles.
"""

from collections.abc import Iterable, Sequence
from dataclasses import KW_ONLY, dataclass, replace
from numbers import Integral, Real
from typing import Any

import numpy as np

from skdpot._utils.arguments import check_count
from skdpot._utils.devices import resolve_device
from skdpot._utils.parameters import Interval, StrOptions, check_is_fitted
from skdpot._utils.streams import solver_generator
from skdpot.base import MechanismResult
from skdpot.ot.flow import FlowResult, FlowSchedule, sliced_flow
from skdpot.ot.flow_problems import SlicedFlowProblem
from skdpot.sampling.moments import Moments
from skdpot.sampling.noisy_rows import Presample, Resample
from skdpot.sampling.row_mechanism import FlowMechanism
from skdpot.sampling.sketch import Sketch
from skdpot.sampling.synthetic_rows import SyntheticRows

MECHANISMS: dict[str, type[FlowMechanism]] = {
    "sketch": Sketch,
    "moments": Moments,
    "resample": Resample,
    "presample": Presample,
    "DPSWflow-r": Resample,  # names of the paper
    "DPSWflow": Presample,
}
_RELEASED = ("sketch_", "moments_", "releases_")  # attributes that hold a released value
_MIN_PARTICLES, _MAX_PARTICLES = 1000, 10_000  # of a fit, by default
_FEWEST_PARTICLES = 256  # in a flow: a few particles would end at the quantiles of their ranks
_N_STATES = 24  # of a trace, by default: enough for the curve of the distance


@dataclass(frozen=True, eq=False)
class FlowTrace:
    """The states of a flow, from the start to its end.

    Privacy
    -------
    Post-processing of the release: states may be shown like synthetic rows.
    """

    steps: np.ndarray
    particles: np.ndarray
    labels: np.ndarray | None
    distances: np.ndarray | None
    classes: np.ndarray | None


@dataclass(eq=False, repr=False)
class DPSlicedFlowSampler(SyntheticRows):
    """Differentially private synthetic rows by a sliced Wasserstein flow.

    `fit` releases noisy projections of the data and moves particles until their projections have
    the same distributions. Sampling and scoring are post-processing: free and unlimited. By default
    the release is a `SlicedSketch`. The two mechanisms of the flow paper, which add noise to every
    row, are available for comparison; they need far more noise.

    Parameters
    ----------
    mechanism : {"sketch", "moments", "resample", "presample"} or Mechanism, default="sketch"
        How private data are read: an object such as ``Sketch(n_bins=32)``, or a name, which stands
        for the object with default parameters. `Sketch` releases noisy distribution functions of
        the projections along L directions, and `Moments` sizes, means and covariances of classes,
        for many features. `Resample` (Algorithm 1 of the paper, also "DPSWflow-r") releases the
        noisy projections of a new batch of rows along new directions in each step; `Presample`
        (Algorithm 2, also "DPSWflow") those of all rows along L directions, once.
    epsilon : float, default=1.0
        Privacy parameter of the whole fit; ``inf`` for no privacy. Ignored when the mechanism is
        given its noise (``sigma``).
    delta : float, default=1e-5
        Privacy parameter of the whole fit, in (0, 1).
    budget : PrivacyBudget, optional
        Shared budget that every fit is charged to.
    bounds : "private" or (low, high), default="private"
        Range of each feature: ``(low, high)``, scalars or arrays of shape (n_features,), is public
        and free; "private" spends at most 25 % of the squared mu on estimating location and scale.
    norm_bound : float, optional
        Public bound of the norm of every row, instead of `bounds`.
    conditional : bool, default=False
        Make one table and one flow per class of `y`, as `sample_labeled` needs. Otherwise `y` is
        ignored. Needs a `Sketch`, which declares whether labels are public, or `Moments`.
    n_particles : int, optional
        Number of particles kept after `fit`. By default the number of rows, at least 1000 and at
        most 10,000.
    n_steps : int, default=200
        Steps of the flow. With `Resample` each step is a release that is charged.
    step_size : float or "auto", default="auto"
        First step, as a share of the longest stable one, in (0, 1]. "auto" is 1 for a sketch. For
        noisy rows it is 0.375 at most (as in the code of the paper, h = 3 where d = 8), and less
        where the noise of the steps would scatter the particles; steps then fall in the second
        half. A number makes the equal steps of the paper.
    diffusion : float, default=0.0
        Entropic regularisation λ in the units of the mapped features, squared, at most 1e30. It
        smooths the sample and adds no privacy. Above 0 the flow takes Euler-Maruyama steps; at 0
        the steps towards a sketch have momentum, and end inside the bounds.
    device : {"auto", "cpu", "cuda", "cuda:0", ...} or torch.device, default="auto"
        Where the flow runs; "auto" uses a GPU if there is one.
    random_state : int, RandomState or None, default=None
        Seed of everything, the noise included. For tests only: it lets anyone remove the noise.
    verbose : int, default=0
        1 shows a progress bar.

    Attributes
    ----------
    mechanism_ : Mechanism
        The mechanism of the fit, a copy.
    sketch_ : SlicedSketch
        The release; only with a `Sketch`.
    moments_ : NoisyMoments
        The release; only with `Moments`.
    releases_ : SmoothedProjections
        The release; only with `Resample` (one batch per step) or `Presample`.
    bounds_ : DataBounds
        Map from the data to the ball in which rows are projected and particles move.
    n_samples_ : int
        Number of rows, or of persons with `groups`.
    particles_ : ndarray of shape (n_particles, n_features)
        Synthetic rows in the units of the data, inside the bounds; with ``diffusion > 0``, or noisy
        rows and a number as `step_size`, they are where the process leaves them, which may be
        outside. `sample` draws from them without replacement, and runs a new flow for more.
        Missing after a fit that was interrupted in its flow: the first `sample` or `score` then
        runs it.
    particle_labels_ : ndarray of shape (n_particles,)
        Their classes; only with ``conditional=True``.
    displacements_ : ndarray of shape (n_classes, n_steps)
        Root mean square displacement of the particles per step, in mapped units.
    classes_ : ndarray of shape (n_classes,)
        Classes; only with ``conditional=True``.
    privacy_spent_ : PrivacySpent
        Cost of the fit, and its assumptions.
    reliability_ : Reliability
        The error of the distribution of each feature (or class) due to noise, beside that of a
        uniform one in the bounds (or of all classes). A fit warns of what the noise hides.
    n_features_in_ : int
        Number of features.
    feature_names_in_ : ndarray of shape (n_features_in_,)
        Names of features, when X has names that are all strings.

    Privacy
    -------
    Releases `sketch_`, `moments_` or `releases_` and nothing else: one event under replace-one for
    all steps together, charged before noise is drawn. For sensitivity and public facts see
    `SlicedSketch` and `skdpot.mechanisms.Moments`, and for rows
    `skdpot.sampling.row_releases.projection_sensitivity`; neither diffusion nor the solver's
    own noise counts. Each row of X is protected and, with ``conditional=True``, its label unless
    labels are public. Rows given to `score` are treated as public; a score on private rows is not
    private.

    See Also
    --------
    SlicedSketch : The default release alone.
    skdpot.mechanisms : The mechanisms and their parameters.

    References
    ----------
    Sketch: this package. Flow: Liutkus et al., "Sliced-Wasserstein flows", ICML 2019. "resample"
    and "presample": "Differentially private gradient flow based on the sliced Wasserstein
    distance", Algorithms 1 and 2, with exact sensitivities and accounting.

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

    _: KW_ONLY
    n_particles: int | None = None
    n_steps: int = 200
    step_size: float | str = "auto"
    diffusion: float = 0.0

    _mechanisms = MECHANISMS
    _made_last = "particles_"
    _parameter_constraints = SyntheticRows._parameter_constraints | {
        "mechanism": [StrOptions(set(MECHANISMS)), FlowMechanism],
        "n_particles": [Interval(Integral, 1, None, closed="left"), None],
        "n_steps": [Interval(Integral, 1, None, closed="left")],
        "step_size": [StrOptions({"auto"}), Interval(Real, 0, 1, closed="right")],
        "diffusion": [Interval(Real, 0, 1e30, closed="both")],
    }

    def trace(
        self, steps: Any = None, *, n_particles: int = 1000, random_state: Any = None
    ) -> FlowTrace:
        """Run the flow again and return the states of its particles; free of any privacy cost.

        Parameters
        ----------
        steps : sequence of int, optional
            Steps after which the particles are recorded, 0 for the start. By default about two
            dozen, dense at first and with the last one at the end.
        n_particles : int, default=1000
            Number of particles, of all classes together.
        random_state : int, RandomState or None, default=None
            Seed; does not affect privacy.

        Returns
        -------
        FlowTrace
            `steps`, `particles` (n_steps, n_particles, n_features), their `labels`, `distances`
            (n_classes, n_steps) to the sketch, and `classes`; None where there are none.

        Raises
        ------
        ValueError
            If `steps` or `n_particles` is out of range.

        See Also
        --------
        skdpot.metrics.FlowDisplay : Draws it.

        Examples
        --------
        >>> import numpy as np
        >>> from skdpot import DPSlicedFlowSampler
        >>> X = np.random.default_rng(0).uniform(-1, 1, size=(1000, 2))
        >>> sampler = DPSlicedFlowSampler(bounds=(-1, 1), n_steps=100).fit(X)
        >>> trace = sampler.trace([0, 10, 100])
        >>> trace.particles.shape
        (3, 1000, 2)
        """
        check_is_fitted(self)
        wanted = _recorded_steps(steps, self._schedule(self.mechanism_, self._released).n_steps)
        sizes = apportion(check_count(n_particles, "n_particles"), self._class_shares)
        rng = solver_generator(random_state)
        results = [self._flow(k, size, rng, wanted) for k, size in enumerate(sizes.tolist())]
        distances = [
            [result.problem.distance(result.recorded[step]) for step in wanted]
            for result in results
            if isinstance(result.problem, SlicedFlowProblem)
        ]
        classes = getattr(self, "classes_", None)
        states = [
            np.concatenate(
                [
                    self.bounds_.from_ball(result.recorded[step][:size].astype(np.float64))
                    for result, size in zip(results, sizes, strict=True)
                ]
            )
            for step in wanted
        ]
        return FlowTrace(
            np.array(wanted),
            np.stack(states),
            None if classes is None else np.repeat(classes, sizes),
            np.array(distances) if distances else None,
            classes,
        )

    def _store(self, mechanism: Any, release: MechanismResult, X: Any) -> None:
        """Keep the release, and the errors of the flow."""
        names = getattr(self, "feature_names_in_", None)
        schedule = self._schedule(mechanism, release.value)
        reliability = mechanism.reliability_of_flow(release, schedule, names)
        super()._store(mechanism, replace(release, reliability=reliability), X)

    def _make(self, rng: np.random.Generator) -> None:
        """Run the flow of each class, and keep its particles."""
        total = self.n_particles or int(np.clip(self.n_samples_, _MIN_PARTICLES, _MAX_PARTICLES))
        sizes = apportion(total, self._class_shares)
        results = [self._flow(k, size, rng) for k, size in enumerate(sizes.tolist())]
        self.displacements_ = np.stack([result.displacements for result in results])
        self._positions = np.repeat(np.arange(len(sizes)), sizes)
        if hasattr(self, "classes_"):
            self.particle_labels_ = self.classes_[self._positions]
        self.particles_ = np.concatenate([self._to_data(result.particles) for result in results])

    def _flow(
        self,
        position: int,
        n_particles: int,
        rng: np.random.Generator,
        record_at: Sequence[int] = (),
    ) -> FlowResult:
        """Run the flow of one class."""
        label = self.classes_[position] if hasattr(self, "classes_") else None
        progress = "flow" if label is None else f"flow of class {label}"
        result = sliced_flow(
            self.mechanism_.problem(self._released, radius=self.bounds_.radius, label=label),
            max(n_particles, _FEWEST_PARTICLES),
            self._schedule(self.mechanism_, self._released),
            rng,
            device=resolve_device(self.device),
            progress=progress if self.verbose else None,
            record_at=record_at,
        )
        return replace(result, particles=result.particles[:n_particles])

    @property
    def _released(self) -> Any:
        """The value that the mechanism has released; None before a fit."""
        values = (getattr(self, name) for name in _RELEASED if hasattr(self, name))
        return next(values, None)

    def _schedule(self, mechanism: Any, released: Any) -> FlowSchedule:
        """Return the steps of the flow."""
        schedule: FlowSchedule = mechanism.schedule(
            released,
            n_steps=self.n_steps,
            step_size=self.step_size,
            diffusion=self.diffusion,
        )
        return schedule

    def _scored_rows(self) -> np.ndarray:
        return self.particles_

    def _draw(self, n_samples: int, rng: np.random.Generator) -> tuple[np.ndarray, np.ndarray]:
        """Return rows and the positions of their classes, in random order."""
        sizes = rng.multinomial(n_samples, self._class_shares)
        parts = [self._draw_class(k, int(size), rng) for k, size in enumerate(sizes) if size]
        order = rng.permutation(n_samples)
        positions = np.repeat(np.arange(len(sizes)), sizes)
        return np.concatenate(parts)[order], positions[order]

    def _draw_class(self, position: int, size: int, rng: np.random.Generator) -> np.ndarray:
        """Draw particles of a class without replacement, or run a new flow for more."""
        particles = self.particles_[self._positions == position]
        if size > len(particles):
            return self._to_data(self._flow(position, size, rng).particles)
        return particles[rng.choice(len(particles), size, replace=False)]

    def _to_data(self, particles: np.ndarray) -> np.ndarray:
        """Map particles to the units of the data, and into the bounds unless they are a process."""
        rows = self.bounds_.from_ball(particles.astype(np.float64))
        if self._schedule(self.mechanism_, self._released).is_process:
            return rows
        return self.bounds_.from_ball(self.bounds_.to_ball(rows))


def apportion(total: int, shares: np.ndarray) -> np.ndarray:
    """Split a number by largest remainders.

    Each part differs by less than one from ``total * shares``, except that the largest parts are
    reduced so that no part of positive share is empty, if the number is large enough.
    """
    quotas = total * shares
    sizes = np.floor(quotas).astype(int)
    largest = np.argsort(sizes - quotas, kind="stable")
    sizes[largest[: total - sizes.sum()]] += 1
    missing = np.flatnonzero((sizes == 0) & (shares > 0))
    for position in missing if total >= np.count_nonzero(shares > 0) else ():
        sizes[np.argmax(sizes)] -= 1
        sizes[position] += 1
    return sizes


def _recorded_steps(steps: Any, n_steps: int) -> list[int]:
    """Return increasing numbers of steps, by default dense at first, where a flow is fast."""
    if steps is None:
        spaced = np.geomspace(1, n_steps, min(_N_STATES, n_steps)).round().astype(int)
        return [0, *np.unique(spaced).tolist()]
    wanted = list(steps) if isinstance(steps, Iterable) else [steps]
    whole = [isinstance(step, Integral) and not isinstance(step, bool) for step in wanted]
    if not wanted or not all(whole) or not all(0 <= step <= n_steps for step in wanted):
        raise ValueError(f"steps must be integers from 0, the start, to {n_steps}, the end.")
    return sorted({int(step) for step in wanted})
