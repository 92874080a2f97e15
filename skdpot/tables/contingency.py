r"""Contingency tables of a few columns, and the three things that touch the rows of a table.

A direction with random weights on the coordinates of a few columns gives every combination of
their categories a place of its own on the line. Where the combinations are few, the histogram of
such a sparse slice with a bin for each of them is their contingency table, which is called a
marginal. It needs no strategy matrix, for a bin is a combination and not a point on a scale.

Noisy marginals, and how far a model is off, are sums over the rows of integers or of multiples of
1/16, so that discrete Gaussian noise is added on a lattice that holds them exactly. A neighbour
replaces one row.

*Marginals.* One row less in one cell, one more in another: the L2 distance of a contingency table
is at most :math:`\sqrt 2`. Tables with noise of scales :math:`\sigma_T` are together one Gaussian
release of :math:`\mu^2 = \sum_T 2/\sigma_T^2`.

*Misfits.* With public predictions :math:`m_T` the misfit of a marginal is
:math:`\sum_c |x_{T,c} - m_{T,c}|`. The replaced row changes two of the counts by one each, so
that the sum changes by at most 2. From the misfit of three columns the largest of those of their
pairs, with the predictions that :math:`m_T` implies, is subtracted. Each of these changes by at
most 2 and so does their maximum: the difference changes by at most 4. S pairs and R triples
change by :math:`\sqrt{4 S + 16 R}` in L2.

Rows may have weights that are multiples of 1/16. If the neighbour replaces all rows of a person,
which weigh at most w together, both bounds are times w (`skdpot.release.contributions`).

*Choices.* The misfits of m marginals, released with Gaussian noise, need noise of scale
:math:`2 \sqrt m` over mu. The exponential mechanism releases only which marginals are off most: k
choices cost what k numbers cost, and the noise that a large misfit has to exceed grows with the
logarithm of m.

*Exact draws.* Scores are misfits less public offsets, both multiples of 1/16, and rates are floats,
so that :math:`e^{-\lambda (\max_j q_j - q_i)}` is known to any precision. The weight of a
candidate is this number, rounded down to a multiple of :math:`2^{-b}`, and a candidate is drawn by
a uniform integer below the sum of all weights: no floating-point number depends on the choice. For
m candidates the probabilities are off by less than :math:`m 2^{2-b}` in total variation, and those
of k choices by k times as much. `required_bits` makes :math:`2^{35} 2^{1-b}` negligible beside the
:math:`10^{-18}` that is charged for the error of a sampler, so that k m may be up to
:math:`2^{34}`.

In each case everything but the counts is public or was released before: columns, groupings,
predictions and scales of noise.
"""

import decimal
import itertools
import math
from bisect import bisect_right
from collections import Counter
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field, replace
from functools import cached_property
from typing import Any, TypeAlias

import numpy as np
import numpy.typing as npt
from scipy.sparse import csr_array

from skdpot._utils.arrays import FloatArray, IntArray
from skdpot._utils.validation import SecretStream
from skdpot.privacy.events import Event
from skdpot.privacy.noise import lattice_noise, noise_lattice, required_bits
from skdpot.privacy.selection import CHOICE_MU
from skdpot.release.gate import Part, Records, Release, Vectors, pass_gate
from skdpot.sources import HeldRows, Rows, Tables

AnyRows: TypeAlias = "CountedRows | Rows | IntArray"


