"""Exact counts of private rows in memory, in files or in an engine.

A release is noise plus a sum over rows of small tables of integers. A source has one task: apply a
function to every batch of rows, and add the results. Sums of integers are exact in any order, so a
release does not depend on the division of rows into batches. A fit passes over its rows several
times, and draws the noise once, in its own process.

Counts without noise are as private as the rows. They exist in the workers of an engine and in the
process of the fit, which are equally trusted, and nowhere else: the fit adds them to noise that it
has drawn, and discards them.
"""

from skdpot.sources.exact_counts import ExactCounts
from skdpot.sources.exact_counts import Tables as Tables
from skdpot.sources.reading import Batch as Batch
from skdpot.sources.reading import fit_rows as fit_rows
from skdpot.sources.reading import read_numbers as read_numbers
from skdpot.sources.reading import record_columns as record_columns
from skdpot.sources.reading import source_of as source_of
from skdpot.sources.rows import HeldRows as HeldRows
from skdpot.sources.rows import Rows as Rows
from skdpot.sources.rows import SourceRows as SourceRows
from skdpot.sources.rows import count_rows as count_rows
from skdpot.sources.source import Source
from skdpot.sources.source import head_of as head_of

__all__ = ["ExactCounts", "Source"]  # the rest is for the package
