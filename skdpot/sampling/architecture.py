"""The networks of the autoencoder and of the generator, as parameters."""

import math
from dataclasses import KW_ONLY, dataclass
from typing import Any, ClassVar, Self

import numpy as np
import torch
from numpy.typing import ArrayLike
from scipy.fft import idct
from scipy.linalg import block_diag
from sklearn.base import BaseEstimator, clone
from sklearn.utils import check_array
from torch import nn
from torch.nn import functional

from skdpot._utils.validation import (
    Described,
    HasMethods,
    StrOptions,
    check_parameters,
    solver_generator,
    torch_randomness,
)
from skdpot.base import COUNT
from skdpot.nets.networks import (
    build_networks,
    check_widths,
    checked_network,
    image_dimensions,
    make_mlp,
)
from skdpot.nets.per_sample import ToSphere, WideTanh
from skdpot.ot.slices import image_directions
from skdpot.release.bounds import DataBounds
from skdpot.sampling.generator_training import OutputUnits

_LARGEST_LATENT_DIM = 32
_IMAGE_WIDTH = 160
_EDGE_SHARE = 4  # one direction in so many is of edges
_LEAST_WITH_EDGES = 5
_ROWS_AT_ONCE = 1024
_SLOPE = 3.0  # of logits per unit of a coefficient
_DARK = -2.0  # logit of an image whose coefficients are zero
_REACH = 0.25  # of a displacement, in half sides of the image
_FIRST_WEIGHTS = 0.02  # a displacement is nearly none at first
_N_EDGES, _EDGE_SIDE, _EDGE_WIDTH, _POOLED = 8, 5, 1.2, 3
_EDGE_GAIN = 4.0


NETWORKS: list[Any] = [
    StrOptions({"mlp", "conv", "dcgan"}),
    Described("a pair (encoder, decoder)", lambda value: isinstance(value, tuple | list)),
]


class _Networks(BaseEstimator):
    @classmethod
    def of(cls, given: Any) -> Self:
        """Return the networks that a parameter holds, or is short for, as a copy."""
        chosen = clone(given) if isinstance(given, _Networks) else cls(given)
        check_parameters(chosen)
        return chosen


@dataclass(eq=False, repr=False)
class Architecture(_Networks):
    """Encoder and decoder of an autoencoder.

    Parameters
    ----------
    networks : {"mlp", "conv", "dcgan"} or (encoder, decoder), default="mlp"
        "mlp" has two hidden layers each way; "conv" is for images with even sides (28 x 28,
        32 x 32), "dcgan" for 64 x 64. A pair holds `torch.nn.Module` or functions without
        arguments that make them. Modules are copied and start from the weights that they
        have, which must be public. The encoder sees tensors of `image_shape`, or flat rows,
        scaled to [-1, 1] by the bounds; the decoder returns as many values.
    image_shape : tuple of int, optional
        (height, width) or (channels, height, width) of the images in the flat rows of X.
    normalize_codes : bool, default=True
        Divide every code by its norm. The prior is then uniform on the sphere, otherwise
        standard normal.

    References
    ----------
    "conv" and "dcgan": I. Sebag et al., "Differentially private gradient flow based on the sliced
    Wasserstein distance", 2023, appendix C.2.
    """

    networks: Any = "mlp"
    _: KW_ONLY
    image_shape: tuple[int, ...] | None = None
    normalize_codes: bool = True

    _parameter_constraints: ClassVar[dict[str, list[Any]]] = {
        "networks": NETWORKS,
        "image_shape": [tuple, list, None],
        "normalize_codes": ["boolean"],
    }

    def build(
        self, n_features: int, latent_dim: int, rng: np.random.Generator, *, box: bool
    ) -> nn.Sequential:
        """Make encoder and decoder with initial weights, and check what they compute."""
        if self.normalize_codes and latent_dim < 2:
            raise ValueError(
                "normalize_codes=True needs latent_dim of at least 2: codes would be -1 or 1."
            )
        image = image_dimensions(self.image_shape, n_features)
        with torch_randomness(rng):
            encoder, decoder = build_networks(
                self.networks, n_features=n_features, image=image, latent_dim=latent_dim
            )
        if self.normalize_codes:
            encoder = nn.Sequential(encoder, ToSphere())
        if box and isinstance(self.networks, str):
            # Convolutions that may end in saturation learn to draw a black ground and nothing else.
            decoder = nn.Sequential(decoder, nn.Tanh() if self.networks == "mlp" else WideTanh())
        rows = n_features, "one column per feature of X, or images of image_shape if that is given"
        codes = latent_dim, "latent_dim numbers per row"
        check_widths("architecture: the encoder", encoder, rows, codes)
        check_widths(
            "architecture: the decoder", decoder, codes, (n_features, "one column per feature of X")
        )
        return nn.Sequential(encoder, decoder)


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


