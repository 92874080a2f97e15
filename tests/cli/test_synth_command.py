"""``skdpot synth``: one charge, whole files, conditions kept, nothing when refused."""

import json

import pandas as pd
import pytest

from skdpot.cli import commands
from skdpot.preprocessing import CategoricalColumn, NumericColumn, TableSchema
from skdpot.privacy.budget import PrivacyBudget
from tests.cli.cases import people, people_schema

FIT = ("synth", "data.csv", "--schema", "schema.json", "--epsilon", "1")


def charges(path):
    return PrivacyBudget.from_ledger(path).history()["label"].tolist()


def test_everything_at_once(run, folder):
    code, out, err = run(
        *(*FIT, "-o", "new.csv", "--ledger", "study.db", "--epsilon-cap", "3", "--delta", "1e-6"),
        *("--report", "report.html", "--save", "model.safetensors", "--target", "smokes"),
    )
    assert (code, err) == (0, "")
    lines = out.splitlines()
    assert lines[0] == "wrote new.csv: 500 rows, 5 columns"
    assert lines[1].startswith("spent epsilon = 1 at delta = 1e-06, for replacing one of 500 rows")
    assert lines[2].startswith("study.db has spent epsilon = 1 of 3 at delta = 1e-06; one more")
    assert lines[3:5] == ["report: report.html", "model: model.safetensors"]
    frame = pd.read_csv(folder / "new.csv", parse_dates=["visit"])
    assert list(frame.columns) == list(people_schema().names)
    assert len(frame) == 500
    assert frame["age"].dtype == "int64"
    assert frame["age"].between(18, 90).all()
    assert set(frame["sex"]) <= {"Female", "Male"}
    assert frame["smokes"].dtype == "bool"
    assert frame["visit"].between("2024-01-01", "2024-03-01").all()
    assert "<html" in (folder / "report.html").read_text().lower()
    assert charges("study.db") == ["DPTableSynthesizer"]
    budget = PrivacyBudget.from_ledger("study.db")
    assert (budget.epsilon, budget.delta) == (3.0, 1e-6)


def test_a_saved_fit_draws_for_free(run, folder):
    assert run(*FIT, "-o", "new.csv", "--save", "model.safetensors", "--ledger", "study.db")[0] == 0
    (folder / "data.csv").unlink()
    draw = ("synth", "--model", "model.safetensors", "--rows", "500", "--seed", "3")
    code, out, _ = run(*draw, "-o", "more.csv", "--where", "sex=Female", "--where", "age=30..40")
    assert code == 0
    assert "which costs no privacy" in out
    frame = pd.read_csv(folder / "more.csv")
    assert len(frame) == 500
    assert set(frame["sex"]) == {"Female"}
    assert frame["age"].between(30, 40).all()
    assert len(charges("study.db")) == 1
    for name in ("again.csv", "once.csv"):
        assert run(*draw, "-o", name, "--report", f"{name}.html")[0] == 0
    assert (folder / "again.csv").read_text() == (folder / "once.csv").read_text()


def test_the_seed_does_not_make_the_noise_known(run, folder):
    for name in ("a.csv", "b.csv"):
        assert run(*FIT, "-o", name, "--seed", "1")[0] == 0
    assert (folder / "a.csv").read_text() != (folder / "b.csv").read_text()


# ----------------------------------------------------------------------- what is refused


@pytest.mark.parametrize(
    ("options", "code", "match"),
    [
        (["--where", "sex=Alien"], 1, "cannot be 'Alien'"),
        (["--where", "age=100..120"], 1, "No value of 'age'"),
        (["--where", "visit=2030-01-01.."], 1, "No value of 'visit'"),
        (["--where", "height=3"], 2, "names the column 'height'"),
        (["--target", "height"], 2, "--target names the column 'height'"),
        (["--report", "no/report.html"], 1, "no/report.html cannot be written"),
        (["--save", "data.csv"], 2, "must end in .safetensors"),
        (["--report", "data.csv", "--force"], 1, "data.csv is named twice"),
        (["--report", "study.db", "--force"], 1, "study.db is named twice"),
        (["--report", "schema.json"], 1, "schema.json is named twice"),
        (["--report", "old.html"], 1, "old.html exists already"),
        (["--missing", "x", "--sep", ";"], 1, "has no column"),
    ],
)
def test_what_is_refused_costs_nothing(run, folder, options, code, match):
    (folder / "old.html").write_text("old")
    before = {path.name: path.read_bytes() for path in folder.iterdir()}
    found, out, err = run(*FIT, "-o", "new.csv", "--ledger", "study.db", *options)
    assert (found, out) == (code, "")
    assert match in err
    assert {path.name: path.read_bytes() for path in folder.iterdir()} == before


