"""The quality report of a synthetic table, and its page."""

import itertools
import math
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace
from datetime import UTC, datetime
from typing import Any

import numpy as np
import pandas as pd

from skdpot.__about__ import __version__
from skdpot._utils.pages import HtmlReport, render
from skdpot._utils.panels import cut_short, data_address
from skdpot._utils.streams import solver_generator
from skdpot.privacy.reliability import Reliability
from skdpot.privacy.rounding import epsilon_text
from skdpot.privacy.statement import PrivacySpent
from skdpot.tables.cautions import (
    COMPARED_WITH_ROWS,
    cautions_of_columns,
    cautions_of_fit,
    cautions_of_signs,
)
from skdpot.tables.frames import Table, validate_table
from skdpot.tables.losses import SEEN
from skdpot.tables.marginals import ColumnShares
from skdpot.tables.marginals_display import MarginalsDisplay, draw_pairs
from skdpot.tables.report_figures import RANGES, SUMMARIES, compare_with_releases, compare_with_rows
from skdpot.tables.rules import LessEqual, numbers_of
from skdpot.tables.schema import TableSchema

_FEWEST, _MOST = 20_000, 100_000  # synthetic rows, unless the caller says how many
_LABELS = {
    False: ("noisy counts (bars: 2 standard deviations)", "synthetic rows"),
    True: ("rows that were given", "synthetic rows"),
}
_NOT_COMPARED = "0.88"  # colour of pairs
MOST_DRAWN = 24  # columns in pictures,
_MOST_ROWS = 40  # columns in tables,
_MOST_PAIRS = 20  # and pairs
_MOST_PARTS = 4  # lost parts per column
_ACROSS = 3  # panels in a row of a page
_PANEL = (2.8, 2.1)  # inches
_NOTHING = "nothing spent"
_GIVEN = (
    "<p>The counts were given. Nothing was spent here, and no statement of whoever released them "
    "was passed.</p>"
)


