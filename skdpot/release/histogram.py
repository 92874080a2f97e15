"""The release of a sketch: a table of noise to which the counts of private rows are added.

`skdpot.release.sketch_plan` fixes shape and noise before any row is read,
`skdpot.release.projection_counts` counts the rows, and `skdpot.release.strategy` defines which
linear map of the counts is released and how far a record moves it.
"""

import math
import os
from collections.abc import Iterator
from dataclasses import dataclass, replace
from functools import partial
from typing import TYPE_CHECKING, Any, NoReturn

import numpy as np

from skdpot._utils.arrays import IntArray
from skdpot._utils.streams import SecretStream
from skdpot.exceptions import OpenSketchError
from skdpot.privacy.noise import lattice_noise
from skdpot.release.bounds import DataBounds
from skdpot.release.contributions import Parts
from skdpot.release.gate import pass_gate
from skdpot.release.joint import SecureSum
from skdpot.release.projection_counts import count_projections
from skdpot.release.releases import Part, Records, Release, Vectors
from skdpot.release.sketch_plan import SketchPlan
from skdpot.release.strategy import Strategy
from skdpot.sources.exact_counts import Tables
from skdpot.sources.reading import Batch
from skdpot.sources.rows import Rows

if TYPE_CHECKING:
    import torch

_FORMED = 2**24  # numbers in the contributions of single rows held at once: 128 MB


