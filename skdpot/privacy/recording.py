"""What a mechanism releases, while it runs, for those who attack it.

An accountant charges a fit for every noisy number that it computes, also for those that no
attribute keeps: the gradients of a training, the sums of a clustering. An audit that takes
the charge at its word must see them all. Inside `record_releases` they are kept:

>>> from skdpot.privacy.recording import record_releases
>>> from skdpot import PrivateScaler
>>> import numpy as np
>>> with record_releases() as releases:
...     scaler = PrivateScaler(epsilon=5.0).fit(np.random.default_rng(0).normal(size=(5000, 2)))
>>> sorted({release.kind for release in releases})
['cell_width', 'histogram', 'histogram_rows']

Only what has its noise already is recorded, together with public facts, so that a record is
covered by the event that was charged. Nothing is recorded outside such a block.
"""

from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from contextvars import ContextVar
from dataclasses import dataclass
from typing import Any

__all__ = ["Release", "is_recording", "record", "record_releases"]

_RECORDS: ContextVar[list["Release"] | None] = ContextVar("skdpot_releases", default=None)


@dataclass(frozen=True, eq=False)
class Release:
    """One noisy quantity that left a mechanism.

    Parameters
    ----------
    kind : str
        What it is, such as ``"gradient"``.
    facts : mapping
        The noisy value, the scale of its noise, and the public facts that it was computed with.
    """

    kind: str
    facts: Mapping[str, Any]

    def __repr__(self) -> str:
        return f"Release({self.kind!r}, facts={sorted(self.facts)})"


@contextmanager
def record_releases() -> Iterator[list[Release]]:
    """Keep everything that mechanisms release inside the block.

    Yields
    ------
    list of Release
        Grows while the block runs; of this thread and its asynchronous tasks only, not of
        worker processes. Of nested blocks the inner one records.
    """
    releases: list[Release] = []
    token = _RECORDS.set(releases)
    try:
        yield releases
    finally:
        _RECORDS.reset(token)


def is_recording() -> bool:
    """Whether somebody listens."""
    return _RECORDS.get() is not None


def record(kind: str, facts: Callable[[], Mapping[str, Any]]) -> None:
    """Record a release if somebody listens.

    Parameters
    ----------
    kind : str
        What is released.
    facts : callable
        Returns the noisy value and its public circumstances, copied, since the mechanism may
        go on to change its arrays. Called only inside `record_releases`.
    """
    releases = _RECORDS.get()
    if releases is not None:
        releases.append(Release(kind, facts()))
