"""Transport on the line against POT."""

import numpy as np
import ot
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from skdpot.ot.directions import uniform_directions
from skdpot.ot.transport import sliced_distance, wasserstein_1d

number = st.floats(-100, 100, allow_nan=False).map(lambda x: round(x, 3))
# Few distinct values make ties likely; the integers below 4 do.
samples = st.one_of(
    st.lists(number, min_size=1, max_size=40), st.lists(st.integers(0, 3), min_size=1, max_size=40)
).map(lambda values: np.array(values, dtype=float))
orders = st.sampled_from([1.0, 1.5, 2.0, 3.0])


def about(value, p):
    """Approximately `value`: an error of 1e-15 in a mass appears as its p-th root."""
    return pytest.approx(value, rel=1e-6, abs=300 * 1e-15 ** (1 / p))


@given(u=samples, v=samples, p=orders, weighted=st.booleans(), data=st.data())
@settings(max_examples=150, deadline=None)
def test_agrees_with_pot(u, v, p, weighted, data):
    weight, given_weights, shares = st.integers(0, 5), (), ()
    if weighted:
        drawn = (st.lists(weight, min_size=len(x), max_size=len(x)).filter(any) for x in (u, v))
        given_weights = tuple(np.array(data.draw(one), float) for one in drawn)
        shares = tuple(one / one.sum() for one in given_weights)
    expected = float(ot.wasserstein_1d(u, v, *shares, p=p)) ** (1 / p)
    assert wasserstein_1d(u, v, *given_weights, p=p) == about(expected, p)


def test_slices_are_solved_row_by_row():
    rng = np.random.default_rng(1)
    u, v = rng.normal(size=(5, 20)), rng.normal(size=(5, 33))
    weights = rng.uniform(size=20)
    rows = wasserstein_1d(u, v, weights)
    assert rows.shape == (5,)
    for row, x, y in zip(rows, u, v, strict=True):
        assert row == pytest.approx(wasserstein_1d(x, y, weights))


@pytest.mark.parametrize("p", [1, 2])
def test_sliced_distance_agrees_with_pot(p):
    rng = np.random.default_rng(2)
    X, Y = rng.normal(size=(60, 4)), rng.normal(1, 2, size=(60, 4))
    directions = uniform_directions(30, 4, rng)
    reference = ot.sliced_wasserstein_distance(X, Y, projections=directions.T, p=p)
    assert sliced_distance(X, Y, directions, p=p) == pytest.approx(reference)


@pytest.mark.parametrize(
    ("u", "v", "options", "text"),
    [
        ([1.0], [2.0], {"p": 0.5}, "at least 1"),
        ([1.0], [2.0], {"p": np.nan}, "finite and at least 1"),
        ([1.0], [2.0], {"p": np.inf}, "finite and at least 1"),
        ([], [2.0], {}, "empty"),
        ([[1.0]], [2.0], {}, "must have shape"),
        ([[1.0], [2.0]], [[1.0]], {}, "number of slices"),
        (1.0, 2.0, {}, "must have shape"),
        ([1.0, 2.0], [1.0], {"u_weights": [1.0]}, r"u_weights has shape \(1,\)"),
        ([1.0, 2.0], [1.0], {"u_weights": [1.0, -1.0]}, "non-negative"),
        ([1.0, 2.0], [1.0], {"u_weights": [0.0, 0.0]}, "not all zero"),
        ([1.0], [1.0, 2.0], {"v_weights": [1.0, np.nan]}, "v_weights must be finite"),
        ([1.0], [1.0, 2.0], {"v_weights": [1.0, np.inf]}, "v_weights must be finite"),
    ],
)
def test_bad_input_is_refused(u, v, options, text):
    with pytest.raises(ValueError, match=text):
        wasserstein_1d(u, v, **options)
