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
