"""Fair and private predictors: what a fit is charged, when, and that there is nothing else."""

import functools
import math

import numpy as np
import pytest
import sklearn
import torch
from sklearn.model_selection import GridSearchCV
from sklearn.pipeline import Pipeline
from sklearn.preprocessing import FunctionTransformer
from torch import nn

from skdpot import FairPrivateClassifier, FairPrivateRegressor, PrivacyBudget
from skdpot._utils.validation import SecretStream
from skdpot.estimators import fair as fair_estimators
from skdpot.exceptions import BudgetExceededError
from skdpot.mechanisms import fair as mechanisms
from skdpot.mechanisms.fair import FairLoss, Records
from skdpot.nets import training
from skdpot.privacy.accounting import compose
from skdpot.privacy.events import ComposedEvent
from skdpot.privacy.sampling import SampledGaussianEvent
from skdpot.release import gradients as noisy_sums
from tests.flat_options import made

pytestmark = [
    pytest.mark.filterwarnings(f"ignore:{text}")
    for text in (
        ".*makes the privacy noise reproducible:skdpot.exceptions.PrivacyWarning",
        ".*hides the distributions:skdpot.exceptions.FairnessWarning",  # few rows
    )
]

RNG = np.random.default_rng(2707)
N, N_STEPS, DELTA = 300, 5, 1e-5
X = RNG.uniform(-1, 1, (N, 3))
GROUP = RNG.permutation(np.repeat(["a", "b"], [200, 100]))
LABELS = (X[:, 0] + 0.5 * (GROUP == "a") + 0.3 * RNG.normal(size=N) > 0.2).astype(int)
THREE = RNG.integers(0, 3, N)
TARGETS = np.c_[X[:, 0] + X[:, 1], X[:, 2]]

CLASSIFIERS = {
    f"{gradient}, {fairness}{', tuned' * tuned}": (
        FairPrivateClassifier,
        LABELS,
        {"mechanism": gradient, "fairness": fairness, "tune_threshold": tuned},
    )
    for gradient in ("sketch", "ranks")
    for fairness in ("demographic_parity", "equalized_odds")
    for tuned in (False, True)
}
OTHERS = {
    "one group": (FairPrivateClassifier, LABELS, {"alpha": 0.0, "tune_threshold": True}),
    "three classes, ranks": (
        FairPrivateClassifier,
        THREE,
        {"mechanism": "ranks", "n_projections": 3, "random_state": 1},
    ),
    "logits, ranks": (FairPrivateClassifier, LABELS, {"mechanism": "ranks", "clip_output": 0.3}),
    "regression": (FairPrivateRegressor, TARGETS, {"target_bounds": (-2, 2), "n_projections": 3}),
    "regression, ranks": (
        FairPrivateRegressor,
        TARGETS[:, :1],
        {"target_bounds": (-2, 2), "mechanism": "ranks"},
    ),
}
CASES = CLASSIFIERS | OTHERS
PRIVATE_BOUNDS = {
    f"{gradient}, private bounds": (FairPrivateRegressor, TARGETS, {"mechanism": gradient})
    for gradient in ("sketch", "ranks")
}


def estimator(case, **changes):
    kind, _, options = (CASES | PRIVATE_BOUNDS)[case]
    common = {"n_steps": N_STEPS, "n_releases": 3, "module": "linear", "alpha": 0.6}
    return made(kind, **(common | options | changes))


# All records in every batch: a closed form in place of loss distributions, which take a second.
QUICK = {"batch_fraction": 1.0}


def fitted(case, **changes):
    times = 20 if case in PRIVATE_BOUNDS else 1
    y = np.tile((CASES | PRIVATE_BOUNDS)[case][1].T, times).T
    rows, groups = np.tile(X, (times, 1)), np.tile(GROUP, times)
    return estimator(case, **changes).fit(rows, y, sensitive_features=groups)


