"""Saved synthesizers: bit for bit, and nothing in a foreign file is trusted."""

import math
import warnings
from dataclasses import replace

import numpy as np
import pandas as pd
import polars as pl
import pytest
from sklearn.exceptions import NotFittedError

from skdpot import DPTableSynthesizer, PrivacyBudget
from skdpot.privacy.events import Relation
from skdpot.release.comparison import first_difference
from skdpot.tables.record import TableRecord
from tests.contract.hostile_files import arrays_of, facts_of, forged
from tests.tables.table_models import CASES, N_ROWS, SCHEMA, fit, fitted, people


@pytest.fixture
def path(tmp_path):
    return tmp_path / "synthesizer.safetensors"


def reloaded(synthesizer, path):
    synthesizer.save(path)
    return DPTableSynthesizer.load(path)


def assert_same(first, second):
    """Two tables are equal, with their data types."""
    assert type(first) is type(second)
    if isinstance(first, np.ndarray):
        np.testing.assert_array_equal(first, second)
    elif isinstance(first, pl.DataFrame):
        assert first.schema == second.schema
        assert first.equals(second, null_equal=True)
    else:
        pd.testing.assert_frame_equal(first, second, check_exact=True)


@pytest.mark.slow
@pytest.mark.parametrize("name", CASES)
def test_a_loaded_synthesizer_does_what_the_saved_one_does(name, path):
    saved = fitted(name)
    loaded = reloaded(saved, path)
    learned = {key for key in vars(saved) if key.endswith("_") or key.startswith("_")}
    assert learned == {key for key in vars(loaded) if key.endswith("_") or key.startswith("_")}
    rows = saved.sample(300, random_state=1)
    assert_same(rows, loaded.sample(300, random_state=1))
    whole = people() if name == "left out" else rows
    assert loaded.score(whole) == saved.score(whole)
    assert first_difference(saved.releases_, loaded.releases_) is None
    assert str(loaded.privacy_spent_) == str(saved.privacy_spent_)
    for attribute in (
        *("epsilon", "delta", "target", "n_particles", "schema"),
        *("privacy_spent_", "schema_", "n_samples_", "n_features_in_"),
    ):
        assert getattr(loaded, attribute) == getattr(saved, attribute)
    names = [getattr(s, "feature_names_in_", np.array([])) for s in (saved, loaded)]
    np.testing.assert_array_equal(*names, strict=True)
    reports = [s.quality_report(n_samples=100, random_state=2) for s in (saved, loaded)]
    for part in ("columns", "pairs"):
        pd.testing.assert_frame_equal(*(getattr(r, part) for r in reports), check_exact=True)
    assert reports[0].cautions == reports[1].cautions
    # A loaded synthesizer is an estimator like any other.
    assert_same(rows, reloaded(loaded, path).sample(300, random_state=1))


def test_a_loaded_synthesizer_can_be_fitted_again(path):
    loaded = reloaded(fitted("pandas"), path)
    assert (loaded.budget, loaded.random_state, loaded.verbose) == (None, None, 0)
    assert loaded.set_params(random_state=0).get_params()["schema"] == SCHEMA
    again = fit(people(), **{"schema": loaded.schema, "target": loaded.target})
    assert_same(again.sample(50, random_state=0), fitted("pandas").sample(50, random_state=0))


def test_a_schema_from_a_file_is_kept_as_a_schema(tmp_path, path):
    place = tmp_path / "schema.json"
    SCHEMA.to_json(place)
    saved = fit(people(), schema=str(place))
    place.unlink()
    assert reloaded(saved, path).schema == saved.schema_


def test_neither_budget_nor_seed_is_saved(tmp_path, path):
    budget = PrivacyBudget(1.0, ledger=tmp_path / "ledger.db")
    saved = fit(people(), schema=SCHEMA, epsilon=0.5, budget=budget, random_state=47110815)
    saved.save(path)
    content = path.read_bytes()
    assert b"ledger" not in content
    assert b"47110815" not in content
    assert DPTableSynthesizer.load(path).privacy_spent_ == saved.privacy_spent_


def test_an_open_synthesizer_is_not_saved(path):
    with pytest.raises(NotFittedError):
        DPTableSynthesizer().save(path)
    assert not path.exists()


def test_private_rows_are_not_in_the_file(path):
    """Counts and what follows from them, and facts: no array has as many entries as rows."""
    fitted("pandas").save(path)
    content = path.read_bytes()
    sizes = {name: array.size for name, array in arrays_of(content).items()}
    income = people()["income"].dropna()
    for value in income[income * 1024 % 1 > 0]:  # others may equal a noisy count
        assert np.float64(value).tobytes() not in content
    assert N_ROWS not in sizes.values()


