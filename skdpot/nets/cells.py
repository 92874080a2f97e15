"""The public division of records into the cells whose outputs are compared."""

from dataclasses import dataclass

import numpy as np

__all__ = ["Cells"]


@dataclass(frozen=True, eq=False)
class Cells:
    """How the records are divided, and which parts are to have alike outputs.

    Parameters
    ----------
    codes : ndarray of shape (n_samples,), intp
        Cell of each record; public.
    sizes : tuple of int
        Number of records of each cell; public.
    strata : tuple of tuple of int
        Cells that are compared with each other; empty if nothing is compared.
    names : tuple of str, default=()
        Public name of each cell, for messages.
    """

    codes: np.ndarray
    sizes: tuple[int, ...]
    strata: tuple[tuple[int, ...], ...]
    names: tuple[str, ...] = ()

    @property
    def members(self) -> tuple[np.ndarray, ...]:
        """Positions of the records of each cell."""
        return tuple(np.flatnonzero(self.codes == cell) for cell in range(len(self.sizes)))

    def others(self, cell: int) -> tuple[int, ...]:
        """Return the cells that a cell is compared with."""
        stratum = next((s for s in self.strata if cell in s), ())
        return tuple(other for other in stratum if other != cell)
