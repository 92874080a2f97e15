"""The file that holds the charges of a budget, safe against races, crashes and damage.

A ledger is an SQLite file with one row of terms and one appended row per charge. It adds up two
integers and compares them with two caps. Each charge stores the totals after it, so the last row is
the state, and the rows can be checked against each other. Reading, comparing with the caps and
appending are one write transaction. A ledger that shows too few charges would let a budget
overspend, so every read checks for damage and older copies, and refuses sums that do not match.

Until a charged fit has ended, the file also keeps its releases (`skdpot.privacy.journal`).
"""

import hashlib
import json
import math
import os
import re
import secrets
import sqlite3
import stat
import time
from collections import Counter
from collections.abc import Callable, Iterator, Sequence
from contextlib import closing, contextmanager, suppress
from dataclasses import astuple, dataclass, field, replace
from pathlib import Path
from typing import Any, Literal

from skdpot._utils.files import draft_beside
from skdpot.exceptions import LedgerError, warn_of_privacy
from skdpot.privacy.events import Relation
from skdpot.privacy.units import Units

PATIENCE = 60.0  # seconds that a call waits for other processes
# Python converts up to 4300 digits; no sum of charges has close to 1000.
_UNITS = re.compile(r"inf|0|[1-9][0-9]{0,999}", re.ASCII)

_UNPAID = "Nothing was charged."
_PAID = "What was charged before stays charged."
_NOT_OURS = "The file is not an intact skdpot ledger and was left unchanged. Pass another path."
_MOUNTS = Path("/proc/self/mountinfo")  # on Linux
_LOCAL = {"tmpfs", "ramfs", "rootfs", "overlay", "zfs"}  # file systems of one machine, no device
_APPLICATION_ID = 0x736B6470  # "skdp" marks the file as a ledger of this package
_VERSION = 1
# Units are stored as decimal text, because SQLite integers end at 2^63 and have no infinity.
_SCHEMA = f"""
CREATE TABLE terms (
    uid TEXT NOT NULL, epsilon REAL NOT NULL, delta REAL NOT NULL, relation TEXT NOT NULL,
    mu_squared_cap TEXT NOT NULL, leak_cap TEXT NOT NULL, planned TEXT NOT NULL
);
CREATE TABLE charges (
    number INTEGER PRIMARY KEY, time REAL NOT NULL, label TEXT NOT NULL, event TEXT NOT NULL,
    epsilon REAL NOT NULL, mu_squared TEXT NOT NULL, leak TEXT NOT NULL,
    mu_squared_total TEXT NOT NULL, leak_total TEXT NOT NULL
);
CREATE TABLE releases (
    charge INTEGER NOT NULL, place INTEGER NOT NULL, data BLOB NOT NULL,
    PRIMARY KEY (charge, place)
) WITHOUT ROWID;
PRAGMA application_id = {_APPLICATION_ID};
PRAGMA user_version = {_VERSION};
"""
_STATEMENTS = tuple(part.strip() for part in _SCHEMA.split(";") if part.strip())
_TABLES = tuple(statement for statement in _STATEMENTS if statement.startswith("CREATE TABLE"))
_LATEST, _EARLIEST = 253_402_300_800.0, -62_135_596_800.0  # the years 1 to 9999
_NEARLY = 1e-5  # an event that is cheaper by a larger relative difference is not the planned one
_CAP_ROUNDING = 10**6  # versions of this package may round caps differently, by one part in 10^6
# The largest totals that this process has seen, by uid: the totals of a ledger never fall.
_SEEN: dict[str, "Totals"] = {}
_PLANNED: tuple[Callable[[Any], Any], ...] = (float, float, str, float, float, int, str)
_KEEP = "INSERT INTO releases VALUES (?, ?, ?)"


class TakenError(LedgerError):
    """Another process has already made this release."""


def create_file(path: Path, fill: Callable[[str], None]) -> None:
    """Make a file that is complete when it appears, and readable by its owner only.

    It is filled under a draft name in the same directory, so a crash leaves no incomplete file, and
    no process can attach to one.
    """
    try:
        with draft_beside(path) as draft:
            fill(str(draft))
            _publish(draft, path)
    except FileExistsError:
        raise
    except OSError as error:
        raise LedgerError(
            f"The ledger {str(path)!r} cannot be created ({error.strerror}). Its directory must "
            "exist, be writable and have space left: SQLite keeps a journal beside the ledger."
        ) from error


