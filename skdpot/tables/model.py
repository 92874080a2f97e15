"""The fitted distribution over the cells of a table: a tree of columns, reweighted by potentials.

Everything here is computed from released counts.
"""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from functools import cached_property
from typing import Any

import numpy as np
import numpy.typing as npt

from skdpot._utils.arrays import FloatArray, IntArray
from skdpot.release.releases import Release
from skdpot.tables.bins import POSSIBLE, ColumnBins, bin_codes
from skdpot.tables.contingency import Marginal, NoisyMarginal
from skdpot.tables.grids import ColumnGrid
from skdpot.tables.marginal_release import tables_of
from skdpot.tables.particles import Moves, ScaledParticles, resampled
from skdpot.tables.tree import ColumnTree, draw_stratified

MOST_MOVED = 50_000  # particles that a fit moves
_PER_ROW = 4  # particles per drawn row,
_FEWEST, _MOST = 20_000, 200_000  # within these limits per batch
_ROWS_AT_ONCE = 100_000  # rows per batch
_MOST_CELLS = 2**27  # particles times marginals in memory
_SWEEPS, _DRAW_SWEEPS = 15, 3  # over all marginals, in a fit and in a draw
_MOST_BALANCED = 300  # pairs of columns up to which drawn rows are balanced
_LEAST_BALANCED = 5.0  # expected rows of a cell that is balanced
# Rounds of exchanges, rows looked at per round, and the share exchanged in the first round.
_EXCHANGES, _BALANCED_AT_ONCE, _EXCHANGED = 200, 2000, 0.03


