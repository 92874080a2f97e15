"""The mechanism "gradient" of the generator: a noisy gradient per step."""

import math
from dataclasses import KW_ONLY, dataclass
from functools import partial
from numbers import Integral, Real
from typing import Any, ClassVar

import numpy as np
from torch import nn

from skdpot._utils.parameters import Interval, StrOptions
from skdpot.base import COUNT, LENGTH, FitContext, MechanismResult, refuse_classes
from skdpot.nets.parity_penalty import fixed_side_sensitivity
from skdpot.nets.per_record_check import check_per_record
from skdpot.nets.training import train_to_the_end
from skdpot.nets.training_plan import TrainingPlan, plan_training, trained_numbers
from skdpot.release.bounds import public_bounds
from skdpot.release.private_bounds import planned_bounds
from skdpot.sampling.generator_gradient_steps import noisy_gradient_steps
from skdpot.sampling.generator_mechanism import GeneratorTraining, TrainingMechanism
from skdpot.sampling.generator_training import draw_groups
from skdpot.sampling.noisy_rows import steps_of_epochs
from skdpot.sampling.output_units import OutputUnits
from skdpot.sampling.row_releases import StepDirections
from skdpot.sampling.training_reliability import training_reliability

_WIDTH = 32  # of the default network: the noise grows with the number of parameters
_N_PROJECTIONS = 64  # about, by default
# Below this ratio of the longest sum of gradients to its noise, made-up laws were hardly nearer to
# generated rows than to those of the initial network.
_LEAST_SIGNAL = 1.0


@dataclass(eq=False, repr=False)
class Gradient(TrainingMechanism):
    """Noisy gradients of a generator, one per step.

    Training minimises the sliced Wasserstein distance between generated rows and a batch of private
    rows. Every step is a release and is charged.

    Parameters
    ----------
    batch_size : int, default=250
        Rows per step, capped at n.
    n_projections : int or "auto", default="auto"
        Number of directions per step; "auto" is about 64, in whole orthogonal blocks.
    projections : {"orthogonal", "uniform"}, default="orthogonal"
        How directions are drawn.
    n_latents : int, optional
        Generated points per step; by default the batch size.
    clip_jacobian : float, default=1.0
        The Jacobian of every output by all parameters is shortened to this spectral norm, from
        1e-30 to 1e30.
    sigma : float, optional
        Standard deviation of the noise on the batch size times the gradient; by default the least
        noise for `epsilon`. If given, `privacy_spent_` states the cost at `delta`, and bounds must
        be public.

    Privacy
    -------
    All steps together are one event under replace-one. Sensitivity:
    `skdpot.nets.parity_penalty.fixed_side_sensitivity`. Batches stay secret; directions are
    public.

    References
    ----------
    D. Rodríguez-Vítores, C. Lalanne, J.-M. Loubes, "Learning with differentially private (sliced)
    Wasserstein gradients", 2025, corrected.
    """

    batch_size: int = 250
    _: KW_ONLY
    n_projections: int | str = "auto"
    projections: str = "orthogonal"
    n_latents: int | None = None
    clip_jacobian: float = 1.0
    sigma: float | None = None

    _parameter_constraints: ClassVar[dict[str, list[Any]]] = {
        "batch_size": [COUNT],
        "n_projections": [StrOptions({"auto"}), COUNT],
        "projections": [StrOptions({"orthogonal", "uniform"})],
        "n_latents": [Interval(Integral, 2, None, closed="left"), None],
        "clip_jacobian": [LENGTH],
        "sigma": [Interval(Real, 0, None, closed="left"), None],
    }

    def release(
        self,
        context: FitContext,
        rows: np.ndarray,
        y: Any,
        *,
        conditional: bool,
        training: GeneratorTraining,
    ) -> MechanismResult:
        """Charge all steps, then train."""
        refuse_classes(self, conditional)
        n, d = rows.shape
        streams, latent_dim = context.streams, training.network.dimension(d)
        network = training.network.build(d, 0, _WIDTH, streams.solver)
        check_per_record(
            network,
            (latent_dim,),
            streams.solver,
            parameter="module",
            callbacks=training.callbacks,
        )
        directions, plan = self._plan(context, network, n, d, training.n_steps)
        reliability = training_reliability(
            network,
            plan,
            longest=plan.sensitivity / 2.0,
            least=_LEAST_SIGNAL,
            output="the distribution of generated rows",
            trivial="the network before training",
            advice="Use a Sketch, more rows, a larger epsilon, a smaller network or more steps.",
        )
        reliability.warn(context.caller)
        spent = context.charge(
            plan,
            ("the network and its initial weights",),
            f"{plan.n_steps} noisy gradients of the sliced Wasserstein distance to secret batches "
            f"of {plan.batch_size} rows",
            sigma_given=self.sigma is not None,
        )
        bounds = plan.bounds.settled(rows, streams)
        size = self.n_latents or plan.batch_size
        step = noisy_gradient_steps(
            bounds.to_units(rows.astype(np.float64, copy=False)),
            math.sqrt(d),
            plan,
            iter(directions),
            partial(draw_groups, latent_dim, 0, size, streams.solver),
            self.clip_jacobian,
            streams.secret,
        )
        train_to_the_end(
            network,
            step,
            plan.n_steps,
            learning_rate=training.learning_rate,
            rng=streams.solver,
            callbacks=training.callbacks,
            **context.training,
        )
        attributes = {
            "module_": network,
            "n_steps_": plan.n_steps,
            "_latent_dim": latent_dim,
            "_units": OutputUnits.of_ball(bounds),
        }
        return MechanismResult(
            None,
            bounds,
            spent,
            attributes=attributes,
            reliability=reliability,
            foreseen=True,
        )

    def _plan(
        self, context: FitContext, network: nn.Module, n: int, d: int, n_steps: int | None
    ) -> tuple[StepDirections, TrainingPlan]:
        """Determine directions, batches and noise from public facts."""
        size, n_projections = min(self.batch_size, n), self.n_projections
        if isinstance(n_projections, str):
            n_projections = d * max(1, round(_N_PROJECTIONS / d))
        n_steps = n_steps or steps_of_epochs(n, size)
        public = context.streams.public
        directions = StepDirections(self.projections, n_steps, n_projections, d, public)
        known = public_bounds(context.bounds, context.norm_bound, d)
        plan = plan_training(
            context.target,
            n_samples=n,
            batch_size=size,
            n_steps=n_steps,
            sampling="without_replacement",
            sensitivity=fixed_side_sensitivity(
                math.sqrt(d),
                clip_jacobian=self.clip_jacobian,
                n_projections=n_projections,
                directions_norm=directions.largest_norm,
            ),
            n_parameters=trained_numbers(network),
            bounds=planned_bounds(known or n, d, context.target.mu_cap),
            sigma=self.sigma,
        )
        return directions, plan
