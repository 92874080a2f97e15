"""Tables from files: data types, missing values, formats, and files that appear whole."""

import csv
import errno
import os
from argparse import Namespace
from importlib.util import find_spec
from io import StringIO

import numpy as np
import pandas as pd
import polars as pl
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from skdpot.cli import table_files
from skdpot.cli.console import CommandError, OutputFile
from skdpot.cli.table_files import (
    MISSING_TEXTS,
    FileFormat,
    check_writable_format,
    inferred_values,
    read_guessable,
    read_table_file,
    write_table_file,
)
from skdpot.preprocessing import (
    BooleanColumn,
    CategoricalColumn,
    DatetimeColumn,
    NumericColumn,
    TableSchema,
)
from tests.cli.cases import people, people_schema

PLAIN = FileFormat()


def read(path, columns, form=PLAIN):
    return read_table_file(str(path), TableSchema(columns), form)


def of_texts(name, *texts):
    return "\n".join([name, *texts]) + "\n"


WHOLE = st.integers(-(2**63), 2**63 - 1).map(str)
REAL = st.floats(allow_nan=False, allow_infinity=False).map(repr)


@given(
    st.lists(WHOLE, min_size=1)
    | st.lists(WHOLE | REAL, min_size=1)
    | st.lists(st.sampled_from(["True", "False"]), min_size=1)
    | st.lists(st.sampled_from(["a", "b c", "1x", "2024-01-01", "True", "7"]), min_size=1)
)
def test_data_types_are_those_that_pandas_infers(texts):
    expected = pd.read_csv(StringIO(of_texts("x", *texts)))["x"]
    found = inferred_values(texts, MISSING_TEXTS).rename("x")
    if expected.dtype == "float64":  # and numbers are the nearest doubles
        pd.testing.assert_series_equal(found, expected, rtol=1e-15)
        assert found.tolist() == [*map(float, texts)]
    else:
        pd.testing.assert_series_equal(found, expected)


def test_missing_values_keep_the_kind_of_a_column():
    for texts, dtype in [
        (["1", "", "3"], "Int64"),
        (["1.5", "NA"], "float64"),
        (["True", "null"], "boolean"),
        (["a", "nan"], "str"),
        (["99999999999999999999"], "str"),
    ]:
        found = inferred_values(texts, MISSING_TEXTS)
        assert found.dtype == dtype
        assert found.hasnans == (len(texts) > 1)


SCHEMA = [
    NumericColumn("n", lower=0, upper=9, integer=True, missing=True),
    NumericColumn("x", lower=0, upper=9, missing=True),
    BooleanColumn("b", missing=True),
    CategoricalColumn("c", categories=["None", "007"], missing=True),
    CategoricalColumn("k", categories=[1, 2], missing=True),
    CategoricalColumn("m", categories=[1, "one", True], missing=True),
    CategoricalColumn("o", missing=True),
    DatetimeColumn("d", lower="2024-01-01", upper="2024-02-01", missing=True),
]


def test_with_a_schema_no_value_has_a_part_in_the_data_types(tmp_path):
    """Nor that one is missing; that each is read by itself: `test_one_row_one_code`."""
    lines = ["n,x,b,c,k,m,o,d", "5,0.5,1,007,2,True,7,2024-01-05", "5.0" + "," * 7]
    for n_lines in (2, 3):
        (tmp_path / "data.csv").write_text("\n".join(lines[:n_lines]))
        frame, schema = read(tmp_path / "data.csv", SCHEMA)
        dtypes = [column.dtype for column in schema.bind(frame)]
        assert dtypes == "int64 float64 bool str object object str datetime64[s]".split()
        assert (frame["n"][0], frame["m"][0], frame["o"][0]) == (5, True, "7")


def test_missing_markers_of_ones_own(tmp_path):
    (tmp_path / "data.csv").write_text(of_texts("c", "?", "NA", '""', "b"))
    form = FileFormat(missing=("?",))
    frame, _ = read(tmp_path / "data.csv", [CategoricalColumn("c", missing=True)], form)
    assert frame["c"].isna().tolist() == [True, False, True, False]


FORMS = [(name, PLAIN) for name in ("t.csv", "t.csv.gz", "t.tsv", "t.parquet")]
FORMS += [("t.txt", FileFormat(separator=";")), ("t.csv", FileFormat(encoding="utf-16"))]


