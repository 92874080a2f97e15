"""Picture of a membership attack against what its ε allows."""

from typing import Any, Self

import numpy as np

from skdpot.metrics._panels import COLORS

__all__ = ["MembershipDisplay"]


class MembershipDisplay:
    """Operating characteristic of a membership attack, with the region that ε and δ allow.

    `MembershipResult.plot` makes one. Parameters are stored as attributes.

    Parameters
    ----------
    fpr, tpr : ndarray of shape (n_thresholds,)
        False and true positive rates of the attack.
    allowed_fpr, allowed_tpr : ndarray of shape (n_points,)
        Upper boundary of the region that the claim allows.
    epsilon : float
        The claim, for the legend.

    Attributes
    ----------
    ax_ : matplotlib Axes
        Axes with the curve.
    figure_ : matplotlib Figure
        Figure that holds them.
    line_ : matplotlib Line2D
        The curve.
    region_ : matplotlib FillBetweenPolyCollection
        The region.

    See Also
    --------
    skdpot.audit.gaussian_audit : Makes scores.
    """

    def __init__(
        self,
        *,
        fpr: np.ndarray,
        tpr: np.ndarray,
        allowed_fpr: np.ndarray,
        allowed_tpr: np.ndarray,
        epsilon: float,
    ) -> None:
        self.fpr = fpr
        self.tpr = tpr
        self.allowed_fpr = allowed_fpr
        self.allowed_tpr = allowed_tpr
        self.epsilon = epsilon

    def plot(
        self, ax: Any = None, *, legend: bool = True, log: bool = False, **kwargs: Any
    ) -> Self:
        """Draw the curve, the region and the diagonal of guessing.

        Parameters
        ----------
        ax : matplotlib Axes, optional
            Axes to draw on; new ones by default.
        legend : bool, default=True
            Whether to draw the legend.
        log : bool, default=False
            Whether both axes are logarithmic, for small false positive rates.
        **kwargs : dict
            For ``Axes.plot``.

        Returns
        -------
        MembershipDisplay
            The display.
        """
        import matplotlib.pyplot as plt

        if ax is None:
            _, ax = plt.subplots()
        claim = f"{self.epsilon:g}".replace("inf", "∞")
        self.region_ = ax.fill_between(
            self.allowed_fpr,
            self.allowed_fpr,
            self.allowed_tpr,
            color=COLORS[5],
            alpha=0.3,
            linewidth=0,
            label=f"allowed by ε = {claim}",
        )
        style = {"color": COLORS[0], "drawstyle": "steps-post", "label": "attack"} | kwargs
        (self.line_,) = ax.plot(self.fpr, self.tpr, **style)
        # Not with ends at zero: on logarithmic axes such a line would have none.
        ends = [[self._least, 1]] * 2 if log else [[0, 1]] * 2
        ax.plot(*ends, color="black", linestyle=":", linewidth=1, label="guessing")
        if log:
            ax.set(xscale="log", yscale="log")
        lower = self._least if log else 0
        ax.set(
            xlim=(lower, 1),
            ylim=(lower, 1),
            xlabel="false positive rate",
            ylabel="true positive rate",
            aspect="equal",
        )
        if legend:
            ax.legend(loc="lower right")
        self.ax_, self.figure_ = ax, ax.figure
        return self

    @property
    def _least(self) -> float:
        """Where logarithmic axes begin: at the smallest rate above zero, below which is nothing."""
        seen = self.fpr[self.fpr > 0]
        return float(np.clip(seen.min() if len(seen) else 1.0, 1e-5, 0.1))
