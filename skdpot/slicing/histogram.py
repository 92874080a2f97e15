"""Histograms of projections, streamed on top of noise: the only pass over private rows.

Two kernels, one for numpy on the CPU and one for torch on a GPU, count how many rows of a
block fall into each bin along each direction. Memory is a few blocks of projections,
whatever the number of rows.
"""

import os
from collections.abc import Callable, Iterator
from dataclasses import replace
from itertools import pairwise
from typing import TYPE_CHECKING, Any, NoReturn

import numpy as np

from skdpot._utils.devices import in_threads, n_threads
from skdpot._utils.rng import SecretStream
from skdpot.exceptions import OpenSketchError
from skdpot.privacy.data_bounds import DataBounds
from skdpot.privacy.noise import lattice_noise
from skdpot.privacy.recording import Part, Records, Release, Vectors, released
from skdpot.slicing.plan import SketchPlan, square_root_strategy

if TYPE_CHECKING:
    import torch

_BLOCK_ELEMENTS = 2**17  # projections held at once by a thread: 2 MB of buffers
_MAX_BLOCK_ROWS = 2**14
_FORMED = 2**24  # numbers that single rows add, held at once: 128 MB


def bin_edges(half_widths: np.ndarray, n_bins: int) -> np.ndarray:
    """Return the edges of the equal bins of ``[-w, w]`` for each slice."""
    return np.asarray(half_widths)[:, None] * np.linspace(-1.0, 1.0, n_bins + 1)


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
    """Count rows by bin of their projection on each direction.

    Every row adds exactly one count to one bin of each slice, wherever rounding puts it;
    the sensitivity therefore does not depend on floating-point arithmetic. Projections
    beyond ``[-w, w]`` are counted in the end bins.

    Privacy
    -------
    The counts are as private as the rows. Those of private rows are only ever added to noise that
    is already drawn.

    How a matrix product rounds a row depends on how many rows are multiplied together. So
    rows are projected where they stand, in blocks that depend on their number alone, and
    sorted by class afterwards: replacing a row, its class included, moves no other.
    """
    # Bin units: the projection scaled to [0, B], so that truncation gives the bin.
    scaled = (directions * (n_bins / 2 / half_widths)[:, None]).astype(np.float32)
    # Buffers stay in the cache, but are not so small that counters take longer than counting.
    fitting = _BLOCK_ELEMENTS // max(scaled.shape)
    block = min(_MAX_BLOCK_ROWS, max(256, n_bins * n_classes // 2, fitting))

    def count(stripe: range) -> np.ndarray:
        if device is None:
            count_block = _numpy_counter(scaled, n_bins, n_classes, min(block, len(stripe)))
        else:
            count_block = _torch_counter(scaled, n_bins, n_classes, device)
        total = np.zeros((n_classes * len(scaled), n_bins), dtype=np.int64)
        for start in stripe[::block]:
            here = slice(start, min(start + block, stripe.stop))
            part = rows[here] if bounds is None else bounds.to_ball(rows[here])
            total += count_block(part, None if codes is None else codes[here])
        return total

    n_stripes = min(n_threads(), max(1, len(rows) // block)) if device is None else 1
    ends = [len(rows) * k // n_stripes for k in range(n_stripes + 1)]
    stripes = [range(*pair) for pair in pairwise(ends)]
    counts: np.ndarray = np.sum(in_threads(count, stripes), axis=0)
    return counts


def binned_rows(release: Release, records: Records, shares: np.ndarray) -> Iterator[Part]:
    """Yield what rows add to a table ``A H`` of binned projections, some slices at a time.

    Records are rows and the class of each; None or any classes where there is one table.
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
        table: np.ndarray = (counted @ matrix.T).reshape(n_of, len(along) * n_bins)
        return table

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
    scaled: np.ndarray, n_bins: int, n_classes: int, block: int
) -> Callable[[np.ndarray, np.ndarray | None], np.ndarray]:
    """Return a function that counts one block of at most `block` rows with numpy."""
    n_projections = len(scaled)
    weights = np.ascontiguousarray(scaled.T)
    first_bins = np.arange(n_projections, dtype=np.int32) * n_bins
    # Buffers live as long as the stripe: fresh pages would cost more than the arithmetic.
    buffers = [np.empty((block, n_projections), dtype) for dtype in (np.float32, np.int32, np.intp)]

    def count(rows: np.ndarray, codes: np.ndarray | None) -> np.ndarray:
        position, cell, index = (buffer[: len(rows)] for buffer in buffers)
        np.matmul(rows.astype(np.float32, copy=False), weights, out=position)
        position += np.float32(n_bins / 2)
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
    scaled: np.ndarray, n_bins: int, n_classes: int, device: "torch.device"
) -> Callable[[np.ndarray, np.ndarray | None], np.ndarray]:
    """Return a function that counts one block with torch on `device`."""
    import torch  # here, so that sketches on the CPU do without

    weights = torch.from_numpy(scaled).to(device)
    n_projections = len(scaled)
    offsets = (torch.arange(n_projections, device=device) * n_bins)[:, None]

    def count(rows: np.ndarray, codes: np.ndarray | None) -> np.ndarray:
        block = torch.from_numpy(np.ascontiguousarray(rows, dtype=np.float32)).to(device)
        bins = (weights @ block.T + n_bins / 2).clamp_(0, n_bins - 1).long()
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
    **noise: Any,
) -> Release:
    """Return the release of a table ``A H + noise`` (n_classes, n_projections, n_bins)."""
    facts = {
        "strategy": square_root_strategy(statistic.shape[-1]),
        "bounds": bounds,
        "directions": directions,
        "half_widths": half_widths,
    }
    return Release("sketch", statistic, facts, linear=binned_rows, **noise)


class NoisyAccumulator:
    """A table of noise to which the statistic of each chunk of rows is added.

    The noise is drawn when the accumulator is made, so there is never a table of counts
    without it. Reading it twice, before and after a row is added, would reveal that row:
    until `close` it can be neither read nor copied nor pickled. The caller has charged
    ``plan.event`` before making one. Device None is numpy.
    """

    def __init__(
        self,
        plan: SketchPlan,
        bounds: DataBounds,
        directions: np.ndarray,
        half_widths: np.ndarray,
        stream: SecretStream,
        device: "torch.device | None",
    ) -> None:
        self._plan, self._device = plan, device
        self._measured = bounds, directions, half_widths
        # The statistic in units of the noise's lattice, an integer fraction of the strategy's.
        self._factor = round(plan.strategy.lattice / plan.lattice)
        shape = (plan.n_classes, plan.n_projections, plan.strategy.n_bins)
        if plan.sigma > 0:
            mu = plan.event.phases[-1].mu
            self._table = lattice_noise(plan.sigma, shape, stream, lattice=plan.lattice, mu=mu)
        else:
            self._table = np.zeros(shape, dtype=np.int64)
        self.n_rows = 0
        # Where labels are public their numbers need no noise; otherwise they are not even counted.
        self.label_counts = np.zeros(plan.n_classes, dtype=np.int64) if plan.public_labels else None
        self._process = os.getpid()

    def add(self, rows: np.ndarray, codes: np.ndarray | None) -> None:
        """Add rows; `codes` (n_rows,) holds the position of each row's class.

        When a chunk is interrupted half-way the table is dropped: adding the chunk again
        would count some rows twice, which the sensitivity does not cover.
        """
        self._check_whole()
        bounds, directions, half_widths = self._measured
        n_classes, strategy = self._plan.n_classes, self._plan.strategy
        # A chunk's sums stay far below 2^53, so that double precision multiplies them exactly,
        # and much faster than integers.
        matrix = strategy.integer_matrix.T.astype(np.float64)
        try:
            counts = count_projections(
                rows,
                directions,
                half_widths,
                strategy.n_bins,
                codes=codes,
                n_classes=n_classes,
                bounds=bounds,
                device=self._device,
            )
            for table, part in zip(self._table, counts.reshape(self._table.shape), strict=True):
                table += (part @ matrix).astype(np.int64) * self._factor
            self.n_rows += len(rows)
            if self.label_counts is not None and codes is not None:
                self.label_counts += np.bincount(codes, minlength=n_classes)
        except BaseException:
            del self._table
            raise

    def close(self) -> Release:
        """End, and return the release; its value is float64."""
        self._check_whole()
        plan, table = self._plan, self._table * self._plan.lattice
        del self._table
        release = sketch_release(
            table,
            *self._measured,
            sigma=float(plan.sigma),
            lattice=plan.lattice,
            sensitivity=plan.sensitivity,
            event=plan.event,
        )
        return replace(release, value=released(release))

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
