"""The bounded set that every private record is mapped into: public, or estimated privately.

Private bounds are found in two ways, chosen by a public rule:

- *features*: for each feature a histogram of the differences of random pairs, on a grid of powers
  of two, gives its spread; then a histogram of the feature itself, on a grid whose cells are one
  spread wide or narrower, gives its centre. The cells of the second depend on the first release
  only (adaptive composition).
- *norm*: one histogram of row norms gives a radius. It needs far fewer rows.

For columns of a table, `release_ranges` reads two bounds that hold nearly all values from the same
histograms. `skdpot.release.value_histogram` has their sensitivity.
"""

import math
from collections.abc import Sequence
from dataclasses import dataclass
from functools import partial
from typing import Any, Literal

import numpy as np
import numpy.typing as npt
from scipy.special import ndtri

from skdpot._utils.validation import Streams
from skdpot.exceptions import warn_of_privacy
from skdpot.privacy.events import ComposedEvent, Event, GaussianEvent, NonPrivateEvent
from skdpot.privacy.noise import calibrate_lattice, check_counts, check_positive
from skdpot.release.value_histogram import (
    Counting,
    FloatArray,
    IntArray,
    MagnitudeGrid,
    SignedGrid,
    Smoothing,
    noisy_histogram,
    noisy_quantiles,
)
from skdpot.sources import HeldRows, Rows, SourceRows

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
        # Of all rows, whether or not a square would overflow: no row's arithmetic may depend
        # on what other rows hold.
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
        """Return the bounds, which are known; `BoundsPlan.settled` releases them."""
        return self

    def before(self, event: Event) -> Event:
        """Return the cost of a fit with these bounds, which are free."""
        return event

    def to_units(self, rows: FloatArray) -> FloatArray:
        """Map rows into the ball, scaled to the radius √d: units of networks.

        A box becomes [-1, 1] along every feature; in a ball the features have a root mean square of
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


def public_bounds(bounds: Any, norm_bound: float | None, n_features: int) -> DataBounds | None:
    """Read the ``bounds=`` and ``norm_bound=`` parameters."""
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
    """Refuse a ball that single precision does not resolve."""
    if not 1 / _LARGEST_NORM <= radius <= _LARGEST_NORM:
        raise ValueError(
            f"{name}={radius!r} must lie between {1 / _LARGEST_NORM:g} and {_LARGEST_NORM:g}, "
            "where single precision resolves it; change the unit of X."
        )


MAX_AUTO_FEATURES = 32
_LARGEST_SHARE, _SMALLEST_SHARE = 0.1, 0.002  # of the squared mu of a whole fit
_ROWS_OVER_NOISE = 27.0
# There are half as many pairs as rows: the first histogram needs more of the budget.
_SPREAD_SHARE = 2 / 3
# Rows beyond this many times the noise would cost time and add no accuracy.
_ROWS_PER_SIGMA, _MIN_ROWS_USED = 1000, 2**17
_FINE_PAIRS_PER_SIGMA = 200
_NORM_TAIL, _LARGEST_NORM_TAIL = 0.03, 0.25

_VALUES = SignedGrid()  # in units of ``spread / cells_per_spread``
_NORMS = MagnitudeGrid(per_octave=4)


@dataclass(frozen=True, kw_only=True)
class BoundsPlan:
    """The public part of a release of private bounds, fixed before any row is read.

    "features" finds the centre and spread of each feature, "norm" one radius. `noises` belong to
    the histograms of pair differences and of values, or of norms; it is empty without privacy.
    """

    mode: Literal["features", "norm"]
    n_samples: int
    n_features: int
    noises: tuple[GaussianEvent, ...]
    centers: bool

    @property
    def event(self) -> Event:
        """The charge for the whole release."""
        if not self.noises:
            return NonPrivateEvent()
        return self.noises[0] if len(self.noises) == 1 else ComposedEvent(events=self.noises)

    def before(self, event: Event) -> Event:
        """Return the cost of a fit that estimates its bounds first."""
        return ComposedEvent(events=(self.event, event))

    def settled(self, rows: npt.NDArray[Any] | Rows, streams: Streams) -> DataBounds:
        """Release the bounds; the caller has charged `event`."""
        if isinstance(rows, SourceRows):
            raise NotImplementedError("private bounds of rows in batches")
        held: Any = rows.value if isinstance(rows, HeldRows) else rows
        return release_private_bounds(held, self, streams)

    @property
    def n_used(self) -> int:
        """Number of rows that the histograms count."""
        if not self.noises:
            return self.n_samples
        enough = math.ceil(_ROWS_PER_SIGMA * self.noises[0].sigma)
        return min(self.n_samples, max(enough, _MIN_ROWS_USED))

    @property
    def fine(self) -> bool:
        """Whether the noise is small enough, beside the pairs, for narrower cells."""
        return not self.noises or self.n_used // 2 >= _FINE_PAIRS_PER_SIGMA * self.noises[0].sigma

    @property
    def cells_per_spread(self) -> int:
        """Cells of the second histogram that make up one spread."""
        return 4 if self.fine else 1

    @property
    def grids(self) -> tuple[MagnitudeGrid | SignedGrid, ...]:
        """Cells of the histograms of pair differences and of values, or of norms."""
        return (_NORMS,) if self.mode == "norm" else (MagnitudeGrid(2 if self.fine else 1), _VALUES)

    @property
    def smoothings(self) -> tuple[Smoothing, ...]:
        """How their tables are cleaned: windows of one or two octaves, or 2 to 3 spreads."""
        if self.mode == "norm":
            return (Smoothing(window=4, margin=1, n_candidates=_NORMS.n_cells),)
        pairs, values = (self.n_features * grid.n_cells for grid in self.grids)
        octaves, window = 2 * (2 if self.fine else 1), 8 if self.fine else 3
        return (
            Smoothing(window=octaves, margin=octaves, n_candidates=pairs),
            Smoothing(window=window, margin=5 * self.cells_per_spread, n_candidates=values),
        )

    @property
    def norm_level(self) -> float:
        """Share of the rows in the radius, lower when the noise hides the rest."""
        # Three standard deviations of a count are the noise of a sum over nine cells.
        hidden = 3 * self.noises[0].sigma / self.n_used if self.noises else 0.0
        return 1 - min(max(_NORM_TAIL, hidden), _LARGEST_NORM_TAIL)

    @property
    def clears_threshold(self) -> bool:
        """Whether features of ordinary shape are expected to stand out from the noise."""
        # Windows with 40 % of the pairs and 60 % of the rows, and two standard deviations to spare.
        shares = (0.4 * (self.n_used // 2), 0.6 * self.n_used)
        return all(
            mass >= (smoothing.z + 2) * math.sqrt(smoothing.window) * noise.sigma
            for mass, smoothing, noise in zip(shares, self.smoothings, self.noises, strict=False)
        )


def bounds_share(n_samples: int, n_features: int, mu: float, group_size: int = 1) -> float:
    """Return the share of the squared mu of a fit that its private bounds get.

    The noise of a count is then a third of the square root of the number of rows, comparable to
    sampling variation: 10 % for few rows, .3 % at epsilon = 1 for a million rows of 8 features.
    """
    n_histograms = n_features if n_features <= MAX_AUTO_FEATURES else 1
    enough = _ROWS_OVER_NOISE * n_histograms * (group_size / mu) ** 2 / n_samples
    return min(max(enough, _SMALLEST_SHARE), _LARGEST_SHARE)


def planned_bounds(
    bounds: DataBounds | int, n_features: int, mu: float, group_size: int = 1
) -> DataBounds | BoundsPlan:
    """Return public bounds as they are, or plan their estimation from so many rows."""
    if isinstance(bounds, DataBounds):
        return bounds
    of_bounds = mu * math.sqrt(bounds_share(bounds, n_features, mu, group_size))
    return plan_private_bounds(bounds, n_features, of_bounds, group_size=group_size)


def plan_private_bounds(
    n_samples: int,
    n_features: int,
    mu: float,
    *,
    mode: Literal["auto", "features", "norm"] = "auto",
    centers: bool = True,
    group_size: int = 1,
) -> BoundsPlan:
    """Fix the procedure and the cost of a release of bounds."""
    check_counts(n_samples=n_samples, n_features=n_features, group_size=group_size)
    made = partial(BoundsPlan, n_samples=n_samples, n_features=n_features)
    if mode != "norm":
        noises = _feature_noises(n_features, mu, centers, group_size)
        plan = made(mode="features", noises=noises, centers=centers)
        if mode == "features" or (n_features <= MAX_AUTO_FEATURES and plan.clears_threshold):
            return plan
    own = () if mu == math.inf else (_of_counts(mu, group_size * math.sqrt(2), "row norms"),)
    return made(mode="norm", noises=own, centers=False)


def _feature_noises(
    n_features: int, mu: float, centers: bool, group_size: int
) -> tuple[GaussianEvent, ...]:
    """Split `mu` between the two families of histograms."""
    if mu == math.inf:
        return ()
    shares = {"distances of pairs": _SPREAD_SHARE, "values": 1 - _SPREAD_SHARE}
    if not centers:
        shares = {"distances of pairs": 1.0}
    # The factor absorbs the rounding of the roots: the squares must not exceed mu**2.
    return tuple(
        _of_counts(
            mu * math.sqrt(share) * (1 - 1e-13), group_size * math.sqrt(2 * n_features), counted
        )
        for counted, share in shares.items()
    )


def _of_counts(mu: float, sensitivity: float, counted: str) -> GaussianEvent:
    noise = calibrate_lattice(mu, sensitivity)
    return GaussianEvent(**vars(noise), label=f"Histograms of {counted}")


_PAIR_MEDIAN = math.sqrt(2) * float(ndtri(0.75))  # of |x - x'| for two standard normal numbers
_SMALLEST, _LARGEST = 2.0**-64, 2.0**64
_FINITE = 1e300
_CENTER_LEVELS = (0.05, 0.5, 0.95)
_TIE_NOISE = 4.5
_REACH, _LARGEST_WIDENING = 3.0, 4.0
# Ranges of columns.
_DEVIATIONS = 3.0  # of a normal distribution, to reach beyond its quantiles
_LEAST_UNITS = 1.5
_LEVELS = (0.005, 0.05)
_CELLS_KEPT = 64  # about so many, of which the noise is in a cumulative count
_CELLS_BESIDE_ZERO = 32
_SILENT = 4.0  # standard deviations of the noise that tell nothing from something,
_AT_STAKE = 0.2  # unless so many of the rows could be hidden in them


@dataclass(frozen=True)
class FeatureScales:
    """Released location and scale of every feature."""

    center: FloatArray
    spread: FloatArray
    reach: FloatArray


def ball_radius(n_features: int) -> float:
    """Return the radius that holds nearly all rows of features with unit spread."""
    # A standard normal row has a norm of sqrt(d) +- 0.7; more leaves room for correlations.
    return math.sqrt(n_features) + 2.5


def release_private_bounds(X: npt.NDArray[Any], plan: BoundsPlan, streams: Streams) -> DataBounds:
    """Release bounds for the rows of `X`. Charge ``plan.event`` first.

    Privacy
    -------
    Releases the bounds, under ``plan.event`` and replace-one; the shape of `X` is public. The
    number of clipped rows is never reported.
    """
    if plan.mode == "norm":
        radius = _norm_radius(X, _Histograms.of(X.shape, plan, streams))
        if radius is None:
            _warn_fallback("the row norms")
        return DataBounds.from_norm(radius or ball_radius(plan.n_features), plan.n_features)
    found = release_feature_scales(X, plan, streams)
    # Heavy tails and clusters get a wider unit, within limits.
    unit = np.clip(found.reach / _REACH, found.spread, _LARGEST_WIDENING * found.spread)
    return DataBounds(found.center, unit, ball_radius(len(unit)))


def release_feature_scales(
    X: npt.NDArray[Any], plan: BoundsPlan, streams: Streams
) -> FeatureScales:
    """Release centre and spread of each feature. Charge ``plan.event`` first.

    Privacy
    -------
    Two noisy histograms per feature, or one without centres; the shape of `X` is public.
    """
    d, tables = plan.n_features, _Histograms.of(X.shape, plan, streams)
    center, spread, reach = np.zeros(d), np.ones(d), np.zeros(d)
    failed = np.zeros(d, dtype=bool)
    for j in range(d):
        found = _spread(tables.used(X[:, j]), j, tables)
        failed[j], spread[j] = found is None, found or 1.0
    for j in range(d if plan.centers else 0):
        located = _center(tables.used(X[:, j]), j, float(spread[j]), tables)
        failed[j] |= located is None
        if located is not None:
            center[j], spread[j], reach[j] = located
    if failed.any():
        _warn_fallback(f"{failed.sum()} of {d} features")
    return FeatureScales(center, spread, reach)


@dataclass(frozen=True, eq=False)
class _Histograms:
    """The histograms of one release, of the same rows in a public random order."""

    plan: BoundsPlan
    streams: Streams
    order: IntArray

    @classmethod
    def of(cls, shape: tuple[int, ...], plan: BoundsPlan, streams: Streams) -> "_Histograms":
        """Draw the rows that are counted."""
        if shape != (plan.n_samples, plan.n_features):
            raise ValueError(
                f"The plan is for data of shape {(plan.n_samples, plan.n_features)}, got {shape}."
            )
        order = streams.public.permutation(plan.n_samples)[: plan.n_used]
        return cls(plan, streams, order)

    def used(self, column: npt.NDArray[Any]) -> FloatArray:
        """Return the values of the rows that are counted."""
        return column[self.order].astype(np.float64)

    def counting(self, feature: int | None, width: float | None = None) -> Counting:
        """Return what is counted: norms, pair differences, or values in cells of a width."""
        return Counting(
            grid=self.plan.grids[width is not None],
            order=self.order,
            shape=(self.plan.n_samples, self.plan.n_features),
            feature=feature,
            width=width or 1.0,
            paired=feature is not None and width is None,
        )

    def release(
        self, used: FloatArray, counting: Counting, levels: Sequence[float]
    ) -> tuple[FloatArray, FloatArray | None]:
        """Return a noisy table and quantiles that it shows, leaving out the cell of zeros."""
        plan, phase = self.plan, int(counting.grid is _VALUES)
        noise, edges = plan.noises[phase], counting.grid.edges
        table = noisy_histogram(used, counting, noise, self.streams.secret, plan.event)
        cells = table[table.size + 1 - edges.size :]
        return table, noisy_quantiles(cells, edges, levels, noise.sigma, plan.smoothings[phase])


def _spread(used: FloatArray, feature: int, tables: _Histograms) -> float | None:
    """Return the spread: 0 for a constant feature, None when nothing stands out."""
    plan, counting = tables.plan, tables.counting(feature)
    if plan.noises:
        table, found = tables.release(used, counting, (0.5,))
        if found is not None:
            return float(np.exp2(found[0])) / _PAIR_MEDIAN
        # Whether all pairs are ties, as far as the noise lets one see.
        sigma = plan.noises[0].sigma
        least = max(plan.smoothings[0].z, plan.n_used // 2 / sigma - _TIE_NOISE)
        return 0.0 if table[0] / sigma > least else None
    first, second = counting.pairs(used)
    with np.errstate(over="ignore"):
        differences = np.abs(first - second)
    differences = differences[differences > 0]
    median = np.median(differences) if differences.size else _PAIR_MEDIAN
    return float(np.clip(median, _SMALLEST, _LARGEST)) / _PAIR_MEDIAN


def _center(
    used: FloatArray, feature: int, spread: float, tables: _Histograms
) -> tuple[float, float, float] | None:
    """Return centre, spread (at least half the width of the centre's cell) and reach."""
    if not tables.plan.noises:
        used = np.clip(used, -_FINITE, _FINITE)  # differences of larger values overflow
        low, center, high = (float(q) for q in np.quantile(used, _CENTER_LEVELS))
        return center, spread, max(high - center, center - low)
    width, edges = spread / tables.plan.cells_per_spread, _VALUES.edges
    _, quantiles = tables.release(used, tables.counting(feature, width), _CENTER_LEVELS)
    if quantiles is None:
        return None
    low, center, high = (float(q) for q in quantiles)
    cell = int(np.searchsorted(edges[1:-1], center))
    cell_width = float(edges[cell + 1] - edges[cell])
    reach = max(high - center, center - low)
    return center * width, max(spread, cell_width * width / 2), reach * width


def _norm_radius(X: npt.NDArray[Any], tables: _Histograms) -> float | None:
    """Return a radius that holds most of the rows, None when nothing stands out."""
    counting, level = tables.counting(None), tables.plan.norm_level
    norms, edges = counting.values(X, tables.order), _NORMS.edges
    if not tables.plan.noises:
        return float(np.clip(np.quantile(norms, level), _SMALLEST, _LARGEST))
    _, upper = tables.release(norms, counting, (level,))
    if upper is None:
        return None
    return float(np.exp2(edges[np.searchsorted(edges, upper[0] - 1e-9)]))


def _warn_fallback(what: str) -> None:
    warn_of_privacy(
        f"Private bounds: {what} did not stand out from the privacy noise and got the public "
        "fallback (centre 0, scale 1). Use more rows or a larger epsilon, or declare public limits "
        "where the estimator takes them."
    )


@dataclass(frozen=True)
class ColumnRange:
    """Bounds that hold nearly all values of one column."""

    lower: float
    upper: float
    found: bool


_NOTHING = ColumnRange(-4.0, 4.0, False)


def release_ranges(
    columns: Sequence[FloatArray] | Rows, plan: BoundsPlan, streams: Streams
) -> tuple[ColumnRange, ...]:
    """Release a range of each column. Charge ``plan.event`` first.

    Privacy
    -------
    Two noisy histograms per column. The number of rows is public; that of missing values is not.

    The bounds are the quantiles at the level that the noise allows, between 0.5 and 5 %, moved
    outwards to three standard deviations of a normal distribution, and at least one and a half
    spreads from the median. Zero is a bound if nothing beyond it stands out from the noise.
    """
    if isinstance(columns, SourceRows):
        raise NotImplementedError("private bounds of rows in batches")
    held: Any = columns.value if isinstance(columns, HeldRows) else columns
    tables = _Histograms.of((len(held[0]), len(held)), plan, streams)
    used = [tables.used(column) for column in held]
    if not plan.noises:
        return tuple(map(_exact_range, used))
    units = [_spread(values, j, tables) for j, values in enumerate(used)]
    return tuple(_range(values, j, units[j] or 0.0, tables) for j, values in enumerate(used))


def _exact_range(used: FloatArray) -> ColumnRange:
    found = np.clip(used[~np.isnan(used)], -_FINITE / 10, _FINITE / 10)
    return ColumnRange(float(found.min()), float(found.max()), True) if found.size else _NOTHING


def _range(used: FloatArray, feature: int, unit: float, tables: _Histograms) -> ColumnRange:
    """Return the range of one column, of which the unit is 0 where no two values differ."""
    plan, grid, noise = tables.plan, _VALUES, tables.plan.noises[1]
    width = (unit or 1.0) / plan.cells_per_spread
    level = float(np.clip(3 * noise.sigma * math.sqrt(_CELLS_KEPT) / plan.n_used, *_LEVELS))
    levels = (level, 0.5, 1 - level)
    table, found = tables.release(used, tables.counting(feature, width), levels)
    if found is None:
        return _NOTHING
    low, median, high = map(float, found)
    if low > grid.edges[-2] or high < grid.edges[1]:
        return _NOTHING  # in the outermost cell, which has no end
    reach = -float(ndtri(level))
    beyond = (high - low) * (_DEVIATIONS - reach) / (2 * reach)
    # Values that differ at all differ by about a unit, also where most are equal.
    least = _LEAST_UNITS * plan.cells_per_spread if unit else 0.0
    lower, upper = min(low - beyond, median - least), max(high + beyond, median + least)
    zero, beside = grid.n_cells // 2, _CELLS_BESIDE_ZERO
    silent = _SILENT * noise.sigma * math.sqrt(beside)
    if silent <= _AT_STAKE * plan.n_used:
        if lower < 0 <= high and table[zero - beside : zero].sum() < silent:
            lower = 0.0
        if upper > 0 >= low and table[zero + 1 : zero + 1 + beside].sum() < silent:
            upper = 0.0
    return ColumnRange(lower * width, max(upper, lower) * width, True)
