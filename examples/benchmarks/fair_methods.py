"""
The methods of ``bench_fair.py``, and how one cell is run and kept.

Without privacy:

- ``logistic regression`` of scikit-learn, C = 1;
- ``ExponentiatedGradient`` of Fairlearn around it, demographic parity, a cell a bound on the
  difference of the rates. Its rule is randomised and is judged by its expectation;
- ``ThresholdOptimizer`` of Fairlearn around it, demographic parity. Randomised too.

With privacy, δ = 1e-5:

- ``DP-SGD``: logistic regression by Opacus (add/remove, easier than ours; ``fair_dpsgd.py``);
- ``DP-SGD + thresholds``: the same with 90 % of μ², and a threshold a group from noisy histograms
  of the scores with 10 % (μ as in the closed form of the Gaussian mechanism at ε and δ; Opacus'
  accountant composes both and fixes the noise of DP-SGD). All targets share one fit;
- ``ours, bayes``: `FairPrivateClassifier` (replace-one given the public groups). It is given
  ``group_aware=True`` in the place of the group as a feature. All levels share one fit;
- ``ours, sketch`` and ``ours, ranks``: the same with a penalty, a cell an α.

Methods whose names end with ``odds`` make equalised odds in the place of demographic parity.

Seconds are of a fit and of the decisions on the test rows. They leave out Opacus' search for the
noise (2 to 7 s), and the library keeps its own from one fit to the next of the same kind.

Both threshold methods must know the group of whoever is decided on. So do rules with the group as
a feature. ``sees_group`` says which: it is what a comparison must hold fixed.
"""

from __future__ import annotations

import json
import math
import time
import warnings
from collections.abc import Callable, Iterator
from dataclasses import dataclass, replace
from pathlib import Path

import numpy as np
from fair_dpsgd import DPSGDSettings, noise_multiplier, train_dpsgd
from fair_tasks import FairTask, load_task
from fair_thresholds import PARITY_TARGETS, GroupThresholds
from fairlearn.postprocessing import ThresholdOptimizer
from fairlearn.reductions import DemographicParity, ExponentiatedGradient
from mnist_halves import replacing
from sklearn.exceptions import UndefinedMetricWarning
from sklearn.linear_model import LogisticRegression

import skdpot
from skdpot.exceptions import PrivacyWarning
from skdpot.fair.predictor import PENALTY_MECHANISMS
from skdpot.privacy.gdp import gdp_mu

DELTA = 1e-5
THRESHOLD_SHARE = 0.1
DIFFERENCE_BOUNDS = (0.003, 0.01, 0.03, 0.06, 0.1, 0.15)
ODDS_LEVELS = (0.9, 0.95, 0.97, 0.98, 0.99, 1.0)
ALPHAS = (0.0, 0.5, 0.7, 0.8, 0.85, 0.9, 0.95, 0.98)
# The best of a search, one setting at a time, over sampling rates from .05 to .4, 50 to 800
# steps, learning rates from .02 to .4 and clipping norms from .05 to 4, by accuracy and area under
# the curve on four other splits at ε = 1.
DPSGD_SETTINGS = {
    "adult": DPSGDSettings(sampling_rate=0.1, n_steps=200, learning_rate=0.2, clip=4.0),
    "compas": DPSGDSettings(sampling_rate=0.1, n_steps=800, learning_rate=0.1, clip=2.0),
}


@dataclass(frozen=True)
class Cell:
    """One method with one setting on one split."""

    data: str
    group_feature: bool
    method: str
    setting: float
    epsilon: float
    seed: int

    @property
    def name(self) -> str:
        """Name of its file, without the ending."""
        method = self.method.replace(", ", "-").replace(" + ", "-").replace(" ", "-")
        group = "with-group" if self.group_feature else "without-group"
        return f"{self.data}-{group}-{method}-{self.setting:g}-eps{self.epsilon:g}-{self.seed}"


@dataclass(frozen=True, eq=False)
class Rule:
    """
    Decisions on the test rows.

    Attributes
    ----------
    decisions : ndarray of shape (n_test,)
        Probabilities of deciding 1.
    scores : ndarray of shape (n_test,)
        What people are ranked by.
    setting : float
        Bound, target or α.
    epsilon : float
        What was spent.
    """

    decisions: np.ndarray
    scores: np.ndarray
    setting: float = 0.0
    epsilon: float = math.inf


