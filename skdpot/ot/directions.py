"""Directions of slices: uniform, in orthogonal blocks, or patterns for images."""

import math

import numpy as np
from scipy.fft import idctn
from scipy.ndimage import gaussian_filter
from scipy.stats.qmc import Halton

_WAVES = 8  # low frequencies along each side
_WAVE_SHARE = 4  # every fourth direction is a mixture of waves, the others are local
_SCALES = (1.0, 1.5, 2.5, 4.0)  # of local directions, for images with sides of 28 pixels
_BUMPS = 8  # every eighth local direction is a bump
_LEAST_BUMP, _LARGEST_BUMP = 0.4, 1.0  # scales of bumps
_USUAL_SIDE = 28.0


def uniform_directions(n_projections: int, n_features: int, rng: np.random.Generator) -> np.ndarray:
    """Draw independent uniform directions."""
    rows = rng.standard_normal((n_projections, n_features))
    return _unit(rows)


def orthogonal_directions(
    n_projections: int, n_features: int, rng: np.random.Generator, *, axes_first: bool = False
) -> np.ndarray:
    """Draw directions in Haar-distributed orthogonal blocks of `n_features` rows.

    Each direction alone is uniform on the sphere. Directions within a block are orthogonal, so
    averages over them have a lower variance than averages over independent directions. When L is a
    multiple of d, ``directions.T @ directions`` is exactly ``(L / d)`` times the identity.

    In the plane the blocks have equally spaced angles, which integrates smooth functions of the
    direction far better than independent blocks. Each block alone is still Haar-distributed.
    """
    n_blocks = -(-n_projections // n_features)
    if n_features == 2:
        return _plane_blocks(n_blocks, None if axes_first else rng)[:n_projections]
    blocks = [_haar(n_features, rng) for _ in range(n_blocks - axes_first)]
    if axes_first:
        blocks.insert(0, np.eye(n_features))
    return np.concatenate(blocks)[:n_projections]


def make_directions(
    projections: str | np.ndarray, n_projections: int, n_features: int, rng: np.random.Generator
) -> np.ndarray:
    """Return the directions that a ``projections=`` parameter asks for."""
    if isinstance(projections, str):
        if projections == "uniform":
            return uniform_directions(n_projections, n_features, rng)
        axes_first = projections == "axes+orthogonal"
        return orthogonal_directions(n_projections, n_features, rng, axes_first=axes_first)
    rows = np.asarray(projections, dtype=np.float64)
    if rows.ndim != 2 or rows.shape[1] != n_features or rows.shape[0] == 0:
        raise ValueError(
            f"projections has shape {rows.shape}; an array of directions must have shape "
            f"(n_projections, {n_features}), one column per feature."
        )
    largest = np.abs(rows).max(axis=1, keepdims=True)
    if not np.all(np.isfinite(rows)) or np.any(largest == 0):
        raise ValueError("projections must hold finite rows that are not zero.")
    rows = rows / largest  # squares of very large or small entries would over- or underflow
    return _unit(rows)


def image_directions(
    image: tuple[int, int, int], n_projections: int, rng: np.random.Generator
) -> np.ndarray:
    """Draw directions sensitive to shapes: mixtures of slow waves, and local patterns.

    Waves and local patterns other than bumps are orthogonal to constant images, so that projections
    spread around the middle of their range.
    """
    channels, *sides = image
    waves = [
        idctn(np.eye(1, math.prod(sides), k * sides[1] + j).reshape(sides), norm="ortho")
        for k in range(min(_WAVES, sides[0]))
        for j in range(min(_WAVES, sides[1]))
        if k + j > 0
    ]
    n_waves = n_projections // _WAVE_SHARE if waves else 0
    slow = np.kron(np.eye(channels), np.reshape(waves, (len(waves), math.prod(sides))))
    rows = [orthogonal_directions(n_waves, len(slow), rng) @ slow] if n_waves else []
    places = np.indices(sides)
    unit = max(min(sides) / _USUAL_SIDE, 0.5)
    for number in range(n_projections - n_waves):
        scale = unit * _SCALES[number % len(_SCALES)]
        centre = rng.uniform(0.1, 0.9, size=2) * sides
        squares = np.sum((places - centre[:, None, None]) ** 2, axis=0)
        if number % _BUMPS == 0:
            sharp = unit * rng.uniform(_LEAST_BUMP, _LARGEST_BUMP)
            local = np.exp(-squares / (2 * sharp**2)) * rng.standard_normal((channels, 1, 1))
        else:
            window = np.exp(-squares / (2 * (1.5 * scale) ** 2))
            local = rng.standard_normal(image)
            local = gaussian_filter(local, (0, scale / 2, scale / 2))
            local = window * (local - (window * local).sum((1, 2), keepdims=True) / window.sum())
        rows.append(local.reshape(1, -1))
    return _unit(np.concatenate(rows))


def _unit(rows: np.ndarray) -> np.ndarray:
    return rows / np.linalg.norm(rows, axis=1, keepdims=True)


def _haar(n_features: int, rng: np.random.Generator) -> np.ndarray:
    """Draw a Haar-distributed orthogonal matrix: the Q of a QR with a positive diagonal of R."""
    q, r = np.linalg.qr(rng.standard_normal((n_features, n_features)))
    signs = np.where(np.diag(r) < 0, -1.0, 1.0)
    return q * signs


def _plane_blocks(n_blocks: int, rng: np.random.Generator | None) -> np.ndarray:
    """Return orthogonal pairs in the plane at equally spaced angles, in van der Corput order."""
    order = Halton(1, scramble=False).random(n_blocks)[:, 0].argsort().argsort()
    steps = order / n_blocks
    signs = np.ones(n_blocks)
    if rng is not None:
        steps = (steps + rng.random()) % 1 + rng.integers(0, 4, n_blocks)
        signs = rng.choice([-1.0, 1.0], n_blocks)
    cos, sin = np.cos(np.pi / 2 * steps), np.sin(np.pi / 2 * steps)
    first, second = np.stack([cos, sin], axis=1), np.stack([-sin * signs, cos * signs], axis=1)
    pairs: np.ndarray = np.stack([first, second], axis=1).reshape(-1, 2)
    return pairs + 0.0  # no negative zeros
