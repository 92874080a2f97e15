"""Steps of fair training: the gradients that they add up, the noise and the batches of each."""

import math

import numpy as np
import pytest
import torch
from scipy import stats

from skdpot._utils.validation import SecretStream
from skdpot.mechanisms import fair as fair_training
from skdpot.mechanisms.fair import (
    FairLoss,
    LocalPenalty,
    Records,
    network_outputs,
    ranked_steps,
    tabled_steps,
)
from skdpot.privacy.accounting import SingleFitTarget
from skdpot.privacy.events import NonPrivateEvent
from skdpot.release import gradients as noisy_sums
from skdpot.release.decoding import square_root_strategy
from skdpot.release.gradients import plan_training
from skdpot.release.output_tables import (
    Cells,
    ParityPenalty,
    TableNoise,
    plan_tables,
    release_tables,
)
from tests.nets.fair_tasks import (
    N_FEATURES,
    STRATA,
    TASKS,
    Residual,
    SometimesBroken,
    cell_sizes,
    fair_loss,
    flat,
    joint_sum,
    linear,
    make_cells,
    mlp,
    ranked_sum,
)

RNG = np.random.default_rng(3511)


def squared_distance(a, b):
    """W₂² of two samples on a line, differentiable: both repeated to a common size."""
    common = math.lcm(len(a), len(b))
    a, b = (x.sort().values.repeat_interleave(common // len(x)) for x in (a, b))
    return ((a - b) ** 2).mean()


def pairs(strata):
    """Pairs of cells that are compared, and their weights: means over pairs, then strata."""
    for stratum in strata:
        of_stratum = [(a, b) for a in stratum for b in stratum if a < b]
        yield from ((a, b, 1 / len(of_stratum) / len(strata)) for a, b in of_stratum)


# --- without clipping ----------------------------------------------------------------------------


@pytest.mark.parametrize("kind", TASKS)
@pytest.mark.parametrize("strata", STRATA)
@pytest.mark.parametrize("make", [mlp, Residual])
def test_ranked_sums_are_the_gradient_of_the_objective(kind, strata, make):
    task, strata = TASKS[kind], STRATA[strata]
    sizes = cell_sizes(strata, RNG)
    n, q = sum(sizes), task.compared.n_outputs
    network = make(q).double()
    batch = Records(torch.from_numpy(RNG.normal(size=(n, N_FEATURES))), task.targets(n, RNG))
    directions = task.compared.directions(5, RNG)
    loss, penalty = fair_loss(task), ParityPenalty(strata, sizes)
    total = flat(ranked_sum(loss, network, batch, penalty, directions))

    outputs = network(batch.rows)
    values = task.compared.values(outputs).split(sizes)
    apart = sum(
        weight * squared_distance(values[a] @ theta, values[b] @ theta)
        for a, b, weight in pairs(strata)
        for theta in torch.from_numpy(directions)
    ) / len(directions)
    objective = 0.4 * task.loss(outputs, batch.targets).mean() + 0.6 * apart
    gradient = torch.autograd.grad(n * objective, list(network.parameters()))
    expected = torch.cat([part.flatten() for part in gradient])
    torch.testing.assert_close(total, expected, rtol=1e-9, atol=1e-9)


def silent(n_bins=32):
    strategy = square_root_strategy(n_bins)
    return TableNoise(
        strategy=strategy,
        sigma=0.0,
        lattice=strategy.lattice,
        mu=math.inf,
        event=NonPrivateEvent(),
    )


def released(task, network, rows, cells, directions):
    """Tables without noise, and the values in them."""
    values = task.compared.values(network_outputs(network, rows)).numpy()
    limits = np.abs(directions @ values.T).max(axis=1) * 1.01
    tables = release_tables(
        values, cells.codes, cells.sizes, directions, limits, silent(), SecretStream(0)
    )
    return tables, values


def local_penalty(task, outputs, values, tables, cells, directions):
    """What the penalty is replaced by: its linear part, and a share of its curvature."""
    share = fair_training._STIFFNESS / 4
    projected, total = task.compared.values(outputs) @ torch.from_numpy(directions).T, 0.0
    for a, b, weight in pairs(cells.strata):
        for own, other in ((a, b), (b, a)):
            here = np.flatnonzero(cells.codes == own)
            for k, theta in enumerate(directions):
                u = values[here] @ theta
                table, target = tables.tables[own], tables.tables[other]
                levels = np.interp(u, table.edges[k], table.cdf[k])
                gap = torch.from_numpy(u - target.quantiles_along(k, levels))
                moved = projected[here, k] - torch.from_numpy(u)
                mean = (2 * gap * moved + 2 * share * moved**2).mean()
                total = total + weight * mean / len(directions)
    return total


@pytest.mark.parametrize("kind", TASKS)
@pytest.mark.parametrize("strata", STRATA)
@pytest.mark.parametrize("make", [mlp, Residual])
def test_joint_sums_are_the_gradient_of_the_local_penalty(kind, strata, make):
    """At the release and after the network has moved; before any release of the loss alone."""
    task, strata = TASKS[kind], STRATA[strata]
    sizes = cell_sizes(strata, RNG)
    n, q, cells = sum(sizes), task.compared.n_outputs, make_cells(sizes, strata)
    network, loss = make(q).double(), fair_loss(task)
    batch = Records(torch.from_numpy(RNG.normal(size=(n, N_FEATURES))), task.targets(n, RNG))
    directions = task.compared.directions(5, RNG)
    tables, values = released(task, network, batch.rows, cells, directions)
    local = LocalPenalty.of_release(tables, values, cells)
    for given, moved in ((local, 0.0), (local, 0.2), (None, 0.2)):
        with torch.no_grad():
            for parameter in network.parameters():
                parameter += moved * torch.from_numpy(RNG.normal(size=parameter.shape))
        total = flat(joint_sum(loss, network, batch, given, cells))
        outputs = network(batch.rows)
        objective = 0.4 * task.loss(outputs, batch.targets).mean()
        if given is not None:
            apart = local_penalty(task, outputs, values, tables, cells, directions)
            objective = objective + 0.6 * apart
        gradient = torch.autograd.grad(n * objective, list(network.parameters()))
        expected = torch.cat([part.flatten() for part in gradient])
        torch.testing.assert_close(total, expected, rtol=1e-9, atol=1e-9)


# --- steps ---------------------------------------------------------------------------------------

SIZES = (40, 60, 50)
CELLS = Cells(RNG.permutation(np.repeat(np.arange(3), SIZES)), SIZES, ((0, 1, 2),))
ROWS = torch.from_numpy(RNG.normal(size=(150, N_FEATURES))).float()
RECORDS = Records(ROWS, TASKS["softmax"].targets(150, RNG))
N_STEPS = 60


def planned(sampling, epsilon=1.0):
    poisson = sampling == "poisson"
    return plan_training(
        SingleFitTarget(epsilon, 1e-5),
        n_samples=150 if poisson else SIZES,
        batch_size=30 if poisson else (8, 12, 10),
        n_steps=N_STEPS,
        sampling=sampling,
        sensitivity=2.0,
        n_parameters=100,
    )


@pytest.fixture
def spied(monkeypatch):
    """What the steps draw, add up and hand on."""
    seen = {"noise": [], "batches": [], "sums": [], "directions": [], "releases": []}
    draw, take, release = noisy_sums.noisy_sum, Records.take, fair_training.release_tables

    def noise_spy(values, noise, stream):
        noisy = draw(values, noise, stream)
        seen["noise"].append((noise.sigma, noisy - values))
        return noisy

    def take_spy(self, batch):
        seen["batches"].append(batch)
        return take(self, batch)

    def release_spy(*args, **options):
        seen["releases"].append((len(seen["batches"]), args, options, release(*args, **options)))
        return seen["releases"][-1][-1]

    add, compare = fair_training.pulled_back_sum, FairLoss.ranked_vectors

    def sum_spy(*args):
        total = add(*args)
        seen["sums"].append({p: v.clone() for p, v in total.items()})
        return total

    def directions_spy(*args):
        seen["directions"].append(args[-1])
        return compare(*args)

    monkeypatch.setattr(noisy_sums, "noisy_sum", noise_spy)
    monkeypatch.setattr(fair_training, "release_tables", release_spy)
    monkeypatch.setattr(Records, "take", take_spy)
    monkeypatch.setattr(fair_training, "pulled_back_sum", sum_spy)
    monkeypatch.setattr(FairLoss, "ranked_vectors", directions_spy)
    return seen


def run(mode, network, plan, secret=None, **changes):
    """Take all steps, and return the gradients of each."""
    task, secret = TASKS["softmax"], secret or SecretStream()
    loss = fair_loss(task, 0.5, 1.0, 1.0)
    if mode == "ranks":
        penalty = ParityPenalty(CELLS.strata, plan.batch_sizes)
        directions = [task.compared.directions(3, RNG) for _ in range(N_STEPS)]
        step = ranked_steps(loss, RECORDS, CELLS, penalty, directions, plan, secret)
    else:
        options = {"noise": plan_tables(0.5, 2, 3, 40), "release_at": (20, 40)} | changes
        directions = None
        step = tabled_steps(
            loss, RECORDS, CELLS, plan, n_projections=3, secret=secret, public=RNG, **options
        )
    gradients = []
    for number in range(N_STEPS):
        network.zero_grad()
        step(network, number)
        gradients.append([p.grad for p in network.parameters()])
    return gradients, directions


MODES = [("tables", "poisson"), ("ranks", "without_replacement")]


@pytest.mark.parametrize(("mode", "sampling"), MODES)
def test_every_gradient_is_a_sum_with_noise_over_the_public_batch_size(mode, sampling, spied):
    """Noise of the plan's sigma for every parameter of every step, and none drawn twice."""
    network, plan = mlp(3), planned(sampling)
    gradients, _ = run(mode, network, plan)
    assert plan.batch_size == 30
    assert plan.sigma > 0
    assert {sigma for sigma, _ in spied["noise"]} == {plan.sigma}
    noise = [drawn for _, drawn in spied["noise"]]
    for of_step, total, drawn in zip(gradients, spied["sums"], noise, strict=True):
        gradient, value = (
            np.concatenate([v.numpy().ravel() for v in part]) for part in (of_step, total.values())
        )
        np.testing.assert_allclose(gradient, (value + drawn) / 30, rtol=1e-6, atol=1e-7)
    numbers = np.concatenate(noise)
    assert len({drawn.tobytes() for drawn in noise}) == len(noise) == N_STEPS
    # Chi-squared with as many degrees as numbers; false alarms 1e-6.
    low, high = stats.chi2(numbers.size).ppf([5e-7, 1 - 5e-7])
    assert low < np.sum((numbers / plan.sigma) ** 2) < high


@pytest.mark.parametrize(("mode", "sampling"), MODES)
def test_batches_are_fresh_at_every_step(mode, sampling, spied):
    """Each record is in Bin(60, 0.2) batches, or hypergeometric ones by cell.

    Records in both of two neighbouring batches: 0.04 of all, in 59 pairs of batches; the limits
    below are 5.5 standard deviations away. Batches cut from one permutation have none.
    """
    run(mode, linear(3), planned(sampling))
    batches = spied["batches"]
    assert len(batches) == N_STEPS
    member = np.zeros((N_STEPS, 150), dtype=int)
    for row, batch in zip(member, batches, strict=True):
        np.add.at(row, batch, 1)
    assert member.max() == 1
    in_both = np.sum(member[1:] * member[:-1])
    assert abs(in_both - 59 * 150 * 0.04) < 5.5 * math.sqrt(59 * 150 * 0.04)
    counts = member.sum(axis=0)
    variance = N_STEPS * 0.2 * 0.8
    statistic = np.sum((counts - N_STEPS * 0.2) ** 2) / variance
    assert 0.3 * 150 < statistic < 1.9 * 150
    if mode == "ranks":
        of_cells = [np.bincount(CELLS.codes[batch]).tolist() for batch in batches]
        assert of_cells == [[8, 12, 10]] * N_STEPS
        assert all(np.all(np.diff(CELLS.codes[batch]) >= 0) for batch in batches)
    else:
        sizes = np.array([len(batch) for batch in batches])
        assert len(np.unique(sizes)) > 5
        assert abs(sizes.mean() - 30) < 5.5 * math.sqrt(24 / N_STEPS)


def test_ranked_steps_compare_along_the_directions_that_were_planned(spied):
    _, directions = run("ranks", linear(3), planned("without_replacement"))
    assert all(
        given is of_step for given, of_step in zip(spied["directions"], directions, strict=True)
    )
    assert not np.array_equal(directions[0], directions[1])


@pytest.mark.parametrize("release_at", [(0, 30), (20, 40), (5, 6, 7)])
def test_tables_are_released_when_planned_and_not_more_often(release_at, spied):
    noise = plan_tables(0.5, len(release_at), 3, 40)
    run("tables", linear(3), planned("poisson"), release_at=release_at, noise=noise)
    assert tuple(number for number, *_ in spied["releases"]) == release_at
    previous = None
    for _, args, options, found in spied["releases"]:
        values, codes, sizes = args[:3]
        assert values.shape == (150, 3)
        assert (codes is CELLS.codes, sizes) == (True, SIZES)
        assert args[5] is noise
        assert options["previous"] is previous
        previous = found
        assert found.directions.shape == (3, 3)


def test_without_noise_of_tables_none_are_released(spied):
    run("tables", linear(3), planned("poisson"), noise=None)
    assert spied["releases"] == []


def test_a_frozen_parameter_stays_without_gradient_and_noise(spied):
    network = mlp(3)
    network[0].weight.requires_grad_(False)
    gradients, _ = run("tables", network, planned("poisson"))
    assert all(of_step[0] is None for of_step in gradients)
    assert len(spied["noise"]) == N_STEPS


def test_without_privacy_there_is_no_noise(spied):
    run("tables", linear(3), planned("poisson", math.inf))
    assert spied["noise"] == []


def test_an_empty_batch_is_noise_alone(monkeypatch, spied):
    plan = planned("poisson")
    empty = np.array([], dtype=np.intp)
    monkeypatch.setattr(type(plan), "batches", lambda *_: iter([empty] * N_STEPS))
    gradients, _ = run("tables", linear(3), plan)
    noise = [drawn for _, drawn in spied["noise"]]
    for of_step, drawn in zip(gradients, noise, strict=True):
        gradient = np.concatenate([value.numpy().ravel() for value in of_step])
        np.testing.assert_allclose(gradient, drawn / 30, rtol=1e-6)


def test_outputs_are_bounded_and_need_no_gradients():
    network = SometimesBroken(2)
    rows = torch.from_numpy(RNG.normal(size=(20_000, N_FEATURES))).float()
    rows[3, 0], rows[4, 1] = 60.0, 60.0
    outputs = network_outputs(network, rows)
    assert outputs.dtype == torch.float64
    assert not outputs.requires_grad
    assert outputs[3].tolist() == [0.0, 0.0]
    assert outputs[4].tolist() == [1e100, 1e100]
    with torch.no_grad():
        torch.testing.assert_close(outputs[5:].float(), network(rows)[5:])


def test_cells_know_their_members_and_what_they_are_compared_with():
    cells = Cells(np.array([2, 0, 1, 2, 0, 3]), (2, 1, 2, 1), ((0, 1), (2, 3)))
    assert [part.tolist() for part in cells.members] == [[1, 4], [2], [0, 3], [5]]
    assert [cells.others(cell) for cell in range(4)] == [(1,), (0,), (3,), (2,)]
    assert Cells(np.zeros(3, int), (3,), ()).others(0) == ()
