r"""Where the scores of groups and classes lie: noisy counts that decide any fair rule afterwards.

A rule that is fair and most accurate looks at two things: how much more probable one class is than
another, and how probable each group is. Accordingly a record is in one *list*, which says its group
(or, where decisions may not use it, by how much which group is more probable than at random) and
which two classes are the most probable, at one *margin*, the difference of their probabilities. Of
every list the margins of each group and class are counted. The records of a list above a margin are
then known for all margins, and a rule that decides by a threshold per list has known rates.

A record is in one list, so that all lists together cost what a single histogram costs.
"""

import math
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from functools import cached_property, partial
from itertools import combinations

import numpy as np
from scipy.optimize import isotonic_regression, minimize_scalar
from scipy.special import expit

from skdpot._utils.validation import SecretStream
from skdpot.privacy.events import Event, GaussianEvent, NonPrivateEvent
from skdpot.privacy.noise import calibrate_lattice, lattice_noise, required_bits
from skdpot.release.gate import Part, Records, Release, pass_gate
from skdpot.release.histogram import binned_rows, count_projections
from skdpot.release.strategy import Energy, Strategy, best_strategy

_N_BINS = 64
_STRENGTHS = 2  # bins of how probable a group is, where decisions may not use it
_SLOPES = (-1.5, 1.5)  # logarithms; of logits, in a recalibration
_MISFITS = (0.01, 0.03, 0.06, 0.1, 0.2, 0.4)  # of a smooth model, as shares of a list
_SIZE_MISFIT = 0.2
_TINY = 1e-9
_ALONG, _WIDTH = np.ones((1, 1)), np.ones(1)
_ENERGY = Energy.unlimited(1)


