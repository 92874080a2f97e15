"""Transformers whose fitted state is differentially private."""

from skdpot.preprocessing.private_scaler import PrivateScaler

__all__ = ["PrivateScaler"]
