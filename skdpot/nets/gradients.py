r"""Sums of clipped gradients over a batch, with a bound on the contribution of each record.

Record i has the outputs :math:`o_i`, with the Jacobian :math:`J_i` by all parameters. A loss of the
outputs with the gradient :math:`v_i` by :math:`o_i` has the gradient :math:`J_i^\top v_i` by the
parameters. Clipping needs only the small Gram matrix :math:`G_i = J_i J_i^\top`:

.. math:: \|J_i^\top v_i\| = \sqrt{v_i^\top G_i v_i}, \qquad
          \|J_i\|_2 = \sqrt{\lambda_\max(G_i)}.

One computation of the Jacobians serves any number of losses and penalties, each with its own
clipping, through vectors of length k. For networks with many outputs the loss is taken as the only
output. Functions of the outputs, such as probabilities :math:`p(o_i)` with the k x k Jacobian
:math:`D_i`, have the Gram matrix :math:`D_i G_i D_i^\top`, and their gradients :math:`w_i` pull
back as :math:`D_i^\top w_i`.
"""

import math
from collections.abc import Callable
from weakref import WeakKeyDictionary

import numpy as np
import torch
from torch import nn

from skdpot.nets.per_sample import ChunkJacobians, OutputGradient, chain_of_layers, record_jacobians

# Why one part in a million is enough room for rounding
# ------------------------------------------------------
# Let u = 2**-53, P the number of parameters, m the batch size. For networks of single precision all
# products of factors are exact in double precision; all further arithmetic is in double precision.
#
# 1. Gram matrices: |error of G_rs| <= (P + 2) u sqrt(G_rr G_ss), by Cauchy and Schwarz.
# 2. Norms: the terms of v' G v may cancel, with errors of up to (P + 2k) u b**2, where
#    b = sum_r |v_r| sqrt(G_rr) is the norm without cancellation. `shares_of_vectors` adds
#    _CANCELLED * b**2 before the root. For P < 9e5 that is more than the error, so the computed
#    norm is not below the true one. Wider layers sum their products in blocks, with errors far
#    below this bound.
# 3. Contribution of a record: J' c is formed with errors of at most 2 k u b(c). By 2.,
#    b(c) <= clip / sqrt(_CANCELLED) = 1e5 clip, so for k = 20 the errors are below 1e-9 clip.
# 4. Sums over m records in chunks of at most 2048: errors of at most u (2048 + m / 2048) times
#    the sum of the norms, m clip. For m = 1e6 that is below 3e-7 clip, and below 6e-7 clip for
#    both neighbours together. (Worst cases: errors are orders of magnitude smaller in practice.)
# 5. Underflow: factors are 0 or between 1e-60 and 1e60 (a narrower range in single precision), so
#    Gram matrices neither underflow nor overflow. Underflow in v' G v loses less than 5e-324 |v|,
#    which is at most _CANCELLED * b**2 unless |v| < 1e-73, where it is below 1e-390. Underflow in
#    b**2 occurs for norms below 1e-153 only. Clips from 1e-30 to 1e30 are far from either. A norm
#    that overflows is infinite, and the record then contributes nothing.
#
# 2e-9 + 6e-7 is below the 2e-6 clip that _INSIDE leaves free between two neighbours. With
# `shares_of_jacobians` the bound on the sum is proportional to the sum of the lengths |w_i|, so the
# errors of 4. are the same share of that bound.
_INSIDE = 1.0 - 1e-6
_CANCELLED = 1e-10

_FIRST_CHUNK = 16  # records, while the memory per record is unknown
_LARGEST_CHUNK = 2048  # larger arrays exceed the cache and save no time
_NUMBERS_HELD = 2**22  # numbers in memory at once
_HELD: WeakKeyDictionary[nn.Module, int] = WeakKeyDictionary()  # measured numbers per record
_WHOLE = 16  # places are padded to a multiple: kernels treat a remainder differently

# A map from outputs, Gram matrices and indices of records of a chunk to one vector per record.
ClippedVectors = Callable[[torch.Tensor, torch.Tensor, torch.Tensor], torch.Tensor]


def pulled_back_sum(
    network: nn.Module,
    rows: torch.Tensor,
    vectors: ClippedVectors,
    output_gradient: OutputGradient | None = None,
    *,
    batch: np.ndarray | None = None,
    chunk_size: int | None = None,
) -> dict[nn.Parameter, torch.Tensor]:
    r"""Sum :math:`J_i^\top c_i` over a batch, with the vectors :math:`c_i` that `vectors` returns.

    A batch has one index per place; -1 marks a vacant place, which adds exactly zero (the last
    record is computed in its place). By default the batch is all records. With an
    `output_gradient` the loss is taken as the only output, and J is the gradient of the loss.

    The sum is not private by itself. `vectors` bounds the contribution of a record: by C with
    `shares_of_vectors`, by :math:`L \|w_i\|` with `shares_of_jacobians`, and by C for a loss that
    is the only output and is shortened by `shares_of_jacobians`.

    The last bits of a network's outputs depend on the number of places and on the place of the
    record. So batches of neighbours must have equally many places, and a record in both batches
    must have the same place (`skdpot.privacy.batches.placed_batches`). The contributions of all
    other records are then equal to the last bit.
    """
    total = {p: torch.zeros_like(p, dtype=torch.float64) for p in trained_parameters(network)}
    places = padded(torch.from_numpy(np.arange(len(rows)) if batch is None else batch))
    places = places.to(rows.device)
    start, size = 0, chunk_size or _first_chunk_size(network, total)
    while total and start < len(places):
        records = places[start : start + size]
        jacobians = record_jacobians(network, rows[records], output_gradient)
        _add(total, jacobians, vectors, records)
        start, _HELD[network] = start + size, jacobians.numbers_per_record
        size = chunk_size or _chunk_size(_HELD[network])
    return total


