"""Sums of clipped gradients: against single records by autograd, and what one record can add."""

import weakref

import numpy as np
import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from torch import nn

from skdpot.release import gradients as noisy_sums
from skdpot.release.gradients import (
    by_jacobians,
    gradients_of_vectors,
    pulled_back_sum,
    shares_of_jacobians,
    shares_of_vectors,
)
from skdpot.release.per_sample import chain_of_layers

RNG = torch.Generator().manual_seed(11)
N_FEATURES = 5


def normal(*shape):
    return torch.empty(*shape, dtype=torch.float64).normal_(generator=RNG)


class Residual(nn.Module):
    """Not a chain: goes through torch.func."""

    def __init__(self, k):
        super().__init__()
        self.inner = nn.Linear(N_FEATURES, N_FEATURES)
        self.outer = nn.Linear(N_FEATURES, k, bias=False)

    def forward(self, rows):
        return self.outer(rows + torch.tanh(self.inner(rows)) * self.inner.bias)


def linear(k):
    return nn.Linear(N_FEATURES, k)


def mlp(k):
    return nn.Sequential(nn.Linear(N_FEATURES, 7), nn.Tanh(), nn.Linear(7, k, bias=False))


def normed(k):
    return nn.Sequential(nn.Linear(N_FEATURES, 6), nn.LayerNorm(6), nn.Tanh(), nn.Linear(6, k))


def convolutions(k):
    return nn.Sequential(
        nn.Unflatten(1, (1, N_FEATURES, 1)),
        nn.Conv2d(1, 3, (2, 1), padding=(1, 0)),
        nn.Tanh(),
        nn.Flatten(),
        nn.Linear(18, k),
    )


NETWORKS = {f.__name__: f for f in (linear, mlp, normed, convolutions, Residual)}


def single_jacobians(network, rows):
    """One record at a time, by autograd, in the network's own precision: (n, k, parameters)."""
    jacobians = []
    for row in rows:
        lines = [
            torch.autograd.grad(output, list(network.parameters()), retain_graph=True)
            for output in network(row[None])[0]
        ]
        jacobians.append(torch.stack([torch.cat([p.flatten() for p in g]) for g in lines]))
    return torch.stack(jacobians)


def flat(network, total):
    assert list(total) == list(network.parameters())
    assert {value.dtype for value in total.values()} <= {torch.float64}
    return torch.cat([value.flatten() for value in total.values()])


def test_only_residual_is_no_chain():
    chains = {name for name, make in NETWORKS.items() if chain_of_layers(make(2)) is not None}
    assert chains == set(NETWORKS) - {"Residual"}


@settings(max_examples=60, deadline=None)
@given(
    st.sampled_from(sorted(NETWORKS)),
    st.integers(1, 4),
    st.integers(1, 9),
    st.sampled_from([1, 2, 4, None]),
    st.floats(0.05, 5.0),
)
def test_sums_equal_a_loop_over_single_records(name, k, n, chunk_size, factor):
    """Loss and penalty, each clipped in its own way, from one pass."""
    network, rows = NETWORKS[name](k).double(), normal(n, N_FEATURES)
    targets, pulls = normal(n, k), normal(n, k)
    jacobians = single_jacobians(network, rows)
    losses = network(rows).detach() - targets
    norms = torch.einsum("nk,nkp->np", losses, jacobians).norm(dim=1)
    clip = factor * float(norms.median())
    bent = 0.3 * factor * float(torch.linalg.matrix_norm(jacobians, ord=2).median())

    def vectors(outputs, gram, records):
        torch.testing.assert_close(outputs - targets[records], losses[records])
        torch.testing.assert_close(gram, jacobians[records] @ jacobians[records].mT)
        own = (outputs - targets[records]) * shares_of_vectors(losses[records], gram, clip)[:, None]
        return own + pulls[records] * shares_of_jacobians(gram, bent)[:, None]

    total = flat(network, pulled_back_sum(network, rows, vectors, chunk_size=chunk_size))
    lengths = torch.linalg.matrix_norm(jacobians, ord=2, keepdim=True)
    expected = torch.einsum("nk,nkp->p", losses * (clip / norms).clamp(max=1)[:, None], jacobians)
    expected += torch.einsum("nk,nkp->p", pulls, jacobians * (bent / lengths).clamp(max=1))
    scale = n * (clip + bent * float(pulls.norm(dim=1).max()))
    torch.testing.assert_close(total, expected, rtol=0, atol=3e-6 * scale)


@pytest.mark.parametrize("name", NETWORKS)
def test_without_clipping_it_is_the_gradient_in_double_precision(name):
    """A network of single precision: only its own forward and backward pass round."""
    network, rows = NETWORKS[name](3), normal(40, N_FEATURES).float()
    targets = normal(40, 3)
    total = pulled_back_sum(network, rows, lambda o, _, r: o - targets[r])
    network.double()
    expected = torch.autograd.grad(
        ((network(rows.double()) - targets) ** 2).sum() / 2, list(network.parameters())
    )
    for value, gradient in zip(total.values(), expected, strict=True):
        torch.testing.assert_close(value, gradient, rtol=1e-5, atol=1e-5)


