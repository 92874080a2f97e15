"""Fair rules for released scores: what is counted, what one record changes, and what is best."""

import math
import re
import warnings

import numpy as np
import pandas as pd
import pytest
from sklearn.base import clone
from sklearn.exceptions import NotFittedError
from sklearn.linear_model import LogisticRegression
from sklearn.pipeline import make_pipeline
from sklearn.preprocessing import StandardScaler

from skdpot import FairPrivateClassifier, FairPrivatePostProcessor, PrivacyBudget
from skdpot._utils.streams import spawn_streams
from skdpot.datasets import make_biased_classification
from skdpot.exceptions import BudgetExceededError, FairnessWarning
from skdpot.fair.fair_rule import FairConstraint, FairRule, RuleProgram, frontier
from skdpot.fair.notions import NOTIONS
from skdpot.fair.score_lists import ScoreLists
from skdpot.fair.score_tables import plan_score_tables, release_score_tables
from skdpot.mechanisms import BayesRule
from skdpot.metrics import disparate_impact, equalized_odds_difference
from skdpot.nets.cells import Cells
from skdpot.release import gate as recording

pytestmark = pytest.mark.filterwarnings(
    "ignore:.*makes the privacy noise reproducible:skdpot.exceptions.PrivacyWarning",
    "ignore:.*hides the distributions:skdpot.exceptions.FairnessWarning",
)

RNG = np.random.default_rng(9113)
N = 40_000


def streams(seed=0):
    with warnings.catch_warnings(action="ignore"):
        return spawn_streams(seed, "test").secret


def law_of(lists, scores, groups, labels, mu=math.inf, seed=0):
    """Release where scores lie; `scores` are probabilities of classes and of groups."""
    places, margins = lists.place(*scores)
    records = margins[:, None], lists.tables(places, groups, labels)
    cells = Cells(groups, tuple(np.bincount(groups).tolist()), ())
    return release_score_tables(
        lists, *records, cells, plan_score_tables(mu), streams(seed), lambda *_: records
    )


def normal_scores(n, rng, gap=1.0):
    """Draw groups, classes and exact scores; the two groups have other shares of class 1.

    The score x is normal around the class, and z around the group.
    """
    groups = (rng.random(n) < 0.4).astype(int)
    share = np.where(groups == 1, 0.25, 0.25 + 0.2 * gap)
    labels = (rng.random(n) < share).astype(int)
    x = rng.normal(labels * 1.5, 1.0)
    z = rng.normal(groups * 1.5, 1.0)
    prior = np.array([[0.6 * (0.75 - 0.2 * gap), 0.6 * (0.25 + 0.2 * gap)], [0.3, 0.1]])
    joint = prior * np.exp(
        -((x[:, None, None] - np.array([0.0, 1.5])) ** 2) / 2
        - (z[:, None, None] - np.array([0.0, 1.5])[:, None]) ** 2 / 2
    )
    joint /= joint.sum(axis=(1, 2), keepdims=True)
    return (joint.sum(axis=1), joint.sum(axis=2)), groups, labels


SCORES, GROUPS, LABELS = normal_scores(N, RNG)
SHARES = np.bincount(GROUPS) / N
BLIND, AWARE = (ScoreLists(SHARES, 2, aware) for aware in (False, True))
KNOWN = SCORES[0], np.eye(2)[GROUPS]
LAW = law_of(BLIND, SCORES, GROUPS, LABELS)


def rates_of(rule, law_lists, scores, groups, labels, constraint):
    """Return the rates of a rule among rows, by what it decides for them."""
    lists, margins = law_lists.place(*scores)
    decided = rule.decided(lists, margins, RNG.random(len(groups))) >= 0
    first, second = law_lists.decides[lists].T
    chosen = np.where(decided, second, first)
    return np.array(
        [
            [
                (chosen[(groups == a) & classes[labels]] == c).mean()
                for a in range(len(law_lists.shares))
            ]
            for c, classes in constraint.rates(law_lists.n_classes)
        ]
    )


