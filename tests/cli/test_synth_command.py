"""``skdpot synth`` and ``report``: one charge, whole files, conditions kept, facts of a fit."""

import json
from types import SimpleNamespace

import numpy as np
import pandas as pd
import pytest

from skdpot.cli.payment import fitting_delta
from skdpot.cli.ui import Page
from skdpot.preprocessing import CategoricalColumn, TableSchema
from skdpot.privacy.budget import PrivacyBudget
from skdpot.tables.synthesizer import DPTableSynthesizer
from tests.cli.cases import FIT, people, people_schema

SAVED = f"{FIT} --ledger study.db --save fit.safetensors"


def charges():
    return PrivacyBudget.from_ledger("study.db").history()["label"].tolist()


@pytest.mark.slow
def test_everything_at_once(run, folder):
    code, out, err = run(f"{SAVED} --epsilon-cap 3 --delta 1e-6 --report r.html --target smokes")
    assert code == 0
    assert all("noise hides" in line for line in err.splitlines())
    lines = out.splitlines()
    assert lines[0] == "wrote new.csv: 500 rows, 5 columns"
    assert lines[1].startswith("spent epsilon = 1 at delta = 1e-06, for replacing one of 500 rows")
    assert lines[2].startswith("study.db has spent epsilon = 1 of 3 at delta = 1e-06; one more")
    assert lines[3].startswith("noise hides ")
    assert lines[4:6] == ["report: r.html", "model: fit.safetensors"]
    frame = pd.read_csv("new.csv", parse_dates=["visit"])
    assert list(frame.columns) == list(people_schema().names)
    assert len(frame) == 500
    assert (frame["age"].dtype, frame["smokes"].dtype) == ("int64", "bool")
    assert frame["age"].between(18, 90).all()
    assert set(frame["sex"]) <= {"Female", "Male"}
    assert frame["visit"].between("2024-01-01", "2024-03-01").all()
    assert "<html" in (folder / "r.html").read_text().lower()
    assert charges() == ["DPTableSynthesizer"]
    budget = PrivacyBudget.from_ledger("study.db")
    assert (budget.epsilon, budget.delta) == (3.0, 1e-6)


def test_a_saved_fit_draws_and_reports_for_free(run, folder, refused):
    assert run(SAVED)[0] == 0
    (folder / "data.csv").unlink()
    draw = "synth --model fit.safetensors --rows 500 --seed 3 -o"
    code, out, _ = run(f"{draw} more.csv --where sex=Female --where age=30..40")
    assert code == 0
    assert "which costs no privacy" in out
    frame = pd.read_csv("more.csv")
    assert len(frame) == 500
    assert set(frame["sex"]) == {"Female"}
    assert frame["age"].between(30, 40).all()
    for name in ("again.csv", "once.csv"):
        assert run(f"{draw} {name} --report {name}.html")[0] == 0
    assert (folder / "again.csv").read_text() == (folder / "once.csv").read_text()

    people(80, seed=1).to_csv("public.csv", index=False)
    about = "report fit.safetensors"
    code, out, err = run(f"{about} -o page.html --holdout public.csv --ledger study.db")
    assert code == 0, err
    assert "DPTableSynthesizer on 500 records: ε = 1, δ = 1e-05" in out
    assert "at most 55.3 %" in out
    assert "Score on the hold-out: -" in out
    assert "Counts of each column" in (folder / "page.html").read_text("utf-8")
    facts = json.loads(run(f"{about} --json")[1])
    assert (facts["command"], facts["n_samples"], facts["n_features"]) == ("report", 500, 5)
    assert facts["audits"][0]["epsilon"] == 1.0
    assert "attacks" not in facts["membership"]
    assert json.loads(run(f"{about} --json --no-audit")[1])["audits"] == []
    refused(f"{about} -o page.html --no-audit", 1, "exists already")
    assert charges() == ["DPTableSynthesizer"]


