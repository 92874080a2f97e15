"""Which categories a column has, released privately together with their counts.

The values of a column are private facts: that somebody has a rare disease, a street or a name
says who that is. Without a public list of categories only those may be told that many records
share. Every category that occurs gets a noisy count, and those above a threshold are shown. The
proof is in `skdpot.privacy.thresholded_event`; a fit charges ``plan.event`` before it calls
`select_categories`.

A fit that needs categories and something else plans the categories first, from a fixed share of
the squared mu and of delta: `PrivacyTarget.tail_delta`, which is a tenth of delta for a fit that
stands alone, and in a ledger so little that a thousand fits share what it has for leaks. Then the
noise of the rest is calibrated; `calibrate` counts what is left of both:

>>> import math
>>> from skdpot.privacy.calibration import calibrate, privacy_target
>>> from skdpot.privacy.events import ComposedEvent, GaussianEvent
>>> target = privacy_target(1.0, 1e-5, None)
>>> plan = plan_category_selection(
...     30_000, mu=target.mu_cap * math.sqrt(0.05), delta=target.tail_delta, n_columns=3
... )
>>> fit = calibrate(target, lambda sigma: ComposedEvent(
...     events=(plan.event, GaussianEvent(sigma=sigma, sensitivity=1.0))
... ))
>>> target.admits(fit)
True
"""

import math
import operator
from collections import Counter
from collections.abc import Iterable
from dataclasses import dataclass
from typing import Any, SupportsIndex, TypeAlias

import numpy as np
import numpy.typing as npt
import pandas as pd
from scipy.special import ndtr, ndtri

from skdpot._utils.rng import SecretStream
from skdpot.privacy.events import Event, NonPrivateEvent, ThresholdedCountsEvent
from skdpot.privacy.lattice_sampler import required_bits
from skdpot.privacy.noise import LatticeNoise, calibrate_lattice, lattice_noise
from skdpot.privacy.recording import Release, released

__all__ = ["Category", "CategorySelectionPlan", "plan_category_selection", "select_categories"]

Category: TypeAlias = str | int | float | bool
FloatArray = npt.NDArray[np.float64]
IntArray = npt.NDArray[np.int64]

_PLAIN = (str, int, float, bool, np.integer, np.floating, np.bool_)
# Takes up the rounding of roots, so that the mu of the event does not exceed what was given.
_ROUNDING = 1.0 - 1e-13


@dataclass(frozen=True, kw_only=True)
class CategorySelectionPlan:
    """The public part of a release of categories, fixed before data are touched.

    Attributes
    ----------
    n_samples, n_columns : int
        Number of records, and of columns whose categories are released.
    noise : LatticeNoise or None
        Noise on the counts of one column. None when the release is exact and not private.
    threshold : float
        Noisy counts above it are shown.
    """

    n_samples: int
    n_columns: int
    noise: LatticeNoise | None
    threshold: float

    @property
    def event(self) -> Event:
        """The charge for the categories of all columns together."""
        if self.noise is None:
            return NonPrivateEvent()
        return ThresholdedCountsEvent(
            sigma=self.noise.sigma,
            threshold=self.threshold,
            n_columns=self.n_columns,
            lattice=self.noise.lattice,
            label="Categories",
        )

    @property
    def sigma(self) -> float:
        """Standard deviation of the noise on a count; 0 when the release is exact."""
        return 0.0 if self.noise is None else self.noise.sigma

    @property
    def mu(self) -> float:
        """Privacy parameter of all columns together."""
        return math.inf if self.noise is None else float(self.event.phases[0].mu)

    @property
    def delta_tail(self) -> float:
        """Probability that categories are shown which only one record has; 1 without noise."""
        return 1.0 if self.noise is None else self.event.group_leak(1)

    def chance(self, count: float) -> float:
        """Return the probability that a category which `count` records have is shown.

        Parameters
        ----------
        count : float
            A hypothetical number of records.

        Returns
        -------
        float
            To the accuracy of a continuous Gaussian.

        Examples
        --------
        How many records must share a category to be seen nine times in ten, at an epsilon of
        one for the categories of three columns alone:

        >>> plan = plan_category_selection(30_000, mu=0.26, delta=1e-6, n_columns=3)
        >>> round(plan.threshold), round(plan.chance(plan.threshold), 2)
        (48, 0.5)
        >>> [round(plan.chance(count), 2) for count in (30, 60, 90)]
        [0.03, 0.9, 1.0]
        """
        if self.noise is None:
            return float(count >= 1)
        return float(ndtr((count - self.threshold) / self.sigma)) if count >= 1 else 0.0


