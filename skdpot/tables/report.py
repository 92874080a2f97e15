"""How good a synthetic table is: a report for those who make it and those who use it."""

import itertools
import math
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from datetime import UTC, datetime
from numbers import Real
from typing import Any

import numpy as np
import pandas as pd
from scipy.optimize import isotonic_regression

from skdpot.__about__ import __version__
from skdpot._utils.arrays import FloatArray, IntArray
from skdpot._utils.pages import HtmlReport, render
from skdpot._utils.panels import cut_short, data_address
from skdpot._utils.validation import solver_generator
from skdpot.privacy.budget import epsilon_text
from skdpot.privacy.spent import SEEDED, PrivacySpent
from skdpot.tables.cells import ColumnBins, bin_codes, project_to_total
from skdpot.tables.contingency import NoisyMarginal
from skdpot.tables.frames import Table, read_table
from skdpot.tables.grids import ColumnGrid
from skdpot.tables.marginals import (
    PAIR_BINS,
    CodedTables,
    ColumnShares,
    MarginalsDisplay,
    as_columns,
    column_numbers,
    distance_by_chance,
    draw_pairs,
    marginal_of,
    normalized_wasserstein_distance,
)
from skdpot.tables.model import TableModel
from skdpot.tables.rules import LessEqual, numbers_of
from skdpot.tables.schema import TableSchema

_FEWEST, _MOST = 20_000, 100_000  # synthetic rows, unless the caller says how many
_N_DRAWS = 100  # of noise, for what it explains
_SURE = 5.0  # standard deviations above what noise explains
_ROUNDING = 1e-12
_FIGURES = ("total_variation", "expected", "limit", "beyond_noise")
_NUMBERS = ("mean", "std", "quantile_99")
_HIGH = 0.99
_LABELS = {
    False: ("noisy counts (bars: 2 standard deviations)", "synthetic rows"),
    True: ("rows that were given", "synthetic rows"),
}
_OF_ROWS = (
    "This report was computed, without noise, from rows that were handed to it. They count as "
    "public. If they are not, this report is as confidential as they are: make another one "
    "without rows for everybody else."
)
# Pictures and tables
_DRAWN_BINS = 24
_TAIL = 0.005  # of the rows, on each side, that end intervals take in
_NOT_COMPARED = "0.88"  # colour of pairs
MOST_DRAWN = 24  # columns in pictures,
_MOST_ROWS = 40  # columns in tables,
_MOST_PAIRS = 20  # and pairs
_ACROSS = 3  # panels in a row of a page
_PANEL = (2.8, 2.1)  # inches
_NOTHING = "nothing spent"
_GIVEN = (
    "<p>The counts were given. Nothing was spent here, and no statement of whoever released them "
    "was passed.</p>"
)
# Rows that pile up at a bound
_FEWEST_VALUES = 16  # of a scale, for its ends to be compared with their neighbours
_NEAR = 8  # cells beside a bound
_PILE_SHARE = 0.01  # of the rows in the cell of a bound,
_PILE_SEEN = 5.0  # standard deviations of its noise,
_PILE_RATIO = 2.0  # and times the largest of the neighbours: such is a pile


