"""Picture of trajectories: true paths, points seen, private means and recovered paths."""

from dataclasses import dataclass
from typing import Any, Self

import numpy as np
from numpy.typing import ArrayLike
from sklearn.utils.validation import check_is_fitted

from skdpot._utils.rng import solver_generator
from skdpot.metrics.paths import feature_numbers, is_date, resample_paths, timed_paths, timed_rows

__all__ = ["Panels", "TrajectoryDisplay"]

_PANEL_HEIGHT = 2.7  # inches
_N_SHADES = 64  # along a path
_PALEST = 0.9  # of viridis; what follows is too pale for lines on white


@dataclass(frozen=True, eq=False)
class Panels:
    """Panels that share limits and the colours of time.

    Parameters
    ----------
    content : dict of str to (ndarray, ndarray)
        Paths (n, k, d) or points (n, d), and their times, by panel.
    features : tuple of int
        Two features to draw against each other, or one to draw against time.
    cmap : str, Colormap or None
        Colours of time.
    n_paths : int
        At most this many paths a panel.
    titles : dict of str to str
        Title of each panel.
    dates : bool
        Whether times are days of the calendar.
    """

    content: dict[str, tuple[np.ndarray, np.ndarray]]
    features: tuple[int, ...]
    cmap: Any
    n_paths: int
    titles: dict[str, str]
    dates: bool

    def make_axes(self, ax: Any) -> np.ndarray:
        """Return one Axes a panel: those given, or new ones in a row.

        Parameters
        ----------
        ax : matplotlib Axes, sequence of them, or None
            What the caller gave.

        Returns
        -------
        ndarray of Axes
            As many as panels.

        Raises
        ------
        ValueError
            If another number was given.
        """
        import matplotlib.pyplot as plt

        n_panels = len(self.content)
        if ax is None:
            size = (n_panels * (self._panel_width() + 0.3) + 1.2, _PANEL_HEIGHT + 1.1)
            _, axes = plt.subplots(
                1, n_panels, figsize=size, sharex=True, sharey=True, squeeze=False,
                layout="compressed",
            )  # fmt: skip
            return np.ravel(axes)
        given = np.ravel(np.asarray(ax, dtype=object))
        if len(given) != n_panels:
            raise ValueError(
                f"ax holds {len(given)} Axes and there are {n_panels} panels, "
                f"{list(self.content)}: give one Axes each, or choose with panels=."
            )
        return given

    def draw(self, axes: np.ndarray) -> dict[str, Any]:
        """Draw each panel on its Axes.

        Parameters
        ----------
        axes : ndarray of Axes
            One a panel.

        Returns
        -------
        dict of str to Collection
            What was drawn, by panel.
        """
        import matplotlib as mpl

        style = {"cmap": self._colors(), "norm": mpl.colors.Normalize(*self._time_range())}
        drawn = {}
        for ax, (key, (data, times)) in zip(axes, self.content.items(), strict=True):
            if key == "seen":
                drawn[key] = self._draw_points(ax, data, times, style | {"s": 9, "alpha": 0.6})
            elif key == "means":
                line = self._positions(data, times)
                ax.plot(*line.T, color="0.6", linewidth=1, zorder=1)
                drawn[key] = self._draw_points(ax, data, times, style | {"s": 50, "zorder": 2})
            else:
                drawn[key] = self._draw_paths(ax, data[: self.n_paths], times, style)
        return drawn

    def add_time(self, axes: np.ndarray) -> Any:
        """Add a colour bar, unless time is an axis.

        Parameters
        ----------
        axes : ndarray of Axes
            One a panel, drawn.

        Returns
        -------
        Colorbar or None
            The bar.
        """
        if len(self.features) == 1:
            return None
        artist = axes[-1].collections[-1]
        options = {"label": "time", "pad": 0.02, "shrink": 0.9}
        bar = axes[0].figure.colorbar(artist, ax=list(axes), **options)
        # Points are drawn translucent; the key to their colours is not.
        bar.solids.set_alpha(1.0)
        if self.dates:
            _show_dates(bar.ax.yaxis)
        return bar

    def label(self, axes: np.ndarray, feature_names: Any) -> None:
        """Set titles, labels and common limits.

        Parameters
        ----------
        axes : ndarray of Axes
            One a panel, drawn.
        feature_names : sequence of str or None
            Names of all features.
        """
        lower, upper = self._limits()
        names = [
            f"feature {k}" if feature_names is None else str(feature_names[k])
            for k in self.features
        ]
        labels = names if len(names) == 2 else ["time", *names]
        for position, (ax, key) in enumerate(zip(axes, self.content, strict=True)):
            ax.set_title(self.titles[key], fontsize="medium")
            ax.set(xlim=(lower[0], upper[0]), ylim=(lower[1], upper[1]), xlabel=labels[0])
            if position == 0:
                ax.set_ylabel(labels[1])
            if len(self.features) == 2:
                ax.set_aspect("equal")
            elif self.dates:
                _show_dates(ax.xaxis)

    def _draw_points(self, ax: Any, data: np.ndarray, times: np.ndarray, style: Any) -> Any:
        """Draw points in the colours of their times."""
        where = self._positions(data, times)
        return ax.scatter(where[:, 0], where[:, 1], c=times, linewidths=0, **style)

    def _draw_paths(self, ax: Any, paths: np.ndarray, times: np.ndarray, style: Any) -> Any:
        """Draw paths, every piece in the colour of its middle; a dot where there is one time."""
        from matplotlib.collections import LineCollection

        if len(times) == 1:
            stamps = np.repeat(times, len(paths))
            return self._draw_points(ax, paths[:, 0], stamps, style | {"s": 9})
        # More points on the same lines, so that the colour changes along them.
        fine = np.union1d(times, np.linspace(times[0], times[-1], _N_SHADES))
        where = self._positions(resample_paths(paths, times, fine), fine)
        pieces = np.stack([where[:, :-1], where[:, 1:]], axis=2).reshape(-1, 2, 2)
        middles = np.tile((fine[:-1] + fine[1:]) / 2, len(paths))
        width = float(np.clip(10 / len(paths) ** 0.5, 0.7, 2.0))
        lines = LineCollection(list(pieces), array=middles, linewidths=width, alpha=0.8, **style)
        return ax.add_collection(lines)

    def _positions(self, data: np.ndarray, times: np.ndarray) -> np.ndarray:
        """Return where in the picture the points are, (..., 2)."""
        chosen = data[..., list(self.features)]
        if len(self.features) == 2:
            return chosen
        horizontal = np.broadcast_to(times[:, np.newaxis], chosen.shape)
        return np.concatenate([horizontal, chosen], axis=-1)

    def _panel_width(self) -> float:
        """Return the width of a panel in inches, from the shape of what it shows."""
        if len(self.features) == 1:
            return _PANEL_HEIGHT
        lower, upper = self._limits()
        width, height = upper - lower
        return _PANEL_HEIGHT * float(np.clip(width / height, 0.6, 1.6))

    def _limits(self) -> tuple[np.ndarray, np.ndarray]:
        """Return the lower left and the upper right corner of all that is drawn."""
        # Single points seen far out would make the rest small: paths decide, and most points.
        corners = []
        for key, (data, times) in self.content.items():
            drawn = data[: self.n_paths] if data.ndim == 3 else data
            where = self._positions(drawn, times).reshape(-1, 2)
            tails = [0.002, 0.998] if key == "seen" else [0.0, 1.0]
            corners.append(np.quantile(where, tails, axis=0))
        lower = np.min([corner[0] for corner in corners], axis=0)
        upper = np.max([corner[1] for corner in corners], axis=0)
        margin = 0.04 * np.where(upper > lower, upper - lower, 1.0)
        return lower - margin, upper + margin

    def _time_range(self) -> tuple[float, float]:
        """Return the first and the last time of all panels, which the colours span."""
        stamps = np.concatenate([times for _, times in self.content.values()])
        first, last = float(stamps.min()), float(stamps.max())
        return (first, last) if last > first else (first - 0.5, last + 0.5)

    def _colors(self) -> Any:
        """Return the colours of time."""
        import matplotlib as mpl

        if self.cmap is not None:
            return mpl.colormaps.get_cmap(self.cmap)
        shades = mpl.colormaps["viridis"](np.linspace(0, _PALEST, 256))
        return mpl.colors.ListedColormap(shades, name="viridis_without_yellow")


