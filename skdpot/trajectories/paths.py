"""Trajectories of a population from one point per person: their time axis, and the law of paths.

Couplings of the times and Brownian bridges between them define the law of whole paths.

References
----------
Léonard, "A survey of the Schrödinger problem and some of its connections with optimal transport",
Discrete and Continuous Dynamical Systems 2014; Karatzas, Shreve, "Brownian Motion and Stochastic
Calculus", 2nd edition, section 5.6.B.
"""

import math
from dataclasses import dataclass
from datetime import date
from functools import cached_property
from typing import Any, NamedTuple, Self

import numpy as np
import pandas as pd
from scipy import sparse
from scipy.spatial import cKDTree
from scipy.spatial.distance import cdist
from scipy.special import digamma, gammaln
from scipy.stats import t as student_t
from sklearn.utils.validation import column_or_1d

from skdpot._utils.validation import check_confidence
from skdpot.ot.sinkhorn import schrodinger_potentials
from skdpot.ot.transport import exact_plan
from skdpot.release.contributions import read_persons

_MOST_DISTINCT = 50  # time stamps that are times of their own without being asked
_DEFAULT_BINS = 20
_SECONDS = 1e-9  # of a nanosecond
_SAME = 1e-9  # of the whole time: nearer stamps differ by rounding


@dataclass(frozen=True, eq=False)
class TimeAxis:
    """The times at which a process is observed, from public time stamps."""

    knots: np.ndarray
    boundaries: np.ndarray
    limits: tuple[float, float]
    origin: np.datetime64 | None = None

    @classmethod
    def of_stamps(cls, t: np.ndarray, n_times: int | None) -> Self:
        """Divide public time stamps."""
        origin = t.min() if t.dtype.kind == "M" else None
        stamps = _numbers(t, origin)
        distinct = np.unique(stamps)
        with np.errstate(over="ignore"):
            span = distinct[-1] - distinct[0]
        if not np.isfinite(span):
            raise ValueError(
                "The first and the last time stamp are too far apart for double precision. Pass t "
                "in a larger unit of time."
            )
        apart = np.diff(distinct) > _SAME * span
        edges = None
        if n_times is not None or apart.sum() >= _MOST_DISTINCT:
            edges = np.linspace(distinct[0], distinct[-1], (n_times or _DEFAULT_BINS) + 1)[1:-1]
            bins = np.searchsorted(edges, distinct, side="right")
            apart &= np.diff(bins) > 0
        first = np.flatnonzero(apart) + 1  # of the distinct stamps that a knot stands for
        # From the first stamp on: the sums of large numbers would lose their small differences.
        since = stamps - distinct[0]
        knot = np.searchsorted(first, np.searchsorted(distinct, stamps), side="right")
        knots = distinct[0] + np.bincount(knot, since) / np.bincount(knot)
        alone = np.diff(first, prepend=0, append=len(distinct)) == 1
        knots[alone] = distinct[np.concatenate([[0], first])][alone]  # as they were given
        boundaries = (distinct[first - 1] + distinct[first]) / 2
        if edges is not None:
            boundaries = edges[bins[first] - 1]
        # The mean of two neighbouring floating-point numbers is one of them.
        boundaries = np.maximum(boundaries, np.nextafter(distinct[first - 1], np.inf))
        return cls(knots, boundaries, (float(distinct[0]), float(distinct[-1])), origin)

    @property
    def n_times(self) -> int:
        """Number of knots T."""
        return len(self.knots)

    @property
    def stamps(self) -> np.ndarray:
        """The knots in the units of the time stamps."""
        if self.origin is None:
            return self.knots
        return _as_stamp(self.knots, self.origin)

    @property
    def unit_knots(self) -> np.ndarray:
        """The knots on the axis from 0 to 1; a single one is at 0."""
        span = self.knots[-1] - self.knots[0]
        return (self.knots - self.knots[0]) / (span if span > 0 else 1.0)

    @property
    def spacings(self) -> np.ndarray:
        """Differences of `unit_knots`."""
        return np.diff(self.unit_knots)

    def positions(self, t: np.ndarray) -> np.ndarray:
        """Return the number of the knot that each time stamp belongs to."""
        return np.searchsorted(self.boundaries, self._read(t, "t"), side="right")

    def to_unit(self, times: Any) -> np.ndarray:
        """Map times to the axis from 0 to 1; what is a knot but for rounding becomes it."""
        given = [times] if np.ndim(times) == 0 else times
        stamps = self._read(read_stamps(given, "times"), "times")
        span = self.knots[-1] - self.knots[0]
        unit = np.clip((stamps - self.knots[0]) / (span if span > 0 else 1.0), 0.0, 1.0)
        nearest = np.abs(stamps[:, None] - self.knots).argmin(axis=1)
        at_knot = np.abs(stamps - self.knots[nearest]) <= self._room
        return np.where(at_knot, self.unit_knots[nearest], unit)

    def subset(self, chosen: np.ndarray) -> "TimeAxis":
        """Return the axis with some of the knots; stamps then belong to the nearest one."""
        knots = self.knots[chosen]
        low = self.limits[0] if chosen[0] == 0 else float(knots[0])
        high = self.limits[1] if chosen[-1] == self.n_times - 1 else float(knots[-1])
        boundaries = np.maximum((knots[:-1] + knots[1:]) / 2, np.nextafter(knots[:-1], np.inf))
        return TimeAxis(knots, boundaries, (low, high), self.origin)

    @property
    def _room(self) -> float:
        """How far beside a time another one may lie that is meant to be the same."""
        room = _SAME * (self.knots[-1] - self.knots[0])
        if self.origin is not None:  # stamps are rounded to nanoseconds
            room = max(room, _SECONDS + 4 * float(np.spacing(self.knots[-1])))
        return float(room)

    def _read(self, t: np.ndarray, name: str) -> np.ndarray:
        if (t.dtype.kind == "M") != (self.origin is not None):
            kind = "numbers" if self.origin is None else "dates"
            raise ValueError(f"{name} must hold {kind}, as the time stamps in fit did.")
        stamps = _numbers(t, self.origin)
        if stamps.min() < self.limits[0] - self._room or stamps.max() > self.limits[1] + self._room:
            first, last = (_as_stamp(limit, self.origin) for limit in self.limits)
            raise ValueError(
                f"{name} must lie between the first and the last fitted time, {first} and {last}: "
                "the process is unknown before and after."
            )
        return stamps


