"""The panels of a picture of trajectories: paths and points with time as colour."""

from dataclasses import dataclass
from typing import Any

import numpy as np

from skdpot.metrics.paths import resample_paths

__all__ = ["Panels"]

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
