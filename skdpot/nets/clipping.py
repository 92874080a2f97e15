r"""Sums over records of which none contributes more than its share.

Chunks bound the memory: what is kept of a batch is one running sum, whatever the batch size.
It is kept in double precision: rounding errors of a long sum depend on all of its terms, so
that those of single precision would add what no clipping bounds. What a caller adds, noise
first of all, is added to that sum before it is rounded to the precision of the parameters.
"""

from collections.abc import Callable

import torch
from torch import nn

from skdpot.nets.gradient_parts import RecordGradients, full_precision, zero_sums
from skdpot.nets.output_gradients import pulled_back_sum, shares_of_jacobians
from skdpot.nets.per_sample import record_gradients

__all__ = ["CHUNK_SIZE", "clipped_gradient_sum", "clipped_jacobian_sum", "clipped_shares"]

CHUNK_SIZE = 64

# Norms are computed in single precision, sums in double. Clipping to C (1 - 1e-3) leaves room for
# the rounding of norms.
_INSIDE = 1.0 - 1e-3

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
    r"""Sum the gradients of all records, each shortened to a norm of at most `clip`.

    Parameters
    ----------
    network : torch.nn.Module
        Treats records one by one; see `skdpot.nets.private_modules`.
    rows : tensor of shape (n_records, ...)
        The batch; may be empty.
    output_gradient : callable
        Maps outputs and rows of a chunk to the gradient of each record's loss with respect to
        its own output.
    clip : float
        Largest norm C, over all parameters at once.
    chunk_size : int, optional
        Records whose activations and gradients are in memory at the same time. By default it
        follows from the sizes of the network and of a record.

    Returns
    -------
    dict of parameter to tensor
        In double precision, :math:`\sum_i g_i \min(1, C / \|g_i\|)`. A gradient that is not
        finite counts as zero, because an error, or a sum that is not a number, would tell that
        it was there.

    Privacy
    -------
    Not private by itself. Replacing one record moves the sum by at most 2C in the L2 norm.
    """
    total = zero_sums(network)
    start, size = 0, chunk_size or CHUNK_SIZE
    while start < len(rows):
        chunk = rows[start : start + size]
        with full_precision(rows.device):
            (gradients,) = record_gradients(
                network, chunk, lambda outputs, rows: [output_gradient(outputs, rows)], chunk
            )
            squared = torch.stack([part.inner(part) for part in gradients]).sum(0)
            held = _add(total, gradients, clipped_shares(squared.sqrt(), clip))
        start += size
        size = chunk_size or max(1, min(_LARGEST_CHUNK, _NUMBERS // max(1, held)))
    return total


def clipped_jacobian_sum(
    network: nn.Module,
    rows: torch.Tensor,
    vectors: torch.Tensor,
    clip: float,
    *,
    chunk_size: int | None = None,
) -> dict[nn.Parameter, torch.Tensor]:
    r"""Sum the products of given vectors with clipped Jacobians.

    Parameters
    ----------
    network : torch.nn.Module
        Treats records one by one; maps rows to outputs of length k.
    rows : tensor of shape (n_records, ...)
        The batch.
    vectors : tensor of shape (n_records, k)
        One vector w_i a record.
    clip : float
        Largest spectral norm L of the Jacobian of a record's output with respect to all
        parameters at once.
    chunk_size : int, optional
        Records in memory at the same time; by default it follows from the sizes of arrays.

    Returns
    -------
    dict of parameter to tensor
        In double precision, :math:`\sum_i \min(1, L / \|J_i\|_2)\, J_i^\top w_i`. A Jacobian
        that is not finite counts as zero.

    Privacy
    -------
    Not private by itself: record i contributes at most :math:`L \|w_i\|`.

    Notes
    -----
    The spectral norm comes from the k x k matrix of inner products of the rows of J_i. Shortening
    to a Frobenius norm of L would be as safe, and shorten more.
    """

    def shortened(_: torch.Tensor, gram: torch.Tensor, records: slice) -> torch.Tensor:
        return shares_of_jacobians(gram, clip)[:, None] * vectors[records]

    return pulled_back_sum(network, rows, shortened, chunk_size=chunk_size)


def clipped_shares(norms: torch.Tensor, clip: float) -> torch.Tensor:
    """Return by how much each record is shortened; nothing is left of what is not finite."""
    inside = clip * _INSIDE
    return torch.where(norms.isfinite(), inside / norms.clamp(min=inside), 0.0)


def _add(
    total: dict[nn.Parameter, torch.Tensor],
    gradients: list[RecordGradients],
    shares: torch.Tensor,
) -> int:
    """Add the weighted sum of a chunk, and return how many numbers a record took in memory."""
    # Zero times infinity is not zero. Looking at the shares takes time, not privacy: the
    # result is the same function of each record either way.
    clean = bool((shares > 0.0).all())
    held = 0
    for part in gradients:
        usable = part if clean else part.finite()
        exact = type(usable).jacobian([usable])  # sums in double precision
        sums = exact.pulled_back(shares.double()[:, None])
        held += exact.numbers_per_record
        for parameter, value in zip(part.parameters, sums, strict=True):
            total[parameter] += value
    return held
