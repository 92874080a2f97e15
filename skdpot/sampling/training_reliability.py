"""The error of networks that are trained on noisy sums of gradients, from public facts alone.

A sum of clipped gradients over all steps has a largest length, and its noise has a known one. Where
the ratio of both is small, a network learned nothing that its initial weights did not know. So the
error, as a share of that of the trivial answer, is taken to be ``least / ratio``, for the ratio at
which networks began to learn (data sets and made-up laws, see the constants of the mechanisms).
"""

import math

from torch import nn

from skdpot.nets.training_plan import TrainingPlan, trained_numbers
from skdpot.privacy.reliability import OutputError, Reliability

_MOST = 2.0  # largest error, as a share of that of the trivial answer


def training_reliability(
    network: nn.Module,
    plan: TrainingPlan,
    *,
    longest: float,
    least: float,
    output: str,
    trivial: str,
    advice: str,
) -> Reliability:
    """State the error of an output of a network, in units of the error of a trivial answer.

    Parameters
    ----------
    network : nn.Module
        The network.
    plan : TrainingPlan
        Batches, steps and noise.
    longest : float
        Largest norm of the clipped gradient of one record.
    least : float
        The ratio of the gradients to their noise below which the trivial answer is as good.
    output, trivial, advice : str
        As for `OutputError` and `Reliability`.
    """
    signal = plan.batch_size * longest * math.sqrt(plan.n_steps)
    noise = plan.sigma * math.sqrt(trained_numbers(network))
    error = min(least * noise, _MOST * signal) / signal if signal > 0 else _MOST
    stated = OutputError(output=output, standard_error=error, trivial=trivial, trivial_error=1.0)
    return Reliability((stated,), advice)
