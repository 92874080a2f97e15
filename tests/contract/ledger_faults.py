"""Faults of a ledger, and what they cost.

``python -m tests.contract.ledger_faults doc/audit_faults.csv`` injects them all and writes the
table. It runs in a process of its own, because some faults fork, kill, or lose their rights.
"""

import csv
import json
import math
import os
import pickle
import re
import resource
import shutil
import signal
import sqlite3
import subprocess
import sys
import tempfile
import threading
import time
from collections.abc import Callable, Iterator
from contextlib import closing, contextmanager, suppress
from dataclasses import dataclass, field
from functools import cached_property, partial
from pathlib import Path
from typing import Any
from unittest.mock import patch

from skdpot.exceptions import BudgetExceededError, LedgerError
from skdpot.privacy import ledger as ledger_module
from skdpot.privacy.budget import PrivacyBudget
from skdpot.privacy.events import GaussianEvent
from skdpot.privacy.targets import PrivacyTarget

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

DAMAGED = "is damaged: its charges cannot be reconstructed"
FULL = "is left in this budget"
OLDER = "it is an older copy"


@dataclass
class Scene:
    """A ledger in a directory, and what a fault has cost.

    Fits asked (`tried`), were charged at any time (`spent`), and went on to release something, of
    `cap` that fit; `error` is what the last refused fit was told. What is spent and not released is
    lost, which is allowed.
    """

    fault: str
    cap: int
    directory: Path = field(repr=False)
    tried: int = 0
    spent: int = 0
    released: int = 0
    error: str = ""

    @property
    def path(self) -> Path:
        """The ledger."""
        return self.directory / "ledger"

    @cached_property
    def budget(self) -> PrivacyBudget:
        """A budget of this process."""
        return PrivacyBudget(1.0, ledger=self.path)

    @cached_property
    def log(self) -> int:
        """An open file in which children note what they have released, a byte each."""
        return os.open(self.directory / "releases", os.O_CREAT | os.O_APPEND | os.O_RDWR, 0o600)

    def fit(self, budget: PrivacyBudget | Path | None = None) -> bool:
        """Spend, and release something if that succeeds. A path is a new process's budget."""
        budget = self.budget if budget is None else budget
        self.tried += 1
        try:
            if isinstance(budget, Path):
                forget()
                budget = PrivacyBudget(1.0, ledger=budget)
            budget.spend(EVENTS[self.cap], label="fit")
        except (BudgetExceededError, LedgerError) as error:
            self.error = f"{type(error).__name__}: {error}"
            return False
        self.spent += 1
        self.released += 1
        return True

    def spend_all(self, *budgets: PrivacyBudget | Path) -> None:
        """Fit as often as anybody lets us, or far too often."""
        for budget in budgets or (self.budget, self.path):
            while self.fit(budget) and self.released <= self.cap:
                pass

    def insist(self, *budgets: PrivacyBudget) -> None:
        """Fit far more often than anything allows."""
        for budget in (budgets or (self.budget,)) * (2 * CAPACITY):
            self.fit(budget)

    def charges(self) -> int:
        """Count the charges without the code that is tested."""
        with closing(sqlite3.connect(self.path)) as connection:
            return int(connection.execute("SELECT count(*) FROM charges").fetchone()[0])

    def run_sql(self, *statements: str) -> None:
        """Change the file without the code that is tested."""
        with closing(sqlite3.connect(self.path)) as connection:
            for statement in statements:
                connection.execute(statement)
            connection.commit()

    def outcome(self) -> dict[str, Any]:
        """What it has cost."""
        return {
            k: v for k, v in vars(self).items() if k in Scene.__annotations__ and k != "directory"
        }


def forget() -> None:
    """Make this process as ignorant of ledgers as a new one."""
    ledger_module._SEEN.clear()


@dataclass(frozen=True)
class Fault:
    """How a fault is made, what the last refused fit is told, and whether fits may go on.

    After `inject` all budgets go on, at the path that it returns if it does; or this process's
    alone, where only a process that has `seen` the charges can notice; or nobody, if it is `over`.
    What `inject` returns as a text is told in the place of the last error.
    """

    inject: Callable[[Scene], Any]
    told: str = FULL
    goes_on: bool = False
    before: int = BEFORE
    cap: int = CAPACITY
    seen: bool = False
    over: bool = False

    def run(self, name: str, directory: Path) -> Scene:
        """Inject it into a budget that has paid for some fits."""
        scene = Scene(name, self.cap, directory)
        for _ in range(self.before):
            scene.fit()
        found = self.inject(scene)
        scene.released += os.fstat(scene.log).st_size
        if self.seen:
            scene.insist()
        elif not self.over:
            scene.spend_all(*((scene.budget, found) if isinstance(found, Path) else ()))
        if self.goes_on:
            scene.spent = scene.charges()
        scene.error = found if isinstance(found, str) else scene.error
        os.close(scene.log)
        return scene


