"""What an audit found: a lower bound of ε beside the claimed one."""

import math
from dataclasses import dataclass
from typing import Any

import numpy as np

from skdpot.audit.audit_display import AuditDisplay

__all__ = ["AuditResult", "lower_text", "verdict_of"]


def lower_text(bound: float, claim: float = math.inf) -> str:
    """Write a lower bound, rounded down, with as many digits as tell it from a claim below it."""
    if math.isinf(bound):
        return "∞"
    for digits in range(2, 16):
        text = f"{math.floor(bound * 10**digits) / 10**digits:.{digits}f}"
        if float(text) > claim or bound <= claim:
            return text
    return repr(bound)


def verdict_of(bound: float, claim: float, confidence: float) -> str:
    """Say in a sentence what a lower bound means beside a claim."""
    found = f"ε ≥ {lower_text(bound, claim)} at {100 * confidence:g} % confidence"
    if math.isinf(claim):
        return f"{found}; nothing was claimed."
    if bound > claim:
        return f"REFUTED: {found}, but ε = {claim:.4g} was claimed."
    return f"Not refuted: {found}, within the claimed ε = {claim:.4g}."


@dataclass(frozen=True, eq=False, repr=False, kw_only=True)
class AuditResult:
    """Outcome of `skdpot.audit.one_run_audit`.

    Parameters
    ----------
    epsilon_lower : float
        With probability `confidence` the fit is not (ε, delta)-private for any smaller ε.
    confidence : float
        Of the bound.
    n_canaries, n_guesses, n_correct : int
        Coins, guesses and right guesses.
    epsilon, delta : float
        What was claimed.
    right : ndarray of bool of shape (n_canaries,)
        Which guesses are right, the surest first; the first `n_guesses` were counted.
    """

    epsilon_lower: float
    confidence: float
    n_canaries: int
    n_guesses: int
    n_correct: int
    epsilon: float
    delta: float
    right: np.ndarray

    @property
    def refuted(self) -> bool:
        """Whether the claim is refuted at this confidence."""
        return self.epsilon_lower > self.epsilon

    @property
    def verdict(self) -> str:
        """What follows, in a sentence."""
        return verdict_of(self.epsilon_lower, self.epsilon, self.confidence)

    def plot(self, ax: Any = None, **kwargs: Any) -> AuditDisplay:
        """Draw the share of right guesses, and what the claim allows.

        Parameters
        ----------
        ax : matplotlib Axes, optional
            Axes to draw on; new ones by default.
        **kwargs : dict
            For ``Axes.plot``.

        Returns
        -------
        AuditDisplay
            The display.
        """
        display = AuditDisplay(
            right=self.right,
            n_guesses=self.n_guesses,
            epsilon=self.epsilon,
            confidence=self.confidence,
            epsilon_lower=self.epsilon_lower,
        )
        return display.plot(ax=ax, **kwargs)

    def __repr__(self) -> str:
        return (
            f"AuditResult(epsilon_lower={lower_text(self.epsilon_lower)}, "
            f"confidence={self.confidence:g}, {self.n_correct} of {self.n_guesses} guesses right, "
            f"{self.n_canaries} canaries, "
            f"claimed epsilon={self.epsilon:.4g}, delta={self.delta:.2g})"
        )
