r"""The attack on noisy rows in random order, by the likelihood of each batch with a record.

A step of the row mechanisms projects a batch of k of the n rows on directions θ_j, adds noise and
sorts the numbers of each direction. The attacker asks whether one of the k numbers of each
direction comes from the candidate a, and the others from the mixture :math:`f_j` of all other
candidates (known rows, and each record of a pair with weight one half):

.. math:: R(a) = \sum_j \log \frac1k \sum_{l=1}^k
          \frac{φ_σ(v_{jl} - ⟨a, θ_j⟩)}{f_j(v_{jl})},

the logarithm of the likelihood of the batch with a, divided by that of one without. A row is in
a batch with probability p = k / n, so that the score of a pair is

.. math:: \sum_{\text{steps}} \log \frac{1 - p + p\,e^{R(\text{first})}}
          {1 - p + p\,e^{R(\text{second})}}.

Sorting does not change a batch of one row: its numbers are one point in as many dimensions as there
are directions. Without noise the numbers are exact, and the row in the batch is found.

Sorted among n noisy numbers, a record is only as visible as in their sum: :math:`\sqrt n` times
weaker than what is charged (`skdpot.audit.canaries`). The sum of squares of the numbers, which
sorting does not change, shows the noise itself.
"""

from collections.abc import Iterator

import numpy as np

from skdpot.audit.audited_fit import AuditedFit
from skdpot.audit.matched_filter import EvidenceSum
from skdpot.ot.flow_problems import ProjectedRows
from skdpot.release.bounds import DataBounds
from skdpot.sampling.row_releases import SmoothedProjections, project_rows

_RESOLUTION = 2.0**-20  # released numbers have single precision: closer values are equal
_CELLS_PER_SIGMA = 16  # of a grid that replaces many points
_FLOOR = 1e-12  # of a density, whose kernels have a peak of 1
_SMALLEST = 1e-300  # number whose logarithm is taken
_SWEEPS = 2  # passes over all steps; the scores of the first sharpen the mixture of the second


def add_rows(evidence: EvidenceSum, audited: AuditedFit) -> None:
    """Add how likely each record is to be among the released projections."""
    releases = [release for release in audited.releases if release.kind == "rows"]
    bounds: DataBounds = releases[0].facts["bounds"]
    noise = float(np.max(releases[0].sigma))
    sigma = max(noise, _RESOLUTION * bounds.radius)
    pairs, n_rows = audited.pairs, len(audited.X) + len(audited.pairs)
    candidates = bounds.to_ball(np.concatenate([pairs.first, pairs.second, audited.X]))
    first_shares = np.full(len(pairs), 0.5)
    batches = SmoothedProjections(tuple(releases)).batches
    for _ in range(_SWEEPS):
        ratios = np.zeros(len(pairs))
        for batch in batches:
            places = project_rows(candidates, batch.directions, bounds.radius) * bounds.radius
            ratios += _likelihood_ratios(batch, places, first_shares, sigma, n_rows)
        first_shares = 1.0 / (1.0 + np.exp(-np.clip(ratios, -30.0, 30.0)))
    evidence.add_scores(ratios)
    if evidence.heads is None:
        return
    rows = bounds.to_ball(np.concatenate([audited.X, pairs.choose(evidence.heads)[0]]))
    for batch in batches:
        # Sorting keeps the sum of squares; that about the mean of all rows hides least.
        exact = project_rows(rows, batch.directions, bounds.radius) * bounds.radius
        middle = exact.mean(axis=1, keepdims=True)
        energy = float(np.sum(np.square(batch.values - middle, dtype=np.float64)))
        hidden = float(np.sum(np.square(exact - middle))) * batch.values.shape[1] / len(rows)
        evidence.check("rows", energy, batch.values.size, noise, hidden)


def _likelihood_ratios(
    batch: ProjectedRows, places: np.ndarray, first_shares: np.ndarray, sigma: float, n_rows: int
) -> np.ndarray:
    """Return the logarithm of the likelihood ratio of each pair, given one batch."""
    m, size = len(first_shares), batch.values.shape[1]
    shares = np.ones(places.shape[1])
    shares[:m], shares[m : 2 * m] = first_shares, 1.0 - first_shares
    present = np.zeros((2, m))
    for kernel, weights in _kernels(batch, places, sigma):
        pairs = kernel[: 2 * m].reshape(2, m, -1)
        # The mixture of all records except those of the pair itself.
        of_pair = np.einsum("sm,smk->mk", shares[: 2 * m].reshape(2, m), pairs)
        others = np.maximum(shares @ kernel - of_pair, 0.0) / max(n_rows - 1, 1)
        ratios = np.einsum("smk,mk->sm", pairs, weights / size / (others + _FLOOR))
        present += np.log(ratios + _SMALLEST)
    if size >= n_rows:
        return present[0] - present[1]
    rate = size / n_rows
    likelihoods = np.logaddexp(np.log1p(-rate), np.log(rate) + present)
    return likelihoods[0] - likelihoods[1]


def _kernels(
    batch: ProjectedRows, places: np.ndarray, sigma: float
) -> Iterator[tuple[np.ndarray, np.ndarray]]:
    """Yield densities (n_candidates, n_points) of the points per direction, and their counts."""
    if batch.values.shape[1] == 1:
        squares = np.sum((batch.values - places) ** 2, axis=0)
        squares -= squares.min()
        yield np.exp(-squares[:, None] / (2.0 * sigma**2)), np.ones(1)
        return
    cell = sigma / _CELLS_PER_SIGMA
    for values, place in zip(batch.values, places, strict=True):
        points, counts = values.astype(np.float64), np.ones(len(values))
        if np.ptp(points) < cell * len(points):  # fewer cells of a fine grid than points
            cells, number = np.unique(np.rint(points / cell), return_counts=True)
            points, counts = cells * cell, number.astype(np.float64)
        yield np.exp(-(((points - place[:, None]) / sigma) ** 2) / 2.0), counts