def _publish(draft: Path, path: Path) -> None:
    """Rename the finished draft, or fail if a file with the name exists."""
    try:
        os.link(draft, path)
    except FileExistsError:
        raise
    except OSError:
        # The file system has no hard links: reserve the name, then replace the reservation.
        os.close(os.open(path, os.O_CREAT | os.O_EXCL | os.O_WRONLY, 0o600))
        os.replace(draft, path)
    with suppress(OSError):  # some systems cannot sync a directory
        directory = os.open(path.parent, os.O_RDONLY)
        try:
            os.fsync(directory)
        finally:
            os.close(directory)


@contextmanager
def transaction(
    path: str,
    kind: Literal["DEFERRED", "IMMEDIATE"],
    patience: float = PATIENCE,
    then: str = _UNPAID,
) -> Iterator[sqlite3.Connection]:
    """Open an existing file for one transaction, which is rolled back on any exception.

    `then` tells the caller what a failure means if the file is certainly unchanged.

    Each call makes a new connection, which separates forked and threaded callers. Only SQLite opens
    the file: closing it elsewhere would drop the locks of the other threads of this process.
    """
    _check_is_file(path)
    address = f"{Path(path).as_uri()}?mode=rw"  # "rw" does not create a missing file
    try:
        with closing(
            sqlite3.connect(address, uri=True, timeout=patience, isolation_level=None)
        ) as connection:
            # EXTRA is FULL and also syncs the directory after the SQLite journal is deleted. With
            # FULL, a power cut could restore the journal and undo a charge after its release.
            connection.execute("PRAGMA synchronous = EXTRA")
            connection.execute(f"BEGIN {kind}")
            yield connection
            connection.execute("COMMIT")
    except sqlite3.Error as error:
        raise LedgerError(_explain(path, error, then)) from error
    except UnicodeDecodeError as error:  # SQLite quotes damaged bytes in its messages
        raise LedgerError(f"The ledger {path!r} is damaged. {_NOT_OURS}") from error


def _check_is_file(path: str) -> None:
    """Refuse a file that is missing, is not a regular file or has a second name, with advice."""
    try:
        status = os.lstat(path)
        if stat.S_ISREG(status.st_mode) and status.st_nlink > 1:
            _drop_drafts(Path(path), status)
            status = os.lstat(path)
    except OSError as error:
        raise LedgerError(
            f"The ledger {path!r} cannot be reached ({error.strerror}). Put the file back if it "
            "was moved. A budget made without `ledger=` ends with the process that made it: make a "
            "new PrivacyBudget, and count what was already released yourself."
        ) from error
    if not stat.S_ISREG(status.st_mode):
        raise LedgerError(
            f"{path!r} is not a regular file and was left unchanged. Pass the path of the ledger "
            "itself, not a directory or a symbolic link."
        )
    if status.st_nlink > 1:
        # SQLite finds the journal of a crashed process by the name of the file, so it misses the
        # journal under the other name. If it finds it later, it undoes all charges since then.
        raise LedgerError(
            f"The ledger {path!r} has a second name (a hard link), so a crash could undo "
            "charges. Remove the other name with `rm`; to keep a copy, copy the file."
        )


def _drop_drafts(path: Path, status: os.stat_result) -> None:
    """Remove the draft names of a file, which remain if its maker was killed."""
    pattern = re.compile(rf"\.{re.escape(path.name)}\.[a-z0-9_]{{8}}")  # of tempfile.mkstemp
    for draft in path.parent.iterdir():
        with suppress(OSError):
            if pattern.fullmatch(draft.name) and os.path.samestat(os.lstat(draft), status):
                draft.unlink()


