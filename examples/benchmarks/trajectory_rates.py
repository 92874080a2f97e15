"""
How fast the error falls with the number of rows a time and with the number of times.

The truth is an Ornstein-Uhlenbeck process, on the line or in the plane. Both laws are convolved
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
from trajectory_methods import UNCOUPLED, fitted

from skdpot import PrivateTrajectorySampler
from skdpot.datasets import make_ornstein_uhlenbeck_trajectories
from skdpot.datasets.trajectories import OrnsteinUhlenbeck

__all__ = ["rates", "rates_in_the_plane"]

SMOOTHING = 0.1
BOUNDS = (-1.0, 2.0)
HALF_SIDE = (BOUNDS[1] - BOUNDS[0]) / 2
DIFFUSIVITY = 0.1
COMMON = {"bounds": BOUNDS, "delta": 1e-4, "diffusivity": DIFFUSIVITY / HALF_SIDE**2}
# One direction is all there is on the line; fine bins, and many particles where errors are small.
SKETCH = {"n_projections": 1, "n_bins": 256}
OF_ROWS = [("N", n_rows, 17, 500) for n_rows in (16, 64, 256, 1024, 4096)]
OF_TIMES = {np.inf: (8, 64), 1.0: (64, 256)}  # numbers of rows with which the times vary
N_TIMES = (3, 5, 9, 17, 33, 49)
INSIDE = 4  # times that are looked at in each interval, its left end among them
GRIDS = {1: np.linspace(-2.5, 3.5, 1501), 2: np.linspace(-2.0, 3.0, 126)}
METHODS = {"sketch": SKETCH, "sketch, times apart": SKETCH | UNCOUPLED}
# In the plane, where "mfld" is looked at too, sizes are smaller.
LANGEVIN = {"mechanism": "mfld", "warm_start": "mean"}
METHODS_2 = {"sketch": {}, "mfld": LANGEVIN, "mfld, entropy": LANGEVIN | {"entropy": True}}
SIZES_2 = [("N", n_rows, 9, 150) for n_rows in (16, 64, 256, 1024)]
SIZES_2 += [("T", 64, n_times, 150) for n_times in (3, 5, 9, 17)]


def rates(seeds: int, _: Any) -> Iterator[dict[str, Any]]:
    """Yield the integrated distance for each method, size and seed, on the line."""
    for epsilon, numbers in OF_TIMES.items():
        of_times = [("T", n_rows, n_times, 300) for n_rows in numbers for n_times in N_TIMES]
        yield from _measured(seeds, epsilon, OF_ROWS + of_times, METHODS, 1)


def rates_in_the_plane(seeds: int, _: Any) -> Iterator[dict[str, Any]]:
    """Yield the integrated distance for each method, size and seed, in two dimensions."""
    for epsilon in OF_TIMES:
        yield from _measured(seeds, epsilon, SIZES_2, METHODS_2, 2)


def _measured(
    seeds: int, epsilon: float, sizes: Any, methods: dict[str, Any], n_features: int
) -> Iterator[dict[str, Any]]:
    for seed, (varied, n_rows, n_times, m) in product(range(seeds), sizes):
        X, t, law = make_ornstein_uhlenbeck_trajectories(
            n_rows, n_times, n_features=n_features, diffusivity=DIFFUSIVITY, random_state=seed
        )
        facts = {"epsilon": epsilon, "varied": varied, "N": n_rows, "T": n_times, "m": m}
        for method, parameters in methods.items():
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
    grid = GRIDS[law.n_features]
    cell = (grid[1] - grid[0]) ** law.n_features
    points = np.stack(np.meshgrid(*[grid] * law.n_features, indexing="ij"), axis=-1)
    covariance = law.covariance(time) + SMOOTHING**2 * np.eye(law.n_features)
    truth = cell * stats.multivariate_normal(law.mean(time), covariance).pdf(points)
    difference = np.sqrt(truth) - np.sqrt(_recovered_masses(sampler, time, grid))
    return float(np.sum(difference**2))


def _recovered_masses(
    sampler: PrivateTrajectorySampler, time: float, grid: np.ndarray
) -> np.ndarray:
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
    step = grid[1] - grid[0]
    # Each mass is divided between the grid points around it.
    position = (places - grid[0]) / step
    below = np.clip(position.astype(np.intp), 0, len(grid) - 2)
    masses = np.zeros((len(grid),) * places.shape[1])
    for corner in product((0, 1), repeat=places.shape[1]):
        shares = np.where(corner, position - below, 1 - position + below)
        np.add.at(masses, tuple((below + corner).T), plan.data * shares.prod(axis=1))
    wandering = HALF_SIDE**2 * path.wandering(left)
    variance = wandering * spacing * share * (1 - share) + SMOOTHING**2
    return gaussian_filter(masses, variance**0.5 / step, mode="constant", truncate=10.0)
