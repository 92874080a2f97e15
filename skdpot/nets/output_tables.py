r"""Private distributions of a network's outputs, and the pull between groups that they give.

With the distribution functions :math:`F_c` of the outputs of each cell released, the gradient of
the squared distance between two cells is a *sum over records*: record i of cell a is pulled
along direction θ by :math:`2 (u_i - F_b^{-1}(F_a(u_i)))`, which depends on the record and on
what is public. Ranks couple the records of a batch and make its members public facts of each
other's terms; tables do not. So records can be sampled by Poisson coins, and loss and penalty be
clipped together.
"""

import math
from collections.abc import Iterable, Sequence
from dataclasses import dataclass

import numpy as np

from skdpot._utils.rng import SecretStream
from skdpot.privacy.events import Event, GaussianEvent, NonPrivateEvent
from skdpot.privacy.lattice_sampler import required_bits
from skdpot.privacy.noise import calibrate_lattice, lattice_noise
from skdpot.privacy.recording import Part, Records, Release, released
from skdpot.slicing.decoding import decode_cumulative
from skdpot.slicing.histogram import binned_rows, count_projections
from skdpot.slicing.rules import recommended_bins
from skdpot.slicing.strategy import SquareRootStrategy, square_root_strategy
from skdpot.slicing.table import CDFTable

__all__ = ["OutputTables", "TableNoise", "noisy_counts", "plan_tables", "release_tables"]

_NEARLY_ALL = np.array([0.01, 0.99])
_MARGIN = 2.0
_FINEST = 8.0
_NARROWEST = 1e-6  # of the limits: single precision, in which outputs are counted, sees no more


@dataclass(frozen=True, kw_only=True)
class TableNoise:
    """What is measured of the outputs of each cell, and with how much noise."""

    strategy: SquareRootStrategy
    sigma: float
    lattice: float
    mu: float


def plan_tables(
    mu: float, n_releases: int, n_slices: int, n_records: int
) -> tuple[TableNoise, Event]:
    """Choose the bins of some releases and the noise of each."""
    of_each = mu / math.sqrt(n_releases)
    strategy = square_root_strategy(recommended_bins(n_records, 1, of_each))
    if math.isinf(mu):
        none = TableNoise(strategy=strategy, sigma=0.0, lattice=strategy.lattice, mu=mu)
        return none, NonPrivateEvent()
    noise = calibrate_lattice(
        of_each,
        strategy.sensitivity(n_slices, conditional=False),
        data_lattice=strategy.lattice,
    )
    required_bits(noise.sigma / noise.lattice, mu)  # for all of them; refuses before any charge
    event = GaussianEvent(
        sigma=noise.sigma,
        sensitivity=noise.sensitivity,
        lattice=noise.lattice,
        n_steps=n_releases,
        label="Outputs of each group, compared while training",
    )
    planned = TableNoise(strategy=strategy, sigma=noise.sigma, lattice=noise.lattice, mu=mu)
    return planned, event


@dataclass(frozen=True, eq=False)
class OutputTables:
    """Released distribution functions of the outputs of each cell."""

    tables: tuple[CDFTable, ...]
    centres: np.ndarray

    @property
    def directions(self) -> np.ndarray:
        """Unit rows, shape (n_slices, k)."""
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
        pulled: np.ndarray = (2.0 / len(directions)) * (gaps.T @ directions)
        return pulled


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
) -> OutputTables:
    """Release noisy distribution functions of the outputs of every cell, once.

    Privacy
    -------
    One release of a `GaussianEvent` that the caller has charged, under replace-one within a
    cell: the record then moves one count a direction in the table of its cell, by
    ``strategy.sensitivity(n_slices, conditional=False)`` in all, whatever range is binned. The
    noise lies on a lattice and is drawn before the counts are taken.
    """
    if previous is None:
        centres, half_widths = np.zeros(len(limits)), limits
    else:
        centres, half_widths = previous.range_of_interest(limits)
    statistic = noisy_counts(
        values, cells, len(cell_sizes), directions, half_widths, noise, stream, centres=centres
    )
    return OutputTables(
        tuple(
            CDFTable(directions, half_widths, decode_cumulative(of_cell, noise.strategy, n_records))
            for of_cell, n_records in zip(statistic, cell_sizes, strict=True)
        ),
        centres,
    )


def noisy_counts(
    values: np.ndarray,
    codes: np.ndarray,
    n_codes: int,
    directions: np.ndarray,
    half_widths: np.ndarray,
    noise: TableNoise,
    stream: SecretStream,
    *,
    centres: np.ndarray | None = None,
) -> np.ndarray:
    """Measure the histograms of each part of the records along each direction, with noise.

    Privacy
    -------
    One release. Under replace-one within a part it has
    ``strategy.sensitivity(n_slices, conditional=False)``.
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
        linear=_counted,
    )
    statistic: np.ndarray = released(release)
    return statistic


def _counted(release: Release, records: Records, shares: np.ndarray) -> Iterable[Part]:
    """Yield what values add: a constant column moves projections that have a centre."""
    values, codes = records
    if release.facts["directions"].shape[1] > values.shape[1]:
        values = np.column_stack([values, np.ones(len(values))])
    return binned_rows(release, (values, codes), shares)
