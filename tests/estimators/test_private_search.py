"""PrivateSearchCV: one charge, trials that cannot overspend, and nothing of those that lost."""

import gc
import math
import pickle
import warnings
import weakref

import numpy as np
import pandas as pd
import pytest
import sklearn
import torch
from scipy import stats
from sklearn.base import clone
from sklearn.frozen import FrozenEstimator
from sklearn.model_selection import (
    GridSearchCV,
    KFold,
    ParameterSampler,
    RandomizedSearchCV,
    RepeatedKFold,
    ShuffleSplit,
    StratifiedKFold,
)
from sklearn.pipeline import make_pipeline
from sklearn.preprocessing import FunctionTransformer, StandardScaler

from skdpot import (
    DPTableSynthesizer,
    FairPrivateClassifier,
    FairPrivateRegressor,
    PrivacyBudget,
    PrivateScaler,
    TableSchema,
)
from skdpot._utils.validation import SecretStream
from skdpot.estimators import _search_trials as trials
from skdpot.estimators._search_plan import draw_splits
from skdpot.estimators._search_trials import find_scorer
from skdpot.estimators.private_search import PrivateSearchCV, search_leaks
from skdpot.exceptions import BudgetExceededError, PrivacyWarning
from skdpot.preprocessing import CategoricalColumn, NumericColumn
from skdpot.privacy.accounting import PrivacyTarget, compose, privacy_target
from skdpot.privacy.selection import BudgetedEvent, TrialLaw
from skdpot.privacy.spent import total_spent
from skdpot.release.release import record_releases
from tests.estimators.reachable import reachable
from tests.estimators.search_cases import LOG, NoisyThreshold
from tests.flat_options import flow_sampler, made

RNG = np.random.default_rng(11)
X = RNG.uniform(-1, 1, (1000, 3))
Y = (X[:, 0] > 0.1).astype(int)
SHIFTS = {"shift": [-0.5, 0.1, 0.6]}
FLOW = {"bounds": (-1, 1), "n_projections": 3, "n_steps": 3, "n_particles": 50}


@pytest.fixture(autouse=True)
def log():
    LOG.clear()
    return LOG


def search(*, estimator=None, candidates=None, **options):
    return PrivateSearchCV(
        NoisyThreshold() if estimator is None else estimator,
        SHIFTS if candidates is None else candidates,
        **({"n_trials": 3} | options),
    )


def with_trials(monkeypatch, number):
    monkeypatch.setattr(TrialLaw, "draw", lambda law, stream: number)


# ------------------------------------------------------------------ one charge


def test_one_charge_before_anything_runs(log, monkeypatch):
    with_trials(monkeypatch, 5)
    budget = PrivacyBudget(3.0)
    found = search(budget=budget, epsilon=2.0).fit(X, Y)
    history = budget.history()
    assert history["label"].tolist() == ["PrivateSearchCV"]
    assert len(log) == 5
    assert found.privacy_spent_.epsilon == 2.0
    assert found.privacy_spent_.event == found.plan_.event
    assert "BudgetedEvent" in history["event"][0]
    assert found.best_params_["shift"] in SHIFTS["shift"]


def test_a_refused_search_changes_nothing(log):
    budget = PrivacyBudget(1.0)
    fitted = search(budget=budget, epsilon=0.9).fit(X, Y)
    before, n_fits = dict(vars(fitted)), len(log)
    with pytest.raises(BudgetExceededError, match="left"):
        fitted.fit(X, Y)
    assert vars(fitted) == before
    assert len(log) == n_fits
    assert len(budget.history()) == 1


def test_the_search_fills_what_it_was_given():
    for options in ({"refit": True}, {"distribution": "poisson"}):
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
    assert plan.n_trained + plan.n_scored == 500
    assert not log
    assert plan.epsilon == 1.0
    assert plan.law.mean == pytest.approx(3)
    assert plan.trial_epsilon < 1.0
    text = str(plan)
    assert "3 on average (geometric)" in text
    assert "accuracy of 100 rows" in text
    assert "nothing spent yet" in plan._repr_html_()
    assert plan.n_trials(0.5) <= plan.n_trials(0.95)
    with pytest.raises(ValueError, match="level must lie"):
        plan.n_trials(1.0)


