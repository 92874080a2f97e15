"""TODO: networks."""

import math
from collections.abc import Callable
from copy import deepcopy
from functools import partial
from itertools import chain, pairwise
from typing import Any, Literal, TypeAlias

import numpy as np
import torch
from scipy.special import ndtri
from torch import nn

from skdpot.nets.per_sample import (
    LatentEncoding,
)

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


def _given_network(given: nn.Module | Callable[[], Any], parameter: str = "module") -> nn.Module:
    """Copy or make a caller's network: a function may return the same one each time."""
    kinds = (
        f"{parameter} must be a torch.nn.Module or a function without arguments that returns one"
    )
    try:
        network = deepcopy(given if isinstance(given, nn.Module) else given())
    except TypeError as error:
        raise TypeError(f"{kinds}; calling it failed: {error}") from error
    if not isinstance(network, nn.Module):
        raise TypeError(f"{kinds}; got one that returns {type(network).__name__}.")
    return network


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


_TINY = 1e-12


def make_mlp(latent_dim: int, n_classes: int, n_features: int, width: int) -> nn.Sequential:
    """Return the default network: two hidden layers behind a `LatentEncoding`."""
    n_inputs = latent_dim + n_classes
    layers: list[nn.Module] = []
    if latent_dim > 1:
        layers.append(encoding := LatentEncoding(latent_dim, n_inputs))
        n_inputs = encoding.n_outputs
    layers += [nn.Linear(n_inputs, width), nn.SiLU(), nn.Linear(width, width), nn.SiLU()]
    return nn.Sequential(*layers, nn.Linear(width, n_features))


def draw_latents(
    n_samples: int, latent_dim: int, rng: np.random.Generator, classes: np.ndarray | None = None
) -> np.ndarray:
    """Draw inputs of the generator's network: normal numbers, one in each interval of a column."""
    intervals = rng.permuted(np.tile(np.arange(n_samples), (latent_dim, 1)), axis=1).T
    levels = (intervals + rng.random((n_samples, latent_dim))) / n_samples
    latents = ndtri(np.clip(levels, _TINY, 1 - _TINY)).astype(np.float32)
    if classes is None:
        return latents
    return np.concatenate([latents, classes.astype(np.float32)], axis=1)


_N_PROBES = 2


def checked_network(
    module: nn.Module | Callable[[], Any],
    n_inputs: int,
    n_outputs: int,
    *,
    inputs: str,
    outputs: str,
) -> nn.Module:
    """Copy or make a caller's network, and check what it returns."""
    network = _given_network(module)
    if not any(parameter.requires_grad for parameter in network.parameters()):
        raise ValueError("module has no parameters to train.")
    check_widths("module", deepcopy(network), (n_inputs, inputs), (n_outputs, outputs))
    return network


def check_widths(
    name: str, network: nn.Module, inputs: tuple[int, str], outputs: tuple[int, str]
) -> None:
    """Run a network on rows of zeros; numbers of columns come with what they are."""
    shape = (_N_PROBES, inputs[0])
    with torch.no_grad():
        try:
            rows = network.eval()(torch.zeros(shape))
        except Exception as error:  # modules of callers may raise anything
            raise ValueError(
                f"{name} does not accept a tensor of shape {shape}: {inputs[1]}. Its "
                f"{type(error).__name__} says: {error}"
            ) from error
    wanted = (_N_PROBES, outputs[0])
    if rows.shape != wanted:
        raise ValueError(
            f"{name} maps {_N_PROBES} rows to a tensor of shape {tuple(rows.shape)}; it must be "
            f"{wanted}: {outputs[1]}."
        )


Predictor: TypeAlias = nn.Module | Callable[[], Any] | Literal["linear", "mlp"]

_HIDDEN_UNITS = 64


def build_predictor(module: Predictor, n_features: int, n_outputs: int) -> nn.Module:
    """Make a network from rows to outputs."""
    if not isinstance(module, str):
        outputs = "one logit for two classes, one per class for more; one column per target"
        rows = "one column per feature of X"
        return checked_network(module, n_features, n_outputs, inputs=rows, outputs=outputs)
    widths = (n_features,) if module == "linear" else (n_features, _HIDDEN_UNITS)
    hidden = [] if module == "linear" else [nn.Linear(*widths), nn.Tanh()]
    last = nn.Linear(widths[-1], n_outputs)
    for parameter in last.parameters():
        nn.init.zeros_(parameter)
    return nn.Sequential(*hidden, last)


_ROWS_AT_ONCE = 512


def evaluate(network: nn.Module, rows: np.ndarray, device: torch.device | None) -> np.ndarray:
    """Run a network on rows, without gradients and a few rows at a time."""
    convolutional = any(isinstance(layer, nn.modules.conv._ConvNd) for layer in network.modules())
    where: dict[str, Any] = {"device": device or "cpu"}
    where["dtype"] = torch.float32 if convolutional else torch.float64
    copy = deepcopy(network).to(**where)
    parts = np.array_split(rows, max(1, math.ceil(len(rows) / _ROWS_AT_ONCE)))
    with torch.inference_mode():
        outputs = [copy(torch.from_numpy(part).to(**where)) for part in parts]
    return torch.cat(outputs).cpu().numpy().astype(np.float64)
