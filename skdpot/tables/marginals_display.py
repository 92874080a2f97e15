"""Plots of the marginals of two tables side by side."""

import math
from dataclasses import dataclass
from typing import Any, Self

import numpy as np
import pandas as pd

from skdpot._utils.panels import COLORS, PanelDisplay, check_choice, cut_short, show_dates
from skdpot.tables.marginals import (
    ColumnShares,
    as_columns,
    check_same_columns,
    correlation_differences,
    marginal_of,
    pair_distances,
)

_SIZE = (2.7, 2.2)  # of a panel, in inches
_N_COLUMNS = 4  # panels side by side
_REAL = {"color": "0.78"}
_REACH = 2.0  # length of error bars, in standard deviations
_NOISE = {"fmt": "none", "ecolor": "0.35", "elinewidth": 0.8, "capsize": 0}
_MOST_LETTERS = 16  # of a name
_MOST_WRITTEN = 8  # columns of a map whose cells show numbers

_MOST_COLUMNS = 40  # panels of a figure
_PAIRS = {"total_variation": pair_distances, "correlation": correlation_differences}


def _mosaic(n_columns: int, n_pairs: int) -> np.ndarray:
    """Return one Axes per column, and one for the map of pairs on the right."""
    import matplotlib.pyplot as plt

    width = min(n_columns, max(2, math.ceil(math.sqrt(n_columns))), _N_COLUMNS)
    places = np.array_split(np.arange(n_columns), range(width, n_columns, width))
    rows = [[*row.tolist(), *[-2] * (width - len(row)), -1] for row in places]
    map_size = float(np.clip(0.36 * n_pairs + 1.8, 3.2, 9.0))
    size = width * _SIZE[0] + map_size + 0.8, max(len(rows) * _SIZE[1], map_size) + 0.5
    ratios = [_SIZE[0]] * width + [map_size + 0.8]
    options: Any = {"empty_sentinel": -2, "width_ratios": ratios, "layout": "constrained"}
    _, axes = plt.subplot_mosaic(rows, figsize=size, **options)
    return np.array([axes[k] for k in [*range(n_columns), -1]])


def _draw_marginal(
    ax: Any, marginal: ColumnShares, max_categories: int, style: dict[str, Any]
) -> tuple[Any, Any]:
    if marginal.kind == "category":
        artists = _draw_bars(ax, marginal, style, max_categories)
    else:
        artists = _draw_steps(ax, marginal, style)
    title = f"{cut_short(marginal.name, 26)}\nTV = {marginal.total_variation:.3f}"
    ax.set_title(title, fontsize="small")
    ax.tick_params(labelsize="small")
    return artists


def draw_pairs(ax: Any, pairs: pd.DataFrame, name: str) -> Any:
    """Draw the map of pairs, with numbers in the cells of small maps."""
    values = pairs.to_numpy()
    signed = name == "correlation" or bool(np.nanmin(values) < 0)
    largest = float(np.nanmax(np.abs(values))) or 1.0
    limits = {"vmin": -largest if signed else 0.0, "vmax": largest}
    image = ax.imshow(values, cmap="RdBu_r" if signed else "Blues", **limits)
    names = [cut_short(str(column), _MOST_LETTERS) for column in pairs.columns]
    ax.set_xticks(range(len(names)), names, rotation=90, fontsize="small")
    ax.set_yticks(range(len(names)), names, fontsize="small")
    if len(names) <= _MOST_WRITTEN:
        for (i, j), value in np.ndenumerate(values):
            strong = abs(value) > 0.6 * largest
            text = "" if np.isnan(value) else f"{round(value, 2) + 0.0:.2f}".replace("-", "−")
            color = "white" if strong else "black"
            ax.text(j, i, text, ha="center", va="center", fontsize="x-small", color=color)
    off_diagonal = np.abs(values[~np.eye(len(values), dtype=bool)])
    mean = f", mean {np.nanmean(off_diagonal):.3f}" if off_diagonal.size else ""
    title = f"{name} of pairs" if not signed else f"{name}, synthetic − real"
    ax.set_title(title + mean, fontsize="small")
    ax.figure.colorbar(image, ax=ax, shrink=0.7).ax.tick_params(labelsize="small")
    return image