@pytest.mark.parametrize("seed", range(3))
def test_parts_of_a_trial_cost_no_more_than_the_trial(seed):
    """Against the definition: what each record pays, summed over the folds that it is in."""
    rng = np.random.default_rng(seed)
    everyone = np.arange(60)
    public = [
        (np.setdiff1d(everyone, out), out) for out in (rng.choice(60, 20, False) for _ in range(4))
    ]
    for cv in (0.25, 5, public, [(everyone[:30], everyone[30:]), (everyone[:20], everyone[40:])]):
        plan = search(cv=cv, epsilon=2.0, refit=not isinstance(cv, float)).plan(X[:60])
        splits = draw_splits(cv, 60, np.random.default_rng(0))
        fit_mu = PrivacyTarget(plan.fit.epsilon, plan.fit.delta).mu_cap
        noise = plan.score_noise
        worst = 0.0
        for row in everyone:
            fits = sum(row in train for train, _ in splits.folds)
            scores = sum(row in out for _, out in splits.folds)
            moved = scores + noise.lattice if scores else 0.0
            score_mu = moved / noise.sigma * (1 + (noise.lattice / noise.sigma) ** 2 / 20)
            worst = max(worst, fits * fit_mu**2 + score_mu**2)
        assert 0.85 * plan.trial_mu**2 < worst <= plan.trial_mu**2 * (1 + 1e-9)
        event = plan.event if isinstance(cv, float) else plan.event.events[0]
        assert isinstance(event, BudgetedEvent)
        assert event.leak >= plan.fit.delta / 10 * max(
            sum(row in train for train, _ in splits.folds) for row in everyone
        )


def test_the_law_that_is_charged_is_the_one_that_is_drawn(monkeypatch):
    drawn = []
    monkeypatch.setattr(TrialLaw, "draw", lambda law, stream: drawn.append(law) or 1)
    for name, shape in (
        ("geometric", 1.0),
        ("logarithmic", 0.0),
        ("poisson", math.inf),
        (0.5, 0.5),
    ):
        found = search(distribution=name, n_trials=7).fit(X, Y)
        event = found.privacy_spent_.event
        assert (event.shape, event.mean_trials) == (shape, 7.0)
        assert drawn[-1] == TrialLaw.with_mean(7.0, shape)


# ------------------------------------------------------------------ candidates


def test_every_fit_has_a_budget_of_its_own_that_it_cannot_overspend(log, monkeypatch):
    with_trials(monkeypatch, 6)
    found = search(epsilon=2.0).fit(X, Y)
    budgets = [parameters["budget"] for parameters, *_ in log]
    assert len({id(budget) for budget in budgets}) == 6
    for parameters, rows, *_ in list(log):
        assert parameters["epsilon"] == parameters["budget"].epsilon == found.plan_.fit.epsilon
        assert parameters["delta"] == found.plan_.fit.delta
        assert len(rows) == found.plan_.n_trained == 800
        with pytest.raises(BudgetExceededError, match="left"):
            clone(NoisyThreshold(**parameters)).fit(X, Y)


@pytest.mark.parametrize(
    ("fault", "error", "message"),
    [
        ("greedy", BudgetExceededError, "left"),
        ("does not pay", RuntimeError, "failed with a ValueError"),
        ("other event", RuntimeError, "failed with a ValueError"),
        ("states nothing", RuntimeError, "failed with a ValueError"),
    ],
)
def test_a_candidate_that_does_not_pay_is_refused(fault, error, message):
    budget = PrivacyBudget(5.0)
    with pytest.raises(error, match=message):
        search(estimator=NoisyThreshold(fault=fault), budget=budget).fit(X, Y)
    assert len(budget.history()) == 1


def test_a_failure_quotes_nothing():
    with pytest.raises(RuntimeError, match="the text is hidden") as failure:
        search(estimator=NoisyThreshold(fault="fails")).fit(X, Y)
    assert failure.value.__cause__ is None
    assert failure.value.__context__ is None
    assert not any(f"{value}"[:6] in str(failure.value) for value in X[:, 0])


