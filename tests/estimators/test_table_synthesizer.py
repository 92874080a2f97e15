"""DPTableSynthesizer as its users see it: tables in, tables out, of the same kind."""

import io
import math
import warnings
from pathlib import Path

import numpy as np
import pandas as pd
import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st
from sklearn.base import clone
from sklearn.pipeline import make_pipeline
from sklearn.preprocessing import FunctionTransformer

from skdpot import DPTableSynthesizer
from skdpot.exceptions import PrivacyWarning
from skdpot.preprocessing import (
    BooleanColumn,
    CategoricalColumn,
    DatetimeColumn,
    NumericColumn,
    TableEncoder,
    TableSchema,
)
from tests.estimators.table_examples import SCHEMA, example_table

# That there is much noise, or none, is no news here.
pytestmark = [
    pytest.mark.filterwarnings("ignore:Private bounds:skdpot.exceptions.PrivacyWarning"),
    pytest.mark.filterwarnings("ignore:The table is too small:skdpot.exceptions.PrivacyWarning"),
    pytest.mark.filterwarnings("ignore:.*makes the privacy noise:skdpot.exceptions.PrivacyWarning"),
]
TABLE = example_table(1500)
QUICK = {"schema": SCHEMA, "epsilon": 5.0, "n_particles": 1000}


def fitted(table=TABLE, **options):
    return DPTableSynthesizer(**QUICK | options).fit(table)


@pytest.fixture(scope="module")
def synthesizer():
    return fitted(target="member")


def polars_table():
    import polars as pl

    sizes = pl.Enum(["S", "M", "L"])
    return pl.DataFrame(
        {
            name: TABLE[name].astype(object).where(TABLE[name].notna(), None).tolist()
            for name in TABLE
        },
        schema_overrides={"size": sizes, "visit": pl.Date, "age": pl.Int8},
    )


# --- what goes in and what comes out ------------------------------------------------------------


def test_the_table_has_the_same_columns_types_and_categories(synthesizer):
    drawn = synthesizer.sample(200)
    assert isinstance(drawn, pd.DataFrame)
    assert drawn.shape == (200, TABLE.shape[1])
    pd.testing.assert_series_equal(drawn.dtypes, TABLE.dtypes)
    assert list(drawn.index) == list(range(200))
    assert drawn["size"].cat.categories.tolist() == ["S", "M", "L"]
    assert drawn["size"].cat.ordered


def test_values_are_those_that_the_schema_allows(synthesizer):
    drawn = synthesizer.sample(5000)
    assert drawn["age"].between(18, 90).all()
    assert drawn["income"].dropna().between(0, 1e6).all()
    assert set(drawn["town"]) <= {"Alba", "Bra", "Como", "elsewhere"}
    assert drawn["visit"].dropna().between("2024-01-01", "2024-12-31").all()
    assert (drawn["visit"].dropna() == drawn["visit"].dropna().dt.floor("D")).all()
    assert set(drawn["member"]) == {True, False}
    for name in ("age", "town", "member"):
        assert not drawn[name].isna().any()
    assert drawn["score"].isna().any()


NULLABLE = {
    "age": "Int16", "income": "Float32", "town": "string", "member": "boolean", "score": "Int64",
}  # fmt: skip


def test_nullable_types_come_back():
    table = TABLE.astype(NULLABLE)
    drawn = fitted(table).sample(300)
    pd.testing.assert_series_equal(drawn.dtypes, table.dtypes)


def test_polars_in_polars_out():
    pytest.importorskip("polars")
    table = polars_table()
    drawn = fitted(table).sample(300)
    assert type(drawn) is type(table)
    assert drawn.schema == table.schema
    assert drawn.height == 300
    assert drawn["score"].null_count() > 0


def test_arrays_in_arrays_out():
    rows = np.random.default_rng(0).normal(size=(300, 3))
    synthesizer = DPTableSynthesizer(n_particles=500).fit(rows)
    drawn = synthesizer.sample(20)
    assert isinstance(drawn, np.ndarray)
    assert drawn.shape == (20, 3)
    assert not hasattr(synthesizer, "feature_names_in_")
    assert synthesizer.n_features_in_ == 3
    assert synthesizer.schema_.names == ("x0", "x1", "x2")


