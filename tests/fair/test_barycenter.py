"""Predictions moved to the barycentre: known optima, levels, frontiers, and their noise."""

import math

import numpy as np
import pytest

from skdpot import FairPrivateRegressor, PrivacyBudget
from skdpot._utils.streams import SecretStream
from skdpot.datasets import make_biased_regression
from skdpot.mechanisms import RankedOutputs, SketchedOutputs
from skdpot.metrics import wasserstein_parity
from skdpot.release.gate import record_releases
from skdpot.release.moments import plan_sums, release_sums

pytestmark = pytest.mark.filterwarnings(
    "ignore:.*makes the privacy noise reproducible:skdpot.exceptions.PrivacyWarning"
)
N = 8000
BOUNDS = (-3, 3)


def hinted(n, seed, gap=0.8, hint=0.8):
    """The target is z plus a multiple of v, which equals the group with this probability.

    A rule that may not use the group is fair only if it is independent of v, so that the best one
    is z plus a constant: it costs ``(gap / 2)**2``. One that may use the group moves the groups'
    two mixtures of normal distributions.
    """
    rng = np.random.default_rng(seed)
    group = rng.integers(0, 2, n)
    v = np.where(rng.random(n) < hint, group, 1 - group) - 0.5
    z = 0.5 * rng.standard_normal(n)
    y = z + gap * v + 0.2 * rng.standard_normal(n)
    return np.c_[z, v], y, group


def made(**options):
    return FairPrivateRegressor(**({"random_state": 0, "target_bounds": BOUNDS} | options))


def distance(fitted, X, group):
    given = {"sensitive_features": group} if fitted.group_aware else {}
    return wasserstein_parity(fitted.predict(X, **given), sensitive_features=group)


@pytest.mark.slow
@pytest.mark.parametrize("epsilon", [math.inf, 1.0])
def test_without_the_group_the_best_fair_rule_is_found(epsilon):
    (X, y, group), (X_test, y_test, of_test) = hinted(N, 0), hinted(N, 1)
    fitted = made(epsilon=epsilon).fit(X, y, sensitive_features=group)
    risk = np.mean((fitted.predict(X_test) - y_test) ** 2)
    plain = np.mean((fitted.with_level(0).predict(X_test) - y_test) ** 2)
    assert plain < 0.2**2 + 0.01
    assert risk < 0.2**2 + 0.4**2 + 0.02
    # Of nothing else than z: the two values of v are treated alike.
    gaps = wasserstein_parity(fitted.predict(X_test), sensitive_features=X_test[:, 1] > 0)
    assert gaps < (0.06 if math.isinf(epsilon) else 0.12)
    assert distance(fitted, X_test, of_test) < (0.03 if math.isinf(epsilon) else 0.06)


@pytest.mark.slow
def test_with_the_group_predictions_are_on_the_geodesic():
    """The optimal map of each group, known in closed form for two shifted groups."""
    X, y, group = hinted(N, 2, hint=1.0)
    fitted = made(epsilon=math.inf, group_aware=True).fit(X, y, sensitive_features=group)
    given = {"sensitive_features": group}
    best = X[:, 0] + 0.8 * (group.mean() - 0.5)
    assert np.mean((fitted.predict(X, **given) - best) ** 2) < 2e-3
    ends = [fitted.with_level(level).predict(X, **given) for level in (0.0, 1.0)]
    for level in (0.25, 0.7):
        moved = fitted.with_level(level)
        between = (1 - level) * ends[0] + level * ends[1]
        np.testing.assert_allclose(moved.predict(X, **given), between, atol=1e-6)
        assert distance(moved, X, group) == pytest.approx(0.8 * (1 - level), abs=0.03)


def test_targets_that_fill_little_of_their_bounds_are_learned():
    X, y, group = hinted(N, 4)
    fitted = made(target_bounds=(-30, 30), level=0.0).fit(X, y, sensitive_features=group)
    assert fitted.score(X, y) > 0.7


@pytest.mark.slow
def test_several_targets_and_groups_become_alike():
    X, Y, group = make_biased_regression(N, random_state=3)
    group = group + (np.arange(N) % 3 == 0)
    fitted = made(epsilon=3.0, target_bounds=(0, 1)).fit(X, Y, sensitive_features=group)
    before = distance(fitted.with_level(0), X, group)
    assert before > 0.05
    assert distance(fitted, X, group) < 0.35 * before
    assert fitted.score(X, Y) > 0.5
    assert fitted.with_level(0).score(X, Y) > fitted.score(X, Y)


@pytest.mark.slow
def test_the_frontier_covers_what_is_measured():
    """20 runs, three levels, two standard errors and what a test sample adds: 90 % or more."""
    X_test, y_test, of_test = hinted(4 * N, 1)
    rows = [0, 10, 20]
    hits = []
    for seed in range(20):
        X, y, group = hinted(4000, 10 + seed)
        fitted = made(random_state=seed).fit(X, y, sensitive_features=group)
        found = fitted.frontier_.iloc[rows]
        for told in found.itertuples():
            moved = fitted.with_level(float(told.level))
            risk = np.mean((moved.predict(X_test) - y_test) ** 2)
            apart = distance(moved, X_test, of_test)
            hits.append(
                (
                    abs(risk - told.mean_squared_error) < 2 * told.mean_squared_error_se + 0.005,
                    abs(apart - told.wasserstein) < 2 * told.wasserstein_se + 0.01,
                )
            )
    assert np.mean(hits, axis=0).min() >= 0.9