@pytest.mark.parametrize("name", NETWORKS)
def test_an_empty_batch_has_an_empty_sum(name):
    network = NETWORKS[name](2)
    total = pulled_back_sum(network, torch.zeros(0, N_FEATURES), lambda o, _, r: o)
    assert float(flat(network, total).abs().max()) == 0.0


def test_a_network_that_is_frozen_has_nothing_to_sum():
    network = linear(2).requires_grad_(False)
    assert pulled_back_sum(network, torch.zeros(3, N_FEATURES), lambda o, _, r: o) == {}


# --- what one record can add ---------------------------------------------------------------------


def clipped_by(clip):
    return lambda o, gram, r: torch.where(
        shares_of_vectors(o, gram, clip)[:, None] > 0,
        o * shares_of_vectors(o, gram, clip)[:, None],
        0.0,
    )


@settings(max_examples=80, deadline=None)
@given(
    st.sampled_from(sorted(NETWORKS)),
    st.integers(1, 4),
    st.integers(-30, 30),
    st.integers(-10, 10),
    st.integers(-3, 3),
)
def test_one_record_never_adds_more_than_the_clip(name, k, rows_exponent, weight, clip_exponent):
    """Rows, parameters and clips of sizes that single precision hardly holds."""
    network, clip = NETWORKS[name](k), 10.0**clip_exponent
    with torch.no_grad():
        for parameter in network.parameters():
            parameter *= 10.0**weight
    row = (normal(1, N_FEATURES) * 10.0**rows_exponent).float()
    joint = flat(network, pulled_back_sum(network, row, clipped_by(clip)))
    assert float(joint.norm()) <= clip
    pull = normal(1, k)
    added = flat(network, pulled_back_sum(network, row, by_jacobians(clip, pull)))
    assert float(added.norm()) <= clip * float(pull.norm())


@pytest.mark.parametrize("name", NETWORKS)
def test_steep_records_reach_the_clip(name):
    """Hardly anything is lost to the room that is left for rounding.

    Units that are saturated may leave even a large row a gradient within 0.5.
    """
    network = NETWORKS[name](2)
    row = 1e6 * normal(1, N_FEATURES).float()
    unclipped = flat(network, pulled_back_sum(network, row, lambda o, _, r: o))
    clip = min(0.5, float(unclipped.norm()) / 2)
    total = flat(network, pulled_back_sum(network, row, clipped_by(clip)))
    assert float(total.norm()) == pytest.approx(clip, rel=2e-6)
    assert float(total.norm()) < clip


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
    total = pulled_back_sum(
        Fixed(), rows, lambda o, gram, r: steep * shares_of_vectors(steep, gram, clip)[:, None]
    )
    (value,) = total.values()
    assert float(value.norm()) <= clip


@pytest.mark.parametrize("name", NETWORKS)
@pytest.mark.parametrize("broken", [float("nan"), float("inf"), -float("inf"), 3e38])
def test_records_that_are_not_finite_add_exactly_nothing(name, broken):
    network, rows = NETWORKS[name](2), normal(6, N_FEATURES).float()
    rows[4] = 0.0
    others = torch.tensor([1.0, 1.0, 1.0, 1.0, 0.0, 1.0])[:, None].double()

    def without_the_fifth(outputs, gram, records):
        return others[records] * clipped_by(1.0)(outputs, gram, records)

    expected = flat(network, pulled_back_sum(network, rows, without_the_fifth, chunk_size=3))
    rows[4] = broken
    total = flat(network, pulled_back_sum(network, rows, clipped_by(1.0), chunk_size=3))
    if torch.isfinite(network(rows[4:])).all():  # it copes with large numbers
        assert float((total - expected).norm()) <= 1.0
        return
    torch.testing.assert_close(total, expected, rtol=0, atol=1e-12)
    alone = pulled_back_sum(network, rows[4:5], clipped_by(1.0))
    assert float(flat(network, alone).abs().max()) == 0.0


def test_vectors_that_are_not_finite_add_nothing():
    network, rows = mlp(2), normal(4, N_FEATURES).float()
    bad = torch.zeros(4, 2, dtype=torch.float64)
    bad[1, 0], bad[2, 1] = float("nan"), float("inf")
    total = pulled_back_sum(network, rows, lambda o, _, r: bad[r] + o * 0 + 1.0)
    expected = pulled_back_sum(network, rows[[0, 3]], lambda o, _, r: o * 0 + 1.0)
    # Records in other places of a chunk have outputs with other last bits.
    torch.testing.assert_close(flat(network, total), flat(network, expected), rtol=0, atol=1e-5)


class Length(nn.Module):
    """Its output at 0 is 0, and its derivative there is no number."""

    def __init__(self):
        super().__init__()
        self.weight = nn.Parameter(torch.ones(N_FEATURES))

    def forward(self, rows):
        return (rows * self.weight).square().sum(1, keepdim=True).sqrt()


