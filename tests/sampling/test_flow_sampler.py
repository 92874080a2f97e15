"""What the sampler gives back: rows, classes, frames, scores."""

import re
import warnings

import numpy as np
import pandas as pd
import pytest
import torch
from sklearn.datasets import load_breast_cancer, load_digits

from skdpot import PrivacyBudget
from skdpot.exceptions import PrivacyWarning
from skdpot.ot.directions import orthogonal_directions
from skdpot.ot.transport import sliced_distance
from skdpot.sampling.flow_sampler import apportion
from tests.flat_options import flow_sampler, sliced_generator

RNG = np.random.default_rng(8841)
LABELS = np.array(["left", "right"])[(RNG.random(1500) < 0.25).astype(int)]
X = np.clip(
    np.where(LABELS == "left", -0.4, 0.5)[:, None] + 0.1 * RNG.normal(size=(1500, 3)), -1, 1
)
FRAME = pd.DataFrame(X, columns=["a", "b", "c"])
QUICK = {"bounds": (-1, 1), "n_projections": 12, "n_bins": 64, "n_steps": 15, "device": "cpu"}
ACCURATE = {"n_projections": 60, "n_steps": 150}  # where the quality of the rows is looked at


def sampler(**changes):
    return flow_sampler(**(QUICK | changes))


def fitted_with_a_seed(**changes):
    """Few directions are now and then unlucky: one fit in some hundreds misses the bounds."""
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", PrivacyWarning)
        return sampler(epsilon=np.inf, random_state=0, **ACCURATE, **changes).fit(X, LABELS)


@pytest.fixture(scope="module")
def plain():
    return fitted_with_a_seed()


def trained_with_a_seed(**changes):
    options = {"n_projections": 60, "n_steps": 250, "n_latents": 300, "bounds": (-1, 1)}
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", PrivacyWarning)
        return sliced_generator(epsilon=np.inf, random_state=0, **options, **changes).fit(X, LABELS)


def distance(rows, others):
    return sliced_distance(
        rows, others, orthogonal_directions(30, rows.shape[1], np.random.default_rng(0))
    )


def test_samples_look_like_the_rows(plain):
    assert distance(plain.sample(1500), X) < 0.04
    np.testing.assert_allclose(np.corrcoef(plain.sample(1500).T), np.corrcoef(X.T), atol=0.06)
    assert plain.score(X) == pytest.approx(-distance(plain.particles_, X), abs=0.01)
    private = sampler(epsilon=5.0, delta=1e-5, **ACCURATE).fit(X)
    assert distance(private.sample(1500), X) < 0.1


def test_rows_are_particles_without_repetition_and_more_of_them_are_new(plain):
    held = {row.tobytes() for row in plain.particles_}
    few, many = plain.sample(1500), plain.sample(4000)
    assert {row.tobytes() for row in few} == held
    assert len(np.unique(many, axis=0)) == 4000
    assert distance(many, X) < 0.05


@pytest.mark.slow
@pytest.mark.parametrize(
    ("fit", "apart"), [(fitted_with_a_seed, 0.04), (trained_with_a_seed, 0.06)]
)
def test_classes_have_their_own_rows_and_frequencies(fit, apart):
    """5000 draws; five standard errors of a frequency are 0.03."""
    conditional = fit(conditional=True)
    np.testing.assert_array_equal(conditional.classes_, ["left", "right"])
    rows, labels = conditional.sample_labeled(5000)
    share = np.mean(LABELS == "right")
    assert np.mean(labels == "right") == pytest.approx(share, abs=0.031)
    for label in conditional.classes_:
        assert distance(rows[labels == label], X[LABELS == label]) < apart
    assert np.count_nonzero(labels[1:] != labels[:-1]) > 1000  # in random order; one when sorted


def test_a_declared_class_without_rows_can_be_sampled():
    fitted = sampler(epsilon=5.0, conditional=True, classes=["left", "middle", "right"])
    rows, labels = fitted.fit(X, LABELS).sample_labeled(1000)
    assert np.all(np.isfinite(rows))
    np.testing.assert_array_equal(fitted.classes_, ["left", "middle", "right"])
    assert np.mean(labels == "middle") < 0.1
    assert np.count_nonzero(fitted.particle_labels_ == "middle") >= 1


def test_a_rare_class_is_not_drawn_at_its_extremes():
    """A flow of one particle would move it to the lowest quantile of every direction.

    The mean of 60 uniform coordinates; its standard error is 0.075.
    """
    y = (np.arange(1000) < 8).astype(int)
    rows = RNG.uniform(-1, 1, (1000, 3))
    drawn = []
    for _ in range(20):
        fitted = sampler(
            epsilon=np.inf, conditional=True, n_particles=100, projections=np.eye(3)
        ).fit(rows, y)
        drawn.append(fitted.particles_[fitted.particle_labels_ == 1])
        assert len(drawn[-1]) == 1
    assert np.mean(drawn) == pytest.approx(rows[:8].mean(), abs=0.4)