def test_the_winner_states_the_search_and_has_no_budget_left():
    found = search(epsilon=2.0).fit(X, Y)
    winner = found.best_estimator_
    assert winner.budget is None
    assert winner.privacy_spent_ is found.privacy_spent_
    assert total_spent(found, winner).epsilon == pytest.approx(2.0, rel=0.02)
    assert set(found.privacy_spent_.assumptions) >= {"the number of rows"}
    assert "number of trials" in " ".join(found.privacy_spent_.assumptions)
    assert "how long the search takes" in " ".join(found.privacy_spent_.assumptions)


def test_a_refit_gets_all_rows_and_what_was_set_aside(log, monkeypatch):
    with_trials(monkeypatch, 2)
    found = search(epsilon=2.0, refit=True).fit(X, Y)
    assert [len(rows) for _, rows, *_ in log] == [800, 800, 1000]
    assert log[-1][0]["shift"] == found.best_params_["shift"]
    assert log[-1][0]["epsilon"] == found.plan_.refit.epsilon
    selection, refit = found.privacy_spent_.event.events
    assert isinstance(refit, BudgetedEvent)
    spent = PrivacyTarget(found.plan_.refit.epsilon, found.plan_.refit.delta)
    assert spent.mu_cap <= refit.mu
    assert spent.leak_cap <= refit.leak * (1 + 1e-9)
    assert compose(selection).epsilon(1e-5) < 2.0


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
    pipeline = make_pipeline(
        FunctionTransformer(),
        PrivateScaler(random_state=3),
        NoisyThreshold(verbose=1),
    )
    laws = {"noisythreshold__shift": [0.0, 0.2]}
    found = search(estimator=pipeline, candidates=laws, epsilon=2.0).fit(X, Y)
    [(parameters, *_)] = log
    scaler = found.best_estimator_["privatescaler"]
    assert scaler.random_state is None
    assert parameters["verbose"] is False
    plan = found.plan_
    assert parameters["epsilon"] == asked[0] == plan.fit.part_epsilon < plan.fit.epsilon
    assert (scaler.epsilon, scaler.budget) == (2.0, None)
    shared = PrivacyTarget(plan.fit.part_epsilon, plan.fit.delta).mu_cap
    assert 2 * shared**2 <= PrivacyTarget(plan.fit.epsilon, plan.fit.delta).mu_cap ** 2
    assert found.best_estimator_[-1].privacy_spent_ is scaler.privacy_spent_ is found.privacy_spent_
    assert found.predict(X[:4]).shape == (4,)


def test_parts_that_learn_without_privacy_are_refused():
    learned = StandardScaler().fit(X)
    names = {"noisythreshold__shift": [0.0]}
    search(
        estimator=make_pipeline(FrozenEstimator(learned), NoisyThreshold()), candidates=names
    ).fit(X, Y)
    for part in (StandardScaler(), learned):
        pipeline = make_pipeline(part, NoisyThreshold())
        with pytest.raises(ValueError, match="StandardScaler would learn from private rows"):
            search(estimator=pipeline, candidates=names).fit(X, Y)
    with pytest.raises(ValueError, match="has no private part"):
        search(estimator=FunctionTransformer(), candidates={}).plan(X)
    with pytest.raises(ValueError, match="`memory`"):
        search(estimator=make_pipeline(NoisyThreshold(), memory="x"), candidates=names).plan(X)
    with pytest.raises(ValueError, match="must be None"):
        search(estimator=NoisyThreshold(budget=PrivacyBudget(1.0))).plan(X)


@pytest.mark.parametrize("name", ["epsilon", "delta", "budget", "random_state", "verbose"])
def test_what_the_search_sets_cannot_be_searched(name):
    with pytest.raises(ValueError, match=f"`{name}` cannot be searched"):
        search(candidates=[{"shift": [0.0]}, {name: [1.0]}]).fit(X, Y)
    pipeline = make_pipeline(NoisyThreshold())
    with pytest.raises(ValueError, match="replaces a private part"):
        search(estimator=pipeline, candidates={"noisythreshold": [NoisyThreshold()]}).fit(X, Y)


def test_candidates_that_do_not_exist_cost_nothing():
    budget = PrivacyBudget(5.0)
    for candidates in ({"n_steps": [5, 0]}, {"no_such": [1]}):
        with pytest.raises(ValueError, match="n_steps|no_such"):
            search(estimator=made(FairPrivateClassifier), candidates=candidates, budget=budget).fit(
                X, Y
            )
    assert len(budget.history()) == 0


# ------------------------------------------------------------------ what is not shown


