"""Noisy moments of rows: the size, mean and covariance of each class, in one release."""

import math
from collections.abc import Iterator
from dataclasses import dataclass, replace
from functools import cached_property
from typing import Any

import numpy as np

from skdpot._utils.validation import SecretStream, encode_labels
from skdpot.exceptions import CalibrationError
from skdpot.privacy.accounting import PrivacyTarget, calibrate
from skdpot.privacy.events import Event, GaussianEvent, NonPrivateEvent
from skdpot.privacy.noise import MAX_S, lattice_noise, noise_lattice, required_bits
from skdpot.release.bounds import BoundsPlan, DataBounds, planned_bounds
from skdpot.release.decoding import class_totals
from skdpot.release.release import Part, Records, Release, Vectors, released

_RADIUS = 2**12  # of the ball, in whole units that rows are cut to
_LAST = 2**11  # what every row has as one more entry: half the radius
_LATTICE = 2.0**-24  # of products, as shares of the squared radius
_DIAGONAL, _OFF_DIAGONAL = 70, 99  # 99 / 70 is just above the root of 2
_SENSITIVITY = _OFF_DIAGONAL * (_RADIUS**2 + _LAST**2) * _LATTICE
_MOST_ROWS, _BLOCK = 2**25, 2**20  # for whole numbers of 64 bits, and for exact products
_FLOOR_OF_NOISE, _FLOOR_OF_SPREAD = 0.2, 1.5e-3  # of variances that are not known


@dataclass(frozen=True, kw_only=True)
class MomentsPlan:
    """The public parameters of one release of moments; `event` covers everything."""

    n_samples: int
    bounds: DataBounds | BoundsPlan
    event: Event

    @property
    def noise(self) -> Any:
        """The part of the event that pays for the moments."""
        return self.event.phases[-1]

    @property
    def sigma(self) -> float:
        """Standard deviation of the noise, in shares of the squared radius; 0 without privacy."""
        return getattr(self.noise, "sigma", 0.0)

    @property
    def lattice(self) -> float:
        """Spacing of the noise."""
        return getattr(self.noise, "lattice", _LATTICE)

    sensitivity = _SENSITIVITY


def plan_moments(
    target: PrivacyTarget, n_samples: int, n_features: int, bounds: DataBounds | int
) -> MomentsPlan:
    """Choose the least noise that meets a target."""
    if n_samples > _MOST_ROWS:
        raise ValueError(f"Moments add up at most {_MOST_ROWS} rows; use a Sketch.")
    limits = planned_bounds(bounds, n_features, target.mu_cap)

    def fit_event(sigma: float) -> Event:
        lattice = noise_lattice(sigma, _LATTICE)
        return limits.before(
            GaussianEvent(sigma=sigma, sensitivity=_SENSITIVITY, lattice=lattice, label="Moments")
        )

    if math.isinf(target.epsilon):
        return MomentsPlan(n_samples=n_samples, bounds=limits, event=NonPrivateEvent())
    event = calibrate(target, fit_event)
    noise = event.phases[-1]
    if noise.sigma / noise.lattice > MAX_S:
        raise CalibrationError("epsilon is too small to learn anything from moments.")
    required_bits(noise.sigma / noise.lattice, noise.mu)  # refuses before any charge
    return MomentsPlan(n_samples=n_samples, bounds=limits, event=event)


def release_moments(
    rows: np.ndarray,
    codes: np.ndarray,
    n_classes: int,
    plan: MomentsPlan,
    bounds: DataBounds,
    stream: SecretStream,
) -> Release:
    r"""Release the sum of :math:`a a^\top` over the rows of each class, with a = (x, c).

    x is the row as a share of the radius of the ball, cut towards zero to multiples of
    2\ :sup:`-12`, and c is 1/2. So one matrix holds the number of rows, their sum and their second
    moments. Its upper triangle is released, the diagonal times 70 and the rest times 99, with equal
    noise on all entries.

    The caller has charged the event, and labels are private. Replacing one row changes the sum by
    :math:`a a^\top - b b^\top` in one class, or by the two parts in two classes. In the first case
    the squared Frobenius norm is :math:`|a|^4 + |b|^4 - 2 (a^\top b)^2`, in the second
    :math:`|a|^4 + |b|^4`, so neither is more than :math:`2 (1 + c^2)^2`. The weighted triangle of a
    symmetric matrix has a norm of at most :math:`99 / \sqrt 2` times that of the matrix. Together
    the sensitivity is :math:`99 (1 + c^2)`. It is attained by orthogonal rows at the surface, up to
    the difference of 99 / 70 and the root of 2, 0.01 %.
    """
    table = np.zeros((n_classes, _n_entries(rows.shape[1])), dtype=np.int64)
    if plan.sigma > 0:
        noise = {"lattice": plan.lattice, "mu": plan.noise.mu}
        table = lattice_noise(plan.sigma, table.shape, stream, **noise)
    factor = round(_LATTICE / plan.lattice)
    for start in range(0, len(rows), _BLOCK):
        units, of = _cut_rows(rows[start : start + _BLOCK], bounds), codes[start : start + _BLOCK]
        for k in range(n_classes):
            some = units[of == k]
            table[k] += _triangle(some.T @ some).astype(np.int64) * factor
    release = Release(
        "moments",
        table * plan.lattice,
        {"bounds": bounds, "n_features": rows.shape[1]},
        sigma=plan.sigma,
        lattice=plan.lattice,
        sensitivity=_SENSITIVITY,
        event=plan.noise,
        linear=_products,
    )
    return replace(release, value=released(release))


