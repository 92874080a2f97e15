"""The ledger file: exact, atomic, and careful with whatever lies at its path.

Faults that take another process, or that nobody may overspend by, are in `test_ledger_faults`.
"""

import math
import os
import sqlite3
import stat
import threading
from contextlib import closing

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from skdpot.exceptions import LedgerError
from skdpot.privacy import ledger as ledger_module
from skdpot.privacy.events import Relation
from skdpot.privacy.ledger import Charge, Ledger, Terms, Totals


def terms(mu_squared_cap=100, leak_cap=1000, *, epsilon=1.0, delta=1e-5, relation="replace_one"):
    return Terms(epsilon, delta, Relation(relation), mu_squared_cap, leak_cap)


def charge(mu_squared=1, leak=1, label="fit"):
    return Charge(label, "Event()", 0.1, mu_squared, leak)


@pytest.fixture
def path(tmp_path):
    return tmp_path / "ledger.sqlite"


@pytest.fixture
def ledger(path):
    return Ledger.create(path, terms())


def test_a_new_ledger_is_empty_and_belongs_to_its_owner_alone(ledger, path):
    assert (ledger.totals(), ledger.records()) == (Totals(0, 0, 0), [])
    assert stat.S_IMODE(path.stat().st_mode) == 0o600
    assert [p.name for p in path.parent.iterdir()] == [path.name]


def test_either_cap_refuses(ledger, path):
    for refused in (charge(101, 0), charge(0, 1001), charge(math.inf, 0), charge(0, math.inf)):
        assert not ledger.admit(refused)
    assert ledger.admit(charge(60, 1000))
    before = path.read_bytes()
    assert not ledger.admit(charge(41, 0))
    assert path.read_bytes() == before
    assert ledger.admit(charge(40, 0))


def test_records_come_back_in_order_with_any_text_and_any_number(path):
    ledger = Ledger.create(path, terms(math.inf, math.inf, epsilon=math.inf))
    charges = [
        charge(2**200, 3, label="ε; 'quoted'\n\x07"),
        charge(math.inf, math.inf, label=""),
        charge(1, 1),
    ]
    assert all(ledger.admit(c) for c in charges)
    records = ledger.records()
    assert records == charges
    assert [r.number for r in records] == [1, 2, 3]
    assert [r.time for r in records] == sorted(r.time for r in records)
    assert ledger.totals() == Totals(3, math.inf, math.inf)


@settings(max_examples=25, deadline=None)
@given(costs=st.lists(st.tuples(st.integers(0, 60), st.integers(0, 600)), max_size=12))
def test_the_sums_never_pass_the_caps_and_nothing_that_fits_is_refused(tmp_path_factory, costs):
    ledger = Ledger.create(tmp_path_factory.mktemp("ledgers") / "ledger", terms())
    mu_squared = leak = 0
    for cost in costs:
        fits = mu_squared + cost[0] <= 100 and leak + cost[1] <= 1000
        assert ledger.admit(charge(*cost)) is fits
        mu_squared, leak = mu_squared + fits * cost[0], leak + fits * cost[1]
        totals = ledger.totals()
        assert (totals.mu_squared_units, totals.leak_units) == (mu_squared, leak)


