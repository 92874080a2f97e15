"""What noise and sampling do to the squared distance between two tables, by simulation."""

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np

from skdpot._utils.threads import one_blas_thread
from skdpot.slicing.compared_tables import ComparedTable
from skdpot.slicing.quantile_pieces import squared_distances
from skdpot.slicing.supported_decoding import SupportedDecoder
from skdpot.slicing.table import CDFTable
from skdpot.slicing.table_sampling import binned_rows, copula_rows, sampling_deviations

__all__ = ["SimulatedDistances", "simulate_distances"]


@dataclass(frozen=True)
class SimulatedDistances:
    """How the squared distance between two measured tables is distributed.

    Parameters
    ----------
    squared : float
        Squared distance between the tables themselves.
    bias : float
        What their measurement adds to it on average.
    variance : float
        Variance between measurements.
    """

    squared: float
    bias: float
    variance: float


def simulate_distances(
    tables: Sequence[ComparedTable],
    guesses: Sequence[np.ndarray],
    decoder: SupportedDecoder,
    *,
    sampled: bool,
    n_simulations: int,
    rng: np.random.Generator,
) -> SimulatedDistances:
    """Measure two known tables again and again, like the released ones were.

    Parameters
    ----------
    tables : sequence of two ComparedTable
        The two sides: how noisy they are, and how many rows they are of.
    guesses : sequence of two ndarray of shape (n_slices, n_bins + 1)
        Distribution functions that are measured in their place.
    decoder : SupportedDecoder
        What decodes noisy tables.
    sampled : bool
        Whether rows are sampled anew too.
    n_simulations : int
        Number of pairs of measurements.
    rng : numpy.random.Generator
        Source of randomness.

    Returns
    -------
    SimulatedDistances
        In the units of the mapped features.
    """
    smooth = tables[0].smooth
    scale = (2 * smooth.half_widths / tables[0].n_bins) ** 2 / len(smooth.half_widths)
    exact = float(scale @ squared_distances(*guesses))
    deviations = [
        _cumulative_deviations(table, guess, others, n_simulations, rng) if sampled else None
        for table, guess, others in zip(tables, guesses, _towards(tables), strict=True)
    ]
    drawn = np.empty(n_simulations)
    with one_blas_thread():
        for k in range(n_simulations):
            measured = [
                _measured(table, guess, None if moves is None else moves[k], decoder, rng)
                for table, guess, moves in zip(tables, guesses, deviations, strict=True)
            ]
            drawn[k] = scale @ squared_distances(*measured)
    return SimulatedDistances(exact, float(drawn.mean()) - exact, float(drawn.var(ddof=1)))


def _measured(
    table: ComparedTable,
    guess: np.ndarray,
    moves: np.ndarray | None,
    decoder: SupportedDecoder,
    rng: np.random.Generator,
) -> np.ndarray:
    """Return one more measurement of a known table."""
    inner = guess[:, 1:-1] if moves is None else guess[:, 1:-1] + moves
    noise = table.noise * rng.standard_normal(table.statistic.shape) if table.noise > 0 else None
    return decoder.remeasured(inner, noise)


def _cumulative_deviations(
    table: ComparedTable,
    guess: np.ndarray,
    towards: np.ndarray,
    n_draws: int,
    rng: np.random.Generator,
) -> np.ndarray:
    """Draw how far distribution functions of samples are from that of their population."""
    smooth = table.smooth
    if table.rows is not None and guess is smooth.cdf:
        bins = binned_rows(table.rows.T, smooth.half_widths, table.n_bins)
    else:
        bins = copula_rows(CDFTable(smooth.directions, smooth.half_widths, guess), towards, rng)
    shares = sampling_deviations(bins, table.n_samples, table.n_bins, n_draws, rng)
    cumulative: np.ndarray = np.cumsum(shares, axis=2)[:, :, :-1]
    return cumulative


def _towards(tables: Sequence[ComparedTable]) -> tuple[np.ndarray, np.ndarray]:
    """Return by how much the mean of the second is larger, along each direction; twice."""
    areas = [table.smooth.half_widths * table.smooth.cdf.sum(axis=1) for table in tables]
    return areas[0] - areas[1], areas[0] - areas[1]
