"""The sliced distance between released tables, without what their noise adds to it.

The effect of noise and sampling on the squared distance is simulated. A sketch shows the
distribution along each direction but not how a row's places along different directions go together,
which decides how much an average over directions varies. The simulation uses a Gaussian copula,
whose covariance matrix follows from the variances along d (d + 1) / 2 directions or more. Along
fewer, rows are taken to be as extreme in every direction as in one, which is the worst case.

Noise beyond the data costs most: a little mass far away adds its squared distance. Where a
distribution function is taken to be 0 or 1 the noise is known, and because noise is correlated
along a direction, so is part of the noise beside it.
"""

import hashlib
import math
from collections.abc import Sequence
from dataclasses import dataclass
from functools import cached_property
from typing import Any, NamedTuple

import numpy as np
from scipy.special import ndtr, ndtri
from scipy.stats import t as student_t

from skdpot._utils.validation import one_blas_thread, solver_generator, validate_rows
from skdpot.ot.slices import CDFTable, binned_squared_distances, refined
from skdpot.release.decoding import SupportedDecoder
from skdpot.release.histogram import count_projections
from skdpot.release.sketch import SlicedSketch
from skdpot.release.sketch_record import check_overlap
from skdpot.release.strategy import Strategy, increasing


class Redraws(NamedTuple):
    """Simulated errors of one table, drawn once and shared by all its comparisons.

    Of sampling there are two independent sets, for the first and for the second side of a
    comparison: (2, n_simulations, n_projections, n_bins - 1) around the table's own functions, or,
    where rows are as extreme in every direction as in one, (2, n_simulations, n_levels).
    """

    noise: np.ndarray  # (n_projections, n_simulations, n_bins); none for public rows
    sampling: np.ndarray
    between: np.ndarray  # (2, n_simulations): how many rows come from one part of a mixture


@dataclass(frozen=True, eq=False)
class ComparedTable:
    """One side of a comparison: a released table, or public rows binned like it."""

    statistic: np.ndarray  # entries of all rows together; without noise for public rows
    strategy: Strategy  # how rows were counted and are decoded
    n_samples: int
    noise: float  # standard deviation of that of each entry, divided by the number of rows
    smooth: CDFTable  # best guess of the distribution functions

    @cached_property
    def digest(self) -> bytes:
        """Hash of what was released; the last digits of the noise differ between processors."""
        facts = f"{self.statistic.shape} {self.n_samples} {self.noise:.6g}".encode()
        return hashlib.sha256(facts + np.ascontiguousarray(self.statistic).tobytes()).digest()

    @property
    def cdf_noise(self) -> float:
        """Typical standard deviation of the noise of a distribution function."""
        return self.noise * self.strategy.typical_deviation

    @cached_property
    def reach(self) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
        """Middle along each direction, and how far it reaches below and above, in bins.

        Squared reaches are smoothed over directions, as those of an ellipsoid and a shift would
        be: a support that follows the noise of its own direction keeps more of it.
        """
        widths = 2 * self.smooth.half_widths / self.strategy.n_bins
        low, middle, high = self.smooth.quantiles(np.array([_TAIL, 0.5, 1 - _TAIL])).T
        squares = np.stack([middle - low, high - middle]) ** 2
        gram = self.smooth.directions @ self.smooth.directions.T
        even, odd = squares.mean(axis=0), (squares[1] - squares[0]) / 2
        even = even.mean() + _smoothed(even - even.mean(), gram**2)
        odd = _smoothed(odd, gram)
        below, above = np.sqrt(np.maximum([even - odd, even + odd], squares / 16)) / widths
        return (middle - self.smooth.edges[:, 0]) / widths, below, above

    @cached_property
    def _redraws(self) -> dict[tuple[int, bool, int | None], Redraws]:
        return {}

    def redraws(self, n_simulations: int, sampled: bool, seed: int | None) -> Redraws:
        """Return errors like those of this table; without a seed they follow from the release."""
        key = (n_simulations, sampled, seed)
        if key not in self._redraws:
            words = np.frombuffer(self.digest, dtype=np.uint32).tolist()
            rng = np.random.default_rng(words if seed is None else [*words, seed])
            n_projections, n_bins = self.statistic.shape
            noise = np.empty((n_projections, 0, n_bins), dtype=np.float32)
            if self.noise > 0:
                shape = (n_projections, n_simulations, n_bins)
                noise = self.noise * rng.standard_normal(shape, dtype=np.float32)
            between = rng.standard_normal((2, n_simulations))
            sampling: np.ndarray = np.empty(0)
            if sampled:
                errors = sampling_errors(self.smooth, self.n_samples, 2 * n_simulations, rng)
                sampling = errors.reshape(2, n_simulations, *errors.shape[1:])
            self._redraws[key] = Redraws(noise, sampling, between)
        return self._redraws[key]


