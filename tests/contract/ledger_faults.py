"""Faults of a ledger, one function each, and what they cost.

``python -m tests.contract.ledger_faults doc/audit_faults.csv`` injects them all and writes the
table. It runs in a process of its own, because some faults fork, kill, or lose their rights.
"""

import csv
import json
import math
import os
import pickle
import resource
import shutil
import signal
import sqlite3
import subprocess
import sys
import tempfile
import threading
import time
from collections.abc import Callable, Iterable, Iterator
from contextlib import closing, contextmanager, suppress
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

from skdpot.exceptions import BudgetExceededError, LedgerError
from skdpot.privacy import ledger as ledger_module
from skdpot.privacy.accounting import PrivacyTarget
from skdpot.privacy.budget import PrivacyBudget
from skdpot.privacy.events import GaussianEvent

CAPACITY = 10  # charges that fit in a budget of these tests
BEFORE = 6  # charges that are made before most faults

MANY = 100  # charges that fit where processes race or are killed

# So many of these fit in epsilon = 1, and the next one does not.
EVENTS = {
    n: GaussianEvent(
        sigma=math.sqrt(n) / PrivacyTarget(1.0, 1e-5).mu_cap * (1 + 1e-9), sensitivity=1.0
    )
    for n in (CAPACITY, MANY)
}
EVENT = EVENTS[CAPACITY]


@dataclass
class Outcome:
    """What a fault has cost, of how many charges that fit.

    Fits asked (`tried`), were charged at any time, and went on to release something; `error` is
    what the last refused fit was told.
    """

    fault: str
    cap: int
    tried: int = 0
    spent: int = 0
    released: int = 0
    error: str = ""

    @property
    def lost(self) -> int:
        """Charges without a release: wasted, which is allowed."""
        return self.spent - self.released


DAMAGED = "is damaged: its charges cannot be reconstructed"
FULL = "is left in this budget"
OLDER = "it is an older copy"


@dataclass(frozen=True)
class Fault:
    """How a fault is made, what the last refused fit is told, and whether fits may go on."""

    run: Callable[[Path], Outcome]
    told: str
    goes_on: bool


FAULTS: dict[str, Fault] = {}


def fault(
    name: str, cap: int = CAPACITY, *, told: str = FULL, goes_on: bool = False
) -> Callable[[Callable[[Path, Outcome], None]], None]:
    """Register a fault."""

    def register(inject: Callable[[Path, Outcome], None]) -> None:
        def run(directory: Path) -> Outcome:
            outcome = Outcome(name, cap)
            inject(directory, outcome)
            return outcome

        FAULTS[name] = Fault(run, told, goes_on)

    return register


def fit(budget: PrivacyBudget | Path, outcome: Outcome) -> bool:
    """Spend, and release something if that succeeds. A path is a new process's budget."""
    outcome.tried += 1
    try:
        if isinstance(budget, Path):
            forget()
            budget = PrivacyBudget(1.0, ledger=budget)
        budget.spend(EVENTS[outcome.cap], label="fit")
    except (BudgetExceededError, LedgerError) as error:
        outcome.error = f"{type(error).__name__}: {error}"
        return False
    outcome.spent += 1
    outcome.released += 1
    return True


def forget() -> None:
    """Make this process as ignorant of ledgers as a new one."""
    ledger_module._SEEN.clear()


def made(directory: Path, outcome: Outcome, n: int = BEFORE) -> tuple[PrivacyBudget, Path]:
    """Return a budget that paid for some fits already."""
    path = directory / "ledger"
    budget = PrivacyBudget(1.0, ledger=path)
    for _ in range(n):
        fit(budget, outcome)
    return budget, path


def run_sql(path: Path, *statements: str) -> None:
    with closing(sqlite3.connect(path)) as connection:
        for statement in statements:
            connection.execute(statement)
        connection.commit()


def charges_in(path: Path) -> int:
    """Count the charges without the code that is tested."""
    with closing(sqlite3.connect(path)) as connection:
        return int(connection.execute("SELECT count(*) FROM charges").fetchone()[0])


def spend_all(path: Path, outcome: Outcome, *more: PrivacyBudget) -> None:
    """Fit as often as anybody lets us, in this process, in a new one, and with other budgets."""
    for budget in (*more, path):
        while fit(budget, outcome):
            if outcome.released > outcome.cap:
                return


