"""Particle flows towards released distributions."""

from skdpot.flows.problem import FlowProblem, SlicedFlowProblem
from skdpot.flows.schedule import FlowSchedule
from skdpot.flows.smoothed_problem import SmoothedFlowProblem
from skdpot.flows.solver import FlowResult, sliced_flow

__all__ = [
    "FlowProblem",
    "FlowResult",
    "FlowSchedule",
    "SlicedFlowProblem",
    "SmoothedFlowProblem",
    "sliced_flow",
]
