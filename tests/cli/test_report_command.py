"""``skdpot report``: facts and attacks about a saved fit, of all kinds of columns."""

import json

import pytest

from skdpot import DPTableSynthesizer
from skdpot.privacy.budget import PrivacyBudget
from tests.cli.cases import people

FIT = ("synth", "data.csv", "--schema", "schema.json", "--epsilon", "1", "-o", "rows.csv")


@pytest.fixture
def model(run, folder):
    assert run(*FIT, "--save", "fit.safetensors", "--ledger", "study.db")[0] == 0
    return "fit.safetensors"


def test_a_page_and_the_facts_and_no_charge(run, folder, model):
    people(80, seed=1).to_csv("public.csv", index=False)
    code, out, err = run(
        *("report", model, "-o", "page.html", "--holdout", "public.csv", "--ledger", "study.db")
    )
    assert code == 0, err
    assert "DPTableSynthesizer on 500 rows: ε = 1, δ = 1e-05" in out
    assert "at most 55.3 %" in out
    assert "REFUTED" not in out
    assert "Score on the hold-out: -" in out
    page = (folder / "page.html").read_text("utf-8")
    assert "Counts of each column" in page
    assert "one of 1 charge" in page or "1 charge" in page
    assert len(PrivacyBudget.from_ledger("study.db").history()) == 1


def test_facts_for_programs(run, folder, model):
    code, out, _ = run("report", model, "--json")
    facts = json.loads(out)
    assert code == 0
    assert (facts["command"], facts["n_samples"], facts["n_features"]) == ("report", 500, 5)
    assert facts["audits"][0]["epsilon"] == 1.0
    assert "attacks" not in facts["membership"]
    _, out, _ = run("report", model, "--json", "--no-audit")
    assert json.loads(out)["audits"] == []


def test_a_report_replaces_nothing_unasked(run, folder, model):
    (folder / "page.html").write_text("kept")
    code, _, err = run("report", model, "-o", "page.html")
    assert (code, (folder / "page.html").read_text()) == (1, "kept")
    assert "exists already" in err
    code, _, err = run("report", "data.csv")
    assert code == 1
    assert "is not a synthesizer" in err
    assert DPTableSynthesizer.load(model).privacy_spent_.epsilon == 1.0
