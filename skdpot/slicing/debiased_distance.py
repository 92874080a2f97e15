"""The sliced distance between released tables, without what their noise adds to it."""

import math
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
from scipy.stats import t as student_t

from skdpot._utils.rng import solver_generator
from skdpot.slicing.compared_tables import ComparedTable, compared_tables
from skdpot.slicing.distance_simulation import SimulatedDistances, simulate_distances
from skdpot.slicing.quantile_pieces import refined, squared_distances
from skdpot.slicing.strategy import square_root_strategy
from skdpot.slicing.supported_decoding import SupportedDecoder, common_support

__all__ = ["DROWNING_NOISE", "DebiasedDistance", "debiased_squared_distance"]

DROWNING_NOISE = 0.2
"""Noise of a distribution function from which on the simulations are not believed."""

_TARGETS = ("population", "data")
_FEWEST_SIMULATIONS, _MOST_SIMULATIONS = 32, 128
_ROWS_SIMULATED = 8192  # slices times simulations, between these limits
_CAUTION = 4.0  # null deviations at which an estimate is believed half way
_DOUBT = 0.08  # standard error of the floor, which comes from noisy tables, relative to it
_UNSIMULATED = 1.2  # variance of an estimate, relative to simulations that keep one support
_BINNING_DOUBT = 0.5  # and that of the error of binning
_FINER = 4  # bins for one, to find the error of binning


