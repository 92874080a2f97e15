r"""The most accurate fair rule for a released law of scores: a linear programme.

A rule draws one threshold per list (`skdpot.fair.score_lists`) with weights v. The number of
records of a group and class that it decides for each class is linear in v. So are the accuracy and
every constraint on rates: for all groups a and b, :math:`r_a \ge s\, r_b - d`. The optimum has a
single threshold in most lists. It draws between thresholds in at most one list per active
constraint.

The programme is solved for smoothed numbers, since thresholds chosen for noisy ones would exploit
the noise. Its rates are then corrected by what was measured for the rule that it found, until both
agree. Only one number per rate then depends on the noise, and noise that is larger than usual
corrections makes them smaller. Groups of which noise hides the rates are pooled before
(`skdpot.fair.score_law.ScoreLaw.pools`).

References
----------
X. Zeng, E. Dobriban, G. Cheng, "Bayes-optimal classifiers under group fairness", 2022.
S. Gaucher, N. Schreuder, E. Chzhen, "Fair learning with Wasserstein barycenters for
non-decomposable performance measures", AISTATS 2023.
R. Xian, L. Yin, H. Zhao, "Fair and optimal classification via post-processing", ICML 2023.
"""

from collections.abc import Iterator
from dataclasses import dataclass, replace
from functools import cached_property, lru_cache
from itertools import islice, product

import numpy as np
import pandas as pd
from scipy.optimize import linprog

from skdpot.fair.notions import DEMOGRAPHIC_PARITY, EQUALIZED_ODDS, NOTIONS
from skdpot.fair.score_law import ScoreLaw

_ROUNDS = 12  # of corrections, at most
_MORE_ROUNDS = 4  # of corrections that start with those of the level before
_AGREED = 1e-4  # of a rate or a weight, which is nothing
_FEWEST = 1.0  # records of a group, so that rates are defined
_WORSE_THAN_ERRORS = 10.0  # weight of a missed rate, per wrong decision
_MISSED = 0.005  # of a rate, which a rule without coins may miss
_MOST_CHOICES = 4096  # of thresholds, that are compared for a rule without coins
# Usual difference of a rate from that of the smoothed numbers; noise is weighed against it.
_USUAL_CORRECTION = 0.1
_GAINED = 1e-10  # of the accuracy, by a threshold that a solution does not use yet
_SHOWN = np.linspace(0.0, 1.0, 21)  # levels of a frontier


@dataclass(frozen=True)
class FairConstraint:
    """Which rates of groups are to be alike, and how much.

    Parameters
    ----------
    fairness : str
        Name of the notion, in `NOTIONS`.
    level : float
        Least ratio of rates, or one minus their largest difference.
    measure : {"ratio", "difference"}
        Which of these.
    favorable : int, default=1
        The favorable one of two classes.
    """

    fairness: str
    level: float
    measure: str = "ratio"
    favorable: int = 1

    def rates(self, n_classes: int) -> list[tuple[int, np.ndarray]]:
        """Return the decision and the mask of true classes of each rate."""
        return NOTIONS[self.fairness].rates(n_classes, self.favorable)

    @property
    def slope(self) -> float:
        """Share of the largest rate that the least must reach."""
        return self.level if self.measure == "ratio" else 1.0

    @property
    def room(self) -> float:
        """Allowed shortfall from that share."""
        return 0.0 if self.measure == "ratio" else 1.0 - self.level


