"""The networks of the autoencoder: by name ("mlp", "conv", "dcgan") or from the caller."""

import math
from dataclasses import KW_ONLY, dataclass
from functools import partial
from itertools import chain, pairwise
from typing import Any, ClassVar, Self

import numpy as np
from sklearn.base import BaseEstimator, clone
from torch import nn

from skdpot._utils.parameters import Described, StrOptions, check_parameters
from skdpot._utils.streams import torch_randomness
from skdpot.nets.layers import ToSphere, WideTanh
from skdpot.nets.networks import check_widths, network_of_caller

# Constraint of the parameter `architecture` of the autoencoder, and of `networks` here.
NETWORKS: list[Any] = [
    StrOptions({"mlp", "conv", "dcgan"}),
    Described("a pair (encoder, decoder)", lambda value: isinstance(value, tuple | list)),
]
_WIDEST = 512  # hidden layer of "mlp"
_SLOPE = 0.2  # of the leaky ReLU, as in DCGAN
_DCGAN_SIZE = 64
_DCGAN_CHANNELS = 64


@dataclass(eq=False, repr=False)
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

    networks: Any = "mlp"
    _: KW_ONLY
    image_shape: tuple[int, ...] | None = None
    normalize_codes: bool = True

    _parameter_constraints: ClassVar[dict[str, list[Any]]] = {
        "networks": NETWORKS,
        "image_shape": [tuple, list, None],
        "normalize_codes": ["boolean"],
    }

    @classmethod
    def of(cls, architecture: Any) -> Self:
        """Return a copy of an architecture, or the one of these networks, validated."""
        chosen = clone(architecture) if isinstance(architecture, cls) else cls(architecture)
        check_parameters(chosen)
        return chosen

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
            # Convolutions that end in a narrow tanh saturate, and learn a black image.
            decoder = nn.Sequential(decoder, nn.Tanh() if self.networks == "mlp" else WideTanh())
        rows = n_features, "one column per feature of X, or images of image_shape if that is given"
        codes = latent_dim, "latent_dim numbers per row"
        check_widths("architecture: the encoder", encoder, rows, codes)
        check_widths(
            "architecture: the decoder", decoder, codes, (n_features, "one column per feature of X")
        )
        return nn.Sequential(encoder, decoder)


def image_dimensions(
    image_shape: tuple[int, ...] | None, n_features: int
) -> tuple[int, int, int] | None:
    """Return ``(channels, height, width)``, or None when rows are not images."""
    if image_shape is None:
        return None
    shape = tuple(int(side) for side in image_shape)
    if len(shape) not in (2, 3) or min(shape) < 1:
        raise ValueError(
            f"image_shape={image_shape!r} must be (height, width) or (channels, height, width)."
        )
    if math.prod(shape) != n_features:
        raise ValueError(
            f"image_shape={image_shape!r} has {math.prod(shape)} values, but the rows of X have "
            f"{n_features} features: flat rows, channels first."
        )
    channels, height, width = (1, *shape) if len(shape) == 2 else shape
    return channels, height, width


