"""Pulling the codes of groups of records together: a penalty of an autoencoder.

The penalty is the mean squared sliced Wasserstein distance between the codes of the groups in a
batch (`skdpot.nets.parity_penalty`). Codes are shortened to a ball before they are compared,
which bounds how far one record moves the gradient. A code outside of the ball is pulled as the
point that it is shortened to, so that it is not lost to the penalty.

References
----------
D. Rodríguez-Vítores, C. Lalanne, J.-M. Loubes, "Learning with differentially private (sliced)
Wasserstein gradients", 2025, appendix B.3.
"""

from dataclasses import dataclass
from itertools import combinations

import numpy as np
import torch

from skdpot.nets.compared_outputs import ClippedOutputs
from skdpot.nets.parity_penalty import ParityPenalty
from skdpot.nets.wasserstein_gradient import ball_width, rank_coupling

__all__ = ["CodeParity"]


@dataclass(frozen=True)
class CodeParity:
    """Mean squared sliced Wasserstein distance between the codes of groups.

    Parameters
    ----------
    latent_dim : int
        Length k of a code.
    batch_sizes : tuple of int
        Records of each of at least two groups in a batch, which holds group after group.
    radius : float
        Norm M that codes are shortened to before they are compared; 1 for codes on the sphere.
    n_slices : int
        Number of directions.
    """

    latent_dim: int
    batch_sizes: tuple[int, ...]
    radius: float
    n_slices: int

    def directions(self, rng: np.random.Generator) -> np.ndarray:
        """Draw the directions of one step from a public stream."""
        return self._compared.directions(self.n_slices, rng)

    def sensitivity(self, clip_jacobian: float) -> float:
        """Bound how far one record moves the gradient, times the size of the whole batch.

        Parameters
        ----------
        clip_jacobian : float
            L, the largest spectral norm of the Jacobian of a code.

        Returns
        -------
        float
            The L2 sensitivity under replace-one within a group: n' times that of
            `ParityPenalty.sensitivity`, for projections in an interval of width 2M.
        """
        of_mean = self._penalty.sensitivity(ball_width(self.radius), clip_jacobian)
        return sum(self.batch_sizes) * of_mean

    def vectors(self, codes: torch.Tensor, directions: np.ndarray) -> torch.Tensor:
        """Return the gradient by each code, times the size of the whole batch.

        Parameters
        ----------
        codes : tensor of shape (sum(batch_sizes), latent_dim)
            Codes of a batch, group after group.
        directions : ndarray of shape (n_slices, latent_dim)
            From `directions`.

        Returns
        -------
        tensor of shape (sum(batch_sizes), latent_dim)
            In double precision.
        """
        shortened = self._compared.values(codes.to(torch.float64)).cpu().numpy()
        of_groups = np.split(shortened, np.cumsum(self.batch_sizes)[:-1])
        vectors = np.concatenate(self._penalty.vectors(of_groups, directions))
        return torch.from_numpy(sum(self.batch_sizes) * vectors).to(codes.device)

    def value(self, codes: torch.Tensor, directions: np.ndarray) -> torch.Tensor:
        """Return the penalty itself, for training without privacy by automatic derivatives."""
        exact = codes.to(torch.float64)
        # The derivative is that of the code itself, also where it was shortened.
        shortened = exact + (self._compared.values(exact) - exact).detach()
        theta = torch.as_tensor(directions, dtype=torch.float64, device=codes.device)
        ordered = [
            (theta @ group.T).sort(dim=1).values for group in shortened.split(self.batch_sizes)
        ]
        pairs = [_squared_distance(a, b) for a, b in combinations(ordered, 2)]
        return self._penalty.pair_weight * torch.stack(pairs).sum()

    @property
    def _penalty(self) -> ParityPenalty:
        return ParityPenalty((tuple(range(len(self.batch_sizes))),), self.batch_sizes)

    @property
    def _compared(self) -> ClippedOutputs:
        return ClippedOutputs(self.latent_dim, self.radius)


def _squared_distance(a: torch.Tensor, b: torch.Tensor) -> torch.Tensor:
    """Return the mean over directions of the squared distance of sorted points, (S, n)."""
    plan = rank_coupling(a.shape[1], b.shape[1])
    gaps = a[:, plan.first] - b[:, plan.second]
    return (gaps**2 @ torch.as_tensor(plan.mass, device=a.device)).mean()