@pytest.mark.parametrize(("name", "form"), FORMS)
@pytest.mark.parametrize("kind", ["pandas", "polars"])
def test_what_is_written_is_read_again(tmp_path, name, form, kind):
    frame = people(50)
    frame["sex"] = np.resize(["a,b", 'say "hi"\nthere', "Zoë;x\ty", ""], 50)
    schema = people_schema().replace(CategoricalColumn("sex", categories=set(frame["sex"])))
    written = frame
    if kind == "polars":
        days = frame["visit"].dt.date
        written = pl.DataFrame(frame.assign(visit=days).to_dict("list"))
    if name.endswith("parquet") and kind == "pandas" and find_spec("pyarrow") is None:
        with pytest.raises(CommandError, match="needs pyarrow"):
            check_writable_format(name, kind)
        return
    check_writable_format(name, kind)
    write_table_file(tmp_path / name, written, form)
    found, bound = read_table_file(str(tmp_path / name), schema, form)
    for column in bound:
        ours, theirs = (column.to_unit(table[column.name]) for table in (found, frame))
        np.testing.assert_array_equal(ours, theirs)


FORMULAS = ["=HYPERLINK(1)", "+1+cmd|' /C x'!A0", "-2+3", "@SUM(1)", "\t=1", "\r=1", "\n=1", " =1"]
FORMULAS += ["=1;2", '="a"', "\uff1d1"]
NO_FORMULAS = ["-5", "+5", "-5.5e3", "a=1", "", "'=1", "1-2"]


@pytest.mark.parametrize("kind", ["pandas", "category", "polars", "enum"])
def test_no_guarded_text_is_a_formula_and_numbers_stay_numbers(tmp_path, kind):
    texts = [*FORMULAS, *NO_FORMULAS]
    numbers = [-float(place) for place in range(len(texts))]
    frame = pd.DataFrame({"=a": texts, "n": numbers, "b": texts[::-1]})
    if kind == "category":
        frame = frame.astype({"=a": "category"})
    elif kind != "pandas":
        frame = pl.DataFrame(frame.to_dict("list"))
        frame = frame.cast({"=a": pl.Enum(texts)}) if kind == "enum" else frame
    guarded = [f"'{text}" for text in FORMULAS] + NO_FORMULAS
    for guard, name, expected in ((False, "=a", texts), (True, "'=a", guarded)):
        write_table_file(tmp_path / "t.csv", frame, PLAIN, guard=guard)
        with open(tmp_path / "t.csv", newline="") as stream:
            header, *rows = csv.reader(stream)
        assert header == [name, "n", "b"]
        assert [row[0] for row in rows] == expected
        assert [row[2] for row in rows] == expected[::-1]
        assert [float(row[1]) for row in rows] == numbers
    # Another separator than the file's begins no cell of its own, for texts are quoted.
    assert '"\'=1;2"' in (tmp_path / "t.csv").read_text()


def test_parquet_without_a_reader(tmp_path, monkeypatch):
    (tmp_path / "t.parquet").write_bytes(b"PAR1")
    monkeypatch.setattr(table_files, "find_spec", lambda name: None)
    with pytest.raises(CommandError, match="Parquet needs pyarrow or polars"):
        read_guessable(str(tmp_path / "t.parquet"), PLAIN)


@pytest.mark.parametrize("end", ["\n", "\r\n"])
def test_marks_before_the_header_and_either_line_ending(tmp_path, end):
    (tmp_path / "t.csv").write_bytes(f"\ufeff,a{end}0,1{end}1,2{end}".encode())
    assert read_guessable(str(tmp_path / "t.csv"), PLAIN).to_dict("list") == {
        "Unnamed: 0": [0, 1],
        "a": [1, 2],
    }


FIELDS = ["", "1", "2", "NA", "#", "# 1", "//", " ", '""', '"2"', '"1\n2"', '"\n"', '"1\r"', "1 2"]


@given(
    records=st.lists(st.sampled_from(FIELDS), min_size=1, max_size=6),
    row=st.integers(0, 5),
    other=st.sampled_from(FIELDS),
    end=st.sampled_from(["\n", "\r\n"]),
    last=st.booleans(),
)
@settings(deadline=None, max_examples=300)
def test_a_record_of_one_column_changes_one_value(tmp_path_factory, records, row, other, end, last):
    """Every line is a record, the empty one too: replacing a record leaves the number of rows."""
    path = tmp_path_factory.mktemp("one") / "t.csv"
    column = CategoricalColumn("c", categories=["1", "2"], other="?", missing=True)

    def codes(fields):
        text = end.join(["c", *fields]) + (end if last or not fields[-1] else "")
        path.write_text(text, newline="")
        frame, schema = read(path, [column])
        return schema["c"].to_codes(frame["c"])

    before = codes(records)
    assert len(before) == len(records)
    row %= len(records)
    after = codes([*records[:row], other, *records[row + 1 :]])
    np.testing.assert_array_equal(np.delete(after, row), np.delete(before, row))


