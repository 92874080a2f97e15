"""Fair and private predictors: attributes, pickles, texts, errors hold nothing without noise."""

import contextlib
import math
import warnings

import numpy as np
import pytest
from torch import nn

from skdpot import FairPrivateClassifier, FairPrivateRegressor, PrivacyBudget
from skdpot.nets import training
from tests.flat_options import made

pytestmark = pytest.mark.filterwarnings(  # few rows
    "ignore:.*hides the distributions:skdpot.exceptions.FairnessWarning"
)

RNG = np.random.default_rng(8128)
N, N_STEPS = 317, 4
CANARY = np.array([0.123456789, -0.98765432, 0.31415926])
X = RNG.uniform(-1, 1, (N, 3))
X[17] = CANARY
GROUP = RNG.permutation(np.repeat(["a", "b"], [200, 117]))
LABELS = (X[:, 0] + 0.5 * (GROUP == "a") + 0.3 * RNG.normal(size=N) > 0.2).astype(int)
TARGETS = np.c_[X[:, 0] + X[:, 1], X[:, 2]]
TARGETS[17] = (0.271828182, -0.577215664)

CASES = {
    "sketch": (FairPrivateClassifier, LABELS, {"tune_threshold": True}),
    "odds": (FairPrivateClassifier, LABELS, {"fairness": "equalized_odds"}),
    "ranks": (FairPrivateClassifier, LABELS, {"mechanism": "ranks", "tune_threshold": True}),
    "regression": (FairPrivateRegressor, TARGETS, {"target_bounds": (-3, 3), "n_projections": 3}),
    "private bounds": (FairPrivateRegressor, TARGETS, {"mechanism": "ranks", "n_projections": 3}),
}


def estimator(case, **changes):
    kind, _, options = CASES[case]
    # Nearly all records in every batch: for Poisson batches there is a closed form at 1.
    fraction = 0.9 if "mechanism" in options else 1.0
    common = {"n_steps": N_STEPS, "n_releases": 2, "module": "mlp", "batch_fraction": fraction}
    return made(kind, **(common | options | changes))


def fit(case, **changes):
    with warnings.catch_warnings():
        warnings.filterwarnings("ignore", "Private bounds")
        return estimator(case, **changes).fit(X, CASES[case][1], sensitive_features=GROUP)


@pytest.mark.parametrize("case", ["sketch", "ranks", "regression"])
def test_the_progress_bar_shows_steps_and_no_speed(case, capsys):
    fit(case, verbose=1)
    shown = capsys.readouterr()
    assert shown.out == ""
    assert f"{N_STEPS}/{N_STEPS}" in shown.err
    assert not any(word in shown.err for word in ("loss", "it/s", "s/it", "."))


@pytest.mark.parametrize("case", ["sketch", "ranks", "regression"])
def test_the_history_of_training_holds_steps_and_rates(case, monkeypatch):
    """skorch writes losses and batch sizes down for whoever asks: here there are none."""
    nets = []
    loop = training._SteppedNet.fit_loop

    def spy(self, *args, **options):
        nets.append(self)
        return loop(self, *args, **options)

    monkeypatch.setattr(training._SteppedNet, "fit_loop", spy)
    fit(case)
    (net,) = nets
    assert len(net.history) == N_STEPS
    for number, epoch in enumerate(net.history, 1):
        assert epoch.pop("epoch") == number
        (batch,) = epoch.pop("batches")
        assert math.isnan(batch.pop("train_loss"))
        assert batch == {"train_batch_size": 1}
        assert set(epoch) == {"event_lr", "train_batch_count"}


def test_a_network_cannot_remember_records():
    """What it keeps beside its parameters while it trains is not what is returned."""

    class Curious(nn.Module):
        def __init__(self):
            super().__init__()
            self.layer = nn.Linear(3, 1)
            self.seen = []

        def forward(self, rows):
            with contextlib.suppress(RuntimeError):
                self.seen.append(rows.clone())
            return self.layer(rows)

    for gradient in ("sketch", "ranks"):
        given = Curious()
        fitted = made(
            FairPrivateClassifier,
            module=given,
            n_steps=2,
            n_releases=1,
            mechanism=gradient,
            batch_fraction=1.0,
        ).fit(X, LABELS, sensitive_features=GROUP)
        for network in (given, fitted.network_):
            assert all(not np.isin(X, np.asarray(rows)).any() for rows in network.seen)