class Repeating(SecretStream):
    """A stream of which every draw of the same size is the same one."""

    def random_bytes(self, n_bytes):
        return np.random.default_rng(n_bytes).bytes(n_bytes)


LAWS = {"shift": stats.uniform(-1, 2), "fault": [None]}


@pytest.mark.parametrize("laws", [LAWS, [LAWS, {"shift": [0.1, 0.2, 0.3]}]], ids=["law", "mixed"])
def test_a_candidate_has_one_law_at_every_index(log, monkeypatch, laws):
    """A trial is a function of its own words: with the same ones all trials are the same."""
    with_trials(monkeypatch, 6)
    task = planned_task(candidates=laws)
    trials.best_trial(task, trials.Rows(X, Y, {}), Repeating())
    shifts = [parameters["shift"] for parameters, *_ in log]
    assert len(shifts) == 6
    assert len(set(shifts)) == 1
    log.clear()
    trials.best_trial(task, trials.Rows(X, Y, {}), SecretStream())
    if laws is LAWS:  # two of six doubles are equal with probability 1e-14
        assert len({parameters["shift"] for parameters, *_ in log}) == 6


def test_a_law_with_a_state_of_its_own_does_not_count_trials(log, monkeypatch):
    class Counting:
        drawn = 0.0

        def rvs(self, random_state=None):
            self.drawn += 0.1
            return self.drawn

    with_trials(monkeypatch, 5)
    search(candidates={"shift": Counting()}).fit(X, Y)
    assert len({parameters["shift"] for parameters, *_ in log}) == 1


def test_parameters_do_not_show_the_index_of_their_trial(monkeypatch):
    """Whoever tries all short seeds (here there are 64) finds no trial with these parameters."""
    laws, original = {"shift": stats.uniform(-1, 2)}, SecretStream.random_bits
    with_trials(monkeypatch, 8)
    tried = set()
    for seed in range(64):
        rng = np.random.RandomState(seed)
        monkeypatch.setattr(SecretStream, "random_bits", lambda stream, n, seed=seed: seed)
        tried |= {one["shift"] for one in ParameterSampler(laws, 8, random_state=rng)}
        tried.add(trials._draw_candidate(laws, SecretStream())["shift"])
    monkeypatch.setattr(
        SecretStream,
        "random_bits",
        lambda stream, n: original(stream, n) % (64 if n < 100 else 2**n),
    )
    found = [search(candidates=laws).fit(X, Y) for _ in range(5)]
    assert sum(one.best_params_["shift"] in tried for one in found) == 0


def test_no_generator_of_the_process_is_moved_by_a_trial(monkeypatch):
    """What the process draws after a search would else show how many trials there were."""
    quick = made(FairPrivateClassifier, alpha=0.0, batch_fraction=1.0, n_steps=2)
    flow = flow_sampler(conditional=True, **FLOW)
    with_trials(monkeypatch, 3)
    for estimator, candidates, options in (
        (quick, {"mechanism__learning_rate": stats.uniform(0.1, 1)}, {}),
        (flow, {"mechanism__n_bins": [4]}, {"scoring": "synthetic_accuracy", "epsilon": 4.0}),
    ):
        before = np.random.get_state()[1:], torch.get_rng_state()  # noqa: NPY002
        search(estimator=estimator, candidates=candidates, **options).fit(X, Y)
        after = np.random.get_state()[1:], torch.get_rng_state()  # noqa: NPY002
        assert all(np.array_equal(*pair) for pair in zip(before[0], after[0], strict=True))
        assert torch.equal(before[1], after[1])


def test_nothing_of_other_trials_is_kept(log, monkeypatch):
    with_trials(monkeypatch, 7)
    seen = []
    original = trials.fit_alone

    def watched(*args):
        fitted = original(*args)
        seen.append(weakref.ref(fitted))
        return fitted

    monkeypatch.setattr(trials, "fit_alone", watched)
    found = search().fit(X, Y)
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


def test_what_is_recorded_is_the_winner(monkeypatch):
    with_trials(monkeypatch, 8)
    with record_releases() as releases:
        found = search().fit(X, Y)
    values = {release.kind: release.value for release in releases}
    assert values["mean"] == found.best_estimator_.mean_
    assert np.clip(values["score"], 0, 1) == found.best_score_


