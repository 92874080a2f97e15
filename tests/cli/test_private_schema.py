"""``skdpot schema --no-values``: no row, however it is written, has a part in what comes out."""

import json
from importlib.util import find_spec

import pandas as pd
import polars as pl
import pytest

from skdpot.cli import table_files
from skdpot.preprocessing import TableSchema

COLUMNS = "age,cost,rate,visit,seen,logged,stay,smokes,born,sex,city"
STATED = [
    *("--number", "age=1234", "--number", "cost=1.234,50 EUR", "--range", "rate=0.0..1.5"),
    *("--date", "visit=%d/%m/%Y", "--date", "seen=%b %d, %Y", "--date", "seen=%Y-%m-%d"),
    *("--date", "logged=%Y-%m-%dT%H:%M:%S%z", "--range", "logged=2020-01-01..2030-01-01"),
    *("--range", "stay=0 days..30 days", "--boolean", "smokes"),
    *("--range", "born=1900-01-01..2030-12-31", "--category", "*"),
]
FIRST = "30,1 EUR,0.5,31/12/2024,2024-12-31,2024-12-31T10:00:00Z,2 days,yes,1950-01-01,F,Rome"
# What one row may hold, in any of the columns.
SPELLINGS = [
    *(
        "",
        " ",
        "NA",
        '""',
        '"a,b"',
        '"x""y"',
        "text",
        "Zoë",
        "=1+1",
        "other",
        "0",
        "007",
        "-5",
        "+5",
    ),
    *("1e5", "1e400", "0.1", "$1.5", "75 kg", "50%", "(3)", '"1,234.5"', "1'234", "٣", "True"),
    *(
        "TRUE",
        "ja",
        "n",
        "1",
        "03/04/2024",
        "2024-03-04",
        "4. März 2024",
        '"Mar 4, 2024"',
        "20240304",
    ),
    *("2024-03-04T05:06:07+02:00", "22:17", "P1DT2H", "1 days", "9999-12-31", "9" * 400),
]
WRITTEN = [",".join([text] * 11) for text in SPELLINGS if "," not in text]
# What no file should hold, which a fit refuses.
BROKEN = [",", '"', "a\rb", "x" * 200_000, b"\xff\xfe\x00", "\0", '"x"y', FIRST + ",more", ""]


@pytest.fixture
def schema_of(run, folder):
    """Write a file of some rows; return the schema that comes out, and all that is said."""

    def call(rows, *options):
        rows = [row if isinstance(row, bytes) else row.encode() for row in rows]
        header = COLUMNS.encode()
        (folder / "data.csv").write_bytes(b"\n".join([header, *rows, b""]))
        (folder / "new.json").unlink(missing_ok=True)
        words = ("schema data.csv -o new.json --yes --json", "--no-values", *options)
        found = run(*words)
        path = folder / "new.json"
        return path.read_text() if path.exists() else None, found

    return call


@pytest.mark.parametrize("options", [STATED, []], ids=["stated", "not stated"])
def test_no_row_has_a_part_in_what_comes_out(schema_of, options):
    before = schema_of([FIRST] * 30, *options)
    assert (before[0] is not None) == bool(options)
    for place, row in enumerate([*WRITTEN, *BROKEN]):
        rows = [FIRST] * 30
        rows[place % 30] = row
        assert schema_of(rows, *options) == before, row


def test_what_is_stated_is_what_is_written(schema_of):
    text, (_, out, err) = schema_of([FIRST], *STATED)
    schema = TableSchema.from_json(text)
    assert all(column.missing or column.is_resolved for column in schema)
    told = {column.name: column.describe(in_full=True) for column in schema}
    assert told == {
        "age": "integers from ? to ?, bounds to be estimated privately",
        "cost": "numbers from ? to ?, bounds to be estimated privately, written like 1.234,50 EUR",
        "rate": "numbers from 0.0 to 1.5",
        "visit": "days from ? to ?, bounds to be estimated privately, written like 31/12/2024",
        "seen": "days from ? to ?, bounds to be estimated privately, written like Dec 31, 2024 or "
        "2024-12-31",
        "logged": "seconds from 2020-01-01 to 2030-01-01, in UTC, written like "
        "2024-12-31T14:05:00+0000",
        "stay": "seconds from 0 days 00:00:00 to 30 days 00:00:00",
        "smokes": "True and False",
        "born": "days from 1900-01-01 to 2030-12-31, written like 2024-12-31",
        "sex": "categories to be selected privately",
        "city": "categories to be selected privately",
    }
    assert "no value of data.csv was read" in " ".join(err.split()).lower()
    assert "Guessed" not in err
    assert json.loads(out)["rows"] is None


def test_what_is_not_stated_is_refused_and_a_name_that_tells_who_is_left_out(run, folder, refused):
    told = refused("schema data.csv --no-values --yes --number age=1234", 1, "reads no value")
    assert "'weight', 'sex', 'smokes', 'visit'" in told
    (folder / "data.csv").write_text("name,age\nAnna,1\n")
    code, out, _ = run("schema data.csv --no-values --yes --number *=1234")
    assert code == 0
    assert TableSchema.from_json(out).excluded == ("name",)
    code, out, _ = run("schema data.csv --no-values --yes --category name --leave-out age")
    assert TableSchema.from_json(out).names == ("name",)


def test_a_fit_reads_what_was_stated(run, schema_of):
    text, _ = schema_of([FIRST] * 40, *STATED)
    assert text is not None
    code, _, err = run("synth data.csv --schema new.json --epsilon inf -o new.csv --rows 20")
    assert code == 0, err
    rows = pd.read_csv("new.csv")
    assert list(rows.columns) == COLUMNS.split(",")
    assert set(rows["smokes"]) == {True}


@pytest.mark.parametrize("reader", ["pyarrow", "polars"])
def test_types_of_a_parquet_file_are_public_and_nothing_else_of_it(
    run, folder, monkeypatch, reader
):
    if reader == "polars":
        monkeypatch.setattr(table_files, "find_spec", lambda name: None if name == "pyarrow" else 1)
    elif find_spec("pyarrow") is None:
        pytest.skip("needs pyarrow")
    told = []
    for sex, age in (("F", 3), ("M", None)):
        frame = pl.DataFrame({"age": [1, 2, age], "sex": ["F", "F", sex]})
        frame.cast({"sex": pl.Categorical}).write_parquet("data.parquet")
        told.append(run("schema data.parquet --no-values --yes"))
    assert told[0] == told[1]
    code, out, err = told[0]
    assert code == 0, err
    schema = TableSchema.from_json(out)
    assert (schema["age"].integer, schema["sex"].categories) == (True, None)