def plan_category_selection(
    n_samples: SupportsIndex, *, mu: float, delta: float, n_columns: SupportsIndex
) -> CategorySelectionPlan:
    """Fix what a release of categories does and costs.

    Parameters
    ----------
    n_samples : int
        Number of records, which is public.
    mu : float
        Privacy parameter that the noisy counts of all columns may use together; infinity for
        an exact release.
    delta : float
        In (0, 1): the probability with which categories that only one record has may be shown,
        in all columns together; ``target.tail_delta`` of the fit's target.
    n_columns : int
        Number of columns whose categories are released.

    Returns
    -------
    CategorySelectionPlan
        With the least noise for `mu` and the lowest threshold for `delta`.

    Raises
    ------
    ValueError
        If an argument is out of range.
    CalibrationError
        If no noise reaches `mu`.
    """
    rows, columns = _count("n_samples", n_samples), _count("n_columns", n_columns)
    if not mu > 0.0:
        raise ValueError(f"`mu` must be > 0 (or infinity), got {mu!r}.")
    if not 0.0 < delta < 1.0:
        raise ValueError(f"`delta` must lie in (0, 1), got {delta!r}.")
    if math.isinf(mu):
        return CategorySelectionPlan(n_samples=rows, n_columns=columns, noise=None, threshold=0.0)
    noise = calibrate_lattice(mu / math.sqrt(columns) * _ROUNDING, math.sqrt(2.0))
    required_bits(noise.sigma / noise.lattice, mu)  # what cannot be drawn is refused uncharged
    return CategorySelectionPlan(
        n_samples=rows,
        n_columns=columns,
        noise=noise,
        threshold=_threshold(noise, delta, columns),
    )


def select_categories(
    values: npt.ArrayLike, plan: CategorySelectionPlan, stream: SecretStream
) -> tuple[tuple[Category, ...], FloatArray]:
    """Release the categories of one column that stand out. Charge ``plan.event`` first.

    Parameters
    ----------
    values : array-like of shape (n_values,)
        Private: strings, integers, floats or booleans, one a record. Missing ones (None, NaN,
        NaT, NA) are not counted. Values that differ in type differ: 1, 1.0 and True are three.
    plan : CategorySelectionPlan
        Made for as many records or more, and for all columns that are released.
    stream : SecretStream
        Source of the noise.

    Returns
    -------
    categories : tuple of str, int, float or bool
        Sorted by type and value, whatever the order of the records; possibly none.
    counts : ndarray of shape (n_categories,)
        Their noisy counts.

    Raises
    ------
    TypeError
        If there are values of other types.
    ValueError
        If `values` is not one-dimensional or longer than the plan allows.

    Privacy
    -------
    Releases the categories whose noisy counts exceed the threshold, with these counts.
    ``plan.event`` pays for one call a column on ``plan.n_columns`` columns; under replace-one.
    How many categories there are that stay hidden is told nowhere but by the time that this takes.

    Examples
    --------
    >>> plan = plan_category_selection(1000, mu=0.5, delta=1e-9, n_columns=1)
    >>> colours = ["red"] * 700 + ["blue"] * 298 + ["ultraviolet"] * 2
    >>> categories, counts = select_categories(colours, plan, SecretStream())
    >>> categories
    ('blue', 'red')
    """
    if isinstance(values, list | tuple):  # numpy would turn numbers beside strings into strings
        column = np.fromiter(values, dtype=object, count=len(values))
    else:
        column = np.asarray(values)
    if column.ndim != 1 or len(column) > plan.n_samples:
        raise ValueError(
            f"`values` must be one-dimensional with at most the plan's {plan.n_samples} entries, "
            f"got shape {column.shape}."
        )
    categories, counts = _counted(column)
    if plan.noise is None:
        return categories, counts.astype(np.float64)
    units = round(1 / plan.noise.lattice)
    noisy = lattice_noise(plan.sigma, len(counts), stream, lattice=plan.noise.lattice, mu=plan.mu)
    noisy += counts * units
    shown = np.flatnonzero(noisy > round(plan.threshold * units))
    found = [(categories[i], float(noisy[i]) * plan.noise.lattice) for i in shown]
    release = Release(
        "category_counts",
        found,
        {"plan": plan},
        sigma=plan.sigma,
        lattice=plan.noise.lattice,
        event=plan.event,
    )
    found = released(release)
    return tuple(category for category, _ in found), np.array([count for _, count in found])


