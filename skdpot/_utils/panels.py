"""Helpers of the displays: colours, Axes, legends and names."""

import base64
import io
import math
from collections.abc import Iterable, Sequence
from typing import TYPE_CHECKING, Any
from warnings import catch_warnings, filterwarnings

import numpy as np
import pandas as pd

if TYPE_CHECKING:
    from matplotlib import colors, figure
    from matplotlib.artist import Artist
    from matplotlib.axes import Axes
    from matplotlib.axis import Axis

    AxesLike = Axes | Sequence[Axes] | np.ndarray | None

# Okabe and Ito, "Color universal design", 2008, without yellow, which is too pale for lines.
COLORS = ("#0072B2", "#D55E00", "#009E73", "#CC79A7", "#E69F00", "#56B4E9", "#000000")
_MARKERS = ("o", "s", "^", "D", "v", "P", "X", "*")


def single_axes(ax: "Axes | None", size: tuple[float, float]) -> "Axes":
    """Return the given Axes, or new Axes of this size."""
    import matplotlib.pyplot as plt

    return plt.subplots(figsize=size, layout="constrained")[1] if ax is None else ax


class PanelDisplay:
    """A display on several Axes: given ones, or new ones in a figure with title and legend."""

    axes_: np.ndarray
    figure_: Any
    name: str | None = None

    def _take_axes(
        self,
        ax: "AxesLike",
        n_panels: int,
        n_columns: int,
        size: tuple[float, float],
        margin: tuple[float, float] = (0.0, 0.5),
        **options: Any,
    ) -> None:
        """Use the given Axes, one per panel, or create new ones in rows."""
        import matplotlib.pyplot as plt

        self.axes_ = np.ravel(np.asarray(ax, dtype=object))
        if ax is None:
            n_rows, n_columns = math.ceil(n_panels / n_columns), min(n_columns, n_panels)
            inches = size[0] * n_columns + margin[0], size[1] * n_rows + margin[1]
            style: Any = {"layout": "constrained", "squeeze": False} | options
            grid = plt.subplots(n_rows, n_columns, figsize=inches, **style)[1].ravel()
            for unused in grid[n_panels:]:
                unused.remove()
            self.axes_ = grid[:n_panels]
        if len(self.axes_) != n_panels:
            raise ValueError(
                f"ax holds {len(self.axes_)} Axes and there are {n_panels} panels: give one Axes "
                "each, or draw fewer panels."
            )
        self.figure_ = self.axes_[0].figure

    def _add_title_and_legend(
        self,
        ax: "AxesLike",
        name: str | None,
        handles: "Sequence[Artist]" = (),
        texts: Sequence[object] | None = None,
        **options: Any,
    ) -> None:
        """Add title and legend to a new figure, or the legend to the first of the given Axes."""
        owner = self.axes_[0]
        if ax is None:
            owner = self.figure_
            options |= {"loc": "outside lower center", "ncols": len(handles)}
            owner.suptitle(self.name if name is None else name, fontsize="medium")
        if handles:
            texts = texts or [handle.get_label() for handle in handles]
            owner.legend(handles, texts, fontsize="small", **options)


def draw_methods(
    ax: "Axes", points: pd.DataFrame, figures: dict[str, str], style: dict[str, Any]
) -> dict[str, Any]:
    """Draw the points of each method with error bars, in its own colour and marker."""
    drawn = {}
    for k, (name, rows) in enumerate(points.groupby("method", sort=False)):
        look = {"color": COLORS[k % len(COLORS)], "marker": _MARKERS[k % len(_MARKERS)]}
        where: dict[str, Any] = {argument: rows[column] for argument, column in figures.items()}
        drawn[str(name)] = ax.errorbar(**where, **(look | {"label": str(name)} | style))
    return drawn


def check_choice(name: str, value: object, choices: Sequence[str]) -> None:
    """Refuse a value that is none of the choices."""
    if value not in choices:
        known = ", ".join(map(repr, choices[:-1]))
        raise ValueError(f"{name}={value!r} must be {known} or {choices[-1]!r}.")


def check_columns(results: pd.DataFrame, wanted: Sequence[str]) -> None:
    """Refuse results without some of the columns."""
    absent = [column for column in wanted if column not in results]
    if absent:
        raise ValueError(f"results has no columns {absent}; it has {list(results.columns)}.")


