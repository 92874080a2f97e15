r"""Projections that depend on one row alone, to the last bit.

Noise that is calibrated to what one record can change hides nothing of what *other* records'
rounding errors do. A matrix product in floating point adds up in an order that depends on the
shape of the batch, on threads and on the device; a value on the edge between two lattice
points would then move for records that did not change, and their number has no bound.

So the product is taken in fixed point. Rows u of the ball are divided by its radius and cut to
28 binary digits, directions are rounded to 23, and their products are integers in units of
:math:`2^{-51}`. Any partial sum over features is at most :math:`\|u/R\| \|\theta\|` by
Cauchy-Schwarz, about 1, so far below :math:`2^{53}` units that double precision holds every
one of them exactly: no order of additions and no fused multiplication changes anything.
Cutting is towards zero, which keeps rows in the ball, and directions on the grid are what is
published (single precision holds them): the sensitivity of what is computed is that of exact
projections, with nothing to add.
"""

from typing import Any

import numpy as np
import numpy.typing as npt

from skdpot.privacy.noise import round_to_lattice

__all__ = ["on_direction_grid", "project_rows", "project_to_lattice"]

_ROW_UNITS = 2.0**28
_DIRECTION_UNITS = 2.0**23
_UNITS = _ROW_UNITS * _DIRECTION_UNITS


def on_direction_grid(directions: npt.NDArray[Any]) -> npt.NDArray[np.float32]:
    """Round directions to multiples of 2**-23, which single precision holds exactly.

    Parameters
    ----------
    directions : ndarray of shape (n_slices, n_features)
        Unit rows.

    Returns
    -------
    ndarray of shape (n_slices, n_features), float32
        Each entry moves by at most 2**-24.
    """
    return (np.rint(directions * _DIRECTION_UNITS) / _DIRECTION_UNITS).astype(np.float32)


def project_rows(
    rows: npt.NDArray[Any], directions: npt.NDArray[np.float32], radius: float
) -> npt.NDArray[np.float64]:
    """Project rows of a ball on directions of the grid, in units of the ball's radius.

    Parameters
    ----------
    rows : ndarray of shape (n_rows, n_features)
        Of norm at most `radius`.
    directions : ndarray of shape (n_slices, n_features), float32
        From `on_direction_grid`.
    radius : float
        Radius of the ball.

    Returns
    -------
    ndarray of shape (n_slices, n_rows)
        ``⟨u, θ⟩ / radius`` of each row cut to 28 binary digits: exact.
    """
    return _integer_projections(rows, directions, radius) / _UNITS


def project_to_lattice(
    rows: npt.NDArray[Any], directions: npt.NDArray[np.float32], radius: float, lattice: float
) -> npt.NDArray[np.int64]:
    """Project like `project_rows` and round to the nearest multiples of `lattice`.

    Parameters
    ----------
    rows, directions, radius
        As in `project_rows`.
    lattice : float
        Spacing in units of the radius, a power of two.

    Returns
    -------
    ndarray of shape (n_slices, n_rows), int64
        In units of `lattice`.
    """
    return round_to_lattice(_integer_projections(rows, directions, radius), lattice * _UNITS)


def _integer_projections(
    rows: npt.NDArray[Any], directions: npt.NDArray[np.float32], radius: float
) -> npt.NDArray[np.float64]:
    cut = np.trunc(rows.astype(np.float64) / radius * _ROW_UNITS)
    projections: npt.NDArray[np.float64] = (
        directions.astype(np.float64) * _DIRECTION_UNITS
    ) @ cut.T
    return projections
