"""Steps of training: what they add up, the noise and the batches of each, what one record moves."""

import math
from dataclasses import replace
from types import SimpleNamespace

import numpy as np
import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from scipy import stats
from torch import nn

from skdpot._utils.streams import SecretStream
from skdpot.fair.ranked_outputs import ranked_steps
from skdpot.fair.sketched_outputs import tabled_steps
from skdpot.fair.training_rows import TrainingRows
from skdpot.nets import gradient_release
from skdpot.nets.cells import Cells
from skdpot.nets.layers import ToSphere
from skdpot.nets.local_penalty import LocalPenalty, network_outputs
from skdpot.nets.output_tables import plan_output_tables
from skdpot.nets.parity_penalty import ParityPenalty, fixed_side_sensitivity
from skdpot.nets.training_plan import TrainingPlan, plan_training
from skdpot.ot.directions import orthogonal_directions
from skdpot.privacy.events import NonPrivateEvent
from skdpot.privacy.noise import noise_for_sums, noisy_sum
from skdpot.privacy.sampling import SampledGaussianEvent
from skdpot.privacy.targets import SingleFitTarget
from skdpot.release.gate import record_releases
from skdpot.sampling.autoencoder_training import AutoencoderLoss, private_steps, public_steps
from skdpot.sampling.code_distances import ParityDistance, PriorDistance
from skdpot.sampling.generator_gradient_steps import clipped_gradient, noisy_gradient_steps
from tests.core.nets.jacobian_sums import chunks_of, wasserstein_vectors
from tests.fair.fair_tasks import (
    N_FEATURES,
    TASKS,
    SometimesBroken,
    fair_loss,
    flat,
    joint_sum,
    mlp,
    ranked_sum,
)

LATENT_DIM, N_STEPS, N = 3, 60, 150
RNG = np.random.default_rng(3511)
SIZES = (40, 60, 50)
CELLS = Cells(RNG.permutation(np.repeat(np.arange(3), SIZES)), SIZES, ((0, 1, 2),))
ROWS = torch.from_numpy(RNG.uniform(-1, 1, (N, N_FEATURES))).float()
RECORDS = TrainingRows(ROWS, TASKS["softmax"].targets(N, RNG))
DIRECTIONS = orthogonal_directions(2 * N_FEATURES, N_FEATURES, RNG).astype(np.float32)
RADIUS = math.sqrt(N_FEATURES)
PENALTIES = {
    "none": None,
    "prior": PriorDistance(
        prior="sphere", latent_dim=LATENT_DIM, batch_sizes=(30,), n_projections=LATENT_DIM
    ),
    "parity": ParityDistance(
        latent_dim=LATENT_DIM, batch_sizes=(8, 12, 10), clip_output=2.0, n_projections=6
    ),
}
# Cells and sizes of batches of the same rate.
BATCHES = {"poisson": (N, 30), "one size": (N, 30), "cells": (SIZES, (8, 12, 10))}


@pytest.fixture(scope="module", autouse=True)
def _small_chunks():
    with chunks_of(10):
        yield


def planned(batches, sensitivity=2.0, *, epsilon=1.0, n_steps=N_STEPS, **options):
    n_samples, batch_size = BATCHES.get(batches, batches)
    return plan_training(
        SingleFitTarget(epsilon, 1e-5),
        n_samples=n_samples,
        batch_size=batch_size,
        n_steps=n_steps,
        sampling="poisson" if batches == "poisson" else "without_replacement",
        sensitivity=sensitivity,
        n_parameters=100,
        **options,
    )


def autoencoder(seed=0, weight=1.0):
    generator = torch.Generator().manual_seed(seed)
    encoder = nn.Sequential(nn.Linear(N_FEATURES, 5), nn.Tanh(), nn.Linear(5, LATENT_DIM))
    decoder = nn.Sequential(nn.Linear(LATENT_DIM, N_FEATURES), nn.Tanh())
    network = nn.Sequential(nn.Sequential(encoder, ToSphere()), decoder)
    for parameter in network.parameters():
        nn.init.uniform_(parameter, -weight, weight, generator=generator)
    return network


