"""Estimators: validate, release, solve, store."""

from skdpot.estimators.autoencoder import PrivateSWAutoencoder
from skdpot.estimators.flow_sampler import DPSlicedFlowSampler
from skdpot.estimators.generator import DPSlicedGenerator

__all__ = ["DPSlicedFlowSampler", "DPSlicedGenerator", "PrivateSWAutoencoder"]
