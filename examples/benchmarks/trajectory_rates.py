"""
How fast the error falls with the number of rows a time and with the number of times.

The truth is an Ornstein-Uhlenbeck process on the line. Both laws are convolved with a normal law
of standard deviation 0.1 at each time, those between the knots included, and compared by the
squared Hellinger distance, integrated over time: the left-hand side of the paper's Theorem 3.2.
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
from trajectory_methods import UNCOUPLED, fitted

from skdpot import PrivateTrajectorySampler
from skdpot.datasets import make_ornstein_uhlenbeck_trajectories
from skdpot.datasets.trajectories import OrnsteinUhlenbeck

__all__ = ["rates"]

SMOOTHING = 0.1
BOUNDS = (-1.0, 2.0)
HALF_SIDE = (BOUNDS[1] - BOUNDS[0]) / 2
DELTA = 1e-4
PROCESS = {"n_features": 1, "diffusivity": 0.1}
# One direction is all there is on the line; fine bins, and many particles where errors are small.
SKETCH = {"n_projections": 1, "n_bins": 256, "bounds": BOUNDS, "delta": DELTA}
OF_ROWS = [("N", n_rows, 17, 500) for n_rows in (16, 64, 256, 1024, 4096)]
OF_TIMES = {np.inf: (8, 64), 1.0: (64, 256)}  # numbers of rows with which the times vary
N_TIMES = (3, 5, 9, 17, 33, 49)
INSIDE = 4  # times that are looked at in each interval, its left end among them
GRID = np.linspace(-2.5, 3.5, 1501)
STEP = GRID[1] - GRID[0]
METHODS = {"sketch": {}, "sketch, times apart": UNCOUPLED}


def rates(seeds: int, _: Any) -> Iterator[dict[str, Any]]:
    """Yield the integrated distance for each method, size and seed."""
    diffusivity = PROCESS["diffusivity"] / HALF_SIDE**2
    for epsilon, numbers in OF_TIMES.items():
        of_times = [("T", n_rows, n_times, 300) for n_rows in numbers for n_times in N_TIMES]
        for seed, (varied, n_rows, n_times, m) in product(range(seeds), OF_ROWS + of_times):
            X, t, law = make_ornstein_uhlenbeck_trajectories(
                n_rows, n_times, random_state=seed, **PROCESS
            )
            facts = {"epsilon": epsilon, "varied": varied, "N": n_rows, "T": n_times, "m": m}
            common = {"epsilon": epsilon, "n_particles": m, "diffusivity": diffusivity}
            for method, parameters in METHODS.items():
                sampler = fitted(X, t, random_state=seed, **SKETCH, **common, **parameters)
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
    deviation = np.sqrt(law.covariance(time)[0, 0] + SMOOTHING**2)
    truth = stats.norm(law.mean(time)[0], deviation).pdf(GRID)
    difference = np.sqrt(truth) - np.sqrt(_recovered_density(sampler, time))
    return float(np.sum(difference**2) * STEP)


def _recovered_density(sampler: PrivateTrajectorySampler, time: float) -> np.ndarray:
    """Return the smoothed density of the recovered law on the grid."""
    knots, particles = sampler.times_, sampler.particles_[:, :, 0]
    left = int(np.clip(np.searchsorted(knots, time, side="right") - 1, 0, len(knots) - 2))
    spacing = knots[left + 1] - knots[left]
    share = (time - knots[left]) / spacing
    variance = PROCESS["diffusivity"] * spacing * share * (1 - share) + SMOOTHING**2
    plan = sampler.path_.plans[left].tocoo()
    rows, columns = plan.coords
    places = (1 - share) * particles[left, rows] + share * particles[left + 1, columns]
    # Each mass is divided between the two grid points beside it.
    position = (places - GRID[0]) / STEP
    below = position.astype(np.intp)
    above = plan.data * (position - below)
    masses = np.bincount(below, plan.data - above, len(GRID))
    masses += np.bincount(below + 1, above, len(GRID))
    reach = np.arange(-int(1.2 / STEP), int(1.2 / STEP) + 1) * STEP
    kernel = stats.norm(0.0, np.sqrt(variance)).pdf(reach)
    return np.convolve(masses, kernel, mode="same")
