"""The summaries of ``bench_trajectories.py``, from its tables."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pandas as pd

__all__ = ["write_report"]

COUPLED, WANDERING, UNCOUPLED = "sketch", "sketch, wandering", "sketch, times apart"
PICKED = ("default", "chosen")


def write_report(folder: Path) -> None:
    """Print a summary of every table that is there."""
    for part, summarise in SUMMARIES.items():
        path = folder / f"{part}.csv"
        if path.exists():
            print(f"\n{part}\n{'=' * len(part)}")
            summarise(pd.read_csv(path))


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
        for method in (COUPLED, WANDERING):
            print(f"\n{title}: {method} minus {UNCOUPLED}, by digit")
            print(_paired(part, method).to_string())


def _cells(table: pd.DataFrame, column: str, style: str) -> str:
    """Return means ± standard errors, a row a method and a column a digit."""
    groups = table.groupby(["method", "digit"])[column]
    mean, error = groups.mean().unstack(), groups.sem().unstack()
    cells = mean.map(lambda x: f"{x:{style}}") + " ± " + error.map(lambda x: f"{x:{style}}")
    return cells.loc[_order(table)].to_string()


def _order(table: pd.DataFrame) -> list[str]:
    return list(dict.fromkeys(table["method"]))


def _paired(table: pd.DataFrame, method: str) -> pd.DataFrame:
    """Return differences between the coupled and the uncoupled rows of the same run."""
    columns = {}
    for column, factor in {"squared_w2": 1000, "paths": 1000}.items():
        wide = table.pivot(index=["digit", "seed"], columns="method", values=column)
        difference = factor * (wide[method] - wide[UNCOUPLED])
        groups = difference.groupby("digit")
        columns[f"{column} x 1000"] = groups.mean().round(3)
        columns[f"{column} error"] = groups.sem().round(3)
        columns[f"{column} lower in"] = groups.apply(lambda d: f"{(d < 0).sum()} of {len(d)}")
    return pd.DataFrame(columns)


def _branching(table: pd.DataFrame) -> None:
    figures = table.drop(columns="seed").groupby("method", sort=False)
    print(figures.agg(["mean", "max"]).round(4).T.unstack().to_string())


def _coverage(table: pd.DataFrame) -> None:
    """Print the share covered, and root mean squares of errors: stated, found, uncorrected."""
    figures = table.drop(columns="seed").groupby(["statistic", "law"], sort=False).mean()
    errors = {"squared_error": "error", "stated_variance": "stated"}
    errors["squared_error_uncorrected"] = "uncorrected"
    figures = figures.rename(columns=errors)
    figures[list(errors.values())] **= 0.5
    print(f"{table['seed'].nunique()} runs")
    print(figures["covered"].unstack().round(3).to_string())
    print(figures.round(4).to_string())


def _selection(table: pd.DataFrame) -> None:
    """Print the errors of the default, the chosen, the best and the worst candidate."""
    for error in ("paths", "between"):
        runs = table.groupby(["law", "seed"], sort=False)
        picked = {name: table[table[name]].set_index(["law", "seed"])[error] for name in PICKED}
        picked |= {"best": runs[error].min(), "worst": runs[error].max()}
        print(f"\n{error}")
        means = pd.DataFrame(picked).groupby("law", sort=False).agg(["mean", "sem"])
        print(means.round(4).to_string())
    chosen = table[table["chosen"]]
    print(chosen.groupby(["law", "coupling", "diffusivity"], sort=False).size().to_string())


def _rates(table: pd.DataFrame) -> None:
    keys = ["epsilon", "varied", "method", "N", "T"]
    figures = table.groupby(keys)[["squared_hellinger", "at_knots"]]
    print(figures.agg(["mean", "sem"]).to_string(float_format="{:.2e}".format))
    print("\nslopes in logarithms, with standard errors over seeds")
    slopes = pd.concat(map(_slope, _lines(table)), axis=1).T.infer_objects()
    print(slopes.round(2).to_string(index=False))


def _lines(table: pd.DataFrame) -> list[tuple[pd.Series, pd.DataFrame]]:
    """Return what is held fixed, and the rows of each line of the picture."""
    lines = []
    for varied, fixed in (("N", "T"), ("T", "N")):
        part = table[table["varied"] == varied]
        for keys, line in part.groupby(["epsilon", fixed, "method"], sort=False):
            names = pd.Series(keys, index=["epsilon", "fixed", "method"])
            lines.append((pd.concat([pd.Series({"varied": varied}), names]), line))
    return lines


def _slope(named_line: tuple[pd.Series, pd.DataFrame]) -> pd.Series:
    """Return the slope of a line: of each seed by itself, then mean and standard error."""
    names, line = named_line
    varied = names["varied"]
    slopes = [
        np.polyfit(np.log(run[varied]), np.log(run["squared_hellinger"]), 1)[0]
        for _, run in line.groupby("seed")
    ]
    error = np.std(slopes, ddof=1) / len(slopes) ** 0.5
    return pd.concat([names, pd.Series({"slope": np.mean(slopes), "error": error})])


def _time(table: pd.DataFrame) -> None:
    figures = table.groupby(["d", "method"])["seconds"]
    print(figures.agg(["median", "max"]).round(1).to_string())


def _settings(table: pd.DataFrame) -> None:
    keys = ["bandwidth", "regularization", "diffusivity"]
    print(table.groupby(keys)[["w2", "squared_w2"]].agg(["mean", "sem"]).round(4).to_string())


def _dynamics(table: pd.DataFrame) -> None:
    columns = ["at_times", "between", "paths"]
    table[columns] *= 1000
    table["changing"] *= 100
    figures = table.groupby(["data", "plans", "tables"], sort=False)
    print("squared W2 x 1000 and changes in %, means and standard errors over seeds")
    print(figures[[*columns, "changing", "seconds"]].agg(["mean", "sem"]).round(2).to_string())


def _paper(table: pd.DataFrame) -> None:
    for experiment, part in table.groupby("experiment", sort=False):
        print(f"\n{experiment}")
        figures = part.drop(columns=["experiment", "seed"]).dropna(axis=1, how="all")
        names = [name for name in ("digit", "setting") if name in figures]
        print(figures.groupby(names, sort=False).agg(["mean", "sem"]).round(4).to_string())


SUMMARIES = {
    "dynamics": _dynamics,
    "strokes": _digits,
    "pendigits": _digits,
    "branching": _branching,
    "rates": _rates,
    "time": _time,
    "coverage": _coverage,
    "selection": _selection,
    "paper": _paper,
    "settings": _settings,
}
