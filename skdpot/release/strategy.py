r"""Strategy matrices: the linear map of a histogram that is released, and its sensitivity.

A cumulative distribution is a prefix sum ``T h`` of a histogram ``h``. Noise added to ``h``
accumulates along the bins of ``T h``; noise added to ``T h`` must hide a record that touches every
value. Releasing ``A h`` and decoding with ``T A⁻¹`` balances both: the error grows like log B
rather than sqrt B. The square root ``A = T^(1/2)`` is nearly optimal for histograms whose records
can be anywhere. A record of a sketch cannot be at the ends of all slices at once; matrices that are
optimised for this restriction are data of the package, made by ``tools/sketch_strategies.py``.

References
----------
M. Henzinger, J. Upadhyay, S. Upadhyay, "Almost tight error bounds on differentially
private continual counting", SODA 2023 (the square root of the counting matrix).
C. Li, G. Miklau, M. Hay, A. McGregor, V. Rastogi, "The matrix mechanism: optimizing linear counting
queries under differential privacy", VLDB Journal 24 (2015).
"""

import math
from dataclasses import dataclass
from functools import cached_property, lru_cache
from importlib.resources import files
from typing import Any

import numpy as np
from scipy.linalg import toeplitz
from scipy.optimize import isotonic_regression, minimize_scalar

from skdpot.release.bounds import DataBounds

ENERGIES = (1 / 12.25, 0.1, 0.125, 0.18, 0.25, 0.45, 1.0)  # energies of optimised matrices
OPTIMISED_BINS = (16, 32, 64, 128)  # numbers of bins of optimised matrices
_TABLE_LATTICE = 2.0**-10  # spacing of the entries of optimised matrices
_MOST_BINS = 256  # with more bins there are too many pairs to bound each
_ROUNDED_UP = 1 + 1e-12  # covers rounding in sums of a few thousand terms
_ROWS_TOGETHER = 256  # rows in one isotonic regression, with rounding errors of 1e-13


@dataclass(frozen=True, eq=False)
class Energy:
    """A bound on the squared distances of a record's projections from the centres of all slices.

    It is ``Σ_j weights_j m_j² <= limit``, with m_j the least distance from the centre in the
    record's bin of slice j, in units of the half width. Slices of weight 0 are not bounded.
    """

    weights: np.ndarray
    limit: float

    @classmethod
    def of(cls, bounds: DataBounds, directions: np.ndarray, half_widths: np.ndarray) -> "Energy":
        """Return the energy of rows in the bounds; it does not depend on the unit of length.

        A row u has ``Σ_j ⟨u, θ_j⟩² <= ‖Θᵀ Θ‖₂ ‖u‖²``. In a box a row can be at the end of all axes,
        so axes are not bounded.

        Rows and directions are rounded to whole units. Rounding adds at most 1e-6 to the norm of a
        row. The longest direction, in units of its half width, has a length of 2^26 units, so a
        direction of half width w moves by at most ``√d / 2^27 w / min w``, and all together by at
        most ``√L`` times that, relative to ``‖Θ‖₂ >= √(L / d)``.
        """
        taken = np.ones(len(directions), dtype=bool)
        spread = float(half_widths.max() / half_widths.min())
        rounded = 1.0 + 1e-5 + directions.shape[1] * spread * 2.0**-24
        if bounds.box:
            taken = np.abs(directions).max(axis=1) < 1 - 1e-9
        weights = np.where(taken, (half_widths / bounds.radius) ** 2, 0.0)
        return cls(weights, rounded * _squared_norm(directions[taken]))

    @classmethod
    def unlimited(cls, n_projections: int) -> "Energy":
        """Return the energy without a limit: a record can be at the ends of all slices."""
        return cls(np.zeros(n_projections), 0.0)

    @property
    def mean(self) -> float:
        """Mean energy of a slice in units of its squared half width; 1 for slices without limit."""
        if self.limit == 0:
            return 1.0
        anywhere = np.count_nonzero(self.weights == 0) * self.weights.max()
        return float((self.limit + anywhere) / (self.weights.sum() + anywhere))


def _squared_norm(directions: np.ndarray) -> float:
    """Return the squared spectral norm, rounded up."""
    if not len(directions):
        return 0.0
    small = len(directions) < directions.shape[1]
    gram = directions @ directions.T if small else directions.T @ directions
    # The largest row sum of the Gram matrix bounds the eigenvalues; orthogonal blocks attain it.
    bound = float(np.abs(gram).sum(axis=1).max())
    if bound > 1.0001 * np.trace(gram) / len(gram):
        bound = min(bound, float(np.linalg.eigvalsh(gram)[-1]))
    return bound * (1 + 1e-9)


