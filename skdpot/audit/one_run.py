"""Audit of a whole fit by one run of it, and what all audits check before they fit."""

import math
from collections.abc import Mapping
from numbers import Integral, Real
from typing import Any

import numpy as np
from numpy.typing import ArrayLike
from scipy.sparse import issparse
from sklearn.pipeline import Pipeline

from skdpot._utils.rng import solver_generator
from skdpot.audit.attacks import default_score, evidence_of
from skdpot.audit.audit_result import AuditResult
from skdpot.audit.audited_fit import AuditedFit, AuditTask, Score
from skdpot.audit.canaries import CanaryPairs, NoKnownAttackError, default_canaries
from skdpot.audit.noise import NoiseEvidence
from skdpot.privacy.accounting import compose
from skdpot.privacy.spent import total_spent

__all__ = [
    "check_claim",
    "check_confidence",
    "check_count",
    "checked_task",
    "claimed",
    "one_run_audit",
    "scores_of",
]


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
    """Read what an audit is given, and make the canaries if they are not."""
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
    """Refuse what is no number of things."""
    if (
        isinstance(value, bool)
        or not isinstance(value, Integral)
        or not least <= int(value) <= most
    ):
        limits = f"at least {least}" if math.isinf(most) else f"from {least} to {most}"
        raise ValueError(f"{name}={value!r} must be an integer, {limits}.")


def check_confidence(confidence: Any) -> None:
    """Refuse what is no confidence."""
    if not (isinstance(confidence, Real) and 0 < float(confidence) < 1):
        raise ValueError(f"confidence={confidence!r} must be in (0, 1).")


def check_claim(epsilon: Any, delta: Any, score: Any) -> None:
    """Refuse a claim that nobody can make and what cannot score, before anything is fitted."""
    if not callable(score) and score != "auto":
        raise ValueError(f'score must be a function or "auto", not {type(score).__name__}.')
    if epsilon is not None and not (isinstance(epsilon, Real) and float(epsilon) >= 0):
        raise ValueError(f"epsilon={epsilon!r} must be at least 0; infinity claims nothing.")
    if delta is not None and not (isinstance(delta, Real) and 0 <= float(delta) < 1):
        raise ValueError(f"delta={delta!r} must be in [0, 1).")


def claimed(fitted: Any, epsilon: float | None, delta: float | None) -> tuple[float, float, bool]:
    """Return the ε and δ that a fit claims, or the caller for it, and whether it claims μ-GDP."""
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
    """Score the pairs of an audited fit."""
    judge = default_score(audited.fitted) if isinstance(score, str) else score
    n_pairs = len(audited.pairs)
    scores = np.asarray(judge(audited), dtype=np.float64)
    if scores.shape != (n_pairs,) or np.isnan(scores).any():
        raise ValueError(
            f"score must return one number for each of the {n_pairs} pairs, none of them NaN; "
            f"it returned an array of shape {scores.shape}."
        )
    return scores