_NO_STAMPS = (
    "{} must hold numbers or dates, one per row. Convert text with pandas.to_datetime; divide "
    "durations by a unit."
)


def read_stamps(t: Any, name: str, n_rows: int | None = None) -> np.ndarray:
    """Check time stamps: finite numbers, or dates."""
    if t is None:
        raise ValueError(
            "This estimator requires y to be passed, but the target y is None. Pass the public "
            "time stamp of each row as y or t."
        )
    refusal = None
    try:
        given = column_or_1d(_as_column(t), warn=name == "t")
        dated = given.dtype.kind == "M"
        stamps = given.astype("datetime64[ns]") if dated else _as_doubles(given)
    except Exception as error:  # a column of another library may raise anything
        text = str(error)
        refusal = text if "should be a 1d array" in text else _NO_STAMPS.format(name)
    if refusal is not None:  # no longer handled, so that the error quotes nothing
        raise ValueError(refusal)
    if dated and not (np.isnat(given) | (stamps.astype(given.dtype) == given)).all():
        raise ValueError(f"{name} holds a date outside of the years 1678 to 2262.")
    if not dated:
        _check_resolved(given, stamps, name)
    missing = np.isnat(stamps) if dated else ~np.isfinite(stamps)
    if missing.any():
        raise ValueError(f"{name} contains NaN, infinity or a missing date; every row needs one.")
    if n_rows is not None and len(stamps) != n_rows:
        raise ValueError(
            f"Found input variables with inconsistent numbers of samples: {n_rows} rows and "
            f"{len(stamps)} time stamps in {name}."
        )
    if len(stamps) == 0:
        raise ValueError(f"{name} must hold at least one time.")
    return stamps