def phases(event):
    return event.events if isinstance(event, ComposedEvent) else (event,)


@functools.cache
def watched(case):
    """A fit, the arguments of its sums and of its threshold, and its tables."""
    seen = {"sums": [], "tuning": [], "tables": []}
    with pytest.MonkeyPatch.context() as patch:

        def spy(owner, name, note):
            method = getattr(owner, name)

            def spied(*args, **options):
                note(*args)
                return method(*args, **options)

            patch.setattr(owner, name, spied)

        spy(mechanisms, "tuned_threshold", lambda *args: seen["tuning"].append(args[2]))
        spy(FairLoss, "ranked_vectors", lambda _, __, *args: seen["sums"].append(args))
        spy(FairLoss, "joint_vectors", lambda _, *args: seen["sums"].append(args))
        spy(mechanisms, "plan_tables", lambda *args: seen["tables"].append(args))
        return fitted(case), seen


# --- how much ------------------------------------------------------------------------------------


@pytest.mark.parametrize("case", CASES | PRIVATE_BOUNDS)
def test_epsilon_is_that_of_the_event(case):
    """All of it is used, and not more."""
    spent = watched(case)[0].privacy_spent_
    assert (spent.epsilon, spent.delta) == (1.0, DELTA)
    assert 0.97 <= compose(spent.event).epsilon(DELTA) <= 1.0


@pytest.mark.parametrize("case", ["sketch, equalized_odds, tuned", "ranks, equalized_odds, tuned"])
def test_a_budget_is_charged_once_and_never_overdrawn(case):
    budget = PrivacyBudget(1.0)
    estimator = fitted(case, budget=budget)
    assert list(budget.history()["label"]) == [type(estimator).__name__]
    assert compose(estimator.privacy_spent_.event).epsilon(DELTA) <= 1.0
    with pytest.raises(BudgetExceededError, match="left"):
        fitted(case, budget=budget)
    estimator.predict(X)
    estimator.score(X, CASES[case][1])
    assert len(budget.history()) == 1


@pytest.mark.parametrize("case", [case for case in CASES if "tuned" in case or "one" in case])
def test_the_threshold_pays_for_what_a_record_changes(case):
    """Its class too, unless that is public."""
    fit, seen = watched(case)
    (noise,) = seen["tuning"]
    events = phases(fit.privacy_spent_.event)
    for table, event in zip((noise.coarse, noise.fine), events, strict=False):
        assert event.sigma == table.sigma
        assert event.sensitivity >= table.strategy.sensitivity(1, conditional=False)
    if "equalized_odds" in case:
        assert noise.count is None
    else:
        assert noise.count is not None
        assert (events[2].sigma, events[2].sensitivity) == (noise.count.sigma, 1.0)


@pytest.mark.parametrize("case", [case for case in CASES if "ranks" not in case])
def test_poisson_sums_have_the_sensitivity_of_their_clip(case):
    """Batches have about the expected size and hold cells as they come."""
    fit, seen = watched(case)
    training = phases(fit.privacy_spent_.event)[-1]
    assert type(training) is SampledGaussianEvent
    assert training.clipped_sum
    share = 1 - fit.alpha
    # Rounding to the lattice adds at most 1/512.
    exact = 2 * share * fit.mechanism_.clip_loss
    assert exact < training.sensitivity <= exact * (1 + 1 / 511)
    assert training.rate == 0.2
    sizes = [len(batch.rows) for batch, *_ in seen["sums"]]
    assert len(set(sizes)) > 1
    assert abs(np.mean(sizes) - 60) < 5.5 * math.sqrt(N * 0.16 / N_STEPS)
    assert len(seen["sums"]) == training.n_steps == fit.n_steps_ == N_STEPS
    # Tables: one slice for two classes, otherwise those that were asked for.
    for _, n_releases, n_projections, _ in seen["tables"]:
        assert (n_releases, n_projections) == (3, 3 if case == "regression" else 1)
    assert bool(seen["tables"]) == (fit.alpha > 0)


