"""Panels in rows and columns, and names of directions, for displays of several features."""

import math
from typing import Any

import numpy as np

__all__ = ["direction_name", "feature_labels", "is_leftmost", "panel_grid"]

_MOST_TERMS = 2  # of the name of a direction


def panel_grid(
    ax: Any, n_panels: int, n_columns: int, size: tuple[float, float], **options: Any
) -> np.ndarray:
    """Return one Axes a panel: those given, or new ones in rows.

    Parameters
    ----------
    ax : matplotlib Axes, sequence of them, or None
        What the caller gave.
    n_panels : int
        How many are needed.
    n_columns : int
        At most so many in a row of new ones.
    size : tuple of float
        Width and height of a panel in inches.
    **options : dict
        For ``pyplot.subplots``.

    Returns
    -------
    ndarray of Axes
        As many as panels.

    Raises
    ------
    ValueError
        If another number was given.
    """
    import matplotlib.pyplot as plt

    if ax is None:
        n_rows = math.ceil(n_panels / n_columns)
        n_columns = min(n_columns, n_panels)
        width, height = size[0] * n_columns, size[1] * n_rows + 0.5
        style: Any = {"layout": "constrained", "squeeze": False} | options
        figure, grid = plt.subplots(n_rows, n_columns, figsize=(width, height), **style)
        for unused in grid.ravel()[n_panels:]:
            figure.delaxes(unused)
        axes: np.ndarray = grid.ravel()[:n_panels]
        return axes
    given = np.ravel(np.asarray(ax, dtype=object))
    if len(given) != n_panels:
        raise ValueError(
            f"ax holds {len(given)} Axes and there are {n_panels} panels: give one Axes each, or "
            "draw fewer panels."
        )
    return given


def is_leftmost(ax: Any) -> bool:
    """Whether nothing is drawn to the left of Axes that could carry the label for both."""
    cell = ax.get_subplotspec()
    return cell is None or bool(cell.is_first_col())


def feature_labels(names: Any, n_features: int) -> list[str]:
    """Return the names of features as text; their numbers where they have no names."""
    if names is None:
        return [f"feature {k}" for k in range(n_features)]
    return [str(name) for name in names]


def direction_name(direction: np.ndarray, names: list[str]) -> str:
    """Write a direction as the sum that it projects on, with the largest terms first.

    Parameters
    ----------
    direction : ndarray of shape (n_features,)
        Of unit length.
    names : list of str
        Names of the features.

    Returns
    -------
    str
        The name alone for a direction along an axis; at most two terms and dots otherwise.
    """
    order = np.argsort(-np.abs(direction), kind="stable")
    present = [k for k in order.tolist() if abs(direction[k]) > 1e-9]
    if len(present) == 1 and direction[present[0]] > 0:
        return names[present[0]]
    text = ""
    for k in present[:_MOST_TERMS]:
        sign = "−" if direction[k] < 0 else "+"
        size = f"{abs(direction[k]):.2f} {names[k]}"
        text = f"{text} {sign} {size}" if text else f"{sign}{size}".removeprefix("+")
    return text + (" + …" if len(present) > _MOST_TERMS else "")
