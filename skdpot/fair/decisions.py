"""What fair classifiers do after a fit: decisions, other constraints and the frontier."""

from abc import ABC, abstractmethod
from copy import copy
from numbers import Real
from typing import Any, Self

import numpy as np
import pandas as pd
from scipy.special import softmax
from sklearn.base import ClassifierMixin
from sklearn.metrics import accuracy_score

from skdpot._utils.parameters import Interval, StrOptions, check_is_fitted, check_parameters
from skdpot.exceptions import warn_of_fairness
from skdpot.fair.decision_errors import as_reliability, decision_errors
from skdpot.fair.fair_rule import FairConstraint, FairRule, RuleProgram, frontier
from skdpot.fair.notions import DEMOGRAPHIC_PARITY, EQUALIZED_ODDS, NOTIONS
from skdpot.fair.score_law import ScoreLaw
from skdpot.privacy.reliability import Reliability

_N_HASHES = 2.0**64  # of rows, which make coins in [0, 1)
RULE_PARAMETERS: dict[str, list[Any]] = {
    "fairness": [StrOptions(set(NOTIONS))],
    "level": [Interval(Real, 0, 1, closed="both")],
    "measure": [StrOptions({"ratio", "difference"})],
    "randomized": ["boolean"],
    "pos_label": [Real, str, "boolean", None],
}
_SYMMETRIC = {DEMOGRAPHIC_PARITY.name, EQUALIZED_ODDS.name}  # if rates differ by differences
_NO_LAW = (
    'Other constraints and the frontier need a fit with mechanism="bayes" and sensitive_features.'
)


