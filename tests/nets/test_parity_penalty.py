"""The parity penalty's gradient, and how far one record moves it in every mode."""

import itertools

import numpy as np
import ot
import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st

from skdpot.ot import transport
from skdpot.ot.slices import orthogonal_directions, uniform_directions
from skdpot.release.output_tables import ParityPenalty

LINE = np.ones((1, 1))
LIPSCHITZ = 1.3

# Cells of each stratum, and sizes of the batches of the cells.
MODES = {
    "two groups": (((0, 1),), (9, 14)),
    "two groups of one size": (((0, 1),), (12, 12)),
    "three groups": (((0, 1, 2),), (8, 13, 8)),
    "odds, two classes": (((0, 1), (2, 3)), (7, 11, 14, 9)),
    "odds, three classes": (((0, 1), (2, 3), (4, 5)), (6, 6, 9, 12, 7, 8)),
    "odds, three groups": (((0, 1, 2), (3, 4, 5)), (6, 10, 9, 12, 7, 8)),
}
SETS = ["interval", "ball 2", "ball 3", "simplex 3", "box 2"]


def draw_outputs(name, n, rng):
    """Points of a bounded set, about half of them where clipping puts them, many twice."""
    if name == "interval":
        return np.clip(rng.normal(0, 0.8, (n, 1)), -0.5, 0.5)
    k = int(name[-1])
    if name.startswith("box"):
        return np.clip(rng.normal(0, 0.8, (n, k)), -0.5, 0.5)
    if name.startswith("simplex"):
        corners = np.eye(k)[rng.integers(k, size=n)]
        return np.where(rng.random((n, 1)) < 0.5, corners, rng.dirichlet(np.ones(k), n))
    # Few angles, so that points on the sphere are equal.
    some = rng.normal(size=(5, k))[rng.integers(5, size=n)] * rng.uniform(0.2, 3, (n, 1))
    return some / np.maximum(1.0, np.linalg.norm(some, axis=1, keepdims=True))


def width_of(name, directions):
    """Mean length of the projections of a set."""
    if name.startswith("ball"):
        return 2.0
    if name.startswith("simplex"):
        return np.ptp(directions, axis=1).mean()
    return np.abs(directions).sum(axis=1).mean()


def draw_directions(name, rng):
    if name == "interval":
        return LINE
    draw = orthogonal_directions if rng.random() < 0.5 else uniform_directions
    return draw(int(rng.integers(1, 9)), int(name[-1]), rng)


def worst_change(penalty, outputs, cell, position, replacement, directions):
    """Largest move of the gradient over all Jacobians of norm L, that of the record included."""
    after = [of_cell.copy() for of_cell in outputs]
    after[cell][position] = replacement
    before, then = (penalty.vectors(given, directions) for given in (outputs, after))
    lengths = [np.linalg.norm(b - a, axis=1) for a, b in zip(before, then, strict=True)]
    own = [np.linalg.norm(given[cell][position]) for given in (before, then)]
    lengths[cell][position] = sum(own)
    return LIPSCHITZ * sum(length.sum() for length in lengths)


def largest_share(mode, name, seed, n_neighbours):
    """How much of the stated sensitivity random neighbours reach."""
    rng, penalty = np.random.default_rng(seed), ParityPenalty(*MODES[mode])
    directions = draw_directions(name, rng)
    outputs = [draw_outputs(name, n, rng) for n in penalty.batch_sizes]
    shares = []
    for _ in range(n_neighbours):
        cell = int(rng.integers(len(outputs)))
        position = int(rng.integers(len(outputs[cell])))
        replacement = draw_outputs(name, 1, rng)[0]
        shares.append(worst_change(penalty, outputs, cell, position, replacement, directions))
    return max(shares) / penalty.sensitivity(width_of(name, directions), LIPSCHITZ)


@pytest.mark.parametrize("mode", MODES)
@pytest.mark.parametrize("name", SETS)
@settings(max_examples=20, deadline=None)
@given(seed=st.integers(0, 2**32 - 1))
def test_no_neighbour_exceeds_the_sensitivity(mode, name, seed):
    """20 data sets with 10 neighbours each, in 30 settings: 6,000 neighbours."""
    assert largest_share(mode, name, seed, 10) <= 1.0


# --- it is attained ----------------------------------------------------------------------------


@pytest.mark.parametrize("mode", MODES)
def test_the_worst_case_is_attained(mode):
    """All outputs of the record's cell are equal, and it passes them by next to nothing."""
    penalty = ParityPenalty(*MODES[mode])
    cell = int(np.argmin(penalty.batch_sizes))
    outputs = [np.repeat([-0.5, 0.5], [n // 2, n - n // 2])[:, None] for n in penalty.batch_sizes]
    outputs[cell][:] = 0.5 - 1e-9
    change = worst_change(penalty, outputs, cell, 0, np.array([0.5]), LINE)
    stated = penalty.sensitivity(1.0, LIPSCHITZ)
    assert 0.99999 * stated <= change <= stated


def ties_at_random(points, directions, rng):
    """What an unstable sort may do: equal projections in any order."""
    projected = directions @ points.T
    order = np.lexsort((rng.random(projected.shape), projected), axis=1)
    return np.take_along_axis(projected, order, axis=1), order


@pytest.mark.parametrize("mode", MODES)
@pytest.mark.parametrize("name", ["interval", "simplex 3", "box 2"])
def test_with_an_unstable_sort_neighbours_exceed_it(mode, name, monkeypatch):
    """The property above has the power to see what it is there for."""
    rng = np.random.default_rng(7)
    monkeypatch.setattr(
        transport,
        "ranked_projections",
        lambda points, directions: ties_at_random(points, directions, rng),
    )
    sizes = tuple(20 * n for n in MODES[mode][1])
    monkeypatch.setitem(MODES, mode, (MODES[mode][0], sizes))
    assert max(largest_share(mode, name, seed, 3) for seed in range(4)) > 1.0


# --- it is the gradient ------------------------------------------------------------------------


@pytest.mark.parametrize("mode", MODES)
@pytest.mark.parametrize("k", [1, 2, 3])
def test_vectors_are_the_gradient_of_pots_distance(mode, k):
    """Automatic derivatives of an independent solver, sizes that do not divide each other."""
    rng, penalty = np.random.default_rng(k), ParityPenalty(*MODES[mode])
    directions = LINE if k == 1 else uniform_directions(6, k, rng)
    outputs = [
        torch.from_numpy(rng.normal(size=(n, k))).requires_grad_() for n in penalty.batch_sizes
    ]
    projections = torch.from_numpy(directions.T.copy())
    pairs = [p for stratum in penalty.strata for p in itertools.combinations(stratum, 2)]
    distances = [
        ot.wasserstein_1d(outputs[a] @ projections, outputs[b] @ projections, p=2).mean()
        for a, b in pairs
    ]
    torch.stack(distances).mean().backward()
    vectors = penalty.vectors([o.detach().numpy() for o in outputs], directions)
    for vector, output in zip(vectors, outputs, strict=True):
        np.testing.assert_allclose(vector, output.grad.numpy(), atol=1e-10)