def test_the_order_of_the_columns_is_that_of_the_table():
    names = list(TABLE.columns)[::-1]
    assert list(fitted(TABLE[names]).sample(3).columns) == names


def test_excluded_columns_are_left_out():
    table = TABLE.assign(name="somebody")
    schema = TableSchema(SCHEMA, excluded=["name"])
    synthesizer = fitted(table, schema=schema)
    assert list(synthesizer.sample(3).columns) == list(TABLE.columns)
    assert -1 <= synthesizer.score(table) <= 0


def test_a_schema_may_be_the_path_of_a_file(tmp_path):
    path = tmp_path / "schema.json"
    SCHEMA.to_json(path)
    for given_path in (path, str(path)):
        assert fitted(schema=given_path).schema_.names == SCHEMA.names


def test_without_a_schema_all_is_estimated():
    table = TABLE[["age", "town", "visit", "member", "size"]]
    synthesizer = DPTableSynthesizer(epsilon=8.0, n_particles=1000).fit(table)
    assert synthesizer.schema_.is_resolved
    drawn = synthesizer.sample(500)
    pd.testing.assert_series_equal(drawn.dtypes.map(str), table.dtypes.map(str))
    assert {"Alba", "Bra"} <= set(drawn["town"])
    assert set(drawn["size"].cat.categories) == {"S", "M", "L", "other"}  # selected by counts
    assert -20 < drawn["age"].min() < drawn["age"].max() < 200


def test_attributes(synthesizer):
    assert synthesizer.n_samples_ == len(TABLE)
    assert synthesizer.n_features_in_ == TABLE.shape[1]
    assert synthesizer.feature_names_in_.tolist() == list(TABLE.columns)
    assert synthesizer.schema_.is_resolved
    assert synthesizer.privacy_spent_.epsilon == 5.0
    alone = synthesizer.marginals_[: TABLE.shape[1]]
    assert [noisy.marginal.columns for noisy in alone] == [(j,) for j in range(TABLE.shape[1])]
    assert len(synthesizer.marginals_) > TABLE.shape[1]
    for noisy in synthesizer.marginals_:
        assert noisy.counts.shape == (noisy.marginal.n_cells,)
        assert noisy.sigma > 0
        assert np.isfinite(noisy.counts).all()


# --- sampling -----------------------------------------------------------------------------------


@pytest.mark.parametrize("n_samples", [1, 2, 7, 6000, 25_000])
def test_as_many_rows_as_wanted(synthesizer, n_samples):
    assert len(synthesizer.sample(n_samples)) == n_samples


def test_one_row_by_default(synthesizer):
    assert synthesizer.sample().shape == (1, TABLE.shape[1])


@pytest.mark.parametrize("wrong", [0, -1, 2.5, "3", None, True])
def test_a_number_of_rows_is_a_positive_integer(synthesizer, wrong):
    with pytest.raises((ValueError, TypeError), match="n_samples"):
        synthesizer.sample(wrong)


def test_samples_differ_unless_a_seed_is_given(synthesizer):
    first, second = (synthesizer.sample(100, random_state=3) for _ in range(2))
    pd.testing.assert_frame_equal(first, second)
    assert not synthesizer.sample(100).equals(synthesizer.sample(100))
    assert not first.equals(synthesizer.sample(100, random_state=4))


def test_sampling_changes_nothing(synthesizer):
    before = dict(vars(synthesizer))
    synthesizer.sample(50, {"member": True})
    synthesizer.score(TABLE)
    assert vars(synthesizer) == before


def test_sampling_before_fit():
    from sklearn.exceptions import NotFittedError

    for call in ("sample", "score"):
        with pytest.raises(NotFittedError):
            getattr(DPTableSynthesizer(), call)(3)


INTERVALS = {
    "age": (st.integers(10, 99), lambda x: x),
    "income": (st.floats(-10.0, 1.2e6), lambda x: x),
    "visit": (
        st.dates(pd.Timestamp("2023-12-01").date(), pd.Timestamp("2025-01-31").date()),
        pd.Timestamp,
    ),
    "score": (st.integers(-2, 12), lambda x: x),
}
LISTS = {
    "town": ["Alba", "Bra", "Como", "elsewhere"],
    "size": ["S", "M", "L"],
    "member": [True, False],
}


