"""``skdpot schema``: a guess is shown whole, and written when somebody confirms it."""

import json

import numpy as np
import pytest

from skdpot.preprocessing import TableSchema
from tests.cli.cases import people


def test_a_guess_is_shown_and_written_when_confirmed(run, folder, answer):
    answer("y\n")
    code, out, err = run("schema", "data.csv", "-o", "new.json")
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


@pytest.mark.parametrize("text", ["n\n", "", "\n", "yellow\n"])
def test_nothing_is_written_unless_confirmed(run, folder, answer, text):
    before = sorted(folder.iterdir())
    answer(text)
    code, out, err = run("schema", "data.csv", "-o", "new.json")
    assert (code, out) == (1, "")
    assert "not confirmed; nothing was written" in err
    assert sorted(folder.iterdir()) == before


def test_without_a_terminal_nothing_is_read_or_shown(run, folder):
    code, out, err = run("schema", "there is no such file.csv", "-o", "new.json")
    assert (code, out) == (1, "")
    assert "no terminal to ask on" in err
    assert "--yes" in err


def test_every_category_and_every_digit_is_shown(run, folder, monkeypatch):
    monkeypatch.setenv("COLUMNS", "80")
    frame = people(300)
    cities = [f"city-{number}" for number in range(60)]
    frame["city"] = np.resize(cities, 300)
    frame["income"] = np.linspace(0, 1_234_567.5, 300)
    frame.to_csv("data.csv", index=False)
    code, _, err = run("schema", "data.csv", "-o", "new.json", "--yes")
    assert code == 0
    assert all(city in err for city in cities)
    written = TableSchema.from_json(folder / "new.json")
    assert f"to {written['income'].upper!r}" in err
    assert max(map(len, err.splitlines())) <= 80


def test_columns_can_be_left_open_bounded_and_excluded(run, folder):
    options = ["--private", "sex", "--private", "visit", "--range", "age=0..120"]
    options += ["--range", "weight=0..500", "--exclude", "smokes"]
    code, _, err = run("schema", "data.csv", "-o", "new.json", "--yes", *options)
    assert code == 0
    written = TableSchema.from_json(folder / "new.json")
    assert written["sex"].categories is None
    assert (written["visit"].lower, written["visit"].upper) == (None, None)
    assert (written["age"].lower, written["age"].upper) == (0, 120)
    assert (written["weight"].lower, written["weight"].upper) == (0.0, 500.0)
    assert written.excluded == ("smokes",)
    assert "Female" not in err + (folder / "new.json").read_text()


def test_what_is_left_open_has_no_scale_of_its_values(run, folder):
    frame = people(300)
    frame["cost"] = np.r_[np.ones(299), 1e6]  # the one row gives it a logarithmic scale
    frame.to_csv("data.csv", index=False)
    for options, log_scale in (((), True), (("--private-all",), False)):
        code, _, _ = run("schema", "data.csv", "-o", "new.json", "--yes", *options)
        assert code == 0
        assert TableSchema.from_json(folder / "new.json")["cost"].log_scale is log_scale
        (folder / "new.json").unlink()


def test_what_was_left_out_is_told_and_comes_back_when_it_is_named(run, folder):
    frame = people(300)
    frame["code"] = [f"P{number:06}" for number in range(300)]
    frame["name"] = np.resize(["Anna Smith", "Bob Miller"], 300)
    frame["born"] = frame["visit"].dt.strftime("%d/%m/%Y")
    frame["cost"] = [f"{number:,.2f}" for number in range(1000, 1300)]
    frame.to_csv("data.csv", index=False)
    code, _, err = run("schema", "data.csv", "-o", "new.json", "--yes")
    assert code == 0
    text = (folder / "new.json").read_text()
    assert json.loads(text)["excluded"] == ["code", "name", "born", "cost"]
    assert json.loads(text)["notes"] == []  # they count private values
    assert "Anna" not in text + err
    for told in ("look like identifiers", "identify people", "dayfirst=True", "thousands"):
        assert told in " ".join(err.split())
    code, out, err = run("schema", "data.csv", "--yes", "--private", "name")
    assert code == 0
    assert TableSchema.from_json(out)["name"].categories is None
    assert "Anna" not in out + err


def test_an_existing_file_is_kept_unless_forced(run, folder):
    before = (folder / "schema.json").read_text()
    code, _, err = run("schema", "data.csv", "-o", "schema.json", "--yes")
    assert code == 1
    assert "schema.json exists already" in err
    assert (folder / "schema.json").read_text() == before
    assert run("schema", "data.csv", "-o", "schema.json", "--yes", "--force")[0] == 0
    assert (folder / "schema.json").read_text() != before


def test_names_and_categories_cannot_drive_the_terminal(run, folder):
    frame = people(100)
    frame["x\x1b]0;y"] = np.resize(["red\x1b[2J", "blue"], 100)
    frame.to_csv("data.csv", index=False)
    _, _, err = run("schema", "data.csv", "-o", "new.json", "--yes")
    assert "\x1b" not in err
    assert r"red\x1b[2J" in err
