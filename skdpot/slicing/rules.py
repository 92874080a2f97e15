"""Public rules for the shape of a sketch: how many directions, how many bins, how wide."""

import math
from typing import Any

import numpy as np

from skdpot.privacy.data_bounds import DataBounds

__all__ = [
    "projection_half_widths",
    "public_bounds",
    "recommended_bins",
    "recommended_distance_slices",
    "recommended_slices",
]

_SPREADS = 3.5
_LARGEST_NORM = 1e30
_SIGNAL_PER_BLOCK = 25.0
_MOST_SLICES = 1024
_SIGNAL_PER_DISTANCE_BLOCK = 500.0
_MOST_DISTANCE_SLICES = 256
_BINS_BELOW = ((100.0, 16), (2000.0, 32), (math.inf, 64))


def public_bounds(bounds: Any, norm_bound: float | None, n_features: int) -> DataBounds | None:
    """Read the ``bounds=`` and ``norm_bound=`` parameters.

    Parameters
    ----------
    bounds : "private", (low, high) or DataBounds
        Range of each feature, or the whole map, if it is public.
    norm_bound : float or None
        Norm of every row, if it is public.
    n_features : int
        Number of features.

    Returns
    -------
    DataBounds or None
        None when bounds have to be estimated privately.

    Raises
    ------
    ValueError
        If both are given, the limits do not make a box, or the map is of other features.
    """
    if isinstance(bounds, str):
        if norm_bound is not None and not 1 / _LARGEST_NORM <= norm_bound <= _LARGEST_NORM:
            raise ValueError(
                f"norm_bound={norm_bound!r} must lie between {1 / _LARGEST_NORM:g} and "
                f"{_LARGEST_NORM:g}, where single precision resolves it; change the unit of X."
            )
        return None if norm_bound is None else DataBounds.from_norm(norm_bound, n_features)
    if norm_bound is not None:
        raise ValueError(
            "bounds=(low, high) and norm_bound= are two ways to say the same; give only one."
        )
    if isinstance(bounds, DataBounds):
        return _checked_map(bounds, n_features)
    if len(bounds) != 2:
        raise ValueError(
            f'bounds has {len(bounds)} entries; it must be "private" or a pair (low, high) of '
            "numbers or of arrays with one number a feature."
        )
    return DataBounds.from_box(bounds[0], bounds[1], n_features)


def _checked_map(bounds: DataBounds, n_features: int) -> DataBounds:
    """Refuse a map of other features, or to a ball that arithmetic does not resolve."""
    if bounds.n_features != n_features:
        raise ValueError(
            f"bounds maps {bounds.n_features} features and X has {n_features}; both must have the "
            "same."
        )
    if not 1 / _LARGEST_NORM <= bounds.radius <= _LARGEST_NORM:
        raise ValueError(
            f"bounds has radius {bounds.radius!r}, which must lie between {1 / _LARGEST_NORM:g} "
            f"and {_LARGEST_NORM:g}."
        )
    return bounds


def projection_half_widths(bounds: DataBounds, directions: np.ndarray) -> np.ndarray:
    """Return the half width w of the binned range along each direction.

    ``min(R, 3.5 R / sqrt(d))``, and in a box no more than its own extent along the
    direction, ``side * ‖θ‖₁``. Projections of points spread over a ball of radius R in d
    dimensions have a standard deviation near ``R / sqrt(d)``: binning the whole diameter
    would leave most bins empty in high dimension. What falls beyond is counted in the end
    bins, at no privacy cost.

    Parameters
    ----------
    bounds : DataBounds
        Public (or paid for) bounds of the rows.
    directions : ndarray of shape (n_slices, n_features)
        Unit rows.

    Returns
    -------
    ndarray of shape (n_slices,)
        Half widths.
    """
    root = math.sqrt(bounds.n_features)
    widths = np.full(len(directions), min(bounds.radius, _SPREADS * bounds.radius / root))
    if bounds.box:
        widths = np.minimum(widths, bounds.radius / root * np.abs(directions).sum(axis=1))
    return widths


def recommended_slices(n_samples: int, n_features: int, mu: float, n_classes: int = 1) -> int:
    """Return the number of slices that ``n_slices="auto"`` stands for.

    One orthogonal block of directions for every 25 units of ``n mu / C``, at least one and
    at most about 1024 directions: what a class's rows can pay for. The constant is the
    public outcome of ``examples/benchmarks/bench_sketch_shape.py``; see the user guide.

    Parameters
    ----------
    n_samples, n_features : int
        Public size of the data, n and d.
    mu : float
        Gaussian privacy parameter of the sketch; infinite without privacy.
    n_classes : int, default=1
        Number of classes C.

    Returns
    -------
    int
        A multiple of `n_features`; 1 for one feature.
    """
    if n_features == 1:
        return 1  # there is no other direction
    most = max(1, _MOST_SLICES // n_features)
    blocks = n_samples * mu / n_classes / _SIGNAL_PER_BLOCK
    return n_features * int(min(max(blocks, 1), most))


def recommended_distance_slices(n_samples: int, n_features: int, mu: float) -> int:
    """Return a number of slices for sketches that are made to be compared.

    One orthogonal block of directions for every 500 units of ``n mu``, at least two (the first
    may be the axes, which see no dependence between features) and at most about 256 directions:
    a twentieth of what a sampler uses. Whole blocks see a shift without error, and the noise of
    its size does not depend on their number; but the smallest distance that stands out of the
    noise grows with it, and more directions show more shapes. The constants are outcomes of
    ``examples/benchmarks/bench_sliced_distance.py``.

    Parameters
    ----------
    n_samples, n_features : int
        Public size of the data of the smallest party, n and d.
    mu : float
        Gaussian privacy parameter of its sketch; infinite without privacy.

    Returns
    -------
    int
        A multiple of `n_features`.
    """
    most = max(1, _MOST_DISTANCE_SLICES // n_features)
    blocks = n_samples * mu / _SIGNAL_PER_DISTANCE_BLOCK
    return n_features * int(min(max(blocks, 2), most))


def recommended_bins(n_samples: int, n_features: int, mu: float, n_classes: int = 1) -> int:
    """Return the number of bins that ``n_bins="auto"`` stands for.

    16 while ``n mu / C`` is below 100, 32 below 2,000, and 64 from there on. The noise of a
    distribution function grows only logarithmically with the bins, but below the noise there
    is nothing fine to see.

    Parameters
    ----------
    n_samples, n_features : int
        Public size of the data, n and d.
    mu : float
        Gaussian privacy parameter of the sketch; infinite without privacy.
    n_classes : int, default=1
        Number of classes C.

    Returns
    -------
    int
        Bins along each direction.
    """
    signal = n_samples * mu / n_classes
    return next(n_bins for limit, n_bins in _BINS_BELOW if signal < limit or math.isinf(limit))
