"""``skdpot budget``: what a ledger holds, for people and for programs."""

import json
import math

import pytest

from skdpot.privacy.budget import PrivacyBudget
from skdpot.privacy.events import GaussianEvent, NonPrivateEvent


def test_a_ledger_for_people_and_for_programs(run, folder):
    budget = PrivacyBudget(2.0, 1e-6, ledger="study.db")
    code, out, err = run("budget study.db")
    assert (code, err) == (0, "")
    assert out.splitlines() == [
        "study.db has spent epsilon = 0 of 2 at delta = 1e-06; one more fit may have 2",
        f"[{'-' * 30}] 0 charges, replace one",
    ]
    budget.spend(GaussianEvent(sigma=10.0, sensitivity=1.0), label="means")
    facts = json.loads(run("budget study.db --json")[1])
    assert (facts["epsilon"], facts["delta"], facts["relation"]) == (2.0, 1e-6, "replace_one")
    assert (facts["spent"], facts["remaining"]) == (budget.epsilon_spent(), budget.remaining())
    [charge] = facts["charges"]
    assert charge["label"] == "means"
    assert charge["epsilon"] == pytest.approx(budget.epsilon_spent())
    assert charge["time"].startswith("20")
    budget.spend(GaussianEvent(sigma=20.0, sensitivity=1.0), label="\x1b[2Jmedians")
    lines = run("budget study.db --quiet")[1].splitlines()
    assert "2 charges" in lines[1]
    assert lines[1].count("#") == math.ceil(30 * budget.epsilon_spent() / 2)
    assert lines[4].endswith("means")
    assert lines[5].endswith(r"\x1b[2Jmedians")


def test_infinity_is_null(run, folder):
    PrivacyBudget(math.inf, ledger="study.db").spend(NonPrivateEvent())
    facts = json.loads(run("budget study.db --json")[1])
    assert (facts["epsilon"], facts["spent"]) == (None, None)
    assert "inf of inf" in run("budget study.db")[1]
