"""The plan of a sketch: its shape, directions and noise, fixed before any row is read.

Directions are drawn from a public stream, independently of the data, and published with the sketch.
"""

import math
from dataclasses import dataclass

import numpy as np

from skdpot.ot.directions import make_directions
from skdpot.privacy.calibration import calibrate
from skdpot.privacy.events import Event, GaussianEvent, NonPrivateEvent
from skdpot.privacy.noise import check_shares, noise_lattice
from skdpot.privacy.targets import PrivacyTarget
from skdpot.release.bounds import DataBounds
from skdpot.release.joint import SecureSum
from skdpot.release.private_bounds import BoundsPlan, bounds_share, planned_bounds
from skdpot.release.strategy import Energy, Strategy, best_strategy

_SPREADS = 3.5  # half width of the binned range, in spreads R / sqrt(d)
_SIGNAL_PER_BLOCK = 25.0  # ``n mu / C`` per orthogonal block of directions
_MOST_SLICES = 1024
_BINS_BELOW = ((100.0, 16), (2000.0, 32), (math.inf, 64))  # (limit of ``n mu / C``, bins)


@dataclass(frozen=True)
class SketchPlan:
    """The public parameters of one sketch."""

    directions: np.ndarray
    n_classes: int  # number of tables; 1 without classes
    strategy: Strategy
    sensitivity: float  # of the whole table
    sigma: float  # of each entry; 0 without privacy
    lattice: float  # of the noise, a fraction of the strategy's
    bounds: DataBounds | BoundsPlan  # public bounds, or the plan of their release
    event: Event  # of all releases together
    public_labels: bool
    n_units: int = 1  # units in the weight of a person
    n_shares: int = 1  # shares of several parties, whose sum has the noise `sigma`

    @property
    def share(self) -> float:
        """Standard deviation of the noise that is drawn here."""
        return self.sigma / math.sqrt(self.n_shares)

    @property
    def shape(self) -> tuple[int, int, int]:
        """Shape of the table."""
        return self.n_classes, len(self.directions), self.strategy.n_bins


def projection_half_widths(bounds: DataBounds, directions: np.ndarray) -> np.ndarray:
    """Return the half width w of the binned range along each direction.

    ``min(R, 3.5 R / sqrt(d))``, and in a box at most the box's extent along the direction,
    ``side * ‖θ‖₁``. Projections of points spread over a ball of radius R in d dimensions have a
    standard deviation near ``R / sqrt(d)``, so binning the whole diameter would leave most bins
    empty. Projections beyond w are counted in the end bins, at no privacy cost.
    """
    root = math.sqrt(bounds.n_features)
    widths = np.full(len(directions), min(bounds.radius, _SPREADS * bounds.radius / root))
    if bounds.box:
        widths = np.minimum(widths, bounds.radius / root * np.abs(directions).sum(axis=1))
    return widths


