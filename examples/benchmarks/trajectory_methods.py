"""
The rows of the table of ``bench_trajectories.py``: what is fitted to the points, and with what.

``PAPER`` holds the paper's settings. The sampler's unit of length is half the side of the unit
square, and there a step of .002 is what .001 is in the paper. The paper starts all particles at
the private mean; here they are spread around it, by a tenth of the side. What its λ, σ (of the
data fit) and τ (of the coupling) are it does not say: see ``--parts settings``.
"""

from __future__ import annotations

import warnings
from collections.abc import Callable
from dataclasses import dataclass
from time import perf_counter
from typing import Any

import numpy as np
from trajectory_tasks import GRID, StrokeTask

from skdpot import PrivateTrajectorySampler
from skdpot.exceptions import PrivacyWarning
from skdpot.mechanisms import MeanFieldLangevin, TrajectorySketch
from skdpot.privacy.gdp import gdp_mu
from skdpot.privacy.targets import PrivacyTarget
from skdpot.release.bounds import DataBounds
from skdpot.trajectories.langevin_release import plan_langevin
from skdpot.trajectories.path_metrics import resample_paths
from skdpot.trajectories.schedule import Phase

__all__ = ["METHODS", "PRIVATE", "UNCOUPLED", "WANDERING", "Recovered", "fitted", "paper_settings"]

# What the paper says ...
PAPER = {
    "mechanism": "mfld",
    "warm_start": "mean",
    "n_particles": 50,
    "clip_gradient": 1.0,
    "schedule": [(0.002, None, 20)],
    "smooth": False,
}
PAPER_BATCH = 20
# ... and what it leaves open.
PAPER_OPEN = {"bandwidth": 0.1, "regularization": 1.0, "diffusivity": 0.05}
# The estimator's own settings, but for the warm start.
TUNED = {"warm_start": "mean"}
UNCOUPLED = {"smooth": False, "regularization": 0.0}
# Pens wander more than the default says; chosen on the strokes of one seed.
WANDERING = 0.5


@dataclass(frozen=True, eq=False)
class Recovered:
    """
    What a method says about a task.

    Parameters
    ----------
    marginals : list of T ndarrays of shape (n, 2)
        Points at each time.
    paths : ndarray of shape (n, 30, 2) or None
        Whole paths, if the method has any.
    seconds : float
        Time of the fit.
    epsilon : float
        What it cost at the delta of the task; infinite without privacy.
    """

    marginals: list[np.ndarray]
    paths: np.ndarray | None
    seconds: float
    epsilon: float


MECHANISMS = {"sketch": TrajectorySketch, "mfld": MeanFieldLangevin}


def fitted(
    X: np.ndarray, t: np.ndarray, mechanism: str = "sketch", **parameters: Any
) -> PrivateTrajectorySampler:
    """
    Fit with a fixed seed, so that runs can be repeated and rows compared in pairs.

    Parameters that the mechanism reads go to it, the others to the sampler.
    """
    kind = MECHANISMS[mechanism]
    inner = {name: parameters.pop(name) for name in kind().get_params() if name in parameters}
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", PrivacyWarning)  # seeds are for tests, as this is one
        return PrivateTrajectorySampler(kind(**inner), **parameters).fit(X, t)


def paper_settings(
    epsilon: float, delta: float, scarcest: int, left_open: dict[str, float]
) -> dict[str, Any]:
    """
    Return the paper's settings: half of epsilon and delta for the means, half for the steps.

    Parameters
    ----------
    epsilon, delta : float
        What the paper adds up to.
    scarcest : int
        Number of rows of the time with the fewest.
    left_open : dict
        What the paper does not say.

    Returns
    -------
    dict
        Parameters of the sampler, for rows in the unit square.
    """
    ((step, _, n_iter),) = PAPER["schedule"]
    rate = PAPER_BATCH / scarcest
    steps = plan_langevin(
        PrivacyTarget(epsilon / 2, delta / 2),
        [Phase(step, 1.0, n_iter)],
        clip=PAPER["clip_gradient"],
        dim=2 * PAPER["n_particles"],
        sampling_rate=rate,
        bounds=DataBounds.from_box(0.0, 1.0, 2),
        n_samples=scarcest,
    )
    half, whole = gdp_mu(epsilon / 2, delta / 2), gdp_mu(epsilon, delta)
    return {
        **PAPER,
        **left_open,
        "batch_fraction": rate,
        "noise_multiplier": steps.noise_multipliers[0],
        "warm_start_share": (half / whole) ** 2,
    }


def _paper(task: StrokeTask, epsilon: float, delta: float) -> Recovered:
    parameters = paper_settings(epsilon, delta, task.scarcest, PAPER_OPEN)
    return _coupled(task, epsilon=epsilon, delta=delta, **parameters)


def _tuned(task: StrokeTask, epsilon: float, delta: float) -> Recovered:
    return _coupled(task, mechanism="mfld", epsilon=epsilon, delta=delta, **TUNED)


def _sketch(task: StrokeTask, epsilon: float, delta: float) -> Recovered:
    return _coupled(task, epsilon=epsilon, delta=delta)


def _wandering(task: StrokeTask, epsilon: float, delta: float) -> Recovered:
    return _coupled(task, epsilon=epsilon, delta=delta, diffusivity=WANDERING)


def _uncoupled(task: StrokeTask, epsilon: float, delta: float) -> Recovered:
    """Fit every time by itself, and join points of neighbouring times blindly."""
    sampler, seconds = _timed_fit(task, epsilon=epsilon, delta=delta, **UNCOUPLED)
    rng = np.random.default_rng(task.seed)
    paths = np.stack([rng.permutation(points) for points in sampler.particles_], axis=1)
    return _recovered(task, sampler, paths[: task.n_drawn], seconds)


def _coupled(task: StrokeTask, **parameters: Any) -> Recovered:
    sampler, seconds = _timed_fit(task, **parameters)
    paths = sampler.sample(task.n_drawn, random_state=task.seed)
    return _recovered(task, sampler, paths, seconds)


def _timed_fit(task: StrokeTask, **parameters: Any) -> tuple[PrivateTrajectorySampler, float]:
    X, t = task.seen
    start = perf_counter()
    sampler = fitted(X, t, random_state=task.seed, bounds=(0.0, 1.0), **parameters)
    return sampler, perf_counter() - start


def _recovered(
    task: StrokeTask, sampler: PrivateTrajectorySampler, paths: np.ndarray, seconds: float
) -> Recovered:
    marginals = [sampler.sample_marginal(time, task.n_drawn, task.seed) for time in sampler.times_]
    whole = resample_paths(paths, task.times, GRID)
    return Recovered(marginals, whole, seconds, sampler.privacy_spent_.epsilon)


def _rows_seen(task: StrokeTask, epsilon: float, delta: float) -> Recovered:
    return Recovered([task.rows(i) for i in range(len(task.times))], None, 0.0, np.inf)


def _other_people(task: StrokeTask, epsilon: float, delta: float) -> Recovered:
    rows = [task.truth(i)[1] for i in range(len(task.times))]
    return Recovered(rows, task.true_paths()[1], 0.0, np.inf)


Method = Callable[[StrokeTask, float, float], Recovered]

PRIVATE: dict[str, Method] = {
    "mfld, paper": _paper,
    "mfld, tuned": _tuned,
    "sketch": _sketch,
    "sketch, wandering": _wandering,
    "sketch, times apart": _uncoupled,
}
METHODS: dict[str, Method] = PRIVATE | {
    "rows seen": _rows_seen,
    "other people": _other_people,
}
