"""TODO: simulated_distances."""

import math
from collections.abc import Sequence
from dataclasses import dataclass
from typing import NamedTuple

import numpy as np

from skdpot._utils.validation import one_blas_thread
from skdpot.distance.compared_tables import ComparedTable, Redraws
from skdpot.ot.slices import binned_squared_distances
from skdpot.release.decoding import SupportedDecoder
from skdpot.release.strategy import increasing


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


_ROWS_AT_ONCE = 512  # of tables that are simulated, so that arrays stay in the cache