def recommended_n_projections(
    n_samples: int, n_features: int, mu: float, n_classes: int = 1
) -> int:
    """Return the number of slices for ``n_projections="auto"``.

    One orthogonal block of directions per 25 units of ``n mu / C``, at least one block and at most
    about 1024 directions. The constant is the outcome of
    ``examples/benchmarks/bench_sketch_shape.py``; see the user guide.
    """
    if n_features == 1:
        return 1  # the line has one direction
    most = max(1, _MOST_SLICES // n_features)
    blocks = n_samples * mu / n_classes / _SIGNAL_PER_BLOCK
    return n_features * int(min(max(blocks, 1), most))


def recommended_bins(n_samples: int, n_features: int, mu: float, n_classes: int = 1) -> int:
    """Return the number of bins for ``n_bins="auto"``.

    16 while ``n mu / C`` is below 100, 32 below 2,000, and 64 above. The noise of a distribution
    function grows only logarithmically with the bins, but hides finer shapes.
    """
    signal = n_samples * mu / n_classes
    return next(n_bins for limit, n_bins in _BINS_BELOW if signal < limit or math.isinf(limit))


def plan_sketch(
    target: PrivacyTarget,
    n_samples: int,
    n_features: int,
    n_classes: int | None = None,
    *,
    rng: np.random.Generator,
    projections: str | np.ndarray = "axes+orthogonal",
    n_projections: int | str = "auto",
    n_bins: int | str = "auto",
    bounds: DataBounds | int,
    public_labels: bool = False,
    group_size: int = 1,
    n_units: int = 1,
    parties: SecureSum | None = None,
) -> SketchPlan:
    """Choose the shape of a sketch, its directions, and the least noise that meets a target."""
    check_public_labels(n_classes, public_labels, group_size)
    n_shares = 1 if parties is None else parties.n_shares
    # The shape of the table follows from the mu that is left for it, before the calibration.
    left = 1.0
    if not isinstance(bounds, DataBounds):
        left -= bounds_share(bounds, n_features, target.mu_cap, int(group_size))
    mu = target.mu_cap * math.sqrt(left / group_size)
    tables = n_classes or 1
    if not isinstance(projections, str):
        n_projections = len(projections)
    elif isinstance(n_projections, str):
        n_projections = recommended_n_projections(n_samples, n_features, mu, n_classes=tables)
    if isinstance(n_bins, str):
        n_bins = recommended_bins(n_samples, n_features, mu, n_classes=tables)
    # NumPy integers overflow, and a signed plus an unsigned one gives a float.
    n_projections, n_bins, group_size = int(n_projections), int(n_bins), int(group_size)
    if tables * n_projections * n_bins >= 2**31:
        raise ValueError(
            f"A table of {tables} classes x {n_projections} slices x {n_bins} bins is too large; "
            "it must have fewer than 2^31 entries."
        )
    limits = planned_bounds(bounds, n_features, target.mu_cap, group_size)
    directions = make_directions(projections, n_projections, n_features, rng)
    # Private bounds are a ball, and the energy is the same in all balls.
    ball = bounds if isinstance(bounds, DataBounds) else DataBounds.from_norm(1.0, n_features)
    energy = Energy.of(ball, directions, projection_half_widths(ball, directions))
    strategy = best_strategy(n_bins, energy)
    conditional = n_classes is not None and not public_labels
    sensitivity = strategy.sensitivity(energy, conditional=conditional, group_size=group_size)

    def fit_event(sigma: float) -> Event:
        lattice = noise_lattice(sigma / math.sqrt(n_shares), strategy.lattice / n_units)
        table = GaussianEvent(
            sigma=sigma, sensitivity=sensitivity, lattice=lattice, label="Distribution functions"
        )
        return limits.before(table)

    event: Event = NonPrivateEvent()
    sigma, lattice = 0.0, strategy.lattice / n_units
    if not math.isinf(target.epsilon):
        event = calibrate(target, fit_event)
        table = event.phases[-1]
        sigma, lattice = table.sigma, table.lattice
        # Noise that cannot be drawn is refused here, before any charge.
        check_shares(sigma / lattice, table.mu, n_shares, tables * n_projections * n_bins)
    plan = SketchPlan(
        directions=directions,
        n_classes=tables,
        strategy=strategy,
        sensitivity=sensitivity,
        sigma=sigma,
        lattice=lattice,
        bounds=limits,
        event=event,
        public_labels=public_labels,
        n_units=n_units,
        n_shares=n_shares,
    )
    if parties is not None:
        parties.agree(plan, n_samples)
    return plan


def check_public_labels(n_classes: int | None, public_labels: bool, group_size: int) -> None:
    """Refuse, before any charge, public labels without classes and groups without public labels."""
    if public_labels and n_classes is None:
        raise ValueError("public_labels=True needs conditional=True and the label of every row.")
    if group_size > 1 and not public_labels:
        raise ValueError(
            f"group_size={group_size} needs public_labels=True: the rows of one person must have "
            "different public labels, such as times. Otherwise pass one row per person."
        )
    if group_size > (n_classes or 1):
        raise ValueError(
            f"group_size={group_size} is more than the {n_classes} labels, and the rows of one "
            "person must have different labels."
        )
