"""The plane that points of many features are drawn in: public directions."""

from typing import Any

import numpy as np

from skdpot._utils.rng import solver_generator
from skdpot.metrics._panel_grid import direction_name
from skdpot.metrics._path_input import feature_numbers
from skdpot.metrics._samples import as_numbers
from skdpot.slicing.directions import orthogonal_directions

__all__ = ["in_plane", "plane_names", "plane_of"]


def plane_of(plane: Any, n_features: int, names: Any, random_state: Any) -> np.ndarray:
    """Return one or two directions.

    Parameters
    ----------
    plane : None, "random", one or two features, or array of shape (1 or 2, n_features)
        What the caller asked for.
    n_features : int
        Number of features.
    names : sequence of str or None
        Their names.
    random_state : int, RandomState or None
        For random directions.

    Returns
    -------
    ndarray of shape (1 or 2, n_features)
        Rows of unit length.

    Raises
    ------
    ValueError
        If features do not exist, or directions have another shape or no length.
    """
    if isinstance(plane, str) and plane == "random" and n_features > 1:
        return orthogonal_directions(2, n_features, solver_generator(random_state))
    if plane is not None and not isinstance(plane, str) and np.ndim(plane) == 2:
        directions = as_numbers(plane, "plane")
        lengths = np.linalg.norm(directions, axis=1, keepdims=True)
        if directions.shape[1] != n_features or len(directions) > 2 or not (lengths > 0).all():
            raise ValueError(
                f"plane has shape {directions.shape}; it must be one or two directions of "
                f"{n_features} features each, none of them zero."
            )
        return np.asarray(directions / lengths)
    if isinstance(plane, str) and plane == "random":
        plane = None
    return np.eye(n_features)[list(feature_numbers(plane, n_features, names))]


def plane_names(directions: np.ndarray, names: list[str]) -> list[str]:
    """Return what to write at the axes."""
    return [direction_name(direction, names) for direction in directions]


def in_plane(points: np.ndarray, directions: np.ndarray) -> np.ndarray:
    """Return where points are drawn, (..., n, 2).

    Along a single direction they are drawn against the share of points that lie below.
    """
    where: np.ndarray = points @ directions.T
    if len(directions) == 2:
        return where
    ranks = np.argsort(np.argsort(where, axis=-2, kind="stable"), axis=-2)
    return np.concatenate([where, (ranks + 0.5) / points.shape[-2]], axis=-1)