@pytest.mark.parametrize("aware", [False, True])
@pytest.mark.parametrize(("n_groups", "n_classes"), [(2, 2), (3, 2), (2, 3), (4, 5)])
def test_every_record_is_in_one_list_at_one_margin(aware, n_groups, n_classes):
    classes, groups = (RNG.dirichlet(np.ones(k), 500) for k in (n_classes, n_groups))
    lists = ScoreLists(np.full(n_groups, 1 / n_groups), n_classes, aware)
    place, margin = lists.place(classes, groups)
    assert ((place >= 0) & (place < lists.n_lists)).all()
    first, second = lists.decides[place].T
    top = np.sort(classes, axis=1)[:, -2:]
    rows = np.arange(500)
    np.testing.assert_allclose(np.abs(margin), top[:, 1] - top[:, 0])
    np.testing.assert_array_equal(np.where(margin > 0, second, first), classes.argmax(1))
    assert np.allclose(margin, classes[rows, second] - classes[rows, first])
    tables = lists.tables(place, groups.argmax(1), classes.argmax(1))
    assert tables.max() < lists.n_tables
    counts = lists.by_group(np.bincount(tables, minlength=lists.n_tables))
    assert counts.sum() == 500  # no record is in a list that cannot hold its group


@pytest.mark.parametrize("lists", [BLIND, AWARE], ids=["blind", "aware"])
def test_a_replaced_record_moves_the_table_by_no_more_than_the_sensitivity(lists):
    """It keeps its group; its class and scores are any. Some neighbours attain the bound."""
    bound, norms = plan_score_tables(1.0).event.sensitivity, []
    groups = np.array([0, 1])
    for _ in range(600):
        tables = []
        for _ in range(2):
            class_scores = RNG.dirichlet([0.1, 0.1], 2)
            scores = (
                class_scores,
                np.eye(2)[groups] if lists.group_aware else RNG.dirichlet([1, 1], 2),
            )
            labels = RNG.integers(0, 2, 1)
            with recording.record_releases() as releases:
                law_of(lists, tuple(part[:1] for part in scores), groups[:1], labels)
            tables.append(releases[0].value)
        norms.append(np.linalg.norm(tables[0] - tables[1]))
    assert 0.999 * bound < max(norms) <= bound * (1 + 1e-9)


def test_numbers_have_the_noise_that_is_charged():
    with recording.record_releases() as releases:
        noisy = law_of(BLIND, SCORES, GROUPS, LABELS, mu=0.1)
        law_of(BLIND, SCORES, GROUPS, LABELS)
    noise = releases[0].value - releases[1].value
    assert noise.std() == pytest.approx(plan_score_tables(0.1).event.sigma, rel=0.1)
    assert releases[0].event.mu <= 0.1
    off = (noisy.measured - LAW.measured) / np.sqrt(np.diag(noisy.covariance) + 1e-9)
    assert np.sqrt(np.square(off).mean()) == pytest.approx(1.0, rel=0.2)


@pytest.mark.parametrize("lists", [BLIND, AWARE], ids=["blind", "aware"])
@pytest.mark.parametrize("fairness", NOTIONS)
@pytest.mark.parametrize("measure", ["ratio", "difference"])
def test_a_rule_keeps_its_constraint_and_tells_its_rates(lists, fairness, measure):
    scores = KNOWN if lists.group_aware else SCORES
    law = law_of(lists, scores, GROUPS, LABELS)
    constraint = FairConstraint(fairness, 0.95, measure)
    rule, _ = RuleProgram(law, constraint).solve()
    told, _ = rule.rates(constraint)
    least = constraint.slope * told.max(axis=1) - constraint.room
    assert (told.min(axis=1) >= least - 2e-3).all()
    found = rates_of(rule, lists, scores, GROUPS, LABELS, constraint)
    np.testing.assert_allclose(found, told, atol=0.012)


def best_blind(level):
    """Return the best accuracy of rules x > t(z), by their known form and many rows."""
    scores, groups, labels = normal_scores(400_000, np.random.default_rng(5))
    eta, pull = scores[0][:, 1], scores[1][:, 1] / 0.4 - scores[1][:, 0] / 0.6
    best = 0.0
    for weight in np.linspace(-0.2, 0.0, 41):
        decided = eta - 0.5 > weight * pull
        rates = [decided[groups == a].mean() for a in (0, 1)]
        if min(rates) / max(rates) >= level:
            best = max(best, (decided == labels).mean())
    return best


