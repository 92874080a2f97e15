"""Groups divided by bins of a private target, within which outputs are to be alike."""

from dataclasses import dataclass, field, replace
from functools import partial

import numpy as np

from skdpot._utils.streams import SecretStream
from skdpot.nets.cells import Cells
from skdpot.nets.output_tables import OutputTables, TableNoise, plan_output_tables, release_tables
from skdpot.ot.slices import CDFTable
from skdpot.release.releases import Records

_TARGET_BINS = 5
_DIRECTION = np.ones((1, 1))  # of a single target
_LIMIT = np.ones(1)  # targets are mapped to [-1, 1]


@dataclass(frozen=True, eq=False)
class BinnedCells(Cells):
    """Groups divided by bins of a private target.

    `codes` are the groups, which are public. The bin of a record is private. The edges of the bins
    and the sizes of the cells, which are estimates, follow from one release of the targets of each
    group. Releases that count records by cell pay for a record that changes its bin, and the
    contribution of a record depends on its own bin only.
    """

    edges: np.ndarray = field(default_factory=lambda: np.zeros(0))  # between bins
    n_groups: int = 1

    def codes_of(self, targets: np.ndarray, codes: np.ndarray) -> np.ndarray:
        """Return the cells of records, given their groups or any cells of these groups."""
        bins = np.searchsorted(self.edges, np.asarray(targets)[:, 0], side="right")
        return (bins * self.n_groups + codes % self.n_groups).astype(np.intp)


def cells_of_a_bin(cells: Cells) -> Cells:
    """Return cells of the expected sizes of the groups within one bin."""
    sizes = tuple(size // _TARGET_BINS for size in cells.sizes)
    return replace(cells, sizes=sizes, names=tuple(f"{n}, in a bin of y" for n in cells.names))


def plan_target_bins(mu: float, cells: Cells) -> TableNoise:
    """Plan two releases of the targets of each group: their range, then their distribution."""
    fewest = max(1, min(cells.sizes))
    return plan_output_tables(mu, 2, 1, fewest, "Targets of each group, for their bins")


def release_target_bins(
    targets: np.ndarray, cells: Cells, noise: TableNoise, stream: SecretStream
) -> BinnedCells:
    """Divide groups by released quantiles of their targets in [-1, 1], (n, 1).

    The caller has charged the event of `noise`.
    """
    release = partial(
        release_tables,
        targets,
        cells.codes,
        cells.sizes,
        _DIRECTION,
        _LIMIT,
        noise,
        stream,
        seen=_targets_seen,
    )
    tables = release(previous=release())
    inner = _resolved_quantiles(tables, cells)
    sizes = np.array(cells.sizes, dtype=np.float64)
    below = [np.concatenate([[0.0], table.evaluate(inner)[0], [1.0]]) for table in tables.tables]
    counts = np.maximum(np.rint(np.diff(below, axis=1).T * sizes), 1.0)  # (n_bins, n_groups)
    edges, n_groups = inner + tables.centres[0], len(sizes)
    return BinnedCells(
        cells.codes,
        tuple(counts.astype(int).ravel().tolist()),
        tuple(tuple(range(k, k + n_groups)) for k in range(0, counts.size, n_groups)),
        edges=edges,
        n_groups=n_groups,
    )


def _resolved_quantiles(tables: OutputTables, cells: Cells) -> np.ndarray:
    """Return the quantiles of all targets, less their centre, that are a bin or more apart."""
    sizes, first = np.array(cells.sizes, dtype=np.float64), tables.tables[0]
    pooled = sizes @ np.array([table.cdf[0] for table in tables.tables]) / sizes.sum()
    of_all = CDFTable(_DIRECTION, first.half_widths, pooled[None])
    inner = of_all.quantiles_along(0, np.arange(1, _TARGET_BINS) / _TARGET_BINS)
    width = first.edges[0, 1] - first.edges[0, 0]
    return inner[np.diff(inner, prepend=-np.inf) >= width]


def _targets_seen(records: Records, codes: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
    """Return the targets of the records of an audit, with their groups."""
    return np.asarray(records[1], dtype=np.float64), codes
