"""Membership attacks: on synthetic rows, and on a mechanism that is run many times.

Attacks on synthetic rows find a generator that repeats its rows. They cannot show that another one
is private: an outlier may be exposed while nobody else is, and an attacker may know the generator,
its noise or the other members, as that of `skdpot.audit.one_run_audit` does. Only epsilon
guarantees privacy.
"""

import math
import warnings
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any, NamedTuple

import numpy as np
import pandas as pd
from numpy.typing import ArrayLike
from scipy.optimize import brentq
from scipy.special import expit, logit
from scipy.stats import beta, nct, norm, rankdata
from sklearn.decomposition import PCA
from sklearn.ensemble import RandomForestClassifier
from sklearn.neighbors import KernelDensity, NearestNeighbors
from tqdm.auto import tqdm

from skdpot._utils.panels import COLORS, single_axes
from skdpot._utils.validation import as_points, check_confidence, check_count, solver_generator
from skdpot.audit.canaries import CanaryPairs, Score, named_parameters
from skdpot.audit.one_run import (
    check_claim,
    checked_task,
    claimed,
    lower_text,
    scores_of,
    verdict_of,
)
from skdpot.privacy.events import gdp_epsilon


class Share(NamedTuple):
    """A counted share with its exact binomial confidence limits."""

    value: float
    low: float
    high: float


def binomial_limits(n_hits: int, n_trials: int, confidence: float = 0.95) -> Share:
    """Return a share with the limits of Clopper and Pearson."""
    check_confidence(confidence)
    low, high = _limits(np.array(n_hits), n_trials, (1 - confidence) / 2)
    return Share(n_hits / n_trials, float(low), float(high))


def _limits(hits: np.ndarray, n_trials: int, tail: float) -> tuple[np.ndarray, np.ndarray]:
    """Return the limits of Clopper and Pearson, each of which fails with probability `tail`."""
    missed = n_trials - hits
    low = np.where(hits > 0, beta.ppf(tail, np.maximum(hits, 1), missed + 1), 0.0)
    high = np.where(missed > 0, beta.ppf(1 - tail, hits + 1, np.maximum(missed, 1)), 1.0)
    return low, high


