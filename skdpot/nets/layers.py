"""Layers of this package, which treat every record by itself (`skdpot.nets.per_sample`)."""

import math

import torch
from torch import nn
from torch.nn import functional

_N_COMPONENTS = 64  # of a latent encoding by default


class ToSphere(nn.Module):
    """Project codes to the unit sphere."""

    def forward(self, codes: torch.Tensor) -> torch.Tensor:
        """Divide each row by its norm; leave a row of zeros unchanged."""
        return functional.normalize(codes, dim=1)


class WideTanh(nn.Module):
    """A scaled hyperbolic tangent that is steep at the values 1 and -1 (LeCun et al. 1998)."""

    def forward(self, values: torch.Tensor) -> torch.Tensor:
        """Return numbers in (-1.7159, 1.7159)."""
        return 1.7159 * torch.tanh(values * (2 / 3))


class LatentEncoding(nn.Module):
    """Map the first latent number to the indicator of one of K components; keep the others."""

    def __init__(self, latent_dim: int, n_columns: int, n_components: int = _N_COMPONENTS) -> None:
        super().__init__()
        self.latent_dim, self.n_components = latent_dim, n_components
        self.n_outputs = n_columns - 1 + n_components
        # With torch's initial weights of the next layer, the contribution of an indicator then has
        # a standard deviation of 1.
        self.weight = math.sqrt(3.0 * self.n_outputs)

    def forward(self, inputs: torch.Tensor) -> torch.Tensor:
        """Return latent numbers, then the scaled indicators of the component and of the class."""
        position = torch.special.ndtr(inputs[:, :1]) * self.n_components
        component = position.long().clamp(0, self.n_components - 1)
        numbers = torch.arange(self.n_components, device=inputs.device)
        indicators = (component == numbers).to(inputs.dtype)
        rest = inputs[:, 1 : self.latent_dim]
        marked = torch.cat([indicators, inputs[:, self.latent_dim :]], dim=1)
        return torch.cat([rest, self.weight * marked], dim=1)
