"""Simulated populations that move like real ones: cells that differentiate, and commuters."""

from dataclasses import dataclass, field
from functools import cached_property
from typing import Any

import numpy as np
from numpy.typing import ArrayLike
from scipy import stats

from skdpot._utils.validation import as_finite, check_count, check_real, solver_generator
from skdpot.trajectories.simulated import process_times, rows_per_time

# Defaults of the Splat model, but for more and stronger differences between states.
_MEAN_SHAPE, _MEAN_RATE = 0.6, 0.3
_LIBRARY_OF_A_GENE, _LIBRARY_SPREAD = 6.0, 0.2
_COMMON_VARIATION = 0.1
_DIFFERENT, _FACTOR_LOCATION, _FACTOR_SCALE = 0.3, 0.5, 0.5
_SPEED_SPREAD = 0.15  # of cells, in logarithms
_LARGER_FATE = 0.6
_LAW_SEED = 1305  # the genes of a lineage are the same in every draw of cells


@dataclass(frozen=True)
class Lineage:
    """Law of cells that differentiate from time 0 to time 1, seen through gene counts.

    Counts follow the Splat model of Zappia, Phipson and Oshlack: gamma means, log-normal library
    sizes, gamma variation of genes between cells, Poisson counts, and logistic dropout. Means
    change linearly along a trunk until `fork`, and then along one of two branches. Cells differ in
    speed. Log-normalised counts are projected on `n_features` public directions: of what
    differs between the mean profiles of the states, as in a reference atlas, and random ones.

    What is random about a cell and its measurement stays the same along its path. This is a choice:
    no cell can be measured twice.
    """

    n_genes: int = 200
    n_features: int = 5
    dropout: float = 1.0
    fork: float = 0.4

    @cached_property
    def means(self) -> np.ndarray:
        """Mean shares of the genes at the start, the fork and the two ends, (4, n_genes)."""
        rng = np.random.default_rng(_LAW_SEED)
        start = rng.gamma(_MEAN_SHAPE, 1 / _MEAN_RATE, self.n_genes)
        factors: np.ndarray = np.exp(rng.normal(_FACTOR_LOCATION, _FACTOR_SCALE, (3, self.n_genes)))
        factors = np.where(rng.random(factors.shape) < 0.5, factors, 1 / factors)
        factors[rng.random(factors.shape) >= _DIFFERENT] = 1.0
        fork = start * factors[0]
        states = np.stack([start, fork, fork * factors[1], fork * factors[2]])
        return states / states.sum(axis=1, keepdims=True)

    @cached_property
    def projection(self) -> tuple[np.ndarray, np.ndarray]:
        """Public origin (n_genes,) and directions (n_genes, n_features), in units of the data."""
        profiles = np.log1p(self.means * self._library)
        origin = profiles.mean(axis=0)
        others = np.random.default_rng(_LAW_SEED + 1).standard_normal(
            (self.n_features, self.n_genes)
        )
        differences = np.linalg.svd(profiles - origin)[2][:3]
        directions = np.linalg.qr(np.concatenate([differences, others]).T)[0][:, : self.n_features]
        unit = 2.0 * np.abs((profiles - origin) @ directions).max()
        return origin, directions / unit

    @property
    def _library(self) -> float:
        return _LIBRARY_OF_A_GENE * self.n_genes

    def sample_paths(
        self, n_paths: int, times: ArrayLike, rng: np.random.Generator
    ) -> tuple[np.ndarray, np.ndarray]:
        """Draw paths, shape (n_paths, n_times, n_features), and their fates, 0 or 1."""
        n_paths = check_count(n_paths, "n_paths")
        stamps = np.atleast_1d(process_times(times, 1.0))
        fate = np.asarray(rng.random(n_paths) >= _LARGER_FATE, dtype=np.int64)
        speed = np.exp(_SPEED_SPREAD * rng.standard_normal(n_paths))
        library = self._library * np.exp(_LIBRARY_SPREAD * rng.standard_normal((n_paths, 1)))
        variation = _COMMON_VARIATION + 1 / np.sqrt(self.means.mean(axis=0) * self._library)
        cells = rng.gamma(variation**-2, variation**2, (n_paths, self.n_genes)) * library
        level, kept = rng.random((2, n_paths, self.n_genes))
        origin, directions = self.projection
        paths = np.empty((n_paths, len(stamps), self.n_features))
        for k, time in enumerate(stamps):
            means = self._means_at(np.minimum(time * speed, 1.0), fate)
            # Quantiles at one level are slow, and of use along paths only.
            alone, rates = len(stamps) == 1, means * cells
            counts = rng.poisson(rates) if alone else stats.poisson.ppf(level, rates)
            lost = kept * (self.dropout + means * library) < self.dropout
            profiles = np.log1p(np.where(lost, 0, counts) * (self._library / library))
            paths[:, k] = (profiles - origin) @ directions
        return paths, fate

    def _means_at(self, progress: np.ndarray, fate: np.ndarray) -> np.ndarray:
        start, fork, *ends = self.means
        trunk = np.minimum(progress / self.fork, 1.0)[:, None]
        branch = (np.maximum(progress - self.fork, 0.0) / (1 - self.fork))[:, None]
        moved = trunk * (fork - start) + branch * (np.stack(ends)[fate] - fork)
        return np.asarray(start + moved)


