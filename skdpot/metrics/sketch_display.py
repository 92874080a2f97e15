"""Picture of a sketch: its distribution functions, and how far noise may have moved them."""

from dataclasses import dataclass
from textwrap import fill
from typing import Any, Self

import numpy as np
from numpy.typing import ArrayLike

from skdpot._utils.validation import check_is_fitted, validate_rows
from skdpot.metrics._panels import (
    COLORS,
    direction_name,
    feature_labels,
    is_leftmost,
    panel_grid,
)
from skdpot.slicing.noise_bands import measured_cdf
from skdpot.slicing.sketch import SlicedSketch

__all__ = ["SketchDisplay"]

_PANELS = 6  # by default
_PANEL_SIZE = (3.1, 2.6)  # inches
_N_COLUMNS = 3
_WIDTH = 40  # characters of a label, of the small font


@dataclass(kw_only=True, eq=False, repr=False)
class SketchDisplay:
    """Distribution functions of a sketch along some directions, with bands of its noise.

    Make one with `from_estimator`. Parameters are stored as attributes.

    Parameters
    ----------
    positions : ndarray of shape (n_panels, n_bins + 1)
        Bin edges: in the units of the data along an axis, and of the mapped features along
        other directions.
    cdf : ndarray of shape (n_panels, n_bins + 1)
        Values that the sketch answers with, smoothed and monotone.
    measured : ndarray of shape (n_panels, n_bins + 1)
        Values before that: the true ones plus noise.
    deviations : ndarray of shape (n_panels, n_bins + 1)
        Standard deviations of this noise.
    names : sequence of str
        What each panel is drawn against.
    slices : ndarray of shape (n_panels,), optional
        Numbers of the directions.
    public : ndarray of shape (n_panels, n_rows), optional
        Sorted positions of public rows to compare with.
    name : str, optional
        Name for the title.

    Attributes
    ----------
    axes_ : ndarray of matplotlib Axes
        The panels.
    figure_ : matplotlib Figure
        Figure that holds them.
    lines_ : list of matplotlib Line2D
        The distribution functions.
    bands_ : list of matplotlib FillBetweenPolyCollection
        The bands.
    public_lines_ : list of matplotlib Line2D
        The distribution functions of the public rows; empty without.

    See Also
    --------
    MarginalsDisplay : Synthetic rows beside real ones.

    Privacy
    -------
    The sketch is post-processed, which is free. Public rows are drawn without noise.

    Notes
    -----
    At each bin edge the band holds the true share of rows with probability 95 % (for the default
    of two standard deviations). It is centred at what was measured, which the noise makes
    ragged, and cut at 0 and 1. The line is the estimate that the sketch makes of it from all
    directions together, and is nearer to the truth.

    Examples
    --------
    >>> from sklearn.datasets import load_iris
    >>> from skdpot import SlicedSketch
    >>> from skdpot.metrics import SketchDisplay
    >>> X, _ = load_iris(return_X_y=True, as_frame=True)
    >>> sketch = SlicedSketch(epsilon=2.0, bounds=(0, 8)).fit(X)
    >>> display = SketchDisplay.from_estimator(sketch)
    >>> display.names[0]
    'sepal length (cm)'
    """

    positions: np.ndarray
    cdf: np.ndarray
    measured: np.ndarray
    deviations: np.ndarray
    names: list[str]
    slices: np.ndarray | None = None
    public: np.ndarray | None = None
    name: str | None = None

    @classmethod
    def from_estimator(
        cls,
        estimator: Any,
        *,
        slices: ArrayLike | int | None = None,
        label: Any = None,
        X: Any = None,
        ax: Any = None,
        name: str | None = None,
        **kwargs: Any,
    ) -> Self:
        """Draw a sketch, or the one that a fitted estimator has released.

        Parameters
        ----------
        estimator : SlicedSketch or estimator
            Closed sketch, or an estimator with a ``sketch_``.
        slices : int or sequence of int, optional
            Numbers of the directions to draw; the first six by default.
        label : optional
            A class; by default all together.
        X : array-like of shape (n_rows, n_features), optional
            **Public** rows to compare with, mapped and clipped like the private ones were.
        ax : matplotlib Axes or sequence of them, optional
            One Axes a direction; new ones by default.
        name : str, optional
            Name for the title; that of the class by default.
        **kwargs : dict
            For `plot`.

        Returns
        -------
        SketchDisplay
            The display, drawn.

        Raises
        ------
        OpenSketchError
            If the sketch is open.
        ValueError
            If there is no sketch, direction or class of this name, or the rows have other
            features.

        Privacy
        -------
        The sketch is post-processed, which is free. `X` is treated as public.
        """
        sketch = _sketch_of(estimator)
        cdf = sketch.table(label).cdf
        chosen = _slice_numbers(slices, len(cdf))
        measured = measured_cdf(sketch, label)
        n_features = sketch.directions_.shape[1]
        names = feature_labels(getattr(sketch, "feature_names_in_", None), n_features)
        directions = sketch.directions_[chosen]
        public = None
        if X is not None:
            rows = sketch.bounds_.to_ball(validate_rows(sketch, X, reset=False))
            widths = sketch.half_widths_[chosen, np.newaxis]
            projections = np.sort(np.clip(directions @ rows.T, -widths, widths), axis=1)
            public = _in_units(projections, directions, sketch)
        if name is None:
            name = type(estimator).__name__ + ("" if label is None else f", class {label}")
        return cls(
            positions=_in_units(measured.edges[chosen], directions, sketch),
            cdf=cdf[chosen],
            measured=measured.values[chosen],
            deviations=measured.deviations[chosen],
            names=[direction_name(direction, names) for direction in directions],
            slices=chosen,
            public=public,
            name=name,
        ).plot(ax=ax, **kwargs)

    def plot(
        self,
        ax: Any = None,
        *,
        n_deviations: float = 2.0,
        name: str | None = None,
        legend: bool = True,
        **kwargs: Any,
    ) -> Self:
        """Draw the panels.

        Parameters
        ----------
        ax : matplotlib Axes or sequence of them, optional
            One Axes a direction; new ones by default.
        n_deviations : float, default=2
            Half height of the bands, in standard deviations of the noise.
        name : str, optional
            Name for the title; the stored one by default.
        legend : bool, default=True
            Whether to draw the legend.
        **kwargs : dict
            For ``Axes.plot`` of the distribution functions.

        Returns
        -------
        SketchDisplay
            The display.

        Raises
        ------
        ValueError
            If the number of Axes is another one.
        """
        self.axes_ = panel_grid(ax, len(self.cdf), _N_COLUMNS, _PANEL_SIZE, sharey=True)
        self.figure_ = self.axes_[0].figure
        half = n_deviations * self.deviations
        low, high = np.clip(self.measured - half, 0, 1), np.clip(self.measured + half, 0, 1)
        style = {"color": COLORS[0], "label": "sketch"} | kwargs
        self.lines_, self.bands_, self.public_lines_ = [], [], []
        for k, panel in enumerate(self.axes_):
            band = panel.fill_between(
                self.positions[k],
                low[k],
                high[k],
                color=COLORS[5],
                alpha=0.4,
                linewidth=0,
                label=f"measured ± {n_deviations:g} deviations of the noise",
            )
            (line,) = panel.plot(self.positions[k], self.cdf[k], **style)
            self.bands_.append(band)
            self.lines_.append(line)
            if self.public is not None:
                self.public_lines_.append(self._draw_public(panel, k))
            panel.set(xlabel=fill(self.names[k], _WIDTH), ylim=(-0.03, 1.03))
            panel.xaxis.label.set_fontsize("small")
            if is_leftmost(panel):
                panel.set_ylabel("share of rows below")
            panel.margins(x=0)
        if ax is None:
            self._title(self.name if name is None else name, legend)
        elif legend:
            self.axes_[0].legend(loc="lower right", fontsize="small")
        return self

    def _draw_public(self, panel: Any, k: int) -> Any:
        """Draw the share of public rows below each point."""
        rows = self.public[k]  # type: ignore[index]
        ends = self.positions[k][[0, -1]]
        (line,) = panel.plot(
            np.concatenate([ends[:1], rows, ends[1:]]),
            np.concatenate([[0.0], np.arange(1, len(rows) + 1) / len(rows), [1.0]]),
            drawstyle="steps-post",
            color=COLORS[1],
            linewidth=1,
            linestyle="--",
            label="public rows",
        )
        return line

    def _title(self, name: str | None, legend: bool) -> None:
        """Put name and legend above all panels."""
        if name:
            self.figure_.suptitle(name, fontsize="medium")
        if legend:
            artists = [self.lines_[0], self.bands_[0], *self.public_lines_[:1]]
            style = {"loc": "outside lower center", "ncols": 3, "fontsize": "small"}
            self.figure_.legend(handles=artists, **style)


