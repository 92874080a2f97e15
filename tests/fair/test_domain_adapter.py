"""A classifier of a target domain: what it gains, what it reads, and what it is charged for."""

import math

import numpy as np
import pandas as pd
import pytest
import torch

from skdpot import DPDomainAdapter, PrivacyBudget
from skdpot.mechanisms import RankedOutputs, SketchedOutputs, TransportedRows
from skdpot.ot.directions import orthogonal_directions
from skdpot.ot.sliced_map import sliced_map
from skdpot.ot.slices import CDFTable
from skdpot.ot.transport import sliced_distance

pytestmark = pytest.mark.filterwarnings("ignore:.*reproducible")

N, D = 3000, 4
MECHANISMS = {
    "transport": TransportedRows(n_projections=64),
    "sketch": SketchedOutputs(alpha=0.8),
    "ranks": RankedOutputs(alpha=0.6),
}


def shifted(n=N, seed=0):
    """Three classes; the target is turned and moved, with labels to judge by."""
    rng = np.random.default_rng(seed)
    y = rng.integers(0, 3, 2 * n)
    X = np.array([[0.5, 0, 0, 0], [-0.3, 0.4, 0, 0], [-0.3, -0.4, 0, 0]])[y]
    X = X + 0.15 * rng.normal(size=(2 * n, D))
    turn = np.eye(D)
    turn[:2, :2] = [[math.cos(0.6), -math.sin(0.6)], [math.sin(0.6), math.cos(0.6)]]
    X[n:] = X[n:] @ turn.T + [0.2, 0.1, -0.2, 0.0]
    return X, y, np.repeat([1, -1], n)


X, Y, DOMAIN = shifted()
TARGET = DOMAIN < 0


def adapter(mechanism="transport", epsilon=3.0, **options):
    return DPDomainAdapter(epsilon, mechanism=MECHANISMS[mechanism], random_state=1, **options)


@pytest.fixture(scope="module")
def source_alone():
    fitted = DPDomainAdapter(3.0, random_state=1).fit(X[~TARGET], Y[~TARGET], sample_domain=None)
    return fitted.score(X[TARGET], Y[TARGET])


@pytest.mark.slow
@pytest.mark.filterwarnings("ignore:.*without sample_domain")
@pytest.mark.parametrize("mechanism", MECHANISMS)
def test_it_beats_the_source_alone_on_the_target(mechanism, source_alone):
    fitted = adapter(mechanism).fit(X, Y, sample_domain=DOMAIN)
    gained = fitted.score(X[TARGET], Y[TARGET]) - source_alone
    assert gained > {"transport": 0.05, "sketch": 0.05, "ranks": 0.03}[mechanism]
    assert not hasattr(fitted, "threshold_")


@pytest.mark.parametrize("mechanism", MECHANISMS)
def test_labels_of_the_target_are_not_read(mechanism):
    few = np.r_[:300, N : N + 300]
    options = {"n_steps": 5, "batch_fraction": 1.0, "n_projections": 8}
    made = [
        DPDomainAdapter(mechanism=type(MECHANISMS[mechanism])(**options), random_state=2)
        .fit(X[few], y, sample_domain=DOMAIN[few])
        .predict_proba(X[:5])
        for y in (Y[few], np.where(TARGET, -7, Y)[few], [*map(int, Y[:300]), *[None] * 300])
    ]
    np.testing.assert_array_equal(made[0], made[1])
    np.testing.assert_array_equal(made[0], made[2])


def test_both_domains_are_paid_for_together():
    """One release for both, then Poisson batches of the source alone."""
    budget = PrivacyBudget(1.0, 1e-5)
    first = N + 500  # of unequal sizes
    fitted = DPDomainAdapter(1.0, mechanism=TransportedRows(50, n_projections=64), budget=budget)
    fitted.fit(X[:first], Y[:first], sample_domain=DOMAIN[:first])
    spent, (tables, training) = fitted.privacy_spent_, fitted.privacy_spent_.event.phases
    assert spent.epsilon == 1.0
    assert budget.remaining() < 0.01
    assert tables.n_steps == 1
    assert training.sampling == "poisson"
    assert training.n_steps == 50
    assert training.sampling_rate == pytest.approx(0.2)
    assert 4.0 <= training.sensitivity <= 4.01  # 2 C
    assert any("same domain" in text for text in spent.assumptions)
    assert fitted.map_(X[:3]).shape == (3, D)


@pytest.mark.parametrize(
    ("given", "message"),
    [
        ({"sample_domain": DOMAIN[:-1]}, "one number per row"),
        ({"sample_domain": 0 * DOMAIN}, "one number per row"),
        ({"sample_domain": np.abs(DOMAIN)}, "0 of the target"),
        ({"sample_domain": DOMAIN, "y": Y[:-1]}, "labels for"),
        ({"sample_domain": DOMAIN, "y": np.where(TARGET, Y, 1)}, "single class"),
        ({"sample_domain": DOMAIN, "y": Y + 0.5}, "Unknown label type"),
    ],
)
def test_what_is_refused_charges_nothing(given, message):
    budget = PrivacyBudget(1.0, 1e-5)
    with pytest.raises(ValueError, match=message):
        DPDomainAdapter(budget=budget).fit(X, **({"y": Y} | given))
    assert budget.remaining() == 1.0


def test_without_domains_it_says_so_and_frames_work():
    frame = pd.DataFrame(X[:100], columns=list("abcd"))
    quick = TransportedRows(2, batch_fraction=1.0, n_projections=4)
    with pytest.warns(UserWarning, match="sample_domain"):
        fitted = DPDomainAdapter(mechanism=quick, random_state=0).fit(frame, Y[:100])
    assert fitted.map_ is None
    named = DPDomainAdapter(mechanism=quick, classes=[0, 1, 2, 9], random_state=0)
    series = pd.Series(np.where(TARGET, -1, Y))
    named.fit(pd.DataFrame(X, columns=list("abcd")), series, sample_domain=pd.Series(DOMAIN))
    assert named.predict_proba(frame).shape == (100, 4)


def test_the_map_moves_one_measure_to_the_other():
    """Tables without noise of two mixtures; a map that is linear between its levels."""
    rng = np.random.default_rng(3)
    theta, edges = orthogonal_directions(32, 2, rng), np.linspace(-3, 3, 129)
    points = rng.normal(size=(2, 20_000, 2)) * 0.2 + rng.choice([-1.0, 1.0], (2, 20_000, 1)) * 0.5
    points[1] = points[1] @ np.array([[1.2, 0.3], [-0.4, 0.8]]) + 0.5
    tables = []
    for sample in points:
        cdf = [np.searchsorted(np.sort(u), edges) / len(u) for u in theta @ sample.T]
        tables.append(CDFTable(theta, np.full(32, 3.0), np.array(cdf)))
    moved = sliced_map(*tables, np.random.default_rng(0))(points[0])
    before = sliced_distance(points[0], points[1], theta)
    assert sliced_distance(moved, points[1], theta) < 0.06 * before
    assert torch.from_numpy(moved).isfinite().all()
