"""What audits are given, checked before anything is fitted."""

import math
from collections.abc import Mapping
from numbers import Integral, Real
from typing import Any

import numpy as np
from scipy.sparse import issparse
from sklearn.pipeline import Pipeline

from skdpot._utils.rng import solver_generator
from skdpot.audit.attacks import default_score
from skdpot.audit.audited_fit import AuditedFit, AuditTask, NoKnownAttackError, Score
from skdpot.audit.canaries import CanaryPairs
from skdpot.audit.default_canaries import default_canaries
from skdpot.privacy.accounting import compose
from skdpot.privacy.spent import total_spent

__all__ = ["check_claim", "check_confidence", "check_count", "checked_task", "claimed", "scores_of"]


def checked_task(
    fit: Any,
    X: Any,
    y: Any,
    *,
    canaries: CanaryPairs | int,
    fit_params: Mapping[str, Any] | None,
    random_state: Any,
    verbose: int,
) -> AuditTask:
    """Read what an audit is given, and make the canaries if they are not.

    Raises
    ------
    ValueError
        If rows, labels, facts or canaries do not fit together.
    """
    if not (callable(fit) or hasattr(fit, "fit")) or isinstance(fit, type):
        raise ValueError(
            "fit must be an estimator (an object, not a class) or a function fit(X, y, "
            f"**fit_params), not {type(fit).__name__}."
        )
    if isinstance(fit, Pipeline):
        raise NoKnownAttackError(
            "A Pipeline is not audited as a whole: audit its private steps one by one, each on "
            "rows as they reach it."
        )
    rows = _table(X)
    columns = {"y": y, **(fit_params or {})}
    for name, column in columns.items():
        if column is not None and np.shape(column)[:1] != (len(rows),):
            raise ValueError(f"{name} must have one entry for each of the {len(rows)} rows of X.")
    labels = None if y is None else np.asarray(y)
    known = {name: np.asarray(value) for name, value in (fit_params or {}).items()}
    if not isinstance(canaries, CanaryPairs):
        check_count("canaries", canaries)
        rng = solver_generator(random_state)
        canaries = default_canaries(fit, int(canaries), rows, labels, fit_params=known, rng=rng)
    if canaries.first.shape[1] != rows.shape[1]:
        raise ValueError(
            f"The canaries have {canaries.first.shape[1]} features, and X has {rows.shape[1]}."
        )
    return AuditTask(
        fit=fit, pairs=canaries, X=rows, y=labels, fit_params=known, verbose=int(verbose)
    )


def _table(X: Any) -> np.ndarray:
    """Return rows as an array; no text quotes a value."""
    if issparse(X):
        raise ValueError("X must be dense: pass X.toarray().")
    rows = np.asarray(X)
    if rows.ndim != 2:
        raise ValueError(f"X must be a table of two dimensions, not {rows.ndim}.")
    return rows


def check_count(name: str, value: Any, least: int = 1, most: float = math.inf) -> None:
    """Refuse what is no number of things.

    Raises
    ------
    ValueError
        If it is no integer, or out of range.
    """
    if (
        isinstance(value, bool)
        or not isinstance(value, Integral)
        or not least <= int(value) <= most
    ):
        limits = f"at least {least}" if math.isinf(most) else f"from {least} to {most}"
        raise ValueError(f"{name}={value!r} must be an integer, {limits}.")


def check_confidence(confidence: Any) -> None:
    """Refuse what is no confidence.

    Raises
    ------
    ValueError
        If it is not in (0, 1).
    """
    if not (isinstance(confidence, Real) and 0 < float(confidence) < 1):
        raise ValueError(f"confidence={confidence!r} must be in (0, 1).")


def check_claim(epsilon: Any, delta: Any, score: Any) -> None:
    """Refuse a claim that nobody can make and what cannot score, before anything is fitted.

    Raises
    ------
    ValueError
        If a given ε is negative, a given δ not in [0, 1), or `score` no function and not "auto".
    """
    if not callable(score) and score != "auto":
        raise ValueError(f'score must be a function or "auto", not {type(score).__name__}.')
    if epsilon is not None and not (isinstance(epsilon, Real) and float(epsilon) >= 0):
        raise ValueError(f"epsilon={epsilon!r} must be at least 0; infinity claims nothing.")
    if delta is not None and not (isinstance(delta, Real) and 0 <= float(delta) < 1):
        raise ValueError(f"delta={delta!r} must be in [0, 1).")


def claimed(fitted: Any, epsilon: float | None, delta: float | None) -> tuple[float, float, bool]:
    """Return the ε and δ that a fit claims, or the caller for it, and whether it claims μ-GDP.

    Raises
    ------
    ValueError
        If neither says so.
    """
    if epsilon is not None and delta is not None:
        return float(epsilon), float(delta), False
    try:
        spent = getattr(fitted, "privacy_spent_", None) or total_spent(fitted)
    except TypeError as error:
        raise ValueError(
            "Give epsilon and delta: what fit returned has no privacy_spent_ that claims them."
        ) from error
    if epsilon is not None or delta is not None:
        stated = float(spent.epsilon if epsilon is None else epsilon)
        return stated, float(spent.delta if delta is None else delta), False
    loss = compose(spent.event)
    gaussian = not (loss.is_sampled or loss.leak) and 0.0 < loss.mu_without_sampling < math.inf
    return spent.epsilon, spent.delta, gaussian


def scores_of(score: Score | str, audited: AuditedFit) -> np.ndarray:
    """Score the pairs of an audited fit.

    Raises
    ------
    ValueError
        If `score` does not return a number a pair.
    """
    judge = default_score(audited.fitted) if isinstance(score, str) else score
    n_pairs = len(audited.pairs)
    scores = np.asarray(judge(audited), dtype=np.float64)
    if scores.shape != (n_pairs,) or np.isnan(scores).any():
        raise ValueError(
            f"score must return one number for each of the {n_pairs} pairs, none of them NaN; "
            f"it returned an array of shape {scores.shape}."
        )
    return scores
