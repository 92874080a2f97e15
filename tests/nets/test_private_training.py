"""Noisy sums of clipped gradients: sensitivity, noise, batches, account."""

import math
from dataclasses import replace
from itertools import pairwise

import numpy as np
import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from scipy import stats
from torch import nn

from skdpot._utils.validation import SecretStream
from skdpot.nets.autoencoder_training import (
    AutoencoderLoss,
    ParityDistance,
    PriorDistance,
    private_steps,
    public_steps,
)
from skdpot.privacy.accounting import PrivacyTarget
from skdpot.privacy.events import NonPrivateEvent
from skdpot.privacy.noise import noise_for_sums
from skdpot.privacy.sampling import SampledGaussianEvent
from skdpot.release.bounds import DataBounds
from skdpot.release.gradients import plan_training
from skdpot.release.output_tables import Cells
from skdpot.release.per_sample import ToSphere
from tests.release.jacobian_sums import chunks_of

N_FEATURES, LATENT_DIM = 6, 3
BOX = DataBounds.from_box(-1, 1, N_FEATURES)
TARGET = PrivacyTarget(2.0, 1e-5)


@pytest.fixture(scope="module", autouse=True)
def _small_chunks():
    with chunks_of(4):
        yield


def autoencoder(seed=0, weight=1.0):
    generator = torch.Generator().manual_seed(seed)
    encoder = nn.Sequential(nn.Linear(N_FEATURES, 5), nn.Tanh(), nn.Linear(5, LATENT_DIM))
    decoder = nn.Sequential(nn.Linear(LATENT_DIM, N_FEATURES), nn.Tanh())
    network = nn.Sequential(nn.Sequential(encoder, ToSphere()), decoder)
    for parameter in network.parameters():
        nn.init.uniform_(parameter, -weight, weight, generator=generator)
    return network


CELLS = Cells(np.repeat([0, 1], [120, 80]), (120, 80), ())
PENALTIES = {
    "none": (None, (20,)),
    "prior": (PriorDistance("sphere", LATENT_DIM, (20,), LATENT_DIM), (20,)),
    "parity": (ParityDistance(LATENT_DIM, (12, 8), 2.0, 6), (12, 8)),
}
every_penalty = pytest.mark.parametrize("penalty", PENALTIES)


def loss(penalty="none", alpha=0.4, clip=0.7, clip_jacobian=0.3, sizes=None):
    term = PENALTIES[penalty][0]
    if term is not None and sizes is not None:
        term = replace(term, batch_sizes=sizes)
    return AutoencoderLoss(clip=clip, penalty=term, alpha=alpha, clip_jacobian=clip_jacobian)


def plan(sampling="poisson", sizes=(200,), taken=(20,), target=TARGET, **changes):
    options = {"n_steps": 40, "sensitivity": 1.4, "n_parameters": 100, "bounds": BOX} | changes
    return plan_training(target, n_samples=sizes, batch_size=taken, sampling=sampling, **options)


def summed(goal, network, rows, directions):
    total = goal.clipped_sum(network, torch.as_tensor(rows, dtype=torch.float32), directions)
    return torch.cat([value.flatten() for value in total.values()])


def directions_of(goal, rng):
    return None if goal.penalty is None else goal.penalty.directions(rng)


@every_penalty
def test_without_clipping_a_sum_is_the_gradient_of_the_objective(penalty):
    """(1 - alpha) times the reconstruction error and alpha times the distance of codes."""
    rng = np.random.default_rng(0)
    goal, network = loss(penalty, clip=1e9, clip_jacobian=1e9), autoencoder()
    rows = torch.from_numpy(rng.uniform(-1, 1, (20, N_FEATURES))).float()
    directions = directions_of(goal, rng)
    codes = network[0](rows)
    objective = ((network[1](codes) - rows) ** 2).sum() / 2
    if goal.penalty is not None:
        vectors = goal.penalty.vectors(codes.detach(), directions)
        objective = 0.6 * objective + 0.4 * (vectors * codes).sum()
    gradient = torch.autograd.grad(objective, list(network.parameters()))
    expected = torch.cat([part.flatten() for part in gradient]).double()
    found = summed(goal, network, rows, directions)
    torch.testing.assert_close(found, expected, rtol=1e-4, atol=1e-5)


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
    n, directions = sum(sizes), directions_of(goal, rng)
    rows = rng.uniform(-1, 1, (n, N_FEATURES))
    if ties:
        rows[:] = rows[0]
    other = rows.copy()
    other[rng.integers(n)] = rng.choice([-1.0, 1.0], N_FEATURES)
    moved = summed(goal, network, rows, directions) - summed(goal, network, other, directions)
    assert float(moved.norm()) <= goal.sensitivity
    if penalty != "none":
        assert goal.sensitivity == pytest.approx(0.84 + 0.4 * goal.penalty.sensitivity(0.3))


