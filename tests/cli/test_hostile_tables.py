"""No message quotes a value of the table, whatever is wrong with the file."""

import gzip

import pandas as pd
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from skdpot.cli.console import explain, where_it_happened
from skdpot.cli.table_files import FileFormat, read_guessable, read_table
from skdpot.preprocessing import (
    BooleanColumn,
    CategoricalColumn,
    DatetimeColumn,
    NumericColumn,
    TableSchema,
)
from tests.cli.cases import SECRET, people

HEADER = "age,weight,sex,smokes,visit"
GOOD = "30,70.5,Female,True,2024-01-05"


def with_field(place, text):
    fields = GOOD.split(",")
    fields[place] = text
    return f"{HEADER}\n{GOOD}\n{','.join(fields)}\n"


FILES = {
    "a text among integers": with_field(0, SECRET),
    "a text among floats": with_field(1, f"70 {SECRET}"),
    "an unknown category": with_field(2, SECRET),
    "no truth value": with_field(3, SECRET),
    "no date": with_field(4, SECRET),
    "a date that looks like one": with_field(4, f"2024-01-{SECRET}"),
    "a missing integer": with_field(0, "").replace("Female", SECRET, 1),
    "a missing category": with_field(2, "NA").replace("Female", SECRET, 1),
    "infinity": with_field(1, "inf").replace("Female", SECRET, 1),
    "a huge number": with_field(0, "9" * 400).replace("Female", SECRET, 1),
    "no header": f"{SECRET},70.5,Female,True,2024-01-05\n{GOOD}\n",
    "no header, a field twice": f"{SECRET},70.5,{SECRET},True,2024-01-05\n{GOOD}\n",
    "another column": f"{HEADER},{SECRET}\n{GOOD},1\n",
    "a column less": f"age,weight,sex,{SECRET}\n30,70.5,Female,True\n",
    "a field more": f"{HEADER}\n{GOOD},{SECRET}\n",
    "a field less": f"{HEADER}\n{SECRET},70.5\n",
    "a quote that stays open": f'{HEADER}\n{GOOD}\n"{SECRET},70.5,Female,True,2024-01-05\n{GOOD}\n',
    "a quote in the middle": f'{HEADER}\n30,70.5,"{SECRET}"x,True,2024-01-05\n',
    "a field without end": f'{HEADER}\n30,"{SECRET}{"x" * 200_000}\n',
    "another separator": f"{HEADER}\n{GOOD}\n".replace(",", ";") + f"{SECRET}\n",
    "another encoding": f"{HEADER}\n{GOOD}\n{SECRET}ü".encode("latin-1"),
    "zeros": f"{HEADER}\n{SECRET}\0\n".encode(),
    "nothing": "",
    "a header alone": f"{HEADER}\n",
    "an archive": b"PK\x03\x04" + SECRET.encode(),
}


@pytest.mark.parametrize("verbose", [(), ("-v",)], ids=["", "-v"])
@pytest.mark.parametrize("name", FILES)
def test_no_value_is_quoted_and_nothing_is_charged(run, folder, name, verbose):
    content = FILES[name]
    (folder / "data.csv").write_bytes(content if isinstance(content, bytes) else content.encode())
    before = sorted(folder.iterdir())
    code, out, err = run(
        *("synth", "data.csv", "--schema", "schema.json", "--epsilon", "1", "-o", "new.csv"),
        *("--ledger", "study.db", "--save", "model.safetensors", *verbose),
    )
    assert (code, out) == (1, "")
    assert "skdpot: error: " in err
    assert SECRET not in err
    assert "withheld" not in err  # each of them is explained
    assert "Traceback" not in err
    assert sorted(folder.iterdir()) == before


@pytest.mark.parametrize(
    ("name", "content"),
    [
        ("data.csv.gz", f"{HEADER}\n{SECRET}".encode()),
        ("data.csv.gz", gzip.compress(f"{HEADER}\n{SECRET}\n{GOOD}\n".encode() * 99)[:-9]),
        ("data.parquet", f"PAR1{SECRET}".encode()),
        ("data.csv", None),
    ],
)
def test_files_that_are_no_tables(run, folder, name, content):
    (folder / "data.csv").unlink()
    if content is not None:
        (folder / name).write_bytes(content)
    code, out, err = run(
        *("synth", name, "--schema", "schema.json", "--epsilon", "1", "-o", "new.csv", "-v")
    )
    assert (code, out) == (1, "")
    assert name in err
    assert SECRET not in err
    assert not (folder / "new.csv").exists()


def test_the_fields_of_a_table_are_not_taken_for_a_schema(run, folder):
    (folder / "data.csv").write_text(f'{{"{SECRET}": "{SECRET}"}}')
    code, _, err = run(
        *("synth", "data.csv", "--schema", "data.csv", "--epsilon", "1", "-o", "new.csv", "-v")
    )
    assert code == 1
    assert SECRET not in err


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
        lambda: read_table(str(path), schema, FileFormat()),
        lambda: read_guessable(str(path), FileFormat()),
    ):
        error = caught(read)
        if error is not None:
            text, code = explain(error)
            assert code == 1
            assert SECRET not in text + where_it_happened(error)
            assert "withheld" not in text


def caught(call):
    try:
        call()
    except Exception as error:
        return error
    return None


def test_a_fit_that_fails_tells_no_value(run, folder, monkeypatch):
    """Whatever a library below raises in the middle of a fit."""

    def fail(*args, **kwargs):
        pd.to_numeric(people(5)["sex"].replace("Female", SECRET).replace("Male", SECRET))

    monkeypatch.setattr("skdpot.tables.fitting.TableFit.model", fail)
    code, out, err = run(
        *("synth", "data.csv", "--schema", "schema.json", "--epsilon", "1", "-o", "new.csv", "-v"),
        *("--ledger", "study.db"),
    )
    assert (code, out) == (1, "")
    assert "withheld" in err
    assert SECRET not in err
