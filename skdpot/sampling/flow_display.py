"""A display of the flow of a sampler: particles after several steps, and their distances."""

from dataclasses import dataclass
from textwrap import fill
from typing import Any, Self

import numpy as np
from numpy.typing import ArrayLike

from skdpot._utils.finite import as_points
from skdpot._utils.panels import (
    COLORS,
    PanelDisplay,
    check_choice,
    draw_ways,
    feature_labels,
    feature_numbers,
    label_panel,
    shades,
    widened,
)
from skdpot._utils.parameters import check_is_fitted
from skdpot._utils.streams import solver_generator
from skdpot.ot.directions import orthogonal_directions
from skdpot.release.sketch_display import direction_name

_N_PANELS = 4  # states, by default
_PANEL_SIZE = (2.7, 2.7)  # inches
_MOST_IN_A_ROW = 4
_WIDTH = 26  # characters of a label
_PALEST = 0.25  # of the colours of paths; lighter ones are hard to see on white
_DOTS = {"s": 5, "linewidths": 0}
_CURVE = {"marker": ".", "markersize": 4, "linewidth": 1}


@dataclass(kw_only=True, eq=False, repr=False)
class FlowDisplay(PanelDisplay):
    """Particles of a flow at several steps, and their distances to the sketch.

    Create one with `from_estimator` or `from_trace`. Parameters are stored as attributes.

    Parameters
    ----------
    particles : ndarray of shape (n_states, n_particles, n_features)
        Positions; each row is the same particle in all states.
    steps : ndarray of shape (n_states,)
        Number of steps before each state, increasing.
    labels : ndarray of shape (n_particles,), optional
        Class of each particle.
    distances, classes : ndarray of shape (n_classes, n_states), (n_classes,), optional
        Sliced Wasserstein-2 distance to the sketch per class, and the names of the classes.
    plane, names : ndarray of shape (1 or 2, n_features), sequence of str, optional
        Directions to draw, by default the first two axes, and their names.
    public : ndarray of shape (n_rows, n_features), optional
        Public rows, drawn in a separate panel.
    name : str, optional
        Name of the sampler, for the title.

    Attributes
    ----------
    axes_, figure_ : ndarray of matplotlib Axes, Figure
        The panels: the states, the public rows, the distances.
    points_ : dict of int to list of PathCollection
        The particles after each step: one collection per class.
    public_points_, paths_ : PathCollection, LineCollection, or None
        The public rows, and the paths of ``kind="paths"``.
    curves_ : list of matplotlib Line2D
        The distances, one curve per class.

    Privacy
    -------
    A flow, its states and their distances are post-processing of a release. Public rows are drawn
    without noise.

    Examples
    --------
    >>> from sklearn.datasets import load_iris
    >>> from skdpot import DPSlicedFlowSampler
    >>> from skdpot.metrics import FlowDisplay
    >>> X, y = load_iris(return_X_y=True, as_frame=True)
    >>> sampler = DPSlicedFlowSampler(epsilon=5.0, bounds=(0, 8), conditional=True).fit(X, y)
    >>> display = FlowDisplay.from_estimator(sampler, n_particles=300)
    >>> list(display.points_)
    [0, 4, 20, 200]
    """

    particles: np.ndarray
    steps: np.ndarray
    labels: np.ndarray | None = None
    distances: np.ndarray | None = None
    classes: np.ndarray | None = None
    plane: np.ndarray | None = None
    names: list[str] | None = None
    public: np.ndarray | None = None
    name: str | None = None

    @classmethod
    def from_estimator(
        cls,
        sampler: Any,
        *,
        n_particles: int = 1000,
        random_state: int | np.random.RandomState | None = None,
        **kwargs: Any,
    ) -> Self:
        """Run the flow of a fitted sampler once more and draw it; return the display.

        Parameters
        ----------
        sampler : estimator
            Fitted, with a method ``trace``: a `DPSlicedFlowSampler`.
        n_particles : int, default=1000
            Number of particles, of all classes together.
        random_state : int, RandomState or None, default=None
            Seed of the flow and of random directions; does not affect privacy.
        **kwargs : dict
            For `from_trace`, such as `plane`, `X`, `name` and `ax`. By default the title is the
            name of the class.

        Raises
        ------
        TypeError
            If the estimator has no flow.
        """
        if not hasattr(sampler, "trace"):
            raise TypeError(f"{type(sampler).__name__} has no method trace; pass a flow sampler.")
        check_is_fitted(sampler)
        names = getattr(sampler, "feature_names_in_", None)
        trace = sampler.trace(n_particles=n_particles, random_state=random_state)
        defaults: dict[str, Any] = {
            "feature_names": names,
            "name": type(sampler).__name__,
            "random_state": random_state,
        }
        return cls.from_trace(trace, **(defaults | kwargs))

    @classmethod
    def from_trace(
        cls,
        trace: Any,
        *,
        plane: Any = None,
        feature_names: Any = None,
        X: Any = None,
        random_state: int | np.random.RandomState | None = None,
        name: str | None = None,
        **kwargs: Any,
    ) -> Self:
        """Draw the states of a flow; return the display.

        Parameters
        ----------
        trace : FlowTrace
            Result of ``sampler.trace()``.
        plane : "random", (int or str, int or str), or array of shape (2, n_features), optional
            Two features, by number or name; two random orthogonal directions; or two public
            directions. By default the first two features, or the only one, which is then drawn
            against the share of particles below.
        feature_names : sequence of str, optional
            Names of all features.
        X : array-like of shape (n_rows, n_features), optional
            **Public** rows to draw in a separate panel.
        random_state : int, RandomState or None, default=None
            Seed of random directions.
        name : str, optional
            Name for the title.
        **kwargs : dict
            For `plot`, such as `ax`.

        Raises
        ------
        ValueError
            If features or steps do not exist, or an argument of `plot` is out of range.
        """
        n_features = trace.particles.shape[2]
        labels = feature_labels(feature_names, n_features)
        directions = _plane_of(plane, n_features, feature_names, random_state)
        public = None if X is None else as_points(X, "X")
        if public is not None and public.shape[1] != n_features:
            raise ValueError(
                f"X has {public.shape[1]} features and the particles have {n_features}."
            )
        return cls(
            **vars(trace),
            plane=directions,
            names=[direction_name(direction, labels) for direction in directions],
            public=public,
            name=name,
        ).plot(**kwargs)

    def plot(
        self,
        ax: Any = None,
        *,
        kind: str = "panels",
        steps: ArrayLike | None = None,
        distances: bool = True,
        max_paths: int = 60,
        name: str | None = None,
        legend: bool = True,
        **kwargs: Any,
    ) -> Self:
        """Draw the particles and, last, their distances to the sketch; return the display.

        Parameters
        ----------
        ax : matplotlib Axes or sequence of them, optional
            One Axes per panel; new ones by default.
        kind : {"panels", "paths"}, default="panels"
            One panel per step, or one panel with the paths of particles, dark where they end.
        steps : sequence of int, optional
            Steps to draw, among those of the trace; by default the start, the end, and two in
            between.
        distances : bool, default=True
            Whether to draw the panel of the distances, if there are any.
        max_paths : int, default=60
            Number of paths to draw, at most.
        name, legend : str, bool, optional
            Name for the title, by default the stored one, and whether to draw the legend.
        **kwargs : dict
            For ``Axes.scatter`` of the particles.
        """
        check_choice("kind", kind, ("panels", "paths"))
        chosen = self.steps[-1:].tolist() if kind == "paths" else self._chosen(steps)
        curves: Any = self.distances if distances and self.distances is not None else ()
        has_rows = self.public is not None
        n_clouds = len(chosen) + has_rows
        n_panels = n_clouds + (len(curves) > 0)
        n_columns = n_panels if n_panels <= _MOST_IN_A_ROW else -(-n_panels // 2)
        self._take_axes(ax, n_panels, n_columns, _PANEL_SIZE)
        plane = np.eye(self.particles.shape[2])[:2] if self.plane is None else self.plane
        where = _in_plane(self.particles, plane)
        self.points_ = {}
        for panel, step in zip(self.axes_, chosen, strict=False):
            panel.set_title(_step_title(step), fontsize="medium")
            cloud = where[self.steps.tolist().index(step)]
            self.points_[int(step)] = self._draw_classes(panel, cloud, kwargs)
        self.paths_ = self._draw_paths(self.axes_[0], where, max_paths) if kind == "paths" else None
        self.public_points_ = None
        seen = where.reshape(-1, 2)
        if has_rows:
            rows = _in_plane(np.asarray(self.public), plane)
            seen = np.concatenate([seen, rows])
            panel = self.axes_[len(chosen)]
            panel.set_title("public rows", fontsize="medium")
            self.public_points_ = panel.scatter(*rows.T, color="0.4", **_DOTS)
        self._share_limits(self.axes_[:n_clouds], seen)
        self.curves_ = self._draw_distances(self.axes_[-1], curves) if len(curves) else []
        handles, texts = self.axes_[0].get_legend_handles_labels()
        shown = handles if legend and len(texts) > 1 else ()
        # The dots of a scatter are too small to show their colour in a legend.
        self._add_title_and_legend(ax, name, shown, texts, markerscale=3)
        return self

    def _chosen(self, steps: ArrayLike | None) -> list[int]:
        """Return the steps to draw, by default spread over the flow."""
        known = self.steps.tolist()
        if steps is None:
            # Dense at first, where the flow is fast.
            shares = np.linspace(0, 1, min(_N_PANELS, len(known))) ** 1.5
            spread = np.rint(shares * (len(known) - 1)).astype(int)
            return [known[k] for k in np.unique(spread)]
        chosen = np.atleast_1d(np.asarray(steps)).tolist()
        if not chosen or any(step not in known for step in chosen):
            raise ValueError(f"steps must be among those of the trace, {known}.")
        return chosen

    def _draw_classes(self, ax: Any, cloud: np.ndarray, style: dict[str, Any]) -> list[Any]:
        """Draw one state, class by class, or in one colour if there are too many classes."""
        names = [] if self.labels is None else np.unique(self.labels).tolist()
        groups: dict[str, Any] = {"particles": slice(None)}
        if 1 < len(names) <= len(COLORS):
            names = names if self.classes is None else self.classes.tolist()
            groups = {str(name): self.labels == name for name in names}
        return [
            ax.scatter(
                *cloud[rows].T, **(_DOTS | {"color": color, "label": name, "zorder": 2} | style)
            )
            for (name, rows), color in zip(groups.items(), COLORS, strict=False)
        ]

    def _draw_paths(self, ax: Any, where: np.ndarray, max_paths: int) -> Any:
        """Draw the paths of some particles, spread over all classes."""
        n_particles = where.shape[1]
        spaced = np.linspace(0, n_particles - 1, min(max_paths, n_particles)).round().astype(int)
        ways = where[:, np.unique(spaced)].swapaxes(0, 1)
        ax.set_title(f"paths, {_step_title(self.steps[0])} to {self.steps[-1]}", fontsize="medium")
        shares = np.linspace(0, 1, len(self.steps) - 1)
        style = {"cmap": shades("Greys", _PALEST, 0.9), "linewidths": 0.7, "zorder": 1}
        return draw_ways(ax, ways, shares, **style)

    def _share_limits(self, axes: np.ndarray, seen: np.ndarray) -> None:
        """Share limits that hold all states, except outlying particles, and label the axes."""
        limits = widened(np.quantile(seen, [0.001, 0.999], axis=0), 0.06)
        names = self.names or ["first direction", "second direction"]
        horizontal, vertical, *_ = (fill(n, _WIDTH) for n in [*names, "share of particles below"])
        for ax in axes:
            ax.set(xlim=limits[:, 0], ylim=limits[:, 1])
            label_panel(ax, horizontal, vertical)

    def _draw_distances(self, ax: Any, curves: Any) -> list[Any]:
        """Draw the distance to the sketch by step, one curve per class."""
        colors = COLORS if len(curves) <= len(COLORS) else COLORS[:1] * len(curves)
        drawn = [
            ax.plot(self.steps, values, color=color, **_CURVE)[0]
            for values, color in zip(curves, colors, strict=False)
        ]
        ax.set_xscale("symlog", linthresh=1)
        ax.set(xlim=(0, None), ylim=(0, None), xlabel="step")
        ax.set_title("SW₂ to the sketch", fontsize="medium")
        ax.xaxis.set_major_formatter(lambda value, _: f"{value:g}")
        return drawn


def _step_title(step: int) -> str:
    return "start" if step == 0 else "1 step" if step == 1 else f"{step} steps"


def _plane_of(plane: Any, n_features: int, names: Any, random_state: Any) -> np.ndarray:
    """Return one or two directions of features, at random or as they are given."""
    if isinstance(plane, str) and plane == "random":
        if n_features > 1:
            return orthogonal_directions(2, n_features, solver_generator(random_state))
        plane = None
    if plane is None or isinstance(plane, str) or np.ndim(plane) != 2:
        return np.eye(n_features)[list(feature_numbers(plane, n_features, names))]
    directions = as_points(plane, "plane")
    lengths = np.linalg.norm(directions, axis=1, keepdims=True)
    if directions.shape[1] != n_features or len(directions) > 2 or not (lengths > 0).all():
        raise ValueError(
            f"plane has shape {directions.shape}; it must be one or two directions of "
            f"{n_features} features each, none of them zero."
        )
    return np.asarray(directions / lengths)


def _in_plane(points: np.ndarray, directions: np.ndarray) -> np.ndarray:
    """Return coordinates, (..., n, 2); a single direction is drawn against the share below."""
    where: np.ndarray = points @ directions.T
    if len(directions) == 2:
        return where
    ranks = np.argsort(np.argsort(where, axis=-2, kind="stable"), axis=-2)
    return np.concatenate([where, (ranks + 0.5) / points.shape[-2]], axis=-1)
