"""Networks of the estimators: making, checking, running and training them.

Training is done by skorch, for which a step is an epoch of one batch and a batch is the number of
the step. skorch keeps the network, its optimizer, device, learning rate, callbacks and history. It
never sees rows, losses or batch sizes, and neither does a callback: a function that the net has no
reference to puts the gradient in place, computed on a copy of the network, so that nothing of a
private row can stay in the buffers or hooks of the network that is trained.

Networks in which one record can reach another's output are refused: clipping bounds only what a
record contributes through its own gradient. Copies of a network see private rows one at a time,
unless it is a plain chain of layers (`skdpot.nets.per_sample`), and only trained parameters are
kept.
"""

import math
from collections.abc import Callable, Iterator, Sequence
from contextlib import suppress
from contextvars import ContextVar
from copy import deepcopy
from functools import partial
from itertools import chain, pairwise
from typing import Any, Literal, TypeAlias

import numpy as np
import torch
from scipy.special import ndtri
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
from torch.nn.parameter import is_lazy
from tqdm.auto import tqdm

from skdpot._utils.validation import torch_randomness
from skdpot.exceptions import publishable
from skdpot.nets.per_sample import (
    LatentEncoding,
    chain_of_layers,
    record_jacobians,
    record_outputs,
)

Architecture: TypeAlias = str | tuple[Any, Any]

_WIDEST = 512
_SLOPE = 0.2  # of the leaky ReLU, as in DCGAN
_DCGAN_SIZE = 64
_DCGAN_CHANNELS = 64


def image_dimensions(
    image_shape: tuple[int, ...] | None, n_features: int
) -> tuple[int, int, int] | None:
    """Return ``(channels, height, width)``, or None when rows are not images."""
    if image_shape is None:
        return None
    shape = tuple(int(side) for side in image_shape)
    if len(shape) not in (2, 3) or min(shape) < 1:
        raise ValueError(
            f"image_shape={image_shape!r} must be (height, width) or (channels, height, width)."
        )
    if math.prod(shape) != n_features:
        raise ValueError(
            f"image_shape={image_shape!r} has {math.prod(shape)} values, but the rows of X have "
            f"{n_features} features: flat rows, channels first."
        )
    channels, height, width = (1, *shape) if len(shape) == 2 else shape
    return channels, height, width


