r"""Mean-field Langevin dynamics with privacy: noisy gradient descent of particles at all times.

What is minimised, over particles at every time, is the data fit (`clipped_fit_gradient`) plus the
cost of joining neighbouring times by a diffusion,

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
real one is a secret. The noise stands in for the Brownian motion of Langevin dynamics, which adds
:math:`\tau H`, the entropy, to what is minimised.

Why one time's releases are the whole charge
--------------------------------------------
Records are :math:`(x, t)` with public time stamps: neighbours replace the :math:`x` of one record
and keep its :math:`t`, so that they differ in the records of one time :math:`i` only. Were the
times worked on one after the other, without regard to each other, this would be parallel
composition. Here they are not: the particles of time :math:`i` are drawn to those of the
neighbouring times, which depend on other records. It holds all the same:

* The algorithm is a sequence of releases, one per time and step; each is drawn from a distribution
  that is determined by the records of *its* time and by what was released before.
* Take two neighbours, and let them differ in time :math:`i`. Every release of another time has
  the same conditional distribution, given the past, under both. It is a random function of
  the past that knows nothing of which neighbour it serves: post-processing.
* Every release of time :math:`i` is, given the past, a Gaussian sum of clipped vectors over a fresh
  Poisson sample, with particles, noise and rate that the past determines (and noise and rate are
  even fixed beforehand).
* So the joint law of all releases, under the two neighbours, is an adaptive composition of the
  releases of time :math:`i` alone, interleaved with post-processing. Its loss is bounded by the
  composition of the bounds of each.

The bounds are the same whatever the time, since the rate, the noise and the number of steps are.
The steps of one time are therefore the event. Before them come the warm start, for which the same
holds, and private bounds, which see all records together.

A person with up to k rows, all at different times, changes k of the times:
`skdpot.privacy.events` says why the steps then count k times. Bounds pool all times, and
there the sensitivity is k times larger.

References
----------
Chizat, Zhang, Heitz and Schiebinger, "Trajectory inference via mean-field Langevin in path
space", NeurIPS 2022. The private version clips each record's gradient as one matrix and divides by
the expected batch.
"""

import math
from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass
from typing import Any, NamedTuple, TypeAlias

import numpy as np
import numpy.typing as npt
from scipy.spatial.distance import cdist
from scipy.special import logsumexp
from tqdm.auto import tqdm

from skdpot._utils.arrays import FloatArray
from skdpot._utils.validation import SecretStream, one_blas_thread
from skdpot.privacy.accounting import PrivacyTarget, calibrate
from skdpot.privacy.events import ComposedEvent, Event, NonPrivateEvent
from skdpot.privacy.noise import LatticeNoise, noise_for_sums, noisy_sum
from skdpot.privacy.sampling import SampledGaussianEvent, poisson_batches
from skdpot.release.bounds import BoundsPlan, DataBounds
from skdpot.release.gate import Part, Records, Release, Vectors, pass_gate
from skdpot.trajectories.warm_start import WarmStartPlan

# Gradients of the Schrödinger potentials of neighbouring times at particles (T, m, d), with
# the spacings of times and the diffusivity; two arrays of shape (T - 1, m, d).
PairGradients: TypeAlias = Callable[[FloatArray, FloatArray, float], tuple[FloatArray, FloatArray]]

_SHORTEST, _LONGEST = 1e-12, 1e12  # beyond, potentials and steps are no longer finite


class LangevinPhase(NamedTuple):
    """Iterations with one step size and one diffusivity."""

    step_size: float
    diffusivity: float
    n_iter: int