# ------------------------------------------------------------------------- damage


def flipped(good: bytes) -> Iterator[bytes]:
    for position in range(len(good)):
        if good[position] or position % 4096 < 120:  # what is in use, and the heads of pages
            for bit in range(position % 3, 8, 3):
                damaged = bytearray(good)
                damaged[position] ^= 1 << bit
                yield bytes(damaged)


def cut(good: bytes) -> Iterator[bytes]:
    return (good[:length] for length in range(0, len(good), 100))


def zeroed(good: bytes) -> Iterator[bytes]:
    return (good[:k] + bytes(4096) + good[k + 4096 :] for k in range(0, len(good), 4096))


def _damage(name: str, versions: Callable[[bytes], Iterator[bytes]], told: str) -> None:
    @fault(name, told=told)
    def _inject(directory: Path, outcome: Outcome) -> None:
        _, path = made(directory, outcome, CAPACITY)
        for data in versions(path.read_bytes()):
            path.write_bytes(data)
            fit(path, outcome)


_damage("every third bit of the file flipped, one at a time", flipped, "LedgerError|" + FULL)
_damage("cut at every 100 bytes", cut, "LedgerError")
_damage("a page of zeros, each page in turn", zeroed, "LedgerError")


def changed(
    name: str,
    change: Callable[[Path, PrivacyBudget], object],
    *,
    told: str = FULL,
    goes_on: bool = False,
    seen: bool = False,
    before: int = BEFORE,
) -> None:
    """Register a fault that changes the file of a budget that paid for some fits.

    All budgets go on, at the path that `change` returns if it does. Those that only a process can
    notice that has `seen` the charges are tried by the budget alone.
    """

    @fault(name, told=told, goes_on=goes_on)
    def _inject(directory: Path, outcome: Outcome) -> None:
        budget, path = made(directory, outcome, before)
        place = change(path, budget)
        if seen:
            insist(outcome, budget)
        else:
            spend_all(place if isinstance(place, Path) else path, outcome, budget)
        if goes_on:
            outcome.spent = max(outcome.spent, charges_in(path))


def insist(outcome: Outcome, *budgets: PrivacyBudget) -> None:
    """Fit far more often than anything allows."""
    for budget in budgets * (2 * CAPACITY):
        fit(budget, outcome)


changed("an empty file in its place", lambda p, _: p.write_bytes(b""), told="not a skdpot ledger")
changed("text in its place", lambda p, _: p.write_text("charges: none\n" * 999), told="not a data")


TAMPERING = {
    "totals set to zero": ["UPDATE charges SET mu_squared_total = '0', leak_total = '0'"],
    "negative totals": ["UPDATE charges SET mu_squared_total = '-' || mu_squared_total"],
    "a negative charge": [
        "INSERT INTO charges SELECT number + 1, time, label, event, epsilon, '-' ||"
        " mu_squared_total, '0', '0', leak_total FROM charges ORDER BY number DESC LIMIT 1"
    ],
    "totals that are no numbers": ["UPDATE charges SET mu_squared_total = 'none'"],
    "totals with a fraction": ["UPDATE charges SET mu_squared_total = '0.5'"],
    "totals as bytes": ["UPDATE charges SET mu_squared_total = x'30'"],
    "the last charge deleted": ["DELETE FROM charges WHERE number = 6"],
    "the first charge deleted": ["DELETE FROM charges WHERE number = 1"],
    "a charge from the middle deleted": ["DELETE FROM charges WHERE number = 3"],
    "all charges deleted": ["DELETE FROM charges"],
    "numbers at their end": ["UPDATE charges SET number = 9223372036854775807 WHERE number = 6"],
    "caps raised": ["UPDATE terms SET mu_squared_cap = mu_squared_cap || '0'"],
    "caps removed": ["UPDATE terms SET mu_squared_cap = 'inf', leak_cap = 'inf'"],
    "two sets of terms": ["INSERT INTO terms SELECT * FROM terms"],
    "no terms": ["DELETE FROM terms"],
    "a trigger that undoes charges": [
        "CREATE TRIGGER t AFTER INSERT ON charges BEGIN"
        " DELETE FROM charges WHERE number = NEW.number; END"
    ],
    "a trigger that swallows charges": [
        "CREATE TRIGGER t BEFORE INSERT ON charges BEGIN SELECT RAISE(IGNORE); END"
    ],
    "a view in place of the charges": [
        "ALTER TABLE charges RENAME TO hidden",
        "CREATE VIEW charges AS SELECT * FROM hidden LIMIT 0",
    ],
    "another column": ["ALTER TABLE charges ADD COLUMN note TEXT"],
    "charges dropped": ["DROP TABLE charges"],
    "another application's mark": ["PRAGMA application_id = 1"],
    "a newer format": ["PRAGMA user_version = 2"],
}
# A new process cannot know that the last charges are gone; one that has seen them does.
UNSEEN = {"the last charge deleted", "all charges deleted"}
TOLD = dict.fromkeys(UNSEEN, OLDER) | {
    "another application's mark": "not a skdpot ledger",
    "a newer format": "has format 2",
}


