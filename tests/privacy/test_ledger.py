"""The ledger file: exact, atomic, and careful with whatever lies at its path."""

import math
import os
import sqlite3
import stat
import tempfile
import threading
from contextlib import closing
from pathlib import Path

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from skdpot.exceptions import LedgerError
from skdpot.privacy import ledger as ledger_module
from skdpot.privacy.events import Relation
from skdpot.privacy.ledger import Charge, Ledger, Terms, Totals, transaction


def terms(mu_squared_cap=100, leak_cap=1000, *, epsilon=1.0, **other):
    return Terms(epsilon, 1e-5, Relation.REPLACE_ONE, mu_squared_cap, leak_cap, **other)


def charge(mu_squared=1, leak=1, label="fit"):
    return Charge(label, "Event()", 0.1, mu_squared, leak)


@pytest.fixture
def path(tmp_path):
    return tmp_path / "ledger.sqlite"


@pytest.fixture
def ledger(path):
    return Ledger.create(path, terms())


def test_a_new_ledger_is_empty_and_belongs_to_its_owner_alone(ledger, path):
    assert ledger.totals() == Totals(0, 0, 0)
    assert ledger.records() == []
    assert stat.S_IMODE(path.stat().st_mode) == 0o600
    assert [p.name for p in path.parent.iterdir()] == [path.name]


def test_charges_are_admitted_up_to_the_cap_exactly(ledger):
    assert ledger.admit(charge(99))
    assert not ledger.admit(charge(2))
    last = ledger.admit(charge(1))
    assert last
    assert not ledger.admit(charge(1))
    assert ledger.totals() == Totals(2, 100, 2)


def test_either_cap_refuses(ledger):
    assert not ledger.admit(charge(101, 0))
    assert not ledger.admit(charge(0, 1001))
    assert ledger.admit(charge(100, 1000))


def test_a_refused_charge_leaves_the_file_as_it_was(ledger, path):
    ledger.admit(charge(60))
    before = path.read_bytes()
    assert not ledger.admit(charge(41))
    assert path.read_bytes() == before


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


def test_an_infinite_charge_never_fits_a_finite_cap(ledger):
    assert not ledger.admit(charge(math.inf, 0))
    assert not ledger.admit(charge(0, math.inf))


@settings(max_examples=25, deadline=None)
@given(st.lists(st.tuples(st.integers(0, 60), st.integers(0, 600)), max_size=12))
def test_the_sums_never_pass_the_caps_and_nothing_that_fits_is_refused(costs):
    with tempfile.TemporaryDirectory() as directory:
        ledger = Ledger.create(Path(directory, "ledger"), terms())
        mu_squared = leak = 0
        for cost in costs:
            fits = mu_squared + cost[0] <= 100 and leak + cost[1] <= 1000
            assert ledger.admit(charge(*cost)) is fits
            mu_squared, leak = mu_squared + fits * cost[0], leak + fits * cost[1]
            totals = ledger.totals()
            assert (totals.mu_squared_units, totals.leak_units) == (mu_squared, leak)


