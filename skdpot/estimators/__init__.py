"""Estimators: validate, release, solve, store."""

from skdpot.estimators.flow_sampler import DPSlicedFlowSampler

__all__ = ["DPSlicedFlowSampler"]