def test_eight_threads_share_a_hundred_units(ledger):
    granted, start = [], threading.Barrier(8)

    def work():
        start.wait()
        granted.extend(ledger.admit(charge()) for _ in range(20))

    threads = [threading.Thread(target=work) for _ in range(8)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert (len(granted), sum(granted)) == (160, 100)
    assert ledger.totals().mu_squared_units == 100


def test_a_failure_inside_the_transaction_charges_nothing(ledger, monkeypatch):
    def fail(connection, *args):
        append(connection, *args)
        raise KeyboardInterrupt

    append = ledger_module._append
    monkeypatch.setattr(ledger_module, "_append", fail)
    with pytest.raises(KeyboardInterrupt):
        ledger.admit(charge())
    monkeypatch.undo()
    assert ledger.totals() == Totals()
    assert ledger.admit(charge(100))


def test_attaching_continues_the_same_ledger_with_the_caps_of_the_file(ledger, path, monkeypatch):
    ledger.admit(charge(40))
    monkeypatch.chdir(path.parent)
    for again in (Ledger.attach(path, terms()), Ledger.attach(path.name, terms(10**9))):
        assert again == ledger
        assert not again.admit(charge(61))


@pytest.mark.parametrize(
    "other", [{"epsilon": 2.0}, {"delta": 1e-6}, {"relation": "add_or_remove_one"}]
)
def test_attaching_with_other_terms_names_both(ledger, path, other):
    with pytest.raises(LedgerError, match=r"was made for .* but .* was asked for") as caught:
        Ledger.attach(path, terms(**other))
    assert str(ledger.terms) in str(caught.value)
    assert str(terms(**other)) in str(caught.value)


def test_a_file_that_is_gone_is_not_made_anew(ledger, path, monkeypatch):
    path.unlink()
    for call in (ledger.totals, ledger.records, lambda: ledger.admit(charge())):
        with pytest.raises(LedgerError, match=r"cannot be reached.*make a new PrivacyBudget"):
            call()
    monkeypatch.setattr(ledger_module, "_check_is_file", lambda path: None)  # gone after the check
    with pytest.raises(LedgerError, match="unable to open"):
        ledger.admit(charge())
    assert not path.exists()


@pytest.mark.parametrize(
    ("statement", "message"),
    [
        ("UPDATE terms SET leak_cap = 'many'", "damaged"),
        ("DELETE FROM terms", "damaged"),
        ("UPDATE terms SET uid = 'other'", "is now another ledger"),
        ("DELETE FROM charges", "it is an older copy"),
        ("PRAGMA user_version = 99", "format 99"),
    ],
)
def test_a_file_that_was_changed_is_refused(ledger, path, statement, message):
    ledger.admit(charge())
    with closing(sqlite3.connect(path)) as connection:
        connection.execute(statement)
        connection.commit()
    with pytest.raises(LedgerError, match=message):
        ledger.totals()


def test_a_ledger_held_by_somebody_else_is_reported_after_the_wait(ledger, path):
    with closing(sqlite3.connect(path, isolation_level=None)) as holder:
        holder.execute("BEGIN EXCLUSIVE")
        with pytest.raises(LedgerError, match="Another process holds it"):
            ledger.totals(patience=0.05)
    assert ledger.totals() == Totals()


def _foreign_database(path):
    with closing(sqlite3.connect(path)) as connection:
        connection.execute("CREATE TABLE terms (uid)")
        connection.commit()


@pytest.mark.parametrize(
    ("make", "message"),
    [
        (lambda p: p.write_text("my thesis, chapter one\n" * 50), "left unchanged"),
        (lambda p: p.touch(), "not a skdpot ledger"),
        (_foreign_database, "not a skdpot ledger"),
        (lambda p: p.mkdir(), "not a regular file"),
        (lambda p: p.symlink_to(p.parent / "nothing"), r"not a regular file.*symbolic link"),
    ],
    ids=["text", "empty", "other database", "directory", "link"],
)
def test_what_exists_and_is_no_ledger_is_left_alone(path, make, message):
    make(path)
    before = path.read_bytes() if path.is_file() else None
    with pytest.raises(FileExistsError):
        Ledger.create(path, terms())
    with pytest.raises(LedgerError, match=message):
        Ledger.attach(path, terms())
    assert before is None or path.read_bytes() == before
    assert [p.name for p in path.parent.iterdir()] == [path.name]


def test_a_directory_that_is_missing_is_named(tmp_path):
    with pytest.raises(LedgerError, match=r"'.*/nowhere/ledger' cannot be created .*must exist"):
        Ledger.create(tmp_path / "nowhere" / "ledger", terms())


def test_creation_works_without_hard_links_and_under_unusual_names(tmp_path, monkeypatch):
    def no_links(*args):
        raise OSError(95, "Operation not supported")

    monkeypatch.setattr(os, "link", no_links)
    path = tmp_path / "50% done? #1 é"
    ledger = Ledger.create(path, terms())
    assert ledger.admit(charge(100))
    with pytest.raises(FileExistsError):
        Ledger.create(path, terms())
    assert ledger.totals() == Totals(1, 100, 1)
    assert [p.name for p in tmp_path.iterdir()] == [path.name]