@dataclass(frozen=True)
class Method:
    """
    How to make rules.

    Attributes
    ----------
    fit : callable
        From a task and a cell to rules.
    relation : str
        Neighbouring relation of ε; empty without privacy.
    settings : tuple of float
        One cell each.
    needs_group : bool
        Whether a decision needs the group whatever the features are.
    by_opacus : bool
        Whether Opacus' search for the noise is done, and kept, before the clock starts.
    """

    fit: Callable[[FairTask, Cell], list[Rule]]
    relation: str = ""
    settings: tuple[float, ...] = (0.0,)
    needs_group: bool = False
    by_opacus: bool = False


# --- without privacy --------------------------------------------------------------------------


def logistic_regression() -> LogisticRegression:
    """Return the model that Fairlearn wraps; Newton steps suit many rows and few features."""
    return LogisticRegression(solver="newton-cholesky")


def fit_plain(task: FairTask, cell: Cell) -> list[Rule]:
    """Fit logistic regression."""
    scores = logistic_regression().fit(task.X, task.y).predict_proba(task.X_test)[:, 1]
    return [Rule(scores > 0.5, scores)]


def fit_reduction(task: FairTask, cell: Cell) -> list[Rule]:
    """Fit Fairlearn's reduction; `predict` would draw from these probabilities."""
    reduction = ExponentiatedGradient(
        logistic_regression(), DemographicParity(difference_bound=cell.setting)
    )
    reduction.fit(task.X, task.y, sensitive_features=task.groups)
    probabilities = reduction._pmf_predict(task.X_test)[:, 1]
    return [Rule(probabilities, probabilities, cell.setting)]


def fit_threshold_optimizer(task: FairTask, cell: Cell) -> list[Rule]:
    """Fit Fairlearn's thresholds; `predict` would draw from these probabilities."""
    optimizer = ThresholdOptimizer(
        estimator=logistic_regression(),
        constraints=_fairness(cell),
        predict_method="predict_proba",
    )
    optimizer.fit(task.X, task.y, sensitive_features=task.groups)
    probabilities = optimizer._pmf_predict(task.X_test, sensitive_features=task.groups_test)[:, 1]
    return [Rule(probabilities, probabilities)]


# --- with privacy -----------------------------------------------------------------------------


def fit_dpsgd(task: FairTask, cell: Cell) -> list[Rule]:
    """Train by Opacus."""
    model = train_dpsgd(task.X, task.y, *_plan(cell)[:2], cell.seed)
    scores = model.predict_proba(task.X_test)
    return [Rule(scores > 0.5, scores, epsilon=model.epsilon)]


def fit_dpsgd_thresholds(task: FairTask, cell: Cell) -> list[Rule]:
    """Train by Opacus, then take private thresholds for every parity target."""
    settings, target, releases = _plan(cell)
    model = train_dpsgd(task.X, task.y, settings, target, cell.seed, releases)
    thresholds = GroupThresholds(
        model.predict_proba(task.X),
        task.groups,
        sigma=releases[0],
        rng=np.random.default_rng(cell.seed),
    )
    scores = model.predict_proba(task.X_test)
    rules = []
    for parity in PARITY_TARGETS:
        margins = scores - thresholds.pick(parity)[task.groups_test].to_numpy()
        rules.append(Rule(margins > 0, margins, parity, model.epsilon))
    return rules


def _fairness(cell: Cell) -> str:
    return "equalized_odds" if cell.method.endswith("odds") else "demographic_parity"


def _plan(cell: Cell) -> tuple[DPSGDSettings, tuple[float, float], tuple[float, ...]]:
    """Return how to train, the target, and the noise of the histograms where there are any."""
    sigma = 1 / (gdp_mu(cell.epsilon, DELTA) * math.sqrt(THRESHOLD_SHARE))
    releases = (sigma,) if METHODS[cell.method].needs_group else ()
    return DPSGD_SETTINGS[cell.data], (cell.epsilon, DELTA), releases


