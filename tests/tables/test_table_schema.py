"""Schemas: JSON, what data types say, and what values suggest."""

import json
import math
import subprocess
import sys

import numpy as np
import pandas as pd
import polars as pl
import pyarrow as pa
import pytest
from hypothesis import given, settings
from sklearn.base import BaseEstimator

from skdpot import DPTableSynthesizer
from skdpot._utils.rows import validate_rows
from skdpot.exceptions import PrivacyWarning
from skdpot.preprocessing import (
    BooleanColumn,
    CategoricalColumn,
    DatetimeColumn,
    NumericColumn,
    TableEncoder,
    TableSchema,
    TimedeltaColumn,
)
from skdpot.tables.identifiers import tells_who
from tests.contract.fuzz_harness import attempt
from tests.contract.fuzz_strategies import NUMBER, TEXT
from tests.tables.table_cases import COLUMNS, FRAMES, mixed_rows, tables

SCHEMA = TableSchema(
    [
        NumericColumn("age", lower=2**60, upper=2**60 + 9, integer=True, dtype="int64"),
        NumericColumn("open"),
        CategoricalColumn("job", categories=["b", "ä", "1", 1, True, 0.5], other="?"),
        CategoricalColumn("any", ordered=True),
        *(column.replace(name=name) for name, column in COLUMNS.items()),
    ],
    excluded=["id"],
    guessed=True,
    notes=["look at this"],
)


# --------------------------------------------------------------------- JSON


def test_json_round_trip_is_the_identity(tmp_path):
    text = SCHEMA.to_json(tmp_path / "schema.json")
    for source in (text, tmp_path / "schema.json", str(tmp_path / "schema.json")):
        again = TableSchema.from_json(source)
        assert again == SCHEMA
        assert repr(again.columns) == repr(SCHEMA.columns)
        assert again.to_json() == text
    kinds = [type(value) for value in again["job"].categories]
    assert kinds == [str, str, str, int, bool, float]
    assert type(again["age"].lower) is int
    assert json.loads(text)["guessed"] is True


@pytest.mark.parametrize(
    ("where", "changes", "message"),
    [
        (None, {"format": "something else"}, "This is not a schema"),
        *((None, {"version": version}, f"version {version}") for version in (2, True)),
        (None, {"extra": 1}, "unknown entry 'extra'"),
        (None, {"columns": {}}, "no list of columns"),
        (None, {"columns": []}, "columns must hold one or more"),
        (None, {"columns": [3]}, "must be an object with a kind"),
        (None, {"excluded": "id"}, "excluded must be a list"),
        (None, {"excluded": [1]}, "must hold strings"),
        (None, {"guessed": "no"}, "guessed must be True or False"),
        *((0, {"kind": kind}, "unknown kind") for kind in ("secret", [])),
        (0, {"sigma": 1}, "numeric column has no field 'sigma'"),
        (0, {"name": None}, "must be a non-empty string"),
        (0, {"name": "open"}, "'open' is in the schema twice"),
        (0, {"lower": math.nan}, "lower must be None"),
    ],
)
def test_damaged_schemas_are_refused(where, changes, message):
    content = json.loads(SCHEMA.to_json())
    (content if where is None else content["columns"][where]).update(changes)
    with pytest.raises(ValueError, match=message):
        TableSchema.from_json(json.dumps(content))


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
    assert {column.name: (column.kind, column.missing) for column in schema} == {
        **{name: ("numeric", name != "age") for name in ("age", "gain", "height")},
        **{"job": ("categorical", True), "member": ("boolean", False)},
        "since": ("datetime", True),
    }
    spans = TableSchema.from_dtypes(pd.DataFrame({"c": pd.to_timedelta([1, 2], "h")}))
    assert (spans["c"].kind, spans.is_resolved) == ("timedelta", False)


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
    assert RARE in TableSchema.guess(make(["Austria", "Italy", RARE]))["c"].categories