def generator(weight=1.0):
    network = nn.Sequential(nn.Linear(2, 8), nn.ReLU(), nn.Linear(8, N_FEATURES))
    source = torch.Generator().manual_seed(0)
    for parameter in network.parameters():
        nn.init.uniform_(parameter, -weight, weight, generator=source)
    return network


def loss(penalty="none", clip=0.7, clip_jacobian=0.3, sizes=None, alpha=0.4):
    term = PENALTIES[penalty]
    if term is not None and sizes is not None:
        term = replace(term, batch_sizes=sizes)
    return AutoencoderLoss(clip=clip, penalty=term, alpha=alpha, clip_jacobian=clip_jacobian)


# --- every way of training: its noise and its batches ---------------------------------------------


def of_autoencoder(penalty):
    batches = {"none": "poisson", "prior": "one size", "parity": "cells"}[penalty]
    goal, cells = loss(penalty), CELLS if penalty == "parity" else None

    def steps(plan, secret):
        return private_steps(goal, ROWS, plan, secret, np.random.default_rng(0), cells)

    def exact(network, batch, facts):
        return goal.clipped_sum(network, ROWS[batch], facts["directions"])

    return autoencoder(), planned(batches, goal.sensitivity), steps, exact


def of_generator(clip=1.0):
    latents, reach = RNG.normal(size=(10, 2)).astype(np.float32), 4 * RADIUS
    bound = fixed_side_sensitivity(RADIUS, clip, len(DIRECTIONS), math.sqrt(2))

    def steps(plan, secret):
        given = iter([DIRECTIONS] * N_STEPS), lambda: latents, clip, secret
        return noisy_gradient_steps(ROWS.numpy(), RADIUS, plan, *given)

    def exact(network, batch, facts):
        inputs = torch.as_tensor(facts["inputs"])
        options = facts["directions"], facts["clip_jacobian"], reach
        total = clipped_gradient(network, inputs, ROWS[batch].numpy(), *options)
        return {parameter: len(batch) * value for parameter, value in total.items()}

    return generator(), planned("one size", bound), steps, exact


def of_ranks():
    goal, penalty = fair_loss(TASKS["softmax"], 0.5, 1.0, 1.0), ParityPenalty(CELLS.strata, SIZES)
    penalty = replace(penalty, batch_sizes=BATCHES["cells"][1])
    along = [goal.compared.directions(3, RNG) for _ in range(N_STEPS)]

    def steps(plan, secret):
        given = {"loss": goal, "cells": CELLS, "penalty": penalty, "directions": along}
        return ranked_steps(RECORDS, plan=plan, secret=secret, **given)

    def exact(network, batch, facts):
        given = RECORDS.take(batch), penalty, facts["directions"]
        return ranked_sum(goal, network, *given)

    return mlp(3), planned("cells"), steps, exact


def of_tables(release_at=(20, 40)):
    goal = fair_loss(TASKS["softmax"], 0.5, 1.0, 1.0)

    def steps(plan, secret):
        given = {"loss": goal, "cells": CELLS, "n_projections": 3, "public": RNG}
        noise = plan_output_tables(100.0, len(release_at), 3, 40)
        given |= {"noise": noise, "release_at": release_at}
        return tabled_steps(RECORDS, plan=plan, secret=secret, **given)

    def exact(network, batch, facts):
        local, tables = None, facts["tables"]
        if tables is not None:
            values = tables.values_of(ROWS, CELLS.codes)
            local = LocalPenalty.of_release(tables, values, CELLS)
        return joint_sum(goal, network, RECORDS, local, batch)

    return mlp(3), planned("poisson"), steps, exact


WAYS = {
    "autoencoder": lambda: of_autoencoder("none"),
    "autoencoder, prior": lambda: of_autoencoder("prior"),
    "autoencoder, parity": lambda: of_autoencoder("parity"),
    "generator": of_generator,
    "ranks": of_ranks,
    "tables": of_tables,
}


