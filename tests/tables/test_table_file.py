"""Saved synthesizers: bit for bit, and nothing in a foreign file is trusted."""

import math
import pickle
import warnings
from dataclasses import replace

import numpy as np
import pandas as pd
import polars as pl
import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st
from sklearn.exceptions import NotFittedError

from skdpot import DPTableSynthesizer, PrivacyBudget, TableSchema
from skdpot.preprocessing import BooleanColumn, CategoricalColumn, DatetimeColumn, NumericColumn
from skdpot.privacy.events import ComposedEvent, Relation
from skdpot.release.release import first_difference
from skdpot.tables.record import TableRecord
from tests.contract.hostile_files import arrays_of, facts_of, forged
from tests.tables.table_models import CASES, SCHEMA, fit, fitted, people


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
    assert loaded.privacy_spent_ == saved.privacy_spent_
    assert str(loaded.privacy_spent_) == str(saved.privacy_spent_)
    assert loaded.schema_ == saved.schema_
    assert (loaded.n_samples_, loaded.n_features_in_) == (saved.n_samples_, saved.n_features_in_)
    if hasattr(saved, "feature_names_in_"):
        assert loaded.feature_names_in_.tolist() == saved.feature_names_in_.tolist()
        assert loaded.feature_names_in_.dtype == saved.feature_names_in_.dtype
    for attribute in ("epsilon", "delta", "target", "n_particles", "schema"):
        assert getattr(loaded, attribute) == getattr(saved, attribute)
    reports = [s.quality_report(n_samples=100, random_state=2) for s in (saved, loaded)]
    pd.testing.assert_frame_equal(reports[0].columns, reports[1].columns, check_exact=True)
    pd.testing.assert_frame_equal(reports[0].pairs, reports[1].pairs, check_exact=True)
    assert reports[0].cautions == reports[1].cautions
    # A loaded synthesizer is an estimator like any other.
    assert_same(rows, reloaded(loaded, path).sample(300, random_state=1))


def test_conditions_hold_after_loading(path):
    loaded = reloaded(fitted("pandas"), path)
    rows = loaded.sample(200, conditions={"city": "Graz", "age": (30, 40)}, random_state=0)
    assert set(rows["city"]) == {"Graz"}
    assert rows["age"].between(30, 40).all()
    with pytest.raises(ValueError, match="feature names should match"):
        loaded.score(people()[["city"]])


def test_a_loaded_synthesizer_can_be_fitted_again(path):
    loaded = reloaded(fitted("pandas"), path)
    assert (loaded.budget, loaded.random_state, loaded.verbose) == (None, None, 0)
    assert loaded.set_params(random_state=0).get_params()["schema"] == SCHEMA
    again = fit(people(), **{"schema": loaded.schema, "target": loaded.target})
    assert_same(again.sample(50, random_state=0), fitted("pandas").sample(50, random_state=0))


def test_events_with_categories_survive(path):
    event = reloaded(fitted("open schema"), path).privacy_spent_.event
    assert isinstance(event, ComposedEvent)
    assert event == fitted("open schema").privacy_spent_.event
    assert "ThresholdedCountsEvent" in repr(event)


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
    for value in people()["income"].dropna().unique():
        assert np.float64(value).tobytes() not in content
    assert 400 not in sizes.values()


def test_a_schema_beyond_the_limit_is_not_written(path, monkeypatch):
    monkeypatch.setattr(TableRecord, "most_header", 500)
    with pytest.raises(ValueError, match="may have at most 500"):
        fitted("one column").save(path)
    assert not path.exists()


def test_equal_synthesizers_are_equal_bytes(path):
    saved = fitted("pandas")
    saved.save(path)
    content = path.read_bytes()
    DPTableSynthesizer.load(path).save(path)
    assert path.read_bytes() == content


# ------------------------------------------------------------------- all small schemas


