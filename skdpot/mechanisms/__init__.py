"""Mechanisms: how an estimator touches private data.

An estimator takes the name of a mechanism, or an object with parameters of its own:
``DPSlicedFlowSampler(mechanism="resample")`` is short for ``mechanism=Resample()``.
"""

from skdpot.mechanisms.architecture import Architecture
from skdpot.mechanisms.base import FitContext, Mechanism, chosen_mechanism
from skdpot.mechanisms.dpsgd import DPSGD, CodeParity, PriorPenalty
from skdpot.mechanisms.fair import RankedOutputs, SketchedOutputs
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