def trained(network, plan, steps, exact, batches=TrainingPlan.batches):
    """Take all steps, and return what is drawn, added up, released and handed on."""
    seen = SimpleNamespace(network=network, plan=plan, exact=exact, sums=[], found=[])
    seen.batches, seen.n_places = [], set()

    def watched(*args):
        for batch in batches(*args):
            seen.batches.append(batch[batch >= 0])
            seen.n_places.add(len(batch))
            yield batch

    def added(values, noise, secret):
        total = noisy_sum(values, noise, secret)
        seen.sums.append((values, noise.sigma, total))
        return total

    with pytest.MonkeyPatch.context() as patch, record_releases() as seen.releases:
        patch.setattr(TrainingPlan, "batches", watched)
        patch.setattr(gradient_release, "noisy_sum", added)
        step = steps(plan, SecretStream())
        for number in range(N_STEPS):
            step(network, number)
            seen.found.append(torch.cat([p.grad.flatten() for p in network.parameters()]).numpy())
    return seen


@pytest.fixture(scope="module", params=WAYS)
def taken(request):
    return trained(*WAYS[request.param]())


def test_a_step_is_the_noisy_sum_of_its_batch_over_the_public_batch_size(taken):
    """Noise of the plan's sigma for every parameter of every step, and none drawn twice."""
    facts = [release.facts for release in taken.releases if release.kind == "gradient"]
    steps = zip(taken.batches, facts, taken.sums, taken.found, strict=True)
    for batch, of_step, (values, sigma, total), gradient in steps:
        exact = flat(taken.exact(taken.network, batch, of_step)).numpy()
        np.testing.assert_allclose(values, exact, rtol=1e-5, atol=1e-7)
        np.testing.assert_allclose(gradient, total / taken.plan.batch_size, rtol=1e-6, atol=1e-7)
        assert sigma == taken.plan.sigma == taken.plan.event.sigma > 0
    noise = np.array([total - values for values, _, total in taken.sums])
    assert len({drawn.tobytes() for drawn in noise}) == len(noise) == N_STEPS
    # Chi-squared with as many degrees as numbers; false alarms 1e-6.
    low, high = stats.chi2(noise.size).ppf([5e-7, 1 - 5e-7])
    assert low < np.sum((noise / taken.plan.sigma) ** 2) < high


def test_batches_are_fresh_and_as_large_as_is_charged(taken):
    """Each record is in Bin(60, 0.2) batches, or hypergeometric ones by cell.

    Records in both of two neighbouring batches: 0.04 of all, in 59 pairs of batches; the limits
    below are 5.5 standard deviations away. Batches cut from one permutation have none.
    """
    member = np.array([np.bincount(batch, minlength=N) for batch in taken.batches])
    assert member.shape == (N_STEPS, N)
    assert member.max() == 1
    in_both = np.sum(member[1:] * member[:-1])
    assert abs(in_both - 59 * N * 0.04) < 5.5 * math.sqrt(59 * N * 0.04)
    statistic = np.sum((member.sum(axis=0) - N_STEPS * 0.2) ** 2) / (N_STEPS * 0.2 * 0.8)
    assert 0.3 * N < statistic < 1.9 * N
    sizes = member.sum(axis=1)
    assert len(taken.n_places) == 1
    if taken.plan.sampling == "poisson":
        assert len(np.unique(sizes)) > 5
        assert abs(sizes.mean() - 30) < 5.5 * math.sqrt(24 / N_STEPS)
    elif len(taken.plan.batch_sizes) == 1:
        assert set(sizes) == {30}
    else:
        of_cells = [CELLS.codes[batch].tolist() for batch in taken.batches]
        assert of_cells == [[0] * 8 + [1] * 12 + [2] * 10] * N_STEPS


@pytest.mark.parametrize("name", ["autoencoder", "tables"])
def test_an_empty_batch_is_noise_alone(name):
    taken = trained(*WAYS[name](), batches=lambda *_: iter([np.array([], np.intp)] * N_STEPS))
    assert not any(values.any() for values, *_ in taken.sums)
    np.testing.assert_allclose(taken.found, [total / 30 for *_, total in taken.sums], rtol=1e-6)


