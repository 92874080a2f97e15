"""Picture of a flow: particles on their way from noise to the release."""

from dataclasses import dataclass
from functools import cached_property
from textwrap import fill
from typing import Any, Self

import numpy as np
from numpy.typing import ArrayLike
from sklearn.utils.validation import check_is_fitted

from skdpot.metrics._panels import (
    COLORS,
    feature_labels,
    in_plane,
    is_leftmost,
    panel_grid,
    plane_names,
    plane_of,
)
from skdpot.metrics.distances import as_points

__all__ = ["FlowDisplay", "FlowPanels"]

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


_PANELS = 4  # by default


@dataclass(kw_only=True, eq=False, repr=False)
class FlowDisplay:
    """Particles of a flow at several steps, and how near they are to the sketch.

    Make one with `from_estimator` or `from_trace`. Parameters are stored as attributes.

    Parameters
    ----------
    particles : ndarray of shape (n_states, n_particles, n_features)
        Positions; a row is the same particle in all states.
    steps : ndarray of shape (n_states,)
        Number of steps before each state, increasing.
    labels : ndarray of shape (n_particles,), optional
        Class of each particle.
    distances : ndarray of shape (n_classes, n_states), optional
        Sliced Wasserstein-2 distance to the sketch, by class.
    classes : ndarray of shape (n_classes,), optional
        Names of the rows of `distances`.
    plane : ndarray of shape (1 or 2, n_features), optional
        The directions that are drawn; the first two axes by default.
    names : sequence of str, optional
        What the directions are, for the axes.
    public : ndarray of shape (n_rows, n_features), optional
        Public rows to draw in a panel of their own.
    name : str, optional
        Name of the sampler, for the title.

    Attributes
    ----------
    axes_ : ndarray of matplotlib Axes
        The panels: the states, the public rows, the distances.
    figure_ : matplotlib Figure
        Figure that holds them.
    points_ : dict of int to list of PathCollection
        What was drawn for each step: one collection a class.
    public_points_ : PathCollection or None
        The public rows.
    paths_ : LineCollection or None
        The paths, with ``kind="paths"``.
    curves_ : list of matplotlib Line2D
        The distances, a curve a class; empty without.

    See Also
    --------
    skdpot.DPSlicedFlowSampler.trace : Where the states come from.
    SketchDisplay : What the flow goes to.

    Privacy
    -------
    A flow is post-processing of a release, and so are its states and their distances to it.
    Public rows are drawn as they are.

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
        plane: Any = None,
        X: Any = None,
        n_particles: int = 1000,
        random_state: int | np.random.RandomState | None = None,
        ax: Any = None,
        name: str | None = None,
        **kwargs: Any,
    ) -> Self:
        """Run the flow of a fitted sampler once more and draw it.

        Parameters
        ----------
        sampler : estimator
            Fitted, with a method ``trace``: a `DPSlicedFlowSampler`.
        plane : see `from_trace`
            What to draw; the first two features by default.
        X : array-like of shape (n_rows, n_features), optional
            **Public** rows to draw in a panel of their own.
        n_particles : int, default=1000
            Number of particles, of all classes together.
        random_state : int, RandomState or None, default=None
            Randomness of this flow, and of random directions; it protects nothing.
        ax : matplotlib Axes or sequence of them, optional
            See `plot`.
        name : str, optional
            Name for the title; that of the class by default.
        **kwargs : dict
            For `plot`.

        Returns
        -------
        FlowDisplay
            The display, drawn.

        Raises
        ------
        TypeError
            If the estimator has no flow.
        ValueError
            If features or steps do not exist.

        Privacy
        -------
        The sampler's release is post-processed, which is free. `X` is treated as public.
        """
        if not hasattr(sampler, "trace"):
            raise TypeError(f"{type(sampler).__name__} has no method trace; draw a flow sampler.")
        check_is_fitted(sampler)
        return cls.from_trace(
            sampler.trace(n_particles=n_particles, random_state=random_state),
            plane=plane,
            feature_names=getattr(sampler, "feature_names_in_", None),
            X=X,
            random_state=random_state,
            ax=ax,
            name=type(sampler).__name__ if name is None else name,
            **kwargs,
        )

    @classmethod
    def from_trace(
        cls,
        trace: Any,
        *,
        plane: Any = None,
        feature_names: Any = None,
        X: Any = None,
        random_state: int | np.random.RandomState | None = None,
        ax: Any = None,
        name: str | None = None,
        **kwargs: Any,
    ) -> Self:
        """Draw the states of a flow.

        Parameters
        ----------
        trace : FlowTrace
            What ``sampler.trace()`` returns.
        plane : "random", (int or str, int or str), or array of shape (2, n_features), optional
            Two features, by number or by name; two random directions at a right angle; or two
            directions. They must be public. By default the first two features, or the only one,
            which is then drawn against the share of particles below.
        feature_names : sequence of str, optional
            Names of all features.
        X : array-like of shape (n_rows, n_features), optional
            **Public** rows to draw in a panel of their own.
        random_state : int, RandomState or None, default=None
            For random directions.
        ax : matplotlib Axes or sequence of them, optional
            See `plot`.
        name : str, optional
            Name for the title.
        **kwargs : dict
            For `plot`.

        Returns
        -------
        FlowDisplay
            The display, drawn.

        Raises
        ------
        ValueError
            If features or steps do not exist.

        Privacy
        -------
        The trace is post-processing of a release. `X` is treated as public.
        """
        n_features = trace.particles.shape[2]
        labels = feature_labels(feature_names, n_features)
        directions = plane_of(plane, n_features, feature_names, random_state)
        public = None if X is None else as_points(X, "X")
        if public is not None and public.shape[1] != n_features:
            raise ValueError(
                f"X has {public.shape[1]} features and the particles have {n_features}; they must "
                "be the same."
            )
        return cls(
            particles=trace.particles,
            steps=trace.steps,
            labels=trace.labels,
            distances=trace.distances,
            classes=trace.classes,
            plane=directions,
            names=plane_names(directions, labels),
            public=public,
            name=name,
        ).plot(ax=ax, **kwargs)

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
        """Draw the particles, and their distances to the sketch in a last panel.

        Parameters
        ----------
        ax : matplotlib Axes or sequence of them, optional
            One Axes a panel; new ones by default.
        kind : {"panels", "paths"}, default="panels"
            A panel a step, or one panel with the paths of particles, dark where they end.
        steps : sequence of int, optional
            Steps of the panels, among those of the trace; by default the start, the end, and two
            in between.
        distances : bool, default=True
            Whether to draw the panel of the distances, where there are any.
        max_paths : int, default=60
            At most so many paths are drawn.
        name : str, optional
            Name for the title; the stored one by default.
        legend : bool, default=True
            Whether to draw the legend of the classes.
        **kwargs : dict
            For ``Axes.scatter`` of the particles.

        Returns
        -------
        FlowDisplay
            The display.

        Raises
        ------
        ValueError
            If `kind` is unknown, a step is not in the trace, or the number of Axes is another one.
        """
        if kind not in ("panels", "paths"):
            raise ValueError(f"kind={kind!r} must be 'panels' or 'paths'.")
        drawing = FlowPanels(
            particles=self.particles,
            steps=self.steps,
            labels=self.labels,
            distances=self.distances if distances else None,
            classes=self.classes,
            plane=self.plane,
            names=self.names,
            public=self.public,
        )
        chosen = self.steps[-1:].tolist() if kind == "paths" else self._chosen(steps)
        self.axes_ = drawing.make_axes(ax, len(chosen))
        self.figure_ = self.axes_[0].figure
        self.paths_ = drawing.draw_paths(self.axes_[0], max_paths) if kind == "paths" else None
        self.points_ = {
            int(step): drawing.draw_points(panel, step, kwargs, title=kind == "panels")
            for panel, step in zip(self.axes_, chosen, strict=False)
        }
        has_rows = self.public is not None
        self.public_points_ = drawing.draw_public(self.axes_[len(chosen)]) if has_rows else None
        self.curves_ = drawing.draw_distances(self.axes_[-1])
        drawing.label(self.axes_[: len(chosen) + has_rows])
        if legend:
            drawing.add_legend(self.axes_, below=ax is None)
        title = self.name if name is None else name
        if title and ax is None:
            self.figure_.suptitle(title, fontsize="medium")
        return self

    def _chosen(self, steps: ArrayLike | None) -> list[int]:
        """Return the steps of the panels."""
        known = self.steps.tolist()
        if steps is None:
            # Closer together at first, where more happens.
            shares = np.linspace(0, 1, min(_PANELS, len(known))) ** 1.5
            spread = np.rint(shares * (len(known) - 1)).astype(int)
            return [known[k] for k in np.unique(spread)]
        chosen = np.atleast_1d(np.asarray(steps)).tolist()
        if not chosen or any(step not in known for step in chosen):
            raise ValueError(f"steps must be among those of the trace, {known}.")
        return chosen
