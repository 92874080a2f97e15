"""``skdpot distance``: two sketches, two charges, one number."""

import json

import numpy as np
import pandas as pd
import pytest

from skdpot.preprocessing import NumericColumn, TableSchema
from skdpot.privacy.budget import PrivacyBudget
from tests.cli.cases import SECRET, people, people_schema


@pytest.fixture
def parties(folder):
    rng = np.random.default_rng(0)
    for name, shift in (("a.csv", 0.0), ("b.csv", 0.3)):
        rows = rng.normal(shift, 0.2, size=(4000, 3))
        pd.DataFrame(rows, columns=list("xyz")).to_csv(folder / name, index=False)
    return folder


def test_two_parties_that_are_apart(run, parties):
    code, out, err = run(
        *("distance", "a.csv", "b.csv", "--epsilon", "2", "--bounds", "-2", "2", "--json")
    )
    assert (code, err) == (0, "")
    facts = json.loads(out)
    assert facts["distance"] == pytest.approx(0.3, abs=0.1)
    assert 0 < facts["interval"][0] < facts["distance"] < facts["interval"][1]
    assert facts["columns"] == ["x", "y", "z"]
    assert facts["rows"] == [4000, 4000]
    assert facts["unit"] == "features"


def test_each_party_pays_once_from_its_own_ledger(run, parties):
    command = ["distance", "a.csv", "b.csv", "--epsilon", "1", "--bounds", "-2", "2"]
    command += ["--ledgers", "a.db", "b.db"]
    code, out, _ = run(*command, "--epsilon-cap", "1.2", "--json")
    assert code == 0
    charges = [budget["charges"] for budget in json.loads(out)["budgets"]]
    assert [len(charge) for charge in charges] == [1, 1]
    assert all(charge[0]["label"] == "PrivateWassersteinDistance" for charge in charges)
    code, out, err = run(*command)
    assert (code, out) == (3, "")
    assert "Nothing was charged" in err
    for ledger in ("a.db", "b.db"):
        assert len(PrivacyBudget.from_ledger(ledger).history()) == 1


@pytest.mark.parametrize("poor", [0, 1])
def test_nobody_pays_for_what_the_other_cannot(run, parties, poor):
    caps = [4.0, 4.0]
    caps[poor] = 0.5
    budgets = [PrivacyBudget(cap, ledger=path) for cap, path in zip(caps, "ab", strict=True)]
    code, out, err = run(
        *("distance", "a.csv", "b.csv", "--epsilon", "1", "--bounds", "-2", "2"),
        *("--ledgers", "a", "b"),
    )
    assert (code, out) == (3, "")
    assert "ab"[poor] in err
    assert [len(budget.history()) for budget in budgets] == [0, 0]


@pytest.mark.parametrize(("cap", "code", "charges"), [(1.3, 3, 0), (2.0, 0, 2)])
def test_one_ledger_for_both_pays_twice(run, parties, cap, code, charges):
    budget = PrivacyBudget(cap, ledger="both.db")
    found, _, _ = run(
        *("distance", "a.csv", "b.csv", "--epsilon", "1", "--bounds", "-2", "2"),
        *("--ledgers", "both.db", "./both.db"),
    )
    assert (found, len(budget.history())) == (code, charges)


def test_tables_by_a_schema(run, folder):
    people(2000, seed=1).to_csv("a.csv", index=False)
    other = people(2000, seed=2)
    other["sex"], other["smokes"] = "Male", True
    other[["visit", "sex", "age", "smokes", "weight"]].to_csv("b.csv", index=False)
    code, out, _ = run(
        *("distance", "a.csv", "b.csv", "--epsilon", "8", "--schema", "schema.json", "--json")
    )
    assert code == 0
    facts = json.loads(out)
    assert facts["interval"][0] > 0
    assert facts["unit"].startswith("the unit ball")
    assert facts["columns"] == list(people_schema().names)
    assert facts["assumptions"][0].startswith("what the schema says")


def test_a_schema_that_leaves_something_open(run, folder):
    TableSchema([NumericColumn("age"), *list(people_schema())[1:]]).to_json("open.json")
    code, _, err = run(
        *("distance", "data.csv", "data.csv", "--epsilon", "1", "--schema", "open.json"),
        *("--ledgers", "a.db", "b.db"),
    )
    assert code == 1
    assert "leaves 'age' to be estimated" in err
    assert not (folder / "a.db").exists()


@pytest.mark.parametrize(
    ("text", "options", "match"),
    [
        (f"{SECRET},y\n1,2\n3,4\n", (), "do not have the same numeric columns"),
        (f"x,y,z\n1,2,{SECRET}\n1,2,3\n", (), "do not have the same numeric columns"),
        (f"x,y,z\n1,2,{SECRET}\n1,2,3\n", ("--columns", "z"), "no column of numbers named 'z'"),
        ("x,y,z\n1,,3\n1,2,3\n", (), "values of 'y' are missing"),
        ("x,y,z\n1,inf,3\n1,2,3\n", (), "infinity"),
        ("x,y,z\n1,2,3\n", (), "minimum of 2"),
    ],
)
def test_tables_that_do_not_fit(run, parties, text, options, match):
    (parties / "b.csv").write_text(text)
    code, out, err = run(
        *("distance", "a.csv", "b.csv", "--epsilon", "1", "--bounds", "-2", "2", "-v", *options),
    )
    assert (code, out) == (1, "")
    assert match in err
    assert SECRET not in err


def test_a_second_table_that_does_not_fit_costs_the_first_nothing(run, parties):
    (parties / "b.csv").write_text("x,y,z\n1,inf,3\n1,2,3\n")
    code, _, _ = run(
        *("distance", "a.csv", "b.csv", "--epsilon", "1", "--bounds", "-2", "2"),
        *("--ledgers", "a.db", "b.db"),
    )
    assert code == 1
    assert not (parties / "a.db").exists()
