"""Particle flows towards released distributions."""

from skdpot.flows.problem import (
    FlowProblem,
    FlowSchedule,
    SlicedFlowProblem,
    SmoothedFlowProblem,
)
from skdpot.flows.solver import FlowResult, sliced_flow

__all__ = [
    "FlowProblem",
    "FlowResult",
    "FlowSchedule",
    "SlicedFlowProblem",
    "SmoothedFlowProblem",
    "sliced_flow",
]
