"""What a sketch will measure and with how much noise, settled before any row is read."""

import math
from dataclasses import dataclass

from skdpot.privacy.bounds_plan import BoundsPlan, bounds_share, plan_private_bounds
from skdpot.privacy.calibration import PrivacyTarget, calibrate
from skdpot.privacy.data_bounds import DataBounds
from skdpot.privacy.events import ComposedEvent, Event, GaussianEvent, NonPrivateEvent
from skdpot.privacy.lattice_sampler import required_bits
from skdpot.privacy.noise import noise_lattice
from skdpot.slicing.declarations import check_public_labels
from skdpot.slicing.rules import recommended_bins, recommended_slices
from skdpot.slicing.strategy import SquareRootStrategy, square_root_strategy

__all__ = ["SketchPlan", "bounds_or_plan", "plan_sketch", "table_sensitivity"]


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
        L2 sensitivity Δ of the whole table, as in `table_sensitivity`.
    sigma : float
        Standard deviation of the noise on each entry; 0 without privacy.
    lattice : float
        Spacing of the noise, a fraction of the strategy's.
    bounds : DataBounds or BoundsPlan
        Public bounds, or how bounds are estimated first.
    event : Event
        Everything together: what is charged.
    public_labels : bool, default=False
        Whether the label of every row is public, and so the size of each class.
    group_size : int, default=1
        How many rows, all of different labels, one person may have given.
    """

    n_slices: int
    n_classes: int
    strategy: SquareRootStrategy
    sensitivity: float
    sigma: float
    lattice: float
    bounds: DataBounds | BoundsPlan
    event: Event
    public_labels: bool = False
    group_size: int = 1

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
    public_labels: bool = False,
    group_size: int = 1,
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
        Public bounds, or the number of rows from which bounds are estimated first, for
        `bounds_share` of the squared mu.
    public_labels : bool, default=False
        Whether the label of every row is public, so that a neighbour keeps it.
    group_size : int, default=1
        How many rows one person may have given, all of different public labels. A neighbour
        replaces all of them.

    Returns
    -------
    SketchPlan
        Its event fits the target exactly once.

    Raises
    ------
    CalibrationError
        If no noise meets the target, or epsilon is so large that none can be drawn.
    ValueError
        If the table would have 2^31 entries or more, labels are public without classes, or
        `group_size` is too large.
    """
    check_public_labels(n_classes, public_labels, group_size)
    # What is left for each row of the table decides its shape before the exact calibration.
    left = 1.0
    if not isinstance(bounds, DataBounds):
        left -= bounds_share(bounds, n_features, target.mu_cap, int(group_size))
    mu = target.mu_cap * math.sqrt(left / group_size)
    tables = n_classes or 1
    if isinstance(n_slices, str):
        n_slices = recommended_slices(n_samples, n_features, mu, tables)
    if isinstance(n_bins, str):
        n_bins = recommended_bins(n_samples, n_features, mu, tables)
    # Integers of numpy wrap around, and unsigned and signed ones make floating-point numbers.
    n_slices, n_bins, group_size = int(n_slices), int(n_bins), int(group_size)
    if tables * n_slices * n_bins >= 2**31:
        raise ValueError(
            f"A table of {tables} classes x {n_slices} slices x {n_bins} bins is too large; "
            "n_slices * n_bins times the number of classes must stay below 2^31."
        )
    strategy = square_root_strategy(n_bins)
    changes_table = n_classes is not None and not public_labels
    sensitivity = table_sensitivity(
        strategy, n_slices, changes_table=changes_table, group_size=group_size
    )
    shape = (n_slices, tables, strategy, sensitivity)
    labels = (public_labels, group_size)
    limits = bounds_or_plan(bounds, n_features, target.mu_cap, group_size)
    if math.isinf(target.epsilon):
        return SketchPlan(*shape, 0.0, strategy.lattice, limits, NonPrivateEvent(), *labels)

    def table_event(sigma: float) -> GaussianEvent:
        lattice = noise_lattice(sigma, strategy.lattice)
        return GaussianEvent(
            sigma=sigma, sensitivity=sensitivity, lattice=lattice, label="Distribution functions"
        )

    def fit_event(sigma: float) -> Event:
        if isinstance(limits, DataBounds):
            return table_event(sigma)
        return ComposedEvent(events=(limits.event, table_event(sigma)))

    event = calibrate(target, fit_event)
    table = event.phases[-1]
    required_bits(table.sigma / table.lattice, table.mu)  # refuses here, before any charge
    return SketchPlan(*shape, table.sigma, table.lattice, limits, event, *labels)


def table_sensitivity(
    strategy: SquareRootStrategy, n_slices: int, *, changes_table: bool, group_size: int = 1
) -> float:
    """Return the L2 sensitivity of the tables of all classes together.

    Private labels, or no classes: one record is replaced, as `SquareRootStrategy.sensitivity`
    says. Public labels: neighbours replace the values of a row and keep its label, so that one
    row moves a count within each of the L histograms of its own class: the table of that class
    moves as a table without classes would, by at most Δ, and the other tables stay. A person
    with k rows of k different labels moves k of the tables, each by at most Δ. They are
    different coordinates of the release, so that their squares add up: ``sqrt(k) Δ``, the
    sensitivity of k L histograms of one table. (Were two of the rows in one table, their moves
    could add up in length, to 2 Δ; hence the different labels.)

    Parameters
    ----------
    strategy : SquareRootStrategy
        What is measured of each histogram.
    n_slices : int
        Number of slices L.
    changes_table : bool
        Whether a neighbour's record may be in the table of another class: with classes whose
        labels are private.
    group_size : int, default=1
        Number k of rows that one person may have given; they stay in k different tables.

    Returns
    -------
    float
        Δ of the whole release, rounded up.
    """
    return strategy.sensitivity(group_size * n_slices, conditional=changes_table)


def bounds_or_plan(
    bounds: DataBounds | int, n_features: int, mu: float, group_size: int = 1
) -> DataBounds | BoundsPlan:
    """Return public bounds as they are, or plan how to estimate them from so many rows.

    Parameters
    ----------
    bounds : DataBounds or int
        Public bounds, or the number of rows to estimate them from.
    n_features : int
        Number of features.
    mu : float
        Gaussian privacy parameter of the whole fit, of whose square `bounds_share` go to the
        bounds.
    group_size : int, default=1
        How many of the rows one person may have given.

    Returns
    -------
    DataBounds or BoundsPlan
    """
    if isinstance(bounds, DataBounds):
        return bounds
    of_bounds = mu * math.sqrt(bounds_share(bounds, n_features, mu, group_size))
    return plan_private_bounds(bounds, n_features, of_bounds, group_size=group_size)