def _explain(path: str, error: sqlite3.Error, then: str) -> str:
    """Explain an SQLite error and what the caller can do."""
    name = getattr(error, "sqlite_errorname", "")
    advice = "The file and its directory must be writable, and the disk must not be full."
    if name.startswith(("SQLITE_BUSY", "SQLITE_LOCKED")):
        advice = f"{then} Another process holds it, or its drive cannot lock files. Try again."
    elif name.startswith("SQLITE_FULL"):
        advice = f"{then} Free some space on this disk, and try again."
    elif name.startswith("SQLITE_READONLY"):
        advice = f"{then} The file, its directory and its disk must be writable."
    elif name.endswith("LOCK"):
        advice = f"{then} This drive cannot lock files: move the ledger to a local disk."
    elif name.startswith(("SQLITE_NOTADB", "SQLITE_CORRUPT")):
        advice = _NOT_OURS
    return f"The ledger {path!r} cannot be used ({error}). {advice}"


def warn_of_drive(path: str | os.PathLike[str]) -> None:
    """Warn if other machines may use a ledger without seeing the locks of this one."""
    place = os.path.realpath(os.path.expanduser(path))
    if kind := _shared_drive(place):
        warn_of_privacy(
            f"The ledger {place!r} is on a drive that other machines may share ({kind}). Where "
            "these do not see each other's locks, charges that are made at the same time replace "
            "each other, and too much is spent. Keep the ledger on a local disk, or spend from "
            "one machine at a time."
        )


def _shared_drive(place: str) -> str:
    """Return the kind of a shared drive that holds a real path, or an empty text if it is local.

    A file system is local if it is on a device of this machine or in its memory.
    """
    if place.startswith("\\\\"):
        return "a network path"
    try:
        lines = os.fsdecode(_MOUNTS.read_bytes()).splitlines()
    except OSError:
        return ""
    kind, longest = "", 0
    for line in lines:
        before, _, after = line.partition(" - ")
        root = re.sub(r"\\([0-7]{3})", lambda octal: chr(int(octal[1], 8)), before.split()[4])
        if len(root) >= longest and f"{place}/".startswith(f"{root.rstrip('/')}/"):
            file_system, source = after.split()[:2]  # the later of two mounts in one place is used
            is_local = source.startswith("/dev/") or file_system in _LOCAL
            kind, longest = "" if is_local else file_system, len(root)
    return kind


def _whole_units(texts: Sequence[object], path: str) -> list[Units]:
    """Return the units that a row stores as text, or raise LedgerError for other texts."""
    if not all(isinstance(text, str) and _UNITS.fullmatch(text) for text in texts):
        raise damaged(path)
    return [math.inf if text == "inf" else int(str(text)) for text in texts]


def damaged(path: str) -> LedgerError:
    """Return the error for a file with wrong contents."""
    return LedgerError(
        f"The ledger {path!r} is damaged: its charges cannot be reconstructed, and no more are "
        "accepted. Restore a copy only if nothing was charged after it was made; otherwise count "
        "past releases yourself and start a new ledger for what is left."
    )


@dataclass(frozen=True)
class PlannedFit:
    """An event that was fixed when the ledger was made, and is paid for by lower caps."""

    epsilon: float
    delta: float
    event: str
    mu: float
    leak: float
    n_steps: int
    others: str

    @property
    def checksum(self) -> str:
        """A checksum for the file, where a larger reserve would make costlier events free."""
        return hashlib.sha256(repr(astuple(self)).encode()).hexdigest()

    def covers(self, mu: float, leak: float, n_steps: int, others: str) -> bool:
        """Whether an event with this account costs as much as is reserved, or slightly less."""
        closed = (1.0 - _NEARLY) * self.mu <= mu and mu <= self.mu and leak <= self.leak
        return closed and n_steps <= self.n_steps and others == self.others


