"""TriangleWad and FedWad: the bounds that hold, the cases of equality, and false claims."""

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from scipy.sparse import csr_array
from scipy.spatial.distance import cdist

from skdpot.distance.fedwad import fedwad
from skdpot.distance.party import Party
from skdpot.distance.triangle import rescaled
from skdpot.ot.measures import DiscreteMeasure, gaussian_reference
from skdpot.ot.plans import interpolate, optimal_plan, plan_from_costs

KINDS = pytest.mark.parametrize("kind", ["barycentric", "exact"])


def estimate(mu, nu, gamma, t, kind="barycentric"):
    etas = [interpolate(optimal_plan(m, gamma), t, kind=kind) for m in (mu, nu)]
    return rescaled(optimal_plan(*etas).squared_distance, t)


def linearised_squared_distance(mu_plan, nu_plan):
    """Cost of moving μ to ν through γ: what the estimate becomes when only γ pairs rows."""
    mu_means, mu_spread = arrivals(mu_plan)
    nu_means, nu_spread = arrivals(nu_plan)
    apart = np.sum((mu_means - nu_means) ** 2, axis=1)
    return float(mu_plan.target.weights @ apart) + mu_spread + nu_spread


def arrivals(plan):
    """Return the mean of what arrives at each target, and the spread around these means."""
    shape = (plan.target.n_points, plan.source.n_points)
    received = csr_array((plan.masses, (plan.columns, plan.rows)), shape=shape)
    totals = np.bincount(plan.columns, plan.masses, minlength=shape[0])
    means = (received @ plan.source.points) / np.where(totals > 0, totals, 1.0)[:, None]
    gaps = plan.source.points[plan.rows] - means[plan.columns]
    return means, float(plan.masses @ np.sum(gaps**2, axis=1))


@st.composite
def triples(draw, balanced=False, least=1):
    """Two measures and a reference of any sizes, weights, positions and spreads."""
    rng = np.random.default_rng(draw(st.integers(0, 2**32)))
    sizes = [draw(st.integers(least, 9)) for _ in range(3)]
    d, decimals = draw(st.integers(1, 4)), draw(st.sampled_from([0, 15]))
    found = []
    for size in sizes:
        points = rng.normal(size=(sizes[0] if balanced else size, d)) * rng.choice([0.1, 1, 5])
        points += rng.choice([0, 3]) * rng.normal(size=d)
        masses = None if balanced or draw(st.booleans()) else rng.random(size)
        found.append(DiscreteMeasure(points.round(decimals), masses))
    return tuple(found)


def spread_within(plan):
    """Root mean square distance between targets and the mean that stands for them."""
    gaps = plan.target.points[plan.columns] - plan.barycenters()[plan.rows]
    return np.sqrt(plan.masses @ np.sum(gaps**2, axis=1))


@given(triple=triples(), t=st.floats(0, 0.95))
@settings(max_examples=80, deadline=None)
def test_estimates_lie_between_the_distance_and_the_linearised_one(triple, t):
    mu, nu, gamma = triple
    plans = [optimal_plan(m, gamma) for m in (mu, nu)]
    below = optimal_plan(mu, nu).distance
    above = np.sqrt(linearised_squared_distance(*plans))
    slack = 1e-7 / (1 - t)  # the root of a rounded square, divided
    exact = np.sqrt(estimate(mu, nu, gamma, t, "exact"))
    assert below - slack <= exact <= above + slack
    barycentric = np.sqrt(estimate(mu, nu, gamma, t))
    wider = above + t / (1 - t) * sum(spread_within(plan) for plan in plans)
    assert below - slack <= barycentric <= wider + slack


def clouds(n, m, d=6, seed=0, weighted=False):
    rng = np.random.default_rng(seed)
    masses = (rng.random(n), rng.random(m)) if weighted else (None, None)
    first, second = rng.normal(size=(n, d)), 1 + 2 * rng.normal(size=(m, d))
    return DiscreteMeasure(first, masses[0]), DiscreteMeasure(second, masses[1])


