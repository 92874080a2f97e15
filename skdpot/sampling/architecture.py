"""The networks of the autoencoder and of the generator, as parameters."""

from dataclasses import KW_ONLY, dataclass
from typing import Any, ClassVar, Self

import numpy as np
from sklearn.base import BaseEstimator, clone
from torch import nn

from skdpot._utils.validation import (
    Described,
    StrOptions,
    check_parameters,
    torch_randomness,
)
from skdpot.nets.layers import ToSphere, WideTanh
from skdpot.nets.networks import check_widths
from skdpot.sampling.autoencoder_networks import build_networks, image_dimensions

NETWORKS: list[Any] = [
    StrOptions({"mlp", "conv", "dcgan"}),
    Described("a pair (encoder, decoder)", lambda value: isinstance(value, tuple | list)),
]


class _Networks(BaseEstimator):
    @classmethod
    def of(cls, given: Any) -> Self:
        """Return the networks that a parameter holds, or is short for, as a copy."""
        chosen = clone(given) if isinstance(given, _Networks) else cls(given)
        check_parameters(chosen)
        return chosen


@dataclass(eq=False, repr=False)
class Architecture(_Networks):
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

    networks: Any = "mlp"
    _: KW_ONLY
    image_shape: tuple[int, ...] | None = None
    normalize_codes: bool = True

    _parameter_constraints: ClassVar[dict[str, list[Any]]] = {
        "networks": NETWORKS,
        "image_shape": [tuple, list, None],
        "normalize_codes": ["boolean"],
    }

    def build(
        self, n_features: int, latent_dim: int, rng: np.random.Generator, *, box: bool
    ) -> nn.Sequential:
        """Make encoder and decoder with initial weights, and check what they compute."""
        if self.normalize_codes and latent_dim < 2:
            raise ValueError(
                "normalize_codes=True needs latent_dim of at least 2: codes would be -1 or 1."
            )
        image = image_dimensions(self.image_shape, n_features)
        with torch_randomness(rng):
            encoder, decoder = build_networks(
                self.networks, n_features=n_features, image=image, latent_dim=latent_dim
            )
        if self.normalize_codes:
            encoder = nn.Sequential(encoder, ToSphere())
        if box and isinstance(self.networks, str):
            # Convolutions that may end in saturation learn to draw a black ground and nothing else.
            decoder = nn.Sequential(decoder, nn.Tanh() if self.networks == "mlp" else WideTanh())
        rows = n_features, "one column per feature of X, or images of image_shape if that is given"
        codes = latent_dim, "latent_dim numbers per row"
        check_widths("architecture: the encoder", encoder, rows, codes)
        check_widths(
            "architecture: the decoder", decoder, codes, (n_features, "one column per feature of X")
        )
        return nn.Sequential(encoder, decoder)
