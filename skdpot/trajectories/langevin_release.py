r"""Mean-field Langevin dynamics with privacy: noisy gradient descent of particles at all times.

The objective, over particles at every time, is the data fit (`clipped_fit_gradient`) plus the cost
of joining neighbouring times by a diffusion,

.. math:: \sum_i \mathrm{Fit}_i(\mu_i) +
          \sum_i \frac{1}{\Delta t_i} T_{\tau \Delta t_i}(\mu_i, \mu_{i+1}),

with the entropic transport cost :math:`T_\epsilon`. A step moves the particles
:math:`X^{(i)}` of each time :math:`i` by

.. math:: X^{(i)} \leftarrow X^{(i)} - \eta \left[ \frac{1}{\rho N_i}
          \left( \sum_{y \in \text{batch}} \mathrm{clip}_C\, G(y) + \mathcal N(0, (\kappa C)^2)
          \right) + \frac{\nabla \varphi_i}{\Delta t_i}
          + \frac{\nabla \psi_{i-1}}{\Delta t_{i-1}} \right].

The potentials :math:`\varphi_i, \psi_{i-1}` are functions of particles that were released before,
and need no clipping. The batch is a Poisson sample, and the divisor is its *expected* size, because
the real size is secret. The noise takes the place of the Brownian motion of Langevin dynamics,
which adds the entropy :math:`\tau H` to the objective.

Why the releases of one time are the whole charge
-------------------------------------------------
Records are :math:`(x, t)` with public time stamps. Neighbours replace the :math:`x` of one record
and keep its :math:`t`, so that they differ in the records of one time :math:`i` only. If the times
were processed independently, this would be parallel composition. They are not: the particles of
time :math:`i` are pulled towards those of the neighbouring times, which depend on other records.
The claim holds nevertheless:

* The algorithm is a sequence of releases, one per time and step. The distribution of each is
  determined by the records of *its* time and by earlier releases.
* Let two neighbours differ in time :math:`i`. A release of another time has the same conditional
  distribution, given the past, under both. It is a random function of the past that does not
  depend on which neighbour it serves: post-processing.
* A release of time :math:`i` is, given the past, a Gaussian sum of clipped vectors over a fresh
  Poisson sample, with particles, noise and rate that the past determines (noise and rate are even
  fixed beforehand).
* The joint law of all releases, under the two neighbours, is therefore an adaptive composition of
  the releases of time :math:`i` alone, interleaved with post-processing. Its loss is bounded by
  the composition of the bounds of each.

The bounds are the same for every time, since the rate, the noise and the number of steps are. The
steps of one time are therefore the event. They are preceded by the warm start, for which the same
holds, and by private bounds, which read all records together.

A person with up to k rows, all at different times, changes k of the times:
`skdpot.privacy.events` proves that the steps then count k times. Bounds pool all times, so that
their sensitivity is k times larger.

References
----------
Chizat, Zhang, Heitz and Schiebinger, "Trajectory inference via mean-field Langevin in path
space", NeurIPS 2022. The private version clips each record's gradient as one matrix and divides by
the expected batch.
"""

import math
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass

import numpy as np
import numpy.typing as npt
from tqdm.auto import tqdm

from skdpot._utils.arrays import BoolArray, FloatArray, IntArray
from skdpot._utils.streams import SecretStream
from skdpot.privacy.batches import poisson_batches
from skdpot.privacy.calibration import calibrate
from skdpot.privacy.events import ComposedEvent, Event, NonPrivateEvent
from skdpot.privacy.noise import LatticeNoise, noise_for_sums, noisy_sum
from skdpot.privacy.sampling import SampledGaussianEvent
from skdpot.privacy.targets import PrivacyTarget
from skdpot.release.bounds import DataBounds
from skdpot.release.gate import pass_gate
from skdpot.release.private_bounds import BoundsPlan
from skdpot.release.releases import Part, Records, Release, Vectors
from skdpot.trajectories.fit_gradient import (
    averaged_over_neighbours,
    clipped_fit_gradient,
    clipped_pulls,
    likelihood_misfit,
)
from skdpot.trajectories.mechanism import MovedParticles
from skdpot.trajectories.schedule import Phase
from skdpot.trajectories.time_coupling import PairGradients, time_weights
from skdpot.trajectories.warm_start_release import WarmStartPlan

