"""Saved synthesizers: bit for bit, and nothing in a foreign file is trusted."""

import io
import json
import math
import pickle
import warnings
import zipfile

import numpy as np
import pandas as pd
import polars as pl
import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st
from sklearn.exceptions import NotFittedError

from skdpot import DPTableSynthesizer, PrivacyBudget, TableSchema
from skdpot.preprocessing import BooleanColumn, CategoricalColumn, DatetimeColumn, NumericColumn
from skdpot.privacy.events import ComposedEvent
from skdpot.privacy.relation import Relation
from skdpot.slicing.record_file import RecordFile
from skdpot.tables.table_file import read_synthesizer
from skdpot.tables.table_record import TableRecord
from tests.tables.table_models import CASES, SCHEMA, fit, fitted, people


@pytest.fixture
def path(tmp_path):
    return tmp_path / "synthesizer.npz"


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
    content = b"".join(unzipped(path).values())
    assert b"ledger" not in content
    assert b"47110815" not in np.void(content).tobytes()
    assert DPTableSynthesizer.load(path).privacy_spent_ == saved.privacy_spent_


def test_an_open_synthesizer_is_not_saved(path):
    with pytest.raises(NotFittedError):
        DPTableSynthesizer().save(path)
    assert not path.exists()


def test_private_rows_are_not_in_the_file(path):
    """Counts and what follows from them, and facts: no array has as many entries as rows."""
    fitted("pandas").save(path)
    with np.load(path) as file:
        content = b"".join(file[name].tobytes() for name in file.files)
        sizes = {name: file[name].size for name in file.files}
    for value in people()["income"].dropna().unique():
        assert np.float64(value).tobytes() not in content
    assert 400 not in sizes.values()


def test_a_schema_beyond_the_limit_is_not_written(path, monkeypatch):
    small = RecordFile(small_format(), TableRecord)
    monkeypatch.setattr("skdpot.estimators._table_outputs.write_synthesizer", small.write)
    with pytest.raises(ValueError, match="a file holds at most 500"):
        fitted("one column").save(path)
    assert not path.exists()


def small_format():
    from dataclasses import replace

    from skdpot.tables import table_file

    return replace(table_file._FORMAT, most_characters=500)


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


def unzipped(path):
    with zipfile.ZipFile(path) as archive:
        return {name: archive.read(name) for name in archive.namelist()}


def rewrite(path, **changes):
    """Replace entries of a file, or remove those that are None."""
    entries = unzipped(path)
    for name, value in changes.items():
        entries.pop(f"{name}.npy", None)
        if value is not None:
            file = io.BytesIO()
            np.save(file, value, allow_pickle=True)
            entries[f"{name}.npy"] = file.getvalue()
    with zipfile.ZipFile(path, "w") as archive:
        for name, content in entries.items():
            archive.writestr(name, content)


def facts_of(path):
    return json.loads(str(np.load(path)["facts"]))


def with_facts(*where, value):
    """Return a function that changes one fact of a file, or removes it if the value is `...`."""

    def change(path):
        facts = facts_of(path)
        inner = facts
        for step in where[:-1]:
            inner = inner[step]
        if value is ...:
            del inner[where[-1]]
        else:
            inner[where[-1]] = value(inner[where[-1]]) if callable(value) else value
        rewrite(path, facts=np.array(json.dumps(facts)))

    return change


def with_array(name, change):
    """Return a function that changes one array of a file."""

    def apply(path):
        rewrite(path, **{name: change(np.load(path)[name].copy())})

    return apply


def put(index, value):
    def change(array):
        array[index] = value
        return array

    return change


class Trap:
    """Raises when it is unpickled."""

    def __reduce__(self):
        return exec, ("raise SystemExit('a pickle was loaded')",)


def less_noise(name):
    return with_array(name, lambda sigmas: sigmas / 1.01)