@pytest.mark.parametrize("release_at", [(0, 30), (5, 6, 7)])
def test_tables_are_released_when_planned_and_not_more_often(release_at):
    """Each one looks more closely where the one before has found the outputs."""
    releases = trained(*of_tables(release_at)).releases
    places = [number for number, release in enumerate(releases) if release.kind == "table"]
    assert tuple(place - before for before, place in enumerate(places)) == release_at
    widths = [releases[place].facts["half_widths"].sum() for place in places]
    assert all(width < 0.9 * widths[0] for width in widths[1:])


def test_events_of_cells_and_of_small_data():
    made = planned(((100, 60), (20, 20)), 1.4, sigma=1.5, n_steps=40)
    noise = noise_for_sums(1.5, 1.4, 100)
    assert made.event == SampledGaussianEvent(
        sampling="fixed_size",
        batch_sizes=(20, 20),
        group_sizes=(100, 60),
        n_steps=40,
        **vars(noise),
    )
    assert made.sampling_rate == made.event.rate == 1 / 3
    assert (made.n_samples, made.batch_size) == (160, 40)
    assert planned(((100, 60), (20, 500)), sigma=1.0).batch_sizes == (20, 60)
    assert planned((15, 20), sigma=1.0).batch_size == 15
    for none in (planned("poisson", epsilon=math.inf), planned("poisson", sigma=0.0)):
        assert (none.sigma, none.event) == (0.0, NonPrivateEvent())


def test_public_epochs_visit_every_row_once_group_after_group():
    seen = []

    class Spy(nn.Identity):
        def forward(self, rows):
            seen.append(rows[:, 0].tolist())
            return rows

    network = nn.Sequential(nn.Sequential(Spy(), nn.Linear(6, LATENT_DIM)), nn.Linear(3, 6))
    rows = torch.arange(50.0)[:, None].expand(50, 6)
    members = [np.arange(0, 30), np.arange(30, 50)]
    goal = loss("parity", sizes=(12, 8))
    steps = public_steps(goal, rows, (12, 8), np.random.default_rng(0), members)
    for number in range(2):
        steps(network, number)
    assert all(max(batch[:12]) < 30 <= min(batch[12:]) for batch in seen)
    assert len(set(sum(seen, []))) == 40


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


# --- sums of autoencoders and generators; those of fair training in `test_fair_sums` --------------


def summed(goal, network, rows, directions):
    return flat(goal.clipped_sum(network, torch.as_tensor(rows, dtype=torch.float32), directions))


def assert_gradient(found, objective, network):
    parts = torch.autograd.grad(objective, list(network.parameters()))
    expected = torch.cat([part.flatten() for part in parts]).double()
    torch.testing.assert_close(found, expected, rtol=1e-4, atol=1e-5)


@pytest.mark.parametrize("penalty", PENALTIES)
def test_without_clipping_a_sum_is_the_gradient_of_the_objective(penalty):
    """(1 - alpha) times the reconstruction error and alpha times the distance of codes."""
    goal, network, rows = loss(penalty, clip=1e9, clip_jacobian=1e9), autoencoder(), ROWS[:30]
    directions = None if goal.penalty is None else goal.penalty.directions(RNG)
    codes = network[0](rows)
    objective = ((network[1](codes) - rows) ** 2).sum() / 2
    if goal.penalty is not None:
        vectors = goal.penalty.vectors(codes.detach(), directions)
        objective = 0.6 * objective + 0.4 * (vectors * codes).sum()
    assert_gradient(summed(goal, network, rows, directions), objective, network)


def generated(network, rows, latents, clip=1.0, directions=DIRECTIONS, reach=4 * RADIUS):
    """The summed gradient of a generator, as its sensitivity bounds it."""
    total = clipped_gradient(network, latents, rows, directions, clip, reach)
    return len(rows) * flat(total)