def test_truth_values_as_categories_are_known():
    frame = pd.DataFrame({"c": pd.Categorical([True, None, True])})
    assert TableSchema.from_dtypes(frame)["c"].categories == (False, True)


@pytest.mark.parametrize(
    ("frame", "message"),
    [
        (pd.DataFrame({"d": pd.period_range("2020", periods=1)}), "Column 'd': data type 'Period"),
        (pd.DataFrame({"d": pd.Categorical(pd.to_datetime(["2020"]))}), "Column 'd': data type"),
        (pd.DataFrame({"d": [1j]}), "Column 'd': data type 'Complex128DType' is not supported"),
        (pl.DataFrame({"d": [[1]]}), "Column 'd': data type 'List"),
        (pl.DataFrame({"d": [b"x"]}), "Column 'd': data type 'Binary"),
        (pd.DataFrame({0: [1]}), "names of all columns must be strings"),
        (pd.DataFrame([[1, 2]], columns=["a", "a"]), "Two columns of the table have the same name"),
    ],
)
def test_unsupported_tables_are_refused_by_name(frame, message):
    with pytest.raises(ValueError, match=message):
        TableSchema.from_dtypes(frame)


ENUM, ARROW = pl.Enum(["x", TEXT]), pd.ArrowDtype
FIELD = pa.struct([(TEXT, pa.int64())])
TYPED = {
    "list": pl.DataFrame({"d": pl.Series([["x"]] * 4, dtype=pl.List(ENUM))}),
    "array": pl.DataFrame({"d": pl.Series([["x"]] * 4, dtype=pl.Array(ENUM, 1))}),
    "struct": pl.DataFrame({"d": pl.Series([{"q": "x"}] * 4, dtype=pl.Struct({"q": ENUM}))}),
    "enum": pl.DataFrame({"d": pl.Series(["x"] * 4, dtype=ENUM)}),
    "categorical": pl.DataFrame({"d": pl.Series(["x", TEXT] * 2, dtype=pl.Categorical)}),
    "decimal": pl.DataFrame({"d": pl.Series([1] * 4, dtype=pl.Decimal(12, 3))}),
    **{
        f"sparse {type(value).__name__}": pd.DataFrame(
            {"d": pd.Series([value] * 4).astype(pd.SparseDtype(kind, value))}
        )
        for kind, value in ((int, round(NUMBER)), (float, NUMBER), (object, TEXT))
    },
    "intervals": pd.DataFrame({"d": pd.cut([1.0, 2.0, NUMBER - 1, 3.0], [0, 2, NUMBER])}),
    "categories": pd.DataFrame({"d": pd.Categorical.from_codes([0] * 4, ["x", TEXT])}),
    "tuples": pd.DataFrame({"d": pd.Categorical.from_codes([0] * 4, [("x", 1), (TEXT, 2)])}),
    "periods": pd.DataFrame({"d": pd.period_range("2000", periods=4, freq="Y")}),
    "dictionary of Arrow": pd.DataFrame(
        {"d": pd.Series(["x", TEXT] * 2, dtype=ARROW(pa.dictionary(pa.int32(), pa.string())))}
    ),
    "struct of Arrow": pd.DataFrame({"d": pd.Series([{TEXT: 1}] * 4, dtype=ARROW(FIELD))}),
    "texts of Arrow": pd.DataFrame({"d": pd.Series([TEXT] * 4, dtype=ARROW(pa.string()))}),
    "table of Arrow": pa.table({"d": pa.array([{TEXT: 1}] * 4)}),
    "map of Arrow": pa.table({"d": pa.array([[(TEXT, 1)]] * 4, pa.map_(pa.string(), pa.int64()))}),
    "structured": np.zeros(4, dtype=[(TEXT, float), ("b", float)]),
    "ticks": np.zeros((4, 2), "datetime64[8765s]"),
}


