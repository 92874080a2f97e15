"""A private classifier whose predicted probabilities are alike in all groups."""

from typing import Any, Self

import numpy as np
import torch
from scipy.special import expit, log_softmax, softmax
from sklearn.base import ClassifierMixin
from sklearn.utils import Tags
from torch.nn import functional

from skdpot._utils.labels import LabelWords, encode_labels
from skdpot._utils.rng import Streams, spawn_streams
from skdpot._utils.validation import all_or_nothing, fit_context
from skdpot.estimators._fair_predictor import FairPredictor
from skdpot.estimators._fair_task import FairPlan, plan_fair_fit, read_cells
from skdpot.estimators._groups import SAME_CLASS, SAME_GROUP
from skdpot.nets.fair_training import FairLoss, Records, network_outputs
from skdpot.nets.parity import Cells, ClippedOutputs, Probabilities
from skdpot.nets.tuned_threshold import tuned_threshold
from skdpot.privacy.budget import PrivacyBudget
from skdpot.privacy.provenance import warn_of_composition

__all__ = ["FairPrivateClassifier"]

_LABELS = LabelWords(
    needed_by="A classifier", advice="for a continuous target use FairPrivateRegressor"
)


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
    fairness : {"statistical_parity", "equalized_odds"}, default="statistical_parity"
        Whether all members of two groups are compared, or those of the same class. The second
        takes the class of every record as public.
    epsilon : float, default=1.0
        Privacy parameter of the whole fit; ``inf`` for no privacy.
    delta : float, default=1e-5
        Privacy parameter of the whole fit, in (0, 1).
    module : {"linear", "mlp"}, torch.nn.Module or callable, optional
        Network from features to logits: one for two classes, one a class for more. "linear", the
        default, is logistic regression, "mlp" has one hidden layer of 64 units. A module is
        copied and starts from the weights that it has, which must be public; a function without
        arguments makes one. It must treat every record by itself.
    gradient : {"sketch", "ranks"}, default="sketch"
        How the penalty's gradient is made private. "sketch" releases the distributions of the
        outputs of each group `n_releases` times; in between the penalty is a sum over records,
        clipped together with the loss. "ranks" is the paper's: the outputs of a batch are
        ranked, and one record moves the ranks of others, which needs more noise.
    n_steps : int, optional
        Training steps; 200 by default.
    learning_rate : "auto" or float, default="auto"
        Of Adam, at the start; it falls to zero along a half cosine. "auto" is 0.32 over the
        fourth root of the number of parameters, at most 0.1, and beyond 400 steps less by the
        root of their number.
    batch_fraction : float, default=0.2
        (Expected) share of the records, of each group with ranks, in a step's batch.
    clip_loss : float, default=2.0
        C: largest norm of the gradient of a record's loss, from 1e-30 to 1e30. With a sketch loss
        and penalty are clipped together, to (1 - alpha) C.
    clip_output : float, optional
        M: compares logits shortened to the norm M in place of probabilities. A small M looks
        at decisions near the threshold only.
    clip_jacobian : float, default=0.25
        L: largest spectral norm of the Jacobian of a compared output; with ranks only.
    n_slices : int, default=50
        Directions along which probabilities of more than two classes are compared.
    n_releases : int, default=20
        With a sketch: how often distributions are released. They cost 10 % of the squared mu
        together, however many they are.
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
    A fit releases the noisy summed gradient of every step and, with a sketch, noisy
    distributions of the outputs of all records: one composed event under replace-one, for a
    neighbour that has *the same group*, and under equalised odds the same class too. Public are
    the groups, their sizes, who belongs to which, the set of classes, the number of rows and of
    features and their names, and the network's first weights; under equalised odds also the
    class of every record. With a sketch batches are Poisson samples and the sensitivity of a sum
    is :math:`(1-\alpha)\,2C` (`skdpot.nets.fair_training`); with ranks they are fixed numbers of
    records of each group (and class), and it is :math:`(1-\alpha)\,2C + \alpha\, n' \frac{2}{K Q}
    \frac{4 r L}{\min_c n'_c}` (`skdpot.nets.parity`). A tuned threshold takes two more
    releases, of noisy histograms. Rounding to the lattice of the noise adds at most 1/512 to these
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

    _default_module = "linear"

    _parameter_constraints: dict[str, list[Any]] = {
        **FairPredictor._parameter_constraints,
        "tune_threshold": ["boolean"],
        "classes": ["array-like", None],
    }

    def __init__(
        self,
        alpha: float = 0.5,
        fairness: str = "statistical_parity",
        epsilon: float = 1.0,
        delta: float = 1e-5,
        *,
        module: Any = None,
        gradient: str = "sketch",
        n_steps: int | None = None,
        learning_rate: float | str = "auto",
        batch_fraction: float = 0.2,
        clip_loss: float = 2.0,
        clip_output: float | None = None,
        clip_jacobian: float = 0.25,
        n_slices: int = 50,
        n_releases: int = 20,
        tune_threshold: bool = False,
        classes: Any = None,
        budget: PrivacyBudget | None = None,
        device: str = "auto",
        random_state: Any = None,
        verbose: int = 0,
    ) -> None:
        self.alpha = alpha
        self.fairness = fairness
        self.epsilon = epsilon
        self.delta = delta
        self.module = module
        self.gradient = gradient
        self.n_steps = n_steps
        self.learning_rate = learning_rate
        self.batch_fraction = batch_fraction
        self.clip_loss = clip_loss
        self.clip_output = clip_output
        self.clip_jacobian = clip_jacobian
        self.n_slices = n_slices
        self.n_releases = n_releases
        self.tune_threshold = tune_threshold
        self.classes = classes
        self.budget = budget
        self.device = device
        self.random_state = random_state
        self.verbose = verbose

    @fit_context(prefer_skip_nested_validation=True)
    def fit(self, X: Any, y: Any, *, sensitive_features: Any = None, **fit_params: Any) -> Self:
        """Train the network.

        Parameters
        ----------
        X : array-like of shape (n_samples, n_features)
            Private rows, scaled to about [-1, 1].
        y : array-like of shape (n_samples,)
            Private class of each row: integers, strings or booleans.
        sensitive_features : array-like of shape (n_samples,), optional
            Group of each row: integers, strings, booleans or categories; public. None is one
            group, for which `alpha` has no effect.
        **fit_params : dict
            None are supported; `sample_weight` is refused with the reason.

        Returns
        -------
        self : FairPrivateClassifier
            Fitted classifier.

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
        self._refuse(fit_params)
        with all_or_nothing(self):
            rows = self._rows(X, reset=True)
            codes, cells = self._read(y, sensitive_features, len(rows))
            streams = spawn_streams(self.random_state, type(self).__name__)
            self._fit(X, rows, codes, cells, streams)
        return self

    def _read(self, y: Any, sensitive_features: Any, n_rows: int) -> tuple[np.ndarray, Cells]:
        codes, self.classes_ = encode_labels(y, n_rows, self.classes, words=_LABELS)
        if len(self.classes_) < 2:
            raise ValueError(
                "y holds a single class; a classifier needs at least two classes. If others can "
                "occur, declare them with classes=."
            )
        if self.tune_threshold and len(self.classes_) > 2:
            raise ValueError(
                f"tune_threshold=True is for two classes, and there are {len(self.classes_)}: with "
                "more there is no single threshold. Use tune_threshold=False."
            )
        classes = (codes, self.classes_)
        cells, self.groups_ = read_cells(self, sensitive_features, n_rows, classes)
        return codes, cells

    def _fit(
        self, X: Any, rows: np.ndarray, codes: np.ndarray, cells: Cells, streams: Streams
    ) -> None:
        """Plan, charge, and only then touch the rows."""
        loss = self._loss()
        network = self._network(rows.shape[1], loss.compared.n_outputs, streams.solver)
        plan = plan_fair_fit(self, loss, cells, network, streams.public, tunes=self.tune_threshold)
        self.privacy_spent_ = self._charge(plan, network, self._public(cells), streams)
        warn_of_composition(X, self.privacy_spent_, self.budget, type(self).__name__)
        records = self._records(network, rows, codes)
        self._train(network, loss, plan, cells, records, streams)
        self.threshold_ = self._threshold(plan, records, codes, streams)

    def _loss(self) -> FairLoss:
        n_classes = len(self.classes_)
        n_outputs = 1 if n_classes == 2 else n_classes
        return FairLoss(
            gradient=_binary_gradient if n_outputs == 1 else _softmax_gradient,
            compared=(
                Probabilities(n_outputs)
                if self.clip_output is None
                else ClippedOutputs(n_outputs, float(self.clip_output))
            ),
            alpha=self.alpha,
            clip=float(self.clip_loss),
            clip_jacobian=float(self.clip_jacobian),
        )

    def _public(self, cells: Cells) -> tuple[str, ...]:
        public = ["the set of classes"]
        if self.classes is not None:
            public.append("every label is one of the classes; others are refused")
        if self.groups_ is not None:
            public.append(SAME_GROUP)
        if cells.strata and self.fairness == "equalized_odds":
            public.append(SAME_CLASS)
        return tuple(public)

    def _threshold(
        self, plan: FairPlan, records: Records, codes: np.ndarray, streams: Streams
    ) -> float:
        if plan.tuning is None:
            return 0.5
        rows = records.rows.to("cpu", torch.float32)
        outputs = network_outputs(self.network_, rows)
        probabilities = outputs[:, 0].sigmoid().numpy()
        return tuned_threshold(probabilities, codes, plan.tuning, streams.secret)

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
            logits: np.ndarray = log_softmax(outputs, axis=1)
            return logits
        shifted: np.ndarray = outputs[:, 0] - np.log(self.threshold_ / (1.0 - self.threshold_))
        return shifted

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
            probabilities: np.ndarray = softmax(decision, axis=1)
            return probabilities
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
        best = self.predict_proba(X).argmax(axis=1)
        predicted: np.ndarray = self.classes_[best]
        return predicted

    def __sklearn_tags__(self) -> Tags:
        """Return the tags of this estimator."""
        tags = super().__sklearn_tags__()
        tags.classifier_tags.poor_score = True  # thirty rows teach nothing under noise
        return tags


def _binary_gradient(outputs: torch.Tensor, targets: torch.Tensor) -> torch.Tensor:
    """Gradient of the cross-entropy of the second class by its logit."""
    return outputs.sigmoid() - targets[:, None]


def _softmax_gradient(outputs: torch.Tensor, targets: torch.Tensor) -> torch.Tensor:
    """Gradient of the cross-entropy by the logits."""
    return outputs.softmax(1) - functional.one_hot(targets.long(), outputs.shape[1])
