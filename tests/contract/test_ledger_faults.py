"""Whatever happens to a ledger, no more is released than was charged, and no more than fits.

The faults are in `tests.contract.ledger_faults`, which also writes the table of the user guide.
"""

import gc
import os
import re
import sqlite3
import tempfile
from contextlib import closing
from pathlib import Path

import numpy as np
import pytest

from skdpot import PrivacyBudget, SlicedSketch
from skdpot.exceptions import LedgerError, PrivacyWarning
from skdpot.privacy import ledger as ledger_module
from skdpot.privacy.events import Relation
from skdpot.privacy.ledger import Charge, Ledger, Terms, Totals, transaction
from skdpot.release.gate import record_releases
from tests.contract.ledger_faults import (
    BEFORE,
    CAPACITY,
    DAMAGED,
    FAULTS,
    MANY,
    OLDER,
    forget,
    small_disk,
    told_by,
)
from tests.tables.table_models import fitted as fitted_table

posix = hasattr(os, "fork") and hasattr(os, "geteuid")
pytestmark = pytest.mark.skipif(not posix, reason="faults are made as POSIX does")

ROOT = Path(__file__).parents[2]
TABLE = ROOT / "doc" / "audit_faults.csv"

X = np.random.default_rng(5).normal(size=(60, 2)).round(3)
SCHEMA = fitted_table("left out").schema_

KILLS = {name for name, fault in FAULTS.items() if fault.goes_on and "killed" in name}
KILLS -= {"the maker killed before it removed its draft"}


@pytest.fixture(scope="module")
def injected():
    """All faults, injected in a process of their own."""
    hazard, outcomes = told_by("ledger_faults", "-")
    return hazard, {outcome["fault"]: outcome for outcome in outcomes}


@pytest.mark.slow
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


@pytest.mark.slow
def test_kills_have_hit_what_they_aimed_at(injected):
    """A kill that never came too late, or never too early, would prove nothing."""
    rows = injected[1]
    statement = rows["killed at and amid every statement"]
    assert statement["spent"] > statement["released"]  # killed between charge and release
    writing = rows["killed amid every write of a commit"]
    assert writing["tried"] > writing["spent"] + 5  # killed before the charge was there


@pytest.mark.slow
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
    with pytest.raises(LedgerError, match=OLDER):  # not the charge that this process made
        ledger.records()
    forget()
    with pytest.raises(LedgerError, match=DAMAGED):
        ledger.records()


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


# ------------------------------------------------------------------ disks


@pytest.fixture
def disk(tmp_path):
    with small_disk(tmp_path) as made:
        if made is None:
            pytest.skip("a small disk can be mounted by root alone")
        yield made


def spoil(disk, fault):
    if fault == "full":
        disk.fill()
    else:
        disk.set_writable(False)


def repair(disk):
    disk.set_writable(True)
    disk.filler.unlink(missing_ok=True)


@pytest.mark.slow
@pytest.mark.parametrize("fault", ["full", "read-only"])
@pytest.mark.parametrize("ledger", ["old", "new", "temporary"])
def test_a_fit_on_a_bad_disk_is_refused_whole(disk, monkeypatch, fault, ledger):
    """No noise is drawn, nothing is kept, and the ledger reads as before."""
    monkeypatch.setattr(tempfile, "tempdir", str(disk.place))
    path = None if ledger == "temporary" else disk.place / "ledger"

    def fit(budget=None):
        budget = PrivacyBudget(1.0, ledger=path) if budget is None else budget
        return SlicedSketch(0.1, bounds=(-2, 2), budget=budget).fit(X)

    budget = PrivacyBudget(1.0, ledger=path) if ledger == "old" else None
    if budget is not None:
        fit(budget)
    before = sorted(os.listdir(disk.place))
    spoil(disk, fault)
    with record_releases() as releases:
        for given in (budget, None):
            with pytest.raises(LedgerError, match="(?i)space|writable") as caught:
                fit(given)
            assert "disk I/O error" not in str(caught.value)
            del caught  # keeps what was made for the fit alive
    assert not releases
    repair(disk)
    gc.collect()
    assert sorted(os.listdir(disk.place)) == before
    if budget is not None:
        assert len(budget.history()) == 1
    assert fit(budget).statistic_.size


