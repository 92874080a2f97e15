"""One row and one time stamp a person: what of it a fit uses."""

from dataclasses import dataclass
from typing import Any

import numpy as np
import pandas as pd
from sklearn.base import BaseEstimator

from skdpot._utils.validation import validate_rows
from skdpot.trajectories.time_axis import TimeAxis, read_stamps

__all__ = ["TimedRows", "given_stamps", "timed_rows"]


@dataclass(frozen=True, eq=False)
class TimedRows:
    """Private rows with the public number of the time that each belongs to.

    Parameters
    ----------
    rows : ndarray of shape (n, d)
        Private rows, as they were given.
    positions : ndarray of shape (n,)
        Number of each row's time, public.
    axis : TimeAxis
        The times; each has at least one row.
    group_size : int
        Largest number of rows of a person, all at different times.
    assumptions : tuple of str
        What this takes to be public.
    """

    rows: np.ndarray
    positions: np.ndarray
    axis: TimeAxis
    group_size: int
    assumptions: tuple[str, ...]

    @property
    def counts(self) -> np.ndarray:
        """Number of rows of each time."""
        return np.bincount(self.positions, minlength=self.axis.n_times)


def given_stamps(y: Any, t: Any) -> Any:
    """Return the time stamps, which have the place of y and may be given by their own name."""
    if y is not None and t is not None:
        raise TypeError("The time stamps were given twice, as y and as t; pass them once.")
    return t if y is None else y


def timed_rows(
    sampler: BaseEstimator, X: Any, t: Any, groups: Any, rng: np.random.Generator
) -> TimedRows:
    """Validate, divide by time, and keep what the parameters ask for.

    Parameters
    ----------
    sampler : PrivateTrajectorySampler
        With its parameters `n_times`, `n_time_subsample` and `group_size`.
    X : array-like of shape (n, d)
        Private rows.
    t : array-like of shape (n,)
        Public time stamps.
    groups : array-like of shape (n,) or None
        Public number of the person that each row belongs to.
    rng : numpy.random.Generator
        Public choices: times of a subsample, and rows of a person that has too many.

    Returns
    -------
    TimedRows

    Raises
    ------
    ValueError
        If something is not usable.

    Privacy
    -------
    What is kept depends on `t`, `groups` and public random numbers only, so that a neighbour
    keeps the same rows.
    """
    rows = validate_rows(sampler, X, reset=True, min_samples=2)
    stamps = read_stamps(t, "t", len(rows))
    axis = TimeAxis.of_stamps(stamps, sampler.n_times)
    positions = axis.positions(stamps)
    if groups is None:
        _check_unmixed(axis, stamps, sampler.group_size)
    kept = np.arange(len(rows))
    if sampler.n_time_subsample is not None and sampler.n_time_subsample < axis.n_times:
        chosen = _some_times(axis.n_times, sampler.n_time_subsample, rng)
        kept = np.flatnonzero(np.isin(positions, chosen))
    if groups is not None:
        persons = _persons(groups, len(rows))
        kept = kept[_bounded(positions[kept], persons[kept], sampler.group_size, rng)]
    # Neither what was not chosen is a time, nor where the limit on rows has left none.
    present = np.unique(positions[kept])
    if len(present) < axis.n_times:
        axis = axis.subset(present)
    assumed = [
        f"the time stamp of every row, and so the number of rows at each of {axis.n_times} times"
    ]
    if groups is not None:
        assumed.append("which rows belong to one person")
    return TimedRows(
        rows if len(kept) == len(rows) else rows[kept],
        np.searchsorted(present, positions[kept]),
        axis,
        min(sampler.group_size, axis.n_times),
        tuple(assumed),
    )


def _check_unmixed(axis: TimeAxis, stamps: np.ndarray, group_size: int) -> None:
    """Refuse a limit on a person's rows that bins would break: two of the rows in one bin."""
    if group_size > 1 and len(np.unique(stamps)) > axis.n_times:
        raise ValueError(
            f"group_size={group_size} counts rows of one person at different times, but here "
            f"different time stamps are put in one of {axis.n_times} bins, and a person may have "
            "more than one row in a bin. Pass groups=, by which all but one of them are left out, "
            "or round the time stamps so that nobody has two equal ones."
        )


def _some_times(n_times: int, wanted: int, rng: np.random.Generator) -> np.ndarray:
    """Return the first, the last and a random choice of the other times, in order."""
    inner = rng.choice(np.arange(1, n_times - 1), size=wanted - 2, replace=False)
    return np.sort(np.concatenate([[0, n_times - 1], inner]))


def _persons(groups: Any, n_rows: int) -> np.ndarray:
    """Return the number of each row's person."""
    labels = np.asarray(groups)
    if labels.shape != (n_rows,):
        raise ValueError(
            f"groups must hold the person of each of the {n_rows} rows, got shape {labels.shape}."
        )
    if pd.isna(labels).any():
        raise ValueError("groups contains missing values; every row must belong to a person.")
    codes: np.ndarray = pd.factorize(labels)[0]
    return codes


def _bounded(
    positions: np.ndarray, persons: np.ndarray, most: int, rng: np.random.Generator
) -> np.ndarray:
    """Return rows such that nobody has two at one time or more than `most` in all."""
    order = rng.permutation(len(positions))
    table = pd.DataFrame({"person": persons[order], "time": positions[order]})
    table = table[~table.duplicated(["person", "time"])]
    table = table[table.groupby("person").cumcount() < most]
    return np.sort(order[table.index.to_numpy()])
