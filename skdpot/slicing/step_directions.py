"""Fresh public directions for every step, drawn as often as they are needed."""

import math
from collections.abc import Iterator
from dataclasses import dataclass
from functools import cached_property
from typing import Literal

import numpy as np
import numpy.typing as npt

from skdpot.privacy.projections import spectral_norm
from skdpot.slicing.directions import make_directions
from skdpot.slicing.exact_projection import on_direction_grid

__all__ = ["StepDirections", "fresh_directions"]


@dataclass(frozen=True)
class StepDirections:
    """The directions of all steps, as a seed: iterating twice gives the same ones.

    How much one record can change depends on the directions of all steps, and must be known
    before the first of them; keeping `n_steps` matrices for that would be a waste.

    Parameters
    ----------
    slices : {"orthogonal", "uniform"}
        How directions are drawn.
    n_steps, n_slices, n_features : int
        Number of steps, of directions a step, and dimension.
    seed : tuple of int
        From the public stream.
    """

    slices: Literal["orthogonal", "uniform"]
    n_steps: int
    n_slices: int
    n_features: int
    seed: tuple[int, ...]

    def __len__(self) -> int:
        """Return the number of steps."""
        return self.n_steps

    def __iter__(self) -> Iterator[npt.NDArray[np.float32]]:
        """Yield directions of shape (n_slices, n_features), float32, on their grid."""
        rng = np.random.default_rng(self.seed)
        for _ in range(self.n_steps):
            yield on_direction_grid(
                make_directions(self.slices, self.n_slices, self.n_features, rng)
            )

    @cached_property
    def largest_norm(self) -> float:
        r"""Upper bound of the largest singular value of the directions of any step.

        Of orthogonal blocks it is ``sqrt(ceil(L / d))``, whatever is drawn; rounding each entry
        to the grid adds at most the Frobenius norm of the errors, :math:`2^{-24} \sqrt{L d}`,
        and a computed orthogonal matrix is one up to :math:`O(d^{5/2})` machine epsilons [1]_.
        Independent directions are drawn and measured.

        References
        ----------
        .. [1] N. Higham, "Accuracy and Stability of Numerical Algorithms", 2002, theorem 19.4.
        """
        if self.slices == "uniform":
            return max(spectral_norm(directions) for directions in self)
        d = self.n_features
        computed = 1.0 + 16.0 * math.pow(d, 2.5) * float(np.finfo(np.float64).eps)
        blocks = math.ceil(self.n_slices / d)
        return math.sqrt(blocks) * computed + 2.0**-24 * math.sqrt(self.n_slices * d)


def fresh_directions(
    slices: Literal["orthogonal", "uniform"],
    n_steps: int,
    n_slices: int,
    n_features: int,
    rng: np.random.Generator,
) -> StepDirections:
    """Draw a seed for the directions of all steps.

    Parameters
    ----------
    slices : {"orthogonal", "uniform"}
        How directions are drawn.
    n_steps, n_slices, n_features : int
        Number of steps, of directions a step, and dimension.
    rng : numpy.random.Generator
        Public stream.

    Returns
    -------
    StepDirections
    """
    seed = rng.integers(0, 2**63, size=4)
    return StepDirections(slices, n_steps, n_slices, n_features, tuple(int(s) for s in seed))
