"""A distribution over the cells of a table, fitted to noisy marginals."""

from collections.abc import Mapping
from dataclasses import dataclass

import numpy as np

from skdpot.slicing.marginals import FloatArray, IntArray, NoisyMarginal
from skdpot.tables.coarsening import ColumnBins
from skdpot.tables.scaling import ScaledParticles
from skdpot.tables.tree import ColumnTree, stable_order

__all__ = ["TableModel", "draw_cells"]

_PER_ROW = 4  # particles for each row that is drawn,
_FEWEST, _MOST = 20_000, 200_000  # but so many at once
_ROWS_AT_ONCE = 100_000
_MOST_CELLS = 2**27  # of particles in marginals
_SWEEPS = 3


@dataclass(frozen=True, eq=False)
class TableModel:
    """A tree of columns, reweighted by potentials on the cells of marginals.

    Parameters
    ----------
    n_rows : int
        Number of rows of the table.
    columns : tuple of NoisyMarginal
        Released counts of the cells of each column.
    bins : tuple of ColumnBins
        Bins of each column.
    tree : ColumnTree
        Where particles are drawn from.
    marginals : tuple of NoisyMarginal
        Released marginals of several columns.
    potentials : tuple of ndarray of shape (n_cells,)
        For each marginal what its cells add to the logarithm of a particle's weight.
    """

    n_rows: int
    columns: tuple[NoisyMarginal, ...]
    bins: tuple[ColumnBins, ...]
    tree: ColumnTree
    marginals: tuple[NoisyMarginal, ...]
    potentials: tuple[FloatArray, ...]

    def particles(
        self,
        n_particles: int,
        rng: np.random.Generator,
        allowed: Mapping[int, FloatArray] | None = None,
    ) -> ScaledParticles:
        """Draw weighted particles; the weights add up to the number of rows.

        Parameters
        ----------
        n_particles : int
            How many.
        rng : Generator
            Randomness.
        allowed : mapping of int to ndarray of shape (n_bins,), optional
            See `ColumnTree.draw`.

        Returns
        -------
        ScaledParticles
        """
        codes, log_weights = self.tree.draw(n_particles, rng, allowed)
        weights = np.exp(log_weights - log_weights.max())
        particles = ScaledParticles(codes, weights * (self.n_rows / weights.sum()))
        for noisy, potentials in zip(self.marginals, self.potentials, strict=True):
            particles.add(noisy, potentials)
        return particles

    def draw(
        self,
        n_rows: int,
        rng: np.random.Generator,
        allowed: Mapping[int, FloatArray] | None = None,
    ) -> IntArray:
        """Draw rows of bins.

        Parameters
        ----------
        n_rows : int
            How many.
        rng : Generator
            Randomness.
        allowed : mapping of int to ndarray of shape (n_bins,), optional
            For columns with a condition the share of each bin that satisfies it.

        Returns
        -------
        ndarray of int32, shape (n_rows, n_columns)
        """
        drawn = []
        while n_rows > 0:
            fits = _MOST_CELLS // max(len(self.marginals), 1)
            part = min(n_rows, _ROWS_AT_ONCE, max(fits // 2, 1))
            n_particles = int(np.clip(_PER_ROW * part, min(_FEWEST, fits), min(_MOST, fits)))
            particles = self.particles(n_particles, rng, allowed)
            if not allowed:  # the marginals are those of all rows
                particles.run(_SWEEPS)
            drawn.append(particles.codes[_systematic(particles, part, rng)])
            n_rows -= part
        return np.concatenate(drawn)


def draw_cells(
    codes: IntArray, bins: ColumnBins, rng: np.random.Generator, kept: FloatArray | None = None
) -> IntArray:
    """Draw a cell of each bin.

    Parameters
    ----------
    codes : ndarray of int, shape (n_rows,)
        Bins.
    bins : ColumnBins
        Of this column.
    rng : Generator
        Randomness; stratified, so that cells occur in their shares to a row or so.
    kept : ndarray of shape (n_cells,), optional
        Share of each cell that satisfies a condition.

    Returns
    -------
    ndarray of int, shape (n_rows,)
    """
    shares = bins.cell_shares if kept is None else bins.cell_shares * kept
    order = stable_order(codes, bins.n_bins)
    starts = np.searchsorted(codes[order], np.arange(bins.n_bins + 1))
    cells = np.empty(len(codes), dtype=np.int32)
    for code in np.flatnonzero(np.diff(starts)):
        rows = order[starts[code] : starts[code + 1]]
        members = np.flatnonzero(bins.bins == code)
        edges = np.cumsum(shares[members])
        even = (rng.permutation(len(rows)) + rng.random()) / len(rows) * edges[-1]
        places = np.searchsorted(edges, even, side="right")
        cells[rows] = members[np.minimum(places, len(members) - 1)]
    return cells


def _systematic(particles: ScaledParticles, n_rows: int, rng: np.random.Generator) -> IntArray:
    """Resample particles evenly along the order of their codes, and shuffle."""
    order = np.argsort(_keys(particles.codes), kind="stable")
    edges = np.cumsum(particles.weights[order])
    even = (np.arange(n_rows) + rng.random()) / n_rows * edges[-1]
    places = np.minimum(np.searchsorted(edges, even, side="right"), len(order) - 1)
    return rng.permutation(order[places])


def _keys(codes: IntArray) -> IntArray:
    """Return numbers in the lexicographic order of as many columns as fit into 62 bits."""
    keys = np.zeros(len(codes), dtype=np.int64)
    n_keys = 1
    for column in codes.T:
        size = int(column.max()) + 1
        n_keys *= size
        if n_keys >= 2**62:
            break
        keys = keys * size + column
    return keys
