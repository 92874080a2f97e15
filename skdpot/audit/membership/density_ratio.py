"""Membership from synthetic rows by density: members lie where they are too dense."""

import math
from typing import Any

import numpy as np
from numpy.typing import ArrayLike
from sklearn.base import clone
from sklearn.decomposition import PCA
from sklearn.ensemble import RandomForestClassifier
from sklearn.neighbors import KernelDensity

from skdpot._utils.rng import solver_generator
from skdpot.audit.membership.synthetic_rows import SyntheticMembershipResult, read_rows

__all__ = ["density_ratio_membership"]

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
