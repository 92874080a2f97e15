r"""Output tables: released distribution functions of the outputs of each cell along directions.

Let :math:`F_c` be the released distribution functions of the outputs of the cells. The gradient of
the squared distance between two cells is then a *sum over records*: record i of cell a is pulled
along direction θ by :math:`2 (u_i - F_b^{-1}(F_a(u_i)))`, which depends on this record and on the
release. Ranks couple the records of a batch; tables do not. Batches can therefore be Poisson
samples, and loss and penalty can be clipped together.
"""

import math
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass
from functools import partial
from typing import Any, TypeAlias

import numpy as np

from skdpot._utils.streams import SecretStream
from skdpot.ot.slices import CDFTable
from skdpot.privacy.events import Event, GaussianEvent, NonPrivateEvent
from skdpot.privacy.noise import calibrate_lattice, lattice_noise, required_bits
from skdpot.release.gate import pass_gate
from skdpot.release.histogram import binned_rows
from skdpot.release.projection_counts import count_projections
from skdpot.release.releases import Part, Records, Release, of_candidates
from skdpot.release.sketch_plan import recommended_bins
from skdpot.release.strategy import Energy, Strategy, best_strategy

_NEARLY_ALL = np.array([0.01, 0.99])  # levels of the quantiles that the next range contains
_MARGIN = 2.0  # factor on that range, so that outputs can spread again
_NARROWEST = 1e-6  # least half width as a share of the limits, for outputs in single precision

# A map from rows and their cells to the values that are compared.
ValuesOf: TypeAlias = Callable[[Any, np.ndarray], np.ndarray]
# A map from records and their public codes to values and cells.
Seen: TypeAlias = Callable[[Records, np.ndarray], tuple[np.ndarray, np.ndarray]]


def _identity(rows: Any, _: np.ndarray) -> np.ndarray:
    return np.asarray(rows)


@dataclass(frozen=True, kw_only=True)
class TableNoise:
    """The bins of the tables, the noise of each release, and the event of all releases."""

    strategy: Strategy
    sigma: float
    lattice: float
    mu: float
    event: Event


def plan_output_tables(
    mu: float,
    n_releases: int,
    n_projections: int,
    n_records: int,
    label: str = "Outputs of each group, compared while training",
) -> TableNoise:
    """Choose the bins and the noise of several releases, for the privacy parameter `mu` in all.

    The noise also covers a record that changes its cell, which adds no cost with the optimised
    strategies for 16, 32 and 64 bins.
    """
    release_mu = mu / math.sqrt(n_releases)
    anywhere = Energy.unlimited(n_projections)
    strategy = best_strategy(recommended_bins(n_records, 1, release_mu), anywhere)
    sigma, lattice = 0.0, strategy.lattice
    event: Event = NonPrivateEvent(label=label)
    if math.isfinite(mu):
        moved = strategy.sensitivity(anywhere, conditional=True)
        noise = calibrate_lattice(release_mu, moved, data_lattice=lattice)
        sigma, lattice = noise.sigma, noise.lattice
        required_bits(sigma / lattice, mu)  # for all releases; refuses before any charge
        event = GaussianEvent(**vars(noise), n_steps=n_releases, label=label)
    return TableNoise(strategy=strategy, sigma=sigma, lattice=lattice, mu=mu, event=event)


