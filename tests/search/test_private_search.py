"""PrivateSearchCV: one charge, trials that cannot overspend, and nothing of those that lost."""

import gc
import math
import pickle
import warnings
import weakref
from functools import partial

import numpy as np
import pandas as pd
import pytest
import sklearn
import torch
from scipy import stats
from sklearn.base import BaseEstimator, clone
from sklearn.model_selection import (
    GridSearchCV,
    KFold,
    ParameterSampler,
    RepeatedKFold,
    ShuffleSplit,
    StratifiedKFold,
)
from sklearn.pipeline import make_pipeline
from sklearn.preprocessing import FunctionTransformer
from sklearn.utils.estimator_checks import parametrize_with_checks

from skdpot import DPTableSynthesizer, FairPrivateClassifier, PrivacyBudget, PrivateScaler
from skdpot._utils.streams import SecretStream
from skdpot.exceptions import BudgetExceededError, PrivacyWarning
from skdpot.privacy.accounting import compose
from skdpot.privacy.selection import BudgetedEvent, TrialLaw
from skdpot.privacy.targets import PrivacyTarget, privacy_target
from skdpot.release.gate import record_releases
from skdpot.search import trials
from skdpot.search.candidates import draw_candidate
from skdpot.search.fit_data import FitData
from skdpot.search.scorers import find_scorer
from skdpot.search.splits import draw_splits
from skdpot.search.task import SearchTask
from skdpot.search.trials import best_trial, noisy_score
from tests.contract.reachable import reachable
from tests.flat_options import flow_sampler, made
from tests.search.search_cases import BAD, FLOW, NoisyThreshold, search, with_trials

RNG = np.random.default_rng(11)
X = RNG.uniform(-1, 1, (1000, 3))
Y = (X[:, 0] > 0.1).astype(int)
of_rows = partial(flow_sampler, **FLOW)
OF_PERSONS = of_rows(public_labels=True, group_size=3, conditional=True)
FAIR = {"alpha": 0.0, "batch_fraction": 1.0, "n_steps": 2}

# ------------------------------------------------------------------ scikit-learn's contract

RATES = {"mechanism__learning_rate": [0.1, 0.2]}
SEARCHES = [
    search(made(FairPrivateClassifier, **FAIR), RATES, n_trials=2),
    search(
        flow_sampler(**FLOW | {"bounds": (-3, 3), "n_steps": 2, "n_particles": 20}),
        {"mechanism__n_bins": [4, 8]},
        n_trials=2,
        score_bounds=(-3, 3),
    ),
]


# The checks set random_state, and have features about 100.
@pytest.mark.slow
@pytest.mark.filterwarnings("ignore:.*makes the privacy noise:skdpot.exceptions.PrivacyWarning")
@pytest.mark.filterwarnings("ignore:.*a feature beyond 10:skdpot.exceptions.PrivacyWarning")
@parametrize_with_checks(SEARCHES)
def test_scikit_learn_checks(estimator, check):
    check(estimator)


# ------------------------------------------------------------------ one charge


def test_one_charge_before_anything_runs(log, monkeypatch):
    with_trials(monkeypatch, 5)
    budget = PrivacyBudget(1.05)
    found = search(budget=budget).fit(X, Y)
    assert "BudgetedEvent" in budget.history()["event"][0]
    assert found.privacy_spent_.event == found.plan_.event
    assert "how long the search takes" in " ".join(found.privacy_spent_.assumptions)
    with pytest.raises(BudgetExceededError, match="left"):
        found.fit(X, Y)
    assert len(log) == 5


@pytest.mark.slow
@pytest.mark.parametrize("options", [{"refit": True}, {"distribution": "poisson"}])
def test_the_search_fills_what_it_was_given(options):
    alone = search(epsilon=1.5, delta=1e-6, **options).plan(X)
    assert 0.98 * 1.5 < compose(alone.event).epsilon(1e-6) <= 1.5
    budget = PrivacyBudget(1.5, 1e-6)
    shared = search(epsilon=1.5, delta=1e-6, budget=budget, **options).plan(X)
    assert privacy_target(1.5, 1e-6, budget).admits(shared.event)
    budget.spend(shared.event)
    assert budget.remaining() < 0.3
    assert shared.trial_mu < alone.trial_mu


