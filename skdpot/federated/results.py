"""What protocols return."""

import math
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

import numpy as np
import pandas as pd

from skdpot.federated.transcript import Transcript

__all__ = ["PairwiseResult", "ProtocolResult"]


@dataclass(frozen=True, eq=False, repr=False)
class ProtocolResult:
    """The distance that two parties have estimated, and how.

    Parameters
    ----------
    protocol : {"triangle", "fedwad", "sliced"}
        Name of the protocol.
    squared_distance : float
        W₂² ("triangle", "fedwad") or SW₂² ("sliced", where an estimate can be below zero).
    transcript : Transcript
        All that was sent.
    details : object
        How the number came about. "triangle": the `TransportPlan` between the two messages, whose
        potentials value the rows of both sides, or with a secret fraction the
        `FractionQuadratic`; "fedwad": the `GeodesicPath`; "sliced": the `DebiasedDistance`, with
        standard error and interval.
    """

    protocol: str
    squared_distance: float
    transcript: Transcript
    details: Any

    @property
    def distance(self) -> float:
        """The distance; 0 where the estimate of its square is negative."""
        return math.sqrt(max(self.squared_distance, 0.0))

    def __repr__(self) -> str:
        return (
            f"<ProtocolResult of {self.protocol!r}: distance {self.distance:.6g}, "
            f"{len(self.transcript)} messages, {self.transcript.n_bytes} bytes>"
        )


@dataclass(frozen=True, eq=False, repr=False)
class PairwiseResult:
    """The distances between all parties.

    Parameters
    ----------
    protocol : {"triangle", "fedwad", "sliced"}
        Name of the protocol.
    names : tuple of str
        Names of the parties.
    squared_distances : ndarray of shape (n_parties, n_parties)
        Symmetric, zero on the diagonal.
    transcript : Transcript
        All that was sent.
    details : mapping of (str, str) to object
        For each pair of names, in the order of `names`, what `ProtocolResult.details` holds.
    """

    protocol: str
    names: tuple[str, ...]
    squared_distances: np.ndarray
    transcript: Transcript
    details: Mapping[tuple[str, str], Any]

    @property
    def distances(self) -> np.ndarray:
        """The distances; 0 where the estimate of a square is negative."""
        roots: np.ndarray = np.sqrt(np.maximum(self.squared_distances, 0.0))
        return roots

    def to_frame(self) -> pd.DataFrame:
        """Return the distances as a table, with the names of the parties on both sides."""
        return pd.DataFrame(self.distances, index=list(self.names), columns=list(self.names))

    def __repr__(self) -> str:
        return (
            f"<PairwiseResult of {self.protocol!r}: {len(self.names)} parties, "
            f"{len(self.transcript)} messages, {self.transcript.n_bytes} bytes>"
        )
