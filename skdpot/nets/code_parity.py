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

import math
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
        Wanted number of directions; made a multiple of `latent_dim`, so that they come in whole
        orthogonal blocks.
    """

    latent_dim: int
    batch_sizes: tuple[int, ...]
    radius: float
    n_slices: int

    def directions(self, rng: np.random.Generator) -> np.ndarray:
        """Draw the directions of one step from a public stream."""
        n_blocks = math.ceil(self.n_slices / self.latent_dim)
        return self._compared.directions(n_blocks * self.latent_dim, rng)

    def sensitivity(self, clip_jacobian: float) -> float:
        r"""Bound how far one record moves the gradient, times the size of the whole batch.

        One direction at a time, `moving_side_sensitivity` bounds a pair of groups by
        :math:`4 r L = 8 M L` (times one over the size of the record's group). For
        :math:`k \ge 4` whole orthogonal blocks, :math:`\Theta^\top \Theta = (S / k) I`, do better.
        Let the record's code move from u to u', and let v and v' hold what it is matched with
        along each direction; :math:`v_\theta \le v'_\theta` where :math:`\theta^\top u \le
        \theta^\top u'`, and the reverse. As there, the gradient moves by at most 2L times

        .. math:: F = \tfrac{1}{S} \|\Theta^\top (\Theta u - v)\|
                  + \tfrac{1}{S} \|\Theta^\top (\Theta u' - v')\|
                  + \tfrac{1}{S} \|v' - v\|_1 + \tfrac{1}{S} \|\Theta (u' - u)\|_1,

        where its own two terms are now added up over the directions before their length is taken.
        For given codes F is convex in (v, v'), so it is largest where along each direction either
        :math:`v = v' = \pm M`, say for a share q of the directions, or they are the two ends
        -M and M. In units of M, with :math:`2x` for the last term: the third one is
        :math:`2 (1 - q)`; the first two are at most :math:`\sqrt{2 (a^2 + b^2)}` for their
        lengths a and b, and with :math:`\|\Theta^\top v\| \le S / \sqrt{k}`

        .. math:: a^2 + b^2 \le \tfrac{2}{k^2} + \tfrac{2}{k} - \tfrac{2}{k S}
                  \left(\langle \Theta u, v \rangle + \langle \Theta u', v' \rangle\right).

        The bracket is half of :math:`\langle \Theta (u' - u), v' - v \rangle +
        \langle \Theta (u + u'), v + v' \rangle`. In the first product all terms are positive, and
        those that are missing at the share q are at most :math:`\sqrt{q / k} \|u' - u\|`
        (times 2S); in the second only that share remains, so that it is at least
        :math:`- 2 S \sqrt{q / k} \|u + u'\|`. As :math:`\|u' - u\| + \|u' + u\| \le 2
        \sqrt 2`, the bracket over S is at least :math:`2 x - 2 \sqrt{2 q / k}`, and

        .. math:: \frac{F}{2} \le \sqrt{\tfrac{1}{k^2} + \tfrac{1}{k} - \tfrac{2 x}{k}
                  + \tfrac{2}{k} \sqrt{2 q / k}} + 1 - q + x.

        It grows with x, which is at most :math:`1 / \sqrt k \le 1/2`, where the root without its
        last term is :math:`1 / \sqrt k - 1 / k`. With :math:`\sqrt{y^2 + z} \le y + z / 2 y` the
        best q leaves

        .. math:: \frac{F}{2} \le 1 + \frac{2}{\sqrt k} - \frac{1}{k}
                  + \frac{1}{2 (k - \sqrt k)^2},

        in place of 2. All but the last fraction is attained: one block, u' along the sum of its
        directions, u = -u'.

        Parameters
        ----------
        clip_jacobian : float
            L, the largest spectral norm of the Jacobian of a code.

        Returns
        -------
        float
            The L2 sensitivity under replace-one within a group: n' times that of
            `ParityPenalty.sensitivity`, for projections in an interval of width 2M, times the
            share of it that orthogonal directions leave.
        """
        root, share = math.sqrt(self.latent_dim), 1.0
        if self.latent_dim >= 4:
            k = self.latent_dim
            share = min(1.0, 0.5 + 1.0 / root - 0.5 / k + 0.25 / (k - root) ** 2)
        of_mean = self._penalty.sensitivity(ball_width(self.radius) * share, clip_jacobian)
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