def test_eight_threads_share_a_hundred_units(ledger):
    granted = []
    start = threading.Barrier(8)

    def work():
        start.wait()
        granted.extend(ledger.admit(charge()) for _ in range(20))

    threads = [threading.Thread(target=work) for _ in range(8)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert len(granted) == 160
    assert sum(granted) == 100
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


def test_a_charge_is_synced_to_the_disk_before_it_counts(ledger, path):
    with transaction(str(path), "IMMEDIATE") as connection:
        assert connection.execute("PRAGMA synchronous").fetchone() == (3,)  # EXTRA


def test_attaching_continues_the_same_ledger(ledger, path):
    ledger.admit(charge(40))
    again = Ledger.attach(path, terms())
    assert again == ledger
    assert not again.admit(charge(61))


def test_the_caps_come_from_the_file(ledger, path):
    assert Ledger.attach(path, terms(mu_squared_cap=10**9)).terms.mu_squared_cap == 100


@pytest.mark.parametrize(
    "other",
    [
        Terms(2.0, 1e-5, Relation.REPLACE_ONE, 100, 1000),
        Terms(1.0, 1e-6, Relation.REPLACE_ONE, 100, 1000),
        Terms(1.0, 1e-5, Relation.ADD_REMOVE, 100, 1000),
    ],
    ids=["epsilon", "delta", "relation"],
)
def test_attaching_with_other_terms_names_both(ledger, path, other):
    with pytest.raises(LedgerError, match=r"was made for .* but .* was asked for") as caught:
        Ledger.attach(path, other)
    assert str(ledger.terms) in str(caught.value)
    assert str(other) in str(caught.value)


def test_a_missing_file_says_what_to_do_and_is_not_made_anew(ledger, path):
    path.unlink()
    for call in (ledger.totals, ledger.records, lambda: ledger.admit(charge())):
        with pytest.raises(LedgerError, match=r"cannot be reached.*make a new PrivacyBudget"):
            call()
    assert not path.exists()


def test_a_file_that_vanishes_after_the_check_is_not_made_anew(ledger, path, monkeypatch):
    path.unlink()
    monkeypatch.setattr(ledger_module, "_check_is_file", lambda path: None)
    with pytest.raises(LedgerError, match="unable to open"):
        ledger.admit(charge())
    assert not path.exists()


def test_another_ledger_at_the_same_path_is_refused(ledger, path):
    path.unlink()
    Ledger.create(path, terms())
    with pytest.raises(LedgerError, match="is now another ledger"):
        ledger.admit(charge())
    assert Ledger.attach(path, terms()).totals() == Totals()


def _foreign_database(path):
    with closing(sqlite3.connect(path)) as connection:
        connection.execute("CREATE TABLE terms (uid)")
        connection.commit()


@pytest.mark.parametrize(
    ("make", "message"),
    [
        (lambda p: p.write_text("my thesis, chapter one\n" * 50), "left as it is"),
        (lambda p: p.touch(), "no skdpot ledger"),
        (_foreign_database, "no skdpot ledger"),
    ],
    ids=["text", "empty", "other database"],
)
def test_an_existing_file_that_is_no_ledger_is_left_alone(path, make, message):
    make(path)
    before = path.read_bytes()
    with pytest.raises(FileExistsError):
        Ledger.create(path, terms())
    with pytest.raises(LedgerError, match=message):
        Ledger.attach(path, terms())
    assert path.read_bytes() == before
    assert [p.name for p in path.parent.iterdir()] == [path.name]


def test_symbolic_links_are_not_followed(ledger, path, tmp_path):
    dangling, link = tmp_path / "dangling", tmp_path / "link"
    dangling.symlink_to(tmp_path / "target")
    link.symlink_to(path)
    for place in (dangling, link):
        with pytest.raises(FileExistsError):
            Ledger.create(place, terms())
        with pytest.raises(LedgerError, match=r"no regular file.*symbolic link"):
            Ledger.attach(place, terms())
    assert not (tmp_path / "target").exists()
    assert ledger.totals() == Totals()


def test_a_directory_is_no_ledger(tmp_path):
    with pytest.raises(LedgerError, match="no regular file"):
        Ledger.attach(tmp_path, terms())


def test_a_damaged_or_newer_ledger_is_refused(ledger, path):
    for statement, message in [
        ("UPDATE terms SET leak_cap = 'many'", "damaged"),
        ("DELETE FROM terms", "damaged"),
        ("PRAGMA user_version = 99", "format 99"),
    ]:
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


def test_a_directory_that_is_missing_is_named(tmp_path):
    with pytest.raises(LedgerError, match=r"'.*/nowhere/ledger' cannot be created .*must exist"):
        Ledger.create(tmp_path / "nowhere" / "ledger", terms())


@pytest.fixture
def ordinary_user():
    """Permissions do not bind the superuser."""
    if not hasattr(os, "geteuid"):
        pytest.skip("needs POSIX users")
    if os.geteuid() != 0:
        yield os.geteuid()
        return
    try:
        os.seteuid(65534)
        yield 65534
    finally:
        os.seteuid(0)


def test_a_read_only_directory_is_reported(ordinary_user):
    with tempfile.TemporaryDirectory() as directory:
        ledger = Ledger.create(Path(directory, "ledger"), terms())
        os.chmod(directory, 0o555)
        try:
            with pytest.raises(LedgerError, match=r"cannot be created \(Permission denied\)"):
                Ledger.create(Path(directory, "second"), terms())
            with pytest.raises(LedgerError, match="directory must be writable"):
                ledger.admit(charge())
            assert ledger.totals() == Totals()
        finally:
            os.chmod(directory, 0o700)


def test_creation_works_without_hard_links(path, monkeypatch):
    def no_links(*args):
        raise OSError(95, "Operation not supported")

    monkeypatch.setattr(os, "link", no_links)
    ledger = Ledger.create(path, terms())
    assert ledger.admit(charge(100))
    with pytest.raises(FileExistsError):
        Ledger.create(path, terms())
    assert ledger.totals() == Totals(1, 100, 1)
    assert [p.name for p in path.parent.iterdir()] == [path.name]


def test_paths_with_unusual_characters_work(tmp_path, monkeypatch):
    place = tmp_path / "50% done? #1 é"
    ledger = Ledger.create(place, terms())
    assert ledger.admit(charge())
    monkeypatch.chdir(tmp_path)
    assert Ledger.attach(place.name, terms()) == ledger
