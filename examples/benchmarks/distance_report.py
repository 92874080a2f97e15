"""The pictures of ``bench_distance.py``, from its tables."""

from __future__ import annotations

from pathlib import Path

import matplotlib.pyplot as plt
import numpy as np
import pandas as pd

__all__ = ["write_report"]

BLUE, RED, GREEN, GREY = "#0072B2", "#D55E00", "#009E73", "#666666"
MARKERS = {0.1: "o", 0.5: "s", 0.9: "^"}


def write_report(folder: Path) -> None:
    """Draw a picture of every table that is there."""
    for part, draw in {"table1": _trade_off, "detection": _detection}.items():
        path = folder / f"{part}.csv"
        if path.exists():
            figure = draw(pd.read_csv(path))
            figure.savefig(folder / f"distance_{part}.png", dpi=130)
            plt.close(figure)


def _trade_off(table: pd.DataFrame) -> plt.Figure:
    """Draw the error of the distance against what the messages seem to hide."""
    clean = table[(table["n_noisy"] == 0)].copy()
    clean["error"] = 100 * (clean["distance"] / clean["truth"] - 1)
    sizes = sorted(clean["n_rows"].unique())
    figure, axes = plt.subplots(
        1, len(sizes), figsize=(4.2 * len(sizes), 4.2), sharey=True, layout="constrained"
    )
    for ax, n_rows in zip(np.atleast_1d(axes), sizes, strict=True):
        part = clean[clean["n_rows"] == n_rows]
        triangle = part[part["method"] == "TriangleWad"]
        for t, marker in MARKERS.items():
            rows = (
                triangle[np.isclose(triangle["t"], t)]
                .groupby("gamma_scale")
                .mean(numeric_only=True)
            )
            ax.plot(
                rows["naive_rmse"], rows["error"], marker=marker, color=BLUE, label=f"t = {t}", lw=1
            )
        for name, style in (("FedWad, drawn t", ":"), ("FedWad, t = 0.5", "--")):
            error = part.loc[part["method"] == name, "error"].mean()
            ax.axhline(error, color=GREY, ls=style, lw=1.2, label=name)
        found = triangle["rows_found"].min()
        worst = triangle["rmse"].max()
        ax.set_title(
            f"n = {n_rows}: {found:.0%} of the rows recovered\nat every point (RMSE ≤ {worst:.0e})",
            fontsize="medium",
        )
        ax.set_xscale("log")
        ax.set_xlabel("error of a naive reading of the message")
        ax.grid(alpha=0.25)
    axes = np.atleast_1d(axes)
    axes[0].set_ylabel("error of the distance (%)")
    axes[0].legend(title="TriangleWad, scale .001 to 5", fontsize="small", title_fontsize="small")
    figure.suptitle(
        "TriangleWad on MNIST: the more a message seems to hide, the worse the distance"
    )
    return figure


def _detection(table: pd.DataFrame) -> plt.Figure:
    """Draw how many noisy rows are found against how many are inspected."""
    names = list(table["data"].unique())
    figure, axes = plt.subplots(
        1, len(names), figsize=(5.2 * len(names), 4.4), sharey=True, layout="constrained"
    )
    colors = dict(
        zip(
            table["method"].unique(),
            (BLUE, "#56B4E9", GREY, GREEN, "#8fd0bb", RED, "#E69F00"),
            strict=False,
        )
    )
    for ax, name in zip(np.atleast_1d(axes), names, strict=True):
        part = table[table["data"] == name]
        ax.plot([0, 0.15, 1], [0, 1, 1], color="black", lw=1, ls=":", label="best possible")
        for method, color in colors.items():
            curve = part[part["method"] == method].groupby("inspected")["found"].mean()
            curve = pd.concat([pd.Series({0.0: 0.0}), curve])
            ax.plot(curve.index, curve, color=color, label=method)
        ax.set_title(name)
        ax.set_xlabel("share of rows inspected")
        ax.grid(alpha=0.25)
    np.atleast_1d(axes)[0].set_ylabel("share of noisy rows found")
    np.atleast_1d(axes)[-1].legend(fontsize="small", loc="lower right")
    return figure
