"""Networks of the estimators: by name and given, what they start from, and what is refused."""

from functools import partial

import numpy as np
import pytest
import torch
from torch import nn

from skdpot._utils.streams import torch_randomness
from skdpot.nets.layers import LatentEncoding
from skdpot.nets.networks import build_predictor, checked_network
from skdpot.nets.per_sample import chain_of_layers
from skdpot.sampling.architecture import build_networks, image_dimensions
from skdpot.sampling.generator_network import draw_latents, make_mlp

# --- encoders and decoders ------------------------------------------------------------------------

IMAGES = {
    "mlp": [None, (1, 5, 7)],
    "conv": [(1, 28, 28), (3, 32, 32), (1, 8, 10)],
    "dcgan": [(1, 64, 64), (3, 64, 64)],
}
CASES = [(name, image) for name, images in IMAGES.items() for image in images]
pair_of = partial(build_networks, n_features=6, image=None, latent_dim=2)


def images(name, image):
    return build_networks(name, n_features=35, image=image, latent_dim=2)


def built(module, n_features=5, n_outputs=3, seed=0):
    with torch_randomness(np.random.default_rng(seed)):
        return build_predictor(module, n_features, n_outputs)


@pytest.mark.parametrize(("name", "image"), CASES)
def test_shapes(name, image):
    n_features = 35 if image is None else image[0] * image[1] * image[2]
    encoder, decoder = build_networks(name, n_features=n_features, image=image, latent_dim=5)
    with torch.no_grad():
        codes = encoder(torch.zeros(2, n_features))
        assert codes.shape == (2, 5)
        assert decoder(codes).shape == (2, n_features)
    for layer in nn.Sequential(encoder, decoder).modules():
        assert not isinstance(layer, nn.modules.batchnorm._NormBase)


def test_convolutions_start_with_codes_that_tell_images_apart():
    """With PyTorch's own weights outputs vary by 0.003 to 0.005, and training stands still."""
    encoder, decoder = build_networks("conv", n_features=1024, image=(1, 32, 32), latent_dim=8)
    noise = torch.Generator().manual_seed(0)
    with torch.inference_mode():
        for network, width in ((encoder, 1024), (decoder, 8)):
            inputs = torch.empty(50, width).normal_(generator=noise)
            assert network(inputs).std(dim=0).mean() > 0.05


def test_the_convolutions_are_those_of_the_paper():
    """Appendix C.2: channels out, kernel, stride; padding as there."""
    encoder, decoder = build_networks("conv", n_features=1024, image=(1, 32, 32), latent_dim=8)
    found = [
        (c.out_channels, c.kernel_size[0], c.stride[0], c.padding[0])
        for network in (encoder, decoder)
        for c in network
        if isinstance(c, nn.Conv2d | nn.ConvTranspose2d)
    ]
    assert found[:4] == [(3, 3, 1, 1), (32, 4, 2, 0), (32, 3, 1, 1), (32, 3, 1, 1)]
    assert found[4:] == [(32, 3, 1, 1), (32, 3, 1, 1), (32, 2, 2, 0), (1, 3, 1, 1)]
    assert decoder[0].out_features == 8192


@pytest.mark.parametrize(
    ("make", "message"),
    [
        (partial(images, "dcgan", None), "needs image_shape"),
        (partial(images, "conv", (1, 5, 7)), "must be even"),
        (partial(images, "dcgan", (1, 32, 32)), "64 x 64"),
        *[
            (partial(image_dimensions, wrong, 10), r"must be \(height, width\)")
            for wrong in ((10,), (1, 1, 2, 5), (0, 10))
        ],
        (partial(pair_of, (lambda: 3, nn.Linear(2, 6))), "returns one; got one that returns int"),
        (partial(built, nn.Flatten()), "no parameters to train"),
        (partial(built, nn.Linear(5, 3).requires_grad_(False)), "no parameters to train"),
        (partial(built, lambda: 3), "returns int"),
    ],
)
def test_what_does_not_fit_is_refused(make, message):
    with pytest.raises((ValueError, TypeError), match=message):
        make()


