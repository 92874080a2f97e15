"""Quantile functions of piecewise linear distribution functions, many rows at once.

Two distribution functions on the same equal bins have quantile functions that are linear
between the levels at which either of them passes a bin edge. On these pieces everything about
the two is exact.

Beyond the data there is nothing but noise, and noise there costs most: a little mass far away
adds its squared distance. Where a distribution function is taken to be 0 or 1 the noise is
known, and because it is correlated along a direction, so is part of the noise beside it.
"""

from collections.abc import Sequence

import numpy as np
from scipy.interpolate import PchipInterpolator

from skdpot.slicing.plan import SquareRootStrategy, square_root_strategy
from skdpot.slicing.table import CDFTable, increasing, known_total


def squared_distances(first: np.ndarray, second: np.ndarray) -> np.ndarray:
    """Return W₂² between the rows of two tables of distribution functions, in squared bins."""
    first, second = _without_dust(first), _without_dust(second)
    levels = np.concatenate([first, second], axis=1)
    order = np.argsort(levels, axis=1)
    levels = np.take_along_axis(levels, order, axis=1)
    passed = np.cumsum(order < first.shape[1], axis=1)[:, :-1]
    both = np.arange(1, levels.shape[1])
    ends = levels[:, :-1], levels[:, 1:]
    one = _positions(first, passed - 1, *ends)
    other = _positions(second, both - passed - 1, *ends)
    left, right = one[0] - other[0], one[1] - other[1]
    squares = left**2 + left * right + right**2
    integrals: np.ndarray = np.einsum("ij,ij->i", ends[1] - ends[0], squares) / 3
    return integrals


def refined(cdf: np.ndarray, factor: int) -> np.ndarray:
    """Draw smooth curves through the values at the bin edges: no mass is spread evenly.

    Binning does not touch the values at the edges; what is lost is the shape in between, and
    with it a part of the distance between a narrow and a wide measure, or one peak and two.

    References
    ----------
    F. N. Fritsch, J. Butland, "A method for constructing local monotone piecewise cubic
    interpolants", SIAM J. Sci. Stat. Comput. 5 (1984).
    """
    n_bins = cdf.shape[1] - 1
    cdf = _without_dust(cdf)
    curve = PchipInterpolator(np.arange(n_bins + 1), cdf, axis=1)
    values = curve(np.arange(factor * n_bins + 1) / factor)
    values[:, 0], values[:, -1] = cdf[:, 0], cdf[:, -1]
    return np.clip(np.maximum.accumulate(values, axis=1), 0.0, 1.0)


def _without_dust(cdf: np.ndarray) -> np.ndarray:
    """Make steps that are rounding errors flat: their slopes would overflow."""
    return np.round(cdf, 13)


def _positions(
    cdf: np.ndarray, bins: np.ndarray, start: np.ndarray, end: np.ndarray
) -> tuple[np.ndarray, np.ndarray]:
    """Return the quantiles at both ends of pieces that lie within the given bins."""
    at = np.clip(bins, 0, cdf.shape[1] - 2)
    low = np.take_along_axis(cdf, at, axis=1)
    rise = np.take_along_axis(cdf, at + 1, axis=1) - low
    scale = np.divide(1.0, rise, out=np.zeros_like(rise), where=rise > 0)
    first, last = (np.clip((levels - low) * scale, 0.0, 1.0) for levels in (start, end))
    return at + first, at + last


_TAIL = 0.05  # a share of the mass that stands out of the noise of most tables
_WIDER = 1.0  # with noise of _COMMON_NOISE, the stretch is so much wider than to that quantile
_COMMON_NOISE = 0.006
_WIDER_A_DECADE = 0.25  # for each tenth of the noise
_MOST_ENTRIES = 2**28
_LEAST_WIDER, _MOST_WIDER = 0.8, 2.0
_CLEARLY, _SURELY = 3.0, 4.5  # deviations of the noise: all directions together, one alone
_NEGLIGIBLE, _NOTICED = 0.001, 0.01  # shares of the mass: of all directions, of one


