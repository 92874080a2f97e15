"""Fréchet distance between feature sets, as in FID."""

from dataclasses import dataclass
from typing import Self

import numpy as np
from numpy.typing import ArrayLike

from skdpot.metrics._samples import as_points, check_same_features

__all__ = ["GaussianStatistics", "frechet_distance"]


@dataclass(frozen=True, eq=False)
class GaussianStatistics:
    """Mean and covariance of a set of feature vectors.

    Parameters
    ----------
    mean : ndarray of shape (d,)
        Mean.
    covariance : ndarray of shape (d, d)
        Covariance: symmetric, with no negative eigenvalue (zero ones are welcome).

    Raises
    ------
    ValueError
        If the shapes do not fit, a number is not finite, or the covariance is not one.
    """

    mean: np.ndarray
    covariance: np.ndarray

    def __post_init__(self) -> None:
        """Check shapes and signs once, so that every use may rely on them."""
        mean = np.asarray(self.mean, dtype=np.float64)
        covariance = np.asarray(self.covariance, dtype=np.float64)
        if mean.ndim != 1 or covariance.shape != (mean.size, mean.size):
            raise ValueError(
                f"mean has shape {mean.shape} and covariance {covariance.shape}; they must be "
                "(d,) and (d, d)."
            )
        if not (np.isfinite(mean).all() and np.isfinite(covariance).all()):
            raise ValueError("mean and covariance must be finite.")
        size = np.abs(covariance).max(initial=0.0)
        slack = 1e-6 * size  # single precision is welcome
        if np.abs(covariance - covariance.T).max(initial=0.0) > slack:
            raise ValueError("covariance must be symmetric.")
        if mean.size and np.linalg.eigvalsh(covariance)[0] < -slack * mean.size:
            raise ValueError("covariance must have no negative eigenvalue.")
        object.__setattr__(self, "mean", mean)
        object.__setattr__(self, "covariance", covariance)

    @classmethod
    def of(cls, features: ArrayLike) -> Self:
        """Compute the statistics of features in double precision.

        Parameters
        ----------
        features : array-like of shape (n, d)
            At least two rows. The covariance is divided by n − 1.

        Returns
        -------
        GaussianStatistics
            Their mean and covariance.

        Raises
        ------
        ValueError
            If the features are not finite numbers or fewer than two rows.
        """
        rows = as_points(features, "features")
        if len(rows) < 2:
            raise ValueError(f"A covariance needs two or more rows; {len(rows)} given.")
        centred = rows - rows.mean(axis=0)
        return cls(rows.mean(axis=0), centred.T @ centred / (len(rows) - 1))

    @property
    def mean_squared_norm(self) -> float:
        """Mean squared norm of a feature vector: the scale of every Fréchet distance."""
        return float(self.mean @ self.mean + np.trace(self.covariance))


def frechet_distance(X: ArrayLike | GaussianStatistics, Y: ArrayLike | GaussianStatistics) -> float:
    """Fréchet distance between the Gaussians fitted to two feature sets.

    ``‖m_X − m_Y‖² + tr(C_X + C_Y − 2 (C_X^½ C_Y C_X^½)^½)``: the *squared* Wasserstein-2
    distance of the two Gaussians, which is what the field calls Fréchet distance (FID, when
    the features are those of an Inception network).

    Parameters
    ----------
    X, Y : array-like of shape (n, d), (m, d), or GaussianStatistics
        Features, or statistics computed before, for instance of a fixed reference set.

    Returns
    -------
    float
        The distance, at least 0, in the squared unit of the features.

    Raises
    ------
    ValueError
        If the features are not usable or the dimensions differ.

    Notes
    -----
    Covariances may be singular (features that are constant, fewer rows than features). The
    distance grows as samples shrink, by about tr(C)/n for each side and more when n is near d:
    compare samples of equal size.

    Privacy
    -------
    Both sets are treated as public: the distance is computed from them without noise.

    References
    ----------
    .. [1] D. C. Dowson, B. V. Landau, "The Fréchet distance between multivariate normal
       distributions", Journal of Multivariate Analysis, 1982.
    .. [2] M. Heusel et al., "GANs trained by a two time-scale update rule converge to a local
       Nash equilibrium", NeurIPS 2017.

    Examples
    --------
    >>> import numpy as np
    >>> from skdpot.metrics import GaussianStatistics, frechet_distance
    >>> X = np.random.default_rng(0).normal(size=(500, 4))
    >>> reference = GaussianStatistics.of(X)
    >>> frechet_distance(X + 1.0, reference)
    4.0
    """
    first = X if isinstance(X, GaussianStatistics) else GaussianStatistics.of(X)
    second = Y if isinstance(Y, GaussianStatistics) else GaussianStatistics.of(Y)
    check_same_features(first.mean.size, second.mean.size)
    # With A = C_X^½ and B = C_Y^½ the trace of (A B B A)^½ is the sum of the singular values of
    # A B. Unlike the square roots of eigenvalues of A C_Y A they keep their digits near zero.
    overlap = np.linalg.svd(
        _square_root(first.covariance) @ _square_root(second.covariance), compute_uv=False
    ).sum()
    gap = first.mean - second.mean
    spread = np.trace(first.covariance) + np.trace(second.covariance) - 2.0 * overlap
    return float(gap @ gap + max(spread, 0.0))


def _square_root(covariance: np.ndarray) -> np.ndarray:
    """Return the symmetric square root; eigenvalues below zero are rounding errors."""
    values, vectors = np.linalg.eigh(covariance)
    root: np.ndarray = (vectors * np.sqrt(values.clip(min=0.0))) @ vectors.T
    return root