def test_a_plan_is_made_from_the_number_of_rows_alone(log):
    plan = search().plan(np.full((500, 2), np.nan))
    assert (plan.n_trained, plan.n_scored, plan.epsilon) == (400, 100, 1.0)
    assert not log
    assert plan.trial_epsilon < 1.0
    assert "accuracy of 100 rows" in str(plan)
    assert "nothing spent yet" in plan._repr_html_()
    assert plan.n_trials(0.5) <= plan.n_trials(0.95)
    with pytest.raises(ValueError, match="level must"):
        plan.n_trials(1.0)


@pytest.mark.slow
def test_parts_of_a_trial_cost_no_more_than_the_trial():
    """Against the definition: what each record pays, summed over the folds that it is in."""
    rng = np.random.default_rng(0)
    everyone = np.arange(60)
    out = [rng.choice(60, 20, False) for _ in range(4)]
    public = [(np.setdiff1d(everyone, held), held) for held in out]
    for cv in (0.25, 5, public, [(everyone[:30], everyone[30:]), (everyone[:20], everyone[40:])]):
        plan = search(cv=cv, epsilon=2.0, refit=not isinstance(cv, float)).plan(X[:60])
        splits = draw_splits(cv, 60, np.random.default_rng(0))
        fit_mu = PrivacyTarget(plan.fit.epsilon, plan.fit.delta).mu_cap
        noise, worst, most_fits = plan.score_noise, 0.0, 0
        for row in everyone:
            fits = sum(row in train for train, _ in splits.folds)
            scores = sum(row in held for _, held in splits.folds)
            moved = scores + noise.lattice if scores else 0.0
            score_mu = moved / noise.sigma * (1 + (noise.lattice / noise.sigma) ** 2 / 20)
            worst = max(worst, fits * fit_mu**2 + score_mu**2)
            most_fits = max(most_fits, fits)
        assert 0.85 * plan.trial_mu**2 < worst <= plan.trial_mu**2 * (1 + 1e-9)
        event = plan.event if isinstance(cv, float) else plan.event.events[0]
        assert isinstance(event, BudgetedEvent)
        assert event.leak >= plan.fit.delta / 10 * most_fits


@pytest.mark.slow
@pytest.mark.parametrize(
    ("name", "shape"), [("geometric", 1.0), ("logarithmic", 0.0), ("poisson", math.inf), (0.5, 0.5)]
)
def test_the_law_that_is_charged_is_the_one_that_is_drawn(monkeypatch, name, shape):
    drawn = []
    monkeypatch.setattr(TrialLaw, "draw", lambda law, stream: drawn.append(law) or 1)
    event = search(distribution=name, n_trials=7).fit(X, Y).privacy_spent_.event
    assert (event.shape, event.mean_trials) == (shape, 7.0)
    assert drawn == [TrialLaw.with_mean(7.0, shape)]


# ------------------------------------------------------------------ candidates


def test_every_fit_has_a_budget_of_its_own_that_it_cannot_overspend(log, monkeypatch):
    with_trials(monkeypatch, 6)
    plan = search().fit(X, Y).plan_
    assert len({id(parameters["budget"]) for parameters, *_ in log}) == 6
    for parameters, rows, *_ in list(log):
        assert parameters["epsilon"] == parameters["budget"].epsilon == plan.fit.epsilon
        assert parameters["delta"] == plan.fit.delta
        assert len(rows) == plan.n_trained == 800
        with pytest.raises(BudgetExceededError, match="left"):
            clone(NoisyThreshold(**parameters)).fit(X, Y)


