"""The generator: rows, classes, frames, releases, what they cost, interruptions."""

from dataclasses import replace

import numpy as np
import pandas as pd
import pytest
import torch
from sklearn.base import clone
from torch import nn

from skdpot import PrivacyBudget
from skdpot.mechanisms import ImageNetwork, LatentNetwork, Sketch, image_projections, with_edges
from skdpot.nets import training
from skdpot.ot.directions import orthogonal_directions
from skdpot.ot.transport import sliced_distance
from skdpot.privacy.accounting import compose
from skdpot.sampling import generator as of_generator
from skdpot.sampling import generator_gradient as of_gradient
from tests.flat_options import sliced_generator

RNG = np.random.default_rng(2203)
LABELS = np.array(["left", "right"])[(RNG.random(1500) < 0.25).astype(int)]
X = np.clip(
    np.where(LABELS == "left", -0.4, 0.5)[:, None] + 0.1 * RNG.normal(size=(1500, 3)), -1, 1
)
SMALL = RNG.uniform(-0.9, 0.9, size=(60, 2))
MECHANISMS = ["sketch", "smoothing", "gradient"]
QUICK = {"bounds": (-1, 1), "n_projections": 12, "n_bins": 64, "n_steps": 10, "n_latents": 50}


def generator(mechanism="sketch", **changes):
    return sliced_generator(mechanism, **(QUICK | changes))


def distance(rows, others):
    return sliced_distance(
        rows, others, orthogonal_directions(30, rows.shape[1], np.random.default_rng(0))
    )


@pytest.mark.slow
@pytest.mark.parametrize(
    ("mechanism", "options", "largest"),
    [
        ("sketch", {"n_projections": 60}, 0.12),
        ("smoothing", {"epsilon": np.inf, "batch_size": 300, "n_projections": 30}, 0.1),
        ("gradient", {"epsilon": np.inf, "batch_size": 300, "clip_jacobian": 3.0}, 0.22),
    ],
)
def test_every_mechanism_learns(mechanism, options, largest):
    """In the units of the data, within bounds. Before training the distance is about 0.4."""
    low, high = np.array([0, 1000, -5.0]), np.array([1, 3000, -4.0])
    asked = {"epsilon": 5.0, "n_steps": 150, "n_latents": 300, "bounds": (low, high)} | options
    frame = pd.DataFrame(low + (high - low) * (X + 1) / 2, columns=["a", "b", "c"])
    fitted = generator(mechanism, **asked).fit(frame)
    rows = fitted.sample(1500)
    assert list(rows) == ["a", "b", "c"]
    assert ((rows >= low - 1e-6) & (rows <= high + 1e-6)).all(axis=None)
    assert len(np.unique(rows, axis=0)) == 1500
    assert distance(2 * (rows.to_numpy() - low) / (high - low) - 1, X) < largest


@pytest.mark.parametrize("mechanism", MECHANISMS)
def test_own_modules(mechanism):
    """A function makes a module, or one is copied; the initial weights are not changed."""
    module = nn.Sequential(nn.Linear(2, 16), nn.Tanh(), nn.Linear(16, 3))
    before = [p.detach().clone() for p in module.parameters()]
    options = {"epsilon": np.inf, "latent_dim": 2, "n_steps": 60, "learning_rate": 0.02}
    for given in (module, lambda: module):
        fitted = generator(mechanism, module=given, **options).fit(X)
        assert distance(fitted.sample(500), X) < 0.35
    torch.testing.assert_close(before, list(module.parameters()))


@pytest.mark.parametrize("mechanism", ["sketch", "smoothing"])
def test_retraining_is_free(mechanism):
    budget = PrivacyBudget(5.0)
    fitted = generator(mechanism, budget=budget).fit(X)
    release, network = fitted.privacy_spent_, fitted.module_
    fitted.set_params(module=LatentNetwork(nn.Linear(2, 3), latent_dim=2)).retrain()
    assert isinstance(fitted.module_, nn.Linear)
    assert fitted.sample(3).shape == (3, 3)
    assert fitted.module_ is not network
    assert fitted.privacy_spent_ is release
    assert len(budget.history()) == 1
    seeded = [fitted.retrain(random_state=1).sample(3, random_state=0) for _ in range(2)]
    np.testing.assert_array_equal(*seeded)


def test_what_was_released_step_by_step_cannot_be_trained_on_again():
    with pytest.raises(ValueError, match="training steps"):
        generator("gradient").fit(SMALL).retrain()


