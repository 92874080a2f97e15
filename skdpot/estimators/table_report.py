"""How good a synthetic table is: a report for those who make it and those who use it."""

import math
from dataclasses import dataclass
from datetime import UTC, datetime
from typing import Any

import numpy as np
import pandas as pd

import skdpot
from skdpot._utils.pages import HtmlReport
from skdpot._utils.rng import solver_generator
from skdpot.estimators._synthetic_rows import check_n_samples
from skdpot.estimators._table_comparison import (
    cautions_of,
    compare_with_releases,
    compare_with_rows,
)
from skdpot.estimators._table_page import NOT_COMPARED, TITLE, quality_fragment
from skdpot.metrics.marginals import Marginal
from skdpot.metrics.marginals_display import MarginalsDisplay
from skdpot.preprocessing.table_frames import Table, read_table
from skdpot.preprocessing.table_schema import TableSchema
from skdpot.privacy.spent import PrivacySpent

__all__ = ["TableQualityReport", "make_report"]

_FEWEST, _MOST = 20_000, 100_000  # synthetic rows, unless the caller says how many
_LABELS = {
    False: ("noisy counts (bars: 2 standard deviations)", "synthetic rows"),
    True: ("rows that were given", "synthetic rows"),
}


@dataclass(frozen=True, eq=False, repr=False, kw_only=True)
class TableQualityReport(HtmlReport):
    """How well synthetic rows agree with the released counts, or with public rows.

    `DPTableSynthesizer.quality_report` makes one. In a notebook it shows itself.

    Parameters
    ----------
    of_rows : bool
        Whether it was computed from rows that were given, which count as public. If not, it was
        computed from what the synthesizer released, and is as private as that.
    n_rows : int
        Number of rows that synthetic ones are compared with.
    n_samples : int
        Number of synthetic rows.
    columns : DataFrame
        For each column its ``kind``; ``total_variation``, the distance between the distributions
        of its values; ``expected``, what noise alone would make of that; ``limit``, what noise
        hardly ever exceeds; ``beyond_noise``, whether it is exceeded. Of numbers the ``mean``,
        the standard deviation ``std`` and ``quantile_99``, of what is compared with and, with
        ``synthetic_`` before the name, of synthetic rows. Of noisy counts also ``mean_noise``,
        the standard deviation of their mean; of rows ``normalized_wasserstein``, W₁ of numbers
        and dates, as a share of their range.
    pairs : DataFrame
        The same for pairs of columns, with the number of ``cells``: those that were released, one
        perhaps with finer and with coarser cells, or of rows all.
    marginals : tuple of Marginal
        Shares of the values of each column.
    cautions : tuple of str
        Warnings, the gravest first.
    schema : TableSchema
        The resolved schema.
    spent : PrivacySpent
        The privacy statement of the synthesizer.
    target : str or None
        The column that others are to be predicted from.
    created : datetime
        When the report was made (UTC).
    version : str
        Of this package.

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
    marginals: tuple[Marginal, ...]
    cautions: tuple[str, ...]
    schema: TableSchema
    spent: PrivacySpent
    target: str | None
    created: datetime
    version: str

    @property
    def compared_with(self) -> str:
        """What synthetic rows are compared with, in a few words."""
        if self.of_rows:
            return "rows that were given and count as public"
        return "noisy counts that the synthesizer released"

    @property
    def summary(self) -> dict[str, Any]:
        """The main figures, for JSON: plain numbers and text, None where there is none."""
        columns, pairs = self.columns, self.pairs
        wasserstein = columns.get("normalized_wasserstein", pd.Series(dtype=np.float64))
        known = wasserstein[np.isfinite(wasserstein)]
        return {
            "compared_with": self.compared_with,
            "private": not self.of_rows and math.isfinite(self.spent.epsilon),
            "epsilon": self.spent.epsilon if math.isfinite(self.spent.epsilon) else None,
            "delta": self.spent.delta,
            "rows": self.n_rows,
            "synthetic_rows": self.n_samples,
            "columns": len(columns),
            "columns_total_variation": _mean(columns["total_variation"]),
            "columns_expected": _mean(columns["expected"]),
            "columns_beyond_noise": int(columns["beyond_noise"].sum()),
            "pairs": len(pairs),
            "pairs_total_variation": _mean(pairs["total_variation"]),
            "pairs_expected": _mean(pairs["expected"]),
            "pairs_beyond_noise": int(pairs["beyond_noise"].sum()),
            "normalized_wasserstein": _mean(known),
            "warnings": len(self.cautions),
        }

    def pair_matrix(self) -> pd.DataFrame:
        """Return the total variation distances as a table of columns by columns.

        Returns
        -------
        DataFrame of shape (n_columns, n_columns)
            Single columns on the diagonal; NaN for pairs that were not compared. Of a pair that
            was released twice the finer cells count.
        """
        names = list(self.columns.index)
        matrix = pd.DataFrame(np.nan, names, names)
        for name, distance in self.columns["total_variation"].items():
            matrix.loc[name, name] = distance
        finest = self.pairs.sort_values("cells", kind="stable")
        for pair, distance in zip(finest.index, finest["total_variation"], strict=True):
            matrix.loc[pair] = matrix.loc[pair[::-1]] = distance
        return matrix

    def plot(self, ax: Any = None, *, pairs: bool = True, **kwargs: Any) -> MarginalsDisplay:
        """Draw the distributions of all columns, and a map of the pairs.

        Parameters
        ----------
        ax : matplotlib Axes or sequence of them, optional
            One Axes a column, and one for the map; new ones by default.
        pairs : bool, default=True
            Whether to draw the map, which needs two columns.
        **kwargs : dict
            For `MarginalsDisplay.plot`.

        Returns
        -------
        MarginalsDisplay
            Noisy counts, with bars of two standard deviations of their noise, or rows, beside
            synthetic rows. Titles give the total variation distance.
        """
        mapped = pairs and len(self.pairs) > 0
        display = MarginalsDisplay(
            marginals=list(self.marginals),
            pairs=self.pair_matrix() if mapped else None,
            pairs_name="total variation" if mapped else None,
            labels=_LABELS[self.of_rows],
        ).plot(ax=ax, **kwargs)
        why = "by chance" if self.of_rows else "by noise"
        for panel, (name, row) in zip(display.axes_, self.columns.iterrows(), strict=False):
            short = str(name) if len(str(name)) <= 26 else f"{str(name)[:25]}…"
            title = f"{short}\nTV = {row['total_variation']:.3f}, {why} {row['expected']:.3f}"
            panel.set_title(title, fontsize="small")
        if mapped:
            display.axes_[-1].set_facecolor(NOT_COMPARED)
        return display

    @property
    def _title(self) -> str:
        return TITLE

    def _repr_html_(self) -> str:
        """Return the report for notebooks."""
        return quality_fragment(self)

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
    """Compare rows of a fitted synthesizer with its releases, or with public rows.

    Parameters
    ----------
    synthesizer : DPTableSynthesizer
        Fitted.
    X : DataFrame, array-like or None
        Public rows.
    n_samples : int or None
        Number of synthetic rows.
    random_state : int, RandomState or None
        Randomness of the synthetic rows.

    Returns
    -------
    TableQualityReport
    """
    schema, model, grids = synthesizer.schema_, synthesizer.model_, synthesizer._grids
    table = None
    n_rows = synthesizer.n_samples_
    if X is not None:
        table = read_table(synthesizer, X, reset=False, names=schema.names)
        n_rows = table.n_rows
    size = int(np.clip(n_rows, _FEWEST, _MOST)) if n_samples is None else check_n_samples(n_samples)
    rng = solver_generator(random_state)
    synthetic = synthesizer.sample(size, random_state=int(rng.integers(2**31)))
    drawn = Table.of(synthetic, schema.names)
    if table is None:
        comparison = compare_with_releases(model, grids, drawn, rng)
    else:
        comparison = compare_with_rows(schema, table, drawn)
    return TableQualityReport(
        of_rows=table is not None,
        n_rows=n_rows,
        n_samples=size,
        columns=comparison.columns,
        pairs=comparison.pairs,
        marginals=comparison.marginals,
        cautions=cautions_of(
            schema, synthesizer.privacy_spent_, model, grids, of_rows=table is not None
        ),
        schema=schema,
        spent=synthesizer.privacy_spent_,
        target=synthesizer.target,
        created=datetime.now(UTC),
        version=skdpot.__version__,
    )


def _mean(values: pd.Series) -> float | None:
    return float(values.mean()) if len(values) else None
