"""A file that remembers what a party has published, so that a repeated request costs once.

A transport may deliver a request twice, and may start a new process for each delivery. A
private release that only lived in memory would then be made, and charged, again. The file keeps
the bytes that were sent, under a digest of the request: they are public already, so that the
file holds nothing that has not left the party.
"""

import hashlib
import os
import sqlite3
from collections.abc import Callable, Iterator
from contextlib import closing, contextmanager
from pathlib import Path

from skdpot.exceptions import LedgerError

__all__ = ["ReleaseFile"]

_APPLICATION_ID = 0x736B6472  # "skdr": marks the file as one of ours
_VERSION = 1
_PATIENCE = 120.0  # seconds to wait for another process, which may be making the release


class ReleaseFile:
    """Releases of parties on disk, by party and request.

    Parameters
    ----------
    path : str or path-like
        The file; made on first use, readable by its owner only. Keep it on a local disk beside
        the ledger of the budget, and as long as the ledger. Without it a repeated request is a
        new release, which is charged anew.

    Examples
    --------
    >>> import tempfile
    >>> from pathlib import Path
    >>> with tempfile.TemporaryDirectory() as directory:
    ...     releases = ReleaseFile(Path(directory, "releases.sqlite"))
    ...     first = releases.answer("north", b"request", lambda: b"noisy table")
    ...     again = releases.answer("north", b"request", lambda: b"other noise")
    >>> first == again
    True
    """

    def __init__(self, path: str | os.PathLike[str]) -> None:
        self.path = Path(path).expanduser().absolute()

    def answer(self, party: str, request: bytes, make: Callable[[], bytes]) -> bytes:
        """Return what was published for this request, or make, keep and return it.

        The file is locked meanwhile: of two processes with the same request one makes the
        release, and the other one waits for it. The release is on the disk before it is
        returned. If it cannot be kept it is dropped: what it cost is lost, and a later request
        never finds two answers in the world.

        Parameters
        ----------
        party : str
            Name of the party: parties can share a file.
        request : bytes
            The whole request.
        make : callable
            Charges, and returns the release as bytes. When it raises, nothing is kept.

        Returns
        -------
        bytes
            The release.

        Raises
        ------
        LedgerError
            If the file cannot be used.
        """
        key = hashlib.sha256(
            b"".join(hashlib.sha256(part).digest() for part in (party.encode(), request))
        ).digest()
        with self._transaction() as connection:
            row = connection.execute("SELECT reply FROM releases WHERE key = ?", (key,)).fetchone()
            if row is None:
                reply = make()
                connection.execute("INSERT INTO releases VALUES (?, ?, ?)", (key, party, reply))
            elif isinstance(row[0], bytes):
                reply = row[0]
            else:
                raise self._unusable(ValueError("a release that is no bytes"))
        return reply

    @contextmanager
    def _transaction(self) -> Iterator[sqlite3.Connection]:
        """Hold the only write lock; what was written has reached the disk when the block ends."""
        try:
            # Made by us with narrow permissions; SQLite would make it readable to all.
            os.close(os.open(self.path, os.O_CREAT | os.O_RDWR, 0o600))
        except OSError as error:
            raise self._unusable(error) from error
        try:
            with closing(
                sqlite3.connect(self.path, timeout=_PATIENCE, isolation_level=None)
            ) as connection:
                connection.execute("PRAGMA synchronous = EXTRA")
                connection.execute("BEGIN IMMEDIATE")
                self._prepare(connection)
                yield connection
                connection.execute("COMMIT")
        except (sqlite3.Error, UnicodeDecodeError) as error:  # SQLite quotes damaged bytes
            raise self._unusable(error) from error

    def _unusable(self, error: Exception) -> LedgerError:
        return LedgerError(
            f"The file of releases {str(self.path)!r} cannot be used ({type(error).__name__}): it "
            "and its directory must be writable, and the file one that skdpot made, or absent. "
            "Nothing was published."
        )

    def _prepare(self, connection: sqlite3.Connection) -> None:
        """Lay out an empty file; refuse one that is not ours."""
        mark = connection.execute("PRAGMA application_id").fetchone()[0]
        version = connection.execute("PRAGMA user_version").fetchone()[0]
        tables = connection.execute("SELECT count(*) FROM sqlite_master").fetchone()[0]
        if mark == 0 and version == 0 and tables == 0:
            connection.execute(
                "CREATE TABLE releases (key BLOB PRIMARY KEY, party TEXT NOT NULL,"
                " reply BLOB NOT NULL)"
            )
            connection.execute(f"PRAGMA application_id = {_APPLICATION_ID}")
            connection.execute(f"PRAGMA user_version = {_VERSION}")
        elif (mark, version) != (_APPLICATION_ID, _VERSION):
            raise LedgerError(
                f"{str(self.path)!r} is no file of releases of this version of skdpot; it was "
                "left as it is. Pass another path."
            )
