r"""Distances of the codes of a batch: to a prior, or between groups; gradient and sensitivity.

*Prior.* The prior's quantiles at (j − 1/2)/n along a direction θ are known in closed form. The
penalty of a batch of n codes c_i is

.. math:: \frac{1}{S} \sum_\theta \frac{1}{n} \sum_j (u_{(j)} - v_j)^2,
   \qquad u_i = \theta^\top c_i,

with increasing constants v_1, ..., v_n. Its gradient, times n, is :math:`\sum_i J_i^\top w_i` with
:math:`w_i = \frac{2}{S} \sum_\theta (u_i - v_{r_\theta(i)}) \theta` and the rank r.

*Parity.* The mean squared sliced Wasserstein distance between the codes of the groups in a batch
(`skdpot.nets.parity_penalty`).

Codes are shortened to a ball before they are compared. The pull of a code outside of the ball is
that of its shortened code, and is not zero. Both distances are those of Rodríguez-Vítores et al.,
"Learning with differentially private (sliced) Wasserstein gradients", 2025, appendix B.3.
"""

import math
from abc import ABC, abstractmethod
from dataclasses import dataclass, replace
from typing import Literal

import numpy as np
import torch
from scipy.special import betainc, betaincinv, ndtr, ndtri

from skdpot.nets.cells import Cells
from skdpot.nets.compared_outputs import ClippedOutputs
from skdpot.nets.local_penalty import LocalPenalty
from skdpot.nets.loss_curve import parity_distance
from skdpot.nets.output_tables import OutputTables
from skdpot.nets.parity_penalty import ROUNDED_UP, ParityPenalty
from skdpot.ot.directions import orthogonal_directions
from skdpot.ot.slices import CDFTable

Prior = Literal["sphere", "normal"]

_NORMAL_MARGIN = 2.5  # fewer than one normal code in a thousand is longer than sqrt(k) + 2.5


@dataclass(frozen=True, kw_only=True)
class CodeDistance(ABC):
    """A squared sliced Wasserstein distance of codes, and what training with it needs.

    It is known before any row is read. By ranks, training calls `directions`, `vectors` and
    `sensitivity`. By released tables it calls `directions` once, and `local_penalty` after each
    release. `squared_distance` is for losses that are recorded without privacy.

    Parameters
    ----------
    latent_dim : int
        Length k of a code.
    batch_sizes : tuple of int
        Number of codes of each cell in a batch, cell after cell.
    n_projections : int
        Number of directions, rounded up to a multiple of `latent_dim`.
    """

    latent_dim: int
    batch_sizes: tuple[int, ...]
    n_projections: int

    @property
    @abstractmethod
    def radius(self) -> float:
        """Norm M that codes are shortened to before they are compared."""

    @abstractmethod
    def sensitivity(self, clip_jacobian: float) -> float:
        """Bound how far one record moves the gradient, times the batch size, under replace-one."""

    @abstractmethod
    def vectors(self, codes: torch.Tensor, directions: np.ndarray) -> torch.Tensor:
        """Return the gradient by each code of a batch, (n_codes, k), times the batch size."""

    @abstractmethod
    def local_penalty(self, tables: OutputTables, codes: np.ndarray, cells: Cells) -> LocalPenalty:
        """Return the penalty of codes, (n_records, k), whose distributions were released."""

    @abstractmethod
    def squared_distance(self, codes: np.ndarray, cells: Cells, directions: np.ndarray) -> float:
        """Return the squared distance of shortened codes, (n_codes, k)."""

    @property
    def compared(self) -> ClippedOutputs:
        """The map that shortens codes."""
        return ClippedOutputs(self.latent_dim, self.radius)

    @property
    def n_directions(self) -> int:
        """Number of directions, in whole orthogonal blocks."""
        return self.latent_dim * math.ceil(self.n_projections / self.latent_dim)

    def directions(self, rng: np.random.Generator) -> np.ndarray:
        """Draw the directions of one step from a public stream, (n_directions, k)."""
        return self.compared.directions(self.n_directions, rng)


