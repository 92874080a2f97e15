"""Private distributions of a network's outputs, and the pull between groups that they give.

With the distribution functions :math:`F_c` of the outputs of each cell released, the gradient of
the squared distance between two cells is a *sum over records*: record i of cell a is pulled
along direction θ by :math:`2 (u_i - F_b^{-1}(F_a(u_i)))`, which depends on the record and on
what is public. Ranks couple the records of a batch and make its members public facts of each
other's terms; tables do not. So records can be sampled by Poisson coins, and loss and penalty be
clipped together.

Where to cut predicted probabilities, read off noisy histograms.

A penalty pulls the scores of groups together, and with them all scores towards each other: few
reach one half when the second class is the rarer one, and the selection rates of groups are then
small numbers with a large ratio. Here as many records are selected as there are of the second
class. The first release finds the range that the scores are in, the second measures their
distribution there, and a third counts the second class unless the classes are public.
"""

import math
from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass
from functools import partial
from typing import Any, TypeAlias

import numpy as np

from skdpot._utils.validation import SecretStream
from skdpot.ot.slices import CDFTable
from skdpot.privacy.events import Event, GaussianEvent, NonPrivateEvent
from skdpot.privacy.noise import calibrate_lattice, lattice_noise, required_bits
from skdpot.release.decoding import SquareRootStrategy, decode_cumulative, square_root_strategy
from skdpot.release.histogram import binned_rows, count_projections, recommended_bins
from skdpot.release.release import Part, Records, Release, Vectors, of_candidates, released

_NEARLY_ALL = np.array([0.01, 0.99])
_MARGIN = 2.0
_FINEST = 8.0
_NARROWEST = 1e-6  # of the limits: single precision, in which outputs are counted, sees no more


ValuesOf: TypeAlias = Callable[[Any], np.ndarray]


@dataclass(frozen=True, kw_only=True)
class TableNoise:
    """What is measured of the outputs of each cell, and with how much noise."""

    strategy: SquareRootStrategy
    sigma: float
    lattice: float
    mu: float
    event: Event


def plan_tables(
    mu: float,
    n_releases: int,
    n_projections: int,
    n_records: int,
    label: str = "Outputs of each group, compared while training",
) -> TableNoise:
    """Choose the bins of some releases and the noise of each."""
    of_each = mu / math.sqrt(n_releases)
    strategy = square_root_strategy(recommended_bins(n_records, 1, of_each))
    sigma, lattice = 0.0, strategy.lattice
    event: Event = NonPrivateEvent(label=label)
    if math.isfinite(mu):
        moved = strategy.sensitivity(n_projections, conditional=False)
        noise = calibrate_lattice(of_each, moved, data_lattice=lattice)
        sigma, lattice = noise.sigma, noise.lattice
        required_bits(sigma / lattice, mu)  # for all of them; refuses before any charge
        event = GaussianEvent(**vars(noise), n_steps=n_releases, label=label)
    return TableNoise(strategy=strategy, sigma=sigma, lattice=lattice, mu=mu, event=event)


