"""Bounded sets that outputs are moved into before they are compared.

How far a record can move a Wasserstein gradient follows from two sizes of the set along the
directions that are really used: its `width`, the mean length of its projections, and its `shift`,
how far one point can be from another on average over the directions, which is less.
"""

import math
from abc import ABC, abstractmethod
from dataclasses import dataclass

import numpy as np

from skdpot.nets.wasserstein_gradient import ball_width, box_width

__all__ = ["Ball", "Box", "OutputSet"]

_HUGE = 1e150  # its square is finite


class OutputSet(ABC):
    """A bounded convex set of vectors of length k."""

    @abstractmethod
    def nearest(self, points: np.ndarray) -> np.ndarray:
        """Return the nearest points of the set, row by row; what is not finite has one too."""

    @abstractmethod
    def width(self, directions: np.ndarray) -> float:
        """Return the mean over the directions of the length of the set's projection."""

    @abstractmethod
    def diameter(self, n_outputs: int) -> float:
        """Return the largest distance of two points with `n_outputs` coordinates."""

    def shift(self, directions: np.ndarray) -> float:
        r"""Bound the mean over the directions of the distance of two projected points.

        :math:`\frac{1}{S} \sum_\theta |\langle\theta, u - u'\rangle| \le \frac{1}{\sqrt S}
        \|\Theta (u - u')\|` by Cauchy and Schwarz: for whole orthogonal blocks a factor
        :math:`\sqrt k` less than the diameter.
        """
        n_slices, n_outputs = directions.shape
        norm = float(np.linalg.norm(directions, 2)) * (1.0 + 1e-12)
        return min(self.width(directions), self.diameter(n_outputs) * norm / math.sqrt(n_slices))


@dataclass(frozen=True)
class Ball(OutputSet):
    """Vectors no longer than a radius.

    Parameters
    ----------
    radius : float
        M.
    """

    radius: float

    def nearest(self, points: np.ndarray) -> np.ndarray:
        """Shorten longer rows to the radius; nan becomes 0."""
        finite = np.clip(np.nan_to_num(points, nan=0.0), -_HUGE, _HUGE)
        norms = np.linalg.norm(finite, axis=1, keepdims=True)
        inside: np.ndarray = finite / np.maximum(norms, self.radius) * self.radius
        return inside

    def width(self, directions: np.ndarray) -> float:
        """Return 2M."""
        return ball_width(self.radius)

    def diameter(self, n_outputs: int) -> float:
        """Return 2M."""
        return ball_width(self.radius)


@dataclass(frozen=True)
class Box(OutputSet):
    """Vectors of which every entry is in an interval.

    Parameters
    ----------
    low, high : float
        Ends of the interval.
    """

    low: float
    high: float

    def nearest(self, points: np.ndarray) -> np.ndarray:
        """Clip every entry; nan becomes the middle."""
        middle = (self.low + self.high) / 2.0
        return np.clip(np.nan_to_num(points, nan=middle), self.low, self.high)

    def width(self, directions: np.ndarray) -> float:
        """Return the length of the interval times the mean of ``|θ|₁``."""
        return box_width(directions, self.high - self.low)

    def diameter(self, n_outputs: int) -> float:
        """Return the diagonal."""
        return (self.high - self.low) * math.sqrt(n_outputs) * (1.0 + 1e-12)
