"""Picture of synthetic rows beside real ones, column by column."""

from typing import Any, Self

import numpy as np
import pandas as pd

from skdpot.metrics._marginal_panels import draw_marginal, draw_pairs, make_axes
from skdpot.metrics._marginals import (
    Marginal,
    as_columns,
    correlation_differences,
    marginal_of,
    pair_distances,
)

__all__ = ["MarginalsDisplay"]

_MOST_COLUMNS = 40
_PAIRS = {"total_variation": pair_distances, "correlation": correlation_differences}


class MarginalsDisplay:
    """Marginals of synthetic and of real rows, a panel a column, and how pairs of columns differ.

    Make one with `from_frames` or `from_estimator`. Parameters are stored as attributes.

    Parameters
    ----------
    marginals : list of Marginal
        Shares of the values of each column: ``name``, ``kind``, ``values``, ``real``,
        ``synthetic``, ``real_missing``, ``synthetic_missing`` and ``total_variation``.
    pairs : DataFrame of shape (n_columns, n_columns), optional
        A figure for every pair of columns.
    pairs_name : str, optional
        What that figure is.
    labels : tuple of two str, default=("real rows", "synthetic rows")
        What the legend calls them.

    Attributes
    ----------
    axes_ : ndarray of matplotlib Axes
        The panels, in the order of the columns, that of the pairs last.
    figure_ : matplotlib Figure
        Figure that holds them.
    artists_ : dict of str to tuple of two artists
        What was drawn for the real and for the synthetic rows of each column: steps for numbers
        and dates, bars for categories.
    image_ : AxesImage or None
        The pairs.

    See Also
    --------
    train_synthetic_test_real : How useful synthetic rows are.
    SketchDisplay : What a private sketch knows of each column; it needs no public rows.

    Privacy
    -------
    Real rows are treated as public: their shares are drawn, and stored, without noise. A picture
    of private rows is not private, however private the synthetic rows beside them are.

    Examples
    --------
    >>> from sklearn.datasets import load_iris
    >>> from sklearn.model_selection import train_test_split
    >>> from skdpot import DPSlicedFlowSampler
    >>> from skdpot.metrics import MarginalsDisplay
    >>> X, _ = load_iris(return_X_y=True, as_frame=True)
    >>> X_private, X_public = train_test_split(X, random_state=0)
    >>> sampler = DPSlicedFlowSampler(epsilon=20.0, bounds=(0, 8)).fit(X_private)
    >>> display = MarginalsDisplay.from_frames(X_public, sampler.sample(500))
    >>> [marginal.name for marginal in display.marginals][:2]
    ['sepal length (cm)', 'sepal width (cm)']
    """

    def __init__(
        self,
        *,
        marginals: list[Marginal],
        pairs: pd.DataFrame | None = None,
        pairs_name: str | None = None,
        labels: tuple[str, str] = ("real rows", "synthetic rows"),
    ) -> None:
        self.marginals = marginals
        self.pairs = pairs
        self.pairs_name = pairs_name
        self.labels = labels

    @classmethod
    def from_estimator(
        cls,
        sampler: Any,
        real: Any,
        *,
        n_samples: int | None = None,
        random_state: int | np.random.RandomState | None = None,
        **kwargs: Any,
    ) -> Self:
        """Draw rows of a fitted sampler beside real ones.

        Parameters
        ----------
        sampler : estimator
            Fitted, with ``sample(n_samples, random_state=)``.
        real : DataFrame or array-like of shape (n, d)
            **Public** rows.
        n_samples : int, optional
            Number of synthetic rows; by default as many as real ones, but at least 1000, so that
            their own randomness hardly shows.
        random_state : int, RandomState or None, default=None
            For ``sampler.sample``.
        **kwargs : dict
            For `from_frames`.

        Returns
        -------
        MarginalsDisplay
            The display, drawn.

        Privacy
        -------
        Sampling is free. `real` is treated as public.
        """
        size = max(len(real), 1000) if n_samples is None else n_samples
        return cls.from_frames(real, sampler.sample(size, random_state=random_state), **kwargs)

    @classmethod
    def from_frames(
        cls,
        real: Any,
        synthetic: Any,
        columns: Any = None,
        *,
        bins: int = 20,
        pairs: str | None = None,
        ax: Any = None,
        **kwargs: Any,
    ) -> Self:
        """Count both tables on the same bins and draw them.

        Parameters
        ----------
        real : DataFrame (pandas or polars) or array-like of shape (n, d)
            **Public** rows.
        synthetic : DataFrame or array-like of shape (m, d)
            Synthetic rows, with the same columns.
        columns : sequence of column names, optional
            Which to draw; all columns of `real` by default. Those of an array are called ``x0``,
            ``x1`` and so on.
        bins : int, default=20
            Number of bins of numbers. They span the real rows without half a per cent on each
            side; what lies beyond is counted in the end bins. Whole numbers of fewer values have
            a bin each.
        pairs : {"total_variation", "correlation"}, optional
            Adds a map of all pairs of columns: the total variation distance of the two
            bivariate distributions (numbers in 16 bins), or the correlation among the synthetic
            minus that among the real rows (numbers only).
        ax : matplotlib Axes or sequence of them, optional
            See `plot`.
        **kwargs : dict
            For `plot`.

        Returns
        -------
        MarginalsDisplay
            The display, drawn.

        Raises
        ------
        ValueError
            If a table is empty, columns are missing or too many, or a column is of another kind
            in the other table.

        Privacy
        -------
        `real` is treated as public.
        """
        if pairs is not None and pairs not in _PAIRS:
            raise ValueError(f"pairs={pairs!r} must be None or one of {sorted(_PAIRS)}.")
        first, second = as_columns(real, "real"), as_columns(synthetic, "synthetic")
        names = list(first) if columns is None else list(columns)
        _check_columns(names, first, second)
        first, second = ({name: part[name] for name in names} for part in (first, second))
        return cls(
            marginals=[marginal_of(name, first[name], second[name], bins) for name in names],
            pairs=None if pairs is None else _PAIRS[pairs](first, second),
            pairs_name=None if pairs is None else pairs.replace("_", " "),
        ).plot(ax=ax, **kwargs)

    def plot(
        self,
        ax: Any = None,
        *,
        max_categories: int = 10,
        name: str | None = None,
        legend: bool = True,
        **kwargs: Any,
    ) -> Self:
        """Draw the panels.

        Parameters
        ----------
        ax : matplotlib Axes or sequence of them, optional
            One Axes a column, and one for the pairs if there are any; new ones by default.
        max_categories : int, default=10
            At most so many bars; the rarest categories share the last one.
        name : str, optional
            Title of the figure.
        legend : bool, default=True
            Whether to draw the legend.
        **kwargs : dict
            Style of the synthetic rows, such as `color`.

        Returns
        -------
        MarginalsDisplay
            The display.

        Raises
        ------
        ValueError
            If the number of Axes is another one.
        """
        n_columns = len(self.marginals)
        self.axes_ = make_axes(ax, n_columns, self.pairs)
        self.figure_ = self.axes_[0].figure
        self.artists_ = {
            marginal.name: draw_marginal(panel, marginal, max_categories, kwargs)
            for panel, marginal in zip(self.axes_, self.marginals, strict=False)
        }
        self.image_ = None
        if self.pairs is not None:
            self.image_ = draw_pairs(self.axes_[-1], self.pairs, str(self.pairs_name))
        if name and ax is None:
            self.figure_.suptitle(name, fontsize="medium")
        if legend:
            handles = list(self.artists_[self.marginals[0].name])
            texts = list(self.labels)
            if ax is None:
                options = {"loc": "outside lower center", "ncols": 2, "fontsize": "small"}
                self.figure_.legend(handles, texts, **options)
            else:
                self.axes_[0].legend(handles, texts, fontsize="small")
        return self


def _check_columns(names: list[Any], real: dict[Any, Any], synthetic: dict[Any, Any]) -> None:
    """Refuse columns that are not there, or too many of them."""
    absent = [name for name in names if name not in real or name not in synthetic]
    if absent:
        raise ValueError(f"Both tables must have the columns {absent}; name others in columns=.")
    if not 1 <= len(names) <= _MOST_COLUMNS or len(set(names)) < len(names):
        raise ValueError(
            f"columns must name 1 to {_MOST_COLUMNS} different columns, and holds {len(names)}."
        )
