"""Paying for training by noisy sums of gradients, and training that tells nothing else."""

from collections.abc import Iterable, Sequence
from typing import Any

import numpy as np
from torch import nn

from skdpot._utils.devices import resolve_device
from skdpot.exceptions import ReplayError
from skdpot.mechanisms.base import FitContext
from skdpot.nets.training import GradientStep, train_network
from skdpot.nets.training_plan import TrainingPlan
from skdpot.privacy.data_bounds import DataBounds
from skdpot.privacy.provenance import warn_of_composition
from skdpot.privacy.spent import PrivacySpent, charge
from skdpot.slicing.declarations import assumptions as common_assumptions

__all__ = ["SINGLE_PRECISION", "charge_training", "publishable", "train_privately"]

# Products of matrices may round the same record in another way in a batch of another size.
SINGLE_PRECISION = (
    "a record's gradient in single precision does not depend on the size of its batch"
)


def charge_training(
    context: FitContext,
    plan: TrainingPlan,
    public: Iterable[str],
    mechanism: str,
    *,
    sigma_given: bool = False,
) -> PrivacySpent:
    """Charge a whole fit before any noise is drawn or record looked at, and return the statement.

    With `sigma_given` the caller fixed the noise: then the statement says what it costs at delta,
    whatever epsilon is.
    """
    bounds = plan.bounds if isinstance(plan.bounds, DataBounds) else None
    spent = charge(
        context.budget,
        plan.event,
        epsilon=None if sigma_given else context.epsilon,
        delta=context.delta,
        n_samples=plan.n_samples,
        label=context.caller,
        assumptions=(*common_assumptions(None, bounds, context.streams), *public),
        sigma=plan.sigma,
        sensitivity=plan.sensitivity,
        mechanism=mechanism,
    )
    warn_of_composition(context.source, spent, context.budget, context.caller)
    return spent


def train_privately(
    context: FitContext,
    network: nn.Module,
    step: GradientStep,
    n_steps: int,
    learning_rate: float,
    *,
    rng: np.random.Generator,
    callbacks: Sequence[Any] | None = None,
) -> tuple[int, BaseException | None]:
    """Train on private rows; return the number of finished steps, and what stopped training.

    What stopped it is to be raised by the caller, where the error is no longer handled.
    """
    started, stopped, numbers = 0, None, iter(range(n_steps))

    def counted(own: nn.Module, number: int) -> None:
        nonlocal started
        if number != next(numbers, None):  # a callback has asked the net for another step
            raise RuntimeError("Each step is charged, and taken, once.")
        started = number  # all steps before this one are finished
        step(own, number)

    try:
        train_network(
            network,
            counted,
            n_steps,
            learning_rate=learning_rate,
            rng=rng,
            private=True,
            device=resolve_device(context.device),
            callbacks=callbacks,
            progress=context.progress(context.caller),
        )
    except BaseException as error:
        stopped = publishable(error, context.caller)
    network.cpu().eval()
    for parameter in network.parameters():
        parameter.grad = None  # the last step's gradient is no part of the result
    return (n_steps if stopped is None else started), stopped


def publishable(error: BaseException, estimator: str) -> BaseException:
    """Return an error that quotes nothing of what it happened on.

    A network of the caller's own may raise anything, with values of private rows in the text, and
    the error itself then tells that such a row is there. An interrupt, and an error of a replay,
    stay as they are; everything else becomes a `RuntimeError` of fixed text, to be raised where
    `error` is no longer handled, so that it is not attached.
    """
    if not isinstance(error, Exception) or isinstance(error, ReplayError):
        return error
    return RuntimeError(
        f"{estimator}: training failed with a {type(error).__name__}, of which the text is not "
        "shown because it may quote private values. What was charged stays charged. Try the "
        "network on made-up rows of every size; it must not fail for any finite row."
    )