def padded(places: torch.Tensor) -> torch.Tensor:
    """Append vacant places up to a multiple of `_WHOLE`."""
    return nn.functional.pad(places, (0, -len(places) % _WHOLE), value=-1)


def shares_of_vectors(vectors: torch.Tensor, gram: torch.Tensor, clip: float) -> torch.Tensor:
    """Return the factors that shorten vectors so that their gradients have a norm of at most C.

    Replacing one record moves the sum of such gradients by at most 2C in the L2 norm.
    """
    squared = (vectors[:, None, :] @ gram @ vectors[:, :, None])[:, 0, 0].clamp(min=0.0)
    diagonal = gram.diagonal(dim1=1, dim2=2).clamp(min=0.0)
    without_cancelling = (vectors.abs() * diagonal.sqrt()).sum(1)
    return _shares((squared + _CANCELLED * without_cancelling**2).sqrt(), clip)


def shares_of_jacobians(gram: torch.Tensor, clip: float) -> torch.Tensor:
    r"""Return the factors that shorten Jacobians so that their spectral norms are at most L.

    A record adds at most :math:`L \|w_i\|` to the sum of :math:`J_i^\top w_i`.
    """
    return _shares(_largest_eigenvalues(gram).clamp(min=0.0).sqrt(), clip)


def by_jacobians(clip: float, vectors: torch.Tensor | None = None) -> ClippedVectors:
    """Pull vectors back, or 1 for a single output, by Jacobians shortened to the norm `clip`."""

    def shortened(_: torch.Tensor, gram: torch.Tensor, records: torch.Tensor) -> torch.Tensor:
        shares = shares_of_jacobians(gram, clip)[:, None]
        return shares if vectors is None else shares * vectors[records]

    return shortened


def by_rows(clip: float, vectors: torch.Tensor) -> ClippedVectors:
    """Pull vectors back by Jacobians whose k rows are each shortened to the norm clip / √k."""

    def shortened(_: torch.Tensor, gram: torch.Tensor, records: torch.Tensor) -> torch.Tensor:
        norms = gram.diagonal(dim1=1, dim2=2).clamp(min=0.0).sqrt()
        return _shares(norms, clip / math.sqrt(gram.shape[1])) * vectors[records]

    return shortened


def _add(
    total: dict[nn.Parameter, torch.Tensor],
    jacobians: ChunkJacobians,
    vectors: ClippedVectors,
    records: torch.Tensor,
) -> None:
    """Add the contributions of a chunk to the total."""
    outputs, gram = jacobians.outputs, jacobians.gram()
    chosen = vectors(outputs, gram, records)
    if chosen.shape != gram.shape[:2]:
        raise ValueError(
            f"`vectors` must return one vector per record, of shape {tuple(gram.shape[:2])}; it "
            f"returned {tuple(chosen.shape)}."
        )
    chosen = chosen.double()
    # A sum of entries of Gram matrices is finite if they are: by 5. above they are below 1e250.
    finite = [outputs.flatten(1).isfinite().all(1), gram.sum((1, 2)).isfinite()]
    usable = chosen.isfinite().all(1) & finite[0] & finite[1]
    chosen = torch.where((usable & (records >= 0))[:, None], chosen, 0.0)
    # Zero times infinity is not zero. Skipping the replacement saves time and reveals nothing: the
    # result is the same function of each record either way.
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
    """Return a cautious size if the memory per record has not been measured."""
    if network in _HELD:
        return _chunk_size(_HELD[network])
    if chain_of_layers(network) is not None:  # which does not form gradients of single records
        return 4 * _FIRST_CHUNK
    return min(_FIRST_CHUNK, _chunk_size(sum(value.numel() for value in total.values())))


def _chunk_size(numbers_per_record: int) -> int:
    """Return the number of records per chunk, from the public sizes of arrays."""
    return max(1, min(_LARGEST_CHUNK, _NUMBERS_HELD // max(1, numbers_per_record)))


def trained_parameters(network: nn.Module) -> tuple[nn.Parameter, ...]:
    """Return the parameters of a network that are trained, in order."""
    return tuple(parameter for parameter in network.parameters() if parameter.requires_grad)