@st.composite
def conditions(draw):
    wanted = {}
    for name, (numbers, _) in INTERVALS.items():
        kind = draw(st.sampled_from(["none", "none", "both", "lower", "upper", "missing"]))
        lower, upper = sorted((draw(numbers), draw(numbers)))
        if kind == "missing" and SCHEMA[name].missing:
            wanted[name] = None
        elif kind in ("both", "lower", "upper"):
            wanted[name] = (
                lower if kind != "upper" else None,
                upper if kind != "lower" else None,
            )
    for name, values in LISTS.items():
        if draw(st.booleans()):
            listed = draw(st.lists(st.sampled_from(values), min_size=1, max_size=2))
            wanted[name] = listed if draw(st.booleans()) else listed[0]
    return wanted


def check_conditions(drawn, wanted):
    for name, condition in wanted.items():
        values = drawn[name]
        if condition is None:
            assert values.isna().all(), name
        elif isinstance(condition, tuple):
            value = INTERVALS[name][1]
            assert not values.isna().any(), name
            assert condition[0] is None or (values >= value(condition[0])).all(), name
            assert condition[1] is None or (values <= value(condition[1])).all(), name
        else:
            listed = condition if isinstance(condition, list) else [condition]
            assert set(values) <= set(listed), name


@settings(max_examples=40, deadline=None, suppress_health_check=list(HealthCheck))
@given(wanted=conditions())
def test_every_row_satisfies_all_conditions(synthesizer, wanted):
    try:
        drawn = synthesizer.sample(40, wanted)
    except ValueError as error:
        if "No value of" not in str(error):
            raise
        return
    check_conditions(drawn, wanted)
    pd.testing.assert_series_equal(drawn.dtypes, TABLE.dtypes)


def test_conditions_on_polars():
    pytest.importorskip("polars")
    wanted = {
        "age": (30, 40), "town": ["Alba", "Bra"], "visit": ("2024-03-01", None), "score": None,
        "income": (10.0, 5000.0),
    }  # fmt: skip
    drawn = fitted(polars_table()).sample(50, wanted)
    assert drawn.schema == polars_table().schema
    columns = pd.DataFrame(drawn.to_dict(as_series=False)).astype({"visit": "datetime64[s]"})
    check_conditions(columns, wanted)


def test_conditions_move_other_columns():
    """Members are older in the table: those who are asked for are too."""
    synthesizer = fitted(target="member", epsilon=50.0, n_particles=20_000)
    rows = [synthesizer.sample(4000, {"member": value}, random_state=0) for value in (True, False)]
    assert rows[0]["age"].mean() - rows[1]["age"].mean() > 10
    truth = TABLE.groupby("member")["age"].mean()
    assert abs(rows[0]["age"].mean() - truth[True]) < 3
    assert abs(rows[1]["age"].mean() - truth[False]) < 3


def test_wrong_conditions_are_refused(synthesizer):
    with pytest.raises(ValueError, match="conditions names 'height'"):
        synthesizer.sample(3, {"height": 3})
    with pytest.raises(TypeError, match="must be a mapping"):
        synthesizer.sample(3, "member")


# --- small and strange tables -------------------------------------------------------------------


def strange_tables():
    rng = np.random.default_rng(7)
    n = 60
    codes = [f"u{i}" for i in range(n)]
    yield "constant columns", pd.DataFrame({"a": [5] * n, "b": ["x"] * n, "c": [1.5] * n})
    yield "all missing", pd.DataFrame({"a": [np.nan] * n, "b": pd.Series([None] * n, dtype="str")})
    yield "one column", pd.DataFrame({"a": rng.integers(0, 5, n)})
    yield "one boolean", pd.DataFrame({"a": rng.random(n) < 0.5})
    yield "two equal columns", pd.DataFrame({"a": codes, "b": codes})
    yield "identifiers", pd.DataFrame({"a": codes, "b": rng.integers(0, 2**50, n)})
    yield "one row of each", pd.DataFrame({"a": [0, 10**9], "b": ["x", "y"]})
    yield "days", pd.DataFrame({"a": pd.date_range("2024-01-01", periods=n), "b": [True] * n})
    yield "spread numbers", pd.DataFrame({"a": 10.0 ** rng.uniform(-300, 300, n), "b": codes})


