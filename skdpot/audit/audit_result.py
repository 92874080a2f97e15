"""What an audit found: a lower bound of ε beside the claimed one."""

import math
from dataclasses import dataclass
from functools import cached_property
from typing import Any, Self

import numpy as np
from scipy.stats import binom

from skdpot.audit.guessing import epsilon_lower_bound
from skdpot.audit.noise import NoiseEvidence
from skdpot.metrics._panels import COLORS

__all__ = [
    "AuditDisplay",
    "AuditResult",
    "lower_text",
    "verdict_of",
]


@dataclass(eq=False, repr=False, kw_only=True)
class AuditDisplay:
    """Share of right guesses against their number, with what the claimed ε allows.

    `AuditResult.plot` makes one. Parameters are stored as attributes.

    Parameters
    ----------
    right : ndarray of bool of shape (n_canaries,)
        Which guesses are right, the surest first.
    n_guesses : int
        How many were counted.
    epsilon : float
        The claim; δ, which hardly shows, is left out of the picture.
    confidence : float
        Of the upper limit of what is allowed.
    epsilon_lower : float
        The bound that was found, for the legend.

    Attributes
    ----------
    ax_ : matplotlib Axes
        Axes with the curve.
    figure_ : matplotlib Figure
        Figure that holds them.
    line_ : matplotlib Line2D
        Share of right guesses.
    limit_ : matplotlib Line2D or None
        The most that chance would allow at the claimed ε; None if nothing was claimed.

    See Also
    --------
    skdpot.audit.one_run_audit : Makes the guesses.
    """

    right: np.ndarray
    n_guesses: int
    epsilon: float
    confidence: float
    epsilon_lower: float

    def plot(self, ax: Any = None, *, legend: bool = True, **kwargs: Any) -> Self:
        """Draw the curve, and the limit that the claim sets to it.

        Parameters
        ----------
        ax : matplotlib Axes, optional
            Axes to draw on; new ones by default.
        legend : bool, default=True
            Whether to draw the legend.
        **kwargs : dict
            For ``Axes.plot`` of the curve.

        Returns
        -------
        AuditDisplay
            The display.
        """
        import matplotlib.pyplot as plt

        if ax is None:
            _, ax = plt.subplots()
        made = np.arange(1, len(self.right) + 1)
        shares = np.cumsum(self.right) / made
        label = f"right guesses: ε ≥ {math.floor(100 * self.epsilon_lower) / 100:.2f}"
        (self.line_,) = ax.plot(made, shares, **({"color": COLORS[0], "label": label} | kwargs))
        self.limit_ = None
        if math.isfinite(self.epsilon):
            right = 1 / (1 + math.exp(-self.epsilon))
            limit = binom.ppf(self.confidence, made, right) / made
            (self.limit_,) = ax.plot(
                made,
                limit,
                color=COLORS[1],
                linestyle="--",
                label=f"most that ε = {self.epsilon:g} allows ({100 * self.confidence:g} %)",
            )
        ax.axhline(0.5, color="black", linestyle=":", linewidth=1, label="coin flips")
        ax.axvline(self.n_guesses, color="gray", linewidth=1, label="guesses counted")
        ax.set(
            xlim=(0, len(self.right)),
            ylim=(0.35, 1.02),
            xlabel="guesses, surest first",
            ylabel="share that is right",
        )
        if legend:
            ax.legend(loc="lower right" if shares[-1] > 0.7 else "upper right", fontsize="small")
        self.ax_, self.figure_ = ax, ax.figure
        return self


def lower_text(bound: float, claim: float = math.inf) -> str:
    """Write a lower bound, rounded down, with as many digits as tell it from a claim below it."""
    if math.isinf(bound):
        return "∞"
    for digits in range(2, 16):
        text = f"{math.floor(bound * 10**digits) / 10**digits:.{digits}f}"
        if float(text) > claim or bound <= claim:
            return text
    return repr(bound)


