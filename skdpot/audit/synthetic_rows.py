"""Membership attacks on synthetic rows, which find a generator that repeats its rows.

They cannot show that another generator is private: an outlier may be exposed while nobody else is,
and an attacker may know the generator, its noise or the other members, as the attacker of
`skdpot.audit.one_run_audit` does. Only epsilon guarantees privacy.
"""

import math
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any, NamedTuple

import numpy as np
import pandas as pd
from numpy.typing import ArrayLike
from scipy.special import logit
from sklearn.decomposition import PCA
from sklearn.ensemble import RandomForestClassifier
from sklearn.neighbors import KernelDensity, NearestNeighbors

from skdpot._utils.arguments import check_count
from skdpot._utils.finite import as_points
from skdpot._utils.panels import COLORS
from skdpot._utils.streams import solver_generator
from skdpot.audit.membership import MembershipResult, Share, binomial_limits

_FEWEST_SAMPLED = 1000  # synthetic rows
_SHUFFLES = 4999  # of the owners of real rows: p-values are no smaller than 1 / 5000
_MOST_SHUFFLED = 2_000_000  # numbers in memory at a time
_MOST_COMPONENTS = 8  # of a kernel density, which is poor in more dimensions
_MOST_ROWS = 5000  # of each sample that a kernel density is made from


@dataclass(frozen=True, eq=False, repr=False)
class SyntheticMembershipResult(MembershipResult):
    """Scores of members and of others in one attack on one set of synthetic rows.

    Confidence limits are over the choice of persons. A claim bounds the rates only in the mean
    over releases, so `epsilon_lower_bound` is merely indicative.
    """

    attack: str = ""

    def figures(self, confidence: float = 0.95) -> dict[str, Any]:
        """Return area, advantage and true positive rates, with limits, by name."""
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
    made, inside, outside = _scaled_groups(
        as_points(synthetic, "synthetic"),
        members=as_points(members, "members"),
        others=as_points(others, "others"),
    )
    real = np.concatenate([inside, outside])
    n_members, n_real = len(inside), len(real)
    # Places are sorted: of two at the same distance the first is taken, whoever owns it.
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
    return ClosestRecordShare(
        share=limits._replace(value=share),
        expected=n_members / n_real,
        deviation=deviation,
        p_value=_p_value_by_shuffling(weights, n_members, share),
    )


def _p_value_by_shuffling(weights: np.ndarray, n_members: int, share: float) -> float:
    """Return how often members drawn at random have so large a share; the true ones count as one.

    A normal approximation has up to seven times the stated errors where members are few.
    """
    rng, drawn = solver_generator(0), weights[weights > 0.0]
    # Rows of weight zero only decide how many of the other rows are members.
    numbers = rng.hypergeometric(len(drawn), len(weights) - len(drawn), n_members, _SHUFFLES)
    as_large = 1
    for n_drawn in np.array_split(numbers, math.ceil(len(drawn) * _SHUFFLES / _MOST_SHUFFLED)):
        shuffled = rng.permuted(np.tile(drawn, (len(n_drawn), 1)), axis=1)
        sums = np.sum(shuffled, axis=1, where=np.arange(len(drawn)) < n_drawn[:, None])
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
    made, inside, outside, crowd = _scaled_groups(
        rows, X_members=members, X_holdout=holdout, X_reference=reference
    )
    scores = _distance_scores(made, np.concatenate([inside, outside]), crowd)
    asked = np.concatenate([members, holdout])
    scores["density ratio, kernel"] = _kernel_scores(rows, asked, reference, seed)
    scores["density ratio, classifier"] = _classifier_scores(rows, asked, reference, seed)
    results = {}
    for name, of_attack in scores.items():
        of_members, of_others = np.split(of_attack, [len(members)])
        results[name] = SyntheticMembershipResult(of_members, of_others, *claim, attack=name)
    return SyntheticMembership(results, closest_record_share(rows, members, holdout), len(rows))


def _scaled_groups(synthetic: np.ndarray, **groups: np.ndarray) -> list[np.ndarray]:
    """Return all groups of rows divided by the standard deviations of the synthetic ones."""
    for name, rows in groups.items():
        if rows.shape[1] != synthetic.shape[1]:
            raise ValueError(
                f"{name} has {rows.shape[1]} features and the synthetic rows have "
                f"{synthetic.shape[1]}."
            )
    return [rows / _deviations(synthetic) for rows in (synthetic, *groups.values())]


def _deviations(rows: np.ndarray) -> np.ndarray:
    """Return the standard deviation of each feature, and 1 for a constant one."""
    deviations = rows.std(axis=0)
    return np.where(deviations > 0, deviations, 1.0)


def _distance_scores(
    made: np.ndarray, asked: np.ndarray, crowd: np.ndarray
) -> dict[str, np.ndarray]:
    """Score rows by their distances to synthetic rows: a small distance speaks for a member."""
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
    """Return the distances of rows to their n nearest places, of shape (n_rows, n)."""
    return NearestNeighbors(n_neighbors=n).fit(places).kneighbors(rows)[0]


def _log_ratio(far: np.ndarray, close: np.ndarray) -> np.ndarray:
    """Return the logarithm of a ratio of distances, finite also for distances of zero."""
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
    # Far from both samples both densities vanish: no evidence.
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
    """Return synthetic rows, drawn if necessary, and the ε and δ that their sampler claims."""
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
