"""Groups divided by bins of a private target, for outputs that are alike given the target.

The distribution of the targets of each group is released once. The edges of the bins, and about how
many records of each group are in each, follow from it.
"""

from dataclasses import dataclass, field, replace

import numpy as np

from skdpot._utils.validation import SecretStream
from skdpot.ot.slices import CDFTable
from skdpot.release.output_tables import Cells, Seen, TableNoise, plan_tables, release_tables

_ALONG, _ONE = np.ones((1, 1)), np.ones(1)
_TARGET_BINS = 5


@dataclass(frozen=True, eq=False)
class BinnedCells(Cells):
    """Groups divided by bins of a private target: whose outputs are alike given the target.

    `codes` are the groups, which are public. In which bin a record is is private; sizes of cells
    are estimates. What counts records by cell pays for a record that changes its bin, and what a
    record adds depends on the bin of its own target.
    """

    edges: np.ndarray = field(default_factory=lambda: np.zeros(0))  # between bins
    n_groups: int = 1

    def codes_of(self, targets: np.ndarray, codes: np.ndarray) -> np.ndarray:
        """Return the cells of records, given their groups, or cells of the same groups."""
        bins = np.searchsorted(self.edges, np.asarray(targets)[:, 0], side="right")
        return (bins * self.n_groups + codes % self.n_groups).astype(np.intp)


def in_a_bin(cells: Cells) -> Cells:
    """Return what the cells of one bin are like, about."""
    sizes = tuple(size // _TARGET_BINS for size in cells.sizes)
    return replace(cells, sizes=sizes, names=tuple(f"{n}, in a bin of y" for n in cells.names))


def plan_target_bins(mu: float, cells: Cells) -> TableNoise:
    """Plan the release of the distribution of the targets of each group: its range, then itself."""
    return plan_tables(mu, 2, 1, max(1, min(cells.sizes)), "Targets of each group, for their bins")


def release_target_bins(
    targets: np.ndarray, cells: Cells, noise: TableNoise, stream: SecretStream
) -> BinnedCells:
    """Divide groups by quantiles of their targets in [-1, 1], (n, 1); the caller has charged."""
    given = (targets, cells.codes, cells.sizes, _ALONG, _ONE, noise, stream)
    seen: Seen = lambda records, codes: (np.asarray(records[1], dtype=np.float64), codes)  # noqa: E731
    tables = release_tables(*given, previous=release_tables(*given, seen=seen), seen=seen)
    sizes, first = np.array(cells.sizes, dtype=np.float64), tables.tables[0]
    pooled = sizes @ np.array([table.cdf[0] for table in tables.tables]) / sizes.sum()
    of_all = CDFTable(_ALONG, first.half_widths, pooled[None])
    inner = of_all.quantiles_along(0, np.arange(1, _TARGET_BINS) / _TARGET_BINS)
    width = first.edges[0, 1] - first.edges[0, 0]
    inner = inner[np.diff(inner, prepend=-np.inf) >= width]
    above = [np.concatenate([[0.0], table.evaluate(inner)[0], [1.0]]) for table in tables.tables]
    found = np.maximum(np.rint(np.diff(above, axis=1).T * sizes), 1.0)  # (n_bins, n_groups)
    edges, n_groups = inner + tables.centres[0], len(sizes)
    return BinnedCells(
        cells.codes,
        tuple(found.astype(int).ravel().tolist()),
        tuple(tuple(range(k, k + n_groups)) for k in range(0, found.size, n_groups)),
        edges=edges,
        n_groups=n_groups,
    )