@dataclass(frozen=True, eq=False, repr=False, kw_only=True)
class TableQualityReport(HtmlReport):
    """Agreement of synthetic rows with the released counts, or with public rows.

    `DPTableSynthesizer.quality_report` returns it. Notebooks show it as a page.

    Notes
    -----
    The expected distance and its limit describe what noise explains: the privacy noise of the
    counts, or the sampling error of two samples of rows. For counts noise is simulated, for rows it
    is computed, both under the distribution of the synthetic rows.

    `losses` lists the parts of columns that synthetic rows lack: values beyond their range, the
    tails below the 1 % and above the 99 % quantile, tenths of the range, and categories of which
    less than four fifths is left, by more than four standard deviations of noise or chance. Beside
    noisy counts it also lists parts that synthetic rows lack, and that may have half a percent of
    the rows or more (two standard deviations of noise above their count).
    `reliability` is that of the fit: what the noise hides whatever the synthetic rows are.

    Privacy
    -------
    Without rows the report is post-processing of releases. With rows it is computed from them
    without noise, and says so in all its forms.
    """

    of_rows: bool
    n_rows: int
    n_samples: int
    columns: pd.DataFrame
    pairs: pd.DataFrame
    losses: pd.DataFrame
    reliability: Reliability
    marginals: tuple[ColumnShares, ...]
    rules: pd.DataFrame
    orders: pd.Series
    cautions: tuple[str, ...]
    schema: TableSchema
    spent: PrivacySpent | None
    target: str | None
    created: datetime
    version: str

    _title = "Quality of a synthetic table"

    @property
    def compared_with(self) -> str:
        """The other side of the comparison, in words."""
        if self.of_rows:
            return "rows that were given and count as public"
        return "noisy counts that the synthesizer released"

    @property
    def summary(self) -> dict[str, Any]:
        """The main figures for JSON: plain numbers and text, None if undefined."""
        spent = self.spent
        epsilon = math.nan if spent is None else spent.epsilon

        def mean(values: pd.Series) -> float | None:
            return float(values.mean()) if len(values) else None

        figures: dict[str, Any] = {
            "compared_with": self.compared_with,
            "private": not self.of_rows and not math.isinf(epsilon),
            "epsilon": epsilon if math.isfinite(epsilon) else None,
            "delta": None if spent is None else spent.delta,
            "rows": self.n_rows,
            "synthetic_rows": self.n_samples,
        }
        for what, frame in (("columns", self.columns), ("pairs", self.pairs)):
            figures[what] = len(frame)
            for figure in ("total_variation", "expected"):
                figures[f"{what}_{figure}"] = mean(frame[figure])
            figures[f"{what}_beyond_noise"] = int(frame["beyond_noise"].sum())
        distances = self.columns.get("normalized_wasserstein", pd.Series(dtype=np.float64))
        figures["normalized_wasserstein"] = mean(distances[np.isfinite(distances)])
        return figures | {
            "lost_parts": len(self.lost),
            "hidden_parts": len(self.hidden),
            "hidden_by_noise": list(self.reliability.unreliable),
            "warnings": len(self.cautions),
        }

    @property
    def lost(self) -> list[str]:
        """One sentence per column about the parts that synthetic rows lack."""
        words = "{} ({:.2%} of the rows, {:.2%} of the synthetic ones)"
        return self._listed(self.losses["lost"], words, ("given", "synthetic"))

    @property
    def hidden(self) -> list[str]:
        """One sentence per column about the parts that may have rows, and synthetic ones lack."""
        return self._listed(~self.losses["lost"], "{} (at most {:.2%} of the rows)", ("at_most",))

    def _listed(self, wanted: pd.Series, words: str, figures: tuple[str, ...]) -> list[str]:
        """Return a sentence per column with some of its parts."""
        sentences = []
        for name, parts in self.losses[wanted].groupby(level=0, sort=False):
            texts = [words.format(*row) for row in parts[["part", *figures]].to_numpy().tolist()]
            more = f" and {len(texts) - _MOST_PARTS} more parts" if len(texts) > _MOST_PARTS else ""
            sentences.append(f"{name!r}: {'; '.join(texts[:_MOST_PARTS])}{more}.")
        return sentences

    @property
    def broken_rules(self) -> list[tuple[str, str]]:
        """Number of synthetic rows that break each rule, in words."""
        of = f"of {self.n_samples:,}"
        words = {str(rule): rule.in_words for rule in self.schema.rules}
        return [(words[str(rule)], f"{n:,} {of}") for rule, n in self.rules["broken"].items()]

    def pair_matrix(self) -> pd.DataFrame:
        """Return the total variation distances as a table of columns by columns."""
        names = list(self.columns.index)
        matrix = pd.DataFrame(np.diag(self.columns["total_variation"]), names, names)
        matrix = matrix.where(np.eye(len(names), dtype=bool))
        finest = self.pairs.sort_values("cells", kind="stable")
        for pair, distance in zip(finest.index, finest["total_variation"], strict=True):
            matrix.loc[pair] = matrix.loc[pair[::-1]] = distance
        return matrix

    def plot(self, ax: Any = None, *, pairs: bool = True, **kwargs: Any) -> MarginalsDisplay:
        """Draw the distributions of all columns, and a map of the pairs."""
        mapped = pairs and len(self.pairs) > 0
        display = MarginalsDisplay(
            marginals=list(self.marginals),
            pairs=self.pair_matrix() if mapped else None,
            pairs_name="total variation" if mapped else None,
            labels=_LABELS[self.of_rows],
        ).plot(ax=ax, **kwargs)
        why = "by chance" if self.of_rows else "by noise"
        for panel, (name, row) in zip(display.axes_, self.columns.iterrows(), strict=False):
            figures = f"TV = {row['total_variation']:.3f}, {why} {row['expected']:.3f}"
            panel.set_title(f"{cut_short(str(name), 26)}\n{figures}", fontsize="small")
        if mapped:
            display.axes_[-1].set_facecolor(_NOT_COMPARED)
        return display

    def _repr_html_(self) -> str:
        """Return the report for notebooks."""
        columns = _worst(self.columns, _MOST_ROWS, keep_order=True)
        compared = "public rows" if self.of_rows else "private rows, by their noisy counts"
        pairs = _worst(self.pairs, _MOST_PAIRS)
        heads = ("total variation", "by chance" if self.of_rows else "by noise", "beyond")
        few = len(self.pairs) and len(self.columns) <= MOST_DRAWN
        return render(
            "table_report.html",
            title=self._title,
            subject=f"{self.n_samples:,} synthetic rows beside {self.n_rows:,} {compared}",
            report=self,
            summary=self.summary,
            of_rows=COMPARED_WITH_ROWS,
            epsilon=_NOTHING if self.spent is None else epsilon_text(self.spent.epsilon),
            warnings=[text for text in self.cautions if text != COMPARED_WITH_ROWS],
            hidden=len(self.columns) - MOST_DRAWN,
            columns_picture=_columns_picture(self),
            column_heads=["column", *heads, *(["W₁ / range"] if self.of_rows else [])],
            column_rows=[[str(name), *_figures_of_row(row)] for name, row in columns.iterrows()],
            number_rows=list(_number_rows(columns[columns["kind"] == "numeric"], SUMMARIES)),
            range_rows=list(_number_rows(columns[columns["kind"] == "numeric"], RANGES)),
            lost=self.lost,
            hidden_parts=self.hidden,
            most_listed=_MOST_ROWS,
            seen=f"{SEEN:.0f}",
            reliability=self.reliability,
            reliability_card=self.reliability._repr_html_(),
            pairs_picture=_pairs_picture(self) if few else None,
            pair_heads=["pair", "cells", *heads],
            pair_rows=[
                [" × ".join(map(str, pair)), f"{row['cells']:,}", *_figures_of_row(row)]
                for pair, (_, row) in zip(pairs.index.tolist(), pairs.iterrows(), strict=True)
            ],
            order_rows=[
                [" after ".join(pair), f"{share:.1%}"]
                for pair, share in zip(self.orders.index.tolist(), self.orders, strict=True)
            ],
            most_pairs=math.comb(len(self.columns), 2),
            spent_card=_GIVEN if self.spent is None else self.spent._repr_html_(),
            schema_card=self.schema._repr_html_(),
        )

    def __repr__(self) -> str:
        figures = self.summary
        pairs = figures["pairs_total_variation"]
        return (
            f"TableQualityReport({figures['columns']} columns, compared with {self.compared_with}; "
            f"total variation of columns {figures['columns_total_variation']:.3f}"
            f"{'' if pairs is None else f', of {len(self.pairs)} pairs {pairs:.3f}'})"
        )


