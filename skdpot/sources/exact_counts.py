"""Counts of private rows without noise, which can be added but not shown."""

import pickle
from collections import Counter
from collections.abc import Iterable
from typing import Any, NoReturn, Self, TypeAlias

import numpy as np

Tables: TypeAlias = tuple[Any, ...]  # arrays of integers and Counters


class ExactCounts:
    """Counts of some private rows, which add up with ``+``.

    They can be neither shown, nor copied, nor pickled. An engine moves them within the cluster that
    holds the rows as the bytes of `packed`.

    Privacy
    -------
    As private as the rows: no noise protects them. Nothing but a fit should read them.
    """

    __slots__ = ("_n_rows", "_problem", "_tables")

    def __init__(self, tables: Tables = (), n_rows: int = 0, problem: str = "") -> None:
        self._tables, self._n_rows, self._problem = tables, n_rows, problem

    def __add__(self, other: "ExactCounts") -> "ExactCounts":
        """Add the counts of other rows; neither operand changes."""
        if not isinstance(other, ExactCounts):
            return NotImplemented
        if self._problem or other._problem:
            return ExactCounts(problem=self._problem or other._problem)
        if not (self._n_rows and other._n_rows):
            return self if self._n_rows else other
        tables = tuple(a + b for a, b in zip(self._tables, other._tables, strict=True))
        return ExactCounts(tables, self._n_rows + other._n_rows)

    @classmethod
    def total(cls, counts: Iterable["ExactCounts"]) -> "ExactCounts":
        """Add up any number of counts, in place of the first.

        Parameters
        ----------
        counts : iterable of ExactCounts
            Counts of disjoint sets of rows. The first of them holds the sum afterwards.

        Returns
        -------
        ExactCounts
            Their sum; that of no counts is zero.
        """
        total = cls()
        for more in counts:
            if total._n_rows and more._n_rows and not (total._problem or more._problem):
                for kept, new in zip(total._tables, more._tables, strict=True):
                    kept.update(new) if isinstance(kept, Counter) else np.add(kept, new, out=kept)
                total._n_rows += more._n_rows
            else:
                total = total + more
        return total

    def packed(self) -> bytes:
        """Return the counts as bytes, for a message between machines that may see the rows.

        Returns
        -------
        bytes
            As private as the rows.
        """
        return pickle.dumps((self._tables, self._n_rows, self._problem), protocol=5)

    @classmethod
    def unpacked(cls, message: bytes) -> Self:
        """Read what `packed` returned. It is a pickle: read messages of your own cluster only.

        Parameters
        ----------
        message : bytes
            Counts of some rows.

        Returns
        -------
        ExactCounts
            The counts.
        """
        return cls(*pickle.loads(message))

    def __repr__(self) -> str:
        """Hide the counts."""
        return "ExactCounts(secret)"

    def _refuse(self, *args: object) -> NoReturn:
        raise TypeError(
            "Exact counts of private rows can be neither pickled nor copied, so that nobody saves "
            "them by accident. An engine moves `packed` bytes within its cluster."
        )

    __reduce_ex__ = __copy__ = __deepcopy__ = _refuse
