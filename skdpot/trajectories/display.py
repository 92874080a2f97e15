"""Display of trajectories: true paths, observed points, private means and recovered paths."""

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any, Self, TypeAlias

import numpy as np
from numpy.typing import ArrayLike
from sklearn.utils.validation import check_is_fitted

from skdpot._utils.finite import as_finite
from skdpot._utils.panels import (
    PanelDisplay,
    draw_ways,
    feature_labels,
    feature_numbers,
    label_panel,
    shades,
    show_dates,
    widened,
)
from skdpot._utils.streams import solver_generator
from skdpot.trajectories.path_metrics import (
    is_date,
    read_paths_and_times,
    read_points_and_times,
    resample_paths,
)

_TITLES = {"true": "true paths", "seen": "points seen", "recovered": "recovered paths"}
_PANEL_HEIGHT = 2.7  # inches
# Quantiles of the points that set the limits of a panel; a few far points would shrink the rest.
_LIMITING_QUANTILES = {"seen": (0.002, 0.998)}
# Shades of color along a path.
_N_SHADES = 64
# Share of viridis that is used; its end is too pale for lines on white.
_PALEST = 0.9

# Paths (n, k, 2) or points (n, 2) as drawn, and their times, by panel.
Content: TypeAlias = dict[str, tuple[np.ndarray, np.ndarray]]