@dataclass(frozen=True)
class Marginal:
    """Which cell of a contingency table each row falls in."""

    columns: tuple[int, ...]
    groups: tuple[IntArray, ...] = field(compare=False, repr=False)
    levels: tuple[int, ...] = ()

    @cached_property
    def axes(self) -> tuple[tuple[int, bytes], ...]:
        """What tells the groups of each column apart from others."""
        each = zip(self.columns, self.groups, strict=True)
        return tuple((column, groups.tobytes()) for column, groups in each)

    @cached_property
    def shape(self) -> tuple[int, ...]:
        """The number of groups of each column."""
        return tuple(int(groups.max()) + 1 for groups in self.groups)

    @cached_property
    def divided(self) -> dict[tuple[int, bytes], int]:
        """The axes of more than one group, of which there are at most log2 of the cells."""
        each = zip(self.axes, self.shape, strict=True)
        return {axis: size for axis, size in each if size > 1}

    @property
    def n_cells(self) -> int:
        """Number of cells."""
        return math.prod(self.shape)

    @cached_property
    def table(self) -> IntArray:
        """The cell of each combination of codes."""
        cells = np.zeros((), dtype=np.int64)
        for groups, size in zip(self.groups, self.shape, strict=True):
            cells = cells[..., None] * size + groups
        return cells

    def cells(self, codes: IntArray) -> IntArray:
        """Return the cell of each row."""
        each = zip(self.columns, self.groups, strict=True)
        return _cells(
            [
                (_grouped(codes[:, c], own), size)
                for (c, own), size in zip(each, self.shape, strict=True)
            ]
        )

    @property
    def ungrouped(self) -> "Marginal":
        """The marginal of the same columns with a cell for each combination of codes."""
        return Marginal(self.columns, tuple(np.arange(len(groups)) for groups in self.groups))

    def joined(self, table: FloatArray) -> FloatArray:
        """Add up counts of all combinations of codes to those of this marginal's cells."""
        return np.bincount(self.table.ravel(), table.ravel(), self.n_cells).astype(np.float64)

    def counts(self, codes: IntArray, weights: FloatArray | None = None) -> FloatArray:
        """Return the number of rows, or their weight, in each cell."""
        return np.bincount(self.cells(codes), weights=weights, minlength=self.n_cells).astype(
            np.float64
        )


@dataclass(frozen=True, eq=False)
class NoisyMarginal:
    """A released contingency table."""

    marginal: Marginal
    counts: FloatArray
    sigma: float
    n_releases: int = 1

    def merge(self, other: "NoisyMarginal") -> "NoisyMarginal":
        """Return the best combination of two releases of one marginal."""
        if min(self.sigma, other.sigma) == 0.0:
            return self if self.sigma == 0.0 else other
        own, others = self.sigma**-2, other.sigma**-2
        counts = (own * self.counts + others * other.counts) / (own + others)
        n_releases = self.n_releases + other.n_releases
        return NoisyMarginal(self.marginal, counts, (own + others) ** -0.5, n_releases)


MARGINAL_SENSITIVITY = math.sqrt(2.0)
PREDICTED = 16  # predictions are rounded to multiples of 1 / 16
MARGINAL_LATTICE = 1.0 / PREDICTED  # that of the noise divides it


def largest_change(marginal: Marginal) -> float:
    """Return by how much one row can change a misfit: 2, and of triples 4."""
    return 2.0 if len(marginal.columns) < 3 else 4.0


def misfit_sensitivity(marginals: Sequence[Marginal]) -> float:
    """Return the L2 sensitivity of the misfits of several marginals, replace-one."""
    return math.hypot(*map(largest_change, marginals))


def release_marginals(
    rows: AnyRows,
    marginals: Sequence[Marginal],
    sigmas: FloatArray,
    stream: SecretStream,
    event: Event,
    most: float = 1.0,
) -> Release:
    """Count rows in the cells of marginals, or add up their weights, with noise.

    Privacy
    -------
    The caller has charged `event`, of ``sum(2 * most**2 / sigmas**2)`` squared mu, where `most` is
    what the rows of one person may weigh. The noise is drawn first.
    """
    scales = [float(sigma) for sigma in sigmas]
    mu = most * MARGINAL_SENSITIVITY * math.hypot(*(1.0 / sigma for sigma in scales if sigma > 0.0))
    noise = [_noise(s, m.n_cells, mu, stream) for m, s in zip(marginals, scales, strict=True)]
    exact = exact_counts(rows, marginals)
    counts = (own + table for own, table in zip(noise, exact, strict=True))
    release = release_of(list(map(NoisyMarginal, marginals, counts, scales)), event, most)
    return replace(release, value=pass_gate(release))


def release_of(tables: Sequence[NoisyMarginal], event: Event, most: float = 1.0) -> Release:
    """Return noisy contingency tables that were released together."""
    return Release(
        "marginals",
        tuple(noisy.counts for noisy in tables),
        {"marginals": tuple(noisy.marginal for noisy in tables)},
        sigma=tuple(noisy.sigma for noisy in tables),
        sensitivity=most * MARGINAL_SENSITIVITY,
        event=event,
        linear=_counted,
    )


