"""Membership and utility in a privacy report, from public rows or rows given for it."""

import warnings
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from functools import partial
from typing import Any

import numpy as np
from sklearn.base import is_classifier, is_regressor
from sklearn.ensemble import RandomForestClassifier
from sklearn.model_selection import cross_val_score
from sklearn.pipeline import Pipeline
from sklearn.utils import get_tags

from skdpot.audit.membership.attacks import read_rows
from skdpot.audit.membership.synthetic import SyntheticMembership, synthetic_membership
from skdpot.audit.report.audit import unpaid_copy
from skdpot.estimators._search_plan import take
from skdpot.metrics import sliced_wasserstein_distance, train_synthetic_test_real
from skdpot.preprocessing.table_encoder import TableEncoder
from skdpot.preprocessing.table_frames import Table
from skdpot.privacy.spent import silent_parts, total_spent

__all__ = ["Figure", "MembershipTrial", "measure_utility", "try_membership"]

_FEWEST = 40  # rows of a hold-out that can be cut into members, others and a reference
_SYNTHETIC = 2000


@dataclass(frozen=True, eq=False, kw_only=True)
class MembershipTrial:
    """Attacks on synthetic rows: of the release itself, of a copy, or why there are none."""

    found: SyntheticMembership | None
    of_members: bool = False
    reason: str = ""


@dataclass(frozen=True)
class Figure:
    """One figure of utility, and how to read it."""

    name: str
    value: float
    meaning: str


class _ThroughPipeline:
    """A pipeline that ends in a sampler, as a sampler of rows as they came in."""

    def __init__(self, pipeline: Any) -> None:
        self.pipeline = pipeline
        # What has parts without an event claims nothing.
        self.privacy_spent_ = None if silent_parts(pipeline) else total_spent(pipeline)

    def sample(self, n_samples: int, random_state: Any = None) -> np.ndarray:
        """Draw rows, and lead them back through the steps before the sampler."""
        made = self.pipeline[-1].sample(n_samples, random_state=random_state)
        return np.asarray(self.pipeline[:-1].inverse_transform(made))


class _EncodedTable:
    """A synthesizer of tables, as a sampler of the points that its schema encodes rows in."""

    def __init__(self, encoder: TableEncoder, synthesizer: Any) -> None:
        self.synthesizer, self.encoder = synthesizer, encoder
        self.privacy_spent_ = synthesizer.privacy_spent_

    def sample(self, n_samples: int, random_state: Any = None) -> np.ndarray:
        """Draw rows and encode them."""
        return self.encoder.transform(self.synthesizer.sample(n_samples, random_state=random_state))


def try_membership(
    estimator: Any,
    X_holdout: Any,
    y_holdout: Any,
    X_members: Any,
    rng: np.random.Generator,
) -> MembershipTrial:
    """Attack the estimator on its members if they are given, else a copy on the hold-out.

    Of a pipeline that ends in a sampler, synthetic rows are led back through the other steps.
    Only `X_members` are private rows; `rng` cuts the hold-out, and draws.
    """
    reason = _why_no_rows(estimator)
    if not reason and X_holdout is None:
        reason = "No public rows of the same population were given (X_holdout)."
    if reason:
        return MembershipTrial(found=None, reason=reason)
    given, members, labels = X_holdout, X_members, y_holdout
    wrapped: Callable[[Any], Any] = _sampler
    options: dict[str, Any] = {}
    if hasattr(
        estimator, "schema_"
    ):  # tables of any columns: as the schema encodes them in numbers
        schema = estimator.schema_
        given, members = (
            X[list(schema.names)] if Table.is_frame(X) else X for X in (given, members)
        )
        encoder = TableEncoder(schema).fit(given)
        rows = encoder.transform(given)
        members = None if members is None else encoder.transform(members)
        wrapped, options, labels = partial(_EncodedTable, encoder), {"schema": schema}, None
    else:
        given = rows = read_rows(X_holdout, "X_holdout")
    seed = int(rng.integers(2**31))
    if members is not None:
        found = synthetic_membership(wrapped(estimator), members, rows, random_state=seed)
        return MembershipTrial(found=found, of_members=True)
    reason = _why_no_copy(estimator, len(rows), labels)
    if reason:
        return MembershipTrial(found=None, reason=reason)
    inside, outside = np.array_split(rng.permutation(len(rows)), 2)
    labels = None if labels is None else np.asarray(labels)[inside]
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")  # of a fit on public rows
        copy = unpaid_copy(estimator).set_params(**options).fit(take(given, inside), labels)
        found = synthetic_membership(wrapped(copy), rows[inside], rows[outside], random_state=seed)
    return MembershipTrial(found=found)


def _sampler(estimator: Any) -> Any:
    """Return what draws rows as they came in."""
    return estimator if hasattr(estimator, "sample") else _ThroughPipeline(estimator)


def _last(estimator: Any) -> Any:
    """Return the last step of a pipeline, or the estimator itself."""
    return estimator.steps[-1][1] if isinstance(estimator, Pipeline) else estimator


def _why_no_rows(estimator: Any) -> str:
    """Say why an estimator has no synthetic rows to attack; empty if it has."""
    last, name = _last(estimator), type(_last(estimator)).__name__
    if not hasattr(last, "sample"):
        return f"These attacks are for synthetic rows, and {name} has no method sample."
    if hasattr(last, "sample_marginal"):
        return (
            f"{name} publishes paths, and these attacks are for rows of one population. Attack "
            "those of one time with skdpot.audit.synthetic_membership("
            "sampler.sample_marginal(t, n), members, others)."
        )
    if last is not estimator and not hasattr(estimator[:-1], "inverse_transform"):
        return (
            f"{name} makes rows as the steps before it hand them on, and these have no "
            "inverse_transform that leads them back to rows as they came in."
        )
    return ""


