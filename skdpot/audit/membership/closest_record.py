"""Membership from synthetic rows by distance: members lie too near to one of them."""

import math
from typing import NamedTuple

import numpy as np
from numpy.typing import ArrayLike
from scipy.stats import norm
from sklearn.neighbors import NearestNeighbors

from skdpot.audit.membership.result import Share, binomial_limits
from skdpot.audit.membership.synthetic_rows import SyntheticMembershipResult, read_rows, scaled

__all__ = [
    "ClosestRecordShare",
    "closest_record_share",
    "distance_to_closest_record",
    "nearest_neighbour_distance_ratio",
]

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
