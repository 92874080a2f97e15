"""What touches private rows of numbers and lets noisy values out."""

from skdpot.release.bounds import DataBounds
from skdpot.release.gate import pass_gate
from skdpot.release.releases import Release

__all__ = ["DataBounds", "Release", "pass_gate"]
