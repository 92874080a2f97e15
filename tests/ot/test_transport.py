"""Transport on the line against POT, SciPy and the integral that defines it."""

import numpy as np
import ot
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from skdpot.ot.slices import uniform_directions
from skdpot.ot.transport import sliced_wasserstein_distance, wasserstein_1d

number = st.floats(-100, 100, allow_nan=False).map(lambda x: round(x, 3))
# Few distinct values make ties likely; the integers below 4 do.
samples = st.one_of(
    st.lists(number, min_size=1, max_size=12), st.lists(st.integers(0, 3), min_size=1, max_size=12)
).map(lambda values: np.array(values, dtype=float))
orders = st.sampled_from([1.0, 1.5, 2.0, 3.0])
quick = settings(max_examples=60, deadline=None)


def about(value, p):
    """Approximately `value`: an error of 1e-15 in a mass appears as its p-th root."""
    return pytest.approx(value, rel=1e-6, abs=300 * 1e-15 ** (1 / p))


def quantile(x, weights, level):
    """The smallest position whose cumulative mass reaches `level`; a plain loop."""
    order = sorted(range(len(x)), key=lambda i: x[i])
    total, mass = sum(weights), 0.0
    for i in order:
        mass += weights[i] / total
        if mass >= level:
            return x[i]
    return x[order[-1]]


def by_integral(u, v, a, b, p):
    """Integrate the difference of the quantile functions, piece by piece."""
    steps = {0.0, 1.0}
    for x, w in ((u, a), (v, b)):
        masses = [w[i] for i in sorted(range(len(x)), key=lambda i: x[i])]
        steps |= {min(1.0, sum(masses[: k + 1]) / sum(masses)) for k in range(len(masses))}
    levels = sorted(steps)
    total = 0.0
    for low, high in zip(levels, levels[1:], strict=False):
        middle = (low + high) / 2
        total += (high - low) * abs(quantile(u, a, middle) - quantile(v, b, middle)) ** p
    return total ** (1 / p)


@given(u=samples, v=samples, p=orders, weighted=st.booleans(), data=st.data())
@quick
def test_agrees_with_the_defining_integral(u, v, p, weighted, data):
    weight = st.integers(0, 5)
    a, b = (
        np.array(data.draw(st.lists(weight, min_size=len(x), max_size=len(x)).filter(any)), float)
        if weighted
        else np.ones(len(x))
        for x in (u, v)
    )
    given_weights = (a, b) if weighted else ()
    assert wasserstein_1d(u, v, *given_weights, p=p) == about(by_integral(u, v, a, b, p), p)


@pytest.mark.parametrize("p", [1, 2, 3])
@pytest.mark.parametrize(("n", "m"), [(50, 50), (50, 70), (1, 30), (101, 7)])
def test_agrees_with_pot(n, m, p):
    rng = np.random.default_rng(n + m)
    u, v = rng.normal(size=n), rng.exponential(size=m)
    a, b = rng.uniform(size=n), rng.uniform(size=m)
    powered = ot.wasserstein_1d(u, v, p=p)
    assert wasserstein_1d(u, v, p=p) == pytest.approx(powered ** (1 / p), rel=1e-9)
    powered = ot.wasserstein_1d(u, v, a / a.sum(), b / b.sum(), p=p)
    assert wasserstein_1d(u, v, a, b, p=p) == pytest.approx(powered ** (1 / p), rel=1e-9)


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
    assert sliced_wasserstein_distance(X, Y, directions, p=p) == pytest.approx(reference)


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