STRANGE = dict(strange_tables())


@pytest.mark.filterwarnings("ignore::skdpot.exceptions.PrivacyWarning")
@pytest.mark.parametrize("epsilon", [0.01, 1.0, 50.0, math.inf])
@pytest.mark.parametrize("name", STRANGE)
def test_strange_tables(name, epsilon):
    table = STRANGE[name]
    for target in (None, table.columns[-1]):
        synthesizer = DPTableSynthesizer(epsilon=epsilon, target=target, n_particles=200)
        drawn = synthesizer.fit(table).sample(30)
        pd.testing.assert_series_equal(drawn.dtypes, table.dtypes)
        assert -1 <= synthesizer.score(table) <= 0


@pytest.mark.filterwarnings("ignore::skdpot.exceptions.PrivacyWarning")
@pytest.mark.parametrize("n_samples", [2, 3, 5, 12, 50])
@pytest.mark.parametrize("schema", [None, SCHEMA], ids=["open", "known"])
def test_few_rows(n_samples, schema):
    table = TABLE.iloc[:n_samples]
    for epsilon in (0.1, 5.0, math.inf):
        synthesizer = fitted(table, schema=schema, epsilon=epsilon, target="town")
        drawn = synthesizer.sample(25)
        pd.testing.assert_series_equal(drawn.dtypes.map(str), TABLE.dtypes.map(str))
        assert synthesizer.n_samples_ == n_samples


@pytest.mark.parametrize("target", list(TABLE.columns))
def test_any_column_may_be_the_target(target):
    drawn = fitted(target=target).sample(20)
    pd.testing.assert_series_equal(drawn.dtypes, TABLE.dtypes)


def test_a_list_of_many_categories():
    categories = [f"c{i}" for i in range(3000)]
    rng = np.random.default_rng(0)
    table = pd.DataFrame({name: rng.choice(categories[:50], 2000) for name in "ab"})
    schema = TableSchema([CategoricalColumn(name, categories=categories) for name in "ab"])
    drawn = DPTableSynthesizer(schema, epsilon=20.0, n_particles=1000).fit(table).sample(2000)
    assert drawn["a"].isin(categories[:50]).mean() > 0.7


def test_many_columns():
    """Each is a noisy copy of the one before."""
    rng = np.random.default_rng(0)
    n, d = 2000, 60
    columns = [rng.random(n) < 0.5]
    for _ in range(d - 1):
        columns.append(np.where(rng.random(n) < 0.9, columns[-1], rng.random(n) < 0.5))
    table = pd.DataFrame({f"c{j}": column for j, column in enumerate(columns)})
    synthesizer = DPTableSynthesizer(epsilon=20.0, n_particles=1000).fit(table)
    drawn = synthesizer.sample(3000)
    near = [(drawn[f"c{j}"] == drawn[f"c{j + 1}"]).mean() for j in range(d - 1)]
    assert np.mean(near) > 0.8


