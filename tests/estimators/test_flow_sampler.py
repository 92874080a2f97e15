"""What the sampler gives back: rows, classes, frames, scores."""

import pickle
import warnings

import numpy as np
import pandas as pd
import pytest
import torch
from sklearn.datasets import load_breast_cancer, load_digits

from skdpot import DPSlicedFlowSampler, PrivacyBudget, SlicedSketch
from skdpot.estimators.flow_sampler import apportion
from skdpot.exceptions import PrivacyWarning
from skdpot.ot.flow import NumpyDrift
from skdpot.ot.slices import orthogonal_directions
from skdpot.ot.transport import sliced_wasserstein_distance
from tests.flat_options import flow_sampler

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


@pytest.fixture(scope="module")
def conditional():
    return fitted_with_a_seed(conditional=True)


def distance(rows, others):
    return sliced_wasserstein_distance(
        rows, others, orthogonal_directions(30, rows.shape[1], np.random.default_rng(0))
    )


def test_samples_look_like_the_rows(plain):
    assert distance(plain.sample(1500), X) < 0.04
    np.testing.assert_allclose(np.corrcoef(plain.sample(1500).T), np.corrcoef(X.T), atol=0.06)


def test_a_private_sample_looks_like_the_rows():
    private = sampler(epsilon=5.0, delta=1e-5, **ACCURATE).fit(X)
    assert private.privacy_spent_.epsilon == 5.0
    assert distance(private.sample(1500), X) < 0.1


def test_rows_are_particles_without_repetition_and_more_of_them_are_new(plain):
    held = {row.tobytes() for row in plain.particles_}
    few, many = plain.sample(1500), plain.sample(4000)
    assert {row.tobytes() for row in few} == held
    assert len(np.unique(many, axis=0)) == 4000
    assert distance(many, X) < 0.05


@pytest.mark.parametrize("n_samples", [0, -1, 2.5, "3", None])
def test_the_number_must_be_a_positive_integer(plain, n_samples):
    with pytest.raises((TypeError, ValueError), match="^n_samples "):
        plain.sample(n_samples)


def test_a_seeded_fit_warns_once():
    with pytest.warns(PrivacyWarning, match="DPSlicedFlowSampler: `random_state`") as shown:
        sampler(random_state=5).fit(X)
    assert len(shown) == 1


def test_classes_have_their_own_rows_and_frequencies(conditional):
    """5000 draws; five standard errors of a frequency are 0.03."""
    np.testing.assert_array_equal(conditional.classes_, ["left", "right"])
    rows, labels = conditional.sample_labeled(5000)
    share = np.mean(LABELS == "right")
    assert np.mean(labels == "right") == pytest.approx(share, abs=0.031)
    for label in conditional.classes_:
        assert distance(rows[labels == label], X[LABELS == label]) < 0.04
    assert rows[labels == "left"].mean() < 0 < rows[labels == "right"].mean()


def test_labels_come_in_random_order(conditional):
    _, labels = conditional.sample_labeled(400)
    changes = np.count_nonzero(labels[1:] != labels[:-1])
    assert changes > 80  # about 150 in random order, one when sorted


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


def test_labels_are_ignored_without_conditional():
    fitted = sampler(epsilon=np.inf).fit(X, [object()] * len(X))
    assert fitted.sketch_.statistic_.shape[0] == 1


def test_frames_in_frames_out():
    fitted = sampler(epsilon=np.inf, conditional=True, **ACCURATE).fit(FRAME, pd.Series(LABELS))
    rows, labels = fitted.sample_labeled(5)
    assert isinstance(rows, pd.DataFrame)
    assert list(rows.columns) == ["a", "b", "c"]
    assert list(fitted.feature_names_in_) == ["a", "b", "c"]
    assert labels.shape == (5,)
    assert isinstance(fitted.sample(2), pd.DataFrame)
    assert fitted.score(FRAME) > -0.1
    with pytest.raises(ValueError, match="feature names should match"):
        fitted.score(FRAME.rename(columns={"a": "z"}))


