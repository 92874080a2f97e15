"""Moments of classes: how far one record moves them, their noise, and what is read from them."""

import warnings

import numpy as np
import pytest

from skdpot import DPSlicedFlowSampler
from skdpot.exceptions import PrivacyWarning
from skdpot.mechanisms import Moments
from skdpot.ot.flow_problems import GaussianFlowProblem
from skdpot.privacy.events import NonPrivateEvent
from skdpot.privacy.gdp import gdp_mu
from skdpot.release import moments
from skdpot.release.bounds import DataBounds
from skdpot.release.gate import record_releases

RNG = np.random.default_rng(0)
CLASSES = np.arange(3)


def fitted(X, y=None, epsilon=np.inf, **options):
    classes = None if y is None else CLASSES
    mechanism = Moments(classes)
    options = {"norm_bound": 1.0, "conditional": y is not None} | options
    return DPSlicedFlowSampler(mechanism, epsilon=epsilon, **options).fit(X, y)


def value(X, y=None):
    return fitted(X, y).moments_.release.value


def on_sphere(n, d):
    rows = RNG.normal(size=(n, d))
    return rows / np.linalg.norm(rows, axis=1, keepdims=True)


AXIS, OTHER = np.eye(4)[0], np.eye(4)[1]
TILTED = np.array([-0.25, np.sqrt(1 - 0.0625), 0, 0])  # with AXIS: orthogonal with the last entry

NEIGHBOURS = {
    "across the ball": (AXIS, 0, TILTED, 0),
    "opposite": (AXIS, 0, -AXIS, 0),
    "orthogonal": (AXIS, 0, OTHER, 0),
    "another class": (AXIS, 0, AXIS, 2),
    "another class and row": (AXIS, 0, -OTHER, 1),
    "from the centre": (np.zeros(4), 0, AXIS, 0),
    "far away": (30 * AXIS, 0, -30 * OTHER, 0),
} | {
    f"random {k}": (length * on_sphere(1, 4)[0], 1, length * on_sphere(1, 4)[0], label)
    for k, (label, length) in enumerate([(1, 1), (0, 1), (2, 1), (1, 3), (0, 3), (2, 0.5)])
}


@pytest.mark.filterwarnings("ignore::skdpot.exceptions.NotPrivateWarning")
@pytest.mark.parametrize(
    ("row", "label", "new", "new_label"),
    NEIGHBOURS.values(),
    ids=NEIGHBOURS,
)
def test_no_record_moves_the_moments_by_more_than_the_sensitivity(row, label, new, new_label):
    X, y = on_sphere(30, 4), RNG.integers(0, 3, 30)
    X[0], y[0] = row, label
    before = value(X, y)
    X[0], y[0] = new, new_label
    moved = np.linalg.norm(value(X, y) - before)
    stated = fitted(X, y).moments_.release.sensitivity
    assert moved <= stated
    if new is TILTED:  # cutting takes a little
        assert moved > 0.995 * stated


@pytest.mark.filterwarnings("ignore::skdpot.exceptions.NotPrivateWarning")
def test_a_changed_class_attains_the_sensitivity():
    X = np.tile(0.5 * np.ones(4), (6, 1))
    y = np.array([0, 1, 2, 0, 1, 2])
    before, y[0] = value(X, y), 1
    changed = value(X, y) - before
    exact = 70**2 * (4 * 0.25**2 + 0.25**2) + 99**2 * (6 * 0.25**2 + 4 * 0.25**2)
    assert np.linalg.norm(changed) == pytest.approx(np.sqrt(2 * exact), rel=2e-3)


@pytest.mark.filterwarnings("ignore::skdpot.exceptions.PrivacyWarning")
@pytest.mark.filterwarnings("ignore::skdpot.exceptions.NotPrivateWarning")
def test_every_entry_has_the_noise_that_is_charged():
    X, y = on_sphere(60, 12), RNG.integers(0, 3, 60)
    exact = value(X, y)
    noise = [fitted(X, y, epsilon=1.0, random_state=seed).moments_.release for seed in range(40)]
    z = np.array([(one.value - exact) / one.sigma for one in noise])
    assert noise[0].sigma == pytest.approx(noise[0].sensitivity / noise[0].event.mu, rel=1e-3)
    assert z.std() == pytest.approx(1, abs=0.03)
    assert np.abs(z.mean(axis=0)).max() < 5 / np.sqrt(40)
    assert z.std(axis=0).min() > 0.5