for _name, _statements in TAMPERING.items():
    changed(
        _name,
        lambda path, _, statements=tuple(_statements): run_sql(path, *statements),
        told=TOLD.get(_name, DAMAGED),
        seen=_name in UNSEEN,
    )


def leftovers(path: Path, _: PrivacyBudget) -> None:
    for suffix in ("-wal", "-shm", "-journal"):
        path.with_name(path.name + suffix).write_bytes(b"\x37\x7f\x06\x82" + bytes(5000))


changed("leftovers of other files beside it", leftovers, goes_on=True)


@fault("switched to a write-ahead log, and killed", goes_on=True)
def _write_ahead(directory: Path, outcome: Outcome) -> None:
    _, path = made(directory, outcome)
    run_sql(path, "PRAGMA journal_mode = WAL")
    for _ in range(3):
        in_child(path, outcome, kill_after=2)
    spend_all(path, outcome)
    outcome.spent = charges_in(path)


# ------------------------------------------------------------------- other files


@fault("the temporary ledger deleted", told="cannot be reached")
def _temporary(directory: Path, outcome: Outcome) -> None:
    budget = PrivacyBudget(1.0)
    for _ in range(BEFORE):
        fit(budget, outcome)
    shutil.rmtree(Path(budget.ledger).parent)
    insist(outcome, budget)


def replace(path: Path, _: PrivacyBudget) -> None:
    path.unlink()
    PrivacyBudget(1.0, ledger=path)


def linked(link: Callable[[Path, Path], None], name: str) -> Callable[[Path, object], Path]:
    def make(path: Path, _: object) -> Path:
        link(path, path.with_name(name))
        return path.with_name(name)

    return make


DRAFT = ".ledger.abc12_9z"
changed("deleted", lambda path, _: path.unlink(), told="cannot be reached", seen=True)
changed("another ledger in its place", replace, told="now another ledger", seen=True)
changed("a symbolic link", linked(os.symlink, "link"), told="not a regular file")
changed("a hard link", linked(os.link, "second"), told="has a second name")
changed(
    "the maker killed before it removed its draft",
    lambda path, _: os.link(path, path.with_name(DRAFT)),
    goes_on=True,
)


@fault("an older copy put back while the process runs", told=OLDER)
def _older(directory: Path, outcome: Outcome) -> None:
    budget, path = made(directory, outcome, 2)
    copy = Path(shutil.copy(path, directory / "copy"))
    for _ in range(4):
        fit(budget, outcome)
    os.replace(copy, path)
    insist(outcome, budget)


@fault("a journal of an earlier charge put beside it", told=OLDER)
def _old_journal(directory: Path, outcome: Outcome) -> None:
    budget, path = made(directory, outcome, 2)
    journal = path.with_name(path.name + "-journal")
    in_child(path, outcome, kill_after=None, file_limit=9000)  # killed amid the commit
    old = journal.read_bytes()
    for _ in range(4):
        fit(budget, outcome)
    journal.write_bytes(old)
    insist(outcome, budget)


@fault("two copies, both spent from by one process", told=OLDER)
def _two_copies(directory: Path, outcome: Outcome) -> None:
    budget, path = made(directory, outcome, 2)
    copy = Path(shutil.copy(path, directory / "copy"))
    insist(outcome, budget, PrivacyBudget(1.0, ledger=copy))


