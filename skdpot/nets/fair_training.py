r"""Steps that train a predictor of which the outputs of groups are alike, with privacy.

What is minimised is :math:`(1 - \alpha)` times the mean loss plus :math:`\alpha` times the squared
(sliced) Wasserstein distance between the groups' outputs (`skdpot.nets.parity_penalty`). Two
private gradients of it are here.

*Ranks*, the paper's: the outputs of a batch are compared with each other. One record moves the
terms of others by a rank, which the sensitivity pays for; batches have a fixed size a cell.

*Tables*: a few times during training the distributions of all outputs are released
(`skdpot.nets.output_tables`). Between the releases the penalty is a sum over records as the loss
is, so that both are clipped together, and one record moves only its own term.
"""

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import TypeAlias

import numpy as np
import torch
from torch import nn

from skdpot._utils.rng import SecretStream
from skdpot.nets.compared_outputs import ComparedOutputs
from skdpot.nets.output_gradients import pulled_back_sum, shares_of_jacobians, shares_of_vectors
from skdpot.nets.output_tables import OutputTables, TableNoise, release_tables
from skdpot.nets.parity_penalty import ParityPenalty
from skdpot.nets.per_sample import record_outputs
from skdpot.nets.training import GradientStep
from skdpot.nets.training_plan import TrainingPlan
from skdpot.privacy.noise import gaussian_noise

__all__ = ["Cells", "FairLoss", "Records", "ranked_steps", "tabled_steps"]

OutputLoss: TypeAlias = Callable[[torch.Tensor, torch.Tensor], torch.Tensor]

