"""The panels of a picture of marginals: steps, bars, and a map of pairs."""

import math
from typing import Any

import numpy as np
import pandas as pd

from skdpot.metrics._marginals import Marginal
from skdpot.metrics._panel_grid import panel_grid
from skdpot.metrics._plotting import COLORS

__all__ = ["draw_marginal", "draw_pairs", "make_axes"]

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
