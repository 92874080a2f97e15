"""Whether a ledger's file is still what it was: no bit lost, no row gone, no older copy.

A ledger that reads as if less had been charged than was would let a budget overspend. So damage
is looked for before anything is believed, and whatever does not add up is refused.
"""

import sqlite3
from collections.abc import Iterable, Sequence

from skdpot.exceptions import LedgerError
from skdpot.privacy.units import Units, read_units

__all__ = ["check_intact", "damaged", "older_copy", "whole_units"]


def check_intact(connection: sqlite3.Connection, path: str, statements: Iterable[str]) -> None:
    """Raise LedgerError unless the file is whole and laid out as it was made.

    One flipped bit in the header of a page can hide all its rows, and SQLite reads on. Its own
    quick check notices; it takes about as long as the rows take to read. A trigger or a view
    could make the file say something else than was written.

    Parameters
    ----------
    connection : sqlite3.Connection
        Inside a transaction.
    path : str
        For the message.
    statements : iterable of str
        The statements that made the tables; nothing else may be there.
    """
    # What ANALYZE writes down changes the speed of queries and nothing else.
    listed = "SELECT sql FROM sqlite_master WHERE name NOT GLOB 'sqlite_stat[1-4]'"
    layout = {sql for (sql,) in connection.execute(listed)}
    if layout != set(statements):
        raise damaged(path)
    if connection.execute("PRAGMA quick_check(1)").fetchone() != ("ok",):
        raise damaged(path)


def whole_units(texts: Sequence[object], path: str) -> list[Units]:
    """Return the whole numbers, or infinities, that a row holds as text, or raise LedgerError."""
    units = [read_units(text) for text in texts]
    if None in units:
        raise damaged(path)
    return [unit for unit in units if unit is not None]


def damaged(path: str) -> LedgerError:
    """Say that the file does not add up."""
    return LedgerError(
        f"The ledger {path!r} is damaged, so that nobody can tell what was charged, and nothing "
        "more can be. Put a copy in its place only if nothing was charged after it was made; "
        "otherwise count what was released yourself and start a new ledger for what is left."
    )


def older_copy(path: str) -> LedgerError:
    """Say that charges are missing which this process has seen."""
    return LedgerError(
        f"The ledger {path!r} lacks charges that it had a moment ago: it is an older copy, or one "
        "of two copies that were both spent from. Put the latest file back; nothing was charged."
    )