def _draw_steps(ax: Any, marginal: ColumnShares, style: dict[str, Any]) -> tuple[Any, Any]:
    """Draw histograms of numbers or dates, and separate bars for missing values."""
    edges = marginal.values
    if marginal.kind == "date":
        show_dates(ax.xaxis)
    else:  # long numbers side by side would overlap
        ax.locator_params(axis="x", nbins=4)
        ax.ticklabel_format(axis="x", scilimits=(-3, 5))
    real = ax.stairs(marginal.real, edges, fill=True, **_REAL)
    synthetic = ax.stairs(marginal.synthetic, edges, linewidth=1.5, **style)
    if marginal.real_deviations is not None:
        centres = (edges[1:] + edges[:-1]) / 2
        ax.errorbar(centres, marginal.real, _REACH * marginal.real_deviations, **_NOISE)
    if marginal.real_missing or marginal.synthetic_missing:
        span = edges[-1] - edges[0]
        first, second, text = edges[-1] + np.array([0.23, 0.29, 0.12]) * span
        ax.bar(first, marginal.real_missing, 0.06 * span, **_REAL)
        if marginal.real_missing_deviation:
            reach = _REACH * marginal.real_missing_deviation
            ax.errorbar(first, marginal.real_missing, reach, **_NOISE)
        ax.bar(second, marginal.synthetic_missing, 0.06 * span, **style)
        letters = {"rotation": 90, "ha": "center", "va": "bottom", "fontsize": "x-small"}
        ax.text(text, 0.04, "missing", transform=ax.get_xaxis_transform(), **letters)
    ax.set_ylim(0, None)
    return real, synthetic


def _draw_bars(
    ax: Any, marginal: ColumnShares, style: dict[str, Any], max_categories: int
) -> tuple[Any, Any]:
    """Draw bars of categories, the rarest together, and of missing values."""
    variances = np.zeros(len(marginal.real))
    if marginal.real_deviations is not None:
        variances = marginal.real_deviations**2
    # One row per bar: shares of real and of synthetic rows, and the variance of noise.
    names = marginal.values.tolist()
    bars = np.column_stack([marginal.real, marginal.synthetic, variances])
    if len(names) > max_categories:
        order = np.argsort(-marginal.real, kind="stable")
        kept, others = np.sort(order[: max_categories - 1]), order[max_categories - 1 :]
        names = [*(names[k] for k in kept), f"{len(others)} others"]
        bars = np.vstack([bars[kept], bars[others].sum(axis=0)])
    missing = marginal.real_missing, marginal.synthetic_missing
    if any(missing):
        names = [*names, "missing"]
        bars = np.vstack([bars, [*missing, marginal.real_missing_deviation**2]])
    where, (real, synthetic, variances) = np.arange(len(names)), bars.T
    drawn = ax.barh(where - 0.2, real, 0.4, **_REAL), ax.barh(where + 0.2, synthetic, 0.4, **style)
    if variances.any():
        ax.errorbar(real, where - 0.2, xerr=_REACH * np.sqrt(variances), **_NOISE)
        ax.set_xlim(0, None)
    ax.set_yticks(where, [cut_short(name, _MOST_LETTERS) for name in names], fontsize="small")
    ax.invert_yaxis()
    return drawn