def one_run_audit(
    fit: Any,
    X: ArrayLike,
    y: ArrayLike | None = None,
    *,
    canaries: CanaryPairs | int = 1000,
    score: Score | str = "auto",
    n_guesses: int | None = None,
    confidence: float = 0.95,
    epsilon: float | None = None,
    delta: float | None = None,
    fit_params: Mapping[str, ArrayLike] | None = None,
    random_state: int | np.random.RandomState | None = None,
    verbose: int = 0,
) -> AuditResult:
    """Bound the ε of a fit from below by one run of it (Steinke, Nasr and Jagielski, 2023).

    Each canary slot holds one of two records, by the fall of a fair coin. The fit runs once on
    the rows and the slots; an attacker who knows all but the coins scores them, and guesses those
    with the largest scores. More right guesses than the claimed ε allows refute the claim.

    Parameters
    ----------
    fit : estimator or callable
        An estimator, which is cloned, or a function ``fit(X, y, **fit_params)`` that returns
        what it released, for instance a fitted estimator.
    X : array-like of shape (n_samples, n_features)
        Rows beside the canaries; public or made-up ones. None at all may do:
        ``np.empty((0, n_features))``.
    y : array-like of shape (n_samples,), optional
        Their labels.
    canaries : CanaryPairs or int, default=1000
        The pairs, or how many `skdpot.audit.canaries` is to make.
    score : callable or "auto", default="auto"
        ``score(audited: AuditedFit) -> ndarray of shape (n_pairs,)``: positive where the release
        speaks for the first record of the pair, and the larger, the surer. "auto" takes the
        white-box score of the estimator, see `skdpot.audit.default_score`.
    n_guesses : int, optional
        How many coins are guessed, half of them by default. To be chosen before the run.
    confidence : float, default=0.95
        Probability that the bound holds, in (0, 1).
    epsilon, delta : float, optional
        The claim, if `fit` returns something without a ``privacy_spent_``.
    fit_params : mapping of str to array-like of shape (n_samples,), optional
        Further facts of the rows for `fit`; those of the slots come with the canaries.
    random_state : int, RandomState or None, default=None
        Makes the canaries. Coins always come from the operating system.
    verbose : int, default=0
        Shows a progress bar over the steps that are scored if it is positive.

    Returns
    -------
    AuditResult
        Lower bound, confidence, numbers of canaries, guesses and right guesses, and the claim.

    Raises
    ------
    ValueError
        If the estimator has a budget, a parameter is out of range, the score has a wrong
        shape, nothing says what is claimed, or no attack on the estimator is known.

    Privacy
    -------
    For public or made-up rows. The release itself is as private as claimed, but scores are
    computed from the rows without noise, and a result tells about them.

    Notes
    -----
    A low bound is no proof of privacy: canaries and scores may be weak. Where nothing but Gaussian
    noise that all records see is claimed, the second theorem bounds more, otherwise the first.

    References
    ----------
    T. Steinke, M. Nasr, M. Jagielski, "Privacy auditing with one (1) training run", NeurIPS 2023.
    S. Mahloujifar, L. Melis, K. Chaudhuri, "Auditing f-differential privacy in one run", 2024.

    Examples
    --------
    >>> import numpy as np
    >>> from skdpot import SlicedSketch
    >>> from skdpot.audit import one_run_audit
    >>> X = np.random.default_rng(0).uniform(-1, 1, size=(200, 8))
    >>> result = one_run_audit(SlicedSketch(epsilon=1.0, bounds=(-1, 1)), X, canaries=400)
    >>> result.refuted
    False
    """
    check_confidence(confidence)
    check_claim(epsilon, delta, score)
    task = checked_task(
        fit,
        X,
        y,
        canaries=canaries,
        fit_params=fit_params,
        random_state=random_state,
        verbose=verbose,
    )
    n_pairs = len(task.pairs)
    n_guesses = (n_pairs + 1) // 2 if n_guesses is None else n_guesses
    check_count("n_guesses", n_guesses, most=n_pairs)
    # The theorem needs fair coins that nobody knows, whatever else has a seed.
    heads = np.random.default_rng().random(n_pairs) < 0.5
    audited = task.run(heads)
    stated, missed, gaussian = claimed(audited.fitted, epsilon, delta)
    scores, noise = _judged(score, audited, heads, confidence)
    # A score of zero is a guess like any other, of the second record.
    right = ((scores > 0) == heads)[np.argsort(-np.abs(scores), kind="stable")]
    return AuditResult(
        confidence=confidence,
        n_canaries=n_pairs,
        n_guesses=n_guesses,
        n_correct=int(right[:n_guesses].sum()),
        epsilon=stated,
        delta=missed,
        right=right,
        gaussian=gaussian,
        noise=None if math.isinf(stated) else noise,
        leak=None if math.isinf(stated) else task.leak(heads),
    )


def _judged(
    score: Score | str, audited: AuditedFit, heads: np.ndarray, confidence: float
) -> tuple[np.ndarray, NoiseEvidence | None]:
    """Score the pairs, and check the noise of all releases if the attack is ours."""
    if callable(score):
        return scores_of(score, audited), None
    evidence = evidence_of(audited, heads)
    checked = NoiseEvidence.of(evidence.checks, confidence, evidence.unseen)
    return scores_of(lambda _: evidence.scores(), audited), checked
