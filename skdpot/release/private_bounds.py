"""Bounds that are estimated privately, by rounds of histograms.

A histogram is a sum over rows. There are two kinds of rounds:

- *features*: the powers of two of the absolute values tell how large those of each feature are.
  Cells between these, equally wide, are divided again where all rows are in a few of them, or else
  counted again, which tells a centre and a spread. Few rows get fewer rounds with less noise: one
  of cells, to which bells are fitted, or none, so that the unit of a feature is its size.
- *norms* about that centre, in units of the spread, give a radius, if there are enough rows; else
  the radius is public. Of too few rows for any feature, only norms about the origin are counted.

The cells of a round depend on the releases before it only (adaptive composition). For columns of a
table, `release_ranges` reads two bounds that hold nearly all values from the same histograms.
`skdpot.release.value_histogram` has their sensitivity.
"""

import math
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from functools import partial
from typing import Any, Literal, TypeAlias, cast

import numpy as np
import numpy.typing as npt

from skdpot._utils.arrays import FloatArray
from skdpot._utils.streams import Streams
from skdpot.exceptions import warn_of_privacy
from skdpot.privacy.events import ComposedEvent, Event, GaussianEvent, NonPrivateEvent
from skdpot.privacy.noise import calibrate_lattice, check_counts
from skdpot.privacy.reliability import named
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
N_ROUNDS = 5  # of histograms of features
_USUAL_SHARE = 0.1  # of the squared mu of a whole fit, at most,
_LARGEST_SHARE = 0.25  # or what finds each feature among few rows
_SMALLEST_SHARE = 0.002
_ROWS_OVER_NOISE = 27.0
# Rows per deviation of the noise of a round, by the number of rounds, from which the features are
# found: by counts of cells, by bells fitted to one histogram of cells, or by sizes of values; and
# so many that more are no gain.
_LEAST_ROWS = {N_ROUNDS: 20.0, 2: 14.0, 1: 8.0}
_ENOUGH_ROWS = {N_ROUNDS: 20.0, 2: 25.0, 1: 14.0}
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
_KNOWN = 1.0  # octaves: the error of a size