NODES = "do not form a tree"
TAMPERED = {
    "pickled array": (with_array("bins", lambda _: np.array([Trap()])), "'bins' is no array"),
    "other format": (with_facts("format", value="skdpot.SlicedSketch"), "has format 'skdpot.Sli"),
    "newer version": (with_facts("version", value=2), "version 2"),
    "no facts": (lambda p: rewrite(p, facts=None), "no entry 'facts'"),
    "facts twice": (
        lambda p: rewrite(p, facts=np.array('{"format": 1, "format": 1}')),
        "contradict each other",
    ),
    "a fact less": (with_facts("kind", value=...), "lacks a fact"),
    "an array less": (lambda p: rewrite(p, bins=None), "lacks an array"),
    "an array more": (lambda p: rewrite(p, groups=None, fit=np.zeros(2)), r"unknown \['fit'\]"),
    "single precision": (with_array("potentials", np.float32), "wrong one"),
    "numbers for integers": (with_array("bins", np.float64), "wrong one"),
    "two axes": (with_array("potentials", lambda a: a[:, None]), "wrong one"),
    "NaN": (with_array("column_counts", put(0, np.nan)), "non-finite"),
    "infinity": (with_array("marginal_sigmas", put(0, np.inf)), "non-finite"),
    # ---- facts
    "unknown kind": (with_facts("kind", value="spark"), "unknown kind"),
    "one row": (with_facts("n_samples", value=1), "n_samples"),
    "rows are a number": (with_facts("n_samples", value=400.0), "n_samples"),
    "more rows than counted": (with_facts("n_samples", value=2**60), "n_samples"),
    "epsilon of 0": (with_facts("parameters", "epsilon", value=0), "epsilon that is not > 0"),
    "epsilon is text": (with_facts("parameters", "epsilon", value="1"), "epsilon that is not"),
    "a parameter more": (
        with_facts("parameters", value=lambda given: given | {"budget": 1}),
        "unknown one",
    ),
    "target that is no column": (with_facts("parameters", "target", value="x"), "is no column"),
    "target is a list": (with_facts("parameters", "target", value=[1]), "is no column"),
    "another target": (with_facts("parameters", "target", value="city"), "hang on its target"),
    "no target": (with_facts("parameters", "target", value=None), "hang on its target"),
    "few particles": (with_facts("parameters", "n_particles", value=1), "n_particles"),
    "names are numbers": (with_facts("feature_names", value=[1] * 6), "not those of its schema"),
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
    "a count less": (with_array("column_counts", lambda a: a[:-1]), "do not fit"),
    "unreachable": (with_array("column_counts", put(0, 2.0**40)), "cannot reach"),
    "off the lattice": (with_array("column_counts", lambda a: np.nextafter(a, 1e9)), "lattice"),
    "unreachable pair": (with_array("marginal_counts", put(0, -(2.0**40))), "cannot reach"),
    "negative noise": (with_array("column_sigmas", lambda a: -a), "noise that no release has"),
    "a noise less": (with_array("marginal_sigmas", lambda a: a[:-1]), "noise that no release"),
    "huge noise": (with_array("marginal_sigmas", put(0, 1e16)), "noise that no release has"),
    "no noise": (with_array("marginal_sigmas", lambda a: a * 0), "cannot reach|less noise"),
    "less noise than charged": (with_array("marginal_sigmas", lambda a: a / 1.1), "less noise"),
    # ---- bins
    "bins with a gap": (with_array("bins", put(0, 70)), "numbered one after the other"),
    "negative bin": (with_array("bins", put(0, -1)), "numbered one after the other"),
    "huge bin": (with_array("bins", put(0, 2**62)), "numbered one after the other"),
    "groups with a gap": (with_array("coarse", put(0, 50)), "numbered one after the other"),
    "a group less": (with_array("coarse", lambda a: a[:-1]), "do not fit"),
    "impossible cell": (with_array("cell_shares", put(0, 0.0)), "possible|add up"),
    "shares beyond 1": (with_array("cell_shares", lambda a: a * 1.01), "add up to 1"),
    "groups of marginals": (with_array("groups", put(0, 9)), "numbered one after the other"),
    # ---- the tree
    "odd nodes": (with_array("nodes", lambda a: a[:-1]), NODES),
    "a node less": (with_array("nodes", lambda a: a[:-2]), NODES),
    "a node twice": (with_array("nodes", lambda a: np.concatenate((a[:2], a[:-2]))), NODES),
    "the target in the tree": (with_array("nodes", put(0, 4)), NODES),
    "an unknown column": (with_array("nodes", put(0, 17)), NODES),
    "a parent that comes later": (with_array("nodes", put(1, 5)), NODES),
    "a parent of its own": (with_array("nodes", lambda a: put(-1, a[-2])(a)), NODES),
    "an unknown parent": (with_array("nodes", put(-1, 99)), NODES),
    "target of the tree": (with_facts("tree_target", value=99), "target that is no column"),
    "target of the tree is true": (with_facts("tree_target", value=True), "is no column"),
    "distributions beyond 1": (with_array("conditionals", lambda a: a * 2), "add up to 1"),
    "negative distributions": (
        with_array("conditionals", lambda a: put(slice(0, 2), [-0.5, a[0] + a[1] + 0.5])(a)),
        "add up to 1",
    ),
    "a probability less": (with_array("conditionals", lambda a: a[:-1]), "do not fit"),
    "shares of the target": (with_array("target_shares", lambda a: a / 2), "add up to 1"),
    # ---- marginals
    "huge potentials": (with_array("potentials", put(0, 700.0)), "potentials that no fit"),
    "a potential more": (with_array("potentials", lambda a: np.append(a, 0)), "do not fit"),
    "a marginal twice": (
        with_facts("marginals", value=lambda m: [m[0], *m[:-1]]),
        "one marginal twice",
    ),
    "an unknown column in a marginal": (
        with_facts("marginals", 0, "columns", value=[0, 17]),
        "columns that it does not have",
    ),
    "a column against itself": (
        with_facts("marginals", 0, "columns", value=[1, 1]),
        "columns that it does not have",
    ),
    "a marginal of one column": (
        with_facts("marginals", 0, "columns", value=[1]),
        "columns that it does not have",
    ),
    "levels are text": (with_facts("marginals", 0, "levels", value="ab"), "does not have"),
    "marginals are a number": (with_facts("marginals", value=3), "lacks an entry"),
    # ---- the statement
    "smaller epsilon than paid": (with_facts("spent", "epsilon", value=0.5), "smaller epsilon"),
    "smaller delta than paid": (with_facts("spent", "delta", value=1e-12), "smaller epsilon"),
    "no noise in one place": (
        with_facts("spent", "event", "events", 0, value={"type": "NonPrivateEvent",
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
            value=lambda event: {"type": "PoissonGaussianEvent", "sampling_rate": 0.01,
                                 "n_steps": 10**9, "sigma": 1.0, "sensitivity": 1.0,
                                 "relation": str(Relation.REPLACE_ONE)},
        ),
        "and nothing else",
    ),
    "unknown event": (with_facts("spent", "event", "type", value="Path"), "event that is not"),
    "more noise in words": (
        with_facts("spent", "sigma", value=lambda sigmas: [10 * s for s in sigmas]),
        "not that of its events",
    ),
    "no noise in words": (with_facts("spent", "sigma", value=None), "not that of its events"),
    "sigma is a number": (with_facts("spent", "sigma", value=1.0), "not that of its events"),
    "assumptions are numbers": (with_facts("spent", "assumptions", value=[1]), "wrong types"),
    "mechanism is a list": (with_facts("spent", "mechanism", value=["x"]), "wrong types"),
}  # fmt: skip


@pytest.mark.parametrize("change", TAMPERED)
def test_tampered_files_are_refused(change, path):
    tamper, text = TAMPERED[change]
    fitted("pandas").save(path)
    tamper(path)
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        with pytest.raises(ValueError, match=text):
            DPTableSynthesizer.load(path)


def test_noise_just_below_the_statement_is_refused(path):
    """The precision of pairs is what their two releases have; misfits and columns lend none."""
    saved = fitted("pandas")
    record = TableRecord.of(saved)
    columns, _, tree, _, pairs = saved.privacy_spent_.event.events
    for name, charged in (("column_sigmas", [columns]), ("marginal_sigmas", [tree, pairs])):
        sigmas = record.arrays[name]
        due = sum((event.sensitivity / event.sigma) ** 2 for event in charged)
        spare = due / (2 / sigmas**2).sum()
        assert spare == pytest.approx(1.0, abs=1e-9)
        for factor, accepted in ((1 - 1e-6, True), (1 + 1e-6, False)):
            arrays = record.arrays | {name: sigmas / math.sqrt(spare * factor)}
            changed = TableRecord(record.facts, arrays)
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
        DPTableSynthesizer.load(tmp_path / "nothing.npz")


def test_facts_and_arrays_of_different_synthesizers_do_not_mix(path):
    records = {name: TableRecord.of(fitted(name)) for name in ("pandas", "polars", "left out")}
    for one in records:
        for other in records:
            if one != other:
                with pytest.raises(ValueError, match="synthesizer"):
                    TableRecord(records[one].facts, records[other].arrays).restore()


def test_what_is_accepted_can_be_drawn_from(path):
    """The largest potentials and shares of 0 are absurd, and draw rows all the same."""
    record = TableRecord.of(fitted("pandas"))
    arrays = dict(record.arrays)
    rng = np.random.default_rng(0)
    arrays["potentials"] = rng.choice([-600.0, 600.0], len(arrays["potentials"]))
    parameters, learned = TableRecord(record.facts, arrays).restore()
    synthesizer = DPTableSynthesizer(**parameters)
    vars(synthesizer).update(learned)
    assert len(synthesizer.sample(100, random_state=0)) == 100
    assert len(synthesizer.sample(100, {"smokes": True}, random_state=0)) == 100
    columns = synthesizer.quality_report(n_samples=100, random_state=0).columns
    assert columns[["total_variation", "expected", "limit"]].notna().all(axis=None)


def test_reading_returns_parameters_and_what_was_learned(path):
    fitted("array").save(path)
    parameters, learned = read_synthesizer(path)
    assert set(parameters) == {"schema", "epsilon", "delta", "target", "n_particles"}
    assert parameters["schema"] is None
    assert "feature_names_in_" not in learned