@pytest.mark.parametrize("level", [0.6, 0.9])
def test_the_rule_is_nearly_the_best_one_that_does_not_see_the_group(level):
    rule, _ = RuleProgram(LAW, FairConstraint("demographic_parity", level)).solve()
    assert best_blind(level) - 0.005 < rule.accuracy[0] < best_blind(level) + 0.006


def test_with_noise_levels_are_kept_on_average_and_errors_are_stated():
    """What is told of the rule is off by as much as its standard errors say."""
    constraint = FairConstraint("demographic_parity", 0.8)
    deviations, ratios = [], []
    for seed in range(12):
        law = law_of(BLIND, SCORES, GROUPS, LABELS, mu=0.1, seed=seed)
        rule, _ = RuleProgram(law, constraint).solve()
        told, errors = rule.rates(constraint)
        true = FairRule(LAW, rule.weights).rates(constraint)[0]
        deviations += ((told - true) / errors).ravel().tolist()
        ratios.append(true.min() / true.max())
    assert 0.4 < np.sqrt(np.mean(np.square(deviations))) < 1.3
    assert np.mean(ratios) == pytest.approx(0.8, abs=0.05)


def test_a_rule_without_coins_has_one_threshold_per_list():
    rule, _ = RuleProgram(LAW, FairConstraint("demographic_parity", 0.8)).solve(randomized=False)
    assert ((rule.weights > 0).sum(axis=1) == 1).all()
    rates, _ = rule.rates(FairConstraint("demographic_parity", 0.8))
    assert rates.min() / rates.max() > 0.7


def test_the_frontier_falls_and_is_as_wide_as_its_errors():
    table = frontier(LAW, FairConstraint("demographic_parity", 0.0), randomized=True)
    assert (np.diff(table["accuracy"]) < 1e-3).all()
    high = table["level"] > table["disparate_impact"].iloc[0]
    np.testing.assert_allclose(table["disparate_impact"][high], table["level"][high], atol=2e-3)
    assert (table.filter(like="_se") > 0).all(axis=None)


def test_rates_that_no_rule_makes_alike_are_as_alike_as_can_be():
    """Two classes are probable in one group, and two others in the other."""
    groups, classes = np.repeat([0, 1], 500), np.zeros((1000, 4))
    classes[:500, :2], classes[500:, 2:] = RNG.dirichlet([2, 2], (2, 500))
    lists = ScoreLists(np.array([0.5, 0.5]), 4, group_aware=True)
    law = law_of(lists, (classes, np.eye(2)[groups]), groups, classes.argmax(1))
    constraint = FairConstraint("demographic_parity", 0.9)
    rates, _ = RuleProgram(law, constraint).solve()[0].rates(constraint)
    missed = 0.9 * rates.max(axis=1) - rates.min(axis=1)
    assert missed.max() == pytest.approx(0.45, abs=0.01)  # half of a group is decided for each


X, Y, GROUP = make_biased_classification(8000, random_state=0)
TEST = make_biased_classification(20_000, random_state=1)


def fitted(**options):
    classifier = FairPrivateClassifier(random_state=0, **options)
    return classifier.fit(X, Y, sensitive_features=GROUP)


@pytest.fixture(scope="module", params=[False, True], ids=["blind", "aware"])
def classifier(request):
    return fitted(epsilon=3.0, group_aware=request.param)


def test_one_fit_has_all_constraints_at_no_cost(classifier):
    rows, labels, groups = TEST
    given = {"sensitive_features": groups} if classifier.group_aware else {}
    impacts, accuracies = [], []
    for level in (0.0, 0.7, 0.95):
        chosen = classifier.with_constraint("demographic_parity", level=level)
        assert chosen.privacy_spent_ is classifier.privacy_spent_
        decided = chosen.predict(rows, **given)
        impacts.append(disparate_impact(decided, sensitive_features=groups))
        accuracies.append((decided == labels).mean())
        assert chosen.score(rows, labels, **given) == accuracies[-1]
    assert classifier.level == 0.8  # as it was
    assert impacts[1] == pytest.approx(0.7, abs=0.1)
    assert impacts[2] > 0.85
    assert accuracies[0] > accuracies[2]
    odds = classifier.with_constraint("equalized_odds", level=1.0, measure="difference")
    own = equalized_odds_difference(labels, odds.predict(rows, **given), sensitive_features=groups)
    before = classifier.with_constraint(level=0.0).predict(rows, **given)
    assert own < 0.1 < equalized_odds_difference(labels, before, sensitive_features=groups)