@dataclass(frozen=True, eq=False)
class OutputTables:
    """Released distribution functions of the outputs of each cell."""

    tables: tuple[CDFTable, ...]
    centres: np.ndarray
    values_of: ValuesOf = np.asarray  # the outputs of other rows, for audits

    @property
    def directions(self) -> np.ndarray:
        """Unit rows, shape (n_projections, k)."""
        return self.tables[0].directions

    def range_of_interest(self, limits: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
        """Return centre and half width of the range in which nearly all outputs are.

        The next release measures that range only, and so resolves outputs that a penalty has
        squeezed. Outputs beyond count in the outermost bins, so that nothing breaks if the range
        is too narrow; a margin lets outputs spread again.
        """
        ends = np.stack([table.quantiles(_NEARLY_ALL) for table in self.tables])
        low, high = ends[:, :, 0].min(axis=0), ends[:, :, 1].max(axis=0)
        bins = 2.0 * self.tables[0].half_widths / (self.tables[0].cdf.shape[1] - 1)
        half = _MARGIN * (high - low) / 2.0 + bins
        centres = self.centres + (low + high) / 2.0
        half = np.clip(half, _NARROWEST * limits, limits)
        return np.clip(centres, half - limits, limits - half), half

    def pull(self, values: np.ndarray, cell: int, others: Sequence[int]) -> np.ndarray:
        r"""Return the gradients of the summed squared distances to other cells."""
        own = self.tables[cell]
        directions = own.directions
        # All cells are measured from one centre, which differences do not depend on.
        projections = directions @ values.T - self.centres[:, None]
        gaps = np.empty_like(projections)
        for k, (u, edges, levels) in enumerate(zip(projections, own.edges, own.cdf, strict=True)):
            reached = np.interp(u, edges, levels)
            gaps[k] = len(others) * u
            for other in others:
                gaps[k] -= self.tables[other].quantiles_along(k, reached)
        return (2.0 / len(directions)) * (gaps.T @ directions)


def release_tables(
    values: np.ndarray,
    cells: np.ndarray,
    cell_sizes: Sequence[int],
    directions: np.ndarray,
    limits: np.ndarray,
    noise: TableNoise,
    stream: SecretStream,
    *,
    previous: OutputTables | None = None,
    values_of: ValuesOf = np.asarray,
) -> OutputTables:
    """Release noisy distribution functions of the outputs of every cell, once.

    Privacy
    -------
    One release of a `GaussianEvent` that the caller has charged, under replace-one within a
    cell: the record then moves one count a direction in the table of its cell, by
    ``strategy.sensitivity(n_projections, conditional=False)`` in all, whatever range is binned. The
    noise lies on a lattice and is drawn before the counts are taken.
    """
    if previous is None:
        centres, half_widths = np.zeros(len(limits)), limits
    else:
        centres, half_widths = previous.range_of_interest(limits)
    statistic = noisy_counts(
        values, cells, len(cell_sizes), directions, half_widths, noise, stream, centres, values_of
    )
    return OutputTables(
        tuple(
            CDFTable(directions, half_widths, decode_cumulative(of_cell, noise.strategy, n_records))
            for of_cell, n_records in zip(statistic, cell_sizes, strict=True)
        ),
        centres,
        values_of,
    )


def noisy_counts(
    values: np.ndarray,
    codes: np.ndarray,
    n_codes: int,
    directions: np.ndarray,
    half_widths: np.ndarray,
    noise: TableNoise,
    stream: SecretStream,
    centres: np.ndarray | None = None,
    values_of: ValuesOf = np.asarray,
) -> np.ndarray:
    """Measure the histograms of each part of the records along each direction, with noise.

    Privacy
    -------
    One release. Under replace-one within a part it has
    ``strategy.sensitivity(n_projections, conditional=False)``.
    """
    strategy = noise.strategy
    factor = round(strategy.lattice / noise.lattice)
    shape = (n_codes, len(directions), strategy.n_bins)
    table = (
        lattice_noise(noise.sigma, shape, stream, lattice=noise.lattice, mu=noise.mu)
        if noise.sigma > 0
        else np.zeros(shape, dtype=np.int64)
    )
    if centres is not None:  # a constant column moves the projections
        values = np.column_stack([values, np.ones(len(values))])
        directions = np.column_stack([directions, -centres])
    counts = count_projections(
        values, directions, half_widths, strategy.n_bins, codes=codes, n_classes=n_codes
    )
    measured = counts.reshape(shape) @ strategy.integer_matrix.T.astype(np.float64)
    table += measured.astype(np.int64) * factor
    release = Release(
        "table",
        table * noise.lattice,
        {"strategy": strategy, "directions": directions, "half_widths": half_widths},
        sigma=float(noise.sigma),
        lattice=noise.lattice,
        sensitivity=strategy.sensitivity(len(directions), conditional=False),
        event=noise.event,
        linear=partial(_counted, values_of, codes),
    )
    return released(release)


def _counted(
    values_of: ValuesOf, codes: np.ndarray, release: Release, records: Records, shares: np.ndarray
) -> Iterable[Part]:
    """Yield what values add: a constant column moves projections that have a centre."""
    values = values_of(records[0])
    if release.facts["directions"].shape[1] > values.shape[1]:
        values = np.column_stack([values, np.ones(len(values))])
    return binned_rows(release, (values, of_candidates(codes, shares)), shares)


_LIMIT = np.full(1, 0.5)  # of probabilities less one half
_DIRECTION = np.ones((1, 1))
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
    coarse = plan_tables(mus["coarse"], 1, 1, n_samples, words)
    fine, count = plan_tables(mus["fine"], 1, 1, n_samples, "Outputs in that range"), None
    if not (public_classes or math.isinf(mu)):
        noise = calibrate_lattice(mus["count"], 1.0)
        count = GaussianEvent(**vars(noise), label="Records of the second class")
    return ThresholdNoise(coarse=coarse, fine=fine, count=count)


def tuned_threshold(
    probabilities: np.ndarray,
    labels: np.ndarray,
    noise: ThresholdNoise,
    stream: SecretStream,
    probabilities_of: ValuesOf = np.asarray,
) -> float:
    """Release the score that as many records exceed as belong to the second class.

    Privacy
    -------
    The events of `plan_threshold`, which the caller has charged, under replace-one.
    """
    n = len(labels)
    values, together = probabilities[:, None] - 0.5, np.zeros(n, dtype=np.intp)
    given = (values, together, (n,), _DIRECTION, _LIMIT)
    release = partial(
        release_tables, *given, values_of=lambda rows: probabilities_of(rows)[:, None] - 0.5
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
    return float(released(release)[0])


def _counted_labels(release: Release, records: Records, shares: np.ndarray) -> Iterator[Part]:
    """Yield what labels add to their sum."""
    rows = Vectors(np.asarray(records[1], dtype=np.float64)[:, None])
    yield Part(value=release.value, sigma=float(np.max(release.sigma)), rows=rows)
