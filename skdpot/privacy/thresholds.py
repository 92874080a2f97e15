"""The event of noisy counts that are released if they exceed a threshold."""

import math
from dataclasses import dataclass, replace
from fractions import Fraction

from scipy.special import ndtr

from skdpot.privacy.events import Event, Relation, Step, Steps, count, or_none, positive, step_mu

_UP = 1.0 + 1e-12


@dataclass(frozen=True, kw_only=True)
class ThresholdedCountsEvent(Event):
    """Noisy counts of the categories in the data, released if they exceed a threshold."""

    sigma: float
    threshold: float
    n_columns: int = 1
    lattice: float | None = None

    in_files = True
    _checks = {
        "sigma": positive,
        "threshold": positive,
        "n_columns": count,
        "lattice": or_none(positive),
    }

    def __post_init__(self) -> None:
        """Check the fields and give them their plain Python types."""
        super().__post_init__()
        if self.threshold < 1.0 + self.sigma + (self.lattice or 0.0):
            raise self._error(
                "threshold",
                f"must be at least 1 + sigma + lattice, got {self.threshold!r} with "
                f"sigma={self.sigma!r} and lattice={self.lattice!r}",
            )

    @property
    def sensitivity(self) -> float:
        """Largest L2 distance between the counts of one column in neighbouring data sets."""
        return math.sqrt(2.0) if self.relation is Relation.REPLACE_ONE else 1.0

    @property
    def n_steps(self) -> int:
        """Number of releases, one per column."""
        return self.n_columns

    @property
    def mu(self) -> float:
        """All columns are mu-GDP, except with probability `delta_tail`."""
        return math.sqrt(self.n_columns) * step_mu(self.sigma, self.sensitivity, self.lattice)

    @property
    def delta_tail(self) -> float:
        """Probability, rounded up, of releasing a category that only one record has."""
        return self.group_leak(1)

    def group_leak(self, group_size: int) -> float:
        """Bound the probability of releasing a category that only records of a group have.

        The k records of a group have up to k such categories per column, with counts that sum to at
        most k. The division of k with the largest sum of probabilities is the bound. The two
        neighbours release disjoint sets of such categories (case 3 of
        `skdpot.tables.category_selection`), so the larger probability is a leak. All other counts
        move by at most k times their change for one record. The bound is 1 if a count of k is too
        close to the threshold for the bound on the tail.
        """
        if self.threshold < group_size + self.sigma + (self.lattice or 0.0):
            return 1.0
        leaks = [0.0]  # the largest sum of probabilities for k = 0, 1, ... records
        for k in range(1, group_size + 1):
            leaks.append(max(self._passes(c) + leaks[k - c] for c in range(1, k + 1)))
        if leaks[-1] >= 1.0:
            return 1.0
        return -math.expm1(self.n_columns * math.log1p(-leaks[-1])) * _UP

    def _passes(self, count: int) -> float:
        """Bound the probability that noise lifts a count past the threshold."""
        gap = Fraction(self.threshold) - count
        if self.lattice is not None:  # the bound on the discrete tail starts half a step earlier
            lattice = Fraction(self.lattice)
            gap = (math.floor(gap / lattice) + Fraction(1, 2)) * lattice
        return float(ndtr(-float(gap) / self.sigma)) * _UP

    def _steps(self) -> Steps:
        column = replace(self, n_columns=1)
        yield Step(column.mu, column.delta_tail), self.n_columns

    def _grouped(self, group_size: int) -> Event:
        # Each part releases the counts of its own columns.
        return replace(self, n_columns=group_size * self.n_columns)

    def _words(self) -> str:
        columns = f"{self.n_columns:,} columns" if self.n_columns > 1 else "1 column"
        change = "replacing one record moves two counts"
        if self.relation is Relation.ADD_REMOVE:
            change = "adding or removing one record moves one count"
        return (
            f"The categories of {columns}: every count has Gaussian noise of standard deviation "
            f"{self.sigma:.4g}, {change} of a column by 1, and only categories whose noisy counts "
            f"exceed {self.threshold:.4g} are released. With probability {self.delta_tail:.2g} at "
            "most, this shows a category that one record alone has."
        )