@dataclass(frozen=True, eq=False)
class ScoreLists:
    """How records are divided into lists, by public facts and what a rule may look at."""

    shares: np.ndarray  # of the groups, which are public
    n_classes: int
    group_aware: bool

    @cached_property
    def pairs(self) -> np.ndarray:
        """Pairs of classes, (n_pairs, 2)."""
        return np.array(list(combinations(range(self.n_classes), 2)))

    @property
    def n_places(self) -> int:
        """Number of lists for one pair of classes."""
        return len(self.shares) * (1 if self.group_aware else _STRENGTHS)

    @property
    def n_lists(self) -> int:
        """Number of lists: a place and a pair of classes each."""
        return self.n_places * len(self.pairs)

    @cached_property
    def decides(self) -> np.ndarray:
        """The two classes between which each list decides, (n_lists, 2)."""
        return np.tile(self.pairs, (self.n_places, 1))

    @cached_property
    def holds(self) -> np.ndarray:
        """Whether a list can hold records of a group, (n_lists, n_groups)."""
        n_groups = len(self.shares)
        if not self.group_aware:
            return np.ones((self.n_lists, n_groups), dtype=bool)
        return np.repeat(np.eye(n_groups, dtype=bool), len(self.pairs), axis=0)

    def place(self, classes: np.ndarray, groups: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
        """Return the list and the margin of rows."""
        rows = np.arange(len(classes))
        if self.group_aware:
            place = groups.argmax(axis=1)
        else:
            top = (groups / self.shares).argmax(axis=1)
            share = self.shares[top]
            above = (groups[rows, top] - share) / np.maximum(1.0 - share, _TINY)
            strength = np.clip(np.floor(above * _STRENGTHS), 0, _STRENGTHS - 1)
            place = top * _STRENGTHS + strength.astype(np.intp)
        best = np.sort(np.argsort(-classes, axis=1, kind="stable")[:, :2], axis=1)
        numbers = np.zeros((self.n_classes, self.n_classes), dtype=np.intp)
        numbers[tuple(self.pairs.T)] = np.arange(len(self.pairs))
        margin = classes[rows, best[:, 1]] - classes[rows, best[:, 0]]
        return place * len(self.pairs) + numbers[tuple(best.T)], np.clip(margin, -1.0, 1.0)

    @property
    def _groups_apart(self) -> int:
        return 1 if self.group_aware else len(self.shares)

    @property
    def n_tables(self) -> int:
        """Number of histograms: one per list, group that the list can hold, and class."""
        return self.n_lists * self._groups_apart * self.n_classes

    def tables(self, lists: np.ndarray, groups: np.ndarray, classes: np.ndarray) -> np.ndarray:
        """Return the histogram that each record is in."""
        apart = lists if self.group_aware else lists * len(self.shares) + groups
        return apart * self.n_classes + classes

    def by_group(self, counts: np.ndarray) -> np.ndarray:
        """Return what belongs to the histograms by list, group and class."""
        counts = counts.reshape(self.n_lists, self._groups_apart, self.n_classes, -1)
        return np.where(self.holds[:, :, None, None], counts, 0.0)


@dataclass(frozen=True, kw_only=True)
class ScoreNoise:
    """What is measured of each list, and with how much noise."""

    strategy: Strategy
    sigma: float
    lattice: float
    mu: float
    event: Event


def plan_score_tables(mu: float) -> ScoreNoise:
    r"""Plan the release of the margins of all lists.

    The record that replaces another has the same group and any features and class. So one count
    moves from a bin to a bin of the same or another list, group and class:
    `Strategy.sensitivity` with private classes, for one slice without a limit.
    """
    strategy = best_strategy(_N_BINS, _ENERGY)
    sigma, lattice, label = 0.0, strategy.lattice, "Scores of groups and classes"
    event: Event = NonPrivateEvent(label=label)
    if math.isfinite(mu):
        moved = strategy.sensitivity(_ENERGY, conditional=True)
        noise = calibrate_lattice(mu, moved, data_lattice=lattice)
        sigma, lattice = noise.sigma, noise.lattice
        required_bits(sigma / lattice, mu)
        event = GaussianEvent(**vars(noise), label=label)
    return ScoreNoise(strategy=strategy, sigma=sigma, lattice=lattice, mu=mu, event=event)


@dataclass(frozen=True, eq=False)
class ScoreLaw:
    """Released numbers of records with at least some margin, by list, group and class.

    `measured` has shape (n_lists, n_groups, n_classes, n_bins + 1): entry t counts the records in
    the bins from t on. Its errors are normal and independent between lists, groups and classes,
    with `covariance` within.
    """

    lists: ScoreLists
    sizes: np.ndarray  # of the groups
    measured: np.ndarray
    covariance: np.ndarray

    @cached_property
    def model(self) -> tuple[np.ndarray, np.ndarray, float]:
        """A smooth model of the numbers, with the offset and slope of the logits of each list.

        Within a list the group is taken to depend on the class alone, and the class on the margin
        as in logistic regression. A rule is found by it; the rates of the rule are those that were
        measured.
        """
        own = self.lists.holds[:, :, None]
        totals = np.maximum(self.measured[..., 0], 1.0) * own
        sums = self.measured.sum(axis=(1, 2))
        above = np.array([isotonic_regression(row, increasing=False).x for row in sums])
        number = -np.diff(np.maximum(above, 0.0), axis=1) + _TINY
        first, second = self.lists.decides.T
        rows, of_class = np.arange(len(number)), totals.sum(axis=1)
        of_pair = of_class[rows, first] + of_class[rows, second]
        wanted = of_class[rows, second] / of_pair
        middles = (np.arange(number.shape[1]) + 0.5) * 2.0 / number.shape[1] - 1.0
        logits = np.log1p(middles) - np.log1p(-middles)

        def recalibrated(slope: float) -> tuple[np.ndarray, np.ndarray]:
            """Return offsets for which each list has its share of the second class."""
            low, high = np.full(len(number), -30.0), np.full(len(number), 30.0)
            for _ in range(40):
                offset = (low + high) / 2.0
                of_second = expit(offset[:, None] + slope * logits)
                more = (number * of_second).sum(axis=1) > wanted * number.sum(axis=1)
                low, high = np.where(more, low, offset), np.where(more, offset, high)
            return of_second, offset

        found = self.measured.sum(axis=1)[rows, second]

        def misfit(log_slope: float) -> float:
            of_second = recalibrated(math.exp(log_slope))[0] * (of_pair / of_class.sum(1))[:, None]
            return float(np.square(_above(number * of_second) - found).sum())

        slope = math.exp(minimize_scalar(misfit, bounds=_SLOPES, method="bounded").x)
        of_second, offset = recalibrated(slope)
        shares = np.repeat((of_class / of_class.sum(1, keepdims=True))[:, :, None], len(logits), 2)
        pair = (of_pair / of_class.sum(axis=1))[:, None]
        shares[rows, first], shares[rows, second] = pair * (1.0 - of_second), pair * of_second
        groups = totals / of_class[:, None, :]
        return number[:, None, None, :] * shares[:, None] * groups[..., None], offset, slope

    def recalibrated(
        self, classes: np.ndarray, lists: np.ndarray, margins: np.ndarray
    ) -> np.ndarray:
        """Return probabilities of classes with those of the two most probable ones corrected."""
        _, offset, slope = self.model
        inside = np.clip(margins, _TINY - 1.0, 1.0 - _TINY)
        logits = offset[lists] + slope * (np.log1p(inside) - np.log1p(-inside))
        rows, (first, second) = np.arange(len(classes)), self.lists.decides[lists].T
        pair, of_second = classes[rows, first] + classes[rows, second], expit(logits)
        found = classes.copy()
        found[rows, first], found[rows, second] = pair * (1.0 - of_second), pair * of_second
        return found

    @cached_property
    def smoothed(self) -> np.ndarray:
        """Posterior means of the numbers: what was measured, drawn to the model by its misfit.

        The prior of a list, group and class is the model with a relative error of its size and a
        Brownian bridge along its margins, whose size is the most likely one of `_MISFITS`.

        Where lists tell the group, the records count as a sample, too: thresholds are found for the
        distribution. Other lists depend on the group in ways that the model lacks.
        """
        model, sampled = _above(self.model[0]), self.lists.group_aware
        if not (self.covariance.any() or sampled):
            return self.measured
        best, found = -math.inf, model
        for misfit in _MISFITS:
            likelihood, means = 0.0, np.zeros_like(model)
            for cell in map(tuple, np.argwhere(model[..., 0] > 0)):
                number = max(model[cell][0], 1.0)
                cdf = model[cell] / number
                product = np.outer(cdf, cdf)
                bridge = np.minimum.outer(cdf, cdf) - product
                noise = self.covariance + _TINY * number**2 * np.eye(len(product))
                if sampled:
                    noise = noise + number * (bridge + product)
                prior = (2.0 * misfit * number) ** 2 * bridge
                prior += ((_SIZE_MISFIT * number) ** 2 + self.covariance[0, 0]) * product
                whole = np.linalg.cholesky(prior + noise)
                white = np.linalg.solve(whole, self.measured[cell] - model[cell])
                likelihood -= float(white @ white) / 2.0 + np.log(np.diag(whole)).sum()
                means[cell] = model[cell] + prior @ np.linalg.solve(whole.T, white)
            if likelihood > best:
                best, found = likelihood, means
        return found * (self.sizes / found[..., 0].sum(axis=(0, 2)))[:, None, None]


def release_score_tables(
    lists: ScoreLists,
    records: tuple[np.ndarray, np.ndarray],
    sizes: np.ndarray,
    noise: ScoreNoise,
    stream: SecretStream,
    records_of: Callable[[Records, np.ndarray], tuple[np.ndarray, np.ndarray]],
) -> ScoreLaw:
    """Count margins once; the caller has charged the event of `noise`.

    `records` holds the margins, (n, 1), and the histogram of each record; `records_of` makes both
    of the records of an audit, with their shares in the data.
    """
    strategy, (margins, tables) = noise.strategy, records
    shape = (lists.n_tables, 1, strategy.n_bins)
    drawn = np.zeros(shape, dtype=np.int64)
    if noise.sigma > 0:
        drawn = lattice_noise(noise.sigma, shape, stream, lattice=noise.lattice, mu=noise.mu)
    counts = count_projections(
        margins, _ALONG, _WIDTH, strategy.n_bins, codes=tables, n_classes=lists.n_tables
    )
    measured = counts.reshape(shape) @ strategy.integer_matrix.T.astype(np.float64)
    drawn += measured.astype(np.int64) * round(strategy.lattice / noise.lattice)
    release = Release(
        "score_table",
        drawn * noise.lattice,
        {"strategy": strategy, "directions": _ALONG, "half_widths": _WIDTH},
        sigma=float(noise.sigma),
        lattice=noise.lattice,
        sensitivity=strategy.sensitivity(_ENERGY, conditional=True),
        event=noise.event,
        linear=partial(_counted, records_of),
    )
    above = np.vstack([strategy.decoder[-1], strategy.decoder[-1] - strategy.decoder])
    return ScoreLaw(
        lists,
        sizes,
        lists.by_group(pass_gate(release)[:, 0] @ above.T),
        noise.sigma**2 * above @ above.T,
    )


def _counted(
    records_of: Callable[[Records, np.ndarray], tuple[np.ndarray, np.ndarray]],
    release: Release,
    records: Records,
    shares: np.ndarray,
) -> Iterator[Part]:
    return binned_rows(release, records_of(records, shares), shares)


def _above(numbers: np.ndarray) -> np.ndarray:
    """Return the numbers in the bins from each one on; none from the end on."""
    sums = np.cumsum(numbers[..., ::-1], axis=-1)[..., ::-1]
    return np.concatenate([sums, np.zeros((*sums.shape[:-1], 1))], axis=-1)