@pytest.mark.parametrize("kind", TYPED)
def test_no_message_shows_the_categories_or_the_filling_of_a_type(kind):
    """Nor a field of a struct: a type is named by its class."""
    table, known = TYPED[kind], TableSchema([CategoricalColumn("d", categories=["x"])])
    outcomes = [
        attempt(f"{kind}, {act}", call)
        for act, call in {
            "schema": lambda: TableSchema.from_dtypes(table),
            "guess": lambda: TableSchema.guess(table) and None,  # it shows what it guessed
            "fit": lambda: DPTableSynthesizer(known, n_steps=1).fit(table),
            "encode": lambda: TableEncoder().fit(table),
            "rows": lambda: validate_rows(BaseEstimator(), table, reset=True),
        }.items()
    ]
    assert any(outcome.error is not None for outcome in outcomes)


@pytest.mark.parametrize("data", [[1], {"a": [1]}, pd.Series([1]), pl.LazyFrame({"a": [1]}), None])
def test_only_tables_have_a_schema(data):
    message = r"collect\(\)" if isinstance(data, pl.LazyFrame) else "must be a DataFrame"
    with pytest.raises(TypeError, match=message):
        TableSchema.from_dtypes(data)


@pytest.mark.slow
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
        [NumericColumn("b", lower=0, upper=1, dtype="float32"), BooleanColumn("a")], excluded=["c"]
    )
    frame = pd.DataFrame({"a": [True], "c": [object()], "b": [0.5]})
    bound = schema.bind(frame)
    assert bound.names == ("a", "b")
    assert (bound["a"].dtype, bound["b"].dtype) == ("bool", "float32")
    assert schema.bind(frame[["a", "b"]]) == bound
    for table, message in (
        (frame[["a"]], "schema describes 'b', which the table"),
        (frame.assign(d=1), "schema does not describe: 'd'. Drop them"),
        (np.zeros((2, 3)), "The array has 3 columns, but the schema"),
    ):
        with pytest.raises(ValueError, match=message):
            schema.bind(table)
    integers = TableSchema([NumericColumn("n", lower=0, upper=9)]).bind(pd.DataFrame({"n": [1]}))
    assert integers["n"].n_values == 10
    text = TableSchema([DatetimeColumn("t")]).bind(pd.DataFrame({"t": ["2020-01-01"]}))
    assert text["t"].dtype == "datetime64[s]"


def test_a_schema_can_be_edited():
    new = SCHEMA.replace(NumericColumn("open", lower=0, upper=1), BooleanColumn("id"))
    assert new["open"].is_resolved
    assert new.names == (*SCHEMA.names, "id")
    assert new.excluded == ()
    assert SCHEMA.exclude("age", "job").excluded == ("id", "age", "job")
    with pytest.raises(KeyError, match="no column 'nobody'; it has age, open"):
        SCHEMA["nobody"]
    with pytest.raises(KeyError, match="no column 'nobody'"):
        SCHEMA.replace(BooleanColumn("nobody"))
    with pytest.raises(ValueError, match="one or more of .*NumericColumn"):
        TableSchema([])
    with pytest.raises(ValueError, match="'a' is in the schema twice"):
        TableSchema([BooleanColumn("a")], excluded=["a"])


def test_a_schema_can_be_read_by_people():
    assert SCHEMA.to_frame().index.tolist() == list(SCHEMA.names)
    confirmed = SCHEMA.confirm()
    assert ["guessed" in repr(schema) for schema in (SCHEMA, confirmed)] == [True, False]
    assert (confirmed.columns, confirmed.excluded) == (SCHEMA.columns, SCHEMA.excluded)
    assert "look at this" not in confirmed.to_json()  # it may count private values
    page = SCHEMA.replace(CategoricalColumn("any", categories=["<b>"]))._repr_html_()
    assert "<b>" not in page


# ------------------------------------------------------------------- guesses