def _smoothed(values: np.ndarray, kernel: np.ndarray) -> np.ndarray:
    """Return a ridge regression on the features of a kernel over directions."""
    penalty = _RIDGE * len(kernel) * np.eye(len(kernel))
    smoothed: np.ndarray = kernel @ np.linalg.solve(kernel + penalty, values)
    return smoothed


def compared_tables(first: Any, second: Any) -> list[ComparedTable]:
    """Read the two sides of a comparison."""
    if not isinstance(first, SlicedSketch):
        raise ValueError(
            f"first must be a SlicedSketch, got {type(first).__name__}; pass public rows as second."
        )
    if not isinstance(second, SlicedSketch):
        return [table_of(first), _counted(first, second)]
    for sketch in (first, second):
        sketch._check_readable()
    n_shared = check_overlap((first, second))
    return [table_of(first, n_shared), table_of(second, n_shared)]


def table_of(sketch: SlicedSketch, n_directions: int | None = None) -> ComparedTable:
    """Read a sketch; the tables of its classes add up to that of all rows, and so does noise."""
    sketch._check_readable()
    noise = sketch.noise_scale_ * math.sqrt(len(sketch.statistic_)) / sketch.n_samples_
    statistic, whole = sketch.statistic_.sum(axis=0)[:n_directions], sketch.table()
    some = (whole.directions, whole.half_widths, whole.cdf)
    smooth = CDFTable(*(each[:n_directions] for each in some))
    return ComparedTable(statistic, sketch.strategy_, sketch.n_samples_, noise, smooth)


def _counted(sketch: SlicedSketch, public: Any) -> ComparedTable:
    """Bin public rows as those of the sketch were."""
    rows = validate_rows(sketch, public, reset=False)
    n_bins = sketch.statistic_.shape[-1]
    directions, widths = sketch.directions_, sketch.half_widths_
    counts = count_projections(rows, directions, widths, n_bins, bounds=sketch.bounds_)
    cdf = np.cumsum(np.pad(counts, ((0, 0), (1, 0))), axis=1) / len(rows)
    statistic, smooth = counts @ sketch.strategy_.matrix.T, CDFTable(directions, widths, cdf)
    return ComparedTable(statistic, sketch.strategy_, len(rows), 0.0, smooth)


class SimulatedDistances(NamedTuple):
    """How the squared distance between two measured tables is distributed."""

    squared: float = 0.0  # between the tables themselves
    bias: float = 0.0  # what their measurement adds to it on average
    variance: float = 0.0  # between measurements
    added: np.ndarray | float = 0.0  # to that along each direction, on average
    apart: float = 0.0  # the variance if the directions were measured apart


