"""``skdpot budget``: what a ledger holds, for people and for programs."""

import json
import math

import pytest

from skdpot.privacy.budget import PrivacyBudget
from skdpot.privacy.events import GaussianEvent, NonPrivateEvent


def event(sigma=10.0):
    return GaussianEvent(sigma=sigma, sensitivity=1.0)


def test_a_ledger_for_people(run, folder):
    budget = PrivacyBudget(2.0, 1e-6, ledger="study.db")
    code, out, err = run("budget", "study.db")
    assert (code, err) == (0, "")
    assert out.splitlines() == [
        "study.db has spent epsilon = 0 of 2 at delta = 1e-06; one more fit may have 2",
        f"[{'-' * 30}] 0 charges, replace one",
    ]
    budget.spend(event(), label="means")
    budget.spend(event(20.0), label="\x1b[2Jmedians")
    code, out, _ = run("budget", "study.db", "--quiet")
    lines = out.splitlines()
    assert code == 0
    assert "2 charges" in lines[1]
    assert lines[1].count("#") == math.ceil(30 * budget.epsilon_spent() / 2)
    assert lines[4].endswith("means")
    assert lines[5].endswith(r"\x1b[2Jmedians")


def test_a_ledger_for_programs(run, folder):
    budget = PrivacyBudget(2.0, 1e-6, ledger="study.db")
    budget.spend(event(), label="means")
    code, out, err = run("budget", "study.db", "--json")
    assert (code, err) == (0, "")
    facts = json.loads(out)
    assert (facts["epsilon"], facts["delta"], facts["relation"]) == (2.0, 1e-6, "replace_one")
    assert facts["spent"] == budget.epsilon_spent()
    assert facts["remaining"] == budget.remaining()
    [charge] = facts["charges"]
    assert charge["label"] == "means"
    assert charge["epsilon"] == pytest.approx(budget.epsilon_spent())
    assert charge["time"].startswith("20")


def test_infinity_is_null(run, folder):
    PrivacyBudget(math.inf, ledger="study.db").spend(NonPrivateEvent())
    facts = json.loads(run("budget", "study.db", "--json")[1])
    assert (facts["epsilon"], facts["spent"]) == (None, None)
    assert "inf of inf" in run("budget", "study.db")[1]


def test_what_is_no_ledger(run, folder):
    for path in ("missing.db", "data.csv"):
        before = sorted(folder.iterdir())
        code, out, err = run("budget", path)
        assert (code, out) == (1, "")
        assert path in err
        assert sorted(folder.iterdir()) == before