def _why_no_copy(estimator: Any, n_rows: int, labels: Any) -> str:
    """Say why no copy can be fitted to one half of the hold-out; empty if one can."""
    last = _last(estimator)
    if n_rows < _FEWEST:
        return f"X_holdout has {n_rows} rows; the attacks need at least {_FEWEST}."
    if getattr(getattr(last, "penalty_", None), "needs_groups", False):
        return (
            f"A copy of {type(last).__name__} must be fitted with sensitive_features, and this "
            "report does not take those of the hold-out. Fit one to a half of public rows, and "
            "pass it to skdpot.audit.synthetic_membership."
        )
    needed = getattr(last, "conditional", False) is True or get_tags(last).target_tags.required
    if needed and labels is None:
        return "Fitting a copy takes labels of the hold-out (y_holdout), and none were given."
    return ""


def measure_utility(
    estimator: Any, X_holdout: Any, y_holdout: Any, rng: np.random.Generator
) -> tuple[tuple[Figure, ...], str]:
    """Measure how useful an estimator is on public rows, or say why that cannot be."""
    labelled = hasattr(estimator, "sample_labeled")
    if not (labelled or hasattr(estimator, "score")):
        return (), (
            f"{type(_last(estimator)).__name__} has no score of its own: how useful it is, shows "
            "in what is made with it."
        )
    if X_holdout is None:
        return (), "It takes public rows (X_holdout), and labels where there are any (y_holdout)."
    if labelled:
        rows = read_rows(X_holdout, "X_holdout")
        return (*_distances(estimator, rows, rng), *_lessons(estimator, rows, y_holdout, rng)), ""
    if y_holdout is None and (_is_predictor(estimator) or hasattr(_last(estimator), "times_")):
        return (), "It takes labels, targets or time stamps of the public rows (y_holdout)."
    name, meaning = _score_in_words(estimator)
    return (Figure(name, float(estimator.score(X_holdout, y_holdout)), meaning),), ""


def _is_predictor(estimator: Any) -> bool:
    return bool(is_classifier(estimator) or is_regressor(estimator))


def _score_in_words(estimator: Any) -> tuple[str, str]:
    """Name the score of an estimator."""
    if is_classifier(estimator):
        return "Accuracy on the hold-out", "share of right predictions"
    if is_regressor(estimator):
        return "R² on the hold-out", "1 is perfect; 0 is as good as the mean"
    if hasattr(estimator, "schema_"):
        meaning = "minus the total variation distance, mean over pairs of columns; 0 is best"
        return "Score on the hold-out", meaning
    if hasattr(estimator, "times_"):
        return "Score on the hold-out", "minus the Wasserstein distance, mean over times; 0 is best"
    if hasattr(estimator, "inverse_transform"):
        return "Score on the hold-out", "minus the squared error of reconstructions; 0 is best"
    return "Score on the hold-out", "higher is better"


def _distances(estimator: Any, rows: np.ndarray, rng: np.random.Generator) -> Sequence[Figure]:
    """Measure how far synthetic rows are from the hold-out, with two figures to compare."""
    seed = int(rng.integers(2**31))
    made = np.asarray(estimator.sample(max(_SYNTHETIC, len(rows)), random_state=seed))
    figures = [
        Figure(
            "Distance of synthetic rows from the hold-out",
            sliced_wasserstein_distance(made, rows),
            "sliced Wasserstein distance, in the units of the data; 0 is perfect",
        )
    ]
    if len(rows) > 1:
        halves = np.array_split(rng.permutation(rows), 2)
        figures.append(
            Figure(
                "Compare: distance between two halves of the hold-out",
                sliced_wasserstein_distance(*halves),
                "what chance alone makes of so few rows",
            )
        )
    figures.append(
        Figure(
            "Compare: distance of their mean, repeated, from the hold-out",
            sliced_wasserstein_distance(rows.mean(axis=0, keepdims=True), rows),
            "what knowing nothing but the mean would give",
        )
    )
    return figures


def _lessons(
    estimator: Any, rows: np.ndarray, labels: Any, rng: np.random.Generator
) -> Sequence[Figure]:
    """Measure what a classifier learns from synthetic rows."""
    if labels is None or not hasattr(estimator, "classes_"):
        return ()
    seed = int(rng.integers(2**31))
    model = RandomForestClassifier(100, random_state=seed)
    known = np.asarray(labels)
    made = estimator.sample_labeled(max(_SYNTHETIC, len(rows)), random_state=seed)
    figures = [
        Figure(
            "Accuracy of a random forest trained on synthetic rows",
            train_synthetic_test_real(model, np.asarray(made[0]), made[1], rows, known),
            "tested on the hold-out",
        )
    ]
    counts = np.unique(known, return_counts=True)[1]
    if len(counts) > 1 and counts.min() >= 5:
        figures.append(
            Figure(
                "Compare: the same, trained on the hold-out itself",
                float(cross_val_score(model, rows, known, cv=5).mean()),
                "five-fold cross-validation",
            )
        )
    figures.append(
        Figure(
            "Compare: always predicting the most frequent class",
            float(counts.max() / counts.sum()),
            "share of that class in the hold-out",
        )
    )
    return figures