@dataclass(frozen=True, eq=False)
class OutputTables:
    """Released distribution functions of the outputs of each cell."""

    tables: tuple[CDFTable, ...]
    centres: np.ndarray
    values_of: ValuesOf = _identity  # for audits

    @property
    def directions(self) -> np.ndarray:
        """Unit rows, shape (n_projections, k)."""
        return self.tables[0].directions

    def range_of_interest(self, limits: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
        """Return centre and half width of the range that contains nearly all outputs.

        The next release bins this range only, so bins become narrower when a penalty has moved
        outputs together. Outputs beyond the range count in the outermost bins.
        """
        ends = np.stack([table.quantiles(_NEARLY_ALL) for table in self.tables])
        low, high = ends[:, :, 0].min(axis=0), ends[:, :, 1].max(axis=0)
        bins = 2.0 * self.tables[0].half_widths / (self.tables[0].cdf.shape[1] - 1)
        half = _MARGIN * (high - low) / 2.0 + bins
        centres = self.centres + (low + high) / 2.0
        half = np.clip(half, _NARROWEST * limits, limits)
        return np.clip(centres, half - limits, limits - half), half

    def projections(self, values: np.ndarray) -> np.ndarray:
        """Project values and subtract the centre of each direction, (n_projections, n_records)."""
        return self.directions @ values.T - self.centres[:, None]

    def pulls(self, projections: np.ndarray, cell: int, others: Sequence[int]) -> np.ndarray:
        """Return the gradients by projections of the summed squared distances to other cells."""
        table, gaps = self.tables[cell], np.empty_like(projections)
        along = zip(projections, table.edges, table.cdf, strict=True)
        for k, (u, edges, levels) in enumerate(along):
            reached = np.interp(u, edges, levels)
            gaps[k] = len(others) * u
            for compared in others:
                gaps[k] -= self.tables[compared].quantiles_along(k, reached)
        return 2.0 / len(gaps) * gaps


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
    within: tuple[np.ndarray, np.ndarray] | None = None,
    values_of: ValuesOf = _identity,
    seen: Seen | None = None,
    known: np.ndarray | None = None,
) -> OutputTables:
    """Release noisy distribution functions of the outputs of every cell, once.

    The range (centres and half widths) is `within`, by default the range of interest of a
    `previous` release, or the limits of the outputs.

    This is one release of a `GaussianEvent` that the caller has charged, under replace-one. A
    record moves one count per direction, within the table of its cell or to the table of another
    cell, by ``strategy.sensitivity(Energy.unlimited(n_projections), conditional=True)`` in all,
    whatever range is binned. The noise lies on a lattice and is drawn before the counts are taken.
    For audits, `seen` maps records to values and cells, by default with `values_of` and the cells
    of the fit. Where cells are private, the codes that it gets are the public ones, `known`.
    """
    if previous is not None:
        within = previous.range_of_interest(limits)
    centres, half_widths = (np.zeros(len(limits)), limits) if within is None else within
    statistic = noisy_counts(
        values,
        cells,
        n_codes=len(cell_sizes),
        directions=directions,
        centres=centres,
        half_widths=half_widths,
        noise=noise,
        stream=stream,
        seen=seen or (lambda records, codes: (values_of(records[0], codes), codes)),
        known=known,
    )
    return OutputTables(
        tuple(
            CDFTable(directions, half_widths, noise.strategy.decoded(of_cell, n_records))
            for of_cell, n_records in zip(statistic, cell_sizes, strict=True)
        ),
        centres,
        values_of,
    )


def noisy_counts(
    values: np.ndarray,
    codes: np.ndarray,
    *,
    n_codes: int,
    directions: np.ndarray,
    centres: np.ndarray,
    half_widths: np.ndarray,
    noise: TableNoise,
    stream: SecretStream,
    seen: Seen,
    known: np.ndarray | None,
) -> np.ndarray:
    """Release the noisy histograms of the records of each code, as in `release_tables`."""
    strategy = noise.strategy
    factor = round(strategy.lattice / noise.lattice)
    shape = (n_codes, len(directions), strategy.n_bins)
    table = (
        lattice_noise(noise.sigma, shape, stream, lattice=noise.lattice, mu=noise.mu)
        if noise.sigma > 0
        else np.zeros(shape, dtype=np.int64)
    )
    # The appended ones multiply the appended -centres.
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
        sensitivity=strategy.sensitivity(Energy.unlimited(len(directions)), conditional=True),
        event=noise.event,
        linear=partial(_counted, seen, codes if known is None else known),
    )
    return pass_gate(release)


def _counted(
    seen: Seen, codes: np.ndarray, release: Release, records: Records, shares: np.ndarray
) -> Iterable[Part]:
    """Yield the contribution of each record to the counts."""
    values, codes = seen(records, of_candidates(codes, shares))
    values = np.column_stack([values, np.ones(len(values))])
    return binned_rows(release, (values, codes), shares)
