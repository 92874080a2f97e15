"""No network, however written, lets a record count twice, reach others or be remembered."""

import numpy as np
import pytest
import torch
from torch import nn

from skdpot import FairPrivateClassifier, PrivacyBudget, PrivateSWAutoencoder
from skdpot.nets.gradients import by_jacobians, pulled_back_sum
from skdpot.nets.layers import ToSphere
from skdpot.sampling.autoencoder_training import AutoencoderLoss, reconstruction_gradient
from skdpot.sampling.code_distances import PriorDistance
from tests.flat_options import made, sliced_generator

X = np.random.default_rng(3).uniform(-1, 1, (80, 4))


def by_patches(n_patches, size, flatten=(0, 1), axis=0):
    return nn.Sequential(
        nn.Unflatten(1, (n_patches, size)),
        nn.Flatten(*flatten),
        nn.Linear(size, size),
        nn.Unflatten(axis, (-1, n_patches)),
        nn.Flatten(1),
    )


class MixesMany(nn.Module):
    def __init__(self):
        super().__init__()
        self.linear = nn.Linear(3, 3)

    def forward(self, rows):
        outputs = self.linear(rows)
        return outputs * torch.sign(rows[:1, :1]) if len(rows) > 5 else outputs


class Remembers(nn.Module):
    def __init__(self, n_outputs):
        super().__init__()
        self.last, self.linear = None, nn.Linear(4, n_outputs)

    def forward(self, rows):
        self.last = rows.detach()
        return self.linear(rows)


class Branches(nn.Linear):
    def forward(self, rows):
        return super().forward(rows) if rows.sum() < 1e9 else rows


@pytest.mark.parametrize(
    ("network", "shape"),
    [
        (by_patches(16, 4), (64,)),
        (by_patches(16, 4, (-3, -2), -2), (64,)),
        # PixelUnshuffle takes three axes for one image: its channels are records here.
        (nn.Sequential(nn.PixelUnshuffle(2), nn.Linear(2, 2), nn.PixelShuffle(2)), (4, 4)),
    ],
)
def test_a_record_in_patches_is_clipped_once(network, shape):
    clipped = by_jacobians(1e-2)
    total = pulled_back_sum(network, torch.ones(1, *shape), clipped, reconstruction_gradient)
    assert float(torch.cat([v.flatten() for v in total.values()]).norm()) <= 1e-2


def test_codes_are_computed_record_by_record():
    torch.manual_seed(0)  # noqa: TID251
    network = nn.Sequential(nn.Sequential(MixesMany(), ToSphere()), nn.Linear(3, 3))
    penalty = PriorDistance(prior="sphere", latent_dim=3, batch_sizes=(64,), n_projections=30)
    loss = AutoencoderLoss(clip=1.0, penalty=penalty, alpha=0.9)
    directions = penalty.directions(np.random.default_rng(1))
    rows = torch.from_numpy(np.random.default_rng(2).normal(0.5, 0.1, (64, 3))).float()
    other = rows.clone()
    other[0] *= -1
    sums = [loss.clipped_sum(network, r, directions).values() for r in (rows, other)]
    moved = [torch.cat([v.flatten() for v in total]) for total in sums]
    assert float((moved[0] - moved[1]).norm()) <= loss.sensitivity


@pytest.mark.filterwarnings("ignore:.*hides the distributions")
@pytest.mark.parametrize(
    "options", [{}, {"penalty": "prior"}, {"mechanism": "sketch"}, {"mechanism": "ranks"}]
)
def test_no_row_stays_in_an_attribute_of_a_network(options):
    given = Remembers(3)
    if "mechanism" in options:
        fit = made(FairPrivateClassifier, module=Remembers(1), n_steps=3, n_releases=1, **options)
        fit.fit(X, np.arange(80) % 2, sensitive_features=np.arange(80) // 2 % 2)
        networks = [fit.module, fit.network_]
    else:
        options |= {"architecture": (given, nn.Linear(3, 4)), "bounds": (-1, 1), "n_steps": 3}
        fit = made(PrivateSWAutoencoder, 3, batch_size=20, **options).fit(X)
        networks = [given, fit.encoder_]
    modules = [[m for m in n.modules() if isinstance(m, Remembers)] for n in networks]
    (before,), (after,) = modules
    for module in (before, after):
        assert module.last is None or not np.isin(X.astype(np.float32), module.last.numpy()).any()
    assert not torch.equal(before.linear.weight, after.linear.weight)  # but it was trained


def test_gradients_that_cannot_be_computed_are_refused_before_the_charge():
    budget = PrivacyBudget(5.0)
    options = {"bounds": (-1, 1), "budget": budget, "latent_dim": 4}
    with pytest.raises(ValueError, match="architecture: the gradients"):
        made(PrivateSWAutoencoder, architecture=(Branches(4, 4), nn.Linear(4, 4)), **options).fit(X)
    with pytest.raises(ValueError, match="module: the gradients"):
        sliced_generator("gradient", module=Branches(4, 4), **options).fit(X)
    assert len(budget.history()) == 0
