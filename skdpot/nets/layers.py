"""Layers of this package; each treats every record by itself (`skdpot.nets.per_sample`)."""

import math

import torch
from torch import nn
from torch.nn import functional

_N_COMPONENTS = 64


class ToSphere(nn.Module):
    """Project codes to the unit sphere."""

    def forward(self, codes: torch.Tensor) -> torch.Tensor:
        """Divide each row by its norm; a row of zeros stays as it is."""
        return functional.normalize(codes, dim=1)


class WideTanh(nn.Module):
    """A hyperbolic tangent that is still steep where it is 1 or -1 (LeCun et al. 1998)."""

    def forward(self, values: torch.Tensor) -> torch.Tensor:
        """Return numbers in (-1.7159, 1.7159)."""
        return 1.7159 * torch.tanh(values * (2 / 3))


class LatentEncoding(nn.Module):
    """Map the first latent number to the indicator of one of K components; keep the others."""

    def __init__(self, latent_dim: int, n_columns: int, n_components: int = _N_COMPONENTS) -> None:
        super().__init__()
        self.latent_dim, self.n_components = latent_dim, n_components
        self.n_outputs = n_columns - 1 + n_components
        # Gives the contribution of an indicator a standard deviation of 1 with torch's initial
        # weights of the next layer.
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
