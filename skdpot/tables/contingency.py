"""Contingency tables of a few columns ("marginals"), and their exact counts.

A direction with random weights on the coordinates of a few columns gives every combination of their
categories a place of its own on the line. If the combinations are few, the histogram of such a
sparse slice with one bin per combination is their contingency table. It needs no strategy matrix,
because a bin is a combination and not a point on a scale.

Many marginals are sums of a few joint tables, so rows are counted in joint tables and read once.
"""

import itertools
import math
from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass, field
from functools import cached_property
from typing import Any, TypeAlias

import numpy as np

from skdpot._utils.arrays import FloatArray, IntArray
from skdpot.sources import HeldRows, Rows, Tables

CountableRows: TypeAlias = "CountedRows | Rows | IntArray"

PREDICTED = 16  # predictions are rounded to multiples of 1 / 16
_ROWS_AT_ONCE = 2**17  # their cells stay in the cache
# Cells of one joint table, and of all of them: if they are sent between processes, and if not.
_MOST_CELLS, _ALL_CELLS, _MANY_CELLS = 2**14, 2**24, 2**28


@dataclass(frozen=True)
class Marginal:
    """A contingency table without counts: the cell of each combination of codes."""

    columns: tuple[int, ...]  # places of its columns
    groups: tuple[IntArray, ...] = field(compare=False, repr=False)  # group of each code
    levels: tuple[int, ...] = ()  # name the groups of each column

    @cached_property
    def axes(self) -> tuple[tuple[int, bytes], ...]:
        """Keys of the columns and their groups."""
        each = zip(self.columns, self.groups, strict=True)
        return tuple((column, groups.tobytes()) for column, groups in each)

    @cached_property
    def shape(self) -> tuple[int, ...]:
        """Number of groups of each column."""
        return tuple(int(groups.max()) + 1 for groups in self.groups)

    @cached_property
    def divided(self) -> dict[tuple[int, bytes], int]:
        """Sizes of the axes with more than one group, at most log2(n_cells) of them."""
        each = zip(self.axes, self.shape, strict=True)
        return {axis: size for axis, size in each if size > 1}

    @property
    def n_cells(self) -> int:
        """Number of cells."""
        return math.prod(self.shape)

    @cached_property
    def table(self) -> IntArray:
        """Cell of each combination of codes."""
        cells = np.zeros((), dtype=np.int64)
        for groups, size in zip(self.groups, self.shape, strict=True):
            cells = cells[..., None] * size + groups
        return cells

    def cells(self, codes: IntArray) -> IntArray:
        """Return the cell of each row."""
        each = zip(self.columns, self.groups, strict=True)
        return _cell_numbers(
            [
                (_group_codes(codes[:, column], groups), size)
                for (column, groups), size in zip(each, self.shape, strict=True)
            ]
        )

    @property
    def ungrouped(self) -> "Marginal":
        """The marginal of the same columns with one cell per combination of codes."""
        return Marginal(self.columns, tuple(np.arange(len(groups)) for groups in self.groups))

    def joined(self, table: FloatArray) -> FloatArray:
        """Sum counts of all combinations of codes to counts of cells."""
        return np.bincount(self.table.ravel(), table.ravel(), self.n_cells).astype(np.float64)

    def counts(self, codes: IntArray, weights: FloatArray | None = None) -> FloatArray:
        """Return the number or the weight of rows in each cell."""
        return np.bincount(self.cells(codes), weights=weights, minlength=self.n_cells).astype(
            np.float64
        )


@dataclass(frozen=True, eq=False)
class NoisyMarginal:
    """A released contingency table, with noise of standard deviation `sigma` on each count."""

    marginal: Marginal
    counts: FloatArray
    sigma: float
    n_releases: int = 1

    def merge(self, other: "NoisyMarginal") -> "NoisyMarginal":
        """Return the average of two releases of one marginal, weighted by precision."""
        if min(self.sigma, other.sigma) == 0.0:
            return self if self.sigma == 0.0 else other
        first, second = self.sigma**-2, other.sigma**-2
        counts = (first * self.counts + second * other.counts) / (first + second)
        n_releases = self.n_releases + other.n_releases
        return NoisyMarginal(self.marginal, counts, (first + second) ** -0.5, n_releases)


def on_lattice(prediction: FloatArray) -> FloatArray:
    """Return the nearest multiples of 1 / 16, on which scores and noise lie exactly."""
    return np.round(prediction * PREDICTED) / PREDICTED


class CountedRows:
    """Batches of codes and weights, counted once per marginal.

    The stored counts are as private as the rows, and are dropped with them.
    """

    def __init__(self, rows: Rows) -> None:
        self._rows = rows
        self._known: dict[Any, FloatArray] = {}

    def counts(self, marginals: Sequence[Marginal]) -> Tables:
        """Return exact counts; read the rows only for marginals not counted yet."""
        keys = [marginal.axes for marginal in marginals]
        new = {k: m for k, m in zip(keys, marginals, strict=True) if k not in self._known}
        if new:
            most = _MANY_CELLS if isinstance(self._rows, HeldRows) else _ALL_CELLS
            joint = JointTables(tuple(new.values()), self._rows.n_rows, most)
            counts = joint.marginals(self._rows.sum(joint.count))
            self._known.update(zip(new, counts, strict=True))
        return tuple(self._known[key] for key in keys)


