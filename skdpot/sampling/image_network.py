"""A network that draws images: a smooth picture, bent by a smooth field of displacements."""

import math
from dataclasses import KW_ONLY, dataclass
from typing import Any, ClassVar

import numpy as np
import torch
from scipy.fft import idct
from torch import nn
from torch.nn import functional

from skdpot._utils.streams import torch_randomness
from skdpot.base import COUNT
from skdpot.release.bounds import DataBounds
from skdpot.sampling.architecture import image_dimensions
from skdpot.sampling.generator_network import GeneratorNetwork
from skdpot.sampling.image_edges import LEAST_WITH_EDGES, WithEdges, image_with_sides
from skdpot.sampling.output_units import OutputUnits

_WIDTH = 160  # of the hidden layers
_SLOPE = 3.0  # of logits per unit of a coefficient
_DARK = -2.0  # logit of an image whose coefficients are zero
_REACH = 0.25  # of a displacement, in half sides of the image
_FIRST_WEIGHTS = 0.02  # displacements are small at first


@dataclass(eq=False, repr=False)
class ImageNetwork(GeneratorNetwork):
    r"""Network of a generator of images: smooth shapes, bent by smooth displacements.

    A perceptron draws low cosine coefficients of a picture and of a field of displacements; the
    picture is moved by the field and squashed to the range of the pixels. No image is needed for
    this prior, public or private. It suits shapes on a ground, such as digits, letters, clothes.

    Parameters
    ----------
    image_shape : tuple of int
        (height, width) or (channels, height, width) of the images in the flat rows of X.
    latent_dim : int, default=12
        Number of random numbers per image.
    n_frequencies : int, default=14
        Cosine coefficients of the picture along each side: the number of details before it is bent.
    n_bends : int, default=5
        Cosine coefficients of the displacements along each side.
    pixels : (low, high), optional
        Range of the pixels, if it is not that of the bounds of the generator.
    edges : bool, default=False
        Whether rows are those of `with_edges`: images, each followed by its edges.

    See Also
    --------
    image_projections : Directions for images.

    Notes
    -----
    The generator needs declared `bounds`. A sketch sees directions around the middle of the bounds:
    for images that are mostly of one value, such as a black ground, bounds around this value, and
    `pixels`, show more. The network normalises its batches, so that it is not for "gradient".

    Examples
    --------
    >>> import numpy as np
    >>> from skdpot import DPSlicedGenerator
    >>> from skdpot.mechanisms import ImageNetwork, Sketch, image_projections
    >>> X = np.random.default_rng(0).uniform(0, 1, size=(500, 64))
    >>> sketch = Sketch(projections=image_projections((8, 8), 100))
    >>> network = ImageNetwork((8, 8), pixels=(0, 1))
    >>> generator = DPSlicedGenerator(sketch, module=network, bounds=(-1, 1), n_steps=9)
    >>> generator.fit(X).sample(3).shape
    (3, 64)
    """

    image_shape: tuple[int, ...] | None = None
    _: KW_ONLY
    latent_dim: int = 12
    n_frequencies: int = 14
    n_bends: int = 5
    pixels: tuple[float, float] | None = None
    edges: bool = False

    _parameter_constraints: ClassVar[dict[str, list[Any]]] = {
        "image_shape": [tuple, list, None],
        "latent_dim": [COUNT],
        "n_frequencies": [COUNT],
        "n_bends": [COUNT],
        "pixels": [tuple, list, None],
        "edges": ["boolean"],
    }

    def dimension(self, n_features: int) -> int:
        """Return the number of latent numbers."""
        return self.latent_dim

    def units(self, bounds: DataBounds) -> OutputUnits:
        """Return the affine map from (-1, 1) to the range of the mapped pixels."""
        ends = np.tile([[-1.0], [1.0]], bounds.n_features)
        if self.pixels is not None:
            ends = bounds.to_ball(np.tile(np.reshape(self.pixels, (2, 1)), bounds.n_features))
        low, high = ends
        return OutputUnits((low + high) / 2, float(np.mean(high - low)) / 2)

    def build(
        self, n_features: int, n_classes: int, width: int, rng: np.random.Generator
    ) -> nn.Module:
        """Make the network with initial weights."""
        image = image_with_sides(self.image_shape, LEAST_WITH_EDGES if self.edges else 1)
        seen = [WithEdges(image)] if self.edges else []
        image_dimensions(self.image_shape, n_features - sum(view.n_edges for view in seen))
        if self.pixels is not None and (len(self.pixels) != 2 or not np.less(*self.pixels)):
            raise ValueError("pixels of ImageNetwork must be (low, high), such as (0, 1).")
        with torch_randomness(rng):
            images = DeformedImages(
                self.latent_dim + n_classes,
                image,
                width=_WIDTH,
                n_frequencies=self.n_frequencies,
                n_bends=self.n_bends,
            )
        return nn.Sequential(images, *seen)


class DeformedImages(nn.Module):
    """Draw a smooth image and a smooth field of displacements, and move the pixels by the field.

    A perceptron computes the low cosine coefficients of the logits of each channel and of the
    field, whose coefficients of frequency f are divided by ``1 + f²``. Pixels are ``tanh(logit /
    2)``, in (-1, 1), with sharp edges where logits are steep. A few numbers determine slant,
    position, size and proportions of a shape. A network without displacements has to learn each
    shape at each place.
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