@pytest.mark.slow
def test_default_steps_follow_a_public_rule():
    counts = {
        mechanism: [
            sliced_generator(mechanism, epsilon=np.inf, bounds=(-1, 1), n_projections=2)
            .fit(r)
            .n_steps_
            for r in (SMALL[:10], np.tile(SMALL, (5, 1)))
        ]
        for mechanism in MECHANISMS
    }
    assert counts == {"sketch": [60, 259], "smoothing": [60, 60], "gradient": [60, 60]}


@pytest.mark.parametrize("mechanism", ["smoothing", "gradient"])
def test_a_given_sigma_is_costed(mechanism):
    small, large = (
        generator(mechanism, sigma=sigma, batch_size=100).fit(X).privacy_spent_
        for sigma in (20.0, 200.0)
    )
    assert small.sigma == 20.0
    assert small.epsilon > 3 * large.epsilon
    assert small.epsilon == pytest.approx(compose(small.event).epsilon(1e-5), rel=1e-3)
    free = generator(mechanism, sigma=0.0).fit(X).privacy_spent_
    assert free.epsilon == np.inf


@pytest.mark.slow
def test_the_events_describe_the_batches():
    rows, d = 1500, 3
    smoothing, gradient = (
        generator(m, batch_size=100, n_projections=9).fit(X).privacy_spent_ for m in MECHANISMS[1:]
    )
    for spent in (smoothing, gradient):
        assert (spent.event.batch_sizes, spent.event.group_sizes) == ((100,), (rows,))
        assert spent.event.n_steps == 10
    # Box of side 2: radius √3; nine directions are three blocks.
    assert smoothing.sensitivity == pytest.approx(2 * np.sqrt(d) * np.sqrt(3), rel=5e-3)
    # In the network's units the radius is √3 too, and whole blocks gain a factor √3.
    assert gradient.sensitivity == pytest.approx(4.0, rel=1 / 500)
    poisson = generator("smoothing", sampling="poisson", batch_size=100).fit(X)
    assert poisson.privacy_spent_.event.sampling_rate == pytest.approx(1 / 15)


@pytest.mark.parametrize("clip", [0.25, 8.0])
def test_the_sensitivity_is_that_of_the_clip_that_is_used(clip, monkeypatch):
    used, make = [], of_gradient.noisy_gradient_steps

    def spy(*args):
        used.append(args[5])
        return make(*args)

    monkeypatch.setattr(of_gradient, "noisy_gradient_steps", spy)
    spent = generator("gradient", clip_jacobian=clip, n_projections=9).fit(SMALL).privacy_spent_
    (found,) = used
    assert found == clip
    radius, share = np.sqrt(2), np.sqrt(5 / 9)  # nine directions of the plane: five blocks
    assert spent.sensitivity == pytest.approx(4 * radius * share * clip, rel=1 / 500)


@pytest.mark.parametrize("mechanism", MECHANISMS)
def test_an_interrupt_keeps_what_was_released_or_leaves_the_last_fit(mechanism, monkeypatch):
    def interrupted(*args, **options):
        raise KeyboardInterrupt

    fitted = generator(mechanism).fit(SMALL)
    before = dict(vars(fitted))
    with monkeypatch.context() as patch:
        patch.setattr(of_generator, "train_network", interrupted)
        patch.setattr(training, "train_network", interrupted)
        with pytest.raises(KeyboardInterrupt):
            fitted.fit(SMALL / 2)
    if mechanism == "gradient":  # training is the release
        assert vars(fitted) == before
    else:
        assert fitted.privacy_spent_ is not before["privacy_spent_"]
        assert not hasattr(fitted, "module_")
        assert fitted.sample(4).shape == (4, 2)


@pytest.mark.skipif(not torch.cuda.is_available(), reason="needs a GPU")
@pytest.mark.filterwarnings("ignore:.*reproducible:skdpot.exceptions.PrivacyWarning")
@pytest.mark.parametrize("mechanism", MECHANISMS)
def test_a_gpu_agrees_with_the_cpu(mechanism):
    rows = [
        generator(mechanism, random_state=1, device=device).fit(X).sample(50, random_state=2)
        for device in ("cpu", "cuda")
    ]
    np.testing.assert_allclose(rows[0], rows[1], atol=1e-3)


def bars(n, rng):
    """Images of 8 x 10 pixels of bars, upright or flat by class, at places of their own."""
    labels, places = rng.integers(2, size=n), rng.integers(2, 5, size=n)
    images = np.zeros((n, 8, 10))
    for image, label, place in zip(images, labels, places, strict=True):
        (image.T if label else image)[place, 1:7] = 1.0
    return images.reshape(n, 80), labels