FAULTS: dict[str, Fault] = {}


def fault(name: str, **options: Any) -> Callable[[Callable[[Scene], Any]], None]:
    """Register a fault."""

    def register(inject: Callable[[Scene], Any]) -> None:
        FAULTS[name] = Fault(inject, **options)

    return register


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


def damaged(scene: Scene, versions: Callable[[bytes], Iterator[bytes]]) -> None:
    for data in versions(scene.path.read_bytes()):
        scene.path.write_bytes(data)
        scene.fit(scene.path)


WHOLE = {"before": CAPACITY, "over": True}
FAULTS |= {
    "every third bit of the file flipped, one at a time": Fault(
        partial(damaged, versions=flipped), "LedgerError|" + FULL, **WHOLE
    ),
    # The last page is of the releases, of which there are none: without it all charges are there.
    "cut at every 100 bytes": Fault(partial(damaged, versions=cut), "LedgerError|" + FULL, **WHOLE),
    "a page of zeros, each page in turn": Fault(
        partial(damaged, versions=zeroed), "LedgerError", **WHOLE
    ),
    "an empty file in its place": Fault(
        lambda scene: scene.path.write_bytes(b"") and None, "not a skdpot ledger"
    ),
    "text in its place": Fault(
        lambda scene: scene.path.write_text("charges: none\n" * 999) and None, "not a data"
    ),
}

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
FAULTS |= {
    name: Fault(
        lambda scene, statements=tuple(statements): scene.run_sql(*statements),
        TOLD.get(name, DAMAGED),
        seen=name in UNSEEN,
    )
    for name, statements in TAMPERING.items()
}


@fault("leftovers of other files beside it", goes_on=True)
def _leftovers(scene: Scene) -> None:
    for suffix in ("-wal", "-shm", "-journal"):
        scene.path.with_name(f"ledger{suffix}").write_bytes(b"\x37\x7f\x06\x82" + bytes(5000))


@fault("switched to a write-ahead log, and killed", goes_on=True)
def _write_ahead(scene: Scene) -> None:
    scene.run_sql("PRAGMA journal_mode = WAL")
    for _ in range(3):
        in_child(scene, kill_after=2)


# ------------------------------------------------------------------- other files


@fault("the temporary ledger deleted", told="cannot be reached", before=0, over=True)
def _temporary(scene: Scene) -> None:
    budget = PrivacyBudget(1.0)
    for _ in range(BEFORE):
        scene.fit(budget)
    shutil.rmtree(Path(budget.ledger).parent)
    scene.insist(budget)


@fault("another ledger in its place", told="now another ledger", seen=True)
def _another(scene: Scene) -> None:
    scene.path.unlink()
    PrivacyBudget(1.0, ledger=scene.path)


def linked(scene: Scene, link: Callable[[Path, Path], None], name: str) -> Path:
    link(scene.path, scene.directory / name)
    return scene.directory / name


DRAFT = ".ledger.abc12_9z"
FAULTS |= {
    "deleted": Fault(lambda scene: scene.path.unlink(), "cannot be reached", seen=True),
    "a symbolic link": Fault(partial(linked, link=os.symlink, name="link"), "not a regular file"),
    "a hard link": Fault(partial(linked, link=os.link, name="second"), "has a second name"),
    "the maker killed before it removed its draft": Fault(
        lambda scene: os.link(scene.path, scene.directory / DRAFT), goes_on=True
    ),
}


@fault("an older copy put back while the process runs", told=OLDER, before=2, seen=True)
def _older(scene: Scene) -> None:
    copy = shutil.copy(scene.path, scene.directory / "copy")
    for _ in range(4):
        scene.fit()
    os.replace(copy, scene.path)


@fault("a journal of an earlier charge put beside it", told=OLDER, before=2, seen=True)
def _old_journal(scene: Scene) -> None:
    journal = scene.directory / "ledger-journal"
    in_child(scene, file_limit=9000)  # killed amid the commit
    old = journal.read_bytes()
    for _ in range(4):
        scene.fit()
    journal.write_bytes(old)


