"""PrivateSWAutoencoder: what it computes, in which units, alone and in a pipeline."""

import numpy as np
import pandas as pd
import pytest
import sklearn
import torch
from sklearn.base import clone
from sklearn.datasets import load_digits
from sklearn.pipeline import Pipeline
from torch import nn

from skdpot import PrivateSWAutoencoder
from skdpot.datasets import make_biased_classification
from skdpot.ot.directions import orthogonal_directions
from skdpot.ot.transport import sliced_distance
from skdpot.release.bounds import DataBounds
from tests.flat_options import made

DIGITS = load_digits().data
RNG = np.random.default_rng(8841)
X = np.tanh(RNG.normal(size=(300, 2)) @ RNG.normal(size=(2, 6)))
SEEDED = pytest.mark.filterwarnings("ignore:.*makes the privacy noise reproducible")


def autoencoder(**changes):
    options = {"latent_dim": 3, "bounds": (-1, 1), "n_steps": 5, "batch_size": 10_000}
    return made(PrivateSWAutoencoder, **(options | changes))


@pytest.mark.parametrize("options", [{}, {"penalty": "prior"}, {"normalize_codes": False}], ids=str)
@pytest.mark.parametrize("private", [False, True])
def test_shapes_and_ranges(private, options):
    fitted = autoencoder(private=private, batch_size=50, **options).fit(X)
    codes = fitted.transform(X)
    assert codes.shape == (300, 3)
    on_sphere = np.allclose(np.linalg.norm(codes, axis=1), 1)
    assert on_sphere == ("normalize_codes" not in options)
    decoded = fitted.inverse_transform(codes)
    for rows in (decoded, fitted.sample(300)):
        assert rows.shape == (300, 6)
        assert np.abs(rows).max() <= 1
    if on_sphere:
        assert fitted.inverse_transform(7 * codes) == pytest.approx(decoded)
        assert np.isfinite(fitted.inverse_transform(np.zeros((1, 3)))).all()
    assert fitted.score(X) == pytest.approx(-np.mean((decoded - X) ** 2))
    weights = np.arange(len(X)) < 10
    assert fitted.score(X, sample_weight=weights) == pytest.approx(fitted.score(X[:10]))
    assert fitted.n_steps_ == 5


@pytest.mark.slow
@SEEDED
@pytest.mark.parametrize(("options", "share"), [({"private": False}, 0.3), ({"epsilon": 3.0}, 0.8)])
def test_training_learns_with_default_steps_and_rate(options, share):
    """1,797 rows of 64 pixels; at epsilon 3 0.55 to 0.65 of the variance over three seeds."""
    fitted = made(PrivateSWAutoencoder, bounds=(0, 16), random_state=0, **options).fit(DIGITS)
    assert -fitted.score(DIGITS) < share * DIGITS.var(axis=0).mean()


def test_the_penalty_moves_codes_to_the_prior():
    """Directions of codes balance around the sphere."""
    options = {"private": False, "n_steps": 100, "learning_rate": 0.02, "random_state": 0}
    means = [
        np.linalg.norm(autoencoder(penalty=penalty, alpha=0.8, **options).fit_transform(X).mean(0))
        for penalty in (None, "prior")
    ]
    assert means[1] < 0.15
    assert means[1] < means[0]


@pytest.mark.parametrize(
    ("architecture", "shape"), [("conv", (8, 8)), ("conv", (1, 8, 8)), ("mlp", (8, 8))]
)
def test_images(architecture, shape):
    images = DIGITS[:60]
    options = {"architecture": architecture, "image_shape": shape, "bounds": (0, 16), "n_steps": 2}
    fitted = autoencoder(**options).fit(images)
    assert fitted.inverse_transform(fitted.transform(images)).shape == (60, 64)


@pytest.mark.slow
def test_convolutions_draw_more_than_a_black_ground():
    """With outputs that saturate at the ends of the range, all images were black at this rate."""
    places, centres = np.arange(12), RNG.uniform(3, 9, size=(40, 2, 1))
    along = np.exp(-((places - centres) ** 2) / 1.5)
    images = (along[:, 0, :, None] * along[:, 1, None, :]).reshape(40, -1)
    options = {"architecture": "conv", "image_shape": (12, 12), "bounds": (0, 1), "n_steps": 160}
    fitted = autoencoder(private=False, random_state=0, **(options | {"batch_size": 20}))
    drawn = fitted.fit(images).inverse_transform(fitted.transform(images))
    black, missed = (np.sum((images - given) ** 2) for given in (0, drawn))
    assert missed < 0.85 * black
    assert drawn.std(axis=0).mean() > 0.1 * images.std(axis=0).mean()


def test_images_are_rows_of_their_shape():
    images, shape = DIGITS[:60].reshape(60, 1, 8, 8), (8, 8)
    fitted = autoencoder(image_shape=shape, bounds=(0, 16), n_steps=2).fit(images)
    codes = fitted.transform(images[:, 0])
    np.testing.assert_array_equal(codes, fitted.transform(images.reshape(60, 64)))
    assert fitted.score(images) == fitted.score(images.reshape(60, 64))
    with pytest.raises(ValueError, match="Channels come first"):
        fitted.transform(images.reshape(60, 8, 8, 1))
    with pytest.raises(ValueError, match="dim > 2"):
        autoencoder().fit(images)


