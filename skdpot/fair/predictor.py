"""The base classes of the predictors of this wing, with the fit of the fair ones.

The group of each row is public, so messages may name a group and its size. They never say which
rows it holds.
"""

from abc import ABC, abstractmethod
from collections.abc import Sequence
from dataclasses import KW_ONLY, dataclass
from typing import Any, ClassVar, Self

import numpy as np
from sklearn.base import BaseEstimator
from torch import nn

from skdpot._utils.devices import resolve_device
from skdpot._utils.labels import encode_labels
from skdpot._utils.parameters import (
    HasMethods,
    StrOptions,
    all_or_nothing,
    check_is_fitted,
    fit_context,
)
from skdpot._utils.rows import validate_rows, without_groups
from skdpot._utils.streams import spawn_streams, torch_randomness
from skdpot.base import FitContext, chosen_mechanism
from skdpot.exceptions import warn_of_fairness, warn_of_privacy
from skdpot.fair.mechanism import FairMechanism, FairTask
from skdpot.fair.penalty_mechanism import PenaltyMechanism
from skdpot.fair.ranked_outputs import RankedOutputs
from skdpot.fair.sketched_outputs import SketchedOutputs
from skdpot.fair.training_rows import TrainingRows
from skdpot.nets.cells import Cells, one_cell, read_groups
from skdpot.nets.networks import build_predictor, evaluate
from skdpot.nets.per_record_check import check_per_record
from skdpot.nets.training import check_callbacks
from skdpot.privacy.budget import PrivacyBudget
from skdpot.privacy.pipelines import PrivateEstimatorMixin
from skdpot.privacy.reliability import Reliability
from skdpot.release.releases import Records, Release

# Mechanisms with a penalty, for classifiers and regressors.
PENALTY_MECHANISMS: dict[str, type[FairMechanism]] = {
    "sketch": SketchedOutputs,
    "ranks": RankedOutputs,
}
_MOST_GROUPS = 50  # every two are compared
_UNSCALED = 10  # median over rows of the largest feature
_LARGEST_INPUT = 1e8  # the rounding of larger ones would exceed what clipping allows for it


class NetworkPredictor(PrivateEstimatorMixin, BaseEstimator):
    """Base class of predictors that train a network on private rows, each by itself."""

    module: Any
    callbacks: Sequence[Any] | None
    device: str
    reliability_: Reliability

    def _rows(self, X: Any, *, reset: bool) -> np.ndarray:
        rows = validate_rows(self, X, reset=reset, min_samples=2 if reset else 1)
        return np.clip(rows, -_LARGEST_INPUT, _LARGEST_INPUT)

    def _network(self, n_features: int, n_outputs: int, rng: np.random.Generator) -> nn.Module:
        """Make the network with its initial weights, and check that it treats records alone."""
        resolve_device(self.device)  # refused before any charge
        with torch_randomness(rng):
            network = build_predictor(self.module, n_features, n_outputs)
        check_per_record(network, (n_features,), rng, parameter="module", callbacks=self.callbacks)
        return network


