"""What a comparison of parties returns: an estimated distance, or one for each pair."""

import math
from collections.abc import Mapping
from dataclasses import dataclass, replace
from typing import Any

import numpy as np
import pandas as pd

from skdpot._utils.pages import html_card
from skdpot.distance.debiased import DebiasedDistance
from skdpot.distance.transcript import Transcript
from skdpot.release.bounds import DataBounds

_ONE_SIGMA = 0.6826894921370859  # confidence of an interval of one standard deviation


@dataclass(frozen=True, eq=False, repr=False)
class DistanceEstimate:
    """An estimated distance between two parties, with its uncertainty.

    `details` is what the estimate was made from: a `DebiasedDistance`, the plan between two
    messages, the path of FedWad or the parabola of a secret t.
    """

    protocol: str
    squared_distance: float
    transcript: Transcript
    details: Any = None
    scale: float = 1.0
    unit: str = "features"

    def in_features(self, bounds: DataBounds, declared: bool) -> "DistanceEstimate":
        """Return the estimate of two sketches in the unit of the features, if there is one."""
        scale = common_scale(bounds, declared)
        return replace(
            self,
            squared_distance=self.details.squared * (scale or 1.0) ** 2,
            scale=scale or 1.0,
            unit="features" if scale else "scaled features",
        )

    @property
    def distance(self) -> float:
        """Estimate of the distance; 0 when `squared_distance` is negative."""
        return math.sqrt(max(self.squared_distance, 0.0))

    @property
    def squared_standard_error(self) -> float:
        """Standard error of `squared_distance`; 0 for a protocol without noise."""
        return self.scale**2 * getattr(self.details, "standard_error", 0.0)

    @property
    def standard_error(self) -> float:
        """Standard error of `distance`: half the width of its 68 % interval."""
        low, high = self.interval(_ONE_SIGMA)
        return (high - low) / 2

    @property
    def noise_floor(self) -> float:
        """What noise alone adds to the squared distance; it has been subtracted."""
        return self.scale**2 * getattr(self.details, "noise_floor", 0.0)

    def interval(
        self, confidence: float = 0.95, *, of: str = "directions", hidden: bool = False
    ) -> tuple[float, float]:
        """Return a confidence interval for the distance of the clipped rows.

        It holds along the "directions" of the sketches, or over all directions of the "space", and
        covers the mass that stands out of the noise. With `hidden` the upper end also covers what
        noise can hide beyond the bulk of the data.
        """
        if not self._is_sketched:
            return self.distance, self.distance
        low, high = self.details.interval(confidence, of=of, hidden=hidden)
        return low * self.scale, high * self.scale

    def __repr__(self) -> str:
        return f"<DistanceEstimate {self._summary()}, protocol={self.protocol!r}>"

    def _repr_html_(self) -> str:
        rows = [
            ("Distance", self._summary()),
            ("Squared", f"{self.squared_distance:.6g}"),
            ("Noise floor of the squared distance", f"{self.noise_floor:.6g}"),
            ("Unit", self.unit),
            ("Of", "rows clipped to the bounds" if self._is_sketched else "rows"),
            ("Sent", f"{len(self.transcript)} messages, {self.transcript.n_bytes:,} bytes"),
        ]
        return html_card("Wasserstein distance", self.protocol, rows)

    @property
    def _is_sketched(self) -> bool:
        return isinstance(self.details, DebiasedDistance)

    def _summary(self) -> str:
        if not self._is_sketched:
            return f"{self.distance:.6g} (an upper bound)"
        low, high = self.interval()
        apart = "" if low > 0 else "; not told apart from 0"
        unit = "" if self.unit == "features" else f", in {self.unit}"
        most = self.interval(hidden=True)[1]
        hides = f"; noise can hide a little mass far away, up to {most:.4g}" if most > high else ""
        ends = f"95 %: {low:.4g} to {high:.4g}{apart}{hides}"
        return f"{self.distance:.4g}{unit}, of clipped rows ({ends})"


@dataclass(frozen=True, eq=False, repr=False)
class PairwiseResult:
    """The distances between all parties."""

    protocol: str
    names: tuple[str, ...]
    estimates: Mapping[tuple[str, str], DistanceEstimate]
    transcript: Transcript

    @property
    def squared_distances(self) -> np.ndarray:
        """Squared distances of shape (n_parties, n_parties): symmetric, zero on the diagonal."""
        return self._frame("squared_distance").to_numpy()

    @property
    def distances(self) -> np.ndarray:
        """The distances; 0 where the estimate of a square is negative."""
        return self.to_frame().to_numpy()

    def to_frame(self) -> pd.DataFrame:
        """Return the distances as a table, with the names of the parties on both sides."""
        return self._frame("distance")

    def standard_errors(self) -> pd.DataFrame:
        """Return the standard errors of the distances as a table."""
        return self._frame("standard_error")

    def _frame(self, attribute: str) -> pd.DataFrame:
        table = pd.DataFrame(0.0, index=list(self.names), columns=list(self.names))
        for (first, second), estimate in self.estimates.items():
            table.loc[first, second] = table.loc[second, first] = getattr(estimate, attribute)
        return table

    def __repr__(self) -> str:
        return (
            f"<PairwiseResult of {self.protocol!r}: {len(self.names)} parties, "
            f"{len(self.transcript)} messages, {self.transcript.n_bytes} bytes>"
        )


def common_scale(bounds: DataBounds, declared: bool) -> float | None:
    """Return the factor by which all features were scaled alike, or None if there is none."""
    is_identity = not bounds.center.any() and np.all(bounds.scale == 1.0)
    is_common = is_identity or (declared and np.all(bounds.scale == bounds.scale[0]))
    return float(bounds.scale[0]) if is_common else None
