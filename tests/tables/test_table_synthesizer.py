"""DPTableSynthesizer as its users see it: tables in, tables out, of the same kind."""

import math
import warnings

import numpy as np
import pandas as pd
import polars as pl
import pytest
from sklearn.pipeline import make_pipeline
from sklearn.preprocessing import FunctionTransformer

from skdpot import DPTableSynthesizer
from skdpot.exceptions import PrivacyWarning
from skdpot.preprocessing import TableEncoder, TableSchema
from tests.tables.table_models import SCHEMA, people

# That there is much noise, or none, is no news here.
pytestmark = [
    pytest.mark.filterwarnings("ignore:Private bounds:skdpot.exceptions.PrivacyWarning"),
    pytest.mark.filterwarnings("ignore:The table is too small:skdpot.exceptions.PrivacyWarning"),
    pytest.mark.filterwarnings("ignore:.*makes the privacy noise:skdpot.exceptions.PrivacyWarning"),
]
TABLE = people(1500)
QUICK = {"schema": SCHEMA, "epsilon": 5.0, "n_particles": 1000}


def fitted(table=TABLE, **options):
    return DPTableSynthesizer(**QUICK | options).fit(table)


@pytest.fixture(scope="module")
def synthesizer():
    return fitted(target="smokes")


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
    assert drawn["income"].dropna().between(0, 50_000).all()
    assert set(drawn["city"]) <= {"Bonn", "Graz", "Linz", "Rome", "elsewhere"}
    assert drawn["seen"].between("2024-01-01", "2024-12-31").all()
    assert (drawn["seen"] == drawn["seen"].dt.floor("D")).all()
    assert set(drawn["smokes"]) == {True, False}
    for name in ("age", "city", "smokes"):
        assert not drawn[name].isna().any()
    assert drawn["income"].isna().any()


def test_arrays_in_arrays_out():
    rows = np.random.default_rng(0).normal(size=(300, 3))
    synthesizer = DPTableSynthesizer(n_particles=500).fit(rows)
    drawn = synthesizer.sample(20)
    assert isinstance(drawn, np.ndarray)
    assert drawn.shape == (20, 3)
    assert not hasattr(synthesizer, "feature_names_in_")
    assert synthesizer.n_features_in_ == 3
    assert synthesizer.schema_.names == ("x0", "x1", "x2")


def test_excluded_columns_are_left_out():
    table = TABLE.assign(name="somebody")
    schema = TableSchema(SCHEMA, excluded=["name"])
    synthesizer = fitted(table, schema=schema)
    assert list(synthesizer.sample(3).columns) == list(TABLE.columns)
    assert -1 <= synthesizer.score(table) <= 0


def test_without_a_schema_all_is_estimated():
    table = TABLE[["age", "city", "seen", "smokes", "size"]]
    synthesizer = DPTableSynthesizer(epsilon=8.0, n_particles=1000).fit(table)
    assert synthesizer.schema_.is_resolved
    drawn = synthesizer.sample(500)
    pd.testing.assert_series_equal(drawn.dtypes.map(str), table.dtypes.map(str))
    assert {"Bonn", "Graz"} <= set(drawn["city"])
    assert set(drawn["size"].cat.categories) == {"S", "M", "L", "other"}  # selected by counts
    assert -20 < drawn["age"].min() < drawn["age"].max() < 200


def test_attributes(synthesizer):
    assert synthesizer.n_samples_ == len(TABLE)
    assert synthesizer.n_features_in_ == TABLE.shape[1]
    assert synthesizer.feature_names_in_.tolist() == list(TABLE.columns)
    assert synthesizer.schema_.is_resolved
    assert synthesizer.privacy_spent_.epsilon == 5.0
    alone = synthesizer.marginals_[: TABLE.shape[1]]
    assert [table.columns[0] for table in alone] == list(TABLE.columns)
    assert len(synthesizer.marginals_) > TABLE.shape[1]
    for table in synthesizer.marginals_:
        assert list(table.columns[-3:]) == ["count", "standard_error", "n_releases"]
        assert not table.duplicated(table.columns[:-3]).any()
        assert (table["standard_error"] > 0).all()
        assert np.isfinite(table["count"]).all()


# --- sampling -----------------------------------------------------------------------------------


def test_sampling_changes_nothing(synthesizer):
    before = dict(vars(synthesizer))
    synthesizer.sample(50, {"smokes": True})
    synthesizer.score(TABLE)
    assert vars(synthesizer) == before


WANTED = {"age": (30, 40), "city": ["Bonn", "Graz"], "seen": ("2024-03-01", None)}


def check_wanted(drawn):
    assert all(30 <= age <= 40 for age in drawn["age"])
    assert set(drawn["city"]) <= {"Bonn", "Graz"}
    assert all(str(day) >= "2024-03-01" for day in drawn["seen"])