@dataclass(frozen=True)
class DebiasedDistance:
    """An estimate of a squared sliced Wasserstein-2 distance between noisy tables.

    Parameters
    ----------
    squared : float
        Estimate of SW₂², ``raw_squared - noise_floor - binning_error``: without bias, hence
        below zero about half of the time when the distance is zero.
    standard_error : float
        Standard error of `squared`.
    noise_floor : float
        What noise adds to the squared distance, as far as it is known.
    binning_error : float
        What the binning of the rows adds to the squared distance; mostly negative.
    raw_squared : float
        Squared distance between the noisy tables.
    target : {"population", "data"}
        Between what the distance is estimated.
    n_simulations : int
        Number of simulations that noise floor and standard error come from.
    null_standard_error : float
        Standard error of `squared` if the distance were zero.
    """

    squared: float
    standard_error: float
    noise_floor: float
    binning_error: float
    raw_squared: float
    target: str
    n_simulations: int
    null_standard_error: float

    @property
    def distance(self) -> float:
        """Estimate of SW₂; 0 when `squared` is negative."""
        return math.sqrt(max(self.squared, 0.0))

    def interval(self, confidence: float = 0.95) -> tuple[float, float]:
        """Return a confidence interval for the distance SW₂ (not squared).

        Parameters
        ----------
        confidence : float, default=0.95
            In (0, 1).

        Returns
        -------
        low, high : float
            ``0 <= low <= high``. A lower end of 0 means that the tables do not tell the two
            sides apart at this confidence.

        Raises
        ------
        ValueError
            If `confidence` is not in (0, 1).

        Notes
        -----
        All θ >= 0 with ``-t s(θ) <= squared - θ <= u s(θ)``. Here ``s(θ)²``, the variance of the
        estimate if the squared distance were θ, grows linearly from the square of
        `null_standard_error` and passes that of `standard_error` at the estimate. t is a quantile
        of Student's distribution, as standard errors come from finitely many simulations. u is
        larger by Cornish and Fisher's term for skewness: the squared distance that noise makes is
        never negative, and spreads upwards like a gamma variable; further away that does not
        matter.
        """
        if not 0 < confidence < 1:
            raise ValueError(f"confidence={confidence!r} must lie between 0 and 1.")
        quantile = float(student_t.ppf(0.5 + confidence / 2, self.n_simulations - 1))
        skewed = max(quantile**2 - 1, 0.0) * self._skewness / 6
        # The upper end is that of an estimate of zero at least: below, the interval would
        # shrink to nothing, and be most certain where the estimate is least plausible.
        return (
            self._end(self.squared, -1, quantile + skewed),
            self._end(max(self.squared, 0.0), 1, quantile),
        )

    def _end(self, squared: float, side: int, reach: float) -> float:
        """Return the root of the θ where an estimate of `squared` is `reach` deviations off."""
        least = self.null_standard_error**2
        slope = (self.standard_error**2 - least) / self.squared if self.squared > 0 else 0.0
        half = reach**2 * slope / 2
        spread = math.sqrt(max(half * (2 * squared + half) + reach**2 * least, 0.0))
        if side > 0:
            return math.sqrt(squared + half + spread)
        if squared <= 0:
            return 0.0
        # The product of the roots over the larger one: no difference of large numbers.
        product = (squared - reach * self.null_standard_error) * (
            squared + reach * self.null_standard_error
        )
        return math.sqrt(max(product, 0.0) / (squared + half + spread))

    @property
    def _skewness(self) -> float:
        """Skewness of the estimate: of a gamma variable near zero, and none far from it."""
        if self.noise_floor <= 0 or self.standard_error == 0:
            return 0.0
        gamma = 2 * self.null_standard_error / self.noise_floor
        return float(min(gamma, 2.0) * (self.null_standard_error / self.standard_error) ** 3)

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
    """Estimate SW₂² between two releases, with the noise's own contribution subtracted.

    Along the directions of the sketches, in the units of the mapped features.

    Parameters
    ----------
    first : SlicedSketch
        A closed sketch. Of a sketch with classes, all classes together.
    second : SlicedSketch or array-like of shape (n_samples, n_features)
        A sketch with the same directions, bins and bounds, of other people's rows; or
        **public** rows, which are mapped and clipped like the private ones were.
    target : {"population", "data"}, default="population"
        Between what the distance is wanted. "population": the laws that rows were sampled
        from, independently; it is zero when both parties draw from the same law. "data": the
        rows themselves, which differ a little even then.
    n_simulations : int, optional
        Number of simulations, at least 8. By default 32 to 128, fewer for more slices.
    random_state : int, RandomState or None, default=None
        Seed of the simulations. By default it follows from the released tables, so that the
        same releases always give the same estimate, in either order.

    Returns
    -------
    DebiasedDistance
        Estimate, standard error, noise floor, and a confidence interval.

    Raises
    ------
    OpenSketchError
        If a sketch is open.
    ValueError
        If the sketches do not measure the same, or more than memory holds, or are one and the
        same release: its noise is then the same on both sides, and tells nothing.

    Privacy
    -------
    Post-processing of released tables, and of public rows: costs nothing.

    See Also
    --------
    SlicedSketch.distance : The distance between the smoothed tables, noise included.

    Notes
    -----
    1. Both tables are decoded without a prior on their shape, on the stretch of each direction
       that holds their data (`SupportedDecoder`), and compared exactly.
    2. Noise, and with ``target="population"`` sampling, is drawn again around two pairs of
       measures: twice the mixture of the two smoothed tables, whose distance is zero, and the
       smoothed tables themselves. What the first adds to the squared distance is the floor;
       where the estimate stands out of the noise, it moves to the second.
    3. Binning blurs shapes: what that does to the distance is read off smooth curves through the
       bin edges, and subtracted with the floor where the estimate stands out.
    4. The standard error is that of the simulations, between the two pairs in the same way, with
       8 % of the floor and half of the binning error on top for what is not known of them, and
       up to 20 % of the variance for what simulations leave out: that support and smoothed
       tables follow the noise. Shares are outcomes of
       ``examples/benchmarks/bench_sliced_distance.py``. Where
       noise moves a distribution function by more than 0.2, the simulations are no longer
       believed, and from 0.4 on the whole noisy distance is a standard error.

    Mass beyond the support is compared as if it lay at its end. The support holds all that stands
    out of the noise; what does not is not seen, however far away it is. On 10,000 rows in 8
    dimensions at ε = 1 that is about one row in three hundred.

    Examples
    --------
    >>> import numpy as np
    >>> from skdpot import SlicedSketch
    >>> from skdpot.slicing import debiased_squared_distance, orthogonal_directions
    >>> rng = np.random.default_rng(0)
    >>> directions = orthogonal_directions(24, 4, rng)
    >>> X, Y = rng.normal(0, 0.25, (2, 20_000, 4))
    >>> first, second, third = (
    ...     SlicedSketch(epsilon=1.0, bounds=(-1, 1), slices=directions).fit(rows)
    ...     for rows in (X, Y, Y + 0.2)
    ... )
    >>> low, high = debiased_squared_distance(first, third).interval(0.999999)
    >>> bool(low < 0.2 < high)
    True
    """
    if target not in _TARGETS:
        raise ValueError(f'target={target!r} must be "population" or "data".')
    if n_simulations is not None and n_simulations < 8:
        raise ValueError(f"n_simulations={n_simulations!r} must be at least 8.")
    tables = compared_tables(first, second)
    sampled = target == "population"
    noise = max(table.cdf_noise for table in tables)
    n_bins = tables[0].n_bins
    support = _support(tables) if noise > 0 else np.full((len(tables[0].statistic), 2), (0, n_bins))
    decoder = SupportedDecoder(square_root_strategy(n_bins), support)
    weights = (2 * tables[0].smooth.half_widths / n_bins) ** 2 / len(support)
    raw = float(weights @ squared_distances(*(table.decoded(decoder, support) for table in tables)))
    guesses = [table.guess(support) for table in tables]
    finer = [refined(guess, _FINER) for guess in guesses]
    binning = weights @ (squared_distances(*guesses) - squared_distances(*finer) / _FINER**2)
    n_simulations = n_simulations or _default_simulations(len(support))
    null = apart = SimulatedDistances(0.0, 0.0, 0.0)
    if noise > 0 or sampled:
        share = tables[0].variance / (tables[0].variance + tables[1].variance)
        middle = (1 - share) * guesses[0] + share * guesses[1]
        rng = _simulation_generator(tables, random_state)
        null, apart = (
            simulate_distances(
                tables, pair, decoder, sampled=sampled, n_simulations=n_simulations, rng=rng
            )
            for pair in ([middle, middle], guesses)
        )
    return _debiased(raw, float(binning), noise, null, apart, target, n_simulations)