def test_seeded_searches_repeat_and_their_trials_differ(log, monkeypatch):
    with_trials(monkeypatch, 4)
    with pytest.warns(PrivacyWarning, match="reproducible"):
        first = search(random_state=5).fit(X, Y)
    means = {parameters["random_state"] for parameters, *_ in log}
    assert len(means) == 4
    with pytest.warns(PrivacyWarning, match="reproducible"):
        second = search(random_state=5).fit(X, Y)
    assert first.best_score_ == second.best_score_
    log.clear()
    search(estimator=NoisyThreshold(random_state=3)).fit(X, Y)
    assert {parameters["random_state"] for parameters, *_ in log} == {None}


# ------------------------------------------------------------------ scores


def test_the_noise_of_a_score_is_the_planned_one(monkeypatch):
    """200 scores of one number: false alarms below 1e-6, by the chi-squared law."""
    task = planned_task(epsilon=1.0)
    stream = SecretStream(4)
    scores = np.array([trials._noisy(55.0, task, stream) for _ in range(200)])
    spread = np.var(scores) / task.plan.score_deviation**2
    assert 0.6 < spread < 1.55
    assert abs(scores.mean() - 55 / 200) < 5 * task.plan.score_deviation / math.sqrt(200)
    units = scores * task.plan.n_scored / task.plan.score_noise.lattice
    assert np.abs(units - np.rint(units)).max() < 1e-6
    assert len(np.unique(scores)) > 20


def planned_task(**options):
    made = search(**options)
    splits = draw_splits(0.2, len(X), np.random.default_rng(0))
    scorer = find_scorer(None, "held_out", None, made.estimator)
    laws = made.param_distributions
    return trials.SearchTask(made.estimator, ("",), laws, splits, scorer, made.plan(X))


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
        moved = abs(scorer.total(fitted, rows, y) - scorer.total(fitted, other, labels))
        assert moved <= 1.0 + 1e-12
        largest = max(largest, moved)
        assert 0.0 <= scorer.total(fitted, rows, y) <= 5.0
    assert largest > 0.25


def test_sliced_scores_attain_their_sensitivity():
    """Opposite corners of the cube, far from all samples."""
    scorer = find_scorer("sliced_wasserstein", "held_out", ([0.0], [1.0]), None)
    fitted = Fixed(np.zeros((50, 1)))
    low, high = (scorer.total(fitted, np.array([[0.0], [v]]), None) for v in (0.0, 1.0))
    assert low - high == pytest.approx(1.0)


def test_scores_that_are_no_numbers_count_nothing():
    def score(fitted, rows, y):
        return np.where(rows[:, 0] > 0, np.nan, 7.0)

    scorer = find_scorer(score, "held_out", None, None)
    assert scorer.total(None, X, Y) == np.sum(X[:, 0] <= 0)
    found = search(scoring=lambda fitted, rows, y: np.full(len(rows), np.nan)).fit(X, Y)
    assert 0.0 <= found.best_score_ < 0.5
    by_release = search(scoring=lambda fitted: math.nan, score_on="release").fit(X, Y)
    assert by_release.best_score_ == -math.inf


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ({"scoring": "roc_auc"}, "is unknown"),
        ({"scoring": "absolute_error"}, "needs score_bounds"),
        ({"scoring": "absolute_error", "score_bounds": (1.0, 1.0)}, "low < high"),
        ({"scoring": "accuracy", "score_on": "release"}, "of the fitted estimator alone"),
        ({"score_on": "train"}, "score_on"),
        ({"cv": 1}, "n_splits=2 or more"),
        ({"cv": 1.5}, "test_size=1500"),
        ({"cv": StratifiedKFold(3)}, "the number alone is known"),
        ({"cv": [([0, 1], [1, 2])]}, "rows that it holds out"),
        ({"cv": [([0, 0], [1])]}, "names a row twice"),
        ({"cv": [([0, 5000], [1])]}, "positions from 0 to 999"),
        ({"cv": []}, "gives no split"),
        ({"distribution": "binomial"}, "distribution"),
        ({"n_trials": 0.5}, "n_trials"),
        ({"epsilon": 1e-9}, "Raise epsilon"),
    ],
)
def test_what_cannot_be_done_is_refused_before_any_charge(options, message):
    budget = PrivacyBudget(5.0)
    with pytest.raises(ValueError, match=message):
        search(**({"budget": budget} | options)).fit(X, Y)
    assert len(budget.history()) == 0


