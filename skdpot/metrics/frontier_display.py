"""Picture of what fairness costs: accuracy against parity."""

from typing import Any, Self

import numpy as np
import pandas as pd

from skdpot.metrics._plotting import COLORS, MARKERS

__all__ = ["FairnessFrontierDisplay"]


class FairnessFrontierDisplay:
    """Accuracy against parity of many models, with the Pareto front.

    Make one with `from_results`. Parameters are stored as attributes.

    Parameters
    ----------
    points : DataFrame
        One row a point: its ``method``, the means ``parity`` and ``accuracy``, the standard
        deviations ``parity_std`` and ``accuracy_std`` (NaN for a single run), and whether it is
        ``on_front``.
    higher_is_fairer : bool, default=True
        Which way parity points.
    parity_name, accuracy_name : str
        Labels of the axes.

    Attributes
    ----------
    ax_ : matplotlib Axes
        Axes with the points.
    figure_ : matplotlib Figure
        Figure that holds them.
    errorbars_ : dict of str to ErrorbarContainer
        The points of each method.
    front_ : matplotlib Line2D
        The Pareto front.

    See Also
    --------
    FairnessDisplay : One model, with the distribution of its scores.

    Privacy
    -------
    Results are treated as public. Figures measured on private rows are not, however private
    the models are.

    Examples
    --------
    >>> import pandas as pd
    >>> from skdpot.metrics import FairnessFrontierDisplay
    >>> results = pd.DataFrame({
    ...     "method": ["plain", "fair", "fair", "fair"],
    ...     "alpha": [0.0, 0.5, 0.5, 0.9],
    ...     "disparate_impact": [0.3, 0.78, 0.82, 0.75],
    ...     "accuracy": [0.84, 0.83, 0.83, 0.80],
    ... })
    >>> display = FairnessFrontierDisplay.from_results(results, settings="alpha")
    >>> display.points[["method", "parity", "accuracy", "on_front"]]
      method  parity  accuracy  on_front
    0  plain    0.30      0.84      True
    1   fair    0.80      0.83      True
    2   fair    0.75      0.80     False
    """

    def __init__(
        self,
        *,
        points: pd.DataFrame,
        higher_is_fairer: bool = True,
        parity_name: str = "disparate impact",
        accuracy_name: str = "accuracy",
    ) -> None:
        self.points = points
        self.higher_is_fairer = higher_is_fairer
        self.parity_name = parity_name
        self.accuracy_name = accuracy_name

    @classmethod
    def from_results(
        cls,
        results: pd.DataFrame,
        *,
        method: str = "method",
        settings: str | list[str] | None = None,
        parity: str = "disparate_impact",
        accuracy: str = "accuracy",
        higher_is_fairer: bool = True,
        ax: Any = None,
        **kwargs: Any,
    ) -> Self:
        """Average repeated runs and draw them.

        Parameters
        ----------
        results : DataFrame
            One row a run.
        method : str, default="method"
            Column with the name of the method, which has a colour and a marker.
        settings : str or list of str, optional
            Columns, such as the weight of the penalty or ε, that tell a method's points apart.
            Runs that agree in method and settings are repeats: they become one point at their
            mean, with bars of one standard deviation either way.
        parity : str, default="disparate_impact"
            Column of the horizontal axis.
        accuracy : str, default="accuracy"
            Column of the vertical axis; higher must be better.
        higher_is_fairer : bool, default=True
            False for differences and distances, where 0 is parity.
        ax : matplotlib Axes, optional
            Axes to draw on; new ones by default.
        **kwargs : dict
            For `plot`.

        Returns
        -------
        FairnessFrontierDisplay
            The display, drawn.

        Raises
        ------
        ValueError
            If a column does not exist, there are no rows, or a figure is missing.
        """
        keys = [method, *([settings] if isinstance(settings, str) else settings or [])]
        absent = [column for column in (*keys, parity, accuracy) if column not in results]
        if absent:
            raise ValueError(f"results has no columns {absent}; it has {list(results.columns)}.")
        if not len(results) or not np.isfinite(results[[parity, accuracy]].to_numpy(float)).all():
            raise ValueError(
                f"results must have rows, and finite numbers in {parity!r} and {accuracy!r}; "
                "drop runs whose parity is not defined."
            )
        grouped = results.groupby(keys, sort=False, dropna=False)[[parity, accuracy]]
        means, spread = grouped.mean(), grouped.std()
        points = pd.DataFrame(
            {
                "parity": means[parity],
                "accuracy": means[accuracy],
                "parity_std": spread[parity],
                "accuracy_std": spread[accuracy],
            }
        ).reset_index()
        points = points.rename(columns={method: "method"})
        fairness = points["parity"] if higher_is_fairer else -points["parity"]
        points["on_front"] = _on_front(fairness.to_numpy(), points["accuracy"].to_numpy())
        display = cls(
            points=points,
            higher_is_fairer=higher_is_fairer,
            parity_name=parity.replace("_", " "),
            accuracy_name=accuracy.replace("_", " "),
        )
        return display.plot(ax=ax, **kwargs)

    def plot(self, ax: Any = None, *, connect: bool = True, legend: bool = True) -> Self:
        """Draw the points and the front.

        Parameters
        ----------
        ax : matplotlib Axes, optional
            Axes to draw on; new ones by default, with the legend beside them.
        connect : bool, default=True
            Whether a thin line joins the points of a method, in the order of the results.
        legend : bool, default=True
            Whether to draw the legend.

        Returns
        -------
        FairnessFrontierDisplay
            The display.
        """
        import matplotlib.pyplot as plt

        beside = ax is None
        if ax is None:
            _, ax = plt.subplots(figsize=(8, 4.8), layout="constrained")
        self.front_ = self._draw_front(ax)
        self.errorbars_ = {}
        for position, (name, rows) in enumerate(self.points.groupby("method", sort=False)):
            self.errorbars_[name] = ax.errorbar(
                rows["parity"],
                rows["accuracy"],
                xerr=rows["parity_std"],
                yerr=rows["accuracy_std"],
                label=str(name),
                color=COLORS[position % len(COLORS)],
                marker=MARKERS[position % len(MARKERS)],
                linestyle="-" if connect else "",
                linewidth=0.8,
                elinewidth=1,
                capsize=2,
            )
        ax.set(xlabel=self.parity_name, ylabel=self.accuracy_name)
        self.ax_, self.figure_ = ax, ax.figure
        if legend and beside:
            ax.legend(loc="center left", bbox_to_anchor=(1.0, 0.5), frameon=False)
        elif legend:
            ax.legend(loc="best")
        return self

    def _draw_front(self, ax: Any) -> Any:
        """Draw the best accuracy among the points at least as fair, for every parity."""
        front = self.points[self.points["on_front"]].sort_values("parity")
        (line,) = ax.plot(
            front["parity"],
            front["accuracy"],
            drawstyle="steps-pre" if self.higher_is_fairer else "steps-post",
            color="0.8",
            linewidth=5,
            solid_capstyle="round",
            zorder=0,
            label="Pareto front",
        )
        return line


def _on_front(fairness: np.ndarray, accuracy: np.ndarray) -> np.ndarray:
    """Tell which points no other point beats: better in one figure, and not worse in the other."""
    fairer = fairness[:, np.newaxis] <= fairness
    better = accuracy[:, np.newaxis] <= accuracy
    strictly = (fairness[:, np.newaxis] < fairness) | (accuracy[:, np.newaxis] < accuracy)
    beaten: np.ndarray = np.any(fairer & better & strictly, axis=1)
    return np.logical_not(beaten)
