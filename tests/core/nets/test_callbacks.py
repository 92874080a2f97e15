"""skorch's callbacks: they work as its users expect, and nothing without noise reaches them."""

import gc
import math
import types

import numpy as np
import pytest
import torch
from sklearn.base import clone
from skorch.callbacks import (
    Callback,
    Checkpoint,
    EarlyStopping,
    EpochScoring,
    LRScheduler,
    ProgressBar,
)

from skdpot import DPSlicedGenerator, FairPrivateClassifier, PrivacyBudget, PrivateSWAutoencoder
from skdpot.mechanisms import DPSGD, Gradient, RankedOutputs, SketchedOutputs
from skdpot.release.gate import record_releases

pytestmark = pytest.mark.filterwarnings("ignore:.*hides the distributions")

RNG = np.random.default_rng(5)
X = RNG.uniform(-1, 1, (300, 4)).round(7)
Y = (X[:, 0] > 0).astype(int)
GROUPS = np.arange(300) % 2


BOX = {"bounds": (-1, 1)}
LABELS = {"X": X, "y": Y, "sensitive_features": GROUPS}
FITS = {
    "autoencoder": (PrivateSWAutoencoder(2, bounds=(-1, 1), mechanism=DPSGD(4)), {"X": X}),
    "prior": (
        PrivateSWAutoencoder(2, bounds=(-1, 1), mechanism=DPSGD(4), penalty="prior"),
        {"X": X},
    ),
    "generator": (DPSlicedGenerator(Gradient(), bounds=(-1, 1), n_steps=4), {"X": X}),
    "sketch": (FairPrivateClassifier(mechanism=SketchedOutputs(n_steps=4)), LABELS),
    "ranks": (FairPrivateClassifier(mechanism=RankedOutputs(n_steps=4)), LABELS),
}
every_fit = pytest.mark.parametrize("name", FITS)


def made(name, **options):
    """An estimator of four steps, and its fit."""
    estimator, data = FITS[name]
    estimator = clone(estimator).set_params(**options)
    return estimator, lambda: estimator.fit(**data)


def reachable(roots):
    """Return arrays and tensors that objects lead to, but through modules, types and frames."""
    seen, found, queue = set(), [], list(roots)
    while queue:
        thing = queue.pop()
        kinds = types.ModuleType | type | types.FrameType | types.BuiltinFunctionType
        if id(thing) in seen or isinstance(thing, kinds):
            continue
        seen.add(id(thing))
        if isinstance(thing, torch.Tensor):
            found.append(thing.detach().cpu().numpy())
            queue.append(thing.grad)
        elif isinstance(thing, np.ndarray) and thing.dtype != object:
            found.append(thing)
        elif isinstance(thing, types.FunctionType):  # its globals are the module's
            queue += [thing.__closure__, thing.__defaults__, thing.__dict__]
        queue += [] if isinstance(thing, types.FunctionType) else gc.get_referents(thing)
    return found


# Rows in either precision; a global, to which nothing that the spy walks along leads.
VALUES = np.unique(np.r_[X.ravel(), X.astype(np.float32).ravel().astype(float)])


class Spy(Callback):
    """Look at everything that is handed over."""

    def __init__(self):
        self.calls, self.found, self.sizes = 0, [], set()

    def look(self, net, **given):
        self.calls += 1
        assert math.isnan(given.get("loss", math.nan))
        assert given.get("y_pred") is None
        for array in reachable([vars(net), *given.values()]):
            # Single entries of large noisy arrays can coincide with a row's.
            if array.dtype.kind == "f" and np.isin(array.ravel(), VALUES).sum() > array.size / 4:
                self.found.append(array.shape)
        self.sizes |= {len(array) for array in reachable([given.get("batch")])}

    on_train_begin = on_batch_begin = on_grad_computed = on_batch_end = on_epoch_end = look