def test_a_score_of_another_shape_is_refused():
    with pytest.raises(RuntimeError, match="ValueError"):
        search(scoring=lambda fitted, rows, y: 0.5).fit(X, Y)


def test_splits_are_drawn_from_the_number_of_rows():
    seen = []

    class Watching(KFold):
        def split(self, X, y=None, groups=None):
            seen.append((np.array(X), y, groups))
            return super().split(X)

    search(cv=Watching(3), refit=True).fit(X, Y)
    [(rows, y, groups)] = seen
    assert rows.shape == (1000, 1)
    assert not rows.any()
    assert y is None
    assert groups is None
    for cv, fits, scores, disjoint in (
        (0.3, 1, 1, True),
        (5, 4, 1, False),
        (ShuffleSplit(2, test_size=0.5, random_state=0), 2, 2, False),
        (RepeatedKFold(n_splits=4, n_repeats=3), 9, 3, False),
    ):
        splits = draw_splits(cv, 40, np.random.default_rng(0))
        assert (splits.most_fits, splits.most_scores, splits.disjoint) == (fits, scores, disjoint)


# ------------------------------------------------------------------ what works inside


def test_good_candidates_win():
    """One of two, among many trials; seeded."""
    found = search(epsilon=8.0, n_trials=200, candidates={"shift": [0.1, 3.0]}, random_state=1)
    with pytest.warns(PrivacyWarning, match="reproducible"):
        found.fit(X, Y)
    assert found.best_params_ == {"shift": 0.1}
    assert found.score(X, Y) > 0.9


def test_without_privacy_there_is_no_noise(monkeypatch):
    with_trials(monkeypatch, 40)  # without the best candidate with probability 1e-7
    found = search(epsilon=math.inf).fit(X, Y)
    assert found.privacy_spent_.epsilon == math.inf
    assert found.best_params_ == {"shift": 0.1}
    assert found.best_score_ * found.plan_.n_scored == pytest.approx(
        round(found.best_score_ * found.plan_.n_scored)
    )


@pytest.mark.parametrize(
    "options",
    [
        {"score_bounds": (-1, 1)},
        {"score_on": "release"},
        {"scoring": "synthetic_accuracy"},
    ],
)
def test_samplers_can_be_searched(options):
    sampler = flow_sampler(conditional=True, **FLOW)
    frame = pd.DataFrame(X, columns=list("abc"))
    found = search(
        estimator=sampler,
        candidates={"mechanism__n_bins": [4, 8, 16]},
        epsilon=4.0,
        n_trials=2,
        **options,
    ).fit(frame, Y)
    assert found.best_estimator_.mechanism.n_bins == found.best_params_["mechanism__n_bins"]
    rows, labels = found.sample_labeled(20)
    assert list(rows.columns) == list(found.feature_names_in_) == ["a", "b", "c"]
    assert found.sample(5, random_state=0).shape == (5, 3)
    assert set(labels) <= {0, 1}
    assert np.isfinite(found.score(frame))
    trained = 1000 if options.get("score_on") == "release" else 800
    assert found.best_estimator_.n_samples_ == trained
    assert not hasattr(found, "predict")


def test_tables_can_be_searched(monkeypatch):
    with_trials(monkeypatch, 2)
    schema = TableSchema(
        [
            NumericColumn(name="age", lower=0, upper=100, integer=True, dtype="int64"),
            CategoricalColumn(name="sex", categories=("f", "m"), dtype="object"),
        ]
    )
    table = pd.DataFrame({"age": np.arange(600) % 90, "sex": np.array(["f", "m"])[Y[:600]]})
    table["sex"] = table["sex"].astype(object)
    options = {"estimator": DPTableSynthesizer(schema), "candidates": {"n_particles": [300, 400]}}

    def likelihood(fitted, rows, y):
        shares = fitted.sample(500)["sex"].value_counts(normalize=True)
        return [shares.get(value, 0.0) for value in rows["sex"]]

    found = search(scoring=likelihood, **options).fit(table)
    assert list(found.sample(5).columns) == ["age", "sex"]
    assert found.best_params_["n_particles"] == found.best_estimator_.n_particles
    assert found.n_features_in_ == 2
    with pytest.raises(ValueError, match="has no usual score"):
        search(**options).plan(table)


