"""Rounding and reduced precision must not move a sum by more than the bound."""

import math

import numpy as np
import pytest
import torch
from hypothesis import example, given, settings
from hypothesis import strategies as st
from torch import nn

from skdpot.release.gradients import by_jacobians, pulled_back_sum, shares_of_vectors
from tests.release.test_per_sample import make


def ones(outputs, rows):
    return torch.ones_like(outputs)


def summed(network, rows):
    total = pulled_back_sum(network, rows, by_jacobians(1.0), ones)
    return torch.cat([value.flatten() for value in total.values()])


def test_a_long_sum_is_kept_in_double_precision():
    """Other records that bring the sum to a power of two would round one record's share up."""
    network = nn.Linear(1, 1, bias=False)
    before = torch.ones(2**14 + 64)
    pair = torch.zeros(128)
    pair[0], pair[64] = 1.1 * 2.0**-10, -0.9 * 2.0**-10
    others = torch.cat([before, pair.repeat(200)])

    def total(first):
        return summed(network, torch.cat([torch.tensor([first]), others])[:, None])

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
                sums.append(summed(network, rows))
        assert torch.get_float32_matmul_precision() == (
            "medium" if setting == "medium" else precision
        )
    finally:
        torch.set_float32_matmul_precision(precision)
    assert float((sums[0] - sums[1]).norm()) == pytest.approx(2, abs=1e-4)


SIZES = [0.0, 1e-45, 1e-38, 1e-23, 1e-11, 1.0, 1e11, 1e19, 3e38, math.inf, math.nan]


NETWORKS = ("linear", "norms", "convolutions", "residual")
SIZES += [1e-170, 1e170, 1e308]


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

    def of_loss(outputs, gram, _):
        shares = shares_of_vectors(outputs, gram, clip)[:, None]
        return torch.where(shares > 0, outputs * shares, 0.0)

    bounded = torch.from_numpy(rng.normal(size=(1, 4)))
    for bound, vectors in (
        (clip, (by_jacobians(clip), lambda *_: pulls)),
        (clip, (of_loss,)),
        (clip * float(bounded.norm()), (by_jacobians(clip, bounded),)),
    ):
        total = pulled_back_sum(network, record, *vectors)
        entries = [float(entry) for value in total.values() for entry in value.flatten()]
        assert all(map(math.isfinite, entries))
        assert math.hypot(*entries) <= bound
