r"""Mean-field Langevin dynamics with privacy: noisy gradient descent of particles at all times.

What is minimised, over particles at every time, is the data fit (`skdpot.trajectories.data_fit`)
plus the cost of joining neighbouring times by a diffusion,

.. math:: \sum_i \mathrm{Fit}_i(\mu_i) +
          \sum_i \frac{1}{\Delta t_i} T_{\tau \Delta t_i}(\mu_i, \mu_{i+1}),

with the entropic transport cost :math:`T_\epsilon` between neighbours. A step moves the particles
:math:`X^{(i)}` of each time :math:`i` by

.. math:: X^{(i)} \leftarrow X^{(i)} - \eta \left[ \frac{1}{\rho N_i}
          \left( \sum_{y \in \text{batch}} \mathrm{clip}_C\, G(y) + \mathcal N(0, (\kappa C)^2)
          \right) + \frac{\nabla \varphi_i}{\Delta t_i}
          + \frac{\nabla \psi_{i-1}}{\Delta t_{i-1}} \right].

The potentials :math:`\varphi_i, \psi_{i-1}` are functions of particles that were released before,
and need no clipping. The batch is a Poisson sample, and the divisor is its *expected* size: the
real one is a secret. The noise stands in for the Brownian motion of Langevin dynamics.
"""

import math
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from typing import Any, TypeAlias

import numpy as np
import numpy.typing as npt
from tqdm.auto import tqdm

from skdpot._utils.rng import SecretStream
from skdpot.privacy.noise import LatticeNoise, noisy_sum
from skdpot.privacy.recording import released
from skdpot.privacy.subsampling import poisson_batches
from skdpot.trajectories.data_fit import clipped_fit_gradient
from skdpot.trajectories.langevin_plan import LangevinPhase, LangevinPlan
from skdpot.trajectories.neighbour_average import averaged_over_neighbours

__all__ = [
    "Coupling",
    "LangevinResult",
    "check_steps",
    "longest_stable_step",
    "mean_field_langevin",
    "time_weights",
]

FloatArray = npt.NDArray[np.float64]

Coupling: TypeAlias = Callable[[FloatArray, FloatArray, float], tuple[FloatArray, FloatArray]]

# A bar with a speed would tell how large the secret batches are.
_BAR_WITHOUT_SPEED = "{l_bar}{bar}| {n_fmt}/{total_fmt}"


@dataclass(frozen=True, eq=False)
class LangevinResult:
    """Where the particles ended.

    Parameters
    ----------
    plan : LangevinPlan
        What was done.
    particles : ndarray of shape (T, m, d)
        Final positions.
    displacements : ndarray of shape (n_iter,)
        Root mean square distance that particles moved in each iteration, noise included.
    """

    plan: LangevinPlan
    particles: FloatArray
    displacements: FloatArray