@dataclass(frozen=True, eq=False, repr=False)
class MembershipResult:
    """Scores of a membership attack, and what a claimed (ε, δ) allows."""

    member_scores: np.ndarray
    other_scores: np.ndarray
    epsilon: float
    delta: float

    def roc(self) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
        """Return the operating characteristic of the attack."""
        scores = np.unique(np.concatenate([self.member_scores, self.other_scores]))[::-1]
        fpr, tpr = (
            np.concatenate([[0.0], 1 - np.searchsorted(np.sort(kind), scores) / len(kind)])
            for kind in (self.other_scores, self.member_scores)
        )
        return fpr, tpr, np.concatenate([[np.inf], scores])

    @property
    def auc(self) -> float:
        """Area under the operating characteristic: 0.5 for random guessing, 1 for certainty."""
        n_members, n_others = len(self.member_scores), len(self.other_scores)
        ranks = rankdata(np.concatenate([self.member_scores, self.other_scores]))
        below = float(ranks[:n_members].sum()) - n_members * (n_members + 1) / 2
        return below / (n_members * n_others)

    def auc_interval(self, confidence: float = 0.95) -> tuple[float, float]:
        """Return confidence limits of `auc`, normal in log odds (DeLong et al., 1988).

        Approximate: a lower limit that should be missed in 2.5 % of all cases was missed in at most
        3 % for areas up to 0.85, and in 9 % for an area of 0.98 with 50 scores of one kind.
        """
        kinds = self._kinds(confidence)
        both = rankdata(np.concatenate(kinds))
        placed = np.split(both, [len(kinds[0])])
        variance = 0.0
        for own, other, ranks in zip(kinds, kinds[::-1], placed, strict=True):
            variance += float(np.var((ranks - rankdata(own)) / len(other), ddof=1)) / len(own)
        if variance == 0.0 or not 0.0 < self.auc < 1.0:
            # All of one side: as sure as so many right answers of the smaller kind.
            few = min(map(len, kinds))
            limits = binomial_limits(round(self.auc * few), few, confidence)
            return limits.low, limits.high
        # On the scale of log odds, where limits near 0 and 1 are not cut off.
        odds, spread = logit(self.auc), math.sqrt(variance) / (self.auc * (1.0 - self.auc))
        reach = float(norm.ppf((1 + confidence) / 2)) * spread
        return float(expit(odds - reach)), float(expit(odds + reach))

    def tpr_at(self, fpr: float, confidence: float = 0.95) -> Share:
        """Return the true positive rate at a false positive rate, with confidence limits.

        Consider small `fpr`: an attack that finds a few members with certainty is dangerous even if
        it is no better than guessing on average (N. Carlini et al., IEEE S&P 2022).
        """
        if not 0 <= fpr <= 1:
            raise ValueError(f"fpr={fpr!r} must be in [0, 1].")
        n_members, n_others = len(self.member_scores), len(self.other_scores)
        # One alarm more than 0.29 of 100 must not be lost to rounding.
        allowed = math.floor(fpr * n_others * (1 + 1e-12))
        found = n_members
        if allowed < n_others:
            threshold = np.sort(self.other_scores)[n_others - 1 - allowed]
            found = int(np.count_nonzero(self.member_scores > threshold))
        return binomial_limits(found, n_members, confidence)

    @property
    def advantage(self) -> float:
        """Largest ``TPR − FPR`` over all thresholds: 0 for guessing, 1 for certainty."""
        fpr, tpr, _ = self.roc()
        return float(np.max(tpr - fpr))

    @property
    def advantage_bound(self) -> float:
        """Largest advantage that the claim allows, ``(e^ε − 1 + 2 δ) / (e^ε + 1)``."""
        if math.isinf(self.epsilon):
            return 1.0
        small = math.exp(-self.epsilon)
        return math.tanh(self.epsilon / 2) + 2 * self.delta * small / (1 + small)

    def tpr_bound(self, fpr: ArrayLike) -> np.ndarray:
        """Return the largest true positive rate that the claim allows."""
        x = np.asarray(fpr, dtype=np.float64)
        with np.errstate(invalid="ignore", over="ignore"):
            steep = np.where(x > 0, np.exp(self.epsilon) * x, 0.0) + self.delta
        flat = 1 - math.exp(-self.epsilon) * (1 - self.delta - x)
        return np.clip(np.minimum(steep, flat), 0.0, 1.0)

    def epsilon_lower_bound(self, confidence: float = 0.95) -> float:
        """Bound the ε of the mechanism behind the scores from below.

        A threshold is chosen on the first half of the scores and judged on the second, with
        exact binomial confidence limits (Clopper and Pearson) for its two error rates.
        """
        members, others = self._kinds(confidence)
        tail = (1 - confidence) / 2
        best, bound = -math.inf, 0.0
        # The attack and its complement, in which the two kinds change places.
        for ups, downs in ((members, others), (-others, -members)):
            thresholds = np.unique(np.concatenate([ups[::2], downs[::2]]))
            shown = _epsilon(ups[::2], downs[::2], thresholds, self.delta, tail)
            if shown.max() > best:
                best, chosen = shown.max(), thresholds[[shown.argmax()]]
                bound = _epsilon(ups[1::2], downs[1::2], chosen, self.delta, tail)[0]
        return float(max(0.0, bound))

    def _kinds(self, confidence: float) -> tuple[np.ndarray, np.ndarray]:
        """Return both kinds of scores, enough for limits."""
        check_confidence(confidence)
        if min(len(self.member_scores), len(self.other_scores)) < 2:
            raise ValueError("At least two scores of each kind are needed.")
        return self.member_scores, self.other_scores

    def plot(self, ax: Any = None, *, log: bool = False, legend: bool = True, **kwargs: Any) -> Any:
        """Draw the operating characteristic and the region that the claim allows."""
        ax = single_axes(ax, (6.4, 4.8))
        fpr, tpr, _ = self.roc()
        # Logarithmic axes begin at the smallest rate above zero, below which is nothing.
        least = float(np.clip(np.min(fpr[fpr > 0], initial=1.0), 1e-5, 0.1)) if log else 0.0
        grid = np.unique(np.concatenate([np.linspace(0, 1, 201), np.geomspace(1e-5, 1, 101), fpr]))
        claim = f"allowed by ε = {self.epsilon:g}".replace("inf", "∞")
        region = {"color": COLORS[5], "alpha": 0.3, "linewidth": 0, "label": claim}
        ax.fill_between(grid, grid, self.tpr_bound(grid), **region)
        style = {"color": COLORS[0], "drawstyle": "steps-post", "label": "attack"} | kwargs
        ax.plot(fpr, tpr, **style)
        ax.plot([least, 1], [least, 1], "k:", linewidth=1, label="random guessing")
        scale = "log" if log else "linear"
        ax.set(xscale=scale, yscale=scale, xlim=(least, 1), ylim=(least, 1), aspect="equal")
        ax.set(xlabel="false positive rate", ylabel="true positive rate")
        if legend:
            ax.legend(loc="lower right")
        return ax

    def __repr__(self) -> str:
        return (
            f"{type(self).__name__}({len(self.member_scores)} + {len(self.other_scores)} scores, "
            f"auc={self.auc:.3f}, epsilon={self.epsilon:.4g}, delta={self.delta:.2g}, "
            f"advantage={self.advantage:.3f} of at most {self.advantage_bound:.3f})"
        )


