"""Made-up cells that differentiate into two fates, seen through gene counts."""

from dataclasses import dataclass
from functools import cached_property

import numpy as np
from numpy.typing import ArrayLike
from scipy import stats

from skdpot._utils.arguments import check_count, check_real
from skdpot.trajectories.observed_once import draw_seen_once, process_times

# Parameters of the Splat model, with more and stronger differences between states.
_MEAN_SHAPE = 0.6
_MEAN_RATE = 0.3
_LIBRARY_PER_GENE = 6.0
_LIBRARY_SPREAD = 0.2
_COMMON_VARIATION = 0.1
_SHARE_OF_DIFFERENT_GENES = 0.3
_FACTOR_LOCATION = 0.5
_FACTOR_SCALE = 0.5
# Standard deviation of the logarithm of the speed of cells.
_SPEED_SPREAD = 0.15
_SHARE_OF_LARGER_FATE = 0.6
# The genes of a lineage are the same in every draw of cells.
_LAW_SEED = 1305


@dataclass(frozen=True)
class Lineage:
    """Law of cells that differentiate from time 0 to time 1, seen through gene counts.

    Counts follow the Splat model of Zappia, Phipson and Oshlack: gamma means, log-normal library
    sizes, gamma variation of genes between cells, Poisson counts, and logistic dropout. Means
    change linearly along a trunk until `fork`, and then along one of two branches. Cells differ in
    speed. Log-normalised counts are projected on `n_features` public directions: the differences
    between the mean profiles of the states, as in a reference atlas, and random ones.

    The random numbers of a cell and of its measurement are the same along its path. This is a
    choice, because no cell can be measured twice.
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
        factors[rng.random(factors.shape) >= _SHARE_OF_DIFFERENT_GENES] = 1.0
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
        return _LIBRARY_PER_GENE * self.n_genes

    def sample_paths(
        self, n_paths: int, times: ArrayLike, rng: np.random.Generator
    ) -> tuple[np.ndarray, np.ndarray]:
        """Draw paths, shape (n_paths, n_times, n_features), and their fates, 0 or 1."""
        n_paths = check_count(n_paths, "n_paths")
        stamps = np.atleast_1d(process_times(times, 1.0))
        fate = np.asarray(rng.random(n_paths) >= _SHARE_OF_LARGER_FATE, dtype=np.int64)
        speed = np.exp(_SPEED_SPREAD * rng.standard_normal(n_paths))
        library = self._library * np.exp(_LIBRARY_SPREAD * rng.standard_normal((n_paths, 1)))
        variation = _COMMON_VARIATION + 1 / np.sqrt(self.means.mean(axis=0) * self._library)
        cells = rng.gamma(variation**-2, variation**2, (n_paths, self.n_genes)) * library
        level, kept = rng.random((2, n_paths, self.n_genes))
        origin, directions = self.projection
        paths = np.empty((n_paths, len(stamps), self.n_features))
        for k, time in enumerate(stamps):
            means = self._means_at(np.minimum(time * speed, 1.0), fate)
            # Quantiles at one level are slow; only paths of several times need them.
            alone, rates = len(stamps) == 1, means * cells
            counts = rng.poisson(rates) if alone else stats.poisson.ppf(level, rates)
            lost = kept * (self.dropout + means * library) < self.dropout
            profiles = np.log1p(np.where(lost, 0, counts) * (self._library / library))
            paths[:, k] = (profiles - origin) @ directions
        return paths, fate

    def _means_at(self, progress: np.ndarray, fate: np.ndarray) -> np.ndarray:
        """Return the mean shares of the genes of each cell, (n, n_genes)."""
        start, fork, *ends = self.means
        trunk = np.minimum(progress / self.fork, 1.0)[:, None]
        branch = (np.maximum(progress - self.fork, 0.0) / (1 - self.fork))[:, None]
        moved = trunk * (fork - start) + branch * (np.stack(ends)[fate] - fork)
        return np.asarray(start + moved)


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
    return *draw_seen_once(law, n_per_time, times, random_state), law