def test_views_solve_the_frontier_once(classifier):
    before = frontier.cache_info().misses
    table = classifier.frontier_
    views = {re.sub(r"id-\d+", "id", classifier._repr_html_()) for _ in range(2)}
    assert len(views) == 1
    assert frontier.cache_info().misses == before + 1
    table["level"] = -1.0  # what a caller does with it is not seen by the next one
    assert classifier.frontier_["level"].min() == 0.0
    stricter = classifier.with_constraint("equalized_odds").frontier_
    assert not stricter.equals(classifier.frontier_)


def test_a_row_is_always_decided_the_same_way(classifier):
    rows, _, groups = (part[:200] for part in TEST)
    order = RNG.permutation(200)
    given = [
        {"sensitive_features": g} if classifier.group_aware else {} for g in (groups, groups[order])
    ]
    decided, again = (
        classifier.predict(rows, **given[0]),
        classifier.predict(rows[order], **given[1]),
    )
    np.testing.assert_array_equal(decided[order], again)
    decision = classifier.decision_function(rows, **given[0])
    np.testing.assert_array_equal(decision >= 0, decided == classifier.classes_[1])


def test_probabilities_are_recalibrated(classifier):
    rows, labels, groups = TEST
    given = {"sensitive_features": groups} if classifier.group_aware else {}
    scores = classifier.predict_proba(rows, **given)
    np.testing.assert_allclose(scores.sum(axis=1), 1.0)
    table = pd.DataFrame({"score": scores[:, 1], "label": labels})
    bins = table.groupby(pd.cut(table["score"], np.linspace(0, 1, 6)), observed=True)
    error = (bins["score"].mean() - bins["label"].mean()).abs() * bins.size() / len(table)
    assert error.sum() < 0.04


def test_the_group_is_needed_where_it_is_used():
    aware = fitted(group_aware=True, epsilon=3.0)
    with pytest.raises(ValueError, match="Pass predict"):
        aware.predict(X)
    with pytest.raises(ValueError, match="sensitive_features"):
        aware.predict(X, sensitive_features=np.full(len(X), "elsewhere"))


@pytest.mark.slow
def test_three_classes_and_three_groups():
    rng = np.random.default_rng(3)
    groups, labels = rng.integers(0, 3, (2, 9000))
    labels = np.where((groups == 2) & (rng.random(9000) < 0.5), 0, labels)
    rows = np.c_[np.eye(3)[labels], np.eye(3)[groups]] + rng.normal(0, 0.6, (9000, 6))
    classifier = FairPrivateClassifier(level=0.85, epsilon=math.inf, random_state=0)
    classifier.fit(rows / 3, labels, sensitive_features=groups)
    decided = classifier.predict(rows / 3)
    shares = pd.crosstab(groups, decided, normalize="index")
    assert ((shares.min() / shares.max()) > 0.75).all()
    plain = classifier.with_constraint(level=0.0).predict(rows / 3)
    before = pd.crosstab(groups, plain, normalize="index")
    assert (before.min() / before.max()).min() < 0.6
    assert (decided == labels).mean() > 0.6


def test_without_groups_it_is_a_private_classifier_that_says_so():
    with pytest.warns(FairnessWarning, match="one group"):
        plain = FairPrivateClassifier(epsilon=3.0, random_state=0).fit(X, Y)
    assert plain.score(*TEST[:2]) > 0.8
    with pytest.raises(AttributeError, match="sensitive_features"):
        assert plain.frontier_ is None


def test_what_is_charged_is_what_is_released_and_a_refusal_changes_nothing():
    budget = PrivacyBudget(1.0, 1e-5)
    with recording.record_releases() as releases:
        classifier = fitted(budget=budget)
    kinds = [release.kind for release in releases]
    assert kinds.count("table") == 1
    assert kinds.count("moments") == 2
    events = classifier.privacy_spent_.event.phases
    assert kinds.count("gradient") == sum(getattr(e, "n_steps", 1) for e in events) - 3
    assert classifier.privacy_spent_.epsilon <= 1.0
    spent = budget.epsilon_spent if hasattr(budget, "epsilon_spent") else None
    with pytest.raises(BudgetExceededError):
        fitted(budget=budget)
    assert spent == (budget.epsilon_spent if hasattr(budget, "epsilon_spent") else None)


