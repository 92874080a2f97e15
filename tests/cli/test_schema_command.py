"""``skdpot schema``: a guess is shown whole, and written when somebody confirms it."""

import json
from dataclasses import fields

import numpy as np
import pandas as pd
import pytest

from skdpot.cli import schema as schema_command
from skdpot.preprocessing import (
    BooleanColumn,
    CategoricalColumn,
    DatetimeColumn,
    NumericColumn,
    TableSchema,
    TimedeltaColumn,
)
from skdpot.tables.proposals import Proposal
from tests.cli.cases import people

GUESS = "schema data.csv -o new.json --yes"


@pytest.fixture
def guessed(run, folder):
    """Guess of a table with more columns; return the schema, its text, and what was shown."""

    def call(n_rows, columns, options=""):
        people(n_rows).assign(**columns).to_csv("data.csv", index=False)
        code, _, err = run(f"{GUESS} --force {options}")
        assert code == 0, err
        text = (folder / "new.json").read_text()
        return TableSchema.from_json(text), text, err

    return call


def test_a_guess_is_shown_and_written_when_confirmed(run, folder, answer):
    answer("y\n")
    code, out, err = run("schema data.csv -o new.json")
    assert code == 0
    assert err.startswith("Guessed from the VALUES of data.csv. Everything that you confirm")
    assert "2 categories: Female, Male" in err
    assert err.rstrip().endswith("Write new.json? [y/N]")
    assert out == "wrote new.json: 5 columns, confirmed as public\n"
    written = TableSchema.from_json(folder / "new.json")
    assert not written.guessed
    assert written.names == ("age", "weight", "sex", "smokes", "visit")
    kinds = [column.kind for column in written]
    assert kinds == ["numeric", "numeric", "categorical", "boolean", "datetime"]


def test_rules_that_somebody_wrote_stay_and_are_obeyed(run, folder, refused):
    assert run(GUESS)[0] == 0
    written = json.loads((folder / "new.json").read_text())
    written["rules"] = [
        {"kind": "forbidden", "values": {"smokes": True, "age": [0, 50]}},
        {"kind": "pattern", "column": "code", "pattern": "[A-F]{4}", "unique": True},
    ]
    (folder / "new.json").write_text(json.dumps(written))
    code, _, err = run(f"{GUESS} --force")
    assert code == 0
    assert "rule: No row has “smokes” True with “age” 0 to 50" in err  # as all that is confirmed
    schema = TableSchema.from_json(folder / "new.json")
    assert [rule.kind for rule in schema.rules] == ["forbidden", "pattern"]
    fit = "synth data.csv --schema new.json --epsilon 3 -o new.csv --rows 30 --save s.safetensors"
    refused(f"{fit} --where code=AA", 2, "--where names the column 'code'")
    assert run(fit)[0] == 0
    rows = pd.read_csv("new.csv")
    assert not (rows["smokes"] & (rows["age"] <= 50)).any()
    assert rows["code"].nunique() == 30
    report = run("report s.safetensors -o r.html --holdout data.csv --no-audit")
    assert report[0] == 0, report
    refused(f"{GUESS} --force --leave-out smokes", 1, "rules in new.json do not fit.*'smokes'")


@pytest.mark.parametrize("text", ["n\n", "", "\n", "yellow\n"])
def test_nothing_is_written_unless_confirmed(refused, answer, text):
    answer(text)
    refused("schema data.csv -o new.json", 1, "not confirmed; nothing was written")


def test_every_category_and_every_digit_is_shown(guessed, monkeypatch):
    monkeypatch.setenv("COLUMNS", "80")
    cities = [f"city-{number}" for number in range(60)]
    columns = {"city": np.resize(cities, 300), "income": np.linspace(0, 1_234_567.5, 300)}
    written, _, err = guessed(300, columns)
    assert all(city in err for city in cities)
    assert f"{written['income'].upper!r}" in err
    assert max(map(len, err.splitlines())) <= 80


