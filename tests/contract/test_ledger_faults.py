"""Whatever happens to a ledger, no more is released than was charged, and no more than fits.

The faults are in `tests.contract.ledger_faults`, which also writes the table of the user guide.
"""

import os
import re
import sqlite3
from contextlib import closing
from pathlib import Path

import pytest

from skdpot.exceptions import LedgerError
from skdpot.privacy import ledger as ledger_module
from skdpot.privacy.events import Relation
from skdpot.privacy.ledger import Charge, Ledger, Terms, Totals, transaction
from tests.contract.ledger_faults import BEFORE, CAPACITY, DAMAGED, FAULTS, MANY, told_by

posix = hasattr(os, "fork") and hasattr(os, "geteuid")
pytestmark = [
    pytest.mark.slow,
    pytest.mark.skipif(not posix, reason="faults are made as POSIX does"),
]

ROOT = Path(__file__).parents[2]
TABLE = ROOT / "doc" / "audit_faults.csv"

KILLS = {name for name, fault in FAULTS.items() if fault.goes_on and "killed" in name}
KILLS -= {"the maker killed before it removed its draft"}


@pytest.fixture(scope="module")
def injected():
    """All faults, injected in a process of their own."""
    hazard, outcomes = told_by("ledger_faults", "-")
    return hazard, {outcome["fault"]: outcome for outcome in outcomes}


@pytest.mark.parametrize("name", FAULTS)
def test_nothing_is_released_without_its_charge(injected, name):
    outcome = injected[1][name]
    if outcome["error"].startswith("not tried"):
        pytest.skip(outcome["error"])
    assert outcome["tried"] > outcome["released"]  # at least one fit was refused
    assert outcome["released"] <= outcome["spent"] <= outcome["cap"]
    assert re.search(FAULTS[name].told, outcome["error"]), outcome["error"]
    if FAULTS[name].goes_on:
        assert outcome["spent"] == outcome["cap"] in (CAPACITY, MANY)
    elif outcome["spent"] != outcome["cap"]:
        assert outcome["spent"] == outcome["released"] == BEFORE
    if name not in KILLS:
        assert outcome["released"] == outcome["spent"]


def test_kills_have_hit_what_they_aimed_at(injected):
    """A kill that never came too late, or never too early, would prove nothing."""
    rows = injected[1]
    statement = rows["killed at and amid every statement"]
    assert statement["spent"] > statement["released"]  # killed between charge and release
    writing = rows["killed amid every write of a commit"]
    assert writing["tried"] > writing["spent"] + 5  # killed before the charge was there


def test_a_hard_link_is_refused_for_a_reason(injected):
    """SQLite plays an old journal back under one name, over charges made under the other."""
    before, after = injected[0]
    assert (before, after) == (2, 1)


def test_the_table_lists_these_faults():
    listed = [line.split(",")[0].strip('"') for line in TABLE.read_text().splitlines()[1:]]
    assert sorted(name.split(",")[0] for name in FAULTS) == sorted(listed)


# ------------------------------------------------------------------ in this process


def terms(cap=100):
    return Terms(1.0, 1e-5, Relation.REPLACE_ONE, cap, 1000)


def charge(mu_squared=1):
    return Charge("fit", "Event()", 0.1, mu_squared, 1)


@pytest.fixture
def ledger(tmp_path):
    return Ledger.create(tmp_path / "ledger", terms())


def test_a_charge_is_synced_with_its_directory_when_it_is_made(ledger, monkeypatch):
    seen = []
    append = ledger_module._append

    def look(connection, *args):
        seen.append(connection.execute("PRAGMA synchronous").fetchone()[0])
        seen.append(connection.execute("PRAGMA journal_mode").fetchone()[0])
        append(connection, *args)

    monkeypatch.setattr(ledger_module, "_append", look)
    ledger.admit(charge())
    assert seen == [3, "delete"]  # EXTRA, with a journal that is gone after the commit


def test_a_charge_that_the_file_does_not_keep_is_refused(ledger, monkeypatch):
    monkeypatch.setattr(ledger_module, "_append", lambda *args: None)
    with pytest.raises(LedgerError, match=DAMAGED):
        ledger.admit(charge())
    monkeypatch.undo()
    assert ledger.totals() == Totals()


def test_a_failed_commit_is_not_remembered_as_a_charge(ledger, monkeypatch):
    """Else the next look at the file would find it older than it ever was."""

    def fail(self, totals):
        raise KeyboardInterrupt

    ledger.admit(charge())
    monkeypatch.setattr(Ledger, "_remember", fail)
    with pytest.raises(KeyboardInterrupt):
        ledger.admit(charge())
    monkeypatch.undo()
    assert ledger.totals().n_charges == 2
    assert ledger.admit(charge())
    assert ledger.totals().n_charges == 3


@pytest.mark.parametrize("time", ["'soon'", "9e999", "1e300", "x'00'"])
def test_a_history_with_impossible_times_is_refused(ledger, time):
    ledger.admit(charge())
    with transaction(ledger.path, "IMMEDIATE") as connection:
        connection.execute(f"UPDATE charges SET time = {time}")
    with pytest.raises(LedgerError, match=DAMAGED):
        ledger.records()
    assert ledger.totals().n_charges == 1  # what counts is intact


def test_raised_caps_are_refused_and_lowered_ones_obeyed(tmp_path):
    huge = 10**400  # of an epsilon that nobody needs; beyond floating point
    for name, cap, asked in (("a", 100, 99), ("b", huge, huge // 2), ("c", 10**9, 10**9 - 10**4)):
        Ledger.create(tmp_path / name, terms(cap))
        with pytest.raises(LedgerError, match=DAMAGED):
            Ledger.attach(tmp_path / name, terms(asked))
        assert Ledger.attach(tmp_path / name, terms(2 * cap)).terms.mu_squared_cap == cap
    # Another release of the package may round a cap differently.
    assert Ledger.attach(tmp_path / "c", terms(10**9 - 1)).terms.mu_squared_cap == 10**9


def test_bytes_that_are_no_text_in_the_layout_are_reported(ledger):
    """SQLite quotes them in its own message, which Python cannot decode."""
    path = Path(ledger.path)
    data = bytearray(path.read_bytes())
    data[data.find(b"CREATE TABLE") + 3] ^= 128
    path.write_bytes(data)
    with pytest.raises(LedgerError, match="is damaged"):
        ledger.totals()


def test_statistics_for_queries_do_no_harm(ledger):
    with closing(sqlite3.connect(ledger.path)) as connection:
        connection.execute("ANALYZE")
        connection.commit()
    assert ledger.admit(charge())


def test_a_second_name_that_is_no_draft_stays(ledger, tmp_path):
    for name in ("second", ".ledger-other", ".ledgers.x", ".ledger.backup"):
        os.link(ledger.path, tmp_path / name)
        with pytest.raises(LedgerError, match="hard link"):
            ledger.totals()
        (tmp_path / name).unlink()
    (tmp_path / ".ledger.x").write_text("somebody else's")
    assert ledger.admit(charge())
    assert (tmp_path / ".ledger.x").exists()
