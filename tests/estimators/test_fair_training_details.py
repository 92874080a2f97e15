"""What training must not let out or rely on, beyond its noise."""

import math

import numpy as np
import pytest
import torch
from torch import nn

from skdpot import FairPrivateClassifier, PrivacyBudget, PrivateSWAutoencoder
from skdpot.estimators import _fair_predictor, fair_classifier
from skdpot.nets import training
from tests.flat_options import made

pytestmark = pytest.mark.filterwarnings(  # few rows
    "ignore:.*hides the distributions:skdpot.exceptions.FairnessWarning"
)

RNG = np.random.default_rng(5512)
X = RNG.uniform(-1, 1, (300, 3))
Y, GROUP = RNG.integers(0, 2, 300), RNG.integers(0, 2, 300)
SECRET = 77.125


def fit(rows=X, **changes):
    options = {"n_steps": 3, "n_releases": 2}
    return made(FairPrivateClassifier, **(options | changes)).fit(rows, Y, sensitive_features=GROUP)


class Lookup(nn.Module):
    """Fails for some rows, with their values in the text."""

    def __init__(self):
        super().__init__()
        self.layer, self.table = nn.Linear(3, 1), torch.zeros(4)

    def forward(self, rows):
        return self.layer(rows) + self.table[rows[:, :1].round().long() + 1]


@pytest.fixture
def streams(monkeypatch):
    """Collect the streams of fits."""
    made = []

    def spawn(*args, original=_fair_predictor.spawn_streams):
        made.append(original(*args))
        return made[-1]

    monkeypatch.setattr(_fair_predictor, "spawn_streams", spawn)
    return made


def test_an_error_of_a_network_quotes_nothing_and_carries_nothing():
    rows, budget = X.copy(), PrivacyBudget(5.0)
    rows[7, 0] = SECRET
    with pytest.raises(RuntimeError, match=r"failed with a \w+Error, of which") as caught:
        fit(rows, module=Lookup(), budget=budget)
    assert caught.value.__cause__ is None
    assert caught.value.__context__ is None
    assert str(round(SECRET)) not in str(caught.value)
    assert len(budget.history()) == 1
    assert fit(module=Lookup()).score(X, Y) >= 0


def test_an_error_of_an_autoencoder_quotes_nothing():
    class Encoder(nn.Module):
        def __init__(self):
            super().__init__()
            self.layer, self.table = nn.Linear(3, 2), torch.zeros(3)

        def forward(self, rows):
            return self.layer(rows) + self.table[(rows[:, :1] > 0.999999).long() * 5 + 1]

    rows = np.clip(X, -0.9, 0.9)
    rows[7, 0] = 1.0
    estimator = made(
        PrivateSWAutoencoder,
        2,
        architecture=(Encoder, lambda: nn.Linear(2, 3)),
        bounds=(-1, 1),
        n_steps=40,
        normalize_codes=False,
    )
    before = vars(estimator).copy()
    with pytest.raises(RuntimeError, match="failed with a IndexError") as caught:
        estimator.fit(rows)
    assert "index" not in str(caught.value)
    assert caught.value.__context__ is None
    assert vars(estimator) == before


def test_masks_of_dropout_are_secret(monkeypatch, streams):
    seen = []

    def train(*args, rng, original=training.train_network, **kwargs):
        seen.append(rng)
        return original(*args, rng=rng, **kwargs)

    monkeypatch.setattr(training, "train_network", train)
    fit(module=nn.Sequential(nn.Linear(3, 8), nn.Dropout(), nn.Linear(8, 1)))
    assert seen[0] is not streams[0].solver
    assert seen[0] is not streams[0].public


def test_chains_are_trained_in_double_precision_and_others_as_they_are():
    predictor = made(FairPrivateClassifier)
    targets = np.zeros(300)
    assert (
        predictor._records(nn.Sequential(nn.Linear(3, 1)), X, targets).rows.dtype == torch.float64
    )
    assert predictor._records(Lookup(), X, targets).rows.dtype == torch.float32
    assert all(p.dtype == torch.float32 for p in fit().network_.parameters())


def test_a_network_that_computes_in_double_precision_itself_is_trained():
    class Double(nn.Module):
        def __init__(self):
            super().__init__()
            self.layer = nn.Linear(3, 1).double()

        def forward(self, rows):
            return self.layer(rows.double())

    assert fit(module=Double()).predict(X).shape == (300,)


@pytest.mark.filterwarnings("ignore:.*a feature beyond 100")
@pytest.mark.parametrize("scale", [1e9, 1e30])
def test_rows_beyond_what_is_resolved_are_clipped(scale):
    fitted = fit(epsilon=math.inf)
    np.testing.assert_array_equal(
        fitted.decision_function(scale * np.sign(X)), fitted.decision_function(1e8 * np.sign(X))
    )


def test_a_network_without_finite_outputs_is_told_so():
    class Logarithm(nn.Module):
        def __init__(self):
            super().__init__()
            self.layer = nn.Linear(3, 1)

        def forward(self, rows):
            return self.layer(rows.log())

    with pytest.raises(ValueError, match="not a finite number"):
        fit(module=Logarithm())


def test_the_threshold_has_noise_of_the_fit_s_own_secret_stream(monkeypatch, streams):
    seen = []

    def tuned(*args, original=fair_classifier.tuned_threshold):
        seen.append(args[3])
        return original(*args)

    monkeypatch.setattr(fair_classifier, "tuned_threshold", tuned)
    fit(tune_threshold=True)
    assert seen[0] is streams[0].secret
    assert not seen[0].reproducible
