"""Mechanisms: how an estimator touches private data.

An estimator takes the name of a mechanism, or an object with parameters of its own:
``DPSlicedFlowSampler(mechanism="resample")`` is short for ``mechanism=Resample()``.

Names are loaded on first use: only those that train networks need torch.
"""

from importlib import import_module
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from skdpot.mechanisms.architecture import (
        Architecture,
        ImageNetwork,
        LatentNetwork,
        image_projections,
        with_edges,
    )
    from skdpot.mechanisms.barycenter import Barycenter
    from skdpot.mechanisms.base import FitContext, Mechanism, chosen_mechanism
    from skdpot.mechanisms.bayes import BayesRule
    from skdpot.mechanisms.distance import FedWad, Sliced, Triangle
    from skdpot.mechanisms.dpsgd import DPSGD, CodeParity, Gradient, PriorPenalty
    from skdpot.mechanisms.fair import RankedOutputs, SketchedOutputs
    from skdpot.mechanisms.frozen import Moments, Sketch
    from skdpot.mechanisms.mean_field_langevin import MeanFieldLangevin
    from skdpot.mechanisms.rows import Presample, Resample
    from skdpot.mechanisms.trajectory_sketch import TrajectorySketch
    from skdpot.mechanisms.transport import TransportedRows

__all__ = [
    "DPSGD",
    "Architecture",
    "Barycenter",
    "BayesRule",
    "CodeParity",
    "FedWad",
    "FitContext",
    "Gradient",
    "ImageNetwork",
    "LatentNetwork",
    "MeanFieldLangevin",
    "Mechanism",
    "Moments",
    "Presample",
    "PriorPenalty",
    "RankedOutputs",
    "Resample",
    "Sketch",
    "SketchedOutputs",
    "Sliced",
    "TrajectorySketch",
    "TransportedRows",
    "Triangle",
    "chosen_mechanism",
    "image_projections",
    "with_edges",
]

_HOMES = {
    "architecture": (
        "Architecture",
        "ImageNetwork",
        "LatentNetwork",
        "image_projections",
        "with_edges",
    ),
    "barycenter": ("Barycenter",),
    "bayes": ("BayesRule",),
    "base": ("FitContext", "Mechanism", "chosen_mechanism"),
    "distance": ("FedWad", "Sliced", "Triangle"),
    "dpsgd": ("DPSGD", "CodeParity", "Gradient", "PriorPenalty"),
    "fair": ("RankedOutputs", "SketchedOutputs"),
    "frozen": ("Moments", "Sketch"),
    "mean_field_langevin": ("MeanFieldLangevin",),
    "rows": ("Presample", "Resample"),
    "trajectory_sketch": ("TrajectorySketch",),
    "transport": ("TransportedRows",),
}


def __getattr__(name: str) -> Any:
    """Import a public name when it is first asked for."""
    for home, names in _HOMES.items():
        if name in names:
            value = getattr(import_module(f"{__name__}.{home}"), name)
            globals()[name] = value
            return value
    raise AttributeError(f"module {__name__!r} has no attribute {name!r}")


def __dir__() -> list[str]:
    return sorted(set(globals()) | set(__all__))