def tables_of(release: Release) -> tuple[NoisyMarginal, ...]:
    """Return each contingency table of a release."""
    sigmas = release.sigma if isinstance(release.sigma, tuple) else ()
    return tuple(map(NoisyMarginal, release.facts["marginals"], release.value, sigmas))


def release_misfits(
    rows: AnyRows,
    marginals: Sequence[Marginal],
    predictions: Sequence[FloatArray],
    sigma: float,
    stream: SecretStream,
    event: Event,
    most: float = 1.0,
) -> FloatArray:
    """Return how many rows predicted marginals put wrong, twice, with noise.

    Privacy
    -------
    The caller has charged `event`, of ``(sensitivity / sigma)**2`` squared mu, where the
    sensitivity is ``most * misfit_sensitivity(marginals)``.
    """
    sensitivity = most * misfit_sensitivity(marginals)
    misfits = _noise(sigma, len(marginals), sensitivity / sigma if sigma > 0.0 else 0.0, stream)
    misfits += exact_misfits(rows, marginals, predictions)
    release = Release(
        "misfits",
        misfits,
        {"marginals": tuple(marginals), "predictions": tuple(predictions)},
        sigma=float(sigma),
        sensitivity=sensitivity,
        event=event,
        linear=_misfit,
    )
    return pass_gate(release)


def on_lattice(prediction: FloatArray) -> FloatArray:
    """Return the nearest multiples of 1 / 16."""
    return np.round(prediction * PREDICTED) / PREDICTED


class CountedRows:
    """Batches of codes and weights, which are read once for each marginal.

    What was counted is as private as the rows, and forgotten with them.
    """

    def __init__(self, rows: Rows) -> None:
        self._rows = rows
        self._known: dict[Any, FloatArray] = {}

    def counts(self, marginals: Sequence[Marginal]) -> Tables:
        """Return counts without noise, and pass over the rows only for those not known."""
        keys = [marginal.axes for marginal in marginals]
        new = {k: m for k, m in zip(keys, marginals, strict=True) if k not in self._known}
        if new:
            most = _MANY_CELLS if isinstance(self._rows, HeldRows) else _ALL_CELLS
            joint = JointTables(tuple(new.values()), self._rows.n_rows, most)
            found = joint.marginals(self._rows.sum(joint.count))
            self._known.update(zip(new, found, strict=True))
        return tuple(self._known[key] for key in keys)


def exact_counts(rows: AnyRows, marginals: Sequence[Marginal]) -> Tables:
    """Return the counts of marginals without noise; rows are batches of codes and weights."""
    if isinstance(rows, np.ndarray):
        rows = HeldRows((rows, None), len(rows))
    return (rows if isinstance(rows, CountedRows) else CountedRows(rows)).counts(marginals)


def exact_misfits(
    rows: AnyRows,
    marginals: Sequence[Marginal],
    predictions: Sequence[FloatArray],
) -> FloatArray:
    """Return what `release_misfits` adds noise to, in multiples of 1 / 16."""
    misfits = np.zeros(len(marginals))
    tables = exact_counts(rows, marginals)
    for place, (marginal, table) in enumerate(zip(marginals, tables, strict=True)):
        off = (table - on_lattice(predictions[place])).reshape(marginal.shape)
        misfits[place] = np.abs(off).sum()
        if off.ndim > 2:
            misfits[place] -= max(np.abs(off.sum(axis=axis)).sum() for axis in range(off.ndim))
    return misfits


_ROWS_AT_ONCE = 2**17  # whose cells stay in the cache
_MOST_CELLS, _ALL_CELLS = 2**14, 2**24  # of a joint table, and of as many as there are marginals
_MANY_CELLS = 2**28  # of tables that do not travel


def counts_of(
    codes: IntArray, marginals: Sequence[Marginal], weights: FloatArray | None = None
) -> Tables:
    """Return the counts of many marginals."""
    return exact_counts(HeldRows((codes, weights), len(codes)), marginals)


