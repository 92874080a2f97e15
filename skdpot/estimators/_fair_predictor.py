"""What the fair classifier and the fair regressor share: groups, parameters, network, training.

The groups, their sizes and who belongs to which are public facts, so that messages may name a
group and its size. They never say which rows it holds.
"""

from collections.abc import Sequence
from copy import deepcopy
from dataclasses import KW_ONLY, dataclass
from numbers import Real
from typing import Any, Self

import numpy as np
import torch
from sklearn.base import BaseEstimator
from torch import nn

from skdpot._utils.validation import (
    HasMethods,
    Interval,
    StrOptions,
    all_or_nothing,
    check_is_fitted,
    encode_labels,
    fit_context,
    resolve_device,
    spawn_streams,
    torch_randomness,
    validate_rows,
)
from skdpot.exceptions import warn_of_fairness, warn_of_privacy
from skdpot.mechanisms.base import FitContext, chosen_mechanism
from skdpot.mechanisms.fair import FAIR_MECHANISMS, FairGradients, FairPlan
from skdpot.nets.fair_training import Records
from skdpot.nets.training import (
    build_predictor,
    check_callbacks,
    check_per_record,
    evaluate,
    train_privately,
    with_trained_parameters,
)
from skdpot.nets.wasserstein_gradient import Cells
from skdpot.privacy.budget import PrivacyBudget
from skdpot.privacy.pipelines import PrivateEstimatorMixin
from skdpot.release import release as recording
from skdpot.release.gradients import SINGLE_PRECISION
from skdpot.release.per_sample import chain_of_layers

# What a statement of privacy says of the neighbours that it protects among.
SAME_GROUP = (
    "the group of each record and the sizes of the groups are public: the record that replaces "
    "another has the same group"
)
SAME_CLASS = (
    "the class of each record is public: the record that replaces another has the same class"
)

_ADVICE = (
    "drop rows whose group is missing or give them a group of their own, and cut continuous values "
    "into intervals, for example with pandas.cut"
)


def one_cell(n_samples: int) -> Cells:
    """Return all records as one cell that is compared with none."""
    return Cells(np.zeros(n_samples, dtype=np.intp), (n_samples,), ())


def read_groups(
    sensitive_features: Any, n_samples: int, *, needed_by: str = "Fairness between groups"
) -> tuple[Cells, np.ndarray]:
    """Read the group of each record; return at least two groups to compare, and their labels.

    Groups are strings, integers, booleans or categories, none missing. No row's value is quoted.
    """
    codes, labels = encode_labels(
        sensitive_features,
        n_samples,
        argument="sensitive_features",
        meaning="group label",
        needed_by=needed_by,
        advice=_ADVICE,
    )
    if len(labels) == 1:
        raise ValueError(
            f"{needed_by} needs at least two groups, but sensitive_features holds the group "
            f"{labels.tolist()[0]!r} alone."
        )
    codes = codes.astype(np.intp, copy=False)
    sizes = tuple(np.bincount(codes, minlength=len(labels)).tolist())
    names = tuple(map(str, labels))
    return Cells(codes, sizes, (tuple(range(len(labels))),), names), labels


def within_classes(groups: Cells, codes: np.ndarray, labels: np.ndarray) -> Cells:
    """Divide groups by class: what is compared are the members of groups with the same class."""
    n_groups, n_classes = len(groups.sizes), len(labels)
    cells = (codes * n_groups + groups.codes).astype(np.intp)
    sizes = tuple(np.bincount(cells, minlength=n_groups * n_classes).tolist())
    for cell, size in enumerate(sizes):
        if size == 0:
            raise ValueError(
                f'fairness="equalized_odds" needs records of every class in every group, but class '
                f"{labels[cell // n_groups]!s} has none in group {groups.names[cell % n_groups]}"
                '. Merge groups, or use fairness="demographic_parity".'
            )
    strata = np.arange(n_groups * n_classes).reshape(n_classes, n_groups).tolist()
    names = tuple(f"{group}, class {label}" for label in labels for group in groups.names)
    return Cells(cells, sizes, tuple(tuple(stratum) for stratum in strata), names)


_MOST_GROUPS = 50
_UNSCALED = 100  # the largest feature of a row, in most rows
_LARGEST_INPUT = 1e8  # beyond, rounding in a batch would take up the room that clipping leaves


