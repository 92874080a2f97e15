"""What no command does: a clear error, no value of a table, nothing charged, nothing written."""

import gzip
import warnings

import pandas as pd
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from skdpot.cli import budget as budget_command
from skdpot.cli import schema as schema_command
from skdpot.cli.console import explain, where_it_happened
from skdpot.cli.table_files import FileFormat, read_guessable, read_table_file
from skdpot.exceptions import PrivacyWarning
from skdpot.preprocessing import (
    BooleanColumn,
    CategoricalColumn,
    DatetimeColumn,
    NumericColumn,
    TableSchema,
)
from tests.cli.cases import FIT, SECRET, people, people_schema

HEADER, GOOD = "age,weight,sex,smokes,visit", "30,70.5,Female,True,2024-01-05"
PAID = f"{FIT} --ledger study.db --save model.safetensors"
GUESS = "schema data.csv --yes"
PARTIES = "distance data.csv data.csv --epsilon 1"
BOXED = "distance a.csv b.csv --epsilon 1 --bounds -2 2 --ledgers a.db b.db"
OPEN = TableSchema([NumericColumn("age"), *list(people_schema())[1:]]).to_json()


def with_field(place, text):
    fields = GOOD.split(",")
    fields[place] = text
    return f"{HEADER}\n{GOOD}\n{','.join(fields)}\n"