class JointTables:
    """Few contingency tables of many columns, of which many marginals are sums."""

    def __init__(self, wanted: Sequence[Marginal], n_rows: int, n_cells: int = _ALL_CELLS) -> None:
        times = Counter(marginal.columns for marginal in wanted)
        whole = [m if times[m.columns] == 1 else m.ungrouped for m in wanted]
        self._wanted = list(zip(wanted, whole, strict=True))
        self.parts: list[Marginal] = []
        self.tables: list[list[int]] = []  # the parts of each
        self._part_of: dict[Any, int] = {}  # an axis of marginals of so many columns
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
            found = (
                np.bincount(_cells([cells[part] for part in table]), some, self._n_cells(table))
                for table in self.tables
            )
            total = tuple(map(np.add, total, found) if total else found)
        return total

    def marginals(self, tables: Tables) -> list[FloatArray]:
        """Return the wanted marginals, which are sums of the joint tables."""
        sizes = [
            {axis: size for part in table for axis, size in self.parts[part].divided.items()}
            for table in self.tables
        ]
        found = []
        for wanted, whole in self._wanted:
            home = self._table_of[self._parts_of(whole)]
            axes = list(sizes[home])
            first = [axes.index(axis) for axis in whole.divided]
            rest = [place for place in range(len(axes)) if place not in first]
            table = np.reshape(tables[home], list(sizes[home].values())).transpose(*first, *rest)
            table = table.reshape(*table.shape[: len(first)], -1).sum(axis=-1).astype(np.float64)
            found.append(table.ravel() if whole is wanted else wanted.joined(table))
        return found


def _grouped(codes: IntArray, groups: IntArray) -> IntArray:
    alone = bool((groups == np.arange(len(groups))).all())
    return codes if alone else groups.astype(np.int32)[codes]


def _cells(columns: Sequence[tuple[IntArray, int]]) -> IntArray:
    """Return a number for each combination of codes, below the product of the sizes."""
    kind = np.int32 if math.prod(size for _, size in columns) < 2**31 else np.int64
    cells = np.zeros((), dtype=kind)
    for own, size in columns:
        cells = cells * kind(size) + own
    return cells


def _counted(release: Release, records: Records, shares: FloatArray) -> Iterator[Part]:
    """Yield what rows add to each table: one count."""
    codes = records[0]
    rows = np.arange(len(codes))
    for noisy in tables_of(release):
        ones = (np.ones(len(codes)), (rows, noisy.marginal.cells(codes)))
        added = csr_array(ones, shape=(len(codes), noisy.marginal.n_cells))
        yield Part(value=noisy.counts, sigma=noisy.sigma, rows=Vectors(added))


def _misfit(release: Release, records: Records, shares: FloatArray) -> Iterator[Part]:
    """Yield the misfits of given rows; of single ones absolute values tell nothing."""
    if np.all(shares == 1.0):
        facts = release.facts
        exact = exact_misfits(records[0], facts["marginals"], facts["predictions"])
        yield Part(value=release.value, sigma=float(np.max(release.sigma)), center=exact)


def _noise(sigma: float, size: int, mu: float, stream: SecretStream) -> FloatArray:
    """Draw noise on a lattice that divides 1 / 16, or none; `mu` is that of the whole release."""
    if sigma == 0.0:
        return np.zeros(size)
    lattice = noise_lattice(sigma, MARGINAL_LATTICE)
    steps = lattice_noise(sigma, size, stream, lattice=lattice, mu=mu)
    return steps.astype(np.float64) * lattice


def choice_sensitivity(marginals: Sequence[Marginal]) -> float:
    """Return by how much one row can move a score against another one, replace-one.

    A misfit moves by at most `largest_change`, up or down, and offsets are public.
    """
    return 2.0 * max(map(largest_change, marginals))