@fault("two copies, both spent from by one process", told=OLDER, before=2, over=True)
def _two_copies(scene: Scene) -> None:
    copy = shutil.copy(scene.path, scene.directory / "copy")
    scene.insist(scene.budget, PrivacyBudget(1.0, ledger=copy))


@fault(
    "a copy that another machine has spent from put in its place",
    told=OLDER,
    seen=True,
    before=BEFORE - 2,  # two more follow
)
def _synchronised(scene: Scene) -> None:
    copy = Path(shutil.copy(scene.path, scene.directory / "copy"))
    scene.fit()
    seen = dict(ledger_module._SEEN)
    scene.fit(copy)  # as much, at the same time
    os.replace(copy, scene.path)
    forget()
    ledger_module._SEEN.update(seen)


@fault("opened with other terms", told="was made for", over=True)
def _other_terms(scene: Scene) -> None:
    for terms in ((2.0, 1e-5), (1.0, 1e-4), (math.inf, 1e-5)):
        scene.tried += 1
        try:
            PrivacyBudget(*terms, ledger=scene.path).spend(EVENT)
        except LedgerError as error:
            scene.error = f"{type(error).__name__}: {error}"
        else:
            scene.released += 1


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


def read_only(scene: Scene, mode: int, of_file: int) -> None:
    scene.directory.chmod(0o777)
    with ordinary_user():
        scene.directory /= "mine"
        scene.directory.mkdir()
        for _ in range(BEFORE):
            scene.fit()
        scene.path.chmod(of_file)
        scene.directory.chmod(mode)
        scene.spend_all()
        scene.directory.chmod(0o700)


ALONE = {"told": "must be writable", "before": 0, "over": True}
FAULTS["a read-only file"] = Fault(partial(read_only, mode=0o700, of_file=0o400), **ALONE)
FAULTS["a read-only directory"] = Fault(partial(read_only, mode=0o500, of_file=0o600), **ALONE)


class SmallDisk:
    """A disk of 256 kB that can be filled, and made read-only."""

    def __init__(self, place: Path) -> None:
        self.place = place
        self.filler = place / "filler"

    def fill(self, pages: int = 0) -> None:
        """Leave as many pages of space; a second call may leave more."""
        self.filler.unlink(missing_ok=True)
        with suppress(OSError), self.filler.open("wb", buffering=0) as file:
            while True:
                file.write(bytes(4096))
        with self.filler.open("r+b") as file:
            file.truncate(max(0, self.filler.stat().st_size - 4096 * pages))

    def set_writable(self, writable: bool) -> None:
        """Mount it anew."""
        options = f"remount,{'rw' if writable else 'ro'}"
        subprocess.run(["mount", "-o", options, str(self.place)], check=True)


@contextmanager
def small_disk(directory: Path) -> Iterator[SmallDisk | None]:
    """Mount a small disk in a directory; yield None where the system forbids it."""
    place = directory / "disk"
    place.mkdir()
    mount = ["mount", "-t", "tmpfs", "-o", "size=256k", "tmpfs", str(place)]
    if os.geteuid() != 0 or subprocess.run(mount, capture_output=True, check=False).returncode:
        yield None
        return
    try:
        yield SmallDisk(place)
    finally:
        subprocess.run(["umount", str(place)], check=True)


def on_a_small_disk(scene: Scene, work: Callable[[SmallDisk], None]) -> str:
    """Let a fault happen to a ledger on a small disk, and spend what is left after it."""
    with small_disk(scene.directory) as disk:
        if disk is None:
            return "not tried: a small disk can be mounted by root alone"
        above, scene.directory = scene.directory, disk.place
        scene.fit()
        work(disk)
        error = scene.error
        scene.spend_all(scene.path)
        scene.spent = scene.charges()
        scene.directory = above
        return error


@fault(
    "a full disk, at every amount of space left", told="disk is full|not tried", before=0, over=True
)
def _full(scene: Scene) -> str:
    def work(disk: SmallDisk) -> None:
        for pages in range(8):
            disk.fill(pages)
            scene.fit(scene.path)
        disk.filler.unlink()

    return on_a_small_disk(scene, work)


@fault("a read-only disk", told="its disk must be writable|not tried", before=0, over=True)
def _read_only_disk(scene: Scene) -> str:
    def work(disk: SmallDisk) -> None:
        disk.set_writable(False)
        scene.fit()
        scene.fit(scene.path)
        disk.set_writable(True)

    return on_a_small_disk(scene, work)


# --------------------------------------------------------------------- processes


