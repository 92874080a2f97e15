"""The panels of a picture of a flow: states in a plane, paths, and distances by step."""

from dataclasses import dataclass
from functools import cached_property
from textwrap import fill
from typing import Any

import numpy as np

from skdpot.metrics._panel_grid import is_leftmost, panel_grid
from skdpot.metrics._plane import in_plane
from skdpot.metrics._plotting import COLORS

__all__ = ["FlowPanels"]

_PANEL_SIZE = (2.7, 2.7)  # inches
_MOST_IN_A_ROW = 4
_WIDTH = 26  # characters of a label
_PALEST = 0.25  # of the colours of paths; what comes before can hardly be seen on white


@dataclass(frozen=True, eq=False)
class FlowPanels:
    """Panels that share limits and the colours of classes.

    The parameters are those of `FlowDisplay`.
    """

    particles: np.ndarray
    steps: np.ndarray
    labels: np.ndarray | None
    distances: np.ndarray | None
    classes: np.ndarray | None
    plane: np.ndarray | None
    names: list[str] | None
    public: np.ndarray | None

    def make_axes(self, ax: Any, n_states: int) -> np.ndarray:
        """Return one Axes a state, and one each for public rows and distances if there are any."""
        n_panels = n_states + (self.public is not None) + (self.distances is not None)
        n_columns = n_panels if n_panels <= _MOST_IN_A_ROW else -(-n_panels // 2)
        return panel_grid(ax, n_panels, n_columns, _PANEL_SIZE)

    def draw_points(self, ax: Any, step: int, style: dict[str, Any], *, title: bool) -> list[Any]:
        """Draw one state, class by class."""
        where = self._positions[self.steps.tolist().index(step)]
        drawn = []
        for k, (members, name) in enumerate(self._groups):
            shared = {"s": 5, "linewidths": 0, "color": COLORS[k], "label": name, "zorder": 2}
            drawn.append(ax.scatter(*where[members].T, **(shared | style)))
        if title:
            ax.set_title(_step_title(step), fontsize="medium")
        return drawn

    def draw_paths(self, ax: Any, max_paths: int) -> Any:
        """Draw the ways of particles, darker from step to step."""
        import matplotlib as mpl
        from matplotlib.collections import LineCollection

        n_particles = self._positions.shape[1]
        spaced = np.linspace(0, n_particles - 1, min(max_paths, n_particles)).round().astype(int)
        ways = self._positions[:, np.unique(spaced)].swapaxes(0, 1)
        pieces = np.stack([ways[:, :-1], ways[:, 1:]], axis=2).reshape(-1, 2, 2)
        shades = mpl.colormaps["Greys"](np.linspace(_PALEST, 0.9, 256))
        lines = LineCollection(
            list(pieces),
            array=np.tile(np.linspace(0, 1, len(self.steps) - 1), len(ways)),
            cmap=mpl.colors.ListedColormap(shades),
            linewidths=0.7,
            zorder=1,
        )
        ax.set_title(f"paths, {_step_title(self.steps[0])} to {self.steps[-1]}", fontsize="medium")
        return ax.add_collection(lines)

    def draw_public(self, ax: Any) -> Any:
        """Draw the public rows, all in one colour, for their classes are not known."""
        rows = in_plane(np.asarray(self.public), self._directions)
        ax.set_title("public rows", fontsize="medium")
        return ax.scatter(*rows.T, s=5, linewidths=0, color="0.4")

    def draw_distances(self, ax: Any) -> list[Any]:
        """Draw the distance to the sketch by step, a curve a class."""
        if self.distances is None:
            return []
        curves = []
        many = len(self.distances) > len(COLORS)
        for k, values in enumerate(self.distances):
            style = {"color": COLORS[0 if many else k], "marker": ".", "markersize": 4}
            (curve,) = ax.plot(self.steps, values, linewidth=1, **style)
            curves.append(curve)
        ax.set_xscale("symlog", linthresh=1)
        ax.set(xlim=(0, None), ylim=(0, None), xlabel="step")
        ax.set_title("SW₂ to the sketch", fontsize="medium")
        ax.xaxis.set_major_formatter(lambda value, _: f"{value:g}")
        return curves

    def label(self, axes: np.ndarray) -> None:
        """Set common limits and the names of the axes."""
        lower, upper = self._limits
        names = self.names or ["first direction", "second direction"]
        vertical = names[1] if len(names) > 1 else "share of particles below"
        for ax in axes:
            ax.set(xlim=(lower[0], upper[0]), ylim=(lower[1], upper[1]))
            ax.set_xlabel(fill(names[0], _WIDTH))
            if is_leftmost(ax):
                ax.set_ylabel(fill(vertical, _WIDTH))
            else:
                ax.tick_params(labelleft=False)

    def add_legend(self, axes: np.ndarray, *, below: bool) -> None:
        """Name the classes, where there are several."""
        handles, texts = axes[0].get_legend_handles_labels()
        if len(texts) < 2:
            return
        # The dots of a scatter are too small to show their colour in a legend.
        options = {"markerscale": 3, "fontsize": "small"}
        if below:
            figure = axes[0].figure
            figure.legend(handles, texts, loc="outside lower center", ncols=len(texts), **options)
        else:
            axes[0].legend(handles, texts, **options)

    @cached_property
    def _directions(self) -> np.ndarray:
        n_features = self.particles.shape[2]
        return np.eye(n_features)[:2] if self.plane is None else self.plane

    @cached_property
    def _positions(self) -> np.ndarray:
        """Where particles are drawn, (n_states, n_particles, 2)."""
        return in_plane(self.particles, self._directions)

    @cached_property
    def _groups(self) -> list[tuple[np.ndarray, str]]:
        """Members and name of each class; all in one where colours would not do."""
        everybody = np.arange(self.particles.shape[1])
        names = [] if self.labels is None else np.unique(self.labels).tolist()
        if not 1 < len(names) <= len(COLORS):
            return [(everybody, "particles")]
        known = names if self.classes is None else self.classes.tolist()
        return [(np.flatnonzero(self.labels == name), str(name)) for name in known]

    @cached_property
    def _limits(self) -> tuple[np.ndarray, np.ndarray]:
        """The lower left and the upper right corner of all states, without lost particles."""
        flat = self._positions.reshape(-1, 2)
        if self.public is not None:
            flat = np.concatenate([flat, in_plane(self.public, self._directions)])
        lower, upper = np.quantile(flat, [0.001, 0.999], axis=0)
        margin = 0.06 * np.where(upper > lower, upper - lower, 1.0)
        return lower - margin, upper + margin


def _step_title(step: int) -> str:
    return "start" if step == 0 else "1 step" if step == 1 else f"{step} steps"