def read_phases(
    schedule: Iterable[tuple[Any, Any, Any]], diffusivity: float
) -> tuple[LangevinPhase, ...]:
    """Read phases (step, tau, n_iter), where a tau of None is `diffusivity`."""
    try:
        read = [
            (float(step), float(diffusivity if tau is None else tau), float(n_iter))
            for step, tau, n_iter in schedule
        ]
    except (TypeError, ValueError, OverflowError):
        read = []
    valid = (
        _SHORTEST <= min(step, tau) <= max(step, tau) <= _LONGEST and n_iter >= 1 and not n_iter % 1
        for step, tau, n_iter in read
    )
    if not read or not all(valid):
        raise ValueError(
            "schedule must be a list of one or more phases (step, tau, n_iter): a step size and a "
            f"diffusivity (None: the parameter diffusivity) from {_SHORTEST:g} to {_LONGEST:g}, "
            "and a positive integer number of iterations."
        )
    return tuple(LangevinPhase(step, tau, int(n_iter)) for step, tau, n_iter in read)


@dataclass(frozen=True, kw_only=True)
class LangevinPlan:
    """The public parameters of private mean-field Langevin dynamics."""

    phases: tuple[LangevinPhase, ...]
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
    def sensitivity(self) -> tuple[float, ...]:
        """How far a replaced record moves a sum of each phase."""
        return tuple(2.0 * self.clip if n is None else n.sensitivity for n in self.noises)

    @property
    def noise_multipliers(self) -> tuple[float, ...]:
        """Noise of each phase in units of the *clipping norm* (half of the sensitivity)."""
        return tuple(sigma / self.clip for sigma in self.sigma)

    @property
    def n_iter(self) -> int:
        """Number of iterations of all phases."""
        return sum(phase.n_iter for phase in self.phases)