class Killer(sqlite3.Connection):
    """A connection whose process dies at its k-th statement, or that many steps into one."""

    left = -1

    def execute(self, *args: object) -> sqlite3.Cursor:
        Killer.left -= 1
        if Killer.left == 0:
            os.kill(os.getpid(), signal.SIGKILL)
        if Killer.left == 1:  # amid the next statement
            self.set_progress_handler(lambda: os.kill(os.getpid(), signal.SIGKILL) or 1, 3)
        return super().execute(*args)


def forked(work: Callable[[], None]) -> int:
    """Do something in a child, which spends from budgets; return its number."""
    pid = os.fork()
    if pid == 0:
        try:
            work()
        except (LedgerError, BudgetExceededError):
            os._exit(3)
        except BaseException:
            os._exit(99)
        os._exit(0)
    return pid


def status_of(pid: int) -> int:
    """Wait for a child."""
    status = os.waitstatus_to_exitcode(os.waitpid(pid, 0)[1])
    if status == 99:
        raise RuntimeError("a child failed")
    return status


def in_child(
    scene: Scene,
    *,
    kill_after: int | None = None,
    file_limit: int | None = None,
    fatal: bool = True,
    name: str = "ledger",
) -> None:
    """Fit in a forked process that dies at a statement, or when a file grows past a limit.

    Past the limit the system kills it in the middle of a write, or, if not fatal, fails the write.
    """
    scene.tried += 1
    log = scene.log

    def work() -> None:
        if kill_after is not None:
            Killer.left = kill_after
            connect = sqlite3.connect
            sqlite3.connect = lambda *a, **k: connect(*a, factory=Killer, **k)
        budget = PrivacyBudget(1.0, ledger=scene.directory / name)
        _, most = limits = resource.getrlimit(resource.RLIMIT_FSIZE)
        if file_limit is not None:
            signal.signal(signal.SIGXFSZ, signal.SIG_DFL if fatal else signal.SIG_IGN)
            limits = (file_limit, most)
        resource.setrlimit(resource.RLIMIT_FSIZE, limits)
        budget.spend(EVENTS[scene.cap], label="child")
        resource.setrlimit(resource.RLIMIT_FSIZE, (most, most))
        os.write(log, b"x")

    status = status_of(forked(work))
    if status < 0:
        scene.error = f"the process was killed ({signal.Signals(-status).name})"
    elif status == 3:
        scene.error = "LedgerError: the disk must not be full"


def in_children(scene: Scene, limits: list[dict[str, Any]]) -> str | None:
    for limit in limits:
        in_child(scene, **limit)
    return None if limits[0].get("fatal", True) else scene.error


RACE = {"cap": MANY, "before": 1, "goes_on": True}
FAULTS |= {
    "a limit on the length of files, at every length": Fault(
        partial(
            in_children, limits=[{"file_limit": n, "fatal": False} for n in range(0, 16_000, 500)]
        ),
        "disk must not be full",
        **RACE,
    ),
    "killed at and amid every statement": Fault(
        partial(in_children, limits=[{"kill_after": n} for n in range(1, 45)]), **RACE
    ),
    "killed amid every write of a commit": Fault(
        partial(in_children, limits=[{"file_limit": n} for n in range(0, 16_000, 300)]), **RACE
    ),
}


@fault("killed at any moment", **RACE)
def _killed_any_time(scene: Scene) -> None:
    log = scene.log

    def work() -> None:
        while True:
            scene.budget.spend(EVENTS[MANY])
            os.write(log, b"x")

    for k in range(25):
        pid = forked(work)
        time.sleep(0.0002 * k)
        os.kill(pid, signal.SIGKILL)
        status_of(pid)
    # Each was killed on its way to one more.
    scene.tried += os.fstat(scene.log).st_size + 25


@fault("32 forked processes at once", **RACE | {"before": 0})
def _race(scene: Scene) -> None:
    blob = pickle.dumps(scene.budget)
    (ready, start), log = os.pipe(), scene.log

    def work(k: int) -> None:
        os.read(ready, 1)
        # Inherited, attached by path, or unpickled.
        path = scene.path
        mine = (scene.budget, PrivacyBudget(1.0, ledger=path), pickle.loads(blob))[k % 3]
        for _ in range(5):
            with suppress(BudgetExceededError):
                mine.spend(EVENTS[MANY])
                os.write(log, b"x")

    pids = [forked(partial(work, k)) for k in range(32)]
    os.write(start, bytes(32))
    for pid in pids:
        status_of(pid)
    scene.tried += 160


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


