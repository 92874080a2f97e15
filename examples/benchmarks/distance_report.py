"""The pictures of ``bench_distance.py``, from its tables."""

from __future__ import annotations

from pathlib import Path

import matplotlib.pyplot as plt
import numpy as np
import pandas as pd

__all__ = ["write_report"]

MARKERS = {0.1: "o", 0.5: "s", 0.9: "^"}
# Colour, line and name of the methods of the second picture, in the order of its legend.
FOUND = {
    "sketch, ε = 1": ("C0", "-", "skdpot: one sketch, ε = 1"),
    "FedWad (FedBary)": ("black", "--", "FedWad (FedBary), not private"),
    "TriangleWad, scale 1": ("C1", "--", "TriangleWad, not private"),
    "TriangleWad, scale 100, 20 points": ("C1", ":", "the same, γ of scale 100, 20 points"),
    "KNN-Shapley": ("C2", "-", "KNN-Shapley, sees all rows"),
    "leave one out": ("C3", "-", "leave one out, sees all rows"),
}


def write_report(folder: Path) -> None:
    """Draw a picture of every table that is there."""
    plt.style.use("skdpot.pictures")
    for part, draw in {"table1": _trade_off, "detection": _detection}.items():
        path = folder / f"{part}.csv"
        if path.exists():
            figure = draw(pd.read_csv(path))
            figure.savefig(folder / f"distance_{part}.png")
            plt.close(figure)


def _trade_off(table: pd.DataFrame) -> plt.Figure:
    """Draw the error of the distance against what the messages seem to hide, for most rows."""
    n_rows = table["n_rows"].max()
    part = table[(table["n_noisy"] == 0) & (table["n_rows"] == n_rows)].copy()
    part["error"] = 100 * (part["distance"] / part["truth"] - 1)
    triangle = part[part["method"] == "TriangleWad"]
    figure, ax = plt.subplots(figsize=(7, 4.2))
    for k, (t, marker) in enumerate(MARKERS.items()):
        rows = triangle[np.isclose(triangle["t"], t)].groupby("gamma_scale").mean(numeric_only=True)
        style = {"color": f"C{k}", "marker": marker, "label": f"TriangleWad, t = {t}"}
        ax.plot(rows["naive_rmse"], rows["error"], **style)
    for name, line in (("FedWad, drawn t", ":"), ("FedWad, t = 0.5", "--")):
        error = part.loc[part["method"] == name, "error"].mean()
        ax.axhline(error, color="0.35", ls=line, lw=1.5, label=name)
    found, worst = triangle["rows_found"].min(), triangle["rmse"].max()
    ax.set_title(
        f"{n_rows:,} images; at every point the attack finds {found:.0%} of them "
        f"(error ≤ {worst:.0e})",
        fontsize=10.5,
    )
    ax.set(xscale="log", xlabel="what the message seems to hide: error of a naive reading")
    ax.set_ylabel("error of the distance (%)")
    ax.grid()
    ax.legend(loc="center left")
    figure.suptitle("TriangleWad hides no row, and costs the distance", x=0.01, ha="left")
    return figure


def _detection(table: pd.DataFrame) -> plt.Figure:
    """Draw how many noisy rows are found against how many are inspected."""
    names = list(table["data"].unique())
    figure, axes = plt.subplots(
        1, len(names), figsize=(4.2 * len(names), 4.9), sharey=True, squeeze=False
    )
    for ax, name in zip(axes[0], names, strict=True):
        part = table[table["data"] == name]
        for method, (color, line, label) in reversed(FOUND.items()):
            curve = part[part["method"] == method].groupby("inspected")["found"].mean()
            curve = pd.concat([pd.Series({0.0: 0.0}), curve])
            ax.plot(curve.index, curve, color=color, ls=line, label=label)
        ax.set(title=name, xlabel="share of rows inspected")
        ax.grid()
    axes[0, 0].set_ylabel("share of noisy rows found")
    handles, labels = axes[0, 0].get_legend_handles_labels()
    figure.legend(handles[::-1], labels[::-1], loc="outside lower center", ncols=2)
    figure.suptitle(
        "A private sketch finds gross noise about as early as TriangleWad",
        x=0.01,
        ha="left",
    )
    return figure
