"""Losses of training: told at epsilon = inf, and never with privacy."""

import math

import numpy as np
import pytest

from skdpot import FairPrivateClassifier, FairPrivateRegressor, PrivateSWAutoencoder
from skdpot.datasets import make_biased_classification
from skdpot.mechanisms import DPSGD, CodeParity, PriorPenalty, RankedOutputs, SketchedOutputs

pytestmark = [
    pytest.mark.filterwarnings("ignore::skdpot.exceptions.PrivacyWarning"),
    pytest.mark.filterwarnings("ignore::skdpot.exceptions.FairnessWarning"),
]
X, Y, GROUP = make_biased_classification(1500, random_state=0)
STEPS = 40
CODES = {"latent_dim": 2, "bounds": (-1.5, 2.5), "mechanism": DPSGD(STEPS)}
CASES = {
    "sketch": FairPrivateClassifier(mechanism=SketchedOutputs(n_steps=STEPS, batch_fraction=1.0)),
    "ranks": FairPrivateClassifier(mechanism=RankedOutputs(n_steps=STEPS, batch_fraction=1.0)),
    "targets": FairPrivateRegressor(
        mechanism=SketchedOutputs(n_steps=STEPS, batch_fraction=1.0), target_bounds=(0, 1)
    ),
    "codes": PrivateSWAutoencoder(penalty=CodeParity(0.5), **CODES),
    "prior": PrivateSWAutoencoder(penalty=PriorPenalty(0.5), **CODES),
}


@pytest.mark.slow
@pytest.mark.parametrize("name", CASES)
def test_losses_are_told_where_nothing_is_protected_alone(name):
    def fitted(epsilon):
        estimator = CASES[name].set_params(epsilon=epsilon, random_state=0)
        return estimator.fit(X, Y, sensitive_features=GROUP)

    told = fitted(math.inf).losses_
    assert list(told) == ["loss", "penalty"]
    assert len(told) == STEPS
    assert np.isfinite(told.to_numpy()).all()
    assert (told >= 0).all(axis=None)
    assert told["loss"].iloc[-5:].mean() < told["loss"].iloc[0]
    assert told["penalty"].iloc[1:].min() > 0
    assert fitted(100.0).losses_ is None


def test_a_public_autoencoder_tells_its_losses():
    told = PrivateSWAutoencoder(private=False, random_state=0, **CODES).fit(X).losses_
    assert told["loss"].iloc[-1] < 0.9 * told["loss"].iloc[0]
    assert (told["penalty"] == 0).all()


@pytest.mark.slow
def test_a_long_training_tells_the_losses_of_some_steps():
    mechanism = DPSGD(901, batch_size=20)
    options = CODES | {"mechanism": mechanism}
    told = PrivateSWAutoencoder(private=False, random_state=0, **options).fit(X).losses_
    assert told.index.tolist() == list(range(0, 901, 4))