@pytest.mark.parametrize(
    ("fault", "error", "message"),
    [
        ("greedy", BudgetExceededError, "left"),
        ("does not pay", RuntimeError, "failed with a ValueError"),
        ("other event", RuntimeError, "failed with a ValueError"),
        ("states nothing", RuntimeError, "failed with a ValueError"),
        ("fails", RuntimeError, "the text is hidden"),
    ],
)
def test_a_candidate_that_fails_or_does_not_pay_stops_the_search(fault, error, message):
    budget, rows = PrivacyBudget(5.0), X.copy()
    rows[::2, 0] = BAD
    with pytest.raises(error, match=message) as failure:
        search(NoisyThreshold(fault=fault), budget=budget).fit(rows, Y)
    assert len(budget.history()) == 1
    assert failure.value.__cause__ is failure.value.__context__ is None
    assert not any(f"{value}"[:6] in str(failure.value) for value in rows[:, 0])


FAIR_ONE = made(FairPrivateClassifier, **FAIR)
OTHER_ROWS = {"module": ["linear", torch.nn.Linear(7, 1)]}
BROKEN = {
    "a network of other rows": (
        {"estimator": FAIR_ONE, "candidates": OTHER_ROWS},
        "A candidate .*Linear.* fails .*shape",
    ),
    "one number for all": ({"scoring": lambda fitted, rows, y: 0.5}, "`scoring` fails .*shape"),
    "text": ({"scoring": lambda fitted, rows, y: np.full(len(rows), "good")}, "`scoring` fails"),
    "an error": ({"scoring": lambda fitted, rows, y: fitted.bias_}, "`scoring` fails.*bias_"),
    "an error, of a release": (
        {"scoring": lambda fitted: fitted.bias_, "score_on": "release"},
        "`scoring` fails.*bias_",
    ),
    "two numbers, of a release": (
        {"scoring": lambda fitted: np.zeros(2), "score_on": "release"},
        "`scoring` fails",
    ),
}


@pytest.mark.parametrize("name", BROKEN)
def test_what_fails_on_any_rows_is_refused_before_the_charge(name):
    options, message = BROKEN[name]
    budget = PrivacyBudget(5.0)
    with pytest.raises(ValueError, match=f"(?s){message}.*"):
        search(budget=budget, **options).fit(X, Y)
    assert len(budget.history()) == 0


def test_a_held_out_row_that_a_score_refuses_counts_nothing():
    """And no error after the charge tells that there is one."""

    def score(fitted, rows, y):
        if BAD in rows:
            raise ValueError(f"{rows}")
        return np.ones(len(rows))

    rows, budget = X.copy(), PrivacyBudget(5.0)
    rows[::2, 0] = BAD
    assert find_scorer(score, "held_out", None, None).total(None, rows, Y) == len(rows) // 2
    found = search(scoring=score, budget=budget).fit(rows, Y)
    assert found.best_score_ == pytest.approx(0.5, abs=0.2)


def test_a_refit_gets_all_rows_and_what_was_set_aside(log, monkeypatch):
    with_trials(monkeypatch, 2)
    found = search(epsilon=2.0, refit=True).fit(X, Y)
    assert [len(rows) for _, rows, *_ in log] == [800, 800, 1000]
    assert log[-1][0]["shift"] == found.best_params_["shift"]
    assert log[-1][0]["epsilon"] == found.plan_.refit.epsilon
    selection, refit = found.privacy_spent_.event.events
    spent = PrivacyTarget(found.plan_.refit.epsilon, found.plan_.refit.delta)
    assert spent.mu_cap <= refit.mu
    assert spent.leak_cap <= refit.leak * (1 + 1e-9)
    assert compose(selection).epsilon(1e-5) < 2.0


@pytest.mark.slow
def test_folds_have_no_model_unless_it_is_refitted(log, monkeypatch):
    with_trials(monkeypatch, 2)
    found = search(cv=4).fit(X, Y)
    assert len(log) == 8
    assert set(found.best_params_) == {"shift"}
    with pytest.raises(AttributeError, match="refit=True"):
        _ = found.best_estimator_
    assert not hasattr(found, "predict")
    assert search(cv=4, refit=True).fit(X, Y).predict(X[:5]).shape == (5,)