def make_report(
    synthesizer: Any, X: Any, n_samples: int | None, random_state: Any
) -> TableQualityReport:
    """Compare rows of a fitted synthesizer with its releases, or with public rows."""
    schema, model, grids = synthesizer.schema_, synthesizer.model_, synthesizer._grids
    spent, of_rows = synthesizer.privacy_spent_, X is not None
    table = validate_table(synthesizer, X, reset=False, names=schema.names) if of_rows else None
    n_rows = model.n_rows if table is None else table.n_rows
    size = int(np.clip(n_rows, _FEWEST, _MOST)) if n_samples is None else n_samples
    rng = solver_generator(random_state)
    drawn = Table.of(synthesizer._sampled(size, None, int(rng.integers(2**31))), schema.names)
    if table is None:
        values = synthesizer._rules.to_model(schema.read(drawn))
        compared = compare_with_releases(model, grids, values, rng)
    else:
        compared = compare_with_rows(schema, table, drawn)
    return TableQualityReport(
        of_rows=of_rows,
        n_rows=n_rows,
        n_samples=drawn.n_rows,
        **compared,
        rules=synthesizer._rules.broken(drawn),
        orders=_orders(schema, drawn),
        reliability=synthesizer.reliability_,
        cautions=(
            *cautions_of_fit(schema, spent, of_rows),
            *cautions_of_columns(model, grids),
            *cautions_of_signs(compared["columns"]),
        ),
        schema=schema,
        spent=spent,
        target=synthesizer.target,
        created=datetime.now(UTC),
        version=__version__,
    )