def test_every_row_satisfies_all_conditions(synthesizer):
    """More conditions, without a fit: `tests/tables/test_conditions`."""
    drawn = synthesizer.sample(300, WANTED | {"income": None, "size": ("M", "L"), "smokes": True})
    pd.testing.assert_series_equal(drawn.dtypes, TABLE.dtypes)
    assert drawn["income"].isna().all()
    assert set(drawn["size"]) == {"M", "L"}
    assert drawn["smokes"].all()
    check_wanted(drawn)


def test_polars_in_polars_out():
    """Conditions included."""
    values = {
        name: TABLE[name].astype(object).where(TABLE[name].notna(), None).tolist() for name in TABLE
    }
    types = {"size": pl.Enum(["S", "M", "L"]), "seen": pl.Date, "age": pl.Int8}
    table = pl.DataFrame(values, schema_overrides=types)
    synthesizer = fitted(table)
    assert synthesizer.sample(500)["income"].null_count() > 0
    drawn = synthesizer.sample(50, WANTED)
    assert type(drawn) is type(table)
    assert drawn.schema == table.schema
    check_wanted(drawn)


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
    yield "few rows", people(3)
    yield "spread numbers", pd.DataFrame({"a": 10.0 ** rng.uniform(-300, 300, n), "b": codes})


STRANGE = dict(strange_tables())


@pytest.mark.slow
@pytest.mark.filterwarnings("ignore::skdpot.exceptions.PrivacyWarning")
@pytest.mark.usefixtures("few_synthetic_rows")
@pytest.mark.parametrize("epsilon", [0.01, 50.0, math.inf])
@pytest.mark.parametrize("name", STRANGE)
def test_strange_tables(name, epsilon):
    table = STRANGE[name]
    options = {"epsilon": epsilon, "n_particles": 200}
    known = [SCHEMA] if name == "few rows" else []
    for target, schema in ((None, None), *((table.columns[-1], each) for each in (None, *known))):
        synthesizer = DPTableSynthesizer(schema, target=target, **options).fit(table)
        drawn = synthesizer.sample(30)
        pd.testing.assert_series_equal(drawn.dtypes.map(str), table.dtypes.map(str))
        assert -1 <= synthesizer.score(table) <= 0


@pytest.mark.parametrize(("n_rows", "n_columns", "kinds"), [(50, 70, 1), (2, 75, 3)])
def test_small_wide_surveys(n_rows, n_columns, kinds, tmp_path):
    """Noise leaves many columns one cell; a fit is charged for all shapes, and so makes them."""
    rng = np.random.default_rng(n_columns)
    words = np.array(["never", "at times", "often", "always"])
    answers = [
        np.array(["no", "yes"])[rng.integers(0, 2, n_rows)],
        rng.integers(1, 8, n_rows),
        words[rng.integers(0, 4, n_rows)],
    ]
    table = pd.DataFrame({f"q{k}": rng.permutation(answers[k % kinds]) for k in range(n_columns)})
    found = DPTableSynthesizer(TableSchema.guess(table).confirm(), n_particles=500)
    found.fit(table).save(path := tmp_path / "survey.safetensors")
    drawn = DPTableSynthesizer.load(path).sample(20)
    assert drawn.shape == (20, found.n_features_in_)
    assert all(drawn[name].isin(table[name]).all() for name in table.columns[::3])


# --- refusals -----------------------------------------------------------------------------------


@pytest.mark.filterwarnings("ignore:X has feature names")
def test_score_needs_the_same_columns(synthesizer):
    with pytest.raises(ValueError, match="feature names should match"):
        synthesizer.score(TABLE.drop(columns="age"))
    of_arrays = DPTableSynthesizer(n_particles=100).fit(np.zeros((50, 2)))
    with pytest.raises(ValueError, match="has no columns 'x1'"):
        of_arrays.score(pd.DataFrame({"x0": [1.0], "x2": [1.0]}))


# --- scikit-learn -------------------------------------------------------------------------------


def test_a_second_fit_forgets_the_first():
    estimator = fitted()
    estimator.set_params(schema=None).fit(TABLE[["smokes", "size"]])
    assert estimator.n_features_in_ == 2
    assert list(estimator.sample(3).columns) == ["smokes", "size"]
    assert estimator.schema_.names == ("smokes", "size")


def test_the_last_step_of_a_pipeline():
    older = FunctionTransformer(lambda table: table.assign(age=table["age"] + 0))
    pipeline = make_pipeline(older, DPTableSynthesizer(**QUICK)).fit(TABLE)
    assert list(pipeline[-1].sample(4).columns) == list(TABLE.columns)
    assert -1 <= pipeline.score(TABLE) <= 0


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
    left_out = "'id', 'name' left out, because"
    hidden = "categories of admitted, categories of cost(,| and) categories of notes"
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
