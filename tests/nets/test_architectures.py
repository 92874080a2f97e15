"""Encoders and decoders by name, and pairs of one's own."""

import pytest
import torch
from torch import nn

from skdpot.nets.training import build_networks, image_dimensions

IMAGES = {
    "mlp": [None, (1, 5, 7)],
    "conv": [(1, 28, 28), (3, 32, 32), (1, 8, 10)],
    "dcgan": [(1, 64, 64), (3, 64, 64)],
}
CASES = [(name, image) for name, images in IMAGES.items() for image in images]


@pytest.mark.parametrize(("name", "image"), CASES)
def test_shapes(name, image):
    n_features = 35 if image is None else image[0] * image[1] * image[2]
    encoder, decoder = build_networks(name, n_features=n_features, image=image, latent_dim=5)
    with torch.no_grad():
        codes = encoder(torch.zeros(2, n_features))
        assert codes.shape == (2, 5)
        assert decoder(codes).shape == (2, n_features)


@pytest.mark.parametrize("name", IMAGES)
def test_every_layer_works_record_by_record(name):
    pair = build_networks(name, n_features=4096, image=(1, 64, 64), latent_dim=5)
    for layer in nn.Sequential(*pair).modules():
        assert not isinstance(layer, nn.modules.batchnorm._NormBase)


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
    ("name", "image", "message"),
    [
        ("conv", None, "needs image_shape"),
        ("dcgan", None, "needs image_shape"),
        ("conv", (1, 5, 7), "must be even"),
        ("dcgan", (1, 32, 32), "64 x 64"),
    ],
)
def test_images_that_do_not_fit_are_refused(name, image, message):
    with pytest.raises(ValueError, match=message):
        build_networks(name, n_features=35, image=image, latent_dim=2)


def test_image_shapes():
    assert image_dimensions(None, 10) is None
    assert image_dimensions((2, 5), 10) == (1, 2, 5)
    assert image_dimensions([3, 2, 2], 12) == (3, 2, 2)
    with pytest.raises(ValueError, match="the rows of X have 11 features"):
        image_dimensions((2, 5), 11)
    for wrong in ((10,), (1, 1, 2, 5), (0, 10)):
        with pytest.raises(ValueError, match=r"must be \(height, width\)"):
            image_dimensions(wrong, 10)


def test_given_modules_are_copied_and_given_functions_called():
    encoder = nn.Linear(6, 2)
    made, decoder = build_networks(
        (encoder, lambda: nn.Linear(2, 6)), n_features=6, image=None, latent_dim=2
    )
    assert made is not encoder
    assert torch.equal(made.weight, encoder.weight)
    assert decoder(torch.zeros(3, 2)).shape == (3, 6)


def test_given_encoders_see_images():
    pair = (nn.Sequential(nn.Conv2d(1, 2, 2), nn.Flatten(), nn.Linear(8, 2)), nn.Linear(2, 9))
    encoder, _ = build_networks(pair, n_features=9, image=(1, 3, 3), latent_dim=2)
    assert encoder(torch.zeros(4, 9)).shape == (4, 2)


def test_functions_must_make_modules():
    with pytest.raises(TypeError, match="returns one; got one that returns int"):
        build_networks((lambda: 3, nn.Linear(2, 6)), n_features=6, image=None, latent_dim=2)


def test_functions_that_return_the_same_networks_do_not_share_them():
    kept = nn.Linear(6, 2), nn.Linear(2, 6)
    made = build_networks(
        tuple(lambda part=part: part for part in kept), n_features=6, image=None, latent_dim=2
    )
    weights = {id(parameter) for part in kept for parameter in part.parameters()}
    assert not weights & {id(parameter) for part in made for parameter in part.parameters()}