def test_regressors_and_classifiers_can_be_searched():
    quick = {"alpha": 0.0, "batch_fraction": 1.0, "n_steps": 5}
    rates = {"mechanism__learning_rate": [0.01, 0.1]}
    regressor = made(FairPrivateRegressor, target_bounds=(-1, 1), **quick)
    found = search(estimator=regressor, candidates=rates, score_bounds=(-1, 1)).fit(X, X[:, 1])
    assert found.predict(X[:3]).shape == (3,)
    assert 0.0 <= found.best_score_ <= 1.0
    labels = np.array(["no", "yes"])[Y]
    both = search(estimator=made(FairPrivateClassifier, **quick), candidates=rates).fit(X, labels)
    assert set(both.predict(X[:9])) <= {"no", "yes"}
    assert both.classes_.tolist() == ["no", "yes"]
    assert both.predict_proba(X[:3]).shape == (3, 2)
    with pytest.raises(ValueError, match="needs score_bounds"):
        search(estimator=regressor, candidates=rates).fit(X, X[:, 1])


def test_groups_are_split_with_the_rows(log, monkeypatch):
    with_trials(monkeypatch, 1)
    search().fit(X, Y, weights=X[:, 2])
    [(_, rows, _, weights)] = log
    assert np.array_equal(rows[:, 2], weights)
    with pytest.raises(ValueError, match="`weights` must hold one value for each"):
        search().fit(X, Y, weights=[1.0])
    log.clear()
    with sklearn.config_context(enable_metadata_routing=True):
        routed = search(estimator=NoisyThreshold().set_fit_request(weights=True))
        routed.fit(X, Y, weights=X[:, 2])
        assert np.array_equal(log[0][1][:, 2], log[0][3])
        with pytest.raises(sklearn.exceptions.UnsetMetadataPassedError, match="weights"):
            search().fit(X, Y, weights=X[:, 2])


def test_a_search_can_be_cloned_and_its_parameters_set():
    budget = PrivacyBudget(9.0)
    one = search(budget=budget)
    two = clone(one).set_params(estimator__shift=0.4, n_trials=2)
    assert two.budget is budget
    assert two.estimator.shift == 0.4
    assert one.estimator.shift == 0.0
    with pytest.raises(sklearn.exceptions.NotFittedError):
        two.predict(X)


# ------------------------------------------------------------------ scikit-learn's searches


def test_what_a_grid_search_charges_is_foretold():
    budget = PrivacyBudget(50.0)
    for estimator, scorer in ((NoisyThreshold(budget=budget), "accuracy"),):
        grid = GridSearchCV(estimator, SHIFTS, cv=3, scoring=scorer, error_score="raise")
        leaks = search_leaks(grid)
        grid.fit(X, Y)
        assert len(budget.history()) == leaks.n_fits == 10
        assert leaks.has_budget
        assert leaks.stops
        assert len(leaks.facts) == 2
    assert search_leaks(RandomizedSearchCV(NoisyThreshold(), SHIFTS, n_iter=2, cv=4)).n_fits == 9


def test_what_best_params_reveal_is_said():
    leaks = search_leaks(GridSearchCV(NoisyThreshold(), SHIFTS, refit=False))
    assert leaks.n_fits == 15
    assert not leaks.has_budget
    assert not leaks.stops
    text = str(leaks)
    for fact in ("best_params_", "among 3 candidates", "Pass budget=", "error_score='raise'"):
        assert fact in text
    assert "best_params_" in leaks._repr_html_()
    with pytest.raises(TypeError, match="takes a search"):
        search_leaks(NoisyThreshold())


def test_a_swallowed_refusal_leaves_nan_scores():
    """What the guide says of error_score."""
    budget = PrivacyBudget(1.2)
    grid = GridSearchCV(NoisyThreshold(budget=budget), SHIFTS, cv=2, refit=False)
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        grid.fit(X, Y)
    assert np.isnan(grid.cv_results_["mean_test_score"]).any()
    grid.set_params(error_score="raise")
    with pytest.raises(BudgetExceededError, match="error_score='raise'"):
        grid.fit(X, Y)