def _count(name: str, value: SupportsIndex) -> int:
    number = 0 if isinstance(value, bool) else operator.index(value)
    if number < 1:
        raise ValueError(f"`{name}` must be an integer >= 1, got {value!r}.")
    return number


def _threshold(noise: LatticeNoise, delta: float, n_columns: int) -> float:
    """Return the lowest multiple of the lattice at which all tails together are at most `delta`."""
    column = -math.expm1(math.log1p(-delta) / n_columns)
    # Nearly where the bound of the event equals `delta`, and no lower than the event admits.
    reach = max(-float(ndtri(column)) * noise.sigma, noise.sigma + noise.lattice)
    step = math.floor((1.0 + reach) / noise.lattice) - 2
    while not _holds(noise, step * noise.lattice, delta, n_columns):
        step += 1
    return step * noise.lattice


def _holds(noise: LatticeNoise, threshold: float, delta: float, n_columns: int) -> bool:
    if threshold < 1.0 + noise.sigma + noise.lattice:
        return False
    event = ThresholdedCountsEvent(
        sigma=noise.sigma, threshold=threshold, n_columns=n_columns, lattice=noise.lattice
    )
    return event.delta_tail <= delta


def _counted(column: npt.NDArray[Any]) -> tuple[tuple[Category, ...], IntArray]:
    """Return the categories that occur, in an order of their own, and their counts."""
    if column.dtype.kind in "biuU":
        found, counts = np.unique(column, return_counts=True)
        return tuple(found.tolist()), counts.astype(np.int64)
    present = column[~pd.isna(column)]
    # Equal values of different types must not be merged: which one would stand for the others
    # depends on the order of the records.
    totals: Counter[tuple[str, Category]] = Counter()
    for value, count in _occurrences(present):
        totals[type(value).__name__, value] += count
    ordered = sorted(totals)
    return tuple(value for _, value in ordered), np.array(
        [totals[key] for key in ordered], dtype=np.int64
    )


def _occurrences(present: npt.NDArray[Any]) -> Iterable[tuple[Category, int]]:
    """Yield plain values, each perhaps more than once, with their counts."""
    listed = present.tolist()
    kinds = list(map(type, listed))
    if others := sorted(kind.__name__ for kind in set(kinds) if not issubclass(kind, _PLAIN)):
        raise TypeError(
            "Categories must be strings, integers, floats or booleans, got values of type "
            f"{others[0]}. Convert the column, for example to strings."
        )
    for (_, value), count in Counter(zip(kinds, listed, strict=True)).items():
        plain = value.item() if isinstance(value, np.generic) else value
        yield (plain + 0.0 if isinstance(plain, float) else plain), count  # -0.0 becomes 0.0
