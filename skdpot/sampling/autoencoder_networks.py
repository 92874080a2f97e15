"""TODO: autoencoder_networks."""

import math
from functools import partial
from itertools import chain, pairwise
from typing import Any, TypeAlias

from torch import nn

from skdpot.nets.networks import _given_network

Architecture: TypeAlias = str | tuple[Any, Any]

_WIDEST = 512
_SLOPE = 0.2  # of the leaky ReLU, as in DCGAN
_DCGAN_SIZE = 64
_DCGAN_CHANNELS = 64


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
    architecture: Architecture,
    *,
    n_features: int,
    image: tuple[int, int, int] | None,
    latent_dim: int,
) -> tuple[nn.Module, nn.Module]:
    """Make an encoder and a decoder (`skdpot.mechanisms.Architecture`)."""
    if not isinstance(architecture, str):
        if len(architecture) != 2:
            raise ValueError(
                f"architecture must be a name or a pair (encoder, decoder); got {architecture!r}."
            )
        encoder, decoder = (_given_network(part, "architecture: each") for part in architecture)
        if image is not None:
            encoder = nn.Sequential(nn.Unflatten(1, image), encoder)
        return encoder, nn.Sequential(decoder, nn.Flatten())
    if architecture == "mlp":
        wide = min(_WIDEST, max(32, n_features))
        widths = (n_features, wide, max(16, wide // 2), latent_dim)
        return _perceptron(*widths), _perceptron(*widths[::-1])
    if image is None:
        raise ValueError(
            f'architecture="{architecture}" needs image_shape: pass Architecture("{architecture}", '
            "image_shape=(height, width)), or (channels, height, width). For rows that are not "
            'images use "mlp".'
        )
    return _conv(image, latent_dim) if architecture == "conv" else _dcgan(image, latent_dim)


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
    # PyTorch's own start loses the input in eight layers.
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

    def widen(given: int, k: int, stride: int = 2, padding: int = 1) -> tuple[nn.Module, ...]:
        convolution = nn.ConvTranspose2d(given, c * k, 4, stride=stride, padding=padding)
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
