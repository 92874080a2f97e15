"""Fitted tables know their errors: calibrated, beside trivial answers, and from releases alone."""

import math
import warnings

import numpy as np
import pandas as pd
import pytest

from skdpot import DPTableSynthesizer, TableSchema
from skdpot.exceptions import ReliabilityWarning
from skdpot.preprocessing import CategoricalColumn, NumericColumn, TableEncoder
from skdpot.tables.bins import bin_codes
from skdpot.tables.frames import Table
from skdpot.tables.marginal_release import tables_of
from skdpot.tables.reliability import cell_counts, table_reliability
from skdpot.tables.schema_release import SchemaEstimate
from tests.tables.table_models import fit, people

CLINIC = TableSchema(
    [
        NumericColumn("age", lower=0, upper=110, integer=True),
        CategoricalColumn("ward", categories=list("ABCDEF")),
        CategoricalColumn("sick", categories=["no", "yes"]),
        NumericColumn("cost", lower=0, upper=1_000_000),
    ]
)
UNIFORM = TableSchema(
    [
        NumericColumn("share", lower=0, upper=1),
        CategoricalColumn("code", categories=list("01234")),
        NumericColumn("count", lower=0, upper=99, integer=True),
    ]
)


def clinic(n_rows, seed):
    """Ages that say much about the ward and the illness, and costs with a heavy tail."""
    rng = np.random.default_rng(seed)
    sick = rng.random(n_rows) < 0.2
    age = np.clip(rng.normal(np.where(sick, 68, 50), np.where(sick, 12, 17)), 18, 100)
    ward = np.clip((age - 18) // 14 + rng.integers(-1, 2, n_rows), 0, 5).astype(int)
    return pd.DataFrame(
        {
            "age": age.round().astype(int),
            "ward": np.array(list("ABCDEF"))[ward],
            "sick": np.where(sick, "yes", "no"),
            "cost": np.clip(rng.lognormal(7 + sick, 1), 0, 500_000).round(2),
        }
    )


def uniform(n_rows, seed):
    """Columns that are as uniform and as independent as the trivial answers say."""
    rng = np.random.default_rng(seed)
    code, count = rng.integers(0, 5, n_rows).astype(str), rng.integers(0, 100, n_rows)
    return pd.DataFrame({"share": rng.random(n_rows), "code": code, "count": count})


LAWS = {"clinic": (clinic, CLINIC), "uniform": (uniform, UNIFORM)}


def true_errors(synthesizer, rows):
    """Return the error of each output that `reliability_` states, and that of the trivial one."""
    model, grids = synthesizer.model_, synthesizer._grids
    sides = rows, synthesizer.sample(40_000, random_state=0)
    tables = [Table.of(side, synthesizer.schema_.names) for side in sides]
    values = [synthesizer._rules.to_model(synthesizer.schema_.read(table)) for table in tables]
    codes = [
        bin_codes(np.stack([g.codes(v[g.column.name]) for g in grids], axis=1), model.bins)
        for v in values
    ]
    errors = {}
    for place, (grid, bins) in enumerate(zip(grids, model.bins, strict=True)):
        name = grid.column.name
        real, drawn = (np.bincount(c[:, place], minlength=bins.n_bins) / len(c) for c in codes)
        even = np.bincount(bins.bins, grid.weights)
        errors[f"distribution of {name}"] = (
            np.abs(real - drawn).sum() / 2,
            np.abs(real - even / even.sum()).sum() / 2,
        )
        if grid.column.figure == "number":
            true, made = (side[name].mean() for side in sides)
            errors[f"mean of {name}"] = abs(true - made), abs(true - np.mean(grid.column.span))
    least: dict[str, float] = {}
    for noisy in model.marginals:
        shape, columns = noisy.marginal.shape, noisy.marginal.columns
        if len(columns) == 2 and 1 not in shape:
            shares = (noisy.marginal.counts(c).reshape(shape) / len(c) for c in codes)
            real, drawn = (s - np.outer(s.sum(axis=1), s.sum(axis=0)) for s in shares)
            found = np.abs(real - drawn).sum() / 2, np.abs(real).sum() / 2
            name = "relation of " + " and ".join(grids[c].column.name for c in columns)
            if noisy.sigma**2 * np.prod(shape) < least.get(name, math.inf):  # of several tables
                least[name], errors[name] = noisy.sigma**2 * np.prod(shape), found
    return errors


def judged(name, n_rows, epsilon, seed):
    """Fit once; yield each stated error with the true one and that of the trivial answer."""
    make, schema = LAWS[name]
    rows = make(n_rows, seed)
    synthesizer = fit(rows, schema=schema, epsilon=epsilon, random_state=seed, n_particles=20_000)
    true = true_errors(synthesizer, rows)
    return [(stated, *true[stated.output]) for stated in synthesizer.reliability_]


@pytest.mark.slow
@pytest.mark.parametrize("name", LAWS)
def test_errors_are_within_two_standard_errors_and_silence_means_better_than_trivial(name):
    """100 fits of 500 to 10,000 rows: 95 % are right for normal noise, more for bounded errors."""
    cases = [(n, e) for n in (500, 2000, 10_000) for e in (0.5, 1.0, 4.0)]
    found = [row for n, e in cases for seed in range(11) for row in judged(name, n, e, seed)]
    covered = [error <= 2 * stated.standard_error for stated, error, _ in found]
    assert 0.93 < np.mean(covered) <= 1.0
    silent = [
        stated.reliable and error > trivial + stated.margin for stated, error, trivial in found
    ]
    assert np.mean(silent) <= 0.015
    alarms = [
        not stated.reliable and error < 0.5 * max(trivial, stated.margin)
        for stated, error, trivial in found
    ]
    assert np.mean(alarms) <= 0.05


def test_enough_rows_are_reliable_and_errors_fall_with_epsilon():
    errors = {}
    for epsilon in (1.0, 4.0):
        synthesizer = fit(clinic(10_000, 0), schema=CLINIC, epsilon=epsilon)
        assert synthesizer.reliability_.unreliable == ()
        errors[epsilon] = synthesizer.reliability_.to_frame()["standard_error"]
    assert errors[1.0].index[:6].tolist() == [
        "distribution of age", "mean of age", "distribution of ward", "distribution of sick",
        "distribution of cost", "mean of cost",
    ]  # fmt: skip
    ratios = (errors[1.0] / errors[4.0]).filter(regex="distribution|mean")
    assert ((ratios > 1.5) & (ratios < 10.0)).all()  # the noise falls to about a quarter


def test_pairs_with_the_target_come_first():
    synthesizer = fit(clinic(5000, 0), schema=CLINIC, epsilon=4.0, target="sick")
    pairs = [o.output for o in synthesizer.reliability_ if o.output.startswith("relation")]
    with_target = ["sick" in pair for pair in pairs]
    assert sum(with_target) >= 2
    assert with_target == sorted(with_target, reverse=True)


def test_one_warning_names_what_noise_hides():
    with pytest.warns(ReliabilityWarning) as told:
        synthesizer = DPTableSynthesizer(UNIFORM, epsilon=1.0).fit(uniform(500, 0))
    (text,) = [str(w.message) for w in told if w.category is ReliabilityWarning]
    assert text.startswith("DPTableSynthesizer: The privacy noise hides distribution of share")
    assert "a uniform distribution in the bounds" in text
    assert text.endswith("Use more rows, fewer columns or a larger epsilon, and state narrower "
                         "bounds and fewer categories.")  # fmt: skip
    assert "distribution of share" in synthesizer.reliability_.unreliable


def test_a_table_that_is_too_small_has_one_warning_before_the_charge():
    with pytest.warns(ReliabilityWarning) as told:
        synthesizer = DPTableSynthesizer(CLINIC, epsilon=0.2).fit(clinic(300, 0))
    (text,) = [str(w.message) for w in told if w.category is ReliabilityWarning]
    assert "too small for this epsilon: it has 300 records" in text
    assert synthesizer.reliability_.unreliable


def test_a_column_of_which_nothing_is_seen_is_replaced():
    synthesizer = fit(clinic(100, 0), schema=CLINIC, epsilon=0.05)
    outputs = {o.output: o for o in synthesizer.reliability_}
    ward = outputs["distribution of ward"]
    assert synthesizer.model_.bins[1].n_bins == 1
    assert ward.replaced
    assert not ward.reliable
    assert ward.standard_error == 1.0


def test_lost_bounds_and_categories_make_their_columns_unreliable():
    rows = clinic(60, 0)
    with pytest.warns(ReliabilityWarning) as told:
        synthesizer = DPTableSynthesizer(epsilon=0.4, n_particles=200).fit(rows)
    assert sum(w.category is ReliabilityWarning for w in told) == 1
    outputs = {o.output: o for o in synthesizer.reliability_}
    lost = [o for o in outputs.values() if o.output.startswith("bounds") and o.replaced]
    assert lost
    for output in lost:
        assert output.trivial == "the default bounds"
        name = output.output.removeprefix("bounds of ")
        assert not outputs[f"distribution of {name}"].reliable
        assert f"mean of {name}" not in outputs
    assert synthesizer.reliability_.sentence().endswith("that are public.")


def test_rows_that_counts_place_at_estimated_bounds_are_outside_them():
    schema = TableSchema([NumericColumn("cost", lower=0, upper=100), CLINIC["sick"]])
    model = fit(clinic(3000, 0)[["cost", "sick"]], schema=schema, epsilon=4.0).model_
    for found in (True, False):
        estimates = (SchemaEstimate("cost", "bounds", 0.01, found),)
        outputs = {o.output: o for o in table_reliability(model, None, estimates)}
        assert outputs["bounds of cost"].standard_error > 0.9
        assert not outputs["bounds of cost"].reliable
        assert not outputs["distribution of cost"].reliable
        assert "mean of cost" not in outputs
    wide = fit(clinic(3000, 0), schema=CLINIC, epsilon=4.0).model_
    estimates = (SchemaEstimate("cost", "bounds", 1.0, False),)  # the default bounds hold all rows
    assert table_reliability(wide, None, estimates).unreliable == ()


def test_an_encoder_states_what_it_estimated():
    rows = clinic(5000, 0)
    stated = TableEncoder(CLINIC).fit(rows).reliability_
    assert [o.output for o in stated] == [
        "bounds of age", "categories of ward", "categories of sick", "bounds of cost",
    ]  # fmt: skip
    assert all(o.standard_error == 0.0 and o.reliable for o in stated)
    found = TableEncoder(epsilon=1.0).fit(rows).reliability_
    assert found.unreliable == ()
    errors = {o.output: o.standard_error for o in found}
    assert 0.0 < errors["bounds of age"] < 0.1
    assert errors["categories of ward"] < 0.05
    scaled = TableEncoder(CLINIC, scale="private", epsilon=1.0).fit(rows).reliability_
    assert [o.output for o in scaled][::3] == ["scale of age", "scale of cost"]


def test_rows_change_nothing_but_through_releases(tmp_path):
    """A saved synthesizer has no rows, and states the same."""
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        synthesizer = DPTableSynthesizer(epsilon=0.5, n_particles=200).fit(people(300))
    synthesizer.save(tmp_path / "fit.safetensors")
    loaded = DPTableSynthesizer.load(tmp_path / "fit.safetensors")
    assert str(loaded.reliability_) == str(synthesizer.reliability_)
    assert loaded.reliability_.sentence() == synthesizer.reliability_.sentence()


def test_published_tables_state_their_errors():
    names = ["age", "ward", "sick"]
    schema = TableSchema([CLINIC[name] for name in names])
    synthesizer = fit(clinic(2000, 0)[names], schema=schema, epsilon=2.0)
    again = DPTableSynthesizer(synthesizer.schema_, n_particles=500)
    again.fit_marginals(synthesizer.marginals_, 2000)
    errors = [f.reliability_.to_frame()["standard_error"] for f in (synthesizer, again)]
    assert (errors[1].filter(like="distribution") > 0.0).all()
    assert set(errors[1].filter(like="relation").index) == set(
        errors[0].filter(like="relation").index
    )


def test_without_noise_there_is_no_error():
    reliability = fit(clinic(500, 0), schema=CLINIC, epsilon=math.inf).reliability_
    assert all(output.standard_error == 0.0 for output in reliability)


@pytest.mark.parametrize("place", range(4))
def test_the_covariance_of_cells_is_that_of_least_squares(place):
    """Counts are the sum of those of all rounds by precision, times the covariance."""
    model = fit(clinic(5000, 0), schema=CLINIC, epsilon=2.0).model_
    counts, covariance = cell_counts(model, place)
    if covariance.ndim == 1:
        covariance = np.diag(covariance)
    due = np.zeros(len(counts))
    for release in model.releases[: model.n_rounds]:
        for table in tables_of(release):
            if table.marginal.columns == (place,) and table.marginal.levels != (0,):
                due += (table.counts / table.sigma**2)[table.marginal.groups[0]]
    np.testing.assert_allclose(counts, covariance @ due, rtol=1e-9, atol=1e-6)
    assert (covariance.diagonal() > 0.0).all()
