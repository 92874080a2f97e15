"""Fair and private predictors: attributes, pickles, texts, errors hold nothing without noise."""

import contextlib
import functools
import io
import pickle
import warnings

import joblib
import numpy as np
import pytest
import torch
from torch import nn

from skdpot import FairPrivateClassifier, FairPrivateRegressor, PrivacyBudget
from skdpot.estimators import fair_classifier
from skdpot.nets import anchors, fair_loss, output_tables, training
from skdpot.nets.fair_loss import FairLoss, Records
from tests.estimators.reachable import reachable

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
    "ranks": (FairPrivateClassifier, LABELS, {"gradient": "ranks", "tune_threshold": True}),
    "regression": (FairPrivateRegressor, TARGETS, {"target_bounds": (-3, 3), "n_slices": 3}),
    "private bounds": (FairPrivateRegressor, TARGETS, {"gradient": "ranks", "n_slices": 3}),
}


def estimator(case, **changes):
    kind, _, options = CASES[case]
    # Nearly all records in every batch: for Poisson batches there is a closed form at 1.
    fraction = 0.9 if "gradient" in options else 1.0
    common = {"n_steps": N_STEPS, "n_releases": 2, "module": "mlp", "batch_fraction": fraction}
    return kind(**(common | options | changes))


def fit(case, **changes):
    with warnings.catch_warnings():
        warnings.filterwarnings("ignore", "Private bounds")
        return estimator(case, **changes).fit(X, CASES[case][1], sensitive_features=GROUP)


def numbers(value):
    """Arrays that are found in what a function was given or returned."""
    if isinstance(value, torch.Tensor):
        yield value.detach().numpy().copy()
    elif isinstance(value, np.ndarray):
        yield value.copy()
    elif isinstance(value, dict):
        for entry in value.values():
            yield from numbers(entry)
    elif isinstance(value, (list, tuple)):
        for entry in value:
            yield from numbers(entry)
    elif isinstance(value, Records):
        yield from numbers((value.rows, value.targets))
    elif isinstance(value, anchors.Anchors):
        yield from numbers((value.values, value.pulls))


@functools.cache
def watched(case):
    """A fit, and the arrays without noise that it has worked with."""
    hidden = {}
    with pytest.MonkeyPatch.context() as patch:

        def spy(owner, name, *, given=(), returned=True):
            method = getattr(owner, name)

            def spied(*args, **options):
                result = method(*args, **options)
                kept = [args[i] for i in given] + ([result] if returned else [])
                hidden.setdefault(name, []).extend(numbers(kept))
                return result

            patch.setattr(owner, name, spied)

        spy(output_tables, "count_projections", given=(0,))
        spy(FairLoss, "ranked_sum", given=(2,))
        spy(FairLoss, "anchored_sum", given=(2, 3))
        spy(Records, "take", given=(1,))
        spy(fair_loss, "record_outputs")
        spy(fair_classifier, "tuned_threshold", given=(0, 1), returned=False)
        return fit(case, budget=PrivacyBudget(1.0)), hidden


def stored(fitted):
    buffer = io.BytesIO()
    joblib.dump(fitted, buffer)
    return [pickle.dumps(fitted, protocol=p) for p in range(6)] + [buffer.getvalue()]


def forms(array):
    """Bytes of an array in the types that a program might keep it in."""
    kinds = [np.float64, np.float32]
    if array.dtype.kind in "biu":
        kinds += [np.int64, np.int32, np.uint8]
    for kind in kinds:
        yield array.astype(kind).tobytes()
    if array.dtype.kind == "f" and array.size == 1:  # as Python keeps a number
        yield array.astype(">f8").tobytes()
        yield repr(float(array.item())).encode()


@pytest.mark.parametrize("case", CASES)
def test_no_array_without_noise_is_in_a_pickle(case):
    """Outputs, anchors, sums, counts, batches, labels: any eight numbers in a row would be seen."""
    fitted, hidden = watched(case)
    sums = "ranked_sum" if "gradient" in CASES[case][2] else "anchored_sum"
    assert len(hidden[sums]) > N_STEPS
    assert hidden["take"]
    contents = stored(fitted)
    looked_for = 0
    for array in (a for arrays in hidden.values() for a in arrays):
        flat = np.ascontiguousarray(array).ravel()
        parts = [flat[k : k + 8] for k in range(0, min(len(flat), 400), 7)]
        for part in (p for p in parts if len(p) == 8 and len(np.unique(p)) > 3):
            looked_for += 1
            assert not any(form in content for form in forms(part) for content in contents)
    assert looked_for > 200


