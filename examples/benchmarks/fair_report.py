"""Write the cells of ``bench_fair.py`` as tables and as a picture of the frontiers."""

from __future__ import annotations

import json
import math
from collections.abc import Sequence
from pathlib import Path

import matplotlib.pyplot as plt
import pandas as pd

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
# The order of the methods in the tables, and how those of the picture look: colour, marker, line.
STYLES: dict[str, tuple[str, str, str]] = {
    "logistic regression": ("black", "X", "-"),
    "ExponentiatedGradient": ("black", "s", "--"),
    "ThresholdOptimizer": ("", "", ""),
    "DP-SGD": ("C3", "P", "-"),
    "DP-SGD + thresholds": ("", "", ""),
    "ours, ranks": ("C1", "^", "-"),
    "ours, sketch": ("C2", "D", "-"),
    "ours, sketch, tuned": ("", "", ""),
    "ours, bayes": ("C0", "o", "-"),
    "ThresholdOptimizer, odds": ("", "", ""),
    "ours, bayes, odds": ("", "", ""),
}
LABELS = {
    "logistic regression": "logistic regression, no privacy",
    "ExponentiatedGradient": "ExponentiatedGradient, no privacy",
    "ours, ranks": 'skdpot, mechanism="ranks"',
    "ours, sketch": 'skdpot, mechanism="sketch"',
    "ours, bayes": 'skdpot, mechanism="bayes" (default)',
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
    """Draw a panel per data set: decisions that do not use the group, at the smallest ε."""
    plt.style.use("skdpot.pictures")
    shown = table[~table["sees_group"]].dropna(subset="disparate_impact")  # 0/0: all refused
    level = shown["epsilon"].min()
    shown = shown[shown["epsilon"].isin([level, math.inf])]
    data_sets = list(shown["data"].unique())
    figure, axes = plt.subplots(
        1, len(data_sets), figsize=(4.2 * len(data_sets), 4.6), squeeze=False
    )
    for data, ax in zip(data_sets, axes[0], strict=True):
        for name, (color, marker, line) in STYLES.items():
            points = shown[(shown["data"] == data) & (shown["method"] == name)]
            if not marker or not len(points):
                continue
            ax.errorbar(
                points["disparate_impact"],
                points["accuracy"],
                points["accuracy_std"],
                color=color,
                marker=marker,
                ls=line,
                elinewidth=0.8,
                label=LABELS.get(name, name),
            )
        ax.set(
            title={"compas": "COMPAS"}.get(data, data.capitalize()),
            xlabel="disparate impact (1 is parity)",
        )
        ax.grid()
    axes[0, 0].set_ylabel("accuracy")
    figure.legend(*axes[0, 0].get_legend_handles_labels(), loc="outside lower center", ncols=2)
    figure.suptitle(
        f"At ε = {level:g} the default is close to the frontier without privacy", x=0.01, ha="left"
    )
    figure.savefig(path)
    plt.close(figure)