def _debiased(
    raw: float,
    binning: float,
    noise: float,
    null: SimulatedDistances,
    apart: SimulatedDistances,
    target: str,
    n_simulations: int,
) -> DebiasedDistance:
    """Subtract what the simulations say about equal measures and about those that were found."""
    excess = max(raw - null.bias, 0.0)
    level = _CAUTION * math.sqrt(null.variance)
    trust = 1 / (1 + (level / excess) ** 4) if excess > 0 else 0.0
    floor = null.bias + trust * (apart.bias - null.bias)
    binning *= trust
    squared = raw - floor - binning
    growth = max(_UNSIMULATED * apart.variance - null.variance, 0.0)
    slope = growth / apart.squared if apart.squared > 0 else 0.0
    # Smoothed tables that are mostly noise mislead the simulations, which cannot know it.
    blindness = min(max(noise / DROWNING_NOISE - 1.0, 0.0), 1.0)
    least = null.variance + (_DOUBT * floor) ** 2 + (blindness * raw) ** 2
    doubt = (_BINNING_DOUBT * binning) ** 2
    return DebiasedDistance(
        squared=squared,
        standard_error=math.sqrt(least + slope * max(squared, 0.0) + doubt),
        noise_floor=floor,
        binning_error=binning,
        raw_squared=raw,
        target=target,
        n_simulations=n_simulations,
        null_standard_error=math.sqrt(least),
    )


def _support(tables: Sequence[ComparedTable]) -> np.ndarray:
    """Return the bins in which the tables are compared."""
    return common_support(
        [table.smooth for table in tables],
        [table.statistic / table.n_samples for table in tables],
        [table.noise for table in tables],
    )


def _default_simulations(n_slices: int) -> int:
    """Return a number of simulations that takes about a second; more slices need fewer."""
    wanted = _ROWS_SIMULATED // n_slices
    return min(max(wanted, _FEWEST_SIMULATIONS), _MOST_SIMULATIONS)


def _simulation_generator(
    tables: Sequence[ComparedTable], random_state: int | np.random.RandomState | None
) -> np.random.Generator:
    """Return a generator that follows from the tables, unless a seed is given."""
    if random_state is not None:
        return solver_generator(random_state)
    words = np.frombuffer(b"".join(table.digest for table in tables), dtype=np.uint32)
    return np.random.default_rng(words.tolist())
