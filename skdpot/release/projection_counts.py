"""Exact counts of rows per bin of their projections on each direction.

There are two kernels, numpy on the CPU and torch on a GPU; both count block by block.
"""

import math
from collections.abc import Callable
from dataclasses import dataclass
from functools import cache
from itertools import pairwise
from typing import TYPE_CHECKING

import numpy as np

from skdpot._utils.devices import resolve_device
from skdpot._utils.threads import in_threads, n_threads
from skdpot.release.bounds import DataBounds

if TYPE_CHECKING:
    import torch

_BLOCK_ELEMENTS = 2**17  # projections that a thread holds at once: 2 MB of buffers
_MAX_BLOCK_ROWS = 2**14
_UNIT = 2.0**26  # length, in whole units, of the longest row and of the longest direction
# (n_features, n_rows, n_columns) of products that a device must compute exactly.
_PRODUCTS = ((1, 1, 1), (7, 16, 259), (61, 33, 1030), (784, 5, 2048))


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

    Projections are exact: rows and directions are rounded to 27 bits, so every partial sum of a
    product is an integer below 2^53 by the Cauchy-Schwarz inequality. The bins of a row within the
    bounds depend on this row alone, not on the division of rows into chunks, blocks or threads.
    (Rows without bounds may be longer, and their sums inexact. So the division into blocks depends
    on the number of rows alone: replacing a row, its class included, moves no other row.)

    Privacy
    -------
    The counts are as private as the rows. Counts of private rows are added only to noise that has
    already been drawn.
    """
    radius = float(np.max(half_widths)) if bounds is None else bounds.radius
    exact = _ExactProjections.of(directions, half_widths, n_bins, radius, bounds is not None)
    # Buffers fit into the cache, but adding up the counts of a block must not dominate the time.
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
            if bounds is not None:  # one memory layout, so that norms are summed in one order
                part = bounds.to_ball(np.ascontiguousarray(part))
            total += count_block(part, None if codes is None else codes[here])
        return total

    n_stripes = min(n_threads(), max(1, len(rows) // block)) if device is None else 1
    ends = [len(rows) * k // n_stripes for k in range(n_stripes + 1)]
    stripes = [range(start, stop) for start, stop in pairwise(ends)]
    return np.sum(in_threads(count, stripes), axis=0)


def counting_device(device: "str | torch.device") -> "torch.device | None":
    """Return the device that counts; refuse a device whose products of integers are not exact."""
    where = resolve_device(device)
    if where is not None:
        _check_products(where)
    return where


@cache
def _check_products(where: "torch.device") -> None:
    """Multiply public numbers: a GPU may emulate double precision with fewer bits."""
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
    """Directions as whole numbers, and the scales between rows, units and bins."""

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
        """Scale directions to bins and round them; the longest gets the length 2^26."""
        scaled = directions * (n_bins / 2 / half_widths)[:, None]
        largest = float(np.linalg.norm(scaled, axis=1).max())
        weights = np.ascontiguousarray(np.rint(scaled * (_UNIT / largest)).T)
        return cls(weights, _UNIT / radius, largest * radius / _UNIT**2, n_bins, limited)

    def units(self, rows: np.ndarray, out: np.ndarray) -> np.ndarray:
        """Round rows to whole units; rows beyond the radius become zero, the centre."""
        np.multiply(rows, self.rows_to_units, out=out)
        np.rint(out, out=out)
        if self.limited:
            squares = np.einsum("ij,ij->i", out, out)
            out[~(squares <= (_UNIT * (1.0 + 1e-6)) ** 2)] = 0.0
        return out


def _numpy_counter(
    exact: _ExactProjections, n_classes: int, block: int
) -> Callable[[np.ndarray, np.ndarray | None], np.ndarray]:
    """Return a function that counts one block of at most `block` rows with numpy."""
    (n_features, n_projections), n_bins = exact.weights.shape, exact.n_bins
    first_bins = np.arange(n_projections, dtype=np.int32) * n_bins
    # Buffers are reused within a stripe: new memory would cost more than the arithmetic.
    shapes = ((n_features, np.float64), (n_projections, np.float64), (n_projections, np.int32))
    buffers = [np.empty((block, n), dtype) for n, dtype in (*shapes, (n_projections, np.intp))]

    def count(rows: np.ndarray, codes: np.ndarray | None) -> np.ndarray:
        units, position, cell, index = (buffer[: len(rows)] for buffer in buffers)
        np.matmul(exact.units(rows, units), exact.weights, out=position)
        position *= exact.units_to_bins
        position += n_bins / 2
        np.clip(position, 0, n_bins - 1, out=position)
        cell[...] = position  # to 32 bits first, which has vector instructions
        cell += first_bins
        if codes is None:
            index[...] = cell
        else:
            order = np.argsort(codes, kind="stable")  # keeps the counters of a class in the cache
            index[...] = cell[order]
            index += (codes[order] * (n_projections * n_bins))[:, None]
        counts = np.bincount(index.ravel(), minlength=n_classes * n_projections * n_bins)
        return counts.reshape(-1, n_bins)

    return count


def _torch_counter(
    exact: _ExactProjections, n_classes: int, device: "torch.device"
) -> Callable[[np.ndarray, np.ndarray | None], np.ndarray]:
    """Return a function that counts one block with torch on `device`."""
    import torch  # here, because sketches on the CPU do not need it

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
