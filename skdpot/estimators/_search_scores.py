r"""Scores of which it is known how far one held-out record moves them.

Every score here is, before its noise, a sum over the held-out rows that moves by at most 1 when
one of them is replaced. For a score in [0, 1] a row, of the row alone, that is clear. The sliced
Wasserstein distance is no sum, but :math:`|W_1(P, S) - W_1(P', S)| \le W_1(P, P') \le w / n` on an
interval of width w, and directions with :math:`\|\theta\|_1 = 1` map the unit cube to intervals of
width 1: so n times the mean over the directions moves by 1 too.
"""

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import numpy as np
from scipy.stats import wasserstein_distance
from sklearn.base import is_classifier, is_regressor
from sklearn.utils import get_tags

from skdpot._utils.validation import as_finite

__all__ = ["Scorer", "find_scorer"]

_N_DIRECTIONS = 64
_N_SYNTHETIC = 2000
_SEED = 0  # public: synthetic rows are post-processing, and a seeded search must repeat

# From a fitted candidate, held-out rows and their targets to a sum of scores.
Total = Callable[[Any, Any, Any], float]


@dataclass(frozen=True)
class Scorer:
    """A score, higher being better.

    Parameters
    ----------
    name : str
        For people.
    total : callable
        Returns the sum over the rows of what lies in [0, 1].
    reads_rows : bool, default=True
        False for a score of what a candidate has released, which needs neither rows nor noise.
    """

    name: str
    total: Total
    reads_rows: bool = True


def find_scorer(
    scoring: Any, score_on: str, score_bounds: Any, estimator: Any, caller: str
) -> Scorer:
    """Return the score that was asked for, or the usual one of the estimator.

    Parameters
    ----------
    scoring : str, callable or None
        See `PrivateSearchCV`.
    score_on : {"held_out", "release"}
        What it looks at.
    score_bounds : (low, high) or None
        Public range.
    estimator : estimator
        What is searched.
    caller : str
        Name for messages.

    Returns
    -------
    Scorer

    Raises
    ------
    ValueError
        If it is unknown, or a range is missing.
    """
    if score_on == "release":
        return _of_release(scoring, caller)
    if callable(scoring):
        return Scorer(getattr(scoring, "__name__", type(scoring).__name__), _Rows(scoring, caller))
    name = _usual(estimator, caller) if scoring is None else scoring
    if name == "accuracy":
        return Scorer(name, _Rows(_is_right, caller))
    if name == "synthetic_accuracy":
        return Scorer(name, _Rows(_is_right_by_synthetic, caller))
    if name in ("absolute_error", "sliced_wasserstein"):
        of = "the targets" if name == "absolute_error" else "each feature"
        low, high = _range(score_bounds, f'scoring="{name}"', of, caller)
        if name == "sliced_wasserstein":
            return Scorer(name, _Sliced(low, high))
        return Scorer(name, _Rows(_Closeness(low, high), caller))
    raise ValueError(
        f"{caller}: scoring={scoring!r} is unknown. Use 'accuracy', 'absolute_error', "
        "'synthetic_accuracy', 'sliced_wasserstein', or a function of a fitted estimator, X and y "
        "that returns one number in [0, 1] for each row, of that row alone. Scores without such a "
        "bound (AUC, R2, a likelihood) cannot be made private here."
    )


@dataclass(frozen=True)
class _Rows:
    """Sum of a score a row, which is clipped to [0, 1]; what is no number counts 0."""

    score: Callable[[Any, Any, Any], Any]
    caller: str

    def __call__(self, estimator: Any, X: Any, y: Any) -> float:
        scores = np.asarray(self.score(estimator, X, y), dtype=np.float64)
        if scores.shape != (len(X),):
            raise ValueError(
                f"{self.caller}: the score must return one number a row, shape ({len(X)},), got "
                f"shape {scores.shape}."
            )
        return float(np.sum(np.clip(np.nan_to_num(scores, nan=0.0), 0.0, 1.0)))


