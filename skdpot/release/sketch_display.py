"""Display of a sketch: distribution functions along some of its directions."""

from dataclasses import dataclass
from textwrap import fill
from typing import TYPE_CHECKING, Any, Self

import numpy as np
from numpy.typing import ArrayLike
from sklearn.base import BaseEstimator

from skdpot._utils.panels import COLORS, PanelDisplay, feature_labels, label_panel
from skdpot._utils.parameters import check_is_fitted
from skdpot._utils.rows import validate_rows
from skdpot.release.decoding import measured_cdf
from skdpot.release.sketch import SlicedSketch

if TYPE_CHECKING:
    from skdpot._utils.panels import AxesLike

_DIRECTIONS = 6  # drawn by default
_CDF_SIZE = (3.1, 2.6)  # inches
_N_COLUMNS = 3
_MOST_TERMS = 2  # in the name of a direction
_SMALL_WIDTH = 40  # characters per line of a label in the small font


@dataclass(kw_only=True, eq=False, repr=False)
class SketchDisplay(PanelDisplay):
    """Distribution functions of a sketch along some directions, with bands of its noise.

    Create one with `from_estimator`. Parameters are stored as attributes.

    Parameters
    ----------
    positions : ndarray of shape (n_panels, n_bins + 1)
        Bin edges: in the units of the data along an axis, and of the mapped features along
        other directions.
    cdf, measured, deviations : ndarray of shape (n_panels, n_bins + 1)
        Distribution functions of the sketch, smoothed and monotone; the noisy measurements that
        they were estimated from; and the standard deviations of their noise.
    names : sequence of str
        Labels of the horizontal axes.
    projections : ndarray of shape (n_panels,), optional
        Numbers of the directions.
    public : ndarray of shape (n_panels, n_rows), optional
        Sorted positions of public rows to compare with.
    name : str, optional
        Name for the title.

    Attributes
    ----------
    axes_, figure_ : ndarray of matplotlib Axes, Figure
        The panels.
    lines_, bands_, public_lines_ : list of artists
        The distribution functions, the bands of their noise, and the functions of public rows.

    Privacy
    -------
    The sketch is post-processed, at no privacy cost. Public rows are drawn without noise.

    Notes
    -----
    At each bin edge the band contains the true share of rows with probability 95 % (for the default
    of two standard deviations). It is centered at the noisy measurement and clipped to [0, 1]. The
    line is the estimate of the sketch from all directions together, which is closer to the truth.

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
    projections: np.ndarray | None = None
    public: np.ndarray | None = None
    name: str | None = None

    @classmethod
    def from_estimator(
        cls,
        estimator: BaseEstimator,
        *,
        projections: ArrayLike | int | None = None,
        label: Any = None,
        X: ArrayLike | None = None,
        name: str | None = None,
        **kwargs: Any,
    ) -> Self:
        """Draw a sketch, or the sketch that a fitted estimator released; return the display.

        Parameters
        ----------
        estimator : SlicedSketch or estimator
            Closed sketch, or an estimator with a ``sketch_``.
        projections : int or sequence of int, optional
            Numbers of the directions to draw; the first six by default.
        label : label, optional
            A class; by default all together.
        X : array-like of shape (n_rows, n_features), optional
            **Public** rows to compare with; they are mapped and clipped as the private ones were.
        name : str, optional
            Name for the title; that of the class by default.
        **kwargs : dict
            For `plot`, such as `ax`.

        Raises
        ------
        OpenSketchError, ValueError
            If the sketch is open, or if the sketch, the direction, the class or a feature of `X`
            does not exist.
        """
        check_is_fitted(estimator)
        is_sketch = isinstance(estimator, SlicedSketch)
        sketch = estimator if is_sketch else getattr(estimator, "sketch_", None)
        if not isinstance(sketch, SlicedSketch):
            raise ValueError(
                f"This {type(estimator).__name__} has no sketch_: it releases no sketch, or was "
                'fitted with a mechanism other than "sketch".'
            )
        table = sketch.table(label)
        chosen = _direction_numbers(projections, len(table.cdf))
        measured, deviations = measured_cdf(sketch, label)
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
            positions=_in_units(table.edges[chosen], directions, sketch),
            cdf=table.cdf[chosen],
            measured=measured[chosen],
            deviations=deviations[chosen],
            names=[direction_name(direction, names) for direction in directions],
            projections=chosen,
            public=public,
            name=name,
        ).plot(**kwargs)

    def plot(
        self,
        ax: "AxesLike" = None,
        *,
        n_deviations: float = 2.0,
        name: str | None = None,
        legend: bool = True,
        **kwargs: Any,
    ) -> Self:
        """Draw the panels and return the display.

        Parameters
        ----------
        ax : matplotlib Axes or sequence of them, optional
            One Axes per direction; new ones by default.
        n_deviations : float, default=2
            Half height of the bands, in standard deviations of the noise.
        name, legend : str, bool, optional
            Name for the title, by default the stored one, and whether to draw the legend.
        **kwargs : dict
            For ``Axes.plot`` of the distribution functions.
        """
        self._take_axes(ax, len(self.cdf), _N_COLUMNS, _CDF_SIZE, sharey=True)
        reaches = (self.measured + n * self.deviations for n in (-n_deviations, n_deviations))
        low, high = (np.clip(reach, 0, 1) for reach in reaches)
        style = {"color": COLORS[0], "label": "sketch"} | kwargs
        shade = {"color": COLORS[5], "alpha": 0.4, "linewidth": 0}
        shade["label"] = f"measured ± {n_deviations:g} deviations of the noise"
        dashes = {"color": COLORS[1], "linewidth": 1, "linestyle": "--", "label": "public rows"}
        dashes["drawstyle"] = "steps-post"
        self.lines_, self.bands_, self.public_lines_ = [], [], []
        for k, panel in enumerate(self.axes_):
            self.bands_.append(panel.fill_between(self.positions[k], low[k], high[k], **shade))
            self.lines_ += panel.plot(self.positions[k], self.cdf[k], **style)
            if self.public is not None:
                rows, (first, *_, last) = self.public[k], self.positions[k]
                shares = np.append(np.arange(len(rows) + 1) / len(rows), 1.0)
                self.public_lines_ += panel.plot([first, *rows, last], shares, **dashes)
            panel.set_ylim(-0.03, 1.03)
            label_panel(panel, fill(self.names[k], _SMALL_WIDTH), "share of rows below")
            panel.xaxis.label.set_fontsize("small")
            panel.margins(x=0)
        handles = [self.lines_[0], self.bands_[0], *self.public_lines_[:1]] if legend else ()
        self._add_title_and_legend(ax, name, handles)
        return self


def _direction_numbers(projections: Any, n_projections: int) -> np.ndarray:
    if projections is None:
        return np.arange(min(_DIRECTIONS, n_projections))
    chosen = np.atleast_1d(np.asarray(projections))
    whole = chosen.ndim == 1 and chosen.size > 0 and chosen.dtype.kind in "iu"
    if not whole or chosen.min() < 0 or chosen.max() >= n_projections:
        raise ValueError(
            f"projections must be numbers of directions, from 0 to {n_projections - 1}."
        )
    return chosen


def _in_units(positions: np.ndarray, directions: np.ndarray, sketch: SlicedSketch) -> np.ndarray:
    """Return positions along axes in the units of the data; other positions are unchanged."""
    axis = np.abs(directions).argmax(axis=1)[:, np.newaxis]
    along = np.take_along_axis(directions, axis, axis=1)
    mapped = sketch.bounds_.center[axis] * np.sign(along) + sketch.bounds_.scale[axis] * positions
    return np.where(np.abs(along) > 1 - 1e-9, mapped, positions)


def direction_name(direction: np.ndarray, names: list[str]) -> str:
    """Return a direction as a sum of features, with the largest terms first."""
    order = np.argsort(-np.abs(direction), kind="stable")
    present = [k for k in order.tolist() if abs(direction[k]) > 1e-9]
    if len(present) == 1 and direction[present[0]] > 0:
        return names[present[0]]
    signs = np.where(direction < 0, "−", "+")
    terms = [f"{signs[k]} {abs(direction[k]):.2f} {names[k]}" for k in present[:_MOST_TERMS]]
    terms[0] = terms[0][2:] if signs[present[0]] == "+" else f"−{terms[0][2:]}"
    return " ".join(terms) + (" + …" if len(present) > _MOST_TERMS else "")
