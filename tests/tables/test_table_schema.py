"""Schemas: JSON, what data types say, and what values suggest."""

import json
import math
import subprocess
import sys

import numpy as np
import pandas as pd
import polars as pl
import pytest
from hypothesis import given, settings

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
from skdpot.tables.schema import tells_who
from tests.tables.table_cases import mixed_rows, tables


@pytest.fixture
def schema():
    return TableSchema(
        [
            NumericColumn("age", lower=2**60, upper=2**60 + 9, integer=True, dtype="int64"),
            NumericColumn("x", lower=0.1, upper=1 / 3, log_scale=True, missing=True),
            NumericColumn("open"),
            DatetimeColumn("day", lower="2020-01-01", upper="2020-12-31", resolution="D"),
            CategoricalColumn("job", categories=["b", "ä", "1", 1, True, 0.5], other="?"),
            CategoricalColumn("any", ordered=True),
            BooleanColumn("flag", missing=True, dtype="boolean"),
        ],
        excluded=["id"],
        guessed=True,
        notes=["look at this"],
    )


# --------------------------------------------------------------------- JSON


def test_json_round_trip_is_the_identity(schema, tmp_path):
    text = schema.to_json(tmp_path / "schema.json")
    for source in (text, tmp_path / "schema.json", str(tmp_path / "schema.json")):
        again = TableSchema.from_json(source)
        assert again == schema
        assert again.to_json() == text
    kinds = [type(value) for value in again["job"].categories]
    assert kinds == [str, str, str, int, bool, float]
    assert type(again["age"].lower) is int
    assert json.loads(text)["guessed"] is True


@given(tables("pandas"))
@settings(max_examples=50)
def test_json_keeps_every_schema(case):
    frame, schema = case
    for found in (schema, schema.bind(frame), TableSchema.from_dtypes(frame)):
        again = TableSchema.from_json(found.to_json())
        assert again == found
        assert repr(again.columns) == repr(found.columns)


def spoilt(schema, change):
    content = json.loads(schema.to_json())
    change(content)
    return json.dumps(content)


def of_column(place, **changes):
    return lambda content: content["columns"][place].update(changes)


def changed(**entries):
    return lambda content: content.update(entries)


@pytest.mark.parametrize(
    ("change", "message"),
    [
        (changed(format="something else"), "This is not a schema"),
        *((changed(version=version), f"version {version}") for version in (2, True)),
        (changed(extra=1), "unknown entry 'extra'"),
        (changed(columns={}), "no list of columns"),
        (changed(columns=[]), "columns must hold one or more"),
        (changed(columns=[3]), "must be an object with a kind"),
        (changed(excluded="id"), "excluded must be a list"),
        (changed(excluded=[1]), "must hold strings"),
        (changed(guessed="no"), "guessed must be True or False"),
        *((of_column(0, kind=kind), "unknown kind") for kind in ("secret", [])),
        (of_column(0, sigma=1), "numeric column has no field 'sigma'"),
        (lambda content: content["columns"][0].pop("name"), "must be a non-empty string"),
        (of_column(0, name="x"), "'x' is in the schema twice"),
        (of_column(0, lower=math.nan), "lower must be None"),
    ],
)
def test_damaged_schemas_are_refused(schema, change, message):
    with pytest.raises(ValueError, match=message):
        TableSchema.from_json(spoilt(schema, change))


@pytest.mark.parametrize("text", ["{", '{"a": 1, "a": 2}', "{" + '"a":{' * 100_000])
def test_what_is_no_json_is_refused(text):
    with pytest.raises(ValueError, match="This is not a schema"):
        TableSchema.from_json(text)


# --------------------------------------------------------- public facts only


def test_data_types_are_all_that_from_dtypes_reads():
    frame, other = mixed_rows(50), mixed_rows(70, seed=1)
    schema = TableSchema.from_dtypes(frame)
    assert schema == TableSchema.from_dtypes(other)
    assert schema == TableSchema.from_dtypes(frame.iloc[:0])
    assert not schema.is_resolved
    assert not schema.guessed
    assert [column.kind for column in schema] == [
        *("numeric", "numeric", "numeric"),
        *("categorical", "boolean", "datetime"),
    ]
    missing = {column.name: column.missing for column in schema}
    assert missing == {
        **{"age": False, "member": False},
        **{"gain": True, "height": True, "job": True, "since": True},
    }


RARE = "Liechtenstein"
TYPED = {
    "pandas": lambda v: pd.DataFrame({"c": pd.Series(v).astype("category")}),
    "pandas, in order": lambda v: pd.DataFrame({"c": pd.Categorical(v, ordered=True)}),
    "categorical of polars": lambda v: pl.DataFrame({"c": pl.Series(v, dtype=pl.Categorical)}),
    "enum of polars": lambda v: pl.DataFrame({"c": pl.Series(v, dtype=pl.Enum(sorted(set(v))))}),
}