def mean_field_langevin(
    rows: Sequence[npt.NDArray[np.floating]],
    start: npt.NDArray[np.floating],
    spacings: npt.ArrayLike,
    plan: LangevinPlan,
    *,
    bandwidth: float,
    regularization: float,
    secret: SecretStream,
    coupling: Coupling,
    smoothing: float | None = None,
    radius: float | None = None,
    progress: str | None = None,
) -> LangevinResult:
    r"""Move particles towards records they do not get to see.

    Charge ``plan.event`` first.

    Parameters
    ----------
    rows : sequence of T ndarrays of shape (N_i, d)
        Private rows of each time in mapped units, finite, at least one a time.
    start : ndarray of shape (T, m, d)
        Where particles start: no secret, or an earlier release.
    spacings : array-like of shape (T - 1,)
        Time between neighbouring times.
    plan : LangevinPlan
        Batches, noise and steps; its event has been charged.
    bandwidth : float
        Standard deviation of the kernel of the data fit.
    regularization : float
        Divisor :math:`\lambda` of the data fit: the larger, the smoother in time.
    secret : SecretStream
        Draws batches and noise.
    coupling : callable
        ``coupling(particles, spacings, diffusivity)`` returns the gradients of the Schrödinger
        potentials between neighbouring times at the particles of the earlier and of the later
        time, two arrays of shape (T - 1, m, d). It sees released particles only. With one time
        it is not called.
    smoothing : float, optional
        Width of the neighbourhood over which released gradients of the data fit are averaged
        (post-processing). The paper's algorithm does not.
    radius : float, optional
        Particles are shortened to this norm after every iteration (post-processing): at a time of
        few rows the noise would throw them far away, and those of the neighbours after them.
    progress : str, optional
        Label of a progress bar over iterations. It shows no speed, which would depend on the
        sizes of secret batches.

    Returns
    -------
    LangevinResult
        Particles and how far they moved.

    Raises
    ------
    ValueError
        If the shapes do not match, a time has no rows, a parameter is out of range, or a step is
        so long that the coupling diverges.

    Privacy
    -------
    The releases are the particles after every iteration (or, what amounts to the same, the noisy
    sums); all of them may be published. ``plan.event`` under replace-one of ``x`` given its time
    stamp; the numbers of rows a time are public. Sums are rounded to a public lattice, on which
    their noise lies too.

    References
    ----------
    Chizat, Zhang, Heitz and Schiebinger, "Trajectory inference via mean-field Langevin in path
    space", NeurIPS 2022. The private version clips each record's gradient as one matrix and
    divides by the expected batch; the paper's algorithm divides by the real one.
    """
    particles = np.array(start, dtype=np.float64)
    gaps = np.asarray(spacings, dtype=np.float64)
    _check(rows, particles, gaps, bandwidth=bandwidth, regularization=regularization)
    check_steps(plan.phases, gaps)
    fit = _NoisyFit(rows, time_weights(gaps) / regularization, bandwidth, plan, secret)
    displacements = np.empty(plan.n_iter)
    bar = tqdm(
        _iterations(plan),
        desc=progress,
        disable=progress is None,
        total=plan.n_iter,
        bar_format=_BAR_WITHOUT_SPEED,
    )
    for number, (phase, noise) in enumerate(bar):
        gradient = fit.gradient(particles, noise)
        if smoothing is not None:
            gradient = averaged_over_neighbours(gradient, particles, smoothing)
        if len(gaps):
            forward, backward = coupling(particles, gaps, phase.diffusivity)
            gradient[:-1] += forward / gaps[:, None, None]
            gradient[1:] += backward / gaps[:, None, None]
        step = phase.step_size * gradient
        particles -= step
        if radius is not None:
            norms = np.linalg.norm(particles, axis=-1, keepdims=True)
            particles *= np.minimum(1.0, radius / np.maximum(norms, radius))
        displacements[number] = math.sqrt(np.einsum("tkd,tkd->", step, step) / step[..., 0].size)
    return LangevinResult(plan, particles, displacements)


def time_weights(spacings: npt.ArrayLike) -> FloatArray:
    """Return the public weight of each time in the data fit.

    Parameters
    ----------
    spacings : array-like of shape (T - 1,)
        Time between neighbouring times.

    Returns
    -------
    ndarray of shape (T,)
        The mean of the spacings on either side; at the ends the only one; 1 for a single time.
    """
    gaps = np.asarray(spacings, dtype=np.float64)
    if not gaps.size:
        return np.ones(1)
    before, after = np.concatenate([gaps[:1], gaps]), np.concatenate([gaps, gaps[-1:]])
    weights: FloatArray = (before + after) / 2
    return weights


def longest_stable_step(spacings: npt.ArrayLike) -> float:
    r"""Return the longest step with which the coupling in time does not diverge.

    Moving the particles of time i by x and their neighbours the other way changes the gradient
    of the coupling by up to twice :math:`(1/\Delta t_{i-1} + 1/\Delta t_i) x`, so that steps of
    all times together are stable below the inverse of the largest such sum.

    Parameters
    ----------
    spacings : array-like of shape (T - 1,)
        Time between neighbouring times.

    Returns
    -------
    float
        Infinite for a single time.
    """
    gaps = np.asarray(spacings, dtype=np.float64)
    if not gaps.size:
        return math.inf
    stiffness = np.zeros(gaps.size + 1)
    stiffness[:-1] += 1.0 / gaps
    stiffness[1:] += 1.0 / gaps
    return 1.0 / float(stiffness.max())


