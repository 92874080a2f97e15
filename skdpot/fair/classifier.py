"""A private classifier with similar decisions in all groups."""

from dataclasses import KW_ONLY, dataclass
from typing import Any, ClassVar

import numpy as np
from scipy.special import log_softmax
from sklearn.utils import Tags

from skdpot._utils.labels import encode_labels
from skdpot._utils.parameters import StrOptions
from skdpot.base import FitContext
from skdpot.fair.bayes_rule import BayesRule
from skdpot.fair.decisions import RULE_PARAMETERS, FairDecisions
from skdpot.fair.mechanism import FairMechanism, FairTask
from skdpot.fair.notions import NOTIONS
from skdpot.fair.penalty_mechanism import PenaltyMechanism
from skdpot.fair.predictor import PENALTY_MECHANISMS, FairPredictor
from skdpot.fair.score_losses import LOSSES
from skdpot.nets.cells import SAME_CLASS, SAME_GROUP, Cells, within_classes
from skdpot.nets.compared_outputs import Probabilities
from skdpot.privacy.charges import KNOWN_LABELS
from skdpot.privacy.reliability import Reliability

_LABELS = {
    "needed_by": "A classifier",
    "advice": "for a continuous target use FairPrivateRegressor",
}


@dataclass(eq=False, repr=False)
class FairPrivateClassifier(FairDecisions, FairPredictor):
    r"""Classifier that treats groups alike, trained with differential privacy.

    By default a network is trained for its loss alone, and the distributions of its scores in each
    group and class are released once (`skdpot.mechanisms.BayesRule`). A linear programme finds the
    most accurate rule under a fairness constraint from that release. Rules for other constraints
    (`with_constraint`) and the accuracy of each (`frontier_`) follow at no further cost.

    With the mechanisms "sketch" and "ranks" training minimises :math:`(1 - \alpha)` times the
    cross-entropy plus :math:`\alpha` times the squared Wasserstein distance between the groups'
    distributions of predicted probabilities (sliced for more than two classes, summed over pairs
    of K groups, weighted 4 / K²). This makes scores similar, not only decisions.

    X is not scaled. Scale it first by *public* ranges to about [-1, 1], or with a
    `PrivateScaler` that shares the budget.

    Parameters
    ----------
    level : float, default=0.8
        Required similarity of the groups' rates: their smallest ratio, or one minus their largest
        difference (`measure`). 0 gives the most accurate rule, 1 equal rates, and 0.8 is the
        "four-fifths rule". For "bayes" only; the other mechanisms have an `alpha`.
    fairness : str, default="demographic_parity"
        The rates to compare. "demographic_parity": the rate of a decision among all members of a
        group; "equalized_odds": among those of each true class; "equal_opportunity": among those
        for whom it is right; "predictive_equality": among those for whom it is wrong. Of two
        classes, decisions for `pos_label` are compared, of more those for each. The last two are
        for "bayes" only. With "sketch" and "ranks", equalised odds treats the class of every record
        as public.
    epsilon : float, default=1.0
        Privacy parameter of the whole fit; ``inf`` for no privacy.
    delta : float, default=1e-5
        Privacy parameter of the whole fit, in (0, 1).
    measure : {"ratio", "difference"}, default="ratio"
        Whether `level` bounds the ratio of rates or one minus their difference.
    pos_label : label, optional
        The favorable one of two classes. By default 1 of the classes 0 and 1 or −1 and 1; of others
        the second in sorted order, with a `FairnessWarning`.
    group_aware : bool, default=False
        Whether decisions may use the group. `predict` then needs `sensitive_features`. For "bayes"
        only; with other mechanisms make the group a feature of X.
    randomized : bool, default=True
        Whether the rule may choose at random between two thresholds, as the optimum does in few
        places. The coin is a hash of the features, so equal rows get equal decisions. If False, the
        best rule with a single threshold in each place is used.
    module : {"linear", "mlp"}, torch.nn.Module or callable, default="linear"
        Network from features to logits: one for two classes, one per class for more. "linear" is
        logistic regression, "mlp" has one hidden layer of 64 units and more noise; better where
        classes are far from linear. A module is copied and starts from its weights, which must be
        public; a function without arguments makes one. It must treat every record by itself.
    mechanism : {"bayes", "sketch", "ranks"} or a mechanism, default="bayes"
        How decisions are made alike: by the rule, or by a penalty of the training. A name stands
        for `skdpot.mechanisms.BayesRule`, `skdpot.mechanisms.SketchedOutputs` or
        `skdpot.mechanisms.RankedOutputs` with defaults.
    callbacks : list of skorch.callbacks.Callback, optional
        Called at each training step, which counts as an epoch. They see the network and its noisy
        gradients; callbacks that need rows, losses or batch sizes are refused. Copies are
        tried for one step before the charge.
    classes : array-like, optional
        The public set of classes. By default the classes in y, which are then taken as public.
    budget : PrivacyBudget, optional
        Shared budget that every fit is charged to.
    device : {"auto", "cpu", "cuda", "cuda:0", ...} or torch.device, default="auto"
        Where networks run; "auto" is a GPU if there is one.
    random_state : int, RandomState or None, default=None
        Seed of everything, the noise included. For tests only: it lets anyone remove the noise.
    verbose : int, default=0
        1 shows a progress bar of steps.

    Attributes
    ----------
    classes_ : ndarray of shape (n_classes,)
        The classes.
    pos_label_ : label or None
        The favorable class; None for more than two classes.
    groups_ : ndarray of shape (n_groups,) or None
        The groups of `sensitive_features`; None if nothing is compared.
    network_ : torch.nn.Module
        From rows to logits.
    mechanism_ : BayesRule, SketchedOutputs or RankedOutputs
        The mechanism of the fit, a copy.
    score_law_ : object or None
        The released counts; only with "bayes".
    rule_ : object or None
        The thresholds; only with "bayes".
    threshold_ : float
        Smallest probability of the second class at which it is predicted, 0.5 unless tuned; not
        with "bayes".
    n_steps_ : int
        Number of training steps; not with "bayes".
    losses_ : DataFrame or None
        Loss and penalty before at most 300 steps, on at most 2,000 records; only at ``epsilon=inf``
        and not with "bayes".
    reliability_ : Reliability
        The errors that noise adds to accuracy, fairness and the rate of each group ("bayes" with
        groups), and to predicted probabilities. Groups of which noise hides the rates are pooled in
        the rule, and scores that are all noise become constant; both are told here.
    privacy_spent_ : PrivacySpent
        Cost of the fit and its assumptions.
    n_features_in_ : int
        Number of features.
    feature_names_in_ : ndarray of shape (n_features_in_,)
        Names of features, when X has names that are all strings.

    Privacy
    -------
    A fit releases the noisy summed gradient of every step and, with "bayes", one noisy count of all
    records by group, class and score, or, with "sketch", noisy distributions of the outputs: one
    composed event under replace-one, for a neighbour with *the same group* (and, under equalised
    odds by "sketch" and "ranks", the same class). The groups, their sizes and members, the set of
    classes, the number of rows and of features and their names, and the initial weights are public;
    under equalised odds by "sketch" and "ranks" the class of every record is public too.

    With "bayes", all records take part in each step, and one of them moves the sum by at most twice
    its clipped length (`skdpot.fair.scores`) and the counts by
    `skdpot.release.strategy.Strategy.sensitivity`. With "sketch", batches are Poisson samples and
    the sensitivity of a sum is :math:`(1-\alpha)\,2C` (`skdpot.fair.fair_loss`). With ranks,
    batches are fixed numbers of records per group (and class), and it is :math:`(1-\alpha)\, 2C +
    \alpha\, n' \frac{4 (K-1)}{K^2 Q} \frac{4 r L}{\min_c n'_c}` (`skdpot.nets.parity_penalty`). A
    tuned threshold adds noisy histograms. Rounding to the lattice of the noise adds at most 1/512
    (`skdpot.privacy.noise.noise_for_sums`). No bit of a record's gradient depends on who else is in
    a batch, or how many (`skdpot.privacy.sampling`); of a GPU the statement assumes it. No loss is
    recorded or shown.

    Rows given to `predict` and `score` are treated as public. A grid search that scores on private
    records leaks through its scores and its choice.

    References
    ----------
    D. Rodríguez-Vítores, C. Lalanne, J.-M. Loubes, "Learning with differentially private (sliced)
    Wasserstein gradients", 2025 ("sketch" and "ranks"). The sensitivity here is smaller than the
    paper's, and proved.

    X. Zeng, E. Dobriban, G. Cheng, "Bayes-optimal classifiers under group fairness", 2022.

    Examples
    --------
    >>> from skdpot import FairPrivateClassifier
    >>> from skdpot.datasets import make_biased_classification
    >>> X, y, group = make_biased_classification(5000, random_state=0)
    >>> classifier = FairPrivateClassifier(level=0.8, epsilon=1.0)
    >>> classifier = classifier.fit(X, y, sensitive_features=group)
    >>> classifier.predict_proba(X[:2]).shape
    (2, 2)
    >>> stricter = classifier.with_constraint("equalized_odds", level=0.95, measure="difference")
    >>> stricter.privacy_spent_.epsilon
    1.0
    """

    level: float = 0.8
    _: KW_ONLY
    fairness: str = "demographic_parity"
    epsilon: float = 1.0
    delta: float = 1e-5
    measure: str = "ratio"
    pos_label: Any = None
    randomized: bool = True
    mechanism: str | FairMechanism = "bayes"
    classes: Any = None

    _mechanisms: ClassVar[dict[str, type[FairMechanism]]] = {
        "bayes": BayesRule,
        **PENALTY_MECHANISMS,
    }
    _parameter_constraints = {
        **FairPredictor._parameter_constraints,
        **RULE_PARAMETERS,
        "mechanism": [StrOptions(set(_mechanisms)), BayesRule, PenaltyMechanism],
        "classes": ["array-like", None],
    }

    def _task(
        self, context: FitContext, rows: np.ndarray, y: Any, cells: Cells
    ) -> tuple[FairTask, np.ndarray]:
        codes, self.classes_ = encode_labels(y, len(rows), self.classes, **_LABELS)
        n_classes, public = len(self.classes_), ["the set of classes"]
        if n_classes < 2:
            raise ValueError(
                "y holds a single class; a classifier needs two. Declare others with classes=."
            )
        bayes = isinstance(self._chosen_mechanism, BayesRule)
        self._set_favorable(compares=bayes and self.groups_ is not None)
        if self.classes is not None:
            public.append(KNOWN_LABELS)
        if self.groups_ is not None:
            public.append(SAME_GROUP)
        if public_classes := bool(cells.strata) and self._classes_are_public():
            of_classes = within_classes(cells, codes, self.classes_)
            cells = NOTIONS[self.fairness].compared_cells(of_classes)
            public.append(SAME_CLASS)
        aware = self._is_aware(cells)
        n_outputs = 1 if n_classes == 2 else n_classes
        n_inputs = rows.shape[1] + (len(cells.sizes) - 1 if aware else 0)
        task = FairTask(
            gradient=LOSSES["logistic" if n_outputs == 1 else "softmax"].gradient,
            compared=Probabilities(n_outputs),
            cells=cells,
            network=self._network(n_inputs, n_outputs, context.streams.solver),
            public_classes=public_classes,
            group_aware=aware,
            public=public,
            callbacks=self.callbacks,
        )
        return task, codes

    def _classes_are_public(self) -> bool:
        """Whether a record keeps its class in all neighbours. A property would be read by `dir`."""
        mechanism, notion = self._chosen_mechanism, NOTIONS[self.fairness]
        if isinstance(mechanism, BayesRule):
            return False
        if not notion.has_penalty:
            known = [f'"{name}"' for name, notion in NOTIONS.items() if notion.has_penalty]
            raise ValueError(
                f'fairness={self.fairness!r} needs mechanism="bayes"; a penalty is for '
                f"{' or '.join(known)}."
            )
        return notion.given_class and mechanism.compares

    def _targets(self, y: Any) -> np.ndarray:
        return encode_labels(y, len(y), self.classes_)[0]

    def _finish(self, stated: Reliability) -> None:
        self.score_law_ = getattr(self, "score_law_", None)
        self._score_errors = stated.outputs
        self._decide()

    def _places(
        self, X: Any, sensitive_features: Any
    ) -> tuple[Any, np.ndarray, np.ndarray, np.ndarray]:
        rows = self._public_rows(X)
        return rows, *self.scores_(rows, self._codes(X, sensitive_features))

    def _decision_without_rule(self, X: Any) -> np.ndarray:
        outputs = self._outputs(X)
        if outputs.shape[1] > 1:
            return log_softmax(outputs, axis=1)
        return outputs[:, 0] - np.log(self.threshold_ / (1.0 - self.threshold_))

    def __sklearn_tags__(self) -> Tags:
        tags = super().__sklearn_tags__()
        tags.classifier_tags.poor_score = True  # thirty rows teach nothing under noise
        return tags