DAYS = pd.Timestamp("2018-01-01") + pd.to_timedelta(np.arange(300), "D")
THREE = ["%Y-%m-%d", "%d/%m/%Y", "%b %d, %Y"]
TEN_DAYS = {"lower": "0 days 00:00:00", "upper": "10 days 00:00:00", "resolution": "h"}
# What is guessed of values: the column, or a part of the note why it is left out.
GUESSES = [
    *(
        (values, NumericColumn("c", lower=lower, upper=upper, integer=isinstance(lower, int)))
        for values, lower, upper in (
            *(([17, 90], 15, 90), ([0, 4356], 0, 4500), ([7, 7], 7, 7)),
            *(([-1234, 5678], -1500, 6000), ([0.12, 0.97], 0.1, 1.0)),
            *(([1e-9, 7.3e-9], 1e-9, 7.5e-9), ([0.0, 5e-324], 0.0, 5e-324)),
            *(([0.5, 1e300], 0.5, 1e300), ([*range(1, 4)] * 99, 1, 3)),
        )
    ),
    ([1.5, None, 3.5], NumericColumn("c", lower=1.5, upper=3.5, missing=True)),
    ([0] * 900 + [4000], NumericColumn("c", lower=0, upper=4000, integer=True, log_scale=True)),
    ([1] * 1000 + [2**45], NumericColumn("c", lower=0, upper=40_000_000_000_000, integer=True)),
    ([True, False], BooleanColumn("c")),
    ([True, None], BooleanColumn("c", missing=True)),
    (["b", None, "a"] * 30, CategoricalColumn("c", categories=["a", "b"], missing=True)),
    ([f"street {i % 200}" for i in range(500)], CategoricalColumn("c")),
    *(
        (values, DatetimeColumn("c", lower="2018-01-01", upper="2018-10-31", resolution="D"))
        for values in (DAYS.to_pydatetime().tolist(), DAYS.strftime("%Y-%m-%d").tolist())
    ),
    *(
        (values, TimedeltaColumn("c", **TEN_DAYS))
        for hours in [pd.to_timedelta(np.arange(240), "h")]
        for values in (hours.to_pytimedelta().tolist(), hours.astype(str).tolist())
    ),
    # Texts that only resemble dates or numbers are categories.
    *(
        (few * 50, CategoricalColumn("c", categories=sorted(few)))
        for few in (
            *(["0-18", "19-65"], ["<=50K", ">50K"], ["Q1", "Q2"], ["10.0.0.1", "10.0.0.2"]),
            *(["1st", "2nd"], ["123-45-6789", "123-45-0000"], ["250.01", "V10"], ["01", "02"]),
            *(["10 mg", "20 mg"], ["1", "2", "unknown"], ["may 1", "march 2"], ["?", "yes"]),
        )
    ),
    # All are read, by the formats that they have, or nothing is proposed.
    *(
        (
            [day.strftime(forms[i % len(forms)]) for i, day in enumerate(DAYS)],
            DatetimeColumn("c", lower="2018-01-01", upper=upper, formats=found, resolution=r)
        )
        for forms, found, r, upper in (
            *(
                (one, one, "D", "2018-10-31")
                for one in (["%d/%m/%Y"], ["%m/%d/%y"], ["%d-%b-%Y"], ["%B %d, %Y"])
            ),
            (["%d.%m.%y 10:30"], ["%d.%m.%y %H:%M"], "min", "2018-11-01"),
            (THREE, THREE, "D", "2018-10-31"),
        )
    ),
    (["2024-01-02T12:00Z", "2024-01-02T12:00+03:00"] * 9, DatetimeColumn(
        "c", lower="2024-01-02T00:00:00+00:00", upper="2024-01-03T00:00:00+00:00", resolution="h")),
    ([f"0{i}/0{i + 1}/2024" for i in range(1, 9)], "03/04/2024 may be in"),
    (["31/12/2024", "12/31/2024"] * 20, "no list of formats"),
    (["2024-01-31", "2024-01-31T12:00Z", "31.1.2024"] * 9, "no list of formats"),
    *(
        (texts, NumericColumn("c", lower=low, upper=up, integer=isinstance(low, int), written=form))
        for texts, low, up, form in (
            ([f"{1000 + i / 7:,.2f}" for i in range(300)], 1000.0, 1045.0, "1,234.50"),
            (["1,234.50", "12.00"] * 150, 0.0, 1500.0, "1,234.50"),
            ([f"{i + 1}.234,50" for i in range(300)], 0.0, 350_000.0, "1.234,50"),
            ([f"{i} 234,5 EUR" for i in range(1, 90)], 0.0, 90_000.0, "1.234,50 EUR"),
            ([f"€ {i},50" for i in range(300)], 0.0, 300.0, "€1.234,50"),
            ([f"({i:,}.00)" for i in range(1, 2000)], -2000, 0, "1,234.50"),
            ([f"{i / 2:.1f} kg" for i in range(300)], 0.0, 150.0, "1,234.50 kg"),
            ([f"{i % 120} mg" for i in range(300)], 0, 150, "1,234.50 mg"),
            ([f"{i / 4}" for i in range(300)], 0.0, 75.0, None),
        )
    ),
    *(
        (texts, told)
        for texts, told in (
            ([*map(str, range(120))] * 2 + ["unknown"] * 60, "thousands=','"),
            ([f"{i}.234" for i in range(1, 300)], "1.234 and 1,234 may be"),
            (["$1,234.50", "$1.234,50"] * 20, "others a point"),
            ([f"{i}.5 {'EUR' if i % 2 else 'USD'}" for i in range(99)], "several units"),
        )
    ),
    ([*"YyNn", "Yes", "no"] * 9, BooleanColumn("c")),
    (["ja", "nein", "Ja", None] * 9, BooleanColumn("c", missing=True)),
    ([f"{i:05}" for i in range(0, 990, 11)] * 3, CategoricalColumn(
        "c", categories=[f"{i:05}" for i in range(0, 990, 11)])),
    ([f"pain since {i} days" for i in range(300)], "free text"),
    ([f"Anna {i % 160}" for i in range(300)], "identifiers"),
    ([-1.7e308, 1.7e308], NumericColumn("c", lower=-1e300, upper=1e300)),
    ([0, 2**60], "cannot be told apart"),
]  # fmt: skip