def test_jacobians_that_are_not_finite_add_nothing():
    """Even if the vectors do not look at them."""
    network, rows = Length(), normal(3, N_FEATURES).float()
    rows[1] = 0.0
    total = pulled_back_sum(network, rows, lambda o, _, r: torch.ones_like(o))
    others = pulled_back_sum(network, rows[[0, 2]], lambda o, _, r: torch.ones_like(o))
    torch.testing.assert_close(flat(network, total), flat(network, others), rtol=0, atol=1e-5)


@pytest.mark.parametrize("k", [1, 2, 3, 6])
def test_shares_cope_with_anything(k):
    jacobian = normal(5, k, 9)
    gram = jacobian @ jacobian.mT
    gram[1], gram[2, 0, 0], gram[3] = float("nan"), float("inf"), 0.0
    shares = shares_of_jacobians(gram, 0.7)
    norms = torch.linalg.matrix_norm(jacobian, ord=2)
    assert shares[[1, 2]].tolist() == [0.0, 0.0]
    assert float(shares[3]) == 1.0
    torch.testing.assert_close(
        shares[[0, 4]], (0.7 / norms[[0, 4]]).clamp(max=1), rtol=2e-6, atol=0
    )
    v = normal(5, k)
    v[4, 0] = float("nan")
    shares = shares_of_vectors(v, gram, 0.7)
    assert shares[[1, 2, 4]].tolist() == [0.0, 0.0, 0.0]
    assert float(shares[3]) == 1.0
    norm = float((v[0] @ jacobian[0]).norm())
    assert float(shares[0]) == pytest.approx(min(1.0, 0.7 / norm), rel=2e-6)


# --- chunks and messages ------------------------------------------------------------------------


def chunk_sizes(network, rows):
    seen = []

    def vectors(outputs, gram, records):
        seen.append(records.stop - records.start)
        return outputs * 0

    pulled_back_sum(network, rows, vectors)
    return seen


def test_chunks_follow_from_the_sizes_of_arrays():
    rows = torch.zeros(5000, N_FEATURES)
    first, *others = chunk_sizes(mlp(2), rows)
    assert (first, others[0], first + sum(others)) == (64, 2048, 5000)
    wide = nn.Sequential(nn.Linear(N_FEATURES, 4000), nn.Tanh(), nn.Linear(4000, 4))
    assert max(chunk_sizes(wide, rows[:600])) * 4 * 4000 <= noisy_sums._NUMBERS_HELD


def test_memory_does_not_grow_with_the_batch():
    """Nothing of a chunk is alive when the next but one is worked on."""
    alive, seen = [], []

    def vectors(outputs, gram, records):
        seen.extend([weakref.ref(outputs), weakref.ref(gram)])
        alive.append(sum(tensor() is not None for tensor in seen))
        return outputs * 0

    pulled_back_sum(mlp(2), torch.zeros(500, N_FEATURES), vectors, chunk_size=50)
    assert len(alive) == 10
    assert max(alive) <= 4


def test_vectors_of_another_shape_are_refused():
    with pytest.raises(ValueError, match=r"of shape \(4, 2\); it returned \(4,\)"):
        pulled_back_sum(mlp(2), torch.zeros(4, N_FEATURES), lambda o, _, r: o[:, 0])


@pytest.mark.parametrize("network", [nn.Sequential(nn.Linear(5, 6), nn.Unflatten(1, (2, 3)))])
def test_outputs_that_are_no_vectors_are_refused(network):
    with pytest.raises(ValueError, match="must map each record to a vector"):
        pulled_back_sum(network, torch.zeros(4, 5), lambda o, _, r: o)


@pytest.mark.parametrize("decoder", [lambda: nn.Linear(N_FEATURES, 3), lambda: Residual(3)])
def test_an_encoders_gradients_are_added_to_those_of_any_whole(decoder):
    """As an autoencoder with a penalty of its codes has them, also if it is no chain."""
    encoder = nn.Sequential(nn.Linear(N_FEATURES, 7), nn.LayerNorm(7), nn.Linear(7, N_FEATURES))
    whole = nn.Sequential(encoder, decoder()).double()
    rows, weights = normal(4, N_FEATURES), normal(4)
    own = gradients_of_vectors(whole, rows, by_jacobians(1e9), lambda o, _: o)
    pulled = gradients_of_vectors(encoder, rows, by_jacobians(1e9, normal(4, N_FEATURES)))
    mixed = own.plus(pulled, 0.3)
    expected = 0.7 * own.sum(weights)
    of_encoder = pulled.sum(weights)
    expected[: len(of_encoder)] += 0.3 * of_encoder
    np.testing.assert_allclose(mixed.sum(weights), expected, rtol=1e-9, atol=1e-12)
    alone = np.stack([mixed.sum(one) for one in np.eye(4)])
    np.testing.assert_allclose(mixed.gram(), alone @ alone.T, rtol=1e-9, atol=1e-12)
    np.testing.assert_allclose(mixed.inner(expected), alone @ expected, rtol=1e-9, atol=1e-12)