def binned_rows(release: Release, records: Records, shares: np.ndarray) -> Iterator[Part]:
    """Yield the contributions of rows to a table ``A H``, some slices at a time.

    Records are rows and the position of the class of each row (None if there is one table).
    """
    rows, codes = records
    facts, (n_classes, n_projections, n_bins) = release.facts, release.value.shape
    if n_classes == 1 or codes is None:
        codes = np.zeros(len(rows), dtype=np.intp)
    bounds, matrix = facts.get("bounds"), facts["strategy"].matrix

    def counts(chosen: np.ndarray, of: np.ndarray, n_of: int, block: slice) -> np.ndarray:
        along, half_widths = facts["directions"][block], facts["half_widths"][block]
        counted = count_projections(
            rows[chosen], along, half_widths, n_bins, codes=of, n_classes=n_of, bounds=bounds
        )
        return (counted @ matrix.T).reshape(n_of, len(along) * n_bins)

    known, members = np.flatnonzero(shares == 1.0), np.flatnonzero(shares < 1.0)
    size = max(1, _FORMED // (max(len(members), 1) * n_classes * n_bins))
    for start in range(0, n_projections, size):
        block = slice(start, start + size)
        # Each member is counted as a class of its own.
        each = counts(members, np.arange(len(members)), len(members), block)
        added = np.zeros((len(members), n_classes, each.shape[1]))
        added[np.arange(len(members)), codes[members]] = each
        single = Vectors(added.reshape(len(members), n_classes * each.shape[1]))
        yield Part(
            value=release.value[:, block].ravel(),
            sigma=float(np.max(release.sigma)),
            rows=single,
            members=members,
            center=counts(known, codes[known], n_classes, block).ravel()
            + single.sum(shares[members]),
        )


def sketch_release(
    statistic: np.ndarray,
    bounds: DataBounds,
    directions: np.ndarray,
    half_widths: np.ndarray,
    strategy: Strategy,
    **noise: Any,
) -> Release:
    """Return the release of a table ``A H + noise`` (n_classes, n_projections, n_bins)."""
    facts = {
        "strategy": strategy,
        "bounds": bounds,
        "directions": directions,
        "half_widths": half_widths,
    }
    return Release("sketch", statistic, facts, linear=binned_rows, **noise)


@dataclass(frozen=True)
class SketchCounter:
    """Counter of rows per class, slice and bin; its fields are public."""

    directions: np.ndarray
    half_widths: np.ndarray
    n_bins: int
    n_classes: int
    bounds: DataBounds
    device: "torch.device | None" = None

    def __call__(self, batch: Batch) -> Tables:
        """Return the counts of a batch, of shape (n_classes, n_projections, n_bins)."""
        rows, codes = batch
        counts = count_projections(
            rows,
            self.directions,
            self.half_widths,
            self.n_bins,
            codes=codes,
            n_classes=self.n_classes,
            bounds=self.bounds,
            device=self.device,
        )
        return (counts.reshape(self.n_classes, -1, self.n_bins),)


def _taken(batch: Batch, some: slice | IntArray) -> Batch:
    rows, codes = batch
    return rows[some], None if codes is None else codes[some]


def rows_among(batch: Batch, some: slice | IntArray) -> np.ndarray:
    """Return some rows of a batch, without their classes."""
    return batch[0][some]


class NoisyAccumulator:
    """A table of noise to which the statistic of each chunk of rows is added.

    The noise is drawn at construction, after the caller has charged ``plan.event``, so a table of
    counts without noise never exists. The difference of the table before and after a row is added
    is that row, so the accumulator cannot be read, copied or pickled before `close`.
    """

    def __init__(
        self,
        plan: SketchPlan,
        bounds: DataBounds,
        half_widths: np.ndarray,
        stream: SecretStream,
        device: "torch.device | None",
    ) -> None:
        self._plan, self._bounds, self._half_widths = plan, bounds, half_widths
        self._counter = SketchCounter(
            plan.directions, half_widths, plan.strategy.n_bins, plan.n_classes, bounds, device
        )
        # Steps of the noise's lattice per step of the strategy's lattice, a whole number.
        self._factor = round(plan.strategy.lattice / plan.lattice)
        if plan.sigma > 0:
            mu = plan.event.phases[-1].mu
            self._table = lattice_noise(plan.share, plan.shape, stream, lattice=plan.lattice, mu=mu)
        else:
            self._table = np.zeros(plan.shape, dtype=np.int64)
        self.n_rows, self._sigma = 0, plan.share
        # Public labels are counted without noise; private labels are not counted at all.
        self.label_counts = np.zeros(plan.n_classes, dtype=np.int64) if plan.public_labels else None
        self._process = os.getpid()

    def add(self, rows: Rows, parts: Parts | None = None) -> None:
        """Add rows, in batches of an array and the position of the class of each row (or None).

        With `parts` (`skdpot.release.contributions`), rows of one person share a weight of one.

        An error drops the table: adding the chunk again would count some rows twice, which the
        sensitivity does not cover.
        """
        self._check_whole()
        plan = self._plan
        # Sums stay far below 2^53, so products in double precision are exact, and much faster than
        # products of integers.
        matrix = plan.strategy.integer_matrix.T.astype(np.float64)
        try:
            weighed = 0
            for some, units in [(slice(None), 1)] if parts is None else parts:
                (counts,) = rows.map(partial(_taken, some=some)).sum(self._counter)
                sizes = counts[:, 0].sum(axis=1)  # of the classes: every slice has each row once
                weighed += units * int(sizes.sum())
                factor = self._factor * units // plan.n_units
                for table, of_class in zip(self._table, counts, strict=True):
                    table += (of_class @ matrix).astype(np.int64) * factor
                if self.label_counts is not None:
                    self.label_counts += sizes
            self.n_rows += weighed // plan.n_units
        except BaseException:
            del self._table
            raise

    def join(self, parties: SecureSum | None, n_samples: int) -> None:
        """Replace the table, with its noise, by the sum of the tables of all parties."""
        self._check_whole()
        if parties is None:
            return
        plan, table = self._plan, self._table
        del self._table
        self._table = parties.total(table, parties.largest(plan, n_samples))
        self.n_rows = n_samples
        self._sigma = plan.share * math.sqrt(parties.n_parties)

    def close(self) -> Release:
        """Return the release and end the accumulation."""
        self._check_whole()
        plan, table = self._plan, self._table * self._plan.lattice
        del self._table
        if self._sigma < plan.sigma:
            raise RuntimeError("A party's own table has too little noise to be released.")
        release = sketch_release(
            table,
            self._bounds,
            plan.directions,
            self._half_widths,
            plan.strategy,
            sigma=float(self._sigma),
            lattice=plan.lattice,
            sensitivity=plan.sensitivity,
            event=plan.event,
        )
        return replace(release, value=pass_gate(release))

    def _check_whole(self) -> None:
        if os.getpid() != self._process:
            raise OpenSketchError(
                "This sketch was opened in another process, and a fork is a copy: two copies of "
                "one noise draw reveal the rows added in between. Open a sketch in each process, "
                "close them and merge."
            )
        if not hasattr(self, "_table"):
            raise OpenSketchError(
                "Adding a chunk was interrupted, so this sketch cannot be completed. Fit again; "
                "what it was charged is spent."
            )

    def _refuse(self, *args: object) -> NoReturn:
        raise OpenSketchError(
            "This sketch is open: it still accumulates rows and can be neither pickled nor "
            "copied, because two copies of one noise draw reveal the rows added in between. "
            "Call close() first."
        )

    __getstate__ = __reduce_ex__ = __copy__ = __deepcopy__ = _refuse
