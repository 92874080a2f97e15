"""What noise and sampling do to the squared distance of two tables, by simulation."""

import math
from collections.abc import Sequence
from dataclasses import dataclass
from typing import NamedTuple

import numpy as np

from skdpot._utils.threads import one_blas_thread
from skdpot.distance.compared_tables import ComparedTable, Redraws
from skdpot.ot.slices import binned_squared_distances
from skdpot.release.decoding import SupportedDecoder
from skdpot.release.strategy import increasing

_ROWS_AT_ONCE = 512  # rows of simulated tables, so that arrays stay in the cache


class SimulatedDistances(NamedTuple):
    """How the squared distance between two measured tables is distributed."""

    squared: float = 0.0  # distance of the tables themselves
    bias: float = 0.0  # mean of what measurement adds to it
    variance: float = 0.0  # variance between measurements
    added: np.ndarray | float = 0.0  # mean of what measurement adds along each direction
    independent: float = 0.0  # the variance if directions were measured independently


@dataclass(frozen=True, eq=False)
class Comparison:
    """Two tables in an order that follows from what was released, with their decoders."""

    tables: Sequence[ComparedTable]
    decoders: Sequence[SupportedDecoder]
    guesses: Sequence[np.ndarray]  # estimated distribution functions on both sides
    weights: np.ndarray  # of the directions, for squared distances in bins

    @property
    def share(self) -> float:
        """Weight of the second table in the best estimate of both, if they measure the same."""
        first, second = (table.cdf_noise**2 + 0.25 / table.n_samples for table in self.tables)
        return first / (first + second)

    def simulated(
        self, n_simulations: int, sampled: bool, seed: int | None
    ) -> tuple[SimulatedDistances, SimulatedDistances]:
        """Measure known tables repeatedly, as the released ones were measured.

        The first result is for twice the mixture of both guesses, whose distance is zero, the
        second for the guesses.
        """
        (low, high), support = self.decoders[0].span, self.decoders[0].support
        first, second = (guess[:, low : high + 1] for guess in self.guesses)
        mixture = (1 - self.share) * first + self.share * second
        pairs = ([mixture, mixture], [first, second])
        edges = np.arange(low + 1, high)
        inside = (edges > support[:, :1]) & (edges < support[:, 1:])
        draws = [table.redraws(n_simulations, sampled, seed) for table in self.tables]
        exact = [self.weights * binned_squared_distances(*pair) for pair in pairs]
        drawn = np.empty((2, n_simulations, len(first)))
        size = max(1, _ROWS_AT_ONCE // len(first))
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
                    squares = binned_squared_distances(*measured).reshape(-1, len(first))
                    drawn[number, chunk] = squares * self.weights
        equal, apart = (_summed_up(*each) for each in zip(exact, drawn, strict=True))
        return equal, apart

    def _sampling(
        self, draws: Sequence[Redraws], side: int, chunk: slice, guess: np.ndarray, mixed: bool
    ) -> np.ndarray:
        """Return errors of sampling around a guess, or around the mixture of the two.

        A sample of a mixture consists of a sample of each part, whose sizes are random. So its
        covariance is the mixture of those of the parts, plus that of the sizes.
        """
        (low, high), n_samples = self.decoders[0].span, [table.n_samples for table in self.tables]
        errors = draws[side].sampling[side, chunk]
        if errors.ndim == 2:  # of levels: rows are ordered towards the side of the larger mean
            areas = [t.smooth.half_widths * t.smooth.cdf.sum(axis=1) for t in self.tables]
            towards = (areas[0] >= areas[1])[:, None]
            inner, last = guess[:, 1:-1], errors.shape[1] - 1
            places = np.rint(np.where(towards, inner, 1 - inner) * last).astype(np.intp)
            return np.where(towards, 1.0, -1.0) * errors[:, places]
        if not mixed:
            return errors[:, :, low : high - 1]
        shares = [1 - self.share, self.share]
        parts = [
            math.sqrt(share * n / n_samples[side]) * each.sampling[side, chunk, :, low : high - 1]
            for share, n, each in zip(shares, n_samples, draws, strict=True)
        ]
        apart = (self.guesses[1] - self.guesses[0])[:, low + 1 : high]
        sizes = math.sqrt(shares[0] * shares[1] / n_samples[side]) * draws[side].between[side]
        total: np.ndarray = parts[0] + parts[1] + sizes[chunk, None, None] * apart
        return total


def _summed_up(exact: np.ndarray, drawn: np.ndarray) -> SimulatedDistances:
    """Sum up the shares of the directions, of shape (n_simulations, n_projections)."""
    added = drawn.mean(axis=0) - exact
    return SimulatedDistances(
        squared=float(exact.sum()),
        bias=float(added.sum()),
        variance=float(drawn.sum(axis=1).var(ddof=1)),
        added=added,
        independent=float(drawn.var(axis=0, ddof=1).sum()),
    )