def exact_counts(rows: CountableRows, marginals: Sequence[Marginal]) -> Tables:
    """Return exact counts of marginals; rows are batches of codes and weights."""
    if isinstance(rows, np.ndarray):
        rows = HeldRows((rows, None), len(rows))
    return (rows if isinstance(rows, CountedRows) else CountedRows(rows)).counts(marginals)


def exact_misfits(
    rows: CountableRows, marginals: Sequence[Marginal], predictions: Sequence[FloatArray]
) -> FloatArray:
    """Return the exact misfits that `release_misfits` adds noise to, multiples of 1 / 16."""
    misfits = np.zeros(len(marginals))
    tables = exact_counts(rows, marginals)
    for place, (marginal, table) in enumerate(zip(marginals, tables, strict=True)):
        off = (table - on_lattice(predictions[place])).reshape(marginal.shape)
        misfits[place] = np.abs(off).sum()
        if off.ndim > 2:
            misfits[place] -= max(np.abs(off.sum(axis=axis)).sum() for axis in range(off.ndim))
    return misfits


def counts_of(
    codes: IntArray, marginals: Sequence[Marginal], weights: FloatArray | None = None
) -> Tables:
    """Return exact counts of codes in memory."""
    return exact_counts(HeldRows((codes, weights), len(codes)), marginals)


class JointTables:
    """A few contingency tables of many columns, which many marginals are sums of."""

    def __init__(self, wanted: Sequence[Marginal], n_rows: int, n_cells: int = _ALL_CELLS) -> None:
        times = Counter(marginal.columns for marginal in wanted)
        whole = [m if times[m.columns] == 1 else m.ungrouped for m in wanted]
        self._wanted = list(zip(wanted, whole, strict=True))
        self.parts: list[Marginal] = []
        self.tables: list[list[int]] = []  # parts of each joint table
        self._part_of: dict[Any, int] = {}  # by number of columns of a marginal, and axis
        self._table_of: dict[frozenset[int], int] = {}
        most = max(min(_MOST_CELLS, n_cells // len(wanted), n_rows), 1)
        axes = {
            (len(marginal.columns), axis): groups
            for marginal in whole
            for axis, groups in zip(marginal.axes, marginal.groups, strict=True)
        }
        before = 0
        for order, axis in sorted(axes, key=lambda key: (key[0], int(axes[key].max()))):
            part = Marginal((axis[0],), (axes[order, axis],))
            if order == before and self.parts[-1].n_cells * part.n_cells <= most ** (1 / order):
                last = self.parts.pop()
                part = Marginal(last.columns + part.columns, last.groups + part.groups)
            self._part_of[order, axis], before = len(self.parts), order
            self.parts.append(part)
        for parts in sorted(map(self._parts_of, whole), key=len, reverse=True):
            if parts not in self._table_of:
                self.tables.append(sorted(parts))
                for size in range(len(parts)):
                    for some in map(frozenset, itertools.combinations(parts, size + 1)):
                        self._table_of.setdefault(some, len(self.tables) - 1)

    def _n_cells(self, table: Sequence[int]) -> int:
        return math.prod(self.parts[part].n_cells for part in table)

    def _parts_of(self, marginal: Marginal) -> frozenset[int]:
        return frozenset(self._part_of[len(marginal.columns), axis] for axis in marginal.axes)

    def count(self, batch: tuple[IntArray, FloatArray | None]) -> Tables:
        """Return the joint tables of a batch of codes and weights."""
        codes, weights = batch
        total: Tables = ()
        for start in range(0, max(len(codes), 1), _ROWS_AT_ONCE):
            rows = slice(start, start + _ROWS_AT_ONCE)
            cells = [(part.cells(codes[rows]), part.n_cells) for part in self.parts]
            some = None if weights is None else weights[rows]
            tables = (
                np.bincount(
                    _cell_numbers([cells[part] for part in table]), some, self._n_cells(table)
                )
                for table in self.tables
            )
            total = tuple(map(np.add, total, tables) if total else tables)
        return total

    def marginals(self, tables: Tables) -> list[FloatArray]:
        """Return the wanted marginals as sums of the joint tables."""
        sizes = [
            {axis: size for part in table for axis, size in self.parts[part].divided.items()}
            for table in self.tables
        ]
        counts = []
        for wanted, whole in self._wanted:
            home = self._table_of[self._parts_of(whole)]
            axes = list(sizes[home])
            first = [axes.index(axis) for axis in whole.divided]
            rest = [place for place in range(len(axes)) if place not in first]
            table = np.reshape(tables[home], list(sizes[home].values())).transpose(*first, *rest)
            table = table.reshape(*table.shape[: len(first)], -1).sum(axis=-1).astype(np.float64)
            counts.append(table.ravel() if whole is wanted else wanted.joined(table))
        return counts


def _group_codes(codes: IntArray, groups: IntArray) -> IntArray:
    ungrouped = bool((groups == np.arange(len(groups))).all())
    return codes if ungrouped else groups.astype(np.int32)[codes]


def _cell_numbers(columns: Sequence[tuple[IntArray, int]]) -> IntArray:
    """Return a number per combination of codes, below the product of the sizes."""
    kind = np.int32 if math.prod(size for _, size in columns) < 2**31 else np.int64
    cells = np.zeros((), dtype=kind)
    for codes, size in columns:
        cells = cells * kind(size) + codes
    return cells
