"""What samplers of rows ask of their mechanisms."""

from abc import abstractmethod
from typing import Any

import numpy as np

from skdpot.base import FitContext, Mechanism, MechanismResult
from skdpot.ot.flow import FlowSchedule
from skdpot.ot.flow_problems import GaussianFlowProblem, SlicedFlowProblem, SmoothedFlowProblem
from skdpot.privacy.reliability import Reliability


class RowMechanism(Mechanism):
    """A mechanism that releases something of private rows, from which a sampler is made.

    `DPSlicedGenerator` trains on a `SlicedSketch`, along ``n_projections_per_step`` directions per
    step, or on `SmoothedProjections` of batches of ``batch_size`` rows. Flows need a
    `FlowMechanism`.
    """

    @abstractmethod
    def release(
        self,
        context: FitContext,
        rows: np.ndarray,
        y: Any,
        *,
        conditional: bool,
        n_steps: int | None,
    ) -> MechanismResult:
        """Plan and charge, and only then read the rows and release.

        Parameters
        ----------
        context : FitContext
            The terms of the fit.
        rows : ndarray of shape (n_samples, n_features), or Source
            Private rows, finite. Before the charge only their shape is read. Sources are given to a
            `Sketch` alone.
        y : array-like of shape (n_samples,), or None
            Private labels. Read only if `conditional`.
        conditional : bool
            Whether each class has a release of its own. A mechanism that has none refuses it by
            `skdpot.base.refuse_classes`, before the charge.
        n_steps : int or None
            Number of steps of the sampler; None leaves it to the mechanism. Only a mechanism that
            releases something in every step reads it.

        Returns
        -------
        MechanismResult
            The release, the bounds of the rows, the cost, and classes with their shares if
            `conditional`.
        """


class FlowMechanism(RowMechanism):
    """A mechanism whose release particles can flow to, for `DPSlicedFlowSampler`.

    A fit calls `release` once. Each flow (of a fit, a `sample` that needs more particles, a
    `trace`) then calls `schedule` and, per class, `problem`. Both are post-processing: they read
    the release and public facts only.
    """

    @abstractmethod
    def problem(
        self, released: Any, radius: float, label: Any
    ) -> SlicedFlowProblem | SmoothedFlowProblem | GaussianFlowProblem:
        """Return the distribution that particles of a class flow to.

        Parameters
        ----------
        released : object
            The value of the `MechanismResult` of `release`.
        radius : float
            Radius of the ball of the mapped rows, in which particles start.
        label : object or None
            The class, one of ``classes`` of the result; None without classes.

        Returns
        -------
        SlicedFlowProblem, SmoothedFlowProblem or GaussianFlowProblem
            In the units of the mapped rows.
        """

    @abstractmethod
    def schedule(
        self, released: Any, n_steps: int, step_size: float | str, diffusion: float
    ) -> FlowSchedule:
        """Return the number and the lengths of the steps.

        Parameters
        ----------
        released : object
            The value of the `MechanismResult` of `release`.
        n_steps : int
            Number of steps that the sampler was given.
        step_size : float or "auto"
            First step, as a share of the longest stable one; "auto" leaves it to the mechanism.
        diffusion : float
            Entropic regularisation, squared length in mapped units.

        Returns
        -------
        FlowSchedule
            The steps of all classes.
        """

    def reliability_of_flow(
        self, result: MechanismResult, schedule: FlowSchedule, names: Any
    ) -> Reliability:
        """Return the errors of particles that have flowed; by default those of the release.

        Parameters
        ----------
        result : MechanismResult
            The result of `release`.
        schedule : FlowSchedule
            The steps of the flow.
        names : ndarray of shape (n_features,), or None
            Names of the features.

        Returns
        -------
        Reliability
            Post-processing of the release.
        """
        return result.reliability
