"""Histograms of projections, streamed: the only pass over private rows.

Two kernels, one for numpy on the CPU and one for torch on a GPU, count how many rows of a
block fall into each bin along each direction. Memory is a few blocks of projections,
whatever the number of rows.
"""

from collections.abc import Callable, Iterator
from itertools import pairwise
from typing import TYPE_CHECKING

import numpy as np

from skdpot._utils.threads import in_threads, n_threads
from skdpot.privacy.data_bounds import DataBounds
from skdpot.privacy.recording import Part, Records, Release, Vectors

if TYPE_CHECKING:
    import torch

__all__ = ["bin_edges", "binned_rows", "count_projections"]

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
    block = _block_rows(scaled, n_bins * n_classes)

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
    facts, (n_classes, n_slices, n_bins) = release.facts, release.value.shape
    if n_classes == 1 or codes is None:
        codes = np.zeros(len(rows), dtype=np.intp)
    bounds, matrix = facts.get("bounds"), facts["strategy"].matrix

    def counts(chosen: np.ndarray, of: np.ndarray, n_of: int, block: slice) -> np.ndarray:
        along, half_widths = facts["directions"][block], facts["half_widths"][block]
        counted = count_projections(
            rows[chosen], along, half_widths, n_bins, codes=of, n_classes=n_of, bounds=bounds
        )
        table: np.ndarray = (counted @ matrix.T).reshape(n_of, -1)
        return table

    known, members = np.flatnonzero(shares == 1.0), np.flatnonzero(shares < 1.0)
    size = max(1, _FORMED // (max(len(members), 1) * n_classes * n_bins))
    for start in range(0, n_slices, size):
        block = slice(start, start + size)
        each = counts(members, np.arange(len(members)), len(members), block)  # a class of its own
        own = np.zeros((len(members), n_classes, each.shape[1]))
        own[np.arange(len(members)), codes[members]] = each
        single = Vectors(own.reshape(len(members), -1))
        yield Part(
            value=release.value[:, block].ravel(),
            sigma=float(np.max(release.sigma)),
            rows=single,
            members=members,
            center=counts(known, codes[known], n_classes, block).ravel()
            + single.sum(shares[members]),
        )


def _block_rows(scaled: np.ndarray, n_cells: int) -> int:
    """Return how many rows to project at once, so that buffers stay in the cache.

    Never so few that clearing and adding the counters would cost more than counting.
    """
    n_slices, n_features = scaled.shape
    fitting: int = _BLOCK_ELEMENTS // max(n_slices, n_features)
    return min(_MAX_BLOCK_ROWS, max(256, n_cells // 2, fitting))


def _numpy_counter(
    scaled: np.ndarray, n_bins: int, n_classes: int, block: int
) -> Callable[[np.ndarray, np.ndarray | None], np.ndarray]:
    """Return a function that counts one block of at most `block` rows with numpy."""
    n_slices = len(scaled)
    weights = np.ascontiguousarray(scaled.T)
    first_bins = np.arange(n_slices, dtype=np.int32) * n_bins
    # Buffers live as long as the stripe: fresh pages would cost more than the arithmetic.
    buffers = [np.empty((block, n_slices), dtype) for dtype in (np.float32, np.int32, np.intp)]

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
            index += (codes[order] * (n_slices * n_bins))[:, None]
        counts = np.bincount(index.ravel(), minlength=n_classes * n_slices * n_bins)
        return counts.reshape(-1, n_bins)

    return count


def _torch_counter(
    scaled: np.ndarray, n_bins: int, n_classes: int, device: "torch.device"
) -> Callable[[np.ndarray, np.ndarray | None], np.ndarray]:
    """Return a function that counts one block with torch on `device`."""
    import torch  # here, so that sketches on the CPU do without

    weights = torch.from_numpy(scaled).to(device)
    n_slices = len(scaled)
    offsets = (torch.arange(n_slices, device=device) * n_bins)[:, None]

    def count(rows: np.ndarray, codes: np.ndarray | None) -> np.ndarray:
        block = torch.from_numpy(np.ascontiguousarray(rows, dtype=np.float32)).to(device)
        bins = (weights @ block.T + n_bins / 2).clamp_(0, n_bins - 1).long()
        bins += offsets
        if codes is not None:
            bins += torch.from_numpy(codes).to(device) * (n_slices * n_bins)
        counts = torch.bincount(bins.flatten(), minlength=n_classes * n_slices * n_bins)
        return counts.reshape(-1, n_bins).cpu().numpy()

    return count
