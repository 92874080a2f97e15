"""The parts of a fit of `PrivateSWAutoencoder`, one function a step."""

from copy import deepcopy
from typing import TYPE_CHECKING, Any

import numpy as np
import torch
from torch import nn

from skdpot._utils.devices import resolve_device
from skdpot._utils.rng import Streams
from skdpot._utils.torch_rng import torch_randomness
from skdpot.estimators._autoencoder_plan import BatchCells, learning_rate, number_of_steps
from skdpot.estimators._charge import SINGLE_PRECISION, charge_training
from skdpot.estimators._groups import SAME_GROUP
from skdpot.estimators._private_errors import publishable
from skdpot.exceptions import BudgetExceededError
from skdpot.nets.autoencoder_training import AutoencoderLoss, private_steps, public_steps
from skdpot.nets.networks import ToSphere, build_networks, image_dimensions, to_network_units
from skdpot.nets.private_modules import check_per_record, with_trained_parameters
from skdpot.nets.training import train_network
from skdpot.nets.training_plan import TrainingPlan
from skdpot.privacy.data_bounds import DataBounds
from skdpot.privacy.events import NonPrivateEvent
from skdpot.privacy.spent import PrivacySpent, charge
from skdpot.slicing.rules import public_bounds

if TYPE_CHECKING:
    from skdpot.estimators.autoencoder import PrivateSWAutoencoder

__all__ = [
    "build_autoencoder",
    "charge_private",
    "charge_public",
    "read_bounds",
    "train_private",
    "train_public",
]

_N_PROBES = 2


def build_autoencoder(
    estimator: "PrivateSWAutoencoder", n_features: int, rng: np.random.Generator, *, box: bool
) -> nn.Sequential:
    """Make encoder and decoder with initial weights, and check what they compute."""
    image = image_dimensions(estimator.image_shape, n_features)
    with torch_randomness(rng):
        encoder, decoder = build_networks(
            estimator.architecture,
            n_features=n_features,
            image=image,
            latent_dim=estimator.latent_dim,
        )
    if estimator.normalize_codes:
        encoder = nn.Sequential(encoder, ToSphere())
    if box and isinstance(estimator.architecture, str):
        decoder = nn.Sequential(decoder, nn.Tanh())
    autoencoder = nn.Sequential(encoder, decoder)
    _check_shapes(autoencoder, n_features, estimator.latent_dim)
    if estimator.private:
        check_per_record(autoencoder, (n_features,), rng)
    return autoencoder


def _check_shapes(autoencoder: nn.Sequential, n_features: int, latent_dim: int) -> None:
    with torch.no_grad():
        codes = _probe(autoencoder[0], torch.zeros(_N_PROBES, n_features), "encoder")
        if codes.shape != (_N_PROBES, latent_dim):
            raise ValueError(
                f"architecture: the encoder maps {_N_PROBES} rows to a tensor of shape "
                f"{tuple(codes.shape)}; it must be ({_N_PROBES}, {latent_dim}), as latent_dim says."
            )
        rows = _probe(autoencoder[1], codes, "decoder")
    if rows.shape != (_N_PROBES, n_features):
        raise ValueError(
            f"architecture: the decoder maps {_N_PROBES} codes to {tuple(rows.shape)} values; it "
            f"must return {n_features} a row, as many as X has features."
        )


def _probe(network: nn.Module, inputs: torch.Tensor, part: str) -> torch.Tensor:
    try:
        outputs: torch.Tensor = network.eval()(inputs)
    except RuntimeError as error:
        facts = "one column a feature of X, or images of image_shape if that is given"
        expected = facts if part == "encoder" else "latent_dim numbers a row"
        raise ValueError(
            f"architecture: the {part} does not accept {tuple(inputs.shape)} values: {expected}. "
            f"It says: {error}"
        ) from error
    return outputs


def charge_private(
    estimator: "PrivateSWAutoencoder", plan: TrainingPlan, streams: Streams
) -> PrivacySpent:
    """Charge the whole fit, before any noise is drawn or row looked at."""
    facts = ["the architecture and its initial weights"]
    kind = "batches without replacement"
    if plan.sampling == "poisson":
        kind = "Poisson batches"
        facts.append(SINGLE_PRECISION)
    batches = f"{kind} of {plan.batch_size} records"
    if estimator.penalty == "parity":
        facts.append(SAME_GROUP)
        batches += f" ({' + '.join(map(str, plan.batch_sizes))} by group)"
    return charge_training(
        estimator.budget,
        plan,
        streams,
        epsilon=estimator.epsilon,
        delta=estimator.delta,
        sigma_given=estimator.sigma is not None,
        label=type(estimator).__name__,
        assumptions=facts,
        mechanism=f"{plan.n_steps} noisy sums of clipped gradients over {batches}",
    )