def test_a_person_may_have_several_rows(run, folder, refused):
    visits = people(500).assign(who=[f"person {k % 200}" for k in range(500)])
    visits.to_csv("data.csv", index=False)
    stated = "--unit who --weighting row --max-rows 4"
    code, out, err = run(f"{SAVED} {stated} --json")
    assert code == 0, err
    facts = json.loads(out)
    assert (facts["rows"], len(facts["columns"])) == (200, 5)
    assert any("one value in 'who'" in text for text in facts["privacy"]["assumptions"])
    assert "for replacing one of 200 persons" in run(f"{FIT} {stated} --force")[1]
    code, out, err = run("report fit.safetensors -o page.html")
    assert code == 0, err
    assert "Each simulated person has one row" in (folder / "page.html").read_text("utf-8")
    refused("synth --model fit.safetensors -o more.csv --unit who", 2, "--unit belongs to a fit")
    refused(f"{FIT} --force --weighting row", 1, "pass unit")
    refused(f"{FIT} --force --unit whom", 1, "no column 'whom', which --unit names")


def test_a_public_category_that_is_a_formula_is_told_and_guarded(run, folder):
    link = '=HYPERLINK("http://x.example","see")'
    people(500).assign(sex=np.resize([link, "Male"], 500)).to_csv("data.csv", index=False)
    sex = CategoricalColumn("sex", categories=[link, "Male"])
    people_schema().replace(sex).to_json("schema.json")
    code, _, err = run(f"{FIT} --save fit.safetensors")
    assert code == 0
    assert "a spreadsheet would run the name or a category of 'sex'" in err
    assert link in set(pd.read_csv("new.csv")["sex"])
    draw = "synth --model fit.safetensors --rows 200 --where sex=Male -o"
    assert "'sex'" in run(f"{draw} some.csv")[2]
    code, _, err = run("synth --model fit.safetensors -o safe.csv --guard-formulas")
    assert (code, err) == (0, "")
    assert set(pd.read_csv("safe.csv")["sex"]) == {f"'{link}", "Male"}


def test_the_seed_does_not_make_the_noise_known(run, folder):
    drawn = []
    for _ in range(2):
        assert run(f"{FIT} --seed 1 --force")[0] == 0
        drawn.append((folder / "new.csv").read_text())
    assert drawn[0] != drawn[1]


def test_a_ledger_keeps_its_cap_and_gives_its_delta(run, refused):
    PrivacyBudget(1.2, 1e-7, ledger="study.db")
    fit = f"{FIT} --ledger study.db"
    refused(f"{fit} --epsilon-cap 9", 1, "created with the cap epsilon = 1.2")
    assert charges() == []
    code, out, _ = run(f"{fit} --json")
    assert code == 0
    facts = json.loads(out)
    assert (facts["rows"], facts["output"]) == (500, "new.csv")
    assert (facts["privacy"]["epsilon"], facts["privacy"]["delta"]) == (1.0, 1e-7)
    assert facts["privacy"]["relation"] == "replace_one"
    assert (facts["budget"]["epsilon"], len(facts["budget"]["charges"])) == (1.2, 1)
    assert "report" not in facts
    more = f"{fit} --force --save fit.safetensors --report r.html"
    assert "GridSearchCV" not in refused(more, 3, "Nothing was charged or released")
    assert len(charges()) == 1


def test_no_privacy_is_warned_of(run, folder):
    code, _, err = run(f"{FIT} --epsilon inf --quiet")
    assert code == 0
    assert "no one is protected" in err


def test_conditions_on_what_only_the_fit_will_know(run, folder, refused):
    people_schema().replace(CategoricalColumn("sex")).to_json("open.json")
    command = FIT.replace("schema.json", "open.json") + " --epsilon 20 --ledger study.db"
    refused(f"{command} --where sex=Female", 1, "Add --save")
    code, _, err = run(f"{command} --where sex=Alien --save fit.safetensors")
    assert code == 1
    assert "cannot be 'Alien'" in err
    assert "was made and charged" in err
    assert not (folder / "new.csv").exists()
    assert len(charges()) == 1
    assert run("synth --model fit.safetensors -o new.csv --where sex=Female")[0] == 0
    assert set(pd.read_csv("new.csv")["sex"]) == {"Female"}


def test_what_was_paid_for_is_kept_when_the_report_fails(run, folder, monkeypatch):
    def fail(self, *args, **kwargs):
        raise OSError(28, "No space left on device", "r.html")

    monkeypatch.setattr(DPTableSynthesizer, "quality_report", fail)
    code, _, err = run(f"{FIT} --save fit.safetensors --report r.html")
    assert code == 1
    assert "the fit was made and charged before the error below; fit.safetensors keeps it" in err
    assert "No space left on device" in err
    kept = ["data.csv", "fit.safetensors", "new.csv", "schema.json"]
    assert sorted(path.name for path in folder.iterdir()) == kept


