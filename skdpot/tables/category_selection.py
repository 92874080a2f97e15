r"""Private selection of the categories of a column, with their counts.

The values of a column are private: a rare disease, a street or a name may identify somebody.
Without a public list, only categories that many records share may be published. Every category
that occurs gets a noisy count, and those above a threshold are shown. A fit charges ``plan.event``
before it calls `select_categories`.

A fit that needs more than categories plans the categories first, from a fixed share of
the squared mu and of delta (`PrivacyTarget.tail_delta`: a tenth of delta for a fit without a
budget; a ten-thousandth of it in a ledger, so that a thousand fits share its reserve for leaks).
`calibrate` then finds the noise of the rest from what is left of both.

Counts above a threshold, replace-one
-------------------------------------
A column holds one category per record. Each category of count :math:`c \ge 1` draws its own noise
:math:`Z \sim N(0, \sigma^2)` and shows :math:`c + Z` if that exceeds :math:`\tau`, else nothing;
a category of count 0 shows nothing. Let :math:`q = P[1 + Z > \tau]`. Neighbours ``D`` and ``D'``
differ in one record, with the category ``a`` in ``D`` and ``b`` in ``D'``. All other categories
show the same under both, and different categories are independent.

1. *Counts of at least one under both.* Showing or hiding ``c + Z`` is post-processing of it, so
   one such category is :math:`1/\sigma`-GDP.
2. *A category that only the replaced record has* (``a`` under ``D``, or ``b`` under ``D'``). Under
   one neighbour nothing is shown; under the other, something with probability ``q``. That is
   post-processing of "with probability ``q`` learn which data set it is, otherwise nothing".
   From count 1 to 2 it is case 1 again. (If only counts of at least two were admitted, ``q``
   would be :math:`P[2 + Z > \tau]`, the same leak at a threshold higher by one: a second
   condition costs categories and gains nothing.)
3. *Both.* If only the record has ``a`` under ``D`` and only it has ``b`` under ``D'``, both
   neighbours show nothing with the same probability ``1 - q``, and disjoint things otherwise: a
   leak of ``q``, not of ``2q``.

With :math:`G_\mu` for the profile of :math:`N(0, 1)` against :math:`N(\mu, 1)`, the profile of a
column is at most :math:`\max\{G_{\sqrt 2/\sigma}(\varepsilon),\; q + (1 - q)
G_{1/\sigma}(\varepsilon)\}`. For ``k`` columns with independent noise it is at most

.. math:: \max_{0 \le m \le k} L_m + (1 - L_m)\, G_{\sqrt{2k - m}/\sigma}(\varepsilon),
          \qquad L_m = 1 - (1 - q)^m,

where ``m`` counts the columns of cases 2 and 3. With continuous noise this is tight: neighbours
with ``m = 0`` attain their term as their counts grow, those of case 2 with ``m > 0`` theirs up to a
factor :math:`1 - O(kq)`. The charge is simpler and at least as large: *a leak of* :math:`L_k`,
*otherwise* :math:`G_{\sqrt{2k}/\sigma}`. At the same delta the maximum would need at most one
percent less noise, when the leak is a tenth of delta.

When one record is added or removed, one count of a column changes: :math:`G_{\sqrt k/\sigma}`
with the same leak.

On a lattice of spacing ``g`` the discrete Gaussian pays its factor on ``mu``
(`skdpot.privacy.noise`). Its tail has a bound in closed form. Let :math:`s = \sigma / g`.
For :math:`x \ge s`, the function :math:`f(x) = e^{-x^2/2s^2}` is convex, so it is no larger at an
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
from collections import Counter
from dataclasses import dataclass
from typing import TypeAlias

import numpy as np
import numpy.typing as npt
import pandas as pd
from scipy.special import ndtri

from skdpot._utils.arrays import FloatArray, IntArray
from skdpot._utils.streams import SecretStream
from skdpot.privacy.events import NonPrivateEvent
from skdpot.privacy.gdp import check_delta
from skdpot.privacy.noise import calibrate_lattice, check_counts, lattice_noise, required_bits
from skdpot.privacy.thresholds import ThresholdedCountsEvent
from skdpot.release.gate import pass_gate
from skdpot.release.releases import Release

Category: TypeAlias = str | int | float | bool
Key: TypeAlias = tuple[str, Category]

_PLAIN = (str, int, float, bool, np.integer, np.floating, np.bool_)
# Rounding of roots must not make the mu of the event exceed the given one.
_ROUNDING = 1.0 - 1e-13


@dataclass(frozen=True)
class CategorySelectionPlan:
    """The public part of a release of categories, fixed before rows are read."""

    n_samples: int
    event: ThresholdedCountsEvent | NonPrivateEvent


def plan_category_selection(
    n_samples: int, *, mu: float, delta: float, n_columns: int
) -> CategorySelectionPlan:
    """Plan a release of categories.

    The threshold is the lowest multiple of the lattice with a total tail of at most `delta`.
    """
    check_counts(n_samples=n_samples, n_columns=n_columns)
    if not mu > 0.0:
        raise ValueError(f"`mu` must be > 0 (or infinity), got {mu!r}.")
    check_delta(delta)
    if math.isinf(mu):
        return CategorySelectionPlan(n_samples, NonPrivateEvent())
    noise = calibrate_lattice(mu / math.sqrt(n_columns) * _ROUNDING, math.sqrt(2.0))
    required_bits(noise.sigma / noise.lattice, mu)  # refuse noise that cannot be drawn
    # Start where the tail bound is nearly `delta`, but not below the limit of the event.
    tail = -float(ndtri(-math.expm1(math.log1p(-delta) / n_columns)))
    least = noise.sigma + noise.lattice
    step = math.floor((1.0 + max(tail * noise.sigma, least)) / noise.lattice) - 2
    while True:
        threshold = step * noise.lattice
        if threshold >= 1.0 + noise.sigma + noise.lattice:
            event = ThresholdedCountsEvent(
                sigma=noise.sigma,
                threshold=threshold,
                n_columns=n_columns,
                lattice=noise.lattice,
                label="Categories",
            )
            if event.delta_tail <= delta:
                return CategorySelectionPlan(n_samples, event)
        step += 1


def select_categories(
    values: npt.ArrayLike | Counter[Key], plan: CategorySelectionPlan, stream: SecretStream
) -> tuple[tuple[Category, ...], FloatArray]:
    """Release the categories of one column that stand out. Charge ``plan.event`` first.

    `values` are the values of the column or their counts.

    Privacy
    -------
    Releases the categories whose noisy counts exceed the threshold, with these counts.
    ``plan.event`` pays for one call per column on ``plan.n_columns`` columns, under replace-one.
    The number of hidden categories shows in nothing but the running time.
    """
    totals = values if isinstance(values, Counter) else count_categories(values)
    if totals.total() > plan.n_samples:
        raise ValueError(f"There are more values than the plan's {plan.n_samples}.")
    ordered = sorted(totals)  # independent of the order of rows
    categories = tuple(value for _, value in ordered)
    counts = np.array([totals[key] for key in ordered], dtype=np.int64)
    event = plan.event
    if isinstance(event, NonPrivateEvent):
        return categories, counts.astype(np.float64)
    lattice = event.lattice or 1.0
    units = round(1 / lattice)
    noisy = lattice_noise(event.sigma, len(counts), stream, lattice=lattice, mu=event.mu)
    noisy += counts * units
    visible = _visible(noisy, event)
    shown = [(categories[i], float(noisy[i]) * lattice) for i in visible]
    release = Release(
        "category_counts", shown, {"plan": plan}, sigma=event.sigma, lattice=lattice, event=event
    )
    shown = pass_gate(release)
    return tuple(category for category, _ in shown), np.array([count for _, count in shown])


def _visible(units: IntArray, event: ThresholdedCountsEvent) -> IntArray:
    """Return the places of noisy counts, in units of the lattice, above the threshold."""
    return np.flatnonzero(units > round(event.threshold / (event.lattice or 1.0)))


def _typed_key(value: Category) -> Key:
    """Return a category with the name of its type: equal values of two types are not merged."""
    return type(value).__name__, value


def count_categories(values: npt.ArrayLike) -> Counter[Key]:
    """Count the categories of a column by type and value, without missing values.

    Equal values of different types must not be merged: the order of the records would decide which
    one represents them.
    """
    if isinstance(values, list | tuple):  # numpy would turn numbers beside strings into strings
        column = np.fromiter(values, dtype=object, count=len(values))
    else:
        column = np.asarray(values)
    if column.ndim != 1:
        raise ValueError(f"`values` must be one-dimensional, got shape {column.shape}.")
    if column.dtype.kind in "biuU":
        values, counts = np.unique(column, return_counts=True)
        listed = zip(values.tolist(), counts.tolist(), strict=True)
        return Counter({_typed_key(value): times for value, times in listed})
    present = column[~pd.isna(column)].tolist()
    kinds = list(map(type, present))
    if others := sorted(kind.__name__ for kind in set(kinds) if not issubclass(kind, _PLAIN)):
        raise TypeError(
            "Categories must be strings, integers, floats or booleans, got values of type "
            f"{others[0]}. Convert the column, for example to strings."
        )
    totals: Counter[Key] = Counter()
    for (_, value), times in Counter(zip(kinds, present, strict=True)).items():
        plain = value.item() if isinstance(value, np.generic) else value
        plain = plain + 0.0 if isinstance(plain, float) else plain  # -0.0 becomes 0.0
        totals[_typed_key(plain)] += times
    return totals