def release_choices(
    rows: AnyRows,
    marginals: Sequence[Marginal],
    predictions: Sequence[FloatArray],
    offsets: FloatArray,
    n_choices: int,
    sigma: float,
    stream: SecretStream,
    event: Event,
    most: float = 1.0,
    *,
    forest: bool = False,
) -> tuple[int, ...]:
    """Choose marginals with large misfits, one after the other, and return their places.

    Of a `forest` only pairs are chosen that join columns which are not joined yet. There may be
    fewer choices than `n_choices`, if nothing is left.

    Privacy
    -------
    The caller has charged `event`: `n_choices` choices with noise `sigma` on every score and the
    sensitivity ``most * choice_sensitivity(marginals)``. What a choice rules out follows from it
    and from public facts.
    """
    offsets = on_lattice(offsets)
    scores = PREDICTED * (exact_misfits(rows, marginals, predictions) - offsets)
    columns = np.array([marginal.columns[:2] for marginal in marginals])
    joined = np.arange(int(columns.max()) + 1)
    rate = math.pi / (math.sqrt(6.0) * sigma * PREDICTED) if sigma > 0.0 else math.inf
    sensitivity = most * choice_sensitivity(marginals)
    mu = CHOICE_MU * sensitivity / sigma * math.sqrt(n_choices) if sigma > 0.0 else 1.0
    draw = _Draw(scores.astype(np.int64), rate, required_bits(1.0, mu))
    chosen: list[int] = []
    while draw.is_open.any() and len(chosen) < n_choices:
        place = draw.next(stream)
        chosen.append(place)
        draw.is_open[place] = False
        if forest:
            first, second = joined[columns[place]]
            joined[joined == second] = first
            draw.is_open &= joined[columns[:, 0]] != joined[columns[:, 1]]
    release = Release(
        "choices",
        chosen,
        {"marginals": tuple(marginals), "predictions": tuple(predictions), "offsets": offsets},
        sigma=float(sigma),
        sensitivity=sensitivity,
        event=event,
    )
    return tuple(pass_gate(release))


_BLOCK = 2**10  # candidates whose weights have a sum of their own


class _Draw:
    """Draws candidates with probability proportional to ``exp(rate * score)``, exactly."""

    def __init__(self, scores: npt.NDArray[np.int64], rate: float, bits: int) -> None:
        self.is_open = np.ones(len(scores), dtype=bool)
        self._scores = scores
        self._bits = bits
        self._least = -1  # shift of the candidate that all weights are relative to
        self._weights: list[int] = []
        self._blocks: list[int] = []  # sums of weights
        self._counted = self.is_open
        if math.isinf(rate):
            self._exact: list[tuple[int, int]] = []
            return
        # A weight is mantissa / 2^(bits + shift), with a mantissa of `bits` bits.
        gaps, self._kinds = np.unique(scores.max() - scores, return_inverse=True)
        with decimal.localcontext() as context:
            context.prec = math.ceil(bits * math.log10(2)) + 30
            log2, step, one = decimal.Decimal(2).ln(), decimal.Decimal(rate), 1 << bits
            exponents = [step * gap for gap in gaps.tolist()]
            shifts = [int(exponent / log2) for exponent in exponents]
            self._exact = [
                (int((shift * log2 - exponent).exp() * one), shift)
                for exponent, shift in zip(exponents, shifts, strict=True)
            ]
        self._shifts = np.array(shifts)[self._kinds]

    def next(self, stream: SecretStream) -> int:
        """Draw one of the open candidates."""
        if not self._exact:  # without noise
            places = np.flatnonzero(self.is_open)
            return int(places[np.argmax(self._scores[places])])
        self._weigh()
        sums = list(itertools.accumulate(self._blocks))
        n_bits = sums[-1].bit_length()
        while (uniform := stream.random_bits(n_bits)) >= sums[-1]:
            pass
        block = bisect_right(sums, uniform)
        start = block * _BLOCK
        within = itertools.accumulate(self._weights[start : start + _BLOCK])
        return start + bisect_right(list(within), uniform - sums[block] + self._blocks[block])

    def _weigh(self) -> None:
        """Find the weights of open candidates, and their sums by blocks."""
        least = int(self._shifts[self.is_open].min())
        if least == self._least:
            for place in np.flatnonzero(self._counted & ~self.is_open).tolist():
                self._blocks[place // _BLOCK] -= self._weights[place]
                self._weights[place] = 0
        else:
            # Those of candidates that are far behind are rounded down to 0.
            shifted = [
                mantissa >> (shift - least) if 0 <= shift - least <= self._bits else 0
                for mantissa, shift in self._exact
            ]
            kinds = np.where(self.is_open, self._kinds, len(shifted)).tolist()
            self._weights = [*map([*shifted, 0].__getitem__, kinds)]
            starts = range(0, len(self._weights), _BLOCK)
            self._blocks = [sum(self._weights[k : k + _BLOCK]) for k in starts]
            self._least = least
        self._counted = self.is_open.copy()