@dataclass(kw_only=True, eq=False, repr=False)
class TrajectoryDisplay(PanelDisplay):
    """Recovered paths beside the data they were recovered from, colored by time.

    Create one with `from_estimator` or `from_paths`. Parameters are stored as attributes.

    Parameters
    ----------
    paths, times : ndarray of shape (n, k, d), (k,)
        Recovered paths and their increasing times.
    means, mean_times, points, point_times, true_paths, true_times : ndarray, optional
        Means of the recovered distributions, observed points and true paths, with their times.
    mean_intervals : ndarray of shape (2, T, d), optional
        Lower and upper ends of intervals of the means, drawn as bars, or as a band against time.
    features : tuple of int, default=(0, 1)
        The two features to draw, or one, which is drawn against time.
    feature_names : sequence of str, optional
        Names of all features, for the axes.
    name, means_name : str, optional
        Titles of the figure and of the panel of the means.
    dates : bool, default=False
        Whether times are dates, in days as matplotlib counts them.

    Attributes
    ----------
    axes_, figure_ : ndarray of matplotlib Axes, Figure
        The panels, in the order of `panels_`.
    panels_ : dict
        LineCollection of paths or PathCollection of points in each of the panels ``"true"``,
        ``"seen"``, ``"means"`` and ``"recovered"``.
    colorbar_ : matplotlib Colorbar or None
        Key to the colors; None when it is not drawn or time is an axis.

    Privacy
    -------
    Points and true paths are drawn without noise: pass public ones. Recovered paths and means of a
    private sampler are post-processing of its release.

    Examples
    --------
    >>> import numpy as np
    >>> from skdpot.trajectories.moving_clusters import branching_paths
    >>> from skdpot.datasets import one_point_per_person
    >>> from skdpot.metrics import TrajectoryDisplay
    >>> times = np.linspace(0, 1, 20)
    >>> paths, _ = branching_paths(300, times, random_state=0)
    >>> X, t = one_point_per_person(paths, times, random_state=0)
    >>> display = TrajectoryDisplay.from_paths(paths, times, points=X, point_times=t)
    >>> list(display.panels_)
    ['seen', 'means', 'recovered']
    """

    paths: np.ndarray
    times: np.ndarray
    means: np.ndarray | None = None
    mean_times: np.ndarray | None = None
    mean_intervals: np.ndarray | None = None
    points: np.ndarray | None = None
    point_times: np.ndarray | None = None
    true_paths: np.ndarray | None = None
    true_times: np.ndarray | None = None
    features: tuple[int, ...] = (0, 1)
    feature_names: Sequence[str] | None = None
    name: str | None = None
    means_name: str = "means"
    dates: bool = False

    @classmethod
    def from_estimator(
        cls,
        sampler: Any,
        X: ArrayLike | None = None,
        t: ArrayLike | None = None,
        *,
        n_paths: int = 50,
        times: ArrayLike | None = None,
        confidence: float | None = None,
        random_state: int | np.random.RandomState | None = None,
        **kwargs: Any,
    ) -> Self:
        """Sample paths from a fitted sampler and draw them; return the display.

        Parameters
        ----------
        sampler : estimator
            Fitted, with ``sample(n, times)``, ``times_`` and ``particles_`` of shape (T, m, d).
        X, t : array-like of shape (N, d), (N,), optional
            **Public** points and their time stamps; given together.
        n_paths : int, default=50
            Number of paths to sample, and of true paths to draw.
        times : array-like of shape (k,), optional
            Increasing times at which to sample; by default those of the sampler, joined by
            straight lines.
        confidence : float, optional
            Draw intervals of the means at this confidence. They come from ``sampler.estimate``,
            which simulates 20 fits unless it has been called before.
        random_state : int, RandomState or None, default=None
            Seed of ``sampler.sample``.
        **kwargs : dict
            For `from_paths`, such as `true_paths`, `features`, `name` and `ax`. The default title
            is the name of the class.

        Raises
        ------
        ValueError
            If points, paths, times or features do not fit together.
        """
        check_is_fitted(sampler)
        stamps = sampler.times_ if times is None else times
        options = {} if random_state is None else {"random_state": random_state}
        content = {
            "means": np.mean(sampler.particles_, axis=1),
            "mean_times": sampler.times_,
            "means_name": "private means",
            "feature_names": getattr(sampler, "feature_names_in_", None),
            "name": type(sampler).__name__,
            "n_paths": n_paths,
        }
        if confidence is not None:
            estimate = sampler.estimate()
            content |= {"means": estimate.value, "mean_intervals": estimate.interval(confidence)}
            content["means_name"] = f"private means, {100 * confidence:g} % intervals"
        paths = sampler.sample(n_paths, stamps, **options)
        return cls.from_paths(paths, stamps, points=X, point_times=t, **(content | kwargs))

    @classmethod
    def from_paths(
        cls,
        paths: ArrayLike,
        times: ArrayLike,
        *,
        means: ArrayLike | None = None,
        mean_times: ArrayLike | None = None,
        mean_intervals: ArrayLike | None = None,
        points: ArrayLike | None = None,
        point_times: ArrayLike | None = None,
        true_paths: ArrayLike | None = None,
        true_times: ArrayLike | None = None,
        features: int | str | Sequence[int | str] | None = None,
        feature_names: Sequence[str] | None = None,
        name: str | None = None,
        means_name: str = "means",
        **kwargs: Any,
    ) -> Self:
        """Draw paths; return the display.

        Parameters
        ----------
        paths, times : array-like of shape (n, k, d), (k,)
            Recovered paths and their increasing times: numbers, or dates (then all times must be
            dates).
        means, mean_times : array-like of shape (T, d), (T,), optional
            Means over the paths, possibly at other times; those of `paths` by default.
        mean_intervals : array-like of shape (2, T, d), optional
            Lower and upper ends of intervals of the means.
        points, point_times : array-like of shape (N, d), (N,), optional
            **Public** observed points and their times; given together.
        true_paths, true_times : array-like of shape (n', k', d), (k',), optional
            **Public** true paths and their increasing times; given together.
        features : int, str, or pair of these, optional
            Features to draw, by number or by name: the first two by default, or the only one.
        feature_names, name, means_name : optional
            As in `TrajectoryDisplay`.
        **kwargs : dict
            For `plot`, such as `ax`.

        Raises
        ------
        ValueError
            If points, paths, times or features do not fit together.
        """
        recovered, stamps = read_paths_and_times(paths, times, "paths", "times")
        n_features = recovered.shape[2]
        if means is None:
            means, mean_times = recovered.mean(axis=0), stamps
        parts: dict[str, Any] = {"paths": recovered, "times": stamps}
        optional = {
            ("means", "mean_times"): (read_points_and_times, means, mean_times),
            ("points", "point_times"): (read_points_and_times, points, point_times),
            ("true_paths", "true_times"): (read_paths_and_times, true_paths, true_times),
        }
        for (key, times_key), (read, data, at) in optional.items():
            if data is None and at is None:
                continue
            if data is None or at is None:
                raise ValueError(f"{key} and {times_key} must be given together.")
            parts[key], parts[times_key] = read(data, at, key, times_key)
            if parts[key].shape[-1] != n_features:
                raise ValueError(
                    f"{key} have {parts[key].shape[-1]} features and the recovered paths "
                    f"{n_features}; they must be the same."
                )
        if mean_intervals is not None:
            ends = as_finite(mean_intervals, "mean_intervals")
            if ends.shape != (2, *parts["means"].shape):
                raise ValueError(
                    f"mean_intervals must have shape {(2, *parts['means'].shape)}, two ends for "
                    f"each of the means; got {ends.shape}."
                )
            parts["mean_intervals"] = ends
        return cls(
            **parts,
            features=feature_numbers(features, n_features, feature_names),
            feature_names=feature_names,
            name=name,
            means_name=means_name,
            dates=is_date(times),
        ).plot(**kwargs)

    def plot(
        self,
        ax: Any = None,
        *,
        panels: Sequence[str] | None = None,
        name: str | None = None,
        n_paths: int = 50,
        max_points: int = 3000,
        cmap: Any = None,
        colorbar: bool = True,
    ) -> Self:
        """Draw the panels and return the display.

        Parameters
        ----------
        ax : matplotlib Axes or sequence of them, optional
            One Axes per panel; a row of new ones by default. A single Axes shows the recovered
            paths alone, unless `panels` names another panel.
        panels : sequence of {"true", "seen", "means", "recovered"}, optional
            Panels to draw, from left to right; by default all that have data.
        name : str, optional
            Name for the title; the stored one by default.
        n_paths : int, default=50
            Number of paths to draw per panel, at most: the first ones.
        max_points : int, default=3000
            Number of observed points to draw, at most: always the same random choice.
        cmap : str or matplotlib Colormap, optional
            Colors of time; by default viridis without its palest end.
        colorbar : bool, default=True
            Whether to draw the key to the colors, which takes room from the Axes.
        """
        available = self._content(n_paths, max_points)
        if panels is None:
            panels = ["recovered"] if ax is not None and np.ndim(ax) == 0 else list(available)
        absent = [key for key in panels if key not in available]
        if absent or not len(panels):
            raise ValueError(f"panels must be among {list(available)}; got {list(panels)!r}.")
        content = {key: available[key] for key in panels}
        corners = [
            np.quantile(xy.reshape(-1, 2), _LIMITING_QUANTILES.get(key, (0.0, 1.0)), axis=0)
            for key, (xy, _) in content.items()
        ]
        if "means" in content and self.mean_intervals is not None:
            low, high = self._intervals(*self.mean_intervals)
            corners.append(np.stack([low.min(axis=0), high.max(axis=0)]))
        limits = widened(np.stack([np.min(corners, axis=0)[0], np.max(corners, axis=0)[1]]), 0.04)
        shape = np.divide(*(limits[1] - limits[0])) if len(self.features) == 2 else 1.0
        size = _PANEL_HEIGHT * float(np.clip(shape, 0.6, 1.6)) + 0.3, _PANEL_HEIGHT
        options: dict[str, Any] = {"margin": (1.2, 1.1), "layout": "compressed"}
        options |= {"sharex": True, "sharey": True}
        self._take_axes(ax, len(content), len(content), size, **options)
        style = _colors(cmap, content)
        self.panels_ = {
            key: self._draw(panel, key, *content[key], style)
            for panel, key in zip(self.axes_, content, strict=True)
        }
        self.colorbar_ = self._add_colorbar() if colorbar and len(self.features) == 2 else None
        self._label(content, limits)
        self._add_title_and_legend(ax, name)
        return self

    def _content(self, n_paths: int, max_points: int) -> Content:
        """Return the content of the panels that have data, from left to right."""
        parts = {
            "true": (self.true_paths, self.true_times),
            "seen": (self.points, self.point_times),
            "means": (self.means, self.mean_times),
            "recovered": (self.paths, self.times),
        }
        content = {}
        for key, (data, times) in parts.items():
            if data is None or times is None:
                continue
            if key == "seen":  # in random order, so that no time is drawn over another
                order = solver_generator(0).permutation(len(data))[:max_points]
                data, times = data[order], times[order]
            chosen = (data[:n_paths] if data.ndim == 3 else data)[..., list(self.features)]
            content[key] = self._against_time(chosen, times), times
        return content

    def _against_time(self, values: np.ndarray, times: np.ndarray) -> np.ndarray:
        """Add the time to a single feature, as the horizontal axis."""
        if len(self.features) == 2:
            return values
        horizontal = np.broadcast_to(times[:, np.newaxis], values.shape)
        return np.concatenate([horizontal, values], axis=-1)

    def _intervals(self, *ends: np.ndarray) -> list[np.ndarray]:
        """Return the ends of the intervals of the means as drawn, (T, 2) each."""
        times = np.asarray(self.mean_times)
        return [self._against_time(end[:, list(self.features)], times) for end in ends]

    def _draw_intervals(self, ax: Any, means: np.ndarray) -> None:
        """Draw intervals around means (T, 2): a band against time, otherwise bars."""
        if self.mean_intervals is None:
            return
        low, high = self._intervals(*self.mean_intervals)
        if len(self.features) == 1:
            ax.fill_between(means[:, 0], low[:, 1], high[:, 1], color="0.85", zorder=0)
        else:
            errors = np.maximum(np.stack([means - low, high - means]), 0.0)
            bars = {"xerr": errors[..., 0], "yerr": errors[..., 1]}
            ax.errorbar(*means.T, **bars, fmt="none", ecolor="0.4", elinewidth=1, zorder=1)

    def _draw(
        self, ax: Any, key: str, xy: np.ndarray, times: np.ndarray, style: dict[str, Any]
    ) -> Any:
        """Draw paths (n, k, 2) or points (n, 2) in one panel; return the artist."""
        if xy.ndim == 3 and len(times) > 1:
            # More points on the same lines, so that the color changes along them.
            fine = np.union1d(times, np.linspace(times[0], times[-1], _N_SHADES))
            lines, middles = resample_paths(xy, times, fine), (fine[:-1] + fine[1:]) / 2
            width = float(np.clip(10 / len(lines) ** 0.5, 0.7, 2.0))
            return draw_ways(ax, lines, middles, linewidths=width, alpha=0.8, **style)
        if xy.ndim == 3:
            xy, times = xy[:, 0], np.repeat(times, len(xy))
        of_panel = {"s": 9, "alpha": 0.6} if key == "seen" else {"s": 9}
        if key == "means":
            ax.plot(*xy.T, color="0.6", linewidth=1, zorder=1)
            self._draw_intervals(ax, xy)
            of_panel = {"s": 50, "zorder": 2}
        return ax.scatter(*xy.T, c=times, linewidths=0, **style, **of_panel)

    def _add_colorbar(self) -> Any:
        """Draw the key to the colors beside the panels."""
        options = {"label": "time", "pad": 0.02, "shrink": 0.9}
        artist = self.axes_[-1].collections[-1]
        bar = self.figure_.colorbar(artist, ax=list(self.axes_), **options)
        # Points are drawn translucent; the key to their colors is opaque.
        bar.solids.set_alpha(1.0)
        if self.dates:
            show_dates(bar.ax.yaxis)
        return bar

    def _label(self, content: Content, limits: np.ndarray) -> None:
        """Set titles, limits and labels of the axes."""
        labels = feature_labels(self.feature_names, self.paths.shape[2])
        names = [labels[k] for k in self.features]
        titles = {**_TITLES, "means": self.means_name}
        for ax, key in zip(self.axes_, content, strict=True):
            ax.set_title(titles[key], fontsize="medium")
            ax.set(xlim=limits[:, 0], ylim=limits[:, 1])
            label_panel(ax, *["time", *names][-2:])
            if len(names) == 2:
                ax.set_aspect("equal")
            elif self.dates:
                show_dates(ax.xaxis)


def _colors(cmap: Any, content: Content) -> dict[str, Any]:
    """Return the colors of time, from the first to the last time of all panels."""
    import matplotlib as mpl

    stamps = np.concatenate([times for _, times in content.values()])
    first, last = float(stamps.min()), float(stamps.max())
    if first == last:
        first, last = first - 0.5, last + 0.5
    cmap = shades("viridis", 0.0, _PALEST) if cmap is None else mpl.colormaps.get_cmap(cmap)
    return {"cmap": cmap, "norm": mpl.colors.Normalize(first, last)}
