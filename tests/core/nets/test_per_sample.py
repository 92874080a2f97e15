"""Gradients of single records: against a loop of one record at a time, by autograd."""

from copy import deepcopy

import pytest
import torch
from torch import nn

from skdpot.nets.gradients import (
    by_jacobians,
    pulled_back_sum,
    shares_of_jacobians,
    shares_of_vectors,
)
from skdpot.nets.layers import ToSphere
from skdpot.nets.per_sample import chain_of_layers
from skdpot.sampling.architecture import build_networks

RNG = torch.Generator().manual_seed(7)
N_RECORDS = 7


def uniform(*shape):
    return torch.empty(*shape, dtype=torch.float64).uniform_(-1, 1, generator=RNG)


class Residual(nn.Module):
    """Not a chain, so that it takes the general route."""

    def __init__(self):
        super().__init__()
        self.inner = nn.Linear(6, 6)
        self.outer = nn.Linear(6, 4)

    def forward(self, rows):
        return self.outer(rows + torch.tanh(self.inner(rows)) * self.inner.bias)


class Scale(nn.Module):
    def __init__(self):
        super().__init__()
        self.factor = nn.Parameter(torch.ones(4))

    def forward(self, rows):
        return rows * self.factor


class Doubled(nn.Module):
    def forward(self, weight):
        return 2 * weight


def changed(change):
    """A plain network, after a change of its first layer."""
    layers = nn.Linear(6, 5), nn.Tanh(), nn.Linear(5, 4)
    change(layers[0])
    return (6,), *layers


SHARED = nn.Linear(6, 6)
# The shape of a record, and the layers.
CHAINS = {
    "linear": changed(lambda layer: None),
    "no offset": ((6,), nn.Linear(6, 4, bias=False), nn.Softplus()),
    "in place": ((6,), nn.Linear(6, 5), nn.ReLU(inplace=True), nn.Linear(5, 4)),
    "sphere": ((6,), nn.Linear(6, 4), ToSphere()),
    "sequence": (
        *((3, 2), nn.Linear(2, 3), nn.LayerNorm(3), nn.Tanh()),
        *(nn.Flatten(), nn.Linear(9, 4)),
    ),
    "norms": (
        *((6,), nn.Linear(6, 8), nn.LayerNorm(8), nn.Tanh()),
        *(nn.Unflatten(1, (4, 2)), nn.GroupNorm(2, 4), nn.Flatten(), nn.Linear(8, 4)),
    ),
    "group norm of numbers": (
        *((6,), nn.Linear(6, 8), nn.GroupNorm(2, 8), nn.Tanh()),
        *(nn.Linear(8, 4), nn.GroupNorm(2, 4)),
    ),
    "convolutions": (
        *((2, 8, 6), nn.Conv2d(2, 3, (3, 2), stride=(2, 1), padding=(1, 0)), nn.Tanh()),
        *(nn.Conv2d(3, 2, 2, dilation=2, bias=False), nn.Flatten(), nn.Linear(12, 4)),
    ),
    "strides that leave a rest": (
        *((1, 6, 8), nn.Conv2d(1, 2, 3, stride=2), nn.Flatten(), nn.Linear(12, 4)),
    ),
    "transposed convolutions": (
        *((2, 3, 2), nn.ConvTranspose2d(2, 3, 4, stride=2, padding=1), nn.Tanh()),
        nn.ConvTranspose2d(3, 1, 3, stride=2, output_padding=1, dilation=2),
        *(nn.Flatten(), nn.LazyLinear(4)),
    ),
    "nested": (
        *((6,), nn.Sequential(nn.Linear(6, 5), nn.Sequential(nn.Tanh()))),
        nn.Sequential(nn.Linear(5, 4), nn.Identity()),
    ),
}
OTHERS = {
    "residual": ((6,), Residual()),
    "own parameters": ((6,), nn.Linear(6, 4), Scale()),
    "shared layer": ((6,), SHARED, nn.Tanh(), SHARED, nn.Tanh(), nn.Linear(6, 4)),
    "frozen parameter": changed(lambda layer: layer.bias.requires_grad_(False)),
    "groups": ((2, 3, 3), nn.Conv2d(2, 4, 2, groups=2), nn.Flatten(), nn.Linear(16, 4)),
    "reflected edges": (
        *((1, 3, 3), nn.Conv2d(1, 2, 3, padding=1, padding_mode="reflect")),
        *(nn.Flatten(), nn.Linear(18, 4)),
    ),
    "parametrised": changed(
        lambda layer: nn.utils.parametrize.register_parametrization(layer, "weight", Doubled())
    ),
    "hook": changed(
        lambda layer: layer.register_forward_hook(lambda one, _, output: output * one.weight.sum())
    ),
}
ALL = CHAINS | OTHERS


