"""Encoders and decoders by name; all of their layers work record by record."""

import math
from collections.abc import Callable
from copy import deepcopy
from typing import Any, TypeAlias

import torch
from torch import nn
from torch.nn import functional

__all__ = ["Architecture", "ToSphere", "build_networks", "image_dimensions"]

Architecture: TypeAlias = str | tuple[Any, Any]

_WIDEST = 512
_SLOPE = 0.2  # of the leaky ReLU, as in DCGAN
_DCGAN_SIZE = 64
_DCGAN_CHANNELS = 64


class ToSphere(nn.Module):
    """Project codes to the unit sphere, each by itself."""

    def forward(self, codes: torch.Tensor) -> torch.Tensor:
        """Divide each row by its norm; a row of zeros stays as it is."""
        return functional.normalize(codes, dim=1)


def image_dimensions(
    image_shape: tuple[int, ...] | None, n_features: int
) -> tuple[int, int, int] | None:
    """Return ``(channels, height, width)``, or None when rows are not images.

    Parameters
    ----------
    image_shape : tuple of int or None
        ``(height, width)`` or ``(channels, height, width)``.
    n_features : int
        Length of the flat rows.

    Returns
    -------
    tuple of int or None
        Channels first.

    Raises
    ------
    ValueError
        If the shape has another number of entries, or does not multiply to `n_features`.
    """
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
            f"{n_features} features; pass each image as one flat row, channels first."
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
    """Make an encoder and a decoder.

    Parameters
    ----------
    architecture : {"mlp", "conv", "dcgan"} or (encoder, decoder)
        A name, or two `torch.nn.Module` or functions without arguments that make them. Modules
        are copied and start from the weights that they have.
    n_features : int
        Length of the flat rows.
    image : (channels, height, width) or None
        Shape of the images that the rows hold. The encoder of a pair is given tensors of
        this shape behind the axis of records.
    latent_dim : int
        Length of a code.

    Returns
    -------
    encoder, decoder : torch.nn.Module
        From flat rows of length `n_features` to codes, and back. Initial weights come from
        torch's global generator.

    Raises
    ------
    ValueError
        If an architecture by name does not fit the images.

    References
    ----------
    "conv" and "dcgan": Sebag et al., "Differentially private gradient flow based on the sliced
    Wasserstein distance", appendix C.2, with group normalisation in the place of batch
    normalisation and without padding images of 28 x 28.
    """
    if not isinstance(architecture, str):
        return _given_networks(architecture, image)
    if architecture == "mlp":
        return _mlp(n_features, latent_dim)
    if image is None:
        raise ValueError(
            f'architecture="{architecture}" needs image_shape=(channels, height, width) or '
            '(height, width); for rows that are not images use "mlp".'
        )
    return _conv(image, latent_dim) if architecture == "conv" else _dcgan(image, latent_dim)


def _given_networks(
    architecture: tuple[Any, Any], image: tuple[int, int, int] | None
) -> tuple[nn.Module, nn.Module]:
    if len(architecture) != 2:
        raise ValueError(
            "architecture must be a name or a pair (encoder, decoder), got "
            f"{len(architecture)} entries."
        )
    encoder, decoder = (_given_network(part) for part in architecture)
    if image is not None:
        encoder = nn.Sequential(nn.Unflatten(1, image), encoder)
    return encoder, nn.Sequential(decoder, nn.Flatten())


def _given_network(part: nn.Module | Callable[[], nn.Module]) -> nn.Module:
    if isinstance(part, nn.Module):
        return deepcopy(part)
    made = part()
    if not isinstance(made, nn.Module):
        raise TypeError(
            "architecture=(encoder, decoder): each must be a torch.nn.Module or a function "
            f"without arguments that returns one; got one that returns {type(made).__name__}."
        )
    return deepcopy(made)  # it may return the same network each time


