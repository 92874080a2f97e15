"""Noisy sums of clipped gradients: sensitivity, noise, batches, account."""

import math
from itertools import pairwise

import numpy as np
import pytest
import torch
from dp_accounting import dp_event
from dp_accounting.pld import pld_privacy_accountant
from dp_accounting.privacy_accountant import NeighboringRelation
from hypothesis import given, settings
from hypothesis import strategies as st
from scipy import stats
from torch import nn

from skdpot._utils.validation import SecretStream
from skdpot.nets.autoencoder_training import (
    AutoencoderLoss,
    PriorDistance,
    private_steps,
    public_steps,
)
from skdpot.nets.training import train_network
from skdpot.privacy.accounting import PrivacyTarget, compose
from skdpot.privacy.events import ComposedEvent, NonPrivateEvent
from skdpot.privacy.noise import noise_for_sums
from skdpot.privacy.sampling import SampledGaussianEvent
from skdpot.release.bounds import DataBounds, plan_private_bounds
from skdpot.release.gradients import plan_training
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


def loss(batch_size, penalty=True, alpha=0.4, clip=0.7, clip_jacobian=0.3):
    prior = PriorDistance(
        prior="sphere", latent_dim=LATENT_DIM, batch_sizes=(batch_size,), n_projections=LATENT_DIM
    )
    return AutoencoderLoss(
        clip=clip,
        penalty=prior if penalty else None,
        alpha=alpha,
        clip_jacobian=clip_jacobian,
    )


def plan(sampling="poisson", sigma=None, bounds=BOX, n_samples=200, target=TARGET, n_steps=40):
    return plan_training(
        target,
        n_samples=n_samples,
        batch_size=20,
        n_steps=n_steps,
        sampling=sampling,
        sensitivity=1.4,
        n_parameters=100,
        bounds=bounds,
        sigma=sigma,
    )


def summed(goal, network, rows, directions):
    total = goal.clipped_sum(network, torch.from_numpy(rows).float(), directions)
    return torch.cat([value.flatten() for value in total.values()]).double()


@settings(max_examples=30, deadline=None)
@given(
    penalty=st.booleans(),
    weight=st.sampled_from([0.1, 1.0, 30.0]),
    ties=st.booleans(),
    seed=st.integers(0, 2**16),
)
def test_no_neighbour_moves_a_sum_further_than_the_sensitivity(penalty, weight, ties, seed):
    rng = np.random.default_rng(seed)
    goal, network = loss(9, penalty), autoencoder(seed, weight)
    directions = goal.penalty.directions(rng) if penalty else None
    rows = rng.uniform(-1, 1, (9, N_FEATURES))
    if ties:
        rows[:] = rows[0]
    other = rows.copy()
    other[rng.integers(9)] = rng.choice([-1.0, 1.0], N_FEATURES)
    moved = summed(goal, network, rows, directions) - summed(goal, network, other, directions)
    assert float(moved.norm()) <= goal.sensitivity


def test_twice_the_clipping_norm_is_attained_without_a_penalty():
    """A decoder that is an offset: opposite records have opposite gradients."""
    network = nn.Sequential(nn.Identity(), nn.Linear(N_FEATURES, N_FEATURES))
    nn.init.zeros_(network[1].weight)
    nn.init.zeros_(network[1].bias)
    network[1].weight.requires_grad_(False)
    goal = loss(3, penalty=False)
    rows = np.ones((3, N_FEATURES))
    other = rows.copy()
    other[1] *= -1
    moved = float((summed(goal, network, rows, None) - summed(goal, network, other, None)).norm())
    assert 0.998 * goal.sensitivity <= moved <= goal.sensitivity == 1.4


def test_sensitivity_with_a_penalty():
    goal = loss(250)
    assert goal.sensitivity == pytest.approx(0.6 * 2 * 0.7 + 0.4 * goal.penalty.sensitivity(0.3))


