"""What a sketch will measure and with how much noise, settled before any row is read."""

import math
from dataclasses import dataclass

from skdpot.exceptions import CalibrationError
from skdpot.privacy.bounds_plan import BoundsPlan, plan_private_bounds
from skdpot.privacy.calibration import PrivacyTarget, calibrate
from skdpot.privacy.data_bounds import DataBounds
from skdpot.privacy.events import ComposedEvent, Event, GaussianEvent, NonPrivateEvent
from skdpot.privacy.lattice_sampler import required_bits
from skdpot.privacy.noise import noise_lattice
from skdpot.slicing.rules import recommended_bins, recommended_slices
from skdpot.slicing.strategy import SquareRootStrategy, square_root_strategy

__all__ = ["BOUNDS_SHARE", "SketchPlan", "bounds_or_plan", "plan_sketch"]

BOUNDS_SHARE = 0.1  # of the squared mu, when bounds must be estimated first


@dataclass(frozen=True)
class SketchPlan:
    """The public parameters of one sketch.

    Parameters
    ----------
    n_slices : int
        Number of directions L.
    n_classes : int
        Number of tables; 1 without classes.
    strategy : SquareRootStrategy
        What is measured of each histogram, and on how many bins.
    sensitivity : float
        L2 sensitivity Δ of the whole table under replace-one.
    sigma : float
        Standard deviation of the noise on each entry; 0 without privacy.
    lattice : float
        Spacing of the noise, a fraction of the strategy's.
    bounds : DataBounds or BoundsPlan
        Public bounds, or how bounds are estimated first.
    event : Event
        Everything together: what is charged.
    """

    n_slices: int
    n_classes: int
    strategy: SquareRootStrategy
    sensitivity: float
    sigma: float
    lattice: float
    bounds: DataBounds | BoundsPlan
    event: Event

    @property
    def mu(self) -> float:
        """Gaussian privacy parameter of the table alone; infinite without noise."""
        if self.sigma == 0:
            return math.inf
        return GaussianEvent(
            sigma=self.sigma, sensitivity=self.sensitivity, lattice=self.lattice
        ).mu


def plan_sketch(
    target: PrivacyTarget,
    n_samples: int,
    n_features: int,
    n_classes: int | None = None,
    *,
    n_slices: int | str = "auto",
    n_bins: int | str = "auto",
    bounds: DataBounds | int,
) -> SketchPlan:
    """Choose the shape of a sketch and the least noise that meets a target.

    Parameters
    ----------
    target : PrivacyTarget
        Epsilon and delta of everything together.
    n_samples, n_features : int
        Public size of the data.
    n_classes : int, optional
        Number of classes of a class-conditional sketch.
    n_slices, n_bins : int or "auto"
        Shape; "auto" applies `recommended_slices` and `recommended_bins`.
    bounds : DataBounds or int
        Public bounds, or the number of rows from which bounds are estimated first, for 10 %
        of the squared mu.

    Returns
    -------
    SketchPlan
        Its event fits the target exactly once.

    Raises
    ------
    CalibrationError
        If no noise meets the target, or epsilon is so large that none can be drawn.
    ValueError
        If the table would have 2^31 entries or more.
    """
    # What is left for the table decides its shape before the exact calibration.
    mu = target.mu_cap * math.sqrt(1.0 if isinstance(bounds, DataBounds) else 1.0 - BOUNDS_SHARE)
    tables = n_classes or 1
    if isinstance(n_slices, str):
        n_slices = recommended_slices(n_samples, n_features, mu, tables)
    if isinstance(n_bins, str):
        n_bins = recommended_bins(n_samples, n_features, mu, tables)
    if tables * n_slices * n_bins >= 2**31:
        raise ValueError(
            f"A table of {tables} classes x {n_slices} slices x {n_bins} bins is too large; "
            "n_slices * n_bins times the number of classes must stay below 2^31."
        )
    strategy = square_root_strategy(n_bins)
    sensitivity = strategy.sensitivity(n_slices, conditional=n_classes is not None)
    shape = (n_slices, tables, strategy, sensitivity)
    limits = bounds_or_plan(bounds, n_features, target.mu_cap)
    if math.isinf(target.epsilon):
        return SketchPlan(*shape, 0.0, strategy.lattice, limits, NonPrivateEvent())

    def table_event(sigma: float) -> GaussianEvent:
        lattice = noise_lattice(sigma, strategy.lattice)
        return GaussianEvent(sigma=sigma, sensitivity=sensitivity, lattice=lattice)

    def fit_event(sigma: float) -> Event:
        if isinstance(limits, DataBounds):
            return table_event(sigma)
        return ComposedEvent(events=(limits.event, table_event(sigma)))

    event = calibrate(target, fit_event)
    table = event.events[-1] if isinstance(event, ComposedEvent) else event
    if not isinstance(table, GaussianEvent) or table.lattice is None:
        raise CalibrationError("The table of a sketch is released with lattice noise only.")
    required_bits(table.sigma / table.lattice, table.mu)  # refuses here, before any charge
    return SketchPlan(*shape, table.sigma, table.lattice, limits, event)


def bounds_or_plan(bounds: DataBounds | int, n_features: int, mu: float) -> DataBounds | BoundsPlan:
    """Return public bounds as they are, or plan how to estimate them from so many rows.

    Parameters
    ----------
    bounds : DataBounds or int
        Public bounds, or the number of rows to estimate them from.
    n_features : int
        Number of features.
    mu : float
        Gaussian privacy parameter of the whole fit, of whose square 10 % go to the bounds.

    Returns
    -------
    DataBounds or BoundsPlan
    """
    if isinstance(bounds, DataBounds):
        return bounds
    return plan_private_bounds(bounds, n_features, mu * math.sqrt(BOUNDS_SHARE))
