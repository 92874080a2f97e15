"""The threshold: where classes are equally frequent, read off noisy statistics alone."""

import math

import numpy as np
import pytest

from skdpot._utils.validation import SecretStream
from skdpot.release.output_tables import plan_threshold, tuned_threshold

RNG = np.random.default_rng(7013)


def planned(mu, n, *, public_classes=False):
    noise = plan_threshold(mu, n, public_classes=public_classes)
    return noise, noise.events


def silent(n=20_000):
    return planned(math.inf, n)[0]


def scores(n, centre, share=0.3, spread=0.2):
    """Scores of two classes, those of the second higher."""
    labels = (RNG.random(n) < share).astype(np.intp)
    return np.clip(RNG.normal(centre + spread * labels, spread), 0, 1), labels


@pytest.mark.parametrize("share", [0.05, 0.3, 0.6])
@pytest.mark.parametrize("centre", [0.1, 0.4, 0.7])
@pytest.mark.parametrize("spread", [0.01, 0.1])
def test_without_noise_as_many_are_selected_as_belong_to_the_second_class(share, centre, spread):
    """Up to what is in a bin; squeezed scores are resolved too."""
    probabilities, labels = scores(20_000, centre, share, spread)
    found = tuned_threshold(probabilities, labels, silent(), SecretStream(0))
    expected = np.quantile(probabilities, 1 - labels.mean())
    assert found == pytest.approx(expected, abs=0.03 * spread)
    assert np.mean(probabilities > found) == pytest.approx(labels.mean(), abs=0.01)


@pytest.mark.parametrize("label", [0, 1])
def test_a_single_class_still_has_a_threshold(label):
    """Declared classes may be absent, and nobody is told."""
    probabilities, labels = RNG.uniform(0.2, 0.8, 40), np.full(40, label)
    found = tuned_threshold(probabilities, labels, silent(), SecretStream(0))
    assert 0 < found < 1
    assert (found > 0.7) == (label == 0)


def test_hopeless_noise_and_extreme_scores_give_a_threshold_too():
    noise, _ = planned(1e-4, 10)
    for probabilities in (np.zeros(6), np.ones(6), np.full(6, 0.5)):
        for _ in range(20):
            found = tuned_threshold(probabilities, np.arange(6) % 2, noise, SecretStream())
            assert 0 < found < 1


# --- privacy -------------------------------------------------------------------------------------
