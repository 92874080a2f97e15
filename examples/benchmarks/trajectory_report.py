"""The summaries and the picture of ``bench_trajectories.py``, from its tables."""

from __future__ import annotations

from pathlib import Path

import matplotlib.pyplot as plt
import numpy as np
import pandas as pd
from matplotlib.axes import Axes

__all__ = ["write_report"]

BLUE, GREY = "#0072B2", "#666666"
COUPLED, UNCOUPLED = "sketch", "sketch, times apart"
# The paper's upper bound, up to constants and logarithms.
THEOREM = {
    "N": lambda n, t: np.maximum(1 / t, n ** (-2 / 3) * t ** (-1 / 3)),
    "T": lambda n, t: np.maximum(1 / t, n ** (-2 / 3) * t ** (-1 / 3)),
}
LABELS = {"N": "rows a time, N", "T": "times, T"}


def write_report(folder: Path) -> None:
    """Print a summary of every table that is there, and draw the rates."""
    for part, summarise in SUMMARIES.items():
        path = folder / f"{part}.csv"
        if path.exists():
            print(f"\n{part}\n{'=' * len(part)}")
            summarise(pd.read_csv(path))
    if (folder / "rates.csv").exists():
        figure = _picture(pd.read_csv(folder / "rates.csv"))
        figure.savefig(folder / "trajectory_rates.png", dpi=130)
        plt.close(figure)


def _digits(table: pd.DataFrame) -> None:
    for (epsilon, delta), part in table.dropna(subset="epsilon").groupby(["epsilon", "delta"]):
        both = pd.concat([part, table[table["epsilon"].isna()]])
        title = f"epsilon = {epsilon:g}, delta = {delta:g}"
        squared = both.assign(squared_w2=1000 * both["squared_w2"])
        print(f"\n{title}: mean squared W2 in thousandths")
        print(_cells(squared, "squared_w2", ".2f"))
        means = both.groupby(["method", "seed"])[
            ["w2", "squared_w2", "paths", "seconds", "spent"]
        ].mean()
        summary = means.groupby("method").agg(["mean", "sem"]).loc[_order(both)]
        print(f"\n{title}: means over the digits, with their standard errors over seeds")
        print(summary.drop(columns=[("seconds", "sem"), ("spent", "sem")]).round(5).to_string())
        print(f"\n{title}: {COUPLED} minus {UNCOUPLED}, by digit")
        print(_paired(part).to_string())


def _cells(table: pd.DataFrame, column: str, style: str) -> str:
    """Return means ± standard errors, a row a method and a column a digit."""
    groups = table.groupby(["method", "digit"])[column]
    mean, error = groups.mean().unstack(), groups.sem().unstack()
    cells = mean.map(lambda x: f"{x:{style}}") + " ± " + error.map(lambda x: f"{x:{style}}")
    return cells.loc[_order(table)].to_string()


def _order(table: pd.DataFrame) -> list[str]:
    return list(dict.fromkeys(table["method"]))


def _paired(table: pd.DataFrame) -> pd.DataFrame:
    """Return differences between the coupled and the uncoupled rows of the same run."""
    columns = {}
    for column, factor in {"squared_w2": 1000, "paths": 1000}.items():
        wide = table.pivot(index=["digit", "seed"], columns="method", values=column)
        difference = factor * (wide[COUPLED] - wide[UNCOUPLED])
        groups = difference.groupby("digit")
        columns[f"{column} x 1000"] = groups.mean().round(3)
        columns[f"{column} error"] = groups.sem().round(3)
        columns[f"{column} lower in"] = groups.apply(lambda d: f"{(d < 0).sum()} of {len(d)}")
    return pd.DataFrame(columns)


def _branching(table: pd.DataFrame) -> None:
    figures = table.drop(columns="seed").groupby("method", sort=False)
    print(figures.agg(["mean", "max"]).round(4).T.unstack().to_string())


def _rates(table: pd.DataFrame) -> None:
    keys = ["epsilon", "varied", "method", "N", "T"]
    figures = table.groupby(keys)[["squared_hellinger", "at_knots"]]
    print(figures.agg(["mean", "sem"]).to_string(float_format="{:.2e}".format))
    print("\nslopes in logarithms, with standard errors over seeds")
    print(_slopes(table).round(2).to_string())


def _slopes(table: pd.DataFrame) -> pd.DataFrame:
    """Return the slope of every line: of each seed by itself, then mean and standard error."""
    rows = []
    for keys, part in table.groupby(["epsilon", "varied", "method"]):
        slopes = [
            np.polyfit(np.log(run[keys[1]]), np.log(run["squared_hellinger"]), 1)[0]
            for _, run in part.groupby("seed")
        ]
        bound = THEOREM[keys[1]](part["N"].to_numpy(float), part["T"].to_numpy(float))
        steepest = np.polyfit(np.log(part[keys[1]]), np.log(bound), 1)[0]
        rows.append((*keys, np.mean(slopes), np.std(slopes, ddof=1) / len(slopes) ** 0.5, steepest))
    names = ["epsilon", "varied", "method", "slope", "standard error", "slope of the bound"]
    return pd.DataFrame(rows, columns=names)


def _time(table: pd.DataFrame) -> None:
    figures = table.groupby(["d", "method"])["seconds"]
    print(figures.agg(["median", "max"]).round(1).to_string())


def _settings(table: pd.DataFrame) -> None:
    keys = ["bandwidth", "regularization", "diffusivity"]
    print(table.groupby(keys)[["w2", "squared_w2"]].agg(["mean", "sem"]).round(4).to_string())


SUMMARIES = {
    "strokes": _digits,
    "pendigits": _digits,
    "branching": _branching,
    "rates": _rates,
    "time": _time,
    "settings": _settings,
}


def _picture(table: pd.DataFrame) -> plt.Figure:
    """Draw the error against N and against T, one column each, one row for each budget."""
    budgets = sorted(table["epsilon"].unique(), reverse=True)
    figure, axes = plt.subplots(
        len(budgets), 2, figsize=(9.5, 4.0 * len(budgets)), layout="constrained", squeeze=False
    )
    for row, epsilon in zip(axes, budgets, strict=True):
        for ax, varied in zip(row, LABELS, strict=True):
            part = table[(table["epsilon"] == epsilon) & (table["varied"] == varied)]
            fixed = "T" if varied == "N" else "N"
            name = "no privacy" if np.isinf(epsilon) else f"ε = {epsilon:g} at each time"
            ax.set_title(f"{name}, {fixed} = {part[fixed].iloc[0]}", fontsize="medium")
            _lines(ax, part, varied)
    axes[0, 0].legend(fontsize="small")
    figure.supylabel("integrated squared Hellinger distance")
    return figure


def _lines(ax: Axes, part: pd.DataFrame, varied: str) -> None:
    for method, color in {COUPLED: BLUE, UNCOUPLED: GREY}.items():
        groups = part[part["method"] == method].groupby(varied)["squared_hellinger"]
        mean = groups.mean()
        ax.errorbar(mean.index, mean, groups.sem(), marker="o", ms=4, color=color, label=method)
    sizes = part.groupby(varied)[["N", "T"]].first().astype(float)
    bound = THEOREM[varied](sizes["N"], sizes["T"])
    first = part[part["method"] == COUPLED].groupby(varied)["squared_hellinger"].mean().iloc[0]
    label = "bound of Theorem 3.2, moved to the first point"
    ax.plot(sizes.index, bound * first / bound.iloc[0], color="black", ls=":", label=label)
    ax.set(xscale="log", yscale="log", xlabel=LABELS[varied])
    ax.grid(alpha=0.25)
