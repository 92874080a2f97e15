"""Attacks that read what one participant of a protocol saw, and nothing else."""

import numpy as np
import pytest
from sklearn.datasets import load_digits

from skdpot.distance.fedwad import fedwad
from skdpot.distance.messages import InterpolatingMeasure, SketchRequest
from skdpot.distance.party import Party
from skdpot.distance.reconstruction import paired_differences, reconstruct
from skdpot.distance.sliced import sliced
from skdpot.distance.triangle import pairwise_triangle, triangle, triangle_to_union
from skdpot.ot.measures import gaussian_reference

DIGITS = load_digits().data[np.random.default_rng(0).permutation(1797)] / 8 - 1
ROWS = {"anna": DIGITS[:40], "bert": DIGITS[40:80], "carl": DIGITS[80:130]}


def parties(*names, **options):
    allows = ("sliced", "triangle", "fedwad")
    return [Party(name, ROWS[name], allows=allows, **options) for name in names]


def rng():
    return np.random.default_rng(3)


def wide(n_support):
    return gaussian_reference(n_support, 64, scale=5.0, rng=rng())


def check(found, *victims):
    assert sorted(found) == sorted(victims)
    for name in victims:
        assert found[name].victim == name
        assert found[name].rmse(ROWS[name]) < 1e-9


@pytest.mark.parametrize("interpolation", ["barycentric", "exact"])
@pytest.mark.parametrize("pair", [("anna", "bert"), ("carl", "anna")])
def test_the_server_of_triangle_reads_both(pair, interpolation):
    result = triangle(*parties(*pair), t=0.7, reference=wide(40), interpolation=interpolation)
    found = reconstruct(result.transcript, "server")
    check(found, *pair)
    for name in pair:
        assert found[name].rows.shape == ROWS[name].shape
    # A party has seen the reference and a distance.
    assert reconstruct(result.transcript, pair[0]) == {}


def test_a_server_without_the_reference_reads_differences():
    result = pairwise_triangle(parties("anna", "bert", "carl"), t=0.5, reference=wide(40))
    check(reconstruct(result.transcript, "server"), "anna", "bert", "carl")
    seen = result.transcript.seen_by("server")
    sent = [seen.messages(InterpolatingMeasure, sender=name)[0] for name in ("anna", "bert")]
    pairs = paired_differences(*sent, t=0.5)
    assert pairs.n_exact(ROWS["anna"], ROWS["bert"]) == 40


def test_a_secret_fraction_is_no_secret():
    result = triangle(*parties("anna", "bert"), t=0.83, disclose_t=False, rng=rng())
    found = reconstruct(result.transcript, "bert")
    check(found, "anna")
    assert found["anna"].t == pytest.approx(0.83, abs=1e-12)
    assert reconstruct(result.transcript, "server") == {}
    assert reconstruct(result.transcript, "anna") == {}


def test_a_secret_fraction_of_continuous_data_needs_to_be_known():
    rows = np.random.default_rng(0).normal(size=(30, 4))
    pair = [Party(name, rows + k, allows=("triangle",)) for k, name in enumerate("ab")]
    result = triangle(*pair, t=0.83, disclose_t=False, rng=rng())
    assert reconstruct(result.transcript, "b") == {}
    assert reconstruct(result.transcript, "b", t=0.83)["a"].rmse(rows) < 1e-12


@pytest.mark.parametrize("disclose_t", [False, True])
def test_the_buyer_locates_the_rows_of_the_sellers(disclose_t):
    # 50 points and no more than 50 features: the buyer's points span the space.
    rows = {name: X[:, 20:50] for name, X in ROWS.items()}
    names = ("carl", "anna", "bert")
    members = [Party(name, rows[name], allows=("triangle",)) for name in names]
    result = triangle_to_union(members[0], members[1:], t=0.6, disclose_t=disclose_t, rng=rng())
    found = reconstruct(result.transcript, "carl")
    for name in ("anna", "bert"):
        assert found[name].rmse(rows[name]) < 1e-9
    assert reconstruct(result.transcript, "server") == {}


@pytest.mark.parametrize("t", ["drawn", 0.5])
def test_fedwad_shows_everybody_everything(t):
    result = fedwad(*parties("anna", "bert"), t=t, n_rounds=3, rng=rng())
    check(reconstruct(result.transcript, "server"), "anna", "bert")
    for name, other, is_first in (("anna", "bert", True), ("bert", "anna", False)):
        found = reconstruct(result.transcript, name, is_first=is_first)
        assert list(found) == ["the other party"]
        assert found["the other party"].rmse(ROWS[other]) < 1e-9


def test_the_private_protocol_gives_nothing_to_these_attacks():
    request = SketchRequest.draw(64, n_projections=64, n_bins=16, bounds=(-1, 1), rng=rng())
    result = sliced(*parties("anna", "bert"), request)
    for observer in ("server", "anna", "bert", "nobody"):
        assert reconstruct(result.transcript, observer) == {}
