"""What the autoencoder asks of its mechanism."""

from abc import abstractmethod
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
from torch import nn

from skdpot.base import FitContext, Mechanism, MechanismResult
from skdpot.nets.cells import Cells
from skdpot.release.bounds import DataBounds
from skdpot.sampling.autoencoder_training import AutoencoderLoss
from skdpot.sampling.code_penalties import CodePenalty


@dataclass(frozen=True, eq=False, kw_only=True)
class AutoencoderTask:
    """The training of one fit; all of it is public.

    Parameters
    ----------
    autoencoder : torch.nn.Sequential
        Encoder and decoder with initial weights, which are trained in place. They map each row by
        itself (`skdpot.nets.per_record_check`).
    loss : AutoencoderLoss
        The objective that `AutoencoderMechanism.loss` has returned.
    cells : Cells
        The group of each row, or one cell.
    callbacks : sequence of skorch.callbacks.Callback, optional
        Callbacks of the training, which were tried before.
    public : sequence of str
        Public facts for the privacy statement, such as the groups.
    """

    autoencoder: nn.Sequential
    loss: AutoencoderLoss
    cells: Cells
    callbacks: Sequence[Any] | None = None
    public: Sequence[str] = ()


class AutoencoderMechanism(Mechanism):
    """A mechanism that trains an autoencoder.

    `loss` is called first, then either `release` on private rows or `train_public` on public rows.
    """

    @abstractmethod
    def loss(
        self, penalty: CodePenalty | None, latent_dim: int, cells: Cells, *, on_sphere: bool
    ) -> AutoencoderLoss:
        """Return the objective, from public facts.

        Parameters
        ----------
        penalty : CodePenalty, optional
            The penalty of codes.
        latent_dim : int
            Length of a code.
        cells : Cells
            The groups that the penalty compares, or one cell.
        on_sphere : bool
            Whether codes have norm 1.
        """

    @abstractmethod
    def release(
        self, context: FitContext, rows: np.ndarray, task: AutoencoderTask
    ) -> MechanismResult:
        """Plan and charge, and only then read the rows and train the autoencoder in place.

        Parameters
        ----------
        context : FitContext
            The terms of the fit.
        rows : ndarray of shape (n_samples, n_features)
            Private rows. Before the charge only their shape is read.
        task : AutoencoderTask
            What is trained.

        Returns
        -------
        MechanismResult
            No value; the attributes ``n_steps_`` and ``losses_``, the bounds and the cost. An
            interrupt after at least one step is its `stopped`: the parameters are a function of
            noisy sums at any time.
        """

    @abstractmethod
    def train_public(
        self,
        context: FitContext,
        rows: np.ndarray,
        task: AutoencoderTask,
        bounds: DataBounds,
        rng: np.random.Generator,
    ) -> MechanismResult:
        """Train in place on public rows, without noise.

        Parameters
        ----------
        context : FitContext
            The terms of the fit, whose epsilon does not matter.
        rows : ndarray of shape (n_samples, n_features)
            Public rows.
        task : AutoencoderTask
            What is trained.
        bounds : DataBounds
            The bounds of the rows.
        rng : numpy.random.Generator
            Seed of batches and dropout.

        Returns
        -------
        MechanismResult
            As for `release`; its cost is infinite.
        """