# The speed of the progress bar would reveal the sizes of the secret batches.
_BAR_WITHOUT_SPEED = "{l_bar}{bar}| {n_fmt}/{total_fmt}"


@dataclass(frozen=True, kw_only=True)
class LangevinPlan:
    """The public parameters of private mean-field Langevin dynamics."""

    phases: tuple[Phase, ...]
    noises: tuple[LatticeNoise | None, ...]
    clip: float
    sampling_rate: float
    bounds: DataBounds | BoundsPlan
    warm: WarmStartPlan | None
    event: Event
    n_samples: int

    @property
    def sigma(self) -> tuple[float, ...]:
        """Standard deviation of the noise of each phase; 0 without privacy."""
        return tuple(0.0 if noise is None else noise.sigma for noise in self.noises)

    @property
    def protects_rows(self) -> bool:
        """Whether the fit is private: every phase has noise."""
        return not isinstance(self.event, NonPrivateEvent)

    @property
    def sensitivity(self) -> tuple[float, ...]:
        """L2 sensitivity of a sum of each phase to a replaced record."""
        return tuple(2.0 * self.clip if n is None else n.sensitivity for n in self.noises)

    @property
    def noise_multipliers(self) -> tuple[float, ...]:
        """Noise of each phase in units of the *clipping norm* (half of the sensitivity)."""
        return tuple(sigma / self.clip for sigma in self.sigma)

    def mean_deviations(self, counts: IntArray, n_particles: int) -> FloatArray:
        """Return the deviations (T,) of the noise in the mean particle of each time, per feature.

        The steps add up. Nothing is subtracted for the pull of the rows, which takes off a part.
        """
        steps = [phase.step_size * math.sqrt(phase.n_iter) for phase in self.phases]
        of_steps = math.hypot(*np.multiply(steps, self.sigma)) / self.sampling_rate
        of_start = 0.0
        if self.warm is not None and self.warm.noise is not None:
            of_start = self.warm.noise.sigma * math.sqrt(self.warm.n_clusters)
        return np.hypot(of_steps / math.sqrt(n_particles), of_start) / counts

    @property
    def n_iter(self) -> int:
        """Number of iterations of all phases."""
        return sum(phase.n_iter for phase in self.phases)


def plan_langevin(
    target: PrivacyTarget,
    phases: Iterable[Phase],
    *,
    clip: float,
    dim: int,
    sampling_rate: float,
    bounds: DataBounds | BoundsPlan,
    n_samples: int,
    noise_multiplier: float | Sequence[float] | None = None,
    warm: WarmStartPlan | None = None,
    group_size: int = 1,
) -> LangevinPlan:
    """Find the least noise that meets a target, or account for declared noise.

    The noise has standard deviation ``noise_multiplier * clip``; a sum has sensitivity ``2 * clip``
    (`clipped_fit_gradient`), and slightly more on its lattice. The event is that of one time.
    """
    phases = tuple(phases)
    before = _events_before_steps(bounds, warm)

    def noise_of(multiplier: float) -> LatticeNoise:
        return noise_for_sums(multiplier * clip, 2.0 * clip, dim)

    def whole(multipliers: Sequence[float]) -> Event:
        steps = (
            SampledGaussianEvent(
                sampling="poisson",
                sampling_rate=sampling_rate,
                n_steps=phase.n_iter,
                clipped_sum=True,
                label=f"Gradients, phase {i}" if len(phases) > 1 else "Gradients",
                **vars(noise_of(multiplier)),
            ).grouped(group_size)
            for i, (phase, multiplier) in enumerate(zip(phases, multipliers, strict=True), start=1)
        )
        return ComposedEvent(events=(*before, *steps))

    declared = None if noise_multiplier is None else _multipliers(noise_multiplier, len(phases))
    event: Event = NonPrivateEvent()
    if math.isinf(target.epsilon):
        if declared is not None and any(declared):
            raise ValueError(
                "`noise_multiplier` is above 0 although epsilon=inf means no noise. Use "
                "noise_multiplier=None, or a finite epsilon for private bounds and a warm start."
            )
        declared = (0.0,) * len(phases)
    if declared is None:
        event = calibrate(target, lambda multiplier: whole((multiplier,) * len(phases)))
        noises: tuple[LatticeNoise | None, ...] = tuple(
            LatticeNoise(sigma=step.sigma, sensitivity=step.sensitivity, lattice=step.lattice)
            for step in event.phases[-len(phases) :]
        )
    else:
        noises = tuple(noise_of(multiplier) if multiplier > 0 else None for multiplier in declared)
        if all(declared):
            event = whole(declared)
    return LangevinPlan(
        phases=phases,
        noises=noises,
        clip=float(clip),
        sampling_rate=float(sampling_rate),
        bounds=bounds,
        warm=warm,
        event=event,
        n_samples=n_samples,
    )


