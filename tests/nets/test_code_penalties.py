"""Penalties of codes: their value, their gradient, and how far one record moves them."""

import math
from itertools import combinations

import numpy as np
import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from scipy import stats

from skdpot.nets.autoencoder_training import ParityDistance, PriorDistance, prior_samples
from skdpot.ot.transport import sliced_wasserstein_distance

RNG = np.random.default_rng(8841)


def parity(sizes=(7, 7), latent_dim=2, radius=2.0, n_projections=6):
    return ParityDistance(
        latent_dim=latent_dim, batch_sizes=tuple(sizes), radius=radius, n_projections=n_projections
    )


def prior(kind="sphere", latent_dim=4, batch_size=20, n_projections=10):
    return PriorDistance(
        prior=kind, latent_dim=latent_dim, batch_sizes=(batch_size,), n_projections=n_projections
    )


PENALTIES = {
    "two groups": parity(),
    "two groups of other sizes": parity((12, 5)),
    "three groups": parity((4, 9, 6)),
    "sphere": prior(),
    "normal": prior("normal"),
}
every_penalty = pytest.mark.parametrize("name", PENALTIES)


def value(term, codes, directions):
    """The squared distance to the prior, or of pairs of groups, times the batch size.

    Codes beyond the ball are compared where they are shortened to, with the gradient of codes as
    they are. Sorted points that are repeated until there are as many are matched one by one.
    """
    norms = codes.norm(dim=1, keepdim=True)
    short = codes + (codes / (norms / term.radius).clamp(min=1.0) - codes).detach()
    groups = (torch.from_numpy(directions) @ short.T).split(term.batch_sizes, dim=1)
    length = math.lcm(*term.batch_sizes)
    points = [g.sort(dim=1).values.repeat_interleave(length // g.shape[1], dim=1) for g in groups]
    if isinstance(term, PriorDistance):
        points.append(torch.from_numpy(term.quantiles).expand(len(directions), -1))
    distances = [((a - b) ** 2).mean() for a, b in combinations(points, 2)]
    return len(codes) * torch.stack(distances).mean()


@every_penalty
@pytest.mark.parametrize("spread", [0.3, 3.0])
def test_the_vectors_are_the_gradient_of_the_mean_squared_distance(name, spread):
    """Also for codes that are shortened (spread 3)."""
    term = PENALTIES[name]
    codes = spread * RNG.normal(size=(sum(term.batch_sizes), term.latent_dim))
    codes = torch.from_numpy(codes).requires_grad_()
    directions = term.directions(np.random.default_rng(1))
    (gradient,) = torch.autograd.grad(value(term, codes, directions), codes)
    torch.testing.assert_close(term.vectors(codes.detach(), directions), gradient)
    blocks = len(directions) / term.latent_dim
    np.testing.assert_allclose(
        directions.T @ directions, blocks * np.eye(term.latent_dim), atol=1e-12
    )


def test_the_value_is_that_of_another_solver():
    term, codes = PENALTIES["three groups"], 0.3 * RNG.normal(size=(19, 2))
    directions = term.directions(RNG)
    pairs = combinations(np.split(codes, np.cumsum(term.batch_sizes)[:-1]), 2)
    expected = np.mean([sliced_wasserstein_distance(a, b, directions) ** 2 for a, b in pairs])
    found = float(value(term, torch.from_numpy(codes), directions)) / 19
    assert found == pytest.approx(expected)


@pytest.mark.parametrize("kind", ["sphere", "normal"])
def test_quantiles_are_those_of_samples(kind):
    term = prior(kind, latent_dim=5, batch_size=40)
    samples = prior_samples(kind, 100_000, 5, np.random.default_rng(0))
    direction = np.array([0.6, 0.0, -0.8, 0.0, 0.0])
    levels = stats.percentileofscore(samples @ direction, term.quantiles) / 100
    # Five standard deviations of an empirical distribution function.
    assert np.abs(levels - (np.arange(40) + 0.5) / 40).max() < 5 * 0.5 / math.sqrt(100_000)


# --- what one record moves ----------------------------------------------------------------------


def movement(term, directions, before, after, position):
    """The most that one record can move the gradient, whatever the Jacobians of norm 1 are.

    Each Jacobian can turn its own vector into any direction: then the lengths add up.
    """
    old, new = (term.vectors(torch.from_numpy(codes), directions) for codes in (before, after))
    moved = (old - new).norm(dim=1)
    moved[position] = old[position].norm() + new[position].norm()
    return float(moved.sum())


@settings(max_examples=120, deadline=None)
@given(
    sizes=st.lists(st.integers(1, 9), min_size=1, max_size=4),
    kind=st.sampled_from(["sphere", "normal"]),
    latent_dim=st.sampled_from([1, 2, 3, 4, 6, 9]),
    spread=st.sampled_from([0.0, 1e-3, 1.0, 50.0]),
    on_clip=st.booleans(),
    seed=st.integers(0, 2**16),
)
def test_no_neighbour_moves_the_gradient_further_than_the_sensitivity(
    sizes, kind, latent_dim, spread, on_clip, seed
):
    """Random codes, many of them tied or on the clip; the new code anywhere."""
    rng = np.random.default_rng(seed)
    if len(sizes) > 1:
        term = parity(sizes, latent_dim)
    else:
        term = prior(kind, max(2, latent_dim), sizes[0])
    k, directions = term.latent_dim, term.directions(rng)
    before = spread * (rng.normal(size=k) + rng.normal(size=(sum(sizes), k)).round(1))
    if on_clip:
        clipped = rng.random(len(before)) < 0.5
        before[clipped] = 100.0 * rng.choice([-1, 1], (clipped.sum(), 1))
    position = int(rng.integers(len(before)))
    after = before.copy()
    after[position] = rng.choice([-100.0, 0.0, 1e-9, 1.0, 100.0]) * rng.choice([-1, 1], k)
    assert movement(term, directions, before, after, position) <= term.sensitivity(1.0)


@pytest.mark.parametrize("term", [parity((300, 300), n_projections=2), prior("sphere", 2, 300, 2)])
def test_ties_keep_their_order_when_a_record_is_replaced(term):
    """An unstable sort would let one record exchange the ranks of all others."""
    before = np.zeros((sum(term.batch_sizes), 2))
    before[300:] = RNG.normal(size=(len(before) - 300, 2))
    after = before.copy()
    after[150] = 1e-9
    directions = term.directions(np.random.default_rng(0))
    assert movement(term, directions, before, after, 150) <= term.sensitivity(1.0)


@every_penalty
@pytest.mark.parametrize("entry", [math.nan, math.inf, -math.inf, 1e300])
def test_codes_that_are_not_finite_are_bounded_too(name, entry):
    term = PENALTIES[name]
    before = RNG.normal(size=(sum(term.batch_sizes), term.latent_dim))
    after = before.copy()
    after[3, 1] = entry
    directions = term.directions(np.random.default_rng(0))
    assert movement(term, directions, before, after, 3) <= term.sensitivity(1.0)


# --- it is attained -----------------------------------------------------------------------------


@pytest.mark.parametrize("sizes", [(30, 30), (10, 40), (40, 10)])
def test_the_sensitivity_is_attained_in_the_smallest_group(sizes):
    """One direction: the record overtakes all others of its group, which are tied at 0."""
    term = parity(sizes, latent_dim=1, n_projections=1)
    own, other = (0, 1) if sizes[0] <= sizes[1] else (1, 0)
    before = [np.zeros((size, 1)) for size in sizes]
    before[other][:] = -2.0
    before[other][-(sizes[other] // min(sizes)) :] = 2.0  # what the last rank is matched with
    before, position = np.concatenate(before), own * sizes[0]
    after = before.copy()
    after[position] = 1e-9
    moved = movement(term, np.ones((1, 1)), before, after, position)
    assert 0.999 * term.sensitivity(1.0) <= moved <= term.sensitivity(1.0)


@pytest.mark.parametrize(
    ("k", "attained", "share"),
    [(5, 0.96, 0.89), (8, 0.98, 0.81), (16, 0.99, 0.73), (32, 0.999, 0.67)],
)
def test_orthogonal_blocks_save_noise_and_the_bound_is_attained(k, attained, share):
    """One direction at a time it was twice the width: 12 % too much at k = 5, 51 % at 32.

    Of the other group one code lies on the ball at either end of each direction, so that what is
    matched jumps by M at either end. The record goes from one end of all directions to the other,
    and at either end of each direction another record is the one that it overtakes.
    """
    term, radius = parity((2 * k + 1, 2 * k + 1), latent_dim=k, n_projections=k), 2.0
    tiny, ends, corner = 1e-9 * np.eye(k), radius * np.eye(k), np.full((1, k), radius / np.sqrt(k))
    before = np.concatenate([-corner, -tiny, tiny, np.zeros((1, k)), -ends, ends])
    after = before.copy()
    after[0] = corner
    moved = movement(term, np.eye(k), before, after, 0)
    assert attained * term.sensitivity(1.0) <= moved <= term.sensitivity(1.0)
    one_by_one = 2 * 4 * 4.0  # n' (2 / K) 4 r L / n'_j
    assert term.sensitivity(1.0) < share * one_by_one


@pytest.mark.parametrize("k", [4, 5, 8, 16])
@pytest.mark.parametrize("n_blocks", [1, 3])
def test_no_codes_and_matches_exceed_the_bound_of_orthogonal_blocks(k, n_blocks):
    """F of the proof, for codes on the ball and the worst corners of what they are matched with."""
    rng = np.random.default_rng(k)
    term = parity((1, 1), latent_dim=k, radius=1.0, n_projections=n_blocks * k)
    bound, worst = term.sensitivity(1.0) / 4, 0.0  # 2 F, for a batch of two

    def moved(u, v, low, high):
        own = [theta.T @ (theta @ code - match) for code, match in ((u, low), (v, high))]
        apart = np.abs(high - low).sum() + np.abs(theta @ (v - u)).sum()
        return (sum(map(np.linalg.norm, own)) + apart) / len(theta)

    for noise in np.repeat([0.0, 0.2, 1.0, 10.0], 5):
        theta = term.directions(rng)
        ends = [sign * theta[:k].sum(0) + noise * rng.normal(size=k) for sign in (-1, 1)]
        u, v = (end / np.linalg.norm(end) for end in ends)
        side = np.sign(theta @ (v - u))
        low, high = -side.copy(), side.copy()
        for j in [*range(len(theta))] * 3:  # one direction at a time, until none is worse
            found = {}
            for match in ((-side[j], side[j]), (side[j], side[j]), (-side[j], -side[j])):
                low[j], high[j] = match
                found[match] = moved(u, v, low, high)
            low[j], high[j] = max(found, key=found.get)
        worst = max(worst, moved(u, v, low, high))
    assert (0.9 if n_blocks == 1 else 0.7) * bound < worst <= bound


@pytest.mark.parametrize(
    ("kind", "latent_dim", "attained"),
    [("normal", 1, 0.95), ("sphere", 3, 0.7), ("sphere", 8, 0.68), ("normal", 8, 0.6)],
)
def test_the_sensitivity_to_a_prior_is_nearly_attained(kind, latent_dim, attained):
    """Neighbours made to be bad: all others in one place, the record on either side of them.

    Along one direction fully; across several the two worst cases exclude each other. The bound is
    below 4rL, that for directions one by one.
    """
    term = prior(kind, latent_dim, batch_size=50, n_projections=1)
    directions, worst = term.directions(np.random.default_rng(5)), 0.0
    signs = RNG.choice([-1, 1], (40, len(directions)))
    corners = np.concatenate([signs @ directions, directions, RNG.normal(size=(40, latent_dim))])
    corners *= term.radius / np.linalg.norm(corners, axis=1, keepdims=True)
    for corner in corners:
        for position in (0, 49):
            for share in (1.0, 0.99, 0.0, -0.99, -1.0):
                before = np.tile(share * corner, (50, 1))
                before[position] = corner
                for sign in (1, -1):
                    after = before.copy()
                    after[position] = sign * corner
                    worst = max(worst, movement(term, directions, before, after, position))
    assert attained * term.sensitivity(1.0) <= worst <= term.sensitivity(1.0)
    assert prior(latent_dim=8, batch_size=250).sensitivity(0.3) < 0.45 * 4 * 2 * 0.3
