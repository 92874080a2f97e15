"""
The data of ``bench_trajectories.py``: strokes of which each person gives one random point.

``mnist_strokes.npz`` has 10 points a stroke for the digits 1 and 7 and 15 for the others, in
thousandths of the unit square (MNIST as pen strokes, by E. D. de Jong); ``pendigits.npz`` 8 points
in hundredths (Alpaydin and Alimoglu, UCI). Only the digits of the paper, which are mostly written
without lifting the pen.
"""

from __future__ import annotations

from dataclasses import dataclass
from functools import cached_property
from pathlib import Path

import numpy as np

from skdpot.datasets import one_point_per_person
from skdpot.trajectories.path_metrics import resample_paths

__all__ = ["DIGITS", "GRID", "SIZES", "StrokeTask", "stroke_tasks"]

DIGITS = (1, 2, 3, 6, 7, 9)
# Points at each time (and paths) that are compared, and with how many of people.
SIZES = {"strokes": (500, 1000), "pendigits": (400, 500)}
GRID = np.linspace(0.0, 1.0, 30)


@dataclass(frozen=True, eq=False)
class StrokeTask:
    """
    Strokes of one digit, and who gave which point.

    Parameters
    ----------
    name : str
        Digit.
    paths : ndarray of shape (n, T, 2)
        Strokes in the unit square.
    n_drawn : int
        Points at each time, and paths, that are compared ...
    n_true : int
        ... with so many of people.
    seed : int
        Chooses the point that each person gives, and the people to compare with.
    """

    name: str
    paths: np.ndarray
    n_drawn: int
    n_true: int
    seed: int

    @property
    def times(self) -> np.ndarray:
        """Times of a stroke's points."""
        return np.linspace(0.0, 1.0, self.paths.shape[1])

    @cached_property
    def seen(self) -> tuple[np.ndarray, np.ndarray]:
        """The points that were given, and their times."""
        return one_point_per_person(self.paths, self.times, random_state=self.seed)

    @cached_property
    def scarcest(self) -> int:
        """Number of rows of the time with the fewest."""
        return int(np.unique(self.seen[1], return_counts=True)[1].min())

    def rows(self, i: int) -> np.ndarray:
        """Return the points that were seen at time i, or as many as are compared."""
        X, t = self.seen
        return self._rng(i, 0).permutation(X[t == self.times[i]])[: self.n_drawn]

    def truth(self, i: int) -> tuple[np.ndarray, np.ndarray]:
        """Return points at time i of people who were seen at another time: two samples."""
        unseen = self.paths[self.seen[1] != self.times[i], i]
        return self._two_samples(self._rng(i, 1).permutation(unseen))

    def true_paths(self) -> tuple[np.ndarray, np.ndarray]:
        """Return whole strokes, read at the times of the grid: two samples."""
        strokes = self._rng(0, 2).permutation(self.paths)
        return self._two_samples(resample_paths(strokes, self.times, GRID))

    def _two_samples(self, people: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
        return people[: self.n_true], people[self.n_true : self.n_true + self.n_drawn]

    def _rng(self, i: int, purpose: int) -> np.random.Generator:
        return np.random.default_rng([self.seed, i, purpose])


def stroke_tasks(data: str, folder: Path, seeds: int) -> list[StrokeTask]:
    """
    Return the tasks of one data set, seed by seed.

    Parameters
    ----------
    data : {"strokes", "pendigits"}
        Which file.
    folder : Path
        Where it is.
    seeds : int
        Number of draws of who gives which point.

    Returns
    -------
    list of StrokeTask
    """
    digits = _mnist_strokes(folder) if data == "strokes" else _pendigits(folder)
    return [
        StrokeTask(name, paths, *SIZES[data], seed)
        for seed in range(seeds)
        for name, paths in digits.items()
    ]


def _mnist_strokes(folder: Path) -> dict[str, np.ndarray]:
    with np.load(folder / "mnist_strokes.npz") as file:
        return {str(digit): file[f"digit_{digit}"] / 1000 for digit in DIGITS}


def _pendigits(folder: Path) -> dict[str, np.ndarray]:
    with np.load(folder / "pendigits.npz") as file:
        paths = np.concatenate([file["X_train"], file["X_test"]]) / 100
        digits = np.concatenate([file["y_train"], file["y_test"]])
    return {str(digit): paths[digits == digit] for digit in DIGITS}
