"""Noisy sums of short vectors, one of each record: means of groups, and second moments."""

import math
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from functools import partial

import numpy as np

from skdpot._utils.validation import SecretStream
from skdpot.privacy.events import Event, GaussianEvent, NonPrivateEvent
from skdpot.privacy.noise import calibrate_lattice, lattice_noise, required_bits
from skdpot.release.release import Part, Records, Release, Vectors, of_candidates, released

_UNIT = 2.0**-20  # that each entry of a vector is rounded to
_FAR = 1e100  # so that no square overflows


@dataclass(frozen=True, kw_only=True)
class SumNoise:
    """How long the vectors are that records add, and the noise of their sums."""

    radius: float
    sigma: float
    lattice: float
    mu: float
    event: Event

    @property
    def events(self) -> tuple[Event, ...]:
        """What is to be charged."""
        return (self.event,)


def plan_sums(mu: float, radius: float, label: str) -> SumNoise:
    """Choose the noise of sums of vectors that are shortened to a radius."""
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

    For one code all records are one part, whatever theirs are.

    One release, which the caller has charged. Each vector is shortened to the radius r and its
    entries are rounded towards zero, to whole units, which are added up as integers. So under
    replace-one within a part, one sum moves by the difference of two vectors of norm at most r: by
    at most 2r. `vectors_of` makes vectors of other rows, targets and codes, for audits.
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
    return np.asarray(released(release))


def _units(vectors: np.ndarray, radius: float) -> np.ndarray:
    """Return shortened vectors in whole units; zero for what is not finite."""
    finite = np.where(np.isfinite(vectors).all(axis=1, keepdims=True), vectors, 0.0)
    finite = finite.clip(-_FAR, _FAR)
    norms = np.linalg.norm(finite, axis=1, keepdims=True) / (radius * (1.0 - 1e-9))
    return np.trunc(finite / np.maximum(norms, 1.0) / _UNIT)


def _summed(
    vectors_of: Callable[..., np.ndarray],
    codes: np.ndarray,
    release: Release,
    records: Records,
    shares: np.ndarray,
) -> Iterator[Part]:
    """Yield what vectors add to the sums of their parts."""
    of, n_codes = of_candidates(codes, shares), len(release.value)
    own = _units(vectors_of(*records, of), release.facts["radius"]) * _UNIT
    part = np.minimum(of, n_codes - 1)
    rows = (part[:, None, None] == np.arange(n_codes)[:, None]) * own[:, None, :]
    sigma = float(np.max(release.sigma))
    yield Part(value=release.value.ravel(), sigma=sigma, rows=Vectors(rows.reshape(len(own), -1)))
