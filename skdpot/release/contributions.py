r"""The unit of privacy: the person of each row, and the weight of the rows of one person.

Where persons have several rows, a record is a person. The number of persons is public, and
neighbours replace all rows of one person by any number of other rows, so the number of rows is
private. At most ``max_rows`` rows of each person are drawn at random, and each gets a weight.

*Weighting "person".* The rows drawn of a person share 16 units of weight 1/16 as evenly as
possible: of k rows the first 16 mod k, in random order, get one unit more than the others. Each row
then weighs 1/k on average, and together they weigh exactly 1. For *any* function g of rows, a
release of the sum over rows of weight times g has the sensitivity of one row per person: a
person adds :math:`\sum_i a_i g(x_i)` here and :math:`\sum_j b_j g(y_j)` in the neighbour, with
weights that sum to 1 in both, which differ by :math:`\sum_{ij} a_i b_j (g(x_i) - g(y_j))`: a mean
of differences between single rows. So a contingency table moves by at most :math:`\sqrt 2`, a
misfit by 2, and a sketch by as much as one row moves it. The release estimates the distribution
of a random row of a random person.

*Weighting "row".* Every row drawn weighs 1. A person adds at most k counts to a contingency table,
a vector u >= 0 with :math:`\|u\|_1 \le k`, so that :math:`\|u - v\|_2^2 \le \|u\|_2^2 + \|v\|_2^2
\le 2 k^2`: k times the sensitivity of one row, attained where k rows of one cell are replaced by k
rows of another. A misfit moves by at most :math:`\|u - v\|_1 \le 2k`, attained as well.

*Drawing.* Each row gets a random number, and the rows of a person with the smallest numbers are
drawn. Given the random numbers, neighbours differ in the rows of one person alone, whatever their
number. The bounds above hold for each outcome of the random numbers and for all releases of the
rows together, and a divergence of two mixtures with the same shares is at most the largest
divergence of their parts (joint convexity).
"""

from contextlib import suppress
from dataclasses import dataclass
from typing import TypeAlias

import numpy as np
import numpy.typing as npt
import pandas as pd

from skdpot._utils.arrays import IntArray
from skdpot._utils.streams import SecretStream
from skdpot.sources import Rows

Parts: TypeAlias = list[tuple[IntArray, int]]

WEIGHTINGS = ("person", "row")
UNITS = 16  # units in the weight of a person: weights are multiples of 1 / 16


@dataclass(frozen=True)
class Unit:
    """The unit of privacy, which is public: one row, or the rows of one person."""

    of: str | None = None
    max_rows: int = 1
    weighting: str = "person"

    @classmethod
    def of_parameters(cls, of: str | None, max_rows: int | None, weighting: str) -> "Unit":
        """Return the unit that the parameters state; refuse contradictory ones."""
        by_row = weighting == "row"
        if of is None and (max_rows is not None or by_row):
            raise ValueError(
                "max_rows and weighting are about the rows of one person: pass unit, the name of "
                "the column that identifies the person."
            )
        if of is None:
            return cls()
        if by_row and max_rows is None:
            raise ValueError(
                'weighting="row" needs max_rows: the noise grows with the number of rows that one '
                "person may have."
            )
        if not by_row and max_rows is not None and max_rows > UNITS:
            raise ValueError(
                f'max_rows={max_rows} must be at most {UNITS} with weighting="person"; more rows '
                "of one person would tell hardly more."
            )
        return cls(of, max_rows or UNITS, weighting)

    @property
    def weight(self) -> float:
        """Largest total weight of the rows of one person."""
        return float(self.max_rows) if self.weighting == "row" else 1.0

    @property
    def assumptions(self) -> tuple[str, ...]:
        """The assumptions of a privacy statement that define a record."""
        if self.of is None:
            return ("the number of rows", "each person contributes one row")
        weigh = "each as one row" if self.weighting == "row" else "together as one row"
        return (
            "the number of persons",
            f"one record is one person: all rows with one value in {self.of!r}, however many; at "
            f"most {self.max_rows} of them, drawn at random, count, {weigh}; no row lacks that "
            "value",
        )

    def draw(self, persons: IntArray, stream: SecretStream) -> "Contributions":
        """Draw the rows that count; `persons` holds the number of each row's person, from 0."""
        order = np.lexsort((stream.random_uint64(len(persons)), persons))
        sizes = np.bincount(persons)
        starts = np.cumsum(sizes) - sizes
        ranks = np.arange(len(persons)) - np.repeat(starts, sizes)
        kept = ranks < self.max_rows
        shared = np.repeat(np.minimum(sizes, self.max_rows), sizes)
        units = UNITS // shared + (ranks < UNITS % shared)
        weights = np.ones(len(persons)) if self.weighting == "row" else units / UNITS
        return Contributions(order[kept], weights[kept], order[starts])


@dataclass(frozen=True, eq=False)
class Contributions:
    """The rows that were drawn, their weights, and one of these rows per person."""

    rows: IntArray
    weights: npt.NDArray[np.float64]
    one_each: IntArray

    @property
    def parts(self) -> Parts:
        """Pairs of the rows of one weight and this weight in units."""
        units = np.rint(self.weights * UNITS).astype(np.int64)
        return [(self.rows[units == number], int(number)) for number in np.unique(units)]


def count_records(rows: Rows, persons: IntArray | None) -> int:
    """Return the public number of records: rows, or persons if they have several rows."""
    return rows.n_rows if persons is None else int(persons.max()) + 1


def read_persons(values: npt.ArrayLike, name: str, n_rows: int, fewest: int = 2) -> IntArray:
    """Return the number of the person of each row, from 0; an error quotes no value."""
    persons: IntArray = np.empty(0, dtype=np.int64)
    with suppress(Exception):  # an array of another library may raise anything, and quote values
        labels = np.asarray(values)
        if labels.shape == (n_rows,) and not pd.isna(labels).any():
            persons = pd.factorize(labels, sort=True)[0]  # independent of the order of the rows
    if not len(persons):
        raise ValueError(
            f"{name} must identify the person of each row: one text or number each, none missing."
        )
    if persons.max() + 1 < fewest:
        raise ValueError(f"{name} names a single person; a minimum of 2 is required.")
    return persons