@dataclass(eq=False, repr=False)
class ImageNetwork(_Networks):
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
    of_caller = True

    def dimension(self, n_features: int) -> int:
        """Return the number of latent numbers."""
        return self.latent_dim

    def units(self, bounds: DataBounds) -> OutputUnits:
        """Return the map from (-1, 1) to the range of the mapped pixels."""
        ends = np.tile([[-1.0], [1.0]], bounds.n_features)
        if self.pixels is not None:
            ends = bounds.to_ball(np.tile(np.reshape(self.pixels, (2, 1)), bounds.n_features))
        low, high = ends
        return OutputUnits((low + high) / 2, float(np.mean(high - low)) / 2)

    def build(
        self, n_features: int, n_classes: int, width: int, rng: np.random.Generator
    ) -> nn.Module:
        """Make the network with initial weights."""
        image = _image(self.image_shape, _LEAST_WITH_EDGES if self.edges else 1)
        seen = [WithEdges(image)] if self.edges else []
        image_dimensions(self.image_shape, n_features - sum(view.n_edges for view in seen))
        if self.pixels is not None and (len(self.pixels) != 2 or not np.less(*self.pixels)):
            raise ValueError("pixels of ImageNetwork must be (low, high), such as (0, 1).")
        sizes = (_IMAGE_WIDTH, self.n_frequencies, self.n_bends)
        with torch_randomness(rng):
            images = DeformedImages(self.latent_dim + n_classes, image, *sizes)
        return nn.Sequential(images, *seen)


def _image(image_shape: Any, smallest: int = 1) -> tuple[int, int, int]:
    """Return (channels, height, width) of images whose sides are not too small."""
    image = image_dimensions(image_shape, math.prod(image_shape or ()))
    if image is None or min(image[1:]) < smallest:
        raise ValueError(f"image_shape must be like (28, 28), with sides of at least {smallest}.")
    return image


def with_edges(X: ArrayLike, image_shape: tuple[int, ...]) -> np.ndarray:
    """Append the edges of images to their pixels: a public map of each row by itself.

    The edges are the positive parts of the derivatives of each channel in eight directions,
    averaged over places of 6 x 6 pixels, in [0, 1]. Their distributions describe a class better
    than projections of pixels do.

    Parameters
    ----------
    X : array-like of shape (n_samples, n_features)
        Flat images, channels first, with pixels in [0, 1].
    image_shape : tuple of int
        (height, width) or (channels, height, width).

    Returns
    -------
    ndarray of shape (n_samples, n_features + n_edges), float32
        Rows for a generator with ``ImageNetwork(image_shape, pixels=(0, 1), edges=True)``. The
        first columns of what it samples are images.

    Raises
    ------
    ValueError
        If the rows are not images of this shape.

    Examples
    --------
    >>> import numpy as np
    >>> from skdpot.mechanisms import with_edges
    >>> with_edges(np.zeros((3, 784)), (28, 28)).shape
    (3, 912)
    """
    rows = check_array(X, dtype=np.float32)
    image = image_dimensions(image_shape, rows.shape[1])
    view = WithEdges(_image(image_shape if image else None, _LEAST_WITH_EDGES))
    with torch.no_grad():
        chunks = torch.from_numpy(2 * rows - 1).split(_ROWS_AT_ONCE)
        return (np.concatenate([view(chunk).numpy() for chunk in chunks]) + 1) / 2


def image_projections(
    image_shape: tuple[int, ...],
    n_projections: int = 1024,
    *,
    edges: bool = False,
    random_state: Any = 0,
) -> np.ndarray:
    """Draw directions for the sketch of images: slow waves and local patterns.

    A quarter are mixtures of low cosine frequencies. The others are patterns of four sizes at
    random places. They are public, made without data, and suit pixels with declared `bounds`. Most
    sum to zero: with an odd ``n_bins`` of the sketch, what is empty is in the middle of a bin.

    Parameters
    ----------
    image_shape : tuple of int
        (height, width) or (channels, height, width) of flat images.
    n_projections : int, default=1024
        Number of directions.
    edges : bool, default=False
        Whether rows are those of `with_edges`; a quarter of the directions are then of edges: of
        one each, and of sums and differences of two.
    random_state : int, RandomState or None, default=0
        Seed.

    Returns
    -------
    ndarray of shape (n_projections, n_features)
        For the parameter `projections` of `Sketch` and `SlicedSketch`.

    Raises
    ------
    ValueError
        If the shape is not that of an image.

    Examples
    --------
    >>> from skdpot.mechanisms import image_projections
    >>> image_projections((28, 28)).shape
    (1024, 784)
    """
    image = _image(image_shape, _LEAST_WITH_EDGES if edges else 2)
    rng = solver_generator(random_state)
    if not edges:
        return image_directions(image, n_projections, rng)
    n_edges, n_seen = WithEdges(image).n_edges, n_projections // _EDGE_SHARE
    of_edges = np.eye(n_edges)[:n_seen]
    pairs = np.zeros((n_seen - len(of_edges), n_edges))
    for row in pairs:
        row[rng.choice(n_edges, 2, replace=False)] = 1, rng.choice([-1, 1])
    pixels = image_directions(image, n_projections - n_seen, rng)
    return block_diag(pixels, np.concatenate([of_edges, pairs / math.sqrt(2)]))


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
