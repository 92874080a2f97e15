r"""Sums of clipped gradients that are chosen where the outputs are.

Every loss of the outputs :math:`o_i` of a network has the gradient :math:`J_i^\top v_i`, with the
Jacobian :math:`J_i` of record i by all parameters and the loss' gradient :math:`v_i` by
:math:`o_i`. All that clipping has to know of :math:`J_i` is the small Gram matrix
:math:`G_i = J_i J_i^\top`:

.. math:: \|J_i^\top v_i\| = \sqrt{v_i^\top G_i v_i}, \qquad
          \|J_i\|_2 = \sqrt{\lambda_\max(G_i)}.

So one pass that computes Jacobians serves any number of losses and penalties, each clipped in its
own way, by vectors of length k. Where outputs are many, as those of an autoencoder, the loss is the
one output. What is clipped behind the network, such as probabilities
:math:`p(o_i)` with the k x k Jacobian :math:`D_i`, has the Gram matrix
:math:`D_i G_i D_i^\top`, and its vectors pull back as :math:`D_i^\top w_i`.
"""

# Why one part in a million is enough room for rounding
# ------------------------------------------------------
# Let u = 2**-53, P the number of parameters, m the batch size. Networks of single precision give
# factors of which all products are exact in double precision; from there on all is double.
#
# 1. Gram matrices: |error of G_rs| <= (P + 2) u sqrt(G_rr G_ss), by Cauchy and Schwarz.
# 2. Norms: the terms of v' G v may cancel, with errors of up to (P + 2k) u b**2, where
#    b = sum_r |v_r| sqrt(G_rr) is what the norm is without cancellation. `shares_of_vectors` adds
#    _CANCELLED * b**2 before the root, more than that for P < 9e5 and never less than the rest, so
#    that the norm that it divides by is not below the true one (layers that are wider than that
#    sum their products in blocks, with errors far below this bound).
# 3. What a record adds to the sum: J' c is formed with errors of at most 2 k u b(c). After 2.
#    b(c) <= clip / sqrt(_CANCELLED) = 1e5 clip, so that for k = 20 these are below 1e-9 clip.
# 4. Sums over m records in chunks of at most 2048: errors of at most u (2048 + m / 2048) times
#    the sum of the norms, m clip: for m = 1e6 below 3e-7 clip in all, for both neighbours
#    together below 6e-7 clip. (Worst cases: they are orders of magnitude smaller in practice.)
#
# 5. Underflow: factors are 0 or between 1e-60 and 1e60 (those of single precision more closely),
#    so that Gram matrices neither underflow nor overflow. What underflows in v' G v is below
#    5e-324 |v|, and never above _CANCELLED * b**2 unless |v| < 1e-73, when it is below 1e-390. What
#    underflows in b**2 belongs to norms below 1e-153. Clips from 1e-30 to 1e30 are far from either;
#    what overflows has an infinite norm, of which nothing is left.
#
# 2e-9 + 6e-7 is below the 2e-6 clip that _INSIDE leaves free between two neighbours. Vectors
# that are shortened by `shares_of_jacobians` have lengths |w_i| that sum to as much as the bound
# they belong to, so that 4. is the same share of it.

import math
from collections.abc import Callable

import torch
from torch import nn

from skdpot.nets.per_sample import (
    ChunkJacobians,
    Cotangents,
    chain_of_layers,
    full_precision,
    record_jacobians,
    zero_sums,
)

__all__ = [
    "ClippedVectors",
    "clipped_gradient_sum",
    "pulled_back_sum",
    "shares_of_jacobians",
    "shares_of_vectors",
]

ClippedVectors = Callable[[torch.Tensor, torch.Tensor, slice], torch.Tensor]

_INSIDE = 1.0 - 1e-6
_CANCELLED = 1e-10

_FIRST_CHUNK = 16
_LARGEST_CHUNK = 2048  # beyond, arrays leave the cache and nothing is gained
_NUMBERS = 2**22  # to be in memory at the same time


def clipped_gradient_sum(
    network: nn.Module,
    rows: torch.Tensor,
    output_gradient: Callable[[torch.Tensor, torch.Tensor], torch.Tensor],
    clip: float,
    *,
    chunk_size: int | None = None,
) -> dict[nn.Parameter, torch.Tensor]:
    """Sum the gradients of all records, each shortened to a norm of at most `clip`.

    Privacy
    -------
    Not private by itself. Replacing one record moves the sum by at most 2C in the L2 norm.
    """

    def shortened(_: torch.Tensor, gram: torch.Tensor, __: slice) -> torch.Tensor:
        return shares_of_jacobians(gram, clip)[:, None]

    return pulled_back_sum(
        network,
        rows,
        shortened,
        cotangents=lambda outputs, chunk: [output_gradient(outputs, chunk)],
        chunk_size=chunk_size,
    )


