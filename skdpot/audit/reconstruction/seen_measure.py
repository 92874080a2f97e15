"""Measures as an attacker sees them: in messages."""

from typing import Protocol

import numpy as np

from skdpot.federated.measures import DiscreteMeasure

__all__ = ["SeenMeasure", "as_measure"]


class SeenMeasure(Protocol):
    """A `DiscreteMeasure`, or a message that holds one; without masses these are equal."""

    @property
    def points(self) -> np.ndarray:
        """Points of shape (n_points, n_features)."""


def as_measure(seen: SeenMeasure) -> DiscreteMeasure:
    """Return what was seen as a measure.

    Parameters
    ----------
    seen : DiscreteMeasure or message
        Whatever has points, and perhaps masses.

    Returns
    -------
    DiscreteMeasure
        The same points and masses.
    """
    if isinstance(seen, DiscreteMeasure):
        return seen
    return DiscreteMeasure(seen.points, getattr(seen, "masses", None))
