"""Training by skorch, a step at a time, on gradients that a caller provides.

To skorch a step is an epoch of one batch, and a batch is the number of the step. It keeps the
network, its optimizer, its device, its learning rate, its callbacks and its history. What it, and
with it every callback, never sees are rows, losses and the sizes of batches: a gradient is put in
place by a function that the net has no reference to, and on a copy of the network, so that nothing
of a private row can stay in the one that is trained, in its buffers or in a hook.
"""

from collections.abc import Callable, Iterator, Sequence
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

from skdpot._utils.torch_rng import torch_randomness

__all__ = ["GradientStep", "check_callbacks", "noisy_learning_rate", "train_network"]

GradientStep = Callable[[nn.Module, int], None]

_BAR_WITHOUT_SPEED = "{l_bar}{bar}| {n_fmt}/{total_fmt}"
_LOSSES = (EpochScoring, BatchScoring, PassthroughScoring, PrintLog)
_TIMERS = (EpochTimer, ProgressBar)
_OF_LOSSES = ("epoch_timer", "train_loss", "valid_loss", "print_log")  # skorch's own callbacks
_STEPS_AT_FULL_RATE = 400
_RATE = 0.32  # over the fourth root of the number of parameters

_GRADIENT_STEP: ContextVar[GradientStep] = ContextVar("gradient_step")


def train_network(
    module: nn.Module,
    gradient_step: GradientStep,
    n_steps: int,
    *,
    learning_rate: float,
    rng: np.random.Generator,
    private: bool = False,
    device: torch.device | None = None,
    callbacks: Sequence[Any] | None = None,
    progress: str | None = None,
) -> nn.Module:
    """Train a network in place by Adam; return it in evaluation mode, on the CPU.

    ``gradient_step(network, number)`` fills ``parameter.grad`` of every parameter that is to move;
    with ``private=True`` it is given a copy of the network. The learning rate falls to zero along
    a half cosine, unless `callbacks` hold a schedule. The progress bar shows no speed: that follows
    the sizes of batches, which may be secret.

    `rng` seeds torch's own generator while training runs (dropout uses it). With private records in
    Poisson batches it must come from the secret stream: the masks that a record gets depend
    on who else is in its batch, and only masks that nobody knows leave the distribution of
    the others' gradients as it was. Otherwise it is the solver's stream.
    """
    given = list(callbacks or ())
    if not any(isinstance(_callback(one), LRScheduler) for one in given):
        cosine = torch.optim.lr_scheduler.CosineAnnealingLR
        given.append(("schedule", LRScheduler(cosine, T_max=n_steps)))
    bar = tqdm(total=n_steps, desc=progress, disable=not progress, bar_format=_BAR_WITHOUT_SPEED)
    net = _SteppedNet(
        module,
        criterion=nn.Identity,
        optimizer=torch.optim.Adam,
        lr=learning_rate,
        max_epochs=n_steps,
        iterator_train=_Steps,
        train_split=None,
        device="cpu" if device is None else device,
        callbacks=[*given, ("step_bar", _StepBar(bar))] if progress else given,
        verbose=0,
        **{f"callbacks__{name}": None for name in _OF_LOSSES},
    )
    step = _on_a_copy(gradient_step, deepcopy(module).to(device)) if private else gradient_step
    token = _GRADIENT_STEP.set(step)
    try:
        with torch_randomness(rng), bar:
            net.fit(np.arange(n_steps))
    finally:
        _GRADIENT_STEP.reset(token)
    if len(net.history) < n_steps or "train_batch_count" not in net.history[-1]:
        raise KeyboardInterrupt  # which skorch has swallowed
    return module.cpu().eval()


def check_callbacks(callbacks: Sequence[Any] | None) -> None:
    """Refuse, before any charge, what is no callback or needs what is never recorded."""
    for given in callbacks or ():
        callback = _callback(given)
        name = type(callback).__name__
        if not isinstance(callback, Callback):
            raise TypeError(
                "callbacks must hold objects of skorch.callbacks.Callback, or pairs (name, "
                f"callback); got {name}."
            )
        monitor = getattr(callback, "monitor", None)
        if isinstance(callback, LRScheduler):
            monitor = monitor if "Plateau" in str(callback.policy) else None
        if isinstance(callback, _LOSSES) or isinstance(monitor, str):
            raise ValueError(
                f"callbacks: {name} reads losses or scores, and none are recorded, because they "
                "would tell of the rows without noise. Use a callback that needs none, or give it "
                "monitor=None or a function of the net."
            )
        if isinstance(callback, _TIMERS):
            raise ValueError(
                f"callbacks: {name} shows how long steps take, which follows the secret sizes of "
                "batches. Use verbose=1 for a bar of the steps."
            )


def noisy_learning_rate(
    given: float | str, network: nn.Module, n_steps: int, largest: float
) -> float:
    """Return Adam's learning rate, by default a public rule in parameters and steps.

    Every parameter of a noisy step moves by about the learning rate, so that what noise adds to an
    output grows with the number of parameters, and over many steps the noise of each has to count
    for less. The constants were measured on digits (900 and 1,800 rows, 13,000 parameters) and
    MNIST (10,000 rows, a million parameters).
    """
    if given != "auto":
        return float(given)
    n_parameters = sum(parameter.numel() for parameter in network.parameters())
    rate = min(largest, _RATE * max(1, n_parameters) ** -0.25)
    return float(rate * min(1.0, (_STEPS_AT_FULL_RATE / n_steps) ** 0.5))


class _SteppedNet(NeuralNet):
    """A net whose gradients come from the step of `train_network` that is running."""

    def train_step_single(self, batch: np.ndarray, **fit_params: Any) -> dict[str, Any]:
        """Let the step fill in the gradients; there is no loss to tell."""
        self.module_.train()
        _GRADIENT_STEP.get()(self.module_, int(batch[0]))
        return {"loss": torch.tensor(float("nan")), "y_pred": None}


class _Steps:
    """In the place of a data loader: an epoch yields the number of the next step."""

    def __init__(self, dataset: Any, batch_size: int) -> None:
        self._numbers = iter(range(len(dataset)))

    def __iter__(self) -> Iterator[np.ndarray]:
        yield np.array([next(self._numbers)])


class _StepBar(Callback):
    """Move a progress bar by one after each step."""

    def __init__(self, bar: Any) -> None:
        self.bar = bar

    def on_epoch_end(self, net: NeuralNet, **kwargs: Any) -> None:
        """Count the step."""
        self.bar.update()


def _callback(given: Any) -> Any:
    """Return the callback of an entry, which may be a pair (name, callback)."""
    return given[1] if isinstance(given, tuple) and len(given) == 2 else given


def _on_a_copy(step: GradientStep, own: nn.Module) -> GradientStep:
    """Take a step on a copy, and hand over the gradients alone."""

    def apart(trained: nn.Module, number: int) -> None:
        own.train()
        pairs = list(zip(own.parameters(), trained.parameters(), strict=True))
        with torch.no_grad():
            for parameter, current in pairs:
                parameter.copy_(current)
        step(own, number)
        for parameter, current in pairs:
            current.grad, parameter.grad = parameter.grad, None

    return apart
