"""Bounds of rows: the set that every private row is mapped into, and the parameters for it."""

import math
from collections.abc import Sequence
from dataclasses import dataclass
from numbers import Real
from typing import Any

import numpy as np
import numpy.typing as npt

from skdpot._utils.arrays import FloatArray
from skdpot._utils.parameters import Interval, StrOptions
from skdpot._utils.streams import Streams
from skdpot.privacy.events import Event
from skdpot.privacy.noise import check_positive
from skdpot.sources.rows import Rows

_LARGEST_NORM = 1e30


@dataclass(frozen=True, eq=False)
class DataBounds:
    """An affine map ``u = (x - center) / scale`` and the set that ``u`` is clipped to.

    The map acts on each row alone, so changing one record changes one mapped row.

    Parameters
    ----------
    center : array-like of shape (n_features,)
        Subtracted from each row.
    scale : array-like of shape (n_features,)
        Positive divisors.
    radius : float
        Every mapped row has an L2 norm of at most `radius`.
    box : bool, default=False
        Whether rows are clipped feature by feature to the cube inscribed in the ball,
        ``|u_j| <= radius / sqrt(n_features)``, rather than shortened to the ball.

    Raises
    ------
    ValueError
        If a value is not finite, a scale or the radius is not positive, or the shapes differ.
    """

    center: FloatArray
    scale: FloatArray
    radius: float
    box: bool = False

    def __post_init__(self) -> None:
        """Check the fields and make the arrays read-only."""
        # Adding zero turns -0.0 into 0.0: equal bounds must have equal hashes.
        center, scale = (np.array(v, dtype=np.float64) + 0.0 for v in (self.center, self.scale))
        if center.ndim != 1 or center.size == 0 or center.shape != scale.shape:
            raise ValueError(
                "`center` and `scale` must be one-dimensional, of the same length and not empty; "
                f"got shapes {center.shape} and {scale.shape}."
            )
        if not (np.isfinite(center).all() and np.isfinite(scale).all() and (scale > 0).all()):
            raise ValueError("`center` must be finite and `scale` finite and positive.")
        check_positive(radius=self.radius)
        center.setflags(write=False)
        scale.setflags(write=False)
        object.__setattr__(self, "center", center)
        object.__setattr__(self, "scale", scale)
        object.__setattr__(self, "radius", float(self.radius))
        object.__setattr__(self, "box", bool(self.box))

    @classmethod
    def from_box(cls, low: npt.ArrayLike, high: npt.ArrayLike, n_features: int) -> "DataBounds":
        """Map the public box ``low <= x <= high`` to the cube [-1, 1]^n_features.

        Parameters
        ----------
        low, high : float or array-like of shape (n_features,)
            Public limits of the features, known without looking at the data.
        n_features : int
            Number of features.

        Returns
        -------
        DataBounds

        Raises
        ------
        ValueError
            If a limit is not finite, has the wrong length, or ``low >= high``.
        """
        low_array, high_array = _limit("low", low, n_features), _limit("high", high, n_features)
        wrong = np.flatnonzero(low_array >= high_array)
        if wrong.size:
            j = int(wrong[0])
            raise ValueError(
                "`bounds` must satisfy low < high for every feature, got "
                f"low={low_array[j]:g} and high={high_array[j]:g} for feature {j}."
            )
        # Halving first keeps the difference of two huge limits finite.
        center, scale = low_array / 2 + high_array / 2, high_array / 2 - low_array / 2
        return cls(center, scale, math.sqrt(n_features), box=True)

    @classmethod
    def from_norm(cls, norm_bound: float, n_features: int) -> "DataBounds":
        """Keep the rows as they are, shortened to the public norm `norm_bound`.

        Parameters
        ----------
        norm_bound : float
            Public L2 norm that no row exceeds, or is shortened to.
        n_features : int
            Number of features.

        Returns
        -------
        DataBounds

        Raises
        ------
        ValueError
            If `norm_bound` is not positive and finite.
        """
        check_positive(norm_bound=norm_bound)
        return cls(np.zeros(n_features), np.ones(n_features), float(norm_bound))

    @property
    def n_features(self) -> int:
        """Number of features."""
        return self.center.size

    def to_ball(self, X: npt.NDArray[Any]) -> npt.NDArray[Any]:
        """Map rows and clip each of them.

        Parameters
        ----------
        X : ndarray of shape (n_samples, n_features)
            Finite values; float32 stays float32, all else becomes float64.

        Returns
        -------
        ndarray of shape (n_samples, n_features)
            Rows ``u`` with ``norm(u) <= radius``, inside the cube when `box` is true.
        """
        dtype = X.dtype if X.dtype in (np.float32, np.float64) else np.dtype(np.float64)
        if X.ndim != 2 or X.shape[1] != self.n_features:
            raise ValueError(f"`X` must have shape (n, {self.n_features}), got {X.shape}.")
        with np.errstate(over="ignore"):
            # Subtracting in double precision keeps features with a large offset exact.
            mapped = np.subtract(X, self.center, dtype=np.float64, casting="unsafe")
            mapped /= self.scale
        if self.box:
            side = self.radius / math.sqrt(self.n_features)
            return _round_inwards(np.clip(mapped, -side, side, out=mapped), side, dtype)
        return self._shorten(mapped).astype(dtype, copy=False)

    def _shorten(self, mapped: FloatArray) -> FloatArray:
        """Scale the rows beyond the radius back, up to a rounding error inside it."""
        # All rows are clipped, not only those whose squares would overflow: the arithmetic of a
        # row must not depend on other rows.
        limit = 1e100 * self.radius
        np.clip(mapped, -limit, limit, out=mapped)
        squares = np.einsum("ij,ij->i", mapped, mapped)
        inside = self.radius * (1 - 4 * float(np.finfo(np.float32).eps))
        beyond = np.flatnonzero(squares > inside * inside)
        mapped[beyond] *= (inside / np.sqrt(squares[beyond]))[:, None]
        return mapped

    def from_ball(self, U: npt.NDArray[Any]) -> npt.NDArray[Any]:
        """Map points of the ball back to the units of the data.

        Parameters
        ----------
        U : ndarray of shape (n_samples, n_features)
            Mapped points.

        Returns
        -------
        ndarray of shape (n_samples, n_features)
            ``center + scale * U``, in the precision of `U`.
        """
        dtype = U.dtype if U.dtype in (np.float32, np.float64) else np.dtype(np.float64)
        return (U * self.scale + self.center).astype(dtype, copy=False)

    def settled(self, rows: npt.NDArray[Any] | Rows, streams: Streams) -> "DataBounds":
        """Return these bounds, which are declared; `BoundsPlan.settled` releases estimated ones."""
        return self

    def before(self, event: Event) -> Event:
        """Return the event of a fit with these bounds; declared bounds add no cost."""
        return event

    def to_units(self, rows: FloatArray) -> FloatArray:
        """Map rows into the ball and scale it to the radius √d, the units of networks.

        A box becomes [-1, 1] along every feature. In a ball the root mean square of the features is
        at most 1. Every row is mapped by itself.
        """
        return self.to_ball(rows) * (math.sqrt(self.n_features) / self.radius)

    def from_units(self, values: FloatArray) -> FloatArray:
        """Map outputs of a network to the units of the data, clipped to the bounds."""
        rows = self.from_ball(values * (self.radius / math.sqrt(self.n_features)))
        return self.from_ball(self.to_ball(rows))

    def __eq__(self, other: object) -> bool:
        """Compare by value."""
        return self._key() == other._key() if isinstance(other, DataBounds) else NotImplemented

    def __hash__(self) -> int:
        """Hash by value."""
        return hash(self._key())

    def _key(self) -> tuple[bytes, bytes, float, bool]:
        return self.center.tobytes(), self.scale.tobytes(), self.radius, self.box


