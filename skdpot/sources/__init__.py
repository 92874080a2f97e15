"""Rows that are too many for one array: files, queries, and the partitions of an engine."""

from skdpot.sources.base import ExactCounts, HeldRows, Rows, Source, SourceRows, Tables, head_of
from skdpot.sources.engines import source_of
from skdpot.sources.numbers import Batch, fit_rows, read_numbers, record_columns

__all__ = [
    "Batch",
    "ExactCounts",
    "HeldRows",
    "Rows",
    "Source",
    "SourceRows",
    "Tables",
    "fit_rows",
    "head_of",
    "read_numbers",
    "record_columns",
    "source_of",
]
