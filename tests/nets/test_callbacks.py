"""skorch's callbacks: they work as its users expect, and nothing without noise reaches them."""

import gc
import types

import numpy as np
import pytest
import torch
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
from skdpot.release.release import record_releases

pytestmark = pytest.mark.filterwarnings("ignore:.*hides the distributions")

RNG = np.random.default_rng(5)
X = RNG.uniform(-1, 1, (300, 4)).round(7)
Y = (X[:, 0] > 0).astype(int)
GROUPS = np.arange(300) % 2


def autoencoder(**options):
    given = {"bounds": (-1, 1), "mechanism": DPSGD(4)}
    return PrivateSWAutoencoder(2, **given | options)


def classifier(mechanism=None, **options):
    return FairPrivateClassifier(mechanism=mechanism or SketchedOutputs(4), **options)


FITS = {
    "autoencoder": lambda **more: autoencoder(**more).fit(X),
    "prior": lambda **more: autoencoder(penalty="prior", **more).fit(X),
    "generator": lambda **more: DPSlicedGenerator(
        Gradient(), bounds=(-1, 1), n_steps=4, **more
    ).fit(X),
    "sketch": lambda **more: classifier(**more).fit(X, Y, sensitive_features=GROUPS),
    "ranks": lambda **more: classifier(RankedOutputs(4), **more).fit(
        X, Y, sensitive_features=GROUPS
    ),
}


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

    def look(self, net, given):
        self.calls += 1
        for array in reachable([vars(net), *given.values()]):
            # Single entries of large noisy arrays can coincide with a row's.
            if array.dtype.kind == "f" and np.isin(array.ravel(), VALUES).sum() > array.size / 4:
                self.found.append(array.shape)
        self.sizes |= {len(array) for array in reachable([given.get("batch")])}

    def on_train_begin(self, net, **given):
        self.look(net, given)

    def on_batch_begin(self, net, **given):
        self.look(net, given)

    def on_grad_computed(self, net, named_parameters, **given):
        self.look(net, given | {"gradients": [p for _, p in named_parameters]})

    def on_batch_end(self, net, **given):
        assert torch.isnan(given["loss"])
        assert given["y_pred"] is None
        self.look(net, given)

    def on_epoch_end(self, net, **given):
        self.look(net, given)


@pytest.mark.parametrize("name", FITS)
def test_a_callback_that_looks_at_everything_finds_no_row_and_no_batch(name):
    """Rows are nowhere that attributes and arguments lead to."""
    spy = Spy()
    assert reachable([[X], {"a": (X,)}, lambda X=X: X])  # it would be found
    FITS[name](callbacks=[spy])
    assert spy.calls == 1 + 4 * 4
    assert spy.found == []
    assert spy.sizes == {1}


@pytest.mark.parametrize("name", FITS)
def test_schedules_and_checkpoints_work(name, tmp_path):
    rates = []

    class Rates(Callback):
        def on_batch_begin(self, net, **kwargs):
            rates.append(net.optimizer_.param_groups[0]["lr"])

    schedule = LRScheduler(torch.optim.lr_scheduler.StepLR, step_size=1, gamma=0.5)
    every = Checkpoint(monitor=None, dirname=tmp_path, f_params="{last_epoch[epoch]}.pt")
    fitted = FITS[name](callbacks=[schedule, ("saved", every), Rates()])
    assert np.allclose(np.array(rates) / rates[0], [1, 0.5, 0.25, 0.125])
    assert {p.name for p in tmp_path.glob("?.pt")} == {"1.pt", "2.pt", "3.pt", "4.pt"}
    saved = torch.load(tmp_path / "4.pt")
    if hasattr(fitted, "encoder_"):
        network = torch.nn.Sequential(fitted.encoder_, fitted.decoder_)
    else:
        network = fitted.network_ if hasattr(fitted, "network_") else fitted.module_
    for key, value in network.state_dict().items():
        torch.testing.assert_close(saved[key].to(value.dtype), value)


@pytest.mark.parametrize("name", FITS)
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
        FITS[name](callbacks=[callback], budget=budget)
    assert len(budget.history()) == 0


@pytest.mark.parametrize("name", FITS)
def test_a_callback_that_stops_leaves_nothing_that_passes_for_fitted(name, monkeypatch):
    class Stop(Callback):
        def on_epoch_end(self, net, **kwargs):
            if len(net.history) == 2:
                raise KeyboardInterrupt

    budget, fits = PrivacyBudget(5.0), []

    def watched(self, *args, **options):
        fits.append(self)
        return fit(self, *args, **options)

    kind = {"generator": DPSlicedGenerator, "sketch": FairPrivateClassifier}.get(
        name.replace("ranks", "sketch"), PrivateSWAutoencoder
    )
    fit = kind.fit
    monkeypatch.setattr(kind, "fit", watched)
    with pytest.raises(KeyboardInterrupt):
        FITS[name](callbacks=[Stop()], budget=budget)
    if kind is PrivateSWAutoencoder:
        assert fits[0].n_steps_ < 4  # the finished steps stay, and say how many they are
    else:
        assert not any(key.endswith("_") for key in vars(fits[0]))
    assert len(budget.history()) == 1


@pytest.mark.parametrize("name", FITS)
@pytest.mark.parametrize("number", [0, 1, 2])
def test_a_callback_cannot_have_a_step_that_was_not_charged(name, number):
    """Not even one before which outputs are released: each would be another release."""

    class Again(Callback):
        def on_epoch_end(self, net, **kwargs):
            if len(net.history) == 2:
                net.train_step(np.array([number]))

    with record_releases() as releases, pytest.raises(RuntimeError, match="training failed"):
        FITS[name](callbacks=[Again()])
    assert sum(release.kind == "gradient" for release in releases) <= 3


@pytest.mark.parametrize("name", FITS)
def test_the_progress_bar_shows_steps_without_losses_and_speed(name, capsys):
    FITS[name](verbose=1)
    shown = capsys.readouterr()
    assert shown.out == ""
    assert "4/4" in shown.err
    assert not any(word in shown.err for word in ("loss", "it/s", "s/it", "."))
