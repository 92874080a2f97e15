"""The two sides of a comparison: released tables, or public rows binned like them."""

import hashlib
import math
from dataclasses import dataclass
from typing import Any

import numpy as np

from skdpot._utils.validation import validate_rows
from skdpot.slicing.histogram import count_projections
from skdpot.slicing.merging import check_comparable
from skdpot.slicing.sketch import SlicedSketch
from skdpot.slicing.strategy import square_root_strategy
from skdpot.slicing.supported_decoding import SupportedDecoder, restricted
from skdpot.slicing.table import CDFTable

__all__ = ["ComparedTable", "compared_tables"]

_ROWS_KEPT = 2048  # of public rows, to sample from


@dataclass(frozen=True, eq=False)
class ComparedTable:
    """One side of a comparison.

    Parameters
    ----------
    statistic : ndarray of shape (n_slices, n_bins)
        Released entries of all rows together; without noise for public rows.
    n_samples : int
        Number of rows.
    noise : float
        Standard deviation of the noise of each entry, divided by the number of rows.
    smooth : CDFTable
        Best guess of the distribution functions.
    rows : ndarray of shape (n_rows, n_slices) or None
        Projections of some of the rows, when they are public.
    """

    statistic: np.ndarray
    n_samples: int
    noise: float
    smooth: CDFTable
    rows: np.ndarray | None = None

    @property
    def n_bins(self) -> int:
        """Number of bins B."""
        n_bins: int = self.statistic.shape[1]
        return n_bins

    @property
    def digest(self) -> bytes:
        """Hash of what was released."""
        facts = repr((self.statistic.shape, self.n_samples, self.noise)).encode()
        return hashlib.sha256(facts + np.ascontiguousarray(self.statistic).tobytes()).digest()

    @property
    def cdf_noise(self) -> float:
        """Typical standard deviation of the noise of a distribution function."""
        return self.noise * square_root_strategy(self.n_bins).typical_deviation

    @property
    def variance(self) -> float:
        """About the variance of a distribution function: that of noise, and of sampling."""
        return self.cdf_noise**2 + 0.25 / self.n_samples

    def decoded(self, decoder: SupportedDecoder, support: np.ndarray) -> np.ndarray:
        """Return the distribution functions to compare; exact where there is no noise."""
        if self.noise > 0:
            return decoder.decode(self.statistic, self.n_samples)
        return self.guess(support)

    def guess(self, support: np.ndarray) -> np.ndarray:
        """Return the distribution functions that simulations start from."""
        return restricted(self.smooth.cdf, support)


def compared_tables(first: Any, second: Any) -> tuple[ComparedTable, ComparedTable]:
    """Read the two sides of a comparison, in an order that does not depend on the arguments'.

    Parameters
    ----------
    first : SlicedSketch
        Closed.
    second : SlicedSketch or array-like of shape (n_samples, n_features)
        A closed sketch, or public rows.

    Returns
    -------
    tuple of ComparedTable

    Raises
    ------
    OpenSketchError
        If a sketch is open.
    ValueError
        If `first` is no sketch, the sketches measure different things, or are one release.
    """
    if not isinstance(first, SlicedSketch):
        raise ValueError(
            f"first must be a SlicedSketch, got {type(first).__name__}; pass public rows as second."
        )
    first._check_readable()
    one = _released(first)
    if isinstance(second, SlicedSketch):
        second._check_readable()
        check_comparable((first, second))
        two = _released(second)
        if one.noise > 0 and two.noise > 0 and np.array_equal(one.statistic, two.statistic):
            raise ValueError(
                "Both sketches are the same release: the same noise on both sides tells nothing "
                "about a distance. Compare sketches of different people's rows."
            )
    else:
        two = _counted(first, second)
    return (one, two) if one.digest <= two.digest else (two, one)


def _released(sketch: SlicedSketch) -> ComparedTable:
    """Read a sketch; the tables of its classes add up to that of all rows, and so does noise."""
    n_classes = len(sketch.statistic_)
    return ComparedTable(
        sketch.statistic_.sum(axis=0),
        sketch.n_samples_,
        sketch.noise_scale_ * math.sqrt(n_classes) / sketch.n_samples_,
        sketch.table(),
    )


def _counted(sketch: SlicedSketch, public: Any) -> ComparedTable:
    """Bin public rows as those of the sketch were."""
    rows = validate_rows(sketch, public, reset=False)
    n_bins = sketch.statistic_.shape[-1]
    directions, widths = sketch.directions_, sketch.half_widths_
    counts = count_projections(rows, directions, widths, n_bins, bounds=sketch.bounds_)
    cdf = np.zeros((len(counts), n_bins + 1))
    cdf[:, 1:] = np.cumsum(counts, axis=1) / len(rows)
    statistic = counts @ square_root_strategy(n_bins).matrix.T
    some = rows[:: -(-len(rows) // _ROWS_KEPT)]
    return ComparedTable(
        statistic,
        len(rows),
        0.0,
        CDFTable(directions, widths, cdf),
        sketch.bounds_.to_ball(some) @ directions.T,
    )