def build_networks(
    networks: Any,
    *,
    n_features: int,
    image: tuple[int, int, int] | None,
    latent_dim: int,
) -> tuple[nn.Module, nn.Module]:
    """Make encoder and decoder from a name or a pair of networks or functions."""
    if not isinstance(networks, str):
        if len(networks) != 2:
            raise ValueError(
                f"architecture must be a name or a pair (encoder, decoder); got {networks!r}."
            )
        encoder, decoder = (network_of_caller(part, "architecture: each") for part in networks)
        if image is not None:
            encoder = nn.Sequential(nn.Unflatten(1, image), encoder)
        return encoder, nn.Sequential(decoder, nn.Flatten())
    if networks == "mlp":
        wide = min(_WIDEST, max(32, n_features))
        widths = (n_features, wide, max(16, wide // 2), latent_dim)
        return _perceptron(*widths), _perceptron(*widths[::-1])
    if image is None:
        raise ValueError(
            f'architecture="{networks}" needs image_shape: pass Architecture("{networks}", '
            "image_shape=(height, width)), or (channels, height, width). For rows that are not "
            'images use "mlp".'
        )
    return _conv(image, latent_dim) if networks == "conv" else _dcgan(image, latent_dim)


def _with_relu(*layers: nn.Module) -> tuple[nn.Module, ...]:
    return tuple(chain.from_iterable((layer, nn.ReLU()) for layer in layers))


def _perceptron(*widths: int) -> nn.Sequential:
    *hidden, last = [nn.Linear(a, b) for a, b in pairwise(widths)]
    return nn.Sequential(*_with_relu(*hidden), last)


def _conv(image: tuple[int, int, int], latent_dim: int) -> tuple[nn.Module, nn.Module]:
    channels, height, width = image
    if height % 2 or width % 2 or min(height, width) < 8:
        raise ValueError(
            f'architecture="conv" halves images once: height and width must be even and at least '
            f'8, got {height} x {width}. Pad the images, or use "mlp".'
        )
    small = (height // 2, width // 2)
    same_size = partial(nn.Conv2d, kernel_size=3, padding=1)
    encoder = nn.Sequential(
        nn.Unflatten(1, image),
        *_with_relu(same_size(channels, 3), nn.Conv2d(3, 32, 4, stride=2)),
        *_with_relu(same_size(32, 32), same_size(32, 32)),
        nn.Flatten(),
        nn.Linear(32 * (small[0] - 1) * (small[1] - 1), latent_dim),
    )
    decoder = nn.Sequential(
        *_with_relu(nn.Linear(latent_dim, 32 * math.prod(small))),
        nn.Unflatten(1, (32, *small)),
        *_with_relu(same_size(32, 32), same_size(32, 32), nn.ConvTranspose2d(32, 32, 2, stride=2)),
        same_size(32, channels),
        nn.Flatten(),
    )
    # With PyTorch's initial weights eight layers lose the input.
    for weights in chain(encoder.parameters(), decoder.parameters()):
        if weights.ndim > 1:
            nn.init.kaiming_uniform_(weights, nonlinearity="relu")
        else:
            nn.init.zeros_(weights)
    return encoder, decoder


def _dcgan(image: tuple[int, int, int], latent_dim: int) -> tuple[nn.Module, nn.Module]:
    channels, height, width = image
    if (height, width) != (_DCGAN_SIZE, _DCGAN_SIZE):
        raise ValueError(
            f'architecture="dcgan" is for images of {_DCGAN_SIZE} x {_DCGAN_SIZE}, got '
            f'{height} x {width}. Resize them, or use "conv".'
        )
    c = _DCGAN_CHANNELS

    def widen(n_channels: int, k: int, stride: int = 2, padding: int = 1) -> tuple[nn.Module, ...]:
        convolution = nn.ConvTranspose2d(n_channels, c * k, 4, stride=stride, padding=padding)
        return convolution, nn.LeakyReLU(_SLOPE), nn.GroupNorm(8, c * k)

    encoder = nn.Sequential(
        nn.Unflatten(1, image),
        nn.Conv2d(channels, c, 3, padding=1),
        nn.LeakyReLU(_SLOPE),
        *(
            layer
            for k in (c, 2 * c, 4 * c)
            for layer in (nn.Conv2d(k, 2 * k, 4, stride=2, padding=1), nn.LeakyReLU(_SLOPE))
        ),
        nn.Flatten(),
        nn.Linear(8 * c * (_DCGAN_SIZE // 8) ** 2, latent_dim),
    )
    decoder = nn.Sequential(
        nn.Unflatten(1, (latent_dim, 1, 1)),
        *widen(latent_dim, 8, stride=1, padding=0),
        *(layer for k in (8, 4, 2) for layer in widen(c * k, k // 2)),
        nn.ConvTranspose2d(c, channels, 4, stride=2, padding=1),
        nn.Flatten(),
    )
    return encoder, decoder
