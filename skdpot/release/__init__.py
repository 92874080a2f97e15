"""Releases of noisy values: bounds of the rows, sketches, moments, and the gate they pass."""

from skdpot.release.bounds import DataBounds
from skdpot.release.gate import pass_gate
from skdpot.release.releases import Release

__all__ = ["DataBounds", "Release", "pass_gate"]
