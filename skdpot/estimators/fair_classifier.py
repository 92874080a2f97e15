"""A private classifier whose predicted probabilities are alike in all groups."""

from dataclasses import KW_ONLY, dataclass, replace
from functools import partial
from typing import Any

import numpy as np
import torch
from scipy.special import expit, log_softmax, softmax
from sklearn.base import ClassifierMixin
from sklearn.utils import Tags
from torch import nn
from torch.nn import functional

from skdpot._utils.validation import (
    StrOptions,
    encode_labels,
)
from skdpot.estimators._fair_predictor import SAME_CLASS, SAME_GROUP, FairPredictor, within_classes
from skdpot.mechanisms.base import FitContext
from skdpot.mechanisms.fair import FairTask, mu_share
from skdpot.nets.fair_training import network_outputs
from skdpot.nets.wasserstein_gradient import Cells, Probabilities
from skdpot.release.output_tables import plan_threshold, tuned_threshold

_TUNING_SHARE = 0.05  # of the squared mu, for the threshold

_LABELS = {
    "needed_by": "A classifier",
    "advice": "for a continuous target use FairPrivateRegressor",
}


@dataclass(eq=False, repr=False)
class FairPrivateClassifier(ClassifierMixin, FairPredictor):
    r"""Classifier that treats groups alike, trained with differential privacy.

    What is minimised is :math:`(1 - \alpha)` times the cross-entropy plus :math:`\alpha` times
    the squared Wasserstein distance between the groups' distributions of predicted
    probabilities (sliced, and averaged over pairs, for more than two classes or groups).

    X is used as it is: scale it first by *public* ranges, to about [-1, 1], or by a
    `PrivateScaler` that shares the budget.

    Parameters
    ----------
    alpha : float, default=0.5
        Weight of fairness in [0, 1); 0 is DP-SGD for the cross-entropy alone. Groups become
        alike from about 0.5; most of the way is between 0.7 and 0.95.
    fairness : {"demographic_parity", "equalized_odds"}, default="demographic_parity"
        Whether all members of two groups are compared, or those of the same class. The second
        takes the class of every record as public.
    epsilon : float, default=1.0
        Privacy parameter of the whole fit; ``inf`` for no privacy.
    delta : float, default=1e-5
        Privacy parameter of the whole fit, in (0, 1).
    module : {"linear", "mlp"}, torch.nn.Module or callable, default="linear"
        Network from features to logits: one for two classes, one a class for more. "linear" is
        logistic regression, "mlp" has one hidden layer of 64 units. A module is copied and starts
        from the weights that it has, which must be public; a function without arguments makes
        one. It must treat every record by itself.
    mechanism : {"sketch", "ranks"}, SketchedOutputs or RankedOutputs, default="sketch"
        How gradients are made private: steps, batches, learning rate, clipping. A name is short
        for `skdpot.mechanisms.SketchedOutputs` or `skdpot.mechanisms.RankedOutputs` with their
        defaults.
    callbacks : list of skorch.callbacks.Callback, optional
        Called by skorch during training, where a step is an epoch of one batch: a learning-rate
        schedule in place of the half cosine, a checkpoint, a stop. They see the network and its
        noisy gradients, never rows, losses or sizes of batches; what needs those is refused.
    tune_threshold : bool, default=False
        For two classes: move the intercept in the end, so that as many training records are
        predicted in the second class as there are; costs 5 % of the squared mu. A strong penalty
        squeezes probabilities, so that few reach 0.5 otherwise.
    classes : array-like, optional
        The public set of classes. By default those that occur in y, which are then taken as
        public.
    budget : PrivacyBudget, optional
        Shared budget that every fit is charged to.
    device : {"auto", "cpu", "cuda"}, default="auto"
        Where networks run; "auto" is a GPU if there is one.
    random_state : int, RandomState or None, default=None
        Makes everything reproducible, the privacy noise included. For tests only: whoever knows
        it can remove the noise.
    verbose : int, default=0
        1 shows a progress bar, of steps and not of losses.

    Attributes
    ----------
    classes_ : ndarray of shape (n_classes,)
        The classes.
    groups_ : ndarray of shape (n_groups,) or None
        The groups of `sensitive_features`; None if nothing is compared (alpha=0).
    network_ : torch.nn.Module
        From rows to logits.
    mechanism_ : SketchedOutputs or RankedOutputs
        The mechanism that was used.
    threshold_ : float
        Probability of the network at which it predicts the second class; 0.5 unless tuned.
    n_steps_ : int
        Number of training steps.
    privacy_spent_ : PrivacySpent
        What the fit cost, and under which assumptions.
    n_features_in_ : int
        Number of features.
    feature_names_in_ : ndarray of shape (n_features_in_,)
        Names of features, when X has names that are all strings.

    Privacy
    -------
    A fit releases the noisy summed gradient of every step and, with a sketch, noisy distributions
    of the outputs of all records: one composed event under replace-one, for a neighbour that has
    *the same group*, and under equalised odds the same class too. Public are the groups, their
    sizes, who belongs to which, the set of classes, the number of rows and of features and their
    names, and the network's first weights; under equalised odds also the class of every record.
    With a sketch batches are Poisson samples and the sensitivity of a sum is :math:`(1-\alpha)\,2C`
    (`skdpot.nets.fair_training`); with ranks they are fixed numbers of records of each group (and
    class), and it is :math:`(1-\alpha)\,2C + \alpha\, n' \frac{2}{K Q} \frac{4 r L}{\min_c n'_c}`
    (`skdpot.nets.wasserstein_gradient`). A tuned threshold takes two more releases, of noisy
    histograms. Rounding to the lattice of the noise adds at most 1/512 to these
    (`skdpot.privacy.noise.noise_for_sums`). Networks that are not plain chains of layers are
    trained in single precision, of which the last bits can depend on the size of the batch; the
    statement assumes that they do not. No loss is recorded or shown.

    What `predict` and `score` are given is treated as public. A grid search that scores on
    private records leaks through its scores and its choice.

    References
    ----------
    D. Rodríguez-Vítores, C. Lalanne, J.-M. Loubes, "Learning with differentially private (sliced)
    Wasserstein gradients", 2025. The sensitivity here is smaller than the paper's, and proved.

    Examples
    --------
    >>> from skdpot import FairPrivateClassifier
    >>> from skdpot.datasets import make_biased_classification
    >>> X, y, group = make_biased_classification(2000, random_state=0)
    >>> classifier = FairPrivateClassifier(alpha=0.75, epsilon=3.0)
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
    tune_threshold: bool = False
    classes: Any = None

    _parameter_constraints = FairPredictor._parameter_constraints | {
        "fairness": [StrOptions({"demographic_parity", "equalized_odds"})],
        "tune_threshold": ["boolean"],
        "classes": ["array-like", None],
    }

    def _fit(self, context: FitContext, rows: np.ndarray, y: Any, cells: Cells) -> None:
        codes, self.classes_ = encode_labels(y, len(rows), self.classes, **_LABELS)
        self._check_classes()
        if cells.strata and self.fairness == "equalized_odds":
            cells = within_classes(cells, codes, self.classes_)
        n_outputs = 1 if len(self.classes_) == 2 else len(self.classes_)
        network = self._network(rows.shape[1], n_outputs, context.streams.solver)
        public, tuning = self._public(cells), None
        if self.tune_threshold:
            mu = mu_share(context.target, _TUNING_SHARE)
            tuning = plan_threshold(mu, len(rows), public_classes=SAME_CLASS in public)
        task = FairTask(
            gradient=_binary_gradient if n_outputs == 1 else _softmax_gradient,
            compared=Probabilities(n_outputs),
            alpha=self.alpha,
            cells=cells,
            network=network,
            others=() if tuning is None else tuning.events,
        )
        plan = self.mechanism_.plan(context, task)
        if tuning is not None:
            text = f"{plan.description}, and noisy histograms for the threshold"
            plan = replace(plan, description=text)
        self._charge(context, plan, network, public)
        records = self._records(network, rows, codes)
        self._train(context, plan, network, records)
        self.threshold_ = 0.5
        if tuning is not None:
            of = partial(_probabilities, self.network_)
            released = (codes, tuning, context.streams.secret, of)
            self.threshold_ = tuned_threshold(of(records.rows), *released)

    def _targets(self, y: Any) -> np.ndarray:
        return encode_labels(y, len(y), self.classes_)[0]

    def _check_classes(self) -> None:
        """Refuse too few classes to learn, and too many for one threshold."""
        if len(self.classes_) < 2:
            raise ValueError(
                "y holds a single class; a classifier needs two. Declare others with classes=."
            )
        if self.tune_threshold and len(self.classes_) > 2:
            raise ValueError(
                f"tune_threshold=True is for two classes, and there are {len(self.classes_)}."
            )

    def _public(self, cells: Cells) -> tuple[str, ...]:
        """Return what the statement takes to be public beside what always is."""
        public = ["the set of classes"]
        if self.classes is not None:
            public.append("every label is one of the classes; others are refused")
        if self.groups_ is not None:
            public.append(SAME_GROUP)
        if cells.strata and self.fairness == "equalized_odds":
            public.append(SAME_CLASS)
        return tuple(public)

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
        """Return the tags of this estimator."""
        tags = super().__sklearn_tags__()
        tags.classifier_tags.poor_score = True  # thirty rows teach nothing under noise
        return tags


def _probabilities(network: nn.Module, rows: torch.Tensor) -> np.ndarray:
    """Return the probability of the second class, before a threshold is known."""
    outputs = network_outputs(network, rows.to("cpu", torch.float32))
    return outputs[:, 0].sigmoid().numpy()


def _binary_gradient(outputs: torch.Tensor, targets: torch.Tensor) -> torch.Tensor:
    """Gradient of the cross-entropy of the second class by its logit."""
    return outputs.sigmoid() - targets[:, None]


def _softmax_gradient(outputs: torch.Tensor, targets: torch.Tensor) -> torch.Tensor:
    """Gradient of the cross-entropy by the logits."""
    return outputs.softmax(1) - functional.one_hot(targets.long(), outputs.shape[1])