def test_columns_can_be_left_open_bounded_and_excluded(guessed):
    options = "--private sex --private visit --range age=0..120 --range weight=0..500"
    written, text, err = guessed(300, {}, f"{options} --leave-out smokes")
    assert written["sex"].categories is None
    assert (written["visit"].lower, written["visit"].upper) == (None, None)
    assert (written["age"].lower, written["age"].upper) == (0, 120)
    assert (written["weight"].lower, written["weight"].upper) == (0.0, 500.0)
    assert written.excluded == ("smokes",)
    assert "Female" not in err + text


def test_what_is_left_open_has_no_scale_of_its_values(guessed):
    cost = {"cost": np.r_[np.ones(299), 1e6]}  # the one row gives it a logarithmic scale
    cost["a=b"] = np.arange(300)
    for options, log_scale in (
        ("", True),
        ("--private cost --range a=b=0..400", False),
        ("--private-all --range a=b=0..400", False),
    ):
        written, *_ = guessed(300, cost, options)
        assert written["cost"].log_scale is log_scale
        assert written["a=b"].is_resolved


def test_what_was_left_out_is_told_and_comes_back_when_it_is_named(run, guessed):
    columns = {
        "code": [f"P{number:06}" for number in range(300)],
        "name": np.resize(["Anna Smith", "Bob Miller"], 300),
        "born": np.resize(["03/04/1970", "05/06/1980"], 300),
        "cost": np.resize(["1.234", "5.678", "$9.012"], 300),
    }
    written, text, err = guessed(300, columns)
    assert written.excluded == ("code", "name", "born", "cost")
    assert json.loads(text)["notes"] == []  # they count private values
    assert "Anna" not in text + err
    for told in ("look like identifiers", "identify people", "=%d/%m/%Y", "1,234 may be"):
        assert told in " ".join(err.split())
    said = "--date born=%m/%d/%Y --number cost=$1.234,50 --category age"
    code, out, err = run(f"schema data.csv --yes --private name {said}")
    assert code == 0
    found = TableSchema.from_json(out)
    assert found["name"].categories is None
    assert "Anna" not in out + err
    assert (found["born"].lower, found["born"].formats) == ("1970-01-01", ("%m/%d/%Y",))
    assert (found["cost"].upper, found["age"].kind) == (9500, "categorical")
    assert found["age"].categories == tuple(sorted({*map(str, people(300)["age"])}))


def test_names_and_categories_cannot_drive_the_terminal(guessed):
    _, _, err = guessed(100, {"x\x1b]0;y": np.resize(["red\x1b[2J", "blue"], 100)})
    assert "\x1b" not in err
    assert r"red\x1b[2J" in err


# A column of each kind, and what else a guess could hold of it.
DATES = {"lower": "2024-01-02", "upper": "2024-04-01", "resolution": "D", "formats": ["%d/%m/%Y"]}
HELD = [
    (
        NumericColumn("x", lower=0, upper=9, integer=True),
        {"lower": 1, "upper": 8, "integer": False, "log_scale": True, "written": "1.234,50 EUR"},
    ),
    (
        DatetimeColumn("x", lower="2024-01-01", upper="2024-03-01"),
        DATES | {"dtype": "datetime64[s, UTC]"},
    ),
    (
        TimedeltaColumn("x", lower="0 h", upper="9 h"),
        {"lower": "1 h", "upper": "8 h", "resolution": "h"},
    ),
    (
        CategoricalColumn("x", categories=["a", "b"]),
        {"categories": ["a", "c"], "ordered": True, "other": "z"},
    ),
    (BooleanColumn("x"), {}),
]


@pytest.mark.parametrize(("column", "others"), HELD, ids=[column.kind for column, _ in HELD])
def test_nothing_of_a_guess_is_confirmed_that_is_not_shown(column, others):
    """Of data types, which are public where nothing is inferred, the time zone alone."""

    def shown(found):
        proposal = Proposal("x", found, "its values")
        return schema_command._shown(TableSchema([found]), [proposal], {})[1]

    others = others | {"missing": True}
    assert {item.name for item in fields(column)} - {"name", "dtype", "knots"} <= {*others}
    texts = {shown(column), *(shown(column.replace(**{n: v})) for n, v in others.items())}
    assert len(texts) == len(others) + 1