def test_parts_of_a_pipeline_share_the_privacy_of_a_fit(log, monkeypatch):
    with_trials(monkeypatch, 1)
    asked, fit = [], PrivateScaler.fit
    monkeypatch.setattr(
        PrivateScaler,
        "fit",
        lambda scaler, *rows: asked.append(scaler.epsilon) or fit(scaler, *rows),
    )
    steps = FunctionTransformer(), PrivateScaler(random_state=3), NoisyThreshold(verbose=1)
    laws = {"noisythreshold__shift": [0.0, 0.2]}
    found = search(make_pipeline(*steps), laws, epsilon=2.0).fit(X, Y)
    [(parameters, *_)], plan = log, found.plan_
    scaler = found.best_estimator_["privatescaler"]
    assert parameters["verbose"] is False
    assert parameters["epsilon"] == asked[0] == plan.fit.part_epsilon < plan.fit.epsilon
    assert (scaler.epsilon, scaler.budget, scaler.random_state) == (2.0, None, None)
    shared = PrivacyTarget(plan.fit.part_epsilon, plan.fit.delta).mu_cap
    assert 2 * shared**2 <= PrivacyTarget(plan.fit.epsilon, plan.fit.delta).mu_cap ** 2
    assert found.predict(X[:4]).shape == (4,)


# ------------------------------------------------------------------ what is not shown


class Repeating(SecretStream):
    """A stream of which every draw of the same size is the same one."""

    def random_bytes(self, n_bytes):
        return np.random.default_rng(n_bytes).bytes(n_bytes)


LAWS = {"shift": stats.uniform(-1, 2), "fault": [None]}


def planned_task(**options):
    made = search(**options)
    splits = draw_splits(0.2, len(X), np.random.default_rng(0))
    scorer, laws = find_scorer(None, "held_out", None, made.estimator), made.param_distributions
    return SearchTask(made.estimator, ("",), laws, splits, scorer, made.plan(X))


class Counting:
    """A law with a state of its own."""

    drawn = 0.0

    def rvs(self, random_state=None):
        self.drawn += 0.1
        return self.drawn


@pytest.mark.parametrize(
    "laws",
    [LAWS, [LAWS, {"shift": [0.1, 0.2, 0.3]}], {"shift": Counting()}],
    ids=["law", "mixed", "counting"],
)
def test_a_candidate_has_one_law_at_every_index(log, monkeypatch, laws):
    """A trial is a function of its own words: with the same ones all trials are the same."""
    with_trials(monkeypatch, 6)
    task, rows = planned_task(candidates=laws), FitData(X, Y, {})
    best_trial(task, rows, Repeating())
    assert len(log) == 6
    assert len({parameters["shift"] for parameters, *_ in log}) == 1
    log.clear()
    best_trial(task, rows, SecretStream())
    if laws is LAWS:  # two of six doubles are equal with probability 1e-14
        assert len({parameters["shift"] for parameters, *_ in log}) == 6


def test_parameters_do_not_show_the_index_of_their_trial(monkeypatch):
    """Whoever tries all short seeds (here there are 64) finds no trial with these parameters."""
    laws, original = {"shift": stats.uniform(-1, 2)}, SecretStream.random_bits
    with_trials(monkeypatch, 8)
    tried = set()
    for seed in range(64):
        rng = np.random.RandomState(seed)
        monkeypatch.setattr(SecretStream, "random_bits", lambda stream, n, seed=seed: seed)
        tried |= {one["shift"] for one in ParameterSampler(laws, 8, random_state=rng)}
        tried.add(draw_candidate(laws, SecretStream())["shift"])

    def short(stream, n):
        return original(stream, n) % (64 if n < 100 else 2**n)

    monkeypatch.setattr(SecretStream, "random_bits", short)
    found = [search(candidates=laws).fit(X, Y) for _ in range(5)]
    assert sum(one.best_params_["shift"] in tried for one in found) == 0


