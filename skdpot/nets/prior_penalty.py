r"""Pulling the codes of a batch towards a prior: a sliced Wasserstein penalty that can be private.

Along a direction θ the prior's quantiles at (j − 1/2)/n are known in closed form, so that the
penalty of a batch of n codes c_i is

.. math:: \frac{1}{S} \sum_\theta \frac{1}{n} \sum_j (u_{(j)} - v_j)^2,
   \qquad u_i = \theta^\top c_i,

with increasing constants v_1, ..., v_n. Its gradient, times n, is :math:`\sum_i J_i^\top w_i` with
:math:`w_i = \frac{2}{S} \sum_\theta (u_i - v_{r_\theta(i)}) \theta` and the rank r.
"""

import math
from dataclasses import dataclass
from typing import Literal

import numpy as np
import torch
from scipy.special import betaincinv, ndtri

from skdpot.slicing.directions import orthogonal_directions

__all__ = ["Prior", "PriorPenalty", "prior_samples"]

Prior = Literal["sphere", "normal"]

_NORMAL_MARGIN = 2.5  # fewer than one normal code in a thousand is longer than sqrt(k) + 2.5


@dataclass(frozen=True)
class PriorPenalty:
    """Squared sliced Wasserstein distance between a batch of codes and a prior.

    Parameters
    ----------
    prior : {"sphere", "normal"}
        Uniform on the unit sphere, or standard normal.
    latent_dim : int
        Length k of a code; at least 2 on the sphere.
    batch_size : int
        Number n of codes in a batch.
    n_slices : int
        Wanted number of directions; made a multiple of `latent_dim`, so that they come in whole
        orthogonal blocks.
    """

    prior: Prior
    latent_dim: int
    batch_size: int
    n_slices: int

    @property
    def n_directions(self) -> int:
        """Number of directions S, a multiple of the length of a code."""
        return self.latent_dim * math.ceil(self.n_slices / self.latent_dim)

    @property
    def radius(self) -> float:
        """Norm M that codes are shortened to before they are compared with the prior."""
        return 1.0 if self.prior == "sphere" else math.sqrt(self.latent_dim) + _NORMAL_MARGIN

    @property
    def quantiles(self) -> np.ndarray:
        """The prior's quantiles along any direction, increasing, of shape (batch_size,)."""
        levels = (np.arange(self.batch_size) + 0.5) / self.batch_size
        if self.prior == "normal":
            normal: np.ndarray = ndtri(levels)
            return normal
        half = (self.latent_dim - 1) / 2
        projections: np.ndarray = 2.0 * betaincinv(half, half, levels) - 1.0
        return projections

    def directions(self, rng: np.random.Generator) -> np.ndarray:
        """Draw the directions of one step from a public stream."""
        return orthogonal_directions(self.n_directions, self.latent_dim, rng)

    def sensitivity(self, clip_jacobian: float) -> float:
        r"""Bound how far one record moves the gradient, times the batch size.

        Let every Jacobian have a spectral norm of at most L, every code a norm of at most M and
        every quantile a size of at most V, and let the rows of Θ be the S directions, in whole
        orthogonal blocks: :math:`\Theta^\top \Theta = (S / k) I`. Replacing the record at one
        position of the batch changes two things (the sort is stable and keeps positions, so the
        order of the others stays).

        *Its own term.* :math:`w = \frac{2}{S} \Theta^\top (\Theta c - v)`, where v holds its
        quantile along each direction. :math:`\frac{1}{S} \Theta^\top \Theta c = c / k` has norm
        at most M/k and :math:`\frac{1}{S} \|\Theta^\top v\| \le \frac{1}{S} \sqrt{S/k}\, \sqrt{S}
        V = V / \sqrt{k}`. Before and after together: at most
        :math:`4 L (M / k + V / \sqrt{k})`.

        *The terms of the others.* Along one direction, the records between its old and its new
        rank move by one rank each, over different gaps :math:`g_j = v_{j+1} - v_j`. Let
        :math:`\delta_i` hold the moves of record i along all directions. Then :math:`\sum_i
        \frac{2}{S} \|\Theta^\top \delta_i\| \le \frac{2}{S} \sqrt{S/k} \sum_i \|\delta_i\|`, and by
        Cauchy and Schwarz :math:`\sum_i \|\delta_i\| \le \sqrt{n - 1} \sqrt{S \sum_j g_j^2}`.
        Altogether at most :math:`4 L G / \sqrt{k}` with :math:`G = \frac{1}{2} \sqrt{(n - 1) \sum_j
        g_j^2}`, which is V when all gaps are equal and little more for these priors.

        *One direction at a time.* Without use of their orthogonality, both changes together are
        at most 2L times the mean over directions of :math:`|u - v| + |u' - v'| + |v' - v|`,
        where a larger projection has a larger quantile: either u <= u' and v <= v', or the
        reverse. The sum is convex, so it is largest at a corner of that set, where it is
        :math:`2 V + 2 \max(M, V)`. The smaller bound counts.

        Parameters
        ----------
        clip_jacobian : float
            L.

        Returns
        -------
        float
            The L2 sensitivity of :math:`\sum_i J_i^\top w_i` under replace-one.
        """
        k, radius = self.latent_dim, self.radius
        largest = float(np.abs(self.quantiles).max())
        gaps = np.diff(self.quantiles)
        own = radius / k + largest / math.sqrt(k)
        others = math.sqrt(len(gaps) * float(gaps @ gaps) / k) / 2
        one_by_one = largest + max(radius, largest)
        return 4.0 * clip_jacobian * min(own + others, one_by_one) * (1.0 + 1e-12)

    def vectors(self, codes: torch.Tensor, directions: np.ndarray) -> torch.Tensor:
        """Return the vectors w of a whole batch, in double precision.

        Parameters
        ----------
        codes : tensor of shape (batch_size, latent_dim)
            Codes of the batch.
        directions : ndarray of shape (n_directions, latent_dim)
            From `directions`.

        Returns
        -------
        tensor of shape (batch_size, latent_dim)
            Gradient of the penalty, times the batch size, with respect to each (shortened) code.
        """
        theta = torch.as_tensor(directions, dtype=torch.float64, device=codes.device)
        return 2.0 / len(theta) * (self._gaps(codes, theta).T @ theta)

    def value(self, codes: torch.Tensor, directions: np.ndarray) -> torch.Tensor:
        """Return the penalty itself, for training without privacy by automatic derivatives."""
        theta = torch.as_tensor(directions, dtype=torch.float64, device=codes.device)
        return (self._gaps(codes, theta) ** 2).mean()

    def _gaps(self, codes: torch.Tensor, theta: torch.Tensor) -> torch.Tensor:
        """Return how far each projection is from the quantile of its rank, (S, n)."""
        projections = theta @ self._shorten(codes.to(torch.float64)).T
        # A stable sort: tied codes must not change places when another record is replaced.
        ranks = projections.detach().argsort(dim=1, stable=True).argsort(dim=1)
        quantiles = torch.as_tensor(self.quantiles, dtype=torch.float64, device=codes.device)
        return projections - quantiles[ranks]

    def _shorten(self, codes: torch.Tensor) -> torch.Tensor:
        finite = codes.nan_to_num(posinf=1e150, neginf=-1e150)
        norms = finite.norm(dim=1, keepdim=True)
        return finite * (self.radius / norms.clamp(min=self.radius))


def prior_samples(
    prior: Prior, n_samples: int, latent_dim: int, rng: np.random.Generator
) -> np.ndarray:
    """Draw codes from the prior.

    Parameters
    ----------
    prior : {"sphere", "normal"}
        Uniform on the unit sphere, or standard normal.
    n_samples, latent_dim : int
        Shape.
    rng : numpy.random.Generator
        Solver's stream.

    Returns
    -------
    ndarray of shape (n_samples, latent_dim)
        Codes.
    """
    codes = rng.standard_normal((n_samples, latent_dim))
    if prior == "sphere":
        codes /= np.linalg.norm(codes, axis=1, keepdims=True)
    return codes