def _orders(schema: TableSchema, drawn: Table) -> pd.Series:
    """Return the share of synthetic rows in which one date is after another."""
    known = [rule.names for rule in schema.rules if isinstance(rule, LessEqual)]
    dates: list[Any] = [column for column in schema if column.kind == "datetime"]
    times = {c.name: numbers_of(c, drawn.read(c)) for c in dates} if len(dates) > 1 else {}
    shares = {}
    for first, second in itertools.combinations(dates, 2):
        pair = first.name, second.name
        disjoint = first.span[1] <= second.span[0] or second.span[1] <= first.span[0]
        if disjoint or pair in known or pair[::-1] in known:
            continue
        apart = times[second.name] - times[first.name]
        shares[pair] = float((apart < 0.0).sum() / max((~np.isnan(apart)).sum(), 1))
    index = pd.MultiIndex.from_tuples(list(shares), names=["first", "second"])
    return pd.Series(list(shares.values()), index, dtype=np.float64, name="first_is_later")


def _figures_of_row(row: pd.Series) -> Iterator[str]:
    """Yield the cells of a column or a pair in a table of the page."""
    yield f"{row['total_variation']:.4f}"
    yield f"{row['expected']:.4f}"
    yield "yes" if row["beyond_noise"] else "no"
    if "normalized_wasserstein" in row:
        distance = row["normalized_wasserstein"]
        yield "" if pd.isna(distance) else f"{distance:.4f}"


def _number_rows(frame: pd.DataFrame, figures: Sequence[str]) -> Iterator[list[str]]:
    """Yield the row of each column of numbers in a table of the page."""
    for name, row in frame.iterrows():
        cells = [str(name)]
        for figure in figures:
            shown = _shown_number(row[figure])
            if figure == "mean" and row.get("mean_noise", 0.0) > 0.0:
                shown += f" ± {_shown_number(row['mean_noise'], digits=2)}"
            cells += [shown, _shown_number(row[f"synthetic_{figure}"])]
        yield cells


def _shown_number(value: float, digits: int = 4) -> str:
    """Return a number with a few digits; large ones below 1e9 are written in full."""
    if not math.isfinite(value):
        return "–"
    return f"{value:,.0f}" if 10.0**digits <= abs(value) < 1e9 else f"{value:,.{digits}g}"


def _worst(frame: pd.DataFrame, most: int, keep_order: bool = False) -> pd.DataFrame:
    """Return the rows with the largest excess over the expected distance."""
    excess = (frame["total_variation"] - frame["expected"]).to_numpy()
    order = (-excess).argsort(kind="stable")[:most]
    return frame.iloc[sorted(order) if keep_order else order]


def _columns_picture(report: TableQualityReport) -> str:
    """Draw the distributions of the columns with the largest excess, as a data address."""
    from matplotlib.figure import Figure

    columns = _worst(report.columns, MOST_DRAWN, keep_order=True)
    places = report.columns.index.get_indexer(columns.index)
    marginals = tuple(report.marginals[place] for place in places)
    n_rows = math.ceil(len(places) / _ACROSS)
    figure = Figure(figsize=(_PANEL[0] * _ACROSS, _PANEL[1] * n_rows + 0.4), layout="constrained")
    across = min(_ACROSS, len(places))
    axes = figure.subplots(n_rows, across, squeeze=False).ravel()
    for unused in axes[len(places) :]:
        figure.delaxes(unused)
    shown = replace(report, columns=columns, marginals=marginals)
    display = shown.plot(ax=axes[: len(places)], pairs=False, legend=False)
    handles = list(display.artists_[marginals[0].name])
    figure.legend(handles, display.labels, loc="outside lower center", ncols=2, fontsize="small")
    return data_address(figure, "svg", "image/svg+xml")


def _pairs_picture(report: TableQualityReport) -> str:
    """Draw a map of the pairs, as a data address."""
    from matplotlib.figure import Figure

    side = float(np.clip(0.36 * len(report.columns) + 2.2, 3.6, 8.0))
    figure = Figure(figsize=(side + 0.6, side), layout="constrained")
    ax = figure.subplots()
    draw_pairs(ax, report.pair_matrix(), "total variation")
    ax.set_facecolor(_NOT_COMPARED)
    return data_address(figure, "svg", "image/svg+xml")
