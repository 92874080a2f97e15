"""What the displays share: colours that colour-blind readers can tell apart, and room for text."""

import base64
import io
from typing import Any

__all__ = ["COLORS", "MARKERS", "add_legend_above", "add_title", "data_address"]

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