@dataclass(frozen=True, eq=False)
class FairRule:
    """Thresholds of each list and their weights, (n_lists, n_bins + 1)."""

    law: ScoreLaw
    weights: np.ndarray

    def decided(self, lists: np.ndarray, margins: np.ndarray, coins: np.ndarray) -> np.ndarray:
        """Return the margin of the second class in each list; `coins` choose a threshold."""
        n_bins = self.weights.shape[1] - 1
        edges = np.append(np.arange(n_bins) * 2.0 / n_bins - 1.0, 2.0)
        cumulative = np.cumsum(self.weights, axis=1)[:, :-1]
        return margins - edges[(cumulative[lists] <= coins[:, None]).sum(axis=1)]

    def rates(
        self, constraint: FairConstraint, *, sampling: bool = True
    ) -> tuple[np.ndarray, np.ndarray]:
        """Return the measured rates of a constraint, (n_rates, n_groups), and their errors.

        Errors are those of noise, and with `sampling` also those of the sample of the records.
        """
        of_constraint = constraint.rates(self.law.lists.n_classes)
        found = [self._rate(c, mask, sampling) for c, mask in of_constraint]
        rates, errors = zip(*found, strict=True)
        return np.array(rates), np.array(errors)

    def _rate(
        self, decision: int, classes: np.ndarray, sampling: bool
    ) -> tuple[np.ndarray, np.ndarray]:
        """Return the rate of a decision in each group among some classes, with standard errors."""
        law = self.law
        chosen = self._chosen(decision)
        measured = law.measured[:, :, classes].sum(axis=2)
        number = np.maximum(measured[..., 0].sum(axis=0), _FEWEST)
        rate = np.clip(np.einsum("lt,lat->a", chosen, measured) / number, 0.0, 1.0)
        terms = chosen[:, None] - rate[:, None] * np.eye(chosen.shape[1])[0]
        noise = (_variances(terms, law.covariance) * law.summed).sum(axis=0) * classes.sum()
        errors = np.sqrt(noise / number**2 + sampling * rate * (1.0 - rate) / number)
        return rate, np.minimum(errors, 1.0)  # a rate errs by less

    def _chosen(self, decision: int) -> np.ndarray:
        """Return the weights of the measured numbers, whose sum is decided for a class, by list."""
        first, second = (self.law.lists.decides == decision).T[:, :, None]
        everyone = np.eye(self.weights.shape[1])[0]
        return second * self.weights + first * (everyone - self.weights)

    @property
    def accuracy(self) -> tuple[float, float]:
        """The accuracy of the smoothed numbers, with a standard error on the safe side."""
        accuracy, noise = self.noisy_accuracy
        sampling = accuracy * (1.0 - accuracy) / self.law.sizes.sum()
        return accuracy, float(np.sqrt(min(noise**2 + sampling, 1.0)))

    @property
    def noisy_accuracy(self) -> tuple[float, float]:
        """The accuracy of the smoothed numbers, with a standard error of the noise alone.

        The measured accuracy is too high on average, since its noise has chosen the rule. The error
        is that of the measured share, whose numerator and denominator share noise.
        """
        law, right, noise = self.law, 0.0, 0.0
        n, everyone = law.sizes.sum(), np.eye(self.weights.shape[1])[0]
        decided = [self._chosen(c) for c in range(law.lists.n_classes)]
        for c, chosen in enumerate(decided):
            right += np.einsum("lt,lat->", chosen, law.smoothed[:, :, c])
        accuracy = float(np.clip(right / n, 0.0, 1.0))
        for chosen in decided:
            terms, n_tables = chosen - accuracy * everyone, law.summed.sum(axis=1)
            noise += float(_variances(terms, law.covariance) @ n_tables)
        return accuracy, min(float(np.sqrt(noise)) / n, 1.0)