def common_support(
    tables: Sequence[CDFTable], statistics: Sequence[np.ndarray], noises: Sequence[float]
) -> np.ndarray:
    """Find the bins that hold the data of all tables but for the ends of their tails.

    From the median to the 5 % and 95 % quantiles and about as far again: 3.3 standard deviations
    of a Gaussian where noise is 0.006, 3 where it is more, and up to 5 where there is less of it.
    All bins along a direction that shows more mass beyond than noise explains, and along all
    directions where together they show a tenth of a per cent more: little mass, but far away,
    can be most of a distance, and where it is does not show.
    """
    n_bins = tables[0].cdf.shape[1] - 1
    strategy = square_root_strategy(n_bins)
    typical = max(noises) * strategy.typical_deviation
    wider = _WIDER + _WIDER_A_DECADE * np.log10(_COMMON_NOISE / max(typical, 1e-12))
    stretch = 1 + np.clip(wider, _LEAST_WIDER, _MOST_WIDER)
    lows, highs = [], []
    for table in tables:
        quantiles = table.quantiles(np.array([_TAIL, 0.5, 1 - _TAIL]))
        quantiles = (quantiles - table.edges[:, :1]) / (2 * table.half_widths[:, None] / n_bins)
        low, middle, high = quantiles.T
        lows.append(middle - stretch * (middle - low))
        highs.append(middle + stretch * (high - middle))
    first = np.clip(np.floor(np.min(lows, axis=0)), 0, n_bins - 2).astype(np.intp)
    last = np.clip(np.ceil(np.max(highs, axis=0)), first + 2, n_bins).astype(np.intp)
    deviations = np.sqrt(np.diag(strategy.known_total_covariance))
    for statistic, noise in zip(statistics, noises, strict=True):
        inner = known_total(statistic @ strategy.decoder.T, strategy, 1.0)
        missed = _mass_beyond(inner, deviations * noise, first, last)
        first, last = np.where(missed, 0, first), np.where(missed, n_bins, last)
    return np.stack([first, last], axis=1)


def _mass_beyond(
    inner: np.ndarray, deviations: np.ndarray, first: np.ndarray, last: np.ndarray
) -> np.ndarray:
    """Say along which directions noise does not explain the mass outside of first to last."""
    rows = np.arange(len(inner))
    padded = np.pad(inner, ((0, 0), (1, 1)), constant_values=((0, 0), (0.0, 1.0)))
    spread = np.pad(deviations, 1)
    beyond = padded[rows, first] + 1.0 - padded[rows, last]
    # The two ends together: at most as uncertain as if they were one.
    noise = spread[first] + spread[last]
    alone = beyond > _SURELY * noise + _NOTICED
    together = beyond.mean() > _CLEARLY * np.linalg.norm(noise) / len(noise) + _NEGLIGIBLE
    missed: np.ndarray = alone | together
    return missed


def restricted(cdf: np.ndarray, support: np.ndarray) -> np.ndarray:
    """Move what lies outside of each row's support to its ends."""
    edges = np.arange(cdf.shape[1])
    cut: np.ndarray = np.where(edges <= support[:, :1], 0.0, cdf)
    return np.where(edges >= support[:, 1:], 1.0, cut)


class SupportedDecoder:
    """From released entries to distribution functions, given their supports (n_projections, 2).

    The histogram that fits best among those of the known total on the support: generalised
    least squares for the cumulative counts, without any prior on their shape. It is linear up
    to the isotonic regression at the end.
    """

    def __init__(self, strategy: SquareRootStrategy, support: np.ndarray) -> None:
        if len(support) * strategy.n_bins**2 > _MOST_ENTRIES:
            raise ValueError(
                f"A comparison of {len(support)} slices of {strategy.n_bins} bins takes too much "
                f"memory: n_projections * n_bins**2 may be {_MOST_ENTRIES} at most. "
                "SlicedSketch.distance compares any, without subtracting noise."
            )
        spans, row = np.unique(support, axis=0, return_inverse=True)
        maps = [_cumulative_map(strategy, int(first), int(last)) for first, last in spans]
        self._gains = np.stack([gain for gain, _ in maps])[row.ravel()]
        self._offsets = np.stack([offset for _, offset in maps])[row.ravel()]

    def decode(self, statistic: np.ndarray, n_samples: int) -> np.ndarray:
        """Decode a released table."""
        return increasing(self._inner(statistic / n_samples) + self._offsets)

    def remeasured(self, inner: np.ndarray, noise: np.ndarray | None) -> np.ndarray:
        """Decode what a measurement of known functions with the given noise would be."""
        return increasing(inner if noise is None else inner + self._inner(noise))

    def _inner(self, entries: np.ndarray) -> np.ndarray:
        values: np.ndarray = np.matmul(self._gains, entries[:, :, None])[:, :, 0]
        return values


def _cumulative_map(
    strategy: SquareRootStrategy, first: int, last: int
) -> tuple[np.ndarray, np.ndarray]:
    """Return gain and offset from entries to inner values, for data in bins first to last - 1.

    Least squares under ``sum(h) = 1``: ``h = G s + (1 - 1ᵀG s) q``, where G is the pseudo-inverse
    of the columns of A that the data can reach, and q the direction in which the fit suffers
    least, ``(AᵀA)⁻¹1`` scaled to sum to one.
    """
    n_bins = strategy.n_bins
    reached = strategy.matrix[:, first:last]
    inverse = np.linalg.inv(reached.T @ reached)
    pseudo = inverse @ reached.T
    give = inverse.sum(axis=1) / inverse.sum()
    gain, offset = np.zeros((n_bins - 1, n_bins)), np.zeros(n_bins - 1)
    within = slice(first, last - 1)
    gain[within] = np.cumsum(pseudo - np.outer(give, pseudo.sum(axis=0)), axis=0)[:-1]
    offset[within] = np.cumsum(give)[:-1]
    offset[last - 1 :] = 1.0
    return gain, offset
