r"""Private location and scale of data of unknown range.

Two ways, chosen by a public rule:

- *features*: for each feature a histogram of the differences \|x_i - x_i'\| of random pairs,
  on a grid of powers of two, gives its spread; then a histogram of the feature itself, on a
  grid whose cells are one spread wide or narrower, gives its centre.
- *norm*: one histogram of row norms gives a radius. It needs far fewer rows.

Sensitivity, replace-one. A record is in at most one pair. Replacing it moves, in each
feature, one count from one cell to another: the histogram of one feature changes by
:math:`(-1, +1)`, of norm :math:`\sqrt 2`, those of all ``d`` features by :math:`\sqrt{2d}`;
the histogram of norms by :math:`\sqrt 2`. Which rows are used, and how they are paired, is a
public random choice that does not depend on the data. The cells of the second histogram
depend on the first release only (adaptive composition). All that follows is post-processing.

Columns of a table may lack values (`release_ranges`). A row without a value is in no cell, a pair
without one neither: replacing a record still takes at most one count away and adds at most one, in
each histogram. Two bounds that hold nearly all values are read from the tables in the place of a
centre and a scale.
"""

import math
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from functools import cached_property, partial
from typing import Any, Literal

import numpy as np
import numpy.typing as npt
from scipy.sparse import csr_array
from scipy.special import ndtri

from skdpot._utils.validation import SecretStream, Streams
from skdpot.exceptions import warn_of_privacy
from skdpot.privacy.events import ComposedEvent, Event, GaussianEvent, NonPrivateEvent
from skdpot.privacy.noise import LatticeNoise, calibrate_lattice, check_counts, lattice_noise
from skdpot.release.bounds import DataBounds
from skdpot.release.release import Part, Records, Release, Vectors, candidates, released

FloatArray = npt.NDArray[np.float64]
IntArray = npt.NDArray[np.int64]

FALSE_ALARM = 1e-4
_BLOCK = 8192


@dataclass(frozen=True)
class MagnitudeGrid:
    """Cells for non-negative numbers: {0}, then `per_octave` cells a doubling to ``2**64``.

    They are centred on powers of two, so that differences of 0/1 features fall in the middle.
    """

    per_octave: int
    octaves: int = 64

    @property
    def n_cells(self) -> int:
        """Number of cells, {0} included."""
        return 2 * self.octaves * self.per_octave + 1

    def cells(self, magnitudes: FloatArray) -> IntArray:
        """Return the cell of each magnitude."""
        with np.errstate(divide="ignore"):
            exponents = np.rint(self.per_octave * np.log2(magnitudes))
        last = self.n_cells - 2
        shifted = np.clip(exponents + self.octaves * self.per_octave, 0, last)
        return np.where(magnitudes == 0, 0, shifted.astype(np.int64) + 1)

    @cached_property
    def edges(self) -> FloatArray:
        """Base-2 logarithms of the edges of the cells after {0}."""
        return (np.arange(self.n_cells) - 0.5) / self.per_octave - self.octaves


@dataclass(frozen=True)
class SignedGrid:
    """Cells for real numbers: of width 1 around zero, then as wide as floating point.

    Cells are centred on the integers up to ``2 * n_uniform`` on either side; each doubling
    beyond is divided into `n_uniform` cells.
    """

    n_uniform: int = 1024
    octaves: int = 18

    @property
    def n_cells(self) -> int:
        """Number of cells, both signs and the one around zero."""
        return 2 * self._per_sign - 1

    @property
    def _per_sign(self) -> int:
        return self.n_uniform * (self.octaves + 1)

    def cells(self, values: FloatArray) -> IntArray:
        """Return the cell of each value."""
        largest = self.n_uniform * 2.0**self.octaves
        magnitude = np.minimum(np.abs(values) + 0.5, largest)
        mantissa, exponent = np.frexp(magnitude / self.n_uniform)
        beyond = self.n_uniform * (exponent + 2 * mantissa - 1)
        index = np.where(exponent < 1, magnitude, beyond).astype(np.int64)
        index = np.minimum(index, self._per_sign - 1)
        return np.where(values < 0, -index, index) + (self._per_sign - 1)

    @cached_property
    def edges(self) -> FloatArray:
        """The ``n_cells + 1`` edges, in increasing order."""
        octave, step = np.divmod(np.arange(1, self._per_sign + 1), self.n_uniform)
        beyond = np.ldexp(float(self.n_uniform) + step, octave - 1)
        upper = np.where(octave < 1, step.astype(np.float64), beyond) - 0.5
        return np.concatenate([-upper[::-1], upper])


