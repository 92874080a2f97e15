"""Sums of fair training: the gradients that they are, and how far one record moves them."""

import dataclasses
import math
from itertools import product

import numpy as np
import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from torch import nn

from skdpot._utils.streams import SecretStream
from skdpot.fair.training_rows import TrainingRows
from skdpot.nets import local_penalty as local_penalties
from skdpot.nets.local_penalty import LocalPenalty, network_outputs
from skdpot.nets.output_tables import plan_output_tables, release_tables
from skdpot.nets.parity_penalty import ParityPenalty
from tests.fair.fair_tasks import (
    N_FEATURES,
    NETWORKS,
    STRATA,
    TASKS,
    Residual,
    cell_sizes,
    clipped,
    fair_loss,
    flat,
    joint_sum,
    make_cells,
    mlp,
    ranked_sum,
)

RNG = np.random.default_rng(3517)
EXTREMES = (0.0, 1.0, -1.0, 60.0, 1e6, -1e15, 1e30, -1e30)


def released(task, network, batch, cells, directions, mu):
    """The values of outputs, and tables of them with the noise of one release."""
    values = task.compared.values(network_outputs(network, batch.rows)).numpy()
    limits = task.compared.half_widths(directions)
    if math.isinf(mu):
        limits = np.abs(directions @ values.T).max(axis=1) * 1.01
    noise = plan_output_tables(mu, 1, len(directions), min(cells.sizes))
    secret = SecretStream(int(RNG.integers(2**32)))
    return values, release_tables(
        values, cells.codes, cells.sizes, directions, limits, noise, secret
    )


def local_penalty(task, outputs, values, tables, cells, directions):
    """What the penalty is replaced by: its linear part, and a share of its curvature."""
    share = local_penalties._STIFFNESS / 4
    projected, total = task.compared.values(outputs) @ torch.from_numpy(directions).T, 0.0
    for own in range(len(cells.sizes)):
        here, others = np.flatnonzero(cells.codes == own), cells.others(own)
        weight = 4 / (len(others) + 1) ** 2 / len(cells.strata) / len(directions)
        for other, (k, theta) in product(others, enumerate(directions)):
            u = values[here] @ theta
            levels = np.interp(u, tables.tables[own].edges[k], tables.tables[own].cdf[k])
            gap = torch.from_numpy(u - tables.tables[other].quantiles_along(k, levels))
            moved = projected[here, k] - torch.from_numpy(u)
            total = total + weight * (2 * gap * moved + 2 * share * moved**2).mean()
    return total


@pytest.mark.parametrize("kind", TASKS)
@pytest.mark.parametrize("strata", STRATA)
@pytest.mark.parametrize("make", [mlp, Residual])
def test_without_clipping_sums_are_the_gradient_of_the_objective(kind, strata, make):
    """By ranks; by tables before a release, right after it, and after the network has moved."""
    task, strata = TASKS[kind], STRATA[strata]
    cells, network = make_cells(cell_sizes(strata, RNG), strata), make(task.compared.n_outputs)
    n, loss, network = sum(cells.sizes), fair_loss(task), network.double()
    batch = TrainingRows(torch.from_numpy(RNG.normal(size=(n, N_FEATURES))), task.targets(n, RNG))
    directions = task.compared.directions(5, RNG)

    def assert_gradient(total, apart):
        objective = 0.4 * task.loss(network(batch.rows), batch.targets).sum() + 0.6 * apart
        parts = torch.autograd.grad(objective, list(network.parameters()))
        expected = torch.cat([part.flatten() for part in parts])
        torch.testing.assert_close(flat(total), expected, rtol=1e-9, atol=1e-9)

    penalty, compared = ParityPenalty(strata, cells.sizes), task.compared.values
    given = np.split(compared(network(batch.rows).detach()).numpy(), np.cumsum(cells.sizes)[:-1])
    vectors = torch.from_numpy(np.concatenate(penalty.vectors(given, directions)))
    ranked = ranked_sum(loss, network, batch, penalty, directions)
    assert_gradient(ranked, n * (vectors * compared(network(batch.rows))).sum())

    values, tables = released(task, network, batch, cells, directions, math.inf)
    assert_gradient(joint_sum(loss, network, batch, None), 0.0)
    for moved in (0.0, 0.2):
        with torch.no_grad():
            for parameter in network.parameters():
                parameter += moved * torch.from_numpy(RNG.normal(size=parameter.shape))
        apart = local_penalty(task, network(batch.rows), values, tables, cells, directions)
        local = LocalPenalty.of_release(tables, values, cells)
        assert_gradient(joint_sum(loss, network, batch, local), n * apart)


# --- what one record moves: sums by ranks -------------------------------------------------------