def _epsilon(
    members: np.ndarray, others: np.ndarray, thresholds: np.ndarray, delta: float, tail: float
) -> np.ndarray:
    """Return ``log((TPR − δ) / FPR)`` of each threshold at the limits of the two rates."""
    hits = len(members) - np.searchsorted(np.sort(members), thresholds)
    alarms = len(others) - np.searchsorted(np.sort(others), thresholds)
    least, _ = _limits(hits, len(members), tail)
    _, most = _limits(alarms, len(others), tail)
    return np.log(np.maximum(least - delta, 1e-300) / most)


_FEWEST_SAMPLED = 1000
_SHUFFLES, _MOST_SHUFFLED = 4999, 2_000_000  # of the owners of rows, and weights at a time
_MOST_COMPONENTS = 8
_MOST_ROWS = 5000  # of each sample that a kernel density is made of


@dataclass(frozen=True, eq=False, repr=False)
class SyntheticMembershipResult(MembershipResult):
    """Scores of members and of others in one attack on one set of synthetic rows.

    Confidence limits are over the choice of persons. A claim bounds the rates only in the mean
    over releases, so `epsilon_lower_bound` is merely indicative.
    """

    attack: str = ""

    def figures(self, confidence: float = 0.95) -> dict[str, Any]:
        """Return the figures of the attack."""
        low, high = self.auc_interval(confidence)
        figures = {"auc": self.auc, "auc_low": low, "auc_high": high, "advantage": self.advantage}
        for fpr in (0.001, 0.01, 0.1):
            names = (f"tpr_at_{fpr:g}{suffix}" for suffix in ("", "_low", "_high"))
            figures |= zip(names, self.tpr_at(fpr, confidence), strict=True)
        return figures


class ClosestRecordShare(NamedTuple):
    """The outcome of `closest_record_share`, which explains the attributes."""

    share: Share
    expected: float
    deviation: float
    p_value: float


