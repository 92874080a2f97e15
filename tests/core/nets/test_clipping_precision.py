"""Sums of clipped gradients: what one record can add, at any magnitude and precision."""

import math

import numpy as np
import pytest
import torch
from hypothesis import example, given, settings
from hypothesis import strategies as st
from torch import nn

from skdpot.nets.gradient_release import gradients_of_vectors
from skdpot.nets.gradients import by_jacobians, pulled_back_sum, shares_of_vectors
from tests.core.nets.test_per_sample import Residual, flat, make, uniform

NETWORKS = ("linear", "norms", "convolutions", "residual")


def single(name):
    network, rows = make(name)
    return network.float(), rows.float()


def clipped_by(clip):
    def vectors(outputs, gram, _):
        shares = shares_of_vectors(outputs, gram, clip)[:, None]
        return torch.where(shares > 0, outputs * shares, 0.0)

    return vectors


def summed(network, rows, *vectors, **options):
    return flat(network, pulled_back_sum(network, rows, *vectors, **options))


def clipped_jacobians(network, rows):
    return summed(network, rows, by_jacobians(1.0), lambda outputs, _: torch.ones_like(outputs))


def test_a_long_sum_is_kept_in_double_precision():
    """Other records that bring the sum to a power of two would round one record's share up."""
    network = nn.Linear(1, 1, bias=False)
    before = torch.ones(2**14 + 64)
    pair = torch.zeros(128)
    pair[0], pair[64] = 1.1 * 2.0**-10, -0.9 * 2.0**-10
    others = torch.cat([before, pair.repeat(200)])

    def total(first):
        return clipped_jacobians(network, torch.cat([torch.tensor([first]), others])[:, None])

    assert total(1.0).dtype == torch.float64
    assert float(total(1.0) - total(-1.0)) == pytest.approx(2, abs=1e-5)


@pytest.mark.parametrize("setting", ["plain", "autocast", "medium"])
def test_the_users_precision_does_not_reach_the_sum(setting):
    rng = np.random.default_rng(0)
    network = nn.Linear(8, 1, bias=False)
    rows = torch.from_numpy(rng.uniform(0.5, 1.5, (250, 8))).float()
    record = torch.from_numpy(rng.normal(size=8)).float()
    precision = torch.get_float32_matmul_precision()
    torch.set_float32_matmul_precision("medium" if setting == "medium" else precision)
    try:
        with torch.autocast("cpu", dtype=torch.bfloat16, enabled=setting == "autocast"):
            sums = []
            for sign in (1, -1):
                rows[0] = 3 * sign * record
                sums.append(clipped_jacobians(network, rows))
        assert torch.get_float32_matmul_precision() == (
            "medium" if setting == "medium" else precision
        )
    finally:
        torch.set_float32_matmul_precision(precision)
    assert float((sums[0] - sums[1]).norm()) == pytest.approx(2, abs=1e-4)


SIZES = [0.0, 1e-170, 1e-45, 1e-38, 1e-23, 1e-11, 1.0, 1e11, 1e19, 3e38, 1e170, 1e308]
SIZES += [math.inf, math.nan]


@pytest.mark.slow
@settings(max_examples=250, deadline=None)
@example(name="linear", double=False, exponent=-24.0, weight=0, row=1.0, pull=1e-23, seed=0)
@example(name="linear", double=False, exponent=-22.0, weight=0, row=1.0, pull=1e-22, seed=0)
@given(
    name=st.sampled_from(NETWORKS),
    double=st.booleans(),
    exponent=st.floats(-30.0, 30.0),
    weight=st.sampled_from([0, 0, -10, 10]),
    row=st.sampled_from(SIZES),
    pull=st.sampled_from(SIZES),
    seed=st.integers(0, 2**16),
)
def test_no_record_contributes_more_than_the_clip(name, double, exponent, weight, row, pull, seed):
    """Whatever the magnitudes: squares of single-precision numbers underflow below 1e-23.

    Gradients of linear layers are outer products, those of convolutions are formed.
    """
    rng, clip = np.random.default_rng(seed), 10.0**exponent
    dtype = torch.float64 if double else torch.float32
    network, rows = make(name)
    network = network.to(dtype)
    with torch.no_grad():
        for parameter in network.parameters():
            parameter *= 10.0**weight
    with np.errstate(over="ignore"):
        record = torch.from_numpy(rng.normal(size=rows[:1].shape) * row).to(dtype)
        pulls = torch.from_numpy(rng.normal(size=(1, 4)) * pull).to(dtype)

    bounded = torch.from_numpy(rng.normal(size=(1, 4)))
    for bound, vectors in (
        (clip, (by_jacobians(clip), lambda outputs, _: pulls.expand_as(outputs))),
        (clip, (clipped_by(clip),)),
        (clip * float(bounded.norm()), (by_jacobians(clip, bounded),)),
    ):
        entries = summed(network, record, *vectors).tolist()
        assert all(map(math.isfinite, entries))
        assert math.hypot(*entries) <= bound


