"""Opening and creating an SQLite file such that no charge is lost and nothing is overwritten."""

import os
import re
import sqlite3
import stat
import tempfile
from collections.abc import Callable, Iterator
from contextlib import closing, contextmanager, suppress
from pathlib import Path
from typing import Literal

from skdpot.exceptions import LedgerError

__all__ = ["PATIENCE", "create_file", "transaction"]

PATIENCE = 60.0  # seconds that a call waits for other processes

_NOT_OURS = "The file is no intact skdpot ledger and was left as it is. Pass another path."


def create_file(path: Path, fill: Callable[[str], None]) -> None:
    """Make a file that appears under its name complete, readable by its owner only.

    It is filled under a draft name in the same directory: a crash leaves no half-made file, and
    nobody attaches to one.

    Parameters
    ----------
    path : Path
        Absolute path; what exists there, a symbolic link too, is left alone.
    fill : callable
        Writes the contents, given the draft's path.

    Raises
    ------
    FileExistsError
        If there is something at `path`.
    LedgerError
        If the file cannot be written.
    """
    try:
        handle, draft = tempfile.mkstemp(prefix=f".{path.name}.", dir=path.parent)
        os.close(handle)
        try:
            fill(draft)
            _publish(draft, path)
        finally:
            with suppress(FileNotFoundError):
                os.unlink(draft)
    except FileExistsError:
        raise
    except OSError as error:
        raise LedgerError(
            f"The ledger {str(path)!r} cannot be created ({error.strerror}). Its directory must "
            "exist and be writable: SQLite keeps a journal beside the ledger."
        ) from error


def _publish(draft: str, path: Path) -> None:
    """Give the finished draft its name, in a step that fails if the name is taken."""
    try:
        os.link(draft, path)
    except FileExistsError:
        raise
    except OSError:
        # No hard links here: reserve the name, then replace our own reservation.
        os.close(os.open(path, os.O_CREAT | os.O_EXCL | os.O_WRONLY, 0o600))
        os.replace(draft, path)
    with suppress(OSError):  # not every system can sync a directory
        directory = os.open(path.parent, os.O_RDONLY)
        try:
            os.fsync(directory)
        finally:
            os.close(directory)


@contextmanager
def transaction(
    path: str, kind: Literal["DEFERRED", "IMMEDIATE"], patience: float = PATIENCE
) -> Iterator[sqlite3.Connection]:
    """Open an existing file for one transaction, rolled back on any exception.

    A new connection a call keeps forked and threaded callers apart. The file is looked at, but
    never opened, outside SQLite: closing it would drop the locks of this process's other threads.

    Parameters
    ----------
    path : str
        Absolute path.
    kind : {"DEFERRED", "IMMEDIATE"}
        Whether to read, or to hold the only write lock from the start.
    patience : float
        Seconds to wait for other processes.

    Yields
    ------
    sqlite3.Connection
        Inside the transaction. When the block has ended, the changes have reached the disk.

    Raises
    ------
    LedgerError
        If the file is missing, no intact SQLite file, not writable, or busy for too long.
    """
    _check_is_file(path)
    address = f"{Path(path).as_uri()}?mode=rw"  # "rw": a missing file is not made anew
    try:
        with closing(
            sqlite3.connect(address, uri=True, timeout=patience, isolation_level=None)
        ) as connection:
            # EXTRA is FULL and also syncs the directory after the journal is gone: with FULL a
            # power cut could bring the journal back and undo a charge whose release is out.
            connection.execute("PRAGMA synchronous = EXTRA")
            connection.execute(f"BEGIN {kind}")
            yield connection
            connection.execute("COMMIT")
    except sqlite3.Error as error:
        raise LedgerError(_explain(path, error)) from error
    except UnicodeDecodeError as error:  # SQLite quotes damaged bytes in its own messages
        raise LedgerError(f"The ledger {path!r} is damaged. {_NOT_OURS}") from error


def _check_is_file(path: str) -> None:
    """Refuse what is missing, no regular file or has a second name, with advice."""
    try:
        found = os.lstat(path)
        if stat.S_ISREG(found.st_mode) and found.st_nlink > 1:
            _drop_drafts(Path(path), found)
            found = os.lstat(path)
    except OSError as error:
        raise LedgerError(
            f"The ledger {path!r} cannot be reached ({error.strerror}), so nothing can be charged "
            "or looked up. Put the file back if it was moved. A budget made without `ledger=` "
            "lives as long as the process that made it: make a new PrivacyBudget, with "
            "`ledger='<path>'` to keep it, and count what was already released yourself."
        ) from error
    if not stat.S_ISREG(found.st_mode):
        raise LedgerError(
            f"{path!r} is no regular file, so it cannot be a ledger; it was left as it is. "
            "Pass the path of the ledger itself, not a directory or a symbolic link."
        )
    if found.st_nlink > 1:
        # SQLite finds the journal of a crashed process by the name of the file. Under another
        # name it does not, and a journal that is found later takes back what was charged since.
        raise LedgerError(
            f"The ledger {path!r} has a second name (a hard link), and a crash under one of them "
            "could take back charges that were made under the other. Remove the other name, with "
            "`rm`; to keep a copy, copy the file."
        )


def _drop_drafts(path: Path, found: os.stat_result) -> None:
    """Remove the names under which this file was filled: its maker may have been killed."""
    made = re.compile(rf"\.{re.escape(path.name)}\.[a-z0-9_]{{8}}")  # by tempfile.mkstemp
    for draft in path.parent.iterdir():
        with suppress(OSError):
            if made.fullmatch(draft.name) and os.path.samestat(os.lstat(draft), found):
                draft.unlink()


def _explain(path: str, error: sqlite3.Error) -> str:
    """Say what an SQLite error means for the caller."""
    name = getattr(error, "sqlite_errorname", "")
    if name.startswith(("SQLITE_BUSY", "SQLITE_LOCKED")):
        advice = "Another process holds it. Try again; nothing was charged."
    elif name.startswith(("SQLITE_NOTADB", "SQLITE_CORRUPT")):
        advice = _NOT_OURS
    else:
        advice = (
            "The file and its directory must be writable (SQLite keeps a journal beside it), and "
            "the disk must not be full."
        )
    return f"The ledger {path!r} cannot be used ({error}). {advice}"
