"""The estimator: hyper-parameter search with a private result."""

from collections.abc import Callable, Sequence
from copy import deepcopy
from dataclasses import KW_ONLY, dataclass
from numbers import Real
from typing import Any, Self

import numpy as np
import sklearn
from numpy.typing import ArrayLike
from sklearn.base import BaseEstimator, MetaEstimatorMixin, is_classifier, is_regressor
from sklearn.utils import Tags, get_tags
from sklearn.utils.metadata_routing import MetadataRouter, MethodMapping, process_routing
from sklearn.utils.metaestimators import available_if
from tqdm import tqdm

from skdpot._utils.labels import encode_labels, validate_targets
from skdpot._utils.parameters import (
    HasMethods,
    Interval,
    StrOptions,
    all_or_nothing,
    check_is_fitted,
    fit_context,
    num_samples,
)
from skdpot._utils.rows import validate_rows
from skdpot._utils.streams import spawn_streams
from skdpot.base import FitContext
from skdpot.privacy.budget import PrivacyBudget
from skdpot.privacy.pipelines import PrivateEstimatorMixin, private_parts_of
from skdpot.privacy.statement import PrivacySpent
from skdpot.privacy.targets import privacy_target
from skdpot.search.candidates import check_candidates, own_copy
from skdpot.search.fit_data import FitData
from skdpot.search.fits import fit_alone, hand_over
from skdpot.search.made_up_rows import try_out
from skdpot.search.plan import SearchPlan, plan_search
from skdpot.search.private_parts import ONE_ROW, private_prefixes, refuse_reserved
from skdpot.search.scorers import Scorer, find_scorer
from skdpot.search.splits import Splits, draw_splits
from skdpot.search.task import SearchTask
from skdpot.search.trials import best_trial

# Shapes of the laws of the number of trials: truncated negative binomial, or Poisson.
_SHAPES = {"geometric": 1.0, "logarithmic": 0.0, "poisson": np.inf}


def read_rows_and_targets(
    search: "PrivateSearchCV", X: Any, y: Any, by_class: bool
) -> tuple[int, Any, np.ndarray | None]:
    """Return the number of rows, the targets and the classes; refuse invalid ones."""
    tags = get_tags(search.estimator)
    if tags.input_tags.string or tags.input_tags.categorical:
        n_samples = num_samples(X)
    else:
        n_samples = len(validate_rows(search, X, reset=True, min_samples=2))
    if is_classifier(search.estimator):
        of_parts = (getattr(part, "classes", None) for part in private_parts_of(search.estimator))
        declared = next((classes for classes in of_parts if classes is not None), None)
        codes, search.classes_ = encode_labels(y, n_samples, declared, needed_by="A classifier")
        return n_samples, search.classes_[codes], search.classes_
    if is_regressor(search.estimator):
        return n_samples, validate_targets(y, n_samples), None
    if y is not None and num_samples(y) != n_samples:
        raise ValueError(
            f"y has {num_samples(y)} values for {n_samples} rows of X; pass one per row."
        )
    return n_samples, y, encode_labels(y, n_samples)[1] if by_class else None


def read_options(
    search: "PrivateSearchCV", fit_params: dict[str, Any], n_samples: int
) -> dict[str, Any]:
    """Return the further arguments of the candidates' fits, one value per row."""
    options = {name: value for name, value in fit_params.items() if value is not None}
    if options and sklearn.get_config()["enable_metadata_routing"]:
        options = dict(process_routing(search, "fit", **options).estimator.fit)
    for name, value in options.items():
        if name.rpartition("__")[2] == "groups":
            raise ValueError(f"`{name}` is not for a search, whose records are rows: {ONE_ROW}")
        if isinstance(value, str) or not hasattr(value, "__len__") or len(value) != n_samples:
            raise ValueError(
                f"`{name}` must hold one value for each of the {n_samples} rows. Set other options "
                "as parameters of the estimator."
            )
    return options


def _winner_has(method: str) -> Callable[[Any], bool]:
    """Return a check that the winner, or before a fit the estimator, has a method."""

    def check(search: "PrivateSearchCV") -> bool:
        fitted = "privacy_spent_" in vars(search)
        getattr(search.best_estimator_ if fitted else search.estimator, method)
        return True

    return check


