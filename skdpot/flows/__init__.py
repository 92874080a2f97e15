"""Particle flows towards released distributions."""

from skdpot.flows.solver import (
    FlowResult,
    FlowSchedule,
    SlicedFlowProblem,
    SmoothedFlowProblem,
    sliced_flow,
)

__all__ = [
    "FlowResult",
    "FlowSchedule",
    "SlicedFlowProblem",
    "SmoothedFlowProblem",
    "sliced_flow",
]
