"""Draw what to expect of n rows and ε from the tables of the benchmarks.

``python doc/how_good_picture.py`` reads ``table_runs.csv``, ``table_laws.csv``, ``fair.csv`` and
``table1.csv`` and the tables of ``sketch_shape.rst`` and ``synthetic_images.rst``, and writes
``images/how_good_signal.png`` and ``images/how_good_tasks.png``.
"""

import re
from pathlib import Path

import matplotlib.pyplot as plt
import numpy as np
import pandas as pd

HERE = Path(__file__).parent
EPSILONS = {0.2: "C3", 1.0: "C0", 3.0: "C2", 10.0: "C4"}
MARKERS = {0.2: "v", 1.0: "o", 3.0: "s", 10.0: "D"}


def sketch_errors() -> pd.DataFrame:
    """Return signal and error of each case of the table in ``sketch_shape.rst``."""
    text = (HERE / "sketch_shape.rst").read_text(encoding="utf-8")
    table = text[text.index("eps   n mu/C  best") :]
    line = re.compile(
        r"^   (.*n=\d+) +([\d.]+) +(\d+) +\d+ x +\d+ +[\d.]+ +\d+ x +\d+ +([\d.]+)", re.M
    )
    rows = pd.DataFrame(line.findall(table), columns=["data", "epsilon", "signal", "error"])
    return rows.astype({"signal": float, "error": float})


def draw_signal() -> None:
    """Draw the error of synthetic rows against the signal."""
    errors = sketch_errors()
    figure, ax = plt.subplots(figsize=(6.2, 4.2))
    names = {
        "digits": "digits, 16 numbers",
        "the same": "digits, 16 numbers, ten classes",
        "MNIST 8": "MNIST, 8 numbers",
        "MNIST 16": "MNIST, 16 numbers",
    }
    for k, (start, label) in enumerate(names.items()):
        rows = errors[errors.data.str.startswith(start)].sort_values("signal")
        ax.plot(rows.signal, rows.error, "os^D"[k], color=f"C{k}", label=label, alpha=0.85)
    ax.axvspan(2, 25, color="C1", alpha=0.1, lw=0)
    ax.axvspan(25, 250, color="C4", alpha=0.1, lw=0)
    for place, word in ((7, "mostly noise"), (79, "rough shape"), (2800, "close to the rows")):
        ax.text(place, 1.15, word, ha="center", color="0.35")
    ax.set(xscale="log", yscale="log", xlim=(2, 40_000), ylim=(0.009, 1.6))
    ax.set(xlabel="signal: rows per class × μ", ylabel="SW2 to other real rows / radius")
    for axis, ticks in ((ax.xaxis, (3, 30, 300, 3000, 30_000)), (ax.yaxis, (0.01, 0.03, 0.1, 0.3))):
        axis.set_ticks(ticks, [f"{tick:,g}" for tick in ticks])
        axis.set_ticks([], minor=True)
    ax.set_title("One number tells most: rows per class times μ")
    ax.legend(loc="lower left")
    figure.savefig(HERE / "images" / "how_good_signal.png")
    plt.close(figure)


def accuracy_at_impact(rows: pd.DataFrame, impact: float = 0.8) -> float:
    """Return the accuracy where the line through the settings has this disparate impact."""
    rows = rows.sort_values("disparate_impact")
    return float(np.interp(impact, rows.disparate_impact, rows.accuracy))


def differences() -> list[tuple[str, float, float]]:
    """Return task, ε, and how many points the score is above that without privacy."""
    found = []
    runs = pd.read_csv(HERE / "table_runs.csv")
    real = runs.loc[runs.method == "real data", "auc"].item()
    for epsilon, rows in runs[runs.method == "skdpot"].groupby("epsilon"):
        found.append(("table, 26,000 × 14 (Adult)", epsilon, rows.auc.mean() - real))
    laws = pd.read_csv(HERE / "table_laws.csv", thousands=",")
    laws["table"] = laws["table"].ffill()
    for name in dict.fromkeys(laws["table"]):
        rows = laws[laws["table"] == name].set_index("made by")["AUC"].astype(float)
        law, _, size = name.partition(", ")
        ours = rows.get("skdpot, rules", rows["skdpot"])
        found.append((f"table, {size} ({law})", 1.0, ours - rows["private rows"]))
    fair = pd.read_csv(HERE / "fair.csv").query("not sees_group and data in ('adult', 'compas')")
    for data, title in (("adult", "23,000 (Adult)"), ("compas", "4,300 (COMPAS)")):
        rows = fair[fair.data == data]
        best = accuracy_at_impact(rows[rows.method == "ExponentiatedGradient"])
        for epsilon in (1.0, 3.0):
            ours = rows[(rows.method == "ours, bayes") & (rows.epsilon == epsilon)]
            found.append((f"fair decisions, {title}", epsilon, accuracy_at_impact(ours) - best))
    text = (HERE / "synthetic_images.rst").read_text(encoding="utf-8")
    cells = re.search(r"^convolutional +(\.\d+) +(\.\d+) +(\.\d+)", text, re.M)
    real = float(re.search(r"classifiers reach .*?and (\.\d+)\.", text)[1])
    for epsilon, cell in zip((0.2, 1.0, 10.0), cells.groups(), strict=True):
        found.append(("images, 60,000, none public (MNIST)", epsilon, float(cell) - real))
    return found


def draw_tasks() -> None:
    """Draw how far scores are below those of real rows."""
    rows = pd.DataFrame(differences(), columns=["task", "epsilon", "points"])
    tasks = list(dict.fromkeys(rows.task))[::-1]
    figure, ax = plt.subplots(figsize=(6.4, 5.4))
    ax.axvline(0, color="0.5", lw=1.2, ls=":")
    for epsilon, points in rows.groupby("epsilon"):
        style = {"color": EPSILONS[epsilon], "marker": MARKERS[epsilon], "ls": "", "ms": 7}
        places = [tasks.index(task) for task in points.task]
        ax.plot(100 * points.points, places, label=f"ε = {epsilon:g}", **style)
    ax.set_yticks(range(len(tasks)), tasks)
    ax.grid(axis="y")
    ax.set(xlim=(-16, 2), xlabel="points of AUC or accuracy")
    least = rows[rows.epsilon == 1].points.min()
    title = f"At ε = 1 nothing is more than {-100 * least:.1f} points below real rows"
    figure.suptitle(title, x=0.01, ha="left", fontsize=12.5)
    ax.legend(loc="upper left")
    figure.savefig(HERE / "images" / "how_good_tasks.png")
    plt.close(figure)


if __name__ == "__main__":
    plt.style.use("skdpot.pictures")
    draw_signal()
    draw_tasks()
