"""Training by skorch, a step at a time, on gradients that a caller provides.

skorch keeps the network, its optimizer, its device and its learning rate. What it must not do
here is to touch the data or to write down losses: it iterates over *numbers of steps*, and a
step is a function that puts the gradient, made private by whoever needs that, in its place.
"""

from collections.abc import Callable, Iterator
from typing import Any

import numpy as np
import torch
from skorch import NeuralNet
from skorch.callbacks import LRScheduler
from torch import nn
from tqdm.auto import tqdm

from skdpot._utils.torch_rng import torch_randomness

__all__ = ["GradientStep", "train_network"]

_BAR_WITHOUT_SPEED = "{l_bar}{bar}| {n_fmt}/{total_fmt}"

GradientStep = Callable[[nn.Module, int], None]


def train_network(
    module: nn.Module,
    gradient_step: GradientStep,
    n_steps: int,
    *,
    learning_rate: float,
    rng: np.random.Generator,
    optimizer: type[torch.optim.Optimizer] = torch.optim.Adam,
    device: torch.device | None = None,
    progress: str | None = None,
) -> nn.Module:
    """Train a network for a fixed number of steps.

    Parameters
    ----------
    module : torch.nn.Module
        Network; trained in place.
    gradient_step : callable
        ``gradient_step(module, step)`` fills ``parameter.grad`` of every parameter that is to
        move. Gradients are zero or None before.
    n_steps : int
        Number of steps.
    learning_rate : float
        At the start; it falls to zero along a half cosine.
    rng : numpy.random.Generator
        Seeds torch's own generator while training runs (dropout uses it). With private records in
        Poisson batches it must come from the secret stream: the masks that a record gets depend
        on who else is in its batch, and only masks that nobody knows leave the distribution of
        the others' gradients as it was. Otherwise the solver's stream.
    optimizer : type, default=torch.optim.Adam
        Optimizer.
    device : torch.device, optional
        Where to train; None is the CPU.
    progress : str, optional
        Shows a progress bar with this label. It shows steps, never losses, and no speed:
        that follows the sizes of batches, which may be secret.

    Returns
    -------
    torch.nn.Module
        The module, in evaluation mode and on the CPU.
    """
    net = _SteppedNet(
        module,
        criterion=nn.Identity,
        optimizer=optimizer,
        lr=learning_rate,
        max_epochs=1,
        batch_size=1,
        iterator_train=_Steps,
        iterator_train__progress=progress,
        train_split=None,
        device="cpu" if device is None else device,
        callbacks=[
            (
                "schedule",
                LRScheduler(
                    torch.optim.lr_scheduler.CosineAnnealingLR, step_every="batch", T_max=n_steps
                ),
            )
        ],
        verbose=0,
    )
    net.gradient_step = gradient_step
    with torch_randomness(rng):
        net.fit(np.arange(n_steps), None)
    return module.cpu().eval()


class _SteppedNet(NeuralNet):
    """A skorch net whose gradients come from a function and whose history stays empty."""

    gradient_step: GradientStep

    def partial_fit(self, X: Any, y: Any = None, **fit_params: Any) -> "_SteppedNet":
        """Take all steps; unlike skorch's own method, let an interrupt through.

        A half-trained network must not pass for a fitted one.
        """
        self.notify("on_train_begin", X=X, y=y)
        self.fit_loop(X, y, **fit_params)
        self.notify("on_train_end", X=X, y=y)
        return self

    def train_step_single(self, batch: int, **fit_params: Any) -> dict[str, Any]:
        """Let the function fill in the gradients."""
        self._set_training(True)
        self.gradient_step(self.module_, batch)
        return {"loss": None, "y_pred": None}

    def run_single_epoch(
        self, iterator: Any, training: bool, prefix: str, step_fn: Any, **fit_params: Any
    ) -> None:
        """Take all steps; unlike skorch's own method, record no loss and no size."""
        for step in iterator or ():
            self.notify("on_batch_begin", batch=step, training=training)
            step_fn(step)
            self.notify("on_batch_end", batch=step, training=training)


class _Steps:
    """In the place of a data loader: the numbers of the steps."""

    def __init__(self, dataset: Any, batch_size: int, progress: str | None = None) -> None:
        self._n_steps, self._progress = len(dataset), progress

    def __iter__(self) -> Iterator[int]:
        steps = range(self._n_steps)
        label = self._progress
        return iter(tqdm(steps, desc=label, disable=not label, bar_format=_BAR_WITHOUT_SPEED))