def _as_doubles(column: np.ndarray) -> np.ndarray:
    """Return numbers in double precision; texts and durations are none."""
    texts = column.dtype.kind == "O" and any(isinstance(v, str) for v in column)
    if texts or column.dtype.kind not in "biufO":
        raise TypeError
    return column.astype(np.float64)


def _as_column(t: Any) -> Any:
    """Turn dates, with or without a zone, into datetime64 in UTC; leave the rest as it is."""
    column = np.asarray(t)  # of dates with a zone, objects
    # A missing value may stand among dates; whether there is one at all is checked later.
    dated = (isinstance(v, date | np.datetime64) or v is pd.NaT or v is None for v in column.flat)
    if column.dtype == object and column.size and all(dated):
        dates = pd.to_datetime(list(column.flat), utc=True).tz_localize(None)
        return dates.to_numpy().reshape(column.shape)
    return column


def _check_resolved(given: np.ndarray, doubles: np.ndarray, name: str) -> None:
    """Refuse numbers that double precision may have made equal to others."""
    with np.errstate(all="ignore"):
        back = doubles if given.dtype.kind == "O" else doubles.astype(given.dtype)
        kept = np.asarray(back == given, dtype=bool)
    if not (kept | ~np.isfinite(doubles)).all():
        raise ValueError(
            f"{name} holds numbers that double precision does not resolve, such as nanoseconds "
            "since 1970. Subtract a common origin, or pass dates."
        )


def _as_stamp(time: Any, origin: np.datetime64 | None) -> Any:
    """Return seconds since the origin as dates; times without an origin as they are."""
    if origin is None:
        return time
    return origin + np.rint(np.asarray(time) / _SECONDS).astype("timedelta64[ns]")


def _numbers(t: np.ndarray, origin: np.datetime64 | None) -> np.ndarray:
    if origin is None:
        return t
    return (t - origin).astype("timedelta64[ns]").astype(np.float64) * _SECONDS


@dataclass(frozen=True, eq=False)
class TimedRows:
    """Private rows with the public number of the time that each belongs to.

    Each time has at least one row, and a person `group_size` rows at most, at different times.
    """

    rows: np.ndarray
    positions: np.ndarray
    axis: TimeAxis
    group_size: int
    assumptions: tuple[str, ...]

    @property
    def counts(self) -> np.ndarray:
        """Number of rows of each time."""
        return np.bincount(self.positions, minlength=self.axis.n_times)


def timed_rows(
    rows: np.ndarray,
    t: Any,
    *,
    n_times: int | None,
    n_time_subsample: int | None,
    group_size: int,
    groups: Any,
    rng: np.random.Generator,
) -> TimedRows:
    """Divide rows by time, and keep those that the limits on times and persons leave.

    What is kept depends on `t`, `groups` and public random numbers only, so that a neighbour
    keeps the same rows.
    """
    stamps = read_stamps(t, "t", len(rows))
    axis = TimeAxis.of_stamps(stamps, n_times)
    positions = axis.positions(stamps)
    if groups is None:
        _check_unmixed(axis, stamps, group_size)
    kept = np.arange(len(rows))
    if n_time_subsample is not None and n_time_subsample < axis.n_times:
        inner = rng.choice(np.arange(1, axis.n_times - 1), n_time_subsample - 2, replace=False)
        chosen = [0, *inner, axis.n_times - 1]  # the first, the last and some others
        kept = np.flatnonzero(np.isin(positions, chosen))
    if groups is not None:
        persons = read_persons(groups, "groups", len(rows), fewest=1)
        kept = kept[_bounded(positions[kept], persons[kept], group_size, rng)]
    # Neither what was not chosen is a time, nor where the limit on rows has left none.
    present = np.unique(positions[kept])
    if len(present) < axis.n_times:
        axis = axis.subset(present)
    assumed = [
        f"the time stamp of every row, and so the number of rows at each of {axis.n_times} times"
    ]
    if groups is not None:
        assumed.append("which rows belong to one person")
    return TimedRows(
        rows if len(kept) == len(rows) else rows[kept],
        np.searchsorted(present, positions[kept]),
        axis,
        min(group_size, axis.n_times),
        tuple(assumed),
    )


