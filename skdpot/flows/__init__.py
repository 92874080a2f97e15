"""Particle flows towards sketched distributions."""

from skdpot.flows.problem import SlicedFlowProblem
from skdpot.flows.solver import FlowResult, FlowSchedule, sliced_flow

__all__ = ["FlowResult", "FlowSchedule", "SlicedFlowProblem", "sliced_flow"]
