"""The coupling of neighbouring times: weights of the times, and the longest stable step."""

import math
from collections.abc import Callable, Sequence
from typing import TypeAlias

import numpy as np
import numpy.typing as npt

from skdpot._utils.arrays import FloatArray
from skdpot.trajectories.schedule import Phase

# Maps particles (T, m, d), spacings of times (T - 1,) and the diffusivity to the gradients of the
# Schrödinger potentials of neighbouring times: two arrays of shape (T - 1, m, d).
PairGradients: TypeAlias = Callable[[FloatArray, FloatArray, float], tuple[FloatArray, FloatArray]]


def time_weights(spacings: npt.ArrayLike) -> FloatArray:
    """Return the weight of each time in the data fit, from the T - 1 spacings; shape (T,)."""
    gaps = np.asarray(spacings, dtype=np.float64)
    if not gaps.size:
        return np.ones(1)
    padded = np.pad(gaps, 1, mode="edge")
    return (padded[:-1] + padded[1:]) / 2


def longest_stable_step(spacings: npt.ArrayLike) -> float:
    r"""Return the longest step for which the coupling in time does not diverge.

    Moving the particles of time i by x and those of the neighbouring times by -x changes the
    gradient of the coupling by up to twice :math:`(1/\Delta t_{i-1} + 1/\Delta t_i) x`. Steps of
    all times together are therefore stable below the inverse of the largest such sum.
    """
    gaps = np.asarray(spacings, dtype=np.float64)
    if not gaps.size:
        return math.inf
    return 1.0 / float(np.convolve(1.0 / gaps, [1.0, 1.0]).max())


def check_steps(phases: Sequence[Phase], spacings: npt.ArrayLike) -> None:
    """Refuse steps that are too long for the coupling in time; reads no private rows."""
    longest = longest_stable_step(spacings)
    step_size = max(phase.step_size for phase in phases)
    if step_size > longest:
        raise ValueError(
            f"A step size of {step_size:g} is too long for times this close: the coupling of "
            f"neighbouring times diverges. Use steps of at most {longest:g}, or fewer times."
        )
