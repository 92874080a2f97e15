"""Histograms of projections, streamed: the only pass over private rows.

Two kernels, one for numpy on the CPU and one for torch on a GPU, count how many rows of a
block fall into each bin along each direction. Memory is a few blocks of projections,
whatever the number of rows.
"""

from collections.abc import Callable

import numpy as np
import torch

from skdpot._utils.threads import in_threads, n_threads
from skdpot.privacy.data_bounds import DataBounds

__all__ = ["bin_edges", "count_projections"]

_BLOCK_ELEMENTS = 2**17  # projections held at once by a thread: 2 MB of buffers
_MAX_BLOCK_ROWS = 2**14


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
    bounds: DataBounds | None = None,
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
    bounds : DataBounds, optional
        Maps and clips each row before it is projected; None takes rows as they are.
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
    block = _block_rows(scaled, n_bins)

    def count(stripe: np.ndarray) -> np.ndarray:
        if device is None:
            count_block = _numpy_counter(scaled, n_bins, min(block, len(stripe)))
        else:
            count_block = _torch_counter(scaled, n_bins, device)
        total = np.zeros((len(scaled), n_bins), dtype=np.int64)
        for start in range(0, len(stripe), block):
            part = stripe[start : start + block]
            total += count_block(part if bounds is None else bounds.to_ball(part))
        return total

    n_stripes = min(n_threads(), max(1, len(rows) // block)) if device is None else 1
    counts: np.ndarray = np.sum(in_threads(count, np.array_split(rows, n_stripes)), axis=0)
    return counts


def _block_rows(scaled: np.ndarray, n_bins: int) -> int:
    """Return how many rows to project at once, so that buffers stay in the cache.

    Never so few that clearing and adding the counters would cost more than counting.
    """
    n_slices, n_features = scaled.shape
    fitting: int = _BLOCK_ELEMENTS // max(n_slices, n_features)
    return min(_MAX_BLOCK_ROWS, max(256, n_bins // 4, fitting))


def _numpy_counter(
    scaled: np.ndarray, n_bins: int, block: int
) -> Callable[[np.ndarray], np.ndarray]:
    """Return a function that counts one block of at most `block` rows with numpy."""
    n_slices = len(scaled)
    weights = np.ascontiguousarray(scaled.T)
    first_bins = np.arange(n_slices, dtype=np.int32) * n_bins
    # Buffers live as long as the stripe: fresh pages would cost more than the arithmetic.
    buffers = [np.empty((block, n_slices), dtype) for dtype in (np.float32, np.int32, np.intp)]

    def count(rows: np.ndarray) -> np.ndarray:
        position, cell, index = (buffer[: len(rows)] for buffer in buffers)
        np.matmul(rows.astype(np.float32, copy=False), weights, out=position)
        position += np.float32(n_bins / 2)
        np.clip(position, 0, n_bins - 1, out=position)
        cell[...] = position  # to 32 bits first: that has vector instructions
        cell += first_bins
        index[...] = cell
        return np.bincount(index.ravel(), minlength=n_slices * n_bins).reshape(n_slices, n_bins)

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
