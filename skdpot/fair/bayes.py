r"""The most accurate fair rule for a released law of scores: a linear programme.

A rule draws one threshold per list (`skdpot.fair.score_tables`) with weights v. How many records
of a group and class it decides for each class is linear in v, and so are accuracy and every
constraint on rates: for all groups a and b, :math:`r_a \ge s\, r_b - d`. The optimum draws a
threshold in few lists, at most one for each constraint that is active, and has one in the others.

The programme is solved for smoothed numbers, since thresholds chosen for noisy ones would exploit
the noise. Its rates are then corrected by what was measured for the rule that it found, until both
agree: as few numbers are chosen by noise as there are rates.

References
----------
X. Zeng, E. Dobriban, G. Cheng, "Bayes-optimal classifiers under group fairness", 2022.
S. Gaucher, N. Schreuder, E. Chzhen, "Fair learning with Wasserstein barycenters for
non-decomposable performance measures", AISTATS 2023.
R. Xian, L. Yin, H. Zhao, "Fair and optimal classification via post-processing", ICML 2023.
"""

import math
import warnings
from collections.abc import Iterator, Sequence
from dataclasses import KW_ONLY, dataclass
from functools import cached_property, lru_cache, partial
from itertools import islice, product
from numbers import Real
from typing import Any, ClassVar

import numpy as np
import pandas as pd
from scipy.optimize import linprog

from skdpot._utils.validation import Interval
from skdpot.base import FitContext, MechanismResult
from skdpot.exceptions import told_safely
from skdpot.fair.penalties import FairMechanism, FairTask, warn_of_small_cells
from skdpot.fair.score_tables import (
    ScoreLaw,
    ScoreLists,
    ScoreNoise,
    plan_score_tables,
    release_score_tables,
)
from skdpot.fair.scores import plan_group_scores
from skdpot.nets.cells import Cells
from skdpot.privacy.events import ComposedEvent, NonPrivateEvent
from skdpot.release.gate import Records, of_candidates

_ROUNDS, _AGREED, _FEWEST = 12, 1e-4, 1.0
_WORSE_THAN_ERRORS = 10.0  # a missed rate, per decision that is wrong
_MISSED = 0.005  # of a rate, by a rule without coins
_MOST_CHOICES = 4096
_SHOWN = np.linspace(0.0, 1.0, 21)

# The classes of the records whose rate of being decided for class c is to be alike.
FAIRNESS = {
    "demographic_parity": lambda c, n: [np.ones(n, dtype=bool)],
    "equalized_odds": lambda c, n: list(np.eye(n, dtype=bool)),
    "equal_opportunity": lambda c, n: [np.arange(n) == c],
    "predictive_equality": lambda c, n: [np.arange(n) != c],
}