@dataclass(frozen=True)
class Strategy:
    """A strategy matrix A, rounded once to a public lattice.

    `energy` is the mean energy per slice that the matrix is optimised for, one of `ENERGIES`, or
    None for the square root of the matrix of prefix sums, which exists for any number of bins.
    """

    n_bins: int
    energy: float | None = None

    def __post_init__(self) -> None:
        """Refuse a number of bins and an energy without a matrix."""
        if self.energy is not None and (
            self.n_bins not in OPTIMISED_BINS or self.energy not in ENERGIES
        ):
            raise ValueError(
                f"There is no strategy for {self.n_bins} bins and the energy {self.energy!r:.20}."
            )

    def __reduce__(self) -> Any:
        """Copy and pickle without the matrices, which follow from the fields."""
        return strategy_of, (self.n_bins, self.energy)

    @property
    def lattice(self) -> float:
        """Spacing g of the entries, the coarsest with a negligible loss of accuracy.

        Beyond 256 bins entries of the square root fall below 1/16, and rounding them would cost
        accuracy (14 % more noise at 512 bins).
        """
        if self.energy is not None:
            return _TABLE_LATTICE
        return 1 / 16 if self.n_bins <= 256 else 1 / 64

    @cached_property
    def integer_matrix(self) -> np.ndarray:
        """A / g, int64 of shape (n_bins, n_bins)."""
        if self.energy is not None:
            first = _tables()[f"{self.n_bins}-{ENERGIES.index(self.energy)}"].astype(np.int64)
            return _frozen(np.concatenate([first, first[::-1, ::-1]]))
        k = np.arange(1, self.n_bins)
        column = np.concatenate([[1.0], np.cumprod((2 * k - 1) / (2 * k))])
        units = np.rint(column / self.lattice).astype(np.int64)
        return _frozen(np.tril(toeplitz(units)))

    @cached_property
    def matrix(self) -> np.ndarray:
        """A, float64 of shape (n_bins, n_bins); exact, as g is a power of two."""
        return _frozen(self.integer_matrix * self.lattice)

    @cached_property
    def decoder(self) -> np.ndarray:
        """D = T A^-1, from the released statistic to cumulative counts."""
        return _frozen(np.cumsum(np.linalg.inv(self.matrix), axis=0))

    @cached_property
    def covariance(self) -> np.ndarray:
        """D Dᵀ, the covariance of the cumulative counts for noise of unit variance."""
        return _frozen(self.decoder @ self.decoder.T)

    @cached_property
    def known_total_covariance(self) -> np.ndarray:
        """Covariance of the counts at the inner edges, given the last one."""
        last = self.covariance[:, -1]
        return _frozen((self.covariance - np.outer(last, last) / last[-1])[:-1, :-1])

    @cached_property
    def typical_deviation(self) -> float:
        """Root mean square deviation of a count at an inner edge, for noise of unit variance."""
        return float(np.sqrt(np.diag(self.known_total_covariance).mean()))

    def known_total(self, cumulative: np.ndarray, totals: np.ndarray | float) -> np.ndarray:
        """Return distribution functions at the inner edges, given that they end at 1."""
        last = self.covariance[:, -1]
        excess = cumulative[..., -1:] - totals
        return (cumulative - excess * last / last[-1])[..., :-1] / totals

    def decoded(self, statistic: np.ndarray, n_samples: int) -> np.ndarray:
        """Decode a table of known total without a prior, for outputs of a network in training."""
        total = np.full((1, 1), float(n_samples))
        return increasing(self.known_total(statistic @ self.decoder.T, total))

    def sensitivity(
        self, energy: Energy, *, conditional: bool = False, group_size: int = 1
    ) -> float:
        r"""Return the L2 sensitivity of the released statistic under replace-one.

        A record adds one count to one bin of each of the L histograms. Replacing it moves that
        count from bin :math:`a_j` to bin :math:`b_j` of slice j, which moves the statistic by
        :math:`A (e_{a_j} - e_{b_j})` there. With :math:`X = A^\top A` and
        :math:`G_{ab} = X_{aa} + X_{bb} - 2 X_{ab}`, the squared change is
        :math:`\sum_j G_{a_j b_j}`. The counting keeps the energy of every record below a limit E:
        :math:`\sum_j \omega_j m_{a_j}^2 \le E`, and so for b. Therefore, for every
        :math:`\lambda \ge 0`,

        .. math:: \sum_j G_{a_j b_j} \le \sum_j \max_{a, b}
                  \left[G_{ab} - \lambda \omega_j (m_a^2 + m_b^2)\right] + 2 \lambda E,

        The λ of the smallest bound is found numerically; every other λ gives a valid bound too.
        (This is the dual of the choice of the bins of the two records, relaxed to shares of slices.
        So with many slices of equal weight the best bound is attained, if the directions allow such
        records.)
        Without a limit λ is 0 and :math:`\Delta^2 = L \max_{ab} G_{ab}`.

        With private classes the record may also change its class. Then two tables move,
        by :math:`A e_{a_j}` and :math:`A e_{b_j}`, and
        :math:`\Delta^2 = 2 \min_\lambda \sum_j \max_a [X_{aa} - \lambda \omega_j m_a^2] +
        2 \lambda E`, or the bound above if that is larger.

        Where labels are public, neighbours replace the values of a row and keep its label: only the
        table of its class moves, by at most Δ of a table without classes. A person with k rows of k
        different labels moves k tables, each by at most Δ. These are different coordinates of the
        release, so the squares add up to ``sqrt(k) Δ``. (Two rows in one table could move it by
        2 Δ; hence the different labels.)
        """
        if self.n_bins > _MOST_BINS:
            energy = Energy.unlimited(len(energy.weights))
        squared = _largest_change(*self._changes, energy)
        if conditional:
            of_classes = _largest_change(2 * np.diag(self._gram), 2 * self._least_squares, energy)
            squared = max(squared, of_classes)
        return float(self.lattice * np.sqrt(squared * group_size * _ROUNDED_UP))

    @cached_property
    def _gram(self) -> np.ndarray:
        """AᵀA in units of g²: whole numbers far below 2^53, exact in double precision."""
        units = self.integer_matrix.astype(np.float64)
        return units.T @ units

    @cached_property
    def _least_squares(self) -> np.ndarray:
        """Square of the least distance from the centre in each bin, in units of the half width."""
        centres = np.abs(np.arange(self.n_bins) + 0.5 - self.n_bins / 2)
        return (np.maximum(centres - 0.5, 0.0) * 2 / self.n_bins) ** 2

    @cached_property
    def _changes(self) -> tuple[np.ndarray, np.ndarray]:
        """Squared change of the statistic by a move between two bins, and the energy of both."""
        diagonal, least = np.diag(self._gram), self._least_squares
        changes = diagonal[:, None] + diagonal - 2 * self._gram
        if self.n_bins > _MOST_BINS:
            return changes.max(keepdims=True).ravel(), np.zeros(1)
        changes, energies = changes.ravel(), (least[:, None] + least).ravel()
        order = np.lexsort((-changes, energies))
        changes, energies = changes[order], energies[order]
        larger = np.append(True, changes[1:] > np.maximum.accumulate(changes)[:-1])
        return changes[larger], energies[larger]


