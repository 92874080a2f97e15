"""The parity penalty of codes: its value, its gradient, and how far one record moves it."""

import math
from itertools import combinations

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
    private_steps,
    public_steps,
)
from skdpot.nets.training import train_network
from skdpot.ot.transport import sliced_wasserstein_distance
from skdpot.privacy.accounting import PrivacyTarget
from skdpot.release.bounds import DataBounds
from skdpot.release.gradients import plan_training
from skdpot.release.output_tables import Cells
from tests.release.jacobian_sums import chunks_of

RNG = np.random.default_rng(8841)
SIZES = [(7, 7), (12, 5), (4, 9, 6)]


def penalty(sizes=(7, 7), latent_dim=2, radius=2.0, n_projections=6):
    return ParityDistance(
        latent_dim=latent_dim, batch_sizes=tuple(sizes), radius=radius, n_projections=n_projections
    )


def split(term, codes):
    return np.split(codes, np.cumsum(term.batch_sizes)[:-1])


def value(term, codes, directions):
    """The mean squared distance of pairs of groups, with the gradient of codes as they are."""
    norms = codes.norm(dim=1, keepdim=True)
    short = codes + (codes / (norms / term.radius).clamp(min=1.0) - codes).detach()
    theta = torch.from_numpy(directions)
    groups = [(theta @ group.T).sort(dim=1).values for group in short.split(term.batch_sizes)]
    # Repeated until they have the same length, sorted points are matched one by one.
    length = math.lcm(*term.batch_sizes)
    same = [group.repeat_interleave(length // group.shape[1], dim=1) for group in groups]
    return torch.stack([((a - b) ** 2).mean() for a, b in combinations(same, 2)]).mean()


@pytest.mark.parametrize("spread", [0.5, 3.0])
@pytest.mark.parametrize("sizes", SIZES)
def test_the_vectors_are_the_gradient_of_the_mean_squared_distance_of_pairs(sizes, spread):
    """Times the batch size; also for codes that are shortened (spread 3)."""
    term = penalty(sizes)
    codes = torch.from_numpy(spread * RNG.normal(size=(sum(sizes), 2))).requires_grad_()
    directions = term.directions(np.random.default_rng(1))
    distance = value(term, codes, directions)
    if spread < 1:  # against another solver
        pairs = combinations(split(term, (codes * 0.5).detach().numpy()), 2)
        expected = np.mean([sliced_wasserstein_distance(a, b, directions) ** 2 for a, b in pairs])
        assert float(value(term, codes * 0.5, directions).detach()) == pytest.approx(expected)
    (gradient,) = torch.autograd.grad(distance, codes)
    torch.testing.assert_close(term.vectors(codes.detach(), directions), sum(sizes) * gradient)


def test_codes_are_shortened_to_the_ball():
    term = penalty(radius=1.5)
    codes = RNG.normal(size=(14, 2)) * 10
    short = codes * 1.5 / np.maximum(1.5, np.linalg.norm(codes, axis=1, keepdims=True))
    directions = term.directions(np.random.default_rng(1))
    given, expected = (term.vectors(torch.from_numpy(c), directions) for c in (codes, short))
    torch.testing.assert_close(given, expected)


def test_equal_groups_have_no_penalty():
    term = penalty()
    codes = torch.from_numpy(np.tile(RNG.normal(size=(7, 2)), (2, 1)))
    directions = term.directions(np.random.default_rng(1))
    assert float(term.vectors(codes, directions).abs().max()) < 1e-12


def movement(term, directions, before, after, position):
    """The most that one record can move the gradient, whatever the Jacobians of norm 1 are.

    Each Jacobian can turn its own vector into any direction: then the lengths add up.
    """
    old, new = (term.vectors(torch.from_numpy(codes), directions) for codes in (before, after))
    moved = (old - new).norm(dim=1)
    moved[position] = old[position].norm() + new[position].norm()
    return float(moved.sum())


@settings(max_examples=80, deadline=None)
@given(
    sizes=st.lists(st.integers(1, 9), min_size=2, max_size=4),
    latent_dim=st.sampled_from([1, 2, 3, 4, 6, 9]),
    spread=st.sampled_from([0.0, 1e-3, 1.0, 50.0]),
    on_clip=st.booleans(),
    seed=st.integers(0, 2**16),
)
def test_no_neighbour_moves_the_gradient_further_than_the_sensitivity(
    sizes, latent_dim, spread, on_clip, seed
):
    """Random codes, many of them tied or on the clip; the new code anywhere."""
    rng = np.random.default_rng(seed)
    term = penalty(sizes, latent_dim)
    directions = term.directions(rng)
    before = spread * (rng.normal(size=(sum(sizes), latent_dim)).round(1))
    if on_clip:
        clipped = rng.random(len(before)) < 0.5
        before[clipped] = 100.0 * rng.choice([-1, 1], (clipped.sum(), 1))
    position = int(rng.integers(len(before)))
    after = before.copy()
    after[position] = rng.choice([-100.0, 0.0, 1e-9, 1.0, 100.0]) * rng.choice([-1, 1], latent_dim)
    assert movement(term, directions, before, after, position) <= term.sensitivity(1.0)


@pytest.mark.parametrize("sizes", [(30, 30), (10, 40), (40, 10)])
def test_the_sensitivity_is_attained_in_the_smallest_group(sizes):
    """One direction: the record overtakes all others of its group, which are tied at 0."""
    term = penalty(sizes, latent_dim=1, n_projections=1)
    own, other = (0, 1) if sizes[0] <= sizes[1] else (1, 0)
    before = [np.zeros((size, 1)) for size in sizes]
    matched = sizes[other] // min(sizes)
    before[other][:] = -2.0
    before[other][-matched:] = 2.0  # what the last rank is matched with
    after = [codes.copy() for codes in before]
    after[own][0] = 1e-9
    position = own * sizes[0]
    moved = movement(term, np.ones((1, 1)), np.concatenate(before), np.concatenate(after), position)
    assert 0.999 * term.sensitivity(1.0) <= moved <= term.sensitivity(1.0)


def worst_codes(k, radius):
    """Two groups of 2k + 1 codes and a code to replace, along k orthogonal directions.

    Of the other group one code lies on the ball at either end of each direction, so that what is
    matched jumps by M at either end. The record goes from one end of all directions to the other,
    and at either end of each direction another record is the one that it overtakes.
    """
    tiny = 1e-9 * np.eye(k)
    ends = radius * np.eye(k)
    own = np.concatenate([np.full((1, k), -radius / np.sqrt(k)), -tiny, tiny])
    other = np.concatenate([np.zeros((1, k)), -ends, ends])
    return np.concatenate([own, other]), np.full(k, radius / np.sqrt(k))


@pytest.mark.parametrize(("k", "share"), [(5, 0.96), (8, 0.98), (16, 0.99), (32, 0.999)])
def test_orthogonal_blocks_save_noise_and_the_bound_is_attained(k, share):
    """One direction at a time it was twice the width: 12 % too much at k = 5, 51 % at 32."""
    term = penalty((2 * k + 1, 2 * k + 1), latent_dim=k, n_projections=k)
    before, replacement = worst_codes(k, 2.0)
    after = before.copy()
    after[0] = replacement
    moved = movement(term, np.eye(k), before, after, 0)
    assert share * term.sensitivity(1.0) <= moved <= term.sensitivity(1.0)
    one_by_one = 2 * 4 * 4.0  # n' (2 / K) 4 r L / n'_j
    assert term.sensitivity(1.0) < {5: 0.89, 8: 0.81, 16: 0.73, 32: 0.67}[k] * one_by_one


def test_directions_come_in_whole_blocks():
    directions = penalty(latent_dim=8, n_projections=50).directions(np.random.default_rng(0))
    np.testing.assert_allclose(directions.T @ directions, 7 * np.eye(8), atol=1e-12)


@pytest.mark.parametrize("k", [4, 5, 8, 16])
@pytest.mark.parametrize("n_blocks", [1, 3])
def test_no_codes_and_matches_exceed_the_bound_of_orthogonal_blocks(k, n_blocks):
    """The worst of 10 ascents over codes on the ball and what they are matched with."""
    rng = np.random.default_rng(k)
    term = penalty((1, 1), latent_dim=k, radius=1.0, n_projections=n_blocks * k)
    bound = term.sensitivity(1.0) / 4  # 2 F, for a batch of two
    worst = 0.0
    for _ in range(10):
        theta = term.directions(rng)
        goal = rng.normal(size=k)
        before, after = -goal / np.linalg.norm(goal), goal / np.linalg.norm(goal)
        if rng.random() < 0.5:
            before = rng.normal(size=k)
            before /= np.linalg.norm(before)
        for _ in range(20):
            side = np.sign(theta @ (after - before))
            matches = _worst_matches(theta, before, after, side)
            found = _moved(theta, before, after, *matches)
            worst = max(worst, found)
            before, after = _steeper(theta, before, after, *matches)
    assert 0.85 * bound < worst <= bound


def _moved(theta, before, after, low, high):
    """F of the proof."""
    own = [theta.T @ (theta @ u - v) for u, v in ((before, low), (after, high))]
    lengths = sum(np.linalg.norm(w) for w in own)
    return (lengths + np.abs(high - low).sum() + np.abs(theta @ (after - before)).sum()) / len(
        theta
    )


def _worst_matches(theta, before, after, side):
    """Change one direction at a time, to the worst corner, until none is worse."""
    low, high = -side.copy(), side.copy()
    for _ in range(3):
        for j in range(len(theta)):
            corners = [(-side[j], side[j]), (side[j], side[j]), (-side[j], -side[j])]
            found = []
            for low[j], high[j] in corners:
                found.append(_moved(theta, before, after, low, high))
            low[j], high[j] = corners[int(np.argmax(found))]
    return low, high


def _steeper(theta, before, after, low, high):
    """Move both codes to where the linearised F is largest on the ball."""
    apart = np.sign(theta @ (after - before)) @ theta
    moved = []
    for u, v, sign in ((before, low, -1), (after, high, 1)):
        own = theta.T @ (theta @ u - v)
        slope = own * len(theta) / len(u) / max(np.linalg.norm(own), 1e-300) + sign * apart
        moved.append(slope / np.linalg.norm(slope))
    return moved


def test_the_sensitivity_is_that_of_the_batch():
    """n' * (2 / K) * 4 r L / min n'_j, with a width r = 2M."""
    assert penalty((30, 10), radius=1.5).sensitivity(0.7) == pytest.approx(40 * 4 * 3 * 0.7 / 10)
    three = penalty((30, 10, 20), radius=1.5).sensitivity(0.7)
    assert three == pytest.approx(60 * (2 / 3) * 4 * 3 * 0.7 / 10)


def test_ties_keep_their_order_when_a_record_is_replaced():
    """An unstable sort would let one record exchange the ranks of all others."""
    term = penalty((300, 300), n_projections=2)
    before = np.concatenate([np.zeros((300, 2)), RNG.normal(size=(300, 2))])
    after = before.copy()
    after[150] = 1e-9
    directions = term.directions(np.random.default_rng(0))
    assert movement(term, directions, before, after, 150) <= term.sensitivity(1.0)


@pytest.mark.parametrize("value", [np.nan, np.inf, -np.inf, 1e300])
def test_codes_that_are_not_finite_are_bounded_too(value):
    term = penalty()
    before = RNG.normal(size=(14, 2))
    after = before.copy()
    after[3, 1] = value
    directions = term.directions(np.random.default_rng(0))
    assert movement(term, directions, before, after, 3) <= term.sensitivity(1.0)


N_FEATURES = 6


@pytest.fixture(scope="module", autouse=True)
def _small_chunks():
    with chunks_of(4):
        yield


def autoencoder(seed, weight, latent_dim=2):
    generator = torch.Generator().manual_seed(seed)
    encoder = nn.Sequential(nn.Linear(N_FEATURES, 5), nn.Tanh(), nn.Linear(5, latent_dim))
    network = nn.Sequential(encoder, nn.Linear(latent_dim, N_FEATURES))
    for parameter in network.parameters():
        nn.init.uniform_(parameter, -weight, weight, generator=generator)
    return network


def summed(goal, network, rows, directions):
    total = goal.clipped_sum(network, torch.from_numpy(rows).float(), directions)
    return torch.cat([value.flatten() for value in total.values()])


def loss(term, alpha=0.6, clip=0.7, clip_jacobian=0.3):
    return AutoencoderLoss(clip=clip, penalty=term, alpha=alpha, clip_jacobian=clip_jacobian)


@settings(max_examples=30, deadline=None)
@given(
    sizes=st.sampled_from([(4, 4), (7, 3), (3, 4, 2)]),
    weight=st.sampled_from([0.1, 1.0, 30.0]),
    ties=st.booleans(),
    seed=st.integers(0, 2**16),
)
def test_no_record_moves_the_clipped_sum_further_than_the_sensitivity(sizes, weight, ties, seed):
    """Through the network, in single precision; large weights put codes on the clip."""
    rng = np.random.default_rng(seed)
    goal, network = loss(penalty(sizes)), autoencoder(seed, weight)
    rows = rng.uniform(-1, 1, (sum(sizes), N_FEATURES))
    if ties:
        rows[:] = rows[0]
    other = rows.copy()
    other[rng.integers(len(rows))] = rng.choice([-1.0, 1.0], N_FEATURES)
    directions = goal.penalty.directions(rng)
    moved = summed(goal, network, rows, directions) - summed(goal, network, other, directions)
    assert float(moved.norm()) <= goal.sensitivity


def test_the_sensitivity_is_attained_through_the_clipped_sum():
    """A linear encoder of one code: opposite rows have opposite Jacobians, at any code."""
    network = nn.Sequential(nn.Linear(2, 1, bias=False), nn.Linear(1, 2))
    with torch.no_grad():
        network[0].weight[:] = torch.tensor([[1.0, 0.0]])
    for parameter in network[1].parameters():
        nn.init.zeros_(parameter).requires_grad_(False)
    goal = loss(penalty((20, 20), latent_dim=1, n_projections=1), alpha=0.99, clip=1e-6)
    rows = np.zeros((40, 2))
    rows[0], rows[1:20] = (0.0, 50.0), (0.0, -50.0)  # code 0; Jacobians far beyond the clip
    rows[20:39, 0], rows[39, 0] = -100.0, 100.0  # shortened to -M and M
    other = rows.copy()
    other[0] = (1e-3, 50.0)
    sums = [summed(goal, network, x, np.ones((1, 1))) for x in (rows, other)]
    moved = float((sums[0] - sums[1]).norm())
    assert 0.99 * goal.sensitivity <= moved <= goal.sensitivity


def cells_plan(group_sizes, batch_sizes, n_steps=40, sigma=None, sensitivity=1.4):
    return plan_training(
        PrivacyTarget(2.0, 1e-5),
        n_samples=group_sizes,
        batch_size=batch_sizes,
        n_steps=n_steps,
        sampling="without_replacement",
        sensitivity=sensitivity,
        n_parameters=100,
        bounds=DataBounds.from_box(-1, 1, N_FEATURES),
        sigma=sigma,
    )


def test_a_step_is_the_noiseless_gradient_of_its_groups():
    term = penalty((12, 8))
    goal, network = loss(term), autoencoder(0, 1.0)
    made = cells_plan((60, 40), (12, 8), sigma=0.0)
    cells = Cells(RNG.permutation(np.repeat([0, 1], [60, 40])), (60, 40), ())
    rows = torch.from_numpy(RNG.uniform(-1, 1, (100, N_FEATURES))).float()
    batch = next(made.batches(SecretStream(5), cells.members))
    directions = term.directions(np.random.default_rng(0))
    expected = summed(goal, network, rows[batch].numpy(), directions) / 20
    steps = private_steps(goal, rows, made, SecretStream(5), np.random.default_rng(0), cells)
    steps(network, 0)
    found = torch.cat([p.grad.flatten() for p in network.parameters()]).double()
    torch.testing.assert_close(found, expected, rtol=1e-5, atol=1e-7)


def test_the_noise_has_the_scale_of_the_event():
    """4,800 draws: a false alarm once in a million runs (Kolmogorov and Smirnov)."""
    network = autoencoder(0, 0.0)  # equal codes and no error, so no gradient: noise alone
    made = cells_plan((60, 40), (12, 8), n_steps=60, sigma=3.7)
    rows, noise = torch.zeros(100, N_FEATURES), []
    cells = Cells(np.repeat([0, 1], [60, 40]), (60, 40), ())
    steps = private_steps(
        loss(penalty((12, 8))), rows, made, SecretStream(1), np.random.default_rng(0), cells
    )
    for number in range(60):
        steps(network, number)
        noise += [p.grad.flatten().numpy() * made.batch_size for p in network.parameters()]
    noise = np.concatenate(noise)
    assert made.event.sigma == 3.7
    assert len(noise) > 3000
    assert stats.kstest(noise / 3.7, "norm").pvalue > 1e-6


def distance_after_training(alpha, private):
    rng = np.random.default_rng(0)
    rows = rng.normal(size=(200, N_FEATURES)) * 0.3
    rows[:120] += 0.5
    tensor = torch.from_numpy(rows).float()
    cells = Cells(np.repeat([0, 1], [120, 80]), (120, 80), ())
    term, network = penalty((24, 16)), autoencoder(0, 0.5)
    goal = loss(term, alpha=alpha, clip=1e3, clip_jacobian=1e3)
    if private:
        made = cells_plan((120, 80), (24, 16), n_steps=60, sigma=0.0)
        steps = private_steps(goal, tensor, made, SecretStream(0), rng, cells)
    else:
        steps = public_steps(goal, tensor, (24, 16), rng, cells.members)
    train_network(network, steps, 60, learning_rate=0.03, rng=rng)
    with torch.no_grad():
        codes = network[0](tensor).numpy()
    return sliced_wasserstein_distance(codes[:120], codes[120:], term.directions(rng))


@pytest.mark.parametrize("private", [False, True])
def test_training_brings_groups_together(private):
    apart, together = (distance_after_training(alpha, private) for alpha in (0.0, 0.9))
    assert together < 0.3 * apart


def test_public_batches_hold_group_after_group():
    seen = []

    class Spy(nn.Identity):
        def forward(self, rows):
            seen.append(rows[:, 0].tolist())
            return rows

    network = nn.Sequential(nn.Sequential(Spy(), nn.Linear(6, 2)), nn.Linear(2, 6))
    rows = torch.arange(30.0)[:, None].expand(30, 6)
    members = [np.arange(0, 20), np.arange(20, 30)]
    goal = loss(penalty((4, 2)))
    steps = public_steps(goal, rows, (4, 2), np.random.default_rng(0), members)
    for number in range(5):
        steps(network, number)
    assert all(max(batch[:4]) < 20 <= min(batch[4:]) for batch in seen)
    assert sorted(sum(seen, [])) == list(range(30))