@dataclass(frozen=True, eq=False)
class RuleProgram:
    """The linear programme of a law and a constraint."""

    law: ScoreLaw
    constraint: FairConstraint

    @cached_property
    def _linear(self) -> tuple[np.ndarray, np.ndarray]:
        """Return the gains and the rates, (n_rates, n_groups), of all thresholds."""
        smooth, lists = self.law.smoothed, self.law.lists
        everyone = smooth[..., :1]
        decided = [
            np.where(
                (lists.decides[:, 1] == c)[:, None, None, None],
                smooth,
                np.where((lists.decides[:, 0] == c)[:, None, None, None], everyone - smooth, 0.0),
            )
            for c in range(lists.n_classes)
        ]
        gains = sum(part[:, :, c].sum(axis=1) for c, part in enumerate(decided))
        rates = []
        for c, classes in self.constraint.rates(lists.n_classes):
            number = np.maximum(smooth[:, :, classes, 0].sum(axis=(0, 2)), _FEWEST)
            rates.append(
                decided[c][:, :, classes].sum(axis=2).swapaxes(0, 1) / number[:, None, None]
            )
        return gains / self.law.sizes.sum(), np.array(rates)

    def solve(
        self,
        *,
        randomized: bool = True,
        start: float | np.ndarray = 0.0,
        n_rounds: int = _ROUNDS,
    ) -> tuple[FairRule, np.ndarray]:
        """Return the best rule, and the corrections of its rates, (n_rates, n_groups).

        If no single rule agrees with its own corrections, the result is a mean of rules, whose
        correction is the mean of theirs.
        """
        shifts, weights = np.broadcast_to(start, self._linear[1].shape[:2]), np.zeros(())
        for k in range(n_rounds):
            rule = self._best(shifts)
            error, share = self._error(rule), 2.0 / (k + 2.0)
            if np.abs(error - shifts).max() < _AGREED:
                break
            shifts = shifts + share * (error - shifts)
            weights = weights + share * (rule.weights - weights)
        else:
            rule = FairRule(self.law, weights)
        return rule if randomized else self._without_coins(rule), shifts

    def _without_coins(self, rule: FairRule) -> FairRule:
        """Return the rule with one of the drawn thresholds per list that is best.

        Rates jump between single thresholds, so the violation counts before the accuracy.
        """
        drawn = [np.flatnonzero(weights > _AGREED) for weights in rule.weights]
        choices = islice(product(*drawn), _MOST_CHOICES)
        rules = [FairRule(self.law, np.eye(rule.weights.shape[1])[list(at)]) for at in choices]
        return min(rules, key=lambda rule: (self._violation(rule), -rule.accuracy[0]))

    def _violation(self, rule: FairRule) -> float:
        """Return the largest shortfall of the measured rates of a rule; small ones count alike."""
        rates, _ = rule.rates(self.constraint)
        least = self.constraint.slope * rates.max(axis=1) - self.constraint.room
        return max(_MISSED, float((least - rates.min(axis=1)).max()))

    def _error(self, rule: FairRule) -> np.ndarray:
        smooth = np.einsum("ralt,lt->ra", self._linear[1], rule.weights)
        rates, noise = rule.rates(self.constraint, sampling=False)
        share = _USUAL_CORRECTION**2 / (_USUAL_CORRECTION**2 + noise**2)
        return share * (rates - smooth)

    def _best(self, shifts: np.ndarray) -> FairRule:
        """Solve for the weights, the largest rate of all groups, and the violation.

        Few thresholds have a weight, so the programme begins with few. Those that the prices of its
        solution make worth more are added, until there are none (column generation).


        A list decides between two classes. With more classes no rule may meet the constraint, so
        the least violation counts before the accuracy.
        """
        gains, rates = self._linear
        n_rates, n_groups, n_lists = *rates.shape[:2], len(gains)
        flat, most = rates.reshape(-1, *gains.shape), np.eye(n_rates).repeat(n_groups, 0)
        slope, room, shifts = self.constraint.slope, self.constraint.room, shifts.ravel()
        missed, none = np.ones((len(flat), 1)), np.zeros((n_lists, n_rates + 1))
        known = self._thresholds
        while True:
            lists = known.nonzero()[0]
            of_known = flat[:, known]
            once = np.eye(n_lists)[:, lists]
            solution = linprog(
                np.concatenate([-gains[known], np.zeros(n_rates), [_WORSE_THAN_ERRORS]]),
                A_ub=np.block(
                    [[of_known, -most, 0.0 * missed], [-of_known, slope * most, -missed]]
                ),
                b_ub=np.concatenate([-shifts, room + shifts]),
                A_eq=np.hstack([once, none]),
                b_eq=np.ones(n_lists),
                options={"presolve": False},  # takes longer than the solution
            )
            above, below = np.split(solution.ineqlin.marginals, 2)
            prices = -gains - np.tensordot(above - below, flat, axes=1)
            prices -= solution.eqlin.marginals[:, None]
            best = prices.argmin(axis=1)
            better = prices[np.arange(n_lists), best] < -_GAINED
            better &= ~known[np.arange(n_lists), best]
            if not better.any():
                break
            known[better, best[better]] = True
        weights = np.zeros(gains.shape)
        weights[known] = np.maximum(np.asarray(solution.x)[: known.sum()], 0.0)
        return FairRule(self.law, weights / weights.sum(axis=1, keepdims=True))

    @cached_property
    def _thresholds(self) -> np.ndarray:
        """The thresholds that a solution may use; a solution that needs others adds them."""
        gains = self._linear[0]
        known = np.zeros(gains.shape, dtype=bool)
        known[:, [0, -1]] = True
        known[np.arange(len(gains)), gains.argmax(axis=1)] = True
        return known

    def at(self, level: float) -> "RuleProgram":
        """Return the programme of another level, which begins with the thresholds of this one."""
        other = replace(self, constraint=replace(self.constraint, level=level))
        other.__dict__.update(_linear=self._linear, _thresholds=self._thresholds)
        return other