def _show_dates(axis: Any) -> None:
    """Label an axis of days with dates."""
    from matplotlib.dates import AutoDateLocator, ConciseDateFormatter

    # Few, so that they do not run into each other in a narrow panel.
    locator = AutoDateLocator(minticks=2, maxticks=5)
    axis.set_major_locator(locator)
    axis.set_major_formatter(ConciseDateFormatter(locator))


_TITLES = {"true": "true paths", "seen": "points seen", "recovered": "recovered paths"}


@dataclass(kw_only=True, eq=False, repr=False)
class TrajectoryDisplay:
    """Recovered paths beside what they were recovered from, with time as colour.

    Make one with `from_estimator` or `from_paths`. Parameters are stored as attributes.

    Parameters
    ----------
    paths : ndarray of shape (n, k, d)
        Recovered paths.
    times : ndarray of shape (k,)
        Their times, increasing.
    means : ndarray of shape (T, d), optional
        Means of the recovered distributions.
    mean_times : ndarray of shape (T,), optional
        Their times.
    points : ndarray of shape (N, d), optional
        Points that were seen.
    point_times : ndarray of shape (N,), optional
        Their times.
    true_paths : ndarray of shape (n', k', d), optional
        True paths.
    true_times : ndarray of shape (k',), optional
        Their times, increasing.
    features : tuple of int, default=(0, 1)
        The two features to draw, or one, which is drawn against time.
    feature_names : sequence of str, optional
        Names of all features, for the axes.
    name : str, optional
        Name of the sampler, for the title.
    means_name : str, default="means"
        Title of the panel of the means.
    dates : bool, default=False
        Whether times are dates, in days as matplotlib counts them.

    Attributes
    ----------
    axes_ : ndarray of matplotlib Axes
        The panels, in the order of `panels_`.
    panels_ : dict
        What was drawn in the panels ``"true"``, ``"seen"``, ``"means"`` and ``"recovered"``: a
        LineCollection of paths or a PathCollection of points.
    figure_ : matplotlib Figure
        Figure that holds them.
    colorbar_ : matplotlib Colorbar or None
        The key to the colours; None without one, and when time is an axis.

    See Also
    --------
    path_sliced_wasserstein_distance : How far two samples of paths are apart, as a number.

    Privacy
    -------
    Points and true paths are drawn as they are: show public ones. Recovered paths and means of a
    private sampler are post-processing of its release.

    Examples
    --------
    >>> import numpy as np
    >>> from skdpot.datasets import branching_paths, one_point_a_person
    >>> from skdpot.metrics import TrajectoryDisplay
    >>> times = np.linspace(0, 1, 20)
    >>> paths, _ = branching_paths(300, times, random_state=0)
    >>> X, t = one_point_a_person(paths, times, random_state=0)
    >>> display = TrajectoryDisplay.from_paths(paths, times, points=X, point_times=t)
    >>> list(display.panels_)
    ['seen', 'means', 'recovered']
    """

    paths: np.ndarray
    times: np.ndarray
    means: np.ndarray | None = None
    mean_times: np.ndarray | None = None
    points: np.ndarray | None = None
    point_times: np.ndarray | None = None
    true_paths: np.ndarray | None = None
    true_times: np.ndarray | None = None
    features: tuple[int, ...] = (0, 1)
    feature_names: Any = None
    name: str | None = None
    means_name: str = "means"
    dates: bool = False

    @classmethod
    def from_estimator(
        cls,
        sampler: Any,
        X: Any = None,
        t: Any = None,
        *,
        true_paths: ArrayLike | None = None,
        true_times: ArrayLike | None = None,
        n_paths: int = 50,
        times: ArrayLike | None = None,
        features: Any = None,
        random_state: int | np.random.RandomState | None = None,
        ax: Any = None,
        name: str | None = None,
        **kwargs: Any,
    ) -> Self:
        """Sample paths from a fitted sampler and draw them.

        Parameters
        ----------
        sampler : estimator
            Fitted, with ``sample(n, times)``, ``times_`` and ``particles_`` of shape (T, m, d).
        X : array-like of shape (N, d), optional
            Points that were seen; public ones.
        t : array-like of shape (N,), optional
            Their time stamps; given together with `X`.
        true_paths : array-like of shape (n', k', d), optional
            True paths; public ones.
        true_times : array-like of shape (k',), optional
            Their times, increasing; given together with `true_paths`.
        n_paths : int, default=50
            Number of paths to sample, and of true paths to draw.
        times : array-like of shape (k,), optional
            Times at which to sample, increasing; those of the sampler by default, which are then
            joined by straight lines.
        features : int, str, or pair of these, optional
            Features to draw, by number or by name: the first two by default, or the only one.
        random_state : int, RandomState or None, default=None
            For ``sampler.sample``.
        ax : matplotlib Axes or sequence of them, optional
            See `plot`.
        name : str, optional
            Name for the title; that of the class by default.
        **kwargs : dict
            For `plot`.

        Returns
        -------
        TrajectoryDisplay
            The display, drawn.

        Raises
        ------
        ValueError
            If points, paths, times or features do not fit together.

        Privacy
        -------
        The sampler is post-processed. `X` and `true_paths` are treated as public.
        """
        check_is_fitted(sampler)
        stamps = sampler.times_ if times is None else times
        options = {} if random_state is None else {"random_state": random_state}
        return cls.from_paths(
            sampler.sample(n_paths, stamps, **options),
            stamps,
            means=np.mean(sampler.particles_, axis=1),
            mean_times=sampler.times_,
            points=X,
            point_times=t,
            true_paths=true_paths,
            true_times=true_times,
            features=features,
            feature_names=getattr(sampler, "feature_names_in_", None),
            ax=ax,
            name=type(sampler).__name__ if name is None else name,
            means_name="private means",
            **({"n_paths": n_paths} | kwargs),
        )

    @classmethod
    def from_paths(
        cls,
        paths: ArrayLike,
        times: ArrayLike,
        *,
        means: ArrayLike | None = None,
        mean_times: ArrayLike | None = None,
        points: Any = None,
        point_times: Any = None,
        true_paths: ArrayLike | None = None,
        true_times: ArrayLike | None = None,
        features: Any = None,
        feature_names: Any = None,
        ax: Any = None,
        name: str | None = None,
        means_name: str = "means",
        **kwargs: Any,
    ) -> Self:
        """Draw paths.

        Parameters
        ----------
        paths : array-like of shape (n, k, d)
            Recovered paths.
        times : array-like of shape (k,)
            Their times, increasing: numbers, or dates (then all times must be dates).
        means : array-like of shape (T, d), optional
            Means over the paths, at times that may be others; those of `paths` by default.
        mean_times : array-like of shape (T,), optional
            Their times, increasing; given together with `means`.
        points : array-like of shape (N, d), optional
            Points that were seen; public ones.
        point_times : array-like of shape (N,), optional
            Their times; given together with `points`.
        true_paths : array-like of shape (n', k', d), optional
            True paths; public ones.
        true_times : array-like of shape (k',), optional
            Their times, increasing; given together with `true_paths`.
        features : int, str, or pair of these, optional
            Features to draw, by number or by name: the first two by default, or the only one.
        feature_names : sequence of str, optional
            Names of all features, for the axes.
        ax : matplotlib Axes or sequence of them, optional
            See `plot`.
        name : str, optional
            Name for the title.
        means_name : str, default="means"
            Title of the panel of the means.
        **kwargs : dict
            For `plot`.

        Returns
        -------
        TrajectoryDisplay
            The display, drawn.

        Raises
        ------
        ValueError
            If points, paths, times or features do not fit together.

        Privacy
        -------
        All that is given is treated as public.
        """
        recovered, stamps = timed_paths(paths, times, "paths", "times")
        n_features = recovered.shape[2]
        if means is None:
            means, mean_times = recovered.mean(axis=0), stamps
        parts: dict[str, Any] = {"paths": recovered, "times": stamps}
        parts["means"], parts["mean_times"] = timed_rows(means, mean_times, "means", "mean_times")
        if points is not None or point_times is not None:
            timed = timed_rows(points, point_times, "points", "point_times")
            parts["points"], parts["point_times"] = timed
        if true_paths is not None or true_times is not None:
            timed = timed_paths(true_paths, true_times, "true_paths", "true_times")
            parts["true_paths"], parts["true_times"] = timed
        for key in ("means", "points", "true_paths"):
            if key in parts and parts[key].shape[-1] != n_features:
                raise ValueError(
                    f"{key} have {parts[key].shape[-1]} features and the recovered paths "
                    f"{n_features}; they must be the same."
                )
        return cls(
            **parts,
            features=feature_numbers(features, n_features, feature_names),
            feature_names=feature_names,
            name=name,
            means_name=means_name,
            dates=is_date(times),
        ).plot(ax=ax, **kwargs)

    def plot(
        self,
        ax: Any = None,
        *,
        panels: Any = None,
        name: str | None = None,
        n_paths: int = 50,
        max_points: int = 3000,
        cmap: Any = None,
        colorbar: bool = True,
    ) -> Self:
        """Draw the panels.

        Parameters
        ----------
        ax : matplotlib Axes or sequence of them, optional
            One Axes a panel; a row of new ones by default. A single Axes gets the recovered paths
            alone, unless `panels` names another panel.
        panels : sequence of {"true", "seen", "means", "recovered"}, optional
            What to draw, from left to right; by default all that there is data for.
        name : str, optional
            Name for the title; the stored one by default.
        n_paths : int, default=50
            At most this many paths are drawn in a panel, the first ones.
        max_points : int, default=3000
            At most this many of the points seen are drawn, a random choice that is always the
            same.
        cmap : str or matplotlib Colormap, optional
            Colours of time; by default viridis without its palest end.
        colorbar : bool, default=True
            Whether to draw the key to the colours, which takes room from the Axes.

        Returns
        -------
        TrajectoryDisplay
            The display.

        Raises
        ------
        ValueError
            If a panel is unknown or has no data, or the number of Axes is another one.
        """
        there = self._content()
        if panels is None:
            panels = ["recovered"] if ax is not None and np.ndim(ax) == 0 else list(there)
        absent = [key for key in panels if key not in there]
        if absent or not len(panels):
            raise ValueError(f"panels must be among {list(there)}; got {list(panels)!r}.")
        content = {key: there[key] for key in panels}
        if "seen" in content:
            content["seen"] = _thin(*content["seen"], max_points)
        titles = {**_TITLES, "means": self.means_name}
        drawing = Panels(content, self.features, cmap, n_paths, titles, self.dates)
        self.axes_ = drawing.make_axes(ax)
        self.panels_ = drawing.draw(self.axes_)
        self.figure_ = self.axes_[0].figure
        self.colorbar_ = drawing.add_time(self.axes_) if colorbar else None
        drawing.label(self.axes_, self.feature_names)
        title = self.name if name is None else name
        if title and ax is None:
            self.figure_.suptitle(title, fontsize="medium")
        return self

    def _content(self) -> dict[str, tuple[np.ndarray, np.ndarray]]:
        """Return data and times of the panels that have any, from left to right."""
        parts = {
            "true": (self.true_paths, self.true_times),
            "seen": (self.points, self.point_times),
            "means": (self.means, self.mean_times),
            "recovered": (self.paths, self.times),
        }
        return {
            key: (data, times)
            for key, (data, times) in parts.items()
            if data is not None and times is not None
        }


def _thin(points: np.ndarray, times: np.ndarray, max_points: int) -> tuple[np.ndarray, np.ndarray]:
    """Shuffle points, so that no time hides another, and keep so many."""
    order = solver_generator(0).permutation(len(points))[:max_points]
    return points[order], times[order]
