"""The bounded set that every private record is mapped into: public, or estimated privately.

Private bounds are found in rounds of histograms, of which each is a sum over rows:

- *features*: the powers of two of the absolute values tell how large those of each feature are.
  Cells between these, equally wide, are divided again where all rows are in a few of them, or else
  counted again, which tells a centre and a spread.
- *norms* about that centre, in units of the spread, give a radius, if there are enough rows. Of
  fewer rows, norms about the origin are counted, of few features after one round of absolute
  values that tells which are far smaller than others; else only norms.

The cells of a round depend on the releases before it only (adaptive composition). For columns of a
table, `release_ranges` reads two bounds that hold nearly all values from the same histograms.
`skdpot.release.value_histogram` has their sensitivity.
"""

import math
from collections.abc import Sequence
from dataclasses import dataclass, replace
from functools import partial
from numbers import Real
from typing import Any, Literal, TypeAlias, cast

import numpy as np
import numpy.typing as npt

from skdpot._utils.arrays import FloatArray
from skdpot._utils.validation import Interval, Streams, StrOptions
from skdpot.exceptions import warn_of_privacy
from skdpot.privacy.events import ComposedEvent, Event, GaussianEvent, NonPrivateEvent
from skdpot.privacy.noise import calibrate_lattice, check_counts, check_positive
from skdpot.release.value_histogram import (
    Cells,
    FeatureCounts,
    Histograms,
    Intervals,
    Magnitudes,
    Norms,
    cells_seen,
    expected_counts,
    noisy_quantiles,
    release_histograms,
    threshold,
)
from skdpot.sources import Rows

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
_MAX_UNITS = 5  # features; of more, noise takes features of clusters for small ones
N_ROUNDS = 5  # of histograms of features
_LARGEST_SHARE, _SMALLEST_SHARE = 0.1, 0.002  # of the squared mu of a whole fit
_ROWS_OVER_NOISE = 27.0
_NORM_SHARE = 0.1  # of what bounds by features get
_NORM_TAIL, _LARGEST_NORM_TAIL = 0.03, 0.25
_NORM_PARTS = 4
_N_CELLS, _N_EXACT_CELLS = 64, 2**14


@dataclass(frozen=True, kw_only=True)
class BoundsPlan:
    """The public part of a release of private bounds, fixed before any row is read.

    `features` is the noise of the rounds that find the centre and spread of each feature, or of
    the one that finds its size, `norms` that of a histogram of norms. None is no such release, or
    no noise if the plan has no event.
    """

    n_samples: int
    n_features: int
    by_features: bool
    features: GaussianEvent | None = None
    norms: GaussianEvent | None = None

    @property
    def event(self) -> Event:
        """The charge for the whole release."""
        noises = tuple(noise for noise in (self.features, self.norms) if noise is not None)
        if len(noises) == 1:
            return noises[0]
        return ComposedEvent(events=noises) if noises else NonPrivateEvent()

    def before(self, event: Event) -> Event:
        """Return the cost of a fit that estimates its bounds first."""
        return ComposedEvent(events=(self.event, event))

    def settled(self, rows: npt.NDArray[Any] | Rows, streams: Streams) -> DataBounds:
        """Release the bounds; the caller has charged `event`."""
        return release_private_bounds(rows, self, streams)

    @property
    def norm_level(self) -> float:
        """Share of the rows in the radius, lower when the noise hides the rest."""
        # Three standard deviations of a count are the noise of a sum over nine cells.
        hidden = 3 * self.norms.sigma / self.n_samples if self.norms else 0.0
        return 1 - min(max(_NORM_TAIL, hidden), _LARGEST_NORM_TAIL)

    @property
    def clears_threshold(self) -> bool:
        """Whether features of ordinary shape are expected to stand out from the noise."""
        cells = self.n_features * Magnitudes(n_features=1).shape[1]
        return self.features is None or self._shows(self.features, cells, 2)

    @property
    def shows_norms(self) -> bool:
        """Whether norms of ordinary rows are expected to stand out from the noise."""
        cells = Magnitudes(n_features=1, parts=_NORM_PARTS).shape[1]
        return self.norms is None or self._shows(self.norms, cells, 2 * _NORM_PARTS)

    def _shows(self, noise: GaussianEvent, cells: int, window: int) -> bool:
        # Half of the rows in two octaves.
        return 0.5 * self.n_samples >= threshold(cells) * math.sqrt(window) * noise.sigma


