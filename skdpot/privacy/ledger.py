"""The file that remembers what a budget has been charged, safe against races and crashes.

An append-only SQLite file with one row of terms and one row a charge. Each charge carries the
totals after it, so that the last row is the state and every row vouches for the others. Reading
and checking them, comparing with the caps and appending happen inside one write transaction. The
file knows nothing of accounting: it adds up two integers and compares them with two caps.
"""

import os
import secrets
import sqlite3
import time
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from pathlib import Path
from typing import Literal

from skdpot.exceptions import LedgerError
from skdpot.privacy.ledger_check import check_intact, damaged, older_copy, whole_units
from skdpot.privacy.ledger_file import PATIENCE, create_file, transaction
from skdpot.privacy.relation import Relation
from skdpot.privacy.units import Units

__all__ = ["Charge", "Decision", "Ledger", "Record", "Terms", "Totals", "read_terms"]

_APPLICATION_ID = 0x736B6470  # "skdp": marks the file as one of ours
_VERSION = 1

# Units are decimal text, because an SQLite integer ends at 2^63 and knows no infinity.
_SCHEMA = f"""
CREATE TABLE terms (
    uid TEXT NOT NULL, epsilon REAL NOT NULL, delta REAL NOT NULL, relation TEXT NOT NULL,
    mu_squared_cap TEXT NOT NULL, leak_cap TEXT NOT NULL
);
CREATE TABLE charges (
    number INTEGER PRIMARY KEY, time REAL NOT NULL, label TEXT NOT NULL, event TEXT NOT NULL,
    epsilon REAL NOT NULL, mu_squared TEXT NOT NULL, leak TEXT NOT NULL,
    mu_squared_total TEXT NOT NULL, leak_total TEXT NOT NULL
);
PRAGMA application_id = {_APPLICATION_ID};
PRAGMA user_version = {_VERSION};
"""
_STATEMENTS = tuple(part.strip() for part in _SCHEMA.split(";") if part.strip())
_TABLES = tuple(statement for statement in _STATEMENTS if statement.startswith("CREATE TABLE"))

_LATEST, _EARLIEST = 253_402_300_800.0, -62_135_596_800.0  # the years 1 to 9999
_CAP_ROUNDING = 10**6  # releases of this package may round caps differently, by one part in it

# By uid, the largest totals that this process has seen: a ledger never goes back.
_SEEN: dict[str, "Totals"] = {}


@dataclass(frozen=True)
class Terms:
    """What a ledger was made for; written once, never changed.

    Parameters
    ----------
    epsilon, delta : float
        The guarantee that the caps stand for.
    relation : Relation
        The neighbouring relation of every charge.
    mu_squared_cap, leak_cap : int or float
        The sums that charges must not exceed, in ledger units, or ``math.inf``.
    uid : str, optional
        Tells this ledger from any other that may one day lie at the same path.
    """

    epsilon: float
    delta: float
    relation: Relation
    mu_squared_cap: Units
    leak_cap: Units
    uid: str = field(default_factory=lambda: secrets.token_hex(16))

    def __str__(self) -> str:
        """Return the arguments that a caller chose."""
        return f"epsilon={self.epsilon!r}, delta={self.delta!r}, relation={str(self.relation)!r}"

    def covers(self, stored: "Terms") -> bool:
        """Whether the caps of `stored` are no larger than these: nobody has raised them."""
        most, due = _CAP_ROUNDING + 1, _CAP_ROUNDING  # whole numbers, which may be huge
        return stored.mu_squared_cap * due <= self.mu_squared_cap * most and (
            stored.leak_cap * due <= self.leak_cap * most
        )

    def admit(self, totals: "Totals") -> bool:
        """Whether `totals` stay within both caps."""
        return totals.mu_squared_units <= self.mu_squared_cap and totals.leak_units <= self.leak_cap


@dataclass(frozen=True)
class Charge:
    """One event as the ledger sees it: its cost, and text for the history."""

    label: str
    event: str
    epsilon: float
    mu_squared_units: Units
    leak_units: Units


@dataclass(frozen=True)
class Record:
    """A charge that was admitted, with its number and its time in seconds since 1970."""

    number: int
    time: float
    charge: Charge


