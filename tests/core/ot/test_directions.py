"""Directions: unit rows, orthogonal blocks, the Haar law, and what is refused."""

import math

import numpy as np
import pytest
from scipy.stats import beta, kstest

from skdpot import SlicedSketch
from skdpot.ot.directions import make_directions, orthogonal_directions
from skdpot.release.sketch_plan import recommended_n_projections

# Random tests here use fixed seeds; with a fresh seed each would fail with this probability.
FALSE_ALARM = 1e-6


@pytest.fixture
def rng():
    return np.random.default_rng(8841)


@pytest.mark.parametrize("axes_first", [False, True])
@pytest.mark.parametrize(
    "shape", [(3, 3), (12, 4), (64, 16), (5, 1), (50, 2), (16, 64), (7, 5), (1, 3), (7, 2), (1, 2)]
)
def test_blocks_are_orthonormal_and_whole_ones_a_tight_frame(shape, axes_first, rng):
    n_projections, d = shape
    rows = orthogonal_directions(n_projections, d, rng, axes_first=axes_first)
    for start in range(0, n_projections, d):
        block = rows[start : start + d]
        np.testing.assert_allclose(block @ block.T, np.eye(len(block)), atol=1e-12)
    squares = np.linalg.eigvalsh(rows.T @ rows)
    assert squares[-1] == pytest.approx(math.ceil(n_projections / d), rel=1e-9)
    if n_projections % d == 0:
        np.testing.assert_allclose(squares, n_projections / d, rtol=1e-9)


def test_the_axes_come_first(rng):
    np.testing.assert_array_equal(make_directions("axes+orthogonal", 8, 4, rng)[:4], np.eye(4))
    np.testing.assert_array_equal(make_directions("axes+orthogonal", 3, 4, rng), np.eye(4)[:3])
    later = make_directions("axes+orthogonal", 8, 4, rng)[4:]
    assert np.all(np.abs(later) < 1.0)


@pytest.mark.parametrize("position", [0, 1, 4])
def test_each_row_of_a_block_is_uniform_on_the_sphere(position, rng):
    """Squared coordinates of a uniform unit vector in d = 5 follow Beta(1/2, 2); n = 4000."""
    d, n = 5, 4000
    blocks = np.stack([orthogonal_directions(d, d, rng) for _ in range(n)])
    for coordinate in (0, d - 1):
        values = blocks[:, position, coordinate]
        assert kstest(values**2, beta(0.5, (d - 1) / 2).cdf).pvalue > FALSE_ALARM
        # Signs are fair coins: a QR decomposition alone prefers one sign.
        assert abs(np.sign(values).sum()) < 5 * math.sqrt(n)


@pytest.mark.parametrize("axes_first", [False, True])
@pytest.mark.parametrize("n_blocks", [1, 2, 3, 7, 32])
def test_pairs_in_the_plane_divide_a_right_angle(n_blocks, axes_first, rng):
    rows = orthogonal_directions(2 * n_blocks, 2, rng, axes_first=axes_first)
    angles = np.sort(np.arctan2(rows[:, 1], rows[:, 0]) % (np.pi / 2))
    # Both of a pair have one angle, up to the ends of the range.
    gaps = np.exp(4j * np.diff(np.append(angles, angles[0])))
    step = np.exp(2j * np.pi / n_blocks)
    assert np.all(np.minimum(abs(gaps - 1), abs(gaps - step)) < 1e-9)
    assert np.sum(abs(gaps - 1) < 1e-9) >= n_blocks
    if axes_first:
        np.testing.assert_array_equal(rows[:2], np.eye(2))


@pytest.mark.parametrize("n_blocks", [8, 13, 64])
def test_neighbouring_pairs_in_the_plane_come_from_everywhere(n_blocks):
    """Solvers take some neighbouring blocks a step: no gap is larger than four equal shares."""
    rows = orthogonal_directions(2 * n_blocks, 2, np.random.default_rng(0))
    angles = np.arctan2(rows[::2, 1], rows[::2, 0]) % (np.pi / 2)
    for size in (4, 8, n_blocks):
        for start in range(0, n_blocks - size + 1, size):
            some = np.sort(angles[start : start + size])
            gaps = np.diff(np.append(some, some[0] + np.pi / 2))
            assert gaps.max() < 4 * np.pi / 2 / size


def test_each_pair_in_the_plane_is_haar_distributed(rng):
    """Angles are uniform on the circle, reflections fair coins; n = 4000, any pair of five."""
    pairs = np.stack([orthogonal_directions(10, 2, rng) for _ in range(4000)])
    for position in range(5):
        first, second = pairs[:, 2 * position], pairs[:, 2 * position + 1]
        angles = np.arctan2(first[:, 1], first[:, 0]) / (2 * np.pi) + 0.5
        assert kstest(angles, "uniform").pvalue > FALSE_ALARM
        reflections = np.sign(first[:, 0] * second[:, 1] - first[:, 1] * second[:, 0])
        assert abs(reflections.sum()) < 5 * math.sqrt(4000)
        # Neither does one tell anything about the other.
        assert abs(np.sum(reflections * np.sign(first[:, 0]))) < 5 * math.sqrt(4000)


def test_independent_directions_are_uniform(rng):
    rows = make_directions("uniform", 20_000, 3, rng)
    np.testing.assert_allclose(np.linalg.norm(rows, axis=1), 1.0, rtol=1e-12)
    # In three dimensions each coordinate is uniform on [-1, 1] (Archimedes).
    for column in rows.T:
        assert kstest((column + 1) / 2, "uniform").pvalue > FALSE_ALARM


@pytest.mark.parametrize("scale", [1e200, 1.0, 1e-200, 5e-324])
def test_an_array_of_directions_is_scaled_to_unit_length(scale, rng):
    rows = make_directions(np.array([[1.0, 1.0], [1.0, 0.0]]) * scale, 99, 2, rng)
    np.testing.assert_allclose(rows, [[math.sqrt(0.5)] * 2, [1, 0]], rtol=1e-12)


@pytest.mark.parametrize(
    ("array", "text"),
    [
        (np.ones((4, 2)), r"shape \(4, 2\)"),
        (np.ones(3), r"shape \(3,\)"),
        (np.empty((0, 3)), r"shape \(0, 3\)"),
        (np.ones((2, 2, 3)), r"shape \(2, 2, 3\)"),
        ([[1.0, 0, 0], [0, 0, 0]], "not zero"),
        ([[1.0, np.nan, 0]], "finite"),
        ([[1.0, np.inf, 0]], "finite"),
    ],
)
def test_bad_arrays_of_directions_are_refused(array, text, rng):
    with pytest.raises(ValueError, match=text):
        make_directions(array, 4, 3, rng)


def test_one_feature_has_one_direction():
    """More would be copies, which cost noise and time and tell nothing new."""
    assert [recommended_n_projections(n, 1, 1.0) for n in (10, 10**7)] == [1, 1]
    sketch = SlicedSketch(epsilon=np.inf, bounds=(-1, 1)).fit(np.linspace(-1, 1, 500)[:, None])
    assert sketch.directions_.shape == (1, 1)