@pytest.mark.filterwarnings("ignore::skdpot.exceptions.NotPrivateWarning")
def test_without_noise_sizes_means_and_covariances_are_those_of_the_rows():
    y = np.repeat(CLASSES, (500, 300, 200))
    X = RNG.normal(size=(1000, 3)) @ np.diag([0.05, 0.1, 0.15]) + 0.2 * (y[:, None] - 1)
    found = fitted(X, y).moments_
    np.testing.assert_allclose(found.sizes, [500, 300, 200], rtol=1e-6)
    for k in CLASSES:
        own = X[y == k]
        np.testing.assert_allclose(found.means[k], own.mean(axis=0), atol=3e-4)
        np.testing.assert_allclose(found.covariances[k], np.cov(own.T, bias=True), atol=3e-4)


@pytest.mark.filterwarnings("ignore::skdpot.exceptions.PrivacyWarning")
def test_covariances_of_noise_alone_are_positive_and_shrink_to_the_common_one():
    X, y = 0.3 * on_sphere(90, 10), RNG.integers(0, 3, 90)
    found = fitted(X, y, epsilon=0.5, random_state=0).moments_
    assert np.linalg.eigvalsh(found.covariances).min() > 0
    assert found.sizes.min() >= 1
    assert found.sizes.sum() == pytest.approx(90)
    assert np.linalg.norm(found.means, axis=1).max() <= 1 + 1e-12


@pytest.mark.filterwarnings("ignore:.*random_state:skdpot.exceptions.PrivacyWarning")
def test_synthetic_rows_have_the_relations_of_the_rows():
    d, n = 6, 20_000
    y = RNG.integers(0, 3, n)
    roots = [np.linalg.qr(RNG.normal(size=(d, d)))[0] * np.linspace(0.02, 0.2, d) for _ in CLASSES]
    X = np.einsum("nd,nkd->nk", RNG.normal(size=(n, d)), np.stack(roots)[y])
    sampler = fitted(X, y, epsilon=2.0, random_state=0)
    made, labels = sampler.sample_labeled(9000, random_state=0)
    for k in CLASSES:
        true = roots[k] @ roots[k].T
        error = np.linalg.norm(np.cov(made[labels == k].T) - true) / np.linalg.norm(true)
        assert error < 0.1
    assert sampler.displacements_.shape == (3, 1)


@pytest.mark.filterwarnings("ignore:.*random_state:skdpot.exceptions.PrivacyWarning")
def test_means_that_are_noise_are_told():
    X, y = 0.3 * on_sphere(900, 10), RNG.integers(0, 3, 900)
    with pytest.warns(PrivacyWarning, match="noise hides the distribution of class"):
        few = fitted(X, y, epsilon=0.5, random_state=0).moments_
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        warnings.filterwarnings("ignore", ".*random_state")
        many = fitted(np.tile(X, (30, 1)), np.tile(y, 30), epsilon=4.0, random_state=0).moments_
    true = np.stack([X[y == k].mean(axis=0) for k in CLASSES])
    error = np.sqrt(np.mean(np.sum((many.means - true) ** 2, axis=1)))
    stated = np.sqrt(np.mean(np.sum(many.errors[0] ** 2, axis=1)))
    assert stated == pytest.approx(error, rel=0.5)
    assert few.errors[0].min() > 10 * many.errors[0].max()


def test_refuses_more_rows_than_whole_numbers_can_add(monkeypatch):
    monkeypatch.setattr(moments, "_MOST_ROWS", 10)
    with pytest.raises(ValueError, match="use a Sketch"):
        fitted(on_sphere(11, 2), epsilon=1.0)