def _mlp(n_features: int, latent_dim: int) -> tuple[nn.Module, nn.Module]:
    """Two hidden layers each, as wide as the rows are long, between 32 and 512."""
    wide = min(_WIDEST, max(32, n_features))
    narrow = max(16, wide // 2)
    encoder = nn.Sequential(
        nn.Linear(n_features, wide),
        nn.ReLU(),
        nn.Linear(wide, narrow),
        nn.ReLU(),
        nn.Linear(narrow, latent_dim),
    )
    decoder = nn.Sequential(
        nn.Linear(latent_dim, narrow),
        nn.ReLU(),
        nn.Linear(narrow, wide),
        nn.ReLU(),
        nn.Linear(wide, n_features),
    )
    return encoder, decoder


def _conv(image: tuple[int, int, int], latent_dim: int) -> tuple[nn.Module, nn.Module]:
    channels, height, width = image
    if height % 2 or width % 2 or min(height, width) < 8:
        raise ValueError(
            f'architecture="conv" halves images once: height and width must be even and at least '
            f'8, got {height} x {width}. Pad the images, or use "mlp".'
        )
    small = (height // 2, width // 2)
    encoder = nn.Sequential(
        nn.Unflatten(1, image),
        nn.Conv2d(channels, 3, 3, padding=1),
        nn.ReLU(),
        nn.Conv2d(3, 32, 4, stride=2),
        nn.ReLU(),
        nn.Conv2d(32, 32, 3, padding=1),
        nn.ReLU(),
        nn.Conv2d(32, 32, 3, padding=1),
        nn.ReLU(),
        nn.Flatten(),
        nn.Linear(32 * (small[0] - 1) * (small[1] - 1), latent_dim),
    )
    decoder = nn.Sequential(
        nn.Linear(latent_dim, 32 * math.prod(small)),
        nn.ReLU(),
        nn.Unflatten(1, (32, *small)),
        nn.Conv2d(32, 32, 3, padding=1),
        nn.ReLU(),
        nn.Conv2d(32, 32, 3, padding=1),
        nn.ReLU(),
        nn.ConvTranspose2d(32, 32, 2, stride=2),
        nn.ReLU(),
        nn.Conv2d(32, channels, 3, padding=1),
        nn.Flatten(),
    )
    return encoder, decoder


def _dcgan(image: tuple[int, int, int], latent_dim: int) -> tuple[nn.Module, nn.Module]:
    channels, height, width = image
    if (height, width) != (_DCGAN_SIZE, _DCGAN_SIZE):
        raise ValueError(
            f'architecture="dcgan" is for images of {_DCGAN_SIZE} x {_DCGAN_SIZE}, got '
            f'{height} x {width}. Resize them, or use "conv".'
        )
    c = _DCGAN_CHANNELS
    encoder = nn.Sequential(
        nn.Unflatten(1, image),
        nn.Conv2d(channels, c, 3, padding=1),
        nn.LeakyReLU(_SLOPE),
        *(layer for k in (1, 2, 4) for layer in _halve(c * k)),
        nn.Flatten(),
        nn.Linear(8 * c * (_DCGAN_SIZE // 8) ** 2, latent_dim),
    )
    decoder = nn.Sequential(
        nn.Unflatten(1, (latent_dim, 1, 1)),
        nn.ConvTranspose2d(latent_dim, 8 * c, 4),
        nn.LeakyReLU(_SLOPE),
        nn.GroupNorm(8, 8 * c),
        *(layer for k in (8, 4, 2) for layer in _double(c * k)),
        nn.ConvTranspose2d(c, channels, 4, stride=2, padding=1),
        nn.Flatten(),
    )
    return encoder, decoder


def _halve(width: int) -> tuple[nn.Module, ...]:
    return nn.Conv2d(width, 2 * width, 4, stride=2, padding=1), nn.LeakyReLU(_SLOPE)


def _double(width: int) -> tuple[nn.Module, ...]:
    half = width // 2
    widen = nn.ConvTranspose2d(width, half, 4, stride=2, padding=1)
    return widen, nn.LeakyReLU(_SLOPE), nn.GroupNorm(8, half)
