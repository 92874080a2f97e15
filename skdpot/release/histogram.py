"""Noisy histograms of projections: the plan of a sketch, and its single pass over private rows.

The shape and noise of a sketch are settled before any row is read. Directions are drawn from a
public stream, independently of the data, and published with the sketch. Two kernels, numpy on the
CPU and torch on a GPU, count rows per bin and direction, a few blocks of projections at a time.
`skdpot.release.strategy` says what is released of the counts, and how far a record moves it.
"""

import math
import os
from collections.abc import Callable, Iterator
from dataclasses import dataclass, replace
from functools import cache, partial
from itertools import pairwise
from typing import TYPE_CHECKING, Any, NoReturn

import numpy as np

from skdpot._utils.validation import SecretStream, in_threads, n_threads, resolve_device
from skdpot.exceptions import OpenSketchError
from skdpot.ot.slices import make_directions
from skdpot.privacy.accounting import PrivacyTarget, calibrate
from skdpot.privacy.events import Event, GaussianEvent, NonPrivateEvent
from skdpot.privacy.noise import check_shares, lattice_noise, noise_lattice
from skdpot.release.bounds import BoundsPlan, DataBounds, bounds_share, planned_bounds
from skdpot.release.contributions import Parts
from skdpot.release.gate import Part, Records, Release, Vectors, pass_gate
from skdpot.release.joint import SecureSum
from skdpot.release.strategy import Energy, Strategy, best_strategy
from skdpot.sources import Batch, Rows, Tables

if TYPE_CHECKING:
    import torch


_BLOCK_ELEMENTS = 2**17  # projections held at once by a thread: 2 MB of buffers
_MAX_BLOCK_ROWS = 2**14
_FORMED = 2**24  # numbers that single rows add, held at once: 128 MB


@dataclass(frozen=True)
class SketchPlan:
    """The public parameters of one sketch."""

    directions: np.ndarray
    n_classes: int  # number of tables; 1 without classes
    strategy: Strategy
    sensitivity: float  # of the whole table
    sigma: float  # of each entry; 0 without privacy
    lattice: float  # of the noise, a fraction of the strategy's
    bounds: DataBounds | BoundsPlan  # public, or how they are estimated first
    event: Event  # everything together
    public_labels: bool
    n_units: int = 1  # of weight of a person
    n_shares: int = 1  # of several parties, whose noise together has this sigma

    @property
    def share(self) -> float:
        """Standard deviation of the noise that is drawn here."""
        return self.sigma / math.sqrt(self.n_shares)

    @property
    def shape(self) -> tuple[int, int, int]:
        """Shape of the table."""
        return self.n_classes, len(self.directions), self.strategy.n_bins


