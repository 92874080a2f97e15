"""Data values: how the mass of each row changes a distance, exactly or along slices."""

from dataclasses import dataclass

import numpy as np
from numpy.typing import ArrayLike

from skdpot._utils.finite import as_points
from skdpot.ot.measures import weights_of
from skdpot.ot.slices import CDFTable


@dataclass(frozen=True, eq=False, repr=False)
class DataValues:
    """Data values of rows: how fast the squared distance grows with the mass of each row."""

    values: np.ndarray

    def __post_init__(self) -> None:
        """Copy, check and lock the values."""
        values = np.array(self.values, dtype=np.float64)
        if values.ndim != 1 or len(values) == 0 or not np.all(np.isfinite(values)):
            raise ValueError(
                f"values has shape {values.shape}; it must hold one finite number per row."
            )
        values.setflags(write=False)
        object.__setattr__(self, "values", values)

    def noisiest(self, n: int) -> np.ndarray:
        """Positions of the n rows with the largest values, the worst first; ties in order."""
        return self._first(np.argsort(-self.values, kind="stable"), n)

    def most_valuable(self, n: int) -> np.ndarray:
        """Positions of the n rows with the smallest values, the best first; ties in order."""
        return self._first(np.argsort(self.values, kind="stable"), n)

    def detection_curve(self, is_noisy: ArrayLike) -> tuple[np.ndarray, np.ndarray]:
        """Share of the noisy rows found when rows are inspected in order, the noisiest first."""
        noisy = np.asarray(is_noisy)
        if noisy.shape != self.values.shape or noisy.dtype != bool:
            raise ValueError(
                f"is_noisy must hold a bool per row, got shape {noisy.shape}, dtype {noisy.dtype}."
            )
        if not noisy.any():
            raise ValueError("is_noisy marks no row, so there is nothing to find.")
        n_found = np.concatenate([[0], np.cumsum(noisy[self.noisiest(len(noisy))])])
        return np.arange(len(n_found)) / len(noisy), n_found / n_found[-1]

    def __repr__(self) -> str:
        return f"DataValues({len(self.values)} rows)"

    def _first(self, order: np.ndarray, n: int) -> np.ndarray:
        if not 0 <= n <= len(order):
            raise ValueError(f"n={n!r} must be between 0 and the number of rows, {len(order)}.")
        return order[:n]


def calibrated_values(potential: ArrayLike, masses: ArrayLike | None = None) -> np.ndarray:
    """Turn a dual potential into data values, ``s_l = f_l − sum_{j≠l} a_j f_j / (1 − a_l)``.

    s_l is the derivative of the transport cost when row l gains mass that all other rows lose in
    proportion to their masses (Just et al., "LAVA", ICLR 2023, equation 3). Where the optimal
    potential is not unique, the cost has a kink and the value is one of its slopes.
    """
    f = np.asarray(potential, dtype=np.float64)
    if f.ndim != 1 or len(f) == 0:
        raise ValueError(f"potential has shape {f.shape}; it must be (n_rows,), with a row.")
    a = weights_of(masses, len(f))
    rest = 1.0 - a
    centred = f - a @ f
    return np.divide(centred, rest, out=np.zeros_like(f), where=rest > 0)


def sliced_potential(
    rows: ArrayLike, table: CDFTable, *, masses: ArrayLike | None = None
) -> np.ndarray:
    """Kantorovich potential of public rows against a sketch, averaged over its directions.

    *Derivation.* Along one direction let ``u_1 ≤ … ≤ u_n`` be the sorted projections and
    ``C_i = a_1 + … + a_i``. The optimal plan keeps the order (Santambrogio 2015, theorem 2.9): u_i
    is matched with the part of F between the levels C_{i−1} and C_i. Prices f and g are optimal
    when ``f_i + g(y) <= (u_i − y)²`` everywhere, with equality on that part. Both u_i and u_{i+1}
    are matched with ``b_i = F⁻¹(C_i)``, and the difference of the two equations at ``y = b_i`` is

    ``f_{i+1} − f_i = (u_{i+1} − b_i)² − (u_i − b_i)² = ∫_{u_i}^{u_{i+1}} 2 (x − F⁻¹(C_i)) dx``,

    which is the exact integral of ``φ' = 2 (x − T(x))`` with ``T = F⁻¹∘F_rows``, because F_rows is
    constant between two points. Such prices are feasible everywhere, because
    ``(u_{i+1} − y)² − (u_i − y)²`` decreases in y. They are unique up to a constant unless F has
    a gap at a level C_i; then b_i is the lower end of the gap. The cost of a coupling is linear in
    its masses. By the envelope theorem f_θ is therefore the derivative of W₂² along θ with respect
    to the masses, and the mean over θ is the derivative of SW₂².
    """
    points = as_points(rows, "rows")
    weights = weights_of(masses, len(points))
    n_features = table.directions.shape[1]
    if points.shape[1] != n_features:
        raise ValueError(f"rows has shape {points.shape}; it must be (n_rows, {n_features}).")
    total = np.zeros(len(points))
    for k, direction in enumerate(table.directions):
        projections = points @ direction
        order = np.argsort(projections, kind="stable")
        u = projections[order]
        # At level 0 the quantile would be the end of the range, not of the distribution.
        levels = np.clip(np.cumsum(weights[order])[:-1], np.finfo(float).tiny, 1.0)
        borders = table.quantiles_along(k, levels)
        steps = (u[1:] - u[:-1]) * (u[1:] + u[:-1] - 2 * borders)
        total[order[1:]] += np.cumsum(steps)
    potential: np.ndarray = total / len(table.directions)
    potential -= weights @ potential
    return potential


def sliced_values(
    rows: ArrayLike, table: CDFTable, *, masses: ArrayLike | None = None
) -> np.ndarray:
    """Values of public rows against a sketch: how fast SW₂² grows with the mass of each row."""
    return calibrated_values(sliced_potential(rows, table, masses=masses), masses)