def _of_winner(method: str, doc: str) -> Any:
    """Return a method that delegates to the winner, and exists if the winner has it."""

    def call(self: "PrivateSearchCV", *args: Any, **kwargs: Any) -> Any:
        check_is_fitted(self, "privacy_spent_")
        return getattr(self.best_estimator_, method)(*args, **kwargs)

    call.__name__, call.__qualname__, call.__doc__ = method, f"PrivateSearchCV.{method}", doc
    return available_if(_winner_has(method))(call)


@dataclass(eq=False, repr=False)
class PrivateSearchCV(PrivateEstimatorMixin, MetaEstimatorMixin, BaseEstimator):
    r"""Hyper-parameter search that spends one (epsilon, delta), including the choice.

    A grid search releases the best of many fits, and the choice itself reveals information about
    private rows. This search makes a random, secret number of *trials*. Each trial draws a
    candidate from a public distribution, fits it with noise and scores it with noise on held-out
    rows. The parameters, the model and the noisy score of the best trial are released. Everything
    else is discarded, including the number of trials. With ten trials on average, each trial has
    about two thirds of the mu of the search; with ten fits on one budget, each would have a third,
    and nothing would remain for scores.

    Parameters
    ----------
    estimator : estimator
        A private estimator of skdpot (one that inherits `~skdpot.privacy.PrivateEstimatorMixin`)
        with ``budget=None``, or a pipeline, union or column transformer of such estimators and of
        scikit-learn's steps that learn nothing. The search sets `epsilon`, `delta`, `budget`,
        `random_state`, `verbose` and, if none are declared, `classes` of every candidate. A part
        that learns nothing, such as `FunctionTransformer`, must transform each row *by that row
        alone*: ``X - X.mean(0)`` mixes rows, which cannot be checked.
    param_distributions : dict or list of dict
        Public distribution of the candidates, as for `sklearn.model_selection.RandomizedSearchCV`:
        lists are sampled uniformly, objects with ``rvs`` by their own law. It must not depend on
        the private rows. All candidates must have the private parts of `estimator`. Copies of the
        given values are fitted.
    epsilon : float, default=1.0
        Privacy parameter of the whole search; ``inf`` for no privacy.
    delta : float, default=1e-5
        Privacy parameter of the whole search, in (0, 1).
    scoring : str, callable or None, default=None
        The score that compares the trials. "accuracy"; "absolute_error", 1 minus the error as a
        share of `score_bounds`; "synthetic_accuracy", of a classifier that is trained on rows of a
        sampler; "sliced_wasserstein", 1 minus the mean distance along random directions between
        rows and samples, after `score_bounds` are mapped to the unit cube; or a function of a
        fitted estimator, X and y that returns one number in [0, 1] per row, *from that row alone*.
        None is "accuracy" for classifiers, "absolute_error" for regressors and
        "sliced_wasserstein" for samplers.
    score_on : {"held_out", "release"}, default="held_out"
        "release" scores what a candidate released, without rows and without noise: by minus the
        distance of a sampler's rows to its own sketch, or by a function of the fitted estimator
        alone. Every fit then uses all rows, and `cv` is ignored.
    score_bounds : (low, high), optional
        Public range of the targets or of each feature, for scores that need one.
    cv : float, int, splitter or iterable of (train, held_out), default=0.2
        A float is the share of rows that is held out once, an integer the number of folds. A
        splitter only sees the number of rows: labels are private, and a stratified split reveals
        them.
    distribution : {"geometric", "logarithmic", "poisson"} or float, default="geometric"
        Law of the number of trials. A float of at least -0.5 is the shape of a truncated negative
        binomial law; 1 is "geometric" and 0 is "logarithmic". "poisson" makes very few trials least
        often and costs the most.
    n_trials : float, default=10
        Expected number of trials, at least 1; at most 50 for "poisson".
    refit : bool, default=False
        Whether to fit the winner again on all rows, for half of the squared mu of the search. By
        default, the model of the best trial is the result. With several folds and no refit there
        is no single model, and thus no `best_estimator_`.
    budget : PrivacyBudget, optional
        Shared budget to which every search is charged once. In a ledger, where searches and fits
        add up, a search costs more than alone: prefer a search without a budget if nothing else
        uses the rows.
    random_state : int, RandomState or None, default=None
        Makes everything reproducible, including the privacy noise and the number of trials. For
        tests only: anyone who knows the seed can remove the noise.
    verbose : int, default=0
        If 1, print the plan before the search starts. There is no progress bar, since it would
        reveal the number of trials.

    Attributes
    ----------
    best_estimator_ : estimator
        The model of the best trial, or the refitted one. Its statement, `epsilon` and `delta`, and
        those of its parts, such as its sketch, are those of the whole search; `plan_` has what its
        own fit could spend.
    best_params_ : dict
        Its parameters; estimators among them are unfitted.
    best_score_ : float
        Its noisy score. As the largest of many noisy numbers, it is too optimistic.
    plan_ : SearchPlan
        What was planned and charged.
    privacy_spent_ : PrivacySpent
        Cost of the search and its assumptions.
    reliability_ : Reliability
        The error of the score, and the errors of the outputs of `best_estimator_`.
    classes_ : ndarray of shape (n_classes,)
        Classes that `estimator` declares, or else all classes in y; only for classifiers.
    n_features_in_ : int
        Number of features.
    feature_names_in_ : ndarray of shape (n_features_in_,)
        Names of features, when X has names that are all strings.

    Privacy
    -------
    One `BudgetedEvent` (and another one for the refit) under replace-one is charged before
    anything else happens; `skdpot.privacy.selection` proves what the best of a random number of
    trials costs. Each fit of a candidate has its own `PrivacyBudget`, which it cannot overspend. A
    sum of held-out scores, each of which one record moves by at most 1, gets discrete Gaussian
    noise. A record is either trained on or held out, so one split costs the larger of both, and
    folds cost their sum (`skdpot.search.plan`).

    The number of rows, their split, the distribution of the candidates, the law of the number of
    trials and what the candidates themselves treat as public are public. The set of classes is that
    of all rows, not that of the rows of a fit. Every candidate is checked before its fit, and those
    of a grid before the charge: no part of it may learn without noise. There is no ``cv_results_``:
    neither the other trials nor their number are paid for. **Time leaks the number.** Anyone who
    can measure how long a fit took, or how much power it used, learns about the number of trials,
    which is then no longer secret. Run the search where that cannot be observed, or publish the
    result at a fixed time. A failed fit reveals that a trial reached that point, so candidates must
    fail for public reasons only: some are tried on made-up rows before the charge. A held-out row
    for which a score fails counts 0. Rows passed to `predict` and `score` are treated as public.

    References
    ----------
    J. Liu, K. Talwar, "Private selection from private candidates", 2019.
    N. Papernot, T. Steinke, "Hyperparameter tuning with Rényi differential privacy", 2022.

    Examples
    --------
    >>> from skdpot import FairPrivateClassifier, PrivateSearchCV
    >>> from skdpot.datasets import make_biased_classification
    >>> X, y, _ = make_biased_classification(4000, random_state=0)
    >>> from skdpot.mechanisms import SketchedOutputs
    >>> classifier = FairPrivateClassifier(mechanism=SketchedOutputs(alpha=0.0, batch_fraction=1.0))
    >>> candidates = {
    ...     "mechanism__learning_rate": [0.01, 0.1, 1.0],
    ...     "mechanism__n_steps": [10, 30, 100],
    ... }
    >>> search = PrivateSearchCV(classifier, candidates, epsilon=2.0)
    >>> print(search.plan(X))
    whole search                 ε = 2, δ = 1e-05
    trials                       10 on average (geometric); half of the searches make at most 7, ...
    finds one of the best tenth  with probability 53%
    a trial alone                ε = 1.305
    a candidate's fit            ε = 1.544 at δ = 5e-07, on 3,200 rows
    score                        accuracy of 800 rows, noise of standard deviation 0.0037
    >>> search.fit(X, y).privacy_spent_.epsilon
    2.0
    >>> sorted(search.best_params_)
    ['mechanism__learning_rate', 'mechanism__n_steps']
    """

    estimator: Any
    param_distributions: Any
    _: KW_ONLY
    epsilon: float = 1.0
    delta: float = 1e-5
    scoring: str | Callable[..., Any] | None = None
    score_on: str = "held_out"
    score_bounds: Sequence[ArrayLike] | None = None
    cv: Any = 0.2
    distribution: str | float = "geometric"
    n_trials: float = 10
    refit: bool = False
    budget: PrivacyBudget | None = None
    random_state: int | np.random.RandomState | None = None
    verbose: int = 0

    _parameter_constraints = PrivateEstimatorMixin._parameter_constraints | {
        "estimator": [HasMethods(["fit", "get_params", "set_params"])],
        "param_distributions": [dict, list],
        "scoring": [str, callable, None],
        "score_on": [StrOptions({"held_out", "release"})],
        "score_bounds": [tuple, list, None],
        "cv": [Real, HasMethods(["split"]), "cv_object"],
        "distribution": [StrOptions(set(_SHAPES)), Interval(Real, -0.5, None, closed="left")],
        "n_trials": [Interval(Real, 1, 1e6, closed="both")],
        "refit": ["boolean"],
    }

    def plan(self, X: Any, y: Any = None) -> SearchPlan:
        """Return what `fit` will cost; nothing is charged and no row is read.

        Parameters
        ----------
        X : array-like of shape (n_samples, n_features)
            Rows; only their number is used.
        y : object, optional
            Ignored.

        Returns
        -------
        SearchPlan
            Prints as text, and shows as a card in notebooks.

        Raises
        ------
        ValueError
            If parameters are invalid.
        """
        self._validate_params()
        parts, scorer, _ = self._settle()
        return self._plan(num_samples(X), np.random.default_rng(0), parts, scorer)[1]

    @fit_context(prefer_skip_nested_validation=False)
    def fit(self, X: Any, y: Any = None, **fit_params: Any) -> Self:
        """Charge the whole search, run it, and keep the best trial.

        Parameters
        ----------
        X : array-like of shape (n_samples, n_features)
            Private rows.
        y : array-like of shape (n_samples,), optional
            Their targets.
        **fit_params : dict
            Further arguments of the candidates' fits, one value per row, such as
            `sensitive_features`. With metadata routing enabled, as requested by the estimator.
            Records of a search are single rows, so `groups` is refused, as are `unit` and a
            `group_size` above 1 of candidates.

        Returns
        -------
        self : PrivateSearchCV
            Fitted search.

        Raises
        ------
        ValueError
            If parameters or data are invalid.
        BudgetExceededError
            If `budget` cannot pay. Nothing is charged and nothing changes.

        Notes
        -----
        A search that is interrupted, or whose candidate fails, leaves only its charge.
        """
        with all_or_nothing(self, forget=True):
            # Validate.
            parts, scorer, by_class = self._settle()
            n_samples, y, classes = read_rows_and_targets(self, X, y, by_class)
            data = FitData(X, y, read_options(self, fit_params, n_samples))
            # Plan and charge.
            streams = spawn_streams(self.random_state, type(self).__name__)
            splits, plan = self._plan(n_samples, streams.public, parts, scorer)
            task = SearchTask(
                estimator=self.estimator,
                parts=parts,
                distributions=self.param_distributions,
                splits=splits,
                scorer=scorer,
                plan=plan,
                classes=classes,
            )
            try_out(task, data)
            spent = self._charge(FitContext.of(self, X, streams), plan, n_samples, classes)
            if self.verbose:
                tqdm.write(str(plan))
            # Release.
            best = best_trial(task, data, streams.secret)
            winner = best.estimator
            if plan.refit is not None:
                winner = fit_alone(task, best.parameters, data, plan.refit, streams.secret)
            # Store.
            if winner is not None:
                hand_over(winner, parts, spent)
                self.best_estimator_ = winner
                if not hasattr(self, "n_features_in_") and hasattr(winner, "n_features_in_"):
                    self.n_features_in_ = winner.n_features_in_
            self.best_params_ = {name: own_copy(value) for name, value in best.parameters.items()}
            self.best_score_ = best.score
            if scorer.reads_rows:
                self.best_score_ = float(np.clip(best.score, 0.0, 1.0))
            self.plan_ = plan
            self.privacy_spent_ = spent
            self.reliability_ = plan.reliability(self.best_score_, winner)
        self.reliability_.warn(type(self).__name__)
        return self

    def _settle(self) -> tuple[tuple[str, ...], Scorer, bool]:
        """Check all but the data; return parts, score, and whether candidates need classes."""
        # Of a copy, without the fitted parts of an earlier fit.
        parts = private_prefixes(own_copy(self.estimator))
        laws = self.param_distributions
        for alternative in laws if isinstance(laws, list) else [laws]:
            refuse_reserved(alternative, parts)
        by_class = check_candidates(self.estimator, laws, parts)
        scorer = find_scorer(self.scoring, self.score_on, self.score_bounds, self.estimator)
        return parts, scorer, by_class

    def _plan(
        self, n_samples: int, rng: np.random.Generator, parts: tuple[str, ...], scorer: Scorer
    ) -> tuple[Splits, SearchPlan]:
        """Draw the splits, and plan the cost of everything."""
        everything = np.arange(n_samples)
        splits = Splits(((everything, everything[:0]),), most_fits=1, most_scores=0, disjoint=True)
        if self.score_on == "held_out":
            splits = draw_splits(self.cv, n_samples, rng)
        shape = self.distribution
        return splits, plan_search(
            privacy_target(self.epsilon, self.delta, self.budget),
            splits,
            mean_trials=float(self.n_trials),
            shape=_SHAPES[shape] if isinstance(shape, str) else float(shape),
            refit=bool(self.refit),
            score=scorer.name,
            reads_rows=scorer.reads_rows,
            n_parts=len(parts),
        )

    def _charge(
        self, context: FitContext, plan: SearchPlan, n_samples: int, classes: np.ndarray | None
    ) -> PrivacySpent:
        """Charge the search, and state its assumptions."""
        score, parts = plan.score_noise, private_parts_of(self.estimator)
        # Properties of the parts of candidates that no check can verify.
        occur = is_classifier(self.estimator) and not any(hasattr(p, "classes") for p in parts)
        mixed = not (len(parts) == 1 and parts[0] is self.estimator)
        assumptions = (
            (True, "the split of the rows, drawn from their number alone"),
            (True, "the distribution of the candidates, and that of the number of trials"),
            (
                True,
                "what the candidates take as public: groups, labels, bounds, first weights",
            ),
            (occur, "the set of classes that occur among the rows of a fit"),
            (mixed, "a part that learns nothing makes of each row one row, by that row alone"),
            (True, "nobody sees how long the search takes, nor anything else of the other trials"),
            (True, "the score of a held-out row depends on that row and the candidate alone"),
        )
        return context.charge_event(
            plan.event,
            n_samples,
            (
                *context.assumptions(classes=classes is not None, declared_bounds=False),
                *(text for applies, text in assumptions if applies),
            ),
            f"best of a random number of trials, scored by {plan.score}",
            scales=(None, None) if score is None else (score.sigma, score.sensitivity),
        )

    predict = _of_winner("predict", "Return the winner's predictions for public rows.")
    predict_proba = _of_winner("predict_proba", "Return the winner's probabilities of classes.")
    decision_function = _of_winner("decision_function", "Return the winner's decision function.")
    transform = _of_winner("transform", "Return public rows as transformed by the winner.")
    inverse_transform = _of_winner(
        "inverse_transform", "Return rows before the winner's transform."
    )
    score_samples = _of_winner("score_samples", "Return the winner's scores of public rows.")
    sample = _of_winner("sample", "Draw synthetic rows from the winner, at no privacy cost.")
    sample_labeled = _of_winner(
        "sample_labeled", "Draw synthetic rows with classes from the winner, at no privacy cost."
    )

    @available_if(_winner_has("score"))
    def score(self, X: Any, y: Any = None) -> float:
        """Return the winner's own score on **public** rows, without noise."""
        check_is_fitted(self, "privacy_spent_")
        targets = () if y is None else (y,)
        return float(self.best_estimator_.score(X, *targets))

    def get_metadata_routing(self) -> MetadataRouter:
        """Return the metadata routing: arguments of `fit` go to the fits of the candidates.

        Returns
        -------
        MetadataRouter
            With the estimator as consumer.
        """
        mapping = MethodMapping().add(caller="fit", callee="fit")
        return MetadataRouter(owner=type(self).__name__).add(
            estimator=self.estimator, method_mapping=mapping
        )

    def __getattr__(self, name: str) -> Any:
        """Explain why there is no winner after folds without a refit."""
        if name == "best_estimator_" and "privacy_spent_" in vars(self):
            raise AttributeError(
                "Several folds without a refit have no single model. Use refit=True, or hold out a "
                "share such as cv=0.2."
            )
        raise AttributeError(f"{type(self).__name__!r} object has no attribute {name!r}")

    def __sklearn_tags__(self) -> Tags:
        """Return the tags of the estimator that is searched."""
        return deepcopy(get_tags(self.estimator))
