"""Risk and unfairness of moved predictions for all levels, from one release.

Errors and moves of predictions are measured with noise, and the distributions of predictions of
each group before they are moved, halfway and after. Both figures are quadratic in the level, apart
from a root.
"""

import math
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from functools import partial
from itertools import combinations
from typing import TypeAlias

import numpy as np
import pandas as pd

from skdpot._utils.streams import SecretStream
from skdpot.fair.transport import ScoresOf, Transport, in_ball
from skdpot.nets.cells import Cells
from skdpot.nets.output_tables import OutputTables, TableNoise, plan_output_tables, release_tables
from skdpot.ot.directions import orthogonal_directions
from skdpot.ot.slices import CDFTable
from skdpot.privacy.events import Event
from skdpot.release.moments import SumNoise, plan_sums, release_sums

# From rows, targets and groups of an audit to vectors that are summed.
VectorsOf: TypeAlias = Callable[[np.ndarray, np.ndarray, np.ndarray], np.ndarray]

_MEASURED = np.array([0.0, 0.5, 1.0])  # levels whose predictions are measured
_SHOWN = np.linspace(0.0, 1.0, 21)  # levels of the frontier
_REPLICATES = 60  # of noise and sampling, for the bias and the errors of distances
_LARGEST_ERROR = math.sqrt(2.0)  # in half ranges of the targets
_N_OCTAVES = 12  # of the lengths of errors and moves
# Shares of the vectors that may exceed the radius: usually, and where the noise hides more.
_BEYOND = 0.01, 0.05
_DOUBT = 2.5  # standard deviations of the noise of counts, which hide as many vectors
_CENTRE = np.array([0.5, 0.0, 0.5, 0.5])  # middle of the entries of `_moments`
_LONGEST = math.sqrt(0.5**2 + 1.0 + 0.5**2 + 0.5**2)  # largest norm of `_moments` less the middle


@dataclass(frozen=True, kw_only=True)
class FrontierPlan:
    """The noise of a frontier, and the directions of its distances."""

    curve: TableNoise
    sizes: SumNoise
    moments: SumNoise
    slices: np.ndarray  # (n_slices, q)

    @property
    def events(self) -> tuple[Event, ...]:
        """The events to charge."""
        return (self.curve.event, self.sizes.event, self.moments.event)


def plan_frontier(
    cells: Cells,
    n_outputs: int,
    rng: np.random.Generator,
    *,
    mu_of_curve: float,
    mu_of_sizes: float,
    mu_of_moments: float,
) -> FrontierPlan:
    """Plan the releases of a frontier."""
    n_slices = 1 if n_outputs == 1 else 2 * n_outputs
    return FrontierPlan(
        curve=plan_output_tables(
            mu_of_curve,
            1,
            len(_MEASURED) * n_slices,
            max(1, min(cells.sizes)),
            "Predictions of each group, before and after they are moved",
        ),
        sizes=plan_sums(mu_of_sizes, math.sqrt(2.0), "Sizes of errors and moves"),
        moments=plan_sums(mu_of_moments, _LONGEST, "Squared errors and moves"),
        slices=orthogonal_directions(n_slices, n_outputs, rng, axes_first=True),
    )


