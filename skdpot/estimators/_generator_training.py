"""The generator's network: its shape, its inputs, its training."""

import math
from typing import TYPE_CHECKING

import numpy as np
import torch
from torch import nn

from skdpot._utils.torch_rng import torch_randomness
from skdpot.nets.networks import checked_network, draw_latents, make_mlp
from skdpot.nets.training import GradientStep, train_network

if TYPE_CHECKING:
    from skdpot.estimators.generator import DPSlicedGenerator

__all__ = ["default_width", "grouped_latents", "latent_dim", "new_network", "train_generator"]

_NARROWEST, _WIDEST = 32, 256
_UNITS_PER_ROOT = 1.5
_LARGEST_LATENT_DIM = 32


def default_width(n_samples: int, n_features: int) -> int:
    """Return the width of the hidden layers: a public rule, a power of two in [32, 256].

    About ``1.5 sqrt(n)``: what a fit costs grows with its data.
    """
    wanted = 2 ** round(math.log2(_UNITS_PER_ROOT * math.sqrt(n_samples)))
    return min(max(wanted, _NARROWEST, 2 ** math.ceil(math.log2(n_features))), _WIDEST)


def latent_dim(generator: "DPSlicedGenerator", n_features: int) -> int:
    """Return the number of latent numbers: by default one a feature and one for a component."""
    return generator.latent_dim or 1 + min(n_features, _LARGEST_LATENT_DIM)


def grouped_latents(
    n_latents: int, n_classes: int, group_size: int, rng: np.random.Generator
) -> np.ndarray:
    """Draw the inputs of a group of points for each class, group by group."""
    groups = [
        draw_latents(
            group_size,
            n_latents,
            rng,
            np.tile(np.eye(n_classes)[k], (group_size, 1)) if n_classes else None,
            stratified=True,
        )
        for k in range(max(1, n_classes))
    ]
    return np.concatenate(groups)


def new_network(
    generator: "DPSlicedGenerator",
    width: int,
    n_features: int,
    n_classes: int,
    rng: np.random.Generator,
) -> nn.Module:
    """Make the network; initial weights come from the solver's stream."""
    n_latents = latent_dim(generator, n_features)
    with torch_randomness(rng):
        if generator.module is None:
            return make_mlp(n_latents, n_classes, n_features, width)
        return checked_network(
            generator.module,
            n_latents + n_classes,
            n_features,
            inputs="latent_dim numbers, and one indicator a class if there are classes",
            outputs="one column a feature of X",
        )


def train_generator(
    generator: "DPSlicedGenerator",
    network: nn.Module,
    step: GradientStep,
    n_steps: int,
    rng: np.random.Generator,
    device: torch.device | None,
) -> None:
    """Train the network in place, and forget the last gradient."""
    train_network(
        network,
        step,
        n_steps,
        learning_rate=generator.learning_rate,
        rng=rng,
        device=device,
        progress=type(generator).__name__ if generator.verbose else None,
    )
    for parameter in network.parameters():
        parameter.grad = None
