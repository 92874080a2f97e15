"""Bounds that are estimated privately, by rounds of histograms.

A histogram is a sum over rows. There are two kinds of rounds:

- *features*: the powers of two of the absolute values tell how large those of each feature are.
  Cells between these, equally wide, are divided again where all rows are in a few of them, or else
  counted again, which tells a centre and a spread.
- *norms* about that centre, in units of the spread, give a radius, if there are enough rows. Of
  fewer rows, norms about the origin are counted, of few features after one round of absolute
  values that tells which are far smaller than others; else only norms.

The cells of a round depend on the releases before it only (adaptive composition). For columns of a
table, `release_ranges` reads two bounds that hold nearly all values from the same histograms.
`skdpot.release.value_histogram` has their sensitivity.
"""

import math
from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from functools import partial
from typing import Any, Literal, TypeAlias, cast

import numpy as np
import numpy.typing as npt

from skdpot._utils.arrays import FloatArray
from skdpot._utils.streams import Streams
from skdpot.exceptions import warn_of_privacy
from skdpot.privacy.events import ComposedEvent, Event, GaussianEvent, NonPrivateEvent
from skdpot.privacy.noise import calibrate_lattice, check_counts
from skdpot.release.bounds import DataBounds
from skdpot.release.feature_counts import EqualCells, FeatureCounts
from skdpot.release.feature_scales import (
    CLEAR_SIZE,
    FeatureScale,
    ScaledCounts,
    likely_sizes,
    pooled_scales,
)
from skdpot.release.noisy_cells import cells_seen, expected_counts, noisy_quantiles, threshold
from skdpot.release.value_histogram import (
    Histograms,
    Intervals,
    Magnitudes,
    Norms,
    release_histograms,
)
from skdpot.sources.rows import Rows

MAX_AUTO_FEATURES = 32
_MAX_UNITS = 5  # features; of more, noise takes features of clusters for small ones
N_ROUNDS = 5  # of histograms of features
_LARGEST_SHARE = 0.1  # of the squared mu of a whole fit
_SMALLEST_SHARE = 0.002
_ROWS_OVER_NOISE = 27.0
_NORM_SHARE = 0.1  # of what bounds by features get
_NORM_TAIL = 0.03
_LARGEST_NORM_TAIL = 0.25
_NORM_PARTS = 4
_N_CELLS = 64
_N_EXACT_CELLS = 2**14
_LARGEST_RADIUS = 2.0**64
_FEWEST = (1.0, 2.0)  # cells in a spread, or else they are divided
_REACH = 3.0
_LARGEST_WIDENING = 4.0
_FAR_SMALLER = 4.0
_SHOWN = 0.5
_LARGE = 0.75
_OCTAVES = 4  # that hold most values, and above these,
_FEW = 0.2  # of the rows


@dataclass(frozen=True, kw_only=True)
class BoundsPlan:
    """The public part of a release of private bounds, fixed before any row is read.

    `features` is the noise of the rounds that find the centre and spread of each feature, or of
    the one that finds its size, `norms` that of a histogram of norms. None is no such release, or
    no noise if the plan has no event.
    """

    n_samples: int
    n_features: int
    by_features: bool
    features: GaussianEvent | None = None
    norms: GaussianEvent | None = None

    @property
    def event(self) -> Event:
        """The charge for the whole release."""
        noises = tuple(noise for noise in (self.features, self.norms) if noise is not None)
        if len(noises) == 1:
            return noises[0]
        return ComposedEvent(events=noises) if noises else NonPrivateEvent()

    def before(self, event: Event) -> Event:
        """Return the cost of a fit that estimates its bounds first."""
        return ComposedEvent(events=(self.event, event))

    def settled(self, rows: npt.NDArray[Any] | Rows, streams: Streams) -> DataBounds:
        """Release the bounds; the caller has charged `event`."""
        return release_private_bounds(rows, self, streams)

    @property
    def norm_level(self) -> float:
        """Share of the rows in the radius, lower when the noise hides the rest."""
        # Three standard deviations of a count are the noise of a sum over nine cells.
        hidden = 3 * self.norms.sigma / self.n_samples if self.norms else 0.0
        return 1 - min(max(_NORM_TAIL, hidden), _LARGEST_NORM_TAIL)

    @property
    def clears_threshold(self) -> bool:
        """Whether features of ordinary shape are expected to stand out from the noise."""
        cells = self.n_features * Magnitudes(n_features=1).shape[1]
        return self.features is None or self._shows(self.features, cells, 2)

    @property
    def shows_norms(self) -> bool:
        """Whether norms of ordinary rows are expected to stand out from the noise."""
        cells = Magnitudes(n_features=1, parts=_NORM_PARTS).shape[1]
        return self.norms is None or self._shows(self.norms, cells, 2 * _NORM_PARTS)

    def _shows(self, noise: GaussianEvent, cells: int, window: int) -> bool:
        # Half of the rows in two octaves.
        return 0.5 * self.n_samples >= threshold(cells) * math.sqrt(window) * noise.sigma


