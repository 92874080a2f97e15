"""What the page of a report on a synthetic table shows, from its facts; its pictures."""

import math
from collections.abc import Iterator
from dataclasses import replace
from typing import Any

import numpy as np
import pandas as pd

from skdpot._utils.pages import render
from skdpot.estimators._table_comparison import NUMBERS, OF_ROWS
from skdpot.metrics._panels import data_address
from skdpot.metrics.marginals_display import draw_pairs
from skdpot.privacy.display import epsilon_text

__all__ = ["MOST_DRAWN", "NOT_COMPARED", "TITLE", "quality_fragment"]

TITLE = "Quality of a synthetic table"
NOT_COMPARED = "0.88"  # colour of pairs

MOST_DRAWN = 24  # columns in pictures,
_MOST_ROWS = 40  # columns in tables,
_MOST_PAIRS = 20  # and pairs
_ACROSS = 3  # panels in a row of a page
_PANEL = (2.8, 2.1)  # inches
_DPI = 140


def quality_fragment(report: Any) -> str:
    """Return a report as a part of a page, for notebooks."""
    found, columns = report.summary, _worst(report.columns, _MOST_ROWS, keep_order=True)
    compared = "public rows" if report.of_rows else "private rows, by their noisy counts"
    beyond = [
        f"{found[f'{what}_beyond_noise']:,} of {found[what]:,} {what}"
        for what in ("columns", "pairs")
        if found[what]
    ]
    heads = ("total variation", "by chance" if report.of_rows else "by noise", "beyond")
    few = len(report.pairs) and len(report.columns) <= MOST_DRAWN
    return render(
        "table_report.html",
        title=TITLE,
        subject=f"{report.n_samples:,} synthetic rows beside {report.n_rows:,} {compared}",
        report=report,
        summary=found,
        of_rows=OF_ROWS,
        beyond=beyond,
        headlines=list(_headlines(report, found)),
        warnings=[text for text in report.cautions if text != OF_ROWS],
        hidden=len(report.columns) - MOST_DRAWN,
        columns_picture=_columns_picture(report),
        column_heads=["column", *heads, *(["W₁ / range"] if report.of_rows else [])],
        column_rows=list(_columns(report, columns)),
        number_rows=list(_numbers(columns[columns["kind"] == "numeric"])),
        pairs_picture=_pairs_picture(report) if few else None,
        pair_heads=["pair", "cells", *heads],
        pair_rows=list(_pairs(_worst(report.pairs, _MOST_PAIRS, keep_order=False))),
        spent_card=report.spent._repr_html_(),
        schema_card=report.schema._repr_html_(),
    )


def _headlines(report: Any, found: dict[str, Any]) -> Iterator[tuple[str, str]]:
    """Yield the most important figures."""
    chance = "by chance alone" if report.of_rows else "by noise alone"
    for what in ("columns", "pairs"):
        distance, expected = (found[f"{what}_{of}"] for of in ("total_variation", "expected"))
        if distance is not None:
            yield (
                f"{distance:.4f}",
                f"mean total variation of {found[what]:,} {what}; {chance} {expected:.4f}",
            )
    if found["normalized_wasserstein"] is not None:
        yield (
            f"{found['normalized_wasserstein']:.4f}",
            "mean W₁ of numbers and dates, as a share of their range",
        )
    added = "not counting this report" if report.of_rows else "this report adds nothing"
    yield epsilon_text(report.spent.epsilon), f"of the fit; {added}"


def _columns(report: Any, frame: pd.DataFrame) -> Iterator[list[str]]:
    """Yield a row of the table of columns for each."""
    for name, row in frame.iterrows():
        cells = [str(name), *_figures(row)]
        if report.of_rows:
            distance = row["normalized_wasserstein"]
            cells.append("" if pd.isna(distance) else f"{distance:.4f}")
        yield cells


def _numbers(frame: pd.DataFrame) -> Iterator[list[str]]:
    """Yield for each column of numbers what it is like on either side."""
    for name, row in frame.iterrows():
        cells = [str(name)]
        for figure in NUMBERS:
            own = _number(row[figure])
            if figure == "mean" and row.get("mean_noise", 0.0) > 0.0:
                own += f" ± {_number(row['mean_noise'], digits=2)}"
            cells += [own, _number(row[f"synthetic_{figure}"])]
        yield cells


def _number(value: float, digits: int = 4) -> str:
    """Write a number with a few digits, in full if it is no giant."""
    if not math.isfinite(value):
        return "–"
    if 10.0**digits <= abs(value) < 1e9:
        return f"{value:,.0f}"
    return f"{value:,.{digits}g}"


def _pairs(frame: pd.DataFrame) -> Iterator[list[str]]:
    """Yield a row of the table of pairs for each."""
    for name, (_, row) in zip(frame.index.tolist(), frame.iterrows(), strict=True):
        yield [" × ".join(map(str, name)), f"{row['cells']:,}", *_figures(row)]


def _figures(row: Any) -> tuple[str, str, str]:
    beyond = "yes" if row["beyond_noise"] else "no"
    return f"{row['total_variation']:.4f}", f"{row['expected']:.4f}", beyond


def _worst(frame: pd.DataFrame, most: int, *, keep_order: bool) -> pd.DataFrame:
    """Return the rows with the largest excess over what is expected."""
    excess = (frame["total_variation"] - frame["expected"]).to_numpy()
    order = (-excess).argsort(kind="stable")[:most]
    return frame.iloc[sorted(order) if keep_order else order]


def _columns_picture(report: Any) -> str:
    """Draw the distributions of the columns that agree worst, as a data address."""
    from matplotlib.figure import Figure

    shown = _worst(report.columns, MOST_DRAWN, keep_order=True)
    places = report.columns.index.get_indexer(shown.index)
    marginals = tuple(report.marginals[place] for place in places)
    shown = replace(report, columns=shown, marginals=marginals)
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


def _pairs_picture(report: Any) -> str:
    """Draw a map of the pairs, as a data address."""
    from matplotlib.figure import Figure

    side = float(np.clip(0.36 * len(report.columns) + 2.2, 3.6, 8.0))
    figure = Figure(figsize=(side + 0.6, side), layout="constrained")
    ax = figure.subplots()
    draw_pairs(ax, report.pair_matrix(), "total variation")
    ax.set_facecolor(NOT_COMPARED)
    return data_address(figure, "png", "image/png", _DPI)