@KINDS
@pytest.mark.parametrize("weighted", [False, True])
@pytest.mark.parametrize(("scale", "n_support"), [(0.0, 12), (3.0, 1)])
@pytest.mark.parametrize(("n", "m"), [(20, 20), (20, 13)])
def test_a_reference_in_one_place_is_exact(n, m, scale, n_support, weighted, kind):
    """Cases (1) and (2) of Corollary 3.2."""
    mu, nu = clouds(n, m, weighted=weighted)
    rng = np.random.default_rng(1)
    gamma = gaussian_reference(n_support, 6, mean=2.0, scale=scale, rng=rng)
    expected = optimal_plan(mu, nu).squared_distance
    for t in (0.1, 0.5, 0.9):
        assert estimate(mu, nu, gamma, t, kind) == pytest.approx(expected, rel=1e-9)


@KINDS
def test_equal_sizes_alone_are_not_exact(kind):
    """Against case (4) of Corollary 3.2: 25 to 32 % too much in four draws."""
    rng = np.random.default_rng(6)
    mu, nu = (DiscreteMeasure(rng.normal(size=(100, 10))) for _ in range(2))
    gamma = gaussian_reference(100, 10, scale=5.0, rng=rng)
    ratio = np.sqrt(estimate(mu, nu, gamma, 0.5, kind) / optimal_plan(mu, nu).squared_distance)
    assert ratio > 1.2


def test_the_estimate_of_a_union_may_be_too_small():
    """By hand: sources -2 and 2, buyer -1 and 1, γ = -1 and 1, exact measures at t = 1/3.

    The sources split: s(±2) ± t = ±5/3, ±1, with s = 2/3. The buyer's points are
    ±(2/3 + 1/3) = ±1. So half of the mass moves by 2/3 and half stays: W² = 2/9, and divided
    by s² the estimate is 1/2, where the true W² is 1.
    """
    gamma, buyer = DiscreteMeasure([[-1.0], [1.0]]), DiscreteMeasure([[-1.0], [1.0]])
    eta = interpolate(optimal_plan(buyer, gamma), 1 / 3, kind="exact")
    parts = [
        interpolate(optimal_plan(DiscreteMeasure([[x]]), gamma), 1 / 3, kind="exact").points
        for x in (-2.0, 2.0)
    ]
    stacked = np.vstack([cdist(part, eta.points, "sqeuclidean") for part in parts])
    found = rescaled(plan_from_costs(stacked).squared_distance, 1 / 3)
    assert found == pytest.approx(0.5, rel=1e-9)
    union = DiscreteMeasure([[-2.0], [2.0]])
    assert optimal_plan(union, buyer).squared_distance == pytest.approx(1.0, rel=1e-12)


@pytest.mark.parametrize("t", [1.0, -0.1, np.nan])
def test_fractions_that_leave_nothing_to_compare_are_refused(t):
    with pytest.raises(ValueError, match=r"in \[0, 1\)"):
        rescaled(1.0, t)


# FedWad


def follow(mu, nu, reference, n_rounds, rng=None, t="drawn", interpolation="barycentric"):
    """Let two parties play FedWad."""
    parties = [
        Party(name, measure.points, masses=measure.masses, allows="fedwad")
        for name, measure in (("mu", mu), ("nu", nu))
    ]
    options = {"n_rounds": n_rounds, "reference": reference, "rng": rng, "t": t}
    return fedwad(*parties, interpolation=interpolation, **options).details


def check_bounds(triple, n_rounds, interpolation):
    rng = np.random.default_rng(0)
    path = follow(*triple, n_rounds, rng, interpolation=interpolation)
    mu, nu, _ = triple
    assert len(path.distances) == n_rounds + 1
    assert path.distances.min() >= optimal_plan(mu, nu).distance - 1e-7
    assert path.distance == path.distances.min()
    return np.diff(path.distances).max()


@given(triple=triples(least=2))
@settings(max_examples=30, deadline=None)
def test_rounds_bound_the_distance_from_above_and_exact_ones_never_grow(triple):
    assert check_bounds(triple, 4, "exact") <= 1e-7
    check_bounds(triple, 5, "barycentric")


def gaps(n, seed, t):
    """Relative gap by round, for two clouds in the dimension where it matters."""
    rng = np.random.default_rng(seed)
    mixing = rng.normal(size=(8, 60))
    mu, nu = (DiscreteMeasure(np.tanh(rng.normal(size=(n, 8)) @ mixing)) for _ in range(2))
    reference = gaussian_reference(n, 60, rng=rng)
    path = follow(mu, nu, reference, 30, rng, t)
    return path.distances / optimal_plan(mu, nu).distance - 1