@pytest.mark.parametrize("make", TYPED.values(), ids=TYPED)
def test_categories_that_a_data_type_lists_are_unknown(make):
    """Made from the values, by astype("category") say, the list tells what one person alone has.

    That the rare one is shown all the same has a probability below delta.
    """
    frame = make(["Austria", "Italy"] * 300 + [RARE])
    column = TableSchema.from_dtypes(frame)["c"]
    assert (column.categories, column.ordered) == (None, False)
    for fitted in (TableEncoder().fit(frame), DPTableSynthesizer().fit(frame)):
        assert set(fitted.schema_["c"].levels) == {"Austria", "Italy", "other"}
        assert fitted.privacy_spent_.epsilon == 1.0
        assert not any("categories" in text for text in fitted.privacy_spent_.assumptions[:2])


@pytest.mark.parametrize("make", TYPED.values(), ids=TYPED)
def test_a_guess_copies_the_categories_that_a_data_type_lists(make):
    assert RARE in TableSchema.guess(make(["Austria", "Italy", RARE]))["c"].categories


def test_truth_values_as_categories_are_known():
    frame = pd.DataFrame({"c": pd.Categorical([True, None, True])})
    assert TableSchema.from_dtypes(frame)["c"].categories == (False, True)


@pytest.mark.parametrize(
    ("frame", "message"),
    [
        (pd.DataFrame({"d": pd.period_range("2020", periods=1)}), "Column 'd': data type 'period"),
        (pd.DataFrame({"d": pd.Categorical(pd.to_datetime(["2020"]))}), "Column 'd': data type"),
        (pd.DataFrame({"d": [1j]}), "Column 'd': data type 'complex128' is not supported"),
        (pl.DataFrame({"d": [[1]]}), "Column 'd': data type 'List"),
        (pl.DataFrame({"d": [b"x"]}), "Column 'd': data type 'Binary"),
        (pd.DataFrame({0: [1]}), "names of all columns must be strings"),
        (pd.DataFrame([[1, 2]], columns=["a", "a"]), "Two columns of the table have the same name"),
    ],
)
def test_unsupported_tables_are_refused_by_name(frame, message):
    with pytest.raises(ValueError, match=message):
        TableSchema.from_dtypes(frame)


@pytest.mark.parametrize("data", [[1], {"a": [1]}, pd.Series([1]), pl.LazyFrame({"a": [1]}), None])
def test_only_tables_have_a_schema(data):
    message = r"collect\(\)" if isinstance(data, pl.LazyFrame) else "must be a DataFrame"
    with pytest.raises(TypeError, match=message):
        TableSchema.from_dtypes(data)


def test_polars_is_not_imported_before_it_is_needed():
    code = (
        "import sys, pandas as pd; from skdpot.preprocessing import TableEncoder, TableSchema\n"
        "df = pd.DataFrame({'a': [True, False]})\n"
        "encoder = TableEncoder().fit(df)\n"
        "assert encoder.inverse_transform(encoder.transform(df)).equals(df)\n"
        "assert TableSchema.guess(df).names == ('a',)\n"
        "assert 'polars' not in sys.modules"
    )
    subprocess.run([sys.executable, "-c", code], check=True)


# -------------------------------------------------------- table and schema


def test_a_schema_takes_the_order_and_the_data_types_of_a_table():
    schema = TableSchema(
        [NumericColumn("b", lower=0, upper=1, dtype="float32"), BooleanColumn("a")], ["c"]
    )
    frame = pd.DataFrame({"a": [True], "c": [object()], "b": [0.5]})
    bound = schema.bind(frame)
    assert bound.names == ("a", "b")
    assert (bound["a"].dtype, bound["b"].dtype) == ("bool", "float32")
    assert schema.bind(frame[["a", "b"]]) == bound
    with pytest.raises(ValueError, match="schema describes 'b', which the table"):
        schema.bind(frame[["a"]])
    with pytest.raises(ValueError, match="schema does not describe: 'd'. Drop them"):
        schema.bind(frame.assign(d=1))
    with pytest.raises(ValueError, match="The array has 3 columns, but the schema"):
        schema.bind(np.zeros((2, 3)))
    integers = TableSchema([NumericColumn("n", lower=0, upper=9)]).bind(pd.DataFrame({"n": [1]}))
    assert integers["n"].n_values == 10
    text = TableSchema([DatetimeColumn("t")]).bind(pd.DataFrame({"t": ["2020-01-01"]}))
    assert text["t"].dtype == "datetime64[s]"


