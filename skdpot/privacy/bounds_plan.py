"""What a release of private bounds does and costs, from public facts alone."""

import math
from dataclasses import dataclass
from typing import Literal

from skdpot.privacy.events import ComposedEvent, Event, GaussianEvent, NonPrivateEvent
from skdpot.privacy.lattice_sampler import required_bits
from skdpot.privacy.noise import LatticeNoise, calibrate_lattice
from skdpot.privacy.noisy_histogram import MagnitudeGrid, SignedGrid, Smoothing

__all__ = ["BoundsPlan", "bounds_share", "plan_private_bounds"]

MAX_AUTO_FEATURES = 32
_LARGEST_SHARE, _SMALLEST_SHARE = 0.1, 0.002  # of the squared mu of a whole fit
_ROWS_OVER_NOISE = 27.0
# There are half as many pairs as rows: the first histogram needs more of the budget.
_SPREAD_SHARE = 2 / 3
# Rows beyond this many times the noise would cost time and add no accuracy.
_ROWS_PER_SIGMA = 1000
_MIN_ROWS_USED = 2**17
_FINE_PAIRS_PER_SIGMA = 200
_NORM_TAIL = 0.03
_LARGEST_NORM_TAIL = 0.25


@dataclass(frozen=True, kw_only=True)
class BoundsPlan:
    """The public part of a release of private bounds, fixed before data are touched.

    Attributes
    ----------
    mode : {"features", "norm"}
        Centre and spread of each feature, or one radius.
    n_samples, n_features : int
        Shape of the data.
    noises : tuple of LatticeNoise
        Noise of the histograms of pair differences and of values, or of norms. Empty when
        the release is exact and not private.
    centers : bool
        Whether centres are released; "norm" never does.
    """

    mode: Literal["features", "norm"]
    n_samples: int
    n_features: int
    noises: tuple[LatticeNoise, ...]
    centers: bool

    @property
    def event(self) -> Event:
        """The charge for the whole release."""
        norms = self.mode == "norm"
        of_what = ("row norms",) if norms else ("distances of pairs", "values")
        events = tuple(
            GaussianEvent(
                sigma=n.sigma,
                sensitivity=n.sensitivity,
                lattice=n.lattice,
                label=f"Histograms of {of}",
            )
            for n, of in zip(self.noises, of_what, strict=False)
        )
        if not events:
            return NonPrivateEvent()
        return events[0] if len(events) == 1 else ComposedEvent(events=events)

    @property
    def mu(self) -> float:
        """Privacy parameter of the whole release."""
        return math.sqrt(sum(n.mu**2 for n in self.noises)) if self.noises else math.inf

    @property
    def group_size(self) -> int:
        """How many rows of one person the sensitivity counts; 1 when nothing is private."""
        if not self.noises:
            return 1
        cells = 1 if self.mode == "norm" else self.n_features
        return round(self.noises[0].sensitivity / math.sqrt(2 * cells))

    @property
    def n_used(self) -> int:
        """Number of rows that the histograms count."""
        if not self.noises:
            return self.n_samples
        enough = math.ceil(_ROWS_PER_SIGMA * self.noises[0].sigma)
        return min(self.n_samples, max(enough, _MIN_ROWS_USED))

    @property
    def n_pairs(self) -> int:
        """Number of disjoint pairs of rows."""
        return self.n_used // 2

    @property
    def fine(self) -> bool:
        """Whether the noise is small enough, beside the pairs, for narrower cells."""
        return not self.noises or self.n_pairs >= _FINE_PAIRS_PER_SIGMA * self.noises[0].sigma

    @property
    def spread_grid(self) -> MagnitudeGrid:
        """Cells for pair differences."""
        return MagnitudeGrid(per_octave=2 if self.fine else 1)

    @property
    def spread_smoothing(self) -> Smoothing:
        """How tables of pair differences are cleaned: windows of two octaves."""
        octave, cells = self.spread_grid.per_octave, self.spread_grid.n_cells
        return Smoothing(window=2 * octave, margin=2 * octave, n_candidates=cells * self.n_features)

    @property
    def cells_per_spread(self) -> int:
        """Cells of the second histogram that make up one spread."""
        return 4 if self.fine else 1

    @property
    def center_grid(self) -> SignedGrid:
        """Cells for values, in units of ``spread / cells_per_spread``."""
        return SignedGrid()

    @property
    def center_smoothing(self) -> Smoothing:
        """How tables of values are cleaned: windows of two or three spreads."""
        return Smoothing(
            window=8 if self.fine else 3,
            margin=5 * self.cells_per_spread,
            n_candidates=self.center_grid.n_cells * self.n_features,
        )

    @property
    def norm_grid(self) -> MagnitudeGrid:
        """Cells for row norms."""
        return MagnitudeGrid(per_octave=4)

    @property
    def norm_smoothing(self) -> Smoothing:
        """How the table of norms is cleaned: windows of one octave."""
        return Smoothing(window=4, margin=1, n_candidates=self.norm_grid.n_cells)

    @property
    def norm_level(self) -> float:
        """Share of the rows that the radius is to hold, lower when the noise hides the rest.

        Three standard deviations of a count are the noise of a sum over nine cells.
        """
        hidden = 3 * self.noises[0].sigma / self.n_used if self.noises else 0.0
        return 1 - min(max(_NORM_TAIL, hidden), _LARGEST_NORM_TAIL)

    @property
    def clears_threshold(self) -> bool:
        """Whether features of ordinary shape are expected to stand out from the noise.

        Asks for windows with 40 % of the pairs and 60 % of the rows, and two standard
        deviations to spare.
        """
        shares = (0.4 * self.n_pairs, 0.6 * self.n_used)
        smoothings = (self.spread_smoothing, self.center_smoothing)
        return all(
            mass >= (smoothing.z + 2) * math.sqrt(smoothing.window) * noise.sigma
            for mass, smoothing, noise in zip(shares, smoothings, self.noises, strict=False)
        )


