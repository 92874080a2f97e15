"""The audit in a privacy report: a copy of the estimator, attacked on made-up rows."""

import math
import warnings
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
from sklearn.base import clone
from tqdm.auto import tqdm

from skdpot.audit.audit_result import AuditResult
from skdpot.audit.audited_fit import NoKnownAttackError
from skdpot.audit.one_run import one_run_audit
from skdpot.audit.report.made_up_rows import make_up_rows
from skdpot.audit.report.words import beside_claim
from skdpot.privacy.parts import leaves

__all__ = ["PartAudit", "audit_copies", "private_parts", "unpaid_copy"]

_MANY, _FEW = 1000, 100
# Other rows beside canaries; scores of trainings take time with the cube of all rows.
_MOST_ROWS, _FEWEST_ROWS = 2000, 200
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
    sight : str, default=""
        What else is to be said of it.
    """

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
    for _, part in leaves(estimator):
        if hasattr(part, "privacy_spent_"):
            # One that fits another, as `ClientContribution` does, releases what that one does.
            inner = getattr(part, "estimator_", part)
            yield type(inner).__name__, inner


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
    """Audit a copy of each estimator on rows that are made up.

    Parameters
    ----------
    parts : sequence of (str, estimator)
        Fitted private estimators.
    n_canaries : int or None
        Pairs of canaries; None for half the numbers of a sketch, from 100 to 1,000, and for 100
        where none is released.
    confidence : float
        Of all lower bounds together. Each one has a larger one: its chance of an error is divided
        by the number of audits.
    rng : numpy.random.Generator
        Makes rows and canaries, but not the coins.
    verbose : int, default=0
        If positive, progress bars are shown.

    Returns
    -------
    tuple of PartAudit

    Privacy
    -------
    Post-processing: a copy without budget is fitted on made-up rows, see `make_up_rows`.
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