@dataclass(frozen=True)
class FairConstraint:
    """Which rates of groups are to be alike, and how much."""

    fairness: str
    level: float
    measure: str = "ratio"

    def rates(self, n_classes: int) -> list[tuple[int, np.ndarray]]:
        """Return the decisions, and the classes of those decided on, of all rates."""
        decisions = range(n_classes) if n_classes > 2 else (1,)
        of = FAIRNESS[self.fairness]
        return [(c, classes) for c in decisions for classes in of(c, n_classes)]

    @property
    def slope(self) -> float:
        """Factor of the largest rate that the least must reach."""
        return self.level if self.measure == "ratio" else 1.0

    @property
    def room(self) -> float:
        """What it may lack of that."""
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

    def rates(self, constraint: FairConstraint) -> tuple[np.ndarray, np.ndarray]:
        """Return the measured rates of a constraint, (n_rates, n_groups), and their errors."""
        known = constraint.rates(self.law.lists.n_classes)
        found = [self._rate(c, classes) for c, classes in known]
        return tuple(np.array(part) for part in zip(*found, strict=True))  # type: ignore[return-value]

    def _rate(self, decision: int, classes: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
        """Return the share of each group that is decided so, and its standard error."""
        law, own = self.law, self.law.lists.holds
        chosen = self._chosen(decision)
        measured = law.measured[:, :, classes].sum(axis=2)
        number = np.maximum(measured[..., 0].sum(axis=0), _FEWEST)
        rate = np.clip(np.einsum("lt,lat->a", chosen, measured) / number, 0.0, 1.0)
        terms = chosen[:, None] - rate[:, None] * np.eye(chosen.shape[1])[0]
        noise = (_variances(terms, law.covariance) * own).sum(axis=0) * classes.sum()
        return rate, np.sqrt(noise / number**2 + rate * (1.0 - rate) / number)

    def _chosen(self, decision: int) -> np.ndarray:
        """Return by list which measured numbers, summed, are decided for a class."""
        first, second = (self.law.lists.decides == decision).T[:, :, None]
        everyone = np.eye(self.weights.shape[1])[0]
        return second * self.weights + first * (everyone - self.weights)

    @property
    def accuracy(self) -> tuple[float, float]:
        """The accuracy of the smoothed numbers, and a standard error on the safe side.

        What was measured is too high on average for a rule that its noise has chosen. The error is
        that of the measured share, whose numerator and denominator have noise in common.
        """
        law, right, noise = self.law, 0.0, 0.0
        n, everyone = law.sizes.sum(), np.eye(self.weights.shape[1])[0]
        decided = [self._chosen(c) for c in range(law.lists.n_classes)]
        for c, chosen in enumerate(decided):
            right += np.einsum("lt,lat->", chosen, law.smoothed[:, :, c])
        accuracy = float(np.clip(right / n, 0.0, 1.0))
        for chosen in decided:
            terms, own = chosen - accuracy * everyone, law.lists.holds.sum(axis=1)
            noise += float(_variances(terms, law.covariance) @ own)
        return accuracy, float(np.sqrt(noise / n**2 + accuracy * (1.0 - accuracy) / n))


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

    def solve(self, *, randomized: bool = True, start: Any = 0.0) -> tuple[FairRule, np.ndarray]:
        """Return the best rule, and by how much its rates had to be corrected.

        Where no single rule agrees with its own corrections, rules are drawn: the correction of a
        mean of rules is the mean of theirs.
        """
        shifts, weights = np.broadcast_to(start, self._linear[1].shape[:2]), np.zeros(())
        for k in range(_ROUNDS):
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
        """Return the best choice of one threshold for each list among those that a rule draws.

        Rates jump between single thresholds: the least violation counts, then the accuracy.
        """
        drawn = [np.flatnonzero(weights > _AGREED) for weights in rule.weights]
        choices = islice(product(*drawn), _MOST_CHOICES)
        rules = [FairRule(self.law, np.eye(rule.weights.shape[1])[list(at)]) for at in choices]
        return min(rules, key=lambda one: (self._violation(one), -one.accuracy[0]))

    def _violation(self, rule: FairRule) -> float:
        """Return by how much the measured rates of a rule miss the constraint; 0 if little."""
        rates, _ = rule.rates(self.constraint)
        least = self.constraint.slope * rates.max(axis=1) - self.constraint.room
        return max(_MISSED, float((least - rates.min(axis=1)).max()))

    def _error(self, rule: FairRule) -> np.ndarray:
        smooth = np.einsum("ralt,lt->ra", self._linear[1], rule.weights)
        return rule.rates(self.constraint)[0] - smooth

    def _best(self, shifts: np.ndarray) -> FairRule:
        """Solve for weights, the largest of all groups of each rate, and what no rule can meet.

        Lists decide between two classes each, so that rates of several classes cannot always be as
        alike as is asked: the least violation counts before the accuracy.
        """
        gains, rates = self._linear
        (n_rates, n_groups), (n_lists, n_thresholds) = rates.shape[:2], gains.shape
        flat, most = rates.reshape(n_rates * n_groups, -1), np.eye(n_rates).repeat(n_groups, 0)
        slope, room, shifts = self.constraint.slope, self.constraint.room, shifts.ravel()
        once = np.kron(np.eye(n_lists), np.ones(n_thresholds))
        missed = np.ones((len(flat), 1))
        found = linprog(
            np.concatenate([-gains.ravel(), np.zeros(n_rates), [_WORSE_THAN_ERRORS]]),
            A_ub=np.block([[flat, -most, 0.0 * missed], [-flat, slope * most, -missed]]),
            b_ub=np.concatenate([-shifts, room + shifts]),
            A_eq=np.hstack([once, np.zeros((n_lists, n_rates + 1))]),
            b_eq=np.ones(n_lists),
            options={"presolve": False},  # takes longer than the solution
        )
        weights = np.maximum(np.asarray(found.x)[: gains.size].reshape(gains.shape), 0.0)
        return FairRule(self.law, weights / weights.sum(axis=1, keepdims=True))


def _variances(terms: np.ndarray, covariance: np.ndarray) -> np.ndarray:
    """Return the variance of each sum of noisy numbers, (..., n_numbers) -> (...)."""
    return np.asarray(((terms @ covariance) * terms).sum(axis=-1))


@lru_cache(maxsize=8)  # a view of a fitted classifier in a notebook asks twice
def frontier(law: ScoreLaw, constraint: FairConstraint, *, randomized: bool) -> pd.DataFrame:
    """Return the best rules of all levels, by what the release says of them; not to be changed."""
    return pd.DataFrame(_points(law, constraint, randomized))


def _points(
    law: ScoreLaw, constraint: FairConstraint, randomized: bool
) -> Iterator[dict[str, float]]:
    shifts: Any = 0.0
    for level in _SHOWN:
        program = RuleProgram(law, FairConstraint(constraint.fairness, level, constraint.measure))
        rule, shifts = program.solve(randomized=randomized, start=shifts)
        accuracy, accuracy_error = rule.accuracy
        ratio, ratio_error = _least_ratio(*rule.rates(FairConstraint("demographic_parity", 1.0)))
        gap, gap_error = _largest_gap(*rule.rates(FairConstraint("equalized_odds", 1.0)))
        yield {
            "level": float(level),
            "accuracy": accuracy,
            "accuracy_se": accuracy_error,
            "disparate_impact": ratio,
            "disparate_impact_se": ratio_error,
            "equalized_odds_difference": gap,
            "equalized_odds_difference_se": gap_error,
        }


def _least_ratio(rates: np.ndarray, errors: np.ndarray) -> tuple[float, float]:
    """Return the least ratio of two groups' rates, with the error of these two."""
    low, high = rates.argmin(axis=1), rates.argmax(axis=1)
    rows = np.arange(len(rates))
    most = np.maximum(rates[rows, high], _AGREED)
    ratio = rates[rows, low] / most
    error = np.hypot(errors[rows, low], ratio * errors[rows, high]) / most
    worst = int(ratio.argmin())
    return float(ratio[worst]), min(float(error[worst]), 1.0)  # what lies in [0, 1] is off by less


def _largest_gap(rates: np.ndarray, errors: np.ndarray) -> tuple[float, float]:
    low, high = rates.argmin(axis=1), rates.argmax(axis=1)
    rows = np.arange(len(rates))
    gap = rates[rows, high] - rates[rows, low]
    worst = int(gap.argmax())
    error = np.hypot(errors[rows, low], errors[rows, high])
    return float(gap[worst]), float(error[worst])


@dataclass(frozen=True, eq=False)
class PlacedScores:
    """Scores of rows, and where they lie."""

    of: Any  # with `probabilities` of rows and groups
    lists: ScoreLists

    def __call__(self, rows: Any, codes: np.ndarray) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
        """Return the probability of each class, lists and margins; `codes` are of the groups."""
        classes, groups = self.of.probabilities(rows, codes)
        return classes, *self.lists.place(classes, groups)

    def counted(
        self, cells: np.ndarray, records: Records, shares: np.ndarray
    ) -> tuple[np.ndarray, np.ndarray]:
        """Return the margin of records, (n, 1), and the histogram that each of them is in."""
        codes = of_candidates(cells, shares)
        _, lists, margins = self(records[0], codes)
        return margins[:, None], self.lists.tables(lists, codes, np.asarray(records[1]))


@dataclass(eq=False, repr=False)
class BayesRule(FairMechanism):
    r"""Private scores and a release of their distributions: the default of the fair classifier.

    A network is trained for the classes alone. Where decisions may not use the group, a second one
    learns the probability of each group given the features, with privacy too. Then it is counted,
    once and with noise, how many records of each group and class have which scores. Every rule with
    thresholds for these scores has known rates from there on, and the best one for any constraint
    follows at no cost (`skdpot.fair.bayes`).

    Parameters
    ----------
    share : float, default=0.3
        Share of the squared mu for the distributions of the scores.
    posterior_share : float, default=0.2
        Share of the rest for the probabilities of the groups, where decisions may not use them.

    References
    ----------
    As in `skdpot.FairPrivateClassifier`.
    """

    share: float = 0.3
    _: KW_ONLY
    posterior_share: float = 0.2

    _parameter_constraints: ClassVar[dict[str, list[Any]]] = {
        "share": [Interval(Real, 0, 1, closed="neither")],
        "posterior_share": [Interval(Real, 0, 1, closed="neither")],
    }

    def release(
        self,
        context: FitContext,
        task: FairTask,
        rows: np.ndarray,
        targets: np.ndarray,
        public: Sequence[str],
        callbacks: Sequence[Any] | None,
    ) -> MechanismResult:
        """Plan, charge, and only then read the rows."""
        compared, cells = bool(task.cells.strata), task.cells
        mu, noise = context.divisible_mu, None
        if compared:
            noise = plan_score_tables(mu * math.sqrt(self.share))
            mu *= math.sqrt(1.0 - self.share)
            error = noise.sigma * noise.strategy.typical_deviation
            warn_of_small_cells(context.caller, cells, error)
        loss = "logistic" if task.compared.n_outputs == 1 else "softmax"
        plan = plan_group_scores(mu, self.posterior_share, task, rows.shape[1], loss)
        events = (*plan.events, *([] if noise is None else [noise.event]))
        private = math.isfinite(context.target.epsilon)
        facts = context.assumptions(declared_bounds=False)
        spent = context.charge_event(
            ComposedEvent(events=events) if private else NonPrivateEvent(),
            len(rows),
            (*facts, *public, "the network's initial weights"),
            "noisy sums of clipped gradients of all records"
            + ", and noisy counts of their scores by group and class" * compared,
        )
        of = plan.train(context, task, rows, targets, callbacks)
        found: dict[str, Any] = {"threshold_": 0.5, "scores_": None, "score_law_": None}
        if noise is not None:
            n_classes = max(2, task.compared.n_outputs)
            shares = np.array(cells.sizes) / len(rows)
            placed = found["scores_"] = PlacedScores(
                of, ScoreLists(shares, n_classes, task.group_aware)
            )
            found["score_law_"] = release_law(placed, cells, noise, (rows, targets), context)
        return MechanismResult(of.network, None, spent, attributes=found)


def release_law(
    placed: PlacedScores,
    cells: Cells,
    noise: ScoreNoise,
    records: tuple[Any, np.ndarray],
    context: FitContext,
) -> ScoreLaw:
    """Release where the scores of rows and classes lie; the caller has charged the noise."""
    of = partial(placed.counted, cells.codes)
    # A model of the caller's own may quote rows in its errors and warnings.
    with warnings.catch_warnings(action="ignore"), np.errstate(all="ignore"):
        own = told_safely(context.caller, of, records, np.ones(len(cells.codes)))
    sizes = np.array(cells.sizes)
    return release_score_tables(placed.lists, own, sizes, noise, context.streams.secret, of)