def test_delta_fits_the_table():
    sizes = {1: 1e-5, 9_999: 1e-5, 10_000: 1e-6, 32_561: 1e-6, 10**8: 1e-10, None: 1e-5}
    assert {n: fitting_delta(n) for n in sizes} == pytest.approx(sizes)


@pytest.mark.parametrize(("unit", "delta"), [("--unit who", 1e-5), ("", 1e-6)])
def test_delta_of_a_fit_does_not_follow_from_a_private_number_of_rows(run, folder, unit, delta):
    """Only from 10,000 rows on is there a difference."""
    visits = people(10_000)[["smokes"]].assign(who=[f"person {k % 300}" for k in range(10_000)])
    visits.to_csv("data.csv", index=False)
    TableSchema([people_schema()["smokes"]], excluded=["who"]).to_json("schema.json")
    code, out, err = run(f"{FIT} --json {unit}")
    assert code == 0, err
    assert json.loads(out)["privacy"]["delta"] == pytest.approx(delta)


def test_delta_of_the_page_does_not_follow_from_a_private_number_of_rows(tmp_path):
    page = Page(None, None, tmp_path)
    page.facts, page.ledger = {"rows": 10_000}, SimpleNamespace(value="none.db")
    page.unit, page.delta = SimpleNamespace(value=None), SimpleNamespace(value=1e-6)
    for chosen, delta in ((None, 1e-6), ("who", 1e-5), (None, 1e-6)):
        page.unit.value = chosen
        page._choose_delta()
        assert page.delta.value == delta
    page.unit.value, page.delta.value = "who", 3e-7  # typed
    page._choose_delta()
    assert page.delta.value == 3e-7


FAILS = {
    "fit": ("skdpot.tables.fitting.choose_tree", RuntimeError),
    "save": ("skdpot.cli.synth.DPTableSynthesizer.save", KeyboardInterrupt),
    "write": ("skdpot.cli.synth.write_table_file", RuntimeError),
}


@pytest.mark.parametrize("stage", FAILS)
def test_a_failure_after_the_charge_is_resumed(stage, run, folder, monkeypatch, refused):
    """The same command with --resume writes all files, of the same fit, and is not charged."""
    name, error = FAILS[stage]

    def fail(*args, **kwargs):
        raise error

    command = f"{SAVED} --delta 1e-6 --force"
    with monkeypatch.context() as patch:
        patch.setattr(name, fail)
        code, out, err = run(command)
    assert (code, out) == (130 if error is KeyboardInterrupt else 1, "")
    saved = stage == "write"
    assert ("fit.safetensors keeps it" if saved else "--resume") in err
    assert "warning: " in err
    assert charges() == ["DPTableSynthesizer"]
    assert "not ended; --resume 1 goes on" in run("budget study.db")[1]
    before = DPTableSynthesizer.load("fit.safetensors").marginals_ if saved else ()
    if saved:
        refused(f"{command} --resume --target smokes", 1, "given other public facts")
    refused(f"{command} --resume --epsilon 2", 1, "another event")
    code, out, err = run(f"{command} --resume")
    assert code == 0
    assert "error" not in err
    assert {"new.csv", "fit.safetensors"} <= {path.name for path in folder.iterdir()}
    after = DPTableSynthesizer.load("fit.safetensors").marginals_
    for one, other in zip(before, after, strict=bool(before)):
        pd.testing.assert_frame_equal(one, other)
    assert charges() == ["DPTableSynthesizer"]
    assert "not ended" not in run("budget study.db")[1]
    refused(f"{command} --resume", 1, "none is open")


def test_without_a_ledger_a_failed_fit_says_that_epsilon_is_spent(run, folder, monkeypatch):
    def fail(*args, **kwargs):
        raise RuntimeError

    monkeypatch.setattr("skdpot.tables.fitting.choose_tree", fail)
    code, out, err = run(FIT)
    assert (code, out) == (1, "")
    assert "epsilon = 1 at delta = 1e-05 was spent, and the releases of this fit are lost" in err


def test_resume_needs_a_ledger(refused):
    refused(f"{FIT} --resume", 2, "--resume needs the --ledger")
    refused(f"{FIT} --ledger study.db --resume", 2, "--resume needs the --ledger")