@dataclass(frozen=True)
class Terms:
    """The terms of a ledger: written once, never changed."""

    epsilon: float
    delta: float
    relation: Relation
    mu_squared_cap: Units
    leak_cap: Units
    planned: tuple[PlannedFit, ...] = ()
    uid: str = field(default_factory=lambda: secrets.token_hex(16))

    def __str__(self) -> str:
        """Return the arguments of the budget."""
        text = f"epsilon={self.epsilon!r}, delta={self.delta!r}, relation={str(self.relation)!r}"
        return f"{text}, planned=[{', '.join(p.event for p in self.planned)}]"

    def covers(self, stored: "Terms") -> bool:
        """Whether the caps of `stored` are at most these, up to rounding: nobody raised them."""
        most, whole = _CAP_ROUNDING + 1, _CAP_ROUNDING  # exact for integers of any size
        caps = (stored.mu_squared_cap, self.mu_squared_cap), (stored.leak_cap, self.leak_cap)
        return all(cap * whole <= limit * most for cap, limit in caps)

    def admit(self, totals: "Totals") -> bool:
        """Whether `totals` stay within both caps and no planned fit is made twice."""
        within = (
            totals.mu_squared_units <= self.mu_squared_cap and totals.leak_units <= self.leak_cap
        )
        made = Counter(totals.planned)
        return within and made <= Counter(planned.event for planned in self.planned)


@dataclass(frozen=True)
class Charge:
    """One event in the ledger: its cost, and texts for the history."""

    label: str
    event: str
    epsilon: float
    mu_squared_units: Units
    leak_units: Units
    number: int = field(default=0, compare=False)
    time: float = field(default=0.0, compare=False)

    @property
    def is_planned(self) -> bool:
        """Whether it was paid for when the ledger was made; others cost at least one unit."""
        return self.mu_squared_units == self.leak_units == 0


@dataclass(frozen=True)
class Totals:
    """The sums over all admitted charges."""

    n_charges: int = 0
    mu_squared_units: Units = 0
    leak_units: Units = 0
    planned: tuple[str, ...] = ()  # the events of the planned fits made so far
    last: tuple[float, str, str] | None = field(default=None, compare=False)  # time, label, event

    @property
    def sums(self) -> tuple[Units, ...]:
        """The totals that are stored with each charge."""
        return self.n_charges, self.mu_squared_units, self.leak_units

    def after(self, charge: Charge) -> "Totals":
        """Return the totals with one more charge."""
        return Totals(
            self.n_charges + 1,
            self.mu_squared_units + charge.mu_squared_units,
            self.leak_units + charge.leak_units,
            (*self.planned, charge.event) if charge.is_planned else self.planned,
            (charge.time, charge.label, charge.event),
        )


