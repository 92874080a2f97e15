"""The audit in a privacy report: a copy of the estimator, attacked on made-up rows."""

import math
import warnings
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
from sklearn.base import clone

from skdpot.audit.audit_result import AuditResult
from skdpot.audit.made_up_rows import make_up_rows
from skdpot.audit.one_run import one_run_audit

__all__ = ["PartAudit", "audit_copies", "private_parts", "unpaid_copy"]

_MANY, _FEW = 1000, 100
# Other rows beside canaries; scores of trainings take time with the cube of all rows.
_MOST_ROWS, _FEWEST_ROWS = 2000, 200
_COMPOSITES = ("steps", "transformers_", "transformer_list")
# Parameters that change what a copy costs or shows, and nothing that it releases.
_QUIET = {"budget": None, "random_state": None, "verbose": 0}


@dataclass(frozen=True, eq=False, kw_only=True)
class PartAudit:
    """The audit of one private estimator.

    Parameters
    ----------
    name : str
        Of the estimator.
    result : AuditResult or None
        What was found; None if no audit was made.
    reason : str, default=""
        Why there was none.
    n_rows : int, default=0
        Made-up rows beside the canaries.
    """

    name: str
    result: AuditResult | None
    reason: str = ""
    n_rows: int = 0


def private_parts(estimator: Any) -> Iterator[tuple[str, Any]]:
    """Yield the fitted private estimators in an estimator, or itself.

    Parameters
    ----------
    estimator : estimator
        Fitted; pipelines and column transformers are looked into.

    Yields
    ------
    name : str
    part : estimator
        With a ``privacy_spent_``.
    """
    if hasattr(estimator, "privacy_spent_"):
        # One that fits another, as `ClientContribution` does, releases what that one does.
        inner = getattr(estimator, "estimator_", estimator)
        yield type(inner).__name__, inner
        return
    for attribute in _COMPOSITES:
        for entry in getattr(estimator, attribute, ()):
            yield from private_parts(entry[1])


def unpaid_copy(estimator: Any) -> Any:
    """Clone an estimator without its budget and its seed.

    Parameters
    ----------
    estimator : estimator
        Stays as it is.

    Returns
    -------
    estimator
        Not fitted.
    """
    copy = clone(estimator)
    names = {name: name.rpartition("__")[2] for name in copy.get_params()}
    return copy.set_params(**{name: _QUIET[last] for name, last in names.items() if last in _QUIET})


def audit_copies(
    parts: Sequence[tuple[str, Any]],
    n_canaries: int | None,
    confidence: float,
    rng: np.random.Generator,
) -> tuple[PartAudit, ...]:
    """Audit a copy of each estimator on rows that are made up.

    Parameters
    ----------
    parts : sequence of (str, estimator)
        Fitted private estimators.
    n_canaries : int or None
        Pairs of canaries; None for half the numbers of a sketch, from 100 to 1,000, and for 100
        where none is released.
    confidence : float
        Of the lower bounds.
    rng : numpy.random.Generator
        Makes rows and canaries, but not the coins.

    Returns
    -------
    tuple of PartAudit

    Privacy
    -------
    Post-processing: a copy without budget is fitted on made-up rows, see `make_up_rows`.
    """
    return tuple(_audit(name, part, n_canaries, confidence, rng) for name, part in parts)


def _audit(
    name: str, part: Any, n_canaries: int | None, confidence: float, rng: np.random.Generator
) -> PartAudit:
    if math.isinf(part.privacy_spent_.epsilon) and getattr(part, "private", True) is False:
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
                unpaid_copy(part),
                rows.X,
                rows.y,
                canaries=n_canaries,
                confidence=confidence,
                fit_params=rows.fit_params,
                random_state=int(rng.integers(2**31)),
            )
    except ValueError as error:  # no attack is known, or it takes other rows than these
        return PartAudit(name=name, result=None, reason=str(error))
    return PartAudit(name=name, result=result, n_rows=len(rows.X))


def _n_sketched(part: Any) -> int:
    """Return how many numbers are in the sketch that a part releases, 0 if it releases none."""
    sketch = getattr(part, "sketch_", part)
    return int(sketch.statistic_.size) if hasattr(sketch, "statistic_") else 0