@dataclass(frozen=True, kw_only=True)
class PriorDistance(CodeDistance):
    """Squared sliced Wasserstein distance between a batch of codes and a prior."""

    prior: Prior

    @property
    def radius(self) -> float:
        """Norm M: 1 on the sphere, and more than nearly all normal codes have."""
        return 1.0 if self.prior == "sphere" else math.sqrt(self.latent_dim) + _NORMAL_MARGIN

    @property
    def quantiles(self) -> np.ndarray:
        """The prior's quantiles along any direction, increasing, of shape (batch_size,)."""
        size = sum(self.batch_sizes)
        levels = (np.arange(size) + 0.5) / size
        if self.prior == "normal":
            return ndtri(levels)
        half = (self.latent_dim - 1) / 2
        return 2.0 * betaincinv(half, half, levels) - 1.0

    def cdf(self, values: np.ndarray) -> np.ndarray:
        """Return the distribution function of the prior along any direction."""
        if self.prior == "normal":
            return ndtr(values)
        half = (self.latent_dim - 1) / 2
        return betainc(half, half, np.clip((values + 1.0) / 2.0, 0.0, 1.0))

    def directions(self, rng: np.random.Generator) -> np.ndarray:
        """Draw orthogonal blocks; codes of length 1 have several directions as well."""
        return orthogonal_directions(self.n_directions, self.latent_dim, rng)

    def sensitivity(self, clip_jacobian: float) -> float:
        r"""Bound how far one record moves the gradient, times the batch size.

        Every Jacobian has a spectral norm of at most L, every code a norm of at most M, and every
        quantile an absolute value of at most V. The rows of Θ are the S directions, in whole
        orthogonal blocks: :math:`\Theta^\top \Theta = (S / k) I`. Replacing the record at one
        position of the batch has two effects (the sort is stable and positions are kept, so the
        order of the other records does not change).

        *The term of the record.* :math:`w = \frac{2}{S} \Theta^\top (\Theta c - v)`, where v holds
        its quantile along each direction. :math:`\frac{1}{S} \Theta^\top \Theta c = c / k` has norm
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

        *One direction at a time.* Without orthogonality, both changes together are at most 2L times
        the mean over directions of :math:`|u - v| + |u' - v'| + |v' - v|`, where a larger
        projection has a larger quantile: either u <= u' and v <= v', or the reverse. The sum is
        convex, so it is largest at a corner of that set, where it is :math:`2 V + 2 \max(M, V)`.
        The smaller of both bounds is used.
        """
        k, radius = self.latent_dim, self.radius
        largest = float(np.abs(self.quantiles).max())
        gaps = np.diff(self.quantiles)
        of_record = radius / k + largest / math.sqrt(k)
        of_others = math.sqrt(len(gaps) * float(gaps @ gaps) / k) / 2
        one_by_one = largest + max(radius, largest)
        return 4.0 * clip_jacobian * min(of_record + of_others, one_by_one) * ROUNDED_UP

    def vectors(self, codes: torch.Tensor, directions: np.ndarray) -> torch.Tensor:
        """Return the vectors w of a batch, in double precision."""
        theta = torch.as_tensor(directions, dtype=torch.float64, device=codes.device)
        shortened = self.compared.values(codes.to(torch.float64))
        projections = theta @ shortened.T
        quantiles = torch.as_tensor(self.quantiles, dtype=torch.float64, device=codes.device)
        return 2.0 / len(theta) * ((projections - quantiles[stable_ranks(projections)]).T @ theta)

    def local_penalty(self, tables: OutputTables, codes: np.ndarray, cells: Cells) -> LocalPenalty:
        """Pull all codes by the table of the prior in place of that of another cell."""
        table = tables.tables[0]
        levels = self.cdf(table.edges + tables.centres[:, None])
        prior = CDFTable(table.directions, table.half_widths, levels)
        both = OutputTables((table, prior), tables.centres)
        pulls = both.pulls(both.projections(codes), 0, (1,)).T @ table.directions
        mean_square = table.directions.T @ table.directions / len(table.directions)
        stiffness = np.broadcast_to(mean_square, (len(codes), *mean_square.shape)).copy()
        return LocalPenalty.of_arrays(codes, pulls, stiffness)

    def squared_distance(self, codes: np.ndarray, cells: Cells, directions: np.ndarray) -> float:
        """Return the squared distance to the prior's quantiles at the levels of the ranks."""
        sorted_along = np.sort(directions @ codes.T, axis=1)
        quantiles = replace(self, batch_sizes=(len(codes),)).quantiles
        return float(np.square(sorted_along - quantiles).mean())


def stable_ranks(projections: torch.Tensor) -> torch.Tensor:
    """Return the ranks in each row; equal codes keep their order when another is replaced."""
    return projections.argsort(dim=1, stable=True).argsort(dim=1)


