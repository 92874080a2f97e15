"""Fair decisions from the scores of a classifier that is public or paid for."""

from dataclasses import KW_ONLY, dataclass, replace
from typing import Any, ClassVar, Self

import numpy as np
from sklearn.base import BaseEstimator

from skdpot._utils.labels import encode_labels
from skdpot._utils.parameters import HasMethods, all_or_nothing, check_is_fitted, fit_context
from skdpot._utils.rows import without_groups
from skdpot._utils.strangers import bounded, check_scores, stranger_scores
from skdpot._utils.streams import spawn_streams
from skdpot.base import FitContext
from skdpot.fair.bayes_rule import PlacedScores, release_law
from skdpot.fair.decisions import RULE_PARAMETERS, FairDecisions
from skdpot.fair.score_lists import ScoreLists
from skdpot.fair.score_tables import plan_score_tables
from skdpot.nets.cells import SAME_GROUP, read_groups
from skdpot.privacy.budget import PrivacyBudget
from skdpot.privacy.charges import KNOWN_LABELS
from skdpot.privacy.pipelines import PrivateEstimatorMixin
from skdpot.release.releases import Records, Release

_LABELS = {
    "needed_by": "A fair rule",
    "advice": "scores must be those of a classifier",
    "declared": "classes_ of estimator: y must hold the labels that it was fitted with",
}
_SCORES = (
    "the given estimators are public or paid for elsewhere, and score or refuse a row by that row "
    "alone"
)


