"""``skdpot distance``: two sketches, two charges, one number."""

import json

import numpy as np
import pandas as pd
import pytest

from skdpot.privacy.budget import PrivacyBudget
from tests.cli.cases import people, people_schema

BOXED = "distance a.csv b.csv --epsilon 1 --bounds -2 2"


@pytest.fixture
def parties(folder):
    rng = np.random.default_rng(0)
    for name, shift in (("a.csv", 0.0), ("b.csv", 0.3)):
        rows = rng.normal(shift, 0.2, size=(4000, 3))
        pd.DataFrame(rows, columns=list("xyz")).to_csv(folder / name, index=False)


def test_each_party_pays_once_from_its_own_ledger(run, parties, refused):
    command = f"{BOXED} --ledgers a.db b.db"
    code, out, err = run(f"{command} --epsilon-cap 1.2 --json")
    assert (code, err) == (0, "")
    facts = json.loads(out)
    (found,) = facts["distances"]
    assert found["distance"] == pytest.approx(0.3, abs=0.1)
    assert 0 < found["interval"][0] < found["distance"] < found["interval"][1]
    assert found["high_if_noise_hides_mass"] > found["interval"][1]
    assert facts["columns"] == ["x", "y", "z"]
    assert facts["rows"] == [4000, 4000]
    assert facts["unit"] == "features"
    charges = [budget["charges"] for budget in facts["budgets"]]
    assert [len(charge) for charge in charges] == [1, 1]
    assert all(charge[0]["label"] == "PrivateWassersteinDistance" for charge in charges)
    refused(command, 3, "Nothing was charged")


@pytest.mark.parametrize("poor", [0, 1])
def test_nobody_pays_for_what_the_other_cannot(parties, refused, poor):
    for place, path in enumerate("ab"):
        PrivacyBudget(0.5 if place == poor else 4.0, ledger=path)
    refused(f"{BOXED} --ledgers a b", 3, "ab"[poor])


def test_one_ledger_for_both_pays_twice(run, parties, refused):
    both = "--ledgers both.db ./both.db"
    PrivacyBudget(1.3, ledger="both.db")
    refused(f"{BOXED} {both}", 3, "for each party that it pays for")
    budget = PrivacyBudget(2.0, ledger="other.db")
    assert run(f"{BOXED} {both}".replace("both", "other"))[0] == 0
    assert len(budget.history()) == 2


def test_several_parties_publish_once_each(run, parties, refused):
    pd.read_csv("a.csv").add(0.6).to_csv("c.csv", index=False)
    command = "distance a.csv b.csv c.csv --epsilon 2 --bounds -2 2"
    refused(f"{command} --ledgers a.db b.db", 2, "as many --ledgers")
    code, out, _ = run(f"{command} --ledgers a.db b.db c.db --json")
    assert code == 0
    facts = json.loads(out)
    found = {tuple(pair["tables"]): pair["distance"] for pair in facts["distances"]}
    assert found == {
        ("a.csv", "b.csv"): pytest.approx(0.3, abs=0.1),
        ("a.csv", "c.csv"): pytest.approx(0.6, abs=0.1),
        ("b.csv", "c.csv"): pytest.approx(0.3, abs=0.1),
    }
    assert [len(budget["charges"]) for budget in facts["budgets"]] == [1, 1, 1]
    code, out, _ = run(command)
    lines = out.splitlines()
    assert lines[0].split() == ["sliced", "Wasserstein", "distance", "a.csv", "b.csv", "c.csv"]
    assert [line.split()[1 + k] for k, line in enumerate(lines[1:4])] == ["0", "0", "0"]
    assert len(lines) == 11  # the header, three rows, three pairs, the cost, and what noise hides


def test_tables_by_a_schema(run, folder):
    people(2000, seed=1).to_csv("a.csv", index=False)
    other = people(2000, seed=2).assign(sex="Male", smokes=True)
    other[["visit", "sex", "age", "smokes", "weight"]].to_csv("b.csv", index=False)
    code, out, _ = run("distance a.csv b.csv --epsilon 8 --schema schema.json --json")
    assert code == 0
    facts = json.loads(out)
    assert facts["distances"][0]["interval"][0] > 0
    assert facts["unit"].startswith("the unit ball")
    assert facts["columns"] == list(people_schema().names)
    assert facts["assumptions"][0].startswith("what the schema says")
