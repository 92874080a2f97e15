"""Gradients of single records: against a loop of one record at a time, by autograd."""

import pytest
import torch
from torch import nn

from skdpot.nets.training import build_networks
from skdpot.release.per_sample import ToSphere, chain_of_layers, record_jacobians
from tests.release.jacobian_sums import clipped_gradient_sum, clipped_jacobian_sum

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


def parametrised():
    network = nn.Sequential(nn.Linear(6, 5), nn.Tanh(), nn.Linear(5, 4))
    nn.utils.parametrize.register_parametrization(network[0], "weight", Doubled())
    return network


def tied():
    first = nn.Linear(6, 6)
    return nn.Sequential(first, nn.Tanh(), first, nn.Tanh(), nn.Linear(6, 4))


def frozen():
    network = nn.Sequential(nn.Linear(6, 5), nn.Tanh(), nn.Linear(5, 4))
    network[0].bias.requires_grad_(False)
    return network


CHAINS = {
    "linear": (lambda: nn.Sequential(nn.Linear(6, 5), nn.Tanh(), nn.Linear(5, 4)), (6,)),
    "no offset": (lambda: nn.Sequential(nn.Linear(6, 4, bias=False), nn.Softplus()), (6,)),
    "in place": (
        lambda: nn.Sequential(nn.Linear(6, 5), nn.ReLU(inplace=True), nn.Linear(5, 4)),
        (6,),
    ),
    "sphere": (lambda: nn.Sequential(nn.Linear(6, 4), ToSphere()), (6,)),
    "sequence": (
        lambda: nn.Sequential(
            nn.Linear(2, 3), nn.LayerNorm(3), nn.Tanh(), nn.Flatten(), nn.Linear(9, 4)
        ),
        (3, 2),
    ),
    "norms": (
        lambda: nn.Sequential(
            nn.Linear(6, 8),
            nn.LayerNorm(8),
            nn.Tanh(),
            nn.Unflatten(1, (4, 2)),
            nn.GroupNorm(2, 4),
            nn.Flatten(),
            nn.Linear(8, 4),
        ),
        (6,),
    ),
    "group norm of numbers": (
        lambda: nn.Sequential(
            nn.Linear(6, 8), nn.GroupNorm(2, 8), nn.Tanh(), nn.Linear(8, 4), nn.GroupNorm(2, 4)
        ),
        (6,),
    ),
    "convolutions": (
        lambda: nn.Sequential(
            nn.Conv2d(2, 3, (3, 2), stride=(2, 1), padding=(1, 0)),
            nn.Tanh(),
            nn.Conv2d(3, 2, 2, dilation=2, bias=False),
            nn.Flatten(),
            nn.Linear(12, 4),
        ),
        (2, 8, 6),
    ),
    "strides that leave a rest": (
        lambda: nn.Sequential(nn.Conv2d(1, 2, 3, stride=2), nn.Flatten(), nn.Linear(12, 4)),
        (1, 6, 8),
    ),
    "transposed convolutions": (
        lambda: nn.Sequential(
            nn.ConvTranspose2d(2, 3, 4, stride=2, padding=1),
            nn.Tanh(),
            nn.ConvTranspose2d(3, 1, 3, stride=2, output_padding=1, dilation=2),
            nn.Flatten(),
            nn.LazyLinear(4),
        ),
        (2, 3, 2),
    ),
    "nested": (
        lambda: nn.Sequential(
            nn.Sequential(nn.Linear(6, 5), nn.Sequential(nn.Tanh())),
            nn.Sequential(nn.Linear(5, 4), nn.Identity()),
        ),
        (6,),
    ),
}
OTHERS = {
    "residual": (Residual, (6,)),
    "own parameters": (lambda: nn.Sequential(nn.Linear(6, 4), Scale()), (6,)),
    "shared layer": (tied, (6,)),
    "frozen parameter": (frozen, (6,)),
    "groups": (
        lambda: nn.Sequential(nn.Conv2d(2, 4, 2, groups=2), nn.Flatten(), nn.Linear(16, 4)),
        (2, 3, 3),
    ),
    "reflected edges": (
        lambda: nn.Sequential(
            nn.Conv2d(1, 2, 3, padding=1, padding_mode="reflect"), nn.Flatten(), nn.Linear(18, 4)
        ),
        (1, 3, 3),
    ),
    "parametrised": (parametrised, (6,)),
}
ALL = CHAINS | OTHERS


def make(name):
    build, shape = ALL[name]
    network, rows = build().double(), uniform(N_RECORDS, *shape)
    network(rows)  # lazy layers learn their size
    return network, rows


def target_of(rows):
    return rows.flatten(1).mean(1, keepdim=True).expand(-1, 4)


def trainable(network):
    return [p for p in network.parameters() if p.requires_grad]


def one_by_one(network, rows, targets):
    """The gradient of each record's loss, |output - target|^2 / 2, as one long vector."""
    gradients = []
    for row, target in zip(rows, targets, strict=True):
        loss = ((network(row[None])[0] - target) ** 2).sum() / 2
        parts = torch.autograd.grad(loss, trainable(network))
        gradients.append(torch.cat([part.flatten() for part in parts]))
    return torch.stack(gradients)


def flat(network, total):
    assert list(total) == trainable(network)
    return torch.cat([total[p].flatten() for p in trainable(network)])


