"""Discrete measures: finitely many points with masses."""

from dataclasses import dataclass

import numpy as np
from numpy.typing import ArrayLike

from skdpot._utils.arguments import check_count, check_real
from skdpot._utils.finite import as_points
from skdpot._utils.labels import encode_labels
from skdpot.ot.transport import point_masses


@dataclass(frozen=True, eq=False, repr=False)
class DiscreteMeasure:
    """Points of R^d with masses that sum to one, ``sum_i a_i δ(x_i)``; the repr shows no point."""

    points: np.ndarray
    masses: np.ndarray | None = None

    def __post_init__(self) -> None:
        """Copy, check and lock the arrays."""
        points = np.ascontiguousarray(as_points(self.points, "points"))
        masses = point_masses(self.masses, len(points), "masses")
        points.setflags(write=False)
        object.__setattr__(self, "points", points)
        if masses is not None:
            masses.setflags(write=False)
            object.__setattr__(self, "masses", masses)

    @property
    def n_points(self) -> int:
        """Number of points, including points without mass."""
        return len(self.points)

    @property
    def n_features(self) -> int:
        """Dimension d of the space."""
        return int(self.points.shape[1])

    @property
    def weights(self) -> np.ndarray:
        """Masses as an array of shape (n_points,), uniform ones included."""
        if self.masses is None:
            return np.full(self.n_points, 1.0 / self.n_points)
        return self.masses

    def __repr__(self) -> str:
        kind = "uniform" if self.masses is None else "weighted"
        return f"DiscreteMeasure({self.n_points} points, {self.n_features} features, {kind})"


def weights_of(masses: ArrayLike | None, size: int, name: str = "masses") -> np.ndarray:
    """Return masses that sum to one; uniform masses for None."""
    weights = point_masses(masses, size, name)
    return np.full(size, 1.0 / size) if weights is None else weights


def gaussian_reference(
    n_support: int,
    n_features: int,
    *,
    mean: ArrayLike = 0.0,
    scale: float = 1.0,
    rng: np.random.Generator,
) -> DiscreteMeasure:
    """Draw the reference measure γ that the parties of TriangleWad share."""
    shape = check_count(n_support, "n_support"), check_count(n_features, "n_features")
    spread = check_real(scale, "scale") * rng.standard_normal(shape)
    return DiscreteMeasure(np.asarray(mean, dtype=np.float64) + spread)


def labelled_measure(
    X: ArrayLike, y: ArrayLike, *, masses: ArrayLike | None = None, covariance: str = "full"
) -> DiscreteMeasure:
    """Lift labelled rows to a space in which the Euclidean distance also compares labels.

    Every row becomes ``[x; m_y; vec(Σ_y^½)]`` with the mean m_y and the symmetric square root
    of the covariance Σ_y of its class. The squared distance between two lifted rows is
    ``‖x − x'‖² + ‖m_y − m_y'‖² + ‖Σ_y^½ − Σ_y'^½‖²`` (Frobenius norm), so that labels of two
    data sets are compared by how their rows are distributed, not by their names. The last two
    terms are W₂² between the Gaussians of the two classes when the covariances commute, and at
    least that otherwise. Means and covariances are written into every row, without noise.

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
    # With the singular values s and right vectors V of the centred rows, Σ^½ = V s Vᵀ. Forming the
    # covariance would make small eigenvalues negative by rounding.
    _, values, axes = np.linalg.svd(centred, full_matrices=False)
    return np.concatenate([mean, ((axes.T * values) @ axes).ravel()])
