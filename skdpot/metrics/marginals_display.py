"""Picture of synthetic rows beside real ones, column by column."""

import math
from dataclasses import dataclass
from typing import Any, Self

import numpy as np
import pandas as pd

from skdpot.metrics._panels import COLORS, panel_grid
from skdpot.metrics.marginals import (
    Marginal,
    as_columns,
    correlation_differences,
    marginal_of,
    pair_distances,
)

__all__ = ["MarginalsDisplay", "draw_marginal", "draw_pairs", "make_axes"]

_SIZE = (2.7, 2.2)  # inches
_N_COLUMNS = 4
_REAL = {"color": "0.78"}
_REACH = 2.0  # standard deviations, of the bars of noise
_NOISE = {"fmt": "none", "ecolor": "0.35", "elinewidth": 0.8, "capsize": 0}
_MOST_LETTERS = 16
_MOST_WRITTEN = 8  # columns whose figures fit into the cells of the map


def make_axes(ax: Any, n_columns: int, pairs: pd.DataFrame | None) -> np.ndarray:
    """Return one Axes a column and, if there are pairs, one for the map, at the right of new ones.

    Parameters
    ----------
    ax : matplotlib Axes, sequence of them, or None
        What the caller gave.
    n_columns : int
        Number of columns of the table.
    pairs : DataFrame or None
        The map.

    Returns
    -------
    ndarray of Axes
        As many as panels.
    """
    if ax is not None or pairs is None:
        return panel_grid(ax, n_columns + (pairs is not None), _N_COLUMNS, _SIZE)
    import matplotlib.pyplot as plt

    width = min(n_columns, max(2, math.ceil(math.sqrt(n_columns))), _N_COLUMNS)
    n_rows = math.ceil(n_columns / width)
    map_size = float(np.clip(0.36 * len(pairs) + 1.8, 3.2, 9.0))
    height = max(n_rows * _SIZE[1], map_size) + 0.5
    figure = plt.figure(figsize=(width * _SIZE[0] + map_size + 0.8, height), layout="constrained")
    ratios = [_SIZE[0]] * width + [map_size + 0.8]
    grid = figure.add_gridspec(n_rows, width + 1, width_ratios=ratios)
    cells = [grid[k // width, k % width] for k in range(n_columns)]
    axes: np.ndarray = np.array([figure.add_subplot(cell) for cell in [*cells, grid[:, -1]]])
    return axes


def draw_marginal(
    ax: Any, marginal: Marginal, max_categories: int, style: dict[str, Any]
) -> tuple[Any, Any]:
    """Draw one column, real rows in grey.

    Parameters
    ----------
    ax : matplotlib Axes
        Where.
    marginal : Marginal
        The shares.
    max_categories : int
        At most so many bars.
    style : dict
        Of the synthetic rows.

    Returns
    -------
    tuple
        The artists of the real and of the synthetic rows.
    """
    drawn = _draw_bars if marginal.kind == "category" else _draw_steps
    args = (max_categories,) if marginal.kind == "category" else ()
    artists = drawn(ax, marginal, {"color": COLORS[0]} | style, *args)
    if marginal.ticks:
        ax.set_xticks(*map(list, zip(*marginal.ticks, strict=True)))
    title = f"{_short(marginal.name, 26)}\nTV = {marginal.total_variation:.3f}"
    ax.set_title(title, fontsize="small")
    ax.tick_params(labelsize="small")
    return artists


def draw_pairs(ax: Any, pairs: pd.DataFrame, name: str) -> Any:
    """Draw the map of pairs, with figures in the cells where they fit.

    Parameters
    ----------
    ax : matplotlib Axes
        Where.
    pairs : DataFrame
        A figure a pair.
    name : str
        What the figure is.

    Returns
    -------
    AxesImage
        The map.
    """
    values = pairs.to_numpy()
    signed = bool(np.nanmin(values) < 0)
    largest = float(np.nanmax(np.abs(values))) or 1.0
    limits = {"vmin": -largest if signed else 0.0, "vmax": largest}
    image = ax.imshow(values, cmap="RdBu_r" if signed else "Blues", **limits)
    names = [_short(str(column), _MOST_LETTERS) for column in pairs.columns]
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


def _draw_steps(ax: Any, marginal: Marginal, style: dict[str, Any]) -> tuple[Any, Any]:
    """Draw histograms of numbers or dates, and apart from them the missing values as bars."""
    edges = marginal.values
    if marginal.kind == "date":
        from matplotlib.dates import AutoDateLocator, ConciseDateFormatter

        locator = AutoDateLocator(minticks=2, maxticks=5)
        ax.xaxis.set_major_locator(locator)
        ax.xaxis.set_major_formatter(ConciseDateFormatter(locator))
    else:  # long numbers side by side would run into each other
        ax.locator_params(axis="x", nbins=4)
        ax.ticklabel_format(axis="x", scilimits=(-3, 5))
    real = ax.stairs(marginal.real, edges, fill=True, **_REAL)
    synthetic = ax.stairs(marginal.synthetic, edges, linewidth=1.5, **style)
    if marginal.real_deviations is not None:
        centres = (edges[1:] + edges[:-1]) / 2
        ax.errorbar(centres, marginal.real, _REACH * marginal.real_deviations, **_NOISE)
    if marginal.real_missing or marginal.synthetic_missing:
        span = edges[-1] - edges[0]
        left, width = edges[-1] + 0.2 * span, 0.06 * span
        ax.bar(left + width / 2, marginal.real_missing, width, **_REAL)
        if marginal.real_missing_deviation:
            reach = _REACH * marginal.real_missing_deviation
            ax.errorbar(left + width / 2, marginal.real_missing, reach, **_NOISE)
        ax.bar(left + 3 * width / 2, marginal.synthetic_missing, width, **style)
        where = edges[-1] + 0.12 * span, 0.04
        style = {"rotation": 90, "ha": "center", "va": "bottom", "fontsize": "x-small"}
        ax.text(*where, "missing", transform=ax.get_xaxis_transform(), **style)
    ax.set_ylim(0, None)
    return real, synthetic


def _draw_bars(
    ax: Any, marginal: Marginal, style: dict[str, Any], max_categories: int
) -> tuple[Any, Any]:
    """Draw bars of categories, the rarest together, with a bar for the missing values."""
    names, real, synthetic = marginal.values.tolist(), marginal.real, marginal.synthetic
    noise = np.zeros(len(real)) if marginal.real_deviations is None else marginal.real_deviations
    if len(names) > max_categories:
        kept = max_categories - 1
        order = np.sort(np.argsort(-real, kind="stable")[:kept])
        names = [names[k] for k in order] + [f"{len(names) - kept} others"]
        parts = (real, synthetic)
        real, synthetic = (np.append(part[order], part.sum() - part[order].sum()) for part in parts)
        others = np.delete(noise, order)
        noise = np.append(noise[order], np.sqrt(np.sum(others**2)))
    if marginal.real_missing or marginal.synthetic_missing:
        names = [*names, "missing"]
        real = np.append(real, marginal.real_missing)
        synthetic = np.append(synthetic, marginal.synthetic_missing)
        noise = np.append(noise, marginal.real_missing_deviation)
    where = np.arange(len(names))
    bars = (
        ax.barh(where - 0.2, real, 0.4, **_REAL),
        ax.barh(where + 0.2, synthetic, 0.4, **style),
    )
    if noise.any():
        ax.errorbar(real, where - 0.2, xerr=_REACH * noise, **_NOISE)
        ax.set_xlim(0, None)
    ax.set_yticks(where, [_short(name, _MOST_LETTERS) for name in names], fontsize="small")
    ax.invert_yaxis()
    return bars


def _short(text: str, most: int) -> str:
    return text if len(text) <= most else text[: most - 1] + "…"


_MOST_COLUMNS = 40
_PAIRS = {"total_variation": pair_distances, "correlation": correlation_differences}


@dataclass(kw_only=True, eq=False, repr=False)
class MarginalsDisplay:
    """Marginals of synthetic and of real rows, a panel a column, and how pairs of columns differ.

    Make one with `from_frames` or `from_estimator`. Parameters are stored as attributes.

    Parameters
    ----------
    marginals : list of Marginal
        Shares of the values of each column: ``name``, ``kind``, ``values``, ``real``,
        ``synthetic``, ``real_missing``, ``synthetic_missing`` and ``total_variation``.
    pairs : DataFrame of shape (n_columns, n_columns), optional
        A figure for every pair of columns.
    pairs_name : str, optional
        What that figure is.
    labels : tuple of two str, default=("real rows", "synthetic rows")
        What the legend calls them.

    Attributes
    ----------
    axes_ : ndarray of matplotlib Axes
        The panels, in the order of the columns, that of the pairs last.
    figure_ : matplotlib Figure
        Figure that holds them.
    artists_ : dict of str to tuple of two artists
        What was drawn for the real and for the synthetic rows of each column: steps for numbers
        and dates, bars for categories.
    image_ : AxesImage or None
        The pairs.

    See Also
    --------
    train_synthetic_test_real : How useful synthetic rows are.
    SketchDisplay : What a private sketch knows of each column; it needs no public rows.

    Privacy
    -------
    Real rows are treated as public: their shares are drawn, and stored, without noise. A picture
    of private rows is not private, however private the synthetic rows beside them are.

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

    marginals: list[Marginal]
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
        """Draw rows of a fitted sampler beside real ones.

        Parameters
        ----------
        sampler : estimator
            Fitted, with ``sample(n_samples, random_state=)``.
        real : DataFrame or array-like of shape (n, d)
            **Public** rows.
        n_samples : int, optional
            Number of synthetic rows; by default as many as real ones, but at least 1000, so that
            their own randomness hardly shows.
        random_state : int, RandomState or None, default=None
            For ``sampler.sample``.
        **kwargs : dict
            For `from_frames`.

        Returns
        -------
        MarginalsDisplay
            The display, drawn.

        Privacy
        -------
        Sampling is free. `real` is treated as public.
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
        ax: Any = None,
        **kwargs: Any,
    ) -> Self:
        """Count both tables on the same bins and draw them.

        Parameters
        ----------
        real : DataFrame (pandas or polars) or array-like of shape (n, d)
            **Public** rows.
        synthetic : DataFrame or array-like of shape (m, d)
            Synthetic rows, with the same columns.
        columns : sequence of column names, optional
            Which to draw; all columns of `real` by default. Those of an array are called ``x0``,
            ``x1`` and so on.
        bins : int, default=20
            Number of bins of numbers. They span the real rows without half a per cent on each
            side; what lies beyond is counted in the end bins. Whole numbers of fewer values have
            a bin each.
        pairs : {"total_variation", "correlation"}, optional
            Adds a map of all pairs of columns: the total variation distance of the two
            bivariate distributions (numbers in 16 bins), or the correlation among the synthetic
            minus that among the real rows (numbers only).
        ax : matplotlib Axes or sequence of them, optional
            See `plot`.
        **kwargs : dict
            For `plot`.

        Returns
        -------
        MarginalsDisplay
            The display, drawn.

        Raises
        ------
        ValueError
            If a table is empty, columns are missing or too many, or a column is of another kind
            in the other table.

        Privacy
        -------
        `real` is treated as public.
        """
        if pairs is not None and pairs not in _PAIRS:
            raise ValueError(f"pairs={pairs!r} must be None or one of {sorted(_PAIRS)}.")
        first, second = as_columns(real, "real"), as_columns(synthetic, "synthetic")
        names = list(first) if columns is None else list(columns)
        _check_columns(names, first, second)
        first, second = ({name: part[name] for name in names} for part in (first, second))
        return cls(
            marginals=[marginal_of(name, first[name], second[name], bins) for name in names],
            pairs=None if pairs is None else _PAIRS[pairs](first, second),
            pairs_name=None if pairs is None else pairs.replace("_", " "),
        ).plot(ax=ax, **kwargs)

    def plot(
        self,
        ax: Any = None,
        *,
        max_categories: int = 10,
        name: str | None = None,
        legend: bool = True,
        **kwargs: Any,
    ) -> Self:
        """Draw the panels.

        Parameters
        ----------
        ax : matplotlib Axes or sequence of them, optional
            One Axes a column, and one for the pairs if there are any; new ones by default.
        max_categories : int, default=10
            At most so many bars; the rarest categories share the last one.
        name : str, optional
            Title of the figure.
        legend : bool, default=True
            Whether to draw the legend.
        **kwargs : dict
            Style of the synthetic rows, such as `color`.

        Returns
        -------
        MarginalsDisplay
            The display.

        Raises
        ------
        ValueError
            If the number of Axes is another one.
        """
        n_columns = len(self.marginals)
        self.axes_ = make_axes(ax, n_columns, self.pairs)
        self.figure_ = self.axes_[0].figure
        self.artists_ = {
            marginal.name: draw_marginal(panel, marginal, max_categories, kwargs)
            for panel, marginal in zip(self.axes_, self.marginals, strict=False)
        }
        self.image_ = None
        if self.pairs is not None:
            self.image_ = draw_pairs(self.axes_[-1], self.pairs, str(self.pairs_name))
        if name and ax is None:
            self.figure_.suptitle(name, fontsize="medium")
        if legend:
            handles = list(self.artists_[self.marginals[0].name])
            texts = list(self.labels)
            if ax is None:
                options = {"loc": "outside lower center", "ncols": 2, "fontsize": "small"}
                self.figure_.legend(handles, texts, **options)
            else:
                self.axes_[0].legend(handles, texts, fontsize="small")
        return self


def _check_columns(names: list[Any], real: dict[Any, Any], synthetic: dict[Any, Any]) -> None:
    """Refuse columns that are not there, or too many of them."""
    absent = [name for name in names if name not in real or name not in synthetic]
    if absent:
        raise ValueError(f"Both tables must have the columns {absent}; name others in columns=.")
    if not 1 <= len(names) <= _MOST_COLUMNS or len(set(names)) < len(names):
        raise ValueError(
            f"columns must name 1 to {_MOST_COLUMNS} different columns, and holds {len(names)}."
        )
