"""Distances between parties who cannot share their data: parties, messages, protocols."""

from skdpot.federated.party import Party
from skdpot.federated.remote import ReleaseFile
from skdpot.release.joint import SecureSum

__all__ = ["Party", "ReleaseFile", "SecureSum"]