# What is typed wrongly: status 2.
USAGE = {
    "": "required: COMMAND",
    "frobnicate": "invalid choice",
    **{f"{FIT} --{option}": message for option, message in {
        "epsilon -1": "not a number greater than 0",
        "delta 1": "not a number between 0 and 1",
        "target smoke": "--target names the column 'smoke'",
        "save model.txt": "must end in .safetensors",
        "epsilon-cap 3": "needs --ledger",
        "where sex": "this is not a condition",
        "where height=3": "names the column 'height'",
    }.items()},
    "synth data.csv -o x.csv --epsilon 1": "--schema is required",
    "synth data.csv --epsilon 1 --schema schema.json": "required: --output",
    "synth -o x.csv": "name either a table or",
    "synth data.csv --model m.safetensors -o x.csv": "name either a table or",
    "synth --model m.safetensors -o x.csv --epsilon 1": "--epsilon belongs to a fit",
    "synth --model m.safetensors -o x.csv --seed -1": "not a whole number from 0",
    **{f"{GUESS} --{option}": message for option, message in {
        "sep ;;": "must be one character",
        "private height": "--private names the column 'height'",
        "range age=0-120": "write COLUMN=LOW..HIGH",
        "range age=young..old": "must be a number",
        "range sex=0..1": "has no bounds",
        "encoding klingon": "encoding 'klingon' is unknown",
    }.items()},
    "distance data.csv --epsilon 1": "two or more tables",
    f"{PARTIES} --schema schema.json --columns age": "--schema",
}  # fmt: skip
# What `data.csv` may hold, and what is said of it.
TABLES = {
    with_field(0, SECRET): "not a number",
    with_field(1, f"70 {SECRET}"): "not a number",
    with_field(2, SECRET): "not among its 2 categories",
    with_field(3, SECRET): "must hold True and False",
    with_field(4, SECRET): "dates or times",
    with_field(4, f"2024-01-{SECRET}"): "dates or times",
    with_field(0, "").replace("Female", SECRET, 1): "'age'|'sex'",
    with_field(2, "NA").replace("Female", SECRET, 1): "'sex'",
    with_field(1, "inf").replace("Female", SECRET, 1): "infinity|'sex'",
    with_field(0, "9" * 400).replace("Female", SECRET, 1): "'age'|'sex'",
    f"{SECRET},70.5,Female,True,2024-01-05\n{GOOD}\n": "has no column",
    f"{SECRET},70.5,{SECRET},True,2024-01-05\n{GOOD}\n": "the same name",
    f"{HEADER},{SECRET}\n{GOOD},1\n": "column number 6",
    f"age,weight,sex,{SECRET}\n30,70.5,Female,True\n": "has no column",
    f"{HEADER}\n{GOOD},{SECRET}\n": "has 6 fields",
    f"{HEADER}\n{SECRET},70.5\n": "has 2 fields",
    f'{HEADER}\n{GOOD}\n"{SECRET},70.5,Female,True,2024-01-05\n{GOOD}\n': "not valid CSV",
    f'{HEADER}\n30,70.5,"{SECRET}"x,True,2024-01-05\n': "not valid CSV",
    f'{HEADER}\n30,"{SECRET}{"x" * 200_000}\n': "not valid CSV",
    f"{HEADER}\n{GOOD}\n".replace(",", ";") + f"{SECRET}\n": "has no column",
    f"{HEADER}\n{GOOD}\n{SECRET}ü".encode("latin-1"): "not encoded in utf-8",
    f"{HEADER}\n{SECRET}\0\n": "has 1 fields",
    "": "is empty",
    f"{HEADER}\n": "has no rows",
    b"PK\x03\x04" + SECRET.encode(): "not encoded|has no",
    None: "data.csv: No such file",
}
OF_TWO = f"x,y,z\n1,2,{SECRET}\n1,2,3\n"
# Files, a command, and what is said: status 1.
REFUSED = [
    *(({"data.csv": content}, PAID, told) for content, told in TABLES.items()),
    *(({f"data.{kind}": content}, PAID.replace(".csv", f".{kind}", 1), f"data.{kind}")
      for kind, content in (
          ("csv.gz", f"{HEADER}\n{SECRET}"), ("parquet", f"PAR1{SECRET}"),
          ("csv.gz", gzip.compress(f"{HEADER}\n{SECRET}\n{GOOD}\n".encode() * 99)[:-9]),
      )),
    *(({"schema.json": content}, PAID, "schema.json: .*not a schema")
      for content in ("no JSON", "{}", b"\xff\xfe", f'{{"{SECRET}": "{SECRET}"}}')),
    ({"schema.json": TableSchema.guess(people(9)).to_json()}, PAID, "has not been confirmed"),
    *(({"old.html": "old"}, f"{PAID} --{option}", told) for option, told in {
        "where sex=Alien": "cannot be 'Alien'",
        "where age=100..120": "No value of 'age'",
        "where visit=2030-01-01..": "No value of 'visit'",
        "report no/report.html": "no/report.html cannot be written",
        "report data.csv --force": "data.csv is named twice",
        "report study.db --force": "study.db is named twice",
        "report ./new.csv": r"./new\.csv is named twice",
        "report .": "is a directory",
        "report schema.json": "schema.json is named twice",
        "report old.html": "old.html exists already",
        "missing x --sep ;": "has no column",
        "epsilon inf": "state its cap",
    }.items()),
    ({}, "schema data.csv -o schema.json --yes", "schema.json exists already"),
    ({}, "schema nowhere.csv -o new.json", "no terminal to ask on.*--yes"),
    ({}, "report data.csv", "is not a synthesizer"),
    *(({}, f"budget {path}", path) for path in ("missing.db", "data.csv")),
    ({"open.json": OPEN}, f"{PARTIES} --schema open.json --ledgers a.db b.db",
     "leaves 'age' to be estimated"),
    *(({"a.csv": "x,y,z\n1,2,3\n4,5,6\n", "b.csv": content}, f"{BOXED}{options}", told)
      for content, options, told in (
          (f"{SECRET},y\n1,2\n3,4\n", "", "do not have the same numeric columns"),
          (OF_TWO, "", "do not have the same numeric columns"),
          (OF_TWO, " --columns z", "no column of numbers named 'z'"),
          ("x,y,z\n1,,3\n1,2,3\n", "", "values of 'y' are missing"),
          ("x,y,z\n1,inf,3\n1,2,3\n", "", "infinity"),
          ("x,y,z\n1,2,3\n", "", "minimum of 2"),
      )),
]  # fmt: skip
CASES = [*(({}, words, 2, told) for words, told in USAGE.items())]
CASES += [(files, words, 1, told) for files, words, told in REFUSED]


