"""Noisy moments of rows (size, mean, covariance) per class or part of a class; sums of vectors."""

import math
from collections.abc import Callable, Iterator
from dataclasses import dataclass, replace
from functools import cached_property, partial
from typing import Any

import numpy as np
from sklearn.cluster import KMeans

from skdpot._utils.labels import encode_labels
from skdpot._utils.streams import SecretStream
from skdpot.exceptions import CalibrationError
from skdpot.privacy.calibration import calibrate
from skdpot.privacy.events import ComposedEvent, Event, GaussianEvent, NonPrivateEvent
from skdpot.privacy.noise import (
    MAX_S,
    calibrate_lattice,
    lattice_noise,
    noise_lattice,
    required_bits,
)
from skdpot.privacy.targets import PrivacyTarget
from skdpot.release.bounds import DataBounds
from skdpot.release.decoding import class_totals
from skdpot.release.gate import pass_gate
from skdpot.release.private_bounds import BoundsPlan, planned_bounds
from skdpot.release.releases import Part, Records, Release, of_candidates

_RADIUS = 2**12  # radius of the ball in the whole units that rows are rounded to
_LAST = 2**11  # the last entry that is appended to every row: half the radius
_LATTICE = 2.0**-24  # of products, as a share of the squared radius
_DIAGONAL, _OFF_DIAGONAL = 70, 99  # 99 / 70 is just above the root of 2
_SENSITIVITY = _OFF_DIAGONAL * (_RADIUS**2 + _LAST**2) * _LATTICE
_SHARE_OF_CLASSES = 0.1  # of the squared mu, for the release that finds the parts of classes
_DRAWS = 4000  # of the Gaussian of a class, clustered to find its parts
_MOST_ROWS, _BLOCK = 2**25, 2**20  # limits for sums in 64 bits and for exact products
_FLOOR_OF_NOISE, _FLOOR_OF_SPREAD = 0.2, 1.5e-3  # least variances, see `covariances`
_UNIT = 2.0**-20  # each entry of a vector of a sum is rounded to multiples of this
_FAR = 1e100  # larger entries are clipped to it, so that no square overflows


@dataclass(frozen=True, kw_only=True)
class MomentsPlan:
    """The public parameters of moments; `event` covers all releases together."""

    n_samples: int
    bounds: DataBounds | BoundsPlan
    event: Event
    n_components: int = 1

    @property
    def noises(self) -> tuple[Any, ...]:
        """Event of the moments of classes and, if classes have several parts, of their parts."""
        n_releases = min(self.n_components, 2)
        return (self.event.phases * n_releases)[-n_releases:]

    @property
    def scales(self) -> tuple[float, float]:
        """Noise and sensitivity of the last release, as shares of the squared radius."""
        return getattr(self.noises[-1], "sigma", 0.0), _SENSITIVITY


def plan_moments(
    target: PrivacyTarget,
    n_samples: int,
    n_features: int,
    bounds: DataBounds | int,
    n_components: int = 1,
) -> MomentsPlan:
    """Choose the least noise that meets a target."""
    if n_samples > _MOST_ROWS:
        raise ValueError(f"Moments add up at most {_MOST_ROWS} rows; use a Sketch.")
    limits = planned_bounds(bounds, n_features, target.mu_cap)
    plan = partial(MomentsPlan, n_samples=n_samples, bounds=limits, n_components=n_components)
    if math.isinf(target.epsilon):
        return plan(event=NonPrivateEvent())
    # Noise of the first release, relative to that of the second.
    ratio = math.sqrt(1 / _SHARE_OF_CLASSES - 1)
    labels = {"Moments of classes": ratio, "Moments": 1.0} if n_components > 1 else {"Moments": 1.0}

    def fit_event(sigma: float) -> Event:
        events = [_moments_event(factor * sigma, label) for label, factor in labels.items()]
        return limits.before(ComposedEvent(events=tuple(events)) if events[1:] else events[0])

    planned = plan(event=calibrate(target, fit_event))
    for noise in planned.noises:
        if noise.sigma / noise.lattice > MAX_S:
            raise CalibrationError("epsilon is too small to learn anything from moments.")
        required_bits(noise.sigma / noise.lattice, noise.mu)  # refuses before any charge
    return planned


def _moments_event(sigma: float, label: str) -> GaussianEvent:
    lattice = noise_lattice(sigma, _LATTICE)
    return GaussianEvent(sigma=sigma, sensitivity=_SENSITIVITY, lattice=lattice, label=label)


