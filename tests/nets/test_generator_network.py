"""The generator's network and its inputs."""

import numpy as np
import pytest
import torch
from torch import nn

from skdpot._utils.validation import torch_randomness
from skdpot.nets.training import draw_latents, make_mlp
from skdpot.release.per_sample import LatentEncoding, chain_of_layers
from tests.release.jacobian_sums import clipped_jacobian_sum


def test_components_are_equally_likely():
    """40,000 draws of 64 components: chi-square with 63 degrees, false alarm 1e-6 above 132."""
    encoding = LatentEncoding(3, 3)
    inputs = torch.from_numpy(draw_latents(40_000, 3, np.random.default_rng(0)))
    counts = (encoding(inputs)[:, 2:] > 0).sum(dim=0).numpy()
    assert counts.sum() == 40_000
    assert ((counts - 625) ** 2 / 625).sum() < 132


def test_encoding_passes_the_rest_on_and_scales_indicators():
    encoding = LatentEncoding(3, 5, n_components=4)
    inputs = torch.tensor([[-50.0, 1.5, -2.5, 0.0, 1.0], [50.0, 0.0, 0.0, 1.0, 0.0]])
    w = np.sqrt(3.0 * 8)
    expected = [[1.5, -2.5, w, 0, 0, 0, 0, w], [0, 0, 0, 0, 0, w, w, 0]]
    torch.testing.assert_close(encoding(inputs), torch.tensor(expected).float())


def test_the_weight_of_indicators_starts_with_unit_spread():
    with torch_randomness(np.random.default_rng(0)):
        network = make_mlp(9, 3, 8, 256)
    encoding, first = network[0], network[1]
    assert encoding.n_outputs == first.in_features == 8 + 64 + 3
    assert float((encoding.weight * first.weight.detach()).std()) == pytest.approx(1, rel=0.05)


@pytest.mark.parametrize(("latent_dim", "first"), [(5, LatentEncoding), (1, nn.Linear)])
def test_shapes(latent_dim, first):
    network = make_mlp(latent_dim, 2, 7, 32)
    assert isinstance(network[0], first)
    assert network(torch.zeros(4, latent_dim + 2)).shape == (4, 7)
    assert sum(isinstance(layer, nn.SiLU) for layer in network) == 2


def test_the_default_network_is_a_chain_whose_gradients_are_quick():
    """What `per_sample` finds for it agrees with one backward pass a point."""
    network, inputs = make_mlp(3, 0, 2, 8), draw_latents(4, 3, np.random.default_rng(0))
    assert chain_of_layers(network) is not None
    pull = torch.ones(4, 2)
    total = clipped_jacobian_sum(network, torch.from_numpy(inputs), pull, 1e9)
    network(torch.from_numpy(inputs)).backward(pull)
    for parameter, value in total.items():
        torch.testing.assert_close(value.float(), parameter.grad, rtol=1e-3, atol=1e-4)


def test_latents_carry_classes_behind():
    classes = np.eye(2)[[0, 1, 1]]
    inputs = draw_latents(3, 4, np.random.default_rng(0), classes)
    assert inputs.shape == (3, 6)
    assert inputs.dtype == np.float32
    np.testing.assert_array_equal(inputs[:, 4:], classes)
    np.testing.assert_array_equal(inputs[:, :4], draw_latents(3, 4, np.random.default_rng(0)))


def test_stratified_latents_are_normal_and_one_an_interval():
    """Every interval of every column has one draw; columns are permuted independently."""
    latents = draw_latents(1000, 3, np.random.default_rng(0))
    levels = torch.special.ndtr(torch.from_numpy(latents).double()).numpy()
    intervals = np.floor(levels * 1000 + 1e-3).astype(int)
    for column in intervals.T:
        assert len(np.unique(column)) > 990  # but for rounding to single precision
    assert np.abs(np.corrcoef(latents.T) - np.eye(3)).max() < 0.16  # five standard errors
    inside = levels * 1000 - np.floor(levels * 1000)
    assert abs(inside.mean() - 0.5) < 0.03  # uniform within an interval: five standard errors
