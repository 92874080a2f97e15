"""Attacks on synthetic rows: by their distances, and by their density."""

import math
from dataclasses import dataclass
from typing import Any, NamedTuple

import numpy as np
from numpy.typing import ArrayLike
from scipy.stats import norm
from sklearn.base import clone
from sklearn.decomposition import PCA
from sklearn.ensemble import RandomForestClassifier
from sklearn.neighbors import KernelDensity, NearestNeighbors

from skdpot._utils.rng import solver_generator
from skdpot._utils.validation import as_finite
from skdpot.audit.membership.result import (
    MembershipResult,
    Share,
    binomial_limits,
)

__all__ = [
    "ClosestRecordShare",
    "SyntheticMembershipResult",
    "closest_record_share",
    "density_ratio_membership",
    "distance_to_closest_record",
    "nearest_neighbour_distance_ratio",
    "read_rows",
]


@dataclass(frozen=True, eq=False, repr=False)
class SyntheticMembershipResult(MembershipResult):
    """Scores of members and of others in an attack on one set of synthetic rows.

    Parameters
    ----------
    member_scores : ndarray of shape (n_members,)
        Scores of rows that the generator was fitted on.
    other_scores : ndarray of shape (n_others,)
        Scores of other rows of the same population.
    epsilon, delta : float
        What the release claims; infinity and 0 for nothing.
    attack : str, default=""
        Its name.

    Notes
    -----
    One release, many persons: confidence limits here are over the choice of persons, the
    release being what it is. If members are a random part of the population, a claim bounds the
    rates in the mean over releases. That refutes a claim less strictly than
    `skdpot.audit.one_run_audit` does, and `epsilon_lower_bound` is only indicative.
    """

    attack: str = ""

    def figures(self, confidence: float = 0.95) -> dict[str, Any]:
        """Return the figures of the attack.

        Parameters
        ----------
        confidence : float, default=0.95
            Of the limits, in (0, 1).

        Returns
        -------
        dict
            ``auc`` with its limits, ``advantage``, and the true positive rates at false positive
            rates of 0.001, 0.01 and 0.1 with theirs.

        Raises
        ------
        ValueError
            If `confidence` is not in (0, 1) or there are fewer than two scores of a kind.
        """
        low, high = self.auc_interval(confidence)
        figures = {"auc": self.auc, "auc_low": low, "auc_high": high, "advantage": self.advantage}
        for fpr in (0.001, 0.01, 0.1):
            found = self.tpr_at(fpr, confidence)
            for suffix, value in (("", found.value), ("_low", found.low), ("_high", found.high)):
                figures[f"tpr_at_{fpr:g}{suffix}"] = value
        return figures

    def __repr__(self) -> str:
        return (
            f"SyntheticMembershipResult({self.attack!r}, {len(self.member_scores)} members, "
            f"{len(self.other_scores)} others, auc={self.auc:.3f}, "
            f"tpr_at(0.01)={self.tpr_at(0.01).value:.3f})"
        )


def read_rows(X: ArrayLike, name: str, n_features: int | None = None) -> np.ndarray:
    """Return finite float64 rows."""
    # Not check_array, whose messages quote rows of other shapes.
    rows = as_finite(X, name, "must hold finite numbers, in rows of features.")
    if rows.ndim != 2:
        raise ValueError(
            f"{name} must have two dimensions, (n_rows, n_features), and has {rows.ndim}. Of a "
            "single feature take array.reshape(-1, 1), of a single row array.reshape(1, -1)."
        )
    if 0 in rows.shape:
        raise ValueError(
            f"{name} has {rows.shape[0]} rows and {rows.shape[1]} features; it must have at least "
            "one of each."
        )
    if n_features is not None and rows.shape[1] != n_features:
        raise ValueError(
            f"{name} has {rows.shape[1]} features and synthetic has {n_features}: all rows must "
            "have the same features in the same order."
        )
    return rows


def scaled(rows: np.ndarray, divisors: np.ndarray) -> np.ndarray:
    """Return rows whose features are divided by `divisors`."""
    quotients: np.ndarray = rows / divisors
    return quotients