@dataclass(frozen=True, eq=False, kw_only=True)
class Frontier:
    """Released figures from which risk and unfairness of every level follow."""

    moments: np.ndarray  # means of |r|², r·d, |d|², |r|⁴; r: residuals, d: moves
    deviations: np.ndarray  # of their noise
    n_samples: int
    tables: OutputTables
    sizes: tuple[int, ...]
    noise: TableNoise
    scales: np.ndarray  # half ranges of the targets, (q,)
    slices: np.ndarray

    def table(self, variance: float, reach: float) -> pd.DataFrame:
        """Return mean squared error and distance between groups with their standard errors.

        The released `variance` of the mapped targets is what the noise of a squared error is
        weighed against, and no distance exceeds twice the `reach` of mapped predictions.
        """
        squared = float(self.scales @ self.scales) / len(self.scales)
        risk, risk_error = self._risk(_SHOWN)
        usual = squared * variance
        share = usual**2 / (usual**2 + risk_error**2)
        risk = np.minimum(usual + share * (risk - usual), 4.0 * squared)
        risk_error = np.minimum(np.sqrt(share) * risk_error, 4.0 * squared)
        furthest = 2.0 * reach * math.sqrt(squared)
        distance, distance_error = np.minimum(self._distance(_SHOWN), furthest)
        return pd.DataFrame(
            {
                "level": _SHOWN,
                "mean_squared_error": risk,
                "mean_squared_error_se": risk_error,
                "wasserstein": distance,
                "wasserstein_se": distance_error,
            }
        )

    def _risk(self, levels: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
        """Return mean squares of the residuals r + level d, with standard errors."""
        terms = np.stack([np.ones_like(levels), 2.0 * levels, levels**2])
        unit = _LARGEST_ERROR**2 * float(self.scales @ self.scales) / len(self.scales)
        spread = max(0.0, self.moments[3] - self.moments[0] ** 2) / self.n_samples
        noise = self.deviations[:3] ** 2 @ terms**2
        risk = np.maximum(self.moments[:3] @ terms, 0.0)
        return unit * risk, unit * np.sqrt(noise + spread)

    def _distance(self, levels: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
        """Return mean distances of two groups, corrected for noise and sampling, with errors."""
        rng, noise = np.random.default_rng(0), self.noise
        cdfs = [table.cdf for table in self.tables.tables]
        measured, replicated = self._squared(cdfs), []
        for _ in range(_REPLICATES):
            copies = []
            for cdf, size in zip(cdfs, self.sizes, strict=True):
                counts = rng.multinomial(size, np.maximum(np.diff(cdf), 0.0))
                noisy = counts @ noise.strategy.matrix.T
                noisy = noisy + noise.sigma * rng.standard_normal(noisy.shape)
                copies.append(noise.strategy.decoded(noisy, size))
            replicated.append(self._squared(copies))
        bias = np.mean(replicated, axis=0) - measured
        squared = np.maximum(_curve(measured - bias, levels), 0.0)
        spread = np.std([_curve(copy, levels) for copy in replicated], axis=0)
        distance = np.sqrt(squared)
        # A root near 0 has no derivative to scale errors with.
        above = np.sqrt(squared + spread) - distance
        below = distance - np.sqrt(np.maximum(squared - spread, 0.0))
        return distance.mean(axis=0), np.maximum(above, below).mean(axis=0)

    def _squared(self, cdfs: Sequence[np.ndarray]) -> np.ndarray:
        """Return squared distances, (n_pairs, measured levels), in units of the targets."""
        first = self.tables.tables[0]
        tables = [CDFTable(first.directions, first.half_widths, cdf) for cdf in cdfs]
        lengths = np.linalg.norm(self.slices * self.scales, axis=1)
        return np.array(
            [
                (a.squared_distances(b).reshape(len(_MEASURED), -1) * lengths**2).mean(axis=1)
                for a, b in combinations(tables, 2)
            ]
        )


def _curve(measured: np.ndarray, levels: np.ndarray) -> np.ndarray:
    """Return the quadratic functions of the level with the measured values at 0, 1/2 and 1."""
    start, middle, end = measured.T[..., None]
    bend = 2.0 * start - 4.0 * middle + 2.0 * end
    return np.asarray(start + (end - start - bend) * levels + bend * levels**2)


def release_frontier(
    scores: tuple[np.ndarray, np.ndarray],
    targets: np.ndarray,
    scores_of: ScoresOf,
    cells: Cells,
    plan: FrontierPlan,
    transport: Transport,
    scales: np.ndarray,
    stream: SecretStream,
) -> Frontier:
    """Measure the errors of predictions, their moves, and the distances between groups."""
    outputs, weights = scores
    slices = plan.slices * scales
    slices = slices / np.linalg.norm(slices, axis=1, keepdims=True)

    def values(outputs: np.ndarray, weights: np.ndarray) -> np.ndarray:
        moves = transport(outputs, weights) - outputs
        return np.hstack([(outputs + level * moves) @ slices.T for level in _MEASURED])

    def values_of(rows: np.ndarray, codes: np.ndarray) -> np.ndarray:
        outputs, weights = scores_of(rows, codes)
        return values(outputs, weights)

    def errors_and_moves(
        outputs: np.ndarray, weights: np.ndarray, targets: np.ndarray
    ) -> tuple[np.ndarray, np.ndarray]:
        unit = scales / np.linalg.norm(scales) / _LARGEST_ERROR
        moves = transport(outputs, weights) - outputs
        return (outputs - np.asarray(targets)) * unit, moves * unit

    def vectors_of(vectors: Callable[..., np.ndarray]) -> VectorsOf:
        """Return the vectors of the records of an audit."""

        def of_records(rows: np.ndarray, targets: np.ndarray, codes: np.ndarray) -> np.ndarray:
            outputs, weights = scores_of(rows, codes)
            errors, moves = errors_and_moves(outputs, weights, targets)
            return vectors(errors, moves)

        return of_records

    limits = np.full(len(_MEASURED) * len(slices), math.sqrt(slices.shape[1]))
    within = None
    if transport.within is not None:
        centres, half_widths = slices @ transport.within[0], np.abs(slices) @ transport.within[1]
        within = (np.tile(centres, len(_MEASURED)), np.tile(half_widths, len(_MEASURED)))
    tables = release_tables(
        values(outputs, weights),
        cells.codes,
        cells.sizes,
        np.eye(len(limits)),
        limits,
        plan.curve,
        stream,
        within=within,
        values_of=values_of,
    )
    errors, moves = errors_and_moves(outputs, weights, targets)
    radii = _release_radii(errors, moves, cells.codes, plan.sizes, stream, vectors_of(_octaves))
    moments = partial(_moments, radii=radii)
    sums = release_sums(
        moments(errors, moves), cells.codes, 1, plan.moments, stream, vectors_of(moments)
    )
    n = len(targets)
    units = np.array([radii[0] ** 2, radii[0] * radii[1], radii[1] ** 2, radii[0] ** 4])
    return Frontier(
        moments=(sums[0] / n + _CENTRE) * units,
        deviations=plan.moments.sigma / n * units,
        n_samples=n,
        tables=tables,
        sizes=cells.sizes,
        noise=plan.curve,
        scales=scales,
        slices=plan.slices,
    )


def _release_radii(
    errors: np.ndarray,
    moves: np.ndarray,
    codes: np.ndarray,
    noise: SumNoise,
    stream: SecretStream,
    vectors_of: VectorsOf,
) -> np.ndarray:
    """Release lengths that few errors and few moves exceed."""
    sums = release_sums(_octaves(errors, moves), codes, 1, noise, stream, vectors_of)
    return _radii(sums[0], noise.sigma, len(errors))


def _octaves(errors: np.ndarray, moves: np.ndarray) -> np.ndarray:
    """Return indicators of the octave below 1 that the norm of each vector lies in.

    Each vector has one indicator of the errors and one of the moves, so its norm is the root of 2.
    """
    norms = [np.linalg.norm(in_ball(vectors, 1.0), axis=1) for vectors in (errors, moves)]
    octaves = [np.clip(-np.frexp(norm)[1], 0, _N_OCTAVES - 1) for norm in norms]
    return np.hstack([np.eye(_N_OCTAVES)[octave] for octave in octaves])


def _radii(counts: np.ndarray, sigma: float, n: int) -> np.ndarray:
    """Return lengths that few errors and few moves exceed, whatever the noise may hide."""
    beyond = np.cumsum(counts.reshape(2, _N_OCTAVES), axis=1)  # norms of 2^-k and more
    least = beyond + sigma * np.sqrt(np.arange(1, _N_OCTAVES + 1))
    allowed = min(_BEYOND[1] * n, max(_BEYOND[0] * n, _DOUBT * sigma))
    k = np.minimum.accumulate(least <= allowed, axis=1).sum(axis=1)
    return np.minimum(math.sqrt(2.0) * 2.0**-k, 1.0)


def _moments(errors: np.ndarray, moves: np.ndarray, *, radii: np.ndarray) -> np.ndarray:
    r"""Return |r|², r·d, |d|² and |r|⁴ of vectors that are shortened to 1, less their middle.

    Errors and moves are divided by their radius first, so longer ones count as of this length. Each
    entry but the second lies within 1/2 of the middle, and the second within 1, so the norm is at
    most `_LONGEST`.
    """
    r, d = in_ball(errors / radii[0], 1.0), in_ball(moves / radii[1], 1.0)
    squared_errors, products, squared_moves = (
        (a * b).sum(axis=1) for a, b in ((r, r), (r, d), (d, d))
    )
    return np.stack([squared_errors, products, squared_moves, squared_errors**2], axis=1) - _CENTRE
