"""Counting projections: both kernels against a loop, and memory that does not grow."""

import tracemalloc

import numpy as np
import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st

from skdpot import SlicedSketch
from skdpot.ot.directions import uniform_directions
from skdpot.release.projection_counts import count_projections

CPU = torch.device("cpu")


def naive_counts(rows, directions, half_widths, n_bins):
    """One row, one direction, one count at a time."""
    counts = np.zeros((len(directions), n_bins), dtype=np.int64)
    for row in rows:
        for j, theta in enumerate(directions):
            position = (float(row @ theta) / half_widths[j] + 1) / 2 * n_bins
            counts[j, min(max(int(np.floor(position)), 0), n_bins - 1)] += 1
    return counts


def lattice_rows(rng, n_rows, n_features, n_bins):
    """Rows whose coordinates are middles of bins, where no rounding can move them."""
    return (rng.integers(-3, n_bins + 3, (n_rows, n_features)) + 0.5) * 2 / n_bins - 1


@pytest.mark.parametrize("device", [None, CPU], ids=["numpy", "torch"])
@pytest.mark.parametrize("dtype", [np.float64, np.float32])
@given(
    n_rows=st.integers(1, 40),
    n_features=st.integers(1, 7),
    n_bins=st.sampled_from([2, 3, 16, 64, 255, 256, 257, 1000, 4096]),
    seed=st.integers(0, 2**32 - 1),
)
@settings(max_examples=15, deadline=None)
def test_equals_a_loop(device, dtype, n_rows, n_features, n_bins, seed):
    rng = np.random.default_rng(seed)
    rows = lattice_rows(rng, n_rows, n_features, n_bins).astype(dtype)
    axes = np.eye(n_features)
    directions = np.concatenate([axes, -axes[:1]])[: rng.integers(1, n_features + 2)]
    widths = np.ones(len(directions))
    counts = count_projections(rows, directions, widths, n_bins, device=device)
    assert counts.dtype == np.int64
    np.testing.assert_array_equal(counts, naive_counts(rows, directions, widths, n_bins))


@pytest.mark.parametrize("n_bins", [7, 64, 300])
@pytest.mark.parametrize("n_projections", [1, 2, 9, 10])
def test_kernels_agree_on_random_directions(n_projections, n_bins):
    """Rounding may put a projection that is on an edge in either bin, no more.

    Every row counts once in every slice, which is what the sensitivity rests on.
    """
    rng = np.random.default_rng(n_projections)
    rows, directions = rng.uniform(-1, 1, (5000, 4)), uniform_directions(n_projections, 4, rng)
    widths = rng.uniform(0.5, 2, n_projections)
    kernels = [count_projections(rows, directions, widths, n_bins, device=d) for d in (None, CPU)]
    bins = np.floor((rows @ directions.T / widths + 1) / 2 * n_bins).clip(0, n_bins - 1).astype(int)
    loop = np.stack([np.bincount(column, minlength=n_bins) for column in bins.T])
    for counts in kernels:
        moved = np.abs(np.cumsum(counts - loop, axis=1)).max()
        assert moved <= 3
        np.testing.assert_array_equal(counts.sum(axis=1), 5000)


def test_memory_does_not_grow_with_the_rows():
    """Peak beyond the rows themselves, at 150,000 and 600,000 rows: the same block."""

    def peak(n_rows):
        rows = np.zeros((n_rows, 2), dtype=np.float32)
        sketch = SlicedSketch(epsilon=np.inf, bounds=(-1, 1), projections=np.eye(2), n_bins=16)
        tracemalloc.start()
        sketch.partial_fit(rows, n_samples=n_rows + 1)
        used = tracemalloc.get_traced_memory()[1]
        tracemalloc.stop()
        return used

    peak(1000)
    small, large = peak(150_000), peak(600_000)
    assert large < 1.3 * small + 2**20
