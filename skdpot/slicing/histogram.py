"""Histograms of projections, streamed: the only pass over private rows.

Two kernels, one for numpy on the CPU and one for torch on a GPU, count how many rows of a
chunk fall into each bin along each direction. Memory is a block of projections, whatever
the number of rows.
"""

from collections.abc import Callable

import numpy as np
import torch

__all__ = ["bin_edges", "count_projections"]

_BLOCK_ELEMENTS = 2**20  # projections held at once: 4 MB, which stays in the cache
_MAX_PAIRED_BINS = 256  # B² counters of a pair of slices still fit in the second-level cache


def bin_edges(half_widths: np.ndarray, n_bins: int) -> np.ndarray:
    """Return the edges of the equal bins of ``[-w, w]`` for each slice.

    Parameters
    ----------
    half_widths : ndarray of shape (n_slices,)
        Half width w of the binned range along each direction.
    n_bins : int
        Number of bins B.

    Returns
    -------
    ndarray of shape (n_slices, n_bins + 1)
        Edges.
    """
    return np.asarray(half_widths)[:, None] * np.linspace(-1.0, 1.0, n_bins + 1)


def count_projections(
    rows: np.ndarray,
    directions: np.ndarray,
    half_widths: np.ndarray,
    n_bins: int,
    *,
    device: torch.device | None = None,
) -> np.ndarray:
    """Count rows by bin of their projection on each direction.

    Every row adds exactly one count to one bin of each slice, wherever rounding puts it;
    the sensitivity therefore does not depend on floating-point arithmetic. Projections
    beyond ``[-w, w]`` are counted in the end bins.

    Parameters
    ----------
    rows : ndarray of shape (n_rows, n_features)
        Finite rows.
    directions : ndarray of shape (n_slices, n_features)
        Unit rows.
    half_widths : ndarray of shape (n_slices,)
        Half width of the binned range along each direction.
    n_bins : int
        Number of equal bins.
    device : torch.device, optional
        A device runs the torch kernel there; None runs numpy.

    Returns
    -------
    ndarray of shape (n_slices, n_bins), int64
        Counts; each row sums to ``n_rows``.

    Privacy
    -------
    The counts are private. The only caller adds them to noise that is already drawn.
    """
    # Bin units: the projection scaled to [0, B], so that truncation gives the bin.
    scaled = (directions * (n_bins / 2 / half_widths)[:, None]).astype(np.float32)
    block = min(len(rows), max(256, _BLOCK_ELEMENTS // len(directions)))
    if device is None:
        count = _numpy_counter(scaled, n_bins, block)
    else:
        count = _torch_counter(scaled, n_bins, device)
    total = np.zeros((len(directions), n_bins), dtype=np.int64)
    for start in range(0, len(rows), block):
        total += count(rows[start : start + block])
    return total


def _numpy_counter(
    scaled: np.ndarray, n_bins: int, block: int
) -> Callable[[np.ndarray], np.ndarray]:
    """Return a function that counts one block with numpy.

    Two slices share one pass of ``bincount`` over their joint bin, whose marginals are the
    two histograms: half as many increments, and fewer of them hit the same counter twice
    in a row.
    """
    n_slices = len(scaled)
    n_paired = 2 * (n_slices // 2) if n_bins <= _MAX_PAIRED_BINS else 0
    # Buffers live as long as the stream: fresh pages would cost more than the arithmetic.
    bins_buffer = np.empty((n_slices, block), dtype=np.float32)
    index_buffer = np.empty((n_slices - n_paired // 2, block), dtype=np.intp)

    def count(rows: np.ndarray) -> np.ndarray:
        bins = bins_buffer[:, : len(rows)]
        index = index_buffer[:, : len(rows)]
        np.matmul(scaled, rows.astype(np.float32, copy=False).T, out=bins)
        bins += np.float32(n_bins / 2)
        np.clip(bins, 0, n_bins - 1, out=bins)
        np.floor(bins, out=bins)
        joint = bins[1:n_paired:2]
        joint *= np.float32(n_bins)
        joint += bins[0:n_paired:2]  # at most B² - 1 <= 65,535: exact in single precision
        index[: n_paired // 2] = joint
        index[n_paired // 2 :] = bins[n_paired:]
        counts = np.empty((n_slices, n_bins), dtype=np.int64)
        for pair in range(n_paired // 2):
            table = np.bincount(index[pair], minlength=n_bins * n_bins).reshape(n_bins, n_bins)
            counts[2 * pair] = table.sum(axis=0)
            counts[2 * pair + 1] = table.sum(axis=1)
        for j in range(n_paired, n_slices):
            counts[j] = np.bincount(index[j - n_paired // 2], minlength=n_bins)
        return counts

    return count


def _torch_counter(
    scaled: np.ndarray, n_bins: int, device: torch.device
) -> Callable[[np.ndarray], np.ndarray]:
    """Return a function that counts one block with torch on `device`."""
    weights = torch.from_numpy(scaled).to(device)
    n_slices = len(scaled)
    offsets = (torch.arange(n_slices, device=device) * n_bins)[:, None]

    def count(rows: np.ndarray) -> np.ndarray:
        block = torch.from_numpy(np.ascontiguousarray(rows, dtype=np.float32)).to(device)
        bins = (weights @ block.T + n_bins / 2).clamp_(0, n_bins - 1).long()
        flat = (bins + offsets).flatten()
        counts = torch.bincount(flat, minlength=n_slices * n_bins)
        return counts.reshape(n_slices, n_bins).cpu().numpy()

    return count
