"""Write the cells of ``bench_fair.py`` as tables and as a picture of the frontiers."""

from __future__ import annotations

import json
import math
from collections.abc import Sequence
from pathlib import Path

import matplotlib.pyplot as plt
import pandas as pd
from matplotlib.axes import Axes
from matplotlib.lines import Line2D

from skdpot.metrics import FairnessFrontierDisplay

KEYS = ["data", "sees_group", "group_feature", "method", "epsilon", "setting"]
FIGURES = [
    "accuracy",
    "auc",
    "disparate_impact",
    "adverse_impact",
    "parity_difference",
    "equalized_odds",
    "seconds",
]
PARITY_LEVELS = (0.7, 0.8, 0.9, 0.95)
# Colours of Okabe and Ito, which colour-blind readers can tell apart; later methods lie on top.
STYLES = {
    "logistic regression": ("#CC79A7", "o"),
    "ExponentiatedGradient": ("#0072B2", "s"),
    "ThresholdOptimizer": ("#56B4E9", "P"),
    "DP-SGD": ("#999999", "o"),
    "DP-SGD + thresholds": ("#009E73", "^"),
    "ours, ranks": ("#E69F00", "v"),
    "ours, sketch": ("#D55E00", "D"),
    "ours, sketch, tuned": ("#D55E00", "*"),
    "ours, bayes": ("#000000", "*"),
    "ThresholdOptimizer, odds": ("#56B4E9", "P"),
    "ours, bayes, odds": ("#000000", "*"),
}
TITLES = {
    False: "decisions that do not use the group",
    True: "decisions that use the group",
}


def write_report(paths: Sequence[Path], folder: Path, earlier: Path | None = None) -> None:
    """
    Summarise the cells.

    Writes into `folder`: ``fair_cells.csv`` (a row a rule), ``fair.csv`` (means and standard
    deviations over seeds), ``fair.rst`` (the same, and the best accuracy at given disparate
    impact) and ``fair.png``. Prints the latter table. Means of `earlier`, another ``fair.csv``, are
    kept where no cell replaces them.
    """
    if not paths:
        return
    folder.mkdir(parents=True, exist_ok=True)
    table = read_cells(paths)
    table.to_csv(folder / "fair_cells.csv", index=False)
    means = summary(table)
    if earlier is not None:
        known = pd.read_csv(earlier).fillna({"relation": ""})
        both = pd.concat([known, means.round(5)]).drop_duplicates(KEYS, keep="last")
        means = _ordered(both, KEYS)
    means.round(5).to_csv(folder / "fair.csv", index=False)
    odds = means["method"].str.endswith("odds")
    best = best_at(means[~odds])
    text = f"{to_rst(best)}\n\n{to_rst(readable(means))}\n"
    (folder / "fair.rst").write_text(text, encoding="utf-8")
    print(to_rst(best))
    draw(means[~odds], folder / "fair.png")


def read_cells(paths: Sequence[Path]) -> pd.DataFrame:
    """Return the rows of all cells, methods in the order of `STYLES`."""
    rows = [row for path in paths for row in json.loads(path.read_text(encoding="utf-8"))]
    table = pd.DataFrame(rows)
    return _ordered(table, [*KEYS, "seed"])


def _ordered(table: pd.DataFrame, keys: list[str]) -> pd.DataFrame:
    ranks = {name: rank for rank, name in enumerate(STYLES)}
    order = ["data", "sees_group", "method", *(key for key in keys[2:] if key != "method")]
    return table.sort_values(
        order, key=lambda column: column.map(ranks) if column.name == "method" else column
    ).reset_index(drop=True)


def summary(table: pd.DataFrame) -> pd.DataFrame:
    """Return means and standard deviations over seeds, and the largest ε that was spent."""
    grouped = table.groupby([*KEYS, "relation"], sort=False)
    means = grouped[FIGURES].mean()
    spread = grouped[FIGURES].std().add_suffix("_std")
    facts = grouped.agg(epsilon_spent=("epsilon_spent", "max"), seeds=("seed", "nunique"))
    interleaved = [name for figure in FIGURES for name in (figure, f"{figure}_std")]
    return pd.concat([means, spread], axis=1)[interleaved].join(facts).reset_index()


def best_at(means: pd.DataFrame) -> pd.DataFrame:
    """Return each method's best mean accuracy among its settings that are fair enough."""
    keys = [key for key in KEYS if key != "setting"]
    rows = []
    for values, block in means.groupby(keys, sort=False):
        row = dict(zip(keys, values, strict=True)) | {"best": cell_text(block, 0.0)}
        row |= {f"DI ≥ {level:g}": cell_text(block, level) for level in PARITY_LEVELS}
        rows.append(row | {"seconds": f"{block['seconds'].mean():.1f}"})
    return _named(pd.DataFrame(rows))


