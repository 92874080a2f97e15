"""What can be read from a closed sketch; all of it is post-processing."""

from pathlib import Path
from typing import Any, Self

import numpy as np
from numpy.typing import ArrayLike
from sklearn.base import BaseEstimator

from skdpot._utils.validation import as_finite, check_is_fitted, validate_rows
from skdpot.exceptions import OpenSketchError
from skdpot.privacy.data_bounds import DataBounds
from skdpot.slicing.decoding import decode, decode_by_class
from skdpot.slicing.merging import check_comparable, merged_fields
from skdpot.slicing.sketch_record import SketchRecord
from skdpot.slicing.strategy import square_root_strategy
from skdpot.slicing.table import CDFTable

__all__ = ["SketchReadings"]


class SketchReadings(BaseEstimator):
    """Methods of `SlicedSketch` that read the released table."""

    directions_: np.ndarray
    half_widths_: np.ndarray
    cdf_: np.ndarray
    class_counts_: np.ndarray
    bounds_: DataBounds
    noise_scale_: float
    n_samples_: int
    statistic_: np.ndarray
    _label_counts: np.ndarray  # only where labels are public

    def merge(self, *others: Self) -> Self:
        """Add sketches of disjoint sets of people, for instance of several hospitals.

        Every party keeps its own full guarantee: the tables are added with the noise that
        each of them has. All must have the same directions (pass one public array as
        `slices`), bins, classes and declared bounds, and agree on whether labels are public.

        Parameters
        ----------
        *others : SlicedSketch
            Closed sketches.

        Returns
        -------
        SlicedSketch
            A closed sketch of all rows together.

        Raises
        ------
        TypeError
            If something else than sketches is given.
        ValueError
            If the sketches do not measure the same statistic.
        """
        for other in others:
            if not isinstance(other, SketchReadings):
                raise TypeError(f"merge adds sketches, not a {type(other).__name__}.")
        parties = (self, *others)
        for party in parties:
            party._check_readable()
        check_comparable(parties)
        merged: Self = self._restored(self.get_params(), merged_fields(parties))
        return merged

    def cdf(self, x: ArrayLike, *, label: Any = None) -> np.ndarray:
        """Distribution functions of the projections of the mapped rows.

        Parameters
        ----------
        x : array-like of shape (n_points,)
            Positions.
        label : optional
            A class; by default all classes together.

        Returns
        -------
        ndarray of shape (n_slices, n_points)
            Values in [0, 1].

        Raises
        ------
        ValueError
            If `x` is no number, or holds something else than finite ones.
        """
        return self.table(label).evaluate(_line(x, "x"))

    def quantiles(self, q: ArrayLike, *, label: Any = None) -> np.ndarray:
        """Quantiles of the projections of the mapped rows.

        Parameters
        ----------
        q : array-like of shape (n_levels,)
            Levels in [0, 1].
        label : optional
            A class; by default all classes together.

        Returns
        -------
        ndarray of shape (n_slices, n_levels)
            Positions in the units of the mapped features, ``(x - center) / scale``.

        Raises
        ------
        ValueError
            If a level is outside [0, 1].
        """
        levels = _line(q, "q", "must hold levels in [0, 1].")
        if not np.all((levels >= 0) & (levels <= 1)):
            raise ValueError("q must hold levels in [0, 1].")
        return self.table(label).quantiles(levels)

    def distance(self, other: Any) -> float:
        """Sliced Wasserstein-2 distance, exact for the two sketches or the sketch and rows.

        Parameters
        ----------
        other : SlicedSketch or array-like of shape (n_samples, n_features)
            A sketch with the same directions and bounds, or **public** rows, which are
            mapped and clipped like the private ones were.

        Returns
        -------
        float
            SW₂ in the units of the mapped features. The noise of a sketch adds to it: two
            sketches of equal data are not at distance zero.

        Raises
        ------
        ValueError
            If the other sketch has other directions, bins or bounds.
        """
        table = self.table()
        if isinstance(other, SketchReadings):
            other._check_readable()
            check_comparable((self, other))
            return float(np.sqrt(table.squared_distances(other.table()).mean()))
        rows = self.bounds_.to_ball(validate_rows(self, other, reset=False))
        widths = self.half_widths_[:, None]
        projections = np.clip(self.directions_ @ rows.T, -widths, widths)
        return float(np.sqrt(table.squared_distances_to_sample(projections).mean()))

    def table(self, label: Any = None) -> CDFTable:
        """Return the distribution functions of one class, or of all together.

        Parameters
        ----------
        label : optional
            A class; by default the mixture of all.

        Returns
        -------
        CDFTable
            Directions, edges and values.

        Raises
        ------
        OpenSketchError
            If the sketch is open.
        ValueError
            If there is no such class.
        """
        self._check_readable()
        if label is None:
            cdf = np.average(self.cdf_, axis=0, weights=self.class_counts_)
        else:
            cdf = self.cdf_[self._position(label)]
        return CDFTable(self.directions_, self.half_widths_, cdf)

    def save(self, path: str | Path) -> None:
        """Write the closed sketch as a ``.safetensors`` file; nothing in it is a pickle.

        Parameters
        ----------
        path : str or Path
            File to write; an existing file is replaced.
        """
        self._check_readable()
        SketchRecord.of(self).save(path)

    @classmethod
    def load(cls, path: str | Path) -> Self:
        """Read a sketch that `save` wrote; the file is validated and runs no code.

        Parameters
        ----------
        path : str or Path
            File to read.

        Returns
        -------
        SlicedSketch
            A closed sketch.

        Raises
        ------
        ValueError
            If the file is not a sketch of a known version.
        """
        parameters, fitted = SketchRecord.load(path).restore()
        arrays = {k: v.copy() for k, v in fitted.items() if isinstance(v, np.ndarray)}
        loaded: Self = cls._restored(
            parameters | {"slices": arrays["directions_"]}, fitted | arrays
        )
        return loaded

    @classmethod
    def _restored(cls, parameters: dict[str, Any], fitted: dict[str, Any]) -> Self:
        """Make a closed sketch from its parameters and released values."""
        sketch = cls(**parameters)
        sketch.__dict__.update(fitted)
        sketch._decode()
        return sketch

    def _decode(self) -> None:
        """Store what follows from the released table."""
        strategy = square_root_strategy(self.statistic_.shape[-1])
        measured = (self.noise_scale_, self.directions_, self.half_widths_)
        if hasattr(self, "_label_counts"):
            counts = self._label_counts
            self.cdf_ = decode_by_class(self.statistic_, strategy, counts, *measured)
            self.class_counts_ = counts.astype(np.float64)
        else:
            self.cdf_, self.class_counts_ = decode(
                self.statistic_, strategy, self.n_samples_, *measured
            )

    @property
    def _is_open(self) -> bool:
        return hasattr(self, "_accumulator")

    def _position(self, label: Any) -> int:
        # Not by ``==`` on the array, which broadcasts against a label that is an array too.
        known = getattr(self, "classes_", np.array([])).tolist()
        matches = [position for position, one in enumerate(known) if _is_label(one, label)]
        if not matches:
            raise ValueError(
                "label is not a class of this sketch; classes_ lists them (a sketch has "
                "classes when it is fitted with conditional=True)."
            )
        return matches[0]

    def _check_readable(self) -> None:
        if self._is_open:
            raise OpenSketchError(
                "This sketch is open: reading it while rows are added would reveal them. "
                "Call close() first."
            )
        check_is_fitted(self, "statistic_")


def _line(values: Any, name: str, must: str = "must hold finite numbers.") -> np.ndarray:
    """Return one number or several as an array of one axis."""
    numbers = np.atleast_1d(as_finite(values, name, must))
    if numbers.ndim > 1:
        raise ValueError(f"{name} must hold numbers along one axis; got shape {numbers.shape}.")
    return numbers


def _is_label(known: Any, label: Any) -> bool:
    """Whether what was given is this class."""
    try:
        return bool(np.ndim(label) == 0 and known == label)
    except (TypeError, ValueError):
        return False
