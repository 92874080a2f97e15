"""Where to cut predicted probabilities, read off noisy histograms.

A penalty pulls the scores of groups together, and with them all scores towards each other: few
reach one half when the second class is the rarer one, and the selection rates of groups are then
small numbers with a large ratio. Here as many records are selected as there are of the second
class. The first release finds the range that the scores are in, the second measures their
distribution there, and a third counts the second class unless the classes are public.
"""

import math
from collections.abc import Iterator
from dataclasses import dataclass, replace
from functools import partial

import numpy as np

from skdpot._utils.rng import SecretStream
from skdpot.nets.output_tables import TableNoise, plan_tables, release_tables
from skdpot.privacy.events import Event, GaussianEvent
from skdpot.privacy.lattice_sampler import required_bits
from skdpot.privacy.noise import LatticeNoise, calibrate_lattice, lattice_noise
from skdpot.privacy.recording import Part, Records, Release, Vectors, released

__all__ = ["ThresholdNoise", "plan_threshold", "tuned_threshold"]

_LIMIT = np.full(1, 0.5)  # of probabilities less one half
_DIRECTION = np.ones((1, 1))
_INSIDE = 1e-6
_SHARES = {"coarse": 0.2, "fine": 0.65, "count": 0.15}  # of the squared mu


@dataclass(frozen=True, kw_only=True)
class ThresholdNoise:
    """Noise of the releases that a threshold is read off."""

    coarse: TableNoise
    fine: TableNoise
    count: LatticeNoise | None


def plan_threshold(
    mu: float, n_samples: int, *, public_classes: bool
) -> tuple[ThresholdNoise, tuple[Event, ...]]:
    """Divide a privacy parameter between the releases of a threshold.

    The histograms hold all records, whatever their class, so that a replaced record moves one
    count from one bin to another. The number of records of the second class moves by one, and
    not at all where a neighbouring data set has the same classes.
    """
    shares = _SHARES | ({"count": 0.0} if public_classes else {})
    mus = {name: mu * math.sqrt(share / sum(shares.values())) for name, share in shares.items()}
    coarse, finds = plan_tables(mus["coarse"], 1, 1, n_samples)
    fine, measures = plan_tables(mus["fine"], 1, 1, n_samples)
    finds = replace(finds, label="Range of the outputs, for the threshold")
    measures = replace(measures, label="Outputs in that range")
    if public_classes or math.isinf(mu):
        return ThresholdNoise(coarse=coarse, fine=fine, count=None), (finds, measures)
    count = calibrate_lattice(mus["count"], 1.0)
    required_bits(count.sigma / count.lattice, count.mu)  # refuses before any charge
    counts = GaussianEvent(
        sigma=count.sigma,
        sensitivity=1.0,
        lattice=count.lattice,
        label="Records of the second class",
    )
    return ThresholdNoise(coarse=coarse, fine=fine, count=count), (finds, measures, counts)


def tuned_threshold(
    probabilities: np.ndarray, labels: np.ndarray, noise: ThresholdNoise, stream: SecretStream
) -> float:
    """Release the score that as many records exceed as belong to the second class.

    Privacy
    -------
    The events of `plan_threshold`, which the caller has charged, under replace-one.
    """
    n = len(labels)
    values, together = probabilities[:, None] - 0.5, np.zeros(n, dtype=np.intp)
    release = partial(release_tables, values, together, (n,), _DIRECTION, _LIMIT)
    fine = release(noise.fine, stream, previous=release(noise.coarse, stream))
    if noise.count is None:  # public, or no privacy is promised
        second = float(labels.sum())
    else:
        second = _noisy_count(labels, noise.count, stream)
    rest = 1.0 - float(np.clip(second, 1.0, n - 1.0)) / n
    cut = fine.tables[0].quantiles_along(0, np.array([rest]))[0] + fine.centres[0]
    return float(np.clip(0.5 + cut, _INSIDE, 1.0 - _INSIDE))


def _noisy_count(labels: np.ndarray, noise: LatticeNoise, stream: SecretStream) -> float:
    """Release the number of records of the second class, which one record moves by one."""
    table = lattice_noise(noise.sigma, 1, stream, lattice=noise.lattice, mu=noise.mu)
    table += int(labels.sum()) * round(1 / noise.lattice)
    release = Release(
        "class_count",
        table.astype(np.float64) * noise.lattice,
        sigma=noise.sigma,
        lattice=noise.lattice,
        sensitivity=noise.sensitivity,
        linear=_counted,
    )
    return float(released(release)[0])


def _counted(release: Release, records: Records, shares: np.ndarray) -> Iterator[Part]:
    """Yield what labels add to their sum."""
    rows = Vectors(records[0].astype(np.float64)[:, None])
    yield Part(value=release.value, sigma=float(np.max(release.sigma)), rows=rows)
