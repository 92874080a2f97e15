"""Choices of marginals: their exact law, what a row can change, and what that costs."""

import itertools
import math

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from scipy.special import expit, logsumexp, ndtri
from scipy.stats import chisquare

from skdpot._utils.streams import SecretStream
from skdpot.privacy.choices import ChoiceEvent
from skdpot.privacy.events import NonPrivateEvent
from skdpot.privacy.gdp import gdp_delta
from skdpot.release.gate import record_releases, replay_releases
from skdpot.tables import choices
from skdpot.tables.choices import choice_sensitivity, release_choices
from skdpot.tables.contingency import Marginal, exact_misfits

RNG = np.random.default_rng(5)
CODES = RNG.integers(0, 2, (40, 4)).astype(np.int32)
EVERY = [
    Marginal(c, (np.arange(2),) * k) for k in (2, 3) for c in itertools.combinations(range(4), k)
]
PAIRS, TRIPLES = EVERY[:6], EVERY[6:]
PREDICTIONS = [np.full(marginal.n_cells, 40 / marginal.n_cells) for marginal in EVERY]
OFFSETS = np.round(RNG.normal(0, 4, len(EVERY)) * 16) / 16


def chosen(codes=CODES, some=PAIRS, n=1, sigma=6.0, seed=None, **options):
    predictions, offsets = PREDICTIONS[: len(some)], OFFSETS[: len(some)]
    stream, event = SecretStream(seed), NonPrivateEvent()
    return release_choices(codes, some, predictions, offsets, n, sigma, stream, event, **options)


def law(codes, some, predictions, offsets, n, sigma):
    """Probabilities of all ordered choices, one term after the other."""
    scores = exact_misfits(codes, some, predictions) - offsets
    scores = scores * math.pi / (math.sqrt(6.0) * sigma)
    found = {}
    for places in itertools.permutations(range(len(some)), n):
        left, log = list(range(len(some))), 0.0
        for place in places:
            log += scores[place] - logsumexp(scores[left])
            left.remove(place)
        found[places] = math.exp(log)
    return found


@pytest.mark.slow
@pytest.mark.parametrize(("n", "sigma"), [(1, 3.0), (2, 6.0)])
def test_choices_have_the_law_of_the_exponential_mechanism(n, sigma):
    """A false alarm has a probability of 1e-6, for each of two cases."""
    due = law(CODES, PAIRS, PREDICTIONS[:6], OFFSETS[:6], n, sigma)
    stream, event, runs = SecretStream(8), NonPrivateEvent(), 2000
    options = PREDICTIONS[:6], OFFSETS[:6], n, sigma, stream, event
    found = [release_choices(CODES, PAIRS, *options) for _ in range(runs)]
    seen = np.array([found.count(places) for places in due])
    assert seen.sum() == runs
    due = runs * np.array(list(due.values()))
    rare = due < 8
    merged = [np.append(x[~rare], x[rare].sum()) for x in (seen, due)]
    assert chisquare(*merged).pvalue > 1e-6


def test_weights_are_exact_to_the_last_bit():
    """Beside mpmath, for scores whose weights span hundreds of bits."""
    mpmath = pytest.importorskip("mpmath")
    scores, rate, bits = np.array([0, 3, 50_000, 49_000, 49_999]), 0.0123, 128
    draw = choices._ExponentialDraw(scores, rate, bits)
    with mpmath.workprec(2000):
        for place, score in enumerate(scores.tolist()):
            mantissa, shift = draw._exact[draw._kinds[place]]
            due = mpmath.exp(mpmath.mpf(rate) * (score - 50_000)) * 2 ** (128 + shift)
            assert abs(mantissa - due) <= 1.001
            assert 2**127 - 1 <= mantissa <= 2**128


@pytest.mark.parametrize("rate", [1e-4, 0.05, 2.0])
def test_sums_by_blocks_choose_as_one_sum_does(rate, monkeypatch):
    """Also where the candidates with the largest weights are closed, and others take part."""
    rng = np.random.default_rng(2)
    scores, closed = rng.integers(0, 3000, 50), rng.random((50, 50)) < 0.03

    def places(block):
        monkeypatch.setattr(choices, "_BLOCK", block)
        draw, stream = choices._ExponentialDraw(scores, rate, 100), SecretStream(5)
        while draw.is_open.any():
            yield (place := draw.next(stream))
            draw.is_open[place] = False
            draw.is_open &= ~closed[place]

    due = list(places(50))
    assert len(due) == len(set(due)) > 5
    for block in (1, 7, 49):
        assert list(places(block)) == due