@pytest.mark.parametrize("name", ALL)
def test_chains_are_recognised(name):
    network, _ = make(name)
    assert (chain_of_layers(network) is not None) == (name in CHAINS)


@pytest.mark.parametrize("name", ALL)
def test_norms_and_sums_are_those_of_single_records(name):
    network, rows = make(name)
    weights = uniform(N_RECORDS)
    expected = one_by_one(network, rows, target_of(rows))
    jacobians = record_jacobians(network, rows, lambda o, row: o - target_of(row))
    torch.testing.assert_close(jacobians.gram()[:, 0, 0], (expected.double() ** 2).sum(1))
    sums = {}
    for part in jacobians.parts:
        sums |= dict(zip(part.parameters, part.pulled_back(weights[:, None]), strict=True))
    ordered = torch.cat([sums[p].flatten() for p in trainable(network)])
    torch.testing.assert_close(ordered, weights @ expected)


@pytest.mark.parametrize("chunk_size", [1, 3, 64])
@pytest.mark.parametrize("name", ALL)
def test_clipped_sums_equal_a_loop_of_one_record_at_a_time(name, chunk_size):
    network, rows = make(name)
    target = uniform(1, 4)
    gradients = one_by_one(network, rows, target.expand(N_RECORDS, 4))
    norms = gradients.norm(dim=1)
    clip = float(norms.median())  # some are clipped, others not
    expected = (gradients * (clip / norms).clamp(max=1.0)[:, None]).sum(0)
    total = clipped_gradient_sum(
        network, rows, lambda o, _: o - target, clip, chunk_size=chunk_size
    )
    torch.testing.assert_close(flat(network, total), expected, rtol=0, atol=1e-5 * 7 * clip)


@pytest.mark.parametrize("name", ALL)
def test_clipped_jacobians_equal_a_loop_with_singular_values(name):
    network, rows = make(name)
    vectors = uniform(N_RECORDS, 4)
    jacobians = []
    for row in rows:
        codes = network(row[None])[0]
        lines = [torch.autograd.grad(c, trainable(network), retain_graph=True) for c in codes]
        jacobians.append(torch.stack([torch.cat([p.flatten() for p in line]) for line in lines]))
    norms = [torch.linalg.matrix_norm(jacobian, ord=2) for jacobian in jacobians]
    clip = float(torch.stack(norms).median())
    parts = zip(jacobians, vectors, norms, strict=True)
    expected = sum(min(1.0, clip / float(s)) * (w @ jacobian) for jacobian, w, s in parts)
    total = clipped_jacobian_sum(network, rows, vectors, clip, chunk_size=3)
    torch.testing.assert_close(flat(network, total), expected, rtol=0, atol=2e-4 * 14 * clip)


@pytest.mark.parametrize("architecture", ["mlp", "conv", "dcgan"])
def test_architectures_by_name_are_chains(architecture):
    """The quick route is the one that users get."""
    image = (1, 64, 64) if architecture == "dcgan" else (1, 8, 8)
    n_features = image[1] * image[2]
    pair = build_networks(architecture, n_features=n_features, image=image, latent_dim=3)
    assert chain_of_layers(nn.Sequential(*pair, nn.Tanh())) is not None


def test_hooks_may_change_anything_and_take_the_general_route():
    network = nn.Sequential(nn.Linear(6, 4), nn.Tanh())
    network[0].register_forward_hook(lambda layer, inputs, output: output * layer.weight.sum())
    assert chain_of_layers(network) is None
    rows = uniform(N_RECORDS, 6)
    network.double()
    gradients = one_by_one(network, rows, rows.new_zeros(N_RECORDS, 4))
    total = clipped_gradient_sum(network, rows, lambda o, _: o, 1e9)
    torch.testing.assert_close(flat(network, total), gradients.sum(0), rtol=2e-4, atol=1e-6)


def test_no_contribution_exceeds_the_clipping_norm():
    network, rows = make("linear")
    for scale in (1e-3, 1.0, 1e8):
        for row in rows:
            total = clipped_gradient_sum(network, row[None] * scale, lambda o, _: 1e6 * o, 0.5)
            assert 0.4994 < float(flat(network, total).norm()) <= 0.5


@pytest.mark.parametrize("name", ["linear", "convolutions", "residual"])
@pytest.mark.parametrize("broken", [float("nan"), float("inf")])
def test_a_record_without_finite_gradient_counts_as_zero(name, broken):
    """A sum that is not a number, or an error, would tell that the record was there."""
    network, rows = make(name)
    network.float()
    rows = rows.float()
    others = flat(network, clipped_gradient_sum(network, rows[1:], lambda o, _: o, 1.0))
    pulls = flat(network, clipped_jacobian_sum(network, rows[1:], uniform(6, 4).float() * 0, 1.0))
    rows[0] = broken
    total = flat(network, clipped_gradient_sum(network, rows, lambda o, _: o, 1.0))
    torch.testing.assert_close(total, others)
    vectors = torch.zeros(N_RECORDS, 4)
    torch.testing.assert_close(
        flat(network, clipped_jacobian_sum(network, rows, vectors, 1.0)), pulls
    )


def test_an_empty_batch_has_an_empty_sum():
    network, rows = make("linear")
    total = clipped_gradient_sum(network, rows[:0], lambda o, _: o, 1.0)
    assert float(flat(network, total).abs().max()) == 0.0
