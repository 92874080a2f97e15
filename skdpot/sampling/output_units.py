"""The units of a generator's outputs, from a release or from the bounds."""

import math
from dataclasses import dataclass

import numpy as np

from skdpot.ot.slices import CDFTable
from skdpot.release.bounds import DataBounds
from skdpot.sampling.feature_laws import start_of_rows
from skdpot.sampling.row_releases import SmoothedProjections

_N_LEVELS = 256  # of quantiles that mean and spread are computed from
_NARROWEST = 1e-3  # spread, as a share of the range of the table


@dataclass(frozen=True, eq=False)
class OutputUnits:
    """An affine map from a network's outputs to the mapped rows: ``location + scale * y``."""

    location: np.ndarray
    scale: float

    @classmethod
    def of_ball(cls, bounds: DataBounds) -> "OutputUnits":
        """Scale the ball of the mapped rows to the radius √d, where nothing has been released."""
        scale = bounds.radius / math.sqrt(bounds.n_features)
        return cls(np.zeros(bounds.n_features), scale)

    @classmethod
    def of_table(cls, table: CDFTable) -> "OutputUnits":
        """Compute mean and spread from a table of distribution functions."""
        levels = (np.arange(_N_LEVELS) + 0.5) / _N_LEVELS
        quantiles = table.quantiles(levels)
        location = np.linalg.lstsq(table.directions, quantiles.mean(axis=1))[0]
        narrowest = _NARROWEST * float(table.half_widths.max())
        return cls(location, max(math.sqrt(quantiles.var(axis=1).mean()), narrowest))

    @classmethod
    def of_release(cls, projections: SmoothedProjections) -> "OutputUnits":
        """Compute mean and spread from noisy projections."""
        return cls(*start_of_rows(projections))

    def to_mapped(self, outputs: np.ndarray) -> np.ndarray:
        """Map outputs of shape (n_rows, n_features) to the units of the mapped rows."""
        return self.location + self.scale * outputs
