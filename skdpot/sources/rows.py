"""Private rows of one fit, in memory or in a source, and passes over them."""

from abc import ABC, abstractmethod
from collections.abc import Callable
from dataclasses import dataclass
from functools import partial
from typing import Any

from skdpot.sources.exact_counts import ExactCounts, Tables
from skdpot.sources.source import STOPS, UNKNOWN, Source, quietly

_LIBRARIES = ("numpy", "pandas", "polars")  # errors of their batches come from our validation


class Rows(ABC):
    """Private rows of one fit, in memory or in a source, after steps that map each row by itself.

    `map` is called any number of times, then `sum` once per pass.
    """

    n_rows: int  # public

    @abstractmethod
    def map(self, step: Callable[[Any], Any]) -> "Rows":
        """Apply a step to the rows of each batch; each row is mapped by itself."""

    @abstractmethod
    def sum(self, count: Callable[[Any], Tables]) -> Tables:
        """Return the sums over all batches of the tables that `count` returns for a batch."""


@dataclass(frozen=True, eq=False, repr=False)
class HeldRows(Rows):
    """Rows in memory, which are one batch; each step is applied once."""

    value: Any
    n_rows: int

    def map(self, step: Callable[[Any], Any]) -> "HeldRows":
        """Apply the step now."""
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
        """Count the rows of a source; refuse rows that a step cannot read, and too few rows."""
        counts = _pass_over(source, _Count((step,), count, told=True))
        if counts._n_rows < fewest:
            raise ValueError(
                f"Found {counts._n_rows} sample(s) while a minimum of {fewest} is required by "
                f"{caller}."
            )
        return cls(source, counts._n_rows, (step,)), counts._tables

    def map(self, step: Callable[[Any], Any]) -> "SourceRows":
        """Apply the step in each pass."""
        return SourceRows(self.source, self.n_rows, (*self.steps, step))

    def sum(self, count: Callable[[Any], Tables]) -> Tables:
        """Pass over all rows."""
        counts = _pass_over(self.source, _Count(self.steps, count))
        _check_same_rows(counts._n_rows, self.n_rows)
        return counts._tables


def _check_same_rows(n_counted: int, n_rows: int) -> None:
    """Refuse a pass that did not read as many rows as the first one."""
    if n_counted != n_rows:
        raise ValueError(
            "The passes over X found different numbers of rows, so that they did not read the "
            "same rows: files that changed, or a query whose result does. What was charged is "
            "spent; nothing was released from this pass."
        )


@dataclass(frozen=True, eq=False)
class _Count:
    """The function that a source applies to each batch; it can be pickled if its steps can."""

    steps: tuple[Callable[[Any], Any], ...]
    count: Callable[[Any], Tables] | None = None
    told: bool = False  # whether errors of the steps are shown, because they quote no value

    def __call__(self, batch: Any) -> ExactCounts:
        try:
            rows, n_rows = batch, len(batch)
            if not n_rows:
                return ExactCounts()
            for step in self.steps:
                rows = step(rows)
            return ExactCounts(self.count(rows) if self.count else (), n_rows)
        except STOPS:
            raise
        except BaseException as error:  # a panic of polars is not an Exception
            known = self.told and isinstance(error, (ValueError, TypeError))
            known &= type(batch).__module__.partition(".")[0] in _LIBRARIES
            problem = str(error) if known else UNKNOWN.format(type(error).__name__)
            return ExactCounts(problem=problem)


def _pass_over(source: Source, count: _Count) -> ExactCounts:
    counts: object = quietly(partial(source.sum, count))
    if not isinstance(counts, ExactCounts):
        raise TypeError("The sum of a source must be ExactCounts, those of all batches.")
    if counts._problem:
        raise ValueError(counts._problem)
    return counts


def count_rows(source: Source) -> int:
    """Return the number of rows of a source, in a pass of its own."""
    return _pass_over(source, _Count(()))._n_rows
