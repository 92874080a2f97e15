"""A report on the quality of a synthetic table, as HTML."""

import math
from collections.abc import Iterator
from typing import TYPE_CHECKING, Any

import pandas as pd

from skdpot._utils.report_page import (
    box,
    paragraphs,
    picture,
    report_fragment,
    report_page,
    table,
    tiles,
)
from skdpot.estimators._table_cautions import OF_ROWS
from skdpot.estimators._table_numbers import NUMBERS
from skdpot.estimators._table_pictures import columns_picture, pairs_picture
from skdpot.privacy.display import epsilon_text

if TYPE_CHECKING:
    from skdpot.estimators.table_report import TableQualityReport

__all__ = ["MOST_DRAWN", "quality_fragment", "quality_page"]

MOST_DRAWN = 24  # columns in pictures,
_MOST_ROWS = 40  # columns in tables,
_MOST_PAIRS = 20  # and pairs


def quality_page(report: "TableQualityReport") -> str:
    """Return a report as a whole page.

    Parameters
    ----------
    report : TableQualityReport
        The report.

    Returns
    -------
    str
        HTML without scripts that loads nothing.
    """
    return report_page("Quality of a synthetic table", quality_fragment(report))


def quality_fragment(report: "TableQualityReport") -> str:
    """Return a report as a part of a page, for notebooks.

    Parameters
    ----------
    report : TableQualityReport
        The report.

    Returns
    -------
    str
        HTML.
    """
    subject = f"{report.n_samples:,} synthetic rows beside {report.n_rows:,} {_compared(report)}"
    head = [_verdict(report), tiles(_headlines(report))]
    return report_fragment(
        "Quality of a synthetic table",
        subject,
        report.created,
        report.version,
        head,
        _sections(report),
    )


def _compared(report: "TableQualityReport") -> str:
    return "public rows" if report.of_rows else "private rows, by their noisy counts"


def _verdict(report: "TableQualityReport") -> str:
    """Return the first thing to read: whose secrets are in the report, and how good the table."""
    found = report.summary
    if report.of_rows:
        first = box("caution", OF_ROWS)
    elif found["private"]:
        first = box(
            "good",
            "Made of synthetic rows and of counts that were released with noise, and of nothing "
            "else. This report can be passed on like the synthetic rows; it costs no privacy.",
        )
    else:
        first = box("stop", "Made of counts that were released without noise: not private.")
    words = "chance explains" if report.of_rows else "the noise of the counts explains"
    beyond = [
        f"{found[f'{what}_beyond_noise']:,} of {found[what]:,} {what}"
        for what in ("columns", "pairs")
        if found[what]
    ]
    n_beyond = found["columns_beyond_noise"] + found["pairs_beyond_noise"]
    if n_beyond:
        return first + box(
            "neutral", f"Synthetic rows differ by more than {words} in {' and '.join(beyond)}."
        )
    return first + box("good", f"Nowhere do synthetic rows differ by more than {words}.")


def _headlines(report: "TableQualityReport") -> Iterator[tuple[str, str]]:
    """Yield the most important figures."""
    found = report.summary
    chance = "by chance alone" if report.of_rows else "by noise alone"
    for what in ("columns", "pairs"):
        distance, expected = (found[f"{what}_{of}"] for of in ("total_variation", "expected"))
        if distance is not None:
            yield (
                _figure(distance),
                f"mean total variation of {found[what]:,} {what}; {chance} {_figure(expected)}",
            )
    if found["normalized_wasserstein"] is not None:
        yield (
            _figure(found["normalized_wasserstein"]),
            "mean W₁ of numbers and dates, as a share of their range",
        )
    added = "not counting this report" if report.of_rows else "this report adds nothing"
    yield epsilon_text(report.spent.epsilon), f"of the fit; {added}"


def _sections(report: "TableQualityReport") -> Iterator[tuple[str, str]]:
    warnings = [text for text in report.cautions if text != OF_ROWS]
    if warnings:
        yield "Warnings", "".join(box("caution", text) for text in warnings)
    yield "Columns", _columns(report)
    if len(report.pairs):
        yield "Pairs of columns", _pairs(report)
    yield "How to read the figures", _reading(report)
    yield "Privacy of the synthetic rows", report.spent._repr_html_()
    yield "Schema: what counts as public", report.schema._repr_html_()


def _columns(report: "TableQualityReport") -> str:
    beside = "rows that were given" if report.of_rows else "noisy counts, with bars of their noise"
    words = f"Distributions of columns: grey, {beside}; blue, synthetic rows."
    drawn = picture(columns_picture(report, MOST_DRAWN), words)
    hidden = max(0, len(report.columns) - MOST_DRAWN)
    note = f" The {hidden} columns that agree best are not drawn." if hidden else ""
    frame = _worst(report.columns, _MOST_ROWS, keep_order=True)
    heads = ["column", *_heads(report)]
    rows: list[list[str]] = []
    for name, row in frame.iterrows():
        cells = [str(name), *_figures(row)]
        if report.of_rows:
            distance = row["normalized_wasserstein"]
            cells.append("" if pd.isna(distance) else _figure(distance))
        rows.append(cells)
    if report.of_rows:
        heads.append("W₁ / range")
    return (
        paragraphs(words + note)
        + drawn
        + table(heads, rows)
        + _left_out(report.columns, frame, "columns")
        + _numbers(report, frame)
    )