def test_nothing_of_other_trials_is_kept(log, monkeypatch):
    with_trials(monkeypatch, 7)
    seen, original = [], trials.fit_alone

    def watched(*args):
        fitted = original(*args)
        seen.append(weakref.ref(fitted))
        return fitted

    monkeypatch.setattr(trials, "fit_alone", watched)
    with record_releases() as releases:
        found = search().fit(X, Y)
    values = {release.kind: release.value for release in releases}
    assert values["mean"] == found.best_estimator_.mean_
    assert np.clip(values["score"], 0, 1) == found.best_score_
    del releases
    log.clear()
    gc.collect()
    assert sum(one() is not None for one in seen) == 1
    assert not hasattr(found, "cv_results_")
    held = [value for value in reachable(found).values() if isinstance(value, NoisyThreshold)]
    assert len(held) == 2  # the one that was given, and the winner
    assert pickle.loads(pickle.dumps(found)).best_params_ == found.best_params_


def test_nobody_hears_how_many_trials_there_are(monkeypatch, capsys):
    outputs = []
    for number in (1, 8):
        with_trials(monkeypatch, number)
        with warnings.catch_warnings(record=True) as caught, record_releases() as releases:
            warnings.simplefilter("always")
            found = search(random_state=0, verbose=1).fit(X, Y)
        kinds = sorted(release.kind for release in releases)
        sizes = {name: np.shape(value) for name, value in vars(found).items()}
        shown = capsys.readouterr()
        outputs.append((len(caught), kinds, sizes, shown.out, shown.err))
    assert outputs[0] == outputs[1]
    assert outputs[0][1] == ["mean", "score"]
    assert "3 on average" in outputs[0][3]


def test_trials_of_a_seeded_search_differ(log, monkeypatch):
    with_trials(monkeypatch, 4)
    with pytest.warns(PrivacyWarning, match="reproducible"):
        search(random_state=5).fit(X, Y)
    assert len({parameters["random_state"] for parameters, *_ in log}) == 4
    log.clear()
    search(NoisyThreshold(random_state=3)).fit(X, Y)
    assert {parameters["random_state"] for parameters, *_ in log} == {None}


# ------------------------------------------------------------------ scores


def test_the_noise_of_a_score_is_the_planned_one():
    """200 scores of one number: false alarms below 1e-6, by the chi-squared law."""
    task, stream = planned_task(epsilon=1.0), SecretStream(4)
    scores = np.array([noisy_score(55.0, task, stream) for _ in range(200)])
    assert 0.6 < np.var(scores) / task.plan.score_deviation**2 < 1.55
    assert abs(scores.mean() - 55 / 200) < 5 * task.plan.score_deviation / math.sqrt(200)
    units = scores * task.plan.n_scored / task.plan.score_noise.lattice
    assert np.abs(units - np.rint(units)).max() < 1e-6
    assert len(np.unique(scores)) > 20


class Fixed:
    """Predicts and samples what it holds, whatever it is asked."""

    def __init__(self, rows):
        self.rows = rows

    def predict(self, X):
        return (np.asarray(X)[:, 0] > 0.2).astype(float)

    def sample(self, n, random_state):
        return self.rows[:n]


@pytest.mark.parametrize(
    ("scoring", "bounds"),
    [
        ("accuracy", None),
        ("absolute_error", (-1.0, 2.0)),
        ("sliced_wasserstein", (-1.0, 1.0)),
        (lambda fitted, rows, y: rows[:, 0] * 3, None),
    ],
    ids=["accuracy", "absolute_error", "sliced_wasserstein", "function"],
)
def test_one_held_out_row_moves_a_score_by_one_at_most(scoring, bounds):
    scorer = find_scorer(scoring, "held_out", bounds, None)
    rng = np.random.default_rng(0)
    fitted, largest = Fixed(rng.uniform(-1, 1, (300, 2))), 0.0
    for _ in range(60):
        rows, y = rng.uniform(-1, 1, (5, 2)), rng.integers(0, 2, 5).astype(float)
        other, labels = rows.copy(), y.copy()
        other[2], labels[2] = rng.choice([-9.0, -1.0, 1.0, 9.0], 2), rng.choice([0.0, 1.0, 50.0])
        totals = scorer.total(fitted, rows, y), scorer.total(fitted, other, labels)
        assert 0.0 <= totals[0] <= 5.0
        largest = max(largest, abs(totals[0] - totals[1]))
    assert 0.25 < largest <= 1.0 + 1e-12