@dataclass(frozen=True)
class Ledger:
    """A ledger at a path. No connection stays open, so it is cheap to make, copy and pickle."""

    path: str
    terms: Terms

    @classmethod
    def create(cls, path: str | os.PathLike[str], terms: Terms) -> "Ledger":
        """Make a new ledger; an existing file or symbolic link at `path` is left unchanged."""
        target = Path(path).expanduser().absolute()
        create_file(target, lambda draft: _write_terms(draft, terms))
        return cls(str(target), terms)

    @classmethod
    def attach(cls, path: str | os.PathLike[str], terms: Terms) -> "Ledger":
        """Open the ledger that exists at `path`."""
        target = str(Path(path).expanduser().absolute())
        with transaction(target, "DEFERRED") as connection:
            stored = read_terms(connection, target)
            _read_charges(connection, target, Totals())
        if str(stored) != str(terms):
            raise LedgerError(
                f"The ledger {target!r} was made for {stored}, but {terms} was asked for. "
                "Pass the ledger's own values, or the path of another ledger."
            )
        if not terms.covers(stored):
            raise damaged(target)
        return cls(target, stored)

    def admit(self, *charges: Charge, plan: bytes | None = None) -> int:
        """Append the first of `charges` that the terms allow and return its number, or 0.

        When this returns, an admitted charge is on the disk; a refused one has changed nothing. A
        charge with a `plan` is open: releases can be kept until it is closed.
        """
        with self._open("IMMEDIATE") as (connection, before):
            dated = (replace(charge, time=time.time()) for charge in charges)
            allowed = (charge for charge in dated if self.terms.admit(before.after(charge)))
            charge = next(allowed, None)
            if charge is None:
                return 0
            after = before.after(charge)
            _append(connection, charge, after)
            if _read_charges(connection, self.path, before)[1] != after:
                raise damaged(self.path)
            if plan is not None:
                connection.execute(_KEEP, (after.n_charges, 0, plan))
        self._remember(after)
        return after.n_charges

    def open_charges(self, patience: float = PATIENCE) -> list[int]:
        """Return the numbers of the charges whose releases are kept."""
        with self._open("DEFERRED", patience) as (connection, _):
            return [n for (n,) in connection.execute("SELECT DISTINCT charge FROM releases")]

    def kept(self, number: int) -> list[bytes]:
        """Return the plan and the ordered releases of an open charge, or an empty list."""
        with self._open("DEFERRED") as (connection, _):
            query = "SELECT place, CAST(data AS BLOB) FROM releases WHERE charge = ? ORDER BY place"
            rows = connection.execute(query, (number,)).fetchall()
        if [place for place, _ in rows] != list(range(len(rows))):
            raise damaged(self.path)
        return [data for _, data in rows]

    def keep(self, number: int, place: int, data: bytes) -> None:
        """Keep one more release of an open charge, which is on the disk when this returns.

        If two processes resume the same fit, only one can keep a release in this place.
        """
        with self._open("IMMEDIATE", then=_PAID) as (connection, _):
            self._check_last(connection, number, place - 1)
            connection.execute(_KEEP, (number, place, data))

    def close(self, number: int, last: int | None = None) -> None:
        """Delete the releases of a charge; with `last`, only if no other attempt has added any."""
        with self._open("IMMEDIATE", then=_PAID) as (connection, _):
            if last is not None:
                self._check_last(connection, number, last)
            connection.execute("DELETE FROM releases WHERE charge = ?", (number,))

    def _check_last(self, connection: sqlite3.Connection, number: int, last: int) -> None:
        """Raise an error if the last kept release is not in the place `last`."""
        query = "SELECT max(place) FROM releases WHERE charge = ?"
        if connection.execute(query, (number,)).fetchone() != (last,):
            raise TakenError(
                f"Another process goes on with this fit of the ledger {self.path!r}, or has ended "
                "it. Nothing was charged, and the release that was due is discarded."
            )

    def totals(self, patience: float = PATIENCE) -> Totals:
        """Return the sums over all charges, waiting at most `patience` seconds."""
        with self._open("DEFERRED", patience) as (_, totals):
            return totals

    def records(self, patience: float = PATIENCE) -> list[Charge]:
        """Return all charges, the oldest first, waiting at most `patience` seconds."""
        with self._open("DEFERRED", patience) as (connection, _):
            return _read_charges(connection, self.path, Totals())[0]

    def forget(self) -> None:
        """Forget the totals of a ledger whose file has been removed."""
        _SEEN.pop(self.terms.uid, None)

    def _remember(self, totals: "Totals") -> None:
        if totals.n_charges > _SEEN.get(self.terms.uid, Totals()).n_charges:
            _SEEN[self.terms.uid] = totals

    @contextmanager
    def _open(
        self,
        kind: Literal["DEFERRED", "IMMEDIATE"],
        patience: float = PATIENCE,
        then: str = _UNPAID,
    ) -> Iterator[tuple[sqlite3.Connection, "Totals"]]:
        """Begin a transaction on the file with these terms, and remember its totals afterwards."""
        seen = _SEEN.get(self.terms.uid, Totals())  # the file must hold at least these charges
        with transaction(self.path, kind, patience, then) as connection:
            if read_terms(connection, self.path) != self.terms:
                raise LedgerError(
                    f"The file {self.path!r} is now another ledger than the one of this budget. "
                    "Put the original file back; a budget cannot go on in another ledger."
                )
            totals = _read_charges(connection, self.path, seen)[1]
            yield connection, totals
        self._remember(totals)


def _write_terms(path: str, terms: Terms) -> None:
    """Fill the empty file at `path`."""
    with transaction(path, "IMMEDIATE") as connection:
        for statement in _STATEMENTS:
            connection.execute(statement)
        connection.execute(
            "INSERT INTO terms VALUES (?, ?, ?, ?, ?, ?, ?)",
            (
                terms.uid,
                terms.epsilon,
                terms.delta,
                str(terms.relation),
                str(terms.mu_squared_cap),
                str(terms.leak_cap),
                json.dumps([[*astuple(fit), fit.checksum] for fit in terms.planned]),
            ),
        )