@pytest.mark.parametrize(
    ("options", "text"),
    [
        ({"fairness": "equal_opportunity", "mechanism": "sketch"}, "needs mechanism"),
        ({"group_aware": True, "mechanism": "ranks"}, "not for RankedOutputs"),
        ({"level": 1.5}, "level"),
        ({"mechanism": BayesRule(share=1.0)}, "share"),
    ],
)
def test_what_is_refused(options, text):
    with pytest.raises(ValueError, match=text):
        fitted(**options)


def test_a_penalty_has_no_other_constraints():
    with pytest.raises(ValueError, match='mechanism="bayes"'):
        fitted(mechanism="sketch", epsilon=3.0).with_constraint(level=0.5)


def test_certain_scores_are_recalibrated_to_finite_probabilities():
    certain = np.array([[1.0, 0.0], [0.0, 1.0]])
    lists, margins = BLIND.place(certain, np.full((2, 2), 0.5))
    assert np.isfinite(LAW.recalibrated(certain, lists, margins)).all()


def others(columns=lambda rows: rows, **options):
    """Return scores of another maker, of public rows, and fair decisions by them."""
    rows, labels, groups = make_biased_classification(3000, random_state=2)
    model = make_pipeline(StandardScaler(), LogisticRegression())
    of_classes, of_groups = (clone(model).fit(columns(rows), one) for one in (labels, groups))
    return FairPrivatePostProcessor(of_classes, random_state=0, **options), of_groups


@pytest.mark.parametrize("blind", [False, True])
def test_scores_of_another_maker_are_decided_fairly(blind):
    rows, labels, groups = TEST
    fair, of_groups = others(level=0.95, epsilon=1.0)
    fair.set_params(group_estimator=of_groups if blind else None)
    fair.fit(X, Y, sensitive_features=GROUP)
    decided = fair.predict(rows, sensitive_features=None if blind else groups)
    before = fair.estimator.predict(rows)
    assert disparate_impact(before, sensitive_features=groups) < 0.5
    assert disparate_impact(decided, sensitive_features=groups) > 0.8
    assert (decided == labels).mean() > 0.7
    assert fair.privacy_spent_.epsilon == pytest.approx(1.0)
    assert len(fair.frontier_) == 21
    if not blind:
        with pytest.raises(ValueError, match="sensitive_features"):
            fair.predict(rows)


def test_a_post_processor_reads_tables_as_its_estimator_does():
    fair, _ = others(lambda rows: pd.DataFrame(rows).add_prefix("x"), epsilon=3.0)
    table = pd.DataFrame(X).add_prefix("x")
    decided = fair.fit(table, Y, sensitive_features=GROUP).predict(table, sensitive_features=GROUP)
    assert disparate_impact(decided, sensitive_features=GROUP) > 0.7


def test_a_post_processor_refuses_what_it_cannot_use_and_charges_nothing():
    budget = PrivacyBudget(1.0, 1e-5)
    fair, of_groups = others(budget=budget)
    with pytest.raises(NotFittedError):
        clone(fair).set_params(estimator=LogisticRegression()).fit(X, Y, sensitive_features=GROUP)
    with pytest.raises(ValueError, match="its classes_"):
        fair.set_params(group_estimator=of_groups).fit(
            X, Y, sensitive_features=np.where(GROUP == 1, "a", "b")
        )
    with pytest.raises(ValueError, match="classes"):
        fair.set_params(group_estimator=None).fit(X, Y + 7, sensitive_features=GROUP)
    assert len(budget.history()) == 0


WORDS = np.array(["denied", "approved"])  # the favorable one comes first in sorted order


@pytest.fixture(scope="module")
def words():
    X, y, groups = make_biased_classification(20_000, random_state=5)
    return X, WORDS[y * (RNG.random(len(y)) < 0.75)], groups  # few are approved