@fault("opened with other terms", told="was made for")
def _other_terms(directory: Path, outcome: Outcome) -> None:
    _, path = made(directory, outcome)
    for terms in ((2.0, 1e-5), (1.0, 1e-4), (math.inf, 1e-5)):
        outcome.tried += 1
        try:
            PrivacyBudget(*terms, ledger=path).spend(EVENT)
        except LedgerError as error:
            outcome.error = f"{type(error).__name__}: {error}"
        else:
            outcome.released += 1


# ------------------------------------------------------------------ rights and space


@contextmanager
def ordinary_user() -> Iterator[None]:
    """Permissions do not bind the superuser."""
    if os.geteuid() != 0:
        yield
        return
    os.seteuid(65534)
    try:
        yield
    finally:
        os.seteuid(0)


def _read_only(name: str, mode: int, of_file: int) -> None:
    @fault(name, told="must be writable")
    def _inject(directory: Path, outcome: Outcome) -> None:
        directory.chmod(0o777)
        with ordinary_user():
            place = directory / "mine"
            place.mkdir()
            budget, path = made(place, outcome)
            path.chmod(of_file)
            place.chmod(mode)
            spend_all(path, outcome, budget)
            place.chmod(0o700)


_read_only("a read-only file", 0o700, 0o400)
_read_only("a read-only directory", 0o500, 0o600)


@fault("a full disk, at every amount of space left", told="disk is full|not tried", goes_on=True)
def _full(directory: Path, outcome: Outcome) -> None:
    disk = directory / "disk"
    disk.mkdir()
    mounted = subprocess.run(
        ["mount", "-t", "tmpfs", "-o", "size=256k", "tmpfs", str(disk)],
        capture_output=True,
        check=False,
    )
    if mounted.returncode:
        outcome.error = "not tried: a small disk can be mounted by root alone"
        return
    try:
        _, path = made(disk, outcome, 1)
        path = disk / "ledger"
        for pages in range(8):
            filler = disk / "filler"
            with suppress(OSError), filler.open("wb", buffering=0) as file:
                while True:
                    file.write(bytes(4096))
            with filler.open("r+b") as file:
                file.truncate(max(0, filler.stat().st_size - 4096 * pages))
            fit(path, outcome)
            filler.unlink()
        error = outcome.error
        spend_all(path, outcome)
        outcome.error = error
        outcome.spent = charges_in(path)
    finally:
        subprocess.run(["umount", str(disk)], check=True)


# --------------------------------------------------------------------- processes


class Killer(sqlite3.Connection):
    """A connection whose process dies at its k-th statement, or that many steps into one."""

    left = -1

    def execute(self, *args: object) -> sqlite3.Cursor:
        Killer.left -= 1
        if Killer.left == 0:
            os.kill(os.getpid(), signal.SIGKILL)
        if Killer.left == 1:  # amid the next statement
            self.set_progress_handler(self._die, 3)
        return super().execute(*args)

    @staticmethod
    def _die() -> int:
        os.kill(os.getpid(), signal.SIGKILL)
        return 1


def in_child(
    path: Path,
    outcome: Outcome,
    *,
    kill_after: int | None,
    file_limit: int | None = None,
    fatal: bool = True,
) -> None:
    """Fit in a forked process that dies at a statement, or when a file grows past a limit.

    The child says that it has released something by a byte in a file of its own. Past the limit
    the system kills it in the middle of a write, or, if not fatal, fails the write.
    """
    outcome.tried += 1
    log = releases_of(path)
    before = os.fstat(log).st_size
    pid = os.fork()
    if pid == 0:
        try:
            if kill_after is not None:
                Killer.left = kill_after
                connect = sqlite3.connect
                sqlite3.connect = lambda *a, **k: connect(*a, factory=Killer, **k)
            budget = PrivacyBudget(1.0, ledger=path)
            if file_limit is not None:
                handler = signal.SIG_DFL if fatal else signal.SIG_IGN
                signal.signal(signal.SIGXFSZ, handler)
                _, most = resource.getrlimit(resource.RLIMIT_FSIZE)
                resource.setrlimit(resource.RLIMIT_FSIZE, (file_limit, most))
            try:
                budget.spend(EVENTS[outcome.cap], label="child")
            except (LedgerError, BudgetExceededError):
                os._exit(3)
            if file_limit is not None:
                resource.setrlimit(resource.RLIMIT_FSIZE, (most, most))
            os.write(log, b"x")
            os._exit(0)
        except BaseException:
            os._exit(99)
    status = os.waitstatus_to_exitcode(os.waitpid(pid, 0)[1])
    if status == 99:
        raise RuntimeError("the child failed")
    outcome.released += os.fstat(log).st_size - before
    os.close(log)
    if status < 0:
        outcome.error = f"the process was killed ({signal.Signals(-status).name})"
    elif status == 3:
        outcome.error = "LedgerError: the disk must not be full"


