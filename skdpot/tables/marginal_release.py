r"""The noisy contingency tables of a fit, and noisy misfits of predicted ones.

Counts and misfits are sums over rows of integers or of multiples of 1/16, so the discrete Gaussian
noise lies on a lattice that holds them exactly. A neighbour replaces one row.

*Marginals.* One row less in one cell, one more in another: the L2 distance of a contingency table
is at most :math:`\sqrt 2`. Tables with noise of scales :math:`\sigma_T` are together one Gaussian
release of :math:`\mu^2 = \sum_T 2/\sigma_T^2`.

*Misfits.* With public predictions :math:`m_T` the misfit of a marginal is
:math:`\sum_c |x_{T,c} - m_{T,c}|`. The replaced row changes two of the counts by one each, so
the sum changes by at most 2. From the misfit of three columns the largest misfit of their pairs,
with the predictions that :math:`m_T` implies, is subtracted. Each of these changes by at most 2 and
so does their maximum: the difference changes by at most 4. S pairs and R triples change by
:math:`\sqrt{4 S + 16 R}` in L2.

Rows may have weights that are multiples of 1/16. If the neighbour replaces all rows of a person,
with a total weight of at most w, both bounds are multiplied by w (`skdpot.release.contributions`).

Everything but the counts is public or was released before: columns, groupings, predictions and
scales of noise.
"""

import math
from collections.abc import Iterator, Sequence
from dataclasses import replace

import numpy as np
from scipy.sparse import csr_array

from skdpot._utils.arrays import FloatArray
from skdpot._utils.streams import SecretStream
from skdpot.privacy.events import Event
from skdpot.privacy.noise import lattice_noise, noise_lattice
from skdpot.release.gate import pass_gate
from skdpot.release.releases import Part, Records, Release, Vectors
from skdpot.tables.contingency import (
    PREDICTED,
    CountableRows,
    Marginal,
    NoisyMarginal,
    exact_counts,
    exact_misfits,
)

MARGINAL_SENSITIVITY = math.sqrt(2.0)  # one row less in one cell, one more in another
MARGINAL_LATTICE = 1.0 / PREDICTED  # the lattice of the noise divides it


def largest_change(marginal: Marginal) -> float:
    """Return the largest change of a misfit by one row: 2 for pairs, 4 for triples."""
    return 2.0 if len(marginal.columns) < 3 else 4.0


def misfit_sensitivity(marginals: Sequence[Marginal]) -> float:
    """Return the L2 sensitivity of the misfits of several marginals, replace-one."""
    return math.hypot(*map(largest_change, marginals))


def release_marginals(
    rows: CountableRows,
    marginals: Sequence[Marginal],
    sigmas: FloatArray,
    stream: SecretStream,
    event: Event,
    most: float = 1.0,
) -> Release:
    """Count rows in the cells of marginals, or add up their weights, with noise.

    Privacy
    -------
    The caller has charged `event`, of ``sum(2 * most**2 / sigmas**2)`` squared mu, where `most` is
    the largest total weight of the rows of one person. The noise is drawn before rows are counted.
    """
    scales = [float(sigma) for sigma in sigmas]
    mu = most * MARGINAL_SENSITIVITY * math.hypot(*(1.0 / sigma for sigma in scales if sigma > 0.0))
    noise = [
        _draw_table_noise(s, m.n_cells, mu, stream) for m, s in zip(marginals, scales, strict=True)
    ]
    exact = exact_counts(rows, marginals)
    counts = map(np.add, noise, exact)
    release = release_of(list(map(NoisyMarginal, marginals, counts, scales)), event, most)
    return replace(release, value=pass_gate(release))


def release_of(tables: Sequence[NoisyMarginal], event: Event, most: float = 1.0) -> Release:
    """Return the release of contingency tables that have their noise already."""
    return Release(
        "marginals",
        tuple(noisy.counts for noisy in tables),
        {"marginals": tuple(noisy.marginal for noisy in tables)},
        sigma=tuple(noisy.sigma for noisy in tables),
        sensitivity=most * MARGINAL_SENSITIVITY,
        event=event,
        linear=_counts_of_records,
    )


def tables_of(release: Release) -> tuple[NoisyMarginal, ...]:
    """Return the contingency tables of a release."""
    sigmas = release.sigma if isinstance(release.sigma, tuple) else ()
    return tuple(map(NoisyMarginal, release.facts["marginals"], release.value, sigmas))


def release_misfits(
    rows: CountableRows,
    marginals: Sequence[Marginal],
    predictions: Sequence[FloatArray],
    sigma: float,
    stream: SecretStream,
    event: Event,
    most: float = 1.0,
) -> FloatArray:
    """Return noisy misfits: twice the number of rows that each predicted marginal misplaces.

    Privacy
    -------
    The caller has charged `event`, of ``(sensitivity / sigma)**2`` squared mu, where the
    sensitivity is ``most * misfit_sensitivity(marginals)``.
    """
    sensitivity = most * misfit_sensitivity(marginals)
    mu = sensitivity / sigma if sigma > 0.0 else 0.0
    misfits = _draw_table_noise(sigma, len(marginals), mu, stream)
    misfits += exact_misfits(rows, marginals, predictions)
    release = Release(
        "misfits",
        misfits,
        {"marginals": tuple(marginals), "predictions": tuple(predictions)},
        sigma=float(sigma),
        sensitivity=sensitivity,
        event=event,
        linear=_misfits_of_records,
    )
    return pass_gate(release)


def _counts_of_records(release: Release, records: Records, shares: FloatArray) -> Iterator[Part]:
    """Yield the contribution of each row to each table, which is one count."""
    codes = records[0]
    rows = np.arange(len(codes))
    for noisy in tables_of(release):
        ones = (np.ones(len(codes)), (rows, noisy.marginal.cells(codes)))
        added = csr_array(ones, shape=(len(codes), noisy.marginal.n_cells))
        yield Part(value=noisy.counts, sigma=noisy.sigma, rows=Vectors(added))


def _misfits_of_records(release: Release, records: Records, shares: FloatArray) -> Iterator[Part]:
    """Yield the exact misfits of all rows; there is no contribution per row."""
    if np.all(shares == 1.0):
        facts = release.facts
        exact = exact_misfits(records[0], facts["marginals"], facts["predictions"])
        yield Part(value=release.value, sigma=float(np.max(release.sigma)), center=exact)


def _draw_table_noise(sigma: float, size: int, mu: float, stream: SecretStream) -> FloatArray:
    """Draw noise on a lattice that divides 1 / 16; `mu` is that of the whole release."""
    if sigma == 0.0:
        return np.zeros(size)
    lattice = noise_lattice(sigma, MARGINAL_LATTICE)
    steps = lattice_noise(sigma, size, stream, lattice=lattice, mu=mu)
    return steps.astype(np.float64) * lattice