def make(name):
    shape, *layers = deepcopy(ALL[name])
    network, rows = nn.Sequential(*layers).double(), uniform(N_RECORDS, *shape)
    network(rows)  # lazy layers learn their size
    return network, rows


def target_of(rows):
    return rows.flatten(1).mean(1, keepdim=True).expand(-1, 4)


def single_jacobians(network, rows):
    """One record at a time, by autograd: (n, k, parameters)."""
    trained = [p for p in network.parameters() if p.requires_grad]
    jacobians = []
    for row in rows:
        lines = [
            torch.autograd.grad(output, trained, retain_graph=True)
            for output in network(row[None])[0]
        ]
        jacobians.append(torch.stack([torch.cat([p.flatten() for p in g]) for g in lines]))
    return torch.stack(jacobians)


def flat(network, total):
    assert list(total) == [p for p in network.parameters() if p.requires_grad]
    assert {value.dtype for value in total.values()} <= {torch.float64}
    return torch.cat([value.flatten() for value in total.values()])


@pytest.mark.parametrize("architecture", ["mlp", "conv", "dcgan"])
def test_architectures_by_name_are_chains(architecture):
    """The quick route is the one that users get."""
    image = (1, 64, 64) if architecture == "dcgan" else (1, 8, 8)
    n_features = image[1] * image[2]
    pair = build_networks(architecture, n_features=n_features, image=image, latent_dim=3)
    assert chain_of_layers(nn.Sequential(*pair, nn.Tanh())) is not None


def test_all_hooks_end_the_quick_route():
    layer = nn.Linear(3, 3)
    layer.register_full_backward_pre_hook(lambda *_: None)
    assert chain_of_layers(layer) is None
    handle = nn.modules.module.register_module_forward_hook(lambda *_: None)
    try:
        assert chain_of_layers(nn.Linear(3, 3)) is None
    finally:
        handle.remove()
    assert chain_of_layers(nn.Linear(3, 3)) is not None


@pytest.mark.parametrize("chunk_size", [1, 3, None])
@pytest.mark.parametrize("name", ALL)
def test_sums_equal_a_loop_over_single_records(name, chunk_size):
    """Loss and penalty, each clipped in its own way, from one pass; some records are clipped."""
    network, rows = make(name)
    targets, pulls = target_of(rows), uniform(N_RECORDS, 4)
    jacobians = single_jacobians(network, rows)
    losses = network(rows).detach() - targets
    gradients = torch.einsum("nk,nkp->np", losses, jacobians)
    norms, lengths = gradients.norm(dim=1), torch.linalg.matrix_norm(jacobians, ord=2)
    clip, bent = float(norms.median()), float(lengths.median())

    def vectors(outputs, gram, records):
        own, there = outputs - targets[records], jacobians[records]
        torch.testing.assert_close(own, losses[records])
        torch.testing.assert_close(gram, there @ there.mT)
        own = own * shares_of_vectors(own, gram, clip)[:, None]
        return own + pulls[records] * shares_of_jacobians(gram, bent)[:, None]

    total = flat(network, pulled_back_sum(network, rows, vectors, chunk_size=chunk_size))
    shortened = jacobians * (bent / lengths).clamp(max=1)[:, None, None]
    expected = (clip / norms).clamp(max=1) @ gradients
    expected += torch.einsum("nk,nkp->p", pulls, shortened)
    scale = N_RECORDS * (clip + bent * float(pulls.norm(dim=1).max()))
    torch.testing.assert_close(total, expected, rtol=0, atol=3e-6 * scale)
    # Where the loss is the one output, its gradient is what is left of J.
    total = pulled_back_sum(
        network, rows, by_jacobians(clip), lambda o, r: o - target_of(r), chunk_size=chunk_size
    )
    expected = (clip / norms).clamp(max=1) @ gradients
    torch.testing.assert_close(flat(network, total), expected, rtol=0, atol=3e-6 * scale)