def bounds_share(n_samples: int, n_features: int, mu: float, group_size: int = 1) -> float:
    """Return the share of the squared mu of a fit that its private bounds get.

    The noise of a count, if all went to one round, is then a third of the square root of the number
    of rows, comparable to sampling variation: 10 % for few rows, .3 % at epsilon = 1 for a million
    rows of 8 features.
    """
    n_histograms = n_features if n_features <= MAX_AUTO_FEATURES else 1
    enough = _ROWS_OVER_NOISE * n_histograms * (group_size / mu) ** 2 / n_samples
    return min(max(enough, _SMALLEST_SHARE), _LARGEST_SHARE)


def planned_bounds(
    bounds: DataBounds | int, n_features: int, mu: float, group_size: int = 1
) -> DataBounds | BoundsPlan:
    """Return public bounds as they are, or plan their estimation from so many rows."""
    if isinstance(bounds, DataBounds):
        return bounds
    of_bounds = mu * math.sqrt(bounds_share(bounds, n_features, mu, group_size))
    return plan_private_bounds(bounds, n_features, of_bounds, group_size=group_size)


def plan_private_bounds(
    n_samples: int,
    n_features: int,
    mu: float,
    *,
    mode: Literal["auto", "features", "norm"] = "auto",
    group_size: int = 1,
) -> BoundsPlan:
    """Fix the procedure and the cost; "features" are centres and spreads without a radius."""
    check_counts(n_samples=n_samples, n_features=n_features, group_size=group_size)
    made = partial(BoundsPlan, n_samples=n_samples, n_features=n_features)
    if mu == math.inf:
        return made(by_features=mode == "features" or n_features <= MAX_AUTO_FEATURES)
    norms = partial(_of_counts, group_size * math.sqrt(2), "norms")
    if mode != "norm":
        left = 1.0 if mode == "features" else 1 - _NORM_SHARE
        sensitivity = group_size * math.sqrt(2 * n_features)
        each = partial(_of_counts, sensitivity, "values")
        steps = each(mu * math.sqrt(left / N_ROUNDS))
        plan = made(by_features=True, features=replace(steps, n_steps=N_ROUNDS))
        if mode == "features":
            return plan
        if n_features <= MAX_AUTO_FEATURES and plan.clears_threshold:
            return replace(plan, norms=norms(mu * math.sqrt(_NORM_SHARE)))
        half = mu * math.sqrt(0.5)
        plan = made(by_features=False, features=each(half), norms=norms(half))
        if 1 < n_features <= _MAX_UNITS and plan.clears_threshold and plan.shows_norms:
            return plan
    return made(by_features=False, norms=norms(mu))


def _of_counts(sensitivity: float, counted: str, mu: float) -> GaussianEvent:
    # The factor absorbs the rounding of the roots: the squares must not exceed mu**2.
    noise = calibrate_lattice(mu * (1 - 1e-13), sensitivity)
    return GaussianEvent(**vars(noise), label=f"Histograms of {counted}")


AnyRows: TypeAlias = npt.NDArray[Any] | Rows


@dataclass(frozen=True)
class FeatureScales:
    """Released location and scale of every feature."""

    center: FloatArray
    spread: FloatArray
    reach: FloatArray


def ball_radius(n_features: int) -> float:
    """Return a radius that holds nearly all rows of features with unit spread."""
    # A standard normal row has a norm of sqrt(d) +- 0.7; more leaves room for correlations.
    return math.sqrt(n_features) + 2.5