@dataclass(eq=False, repr=False)
class FairPredictor(NetworkPredictor, ABC):
    """Base class of predictors that are fitted by a `FairMechanism`.

    A subclass defines `_task`, which `fit` calls before the charge, and `_targets`, which audits
    call. `_finish` follows the release.
    """

    _: KW_ONLY
    module: Any = "linear"
    group_aware: bool = False
    mechanism: str | FairMechanism = "sketch"
    callbacks: Sequence[Any] | None = None
    budget: PrivacyBudget | None = None
    device: str = "auto"
    random_state: Any = None
    verbose: int = 0

    _canaries = "opposite targets"
    # Routed if requested: most predictions need no group.
    __metadata_request__predict: ClassVar[dict[str, bool]] = {"sensitive_features": False}
    __metadata_request__score: ClassVar[dict[str, bool]] = {"sensitive_features": False}
    _mechanisms: ClassVar[dict[str, type[FairMechanism]]] = PENALTY_MECHANISMS
    _parameter_constraints = {
        **PrivateEstimatorMixin._parameter_constraints,
        "group_aware": ["boolean"],
        "module": [StrOptions({"linear", "mlp"}), HasMethods("parameters"), callable],
        "mechanism": [StrOptions(set(PENALTY_MECHANISMS)), PenaltyMechanism],
    }

    @fit_context(prefer_skip_nested_validation=True)
    def fit(self, X: Any, y: Any, *, sensitive_features: Any = None, **fit_params: Any) -> Self:
        """Train the network.

        Parameters
        ----------
        X : array-like of shape (n_samples, n_features)
            Private rows, scaled to about [-1, 1].
        y : array-like of shape (n_samples,) or (n_samples, n_targets)
            Private class of each row, an integer, string or boolean. For a regressor, private
            targets.
        sensitive_features : array-like of shape (n_samples,) or str, optional
            Group of each row: integers, strings, booleans or categories; public. Or the name of a
            column of X, a DataFrame, that holds them, and is then no feature. If None, there is one
            group, and nothing is compared.
        **fit_params : dict
            Not supported; `sample_weight` raises an error.

        Returns
        -------
        self : estimator
            Fitted predictor. An interrupted fit stays charged and sets no attributes.

        Raises
        ------
        ValueError
            If parameters, network or data are not usable. Nothing is charged.
        BudgetExceededError
            If `budget` cannot pay. Nothing is charged and nothing changes.
        """
        if fit_params.pop("sample_weight", None) is not None:
            raise ValueError(
                "sample_weight is not supported: a weight would multiply what a record adds to a "
                "gradient, which clipping is there to bound."
            )
        if fit_params:
            raise TypeError(
                f"{type(self).__name__}.fit takes X, y and sensitive_features, not "
                f"{', '.join(sorted(fit_params))}."
            )
        check_callbacks(self.callbacks)
        with all_or_nothing(self):
            mechanism = self.mechanism_ = self._chosen_mechanism
            features, groups = without_groups(self, X, sensitive_features, reset=True)
            rows = self._rows(features, reset=True)
            cells, self.groups_ = self._groups(groups, len(rows))
            context = FitContext.of(self, X, spawn_streams(self.random_state, type(self).__name__))
            task, targets = self._task(context, rows, y, cells)
            self._warn_of_one_group()
            result = mechanism.release(context, task, rows, targets)
            self.network_, self.privacy_spent_ = result.value, result.privacy_spent
            self.__dict__.update(result.attributes)
            self._finish(result.reliability)
        self.reliability_.warn(type(self).__name__)
        return self

    @abstractmethod
    def _finish(self, stated: Reliability) -> None:
        """Compute what follows from the release, and `reliability_` from what it has stated."""

    @abstractmethod
    def _task(
        self, context: FitContext, rows: np.ndarray, y: Any, cells: Cells
    ) -> tuple[FairTask, np.ndarray]:
        """Return the task, and the targets of the rows."""

    @abstractmethod
    def _targets(self, y: Any) -> np.ndarray:
        """Return the targets of the rows of an audit, as the network is trained on them."""

    def _groups(self, sensitive_features: Any, n_rows: int) -> tuple[Cells, np.ndarray | None]:
        """Return the groups to compare and their labels; one cell if nothing is compared."""
        if sensitive_features is None or not self._chosen_mechanism.compares:
            return one_cell(n_rows), None
        groups, labels = read_groups(sensitive_features, n_rows)
        if len(labels) > _MOST_GROUPS:
            raise ValueError(
                f"sensitive_features holds {len(labels)} groups, and every two are compared: at "
                f"most {_MOST_GROUPS} are allowed. Merge groups."
            )
        return groups, labels

    def _is_aware(self, cells: Cells) -> bool:
        """Whether the group is a feature. A mechanism that cannot make it one is refused."""
        mechanism = self._chosen_mechanism
        if self.group_aware and isinstance(mechanism, PenaltyMechanism):
            raise ValueError(
                f"group_aware=True is not for {type(mechanism).__name__}: make the group a "
                "feature of X."
            )
        return self.group_aware and bool(cells.strata)

    def _codes(self, X: Any, sensitive_features: Any) -> np.ndarray:
        """Return the groups of public rows, or zeros if nothing depends on them."""
        if not self.group_aware:
            return np.zeros(len(X), dtype=np.intp)
        sensitive_features = without_groups(self, X, sensitive_features)[1]
        if sensitive_features is None:
            raise ValueError(
                "group_aware=True: what is predicted depends on the group. Pass "
                "predict(X, sensitive_features=...)."
            )
        return encode_labels(
            sensitive_features,
            len(X),
            self.groups_,
            argument="sensitive_features",
            meaning="group label",
            needed_by="group_aware=True",
            advice="these are the groups that the model was fitted with",
        )[0]

    def _warn_of_one_group(self) -> None:
        if self.groups_ is None and self._chosen_mechanism.compares:
            warn_of_fairness(
                f"{type(self).__name__}: without sensitive_features all records are one group, so "
                "that nothing is compared. Pass fit(X, y, sensitive_features=...), or a mechanism "
                "that compares nothing, such as SketchedOutputs(alpha=0). In a Pipeline or a "
                "search enable metadata routing and call set_fit_request(sensitive_features=True)."
            )

    @property
    def _clip_gradient(self) -> float:
        """The norm that each record's loss gradient is clipped to, which canaries exceed."""
        return self._chosen_mechanism.clip_gradient

    @property
    def _chosen_mechanism(self) -> FairMechanism:
        return chosen_mechanism(self.mechanism, self._mechanisms)

    def _seen_by(self, release: Release, X: Any, y: Any) -> Records:
        """Return the rows and targets that a release reads, for audits."""
        records = TrainingRows.of(self.network_, X, self._targets(y), "cpu")
        return records.rows, records.targets

    def _public_rows(self, X: Any) -> np.ndarray:
        check_is_fitted(self)
        rows = self._rows(without_groups(self, X, None)[0], reset=False)
        # Public rows may be described.
        if np.median(np.abs(rows).max(axis=1)) > _UNSCALED:
            warn_of_privacy(
                f"{type(self).__name__}: most of these rows have a feature beyond {_UNSCALED}, and "
                "clipped gradients learn little from them. Rows should be scaled to about [-1, 1] "
                "where they are read: by public ranges, or by a PrivateScaler with the same "
                "budget. If a scaler is in front, its ranges do not fit these rows."
            )
        return rows

    def _outputs(self, X: Any) -> np.ndarray:
        rows = self._public_rows(X)
        return evaluate(self.network_, rows, resolve_device(self.device))