@st.composite
def columns(draw, name):
    """Draw a column and a strategy for its values."""
    missing = draw(st.booleans())
    kind = draw(st.sampled_from(["integer", "float", "log", "text", "ordered", "bool", "date"]))
    if kind in ("integer", "float", "log"):
        lower = draw(st.integers(-1000, 1000))
        upper = lower + draw(st.integers(0, 2000))
        values = st.integers(lower, upper) if kind == "integer" else st.floats(lower, upper)
        column = NumericColumn(
            name,
            lower=lower,
            upper=upper,
            integer=kind == "integer",
            log_scale=kind == "log",
            missing=missing,
        )
    elif kind in ("text", "ordered"):
        levels = draw(st.lists(st.text("abcé'\"<", min_size=1), min_size=1, unique=True))
        other = draw(st.sampled_from([None, "z"]))
        column = CategoricalColumn(
            name, categories=levels, ordered=kind == "ordered", other=other, missing=missing
        )
        values = st.sampled_from(levels)
    elif kind == "bool":
        column, values = BooleanColumn(name, missing=missing), st.booleans()
    else:
        column = DatetimeColumn(
            name, lower="2020-01-01", upper="2020-03-01", resolution="h", missing=missing
        )
        values = st.integers(0, 1440).map(lambda h: pd.Timestamp("2020-01-01") + h * HOUR)
    return column, (st.none() | values if missing else values)


HOUR = pd.Timedelta(hours=1)
DTYPES = {"numeric": "Float64", "categorical": "object", "boolean": "boolean"}


@st.composite
def tables(draw):
    """Draw a schema and a table that it describes."""
    names = draw(st.lists(st.text("xyz ü", min_size=1), min_size=1, max_size=3, unique=True))
    described = [draw(columns(name)) for name in names]
    n_rows = draw(st.integers(2, 12))
    data = {}
    for column, values in described:
        drawn = draw(st.lists(values, min_size=n_rows, max_size=n_rows))
        dtype = DTYPES.get(column.kind, "datetime64[s]")
        if column.kind == "numeric" and column.integer:
            dtype = "Int64"
        data[column.name] = pd.Series(drawn, dtype=dtype)
    return TableSchema([column for column, _ in described]), pd.DataFrame(data)


@settings(
    max_examples=40,
    deadline=None,
    derandomize=True,
    suppress_health_check=[HealthCheck.function_scoped_fixture, HealthCheck.too_slow],
)
@given(tables(), st.booleans(), st.sampled_from([0.5, 20.0, math.inf]))
def test_any_small_table_comes_back(path, table, has_target, epsilon):
    schema, frame = table
    target = schema.names[-1] if has_target else None
    saved = fit(frame, schema=schema, target=target, epsilon=epsilon, n_particles=100)
    loaded = reloaded(saved, path)
    assert_same(saved.sample(20, random_state=0), loaded.sample(20, random_state=0))
    assert loaded.privacy_spent_ == saved.privacy_spent_
    report = loaded.quality_report(n_samples=30, random_state=0)
    assert report.columns["total_variation"].between(0, 1).all()


# ------------------------------------------------------------------- hostile files


def with_facts(*where, value):
    """Return a function that changes one fact of a file, or removes it if the value is `...`."""

    def change(good):
        facts = facts_of(good)
        inner = facts
        for step in where[:-1]:
            inner = inner[step]
        if value is ...:
            del inner[where[-1]]
        else:
            inner[where[-1]] = value(inner[where[-1]]) if callable(value) else value
        return forged(good, facts)

    return change


def with_array(name, change):
    """Return a function that changes one array of a file."""
    return lambda good: forged(good, arrays={name: change(arrays_of(good)[name].copy())})


def with_marginal(*where, value):
    return with_facts("releases", 1, 0, "marginal", *where, value=value)


def marginal_twice(good):
    """Say the first marginal twice, with counts and all."""
    facts, arrays = facts_of(good), arrays_of(good)
    facts["releases"][1][1] = facts["releases"][1][0]
    for name in list(arrays):
        if name.startswith(old := "releases.1.0"):
            arrays[f"releases.1.1{name[len(old) :]}"] = arrays[name]
    return forged(good, facts, arrays)


def put(index, value):
    def change(array):
        array[index] = value
        return array

    return change


class Trap:
    """Raises when it is unpickled."""

    def __reduce__(self):
        return exec, ("raise SystemExit('a pickle was loaded')",)