@pytest.mark.parametrize(("files", "words", "status", "told"), CASES, ids=range(len(CASES)))
def test_what_is_refused_changes_nothing_and_quotes_nothing(
    refused, folder, files, words, status, told
):
    for name, content in files.items():
        if content is None:
            (folder / name).unlink()
        else:
            content = content if isinstance(content, bytes) else content.encode()
            (folder / name).write_bytes(content)
    for verbose in ("", "-v"):
        assert "withheld" not in refused(f"{words} {verbose}", status, told)


TOKENS = [SECRET, '"', ",", "\n", "1", "", "NA", "age", "sex", "Female", "\r", ";", "2024-01-01"]
KINDS = [
    NumericColumn("age", lower=0, upper=99, integer=True),
    CategoricalColumn("sex", categories=["Female"]),
    CategoricalColumn("sex", categories=[1, 2]),
    BooleanColumn("age"),
    DatetimeColumn("age", lower="2024-01-01", upper="2024-02-01"),
]


@given(st.lists(st.sampled_from(TOKENS), max_size=30), st.lists(st.sampled_from(KINDS), min_size=1))
@settings(max_examples=300, deadline=None)
def test_no_message_about_any_file_quotes_it(tmp_path_factory, tokens, columns):
    path = tmp_path_factory.mktemp("any") / "t.csv"
    path.write_text("".join(tokens))
    schema = TableSchema({column.name: column for column in columns}.values())
    for read in (
        lambda: read_table_file(str(path), schema, FileFormat()),
        lambda: read_guessable(str(path), FileFormat()),
    ):
        try:
            read()
            continue
        except Exception as error:
            (text, code), place = explain(error), where_it_happened(error)
        assert code == 1
        assert SECRET not in text + place
        assert "withheld" not in text


# --------------------------------------------------------------- what breaks inside


def breaking(error):
    def raise_it(*_, **__):
        if isinstance(error, str):
            pd.to_numeric(pd.Series([error]))  # pandas quotes it
        raise error

    return raise_it


WITHHELD = "ValueError inside of another library; its text is withheld"


@pytest.mark.parametrize(
    ("error", "code", "text"),
    [
        (SECRET, 1, WITHHELD),
        (KeyboardInterrupt(), 130, "interrupted"),
        (MemoryError(), 1, "not enough memory"),
        (FileNotFoundError(2, "No such file or directory", "x.csv"), 1, "x.csv: No such file"),
        (ModuleNotFoundError(name="torch"), 1, "pip install torch skorch"),
    ],
)
def test_other_ends(refused, monkeypatch, error, code, text):
    monkeypatch.setattr(schema_command, "run_schema", breaking(error))
    assert len(refused("schema data.csv", code, text).splitlines()) == 1
    assert "in raise_it" in refused("schema data.csv -v", code, text)


def test_a_fit_that_fails_tells_no_value(run, folder, monkeypatch):
    """Whatever a library below raises in the middle of a fit."""
    monkeypatch.setattr("skdpot.tables.fitting.TableFit.model", breaking(SECRET))
    code, out, err = run(f"{FIT} --ledger study.db -v")
    assert (code, out) == (1, "")
    assert WITHHELD in err
    assert SECRET not in err


def test_only_warnings_of_this_package_are_shown(run, folder, monkeypatch):
    def warn(args, console):
        warnings.warn(SECRET, UserWarning, stacklevel=1)
        warnings.warn("take care", PrivacyWarning, stacklevel=1)

    monkeypatch.setattr(budget_command, "run_budget", warn)
    assert run("budget study.db") == (0, "", "skdpot: warning: take care\n")