@pytest.mark.slow
@pytest.mark.parametrize("kind", ["barycenter", SketchedOutputs, RankedOutputs])
@pytest.mark.parametrize(("epsilon", "alpha"), [(1.0, 0.9), (math.inf, 0.95)])
def test_no_mechanism_is_worse_than_the_mean(kind, epsilon, alpha):
    """Targets of which the mean is far from the middle of their bounds."""
    X, Y, group = make_biased_regression(6000, random_state=4)
    mechanism = kind if isinstance(kind, str) else kind(alpha=alpha)
    options = {"epsilon": epsilon, "mechanism": mechanism, "target_bounds": (0, 100)}
    fitted = made(**options).fit(X, 100 * Y**3, sensitive_features=group)
    assert fitted.score(X, 100 * Y**3) > -0.02
    assert np.abs(fitted.predict(X).mean(axis=0) - 25).max() < 5


def test_a_copy_of_another_level_costs_nothing():
    X, y, group = hinted(600, 5)
    budget = PrivacyBudget(2.0)
    fitted = made(budget=budget, level=0.3).fit(X, y, sensitive_features=group)
    copy = fitted.with_level(0.9)
    assert (fitted.level, copy.level) == (0.3, 0.9)
    assert len(budget.history()) == 1
    assert copy.privacy_spent_ is fitted.privacy_spent_
    assert list(fitted.frontier_["level"]) == list(np.linspace(0, 1, 21))


@pytest.mark.parametrize(
    ("options", "call", "message"),
    [
        ({}, lambda one: one.with_level(1.2), "level"),
        ({"mechanism": "sketch"}, lambda one: one.with_level(0.5), 'mechanism="barycenter"'),
        ({"group_aware": True}, lambda one: one.predict(np.zeros((2, 2))), "Pass predict"),
        (
            {"group_aware": True},
            lambda one: one.predict(np.zeros((2, 2)), sensitive_features=[0, 7]),
            "not among the 2 declared",
        ),
    ],
)
def test_what_is_refused_after_a_fit(options, call, message):
    X, y, group = hinted(300, 6)
    fitted = made(epsilon=math.inf, **options).fit(X, y, sensitive_features=group)
    with pytest.raises(ValueError, match=message):
        call(fitted)


def test_the_group_is_for_the_barycenter_alone():
    X, y, group = hinted(300, 7)
    budget = PrivacyBudget(2.0)
    with pytest.raises(ValueError, match="group_aware=True is not for RankedOutputs"):
        made(group_aware=True, mechanism="ranks", budget=budget).fit(X, y, sensitive_features=group)
    assert len(budget.history()) == 0


# --- noisy sums: what one record moves ---------------------------------------------------------

EXTREME = [0.0, -0.0, 1e-30, 0.7, -1.0, 3.0, 1e308, -1e308, math.inf, -math.inf, math.nan]


def sums_of(vectors, codes, n_codes, noise):
    return release_sums(vectors, codes, n_codes, noise, SecretStream(0), lambda *_: vectors)


@pytest.mark.parametrize("radius", [0.3, 1.0, math.sqrt(3.25)])
@pytest.mark.parametrize("n_codes", [1, 3])
def test_a_record_moves_noisy_sums_by_at_most_twice_the_radius(radius, n_codes):
    """The noise of one seed cancels, so that the differences are exact; the bound is attained."""
    rng, noise = np.random.default_rng(8), plan_sums(0.5, radius, "test")
    codes, largest = np.arange(40) % n_codes, 0.0
    for trial in range(60):
        vectors = 10.0 ** rng.uniform(-3, 3) * rng.standard_normal((40, 4))
        other = vectors.copy()
        if trial % 3 == 0:
            other[7] = -vectors[7]
        elif trial % 3 == 1:
            vectors[7], other[7] = rng.choice(EXTREME, (2, 4))
        else:
            other[7] = rng.standard_normal(4)
        one, two = (sums_of(rows, codes, n_codes, noise) for rows in (vectors, other))
        largest = max(largest, float(np.linalg.norm(one - two)))
        assert np.all(np.isfinite(one))
    sensitivity = noise.event.sensitivity
    assert 0.999 * sensitivity < largest <= sensitivity == 2 * radius


def test_rounding_takes_no_vector_beyond_its_radius():
    """Of many entries, each most of a unit beyond whole ones, rounding up would add up."""
    unit, radius, noise = 2.0**-20, 1.0, plan_sums(0.5, 1.0, "test")
    vector = np.full((1, 10_000), radius / 100.0)
    units = math.floor(vector[0, 0] / unit)
    assert vector[0, 0] > (units + 0.7) * unit
    one, two = (sums_of(rows, np.zeros(1, int), 1, noise) for rows in (vector, -vector))
    assert np.linalg.norm(one - two) <= noise.event.sensitivity
    np.testing.assert_array_equal(one - two, 2 * units * unit)


def test_vectors_of_a_fit_keep_to_their_radius():
    """Every record of a fit, through the linear map that audits use; far rows and targets too."""
    X, y, group = hinted(400, 9)
    X[:5], y[:5] = 1e6, [1e9, -1e9, 3, -3, 0]
    for options in ({}, {"group_aware": True}):
        with record_releases() as releases:
            fitted = made(epsilon=5.0, **options).fit(X, y, sensitive_features=group)
        sums = [release for release in releases if release.kind == "sums"]
        assert len(sums) == 4 + (not options)
        for release in sums:
            seen = fitted._seen_by(release, X, y)
            (part,) = release.parts(seen, np.ones(len(X)))
            norms = np.linalg.norm(part.rows.array, axis=1)
            assert norms.max() <= release.sensitivity / 2
            exact = release.value.ravel() - part.rows.sum(np.ones(len(X)))
            assert np.abs(exact).max() < 6 * release.sigma
