"""Gradients of the Wasserstein distance, and how far one record moves them."""

import math

import numpy as np
import ot
import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from hypothesis.extra import numpy as hnp
from torch import nn

from skdpot.ot.slices import orthogonal_directions, uniform_directions
from skdpot.ot.transport import matched_means, rank_coupling
from skdpot.release.gradients import by_jacobians, pulled_back_sum
from skdpot.release.output_tables import (
    fixed_side_sensitivity,
    moving_side_sensitivity,
)
from tests.release.jacobian_sums import wasserstein_vectors

RNG = np.random.default_rng(5113)


@pytest.mark.parametrize(("n", "m"), [(5, 5), (7, 3), (4, 9), (6, 12), (13, 1)])
def test_points_are_matched_as_the_optimal_plan_does(n, m):
    u, v = np.sort(RNG.normal(size=(3, n)), axis=1), np.sort(RNG.normal(size=m))
    plan = ot.emd_1d(u[0], v)
    np.testing.assert_allclose(rank_coupling(n, m).toarray().T / m, plan, atol=1e-12)
    assert rank_coupling(n, m).nnz == n + m - math.gcd(n, m)
    np.testing.assert_allclose(matched_means(u, m), m * u @ plan, atol=1e-12)


# --- the fixed side is private -----------------------------------------------------------------


def worst_change(moving, fixed, other, directions, clip):
    """Largest change of n times the gradient over all Jacobians of norm at most `clip`."""
    before, after = (wasserstein_vectors(moving, points, directions) for points in (fixed, other))
    return clip * len(fixed) * np.linalg.norm(after - before, axis=1).sum()


def in_ball(points, radius):
    norms = np.linalg.norm(points, axis=1, keepdims=True)
    return points * np.minimum(1, radius / np.maximum(norms, 1e-300))


@settings(max_examples=100, deadline=None)
@given(
    hnp.arrays(np.float64, (7, 3), elements=st.sampled_from([-9.0, -1.0, 0.0, 0.3, 1.0, 9.0])),
    hnp.arrays(np.float64, (9, 3), elements=st.floats(-2, 2)),
    st.integers(0, 2**32 - 1),
    st.booleans(),
)
def test_a_record_of_the_fixed_side_never_exceeds_its_bound(points, moving, seed, orthogonal):
    """Records at the edge of the ball, in every position, against outputs anywhere."""
    rng = np.random.default_rng(seed)
    draw = orthogonal_directions if orthogonal else uniform_directions
    directions = draw(int(rng.integers(1, 8)), 3, rng)
    fixed = in_ball(points, 1.5)
    other = fixed.copy()
    other[rng.integers(7)] = in_ball(rng.normal(size=(1, 3)) * 9, 1.5)
    norm = np.linalg.norm(directions, 2)
    bound = fixed_side_sensitivity(1.5, 2.0, len(directions), norm)
    assert worst_change(moving, fixed, other, directions, 2.0) <= bound * (1 + 1e-9)


@pytest.mark.parametrize("d", [1, 2, 5, 8])
def test_the_bound_of_the_fixed_side_is_attained(d):
    """The construction of the docstring, through the clipping that training uses.

    The network has one parameter w and maps z to w z: the Jacobian of output j is z_j. Output k
    is the last one along direction k, and its Jacobian is clipped to L.
    """
    n, radius, clip = d + 3, 1.5, 0.7
    directions = orthogonal_directions(d, d, RNG)
    diagonal = directions.sum(axis=0) / math.sqrt(d)
    fixed = np.tile(-radius * diagonal, (n, 1))
    other = fixed.copy()
    other[2] *= -1
    z = np.concatenate([5.0 * directions, np.zeros((n - d, d))])

    class Scaled(nn.Module):
        def __init__(self):
            super().__init__()
            self.weight = nn.Parameter(torch.ones(1, dtype=torch.float64))

        def forward(self, latents):
            return self.weight * latents

    gradients = []
    for points in (fixed, other):
        vectors = torch.from_numpy(n * wasserstein_vectors(z, points, directions))
        shortened = by_jacobians(clip, vectors)
        (total,) = pulled_back_sum(Scaled(), torch.from_numpy(z), shortened).values()
        gradients.append(float(total))
    bound = fixed_side_sensitivity(radius, clip, d, 1.0)
    assert bound == pytest.approx(4 * radius * clip / math.sqrt(d))
    assert bound * 0.998 <= abs(gradients[1] - gradients[0]) <= bound


# --- its own side moves too --------------------------------------------------------------------

LINE = np.ones((1, 1))


def worst_change_on_a_line(own, replaced, position, other, clip_own, clip_other):
    """The same over all Jacobians of both sides; that of the replaced record may change too."""
    points, n = other[:, None], len(own)
    (mine, theirs), (mine_after, theirs_after) = (
        (
            n * wasserstein_vectors(x[:, None], points, LINE)[:, 0],
            n * wasserstein_vectors(points, x[:, None], LINE)[:, 0],
        )
        for x in (own, replaced)
    )
    moved = np.abs(mine_after - mine)
    moved[position] = abs(mine[position]) + abs(mine_after[position])
    return clip_own * moved.sum() + clip_other * np.abs(theirs_after - theirs).sum()


@pytest.mark.parametrize(("clip_own", "clip_other"), [(1.0, 0.3), (1.0, 1.0), (0.2, 1.0)])
def test_the_bound_of_a_moving_side_is_attained(clip_own, clip_other):
    """By searching among samples on the clip values, with ties broken by position."""
    bound = moving_side_sensitivity(1.0, clip_own, clip_other)
    n = 60
    best = 0.0
    for k, above in np.ndindex(4, 4):
        own = np.where(np.arange(n) < n * k // 3, -0.5, 0.5)
        other = np.where(np.arange(n) < n * above // 3, -0.5, 0.5)
        for position in (0, n - 1):
            for value in (-0.5, 0.5, -0.5 + 1e-9, 0.5 - 1e-9):
                replaced = own.copy()
                replaced[position] = value
                best = max(
                    best,
                    worst_change_on_a_line(own, replaced, position, other, clip_own, clip_other),
                )
    assert 0.95 * bound <= best <= bound * (1 + 1e-9)


def test_ties_keep_their_order():
    """Clipped outputs are full of ties: replacing one must not shuffle the others.

    With numpy's default sort this change is hundreds of times the bound.
    """
    n = 1000
    own = np.repeat([-0.5, 0.5], n // 2)
    other = np.random.default_rng(0).uniform(-0.5, 0.5, n)
    replaced = own.copy()
    replaced[17] = 0.1
    bound = moving_side_sensitivity(1.0, 1.0, 1.0)
    assert worst_change_on_a_line(own, replaced, 17, other, 1.0, 1.0) <= bound
