"""Rounding and reduced precision must not move a sum by more than the bound."""

import math

import numpy as np
import pytest
import torch
from hypothesis import example, given, settings
from hypothesis import strategies as st
from torch import nn

from skdpot.release.gradients import by_jacobians, pulled_back_sum


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


def network_of(kind, dtype=torch.float32):
    """A linear layer has outer products as gradients, a convolution those that are formed."""
    layers = [nn.Linear(16, 3)] if kind == "linear" else [nn.Unflatten(1, (1, 4, 4))]
    layers += [] if kind == "linear" else [nn.Conv2d(1, 3, 4), nn.Flatten()]
    return nn.Sequential(*layers).to(dtype)


@settings(max_examples=150, deadline=None)
@example(kind="linear", double=False, exponent=-24.0, row_size=1.0, pull_size=1e-23, seed=0)
@example(kind="linear", double=False, exponent=-22.0, row_size=1.0, pull_size=1e-22, seed=0)
@given(
    kind=st.sampled_from(["linear", "conv"]),
    double=st.booleans(),
    exponent=st.floats(-30.0, 30.0),
    row_size=st.sampled_from([*SIZES, 1e-170, 1e170, 1e308]),
    pull_size=st.sampled_from([*SIZES, 1e-170, 1e170, 1e308]),
    seed=st.integers(0, 2**16),
)
def test_no_record_contributes_more_than_the_clip(
    kind, double, exponent, row_size, pull_size, seed
):
    """Whatever the magnitudes: squares of single-precision numbers underflow below 1e-23."""
    rng, clip = np.random.default_rng(seed), 10.0**exponent
    dtype = torch.float64 if double else torch.float32
    network = network_of(kind, dtype)
    with np.errstate(over="ignore"):
        row = torch.from_numpy(rng.normal(size=(1, 16)) * row_size).to(dtype)
        pull = torch.from_numpy(rng.normal(size=(1, 3)) * pull_size).to(dtype)
    total = pulled_back_sum(network, row, by_jacobians(clip), lambda *_: pull)
    entries = [float(entry) for value in total.values() for entry in value.flatten()]
    assert all(map(math.isfinite, entries))
    assert math.hypot(*entries) <= clip