_CITY = 8.0  # streets and avenues at whole numbers from 0 to 8
_BRIDGES = np.array([2.0, 6.0])
_BANKS = (3.0, 5.0)  # avenues along the river
_SPEED = 12.0  # per hour
_STAY_AT_HOME = 0.2


@dataclass(frozen=True)
class Commuters:
    """Law of people who live west of a river, work east of it, and move along streets.

    Positions are in units of half the side of the city, from -1 to 1. Times are hours of a day. A
    fifth of the people stay at home. The others leave for work in the morning and return in the
    evening, along streets and avenues and over that one of two bridges which is the shorter
    way. A receiver adds a normal displacement that stays the same for each person.
    """

    noise_variance: float = 2e-4
    homes: np.ndarray = field(default_factory=lambda: np.array([[1.0, 2.0], [1.5, 6.0]]))

    def sample_paths(
        self, n_paths: int, times: ArrayLike, rng: np.random.Generator
    ) -> tuple[np.ndarray, np.ndarray]:
        """Draw paths (n_paths, n_times, 2) and groups: 0 at home, else the bridge, 1 or 2."""
        n_paths = check_count(n_paths, "n_paths")
        deviation = np.sqrt(check_real(self.noise_variance, "noise_variance"))
        stamps = np.atleast_1d(as_finite(times, "times"))
        quarter = rng.integers(2, size=n_paths)
        home = self.homes[quarter] + rng.normal(0, [0.6, 0.8], (n_paths, 2))
        work = np.array([6.5, 5.0]) + rng.normal(0, [0.5, 0.9], (n_paths, 2))
        home = np.column_stack([np.clip(home[:, 0], 0, 2.8), _street(home[:, 1])])
        work = np.column_stack([np.clip(work[:, 0], 5.2, _CITY), _street(work[:, 1])])
        detours = np.abs(home[:, 1:] - _BRIDGES) + np.abs(work[:, 1:] - _BRIDGES)
        bridge = np.argmin(detours + 1e-6 * rng.random(detours.shape), axis=1)
        commutes = rng.random(n_paths) >= _STAY_AT_HOME
        leave, back = rng.normal(7.5, 0.7, n_paths), rng.normal(17.0, 0.9, n_paths)
        corners = _route(home, work, _BRIDGES[bridge])
        lengths = np.abs(np.diff(corners, axis=1)).sum(axis=2)
        since = np.cumsum(np.pad(lengths, ((0, 0), (1, 0))), axis=1)
        whole = since[:, -1:]
        way = (stamps - leave[:, None]) * _SPEED
        gone = np.clip(way, 0, whole) - np.clip((stamps - back[:, None]) * _SPEED, 0, whole)
        gone *= commutes[:, None]
        paths = np.stack([_along(*each) for each in zip(gone, since, corners, strict=True)])
        noise = deviation * rng.standard_normal((n_paths, 1, 2))
        return paths / (_CITY / 2) - 1 + noise, np.where(commutes, 1 + bridge, 0)

    def in_river(self, points: ArrayLike, margin: float = 0.4) -> np.ndarray:
        """Say which points are between the banks and not on a bridge, by a margin in blocks."""
        x, y = np.moveaxis((as_finite(points, "points") + 1) * (_CITY / 2), -1, 0)
        off_bridges = np.abs(y[..., None] - _BRIDGES).min(axis=-1) > margin
        between = (x > _BANKS[0] + margin) & (x < _BANKS[1] - margin)
        return np.asarray(between & off_bridges)


def _street(y: np.ndarray) -> np.ndarray:
    return np.clip(np.rint(y), 0, _CITY)


def _route(home: np.ndarray, work: np.ndarray, bridge: np.ndarray) -> np.ndarray:
    """Return the corners of the ways from home to work, shape (n, 6, 2)."""
    west, east = np.full(len(home), _BANKS[0]), np.full(len(home), _BANKS[1])
    corners = [[west, home[:, 1]], [west, bridge], [east, bridge], [east, work[:, 1]]]
    inner = [np.column_stack(corner) for corner in corners]
    return np.stack([home, *inner, work], axis=1)


def _along(gone: np.ndarray, since: np.ndarray, corners: np.ndarray) -> np.ndarray:
    """Return where a person is who has gone so far along the corners."""
    return np.column_stack([np.interp(gone, since, corners[:, j]) for j in range(2)])