def bounds_share(n_samples: int, n_features: int, mu: float, group_size: int = 1) -> float:
    """Return the share of the squared mu of a fit that its private bounds get.

    The noise of a count, if all went to one round, is then a third of the square root of the number
    of rows, comparable to sampling variation: 10 % for few rows, .3 % at epsilon = 1 for a million
    rows of 8 features.
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
    group_size: int = 1,
) -> BoundsPlan:
    """Fix the procedure and the cost; "features" are centres and spreads without a radius."""
    check_counts(n_samples=n_samples, n_features=n_features, group_size=group_size)
    made = partial(BoundsPlan, n_samples=n_samples, n_features=n_features)
    if mu == math.inf:
        return made(by_features=mode == "features" or n_features <= MAX_AUTO_FEATURES)
    norms = partial(_of_counts, group_size * math.sqrt(2), "norms")
    if mode != "norm":
        left = 1.0 if mode == "features" else 1 - _NORM_SHARE
        sensitivity = group_size * math.sqrt(2 * n_features)
        each = partial(_of_counts, sensitivity, "values")
        steps = each(mu * math.sqrt(left / N_ROUNDS))
        plan = made(by_features=True, features=replace(steps, n_steps=N_ROUNDS))
        if mode == "features":
            return plan
        if n_features <= MAX_AUTO_FEATURES and plan.clears_threshold:
            return replace(plan, norms=norms(mu * math.sqrt(_NORM_SHARE)))
        half = mu * math.sqrt(0.5)
        plan = made(by_features=False, features=each(half), norms=norms(half))
        if 1 < n_features <= _MAX_UNITS and plan.clears_threshold and plan.shows_norms:
            return plan
    return made(by_features=False, norms=norms(mu))


def _of_counts(sensitivity: float, counted: str, mu: float) -> GaussianEvent:
    # The factor absorbs the rounding of the roots: the squares must not exceed mu**2.
    noise = calibrate_lattice(mu * (1 - 1e-13), sensitivity)
    return GaussianEvent(**vars(noise), label=f"Histograms of {counted}")


_LARGEST_RADIUS = 2.0**64
_FEWEST = (1.0, 2.0)  # cells in a spread, or else they are divided
_REACH, _LARGEST_WIDENING = 3.0, 4.0
_FAR_SMALLER, _SHOWN, _LARGE = 4.0, 0.5, 0.75  # times, and of the rows
_OCTAVES = 4  # that hold most values, and above these,
_FEW = 0.2  # of the rows

AnyRows: TypeAlias = npt.NDArray[Any] | Rows


@dataclass(frozen=True)
class FeatureScales:
    """Released location and scale of every feature."""

    center: FloatArray
    spread: FloatArray
    reach: FloatArray


def ball_radius(n_features: int) -> float:
    """Return a radius that holds nearly all rows of features with unit spread."""
    # A standard normal row has a norm of sqrt(d) +- 0.7; more leaves room for correlations.
    return math.sqrt(n_features) + 2.5


def release_private_bounds(rows: AnyRows, plan: BoundsPlan, streams: Streams) -> DataBounds:
    """Release bounds for rows, or batches of them. Charge ``plan.event`` first.

    Privacy
    -------
    Releases the bounds, under ``plan.event`` and replace-one; the number of rows and of features is
    public. The number of clipped rows is never reported.
    """
    center, unit = np.zeros(plan.n_features), np.ones(plan.n_features)
    if plan.by_features:
        found = release_feature_scales(rows, plan, streams)
        center = found.center
        # Heavy tails and clusters get a wider unit, within limits.
        unit = np.clip(found.reach / _REACH, found.spread, _LARGEST_WIDENING * found.spread)
    elif plan.features is not None:
        unit = _release_units(rows, plan, streams)
    elif 1 < plan.n_features <= MAX_AUTO_FEATURES:
        warn_of_privacy(
            "Private bounds: there are too few rows, for this privacy, to find a scale for each "
            "feature. All rows are in one ball about the origin, in the unit that the features "
            "have, and features that are small beside others will be lost. Use more rows or a "
            "larger epsilon, or declare public limits where the estimator takes them."
        )
    shape: dict[str, Any] = {"n_features": plan.n_features, "parts": _NORM_PARTS}
    norms = Norms(center=center, scale=unit, **shape)
    table = release_histograms(norms, rows, plan.norms, streams.secret, plan.event)[0]
    sigma = plan.norms.sigma if plan.norms else 0.0
    seen = cells_seen(table, sigma, threshold(table.size))
    if not seen.size:
        of = "the scales that were found" if plan.by_features else "the features' own unit"
        _warn_fallback("the row norms", f"radius {ball_radius(plan.n_features):.3g} in {of}")
        return DataBounds(center, unit, ball_radius(plan.n_features))
    if sigma:
        seen = seen[seen.size // 2] + np.arange(-_N_CELLS // 2, _N_CELLS // 2)
        seen = seen[(seen >= 0) & (seen < table.size)]
    counts = expected_counts(table[seen], sigma, plan.n_samples)
    # Where units fit the features, a cell more costs little and holds what the noise hides.
    cell = int(noisy_quantiles(counts, seen, [plan.norm_level])[0]) + plan.by_features
    radius, usual = norms.end(max(cell, 1)), ball_radius(plan.n_features)
    largest = _LARGEST_WIDENING * usual if plan.by_features else _LARGEST_RADIUS
    return DataBounds(center, unit, float(np.clip(radius, 1 / _LARGEST_RADIUS, largest)))


def _release_units(rows: AnyRows, plan: BoundsPlan, streams: Streams) -> FloatArray:
    """Release a unit of each feature, 1 unless its values are far smaller than the largest."""
    noise = cast(GaussianEvent, plan.features)
    sizes = Magnitudes(n_features=plan.n_features)
    tables = release_histograms(sizes, rows, noise, streams.secret, plan.event)[:, 1:]
    totals = np.array([np.convolve(table, np.ones(_OCTAVES), "valid") for table in tables])
    cells = totals.argmax(axis=1)[:, None] + np.arange(_OCTAVES)
    counts = np.maximum(np.take_along_axis(tables, cells, axis=1), 0.0)
    # The octave of a quantile of what is in the octaves that hold most.
    below = np.cumsum(counts, axis=1) < _LARGE * counts.sum(axis=1, keepdims=True)
    found = [sizes.end(int(cell)) for cell in cells[:, 0] + below.sum(axis=1) + 1]
    shown = totals.max(axis=1) > _SHOWN * plan.n_samples
    usual = np.where(shown, found, 0.0)
    largest = max(float(usual.max()), 2.0**-1000)
    ends = np.array([sizes.end(cell + 1) for cell in range(tables.shape[1])])
    above = ends > usual[:, None]
    beyond = np.where(above & (ends <= 2.0**_OCTAVES * usual[:, None]), tables, 0.0).sum(axis=1)
    smaller = shown & (_FAR_SMALLER * usual < largest) & (beyond < _FEW * plan.n_samples)
    unknown = ~smaller & ~(shown & (_FAR_SMALLER * usual >= largest))
    if unknown.any():
        public = "the unit of the largest: if they are far smaller, they will be lost"
        _warn_fallback(f"the sizes of {unknown.sum()} of {len(unknown)} features", public)
    return np.where(smaller, usual / largest, 1.0)


def release_feature_scales(rows: AnyRows, plan: BoundsPlan, streams: Streams) -> FeatureScales:
    """Release centre and spread of each feature. Charge ``plan.event`` first.

    Privacy
    -------
    Noisy histograms of each feature in rounds; the number of rows and of features is public.
    """
    found = _release_features(rows, plan, streams)
    if hidden := sum(one is None for one in found):
        _warn_fallback(f"{hidden} of {len(found)} features", "centre 0, scale 1")
    return FeatureScales(*np.array([one.scales if one else (0.0, 1.0, 0.0) for one in found]).T)


def _release_features(
    rows: AnyRows, plan: BoundsPlan, streams: Streams
) -> list[FeatureCounts | None]:
    """Release what is known of each feature, None where nothing stands out."""
    d, noise = plan.n_features, plan.features
    sigma, n_cells = (noise.sigma, _N_CELLS) if noise else (0.0, _N_EXACT_CELLS)

    def release(histograms: Histograms) -> FloatArray:
        return release_histograms(histograms, rows, noise, streams.secret, plan.event)

    sizes = Magnitudes(n_features=d)
    tables = release(sizes)
    ends = [sizes.usual_and_largest(table, sigma, threshold(tables.size)) for table in tables]
    cells = [Cells.over(-2 * usual, 2 * usual, n_cells) for usual, _ in ends]
    sums, times, z = np.zeros((d, n_cells)), np.zeros(d), threshold(d * n_cells)
    found: list[FeatureCounts | None] = [None] * d
    # Narrow cells show more where the noise is low, and less where it is not.
    fewest = float(np.clip(0.08 * math.sqrt(plan.n_samples / (sigma or 1.0)), *_FEWEST))
    for _ in range(N_ROUNDS - 1):
        lowest, width = (np.array([getattr(c, f) for c in cells]) for f in ("lowest", "width"))
        histograms = Intervals(n_features=d, lowest=lowest, width=width, n_cells=n_cells)
        sums += release(histograms)
        times += 1
        for j in range(d):
            table, own = sums[j] / times[j], sigma / math.sqrt(times[j])
            seen = cells_seen(table, own, z)
            one = FeatureCounts(table, seen, own, cells[j], ends[j][1], plan.n_samples)
            found[j] = one if seen.size else found[j]
            following = one.next_cells(fewest) if seen.size else cells[j].wider
            if following != cells[j]:
                cells[j], sums[j], times[j] = following, 0.0, 0.0
    return found


def _warn_fallback(what: str, public: str) -> None:
    warn_of_privacy(
        f"Private bounds: {what} did not stand out from the privacy noise and got the public "
        f"fallback ({public}). Use more rows or a larger epsilon, or declare public limits "
        "where the estimator takes them."
    )


@dataclass(frozen=True)
class ColumnRange:
    """Bounds that hold nearly all values of one column."""

    lower: float
    upper: float
    found: bool
    knots: FloatArray | None = None


def release_ranges(
    rows: AnyRows,
    plan: BoundsPlan,
    streams: Streams,
    spans: Sequence[tuple[float, float]] | None = None,
) -> tuple[ColumnRange, ...]:
    """Release a range of each column. Charge ``plan.event`` first.

    With `spans`, the bounds that are known, infinite where they are not, also knots of a scale.

    Privacy
    -------
    Noisy histograms of each column in rounds. The number of rows is public; that of missing values
    is not.

    The bounds are the quantiles at the level that the noise allows, between 0.5 and 5 %, moved
    outwards to three standard deviations of a normal distribution, and at least one and a half
    spreads from the median. Where these leave out more, bounds are powers of two that hold all
    values that are seen. Zero is a bound if nothing beyond it stands out from the noise.
    """
    ranges = []
    for j, one in enumerate(_release_features(rows, plan, streams)):
        if one is None:
            ranges.append(ColumnRange(-4.0, 4.0, False))
        elif spans is None:
            ranges.append(ColumnRange(*one.range(plan.n_samples), True))
        else:
            knots = one.knots(*spans[j])
            ranges.append(ColumnRange(float(knots[0]), float(knots[-1]), True, knots))
    return tuple(ranges)


# What every estimator of rows may be told of their range.
ROW_BOUNDS: dict[str, list[Any]] = {
    "bounds": [StrOptions({"private"}), tuple, list, DataBounds],
    "norm_bound": [Interval(Real, 0, None, closed="neither"), None],
}