def test_a_budget_that_cannot_pay_is_status_3(run, folder):
    assert run(*FIT, "-o", "new.csv", "--ledger", "study.db")[0] == 0
    before = sorted(folder.iterdir())
    code, out, err = run(
        *(*FIT, "-o", "more.csv", "--ledger", "study.db"),
        *("--save", "model.safetensors", "--report", "report.html"),
    )
    assert (code, out) == (3, "")
    assert "Nothing was charged or released" in err
    assert "GridSearchCV" not in err
    assert sorted(folder.iterdir()) == before
    assert len(charges("study.db")) == 1


def test_a_ledger_keeps_its_cap_and_gives_its_delta(run, folder):
    PrivacyBudget(3.0, 1e-7, ledger="study.db")
    code, _, err = run(*FIT, "-o", "new.csv", "--ledger", "study.db", "--epsilon-cap", "9")
    assert code == 1
    assert "created with the cap epsilon = 3" in err
    assert charges("study.db") == []
    code, out, _ = run(*FIT, "-o", "new.csv", "--ledger", "study.db", "--json")
    assert code == 0
    facts = json.loads(out)
    assert (facts["rows"], facts["output"]) == (500, "new.csv")
    assert (facts["privacy"]["epsilon"], facts["privacy"]["delta"]) == (1.0, 1e-7)
    assert facts["privacy"]["relation"] == "replace_one"
    assert (facts["budget"]["epsilon"], len(facts["budget"]["charges"])) == (3.0, 1)
    assert "report" not in facts


def test_no_privacy_is_warned_of_and_needs_a_cap_that_says_so(run, folder):
    command = ("synth", "data.csv", "--schema", "schema.json", "--epsilon", "inf")
    code, _, err = run(*command, "-o", "new.csv", "--ledger", "study.db")
    assert code == 1
    assert "state its cap" in err
    assert not (folder / "study.db").exists()
    code, _, err = run(*command, "-o", "new.csv", "--quiet")
    assert code == 0
    assert "no one is protected" in err


@pytest.mark.parametrize("content", [b"no JSON", b"{}", b"\xff\xfe"])
def test_what_is_no_schema(run, folder, content):
    (folder / "bad.json").write_bytes(content)
    command = ("synth", "data.csv", "--schema", "bad.json", "--epsilon", "1", "-o", "new.csv")
    code, _, err = run(*command)
    assert code == 1
    assert "bad.json: " in err
    assert "not a schema" in err


def test_a_guess_must_be_confirmed(run, folder):
    TableSchema.guess(people(50)).to_json("guess.json")
    code, _, err = run(
        *("synth", "data.csv", "--schema", "guess.json", "--epsilon", "1", "-o", "new.csv")
    )
    assert code == 1
    assert "has not been confirmed" in err


def test_conditions_on_what_only_the_fit_will_know(run, folder):
    schema = people_schema().replace(CategoricalColumn("sex"))
    schema.to_json("open.json")
    command = ("synth", "data.csv", "--schema", "open.json", "--epsilon", "20", "-o", "new.csv")
    ledger = ("--ledger", "study.db")
    code, _, err = run(*command, *ledger, "--where", "sex=Female")
    assert code == 1
    assert "Add --save" in err
    assert not (folder / "study.db").exists()
    code, _, err = run(*command, *ledger, "--where", "sex=Alien", "--save", "model.safetensors")
    assert code == 1
    assert "cannot be 'Alien'" in err
    assert "was made and charged" in err
    assert not (folder / "new.csv").exists()
    assert len(charges("study.db")) == 1
    code, _, _ = run(
        "synth", "--model", "model.safetensors", "-o", "new.csv", "--where", "sex=Female"
    )
    assert code == 0
    assert set(pd.read_csv(folder / "new.csv")["sex"]) == {"Female"}


def test_what_was_paid_for_is_kept_when_the_report_fails(run, folder, monkeypatch):
    def fail(self, *args, **kwargs):
        raise OSError(28, "No space left on device", "report.html")

    monkeypatch.setattr(commands.DPTableSynthesizer, "quality_report", fail)
    code, _, err = run(
        *FIT, "-o", "new.csv", "--save", "model.safetensors", "--report", "report.html"
    )
    assert code == 1
    assert "the fit was made and charged before the error below; model.safetensors keeps it" in err
    assert "No space left on device" in err
    assert sorted(path.name for path in folder.iterdir()) == [
        *("data.csv", "model.safetensors", "new.csv", "schema.json")
    ]


def test_missingness_of_one_person_does_not_show_in_the_type(run, folder):
    """An integer column that misses a value is one of floats to pandas: 39.0 in the place of 39."""
    schema = people_schema().replace(
        NumericColumn("age", lower=18, upper=90, integer=True, missing=True)
    )
    schema.to_json(
        "schema.json",
    )
    frame = people(300).astype({"age": "Int64"})
    frame.loc[7, "age"] = pd.NA
    for data in (people(300), frame):
        data.to_csv("data.csv", index=False)
        assert run(*FIT, "-o", "new.csv", "--force")[0] == 0
        ages = pd.read_csv(folder / "new.csv", dtype=str)["age"].dropna()
        assert ages.str.fullmatch(r"\d\d").all()
