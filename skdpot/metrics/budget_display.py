"""Picture of a privacy budget: what each charge has added, against the cap."""

import math
import os
from dataclasses import dataclass
from typing import Any, Self

import numpy as np
import pandas as pd

from skdpot.metrics._panels import COLORS
from skdpot.privacy.budget import PrivacyBudget
from skdpot.privacy.budget_state import epsilon_of
from skdpot.privacy.display import rounded_up

__all__ = ["BudgetDisplay"]

_MOST_BARS = 25
_MOST_LETTERS = 34
_ROW_HEIGHT = 0.28  # inches


@dataclass(kw_only=True, eq=False, repr=False)
class BudgetDisplay:
    """Epsilon spent after each charge of a budget, against its cap.

    Make one with `from_budget` or `from_ledger`. Parameters are stored as attributes.

    Parameters
    ----------
    history : DataFrame
        What `PrivacyBudget.history` returns, with a column more: ``epsilon_spent``, of this
        charge and all before it together.
    epsilon : float
        The cap; may be infinite.
    delta : float
        At which all epsilons hold.

    Attributes
    ----------
    ax_ : matplotlib Axes
        Axes with the history.
    figure_ : matplotlib Figure
        Figure that holds them.
    bars_ : BarContainer or None
        With ``kind="bars"``: what each charge has added.
    line_ : matplotlib Line2D or None
        With ``kind="line"``: the epsilon spent.
    cap_ : matplotlib Line2D or None
        The cap; None if it is infinite.

    See Also
    --------
    skdpot.PrivacyBudget : Keeps the history.

    Privacy
    -------
    A history holds public facts only: labels, times and costs of what was admitted. Charges that
    were refused have released nothing and are not in it.

    Notes
    -----
    Epsilons of several charges do not add up: a charge adds the less, the more is spent already.
    The ends of its bar are the epsilons before and after it.

    Examples
    --------
    >>> from skdpot import PrivacyBudget
    >>> from skdpot.metrics import BudgetDisplay
    >>> from skdpot.privacy.events import GaussianEvent
    >>> budget = PrivacyBudget(epsilon=1.0, delta=1e-5)
    >>> for label in ("mean", "variance"):
    ...     budget.spend(GaussianEvent(sigma=20.0, sensitivity=2.0), label=label)
    >>> display = BudgetDisplay.from_budget(budget)
    >>> display.history["epsilon_spent"].round(2).tolist()
    [0.34, 0.5]
    """

    history: pd.DataFrame
    epsilon: float
    delta: float

    @classmethod
    def from_budget(cls, budget: PrivacyBudget, *, ax: Any = None, **kwargs: Any) -> Self:
        """Draw the history of a budget.

        Parameters
        ----------
        budget : PrivacyBudget
            With any number of charges.
        ax : matplotlib Axes, optional
            Axes to draw on; new ones by default.
        **kwargs : dict
            For `plot`.

        Returns
        -------
        BudgetDisplay
            The display, drawn.

        Raises
        ------
        LedgerError
            If the ledger cannot be read.
        TypeError
            If something else than a budget is given.

        Privacy
        -------
        Nothing is charged: a history is public.
        """
        if not isinstance(budget, PrivacyBudget):
            raise TypeError(f"budget must be a PrivacyBudget, not a {type(budget).__name__}.")
        history = budget.history()
        # Sums as the ledger keeps them, in whole units; one of no privacy is infinite.
        units = np.cumsum(np.rint(history["mu"].to_numpy() ** 2 * 1e12))
        spent = [epsilon_of(total, budget.delta) for total in map(_whole, units.tolist())]
        history["epsilon_spent"] = np.minimum(np.array(spent, dtype=float), budget.epsilon)
        return cls(history=history, epsilon=budget.epsilon, delta=budget.delta).plot(
            ax=ax, **kwargs
        )

    @classmethod
    def from_ledger(cls, ledger: str | os.PathLike[str], *, ax: Any = None, **kwargs: Any) -> Self:
        """Draw the history that a file holds.

        Parameters
        ----------
        ledger : str or path-like
            File of a budget that was made with ``ledger=``. It is only read.
        ax : matplotlib Axes, optional
            Axes to draw on; new ones by default.
        **kwargs : dict
            For `plot`.

        Returns
        -------
        BudgetDisplay
            The display, drawn.

        Raises
        ------
        LedgerError
            If the file is missing, or no intact ledger.

        Privacy
        -------
        Nothing is charged: a history is public.
        """
        return cls.from_budget(PrivacyBudget.from_ledger(ledger), ax=ax, **kwargs)

    def plot(
        self, ax: Any = None, *, kind: str = "auto", legend: bool = True, **kwargs: Any
    ) -> Self:
        """Draw the history.

        Parameters
        ----------
        ax : matplotlib Axes, optional
            Axes to draw on; new ones by default.
        kind : {"auto", "bars", "line"}, default="auto"
            A bar with its label a charge, the oldest at the top, or a line over the number of
            charges; "auto" draws bars for up to 25 charges.
        legend : bool, default=True
            Whether to write what the cap is.
        **kwargs : dict
            For ``Axes.barh`` or ``Axes.plot``.

        Returns
        -------
        BudgetDisplay
            The display.

        Raises
        ------
        ValueError
            If `kind` is unknown.
        """
        if kind not in ("auto", "bars", "line"):
            raise ValueError(f"kind={kind!r} must be 'auto', 'bars' or 'line'.")
        import matplotlib.pyplot as plt

        n_charges = len(self.history)
        as_bars = kind == "bars" or (kind == "auto" and n_charges <= _MOST_BARS)
        if ax is None:
            height = max(2.0, 1.3 + _ROW_HEIGHT * n_charges) if as_bars else 4.0
            _, ax = plt.subplots(figsize=(7.2, height), layout="constrained")
        self.bars_ = self.line_ = self.cap_ = None
        if as_bars:
            self._draw_bars(ax, kwargs)
        else:
            self._draw_line(ax, kwargs)
        if legend and self.cap_ is not None:
            self._name_cap(ax, (self.epsilon, -0.9) if as_bars else (0, self.epsilon))
        if not n_charges:
            where = {"ha": "center", "va": "center", "transform": ax.transAxes}
            ax.text(0.45, 0.4, "nothing charged yet", color="0.4", **where)
        self.ax_, self.figure_ = ax, ax.figure
        return self

    def _draw_bars(self, ax: Any, style: dict[str, Any]) -> None:
        """Draw a bar from the epsilon before to the epsilon after each charge."""
        spent = self.history["epsilon_spent"].to_numpy()
        limit = self._limit(spent)
        after = np.minimum(spent, limit)
        before = np.concatenate([[0.0], after[:-1]])
        where = np.arange(len(spent))
        self.bars_ = ax.barh(
            where, after - before, left=before, **({"color": COLORS[0], "height": 0.6} | style)
        )
        for k, (total, end) in enumerate(zip(spent, after, strict=True)):
            text = rounded_up(total).replace("inf", "∞")
            style = {"va": "center", "size": 8, "bbox": {"fc": "white", "ec": "none", "pad": 0.5}}
            ax.annotate(text, (end, k), (4, 0), textcoords="offset points", **style)
        labels = [_short(label or "no label") for label in self.history["label"]]
        ax.set_yticks(where, labels, fontsize="small")
        ax.set(xlim=(0, 1.12 * limit), ylim=(max(len(spent), 1) - 0.4, -1.4))
        ax.set_xlabel(f"ε spent, at δ = {self.delta:g}")
        if math.isfinite(self.epsilon):
            self.cap_ = ax.axvline(self.epsilon, color=COLORS[1], linestyle="--")

    def _draw_line(self, ax: Any, style: dict[str, Any]) -> None:
        """Draw the epsilon after each number of charges, from none on."""
        spent = np.concatenate([[0.0], self.history["epsilon_spent"].to_numpy()])
        limit = self._limit(spent)
        options = {"color": COLORS[0], "drawstyle": "steps-post"} | style
        (self.line_,) = ax.plot(np.arange(len(spent)), np.minimum(spent, limit), **options)
        # Half a charge more, so that the last step is seen.
        ax.set(xlim=(0, len(spent) - 0.5), ylim=(0, 1.12 * limit), xlabel="charges")
        ax.xaxis.get_major_locator().set_params(integer=True)
        ax.set_ylabel(f"ε spent, at δ = {self.delta:g}")
        if math.isfinite(self.epsilon):
            self.cap_ = ax.axhline(self.epsilon, color=COLORS[1], linestyle="--")

    def _limit(self, spent: np.ndarray) -> float:
        """Return the largest epsilon that is drawn; what has no privacy ends there."""
        if math.isfinite(self.epsilon):
            return self.epsilon
        finite = spent[np.isfinite(spent)]
        return 1.25 * float(finite.max(initial=0.0)) or 1.0

    def _name_cap(self, ax: Any, where: tuple[float, float]) -> None:
        """Write the cap beside its line: to the left of an upright one, above a level one."""
        upright = where[0] > 0
        style = {"ha": "right" if upright else "left", "va": "center" if upright else "bottom"}
        offset = (-6, 0) if upright else (6, 2)
        text = f"cap: ε = {self.epsilon:g}"
        ax.annotate(
            text, where, offset, textcoords="offset points", color=COLORS[1], size=9, **style
        )


def _whole(units: float) -> int | float:
    return units if math.isinf(units) else int(units)


def _short(text: str) -> str:
    return text if len(text) <= _MOST_LETTERS else text[: _MOST_LETTERS - 1] + "…"