def test_sliced_scores_attain_their_sensitivity():
    """Opposite corners of the cube, far from all samples."""
    scorer = find_scorer("sliced_wasserstein", "held_out", ([0.0], [1.0]), None)
    fitted = Fixed(np.zeros((50, 1)))
    low, high = (scorer.total(fitted, np.array([[0.0], [v]]), None) for v in (0.0, 1.0))
    assert low - high == pytest.approx(1.0)


def test_scores_that_are_no_numbers_count_nothing():
    def score(fitted, rows, y):
        return np.where(rows[:, 0] > 0, np.nan, 7.0)

    assert find_scorer(score, "held_out", None, None).total(None, X, Y) == np.sum(X[:, 0] <= 0)
    by_release = search(scoring=lambda fitted: math.nan, score_on="release").fit(X, Y)
    assert by_release.best_score_ == -math.inf


class Foreign(BaseEstimator):
    """Has the parameters of a private estimator, and keeps its statement who knows where."""

    def __init__(self, epsilon=1.0, delta=1e-5, budget=None):
        self.epsilon, self.delta, self.budget = epsilon, delta, budget

    def fit(self, X, y=None):
        return self


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ({"scoring": "roc_auc"}, "is unknown"),
        ({"scoring": "absolute_error"}, "needs score_bounds"),
        ({"scoring": "absolute_error", "score_bounds": (1.0, 1.0)}, "low < high"),
        ({"scoring": "accuracy", "score_on": "release"}, "of the fitted estimator alone"),
        ({"score_on": "train"}, "score_on"),
        ({"estimator": DPTableSynthesizer(), "candidates": {}}, "scor"),
        ({"cv": 1}, "n_splits=2 or more"),
        ({"cv": 1.5}, "test_size=1500"),
        ({"cv": StratifiedKFold(3)}, "`cv`"),
        ({"cv": [([0, 1], [1, 2])]}, "holds out"),
        ({"cv": [([0, 0], [1])]}, "twice"),
        ({"cv": [([0, 5000], [1])]}, "positions from 0 to 999"),
        ({"cv": []}, "gives no split"),
        ({"cv": [([0], [1])] * 1001}, "more than 1000 splits"),
        ({"distribution": "binomial"}, "distribution"),
        ({"n_trials": 0.5}, "n_trials"),
        ({"epsilon": 1e-9}, "Raise epsilon"),
        ({"candidates": {"no_such": [1]}}, "no_such"),
        ({"estimator": DPTableSynthesizer(unit="who"), "candidates": {}}, "`unit` cannot be used"),
        ({"estimator": OF_PERSONS, "candidates": {}}, "`mechanism__group_size` cannot be used"),
        ({"candidates": {"mechanism__group_size": [3]}, "estimator": of_rows()}, "group_size"),
        ({"candidates": {"n_steps": [5, 0]}, "estimator": made(FairPrivateClassifier)}, "n_steps"),
        ({"estimator": Foreign(), "candidates": {}}, "Foreign.*PrivateEstimatorMixin"),
        *(
            ({"candidates": [{"shift": [0.0]}, {name: [1.0]}]}, f"`{name}` cannot be searched")
            for name in ("epsilon", "delta", "budget", "random_state", "verbose")
        ),
    ],
)
def test_what_cannot_be_done_is_refused_before_any_charge(options, message):
    budget = PrivacyBudget(5.0)
    with pytest.raises(ValueError, match=message):
        search(**({"budget": budget} | options)).fit(X, Y)
    assert len(budget.history()) == 0