NODES = "do not form a tree"
COLUMN, PAIR, BINS, TREE = "releases.0.0", "releases.1.0", "bins.0", "tree"
GROUPS = f"{PAIR}.marginal.groups.0"
TAMPERED = {
    "other kind": (
        lambda good: forged(good, kind="skdpot.SlicedSketch"),
        "holds 'skdpot.SlicedSketch' version 1; expected 'skdpot.DPTableSynthesizer' version 1",
    ),
    "newer version": (lambda good: forged(good, version=2), "version 2; expected"),
    "a fact less": (with_facts("makes", value=...), "lacks"),
    "an array less": (lambda good: forged(good, arrays={f"{BINS}.bins": ...}), "lacks an entry"),
    "an array more": (lambda good: forged(good, arrays={"fit": np.zeros(2)}), "unknown arrays"),
    "numbers for integers": (with_array(f"{BINS}.bins", np.float64), "wrong one"),
    "integers for numbers": (with_array("potentials.0", np.int64), "wrong one"),
    "two axes": (with_array("potentials.0", lambda a: a[:, None]), "do not fit"),
    "NaN": (with_array(f"{COLUMN}.counts", put(0, np.nan)), "non-finite"),
    "infinity": (with_facts("releases", 1, 0, "sigma", value=math.inf), "noise that no release"),
    # ---- facts
    "unknown kind": (with_facts("makes", value="spark"), "unknown kind"),
    "one row": (with_facts("n_rows", value=1), "n_rows"),
    "rows are a number": (with_facts("n_rows", value=400.0), "wrong one"),
    "more rows than counted": (with_facts("n_rows", value=2**60), "n_rows"),
    "epsilon of 0": (with_facts("epsilon", value=0), "epsilon that is not > 0"),
    "epsilon is text": (with_facts("epsilon", value="1"), "wrong one"),
    "a parameter more": (
        lambda good: forged(good, facts_of(good) | {"budget": 1}), "1 unknown"
    ),
    "target that is no column": (with_facts("target", value="x"), "is no column"),
    "target is a list": (with_facts("target", value=[1]), "wrong one"),
    "another target": (with_facts("target", value="city"), "hang on its target"),
    "no target": (with_facts("target", value=None), "hang on its target"),
    "few particles": (with_facts("n_particles", value=1), "n_particles"),
    "names are numbers": (with_facts("feature_names", value=[1] * 6), "wrong one"),
    "names in another order": (
        with_facts("feature_names", value=lambda names: names[::-1]),
        "not those of its schema",
    ),
    "no names": (with_facts("feature_names", value=None), "not those of its schema"),
    # ---- the schema
    "no schema": (with_facts("schema", value={}), "lacks an entry"),
    "schema is text": (with_facts("schema", value="{}"), "lacks an entry"),
    "no columns": (with_facts("schema", "columns", value=[]), "no columns"),
    "many columns": (with_facts("schema", "columns", value=[1] * 5000), "more than 4096"),
    "open bounds": (with_facts("schema", "columns", 0, "lower", value=None), "leaves bounds"),
    "unknown column kind": (with_facts("schema", "columns", 0, "kind", value="x"), "unknown kind"),
    "other bounds": (with_facts("schema", "columns", 0, "upper", value=200), "do not fit"),
    "a category more": (
        with_facts("schema", "columns", 2, "categories", value=["a", "b", "c", "d", "e", "f"]),
        "do not fit",
    ),
    "given schema is no schema": (with_facts("given_schema", value={"columns": [1]}), "schema"),
    # ---- counts and noise
    "a count less": (with_array(f"{COLUMN}.counts", lambda a: a[:-1]), "do not fit"),
    "unreachable": (with_array(f"{COLUMN}.counts", put(0, 2.0**40)), "cannot reach"),
    "off the lattice": (with_array(f"{COLUMN}.counts", lambda a: np.nextafter(a, 1e9)), "lattice"),
    "unreachable pair": (with_array(f"{PAIR}.counts", put(0, -(2.0**40))), "cannot reach"),
    "negative noise": (with_facts("releases", 0, 0, "sigma", value=lambda s: -s), "noise that no"),
    "a column less": (with_facts("releases", 0, value=lambda c: c[1:]), "lacks an entry|unknown"),
    "another place": (with_facts("releases", 0, 0, "marginal", "columns", value=[1]), "do not fit"),
    "joined cells": (with_array(f"{COLUMN}.marginal.groups.0", put(0, 1)), "do not fit"),
    "huge noise": (with_facts("releases", 1, 0, "sigma", value=1e16), "noise that no release has"),
    "no noise": (with_facts("releases", 1, 0, "sigma", value=0.0), "cannot reach|less noise"),
    "less noise than charged": (
        with_facts("releases", 1, 0, "sigma", value=lambda s: s / 1.5), "less noise"
    ),
    # ---- bins
    "bins with a gap": (with_array(f"{BINS}.bins", put(0, 70)), "numbered one after the other"),
    "negative bin": (with_array(f"{BINS}.bins", put(0, -1)), "numbered one after the other"),
    "huge bin": (with_array(f"{BINS}.bins", put(0, 2**62)), "numbered one after the other"),
    "groups with a gap": (with_array(f"{BINS}.coarse", put(0, 50)), "numbered one after the other"),
    "a group less": (with_array(f"{BINS}.coarse", lambda a: a[:-1]), "do not fit"),
    "impossible cell": (with_array(f"{BINS}.cell_shares", put(0, 0.0)), "possible|add up"),
    "shares beyond 1": (with_array(f"{BINS}.cell_shares", lambda a: a * 1.01), "add up to 1"),
    "groups of marginals": (with_array(GROUPS, put(0, 99)), "numbered one after the other"),
    "a group of marginals less": (with_array(GROUPS, lambda a: a[:-1]), "do not fit"),
    # ---- the tree
    "a node less": (with_facts("tree", "nodes", value=lambda n: n[:-1]), NODES),
    "a node twice": (with_facts("tree", "nodes", value=lambda n: [n[0], *n[:-1]]), NODES),
    "the target in the tree": (with_facts("tree", "nodes", 0, "column", value=4), NODES),
    "an unknown column": (with_facts("tree", "nodes", 0, "column", value=17), NODES),
    "a parent that comes later": (with_facts("tree", "nodes", 0, "parent", value=5), NODES),
    "a parent of its own": (
        with_facts("tree", "nodes", -1, value=lambda n: n | {"parent": n["column"]}), NODES
    ),
    "an unknown parent": (with_facts("tree", "nodes", -1, "parent", value=99), NODES),
    "a parent before all": (with_facts("tree", "nodes", -1, "parent", value=-1), NODES),
    "target of the tree": (with_facts("tree", "target", value=99), "hang on its target"),
    "target of the tree is true": (with_facts("tree", "target", value=True), "wrong one"),
    "distributions beyond 1": (
        with_array(f"{TREE}.conditionals.0", lambda a: a * 2), "add up to 1"
    ),
    "negative distributions": (
        with_array(
            f"{TREE}.conditionals.0",
            lambda a: put((0, 0, slice(0, 2)), [-0.5, a[0, 0, :2].sum() + 0.5])(a),
        ),
        "add up to 1",
    ),
    "a probability less": (
        with_array(f"{TREE}.conditionals.0", lambda a: a[..., :-1]), "do not fit"
    ),
    "shares of the target": (with_array(f"{TREE}.target_shares", lambda a: a / 2), "add up to 1"),
    # ---- marginals
    "huge potentials": (with_array("potentials.0", put(0, 700.0)), "potentials that no fit"),
    "a potential more": (with_array("potentials.0", lambda a: np.append(a, 0)), "do not fit"),
    "a marginal twice": (marginal_twice, "one marginal twice"),
    "an unknown column in a marginal": (
        with_marginal("columns", value=[0, 17]), "columns that it does not have"
    ),
    "a column against itself": (
        with_marginal("columns", value=[1, 1]), "columns that it does not have"
    ),
    "a marginal of one column": (
        with_marginal("columns", value=[1]), "columns that it does not have"
    ),
    "levels are text": (with_marginal("levels", value="ab"), "wrong one"),
    "marginals are a number": (with_facts("releases", 1, value=3), "wrong one"),
    # ---- the statement
    "smaller epsilon than paid": (with_facts("spent", "epsilon", value=0.5), "smaller epsilon"),
    "smaller delta than paid": (with_facts("spent", "delta", value=1e-12), "smaller epsilon"),
    "no noise in one place": (
        with_facts("spent", "event", "events", 0, value={"type": "NonPrivateEvent", "label": "",
                   "relation": str(Relation.REPLACE_ONE)}),
        "finite epsilon for a release without noise",
    ),
    "another relation": (
        with_facts(
            "spent", "event", "events",
            value=lambda events: [e | {"relation": str(Relation.ADD_REMOVE)} for e in events],
        ),
        "states no other relation",
    ),
    "another event": (
        with_facts(
            "spent", "event", "events", 0,
            value=lambda event: {"type": "SampledGaussianEvent", "sampling": "poisson",
                                 "sampling_rate": 0.01,
                                 "n_steps": 10**9, "sigma": 1.0, "sensitivity": 1.0,
                                 "clipped_sum": False, "lattice": None, "label": "",
                                 "n_samples": None, "batch_sizes": None, "group_sizes": None,
                                 "relation": str(Relation.REPLACE_ONE)},
        ),
        "event of type SampledGaussianEvent",
    ),
    "unknown event": (with_facts("spent", "event", "type", value="Path"), "names an unknown event"),
    "more noise in words": (
        with_facts("spent", "sigma", value=lambda sigmas: [10 * s for s in sigmas]),
        "not that of its events",
    ),
    "no noise in words": (with_facts("spent", "sigma", value=None), "not that of its events"),
    "sigma is a number": (with_facts("spent", "sigma", value=1.0), "not that of its events"),
    "assumptions are numbers": (with_facts("spent", "assumptions", value=[1]), "wrong one"),
    "mechanism is a list": (with_facts("spent", "mechanism", value=["x"]), "wrong one"),
}  # fmt: skip