def test_a_schema_can_be_edited(schema):
    new = schema.replace(NumericColumn("open", lower=0, upper=1), BooleanColumn("id"))
    assert new["open"].is_resolved
    assert new.names == (*schema.names, "id")
    assert new.excluded == ()
    assert schema.exclude("x", "day").excluded == ("id", "x", "day")
    with pytest.raises(KeyError, match="no column 'nobody'; it has age, x, open"):
        schema["nobody"]
    with pytest.raises(KeyError, match="no column 'nobody'"):
        schema.replace(BooleanColumn("nobody"))
    with pytest.raises(ValueError, match="one or more of NumericColumn"):
        TableSchema([])
    with pytest.raises(ValueError, match="'a' is in the schema twice"):
        TableSchema([BooleanColumn("a")], ["a"])


def test_a_schema_can_be_read_by_people(schema):
    frame = schema.to_frame()
    assert frame.index.tolist() == list(schema.names)
    assert "privately" in frame.loc["open", "values"]
    assert "... 20 in all" in repr(CategoricalColumn("a", categories=range(20)))
    assert "guessed" in repr(schema)
    confirmed = schema.confirm()
    assert "guessed" not in repr(confirmed)
    assert (confirmed.columns, confirmed.excluded) == (schema.columns, schema.excluded)
    assert "look at this" not in confirmed.to_json()  # it may count private values
    page = schema.replace(CategoricalColumn("any", categories=["<b>"]))._repr_html_()
    assert "&lt;b&gt;" in page
    assert "<b>" not in page
    assert "look at this" in page


# ------------------------------------------------------------------- guesses


@pytest.mark.parametrize("library", ["pandas", "polars"])
def test_guesses(library):
    frame = mixed_rows(500)
    frame["code"] = [f"person {i}" for i in range(500)]
    frame["few"] = np.arange(500) % 3 + 1
    frame["mark"] = np.where(np.arange(500) % 7 == 0, "?", "yes")
    frame["street"] = [f"street {i % 200}" for i in range(500)]
    frame["text"] = frame["since"].dt.strftime("%Y-%m-%d")
    if library == "polars":
        frame = pl.DataFrame({name: frame[name].replace({np.nan: None}).tolist() for name in frame})
    schema = TableSchema.guess(frame)
    assert schema.guessed
    age = schema["age"]
    assert (age.lower, age.upper, age.integer, age.log_scale) == (15, 90, True, False)
    assert schema["gain"].log_scale
    assert (schema["gain"].lower, schema["gain"].integer) == (0, True)
    assert schema["height"].missing
    assert not schema["height"].integer
    assert schema["height"].lower < 1.5 < 1.9 < schema["height"].upper
    assert schema["job"].categories == ("clerk", "cook", "farmer", "poet")
    assert schema["job"].missing
    assert schema["member"].kind == "boolean"
    assert schema["since"].resolution == "D"
    assert schema["since"].n_values == pytest.approx(2000, abs=30)
    assert schema["few"].n_values == 3
    assert schema["mark"].categories == ("?", "yes")
    assert schema["street"].categories is None
    assert schema["text"].kind == "datetime"
    assert schema.excluded == ("code",)
    assert [note.partition(":")[0] for note in schema.notes] == ["'code'", "'street'", "'text'"]
    assert "Drop" in schema.notes[0]
    assert TableSchema.from_json(schema.to_json()) == schema


def test_a_guess_leaves_out_what_it_cannot_describe():
    frame = pd.DataFrame(
        {
            "good": [0.5, 1.5],
            "empty": [None, None],
            "lists": [[1], [2]],
            "spans": pd.period_range("2020", periods=2),
            "huge": [1.0, np.inf],
            "wild": [-1.7e308, 1.7e308],
            "far": [0, 2**60],
            "no": [1, 2],
            "flags": pd.Series([True, None], dtype=object),
        }
    )
    schema = TableSchema.guess(frame, exclude=["no"])
    assert schema.names == ("good", "huge", "flags")
    assert schema["flags"] == BooleanColumn("flags", missing=True, dtype="object")
    assert set(schema.excluded) == {"no", "empty", "lists", "spans", "wild", "far"}
    assert len(schema.notes) == 6
    for option in ("exclude", "include"):
        with pytest.raises(ValueError, match=f"{option} names 'nobody'"):
            TableSchema.guess(frame, **{option: ["nobody"]})
    with pytest.raises(ValueError, match="No column is left: 'empty'"):
        TableSchema.guess(frame[["empty"]])
    amounts = pd.DataFrame({"a": [1] * 1000 + [2**45]})
    assert not TableSchema.guess(amounts)["a"].log_scale
    numbers = pd.DataFrame({"row": np.arange(1000)})
    assert "every number occurs once" in TableSchema.guess(numbers).notes[0]