def bounds_share(n_samples: int, n_features: int, mu: float, group_size: int = 1) -> float:
    """Return the share of the squared mu of a fit that its private bounds get.

    As much as makes the noise of a count a third of the square root of the number of rows, about
    what counts of a sample vary by anyway: 10 % for few rows, .3 % of an epsilon of 1 for a
    million rows of 8 features. One person may have given `group_size` of the rows.
    """
    n_histograms = n_features if n_features <= MAX_AUTO_FEATURES else 1
    enough = _ROWS_OVER_NOISE * n_histograms * (group_size / mu) ** 2 / n_samples
    return min(max(enough, _SMALLEST_SHARE), _LARGEST_SHARE)


def plan_private_bounds(
    n_samples: int,
    n_features: int,
    mu: float,
    *,
    mode: Literal["auto", "features", "norm"] = "auto",
    centers: bool = True,
    group_size: int = 1,
) -> BoundsPlan:
    """Fix what a release of bounds does and costs.

    Parameters
    ----------
    n_samples, n_features : int
        Shape of the data.
    mu : float
        Privacy parameter that the whole release may use; infinity for exact bounds.
    mode : {"auto", "features", "norm"}, default="auto"
        "auto" is "features" for up to 32 features if the rows are enough to see them through
        the noise, otherwise "norm".
    centers : bool, default=True
        Whether "features" releases centres too.
    group_size : int, default=1
        How many of the rows one person may have given. Replacing so many moves as many counts in
        every histogram, perhaps all between the same two cells: the sensitivity is multiplied by
        their number.

    Returns
    -------
    BoundsPlan
        With ``plan.mu <= mu``.

    Raises
    ------
    ValueError
        If there is no row or no feature, `group_size` is below 1, or `mu` is not positive.
    CalibrationError
        If no noise reaches `mu`.
    """
    if n_samples < 1 or n_features < 1:
        raise ValueError(
            f"Bounds need at least one row and one feature, got {n_samples} and {n_features}."
        )
    if group_size < 1:
        raise ValueError(f"group_size={group_size!r} must be at least 1.")
    if mode != "norm":
        plan = BoundsPlan(
            mode="features",
            n_samples=n_samples,
            n_features=n_features,
            noises=_feature_noises(n_features, mu, centers, group_size),
            centers=centers,
        )
        if mode == "features" or (n_features <= MAX_AUTO_FEATURES and plan.clears_threshold):
            return plan
    return BoundsPlan(
        mode="norm",
        n_samples=n_samples,
        n_features=n_features,
        noises=() if mu == math.inf else (_drawable(mu, group_size * math.sqrt(2)),),
        centers=False,
    )


def _feature_noises(
    n_features: int, mu: float, centers: bool, group_size: int
) -> tuple[LatticeNoise, ...]:
    """Split `mu` between the two families of histograms."""
    if mu == math.inf:
        return ()
    shares = (_SPREAD_SHARE, 1 - _SPREAD_SHARE) if centers else (1.0,)
    # The factor absorbs the rounding of the roots: the squares must not exceed mu**2.
    sensitivity = group_size * math.sqrt(2 * n_features)
    return tuple(_drawable(mu * math.sqrt(share) * (1 - 1e-13), sensitivity) for share in shares)


def _drawable(mu: float, sensitivity: float) -> LatticeNoise:
    """Calibrate noise, and refuse what cannot be drawn here, where nothing is charged yet."""
    noise = calibrate_lattice(mu, sensitivity)
    required_bits(noise.sigma / noise.lattice, noise.mu)
    return noise