def closest_record_share(
    synthetic: ArrayLike, members: ArrayLike, others: ArrayLike
) -> ClosestRecordShare:
    """Return the share of synthetic rows whose closest real row is a member.

    Features are divided by their standard deviations among the synthetic rows. The result has
    ``share`` (value and confidence limits), ``expected`` (the share of members among the real rows;
    0.5 if there are as many others), ``deviation`` (the standard deviation of the share by chance)
    and ``p_value``: how often so large a share comes about when the real rows change their owners
    at random, with an exact level and no smaller than 1 / 5000. A row that several real records
    have counts for each of them in equal parts.
    """
    given = {"members": members, "others": others}
    made, own, foreign = _groups(
        as_points(synthetic, "synthetic"),
        **{name: as_points(rows, name) for name, rows in given.items()},
    )
    real = np.concatenate([own, foreign])
    n_members, n_real = len(own), len(real)
    # Sorted places: of two at the same distance the first is found, whoever it belongs to.
    places, place_of = np.unique(real, axis=0, return_inverse=True)
    place_of = place_of.ravel()
    search = NearestNeighbors(n_neighbors=1).fit(places)
    attracted = np.bincount(search.kneighbors(made)[1][:, 0], minlength=len(places))
    weights = (attracted / np.bincount(place_of))[place_of] / len(made)
    share = float(weights[:n_members].sum())
    limits = binomial_limits(round(share * len(made)), len(made))
    # Sampling without replacement from a finite population of weights.
    chance = n_members * (n_real - n_members) / (n_real * (n_real - 1))
    deviation = math.sqrt(chance * float(np.sum((weights - 1 / n_real) ** 2)))
    counted = limits._replace(value=share), n_members / n_real, deviation
    return ClosestRecordShare(*counted, _by_chance(weights, n_members, share))


def _by_chance(weights: np.ndarray, n_members: int, share: float) -> float:
    """Return how often members drawn at random have such a share, the given ones among them.

    A normal approximation has up to seven times the stated errors where members are few.
    """
    rng, drawn = solver_generator(0), weights[weights > 0.0]
    # Rows without a weight change nothing but how many of the others are members.
    numbers = rng.hypergeometric(len(drawn), len(weights) - len(drawn), n_members, _SHUFFLES)
    as_large = 1
    for own in np.array_split(numbers, math.ceil(len(drawn) * _SHUFFLES / _MOST_SHUFFLED)):
        shuffled = rng.permuted(np.tile(drawn, (len(own), 1)), axis=1)
        sums = np.sum(shuffled, axis=1, where=np.arange(len(drawn)) < own[:, None])
        as_large += int(np.count_nonzero(sums >= share - 1e-12))
    return as_large / (1 + _SHUFFLES)


@dataclass(frozen=True, eq=False, repr=False)
class SyntheticMembership:
    """The outcome of `synthetic_membership`, which explains the attributes."""

    results: Mapping[str, SyntheticMembershipResult]
    share: ClosestRecordShare
    n_synthetic: int

    @property
    def best(self) -> SyntheticMembershipResult:
        """The attack with the largest area under its operating characteristic.

        Its limits are those of one attack: the largest of several areas is above 0.5 by chance.
        """
        return max(self.results.values(), key=lambda result: result.auc)

    def to_frame(self, confidence: float = 0.95) -> pd.DataFrame:
        """Return the figures, a row per attack; each limit holds by itself."""
        figures = {name: result.figures(confidence) for name, result in self.results.items()}
        return pd.DataFrame.from_dict(figures, orient="index").rename_axis("attack")

    def plot(self, ax: Any = None, *, log: bool = False, legend: bool = True) -> Any:
        """Draw the operating characteristics of all attacks."""
        (name, first), *others = self.results.items()
        ax = first.plot(ax, log=log, legend=False, color=COLORS[0], label=name)
        for (name, result), color in zip(others, COLORS[1:], strict=False):
            fpr, tpr, _ = result.roc()
            ax.plot(fpr, tpr, drawstyle="steps-post", color=color, label=name)
        if legend:
            ax.legend(fontsize="small")
        return ax

    def __repr__(self) -> str:
        best = self.best
        return (
            f"SyntheticMembership({len(self.results)} attacks on {self.n_synthetic} rows, "
            f"largest auc={best.auc:.3f} by {best.attack!r}, "
            f"members closest {self.share.share.value:.3f} of {self.share.expected:.3f} expected)"
        )