def test_the_penalty_moves_the_encoder_only():
    goal, network = loss(8, alpha=0.999), autoencoder()
    rows = torch.from_numpy(np.random.default_rng(0).uniform(-1, 1, (8, N_FEATURES))).float()
    directions = goal.penalty.directions(np.random.default_rng(0))
    with_penalty = goal.clipped_sum(network, rows, directions)
    without = loss(8, penalty=False).clipped_sum(network, rows, None)
    for parameter in network[1].parameters():
        torch.testing.assert_close(with_penalty[parameter], 0.001 * without[parameter])
    assert not torch.allclose(
        with_penalty[network[0][0][0].weight], 0.001 * without[network[0][0][0].weight]
    )


def gradients_of_steps(steps, network, n_steps=1):
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
    steps = private_steps(
        loss(20, penalty=False), rows, made, SecretStream(1), np.random.default_rng(0)
    )
    noise = gradients_of_steps(steps, network, 100) * made.batch_size
    assert made.event.sigma == 3.7
    assert noise.numel() >= 5000
    assert stats.kstest(noise.flatten().numpy() / 3.7, "norm").pvalue > 1e-6
    assert abs(float(torch.corrcoef(noise[:2])[0, 1])) < 0.7
    assert len({of_step.numpy().tobytes() for of_step in noise}) == 100


def test_a_step_divides_by_the_expected_size_of_the_batch():
    """The size of a Poisson batch is secret."""
    network = autoencoder()
    made = plan(sigma=0.0)
    rows = torch.from_numpy(np.random.default_rng(0).uniform(-1, 1, (200, 6))).float()
    goal = loss(20, penalty=False)
    batch = next(made.batches(SecretStream(5)))
    expected = summed(goal, network, rows[batch].numpy(), None) / 20
    steps = private_steps(goal, rows, made, SecretStream(5), np.random.default_rng(0))
    torch.testing.assert_close(gradients_of_steps(steps, network)[0], expected)
    assert len(batch) != 20


def test_an_empty_batch_is_noise_alone(monkeypatch):
    network, made = autoencoder(), plan("poisson", sigma=3.7)
    empty = np.array([], dtype=np.intp)
    monkeypatch.setattr(type(made), "batches", lambda *_: iter([empty] * 100))
    rows = torch.from_numpy(np.random.default_rng(0).uniform(-1, 1, (200, 6))).float()
    steps = private_steps(
        loss(20, penalty=False), rows, made, SecretStream(1), np.random.default_rng(0)
    )
    noise = gradients_of_steps(steps, network, 100) * made.batch_size
    assert stats.kstest(noise.flatten().numpy() / 3.7, "norm").pvalue > 1e-6


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


def test_the_event_of_poisson_training_costs_what_dp_accounting_says():
    """Replace-one, in units of the clipping norm C = 0.7, with Poisson batches."""
    made = plan(sigma=1.5, n_steps=300)
    noise = noise_for_sums(1.5, 1.4, 100)
    assert made.event == SampledGaussianEvent(
        sampling="poisson",
        sigma=1.5,
        sensitivity=noise.sensitivity,
        sampling_rate=0.1,
        n_steps=300,
        clipped_sum=True,
        lattice=noise.lattice,
    )
    accountant = pld_privacy_accountant.PLDAccountant(NeighboringRelation.REPLACE_ONE)
    multiplier = 2 * 1.5 / noise.sensitivity
    step = dp_event.PoissonSampledDpEvent(0.1, dp_event.GaussianDpEvent(multiplier))
    accountant.compose(step, 300)
    ours = compose(made.event).epsilon(1e-5)
    assert ours == pytest.approx(accountant.get_epsilon(1e-5), rel=1e-4)


def test_batches_of_a_fixed_size_have_their_own_event():
    noise = noise_for_sums(1.5, 1.4, 100)
    assert plan("without_replacement", sigma=1.5).event == SampledGaussianEvent(
        sampling="fixed_size",
        sigma=1.5,
        sensitivity=noise.sensitivity,
        batch_sizes=(20,),
        group_sizes=(200,),
        n_steps=40,
        lattice=noise.lattice,
    )