def _largest_change(changes: np.ndarray, energies: np.ndarray, energy: Energy) -> float:
    """Return ``min over λ of Σ_j max [changes - λ weights_j energies] + 2 λ limit``."""
    weights, numbers = np.unique(energy.weights, return_counts=True)
    limit = 2 * energy.limit

    def bound(dual: float) -> float:
        costs = dual * weights[:, None] * energies
        return float(numbers @ (changes - costs).max(axis=1) + dual * limit)

    unlimited = bound(0.0)
    if energy.limit == 0:
        return unlimited
    least = minimize_scalar(bound, bounds=(0.0, unlimited / limit), method="bounded")
    return min(unlimited, float(least.fun))


@lru_cache(maxsize=32)
def strategy_of(n_bins: int, energy: float | None = None) -> Strategy:
    """Return a cached strategy, whose matrices are computed once."""
    return Strategy(n_bins, energy)


def best_strategy(n_bins: int, energy: Energy) -> Strategy:
    """Return the strategy with the least noise for the same privacy, by a public rule.

    It is the matrix optimised for the energy nearest to the mean energy of the slices. For boxes
    and balls of 2 to 64 features, in the public density of ``tools/sketch_strategies.py``, it is
    within 1 % of the best matrix.
    """
    if n_bins not in OPTIMISED_BINS:
        return strategy_of(n_bins)
    mean = energy.mean
    return strategy_of(n_bins, min(ENERGIES, key=lambda each: abs(math.log(each / mean))))


@lru_cache(maxsize=1)
def _tables() -> dict[str, np.ndarray]:
    """Return the upper halves of the optimised matrices; reversing both axes gives the lower."""
    with (files("skdpot.release") / "strategies.npz").open("rb") as file:
        with np.load(file, allow_pickle=False) as tables:
            return dict(tables)


def _frozen(array: np.ndarray) -> np.ndarray:
    array.setflags(write=False)
    return array


def increasing(inner: np.ndarray) -> np.ndarray:
    """Return the nearest non-decreasing functions from 0 to 1.

    Rows are shifted so that each lies above the one before. One regression then fits them all: no
    block of equal values extends over two rows.
    """
    cdf = np.zeros((*inner.shape[:-1], inner.shape[-1] + 2))
    cdf[..., -1] = 1.0
    rows = inner.reshape(-1, inner.shape[-1])
    fitted = np.empty(rows.shape)
    for start in range(0, len(rows) if rows.size else 0, _ROWS_TOGETHER):
        some = rows[start : start + _ROWS_TOGETHER]
        steps = np.arange(len(some))[:, None] * (np.ptp(some) + 1.0)
        fits = isotonic_regression((some + steps).ravel()).x.reshape(some.shape)
        fitted[start : start + _ROWS_TOGETHER] = fits - steps
    np.clip(fitted.reshape(inner.shape), 0.0, 1.0, out=cdf[..., 1:-1])
    return cdf
