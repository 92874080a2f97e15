"""The interface of a source of private rows, which an engine reads in batches."""

from abc import ABC, abstractmethod
from collections.abc import Callable, Sequence
from typing import Any

from skdpot.sources.exact_counts import ExactCounts

UNKNOWN = "X could not be read ({}). What the error says may quote values; it is not shown."
STOPS = (KeyboardInterrupt, SystemExit, GeneratorExit)


class Source(ABC):
    """Abstract base class of private rows that an engine reads in batches.

    `fit` of an estimator that adds up counts takes a source in place of X. To use an engine of
    your own, define `head` and `sum`, and `select` if reading fewer columns saves time. A fit reads
    `head` first, calls `select` if it needs some of the columns only, counts the rows in a pass of
    their own, and then calls `sum` several times. Each pass must read the same rows, each once, in
    any order and in batches of any size.

    Privacy
    -------
    A source adds no noise and charges nothing; the fit does both. The result of `sum` and all
    partial sums are as private as the rows, in memory, messages and logs of the engine. The result
    of `head` is public.

    Examples
    --------
    >>> import numpy as np
    >>> import pandas as pd
    >>> from skdpot import SlicedSketch
    >>> from skdpot.sources.exact_counts import ExactCounts
    >>> from skdpot.sources.source import Source
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
        """A table of shape (0, n_features): names and data types of the columns.

        They are public. An array without rows stands for columns without names.
        """

    @abstractmethod
    def sum(self, count: Callable[[Any], ExactCounts]) -> ExactCounts:
        """Return the sum of ``count(batch)`` over all batches.

        Parameters
        ----------
        count : callable
            A function of a DataFrame or array of shape (n_batch, n_features) with some of the rows
            and the columns of `head`. It can be pickled, changes nothing, and never raises an
            error.

        Returns
        -------
        ExactCounts
            The sum, in which each batch counts exactly once.
        """

    def select(self, names: Sequence[str]) -> "Source":
        """Return a source with at least some of the columns, in order to read less.

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


def head_of(source: Source) -> Any:
    """Return the head of a source; hide errors, because a query may read rows for it."""
    return quietly(lambda: source.head)


def quietly(read: Callable[[], Any]) -> Any:
    """Return the result of a reader or an engine; hide its errors, which may quote values."""
    try:
        return read()
    except (ImportError, *STOPS):  # an ImportError names a package to install
        raise
    except BaseException as error:
        problem = UNKNOWN.format(type(error).__name__)
    raise ValueError(problem)  # outside of the handler, so that no context is attached
