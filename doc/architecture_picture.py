"""Draw the pictures of the page on the architecture.

``python doc/architecture_picture.py`` reads layers and wings from ``pyproject.toml`` and writes
``images/architecture.png``, and ``images/private_row.png``, the walk of one private row.
"""

import tomllib
from pathlib import Path

import matplotlib.pyplot as plt
from matplotlib.patches import FancyBboxPatch

HERE = Path(__file__).parent
PACKAGE = HERE.parent / "skdpot"
OURS, ORANGE, GREY, PALE = "#0072B2", "#D55E00", "#5f6b70", "#f3f5f6"
WIDTH, MARGIN, GAP = 5.6, 0.42, 0.08  # inches; so narrow that a telephone shows it readably
CONTENTS = {
    "cli": "the program skdpot and its page",
    "audit": "attacks on fits and messages, privacy report",
    "distance": "distances between\nparties, messages",
    "fair": "fair predictors, rules,\nbarycentres, rates",
    "sampling": "flow, generator,\nautoencoder",
    "search": "private search,\nfolds of persons",
    "tables": "synthetic tables,\ncolumns, schemas",
    "trajectories": "paths of a\npopulation",
    "base": "what a mechanism is; the terms of a fit; samplers",
    "nets": "training on noisy gradients",
    "release": "what reads rows and adds noise: sketch,\nmoments, bounds; the gate pass_gate()",
    "ot": "optimal transport\nwithout privacy",
    "privacy": "events, accounts,\nbudgets, noise",
    "sources": "exact counts of\nfiles and clusters",
    "_utils": "validation, random streams, records in files",
    "exceptions": "errors and warnings",
}
HIDDEN = {"__about__"}  # holds the version
# The steps of DPSlicedFlowSampler(...).fit(X).sample(n): what happens, where, and until when it is
# private.
STEPS = [
    ("validate", "sampling/synthetic_rows.py", True),
    ("plan the noise", "sampling/sketch.py, release/sketch_plan.py", True),
    ("charge", "base.py, privacy/charges.py", True),
    ("draw the noise", "release/histogram.py, privacy/noise.py", True),
    ("clip, project, add counts", "release/bounds.py, release/projection_counts.py", True),
    ("pass the gate", "release/gate.py", False),
    ("decode", "release/decoding.py", False),
    ("particle flow", "sampling/flow_sampler.py, ot/flow.py", False),
    ("sample", "sampling/flow_sampler.py", False),
]


def box(ax: plt.Axes, left: float, bottom: float, width: float, height: float, edge: str) -> None:
    """Draw a box with round corners."""
    style = "round,pad=0,rounding_size=0.06"
    patch = FancyBboxPatch(
        (left, bottom), width, height, boxstyle=style, facecolor=PALE, edgecolor=edge, lw=1.2
    )
    ax.add_patch(patch)


def blank(height: float) -> tuple[plt.Figure, plt.Axes]:
    """Return a figure with axes in inches and nothing else."""
    figure = plt.figure(figsize=(WIDTH, height))
    ax = figure.add_axes((0, 0, 1, 1))
    ax.set(xlim=(0, WIDTH), ylim=(0, height))
    ax.axis("off")
    return figure, ax


def bands(layers: list[list[str]], wings: set[str]) -> list[tuple[str, list[list[str]]]]:
    """Return titles and the rows of packages below them, at most three in a row."""
    place = next(k for k, names in enumerate(layers) if set(names) == wings)
    doors = {name for name in layers[place - 1] if (PACKAGE / f"{name}.py").exists()}
    wide = [layers[place][k : k + 3] for k in range(0, len(wings), 3)]
    return [
        ("on top: may use everything below", layers[: place - bool(doors)]),
        ("doors: only name what users import", [sorted(doors)]),
        ("wings: one task each, and none imports another", wide),
        ("core: knows no task", layers[place + 1 :]),
    ]


