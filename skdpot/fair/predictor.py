"""What private predictors with similar outputs in all groups share.

The groups, their sizes and who belongs to which are public facts, so that messages may name a
group and its size. They never say which rows it holds.
"""

from collections.abc import Sequence
from copy import copy
from dataclasses import KW_ONLY, dataclass
from typing import Any, ClassVar, Self

import numpy as np
import pandas as pd
from scipy.special import softmax
from sklearn.base import BaseEstimator, ClassifierMixin
from sklearn.metrics import accuracy_score
from torch import nn

from skdpot._utils.validation import (
    HasMethods,
    StrOptions,
    all_or_nothing,
    check_is_fitted,
    check_parameters,
    encode_labels,
    fit_context,
    resolve_device,
    spawn_streams,
    torch_randomness,
    validate_rows,
    without_groups,
)
from skdpot.base import FitContext, chosen_mechanism
from skdpot.exceptions import warn_of_fairness, warn_of_privacy
from skdpot.fair.bayes import FairConstraint, FairRule, RuleProgram, frontier
from skdpot.fair.penalties import FAIR_MECHANISMS, FairGradients, FairMechanism, FairTask, Records
from skdpot.fair.score_tables import ScoreLaw
from skdpot.nets.cells import Cells, one_cell, read_groups
from skdpot.nets.networks import build_predictor, evaluate
from skdpot.nets.per_record_check import check_per_record
from skdpot.nets.training import check_callbacks
from skdpot.privacy.budget import PrivacyBudget
from skdpot.privacy.pipelines import PrivateEstimatorMixin
from skdpot.release import gate as recording

