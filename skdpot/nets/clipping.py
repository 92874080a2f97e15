r"""Sums over records of which none contributes more than its share.

Chunks bound the memory: what is kept of a batch is one running sum, whatever the batch size.
It is kept in double precision: rounding errors of a long sum depend on all of its terms, so
that those of single precision would add what no clipping bounds. What a caller adds, noise
first of all, is added to that sum before it is rounded to the precision of the parameters.
"""

import math
from collections.abc import Callable, Iterator
from contextlib import contextmanager

import torch
from torch import nn

from skdpot.nets.per_sample import RecordGradients, record_gradients

__all__ = ["CHUNK_SIZE", "clipped_gradient_sum", "clipped_jacobian_sum"]

CHUNK_SIZE = 64

# Norms and the sum of a chunk are computed in single precision, u = 2**-24. The sum of k vectors
# of norm C errs by at most k u * k C; for both of two neighbours and k = 64 that is 5e-4 C.
# Clipping to C (1 - 1e-3) leaves room for it and for the rounding of norms.
_INSIDE = 1.0 - 1e-3


def clipped_gradient_sum(
    network: nn.Module,
    rows: torch.Tensor,
    output_gradient: Callable[[torch.Tensor, torch.Tensor], torch.Tensor],
    clip: float,
    *,
    chunk_size: int = CHUNK_SIZE,
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
    chunk_size : int, default=64
        Records whose activations and gradients are in memory at the same time.

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
    total = _zeros(network)
    for start in range(0, len(rows), chunk_size):
        chunk = rows[start : start + chunk_size]
        with _full_precision(rows.device):
            (gradients,) = record_gradients(
                network, chunk, lambda outputs, rows: [output_gradient(outputs, rows)], chunk
            )
            squared = _gram([gradients])[:, 0, 0]
            _add(total, gradients, _shares(squared.sqrt(), clip))
    return total


def clipped_jacobian_sum(
    network: nn.Module,
    rows: torch.Tensor,
    vectors: torch.Tensor,
    clip: float,
    *,
    chunk_size: int = CHUNK_SIZE,
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
    chunk_size : int, default=64
        Records in memory at the same time.

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
    total = _zeros(network)
    for start in range(0, len(rows), chunk_size):
        chunk, given = (x[start : start + chunk_size] for x in (rows, vectors))
        with _full_precision(rows.device):
            *jacobian, product = record_gradients(network, chunk, _units_and_targets, given)
            _add(total, product, _shares(_spectral_norms(_gram(jacobian)), clip))
    return total


def _units_and_targets(outputs: torch.Tensor, targets: torch.Tensor) -> list[torch.Tensor]:
    """Return the rows of the identity, which pull back to those of the Jacobian, and targets."""
    units = torch.eye(outputs.shape[1], dtype=outputs.dtype, device=outputs.device)
    return [*(unit.expand_as(outputs) for unit in units), targets]


def _zeros(network: nn.Module) -> dict[nn.Parameter, torch.Tensor]:
    trained = (parameter for parameter in network.parameters() if parameter.requires_grad)
    return {p: torch.zeros_like(p, dtype=torch.float64, requires_grad=False) for p in trained}


@contextmanager
def _full_precision(device: torch.device) -> Iterator[None]:
    """Keep products from being rounded to half precision or TF32, whatever is set outside."""
    before = torch.get_float32_matmul_precision()
    torch.set_float32_matmul_precision("highest")
    try:
        with torch.autocast(device.type, enabled=False):
            yield
    finally:
        torch.set_float32_matmul_precision(before)


def _gram(vectors: list[list[RecordGradients]]) -> torch.Tensor:
    """Return the inner products of each record's gradients, of shape (n_records, k, k)."""
    k = len(vectors)
    rows = [[torch.tensor(0.0)] * k for _ in range(k)]
    for i in range(k):
        for j in range(i + 1):
            parts = [a.inner(b) for a, b in zip(vectors[i], vectors[j], strict=True)]
            rows[i][j] = rows[j][i] = torch.stack(parts).sum(0)
    return torch.stack([torch.stack(row, dim=1) for row in rows], dim=1)


def _spectral_norms(gram: torch.Tensor) -> torch.Tensor:
    """Return the largest singular value of each Jacobian; infinite where it is not finite."""
    broken = ~gram.isfinite().flatten(1).all(1)
    largest = torch.linalg.eigvalsh(torch.where(broken[:, None, None], 0.0, gram))[:, -1]
    return torch.where(broken, math.inf, largest.clamp(min=0.0).sqrt())


def _shares(norms: torch.Tensor, clip: float) -> torch.Tensor:
    """Return by how much each record is shortened; nothing is left of what is not finite."""
    inside = clip * _INSIDE
    return torch.where(norms.isfinite(), inside / norms.clamp(min=inside), 0.0)


def _add(
    total: dict[nn.Parameter, torch.Tensor],
    gradients: list[RecordGradients],
    shares: torch.Tensor,
) -> None:
    """Add the weighted sum of a chunk to the total."""
    # Zero times infinity is not zero. Looking at the shares takes time, not privacy: the
    # result is the same function of each record either way.
    clean = bool((shares > 0.0).all())
    for part in gradients:
        usable = part if clean else part.finite()
        for parameter, value in zip(part.parameters, usable.weighted_sum(shares), strict=True):
            total[parameter] += value
