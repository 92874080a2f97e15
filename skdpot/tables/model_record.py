"""A fitted model of a table as plain numbers, and whether such numbers can be one.

All arrays are flat: what follows from the schema and from the bins (shapes, places) is not stored
twice, so that it cannot contradict itself.
"""

from collections.abc import Iterator, Mapping, Sequence
from typing import Any

import numpy as np

from skdpot.privacy.noise import noise_lattice
from skdpot.slicing.marginal_release import MARGINAL_LATTICE
from skdpot.slicing.marginals import FloatArray, IntArray, Marginal, NoisyMarginal
from skdpot.tables.coarsening import ColumnBins
from skdpot.tables.column_grid import ColumnGrid
from skdpot.tables.model import TableModel
from skdpot.tables.tree import ColumnTree, TreeNode

__all__ = ["ARRAYS", "model_from_record", "model_to_record"]

_NUMBERS = (
    "column_counts", "column_sigmas", "cell_shares", "conditionals", "target_shares",
    "marginal_counts", "marginal_sigmas", "potentials",
)  # fmt: skip
_INTEGERS = ("bins", "coarse", "nodes", "groups")
ARRAYS = (*_NUMBERS, *_INTEGERS)

_MOST_BINS = 4096
_LARGEST_NOISE = 1e15
_NOISE_REACH = 20.0  # standard deviations; noise beyond has a probability of 1e-88
_LARGEST_POTENTIAL = 600.0  # its exponential, times a number of rows, is a number
_ROUNDING = 1e-9  # machines may differ in the last digits
_NO_PARENT = -1


def model_to_record(model: TableModel) -> tuple[dict[str, Any], dict[str, np.ndarray]]:
    """Take a model apart.

    Parameters
    ----------
    model : TableModel
        A fitted model.

    Returns
    -------
    facts : dict
        What JSON can hold.
    arrays : dict of str to ndarray
        Under the names of `ARRAYS`.
    """
    tree, marginals = model.tree, model.marginals
    parts: dict[str, Sequence[Any]] = {
        "column_counts": [noisy.counts for noisy in model.columns],
        "column_sigmas": [[noisy.sigma for noisy in model.columns]],
        "bins": [found.bins for found in model.bins],
        "cell_shares": [found.cell_shares for found in model.bins],
        "coarse": [found.coarse for found in model.bins],
        "nodes": [
            [node.column, _NO_PARENT if node.parent is None else node.parent] for node in tree.nodes
        ],
        "conditionals": [conditional.ravel() for conditional in tree.conditionals],
        "target_shares": [tree.target_shares],
        "groups": [groups for noisy in marginals for groups in noisy.marginal.groups],
        "marginal_counts": [noisy.counts for noisy in marginals],
        "marginal_sigmas": [[noisy.sigma for noisy in marginals]],
        "potentials": list(model.potentials),
    }
    facts = {
        "tree_target": tree.target,
        "marginals": [
            {"columns": list(map(int, m.columns)), "levels": list(map(int, m.levels))}
            for m in (noisy.marginal for noisy in marginals)
        ],
    }
    return facts, {name: _joined(name, part) for name, part in parts.items()}


def model_from_record(
    facts: Mapping[str, Any],
    arrays: Mapping[str, np.ndarray],
    grids: Sequence[ColumnGrid],
    n_rows: int,
) -> TableModel:
    """Put a model together that somebody else may have taken apart.

    Parameters
    ----------
    facts, arrays : mapping
        What `model_to_record` returned.
    grids : sequence of ColumnGrid
        Cells of each column, by its schema.
    n_rows : int
        Number of rows of the table.

    Returns
    -------
    TableModel
        One that rows can be drawn from.

    Raises
    ------
    ValueError, TypeError, KeyError
        If something is missing, or cannot be.
    """
    _check_arrays(arrays)
    columns = tuple(_columns(arrays, grids, n_rows))
    bins = tuple(_bins(arrays, grids))
    tree = _tree(facts, arrays, [found.n_bins for found in bins])
    marginals, potentials = _marginals(facts, arrays, [found.n_bins for found in bins], n_rows)
    return TableModel(n_rows, columns, bins, tree, marginals, potentials)