@pytest.mark.parametrize("sampling", ["poisson", "without_replacement"])
@pytest.mark.parametrize("private_bounds", [False, True])
def test_calibration_fills_the_target(sampling, private_bounds):
    bounds = plan_private_bounds(200, N_FEATURES, 0.2) if private_bounds else BOX
    made = plan(sampling, bounds=bounds)
    assert TARGET.admits(made.event)
    training = made.event.events[-1] if private_bounds else made.event
    assert training.sigma == made.sigma
    smaller = plan(sampling, bounds=bounds, target=PrivacyTarget(2.05, 1e-5))
    assert smaller.sigma < made.sigma
    if private_bounds:
        assert isinstance(made.event, ComposedEvent)
        assert made.event.events[0] == bounds.event
        assert made.sigma > plan(sampling).sigma


def test_small_data_sets_are_one_batch():
    made = plan(n_samples=15)
    assert made.batch_size == 15
    assert made.sampling_rate == 1.0
    assert sorted(next(made.batches(SecretStream(0)))) == list(range(15))


def cells_plan(n_steps=40, sizes=(100, 60), taken=(20, 12), **changes):
    options = {"bounds": BOX, "sampling": "without_replacement", "sensitivity": 1.4}
    return plan_training(
        TARGET,
        n_samples=sizes,
        batch_size=taken,
        n_steps=n_steps,
        n_parameters=100,
        **(options | changes),
    )


def test_batches_of_cells_are_fresh_uniform_subsets_of_each():
    """Two fresh batches of 20 of 100 are disjoint once in 150 times, those of an epoch always."""
    made, order = cells_plan(400), np.random.default_rng(0).permutation(160)
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


def test_cells_of_equal_size_have_batches_of_their_own():
    made = cells_plan(sizes=(100, 100), taken=(20, 20))
    for batch in made.batches(SecretStream(2)):
        assert set(batch[:20]) != set(batch[20:] - 100)


def test_the_event_of_cells():
    made = cells_plan(sigma=1.5, taken=(20, 20))
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
    assert TARGET.admits(cells_plan().event)
    assert cells_plan(taken=(20, 500)).batch_sizes == (20, 60)


def test_cells_are_not_sampled_by_poisson():
    with pytest.raises(ValueError, match="without_replacement"):
        cells_plan(sampling="poisson")


def test_no_privacy_no_noise():
    for made in (plan(target=PrivacyTarget(math.inf, 1e-5)), plan(sigma=0.0)):
        assert made.sigma == 0.0
        assert made.event == NonPrivateEvent()


def test_given_noise_needs_public_bounds():
    with pytest.raises(ValueError, match="Give public bounds"):
        plan(sigma=1.0, bounds=plan_private_bounds(200, N_FEATURES, 0.2))


def error(network, rows):
    with torch.no_grad():
        return float(((network(rows) - rows) ** 2).mean())


@pytest.mark.parametrize("penalty", [False, True])
def test_training_without_noise_and_clipping_lowers_the_loss(penalty):
    """Both kinds of step descend on the same thing."""
    rng = np.random.default_rng(0)
    rows = torch.from_numpy(np.tanh(rng.normal(size=(200, 2)) @ rng.normal(size=(2, 6)))).float()
    goal = loss(20, penalty, alpha=0.2, clip=1e3, clip_jacobian=1e3)
    made = plan("without_replacement", sigma=0.0, n_steps=120)
    for private in (False, True):
        network = autoencoder(weight=0.5)
        before = error(network, rows)
        steps = (
            private_steps(goal, rows, made, SecretStream(0), rng)
            if private
            else public_steps(goal, rows, 20, rng)
        )
        train_network(network, steps, 120, learning_rate=0.05, rng=rng)
        assert error(network, rows) < 0.5 * before


def test_public_epochs_visit_every_row_once():
    seen = []

    class Spy(nn.Identity):
        def forward(self, rows):
            seen.append(rows.detach().clone())
            return rows

    network = nn.Sequential(nn.Sequential(Spy(), nn.Linear(6, 3)), nn.Linear(3, 6))
    rows = torch.arange(60.0)[:, None].expand(60, 6)
    steps = public_steps(loss(20, penalty=False), rows, 20, np.random.default_rng(0))
    for number in range(3):
        steps(network, number)
    assert sorted(torch.cat(seen)[:, 0].tolist()) == list(range(60))
