"""What the displays share: colours, grids of panels, and the plane that points are drawn in."""

import base64
import io
import math
from typing import Any

import numpy as np

from skdpot._utils.rng import solver_generator
from skdpot.metrics.distances import as_numbers
from skdpot.metrics.paths import feature_numbers
from skdpot.slicing.directions import orthogonal_directions

__all__ = [
    "COLORS",
    "MARKERS",
    "add_legend_above",
    "add_title",
    "data_address",
    "direction_name",
    "feature_labels",
    "in_plane",
    "is_leftmost",
    "panel_grid",
    "plane_names",
    "plane_of",
]

# Okabe and Ito, "Color universal design", 2008, without the yellow, too pale for lines.
COLORS = ("#0072B2", "#D55E00", "#009E73", "#CC79A7", "#E69F00", "#56B4E9", "#000000")
MARKERS = ("o", "s", "^", "D", "v", "P", "X", "*")


def add_title(ax: Any, name: str | None, figures: dict[str, float]) -> None:
    """Set a title of a name and figures: these on one line, or a line each in narrow axes."""
    parts = [f"{key} = {value:.2f}" for key, value in figures.items()]
    for separator in (", ", "\n"):
        lines = [name, separator.join(parts)]
        title = ax.set_title("\n".join(line for line in lines if line), fontsize="medium")
        if title.get_window_extent().width <= ax.get_window_extent().width:
            return


def add_legend_above(ax: Any, title: str | None) -> None:
    """Put the legend at the top of the axes and raise the upper limit, so it hides no data."""
    for n_columns, size in ((3, "medium"), (3, "small"), (2, "small"), (1, "small")):
        legend = ax.legend(
            loc="upper center",
            ncols=n_columns,
            title=title,
            fontsize=size,
            title_fontsize=size,
            framealpha=1.0,
        )
        box, frame = legend.get_window_extent(), ax.get_window_extent()
        if box.width <= frame.width:
            break
    bottom, top = ax.get_ylim()
    # A legend that would fill the axes is the reader's to place.
    share = min(box.height / frame.height + 0.05, 0.6)
    ax.set_ylim(bottom, bottom + (top - bottom) / (1 - share))


def data_address(figure: Any, kind: str, media_type: str, dpi: int = 180) -> str:
    """Write a figure into an address, the same one each time, that a page can hold."""
    from matplotlib import rc_context

    picture = io.BytesIO()
    metadata = {"Date": None} if kind == "svg" else {"Software": None}
    with rc_context({"svg.hashsalt": "skdpot"}):
        figure.savefig(picture, format=kind, dpi=dpi, metadata=metadata)
    return f"data:{media_type};base64,{base64.b64encode(picture.getvalue()).decode()}"


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


def plane_of(plane: Any, n_features: int, names: Any, random_state: Any) -> np.ndarray:
    """Return one or two directions.

    Parameters
    ----------
    plane : None, "random", one or two features, or array of shape (1 or 2, n_features)
        What the caller asked for.
    n_features : int
        Number of features.
    names : sequence of str or None
        Their names.
    random_state : int, RandomState or None
        For random directions.

    Returns
    -------
    ndarray of shape (1 or 2, n_features)
        Rows of unit length.

    Raises
    ------
    ValueError
        If features do not exist, or directions have another shape or no length.
    """
    if isinstance(plane, str) and plane == "random" and n_features > 1:
        return orthogonal_directions(2, n_features, solver_generator(random_state))
    if plane is not None and not isinstance(plane, str) and np.ndim(plane) == 2:
        directions = as_numbers(plane, "plane")
        lengths = np.linalg.norm(directions, axis=1, keepdims=True)
        if directions.shape[1] != n_features or len(directions) > 2 or not (lengths > 0).all():
            raise ValueError(
                f"plane has shape {directions.shape}; it must be one or two directions of "
                f"{n_features} features each, none of them zero."
            )
        return np.asarray(directions / lengths)
    if isinstance(plane, str) and plane == "random":
        plane = None
    return np.eye(n_features)[list(feature_numbers(plane, n_features, names))]


def plane_names(directions: np.ndarray, names: list[str]) -> list[str]:
    """Return what to write at the axes."""
    return [direction_name(direction, names) for direction in directions]


def in_plane(points: np.ndarray, directions: np.ndarray) -> np.ndarray:
    """Return where points are drawn, (..., n, 2).

    Along a single direction they are drawn against the share of points that lie below.
    """
    where: np.ndarray = points @ directions.T
    if len(directions) == 2:
        return where
    ranks = np.argsort(np.argsort(where, axis=-2, kind="stable"), axis=-2)
    return np.concatenate([where, (ranks + 0.5) / points.shape[-2]], axis=-1)