@dataclass(frozen=True, kw_only=True)
class Smoothing:
    """How a noisy table is cleaned before quantiles are read from it."""

    window: int
    margin: int
    n_candidates: int

    @property
    def z(self) -> float:
        """Threshold in deviations of the noise, which no window passes but with `FALSE_ALARM`."""
        return float(-ndtri(FALSE_ALARM / self.n_candidates))


@dataclass(frozen=True, eq=False, kw_only=True)
class Counting:
    """What a histogram counts, which is public: one feature of some rows, or their norms."""

    grid: MagnitudeGrid | SignedGrid
    order: IntArray
    shape: tuple[int, int]
    feature: int | None
    width: float = 1.0
    paired: bool = False

    def values(self, X: npt.NDArray[np.generic], order: IntArray) -> FloatArray:
        """Return the values of some rows in double precision, or their norms."""
        if self.feature is not None:
            return X[order, self.feature].astype(np.float64)
        norms = np.empty(len(order))
        for start in range(0, len(order), _BLOCK):
            part = X[order[start : start + _BLOCK]].astype(np.float64)
            with np.errstate(over="ignore"):
                norms[start : start + _BLOCK] = np.sqrt(np.einsum("ij,ij->i", part, part))
        return norms

    def pairs(self, used: FloatArray) -> tuple[FloatArray, FloatArray]:
        """Return the two halves that are paired."""
        half = len(self.order) // 2
        return used[:half], used[half : 2 * half]

    def cells(self, used: FloatArray) -> IntArray:
        """Return where values, one of each row in `order`, are counted; missing ones are not."""
        with np.errstate(over="ignore"):
            if self.paired:
                first, second = self.pairs(used)
                used = np.abs(first - second)
            return self.grid.cells(used[~np.isnan(used)] / self.width)


def noisy_histogram(
    used: FloatArray,
    counting: Counting,
    noise: LatticeNoise | GaussianEvent,
    stream: SecretStream,
    event: Event,
) -> FloatArray:
    """Return the counts of the cells plus noise, which is drawn first.

    `used` is the value of each row in the order of the counting, and `event` what was charged.
    """
    n_cells, lattice = counting.grid.n_cells, noise.lattice or 1.0
    table = lattice_noise(noise.sigma, n_cells, stream, lattice=lattice, mu=noise.mu)
    np.add.at(table, counting.cells(used), round(1 / lattice))
    release = Release(
        "histogram",
        table.astype(np.float64) * lattice,
        {"counting": counting},
        sigma=noise.sigma,
        lattice=lattice,
        sensitivity=noise.sensitivity,
        event=event,
        linear=_counted,
    )
    return released(release)


