"""The schedule of a particle flow: phases with one step size and one diffusivity each."""

from collections.abc import Iterable
from typing import Any, NamedTuple

# Outside this range of steps and diffusivities, potentials and steps are not finite.
_SHORTEST = 1e-12
_LONGEST = 1e12


class Phase(NamedTuple):
    """Iterations with one step size and one diffusivity."""

    step_size: float
    diffusivity: float
    n_iter: int


def read_phases(schedule: Iterable[tuple[Any, Any, Any]], diffusivity: float) -> tuple[Phase, ...]:
    """Read phases (step, tau, n_iter); a tau of None is replaced by `diffusivity`."""
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
    return tuple(Phase(step, tau, int(n_iter)) for step, tau, n_iter in read)