@dataclass(frozen=True, eq=False)
class Comparison:
    """Two tables of one comparison, ordered by what was released, and what decodes them."""

    tables: Sequence[ComparedTable]
    decoders: Sequence[SupportedDecoder]
    guesses: Sequence[np.ndarray]  # of the distribution functions
    weights: np.ndarray  # of squared distances in bins

    @property
    def share(self) -> float:
        """Weight of the second table in the best guess of what both measure if they are equal."""
        one, other = (table.cdf_noise**2 + 0.25 / table.n_samples for table in self.tables)
        return one / (one + other)

    def simulated(
        self, n_simulations: int, sampled: bool, seed: int | None
    ) -> tuple[SimulatedDistances, SimulatedDistances]:
        """Measure known tables again and again, like the released ones were.

        First twice the mixture of both guesses, whose distance is zero, then the guesses.
        """
        (low, high), support = self.decoders[0].span, self.decoders[0].support
        one, other = (guess[:, low : high + 1] for guess in self.guesses)
        middle = (1 - self.share) * one + self.share * other
        pairs = ([middle, middle], [one, other])
        edges = np.arange(low + 1, high)
        inside = (edges > support[:, :1]) & (edges < support[:, 1:])
        draws = [table.redraws(n_simulations, sampled, seed) for table in self.tables]
        exact = [self.weights * binned_squared_distances(*pair) for pair in pairs]
        drawn = np.empty((2, n_simulations, len(one)))
        size = max(1, _ROWS_AT_ONCE // len(one))
        with one_blas_thread():
            for start in range(0, n_simulations, size):
                chunk = slice(start, start + size)
                noises = [
                    decoder.errors(each.noise[:, chunk]) if table.noise > 0 else None
                    for decoder, table, each in zip(self.decoders, self.tables, draws, strict=True)
                ]
                for number, pair in enumerate(pairs):
                    measured = []
                    for side, (guess, noise) in enumerate(zip(pair, noises, strict=True)):
                        inner = np.repeat(guess[None, :, 1:-1], len(drawn[0, chunk]), axis=0)
                        if sampled:
                            errors = self._sampling(draws, side, chunk, guess, number == 0)
                            inner += np.where(inside, errors, 0.0)
                        if noise is not None:
                            inner += noise
                        measured.append(increasing(inner).reshape(-1, guess.shape[1]))
                    squares = binned_squared_distances(*measured).reshape(-1, len(one))
                    drawn[number, chunk] = squares * self.weights
        return tuple(_simulated(*each) for each in zip(exact, drawn, strict=True))  # type: ignore

    def _sampling(
        self, draws: Sequence[Redraws], side: int, chunk: slice, guess: np.ndarray, mixed: bool
    ) -> np.ndarray:
        """Return errors of sampling around a guess, or around the mixture of the two.

        A sample of a mixture is one of each part, of sizes that are random themselves: its
        covariance is the mixture of those of the parts and that of the sizes.
        """
        (low, high), n_samples = self.decoders[0].span, [table.n_samples for table in self.tables]
        own = draws[side].sampling[side, chunk]
        if own.ndim == 2:  # levels: by how much the mean of the second is larger, and less so
            areas = [t.smooth.half_widths * t.smooth.cdf.sum(axis=1) for t in self.tables]
            towards = (areas[0] >= areas[1])[:, None]
            inner, last = guess[:, 1:-1], own.shape[1] - 1
            places = np.rint(np.where(towards, inner, 1 - inner) * last).astype(np.intp)
            return np.where(towards, 1.0, -1.0) * own[:, places]
        if not mixed:
            return own[:, :, low : high - 1]
        shares = [1 - self.share, self.share]
        parts = [
            math.sqrt(share * n / n_samples[side]) * each.sampling[side, chunk, :, low : high - 1]
            for share, n, each in zip(shares, n_samples, draws, strict=True)
        ]
        apart = (self.guesses[1] - self.guesses[0])[:, low + 1 : high]
        sizes = math.sqrt(shares[0] * shares[1] / n_samples[side]) * draws[side].between[side]
        total: np.ndarray = parts[0] + parts[1] + sizes[chunk, None, None] * apart
        return total


def _simulated(exact: np.ndarray, drawn: np.ndarray) -> SimulatedDistances:
    """Reduce the shares of the directions, of shape (n_simulations, n_projections)."""
    added, totals = drawn.mean(axis=0) - exact, drawn.sum(axis=1)
    apart = float(drawn.var(axis=0, ddof=1).sum())
    found = float(exact.sum()), float(added.sum()), float(totals.var(ddof=1))
    return SimulatedDistances(*found, added, apart)


_PSEUDO_ROWS = 1024
_MANY_COPIES = 25  # of a row, from which on their number is as good as normal
_CELLS_AT_ONCE = 2**22
_ROWS_AT_ONCE = 512  # of tables that are simulated, so that arrays stay in the cache


def sampling_errors(
    table: CDFTable, n_samples: int, n_draws: int, rng: np.random.Generator
) -> np.ndarray:
    """Draw how far distribution functions of samples are from a table, at its inner edges."""
    weights = _resampling_weights(n_samples, n_draws, rng)
    covariance = _fitted_covariance(table)
    if covariance is None:
        return np.pad(np.cumsum(weights, axis=1), ((0, 0), (1, 0)))
    bins = _copula_rows(table, covariance, rng)
    n_projections, n_bins = len(table.cdf), table.cdf.shape[1] - 1
    errors = np.empty((n_draws, n_projections, n_bins - 1), dtype=np.float32)
    block = max(1, _CELLS_AT_ONCE // (_PSEUDO_ROWS * n_bins))
    with one_blas_thread():
        for first in range(0, n_projections, block):
            some = bins[:, first : first + block, None] <= np.arange(n_bins - 1)
            cells = some.reshape(_PSEUDO_ROWS, -1).astype(np.float32)
            errors[:, first : first + block] = (weights @ cells).reshape(n_draws, -1, n_bins - 1)
    return errors


def _resampling_weights(n_samples: int, n_draws: int, rng: np.random.Generator) -> np.ndarray:
    """Draw by how much the shares of equally likely rows in a sample differ from their mean."""
    if n_samples < _MANY_COPIES * _PSEUDO_ROWS:
        drawn = (rng.integers(0, _PSEUDO_ROWS, n_samples) for _ in range(n_draws))
        copies = np.stack([np.bincount(rows, minlength=_PSEUDO_ROWS) for rows in drawn])
        return (copies / n_samples - 1 / _PSEUDO_ROWS).astype(np.float32)
    normal = rng.standard_normal((n_draws, _PSEUDO_ROWS), dtype=np.float32)
    normal -= normal.mean(axis=1, keepdims=True)
    return normal / np.float32(math.sqrt(n_samples * _PSEUDO_ROWS))


def _copula_rows(table: CDFTable, covariance: np.ndarray, rng: np.random.Generator) -> np.ndarray:
    """Draw rows, as bins, whose places along each direction follow a table."""
    values, vectors = np.linalg.eigh(covariance)
    root = vectors * np.sqrt(np.maximum(values, 0.0))
    loads = table.directions @ root
    deviations = np.linalg.norm(loads, axis=1)
    loads /= np.where(deviations > 0, deviations, 1.0)[:, None]
    levels = ndtr(rng.standard_normal((_PSEUDO_ROWS, len(covariance))) @ loads.T)
    bins = [
        np.searchsorted(inner[1:-1], column, side="right")
        for inner, column in zip(table.cdf, levels.T, strict=True)
    ]
    return np.stack(bins, axis=1)


def _fitted_covariance(table: CDFTable) -> np.ndarray | None:
    """Return the covariance matrix that fits the variances; None where they do not tell it."""
    directions, edges = table.directions, table.edges
    n_projections, n_features = directions.shape
    if n_projections < n_features * (n_features + 1) // 2:
        return None
    rows, columns = np.triu_indices(n_features)
    design = directions[:, rows] * directions[:, columns] * np.where(rows == columns, 1, 2)
    masses = np.diff(table.cdf, axis=1)
    middles = (edges[:, 1:] + edges[:, :-1]) / 2
    means = np.einsum("ij,ij->i", masses, middles)
    variances = np.einsum("ij,ij->i", masses, (middles - means[:, None]) ** 2)
    entries, _, rank, _ = np.linalg.lstsq(design, variances, rcond=1e-6)
    if rank < len(rows):
        return None
    covariance = np.zeros((n_features, n_features))
    covariance[rows, columns] = covariance[columns, rows] = entries
    return covariance


DROWNING_NOISE = 0.2
"""Noise of a distribution function from which on the simulations are not believed."""

_FEWEST_SIMULATIONS, _MOST_SIMULATIONS = 32, 128
_ROWS_SIMULATED = 4096  # slices times simulations, between these limits
_CAUTION = 4.0  # null deviations at which an estimate is believed half way
_DOUBT = 0.15  # standard error of the floor, which comes from noisy tables, relative to it
_UNSIMULATED = 1.6  # variance of an estimate, relative to simulations that keep one support
_FEWEST_BLOCKS = 4  # whose means say how far directions differ
_BINNING_DOUBT = 0.5  # and that of the error of binning
_FINER = 4  # bins for one, to find the error of binning
_SMOOTHED = 0.85  # weight of smoothed tables in the guess that is simulated
_RIDGE = 0.01  # of the regression of reaches on directions


@dataclass(frozen=True)
class DebiasedDistance:
    """An estimate of a squared sliced Wasserstein-2 distance between noisy tables."""

    squared: float
    standard_error: float
    noise_floor: float
    binning_error: float
    raw_squared: float
    target: str
    n_simulations: int
    null_standard_error: float
    direction_error: float = 0.0
    doubted: float = 0.0
    hidden: float = 0.0
    hidden_error: float = 0.0

    @property
    def distance(self) -> float:
        """Estimate of SW₂; 0 when `squared` is negative."""
        return math.sqrt(max(self.squared, 0.0))

    def interval(
        self, confidence: float = 0.95, *, of: str = "directions", hidden: bool = False
    ) -> tuple[float, float]:
        """Return a confidence interval for the distance SW₂ (not squared).

        `of` says for which distance: along the "directions" of the sketches, or the mean over all
        directions of the "space", which adds the square of `direction_error` to the variance.
        It is of the mass that stands out of the noise. With `hidden` the upper end also has what
        noise can hide beyond the bulk of the data, as far away as the bounds allow.

        It holds all θ >= 0 with ``-t s(θ) <= squared - θ <= u s(θ)``. Here ``s(θ)²``, the variance
        of the estimate if the squared distance were θ, grows linearly from the square of
        `null_standard_error` and passes that of `standard_error` at the estimate. t is a quantile
        of Student's distribution, as standard errors come from finitely many simulations. u is
        larger by Cornish and Fisher's term for skewness, because the squared distance of noise
        alone spreads upwards like a gamma variable.
        """
        if not 0 < confidence < 1:
            raise ValueError(f"confidence={confidence!r} must lie between 0 and 1.")
        if of not in ("directions", "space"):
            raise ValueError(f'of={of!r} must be "directions" or "space".')
        error = math.hypot(self.standard_error, self.direction_error if of == "space" else 0.0)
        quantile = float(student_t.ppf(0.5 + confidence / 2, self.n_simulations - 1))
        skewness = 0.0  # of a gamma variable near zero, and none far from it
        if self.noise_floor > 0 and self.standard_error > 0:
            gamma = 2 * self.null_standard_error / self.noise_floor
            skewness = min(gamma, 2.0) * (self.null_standard_error / self.standard_error) ** 3
        skewed = max(quantile**2 - 1, 0.0) * skewness / 6
        # The upper end is that of an estimate of zero at least: below, the interval would
        # shrink to nothing, and be most certain where the estimate is least plausible.
        low = self._end(self.squared, error, -1, quantile + skewed)
        # The floor of the measures that were found, if that is smaller.
        high = self._end(max(self.squared, 0.0) + self.doubted, error, 1, quantile)
        beyond = self.hidden + float(ndtri(confidence)) * self.hidden_error if hidden else 0.0
        return low, math.sqrt(high**2 + max(beyond, 0.0))

    def _end(self, squared: float, error: float, side: int, reach: float) -> float:
        """Return the root of the θ where an estimate of `squared` is `reach` deviations off."""
        least = self.null_standard_error**2
        slope = (error**2 - least) / self.squared if self.squared > 0 else 0.0
        half = reach**2 * slope / 2
        spread = math.sqrt(max(half * (2 * squared + half) + reach**2 * least, 0.0))
        if side > 0:
            return math.sqrt(squared + half + spread)
        if squared <= 0:
            return 0.0
        # The product of the roots over the larger one: no difference of large numbers.
        width = reach * self.null_standard_error
        product = (squared - width) * (squared + width)
        return math.sqrt(max(product, 0.0) / (squared + half + spread))

    def __repr__(self) -> str:
        """Show the distance, its 95 % interval and what it is of."""
        low, high = self.interval()
        apart = "" if low > 0 else "; not told apart from 0"
        return (
            f"<DebiasedDistance {self.distance:.4g} (95 %: {low:.4g} to {high:.4g}{apart}), "
            f"target={self.target!r}>"
        )


def debiased_squared_distance(
    first: Any,
    second: Any,
    *,
    target: str = "population",
    n_simulations: int | None = None,
    random_state: int | np.random.RandomState | None = None,
) -> DebiasedDistance:
    """Estimate SW₂² between two releases, corrected for the noise.

    The distance is along the directions of the sketches, in the units of the mapped features.

    Parameters
    ----------
    first : SlicedSketch
        A closed sketch. Its classes, if any, are taken together.
    second : SlicedSketch or array-like of shape (n_samples, n_features)
        A sketch of other people's rows with the same directions, bins and bounds, or **public**
        rows, which are mapped and clipped like the private ones.
    target : {"population", "data"}, default="population"
        What is compared. "population": the distributions that the rows were sampled from; the
        distance is zero if they are equal. "data": the rows themselves, which differ even then.
    n_simulations : int, optional
        Number of simulations, at least 8. By default 32 to 128, fewer for more directions.
    random_state : int, RandomState or None, default=None
        Seed of the simulations. By default it is computed from the releases, so that the same
        releases always give the same estimate, in either order.

    Returns
    -------
    DebiasedDistance
        Estimate ``squared``, its ``standard_error``, the subtracted ``noise_floor`` and
        ``binning_error``, the uncorrected ``raw_squared``, the ``distance`` (root of the estimate)
        and ``interval(confidence)``, a confidence interval for the distance.

    Raises
    ------
    OpenSketchError, ValueError
        If a sketch is open; if the sketches do not measure the same, need too much memory, or are
        the same release, whose noise is equal on both sides.

    Privacy
    -------
    Post-processing of releases and public rows: it costs nothing.

    Notes
    -----
    1. Both tables are decoded without a prior on their shape, on the part of each direction that
       holds their data, and compared exactly.
    2. Noise, and with ``target="population"`` sampling, is simulated around two pairs of measures:
       twice the mixture of the two smoothed tables, whose distance is zero, and the smoothed tables
       themselves (with 15 % of the unsmoothed ones, for long tails). The floor is what the first
       adds to the squared distance; where the estimate stands out of the noise, it moves to what
       the second adds.
    3. The effect of binning is estimated from smooth curves through the bin edges, and subtracted
       with the floor where the estimate stands out.
    4. The standard error is that of the simulations, interpolated in the same way, plus 15 % of the
       floor and 60 % of the variance, because support and smoothed tables follow the noise, and
       half of the binning error (shares from ``examples/benchmarks/bench_sliced_distance.py``).
       Where noise moves a distribution function by more than 0.2 the simulations are no longer
       trusted, and from 0.4 on the whole noisy distance is a standard error. The upper end of an
       interval allows for the smaller of the two floors.

    Mass beyond the support is compared as if it lay at its end. Mass that does not stand out of the
    noise is not seen, however far away it is: on 10,000 rows in 8 dimensions at ε = 1, about one
    row in three hundred. ``interval(hidden=True)`` has an upper end for it.

    Examples
    --------
    >>> import numpy as np
    >>> from skdpot import SlicedSketch
    >>> from skdpot.distance.debiased import debiased_squared_distance
    >>> from skdpot.ot.slices import orthogonal_directions
    >>> rng = np.random.default_rng(0)
    >>> directions = orthogonal_directions(24, 4, rng)
    >>> X, Y = rng.normal(0, 0.25, (2, 20_000, 4))
    >>> first, second, third = (
    ...     SlicedSketch(epsilon=1.0, bounds=(-1, 1), projections=directions).fit(rows)
    ...     for rows in (X, Y, Y + 0.2)
    ... )
    >>> low, high = debiased_squared_distance(first, third).interval(0.999999)
    >>> bool(low < 0.2 < high)
    True
    """
    if target not in ("population", "data"):
        raise ValueError(f'target={target!r} must be "population" or "data".')
    if n_simulations is not None and n_simulations < 8:
        raise ValueError(f"n_simulations={n_simulations!r} must be at least 8.")
    tables = compared_tables(first, second)
    seed = None
    if random_state is not None:
        seed = int(solver_generator(random_state).integers(2**63))
    return debiased_pair(*tables, target=target, n_simulations=n_simulations, seed=seed)


def debiased_pair(
    first: ComparedTable,
    second: ComparedTable,
    *,
    target: str = "population",
    n_simulations: int | None = None,
    seed: int | None = None,
) -> DebiasedDistance:
    """Compare two tables, which keep what was simulated for other comparisons."""
    tables = sorted((first, second), key=lambda table: table.digest)
    same = np.array_equal(tables[0].statistic, tables[1].statistic)
    if same and all(table.noise > 0 for table in tables):
        raise ValueError(
            "Both sketches are the same release: the same noise on both sides tells nothing "
            "about a distance. Compare sketches of different people's rows."
        )
    n_projections, n_bins = tables[0].statistic.shape
    noise = max(table.cdf_noise for table in tables)
    support = common_support(tables) if noise > 0 else np.full((n_projections, 2), (0, n_bins))
    by_strategy = {each: SupportedDecoder(each, support) for each in {t.strategy for t in tables}}
    decoders = [by_strategy[table.strategy] for table in tables]
    guesses = [restricted(table.smooth.cdf, support) for table in tables]
    decoded = [  # exact where there is no noise
        decoder.decode(table.statistic / table.n_samples) if table.noise > 0 else guess
        for decoder, table, guess in zip(decoders, tables, guesses, strict=True)
    ]
    # Smoothing narrows long tails, where noise costs most.
    guesses = [_SMOOTHED * g + (1 - _SMOOTHED) * d for g, d in zip(guesses, decoded, strict=True)]
    weights = (2 * tables[0].smooth.half_widths / n_bins) ** 2 / n_projections
    along = weights * binned_squared_distances(*decoded)
    raw = float(along.sum())
    finer = [refined(guess, _FINER) for guess in guesses]
    binning = weights @ (
        binned_squared_distances(*guesses) - binned_squared_distances(*finer) / _FINER**2
    )
    # More slices need fewer simulations.
    wanted = min(max(_ROWS_SIMULATED // n_projections, _FEWEST_SIMULATIONS), _MOST_SIMULATIONS)
    n_simulations = n_simulations or wanted
    null = apart = SimulatedDistances()
    if noise > 0 or target == "population":
        compared = Comparison(tables, decoders, guesses, weights)
        null, apart = compared.simulated(n_simulations, target == "population", seed)
    found = _debiased(raw, float(binning), noise, null, apart)
    found["direction_error"] = _direction_error(
        along - apart.added, tables[0].smooth.directions.shape[1], apart.apart
    )
    if noise > 0:
        found["hidden"], found["hidden_error"] = _hidden(tables, support)
    return DebiasedDistance(raw_squared=raw, target=target, n_simulations=n_simulations, **found)


def _direction_error(shares: np.ndarray, n_features: int, noise: float) -> float:
    """Return the standard error of a mean over directions as one over the whole space.

    Blocks of orthogonal directions are independent, and so is noise between them. Of less than four
    blocks, directions are taken for independent, which is more than their error.
    """
    if n_features == 1:
        return 0.0
    n_blocks = len(shares) // n_features
    if n_blocks >= _FEWEST_BLOCKS:
        shares = shares[: n_blocks * n_features].reshape(n_blocks, -1).sum(axis=1)
    n_parts = len(shares)
    if n_parts < 2:
        return float(abs(shares.sum()))
    variance = max(n_parts * float(shares.var(ddof=1)) - noise, 0.0)
    few = float(student_t.ppf(0.975, n_parts - 1)) / 1.96
    return few * math.sqrt(variance)


def _debiased(
    raw: float, binning: float, noise: float, null: SimulatedDistances, apart: SimulatedDistances
) -> dict[str, float]:
    """Subtract what the simulations say about equal measures and about those that were found."""
    excess = max(raw - null.bias, 0.0)
    level = _CAUTION * math.sqrt(null.variance)
    trust = 1 / (1 + (level / excess) ** 4) if excess > 0 else 0.0
    floor = null.bias + trust * (apart.bias - null.bias)
    binning *= trust
    # Smoothed tables that are mostly noise mislead the simulations, which cannot know it.
    blindness = min(max(noise / DROWNING_NOISE - 1.0, 0.0), 1.0)
    squared = (1 - blindness) * (raw - floor - binning)
    doubt, unsimulated = (_DOUBT, _UNSIMULATED) if noise > 0 else (0.0, 1.0)
    growth = max(unsimulated * apart.variance - null.variance, 0.0)
    slope = growth / apart.squared if apart.squared > 0 else 0.0
    least = null.variance + (doubt * floor) ** 2 + (blindness * raw) ** 2
    variance = least + slope * max(squared, 0.0) + (_BINNING_DOUBT * binning) ** 2
    return {
        "squared": squared,
        "standard_error": math.sqrt(variance),
        "noise_floor": floor,
        "binning_error": binning,
        "null_standard_error": math.sqrt(least),
        "doubted": (1 - blindness) * max(floor - apart.bias, 0.0),
    }


_TAIL = 0.05  # a share of the mass that stands out of the noise of most tables
_WIDER = 1.0  # with noise of _COMMON_NOISE, the stretch is so much wider than to that quantile
_COMMON_NOISE = 0.006
_WIDER_A_DECADE = 0.25  # for each tenth of the noise
_LEAST_WIDER, _MOST_WIDER = 0.8, 2.0
_CLEARLY, _SURELY = 3.0, 4.5  # deviations of the noise: all directions together, one alone
_NEGLIGIBLE, _NOTICED = 0.001, 0.01  # shares of the mass: of all directions, of one


def common_support(tables: Sequence[ComparedTable]) -> np.ndarray:
    """Find the bins that hold the data of all tables but for the ends of their tails.

    The support reaches from the median to the 5 % and 95 % quantiles and about as far again: 3.3
    standard deviations of a Gaussian where noise is 0.006, 3 where it is more, up to 5 where it is
    less. It is all bins along a direction that shows more mass beyond than noise explains, and
    along all directions where together they show a tenth of a per cent more: a little mass far away
    can be most of a distance.
    """
    n_bins, typical = tables[0].strategy.n_bins, max(table.cdf_noise for table in tables)
    wider = _WIDER + _WIDER_A_DECADE * np.log10(_COMMON_NOISE / max(typical, 1e-12))
    stretch = 1 + np.clip(wider, _LEAST_WIDER, _MOST_WIDER)
    lows, highs = [], []
    for table in tables:
        middle, below, above = table.reach
        lows.append(middle - stretch * below)
        highs.append(middle + stretch * above)
    first = np.clip(np.floor(np.min(lows, axis=0)), 0, n_bins - 2).astype(np.intp)
    last = np.clip(np.ceil(np.max(highs, axis=0)), first + 2, n_bins).astype(np.intp)
    support = np.stack([first, last], axis=1)
    for one in tables:
        beyond, noise = _mass_beyond(one, support)
        alone = beyond > _SURELY * noise + _NOTICED
        together = beyond.mean() > _CLEARLY * np.linalg.norm(noise) / len(noise) + _NEGLIGIBLE
        support = np.where((alone | together)[:, None], (0, n_bins), support)
    return support


def _mass_beyond(table: ComparedTable, support: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
    """Return the mass outside of the support along each direction, and the noise of it."""
    strategy, rows, (first, last) = table.strategy, np.arange(len(support)), support.T
    entries = table.statistic / table.n_samples
    inner = strategy.known_total(entries @ strategy.decoder.T, 1.0)
    cdf = np.pad(inner, ((0, 0), (1, 1)), constant_values=((0, 0), (0.0, 1.0)))
    covariance = np.pad(strategy.known_total_covariance, 1)
    variances = covariance[first, first] + covariance[last, last] - 2 * covariance[first, last]
    noise: np.ndarray = table.noise * np.sqrt(np.maximum(variances, 0.0))
    return cdf[rows, first] + 1.0 - cdf[rows, last], noise


def _hidden(tables: Sequence[ComparedTable], support: np.ndarray) -> tuple[float, float]:
    """Return what mass beyond the support could add to the squared distance, and the error of it.

    Mass goes from beyond the support to its middle at most. The mean square of a row along all
    directions is limited by the energy of the strategy. Of a row at that limit, with projections
    spread like a normal variable, follows the cost for a share of its directions.
    """
    widths, n_bins = tables[0].smooth.half_widths, tables[0].strategy.n_bins
    cut = support[:, 1] - support[:, 0] < n_bins
    if not cut.any():
        return 0.0, 0.0
    limit = float((widths**2).mean()) * max(table.strategy.energy or 1.0 for table in tables)
    ends = ((support[:, 1] - support[:, 0]) * widths / n_bins)[cut] / math.sqrt(limit)
    tails = 2 * ndtr(-ends)
    excess = (1 - ends**2) * tails + 2 * ends * np.exp(-(ends**2) / 2) / math.sqrt(2 * math.pi)
    cost, shares, variances = limit * float(excess.sum() / tails.sum()), [], []
    for table in tables:
        beyond, noise = _mass_beyond(table, support)
        share = max(float(beyond.mean()), 0.0)
        shares.append(share)
        variances.append(float((noise**2).mean()) / len(noise) + share / table.n_samples)
    return cost * sum(shares), cost * math.sqrt(sum(variances))


def restricted(cdf: np.ndarray, support: np.ndarray) -> np.ndarray:
    """Move what lies outside of each row's support to its ends."""
    edges = np.arange(cdf.shape[1])
    cut: np.ndarray = np.where(edges <= support[:, :1], 0.0, cdf)
    return np.where(edges >= support[:, 1:], 1.0, cut)