@pytest.mark.parametrize("case", CASES)
def test_no_record_loss_or_share_is_in_a_pickle(case):
    fitted, hidden = watched(case)
    outputs = torch.from_numpy(fitted.network_(torch.from_numpy(X).float()).detach().numpy())
    private = [*X[:40], *(2 * X[:40]), *TARGETS[:40], *(TARGETS[:40] / 3), CANARY]
    private += [np.array([CASES[case][1][:, 0].mean() if TARGETS is CASES[case][1] else np.pi])]
    losses = nn.functional.softplus(outputs[:, 0]) - outputs[:, 0] * torch.from_numpy(LABELS)
    private += [np.array([losses.mean()]), np.array([losses.sum()]), losses[:4].numpy()]
    private += [np.array([LABELS.mean()]), np.array([LABELS[GROUP == "a"].mean()])]
    for content in stored(fitted):
        for value in private:
            assert not any(form in content for form in forms(np.asarray(value)))
        for labels in (LABELS, LABELS == 1, GROUP == "a"):
            assert not any(form in content for form in forms(labels[:40]))


KEPT = {
    "n_features_in_", "groups_", "network_", "n_steps_", "privacy_spent_",
    "classes_", "threshold_", "target_bounds_", "_flat",
}  # fmt: skip


@pytest.mark.parametrize("case", CASES)
def test_nothing_of_the_size_of_data_or_batches_is_kept(case):
    fitted, hidden = watched(case)
    assert set(vars(fitted)) - set(fitted.get_params()) <= KEPT
    sizes = {N, 200, 117} | {len(batch) for batch in hidden["take"] if batch.ndim == 1}
    parameters = fitted.get_params(deep=False).values()
    for value in reachable(fitted).values():
        if any(value is parameter for parameter in parameters):
            continue
        if isinstance(value, (np.ndarray, torch.Tensor)):
            assert not sizes & set(value.shape)
        if isinstance(value, (list, tuple, str, bytes, dict)):
            assert len(value) not in sizes - {200, 117}
    for tensor in (*fitted.network_.parameters(), *fitted.network_.buffers()):
        assert tensor.grad is None
        assert not tensor._backward_hooks
    assert not fitted.network_.training


@pytest.mark.parametrize("case", CASES)
def test_texts_hold_public_numbers_only(case):
    fitted, hidden = watched(case)
    spent = fitted.privacy_spent_
    texts = [repr(fitted), str(fitted), fitted._repr_html_(), repr(spent), str(spent)]
    texts += [spent._repr_html_(), spent.to_frame().to_string(), repr(fitted.budget)]
    texts += [fitted.budget._repr_html_(), fitted.budget.history().to_string()]
    texts.append(repr(fitted.network_))
    secret = [*CANARY, *TARGETS[17], LABELS.mean(), LABELS[GROUP == "a"].mean()]
    sums = hidden["ranked_sum" if "gradient" in CASES[case][2] else "anchored_sum"]
    secret += [np.linalg.norm(total) for total in sums[:20]]
    for text in texts:
        assert not any(f"{abs(number):.6f}"[:7] in text for number in secret)


@pytest.mark.parametrize("case", ["sketch", "ranks", "regression"])
def test_the_progress_bar_shows_steps_and_no_speed(case, capsys):
    fit(case, verbose=1)
    shown = capsys.readouterr()
    assert shown.out == ""
    assert f"{N_STEPS}/{N_STEPS}" in shown.err
    assert not any(word in shown.err for word in ("loss", "it/s", "s/it", "."))


@pytest.mark.parametrize("case", ["sketch", "ranks", "regression"])
def test_the_history_of_training_is_empty(case, monkeypatch):
    """skorch writes losses and batch sizes down for whoever asks."""
    nets = []
    loop = training._SteppedNet.fit_loop

    def spy(self, *args, **options):
        nets.append(self)
        return loop(self, *args, **options)

    monkeypatch.setattr(training._SteppedNet, "fit_loop", spy)
    fit(case)
    (net,) = nets
    for epoch in net.history:
        assert set(epoch) <= {"epoch", "batches", "dur"}
        assert set().union(*epoch["batches"]) <= {"event_lr"}


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
        fitted = FairPrivateClassifier(
            module=given, n_steps=2, n_releases=1, gradient=gradient, batch_fraction=1.0
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