# Distances of zero have logarithms, and their order stays what it is.
_TINY = 1e-300


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

    Parameters
    ----------
    synthetic : array-like of shape (n_synthetic, n_features)
        Rows that were released.
    members : array-like of shape (n_members, n_features)
        Rows that the generator was fitted on, all or some.
    others : array-like of shape (n_others, n_features)
        Rows of the same population that it was not fitted on.
    reference : array-like of shape (n_reference, n_features), optional
        More rows of the population that the attacker holds, none of them in `members` or
        `others`: else these would be at distance zero.
    scale : "synthetic", None or array-like of shape (n_features,), default="synthetic"
        What features are divided by before distances are taken: their standard deviations among
        the synthetic rows, nothing, or given numbers.
    metric : str, default="euclidean"
        As in `sklearn.neighbors.NearestNeighbors`.
    epsilon, delta : float
        What the release claims, for comparison; by default nothing.

    Returns
    -------
    SyntheticMembershipResult
        Scores of members and others.

    Raises
    ------
    ValueError
        If rows are not finite numbers, have different features, or the scale is not positive.

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

    Examples
    --------
    >>> import numpy as np
    >>> from skdpot.audit import distance_to_closest_record
    >>> rows = np.random.default_rng(0).normal(size=(400, 3))
    >>> bootstrap = rows[:200][np.random.default_rng(1).integers(200, size=1000)]
    >>> distance_to_closest_record(bootstrap, rows[:200], rows[200:]).auc > 0.98
    True
    """
    rows, divisors = _read(synthetic, members, others, scale)
    near = _distances(rows[0], rows[1:], metric)
    if reference is None:
        own, foreign = (-distances for distances in near)
        name = "distance to closest record"
    else:
        crowd = scaled(read_rows(reference, "reference", rows[0].shape[1]), divisors)
        usual = _distances(crowd, rows[1:], metric)
        own, foreign = (_log_ratio(far, close) for far, close in zip(usual, near, strict=True))
        name = "distance to closest record, calibrated"
    return SyntheticMembershipResult(own, foreign, epsilon=epsilon, delta=delta, attack=name)


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

    Parameters
    ----------
    synthetic, members, others, scale, metric, epsilon, delta
        As for `distance_to_closest_record`; at least two different synthetic rows.

    Returns
    -------
    SyntheticMembershipResult
        Scores of members and others. Two equal synthetic rows count as one.

    Raises
    ------
    ValueError
        If rows are not finite numbers, have different features, the scale is not positive, or
        all synthetic rows are equal.

    Privacy
    -------
    A test for those who may see `members`: the result is computed from them without noise.
    """
    rows, _ = _read(synthetic, members, others, scale)
    places = np.unique(rows[0], axis=0)
    if len(places) < 2:
        raise ValueError("synthetic must hold at least two different rows for a ratio.")
    search = NearestNeighbors(n_neighbors=2, metric=metric).fit(places)
    near = [search.kneighbors(group)[0] for group in rows[1:]]
    own, foreign = (_log_ratio(distances[:, 1], distances[:, 0]) for distances in near)
    return SyntheticMembershipResult(
        own, foreign, epsilon=epsilon, delta=delta, attack="nearest-neighbour distance ratio"
    )


