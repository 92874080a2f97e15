"""Picture of an audit: how often the surest guesses are right, and how often they may be."""

import math
from typing import Any, Self

import numpy as np
from scipy.stats import binom

from skdpot.metrics._panels import COLORS

__all__ = ["AuditDisplay"]


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

    def __init__(
        self,
        *,
        right: np.ndarray,
        n_guesses: int,
        epsilon: float,
        confidence: float,
        epsilon_lower: float,
    ) -> None:
        self.right = right
        self.n_guesses = n_guesses
        self.epsilon = epsilon
        self.confidence = confidence
        self.epsilon_lower = epsilon_lower

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