@every_fit
def test_a_callback_that_looks_at_everything_finds_no_row_and_no_batch(name):
    """Rows are nowhere that attributes and arguments lead to."""
    spy = Spy()
    assert reachable([[X], {"a": (X,)}, lambda X=X: X])  # it would be found
    made(name, callbacks=[spy])[1]()
    assert spy.calls == 1 + 4 * 4
    assert spy.found == []
    assert spy.sizes == {1}


@every_fit
def test_schedules_checkpoints_and_the_bar_work(name, tmp_path, capsys):
    """The bar shows steps without losses and speed."""

    class Rates(Callback):
        def __init__(self):
            self.seen = []

        def on_batch_begin(self, net, **kwargs):
            self.seen.append(net.optimizer_.param_groups[0]["lr"])

    rates = Rates()
    schedule = LRScheduler(torch.optim.lr_scheduler.StepLR, step_size=1, gamma=0.5)
    every = Checkpoint(monitor=None, dirname=tmp_path, f_params="{last_epoch[epoch]}.pt")
    fitted, fit = made(name, callbacks=[schedule, ("saved", every), rates], verbose=1)
    fit()
    assert np.allclose(np.array(rates.seen) / rates.seen[0], [1, 0.5, 0.25, 0.125])
    assert {p.name for p in tmp_path.glob("?.pt")} == {"1.pt", "2.pt", "3.pt", "4.pt"}
    saved = torch.load(tmp_path / "4.pt")
    if hasattr(fitted, "encoder_"):
        network = torch.nn.Sequential(fitted.encoder_, fitted.decoder_)
    else:
        network = fitted.network_ if hasattr(fitted, "network_") else fitted.module_
    for key, value in network.state_dict().items():
        torch.testing.assert_close(saved[key].to(value.dtype), value)
    shown = capsys.readouterr()
    assert shown.out == ""
    assert "4/4" in shown.err
    assert not any(word in shown.err for word in ("loss", "it/s", "s/it", "."))


@every_fit
@pytest.mark.parametrize(
    ("callback", "text"),
    [
        (EarlyStopping(), "EarlyStopping reads losses"),
        (Checkpoint(), "Checkpoint reads losses"),
        (EpochScoring("accuracy"), "EpochScoring reads losses"),
        (LRScheduler("ReduceLROnPlateau"), "LRScheduler reads losses"),
        (ProgressBar(), "how long steps take"),
        ("progress", "got str"),
    ],
)
def test_what_needs_losses_or_times_is_refused_before_any_charge(name, callback, text):
    budget = PrivacyBudget(5.0)
    with pytest.raises((ValueError, TypeError), match=text):
        made(name, callbacks=[callback], budget=budget)[1]()
    assert len(budget.history()) == 0


class AfterTwo(Callback):
    """Do something after the second step."""

    def __init__(self, do):
        self.do = do

    def on_epoch_end(self, net, **kwargs):
        if len(net.history) == 2:
            self.do(net)


@every_fit
def test_a_callback_that_stops_leaves_nothing_that_passes_for_fitted(name):
    def stop(net):
        raise KeyboardInterrupt

    budget = PrivacyBudget(5.0)
    estimator, fit = made(name, callbacks=[AfterTwo(stop)], budget=budget)
    with pytest.raises(KeyboardInterrupt):
        fit()
    if isinstance(estimator, PrivateSWAutoencoder):
        assert estimator.n_steps_ < 4  # the finished steps stay, and say how many they are
    else:
        assert not any(key.endswith("_") for key in vars(estimator))
    assert len(budget.history()) == 1


@every_fit
@pytest.mark.parametrize("number", [0, 1, 2])
def test_a_callback_cannot_have_a_step_that_was_not_charged(name, number):
    """Not even one before which outputs are released: each would be another release."""
    again = AfterTwo(lambda net: net.train_step(np.array([number])))
    with record_releases() as releases, pytest.raises(RuntimeError, match="the fit failed"):
        made(name, callbacks=[again])[1]()
    assert sum(release.kind == "gradient" for release in releases) <= 3