def test_a_schema_beyond_the_limit_is_not_written(path, monkeypatch):
    monkeypatch.setattr(TableRecord, "most_header", 500)
    with pytest.raises(ValueError, match="the limit is 500"):
        fitted("one column").save(path)
    assert not path.exists()


# ------------------------------------------------------------------- files that cannot be true
# That they are of the right form is asked of all files in `tests/contract/test_hostile_bytes.py`.


def fact(*where, value):
    """Return a function that changes one fact of a file."""

    def change(good):
        facts = inner = facts_of(good)
        for step in where[:-1]:
            inner = inner[step]
        inner[where[-1]] = value(inner[where[-1]]) if callable(value) else value
        return forged(good, facts)

    return change


def array(name, *changed):
    """Return a function that changes one array of a file, or puts a value at an index of it."""

    def change(good):
        found = arrays_of(good)[name].copy()
        if len(changed) == 1:
            return forged(good, arrays={name: changed[0](found)})
        found[changed[0]] = changed[1]
        return forged(good, arrays={name: found})

    return change


def marginal_twice(good):
    """Say the first marginal twice, with counts and all."""
    facts, arrays = facts_of(good), arrays_of(good)
    facts["releases"][4][1] = facts["releases"][4][0]
    for name in list(arrays):
        if name.startswith(old := "releases.4.0"):
            arrays[f"releases.4.1{name[len(old) :]}"] = arrays[name]
    return forged(good, facts, arrays)


def moved_mass(table):
    table[0, 0, :2] = -0.5, table[0, 0, :2].sum() + 0.5
    return table


def shorter(part):
    return part[:-1]


def column(place, **changes):
    return fact("schema", "columns", place, value=lambda entries: entries | changes)


def node(place, **changes):
    return fact("tree", "nodes", place, value=lambda entries: entries | changes)


REPLACED = str(Relation.REPLACE_ONE)
SAMPLED = {
    **{"type": "SampledGaussianEvent", "sampling": "poisson", "sampling_rate": 0.01},
    **{"n_steps": 10**9, "sigma": 1.0, "sensitivity": 1.0, "clipped_sum": False, "lattice": None},
    **{"label": "", "n_samples": None, "batch_sizes": None, "group_sizes": None},
    "relation": REPLACED,
}
FREE = {"type": "NonPrivateEvent", "label": "", "relation": REPLACED}
COLUMN, PAIR, BINS, TREE = "releases.3.0", "releases.4.0", "bins.0", "tree"
CONDITIONAL, GROUPS = f"{TREE}.conditionals.0", f"{PAIR}.marginal.groups.0"
ROUND, BLOCKS, MAGNITUDES = "releases.0.0", "releases.1.0", "releases.1.1"
# What the error says, and the changes that it is said of.
LIES = {
    "unknown kind": [fact("makes", value="spark"), column(0, kind="x")],
    "n_rows": [fact("n_rows", value=1), fact("n_rows", value=2**60)],
    "epsilon that is not > 0": [fact("epsilon", value=0)],
    "n_particles": [fact("n_particles", value=1)],
    "is no column": [fact("target", value="x")],
    "hang on its target": [fact("target", value="city"), fact("tree", "target", value=99)],
    "not those of its schema": [fact("feature_names", value=lambda names: names[::-1])],
    "no columns, or more than 4096": [fact("schema", "columns", value=[1] * n) for n in (0, 5000)],
    "leaves bounds": [column(0, lower=None)],
    "This is not a schema": [fact("given_schema", value={"columns": [1]})],
    "do not fit": [
        column(2, categories=list("abcdef")),
        *(array(name, shorter) for name in (f"{COLUMN}.counts", f"{BINS}.coarse", GROUPS)),
        array(f"{COLUMN}.marginal.groups.0", 0, 1), array(CONDITIONAL, lambda a: a[..., :-1]),
        fact("releases", 3, 0, "marginal", "columns", value=[1]),
        *(array("potentials.0", change) for change in (lambda a: np.append(a, 0), np.atleast_2d)),
    ],
    "cells that its columns cannot have": [
        column(0, upper=200), array("edges.0", 0, -1.0), array("edges.2", lambda a: np.arange(3.0)),
        array("edges.1", lambda a: a[::-1]), array("edges.1", shorter), array("edges.1", 1, 1e-30),
        array("rounded.0", lambda a: np.ones((1, 1))),
        *(array(f"{MAGNITUDES}.marginal.groups.0", place, 1) for place in (0, 9)),
        *(array(f"{BLOCKS}.marginal.groups.0", place, 1) for place in (0, 8)),
        fact("releases", 1, 0, "marginal", "levels", value=[2]),
        array(f"{ROUND}.marginal.groups.0", lambda a: a[::-1]),
    ],
    "cannot reach": [array(f"{COLUMN}.counts", 0, 2.0**40), array(f"{PAIR}.counts", 0, -(2.0**40))],
    "off the lattice": [array(f"{COLUMN}.counts", lambda a: np.nextafter(a, 1e9))],
    "noise that no release has": [
        fact("releases", 3, 0, "sigma", value=lambda sigma: -sigma),
        *(fact("releases", 4, 0, "sigma", value=value) for value in (1e16, math.inf)),
    ],
    "cannot reach|less noise": [fact("releases", 4, 0, "sigma", value=0.0)],
    "less noise": [fact("releases", 4, 0, "sigma", value=lambda sigma: sigma / 1.5)],
    "numbered one after the other": [
        *(array(f"{BINS}.bins", 0, value) for value in (70, -1, 2**62)),
        array(f"{BINS}.coarse", 0, 50), array(GROUPS, 0, 99),
    ],
    "possible|add up": [array(f"{BINS}.cell_shares", 0, 0.0)],
    "add up to 1": [
        array(f"{BINS}.cell_shares", lambda a: a * 1.01), array(CONDITIONAL, moved_mass),
        array(f"{TREE}.target_shares", lambda a: a / 2), array("rounded.1", lambda a: a * 1.01),
    ],
    "do not form a tree": [
        *(fact("tree", "nodes", value=change) for change in (shorter, lambda n: [n[0], *n[:-1]])),
        *(node(0, column=number) for number in (4, 17)), node(0, parent=5),
        *(node(-1, parent=number) for number in (99, -1)), node(-1, second=17),
    ],
    "potentials that no fit": [array("potentials.0", 0, 700.0)],
    "one marginal twice": [marginal_twice],
    "columns that it does not have": [
        fact("releases", 4, 0, "marginal", "columns", value=columns)
        for columns in ([0, 17], [1, 1], [1])
    ],
    "smaller epsilon": [fact("spent", "epsilon", value=0.5), fact("spent", "delta", value=1e-12)],
    "finite epsilon for a release without noise": [fact("spent", "event", "events", 0, value=FREE)],
    "states no other relation": [
        fact("spent", "event", "events", value=lambda events: [
            event | {"relation": str(Relation.ADD_REMOVE)} for event in events
        ]),
    ],
    "event of type SampledGaussianEvent": [fact("spent", "event", "events", 0, value=SAMPLED)],
    "names an unknown event": [fact("spent", "event", "type", value="Path")],
    "not that of its events": [
        fact("spent", "sigma", value=value)
        for value in (lambda sigmas: [10 * sigma for sigma in sigmas], None, 1.0)
    ],
    "wrong one": [
        *(fact("tree", "target", value=True), fact("spent", "mechanism", value=["x"])),
        fact("spent", "assumptions", value=[1]),
    ],
}  # fmt: skip