@dataclass(frozen=True, kw_only=True)
class BoundsPlan:
    """The public part of a release of private bounds, fixed before any row is read.

    `features` is the noise of the rounds that find the centre and spread of each feature, or its
    size if there is one round, `norms` that of a histogram of norms. None is no such release, or
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


def bounds_share(n_samples: int, n_features: int, mu: float, group_size: int = 1) -> float:
    """Return the share of the squared mu of a fit that its private bounds get.

    The noise of a count, if all went to one round, is then a third of the square root of the number
    of rows, comparable to sampling variation: 10 % for few rows, .3 % at epsilon = 1 for a million
    rows of 8 features. Up to 25 % are spent where few rows need it to find the scales of features.
    """
    n_histograms = n_features if n_features <= MAX_AUTO_FEATURES else 1
    noise = n_histograms * (group_size / mu) ** 2  # squared, but for a factor
    usual = min(max(_ROWS_OVER_NOISE * noise / n_samples, _SMALLEST_SHARE), _USUAL_SHARE)
    if n_features > MAX_AUTO_FEATURES:
        return usual
    for n_rounds, ratio in _LEAST_ROWS.items():
        due = 2 * n_rounds * noise / n_samples**2 / (1 - _NORM_SHARE)
        most = usual if n_rounds == N_ROUNDS else _LARGEST_SHARE
        if due * ratio**2 <= most:
            return max(usual, min(due * _ENOUGH_ROWS[n_rounds] ** 2, most))
    return usual


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
    features = partial(_of_counts, group_size * math.sqrt(2 * n_features), "values")
    if mode == "features":
        return made(by_features=True, features=features(mu, N_ROUNDS))
    if mode == "auto" and n_features <= MAX_AUTO_FEATURES:
        radius = norms(mu * math.sqrt(_NORM_SHARE))
        shown = radius if _shows_norms(radius, n_samples) else None
        left = mu * math.sqrt(1 - _NORM_SHARE) if shown else mu
        for n_rounds, ratio in _LEAST_ROWS.items():
            noise = features(left, n_rounds)
            if n_samples >= ratio * (1 - 1e-9) * noise.sigma:
                return made(by_features=True, features=noise, norms=shown)
    return made(by_features=False, norms=norms(mu))


def _shows_norms(noise: GaussianEvent, n_samples: int) -> bool:
    """Whether norms of ordinary rows, half of them in two octaves, are expected to stand out."""
    cells = Magnitudes(n_features=1, parts=_NORM_PARTS).shape[1]
    return 0.5 * n_samples >= threshold(cells) * math.sqrt(2 * _NORM_PARTS) * noise.sigma


def _of_counts(sensitivity: float, counted: str, mu: float, n_steps: int = 1) -> GaussianEvent:
    # The factor absorbs the rounding of the roots: the squares must not exceed mu**2.
    noise = calibrate_lattice(mu / math.sqrt(n_steps) * (1 - 1e-13), sensitivity)
    return GaussianEvent(**vars(noise), n_steps=n_steps, label=f"Histograms of {counted}")


AnyRows: TypeAlias = npt.NDArray[Any] | Rows


def ball_radius(n_features: int) -> float:
    """Return a radius that holds nearly all rows of features with unit spread."""
    # A standard normal row has a norm of sqrt(d) +- 0.7; more leaves room for correlations.
    return math.sqrt(n_features) + 2.5


def release_private_bounds(rows: AnyRows, plan: BoundsPlan, streams: Streams) -> DataBounds:
    """Release bounds for rows, or batches of them. Charge ``plan.event`` first.

    Privacy
    -------
    Releases the bounds, under ``plan.event`` and replace-one; the number of rows and of features is
    public. The plan, which is public, fixes the number of rounds. Each round of histograms of d
    features moves by at most sqrt(2 d), that of norms by sqrt(2), and k times that for k rows of a
    person; the event composes them. Bounds, the features that a warning names, and what replaces
    their scales follow from the histograms. The number of clipped rows is never reported.
    """
    center, unit = np.zeros(plan.n_features), np.ones(plan.n_features)
    if plan.by_features:
        scales = _release_units(rows, plan, streams)
        center = np.array([scale.center for scale in scales])
        spread, reach = np.array([(scale.spread, scale.reach) for scale in scales]).T
        # Heavy tails and clusters get a wider unit, within limits.
        unit = np.clip(reach / _REACH, spread, _LARGEST_WIDENING * spread)
        lost = [f"feature {j}" for j, scale in enumerate(scales) if not scale.found]
        if lost:
            _warn_fallback(named(lost), "a scale from the size of values or from other features")
    elif 1 < plan.n_features <= MAX_AUTO_FEATURES:
        warn_of_privacy(
            "Private bounds: there are too few rows, for this privacy, to find a scale for each "
            "feature. All rows are in one ball about the origin, in the unit that the features "
            "have, and features that are small beside others will be lost. Use more rows or a "
            "larger epsilon, or declare public limits where the estimator takes them."
        )
    if plan.norms is None and plan.event.is_private:
        return DataBounds(center, unit, ball_radius(plan.n_features))
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


def release_scales(rows: AnyRows, plan: BoundsPlan, streams: Streams) -> list[FeatureScale]:
    """Release the scale of each feature with its errors. Charge ``plan.event`` first.

    Privacy
    -------
    Noisy histograms of each feature in rounds, and what follows from them; the number of rows and
    of features is public.
    """
    features = cast(list[ScaledCounts], _release_features(rows, plan, streams, "all"))
    return pooled_scales([feature.estimate() for feature in features])


def _release_units(rows: AnyRows, plan: BoundsPlan, streams: Streams) -> list[FeatureScale]:
    """Release a centre and a unit of each feature. Charge ``plan.event`` first.

    Counts of cells show any shape; bells and sizes are for few rows, and for features that the
    noise hides.
    """
    noise = plan.features
    if noise is not None and noise.n_steps == 1:
        sizes = Magnitudes(n_features=plan.n_features)
        table = release_histograms(sizes, rows, noise, streams.secret, plan.event)
        likely = likely_sizes(sizes, table, noise.sigma, plan.n_samples)
        return pooled_scales(
            [
                FeatureScale(0.0, size, log_error=octaves * math.log(2.0), found=octaves < _KNOWN)
                for size, octaves in zip(*(part.tolist() for part in likely), strict=True)
            ]
        )
    if noise is not None and noise.n_steps < N_ROUNDS:
        return release_scales(rows, plan, streams)
    features = _release_features(rows, plan, streams, "hidden")
    return pooled_scales(
        [
            f.estimate()
            if isinstance(f, ScaledCounts)
            else FeatureScale(*f.scales, log_error=0.0, found=True)
            for f in cast(list[FeatureCounts], features)
        ]
    )


def _release_features(
    rows: AnyRows, plan: BoundsPlan, streams: Streams, bells: Literal["all", "hidden"] | None = None
) -> list[FeatureCounts | None]:
    """Release what is known of each feature, None where nothing stands out.

    With `bells`, all features or those that are hidden are known by their sizes.
    """
    d, noise = plan.n_features, plan.features
    sigma, n_cells = (noise.sigma, _N_CELLS) if noise else (0.0, _N_EXACT_CELLS)

    def release(histograms: Histograms) -> FloatArray:
        return release_histograms(histograms, rows, noise, streams.secret, plan.event)

    sizes = Magnitudes(n_features=d)
    tables = release(sizes)
    ends = [sizes.usual_and_largest(table, sigma, threshold(tables.size)) for table in tables]
    make: list[Callable[..., FeatureCounts]] = [FeatureCounts] * d
    if bells:
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
    for _ in range((noise.n_steps if noise else N_ROUNDS) - 1):
        lowest, width = (np.array([getattr(c, f) for c in cells]) for f in ("lowest", "width"))
        histograms = Intervals(n_features=d, lowest=lowest, width=width, n_cells=n_cells)
        sums += release(histograms)
        times += 1
        for j in range(d):
            table, table_sigma = sums[j] / times[j], sigma / math.sqrt(times[j])
            seen = cells_seen(table, table_sigma, z)
            kind = FeatureCounts if seen.size and bells != "all" else make[j]
            counts = kind(table, seen, table_sigma, cells[j], ends[j][1], plan.n_samples)
            if seen.size or (bells and type(shown[j]) is not FeatureCounts):
                shown[j] = counts
            if seen.size or bells == "all":
                following = counts.next_cells(fewest)
            else:  # cells that hold the likely size show more when their noise is averaged
                following = cells[j] if bells else cells[j].wider
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