def build_networks(
    architecture: Architecture,
    *,
    n_features: int,
    image: tuple[int, int, int] | None,
    latent_dim: int,
) -> tuple[nn.Module, nn.Module]:
    """Make an encoder and a decoder (`skdpot.mechanisms.Architecture`)."""
    if not isinstance(architecture, str):
        if len(architecture) != 2:
            raise ValueError(
                f"architecture must be a name or a pair (encoder, decoder); got {architecture!r}."
            )
        encoder, decoder = (_given_network(part, "architecture: each") for part in architecture)
        if image is not None:
            encoder = nn.Sequential(nn.Unflatten(1, image), encoder)
        return encoder, nn.Sequential(decoder, nn.Flatten())
    if architecture == "mlp":
        wide = min(_WIDEST, max(32, n_features))
        widths = (n_features, wide, max(16, wide // 2), latent_dim)
        return _perceptron(*widths), _perceptron(*widths[::-1])
    if image is None:
        raise ValueError(
            f'architecture="{architecture}" needs image_shape: pass Architecture("{architecture}", '
            "image_shape=(height, width)), or (channels, height, width). For rows that are not "
            'images use "mlp".'
        )
    return _conv(image, latent_dim) if architecture == "conv" else _dcgan(image, latent_dim)


def _given_network(given: nn.Module | Callable[[], Any], parameter: str = "module") -> nn.Module:
    """Copy or make a caller's network: a function may return the same one each time."""
    kinds = (
        f"{parameter} must be a torch.nn.Module or a function without arguments that returns one"
    )
    try:
        network = deepcopy(given if isinstance(given, nn.Module) else given())
    except TypeError as error:
        raise TypeError(f"{kinds}; calling it failed: {error}") from error
    if not isinstance(network, nn.Module):
        raise TypeError(f"{kinds}; got one that returns {type(network).__name__}.")
    return network


def _with_relu(*layers: nn.Module) -> tuple[nn.Module, ...]:
    return tuple(chain.from_iterable((layer, nn.ReLU()) for layer in layers))


def _perceptron(*widths: int) -> nn.Sequential:
    *hidden, last = [nn.Linear(a, b) for a, b in pairwise(widths)]
    return nn.Sequential(*_with_relu(*hidden), last)


def _conv(image: tuple[int, int, int], latent_dim: int) -> tuple[nn.Module, nn.Module]:
    channels, height, width = image
    if height % 2 or width % 2 or min(height, width) < 8:
        raise ValueError(
            f'architecture="conv" halves images once: height and width must be even and at least '
            f'8, got {height} x {width}. Pad the images, or use "mlp".'
        )
    small = (height // 2, width // 2)
    same_size = partial(nn.Conv2d, kernel_size=3, padding=1)
    encoder = nn.Sequential(
        nn.Unflatten(1, image),
        *_with_relu(same_size(channels, 3), nn.Conv2d(3, 32, 4, stride=2)),
        *_with_relu(same_size(32, 32), same_size(32, 32)),
        nn.Flatten(),
        nn.Linear(32 * (small[0] - 1) * (small[1] - 1), latent_dim),
    )
    decoder = nn.Sequential(
        *_with_relu(nn.Linear(latent_dim, 32 * math.prod(small))),
        nn.Unflatten(1, (32, *small)),
        *_with_relu(same_size(32, 32), same_size(32, 32), nn.ConvTranspose2d(32, 32, 2, stride=2)),
        same_size(32, channels),
        nn.Flatten(),
    )
    # PyTorch's own start loses the input in eight layers.
    for weights in chain(encoder.parameters(), decoder.parameters()):
        if weights.ndim > 1:
            nn.init.kaiming_uniform_(weights, nonlinearity="relu")
        else:
            nn.init.zeros_(weights)
    return encoder, decoder


def _dcgan(image: tuple[int, int, int], latent_dim: int) -> tuple[nn.Module, nn.Module]:
    channels, height, width = image
    if (height, width) != (_DCGAN_SIZE, _DCGAN_SIZE):
        raise ValueError(
            f'architecture="dcgan" is for images of {_DCGAN_SIZE} x {_DCGAN_SIZE}, got '
            f'{height} x {width}. Resize them, or use "conv".'
        )
    c = _DCGAN_CHANNELS

    def widen(given: int, k: int, stride: int = 2, padding: int = 1) -> tuple[nn.Module, ...]:
        convolution = nn.ConvTranspose2d(given, c * k, 4, stride=stride, padding=padding)
        return convolution, nn.LeakyReLU(_SLOPE), nn.GroupNorm(8, c * k)

    encoder = nn.Sequential(
        nn.Unflatten(1, image),
        nn.Conv2d(channels, c, 3, padding=1),
        nn.LeakyReLU(_SLOPE),
        *(
            layer
            for k in (c, 2 * c, 4 * c)
            for layer in (nn.Conv2d(k, 2 * k, 4, stride=2, padding=1), nn.LeakyReLU(_SLOPE))
        ),
        nn.Flatten(),
        nn.Linear(8 * c * (_DCGAN_SIZE // 8) ** 2, latent_dim),
    )
    decoder = nn.Sequential(
        nn.Unflatten(1, (latent_dim, 1, 1)),
        *widen(latent_dim, 8, stride=1, padding=0),
        *(layer for k in (8, 4, 2) for layer in widen(c * k, k // 2)),
        nn.ConvTranspose2d(c, channels, 4, stride=2, padding=1),
        nn.Flatten(),
    )
    return encoder, decoder


_TINY = 1e-12


def make_mlp(latent_dim: int, n_classes: int, n_features: int, width: int) -> nn.Sequential:
    """Return the default network: two hidden layers behind a `LatentEncoding`."""
    n_inputs = latent_dim + n_classes
    layers: list[nn.Module] = []
    if latent_dim > 1:
        layers.append(encoding := LatentEncoding(latent_dim, n_inputs))
        n_inputs = encoding.n_outputs
    layers += [nn.Linear(n_inputs, width), nn.SiLU(), nn.Linear(width, width), nn.SiLU()]
    return nn.Sequential(*layers, nn.Linear(width, n_features))


def draw_latents(
    n_samples: int, latent_dim: int, rng: np.random.Generator, classes: np.ndarray | None = None
) -> np.ndarray:
    """Draw inputs of the generator's network: normal numbers, one in each interval of a column."""
    intervals = rng.permuted(np.tile(np.arange(n_samples), (latent_dim, 1)), axis=1).T
    levels = (intervals + rng.random((n_samples, latent_dim))) / n_samples
    latents = ndtri(np.clip(levels, _TINY, 1 - _TINY)).astype(np.float32)
    if classes is None:
        return latents
    return np.concatenate([latents, classes.astype(np.float32)], axis=1)


_N_PROBES = 2


def checked_network(
    module: nn.Module | Callable[[], Any],
    n_inputs: int,
    n_outputs: int,
    *,
    inputs: str,
    outputs: str,
) -> nn.Module:
    """Copy or make a caller's network, and check what it returns."""
    network = _given_network(module)
    if not any(parameter.requires_grad for parameter in network.parameters()):
        raise ValueError("module has no parameters to train.")
    check_widths("module", deepcopy(network), (n_inputs, inputs), (n_outputs, outputs))
    return network


def check_widths(
    name: str, network: nn.Module, inputs: tuple[int, str], outputs: tuple[int, str]
) -> None:
    """Run a network on rows of zeros; numbers of columns come with what they are."""
    shape = (_N_PROBES, inputs[0])
    with torch.no_grad():
        try:
            rows = network.eval()(torch.zeros(shape))
        except Exception as error:  # modules of callers may raise anything
            raise ValueError(
                f"{name} does not accept a tensor of shape {shape}: {inputs[1]}. Its "
                f"{type(error).__name__} says: {error}"
            ) from error
    wanted = (_N_PROBES, outputs[0])
    if rows.shape != wanted:
        raise ValueError(
            f"{name} maps {_N_PROBES} rows to a tensor of shape {tuple(rows.shape)}; it must be "
            f"{wanted}: {outputs[1]}."
        )


Predictor: TypeAlias = nn.Module | Callable[[], Any] | Literal["linear", "mlp"]

_HIDDEN_UNITS = 64


def build_predictor(module: Predictor, n_features: int, n_outputs: int) -> nn.Module:
    """Make a network from rows to outputs."""
    if not isinstance(module, str):
        outputs = "one logit for two classes, one per class for more; one column per target"
        rows = "one column per feature of X"
        return checked_network(module, n_features, n_outputs, inputs=rows, outputs=outputs)
    widths = (n_features,) if module == "linear" else (n_features, _HIDDEN_UNITS)
    hidden = [] if module == "linear" else [nn.Linear(*widths), nn.Tanh()]
    last = nn.Linear(widths[-1], n_outputs)
    for parameter in last.parameters():
        nn.init.zeros_(parameter)
    return nn.Sequential(*hidden, last)


_ROWS_AT_ONCE = 512


def evaluate(network: nn.Module, rows: np.ndarray, device: torch.device | None) -> np.ndarray:
    """Run a network on rows, without gradients and a few rows at a time."""
    convolutional = any(isinstance(layer, nn.modules.conv._ConvNd) for layer in network.modules())
    where: dict[str, Any] = {"device": device or "cpu"}
    where["dtype"] = torch.float32 if convolutional else torch.float64
    copy = deepcopy(network).to(**where)
    parts = np.array_split(rows, max(1, math.ceil(len(rows) / _ROWS_AT_ONCE)))
    with torch.inference_mode():
        outputs = [copy(torch.from_numpy(part).to(**where)) for part in parts]
    return torch.cat(outputs).cpu().numpy().astype(np.float64)


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
    device: torch.device | None = None,
    callbacks: Sequence[Any] | None = None,
    progress: str | None = None,
    momentum: float | None = None,
) -> nn.Module:
    """Train a network in place; return it in evaluation mode, on the CPU.

    ``gradient_step(network, number)`` fills ``parameter.grad`` of every parameter that is to move.
    Steps are those of Adam, with a rate that falls to zero along a half cosine unless `callbacks`
    hold a schedule; with `momentum` they are plain ones of a constant rate. The progress bar shows
    no speed, which would tell of the sizes of batches. `rng` seeds torch's own generator (for
    dropout). With private records in Poisson batches it must be secret: masks depend on who else is
    in a batch.
    """
    given = list(callbacks or ())
    optimizer: dict[str, Any] = {"optimizer": torch.optim.Adam}
    if momentum is not None:
        optimizer = {"optimizer": torch.optim.SGD, "optimizer__momentum": momentum}
    elif not any(isinstance(_callback(one), LRScheduler) for one in given):
        cosine = torch.optim.lr_scheduler.CosineAnnealingLR
        given.append(("schedule", LRScheduler(cosine, T_max=n_steps)))
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
        callbacks=given,
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
            parameter.grad = None  # the last step's gradient is no part of the result
    if len(net.history) < n_steps or "train_batch_count" not in net.history[-1]:
        raise KeyboardInterrupt  # which skorch has swallowed
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
    """Train on private rows; return the number of finished steps, and what stopped training.

    A step is given a copy of the network, of which the gradients alone are handed over. What
    stopped training is to be raised by the caller, where the error is no longer handled.
    """
    started, stopped, numbers = 0, None, iter(range(n_steps))

    def on_a_copy(trained: nn.Module, number: int) -> None:
        nonlocal started
        if number != next(numbers, None):  # a callback has asked the net for another step
            raise RuntimeError("Each step is charged, and taken, once.")
        started = number  # all steps before this one are finished
        own.train()
        pairs = list(zip(own.parameters(), trained.parameters(), strict=True))
        with torch.no_grad():
            for parameter, current in pairs:
                parameter.copy_(current)
        step(own, number)
        for parameter, current in pairs:
            current.grad, parameter.grad = parameter.grad, None

    try:
        own = deepcopy(network).to(device)
        train_network(network, on_a_copy, n_steps, device=device, **options)
    except BaseException as error:
        stopped = publishable(error, caller)
    return (n_steps if stopped is None else started), stopped


def train_to_the_end(*given: Any, **options: Any) -> None:
    """Train on private rows, and raise what stops training; arguments of `train_privately`."""
    _, stopped = train_privately(*given, **options)
    if stopped is not None:
        raise stopped


def check_callbacks(callbacks: Sequence[Any] | None) -> None:
    """Refuse, before any charge, what is no callback or needs what is never recorded."""
    for given in callbacks or ():
        callback = _callback(given)
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
    given: float | str, network: nn.Module, n_steps: int, largest: float
) -> float:
    """Return Adam's learning rate, by default a public rule in parameters and steps.

    Each parameter moves by about the rate, so that the noise of an output grows with their number.
    The constants were measured on digits (13,000 parameters) and MNIST (a million).
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


def _callback(given: Any) -> Any:
    return given[1] if isinstance(given, tuple) and len(given) == 2 else given


_N_RECORDS = 5
_MANY = 64


def check_per_record(
    network: nn.Module,
    input_shape: tuple[int, ...],
    rng: np.random.Generator,
    *,
    parameter: str = "architecture",
    callbacks: Sequence[Any] | None = None,
) -> None:
    """Refuse a network whose output for a record depends on other records.

    Layers known for it are refused by name. Otherwise a copy of the network is run on made-up
    records, in training mode: exchanging the companions of a record must leave its output and its
    gradient as they are, to the last bit, nothing may change, and gradients of single records must
    be computable. Copies of the callbacks that it will be trained with are tried for one step,
    without rows.
    """
    for name, layer in network.named_modules():
        kind = type(layer).__name__
        if isinstance(layer, nn.modules.batchnorm._BatchNorm):  # SyncBatchNorm is one
            raise ValueError(
                f"Layer {name!r} ({kind}) normalises each record by the others of the batch, which "
                "no clipping bounds. Use torch.nn.GroupNorm or torch.nn.LayerNorm."
            )
        if getattr(layer, "track_running_stats", False):
            raise ValueError(
                f"Layer {name!r} ({kind}) keeps running statistics of private records without "
                "noise. Use track_running_stats=False, or torch.nn.GroupNorm."
            )
    for name, values in network.named_parameters():
        if values.requires_grad and values.dtype not in (torch.float32, torch.float64):
            raise ValueError(
                f"Parameter {name!r} is of type {values.dtype}, too coarse to bound a record's "
                "gradient. Use torch.float32 or torch.float64."
            )
    # A fixed stream for the network's own randomness: both runs must see the same dropout.
    seed = int(rng.integers(2**32))
    records = _made_up(_N_RECORDS, input_shape, rng)
    if any(is_lazy(tensor) for tensor in (*network.parameters(), *network.buffers())):
        _run(network, records[0], seed)
    apart = deepcopy(network).train()
    _check_companions(apart, *records, seed)
    if chain_of_layers(network) is None:
        # It may treat few records in another way than many.
        many, others = _made_up(_MANY, input_shape, rng)
        for companions in (others, -many):  # the second set changes every sign
            _check_companions(apart, many, companions, seed)
    _check_unchanged(network, apart)
    _check_gradients(deepcopy(network).train(), *records, seed, parameter)
    _try_callbacks(deepcopy(network), callbacks)


def with_trained_parameters(clean: nn.Module, trained: nn.Module) -> nn.Module:
    """Put trained parameters into a copy of a network that was made before training."""
    with torch.no_grad():
        for parameter, value in zip(clean.parameters(), trained.parameters(), strict=True):
            if parameter.requires_grad:
                parameter.copy_(value)
    return clean.eval()


def _made_up(
    n_records: int, input_shape: tuple[int, ...], rng: np.random.Generator
) -> tuple[torch.Tensor, torch.Tensor]:
    records = torch.from_numpy(rng.uniform(-1, 1, (2 * n_records, *input_shape))).float()
    return records[:n_records], records[n_records:]


def _check_companions(
    network: nn.Module, first: torch.Tensor, others: torch.Tensor, seed: int
) -> None:
    """Exchange some records at a time; of any two, one is once exchanged without the other."""
    outputs = _run(network, first, seed)
    numbers = torch.arange(len(first))
    for bit in range((len(first) - 1).bit_length()):
        for kept in (numbers >> bit & 1 == 0, numbers >> bit & 1 == 1):
            exchanged = others.clone()
            exchanged[kept] = first[kept]
            _check_output(outputs[kept], _run(network, exchanged, seed)[kept])


def _run(network: nn.Module, records: torch.Tensor, seed: int) -> torch.Tensor:
    with torch.no_grad(), torch_randomness(np.random.default_rng(seed)):
        outputs: torch.Tensor = network(records)
    if outputs.ndim < 1 or len(outputs) != len(records):
        raise ValueError(
            f"The network maps {len(records)} records to {tuple(outputs.shape)}; it must keep the "
            "first axis, one entry per record."
        )
    return outputs


def _check_output(alone: torch.Tensor, with_others: torch.Tensor) -> None:
    if not bool((alone.isfinite() & with_others.isfinite()).all()):
        raise ValueError(
            "The network's output for a row with values between -1 and 1 is not a finite number."
        )
    _check_equal(alone, with_others)


def _check_equal(alone: torch.Tensor, with_others: torch.Tensor) -> None:
    """Compare bits: of arrays of one shape, the same instructions compute the same entries."""
    if not torch.equal(alone, with_others):
        raise ValueError(
            "The network's output for a record depends on the other records of the batch, which no "
            "clipping bounds. Look for operations along the first axis: means, attention, sorting."
        )


def _check_unchanged(before: nn.Module, after: nn.Module) -> None:
    for kind in ("buffers", "parameters"):
        known = dict(getattr(before, f"named_{kind}")())
        for name, tensor in getattr(after, f"named_{kind}")():
            if name not in known or not torch.equal(tensor, known[name]):
                raise ValueError(
                    f"{kind[:-1].capitalize()} {name!r} of the network changes when it is run in "
                    "training mode: it would keep facts about private records without noise."
                )


def _check_gradients(
    network: nn.Module, first: torch.Tensor, others: torch.Tensor, seed: int, parameter: str
) -> None:
    """Take a step's gradients, so that what cannot be done fails before it is paid for."""
    found, exchanged = [], others.clone()
    exchanged[::2] = first[::2]
    try:
        for records in (first, exchanged):
            with torch_randomness(np.random.default_rng(seed)):
                record_outputs(network, records)
                found.append(record_jacobians(network, records, lambda outputs, _: outputs))
    # Modules of callers may raise anything.
    except Exception as error:
        raise ValueError(
            f"{parameter}: the gradients of single records cannot be computed by torch.func.vmap. "
            "Avoid operations in place, branches that depend on values, and recurrent layers. It "
            f"says: {error}"
        ) from error
    _check_equal(*(jacobians.gram()[::2].nan_to_num() for jacobians in found))


def _try_callbacks(network: nn.Module, callbacks: Sequence[Any] | None) -> None:
    """Train for one step without rows: what fails in any step then fails before the charge."""
    try:
        copies = deepcopy(list(callbacks or ()))
    except Exception:  # what cannot be copied, such as an open file, is not tried
        return
    if not copies:
        return

    def no_gradient(trained: nn.Module, _: int) -> None:
        for parameter in trained.parameters():
            parameter.grad = torch.zeros_like(parameter)

    rng = np.random.default_rng(0)
    try:
        with suppress(KeyboardInterrupt):  # one that stops training
            train_network(network, no_gradient, 1, learning_rate=1e-3, rng=rng, callbacks=copies)
    except Exception as error:
        raise ValueError(
            "callbacks: a step of training without any row fails with them. "
            f"{type(error).__name__} says: {error}"
        ) from error
