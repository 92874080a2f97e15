r"""The private gradient of the (sliced) Wasserstein distance of two samples.

Either sample may be the outputs of a network or points that stay where they are, and either may
be private: two groups under one network, a network's outputs and fixed private points, private
inputs and a fixed public target. Outputs are moved into a bounded set and Jacobians shortened,
which bounds how far one record moves the gradient.

References
----------
D. Rodríguez-Vítores, C. Lalanne, J.-M. Loubes, "Learning with differentially private (sliced)
Wasserstein gradients", 2025, theorems 4.1 and A.1.
"""

from dataclasses import dataclass

import numpy as np
import torch
from torch import nn

from skdpot.nets.output_gradients import pulled_back_sum, shares_of_jacobians
from skdpot.nets.output_sets import OutputSet
from skdpot.nets.per_sample import record_outputs
from skdpot.nets.wasserstein_gradient import pulls_between

__all__ = ["Side", "clipped_wasserstein_gradient", "gradient_sensitivity"]

_ROWS_AT_ONCE = 2048


@dataclass(frozen=True, eq=False, kw_only=True)
class Side:
    """One of the two samples.

    Parameters
    ----------
    batch_size : int
        Number of points n.
    private : bool
        Whether the rows are private.
    network : torch.nn.Module or None, default=None
        Maps rows to points, each row by itself. None: the rows are the points, and do not move.
    clip_jacobian : float, default=0
        L, the largest spectral norm of the Jacobian of a point by all parameters; 0 without a
        network.
    rowwise : bool, default=False
        Shorten Jacobians row by row, as in the paper's experiments
        (`skdpot.nets.output_gradients.shares_of_jacobians`).
    """

    batch_size: int
    private: bool
    network: nn.Module | None = None
    clip_jacobian: float = 0.0
    rowwise: bool = False

    def __post_init__(self) -> None:
        if self.batch_size < 1:
            raise ValueError(f"`batch_size` must be at least 1, got {self.batch_size}.")
        if (self.network is None) != (self.clip_jacobian == 0.0) or self.clip_jacobian < 0.0:
            raise ValueError(
                "`clip_jacobian` must be positive with a network, and 0 for points that do not "
                f"move; got {self.clip_jacobian!r}."
            )


def gradient_sensitivity(
    first: Side, second: Side, *, width: float, shift: float | None = None
) -> float:
    r"""Bound how far one private record moves the gradient.

    Let all projections on a direction lie in an interval of length r, on one side let n points
    have Jacobians of norm at most :math:`L_1`, and on the other :math:`L_2`. If a record of the
    first side moves from u to u' and is matched with v before and v' after, the gradient along
    that direction moves by at most (see `skdpot.nets.wasserstein_gradient.moving_side_sensitivity`)

    .. math:: \frac{2}{n} (L_1 A + L_2 B), \qquad
              A = |u - v| + |u' - v'| + |v' - v|, \quad B = |u' - u|.

    A + B is convex and at every corner of :math:`0 \le u \le u' \le r,\ 0 \le v \le v' \le r`
    at most 2r, so it is so everywhere, and :math:`L_1 A + L_2 B \le 2 r L_1 + (L_2 - L_1) B`.
    B is at most s on average over the directions, so that the gradient moves by at most

    .. math:: \frac{2}{n} \left(2 r L_1 + \max(0, L_2 - L_1)\, s\right).

    With s = r this is :math:`\frac{2 r}{n} \max(2 L_1, L_1 + L_2)`, which is attained. Where
    private points do not move, :math:`L_1 = 0`, nothing but s counts: the other side's outputs
    may be anywhere.

    Parameters
    ----------
    first, second : Side
        The two samples.
    width : float
        r: mean over the directions of the length of the interval.
    shift : float, optional
        s: largest mean over the directions of the distance of two projected points of a private
        side (`skdpot.nets.output_sets.OutputSet.shift`); None is `width`.

    Returns
    -------
    float
        L2 sensitivity under replace-one within either side; the larger one if both are private,
        0 if none is.
    """
    shift = width if shift is None else shift
    bounds = [
        (
            4.0 * width * own.clip_jacobian
            + 2.0 * shift * max(0.0, other.clip_jacobian - own.clip_jacobian)
        )
        / own.batch_size
        for own, other in ((first, second), (second, first))
        if own.private
    ]
    return max(bounds, default=0.0) * (1.0 + 1e-12)


def clipped_wasserstein_gradient(
    first: Side,
    second: Side,
    rows_first: torch.Tensor,
    rows_second: torch.Tensor,
    directions: np.ndarray,
    *,
    clip_output: OutputSet,
    chunk_size: int | None = None,
) -> dict[nn.Parameter, torch.Tensor]:
    r"""Return the clipped gradient of the squared sliced Wasserstein distance of two samples.

    Parameters
    ----------
    first, second : Side
        The two samples.
    rows_first, rows_second : tensor of shape (batch_size, ...)
        Inputs of the networks, or points of shape (batch_size, k).
    directions : ndarray of shape (n_slices, k)
        Unit rows; ``[[1.0]]`` on a line.
    clip_output : OutputSet
        Where points are moved to before they are compared.
    chunk_size : int, optional
        Records whose gradients are in memory at the same time.

    Returns
    -------
    dict of parameter to tensor
        In double precision, for every trainable parameter of either network. Where both sides
        share parameters their gradients are added.

    Raises
    ------
    ValueError
        If a side has another number of rows than its `batch_size`, which the sensitivity is
        made for.

    Privacy
    -------
    Not private by itself: add noise for `gradient_sensitivity`. A replaced record must keep its
    position in the batch.
    """
    pairs = [(first, rows_first), (second, rows_second)]
    pairs.sort(key=lambda pair: pair[0].network is None)  # those that move come first
    n_moving = sum(side.network is not None for side, _ in pairs)
    points = [clip_output.nearest(_points(side, rows)) for side, rows in pairs]
    pulls = pulls_between(points, directions, n_moving=n_moving)
    total: dict[nn.Parameter, torch.Tensor] = {}
    for (side, rows), pull in zip(pairs, pulls, strict=False):
        for parameter, value in _pulled_back(side, rows, pull, chunk_size).items():
            total[parameter] = total[parameter] + value if parameter in total else value
    return total


def _points(side: Side, rows: torch.Tensor) -> np.ndarray:
    """Return the points of a side, shape (batch_size, k), in double precision."""
    if len(rows) != side.batch_size:
        raise ValueError(
            f"A side with batch_size={side.batch_size} was given {len(rows)} rows. Its "
            "sensitivity holds for batches of that size only."
        )
    network = side.network
    if network is not None:
        chunks = rows.split(_ROWS_AT_ONCE)
        rows = torch.cat([record_outputs(network, chunk) for chunk in chunks])
    return rows.detach().cpu().numpy().astype(np.float64)


def _pulled_back(
    side: Side, rows: torch.Tensor, pull: np.ndarray, chunk_size: int | None
) -> dict[nn.Parameter, torch.Tensor]:
    """Multiply the vectors with shortened Jacobians."""
    given = torch.from_numpy(pull).to(rows.device)

    def vectors(_: torch.Tensor, gram: torch.Tensor, records: slice) -> torch.Tensor:
        shares = shares_of_jacobians(gram, side.clip_jacobian, rowwise=side.rowwise)
        return given[records] * (shares if side.rowwise else shares[:, None])

    network = side.network
    return {} if network is None else pulled_back_sum(network, rows, vectors, chunk_size=chunk_size)