def _numbers(report: "TableQualityReport", frame: pd.DataFrame) -> str:
    """Return a table of what the columns of numbers are like on either side."""
    kept = frame[frame["kind"] == "numeric"]
    if not len(kept):
        return ""
    beside = "rows" if report.of_rows else "counts"
    heads = ["numbers"]
    for what in ("mean", "std. dev.", "99 %"):
        heads += [f"{what}, {beside}", "synthetic"]
    rows = []
    for name, row in kept.iterrows():
        cells = [str(name)]
        for figure in NUMBERS:
            own = _number(row[figure])
            if figure == "mean" and row.get("mean_noise", 0.0) > 0.0:
                own += f" ± {_number(row['mean_noise'], digits=2)}"
            cells += [own, _number(row[f"synthetic_{figure}"])]
        rows.append(cells)
    return table(heads, rows)


def _number(value: float, digits: int = 4) -> str:
    """Write a number with a few digits, in full if it is no giant."""
    if not math.isfinite(value):
        return "–"
    if 10.0**digits <= abs(value) < 1e9:
        return f"{value:,.0f}"
    return f"{value:,.{digits}g}"


def _pairs(report: "TableQualityReport") -> str:
    which = "all pairs" if report.of_rows else "the pairs whose counts were released"
    words = f"Total variation of {which}; on the diagonal, of columns alone."
    if not report.of_rows:
        words += " Grey: not counted."
    drawn = ""
    if len(report.columns) <= MOST_DRAWN:
        drawn = paragraphs(words) + picture(pairs_picture(report), words)
    frame = _worst(report.pairs, _MOST_PAIRS, keep_order=False)
    rows = [
        [" × ".join(map(str, name)), f"{row['cells']:,}", *_figures(row)]
        for name, (_, row) in zip(frame.index.tolist(), frame.iterrows(), strict=True)
    ]
    heads = ["pair", "cells", *_heads(report)]
    return (
        drawn
        + paragraphs("Those first that are furthest beyond what is to be expected.")
        + table(heads, rows)
        + _left_out(report.pairs, frame, "pairs")
    )


def _heads(report: "TableQualityReport") -> tuple[str, str, str]:
    return "total variation", "by chance" if report.of_rows else "by noise", "beyond"


def _figures(row: Any) -> tuple[str, str, str]:
    beyond = "yes" if row["beyond_noise"] else "no"
    return _figure(row["total_variation"]), _figure(row["expected"]), beyond


def _worst(frame: pd.DataFrame, most: int, *, keep_order: bool) -> pd.DataFrame:
    """Return the rows with the largest excess over what is expected."""
    excess = (frame["total_variation"] - frame["expected"]).to_numpy()
    order = (-excess).argsort(kind="stable")[:most]
    return frame.iloc[sorted(order) if keep_order else order]


def _left_out(frame: pd.DataFrame, shown: pd.DataFrame, what: str) -> str:
    hidden = len(frame) - len(shown)
    return paragraphs(f"And {hidden:,} more {what} that agree better.") if hidden else ""


def _reading(report: "TableQualityReport") -> str:
    texts = [
        "Total variation is the share of rows that would have to be changed to make two "
        "distributions equal: half the sum of the absolute differences of all shares. 0 is "
        "perfect, 1 has nothing in common."
    ]
    if report.of_rows:
        texts.append(
            "Numbers and dates are compared between 16 quantiles of the rows that were given. Two "
            "samples of one distribution differ by chance: that is the column “by chance”. W₁ is "
            "the mean distance that values would have to be moved."
        )
    else:
        texts.append(
            "What the private rows are really like is not known here, only their noisy counts. "
            "Counts with noise would differ even from perfect synthetic rows: that is the column "
            "“by noise”, found by adding noise of the same size to the synthetic rows. A total "
            "variation near it says that the synthetic rows fit as well as can be known; "
            "“beyond” says that there is more than noise explains (five standard deviations)."
        )
        texts.append(
            "Means, standard deviations and 99 % quantiles “counts” are those of the noisy counts "
            "as they are; behind ± is the standard deviation of what the noise does to a mean. A "
            "dash stands where the noise leaves nothing."
        )
        texts.append(
            "Numbers and dates are compared in the intervals that are drawn, pairs in the cells "
            "that were counted. Of pairs that were not counted this report knows nothing."
        )
    return paragraphs(*texts)


def _figure(value: float) -> str:
    return f"{value:.4f}"
