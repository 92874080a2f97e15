"""Draw the pictures of the page on the architecture.

``python doc/architecture_picture.py`` reads the layers from ``pyproject.toml`` and writes
``images/architecture.png``, and ``images/private_row.png``, the walk of one private row.
"""

import tomllib
from pathlib import Path

import matplotlib.pyplot as plt
from matplotlib.patches import FancyBboxPatch

HERE = Path(__file__).parent
OURS, ORANGE, GREY, PALE = "#0072B2", "#D55E00", "#5f6b70", "#f3f5f6"
PACKAGES = {
    "cli": "the program skdpot",
    "audit": "attacks on fits and messages, and the privacy report",
    "preprocessing": "public names of encoders, scalers and columns",
    "estimators": "the public classes: validate, call a mechanism, store, sample",
    "mechanisms": "one class per mechanism: plan, charge, release",
    "federated": "parties,\nmessages, protocols",
    "nets": "training of networks",
    "tables": "columns, schemas,\nmodels of tables",
    "trajectories": "times and paths",
    "metrics": "distances, fairness, displays",
    "datasets": "generated data",
    "release": "counts, sums and projections of private rows, with noise; the gate released()",
    "ot": "optimal transport without privacy:\nprojections, plans, flows",
    "privacy": "events, accounting, calibration,\nbudgets, noise on a lattice",
    "_utils": "validation, random streams, records in files",
    "exceptions": "errors and warnings",
}
# The steps of DPSlicedFlowSampler(...).fit(X).sample(n): what happens, where, and until when it is
# private.
STEPS = [
    ("validate", "_utils/validation.py", True),
    ("plan the noise\n(public facts)", "release/histogram.py\nprivacy/accounting.py", True),
    ("charge", "privacy/spent.py\nprivacy/ledger.py", True),
    ("draw the noise", "privacy/noise.py", True),
    ("clip, project,\nadd counts", "release/bounds.py\nrelease/histogram.py", True),
    ("gate", "release/release.py", False),
    ("decode", "release/decoding.py", False),
    ("particle flow", "ot/flow.py\not/slices.py", False),
    ("sample", "estimators/\nflow_sampler.py", False),
]


def box(ax: plt.Axes, left: float, bottom: float, width: float, height: float, edge: str) -> None:
    """Draw a box with round corners."""
    style = "round,pad=0,rounding_size=0.08"
    patch = FancyBboxPatch(
        (left, bottom), width, height, boxstyle=style, facecolor=PALE, edgecolor=edge, lw=1.4
    )
    ax.add_patch(patch)


def blank(width: float, height: float) -> tuple[plt.Figure, plt.Axes]:
    """Return a figure with axes in inches and nothing else."""
    figure = plt.figure(figsize=(width, height))
    ax = figure.add_axes((0, 0, 1, 1))
    ax.set(xlim=(0, width), ylim=(0, height))
    ax.axis("off")
    return figure, ax


def draw_layers(layers: list[list[str]]) -> None:
    """Draw the packages, the users' side above."""
    width, gap, margin = 9.6, 0.12, 0.55
    heights = [0.42 if len(names) == 1 else 0.72 for names in layers]
    figure, ax = blank(width, sum(heights) + gap * (len(layers) - 1) + 0.2)
    top = ax.get_ylim()[1] - 0.1
    arrow = {"arrowstyle": "-|>", "color": GREY, "lw": 1.6}
    ax.annotate("", (0.34, 0.1), (0.34, top), arrowprops=arrow)
    ax.text(0.15, top / 2, "imports", color=GREY, fontsize=10.5, rotation=90, va="center")
    for names, height in zip(layers, heights, strict=True):
        bottom, each = top - height, (width - margin - 0.1 - gap * (len(names) - 1)) / len(names)
        for place, name in enumerate(names):
            left, middle = margin + place * (each + gap), bottom + height / 2
            colour = ORANGE if name == "release" else OURS
            box(ax, left, bottom, each, height, ORANGE if name == "release" else GREY)
            if len(names) == 1:
                ax.text(left + 0.15, middle, name, color=colour, fontsize=12, va="center")
                ax.text(left + 1.6, middle, PACKAGES[name], fontsize=10.5, va="center")
            else:
                ax.text(left + 0.13, top - 0.17, name, color=colour, fontsize=12, va="center")
                ax.text(left + 0.13, top - 0.31, PACKAGES[name], fontsize=9.5, va="top")
        top = bottom - gap
    save(figure, "architecture")


def draw_walk() -> None:
    """Draw the steps of a fit: private ones above, what follows from a release below."""
    width, side, height, gap = 9.6, 1.62, 0.66, 0.33
    figure, ax = blank(width, 3.1)
    arrow = {"arrowstyle": "-|>", "color": GREY, "lw": 1.4, "shrinkA": 0, "shrinkB": 0}
    before = [step for step in STEPS if step[2]]
    for number, (what, where, is_private) in enumerate(STEPS):
        # To the right, then below from the right to the left.
        column = number if is_private else 2 * len(before) - 1 - number
        left, bottom = 0.1 + column * (side + gap), 2.1 if is_private else 0.55
        middle, high = left + side / 2, bottom + height / 2
        box(ax, left, bottom, side, height, ORANGE if is_private else OURS)
        ax.text(middle, high, what, ha="center", va="center", fontsize=10.5)
        ax.text(middle, bottom - 0.06, where, ha="center", va="top", fontsize=9, color=GREY)
        if number == len(before):
            ax.annotate("", (middle, bottom + height), (middle, 1.66), arrowprops=arrow)
        elif number:
            start = left - gap if is_private else left + side + gap
            end = left if is_private else left + side
            ax.annotate("", (end, high), (start, high), arrowprops=arrow)
    ax.plot([0.1, width - 0.1], [1.48, 1.48], color=GREY, ls=":", lw=1.2)
    ax.text(0.1, 2.9, "The row is private.", color=ORANGE, fontsize=11, va="center")
    ax.text(0.1, 0.95, "The rest is", color=OURS, fontsize=11, va="center")
    ax.text(0.1, 0.73, "post-processing.", color=OURS, fontsize=11, va="center")
    save(figure, "private_row")


def save(figure: plt.Figure, name: str) -> None:
    """Write a picture and close it."""
    figure.savefig(HERE / "images" / f"{name}.png", dpi=110, facecolor="white")
    plt.close(figure)


if __name__ == "__main__":
    project = tomllib.loads((HERE.parent / "pyproject.toml").read_text(encoding="utf-8"))
    contract = project["tool"]["importlinter"]["contracts"][0]
    draw_layers([[name.strip() for name in layer.split("|")] for layer in contract["layers"]])
    draw_walk()