_ROWS_AT_ONCE = 8192
_LARGEST = 1e100  # what outputs that are not finite count as


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
    """

    codes: np.ndarray
    sizes: tuple[int, ...]
    strata: tuple[tuple[int, ...], ...]

    @property
    def members(self) -> tuple[np.ndarray, ...]:
        """Positions of the records of each cell."""
        return tuple(np.flatnonzero(self.codes == cell) for cell in range(len(self.sizes)))

    def others(self, cell: int) -> tuple[int, ...]:
        """Return the cells that a cell is compared with."""
        stratum = next((s for s in self.strata if cell in s), ())
        return tuple(other for other in stratum if other != cell)


@dataclass(frozen=True, eq=False)
class Records:
    """Private rows and targets, on the device of training.

    Parameters
    ----------
    rows : tensor of shape (n_samples, n_features)
        Inputs of the network.
    targets : tensor of shape (n_samples,) or (n_samples, n_outputs)
        What the loss compares outputs with.
    """

    rows: torch.Tensor
    targets: torch.Tensor

    def take(self, batch: np.ndarray) -> "Records":
        """Return the records of a batch."""
        index = torch.from_numpy(batch).to(self.rows.device)
        return Records(self.rows[index], self.targets[index])


@dataclass(frozen=True, kw_only=True)
class FairLoss:
    """What is minimised, and how the gradients of a record are clipped.

    Parameters
    ----------
    gradient : callable
        Maps outputs (n_records, q), in double precision, and targets to the gradient of each
        record's loss by its outputs.
    compared : ComparedOutputs
        What of the outputs is compared between cells.
    alpha : float
        Weight of the penalty in [0, 1]; the loss has the rest.
    clip : float
        C: largest norm of a record's gradient, of the loss alone with ranks, of loss and penalty
        together with tables.
    clip_jacobian : float
        L: largest spectral norm of the Jacobian of a compared value; with ranks only.
    """

    gradient: OutputLoss
    compared: ComparedOutputs
    alpha: float
    clip: float
    clip_jacobian: float

    def ranked_sum(
        self,
        network: nn.Module,
        batch: Records,
        penalty: ParityPenalty | None,
        directions: np.ndarray,
    ) -> dict[nn.Parameter, torch.Tensor]:
        r"""Return the clipped gradient of a batch, times its size.

        Parameters
        ----------
        network : torch.nn.Module
            Treats records one by one.
        batch : Records
            The records of all cells, cell by cell.
        penalty : ParityPenalty or None
            What compares the cells; None is the loss alone.
        directions : ndarray of shape (n_slices, k)
            Unit rows.

        Privacy
        -------
        Not private by itself. Replacing one record by another of its cell moves it by at most
        `ranked_sensitivity`.
        """
        n, alpha = len(batch.rows), self.alpha if penalty else 0.0
        pulls = None if penalty is None else self._rank_pulls(network, batch, penalty, directions)

        def vectors(outputs: torch.Tensor, gram: torch.Tensor, records: slice) -> torch.Tensor:
            own = self.gradient(outputs, batch.targets[records])
            total = (1.0 - alpha) * _scaled(own, shares_of_vectors(own, gram, self.clip))
            if pulls is not None:
                shares = shares_of_jacobians(self.compared.gram(gram, outputs), self.clip_jacobian)
                pull = self.compared.pull_back(_scaled(pulls[records], shares), outputs)
                total = total + alpha * n * pull
            return _finite(total)

        return pulled_back_sum(network, batch.rows, vectors)

    def ranked_sensitivity(
        self, batch_size: int, penalty: ParityPenalty | None, width: float
    ) -> float:
        r"""Bound how far one record moves `ranked_sum`, under replace-one within its cell.

        :math:`(1 - \alpha)\, 2 C` by the loss, whose clipped gradients are a sum, and
        :math:`\alpha n'` times what the penalty moves by (`ParityPenalty.sensitivity`).

        Parameters
        ----------
        batch_size : int
            Records n' of a batch.
        penalty : ParityPenalty or None
            What compares the cells.
        width : float
            Mean over the directions of the width of compared values.
        """
        if penalty is None:
            return 2.0 * self.clip
        moved = penalty.sensitivity(width, self.clip_jacobian)
        return (1.0 - self.alpha) * 2.0 * self.clip + self.alpha * batch_size * moved

    def _rank_pulls(
        self, network: nn.Module, batch: Records, penalty: ParityPenalty, directions: np.ndarray
    ) -> torch.Tensor:
        values = self.compared.values(network_outputs(network, batch.rows)).cpu().numpy()
        ends = np.cumsum(penalty.batch_sizes)[:-1]
        pulls = penalty.vectors(np.split(values, ends), directions)
        return torch.from_numpy(np.concatenate(pulls)).to(batch.rows.device)

    def tabled_sum(
        self,
        network: nn.Module,
        batch: Records,
        cells: Cells,
        codes: np.ndarray,
        tables: OutputTables | None,
    ) -> dict[nn.Parameter, torch.Tensor]:
        r"""Return the sum over a batch of clipped gradients of loss and penalty together.

        Record i of cell c contributes :math:`(1 - \alpha) \nabla \ell_i + \alpha
        \frac{n}{n_c} J_i^\top w_i`, shortened to the norm C, so that the expected mean over a
        Poisson batch is the gradient of what is minimised.

        Parameters
        ----------
        network : torch.nn.Module
            Treats records one by one.
        batch : Records
            Any records.
        cells : Cells
            Public division of all records.
        codes : ndarray of shape (n_records,), intp
            Cells of the records of the batch.
        tables : OutputTables or None
            Latest release; None leaves the loss alone.

        Privacy
        -------
        Not private by itself. A record contributes a vector of norm at most C, which does not
        depend on the other records.
        """
        weight = 0.0 if not cells.strata else _pair_weight(cells)
        n = sum(cells.sizes)

        def vectors(outputs: torch.Tensor, gram: torch.Tensor, records: slice) -> torch.Tensor:
            total = (1.0 - self._alpha(cells)) * self.gradient(outputs, batch.targets[records])
            if tables is not None:
                values = self.compared.values(_bounded(outputs)).cpu().numpy()
                pulls, here = np.zeros_like(values), codes[records]
                for cell, size in enumerate(cells.sizes):
                    own = here == cell
                    pull = tables.pull(values[own], cell, cells.others(cell))
                    pulls[own] = weight * (n / size) * pull
                given = torch.from_numpy(pulls).to(outputs)
                total = total + self.alpha * self.compared.pull_back(given, outputs)
            total = _finite(total)
            return _scaled(total, shares_of_vectors(total, gram, self.clip))

        return pulled_back_sum(network, batch.rows, vectors)

    def _alpha(self, cells: Cells) -> float:
        return self.alpha if cells.strata else 0.0


def ranked_steps(
    loss: FairLoss,
    records: Records,
    cells: Cells,
    penalty: ParityPenalty | None,
    directions: Sequence[np.ndarray],
    plan: TrainingPlan,
    secret: SecretStream,
) -> GradientStep:
    """Make the steps of training by ranks.

    Parameters
    ----------
    loss : FairLoss
        What is minimised.
    records : Records
        All private records.
    cells : Cells
        Their division.
    penalty : ParityPenalty or None
        What compares the cells of a batch.
    directions : sequence of ndarray of shape (n_slices, k)
        Public directions of each step.
    plan : TrainingPlan
        Batches and noise; its event has been charged.
    secret : SecretStream
        Draws batches and noise.

    Returns
    -------
    callable
        For `skdpot.nets.training.train_network`.

    Privacy
    -------
    Each step releases one noisy sum. The noise is continuous and not hardened against attacks
    on floating-point numbers.
    """
    batches = plan.batches(secret, cells.members)

    def step(network: nn.Module, number: int) -> None:
        batch = records.take(next(batches))
        total = loss.ranked_sum(network, batch, penalty, directions[number])
        _fill_gradients(total, plan, secret)

    return step


def tabled_steps(
    loss: FairLoss,
    records: Records,
    cells: Cells,
    plan: TrainingPlan,
    noise: TableNoise | None,
    release_at: Sequence[int],
    n_slices: int,
    secret: SecretStream,
    public: np.random.Generator,
) -> GradientStep:
    """Make the steps of training by released tables.

    Parameters
    ----------
    loss : FairLoss
        What is minimised.
    records : Records
        All private records.
    cells : Cells
        Their division.
    plan : TrainingPlan
        Poisson batches and noise; its event, the releases included, has been charged.
    noise : TableNoise or None
        Of the tables; None makes no release.
    release_at : sequence of int
        Numbers of the steps before which tables are released.
    n_slices : int
        Directions of a table.
    secret : SecretStream
        Draws batches and noise.
    public : numpy.random.Generator
        Draws directions.

    Returns
    -------
    callable
        For `skdpot.nets.training.train_network`.

    Privacy
    -------
    Each step releases one noisy sum, and each release a noisy table of all cells. The noise of
    the sums is continuous and not hardened against attacks on floating-point numbers; that of
    the tables lies on a lattice.
    """
    batches = plan.batches(secret)
    tables: OutputTables | None = None

    def release(network: nn.Module, of_noise: TableNoise) -> OutputTables:
        directions = loss.compared.directions(n_slices, public)
        return release_tables(
            loss.compared.values(network_outputs(network, records.rows)).cpu().numpy(),
            cells.codes,
            cells.sizes,
            directions,
            loss.compared.half_widths(directions),
            of_noise,
            secret,
        )

    def step(network: nn.Module, number: int) -> None:
        nonlocal tables
        if noise is not None and number in release_at:
            tables = release(network, noise)
        batch = next(batches)
        total = loss.tabled_sum(network, records.take(batch), cells, cells.codes[batch], tables)
        _fill_gradients(total, plan, secret)

    return step


def network_outputs(network: nn.Module, rows: torch.Tensor) -> torch.Tensor:
    """Return the outputs of all rows in double precision, bounded and without gradients."""
    chunks = [record_outputs(network, chunk) for chunk in rows.split(_ROWS_AT_ONCE)]
    return _bounded(torch.cat(chunks).to(torch.float64))


def _fill_gradients(
    total: dict[nn.Parameter, torch.Tensor], plan: TrainingPlan, secret: SecretStream
) -> None:
    for parameter, value in total.items():
        if plan.sigma > 0:
            noise = gaussian_noise(plan.sigma, tuple(value.shape), secret)
            value += torch.from_numpy(noise).to(value)
        parameter.grad = (value / plan.batch_size).to(parameter.dtype)


def _pair_weight(cells: Cells) -> float:
    return ParityPenalty(cells.strata, cells.sizes).pair_weight


def _bounded(outputs: torch.Tensor) -> torch.Tensor:
    return outputs.nan_to_num(nan=0.0, posinf=_LARGEST, neginf=-_LARGEST)


def _scaled(vectors: torch.Tensor, shares: torch.Tensor) -> torch.Tensor:
    # Zero times infinity is not zero.
    return torch.where(shares[:, None] > 0.0, vectors * shares[:, None], 0.0)


def _finite(vectors: torch.Tensor) -> torch.Tensor:
    return torch.where(vectors.isfinite().all(1, keepdim=True), vectors, 0.0)