def synthetic_membership(
    sampler: Any,
    X_members: ArrayLike,
    X_holdout: ArrayLike,
    *,
    X_reference: ArrayLike | None = None,
    n_samples: int | None = None,
    random_state: int | np.random.RandomState | None = None,
) -> SyntheticMembership:
    """Run membership attacks on synthetic rows.

    Five attacks score each row; a high score speaks for a member. The distance to the closest
    synthetic row, plain or compared with that to the attacker's reference rows, and the ratio of
    the distances to the two closest ones find copies and miss most other leaks [1]_. The log ratio
    of the densities of synthetic rows and population, by kernels and by a classifier, finds a
    generator that overfits [2]_.

    Parameters
    ----------
    sampler : estimator or array-like of shape (n_synthetic, n_features)
        A fitted estimator with a ``sample`` method, or synthetic rows.
    X_members : array-like of shape (n_members, n_features)
        Rows that it was fitted on.
    X_holdout : array-like of shape (n_holdout, n_features)
        Rows of the same population that it was not fitted on.
    X_reference : array-like of shape (n_reference, n_features), optional
        Rows of the population that the attacker holds. By default, a random half of `X_holdout`
        is used as the reference.
    n_samples : int, optional
        Number of synthetic rows to draw. By default as many as there are members, and at least
        1,000. If the sampler itself is published, drawing more rows costs nothing.
    random_state : int, RandomState or None, default=None
        Seed of the draws.

    Returns
    -------
    SyntheticMembership
        With the attributes ``results`` (by the name of the attack: scores, with ``auc``,
        ``auc_interval()``, ``advantage``, ``tpr_at(fpr)`` and ``roc()``), ``best`` (the attack with
        the largest area under its operating characteristic), ``share`` (the share of synthetic
        rows whose closest real row is a member: ``share.share`` with confidence limits, the
        ``expected`` share, its ``deviation`` by chance and ``p_value``) and ``n_synthetic``.
        ``to_frame()`` returns the figures of all attacks and ``plot()`` draws them.

    Raises
    ------
    ValueError
        If the groups have different numbers of features, the sampler does not draw rows of
        features, or `n_samples` is less than 2. The message contains no value of the rows.
    TypeError
        If the sampler cannot draw rows.

    Privacy
    -------
    A test for those who may see `X_members`: the result is computed from them without noise. On
    public rows, fit a clone to one part of them and hold out another.

    References
    ----------
    .. [1] Z. Yao, N. Krčo, G. Ganev, Y.-A. de Montjoye, "The DCR delusion: measuring the privacy
       risk of synthetic data", 2025 (arXiv:2505.01524).
    .. [2] B. van Breugel, H. Sun, Z. Qian, M. van der Schaar, "Membership inference attacks
       against synthetic data through overfitting detection", AISTATS 2023.

    Examples
    --------
    >>> from sklearn.datasets import load_iris
    >>> from skdpot import DPSlicedFlowSampler
    >>> from skdpot.audit import synthetic_membership
    >>> X, _ = load_iris(return_X_y=True)
    >>> sampler = DPSlicedFlowSampler(epsilon=1.0, bounds=(0, 8)).fit(X[::2])
    >>> found = synthetic_membership(sampler, X[::2], X[1::2], random_state=0)
    >>> found.best.auc < 0.85
    True
    """
    members, holdout = as_points(X_members, "X_members"), as_points(X_holdout, "X_holdout")
    n_samples = max(_FEWEST_SAMPLED, len(members)) if n_samples is None else n_samples
    check_count(n_samples, "n_samples", least=2)
    rng = solver_generator(random_state)
    if X_reference is not None:
        reference = as_points(X_reference, "X_reference")
    elif len(holdout) >= 4:
        holdout, reference = np.array_split(rng.permutation(holdout), 2)
    else:
        raise ValueError(
            f"X_holdout has {len(holdout)} rows and must have at least 4: half of them are the "
            "attacker's reference. Pass more rows, or X_reference."
        )
    rows, claim = _synthetic(sampler, int(n_samples), rng)
    seed = int(rng.integers(2**31))
    given = {"X_members": members, "X_holdout": holdout, "X_reference": reference}
    made, own, others, crowd = _groups(rows, **given)
    scores = _distance_scores(made, np.concatenate([own, others]), crowd)
    asked = np.concatenate([members, holdout])
    scores["density ratio, kernel"] = _kernel_scores(rows, asked, reference, seed)
    scores["density ratio, classifier"] = _classifier_scores(rows, asked, reference, seed)
    results = {
        name: SyntheticMembershipResult(found[: len(own)], found[len(own) :], *claim, attack=name)
        for name, found in scores.items()
    }
    return SyntheticMembership(results, closest_record_share(rows, members, holdout), len(rows))