def fit_bayes(task: FairTask, cell: Cell) -> list[Rule]:
    """Fit our classifier once, then take its rule for every level."""
    aware, fairness = cell.group_feature, _fairness(cell)
    rows, rows_test = (X[:, :-1] if aware else X for X in (task.X, task.X_test))
    given = {"sensitive_features": task.groups_test} if aware else {}
    classifier = skdpot.FairPrivateClassifier(
        epsilon=cell.epsilon, delta=DELTA, group_aware=aware, random_state=cell.seed
    ).fit(rows, task.y, sensitive_features=task.groups)
    parity = fairness == "demographic_parity"
    rules = []
    for level in PARITY_TARGETS if parity else ODDS_LEVELS:
        measure = "ratio" if parity else "difference"
        chosen = classifier.with_constraint(fairness, level=level, measure=measure)
        margins = chosen.decision_function(rows_test, **given)
        rules.append(Rule(margins >= 0, margins, level, classifier.privacy_spent_.epsilon))
    return rules


def ours(mechanism: type, *, tune_threshold: bool) -> Callable[[FairTask, Cell], list[Rule]]:
    """Return a function that fits our classifier."""

    def fit(task: FairTask, cell: Cell) -> list[Rule]:
        classifier = skdpot.FairPrivateClassifier(
            epsilon=cell.epsilon,
            delta=DELTA,
            mechanism=mechanism(cell.setting, tune_threshold=tune_threshold),
            random_state=cell.seed,
        )
        classifier.fit(task.X, task.y, sensitive_features=task.groups)
        decisions = classifier.predict(task.X_test)
        scores = classifier.predict_proba(task.X_test)[:, 1]
        return [Rule(decisions, scores, cell.setting, classifier.privacy_spent_.epsilon)]

    return fit


def _our_method(name: str, *, tune_threshold: bool) -> Method:
    mechanism = PENALTY_MECHANISMS[name]
    return Method(ours(mechanism, tune_threshold=tune_threshold), "replace-one", ALPHAS)


METHODS = {
    "logistic regression": Method(fit_plain),
    "ExponentiatedGradient": Method(fit_reduction, settings=DIFFERENCE_BOUNDS),
    "ThresholdOptimizer": Method(fit_threshold_optimizer, needs_group=True),
    "DP-SGD": Method(fit_dpsgd, "add/remove", by_opacus=True),
    "DP-SGD + thresholds": Method(
        fit_dpsgd_thresholds, "add/remove", needs_group=True, by_opacus=True
    ),
    "ThresholdOptimizer, odds": Method(fit_threshold_optimizer, needs_group=True),
    "ours, bayes": Method(fit_bayes, "replace-one"),
    "ours, bayes, odds": Method(fit_bayes, "replace-one"),
    "ours, ranks": _our_method("ranks", tune_threshold=False),
    "ours, sketch": _our_method("sketch", tune_threshold=False),
    "ours, sketch, tuned": _our_method("sketch", tune_threshold=True),
}


# --- cells ------------------------------------------------------------------------------------


def cells(
    data_sets: list[str],
    methods: list[str],
    epsilons: list[float],
    alphas: list[float],
    n_seeds: int,
) -> Iterator[Cell]:
    """Yield all cells, one seed after the other."""
    for seed in range(n_seeds):
        for data in data_sets:
            for group_feature in (False, True):
                for name in methods:
                    method = METHODS[name]
                    settings = alphas if method.settings is ALPHAS else method.settings
                    for epsilon in epsilons if method.relation else [math.inf]:
                        for setting in settings:
                            yield Cell(data, group_feature, name, setting, epsilon, seed)


def run_cell(cell: Cell, folder: Path, path: Path) -> None:
    """Load, fit, judge, and write one file with a row a rule."""
    task = load_task(cell.data, folder, group_feature=cell.group_feature, seed=cell.seed)
    method = METHODS[cell.method]
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", PrivacyWarning)  # seeds are for benchmarks, too
        warnings.simplefilter("ignore", UndefinedMetricWarning)  # a rule that treats all alike
        warnings.filterwarnings("ignore", message="Optimal order is the largest alpha")
        warnings.filterwarnings("ignore", message="Full backward hook is firing")
        if method.by_opacus:
            noise_multiplier(*_plan(cell))
        start = time.perf_counter()
        rules = method.fit(task, cell)
        seconds = time.perf_counter() - start
        rows = [
            {
                **vars(replace(cell, setting=rule.setting)),
                "sees_group": cell.group_feature or method.needs_group,
                "relation": method.relation,
                "delta": DELTA if method.relation else 0.0,
                "epsilon_spent": rule.epsilon,
                **task.judge(rule.decisions, rule.scores),
                "seconds": seconds,
            }
            for rule in rules
        ]
    with replacing(path) as draft:
        draft.write_text(json.dumps(rows, indent=1), encoding="utf-8")
