"""The public splits of a search into rows to train on and rows to score."""

from dataclasses import dataclass
from numbers import Integral
from typing import Any

import numpy as np
from numpy.typing import ArrayLike
from sklearn.model_selection import KFold, ShuffleSplit

# More splits than this are taken for a mistake.
_MOST_SPLITS = 1000


@dataclass(frozen=True, eq=False)
class Splits:
    """Folds (train, held out) of positions, and the largest numbers of fits and scores of a record.

    Folds are disjoint if no record is both trained on and held out.
    """

    folds: tuple[tuple[np.ndarray, np.ndarray], ...]
    most_fits: int
    most_scores: int
    disjoint: bool

    @property
    def n_scored(self) -> int:
        """Number of scored rows, summed over the folds."""
        return sum(len(held_out) for _, held_out in self.folds)

    @property
    def n_trained(self) -> int:
        """Number of rows of the smallest fit."""
        return min(len(train) for train, _ in self.folds)


def draw_splits(cv: Any, n_samples: int, rng: np.random.Generator) -> Splits:
    """Draw the split of a search."""
    pairs: list[tuple[np.ndarray, np.ndarray]] = []
    fits, scores = np.zeros((2, n_samples), dtype=int)
    for pair in _pairs(cv, n_samples, rng):
        if len(pairs) >= _MOST_SPLITS:
            raise ValueError(f"`cv` gives more than {_MOST_SPLITS} splits.")
        train, held_out = (_positions(part, n_samples) for part in pair)
        if np.intersect1d(train, held_out).size:
            raise ValueError("A split of `cv` trains on rows that it holds out.")
        pairs.append((train, held_out))
        fits[train] += 1
        scores[held_out] += 1
    if not pairs:
        raise ValueError("`cv` gives no split; at least one is needed.")
    disjoint = not np.any((fits > 0) & (scores > 0))
    return Splits(
        folds=tuple(pairs),
        most_fits=int(fits.max()),
        most_scores=int(scores.max()),
        disjoint=disjoint,
    )


def _pairs(cv: Any, n_samples: int, rng: np.random.Generator) -> Any:
    """Return pairs of positions; a splitter is given a column of zeros only."""
    try:
        if isinstance(cv, Integral) and not isinstance(cv, bool):
            cv = KFold(int(cv), shuffle=True, random_state=int(rng.integers(2**31)))
        elif isinstance(cv, float):
            held_out, seed = round(cv * n_samples), int(rng.integers(2**31))
            cv = ShuffleSplit(1, test_size=held_out, random_state=seed)
        return list(cv.split(np.zeros((n_samples, 1)))) if hasattr(cv, "split") else cv
    except (TypeError, ValueError) as error:
        raise ValueError(
            f"`cv` gives no split from the number of rows alone: {error} Labels and groups are "
            "private, and a split by them reveals them. Use a share, a number of folds, KFold, "
            "ShuffleSplit, or a list of public (train, held_out) positions."
        ) from None


def _positions(part: ArrayLike, n_samples: int) -> np.ndarray:
    """Check the positions of one part of a split."""
    positions = np.asarray(part)
    whole = positions.ndim == 1 and positions.dtype.kind in "iu" and positions.size > 0
    if not whole or positions.min() < 0 or positions.max() >= n_samples:
        most = n_samples - 1
        raise ValueError(f"`cv` must give pairs of non-empty arrays of positions from 0 to {most}.")
    if len(np.unique(positions)) < len(positions):
        raise ValueError("A part of a split of `cv` names a row twice.")
    return positions