def _variances(terms: np.ndarray, covariance: np.ndarray) -> np.ndarray:
    """Return the variance of each sum of noisy numbers, (..., n_numbers) -> (...)."""
    return np.asarray(((terms @ covariance) * terms).sum(axis=-1))


@lru_cache(maxsize=8)  # a view of a fitted classifier in a notebook asks twice
def frontier(law: ScoreLaw, constraint: FairConstraint, *, randomized: bool) -> pd.DataFrame:
    """Return the best rules of all levels, judged by the release. Callers must not change it."""
    return pd.DataFrame(_points(law, constraint, randomized))


def _points(
    law: ScoreLaw, constraint: FairConstraint, randomized: bool
) -> Iterator[dict[str, float]]:
    shifts: float | np.ndarray = 0.0
    parity = replace(constraint, fairness=DEMOGRAPHIC_PARITY.name)
    odds = replace(constraint, fairness=EQUALIZED_ODDS.name)
    program, n_rounds = RuleProgram(law, constraint), _ROUNDS
    for level in _SHOWN:
        program = program.at(float(level))
        rule, shifts = program.solve(randomized=randomized, start=shifts, n_rounds=n_rounds)
        n_rounds = _MORE_ROUNDS
        accuracy, accuracy_error = rule.accuracy
        ratio, ratio_error = least_ratio(*rule.rates(parity))
        gap, gap_error = _largest_gap(*rule.rates(odds))
        yield {
            "level": float(level),
            "accuracy": accuracy,
            "accuracy_se": accuracy_error,
            "disparate_impact": ratio,
            "disparate_impact_se": ratio_error,
            "equalized_odds_difference": gap,
            "equalized_odds_difference_se": gap_error,
        }


def least_ratio(rates: np.ndarray, errors: np.ndarray) -> tuple[float, float]:
    """Return the least ratio of two groups' rates, with its standard error."""
    low, high = rates.argmin(axis=1), rates.argmax(axis=1)
    rows = np.arange(len(rates))
    most = np.maximum(rates[rows, high], _AGREED)
    ratio = rates[rows, low] / most
    error = np.hypot(errors[rows, low], ratio * errors[rows, high]) / most
    worst = int(ratio.argmin())
    return float(ratio[worst]), min(float(error[worst]), 1.0)  # a ratio in [0, 1] errs by less


def _largest_gap(rates: np.ndarray, errors: np.ndarray) -> tuple[float, float]:
    low, high = rates.argmin(axis=1), rates.argmax(axis=1)
    rows = np.arange(len(rates))
    gap = rates[rows, high] - rates[rows, low]
    worst = int(gap.argmax())
    error = np.hypot(errors[rows, low], errors[rows, high])
    return float(gap[worst]), min(float(error[worst]), 1.0)