@pytest.mark.parametrize("fault", ["full", "read-only"])
@pytest.mark.parametrize("step", ["keep", "close"])
def test_a_disk_that_goes_bad_after_the_charge_costs_no_second_one(disk, monkeypatch, fault, step):
    """No release passes that the ledger should keep and does not; a finished fit is not lost."""
    budget = PrivacyBudget(1.0, ledger=disk.place / "ledger")
    run = getattr(Ledger, step)

    def spoiled(ledger, *given):
        spoil(disk, fault)
        return run(ledger, *given)

    def fit():
        return SlicedSketch(0.1, bounds=(-2, 2), budget=budget).fit(X)

    monkeypatch.setattr(Ledger, step, spoiled)
    if step == "keep":
        with (
            record_releases() as releases,
            pytest.raises(LedgerError, match="What was charged before stays charged") as caught,
        ):
            fit()
        assert not releases
        assert "Nothing was charged" not in str(caught.value)
    else:
        fit()
    monkeypatch.undo()
    repair(disk)
    assert len(budget.history()) == 1
    with budget.resume():
        assert fit().statistic_.size
    assert len(budget.history()) == 1


SAVED = {
    "sketch": lambda path, size: SlicedSketch(bounds=(-2, 2), n_bins=size).fit(X).save(path),
    "synthesizer": lambda path, size: fitted_table("left out").save(path),
    "schema": lambda path, size: SCHEMA.to_json(path),
    "report": lambda path, size: (
        fitted_table("left out").quality_report(n_samples=20, random_state=0).to_html(path)
    ),
}


@pytest.mark.slow
@pytest.mark.parametrize("kind", SAVED)
def test_a_file_that_does_not_fit_on_the_disk_replaces_none(disk, kind):
    path, save = disk.place / "file.of.mine", SAVED[kind]
    path.write_bytes(b"what was there before")
    path.chmod(0o640)
    disk.fill()
    with pytest.raises(OSError, match="No space left"):
        save(path, 512)
    assert path.read_bytes() == b"what was there before"
    disk.filler.unlink()
    assert os.listdir(disk.place) == [path.name]
    save(path, 8)
    assert path.read_bytes() != b"what was there before"
    assert path.stat().st_mode & 0o777 == 0o640
    assert os.listdir(disk.place) == [path.name]


def test_a_file_is_written_through_links_and_into_pipes(tmp_path):
    """A device such as /dev/stdout must not be replaced by a file."""
    (tmp_path / "link").symlink_to("file")
    SCHEMA.to_json(tmp_path / "link")
    assert (tmp_path / "link").is_symlink()
    assert (tmp_path / "file").read_text() == SCHEMA.to_json()
    assert (tmp_path / "file").stat().st_mode & 0o777 == 0o666 & ~umask()
    os.mkfifo(tmp_path / "pipe")
    reader = os.open(tmp_path / "pipe", os.O_RDONLY | os.O_NONBLOCK)
    SCHEMA.to_json(tmp_path / "pipe")
    assert os.read(reader, 10**6).decode() == SCHEMA.to_json()
    os.close(reader)


def umask():
    mask = os.umask(0)
    os.umask(mask)
    return mask


# ------------------------------------------------------------------ other machines

MOUNTS = """\
21 1 254:0 / / rw,relatime - ext4 /dev/vda rw
22 21 0:19 / /proc rw - proc proc rw
30 21 0:40 / /home rw,relatime shared:1 - nfs4 server:/export/home rw,vers=4.2
31 30 8:17 / /home/own\\040disk rw - xfs /dev/sdb1 rw
32 21 0:41 / /shares/office rw - cifs //office/shares rw
33 21 0:42 / /scratch rw - lustre 10.0.0.1@tcp:/scratch rw,localflock
34 21 0:43 / /mnt/c rw - 9p C:\\134 rw,aname=drvfs
35 21 0:44 / /remote rw - fuse.sshfs user@host: rw
36 21 0:45 / /shm rw - tmpfs tmpfs rw
37 21 0:46 / /vm rw - virtiofs share rw
38 36 0:47 / /shm rw - nfs server:/again rw
"""
DRIVES = {
    "/study/l": "", "/homes/l": "", "/home": "nfs4", "/home/me/l": "nfs4",
    "/home/own disk/l": "", "/home/own/l": "nfs4", "/shares/office/l": "cifs",
    "/scratch/l": "lustre", "/mnt/c/l": "9p", "/remote/l": "fuse.sshfs", "/shm/l": "nfs",
    "/vm/l": "virtiofs", r"\\server\share\l": "a network path",
}  # fmt: skip


