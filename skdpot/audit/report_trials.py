"""The audits, membership attacks and figures of utility of a privacy report."""

import warnings
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from functools import partial
from types import SimpleNamespace
from typing import Any

import numpy as np
from sklearn.base import clone, is_classifier, is_regressor
from sklearn.ensemble import RandomForestClassifier
from sklearn.model_selection import cross_val_score
from sklearn.pipeline import Pipeline
from sklearn.utils import get_tags
from tqdm.auto import tqdm

from skdpot._utils.validation import as_points
from skdpot.audit.canaries import NoKnownAttackError, numbered
from skdpot.audit.membership import SyntheticMembership, synthetic_membership
from skdpot.audit.one_run import AuditResult, one_run_audit
from skdpot.ot.distances import sliced_wasserstein_distance
from skdpot.privacy.pipelines import leaves
from skdpot.privacy.spent import silent_parts, total_spent
from skdpot.sampling.train_on_synthetic import train_synthetic_test_real
from skdpot.search.fit_data import take
from skdpot.tables.encoder import TableEncoder
from skdpot.tables.frames import Table

_MANY, _FEW = 1000, 100
# Rows beside the canaries; the scores of trainings take time with the cube of all rows.
_MOST_ROWS, _FEWEST_ROWS = 2000, 200
# Parameters that change what a copy costs or shows, and nothing that it releases.
_QUIET = {"budget": None, "random_state": None, "verbose": 0}
_FIGURES = (
    "epsilon_lower", "gaussian_epsilon_lower", "ceiling", "confidence", "epsilon", "delta",
    "n_canaries", "n_guesses", "n_correct", "power", "leak", "refuted",
)  # fmt: skip


@dataclass(frozen=True, eq=False)
class PartAudit:
    """The audit of one private estimator, or the reason why there is none."""

    name: str
    result: AuditResult | None
    reason: str = ""
    n_rows: int = 0
    sight: str = ""

    @property
    def could_refute(self) -> bool:
        """Whether the audit would have found missing noise in every release."""
        noise = None if self.result is None else self.result.noise
        return noise is not None and noise.seen_below is not None and not noise.blind

    @property
    def verdict(self) -> str:
        """The result in words, with bounds rounded down."""
        if self.result is None:
            return f"{self.name} was not audited. {self.reason}"
        return f"{self.name}: {self.result.verdict}"

    @property
    def facts(self) -> dict[str, Any]:
        """The figures of the audit by name."""
        names = ("name", "reason", "n_rows", "sight", "verdict", "could_refute")
        facts = {name: getattr(self, name) for name in names}
        if self.result is not None:
            facts |= {name: getattr(self.result, name) for name in _FIGURES}
        return facts


def private_parts(estimator: Any) -> Iterator[tuple[str, Any]]:
    """Yield the fitted private estimators in an estimator, or itself, each with its name."""
    for _, part in leaves(estimator):
        if hasattr(part, "privacy_spent_"):
            # One that fits another, as `ClientContribution` does, releases what that one does.
            inner = getattr(part, "estimator_", part)
            yield type(inner).__name__, inner


def unpaid_copy(estimator: Any) -> Any:
    """Clone an estimator without its budget and its seed."""
    copy = clone(estimator)
    # Pipelines take nothing but a truth value for `verbose`.
    quiet = {
        name: False if isinstance(value, bool) else _QUIET[last]
        for name, value in copy.get_params().items()
        if (last := name.rpartition("__")[2]) in _QUIET
    }
    return copy.set_params(**quiet)


def audit_copies(
    parts: Sequence[tuple[str, Any]],
    n_canaries: int | None,
    confidence: float,
    rng: np.random.Generator,
    verbose: int = 0,
) -> tuple[PartAudit, ...]:
    """Audit a copy of each estimator on made-up rows; `confidence` is that of all bounds."""
    tried = sum(not _is_public(part) for _, part in parts)
    each = 1.0 - (1.0 - confidence) / max(tried, 1)
    bar = tqdm(parts, desc="audits", disable=verbose <= 0)
    return tuple(_audit(name, part, n_canaries, each, rng) for name, part in bar)