@pytest.mark.parametrize("name", NETWORKS)
def test_steep_records_reach_the_clip(name):
    """Hardly anything is lost to the room that is left for rounding.

    Units that are saturated may leave even a large row a gradient within 0.5.
    """
    network, rows = single(name)
    row = 1e6 * rows[:1]
    clip = min(0.5, float(summed(network, row, lambda o, _, r: o).norm()) / 2)
    added = float(summed(network, row, clipped_by(clip)).norm())
    assert clip * (1 - 2e-6) <= added < clip


@pytest.mark.parametrize("exponent", [-8, -10, -12, -14])
def test_cancellation_in_the_norm_hides_nothing(exponent):
    """Two outputs that are nearly the same: v' G v is the difference of large numbers."""
    near = 10.0**exponent
    rows = torch.ones(1, 3, dtype=torch.float64)
    jacobian = torch.tensor([[1.0, 1.0, 1.0], [1.0, 1.0, 1.0 + near]], dtype=torch.float64)

    class Fixed(nn.Module):
        def __init__(self):
            super().__init__()
            self.weight = nn.Parameter(torch.ones(3, dtype=torch.float64))

        def forward(self, given):
            return (given * self.weight) @ jacobian.T

    steep = torch.tensor([[1e8, -1e8]], dtype=torch.float64)
    clip = 1e-9
    added = summed(Fixed(), rows, lambda _, gram, r: clipped_by(clip)(steep, gram, r))
    assert float(added.norm()) <= clip


@pytest.mark.parametrize("name", NETWORKS)
@pytest.mark.parametrize("broken", [float("nan"), float("inf"), -float("inf"), 3e38])
def test_records_that_are_not_finite_add_exactly_nothing(name, broken):
    """A sum that is not a number, or an error, would tell that the record was there.

    Finite rows whose outputs may overflow add nothing or what is clipped.
    """
    network, rows = single(name)
    rows[4] = 0.0
    kept = (torch.arange(len(rows)) != 4)[:, None].double()

    def without_the_fifth(outputs, gram, records):
        return kept[records] * clipped_by(1.0)(outputs, gram, records)

    expected = summed(network, rows, without_the_fifth, chunk_size=3)
    rows[4] = broken
    total = summed(network, rows, clipped_by(1.0), chunk_size=3)
    finite = torch.isfinite(network(rows[4:5])).all()
    if finite or math.isfinite(broken):  # what overflows depends on the order of a sum
        assert float((total - expected).norm()) <= 1.0
        assert float(summed(network, rows[4:5], clipped_by(1.0)).norm()) <= 1.0
        return
    torch.testing.assert_close(total, expected, rtol=0, atol=1e-12)
    for vectors in (clipped_by(1.0), by_jacobians(1.0, uniform(1, 4))):
        assert float(summed(network, rows[4:5], vectors).abs().max()) == 0.0


# --- chunks and messages ------------------------------------------------------------------------


def test_what_there_is_nothing_to_sum_of():
    network, rows = single("linear")
    assert not summed(network, rows[:0], lambda o, _, r: o).any()
    assert pulled_back_sum(network.requires_grad_(False), rows, lambda o, _, r: o) == {}


@pytest.mark.parametrize(
    ("layers", "vectors", "text"),
    [
        ((), lambda o, _, r: o[:, 0], r"of shape \(16, 4\); it returned \(16,\)"),
        ((nn.Unflatten(1, (2, 2)),), lambda o, _, r: o, "must map each record to a vector"),
    ],
)
def test_shapes_that_do_not_fit_are_refused(layers, vectors, text):
    network, rows = single("linear")
    with pytest.raises(ValueError, match=text):
        pulled_back_sum(nn.Sequential(network, *layers), rows, vectors)


@pytest.mark.parametrize("decoder", [lambda: nn.Linear(6, 3), Residual])
def test_an_encoders_gradients_are_added_to_those_of_any_whole(decoder):
    """As an autoencoder with a penalty of its codes has them, also if it is no chain."""
    encoder = nn.Sequential(nn.Linear(6, 7), nn.LayerNorm(7), nn.Linear(7, 6))
    whole = nn.Sequential(encoder, decoder()).double()
    rows, weights = uniform(4, 6), uniform(4)
    own = gradients_of_vectors(whole, rows, by_jacobians(1e9), lambda o, _: o)
    pulled = gradients_of_vectors(encoder, rows, by_jacobians(1e9, uniform(4, 6)))
    mixed = own.plus(pulled, 0.3)
    expected = 0.7 * own.sum(weights)
    of_encoder = pulled.sum(weights)
    expected[: len(of_encoder)] += 0.3 * of_encoder
    np.testing.assert_allclose(mixed.sum(weights), expected, rtol=1e-9, atol=1e-12)
    alone = np.stack([mixed.sum(one) for one in np.eye(4)])
    np.testing.assert_allclose(mixed.gram(), alone @ alone.T, rtol=1e-9, atol=1e-12)
    np.testing.assert_allclose(mixed.inner(expected), alone @ expected, rtol=1e-9, atol=1e-12)
