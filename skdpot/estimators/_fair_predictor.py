"""What the fair classifier and the fair regressor share: parameters, training, statements."""

from copy import deepcopy
from numbers import Integral, Real
from typing import Any, Literal

import numpy as np
import torch
from sklearn.base import BaseEstimator
from torch import nn

from skdpot._utils.devices import resolve_device
from skdpot._utils.notices import warn_of_privacy
from skdpot._utils.rng import Streams
from skdpot._utils.torch_rng import torch_randomness
from skdpot._utils.validation import (
    HasMethods,
    Interval,
    StrOptions,
    check_is_fitted,
    validate_rows,
)
from skdpot.estimators._charge import SINGLE_PRECISION, charge_training
from skdpot.estimators._fair_task import FairPlan
from skdpot.estimators._private_errors import publishable
from skdpot.nets.fair_training import FairLoss, Records, ranked_steps, tabled_steps
from skdpot.nets.networks import build_predictor, evaluate
from skdpot.nets.parity import Cells
from skdpot.nets.per_sample import chain_of_layers
from skdpot.nets.private_modules import check_per_record, with_trained_parameters
from skdpot.nets.training import train_network
from skdpot.privacy.budget import PrivacyBudget
from skdpot.privacy.calibration import PrivacyTarget, privacy_target
from skdpot.privacy.spent import PrivacySpent, PrivateEstimatorMixin

__all__ = ["FairPredictor"]

_LARGEST_RATE = 0.1
_RATE = 0.32  # over the fourth root of the number of parameters
_STEPS_AT_FULL_RATE = 400
_UNSCALED = 100  # the largest feature of a row, in most rows
_LARGEST_INPUT = 1e8  # beyond, rounding in a batch would take up the room that clipping leaves

_NO_WEIGHTS = (
    "sample_weight is not supported: a weight would multiply what its record adds to a gradient, "
    "which clipping is there to bound, and weights of private records would be private too. "
    "Resample public data, or change the loss through module=."
)


