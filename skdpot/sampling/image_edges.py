"""Public maps and directions for images: edges beside pixels, waves and local patterns."""

import math
from typing import Any

import numpy as np
import torch
from numpy.typing import ArrayLike
from scipy.linalg import block_diag
from sklearn.utils import check_array
from torch import nn
from torch.nn import functional

from skdpot._utils.streams import solver_generator
from skdpot.ot.directions import image_directions
from skdpot.sampling.architecture import image_dimensions

LEAST_WITH_EDGES = 5  # pixels of a side
_EDGE_SHARE = 4  # one direction in four is of edges
_ROWS_AT_ONCE = 1024
_N_EDGES = 8  # directions of derivatives
_EDGE_SIDE = 5  # of the kernel of a derivative
_EDGE_WIDTH = 1.2  # standard deviation of its smoothing, in pixels
_POOLED = 3  # places of a derivative on a side of an average
_EDGE_GAIN = 4.0


def image_with_sides(image_shape: Any, smallest: int = 1) -> tuple[int, int, int]:
    """Return (channels, height, width); refuse sides shorter than `smallest`."""
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
    view = WithEdges(image_with_sides(image_shape if image else None, LEAST_WITH_EDGES))
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

    A quarter are mixtures of low cosine frequencies, the others patterns of four sizes at random
    places. They are made without data, and suit pixels with declared `bounds`. Most sum to zero, so
    empty parts of images are projected to 0, the middle of a bin if ``n_bins`` of the sketch is
    odd.

    Parameters
    ----------
    image_shape : tuple of int
        (height, width) or (channels, height, width) of flat images.
    n_projections : int, default=1024
        Number of directions.
    edges : bool, default=False
        Whether rows are those of `with_edges`. A quarter of the directions are then single edges,
        and sums and differences of two edges.
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
    image = image_with_sides(image_shape, LEAST_WITH_EDGES if edges else 2)
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
    """Append edges to flat images in (-1, 1): averages of derivatives in eight directions.

    The positive parts of the derivatives of a smoothed image in [0, 1] are averaged over squares of
    6 x 6 pixels, multiplied by 4, cut at 1 and mapped to (-1, 1).
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