def test_image_shapes():
    assert image_dimensions(None, 10) is None
    assert image_dimensions((2, 5), 10) == (1, 2, 5)
    assert image_dimensions([3, 2, 2], 12) == (3, 2, 2)


def test_given_encoders_see_images():
    pair = (nn.Sequential(nn.Conv2d(1, 2, 2), nn.Flatten(), nn.Linear(8, 2)), nn.Linear(2, 9))
    encoder, _ = build_networks(pair, n_features=9, image=(1, 3, 3), latent_dim=2)
    assert encoder(torch.zeros(4, 9)).shape == (4, 2)


def test_given_networks_are_copied_and_functions_called_even_if_they_keep_theirs():
    kept = nn.Linear(6, 2), nn.Linear(2, 6)
    for given in (kept, tuple(lambda part=part: part for part in kept)):
        made = pair_of(given)
        assert torch.equal(made[0].weight, kept[0].weight)
        weights = {id(parameter) for part in kept for parameter in part.parameters()}
        assert not weights & {id(parameter) for part in made for parameter in part.parameters()}


# --- predictors -----------------------------------------------------------------------------------


@pytest.mark.parametrize("name", ["linear", "mlp"])
@pytest.mark.parametrize("n_outputs", [1, 4])
def test_named_networks_start_with_one_prediction_for_all(name, n_outputs):
    """No group has an advantage to begin with."""
    network = built(name, 5, n_outputs)
    rows = torch.linspace(-3, 3, 35).reshape(7, 5)
    assert torch.equal(network(rows), torch.zeros(7, n_outputs))
    n_parameters = sum(parameter.numel() for parameter in network.parameters())
    expected = 6 * n_outputs if name == "linear" else 64 * 6 + 65 * n_outputs
    assert n_parameters == expected
    assert all(parameter.requires_grad for parameter in network.parameters())
    assert chain_of_layers(network) is not None  # so that gradients of single records are cheap


def test_hidden_units_come_from_the_seed_and_can_learn_although_the_last_layer_is_zero():
    """The gradient of the last layer is not zero, and after a step neither is that of the first."""
    network, again, other = (built("mlp", 5, 1, seed) for seed in (1, 1, 2))
    assert torch.equal(network[0].weight, again[0].weight)
    assert not torch.equal(network[0].weight, other[0].weight)
    rows = torch.linspace(-3, 3, 35).reshape(7, 5)
    optimizer = torch.optim.SGD(network.parameters(), 0.1)
    for _ in range(2):
        optimizer.zero_grad()
        (network(rows)[:, 0] - rows[:, 0]).square().sum().backward()
        optimizer.step()
    assert float(network[0].weight.grad.abs().max()) > 0


def test_checking_leaves_a_given_network_and_its_running_statistics_alone():
    module = nn.Sequential(nn.Linear(3, 2), nn.BatchNorm1d(2))
    network = checked_network(module, 3, 2, inputs="what goes in", outputs="what comes out")
    torch.testing.assert_close(network[1].running_var, torch.ones(2))
    assert network.training
    with torch.no_grad():
        network[0].weight += 1
    assert not torch.equal(network[0].weight, module[0].weight)


# --- generators -----------------------------------------------------------------------------------


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


@pytest.mark.parametrize(("latent_dim", "first"), [(9, LatentEncoding), (1, nn.Linear)])
def test_the_default_network(latent_dim, first):
    with torch_randomness(np.random.default_rng(0)):
        network = make_mlp(latent_dim, 3, 8, 256)
    assert isinstance(network[0], first)
    assert network(torch.zeros(4, latent_dim + 3)).shape == (4, 8)
    assert chain_of_layers(network) is not None
    if first is LatentEncoding:  # indicators start with unit spread
        assert network[0].n_outputs == network[1].in_features == 8 + 64 + 3
        spread = float((network[0].weight * network[1].weight.detach()).std())
        assert spread == pytest.approx(1, rel=0.05)


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