def _limit(name: str, value: npt.ArrayLike, n_features: int) -> FloatArray:
    """Return one side of a box as an array of length `n_features`."""
    limit = np.asarray(value, dtype=np.float64)
    if limit.shape not in ((), (1,), (n_features,)):
        raise ValueError(
            f"`bounds`: `{name}` must be a number or have one entry for each of the "
            f"{n_features} features, got shape {limit.shape}."
        )
    if not np.isfinite(limit).all():
        raise ValueError(f"`bounds`: `{name}` must be finite.")
    return np.broadcast_to(limit, (n_features,))


def _round_inwards(mapped: FloatArray, side: float, dtype: np.dtype[Any]) -> npt.NDArray[Any]:
    """Cast to `dtype` without leaving the cube by rounding up."""
    if dtype == np.float64:
        return mapped
    edge = np.float32(side)
    if float(edge) > side:  # compared as float32, the two would be equal
        edge = np.nextafter(edge, np.float32(0))
    return np.clip(mapped.astype(np.float32), -edge, edge)


def public_bounds(
    bounds: str | DataBounds | Sequence[npt.ArrayLike], norm_bound: float | None, n_features: int
) -> DataBounds | None:
    """Return the bounds that ``bounds=`` and ``norm_bound=`` declare; None for private ones."""
    if norm_bound is not None and not isinstance(bounds, str):
        raise ValueError(
            "bounds=(low, high) and norm_bound= exclude each other; give only one of them."
        )
    if isinstance(bounds, str):
        if norm_bound is None:
            return None
        _check_resolved("norm_bound", norm_bound)
        return DataBounds.from_norm(norm_bound, n_features)
    if isinstance(bounds, DataBounds):
        if bounds.n_features != n_features:
            raise ValueError(f"bounds maps {bounds.n_features} features and X has {n_features}.")
        _check_resolved("The radius of bounds", bounds.radius)
        return bounds
    if len(bounds) != 2:
        raise ValueError(
            f'bounds has {len(bounds)} entries; it must be "private" or a pair (low, high) of '
            "numbers or of arrays with one number per feature."
        )
    return DataBounds.from_box(bounds[0], bounds[1], n_features)


def _check_resolved(name: str, radius: float) -> None:
    """Refuse a radius that is too small or too large for single precision."""
    if not 1 / _LARGEST_NORM <= radius <= _LARGEST_NORM:
        raise ValueError(
            f"{name}={radius!r} must lie between {1 / _LARGEST_NORM:g} and {_LARGEST_NORM:g}, "
            "where single precision resolves it; change the unit of X."
        )


# Constraints of the parameters by which every estimator of rows learns their range.
ROW_BOUNDS: dict[str, list[Any]] = {
    "bounds": [StrOptions({"private"}), tuple, list, DataBounds],
    "norm_bound": [Interval(Real, 0, None, closed="neither"), None],
}
