"""The release of one training step: a gradient with its noise, and what is public about it."""

from collections.abc import Mapping
from typing import Any

import torch
from torch import nn

from skdpot._utils.rng import SecretStream
from skdpot.privacy.noise import gaussian_noise
from skdpot.privacy.recording import released

__all__ = ["release_gradient"]


def release_gradient(
    total: dict[nn.Parameter, torch.Tensor],
    noise_scale: float,
    divisor: float,
    secret: SecretStream,
    circumstances: Mapping[str, Any],
) -> None:
    """Add noise to a clipped gradient and give it to the parameters.

    Parameters
    ----------
    total : dict of parameter to tensor
        Private, in double precision; changed in place.
    noise_scale : float
        Standard deviation of the noise on every entry; 0 without privacy.
    divisor : float
        What is divided by afterwards, such as the size of the batch of a sum.
    secret : SecretStream
        Draws the noise.
    circumstances : mapping
        Public facts of the step, which do not change later; for those who attack it
        (`skdpot.privacy.recording.record_releases`).

    Privacy
    -------
    One step of an event that the caller has charged. The gradients pass the gate with their
    noise, as the optimizer gets them, with the parameters that they were computed at: nothing of
    the batch.
    """
    for value in total.values():
        if noise_scale > 0:
            noise = gaussian_noise(noise_scale, tuple(value.shape), secret)
            value += torch.from_numpy(noise).to(value)
    gradients = released(
        "gradient",
        tuple((value / divisor).to(parameter.dtype) for parameter, value in total.items()),
        lambda: {
            "parameters": tuple(p.detach().to("cpu", copy=True).numpy() for p in total),
            "noise_scale": noise_scale / divisor,
            **circumstances,
        },
    )
    for parameter, gradient in zip(total, gradients, strict=True):
        parameter.grad = gradient
