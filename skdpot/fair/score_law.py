"""The released law of scores: counts of margins, a smooth model of them, and posterior means."""

import math
from dataclasses import dataclass, replace
from functools import cached_property

import numpy as np
from scipy.linalg import cho_factor, cho_solve
from scipy.optimize import isotonic_regression, minimize_scalar
from scipy.special import expit

from skdpot.fair.score_lists import ScoreLists

_SLOPES = (-1.5, 1.5)  # logarithms of the slope of a recalibration
_MISFITS = (0.01, 0.03, 0.06, 0.1, 0.2, 0.4)  # of the smooth model, as shares of a list
_SIZE_MISFIT = 0.2  # of the model for the number of records of a list
_TINY = 1e-9  # in place of 0, for logarithms and quotients
_HIDDEN = 0.2  # bound on the error of a group's rate, above which it is pooled; errors are half
_LARGEST_OFFSET, _N_BISECTIONS = 30.0, 40  # of logits: expit(30) is 1 less 1e-13


@dataclass(frozen=True, eq=False)
class ScoreLaw:
    """Released numbers of records with at least some margin, by list, group and class.

    `measured` has shape (n_lists, n_groups, n_classes, n_bins + 1): entry t counts the records in
    the bins from t on. Its errors are normal and independent between lists, groups and classes,
    with `covariance` within, times the number of tables that were `summed`.
    """

    lists: ScoreLists
    sizes: np.ndarray  # of the groups
    measured: np.ndarray
    covariance: np.ndarray
    summed: np.ndarray  # (n_lists, n_groups): of how many released tables each is a sum

    @cached_property
    def pools(self) -> np.ndarray:
        """The pool of each group: those of which noise hides the rates are pooled, smallest first.

        It follows from the sizes of the groups and of the noise, which are public.
        """
        pools = [[group] for group in range(len(self.sizes))]
        while len(pools) > 1:
            pools.sort(key=lambda pool: float(self.sizes[pool].sum()))
            hidden = [k for k, pool in enumerate(pools) if self._error(pool) > _HIDDEN]
            if not hidden:
                break
            first = pools.pop(hidden[0])
            pools[0] = pools[0] + first
        place = np.zeros(len(self.sizes), dtype=np.intp)
        for k, pool in enumerate(sorted(pools, key=min)):
            place[pool] = k
        return place

    def _error(self, groups: list[int]) -> float:
        """Return the error of the rate of a decision in some groups together."""
        n_tables = self.summed[:, groups].sum() * self.lists.n_classes
        variance = n_tables * self.covariance.diagonal().max()
        return math.sqrt(variance) / max(float(self.sizes[groups].sum()), 1.0)

    @cached_property
    def pooled(self) -> "ScoreLaw":
        """The numbers of records by pool, from which rules are found."""
        member = np.eye(self.pools.max() + 1)[self.pools]
        if len(member.T) == len(member):
            return self
        return replace(
            self,
            sizes=self.sizes @ member,
            measured=np.einsum("lact,ap->lpct", self.measured, member),
            summed=self.summed @ member,
        )

    @cached_property
    def model(self) -> tuple[np.ndarray, np.ndarray, float]:
        """A smooth model of the numbers, with the offset and slope of the logits of each list.

        The model assumes that, within a list, the group depends on the class alone, and the class
        on the margin as in logistic regression. Rules are found by the model, and their rates are
        measured.
        """
        totals = np.maximum(self.measured[..., 0], 1.0) * (self.summed > 0.0)[:, :, None]
        sums = self.measured.sum(axis=(1, 2))
        above = np.array([isotonic_regression(row, increasing=False).x for row in sums])
        number = -np.diff(np.maximum(above, 0.0), axis=1) + _TINY
        first, second = self.lists.decides.T
        rows, of_class = np.arange(len(number)), totals.sum(axis=1)
        of_pair = of_class[rows, first] + of_class[rows, second]
        share = of_class[rows, second] / of_pair
        middles = (np.arange(number.shape[1]) + 0.5) * 2.0 / number.shape[1] - 1.0
        logits = np.log1p(middles) - np.log1p(-middles)
        measured = self.measured.sum(axis=1)[rows, second]

        def misfit(log_slope: float) -> float:
            of_second, _ = _matched(number, share, logits, math.exp(log_slope))
            of_second = of_second * (of_pair / of_class.sum(1))[:, None]
            return float(np.square(_above(number * of_second) - measured).sum())

        slope = math.exp(minimize_scalar(misfit, bounds=_SLOPES, method="bounded").x)
        of_second, offset = _matched(number, share, logits, slope)
        shares = np.repeat((of_class / of_class.sum(1, keepdims=True))[:, :, None], len(logits), 2)
        pair = (of_pair / of_class.sum(axis=1))[:, None]
        shares[rows, first], shares[rows, second] = pair * (1.0 - of_second), pair * of_second
        groups = totals / of_class[:, None, :]
        return number[:, None, None, :] * shares[:, None] * groups[..., None], offset, slope

    def recalibrated(
        self, classes: np.ndarray, lists: np.ndarray, margins: np.ndarray
    ) -> np.ndarray:
        """Return the probabilities of classes, corrected for the two most probable ones."""
        _, offset, slope = self.model
        inside = np.clip(margins, _TINY - 1.0, 1.0 - _TINY)
        logits = offset[lists] + slope * (np.log1p(inside) - np.log1p(-inside))
        rows, (first, second) = np.arange(len(classes)), self.lists.decides[lists].T
        pair, of_second = classes[rows, first] + classes[rows, second], expit(logits)
        corrected = classes.copy()
        corrected[rows, first], corrected[rows, second] = pair * (1.0 - of_second), pair * of_second
        return corrected

    @cached_property
    def smoothed(self) -> np.ndarray:
        """Posterior means of the numbers, given what was measured.

        The prior of a list, group and class is the model with a relative error of its size and a
        Brownian bridge along its margins. The size of the bridge is the most likely one of
        `_MISFITS`.

        If lists are groups, sampling of the records is part of the noise, since thresholds are
        found for the distribution. Other lists depend on the group in ways that the model lacks.
        """
        model, sampled = _above(self.model[0]), self.lists.group_aware
        if not (self.covariance.any() or sampled):
            return self.measured
        best, posterior = -math.inf, model
        for misfit in _MISFITS:
            likelihood, means = 0.0, np.zeros_like(model)
            for cell in map(tuple, np.argwhere(model[..., 0] > 0)):
                number = max(model[cell][0], 1.0)
                cdf = model[cell] / number
                product = np.outer(cdf, cdf)
                bridge = np.minimum.outer(cdf, cdf) - product
                covariance = self.summed[cell[:2]] * self.covariance
                noise = covariance + _TINY * number**2 * np.eye(len(product))
                if sampled:
                    noise = noise + number * (bridge + product)
                prior = (2.0 * misfit * number) ** 2 * bridge
                prior += ((_SIZE_MISFIT * number) ** 2 + covariance[0, 0]) * product
                difference = self.measured[cell] - model[cell]
                factor = cho_factor(prior + noise, lower=True, check_finite=False)
                weights = cho_solve(factor, difference, check_finite=False)
                likelihood -= float(difference @ weights) / 2.0
                likelihood -= float(np.log(np.diag(factor[0])).sum())
                means[cell] = model[cell] + prior @ weights
            if likelihood > best:
                best, posterior = likelihood, means
        return posterior * (self.sizes / posterior[..., 0].sum(axis=(0, 2)))[:, None, None]


def _matched(
    number: np.ndarray, share: np.ndarray, logits: np.ndarray, slope: float
) -> tuple[np.ndarray, np.ndarray]:
    """Return the probability of the second class in each bin, and the offset of each list.

    With the offset, a list has its share of the second class.
    """
    low = np.full(len(number), -_LARGEST_OFFSET)
    high = np.full(len(number), _LARGEST_OFFSET)
    for _ in range(_N_BISECTIONS):
        offset = (low + high) / 2.0
        of_second = expit(offset[:, None] + slope * logits)
        more = (number * of_second).sum(axis=1) > share * number.sum(axis=1)
        low, high = np.where(more, low, offset), np.where(more, offset, high)
    return of_second, offset


def _above(numbers: np.ndarray) -> np.ndarray:
    """Return the sum of the numbers from each bin on, and 0 from the end on."""
    sums = np.cumsum(numbers[..., ::-1], axis=-1)[..., ::-1]
    return np.concatenate([sums, np.zeros((*sums.shape[:-1], 1))], axis=-1)
