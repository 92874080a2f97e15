"""Pictures of a report on a synthetic table, as text that goes into the page itself."""

import math
from dataclasses import replace
from typing import TYPE_CHECKING

import numpy as np

from skdpot.metrics._panels import data_address
from skdpot.metrics.marginals_display import draw_pairs

if TYPE_CHECKING:
    from skdpot.estimators.table_report import TableQualityReport

__all__ = ["NOT_COMPARED", "columns_picture", "pairs_picture"]

NOT_COMPARED = "0.88"  # colour of pairs

_ACROSS = 3  # panels in a row of a page
_PANEL = (2.8, 2.1)  # inches
_DPI = 140


def columns_picture(report: "TableQualityReport", most: int) -> str:
    """Draw the distributions of columns.

    Parameters
    ----------
    report : TableQualityReport
        The report.
    most : int
        At most so many, those that agree worst.

    Returns
    -------
    str
        A data address of a PNG picture.
    """
    from matplotlib.figure import Figure

    columns = report.columns
    excess = (columns["total_variation"] - columns["expected"]).to_numpy()
    places = np.sort((-excess).argsort(kind="stable")[:most])
    shown = replace(
        report,
        columns=columns.iloc[places],
        marginals=tuple(report.marginals[place] for place in places),
    )
    across = min(_ACROSS, len(places))
    n_rows = math.ceil(len(places) / across)
    figure = Figure(figsize=(_PANEL[0] * _ACROSS, _PANEL[1] * n_rows + 0.4), layout="constrained")
    grid = figure.subplots(n_rows, across, squeeze=False).ravel()
    for unused in grid[len(places) :]:
        figure.delaxes(unused)
    display = shown.plot(ax=grid[: len(places)], pairs=False, legend=False)
    handles = list(display.artists_[display.marginals[0].name])
    figure.legend(handles, display.labels, loc="outside lower center", ncols=2, fontsize="small")
    return data_address(figure, "png", "image/png", _DPI)


def pairs_picture(report: "TableQualityReport") -> str:
    """Draw a map of the pairs.

    Parameters
    ----------
    report : TableQualityReport
        The report.

    Returns
    -------
    str
        A data address of a PNG picture.
    """
    from matplotlib.figure import Figure

    side = float(np.clip(0.36 * len(report.columns) + 2.2, 3.6, 8.0))
    figure = Figure(figsize=(side + 0.6, side), layout="constrained")
    ax = figure.subplots()
    draw_pairs(ax, report.pair_matrix(), "total variation")
    ax.set_facecolor(NOT_COMPARED)
    return data_address(figure, "png", "image/png", _DPI)
