r"""The scores of a search, and their sensitivity.

Every score is, before its noise, a sum over the held-out rows that changes by at most 1 if one of
them is replaced. This is clear for scores in [0, 1] of single rows. The sliced Wasserstein distance
is not a sum, but :math:`|W_1(P, S) - W_1(P', S)| \le W_1(P, P') \le w / n` on an interval of width
w, and directions with :math:`\|\theta\|_1 = 1` map the unit cube to intervals of width 1.
Therefore n times the mean over the directions changes by at most 1 too.
"""

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any, TypeAlias

import numpy as np
from numpy.typing import ArrayLike
from scipy.stats import wasserstein_distance
from sklearn.base import is_classifier, is_regressor
from sklearn.utils import get_tags

from skdpot._utils.finite import as_finite
from skdpot._utils.parameters import num_samples
from skdpot._utils.strangers import answers
from skdpot.search.fit_data import take

# Random directions of sliced distances, and synthetic rows of a score.
_N_DIRECTIONS = 64
_N_SYNTHETIC = 2000
# Boosting iterations of the classifier that is trained on synthetic rows.
_N_BOOSTS = 50
# Seed of synthetic and made-up rows. It is public, because they are post-processing, and fixed, so
# that a seeded search repeats.
PUBLIC_SEED = 0
_A_SCORE = "a function of fitted estimator, X and y that returns a number in [0, 1] for each row"

# Maps a fitted candidate, held-out rows and their targets to one number per row, or to their sum.
Score: TypeAlias = Callable[[Any, Any, Any], Any]


@dataclass(frozen=True)
class Scorer:
    """A score, higher being better: its name, and the sum over the rows of numbers in [0, 1].

    `function` is the function that the caller passed, if any.
    """

    name: str
    total: Score
    reads_rows: bool = True
    function: Callable[..., Any] | None = None


def find_scorer(
    scoring: str | Callable[..., Any] | None,
    score_on: str,
    score_bounds: Sequence[ArrayLike] | None,
    estimator: Any,
) -> Scorer:
    """Return the score that `scoring` names, or the default score of the estimator."""
    if score_on == "release":
        return _of_release(scoring)
    if callable(scoring):
        return Scorer(_name_of(scoring), _summed(scoring), function=scoring)
    name = _default_score(estimator) if scoring is None else scoring
    if name in (by_name := {"accuracy": _is_right, "synthetic_accuracy": _is_right_by_synthetic}):
        return Scorer(name, _summed(by_name[name]))
    if name == "absolute_error":
        return Scorer(name, _summed(_closeness(*_range(score_bounds, name, "the targets"))))
    if name == "sliced_wasserstein":
        return Scorer(name, _sliced(*_range(score_bounds, name, "each feature")))
    raise ValueError(
        f"scoring={scoring!r} is unknown. Use 'accuracy', 'absolute_error', 'synthetic_accuracy', "
        f"'sliced_wasserstein', or {_A_SCORE}, of that row alone; AUC or R2 cannot be made private."
    )


def _name_of(scoring: Callable[..., Any]) -> str:
    """Return the name of a function or of its type."""
    return str(getattr(scoring, "__name__", type(scoring).__name__))


def _summed(score: Score) -> Score:
    """Sum scores of rows, clipped to [0, 1]; a row for which a score fails or is NaN counts 0."""

    def total(estimator: Any, X: Any, y: Any) -> float:
        def ask(positions: np.ndarray) -> np.ndarray:
            some = score(estimator, take(X, positions), take(y, positions))
            return np.asarray(some, dtype=np.float64)

        scores = np.nan_to_num(answers(ask, (num_samples(X),)), nan=0.0)
        return float(np.sum(np.clip(scores, 0.0, 1.0)))

    return total


def _closeness(low: np.ndarray, high: np.ndarray) -> Score:
    """Score rows by 1 minus the absolute error, as a share of the range."""

    def score(estimator: Any, X: Any, y: Any) -> np.ndarray:
        predicted, true = (
            np.clip(np.asarray(values, dtype=np.float64), low, high)
            for values in (estimator.predict(X), y)
        )
        error = np.abs(predicted - true.reshape(predicted.shape)) / (high - low)
        return 1.0 - error.reshape(len(error), -1).mean(axis=1)

    return score


