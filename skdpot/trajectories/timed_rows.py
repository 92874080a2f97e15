"""Private rows divided by time, with limits on the times and on the rows of a person."""

from dataclasses import dataclass

import numpy as np
import pandas as pd
from numpy.typing import ArrayLike

from skdpot._utils.arrays import FloatArray, IntArray
from skdpot.release.contributions import read_persons
from skdpot.trajectories.time_axis import TimeAxis, read_stamps


@dataclass(frozen=True, eq=False)
class TimedRows:
    """Private rows (n, d), and the public index of the time of each, shape (n,).

    Each time has at least one row. A person has at most `group_size` rows, at different times.
    """

    rows: FloatArray
    positions: IntArray
    axis: TimeAxis
    group_size: int
    assumptions: tuple[str, ...]

    @property
    def counts(self) -> IntArray:
        """Number of rows of each time."""
        return np.bincount(self.positions, minlength=self.axis.n_times)


def divide_by_time(
    rows: FloatArray,
    t: ArrayLike | None,
    *,
    n_times: int | None,
    n_time_subsample: int | None,
    group_size: int,
    groups: ArrayLike | None,
    rng: np.random.Generator,
) -> TimedRows:
    """Divide rows by time, and drop those that exceed the limits on times and persons.

    Which rows are kept depends on `t`, `groups` and public random numbers only, so that the same
    rows are kept in neighbouring data.
    """
    stamps = read_stamps(t, "t", len(rows))
    axis = TimeAxis.of_stamps(stamps, n_times)
    positions = axis.positions(stamps)
    if groups is None:
        _check_unmixed(axis, stamps, group_size)
    kept = np.arange(len(rows))
    if n_time_subsample is not None and n_time_subsample < axis.n_times:
        inner = rng.choice(np.arange(1, axis.n_times - 1), n_time_subsample - 2, replace=False)
        chosen = [0, *inner, axis.n_times - 1]
        kept = np.flatnonzero(np.isin(positions, chosen))
    if groups is not None:
        persons = read_persons(groups, "groups", len(rows), fewest=1)
        kept = kept[_within_limits(positions[kept], persons[kept], group_size, rng)]
    # Times that were not chosen, or lost all rows to the limit per person, are dropped.
    present = np.unique(positions[kept])
    if len(present) < axis.n_times:
        axis = axis.subset(present)
    assumed = [
        f"the time stamp of every row, and so the number of rows at each of {axis.n_times} times"
    ]
    if groups is not None:
        assumed.append("which rows belong to one person")
    return TimedRows(
        rows=rows if len(kept) == len(rows) else rows[kept],
        positions=np.searchsorted(present, positions[kept]),
        axis=axis,
        group_size=min(group_size, axis.n_times),
        assumptions=tuple(assumed),
    )


def _check_unmixed(axis: TimeAxis, stamps: np.ndarray, group_size: int) -> None:
    """Refuse a limit on the rows per person if two of these rows may share a bin."""
    if group_size > 1 and len(np.unique(stamps)) > axis.n_times:
        raise ValueError(
            f"group_size={group_size} counts rows of one person at different times, but the time "
            f"stamps share {axis.n_times} bins and a person may have more than one row in a bin. "
            "Pass groups=, so that one of them is kept, or round the time stamps so that no person "
            "has two equal ones."
        )


def _within_limits(
    positions: IntArray, persons: IntArray, most: int, rng: np.random.Generator
) -> IntArray:
    """Return positions with at most one row per person and time, and `most` per person."""
    order = rng.permutation(len(positions))
    table = pd.DataFrame({"person": persons[order], "time": positions[order]})
    table = table[~table.duplicated(["person", "time"])]
    table = table[table.groupby("person").cumcount() < most]
    return np.sort(order[table.index.to_numpy()])
