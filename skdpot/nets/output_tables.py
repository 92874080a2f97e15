r"""Outputs of groups: what is compared, how far one record moves it, and private tables of it.

Records are divided into *cells*, which are public. Cells that are to have the same distribution of
outputs form a *stratum*: all groups (demographic parity), or the groups within one class (equalised
odds). What is compared lies in a bounded set whatever the network computes, which bounds the
gradient (`ParityPenalty`).

With the distribution functions :math:`F_c` of the outputs of each cell released, the gradient of
the squared distance between two cells is a *sum over records*: record i of cell a is pulled along
direction θ by :math:`2 (u_i - F_b^{-1}(F_a(u_i)))`, which depends on the record and on what is
public. Ranks couple the records of a batch; tables do not. So records can be sampled by Poisson
coins, and loss and penalty be clipped together.

A threshold for predicted probabilities is read off noisy histograms. A penalty pulls the scores of
groups together, and with them all scores towards each other: few reach one half when the second
class is the rarer one. The threshold selects as many records as belong to the second class. The
first release finds the range of the scores, the second measures their distribution there, and a
third counts the second class unless the classes are public.

References
----------
D. Rodríguez-Vítores, C. Lalanne, J.-M. Loubes, "Learning with differentially private (sliced)
Wasserstein gradients", 2025, theorems 4.1 and A.1.
"""

import math
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass
from functools import partial
from typing import Any, TypeAlias

import numpy as np

from skdpot._utils.validation import SecretStream
from skdpot.ot.slices import CDFTable
from skdpot.privacy.events import Event, GaussianEvent, NonPrivateEvent
from skdpot.privacy.noise import calibrate_lattice, lattice_noise, required_bits
from skdpot.release.gate import Part, Records, Release, of_candidates, pass_gate
from skdpot.release.histogram import binned_rows, count_projections, recommended_bins
from skdpot.release.strategy import Energy, Strategy, best_strategy

_ROUNDED_UP = 1.0 + 1e-12  # also of counts: 0.29 * 100 is a little less than 29
_ALONG = np.ones((1, 1))
_ONE = np.ones(1)


_NEARLY_ALL = np.array([0.01, 0.99])
_MARGIN = 2.0
_NARROWEST = 1e-6  # of the limits: single precision, in which outputs are counted, sees no more


ValuesOf: TypeAlias = Callable[[Any, np.ndarray], np.ndarray]  # of rows, and of their cells
Seen: TypeAlias = Callable[[Records, np.ndarray], tuple[np.ndarray, np.ndarray]]


def _as_they_are(rows: Any, _: np.ndarray) -> np.ndarray:
    return np.asarray(rows)


@dataclass(frozen=True, kw_only=True)
class TableNoise:
    """What is measured of the outputs of each cell, and with how much noise."""

    strategy: Strategy
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
    """Choose the bins of some releases and the noise of each.

    It is enough for a record that changes its cell, too: with the optimised strategies for 16, 32
    and 64 bins that costs no more.
    """
    of_each = mu / math.sqrt(n_releases)
    anywhere = Energy.unlimited(n_projections)
    strategy = best_strategy(recommended_bins(n_records, 1, of_each), anywhere)
    sigma, lattice = 0.0, strategy.lattice
    event: Event = NonPrivateEvent(label=label)
    if math.isfinite(mu):
        moved = strategy.sensitivity(anywhere, conditional=True)
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
    values_of: ValuesOf = _as_they_are  # the outputs of other rows, for audits

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

    def projections(self, values: np.ndarray) -> np.ndarray:
        """Project values, in columns; all cells are measured from one centre."""
        return self.directions @ values.T - self.centres[:, None]

    def pulls(self, projections: np.ndarray, cell: int, others: Sequence[int]) -> np.ndarray:
        """Return the gradients of summed squared distances to other cells, by projections."""
        own, gaps = self.tables[cell], np.empty_like(projections)
        for k, (u, edges, levels) in enumerate(zip(projections, own.edges, own.cdf, strict=True)):
            reached = np.interp(u, edges, levels)
            gaps[k] = len(others) * u
            for other in others:
                gaps[k] -= self.tables[other].quantiles_along(k, reached)
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
    values_of: ValuesOf = _as_they_are,
    seen: Seen | None = None,
    known: np.ndarray | None = None,
) -> OutputTables:
    """Release noisy distribution functions of the outputs of every cell, once.

    They are measured `within` a public range (centres and half widths), by default that of a
    `previous` release, or all that outputs can be.

    One release of a `GaussianEvent` that the caller has charged, under replace-one: the record
    moves one count per direction, in the table of its cell or from there to that of another one, by
    ``strategy.sensitivity(Energy.unlimited(n_projections), conditional=True)`` in all, whatever
    range is binned. The noise lies on a lattice and is drawn before the counts are taken. `seen`
    makes values and cells of the records of an audit, by default by `values_of` and with the cells
    of the fit; where cells are private, it is given what is `known` of them.
    """
    if previous is not None:
        within = previous.range_of_interest(limits)
    centres, half_widths = (np.zeros(len(limits)), limits) if within is None else within
    statistic = noisy_counts(
        values,
        cells,
        len(cell_sizes),
        directions,
        half_widths,
        noise,
        stream,
        centres,
        seen or (lambda records, codes: (values_of(records[0], codes), codes)),
        known,
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
    n_codes: int,
    directions: np.ndarray,
    half_widths: np.ndarray,
    noise: TableNoise,
    stream: SecretStream,
    centres: np.ndarray,
    seen: Seen,
    known: np.ndarray | None,
) -> np.ndarray:
    """Measure the histograms of each part of the records with noise, as in `release_tables`."""
    strategy = noise.strategy
    factor = round(strategy.lattice / noise.lattice)
    shape = (n_codes, len(directions), strategy.n_bins)
    table = (
        lattice_noise(noise.sigma, shape, stream, lattice=noise.lattice, mu=noise.mu)
        if noise.sigma > 0
        else np.zeros(shape, dtype=np.int64)
    )
    values = np.column_stack([values, np.ones(len(values))])  # which moves the projections
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
    """Yield what values add, moved by a constant column."""
    values, codes = seen(records, of_candidates(codes, shares))
    values = np.column_stack([values, np.ones(len(values))])
    return binned_rows(release, (values, codes), shares)