# --- errors and warnings -------------------------------------------------------------------------

SECRET, NUMBER = "SECRET-2707", 123456.789


def with_entry(array, value):
    changed = np.array(array, dtype=object if isinstance(value, str) else float)
    changed[(3,) + (0,) * (changed.ndim - 1)] = value
    changed[(5,) + (0,) * (changed.ndim - 1)] = NUMBER
    return changed


BAD = {
    "NaN": ("sketch", with_entry(X, np.nan), LABELS, {}, "NaN"),
    "text": ("sketch", with_entry(X, SECRET), LABELS, {}, "cannot be read as numbers"),
    "continuous labels": ("sketch", X, with_entry(X[:, 0], 0.5), {}, "continuous"),
    "missing label": ("odds", X, with_entry(X[:, 0], np.nan), {}, "NaN"),
    "another label": (
        "ranks",
        X,
        np.where(np.arange(N) == 3, SECRET, "b"),
        {"classes": ["a", "b"]},
        "not among the 2 declared",
    ),
    "mixed labels": ("sketch", X, with_entry(LABELS, SECRET), {}, "mixed or missing|unknown"),
    "missing target": ("regression", X, with_entry(TARGETS, np.nan), {}, "NaN or infinity"),
    "text target": ("regression", X, with_entry(TARGETS, SECRET), {}, "must hold numbers"),
    "short targets": ("private bounds", X, TARGETS[:5], {}, "5 targets for 317 rows"),
}


@pytest.mark.parametrize("name", BAD)
def test_errors_quote_no_value_and_charge_nothing(name):
    case, rows, y, changes, text = BAD[name]
    budget = PrivacyBudget(5.0)
    refused = estimator(case, budget=budget, **changes)
    before = dict(vars(refused))
    with warnings.catch_warnings(record=True) as shown:
        warnings.simplefilter("always")
        with pytest.raises((ValueError, TypeError), match=text) as refusal:
            refused.fit(rows, y, sensitive_features=GROUP)
    said = [str(refusal.value), repr(refusal.value), *(str(w.message) for w in shown)]
    said += [repr(refusal.value.__cause__), repr(refusal.value.__context__)]
    assert not any(hidden in text for text in said for hidden in (SECRET, "123456", "1.23456"))
    assert vars(refused) == before
    assert len(budget.history()) == 0


@pytest.mark.parametrize("clip_output", [1e-40, 1e40])
def test_ranges_that_single_precision_cannot_count_in_are_refused(clip_output):
    """A fit would fail, or warn, after the charge, and for some records only."""
    budget = PrivacyBudget(5.0)
    with pytest.raises(ValueError, match="'clip_output' parameter"):
        fit("sketch", clip_output=clip_output, budget=budget)
    assert len(budget.history()) == 0


@pytest.mark.parametrize("case", CASES)
@pytest.mark.parametrize("value", [1e300, -1e38, 1e30])
def test_extreme_records_cause_no_error_and_no_warning(case, value):
    """Warnings are errors here: either would tell that such a record is there."""
    rows, y = X.copy(), CASES[case][1].copy()
    rows[3] = value
    if y.dtype.kind == "f":
        y[4] = value
    with warnings.catch_warnings():
        warnings.filterwarnings("ignore", "Private bounds")
        fitted = estimator(case).fit(rows, y, sensitive_features=GROUP)
    for parameter in fitted.network_.parameters():
        assert bool(parameter.isfinite().all())


# --- networks ------------------------------------------------------------------------------------


@pytest.mark.parametrize("case", ["odds", "ranks"])
@pytest.mark.parametrize(
    ("layer", "text"),
    [
        (nn.BatchNorm1d(3), "normalises each record by the others"),
        (nn.Softmax(dim=0), "depends on the other records"),
    ],
)
def test_layers_that_join_records_are_refused_and_charge_nothing(case, layer, text):
    budget = PrivacyBudget(3.0)
    with pytest.raises(ValueError, match=text):
        fit(case, module=nn.Sequential(layer, nn.Linear(3, 1)), budget=budget)
    assert len(budget.history()) == 0