def _counted(release: Release, records: Records, shares: FloatArray) -> Iterator[Part]:
    """Yield what rows add, if all were counted: of pairs the mean over the other's candidates."""
    counting: Counting = release.facts["counting"]
    slots = candidates(shares)
    if counting.shape != (len(slots[0]), records[0].shape[1]):
        return
    values = counting.values(records[0], np.arange(len(shares)))
    sides = [own[counting.order] for own in slots]  # the candidates of each counted slot
    counts = []
    if counting.paired:
        left, right = zip(*(counting.pairs(own) for own in sides), strict=True)
        with np.errstate(over="ignore"):
            for a in left:
                for b in right:
                    distances = np.abs(values[a] - values[b])
                    counts += [(a, distances, 0.5), (b, distances, 0.5)]
    else:
        counts = [(own, values[own], 0.5 + 0.5 * (shares[own] < 1.0)) for own in sides]
    places = np.concatenate([of for of, _, _ in counts])
    counted = np.concatenate([numbers for _, numbers, _ in counts]) / counting.width
    weights = np.concatenate([np.broadcast_to(w, len(of)) for of, _, w in counts])
    there = ~np.isnan(counted)
    with np.errstate(over="ignore"):
        cells = counting.grid.cells(counted[there])
    shape = (len(values), counting.grid.n_cells)
    array = csr_array((weights[there], (places[there], cells)), shape=shape)
    expected = shares @ array
    if counting.paired:  # once a pair, and not once a member
        expected = np.bincount(cells, weights[there] / 4.0, minlength=shape[1])
    sigma, rows, exact = float(np.max(release.sigma)), Vectors(array), not counting.paired
    yield Part(value=release.value, sigma=sigma, rows=rows, center=expected, exact=exact)


def noisy_quantiles(
    table: FloatArray,
    edges: FloatArray,
    levels: Sequence[float],
    sigma: float,
    smoothing: Smoothing,
) -> FloatArray | None:
    """Return quantiles of the distribution that a noisy histogram shows.

    Only the neighbourhoods of windows that stand out from the noise are used: the sum of
    thousands of empty, noisy cells would drown the rest.
    """
    kept = _significant(table, sigma, smoothing)
    if kept.size == 0:
        return None
    cumulative = np.concatenate([[0.0], np.cumsum(table[kept])])
    rising = np.maximum.accumulate(cumulative)
    falling = np.minimum.accumulate(cumulative[::-1])[::-1]
    monotone = (rising + falling) / 2
    targets = monotone[0] + np.asarray(levels) * (monotone[-1] - monotone[0])
    after = np.clip(np.searchsorted(monotone, targets, side="right"), 1, kept.size)
    low, high = monotone[after - 1], monotone[after]
    share = np.divide(targets - low, high - low, out=np.full(after.shape, 0.5), where=high > low)
    cell = kept[after - 1]
    return edges[cell] + share * (edges[cell + 1] - edges[cell])


def _significant(table: FloatArray, sigma: float, smoothing: Smoothing) -> IntArray:
    """Return the indices of the cells near a window that stands out from the noise."""
    window, margin = min(smoothing.window, table.size), smoothing.margin
    totals = np.convolve(table, np.ones(window), mode="valid")
    hits = np.flatnonzero(totals > smoothing.z * sigma * np.sqrt(window))
    # +1 where a kept stretch starts, -1 after its end.
    steps = np.zeros(table.size + 1, dtype=np.int64)
    np.add.at(steps, np.maximum(hits - margin, 0), 1)
    np.add.at(steps, np.minimum(hits + window + margin, table.size), -1)
    return np.flatnonzero(np.cumsum(steps[:-1]))


MAX_AUTO_FEATURES = 32
_LARGEST_SHARE, _SMALLEST_SHARE = 0.1, 0.002  # of the squared mu of a whole fit
_ROWS_OVER_NOISE = 27.0
# There are half as many pairs as rows: the first histogram needs more of the budget.
_SPREAD_SHARE = 2 / 3
# Rows beyond this many times the noise would cost time and add no accuracy.
_ROWS_PER_SIGMA, _MIN_ROWS_USED = 1000, 2**17
_FINE_PAIRS_PER_SIGMA = 200
_NORM_TAIL, _LARGEST_NORM_TAIL = 0.03, 0.25

_VALUES = SignedGrid()  # in units of ``spread / cells_per_spread``
_NORMS = MagnitudeGrid(per_octave=4)