@pytest.mark.slow
@pytest.mark.parametrize(
    ("shape", "edges"), [((8, 10), False), ((2, 5, 8), False), ((8, 10), True)]
)
def test_images_are_drawn_in_their_range_and_by_their_class(shape, edges):
    """A nearest mean of real rows tells the classes of generated ones."""
    images, labels = bars(3000, np.random.default_rng(0))
    images = with_edges(images, shape) if edges else images
    sketch = Sketch(projections=image_projections(shape, 160, edges=edges), classes=[0, 1])
    made = of_generator.DPSlicedGenerator(
        sketch,
        module=ImageNetwork(shape, n_frequencies=8, pixels=(0, 1), edges=edges),
        conditional=True,
        bounds=(-1, 1),
        n_steps=150,
        learning_rate=0.01,
        epsilon=5.0,
    ).fit(images, labels)
    if not edges:
        again = clone(made).set_params(n_steps=1).fit(images.reshape(-1, *shape), labels)
        assert again.n_features_in_ == made.n_features_in_
    rows, classes = made.sample_labeled(400)
    assert rows.min() >= 0.0
    assert rows.max() <= 1.0
    means = np.stack([images[labels == k].mean(axis=0) for k in (0, 1)])
    nearest = np.square(rows[:, None] - means).sum(axis=2).argmin(axis=1)

    assert np.mean(nearest == classes) > 0.95


@pytest.mark.parametrize(
    ("changes", "text"),
    [
        ({"bounds": "private"}, "needs bounds"),
        ({"norm_bound": 3.0}, "needs bounds"),
        ({"module": ImageNetwork((2, 3))}, "image_shape"),
        ({"module": ImageNetwork()}, "image_shape"),
        ({"module": ImageNetwork((1, 2), pixels=(1, 0))}, "pixels"),
    ],
)
def test_images_that_cannot_be_made_are_refused_before_the_charge(changes, text):
    budget = PrivacyBudget(5.0)
    options = {"module": ImageNetwork((1, 2)), "budget": budget} | changes
    with pytest.raises(ValueError, match=text):
        generator(**options).fit(SMALL)
    assert len(budget.history()) == 0


def test_projections_of_images_are_unit_vectors_that_span_and_mostly_ignore_a_constant():
    rows = image_projections((3, 9, 7), 1000)
    np.testing.assert_allclose(np.linalg.norm(rows, axis=1), 1.0)
    assert np.linalg.matrix_rank(rows) == 189
    assert np.mean(np.abs(rows.sum(axis=1)) < 1e-9) > 0.85
    np.testing.assert_array_equal(rows, image_projections((3, 9, 7), 1000))
    both = image_projections((3, 9, 7), 1000, edges=True)
    np.testing.assert_allclose(np.linalg.norm(both, axis=1), 1.0)
    assert np.linalg.matrix_rank(both) == both.shape[1] > 189
    for wrong in ((1, 5), (5,)):
        with pytest.raises(ValueError, match="image_shape"):
            image_projections(wrong)


def test_edges_are_of_each_row_alone_and_turn_with_the_image():
    rows = np.random.default_rng(1).random((5, 11, 11)).astype(np.float32)
    flat = rows.reshape(5, 121)
    found = with_edges(flat, (11, 11))
    np.testing.assert_allclose(found[:, :121], flat, atol=1e-6)
    np.testing.assert_array_equal(with_edges(flat[::-1], (11, 11)), found[::-1])
    edges = found[:, 121:].reshape(5, 8, -1)
    assert edges.min() >= 0.0
    assert edges.max() <= 1.0
    half = with_edges(np.rot90(rows, 2, (1, 2)).reshape(5, 121), (11, 11))[:, 121:].reshape(
        5, 8, -1
    )
    np.testing.assert_allclose(half, np.roll(edges, 4, axis=1)[:, :, ::-1], atol=1e-5)
    with pytest.raises(ValueError, match="image_shape"):
        with_edges(flat, (11, 10))


@pytest.mark.filterwarnings("ignore::skdpot.exceptions.NotPrivateWarning")
@pytest.mark.parametrize("mechanism", ["smoothing", "sketch"])
def test_rows_are_cut_to_the_bounds(mechanism):
    fitted = generator(mechanism, epsilon=np.inf).fit(X)
    fitted._units = replace(fitted._units, scale=30 * fitted._units.scale)
    assert np.abs(fitted.sample(500, random_state=0)).max() <= 1 + 1e-9
