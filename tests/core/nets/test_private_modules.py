"""Networks in which one record reaches another's output are refused."""

from dataclasses import replace

import numpy as np
import pytest
import torch
from torch import nn

from skdpot.nets import per_record_check
from skdpot.nets.per_record_check import check_per_record


class Counting(nn.Module):
    def __init__(self):
        super().__init__()
        self.register_buffer("total", torch.zeros(4))

    def forward(self, rows):
        if self.training:
            self.total += rows.detach().sum(0)
        return rows


class Mixing(nn.Module):
    """Only the last record looks at another one."""

    def forward(self, rows):
        return torch.cat([rows[:-1], rows[-1:] + 0.01 * rows[:1]])


class Whispering(nn.Module):
    """The others are heard in the last bits alone."""

    def forward(self, rows):
        return rows + 1e-6 * rows.mean(0)


class MixesMany(nn.Module):
    def forward(self, rows):
        return rows * torch.sign(rows[:1, :1]) if len(rows) > 5 else rows


class MovesFrozen(nn.Module):
    def __init__(self):
        super().__init__()
        self.mean = nn.Parameter(torch.zeros(4), requires_grad=False)

    def forward(self, rows):
        self.mean.copy_(rows.detach().mean(0))
        return rows


def check(*layers):
    network = nn.Sequential(*layers)
    check_per_record(network, (4,), np.random.default_rng(0))
    return network


@pytest.mark.parametrize(
    ("layer", "message"),
    [
        (nn.BatchNorm1d(4), r"'1' \(BatchNorm1d\).*GroupNorm"),
        (nn.BatchNorm1d(4, affine=False, track_running_stats=False), "BatchNorm1d"),
        (nn.LazyBatchNorm1d(), "BatchNorm1d"),
        (nn.Sequential(nn.Unflatten(1, (2, 2)), nn.InstanceNorm1d(2, track_running_stats=True)),
         r"'1\.1' \(InstanceNorm1d\).*track_running_stats=False"),
        (Mixing(), "depends on the other records"),
        (Whispering(), "depends on the other records"),
        (nn.Softmax(dim=0), "depends on the other records"),
        (Counting(), r"'1\.total' of the network changes"),
        (nn.Flatten(0), "must keep the first axis"),
        (nn.TransformerEncoderLayer(4, 2, 8, dropout=0.0, batch_first=True),  # one sequence
         "depends on the other records"),
        (MixesMany(), "depends on the other records"),
        (MovesFrozen(), "'1.mean' .* changes"),
        (nn.Sequential(nn.Linear(4, 2).to(torch.bfloat16)),
         r"'1\.0\.weight' is of type torch\.bfloat16"),
    ],
)  # fmt: skip
def test_refused(layer, message):
    with pytest.raises(ValueError, match=message):
        check(nn.Linear(4, 4, bias=False), layer)


@pytest.mark.parametrize(
    "layers",
    [
        (nn.GroupNorm(2, 4),),
        (nn.LayerNorm(4),),
        (nn.Dropout(0.5),),
        (nn.Unflatten(1, (2, 2)), nn.InstanceNorm1d(2)),
        (nn.Softmax(dim=1),),
    ],
)
def test_allowed(layers):
    check(nn.Linear(4, 4), *layers)


def test_gradients_that_depend_on_other_records_are_refused(monkeypatch):
    """In their last bits alone: no network does it, but instructions could."""

    def rounded_together(network, rows, *given):
        found = jacobians(network, rows, *given)
        return replace(found, parts=[shifted(part, 1e-9 * rows.sum()) for part in found.parts])

    def shifted(part, by):
        return replace(part, factors=(part.factors[0] + by, *part.factors[1:]))

    jacobians = per_record_check.record_jacobians
    monkeypatch.setattr(per_record_check, "record_jacobians", rounded_together)
    with pytest.raises(ValueError, match="depends on the other records"):
        check(nn.Linear(4, 4, bias=False), nn.Flatten())


def test_the_check_leaves_the_network_as_it_was():
    network = nn.Sequential(nn.Linear(4, 4), nn.Dropout(0.5)).eval()
    before = [p.detach().clone() for p in network.parameters()]
    check_per_record(network, (4,), np.random.default_rng(0))
    assert not network.training
    assert all(torch.equal(p, q) for p, q in zip(network.parameters(), before, strict=True))