def verdict_of(bound: float, claim: float, confidence: float, noise: str = "") -> str:
    """Say in a sentence what a lower bound means beside a claim."""
    found = f"ε ≥ {lower_text(bound, claim)}{noise} at {100 * confidence:g} % confidence"
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
    confidence : float
        Of the bound.
    n_canaries, n_guesses, n_correct : int
        Coins, guesses and right guesses.
    epsilon, delta : float
        What was claimed.
    right : ndarray of bool of shape (n_canaries,)
        Which guesses are right, the surest first; the first `n_guesses` were counted.
    gaussian : bool, default=False
        Whether the claim is that of Gaussian noise that all records see, and nothing else
        (:math:`μ`-GDP). Then the guesses prove more (`skdpot.audit.guessing`).
    noise : NoiseEvidence or None, default=None
        Whether the stated noise is in the releases; None if a score of the caller's read them, or
        nothing was claimed.
    leak : str or None, default=None
        What changes with the rows while the releases stay the same (`skdpot.privacy.recording`);
        "" if nothing does, None if that was not tried.
    """

    confidence: float
    n_canaries: int
    n_guesses: int
    n_correct: int
    epsilon: float
    delta: float
    right: np.ndarray
    gaussian: bool = False
    noise: NoiseEvidence | None = None
    leak: str | None = None

    @cached_property
    def epsilon_lower(self) -> float:
        """The ε that the guesses prove: with probability `confidence` no smaller one is true.

        If `gaussian`, no Gaussian noise that costs less at `delta` is as private as the fit.
        """
        return self._shown_by(self.n_correct)

    @property
    def gaussian_epsilon_lower(self) -> float | None:
        """The bound that the noise that was found and the surest pair prove, if noise is normal.

        See `skdpot.audit.noise.NoiseEvidence.gaussian_epsilon_lower`.
        """
        return None if self.noise is None else self.noise.gaussian_epsilon_lower(self.delta)

    @property
    def power(self) -> float | None:
        """The share of the stated noise below which this audit would see it, in any one release.

        With a probability of 95 %, but for releases in ``noise.blind``. None if it is not known, or
        if missing noise could only be seen by the guesses.
        """
        return None if self.noise is None else self.noise.seen_below

    @property
    def ceiling(self) -> float:
        """The lower bound if all guesses had been right: more the guesses cannot show."""
        return self._shown_by(self.n_guesses)

    @property
    def refuted(self) -> bool:
        """Whether guesses, missing noise or outputs beside the releases refute the claim.

        By chance guesses do with a probability of ``1 - confidence`` at most, the noise with a
        hundredth of that, and outputs never.
        """
        found = max(self.epsilon_lower, self.gaussian_epsilon_lower or 0.0)
        too_little = self.noise is not None and bool(self.noise.refuting)
        return found > self.epsilon or too_little or bool(self.leak)

    @property
    def verdict(self) -> str:
        """What follows, and what such an audit could have refuted."""
        normal, told = self.gaussian_epsilon_lower or 0.0, []
        if self.epsilon_lower > self.epsilon or not self.refuted:
            noise = " of Gaussian noise" if self.gaussian else ""
            told.append(verdict_of(self.epsilon_lower, self.epsilon, self.confidence, noise))
        if math.isinf(self.epsilon):
            return told[0]
        if normal > 0.0:
            found = f"ε ≥ {lower_text(normal, self.epsilon)} if the noise is normal"
            broken = f"REFUTED: {found}, but ε = {self.epsilon:.4g} was claimed."
            told.append(broken if normal > self.epsilon else f"It is {found}.")
        if self.noise is None and not self.refuted:
            told.append(f"All guesses right would show ε ≥ {lower_text(self.ceiling)}.")
        elif self.noise is not None:
            told.append(self.noise.verdict)
        if self.leak:
            told.append(f"REFUTED: beside the releases, rows change the result: {self.leak}")
        return " ".join(told)

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

    def _shown_by(self, n_correct: int) -> float:
        return epsilon_lower_bound(
            self.delta,
            self.confidence,
            n_canaries=self.n_canaries,
            n_guesses=self.n_guesses,
            n_correct=n_correct,
            gaussian=self.gaussian,
        )

    def _power_text(self) -> str:
        if self.leak:
            return f"leak={self.leak!r}, "
        if self.noise is None:
            return ""
        if self.noise.refuting:
            worst = self.noise.refuting[0]
            return f"{worst.name} has {worst.factor:.2g} of its noise, "
        return "power=None, " if self.power is None else f"power={self.power:.2f}, "

    def __repr__(self) -> str:
        return (
            f"AuditResult(epsilon_lower={lower_text(self.epsilon_lower)}, "
            f"confidence={self.confidence:g}, {self.n_correct} of {self.n_guesses} guesses right, "
            f"{self.n_canaries} canaries, "
            f"{self._power_text()}claimed epsilon={self.epsilon:.4g}, delta={self.delta:.2g})"
        )
