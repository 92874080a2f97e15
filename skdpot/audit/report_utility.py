"""The figures of utility of a privacy report, measured on public rows."""

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
from sklearn.base import is_classifier, is_regressor
from sklearn.ensemble import RandomForestClassifier
from sklearn.model_selection import cross_val_score

from skdpot._utils.finite import as_points
from skdpot.audit.report_membership import last_step
from skdpot.ot.distances import sliced_wasserstein_distance
from skdpot.sampling.train_on_synthetic import train_synthetic_test_real

_SYNTHETIC = 2000  # rows that are drawn, or as many as the hold-out has


@dataclass(frozen=True)
class Figure:
    """One figure of utility, and how to read it."""

    name: str
    value: float
    meaning: str


def measure_utility(
    estimator: Any, X_holdout: Any, y_holdout: Any, rng: np.random.Generator
) -> tuple[tuple[Figure, ...], str]:
    """Measure the utility of an estimator on public rows, or return why that is not possible."""
    labelled = hasattr(estimator, "sample_labeled")
    if not (labelled or hasattr(estimator, "score")):
        name = type(last_step(estimator)).__name__
        return (), (f"{name} has no score of its own: its utility shows in what is made from it.")
    if X_holdout is None:
        return (
            (),
            "This needs public rows that the fit did not use, and their labels if there are any.",
        )
    if labelled:
        rows = as_points(X_holdout, "X_holdout")
        return (*_distances(estimator, rows, rng), *_lessons(estimator, rows, y_holdout, rng)), ""
    name, meaning = _score_in_words(estimator)
    if y_holdout is None and (name != "Score" or hasattr(last_step(estimator), "times_")):
        return (), "This needs labels, targets or time stamps of the public rows (y_holdout)."
    value = float(estimator.score(X_holdout, y_holdout))
    return (Figure(f"{name} on the hold-out", value, meaning),), ""


def _score_in_words(estimator: Any) -> tuple[str, str]:
    """Return the name of the score of an estimator, and how to read it."""
    if is_classifier(estimator):
        return "Accuracy", "share of correct predictions"
    if is_regressor(estimator):
        return "R²", "1 is perfect; 0 is as good as the mean"
    meanings = {
        "schema_": "minus the total variation distance, mean over pairs of columns; 0 is best",
        "times_": "minus the Wasserstein distance, mean over times; 0 is best",
        "inverse_transform": "minus the squared error of reconstructions; 0 is best",
    }
    known = (text for name, text in meanings.items() if hasattr(estimator, name))
    return "Score", next(known, "higher is better")


def _distances(estimator: Any, rows: np.ndarray, rng: np.random.Generator) -> Sequence[Figure]:
    """Measure the distance of synthetic rows from the hold-out, with figures to compare."""
    seed = int(rng.integers(2**31))
    made = np.asarray(estimator.sample(max(_SYNTHETIC, len(rows)), random_state=seed))
    name = "Distance of synthetic rows from the hold-out"
    meaning = "sliced Wasserstein distance, in the units of the data; 0 is perfect"
    figures = [Figure(name, sliced_wasserstein_distance(made, rows), meaning)]
    if len(rows) > 1:
        name, meaning = "Compare: distance between two halves of the hold-out", "chance alone"
        halves = np.array_split(rng.permutation(rows), 2)
        figures.append(Figure(name, sliced_wasserstein_distance(*halves), meaning))
    name = "Compare: distance of their mean, repeated, from the hold-out"
    distance = sliced_wasserstein_distance(rows.mean(axis=0, keepdims=True), rows)
    return [*figures, Figure(name, distance, "knowing nothing but the mean")]


def _lessons(
    estimator: Any, rows: np.ndarray, labels: Any, rng: np.random.Generator
) -> Sequence[Figure]:
    """Measure the accuracy of a forest that learns from synthetic rows, with figures to compare."""
    if labels is None or not hasattr(estimator, "classes_"):
        return ()
    seed = int(rng.integers(2**31))
    model = RandomForestClassifier(100, random_state=seed)
    known = np.asarray(labels)
    made = estimator.sample_labeled(max(_SYNTHETIC, len(rows)), random_state=seed)
    learned = train_synthetic_test_real(model, np.asarray(made[0]), made[1], rows, known)
    name = "Accuracy of a random forest trained on synthetic rows"
    figures = [Figure(name, learned, "tested on the hold-out")]
    counts = np.unique(known, return_counts=True)[1]
    if len(counts) > 1 and counts.min() >= 5:
        name = "Compare: the same, trained on the hold-out itself"
        accuracy = float(cross_val_score(model, rows, known, cv=5).mean())
        figures.append(Figure(name, accuracy, "five-fold cross-validation"))
    name, share = "Compare: always predicting the most frequent class", counts.max() / counts.sum()
    return [*figures, Figure(name, float(share), "share of that class in the hold-out")]