def test_frames_without_names_and_arrays():
    unnamed = sampler(epsilon=np.inf).fit(pd.DataFrame(X)).sample(2)
    assert list(unnamed.columns) == [0, 1, 2]
    refitted = sampler(epsilon=np.inf).fit(FRAME).fit(X.tolist())
    assert isinstance(refitted.sample(2), np.ndarray)
    assert not hasattr(refitted, "feature_names_in_")


def test_score_is_the_negative_distance(plain):
    assert plain.score(X) == pytest.approx(-distance(plain.particles_, X), abs=0.01)
    assert plain.score(X) > plain.score(X + 0.2) > plain.score(X + 0.5)
    assert plain.score(X[:100]) == plain.score(X[:100], LABELS[:100])


def test_particles_are_not_rows():
    particles = sampler(n_particles=60).fit(X).particles_
    assert np.min(np.abs(particles[:, None] - X[None]).max(axis=2)) > 0


def test_units_of_the_data_come_back():
    """Bounds that are far from the unit cube, one a feature."""
    low, high = np.array([0, 1000, -5.0]), np.array([1, 3000, -4.0])
    rows = low + (high - low) * (X + 1) / 2
    fitted = sampler(epsilon=np.inf, bounds=(low, high), **ACCURATE).fit(rows)
    sample = fitted.sample(1500)
    assert np.all((sample >= low - 1e-6) & (sample <= high + 1e-6))
    np.testing.assert_allclose(
        sample.mean(axis=0), rows.mean(axis=0), atol=0.05 * (high - low).max()
    )
    np.testing.assert_allclose((sample.std(axis=0) / rows.std(axis=0)), 1, atol=0.1)


@pytest.mark.parametrize(
    ("n_rows", "given", "made"), [(1500, None, 1500), (50, None, 1000), (50, 37, 37)]
)
def test_number_of_particles(n_rows, given, made):
    assert len(sampler(epsilon=np.inf, n_particles=given).fit(X[:n_rows]).particles_) == made


def test_one_feature_and_two_rows():
    fitted = sampler(epsilon=1.0).fit(np.array([[0.1], [0.2]]))
    assert fitted.sample(3).shape == (3, 1)


def test_verbose_shows_progress_and_nothing_private(capsys):
    sampler(verbose=1, conditional=True).fit(X, LABELS)
    shown = capsys.readouterr().err
    assert "flow of class left" in shown
    assert "15/15" in shown
    sampler().fit(X)
    output = capsys.readouterr()
    assert output.err == output.out == ""


def test_sketch_is_that_of_a_sketch():
    """The sampler adds nothing to the release."""
    options = {"epsilon": np.inf, "bounds": (-1, 1), "n_bins": 16, "projections": np.eye(3)}
    fitted = flow_sampler(**options, n_steps=1).fit(X)
    sketch = SlicedSketch(**options).fit(X)
    np.testing.assert_array_equal(fitted.sketch_.statistic_, sketch.statistic_)
    assert fitted.sketch_.privacy_spent_ == fitted.privacy_spent_


def test_a_fitted_sampler_travels(conditional):
    other = pickle.loads(pickle.dumps(conditional))
    one, two = (s.sample_labeled(20, random_state=1) for s in (conditional, other))
    np.testing.assert_array_equal(one[0], two[0])
    np.testing.assert_array_equal(one[1], two[1])


def test_cuda_is_refused_where_there_is_none(monkeypatch):
    monkeypatch.setattr(torch.cuda, "is_available", lambda: False)
    budget = PrivacyBudget(1.0)
    with pytest.raises(ValueError, match="needs a GPU"):
        sampler(device="cuda", budget=budget).fit(X)
    assert budget.history().empty


@pytest.mark.parametrize("method", ["sample", "sample_labeled", "score"])
def test_an_unfitted_sampler_says_so(method):
    with pytest.raises(AttributeError, match="not fitted yet"):
        getattr(DPSlicedFlowSampler(), method)(*([X] if method == "score" else []))


def interrupted(monkeypatch, error=KeyboardInterrupt, **changes):
    """A sampler whose first flow was broken off."""
    broken_off = sampler(epsilon=np.inf, budget=PrivacyBudget(np.inf), **changes)

    def fail(*args):
        raise error

    with monkeypatch.context() as patch:
        patch.setattr(NumpyDrift, "residual", fail)
        with pytest.raises(error):
            broken_off.fit(X, LABELS)
    return broken_off