@fault("new processes and threads at once", goes_on=True, before=0)
def _spawned(scene: Scene) -> None:
    command = [sys.executable, "-c", SPAWNED, pickle.dumps(scene.budget).hex()]
    children = [
        subprocess.Popen(command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True)
        for _ in range(2)
    ]
    for child in children:
        child.stdout.readline()

    def work() -> None:
        for _ in range(4):
            with suppress(BudgetExceededError):
                scene.budget.spend(EVENT)
                os.write(scene.log, b"x")

    threads = [threading.Thread(target=work) for _ in range(4)]
    for thread in threads:
        thread.start()
    said = [child.communicate("\n")[0] for child in children]
    for thread in threads:
        thread.join()
    scene.tried += 32
    scene.released += sum(text.count("released") for text in said)


@fault("held by another process", told="Another process holds it", over=True)
def _held(scene: Scene) -> None:
    transaction = ledger_module.transaction
    # A reader lets the charge be written and the commit fail.
    for begin in ("BEGIN IMMEDIATE", "BEGIN EXCLUSIVE", "BEGIN"):
        with (
            patch.object(
                ledger_module, "transaction", lambda p, k, _=0, t="": transaction(p, k, 0.02, t)
            ),
            closing(sqlite3.connect(scene.path, isolation_level=None)) as holder,
        ):
            holder.execute(begin)
            holder.execute("SELECT * FROM charges").fetchone()
            scene.fit()
            if begin != "BEGIN":
                scene.fit(scene.path)
    scene.spent = scene.charges()


@fault("the clock goes back, and wild", goes_on=True, before=1, over=True)
def _clock(scene: Scene) -> None:
    times = [2e9, 1e9, 0.0, -1e9, 1.5e9, 4e9, 1e9, 5.0, 6.0, 7.0, 8.0, 9.0]
    with patch.object(ledger_module.time, "time", lambda: times.pop(0)):
        scene.spend_all(scene.budget)
    if list(scene.budget.history().index) != list(range(CAPACITY)):
        raise RuntimeError("the history is out of order")


def hard_link_hazard(directory: Path) -> tuple[int, int]:
    """Return charges before and after a crash under another name, if links were not refused."""
    scene = Scene("hazard", CAPACITY, directory)
    scene.fit()
    os.link(scene.path, directory / "second")
    with patch.object(ledger_module, "_check_is_file", lambda path: None):
        in_child(scene, file_limit=9000, name="second")
        scene.fit(scene.path)
        before = scene.charges()
        forget()
        # Finds the old journal, and plays it back.
        PrivacyBudget(1.0, ledger=directory / "second").remaining()
        return before, scene.charges()


def inject_all() -> tuple[tuple[int, int], list[dict[str, Any]]]:
    """Inject faults, each in a new directory; in memory, where disks need not be waited for."""
    memory = "/dev/shm" if os.access("/dev/shm", os.W_OK) else None
    found = []
    for name, one in FAULTS.items():
        forget()
        with tempfile.TemporaryDirectory(dir=memory) as directory:
            found.append(one.run(name, Path(directory)).outcome())
    with tempfile.TemporaryDirectory() as directory:
        return hard_link_hazard(Path(directory)), found


def main(target: str) -> None:
    """Write the table, or print outcomes as JSON for the tests."""
    hazard, outcomes = inject_all()
    if target == "-":
        sys.stdout.write(json.dumps([hazard, outcomes]))
        return
    with Path(target).open("w", newline="") as file:
        writer = csv.writer(file, lineterminator="\n")
        writer.writerow(["fault", "tried", "spent", "released", "lost", "told"])
        for one in outcomes:
            told = one["error"].replace("\n", " ")
            told = re.sub(r"'/(?:dev/shm|tmp)/[^']*/([^'/]+)'", r"'\1'", told)  # of the day
            told = told if len(told) < 110 else told[:107].rsplit(" ", 1)[0] + " ..."
            counts = [one["tried"], one["spent"], one["released"], one["spent"] - one["released"]]
            writer.writerow([one["fault"], *counts, told])


def told_by(module: str, *arguments: str) -> Any:
    """Run a module of faults in a process of its own, and return what it says."""
    done = subprocess.run(
        [sys.executable, "-m", f"tests.contract.{module}", *arguments],
        cwd=Path(__file__).parents[2],
        capture_output=True,
        text=True,
        timeout=500,
        check=False,
    )
    assert done.returncode == 0, done.stderr
    return json.loads(done.stdout)


if __name__ == "__main__":
    main(sys.argv[1] if len(sys.argv) > 1 else "-")