def test_an_empty_line_of_one_column_is_a_record(tmp_path):
    """Of three people, wherever the one stands whose value is missing."""
    for place in range(3):
        fields = ["1", "2"]
        fields.insert(place, "")
        (tmp_path / "t.csv").write_text(of_texts("c", *fields))
        frame, _ = read(tmp_path / "t.csv", [NumericColumn("c", lower=0, upper=9, missing=True)])
        assert frame["c"].isna().tolist() == [field == "" for field in fields]


@pytest.mark.parametrize(
    ("content", "line"),
    [
        ("a,b\n1,2\n\n3,4\n", 3),
        ("a,b\n1,2\n\n", 3),
        ("a,b\r\n\r\n1,2\r\n", 2),
        ("a,b\n1,2\r3,4\n", 2),
        ("a\n1\r2\n", 2),
        ("a\r1\r2\r", 1),
    ],
)
def test_lines_that_are_no_record_or_two_are_refused(tmp_path, content, line):
    """Passed over or cut in two, they would change the number of rows without a word."""
    (tmp_path / "t.csv").write_text(content, newline="")
    with pytest.raises(CommandError, match=f"t.csv, line {line}[ ,]"):
        read_guessable(str(tmp_path / "t.csv"), PLAIN)


# ------------------------------------------------------------------- texts of one column

SCALES = [
    NumericColumn("c", lower=0, upper=9, integer=True, missing=True),
    NumericColumn("c", lower=0, upper=2.0**54, missing=True),
]
LISTED = CategoricalColumn("c", categories=[1, 0.5], other=-1, missing=True)


def units(column, texts):
    return column.to_unit(column.parse(texts, MISSING_TEXTS))


@pytest.mark.parametrize("text", ["1_000", "٣", "0x10", "1,5", "one", "--1"])
def test_what_is_no_number_is_refused(text):
    for column in (*SCALES, LISTED):
        with pytest.raises(ValueError, match="not a number .not shown"):
            units(column, ["1", text])


@pytest.mark.parametrize("text", ["inf", "-Infinity", "+inf", " infinity"])
def test_infinity_is_refused(text):
    for column in SCALES:
        with pytest.raises(ValueError, match="holds infinity"):
            units(column, ["1", text])


# -------------------------------------------------------------------- files that appear whole


@pytest.mark.parametrize("force", [False, True])
def test_an_interrupted_write_leaves_nothing(tmp_path, force):
    def fill(path):
        path.write_text("half")
        raise KeyboardInterrupt

    with pytest.raises(KeyboardInterrupt):
        OutputFile(str(tmp_path / "x.csv"), force=force).write(fill)
    assert list(tmp_path.iterdir()) == []


def test_what_came_to_exist_is_kept(tmp_path):
    output = OutputFile(str(tmp_path / "x.csv"), force=False)
    output.check()
    (tmp_path / "x.csv").write_text("theirs")
    with pytest.raises(CommandError, match="came to exist"):
        output.write(lambda path: path.write_text("ours"))
    assert (tmp_path / "x.csv").read_text() == "theirs"
    OutputFile(str(tmp_path / "y.csv"), force=False).write(lambda path: path.write_text("ours"))
    assert (tmp_path / "y.csv").read_text() == "ours"
    assert sorted(path.name for path in tmp_path.iterdir()) == ["x.csv", "y.csv"]


def test_an_output_that_is_an_input_by_another_name(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    (tmp_path / "data.csv").write_text("")
    (tmp_path / "link.csv").symlink_to("data.csv")
    args = Namespace(force=True, output="link.csv")
    with pytest.raises(CommandError, match=r"link\.csv is named twice"):
        OutputFile.of(args, ["output"], ["data.csv", None])
    assert list(OutputFile.of(args, ["output"], [None])) == ["output"]
    assert sorted(path.name for path in tmp_path.iterdir()) == ["data.csv", "link.csv"]


def test_a_full_disk_is_reported_with_the_name_of_the_file(tmp_path):
    def fill(path):
        path.write_text("half")
        raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC))

    output = OutputFile(str(tmp_path / "x.csv"), force=True)
    (tmp_path / "x.csv").write_text("what was there before")
    with pytest.raises(CommandError, match=r"x\.csv cannot be written: No space left on device\."):
        output.write(fill)
    assert [path.read_text() for path in tmp_path.iterdir()] == ["what was there before"]