@dataclass(frozen=True, eq=False)
class TableModel:
    """A tree of columns, reweighted by potentials on the cells of marginals."""

    n_rows: int
    releases: tuple[Release, ...]
    bins: tuple[ColumnBins, ...]
    tree: ColumnTree
    potentials: tuple[FloatArray, ...]
    grids: tuple[ColumnGrid, ...] = ()

    @cached_property
    def n_rounds(self) -> int:
        """Number of releases of single columns."""
        tables = [release.facts["marginals"] for release in self.releases]
        return sum(all(len(marginal.columns) == 1 for marginal in part) for part in tables)

    @cached_property
    def columns(self) -> tuple[NoisyMarginal, ...]:
        """Released counts of the final cells of each column."""
        return tables_of(self.releases[self.n_rounds - 1])

    @cached_property
    def marginals(self) -> tuple[NoisyMarginal, ...]:
        """Released counts of pairs and triples; counts released twice are averaged."""
        known: dict[Marginal, NoisyMarginal] = {}
        for release in self.releases[self.n_rounds :]:
            for noisy in tables_of(release):
                before = known.get(noisy.marginal)
                known[noisy.marginal] = noisy if before is None else before.merge(noisy)
        return tuple(known.values())

    @cached_property
    def consistent(self) -> tuple[NoisyMarginal, ...]:
        """The counts of `marginals`, made consistent on every column.

        The counts of a column in all tables are averaged by precision, one table after the other,
        as if bins had independent errors. Each table then shares the difference evenly among its
        cells (Zhang et al., "PrivSyn", 2021, Section 4.3).
        """
        if self.releases[0].kind != "marginals" or not self.columns:  # published tables
            return self.marginals
        known = []
        for noisy, bins in zip(self.columns, self.bins, strict=True):
            counted = bins.cell_shares > 2 * POSSIBLE
            variances = noisy.sigma**2 * np.bincount(bins.bins, counted, bins.n_bins)
            known.append((self.n_rows * bins.shares, variances + noisy.sigma**2))
        for noisy in self.marginals:
            for axis, column in enumerate(noisy.marginal.columns):
                (counts, variances), groups = known[column], noisy.marginal.groups[axis]
                margin, n_others = _margin(noisy.marginal, noisy.counts, axis)
                margin = margin + (self.n_rows - margin.sum()) / len(margin)
                total = np.bincount(groups, variances) + noisy.sigma**2 * n_others
                gains = variances / np.where(total > 0.0, total, 1.0)[groups]
                missed = (margin - np.bincount(groups, counts))[groups]
                known[column] = (counts + gains * missed, variances * (1 - gains))
        moved = []
        for noisy in self.marginals:
            counts = noisy.counts + (self.n_rows - noisy.counts.sum()) / len(noisy.counts)
            for axis, column in enumerate(noisy.marginal.columns):
                due = np.bincount(noisy.marginal.groups[axis], known[column][0])
                due += (self.n_rows - due.sum()) / len(due)
                margin, n_others = _margin(noisy.marginal, counts, axis)
                shape = [-1 if place == axis else 1 for place in range(len(noisy.marginal.shape))]
                table = counts.reshape(noisy.marginal.shape)
                counts = (table + ((due - margin) / n_others).reshape(shape)).ravel()
            moved.append(replace(noisy, counts=counts))
        return tuple(moved)

    def seen_by(self, release: Release, values: Sequence[Any]) -> IntArray:
        """Return the codes of rows that a release counts, as recorded by the gate or as stored."""
        marginals = release.facts["marginals"]
        level = marginals[0].levels if len(marginals[0].columns) == 1 else None
        cells = np.stack([g.codes(v) for g, v in zip(self.grids, values, strict=True)], axis=1)
        if level is None:
            return bin_codes(cells, self.bins)
        if level == (0,):
            cells = np.hstack([cells, cells])  # roundness codes are in the second half
            for (place,) in (marginal.columns for marginal in marginals):
                c = place % len(values)
                cells[:, place] = self.grids[c].roundness(self.grids[c].column.to_unit(values[c]))
            return cells
        rounds = (tables_of(other) for other in self.releases[: self.n_rounds])
        stored = {n.marginal: n.marginal.groups[0] for tables in rounds for n in tables}
        for marginal in marginals:
            groups = stored[marginal]
            if len(marginal.groups[0]) != len(groups):  # the gate saw it before cells were split
                cells[:, marginal.columns[0]] = groups[cells[:, marginal.columns[0]]]
        return cells

    def particles(
        self,
        n_particles: int,
        rng: np.random.Generator,
        allowed: Mapping[int, FloatArray] | None = None,
        impossible: Sequence[Mapping[int, npt.NDArray[np.bool_]]] = (),
        n_moved: int = MOST_MOVED,
    ) -> ScaledParticles:
        """Draw weighted particles; the weights sum to the number of rows."""
        codes, log_weights = self.tree.draw(n_particles, rng, allowed)
        weights = np.exp(log_weights - log_weights.max())
        broken = np.zeros(len(codes), dtype=np.bool_)
        for marks in impossible:
            broken |= np.all([mark[codes[:, c]] for c, mark in marks.items()], axis=0)
        if allowed and broken.all():
            raise ValueError("Every row that satisfies conditions is forbidden by a rule.")
        if not broken.all():  # otherwise moves may lead to allowed rows
            weights[broken] = 0.0
        weights *= self.n_rows / weights.sum()
        moves = Moves(self.tree.factors(allowed or {}), impossible, min(n_moved, n_particles), rng)
        particles = ScaledParticles(codes, weights, moves)
        for noisy, potentials in zip(self.consistent, self.potentials, strict=True):
            particles.add(noisy, potentials)
        return particles

    def fitted(self, particles: ScaledParticles) -> "TableModel":
        """Return the model with potentials that make particles of its tree fit all marginals."""
        for noisy in self.consistent:
            particles.add(noisy)
        particles.run(_SWEEPS)
        return replace(self, potentials=tuple(particles.potentials))

    def draw(
        self,
        n_rows: int,
        rng: np.random.Generator,
        allowed: Mapping[int, FloatArray] | None = None,
        impossible: Sequence[Mapping[int, npt.NDArray[np.bool_]]] = (),
    ) -> IntArray:
        """Draw bins of rows, int32 of shape (n_rows, n_columns)."""
        drawn: list[IntArray] = []
        while n_rows > 0:
            fits = _MOST_CELLS // max(len(self.marginals), 1)
            part = min(n_rows, _ROWS_AT_ONCE, max(fits // 2, 1))
            n_particles = int(np.clip(_PER_ROW * part, min(_FEWEST, fits), min(_MOST, fits)))
            particles = self.particles(n_particles, rng, allowed, impossible, part)
            if not allowed:  # the marginals describe all rows
                particles.run(_DRAW_SWEEPS)
            places = rng.permutation(resampled(particles.weights, part, rng))
            if not drawn and part == n_rows:  # in more rows chance matters little
                places = _balance_pairs(particles, places, rng)
            drawn.append(particles.codes[places])
            n_rows -= part
        return np.concatenate(drawn)


def _margin(marginal: Marginal, counts: FloatArray, axis: int) -> tuple[FloatArray, int]:
    """Return the counts of one column of a marginal, and the number of cells in each sum."""
    table = np.moveaxis(counts.reshape(marginal.shape), axis, 0).reshape(marginal.shape[axis], -1)
    return table.sum(axis=1), table.shape[1]


def draw_cells(
    codes: IntArray, bins: ColumnBins, rng: np.random.Generator, kept: FloatArray | None = None
) -> IntArray:
    """Draw a cell in each bin, under a condition on cells if `kept`."""
    shares = bins.cell_shares if kept is None else bins.cell_shares * kept
    return draw_stratified(codes, shares * (bins.bins == np.arange(bins.n_bins)[:, None]), rng)


def _balance_pairs(
    particles: ScaledParticles, places: IntArray, rng: np.random.Generator
) -> IntArray:
    """Exchange chosen particles until pairs of columns occur as often as their weights say."""
    codes, weights, n_rows = particles.codes, particles.weights, len(places)
    first, second = np.triu_indices(codes.shape[1], 1)
    sizes = codes.max(axis=0).astype(np.int64) + 1
    ends = np.cumsum(sizes[first] * sizes[second])
    if not 0 < len(first) <= _MOST_BALANCED:
        return places
    counted, due = np.zeros((2, ends[-1]))
    for a, b, end in zip(first, second, ends.tolist(), strict=True):
        cells, size = codes[:, a] * sizes[b] + codes[:, b], sizes[a] * sizes[b]
        due[end - size : end] = np.bincount(cells, weights, size) * (n_rows / weights.sum())
        counted[end - size : end] = np.bincount(cells[places], minlength=size)
    # Rare cells do not count, or rounding would exclude their rows.
    matters = due >= _LEAST_BALANCED
    too_many = (counted - due) * matters
    starts, edges = ends - sizes[first] * sizes[second], np.cumsum(weights)
    n_seen = min(_BALANCED_AT_ONCE, n_rows)
    for exchanged in np.linspace(_EXCHANGED * n_seen, 1, _EXCHANGES).astype(int):
        inside = rng.choice(n_rows, n_seen, replace=False)
        outside = np.searchsorted(edges, rng.random(n_seen) * edges[-1], side="right")
        outside = np.minimum(outside, len(codes) - 1)
        seen = codes[np.stack([places[inside], outside])]
        cells = seen[..., first] * sizes[second] + seen[..., second] + starts
        excess = too_many[cells].sum(axis=-1)
        goes = np.argsort(-excess[0], kind="stable")[:exchanged]
        comes = np.argsort(excess[1], kind="stable")[:exchanged]
        np.subtract.at(too_many, cells[0, goes], matters[cells[0, goes]])
        np.add.at(too_many, cells[1, comes], matters[cells[1, comes]])
        places[inside[goes]] = outside[comes]
    return places
