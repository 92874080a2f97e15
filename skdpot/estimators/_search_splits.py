r"""Which rows a trial is trained on and which ones it is scored on, and what a record can change.

The split is drawn once, from the number of rows alone, and is public. Under replace-one a record
keeps its place, so that both neighbours have the same split.

**One split.** A record is trained on or held out, never both. If it is trained on, neighbours
differ in the fit; the score is then the same function of the model and of the same held-out rows,
and costs nothing more: post-processing, given rows that do not differ. If it is held out, the
model has the same law under both, and only the score differs. So a trial costs the *larger* of
both (parallel composition), and each may use the privacy of the whole trial.

**Folds.** With k folds a record is trained on in k − 1 fits and held out of one, so that its fits
and its score *add up*: :math:`\mu^2 = (k - 1) \mu_{fit}^2 + \mu_{score}^2`. In general a record
that is trained on a times and held out b times pays :math:`a \mu_{fit}^2 + (b / \sigma)^2`, since
the sum of all scores, each in [0, 1], moves by b at most; the trial costs the largest of these.

It would be wrong to draw the split from the data: a stratified split moves *other* records between
the parts when one label changes, and one to hold out groups of similar rows even more so. For the
same reason nothing may be learned from all rows beforehand, such as a scale or a selection of
features, unless it is private and charged.
"""

from dataclasses import dataclass
from numbers import Integral
from typing import Any

import numpy as np
from sklearn.model_selection import KFold, ShuffleSplit

__all__ = ["Splits", "draw_splits", "take"]

_WORST_SPLITS = 1000


@dataclass(frozen=True, eq=False)
class Splits:
    """Pairs of rows to train on and rows to score on.

    Parameters
    ----------
    folds : tuple of (ndarray, ndarray)
        Positions.
    most_fits : int
        In how many fits one record can be.
    most_scores : int
        In how many held-out parts one record can be.
    disjoint : bool
        Whether no record is both trained on and held out.
    """

    folds: tuple[tuple[np.ndarray, np.ndarray], ...]
    most_fits: int
    most_scores: int
    disjoint: bool

    @property
    def n_scored(self) -> int:
        """Number of scores that are added up."""
        return sum(len(held_out) for _, held_out in self.folds)

    @property
    def n_trained(self) -> int:
        """Number of rows of the smallest fit."""
        return min(len(train) for train, _ in self.folds)


def draw_splits(cv: Any, n_samples: int, rng: np.random.Generator, caller: str) -> Splits:
    """Draw the split of a search.

    Parameters
    ----------
    cv : float, int, splitter or iterable of (train, held_out)
        Share of the rows to hold out once, number of folds, an object of scikit-learn that splits
        by the number of rows alone, or public positions.
    n_samples : int
        Number of rows.
    rng : numpy.random.Generator
        Public randomness.
    caller : str
        Name for messages.

    Returns
    -------
    Splits

    Raises
    ------
    ValueError
        If there is no such split.
    """
    pairs: list[tuple[np.ndarray, np.ndarray]] = []
    for pair in _pairs(cv, n_samples, rng, caller):
        if len(pairs) >= _WORST_SPLITS:
            raise ValueError(f"{caller}: `cv` gives more than {_WORST_SPLITS} splits.")
        train, held_out = (_positions(part, n_samples, caller) for part in pair)
        if np.intersect1d(train, held_out).size:
            raise ValueError(f"{caller}: a split of `cv` trains on rows that it holds out.")
        pairs.append((train, held_out))
    if not pairs:
        raise ValueError(f"{caller}: `cv` gives no split; at least one is needed.")
    fits, scores = (np.zeros(n_samples, dtype=int) for _ in range(2))
    for train, held_out in pairs:
        fits[train] += 1
        scores[held_out] += 1
    return Splits(
        tuple(pairs),
        int(fits.max()),
        int(scores.max()),
        not bool(((fits > 0) & (scores > 0)).any()),
    )


def take(values: Any, positions: np.ndarray) -> Any:
    """Return some rows of an array or a table, in the form that it has."""
    if values is None:
        return None
    if hasattr(values, "iloc"):
        return values.iloc[positions]
    if hasattr(values, "columns") or type(values).__module__.startswith("polars"):
        return values[positions.tolist()]
    return np.asarray(values)[positions]


def _pairs(cv: Any, n_samples: int, rng: np.random.Generator, caller: str) -> Any:
    """Return the splits; whatever makes them sees a column of zeros."""
    if isinstance(cv, Integral) and not isinstance(cv, bool):
        n_folds = int(cv)
        if not 2 <= n_folds <= n_samples:
            raise ValueError(
                f"{caller}: cv={n_folds} folds need at least as many rows, and there are "
                f"{n_samples} samples. Use fewer folds, at least 2, or a share such as cv=0.2."
            )
        cv = KFold(n_folds, shuffle=True, random_state=int(rng.integers(2**31)))
    elif isinstance(cv, float):
        n_held_out = round(cv * n_samples)
        if not 0.0 < cv < 1.0 or not 1 <= n_held_out < n_samples:
            raise ValueError(
                f"{caller}: cv={cv!r} holds out {n_held_out} of the rows, of which there are "
                f"n_samples={n_samples}; both parts need at least one."
            )
        cv = ShuffleSplit(1, test_size=n_held_out, random_state=int(rng.integers(2**31)))
    if not hasattr(cv, "split"):
        return cv
    try:
        return list(cv.split(np.zeros((n_samples, 1))))
    except (TypeError, ValueError) as error:
        raise ValueError(
            f"{caller}: {type(cv).__name__} does not split by the number of rows alone: {error} "
            "Labels and groups are private, and a split that depends on them shows them. Use a "
            "number, KFold, ShuffleSplit, or a list of public (train, held_out) positions."
        ) from None


def _positions(part: Any, n_samples: int, caller: str) -> np.ndarray:
    positions = np.asarray(part)
    whole = positions.ndim == 1 and positions.dtype.kind in "iu" and positions.size > 0
    if not whole or positions.min() < 0 or positions.max() >= n_samples:
        raise ValueError(
            f"{caller}: `cv` must give pairs of non-empty arrays of positions from 0 to "
            f"{n_samples - 1}."
        )
    if len(np.unique(positions)) < len(positions):
        raise ValueError(f"{caller}: a part of a split of `cv` names a row twice.")
    return positions