@dataclass(eq=False, repr=False)
class FairPredictor(PrivateEstimatorMixin, BaseEstimator):
    """A network trained for its loss and for alike outputs of groups, with privacy."""

    alpha: float = 0.5
    _: KW_ONLY
    module: Any = "linear"
    mechanism: str | FairGradients = "sketch"
    callbacks: Sequence[Any] | None = None
    budget: PrivacyBudget | None = None
    device: str = "auto"
    random_state: Any = None
    verbose: int = 0

    _canaries = "opposite targets"
    _parameter_constraints = {
        **PrivateEstimatorMixin._parameter_constraints,
        "alpha": [Interval(Real, 0, 1, closed="left")],
        "module": [StrOptions({"linear", "mlp"}), HasMethods("parameters"), callable],
        "mechanism": [StrOptions(set(FAIR_MECHANISMS)), *FAIR_MECHANISMS.values()],
    }

    @fit_context(prefer_skip_nested_validation=True)
    def fit(self, X: Any, y: Any, *, sensitive_features: Any = None, **fit_params: Any) -> Self:
        """Train the network.

        Parameters
        ----------
        X : array-like of shape (n_samples, n_features)
            Private rows, scaled to about [-1, 1].
        y : array-like of shape (n_samples,), or of a regressor also (n_samples, n_targets)
            Private class of each row, an integer, string or boolean; or private targets.
        sensitive_features : array-like of shape (n_samples,), optional
            Group of each row: integers, strings, booleans or categories; public. None is one
            group, for which `alpha` has no effect.
        **fit_params : dict
            None are supported; `sample_weight` is refused with the reason.

        Returns
        -------
        self : estimator
            Fitted predictor.

        Raises
        ------
        ValueError
            If parameters, network or data are not usable. Nothing is charged.
        BudgetExceededError
            If `budget` cannot pay. Nothing is charged and nothing changes.

        Notes
        -----
        A fit that is interrupted leaves nothing behind but its charge.
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
            self.mechanism_ = chosen_mechanism(self.mechanism, FAIR_MECHANISMS)
            rows = self._rows(X, reset=True)
            cells, self.groups_ = self._groups(sensitive_features, len(rows))
            streams = spawn_streams(self.random_state, type(self).__name__)
            self._fit(FitContext.of(self, X, streams), rows, y, cells)
        return self

    def _fit(self, context: FitContext, rows: np.ndarray, y: Any, cells: Cells) -> None:
        """Read the targets, plan, charge, and only then touch the rows."""
        raise NotImplementedError

    def _rows(self, X: Any, *, reset: bool) -> np.ndarray:
        rows = validate_rows(self, X, reset=reset, min_samples=2 if reset else 1)
        return np.clip(rows, -_LARGEST_INPUT, _LARGEST_INPUT)

    def _groups(self, sensitive_features: Any, n_rows: int) -> tuple[Cells, np.ndarray | None]:
        """Return the groups to compare and their labels; one cell where nothing is compared."""
        if sensitive_features is None or self.alpha == 0:
            return one_cell(n_rows), None
        groups, labels = read_groups(sensitive_features, n_rows)
        if len(labels) > _MOST_GROUPS:
            raise ValueError(
                f"sensitive_features holds {len(labels)} groups, and every two are compared: at "
                f"most {_MOST_GROUPS} are allowed. Merge groups."
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
        if self.groups_ is None and self.alpha > 0:
            warn_of_fairness(
                f"{type(self).__name__}: without sensitive_features all records are one group, so "
                f"that alpha={self.alpha!r} has no effect. Pass fit(X, y, sensitive_features=...), "
                "or alpha=0. In a Pipeline or a search enable metadata routing and call "
                "set_fit_request(sensitive_features=True)."
            )
        single = plan.training.sampling == "poisson" and not _in_double(network)
        facts = (*public, "the network's initial weights", *([SINGLE_PRECISION] if single else []))
        self.privacy_spent_ = context.charge(plan.training, facts, plan.description)

    def _train(
        self, context: FitContext, plan: FairPlan, network: nn.Module, records: Records
    ) -> None:
        """Train, and keep nothing but what was trained with noise."""
        streams, n_steps = context.streams, plan.training.n_steps
        step = plan.steps(records=records, secret=streams.secret)
        trained = deepcopy(network).to(records.rows.dtype) if _in_double(network) else network
        _, stopped = train_privately(
            trained,
            step,
            n_steps,
            learning_rate=plan.learning_rate,
            # Masks of dropout depend on who else is in a Poisson batch: they must be secret.
            rng=streams.secret.generator(),
            callbacks=self.callbacks,
            **context.training,
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

    def _targets(self, y: Any) -> np.ndarray:
        """Return targets as the network learns them."""
        raise NotImplementedError

    def _seen_by(self, release: recording.Release, X: Any, y: Any) -> recording.Records:
        """Return rows and targets as training has them."""
        records = self._records(self.network_, X, self._targets(y))
        return records.rows.cpu(), records.targets.cpu()

    def _outputs(self, X: Any) -> np.ndarray:
        """Return the network's outputs for public rows."""
        check_is_fitted(self)
        rows = self._rows(X, reset=False)
        # Of public rows this may be said; how the private ones were scaled, no fit can tell.
        if np.median(np.abs(rows).max(axis=1)) > _UNSCALED:
            warn_of_privacy(
                f"{type(self).__name__}: most of these rows have a feature beyond {_UNSCALED}, and "
                "clipped gradients learn little from them. Scale rows to about [-1, 1] by public "
                "ranges, or in a pipeline after PrivateScaler with one budget for both."
            )
        return evaluate(self.network_, rows, resolve_device(self.device))


def _in_double(network: nn.Module) -> bool:
    return chain_of_layers(network) is not None