@pytest.mark.parametrize("change", TAMPERED)
def test_tampered_files_are_refused(change, path):
    tamper, text = TAMPERED[change]
    fitted("pandas").save(path)
    path.write_bytes(tamper(path.read_bytes()))
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        with pytest.raises(ValueError, match=text):
            DPTableSynthesizer.load(path)


def test_noise_just_below_the_statement_is_refused(path):
    """Each release has the precision that its own event pays for; misfits lend none."""
    saved = fitted("pandas")
    record = TableRecord.of(saved)
    columns, _, tree, _, pairs = saved.privacy_spent_.event.events
    assert [release.event for release in saved.releases_] == [columns, tree, pairs]
    for place, event in enumerate((columns, tree, pairs)):
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


@pytest.mark.parametrize(
    "content",
    [b"", b"hello", pickle.dumps(Trap()), b"PK\x03\x04 but not really"],
    ids=["empty", "text", "pickle", "broken archive"],
)
def test_other_files_are_refused(content, path):
    path.write_bytes(content)
    with pytest.raises(ValueError, match="is not a synthesizer, or it is damaged"):
        DPTableSynthesizer.load(path)


def test_a_directory_and_a_missing_file_are_no_synthesizer(tmp_path):
    with pytest.raises(OSError, match="."):
        DPTableSynthesizer.load(tmp_path)
    with pytest.raises(FileNotFoundError):
        DPTableSynthesizer.load(tmp_path / "nothing.safetensors")