@pytest.mark.parametrize("library", ["pandas", "polars"])
@pytest.mark.parametrize(("values", "expected"), GUESSES)
def test_what_values_suggest(values, expected, library):
    ward = np.resize([*"abc"], len(values))
    schema = TableSchema.guess(FRAMES[library]({"c": values, "ward": ward}))
    assert schema.guessed
    if isinstance(expected, str):
        assert (schema.excluded, schema.names) == (("c",), ("ward",))
        (note,) = (note for note in schema.notes if note.startswith("'c'"))
        assert expected in note
        assert "Anna" not in note
        return
    assert schema["c"].replace(dtype=None) == expected
    assert TableSchema.from_json(schema.to_json()) == schema


def test_a_guess_leaves_out_what_it_cannot_describe():
    frame = pd.DataFrame(
        {
            "empty": [None, None],
            "lists": [[1], [2]],
            "spans": pd.period_range("2020", periods=2),
            "huge": [1.0, np.inf],
            "no": [1, 2],
        }
    )
    schema = TableSchema.guess(frame, exclude=["no"])
    assert schema.names == ("huge",)
    assert set(schema.excluded) == {"no", "empty", "lists", "spans"}
    assert len(schema.notes) == 4
    for option in ("exclude", "include"):
        with pytest.raises(ValueError, match=f"{option} names 'nobody'"):
            TableSchema.guess(frame, **{option: ["nobody"]})
    with pytest.raises(ValueError, match="No column is left: 'empty'"):
        TableSchema.guess(frame[["empty"]])
    numbers = pd.DataFrame({"row": np.arange(1000)})
    assert "every number occurs once" in TableSchema.guess(numbers).notes[0]


@pytest.mark.slow
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