def release_moments(
    rows: np.ndarray,
    codes: np.ndarray,
    centres: np.ndarray,
    noise: Any,
    bounds: DataBounds,
    stream: SecretStream,
) -> Release:
    r"""Release the sum of :math:`a a^\top` over the rows of each part, with a = (x, c).

    A part consists of the rows of a class that are nearest to one of its `centres`: whole numbers
    of shape (n_classes, n_components, n_features), public or released before.

    x is the row as a share of the radius of the ball, rounded towards zero to multiples of
    2\ :sup:`-12`, and c is 1/2. So one matrix holds the number of rows, their sum and their second
    moments. Its upper triangle is released, the diagonal times 70 and the rest times 99, with equal
    noise on all entries.

    The caller has charged the event, and labels are private. The part of a row depends on this row
    and its label alone: products of whole numbers are exact, in any order. Replacing one row
    changes the sum by :math:`a a^\top - b b^\top` in one part, or by the two terms in two parts.
    In the first case the squared Frobenius norm is :math:`|a|^4 + |b|^4 - 2 (a^\top b)^2`, in the
    second :math:`|a|^4 + |b|^4`, so neither is more than :math:`2 (1 + c^2)^2`. The weighted
    triangle of a symmetric matrix has a norm of at most :math:`99 / \sqrt 2` times that of the
    matrix. Together the sensitivity is :math:`99 (1 + c^2)`. It is attained by orthogonal rows at
    the surface, up to the difference of 99 / 70 and the root of 2, 0.01 %.
    """
    sigma, lattice = getattr(noise, "sigma", 0.0), getattr(noise, "lattice", _LATTICE)
    table = np.zeros((centres[..., 0].size, _n_entries(rows.shape[1])), dtype=np.int64)
    if sigma > 0:
        table = lattice_noise(sigma, table.shape, stream, lattice=lattice, mu=noise.mu)
    factor = round(_LATTICE / lattice)
    for start in range(0, len(rows), _BLOCK):
        units = _cut_rows(rows[start : start + _BLOCK], bounds)
        of = _parts(units, codes[start : start + _BLOCK], centres)
        for k, entries in enumerate(table):
            some = units[of == k]
            entries += _triangle(some.T @ some).astype(np.int64) * factor
    release = Release(
        "moments",
        table * lattice,
        {"bounds": bounds, "centres": centres},
        sigma=sigma,
        lattice=lattice,
        sensitivity=_SENSITIVITY,
        event=noise,
        linear=_products,
    )
    return replace(release, value=pass_gate(release))


def _n_entries(n_features: int) -> int:
    return (n_features + 1) * (n_features + 2) // 2


def _cut_rows(rows: np.ndarray, bounds: DataBounds) -> np.ndarray:
    """Return rows in whole units with the last entry, in double precision, which is exact."""
    ball = bounds.to_ball(rows).astype(np.float64)
    cut = np.trunc(ball * (_RADIUS * (1 - 1e-9) / bounds.radius))
    return np.column_stack([cut, np.full(len(cut), float(_LAST))])


def _parts(units: np.ndarray, codes: np.ndarray, centres: np.ndarray) -> np.ndarray:
    """Return the part of each row: that of the nearest centre of its class."""
    n_components, parts = centres.shape[1], codes.copy()
    for k, of_class in enumerate(centres if n_components > 1 else ()):
        near = units[codes == k, :-1] @ of_class.T - 0.5 * np.sum(of_class**2, axis=1)
        parts[codes == k] = k * n_components + near.argmax(axis=1)
    return parts


def _triangle(matrices: np.ndarray) -> np.ndarray:
    """Return the weighted upper triangles of matrices."""
    first, second = np.triu_indices(matrices.shape[-1])
    return matrices[..., first, second] * np.where(first == second, _DIAGONAL, _OFF_DIAGONAL)


def _products(release: Release, records: Records, shares: np.ndarray) -> Iterator[Part]:
    """Yield the contributions of rows to the moments of their parts."""
    rows, codes = records
    units = _cut_rows(rows, release.facts["bounds"])
    products = _triangle(units[:, :, None] * units[:, None, :]) * _LATTICE
    placed = np.zeros((len(products), *release.value.shape))
    classes = np.zeros(len(products), dtype=int) if codes is None else codes
    placed[np.arange(len(products)), _parts(units, classes, release.facts["centres"])] = products
    yield release.as_part(placed.reshape(len(products), -1))


