"""The threshold: where classes are equally frequent, read off noisy statistics alone."""

import math

import numpy as np
import pytest
from scipy import stats

from skdpot._utils.rng import SecretStream
from skdpot.nets import output_tables
from skdpot.nets import tuned_threshold as module
from skdpot.nets.output_tables import TableNoise, plan_tables
from skdpot.nets.tuned_threshold import N_TUNING_RELEASES, tuned_threshold
from skdpot.slicing.strategy import square_root_strategy

RNG = np.random.default_rng(7013)


def silent(n_bins=64):
    strategy = square_root_strategy(n_bins)
    return TableNoise(strategy=strategy, sigma=0.0, lattice=strategy.lattice, mu=math.inf)


def planned(mu, n):
    return plan_tables(mu, N_TUNING_RELEASES, 1, n, conditional=True)


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


def test_with_noise_it_is_nearly_as_good():
    """20,000 records, ten times."""
    probabilities, labels = scores(20_000, 0.2)
    noise, _ = planned(0.3, 10_000)
    for _ in range(10):
        found = tuned_threshold(probabilities, labels, noise, SecretStream())
        assert np.mean(probabilities > found) == pytest.approx(labels.mean(), abs=0.03)


def test_hopeless_noise_and_extreme_scores_give_a_threshold_too():
    noise, _ = planned(1e-4, 10)
    for probabilities in (np.zeros(6), np.ones(6), np.full(6, 0.5)):
        for _ in range(20):
            found = tuned_threshold(probabilities, np.arange(6) % 2, noise, SecretStream())
            assert 0 < found < 1


# --- privacy -------------------------------------------------------------------------------------


def test_the_event_pays_for_both_releases_and_for_a_change_of_class():
    noise, event = planned(0.5, 50)
    assert event.n_steps == N_TUNING_RELEASES == 2
    assert event.sigma == noise.sigma
    assert event.sensitivity == noise.strategy.sensitivity(1, conditional=True)
    # What all records together move by, in the other release, is less.
    assert event.sensitivity > 1.05 * noise.strategy.sensitivity(1, conditional=False)


def test_every_release_draws_its_noise_before_it_counts(monkeypatch):
    calls = []
    draw, count = output_tables.lattice_noise, output_tables.count_projections

    def draw_spy(sigma, *args, **options):
        calls.append(("noise", sigma, args[0]))
        return draw(sigma, *args, **options)

    def count_spy(*args, **options):
        calls.append(("count", options["n_classes"]))
        return count(*args, **options)

    monkeypatch.setattr(output_tables, "lattice_noise", draw_spy)
    monkeypatch.setattr(output_tables, "count_projections", count_spy)
    noise, _ = planned(0.5, 50)
    tuned_threshold(*scores(100, 0.4), noise, SecretStream(3))
    n_bins = noise.strategy.n_bins
    assert calls == [
        ("noise", noise.sigma, (2, 1, n_bins)),
        ("count", 2),
        ("noise", noise.sigma, (1, 1, n_bins)),
        ("count", 1),
    ]


def test_it_sees_the_noisy_statistics_alone(monkeypatch):
    """The same statistics give the same threshold, whatever the records are."""
    statistics = []
    counts = output_tables.noisy_counts

    def recorded(*args, **options):
        statistics.append(counts(*args, **options))
        return statistics[-1]

    def replayed(*args, **options):
        return next(again)

    noise, _ = planned(0.5, 50)
    probabilities, labels = scores(100, 0.4)
    for where in (output_tables, module):
        monkeypatch.setattr(where, "noisy_counts", recorded)
    found = tuned_threshold(probabilities, labels, noise, SecretStream(3))
    assert len(statistics) == N_TUNING_RELEASES
    again = iter(statistics)
    for where in (output_tables, module):
        monkeypatch.setattr(where, "noisy_counts", replayed)
    assert tuned_threshold(1 - probabilities, 1 - labels, noise, SecretStream()) == found


def test_thresholds_vary_as_the_noise_does():
    """Classes that scores do not tell apart: noise alone chooses.

    200 draws; a fair choice between above and below one half would raise a false alarm with
    probability 1e-6 in the two-sided binomial test.
    """
    noise, _ = planned(0.2, 200)
    probabilities, labels = RNG.random(400), np.arange(400) % 2
    probabilities[1::2] = probabilities[::2]
    probabilities[200:] = 1 - probabilities[:200]
    found = np.array(
        [tuned_threshold(probabilities, labels, noise, SecretStream()) for _ in range(200)]
    )
    assert len(np.unique(found)) > 20
    above, below = np.sum(found > 0.5), np.sum(found < 0.5)
    assert stats.binomtest(int(above), int(above + below)).pvalue > 1e-6
