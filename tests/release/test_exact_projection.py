"""Projections in fixed point: exact, and the same for a row in any company."""

from fractions import Fraction

import numpy as np
import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st

from skdpot.ot.slices import orthogonal_directions, uniform_directions
from skdpot.release.rows import StepDirections, on_direction_grid, project_rows


def _rows(rng, n, d, radius=1.0):
    rows = rng.standard_normal((n, d))
    return radius * rows / np.linalg.norm(rows, axis=1, keepdims=True)


@given(
    d=st.integers(1, 9),
    n_projections=st.integers(1, 6),
    radius=st.sampled_from([1e-20, 0.3, 1.0, 2.0, 3.7, 1e20]),
    dtype=st.sampled_from([np.float32, np.float64]),
    seed=st.integers(0, 2**32 - 1),
)
@settings(max_examples=60, deadline=None)
def test_is_rational_arithmetic_on_the_cut_row(d, n_projections, radius, dtype, seed):
    rng = np.random.default_rng(seed)
    rows = _rows(rng, 3, d, 0.999 * radius).astype(dtype)
    theta = on_direction_grid(uniform_directions(n_projections, d, rng))
    found = project_rows(rows, theta, radius)
    for i, row in enumerate(rows.astype(np.float64) / radius):
        cut = [Fraction(int(x * 2.0**28), 2**28) for x in row]
        for j, direction in enumerate(theta):
            exact = sum(a * Fraction(float(b)) for a, b in zip(cut, direction, strict=True))
            assert Fraction(float(found[j, i])) == exact
    plain = rows.astype(np.float64) @ theta.T.astype(np.float64) / radius
    assert np.abs(found - plain.T).max() < 1e-8 * np.sqrt(d)


@pytest.mark.parametrize("d", [3, 64, 784])
def test_company_order_and_device_change_no_bit(d):
    rng = np.random.default_rng(1)
    rows = _rows(rng, 200, d, 2.5)
    theta = on_direction_grid(orthogonal_directions(20, d, rng))
    whole = project_rows(rows, theta, 2.5)
    for kept in (rng.permutation(200), np.arange(7, 150), np.array([3])):
        assert np.array_equal(project_rows(rows[kept], theta, 2.5), whole[:, kept])
    assert np.array_equal(project_rows(np.asfortranarray(rows), theta, 2.5), whole)
    shuffled = rng.permutation(d)  # another order of additions
    assert np.array_equal(project_rows(rows[:, shuffled], theta[:, shuffled], 2.5), whole)
    cut = torch.from_numpy(np.trunc(rows / 2.5 * 2**28))
    other = torch.from_numpy(theta.astype(np.float64) * 2**23) @ cut.T
    assert np.array_equal(other.numpy() / 2**51, whole)


@pytest.mark.parametrize("d", [1, 8, 784, 4096])
def test_sums_stay_where_doubles_are_integers(d):
    # The worst row is the direction itself; its sum is the largest that there is.
    theta = on_direction_grid(np.full((1, d), 1 / np.sqrt(d)))
    rows = np.vstack([theta, -theta, np.eye(1, d)]).astype(np.float64)
    assert np.abs(project_rows(rows, theta, 1.0)).max() * 2**51 < 2**52
    whole = np.rint(project_rows(rows, theta, 1.0) * 2**51)
    assert np.array_equal(whole, project_rows(rows, theta, 1.0) * 2**51)


def test_cut_rows_stay_in_the_ball():
    rng = np.random.default_rng(2)
    for radius in (1.0, np.sqrt(5.0), 0.1):
        rows = _rows(rng, 500, 5, radius)
        axes = on_direction_grid(np.eye(5))
        kept = np.linalg.norm(project_rows(rows, axes, radius), axis=0)
        assert np.all(kept <= np.linalg.norm(rows, axis=1) / radius * (1 + 1e-15))
        assert np.all(np.abs(project_rows(rows, axes, radius)) <= np.abs(rows.T) / radius)


@pytest.mark.parametrize("projections", ["orthogonal", "uniform"])
def test_step_directions_replay_and_differ_by_step(projections):
    steps = StepDirections(projections, 4, 7, 3, np.random.default_rng(5))
    first, second = list(steps), list(steps)
    assert len(steps) == len(first) == 4
    assert all(np.array_equal(a, b) for a, b in zip(first, second, strict=True))
    assert all(theta.shape == (7, 3) for theta in first)
    assert not any(np.array_equal(first[0], other) for other in first[1:])
    others = list(StepDirections(projections, 4, 7, 3, np.random.default_rng(6)))
    assert not np.array_equal(first[0], others[0])


@pytest.mark.parametrize("projections", ["orthogonal", "uniform"])
@pytest.mark.parametrize(("n_projections", "d"), [(70, 8), (31, 8), (5, 8), (1, 1), (50, 40)])
def test_largest_norm_is_one(projections, n_projections, d):
    steps = StepDirections(projections, 30, n_projections, d, np.random.default_rng(7))
    norms = [np.linalg.svd(theta.astype(float), compute_uv=False)[0] for theta in steps]
    assert max(norms) <= steps.largest_norm <= max(norms) * (1 + 1e-5)