def test_without_classes_there_are_no_labels(plain):
    with pytest.raises(ValueError, match="fitted with conditional=True"):
        plain.sample_labeled(3)
    assert not hasattr(plain, "classes_")
    assert not hasattr(plain, "particle_labels_")
    ignored = sampler(epsilon=np.inf).fit(X, [object()] * len(X))
    assert ignored.sketch_.statistic_.shape[0] == 1


@pytest.mark.parametrize(
    ("n_rows", "given", "made"), [(1500, None, 1500), (50, None, 1000), (50, 37, 37)]
)
def test_number_of_particles(n_rows, given, made):
    assert len(sampler(epsilon=np.inf, n_particles=given).fit(X[:n_rows]).particles_) == made


def test_verbose_shows_progress_and_nothing_private(capsys):
    sampler(verbose=1, conditional=True).fit(X, LABELS)
    shown = capsys.readouterr().err
    assert "flow of class left" in shown
    assert "15/15" in shown
    sampler().fit(X)
    output = capsys.readouterr()
    assert output.err == output.out == ""


def test_cuda_is_refused_where_there_is_none(monkeypatch):
    monkeypatch.setattr(torch.cuda, "is_available", lambda: False)
    budget = PrivacyBudget(1.0)
    with pytest.raises(ValueError, match="needs a GPU"):
        sampler(device="cuda", budget=budget).fit(X)
    assert budget.history().empty


@pytest.mark.parametrize("n_particles", [1, 2, 7, 1001])
def test_classes_share_exactly_the_number_of_particles(n_particles):
    y = np.repeat([0, 1, 2], 500)
    fitted = sampler(epsilon=np.inf, conditional=True, n_particles=n_particles, n_steps=2)
    fitted.fit(X, y)
    sizes = np.bincount(fitted.particle_labels_, minlength=3)
    assert sizes.sum() == len(fitted.particles_) == n_particles
    assert np.all(np.abs(sizes - n_particles / 3) < 1)
    rows, labels = fitted.sample_labeled(50)
    assert rows.shape == (50, 3)
    assert len(set(labels)) == 3


def test_every_class_that_occurs_gets_a_particle_if_there_are_enough():
    shares = np.array([98, 1, 1, 0]) / 100
    assert apportion(10, shares).tolist() == [8, 1, 1, 0]
    assert apportion(2, shares).tolist() == [2, 0, 0, 0]


DIGITS, DIGIT = load_digits(return_X_y=True)
CORRELATED = np.random.default_rng(0).normal(size=(5000, 40)) * np.linspace(0.5, 2, 40)
BOX = {"bounds": (0, 1)}


@pytest.mark.slow
@pytest.mark.parametrize(
    ("rows", "options", "told"),
    [
        (DIGITS / 16, {}, "private bounds of more than 32 features are one ball.*bounds=(0, 1)"),
        (DIGITS / 16, BOX, None),
        (
            load_breast_cancer().data,
            {},
            "too few rows, .* to find a centre for each feature",
        ),
        (DIGITS / 16, BOX | {"epsilon": 0.1}, "noise hides the distribution of"),
        (DIGITS / 16, BOX | {"conditional": True}, "distribution of class .*no classes"),
        (DIGITS / 16, BOX | {"conditional": True, "epsilon": 5.0}, None),
        (CORRELATED, {"delta": 1e-5}, None),
    ],
)
def test_noise_that_hides_the_data_and_bounds_that_do_not_fit_are_told(rows, options, told):
    """Noise and sampling have a false-alarm rate of less than 1e-6 here."""
    with warnings.catch_warnings(record=True) as caught:
        warnings.simplefilter("always")
        fitted = flow_sampler(n_particles=300, n_steps=50, **options).fit(rows, DIGIT[: len(rows)])
    texts = [str(warning.message) for warning in caught]
    texts = [text for text in texts if "to find a scale for each feature" not in text]
    assert len(texts) == (told is not None)
    assert all(re.search(told.replace("(0, 1)", r"\(0, 1\)"), text) for text in texts)
    made = fitted.sample(300)
    outside = (made < rows.min(axis=0)) | (made > rows.max(axis=0))
    if "bounds" in options:
        assert 0.0 <= made.min() <= made.max() <= 1.0
    elif told and "one ball" in told:  # what the warning is about
        assert outside.mean() > 0.2