def _joined(name: str, parts: Sequence[Any]) -> np.ndarray:
    dtype: type[Any] = np.float64 if name in _NUMBERS else np.int64
    joined: np.ndarray = np.concatenate(
        [np.zeros(0, dtype), *(np.asarray(p, dtype) for p in parts)]
    )
    return joined


def _check_arrays(arrays: Mapping[str, np.ndarray]) -> None:
    if set(arrays) != set(ARRAYS):
        raise ValueError("The synthesizer lacks an array, or has an unknown one.")
    for name, array in arrays.items():
        if array.dtype != (np.float64 if name in _NUMBERS else np.int64) or array.ndim != 1:
            raise TypeError("a row of numbers in double precision, or of integers, is due")
        if name in _NUMBERS and not np.isfinite(array).all():
            raise ValueError(f"The array {name!r} of the synthesizer holds non-finite values.")


def _cut(array: np.ndarray, sizes: Sequence[int], what: str) -> list[np.ndarray]:
    """Return the parts of an array that must be as long as all of them together."""
    if sum(sizes) != len(array):
        raise ValueError(f"The {what} of the synthesizer do not fit its columns.")
    ends = np.cumsum(np.array([0, *sizes], dtype=np.int64)).tolist()
    return [array[start:stop] for start, stop in zip(ends[:-1], ends[1:], strict=True)]


def _columns(
    arrays: Mapping[str, np.ndarray], grids: Sequence[ColumnGrid], n_rows: int
) -> Iterator[NoisyMarginal]:
    parts = _cut(arrays["column_counts"], [grid.size for grid in grids], "counts")
    sigmas = _sigmas(arrays["column_sigmas"], len(grids))
    for place, (counts, sigma) in enumerate(zip(parts, sigmas, strict=True)):
        _check_reach(counts, sigma, n_rows)
        # What is off the lattice did not come out of the sampler whose noise is charged.
        units = counts / (noise_lattice(sigma, MARGINAL_LATTICE) if sigma > 0.0 else 1.0)
        if not (np.rint(units) == units).all():
            raise ValueError("The synthesizer has counts off the lattice of their noise.")
        yield NoisyMarginal(Marginal((place,), (np.arange(len(counts)),)), counts, sigma)


def _bins(arrays: Mapping[str, np.ndarray], grids: Sequence[ColumnGrid]) -> Iterator[ColumnBins]:
    sizes = [grid.size for grid in grids]
    bins = _cut(arrays["bins"], sizes, "bins")
    n_bins = [_n_groups(part, "bins") for part in bins]
    coarse = _cut(arrays["coarse"], n_bins, "groups of bins")
    shares = _cut(arrays["cell_shares"], sizes, "shares")
    for cells, groups, part in zip(bins, coarse, shares, strict=True):
        _n_groups(groups, "groups of bins")
        _check_shares(part[None])
        if not (part > 0.0).all():
            raise ValueError("Every cell of the synthesizer must be possible.")
        yield ColumnBins(cells, part, groups)


def _tree(
    facts: Mapping[str, Any], arrays: Mapping[str, np.ndarray], n_bins: Sequence[int]
) -> ColumnTree:
    target = facts["tree_target"]
    if not (target is None or _is_place(target, len(n_bins))):
        raise ValueError("The tree of the synthesizer has a target that is no column.")
    nodes = tuple(_nodes(arrays["nodes"], len(n_bins), target))
    n_roots = 1 if target is None else n_bins[target]
    shapes = [
        (n_roots, 1 if node.parent is None else n_bins[node.parent], n_bins[node.column])
        for node in nodes
    ]
    parts = _cut(arrays["conditionals"], [a * b * c for a, b, c in shapes], "distributions")
    conditionals = [part.reshape(shape) for part, shape in zip(parts, shapes, strict=True)]
    (roots,) = _cut(arrays["target_shares"], [n_roots], "shares of the target")
    for table in (*conditionals, roots):
        _check_shares(table)
    return ColumnTree(nodes, tuple(conditionals), target, roots)