def count_projections(
    rows: np.ndarray,
    directions: np.ndarray,
    half_widths: np.ndarray,
    n_bins: int,
    *,
    codes: np.ndarray | None = None,
    n_classes: int = 1,
    bounds: DataBounds | None = None,
    device: "torch.device | None" = None,
) -> np.ndarray:
    """Count rows per bin of their projection on each direction.

    Every row adds exactly one count to one bin of each slice. Projections beyond ``[-w, w]`` are
    counted in the end bins. With `bounds`, a row beyond their radius would be counted in the middle
    of all slices (`to_ball` leaves none).

    Projections are exact: rows and directions are rounded to 27 bits, so that every partial sum of
    a product is an integer below 2^53, by the Cauchy-Schwarz inequality. The bins of a row within
    the bounds depend on this row alone, and not on how rows are divided into chunks, blocks or
    threads. (Rows without bounds may be longer, and their sums inexact. So blocks
    depend on the number of rows alone: replacing a row, its class included, moves no other.)

    Privacy
    -------
    The counts are as private as the rows. Counts of private rows are only added to noise that is
    already drawn.
    """
    radius = float(np.max(half_widths)) if bounds is None else bounds.radius
    exact = _ExactProjections.of(directions, half_widths, n_bins, radius, bounds is not None)
    # Buffers stay in the cache, but are not so small that counters take longer than counting.
    fitting = _BLOCK_ELEMENTS // max(directions.shape)
    block = min(_MAX_BLOCK_ROWS, max(256, n_bins * n_classes // 2, fitting))

    def count(stripe: range) -> np.ndarray:
        if device is None:
            count_block = _numpy_counter(exact, n_classes, min(block, len(stripe)))
        else:
            count_block = _torch_counter(exact, n_classes, device)
        total = np.zeros((n_classes * len(directions), n_bins), dtype=np.int64)
        for start in stripe[::block]:
            here = slice(start, min(start + block, stripe.stop))
            part = rows[here]
            if bounds is not None:  # in one order in memory, so that norms add up in one order
                part = bounds.to_ball(np.ascontiguousarray(part))
            total += count_block(part, None if codes is None else codes[here])
        return total

    n_stripes = min(n_threads(), max(1, len(rows) // block)) if device is None else 1
    ends = [len(rows) * k // n_stripes for k in range(n_stripes + 1)]
    stripes = [range(*pair) for pair in pairwise(ends)]
    return np.sum(in_threads(count, stripes), axis=0)


_UNIT = 2.0**26
_PRODUCTS = ((1, 1, 1), (7, 16, 259), (61, 33, 1030), (784, 5, 2048))


def counting_device(device: Any) -> "torch.device | None":
    """Return the device that counts; refuse one that does not multiply whole numbers exactly."""
    where = resolve_device(device)
    if where is not None:
        _check_products(where)
    return where


@cache
def _check_products(where: "torch.device") -> None:
    """Multiply public numbers: a GPU can be told to emulate double precision with fewer bits."""
    import torch

    rng = np.random.default_rng(0)
    for n_features, *sizes in _PRODUCTS:
        limit = int(_UNIT / math.sqrt(n_features))
        shapes = ((size, n_features) for size in sizes)
        numbers = [rng.integers(-limit, limit, shape, endpoint=True) for shape in shapes]
        first, second = (torch.from_numpy(part.astype(np.float64)).to(where) for part in numbers)
        if not np.array_equal((first @ second.T).cpu().numpy(), numbers[0] @ numbers[1].T):
            raise ValueError(
                f'device="{where}" does not multiply in full double precision, on which the '
                'sensitivity of a sketch rests. Use device="cpu".'
            )


@dataclass(frozen=True, eq=False)
class _ExactProjections:
    """Directions in whole numbers, and the units of these, of rows and of bins."""

    weights: np.ndarray  # (n_features, n_projections)
    rows_to_units: float
    units_to_bins: float
    n_bins: int
    limited: bool

    @classmethod
    def of(
        cls,
        directions: np.ndarray,
        half_widths: np.ndarray,
        n_bins: int,
        radius: float,
        limited: bool,
    ) -> "_ExactProjections":
        """Round directions that have been scaled to bins, the longest one to a length of 2^26."""
        scaled = directions * (n_bins / 2 / half_widths)[:, None]
        largest = float(np.linalg.norm(scaled, axis=1).max())
        weights = np.ascontiguousarray(np.rint(scaled * (_UNIT / largest)).T)
        return cls(weights, _UNIT / radius, largest * radius / _UNIT**2, n_bins, limited)

    def units(self, rows: np.ndarray, out: np.ndarray) -> np.ndarray:
        """Round rows to whole units; those that are too long become zero, the centre."""
        np.multiply(rows, self.rows_to_units, out=out)
        np.rint(out, out=out)
        if self.limited:
            squares = np.einsum("ij,ij->i", out, out)
            out[~(squares <= (_UNIT * (1.0 + 1e-6)) ** 2)] = 0.0
        return out


def binned_rows(release: Release, records: Records, shares: np.ndarray) -> Iterator[Part]:
    """Yield what rows add to a table ``A H`` of binned projections, some slices at a time.

    Records are rows and the position of each row's class (None if there is one table).
    """
    rows, codes = records
    facts, (n_classes, n_projections, n_bins) = release.facts, release.value.shape
    if n_classes == 1 or codes is None:
        codes = np.zeros(len(rows), dtype=np.intp)
    bounds, matrix = facts.get("bounds"), facts["strategy"].matrix

    def counts(chosen: np.ndarray, of: np.ndarray, n_of: int, block: slice) -> np.ndarray:
        along, half_widths = facts["directions"][block], facts["half_widths"][block]
        counted = count_projections(
            rows[chosen], along, half_widths, n_bins, codes=of, n_classes=n_of, bounds=bounds
        )
        return (counted @ matrix.T).reshape(n_of, len(along) * n_bins)

    known, members = np.flatnonzero(shares == 1.0), np.flatnonzero(shares < 1.0)
    size = max(1, _FORMED // (max(len(members), 1) * n_classes * n_bins))
    for start in range(0, n_projections, size):
        block = slice(start, start + size)
        each = counts(members, np.arange(len(members)), len(members), block)  # a class of its own
        own = np.zeros((len(members), n_classes, each.shape[1]))
        own[np.arange(len(members)), codes[members]] = each
        single = Vectors(own.reshape(len(members), n_classes * each.shape[1]))
        yield Part(
            value=release.value[:, block].ravel(),
            sigma=float(np.max(release.sigma)),
            rows=single,
            members=members,
            center=counts(known, codes[known], n_classes, block).ravel()
            + single.sum(shares[members]),
        )


def _numpy_counter(
    exact: _ExactProjections, n_classes: int, block: int
) -> Callable[[np.ndarray, np.ndarray | None], np.ndarray]:
    """Return a function that counts one block of at most `block` rows with numpy."""
    (n_features, n_projections), n_bins = exact.weights.shape, exact.n_bins
    first_bins = np.arange(n_projections, dtype=np.int32) * n_bins
    # Buffers live as long as the stripe: fresh pages would cost more than the arithmetic.
    shapes = ((n_features, np.float64), (n_projections, np.float64), (n_projections, np.int32))
    buffers = [np.empty((block, n), dtype) for n, dtype in (*shapes, (n_projections, np.intp))]

    def count(rows: np.ndarray, codes: np.ndarray | None) -> np.ndarray:
        units, position, cell, index = (buffer[: len(rows)] for buffer in buffers)
        np.matmul(exact.units(rows, units), exact.weights, out=position)
        position *= exact.units_to_bins
        position += n_bins / 2
        np.clip(position, 0, n_bins - 1, out=position)
        cell[...] = position  # to 32 bits first: that has vector instructions
        cell += first_bins
        if codes is None:
            index[...] = cell
        else:
            order = np.argsort(codes, kind="stable")  # so that one class's counters stay cached
            index[...] = cell[order]
            index += (codes[order] * (n_projections * n_bins))[:, None]
        counts = np.bincount(index.ravel(), minlength=n_classes * n_projections * n_bins)
        return counts.reshape(-1, n_bins)

    return count


def _torch_counter(
    exact: _ExactProjections, n_classes: int, device: "torch.device"
) -> Callable[[np.ndarray, np.ndarray | None], np.ndarray]:
    """Return a function that counts one block with torch on `device`."""
    import torch  # here, so that sketches on the CPU do without

    weights, n_bins = torch.from_numpy(exact.weights.T).to(device), exact.n_bins
    n_projections = len(weights)
    offsets = (torch.arange(n_projections, device=device) * n_bins)[:, None]

    def count(rows: np.ndarray, codes: np.ndarray | None) -> np.ndarray:
        units = exact.units(rows, np.empty(rows.shape))
        position = (weights @ torch.from_numpy(units).to(device).T) * exact.units_to_bins
        bins = (position + n_bins / 2).clamp_(0, n_bins - 1).long()
        bins += offsets
        if codes is not None:
            bins += torch.from_numpy(codes).to(device) * (n_projections * n_bins)
        counts = torch.bincount(bins.flatten(), minlength=n_classes * n_projections * n_bins)
        return counts.reshape(-1, n_bins).cpu().numpy()

    return count


def sketch_release(
    statistic: np.ndarray,
    bounds: DataBounds,
    directions: np.ndarray,
    half_widths: np.ndarray,
    strategy: Strategy,
    **noise: Any,
) -> Release:
    """Return the release of a table ``A H + noise`` (n_classes, n_projections, n_bins)."""
    facts = {
        "strategy": strategy,
        "bounds": bounds,
        "directions": directions,
        "half_widths": half_widths,
    }
    return Release("sketch", statistic, facts, linear=binned_rows, **noise)


@dataclass(frozen=True)
class SketchCounter:
    """Counts rows per class, slice and bin; what it holds is public."""

    directions: np.ndarray
    half_widths: np.ndarray
    n_bins: int
    n_classes: int
    bounds: DataBounds
    device: "torch.device | None" = None

    def __call__(self, batch: Batch) -> Tables:
        """Return the counts of a batch, of shape (n_classes, n_projections, n_bins)."""
        rows, codes = batch
        counts = count_projections(
            rows,
            self.directions,
            self.half_widths,
            self.n_bins,
            codes=codes,
            n_classes=self.n_classes,
            bounds=self.bounds,
            device=self.device,
        )
        return (counts.reshape(self.n_classes, -1, self.n_bins),)


def _taken(batch: Batch, some: Any) -> Batch:
    rows, codes = batch
    return rows[some], None if codes is None else codes[some]


def rows_among(batch: Batch, some: Any) -> np.ndarray:
    """Return some rows of a batch, without their classes."""
    return batch[0][some]


class NoisyAccumulator:
    """A table of noise to which the statistic of each chunk of rows is added.

    The noise is drawn at construction, after the caller has charged ``plan.event``, so a table of
    counts without noise never exists. Reading the table before and after a row is added would
    reveal that row, so the accumulator cannot be read, copied or pickled before `close`.
    """

    def __init__(
        self,
        plan: SketchPlan,
        bounds: DataBounds,
        half_widths: np.ndarray,
        stream: SecretStream,
        device: "torch.device | None",
    ) -> None:
        self._plan, self._bounds, self._half_widths = plan, bounds, half_widths
        self._counter = SketchCounter(
            plan.directions, half_widths, plan.strategy.n_bins, plan.n_classes, bounds, device
        )
        # The statistic in units of the noise's lattice, an integer fraction of the strategy's.
        self._factor = round(plan.strategy.lattice / plan.lattice)
        if plan.sigma > 0:
            mu = plan.event.phases[-1].mu
            self._table = lattice_noise(plan.share, plan.shape, stream, lattice=plan.lattice, mu=mu)
        else:
            self._table = np.zeros(plan.shape, dtype=np.int64)
        self.n_rows, self._sigma = 0, plan.share
        # Where labels are public their numbers need no noise; otherwise they are not even counted.
        self.label_counts = np.zeros(plan.n_classes, dtype=np.int64) if plan.public_labels else None
        self._process = os.getpid()

    def add(self, rows: Rows, parts: Parts | None = None) -> None:
        """Add rows, in batches of an array and the position of each row's class (or None).

        With `parts` (`skdpot.release.contributions`), rows of one person share a weight of one.

        An interrupt drops the table: adding the chunk again would count some rows twice, which the
        sensitivity does not cover.
        """
        self._check_whole()
        plan = self._plan
        # Sums stay far below 2^53, so that double precision multiplies them exactly, and much
        # faster than integers.
        matrix = plan.strategy.integer_matrix.T.astype(np.float64)
        try:
            weighed = 0
            for some, units in [(slice(None), 1)] if parts is None else parts:
                (counts,) = rows.map(partial(_taken, some=some)).sum(self._counter)
                sizes = counts[:, 0].sum(axis=1)  # of the classes: each row is once in each slice
                weighed += units * int(sizes.sum())
                factor = self._factor * units // plan.n_units
                for table, own in zip(self._table, counts, strict=True):
                    table += (own @ matrix).astype(np.int64) * factor
                if self.label_counts is not None:
                    self.label_counts += sizes
            self.n_rows += weighed // plan.n_units
        except BaseException:
            del self._table
            raise

    def join(self, parties: SecureSum | None, n_samples: int) -> None:
        """Replace the table by the sum of those of all parties, and its noise by that of all."""
        self._check_whole()
        if parties is None:
            return
        plan, table = self._plan, self._table
        del self._table
        self._table = parties.total(table, parties.largest(plan, n_samples))
        self.n_rows = n_samples
        self._sigma = plan.share * math.sqrt(parties.n_parties)

    def close(self) -> Release:
        """Return the release and end the accumulation."""
        self._check_whole()
        plan, table = self._plan, self._table * self._plan.lattice
        del self._table
        if self._sigma < plan.sigma:
            raise RuntimeError("A party's own table has too little noise to be released.")
        release = sketch_release(
            table,
            self._bounds,
            plan.directions,
            self._half_widths,
            plan.strategy,
            sigma=float(self._sigma),
            lattice=plan.lattice,
            sensitivity=plan.sensitivity,
            event=plan.event,
        )
        return replace(release, value=pass_gate(release))

    def _check_whole(self) -> None:
        if os.getpid() != self._process:
            raise OpenSketchError(
                "This sketch was opened in another process, and a fork is a copy: two copies of "
                "one noise draw reveal the rows added in between. Open a sketch in each process, "
                "close them and merge."
            )
        if not hasattr(self, "_table"):
            raise OpenSketchError(
                "Adding a chunk was interrupted, so this sketch cannot be completed. Fit again; "
                "what it was charged is spent."
            )

    def _refuse(self, *args: object) -> NoReturn:
        raise OpenSketchError(
            "This sketch is open: it still accumulates rows and can be neither pickled nor "
            "copied, because two copies of one noise draw reveal the rows added in between. "
            "Call close() first."
        )

    __getstate__ = __reduce_ex__ = __copy__ = __deepcopy__ = _refuse


_SPREADS = 3.5
_SIGNAL_PER_BLOCK, _MOST_SLICES = 25.0, 1024
_BINS_BELOW = ((100.0, 16), (2000.0, 32), (math.inf, 64))


def projection_half_widths(bounds: DataBounds, directions: np.ndarray) -> np.ndarray:
    """Return the half width w of the binned range along each direction.

    ``min(R, 3.5 R / sqrt(d))``, and in a box at most the box's extent along the direction,
    ``side * ‖θ‖₁``. Projections of points spread over a ball of radius R in d dimensions have a
    standard deviation near ``R / sqrt(d)``, so binning the whole diameter would leave most bins
    empty. Projections beyond w are counted in the end bins, at no privacy cost.
    """
    root = math.sqrt(bounds.n_features)
    widths = np.full(len(directions), min(bounds.radius, _SPREADS * bounds.radius / root))
    if bounds.box:
        widths = np.minimum(widths, bounds.radius / root * np.abs(directions).sum(axis=1))
    return widths


def recommended_n_projections(
    n_samples: int, n_features: int, mu: float, n_classes: int = 1
) -> int:
    """Return the number of slices for ``n_projections="auto"``.

    One orthogonal block of directions per 25 units of ``n mu / C``, at least one block and at most
    about 1024 directions. The constant is the outcome of
    ``examples/benchmarks/bench_sketch_shape.py``; see the user guide.
    """
    if n_features == 1:
        return 1  # there is no other direction
    most = max(1, _MOST_SLICES // n_features)
    blocks = n_samples * mu / n_classes / _SIGNAL_PER_BLOCK
    return n_features * int(min(max(blocks, 1), most))


def recommended_bins(n_samples: int, n_features: int, mu: float, n_classes: int = 1) -> int:
    """Return the number of bins for ``n_bins="auto"``.

    16 while ``n mu / C`` is below 100, 32 below 2,000, and 64 above. The noise of a distribution
    function grows only logarithmically with the bins, but hides finer shapes.
    """
    signal = n_samples * mu / n_classes
    return next(n_bins for limit, n_bins in _BINS_BELOW if signal < limit or math.isinf(limit))


def plan_sketch(
    target: PrivacyTarget,
    n_samples: int,
    n_features: int,
    n_classes: int | None = None,
    *,
    rng: np.random.Generator,
    projections: str | np.ndarray = "axes+orthogonal",
    n_projections: int | str = "auto",
    n_bins: int | str = "auto",
    bounds: DataBounds | int,
    public_labels: bool = False,
    group_size: int = 1,
    n_units: int = 1,
    parties: SecureSum | None = None,
) -> SketchPlan:
    """Choose the shape of a sketch, its directions, and the least noise that meets a target."""
    check_public_labels(n_classes, public_labels, group_size)
    n_shares = 1 if parties is None else parties.n_shares
    # What is left for each row of the table decides its shape before the exact calibration.
    left = 1.0
    if not isinstance(bounds, DataBounds):
        left -= bounds_share(bounds, n_features, target.mu_cap, int(group_size))
    mu = target.mu_cap * math.sqrt(left / group_size)
    tables = n_classes or 1
    size = (n_samples, n_features, mu, tables)
    if not isinstance(projections, str):
        n_projections = len(projections)
    elif isinstance(n_projections, str):
        n_projections = recommended_n_projections(*size)
    if isinstance(n_bins, str):
        n_bins = recommended_bins(*size)
    # Integers of numpy wrap around, and unsigned and signed ones make floating-point numbers.
    n_projections, n_bins, group_size = int(n_projections), int(n_bins), int(group_size)
    if tables * n_projections * n_bins >= 2**31:
        raise ValueError(
            f"A table of {tables} classes x {n_projections} slices x {n_bins} bins is too large; "
            "it must have fewer than 2^31 entries."
        )
    limits = planned_bounds(bounds, n_features, target.mu_cap, group_size)
    directions = make_directions(projections, n_projections, n_features, rng)
    # Private bounds make a ball, and the energy is the same in all balls.
    ball = bounds if isinstance(bounds, DataBounds) else DataBounds.from_norm(1.0, n_features)
    energy = Energy.of(ball, directions, projection_half_widths(ball, directions))
    strategy = best_strategy(n_bins, energy)
    conditional = n_classes is not None and not public_labels
    sensitivity = strategy.sensitivity(energy, conditional=conditional, group_size=group_size)
    shape = (directions, tables, strategy, sensitivity)

    def fit_event(sigma: float) -> Event:
        lattice = noise_lattice(sigma / math.sqrt(n_shares), strategy.lattice / n_units)
        table = GaussianEvent(
            sigma=sigma, sensitivity=sensitivity, lattice=lattice, label="Distribution functions"
        )
        return limits.before(table)

    if math.isinf(target.epsilon):
        noise: tuple[float, float, Any, Event]
        noise = 0.0, strategy.lattice / n_units, limits, NonPrivateEvent()
    else:
        event = calibrate(target, fit_event)
        table = event.phases[-1]
        noise = table.sigma, table.lattice, limits, event
        # What refuses does so here, before any charge.
        check_shares(
            table.sigma / table.lattice, table.mu, n_shares, tables * n_projections * n_bins
        )
    plan = SketchPlan(*shape, *noise, public_labels, n_units, n_shares)
    if parties is not None:
        parties.agree(plan, n_samples)
    return plan


def check_public_labels(n_classes: int | None, public_labels: bool, group_size: int) -> None:
    """Refuse, before any charge, public labels without classes and groups without public labels."""
    if public_labels and n_classes is None:
        raise ValueError("public_labels=True needs conditional=True and the label of every row.")
    if group_size > 1 and not public_labels:
        raise ValueError(
            f"group_size={group_size} needs public_labels=True: the rows of one person must have "
            "different public labels, such as times. Otherwise pass one row per person."
        )
    if group_size > (n_classes or 1):
        raise ValueError(
            f"group_size={group_size} is more than the {n_classes} labels, and the rows of one "
            "person must have different labels."
        )