def _events_before_steps(
    bounds: DataBounds | BoundsPlan, warm: WarmStartPlan | None
) -> list[Event]:
    """Return the events of private bounds and of a warm start, as far as there are any."""
    private = [bounds.event] if isinstance(bounds, BoundsPlan) else []
    return private if warm is None else [*private, warm.event]


def _multipliers(declared: float | Sequence[float], n_phases: int) -> tuple[float, ...]:
    """Return one noise multiplier per phase."""
    listed = tuple(declared) if isinstance(declared, Iterable) else (declared,) * n_phases
    valid = (not isinstance(k, bool) and math.isfinite(k) and k >= 0 for k in listed)
    if len(listed) != n_phases or not all(valid):
        raise ValueError(
            "`noise_multiplier` must be finite and >= 0: one number, or one per phase of schedule "
            f"({n_phases}); got {declared!r}."
        )
    return tuple(map(float, listed))


def mean_field_langevin(
    rows: Sequence[npt.NDArray[np.floating]],
    start: npt.NDArray[np.floating],
    spacings: npt.ArrayLike,
    plan: LangevinPlan,
    *,
    bandwidth: float,
    regularization: float,
    secret: SecretStream,
    coupling: PairGradients,
    steered: BoolArray | None = None,
    smoothing: float | None = None,
    radius: float | None = None,
    wander: np.random.Generator | None = None,
    progress: str | None = None,
) -> MovedParticles:
    """Move particles by noisy gradients of the data fit. Charge ``plan.event`` first.

    Releases the noisy sums of every iteration, and thereby the particles after it. The numbers of
    rows per time are public. The sums move only the times that are `steered` (T,); the others
    follow their neighbours. With `wander` each step also adds the variance of Langevin dynamics
    that the noise lacks. Both are post-processing.
    """
    particles = np.array(start, dtype=np.float64)
    gaps = np.asarray(spacings, dtype=np.float64)
    data_fit = _DataFit(rows, plan, time_weights(gaps) / regularization, bandwidth)
    batches = [
        poisson_batches(len(of_time), plan.sampling_rate, plan.n_iter, secret) for of_time in rows
    ]
    displacements = np.empty(plan.n_iter)
    phases = zip(plan.phases, plan.noises, strict=True)
    iterations = [pair for pair in phases for _ in range(pair[0].n_iter)]
    bar = tqdm(iterations, desc=progress, disable=progress is None, bar_format=_BAR_WITHOUT_SPEED)
    for number, (phase, noise) in enumerate(bar):
        chosen = [next(of_time) for of_time in batches]
        gradient = data_fit.release_gradient(particles, chosen, noise, secret)
        if steered is not None:
            gradient[~steered] = 0.0
        if smoothing is not None:
            gradient = averaged_over_neighbours(gradient, particles, smoothing)
        if len(gaps):
            forward, backward = coupling(particles, gaps, phase.diffusivity)
            gradient[:-1] += forward / gaps[:, None, None]
            gradient[1:] += backward / gaps[:, None, None]
        step = phase.step_size * gradient
        if wander is not None:
            # Averaged noise counts as none.
            kept = noise is not None and smoothing is None
            deviations = data_fit.missing_deviations(phase, noise if kept else None)
            step += deviations[:, None, None] * wander.standard_normal(step.shape)
        particles -= step
        if radius is not None:
            norms = np.linalg.norm(particles, axis=-1, keepdims=True)
            particles *= np.minimum(1.0, radius / np.maximum(norms, radius))
        displacements[number] = math.sqrt(np.einsum("tkd,tkd->", step, step) / step[..., 0].size)
    return MovedParticles(particles, displacements, data_fit.public_value(particles))


