"""Mechanisms: how an estimator touches private data.

An estimator takes the name of a mechanism, or an object with parameters of its own:
``DPSlicedFlowSampler(mechanism="resample")`` is short for ``mechanism=Resample()``.

Names are loaded on first use: only those that train networks need torch.
"""

from importlib import import_module
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from skdpot.mechanisms.architecture import Architecture, LatentNetwork
    from skdpot.mechanisms.base import FitContext, Mechanism, chosen_mechanism
    from skdpot.mechanisms.dpsgd import DPSGD, CodeParity, PriorPenalty
    from skdpot.mechanisms.fair import RankedOutputs, SketchedOutputs
    from skdpot.mechanisms.gradient import Gradient
    from skdpot.mechanisms.mean_field_langevin import MeanFieldLangevin
    from skdpot.mechanisms.plain_distance import FedWad, Triangle
    from skdpot.mechanisms.rows import Presample, Resample
    from skdpot.mechanisms.sketch import Sketch
    from skdpot.mechanisms.sliced_distance import Sliced
    from skdpot.mechanisms.trajectory_sketch import TrajectorySketch

__all__ = [
    "DPSGD",
    "Architecture",
    "CodeParity",
    "FedWad",
    "FitContext",
    "Gradient",
    "LatentNetwork",
    "MeanFieldLangevin",
    "Mechanism",
    "Presample",
    "PriorPenalty",
    "RankedOutputs",
    "Resample",
    "Sketch",
    "SketchedOutputs",
    "Sliced",
    "TrajectorySketch",
    "Triangle",
    "chosen_mechanism",
]

_HOMES = {
    "DPSGD": "skdpot.mechanisms.dpsgd",
    "Architecture": "skdpot.mechanisms.architecture",
    "CodeParity": "skdpot.mechanisms.dpsgd",
    "FedWad": "skdpot.mechanisms.plain_distance",
    "FitContext": "skdpot.mechanisms.base",
    "Gradient": "skdpot.mechanisms.gradient",
    "LatentNetwork": "skdpot.mechanisms.architecture",
    "MeanFieldLangevin": "skdpot.mechanisms.mean_field_langevin",
    "Mechanism": "skdpot.mechanisms.base",
    "Presample": "skdpot.mechanisms.rows",
    "PriorPenalty": "skdpot.mechanisms.dpsgd",
    "RankedOutputs": "skdpot.mechanisms.fair",
    "Resample": "skdpot.mechanisms.rows",
    "Sketch": "skdpot.mechanisms.sketch",
    "SketchedOutputs": "skdpot.mechanisms.fair",
    "Sliced": "skdpot.mechanisms.sliced_distance",
    "TrajectorySketch": "skdpot.mechanisms.trajectory_sketch",
    "Triangle": "skdpot.mechanisms.plain_distance",
    "chosen_mechanism": "skdpot.mechanisms.base",
}


def __getattr__(name: str) -> Any:
    """Import a public name when it is first asked for."""
    if name not in _HOMES:
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    value = getattr(import_module(_HOMES[name]), name)
    globals()[name] = value
    return value


def __dir__() -> list[str]:
    """List the public names, loaded or not."""
    return sorted(set(globals()) | set(__all__))
