"""A ledger is opened by its path alone, with the terms that it was made for."""

import pytest

from skdpot import PrivacyBudget
from skdpot.exceptions import LedgerError
from skdpot.privacy.events import GaussianEvent

EVENT = GaussianEvent(sigma=20.0, sensitivity=2.0)


def test_the_ledger_goes_on(tmp_path):
    path = tmp_path / "study.db"
    first = PrivacyBudget(2.5, delta=1e-7, ledger=path, relation="replace_one")
    first.spend(EVENT, label="mean")
    again = PrivacyBudget.from_ledger(str(path))
    assert (again.epsilon, again.delta) == (2.5, 1e-7)
    assert again.relation is first.relation
    assert again.epsilon_spent() == first.epsilon_spent()
    again.spend(EVENT, label="variance")
    assert first.history()["label"].tolist() == ["mean", "variance"]


def test_other_terms_are_kept(tmp_path):
    PrivacyBudget(float("inf"), ledger=tmp_path / "a", relation="add_or_remove_one")
    budget = PrivacyBudget.from_ledger(tmp_path / "a")
    assert budget.epsilon == float("inf")
    assert str(budget.relation) == "add_or_remove_one"


def test_what_is_no_ledger_is_refused_and_left_alone(tmp_path):
    with pytest.raises(LedgerError, match="cannot be reached"):
        PrivacyBudget.from_ledger(tmp_path / "none")
    assert list(tmp_path.iterdir()) == []
    other = tmp_path / "notes.txt"
    other.write_text("not a ledger")
    with pytest.raises(LedgerError, match="no intact skdpot ledger"):
        PrivacyBudget.from_ledger(other)
    assert other.read_text() == "not a ledger"