@given(tables("pandas"))
@settings(max_examples=50, deadline=None)
def test_guessed_schemas_hold_all_values(case):
    frame, _ = case
    schema = TableSchema.guess(frame.assign(good=1))
    kept = frame.assign(good=1)[list(schema.names)]
    with pytest.warns(PrivacyWarning, match="guessed from the values"):
        encoder = TableEncoder(schema).fit(frame.assign(good=1))
    back = encoder.inverse_transform(encoder.transform(frame.assign(good=1)))
    assert back.equals(kept) or back.astype(str).equals(kept.astype(str))


@pytest.mark.parametrize(
    ("values", "lower", "upper"),
    [
        ([17, 90], 15, 90),
        ([0, 4356], 0, 4500),
        ([7, 7], 7, 7),
        ([-1234, 5678], -1500, 6000),
        ([0.12, 0.97], 0.1, 1.0),
        ([1e-9, 7.3e-9], 1e-9, 7.5e-9),
        ([0.0, 5e-324], 0.0, 5e-324),
        ([0.5, 1e300], 0.5, 1e300),
    ],
)
def test_bounds_are_rounded_outwards(values, lower, upper):
    column = TableSchema.guess(pd.DataFrame({"x": values}))["x"]
    assert (column.lower, column.upper) == pytest.approx((lower, upper), rel=1e-12)
    assert column.lower <= min(values)
    assert column.upper >= max(values)


NAMES = {
    "name": True, "Name": True, "first_name": True, "patient name": True, "PatientID": True,
    "id": True, "customer_id": True, "e-mail": True, "home_address": True, "phone_number": True,
    "ssn": True, "drug_name": False, "ward": False, "idea": False, "product_id": False, "x0": False,
    "patient": False, "user": False, "street": False, "": False,
}  # fmt: skip


def test_columns_that_tell_who_somebody_is_are_left_out_by_their_names():
    assert {name: tells_who(name) for name in NAMES} == NAMES
    frame = pd.DataFrame({"patient_id": [1, 2], "ward": ["a", "b"], "name": ["x", "y"]})
    schema = TableSchema.from_dtypes(frame)
    assert (schema.names, schema.excluded) == (("ward",), ("patient_id", "name"))
    assert TableSchema.guess(frame).excluded == ("patient_id", "name")
    kept = TableSchema.guess(frame, include=["name"])["name"]
    assert kept.categories is None  # their lists are never public
    with pytest.raises(ValueError, match="All columns are named like"):
        TableSchema.from_dtypes(frame[["name"]])


DAYS = pd.Timestamp("2018-01-01") + pd.to_timedelta(np.arange(300), "D")
MISREAD = {
    "dayfirst=True": [
        DAYS.strftime("%d/%m/%Y"), DAYS.strftime("%d.%m.%y 10:30"), DAYS.strftime("%d-%b-%Y"),
        DAYS.strftime("%B %d, %Y"),
    ],
    "thousands=','": [
        [f"{1000 + i / 7:,.2f}" for i in range(300)], np.resize(["1,234.50", "12.00"], 300),
        [f"{i + 1}.234,50" for i in range(300)], [f"€ {i},50" for i in range(300)],
        [f"{i / 2:.1f} kg" for i in range(300)], [f"{i % 120} mg" for i in range(300)],
        [*map(str, range(120))] * 2 + ["unknown"] * 60,
    ],
    "identifiers or free": [
        [f"pain since {i} days" for i in range(300)], [f"Anna {i % 160}" for i in range(300)]
    ],
}  # fmt: skip


@pytest.mark.parametrize("dtype", ["str", "category"])
@pytest.mark.parametrize("advice", MISREAD)
def test_a_guess_leaves_out_what_it_cannot_read_and_says_what_to_do(advice, dtype):
    for texts in MISREAD[advice]:
        ward = np.resize([*"abc"], 300)
        frame = pd.DataFrame({"text": pd.Series(texts, dtype=dtype), "ward": ward})
        schema = TableSchema.guess(frame)
        assert (schema.excluded, schema.names) == (("text",), ("ward",))
        (note,) = schema.notes
        assert advice in note
        assert "Anna" not in note


ALIKE = [
    ["0-18", "19-65"], ["<=50K", ">50K"], ["Q1", "Q2"], ["10.0.0.1", "10.0.0.2"], ["1st", "2nd"],
    ["123-45-6789", "123-45-0000"], ["250.01", "V10"], ["01", "02"], ["10 mg", "20 mg"],
    ["1", "2", "unknown"], ["may 1", "march 2"],
]  # fmt: skip


@pytest.mark.parametrize("few", ALIKE)
def test_texts_that_only_resemble_dates_or_numbers_are_categories(few):
    frame = pd.DataFrame({"text": np.resize(few, 100)})
    assert TableSchema.guess(frame)["text"].categories == tuple(sorted(few))