def _is_public(part: Any) -> bool:
    return np.isinf(part.privacy_spent_.epsilon) and getattr(part, "private", True) is False


def _audit(
    name: str, part: Any, n_canaries: int | None, confidence: float, rng: np.random.Generator
) -> PartAudit:
    if _is_public(part):
        return PartAudit(name, None, "It was fitted to public rows, without noise.")
    sketch = getattr(part, "sketch_", part)
    n_numbers = int(sketch.statistic_.size) if hasattr(sketch, "statistic_") else 0
    n_rows = _FEWEST_ROWS
    if n_canaries is None:
        # Even without noise no more coins can be read than there are numbers.
        n_canaries = int(np.clip(n_numbers // 2, _FEW, _MANY))
    if n_numbers > 0 and hasattr(part, "n_samples_"):
        n_rows = int(np.clip(part.n_samples_ - n_canaries, _FEWEST_ROWS, _MOST_ROWS))
    rows, parameters = simulated_rows(part, n_rows, rng)
    copy = unpaid_copy(part).set_params(**parameters)
    options: dict[str, Any] = {"canaries": n_canaries, "confidence": confidence}
    options |= rows | {"random_state": int(rng.integers(2**31))}
    try:
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")  # of a fit on simulated rows
            result = one_run_audit(copy, **options)
    except NoKnownAttackError as error:
        return PartAudit(name, None, str(error))
    stated = part.privacy_spent_.epsilon
    notes = {
        "The columns were numbered by the cells that they are counted in; the search for bounds "
        "and categories was not attacked.": bool(parameters),
        "Each simulated person has one row.": getattr(part, "unit", None) is not None,
        f"The estimator itself states ε = {stated:.4g}. The copy claims {result.epsilon:.4g}, "
        "because it has the same noise on another number of rows; this claim is tested.": (
            not np.isclose(result.epsilon, stated, rtol=1e-2)
        ),
    }
    sight = " ".join(text for text, holds in notes.items() if holds)
    return PartAudit(name, result, n_rows=len(rows["X"]), sight=sight)


def simulated_rows(
    estimator: Any, n_rows: int, rng: np.random.Generator
) -> tuple[dict[str, Any], dict[str, Any]]:
    """Make arguments of a fit with about `n_rows` made-up rows, and parameters of the copy.

    Post-processing of the release: synthetic rows of a sampler, else random points in the released
    bounds; labels and groups from their public sets. Rows of a table are numbered by the cells that
    it counts in, whose schema is among the parameters.
    """
    seed = int(rng.integers(2**31))
    if hasattr(estimator, "sample_marginal"):
        each = -(-n_rows // len(estimator.times_))
        rows = [np.asarray(estimator.sample_marginal(t, each, seed)) for t in estimator.times_]
        return {"X": np.concatenate(rows), "y": np.repeat(estimator.times_, each)}, {}
    if hasattr(estimator, "sample_labeled") and hasattr(estimator, "classes_"):
        X, labels = estimator.sample_labeled(n_rows, random_state=seed)
        return {"X": np.asarray(X), "y": np.asarray(labels)}, {}
    if hasattr(estimator, "sample"):
        X = estimator.sample(n_rows, random_state=seed)
        if hasattr(estimator, "schema_"):
            schema, X = numbered(estimator, X)
            alone: dict[str, Any] = {"unit": None, "max_rows": None, "weighting": "person"}
            return {"X": X}, alone | {"schema": schema}
    elif getattr(estimator, "bounds_", None) is not None:
        X = _within(estimator.bounds_, n_rows, rng)
    else:
        X = rng.uniform(-1.0, 1.0, size=(n_rows, estimator.n_features_in_))
        if hasattr(estimator, "center_") and hasattr(estimator, "scale_"):  # a scaler
            center = 0.0 if estimator.center_ is None else estimator.center_
            X = center + 2.0 * (1.0 if estimator.scale_ is None else estimator.scale_) * X
    groups = getattr(estimator, "groups_", None)
    if groups is None and getattr(getattr(estimator, "penalty_", None), "needs_groups", False):
        groups = np.arange(2)
    facts = {} if groups is None else {"sensitive_features": np.resize(groups, n_rows)}
    given = {"X": np.asarray(X), "y": _labels(estimator, n_rows, rng), "fit_params": facts}
    return given, {}


def _within(bounds: Any, n_rows: int, rng: np.random.Generator) -> np.ndarray:
    cube = rng.uniform(-1.0, 1.0, size=(n_rows, bounds.n_features))
    return bounds.from_ball(cube * bounds.radius / np.sqrt(bounds.n_features))


def _labels(estimator: Any, n_rows: int, rng: np.random.Generator) -> np.ndarray | None:
    """Draw classes, in turn so that every class has its rows, or targets."""
    if is_regressor(estimator) and hasattr(estimator, "target_bounds_"):
        targets = _within(estimator.target_bounds_, n_rows, rng)
        return targets[:, 0] if targets.shape[1] == 1 else targets
    if hasattr(estimator, "classes_"):
        return rng.permutation(np.resize(estimator.classes_, n_rows))
    return None


_FEWEST = 40  # rows of a hold-out that can be cut into members, others and a reference
_SYNTHETIC = 2000


@dataclass(frozen=True, eq=False)
class MembershipTrial:
    """Attacks on synthetic rows, of the release itself or of a copy, or why there are none."""

    found: SyntheticMembership | None
    reason: str = ""
    of_members: bool = False

    @property
    def facts(self) -> dict[str, Any]:
        """The figures of the attacks by name."""
        facts: dict[str, Any] = {"reason": self.reason, "of_members": self.of_members}
        if self.found is not None:
            share = self.found.share
            facts["attacks"] = {name: r.figures() for name, r in self.found.results.items()}
            facts["share"] = share._asdict() | {"share": share.share.value}
        return facts


@dataclass(frozen=True)
class Figure:
    """One figure of utility, and how to read it."""

    name: str
    value: float
    meaning: str


def _in_numbers(source: Any, to_rows: Callable[[Any], Any]) -> Any:
    """Return a sampler whose rows pass through a function before they are attacked."""

    def sample(n_samples: int, random_state: Any = None) -> np.ndarray:
        return np.asarray(to_rows(source.sample(n_samples, random_state=random_state)))

    return SimpleNamespace(sample=sample, privacy_spent_=source.privacy_spent_)


def _as_given(estimator: Any) -> Any:
    """Return what draws rows like those of the fit; a pipeline maps those of its last step back."""
    if hasattr(estimator, "sample"):
        return estimator
    sampler = _in_numbers(estimator[-1], estimator[:-1].inverse_transform)
    # A pipeline with parts that have no event claims nothing.
    sampler.privacy_spent_ = None if silent_parts(estimator) else total_spent(estimator)
    return sampler


def try_membership(
    estimator: Any, X_holdout: Any, y_holdout: Any, X_members: Any, rng: np.random.Generator
) -> MembershipTrial:
    """Attack the estimator on `X_members`, which are private, or a copy on the hold-out."""
    reason = _why_no_rows(estimator)
    if not reason and X_holdout is None:
        reason = "No public rows of the same population were given."
    if reason:
        return MembershipTrial(None, reason)
    given, members, labels = X_holdout, X_members, y_holdout
    sampler: Callable[[Any], Any] = _as_given
    options: dict[str, Any] = {}
    if hasattr(estimator, "schema_"):  # a table of any columns, as the schema encodes it in numbers
        schema = estimator.schema_

        def kept(X: Any) -> Any:
            return X[list(schema.names)] if Table.is_frame(X) else X

        given, members = kept(given), kept(members)
        encoder = TableEncoder(schema).fit(given)
        rows = encoder.transform(given)
        members = None if members is None else encoder.transform(members)
        options, labels = {"schema": schema}, None
        sampler = partial(_in_numbers, to_rows=lambda rows: encoder.transform(kept(rows)))
    else:
        given = rows = as_points(X_holdout, "X_holdout")
    seed = int(rng.integers(2**31))
    if members is not None:
        found = synthetic_membership(sampler(estimator), members, rows, random_state=seed)
        return MembershipTrial(found, of_members=True)
    reason = _why_no_copy(estimator, len(rows), labels)
    if reason:
        return MembershipTrial(None, reason)
    inside, outside = np.array_split(rng.permutation(len(rows)), 2)
    labels = None if labels is None else np.asarray(labels)[inside]
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")  # of a fit on public rows
        copy = unpaid_copy(estimator).set_params(**options).fit(take(given, inside), labels)
        found = synthetic_membership(sampler(copy), rows[inside], rows[outside], random_state=seed)
    return MembershipTrial(found)


def _last(estimator: Any) -> Any:
    return estimator.steps[-1][1] if isinstance(estimator, Pipeline) else estimator


def _why_no_rows(estimator: Any) -> str:
    """Return why an estimator has no synthetic rows to attack; empty if it has."""
    last, name = _last(estimator), type(_last(estimator)).__name__
    if not hasattr(last, "sample"):
        return f"These attacks are for synthetic rows, and {name} has no method sample."
    if hasattr(last, "sample_marginal"):
        return (
            f"{name} publishes paths, and these attacks need rows of one population. Pass the rows "
            "of one time (sample_marginal) to skdpot.audit.synthetic_membership."
        )
    if last is not estimator and not hasattr(estimator[:-1], "inverse_transform"):
        return f"The steps before {name} have no inverse_transform that maps its rows back."
    return ""


def _why_no_copy(estimator: Any, n_rows: int, labels: Any) -> str:
    """Return why no copy can be fitted to one half of the hold-out; empty if one can."""
    last = _last(estimator)
    if n_rows < _FEWEST:
        return f"X_holdout has {n_rows} rows; the attacks need at least {_FEWEST}."
    if getattr(getattr(last, "penalty_", None), "needs_groups", False):
        return (
            f"A copy of {type(last).__name__} needs sensitive_features of the hold-out, which a "
            "report does not take. Fit a copy and pass it to skdpot.audit.synthetic_membership."
        )
    needed = getattr(last, "conditional", False) is True or get_tags(last).target_tags.required
    if needed and labels is None:
        return "A copy needs labels of the hold-out (y_holdout), and none were given."
    return ""


def measure_utility(
    estimator: Any, X_holdout: Any, y_holdout: Any, rng: np.random.Generator
) -> tuple[tuple[Figure, ...], str]:
    """Measure the utility of an estimator on public rows, or return why that is not possible."""
    labelled = hasattr(estimator, "sample_labeled")
    if not (labelled or hasattr(estimator, "score")):
        return (), (
            f"{type(_last(estimator)).__name__} has no score of its own: its utility shows in what "
            "is made from it."
        )
    if X_holdout is None:
        return (
            (),
            "This needs public rows that the fit did not use, and their labels if there are any.",
        )
    if labelled:
        rows = as_points(X_holdout, "X_holdout")
        return (*_distances(estimator, rows, rng), *_lessons(estimator, rows, y_holdout, rng)), ""
    name, meaning = _score_in_words(estimator)
    if y_holdout is None and (name != "Score" or hasattr(_last(estimator), "times_")):
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
    """Measure the distance of synthetic rows from the hold-out, with two figures to compare."""
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
