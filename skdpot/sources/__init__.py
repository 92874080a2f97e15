"""Exact counts of private rows, wherever the rows are: in memory, in files, in an engine.

A release is noise on a sum over rows of small tables of integers. Whatever holds the rows has to
do one thing: apply a function to every batch of them, and add up what it returns. Sums of integers
are exact in any order, so that a release does not depend on how rows are divided into batches. A
fit passes over its rows several times, and draws the noise once, where it runs.

Counts without noise are as private as the rows. They exist where the rows do: in the workers of an
engine and in the process of the fit, which are trusted alike. Nothing else sees them: they are
added to noise that is drawn there, and forgotten.
"""

from skdpot.sources.exact_counts import ExactCounts, Tables
from skdpot.sources.reading import Batch, fit_rows, read_numbers, record_columns, source_of
from skdpot.sources.rows import HeldRows, Rows, SourceRows, count_rows
from skdpot.sources.source import Source, head_of

__all__ = [
    "Batch",
    "ExactCounts",
    "HeldRows",
    "Rows",
    "Source",
    "SourceRows",
    "Tables",
    "count_rows",
    "fit_rows",
    "head_of",
    "read_numbers",
    "record_columns",
    "source_of",
]