@dataclass(frozen=True, eq=False, repr=False, kw_only=True)
class TableQualityReport(HtmlReport):
    """How well synthetic rows agree with the released counts, or with public rows.

    `DPTableSynthesizer.quality_report` makes one. In a notebook it shows itself.

    Notes
    -----
    Noise is the privacy noise on the counts, or of rows the chance by which two samples differ.
    In either case the synthetic rows are a sample too. What noise would do is found by adding it,
    or computed, for the distribution of the synthetic rows.

    Privacy
    -------
    Without rows post-processing of what was released. With rows computed from them without noise;
    the report says so in all its forms.
    """

    of_rows: bool
    n_rows: int
    n_samples: int
    columns: pd.DataFrame
    pairs: pd.DataFrame
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
        """What synthetic rows are compared with, in a few words."""
        if self.of_rows:
            return "rows that were given and count as public"
        return "noisy counts that the synthesizer released"

    @property
    def summary(self) -> dict[str, Any]:
        """The main figures, for JSON: plain numbers and text, None where there is none."""
        spent = self.spent
        epsilon = math.nan if spent is None else spent.epsilon

        def mean(values: pd.Series) -> float | None:
            return float(values.mean()) if len(values) else None

        found: dict[str, Any] = {
            "compared_with": self.compared_with,
            "private": not self.of_rows and not math.isinf(epsilon),
            "epsilon": epsilon if math.isfinite(epsilon) else None,
            "delta": None if spent is None else spent.delta,
            "rows": self.n_rows,
            "synthetic_rows": self.n_samples,
        }
        for what, frame in (("columns", self.columns), ("pairs", self.pairs)):
            found[what] = len(frame)
            for figure in ("total_variation", "expected"):
                found[f"{what}_{figure}"] = mean(frame[figure])
            found[f"{what}_beyond_noise"] = int(frame["beyond_noise"].sum())
        distances = self.columns.get("normalized_wasserstein", pd.Series(dtype=np.float64))
        found["normalized_wasserstein"] = mean(distances[np.isfinite(distances)])
        return found | {"warnings": len(self.cautions)}

    @property
    def broken_rules(self) -> list[tuple[str, str]]:
        """How many synthetic rows break each rule, in words."""
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
        found, columns = self.summary, _worst(self.columns, _MOST_ROWS, keep_order=True)
        compared = "public rows" if self.of_rows else "private rows, by their noisy counts"
        pairs = _worst(self.pairs, _MOST_PAIRS)
        heads = ("total variation", "by chance" if self.of_rows else "by noise", "beyond")
        few = len(self.pairs) and len(self.columns) <= MOST_DRAWN
        return render(
            "table_report.html",
            title=self._title,
            subject=f"{self.n_samples:,} synthetic rows beside {self.n_rows:,} {compared}",
            report=self,
            summary=found,
            of_rows=_OF_ROWS,
            epsilon=_NOTHING if self.spent is None else epsilon_text(self.spent.epsilon),
            warnings=[text for text in self.cautions if text != _OF_ROWS],
            hidden=len(self.columns) - MOST_DRAWN,
            columns_picture=_columns_picture(self),
            column_heads=["column", *heads, *(["W₁ / range"] if self.of_rows else [])],
            column_rows=[[str(name), *_cells(row)] for name, row in columns.iterrows()],
            number_rows=list(_number_rows(columns[columns["kind"] == "numeric"])),
            pairs_picture=_pairs_picture(self) if few else None,
            pair_heads=["pair", "cells", *heads],
            pair_rows=[
                [" × ".join(map(str, pair)), f"{row['cells']:,}", *_cells(row)]
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
        found = self.summary
        pairs = found["pairs_total_variation"]
        return (
            f"TableQualityReport({found['columns']} columns, compared with {self.compared_with}; "
            f"total variation of columns {found['columns_total_variation']:.3f}"
            f"{'' if pairs is None else f', of {len(self.pairs)} pairs {pairs:.3f}'})"
        )


def make_report(
    synthesizer: Any, X: Any, n_samples: int | None, random_state: Any
) -> TableQualityReport:
    """Compare rows of a fitted synthesizer with its releases, or with public rows."""
    schema, model, grids = synthesizer.schema_, synthesizer.model_, synthesizer._grids
    spent, of_rows = synthesizer.privacy_spent_, X is not None
    table = read_table(synthesizer, X, reset=False, names=schema.names) if of_rows else None
    n_rows = model.n_rows if table is None else table.n_rows
    size = int(np.clip(n_rows, _FEWEST, _MOST)) if n_samples is None else n_samples
    rng = solver_generator(random_state)
    drawn = Table.of(synthesizer._sampled(size, None, int(rng.integers(2**31))), schema.names)
    if table is None:
        values = synthesizer._rules.to_model(schema.read(drawn))
        compared = _beside_releases(model, grids, values, rng)
    else:
        compared = _beside_rows(schema, table, drawn)
    return TableQualityReport(
        of_rows=of_rows,
        n_rows=n_rows,
        n_samples=drawn.n_rows,
        **compared,
        rules=synthesizer._rules.broken(drawn),
        orders=_orders(schema, drawn),
        cautions=(*_of_the_fit(schema, spent, of_rows), *_of_columns(model, grids)),
        schema=schema,
        spent=spent,
        target=synthesizer.target,
        created=datetime.now(UTC),
        version=__version__,
    )


def _orders(schema: TableSchema, drawn: Table) -> pd.Series:
    """Return in which share of the synthetic rows one date is after another."""
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


def _beside_releases(
    model: TableModel,
    grids: Sequence[ColumnGrid],
    drawn: Mapping[str, Any],
    rng: np.random.Generator,
) -> dict[str, Any]:
    """Compare synthetic rows with the noisy counts that the model was fitted to."""
    values = [drawn[grid.column.name] for grid in grids]
    codes = np.stack([grid.codes(v) for grid, v in zip(grids, values, strict=True)], axis=1)
    marginals, columns = [], []
    pairs: dict[tuple[str, ...], tuple[int, dict[str, Any]]] = {}  # each once, in its most cells
    for grid, noisy, own, cells in zip(grids, model.columns, values, codes.T, strict=True):
        shares = np.bincount(cells, minlength=grid.size) / len(codes)
        marginal, joined = drawn_marginal(grid, noisy, shares, model.n_rows, _DRAWN_BINS)
        marginals.append(marginal)
        columns.append(_misfit(noisy, shares, joined, model.n_rows, len(codes), rng))
        if grid.column.figure == "number":
            columns[-1] |= numbers_of_counts(grid, noisy)
            columns[-1] |= _numbers_of_values(grid.column.numbers(own), "synthetic_")
    binned = bin_codes(codes, model.bins)
    for noisy in (found for found in model.marginals if len(found.marginal.columns) == 2):
        shares = noisy.marginal.counts(binned) / len(codes)
        names = tuple(grids[place].column.name for place in noisy.marginal.columns)
        if len(shares) > pairs.get(names, (0,))[0]:
            cells = np.arange(len(shares))
            figures = _misfit(noisy, shares, cells, model.n_rows, len(codes), rng)
            pairs[names] = len(shares), figures
    found = [(names, *pair) for names, pair in pairs.items()]
    return _compared([grid.column for grid in grids], columns, found, marginals)


def _beside_rows(schema: TableSchema, rows: Table, synthetic: Table) -> dict[str, Any]:
    """Compare synthetic rows with public ones."""
    given = (
        dict(zip(t.names, as_columns(t.data, "X").values(), strict=True)) for t in (rows, synthetic)
    )
    real, drawn = ({c.name: c.compared(own[c.name]) for c in schema} for own in given)
    tables = CodedTables.of(real, drawn, PAIR_BINS)
    distances = normalized_wasserstein_distance(pd.DataFrame(real), pd.DataFrame(drawn))
    columns: list[dict[str, Any]] = []
    for place, column in enumerate(schema):
        columns.append(_difference(tables, (place,))[1])
        columns[-1]["normalized_wasserstein"] = distances.get(column.name, np.nan)
        if column.figure == "number":
            for prefix, side in (("", real), ("synthetic_", drawn)):
                values = column_numbers(side[column.name], "number")
                columns[-1] |= _numbers_of_values(values, prefix)
    pairs = [
        (tuple(schema.names[place] for place in pair), *_difference(tables, pair))
        for pair in itertools.combinations(range(len(schema)), 2)
    ]
    marginals = [marginal_of(name, real[name], drawn[name], _DRAWN_BINS) for name in real]
    return _compared(schema.columns, columns, pairs, marginals)


def _compared(
    columns: Sequence[Any],
    figures: Sequence[dict[str, Any]],
    pairs: Sequence[tuple[tuple[str, ...], int, dict[str, Any]]],
    marginals: Iterable[ColumnShares],
) -> dict[str, Any]:
    """Return the tables of columns and of pairs, and what is drawn; NaN for what is no number."""
    frame = pd.DataFrame(figures, pd.Index([column.name for column in columns], name="column"))
    numbers = ["normalized_wasserstein", *_NUMBERS, "mean_noise"]
    numbers = [name for name in numbers if name in frame or name in _NUMBERS]
    numbers += [f"synthetic_{name}" for name in _NUMBERS]
    frame = frame.reindex(columns=[*_FIGURES, *numbers]).astype(dict.fromkeys(numbers, "float64"))
    frame.insert(0, "kind", [column.kind for column in columns])
    index = pd.MultiIndex.from_tuples([names for names, *_ in pairs], names=["first", "second"])
    rows = [{"cells": cells} | found for _, cells, found in pairs]
    types = dict(zip(("cells", *_FIGURES), ("int64", *["float64"] * 3, "bool"), strict=True))
    table = pd.DataFrame(rows, index, list(types)).astype(types)
    return {"columns": frame, "pairs": table, "marginals": tuple(marginals)}


def _figures(found: float, expected: float, limit: float) -> dict[str, Any]:
    return dict(zip(_FIGURES, (found, expected, limit, found > limit + _ROUNDING), strict=True))


def _misfit(
    noisy: NoisyMarginal,
    synthetic: FloatArray,
    joined: IntArray,
    n_rows: int,
    n_samples: int,
    rng: np.random.Generator,
) -> dict[str, Any]:
    """Return the distance to noisy counts, and what the noise alone would make of it.

    If the synthetic shares are those of the private rows, then noisy counts of them are the
    private ones plus noise, and the synthetic rows at hand a sample: both are drawn anew.
    """
    sizes = np.bincount(joined)
    counts, truth = (_join(part, joined) for part in (noisy.counts, synthetic))
    scales = noisy.sigma * np.sqrt(sizes)
    found = _distance(counts, truth, n_rows)
    draws = np.empty(_N_DRAWS)
    for draw in range(_N_DRAWS):
        sample = rng.multinomial(n_samples, truth / truth.sum()) / n_samples
        noise = scales * rng.standard_normal(len(sizes))
        draws[draw] = _distance(n_rows * truth + noise, sample, n_rows)
    expected = float(draws.mean())
    return _figures(found, expected, expected + _SURE * float(draws.std(ddof=1)))


def _join(values: FloatArray, groups: IntArray) -> FloatArray:
    return np.bincount(groups, weights=values).astype(np.float64)


def _distance(counts: FloatArray, shares: FloatArray, n_rows: int) -> float:
    possible = project_to_total(counts, n_rows) / n_rows
    return float(np.abs(possible - shares).sum() / 2)


def _difference(tables: CodedTables, columns: tuple[int, ...]) -> tuple[int, dict[str, Any]]:
    """Return the number of cells of a marginal, and the distance of two tables in it."""
    real, synthetic = tables.shares(columns)
    found = float(np.abs(real - synthetic).sum() / 2)
    chance = distance_by_chance(real, synthetic, tables.n_real, tables.n_synthetic)
    return len(real), _figures(found, *chance)


def _numbers_of_values(values: FloatArray, prefix: str) -> dict[str, float]:
    """Return the figures of a column of rows, NaN where a value is missing."""
    present = values[~np.isnan(values)]
    if not present.size:
        return {}
    high = np.quantile(present, _HIGH, method="inverted_cdf")
    figures = (present.mean(), present.std(), high)
    return {f"{prefix}{name}": float(f) for name, f in zip(_NUMBERS, figures, strict=True)}


def numbers_of_counts(grid: ColumnGrid, noisy: NoisyMarginal) -> dict[str, float]:
    """Return the figures that noisy counts of cells give, each value in the middle of its cell."""
    values = column_numbers(grid.column.compared(grid.middles), "number")
    order = np.argsort(values, kind="stable")
    values, counts = values[order], noisy.counts[: grid.n_cells][order]
    total = counts.sum()
    if total <= noisy.sigma * np.sqrt(len(counts)):
        return dict.fromkeys((*_NUMBERS, "mean_noise"), np.nan)
    mean = float(counts @ values / total)
    variance = float(counts @ (values - mean) ** 2 / total)
    below: FloatArray = isotonic_regression(np.cumsum(counts)).x
    place = int(np.searchsorted(below, _HIGH * below[-1]))
    return {
        "mean": mean,
        "std": float(np.sqrt(variance)) if variance >= 0.0 else np.nan,
        "quantile_99": float(values[place]),
        "mean_noise": float(noisy.sigma * np.sqrt(((values - mean) ** 2).sum()) / total),
    }


# ------------------------------------------------------------------- what is drawn


def drawn_marginal(
    grid: ColumnGrid, noisy: NoisyMarginal, synthetic: FloatArray, n_rows: int, n_bins: int
) -> tuple[ColumnShares, IntArray]:
    """Return the noisy and the synthetic shares of one column, and the bin of each cell."""
    column = grid.column
    if grid.on_scale:
        ends = _drawn_cells(grid, synthetic[: grid.n_cells], n_bins)
        n_groups = len(ends) - 1
        joined = np.searchsorted(ends[1:-1], np.arange(grid.n_cells), side="right")
        values = _axis(grid, ends)
    else:
        n_groups = grid.n_cells
        joined = np.arange(n_groups)
        values = np.array(list(map(str, column.levels)), dtype=object)
    if column.missing:
        joined = np.append(joined, n_groups)
    real = project_to_total(_join(noisy.counts, joined), n_rows) / n_rows
    noise = noisy.sigma * np.sqrt(np.bincount(joined)) / n_rows
    order = np.arange(n_groups)
    if not grid.ordered:  # neither a scale nor categories in an order: the frequent ones first
        order = np.argsort(-real[:n_groups], kind="stable")
        values = values[order]
    parts = (real, _join(synthetic, joined), noise)
    lost = [float(part[-1]) if column.missing else 0.0 for part in parts]
    real, drawn, noise = (part[order] for part in parts)
    facts = (real, drawn, lost[0], lost[1], noise, lost[2])
    return ColumnShares(column.name, column.figure, values, *facts), joined


def _drawn_cells(grid: ColumnGrid, synthetic: FloatArray, n_bins: int) -> IntArray:
    """Return the first cell of each drawn bin, about equally long, and where the last one ends."""
    below = np.cumsum(synthetic)
    first, last = np.searchsorted(below, [_TAIL * below[-1], (1.0 - _TAIL) * below[-1]])
    stop = int(np.clip(last, first, len(below) - 1)) + 1
    if not grid.has_intervals:  # as many values in each
        width = -(-(stop - first) // n_bins)
        return np.append(np.arange(first, stop, width), stop)
    steps = grid.column.steps_at(np.asarray(grid.edges))
    even = np.linspace(steps[first], steps[stop], n_bins + 1)
    return np.unique(first + np.abs(steps[first : stop + 1] - even[:, None]).argmin(axis=1))


def _axis(grid: ColumnGrid, ends: IntArray) -> FloatArray:
    """Return where bins begin and end on the axis."""
    column: Any = grid.column
    bounds = column.compared(column.from_unit([0.0, 1.0]))
    low, high = column_numbers(bounds, column.figure)
    places, whole = column.steps_at(np.asarray(grid.edges)[ends]), column.steps_at(np.ones(1))
    return low + places / (whole or 1.0) * ((high - low) or 1.0)


# ------------------------------------------------------------------- the page


def _cells(row: Any) -> Iterator[str]:
    """Yield what a table of the page tells of a column or a pair."""
    yield f"{row['total_variation']:.4f}"
    yield f"{row['expected']:.4f}"
    yield "yes" if row["beyond_noise"] else "no"
    if "normalized_wasserstein" in row:
        distance = row["normalized_wasserstein"]
        yield "" if pd.isna(distance) else f"{distance:.4f}"


def _number_rows(frame: pd.DataFrame) -> Iterator[list[str]]:
    """Yield for each column of numbers what it is like on either side."""
    for name, row in frame.iterrows():
        cells = [str(name)]
        for figure in _NUMBERS:
            own = _number(row[figure])
            if figure == "mean" and row.get("mean_noise", 0.0) > 0.0:
                own += f" ± {_number(row['mean_noise'], digits=2)}"
            cells += [own, _number(row[f"synthetic_{figure}"])]
        yield cells


def _number(value: float, digits: int = 4) -> str:
    """Write a number with a few digits, in full if it is no giant."""
    if not math.isfinite(value):
        return "–"
    return f"{value:,.0f}" if 10.0**digits <= abs(value) < 1e9 else f"{value:,.{digits}g}"


def _worst(frame: pd.DataFrame, most: int, keep_order: bool = False) -> pd.DataFrame:
    """Return the rows with the largest excess over what is expected."""
    excess = (frame["total_variation"] - frame["expected"]).to_numpy()
    order = (-excess).argsort(kind="stable")[:most]
    return frame.iloc[sorted(order) if keep_order else order]


def _columns_picture(report: TableQualityReport) -> str:
    """Draw the distributions of the columns that agree worst, as a data address."""
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


# ------------------------------------------------------------------- warnings


def _of_the_fit(schema: TableSchema, spent: PrivacySpent | None, of_rows: bool) -> list[str]:
    """Return what a reader must be warned of in any case, the gravest first."""
    known = {
        _OF_ROWS: of_rows,
        "The synthesizer was fitted without noise: ε is infinite, and neither its rows nor this "
        "report are private.": spent is not None and math.isinf(spent.epsilon),
        "The synthesizer was fitted with a random_state. Anyone who knows it can remove the noise; "
        "for a release leave it None.": spent is not None and SEEDED in spent.assumptions,
        "The schema was guessed from the values and never confirmed: what stands in it is not "
        "protected. Check it, and call confirm().": schema.guessed,
    }
    return [text for text, holds in known.items() if holds]


def _of_columns(model: TableModel, grids: Sequence[ColumnGrid]) -> Iterator[str]:
    """Yield what released counts say of columns that synthetic rows cannot be good in."""
    facts = list(zip(grids, model.columns, model.bins, strict=True))
    alone = [grid.column.name for grid in grids if grid.n_cells == 1]
    known = [fact for fact in facts if fact[0].n_cells > 1]
    blank = [fact for fact in known if _is_blank(*fact, model.n_rows)]
    known = [fact for fact in known if fact not in blank]
    if alone:
        yield f"A single value is possible, and every synthetic row has it, in {_listed(alone)}."
    if blank:
        yield (
            f"Nothing stands out of the noise in {_listed([g.column.name for g, *_ in blank])}: "
            "the synthetic values say hardly more than the schema does. Use more rows, a larger ε, "
            "fewer columns, or narrower bounds and fewer categories."
        )
    for grid, noisy, _ in known:
        yield from _clipped(grid, noisy, model.n_rows)
    for grid, _, bins in known:
        yield from _lumped(grid, bins)


def _is_blank(grid: ColumnGrid, noisy: NoisyMarginal, bins: ColumnBins, n_rows: int) -> bool:
    """Whether nothing is known of the values of a column: no bin stands out of the noise."""
    counts = noisy.counts[: grid.n_cells]
    groups = bins.bins[: grid.n_cells]
    if len(np.unique(groups)) == 1:  # one value, perhaps, that nearly all rows have
        groups = np.arange(grid.n_cells)
    sums, sizes = np.bincount(groups, weights=counts), np.bincount(groups)
    # The largest of k noises is hardly ever larger than this many standard deviations.
    seen = math.sqrt(2 * math.log(2 * len(sums))) + 1
    visible = seen * noisy.sigma * np.sqrt(sizes)
    return bool((np.minimum(sums, n_rows) <= visible).all())


def _clipped(grid: ColumnGrid, noisy: NoisyMarginal, n_rows: int) -> Iterator[str]:
    """Say where rows pile up at a bound as clipped values do; few values and zero may do so."""
    if not grid.on_scale or grid.n_cells < _FEWEST_VALUES:
        return
    column: Any = grid.column
    counts = noisy.counts[: grid.n_cells]
    least = max(_PILE_SHARE * n_rows, _PILE_SEEN * noisy.sigma)
    for side, beyond, inwards in (("lower", "smaller", counts), ("upper", "larger", counts[::-1])):
        bound, at = getattr(column, side), inwards[0]
        if bound == 0 or at < max(least, _PILE_RATIO * inwards[1 : 1 + _NEAR].max()):
            continue
        shown = f"{bound:,.12g}" if isinstance(bound, Real) else bound
        yield (
            f"About {100 * min(at / n_rows, 1.0):.2g} % of the rows are at the {side} bound of "
            f"{column.name!r}, {shown}: {beyond} values, if there were any, were clipped to it. "
            "Widen the bound in the schema if there can be such."
        )


def _lumped(grid: ColumnGrid, bins: ColumnBins) -> Iterator[str]:
    """Say which categories share a bin."""
    if grid.on_scale:
        return
    present, column = bins.bins[: grid.n_cells], grid.column
    for group in np.flatnonzero(np.bincount(present) > 1):
        members = np.flatnonzero(present == group)
        share = 100 * float(bins.cell_shares[members].sum())
        size = f"about {share:.2g} %" if share >= 0.1 else "less than 0.1 %"
        yield (
            f"{column.name!r}: {len(members)} of {grid.n_cells} categories are too rare to be told "
            f"apart, with {size} of the rows together: "
            f"{_listed([str(column.levels[member]) for member in members])}. How they relate to "
            "other columns is known of all of them together only."
        )


def _listed(names: Sequence[str], most: int = 8) -> str:
    more = f" and {len(names) - most} more" if len(names) > most else ""
    return ", ".join(repr(name) for name in names[:most]) + more