def _sketch_of(estimator: Any) -> SlicedSketch:
    """Return the sketch that an estimator has released."""
    if isinstance(estimator, SlicedSketch):
        return estimator
    check_is_fitted(estimator)
    sketch = getattr(estimator, "sketch_", None)
    if not isinstance(sketch, SlicedSketch):
        raise ValueError(
            f"This {type(estimator).__name__} has no sketch_: it releases none, or was fitted with "
            'another mechanism than "sketch".'
        )
    return sketch


def _slice_numbers(slices: Any, n_slices: int) -> np.ndarray:
    """Return the numbers of the directions to draw."""
    if slices is None:
        return np.arange(min(_PANELS, n_slices))
    chosen = np.atleast_1d(np.asarray(slices))
    whole = chosen.ndim == 1 and chosen.size > 0 and chosen.dtype.kind in "iu"
    if not whole or chosen.min() < 0 or chosen.max() >= n_slices:
        raise ValueError(f"slices must be numbers of directions, from 0 to {n_slices - 1}.")
    return chosen


def _in_units(positions: np.ndarray, directions: np.ndarray, sketch: SlicedSketch) -> np.ndarray:
    """Return positions along axes in the units of the data; the others as they are."""
    on_axis = np.abs(directions).max(axis=1) > 1 - 1e-9
    axis = np.abs(directions).argmax(axis=1)
    sign = np.take_along_axis(directions, axis[:, np.newaxis], axis=1)
    center, scale = sketch.bounds_.center[axis], sketch.bounds_.scale[axis]
    mapped = center[:, np.newaxis] * np.sign(sign) + scale[:, np.newaxis] * positions
    return np.where(on_axis[:, np.newaxis], mapped, positions)