@pytest.mark.parametrize("place", DRIVES)
def test_drives_that_machines_share_are_known(tmp_path, monkeypatch, place):
    (tmp_path / "mountinfo").write_text(MOUNTS)
    monkeypatch.setattr(ledger_module, "_MOUNTS", tmp_path / "mountinfo")
    assert ledger_module._shared_drive(place) == DRIVES[place]


def test_a_ledger_on_a_shared_drive_warns_whoever_opens_it(tmp_path, monkeypatch):
    path = tmp_path / "ledger"
    PrivacyBudget(1.0, ledger=path)  # the drives of tests are of this machine
    monkeypatch.setattr(ledger_module, "_MOUNTS", tmp_path / "none")
    PrivacyBudget(1.0, ledger=path)  # nothing is known
    monkeypatch.setattr(ledger_module, "_MOUNTS", tmp_path / "mountinfo")
    (tmp_path / "mountinfo").write_text(f"1 0 0:1 / {tmp_path} rw - nfs4 server:/study rw\n")
    said = r"machines may share \(nfs4\).*local disk, or spend from one machine at a time"
    for name in ("ledger", "new"):
        with pytest.warns(PrivacyWarning, match=said):
            PrivacyBudget(1.0, ledger=tmp_path / name)
    with pytest.warns(PrivacyWarning, match=said):
        PrivacyBudget.from_ledger(path)
    PrivacyBudget(1.0)  # is of this process alone, wherever it is


def test_a_charge_that_a_machine_without_our_locks_replaced_is_missed(ledger, monkeypatch):
    """The reason for the warning: both releases are out, and one of them is charged."""
    connect, append, spend = sqlite3.connect, ledger_module._append, []
    monkeypatch.setattr(
        sqlite3, "connect", lambda address, **given: connect(f"{address}&vfs=unix-none", **given)
    )

    def overtaken(connection, *row):
        if spend:
            ours = dict(ledger_module._SEEN)
            forget()
            assert spend.pop().admit(charge())
            theirs.update(ledger_module._SEEN)
            forget()
            ledger_module._SEEN.update(ours)
        append(connection, *row)

    theirs = {}
    monkeypatch.setattr(ledger_module, "_append", overtaken)
    assert ledger.admit(charge())
    spend.append(Ledger.attach(ledger.path, ledger.terms))
    assert ledger.admit(charge())
    assert ledger.totals().n_charges == 2  # of three
    assert ledger.admit(charge())  # nobody can tell here
    forget()
    ledger_module._SEEN.update(theirs)
    with pytest.raises(LedgerError, match=OLDER):
        ledger.admit(charge())


# What SQLite says where fcntl sets ENOSYS, EIO or EOPNOTSUPP, and where it sets ENOLCK or EACCES.
WITHOUT_LOCKS = {"SQLITE_IOERR_LOCK": "to a local disk", "SQLITE_BUSY": "cannot lock files"}


@pytest.mark.parametrize("name", WITHOUT_LOCKS)
def test_a_drive_that_cannot_lock_is_refused(ledger, monkeypatch, name):
    class Unlockable(sqlite3.Connection):
        def execute(self, statement, *given):
            if statement == "BEGIN IMMEDIATE":
                error = sqlite3.OperationalError("as the system says")
                error.sqlite_errorname = name
                raise error
            return super().execute(statement, *given)

    connect = sqlite3.connect
    monkeypatch.setattr(sqlite3, "connect", lambda *a, **k: connect(*a, factory=Unlockable, **k))
    with pytest.raises(LedgerError, match=f"Nothing was charged.*{WITHOUT_LOCKS[name]}"):
        ledger.admit(charge())
    assert ledger.totals() == Totals()