def check_steps(phases: Sequence[LangevinPhase], spacings: npt.ArrayLike) -> None:
    """Refuse steps so long that the coupling in time diverges; needs no data.

    Parameters
    ----------
    phases : sequence of LangevinPhase
        Steps.
    spacings : array-like of shape (T - 1,)
        Time between neighbouring times.

    Raises
    ------
    ValueError
        If a step is longer than `longest_stable_step`.
    """
    longest = longest_stable_step(spacings)
    found = max(phase.step_size for phase in phases)
    if found > longest:
        raise ValueError(
            f"A step of {found:g} is too long for times as near to each other as these: particles "
            f"of neighbouring times would drive each other away. Use steps of at most {longest:g}, "
            "or fewer times."
        )


class _NoisyFit:
    """The noisy gradients of the data fit: all that touches records."""

    def __init__(
        self,
        rows: Sequence[npt.NDArray[np.floating]],
        weights: FloatArray,
        bandwidth: float,
        plan: LangevinPlan,
        secret: SecretStream,
    ) -> None:
        self._rows, self._weights, self._bandwidth = rows, weights, bandwidth
        self._clip, self._secret = plan.clip, secret
        self._expected = [plan.sampling_rate * len(of_time) for of_time in rows]
        self._batches = [
            poisson_batches(len(of_time), plan.sampling_rate, plan.n_iter, secret)
            for of_time in rows
        ]

    def gradient(self, particles: FloatArray, noise: LatticeNoise | None) -> FloatArray:
        """Release the mean gradients of the next batches at the particles, shape (T, m, d)."""
        total = np.empty_like(particles)
        for i, of_time in enumerate(self._rows):
            total[i] = clipped_fit_gradient(
                particles[i],
                of_time[next(self._batches[i])],
                bandwidth=self._bandwidth,
                weight=float(self._weights[i]),
                clip=self._clip,
            )
        if noise is not None:
            total = noisy_sum(total, noise, self._secret)
        total /= np.array(self._expected)[:, None, None]
        sigma = 0.0 if noise is None else noise.sigma
        return released("fit_gradients", total, lambda: self._facts(particles, sigma))

    def _facts(self, particles: FloatArray, sigma: float) -> dict[str, Any]:
        """Return what everybody knows of a release."""
        return {
            "particles": particles.copy(),
            "sigma": sigma,
            "expected": np.array(self._expected),
            "clip": self._clip,
            "bandwidth": self._bandwidth,
            "weights": self._weights,
        }


def _iterations(plan: LangevinPlan) -> Iterator[tuple[LangevinPhase, LatticeNoise | None]]:
    """Yield the phase and the noise of each iteration."""
    for phase, noise in zip(plan.phases, plan.noises, strict=True):
        for _ in range(phase.n_iter):
            yield phase, noise


def _check(
    rows: Sequence[npt.NDArray[np.floating]],
    particles: FloatArray,
    gaps: FloatArray,
    **positive: float,
) -> None:
    for name, value in positive.items():
        if isinstance(value, bool) or not (math.isfinite(value) and value > 0):
            raise ValueError(f"`{name}` must be positive and finite, got {value!r}.")
    if particles.ndim != 3 or 0 in particles.shape or not np.isfinite(particles).all():
        raise ValueError(
            f"`start` must be finite, of shape (T, m, d) and not empty, got {particles.shape}."
        )
    n_times, _, n_features = particles.shape
    if gaps.shape != (n_times - 1,) or not (np.isfinite(gaps) & (gaps > 0)).all():
        raise ValueError(
            f"`spacings` must hold {n_times - 1} positive numbers, one between neighbouring "
            f"times, got shape {gaps.shape}."
        )
    shapes = {of_time.shape[1:] for of_time in rows}
    if len(rows) != n_times or shapes != {(n_features,)} or not all(len(r) for r in rows):
        raise ValueError(
            f"`rows` must hold, for each of {n_times} times, one or more rows of {n_features} "
            "features; leave out times at which nothing was seen."
        )
