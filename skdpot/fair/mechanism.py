"""What fair estimators ask of a mechanism: one release for a task that is public."""

from abc import abstractmethod
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any, TypeAlias

import numpy as np
import torch
from torch import nn

from skdpot.base import FitContext, Mechanism, MechanismResult
from skdpot.nets.cells import Cells
from skdpot.nets.compared_outputs import ComparedOutputs
from skdpot.release.bounds import DataBounds
from skdpot.release.private_bounds import BoundsPlan

# From outputs, (n, q), and targets to the gradient of each record's loss by its outputs, (n, q).
OutputLoss: TypeAlias = Callable[[torch.Tensor, torch.Tensor], torch.Tensor]


@dataclass(frozen=True, eq=False, kw_only=True)
class FairTask:
    """The task of a fit. All of it is public.

    Parameters
    ----------
    gradient : callable
        Gradient of the loss of each record by its outputs, (n, q) and targets -> (n, q).
    compared : ComparedOutputs
        The values of the q outputs that are to be alike.
    cells : Cells
        The groups of the n records; without strata, nothing is compared.
    network : torch.nn.Module
        From rows to q outputs, with its initial weights. A release may change it.
    bounds : DataBounds or BoundsPlan, optional
        Bounds of the targets of a regression, or the plan of their release. None for classes.
    public_classes : bool, default=False
        Whether neighbouring data sets have the same class for each record.
    given_target : bool, default=False
        Whether outputs are to be alike among records with similar targets.
    group_aware : bool, default=False
        Whether the network reads the group, as columns after the features.
    public : sequence of str, default=()
        Facts that the estimator takes to be public, for the statement of privacy.
    callbacks : sequence of skorch.callbacks.Callback, optional
        Called at each step of the training.
    """

    gradient: OutputLoss
    compared: ComparedOutputs
    cells: Cells
    network: nn.Module
    bounds: DataBounds | BoundsPlan | None = None
    public_classes: bool = False
    given_target: bool = False
    group_aware: bool = False
    public: Sequence[str] = ()
    callbacks: Sequence[Any] | None = None


class FairMechanism(Mechanism):
    """Base class of the mechanisms of fair predictors.

    An estimator reads `compares` first, and passes cells without strata if it is false. It then
    calls `release` once. `clip_gradient` is read by audits alone.
    """

    clip_gradient: float = 2.0  # largest norm of a record's loss gradient, which canaries exceed

    @property
    def compares(self) -> bool:
        """Whether the groups are compared."""
        return True

    @abstractmethod
    def release(
        self, context: FitContext, task: FairTask, rows: np.ndarray, targets: np.ndarray
    ) -> MechanismResult:
        """Plan, charge, and only then read the rows.

        Parameters
        ----------
        context : FitContext
            The terms of the fit.
        task : FairTask
            What is trained, and what is compared.
        rows : ndarray of shape (n_samples, n_features)
            Private rows, without the group. Read after the charge only.
        targets : ndarray of shape (n_samples,) or (n_samples, n_targets)
            Private codes of classes, or targets in their own unit. Read after the charge only.

        Returns
        -------
        MechanismResult
            Its value is the trained network, and its attributes are fitted attributes of the
            estimator.

        Raises
        ------
        ValueError
            If parameters do not suit the task. Nothing is charged.
        BudgetExceededError
            If the budget cannot pay. Nothing is charged.
        """