def cell_text(block: pd.DataFrame, level: float) -> str:
    """Return "accuracy ± deviation at disparate impact" of the best setting, or a dash."""
    fair = block[block["disparate_impact"] >= level]
    if not len(fair):
        return "–"
    best = fair.loc[fair["accuracy"].idxmax()]
    accuracy = f"{best['accuracy']:.3f} ± {best['accuracy_std']:.3f}"
    return f"{accuracy} at {best['disparate_impact']:.2f}"


def readable(means: pd.DataFrame) -> pd.DataFrame:
    """Return the full table as text."""
    text = means[KEYS].copy()
    for figure in FIGURES[:-1]:
        text[figure] = [
            f"{mean:.3f} ± {spread:.3f}"
            for mean, spread in zip(means[figure], means[f"{figure}_std"], strict=True)
        ]
    text["seconds"] = means["seconds"].map("{:.1f}".format)
    text["epsilon_spent"] = means["epsilon_spent"].map("{:.3f}".format).replace("inf", "∞")
    return _named(text)


def _named(table: pd.DataFrame) -> pd.DataFrame:
    """Say yes, no and infinity in words that a reader expects."""
    table = table.copy()
    for column in ("sees_group", "group_feature"):
        table[column] = table[column].map({True: "yes", False: "no"})
    table["epsilon"] = table["epsilon"].map("{:g}".format).replace("inf", "∞")
    return table.rename(columns=lambda name: name.replace("_", " "))


def to_rst(table: pd.DataFrame) -> str:
    """Return a simple table of reStructuredText, readable as it is."""
    columns = [[str(name), *map(str, table[name])] for name in table]
    widths = [max(map(len, column)) for column in columns]
    rule = "  ".join("=" * width for width in widths)
    lines = [
        "  ".join(cell.ljust(width) for cell, width in zip(row, widths, strict=True)).rstrip()
        for row in zip(*columns, strict=True)
    ]
    return "\n".join([rule, lines[0], rule, *lines[1:], rule])


# --- picture ----------------------------------------------------------------------------------


def draw(table: pd.DataFrame, path: Path) -> None:
    """Draw a row a data set, and two columns an ε: decisions without and with the group."""
    data_sets = table["data"].unique()
    levels = sorted(level for level in table["epsilon"].unique() if math.isfinite(level)) or [0.0]
    views = [(level, sees_group) for sees_group in (False, True) for level in levels]
    size = (4.1 * len(views), 3.7 * len(data_sets) + 0.8)
    figure, axes = plt.subplots(
        len(data_sets), len(views), figsize=size, squeeze=False, layout="constrained"
    )
    for i, data in enumerate(data_sets):
        for j, (level, sees_group) in enumerate(views):
            shown = table[
                (table["data"] == data)
                & (table["sees_group"] == sees_group)
                & table["epsilon"].isin([level, math.inf])
            ]
            _draw_panel(_one_curve_each(shown), axes[i, j])
            axes[i, j].set_title(f"{data}, ε = {level:g}:\n{TITLES[sees_group]}", fontsize=10)
            # Both ε on one scale; the two kinds of rules differ too much to share one.
            axes[i, j].sharex(axes[i, 0])
            axes[i, j].sharey(axes[i, j - j % len(levels)])
            axes[i, j].autoscale()
    front = Line2D([], [], color="0.8", linewidth=5, label="Pareto front of the panel")
    methods = [
        Line2D([], [], color=color, marker=marker, label=name)
        for name, (color, marker) in STYLES.items()
        if name in set(table["method"])
    ]
    figure.legend(handles=[*methods, front], loc="outside lower center", ncols=5, frameon=False)
    figure.savefig(path, dpi=110)
    plt.close(figure)


def _one_curve_each(shown: pd.DataFrame) -> pd.DataFrame:
    """Keep one variant of rules that need the group anyway: without it as a feature, the better."""
    both = shown.groupby("method")["group_feature"].transform("nunique") > 1
    return shown[~both | ~shown["group_feature"]]


def _draw_panel(shown: pd.DataFrame, axes: Axes) -> None:
    """Draw the frontiers in one panel."""
    if not len(shown):
        return
    shown = shown.dropna(subset="disparate_impact")  # 0/0: the same unfavourable decision for all
    display = FairnessFrontierDisplay.from_results(shown, settings="setting", ax=axes, legend=False)
    for position, name in enumerate(STYLES):
        if name in display.errorbars_:
            _restyle(display.errorbars_[name], *STYLES[name], zorder=3 + position)


def _restyle(container: object, color: str, marker: str, zorder: int) -> None:
    """Give a method the same look in every panel."""
    line, caps, bars = container.lines
    line.set(marker=marker, markersize=5)
    for artist in (line, *caps):
        artist.set(color=color, markeredgecolor=color, zorder=zorder)
    for bar in bars:
        bar.set(color=color, zorder=zorder, alpha=0.4)
