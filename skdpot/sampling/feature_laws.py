"""Means and spreads of features, with the errors that privacy noise leaves in them.

Distances between distributions of a feature are those of Wasserstein between distributions of the
same shape: the root of the squared differences of means and of spreads (standard deviations).
"""

import math
from dataclasses import dataclass
from typing import Any

import numpy as np

from skdpot._utils.arrays import FloatArray
from skdpot.privacy.reliability import OutputError, Reliability
from skdpot.release.bounds import DataBounds
from skdpot.release.moments import NoisyMoments
from skdpot.sampling.row_releases import SmoothedProjections

_SHARE = 2.0  # of the squared error in a squared distance: few are then taken for more than noise
_MARGIN = 0.05  # of the range of a feature
_LEAST_VARIANCE = 0.01  # as a share of the largest possible one


@dataclass(frozen=True, eq=False, kw_only=True)
class FeatureLaws:
    """Means and spreads of mapped features, and their standard errors, arrays of one shape.

    The last axis is that of the features. Classes, if any, are the first axis. The `correction` is
    added to a squared distance to other laws, so that it is about that of the rows without noise:
    noise lengthens distances, and a spread that was moved to a usual one shortens them.
    """

    means: FloatArray
    mean_errors: FloatArray
    spreads: FloatArray
    spread_errors: FloatArray
    correction: FloatArray

    @property
    def squared_errors(self) -> FloatArray:
        """Squared distances from the distributions without noise, as expected."""
        squares: FloatArray = self.mean_errors**2 + self.spread_errors**2
        return squares

    def of_class(self, position: int) -> "FeatureLaws":
        """Return the laws of one class."""
        return FeatureLaws(**{name: values[position] for name, values in vars(self).items()})

    def squared_distances(self, means: Any, spreads: Any) -> FloatArray:
        """Return the squared distances to other distributions."""
        squares = (self.means - means) ** 2 + (self.spreads - spreads) ** 2
        return np.maximum(squares + self.correction, 0.0)

    def reliability(self, names: Any, bounds: DataBounds, advice: str) -> Reliability:
        """Compare the distribution of each feature with a uniform one, in the units of the data.

        Without `names`, features are named by their positions.
        """
        if names is None:
            names = [f"feature {j}" for j in range(bounds.n_features)]
        return _compared(
            [f"the distribution of {name}" for name in names],
            self.squared_errors,
            self.squared_distances(0.0, uniform_spread(bounds)),
            "a uniform one in the bounds",
            bounds,
            advice,
            units=bounds.scale,
        )

    def reliability_of_classes(
        self, classes: Any, shares: FloatArray, bounds: DataBounds, advice: str
    ) -> Reliability:
        """Compare the distributions of each class with those of all classes together.

        Errors are root mean squares over features, in the units of the mapped rows.
        """
        means = shares @ self.means
        spreads = np.sqrt(shares @ (self.spreads**2 + (self.means - means) ** 2))
        return _compared(
            [f"the distribution of class {label}" for label in classes],
            self.squared_errors.mean(axis=1),
            self.squared_distances(means, spreads).mean(axis=1),
            "that of all classes together",
            bounds,
            advice,
            units=np.ones(len(self.means)),
        )


def half_width(bounds: DataBounds) -> float:
    """Return half of the range of a mapped feature."""
    return bounds.radius / math.sqrt(bounds.n_features) if bounds.box else bounds.radius


def uniform_spread(bounds: DataBounds) -> float:
    """Return the standard deviation of a mapped feature that is uniform in the box or the ball."""
    d = bounds.n_features
    return bounds.radius / math.sqrt(3 * d if bounds.box else d + 2)


