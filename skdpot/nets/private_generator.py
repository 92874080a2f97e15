"""Training a generator on noisy gradients of its Wasserstein distance to private rows."""

from collections.abc import Callable, Iterator

import numpy as np
import torch
from torch import nn

from skdpot._utils.rng import SecretStream
from skdpot.nets.clipping import clipped_jacobian_sum
from skdpot.nets.per_sample import record_outputs
from skdpot.nets.training import GradientStep
from skdpot.nets.training_plan import TrainingPlan
from skdpot.nets.wasserstein_gradient import wasserstein_vectors
from skdpot.privacy.noise import gaussian_noise

__all__ = ["noisy_gradient_steps"]

_REACH = 4.0  # in radii of the rows; where no output has to be


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
    Each step releases the gradient times the batch size with Gaussian noise of ``plan.sigma``,
    drawn in double precision and added in that of the network, not hardened against attacks on
    floating-point numbers. Batches are secret; nothing of them is kept.
    """
    batches = plan.batches(secret)

    def step(network: nn.Module, number: int) -> None:
        device = next(network.parameters()).device
        inputs = torch.from_numpy(draw_inputs()).to(device)
        outputs = record_outputs(network, inputs).cpu().numpy().astype(np.float64)
        vectors = plan.batch_size * wasserstein_vectors(
            _shortened(outputs, _REACH * radius),
            rows[next(batches)],
            next(directions).astype(np.float64),
        )
        weights = torch.from_numpy(vectors).to(inputs)
        total = clipped_jacobian_sum(network, inputs, weights, clip_jacobian)
        for parameter, value in total.items():
            if plan.sigma > 0:
                noise = gaussian_noise(plan.sigma, tuple(value.shape), secret)
                value += torch.from_numpy(noise).to(value)
            parameter.grad = (value / plan.batch_size).to(parameter.dtype)

    return step


def _shortened(outputs: np.ndarray, reach: float) -> np.ndarray:
    """Keep outputs, which are public, where their rounding errors are small beside the noise."""
    finite = np.nan_to_num(outputs, nan=0.0, posinf=1e150, neginf=-1e150)
    norms = np.linalg.norm(finite, axis=1, keepdims=True)
    shortened: np.ndarray = finite * (reach / np.maximum(norms, reach))
    return shortened
