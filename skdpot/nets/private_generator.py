"""Training a generator on noisy gradients of its Wasserstein distance to private rows."""

from collections.abc import Callable, Iterator

import numpy as np
import torch
from torch import nn

from skdpot._utils.rng import SecretStream
from skdpot.nets.noisy_step import release_gradient
from skdpot.nets.output_sets import Ball
from skdpot.nets.private_wasserstein import Side, clipped_wasserstein_gradient
from skdpot.nets.training import GradientStep
from skdpot.nets.training_plan import TrainingPlan

__all__ = ["noisy_gradient_steps"]

# In radii of the rows: no output has to be further away. Outputs may be anywhere, but rounding
# errors of far ones would not be small beside the noise.
_REACH = 4.0


def noisy_gradient_steps(
    rows: np.ndarray,
    radius: float,
    plan: TrainingPlan,
    directions: Iterator[np.ndarray],
    draw_inputs: Callable[[], np.ndarray],
    clip_jacobian: float,
    secret: SecretStream,
) -> GradientStep:
    """Make training steps from noisy gradients of batches.

    Parameters
    ----------
    rows : ndarray of shape (n_samples, n_features)
        Private rows in a ball.
    radius : float
        Its radius, in the network's units.
    plan : TrainingPlan
        Batches of a fixed size and noise for the sensitivity of
        `skdpot.nets.wasserstein_gradient.fixed_side_sensitivity`; its event has been charged.
    directions : iterator of ndarray
        Public directions of each step.
    draw_inputs : callable
        Returns the network's inputs of one step.
    clip_jacobian : float
        Largest spectral norm of the Jacobian of an output by all parameters.
    secret : SecretStream
        Draws batches and noise.

    Returns
    -------
    callable
        For `skdpot.nets.training.train_network`.

    Privacy
    -------
    Each step releases the gradient times the batch size, rounded to a lattice, with discrete
    Gaussian noise ``plan.noise``. Batches are secret; nothing of them is kept.
    """
    batches, near = plan.batches(secret), Ball(_REACH * radius)
    data = Side(batch_size=plan.batch_size, private=True)

    def step(network: nn.Module, number: int) -> None:
        inputs = torch.from_numpy(draw_inputs()).to(next(network.parameters()).device)
        along = next(directions)
        made = Side(
            batch_size=len(inputs), private=False, network=network, clip_jacobian=clip_jacobian
        )
        total = clipped_wasserstein_gradient(
            made,
            data,
            inputs,
            torch.from_numpy(rows[next(batches)]),
            along,
            clip_output=near,
        )
        facts = {
            "plan": plan,
            "inputs": inputs.cpu(),
            "directions": along,
            "clip_jacobian": clip_jacobian,
            "clip_output": near,
        }
        summed = {parameter: plan.batch_size * value for parameter, value in total.items()}
        release_gradient(summed, plan.noise, plan.batch_size, secret, facts)

    return step
