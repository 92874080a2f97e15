"""The loss of a generator against quantiles, its units, and what it is trained with."""

from itertools import islice

import numpy as np
import pytest
import torch
from torch import nn

from skdpot.nets.training import train_network
from skdpot.ot.directions import orthogonal_directions
from skdpot.ot.flow_problems import DirectionBatch
from skdpot.ot.slices import CDFTable
from skdpot.ot.transport import wasserstein_1d
from skdpot.privacy.events import GaussianEvent
from skdpot.release.bounds import DataBounds
from skdpot.release.releases import Release
from skdpot.release.sketch import SlicedSketch
from skdpot.sampling import generator_training
from skdpot.sampling.generator_training import (
    distribution_steps,
    generator_steps,
    release_batches,
    sliced_pull,
    table_batches,
)
from skdpot.sampling.output_units import OutputUnits
from skdpot.sampling.row_releases import SmoothedProjections

RNG = np.random.default_rng(4071)
MEAN, SPREAD = np.array([0.5, -0.2, 0.1]), 0.25


def loss_batch(n_groups=2, size=6, n_projections=5, sigma=0.0):
    directions = orthogonal_directions(n_projections, 3, RNG).astype(np.float32)
    quantiles = np.sort(RNG.normal(size=(n_projections, n_groups, size))).astype(np.float32)
    return DirectionBatch(directions, quantiles, sigma)


def normal_table(n_projections=12, mean=MEAN):
    """A table of N(mean, SPREAD²), which no sketch of finitely many rows is."""
    directions = orthogonal_directions(n_projections, 3, np.random.default_rng(0))
    edges = np.linspace(-2, 2, 401)
    z = torch.from_numpy((edges - (directions @ mean)[:, None]) / SPREAD)
    cdf = torch.special.ndtr(z).numpy()
    cdf[:, 0], cdf[:, -1] = 0.0, 1.0
    return CDFTable(directions, np.full(n_projections, 2.0), cdf)


def releases(n_batches=4, n_rows=8, sigma=0.5):
    batches = []
    for _ in range(n_batches):
        directions = orthogonal_directions(6, 3, RNG).astype(np.float32)
        rows = MEAN + SPREAD * RNG.normal(size=(n_rows, 3))
        values = np.sort(directions @ rows.T + sigma * RNG.normal(size=(6, n_rows)))
        event = GaussianEvent(sigma=sigma, sensitivity=1.0)
        facts = {"directions": directions, "bounds": DataBounds.from_norm(1.0, 3)}
        batches.append(Release("rows", values.astype(np.float32), facts, sigma=sigma, event=event))
    return SmoothedProjections(tuple(batches))


@pytest.mark.parametrize("with_noise", [False, True])
@pytest.mark.parametrize("n_groups", [1, 3])
def test_the_pull_is_the_gradient_of_the_mean_squared_distance(n_groups, with_noise):
    batch = loss_batch(n_groups)
    noise = RNG.normal(size=batch.quantiles.shape).astype(np.float32) if with_noise else None
    points = torch.from_numpy(RNG.normal(size=(n_groups * 6, 3)).astype(np.float32))
    points.requires_grad_()
    theta, quantiles = torch.from_numpy(batch.directions), torch.from_numpy(batch.quantiles)
    projected = (theta @ points.T).reshape(quantiles.shape)
    if with_noise:
        projected = projected + torch.from_numpy(noise)
    loss = ((projected.sort(dim=2).values - quantiles) ** 2).mean()
    loss.backward()
    for pull in (sliced_pull, generator_training._pull_by_torch):  # on the CPU, on a GPU
        torch.testing.assert_close(pull(points.detach(), batch, noise), points.grad)
    # The loss itself is what `slicing` computes.
    ours = projected.detach().numpy().reshape(-1, 6)
    distances = wasserstein_1d(ours, batch.quantiles.reshape(-1, 6))
    assert float(loss.detach()) == pytest.approx(np.mean(distances**2), rel=1e-5)


def test_a_round_of_table_batches_has_every_direction_once():
    table = normal_table(150)
    units = OutputUnits(np.zeros(3), 1.0)
    batches = list(islice(table_batches([table], 8, units, np.random.default_rng(0)), 6))
    for turn in (batches[:3], batches[3:]):
        seen = np.concatenate([batch.directions for batch in turn])
        order = np.lexsort(seen.T), np.lexsort(table.directions.astype(np.float32).T)
        np.testing.assert_array_equal(seen[order[0]], table.directions.astype(np.float32)[order[1]])
    assert not np.array_equal(batches[0].directions, batches[3].directions)
    for batch in batches:  # orthogonal blocks stay together
        block = batch.directions[:3]
        np.testing.assert_allclose(block @ block.T, np.eye(3), atol=1e-6)


