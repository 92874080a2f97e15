"""The release of one training step: a gradient with its noise, and what is public about it."""

from collections.abc import Mapping
from typing import Any

import torch
from torch import nn

from skdpot._utils.rng import SecretStream
from skdpot.privacy.noise import LatticeNoise, noisy_sum
from skdpot.privacy.recording import released

__all__ = ["release_gradient"]


def release_gradient(
    total: dict[nn.Parameter, torch.Tensor],
    noise: LatticeNoise | None,
    divisor: float,
    secret: SecretStream,
    circumstances: Mapping[str, Any],
) -> None:
    """Add noise to a clipped gradient and give it to the parameters.

    Parameters
    ----------
    total : dict of parameter to tensor
        Private, in double precision.
    noise : LatticeNoise or None
        Noise of every entry; None without privacy.
    divisor : float
        What is divided by afterwards, such as the size of the batch of a sum.
    secret : SecretStream
        Draws the noise.
    circumstances : mapping
        Public facts of the step, which do not change later; for those who attack it
        (`skdpot.privacy.recording.record_releases`).

    Privacy
    -------
    One step of an event that the caller has charged. The whole gradient is rounded to the lattice
    of the noise once; in this and in the division nothing depends on the batch but the sum. The
    gradients pass the gate with their noise, as the optimizer gets them, with the parameters that
    they were computed at: nothing of the batch.
    """
    if noise is not None:
        exact = torch.cat([value.flatten() for value in total.values()])
        noisy = torch.from_numpy(noisy_sum(exact.cpu().numpy(), noise, secret)).to(exact.device)
        parts = noisy.split([value.numel() for value in total.values()])
        total = {p: part.view_as(p) for p, part in zip(total, parts, strict=True)}
    gradients = released(
        "gradient",
        tuple((value / divisor).to(parameter.dtype) for parameter, value in total.items()),
        lambda: {
            "parameters": tuple(p.detach().to("cpu", copy=True).numpy() for p in total),
            "noise_scale": 0.0 if noise is None else noise.sigma / divisor,
            **circumstances,
        },
    )
    for parameter, gradient in zip(total, gradients, strict=True):
        parameter.grad = gradient
