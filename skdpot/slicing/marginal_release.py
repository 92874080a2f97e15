r"""The two things that touch the rows of a table: noisy marginals, and how far a model is off.

Both are sums over the rows of integers or of multiples of 1/16, so that discrete Gaussian noise
is added on a lattice that holds them exactly. A neighbour replaces one row.

*Marginals.* One row less in one cell, one more in another: the L2 distance of a contingency table
is at most :math:`\sqrt 2`. Tables with noise of scales :math:`\sigma_T` are together one Gaussian
release of :math:`\mu^2 = \sum_T 2/\sigma_T^2`.

*Misfits.* With public predictions :math:`m_T` the misfit of a marginal is
:math:`\sum_c |x_{T,c} - m_{T,c}|`. The replaced row changes two of the counts by one each, so
that the sum changes by at most 2, and S of them by :math:`2 \sqrt S` in L2.

In either case everything but the counts is public or was released before: columns, groupings,
predictions and scales of noise.
"""

import math
from collections.abc import Iterator, Sequence

import numpy as np
from scipy.sparse import csr_array

from skdpot._utils.rng import SecretStream
from skdpot.privacy.noise import lattice_noise, noise_lattice
from skdpot.privacy.recording import Part, Records, Release, Vectors, released
from skdpot.slicing.marginals import FloatArray, IntArray, Marginal, NoisyMarginal

__all__ = [
    "MARGINAL_LATTICE",
    "MARGINAL_SENSITIVITY",
    "misfit_sensitivity",
    "release_marginals",
    "release_misfits",
]

MARGINAL_SENSITIVITY = math.sqrt(2.0)
_PREDICTED = 16  # predictions are rounded to multiples of 1 / 16
MARGINAL_LATTICE = 1.0 / _PREDICTED  # that of the noise divides it


def misfit_sensitivity(n_marginals: int) -> float:
    """Return the L2 sensitivity of the misfits of several marginals, replace-one."""
    return 2.0 * math.sqrt(n_marginals)


def release_marginals(
    codes: IntArray, marginals: Sequence[Marginal], sigmas: FloatArray, stream: SecretStream
) -> tuple[NoisyMarginal, ...]:
    """Count rows in the cells of marginals, with noise.

    Privacy
    -------
    The caller has charged ``sum(2 / sigmas**2)`` to the squared mu. The noise is drawn first.
    """
    scales = [float(sigma) for sigma in sigmas]
    mu = MARGINAL_SENSITIVITY * math.hypot(*(1.0 / sigma for sigma in scales if sigma > 0.0))
    noisy: list[FloatArray] = []
    for marginal, sigma in zip(marginals, scales, strict=True):
        counts = _noise(sigma, marginal.n_cells, mu, stream)
        counts += marginal.counts(codes)
        noisy.append(counts)
    release = Release(
        "marginals",
        tuple(noisy),
        {"marginals": tuple(marginals)},
        sigma=tuple(scales),
        linear=_counted,
    )
    tables = released(release)
    return tuple(map(NoisyMarginal, marginals, tables, scales))


def release_misfits(
    codes: IntArray,
    marginals: Sequence[Marginal],
    predictions: Sequence[FloatArray],
    sigma: float,
    stream: SecretStream,
) -> FloatArray:
    """Return how many rows predicted marginals put wrong, twice, with noise.

    Privacy
    -------
    The caller has charged ``(misfit_sensitivity(n_marginals) / sigma)**2`` to the squared mu.
    """
    mu = misfit_sensitivity(len(marginals)) / sigma if sigma > 0.0 else 0.0
    misfits = _noise(sigma, len(marginals), mu, stream)
    misfits += _exact_misfits(codes, marginals, predictions)
    release = Release(
        "misfits",
        misfits,
        {"marginals": tuple(marginals), "predictions": tuple(predictions)},
        sigma=float(sigma),
        sensitivity=misfit_sensitivity(len(marginals)),
        linear=_misfit,
    )
    noisy: FloatArray = released(release)
    return noisy


def _exact_misfits(
    codes: IntArray, marginals: Sequence[Marginal], predictions: Sequence[FloatArray]
) -> FloatArray:
    """Return what `release_misfits` adds noise to, in multiples of 1 / 16."""
    misfits = np.zeros(len(marginals))
    tables: dict[tuple[int, ...], FloatArray] = {}  # exact, forgotten with this call
    for place, (marginal, prediction) in enumerate(zip(marginals, predictions, strict=True)):
        public = np.round(prediction * _PREDICTED) / _PREDICTED
        if marginal.columns not in tables:
            tables[marginal.columns] = marginal.ungrouped.counts(codes)
        misfits[place] = np.abs(marginal.joined(tables[marginal.columns]) - public).sum()
    return misfits


def _counted(release: Release, records: Records, shares: FloatArray) -> Iterator[Part]:
    """Yield what rows add to each table: one count."""
    (codes,) = records
    sigmas = release.sigma if isinstance(release.sigma, tuple) else ()
    for marginal, counts, sigma in zip(
        release.facts["marginals"], release.value, sigmas, strict=True
    ):
        shape = (len(codes), marginal.n_cells)
        ones = (np.ones(len(codes)), (np.arange(len(codes)), marginal.cells(codes)))
        yield Part(value=counts, sigma=sigma, rows=Vectors(csr_array(ones, shape=shape)))


def _misfit(release: Release, records: Records, shares: FloatArray) -> Iterator[Part]:
    """Yield the misfits of given rows; of single ones absolute values tell nothing."""
    if np.all(shares == 1.0):
        facts = release.facts
        exact = _exact_misfits(records[0], facts["marginals"], facts["predictions"])
        yield Part(value=release.value, sigma=float(np.max(release.sigma)), center=exact)


def _noise(sigma: float, size: int, mu: float, stream: SecretStream) -> FloatArray:
    """Draw noise on a lattice that divides 1 / 16, or none; `mu` is that of the whole release."""
    if sigma == 0.0:
        return np.zeros(size)
    lattice = noise_lattice(sigma, MARGINAL_LATTICE)
    steps = lattice_noise(sigma, size, stream, lattice=lattice, mu=mu)
    return steps.astype(np.float64) * lattice