def release_private_bounds(rows: AnyRows, plan: BoundsPlan, streams: Streams) -> DataBounds:
    """Release bounds for rows, or batches of them. Charge ``plan.event`` first.

    Privacy
    -------
    Releases the bounds, under ``plan.event`` and replace-one; the number of rows and of features is
    public. The number of clipped rows is never reported.
    """
    center, unit = np.zeros(plan.n_features), np.ones(plan.n_features)
    if plan.by_features:
        scales = release_feature_scales(rows, plan, streams)
        center = scales.center
        # Heavy tails and clusters get a wider unit, within limits.
        unit = np.clip(scales.reach / _REACH, scales.spread, _LARGEST_WIDENING * scales.spread)
    elif plan.features is not None:
        unit = _release_units(rows, plan, streams)
    elif 1 < plan.n_features <= MAX_AUTO_FEATURES:
        warn_of_privacy(
            "Private bounds: there are too few rows, for this privacy, to find a scale for each "
            "feature. All rows are in one ball about the origin, in the unit that the features "
            "have, and features that are small beside others will be lost. Use more rows or a "
            "larger epsilon, or declare public limits where the estimator takes them."
        )
    shape: dict[str, Any] = {"n_features": plan.n_features, "parts": _NORM_PARTS}
    norms = Norms(center=center, scale=unit, **shape)
    table = release_histograms(norms, rows, plan.norms, streams.secret, plan.event)[0]
    sigma = plan.norms.sigma if plan.norms else 0.0
    seen = cells_seen(table, sigma, threshold(table.size))
    if not seen.size:
        of = "the scales that were found" if plan.by_features else "the features' own unit"
        _warn_fallback("the row norms", f"radius {ball_radius(plan.n_features):.3g} in {of}")
        return DataBounds(center, unit, ball_radius(plan.n_features))
    if sigma:
        seen = seen[seen.size // 2] + np.arange(-_N_CELLS // 2, _N_CELLS // 2)
        seen = seen[(seen >= 0) & (seen < table.size)]
    counts = expected_counts(table[seen], sigma, plan.n_samples)
    # Where units fit the features, a cell more costs little and holds what the noise hides.
    cell = int(noisy_quantiles(counts, seen, [plan.norm_level])[0]) + plan.by_features
    radius, usual = norms.end(max(cell, 1)), ball_radius(plan.n_features)
    largest = _LARGEST_WIDENING * usual if plan.by_features else _LARGEST_RADIUS
    return DataBounds(center, unit, float(np.clip(radius, 1 / _LARGEST_RADIUS, largest)))


def _release_units(rows: AnyRows, plan: BoundsPlan, streams: Streams) -> FloatArray:
    """Release a unit of each feature, 1 unless its values are far smaller than the largest."""
    noise = cast(GaussianEvent, plan.features)
    sizes = Magnitudes(n_features=plan.n_features)
    tables = release_histograms(sizes, rows, noise, streams.secret, plan.event)[:, 1:]
    totals = np.array([np.convolve(table, np.ones(_OCTAVES), "valid") for table in tables])
    cells = totals.argmax(axis=1)[:, None] + np.arange(_OCTAVES)
    counts = np.maximum(np.take_along_axis(tables, cells, axis=1), 0.0)
    # The octave of a quantile of what is in the octaves that hold most.
    below = np.cumsum(counts, axis=1) < _LARGE * counts.sum(axis=1, keepdims=True)
    octave_ends = [sizes.end(int(cell)) for cell in cells[:, 0] + below.sum(axis=1) + 1]
    shown = totals.max(axis=1) > _SHOWN * plan.n_samples
    usual = np.where(shown, octave_ends, 0.0)
    largest = max(float(usual.max()), 2.0**-1000)
    ends = np.array([sizes.end(cell + 1) for cell in range(tables.shape[1])])
    above = ends > usual[:, None]
    beyond = np.where(above & (ends <= 2.0**_OCTAVES * usual[:, None]), tables, 0.0).sum(axis=1)
    smaller = shown & (_FAR_SMALLER * usual < largest) & (beyond < _FEW * plan.n_samples)
    unknown = ~smaller & ~(shown & (_FAR_SMALLER * usual >= largest))
    if unknown.any():
        public = "the unit of the largest: if they are far smaller, they will be lost"
        _warn_fallback(f"the sizes of {unknown.sum()} of {len(unknown)} features", public)
    return np.where(smaller, usual / largest, 1.0)


def release_feature_scales(rows: AnyRows, plan: BoundsPlan, streams: Streams) -> FeatureScales:
    """Release centre and spread of each feature. Charge ``plan.event`` first.

    Privacy
    -------
    Noisy histograms of each feature in rounds; the number of rows and of features is public.
    """
    features = _release_features(rows, plan, streams)
    if hidden := sum(feature is None for feature in features):
        _warn_fallback(f"{hidden} of {len(features)} features", "centre 0, scale 1")
    return FeatureScales(
        *np.array([feature.scales if feature else (0.0, 1.0, 0.0) for feature in features]).T
    )


def release_scales(rows: AnyRows, plan: BoundsPlan, streams: Streams) -> list[FeatureScale]:
    """Release the scale of each feature with its errors. Charge ``plan.event`` first.

    Privacy
    -------
    The histograms of `release_feature_scales`; all else follows from them.
    """
    features = cast(list[ScaledCounts], _release_features(rows, plan, streams, scaled=True))
    return pooled_scales([feature.estimate() for feature in features])


def _release_features(
    rows: AnyRows, plan: BoundsPlan, streams: Streams, scaled: bool = False
) -> list[FeatureCounts | None]:
    """Release what is known of each feature, None where nothing stands out.

    Those that are `scaled` have sizes by which they are known where nothing stands out.
    """
    d, noise = plan.n_features, plan.features
    sigma, n_cells = (noise.sigma, _N_CELLS) if noise else (0.0, _N_EXACT_CELLS)

    def release(histograms: Histograms) -> FloatArray:
        return release_histograms(histograms, rows, noise, streams.secret, plan.event)

    sizes = Magnitudes(n_features=d)
    tables = release(sizes)
    ends = [sizes.usual_and_largest(table, sigma, threshold(tables.size)) for table in tables]
    make: list[Callable[..., FeatureCounts]] = [FeatureCounts] * d
    if scaled:
        likely, errors = np.array([usual for usual, _ in ends]), np.zeros(d)
        if plan.n_samples < CLEAR_SIZE * sigma:
            likely, errors = likely_sizes(sizes, tables, sigma, plan.n_samples)
        ends = [(size, max(size, largest)) for size, (_, largest) in zip(likely, ends, strict=True)]
        known = zip(likely, errors, strict=True)
        make = [partial(ScaledCounts, size=size, size_error=error) for size, error in known]
    cells = [EqualCells.over(-2 * usual, 2 * usual, n_cells) for usual, _ in ends]
    sums, times, z = np.zeros((d, n_cells)), np.zeros(d), threshold(d * n_cells)
    shown: list[FeatureCounts | None] = [None] * d
    # Narrow cells show more where the noise is low, and less where it is not.
    fewest = float(np.clip(0.08 * math.sqrt(plan.n_samples / (sigma or 1.0)), *_FEWEST))
    for _ in range(N_ROUNDS - 1):
        lowest, width = (np.array([getattr(c, f) for c in cells]) for f in ("lowest", "width"))
        histograms = Intervals(n_features=d, lowest=lowest, width=width, n_cells=n_cells)
        sums += release(histograms)
        times += 1
        for j in range(d):
            table, table_sigma = sums[j] / times[j], sigma / math.sqrt(times[j])
            seen = cells_seen(table, table_sigma, z)
            counts = make[j](table, seen, table_sigma, cells[j], ends[j][1], plan.n_samples)
            shown[j] = counts if seen.size or scaled else shown[j]
            following = counts.next_cells(fewest) if seen.size or scaled else cells[j].wider
            if following != cells[j]:
                cells[j], sums[j], times[j] = following, 0.0, 0.0
    return shown


def _warn_fallback(what: str, public: str) -> None:
    warn_of_privacy(
        f"Private bounds: {what} did not stand out from the privacy noise and got the public "
        f"fallback ({public}). Use more rows or a larger epsilon, or declare public limits "
        "where the estimator takes them."
    )


@dataclass(frozen=True)
class ColumnRange:
    """Bounds that hold nearly all values of one column."""

    lower: float
    upper: float
    found: bool
    knots: FloatArray | None = None


def release_ranges(
    rows: AnyRows,
    plan: BoundsPlan,
    streams: Streams,
    spans: Sequence[tuple[float, float]] | None = None,
    *,
    generous: bool = False,
) -> tuple[ColumnRange, ...]:
    """Release a range of each column. Charge ``plan.event`` first.

    With `spans`, the bounds that are known, infinite where they are not, also knots of a scale.
    Bounds are wider if `generous`.

    Privacy
    -------
    Noisy histograms of each column in rounds. The number of rows is public; that of missing values
    is not.

    The bounds are the quantiles at the level that the noise allows, between 0.5 and 5 %, moved
    outwards to three standard deviations of a normal distribution, and at least one and a half
    spreads from the median. Where these leave out more, bounds are powers of two that hold all
    values that are seen. Zero is a bound if nothing beyond it stands out from the noise.
    """
    ranges = []
    for j, feature in enumerate(_release_features(rows, plan, streams)):
        if feature is None:
            ranges.append(ColumnRange(-4.0, 4.0, False))
        elif spans is None:
            read = feature.generous_range if generous else feature.range
            ranges.append(ColumnRange(*read(plan.n_samples), True))
        else:
            knots = feature.knots(*spans[j])
            ranges.append(ColumnRange(float(knots[0]), float(knots[-1]), True, knots))
    return tuple(ranges)
