"""Finitely many points with masses: what every distance of this layer is between."""

from dataclasses import dataclass

import numpy as np
from numpy.typing import ArrayLike

from skdpot._utils.labels import encode_labels
from skdpot.slicing.transport import point_masses

__all__ = ["DiscreteMeasure", "gaussian_reference", "labelled_measure"]

_LARGEST = 1e150  # the square of a larger number may not be one


@dataclass(frozen=True, eq=False, repr=False)
class DiscreteMeasure:
    """Points of R^d with masses that sum to one, ``sum_i a_i δ(x_i)``.

    Parameters
    ----------
    points : array-like of shape (n_points, n_features)
        Finite positions x_i, copied; equal rows are allowed.
    masses : array-like of shape (n_points,), optional
        Non-negative masses a_i, scaled to sum to one. None means ``1 / n_points`` each, and
        stays None.

    Raises
    ------
    ValueError
        If the points are not a table of finite numbers, or the masses do not fit. No value is
        quoted.

    Privacy
    -------
    Holds what it is given, in the clear; only its repr shows nothing but the shape.

    Examples
    --------
    >>> from skdpot.federated.measures import DiscreteMeasure
    >>> DiscreteMeasure([[0.0, 1.0], [2.0, 3.0]], masses=[1, 3]).weights
    array([0.25, 0.75])
    """

    points: np.ndarray
    masses: np.ndarray | None = None

    def __post_init__(self) -> None:
        """Copy, check and lock the arrays."""
        points = _finite_table(self.points, "points")
        masses = point_masses(self.masses, len(points), "masses")
        points.setflags(write=False)
        object.__setattr__(self, "points", points)
        if masses is not None:
            masses.setflags(write=False)
            object.__setattr__(self, "masses", masses)

    @property
    def n_points(self) -> int:
        """Number of points, those without mass included."""
        return len(self.points)

    @property
    def n_features(self) -> int:
        """Dimension d of the space."""
        return int(self.points.shape[1])

    @property
    def weights(self) -> np.ndarray:
        """Masses as an array of shape (n_points,), also when they are uniform."""
        if self.masses is None:
            return np.full(self.n_points, 1.0 / self.n_points)
        return self.masses

    def __repr__(self) -> str:
        kind = "uniform" if self.masses is None else "weighted"
        return f"DiscreteMeasure({self.n_points} points, {self.n_features} features, {kind})"


def gaussian_reference(
    n_support: int,
    n_features: int,
    *,
    mean: ArrayLike = 0.0,
    scale: float = 1.0,
    rng: np.random.Generator,
) -> DiscreteMeasure:
    """Draw the reference measure γ that the parties of TriangleWad share.

    Parameters
    ----------
    n_support : int
        Number k of points.
    n_features : int
        Dimension of the space.
    mean : float or array-like of shape (n_features,), default=0.0
        Centre of the Gaussian.
    scale : float, default=1.0
        Its standard deviation, the same along every axis; 0 puts all points on the centre.
    rng : numpy.random.Generator
        Draws the points.

    Returns
    -------
    DiscreteMeasure
        k points of equal mass.

    Raises
    ------
    ValueError
        If a size is less than one, or the scale is negative or not finite.
    """
    if n_support < 1 or n_features < 1:
        raise ValueError(
            f"n_support={n_support!r} and n_features={n_features!r} must be at least 1."
        )
    if not 0 <= scale < np.inf:
        raise ValueError(f"scale={scale!r} must be finite and not negative.")
    points = rng.standard_normal((n_support, n_features))
    return DiscreteMeasure(np.asarray(mean, dtype=np.float64) + scale * points)


def labelled_measure(
    X: ArrayLike, y: ArrayLike, *, masses: ArrayLike | None = None, covariance: str = "full"
) -> DiscreteMeasure:
    """Lift labelled rows to a space in which the Euclidean distance also compares labels.

    Every row becomes ``[x; m_y; vec(Σ_y^½)]`` with the mean m_y and the symmetric square root
    of the covariance Σ_y of its class. The squared distance between two lifted rows is
    ``‖x − x'‖² + ‖m_y − m_y'‖² + ‖Σ_y^½ − Σ_y'^½‖²`` (Frobenius norm), so that labels of two
    data sets are compared by how their rows are distributed, not by their names. The last two
    terms are W₂² between the Gaussians of the two classes when the covariances commute, and at
    least that otherwise.

    Parameters
    ----------
    X : array-like of shape (n_rows, n_features)
        Rows.
    y : array-like of shape (n_rows,)
        Their classes.
    masses : array-like of shape (n_rows,), optional
        Masses of the rows, which also weigh the means and covariances; equal by default.
    covariance : {"full", "diagonal"}, default="full"
        "diagonal" takes the standard deviations of the features in place of Σ^½: d numbers in
        place of d². Use it for more than some fifty features.

    Returns
    -------
    DiscreteMeasure
        The rows with ``2 d + d²`` or ``3 d`` features. A class of one row has covariance 0.

    Raises
    ------
    ValueError
        If rows, labels or masses do not fit. No value is quoted.

    Privacy
    -------
    Means and covariances of the classes are written into every row, without noise.

    References
    ----------
    Alvarez-Melis, Fusi, "Geometric dataset distances via optimal transport", NeurIPS 2020;
    Rakotomamonjy, Nadjahi, Ralaivola, "Federated Wasserstein distance", ICLR 2024 (the
    vectorial form).
    """
    if covariance not in ("full", "diagonal"):
        raise ValueError(f"covariance={covariance!r} must be 'full' or 'diagonal'.")
    rows = DiscreteMeasure(np.asarray(X), None if masses is None else np.asarray(masses))
    codes, classes = encode_labels(y, rows.n_points)
    moments = np.stack(
        [
            _moments(rows.points[codes == label], rows.weights[codes == label], covariance)
            for label in range(len(classes))
        ]
    )
    return DiscreteMeasure(np.hstack([rows.points, moments[codes]]), rows.masses)


def _moments(points: np.ndarray, weights: np.ndarray, covariance: str) -> np.ndarray:
    """Return the mean and the root of the covariance of one class as one vector."""
    shares = weights if weights.any() else np.ones(len(points))  # a class may have no mass
    shares = shares / shares.sum()
    mean = shares @ points
    centred = np.sqrt(shares)[:, None] * (points - mean)
    if covariance == "diagonal":
        return np.concatenate([mean, np.linalg.norm(centred, axis=0)])
    # With the singular values s and right vectors V of the centred rows, Σ^½ = V s Vᵀ: the
    # covariance, whose small eigenvalues rounding would turn negative, is never formed.
    _, values, axes = np.linalg.svd(centred, full_matrices=False)
    return np.concatenate([mean, ((axes.T * values) @ axes).ravel()])


def _finite_table(values: ArrayLike, name: str) -> np.ndarray:
    """Return a copy of a table as float64, or an error that quotes no value."""
    try:
        table = np.array(values, dtype=np.float64, order="C")
    except (TypeError, ValueError):
        table = None
    if table is None:  # outside of the handler: its text, which may quote a value, is not chained
        raise ValueError(f"{name} cannot be read as a table of real numbers.")
    if table.ndim != 2 or 0 in table.shape:
        raise ValueError(
            f"{name} has shape {table.shape}; it must be (n_points, n_features), with at least "
            "one of each."
        )
    if not (table.min() >= -_LARGEST and table.max() <= _LARGEST):  # false for NaN too
        raise ValueError(
            f"{name} must be finite, and at most 1e150 in absolute value so that squared "
            "distances are finite too."
        )
    return table
