"""A network whose prior is that images are smooth shapes that bend."""

import math

import numpy as np
import torch
from scipy.fft import idct
from torch import nn
from torch.nn import functional

_SLOPE = 3.0  # of logits per unit of a coefficient
_DARK = -2.0  # logit of an image whose coefficients are zero
_REACH = 0.25  # of a displacement, in half sides of the image
_FIRST_WEIGHTS = 0.02  # a displacement is nearly none at first
_N_EDGES, _EDGE_SIDE, _EDGE_WIDTH, _POOLED = 8, 5, 1.2, 3
_EDGE_GAIN = 4.0


class WithEdges(nn.Module):
    """Flat images in (-1, 1), followed by how steep they are in eight directions, place by place.

    The derivatives of a smoothed image in [0, 1], where positive, are averaged over squares of 6
    pixels a side, multiplied by 4 and cut at 1; they are returned in (-1, 1) too.
    """

    slopes: torch.Tensor

    def __init__(self, image: tuple[int, int, int]) -> None:
        super().__init__()
        self.shape = image
        places = torch.arange(_EDGE_SIDE) - _EDGE_SIDE // 2
        rows, columns = torch.meshgrid(places, places, indexing="ij")
        angles = (torch.arange(_N_EDGES) * (2 * math.pi / _N_EDGES))[:, None, None]
        slopes = columns * torch.cos(angles) + rows * torch.sin(angles)
        slopes = slopes * torch.exp(-(rows**2 + columns**2) / (2 * _EDGE_WIDTH**2))
        slopes = slopes / slopes.abs().sum(dim=(1, 2), keepdim=True)
        self.register_buffer("slopes", slopes[:, None].repeat(image[0], 1, 1, 1))

    @property
    def n_edges(self) -> int:
        """Number of edges of an image."""
        with torch.no_grad():
            both = self(torch.zeros(1, math.prod(self.shape)))
        return both.shape[1] - math.prod(self.shape)

    def forward(self, flat: torch.Tensor) -> torch.Tensor:
        """Return images and edges, flat."""
        drawn = (flat.unflatten(1, self.shape) + 1) / 2
        steep = functional.conv2d(
            drawn, self.slopes, stride=2, padding=_EDGE_SIDE // 2, groups=self.shape[0]
        )
        pooled = functional.avg_pool2d(functional.relu(steep), _POOLED)
        edges = (_EDGE_GAIN * pooled).clamp(max=1.0).flatten(1)
        return torch.cat([flat, 2 * edges - 1], dim=1)


class DeformedImages(nn.Module):
    """Draw a smooth image and a smooth displacement of its pixels, and apply one to the other.

    A perceptron makes both: low cosine coefficients of the logits of each channel, and of a field
    of displacements, whose coefficients of frequency f are divided by ``1 + f²``. Pixels are
    ``tanh(logit / 2)``, in (-1, 1): edges are sharp where logits are steep. Slant, position, size
    and proportions of a shape are then few numbers, where a network without displacements has to
    learn each shape at each place.
    """

    def __init__(
        self,
        n_inputs: int,
        image: tuple[int, int, int],
        width: int,
        n_frequencies: int,
        n_bends: int,
    ) -> None:
        super().__init__()
        channels, *sides = image
        self.shape = channels, *(min(n_frequencies, side) for side in sides)
        self.bends = 2, *(min(n_bends, side) for side in sides)
        self.trunk = nn.Sequential(
            *(nn.Linear(n_inputs, width), nn.BatchNorm1d(width), nn.SiLU()),
            *(nn.Linear(width, width), nn.BatchNorm1d(width), nn.SiLU()),
        )
        self.image = nn.Linear(width, math.prod(self.shape))
        self.bend = nn.Linear(width, math.prod(self.bends))
        nn.init.normal_(self.bend.weight, std=_FIRST_WEIGHTS)
        nn.init.zeros_(self.bend.bias)
        for name, sizes in (("of_image", self.shape[1:]), ("of_bend", self.bends[1:])):
            for side, size, axis in zip(sides, sizes, ("rows", "columns"), strict=True):
                waves = torch.from_numpy(idct(np.eye(side)[:size], norm="ortho")).float()
                self.register_buffer(f"{axis}_{name}", waves)
        squares = [torch.arange(size) ** 2 for size in self.bends[1:]]
        damping = _REACH * math.sqrt(math.prod(sides)) / (1 + squares[0][:, None] + squares[1])
        self.register_buffer("damping", damping)
        centres = [(torch.arange(side) + 0.5) * (2 / side) - 1 for side in sides]
        rows, columns = torch.meshgrid(*centres, indexing="ij")
        self.register_buffer("places", torch.stack([columns, rows], dim=-1))

    def forward(self, inputs: torch.Tensor) -> torch.Tensor:
        """Return flat images, channels first."""
        hidden = self.trunk(inputs)
        drawn = self.image(hidden).unflatten(1, self.shape)
        logits = _DARK + _SLOPE * (self.rows_of_image.T @ drawn @ self.columns_of_image)
        bend = self.bend(hidden).unflatten(1, self.bends) * self.damping
        moved = (self.rows_of_bend.T @ bend @ self.columns_of_bend).permute(0, 2, 3, 1)
        where = self.places + moved
        bent = functional.grid_sample(logits, where, padding_mode="border", align_corners=False)
        return torch.tanh(0.5 * bent).flatten(1)
