"""Membership inference on synthetic rows, by an attacker who holds nothing else.

Three attacks on what a sampler publishes: `distance_to_closest_record` and
`nearest_neighbour_distance_ratio` look for copies, `density_ratio_membership` (DOMIAS) for places
where the generator overfits; `closest_record_share` counts how often members are the closest. All
of them know the synthetic rows alone, and judge the average person.
`synthetic_membership` runs them all.

They find a generator that repeats its rows. They cannot show that another one is private: an
outlier may be exposed while nobody else is, and an attacker may know more. The test with teeth is
`skdpot.audit.one_run_audit`, and what guarantees privacy is the ε of the release.
"""

import math
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any, NamedTuple

import numpy as np
import pandas as pd
from numpy.typing import ArrayLike
from scipy.stats import norm
from sklearn.base import clone
from sklearn.decomposition import PCA
from sklearn.ensemble import RandomForestClassifier
from sklearn.neighbors import KernelDensity, NearestNeighbors

from skdpot._utils.validation import as_points, check_count, solver_generator
from skdpot.audit.membership import (
    MembershipResult,
    Share,
    binomial_limits,
)
from skdpot.metrics._panels import COLORS


@dataclass(frozen=True, eq=False, repr=False)
class SyntheticMembershipResult(MembershipResult):
    """Scores of members and of others in an attack on one set of synthetic rows.

    Notes
    -----
    One release, many persons: confidence limits here are over the choice of persons, the
    release being what it is. If members are a random part of the population, a claim bounds the
    rates in the mean over releases. That refutes a claim less strictly than
    `skdpot.audit.one_run_audit` does, and `epsilon_lower_bound` is only indicative.
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

    def __repr__(self) -> str:
        return (
            f"SyntheticMembershipResult({self.attack!r}, {len(self.member_scores)} members, "
            f"{len(self.other_scores)} others, auc={self.auc:.3f}, "
            f"tpr_at(0.01)={self.tpr_at(0.01).value:.3f})"
        )


def distance_to_closest_record(
    synthetic: ArrayLike,
    members: ArrayLike,
    others: ArrayLike,
    *,
    reference: ArrayLike | None = None,
    scale: ArrayLike | str | None = "synthetic",
    metric: str = "euclidean",
    epsilon: float = math.inf,
    delta: float = 0.0,
) -> SyntheticMembershipResult:
    """Take those for members who have a synthetic row near by.

    The score of a row is minus its distance to the closest synthetic row (DCR). With
    `reference` it is ``log(distance to the closest reference row / distance to the closest
    synthetic row)``: a row in a crowd is near to synthetic rows whoever it belongs to, and the
    reference tells how near.

    Privacy
    -------
    A test for those who may see `members`: the result is computed from them without noise.

    Notes
    -----
    This is what most tools report, and it is weak: it sees copies, and misses most other
    leaks [1]_. An attack that fails proves nothing.

    References
    ----------
    .. [1] Z. Yao, N. Krčo, G. Ganev, Y.-A. de Montjoye, "The DCR delusion: measuring the privacy
       risk of synthetic data", 2025 (arXiv:2505.01524).
    """
    made, own, foreign, *crowd = _read(synthetic, members, others, reference, scale=scale)
    near = [_distances(made, rows, metric)[:, 0] for rows in (own, foreign)]
    if crowd:
        usual = (_distances(crowd[0], rows, metric)[:, 0] for rows in (own, foreign))
        scores = [_log_ratio(far, close) for far, close in zip(usual, near, strict=True)]
    else:
        scores = [-distances for distances in near]
    name = f"distance to closest record{', calibrated' if crowd else ''}"
    return SyntheticMembershipResult(scores[0], scores[1], epsilon, delta, name)


def nearest_neighbour_distance_ratio(
    synthetic: ArrayLike,
    members: ArrayLike,
    others: ArrayLike,
    *,
    scale: ArrayLike | str | None = "synthetic",
    metric: str = "euclidean",
    epsilon: float = math.inf,
    delta: float = 0.0,
) -> SyntheticMembershipResult:
    """Take those for members who have one synthetic row near by and the next one far off.

    The score is ``log(distance to the second closest synthetic row / distance to the closest)``
    (NNDR): 0 in a crowd, large beside a copy.

    Privacy
    -------
    A test for those who may see `members`: the result is computed from them without noise.
    """
    made, own, foreign = _read(synthetic, members, others, scale=scale)
    places = np.unique(made, axis=0)
    if len(places) < 2:
        raise ValueError("synthetic must hold at least two different rows for a ratio.")
    near = (_distances(places, rows, metric, 2) for rows in (own, foreign))
    scores = [_log_ratio(distances[:, 1], distances[:, 0]) for distances in near]
    return SyntheticMembershipResult(
        scores[0], scores[1], epsilon, delta, "nearest-neighbour distance ratio"
    )


class ClosestRecordShare(NamedTuple):
    """How often the real row that is closest to a synthetic one is a member."""

    share: Share
    expected: float
    deviation: float

    @property
    def p_value(self) -> float:
        """How likely so large a share is by chance (normal approximation)."""
        excess = self.share.value - self.expected
        if self.deviation == 0.0:
            return float(excess <= 0.0)
        return float(norm.sf(excess / self.deviation))


def closest_record_share(
    synthetic: ArrayLike,
    members: ArrayLike,
    others: ArrayLike,
    *,
    scale: ArrayLike | str | None = "synthetic",
    metric: str = "euclidean",
    confidence: float = 0.95,
) -> ClosestRecordShare:
    """Count the synthetic rows that are closer to a member than to anybody else.

    Parameters
    ----------
    synthetic, members, others, scale, metric
        As for `distance_to_closest_record`. Members and others need not be equally many, but only
        if they are, is 0.5 the share to compare with.
    confidence : float, default=0.95
        Of the binomial limits, in (0, 1).

    Returns
    -------
    ClosestRecordShare
        A row that occurs more than once among the real ones belongs to each of its owners in
        equal parts.

    Raises
    ------
    ValueError
        If rows are not finite numbers, have different features, or a parameter is out of range.

    Privacy
    -------
    A test for those who may see `members`: the result is computed from them without noise.

    Examples
    --------
    >>> import numpy as np
    >>> from skdpot.audit.synthetic import closest_record_share
    >>> rows = np.random.default_rng(0).normal(size=(400, 3))
    >>> result = closest_record_share(rows[:200], rows[:200], rows[200:])
    >>> result.share.value, result.expected
    (1.0, 0.5)
    """
    made, own, foreign = _read(synthetic, members, others, scale=scale)
    real = np.concatenate([own, foreign])
    n_members, n_real = len(own), len(real)
    # Sorted places: of two at the same distance the first is found, whoever it belongs to.
    places, place_of = np.unique(real, axis=0, return_inverse=True)
    place_of = place_of.ravel()
    search = NearestNeighbors(n_neighbors=1, metric=metric).fit(places)
    attracted = np.bincount(search.kneighbors(made)[1][:, 0], minlength=len(places))
    weights = (attracted / np.bincount(place_of))[place_of] / len(made)
    share = float(weights[:n_members].sum())
    limits = binomial_limits(round(share * len(made)), len(made), confidence)
    # Sampling without replacement from a finite population of weights.
    chance = n_members * (n_real - n_members) / (n_real * (n_real - 1))
    deviation = math.sqrt(chance * float(np.sum((weights - 1 / n_real) ** 2)))
    return ClosestRecordShare(limits._replace(value=share), n_members / n_real, deviation)


def _read(
    synthetic: ArrayLike, members: ArrayLike, others: ArrayLike, reference: ArrayLike | None = None,
    *, scale: ArrayLike | str | None = None,
) -> list[np.ndarray]:  # fmt: skip
    """Return the groups of rows that are given, with their features divided."""
    made = as_points(synthetic, "synthetic")
    given = {"members": members, "others": others}
    given |= {} if reference is None else {"reference": reference}
    groups = [made, *(as_points(X, name) for name, X in given.items())]
    for name, rows in zip(given, groups[1:], strict=True):
        if rows.shape[1] != made.shape[1]:
            found = f"{name} has {rows.shape[1]} features"
            raise ValueError(f"{found} and synthetic has {made.shape[1]}.")
    if not isinstance(scale, str):
        divisors = np.ones(made.shape[1]) if scale is None else np.asarray(scale, dtype=float)
    elif scale == "synthetic":
        divisors = _deviations(made)
    else:
        raise ValueError(f"scale={scale!r} must be 'synthetic', None or an array.")
    if divisors.shape != (made.shape[1],) or not (np.isfinite(divisors) & (divisors > 0)).all():
        raise ValueError(f"scale must hold {made.shape[1]} positive finite numbers, one a feature.")
    return [rows / divisors for rows in groups]


def _deviations(rows: np.ndarray) -> np.ndarray:
    """Return the standard deviation of each feature, 1 of a constant one."""
    deviations = rows.std(axis=0)
    return np.where(deviations > 0, deviations, 1.0)


def _distances(places: np.ndarray, rows: np.ndarray, metric: str, n: int = 1) -> np.ndarray:
    """Return the distances from each row to the `n` closest places."""
    search = NearestNeighbors(n_neighbors=n, metric=metric).fit(places)
    return search.kneighbors(rows)[0]


def _log_ratio(far: np.ndarray, close: np.ndarray) -> np.ndarray:
    """Return the logarithm of a ratio of distances; of zero they keep their order."""
    return np.log(np.maximum(far, 1e-300)) - np.log(np.maximum(close, 1e-300))


_MOST_COMPONENTS = 8

_MOST_ROWS = 5000  # of each sample that a kernel density is made of


def density_ratio_membership(
    synthetic: ArrayLike,
    members: ArrayLike,
    others: ArrayLike,
    reference: ArrayLike,
    *,
    density: Any = "kernel",
    n_components: int | None = None,
    bandwidth: float | str = "scott",
    epsilon: float = math.inf,
    delta: float = 0.0,
    random_state: int | np.random.RandomState | None = None,
) -> SyntheticMembershipResult:
    """Take those for members who lie where synthetic rows are denser than the population (DOMIAS).

    The score of a row x is ``log p_synthetic(x) - log p_reference(x)``: where a generator
    overfits, it puts more mass than the population does [1]_.

    Privacy
    -------
    A test for those who may see `members`: the result is computed from them without noise.

    Notes
    -----
    As the distances, this attack looks at synthetic rows alone, and at the average person. It does
    not know the generator, its noise or the other members; `skdpot.audit.one_run_audit` does, and
    sees far more. An attack that fails proves nothing.

    References
    ----------
    .. [1] B. van Breugel, H. Sun, Z. Qian, M. van der Schaar, "Membership inference attacks
       against synthetic data through overfitting detection", AISTATS 2023.
    """
    made, own, foreign, crowd = _read(synthetic, members, others, reference)
    rng = solver_generator(random_state)
    asked = np.concatenate([own, foreign])
    if isinstance(density, str) and density == "kernel":
        most = min(made.shape[1], len(made) + len(crowd))
        wanted = min(most, _MOST_COMPONENTS) if n_components is None else n_components
        if not 1 <= wanted <= most:
            raise ValueError(f"n_components={n_components!r} must be from 1 to {most}.")
        scores = _kernel_scores(made, crowd, asked, wanted, bandwidth, rng)
    else:
        scores = _classifier_scores(made, crowd, asked, density, rng)
    kind = density if isinstance(density, str) else type(density).__name__
    name = f"density ratio, {kind}"
    own, foreign = np.split(scores, [len(own)])
    return SyntheticMembershipResult(own, foreign, epsilon, delta, name)


def _kernel_scores(
    made: np.ndarray,
    crowd: np.ndarray,
    asked: np.ndarray,
    n_components: int,
    bandwidth: float | str,
    rng: np.random.Generator,
) -> np.ndarray:
    """Return log density ratios by kernels, in coordinates that the attacker can compute."""
    made, crowd = (
        rows if len(rows) <= _MOST_ROWS else rng.choice(rows, _MOST_ROWS, replace=False)
        for rows in (made, crowd)
    )
    both = np.concatenate([made, crowd])
    divisors = _deviations(both)
    seed = int(rng.integers(2**31))
    axes = PCA(n_components, whiten=True, random_state=seed).fit(both / divisors)
    # Directions without spread have no density; the others have spread one.
    kept = axes.explained_variance_ > 1e-12 * max(float(axes.explained_variance_[0]), 1e-300)
    points = axes.transform(asked / divisors)[:, kept]
    logs = [
        KernelDensity(bandwidth=bandwidth, rtol=1e-4)
        .fit(axes.transform(rows / divisors)[:, kept])
        .score_samples(points)
        for rows in (made, crowd)
    ]
    # Far from both samples both densities vanish, and say nothing.
    return np.nan_to_num(logs[0] - logs[1], nan=0.0)


def _classifier_scores(
    made: np.ndarray, crowd: np.ndarray, asked: np.ndarray, density: Any, rng: np.random.Generator
) -> np.ndarray:
    """Return the log odds that a row is synthetic."""
    if isinstance(density, str) and density == "classifier":
        seed = int(rng.integers(2**31))
        model: Any = RandomForestClassifier(200, min_samples_leaf=3, random_state=seed)
    elif hasattr(density, "predict_proba"):
        model = clone(density)
    else:
        raise ValueError("density must be 'kernel', 'classifier' or have predict_proba.")
    is_made = np.repeat([0, 1], [len(crowd), len(made)])
    odds = model.fit(np.concatenate([crowd, made]), is_made).predict_proba(asked)[:, 1]
    inside = np.clip(odds, 1e-9, 1 - 1e-9)
    return np.log(inside) - np.log1p(-inside)


_FEWEST_SAMPLED = 1000


@dataclass(frozen=True, eq=False, repr=False)
class SyntheticMembership:
    """What all attacks on one source of synthetic rows found."""

    results: Mapping[str, SyntheticMembershipResult]
    share: ClosestRecordShare
    n_synthetic: int

    @property
    def best(self) -> SyntheticMembershipResult:
        """The attack with the largest area under its operating characteristic."""
        return max(self.results.values(), key=lambda result: result.auc)

    def to_frame(self, confidence: float = 0.95) -> pd.DataFrame:
        """Return the figures, a row for each attack."""
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
    """Attack synthetic rows in every way that is here.

    Parameters
    ----------
    sampler : estimator or array-like of shape (n_synthetic, n_features)
        A fitted estimator with a ``sample`` method, or synthetic rows.
    X_members : array-like of shape (n_members, n_features)
        Rows that it was fitted on.
    X_holdout : array-like of shape (n_holdout, n_features)
        Rows of the same population that it was not fitted on.
    X_reference : array-like of shape (n_reference, n_features), optional
        Rows of the population that the attacker holds. By default a random half of `X_holdout`
        is taken from it for that.
    n_samples : int, optional
        Synthetic rows to draw; as many as members by default, at least 1,000. To a sampler
        that is itself published, more rows are free.
    random_state : int, RandomState or None, default=None
        For the draws.

    Returns
    -------
    SyntheticMembership
        With `to_frame` and `plot`.

    Raises
    ------
    ValueError
        If rows do not fit together, the sampler draws no rows of features, or `n_samples` is
        less than 2. No value is quoted.
    TypeError
        If the sampler cannot draw rows.

    Privacy
    -------
    A test for those who may see `X_members`: the result is computed from them without noise. On
    public rows, fit a clone to one part of them and hold out another.

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
            f"X_holdout has {len(holdout)} rows and must have at least 4, half of which are the "
            "attacker's reference; or give X_reference."
        )
    rows, claim = _synthetic(sampler, int(n_samples), rng)
    seed = int(rng.integers(2**31))
    groups = rows, members, holdout
    attacks = [
        distance_to_closest_record(*groups, **claim),
        distance_to_closest_record(*groups, reference=reference, **claim),
    ]
    if (rows != rows[0]).any():
        attacks.append(nearest_neighbour_distance_ratio(*groups, **claim))
    for kind in ("kernel", "classifier"):
        options = {"density": kind, "random_state": seed} | claim
        attacks.append(density_ratio_membership(*groups, reference, **options))
    results = {result.attack: result for result in attacks}
    return SyntheticMembership(results, closest_record_share(*groups), len(rows))


def _synthetic(
    sampler: Any, n_samples: int, rng: np.random.Generator
) -> tuple[np.ndarray, dict[str, Any]]:
    """Return synthetic rows, and the ε and δ that their source claims."""
    if not hasattr(sampler, "sample"):
        if hasattr(sampler, "fit"):
            raise TypeError(f"{type(sampler).__name__} has no method sample: pass synthetic rows.")
        return as_points(sampler, "sampler"), {}
    drawn = sampler.sample(n_samples, random_state=int(rng.integers(2**31)))
    if np.ndim(drawn) != 2:
        raise ValueError(
            f"{type(sampler).__name__}.sample returns an array of {np.ndim(drawn)} dimensions: "
            "pass synthetic rows, for instance those of sample_marginal at one time."
        )
    spent = getattr(sampler, "privacy_spent_", None)
    claim = {} if spent is None else {"epsilon": spent.epsilon, "delta": spent.delta}
    return as_points(drawn, "the synthetic rows"), claim