def charge_public(estimator: "PrivateSWAutoencoder") -> PrivacySpent:
    """State that the rows count as public; a finite budget refuses a fit without noise."""
    try:
        return charge(
            estimator.budget,
            NonPrivateEvent(),
            epsilon=np.inf,
            delta=estimator.delta,
            n_samples=None,
            label=type(estimator).__name__,
            assumptions=("the rows given to fit are public",),
            sigma=None,
            sensitivity=None,
            mechanism="training without noise on public rows",
        )
    except BudgetExceededError as error:
        raise BudgetExceededError(
            "private=False trains without noise, which no finite budget can pay for: give no "
            f"budget when the rows are public, or use private=True. {error}"
        ) from None


def read_bounds(estimator: "PrivateSWAutoencoder", rows: np.ndarray) -> DataBounds:
    """Return the declared bounds, or the range of public rows."""
    given = public_bounds(estimator.bounds, estimator.norm_bound, rows.shape[1])
    if given is not None:
        return given
    axis = None if estimator.image_shape is not None else 0  # all pixels share one range
    low, high = rows.min(axis=axis).astype(float), rows.max(axis=axis).astype(float)
    flat = high - low <= 1e-12 * np.maximum(1.0, np.abs(low))
    half = np.maximum(1.0, np.abs(low)) / 2
    return DataBounds.from_box(
        np.where(flat, low - half, low), np.where(flat, high + half, high), rows.shape[1]
    )


def train_private(
    estimator: "PrivateSWAutoencoder",
    autoencoder: nn.Sequential,
    loss: AutoencoderLoss,
    plan: TrainingPlan,
    cells: BatchCells,
    rows: np.ndarray,
    streams: Streams,
) -> BaseException | None:
    """Train on private rows; `rows` are in the units of the data, and `bounds_` is set.

    Returns what stopped training after at least one step, to be raised by the caller once what
    has been paid for is stored: the parameters are a function of noisy sums at any time.
    """
    tensor = _tensor(estimator, rows)
    noisy = private_steps(loss, tensor, plan, streams.secret, streams.public, cells.members)
    clean, started = deepcopy(autoencoder), 0
    stopped: BaseException | None = None

    def step(network: nn.Module, number: int) -> None:
        nonlocal started
        started = number  # all steps before this one are finished
        noisy(network, number)

    try:
        # Masks of dropout depend on who else is in a Poisson batch: they must be secret.
        _train(estimator, autoencoder, step, plan.n_steps, streams.secret.generator())
    except BaseException as error:
        stopped = publishable(error, type(estimator).__name__)
    if stopped is not None:
        if started == 0 or isinstance(stopped, Exception):  # when it happened tells of the rows
            raise stopped
        estimator.n_steps_ = started
    # Of the network that saw private rows only what was trained, with noise, is kept.
    with_trained_parameters(clean, autoencoder.cpu())
    clean.eval()
    estimator.encoder_, estimator.decoder_ = clean[0], clean[1]
    return stopped


def train_public(
    estimator: "PrivateSWAutoencoder",
    autoencoder: nn.Sequential,
    loss: AutoencoderLoss,
    cells: BatchCells,
    rows: np.ndarray,
    rng: np.random.Generator,
) -> None:
    """Train on public rows."""
    tensor = _tensor(estimator, rows)
    step = public_steps(loss, tensor, cells.batch_sizes, rng, cells.members)
    _train(estimator, autoencoder, step, number_of_steps(estimator, len(rows)), rng)


def _train(
    estimator: "PrivateSWAutoencoder",
    autoencoder: nn.Sequential,
    step: Any,
    n_steps: int,
    rng: np.random.Generator,
) -> None:
    train_network(
        autoencoder,
        step,
        n_steps,
        learning_rate=learning_rate(estimator, autoencoder, n_steps),
        rng=rng,
        device=resolve_device(estimator.device),
        progress=type(estimator).__name__ if estimator.verbose else None,
    )
    for parameter in autoencoder.parameters():
        parameter.grad = None  # the last step's gradient is no part of the result
    estimator.encoder_, estimator.decoder_ = autoencoder[0], autoencoder[1]
    estimator.n_steps_ = n_steps


def _tensor(estimator: "PrivateSWAutoencoder", rows: np.ndarray) -> torch.Tensor:
    units = to_network_units(estimator.bounds_, rows).astype(np.float32)
    return torch.from_numpy(units).to(resolve_device(estimator.device) or "cpu")