def draw_layers(layers: list[list[str]], wings: set[str]) -> None:
    """Draw the packages, the users' side above."""
    titled = bands(layers, wings)
    heights = {1: 0.4, 2: 0.4, 3: 0.72, 6: 0.56}
    rows = [row for _, rows in titled for row in rows]
    height = sum(heights[len(row)] + GAP for row in rows) + 0.28 * len(titled) + 0.12
    figure, ax = blank(height)
    arrow = {"arrowstyle": "-|>", "color": GREY, "lw": 1.4}
    ax.annotate("", (0.28, 0.08), (0.28, height - 0.08), arrowprops=arrow)
    ax.text(0.04, height / 2, "imports", color=GREY, fontsize=10, rotation=90, va="center")
    top = height - 0.06
    for title, of_title in titled:
        ax.text(MARGIN, top - 0.13, title, color=GREY, fontsize=10, va="center")
        top -= 0.26
        for names in of_title:
            draw_row(ax, names, top, heights[len(names)])
            top -= heights[len(names)] + GAP
        top -= 0.02
    save(figure, "architecture")


def draw_row(ax: plt.Axes, names: list[str], top: float, height: float) -> None:
    """Draw packages side by side; of many, in one box, the names alone."""
    whole = WIDTH - MARGIN - 0.08
    middle = top - height / 2
    if len(names) > 3:
        box(ax, MARGIN, top - height, whole, height, GREY)
        half = (len(names) + 1) // 2
        text = "\n".join("   ".join(names[k : k + half]) for k in (0, half))
        ax.text(MARGIN + 0.1, middle, text, color=OURS, fontsize=10.5, va="center", linespacing=1.4)
        return
    each = (whole - GAP * (len(names) - 1)) / len(names)
    for place, name in enumerate(names):
        left, colour = MARGIN + place * (each + GAP), ORANGE if name == "release" else OURS
        box(ax, left, top - height, each, height, ORANGE if name == "release" else GREY)
        if len(names) == 1:
            ax.text(left + 0.1, middle, name, color=colour, fontsize=10.5, va="center")
            ax.text(left + 1.05, middle, CONTENTS[name], fontsize=9.5, va="center")
        else:
            ax.text(left + 0.1, top - 0.15, name, color=colour, fontsize=10.5, va="center")
            ax.text(left + 0.1, top - 0.28, CONTENTS[name], fontsize=9.5, va="top")


def draw_walk() -> None:
    """Draw the steps of a fit: private ones above, what follows from a release below."""
    height, each = 0.3 + 0.42 * len(STEPS) + 0.55, 0.42
    figure, ax = blank(height)
    top, width = height - 0.32, 2.0
    ax.text(0.08, height - 0.15, "The row is private.", color=ORANGE, fontsize=10.5, va="center")
    for number, (what, where, is_private) in enumerate(STEPS):
        if not is_private and STEPS[number - 1][2]:
            ax.plot([0.08, WIDTH - 0.08], [top - 0.06, top - 0.06], color=GREY, ls=":", lw=1.2)
            text = "The rest is computed from the release."
            ax.text(0.08, top - 0.25, text, color=OURS, fontsize=10.5, va="center")
            top -= 0.42
        middle = top - 0.17
        box(ax, 0.08, top - 0.34, width, 0.34, ORANGE if is_private else OURS)
        ax.text(0.08 + width / 2, middle, what, ha="center", va="center", fontsize=10.5)
        ax.text(0.2 + width, middle, where, va="center", fontsize=9.5, color=GREY)
        top -= each
    save(figure, "private_row")


def save(figure: plt.Figure, name: str) -> None:
    """Write a picture and close it."""
    figure.savefig(HERE / "images" / f"{name}.png", dpi=150, facecolor="white")
    plt.close(figure)


if __name__ == "__main__":
    project = tomllib.loads((HERE.parent / "pyproject.toml").read_text(encoding="utf-8"))
    contracts = {one["type"]: one for one in reversed(project["tool"]["importlinter"]["contracts"])}
    layers = [
        [name for name in map(str.strip, layer.split("|")) if name not in HIDDEN]
        for layer in contracts["layers"]["layers"]
    ]
    wings = {name.removeprefix("skdpot.") for name in contracts["independence"]["modules"]}
    draw_layers(layers, wings)
    draw_walk()
