"""TODO: thresholds."""

import math
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field, replace
from functools import partial
from typing import Any

import numpy as np

from skdpot._utils.validation import SecretStream
from skdpot.nets.cells import Cells
from skdpot.nets.output_tables import (
    Seen,
    TableNoise,
    plan_output_tables,
    release_tables,
)
from skdpot.ot.slices import CDFTable
from skdpot.privacy.events import Event, GaussianEvent
from skdpot.privacy.noise import calibrate_lattice, lattice_noise
from skdpot.release.gate import Part, Records, Release, Vectors, pass_gate

_TARGET_BINS = 5


_LIMIT = np.full(1, 0.5)  # of probabilities less one half
_DIRECTION = np.ones((1, 1))
_TARGET_LIMIT = np.ones(1)  # targets are mapped to [-1, 1]
_INSIDE = 1e-6
_SHARES = {"coarse": 0.2, "fine": 0.65, "count": 0.15}  # of the squared mu


@dataclass(frozen=True, kw_only=True)
class ThresholdNoise:
    """Noise of the releases that a threshold is read off."""

    coarse: TableNoise
    fine: TableNoise
    count: GaussianEvent | None

    @property
    def events(self) -> tuple[Event, ...]:
        """What is to be charged."""
        counted = () if self.count is None else (self.count,)
        return (self.coarse.event, self.fine.event, *counted)


def plan_threshold(mu: float, n_samples: int, *, public_classes: bool) -> ThresholdNoise:
    """Divide a privacy parameter between the releases of a threshold.

    The histograms hold all records, whatever their class, so that a replaced record moves one
    count from one bin to another. The number of records of the second class moves by one, and
    not at all where a neighbouring data set has the same classes.
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
    """Release the score that as many records exceed as belong to the second class."""
    n = len(labels)
    values, together = probabilities[:, None] - 0.5, np.zeros(n, dtype=np.intp)
    given = (values, together, (n,), _DIRECTION, _LIMIT)
    release = partial(
        release_tables, *given, values_of=lambda rows, _: probabilities_of(rows)[:, None] - 0.5
    )
    fine = release(noise.fine, stream, previous=release(noise.coarse, stream))
    if noise.count is None:  # public, or no privacy is promised
        second = float(labels.sum())
    else:
        second = _noisy_count(labels, noise.count, stream)
    rest = 1.0 - float(np.clip(second, 1.0, n - 1.0)) / n
    cut = fine.tables[0].quantiles_along(0, np.array([rest]))[0] + fine.centres[0]
    return float(np.clip(0.5 + cut, _INSIDE, 1.0 - _INSIDE))


def _noisy_count(labels: np.ndarray, event: GaussianEvent, stream: SecretStream) -> float:
    """Release the number of records of the second class, which one record moves by one."""
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
    """Yield what labels add to their sum."""
    rows = Vectors(np.asarray(records[1], dtype=np.float64)[:, None])
    yield Part(value=release.value, sigma=float(np.max(release.sigma)), rows=rows)


@dataclass(frozen=True, eq=False)
class BinnedCells(Cells):
    """Groups divided by bins of a private target: whose outputs are alike given the target.

    `codes` are the groups, which are public. In which bin a record is is private; sizes of cells
    are estimates, and edges and sizes follow from one release of the targets of each group. What
    counts records by cell pays for a record that changes its bin, and what a record adds depends on
    the bin of its own target.
    """

    edges: np.ndarray = field(default_factory=lambda: np.zeros(0))  # between bins
    n_groups: int = 1

    def codes_of(self, targets: np.ndarray, codes: np.ndarray) -> np.ndarray:
        """Return the cells of records, given their groups, or cells of the same groups."""
        bins = np.searchsorted(self.edges, np.asarray(targets)[:, 0], side="right")
        return (bins * self.n_groups + codes % self.n_groups).astype(np.intp)


def in_a_bin(cells: Cells) -> Cells:
    """Return what the cells of one bin are like, about."""
    sizes = tuple(size // _TARGET_BINS for size in cells.sizes)
    return replace(cells, sizes=sizes, names=tuple(f"{n}, in a bin of y" for n in cells.names))


def plan_target_bins(mu: float, cells: Cells) -> TableNoise:
    """Plan the release of the distribution of the targets of each group: its range, then itself."""
    return plan_output_tables(
        mu, 2, 1, max(1, min(cells.sizes)), "Targets of each group, for their bins"
    )


def release_target_bins(
    targets: np.ndarray, cells: Cells, noise: TableNoise, stream: SecretStream
) -> BinnedCells:
    """Divide groups by quantiles of their targets in [-1, 1], (n, 1); the caller has charged."""
    given = (targets, cells.codes, cells.sizes, _DIRECTION, _TARGET_LIMIT, noise, stream)
    seen: Seen = lambda records, codes: (np.asarray(records[1], dtype=np.float64), codes)  # noqa: E731
    tables = release_tables(*given, previous=release_tables(*given, seen=seen), seen=seen)
    sizes, first = np.array(cells.sizes, dtype=np.float64), tables.tables[0]
    pooled = sizes @ np.array([table.cdf[0] for table in tables.tables]) / sizes.sum()
    of_all = CDFTable(_DIRECTION, first.half_widths, pooled[None])
    inner = of_all.quantiles_along(0, np.arange(1, _TARGET_BINS) / _TARGET_BINS)
    width = first.edges[0, 1] - first.edges[0, 0]
    inner = inner[np.diff(inner, prepend=-np.inf) >= width]
    above = [np.concatenate([[0.0], table.evaluate(inner)[0], [1.0]]) for table in tables.tables]
    found = np.maximum(np.rint(np.diff(above, axis=1).T * sizes), 1.0)  # (n_bins, n_groups)
    edges, n_groups = inner + tables.centres[0], len(sizes)
    return BinnedCells(
        cells.codes,
        tuple(found.astype(int).ravel().tolist()),
        tuple(tuple(range(k, k + n_groups)) for k in range(0, found.size, n_groups)),
        edges=edges,
        n_groups=n_groups,
    )