def pulled_back_sum(
    network: nn.Module,
    rows: torch.Tensor,
    vectors: ClippedVectors,
    *,
    cotangents: Cotangents | None = None,
    chunk_size: int | None = None,
) -> dict[nn.Parameter, torch.Tensor]:
    r"""Sum :math:`J_i^\top c_i` over all records, with vectors that are chosen by their size.

    Privacy
    -------
    Not private by itself. What a record adds is what `vectors` lets it add: at most C with
    `shares_of_vectors`, :math:`L \|w_i\|` with `shares_of_jacobians`.
    Two neighbouring batches must have the same size, and the replaced record must keep its place:
    the last bits of a network's outputs depend on where in a chunk a record is.
    """
    total = zero_sums(network)
    start, size = 0, chunk_size or _first_chunk_size(network, total)
    while total and start < len(rows):
        records = slice(start, min(start + size, len(rows)))
        with full_precision(rows.device):
            jacobians = record_jacobians(network, rows[records], cotangents)
            _add(total, jacobians, vectors, records)
        size = chunk_size or _chunk_size(jacobians.numbers_per_record)
        start = records.stop
    return total


def shares_of_vectors(vectors: torch.Tensor, gram: torch.Tensor, clip: float) -> torch.Tensor:
    """Return by how much to shorten vectors for their gradients to be no longer than `clip`.

    Privacy
    -------
    Replacing one record moves the sum of its gradients, so shortened, by at most 2C in the L2
    norm.
    """
    squared = (vectors[:, None, :] @ gram @ vectors[:, :, None])[:, 0, 0].clamp(min=0.0)
    diagonal = gram.diagonal(dim1=1, dim2=2).clamp(min=0.0)
    without_cancelling = (vectors.abs() * diagonal.sqrt()).sum(1)
    return _shares((squared + _CANCELLED * without_cancelling**2).sqrt(), clip)


def shares_of_jacobians(gram: torch.Tensor, clip: float, *, rowwise: bool = False) -> torch.Tensor:
    r"""Return by how much to shorten Jacobians for their spectral norms to be at most `clip`.

    Privacy
    -------
    A record adds at most :math:`L \|w_i\|` to the sum of :math:`J_i^\top w_i`.

    References
    ----------
    D. Rodríguez-Vítores, C. Lalanne, J.-M. Loubes, "Learning with differentially private (sliced)
    Wasserstein gradients", 2025, remark A.2, for rows.
    """
    if rowwise:
        norms = gram.diagonal(dim1=1, dim2=2).clamp(min=0.0).sqrt()
        return _shares(norms, clip / math.sqrt(gram.shape[1]))
    return _shares(_largest_eigenvalues(gram).clamp(min=0.0).sqrt(), clip)


def _add(
    total: dict[nn.Parameter, torch.Tensor],
    jacobians: ChunkJacobians,
    vectors: ClippedVectors,
    records: slice,
) -> None:
    """Add the contributions of a chunk to the total."""
    outputs = jacobians.outputs.double()
    gram = torch.stack([part.gram() for part in jacobians.parts]).sum(0)
    chosen = vectors(outputs, gram, records)
    if chosen.shape != gram.shape[:2]:
        raise ValueError(
            f"`vectors` must return one vector a record, of shape {tuple(gram.shape[:2])}; it "
            f"returned {tuple(chosen.shape)}."
        )
    chosen = chosen.double()
    usable = torch.cat([outputs.flatten(1), gram.flatten(1), chosen], dim=1).isfinite().all(1)
    chosen = torch.where(usable[:, None], chosen, 0.0)
    # Zero times infinity is not zero. Looking takes time, not privacy: the result is the same
    # function of each record either way.
    clean = bool(usable.all())
    for part in jacobians.parts:
        sums = (part if clean else part.finite()).pulled_back(chosen)
        for parameter, value in zip(part.parameters, sums, strict=True):
            total[parameter] += value


def _shares(norms: torch.Tensor, clip: float) -> torch.Tensor:
    inside = clip * _INSIDE
    return torch.where(norms.isfinite(), inside / norms.clamp(min=inside), 0.0)


def _largest_eigenvalues(gram: torch.Tensor) -> torch.Tensor:
    """Return the largest eigenvalue of each matrix; infinite where it is not finite."""
    if gram.shape[1] == 1:
        return gram[:, 0, 0]
    if gram.shape[1] == 2:
        middle = (gram[:, 0, 0] + gram[:, 1, 1]) / 2.0
        half = (gram[:, 0, 0] - gram[:, 1, 1]) / 2.0
        return middle + torch.hypot(half, gram[:, 0, 1])
    finite = gram.isfinite().flatten(1).all(1)
    largest = torch.linalg.eigvalsh(torch.where(finite[:, None, None], gram, 0.0))[:, -1]
    return torch.where(finite, largest, math.inf)


def _first_chunk_size(network: nn.Module, total: dict[nn.Parameter, torch.Tensor]) -> int:
    """Return a careful size, for want of anything that was measured."""
    if chain_of_layers(network) is not None:  # of no record a whole gradient is formed
        return 4 * _FIRST_CHUNK
    return min(_FIRST_CHUNK, _chunk_size(sum(value.numel() for value in total.values())))


def _chunk_size(numbers_per_record: int) -> int:
    """Return how many records are taken at a time, from what is public: the sizes of arrays."""
    return max(1, min(_LARGEST_CHUNK, _NUMBERS // max(1, numbers_per_record)))