def _nodes(stored: np.ndarray, n_columns: int, target: int | None) -> Iterator[TreeNode]:
    """Yield the nodes of what must be a forest, parents first."""
    table = stored.reshape(-1, 2) if len(stored) % 2 == 0 else np.zeros((0, 2), np.int64)
    due = set(range(n_columns)) - {target}
    seen: set[int] = set()
    for column, parent in table.tolist():
        if column not in due - seen or not (parent == _NO_PARENT or parent in seen):
            raise ValueError("The columns of the synthesizer do not form a tree.")
        seen.add(column)
        yield TreeNode(column, None if parent == _NO_PARENT else parent)
    if seen != due:
        raise ValueError("The columns of the synthesizer do not form a tree.")


def _marginals(
    facts: Mapping[str, Any],
    arrays: Mapping[str, np.ndarray],
    n_bins: Sequence[int],
    n_rows: int,
) -> tuple[tuple[NoisyMarginal, ...], tuple[FloatArray, ...]]:
    named = [_name(entry, len(n_bins)) for entry in facts["marginals"]]
    if len(set(named)) < len(named):
        raise ValueError("The synthesizer has one marginal twice.")
    sizes = [n_bins[column] for columns, _ in named for column in columns]
    groups = iter(_cut(arrays["groups"], sizes, "groups"))
    found = []
    for columns, levels in named:
        parts = tuple(next(groups) for _ in columns)
        for part in parts:
            _n_groups(part, "groups")
        found.append(Marginal(columns, parts, levels))
    sizes = [marginal.n_cells for marginal in found]
    counts = _cut(arrays["marginal_counts"], sizes, "counts")
    potentials = _cut(arrays["potentials"], sizes, "potentials")
    if not (np.abs(arrays["potentials"]) <= _LARGEST_POTENTIAL).all():
        raise ValueError("The synthesizer has potentials that no fit reaches.")
    sigmas = _sigmas(arrays["marginal_sigmas"], len(found))
    for part, sigma in zip(counts, sigmas, strict=True):
        _check_reach(part, sigma, n_rows)
    released = zip(found, counts, sigmas, strict=True)
    return tuple(NoisyMarginal(*parts) for parts in released), tuple(potentials)


def _name(entry: Any, n_columns: int) -> tuple[tuple[int, ...], tuple[int, ...]]:
    """Return the columns and levels of a marginal of several columns."""
    columns, levels = entry["columns"], entry["levels"]
    if not (
        set(entry) == {"columns", "levels"}
        and isinstance(columns, list)
        and isinstance(levels, list)
        and len(columns) >= 2
        and all(_is_place(column, n_columns) for column in columns)
        and all(low < high for low, high in zip(columns[:-1], columns[1:], strict=True))
        and len(levels) == len(columns)
        and all(_is_place(level, _MOST_BINS) for level in levels)
    ):
        raise ValueError("The synthesizer has a marginal of columns that it does not have.")
    return tuple(columns), tuple(levels)


def _is_place(value: Any, size: int) -> bool:
    return type(value) is int and 0 <= value < size


def _n_groups(groups: IntArray, what: str) -> int:
    """Return the number of groups, each of which must occur."""
    inside = len(groups) > 0 and 0 <= groups.min() and groups.max() < min(len(groups), _MOST_BINS)
    if not inside or not np.bincount(groups).all():
        raise ValueError(f"The {what} of the synthesizer are not numbered one after the other.")
    return int(groups.max()) + 1


def _sigmas(sigmas: FloatArray, n_releases: int) -> list[float]:
    if len(sigmas) != n_releases or not ((sigmas >= 0.0) & (sigmas <= _LARGEST_NOISE)).all():
        raise ValueError("The synthesizer has noise that no release has.")
    return list(map(float, sigmas))


def _check_reach(counts: FloatArray, sigma: float, n_rows: int) -> None:
    reach = _NOISE_REACH * sigma
    if not ((counts >= -reach) & (counts <= n_rows + reach)).all():
        raise ValueError("The synthesizer has counts that its rows and its noise cannot reach.")


def _check_shares(shares: FloatArray) -> None:
    sums = shares.sum(axis=-1)
    if not ((shares >= 0.0).all() and (np.abs(sums - 1.0) <= _ROUNDING).all()):
        raise ValueError("The synthesizer has shares that do not add up to 1.")