@dataclass(kw_only=True, eq=False, repr=False)
class MarginalsDisplay(PanelDisplay):
    """Marginal distributions of real and synthetic rows, one panel per column.

    Create one with `from_frames` or `from_estimator`. Parameters are stored as attributes.

    Parameters
    ----------
    marginals : list of ColumnShares
        Shares of the values of each column: ``name``, ``kind``, ``values``, ``real``,
        ``synthetic``, ``real_missing``, ``synthetic_missing`` and ``total_variation``.
    pairs, pairs_name : DataFrame of shape (n_columns, n_columns), str, optional
        A number for every pair of columns, and its name.
    labels : tuple of two str, default=("real rows", "synthetic rows")
        Labels of the legend.

    Attributes
    ----------
    axes_, figure_ : ndarray of matplotlib Axes, Figure
        The panels in the order of the columns; the panel of the pairs comes last.
    artists_ : dict of str to tuple of two artists
        Artists of the real and of the synthetic rows of each column: steps for numbers and dates,
        bars for categories.
    image_ : AxesImage or None
        Map of the pairs.

    Privacy
    -------
    Real rows are treated as public: their shares are drawn and stored without noise. A plot of
    private rows is not private, however private the synthetic rows are.

    Examples
    --------
    >>> from sklearn.datasets import load_iris
    >>> from sklearn.model_selection import train_test_split
    >>> from skdpot import DPSlicedFlowSampler
    >>> from skdpot.metrics import MarginalsDisplay
    >>> X, _ = load_iris(return_X_y=True, as_frame=True)
    >>> X_private, X_public = train_test_split(X, random_state=0)
    >>> sampler = DPSlicedFlowSampler(epsilon=20.0, bounds=(0, 8)).fit(X_private)
    >>> display = MarginalsDisplay.from_frames(X_public, sampler.sample(500))
    >>> [marginal.name for marginal in display.marginals][:2]
    ['sepal length (cm)', 'sepal width (cm)']
    """

    marginals: list[ColumnShares]
    pairs: pd.DataFrame | None = None
    pairs_name: str | None = None
    labels: tuple[str, str] = ("real rows", "synthetic rows")

    @classmethod
    def from_estimator(
        cls,
        sampler: Any,
        real: Any,
        *,
        n_samples: int | None = None,
        random_state: int | np.random.RandomState | None = None,
        **kwargs: Any,
    ) -> Self:
        """Plot rows of a fitted sampler beside real rows; return the display.

        Parameters
        ----------
        sampler : estimator
            Fitted estimator with a method ``sample(n_samples, random_state=)``.
        real : DataFrame or array-like of shape (n, d)
            **Public** rows.
        n_samples : int, optional
            Number of synthetic rows; by default the number of real rows, but at least 1000.
        random_state : int, RandomState or None, default=None
            Passed to ``sampler.sample``.
        **kwargs : dict
            Passed to `from_frames`.
        """
        size = max(len(real), 1000) if n_samples is None else n_samples
        return cls.from_frames(real, sampler.sample(size, random_state=random_state), **kwargs)

    @classmethod
    def from_frames(
        cls,
        real: Any,
        synthetic: Any,
        columns: Any = None,
        *,
        bins: int = 20,
        pairs: str | None = None,
        **kwargs: Any,
    ) -> Self:
        """Plot two tables on the same bins; return the display.

        Parameters
        ----------
        real, synthetic : DataFrame (pandas or polars) or array-like of shape (n, d), (m, d)
            **Public** rows, and synthetic rows with the same columns.
        columns : sequence of column names, optional
            Columns to plot; all columns of `real` by default. The columns of an array are named
            ``x0``, ``x1`` and so on.
        bins : int, default=20
            Number of bins of numbers. They span the real rows except 0.5 % on each side, which the
            end bins include. If there are fewer integers than bins, each has its own bin.
        pairs : {"total_variation", "correlation"}, optional
            Adds a map of all pairs of columns: the total variation distance of the bivariate
            distributions (numbers in 16 bins), or the correlation in the synthetic rows minus that
            in the real rows (numbers only).
        **kwargs : dict
            Passed to `plot`, such as `ax`.

        Raises
        ------
        ValueError
            If a table is empty, columns are missing or too many, or the kinds of a column differ.
        """
        if pairs is not None:
            check_choice("pairs", pairs, list(_PAIRS))
        first, second = as_columns(real, "real"), as_columns(synthetic, "synthetic")
        names = list(first if columns is None else columns)
        absent = [name for name in names if name not in first or name not in second]
        if absent:
            raise ValueError(
                f"Both tables must have the columns {absent}; name others in columns=."
            )
        if not 1 <= len(names) <= _MOST_COLUMNS or len(set(names)) < len(names):
            raise ValueError(
                f"columns must name 1 to {_MOST_COLUMNS} different columns, and holds {len(names)}."
            )
        first, second = ({name: part[name] for name in names} for part in (first, second))
        check_same_columns(first, second)
        return cls(
            marginals=[marginal_of(name, first[name], second[name], bins) for name in names],
            pairs=None if pairs is None else _PAIRS[pairs](first, second),
            pairs_name=None if pairs is None else pairs.replace("_", " "),
        ).plot(**kwargs)

    def plot(
        self,
        ax: Any = None,
        *,
        max_categories: int = 10,
        name: str | None = None,
        legend: bool = True,
        **kwargs: Any,
    ) -> Self:
        """Plot the panels and return the display.

        Parameters
        ----------
        ax : matplotlib Axes or sequence of them, optional
            One Axes per column, and one for the pairs if there are any; new ones by default.
        max_categories : int, default=10
            Maximum number of bars; the rarest categories share the last one.
        name, legend : str, bool, optional
            Title of the figure, and whether to plot the legend.
        **kwargs : dict
            Style of the synthetic rows, such as `color`.
        """
        n_columns, n_pairs = len(self.marginals), 0 if self.pairs is None else len(self.pairs)
        axes = _mosaic(n_columns, n_pairs) if n_pairs and ax is None else ax
        self._take_axes(axes, n_columns + (n_pairs > 0), _N_COLUMNS, _SIZE)
        style = {"color": COLORS[0]} | kwargs
        self.artists_ = {
            marginal.name: _draw_marginal(panel, marginal, max_categories, style)
            for panel, marginal in zip(self.axes_, self.marginals, strict=False)
        }
        self.image_ = None
        if self.pairs is not None:
            self.image_ = draw_pairs(self.axes_[-1], self.pairs, str(self.pairs_name))
        handles = next(iter(self.artists_.values())) if legend else ()
        self._add_title_and_legend(ax, name, handles, self.labels)
        return self
