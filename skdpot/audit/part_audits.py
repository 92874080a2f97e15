"""The audits of a privacy report: each private estimator, on rows that its release makes up."""

import warnings
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
from sklearn.base import clone, is_regressor
from tqdm.auto import tqdm

from skdpot.audit.canaries import NoKnownAttackError, numbered
from skdpot.audit.one_run import AuditResult, one_run_audit
from skdpot.privacy.pipelines import leaves
from skdpot.release.bounds import DataBounds

_MOST_CANARIES = 1000
_FEWEST_CANARIES = 100
_MOST_ROWS = 2000  # beside the canaries: the time of some scores grows with the cube of all rows
_FEWEST_ROWS = 200
# Parameters that change what a copy costs or shows, but nothing that it releases.
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


def private_estimators(estimator: Any) -> Iterator[tuple[str, Any]]:
    """Yield the fitted private estimators inside an estimator, or itself, each with its name."""
    for _, part in leaves(estimator):
        if hasattr(part, "privacy_spent_"):
            # `ClientContribution` fits another estimator and releases what this does.
            inner = getattr(part, "estimator_", part)
            yield type(inner).__name__, inner


def unpaid_copy(estimator: Any) -> Any:
    """Clone an estimator without its budget and its seed."""
    copy = clone(estimator)
    # Pipelines take only a truth value for `verbose`.
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
    """Audit a copy of each estimator on made-up rows; all bounds together have `confidence`."""
    n_tried = sum(not _is_public(part) for _, part in parts)
    of_each = 1.0 - (1.0 - confidence) / max(n_tried, 1)
    bar = tqdm(parts, desc="audits", disable=verbose <= 0)
    return tuple(_audit(name, part, n_canaries, of_each, rng) for name, part in bar)


def _is_public(part: Any) -> bool:
    """Whether an estimator was fitted to public rows, without noise."""
    return np.isinf(part.privacy_spent_.epsilon) and getattr(part, "private", True) is False


def _audit(
    name: str, part: Any, n_canaries: int | None, confidence: float, rng: np.random.Generator
) -> PartAudit:
    """Audit a copy of one estimator, or say why there is no audit."""
    if _is_public(part):
        return PartAudit(name, None, "It was fitted to public rows, without noise.")
    sketch = getattr(part, "sketch_", part)
    n_numbers = int(sketch.statistic_.size) if hasattr(sketch, "statistic_") else 0
    n_rows = _FEWEST_ROWS
    if n_canaries is None:
        # Even without noise, no more coins can be read than there are numbers.
        n_canaries = int(np.clip(n_numbers // 2, _FEWEST_CANARIES, _MOST_CANARIES))
    if n_numbers > 0 and hasattr(part, "n_samples_"):
        n_rows = int(np.clip(part.n_samples_ - n_canaries, _FEWEST_ROWS, _MOST_ROWS))
    fit_arguments, parameters = simulated_rows(part, n_rows, rng)
    copy = unpaid_copy(part).set_params(**parameters)
    try:
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")  # of a fit on simulated rows
            result = one_run_audit(
                copy,
                canaries=n_canaries,
                confidence=confidence,
                random_state=int(rng.integers(2**31)),
                **fit_arguments,
            )
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
    return PartAudit(name, result, n_rows=len(fit_arguments["X"]), sight=sight)


def simulated_rows(
    estimator: Any, n_rows: int, rng: np.random.Generator
) -> tuple[dict[str, Any], dict[str, Any]]:
    """Return arguments of a fit to about `n_rows` made-up rows, and parameters of the copy.

    They are post-processing of the release: synthetic rows of a sampler, else random points within
    the released bounds; labels and groups from their public sets. Rows of a table are the numbers
    of the cells that it counts in, whose schema is among the parameters.
    """
    seed = int(rng.integers(2**31))
    if hasattr(estimator, "sample_marginal"):
        n_each = -(-n_rows // len(estimator.times_))
        rows = [np.asarray(estimator.sample_marginal(t, n_each, seed)) for t in estimator.times_]
        return {"X": np.concatenate(rows), "y": np.repeat(estimator.times_, n_each)}, {}
    if hasattr(estimator, "sample_labeled") and hasattr(estimator, "classes_"):
        X, labels = estimator.sample_labeled(n_rows, random_state=seed)
        return {"X": np.asarray(X), "y": np.asarray(labels)}, {}
    if hasattr(estimator, "sample"):
        X = estimator.sample(n_rows, random_state=seed)
        if hasattr(estimator, "schema_"):
            schema, X = numbered(estimator, X)
            one_row_each = {"unit": None, "max_rows": None, "weighting": "person"}
            return {"X": X}, one_row_each | {"schema": schema}
    elif getattr(estimator, "bounds_", None) is not None:
        X = _points_within(estimator.bounds_, n_rows, rng)
    else:
        X = rng.uniform(-1.0, 1.0, size=(n_rows, estimator.n_features_in_))
        if hasattr(estimator, "center_") and hasattr(estimator, "scale_"):  # a scaler
            center = 0.0 if estimator.center_ is None else estimator.center_
            X = center + 2.0 * (1.0 if estimator.scale_ is None else estimator.scale_) * X
    groups = getattr(estimator, "groups_", None)
    if groups is None and getattr(getattr(estimator, "penalty_", None), "needs_groups", False):
        groups = np.arange(2)
    facts = {} if groups is None else {"sensitive_features": np.resize(groups, n_rows)}
    return {"X": np.asarray(X), "y": _labels(estimator, n_rows, rng), "fit_params": facts}, {}


def _points_within(bounds: DataBounds, n_rows: int, rng: np.random.Generator) -> np.ndarray:
    """Draw points in the largest cube inside the ball of the bounds."""
    cube = rng.uniform(-1.0, 1.0, size=(n_rows, bounds.n_features))
    return bounds.from_ball(cube * bounds.radius / np.sqrt(bounds.n_features))


def _labels(estimator: Any, n_rows: int, rng: np.random.Generator) -> np.ndarray | None:
    """Draw targets, or classes in turn, so that every class has rows."""
    if is_regressor(estimator) and hasattr(estimator, "target_bounds_"):
        targets = _points_within(estimator.target_bounds_, n_rows, rng)
        return targets[:, 0] if targets.shape[1] == 1 else targets
    if hasattr(estimator, "classes_"):
        return rng.permutation(np.resize(estimator.classes_, n_rows))
    return None
