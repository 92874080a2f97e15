"""What `PrivateWassersteinDistance` knows about one distance."""

import math
from dataclasses import dataclass

import numpy as np

from skdpot._utils.pages import html_card
from skdpot.federated.transcript import Transcript
from skdpot.privacy.data_bounds import DataBounds
from skdpot.slicing.debiased_distance import DebiasedDistance

__all__ = ["DistanceEstimate", "common_scale"]


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
        """Make an estimate from that of two sketches.

        Parameters
        ----------
        debiased : DebiasedDistance
            In the unit of the scaled features.
        bounds : DataBounds
            How features were scaled.
        transcript : Transcript
            What was sent.
        declared : bool
            Whether the bounds were known beforehand.

        Returns
        -------
        DistanceEstimate
        """
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


_ONE_SIGMA = 0.6826894921370859


def common_scale(bounds: DataBounds, declared: bool) -> float | None:
    """Return the factor by which all features were scaled alike; None if they were not.

    None too for bounds that were found in the data: the unit of an estimate must not hang on
    what a release happened to be.
    """
    same = declared and np.all(bounds.scale == bounds.scale[0])
    return float(bounds.scale[0]) if same else None
