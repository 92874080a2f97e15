"""The generator: rows, classes, frames, releases, budgets, interruptions."""

import numpy as np
import pandas as pd
import pytest
import torch
from torch import nn

from skdpot import DPSlicedGenerator, PrivacyBudget
from skdpot.mechanisms import LatentNetwork
from skdpot.ot.slices import orthogonal_directions
from skdpot.ot.transport import sliced_wasserstein_distance
from tests.flat_options import sliced_generator

RNG = np.random.default_rng(2203)
LABELS = np.array(["left", "right"])[(RNG.random(1500) < 0.25).astype(int)]
X = np.clip(
    np.where(LABELS == "left", -0.4, 0.5)[:, None] + 0.1 * RNG.normal(size=(1500, 3)), -1, 1
)
FRAME = pd.DataFrame(X, columns=["a", "b", "c"])
SMALL = RNG.uniform(-0.9, 0.9, size=(60, 2))
MECHANISMS = ["sketch", "smoothing", "gradient"]
QUICK = {"bounds": (-1, 1), "n_projections": 12, "n_bins": 64, "n_steps": 10, "n_latents": 50}
ACCURATE = {"n_projections": 60, "n_steps": 250, "n_latents": 300}


def generator(mechanism="sketch", **changes):
    return sliced_generator(mechanism, **(QUICK | changes))


def distance(rows, others):
    return sliced_wasserstein_distance(
        rows, others, orthogonal_directions(30, rows.shape[1], np.random.default_rng(0))
    )


@pytest.fixture(scope="module")
def plain():
    return generator(epsilon=np.inf, **ACCURATE).fit(X)


@pytest.fixture(scope="module")
def conditional():
    return generator(epsilon=np.inf, conditional=True, **ACCURATE).fit(X, LABELS)


def test_samples_look_like_the_rows(plain):
    assert distance(plain.sample(1500), X) < 0.07
    np.testing.assert_allclose(np.corrcoef(plain.sample(4000).T), np.corrcoef(X.T), atol=0.08)


@pytest.mark.parametrize(
    ("mechanism", "options", "largest"),
    [
        ("sketch", {"n_projections": 60}, 0.12),
        ("smoothing", {"epsilon": np.inf, "batch_size": 300, "n_projections": 30}, 0.1),
        ("gradient", {"epsilon": np.inf, "batch_size": 300, "clip_jacobian": 3.0}, 0.22),
    ],
)
def test_every_mechanism_learns(mechanism, options, largest):
    """Before training the distance is about 0.4."""
    asked = {"epsilon": 5.0, "n_steps": 150, "n_latents": 300} | options
    fitted = generator(mechanism, **asked).fit(X)
    assert distance(fitted.sample(1500), X) < largest
    assert fitted.score(X) > -largest


@pytest.mark.parametrize("mechanism", MECHANISMS)
def test_own_modules(mechanism):
    """A function makes a module, or one is copied; the initial weights are not changed."""
    module = nn.Sequential(nn.Linear(2, 16), nn.Tanh(), nn.Linear(16, 3))
    before = [p.detach().clone() for p in module.parameters()]
    options = {"epsilon": np.inf, "latent_dim": 2, "n_steps": 60, "learning_rate": 0.02}
    for given in (module, lambda: module):
        fitted = generator(mechanism, module=given, **options).fit(X)
        assert fitted.sample(4).shape == (4, 3)
        assert distance(fitted.sample(500), X) < 0.35
        if given is module:
            torch.testing.assert_close(before, list(module.parameters()))
            assert fitted.module.module is module


def test_a_module_sees_the_classes():
    seen = []

    class Recorder(nn.Linear):
        def forward(self, inputs):
            seen.append(inputs.detach().clone())
            return super().forward(inputs)

    fitted = generator(module=Recorder(7, 3), latent_dim=5, conditional=True)
    fitted.fit(X, LABELS).sample_labeled(3)
    for inputs in seen[2:]:
        torch.testing.assert_close(inputs[:, 5:].sum(dim=1), inputs.new_ones(len(inputs)))


def test_classes_have_their_own_rows_and_frequencies(conditional):
    """5000 draws; five standard errors of a frequency are 0.03."""
    rows, labels = conditional.sample_labeled(5000)
    assert np.mean(labels == "right") == pytest.approx(np.mean(LABELS == "right"), abs=0.031)
    for label in conditional.classes_:
        assert distance(rows[labels == label], X[LABELS == label]) < 0.06
    assert distance(conditional.sample(1500), X) < 0.2


def test_without_classes_there_are_no_labels(plain):
    with pytest.raises(ValueError, match="fitted with conditional=True"):
        plain.sample_labeled(3)
    refitted = generator(conditional=True).fit(X, LABELS).set_params(conditional=False).fit(X)
    assert not hasattr(refitted, "classes_")
    assert refitted.sample(3).shape == (3, 3)