class ClosestRecordShare(NamedTuple):
    """How often the real row that is closest to a synthetic one is a member.

    Parameters
    ----------
    share : Share
        The share, and its binomial limits over the draw of the synthetic rows.
    expected : float
        What it would be if the synthetic rows told nothing about who is a member: the share of
        members among the real rows.
    deviation : float
        Its standard deviation if members had been chosen from the real rows by chance. Few real
        rows that attract many synthetic ones make it large, however many are drawn; compare with
        this, not with the binomial limits.
    """

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
    >>> from skdpot.audit import closest_record_share
    >>> rows = np.random.default_rng(0).normal(size=(400, 3))
    >>> result = closest_record_share(rows[:200], rows[:200], rows[200:])
    >>> result.share.value, result.expected
    (1.0, 0.5)
    """
    (made, own, foreign), _ = _read(synthetic, members, others, scale)
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
    variance = (
        n_members
        * (n_real - n_members)
        / (n_real * (n_real - 1))
        * float(np.sum((weights - 1 / n_real) ** 2))
    )
    return ClosestRecordShare(
        Share(share, limits.low, limits.high), n_members / n_real, math.sqrt(variance)
    )


def _read(
    synthetic: ArrayLike, members: ArrayLike, others: ArrayLike, scale: ArrayLike | str | None
) -> tuple[list[np.ndarray], np.ndarray]:
    """Return the three groups of rows with their features divided, and the divisors."""
    made = read_rows(synthetic, "synthetic")
    own = read_rows(members, "members", made.shape[1])
    foreign = read_rows(others, "others", made.shape[1])
    if not isinstance(scale, str):
        divisors = np.ones(made.shape[1]) if scale is None else np.asarray(scale, dtype=float)
    elif scale == "synthetic":
        deviations = made.std(axis=0)
        divisors = np.where(deviations > 0, deviations, 1.0)
    else:
        raise ValueError(f"scale={scale!r} must be 'synthetic', None or an array.")
    if divisors.shape != (made.shape[1],) or not (np.isfinite(divisors) & (divisors > 0)).all():
        raise ValueError(
            f"scale must hold {made.shape[1]} positive finite numbers, one for each feature."
        )
    return [scaled(rows, divisors) for rows in (made, own, foreign)], divisors


def _distances(rows: np.ndarray, groups: list[np.ndarray], metric: str) -> list[np.ndarray]:
    """Return the distance from each row of each group to the closest of `rows`."""
    search = NearestNeighbors(n_neighbors=1, metric=metric).fit(rows)
    return [search.kneighbors(group)[0][:, 0] for group in groups]


def _log_ratio(far: np.ndarray, close: np.ndarray) -> np.ndarray:
    ratio: np.ndarray = np.log(np.maximum(far, _TINY)) - np.log(np.maximum(close, _TINY))
    return ratio


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

    Parameters
    ----------
    synthetic : array-like of shape (n_synthetic, n_features)
        Rows that were released.
    members : array-like of shape (n_members, n_features)
        Rows that the generator was fitted on, all or some.
    others : array-like of shape (n_others, n_features)
        Rows of the same population that it was not fitted on.
    reference : array-like of shape (n_reference, n_features)
        More rows of the population that the attacker holds, none of them in `members` or
        `others`.
    density : {"kernel", "classifier"} or classifier, default="kernel"
        Two kernel density estimates on whitened principal components of both samples; or a
        classifier that tells synthetic rows from the reference, by default a random forest, whose
        log odds are the ratio but for a constant.
    n_components : int, optional
        Principal components for the kernel, by default all up to 8; in [1, n_features].
    bandwidth : float or {"scott", "silverman"}, default="scott"
        Of the kernel, in standard deviations.
    epsilon, delta : float
        What the release claims, for comparison; by default nothing.
    random_state : int, RandomState or None, default=None
        Chooses 5,000 rows of larger samples for the kernel, and seeds the forest.

    Returns
    -------
    SyntheticMembershipResult
        Scores of members and others.

    Raises
    ------
    ValueError
        If rows are not finite numbers, have different features, or a parameter is out of range.

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

    Examples
    --------
    >>> import numpy as np
    >>> from skdpot.audit import density_ratio_membership
    >>> rows = np.random.default_rng(0).normal(size=(600, 3))
    >>> bootstrap = rows[:200][np.random.default_rng(1).integers(200, size=1000)]
    >>> found = density_ratio_membership(bootstrap, rows[:200], rows[200:400], rows[400:])
    >>> found.auc > 0.6
    True
    """
    made = read_rows(synthetic, "synthetic")
    own, foreign, crowd = (
        read_rows(rows, name, made.shape[1])
        for rows, name in ((members, "members"), (others, "others"), (reference, "reference"))
    )
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
    return SyntheticMembershipResult(
        scores[: len(own)],
        scores[len(own) :],
        epsilon=epsilon,
        delta=delta,
        attack=f"density ratio, {density if isinstance(density, str) else type(density).__name__}",
    )


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
    deviations = both.std(axis=0)
    divisors = np.where(deviations > 0, deviations, 1.0)
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
    ratio: np.ndarray = np.nan_to_num(logs[0] - logs[1], nan=0.0)
    return ratio


def _classifier_scores(
    made: np.ndarray, crowd: np.ndarray, asked: np.ndarray, density: Any, rng: np.random.Generator
) -> np.ndarray:
    """Return the log odds that a row is synthetic."""
    if isinstance(density, str):
        if density != "classifier":
            raise ValueError(f"density={density!r} must be 'kernel', 'classifier' or a classifier.")
        seed = int(rng.integers(2**31))
        model: Any = RandomForestClassifier(200, min_samples_leaf=3, random_state=seed)
    elif hasattr(density, "predict_proba"):
        model = clone(density)
    else:
        raise ValueError(
            f"density must be 'kernel', 'classifier' or a classifier with predict_proba, not "
            f"{type(density).__name__}."
        )
    is_made = np.repeat([0, 1], [len(crowd), len(made)])
    odds = model.fit(np.concatenate([crowd, made]), is_made).predict_proba(asked)[:, 1]
    inside = np.clip(odds, 1e-9, 1 - 1e-9)
    logits: np.ndarray = np.log(inside) - np.log1p(-inside)
    return logits