@dataclass(frozen=True, eq=False)
class EstimatorScores:
    """Probabilities of classes and groups by classifiers of the caller."""

    estimator: Any
    group_estimator: Any
    n_groups: int
    refusals: bool  # whether a refused row is an error; it may be if rows are public

    def probabilities(self, rows: Any, codes: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
        """Return both; without an estimator of the group, `codes` are the groups."""
        groups = np.eye(self.n_groups)[codes]
        if self.group_estimator is not None:
            groups = self._scores(self.group_estimator, rows)
        return self._scores(self.estimator, rows), groups

    def _scores(self, model: Any, rows: Any) -> np.ndarray:
        if not self.refusals:
            return stranger_scores(model, rows)
        return bounded(np.asarray(model.predict_proba(rows), dtype=np.float64))


@dataclass(eq=False, repr=False)
class FairPrivatePostProcessor(FairDecisions, PrivateEstimatorMixin, BaseEstimator):
    """Fair decisions from the scores of a fitted classifier, with differential privacy.

    The scores of private rows are counted once, with noise, by group and class. The most accurate
    rule under a fairness constraint follows from the counts at no cost, as in
    `FairPrivateClassifier`, which trains its own scores. Nothing else of the rows is used.

    Parameters
    ----------
    estimator : classifier
        Fitted classifier with `predict_proba`: public, or private with a charge of its own. It is
        not fitted again. Wrap it in `sklearn.frozen.FrozenEstimator` where this estimator is
        cloned, as in a search.
    level : float, default=0.8
        Required similarity of the groups' rates, as in `FairPrivateClassifier`.
    fairness : str, default="demographic_parity"
        The rates to compare, as in `FairPrivateClassifier`.
    epsilon : float, default=1.0
        Privacy parameter of the counts; ``inf`` for no privacy.
    delta : float, default=1e-5
        Privacy parameter of the counts, in (0, 1).
    measure : {"ratio", "difference"}, default="ratio"
        Whether `level` bounds the ratio of rates or one minus their difference.
    pos_label : label, optional
        The favorable one of two classes. By default 1 of the classes 0 and 1 or −1 and 1; of others
        the second in sorted order, with a `FairnessWarning`.
    group_estimator : classifier, optional
        Fitted classifier of the group, with the groups as its classes. Decisions then do not use
        the group. By default they do, and `predict` needs `sensitive_features`.
    randomized : bool, default=True
        Whether the rule may decide at random between two thresholds, as in `FairPrivateClassifier`.
    budget : PrivacyBudget, optional
        Shared budget that every fit is charged to.
    random_state : int, RandomState or None, default=None
        Seed of the noise. For tests only: it lets anyone remove the noise.

    Attributes
    ----------
    classes_ : ndarray of shape (n_classes,)
        The classes of `estimator`.
    pos_label_ : label or None
        The favorable class; None for more than two classes.
    groups_ : ndarray of shape (n_groups,)
        The groups.
    score_law_ : object
        The released counts.
    rule_ : object
        The thresholds.
    reliability_ : Reliability
        The errors that noise adds to accuracy, fairness and the rate of each group. Groups of which
        noise hides the rates are pooled in the rule, which is told here.
    privacy_spent_ : PrivacySpent
        Cost of the fit and its assumptions; that of `estimator` is not in it.

    Privacy
    -------
    One release of noisy counts under replace-one, for a neighbour with *the same group*; a record
    may change its features and class. The groups, their sizes and members, the number of rows and
    the given estimators are public. These must score a row by that row alone. They are tried on
    made-up rows before the charge; a private row that one of them refuses counts as one of
    probability zero for all classes, so that no error tells of it.

    References
    ----------
    X. Zeng, E. Dobriban, G. Cheng, "Bayes-optimal classifiers under group fairness", 2022.

    Examples
    --------
    >>> from sklearn.linear_model import LogisticRegression
    >>> from skdpot import FairPrivatePostProcessor
    >>> from skdpot.datasets import make_biased_classification
    >>> X, y, group = make_biased_classification(6000, random_state=0)
    >>> public = LogisticRegression().fit(X[:1000], y[:1000])
    >>> fair = FairPrivatePostProcessor(public, level=0.9, epsilon=0.5)
    >>> fair = fair.fit(X[1000:], y[1000:], sensitive_features=group[1000:])
    >>> fair.predict(X[:3], sensitive_features=group[:3]).shape
    (3,)
    """

    estimator: Any
    _: KW_ONLY
    level: float = 0.8
    fairness: str = "demographic_parity"
    epsilon: float = 1.0
    delta: float = 1e-5
    measure: str = "ratio"
    pos_label: Any = None
    group_estimator: Any = None
    randomized: bool = True
    budget: PrivacyBudget | None = None
    random_state: Any = None

    _parameter_constraints = {
        **PrivateEstimatorMixin._parameter_constraints,
        "estimator": [HasMethods("predict_proba")],
        "group_estimator": [HasMethods("predict_proba"), None],
        **RULE_PARAMETERS,
    }
    _canaries: ClassVar[str] = "opposite targets"
    _clip_gradient: ClassVar[float] = 2.0
    __metadata_request__predict: ClassVar[dict[str, bool]] = {"sensitive_features": True}

    @fit_context(prefer_skip_nested_validation=True)
    def fit(self, X: Any, y: Any, *, sensitive_features: Any) -> Self:
        """Count the scores of private rows, and find the rule.

        Parameters
        ----------
        X : array-like of shape (n_samples, n_features)
            Private rows, as `estimator` reads them.
        y : array-like of shape (n_samples,)
            Their classes.
        sensitive_features : array-like of shape (n_samples,) or str
            Group of each row: integers, strings, booleans or categories; public. Or the name of a
            column of X, a DataFrame, that holds them and is no feature of `estimator`.

        Returns
        -------
        self : estimator
            Fitted estimator.

        Raises
        ------
        ValueError
            If parameters or data are not usable, or an estimator does not score made-up rows with
            the columns and data types of X. Nothing is charged.
        BudgetExceededError
            If `budget` cannot pay. Nothing is charged and nothing changes.
        """
        with all_or_nothing(self):
            check_is_fitted(self.estimator)
            n, (rows, groups) = len(X), without_groups(self, X, sensitive_features, reset=True)
            rows = _as_table(rows)
            for name in ("estimator", "group_estimator"):
                if (model := getattr(self, name)) is not None:
                    check_scores(name, model, rows, self._group_column)
            self.classes_ = np.asarray(self.estimator.classes_)
            self._set_favorable(compares=True)
            targets, _ = encode_labels(y, n, self.classes_, **_LABELS)
            cells, self.groups_ = read_groups(groups, n)
            hidden = self.group_estimator
            if hidden is not None and not np.array_equal(hidden.classes_, self.groups_):
                raise ValueError(
                    "group_estimator must have the groups of sensitive_features as its classes_."
                )
            context = FitContext.of(self, X, spawn_streams(self.random_state, type(self).__name__))
            noise = plan_score_tables(context.divisible_mu)
            assumptions = context.assumptions(declared_bounds=False, finite=False)
            self.privacy_spent_ = context.charge_event(
                noise.event,
                n,
                (*assumptions, SAME_GROUP, "the set of classes", KNOWN_LABELS, _SCORES),
                "noisy counts of scores by group and class",
            )
            shares = np.array(cells.sizes) / n
            lists = ScoreLists(shares, len(self.classes_), hidden is None)
            scores = EstimatorScores(self.estimator, hidden, len(self.groups_), refusals=True)
            self.scores_ = PlacedScores(scores, lists)
            placed = PlacedScores(replace(scores, refusals=False), lists)
            self.score_law_ = release_law(placed, cells, noise, (rows, targets), context)
            self._decide()
        self.reliability_.warn(type(self).__name__)
        return self

    def _places(
        self, X: Any, sensitive_features: Any
    ) -> tuple[Any, np.ndarray, np.ndarray, np.ndarray]:
        check_is_fitted(self)
        X, groups = without_groups(self, X, sensitive_features)
        rows = _as_table(X)
        codes = np.zeros(len(rows), dtype=np.intp)
        if self.group_estimator is None:
            codes, _ = encode_labels(
                groups,
                len(rows),
                self.groups_,
                argument="sensitive_features",
                meaning="group label",
                needed_by="A decision that uses the group",
                advice="these are the groups of the fit",
            )
        return rows, *self.scores_(rows, codes)

    def _seen_by(self, release: Release, X: Any, y: Any) -> Records:
        """Return rows and the codes of their classes."""
        return X, encode_labels(y, len(X), self.classes_)[0]


def _as_table(X: Any) -> Any:
    """Return a DataFrame as it is, with the names of its columns, and all else as an array."""
    return X if hasattr(X, "columns") else np.asarray(X)