@dataclass(frozen=True, eq=False)
class NoisyMoments:
    """Released moments of classes, or of parts of each, and the Gaussians that they describe."""

    release: Release
    n_samples: int
    classes: np.ndarray | None

    def _seen_by(self, X: Any, y: Any) -> Records:
        """Return rows and the positions of their classes, for audits."""
        return X, None if self.classes is None else encode_labels(y, len(X), self.classes)[0]

    @cached_property
    def sizes(self) -> np.ndarray:
        """Estimated number of rows of each part; they sum to n."""
        noisy = self._matrices[:, -1, -1]
        return class_totals(noisy, self.n_samples)

    @property
    def class_shares(self) -> np.ndarray:
        """Estimated share of the rows in each class."""
        n_classes = len(self.release.facts["centres"])
        shares: np.ndarray = self.sizes.reshape(n_classes, -1).sum(axis=1) / self.n_samples
        return shares

    def centres(self, n_components: int) -> np.ndarray:
        """Cluster draws of the Gaussian of each class; return the centres in whole units."""
        rng, centres = np.random.default_rng(0), []
        for mean, covariance in zip(self.means, self.covariances, strict=True):
            draws = rng.multivariate_normal(mean, covariance, _DRAWS, method="eigh")
            centres.append(KMeans(n_components, random_state=0).fit(draws).cluster_centers_)
        return np.rint(np.stack(centres) * (_RADIUS / self.bounds.radius))

    @property
    def bounds(self) -> DataBounds:
        """The bounds of the rows."""
        bounds: DataBounds = self.release.facts["bounds"]
        return bounds

    @cached_property
    def means(self) -> np.ndarray:
        """Mean of the mapped rows of each part, of shape (n_parts, n_features)."""
        shares = self._matrices[:, :-1, -1] / self.sizes[:, None]
        norms = np.linalg.norm(shares, axis=1, keepdims=True)
        return shares / np.maximum(norms, 1.0) * self.bounds.radius

    @property
    def covariances(self) -> np.ndarray:
        r"""Covariance of the mapped rows of each part, positive definite.

        The difference of a part from the mean covariance of its class, or of a class from that of
        all, is multiplied by the share of its square that is not noise (James and Stein 1961).
        Noise alone has eigenvalues up to :math:`2 \sqrt d` times its standard deviation (Wigner).
        Variances below a fifth of that cannot be measured and are raised to it; all variances are
        raised to at least 0.0015 of the total variance.
        """
        return self._fitted[0]

    @cached_property
    def _fitted(self) -> tuple[np.ndarray, np.ndarray]:
        """Covariances, and by how much the variances of each part are raised in the mean."""
        radius, d = self.bounds.radius, self.means.shape[1]
        means, shares = self.means / radius, self.sizes / self.n_samples
        moments = self._matrices[:, :-1, :-1] / self.sizes[:, None, None]
        measured = moments - means[:, :, None] * means[:, None, :]
        noise = float(np.max(self.release.sigma)) / _OFF_DIAGONAL / self.sizes
        n_classes, n_components = self.release.facts["centres"].shape[:2]
        groups = np.repeat(np.arange(n_classes), n_components) if n_components > 1 else 0 * shares
        covariances, raised = [], []
        for of_part, deviation, group in zip(measured, noise, groups, strict=True):
            weights = shares * (groups == group) / np.sum(shares[groups == group])
            common = np.tensordot(weights, measured, axes=1)
            apart = of_part - common
            squared = float(np.sum(apart**2))
            kept = max(0.0, 1 - (d * deviation) ** 2 / squared) if squared > 0 else 0.0
            edge = 2 * math.sqrt(d) * math.hypot(kept * deviation, np.linalg.norm(weights * noise))
            floor = max(_FLOOR_OF_NOISE * edge, _FLOOR_OF_SPREAD * float(np.trace(common)), 1e-12)
            values, vectors = np.linalg.eigh(common + kept * apart)
            covariances.append((vectors * np.maximum(values, floor)) @ vectors.T)
            raised.append(float(np.mean(np.maximum(values, floor) - values)))
        return np.stack(covariances) * radius**2, np.array(raised) * radius**2

    @property
    def errors(self) -> tuple[np.ndarray, np.ndarray]:
        """Standard errors of the means and of the variances, of shape (n_parts, n_features).

        They follow from the noise of the sums and, with several parts, of the sizes, to first order
        in the latter. `raised` is a further error of the variances.
        """
        radius, ratio = self.bounds.radius, _RADIUS / _LAST
        noise = float(np.max(self.release.sigma)) / self.sizes[:, None]
        of_sums = noise / _OFF_DIAGONAL * ratio * radius
        of_squares = noise / _DIAGONAL * radius**2
        of_sizes = noise / _DIAGONAL * ratio**2 * (len(self.sizes) > 1)
        squares = np.diagonal(self.covariances, axis1=1, axis2=2) + self.means**2
        means = np.hypot(of_sums, self.means * of_sizes)
        parts = (of_squares, squares * of_sizes, 2 * self.means * means)
        return means, np.sqrt(sum(part**2 for part in parts))

    @property
    def raised(self) -> np.ndarray:
        """By how much the noise raised the variances of each part, (n_parts, 1), in the mean."""
        return self._fitted[1][:, None] * bool(np.any(np.asarray(self.release.sigma) > 0))

    @cached_property
    def _matrices(self) -> np.ndarray:
        """Noisy sums as symmetric matrices, with c rescaled to 1 and x as a share of the radius."""
        size = self.release.facts["centres"].shape[2] + 1
        first, second = np.triu_indices(size)
        values = self.release.value / np.where(first == second, _DIAGONAL, _OFF_DIAGONAL)
        values = values * np.where(second == size - 1, _RADIUS / _LAST, 1.0)
        values = values * np.where(first == size - 1, _RADIUS / _LAST, 1.0)
        matrices = np.empty((len(values), size, size))
        matrices[:, first, second] = matrices[:, second, first] = values
        return matrices