def _groups(synthetic: np.ndarray, **groups: np.ndarray) -> list[np.ndarray]:
    """Return groups of rows with one number of features, divided by their synthetic deviations."""
    for name, rows in groups.items():
        if rows.shape[1] != synthetic.shape[1]:
            raise ValueError(
                f"{name} has {rows.shape[1]} features and the synthetic rows have "
                f"{synthetic.shape[1]}."
            )
    return [rows / _deviations(synthetic) for rows in (synthetic, *groups.values())]


def _deviations(rows: np.ndarray) -> np.ndarray:
    """Return the standard deviation of each feature, 1 of a constant one."""
    deviations = rows.std(axis=0)
    return np.where(deviations > 0, deviations, 1.0)


def _distance_scores(
    made: np.ndarray, asked: np.ndarray, crowd: np.ndarray
) -> dict[str, np.ndarray]:
    """Score rows by their distances to synthetic ones: a small distance speaks for a member."""
    near, usual = _nearest(made, asked, 1)[:, 0], _nearest(crowd, asked, 1)[:, 0]
    scores = {
        "distance to closest record": -near,
        "distance to closest record, calibrated": _log_ratio(usual, near),
    }
    places = np.unique(made, axis=0)
    if len(places) > 1:
        closest, second = _nearest(places, asked, 2).T
        scores["nearest-neighbour distance ratio"] = _log_ratio(second, closest)
    return scores


def _nearest(places: np.ndarray, rows: np.ndarray, n: int) -> np.ndarray:
    return NearestNeighbors(n_neighbors=n).fit(places).kneighbors(rows)[0]


def _log_ratio(far: np.ndarray, close: np.ndarray) -> np.ndarray:
    """Return the logarithm of a ratio of distances; of zero they keep their order."""
    return np.log(np.maximum(far, 1e-300)) - np.log(np.maximum(close, 1e-300))


def _kernel_scores(made: np.ndarray, asked: np.ndarray, crowd: np.ndarray, seed: int) -> np.ndarray:
    """Return log density ratios by kernels, in coordinates that the attacker can compute."""
    rng = solver_generator(seed)
    n_components = min(made.shape[1], len(made) + len(crowd), _MOST_COMPONENTS)
    made, crowd = (
        rows if len(rows) <= _MOST_ROWS else rng.choice(rows, _MOST_ROWS, replace=False)
        for rows in (made, crowd)
    )
    both = np.concatenate([made, crowd])
    divisors = _deviations(both)
    pca_seed = int(rng.integers(2**31))
    axes = PCA(n_components, whiten=True, random_state=pca_seed).fit(both / divisors)
    # Directions without spread have no density; the others have spread one.
    kept = axes.explained_variance_ > 1e-12 * max(float(axes.explained_variance_[0]), 1e-300)
    points, *samples = (axes.transform(rows / divisors)[:, kept] for rows in (asked, made, crowd))
    logs = [
        KernelDensity(bandwidth="scott", rtol=1e-4).fit(sample).score_samples(points)
        for sample in samples
    ]
    # Far from both samples both densities vanish, and say nothing.
    return np.nan_to_num(logs[0] - logs[1], nan=0.0)


def _classifier_scores(
    made: np.ndarray, asked: np.ndarray, crowd: np.ndarray, seed: int
) -> np.ndarray:
    """Return the log odds that a row is synthetic."""
    forest_seed = int(solver_generator(seed).integers(2**31))
    model = RandomForestClassifier(200, min_samples_leaf=3, random_state=forest_seed)
    is_made = np.repeat([0, 1], [len(crowd), len(made)])
    odds = model.fit(np.concatenate([crowd, made]), is_made).predict_proba(asked)[:, 1]
    return np.asarray(logit(np.clip(odds, 1e-9, 1 - 1e-9)))


