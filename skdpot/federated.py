"""Distances between parties who cannot share their data: parties, their releases, sums."""

from skdpot.distance.party import Party
from skdpot.distance.remote import ReleaseFile
from skdpot.release.joint import SecureSum

__all__ = ["Party", "ReleaseFile", "SecureSum"]