@dataclass(frozen=True)
class _Closeness:
    """1 minus the absolute error, as a share of the range."""

    low: np.ndarray
    high: np.ndarray

    def __call__(self, estimator: Any, X: Any, y: Any) -> np.ndarray:
        predicted, true = (
            np.clip(np.asarray(values, dtype=np.float64), self.low, self.high)
            for values in (estimator.predict(X), y)
        )
        error = np.abs(predicted - true.reshape(predicted.shape)) / (self.high - self.low)
        closeness: np.ndarray = 1.0 - error.reshape(len(error), -1).mean(axis=1)
        return closeness


@dataclass(frozen=True)
class _Sliced:
    """The number of rows times 1 minus the mean W1 distance to synthetic rows."""

    low: np.ndarray
    high: np.ndarray

    def __call__(self, estimator: Any, X: Any, y: Any) -> float:
        synthetic = self._in_cube(estimator.sample(_N_SYNTHETIC, random_state=_SEED))
        rows = self._in_cube(X)
        d = rows.shape[1]
        directions = np.random.default_rng(0).normal(size=(_N_DIRECTIONS, d))
        directions = np.concatenate([np.eye(d), directions])
        directions /= np.abs(directions).sum(axis=1, keepdims=True)
        distances = [wasserstein_distance(rows @ u, synthetic @ u) for u in directions]
        return float(len(rows) * (1.0 - np.clip(np.mean(distances), 0.0, 1.0)))

    def _in_cube(self, values: Any) -> np.ndarray:
        cube = (np.asarray(values, dtype=np.float64) - self.low) / (self.high - self.low)
        return np.clip(np.nan_to_num(cube), 0.0, 1.0)


def _is_right(estimator: Any, X: Any, y: Any) -> np.ndarray:
    return np.asarray(np.asarray(estimator.predict(X)) == np.asarray(y), dtype=np.float64)


def _is_right_by_synthetic(estimator: Any, X: Any, y: Any) -> np.ndarray:
    """Score a sampler by a classifier that is trained on what it samples."""
    from sklearn.ensemble import HistGradientBoostingClassifier

    rows, labels = estimator.sample_labeled(_N_SYNTHETIC, random_state=_SEED)
    if len(np.unique(labels)) < 2:
        return np.asarray(np.asarray(y) == labels[0], dtype=np.float64)
    model = HistGradientBoostingClassifier(max_iter=50, random_state=_SEED)
    return _is_right(model.fit(np.asarray(rows), labels), np.asarray(X), y)


def _distance_to_own_sketch(estimator: Any) -> float:
    return -float(estimator.sketch_.distance(estimator.sample(_N_SYNTHETIC, random_state=_SEED)))


def _of_release(scoring: Any, caller: str) -> Scorer:
    if scoring is None:
        scoring, name = _distance_to_own_sketch, "distance to the own sketch"
    elif callable(scoring):
        name = getattr(scoring, "__name__", type(scoring).__name__)
    else:
        raise ValueError(
            f'{caller}: with score_on="release" `scoring` must be None (minus the distance of '
            "synthetic rows to the sketch that they are made from) or a function of the fitted "
            f"estimator alone, got {scoring!r}."
        )

    def total(estimator: Any, X: Any, y: Any) -> float:
        score = float(scoring(estimator))
        return -np.inf if np.isnan(score) else score

    return Scorer(name, total, reads_rows=False)


def _usual(estimator: Any, caller: str) -> str:
    if is_classifier(estimator):
        return "accuracy"
    if is_regressor(estimator):
        return "absolute_error"
    if hasattr(estimator, "sample") and not get_tags(estimator).input_tags.string:
        return "sliced_wasserstein"
    raise ValueError(
        f"{caller}: {type(estimator).__name__} has no usual score; pass scoring=, a function of a "
        "fitted estimator, X and y that returns one number in [0, 1] for each row."
    )


def _range(given: Any, needed_by: str, of: str, caller: str) -> tuple[np.ndarray, np.ndarray]:
    if not isinstance(given, list | tuple) or len(given) != 2:
        raise ValueError(
            f"{caller}: {needed_by} needs score_bounds=(low, high), a public range of {of}: "
            "without one, a single record could move the score by any amount."
        )
    low, high = (as_finite(end, "score_bounds") for end in given)
    if not np.all(low < high):
        raise ValueError(f"{caller}: score_bounds=(low, high) needs low < high.")
    return low, high
