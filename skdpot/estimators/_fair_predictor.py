"""What the fair classifier and the fair regressor share: parameters, network, training."""

from collections.abc import Sequence
from copy import deepcopy
from numbers import Real
from typing import Any

import numpy as np
import torch
from sklearn.base import BaseEstimator
from torch import nn

from skdpot._utils.devices import resolve_device
from skdpot._utils.notices import warn_of_fairness, warn_of_privacy
from skdpot._utils.torch_rng import torch_randomness
from skdpot._utils.validation import (
    HasMethods,
    Interval,
    StrOptions,
    check_is_fitted,
    validate_rows,
)
from skdpot.estimators._groups import one_cell, read_groups
from skdpot.mechanisms.base import FitContext
from skdpot.mechanisms.fair import FAIR_MECHANISMS, FairGradients, FairPlan
from skdpot.mechanisms.noisy_training import SINGLE_PRECISION, charge_training, train_privately
from skdpot.nets.fair_training import Records
from skdpot.nets.networks import build_predictor, evaluate
from skdpot.nets.parity import Cells
from skdpot.nets.per_sample import chain_of_layers
from skdpot.nets.private_modules import check_per_record, with_trained_parameters
from skdpot.nets.training import check_callbacks
from skdpot.privacy.budget import PrivacyBudget
from skdpot.privacy.spent import PrivateEstimatorMixin

__all__ = ["FairPredictor"]

_MOST_GROUPS = 50
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
    module: Any
    mechanism: str | FairGradients
    callbacks: Sequence[Any] | None
    device: str
    network_: nn.Module

    _parameter_constraints: dict[str, list[Any]] = {
        "alpha": [Interval(Real, 0, 1, closed="left")],
        "epsilon": [Interval(Real, 0, None, closed="right")],
        "delta": [Interval(Real, 0, 1, closed="neither")],
        "module": [StrOptions({"linear", "mlp"}), HasMethods("parameters"), callable],
        "mechanism": [StrOptions(set(FAIR_MECHANISMS)), *FAIR_MECHANISMS.values()],
        "callbacks": [list, tuple, None],
        "budget": [PrivacyBudget, None],
        "device": [StrOptions({"auto", "cpu", "cuda"})],
        "random_state": ["random_state"],
        "verbose": ["verbose"],
    }

    def _rows(self, X: Any, *, reset: bool) -> np.ndarray:
        rows = validate_rows(self, X, reset=reset, min_samples=2 if reset else 1)
        return np.clip(rows, -_LARGEST_INPUT, _LARGEST_INPUT)

    def _groups(self, sensitive_features: Any, n_rows: int) -> tuple[Cells, np.ndarray | None]:
        """Return the groups to compare and their labels; one cell where nothing is compared."""
        if sensitive_features is None and self.alpha > 0:
            warn_of_fairness(
                f"{type(self).__name__}: without sensitive_features all records are one "
                f"group, so that alpha={self.alpha!r} has no effect and the model is trained "
                "for its loss alone. Pass fit(X, y, sensitive_features=...), or alpha=0. In a "
                "Pipeline or a search enable metadata routing and call "
                "set_fit_request(sensitive_features=True)."
            )
        if sensitive_features is None or self.alpha == 0:
            return one_cell(n_rows), None
        groups, labels = read_groups(sensitive_features, n_rows)
        if len(labels) > _MOST_GROUPS:
            raise ValueError(
                f"sensitive_features holds {len(labels)} groups, and every two are compared: at "
                f"most {_MOST_GROUPS} are allowed. Merge groups; a column of identifiers is no "
                "group."
            )
        return groups, labels

    def _network(self, n_features: int, n_outputs: int, rng: np.random.Generator) -> nn.Module:
        """Make the network with its initial weights, and check that it treats records alone."""
        resolve_device(self.device)  # refused before any charge
        with torch_randomness(rng):
            network = build_predictor(self.module, n_features, n_outputs)
        check_per_record(network, (n_features,), rng, parameter="module")
        return network

    def _charge(
        self, context: FitContext, plan: FairPlan, network: nn.Module, public: Sequence[str]
    ) -> None:
        """Charge the whole fit, before any noise is drawn or row looked at."""
        single = plan.training.sampling == "poisson" and not _in_double(network)
        facts = (*public, "the network's initial weights", *([SINGLE_PRECISION] if single else []))
        self.privacy_spent_ = charge_training(context, plan.training, facts, plan.description)

    def _train(
        self, context: FitContext, plan: FairPlan, network: nn.Module, records: Records
    ) -> None:
        """Train, and keep nothing but what was trained with noise."""
        streams, n_steps = context.streams, plan.training.n_steps
        step = plan.steps(records=records, secret=streams.secret)
        trained = deepcopy(network).to(records.rows.dtype) if _in_double(network) else network
        _, stopped = train_privately(
            context,
            trained,
            step,
            n_steps,
            plan.learning_rate,
            # Masks of dropout depend on who else is in a Poisson batch: they must be secret.
            rng=streams.secret.generator(),
            callbacks=self.callbacks,
        )
        if stopped is not None:
            raise stopped
        self.network_ = with_trained_parameters(network, trained)
        self.n_steps_ = n_steps

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
        """Refuse, before any charge, weights of records and callbacks that need their losses."""
        if fit_params.pop("sample_weight", None) is not None:
            raise ValueError(_NO_WEIGHTS)
        if fit_params:
            raise TypeError(
                f"{type(self).__name__}.fit takes X, y and sensitive_features, not "
                f"{', '.join(sorted(fit_params))}."
            )
        check_callbacks(self.callbacks)


def _in_double(network: nn.Module) -> bool:
    return chain_of_layers(network) is not None