class FairDecisions(ClassifierMixin, ABC):
    """Base class of classifiers that decide by a `rule_`, which follows from a `score_law_`.

    Nothing here reads private rows, so nothing costs privacy. A subclass defines `_places`, and
    `_decision_without_rule` if a fit may have no rule.
    """

    level: float
    fairness: str
    measure: str
    randomized: bool
    pos_label: Any
    classes_: np.ndarray
    groups_: np.ndarray | None
    reliability_: Reliability
    score_law_: ScoreLaw | None
    rule_: FairRule | None
    pos_label_: Any

    @abstractmethod
    def _places(
        self, X: Any, sensitive_features: Any
    ) -> tuple[Any, np.ndarray, np.ndarray, np.ndarray]:
        """Return public rows with their probabilities of classes, lists and margins.

        The shapes are (n_rows, n_features), (n_rows, n_classes), (n_rows,) and (n_rows,).
        """

    def _decision_without_rule(self, X: Any) -> np.ndarray:
        """Return logits, (n_rows,), or log-probabilities, (n_rows, n_classes)."""
        raise NotImplementedError

    def _best_rule(self) -> FairRule:
        """Return the best rule under the constraint."""
        return RuleProgram(self._law(), self._constraint).solve(randomized=self.randomized)[0]

    def _set_favorable(self, *, compares: bool) -> None:
        """Store the favorable class; warn, before the charge, if it had to be assumed."""
        classes, name = self.classes_.tolist(), type(self).__name__
        if self.pos_label is not None and len(classes) != 2:
            raise ValueError(
                f"pos_label is for two classes, and {name} was given {len(classes)}: with more, "
                "the rates of all of them are compared. Leave pos_label=None."
            )
        if self.pos_label is not None and self.pos_label not in classes:
            raise ValueError(f"pos_label={self.pos_label!r} is not among the classes {classes}.")
        self.pos_label_ = None if len(classes) != 2 else classes[1]
        if self.pos_label is not None:
            self.pos_label_ = self.pos_label
        elif len(classes) == 2 and not (set(classes) <= {0, 1} or set(classes) <= {-1, 1}):
            if compares and not (self.measure == "difference" and self.fairness in _SYMMETRIC):
                warn_of_fairness(
                    f"{name}: the favorable decision is taken to be {classes[1]!r}, the second "
                    f"class in sorted order. Pass pos_label={classes[1]!r} if that is right, or "
                    f"pos_label={classes[0]!r}."
                )

    @property
    def _constraint(self) -> FairConstraint:
        favorable = 1
        if self.pos_label_ is not None:
            favorable = self.classes_.tolist().index(self.pos_label_)
        return FairConstraint(self.fairness, float(self.level), self.measure, favorable)

    def _law(self) -> ScoreLaw:
        check_is_fitted(self)
        if (law := getattr(self, "score_law_", None)) is None:
            raise AttributeError(_NO_LAW)
        return law.pooled

    def _decide(self) -> None:
        """Find the rule, and state the errors of its decisions beside those of the scores."""
        of_scores = getattr(self, "_score_errors", ())
        if (law := self.score_law_) is None or self.groups_ is None:
            self.rule_, self.reliability_ = None, as_reliability(of_scores)
            return
        self.rule_ = self._best_rule()
        of_decisions = decision_errors(
            law, self.rule_, self._constraint, self.classes_, self.groups_
        )
        self.reliability_ = as_reliability((*of_decisions, *of_scores))

    def with_constraint(
        self, fairness: str | None = None, *, level: float | None = None, measure: str | None = None
    ) -> Self:
        """Return a fitted copy with another constraint, at no cost.

        Its `reliability_` is that of its own decisions.

        Parameters
        ----------
        fairness, level, measure : str, float, str, optional
            As in the class; by default those of this classifier.

        Returns
        -------
        classifier
            Copy that shares the release of this one. Both are covered by one charge.

        Raises
        ------
        ValueError
            If a value is not allowed, or the constraint was part of the training.
        """
        check_is_fitted(self)
        if self.rule_ is None:
            raise ValueError(_NO_LAW)
        other = copy(self)
        constraint = {"fairness": fairness, "level": level, "measure": measure}
        for name, value in constraint.items():
            setattr(other, name, getattr(self, name) if value is None else value)
        check_parameters(other)
        other._decide()
        return other

    @property
    def frontier_(self) -> pd.DataFrame:
        """Accuracy and fairness of the best rules for 21 levels, estimated from the release.

        Groups that are pooled (`reliability_`) count as one. Standard errors cover the noise of the
        release and that of sampling: the figures are for other rows of the same distribution.
        """
        return frontier(self._law(), self._constraint, randomized=self.randomized).copy()

    def decision_function(self, X: Any, *, sensitive_features: Any = None) -> np.ndarray:
        """Return the margin of the second of two classes, or a value per class.

        Parameters
        ----------
        X : array-like of shape (n_samples, n_features)
            Public rows.
        sensitive_features : array-like of shape (n_samples,), optional
            Group of each row, where decisions use it.

        Returns
        -------
        ndarray of shape (n_samples,) or (n_samples, n_classes)
            With a rule, the difference of the two probabilities minus the threshold; for more than
            two classes, the probabilities, with 1 added to the predicted class. Otherwise logits,
            or log-probabilities.
        """
        check_is_fitted(self)
        if (rule := self.rule_) is None:
            return self._decision_without_rule(X)
        law = self._law()
        rows, classes, lists, margins = self._places(X, sensitive_features)
        frame = rows if isinstance(rows, pd.DataFrame) else pd.DataFrame(np.asarray(rows) + 0.0)
        coins = pd.util.hash_pandas_object(frame, index=False).to_numpy() / _N_HASHES
        decided = rule.decided(lists, margins, coins)
        if classes.shape[1] == 2:
            return decided
        second = law.lists.decides[lists, (decided >= 0.0).astype(int)]
        return classes + np.eye(classes.shape[1])[second]

    def predict_proba(self, X: Any, *, sensitive_features: Any = None) -> np.ndarray:
        """Return the probability of each class.

        With a rule, these are recalibrated by the release, and `predict` need not return the most
        probable class.

        Parameters
        ----------
        X : array-like of shape (n_samples, n_features)
            Public rows.
        sensitive_features : array-like of shape (n_samples,), optional
            As in `decision_function`.

        Returns
        -------
        ndarray of shape (n_samples, n_classes)
            In the order of `classes_`.
        """
        check_is_fitted(self)
        if self.rule_ is None:
            logits = self._decision_without_rule(X)
            if logits.ndim == 1:
                logits = np.column_stack([0.0 * logits, logits])
            return softmax(logits, axis=1)
        law = self._law()
        _, classes, lists, margins = self._places(X, sensitive_features)
        return law.recalibrated(classes, lists, margins)

    def predict(self, X: Any, *, sensitive_features: Any = None) -> np.ndarray:
        """Predict the class of each row.

        Parameters
        ----------
        X : array-like of shape (n_samples, n_features)
            Public rows.
        sensitive_features : array-like of shape (n_samples,), optional
            As in `decision_function`.

        Returns
        -------
        ndarray of shape (n_samples,)
            Classes.

        Raises
        ------
        ValueError
            If groups are needed and not given, or are not among those of the fit.
        """
        decision = self.decision_function(X, sensitive_features=sensitive_features)
        decided = decision.argmax(axis=1) if decision.ndim > 1 else (decision >= 0.0).astype(int)
        return self.classes_[decided]

    def score(
        self, X: Any, y: Any, sample_weight: Any = None, *, sensitive_features: Any = None
    ) -> float:
        """Return the accuracy on public rows.

        Parameters
        ----------
        X, y : array-like of shape (n_samples, n_features), (n_samples,)
            Public rows and their classes.
        sample_weight : array-like of shape (n_samples,), optional
            Weights of the rows.
        sensitive_features : array-like of shape (n_samples,), optional
            As in `decision_function`.

        Returns
        -------
        float
        """
        predicted = self.predict(X, sensitive_features=sensitive_features)
        return float(accuracy_score(y, predicted, sample_weight=sample_weight))