@dataclass(frozen=True, kw_only=True)
class BoundsPlan:
    """The public part of a release of private bounds, fixed before data are touched.

    "features" finds the centre and spread of each feature, "norm" one radius. `noises` are of the
    histograms of pair differences and of values, or of norms; none when nothing is private.
    """

    mode: Literal["features", "norm"]
    n_samples: int
    n_features: int
    noises: tuple[GaussianEvent, ...]
    centers: bool

    @property
    def event(self) -> Event:
        """The charge for the whole release."""
        if not self.noises:
            return NonPrivateEvent()
        return self.noises[0] if len(self.noises) == 1 else ComposedEvent(events=self.noises)

    @property
    def n_used(self) -> int:
        """Number of rows that the histograms count."""
        if not self.noises:
            return self.n_samples
        enough = math.ceil(_ROWS_PER_SIGMA * self.noises[0].sigma)
        return min(self.n_samples, max(enough, _MIN_ROWS_USED))

    @property
    def fine(self) -> bool:
        """Whether the noise is small enough, beside the pairs, for narrower cells."""
        return not self.noises or self.n_used // 2 >= _FINE_PAIRS_PER_SIGMA * self.noises[0].sigma

    @property
    def cells_per_spread(self) -> int:
        """Cells of the second histogram that make up one spread."""
        return 4 if self.fine else 1

    @property
    def grids(self) -> tuple[MagnitudeGrid | SignedGrid, ...]:
        """Cells of the histograms of pair differences and of values, or of norms."""
        return (_NORMS,) if self.mode == "norm" else (MagnitudeGrid(2 if self.fine else 1), _VALUES)

    @property
    def smoothings(self) -> tuple[Smoothing, ...]:
        """How their tables are cleaned: windows of one or two octaves, or 2 to 3 spreads."""
        if self.mode == "norm":
            return (Smoothing(window=4, margin=1, n_candidates=_NORMS.n_cells),)
        pairs, values = (self.n_features * grid.n_cells for grid in self.grids)
        octaves, window = 2 * (2 if self.fine else 1), 8 if self.fine else 3
        return (
            Smoothing(window=octaves, margin=octaves, n_candidates=pairs),
            Smoothing(window=window, margin=5 * self.cells_per_spread, n_candidates=values),
        )

    @property
    def norm_level(self) -> float:
        """Share of the rows that the radius is to hold, lower when the noise hides the rest."""
        # Three standard deviations of a count are the noise of a sum over nine cells.
        hidden = 3 * self.noises[0].sigma / self.n_used if self.noises else 0.0
        return 1 - min(max(_NORM_TAIL, hidden), _LARGEST_NORM_TAIL)

    @property
    def clears_threshold(self) -> bool:
        """Whether features of ordinary shape are expected to stand out from the noise."""
        # Windows with 40 % of the pairs and 60 % of the rows, and two standard deviations to spare.
        shares = (0.4 * (self.n_used // 2), 0.6 * self.n_used)
        return all(
            mass >= (smoothing.z + 2) * math.sqrt(smoothing.window) * noise.sigma
            for mass, smoothing, noise in zip(shares, self.smoothings, self.noises, strict=False)
        )


def bounds_share(n_samples: int, n_features: int, mu: float, group_size: int = 1) -> float:
    """Return the share of the squared mu of a fit that its private bounds get.

    The noise of a count is then a third of the square root of the number of rows, about what counts
    of a sample vary by anyway: 10 % for few rows, .3 % at epsilon = 1 for a million of 8 features.
    """
    n_histograms = n_features if n_features <= MAX_AUTO_FEATURES else 1
    enough = _ROWS_OVER_NOISE * n_histograms * (group_size / mu) ** 2 / n_samples
    return min(max(enough, _SMALLEST_SHARE), _LARGEST_SHARE)


def plan_private_bounds(
    n_samples: int,
    n_features: int,
    mu: float,
    *,
    mode: Literal["auto", "features", "norm"] = "auto",
    centers: bool = True,
    group_size: int = 1,
) -> BoundsPlan:
    """Fix what a release of bounds does and costs."""
    check_counts(n_samples=n_samples, n_features=n_features, group_size=group_size)
    made = partial(BoundsPlan, n_samples=n_samples, n_features=n_features)
    if mode != "norm":
        noises = _feature_noises(n_features, mu, centers, group_size)
        plan = made(mode="features", noises=noises, centers=centers)
        if mode == "features" or (n_features <= MAX_AUTO_FEATURES and plan.clears_threshold):
            return plan
    own = () if mu == math.inf else (_of_counts(mu, group_size * math.sqrt(2), "row norms"),)
    return made(mode="norm", noises=own, centers=False)


def _feature_noises(
    n_features: int, mu: float, centers: bool, group_size: int
) -> tuple[GaussianEvent, ...]:
    """Split `mu` between the two families of histograms."""
    if mu == math.inf:
        return ()
    shares = {"distances of pairs": _SPREAD_SHARE, "values": 1 - _SPREAD_SHARE}
    if not centers:
        shares = {"distances of pairs": 1.0}
    # The factor absorbs the rounding of the roots: the squares must not exceed mu**2.
    return tuple(
        _of_counts(
            mu * math.sqrt(share) * (1 - 1e-13), group_size * math.sqrt(2 * n_features), counted
        )
        for counted, share in shares.items()
    )


def _of_counts(mu: float, sensitivity: float, counted: str) -> GaussianEvent:
    noise = calibrate_lattice(mu, sensitivity)
    return GaussianEvent(**vars(noise), label=f"Histograms of {counted}")


_PAIR_MEDIAN = math.sqrt(2) * float(ndtri(0.75))  # of |x - x'| for two standard normal numbers
_SMALLEST, _LARGEST = 2.0**-64, 2.0**64
_FINITE = 1e300
_CENTER_LEVELS = (0.05, 0.5, 0.95)
_TIE_NOISE = 4.5
_REACH, _LARGEST_WIDENING = 3.0, 4.0
# Ranges of columns.
_DEVIATIONS = 3.0  # of a normal distribution, to reach beyond its quantiles
_LEAST_UNITS = 1.5
_LEVELS = (0.005, 0.05)
_CELLS_KEPT = 64  # about so many, of which the noise is in a cumulative count
_CELLS_BESIDE_ZERO = 32
_SILENT = 4.0  # standard deviations of the noise that tell nothing from something,
_AT_STAKE = 0.2  # unless so many of the rows could be hidden in them


@dataclass(frozen=True)
class FeatureScales:
    """Released location and scale of every feature."""

    center: FloatArray
    spread: FloatArray
    reach: FloatArray


def ball_radius(n_features: int) -> float:
    """Return the radius that holds nearly all rows of features with unit spread."""
    # A standard normal row has a norm of sqrt(d) +- 0.7; more leaves room for correlations.
    return math.sqrt(n_features) + 2.5


def release_private_bounds(X: npt.NDArray[Any], plan: BoundsPlan, streams: Streams) -> DataBounds:
    """Release bounds for the rows of `X`. Charge ``plan.event`` first.

    Privacy
    -------
    Releases the bounds. ``plan.event`` under replace-one; the shape of `X` is public. The
    number of clipped rows is never reported.
    """
    if plan.mode == "norm":
        radius = _norm_radius(X, _Histograms.of(X.shape, plan, streams))
        if radius is None:
            _warn_fallback("the row norms")
        return DataBounds.from_norm(radius or ball_radius(plan.n_features), plan.n_features)
    found = release_feature_scales(X, plan, streams)
    # Heavy tails and clusters get a wider unit, within limits.
    unit = np.clip(found.reach / _REACH, found.spread, _LARGEST_WIDENING * found.spread)
    return DataBounds(found.center, unit, ball_radius(len(unit)))


def release_feature_scales(
    X: npt.NDArray[Any], plan: BoundsPlan, streams: Streams
) -> FeatureScales:
    """Release centre and spread of each feature. Charge ``plan.event`` first.

    Privacy
    -------
    Two noisy histograms a feature, or one without centres; the shape of `X` is public.
    """
    d, tables = plan.n_features, _Histograms.of(X.shape, plan, streams)
    center, spread, reach = np.zeros(d), np.ones(d), np.zeros(d)
    failed = np.zeros(d, dtype=bool)
    for j in range(d):
        found = _spread(tables.used(X[:, j]), j, tables)
        failed[j], spread[j] = found is None, found or 1.0
    for j in range(d if plan.centers else 0):
        located = _center(tables.used(X[:, j]), j, float(spread[j]), tables)
        failed[j] |= located is None
        if located is not None:
            center[j], spread[j], reach[j] = located
    if failed.any():
        _warn_fallback(f"{failed.sum()} of {d} features")
    return FeatureScales(center, spread, reach)


@dataclass(frozen=True, eq=False)
class _Histograms:
    """The histograms of one release, of the same rows in a public random order."""

    plan: BoundsPlan
    streams: Streams
    order: IntArray

    @classmethod
    def of(cls, shape: tuple[int, ...], plan: BoundsPlan, streams: Streams) -> "_Histograms":
        """Draw the rows that are counted."""
        if shape != (plan.n_samples, plan.n_features):
            raise ValueError(
                f"The plan is for data of shape {(plan.n_samples, plan.n_features)}, got {shape}."
            )
        order = streams.public.permutation(plan.n_samples)[: plan.n_used]
        return cls(plan, streams, order)

    def used(self, column: npt.NDArray[Any]) -> FloatArray:
        """Return the values of the rows that are counted."""
        return column[self.order].astype(np.float64)

    def counting(self, feature: int | None, width: float | None = None) -> Counting:
        """Return what is counted: norms, pair differences, or values in cells of a width."""
        return Counting(
            grid=self.plan.grids[width is not None],
            order=self.order,
            shape=(self.plan.n_samples, self.plan.n_features),
            feature=feature,
            width=width or 1.0,
            paired=feature is not None and width is None,
        )

    def release(
        self, used: FloatArray, counting: Counting, levels: Sequence[float]
    ) -> tuple[FloatArray, FloatArray | None]:
        """Return a noisy table and quantiles that it shows, leaving out the cell of zeros."""
        plan, phase = self.plan, int(counting.grid is _VALUES)
        noise, edges = plan.noises[phase], counting.grid.edges
        table = noisy_histogram(used, counting, noise, self.streams.secret, plan.event)
        cells = table[table.size + 1 - edges.size :]
        return table, noisy_quantiles(cells, edges, levels, noise.sigma, plan.smoothings[phase])


def _spread(used: FloatArray, feature: int, tables: _Histograms) -> float | None:
    """Return the spread: 0 for a constant feature, None when nothing stands out."""
    plan, counting = tables.plan, tables.counting(feature)
    if plan.noises:
        table, found = tables.release(used, counting, (0.5,))
        if found is not None:
            return float(np.exp2(found[0])) / _PAIR_MEDIAN
        # Whether all pairs are ties, as far as the noise lets one see.
        sigma = plan.noises[0].sigma
        least = max(plan.smoothings[0].z, plan.n_used // 2 / sigma - _TIE_NOISE)
        return 0.0 if table[0] / sigma > least else None
    first, second = counting.pairs(used)
    with np.errstate(over="ignore"):
        differences = np.abs(first - second)
    differences = differences[differences > 0]
    median = np.median(differences) if differences.size else _PAIR_MEDIAN
    return float(np.clip(median, _SMALLEST, _LARGEST)) / _PAIR_MEDIAN


def _center(
    used: FloatArray, feature: int, spread: float, tables: _Histograms
) -> tuple[float, float, float] | None:
    """Return centre, spread (at least half the width of the centre's cell) and reach."""
    if not tables.plan.noises:
        used = np.clip(used, -_FINITE, _FINITE)  # differences of larger values overflow
        low, center, high = (float(q) for q in np.quantile(used, _CENTER_LEVELS))
        return center, spread, max(high - center, center - low)
    width, edges = spread / tables.plan.cells_per_spread, _VALUES.edges
    _, quantiles = tables.release(used, tables.counting(feature, width), _CENTER_LEVELS)
    if quantiles is None:
        return None
    low, center, high = (float(q) for q in quantiles)
    cell = int(np.searchsorted(edges[1:-1], center))
    cell_width = float(edges[cell + 1] - edges[cell])
    reach = max(high - center, center - low)
    return center * width, max(spread, cell_width * width / 2), reach * width


def _norm_radius(X: npt.NDArray[Any], tables: _Histograms) -> float | None:
    """Return a radius that holds most of the rows, None when nothing stands out."""
    counting, level = tables.counting(None), tables.plan.norm_level
    norms, edges = counting.values(X, tables.order), _NORMS.edges
    if not tables.plan.noises:
        return float(np.clip(np.quantile(norms, level), _SMALLEST, _LARGEST))
    _, upper = tables.release(norms, counting, (level,))
    if upper is None:
        return None
    return float(np.exp2(edges[np.searchsorted(edges, upper[0] - 1e-9)]))


def _warn_fallback(what: str) -> None:
    warn_of_privacy(
        f"Private bounds: {what} did not stand out from the privacy noise, and what was not "
        "found got a public fallback (centre 0, scale 1). Use more rows or a larger epsilon, or "
        "state limits that are public knowledge, where the estimator takes them."
    )


@dataclass(frozen=True)
class ColumnRange:
    """Bounds that hold nearly all values of one column."""

    lower: float
    upper: float
    found: bool


_NOTHING = ColumnRange(-4.0, 4.0, False)


def release_ranges(
    columns: Sequence[FloatArray], plan: BoundsPlan, streams: Streams
) -> tuple[ColumnRange, ...]:
    """Release a range of each column. Charge ``plan.event`` first.

    Privacy
    -------
    Two noisy histograms a column. The number of rows is public, that of missing values is not told.

    The bounds are the quantiles at the level that the noise allows, between 0.5 and 5 %, moved
    outwards to where three standard deviations of a normal distribution would end, and at least to
    one and a half spreads from the median. Where nothing below zero stands out from the noise, zero
    is the lower bound of numbers that are otherwise above it, and the same with the signs changed.
    """
    tables = _Histograms.of((len(columns[0]), len(columns)), plan, streams)
    used = [tables.used(column) for column in columns]
    if not plan.noises:
        return tuple(map(_exact_range, used))
    units = [_spread(values, j, tables) for j, values in enumerate(used)]
    return tuple(_range(values, j, units[j] or 0.0, tables) for j, values in enumerate(used))


def _exact_range(used: FloatArray) -> ColumnRange:
    found = np.clip(used[~np.isnan(used)], -_FINITE / 10, _FINITE / 10)
    return ColumnRange(float(found.min()), float(found.max()), True) if found.size else _NOTHING


def _range(used: FloatArray, feature: int, unit: float, tables: _Histograms) -> ColumnRange:
    """Return the range of one column, of which the unit is 0 where no two values differ."""
    plan, grid, noise = tables.plan, _VALUES, tables.plan.noises[1]
    width = (unit or 1.0) / plan.cells_per_spread
    level = float(np.clip(3 * noise.sigma * math.sqrt(_CELLS_KEPT) / plan.n_used, *_LEVELS))
    levels = (level, 0.5, 1 - level)
    table, found = tables.release(used, tables.counting(feature, width), levels)
    if found is None:
        return _NOTHING
    low, median, high = map(float, found)
    if low > grid.edges[-2] or high < grid.edges[1]:
        return _NOTHING  # in the outermost cell, which has no end
    reach = -float(ndtri(level))
    beyond = (high - low) * (_DEVIATIONS - reach) / (2 * reach)
    # Values that differ at all differ by about a unit, also where most are equal.
    least = _LEAST_UNITS * plan.cells_per_spread if unit else 0.0
    lower, upper = min(low - beyond, median - least), max(high + beyond, median + least)
    zero, beside = grid.n_cells // 2, _CELLS_BESIDE_ZERO
    silent = _SILENT * noise.sigma * math.sqrt(beside)
    if silent <= _AT_STAKE * plan.n_used:
        if lower < 0 <= high and table[zero - beside : zero].sum() < silent:
            lower = 0.0
        if upper > 0 >= low and table[zero + 1 : zero + 1 + beside].sum() < silent:
            upper = 0.0
    return ColumnRange(lower * width, max(upper, lower) * width, True)