def test_twice_the_clipping_norm_is_attained_without_a_penalty():
    """A decoder that is an offset: opposite records have opposite gradients."""
    network = nn.Sequential(nn.Identity(), nn.Linear(N_FEATURES, N_FEATURES))
    nn.init.zeros_(network[1].weight)
    nn.init.zeros_(network[1].bias)
    network[1].weight.requires_grad_(False)
    goal = loss()
    rows = np.ones((3, N_FEATURES))
    other = rows.copy()
    other[1] *= -1
    moved = float((summed(goal, network, rows, None) - summed(goal, network, other, None)).norm())
    assert 0.998 * goal.sensitivity <= moved <= goal.sensitivity == 1.4


def test_the_sensitivity_is_attained_through_the_clipped_sum_of_groups():
    """A linear encoder of one code: opposite rows have opposite Jacobians, at any code."""
    network = nn.Sequential(nn.Linear(2, 1, bias=False), nn.Linear(1, 2))
    with torch.no_grad():
        network[0].weight[:] = torch.tensor([[1.0, 0.0]])
    for parameter in network[1].parameters():
        nn.init.zeros_(parameter).requires_grad_(False)
    term = ParityDistance(1, (20, 20), 2.0, 1)
    goal = AutoencoderLoss(clip=1e-6, penalty=term, alpha=0.99, clip_jacobian=0.3)
    rows = np.zeros((40, 2))
    rows[0], rows[1:20] = (0.0, 50.0), (0.0, -50.0)  # code 0; Jacobians far beyond the clip
    rows[20:39, 0], rows[39, 0] = -100.0, 100.0  # shortened to -M and M
    other = rows.copy()
    other[0] = (1e-3, 50.0)
    sums = [summed(goal, network, x, np.ones((1, 1))) for x in (rows, other)]
    assert 0.99 * goal.sensitivity <= float((sums[0] - sums[1]).norm()) <= goal.sensitivity


def gradients_of_steps(penalty, made, network, rows, n_steps=1, seed=1):
    cells = CELLS if penalty == "parity" else None
    steps = private_steps(
        loss(penalty), rows, made, SecretStream(seed), np.random.default_rng(0), cells
    )
    found = []
    for number in range(n_steps):
        steps(network, number)
        found.append(torch.cat([p.grad.flatten() for p in network.parameters()]).double())
    return torch.stack(found)


@pytest.mark.parametrize("sampling", ["poisson", "without_replacement"])
def test_the_noise_has_the_scale_of_the_event_and_is_fresh(sampling):
    """Ten thousand draws: a false alarm once in a million runs (Kolmogorov and Smirnov)."""
    network = autoencoder(weight=0.0)
    nn.init.zeros_(network[1][0].bias)
    made = plan(sampling, sigma=3.7, n_steps=100)
    rows = torch.zeros(200, N_FEATURES)  # no error, no gradient: noise alone
    noise = gradients_of_steps("none", made, network, rows, 100) * made.batch_size
    assert made.event.sigma == 3.7
    assert noise.numel() >= 5000
    assert stats.kstest(noise.flatten().numpy() / 3.7, "norm").pvalue > 1e-6
    assert abs(float(torch.corrcoef(noise[:2])[0, 1])) < 0.7
    assert len({of_step.numpy().tobytes() for of_step in noise}) == 100


@every_penalty
def test_a_step_is_the_sum_of_its_batch_over_the_expected_size(penalty):
    """The size of a Poisson batch is secret."""
    network, taken = autoencoder(), PENALTIES[penalty][1]
    sizes = CELLS.sizes if len(taken) > 1 else (200,)
    sampling = "poisson" if penalty == "none" else "without_replacement"
    made, goal = plan(sampling, sizes, taken, sigma=0.0), loss(penalty)
    rows = torch.from_numpy(np.random.default_rng(0).uniform(-1, 1, (200, 6))).float()
    batch = next(made.batches(SecretStream(5), CELLS.members if len(taken) > 1 else None))
    directions = directions_of(goal, np.random.default_rng(0))
    expected = summed(goal, network, rows[batch], directions) / 20
    (found,) = gradients_of_steps(penalty, made, network, rows, seed=5)
    torch.testing.assert_close(found, expected, rtol=1e-5, atol=1e-7)
    assert (len(batch) == 20) == (penalty != "none")