class FairPredictor(PrivateEstimatorMixin, BaseEstimator):
    """A network trained for its loss and for alike outputs of groups, with privacy."""

    alpha: float
    fairness: str
    epsilon: float
    delta: float
    module: Any
    gradient: str
    n_steps: int | None
    learning_rate: float | str
    batch_fraction: float
    clip_loss: float
    clip_output: float | None
    clip_jacobian: float
    n_slices: int
    n_releases: int
    budget: PrivacyBudget | None
    device: str
    random_state: Any
    verbose: int

    _default_module: Literal["linear", "mlp"]
    network_: nn.Module

    _parameter_constraints: dict[str, list[Any]] = {
        "alpha": [Interval(Real, 0, 1, closed="left")],
        "fairness": [StrOptions({"statistical_parity", "equalized_odds"})],
        "epsilon": [Interval(Real, 0, None, closed="right")],
        "delta": [Interval(Real, 0, 1, closed="neither")],
        "module": [StrOptions({"linear", "mlp"}), HasMethods("parameters"), callable, None],
        "gradient": [StrOptions({"sketch", "ranks"})],
        "n_steps": [Interval(Integral, 1, None, closed="left"), None],
        "learning_rate": [Interval(Real, 0, 10, closed="right"), StrOptions({"auto"})],
        "batch_fraction": [Interval(Real, 0, 1, closed="right")],
        "clip_loss": [Interval(Real, 1e-30, 1e30, closed="both")],
        "clip_output": [Interval(Real, 1e-30, 1e30, closed="both"), None],
        "clip_jacobian": [Interval(Real, 1e-30, 1e30, closed="both")],
        "n_slices": [Interval(Integral, 1, None, closed="left")],
        "n_releases": [Interval(Integral, 1, None, closed="left")],
        "budget": [PrivacyBudget, None],
        "device": [StrOptions({"auto", "cpu", "cuda"})],
        "random_state": ["random_state"],
        "verbose": ["verbose"],
    }

    def _target(self) -> PrivacyTarget:
        return privacy_target(self.epsilon, self.delta, self.budget)

    def _rows(self, X: Any, *, reset: bool) -> np.ndarray:
        rows = validate_rows(self, X, reset=reset, min_samples=2 if reset else 1)
        return np.clip(rows, -_LARGEST_INPUT, _LARGEST_INPUT)

    def _network(self, n_features: int, n_outputs: int, rng: np.random.Generator) -> nn.Module:
        """Make the network with its initial weights, and check that it treats records alone."""
        resolve_device(self.device)  # refused before any charge
        module = self._default_module if self.module is None else self.module
        with torch_randomness(rng):
            network = build_predictor(module, n_features, n_outputs)
        check_per_record(network, (n_features,), rng, parameter="module")
        return network

    def _charge(
        self, plan: FairPlan, network: nn.Module, public: tuple[str, ...], streams: Streams
    ) -> PrivacySpent:
        """Charge the whole fit, before any noise is drawn or row looked at."""
        single = plan.training.sampling == "poisson" and not _in_double(network)
        return charge_training(
            self.budget,
            plan.training,
            streams,
            epsilon=self.epsilon,
            delta=self.delta,
            sigma_given=False,
            label=type(self).__name__,
            assumptions=(
                *public,
                "the network's initial weights",
                *([SINGLE_PRECISION] if single else []),
            ),
            mechanism=_mechanism(plan),
        )

    def _train(
        self,
        network: nn.Module,
        loss: FairLoss,
        plan: FairPlan,
        cells: Cells,
        records: Records,
        streams: Streams,
    ) -> None:
        """Train, and keep nothing but what was trained with noise."""
        step = (
            tabled_steps(
                loss,
                records,
                cells,
                plan.training,
                plan.tables,
                plan.release_at,
                self.n_slices,
                streams.secret,
                streams.public,
            )
            if plan.penalty is None
            else ranked_steps(
                loss, records, cells, plan.penalty, plan.directions, plan.training, streams.secret
            )
        )
        clean = deepcopy(network)
        if records.rows.dtype == torch.float64:
            network = network.double()
        failure, n_steps = None, plan.training.n_steps
        try:
            train_network(
                network,
                step,
                n_steps,
                learning_rate=self._rate(network, n_steps),
                # Masks of dropout depend on who else is in a Poisson batch: they must be secret.
                rng=streams.secret.generator(),
                device=resolve_device(self.device),
                progress=type(self).__name__ if self.verbose else None,
            )
        except BaseException as error:
            failure = publishable(error, type(self).__name__)
        if failure is not None:
            raise failure
        self.network_ = with_trained_parameters(clean, network.cpu())
        self.n_steps_ = n_steps

    def _rate(self, network: nn.Module, n_steps: int) -> float:
        """Return Adam's learning rate: less for many parameters, which all move by noise."""
        if self.learning_rate != "auto":
            return float(self.learning_rate)
        n_parameters = sum(parameter.numel() for parameter in network.parameters())
        rate = min(_LARGEST_RATE, _RATE * max(1, n_parameters) ** -0.25)
        return float(rate * min(1.0, (_STEPS_AT_FULL_RATE / n_steps) ** 0.5))

    def _records(self, network: nn.Module, rows: np.ndarray, targets: np.ndarray) -> Records:
        """Return the records in the precision of training.

        How a product of matrices rounds a record depends on how many others it is multiplied
        with, which is secret for a Poisson batch. In double precision that is far below the room
        that clipping leaves, unless records are placed on the kinks of an activation; networks
        that may not be able to compute in it stay in single.
        """
        device = resolve_device(self.device) or "cpu"
        kept = rows.astype(np.float64 if _in_double(network) else np.float32)
        return Records(torch.from_numpy(kept).to(device), torch.from_numpy(targets).to(device))

    def _outputs(self, X: Any) -> np.ndarray:
        """Return the network's outputs for public rows."""
        check_is_fitted(self)
        rows = self._rows(X, reset=False)
        # Of public rows this may be said; how the private ones were scaled, no fit can tell.
        if np.median(np.abs(rows).max(axis=1)) > _UNSCALED:
            warn_of_privacy(
                f"{type(self).__name__}: most of these rows have a feature beyond {_UNSCALED}, and "
                "a network with clipped gradients learns little from rows that are not scaled to "
                "about [-1, 1]. Fit it on rows that are scaled by public ranges, or in a pipeline "
                "after PrivateScaler (one that has found scales) with one budget for both."
            )
        return evaluate(self.network_, rows, resolve_device(self.device))

    def _refuse(self, fit_params: dict[str, Any]) -> None:
        if fit_params.pop("sample_weight", None) is not None:
            raise ValueError(_NO_WEIGHTS)
        if fit_params:
            raise TypeError(
                f"{type(self).__name__}.fit takes X, y and sensitive_features, not "
                f"{', '.join(sorted(fit_params))}."
            )


def _in_double(network: nn.Module) -> bool:
    return chain_of_layers(network) is not None


def _mechanism(plan: FairPlan) -> str:
    training = plan.training
    text = f"{training.n_steps} noisy sums of clipped gradients over batches of "
    if plan.penalty is not None:
        text += f"{training.batch_sizes} records, compared by rank"
    else:
        text += f"about {training.batch_size} records"
    if plan.tables is not None:
        text += f", {len(plan.release_at)} noisy distributions of the outputs of all records"
    return text if plan.tuning is None else f"{text}, and noisy histograms for the threshold"
