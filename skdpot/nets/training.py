"""Training by skorch with gradients from a function of the caller.

For skorch a step is an epoch of one batch, and the batch is the number of the step. skorch manages
the network, its optimizer, device, learning rate, callbacks and history. Neither skorch nor a
callback sees rows, losses or batch sizes: a function that the net does not refer to computes the
gradients on a copy of the network. So no information about a private row can remain in the buffers
or hooks of the trained network.

Copies of a network see private rows one at a time, unless it is a plain chain of layers
(`skdpot.nets.per_sample`), and only trained parameters are kept.
"""

from collections.abc import Callable, Iterator, Sequence, Sized
from contextvars import ContextVar
from copy import deepcopy
from typing import Any

import numpy as np
import torch
from skorch import NeuralNet
from skorch.callbacks import (
    BatchScoring,
    Callback,
    EpochScoring,
    EpochTimer,
    LRScheduler,
    PassthroughScoring,
    PrintLog,
    ProgressBar,
)
from torch import nn
from tqdm.auto import tqdm

from skdpot._utils.streams import torch_randomness
from skdpot.exceptions import publishable

# A function that stores the gradients of a numbered step in the parameters of the network.
GradientStep = Callable[[nn.Module, int], None]

_BAR_WITHOUT_SPEED = "{l_bar}{bar}| {n_fmt}/{total_fmt}"  # the speed depends on the batch sizes
_LOSSES = (EpochScoring, BatchScoring, PassthroughScoring, PrintLog)
_TIMERS = (EpochTimer, ProgressBar)
_OF_LOSSES = ("epoch_timer", "train_loss", "valid_loss", "print_log")  # skorch's default callbacks
# `noisy_learning_rate` is _RATE over the fourth root of the number of parameters, reduced beyond
# _STEPS_AT_FULL_RATE steps. Measured on digits (13,000 parameters) and MNIST (a million).
_RATE = 0.32
_STEPS_AT_FULL_RATE = 400

_GRADIENT_STEP: ContextVar[GradientStep] = ContextVar("gradient_step")


def train_network(
    module: nn.Module,
    gradient_step: GradientStep,
    n_steps: int,
    *,
    learning_rate: float,
    rng: np.random.Generator,
    device: torch.device | None = None,
    callbacks: Sequence[Any] | None = None,
    progress: str | None = None,
    momentum: float | None = None,
) -> nn.Module:
    """Train a network in place; return it in evaluation mode, on the CPU.

    ``gradient_step(network, number)`` sets ``parameter.grad`` of every parameter that is to move.
    The optimizer is Adam, with a rate that falls to zero along a half cosine unless `callbacks`
    contain a schedule; with `momentum` it is SGD at a constant rate. `rng` seeds torch's generator
    (for dropout). With private records in Poisson batches `rng` must be secret: the masks of a
    record depend on the other records of the batch.
    """
    hooks = list(callbacks or ())
    optimizer: dict[str, Any] = {"optimizer": torch.optim.Adam}
    if momentum is not None:
        optimizer = {"optimizer": torch.optim.SGD, "optimizer__momentum": momentum}
    elif not any(isinstance(_callback(hook), LRScheduler) for hook in hooks):
        cosine = torch.optim.lr_scheduler.CosineAnnealingLR
        hooks.append(("schedule", LRScheduler(cosine, T_max=n_steps)))
    bar = tqdm(total=n_steps, desc=progress, disable=not progress, bar_format=_BAR_WITHOUT_SPEED)
    net = _SteppedNet(
        module,
        criterion=nn.Identity,
        **optimizer,
        lr=learning_rate,
        max_epochs=n_steps,
        iterator_train=_Steps,
        train_split=None,
        device="cpu" if device is None else device,
        callbacks=hooks,
        verbose=0,
        **{f"callbacks__{name}": None for name in _OF_LOSSES},
    )

    def counted(network: nn.Module, number: int) -> None:
        gradient_step(network, number)
        bar.update()

    token = _GRADIENT_STEP.set(counted)
    try:
        with torch_randomness(rng), bar:
            net.fit(np.arange(n_steps))
    finally:
        _GRADIENT_STEP.reset(token)
        module.cpu().eval()
        for parameter in module.parameters():
            parameter.grad = None  # the gradient of the last step is not part of the result
    if len(net.history) < n_steps or "train_batch_count" not in net.history[-1]:
        raise KeyboardInterrupt  # skorch has swallowed it
    return module