def make_lineage_trajectories(
    n_per_time: int | ArrayLike = 500,
    n_times: int = 10,
    *,
    n_genes: int = 200,
    n_features: int = 5,
    dropout: float = 1.0,
    random_state: int | np.random.RandomState | None = None,
) -> tuple[np.ndarray, np.ndarray, np.ndarray, Lineage]:
    """Make gene counts of cells that differentiate into two fates, each cell measured once.

    Each cell is of another donor. Counts of many genes, with dropout, follow a published model and
    are projected on a few public directions. All cells move along one trunk until about time 0.4,
    and then to one of two fates (60 % and 40 %). The law is fixed, so that two calls draw other
    cells with the same genes.

    Parameters
    ----------
    n_per_time : int or array-like of shape (n_times,), default=500
        Number of cells measured at each time.
    n_times : int, default=10
        Number of time stamps T, equally spaced from 0 to 1.
    n_genes : int, default=200
        Number of genes, at least 20.
    n_features : int, default=5
        Number of public directions d, up to 20. Three distinguish the states, the others hold
        noise.
    dropout : float, default=1.0
        Mean count that is lost with probability one half; 0 for none.
    random_state : int, RandomState or None, default=None
        Makes the data reproducible.

    Returns
    -------
    X : ndarray of shape (n, n_features)
        One projected profile per cell, nearly all in [-1, 1].
    t : ndarray of shape (n,)
        Their time stamps, in increasing order.
    fate : ndarray of shape (n,)
        Their fates, 0 or 1, which do not show before the fork.
    law : Lineage
        The law of the paths: ``sample_paths`` draws whole paths and their fates.

    Raises
    ------
    TypeError, ValueError
        If a parameter is of another type or out of its range.

    Privacy
    -------
    The data are synthetic.

    References
    ----------
    Zappia, Phipson and Oshlack, "Splatter: simulation of single-cell RNA sequencing data", Genome
    Biology 2017: the Splat model and the values of its parameters. Here more genes differ between
    states, and the variation of a gene does not change along the path.

    Examples
    --------
    >>> from skdpot.datasets import make_lineage_trajectories
    >>> X, t, fate, law = make_lineage_trajectories(100, random_state=0)
    >>> X.shape
    (1000, 5)
    """
    law = Lineage(
        check_count(n_genes, "n_genes", least=20),
        check_count(n_features, "n_features", most=20),
        check_real(dropout, "dropout"),
    )
    times = np.linspace(0.0, 1.0, check_count(n_times, "n_times"))
    return *_seen_once(law, n_per_time, times, random_state), law


def make_commuting_trajectories(
    n_per_time: int | ArrayLike = 1000,
    n_times: int = 17,
    *,
    noise_variance: float = 2e-4,
    random_state: int | np.random.RandomState | None = None,
) -> tuple[np.ndarray, np.ndarray, np.ndarray, Commuters]:
    """Make positions of people in a city, each person located once in a day.

    People live in two quarters west of a river and work in one east of it. They move along streets
    and avenues over two bridges. Ways turn at right angles, everyone returns to their own home, and
    nobody is in the river: three properties that a diffusion does not have.

    Parameters
    ----------
    n_per_time : int or array-like of shape (n_times,), default=1000
        Number of people located at each time.
    n_times : int, default=17
        Number of time stamps T, equally spaced from 5 to 21 o'clock.
    noise_variance : float, default=2e-4
        Variance of the error of a position in each coordinate, in squared units of half the city.
    random_state : int, RandomState or None, default=None
        Makes the data reproducible.

    Returns
    -------
    X : ndarray of shape (n, 2)
        One position per person, from -1 to 1 (but for the error).
    t : ndarray of shape (n,)
        Their hours, in increasing order.
    group : ndarray of shape (n,)
        0 stays at home, 1 commutes over the southern bridge, 2 over the northern.
    law : Commuters
        The law of the paths: ``sample_paths`` draws whole paths and groups, ``in_river`` says which
        points are where nobody can be.

    Raises
    ------
    TypeError, ValueError
        If a parameter is of another type or out of its range.

    Privacy
    -------
    The data are synthetic.

    Examples
    --------
    >>> from skdpot.datasets import make_commuting_trajectories
    >>> X, t, group, law = make_commuting_trajectories(100, random_state=0)
    >>> X.shape
    (1700, 2)
    >>> bool(law.in_river(X).any())
    False
    """
    law = Commuters(check_real(noise_variance, "noise_variance"))
    times = np.linspace(5.0, 21.0, check_count(n_times, "n_times"))
    return *_seen_once(law, n_per_time, times, random_state), law


def _seen_once(
    law: Lineage | Commuters, n_per_time: int | ArrayLike, times: np.ndarray, random_state: Any
) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
    """Draw people who are observed once: points, times and groups."""
    counts = rows_per_time(n_per_time, len(times))
    rng = solver_generator(random_state)
    pairs = zip(counts, times, strict=True)
    drawn = [law.sample_paths(int(count), [time], rng) for count, time in pairs]
    X, group = (np.concatenate(parts) for parts in zip(*drawn, strict=True))
    return X[:, 0], np.repeat(times, counts), group
