"""Draw the two pictures of the first page from the measured figures of Table 1.

``python doc/front_picture.py`` reads ``front.csv`` and ``front_samples.png``, which
``examples/benchmarks/bench_table1.py`` wrote (as ``table1.csv`` and ``table1_samples.png``; the
command is in ``experiments/flow_paper.rst``), and writes ``images/front.png`` (samples) and
``images/front_distance.png``. They stand side by side, and one above the other on a telephone.
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
    "DPSWflow-r": ("noise on every row (DPSWflow-r)", (0.2, 22), PAPER, "s", "-"),
    "DPSWflow": ("noise on every row (DPSWflow)", (0.2, 42), PAPER, "^", "--"),
}


def main() -> None:
    """Write the pictures."""
    plt.style.use("skdpot.pictures")
    table = pd.read_csv(HERE / "front.csv")
    draw_samples(table, plt.imread(HERE / "front_samples.png"))
    draw_distances(table.set_index(["column", "method"])["frechet"])


def save(figure: plt.Figure, name: str) -> None:
    """Write a picture and close it."""
    figure.savefig(HERE / "images" / f"{name}.png")
    plt.close(figure)


def draw_samples(table: pd.DataFrame, pixels: np.ndarray) -> None:
    """Draw real images and those of two methods at ε = 1."""
    methods = list(table["method"].unique())
    columns = [column for column in table["column"].unique() if column.startswith("epsilon")]
    height, width = len(pixels) // len(methods), pixels.shape[1] // len(columns)
    figure, axes = plt.subplots(3, 1, figsize=(5.4, 3.6))
    samples = [
        ("real images", "inf", "real images", "black"),
        ("sketch flow", "1", "skdpot: one private sketch", OURS),
        ("DPSWflow-r", "1", "noise on every row (DPSWflow-r)", PAPER),
    ]
    for ax, (method, epsilon, name, colour) in zip(axes, samples, strict=True):
        i, j = methods.index(method), columns.index(f"epsilon={epsilon}")
        block = pixels[i * height : (i + 1) * height, j * width : (j + 1) * width]
        ax.imshow(np.hstack(np.vsplit(block, 2)), cmap="gray", vmin=0, vmax=1)
        ax.set_title(name, color=colour, pad=3)
        ax.axis("off")
    figure.suptitle("At ε = 1 one private sketch draws digits", x=0.01, ha="left")
    save(figure, "front")


def draw_distances(table: pd.Series) -> None:
    """Draw Fréchet distance against ε, with what no method can beat and what needs no data."""
    figure, ax = plt.subplots(figsize=(5.4, 3.6))
    for method, (label, place, colour, marker, style) in METHODS.items():
        values = [table[f"epsilon={epsilon:g}", method] for epsilon in EPSILONS]
        ax.plot(EPSILONS, values, style, color=colour, marker=marker)
        ax.text(*place, label, color=colour)
    floor = table["epsilon=inf", "decoded codes"]
    guess = table["epsilon=inf", "uniform codes"]
    ax.axhline(floor, color=GREY, lw=1, ls=":")
    ax.axhline(guess, color=GREY, lw=1, ls=":")
    ax.text(10.5, floor * 0.93, "decoded real images", color=GREY, ha="right", va="top", fontsize=9)
    ax.text(10.5, guess * 0.95, "images from no data", color=GREY, ha="right", va="top", fontsize=9)
    ax.set(xscale="log", yscale="log", xlabel="ε (smaller is more private)", ylim=(2.2, 70))
    ax.set_xticks(EPSILONS, [f"{epsilon:g}" for epsilon in EPSILONS])
    ax.set_xticks([], minor=True)
    ticks = np.array([3, 10, 30, 100])
    ax.set_yticks(ticks, [str(tick) for tick in ticks])
    ax.set_yticks([], minor=True)
    ax.set_ylabel("Fréchet distance to real images")
    ratio = table["epsilon=1", "DPSWflow-r"] / table["epsilon=1", "sketch flow"]
    figure.suptitle(f"The sketch is {ratio:.0f} times closer at ε = 1", x=0.01, ha="left")
    save(figure, "front_distance")


if __name__ == "__main__":
    main()
