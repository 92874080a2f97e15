"""What the generator asks of a mechanism whose release is the training itself."""

from abc import abstractmethod
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np

from skdpot.base import FitContext, Mechanism, MechanismResult
from skdpot.sampling.generator_network import GeneratorNetwork


@dataclass(frozen=True, eq=False, kw_only=True)
class GeneratorTraining:
    """The training of one fit; all of it is public.

    Parameters
    ----------
    network : GeneratorNetwork
        Description of the network.
    n_steps : int or None
        Number of steps; None leaves it to the mechanism.
    learning_rate : float
        Initial learning rate of Adam.
    callbacks : sequence of skorch.callbacks.Callback, optional
        Called at each step.
    """

    network: GeneratorNetwork
    n_steps: int | None
    learning_rate: float
    callbacks: Sequence[Any] | None


class TrainingMechanism(Mechanism):
    """A mechanism that trains the network of a `DPSlicedGenerator` on private rows.

    Each step is a release, so `DPSlicedGenerator.retrain` is not possible. Mechanisms that release
    something that a network is trained on afterwards are `RowMechanism`.
    """

    @abstractmethod
    def release(
        self,
        context: FitContext,
        rows: np.ndarray,
        y: Any,
        *,
        conditional: bool,
        training: GeneratorTraining,
    ) -> MechanismResult:
        """Build and check the network, plan and charge, and only then read the rows and train.

        Parameters
        ----------
        context : FitContext
            The terms of the fit.
        rows : ndarray of shape (n_samples, n_features)
            Private rows, finite. Before the charge only their shape is read.
        y : array-like of shape (n_samples,), or None
            Private labels. Read only if `conditional`.
        conditional : bool
            Whether the rows of each class are learned; see `skdpot.base.refuse_classes`.
        training : GeneratorTraining
            The network and its training.

        Returns
        -------
        MechanismResult
            No value; the attributes ``module_`` (the trained network), ``n_steps_``,
            ``_latent_dim`` (number of latent numbers) and ``_units`` (`OutputUnits` of its
            outputs), the bounds and the cost.
        """