def read_terms(connection: sqlite3.Connection, path: str) -> Terms:
    """Return the terms of an open file, or raise LedgerError if it is not an intact ledger."""
    mark = connection.execute("PRAGMA application_id").fetchone()[0]
    version = connection.execute("PRAGMA user_version").fetchone()[0]
    if mark != _APPLICATION_ID:
        raise LedgerError(
            f"{path!r} is not a skdpot ledger and was left unchanged. Pass another path."
        )
    if version != _VERSION:
        raise LedgerError(
            f"The ledger {path!r} has format {version}, this version of skdpot reads format "
            f"{_VERSION}. Use the version of skdpot that made it."
        )
    # One flipped bit in the header of a page can hide all its rows without an error. SQLite's quick
    # check finds this, in about the time of reading the rows. A trigger or a view could make
    # queries return other values than were written. The statistics of ANALYZE change only the speed
    # of queries.
    query = "SELECT sql FROM sqlite_master WHERE name NOT GLOB 'sqlite_stat[1-4]'"
    layout = {sql for (sql,) in connection.execute(query)}
    checked = connection.execute("PRAGMA quick_check(1)").fetchone()
    if layout != set(_TABLES) or checked != ("ok",):
        raise damaged(path)
    rows = connection.execute(
        "SELECT epsilon, delta, relation, mu_squared_cap, leak_cap, planned, uid FROM terms"
    ).fetchall()
    try:
        [(epsilon, delta, relation, mu_squared, leak, plan, uid)] = rows
        mu_squared_cap, leak_cap = _whole_units((mu_squared, leak), path)
        stored_fits = json.loads(plan)
        planned = tuple(
            PlannedFit(*(kind(value) for kind, value in zip(_PLANNED, fit, strict=True)))
            for *fit, _ in stored_fits
        )
        if [fit.checksum for fit in planned] != [fit[-1] for fit in stored_fits]:
            raise ValueError("a plan that was changed")
        return Terms(epsilon, delta, Relation(relation), mu_squared_cap, leak_cap, planned, uid)
    except (TypeError, ValueError) as error:
        raise damaged(path) from error


def _read_charges(
    connection: sqlite3.Connection, path: str, seen: Totals
) -> tuple[list[Charge], Totals]:
    """Return the charges after the seen totals, which must still be there, and the new totals."""
    rows = connection.execute(
        "SELECT number, time, label, event, epsilon, mu_squared, leak, mu_squared_total, leak_total"
        " FROM charges WHERE number >= ? ORDER BY number",
        (seen.n_charges or -(2**63),),
    ).fetchall()
    if seen.n_charges:
        # Another charge, made on a copy or without our lock, may have the same sums.
        number, *last, _, _, _, first, second = rows.pop(0) if rows else [None] * 9
        kept = () if number is None else (number, *_whole_units((first, second), path))
        if (kept, tuple(last)) != (seen.sums, seen.last):
            raise LedgerError(
                f"The ledger {path!r} lacks charges that it had a moment ago: it is an older copy, "
                "or one of two copies that were both spent from. Put the latest file back; nothing "
                "was charged."
            )
    charges, totals = [], seen
    for number, when, label, event, epsilon, *units in rows:
        mu_squared, leak, *sums = _whole_units(units, path)
        charges.append(Charge(label, event, epsilon, mu_squared, leak, number, when))
        totals = totals.after(charges[-1])
        kinds = [type(value) for value in (label, event, when, epsilon)]
        is_valid = kinds == [str, str, float, float] and _EARLIEST <= when <= _LATEST
        if not is_valid or (number, *sums) != totals.sums:
            raise damaged(path)
    return charges, totals


def _append(connection: sqlite3.Connection, charge: Charge, after: Totals) -> None:
    """Insert a charge with the totals after it."""
    totals = after.mu_squared_units, after.leak_units
    units = map(str, (charge.mu_squared_units, charge.leak_units, *totals))
    connection.execute(
        "INSERT INTO charges VALUES (?, ?, ?, ?, ?, ?, ?, ?, ?)",
        (after.n_charges, charge.time, charge.label, charge.event, charge.epsilon, *units),
    )
