"""Exact and sliced distances against closed forms, linear programs, SciPy and POT."""

import math
import warnings

import numpy as np
import ot
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from hypothesis.extra.numpy import arrays
from scipy.optimize import linprog
from scipy.spatial.distance import cdist

from skdpot.metrics import sliced_wasserstein_distance, wasserstein_distance
from skdpot.ot import slices, transport

quick = settings(max_examples=50, deadline=None)
orders = st.sampled_from([1.0, 1.5, 2.0, 3.0])
BOTH = pytest.mark.parametrize("distance", [wasserstein_distance, sliced_wasserstein_distance])


@st.composite
def samples(draw, n_samples=2):
    """Samples in the same space; integer coordinates make ties and duplicates likely."""
    n_features = draw(st.integers(1, 3))
    number = st.floats(-10, 10).map(lambda x: round(x, 2)) | st.integers(0, 2).map(float)
    sizes = draw(st.lists(st.integers(1, 5), min_size=n_samples, max_size=n_samples))
    return tuple(draw(arrays(float, (size, n_features), elements=number)) for size in sizes)


def about(value, p):
    """Approximately `value`: an error of 1e-15 in a mass appears as its p-th root."""
    return pytest.approx(value, rel=1e-6, abs=300 * 1e-15 ** (1 / p))


def by_linear_program(X, Y, a, b, p):
    """The definition, word for word, as a linear program."""
    n, m = len(X), len(Y)
    rows = np.kron(np.eye(n), np.ones(m))
    columns = np.kron(np.ones(n), np.eye(m))
    cost = cdist(X, Y).ravel() ** p
    solution = linprog(cost, A_eq=np.vstack([rows, columns])[:-1], b_eq=np.concatenate([a, b])[:-1])
    return max(solution.fun, 0.0) ** (1 / p)


@given(pair=samples(), p=orders, data=st.data())
@quick
def test_exact_equals_the_linear_program(pair, p, data):
    weights = [
        np.array(data.draw(st.lists(st.integers(0, 4), min_size=k, max_size=k).filter(any)), float)
        for k in map(len, pair)
    ]
    reference = by_linear_program(*pair, *(w / w.sum() for w in weights), p)
    found = wasserstein_distance(*pair, p=p, X_weights=weights[0], Y_weights=weights[1])
    assert found == about(reference, p)


@pytest.mark.parametrize("p", [1, 2, 3])
def test_sliced_equals_pot(p):
    rng = np.random.default_rng(2)
    X, Y = rng.normal(size=(50, 4)), rng.exponential(size=(70, 4))
    a, b = rng.random(50), rng.random(70)
    directions = slices.orthogonal_directions(
        64, 4, np.random.default_rng(np.random.RandomState(5).randint(0, 2**31, size=4))
    )
    found = sliced_wasserstein_distance(X, Y, p=p, n_projections=62, random_state=5)
    assert found == pytest.approx(transport.sliced_wasserstein_distance(X, Y, directions, p=p))
    found = sliced_wasserstein_distance(
        X, Y, p=p, n_projections=64, random_state=5, X_weights=a, Y_weights=b
    )
    reference = ot.sliced_wasserstein_distance(
        X, Y, a / a.sum(), b / b.sum(), p=p, projections=directions.T
    )
    assert found == pytest.approx(reference)


@BOTH
@given(triple=samples(n_samples=3), p=orders)
@quick
def test_it_is_a_distance(distance, triple, p):
    X, Y, Z = triple
    assert distance(X, Y, p=p) == about(distance(Y, X, p=p), p)
    assert distance(X, X[::-1], p=p) == about(0.0, p)
    assert distance(X, Z, p=p) <= distance(X, Y, p=p) + distance(Y, Z, p=p) + 1e-4


@BOTH
@pytest.mark.parametrize("p", [1, 2, 3])
@pytest.mark.parametrize("unit", [1e-50, 1e-9, 1.0, 1e50])
def test_translation_and_unit(distance, p, unit):
    """W_p to a translate is the length of the step; SW_2 divides it by √d, exactly."""
    rng = np.random.default_rng(4)
    X, step = rng.normal(size=(40, 5)), np.array([1.0, -2.0, 0.0, 3.0, 0.5])
    found = distance(unit * X, unit * (X + step), p=p)
    if p == 2 or distance is wasserstein_distance:
        scale = 1 if distance is wasserstein_distance else math.sqrt(5)
        assert found == pytest.approx(unit * np.linalg.norm(step) / scale, rel=1e-9)
    assert found == pytest.approx(unit * distance(X, X + step, p=p), rel=1e-9)


@BOTH
def test_weights_count_rows(distance):
    rng = np.random.default_rng(5)
    X, Y = rng.normal(size=(6, 2)), rng.normal(size=(4, 2))
    counts = np.array([1, 3, 0, 2, 1, 5])
    repeated = distance(np.repeat(X, counts, axis=0), Y)
    assert distance(X, Y, X_weights=counts) == pytest.approx(repeated)
    assert distance(Y, X, Y_weights=counts) == pytest.approx(repeated)


def test_sliced_directions():
    rng = np.random.default_rng(6)
    X, Y = rng.normal(size=(30, 3)), rng.exponential(size=(30, 3))
    options = [(6, 0), (6, 0), (4, 0), (6, 1), (6, None), (6, None)]  # 4 are whole blocks: 6
    first, same, whole, *others = (
        sliced_wasserstein_distance(X, Y, n_projections=n, random_state=seed) for n, seed in options
    )
    assert first == same == whole
    assert len({first, *others}) == 4


@BOTH
@pytest.mark.parametrize(
    ("Y", "options", "text"),
    [
        (np.zeros((3, 2)), {"p": 0.5}, "must be finite and at least 1"),
        (np.zeros((3, 2)), {"p": np.nan}, "must be finite and at least 1"),
        (np.zeros((3, 3)), {}, "X has 2 features and Y has 3"),
        ([[0.0, np.nan]], {}, "Y must hold finite numbers, without NaN"),
        (np.zeros((3, 2)), {"X_weights": [1, 2]}, r"X_weights has shape \(2,\)"),
        (np.zeros((3, 2)), {"Y_weights": [1, 2, -1]}, "Y_weights must be finite, non-negative"),
    ],
)
def test_what_is_refused(distance, Y, options, text):
    with pytest.raises(ValueError, match=text):
        distance(np.zeros((3, 2)), Y, **options)
    with pytest.raises(ValueError, match="n_projections == 0, must be >= 1"):
        sliced_wasserstein_distance(np.eye(2), np.eye(2), n_projections=0)


def test_a_solver_that_gives_up_is_an_error(monkeypatch):
    monkeypatch.setattr("skdpot.ot.transport._MAX_PIVOTS", 1)
    rng = np.random.default_rng(7)
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", UserWarning)  # POT's own
        with pytest.raises(RuntimeError, match="stopped early"):
            wasserstein_distance(rng.normal(size=(50, 2)), rng.normal(size=(50, 2)))
