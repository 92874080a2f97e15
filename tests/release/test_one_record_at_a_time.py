"""No network, however written, lets a record count twice, reach others or be remembered."""

import numpy as np
import pytest
import torch
from torch import nn

from skdpot import PrivacyBudget, PrivateSWAutoencoder
from skdpot.nets.autoencoder_training import AutoencoderLoss, PriorDistance, reconstruction_gradient
from skdpot.nets.training import check_per_record, with_trained_parameters
from skdpot.release.per_sample import ToSphere, chain_of_layers
from tests.flat_options import made, sliced_generator
from tests.release.jacobian_sums import clipped_gradient_sum

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
    def __init__(self):
        super().__init__()
        self.last, self.linear = None, nn.Linear(4, 3)

    def forward(self, rows):
        self.last = rows.detach()
        return self.linear(rows)


class MovesFrozen(nn.Module):
    def __init__(self):
        super().__init__()
        self.mean = nn.Parameter(torch.zeros(4), requires_grad=False)

    def forward(self, rows):
        self.mean.copy_(rows.detach().mean(0))
        return rows


class Branches(nn.Linear):
    def forward(self, rows):
        return super().forward(rows) if rows.sum() < 1e9 else rows


@pytest.mark.parametrize(("flatten", "axis"), [((0, 1), 0), ((-3, -2), -2)])
def test_a_record_in_patches_is_clipped_once(flatten, axis):
    network = by_patches(16, 4, flatten, axis)
    row = torch.ones(1, 64)
    total = clipped_gradient_sum(network, row, reconstruction_gradient, 1e-2)
    assert float(torch.cat([v.flatten() for v in total.values()]).norm()) <= 1e-2


def test_a_layer_that_changes_the_number_of_records_ends_the_quick_route():
    """PixelUnshuffle takes three axes for one image: its channels are records here."""
    network = nn.Sequential(nn.PixelUnshuffle(2), nn.Linear(2, 2), nn.PixelShuffle(2))
    assert chain_of_layers(network) is not None
    rows = torch.ones(1, 4, 4)
    total = clipped_gradient_sum(network, rows, lambda o, r: o - r, 1e-2)
    assert float(torch.cat([v.flatten() for v in total.values()]).norm()) <= 1e-2


def test_codes_are_computed_record_by_record():
    torch.manual_seed(0)  # noqa: TID251
    network = nn.Sequential(nn.Sequential(MixesMany(), ToSphere()), nn.Linear(3, 3))
    penalty = PriorDistance("sphere", 3, (64,), 30)
    loss = AutoencoderLoss(clip=1.0, penalty=penalty, alpha=0.9)
    directions = penalty.directions(np.random.default_rng(1))
    rows = torch.from_numpy(np.random.default_rng(2).normal(0.5, 0.1, (64, 3))).float()
    other = rows.clone()
    other[0] *= -1
    sums = [loss.clipped_sum(network, r, directions).values() for r in (rows, other)]
    moved = [torch.cat([v.flatten() for v in total]) for total in sums]
    assert float((moved[0] - moved[1]).norm()) <= loss.sensitivity


@pytest.mark.parametrize("penalty", [None, "prior"])
def test_no_row_stays_in_an_attribute_of_a_network(penalty):
    pair = (Remembers(), nn.Linear(3, 4))
    fitted = made(
        PrivateSWAutoencoder,
        3,
        architecture=pair,
        bounds=(-1, 1),
        n_steps=3,
        penalty=penalty,
        batch_size=20,
    ).fit(X)
    (module,) = (m for m in fitted.encoder_.modules() if isinstance(m, Remembers))
    assert module.last is None or not np.isin(X.astype(np.float32), module.last.numpy()).any()
    assert not torch.equal(module.linear.weight, pair[0].linear.weight)  # but it was trained


def test_only_trained_parameters_are_taken_over():
    clean, trained = (nn.Sequential(nn.Linear(2, 2), MovesFrozen()) for _ in range(2))
    trained[1].mean.fill_(7.0)
    trained[1].last = "row"
    made = with_trained_parameters(clean, trained)
    assert made is clean
    assert torch.equal(made[0].weight, trained[0].weight)
    assert float(made[1].mean.sum()) == 0.0
    assert not hasattr(made[1], "last")


@pytest.mark.parametrize(
    ("layer", "width", "message"),
    [(MixesMany(), 3, "depends on the other records"), (MovesFrozen(), 4, "'mean' .* changes")],
)
def test_what_only_shows_in_large_batches_or_frozen_parameters_is_refused(layer, width, message):
    with pytest.raises(ValueError, match=message):
        check_per_record(layer, (width,), np.random.default_rng(0))


def test_gradients_that_cannot_be_computed_are_refused_before_the_charge():
    budget = PrivacyBudget(5.0)
    options = {"bounds": (-1, 1), "budget": budget, "latent_dim": 4}
    with pytest.raises(ValueError, match="architecture: the gradients"):
        made(PrivateSWAutoencoder, architecture=(Branches(4, 4), nn.Linear(4, 4)), **options).fit(X)
    with pytest.raises(ValueError, match="module: the gradients"):
        sliced_generator("gradient", module=Branches(4, 4), **options).fit(X)
    assert len(budget.history()) == 0


def test_the_check_leaves_no_trace():
    module = Remembers()
    check_per_record(module, (4,), np.random.default_rng(0))
    assert module.last is None


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


def test_the_progress_bar_shows_no_speed(capsys):
    made(PrivateSWAutoencoder, 2, bounds=(-1, 1), n_steps=3, verbose=1).fit(X)
    shown = capsys.readouterr().err
    assert "3/3" in shown
    assert "it/s" not in shown
    assert "s/it" not in shown
