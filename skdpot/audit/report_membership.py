"""The membership attacks of a privacy report, on synthetic rows of the release or of a copy."""

import warnings
from collections.abc import Callable
from dataclasses import dataclass
from functools import partial
from types import SimpleNamespace
from typing import Any

import numpy as np
from sklearn.pipeline import Pipeline
from sklearn.utils import get_tags

from skdpot._utils.finite import as_points
from skdpot.audit.part_audits import unpaid_copy
from skdpot.audit.synthetic_rows import SyntheticMembership, synthetic_membership
from skdpot.privacy.spent import silent_parts, total_spent
from skdpot.search.fit_data import take
from skdpot.tables.encoder import TableEncoder
from skdpot.tables.frames import Table

_FEWEST = 40  # rows of a hold-out, which is divided into members, others and a reference


@dataclass(frozen=True, eq=False)
class MembershipTrial:
    """The attacks on synthetic rows of the release or of a copy, or why there are none."""

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


def _in_numbers(sampler: Any, to_rows: Callable[[Any], Any]) -> Any:
    """Return a sampler whose rows a function turns into numbers."""

    def sample(n_samples: int, random_state: Any = None) -> np.ndarray:
        return np.asarray(to_rows(sampler.sample(n_samples, random_state=random_state)))

    return SimpleNamespace(sample=sample, privacy_spent_=sampler.privacy_spent_)


def _in_features(estimator: Any) -> Any:
    """Return a sampler of rows like those of the fit; a pipeline maps those of its last step."""
    if hasattr(estimator, "sample"):
        return estimator
    sampler = _in_numbers(estimator[-1], estimator[:-1].inverse_transform)
    # A pipeline with parts that learn without noise claims nothing.
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
    holdout, members, labels = X_holdout, X_members, y_holdout
    sampler: Callable[[Any], Any] = _in_features
    options: dict[str, Any] = {}
    if hasattr(estimator, "schema_"):  # a table of any columns, which the schema encodes
        schema = estimator.schema_

        def columns_of_schema(X: Any) -> Any:
            return X[list(schema.names)] if Table.is_frame(X) else X

        holdout, members = columns_of_schema(holdout), columns_of_schema(members)
        encoder = TableEncoder(schema).fit(holdout)
        rows = encoder.transform(holdout)
        members = None if members is None else encoder.transform(members)
        options, labels = {"schema": schema}, None
        sampler = partial(
            _in_numbers, to_rows=lambda rows: encoder.transform(columns_of_schema(rows))
        )
    else:
        holdout = rows = as_points(X_holdout, "X_holdout")
    seed = int(rng.integers(2**31))
    if members is not None:
        attacks = synthetic_membership(sampler(estimator), members, rows, random_state=seed)
        return MembershipTrial(attacks, of_members=True)
    reason = _why_no_copy(estimator, len(rows), labels)
    if reason:
        return MembershipTrial(None, reason)
    inside, outside = np.array_split(rng.permutation(len(rows)), 2)
    labels = None if labels is None else np.asarray(labels)[inside]
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")  # of a fit on public rows
        copy = unpaid_copy(estimator).set_params(**options).fit(take(holdout, inside), labels)
        attacks = synthetic_membership(
            sampler(copy), rows[inside], rows[outside], random_state=seed
        )
    return MembershipTrial(attacks)


def last_step(estimator: Any) -> Any:
    """Return the last step of a pipeline, or the estimator itself."""
    return estimator.steps[-1][1] if isinstance(estimator, Pipeline) else estimator


def _why_no_rows(estimator: Any) -> str:
    """Return why an estimator has no synthetic rows to attack, or an empty text."""
    last, name = last_step(estimator), type(last_step(estimator)).__name__
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
    """Return why no copy can be fitted to one half of the hold-out, or an empty text."""
    last = last_step(estimator)
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