def neighbours(task, n, position, rng, wild=True):
    """A batch and the same with another record in one place."""
    rows, targets = rng.normal(size=(n, N_FEATURES)), task.targets(n, rng)
    if wild:
        for i in (0, n // 2, position):
            rows[i] = rng.choice(EXTREMES, N_FEATURES)
    other, other_targets = rows.copy(), targets.clone()
    other[position] = rng.choice(EXTREMES, N_FEATURES)
    other_targets[position] = task.targets(1, rng)[0]
    if not task.n_classes:
        other_targets[position] *= 10.0 ** int(rng.integers(-2, 9))
    batches = ((rows, targets), (other, other_targets))
    return [TrainingRows(torch.from_numpy(r).float(), t) for r, t in batches]


def scaled_network(name, q, exponent):
    network = NETWORKS[name](q)
    with torch.no_grad():
        for parameter in network.parameters():
            parameter *= 10.0**exponent
    return network


cases = given(
    st.sampled_from(sorted(NETWORKS)),
    st.sampled_from(sorted(TASKS)),
    st.sampled_from(sorted(STRATA)),
    st.integers(0, 2**32 - 1),
    st.integers(-4, 4),
)


@settings(max_examples=120, deadline=None)
@cases
def test_no_record_moves_a_ranked_sum_by_more_than_the_sensitivity(
    name, kind, strata, seed, exponent
):
    """Within its cell, with its class under equalised odds or another one under parity."""
    rng = np.random.default_rng(seed)
    task, strata = clipped(TASKS[kind], 10.0 ** rng.uniform(-2, 1)), STRATA[strata]
    sizes = cell_sizes(strata, rng)
    n, q = sum(sizes), task.compared.n_outputs
    alpha, clip, bent = rng.uniform(0, 1), *(10.0 ** rng.uniform(-3, 2, 2))
    loss, penalty = fair_loss(task, alpha, clip, bent), ParityPenalty(strata, sizes)
    network = scaled_network(name, q, exponent)
    directions = task.compared.directions(4, rng)
    batches = neighbours(task, n, int(rng.integers(n)), rng)
    one, two = (flat(ranked_sum(loss, network, b, penalty, directions)) for b in batches)
    width = task.compared.widths(directions).mean()
    bound = loss.ranked_sensitivity(n, penalty, width)
    assert float((one - two).norm()) <= bound
    # The formula, once more: 2 (1 - alpha) C + alpha n' (4 (K - 1) / K^2 Q) (4 r L / min n_c).
    k = len(strata[0])
    per_record = 4 * width * bent / min(sizes) * 4 * (k - 1) / (k**2 * len(strata))
    assert bound == pytest.approx(2 * (1 - alpha) * clip + alpha * n * per_record, rel=1e-9)


class Aimed(nn.Module):
    """One output: the first feature. The Jacobian is the row, along its second feature."""

    def __init__(self):
        super().__init__()
        self.weight = nn.Parameter(torch.tensor([1.0, 0.0]))

    def forward(self, rows):
        return (rows @ self.weight)[:, None]


def aimed_change(own, other, position, value, alpha, clip):
    """The change of a ranked sum, when every Jacobian points the worst way."""
    n, m = len(own), len(other)
    penalty, line = ParityPenalty(((0, 1),), (n, m)), np.ones((1, 1))
    task = clipped(TASKS["one target"], 0.5)
    after = own.copy()
    after[position] = value
    pulls = [
        np.concatenate(penalty.vectors([x[:, None], other[:, None]], line))[:, 0]
        for x in (own, after)
    ]
    signs = np.where(pulls[1] >= pulls[0], 1.0, -1.0)
    sums = []
    for x, pull, direction in ((own, pulls[0], -1.0), (after, pulls[1], 1.0)):
        aim = signs.copy()
        aim[position] = direction * (1.0 if pull[position] >= 0 else -1.0)
        rows = torch.from_numpy(np.c_[np.concatenate([x, other]), 1e6 * aim]).float()
        # A loss of which the gradient goes the same way as the pull.
        targets = torch.zeros(n + m, 1).double()
        targets[position] = -1e6 * direction * aim[position]
        loss = fair_loss(task, alpha, clip, 1.0)
        sums.append(flat(ranked_sum(loss, Aimed(), TrainingRows(rows, targets), penalty, line)))
    bound = loss.ranked_sensitivity(n + m, penalty, 1.0)
    return float((sums[0] - sums[1]).norm()) / bound


@pytest.mark.parametrize("alpha", [0.0, 0.4, 0.99])
def test_the_sensitivity_of_ranked_sums_is_attained(alpha):
    n, best = 60, 0.0
    for k, above in np.ndindex(4, 4):
        own = np.where(np.arange(n) < n * k // 3, -0.5, 0.5)
        other = np.where(np.arange(n) < n * above // 3, -0.5, 0.5)
        for position in (0, n - 1):
            for value in (-0.5, 0.5):
                best = max(best, aimed_change(own, other, position, value, alpha, 0.7))
    assert 0.95 <= best <= 1.0


@pytest.mark.parametrize("value", [-0.5, 0.1, 0.5])
def test_ties_of_a_thousand_clipped_outputs_keep_their_order(value):
    """An unstable sort would shuffle the others: the sum then moves by many times the bound."""
    own, other = np.repeat([-0.5, 0.5], 500), RNG.uniform(-0.5, 0.5, 1000)
    for position in (17, 700):
        assert aimed_change(own, other, position, value, 0.9, 0.7) <= 1.0


# --- loss and penalty clipped together -----------------------------------------------------------


@settings(max_examples=120, deadline=None)
@cases
def test_no_record_adds_more_than_its_share_of_an_joint_sum(name, kind, strata, seed, exponent):
    """Whatever it holds, and wherever the network was at the release. Cells of very unequal sizes
    have heavy weights, which are clipped too."""
    rng = np.random.default_rng(seed)
    task, strata = clipped(TASKS[kind], 10.0 ** rng.uniform(-2, 1)), STRATA[strata]
    sizes = (60, *cell_sizes(strata, rng)[1:])
    cells, n, q = make_cells(sizes, strata), sum(sizes), task.compared.n_outputs
    loss = fair_loss(task, rng.uniform(0, 1), 10.0 ** rng.uniform(-3, 2))
    before, network = (scaled_network(name, q, exponent) for _ in range(2))
    position = int(rng.integers(n))
    batches = neighbours(task, n, position, rng)
    directions = task.compared.directions(4, rng)
    values, tables = released(task, before, batches[0], cells, directions, 1.0)
    other = task.compared.values(network_outputs(before, batches[1].rows)).numpy()
    both = [LocalPenalty.of_release(tables, x, cells) for x in (values, other)]
    one, two = (
        flat(joint_sum(loss, network, batch, of_batch))
        for batch, of_batch in zip(batches, both, strict=True)
    )
    share = loss.joint_clip
    assert share == pytest.approx((1 - loss.alpha) * loss.clip)
    assert float((one - two).norm()) <= 2 * share
    for i in (position, 0):
        alone = np.array([i])
        added = joint_sum(loss, network, batches[1], both[1], alone)
        assert float(flat(added).norm()) <= share


@pytest.mark.parametrize("name", sorted(NETWORKS))
@pytest.mark.parametrize("kind", sorted(TASKS))
def test_what_a_record_adds_does_not_depend_on_its_companions(name, kind):
    """The sum is the sum of what each adds alone, in any batch."""
    rng, task, strata = np.random.default_rng(17), TASKS[kind], STRATA["odds of 2"]
    sizes = (9, 4, 3, 7)
    cells, n = make_cells(sizes, strata), sum(sizes)
    network, loss = NETWORKS[name](task.compared.n_outputs), fair_loss(task, 0.5, 0.3)
    batch = neighbours(task, n, 2, rng)[1]
    directions = task.compared.directions(4, rng)
    values, tables = released(clipped(task, 5.0), network, batch, cells, directions, 1.0)
    local = LocalPenalty.of_release(tables, values, cells)
    alone = [flat(joint_sum(loss, network, batch, local, i)) for i in np.arange(n)[:, None]]
    for members in (np.arange(n), rng.permutation(n)[:7], np.array([], dtype=np.intp)):
        total = joint_sum(loss, network, batch, local, members)
        expected = sum((alone[i] for i in members), torch.zeros_like(alone[0]))
        # Last bits of an output depend on where in a chunk its record is.
        torch.testing.assert_close(flat(total), expected, rtol=0, atol=1e-5)


def test_a_record_that_changes_its_cell_moves_no_bit_of_another():
    """Where cells are private, so is the number of records in each."""
    rng, task = np.random.default_rng(5), TASKS["softmax"]
    cells = make_cells((40, 30), STRATA["parity of 2"])
    batch, network = neighbours(task, 70, 2, rng)[0], NETWORKS["linear"](3)
    alone, joined = np.zeros((2, 70), dtype=int)
    alone[69] = joined[[0, 69]] = 1  # a product of one column is another routine
    for _ in range(24):  # one draw shows it in about half of the cases
        directions = task.compared.directions(40, rng)
        values, tables = released(task, network, batch, cells, directions, 1.0)
        both = [
            LocalPenalty.of_release(tables, values, dataclasses.replace(cells, codes=codes))
            for codes in (alone, joined)
        ]
        for name in ("values", "pulls", "stiffness"):
            assert torch.equal(*(getattr(local, name)[1:] for local in both))


def test_twice_the_clip_is_attained():
    """A record whose gradient turns round."""
    task = TASKS["one target"]
    loss = fair_loss(task, 0.3, 0.7)
    rows = torch.full((8, N_FEATURES), 1e3)
    network = NETWORKS["linear"](1)
    sums = []
    for target in (1e9, -1e9):
        targets = torch.zeros(8, 1).double()
        targets[5] = target
        sums.append(flat(joint_sum(loss, network, TrainingRows(rows, targets), None)))
    moved = float((sums[0] - sums[1]).norm())
    assert 0.999 * 2 * 0.7 * 0.7 < moved <= 2 * 0.7 * 0.7