def test_batches_are_those_of_the_event():
    poisson = [len(batch) for batch in plan(n_steps=400).batches(SecretStream(2))]
    assert len(poisson) == 400
    # Five standard deviations of the mean of 400 sizes.
    assert abs(np.mean(poisson) - 20) < 5 * math.sqrt(200 * 0.1 * 0.9 / 400)
    assert np.std(poisson) > 2
    fixed = list(plan("without_replacement").batches(SecretStream(2)))
    assert [len(batch) for batch in fixed] == [20] * 40
    assert len(np.unique(np.concatenate(fixed))) > 150
    assert len({tuple(batch) for batch in fixed}) == 40


def test_batches_of_cells_are_fresh_uniform_subsets_of_each():
    """Two fresh batches of 20 of 100 are disjoint once in 150 times, those of an epoch always."""
    made = plan("without_replacement", (100, 60), (20, 12), n_steps=400)
    order = np.random.default_rng(0).permutation(160)
    members = np.split(order, [100])
    batches = [np.split(batch, [20]) for batch in made.batches(SecretStream(2), members)]
    assert len(batches) == 400
    for cell, size, taken in zip((0, 1), (100, 60), (20, 12), strict=True):
        drawn = [batch[cell] for batch in batches]
        assert {len(np.unique(batch)) for batch in drawn} == {taken}
        counts = np.bincount(np.concatenate(drawn), minlength=160)[members[cell]]
        assert counts.sum() == 400 * taken
        # Each record by a binomial number: five standard deviations and a little.
        assert np.abs(counts - 80).max() < 5.5 * math.sqrt(400 * 0.2 * 0.8)
        assert len({tuple(batch) for batch in drawn}) == 400
        shared = [len(np.intersect1d(a, b)) for a, b in pairwise(drawn)]
        assert np.mean(shared) == pytest.approx(taken**2 / size, abs=0.5)
        # In uniformly random order: the first place goes to every third of the cell.
        place = {record: k for k, record in enumerate(members[cell])}
        first = [place[batch[0]] * 3 // size for batch in drawn]
        assert np.bincount(first, minlength=3).min() > 80


def test_the_event_of_cells():
    made = plan("without_replacement", (100, 60), (20, 20), sigma=1.5)
    noise = noise_for_sums(1.5, 1.4, 100)
    assert made.event == SampledGaussianEvent(
        sampling="fixed_size",
        sigma=1.5,
        sensitivity=noise.sensitivity,
        batch_sizes=(20, 20),
        group_sizes=(100, 60),
        n_steps=40,
        lattice=noise.lattice,
    )
    assert made.sampling_rate == made.event.rate == 1 / 3
    assert (made.n_samples, made.batch_size) == (160, 40)
    assert TARGET.admits(plan("without_replacement", (100, 60), (20, 20)).event)
    assert plan("without_replacement", (100, 60), (20, 500)).batch_sizes == (20, 60)
    small = plan(sizes=(15,))
    assert (small.batch_size, small.sampling_rate) == (15, 1.0)


def test_public_epochs_visit_every_row_once_group_after_group():
    seen = []

    class Spy(nn.Identity):
        def forward(self, rows):
            seen.append(rows[:, 0].tolist())
            return rows

    network = nn.Sequential(
        nn.Sequential(Spy(), nn.Linear(6, LATENT_DIM)), nn.Linear(LATENT_DIM, 6)
    )
    rows = torch.arange(50.0)[:, None].expand(50, 6)
    members = [np.arange(0, 30), np.arange(30, 50)]
    steps = public_steps(loss("parity"), rows, (12, 8), np.random.default_rng(0), members)
    for number in range(2):
        steps(network, number)
    assert all(max(batch[:12]) < 30 <= min(batch[12:]) for batch in seen)
    assert len(set(sum(seen, []))) == 40


def test_no_privacy_no_noise():
    for made in (plan(target=PrivacyTarget(math.inf, 1e-5)), plan(sigma=0.0)):
        assert made.sigma == 0.0
        assert made.event == NonPrivateEvent()
