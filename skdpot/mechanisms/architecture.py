"""The encoder and the decoder of an autoencoder, as a parameter."""

from typing import Any, Self

import numpy as np
import torch
from sklearn.base import BaseEstimator, clone
from torch import nn

from skdpot._utils.torch_rng import torch_randomness
from skdpot._utils.validation import StrOptions, check_parameters
from skdpot.nets.networks import ToSphere, build_networks, image_dimensions

__all__ = ["Architecture"]

_N_PROBES = 2


class Architecture(BaseEstimator):
    """Encoder and decoder of an autoencoder.

    Parameters
    ----------
    networks : {"mlp", "conv", "dcgan"} or (encoder, decoder), default="mlp"
        "mlp" has two hidden layers each way; "conv" is for images with even sides (28 x 28,
        32 x 32), "dcgan" for 64 x 64. A pair holds `torch.nn.Module` or functions without
        arguments that make them. Modules are copied and start from the weights that they
        have, which must be public. The encoder sees tensors of `image_shape`, or flat rows,
        scaled to [-1, 1] by the bounds; the decoder returns as many values.
    image_shape : tuple of int, optional
        (height, width) or (channels, height, width) of the images in the flat rows of X.
    normalize_codes : bool, default=True
        Divide every code by its norm. The prior is then uniform on the sphere, otherwise
        standard normal.

    References
    ----------
    "conv" and "dcgan": I. Sebag et al., "Differentially private gradient flow based on the sliced
    Wasserstein distance", 2023, appendix C.2.
    """

    _parameter_constraints: dict[str, list[Any]] = {
        "networks": [StrOptions({"mlp", "conv", "dcgan"}), tuple, list],
        "image_shape": [tuple, list, None],
        "normalize_codes": ["boolean"],
    }

    def __init__(
        self,
        networks: Any = "mlp",
        *,
        image_shape: tuple[int, ...] | None = None,
        normalize_codes: bool = True,
    ) -> None:
        self.networks = networks
        self.image_shape = image_shape
        self.normalize_codes = normalize_codes

    @classmethod
    def of(cls, given: Any) -> Self:
        """Return the architecture that a parameter holds, or is short for, as a copy."""
        chosen = clone(given) if isinstance(given, Architecture) else cls(given)
        check_parameters(chosen)
        return chosen

    def build(
        self, n_features: int, latent_dim: int, rng: np.random.Generator, *, box: bool
    ) -> nn.Sequential:
        """Make encoder and decoder with initial weights, and check what they compute."""
        if self.normalize_codes and latent_dim < 2:
            raise ValueError(
                "latent_dim=1 with normalize_codes=True leaves codes no value but -1 and 1. Use "
                "latent_dim of at least 2, or normalize_codes=False."
            )
        image = image_dimensions(self.image_shape, n_features)
        with torch_randomness(rng):
            encoder, decoder = build_networks(
                self.networks, n_features=n_features, image=image, latent_dim=latent_dim
            )
        if self.normalize_codes:
            encoder = nn.Sequential(encoder, ToSphere())
        if box and isinstance(self.networks, str):
            decoder = nn.Sequential(decoder, nn.Tanh())
        autoencoder = nn.Sequential(encoder, decoder)
        with torch.no_grad():
            codes = _probe(encoder, torch.zeros(_N_PROBES, n_features), "encoder")
            if codes.shape != (_N_PROBES, latent_dim):
                raise ValueError(
                    f"architecture: the encoder maps {_N_PROBES} rows to a tensor of shape "
                    f"{tuple(codes.shape)}; it must be ({_N_PROBES}, {latent_dim}), as latent_dim "
                    "says."
                )
            rows = _probe(decoder, codes, "decoder")
        if rows.shape != (_N_PROBES, n_features):
            raise ValueError(
                f"architecture: the decoder maps {_N_PROBES} codes to {tuple(rows.shape)} values; "
                f"it must return {n_features} a row, as many as X has features."
            )
        return autoencoder


def _probe(network: nn.Module, inputs: torch.Tensor, part: str) -> torch.Tensor:
    try:
        outputs: torch.Tensor = network.eval()(inputs)
    except RuntimeError as error:
        facts = "one column a feature of X, or images of image_shape if that is given"
        expected = facts if part == "encoder" else "latent_dim numbers a row"
        raise ValueError(
            f"architecture: the {part} does not accept {tuple(inputs.shape)} values: {expected}. "
            f"It says: {error}"
        ) from error
    return outputs