def test_own_modules():
    """Any network on public rows; modules are copied."""
    encoder = nn.Sequential(nn.Linear(6, 4), nn.BatchNorm1d(4), nn.Linear(4, 3))
    fitted = autoencoder(private=False, architecture=(encoder, lambda: nn.Linear(3, 6))).fit(X)
    assert fitted.sample(2).shape == (2, 6)
    assert fitted.architecture.networks[0] is encoder
    assert not torch.equal(encoder[0].weight, fitted.encoder_[0][0].weight)
    assert clone(fitted).fit(X).sample(2).shape == (2, 6)


def test_bounds_of_public_rows_are_read_off_them():
    rows = np.column_stack([X * 50 + 7, np.full(300, 3.0)])
    fitted = autoencoder(private=False, bounds="private").fit(rows)
    sample = fitted.sample(200)
    assert (sample >= rows.min(0) - 2).all()
    assert (sample <= rows.max(0) + 2).all()
    images = DIGITS[:50]
    fitted = autoencoder(private=False, bounds="private", image_shape=(8, 8)).fit(images)
    assert fitted.bounds_ == DataBounds.from_box(0.0, 16.0, 64)


def test_frames():
    frame = pd.DataFrame(X, columns=list("abcdef"))
    fitted = autoencoder(private=False).set_output(transform="pandas").fit(frame)
    assert list(fitted.transform(frame).columns) == [f"privateswautoencoder{k}" for k in range(3)]
    assert list(fitted.sample(4).columns) == list("abcdef")
    assert list(fitted.get_feature_names_out()) == [f"privateswautoencoder{k}" for k in range(3)]


@SEEDED
@pytest.mark.skipif(not torch.cuda.is_available(), reason="needs a GPU")
@pytest.mark.parametrize("architecture", ["mlp", "conv"])
@pytest.mark.parametrize("options", [{"private": False}, {"penalty": "prior"}], ids=str)
def test_a_gpu_gives_the_same(architecture, options):
    images = DIGITS[:200]
    options |= {"architecture": architecture, "image_shape": (8, 8), "bounds": (0, 16)}
    fits = [
        autoencoder(device=device, epsilon=5.0, random_state=0, **options).fit(images)
        for device in ("cpu", "cuda")
    ]
    first, second = (fitted.inverse_transform(np.eye(3)) for fitted in fits)
    assert first == pytest.approx(second, abs=0.05)


def test_wrong_use_is_named():
    fitted = autoencoder(private=False).fit(X)
    with pytest.raises(ValueError, match="latent_dim=3"):
        fitted.inverse_transform(np.zeros((2, 4)))
    for wrong in (0, 1.5, "2"):
        with pytest.raises((TypeError, ValueError), match="n_samples"):
            fitted.sample(wrong)


ROWS, _, SEX = make_biased_classification(6000, random_state=0)


@pytest.mark.slow
@SEEDED
@pytest.mark.parametrize(
    "options",
    [
        {"private": False, "n_steps": 200},
        {"epsilon": np.inf, "normalize_codes": False},
        {"epsilon": 8.0},
    ],
    ids=str,
)
def test_the_penalty_brings_the_codes_of_groups_together(options):
    """In units of how far codes are apart."""
    options = {"n_steps": 60, "clip_jacobian": 0.3, "bounds": (-2, 2)} | options
    options |= {"learning_rate": 0.02, "batch_size": 600, "random_state": 0, "latent_dim": 2}
    directions, distances = orthogonal_directions(50, 2, np.random.default_rng(0)), []
    for alpha in (0.0, 0.8):
        fitted = autoencoder(penalty="parity", alpha=alpha, **options)
        fitted.fit(ROWS[:4000], sensitive_features=SEX[:4000])
        codes, sex = fitted.transform(ROWS[4000:]), SEX[4000:]
        distance = sliced_distance(codes[sex == 0], codes[sex == 1], directions)
        distances.append(distance / codes.std())
    assert distances[1] < 0.4 * distances[0]


@SEEDED
@pytest.mark.parametrize("penalty", [None, "prior"])
def test_groups_are_ignored_without_the_penalty(penalty):
    fits = [
        autoencoder(random_state=0, penalty=penalty).fit(X, sensitive_features=given).transform(X)
        for given in (None, ["not checked"])
    ]
    np.testing.assert_array_equal(*fits)


def test_groups_reach_a_first_step_and_its_fit_transform():
    first, groups = autoencoder(penalty="parity"), np.arange(300) % 2
    with sklearn.config_context(enable_metadata_routing=True):
        first.set_fit_request(sensitive_features=True)
        codes = Pipeline([("ae", first)]).fit_transform(X, sensitive_features=groups)
    assert codes.shape == (300, 3)
    assert first.privacy_spent_.event.group_sizes == (150, 150)
