"""The network that turns random numbers into rows."""

import math

import numpy as np
import torch
from scipy.special import ndtri
from torch import nn

__all__ = ["LatentEncoding", "draw_latents", "make_mlp"]

_N_COMPONENTS = 64
_N_HIDDEN = 2
_TINY = 1e-12


class LatentEncoding(nn.Module):
    """Read one of K components off the first latent number; pass the others on.

    Data in clusters are hard for a continuous map of a Gaussian cloud, which has to tear it.
    A network that is told a component can move clusters apart.

    Parameters
    ----------
    latent_dim : int
        Latent numbers, of which the first picks the component.
    n_columns : int
        Columns of the input; those behind the latent numbers (classes) are indicators.
    n_components : int, default=64
        Number of components K, all equally likely.
    """

    def __init__(self, latent_dim: int, n_columns: int, n_components: int = _N_COMPONENTS) -> None:
        super().__init__()
        self.latent_dim, self.n_components = latent_dim, n_components
        self.n_outputs = n_columns - 1 + n_components
        # Makes torch's initial weights of the next layer standard deviation 1 for indicators.
        self.weight = math.sqrt(3.0 * self.n_outputs)

    def forward(self, inputs: torch.Tensor) -> torch.Tensor:
        """Return latent numbers, the scaled indicators of the component and of the class."""
        position = torch.special.ndtr(inputs[:, :1]) * self.n_components
        component = position.long().clamp(0, self.n_components - 1)
        numbers = torch.arange(self.n_components, device=inputs.device)
        indicators = (component == numbers).to(inputs.dtype)
        rest = inputs[:, 1 : self.latent_dim]
        marked = torch.cat([indicators, inputs[:, self.latent_dim :]], dim=1)
        return torch.cat([rest, self.weight * marked], dim=1)


def make_mlp(latent_dim: int, n_classes: int, n_features: int, width: int) -> nn.Sequential:
    """Return the default network: two hidden layers behind a `LatentEncoding`.

    With a single latent number there is no encoding.

    Parameters
    ----------
    latent_dim, n_classes, n_features : int
        Numbers of latent numbers, of class indicators (0 without classes) and of outputs.
    width : int
        Units of a hidden layer.

    Returns
    -------
    torch.nn.Sequential
        Initial weights come from torch's global generator.
    """
    n_inputs = latent_dim + n_classes
    layers: list[nn.Module] = []
    if latent_dim > 1:
        layers.append(encoding := LatentEncoding(latent_dim, n_inputs))
        n_inputs = encoding.n_outputs
    for _ in range(_N_HIDDEN):
        layers += [nn.Linear(n_inputs, width), nn.SiLU()]
        n_inputs = width
    return nn.Sequential(*layers, nn.Linear(width, n_features))


def draw_latents(
    n_samples: int,
    latent_dim: int,
    rng: np.random.Generator,
    classes: np.ndarray | None = None,
    *,
    stratified: bool = False,
) -> np.ndarray:
    """Draw inputs of the network.

    Parameters
    ----------
    n_samples, latent_dim : int
        Shape of the standard normal part.
    rng : numpy.random.Generator
        Solver's stream.
    classes : ndarray of shape (n_samples, n_classes), optional
        Indicators that are appended.
    stratified : bool, default=False
        Put one draw of each latent number in each of `n_samples` equally likely intervals (a
        Latin hypercube). Each input alone is standard normal, and a batch looks more like
        its distribution than independent draws do.

    Returns
    -------
    ndarray of shape (n_samples, latent_dim + n_classes), float32
    """
    if stratified:
        intervals = rng.permuted(np.tile(np.arange(n_samples), (latent_dim, 1)), axis=1).T
        levels = (intervals + rng.random((n_samples, latent_dim))) / n_samples
        latents = ndtri(np.clip(levels, _TINY, 1 - _TINY)).astype(np.float32)
    else:
        latents = rng.standard_normal((n_samples, latent_dim), dtype=np.float32)
    if classes is None:
        return latents
    return np.concatenate([latents, classes.astype(np.float32)], axis=1)
