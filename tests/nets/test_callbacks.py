"""skorch's callbacks: they work as its users expect, and nothing without noise reaches them."""

import gc
import types

import numpy as np
import pytest
import torch
from sklearn import config_context
from sklearn.model_selection import GridSearchCV
from skorch.callbacks import (
    Callback,
    Checkpoint,
    EarlyStopping,
    EpochScoring,
    LRScheduler,
    ProgressBar,
)

from skdpot import FairPrivateClassifier, PrivacyBudget, PrivateSWAutoencoder
from skdpot.mechanisms import DPSGD, RankedOutputs, SketchedOutputs
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
    parameters = (
        fitted.network_.state_dict()
        if hasattr(fitted, "network_")
        else torch.nn.Sequential(fitted.encoder_, fitted.decoder_).state_dict()
    )
    for key, value in parameters.items():
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
def test_a_callback_that_stops_leaves_nothing_that_passes_for_fitted(name):
    class Stop(Callback):
        def on_epoch_end(self, net, **kwargs):
            if len(net.history) == 2:
                raise KeyboardInterrupt

    budget = PrivacyBudget(5.0)
    if name in ("sketch", "ranks"):
        estimator = classifier(callbacks=[Stop()], budget=budget)
        with pytest.raises(KeyboardInterrupt):
            estimator.fit(X, Y, sensitive_features=GROUPS)
        assert not hasattr(estimator, "network_")
    else:
        estimator = autoencoder(callbacks=[Stop()], budget=budget)
        with pytest.raises(KeyboardInterrupt):
            estimator.fit(X)
        assert estimator.n_steps_ < 4  # the finished steps stay, and say how many they are
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


def test_a_grid_over_a_parameter_of_the_mechanism():
    with config_context(enable_metadata_routing=True):
        estimator = classifier(alpha=0.7, epsilon=20.0).set_fit_request(sensitive_features=True)
        search = GridSearchCV(estimator, {"mechanism__clip_loss": [0.1, 3.0]}, cv=2)
        search.fit(X, Y, sensitive_features=GROUPS)
    best = search.best_estimator_
    assert best.mechanism_.clip_loss == search.best_params_["mechanism__clip_loss"]
    share = 1 - 0.7
    event = best.privacy_spent_.sensitivity
    assert event == pytest.approx(2 * share * best.mechanism_.clip_loss, rel=1 / 500)