@dataclass(frozen=True)
class Totals:
    """The sums over all admitted charges."""

    n_charges: int = 0
    mu_squared_units: Units = 0
    leak_units: Units = 0

    def after(self, charge: Charge) -> "Totals":
        """Return the totals with one more charge."""
        return Totals(
            self.n_charges + 1,
            self.mu_squared_units + charge.mu_squared_units,
            self.leak_units + charge.leak_units,
        )


@dataclass(frozen=True)
class Decision:
    """Whether a charge was admitted, and the totals that it was compared with."""

    admitted: bool
    before: Totals


@dataclass(frozen=True)
class Ledger:
    """A ledger at a path; cheap to make, copy and pickle, since no connection stays open.

    Parameters
    ----------
    path : str
        Absolute path of the file.
    terms : Terms
        What the file must hold; every call compares.
    """

    path: str
    terms: Terms

    @classmethod
    def create(cls, path: str | os.PathLike[str], terms: Terms) -> "Ledger":
        """Make a new ledger; whatever exists at `path`, a symbolic link too, is left alone.

        Parameters
        ----------
        path : str or path-like
            Where the file shall be.
        terms : Terms
            What it is for.

        Returns
        -------
        Ledger
            The new, empty ledger.

        Raises
        ------
        FileExistsError
            If there is something at `path`.
        LedgerError
            If the file cannot be written.
        """
        target = Path(path).expanduser().absolute()
        create_file(target, lambda draft: _write_terms(draft, terms))
        return cls(str(target), terms)

    @classmethod
    def attach(cls, path: str | os.PathLike[str], terms: Terms) -> "Ledger":
        """Open the ledger that exists at `path`.

        Parameters
        ----------
        path : str or path-like
            Where the file is.
        terms : Terms
            What the caller wants; the uid and the caps are taken from the file.

        Returns
        -------
        Ledger
            The ledger with the charges that it holds.

        Raises
        ------
        LedgerError
            If there is no ledger, one with another epsilon, delta or relation, or a damaged one.
        """
        target = str(Path(path).expanduser().absolute())
        with transaction(target, "DEFERRED") as connection:
            stored = read_terms(connection, target)
            _read_totals(connection, target, Totals())
        if str(stored) != str(terms):
            raise LedgerError(
                f"The ledger {target!r} was made for {stored}, but {terms} was asked for. "
                "Pass the ledger's own values, or the path of another ledger."
            )
        if not terms.covers(stored):
            raise damaged(target)
        return cls(target, stored)

    def admit(self, charge: Charge) -> Decision:
        """Append `charge` if the caps allow it; otherwise change nothing.

        When this returns, an admitted charge has reached the disk.

        Parameters
        ----------
        charge : Charge
            What is asked for.

        Returns
        -------
        Decision
            Whether it was admitted.

        Raises
        ------
        LedgerError
            If the file is missing, another one, damaged, or busy for a minute; nothing was
            charged.
        """
        seen = self._seen()
        with self._open("IMMEDIATE") as connection:
            before = _read_totals(connection, self.path, seen)
            after = before.after(charge)
            admitted = self.terms.admit(after)
            if admitted:
                _append(connection, charge, after)
                if _read_totals(connection, self.path, before) != after:
                    raise damaged(self.path)
        self._remember(after if admitted else before)
        return Decision(admitted, before)

    def totals(self, patience: float = PATIENCE) -> Totals:
        """Return the sums over all charges, waiting at most `patience` seconds.

        Raises
        ------
        LedgerError
            If the file is missing, another one, damaged, or busy.
        """
        seen = self._seen()
        with self._open("DEFERRED", patience) as connection:
            totals = _read_totals(connection, self.path, seen)
        self._remember(totals)
        return totals

    def records(self, patience: float = PATIENCE) -> list[Record]:
        """Return all charges, the oldest first, waiting at most `patience` seconds.

        Raises
        ------
        LedgerError
            If the file is missing, another one, damaged, or busy.
        """
        seen = self._seen()
        with self._open("DEFERRED", patience) as connection:
            totals = _read_totals(connection, self.path, seen)
            rows = connection.execute(
                "SELECT number, time, label, event, epsilon, mu_squared, leak"
                " FROM charges ORDER BY number"
            ).fetchall()
        self._remember(totals)
        return [_record(row, self.path) for row in rows]

    def forget(self) -> None:
        """Keep nothing of a ledger whose file has been removed for good."""
        _SEEN.pop(self.terms.uid, None)

    def _seen(self) -> "Totals":
        """Return what the file must hold at least; to be asked before a transaction begins."""
        return _SEEN.get(self.terms.uid, Totals())

    def _remember(self, totals: "Totals") -> None:
        if totals.n_charges > self._seen().n_charges:
            _SEEN[self.terms.uid] = totals

    @contextmanager
    def _open(
        self, kind: Literal["DEFERRED", "IMMEDIATE"], patience: float = PATIENCE
    ) -> Iterator[sqlite3.Connection]:
        """Begin a transaction and make sure that the file is the one that was meant."""
        with transaction(self.path, kind, patience) as connection:
            if read_terms(connection, self.path) != self.terms:
                raise LedgerError(
                    f"The file {self.path!r} is now another ledger than the one of this budget. "
                    "Put the original file back; a budget cannot go on in another ledger."
                )
            yield connection