def laws_of_rows(projections: SmoothedProjections) -> FeatureLaws:
    """Estimate means and a common spread of the rows from noisy projections.

    The means are least squares, within the ball. The variance is the mean over directions. Where
    its error is not small, it is moved towards that of uniform rows, so that noise is never taken
    for spread.
    """
    bounds, sigma = projections.bounds, projections.sigma
    d = bounds.n_features
    gram, noise, moments = np.zeros((d, d)), np.zeros((d, d)), np.zeros(d)
    excess, n_directions, n_values = 0.0, 0, 0
    for batch in projections.batches:
        directions, values = (x.astype(np.float64) for x in (batch.directions, batch.values))
        size, products = values.shape[1], directions.T @ directions
        gram += products
        noise += products / size
        moments += directions.T @ values.mean(axis=1)
        excess += float(np.sum(values.var(axis=1) - sigma**2 * (1 - 1 / size)))
        n_directions, n_values = n_directions + len(values), n_values + values.size
    inverse = np.linalg.pinv(gram, hermitian=True)
    means = inverse @ moments
    means *= bounds.radius / max(bounds.radius, float(np.linalg.norm(means)))
    mean_errors = sigma * np.sqrt(np.maximum(np.diag(inverse @ noise @ inverse), 0.0))
    largest, usual = bounds.radius**2 / d, uniform_spread(bounds) ** 2
    measured = min(max(excess / n_directions, 0.0), largest)
    error = math.sqrt((2 * sigma**4 + 4 * sigma**2 * largest) / n_values)
    kept = usual**2 / (usual**2 + error**2)
    variance = max(kept * measured + (1 - kept) * usual, _LEAST_VARIANCE * largest)
    spreads = np.full(d, math.sqrt(variance))
    spread_errors = errors_of_spreads(spreads, math.sqrt(kept) * error, bounds)
    return FeatureLaws(
        means=means,
        mean_errors=mean_errors,
        spreads=spreads,
        spread_errors=spread_errors,
        correction=spread_errors**2 - _SHARE * mean_errors**2,
    )


def start_of_rows(projections: SmoothedProjections) -> tuple[FloatArray, float]:
    """Return location and spread of a Gaussian near the rows; noisy means move to the centre."""
    laws, usual = laws_of_rows(projections), uniform_spread(projections.bounds) ** 2
    return laws.means * usual / (usual + laws.mean_errors**2), float(laws.spreads[0])


def errors_of_spreads(spreads: FloatArray, variance_errors: Any, bounds: DataBounds) -> FloatArray:
    """Return the errors of spreads from those of their squares, at most the largest possible."""
    possible = np.maximum(spreads, half_width(bounds) - spreads)
    errors: FloatArray = np.sqrt(spreads**2 + variance_errors) - spreads
    return np.minimum(errors, possible)


def laws_of_moments(moments: NoisyMoments) -> FeatureLaws:
    """Return means and spreads of the features of each class, with their errors."""
    parts = np.diagonal(moments.covariances, axis1=1, axis2=2) + moments.means**2
    of_means, of_variances = moments.errors
    n_classes = len(moments.class_shares)
    weights = moments.sizes.reshape(n_classes, -1, 1)
    weights = weights / weights.sum(axis=1, keepdims=True)

    def averaged(values: FloatArray, weights: FloatArray) -> FloatArray:
        return np.sum(weights * values.reshape(*weights.shape[:2], -1), axis=1)

    means = averaged(moments.means, weights)
    spreads = np.sqrt(averaged(parts, weights) - means**2)
    variance_errors = np.sqrt(averaged(of_variances**2, weights**2))
    raised = averaged(moments.raised, weights)
    above = spreads - np.sqrt(np.maximum(spreads**2 - raised, 0.0))
    mean_errors = np.sqrt(averaged(of_means**2, weights**2))
    spread_errors = errors_of_spreads(spreads, variance_errors, moments.bounds)
    spread_errors = np.hypot(spread_errors, above)
    return FeatureLaws(
        means=means,
        mean_errors=mean_errors,
        spreads=spreads,
        spread_errors=spread_errors,
        correction=-_SHARE * (mean_errors**2 + spread_errors**2),
    )


def _compared(
    names: list[str],
    squared_errors: FloatArray,
    squared_distances: FloatArray,
    trivial: str,
    bounds: DataBounds,
    advice: str,
    units: FloatArray,
) -> Reliability:
    """Compare squared errors with squared distances to a trivial answer, in mapped units."""
    most = half_width(bounds)
    least = _MARGIN * 2 * math.sqrt(3) * uniform_spread(bounds)
    # An error below the distance of all features or classes together from the trivial answer is
    # good enough for each of them: the rows are then better as a whole.
    margin = max(least, math.sqrt(squared_distances.mean()))
    outputs = tuple(
        OutputError(
            output=name,
            standard_error=min(math.sqrt(error), most) * unit,
            trivial=trivial,
            trivial_error=min(math.sqrt(distance), most) * unit,
            margin=margin * unit,
        )
        for name, error, distance, unit in zip(
            names, squared_errors.tolist(), squared_distances.tolist(), units.tolist(), strict=True
        )
    )
    return Reliability(outputs, advice)
