"""TODO: latent_network."""

from dataclasses import KW_ONLY, dataclass
from typing import Any, ClassVar

import numpy as np
from scipy.special import ndtri
from torch import nn

from skdpot._utils.validation import (
    HasMethods,
    torch_randomness,
)
from skdpot.base import COUNT
from skdpot.nets.layers import LatentEncoding
from skdpot.nets.networks import checked_network
from skdpot.sampling.architecture import _Networks
from skdpot.sampling.latent_network import make_mlp

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


_LARGEST_LATENT_DIM = 32


@dataclass(eq=False, repr=False)
class LatentNetwork(_Networks):
    """Network of a generator, from latent numbers to rows.

    Parameters
    ----------
    module : torch.nn.Module or callable, optional
        A module is copied and starts from its weights, which must be public; a function without
        arguments makes one. By default a perceptron with two hidden layers.
    latent_dim : int, optional
        Number of random numbers that the network reads; by default one per feature, at most 32, and
        one more.
    """

    module: Any = None
    _: KW_ONLY
    latent_dim: int | None = None

    _parameter_constraints: ClassVar[dict[str, list[Any]]] = {
        "module": [HasMethods("forward"), callable, None],
        "latent_dim": [COUNT, None],
    }

    @property
    def of_caller(self) -> bool:
        """Whether the rows that it fits are to be checked before a fit is charged."""
        return self.module is not None

    def dimension(self, n_features: int) -> int:
        """Return the number of latent numbers: by default one also for a component."""
        return self.latent_dim or 1 + min(n_features, _LARGEST_LATENT_DIM)

    def build(
        self, n_features: int, n_classes: int, width: int, rng: np.random.Generator
    ) -> nn.Module:
        """Make the network with initial weights, and check what it computes."""
        latent_dim = self.dimension(n_features)
        with torch_randomness(rng):
            if self.module is None:
                return make_mlp(latent_dim, n_classes, n_features, width)
            inputs = "latent_dim numbers, and one indicator per class if there are classes"
            rows = "one column per feature of X"
            width = latent_dim + n_classes
            return checked_network(self.module, width, n_features, inputs=inputs, outputs=rows)