def test_without_clipping_a_generators_gradient_is_that_of_the_distance():
    network, latents = generator(), torch.from_numpy(RNG.normal(size=(7, 2))).float()
    outputs = network(latents)
    pulls = wasserstein_vectors(outputs.detach().double().numpy(), ROWS.numpy(), DIRECTIONS)
    found = generated(network, ROWS.numpy(), latents, clip=1e6) / N
    assert_gradient(found, (torch.from_numpy(pulls) * outputs).sum(), network)


def test_outputs_and_jacobians_of_a_generator_are_clipped_apart():
    """As in the paper: (clip(g) - h) times the clipped Jacobian, whether g was clipped."""
    module = nn.Linear(1, 1, bias=False).double()
    nn.init.constant_(module.weight, 5.0)
    inputs, points = torch.tensor([[7.0]]).double(), np.array([[-1.0]])
    total = generated(module, points, inputs, 2.0, np.ones((1, 1)), 0.5)
    assert total.item() == pytest.approx(2 * 1.5 * 2.0, rel=2e-6)


@settings(max_examples=60, deadline=None)
@given(
    case=st.sampled_from(
        [
            ("none", (9,)),
            ("prior", (9,)),
            ("parity", (4, 4)),
            ("parity", (7, 3)),
            ("parity", (3, 4, 2)),
        ]
    ),
    weight=st.sampled_from([0.1, 1.0, 30.0]),
    ties=st.booleans(),
    seed=st.integers(0, 2**16),
)
def test_no_neighbour_moves_a_sum_further_than_the_sensitivity(case, weight, ties, seed):
    """Through the network, in single precision."""
    (penalty, sizes), rng = case, np.random.default_rng(seed)
    goal, network = loss(penalty, sizes=sizes), autoencoder(seed, weight)
    if penalty == "parity":
        network[0] = network[0][0]  # codes anywhere, on the clip with large weights
    n, directions = sum(sizes), None if penalty == "none" else goal.penalty.directions(rng)
    rows = rng.uniform(-1, 1, (n, N_FEATURES))
    if ties:
        rows[:] = rows[0]
    other = rows.copy()
    other[rng.integers(n)] = rng.choice([-1.0, 1.0], N_FEATURES)
    moved = summed(goal, network, rows, directions) - summed(goal, network, other, directions)
    assert float(moved.norm()) <= goal.sensitivity
    if penalty != "none":
        assert goal.sensitivity == pytest.approx(0.84 + 0.4 * goal.penalty.sensitivity(0.3))


@settings(max_examples=40, deadline=None)
@given(st.sampled_from(["prior", "parity"]), st.sampled_from([0.1, 1.0, 30.0]), st.integers(0, 999))
def test_no_neighbour_moves_a_sum_with_released_codes_further(penalty, weight, seed):
    """What a record is pulled by follows from its code and the release, and may be anything."""
    n, rng, network = 9, np.random.default_rng(seed), autoencoder(seed, weight)
    goal = replace(loss(penalty), n_releases=3)
    network[0] = network[0][0] if penalty == "parity" else network[0]
    rows, where = rng.uniform(-1, 1, (n, N_FEATURES)), rng.integers(n)
    values, pulls = 10.0 ** rng.integers(-3, 4) * rng.normal(size=(2, n, LATENT_DIM))
    stiffness = np.tile(np.eye(LATENT_DIM), (n, 1, 1))
    sums = []
    for _ in range(2):
        rows[where] = rng.choice([-1.0, 1.0], N_FEATURES)
        values[where], pulls[where] = 100.0 * rng.choice([-1.0, 1.0], (2, LATENT_DIM))
        local = LocalPenalty(*(torch.from_numpy(a.copy()) for a in (values, pulls, stiffness)))
        sums.append(flat(goal.local_sum(network, torch.from_numpy(rows).float(), local)))
    assert goal.sensitivity == pytest.approx(4 * 0.6 * 0.7)
    assert float((sums[0] - sums[1]).norm()) <= goal.sensitivity