def _check_unmixed(axis: TimeAxis, stamps: np.ndarray, group_size: int) -> None:
    """Refuse a limit on the rows per person where two of them may share a bin."""
    if group_size > 1 and len(np.unique(stamps)) > axis.n_times:
        raise ValueError(
            f"group_size={group_size} counts rows of one person at different times, but the time "
            f"stamps share {axis.n_times} bins and a person may have more than one row in a bin. "
            "Pass groups=, so that one of them is kept, or round the time stamps so that no person "
            "has two equal ones."
        )


def _bounded(
    positions: np.ndarray, persons: np.ndarray, most: int, rng: np.random.Generator
) -> np.ndarray:
    """Return rows such that nobody has two at one time or more than `most` in all."""
    order = rng.permutation(len(positions))
    table = pd.DataFrame({"person": persons[order], "time": positions[order]})
    table = table[~table.duplicated(["person", "time"])]
    table = table[table.groupby("person").cumcount() < most]
    return np.sort(order[table.index.to_numpy()])


_TOLERANCE, _MAX_ITERATIONS = 1e-6, 2000  # of entropic plans; their margins are mended after
_NEGLIGIBLE = 1e-6  # density with respect to the independent coupling
_MOST_STAY = 0.5  # share of the particles that a diffusion may leave where they are
_ROUNDING = 1e-9  # share of a particle's mass that the simplex may leave behind by rounding


def coupling_of(matrix: np.ndarray) -> sparse.csr_array:
    """Return the coupling with these masses, scaled to sum to one, by its entries."""
    plan = sparse.csr_array(matrix)
    plan.data /= plan.data.sum()
    return plan


def sample_next(plan: sparse.csr_array, index: np.ndarray, rng: np.random.Generator) -> np.ndarray:
    """Draw the partner of each particle of the first cloud."""
    cumulated = np.concatenate([[0.0], np.cumsum(plan.data)])
    first, last = plan.indptr[index], plan.indptr[index + 1]
    low, high = cumulated[first], cumulated[last]
    level = low + rng.random(len(index)) * (high - low)
    entry = np.searchsorted(cumulated, level, side="right") - 1
    return plan.indices[np.clip(entry, first, last - 1)]


def exact_plans(particles: np.ndarray) -> tuple[sparse.csr_array, ...]:
    """Couple neighbouring knots by optimal transport with the squared Euclidean cost."""
    plans = []
    for first, second in zip(particles[:-1], particles[1:], strict=True):
        costs = cdist(first, second, metric="sqeuclidean")
        costs /= costs.max() or 1.0  # the solver's tolerances are absolute
        plan, _ = exact_plan(costs)
        plan[plan < _ROUNDING / max(plan.shape)] = 0.0
        plans.append(coupling_of(plan))
    return tuple(plans)


def kept_plans(particles: np.ndarray) -> tuple[sparse.csr_array, ...]:
    """Couple each particle with that of the same number at the next knot."""
    same = sparse.eye_array(particles.shape[1], format="csr") / particles.shape[1]
    return (same,) * (len(particles) - 1)


def entropic_plans(
    particles: np.ndarray, spacings: np.ndarray, diffusivity: float
) -> tuple[sparse.csr_array, ...]:
    """Couple neighbouring knots by the Schrödinger bridges of a Brownian motion."""
    if len(particles) < 2:
        return ()
    solved = schrodinger_potentials(
        particles[:-1],
        particles[1:],
        diffusivity * np.asarray(spacings, dtype=np.float64),
        tol=_TOLERANCE,
        max_iter=_MAX_ITERATIONS,
    )
    return tuple(coupling_of(_rounded(plan)) for plan in solved.plans())


