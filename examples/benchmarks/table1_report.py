"""Write the cells of Table 1 as CSV, as text and as a picture of samples."""

from __future__ import annotations

import json
from collections.abc import Sequence
from itertools import product
from pathlib import Path

import matplotlib.pyplot as plt
import numpy as np
import pandas as pd
from matplotlib.axes import Axes
from matplotlib.gridspec import SubplotSpec

N_COLUMNS = 6
REFERENCES = ("real images", "decoded codes", "uniform codes")


def write_report(paths: Sequence[Path], folder: Path) -> None:
    """
    Summarise the cells.

    Writes ``table1_cells.csv`` (a row a cell), ``table1.csv`` and ``table1.txt`` (means over
    seeds), ``table1_samples.png`` (the first seed's images, a block a cell) and ``table1.png`` (the
    same with titles) into `folder`, and prints the table.
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
    draw(table, pictures, folder)


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


def draw(table: pd.DataFrame, pictures: Sequence[np.ndarray], folder: Path) -> None:
    """Write samples of the first seed as raw pixels, a block a cell, and as a picture."""
    methods, columns = _cells(table)
    height, width = mosaic(pictures[0]).shape
    pixels = np.zeros((len(methods) * height, len(columns) * width), dtype=np.uint8)
    for (i, method), (j, column) in product(enumerate(methods), enumerate(columns)):
        cell = table[(table["method"] == method) & (table["column"] == column)]
        if len(cell):
            block = mosaic(pictures[cell.index[cell["seed"].argmin()]])
            pixels[i * height : (i + 1) * height, j * width : (j + 1) * width] = block
    plt.imsave(folder / "table1_samples.png", pixels, cmap="gray_r", vmin=0, vmax=255)
    draw_samples(summary(table), plt.imread(folder / "table1_samples.png"), folder / "table1.png")


def draw_samples(means: pd.DataFrame, pixels: np.ndarray, path: Path) -> None:
    """Draw images that use no private rows above those of each method at each ε."""
    plt.style.use("skdpot.pictures")
    methods, columns = _cells(means)
    height, width = len(pixels) // len(methods), pixels.shape[1] // len(columns)
    private = [name for name in methods if name not in REFERENCES]
    figure = plt.figure(figsize=(8.4, 8.6))
    grid = figure.add_gridspec(len(private) + 1, len(REFERENCES) * len(columns))

    def show(place: SubplotSpec, method: str, column: str, wide: bool = False) -> Axes:
        i, j = methods.index(method), columns.index(column)
        block = pixels[i * height : (i + 1) * height, j * width : (j + 1) * width]
        if wide:
            block = np.hstack(np.vsplit(block, 2))
        axes = figure.add_subplot(place, xticks=[], yticks=[], frame_on=False)
        axes.imshow(block, cmap="gray", vmin=0, vmax=1)
        return axes

    for k, method in enumerate(REFERENCES):
        place = grid[0, k * len(columns) : (k + 1) * len(columns)]
        show(place, method, columns[0], wide=True).set_title(method, loc="center")
    for i, method in enumerate(private, start=1):
        for j, column in enumerate(columns):
            place = grid[i, j * len(REFERENCES) : (j + 1) * len(REFERENCES)]
            axes = show(place, method, column)
            if i == 1:
                title = column.replace("epsilon=", "ε = ").replace("inf", "∞")
                axes.set_title(title, loc="center")
            if j == 0:
                color = "C0" if method.startswith("sketch") else "C1"
                axes.set_ylabel(method.replace(" ", "\n", 1), color=color)
    figure.suptitle("Digits of the sketches stay legible down to ε = 0.2", x=0.01, ha="left")
    figure.savefig(path)
    plt.close(figure)


def _cells(table: pd.DataFrame) -> tuple[list[str], list[str]]:
    """Return the rows and columns of the picture."""
    columns = [column for column in table["column"].unique() if column.startswith("epsilon")]
    return list(table["method"].unique()), columns


def mosaic(images: np.ndarray) -> np.ndarray:
    """Return (n, 28, 28) images as one picture, N_COLUMNS in a row."""
    n_rows = len(images) // N_COLUMNS
    kept = images[: n_rows * N_COLUMNS].reshape(n_rows, N_COLUMNS, *images.shape[1:])
    return np.concatenate(np.concatenate(kept, axis=1), axis=1)
