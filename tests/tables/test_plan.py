"""What a synthesizer will release is fixed beforehand, and costs what was asked."""

import math

import numpy as np
import pytest

from skdpot.exceptions import CalibrationError
from skdpot.preprocessing import (
    BooleanColumn,
    CategoricalColumn,
    DatetimeColumn,
    NumericColumn,
    TableSchema,
)
from skdpot.privacy.accounting import PrivacyTarget, SingleFitTarget, compose
from skdpot.privacy.events import GaussianEvent, NonPrivateEvent
from skdpot.privacy.noise import lattice_noise, noise_lattice
from skdpot.release.contingency import misfit_sensitivity
from skdpot.tables import fitting as plans
from skdpot.tables.fitting import plan_tables

KNOWN = TableSchema(
    [
        NumericColumn("age", lower=0, upper=99, integer=True, dtype="int64"),
        CategoricalColumn("sex", categories=["f", "m"], dtype="object"),
        BooleanColumn("member", dtype="bool"),
    ]
)
OPEN = TableSchema(
    [
        NumericColumn("age", dtype="float64"),
        CategoricalColumn("town", dtype="object"),
        DatetimeColumn("visit", dtype="datetime64[s]"),
        BooleanColumn("member", dtype="bool"),
    ]
)
ONE = TableSchema([BooleanColumn("member", dtype="bool")])
SCHEMAS = {"known": KNOWN, "open": OPEN, "one column": ONE}


def leaves(event):
    parts = getattr(event, "events", None)
    return [event] if parts is None else [leaf for part in parts for leaf in leaves(part)]


@pytest.mark.parametrize("schema", SCHEMAS)
@pytest.mark.parametrize(("epsilon", "delta"), [(0.1, 1e-6), (1.0, 1e-5), (10.0, 1e-9)])
@pytest.mark.parametrize("target", [SingleFitTarget, PrivacyTarget])
def test_a_plan_costs_what_was_asked_and_no_less(schema, epsilon, delta, target):
    plan = plan_tables(target(epsilon, delta), SCHEMAS[schema], 1000)
    cost = compose(plan.event).epsilon(delta)
    assert cost <= epsilon
    assert cost > 0.97 * epsilon


@pytest.mark.parametrize("schema", SCHEMAS)
def test_the_releases_have_their_shares(schema):
    plan = plan_tables(SingleFitTarget(1.0, 1e-5), SCHEMAS[schema], 1000)
    events = leaves(plan.event)[-len(plan.shares) :]
    assert [type(event) for event in events] == [GaussianEvent] * len(plan.shares)
    for event, share in zip(events, plan.shares.values(), strict=True):
        assert event.sigma == plan.sigma
        assert event.sensitivity**2 == pytest.approx(share, rel=1e-15)
    assert sum(plan.shares.values()) == pytest.approx(1.0)
    assert set(plan.shares) == (set(plans._SHARES) if len(SCHEMAS[schema]) > 1 else {"columns"})


def test_what_is_not_known_gets_a_fifth_at_most():
    target = SingleFitTarget(1.0, 1e-5)
    plan = plan_tables(target, OPEN, 1000)
    assert plan.schema.event is not None
    first = compose(plan.schema.event).mu_without_sampling ** 2
    whole = compose(plan.event).mu_without_sampling ** 2
    assert first / whole == pytest.approx(0.2 * 3 / 4, rel=0.02)
    assert plan_tables(target, KNOWN, 1000).schema.event is None


@pytest.mark.parametrize("weights", [np.ones(1), np.ones(7), np.array([0.1, 3.0, 500.0])])
@pytest.mark.parametrize("release", plans._SHARES)
def test_marginals_of_a_release_cost_its_share_together(release, weights):
    plan = plan_tables(SingleFitTarget(1.0, 1e-5), KNOWN, 1000)
    sigmas = plan.marginal_sigmas(release, weights)
    assert sigmas.shape == weights.shape
    assert np.sum(2 / sigmas**2) == pytest.approx(plan.shares[release] / plan.sigma**2, rel=1e-12)
    np.testing.assert_allclose(sigmas**-2 / weights, sigmas[0] ** -2 / weights[0])


@pytest.mark.parametrize("n_marginals", [1, 3, 500])
def test_misfits_cost_their_share(n_marginals):
    plan = plan_tables(SingleFitTarget(1.0, 1e-5), KNOWN, 1000)
    for release in ("independence", "misfit"):
        mu = misfit_sensitivity(n_marginals) / plan.misfit_sigma(release, n_marginals)
        assert mu**2 == pytest.approx(plan.shares[release] / plan.sigma**2, rel=1e-12)


def test_noise_is_drawn_on_a_finer_lattice_than_is_charged():
    """The charge holds for a sixteenth of sigma; the noise is drawn on no coarser lattice."""
    plan = plan_tables(SingleFitTarget(1.0, 1e-5), KNOWN, 1000)
    for event in leaves(plan.event):
        assert event.lattice == event.sigma / 16
    for sigma in np.geomspace(1e-3, 1e9, 200):
        assert noise_lattice(sigma, 1 / 16) <= sigma / 16


def test_epsilon_infinity_needs_no_noise():
    plan = plan_tables(SingleFitTarget(math.inf, 1e-5), KNOWN, 1000)
    assert plan.sigma == 0.0
    assert isinstance(plan.event, NonPrivateEvent)
    assert plan.marginal_sigmas("tree", np.ones(2)).tolist() == [0.0, 0.0]
    assert plan.misfit_sigma("misfit", 5) == 0.0


@pytest.mark.parametrize(
    ("epsilon", "delta", "message"),
    [(1e5, 1e-5, "protects nothing"), (1e-9, 1e-15, "too wide"), (1e-14, 1e-17, "No noise")],
)
def test_noise_that_cannot_be_drawn_is_refused_beforehand(epsilon, delta, message):
    with pytest.raises(CalibrationError, match=message):
        plan_tables(SingleFitTarget(epsilon, delta), KNOWN, 1000)


@pytest.mark.parametrize("n_columns", [2, 40])
def test_what_is_not_refused_can_be_drawn(n_columns, monkeypatch):
    """At the largest sigma, the share of the smallest table beside all others at their largest."""
    schema = TableSchema([BooleanColumn(f"c{j}", dtype="bool") for j in range(n_columns)])
    plan = plan_tables(SingleFitTarget(1.0, 1e-5), schema, 1000)
    largest = plans._LARGEST_SIGMA / n_columns
    n_pairs = n_columns * (n_columns - 1) // 2
    weights = np.array([1.0, *[(4.0 * 65 * 65) ** (2 / 3)] * (n_pairs - 1)])
    least = min(plans._SHARES, key=plans._SHARES.get)
    wide = plan.__class__(**vars(plan) | {"sigma": largest})
    from skdpot._utils.validation import SecretStream

    for sigma in (
        wide.marginal_sigmas(least, weights)[0],
        wide.misfit_sigma(least, 2 * n_pairs),
        wide.marginal_sigmas("columns", np.ones(n_columns))[0],
    ):
        lattice = noise_lattice(sigma, 1 / 16)
        drawn = lattice_noise(sigma, 3, SecretStream(), lattice=lattice, mu=1.0)
        assert drawn.shape == (3,)