def test_the_clipping_norm_of_pulls_is_attained():
    """Opposite pulls of the same row."""
    network = nn.Sequential(nn.Linear(1, 1, bias=False), nn.Linear(1, 1))
    for parameter in network.parameters():
        nn.init.zeros_(parameter)
    network[1].weight.requires_grad_(False)
    distance = ParityDistance(latent_dim=1, batch_sizes=(1, 1), clip_output=2.0, n_projections=1)
    goal = AutoencoderLoss(clip=0.7, penalty=distance, alpha=0.4)
    goal, sums = replace(goal, n_releases=1), []
    for sign in (-1.0, 1.0):
        pulls = torch.tensor([[100.0 * sign]], dtype=torch.float64)
        local = LocalPenalty(torch.zeros(1, 1).double(), pulls, torch.zeros(1, 1, 1).double())
        sums.append(flat(goal.local_sum(network, torch.full((1, 1), 100.0), local)))
    moved = float((sums[0] - sums[1]).norm())
    assert moved == pytest.approx(2 * 0.6 * 0.7, rel=1e-5)


def test_twice_the_clipping_norm_is_attained_without_a_penalty():
    """A decoder that is an offset: opposite records have opposite gradients."""
    network = nn.Sequential(nn.Identity(), nn.Linear(N_FEATURES, N_FEATURES))
    nn.init.zeros_(network[1].weight).requires_grad_(False)
    nn.init.zeros_(network[1].bias)
    rows, other = np.ones((2, 3, N_FEATURES))
    other[1] *= -1
    moved = float(
        (summed(loss(), network, rows, None) - summed(loss(), network, other, None)).norm()
    )
    assert 0.998 * 1.4 <= moved <= loss().sensitivity == 1.4


def test_the_sensitivity_is_attained_through_the_clipped_sum_of_groups():
    """A linear encoder of one code: opposite rows have opposite Jacobians, at any code."""
    network = nn.Sequential(nn.Linear(2, 1, bias=False), nn.Linear(1, 2))
    with torch.no_grad():
        network[0].weight[:] = torch.tensor([[1.0, 0.0]])
    for parameter in network[1].parameters():
        nn.init.zeros_(parameter).requires_grad_(False)
    term = ParityDistance(latent_dim=1, batch_sizes=(20, 20), clip_output=2.0, n_projections=1)
    goal = AutoencoderLoss(clip=1e-6, penalty=term, alpha=0.99, clip_jacobian=0.3)
    rows = np.zeros((40, 2))
    rows[0], rows[1:20] = (0.0, 50.0), (0.0, -50.0)  # code 0; Jacobians far beyond the clip
    rows[20:39, 0], rows[39, 0] = -100.0, 100.0  # shortened to -M and M
    other = rows.copy()
    other[0] = (1e-3, 50.0)
    sums = [summed(goal, network, x, np.ones((1, 1))) for x in (rows, other)]
    assert 0.99 * goal.sensitivity <= float((sums[0] - sums[1]).norm()) <= goal.sensitivity


@pytest.mark.parametrize("clip", [0.3, 1.0])
@pytest.mark.parametrize("kind", ["ordinary", "steep", "not finite"])
def test_no_neighbour_moves_a_generators_gradient_further_than_the_sensitivity(kind, clip):
    """One record to the opposite side of the ball; the others anywhere, or in one place."""
    bound, moved = of_generator(clip)[1].sensitivity, []
    network = generator(30.0 if kind == "steep" else 1.0)
    if kind == "not finite":
        with torch.no_grad():
            network[2].weight[0], network[2].bias[1] = float("nan"), float("inf")
    latents = torch.from_numpy(RNG.normal(size=(30, 2))).float()
    for record in range(20):
        rows = RNG.normal(size=(40, N_FEATURES))
        rows *= RADIUS / np.linalg.norm(rows, axis=1, keepdims=True)
        rows = rows if record % 2 else np.tile(rows[:1], (40, 1))
        other = rows.copy()
        other[record] *= -1
        sums = [generated(network, x, latents, clip) for x in (rows, other)]
        moved.append(float((sums[0] - sums[1]).norm()))
    assert np.max(moved) <= bound
    assert np.max(moved) > 0.2 * bound or kind == "not finite"