@pytest.mark.parametrize("case", [case for case in CASES if "ranks" in case])
def test_ranked_sums_have_the_sensitivity_of_their_batches_and_directions(case):
    """(1 - alpha) 2C + alpha n' (2 / KQ) (4 r L / min n'_c), with what was really drawn."""
    fit, seen = watched(case)
    training = phases(fit.privacy_spent_.event)[-1]
    assert type(training) is SampledGaussianEvent
    odds = getattr(fit, "fairness", None) == "equalized_odds"
    groups = (GROUP == "b") + 2 * LABELS * odds
    sizes = tuple(np.bincount(groups).tolist())
    assert training.group_sizes == sizes
    assert training.batch_sizes == tuple(math.floor(0.2 * size) for size in sizes)
    widths = []
    for batch, penalty, directions in seen["sums"]:
        assert len(batch.rows) == sum(training.batch_sizes)
        assert penalty.batch_sizes == training.batch_sizes
        if case == "three classes, ranks":  # of which the widest is not the first
            widths.append(np.mean(directions.max(axis=1) - directions.min(axis=1)))
        else:
            widths.append({"logits, ranks": 0.6, "regression, ranks": 2.0}.get(case, 1.0))
    assert widths[0] < max(widths) or case != "three classes, ranks"
    moved = (
        2
        / (2 * (1 + odds))
        * 4
        * max(widths)
        * fit.mechanism_.clip_jacobian
        / min(training.batch_sizes)
    )
    expected = 2 * 0.4 * fit.mechanism_.clip_loss + 0.6 * sum(training.batch_sizes) * moved
    assert expected < training.sensitivity <= expected * (1 + 1 / 511)


# --- when ----------------------------------------------------------------------------------------

ORDER = [
    "sketch, demographic_parity, tuned",
    "ranks, demographic_parity, tuned",
    "regression, ranks",
    "sketch, private bounds",
]


@pytest.mark.parametrize("case", ORDER)
def test_the_charge_is_on_the_disk_before_noise_and_records(case, tmp_path, monkeypatch):
    budget = PrivacyBudget(5.0, ledger=tmp_path / "ledger.sqlite")
    seen = {"noise": [], "records": []}

    def watch(name, owner, method):
        original = getattr(owner, method)

        def spy(*args, **options):
            seen[name].append(len(budget.history()))
            return original(*args, **options)

        monkeypatch.setattr(owner, method, spy)

    watch("noise", SecretStream, "random_bytes")
    watch("records", Records, "take")
    watch("records", Records, "of")
    fitted(case, budget=budget, **QUICK)
    for calls in seen.values():
        assert calls
        assert set(calls) == {1}


@pytest.mark.parametrize("case", ["sketch, equalized_odds, tuned", "regression, ranks"])
def test_a_refused_fit_changes_nothing(case):
    budget = PrivacyBudget(1.0)
    first = fitted(case, budget=budget, **QUICK)
    for unchanged in (first, estimator(case, budget=budget, **QUICK)):
        before = dict(vars(unchanged))
        with pytest.raises(BudgetExceededError, match="left"):
            unchanged.fit(X[:, :2], CASES[case][1], sensitive_features=GROUP)
        assert vars(unchanged) == before
    assert len(budget.history()) == 1


@pytest.mark.parametrize("case", ["sketch, equalized_odds, tuned", "regression, ranks"])
def test_an_interrupted_fit_leaves_only_its_charge(case, monkeypatch):
    budget = PrivacyBudget(5.0)
    interrupted = estimator(case, budget=budget, **QUICK)
    before = dict(vars(interrupted))

    def stop(*_):
        raise KeyboardInterrupt

    monkeypatch.setattr(noisy_sums, "noisy_sum", stop)
    with pytest.raises(KeyboardInterrupt):
        interrupted.fit(X, CASES[case][1], sensitive_features=GROUP)
    assert vars(interrupted) == before
    assert len(budget.history()) == 1