def test_without_noise_the_largest_are_chosen_in_their_order():
    scores = exact_misfits(CODES, PAIRS, PREDICTIONS[:6]) - OFFSETS[:6]
    assert chosen(n=6, sigma=0.0) == tuple(np.argsort(-scores, kind="stable"))


@pytest.mark.parametrize("sigma", [0.0, 0.5, 50.0])
def test_a_forest_joins_what_is_not_joined(sigma):
    for seed in range(20):
        places = chosen(n=6, sigma=sigma, seed=seed, forest=True)
        edges = [PAIRS[place].columns for place in places]
        assert len(edges) == 3
        reached = {0}
        for _ in edges:
            reached |= {c for edge in edges if reached & set(edge) for c in edge}
        assert reached == {0, 1, 2, 3}


def test_choices_pass_the_gate_and_are_replayed():
    with record_releases() as releases:
        due = chosen(some=EVERY, n=3, sigma=30.0)
    (release,) = releases
    assert (release.kind, tuple(release.value), release.sigma) == ("choices", due, 30.0)
    assert set(release.facts) == {"marginals", "predictions", "offsets"}  # and not the scores
    with replay_releases(releases):
        assert chosen(1 - CODES, some=EVERY, n=3, sigma=30.0) == due


# --- what a neighbour changes ---------------------------------------------------------------------


@given(st.integers(0, 2**32), st.sampled_from([PAIRS, TRIPLES, EVERY]), st.sampled_from([0.3, 3.0]))
@settings(max_examples=40)
def test_no_neighbour_moves_scores_apart_further_than_charged(seed, some, spread):
    rng = np.random.default_rng(seed)
    neighbour = CODES.copy()
    neighbour[rng.integers(40)] = rng.integers(0, 2, 4)
    predictions = [m.counts(CODES) + rng.normal(0, spread, m.n_cells) for m in some]
    moved = exact_misfits(CODES, some, predictions) - exact_misfits(neighbour, some, predictions)
    assert np.ptp(moved) <= choice_sensitivity(some)


@pytest.mark.parametrize("n", [1, 2])
@pytest.mark.parametrize("sigma", [5.0, 20.0])
def test_no_neighbours_exceed_what_is_charged(n, sigma):
    """The exact profile of choices, for the worst predictions: one pair gains, the others lose."""
    neighbour = CODES.copy()
    neighbour[0] = 1 - CODES[0]
    predictions = []
    for place, marginal in enumerate(PAIRS):
        prediction = np.full(4, 10.0)
        comes, goes = marginal.cells(neighbour[:1])[0], marginal.cells(CODES[:1])[0]
        prediction[comes], prediction[goes] = (90.0, -90.0) if place % 2 else (-90.0, 90.0)
        predictions.append(prediction)
    options = PAIRS, predictions, np.zeros(6)
    moved = exact_misfits(CODES, *options[:2]) - exact_misfits(neighbour, *options[:2])
    assert np.ptp(moved) == choice_sensitivity(PAIRS) == 4.0  # attained
    level = exact_misfits(CODES, *options[:2]) - moved / 2.0  # all alike, between the neighbours
    one, other = (law(x, PAIRS, predictions, level, n, sigma) for x in (CODES, neighbour))
    p, q = (np.array(list(found.values())) for found in (one, other))
    mu = ChoiceEvent(sigma=sigma, sensitivity=choice_sensitivity(PAIRS), n_steps=n).mu
    used = 0.0
    for epsilon in np.linspace(0.0, 3.0 * mu, 40):
        exact = max(np.maximum(a - math.exp(epsilon) * b, 0).sum() for a, b in ((p, q), (q, p)))
        assert exact <= gdp_delta(epsilon, mu)
        used = max(used, exact / gdp_delta(epsilon, mu))
    assert used > 0.75


def test_the_cost_is_that_of_the_worst_test_of_any_range():
    """Probits of tests differ by at most mu, and two candidates alike come as near as one likes."""
    for ratio in (1e-3, 0.1, 1.0, 8.0):
        event = ChoiceEvent(sigma=1.0, sensitivity=ratio)
        reach = math.pi / math.sqrt(6.0) * ratio
        logits = np.linspace(-30.0, 30.0, 4001) - reach / 2
        apart = ndtri(expit(logits + reach)) - ndtri(expit(logits))
        assert apart.max() <= event.mu
        assert ratio > 0.1 or apart.max() >= event.mu * (1 - 1e-3)
