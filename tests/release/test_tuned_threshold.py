"""The threshold: where classes are equally frequent, read off noisy statistics alone."""

import math

import numpy as np
import pytest

from skdpot._utils.validation import SecretStream
from skdpot.privacy.accounting import compose
from skdpot.privacy.events import ComposedEvent
from skdpot.release import output_tables
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


@pytest.mark.parametrize("public_classes", [False, True])
def test_the_events_are_the_releases_and_use_up_what_was_given(public_classes):
    noise, events = planned(0.5, 400, public_classes=public_classes)
    for table, event in zip((noise.coarse, noise.fine), events, strict=False):
        assert (event.sigma, event.n_steps) == (table.sigma, 1)
        assert event.sensitivity >= table.strategy.sensitivity(1, conditional=False)
    assert len(events) == 3 - public_classes
    if public_classes:
        assert noise.count is None
    else:
        assert (events[2].sigma, events[2].sensitivity) == (noise.count.sigma, 1.0)
    together = compose(ComposedEvent(events=events)).mu_without_sampling
    assert 0.4999 < together <= 0.5


def test_a_change_of_class_is_paid_where_it_shows_and_only_there():
    """All records share a histogram, in which a class does not show; only their count does.

    Two histograms, one a class, would need 1.11 times the sensitivity at 64 bins; twice the
    releases of them 1.28 times the noise of the last one.
    """
    noise, (_, measures, counts) = planned(0.5, 20_000)
    columns = noise.fine.strategy.matrix.T
    moved = max(np.linalg.norm(a - b) for a in columns for b in columns)
    assert measures.sensitivity == pytest.approx(moved, rel=1e-12)
    assert counts.sensitivity == 1.0
    by_class = noise.fine.strategy.sensitivity(1, conditional=True)
    assert measures.sigma < 0.83 * math.sqrt(2) * by_class / 0.5
    public = planned(0.5, 20_000, public_classes=True)[0]
    assert public.fine.sigma < noise.fine.sigma


class WatchedLabels(np.ndarray):
    """Labels that say when they are summed."""

    def sum(self, *args, **options):
        self.calls.append(("sum",))
        return np.asarray(self).sum(*args, **options)


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
    probabilities, labels = scores(100, 0.4)
    labels = labels.view(WatchedLabels)
    labels.calls = calls
    tuned_threshold(probabilities, labels, noise, SecretStream(3))
    assert calls == [
        ("noise", noise.coarse.sigma, (1, 1, noise.coarse.strategy.n_bins)),
        ("count", 1),
        ("noise", noise.fine.sigma, (1, 1, noise.fine.strategy.n_bins)),
        ("count", 1),
        ("noise", noise.count.sigma, 1),
        ("sum",),
    ]
