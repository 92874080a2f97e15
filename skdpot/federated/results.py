"""What protocols return."""

import math
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
import pandas as pd

from skdpot._utils.pages import html_card
from skdpot.federated.party import Party
from skdpot.federated.transcript import Transcript
from skdpot.privacy.budget import PrivacyBudget
from skdpot.privacy.data_bounds import DataBounds
from skdpot.slicing.debiased_distance import DebiasedDistance

__all__ = [
    "DistanceEstimate",
    "Frames",
    "PairwiseResult",
    "ProtocolResult",
    "as_parties",
    "common_scale",
    "square",
]

Frames = tuple[pd.DataFrame, pd.DataFrame]

_ONE_SIGMA = 0.6826894921370859


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


@dataclass(frozen=True, eq=False, repr=False)
class DistanceEstimate:
    """A distance between two parties, and how far to trust it.

    Parameters
    ----------
    squared : float
        Estimate of the squared distance. With "sliced" it is unbiased, hence below zero about
        half of the time between equal measures. With the protocols that are not private it is
        an upper bound.
    protocol : {"sliced", "triangle", "fedwad"}
        How it was estimated.
    transcript : Transcript
        What was sent, and by whom. With "triangle" and "fedwad" it determines everybody's
        rows.
    debiased : DebiasedDistance, optional
        What is known about the noise, in the unit of the scaled features; only with "sliced".
    scale : float, default=1.0
        Unit of the scaled features.
    unit : {"features", "scaled features"}
        What the distance is measured in.
    """

    squared: float
    protocol: str
    transcript: Transcript
    debiased: DebiasedDistance | None = None
    scale: float = 1.0
    unit: str = "features"

    @classmethod
    def of_sketches(
        cls,
        debiased: DebiasedDistance,
        bounds: DataBounds,
        transcript: Transcript,
        *,
        declared: bool,
    ) -> "DistanceEstimate":
        """Make an estimate from that of two sketches, in the unit of the scaled features."""
        scale = common_scale(bounds, declared)
        return cls(
            squared=debiased.squared * (scale or 1.0) ** 2,
            protocol="sliced",
            transcript=transcript,
            debiased=debiased,
            scale=scale or 1.0,
            unit="features" if scale else "scaled features",
        )

    @property
    def distance(self) -> float:
        """Estimate of the distance; 0 when `squared` is negative."""
        return math.sqrt(max(self.squared, 0.0))

    @property
    def squared_standard_error(self) -> float:
        """Standard error of `squared`; 0 for a protocol without noise."""
        return 0.0 if self.debiased is None else self.debiased.standard_error * self.scale**2

    @property
    def standard_error(self) -> float:
        """Standard error of `distance`: half the width of its 68 % interval."""
        low, high = self.interval(_ONE_SIGMA)
        return (high - low) / 2

    @property
    def noise_floor(self) -> float:
        """What the noise alone adds to the squared distance; subtracted already."""
        return 0.0 if self.debiased is None else self.debiased.noise_floor * self.scale**2

    def interval(self, confidence: float = 0.95) -> tuple[float, float]:
        """Return a confidence interval for the distance.

        Parameters
        ----------
        confidence : float, default=0.95
            In (0, 1).

        Returns
        -------
        low, high : float
            For a protocol without noise the estimate itself, twice: its error is no noise, see
            the estimator.
        """
        if self.debiased is None:
            return self.distance, self.distance
        low, high = self.debiased.interval(confidence)
        return low * self.scale, high * self.scale

    def __repr__(self) -> str:
        return f"<DistanceEstimate {self._summary()}, protocol={self.protocol!r}>"

    def _repr_html_(self) -> str:
        """Return the estimate as a card for notebooks."""
        rows = [
            ("Distance", self._summary()),
            ("Squared", f"{self.squared:.6g}"),
            ("Noise floor of the squared distance", f"{self.noise_floor:.6g}"),
            ("Unit", self.unit),
            ("Sent", f"{len(self.transcript)} messages, {self.transcript.n_bytes:,} bytes"),
        ]
        return html_card("Wasserstein distance", self.protocol, rows)

    def _summary(self) -> str:
        if self.debiased is None:
            return f"{self.distance:.6g} (an upper bound)"
        low, high = self.interval()
        apart = "" if low > 0 else "; not told apart from 0"
        unit = "" if self.unit == "features" else f", in {self.unit}"
        return f"{self.distance:.4g}{unit} (95 %: {low:.4g} to {high:.4g}{apart})"


def common_scale(bounds: DataBounds, declared: bool) -> float | None:
    """Return the factor by which all features were scaled alike; None if they were not.

    None too for bounds that were found in the data: the unit of an estimate must not hang on
    what a release happened to be.
    """
    same = declared and np.all(bounds.scale == bounds.scale[0])
    return float(bounds.scale[0]) if same else None


def as_parties(
    parties: Any, protocol: str, new_budget: Callable[[], PrivacyBudget | None], **terms: Any
) -> list[Party]:
    """Return the parties of a matrix; rows get a party of their own, with a budget."""
    if not isinstance(parties, Mapping | Sequence) or isinstance(parties, str | bytes):
        raise TypeError("parties must be a sequence of Party, or a mapping of names to rows.")
    if len(parties) < 2:
        raise ValueError(f"parties must hold two parties or more, got {len(parties)}.")
    if isinstance(parties, Mapping):
        return [
            Party(name, rows, allows=(protocol,), budget=new_budget(), **terms)
            for name, rows in parties.items()
        ]
    if not all(isinstance(party, Party) for party in parties):
        raise TypeError("parties must be a sequence of Party, or a mapping of names to rows.")
    return list(parties)


def square(names: Sequence[str], values: Mapping[tuple[str, str], float]) -> pd.DataFrame:
    """Return a symmetric table, zero on the diagonal."""
    table = pd.DataFrame(0.0, index=list(names), columns=list(names))
    for (one, other), value in values.items():
        table.loc[one, other] = table.loc[other, one] = value
    return table