@dataclass(frozen=True, kw_only=True)
class SumNoise:
    """Largest norm of the vectors that records add, and the noise of their sums."""

    radius: float
    sigma: float
    lattice: float
    mu: float
    event: Event

    @property
    def events(self) -> tuple[Event, ...]:
        """The events to charge."""
        return (self.event,)


def plan_sums(mu: float, radius: float, label: str) -> SumNoise:
    """Choose the noise of sums of vectors whose norms are clipped to a radius."""
    sigma, lattice = 0.0, _UNIT
    event: Event = NonPrivateEvent(label=label)
    if math.isfinite(mu):
        noise = calibrate_lattice(mu, 2.0 * radius, data_lattice=_UNIT)
        sigma, lattice = noise.sigma, noise.lattice
        required_bits(sigma / lattice, mu)  # refuses before any charge
        event = GaussianEvent(**vars(noise), label=label)
    return SumNoise(radius=radius, sigma=sigma, lattice=lattice, mu=mu, event=event)


def release_sums(
    vectors: np.ndarray,
    codes: np.ndarray,
    n_codes: int,
    noise: SumNoise,
    stream: SecretStream,
    vectors_of: Callable[..., np.ndarray],
) -> np.ndarray:
    """Release the sum of the vectors of each part of the records, of shape (n_codes, k).

    With ``n_codes=1`` all records are one part, whatever their codes are.

    One release, which the caller has charged. Each vector is shortened to the radius r, its entries
    are rounded towards zero to whole units, and these are added as integers. Under replace-one
    within a part, one sum moves by the difference of two vectors of norm at most r, that is by at
    most 2r. For audits, `vectors_of` computes the vectors of other rows, targets and codes.
    """
    shape = (n_codes, vectors.shape[1])
    total = np.zeros(shape, dtype=np.int64)
    if noise.sigma > 0:
        total = lattice_noise(noise.sigma, shape, stream, lattice=noise.lattice, mu=noise.mu)
    units = _units(vectors, noise.radius)
    part = np.minimum(codes, n_codes - 1)
    sums = [np.bincount(part, column, minlength=n_codes) for column in units.T]
    total += np.stack(sums, axis=1).astype(np.int64) * round(_UNIT / noise.lattice)
    release = Release(
        "sums",
        total * noise.lattice,
        {"radius": noise.radius},
        sigma=noise.sigma,
        lattice=noise.lattice,
        sensitivity=2.0 * noise.radius,
        event=noise.event,
        linear=partial(_summed, vectors_of, codes),
    )
    return np.asarray(pass_gate(release))


def as_finite_rows(vectors: np.ndarray) -> np.ndarray:
    """Clip entries so that no square overflows; a vector that is not finite becomes zero."""
    finite = np.where(np.isfinite(vectors).all(axis=1, keepdims=True), vectors, 0.0)
    return finite.clip(-_FAR, _FAR)


def _units(vectors: np.ndarray, radius: float) -> np.ndarray:
    """Return shortened vectors in whole units."""
    finite = as_finite_rows(vectors)
    norms = np.linalg.norm(finite, axis=1, keepdims=True) / (radius * (1.0 - 1e-9))
    return np.trunc(finite / np.maximum(norms, 1.0) / _UNIT)


def _summed(
    vectors_of: Callable[..., np.ndarray],
    codes: np.ndarray,
    release: Release,
    records: Records,
    shares: np.ndarray,
) -> Iterator[Part]:
    """Yield the contributions of vectors to the sums of their parts."""
    all_codes, n_codes = of_candidates(codes, shares), len(release.value)
    vectors = _units(vectors_of(*records, all_codes), release.facts["radius"]) * _UNIT
    part = np.minimum(all_codes, n_codes - 1)
    rows = (part[:, None, None] == np.arange(n_codes)[:, None]) * vectors[:, None, :]
    yield release.as_part(rows.reshape(len(vectors), -1))