# --- refusals -----------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("table", "options", "error", "message"),
    [
        (TABLE.iloc[:1], {}, ValueError, "minimum of 2 rows"),
        (TABLE.iloc[:0], {}, ValueError, "0 sample"),
        (TABLE[[]], {"schema": None}, ValueError, "0 feature"),
        (TABLE.drop(columns="age"), {}, ValueError, "describes 'age'"),
        (TABLE.assign(more=1), {}, ValueError, "does not describe: 'more'"),
        (TABLE.assign(age="x"), {}, ValueError, "Column 'age'"),
        (TABLE.assign(town="x"), {}, None, ""),
        (TABLE.assign(size="XXL"), {}, ValueError, "'size' holds a value that is not among"),
        (TABLE.assign(member=3), {}, ValueError, "'member'"),
        (TABLE.assign(age=np.nan), {}, ValueError, "Column 'age' misses values"),
        (TABLE.assign(income=np.inf), {}, ValueError, "'income' holds infinity"),
        (TABLE, {"target": "height"}, ValueError, "target='height' is no column of the table"),
        (TABLE, {"epsilon": 0.0}, ValueError, "'epsilon' parameter"),
        (TABLE, {"epsilon": -1}, ValueError, "'epsilon' parameter"),
        (TABLE, {"epsilon": math.nan}, ValueError, "'epsilon' parameter"),
        (TABLE, {"delta": 0}, ValueError, "'delta' parameter"),
        (TABLE, {"delta": 1.0}, ValueError, "'delta' parameter"),
        (TABLE, {"n_particles": 5}, ValueError, "'n_particles' parameter"),
        (TABLE, {"schema": [3]}, ValueError, "'schema' parameter"),
        (TABLE, {"schema": "{}"}, ValueError, "schema"),
        (TABLE, {"target": 3}, ValueError, "'target' parameter"),
        (TABLE, {"budget": 1.0}, ValueError, "'budget' parameter"),
        ("table.csv", {}, TypeError, "read it first, for instance with pandas.read_csv"),
        (Path("table.csv"), {}, TypeError, "read it first, for instance with pandas.read_csv"),
        (TABLE.to_dict("records"), {}, TypeError, "Pass a DataFrame"),
        (TABLE.to_dict("list"), {}, TypeError, "Pass a DataFrame"),
        (None, {}, ValueError, "Expected 2D array"),
        ([["a", "b"], ["c", "d"]], {"schema": None}, ValueError, "Pass a DataFrame"),
        (TABLE.to_numpy(), {}, (ValueError, TypeError), "Pass a DataFrame"),
    ],
)
def test_what_is_refused(table, options, error, message):
    estimator = DPTableSynthesizer(**QUICK | options)
    before = dict(vars(estimator))
    if error is None:  # what is in no list is "elsewhere"
        estimator.fit(table)
        return
    with pytest.raises(error, match=message):
        estimator.fit(table)
    assert vars(estimator) == before


@pytest.mark.filterwarnings("ignore:X has feature names")
def test_score_needs_the_same_columns(synthesizer):
    with pytest.raises(ValueError, match="feature names should match"):
        synthesizer.score(TABLE.drop(columns="age"))
    of_arrays = DPTableSynthesizer(n_particles=100).fit(np.zeros((50, 2)))
    with pytest.raises(ValueError, match="has no columns 'x1'"):
        of_arrays.score(pd.DataFrame({"x0": [1.0], "x2": [1.0]}))


# --- scikit-learn -------------------------------------------------------------------------------


def test_parameters_are_kept_as_given():
    parameters = {
        "schema": SCHEMA, "epsilon": 2.0, "delta": 1e-6, "target": "member", "budget": None,
        "n_particles": 500, "random_state": 3, "verbose": 0,
    }  # fmt: skip
    estimator = DPTableSynthesizer(**parameters)
    assert estimator.get_params() == parameters
    copied = clone(estimator)
    assert copied.get_params() == parameters
    assert copied.schema == SCHEMA
    assert estimator.set_params(epsilon=3.0, target=None).epsilon == 3.0
    with pytest.raises(ValueError, match="Invalid parameter 'eps'"):
        estimator.set_params(eps=1.0)


def test_fit_does_not_change_parameters():
    estimator = DPTableSynthesizer(**QUICK)
    before = dict(estimator.get_params())
    assert estimator.fit(TABLE) is estimator
    assert estimator.get_params() == before


def test_a_second_fit_forgets_the_first():
    estimator = fitted()
    estimator.set_params(schema=None).fit(TABLE[["member", "size"]])
    assert estimator.n_features_in_ == 2
    assert list(estimator.sample(3).columns) == ["member", "size"]
    assert estimator.schema_.names == ("member", "size")


def test_the_last_step_of_a_pipeline():
    older = FunctionTransformer(lambda table: table.assign(age=table["age"] + 0))
    pipeline = make_pipeline(older, DPTableSynthesizer(**QUICK)).fit(TABLE)
    assert list(pipeline[-1].sample(4).columns) == list(TABLE.columns)
    assert -1 <= pipeline.score(TABLE) <= 0


def test_random_state_makes_everything_reproducible():
    first, second, third = (fitted(random_state=seed) for seed in (1, 1, 2))
    for a, b in zip(first.marginals_, second.marginals_, strict=True):
        np.testing.assert_array_equal(a.counts, b.counts)
    pd.testing.assert_frame_equal(
        first.sample(99, random_state=0), second.sample(99, random_state=0)
    )
    assert not np.array_equal(first.marginals_[0].counts, third.marginals_[0].counts)