def drifting_plans(
    particles: np.ndarray, spacings: np.ndarray, diffusivity: float
) -> tuple[sparse.csr_array, ...]:
    """Couple neighbouring knots by bridges of a Brownian motion that drifts with the population.

    Particles of the same number follow the flow of the population. Each particle first moves to
    that of its number, and then to where it diffuses from there: the entropic plan between the
    later cloud and itself, which is symmetric. No entry of its kernel's diagonal is small, so that
    Sinkhorn's iteration needs no logarithms, and the geometric mean of two iterations converges
    fast (Feydy et al., "Interpolating between optimal transport and MMD using Sinkhorn
    divergences", AISTATS 2019).

    Where particles are so far apart, as in many dimensions, that most would stay where they are,
    the kernel is widened, and as many go as the diffusion takes away.
    """
    plans, m = [], particles.shape[1]
    variances = np.maximum(diffusivity * np.asarray(spacings), np.finfo(np.float64).tiny)
    for cloud, variance in zip(particles[1:], variances, strict=True):
        squares = cdist(cloud, cloud, metric="sqeuclidean")
        width, farthest, stated = variance, squares.max(), variance * cloud.shape[1]
        plan = _plan_to_itself(squares, width)
        gained = np.sum(plan * squares)
        while np.trace(plan) > _MOST_STAY and gained < stated and width < farthest:
            width *= 2.0
            plan = _plan_to_itself(squares, width)
            gained = np.sum(plan * squares)
        go = min(stated / gained, 1.0) if width > variance else 1.0
        plans.append(coupling_of(_rounded(go * plan + np.eye(m) * ((1.0 - go) / m))))
    return tuple(plans)


def _plan_to_itself(squares: np.ndarray, variance: float) -> np.ndarray:
    """Return the entropic plan between a cloud and itself, from squared distances."""
    m = len(squares)
    with np.errstate(over="ignore"):
        kernel = np.exp(squares / (-2.0 * variance))
    scaling = np.full(m, m**-0.5)
    for _ in range(_MAX_ITERATIONS):
        sums = m * scaling * (kernel @ scaling)
        if np.abs(sums - 1.0).mean() <= _TOLERANCE:
            break
        scaling /= np.sqrt(sums)
    plan: np.ndarray = scaling[:, None] * kernel * scaling
    return plan


def _rounded(plan: np.ndarray) -> np.ndarray:
    """Return a coupling of the uniform masses near an approximate one, with fewer entries.

    Negligible entries are dropped and rows and columns that have too much are scaled down
    (Altschuler, Weed, Rigollet, NeurIPS 2017). The margins that are then missing are coupled in
    the order of the particles, which adds few entries.
    """
    m, k = plan.shape
    plan = np.where(plan < _NEGLIGIBLE / (m * k), 0.0, plan)
    with np.errstate(divide="ignore"):
        plan *= np.minimum(1 / (m * plan.sum(axis=1, keepdims=True)), 1.0)
        plan *= np.minimum(1 / (k * plan.sum(axis=0)), 1.0)
    sent = np.cumsum(np.maximum(1 / m - plan.sum(axis=1), 0.0))
    received = np.cumsum(np.maximum(1 / k - plan.sum(axis=0), 0.0))
    levels = np.unique(np.concatenate([sent, received]))
    masses = np.diff(levels, prepend=0.0)
    middles = levels - masses / 2
    rows = np.minimum(np.searchsorted(sent, middles), m - 1)
    columns = np.minimum(np.searchsorted(received, middles), k - 1)
    np.add.at(plan, (rows, columns), masses)
    return plan


class Objective(NamedTuple):
    r"""Parts of the reduced objective F = G + τH of the paper, where G is fit plus transport.

    H is the negative entropy of the particles of all times, estimated from the distances to their
    nearest neighbours (Kozachenko, Leonenko, Problems of Information Transmission 1987).
    """

    total: float | None
    fit: float | None  # None where no release tells
    transport: float
    entropy: float


def _negative_entropy(cloud: np.ndarray) -> float:
    m, d = cloud.shape
    if m < 2:
        return 0.0
    nearest = np.asarray(cKDTree(cloud).query(cloud, k=2)[0])[:, 1]
    ball = d / 2 * math.log(math.pi) - gammaln(d / 2 + 1)
    radii = np.maximum(nearest, np.finfo(np.float64).tiny)  # points may be equal
    return float(digamma(1) - digamma(m) - ball - d * np.log(radii).mean())


