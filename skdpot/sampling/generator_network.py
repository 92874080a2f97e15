"""The networks of the generator: their interface, the default one, and their random inputs."""

from abc import ABC, abstractmethod
from dataclasses import KW_ONLY, dataclass
from typing import Any, ClassVar

import numpy as np
from scipy.special import ndtri
from sklearn.base import BaseEstimator, clone
from torch import nn

from skdpot._utils.parameters import HasMethods, check_parameters
from skdpot._utils.streams import torch_randomness
from skdpot.base import COUNT
from skdpot.nets.layers import LatentEncoding
from skdpot.nets.networks import checked_network

_LARGEST_LATENT_DIM = 32
_TINY = 1e-12  # latent numbers are finite


class GeneratorNetwork(BaseEstimator, ABC):
    """A description of the network from latent numbers to rows.

    The generator copies it, and builds its network from public facts alone, before the charge.
    """

    @property
    def of_caller(self) -> bool:
        """Whether the module is the caller's, so that `build` is tried before the charge."""
        return True

    @abstractmethod
    def dimension(self, n_features: int) -> int:
        """Return the number of latent numbers."""

    @abstractmethod
    def build(
        self, n_features: int, n_classes: int, width: int, rng: np.random.Generator
    ) -> nn.Module:
        """Make the network with initial weights.

        Parameters
        ----------
        n_features : int
            Number of outputs.
        n_classes : int
            Number of indicators of classes, which follow the latent numbers in the input; 0 without
            classes.
        width : int
            Number of units of hidden layers that are not given.
        rng : numpy.random.Generator
            Seed of the weights.

        Returns
        -------
        torch.nn.Module
            From (n, dimension + n_classes) to (n, n_features).
        """


@dataclass(eq=False, repr=False)
class LatentNetwork(GeneratorNetwork):
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
        """Whether there is a module."""
        return self.module is not None

    def dimension(self, n_features: int) -> int:
        """Return the number of latent numbers; the default holds one more, for the component."""
        return self.latent_dim or 1 + min(n_features, _LARGEST_LATENT_DIM)

    def build(
        self, n_features: int, n_classes: int, width: int, rng: np.random.Generator
    ) -> nn.Module:
        """Make the network with initial weights, and check the shape of its outputs."""
        latent_dim = self.dimension(n_features)
        with torch_randomness(rng):
            if self.module is None:
                return make_mlp(latent_dim, n_classes, n_features, width)
            inputs = "latent_dim numbers, and one indicator per class if there are classes"
            rows = "one column per feature of X"
            width = latent_dim + n_classes
            return checked_network(self.module, width, n_features, inputs=inputs, outputs=rows)


def chosen_network(module: Any) -> GeneratorNetwork:
    """Return a copy of a description of a network, or the one of a caller's module, validated."""
    held = isinstance(module, GeneratorNetwork)
    chosen: GeneratorNetwork = clone(module) if held else LatentNetwork(module)
    check_parameters(chosen)
    return chosen


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
    """Draw normal numbers, stratified in each column, and append the indicators of classes."""
    intervals = rng.permuted(np.tile(np.arange(n_samples), (latent_dim, 1)), axis=1).T
    levels = (intervals + rng.random((n_samples, latent_dim))) / n_samples
    latents = ndtri(np.clip(levels, _TINY, 1 - _TINY)).astype(np.float32)
    if classes is None:
        return latents
    return np.concatenate([latents, classes.astype(np.float32)], axis=1)
