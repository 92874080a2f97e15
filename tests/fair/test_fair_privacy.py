"""Fair and private predictors: events and sensitivities of a fit, and who knows its randomness."""

import functools
import math

import numpy as np
import pytest
import torch
from torch import nn

from skdpot import FairPrivateClassifier, FairPrivateRegressor, PrivacyBudget
from skdpot.fair import penalty_mechanism, sketched_outputs
from skdpot.fair import predictor as fair_estimators
from skdpot.fair.fair_loss import FairLoss
from skdpot.fair.training_rows import TrainingRows
from skdpot.nets import training
from skdpot.privacy.sampling import SampledGaussianEvent
from skdpot.release.strategy import Energy
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
    "one group": (FairPrivateClassifier, LABELS, {"alpha": 0.0}),
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


def estimator(case, **changes):
    kind, _, options = CASES[case]
    common = {"n_steps": N_STEPS, "n_releases": 3, "module": "linear", "alpha": 0.6}
    return made(kind, **(common | options | changes))


# All records in every batch: a closed form in place of loss distributions, which take a second.
QUICK = {"batch_fraction": 1.0}


def fitted(case, **changes):
    return estimator(case, **changes).fit(X, CASES[case][1], sensitive_features=GROUP)


def spied(patch, owner, name, note):
    """Let `note` see what a function is given."""
    original = getattr(owner, name)

    def spy(*args, **options):
        note(*args, **options)
        return original(*args, **options)

    patch.setattr(owner, name, spy)


@functools.cache
def watched(case):
    """A fit, the arguments of its sums and of its threshold, and its tables."""
    seen = {"sums": [], "tuning": [], "tables": [], "batches": []}
    with pytest.MonkeyPatch.context() as patch:
        for owner, name, note in (
            (penalty_mechanism, "tuned_threshold", lambda *args: seen["tuning"].append(args[2])),
            (FairLoss, "ranked_vectors", lambda _, __, *args: seen["sums"].append(args)),
            (
                sketched_outputs,
                "pulled_back_sum",
                lambda *_, batch=None: seen["batches"].append(batch),
            ),
            (sketched_outputs, "plan_output_tables", lambda *args: seen["tables"].append(args)),
        ):
            spied(patch, owner, name, note)
        return fitted(case), seen


@pytest.mark.parametrize("case", [case for case in CASES if "tuned" in case])
def test_the_threshold_pays_for_what_a_record_changes(case):
    """Its class too, unless that is public."""
    fit, seen = watched(case)
    (noise,) = seen["tuning"]
    events = fit.privacy_spent_.event.phases
    for table, event in zip((noise.coarse, noise.fine), events, strict=False):
        assert event.sigma == table.sigma
        assert event.sensitivity >= table.strategy.sensitivity(Energy.unlimited(1))
    if "equalized_odds" in case:
        assert noise.count is None
    else:
        assert noise.count is not None
        assert (events[2].sigma, events[2].sensitivity) == (noise.count.sigma, 1.0)


@pytest.mark.parametrize("case", [case for case in CASES if "ranks" not in case])
def test_poisson_sums_have_the_sensitivity_of_their_clip(case):
    """Batches have about the expected size and hold cells as they come, at as many places."""
    fit, seen = watched(case)
    training = fit.privacy_spent_.event.phases[-1]
    assert type(training) is SampledGaussianEvent
    assert training.clipped_sum
    share = 1 - fit.mechanism_.alpha
    # Rounding to the lattice adds at most 1/512.
    exact = 2 * share * fit.mechanism_.clip_gradient
    assert exact < training.sensitivity <= exact * (1 + 1 / 511)
    assert training.rate == 0.2
    assert len({batch.shape for batch in seen["batches"]}) == 1
    sizes = [np.sum(batch >= 0) for batch in seen["batches"]]
    assert len(set(sizes)) > 1
    assert abs(np.mean(sizes) - 60) < 5.5 * math.sqrt(N * 0.16 / N_STEPS)
    assert len(sizes) == training.n_steps == fit.n_steps_ == N_STEPS
    # Tables: one slice for two classes, otherwise those that were asked for.
    for _, n_releases, n_projections, _ in seen["tables"]:
        assert (n_releases, n_projections) == (3, 3 if case == "regression" else 1)
    assert bool(seen["tables"]) == (fit.mechanism_.alpha > 0)


@pytest.mark.slow
@pytest.mark.parametrize("case", [case for case in CASES if "ranks" in case])
def test_ranked_sums_have_the_sensitivity_of_their_batches_and_directions(case):
    """(1 - alpha) 2C + alpha n' (4 (K - 1) / K²Q) (4 r L / min n'_c), with what was drawn."""
    fit, seen = watched(case)
    training = fit.privacy_spent_.event.phases[-1]
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
    moved = 4 * max(widths) * fit.mechanism_.clip_jacobian / min(training.batch_sizes) / (1 + odds)
    expected = 2 * 0.4 * fit.mechanism_.clip_gradient + 0.6 * sum(training.batch_sizes) * moved
    assert expected < training.sensitivity <= expected * (1 + 1 / 511)


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
    seen, streams = {}, fair_estimators.spawn_streams(None, "test")
    monkeypatch.setattr(fair_estimators, "spawn_streams", lambda *_: streams)
    spied(monkeypatch, training, "train_network", lambda *_, rng, **__: seen.update(rng=rng))
    spied(
        monkeypatch, penalty_mechanism, "tuned_threshold", lambda *args: seen.update(secret=args[3])
    )
    module = nn.Sequential(nn.Linear(3, 8), nn.Dropout(), nn.Linear(8, 1))
    fitted("sketch, demographic_parity, tuned", module=module, **QUICK)
    assert seen["rng"] not in (streams.solver, streams.public)
    assert seen["secret"] is streams.secret
    assert not streams.secret.reproducible


def test_chains_are_trained_in_double_precision_and_others_as_they_are():
    for network, kind in ((nn.Linear(3, 1), torch.float64), (Bounded(3, 1), torch.float32)):
        assert TrainingRows.of(network, X, LABELS, "cpu").rows.dtype == kind
    fit = fitted("sketch, demographic_parity", **QUICK)
    assert all(p.dtype == torch.float32 for p in fit.network_.parameters())


class Bounded(nn.Linear):
    """Of a class of its own, so that nobody knows what it computes."""