_MOST_GROUPS = 50
_UNSCALED = 10  # the largest feature of a row, in most rows
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
    group_aware: bool = False
    mechanism: str | FairMechanism = "sketch"
    callbacks: Sequence[Any] | None = None
    budget: PrivacyBudget | None = None
    device: str = "auto"
    random_state: Any = None
    verbose: int = 0

    _canaries = "opposite targets"
    # Routed where it is asked for: most predictions need no group.
    __metadata_request__predict: ClassVar[dict[str, bool]] = {"sensitive_features": False}
    __metadata_request__score: ClassVar[dict[str, bool]] = {"sensitive_features": False}
    _mechanisms: ClassVar[dict[str, type[FairMechanism]]] = FAIR_MECHANISMS
    _parameter_constraints = {
        **PrivateEstimatorMixin._parameter_constraints,
        "group_aware": ["boolean"],
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
            mechanism = self.mechanism_ = self._chosen
            given, groups = without_groups(self, X, sensitive_features, reset=True)
            rows = self._rows(given, reset=True)
            cells, self.groups_ = self._groups(groups, len(rows))
            context = FitContext.of(self, X, spawn_streams(self.random_state, type(self).__name__))
            task, targets, public = self._task(context, rows, y, cells)
            self._warn_of_one_group()
            made = mechanism.release(context, task, rows, targets, public, self.callbacks)
            self.network_, self.privacy_spent_ = made.value, made.privacy_spent
            self.__dict__.update(made.attributes)
            self._finish()
        return self

    def _finish(self) -> None:
        """Do what follows from the release."""

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

    def _is_aware(self, cells: Cells) -> bool:
        """Whether the group is a feature; a mechanism that cannot make it one is refused."""
        if self.group_aware and isinstance(self._chosen, FairGradients):
            raise ValueError(
                f"group_aware=True is not for {type(self._chosen).__name__}: make the group a "
                "feature of X."
            )
        return self.group_aware and bool(cells.strata)

    def _codes(self, X: Any, sensitive_features: Any) -> np.ndarray:
        """Return the groups of public rows, or zeros where nothing depends on them."""
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

    def _network(self, n_features: int, n_outputs: int, rng: np.random.Generator) -> nn.Module:
        """Make the network with its initial weights, and check that it treats records alone."""
        resolve_device(self.device)  # refused before any charge
        with torch_randomness(rng):
            network = build_predictor(self.module, n_features, n_outputs)
        check_per_record(network, (n_features,), rng, parameter="module", callbacks=self.callbacks)
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
    def _clip_gradient(self) -> float:
        """The norm that each record's loss gradient is clipped to, which canaries exceed."""
        return self._chosen.clip_gradient

    @property
    def _chosen(self) -> FairMechanism:
        return chosen_mechanism(self.mechanism, self._mechanisms)

    def _seen_by(self, release: recording.Release, X: Any, y: Any) -> recording.Records:
        """Return rows and mapped targets; of private bounds, targets as they are."""
        records = Records.of(self.network_, X, self._targets(y), "cpu")
        return records.rows, records.targets

    def _public_rows(self, X: Any) -> np.ndarray:
        check_is_fitted(self)
        rows = self._rows(without_groups(self, X, None)[0], reset=False)
        # Of public rows this may be said.
        if np.median(np.abs(rows).max(axis=1)) > _UNSCALED:
            warn_of_privacy(
                f"{type(self).__name__}: most of these rows have a feature beyond {_UNSCALED}, and "
                "clipped gradients learn little from them. Scale rows to about [-1, 1] by public "
                "ranges, or in a pipeline after PrivateScaler with one budget for both."
            )
        return rows

    def _outputs(self, X: Any) -> np.ndarray:
        rows = self._public_rows(X)
        return evaluate(self.network_, rows, resolve_device(self.device))


_COINS = 2.0**64
_NO_LAW = (
    'Other constraints and the frontier need a fit with mechanism="bayes" and sensitive_features.'
)


class FairDecisions(ClassifierMixin):
    """What a fitted classifier with a `score_law_` and a `rule_` can do, at no cost."""

    level: float
    fairness: str
    measure: str
    randomized: bool
    classes_: np.ndarray
    score_law_: ScoreLaw | None
    rule_: FairRule | None

    def _places(self, X: Any, codes: Any) -> tuple[Any, np.ndarray, np.ndarray, np.ndarray]:
        """Return rows, probabilities of classes, lists and margins; `codes` are groups."""
        raise NotImplementedError

    def _own_decision(self, X: Any) -> np.ndarray:
        """Return logits or log-probabilities, where a fit has no rule."""
        raise NotImplementedError

    def _best_rule(self) -> FairRule:
        """Find the rule of the constraint."""
        return RuleProgram(self._law(), self._constraint).solve(randomized=self.randomized)[0]

    @property
    def _constraint(self) -> FairConstraint:
        return FairConstraint(self.fairness, float(self.level), self.measure)

    def _law(self) -> ScoreLaw:
        check_is_fitted(self)
        if getattr(self, "score_law_", None) is None:
            raise AttributeError(_NO_LAW)
        return self.score_law_  # type: ignore[return-value]

    def with_constraint(
        self, fairness: str | None = None, *, level: float | None = None, measure: str | None = None
    ) -> Self:
        """Return a fitted copy with another constraint, at no cost.

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
        chosen = copy(self)
        given = {"fairness": fairness, "level": level, "measure": measure}
        for name, value in given.items():
            setattr(chosen, name, getattr(self, name) if value is None else value)
        check_parameters(chosen)
        chosen.rule_ = chosen._best_rule()
        return chosen

    @property
    def frontier_(self) -> pd.DataFrame:
        """Accuracy and fairness of the best rules for 21 levels, by what was released.

        With standard errors, which hold the noise of the release and that of a sample: of what is
        to be expected on other rows of the same distribution.
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
            return self._own_decision(X)
        law = self._law()
        rows, classes, lists, margins = self._places(X, sensitive_features)
        frame = rows if isinstance(rows, pd.DataFrame) else pd.DataFrame(np.asarray(rows) + 0.0)
        coins = pd.util.hash_pandas_object(frame, index=False).to_numpy() / _COINS
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
            own = self._own_decision(X)
            return softmax(own if own.ndim > 1 else np.column_stack([0.0 * own, own]), axis=1)
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
