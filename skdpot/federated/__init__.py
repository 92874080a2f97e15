"""Distances between parties who cannot share their data: parties, messages, protocols."""

from skdpot.federated.party import Party
from skdpot.federated.remote import ReleaseFile

__all__ = ["Party", "ReleaseFile"]
