"""The audit in a privacy report: a copy of the estimator, attacked on made-up rows."""

import math
import warnings
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

import numpy as np
from sklearn.base import clone, is_classifier, is_regressor
from tqdm.auto import tqdm

from skdpot.audit.audit_result import AuditResult
from skdpot.audit.canaries import NoKnownAttackError, numbered
from skdpot.audit.one_run import one_run_audit
from skdpot.audit.report.words import beside_claim
from skdpot.privacy.parts import leaves

__all__ = [
    "MadeUpRows",
    "PartAudit",
    "audit_copies",
    "make_up_rows",
    "private_parts",
    "unpaid_copy",
]

_MANY, _FEW = 1000, 100
# Other rows beside canaries; scores of trainings take time with the cube of all rows.
_MOST_ROWS, _FEWEST_ROWS = 2000, 200
# Parameters that change what a copy costs or shows, and nothing that it releases.
_QUIET = {"budget": None, "random_state": None, "verbose": 0}


@dataclass(frozen=True, eq=False, kw_only=True)
class PartAudit:
    """The audit of one private estimator; without a result there is a reason."""

    name: str
    result: AuditResult | None
    reason: str = ""
    n_rows: int = 0
    sight: str = ""

    @property
    def could_refute(self) -> bool:
        """Whether it would have seen missing noise in every release."""
        found = self.result
        if found is None or found.noise is None:
            return False
        return found.power is not None and not found.noise.blind

    @property
    def verdict(self) -> str:
        """What follows, in a sentence or two; bounds are rounded down."""
        if self.result is None:
            return f"{self.name} was not audited. {self.reason}"
        found = self.result
        if math.isinf(found.epsilon):
            shown = beside_claim(found.epsilon_lower, found.epsilon)[0]
            return (
                f"{self.name} claims nothing that could be refuted. The attack shows ε ≥ {shown} "
                f"at {100 * found.confidence:.4g} % confidence."
            )
        return f"{self.name}: {found.verdict}"


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
    quiet: dict[str, Any] = {}
    for name, value in copy.get_params().items():
        last = name.rpartition("__")[2]
        if last in _QUIET:
            # Pipelines take nothing but a truth value for it.
            quiet[name] = False if isinstance(value, bool) else _QUIET[last]
    return copy.set_params(**quiet)


def audit_copies(
    parts: Sequence[tuple[str, Any]],
    n_canaries: int | None,
    confidence: float,
    rng: np.random.Generator,
    verbose: int = 0,
) -> tuple[PartAudit, ...]:
    """Audit a copy of each estimator, without its budget, on rows that are made up.

    `n_canaries` None is half the numbers of a sketch, from 100 to 1,000, and 100 where none is
    released. All lower bounds hold together with `confidence`: the chance of an error is divided
    by the number of audits. `rng` makes rows and canaries, but not the coins.
    """
    tried = sum(not _is_public(part) for _, part in parts)
    each = 1.0 - (1.0 - confidence) / max(tried, 1)
    bar = tqdm(parts, desc="audits", disable=verbose <= 0)
    return tuple(_audit(name, part, n_canaries, each, rng) for name, part in bar)


def _is_public(part: Any) -> bool:
    """Whether a part was fitted to public rows, by its own words."""
    return np.isinf(part.privacy_spent_.epsilon) and getattr(part, "private", True) is False


