"""Write the cells of Table 1 as CSV, as text and as a picture of samples."""

from __future__ import annotations

import json
from collections.abc import Sequence
from pathlib import Path

import matplotlib.pyplot as plt
import numpy as np
import pandas as pd

N_COLUMNS = 6


def write_report(paths: Sequence[Path], folder: Path) -> None:
    """
    Summarise the cells.

    Writes ``table1_cells.csv`` (a row a cell), ``table1.csv`` and ``table1.txt`` (means over
    seeds) and ``table1.png`` (the first seed's samples) into `folder`, and prints the table.
    """
    if not paths:
        return
    table, pictures = read_cells(paths)
    table.to_csv(folder / "table1_cells.csv", index=False)
    means = summary(table)
    means.to_csv(folder / "table1.csv", index=False)
    text = to_text(means)
    (folder / "table1.txt").write_text(text + "\n", encoding="utf-8")
    print(text)
    draw(table, pictures, folder / "table1.png")


def read_cells(paths: Sequence[Path]) -> tuple[pd.DataFrame, list[np.ndarray]]:
    """Return a row and some images of each cell."""
    rows, pictures = [], []
    for path in paths:
        with np.load(path, allow_pickle=False) as cell:
            rows.append(json.loads(str(cell["row"])))
            pictures.append(cell["images"])
    return pd.DataFrame(rows), pictures


def summary(table: pd.DataFrame) -> pd.DataFrame:
    """Return means over seeds, and the range of the Fréchet distance, in the order of the cells."""
    groups = table.groupby(["column", "method"], sort=False)
    return groups.agg(
        frechet=("frechet", "mean"),
        frechet_min=("frechet", "min"),
        frechet_max=("frechet", "max"),
        accuracy=("accuracy", "mean"),
        epsilon_spent=("epsilon_spent", "max"),
        seconds=("seconds", "mean"),
        seeds=("seed", "count"),
    ).reset_index()


def to_text(means: pd.DataFrame) -> str:
    """Return a table for terminals and documents, a block a column of the paper's table."""
    header = (
        f"{'method':<20} {'FD':>7} {'min':>7} {'max':>7} {'accuracy':>9} {'ε spent':>9} {'s':>7}"
    )
    lines = []
    for column, block in means.groupby("column", sort=False):
        lines += [str(column), header]
        lines += [
            f"{row.method:<20} {row.frechet:>7.2f} {row.frechet_min:>7.2f} {row.frechet_max:>7.2f} "
            f"{row.accuracy:>9.3f} {row.epsilon_spent:>9.4g} {row.seconds:>7.1f}"
            for row in block.itertuples()
        ]
        lines.append("")
    return "\n".join(lines).rstrip()


def draw(table: pd.DataFrame, pictures: Sequence[np.ndarray], path: Path) -> None:
    """Draw samples of the first seed: a row a method, a column a column of the table."""
    methods, columns = table["method"].unique(), table["column"].unique()
    size = (1.9 * len(columns) + 1.2, 1.35 * len(methods) + 0.3)
    figure, axes = plt.subplots(
        len(methods), len(columns), figsize=size, squeeze=False, layout="constrained"
    )
    for axis in axes.flat:
        axis.set(xticks=[], yticks=[], frame_on=False)
    for i, method in enumerate(methods):
        axes[i, 0].set_ylabel(method, rotation=0, ha="right", va="center")
        for j, column in enumerate(columns):
            cell = table[(table["method"] == method) & (table["column"] == column)]
            if len(cell):
                first = cell.index[cell["seed"].argmin()]
                axes[i, j].imshow(mosaic(pictures[first]), cmap="gray_r", vmin=0, vmax=255)
                if np.isfinite(cell["epsilon_spent"].max()) and "sigma" in column:
                    axes[i, j].set_xlabel(f"ε = {cell['epsilon_spent'].max():.4g}", fontsize=8)
    for j, column in enumerate(columns):
        name, value = column.split("=")
        symbol = {"epsilon": "ε", "sigma": "paper's σ"}[name]
        axes[0, j].set_title(f"{symbol} = {value.replace('inf', '∞')}", fontsize=10)
    figure.savefig(path, dpi=110)
    plt.close(figure)


def mosaic(images: np.ndarray) -> np.ndarray:
    """Return (n, 28, 28) images as one picture, N_COLUMNS in a row."""
    n_rows = len(images) // N_COLUMNS
    kept = images[: n_rows * N_COLUMNS].reshape(n_rows, N_COLUMNS, *images.shape[1:])
    return np.concatenate(np.concatenate(kept, axis=1), axis=1)
