"""Draw the picture of the first page from the measured figures of Table 1.

``python doc/front_picture.py`` reads ``table1.csv`` and ``images/table1.png``, both written by
``examples/benchmarks/bench_table1.py``, and writes ``images/front.png``.
"""

from pathlib import Path

import matplotlib.pyplot as plt
import numpy as np
import pandas as pd

HERE = Path(__file__).parent
OURS, PAPER, GREY = "#0072B2", "#D55E00", "#5f6b70"
EPSILONS = [0.2, 1.0, 5.0, 10.0]
# A name, where it stands, and how the line is drawn.
METHODS = {
    "sketch flow": ("skdpot: one private sketch", (0.2, 10.6), OURS, "o", "-"),
    "DPSWflow-r": ("noise on every row (DPSWflow-r)", (0.2, 41), PAPER, "s", "-"),
    "DPSWflow": ("noise on every row (DPSWflow)", (0.2, 142), PAPER, "^", "--"),
}
# Where the samples lie in the mosaic: the first pixel of a column and of a row, and their sizes.
COLUMNS, ROWS, WIDTH, HEIGHT = {1.0: 770}, {"DPSWflow-r": 773, "sketch flow": 1082}, 199, 137
REAL = (148, 22)


def main() -> None:
    """Write the picture."""
    table = pd.read_csv(HERE / "table1.csv").set_index(["column", "method"])["frechet"]
    mosaic = plt.imread(HERE / "images" / "table1.png")
    plt.rcParams |= {"font.size": 11, "axes.spines.top": False, "axes.spines.right": False}
    figure = plt.figure(figsize=(12.6, 3.5), layout="constrained")
    strips = figure.add_gridspec(1, 4, width_ratios=[1, 1, 1, 1.35], wspace=0.05)
    samples = [
        (REAL, "real images", "black"),
        ((COLUMNS[1.0], ROWS["sketch flow"]), "skdpot, ε = 1", OURS),
        ((COLUMNS[1.0], ROWS["DPSWflow-r"]), "DPSWflow-r, ε = 1", PAPER),
    ]
    for number, ((left, top), name, colour) in enumerate(samples):
        ax = figure.add_subplot(strips[number])
        ax.imshow(mosaic[top : top + HEIGHT, left : left + WIDTH], interpolation="lanczos")
        ax.set_title(name, color=colour, fontsize=13, pad=10)
        ax.axis("off")
    draw_distances(figure.add_subplot(strips[3]), table)
    figure.savefig(HERE / "images" / "front.png", dpi=110, facecolor="white")


def draw_distances(ax: plt.Axes, table: pd.Series) -> None:
    """Draw Fréchet distance against ε, with what no method can beat and what needs no data."""
    for method, (label, place, colour, marker, style) in METHODS.items():
        values = [table[f"epsilon={epsilon:g}", method] for epsilon in EPSILONS]
        ax.plot(EPSILONS, values, style, color=colour, marker=marker, lw=2)
        ax.text(*place, label, color=colour, fontsize=10.5)
    floor = table["epsilon=inf", "decoded codes"]
    guess = table["epsilon=inf", "uniform codes"]
    ax.axhline(floor, color=GREY, lw=1, ls=":")
    ax.axhline(guess, color=GREY, lw=1, ls=":")
    ax.text(10.5, floor * 0.93, "decoded real images", color=GREY, ha="right", va="top", fontsize=9)
    ax.text(10.5, guess * 0.95, "images from no data", color=GREY, ha="right", va="top", fontsize=9)
    ax.set(xscale="log", yscale="log", xlabel="ε (smaller is more private)", ylim=(2.2, 230))
    ax.set_xticks(EPSILONS, [f"{epsilon:g}" for epsilon in EPSILONS])
    ax.set_xticks([], minor=True)
    ticks = np.array([3, 10, 30, 100])
    ax.set_yticks(ticks, [str(tick) for tick in ticks])
    ax.set_yticks([], minor=True)
    ax.set_title("Fréchet distance to the real images", fontsize=13, pad=10)


if __name__ == "__main__":
    main()
