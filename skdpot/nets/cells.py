"""Cells: public groups of records, or groups within classes, whose outputs are compared.

Cells whose outputs should have the same distribution form a *stratum*: all groups (demographic
parity), or the groups within one class (equalised odds).
"""

import math
from dataclasses import dataclass

import numpy as np
from numpy.typing import ArrayLike

from skdpot._utils.labels import encode_labels
from skdpot.exceptions import warn_of_fairness

# Assumptions of the privacy statement: how a neighbouring data set may differ.
SAME_GROUP = (
    "the group of each record and the sizes of the groups are public: the record that replaces "
    "another has the same group"
)
SAME_CLASS = (
    "the class of each record is public: the record that replaces another has the same class"
)
_ADVICE = (
    "drop rows whose group is missing or give them a group of their own, and cut continuous values "
    "into intervals, for example with pandas.cut"
)
# Below this ratio of a cell's size to the noise of one count, its distribution is mostly noise.
_FEWEST_RECORDS = 5.0
_ROUNDED_UP = 1.0 + 1e-12  # 0.29 * 100 is a little less than 29


@dataclass(frozen=True, eq=False)
class Cells:
    """The cell of each record, the sizes of the cells, and which cells are compared."""

    codes: np.ndarray
    sizes: tuple[int, ...]
    strata: tuple[tuple[int, ...], ...]
    names: tuple[str, ...] = ()

    @property
    def members(self) -> tuple[np.ndarray, ...]:
        """Positions of the records of each cell."""
        return tuple(np.flatnonzero(self.codes == cell) for cell in range(len(self.sizes)))

    def batch_sizes(self, fraction: float, *, parameter: str = "batch_fraction") -> tuple[int, ...]:
        """Return the number of records per cell in a batch, ``floor(fraction * size)``."""
        taken = tuple(min(n, math.floor(fraction * n * _ROUNDED_UP)) for n in self.sizes)
        for name, size, count in zip(self.names, self.sizes, taken, strict=True):
            if count < 1:
                raise ValueError(
                    f"sensitive_features: group {name} has {size} "
                    f"{'row' if size == 1 else 'rows'}, too few for a batch. Choose a larger "
                    f"{parameter}, or merge small groups."
                )
        return taken

    def codes_of(self, targets: np.ndarray, codes: np.ndarray) -> np.ndarray:
        """Return the cells of records with these targets and public codes."""
        return codes

    def others(self, cell: int) -> tuple[int, ...]:
        """Return the cells that a cell is compared with."""
        stratum = next((s for s in self.strata if cell in s), ())
        return tuple(compared for compared in stratum if compared != cell)


def one_cell(n_samples: int) -> Cells:
    """Return a single cell of all records, which is compared with none."""
    return Cells(np.zeros(n_samples, dtype=np.intp), (n_samples,), ())


def read_groups(
    sensitive_features: ArrayLike, n_samples: int, *, needed_by: str = "Fairness between groups"
) -> tuple[Cells, np.ndarray]:
    """Validate the public group of each record; return the cells and the labels of the groups."""
    codes, labels = encode_labels(
        sensitive_features,
        n_samples,
        argument="sensitive_features",
        meaning="group label",
        needed_by=needed_by,
        advice=_ADVICE,
    )
    if len(labels) == 1:
        raise ValueError(
            f"{needed_by} needs at least two groups, but sensitive_features holds the group "
            f"{labels.tolist()[0]!r} alone."
        )
    codes = codes.astype(np.intp, copy=False)
    sizes = tuple(np.bincount(codes, minlength=len(labels)).tolist())
    names = tuple(map(str, labels))
    return Cells(codes, sizes, (tuple(range(len(labels))),), names), labels


def within_classes(groups: Cells, codes: np.ndarray, labels: np.ndarray) -> Cells:
    """Divide groups by class, so that groups are compared within each class."""
    n_groups, n_classes = len(groups.sizes), len(labels)
    cells = (codes * n_groups + groups.codes).astype(np.intp)
    sizes = tuple(np.bincount(cells, minlength=n_groups * n_classes).tolist())
    for cell, size in enumerate(sizes):
        if size == 0:
            raise ValueError(
                f'fairness="equalized_odds" needs records of every class in every group, but class '
                f"{labels[cell // n_groups]!s} has none in group {groups.names[cell % n_groups]}"
                '. Merge groups, or use fairness="demographic_parity".'
            )
    strata = np.arange(n_groups * n_classes).reshape(n_classes, n_groups).tolist()
    names = tuple(f"{group}, class {label}" for label in labels for group in groups.names)
    return Cells(cells, sizes, tuple(tuple(stratum) for stratum in strata), names)


def warn_of_small_cells(caller: str, cells: Cells, sigma: float) -> None:
    """Warn of groups whose public sizes are so small that their distributions are mostly noise."""
    small = [
        f"{name} ({size} records)"
        for name, size in zip(cells.names, cells.sizes, strict=True)
        if size < _FEWEST_RECORDS * sigma
    ]
    if small:
        warn_of_fairness(
            f"{caller}: these groups are too small for this epsilon: "
            f"{', '.join(small[:3])}{', ...' if len(small) > 3 else ''}. The noise on their counts "
            f"has a standard deviation of {sigma:.0f} records, which hides the distributions. "
            "Merge small groups, leave them out, or take a larger epsilon."
        )