@dataclass(frozen=True, eq=False)
class PathMeasure:
    """Particles at knots, couplings of neighbours, and Brownian bridges in between.

    A path is a Markov chain over the particles: its particle at a knot is drawn from the
    coupling with the knot before, given the particle there and nothing else. Given its
    particles, the path between neighbouring knots is a Brownian bridge. Where particles of the same
    number are `followed` along the flow of the population, the bridge bends as the flow does, and
    its variance is what the plan takes away, so that the law between knots is as wide as at knots.
    """

    times: np.ndarray
    particles: np.ndarray
    plans: tuple[sparse.csr_array, ...]
    diffusivity: float
    followed: bool = False
    fit: float | None = None

    @property
    def objective(self) -> Objective:
        """What the particles have of the reduced objective of mean-field Langevin dynamics."""
        transport = 0.0
        if len(self.times) > 1:
            spacings, (first, second) = (
                np.diff(self.times),
                (self.particles[:-1], self.particles[1:]),
            )
            solved = schrodinger_potentials(first, second, self.diffusivity * spacings)
            dual = solved.source.mean(axis=1) + solved.target.mean(axis=1)
            transport = float(np.sum(dual / spacings))
        entropy = sum(map(_negative_entropy, self.particles))
        total = None
        if self.fit is not None:
            total = self.fit + transport + self.diffusivity * entropy
        return Objective(total, self.fit, transport, entropy)

    def wandering(self, left: int) -> float:
        """Return the variance per unit of time and feature of bridges from a knot to the next.

        In the middle between the particle that it is followed to and one that the plan chooses near
        it a path has lost a quarter of their mean squared distance of its variance, and a bridge
        with this mean square in the place of τΔ returns it.
        """
        if not self.followed:
            return self.diffusivity
        cloud, plan = self.particles[left + 1], self.plans[left].tocoo()
        rows, columns = plan.coords
        squares = np.mean((cloud[rows] - cloud[columns]) ** 2, axis=1)
        return float(plan.data @ squares / (self.times[left + 1] - self.times[left]))

    def sample(self, n: int, times: np.ndarray, rng: np.random.Generator) -> np.ndarray:
        """Draw paths."""
        chain = [_evenly_drawn(n, self.particles.shape[1], rng)]
        for plan in self.plans:
            chain.append(sample_next(plan, chain[-1], rng))
        paths = np.empty((n, len(times), self.particles.shape[2]))
        interval = self._interval(times)
        for left in np.unique(interval):
            inside = interval == left
            paths[:, inside] = self._between(left, chain[left : left + 2], times[inside], rng)
        return paths

    def sample_marginal(self, time: float, n: int, rng: np.random.Generator) -> np.ndarray:
        """Draw points of the law at one time."""
        index = _evenly_drawn(n, self.particles.shape[1], rng)
        knots = np.flatnonzero(self.times == time)
        if len(knots):
            return self.particles[knots[0], index]
        at = np.array([time])
        left = int(self._interval(at)[0])
        pair = [index, sample_next(self.plans[left], index, rng)]
        return self._between(left, pair, at, rng)[:, 0]

    def _between(
        self, left: int, index: list[np.ndarray], at: np.ndarray, rng: np.random.Generator
    ) -> np.ndarray:
        """Draw Brownian bridges from the particles of one knot to those of the next.

        A bridge from x to y over the time Δ is a Brownian motion of variance τ per unit time and
        feature, conditioned on its two ends: at time s its mean is ``x + (s/Δ)(y − x)``, and the
        covariance between the times s ≤ t is ``τ s (Δ − t) / Δ`` in each feature.
        """
        position = self.particles[left, index[0]]
        if len(self.times) == 1:
            return np.repeat(position[:, None], len(at), axis=1)
        end = self.particles[left + 1, index[1]]
        spacing = float(self.times[left + 1] - self.times[left])
        since = np.where(at == self.times[left + 1], spacing, at - self.times[left])
        distinct, where = np.unique(since, return_inverse=True)
        points = np.empty((len(end), len(distinct), end.shape[1]))
        passed, variance = 0.0, self.wandering(left)
        for step, time in enumerate(distinct):
            # The bridge is Markov: what is left of it is a bridge from where it stands.
            rest = spacing - passed
            share = (time - passed) / rest if rest > 0 else 1.0
            position = (1 - share) * position + share * end
            deviation = np.sqrt(variance * (time - passed) * (1 - share))
            if deviation > 0:
                position = position + deviation * rng.standard_normal(end.shape)
            points[:, step], passed = position, time
        if self.followed:  # a cubic polynomial has the places and the speeds of both ends
            share = (distinct / spacing)[:, None]
            first, last = (
                bend[left, one][:, None] for bend, one in zip(self.bends, index, strict=True)
            )
            points += share * (1 - share) * ((1 - share) * first - share * last)
        return points[:, where]

    @cached_property
    def bends(self) -> np.ndarray:
        """How far particles would go at their speeds, less how far they go, (2, T - 1, m, d).

        The speeds are those at the two ends of an interval. What the bends without a knot predict
        of how far it is beside the line between its neighbours is motion, and the rest is noise:
        bends are scaled by the share of the former in their mean square. Both are compared as
        accelerations.
        """
        bends, steps = _bends(self.particles, self.times)
        found = np.mean(((bends[1] - bends[0]) / steps**2) ** 2)
        agreed = []
        for first in (0, 1):
            ends, times = self.particles[first::2], self.times[first::2]
            inner = slice(first + 1, len(self.times) - 1, 2)
            bent, spans = _bends(ends, times)
            since = (self.times[inner] - times[:-1])[:, None, None]
            beside = self.particles[inner] - ends[:-1] - since / spans * np.diff(ends, axis=0)
            beside *= 2.0 / (since * (since - spans))
            agreed.append(np.mean(beside * (bent[1] - bent[0]) / spans**2, axis=(1, 2)))
        share = np.concatenate(agreed).mean() / max(found, np.finfo(np.float64).tiny)
        scaled: np.ndarray = np.clip(share, 0.0, 1.0) * bends
        return scaled

    def _interval(self, at: np.ndarray) -> np.ndarray:
        """Return the knot before each time; before the last knot, the one before it."""
        last = max(len(self.times) - 2, 0)
        return np.clip(np.searchsorted(self.times, at, side="right") - 1, 0, last)