def _write_terms(path: str, terms: Terms) -> None:
    """Fill the empty file at `path`."""
    with transaction(path, "IMMEDIATE") as connection:
        for statement in _STATEMENTS:
            connection.execute(statement)
        connection.execute(
            "INSERT INTO terms VALUES (?, ?, ?, ?, ?, ?)",
            (
                terms.uid,
                terms.epsilon,
                terms.delta,
                str(terms.relation),
                str(terms.mu_squared_cap),
                str(terms.leak_cap),
            ),
        )


def read_terms(connection: sqlite3.Connection, path: str) -> Terms:
    """Return the terms of an open file that says it is a ledger."""
    mark = connection.execute("PRAGMA application_id").fetchone()[0]
    version = connection.execute("PRAGMA user_version").fetchone()[0]
    if mark != _APPLICATION_ID:
        raise LedgerError(f"{path!r} is no skdpot ledger; it was left as it is. Pass another path.")
    if version != _VERSION:
        raise LedgerError(
            f"The ledger {path!r} has format {version}, this version of skdpot reads format "
            f"{_VERSION}. Use the version of skdpot that made it."
        )
    check_intact(connection, path, _TABLES)
    rows = connection.execute(
        "SELECT epsilon, delta, relation, mu_squared_cap, leak_cap, uid FROM terms"
    ).fetchall()
    try:
        [(epsilon, delta, relation, mu_squared_cap, leak_cap, uid)] = rows
        caps = whole_units((mu_squared_cap, leak_cap), path)
        return Terms(epsilon, delta, Relation(relation), caps[0], caps[1], uid)
    except (TypeError, ValueError) as error:
        raise damaged(path) from error


def _read_totals(connection: sqlite3.Connection, path: str, seen: Totals) -> Totals:
    """Add up the charges after the totals that were seen, which must still be there."""
    rows = connection.execute(
        "SELECT number, mu_squared, leak, mu_squared_total, leak_total FROM charges"
        " WHERE number >= ? ORDER BY number",
        (seen.n_charges or -(2**63),),
    ).fetchall()
    totals = seen
    if seen.n_charges and (not rows or _totals_in(rows.pop(0), path) != seen):
        raise older_copy(path)
    for row in rows:
        mu_squared, leak = whole_units(row[1:3], path)
        totals = totals.after(Charge("", "", 0.0, mu_squared, leak))
        if _totals_in(row, path) != totals:
            raise damaged(path)
    return totals


def _totals_in(row: tuple[int, str, str, str, str], path: str) -> Totals:
    """Return the totals that one row carries."""
    return Totals(row[0], *whole_units(row[3:], path))


def _record(row: tuple[int, float, str, str, float, str, str], path: str) -> Record:
    """Return one row of the history."""
    number, when, label, event, epsilon, *units = row
    texts = isinstance(label, str) and isinstance(event, str)
    numbers = isinstance(when, float) and isinstance(epsilon, float)
    if not (texts and numbers and _EARLIEST <= when <= _LATEST):
        raise damaged(path)
    return Record(number, when, Charge(label, event, epsilon, *whole_units(units, path)))


def _append(connection: sqlite3.Connection, charge: Charge, after: Totals) -> None:
    connection.execute(
        "INSERT INTO charges VALUES (?, ?, ?, ?, ?, ?, ?, ?, ?)",
        (
            after.n_charges,
            time.time(),
            charge.label,
            charge.event,
            charge.epsilon,
            str(charge.mu_squared_units),
            str(charge.leak_units),
            str(after.mu_squared_units),
            str(after.leak_units),
        ),
    )
