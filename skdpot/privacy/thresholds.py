"""The event of noisy counts that are shown where they exceed a threshold."""

import math
from dataclasses import dataclass, replace
from fractions import Fraction

from scipy.special import ndtr

from skdpot.privacy.events import Event, Relation, Step, Steps, count, or_none, positive, step_mu

_UP = 1.0 + 1e-12


@dataclass(frozen=True, kw_only=True)
class ThresholdedCountsEvent(Event):
    """Noisy counts of the categories that occur, shown where they exceed a threshold."""

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
        """L2 distance between the counts of one column in neighbouring data sets."""
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
        """Probability, rounded up, that categories are shown which only one record has."""
        return self.group_leak(1)

    def group_leak(self, group_size: int) -> float:
        """Bound the probability that categories are shown which only the records of a group have.

        The k records of a group have up to k such categories per column, with counts that sum to at
        most k; the division with the largest sum of probabilities counts. What is shown under one
        neighbour and under the other is disjoint (case 3 of `skdpot.tables.category_selection`), so
        the larger probability is a leak. Other counts move by at most k times what one record moves
        them. The bound is 1 where a count of k is too near the threshold for the bound of the tail.
        """
        if self.threshold < group_size + self.sigma + (self.lattice or 0.0):
            return 1.0
        shown = [0.0]
        for k in range(1, group_size + 1):
            shown.append(max(self._passes(c) + shown[k - c] for c in range(1, k + 1)))
        if shown[-1] >= 1.0:
            return 1.0
        return -math.expm1(self.n_columns * math.log1p(-shown[-1])) * _UP

    def _passes(self, count: int) -> float:
        """Bound the probability that noise lifts a count past the threshold."""
        steps = Fraction(self.threshold) - count
        if self.lattice is not None:  # less the half that the bound of the discrete tail takes
            steps = (math.floor(steps / Fraction(self.lattice)) + Fraction(1, 2)) * Fraction(
                self.lattice
            )
        return float(ndtr(-float(steps) / self.sigma)) * _UP

    def _steps(self) -> Steps:
        column = replace(self, n_columns=1)
        yield Step(column.mu, column.delta_tail), self.n_columns

    def _grouped(self, group_size: int) -> Event:
        # Each part shows the counts of its own columns.
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
