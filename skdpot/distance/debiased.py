"""The sliced distance between released tables, without what their noise adds to it."""

import math
from dataclasses import dataclass

import numpy as np
from numpy.typing import ArrayLike
from scipy.special import ndtri
from scipy.stats import t as student_t

from skdpot._utils.streams import solver_generator
from skdpot.distance.compared_tables import ComparedTable, compared_tables
from skdpot.distance.simulated_distances import Comparison, SimulatedDistances
from skdpot.distance.support import common_support, hidden_distance, restricted
from skdpot.ot.slices import binned_squared_distances, refined_cdf
from skdpot.release.decoding import SupportedDecoder
from skdpot.release.sketch import SlicedSketch

# Noise of a distribution function above which the simulations are no longer trusted.
_DROWNING_NOISE = 0.2

# Number of simulations: more directions need fewer.
_FEWEST_SIMULATIONS = 32
_MOST_SIMULATIONS = 128
_ROWS_SIMULATED = 4096  # directions times simulations, between these limits

# Corrections and their uncertainty, chosen by `examples/benchmarks/bench_sliced_distance.py`.
_SMOOTHED = 0.85  # weight of the smoothed tables in the guess that is simulated
_CAUTION = 4.0  # null deviations at which half of the correction for a true distance is applied
_DOUBT = 0.15  # standard error of the floor, which comes from noisy tables, relative to it
_BINNING_DOUBT = 0.5  # standard error of the error of binning, relative to it
_UNSIMULATED = 1.6  # variance of an estimate, relative to simulations with a fixed support

_FINER = 4  # bins that replace one, to estimate the error of binning
_FEWEST_BLOCKS = 4  # of orthogonal directions, from whose means their variance is estimated


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
        The interval covers the mass that stands out of the noise. With `hidden` the upper end also
        covers what noise can hide beyond the bulk of the data, as far away as the bounds allow.

        It contains all θ >= 0 with ``-t s(θ) <= squared - θ <= u s(θ)``. Here ``s(θ)²``, the
        variance of the estimate if the squared distance were θ, grows linearly from the square of
        `null_standard_error` to that of `standard_error` at the estimate. t is a quantile of
        Student's distribution, as standard errors come from finitely many simulations. u is larger
        by Cornish and Fisher's term for skewness, because the squared distance of noise alone is
        skewed like a gamma variable.
        """
        if not 0 < confidence < 1:
            raise ValueError(f"confidence={confidence!r} must lie between 0 and 1.")
        if of not in ("directions", "space"):
            raise ValueError(f'of={of!r} must be "directions" or "space".')
        error = math.hypot(self.standard_error, self.direction_error if of == "space" else 0.0)
        quantile = float(student_t.ppf(0.5 + confidence / 2, self.n_simulations - 1))
        skewness = 0.0  # that of a gamma variable near zero, and none far from zero
        if self.noise_floor > 0 and self.standard_error > 0:
            gamma = 2 * self.null_standard_error / self.noise_floor
            skewness = min(gamma, 2.0) * (self.null_standard_error / self.standard_error) ** 3
        skewed = max(quantile**2 - 1, 0.0) * skewness / 6
        # A negative estimate has the upper end of zero: otherwise the interval would be narrowest
        # where the estimate is least plausible.
        low = self._end(self.squared, error, -1, quantile + skewed)
        # The smaller one of both floors counts.
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
    first: SlicedSketch,
    second: SlicedSketch | ArrayLike,
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
    >>> from skdpot.ot.directions import orthogonal_directions
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
    """Compare two tables, which keep their simulated errors for other comparisons."""
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
    decoded = [  # exact if there is no noise
        decoder.decode(table.statistic / table.n_samples) if table.noise > 0 else guess
        for decoder, table, guess in zip(decoders, tables, guesses, strict=True)
    ]
    # Smoothing narrows long tails, where noise costs most.
    guesses = [_SMOOTHED * g + (1 - _SMOOTHED) * d for g, d in zip(guesses, decoded, strict=True)]
    weights = (2 * tables[0].smooth.half_widths / n_bins) ** 2 / n_projections
    along = weights * binned_squared_distances(*decoded)
    raw = float(along.sum())
    finer = [refined_cdf(guess, _FINER) for guess in guesses]
    binning = weights @ (
        binned_squared_distances(*guesses) - binned_squared_distances(*finer) / _FINER**2
    )
    by_default = min(max(_ROWS_SIMULATED // n_projections, _FEWEST_SIMULATIONS), _MOST_SIMULATIONS)
    n_simulations = n_simulations or by_default
    equal = apart = SimulatedDistances()
    if noise > 0 or target == "population":
        comparison = Comparison(tables, decoders, guesses, weights)
        equal, apart = comparison.simulated(n_simulations, target == "population", seed)
    hidden, hidden_error = hidden_distance(tables, support) if noise > 0 else (0.0, 0.0)
    return DebiasedDistance(
        raw_squared=raw,
        target=target,
        n_simulations=n_simulations,
        direction_error=_direction_error(
            along - apart.added, tables[0].smooth.directions.shape[1], apart.independent
        ),
        hidden=hidden,
        hidden_error=hidden_error,
        **_corrected(raw, float(binning), noise, equal, apart),
    )


def _direction_error(shares: np.ndarray, n_features: int, noise: float) -> float:
    """Return the standard error of a mean over directions as that of the whole space.

    Blocks of orthogonal directions are independent, and so is the noise of different blocks. With
    fewer than four blocks, directions are taken to be independent, which exceeds their error.
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
    for_few_parts = float(student_t.ppf(0.975, n_parts - 1)) / 1.96
    return for_few_parts * math.sqrt(variance)


def _corrected(
    raw: float, binning: float, noise: float, equal: SimulatedDistances, apart: SimulatedDistances
) -> dict[str, float]:
    """Subtract the bias that was simulated for equal measures, or for the estimated ones."""
    excess = max(raw - equal.bias, 0.0)
    level = _CAUTION * math.sqrt(equal.variance)
    trust = 1 / (1 + (level / excess) ** 4) if excess > 0 else 0.0
    floor = equal.bias + trust * (apart.bias - equal.bias)
    binning *= trust
    # Smoothed tables that are mostly noise mislead the simulations.
    blindness = min(max(noise / _DROWNING_NOISE - 1.0, 0.0), 1.0)
    squared = (1 - blindness) * (raw - floor - binning)
    doubt, unsimulated = (_DOUBT, _UNSIMULATED) if noise > 0 else (0.0, 1.0)
    growth = max(unsimulated * apart.variance - equal.variance, 0.0)
    slope = growth / apart.squared if apart.squared > 0 else 0.0
    least = equal.variance + (doubt * floor) ** 2 + (blindness * raw) ** 2
    variance = least + slope * max(squared, 0.0) + (_BINNING_DOUBT * binning) ** 2
    return {
        "squared": squared,
        "standard_error": math.sqrt(variance),
        "noise_floor": floor,
        "binning_error": binning,
        "null_standard_error": math.sqrt(least),
        "doubted": (1 - blindness) * max(floor - apart.bias, 0.0),
    }
