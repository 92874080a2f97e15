"""The particles of a fitted sampler: free to move and to draw from."""

from collections.abc import Sequence
from dataclasses import replace
from typing import Any

import numpy as np

from skdpot._utils.devices import resolve_device
from skdpot._utils.rng import solver_generator
from skdpot._utils.validation import check_is_fitted
from skdpot.estimators._flow_trace import FlowTrace, distances_along, recorded_steps
from skdpot.estimators._mechanisms import MECHANISMS, FlowMechanism
from skdpot.estimators._synthetic_rows import SyntheticRows, check_n_samples
from skdpot.flows import FlowResult, sliced_flow
from skdpot.privacy.data_bounds import DataBounds

__all__ = ["FlowParticles", "apportion"]

_MIN_PARTICLES = 1000
_MAX_PARTICLES = 10_000
_FEWEST_PARTICLES = 256  # in a flow: a handful would sit at the quantiles of their ranks alone


class FlowParticles(SyntheticRows):
    """Flows towards what a sampler has published; a part of `DPSlicedFlowSampler`."""

    n_particles: int | None
    device: str
    verbose: int
    n_samples_: int
    bounds_: DataBounds
    _fitted_mechanism: str

    def trace(
        self, steps: Any = None, *, n_particles: int = 1000, random_state: Any = None
    ) -> FlowTrace:
        """Run the flow once more and tell where its particles were; free of any privacy cost.

        Parameters
        ----------
        steps : sequence of int, optional
            Numbers of steps after which the particles are looked at, 0 for the start. By default
            two dozen of them, close together at first and the last one at the end.
        n_particles : int, default=1000
            Number of particles, of all classes together.
        random_state : int, RandomState or None, default=None
            Randomness of this call, which protects nothing.

        Returns
        -------
        FlowTrace
            Steps, particles, their classes and their distances to the sketch.

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
        n_steps = self._published.schedule(self).n_steps
        wanted, total = recorded_steps(steps, n_steps), check_n_samples(n_particles, "n_particles")
        sizes = apportion(total, self._published.class_shares(self))
        rng = solver_generator(random_state)
        results = [self._flow(k, size, rng, wanted) for k, size in enumerate(sizes.tolist())]
        distances = [distances_along(result, wanted) for result in results]
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
            None if None in distances else np.array(distances),
            classes,
        )

    def _generate(self, rng: np.random.Generator) -> None:
        """Run the flows of all classes and keep their particles."""
        total = self.n_particles or int(np.clip(self.n_samples_, _MIN_PARTICLES, _MAX_PARTICLES))
        sizes = apportion(total, self._published.class_shares(self))
        results = [self._flow(k, size, rng) for k, size in enumerate(sizes.tolist())]
        self.displacements_ = np.stack([result.displacements for result in results])
        self._positions = np.repeat(np.arange(len(sizes)), sizes)
        if hasattr(self, "classes_"):
            self.particle_labels_ = self.classes_[self._positions]
        # Last, because it tells that the flow is done.
        self.particles_ = np.concatenate([self._to_data(result.particles) for result in results])

    def _flow(
        self,
        position: int,
        n_particles: int,
        rng: np.random.Generator,
        record_at: Sequence[int] = (),
    ) -> FlowResult:
        """Run the flow of the class at `position`."""
        label = self.classes_[position] if hasattr(self, "classes_") else None
        progress = "flow" if label is None else f"flow of class {label}"
        result = sliced_flow(
            self._published.problem(self, label),
            max(n_particles, _FEWEST_PARTICLES),
            self._published.schedule(self),
            rng,
            device=resolve_device(self.device),
            progress=progress if self.verbose else None,
            record_at=record_at,
        )
        return replace(result, particles=result.particles[:n_particles])

    @property
    def _published(self) -> FlowMechanism:
        """The mechanism of the release, whatever the parameter has become since."""
        return MECHANISMS[self._fitted_mechanism]

    def _check_generated(self, rng: np.random.Generator) -> None:
        """Run the flow if there is a release but no particles: `fit` was interrupted."""
        if not hasattr(self, "particles_"):
            self._generate(rng)

    def _scored_rows(self) -> np.ndarray:
        self._check_generated(solver_generator(None))
        return self.particles_

    def _draw(self, n_samples: int, rng: np.random.Generator) -> tuple[np.ndarray, np.ndarray]:
        """Return rows and the positions of their classes, in random order.

        Up to the number of particles they are a random subset of them; for more, a new flow
        with as many particles is run.
        """
        self._check_generated(rng)
        sizes = rng.multinomial(n_samples, self._published.class_shares(self))
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
        rows = self.bounds_.from_ball(particles.astype(np.float64))
        return self.bounds_.from_ball(self.bounds_.to_ball(rows))


def apportion(total: int, shares: np.ndarray) -> np.ndarray:
    """Split a number by largest remainders.

    Parameters
    ----------
    total : int
        What the parts add up to.
    shares : ndarray of shape (n_classes,)
        Non-negative, summing to one.

    Returns
    -------
    ndarray of shape (n_classes,), int
        Within one of ``total * shares``, but where there are enough no part of a positive share
        is empty: then the largest ones give.
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