def test_facts_and_arrays_of_different_synthesizers_do_not_mix(path):
    written = {name: TableRecord.of(fitted(name)).to_bytes() for name in ("pandas", "left out")}
    for one, other in (("pandas", "left out"), ("left out", "pandas")):
        arrays = dict.fromkeys(arrays_of(written[one]), ...) | arrays_of(written[other])
        with pytest.raises(ValueError, match="synthesizer"):
            TableRecord.from_bytes(forged(written[one], arrays=arrays)).restore()


def test_what_is_accepted_can_be_drawn_from(path):
    """The largest potentials and shares of 0 are absurd, and draw rows all the same."""
    record = TableRecord.of(fitted("pandas"))
    rng = np.random.default_rng(0)
    absurd = tuple(rng.choice([-600.0, 600.0], len(part)) for part in record.potentials)
    record = replace(record, potentials=absurd)
    parameters, learned = record.restore()
    synthesizer = DPTableSynthesizer(**parameters)
    vars(synthesizer).update(learned)
    assert len(synthesizer.sample(100, random_state=0)) == 100
    assert len(synthesizer.sample(100, {"smokes": True}, random_state=0)) == 100
    columns = synthesizer.quality_report(n_samples=100, random_state=0).columns
    assert columns[["total_variation", "expected", "limit"]].notna().all(axis=None)


def test_reading_returns_parameters_and_what_was_learned(path):
    fitted("array").save(path)
    parameters, learned = TableRecord.load(path).restore()
    assert set(parameters) == {"schema", "epsilon", "delta", "target", "n_particles"}
    assert parameters["schema"] is None
    assert "feature_names_in_" not in learned