@pytest.mark.parametrize("n_samples", [1, 700, np.int64(4000)])
def test_any_number_of_rows(plain, n_samples):
    rows = plain.sample(n_samples)
    assert rows.shape == (n_samples, 3)
    assert len(np.unique(rows, axis=0)) == n_samples
    assert np.all(np.abs(rows) <= 1 + 1e-9)


@pytest.mark.parametrize("n_samples", [0, 2.5, "3", None])
def test_the_number_must_be_a_positive_integer(plain, n_samples):
    with pytest.raises((TypeError, ValueError), match="^n_samples "):
        plain.sample(n_samples)


def test_random_state_of_a_sample(plain):
    np.testing.assert_array_equal(plain.sample(7, random_state=3), plain.sample(7, random_state=3))
    assert not np.array_equal(plain.sample(7), plain.sample(7))


@pytest.mark.filterwarnings("ignore:.*reproducible:skdpot.exceptions.PrivacyWarning")
@pytest.mark.parametrize("mechanism", MECHANISMS)
def test_random_state_of_a_fit(mechanism):
    first, second, other = (generator(mechanism, random_state=s).fit(SMALL) for s in (5, 5, 6))
    rows = [fitted.sample(20, random_state=0) for fitted in (first, second, other)]
    np.testing.assert_array_equal(rows[0], rows[1])
    assert not np.array_equal(rows[0], rows[2])


def test_frames_in_frames_out():
    fitted = generator(epsilon=np.inf, conditional=True).fit(FRAME, pd.Series(LABELS))
    rows, labels = fitted.sample_labeled(5)
    assert isinstance(rows, pd.DataFrame)
    assert list(rows.columns) == ["a", "b", "c"]
    assert labels.shape == (5,)
    assert isinstance(fitted.sample(2), pd.DataFrame)
    assert isinstance(fitted.fit(X, LABELS).sample(2), np.ndarray)


def test_units_of_the_data_come_back():
    low, high = np.array([0, 1000, -5.0]), np.array([1, 3000, -4.0])
    rows = low + (high - low) * (X + 1) / 2
    fitted = generator(epsilon=np.inf, bounds=(low, high), **ACCURATE).fit(rows)
    sample = fitted.sample(1500)
    assert np.all((sample >= low - 1e-6) & (sample <= high + 1e-6))
    centred = np.abs(sample.mean(axis=0) - rows.mean(axis=0)) / (high - low)
    assert centred.max() < 0.05
    np.testing.assert_allclose(sample.std(axis=0) / rows.std(axis=0), 1, atol=0.15)


def test_norm_bound_keeps_samples_in_the_ball():
    fitted = generator("gradient", bounds="private", norm_bound=0.5).fit(X)
    assert np.linalg.norm(fitted.sample(1500), axis=1).max() <= 0.5 + 1e-9


def test_score_is_the_negative_distance(plain):
    assert plain.score(X) == pytest.approx(-distance(plain.sample(4000), X), abs=0.04)
    assert plain.score(X) > plain.score(X + 0.3)
    assert plain.score(X) == plain.score(X, LABELS)


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


def test_gradients_cannot_be_retrained():
    with pytest.raises(ValueError, match="training steps"):
        generator("gradient").fit(SMALL).retrain()


def test_a_release_a_step():
    fitted = generator("smoothing", batch_size=100).fit(X)
    assert len(fitted.releases_.batches) == fitted.n_steps_ == 10
    assert all(batch.values.shape == (12, 100) for batch in fitted.releases_.batches)
    fitted = generator("smoothing", batch_size=5, sampling="poisson", n_steps=12).fit(SMALL)
    assert fitted.n_steps_ == len(fitted.releases_.batches) <= 12


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


@pytest.mark.parametrize("method", ["sample", "sample_labeled", "score", "retrain"])
def test_an_unfitted_generator_says_so(method):
    with pytest.raises(AttributeError, match="not fitted yet"):
        getattr(DPSlicedGenerator(), method)(*([X] if method == "score" else []))


@pytest.mark.skipif(not torch.cuda.is_available(), reason="needs a GPU")
@pytest.mark.filterwarnings("ignore:.*reproducible:skdpot.exceptions.PrivacyWarning")
@pytest.mark.parametrize("mechanism", MECHANISMS)
def test_a_gpu_agrees_with_the_cpu(mechanism):
    rows = [
        generator(mechanism, random_state=1, device=device).fit(X).sample(50, random_state=2)
        for device in ("cpu", "cuda")
    ]
    np.testing.assert_allclose(rows[0], rows[1], atol=1e-3)