def _synthetic(
    sampler: Any, n_samples: int, rng: np.random.Generator
) -> tuple[np.ndarray, tuple[float, float]]:
    if not hasattr(sampler, "sample"):
        if hasattr(sampler, "fit"):
            raise TypeError(f"{type(sampler).__name__} has no method sample. Pass synthetic rows.")
        return as_points(sampler, "sampler"), (math.inf, 0.0)
    drawn = sampler.sample(n_samples, random_state=int(rng.integers(2**31)))
    if np.ndim(drawn) != 2:
        raise ValueError(
            f"{type(sampler).__name__}.sample returns an array of {np.ndim(drawn)} dimensions. "
            "Pass synthetic rows, such as those of sample_marginal at one time."
        )
    spent = getattr(sampler, "privacy_spent_", None)
    claim = (math.inf, 0.0) if spent is None else (spent.epsilon, spent.delta)
    return as_points(drawn, "the synthetic rows"), claim


def gaussian_audit(
    fit: Any,
    X: ArrayLike,
    y: ArrayLike | None = None,
    *,
    canaries: CanaryPairs | None = None,
    score: Score | str = "auto",
    n_trials: int = 500,
    epsilon: float | None = None,
    delta: float | None = None,
    fit_params: Mapping[str, ArrayLike] | None = None,
    random_state: int | np.random.RandomState | None = None,
    verbose: int = 0,
) -> "GaussianAuditResult":
    """Audit a fit by running it many times on two neighbouring data sets.

    Hundreds of runs show the noise of a mechanism precisely: a standard deviation that is wrong by
    a tenth is found, where `one_run_audit` finds a factor. The audit costs ``2 * n_trials`` fits.

    Parameters
    ----------
    fit : estimator or callable
        An estimator, which is cloned, or a function ``fit(X, y, **fit_params)`` that returns
        what it released.
    X : array-like of shape (n_samples, n_features)
        Public or made-up rows that both data sets share.
    y : array-like of shape (n_samples,), optional
        Labels of the rows.
    canaries : CanaryPairs of one pair, optional
        The record of each data set. By default, `skdpot.audit.canaries` makes them.
    score : callable or "auto", default="auto"
        As for `one_run_audit`.
    n_trials : int, default=500
        Number of fits with each of the two records.
    epsilon, delta : float, optional
        The claim, if `fit` returns something without a ``privacy_spent_``.
    fit_params : mapping of str to array-like of shape (n_samples,), optional
        As for `one_run_audit`.
    random_state : int, RandomState or None, default=None
        Seed for making the pair.
    verbose : int, default=0
        If positive, show a progress bar.

    Returns
    -------
    GaussianAuditResult
        With the attributes ``member_scores`` and ``other_scores`` (the scores of the fits with
        either record), ``epsilon`` and ``delta`` (the claim), ``refuted`` and ``verdict`` (by
        counting, at 95 %), ``advantage`` and ``advantage_bound``. ``epsilon_lower_bound()`` holds
        for any noise, but cannot exceed about ``log(n_trials / 8)``. ``mu_lower_bound()``,
        ``gaussian_epsilon_lower_bound()`` and ``refuted_if_normal()`` show much more, but only for
        Gaussian noise. ``roc()`` and ``plot()`` give the operating characteristic.

    Raises
    ------
    ValueError
        If the estimator has a budget or a seed, there is not exactly one pair, `n_trials` is less
        than 4, a score has a wrong shape, or the claim is unknown.

    Privacy
    -------
    For public or made-up rows: `n_trials` releases cost `n_trials` times the epsilon or more, and
    the scores are computed from the rows without noise.

    Examples
    --------
    >>> import numpy as np
    >>> from skdpot import SlicedSketch
    >>> from skdpot.audit import gaussian_audit
    >>> X = np.random.default_rng(0).uniform(-1, 1, size=(100, 2))
    >>> sketch = SlicedSketch(epsilon=1.0, bounds=(-1, 1), n_projections=2, n_bins=4)
    >>> result = gaussian_audit(sketch, X, n_trials=20)
    >>> result.epsilon, round(result.advantage_bound, 3)
    (1.0, 0.462)
    """
    check_count(n_trials, "n_trials", least=4)
    check_claim(epsilon, delta, score)
    for name, value in named_parameters(fit, "random_state").items():
        if value is not None:
            raise ValueError(f"fit must have {name}=None: a seed repeats the noise of a trial.")
    if canaries is not None and not (isinstance(canaries, CanaryPairs) and len(canaries) == 1):
        raise ValueError("canaries must be CanaryPairs of one pair, or None.")
    task = checked_task(fit, X, y, canaries or 1, fit_params, random_state)
    scores = np.empty((2, n_trials))
    for trial in tqdm(range(n_trials), desc="trials", disable=verbose <= 0):
        for world in (0, 1):
            audited = task.run(np.array([world == 0]))
            if not (trial or world):
                stated, missed, _ = claimed(audited.fitted, epsilon, delta)
            scores[world, trial] = scores_of(score, audited)[0]
    return GaussianAuditResult(scores[0], scores[1], epsilon=stated, delta=missed)