@pytest.mark.parametrize("case", ["sketch, demographic_parity", "ranks, demographic_parity"])
def test_an_error_of_a_network_quotes_nothing_and_carries_nothing(case):
    class Lookup(nn.Linear):
        """Fails for some rows, with their values in the text."""

        def forward(self, rows):
            return super().forward(rows) + torch.zeros(4)[rows[:, :1].round().long() + 1]

    rows, budget = X.copy(), PrivacyBudget(5.0)
    rows[:, 0] = 77.125
    failing = estimator(case, module=Lookup(3, 1), budget=budget, **QUICK)
    before = dict(vars(failing))
    with pytest.raises(RuntimeError, match=r"failed with a \w+Error, of which") as caught:
        failing.fit(rows, LABELS, sensitive_features=GROUP)
    assert caught.value.__cause__ is caught.value.__context__ is None
    assert "77" not in str(caught.value)
    assert vars(failing) == before
    assert len(budget.history()) == 1
    assert failing.fit(X, LABELS, sensitive_features=GROUP).score(X, LABELS) >= 0


def test_masks_of_dropout_and_the_threshold_are_of_the_secret_stream(monkeypatch):
    seen = {}

    def keep(owner, name, note):
        original = getattr(owner, name)

        def spied(*args, **options):
            found = original(*args, **options)
            note(found, args, options)
            return found

        monkeypatch.setattr(owner, name, spied)

    keep(fair_estimators, "spawn_streams", lambda found, *_: seen.update(streams=found))
    keep(training, "train_network", lambda _, __, options: seen.update(rng=options["rng"]))
    keep(mechanisms, "tuned_threshold", lambda _, args, __: seen.update(secret=args[3]))
    module = nn.Sequential(nn.Linear(3, 8), nn.Dropout(), nn.Linear(8, 1))
    fitted("sketch, demographic_parity, tuned", module=module, **QUICK)
    streams = seen["streams"]
    assert seen["rng"] is not streams.solver
    assert seen["rng"] is not streams.public
    assert seen["secret"] is streams.secret
    assert not streams.secret.reproducible


def test_chains_are_trained_in_double_precision_and_others_as_they_are():
    for network, kind in ((nn.Linear(3, 1), torch.float64), (Bounded(3, 1), torch.float32)):
        assert Records.of(network, X, LABELS, "cpu").rows.dtype == kind
    fit = fitted("sketch, demographic_parity", **QUICK)
    assert all(p.dtype == torch.float32 for p in fit.network_.parameters())


class Bounded(nn.Linear):
    """Of a class of its own, so that nobody knows what it computes."""


@pytest.mark.parametrize("n_jobs", [1, 2])
def test_a_search_in_a_pipeline_charges_folds_times_candidates_and_the_refit(n_jobs):
    budget = PrivacyBudget(50.0)
    model = made(FairPrivateClassifier, n_steps=2, budget=budget, **QUICK)
    with sklearn.config_context(enable_metadata_routing=True):
        model.set_fit_request(sensitive_features=True)
        pipeline = Pipeline([("same", FunctionTransformer()), ("fair", model)])
        grid = {"fair__mechanism__clip_loss": [0.1, 3.0]}
        search = GridSearchCV(pipeline, grid, cv=2, n_jobs=n_jobs, error_score="raise")
        search.fit(X, LABELS, sensitive_features=GROUP)
    assert list(budget.history()["label"]) == ["FairPrivateClassifier"] * 5
    best = search.best_estimator_["fair"]
    assert best.budget is budget
    assert best.groups_.tolist() == ["a", "b"]
    clip = search.best_params_["fair__mechanism__clip_loss"]
    assert best.privacy_spent_.sensitivity == pytest.approx(2 * 0.5 * clip, rel=1 / 500)
