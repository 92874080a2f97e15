"""How the particles of a fitted sampler got to where they are."""

from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from numbers import Integral
from typing import Any

import numpy as np

from skdpot.flows import FlowResult, SlicedFlowProblem

__all__ = ["FlowTrace", "distances_along", "recorded_steps"]

_STATES = 24  # by default: enough for the curve of the distance


@dataclass(frozen=True, eq=False)
class FlowTrace:
    """The states of a flow, from the start to its end.

    Parameters
    ----------
    steps : ndarray of shape (n_states,), int
        Number of steps taken before each state; 0 is the start.
    particles : ndarray of shape (n_states, n_particles, n_features)
        Particles in the units of the data, not yet clipped to the bounds; a row is the same
        particle in all states.
    labels : ndarray of shape (n_particles,) or None
        Class of each particle; None without classes.
    distances : ndarray of shape (n_classes, n_states) or None
        Sliced Wasserstein-2 distance of the particles of each class to the sketch, in the units of
        the mapped features; None where the release is no sketch.
    classes : ndarray of shape (n_classes,) or None
        Classes, in the order of `distances`.

    Privacy
    -------
    Post-processing of the release: states may be shown like synthetic rows.
    """

    steps: np.ndarray
    particles: np.ndarray
    labels: np.ndarray | None
    distances: np.ndarray | None
    classes: np.ndarray | None


def recorded_steps(steps: Any, n_steps: int) -> list[int]:
    """Return increasing numbers of steps; by default the start, the end and steps in between.

    Parameters
    ----------
    steps : iterable of int or None
        What the caller asked for.
    n_steps : int
        How many steps the flow takes.

    Returns
    -------
    list of int
        By default they lie at equal ratios, for a flow moves fast at first.

    Raises
    ------
    ValueError
        If a number is no integer from 0 to `n_steps`.
    """
    if steps is None:
        spaced = np.geomspace(1, n_steps, min(_STATES, n_steps)).round().astype(int)
        return [0, *np.unique(spaced).tolist()]
    given = list(steps) if isinstance(steps, Iterable) else [steps]
    whole = [isinstance(one, Integral) and not isinstance(one, bool) for one in given]
    if not given or not all(whole) or not all(0 <= one <= n_steps for one in given):
        raise ValueError(f"steps must be integers from 0, the start, to {n_steps}, the end.")
    return sorted({int(one) for one in given})


def distances_along(result: FlowResult, steps: Sequence[int]) -> list[float] | None:
    """Return the distance to the sketch of each recorded state; None without a sketch."""
    problem = result.problem
    if not isinstance(problem, SlicedFlowProblem):
        return None
    return [problem.distance(result.recorded[step]) for step in steps]