def _n_entries(n_features: int) -> int:
    return (n_features + 1) * (n_features + 2) // 2


def _cut_rows(rows: np.ndarray, bounds: DataBounds) -> np.ndarray:
    """Return rows in whole units, with one more entry; in double precision, which is exact."""
    ball = bounds.to_ball(rows).astype(np.float64)
    cut = np.trunc(ball * (_RADIUS * (1 - 1e-9) / bounds.radius))
    return np.column_stack([cut, np.full(len(cut), float(_LAST))])


def _triangle(matrices: np.ndarray) -> np.ndarray:
    """Return the weighted upper triangles of matrices."""
    first, second = np.triu_indices(matrices.shape[-1])
    return matrices[..., first, second] * np.where(first == second, _DIAGONAL, _OFF_DIAGONAL)


def _products(release: Release, records: Records, shares: np.ndarray) -> Iterator[Part]:
    """Yield what rows add to the moments of their classes."""
    rows, codes = records
    units = _cut_rows(rows, release.facts["bounds"])
    own = _triangle(units[:, :, None] * units[:, None, :]) * _LATTICE
    placed = np.zeros((len(own), *release.value.shape))
    placed[np.arange(len(own)), 0 if codes is None else codes] = own
    sigma = float(np.max(release.sigma))
    yield Part(value=release.value.ravel(), sigma=sigma, rows=Vectors(placed.reshape(len(own), -1)))


@dataclass(frozen=True, eq=False)
class NoisyMoments:
    """Released moments of classes, and the Gaussians that they describe."""

    release: Release
    n_samples: int
    classes: np.ndarray | None

    def _seen_by(self, X: Any, y: Any) -> Records:
        """Return rows and the positions of their classes, for audits."""
        return X, None if self.classes is None else encode_labels(y, len(X), self.classes)[0]

    @cached_property
    def sizes(self) -> np.ndarray:
        """Estimated number of rows of each class; they sum to n."""
        noisy = self._matrices[:, -1, -1]
        return class_totals(noisy, self.n_samples)

    @cached_property
    def means(self) -> np.ndarray:
        """Mean of the mapped rows of each class, of shape (n_classes, n_features)."""
        shares = self._matrices[:, :-1, -1] / self.sizes[:, None]
        norms = np.linalg.norm(shares, axis=1, keepdims=True)
        return shares / np.maximum(norms, 1.0) * self.release.facts["bounds"].radius

    @cached_property
    def covariances(self) -> np.ndarray:
        r"""Covariance of the mapped rows of each class, positive definite.

        The difference of a class from the mean covariance is multiplied by the share of its square
        that is not noise (James and Stein 1961). Noise alone has eigenvalues up to
        :math:`2 \sqrt d` times its standard deviation (Wigner), so variances below a fifth of that
        are not known; smaller ones are raised to it, and all to 0.0015 of the total variance.
        """
        radius, d = self.release.facts["bounds"].radius, self.means.shape[1]
        means, shares = self.means / radius, self.sizes / self.n_samples
        moments = self._matrices[:, :-1, :-1] / self.sizes[:, None, None]
        own = moments - means[:, :, None] * means[:, None, :]
        noise = float(np.max(self.release.sigma)) / _OFF_DIAGONAL / self.sizes
        common = np.tensordot(shares, own, axes=1)
        common_noise = float(np.linalg.norm(shares * noise))
        found = []
        for one, deviation in zip(own, noise, strict=True):
            apart = one - common
            squared = float(np.sum(apart**2))
            kept = max(0.0, 1 - (d * deviation) ** 2 / squared) if squared > 0 else 0.0
            edge = 2 * math.sqrt(d) * math.hypot(kept * deviation, common_noise)
            floor = max(_FLOOR_OF_NOISE * edge, _FLOOR_OF_SPREAD * float(np.trace(common)), 1e-12)
            values, vectors = np.linalg.eigh(common + kept * apart)
            found.append((vectors * np.maximum(values, floor)) @ vectors.T)
        return np.stack(found) * radius**2

    @property
    def relative_noise(self) -> float:
        """Error of the means, as a share of the spread of the rows about them."""
        noise = float(np.max(self.release.sigma)) / _OFF_DIAGONAL * (_RADIUS / _LAST) / self.sizes
        error = noise * self.release.facts["bounds"].radius
        shares = self.sizes / self.n_samples
        spread = shares @ np.trace(self.covariances, axis1=1, axis2=2)
        return float(np.sqrt(shares @ error**2 * self.means.shape[1] / spread))

    @cached_property
    def _matrices(self) -> np.ndarray:
        """Noisy sums, symmetric, of (1, x) instead of (c, x), as shares of the radius."""
        size = self.release.facts["n_features"] + 1
        first, second = np.triu_indices(size)
        values = self.release.value / np.where(first == second, _DIAGONAL, _OFF_DIAGONAL)
        values = values * np.where(second == size - 1, _RADIUS / _LAST, 1.0)
        values = values * np.where(first == size - 1, _RADIUS / _LAST, 1.0)
        matrices = np.empty((len(values), size, size))
        matrices[:, first, second] = matrices[:, second, first] = values
        return matrices
