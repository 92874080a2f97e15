"""Codes of images: orthonormal, by each image alone, and back."""

import numpy as np
import pytest
from scipy.fft import dctn
from sklearn.datasets import load_digits
from sklearn.pipeline import make_pipeline
from sklearn.utils.estimator_checks import parametrize_with_checks

from skdpot import DPSlicedFlowSampler, check_pipeline
from skdpot.preprocessing import ImageCodes

RNG = np.random.default_rng(0)


@parametrize_with_checks([ImageCodes(), ImageCodes(basis="haar", size=3)])
def test_meets_the_conventions_of_scikit_learn(estimator, check):
    check(estimator)


def test_codes_are_the_low_frequencies_of_the_cosine_transform():
    images = RNG.uniform(0, 16, size=(5, 8, 8))
    codes = ImageCodes(size=3, pixel_range=(0, 16), background=5, decay=0).fit_transform(images)
    waves = dctn(images - 5, axes=(1, 2), norm="ortho")[:, :3, :3]
    np.testing.assert_allclose(codes, waves.reshape(5, -1), atol=1e-12)


@pytest.mark.parametrize("basis", ["cosine", "haar"])
@pytest.mark.parametrize("shape", [(8, 8), (28, 28), (3, 12, 10), (7,)])
def test_all_codes_give_the_image_back_and_keep_its_norm(basis, shape):
    images = RNG.uniform(size=(4, *shape))
    codes = ImageCodes(shape, basis=basis, size=28, decay=0, background=0.0).fit(images)
    rows = codes.transform(images)
    np.testing.assert_allclose(
        np.linalg.norm(rows, axis=1), np.linalg.norm(images.reshape(4, -1), axis=1)
    )
    np.testing.assert_allclose(codes.inverse_transform(rows), images.reshape(4, -1), atol=1e-12)
    assert rows.shape[1] == len(codes.get_feature_names_out()) == np.prod(shape)


@pytest.mark.parametrize("basis", ["cosine", "haar"])
@pytest.mark.parametrize("decay", [0, 1.5])
def test_images_of_codes_are_the_nearest_that_the_codes_can_describe(basis, decay):
    smooth = ImageCodes(
        (3, 8, 12), basis=basis, size=4, decay=decay, pixel_range=(-9, 9), background=0
    ).fit(np.zeros((1, 288)))
    images = RNG.uniform(-1, 1, size=(6, 288))
    seen = smooth.inverse_transform(smooth.transform(images))
    np.testing.assert_allclose(smooth.transform(seen), smooth.transform(images), atol=1e-12)
    np.testing.assert_allclose(np.sum((images - seen) * seen, axis=1), 0, atol=1e-10)


def test_the_coarsest_code_of_a_flat_image_is_its_grey():
    for basis in ("cosine", "haar"):
        flat = ImageCodes((8, 8), basis=basis, size=1, decay=0, background=0.0)
        np.testing.assert_allclose(flat.fit_transform(np.full((1, 64), 0.5)), [[4.0]])


def test_channels_come_first_and_their_mean_is_the_first_code():
    image = np.zeros((1, 3, 4, 4))
    image[:, 0] = 1.0
    codes = ImageCodes((3, 4, 4), size=1, decay=0, background=0.0).fit_transform(image)
    np.testing.assert_allclose(codes[0, 0], 4 / np.sqrt(3))
    np.testing.assert_allclose(np.sum(codes**2), 16)


def test_weights_keep_the_mean_square_of_images_whose_amplitudes_fall_like_one_over_f():
    frequencies = np.add.outer(np.arange(8.0), np.arange(8.0)).ravel()
    waves = RNG.normal(size=(20_000, 64)) / (1 + frequencies)
    plain, equal = (ImageCodes(decay=decay, pixel_range=(-99, 99)) for decay in (0.0, 1.0))
    codes = equal.fit(waves).transform(plain.fit(waves).inverse_transform(waves))
    assert np.mean(codes**2) == pytest.approx(np.mean(waves**2), rel=0.03)
    spreads = codes.std(axis=0)
    assert spreads.max() < 1.05 * spreads.min()


def test_pixels_are_clipped_to_their_range_and_the_bound_is_the_contrast():
    codes = ImageCodes((4, 4), size=4, pixel_range=(0, 2), background=0, decay=0, contrast=0.5)
    wide, most = codes.fit_transform(np.full((1, 16), 7.0)), codes.transform(np.full((1, 16), 2.0))
    np.testing.assert_array_equal(wide, most)
    assert codes.norm_bound == 4.0
    assert codes.inverse_transform(100 * wide).max() == 2.0


@pytest.mark.parametrize(
    ("parameters", "X", "message"),
    [
        ({"image_shape": (3, 5)}, np.zeros((2, 16)), "have 15"),
        ({"image_shape": (4, 0)}, np.zeros((2, 16)), "image_shape"),
        ({"image_shape": (4, 4, 1, 1)}, np.zeros((2, 16)), "image_shape"),
        ({"pixel_range": (1, 1)}, np.zeros((2, 16)), "pixel_range"),
        ({"size": 0}, np.zeros((2, 16)), "size"),
    ],
)
def test_refuses_what_it_cannot_read(parameters, X, message):
    with pytest.raises(ValueError, match=message):
        ImageCodes(**parameters).fit(X)


def test_refuses_codes_of_another_shape():
    codes = ImageCodes(size=2).fit(np.zeros((2, 16)))
    with pytest.raises(ValueError, match="codes have 4"):
        codes.inverse_transform(np.zeros((3, 5)))
    with pytest.raises(ValueError, match="needs a fit"):
        _ = ImageCodes().norm_bound


def test_an_image_is_coded_by_itself_and_pipelines_accept_it():
    images, labels = load_digits(return_X_y=True)
    codes = ImageCodes((8, 8), size=4, pixel_range=(0, 16))
    alone = [codes.transform(image[None])[0] for image in images[:3]]
    np.testing.assert_allclose(codes.transform(images)[:3], alone, rtol=1e-12)
    sampler = DPSlicedFlowSampler(epsilon=5.0, norm_bound=codes.norm_bound, n_steps=5)
    pipeline = check_pipeline(make_pipeline(codes, sampler))
    assert pipeline.fit(images, labels)[-1].sample(3).shape == (3, 16)