@pytest.mark.parametrize("message", LIES)
def test_files_that_contradict_themselves_are_refused(message, path):
    good = TableRecord.of(fitted("pandas")).to_bytes()
    for change in LIES[message]:
        path.write_bytes(change(good))
        with warnings.catch_warnings():
            warnings.simplefilter("error")
            with pytest.raises(ValueError, match=message):
                DPTableSynthesizer.load(path)


def test_noise_just_below_the_statement_is_refused(path):
    """Each release has the precision that its own event pays for; misfits lend none."""
    saved = fitted("pandas")
    record = TableRecord.of(saved)
    *columns, _, tree, _, _, pairs = saved.privacy_spent_.event.events
    assert [release.event for release in saved.releases_] == [*columns, tree, pairs]
    for place, event in enumerate((*columns, tree, pairs)):
        tables = record.releases[place]
        due = (event.sensitivity / event.sigma) ** 2
        assert sum(2 / noisy.sigma**2 for noisy in tables) == pytest.approx(due, rel=1e-9)
        for factor, accepted in ((1 - 1e-6, True), (1 + 1e-6, False)):
            less = tuple(replace(n, sigma=n.sigma / math.sqrt(factor)) for n in tables)
            releases = (*record.releases[:place], less, *record.releases[place + 1 :])
            changed = replace(record, releases=releases)
            if accepted:
                changed.restore()
                continue
            with pytest.raises(ValueError, match="less noise"):
                changed.restore()


def test_what_is_accepted_can_be_drawn_from():
    """The largest potentials are absurd, and draw rows all the same."""
    record = TableRecord.of(fitted("pandas"))
    rng = np.random.default_rng(0)
    absurd = tuple(rng.choice([-600.0, 600.0], len(part)) for part in record.potentials)
    parameters, learned = replace(record, potentials=absurd).restore()
    synthesizer = DPTableSynthesizer(**parameters)
    vars(synthesizer).update(learned)
    assert len(synthesizer.sample(100, random_state=0)) == 100
    assert len(synthesizer.sample(100, {"smokes": True}, random_state=0)) == 100
    columns = synthesizer.quality_report(n_samples=100, random_state=0).columns
    assert columns[["total_variation", "expected", "limit"]].notna().all(axis=None)