@dataclass(frozen=True, eq=False, repr=False)
class GaussianAuditResult(MembershipResult):
    """The outcome of `gaussian_audit`, which explains the attributes."""

    def mu_lower_bound(self, confidence: float = 0.95) -> float:
        r"""Bound the distance of the two normal distributions of scores, in standard deviations.

        With n and n' scores of pooled standard deviation s the statistic
        :math:`t = (\bar x - \bar x') / (s \sqrt{1/n + 1/n'})` has a noncentral t distribution with
        noncentrality :math:`μ / \sqrt{1/n + 1/n'}`.
        """
        check_confidence(confidence)
        one, other = self.member_scores, self.other_scores
        freedom = len(one) + len(other) - 2
        gap = float(one.mean() - other.mean())
        squares = float(np.sum((one - one.mean()) ** 2) + np.sum((other - other.mean()) ** 2))
        scale = math.sqrt(squares / freedom)
        if gap <= 0.0 or math.isnan(gap):
            return 0.0
        if scale <= 1e-12 * gap:
            return math.inf
        unit = math.sqrt(1 / len(one) + 1 / len(other))
        statistic = gap / (scale * unit)

        def excess(mu: float) -> float:
            return float(nct.sf(statistic, freedom, mu / unit)) - (1.0 - confidence)

        if excess(0.0) >= 0.0:
            return 0.0
        high = gap / scale  # where the tail is about a half
        with warnings.catch_warnings():
            # Of an unfinished series SciPy returns the closest value: the root keeps five digits.
            warnings.filterwarnings("ignore", "Error in function", RuntimeWarning)
            while excess(high) < 0.0:
                high *= 2.0
            return float(brentq(excess, 0.0, high))

    def gaussian_epsilon_lower_bound(self, confidence: float = 0.95) -> float:
        """Bound ε from below by a normal fit, see `mu_lower_bound`."""
        mu = self.mu_lower_bound(confidence)
        return gdp_epsilon(mu, self.delta) if mu > 0.0 else 0.0

    def refuted_if_normal(self, confidence: float = 0.95) -> bool:
        """Return whether the normal fit refutes the claim of a mechanism with Gaussian noise."""
        return self.gaussian_epsilon_lower_bound(confidence) > self.epsilon

    @property
    def refuted(self) -> bool:
        """Whether counting refutes the claim at 95 %."""
        return self.epsilon_lower_bound() > self.epsilon

    @property
    def verdict(self) -> str:
        """What counting shows at 95 % confidence, in a sentence."""
        return verdict_of(self.epsilon_lower_bound(), self.epsilon, 0.95)

    def __repr__(self) -> str:
        return (
            f"GaussianAuditResult({len(self.member_scores)} + {len(self.other_scores)} fits, "
            f"epsilon >= {lower_text(self.gaussian_epsilon_lower_bound())} by a normal fit and "
            f">= {lower_text(self.epsilon_lower_bound())} by counting, at 95 %; "
            f"claimed epsilon={self.epsilon:.4g}, delta={self.delta:.2g})"
        )
