"""Nothing but the replaced row moves, and nothing about it shows outside of the noise."""

import os

import numpy as np
import pytest
import torch
from threadpoolctl import threadpool_limits

from skdpot import PrivacyBudget, SlicedSketch
from skdpot.exceptions import OpenSketchError
from skdpot.ot.directions import uniform_directions
from skdpot.release import projection_counts
from skdpot.release.bounds import DataBounds
from skdpot.release.projection_counts import count_projections

N_BINS = 16
DEVICES = [
    pytest.param(None, id="numpy"),
    pytest.param(torch.device("cpu"), id="torch"),
    pytest.param(
        torch.device("cuda"),
        marks=pytest.mark.skipif(not torch.cuda.is_available(), reason="needs a GPU"),
        id="cuda",
    ),
]


def rows_on_edges(directions, n_rows, rng):
    """Return rows that lie on a bin edge of every slice, as far as single precision goes."""
    widths = np.full(len(directions), 3.5)
    scaled = directions * (N_BINS / 2 / widths)[:, None]
    rows = rng.uniform(-0.8, 0.8, (n_rows, directions.shape[1]))
    positions = rows @ scaled.T + N_BINS / 2
    rows += np.linalg.lstsq(scaled, (np.rint(positions) - positions).T, rcond=None)[0].T
    return rows.astype(np.float32)


@pytest.mark.parametrize("n_threads", [1, 2])
@pytest.mark.parametrize("device", DEVICES)
@pytest.mark.parametrize("n_rows", [2, 61, 259, 1030])
@pytest.mark.parametrize(
    ("n_features", "n_projections"), [(1, 1), (5, 1), (7, 16), (61, 33), (784, 5)]
)
def test_replacing_a_row_moves_no_other_row(n_features, n_projections, n_rows, device, n_threads):
    """What a product makes of a row depends on its place and on the shape, not on other rows.

    Each row has a class of its own here, so that the table shows the bins of every row; all of
    them lie on edges, where the last bit decides.
    """
    rng = np.random.default_rng(n_rows)
    directions = uniform_directions(n_projections, n_features, rng)
    rows = rows_on_edges(directions, n_rows, rng)
    replaced = int(rng.integers(n_rows))
    others = np.arange(n_rows) != replaced

    def bins_of(rows, codes):
        options = {"codes": codes, "n_classes": n_rows, "device": device}
        counts = count_projections(rows, directions, np.full(n_projections, 3.5), N_BINS, **options)
        return counts.reshape(n_rows, n_projections, N_BINS)

    # Its class moves it to another one: that is all that class shows.
    target = (replaced + 1) % n_rows
    before = torch.get_num_threads()
    torch.set_num_threads(n_threads)
    try:
        with threadpool_limits(n_threads):
            own = np.arange(n_rows)
            first = bins_of(rows, own)
            for value in (0.0, 1e-42, 0.3, -1e30):  # zeros, subnormal and huge numbers too
                neighbour = rows.copy()
                neighbour[replaced] = value
                np.testing.assert_array_equal(bins_of(neighbour, own)[others], first[others])
            own[replaced] = target
            added = bins_of(rows, own) - first
            np.testing.assert_array_equal(np.delete(added, [replaced, target], axis=0), 0)
            np.testing.assert_array_equal(added[target], first[replaced])
    finally:
        torch.set_num_threads(before)


@pytest.mark.parametrize("device", DEVICES[1:])
def test_a_device_that_rounds_products_is_refused_before_any_charge(device, monkeypatch):
    monkeypatch.setattr(projection_counts, "resolve_device", lambda _: device)
    sketch = SlicedSketch(bounds=(-1, 1), budget=PrivacyBudget(2.0), device="cpu")
    rows = np.zeros((99, 2))
    sketch.fit(rows)
    product = torch.Tensor.__matmul__
    halves = lambda one, other: product(one.float(), other.float()).double()  # noqa: E731
    monkeypatch.setattr(torch.Tensor, "__matmul__", halves)
    projection_counts._check_products.cache_clear()
    with pytest.raises(ValueError, match="double precision"):
        sketch.fit(rows)
    assert len(sketch.budget.history()) == 1


@pytest.mark.parametrize("order", ["C", "F"])
def test_clipping_a_row_does_not_depend_on_huge_values_of_others(order):
    rng = np.random.default_rng(2)
    bounds = DataBounds(np.zeros(7), np.ones(7), 3.0)
    rows = np.asarray(rng.normal(size=(50, 7)) * 10.0 ** rng.uniform(0, 300, (50, 7)), order=order)
    neighbour = rows.copy(order="K")
    neighbour[3] = 0.1
    kept = np.arange(50) != 3
    np.testing.assert_array_equal(bounds.to_ball(rows)[kept], bounds.to_ball(neighbour)[kept])


@pytest.mark.skipif(not hasattr(os, "fork"), reason="needs fork")
@pytest.mark.filterwarnings("ignore:This process.*fork:DeprecationWarning")
def test_a_fork_cannot_use_the_noise_of_an_open_sketch():
    """Parent and child would add different rows to one noise draw."""
    rows = np.random.default_rng(4).uniform(-1, 1, (20, 2))
    sketch = SlicedSketch(bounds=(-1, 1), n_projections=2, n_bins=8).partial_fit(rows)
    child = os.fork()
    if child == 0:
        refused = 0
        try:
            for attempt in (sketch.close, lambda: sketch.partial_fit(rows)):
                try:
                    attempt()
                except OpenSketchError:
                    refused += 1
        finally:  # whatever happens, the child must not go on with the tests
            os._exit(refused)
    _, status = os.waitpid(child, 0)
    assert os.waitstatus_to_exitcode(status) == 2
    assert sketch.close().n_samples_ == 20