def _audit(
    name: str, part: Any, n_canaries: int | None, confidence: float, rng: np.random.Generator
) -> PartAudit:
    if _is_public(part):
        return PartAudit(
            name=name, result=None, reason="It was fitted to public rows, without noise."
        )
    n_numbers = _n_sketched(part)
    n_rows = _FEWEST_ROWS
    if n_canaries is None:
        # Even without noise no more coins can be read than there are numbers.
        n_canaries = int(np.clip(n_numbers // 2, _FEW, _MANY))
    if n_numbers > 0 and hasattr(part, "n_samples_"):
        n_rows = int(np.clip(part.n_samples_ - n_canaries, _FEWEST_ROWS, _MOST_ROWS))
    rows = make_up_rows(part, n_rows, rng)
    try:
        with warnings.catch_warnings():
            # What a fit on made-up rows warns of concerns nobody.
            warnings.simplefilter("ignore")
            result = one_run_audit(
                unpaid_copy(part).set_params(**rows.parameters),
                rows.X,
                rows.y,
                canaries=n_canaries,
                confidence=confidence,
                fit_params=rows.fit_params,
                random_state=int(rng.integers(2**31)),
            )
    except NoKnownAttackError as error:
        return PartAudit(name=name, result=None, reason=str(error))
    notes = []
    if rows.parameters:
        notes.append(
            "The columns were numbered by the cells that they are counted in; how bounds and "
            "categories were found was not attacked."
        )
    stated = part.privacy_spent_.epsilon
    if not np.isclose(result.epsilon, stated, rtol=1e-2):
        notes.append(
            f"The estimator itself states ε = {stated:.4g}; the copy claims {result.epsilon:.4g}, "
            "because it has the same noise on another number of rows, and this claim is tested."
        )
    sight = " ".join(notes)
    return PartAudit(name=name, result=result, n_rows=len(rows.X), sight=sight)


def _n_sketched(part: Any) -> int:
    """Return how many numbers are in the sketch that a part releases, 0 if it releases none."""
    sketch = getattr(part, "sketch_", part)
    return int(sketch.statistic_.size) if hasattr(sketch, "statistic_") else 0


@dataclass(frozen=True, eq=False, kw_only=True)
class MadeUpRows:
    """Rows for a fit that says nothing about anybody."""

    X: np.ndarray
    y: np.ndarray | None = None
    fit_params: Mapping[str, np.ndarray] = field(default_factory=dict)
    parameters: Mapping[str, Any] = field(default_factory=dict)


def make_up_rows(estimator: Any, n_rows: int, rng: np.random.Generator) -> MadeUpRows:
    """Make about `n_rows` rows from fitted attributes and public parameters.

    Synthetic rows of a sampler, else random points in the released bounds; labels and groups from
    the public sets of them. Rows of a table are numbered by the cells that it counts in, because
    the rows of an audit are numbers. Post-processing of what was released: no private row is
    looked at.
    """
    seed = int(rng.integers(2**31))
    if hasattr(estimator, "sample_marginal"):
        each = -(-n_rows // len(estimator.times_))
        rows = [np.asarray(estimator.sample_marginal(t, each, seed)) for t in estimator.times_]
        return MadeUpRows(X=np.concatenate(rows), y=np.repeat(estimator.times_, each))
    if hasattr(estimator, "sample_labeled") and hasattr(estimator, "classes_"):
        rows, labels = estimator.sample_labeled(n_rows, random_state=seed)
        return MadeUpRows(X=np.asarray(rows), y=np.asarray(labels))
    if hasattr(estimator, "schema_") and hasattr(estimator, "sample"):
        schema, X = numbered(estimator, estimator.sample(n_rows, random_state=seed))
        return MadeUpRows(X=X, parameters={"schema": schema})
    if hasattr(estimator, "sample"):
        X = np.asarray(estimator.sample(n_rows, random_state=seed))
    else:
        X = _points(estimator, n_rows, rng)
    return MadeUpRows(X=X, y=_labels(estimator, n_rows, rng), fit_params=_groups(estimator, n_rows))


def _points(estimator: Any, n_rows: int, rng: np.random.Generator) -> np.ndarray:
    """Draw points from the released range of each feature."""
    cube = rng.uniform(-1.0, 1.0, size=(n_rows, estimator.n_features_in_))
    bounds = getattr(estimator, "bounds_", None)
    if bounds is not None:
        points: np.ndarray = bounds.from_ball(cube * bounds.radius / np.sqrt(cube.shape[1]))
        return points
    if hasattr(estimator, "center_") and hasattr(estimator, "scale_"):  # a scaler
        center = 0.0 if estimator.center_ is None else estimator.center_
        scale = 1.0 if estimator.scale_ is None else estimator.scale_
        return center + 2.0 * scale * cube
    return cube


def _labels(estimator: Any, n_rows: int, rng: np.random.Generator) -> np.ndarray | None:
    """Draw classes or targets."""
    if is_regressor(estimator) and hasattr(estimator, "target_bounds_"):
        bounds = estimator.target_bounds_
        cube = rng.uniform(-1.0, 1.0, size=(n_rows, bounds.n_features))
        targets: np.ndarray = bounds.from_ball(cube * bounds.radius / np.sqrt(bounds.n_features))
        return targets[:, 0] if bounds.n_features == 1 else targets
    if is_classifier(estimator) or hasattr(estimator, "classes_"):
        # In turn, so that every class has its rows.
        return rng.permutation(np.resize(estimator.classes_, n_rows))
    return None


def _groups(estimator: Any, n_rows: int) -> Mapping[str, np.ndarray]:
    """Deal out groups in blocks, so that every class meets every group."""
    groups = getattr(estimator, "groups_", None)
    if groups is None and getattr(getattr(estimator, "penalty_", None), "needs_groups", False):
        groups = np.arange(2)
    if groups is None:
        return {}
    return {"sensitive_features": np.resize(np.asarray(groups), n_rows)}