@pytest.mark.parametrize("kind", ["classifier", "post-processor"])
def test_the_favorable_class_decides_which_rates_are_compared(words, kind):
    X, y, groups = words
    rule = {"level": 0.9, "epsilon": 10.0, "random_state": 0}
    make = {
        "classifier": lambda **more: FairPrivateClassifier(**rule, **more),
        "post-processor": lambda **more: FairPrivatePostProcessor(
            LogisticRegression().fit(X[:2000], y[:2000]), **rule, **more
        ),
    }[kind]
    impacts = {}
    for label in ("approved", "denied"):
        fitted = make(pos_label=label).fit(X, y, sensitive_features=groups)
        assert fitted.pos_label_ == label
        decided = fitted.predict(X, sensitive_features=groups)
        impacts[label] = [
            disparate_impact(decided, sensitive_features=groups, pos_label=of)
            for of in ("approved", "denied")
        ]
        level = fitted.frontier_.set_index("level")["disparate_impact"]
        assert level[0.9] == pytest.approx(0.9, abs=0.05)
    assert impacts["approved"][0] == pytest.approx(0.9, abs=0.04)
    assert impacts["denied"][1] == pytest.approx(0.9, abs=0.04)
    # Few are approved, so alike rates of denials leave those of approvals apart.
    assert impacts["denied"][0] < 0.85


def test_a_favorable_class_that_must_be_assumed_is_told_before_the_charge(words):
    X, y, groups = (part[:300] for part in words)
    budget = PrivacyBudget(10.0)
    with pytest.warns(FairnessWarning, match="taken to be 'denied', the second.*'approved'"):
        fitted = FairPrivateClassifier(budget=budget).fit(X, y, sensitive_features=groups)
    assert fitted.pos_label_ == "denied"
    with warnings.catch_warnings():
        warnings.simplefilter("error", FairnessWarning)
        with pytest.raises(FairnessWarning):
            FairPrivateClassifier(budget=budget).fit(X, y, sensitive_features=groups)
    assert budget.epsilon_spent() == pytest.approx(fitted.privacy_spent_.epsilon, rel=1e-3)


@pytest.mark.parametrize(
    ("labels", "more"),
    [
        ([0, 1], {}),
        ([-1, 1], {}),
        (WORDS, {"measure": "difference"}),
        (WORDS, {"pos_label": "approved"}),
        (WORDS, {"mechanism": "sketch"}),
        ([0, 1, 2], {}),
    ],
)
def test_nothing_is_told_where_the_favorable_class_is_known_or_does_not_matter(labels, more):
    rng = np.random.default_rng(0)
    X, y = rng.uniform(-1, 1, size=(300, 2)), np.asarray(labels)[np.arange(300) % len(labels)]
    with warnings.catch_warnings():
        warnings.filterwarnings("error", ".*favorable.*")
        FairPrivateClassifier(**more).fit(X, y, sensitive_features=np.arange(300) // 150)


@pytest.mark.parametrize(
    ("labels", "label", "message"),
    [(WORDS, "maybe", "not among the classes"), ([0, 1, 2], 1, "for two classes")],
)
def test_a_favorable_class_that_does_not_exist_is_refused_before_the_charge(labels, label, message):
    y = np.asarray(labels)[np.arange(300) % len(labels)]
    budget = PrivacyBudget(10.0)
    classifier = FairPrivateClassifier(pos_label=label, budget=budget)
    with pytest.raises(ValueError, match=message):
        classifier.fit(np.zeros((300, 2)), y, sensitive_features=np.arange(300) // 150)
    assert budget.epsilon_spent() == 0.0


def test_thresholds_that_a_programme_adds_reach_the_optimum_over_all_thresholds():
    rng = np.random.default_rng(3)
    lists = ScoreLists(np.array([0.4, 0.6]), 3, True)
    classes = rng.dirichlet(np.ones(3), 4000)
    groups = (rng.random(4000) < 0.6).astype(int)
    labels = np.array([rng.choice(3, p=p) for p in classes])
    law = law_of(lists, (classes, np.eye(2)[groups]), groups, labels, mu=1.0)
    program = RuleProgram(law, FairConstraint("equalized_odds", 0.9))
    few = program._best(np.zeros(program._linear[1].shape[:2]))
    assert program._thresholds.mean() < 0.3
    program.__dict__["_thresholds"] = np.ones_like(program._thresholds)
    whole = program._best(np.zeros(program._linear[1].shape[:2]))
    gains = program._linear[0]
    assert (gains * few.weights).sum() >= (gains * whole.weights).sum() - 1e-6
