"""
How fast the error falls with the number of rows a time and with the number of times.

The truth is an Ornstein-Uhlenbeck process in the plane. Both laws are convolved
with a normal law of standard deviation 0.1 at each time, those between the knots included, and
compared by the squared Hellinger distance, integrated over time: the left-hand side of the paper's
Theorem 3.2.
The law that was recovered needs no sampling: it is a mixture of normal laws, one for each particle
at a knot, and in between one for each pair of particles that a plan joins, with the variance of
the bridge.
"""

from __future__ import annotations

from collections.abc import Iterator
from itertools import product
from typing import Any

import numpy as np
from scipy import stats
from scipy.ndimage import gaussian_filter
from trajectory_methods import fitted

from skdpot import PrivateTrajectorySampler
from skdpot.datasets import make_ornstein_uhlenbeck_trajectories
from skdpot.trajectories.ornstein_uhlenbeck import OrnsteinUhlenbeck

__all__ = ["rates"]

SMOOTHING = 0.1
BOUNDS = (-1.0, 2.0)
HALF_SIDE = (BOUNDS[1] - BOUNDS[0]) / 2
DIFFUSIVITY = 0.1
COMMON = {"bounds": BOUNDS, "delta": 1e-4, "diffusivity": DIFFUSIVITY / HALF_SIDE**2}
EPSILONS = (np.inf, 1.0)
INSIDE = 4  # times that are looked at in each interval, its left end among them
GRID = np.linspace(-2.0, 3.0, 126)
LANGEVIN = {"mechanism": "mfld", "warm_start": "mean"}
METHODS = {"sketch": {}, "mfld": LANGEVIN, "mfld, entropy": LANGEVIN | {"entropy": True}}
SIZES = [("N", n_rows, 9, 150) for n_rows in (16, 64, 256, 1024)]
SIZES += [("T", 64, n_times, 150) for n_times in (3, 5, 9, 17)]


def rates(seeds: int, _: Any) -> Iterator[dict[str, Any]]:
    """Yield the integrated distance for each method, size and seed."""
    cases = product(EPSILONS, range(seeds), SIZES)
    for epsilon, seed, (varied, n_rows, n_times, m) in cases:
        X, t, law = make_ornstein_uhlenbeck_trajectories(
            n_rows, n_times, diffusivity=DIFFUSIVITY, random_state=seed
        )
        facts = {"epsilon": epsilon, "varied": varied, "N": n_rows, "T": n_times, "m": m}
        for method, parameters in METHODS.items():
            options = {"epsilon": epsilon, "n_particles": m, "random_state": seed}
            sampler = fitted(X, t, **COMMON, **options, **parameters)
            whole, knots = integrated_distance(sampler, law)
            errors = {"squared_hellinger": whole, "at_knots": knots}
            yield facts | {"method": method, "seed": seed} | errors


def integrated_distance(
    sampler: PrivateTrajectorySampler, law: OrnsteinUhlenbeck
) -> tuple[float, float]:
    """
    Return the squared Hellinger distance over all times, and its mean over the knots.

    Parameters
    ----------
    sampler : PrivateTrajectorySampler
        Fitted to times from 0 to 1.
    law : OrnsteinUhlenbeck
        The truth.

    Returns
    -------
    tuple of two floats
        By the trapezoidal rule in time and on a grid in space.
    """
    knots = sampler.times_
    times = np.append(
        (knots[:-1, None] + np.diff(knots)[:, None] * np.arange(INSIDE) / INSIDE).ravel(), knots[-1]
    )
    distances = np.array([_squared_hellinger(sampler, law, time) for time in times])
    return float(np.trapezoid(distances, times)), float(distances[::INSIDE].mean())


def _squared_hellinger(
    sampler: PrivateTrajectorySampler, law: OrnsteinUhlenbeck, time: float
) -> float:
    cell = (GRID[1] - GRID[0]) ** law.n_features
    points = np.stack(np.meshgrid(*[GRID] * law.n_features, indexing="ij"), axis=-1)
    covariance = law.covariance(time) + SMOOTHING**2 * np.eye(law.n_features)
    truth = cell * stats.multivariate_normal(law.mean(time), covariance).pdf(points)
    difference = np.sqrt(truth) - np.sqrt(_recovered_masses(sampler, time))
    return float(np.sum(difference**2))


def _recovered_masses(sampler: PrivateTrajectorySampler, time: float) -> np.ndarray:
    """Return the smoothed masses of the recovered law on the grid."""
    knots, particles, path = sampler.times_, sampler.particles_, sampler.path_
    left = int(np.clip(np.searchsorted(knots, time, side="right") - 1, 0, len(knots) - 2))
    spacing = knots[left + 1] - knots[left]
    share = (time - knots[left]) / spacing
    plan = path.plans[left].tocoo()
    rows, columns = plan.coords
    places = (1 - share) * particles[left, rows] + share * particles[left + 1, columns]
    if path.followed:
        first, last = HALF_SIDE * path.bends[:, left]
        places += share * (1 - share) * ((1 - share) * first[rows] - share * last[columns])
    step = GRID[1] - GRID[0]
    # Each mass is divided between the grid points around it.
    position = (places - GRID[0]) / step
    below = np.clip(position.astype(np.intp), 0, len(GRID) - 2)
    masses = np.zeros((len(GRID),) * places.shape[1])
    for corner in product((0, 1), repeat=places.shape[1]):
        shares = np.where(corner, position - below, 1 - position + below)
        np.add.at(masses, tuple((below + corner).T), plan.data * shares.prod(axis=1))
    wandering = HALF_SIDE**2 * path.wandering(left)
    variance = wandering * spacing * share * (1 - share) + SMOOTHING**2
    return gaussian_filter(masses, variance**0.5 / step, mode="constant", truncate=10.0)
