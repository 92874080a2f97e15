"""Tasks, networks and cells that the tests of fair training share."""

import dataclasses
import math

import numpy as np
import torch
from torch import nn
from torch.nn import functional

from skdpot.fair.fair_loss import FairLoss
from skdpot.fair.score_losses import LOSSES
from skdpot.nets.cells import Cells
from skdpot.nets.compared_outputs import ClippedOutputs, Probabilities
from skdpot.nets.gradients import pulled_back_sum

N_FEATURES = 4
HUGE = 1e9  # clips nothing

# Cells by stratum: two and three groups, and two or three groups within two classes.
STRATA = {
    "parity of 2": ((0, 1),),
    "parity of 3": ((0, 1, 2),),
    "odds of 2": ((0, 1), (2, 3)),
    "odds of 3": ((0, 1, 2), (3, 4, 5)),
}


class Residual(nn.Module):
    """Not a chain of layers: goes through torch.func."""

    def __init__(self, q):
        super().__init__()
        self.inner = nn.Linear(N_FEATURES, N_FEATURES)
        self.outer = nn.Linear(N_FEATURES, q, bias=False)

    def forward(self, rows):
        return self.outer(rows + torch.tanh(self.inner(rows)))


def linear(q):
    return nn.Linear(N_FEATURES, q)


def mlp(q):
    return nn.Sequential(nn.Linear(N_FEATURES, 6), nn.Tanh(), nn.Linear(6, q))


def rectified(q):
    return nn.Sequential(nn.Linear(N_FEATURES, 6), nn.ReLU(), nn.Linear(6, q))


class SometimesBroken(nn.Module):
    """Not a number for some records, infinite for others."""

    def __init__(self, q):
        super().__init__()
        self.layer = nn.Linear(N_FEATURES, q)

    def forward(self, rows):
        outputs = self.layer(rows)
        broken = torch.where(rows[:, :1] > 50, outputs * math.nan, outputs)
        return torch.where(rows[:, 1:2] > 50, outputs.abs() * math.inf, broken)


class CommonShift(nn.Module):
    """All outputs move together with most features, of which probabilities show nothing."""

    def __init__(self, q):
        super().__init__()
        self.layer = nn.Linear(1, q)
        self.shift = nn.Linear(N_FEATURES - 1, 1, bias=False)

    def forward(self, rows):
        return self.layer(rows[:, :1]) + self.shift(rows[:, 1:])


NETWORKS = {f.__name__: f for f in (linear, mlp, rectified, Residual, SometimesBroken, CommonShift)}


@dataclasses.dataclass(frozen=True)
class Task:
    """The loss of an estimator, the same by torch, and targets for it."""

    gradient: object
    loss: object
    compared: object
    n_classes: int

    def targets(self, n, rng):
        if self.n_classes:
            return torch.from_numpy(rng.integers(0, self.n_classes, n))
        return torch.from_numpy(rng.uniform(-1, 1, (n, self.compared.n_outputs)))


def binary_loss(outputs, targets):
    return functional.binary_cross_entropy_with_logits(
        outputs[:, 0], targets.double(), reduction="none"
    )


def softmax_loss(outputs, targets):
    return functional.cross_entropy(outputs, targets.long(), reduction="none")


def squared_loss(outputs, targets):
    return ((outputs - targets) ** 2).sum(1) / 2


BINARY, SOFTMAX, SQUARED = (LOSSES[of].gradient for of in ("logistic", "softmax", "squared"))
TASKS = {
    "binary": Task(BINARY, binary_loss, Probabilities(1), 2),
    "logits": Task(BINARY, binary_loss, ClippedOutputs(1, HUGE), 2),
    "softmax": Task(SOFTMAX, softmax_loss, Probabilities(3), 3),
    "one target": Task(SQUARED, squared_loss, ClippedOutputs(1, HUGE), 0),
    "two targets": Task(SQUARED, squared_loss, ClippedOutputs(2, HUGE), 0),
}


def clipped(task, radius):
    """The task with outputs that are really shortened."""
    compared = task.compared
    if isinstance(compared, ClippedOutputs):
        compared = ClippedOutputs(compared.n_outputs, radius)
    return dataclasses.replace(task, compared=compared)


def fair_loss(task, alpha=0.6, clip=HUGE, clip_jacobian=HUGE):
    return FairLoss(
        gradient=task.gradient,
        compared=task.compared,
        alpha=alpha,
        clip=clip,
        clip_jacobian=clip_jacobian,
    )


def flat(total):
    assert {value.dtype for value in total.values()} <= {torch.float64}
    return torch.cat([value.flatten() for value in total.values()])


def ranked_sum(loss, network, batch, penalty, directions):
    vectors = loss.ranked_vectors(network, batch, penalty, directions)
    return pulled_back_sum(network, batch.rows, vectors)


def joint_sum(loss, network, records, local, batch=None):
    vectors = loss.joint_vectors(records, local)
    return pulled_back_sum(network, records.rows, vectors, batch=batch)


def cell_sizes(strata, rng):
    return tuple(int(size) for size in rng.integers(3, 9, sum(map(len, strata))))


def make_cells(sizes, strata):
    return Cells(np.repeat(np.arange(len(sizes)), sizes), sizes, strata)