def _bends(particles: np.ndarray, times: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
    """Return the bends at both ends of each interval, and the lengths of intervals.

    The speed at a knot is that of the parabola through it and its neighbours, if there are three.
    """
    parabolas = len(times) > 2
    speeds = np.asarray(np.gradient(particles, times, axis=0, edge_order=2 if parabolas else 1))
    steps = np.diff(times)[:, None, None]
    return np.stack([speeds[:-1], speeds[1:]]) * steps - np.diff(particles, axis=0), steps


def _evenly_drawn(n: int, m: int, rng: np.random.Generator) -> np.ndarray:
    """Draw n of m particles, each n // m times or once more, in random order."""
    every = np.repeat(np.arange(m), n // m)
    return rng.permutation(np.concatenate([every, rng.permutation(m)[: n % m]]))


@dataclass(frozen=True, eq=False)
class SimulatedEstimate:
    """A statistic of the population, and its error in simulated fits.

    A fit that smooths is biased, and simulations around what it has smoothed show a part of that.
    Therefore the bias that they show is subtracted, and counts as an error too.
    """

    value: np.ndarray  # without the bias
    standard_error: np.ndarray
    bias: np.ndarray  # of the simulated fits, on average
    n_simulations: int

    @classmethod
    def of(cls, found: np.ndarray, simulated: np.ndarray) -> Self:
        """Make an estimate of what was found and of simulations (n_simulations, ...) of it."""
        bias = simulated.mean(axis=0) - found
        error = np.hypot(simulated.std(axis=0, ddof=1), bias)
        return cls(found - bias, error, bias, len(simulated))

    def interval(self, confidence: float = 0.95) -> tuple[np.ndarray, np.ndarray]:
        """Return the ends of a confidence interval for each number."""
        check_confidence(confidence)
        quantile = student_t.ppf(0.5 + confidence / 2, self.n_simulations - 1)
        reach = quantile * self.standard_error
        return self.value - reach, self.value + reach
