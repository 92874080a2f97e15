r"""The event of a noisy table of counts that shows only what exceeds a threshold.

The table has a row for every category that occurs. Nobody knows beforehand which ones could
occur, so that categories without a record cannot be given noise; that a category is in the table
at all says that somebody has it. A threshold hides those that few have.

The proof, replace-one
----------------------
A column holds one category a record. Each category of count :math:`c \ge 1` draws its own noise
:math:`Z \sim N(0, \sigma^2)` and shows :math:`c + Z` if that exceeds :math:`\tau`, else nothing;
a category of count 0 shows nothing. Let :math:`q = P[1 + Z > \tau]`. Neighbours ``D`` and ``D'``
differ in one record, which has the category ``a`` in ``D`` and ``b`` in ``D'``. All other
categories show the same under both, and what two categories show is independent.

1. *Counts of at least one under both.* Showing or hiding ``c + Z`` is post-processing of it, so
   that one such category is :math:`1/\sigma`-GDP.
2. *A category that only the replaced record has* (``a`` under ``D``, or ``b`` under ``D'``). Under
   one neighbour nothing is shown; under the other, something with probability ``q``. That is
   post-processing of "with probability ``q`` learn which data set it is, otherwise nothing".
   Counts are integers: from 1 to 2 it is case 1 again. Had only counts of at least two been
   admitted, ``q`` would be :math:`P[2 + Z > \tau]`, the same leak at a threshold higher by one:
   a second condition costs categories and buys nothing.
3. *Both.* If only the record has ``a`` under ``D`` and only it has ``b`` under ``D'``, both
   neighbours show nothing with the same probability ``1 - q``, and disjoint things otherwise: a
   leak of ``q``, not of ``2q``.

With :math:`G_\mu` for the profile of :math:`N(0, 1)` against :math:`N(\mu, 1)`, a column has
the profile :math:`\max\{G_{\sqrt 2/\sigma}(\varepsilon),\; q + (1 - q) G_{1/\sigma}(\varepsilon)\}`
at most. ``k`` columns with noise of their own have at most

.. math:: \max_{0 \le m \le k} L_m + (1 - L_m)\, G_{\sqrt{2k - m}/\sigma}(\varepsilon),
          \qquad L_m = 1 - (1 - q)^m,

where ``m`` counts the columns of cases 2 and 3. With continuous noise this is tight: neighbours
with ``m = 0`` attain their term as their counts grow, those of case 2 with ``m > 0`` theirs up to a
factor :math:`1 - O(kq)`. What is charged is simpler and at least as much: *a leak of* :math:`L_k`,
*otherwise* :math:`G_{\sqrt{2k}/\sigma}`. At the same delta the maximum would need at most one
percent less noise, when the leak is a tenth of delta.

When one record is added or removed, one count of a column changes: :math:`G_{\sqrt k/\sigma}`
with the same leak.

On a lattice of spacing ``g`` the discrete Gaussian pays its factor on ``mu``
(`skdpot.privacy.lattice_sampler`). Its tail has a bound in closed form. Let :math:`s = \sigma / g`.
Where :math:`x \ge s`, the function :math:`f(x) = e^{-x^2/2s^2}` is convex and hence no larger at an
integer than on average over the unit interval around it, and
:math:`\sum_j f(j) \ge s\sqrt{2\pi}` by Poisson summation. So for every integer
:math:`m \ge s + 1/2`

.. math:: P[Z \ge m g] \le 1 - \Phi\left(\frac{m - 1/2}{s}\right).

References
----------
Wilkins, Kifer, Zhang, Karrer, "Exact Privacy Analysis of the Gaussian Sparse Histogram Mechanism",
Journal of Privacy and Confidentiality 14(1), 2024 (the maximum over the cases, add or remove).
Korolova, Kenthapadi, Mishra, Ntoulas, "Releasing Search Queries and Clicks Privately", 2009, and
Bun, Nissim, Stemmer, "Simultaneous Private Learning of Multiple Concepts", 2016 (thresholds).
"""

import math
from dataclasses import dataclass
from fractions import Fraction

from scipy.special import ndtr

from skdpot.privacy.event_base import (
    Event,
    lattice_spacing,
    positive_float,
    positive_int,
    step_mu,
)
from skdpot.privacy.relation import Relation

__all__ = ["ThresholdedCountsEvent"]

# Far above the rounding of the normal distribution function, far below anything else.
_UP = 1.0 + 1e-12


@dataclass(frozen=True, kw_only=True)
class ThresholdedCountsEvent(Event):
    """Noisy counts of the categories that occur, shown where they exceed a threshold.

    Parameters
    ----------
    sigma : float
        Standard deviation of the noise on every count.
    threshold : float
        Noisy counts above it are shown, together with their categories. At least one plus
        `sigma` plus `lattice`.
    n_columns : int, default=1
        Number of columns that are released so, each with one category a record at most.
    lattice : float or None, default=None
        Spacing of the lattice of discrete Gaussian noise; ``None`` is continuous noise.
    relation : Relation, default=Relation.REPLACE_ONE
        What two neighbouring data sets are.

    Raises
    ------
    ValueError
        If a field is out of range.
    """

    sigma: float
    threshold: float
    n_columns: int = 1
    lattice: float | None = None

    def __post_init__(self) -> None:
        """Check the fields and give them their plain Python types."""
        super().__post_init__()
        self._store("sigma", positive_float(self, "sigma", self.sigma))
        self._store("threshold", positive_float(self, "threshold", self.threshold))
        self._store("n_columns", positive_int(self, "n_columns", self.n_columns))
        self._store("lattice", lattice_spacing(self, self.lattice, self.sigma))
        if self.threshold < 1.0 + self.sigma + (self.lattice or 0.0):
            raise ValueError(
                f"{type(self).__name__}: `threshold` must be at least 1 + sigma + lattice, got "
                f"{self.threshold!r} with sigma={self.sigma!r} and lattice={self.lattice!r}."
            )

    @property
    def sensitivity(self) -> float:
        """L2 distance between the counts of one column in neighbouring data sets."""
        return math.sqrt(2.0) if self.relation is Relation.REPLACE_ONE else 1.0

    @property
    def mu(self) -> float:
        """All columns are mu-GDP, except with probability `delta_tail`."""
        return math.sqrt(self.n_columns) * step_mu(self.sigma, self.sensitivity, self.lattice)

    @property
    def delta_tail(self) -> float:
        """Probability, rounded up, that categories are shown which only one record has."""
        return self.group_tail(1)

    def group_tail(self, group_size: int) -> float:
        """Bound the probability that categories are shown which only the records of a group have.

        The k records of a group may have up to k such categories in a column, with counts that sum
        to at most k. Of all ways to divide them the likeliest to be shown counts, by the sum of the
        probabilities. As in case 3, what is shown under one neighbour and under the other are
        disjoint, so that the larger one of the two probabilities is a leak; and other counts move
        by at most k times what one record moves them.

        Parameters
        ----------
        group_size : int
            Number k of records that change.

        Returns
        -------
        float
            Rounded up; 1 where a count of k lies too near to the threshold for the bound of the
            tail.
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
