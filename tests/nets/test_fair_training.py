"""Steps of fair training: the gradients that they add up, the noise and the batches of each."""

import math

import numpy as np
import pytest
import torch
from scipy import stats

from skdpot._utils.validation import SecretStream
from skdpot.mechanisms import fair
from skdpot.mechanisms.fair import (
    LocalPenalty,
    Records,
    network_outputs,
    ranked_steps,
    tabled_steps,
)
from skdpot.privacy.accounting import SingleFitTarget
from skdpot.release import gradients as noisy_sums
from skdpot.release.gradients import plan_training
from skdpot.release.output_tables import (
    Cells,
    ParityPenalty,
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


def arranged(kind, strata, make):
    """A task, its cells, a network, records and directions."""
    task, strata = TASKS[kind], STRATA[strata]
    cells = make_cells(cell_sizes(strata, RNG), strata)
    n = sum(cells.sizes)
    batch = Records(torch.from_numpy(RNG.normal(size=(n, N_FEATURES))), task.targets(n, RNG))
    network = make(task.compared.n_outputs).double()
    return task, cells, network, batch, task.compared.directions(5, RNG)


def assert_gradient(total, objective, network):
    gradient = torch.autograd.grad(objective, list(network.parameters()))
    expected = torch.cat([part.flatten() for part in gradient])
    torch.testing.assert_close(flat(total), expected, rtol=1e-9, atol=1e-9)


EVERYWHERE = [
    pytest.mark.parametrize("kind", TASKS),
    pytest.mark.parametrize("strata", STRATA),
    pytest.mark.parametrize("make", [mlp, Residual]),
]


def everywhere(test):
    for mark in EVERYWHERE:
        test = mark(test)
    return test


@everywhere
def test_ranked_sums_are_the_gradient_of_the_objective(kind, strata, make):
    task, cells, network, batch, directions = arranged(kind, strata, make)
    penalty = ParityPenalty(cells.strata, cells.sizes)
    total = ranked_sum(fair_loss(task), network, batch, penalty, directions)
    outputs = network(batch.rows)
    values = task.compared.values(outputs).split(cells.sizes)
    apart = sum(
        weight * squared_distance(values[a] @ theta, values[b] @ theta)
        for a, b, weight in pairs(cells.strata)
        for theta in torch.from_numpy(directions)
    ) / len(directions)
    objective = 0.4 * task.loss(outputs, batch.targets).mean() + 0.6 * apart
    assert_gradient(total, len(outputs) * objective, network)


def released(task, network, rows, cells, directions):
    """Tables without noise, and the values in them."""
    values = task.compared.values(network_outputs(network, rows)).numpy()
    limits = np.abs(directions @ values.T).max(axis=1) * 1.01
    noise = plan_tables(math.inf, 1, len(directions), len(rows))
    parts = (values, cells.codes, cells.sizes, directions, limits, noise, SecretStream(0))
    return release_tables(*parts), values


def local_penalty(task, outputs, values, tables, cells, directions):
    """What the penalty is replaced by: its linear part, and a share of its curvature."""
    share = fair._STIFFNESS / 4
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


@everywhere
def test_joint_sums_are_the_gradient_of_the_local_penalty(kind, strata, make):
    """At the release and after the network has moved; before any release of the loss alone."""
    task, cells, network, batch, directions = arranged(kind, strata, make)
    tables, values = released(task, network, batch.rows, cells, directions)
    local = LocalPenalty.of_release(tables, values, cells)
    for given, moved in ((local, 0.0), (local, 0.2), (None, 0.2)):
        with torch.no_grad():
            for parameter in network.parameters():
                parameter += moved * torch.from_numpy(RNG.normal(size=parameter.shape))
        total = joint_sum(fair_loss(task), network, batch, given)
        outputs = network(batch.rows)
        objective = 0.4 * task.loss(outputs, batch.targets).mean()
        if given is not None:
            apart = local_penalty(task, outputs, values, tables, cells, directions)
            objective = objective + 0.6 * apart
        assert_gradient(total, len(outputs) * objective, network)


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
    seen = {name: [] for name in ("noise", "batches", "sums", "releases")}

    def spy(owner, name, note):
        original = getattr(owner, name)

        def spied(*args, **options):
            found = original(*args, **options)
            note(found, *args, **options)
            return found

        monkeypatch.setattr(owner, name, spied)

    spy(
        noisy_sums,
        "noisy_sum",
        lambda noisy, values, noise, _: seen["noise"].append((noise.sigma, noisy - values)),
    )
    spy(Records, "take", lambda _, __, batch: seen["batches"].append(batch))
    spy(
        fair,
        "release_tables",
        lambda *args, **options: seen["releases"].append((len(seen["batches"]), args, options)),
    )
    spy(
        fair,
        "pulled_back_sum",
        lambda total, *_: seen["sums"].append({p: v.clone() for p, v in total.items()}),
    )
    return seen


def run(mode, network, plan, **changes):
    """Take all steps, and return the gradients of each."""
    task = TASKS["softmax"]
    given = {"loss": fair_loss(task, 0.5, 1.0, 1.0), "cells": CELLS, "plan": plan}
    given["secret"] = SecretStream()
    if mode == "ranks":
        penalty = ParityPenalty(CELLS.strata, plan.batch_sizes)
        directions = [task.compared.directions(3, RNG) for _ in range(N_STEPS)]
        step = ranked_steps(RECORDS, penalty=penalty, directions=directions, **given)
    else:
        options = {"noise": plan_tables(0.5, 2, 3, 40), "release_at": (20, 40)} | changes
        step = tabled_steps(RECORDS, n_projections=3, public=RNG, **given, **options)
    gradients = []
    for number in range(N_STEPS):
        network.zero_grad()
        step(network, number)
        gradients.append([p.grad for p in network.parameters()])
    return gradients


MODES = [("tables", "poisson"), ("ranks", "without_replacement")]


@pytest.mark.parametrize(("mode", "sampling"), MODES)
def test_every_gradient_is_a_sum_with_noise_over_the_public_batch_size(mode, sampling, spied):
    """Noise of the plan's sigma for every parameter of every step, and none drawn twice."""
    network, plan = mlp(3), planned(sampling)
    gradients = run(mode, network, plan)
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


@pytest.mark.parametrize("release_at", [(0, 30), (5, 6, 7)])
def test_tables_are_released_when_planned_and_not_more_often(release_at, spied):
    noise = plan_tables(0.5, len(release_at), 3, 40)
    run("tables", linear(3), planned("poisson"), release_at=release_at, noise=noise)
    assert tuple(number for number, *_ in spied["releases"]) == release_at
    previous = None
    for _, (found, values, codes, sizes, *_, used, _), options in spied["releases"]:
        assert values.shape == (150, 3)
        assert (codes is CELLS.codes, sizes, used is noise) == (True, SIZES, True)
        assert options["previous"] is previous
        previous = found


def test_an_empty_batch_is_noise_alone(monkeypatch, spied):
    plan = planned("poisson")
    empty = np.array([], dtype=np.intp)
    monkeypatch.setattr(type(plan), "batches", lambda *_: iter([empty] * N_STEPS))
    gradients = run("tables", linear(3), plan)
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
