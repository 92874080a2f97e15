"""Centre and scale of each feature, with their errors, also where noise hides much of them.

Where the noise is low, medians and pairs of the expected counts are exact for all shapes. Elsewhere
a feature is bell-shaped a priori: its size is known from the histogram of magnitudes, sizes of
features are alike, and a spread is about a quarter of the size. The posterior has the errors.
"""

import math
from dataclasses import dataclass
from functools import cached_property

import numpy as np
from scipy.special import logsumexp, softmax

from skdpot._utils.arrays import FloatArray
from skdpot.privacy.reliability import OutputError
from skdpot.release.feature_counts import FeatureCounts
from skdpot.release.noisy_cells import bell_posterior
from skdpot.release.value_histogram import Magnitudes

CLEAR_SIZE = 25.0  # rows per deviation of the noise, from which magnitudes need no prior
_CLEAR = 100.0  # the same for cells: bells are less exact than counts
# Shares of the values in the octave of a size, and in those below; of features far from 0, and not.
_SHARES = np.array([[0.05, 0.9, 0.05, 0.0, 0.0], [0.05, 0.4, 0.33, 0.15, 0.07]])
_ALIKE = 6.0  # octaves that sizes of features differ by, the scale of a Cauchy law
_SOME = 5.0  # deviations of the zeros, or none are taken for zero
_LOG_SHARE, _LOG_DEVIATION = math.log(0.25), 0.9  # of spreads in sizes: .05 to 1
_KNOWN_SIZE = 0.75  # octaves, as a standard deviation
_NARROW = 0.4  # cells: a spread below this is not seen
_CONSTANT = 3.5  # deviations of the noise that a cell of all rows lacks once in 4000 times
_CLEAR_CELL = 175.0  # rows per deviation of the noise; below, 2 % of the rows may be elsewhere
_SPIKE = 0.75  # cells: a spread below this is that of a common value, beside which others hide
_REACH = 2.5  # spreads that hold nearly all of a bell
_MOST_ROWS = 0.85  # share in a bell that need not be quite normal
_LACKING = 3.0  # deviations of the noise
_FAR_SMALLER = 0.05  # of the size: so narrow a bell must be shown to hold
_SURELY = 0.6  # of the rows
_MEDIAN = (0.45, 0.5, 0.55)
_OF_SPREAD = 3.0  # error of a spread, in errors of a level, of a bell
_OF_SHAPE = 0.15  # log error of the spread of a bell for features of other shapes
_OF_CELL, _LEAST_ERROR = 0.08, 0.03  # errors of medians and spreads in cells, beside the noise
_SHOWN_COUNT = 0.5  # deviations of the noise
_GOOD = 0.5  # spreads: an error that centring and scaling do not suffer from
_UNKNOWN = 3.0  # log error of a scale of which nothing is known


@dataclass(frozen=True)
class FeatureScale:
    """Centre and scale of one feature, their standard errors, and whether they were found."""

    center: float = 0.0
    spread: float = 1.0
    reach: float = 0.0
    center_error: float = 0.0
    log_error: float = _UNKNOWN  # of the spread
    found: bool = False
    constant: bool = False

    def error_of_center(self, name: str) -> OutputError:
        """State the error of the centre, beside 0."""
        return OutputError(
            output=f"the centre of {name}",
            estimate=self.center,
            standard_error=self.center_error,
            trivial="0",
            trivial_error=_beyond(abs(self.center), self.center_error),
            margin=_GOOD * self.spread,
            replaced=self.log_error >= _UNKNOWN,
        )

    def error_of_scale(self, name: str) -> OutputError:
        """State the error of the scale, beside what sizes of values tell of it."""
        guessed = _beyond(_LOG_DEVIATION, self.log_error)
        return OutputError(
            output=f"the scale of {name}",
            estimate=self.spread,
            standard_error=self.spread * math.expm1(min(self.log_error, _UNKNOWN)),
            trivial="a scale from the size of its values or from other features",
            trivial_error=0.0 if self.constant else self.spread * math.expm1(guessed),
            margin=_GOOD * self.spread,
            replaced=not self.found,
        )