def add_legend_beside(ax: "Axes", beside: bool, handles: "Sequence[Artist] | None" = None) -> None:
    """Put the legend to the right of new Axes, or into given Axes."""
    style: Any = {"loc": "center left", "bbox_to_anchor": (1.0, 0.5), "frameon": False}
    ax.legend(handles=handles, **(style if beside else {"loc": "best", "fontsize": "small"}))


def label_panel(ax: "Axes", horizontal: str, vertical: str) -> None:
    """Label the horizontal axis, and the vertical one in the first column."""
    cell = ax.get_subplotspec()
    ax.set_xlabel(horizontal)
    if cell is None or cell.is_first_col():
        ax.set_ylabel(vertical)
    else:
        ax.tick_params(labelleft=False)


def shades(name: str, lowest: float, highest: float) -> "colors.ListedColormap":
    """Return a part of one of matplotlib's colormaps."""
    import matplotlib as mpl

    return mpl.colors.ListedColormap(mpl.colormaps[name](np.linspace(lowest, highest, 256)))


def draw_ways(ax: "Axes", ways: np.ndarray, values: np.ndarray, **style: Any) -> Any:
    """Draw paths (n, k, 2) as lines whose k - 1 pieces are coloured by values."""
    from matplotlib.collections import LineCollection

    pieces = np.stack([ways[:, :-1], ways[:, 1:]], axis=2).reshape(-1, 2, 2)
    lines = LineCollection(list(pieces), array=np.tile(values, len(ways)), **style)
    return ax.add_collection(lines)


def widened(corners: np.ndarray, share: float) -> np.ndarray:
    """Move the lower left and the upper right corner apart by a share of their distance."""
    gaps = corners[1] - corners[0]
    margin = share * np.where(gaps > 0, gaps, 1.0)
    return corners + margin * np.array([[-1.0], [1.0]])


def show_dates(axis: "Axis") -> None:
    """Label an axis of days with few dates, so that they do not overlap."""
    from matplotlib.dates import AutoDateLocator, ConciseDateFormatter

    locator = AutoDateLocator(minticks=2, maxticks=5)
    axis.set_major_locator(locator)
    axis.set_major_formatter(ConciseDateFormatter(locator))


def cut_short(text: str, most: int) -> str:
    """Return a text of at most `most` characters, cut with an ellipsis."""
    return text if len(text) <= most else text[: most - 1] + "…"


def data_address(figure: "figure.Figure", kind: str, media_type: str, dpi: int = 180) -> str:
    """Return a figure as a data address for a page, reproducibly."""
    from matplotlib import rc_context

    picture = io.BytesIO()
    metadata = {"Date": None} if kind == "svg" else {"Software": None}
    with rc_context({"svg.hashsalt": "skdpot", "svg.fonttype": "none"}), catch_warnings():
        # The font here may lack a glyph that the reader's font has.
        filterwarnings("ignore", r"Glyph \d+ .* missing from font")
        figure.savefig(picture, format=kind, dpi=dpi, metadata=metadata)
    return f"data:{media_type};base64,{base64.b64encode(picture.getvalue()).decode()}"


def feature_labels(names: Iterable[object] | None, n_features: int) -> list[str]:
    """Return the names of features as text, or their numbers if they have no names."""
    return [f"feature {k}" for k in range(n_features)] if names is None else [*map(str, names)]


def feature_numbers(features: Any, n_features: int, names: Iterable[str] | None) -> tuple[int, ...]:
    """Return one or two column numbers, from numbers or names."""
    if features is None:
        return (0, 1) if n_features > 1 else (0,)
    known = [] if names is None else list(names)
    asked = [features] if isinstance(features, str) or np.ndim(features) == 0 else list(features)
    numbers = [known.index(name) if name in known else name for name in asked]
    valid = [isinstance(k, int | np.integer) and 0 <= k < n_features for k in numbers]
    if not all(valid) or len(numbers) not in (1, 2):
        raise ValueError(
            f"features={features!r} must be one or two of the numbers 0 to {n_features - 1}"
            + (f", or of the names {known}." if known else ".")
        )
    return tuple(map(int, numbers))
