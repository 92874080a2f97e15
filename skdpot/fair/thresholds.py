"""A private threshold for the predicted probabilities of two classes.

A penalty moves the scores of groups together, and with them all scores: few reach one half if the
second class is the rarer one. The released threshold selects as many records as belong to the
second class. The first release finds the range of the scores, the second their distribution there,
and the third counts the records of the second class, unless the classes are public.
"""

import math
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from functools import partial
from typing import Any

import numpy as np

from skdpot._utils.streams import SecretStream
from skdpot.nets.output_tables import TableNoise, plan_output_tables, release_tables
from skdpot.privacy.events import Event, GaussianEvent
from skdpot.privacy.noise import calibrate_lattice, lattice_noise
from skdpot.release.gate import pass_gate
from skdpot.release.releases import Part, Records, Release, Vectors

_DIRECTION = np.ones((1, 1))  # of a single probability
_LIMIT = np.full(1, 0.5)  # of probabilities less one half
_INSIDE = 1e-6  # distance of a threshold from 0 and 1, so that its logit is finite
_SHARES = {"coarse": 0.2, "fine": 0.65, "count": 0.15}  # of the squared mu


@dataclass(frozen=True, kw_only=True)
class ThresholdNoise:
    """Noise of the releases that a threshold is computed from."""

    coarse: TableNoise
    fine: TableNoise
    count: GaussianEvent | None  # None: the classes are public, or there is no privacy

    @property
    def events(self) -> tuple[Event, ...]:
        """The events to charge."""
        counted = () if self.count is None else (self.count,)
        return (self.coarse.event, self.fine.event, *counted)


def plan_threshold(mu: float, n_samples: int, *, public_classes: bool) -> ThresholdNoise:
    """Divide a privacy parameter between the releases of a threshold.

    The histograms hold all records, whatever their class, so that a replaced record moves one
    count from one bin to another. The number of records of the second class moves by one, and
    not at all if neighbouring data sets have the same classes.
    """
    shares = _SHARES | ({"count": 0.0} if public_classes else {})
    mus = {name: mu * math.sqrt(share / sum(shares.values())) for name, share in shares.items()}
    words = "Range of the outputs, for the threshold"
    coarse = plan_output_tables(mus["coarse"], 1, 1, n_samples, words)
    fine, count = plan_output_tables(mus["fine"], 1, 1, n_samples, "Outputs in that range"), None
    if not (public_classes or math.isinf(mu)):
        noise = calibrate_lattice(mus["count"], 1.0)
        count = GaussianEvent(**vars(noise), label="Records of the second class")
    return ThresholdNoise(coarse=coarse, fine=fine, count=count)


def tuned_threshold(
    probabilities: np.ndarray,
    labels: np.ndarray,
    noise: ThresholdNoise,
    stream: SecretStream,
    probabilities_of: Callable[[Any], np.ndarray] = np.asarray,
) -> float:
    """Release the probability that as many records exceed as belong to the second class.

    For audits, `probabilities_of` maps rows to probabilities.
    """
    n = len(labels)
    release = partial(
        release_tables,
        probabilities[:, np.newaxis] - 0.5,
        np.zeros(n, dtype=np.intp),
        (n,),
        _DIRECTION,
        _LIMIT,
        values_of=lambda rows, _: probabilities_of(rows)[:, np.newaxis] - 0.5,
    )
    fine = release(noise.fine, stream, previous=release(noise.coarse, stream))
    if noise.count is None:
        second = float(labels.sum())
    else:
        second = _noisy_count(labels, noise.count, stream)
    rest = 1.0 - float(np.clip(second, 1.0, n - 1.0)) / n
    cut = fine.tables[0].quantiles_along(0, np.array([rest]))[0] + fine.centres[0]
    return float(np.clip(0.5 + cut, _INSIDE, 1.0 - _INSIDE))


def _noisy_count(labels: np.ndarray, event: GaussianEvent, stream: SecretStream) -> float:
    """Release the number of records of the second class; one record moves it by one."""
    lattice = float(event.lattice or 1.0)
    table = lattice_noise(event.sigma, 1, stream, lattice=lattice, mu=event.mu)
    table += int(labels.sum()) * round(1 / lattice)
    release = Release(
        "class_count",
        table.astype(np.float64) * lattice,
        sigma=event.sigma,
        lattice=lattice,
        sensitivity=event.sensitivity,
        event=event,
        linear=_counted_labels,
    )
    return float(pass_gate(release)[0])


def _counted_labels(release: Release, records: Records, shares: np.ndarray) -> Iterator[Part]:
    """Yield the contributions of labels to their sum."""
    rows = Vectors(np.asarray(records[1], dtype=np.float64)[:, np.newaxis])
    yield Part(value=release.value, sigma=float(np.max(release.sigma)), rows=rows)
