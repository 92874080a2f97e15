"""A display of accuracy against parity, for many models or for all levels of a fit."""

from dataclasses import dataclass
from typing import Any, Self

import numpy as np
import pandas as pd

from skdpot._utils.panels import add_legend_beside, check_columns, draw_methods, single_axes
from skdpot.fair.notions import NOTIONS


@dataclass(kw_only=True, eq=False, repr=False)
class FairnessFrontierDisplay:
    """Accuracy against parity of many models, with the Pareto front.

    Create one with `from_estimator` or `from_results`. Parameters are stored as attributes.

    Parameters
    ----------
    points : DataFrame
        One row per point: its ``method``, the means ``parity`` and ``accuracy``, the standard
        deviations ``parity_std`` and ``accuracy_std`` (NaN for a single run), and whether it is
        ``on_front``.
    higher_is_fairer : bool, default=True
        Whether higher values of parity are fairer.
    parity_name, accuracy_name : str
        Labels of the axes.

    Attributes
    ----------
    ax_, figure_ : matplotlib Axes and Figure
        Where the points are drawn.
    errorbars_ : dict of str to ErrorbarContainer
        The points of each method.
    front_ : matplotlib Line2D
        The Pareto front.

    Privacy
    -------
    Results are treated as public. Metrics of private rows are not public, even if the models are
    private.

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

    points: pd.DataFrame
    higher_is_fairer: bool = True
    parity_name: str = "disparate impact"
    accuracy_name: str = "accuracy"

    @classmethod
    def from_estimator(cls, estimator: Any, *, name: str | None = None, **kwargs: Any) -> Self:
        """Draw what a fit says of all levels of fairness, without data; return the display.

        Error bars are standard errors.

        Parameters
        ----------
        estimator : FairPrivateClassifier or FairPrivateRegressor
            Fitted estimator with a `frontier_`. A regressor has its mean squared error on the
            vertical axis, and its lower left is best.
        name : str, optional
            Name for the legend; by default that of the class.
        **kwargs : dict
            For `plot`, such as `ax`.

        Raises
        ------
        AttributeError
            If the estimator has no frontier.
        """
        table = estimator.frontier_
        parity, accuracy = "wasserstein", "mean_squared_error"
        if "accuracy" in table:
            parity, accuracy = NOTIONS[estimator.fairness].shown_by, "accuracy"
        higher = parity == "disparate_impact"
        points = pd.DataFrame({"method": name or type(estimator).__name__}, index=table.index)
        for axis, column in (("parity", parity), ("accuracy", accuracy)):
            points[axis], points[f"{axis}_std"] = table[column], table[f"{column}_se"]
        signs = [1 if higher else -1, 1 if accuracy == "accuracy" else -1]
        points["on_front"] = _on_front(points, signs)
        names = (parity.replace("_", " "), accuracy.replace("_", " "))
        return cls(
            points=points, higher_is_fairer=higher, parity_name=names[0], accuracy_name=names[1]
        ).plot(**kwargs)

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
        **kwargs: Any,
    ) -> Self:
        """Average repeated runs and draw them; return the display.

        Parameters
        ----------
        results : DataFrame
            One row per run.
        method : str, default="method"
            Column with the name of the method, shown by color and marker.
        settings : str or list of str, optional
            Columns that distinguish the points of a method, such as the weight of a penalty or ε.
            Runs with the same method and settings become one point at their mean, with error bars
            of one standard deviation.
        parity, accuracy : str, default="disparate_impact", "accuracy"
            Columns of the horizontal and of the vertical axis. Higher accuracy must be better.
        higher_is_fairer : bool, default=True
            False for differences and distances, for which 0 is parity.
        **kwargs : dict
            For `plot`, such as `ax`.

        Raises
        ------
        ValueError
            If a column does not exist, there are no rows, or a value is missing.
        """
        keys = [method, *([settings] if isinstance(settings, str) else settings or [])]
        check_columns(results, [*keys, parity, accuracy])
        if not len(results) or not np.isfinite(results[[parity, accuracy]].to_numpy(float)).all():
            raise ValueError(
                f"results must have rows, and finite numbers in {parity!r} and {accuracy!r}; "
                "drop runs with undefined parity."
            )
        grouped = results.groupby(keys, sort=False, dropna=False)
        points = grouped.agg(
            parity=(parity, "mean"),
            accuracy=(accuracy, "mean"),
            parity_std=(parity, "std"),
            accuracy_std=(accuracy, "std"),
        )
        points = points.reset_index().rename(columns={method: "method"})
        points["on_front"] = _on_front(points, [1 if higher_is_fairer else -1, 1])
        return cls(
            points=points,
            higher_is_fairer=higher_is_fairer,
            parity_name=parity.replace("_", " "),
            accuracy_name=accuracy.replace("_", " "),
        ).plot(**kwargs)

    def plot(self, ax: Any = None, *, connect: bool = True, legend: bool = True) -> Self:
        """Draw the points and the front and return the display.

        Parameters
        ----------
        ax : matplotlib Axes, optional
            Axes to draw on; by default new ones, with the legend beside them.
        connect : bool, default=True
            Whether to join the points of a method by a line, in the order of the results.
        legend : bool, default=True
            Whether to draw the legend.
        """
        beside, ax = ax is None, single_axes(ax, (8, 4.8))
        # The best accuracy among the points at least as fair, for every parity.
        front = self.points[self.points["on_front"]].sort_values("parity")
        style = {"color": "0.8", "linewidth": 5, "solid_capstyle": "round", "zorder": 0}
        style["drawstyle"] = "steps-pre" if self.higher_is_fairer else "steps-post"
        (self.front_,) = ax.plot(front["parity"], front["accuracy"], label="Pareto front", **style)
        bars: dict[str, Any] = {
            "capsize": 2,
            "linestyle": "-" if connect else "",
            "linewidth": 0.8,
            "elinewidth": 1,
        }
        figures = {"x": "parity", "y": "accuracy", "xerr": "parity_std", "yerr": "accuracy_std"}
        self.errorbars_ = draw_methods(ax, self.points, figures, bars)
        ax.set(xlabel=self.parity_name, ylabel=self.accuracy_name)
        self.ax_, self.figure_ = ax, ax.figure
        if legend:
            add_legend_beside(ax, beside)
        return self


def _on_front(points: pd.DataFrame, signs: list[int]) -> np.ndarray:
    """Whether no other point is better in one figure, and not worse in the other."""
    figures = points[["parity", "accuracy"]].to_numpy() * signs
    others = figures[:, np.newaxis]
    beaten = np.all(others >= figures, axis=2) & np.any(others > figures, axis=2)
    return np.asarray(~beaten.any(axis=0))