@dataclass(frozen=True, eq=False)
class ScaledCounts(FeatureCounts):
    """The histogram of one feature whose size is known about, from that of its magnitudes."""

    size: float = 1.0
    size_error: float = 0.0  # octaves

    @property
    def is_clear(self) -> bool:
        """Whether the noise is so low that counts are more exact than bells."""
        return self.n_samples >= _CLEAR * self.sigma

    @cached_property
    def bell(self) -> tuple[float, float, float, float]:
        """Middle and log spread in cells, and their standard errors."""
        expected = math.log(self.size / self.cells.width) + _LOG_SHARE
        return bell_posterior(self.table, self.sigma, self.n_samples, expected, _LOG_DEVIATION)

    @cached_property
    def spread(self) -> float:
        """The spread of the values, or 0 if it is less than the cells show."""
        if self.is_clear:
            return super().spread
        log_spread = self.bell[2]
        return self.cells.width * math.exp(log_spread) if log_spread > math.log(_NARROW) else 0.0

    @property
    def in_one_cell(self) -> bool:
        """Whether one cell may hold all rows."""
        return bool(self.table.max() >= self.n_samples - _CONSTANT * self.sigma)

    @property
    def is_part(self) -> bool:
        """Whether the bell may be that of a part of the rows alone, or is not seen."""
        middle, _, log_spread, _ = self.bell
        spread = math.exp(log_spread)
        if spread < _SPIKE or self.in_one_cell:
            return True
        inside = np.abs(np.arange(self.table.size) + 0.5 - middle) < _REACH * spread + 0.5
        noise = self.sigma * math.sqrt(np.count_nonzero(inside))
        held = float(self.table[inside].sum())
        if spread * self.cells.width < _FAR_SMALLER * self.size and (
            held < _SURELY * self.n_samples + 2 * noise
        ):
            return True
        return held < _MOST_ROWS * self.n_samples - _LACKING * noise

    def estimate(self) -> FeatureScale:
        """Return the scale of this feature alone."""
        width, level, spread = self.cells.width, self._level_error, self.spread
        is_narrow = self.in_one_cell or (self.is_clear and not spread)
        if is_narrow and self.n_samples >= _CLEAR_CELL * self.sigma:
            middle = self.cells.lowest + width * (int(self.table.argmax()) + 0.5)
            error = width / math.sqrt(12) if self.sigma else 0.0
            return FeatureScale(middle, 1.0, 0.0, error, math.log1p(error), True, True)
        if self.is_clear and not is_narrow:
            low, center, high = map(float, self.quantiles(_MEDIAN))
            reach = super().scales[2]
            error = level * (high - low) / (_MEDIAN[2] - _MEDIAN[0])
            if not self.sigma:
                return FeatureScale(center, spread, reach, 0.0, 0.0, True)
            log_error = math.hypot(_OF_SPREAD * level, _OF_CELL * width / spread + _LEAST_ERROR)
            error = math.hypot(error, _OF_CELL * width)
            return FeatureScale(center, spread, reach, error, log_error, True)
        middle, middle_error, _, log_error = self.bell
        center, error = self.cells.lowest + width * middle, width * middle_error
        octaves = self.size_error * math.log(2.0)
        if self.is_part or self.size_error > _KNOWN_SIZE:
            guess = self.size * math.exp(_LOG_SHARE)
            log_error = min(_LOG_DEVIATION + octaves, _UNKNOWN)
            return FeatureScale(center, guess, guess, max(error, guess), log_error)
        log_error = math.hypot(log_error, octaves, _OF_SHAPE)
        error = math.hypot(error, _OF_SHAPE * spread)
        return FeatureScale(center, spread, 2 * spread, error, log_error, True)

    @property
    def _level_error(self) -> float:
        """The standard error of the share of the rows below the median."""
        shown = np.count_nonzero(self.counts > _SHOWN_COUNT * self.sigma)
        return 0.5 * self.sigma * math.sqrt(shown) / self.n_samples


def _beyond(size: float, error: float) -> float:
    """Return the part of a size that is no error; the squares of large numbers overflow."""
    return math.sqrt(size - error) * math.sqrt(size + error) if error < size else 0.0


def likely_sizes(
    sizes: Magnitudes, tables: FloatArray, sigma: float, n_samples: int
) -> tuple[FloatArray, FloatArray]:
    """Return the size of each feature, which most values are below, and its error in octaves.

    Sizes are alike a priori: their law is about the median of the likeliest ones.
    """
    zeros = np.where(tables[:, 0] > _SOME * sigma, tables[:, 0], 0.0)
    numbers = np.clip(n_samples - zeros, 0.1 * n_samples, n_samples)[:, None]
    octaves = tables[:, 1:]
    n_octaves = octaves.shape[1]
    logs = []
    for shares in _SHARES:
        padded = np.pad(octaves, ((0, 0), (len(shares) - 2, 1)))
        # Of a size in octave k, shares are of octaves k + 1, k, k - 1, ...
        fits = np.array([np.convolve(row, shares, "valid") for row in padded])
        logs.append((numbers * fits - 0.5 * (numbers * np.linalg.norm(shares)) ** 2) / sigma**2)
    likelihood = logsumexp(logs, axis=0)
    places = np.arange(n_octaves, dtype=np.float64)
    usual = float(np.flatnonzero([sizes.end(int(k) + 1) >= 1.0 for k in places])[0])
    for _ in range(3):
        prior = -np.log1p(((places - usual) / _ALIKE) ** 2)
        posterior = softmax(likelihood + prior, axis=1)
        likeliest = posterior.argmax(axis=1)
        weights = posterior.max(axis=1)
        order = np.argsort(likeliest)
        below = np.cumsum(weights[order])
        usual = float(likeliest[order][np.searchsorted(below, below[-1] / 2)])
    errors = np.sqrt((posterior * (places - likeliest[:, None]) ** 2).sum(axis=1))
    return np.array([sizes.end(int(k) + 1) for k in likeliest]), errors


def pooled_scales(estimates: list[FeatureScale]) -> list[FeatureScale]:
    """Return the scales, of which those that are quite unknown are the mean of the others."""
    logs = [math.log(e.spread) for e in estimates if e.found and not e.constant]
    pooled = math.exp(sum(logs) / len(logs)) if logs else 1.0
    return [
        FeatureScale(0.0, pooled, center_error=pooled * math.expm1(_UNKNOWN))
        if e.log_error >= _UNKNOWN
        else e
        for e in estimates
    ]