def test_a_seed_of_numpy_makes_nothing_reproducible():
    counts = []
    for _ in range(2):
        np.random.seed(0)  # noqa: NPY002, TID251
        counts.append(fitted().marginals_[0].counts)
    assert np.mean(counts[0] == counts[1]) < 0.2


def test_the_table_is_not_written_to():
    table = TABLE.copy()
    fitted(table).score(table)
    pd.testing.assert_frame_equal(table, TABLE)


def test_progress(capsys):
    fitted(verbose=1)
    shown = capsys.readouterr().err
    assert "synthesizer" in shown
    assert "4/4" in shown
    fitted(verbose=0)
    assert capsys.readouterr().err == ""


def test_a_csv_file_as_pandas_reads_it():
    text = io.StringIO("age,town\n" + "30,Alba\n40,Bra\n" * 50)
    table = pd.read_csv(text)
    schema = TableSchema(
        [
            NumericColumn("age", lower=0, upper=100),
            CategoricalColumn("town", categories=["Alba", "Bra"]),
        ]
    )
    drawn = DPTableSynthesizer(schema, epsilon=10.0).fit(table).sample(100)
    pd.testing.assert_series_equal(drawn.dtypes, table.dtypes)


def test_every_kind_of_column_by_itself():
    kinds = [
        (NumericColumn("c", lower=0, upper=1), np.linspace(0, 1, 50)),
        (DatetimeColumn("c", lower="2024-01-01", upper="2024-02-19"),
         pd.date_range("2024-01-01", periods=50)),
        (CategoricalColumn("c", categories=["a", "b"]), ["a", "b"] * 25),
        (BooleanColumn("c"), [True, False] * 25),
    ]  # fmt: skip
    for column, values in kinds:
        table = pd.DataFrame({"c": values})
        synthesizer = DPTableSynthesizer(TableSchema([column]), n_particles=100).fit(table)
        assert len(synthesizer.marginals_) == 1
        assert synthesizer.sample(9)["c"].dtype == table["c"].dtype


def hospital(n):
    """What a new user has: an identifier, names, dates and costs as they are written, notes."""
    rng = np.random.default_rng(5)
    days = pd.Timestamp("2018-01-01") + pd.to_timedelta(rng.integers(0, 2000, n), "D")
    return pd.DataFrame(
        {
            "id": [f"P{i}" for i in range(n)],
            "name": rng.choice(["Anna Smith", "Bob Miller"], n),
            "admitted": days.strftime("%d/%m/%Y"),
            "cost": [f"{cost:,.2f}" for cost in rng.lognormal(7, 1, n)],
            "notes": [f"pain since {i} days" for i in range(n)],
            "ward": rng.choice(["ICU", "ER", "GEN"], n),
        }
    )


@pytest.mark.parametrize("estimator", [DPTableSynthesizer(n_particles=200), TableEncoder()])
def test_texts_of_which_nothing_is_kept_are_told_and_names_are_left_out(estimator):
    """The warnings rest on names of columns and on noisy counts above a threshold."""
    left_out = "'id', 'name' left out: by their names"
    hidden = (
        r"keep their values in 'admitted' \(about 0%\), 'cost' \(about 0%\), 'notes' \(about 0%\);"
    )
    with pytest.warns(PrivacyWarning, match=left_out), pytest.warns(PrivacyWarning, match=hidden):
        fitted = estimator.set_params(epsilon=2.0).fit(hospital(3000))
    assert fitted.schema_.names == ("admitted", "cost", "notes", "ward")
    assert fitted.schema_["ward"].categories == ("ER", "GEN", "ICU")
    written = fitted.schema_.to_json()
    assert "Anna" not in written
    if isinstance(estimator, DPTableSynthesizer):
        assert "Anna" not in fitted.quality_report().to_html()
        assert not fitted.sample(50).isin(["Anna Smith"]).any(axis=None)


def test_most_of_the_texts_kept_are_not_warned_of():
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        DPTableSynthesizer(epsilon=2.0, n_particles=200).fit(hospital(3000)[["ward"]])