@pytest.mark.filterwarnings("ignore::skdpot.exceptions.NotPrivateWarning")
@pytest.mark.parametrize(
    ("row", "label", "new", "new_label"),
    NEIGHBOURS.values(),
    ids=NEIGHBOURS,
)
def test_no_record_moves_moments_of_parts_by_more_than_the_sensitivity(row, label, new, new_label):
    bounds = DataBounds(np.zeros(4), np.ones(4), 1.0)
    centres = np.rint(2**12 * on_sphere(9, 4)).reshape(3, 3, 4)
    centres[0, :2] = 2**12 * np.stack([AXIS, OTHER])
    X, y = on_sphere(30, 4), RNG.integers(0, 3, 30)
    found = []
    for X[0], y[0] in ((row, label), (new, new_label)):
        found.append(moments.release_moments(X, y, centres, NonPrivateEvent(), bounds, None))
    moved = np.linalg.norm(found[1].value - found[0].value)
    assert 0 < moved <= found[0].sensitivity
    own = next(iter(found[1].parts((X, y), np.ones(30))))
    np.testing.assert_allclose(own.rows.sum(np.ones(30)), own.value, atol=1e-9)


def rings(n):
    """Rows of a class lie on a circle around the centre, which no Gaussian shows."""
    y = RNG.integers(0, 3, n)
    angles = RNG.uniform(0, 2 * np.pi, n)
    return (0.3 + 0.2 * y)[:, None] * np.column_stack([np.cos(angles), np.sin(angles)]), y


@pytest.mark.filterwarnings("ignore:.*random_state:skdpot.exceptions.PrivacyWarning")
def test_parts_show_shapes_that_are_not_gaussian():
    X, y = rings(20_000)
    distances = {}
    for n_components in (1, 6):
        mechanism = Moments(CLASSES, n_components=n_components)
        options = {"norm_bound": 1.0, "conditional": True, "random_state": 0}
        sampler = DPSlicedFlowSampler(mechanism, epsilon=5.0, **options).fit(X, y)
        made, labels = sampler.sample_labeled(5000, random_state=0)
        own = [np.linalg.norm(made[labels == k], axis=1) - (0.3 + 0.2 * k) for k in CLASSES]
        distances[n_components] = np.sqrt(np.mean(np.concatenate(own) ** 2))
        assert sampler.moments_.means.shape == (3 * n_components, 2)
        np.testing.assert_allclose(sampler.moments_.class_shares, 1 / 3, atol=0.02)
    assert distances[6] < 0.5 * distances[1]


@pytest.mark.filterwarnings("ignore::skdpot.exceptions.PrivacyWarning")
@pytest.mark.parametrize("norm_bound", [1.0, None])
def test_moments_of_classes_and_of_parts_are_both_paid_for(norm_bound):
    X, y = rings(300)
    with record_releases() as releases:
        sampler = DPSlicedFlowSampler(
            Moments(CLASSES, n_components=2), norm_bound=norm_bound, conditional=True
        ).fit(X, y)
    both = [one for one in releases if one.kind == "moments"]
    assert len(both) == 2
    assert [one.event for one in both] == list(sampler.privacy_spent_.event.phases[-2:])
    mus = np.array([one.sensitivity / one.sigma for one in both])
    assert mus[0] ** 2 / np.sum(mus**2) == pytest.approx(0.1, rel=1e-3)
    assert sampler.privacy_spent_.event.to_gdp().mu <= gdp_mu(1.0, 1e-5) * (1 + 1e-9)
    if norm_bound is not None:
        assert np.linalg.norm(mus) == pytest.approx(gdp_mu(1.0, 1e-5), rel=1e-2)


def test_quantiles_of_a_mixture_are_those_of_its_draws():
    means, covariances = RNG.normal(size=(3, 4)), RNG.normal(size=(3, 4, 4))
    covariances = 0.1 * covariances @ covariances.transpose(0, 2, 1)
    problem = GaussianFlowProblem(np.array([0.5, 0.3, 0.2]), means, covariances)
    draws = problem.start(100_000, np.random.default_rng(0))
    batch = next(problem.turns(np.random.default_rng(1)))
    levels = (np.arange(1024) + 0.5) / 1024
    expected = np.quantile(draws @ batch.directions.T, levels, axis=0).T
    np.testing.assert_allclose(batch.quantiles[:, 8:-8], expected[:, 8:-8], atol=0.06)
    assert np.sqrt(np.mean((batch.quantiles - expected) ** 2)) < 0.02