def plan_langevin(
    target: PrivacyTarget,
    phases: Iterable[LangevinPhase],
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
    """Find the least noise that meets a target, or account for the noise that is given.

    The noise has standard deviation ``noise_multiplier * clip``; a sum has sensitivity ``2 * clip``
    (`clipped_fit_gradient`), and slightly more on its lattice. The event is that of one time.
    """
    phases = tuple(phases)
    before = [one.event for one in (bounds, warm) if isinstance(one, BoundsPlan | WarmStartPlan)]

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

    given = None if noise_multiplier is None else _multipliers(noise_multiplier, len(phases))
    event: Event = NonPrivateEvent()
    if math.isinf(target.epsilon):
        if given is not None and any(given):
            raise ValueError(
                "`noise_multiplier` is above 0 although epsilon=inf means no noise. Use "
                "noise_multiplier=None, or a finite epsilon for private bounds and a warm start."
            )
        given = (0.0,) * len(phases)
    if given is None:
        event = calibrate(target, lambda multiplier: whole((multiplier,) * len(phases)))
        noises: tuple[LatticeNoise | None, ...] = tuple(
            LatticeNoise(sigma=step.sigma, sensitivity=step.sensitivity, lattice=step.lattice)
            for step in event.phases[-len(phases) :]
        )
    else:
        noises = tuple(noise_of(multiplier) if multiplier > 0 else None for multiplier in given)
        if all(given):
            event = whole(given)
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


def _multipliers(given: float | Sequence[float], n_phases: int) -> tuple[float, ...]:
    """Return one noise multiplier per phase."""
    listed = tuple(given) if isinstance(given, Iterable) else (given,) * n_phases
    valid = (not isinstance(k, bool) and math.isfinite(k) and k >= 0 for k in listed)
    if len(listed) != n_phases or not all(valid):
        raise ValueError(
            "`noise_multiplier` must be finite and >= 0: one number, or one per phase of schedule "
            f"({n_phases}); got {given!r}."
        )
    return tuple(map(float, listed))


# Clipping a little below the norm leaves room for the rounding of sums.
_INSIDE = 1.0 - 1e-6
# Below this a norm may have lost terms to underflow; what has such a norm is left out.
_SMALLEST_NORM = 1e-140
_LARGEST = 1e150
# Arrays that stay in the cache are several times faster.
_BLOCK = 2**14


def clipped_fit_gradient(
    particles: npt.NDArray[np.floating],
    rows: npt.NDArray[np.floating],
    *,
    bandwidth: float,
    weight: float,
    clip: float,
) -> FloatArray:
    r"""Sum the clipped gradients of records, each on all particles, shape (m, d).

    A point :math:`y` was seen at a time where the particles are :math:`x_1, \dots, x_m`. Smoothed
    by a Gaussian kernel :math:`g_\sigma`, they give it the likelihood :math:`\frac1m \sum_l
    g_\sigma(x_l - y)`. The data fit is minus the sum of the logarithms over the records. Its
    Wasserstein gradient, the gradient of its first variation, moves the particle
    :math:`x_k` for the record :math:`y` by

    .. math:: G_k(y) = w\,\frac{x_k - y}{\sigma^2}\,
              \frac{g_\sigma(x_k - y)}{\frac1m \sum_l g_\sigma(x_l - y)}
              = \frac{w\,m}{\sigma^2}\,p_k(y)\,(x_k - y),

    with a weight :math:`w` and the softmax :math:`p(y)` of :math:`-\|x_k - y\|^2 / 2\sigma^2`. Only
    the differences of the exponents matter, so that a record far away from all particles pulls the
    nearest ones, by much, and no quotient of two zeros occurs.

    The sum points uphill: particles move against it.

    Privacy
    -------
    One record's gradient moves *all* particles, and the particles are released together. So it is
    the whole m × d matrix that is clipped, as one vector of :math:`m d` numbers. (A bound of C for
    each particle would admit a norm of :math:`\sqrt m\,C`.) The term of a record depends on
    the particles, which are no secret, and on this record alone. Therefore:

    * a record that is added or removed moves the sum by at most :math:`C`;
    * a record that is replaced moves it by at most :math:`\|G\| + \|G'\| \le 2C`, which two
      records on opposite sides of a particle attain;
    * on a Poisson sample the sum has the form that
      ``SampledGaussianEvent(sensitivity=2 * clip, clipped_sum=True)`` asks for: one vector a
      record, of norm at most half the sensitivity, summed over the records of the batch.

    Rounding is within these bounds. What a record adds is computed by itself: distances pair by
    pair, reductions along rows and elementwise functions, none of which a sample's size enters, so
    that no places are needed here (the tests compare bits). It is shortened to one part in a
    million below C. The sum of b records in blocks of k, in an order that depends on the (secret)
    batch, errs by at most :math:`2^{-53} (k + b/k)\, b\, C`, below a millionth of C for 500,000
    records on 300 particles and for 90,000 on however many.
    """
    points: FloatArray = particles.astype(np.float64)
    # Beyond this, squares overflow, and one record would turn the whole sum into nan.
    seen: FloatArray = np.clip(rows.astype(np.float64), -_LARGEST, _LARGEST)
    m = len(points)
    total = np.zeros_like(points)
    for start in range(0, len(seen), block := max(1, _BLOCK // m)):
        part = seen[start : start + block]
        shares = _clipped_shares(points, part, bandwidth, weight, clip)
        for j in range(points.shape[1]):
            offsets = points[:, j] - part[:, j, None]
            total[:, j] += np.einsum("bk,bk->k", shares, offsets)
    return total


def _clipped_shares(
    points: FloatArray, part: FloatArray, bandwidth: float, weight: float, clip: float
) -> FloatArray:
    """Return what each record is multiplied with on each particle: a row for a record.

    Row by row: a record has the same bits in every sample, whoever else is drawn.
    """
    squares = cdist(part, points, "sqeuclidean")
    shares = _softmax(squares, bandwidth)
    norms = np.sqrt(np.einsum("bk,bk,bk->b", shares, shares, squares))
    with np.errstate(over="ignore"):
        full = norms * weight * len(points) / bandwidth / bandwidth
    # The part of C that a record uses, spread in proportion to its gradient.
    used = np.minimum(clip * _INSIDE, full)
    spread = norms > _SMALLEST_NORM
    shares *= np.divide(used, norms, out=np.zeros_like(norms), where=spread)[:, None]
    return shares


def clipped_pulls(
    particles: FloatArray, rows: FloatArray, *, bandwidth: float, weight: float, clip: float
) -> FloatArray:
    """Return the clipped gradient of each row on all particles, shape (n_rows, m * d).

    Their sum is `clipped_fit_gradient`, which never forms them.
    """
    offsets = particles - rows[:, None]
    squares = np.einsum("bkd,bkd->bk", offsets, offsets)
    pulls = (_softmax(squares, bandwidth)[:, :, None] * offsets).reshape(len(rows), -1)
    pulls *= weight * len(particles) / bandwidth**2
    norms = np.linalg.norm(pulls, axis=1, keepdims=True)
    return pulls * (clip / np.maximum(norms, clip))


def _softmax(squares: FloatArray, bandwidth: float) -> FloatArray:
    """Return each record's shares of the particles, which add up to one."""
    shares: FloatArray = squares - squares.min(axis=1, keepdims=True)
    with np.errstate(over="ignore", under="ignore"):
        # One division after the other: the square of a small bandwidth would underflow.
        shares /= -2.0 * bandwidth
        shares /= bandwidth
        np.exp(shares, out=shares)
    shares /= shares.sum(axis=1, keepdims=True)
    return shares


def averaged_over_neighbours(
    gradients: np.ndarray, particles: np.ndarray, width: float
) -> np.ndarray:
    """Average released gradients with weights that fall with the distance of particles."""
    averages = np.empty_like(gradients)
    with one_blas_thread():
        for place, gradient, average in zip(particles, gradients, averages, strict=True):
            scaled = (place - place.mean(axis=0)) / width
            norms = np.sum(scaled**2, axis=1) / 2
            weights = np.exp(np.minimum(scaled @ scaled.T - norms[:, None] - norms, 0.0))
            np.fill_diagonal(weights, 1.0)  # whatever cancellation has made of it
            average[...] = weights @ gradient / weights.sum(axis=1, keepdims=True)
    return averages


# A bar with a speed would tell how large the secret batches are.
_BAR_WITHOUT_SPEED = "{l_bar}{bar}| {n_fmt}/{total_fmt}"


class MovedParticles(NamedTuple):
    """Final positions (T, m, d), and the root mean square way of each iteration (n_iter,)."""

    particles: FloatArray
    displacements: FloatArray
    fit: float | None = None  # the data fit of the final positions, if it is no secret


def _data_fit(
    particles: FloatArray,
    rows: Sequence[npt.NDArray[np.floating]],
    weights: FloatArray,
    width: float,
) -> float:
    """Return minus the mean log-likelihood of the rows of each time, weighted and summed."""
    total = 0.0
    for at, of_time, weight in zip(particles, rows, weights, strict=True):
        parts = np.array_split(of_time, 1 + len(of_time) * len(at) // _BLOCK)
        exponents = (cdist(part, at, "sqeuclidean") / (-2.0 * width**2) for part in parts)
        logs = sum(float(logsumexp(exponent, axis=1).sum()) for exponent in exponents)
        total -= float(weight) * (logs / len(of_time) - math.log(len(at)))
    return total


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
    smoothing: float | None = None,
    radius: float | None = None,
    wander: np.random.Generator | None = None,
    progress: str | None = None,
) -> MovedParticles:
    """Move particles by noisy gradients of the data fit. Charge ``plan.event`` first.

    Releases the noisy sums of every iteration, and so the particles after it. The numbers of rows
    per time are public. With `wander` each step also has what the noise lacks of the variance of
    Langevin dynamics: post-processing.
    """
    particles = np.array(start, dtype=np.float64)
    gaps = np.asarray(spacings, dtype=np.float64)
    sizes = [len(of_time) for of_time in rows]
    members = [poisson_batches(n, plan.sampling_rate, plan.n_iter, secret) for n in sizes]
    expected = plan.sampling_rate * np.array(sizes)
    weights = time_weights(gaps) / regularization
    options = {"bandwidth": bandwidth, "clip": plan.clip}
    facts = {"rate": plan.sampling_rate, "expected": expected, "weights": weights, **options}
    displacements = np.empty(plan.n_iter)
    phases = zip(plan.phases, plan.noises, strict=True)
    steps = [(phase, noise) for phase, noise in phases for _ in range(phase.n_iter)]
    bar = tqdm(steps, desc=progress, disable=progress is None, bar_format=_BAR_WITHOUT_SPEED)
    for number, (phase, noise) in enumerate(bar):
        total = np.empty_like(particles)
        for i, (of_time, chosen) in enumerate(zip(rows, members, strict=True)):
            batch, weight = of_time[next(chosen)], float(weights[i])
            total[i] = clipped_fit_gradient(particles[i], batch, weight=weight, **options)
        if noise is not None:
            total = noisy_sum(total, noise, secret)
        gradient = pass_gate(
            Release(
                "fit_gradients",
                total / expected[:, None, None],
                {"particles": particles, **facts},
                event=plan.event,
                linear=_pulled,
                **({} if noise is None else vars(noise)),  # of the sums
            )
        )
        if smoothing is not None:
            gradient = averaged_over_neighbours(gradient, particles, smoothing)
        if len(gaps):
            forward, backward = coupling(particles, gaps, phase.diffusivity)
            gradient[:-1] += forward / gaps[:, None, None]
            gradient[1:] += backward / gaps[:, None, None]
        step = phase.step_size * gradient
        if wander is not None:
            own = 0.0 if noise is None or smoothing is not None else noise.sigma / expected
            missing = 2 * phase.step_size * phase.diffusivity - (phase.step_size * own) ** 2
            deviations = np.broadcast_to(np.sqrt(np.maximum(missing, 0.0)), len(rows))
            step += deviations[:, None, None] * wander.standard_normal(step.shape)
        particles -= step
        if radius is not None:
            norms = np.linalg.norm(particles, axis=-1, keepdims=True)
            particles *= np.minimum(1.0, radius / np.maximum(norms, radius))
        displacements[number] = math.sqrt(np.einsum("tkd,tkd->", step, step) / step[..., 0].size)
    told = isinstance(plan.event, NonPrivateEvent)
    fit = _data_fit(particles, rows, weights, bandwidth) if told else None
    return MovedParticles(particles, displacements, fit)


def time_weights(spacings: npt.ArrayLike) -> FloatArray:
    """Return the public weight of each time in the data fit."""
    gaps = np.asarray(spacings, dtype=np.float64)
    if not gaps.size:
        return np.ones(1)
    padded = np.pad(gaps, 1, mode="edge")
    return (padded[:-1] + padded[1:]) / 2


def longest_stable_step(spacings: npt.ArrayLike) -> float:
    r"""Return the longest step with which the coupling in time does not diverge.

    Moving the particles of time i by x and their neighbours the other way changes the gradient
    of the coupling by up to twice :math:`(1/\Delta t_{i-1} + 1/\Delta t_i) x`, so that steps of
    all times together are stable below the inverse of the largest such sum.
    """
    gaps = np.asarray(spacings, dtype=np.float64)
    if not gaps.size:
        return math.inf
    return 1.0 / float(np.convolve(1.0 / gaps, [1.0, 1.0]).max())


def check_steps(phases: Sequence[LangevinPhase], spacings: npt.ArrayLike) -> None:
    """Refuse steps so long that the coupling in time diverges; needs no data."""
    longest = longest_stable_step(spacings)
    found = max(phase.step_size for phase in phases)
    if found > longest:
        raise ValueError(
            f"A step size of {found:g} is too long for times this close: the coupling of "
            f"neighbouring times diverges. Use steps of at most {longest:g}, or fewer times."
        )


def _pulled(release: Release, records: Records, shares: FloatArray) -> Iterator[Part]:
    """Yield what the rows of each time add to the sum of its clipped gradients."""
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
