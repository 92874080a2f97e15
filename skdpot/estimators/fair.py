"""Private predictors whose outputs are alike in all groups, and the classifier among them.

The groups, their sizes and who belongs to which are public facts, so that messages may name a
group and its size. They never say which rows it holds.
"""

from collections.abc import Sequence
from dataclasses import KW_ONLY, dataclass
from typing import Any, ClassVar, Self

import numpy as np
import torch
from scipy.special import expit, log_softmax, softmax
from sklearn.base import BaseEstimator, ClassifierMixin
from sklearn.utils import Tags
from torch import nn
from torch.nn import functional

from skdpot._utils.validation import (
    HasMethods,
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
from skdpot.mechanisms.fair import FAIR_MECHANISMS, FairMechanism, FairTask, Records
from skdpot.nets.training import build_predictor, check_callbacks, check_per_record, evaluate
from skdpot.privacy.budget import PrivacyBudget
from skdpot.privacy.pipelines import PrivateEstimatorMixin
from skdpot.release import release as recording
from skdpot.release.output_tables import (
    SAME_CLASS,
    SAME_GROUP,
    Cells,
    Probabilities,
    one_cell,
    read_groups,
    within_classes,
)

_MOST_GROUPS = 50
_UNSCALED = 100  # the largest feature of a row, in most rows
_LARGEST_INPUT = 1e8  # beyond, rounding in a batch would take up the room that clipping leaves

_LABELS = {
    "needed_by": "A classifier",
    "advice": "for a continuous target use FairPrivateRegressor",
}


@dataclass(eq=False, repr=False)
class FairPredictor(PrivateEstimatorMixin, BaseEstimator):
    """A network trained for its loss and for alike outputs of groups, with privacy."""

    _: KW_ONLY
    module: Any = "linear"
    mechanism: str | FairMechanism = "sketch"
    callbacks: Sequence[Any] | None = None
    budget: PrivacyBudget | None = None
    device: str = "auto"
    random_state: Any = None
    verbose: int = 0

    _canaries = "opposite targets"
    _mechanisms: ClassVar[dict[str, type[FairMechanism]]] = FAIR_MECHANISMS
    _parameter_constraints = {
        **PrivateEstimatorMixin._parameter_constraints,
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
        y : array-like of shape (n_samples,) or (n_samples, n_targets)
            Private class of each row, an integer, string or boolean. For a regressor, private
            targets.
        sensitive_features : array-like of shape (n_samples,), optional
            Group of each row: integers, strings, booleans or categories; public. If None, there is
            one group, and nothing is compared.
        **fit_params : dict
            None are supported; `sample_weight` is refused with the reason.

        Returns
        -------
        self : estimator
            Fitted predictor. A fit that is interrupted leaves nothing behind but its charge.

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
            mechanism = self.mechanism_ = self._chosen
            rows = self._rows(X, reset=True)
            cells, self.groups_ = self._groups(sensitive_features, len(rows))
            context = FitContext.of(self, X, spawn_streams(self.random_state, type(self).__name__))
            task, targets, public = self._task(context, rows, y, cells)
            self._warn_of_one_group()
            made = mechanism.release(context, task, rows, targets, public, self.callbacks)
            self.network_, self.privacy_spent_ = made.value, made.privacy_spent
            self.__dict__.update(made.attributes)
        return self

    def _task(
        self, context: FitContext, rows: np.ndarray, y: Any, cells: Cells
    ) -> tuple[FairTask, np.ndarray, list[str]]:
        """Return what is trained, the targets, and what the statement takes to be public."""
        raise NotImplementedError

    def _targets(self, y: Any) -> np.ndarray:
        raise NotImplementedError

    def _rows(self, X: Any, *, reset: bool) -> np.ndarray:
        rows = validate_rows(self, X, reset=reset, min_samples=2 if reset else 1)
        return np.clip(rows, -_LARGEST_INPUT, _LARGEST_INPUT)

    def _groups(self, sensitive_features: Any, n_rows: int) -> tuple[Cells, np.ndarray | None]:
        """Return the groups to compare and their labels; one cell where nothing is compared."""
        if sensitive_features is None or not self._chosen.compares:
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

    def _warn_of_one_group(self) -> None:
        if self.groups_ is None and self._chosen.compares:
            warn_of_fairness(
                f"{type(self).__name__}: without sensitive_features all records are one group, so "
                "that nothing is compared. Pass fit(X, y, sensitive_features=...), or a mechanism "
                "that compares nothing, such as SketchedOutputs(alpha=0). In a Pipeline or a "
                "search enable metadata routing and call set_fit_request(sensitive_features=True)."
            )

    @property
    def _clip_loss(self) -> float:
        """The norm that each record's loss gradient is clipped to, which canaries exceed."""
        return self._chosen.clip_loss

    @property
    def _chosen(self) -> FairMechanism:
        return chosen_mechanism(self.mechanism, self._mechanisms)

    def _seen_by(self, release: recording.Release, X: Any, y: Any) -> recording.Records:
        """Return rows and mapped targets; of private bounds, targets as they are."""
        records = Records.of(self.network_, X, self._targets(y), "cpu")
        return records.rows, records.targets

    def _public_rows(self, X: Any) -> np.ndarray:
        check_is_fitted(self)
        rows = self._rows(X, reset=False)
        # Of public rows this may be said; how the private ones were scaled, no fit can tell.
        if np.median(np.abs(rows).max(axis=1)) > _UNSCALED:
            warn_of_privacy(
                f"{type(self).__name__}: most of these rows have a feature beyond {_UNSCALED}, and "
                "clipped gradients learn little from them. Scale rows to about [-1, 1] by public "
                "ranges, or in a pipeline after PrivateScaler with one budget for both."
            )
        return rows

    def _outputs(self, X: Any) -> np.ndarray:
        return evaluate(self.network_, self._public_rows(X), resolve_device(self.device))


# How each notion of fairness divides the groups; those that do so take classes as public.
_DIVISIONS = {"demographic_parity": None, "equalized_odds": within_classes}


@dataclass(eq=False, repr=False)
class FairPrivateClassifier(ClassifierMixin, FairPredictor):
    r"""Classifier that treats groups alike, trained with differential privacy.

    Training minimises :math:`(1 - \alpha)` times the cross-entropy plus :math:`\alpha` times the
    squared Wasserstein distance between the groups' distributions of predicted probabilities
    (sliced for more than two classes, summed over pairs of K groups with the weight 4 / K²).

    X is used as it is. Scale it first by *public* ranges to about [-1, 1], or with a
    `PrivateScaler` that shares the budget.

    Parameters
    ----------
    fairness : {"demographic_parity", "equalized_odds"}, default="demographic_parity"
        Whether all members of two groups are compared, or those of the same class. The second
        takes the class of every record as public.
    epsilon : float, default=1.0
        Privacy parameter of the whole fit; ``inf`` for no privacy.
    delta : float, default=1e-5
        Privacy parameter of the whole fit, in (0, 1).
    module : {"linear", "mlp"}, torch.nn.Module or callable, default="linear"
        Network from features to logits: one for two classes, one per class for more. "linear" is
        logistic regression, "mlp" has one hidden layer of 64 units. A module is copied and starts
        from its weights, which must be public; a function without arguments makes one. It must
        treat every record by itself.
    mechanism : {"sketch", "ranks"}, SketchedOutputs or RankedOutputs, default="sketch"
        How gradients are made private: steps, batches, learning rate, clipping. A name stands for
        `skdpot.mechanisms.SketchedOutputs` or `skdpot.mechanisms.RankedOutputs` with defaults.
    callbacks : list of skorch.callbacks.Callback, optional
        Called at each training step, which counts as an epoch. They see the network and its noisy
        gradients; callbacks that need rows, losses or batch sizes are refused.
    classes : array-like, optional
        The public set of classes. By default the classes in y, which are then taken as public.
    budget : PrivacyBudget, optional
        Shared budget that every fit is charged to.
    device : {"auto", "cpu", "cuda"}, default="auto"
        Where networks run; "auto" is a GPU if there is one.
    random_state : int, RandomState or None, default=None
        Seed of everything, the noise included. For tests only: it lets anyone remove the noise.
    verbose : int, default=0
        1 shows a progress bar of steps.

    Attributes
    ----------
    classes_ : ndarray of shape (n_classes,)
        The classes.
    groups_ : ndarray of shape (n_groups,) or None
        The groups of `sensitive_features`; None if nothing is compared.
    network_ : torch.nn.Module
        From rows to logits.
    mechanism_ : SketchedOutputs or RankedOutputs
        The mechanism of the fit, a copy.
    threshold_ : float
        Probability of the network from which the second class is predicted; 0.5 unless tuned.
    n_steps_ : int
        Number of training steps.
    privacy_spent_ : PrivacySpent
        Cost of the fit and its assumptions.
    n_features_in_ : int
        Number of features.
    feature_names_in_ : ndarray of shape (n_features_in_,)
        Names of features, when X has names that are all strings.

    Privacy
    -------
    A fit releases the noisy summed gradient of every step and, with a sketch, noisy distributions
    of the outputs of all records: one composed event under replace-one, for a neighbour with *the
    same group*, and under equalised odds the same class. Public are the groups, their sizes and
    members, the set of classes, the number of rows and of features and their names, and the initial
    weights; under equalised odds also the class of every record. With a sketch, batches are Poisson
    samples and the sensitivity of a sum is :math:`(1-\alpha)\,2C` (`skdpot.mechanisms.fair`). With
    ranks, batches are fixed numbers of records per group (and class), and it is :math:`(1-\alpha)\,
    2C + \alpha\, n' \frac{4 (K - 1)}{K^2 Q} \frac{4 r L}{\min_c n'_c}`
    (`skdpot.release.output_tables`). A tuned threshold adds noisy histograms. Rounding to the
    lattice of the noise adds at most 1/512 (`skdpot.privacy.noise.noise_for_sums`). Networks that
    are not plain chains of layers are trained in single precision, whose last bits can depend on
    the size of the batch; the statement assumes that they do not. No loss is recorded or shown.

    Rows given to `predict` and `score` are treated as public. A grid search that scores on private
    records leaks through its scores and its choice.

    References
    ----------
    D. Rodríguez-Vítores, C. Lalanne, J.-M. Loubes, "Learning with differentially private (sliced)
    Wasserstein gradients", 2025. The sensitivity here is smaller than the paper's, and proved.

    Examples
    --------
    >>> from skdpot import FairPrivateClassifier
    >>> from skdpot.datasets import make_biased_classification
    >>> X, y, group = make_biased_classification(2000, random_state=0)
    >>> classifier = FairPrivateClassifier(epsilon=3.0)
    >>> classifier = classifier.fit(X, y, sensitive_features=group)
    >>> classifier.predict_proba(X[:2]).shape
    (2, 2)
    >>> classifier.privacy_spent_.epsilon
    3.0
    """

    fairness: str = "demographic_parity"
    epsilon: float = 1.0
    delta: float = 1e-5
    _: KW_ONLY
    classes: Any = None

    _parameter_constraints = {
        **FairPredictor._parameter_constraints,
        "fairness": [StrOptions(set(_DIVISIONS))],
        "classes": ["array-like", None],
    }

    def _task(
        self, context: FitContext, rows: np.ndarray, y: Any, cells: Cells
    ) -> tuple[FairTask, np.ndarray, list[str]]:
        codes, self.classes_ = encode_labels(y, len(rows), self.classes, **_LABELS)
        n_classes, public = len(self.classes_), ["the set of classes"]
        if n_classes < 2:
            raise ValueError(
                "y holds a single class; a classifier needs two. Declare others with classes=."
            )
        if self.classes is not None:
            public.append("every label is one of the classes; others are refused")
        if self.groups_ is not None:
            public.append(SAME_GROUP)
        divide = _DIVISIONS[self.fairness]
        if odds := bool(cells.strata) and divide is not None:
            cells = divide(cells, codes, self.classes_)
            public.append(SAME_CLASS)
        n_outputs = 1 if n_classes == 2 else n_classes
        task = FairTask(
            gradient=_binary_gradient if n_outputs == 1 else _softmax_gradient,
            compared=Probabilities(n_outputs),
            cells=cells,
            network=self._network(rows.shape[1], n_outputs, context.streams.solver),
            public_classes=odds,
        )
        return task, codes, public

    def _classes_are_public(self) -> bool:
        """Whether a record keeps its class in all neighbours; no property, which `dir` reads."""
        return self._chosen.compares and _DIVISIONS[self.fairness] is not None

    def _targets(self, y: Any) -> np.ndarray:
        return encode_labels(y, len(y), self.classes_)[0]

    def decision_function(self, X: Any) -> np.ndarray:
        """Return logits: positive where the second of two classes is predicted.

        Parameters
        ----------
        X : array-like of shape (n_samples, n_features)
            Public rows.

        Returns
        -------
        ndarray of shape (n_samples,) or (n_samples, n_classes)
            For more than two classes, log-probabilities.
        """
        outputs = self._outputs(X)
        if outputs.shape[1] > 1:
            return log_softmax(outputs, axis=1)
        return outputs[:, 0] - np.log(self.threshold_ / (1.0 - self.threshold_))

    def predict_proba(self, X: Any) -> np.ndarray:
        """Return the probability of each class.

        Parameters
        ----------
        X : array-like of shape (n_samples, n_features)
            Public rows.

        Returns
        -------
        ndarray of shape (n_samples, n_classes)
            In the order of `classes_`.
        """
        decision = self.decision_function(X)
        if decision.ndim > 1:
            return softmax(decision, axis=1)
        return np.column_stack([expit(-decision), expit(decision)])

    def predict(self, X: Any) -> np.ndarray:
        """Return the most probable class.

        Parameters
        ----------
        X : array-like of shape (n_samples, n_features)
            Public rows.

        Returns
        -------
        ndarray of shape (n_samples,)
            Classes.
        """
        probabilities = self.predict_proba(X)
        return self.classes_[probabilities.argmax(axis=1)]

    def __sklearn_tags__(self) -> Tags:
        tags = super().__sklearn_tags__()
        tags.classifier_tags.poor_score = True  # thirty rows teach nothing under noise
        return tags


def _binary_gradient(outputs: torch.Tensor, targets: torch.Tensor) -> torch.Tensor:
    """Gradient of the cross-entropy of the second class by its logit."""
    return outputs.sigmoid() - targets[:, None]


def _softmax_gradient(outputs: torch.Tensor, targets: torch.Tensor) -> torch.Tensor:
    """Gradient of the cross-entropy by the logits."""
    return outputs.softmax(1) - functional.one_hot(targets.long(), outputs.shape[1])