@dataclass(frozen=True, eq=False)
class _DataFit:
    """The rows of each time with their weights (T,), and the releases of their gradients."""

    rows: Sequence[npt.NDArray[np.floating]]
    plan: LangevinPlan
    weights: FloatArray
    bandwidth: float

    @property
    def expected(self) -> FloatArray:
        """Expected size of the batch of each time; the real one is secret."""
        return self.plan.sampling_rate * np.array([len(of_time) for of_time in self.rows])

    def release_gradient(
        self,
        particles: FloatArray,
        chosen: Sequence[npt.NDArray[np.intp]],
        noise: LatticeNoise | None,
        secret: SecretStream,
    ) -> FloatArray:
        """Release the noisy mean gradient of the batches of all times, (T, m, d)."""
        clipping = {"bandwidth": self.bandwidth, "clip": self.plan.clip}
        sums = np.empty_like(particles)
        for i, (of_time, batch) in enumerate(zip(self.rows, chosen, strict=True)):
            sums[i] = clipped_fit_gradient(
                particles[i], of_time[batch], weight=float(self.weights[i]), **clipping
            )
        if noise is not None:
            sums = noisy_sum(sums, noise, secret)
        facts = {"rate": self.plan.sampling_rate, "expected": self.expected}
        return pass_gate(
            Release(
                "fit_gradients",
                sums / self.expected[:, None, None],
                {"particles": particles, "weights": self.weights, **facts, **clipping},
                event=self.plan.event,
                linear=_gradients_of_rows,
                **({} if noise is None else vars(noise)),  # of the sums
            )
        )

    def missing_deviations(self, phase: Phase, noise: LatticeNoise | None) -> FloatArray:
        """Return the standard deviations, for each time, that a step lacks of 2ητ; (T,)."""
        of_noise = 0.0 if noise is None else noise.sigma / self.expected
        missing = 2 * phase.step_size * phase.diffusivity - (phase.step_size * of_noise) ** 2
        return np.broadcast_to(np.sqrt(np.maximum(missing, 0.0)), len(self.rows))

    def public_value(self, particles: FloatArray) -> float | None:
        """Return the data fit at final particles, or None if the plan protects the rows."""
        if self.plan.protects_rows:
            return None
        return likelihood_misfit(particles, self.rows, self.weights, self.bandwidth)


def _gradients_of_rows(release: Release, records: Records, shares: FloatArray) -> Iterator[Part]:
    """Yield the terms of the rows of each time in the sum of clipped gradients."""
    rows, times = records
    facts = release.facts
    for i, (particles, expected) in enumerate(
        zip(facts["particles"], facts["expected"], strict=True)
    ):
        members = np.flatnonzero(times == i)
        pulls = clipped_pulls(
            particles,
            rows[members],
            bandwidth=facts["bandwidth"],
            weight=float(facts["weights"][i]),
            clip=facts["clip"],
        )
        yield Part(
            value=release.value[i].ravel() * expected,
            sigma=float(np.max(release.sigma)),
            rows=Vectors(pulls),
            members=members,
            rates=None if facts["rate"] == 1.0 else np.full(len(members), facts["rate"]),
        )