def train_privately(
    network: nn.Module,
    step: GradientStep,
    n_steps: int,
    *,
    caller: str,
    device: torch.device | None = None,
    **options: Any,
) -> tuple[int, BaseException | None]:
    """Train on private rows; return the number of finished steps and the error that stopped them.

    A step gets a copy of the network, and only the gradients of the copy are passed on. The caller
    raises the error outside of the handler, so that its traceback holds no rows.
    """
    started, stopped, numbers = 0, None, iter(range(n_steps))

    def on_a_copy(trained: nn.Module, number: int) -> None:
        nonlocal started
        if number != next(numbers, None):  # a callback has asked for another step
            raise RuntimeError("Each step is charged, and taken, once.")
        started = number  # all steps before this one are finished
        copied.train()
        pairs = list(zip(copied.parameters(), trained.parameters(), strict=True))
        with torch.no_grad():
            for parameter, current in pairs:
                parameter.copy_(current)
        step(copied, number)
        for parameter, current in pairs:
            current.grad, parameter.grad = parameter.grad, None

    try:
        copied = deepcopy(network).to(device)
        train_network(network, on_a_copy, n_steps, device=device, **options)
    except BaseException as error:
        stopped = publishable(error, caller)
    return (n_steps if stopped is None else started), stopped


def train_to_the_end(network: nn.Module, step: GradientStep, n_steps: int, **options: Any) -> None:
    """Train by `train_privately` and raise the error that stopped it, if any."""
    _, stopped = train_privately(network, step, n_steps, **options)
    if stopped is not None:
        raise stopped


def check_callbacks(callbacks: Sequence[Any] | None) -> None:
    """Refuse, before any charge, objects that are no callbacks or need unrecorded values."""
    for hook in callbacks or ():
        callback = _callback(hook)
        name = type(callback).__name__
        if not isinstance(callback, Callback):
            raise TypeError(
                f"callbacks must hold skorch callbacks, or pairs with a name; got {name}."
            )
        monitor = getattr(callback, "monitor", None)
        if isinstance(callback, LRScheduler):
            monitor = monitor if "Plateau" in str(callback.policy) else None
        if isinstance(callback, _LOSSES) or isinstance(monitor, str):
            raise ValueError(
                f"callbacks: {name} reads losses or scores, which are not recorded: they have no "
                "noise. Use a callback that needs none, or monitor=None or a function of the net."
            )
        if isinstance(callback, _TIMERS):
            raise ValueError(
                f"callbacks: {name} shows how long steps take, which reveals the secret sizes of "
                "batches. Use verbose=1 for a bar."
            )


def noisy_learning_rate(
    rate: float | str, network: nn.Module, n_steps: int, largest: float
) -> float:
    """Return the learning rate of Adam; "auto" depends on the numbers of parameters and steps.

    Each parameter moves by about the rate, so the noise of an output grows with their number.
    """
    if rate != "auto":
        return float(rate)
    n_parameters = sum(parameter.numel() for parameter in network.parameters())
    first = min(largest, _RATE * max(1, n_parameters) ** -0.25)
    return float(first * min(1.0, (_STEPS_AT_FULL_RATE / n_steps) ** 0.5))


class _SteppedNet(NeuralNet):
    """A net whose gradients come from the running step of `train_network`."""

    def train_step_single(self, batch: np.ndarray, **fit_params: Any) -> dict[str, Any]:
        """Let the step set the gradients; record no loss."""
        self.module_.train()
        _GRADIENT_STEP.get()(self.module_, int(batch[0]))
        return {"loss": torch.tensor(float("nan")), "y_pred": None}


class _Steps:
    """A replacement of the data loader: an epoch yields the number of the next step."""

    def __init__(self, dataset: Sized, batch_size: int) -> None:
        self._numbers = iter(range(len(dataset)))

    def __iter__(self) -> Iterator[np.ndarray]:
        yield np.array([next(self._numbers)])


def _callback(hook: Any) -> Any:
    """Return a callback, or the callback in a pair with its name."""
    return hook[1] if isinstance(hook, tuple) and len(hook) == 2 else hook


def with_trained_parameters(clean: nn.Module, trained: nn.Module) -> nn.Module:
    """Copy trained parameters into `clean`, a copy of the network before the training."""
    with torch.no_grad():
        for parameter, value in zip(clean.parameters(), trained.parameters(), strict=True):
            if parameter.requires_grad:
                parameter.copy_(value)
    return clean.eval()