def test_table_batches_hold_quantiles_of_each_class_in_the_networks_units():
    tables = [normal_table(), normal_table(mean=-MEAN)]
    units = OutputUnits.of_table(tables[0])
    np.testing.assert_allclose(units.location, MEAN, atol=5e-3)
    assert units.scale == pytest.approx(SPREAD, rel=0.02)
    np.testing.assert_allclose(units.to_mapped(np.ones((1, 3)))[0], MEAN + SPREAD, atol=0.01)
    batch = next(table_batches(tables, 101, units, RNG))
    assert (batch.quantiles.shape, batch.sigma) == ((12, 2, 101), 0)
    apart = -2 * (batch.directions @ MEAN) / SPREAD
    np.testing.assert_allclose(batch.quantiles[:, 0, 50], 0, atol=0.05)
    np.testing.assert_allclose(batch.quantiles[:, 1, 50], apart, atol=0.2)
    np.testing.assert_allclose(batch.quantiles[:, 0].std(axis=1), 1, atol=0.03)
    assert np.all(np.diff(batch.quantiles, axis=2) >= 0)


def test_release_batches_come_in_their_order_with_their_noise():
    projections = releases()
    units = OutputUnits(MEAN, 0.5)
    batches = list(release_batches(projections, 8, units))
    assert len(batches) == 4
    for batch, given in zip(batches, projections.batches, strict=True):
        np.testing.assert_array_equal(batch.directions, given.directions)
        expected = (given.values - (given.directions @ MEAN)[:, None]) / 0.5
        np.testing.assert_allclose(batch.quantiles[:, 0], expected, atol=1e-5)
        assert batch.sigma == 1.0


def test_units_of_a_release_leave_its_noise_out_and_stay_in_the_ball():
    """2,000 rows with twice as much noise as spread; the estimate is good to a few percent."""
    units = OutputUnits.of_release(releases(20, 2000, 0.5))
    np.testing.assert_allclose(units.location, MEAN, atol=0.05)
    assert units.scale == pytest.approx(SPREAD, rel=0.1)
    units = OutputUnits.of_release(releases(3, 5, 1000.0))
    assert np.linalg.norm(units.location) <= 1 + 1e-9
    assert 0.05 < units.scale <= 1 / np.sqrt(3) + 1e-9


def test_generated_points_get_the_noise_of_the_release():
    """Without it, the network would learn the noise: a spread of 0.56 in the place of 0.25."""
    rng = np.random.default_rng(0)
    network, units = nn.Linear(3, 3), OutputUnits(np.zeros(3), 1.0)
    batches = release_batches(releases(200, 200, 0.5), 200, units)
    step = generator_steps(batches, lambda n: rng.normal(size=(n, 3)).astype(np.float32), rng)
    train_network(network, step, 200, learning_rate=0.05, rng=rng)
    rows = network(torch.from_numpy(rng.normal(size=(4000, 3)).astype(np.float32)))
    spread = np.sqrt(rows.detach().numpy().var(axis=0).mean())
    assert spread == pytest.approx(SPREAD, abs=0.06)


@pytest.mark.parametrize(
    ("size", "scale", "shift"), [(1.0, 1.0, 0.0), (1.0, 1.0, 0.2), (1.2, 0.5, 0.0)]
)
def test_steps_to_distributions_of_small_groups_move_nothing_but_what_is_wrong(size, scale, shift):
    """Groups of three: if a point counted itself, spread would shrink. z is of 600 steps."""
    rng = np.random.default_rng(2)
    rows = rng.normal(MEAN, SPREAD, size=(4000, 3))
    sketch = SlicedSketch(np.inf, bounds=(-2, 2), n_projections=12, n_bins=128).fit(rows)
    units = OutputUnits(np.full(3, -0.1), scale)

    def draw(group_size):
        chosen = rows[rng.integers(len(rows), size=group_size)]
        mapped = MEAN / 2 + size * (chosen / 2 - MEAN / 2) + shift
        return ((mapped + 0.1) / scale).astype(np.float32)

    network = nn.Linear(3, 3)
    nn.init.eye_(network.weight)
    nn.init.zeros_(network.bias)
    step = distribution_steps(sketch, [None], units, draw, 3, rng)
    found = []
    for number in range(600):
        network.zero_grad()
        step(network, number)
        centred = network.weight.grad - network.bias.grad[:, None] * torch.tensor(
            (MEAN / 2 + 0.1) / scale
        )
        found.append([float(network.bias.grad.sum()), float(centred.trace())])
    z = np.mean(found, axis=0) / (np.std(found, axis=0) / np.sqrt(len(found)))
    assert (abs(z[0]) < 4) if shift == 0 else (z[0] > 8)
    if shift == 0:
        assert (abs(z[1]) < 4) if size == 1.0 else (z[1] > 6)
