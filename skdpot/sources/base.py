"""Exact counts of private rows, wherever the rows are.

A release is noise on a sum over rows of small tables of integers. Whatever holds the rows has to
do one thing: apply a function to every batch of them, and add up what it returns. Sums of integers
are exact in any order, so that a release does not depend on how rows are divided into batches, or
on which machine counts which of them. A fit passes over its rows several times, and draws the noise
once, where it runs.

Counts without noise are as private as the rows. They exist where the rows do: in the workers of an
engine and in the process of the fit, which are trusted alike. Nothing else sees them: they are
added to noise that is drawn there, and forgotten.
"""

import pickle
from abc import ABC, abstractmethod
from collections import Counter
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass
from functools import partial
from typing import Any, NoReturn, Self, TypeAlias

import numpy as np

Tables: TypeAlias = tuple[Any, ...]  # arrays of integers, and Counters

_UNKNOWN = "X could not be read ({}). What the error says may quote values; it is not shown."
_STOP = (KeyboardInterrupt, SystemExit, GeneratorExit)
_LIBRARIES = ("numpy", "pandas", "polars")  # whose batches raise no errors of their own


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
                for own, other in zip(total._tables, more._tables, strict=True):
                    own.update(other) if isinstance(own, Counter) else np.add(own, other, out=own)
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
        """Read what `packed` returned. It is a pickle: read those of your own cluster only.

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
        """Show nothing."""
        return "ExactCounts(secret)"

    def _refuse(self, *args: object) -> NoReturn:
        raise TypeError(
            "Exact counts of private rows can be neither pickled nor copied, so that nobody saves "
            "them by accident. An engine moves `packed` bytes within its cluster."
        )

    __reduce_ex__ = __copy__ = __deepcopy__ = _refuse


class Source(ABC):
    """Private rows that an engine reads in batches.

    `fit` of an estimator that adds up counts takes a source in place of X. To use an engine of
    your own, define `head` and `sum`. Each pass must read the same rows, each once.

    Privacy
    -------
    A source adds no noise and charges nothing; the fit does. What `sum` returns, and all that it
    adds up on the way, is as private as the rows, in memory, messages and logs of the engine. What
    `head` returns is public.

    Examples
    --------
    >>> import numpy as np
    >>> import pandas as pd
    >>> from skdpot import SlicedSketch
    >>> from skdpot.sources import ExactCounts, Source
    >>> class Months(Source):
    ...     "One DataFrame for each month."
    ...     head = pd.DataFrame({"age": [], "weight": []})
    ...
    ...     def sum(self, count):
    ...         return ExactCounts.total(count(self.read(month)) for month in range(12))
    ...
    ...     def read(self, month):
    ...         rng = np.random.default_rng(month)
    ...         return pd.DataFrame(rng.uniform(0, 100, (500, 2)), columns=["age", "weight"])
    >>> sketch = SlicedSketch(epsilon=1.0, bounds=(0, 100)).fit(Months())
    >>> sketch.n_samples_, sketch.feature_names_in_.tolist()
    (6000, ['age', 'weight'])
    """

    @property
    @abstractmethod
    def head(self) -> Any:
        """A table without rows: names and data types of the columns, which are public."""

    @abstractmethod
    def sum(self, count: Callable[[Any], ExactCounts]) -> ExactCounts:
        """Return the sum of ``count(batch)`` over all batches.

        Parameters
        ----------
        count : callable
            A function of a DataFrame (or array) of some rows. It can be pickled, changes nothing,
            and never raises an error.

        Returns
        -------
        ExactCounts
            The sum, of which no batch is left out and none is added twice.
        """

    def select(self, names: Sequence[str]) -> "Source":
        """Return a source with some of the columns at least, which may read less.

        Parameters
        ----------
        names : sequence of str
            Names of the columns that a fit needs.

        Returns
        -------
        Source
            By default this source.
        """
        return self


class Rows(ABC):
    """Private rows of one fit, after steps that work on single rows."""

    n_rows: int

    @abstractmethod
    def map(self, step: Callable[[Any], Any]) -> "Rows":
        """Return what a step makes of the rows of each batch, one by one."""

    @abstractmethod
    def sum(self, count: Callable[[Any], Tables]) -> Tables:
        """Return the sum of what `count` returns of each batch."""


@dataclass(frozen=True, eq=False, repr=False)
class HeldRows(Rows):
    """Rows in memory, which are one batch; steps are taken once."""

    value: Any
    n_rows: int

    def map(self, step: Callable[[Any], Any]) -> "HeldRows":
        """Take the step now."""
        return HeldRows(step(self.value), self.n_rows)

    def sum(self, count: Callable[[Any], Tables]) -> Tables:
        """Count all rows."""
        return count(self.value)


@dataclass(frozen=True, eq=False, repr=False)
class SourceRows(Rows):
    """Rows of a source, which are read again in each pass."""

    source: Source
    n_rows: int
    steps: tuple[Callable[[Any], Any], ...] = ()

    @classmethod
    def checked(
        cls,
        source: Source,
        step: Callable[[Any], Any],
        caller: str,
        fewest: int,
        count: Callable[[Any], Tables] | None = None,
    ) -> tuple["SourceRows", Tables]:
        """Count the rows of a source, and refuse those that a step cannot read, or too few."""
        found = _pass_over(source, _Count((step,), count or _nothing, told=True))
        if found._n_rows < fewest:
            raise ValueError(
                f"Found {found._n_rows} sample(s) while a minimum of {fewest} is required by "
                f"{caller}."
            )
        return cls(source, found._n_rows, (step,)), found._tables

    def map(self, step: Callable[[Any], Any]) -> "SourceRows":
        """Take the step in each pass."""
        return SourceRows(self.source, self.n_rows, (*self.steps, step))

    def sum(self, count: Callable[[Any], Tables]) -> Tables:
        """Pass over all rows."""
        found = _pass_over(self.source, _Count(self.steps, count))
        if found._n_rows != self.n_rows:
            raise ValueError(
                "The passes over X found different numbers of rows, so that they did not read the "
                "same rows: files that changed, or a query whose result does. What was charged is "
                "spent; nothing was released from this pass."
            )
        return found._tables


def _nothing(batch: Any) -> Tables:
    return ()


@dataclass(frozen=True, eq=False)
class _Count:
    """What a source does with each batch; it can be pickled if the steps can."""

    steps: tuple[Callable[[Any], Any], ...]
    count: Callable[[Any], Tables]
    told: bool = False  # whether errors of the steps are known to quote no value

    def __call__(self, batch: Any) -> ExactCounts:
        try:
            rows, n_rows = batch, len(batch)
            if not n_rows:
                return ExactCounts()
            for step in self.steps:
                rows = step(rows)
            return ExactCounts(self.count(rows), n_rows)
        except _STOP:
            raise
        except BaseException as error:  # a panic of polars is no Exception
            known = self.told and isinstance(error, (ValueError, TypeError))
            known &= type(batch).__module__.partition(".")[0] in _LIBRARIES
            return ExactCounts(
                problem=str(error) if known else _UNKNOWN.format(type(error).__name__)
            )


def _pass_over(source: Source, count: _Count) -> ExactCounts:
    found: Any = quietly(partial(source.sum, count))
    if not isinstance(found, ExactCounts):
        raise TypeError("The sum of a source must be ExactCounts, those of all batches.")
    if found._problem:
        raise ValueError(found._problem)
    return found


def head_of(source: Source) -> Any:
    """Return the head of a source; a query may have begun to read rows for it."""
    return quietly(lambda: source.head)


def quietly(read: Callable[[], Any]) -> Any:
    """Return what a reader or an engine does, without an error of it, which may quote values."""
    try:
        return read()
    except (ImportError, *_STOP):  # the former names a package to install
        raise
    except BaseException as error:
        problem = _UNKNOWN.format(type(error).__name__)
    raise ValueError(problem)  # outside of the handler, so that no context is attached
