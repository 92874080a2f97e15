"""Two private steps on the same rows: one shared budget, or a warning that states the sum."""

import math
import warnings

import numpy as np
import pytest
from sklearn.pipeline import make_pipeline

from skdpot import PrivacyBudget, PrivateScaler, SlicedSketch
from skdpot.exceptions import PrivacyWarning
from skdpot.preprocessing import NumericColumn, TableEncoder, TableSchema
from skdpot.privacy import spent, total_spent
from tests.flat_options import flow_sampler

ROWS = np.random.default_rng(0).normal(size=(20_000, 2))
SAMPLER = {"bounds": (-6, 6), "n_projections": 4, "n_bins": 16, "n_particles": 300, "n_steps": 5}


@pytest.mark.parametrize("container", ["default", "pandas"])
def test_a_pipeline_without_a_budget_is_told_the_sum(container):
    scaler = PrivateScaler(epsilon=1.0).set_output(transform=container)
    pipeline = make_pipeline(scaler, flow_sampler(epsilon=2.0, **SAMPLER))
    with pytest.warns(PrivacyWarning, match="together with this fit") as caught:
        pipeline.fit(ROWS)
    total = total_spent(pipeline).epsilon
    assert f"epsilon={total:.3g}" in str(caught[0].message)
    assert 2.0 < total < 3.0


def test_a_chain_of_steps_is_added_up():
    rows = PrivateScaler(epsilon=1.0).fit_transform(ROWS)
    with pytest.warns(PrivacyWarning, match="spent epsilon=1 on"):
        rows = PrivateScaler(epsilon=1.5).fit_transform(rows)
    sampler = flow_sampler(epsilon=2.0, **SAMPLER)
    with pytest.warns(PrivacyWarning, match="spent epsilon=1 and 1.5 on"):
        sampler.fit(rows)


def test_no_step_in_between_hides_one_without_privacy():
    rows = PrivateScaler(epsilon=math.inf).fit_transform(ROWS)
    with pytest.warns(PrivacyWarning, match="nothing protects them"):
        rows = PrivateScaler(epsilon=1.0).fit_transform(rows)
    with pytest.warns(PrivacyWarning, match="nothing protects them"):
        SlicedSketch(bounds=(-6, 6), n_projections=4).fit(rows)


def test_a_shared_budget_is_charged_twice_and_needs_no_warning():
    budget = PrivacyBudget(4.0)
    pipeline = make_pipeline(
        PrivateScaler(epsilon=1.0, budget=budget),
        flow_sampler(epsilon=2.0, budget=budget, **SAMPLER),
    )
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        pipeline.fit(ROWS)
    assert len(budget.history()) == 2


def test_different_budgets_do_not_silence_it():
    scaled = PrivateScaler(budget=PrivacyBudget(1.0)).fit_transform(ROWS)
    sketch = SlicedSketch(bounds=(-6, 6), n_projections=4, budget=PrivacyBudget(1.0))
    with pytest.warns(PrivacyWarning, match="spent epsilon=1 on"):
        sketch.fit(scaled)


def test_other_rows_do_not_warn_and_memory_ends_with_the_rows():
    scaler = PrivateScaler().fit(ROWS)
    before = len(spent._ORIGINS)
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        SlicedSketch(bounds=(-6, 6), n_projections=4).fit(scaler.transform(ROWS))
    scaled = scaler.fit_transform(ROWS)
    assert len(spent._ORIGINS) == before + 1
    del scaled
    assert len(spent._ORIGINS) == before


@pytest.mark.parametrize("container", ["default", "pandas"])
def test_an_encoder_that_releases_nothing_does_not_break_the_chain(container):
    schema = TableSchema([NumericColumn(f"x{j}", lower=-6, upper=6) for j in range(2)])
    encoder = TableEncoder(schema).set_output(transform=container)
    sampler = flow_sampler(epsilon=2.0, **SAMPLER)
    pipeline = make_pipeline(PrivateScaler(epsilon=1.0), encoder, sampler)
    with pytest.warns(PrivacyWarning, match="spent epsilon=1 on .* together with this fit"):
        pipeline.fit(ROWS)
    before = len(spent._ORIGINS)
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        rows = TableEncoder(schema).fit_transform(ROWS)
        assert len(spent._ORIGINS) == before
        sampler.fit(rows)