def prior_samples(
    prior: Prior, n_samples: int, latent_dim: int, rng: np.random.Generator
) -> np.ndarray:
    """Draw codes from the prior."""
    codes = rng.standard_normal((n_samples, latent_dim))
    if prior == "sphere":
        codes /= np.linalg.norm(codes, axis=1, keepdims=True)
    return codes


@dataclass(frozen=True, kw_only=True)
class ParityDistance(CodeDistance):
    """Mean squared sliced Wasserstein distance between the codes of groups, or within `strata`."""

    clip_output: float
    strata: tuple[tuple[int, ...], ...] = ()  # by default one of all cells

    @property
    def radius(self) -> float:
        """Norm M."""
        return self.clip_output

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
        For fixed codes F is convex in (v, v'), so it is largest where along each direction either
        :math:`v = v' = \pm M`, say for a share q of the directions, or v and v' are the two ends
        -M and M. In units of M, and with :math:`2x` for the fourth term, the third term is
        :math:`2 (1 - q)`. The first two are at most :math:`\sqrt{2 (a^2 + b^2)}` for their
        lengths a and b, and with :math:`\|\Theta^\top v\| \le S / \sqrt{k}`

        .. math:: a^2 + b^2 \le \tfrac{2}{k^2} + \tfrac{2}{k} - \tfrac{2}{k S}
                  \left(\langle \Theta u, v \rangle + \langle \Theta u', v' \rangle\right).

        The sum in brackets is half of :math:`\langle \Theta (u' - u), v' - v \rangle +
        \langle \Theta (u + u'), v + v' \rangle`. In the first product all terms are positive, and
        those missing at the share q are at most :math:`\sqrt{q / k} \|u' - u\|`
        (times 2S). In the second only that share remains, so it is at least
        :math:`- 2 S \sqrt{q / k} \|u + u'\|`. As :math:`\|u' - u\| + \|u' + u\| \le 2
        \sqrt 2`, the bracket over S is at least :math:`2 x - 2 \sqrt{2 q / k}`, and

        .. math:: \frac{F}{2} \le \sqrt{\tfrac{1}{k^2} + \tfrac{1}{k} - \tfrac{2 x}{k}
                  + \tfrac{2}{k} \sqrt{2 q / k}} + 1 - q + x.

        It grows with x, which is at most :math:`1 / \sqrt k \le 1/2`, where the root without its
        last term is :math:`1 / \sqrt k - 1 / k`. With :math:`\sqrt{y^2 + z} \le y + z / 2 y` the
        best q leaves

        .. math:: \frac{F}{2} \le 1 + \frac{2}{\sqrt k} - \frac{1}{k}
                  + \frac{1}{2 (k - \sqrt k)^2},

        in place of 2. All but the last fraction is attained by one block, u' along the sum of its
        directions and u = -u'.
        """
        root, share = math.sqrt(self.latent_dim), 1.0
        if self.latent_dim >= 4:
            k = self.latent_dim
            share = min(1.0, 0.5 + 1.0 / root - 0.5 / k + 0.25 / (k - root) ** 2)
        moved_mean = self._penalty.sensitivity(2.0 * self.radius * share, clip_jacobian)
        return sum(self.batch_sizes) * moved_mean

    def vectors(self, codes: torch.Tensor, directions: np.ndarray) -> torch.Tensor:
        """Return the gradient by each code, times the size of the whole batch."""
        shortened = self.compared.values(codes.to(torch.float64)).cpu().numpy()
        of_groups = np.split(shortened, np.cumsum(self.batch_sizes)[:-1])
        vectors = np.concatenate(self._penalty.vectors(of_groups, directions))
        return torch.from_numpy(sum(self.batch_sizes) * vectors).to(codes.device)

    def local_penalty(self, tables: OutputTables, codes: np.ndarray, cells: Cells) -> LocalPenalty:
        """Pull the codes of each cell towards those of the other cells."""
        return LocalPenalty.of_release(tables, codes, cells)

    def squared_distance(self, codes: np.ndarray, cells: Cells, directions: np.ndarray) -> float:
        """Return the mean over pairs of groups."""
        return parity_distance(codes, cells.codes, cells, directions)

    @property
    def _penalty(self) -> ParityPenalty:
        strata = self.strata or (tuple(range(len(self.batch_sizes))),)
        return ParityPenalty(strata, self.batch_sizes)