def _in_children(name: str, limits: Iterable[dict[str, Any]], told: str = FULL) -> None:
    @fault(name, MANY, told=told, goes_on=True)
    def _inject(directory: Path, outcome: Outcome) -> None:
        _, path = made(directory, outcome, 1)
        for limit in limits:
            in_child(path, outcome, **limit)
        error = outcome.error
        spend_all(path, outcome)
        outcome.error = error if told != FULL else outcome.error
        outcome.spent = charges_in(path)


_in_children(
    "a limit on the length of files, at every length",
    [{"kill_after": None, "file_limit": n, "fatal": False} for n in range(0, 16_000, 500)],
    told="disk must not be full",
)
_in_children("killed at and amid every statement", [{"kill_after": n} for n in range(1, 45)])
_in_children(
    "killed amid every write of a commit",
    [{"kill_after": None, "file_limit": n} for n in range(0, 16_000, 300)],
)


def releases_of(path: Path) -> int:
    """Open the file in which children note what they have released."""
    return os.open(path.with_name("releases"), os.O_CREAT | os.O_APPEND | os.O_RDWR, 0o600)


@fault("killed at any moment", MANY, goes_on=True)
def _killed_any_time(directory: Path, outcome: Outcome) -> None:
    budget, path = made(directory, outcome, 1)
    log = releases_of(path)
    for k in range(25):
        pid = os.fork()
        if pid == 0:
            with suppress(BudgetExceededError):
                while True:
                    budget.spend(EVENTS[MANY])
                    os.write(log, b"x")
            os._exit(0)
        time.sleep(0.0002 * k)
        os.kill(pid, signal.SIGKILL)
        os.waitpid(pid, 0)
    written = os.fstat(log).st_size
    outcome.tried += written + 25  # each was killed on its way to one more
    outcome.released += written
    spend_all(path, outcome)
    outcome.spent = charges_in(path)


@fault("32 forked processes at once", MANY, goes_on=True)
def _race(directory: Path, outcome: Outcome) -> None:
    budget, path = made(directory, outcome, 0)
    blob = pickle.dumps(budget)
    log = releases_of(path)
    ready, start = os.pipe()
    pids = []
    for k in range(32):
        pid = os.fork()
        if pid == 0:
            try:
                os.read(ready, 1)
                # Inherited, attached by path, or unpickled.
                mine = (budget, PrivacyBudget(1.0, ledger=path), pickle.loads(blob))[k % 3]
                for _ in range(5):
                    with suppress(BudgetExceededError):
                        mine.spend(EVENTS[MANY])
                        os.write(log, b"x")
            except BaseException:
                os._exit(99)
            os._exit(0)
        pids.append(pid)
    os.write(start, bytes(32))
    statuses = {os.waitstatus_to_exitcode(os.waitpid(pid, 0)[1]) for pid in pids}
    if statuses != {0}:
        raise RuntimeError(f"children ended with {statuses}")
    outcome.tried += 160
    outcome.released, outcome.spent = os.fstat(log).st_size, charges_in(path)
    fit(budget, outcome)


SPAWNED = """
import pickle, sys
from skdpot.exceptions import BudgetExceededError
from tests.contract.ledger_faults import EVENT
budget = pickle.loads(bytes.fromhex(sys.argv[1]))
print("ready", flush=True)
sys.stdin.readline()
for _ in range(8):
    try:
        budget.spend(EVENT)
        print("released", flush=True)
    except BudgetExceededError:
        pass
"""


