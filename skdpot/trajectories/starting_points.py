"""Public starting points: centres that keep apart, and particles around released centres."""

import math

import numpy as np
import numpy.typing as npt

__all__ = ["sphere_packed_centers", "start_particles"]

FloatArray = npt.NDArray[np.float64]

_PACKING_TRIES = 100
_PACKING_ROUNDS = 10


def sphere_packed_centers(
    n_clusters: int, n_features: int, radius: float, public: np.random.Generator
) -> FloatArray:
    """Return public starting centres that keep apart from each other and from the boundary.

    Parameters
    ----------
    n_clusters, n_features : int
        Shape of the result.
    radius : float
        Radius of the ball that the data lie in.
    public : numpy.random.Generator
        Draws them.

    Returns
    -------
    ndarray of shape (n_clusters, n_features)
        Random points at distance ``2 a`` from each other and ``a`` from the boundary, with the
        largest ``a`` that a bisection finds them for.
    """
    low, high = 0.0, 1.0
    best = _packed(n_clusters, n_features, 0.0, public)
    for _ in range(_PACKING_ROUNDS):
        apart = (low + high) / 2
        found = _packed(n_clusters, n_features, apart, public)
        if found is None:
            high = apart
        else:
            low, best = apart, found
    return radius * np.asarray(best)


def start_particles(
    centers: npt.ArrayLike,
    shares: npt.ArrayLike | None,
    m: int,
    spread: float,
    rng: np.random.Generator,
) -> FloatArray:
    """Draw particles around released centres: post-processing.

    Parameters
    ----------
    centers : array-like of shape (T, k, d) or (T, d)
        Centres of each time; means are one centre a time.
    shares : array-like of shape (T, k), or None
        Shares of the centres; None is equal shares.
    m : int
        Particles a time.
    spread : float
        Standard deviation of particles around their centre; 0 puts them on it.
    rng : numpy.random.Generator
        Solver's stream.

    Returns
    -------
    ndarray of shape (T, m, d)
        Each centre gets its share of the particles, up to one.

    Raises
    ------
    ValueError
        If shapes do not match, or a number is out of range.
    """
    centers = np.asarray(centers, dtype=np.float64)
    centers = centers[:, None] if centers.ndim == 2 else centers
    if centers.ndim != 3 or 0 in centers.shape:
        raise ValueError(f"`centers` must have shape (T, k, d) or (T, d), got {centers.shape}.")
    n_times, k, n_features = centers.shape
    weights = np.full((n_times, k), 1.0 / k) if shares is None else np.asarray(shares, float)
    if weights.shape != (n_times, k) or not (weights >= 0).all() or not weights.sum(axis=1).all():
        raise ValueError(
            f"`shares` must hold {k} numbers >= 0 for each of {n_times} times, not all 0, got "
            f"shape {weights.shape}."
        )
    if m < 1 or not (math.isfinite(spread) and spread >= 0):
        raise ValueError(f"`m` must be >= 1 and `spread` finite and >= 0, got {m!r}, {spread!r}.")
    weights = weights / weights.sum(axis=1, keepdims=True)
    # Centre j gets the particles whose levels (a + 1/2) / m lie in its part of [0, 1].
    levels = (np.arange(m) + 0.5) / m
    chosen = [np.searchsorted(np.cumsum(w)[:-1], levels, side="right") for w in weights]
    at = centers[np.arange(n_times)[:, None], np.stack(chosen)]
    return at + spread * rng.standard_normal((n_times, m, n_features))


def _packed(
    n_clusters: int, n_features: int, apart: float, public: np.random.Generator
) -> list[FloatArray] | None:
    """Return points of the unit ball with this much room, or None if they are not found."""
    found: list[FloatArray] = []
    tries = 0
    while len(found) < n_clusters:
        direction = public.standard_normal(n_features)
        length = (1.0 - apart) * public.random() ** (1.0 / n_features)
        point = length * direction / np.linalg.norm(direction)
        if all(np.linalg.norm(point - other) >= 2 * apart for other in found):
            found.append(point)
        elif (tries := tries + 1) > _PACKING_TRIES:
            return None
    return found