@pytest.mark.parametrize("error", [KeyboardInterrupt, MemoryError])
def test_an_interrupted_flow_keeps_the_release_that_was_paid_for(error, monkeypatch):
    broken_off = interrupted(monkeypatch, error, n_projections=60, n_steps=40)
    assert broken_off.privacy_spent_ == broken_off.sketch_.privacy_spent_
    assert not hasattr(broken_off, "particles_")
    other = pickle.loads(pickle.dumps(broken_off))
    for fitted in (broken_off, other):
        assert fitted.sample(3).shape == (3, 3)
        assert fitted.particles_.shape == (1500, 3)
        assert fitted.displacements_.shape == (1, 40)
        assert distance(fitted.particles_, X) < 0.12  # .01, at most .08 in 150; one step: .18
    assert len(broken_off.budget.history()) == 1


@pytest.mark.parametrize("first", ["score", "sample", "sample_labeled"])
def test_whatever_is_asked_first_runs_the_flow(first, monkeypatch):
    broken_off = interrupted(monkeypatch, conditional=True)
    getattr(broken_off, first)(*([X] if first == "score" else []))
    assert broken_off.particle_labels_.shape == (len(broken_off.particles_),)
    assert broken_off.sample_labeled(9)[1].shape == (9,)


def test_an_interrupted_refit_has_the_new_release_and_no_old_particles(monkeypatch):
    fitted = sampler(epsilon=np.inf, conditional=True, n_projections=60, n_steps=40).fit(X, LABELS)

    def fail(*args):
        raise KeyboardInterrupt

    fitted.set_params(conditional=False)
    with monkeypatch.context() as patch:
        patch.setattr(NumpyDrift, "residual", fail)
        with pytest.raises(KeyboardInterrupt):
            fitted.fit(-X)
    for name in ("particles_", "particle_labels_", "classes_", "displacements_"):
        assert not hasattr(fitted, name)
    assert distance(fitted.sample(1500), -X) < 0.12


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


def warned(**parameters):
    """What a fit of the digits warns of."""
    X, y = load_digits(return_X_y=True)
    sampler = flow_sampler(**{"n_particles": 300, "n_steps": 50} | parameters)
    with warnings.catch_warnings(record=True) as caught:
        warnings.simplefilter("always")
        sampler.fit(X / 16, y)
    return sampler.sample(300), [str(warning.message) for warning in caught]


def test_values_that_leave_the_range_of_pixels_are_told_and_bounds_mend_it():
    """Noise and sampling have a false-alarm rate of less than 1e-6 here."""
    rows, (told,) = warned(epsilon=1.0)
    assert "private bounds of more than 32 features are one ball" in told
    assert "bounds=(0, 1)" in told
    assert rows.min() < -0.1
    rows, nothing = warned(epsilon=1.0, bounds=(0, 1))
    assert nothing == []
    assert 0.0 <= rows.min() <= rows.max() <= 1.0


def test_few_rows_of_features_of_many_scales_are_told():
    """Of these 30 features most leave their range; 15 or more were narrow in all of 12 fits."""
    rows = load_breast_cancer().data
    with pytest.warns(PrivacyWarning, match="private bounds of too few rows are one ball"):
        made = flow_sampler(epsilon=1.0, n_particles=300, n_steps=50).fit(rows).sample(300)
    outside = (made < rows.min(axis=0)) | (made > rows.max(axis=0))
    assert np.mean(outside.mean(axis=0) > 0.5) > 0.5


def test_noise_that_hides_the_data_is_told():
    _, (told,) = warned(epsilon=0.1, bounds=(0, 1))
    assert "the noise hides the data" in told
    assert "conditional" not in told
    _, (told,) = warned(epsilon=1.0, bounds=(0, 1), conditional=True)
    assert "conditional=False" in told
    assert warned(epsilon=5.0, bounds=(0, 1), conditional=True)[1] == []


def test_correlated_features_with_a_ball_are_not_warned_of():
    rows = np.random.default_rng(0).normal(size=(5000, 40)) * np.linspace(0.5, 2, 40)
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        flow_sampler(n_particles=100, n_steps=5).fit(rows)