def test_splits_are_drawn_from_the_number_of_rows():
    seen = []

    class Watching(KFold):
        def split(self, X, y=None, groups=None):
            seen.append((np.array(X), y, groups))
            return super().split(X)

    search(cv=Watching(3), refit=True, epsilon=math.inf).fit(X, Y)
    [(rows, y, groups)] = seen
    assert rows.shape == (1000, 1)
    assert not rows.any()
    assert y is groups is None
    for cv, fits, scores, disjoint in (
        (0.3, 1, 1, True),
        (5, 4, 1, False),
        (ShuffleSplit(2, test_size=0.5, random_state=0), 2, 2, False),
        (RepeatedKFold(n_splits=4, n_repeats=3), 9, 3, False),
    ):
        splits = draw_splits(cv, 40, np.random.default_rng(0))
        assert (splits.most_fits, splits.most_scores, splits.disjoint) == (fits, scores, disjoint)


# ------------------------------------------------------------------ what works inside


def test_good_candidates_win(monkeypatch):
    """One of three, among many trials."""
    with_trials(monkeypatch, 40)  # without the best candidate with probability 1e-7
    found = search(epsilon=math.inf).fit(X, Y)
    assert found.best_params_ == {"shift": 0.1}
    assert found.score(X, Y) > 0.9
    right = found.best_score_ * found.plan_.n_scored  # a number without noise
    assert right == pytest.approx(round(right))


@pytest.mark.slow
@pytest.mark.parametrize(
    "options",
    [{"score_bounds": (-1, 1)}, {"score_on": "release"}, {"scoring": "synthetic_accuracy"}],
)
def test_samplers_can_be_searched(options):
    frame = pd.DataFrame(X, columns=list("abc"))
    bins = {"mechanism__n_bins": [4, 8, 16]}
    sampler = flow_sampler(conditional=True, **FLOW)
    found = search(sampler, bins, epsilon=4.0, n_trials=2, **options).fit(frame, Y)
    assert found.best_estimator_.mechanism.n_bins == found.best_params_["mechanism__n_bins"]
    rows, labels = found.sample_labeled(20)
    assert list(rows.columns) == list(found.feature_names_in_) == ["a", "b", "c"]
    assert set(labels) <= {0, 1}
    assert np.isfinite(found.score(frame))
    assert found.best_estimator_.n_samples_ == (1000 if "score_on" in options else 800)
    assert not hasattr(found, "predict")


def test_options_of_a_fit_are_split_with_the_rows(log, monkeypatch):
    with_trials(monkeypatch, 1)
    search().fit(X, Y, weights=X[:, 2])
    with sklearn.config_context(enable_metadata_routing=True):
        routed = search(NoisyThreshold().set_fit_request(weights=True))
        routed.fit(X, Y, weights=X[:, 2])
        with pytest.raises(sklearn.exceptions.UnsetMetadataPassedError, match="weights"):
            search().fit(X, Y, weights=X[:, 2])
    assert len(log) == 2
    assert all(np.array_equal(rows[:, 2], weights) for _, rows, _, weights in log)
    with pytest.raises(ValueError, match="`weights` must hold one value"):
        search().fit(X, Y, weights=[1.0])
    budget = PrivacyBudget(5.0)
    with pytest.raises(ValueError, match="whose records are rows"):
        search(of_rows(), {}, budget=budget, score_bounds=(-1, 1)).fit(
            X, groups=np.arange(len(X)) // 2
        )
    assert len(budget.history()) == 0


# ------------------------------------------------------------------ scikit-learn's searches


def test_a_swallowed_refusal_leaves_nan_scores():
    """What the guide says of error_score."""
    estimator = NoisyThreshold(budget=PrivacyBudget(1.2))
    grid = GridSearchCV(estimator, {"shift": [-0.5, 0.1, 0.6]}, cv=KFold(2), refit=False)
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        grid.fit(X, Y)
    assert np.isnan(grid.cv_results_["mean_test_score"]).any()
    with pytest.raises(BudgetExceededError, match="error_score='raise'"):
        grid.set_params(error_score="raise").fit(X, Y)