def _sliced(low: np.ndarray, high: np.ndarray) -> Score:
    """Score by the number of rows times 1 minus the mean W1 distance to synthetic rows."""

    def in_cube(values: ArrayLike) -> np.ndarray:
        cube = (np.asarray(values, dtype=np.float64) - low) / (high - low)
        return np.clip(np.nan_to_num(cube), 0.0, 1.0)

    def total(estimator: Any, X: Any, y: Any) -> float:
        synthetic = in_cube(estimator.sample(_N_SYNTHETIC, random_state=PUBLIC_SEED))
        rows = in_cube(X)
        d = rows.shape[1]
        directions = np.random.default_rng(0).normal(size=(_N_DIRECTIONS, d))
        directions = np.concatenate([np.eye(d), directions])
        directions /= np.abs(directions).sum(axis=1, keepdims=True)
        distances = [wasserstein_distance(rows @ u, synthetic @ u) for u in directions]
        return float(len(rows) * (1.0 - np.clip(np.mean(distances), 0.0, 1.0)))

    return total


def _is_right(estimator: Any, X: Any, y: Any) -> np.ndarray:
    """Score rows by 1 if the predicted class is right."""
    return np.asarray(np.asarray(estimator.predict(X)) == np.asarray(y), dtype=np.float64)


def _is_right_by_synthetic(estimator: Any, X: Any, y: Any) -> np.ndarray:
    """Score a sampler by a classifier that is trained on its samples."""
    from sklearn.ensemble import HistGradientBoostingClassifier

    rows, labels = estimator.sample_labeled(_N_SYNTHETIC, random_state=PUBLIC_SEED)
    if len(np.unique(labels)) < 2:
        return np.asarray(np.asarray(y) == labels[0], dtype=np.float64)
    model = HistGradientBoostingClassifier(max_iter=_N_BOOSTS, random_state=PUBLIC_SEED)
    return _is_right(model.fit(np.asarray(rows), labels), np.asarray(X), y)


def _distance_to_own_sketch(estimator: Any) -> float:
    """Score a sampler by minus the distance of its rows to its sketch."""
    return -float(
        estimator.sketch_.distance(estimator.sample(_N_SYNTHETIC, random_state=PUBLIC_SEED))
    )


def _of_release(scoring: str | Callable[..., Any] | None) -> Scorer:
    """Return a score that reads the release alone."""
    if scoring is None:
        scoring, name = _distance_to_own_sketch, "distance to the own sketch"
    elif callable(scoring):
        name = _name_of(scoring)
    else:
        raise ValueError(
            f'scoring={scoring!r}: with score_on="release" it must be None (minus the distance to '
            "the own sketch) or a function of the fitted estimator alone."
        )

    def total(estimator: Any, X: Any, y: Any) -> float:
        try:
            score = float(scoring(estimator))
        except Exception:  # reveals nothing beyond the release
            return -np.inf
        return -np.inf if np.isnan(score) else score

    return Scorer(name, total, reads_rows=False, function=scoring)


def _default_score(estimator: Any) -> str:
    """Return the name of the score of a classifier, a regressor or a sampler."""
    if is_classifier(estimator):
        return "accuracy"
    if is_regressor(estimator):
        return "absolute_error"
    if hasattr(estimator, "sample") and not get_tags(estimator).input_tags.string:
        return "sliced_wasserstein"
    raise ValueError(f"{type(estimator).__name__} has no usual score; pass scoring=, {_A_SCORE}.")


def _range(
    bounds: Sequence[ArrayLike] | None, needed_by: str, of: str
) -> tuple[np.ndarray, np.ndarray]:
    """Return the ends of a declared range of the targets, or of each feature."""
    if not isinstance(bounds, list | tuple) or len(bounds) != 2:
        raise ValueError(
            f"scoring={needed_by!r} needs score_bounds=(low, high), a public range of {of}, "
            "so that no record moves the score by more than a known amount."
        )
    low, high = (as_finite(end, "score_bounds") for end in bounds)
    if not np.all(low < high):
        raise ValueError("score_bounds=(low, high) needs low < high.")
    return low, high
