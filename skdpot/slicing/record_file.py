"""Records on disk: numbers in an ``.npz``, facts as JSON, no pickles."""

import json
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np

from skdpot.slicing.array_archive import may_unpack, read_arrays

__all__ = ["RecordFile", "RecordFormat"]


@dataclass(frozen=True, kw_only=True)
class RecordFormat:
    """What a kind of file holds.

    Parameters
    ----------
    name : str
        What the file says that it is.
    version : int
        Of the format.
    noun : str
        What errors call the content, such as "sketch".
    arrays : frozenset of str
        Names that arrays may have.
    most_characters : int
        Of the facts as JSON; parsed, they take some twenty times as much memory.
    """

    name: str
    version: int
    noun: str
    arrays: frozenset[str]
    most_characters: int

    def write(
        self, path: str | Path, facts: Mapping[str, Any], arrays: Mapping[str, np.ndarray]
    ) -> None:
        """Write a file.

        Parameters
        ----------
        path : str or Path
            File to write; an existing file is replaced.
        facts : mapping
            What JSON can hold.
        arrays : mapping of str to ndarray
            Numbers, and perhaps text.

        Raises
        ------
        ValueError
            If the facts are longer than `read` would accept. Nothing is written.
        """
        text = json.dumps({"format": self.name, "version": self.version, **facts})
        if len(text) > self.most_characters:
            raise ValueError(
                f"The facts of this {self.noun} take {len(text)} characters, and a file holds at "
                f"most {self.most_characters}. Shorten the longest lists, of categories perhaps."
            )
        entries: dict[str, Any] = {"facts": np.array(text), **arrays}
        with Path(path).open("wb") as file:
            np.savez_compressed(file, **entries)
            packed = file.tell()
        # A reader refuses what unpacks to very much more; numbers that repeat a lot would.
        if not may_unpack(sum(np.asarray(entry).nbytes for entry in entries.values()), packed):
            with Path(path).open("wb") as file:
                np.savez(file, **entries)

    def read(self, path: str | Path) -> tuple[dict[str, Any], dict[str, np.ndarray]]:
        """Read what `write` wrote.

        Parameters
        ----------
        path : str or Path
            File to read. It may come from another party: nothing in it is executed.

        Returns
        -------
        facts, arrays : dict
            None of which has been checked, beyond that they are well formed and within bounds.

        Raises
        ------
        OSError
            If the file cannot be read.
        ValueError
            If the file is of another kind, damaged, or of an unknown version.
        """
        file = Path(path).name
        arrays = read_arrays(Path(path), {"facts", *self.arrays}, self.noun)
        if "facts" not in arrays:
            raise ValueError(f"{file} is not a {self.noun}: it has no entry 'facts'.")
        facts = self._parse(arrays.pop("facts"), file)
        found, version = facts.pop("format", None), facts.pop("version", None)
        if found != self.name or type(version) is not int or version != self.version:
            raise ValueError(
                f"{file} has format {found!r:.40}, version {version!r:.40}; this release reads "
                f"{self.name!r}, version {self.version}."
            )
        return facts, arrays

    def _parse(self, stored: np.ndarray, file: str) -> dict[str, Any]:
        """Parse the facts, each of which must be said once."""
        if stored.dtype.kind != "U" or stored.ndim or stored.nbytes > 4 * self.most_characters:
            raise ValueError(
                f"{file} is not a {self.noun}: its facts are of another kind, or too long."
            )
        try:
            facts = json.loads(str(stored), object_pairs_hook=self._said_once)
        except RecursionError as error:
            raise ValueError(
                f"{file} is not a {self.noun}: its facts are nested too deeply."
            ) from error
        if not isinstance(facts, dict):
            raise ValueError(f"{file} is not a {self.noun}: its facts are of another kind.")
        return facts

    def _said_once(self, pairs: list[tuple[str, Any]]) -> dict[str, Any]:
        facts = dict(pairs)
        if len(facts) < len(pairs):
            raise ValueError(f"The file is not a {self.noun}: its facts contradict each other.")
        return facts


@dataclass(frozen=True)
class RecordFile:
    """Objects of one kind on disk.

    Parameters
    ----------
    form : RecordFormat
        Of the file.
    record : type
        Of facts and arrays. Its `of` takes an object apart; `restore` returns parameters and
        fitted attributes.
    """

    form: RecordFormat
    record: Any

    def write(self, fitted: Any, path: str | Path) -> None:
        """Write a fitted object.

        Parameters
        ----------
        fitted : object
            A closed sketch, for example.
        path : str or Path
            File to write; an existing file is replaced.

        Raises
        ------
        ValueError
            If the object cannot be taken apart, or its facts are longer than a file may hold.
        """
        record = self.record.of(fitted)
        self.form.write(path, record.facts, record.arrays)

    def read(self, path: str | Path) -> tuple[dict[str, Any], dict[str, Any]]:
        """Read and validate what `write` wrote.

        Parameters
        ----------
        path : str or Path
            File to read. It may come from another party: nothing in it is executed.

        Returns
        -------
        parameters, fitted : dict
            Constructor parameters and fitted attributes.

        Raises
        ------
        ValueError
            If the file is of another kind, of an unknown version, or inconsistent.
        """
        parameters, fitted = self.record(*self.form.read(path)).restore()
        return parameters, fitted