@fault("new processes and threads at once", goes_on=True)
def _spawned(directory: Path, outcome: Outcome) -> None:
    budget, path = made(directory, outcome, 0)
    command = [sys.executable, "-c", SPAWNED, pickle.dumps(budget).hex()]
    children = [
        subprocess.Popen(command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True)
        for _ in range(2)
    ]
    for child in children:
        child.stdout.readline()
    granted: list[int] = []

    def work() -> None:
        for _ in range(4):
            with suppress(BudgetExceededError):
                budget.spend(EVENT)
                granted.append(1)

    threads = [threading.Thread(target=work) for _ in range(4)]
    for thread in threads:
        thread.start()
    said = [child.communicate("\n")[0] for child in children]
    for thread in threads:
        thread.join()
    outcome.tried += 32
    outcome.released = len(granted) + sum(text.count("released") for text in said)
    outcome.spent = charges_in(path)
    fit(budget, outcome)


@fault("held by another process", told="Another process holds it")
def _held(directory: Path, outcome: Outcome) -> None:
    budget, path = made(directory, outcome)
    transaction = ledger_module.transaction
    ledger_module.transaction = lambda path, kind, _=0: transaction(path, kind, 0.02)
    try:
        for lock in ("IMMEDIATE", "EXCLUSIVE"):
            with closing(sqlite3.connect(path, isolation_level=None)) as holder:
                holder.execute(f"BEGIN {lock}")
                fit(budget, outcome)
                fit(path, outcome)
        # A reader lets the charge be written and the commit fail.
        with closing(sqlite3.connect(path, isolation_level=None)) as holder:
            holder.execute("BEGIN")
            holder.execute("SELECT * FROM charges").fetchone()
            fit(budget, outcome)
    finally:
        ledger_module.transaction = transaction
    outcome.spent = charges_in(path)


@fault("the clock goes back, and wild", goes_on=True)
def _clock(directory: Path, outcome: Outcome) -> None:
    budget, path = made(directory, outcome, 1)
    clock = time.time
    times = [2e9, 1e9, 0.0, -1e9, 1.5e9, 4e9, 1e9, 5.0, 6.0, 7.0, 8.0, 9.0]
    ledger_module.time.time = lambda: times.pop(0)
    try:
        while fit(budget, outcome):
            pass
    finally:
        ledger_module.time.time = clock
    if list(budget.history().index) != list(range(CAPACITY)):
        raise RuntimeError("the history is out of order")
    outcome.spent = charges_in(path)


def hard_link_hazard(directory: Path) -> tuple[int, int]:
    """Return charges before and after a crash under another name, if links were not refused."""
    outcome = Outcome("hazard", CAPACITY)
    _, path = made(directory, outcome, 1)
    second = directory / "second"
    os.link(path, second)
    check, ledger_module._check_is_file = ledger_module._check_is_file, lambda path: None
    try:
        in_child(second, outcome, kill_after=None, file_limit=9000)
        fit(path, outcome)
        before = charges_in(path)
        forget()
        PrivacyBudget(1.0, ledger=second).remaining()  # finds the old journal, and plays it back
        return before, charges_in(path)
    finally:
        ledger_module._check_is_file = check


def inject_all(names: list[str]) -> Iterator[Outcome]:
    """Inject faults, each in a new directory; in memory, where disks need not be waited for."""
    memory = "/dev/shm" if os.access("/dev/shm", os.W_OK) else None
    for name in names:
        forget()
        with tempfile.TemporaryDirectory(dir=memory) as directory:
            yield FAULTS[name].run(Path(directory))


def main(target: str) -> None:
    """Write the table, or print outcomes as JSON for the tests."""
    outcomes = list(inject_all(list(FAULTS)))
    if target == "-":
        with tempfile.TemporaryDirectory() as directory:
            hazard = hard_link_hazard(Path(directory))
        sys.stdout.write(json.dumps([hazard, [asdict(outcome) for outcome in outcomes]]))
        return
    with Path(target).open("w", newline="") as file:
        writer = csv.writer(file, lineterminator="\n")
        writer.writerow(["fault", "tried", "spent", "released", "lost", "told"])
        for o in outcomes:
            told = o.error.replace("\n", " ")
            for place in ("/dev/shm/", "/tmp/"):  # names of the day
                if place in told:
                    head, _, tail = told.partition(f"'{place}")
                    told = (
                        f"{head}'{Path(tail.partition(chr(39))[0]).name}'" + tail.partition("'")[2]
                    )
            told = told if len(told) < 110 else told[:107].rsplit(" ", 1)[0] + " ..."
            writer.writerow([o.fault, o.tried, o.spent, o.released, o.lost, told])


if __name__ == "__main__":
    main(sys.argv[1] if len(sys.argv) > 1 else "-")
