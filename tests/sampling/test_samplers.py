"""What samplers of rows and of paths share: seeds, frames, units, scores, interrupted fits."""

import pickle

import numpy as np
import pandas as pd
import pytest

from skdpot import (
    DPSlicedFlowSampler,
    DPSlicedGenerator,
    DPTableSynthesizer,
    PrivacyBudget,
    SlicedSketch,
)
from skdpot.exceptions import OpenSketchError, PrivacyWarning
from skdpot.ot.drift import NumpyDrift
from skdpot.trajectories import sketch_mechanism
from tests.flat_options import flow_sampler, sliced_generator, trajectory_sampler
from tests.trajectories.trajectory_examples import MFLD, SKETCH, quiet_fit

RNG = np.random.default_rng(8841)
T = np.arange(800) % 5  # times, or classes
X = np.column_stack([(T - 2) / 3.2, np.zeros(800)]) + RNG.uniform(-0.3, 0.3, (800, 2))
FRAME = pd.DataFrame(X, columns=["a", "b"])
FLOW = {"bounds": (-1, 1), "n_projections": 12, "n_bins": 64, "n_steps": 15, "device": "cpu"}
LARGER = {"n_projections": 8, "n_bins": 32, "n_particles": 60, "schedule": [(1.0, None, 20)]}
KINDS = {
    "flow": lambda **options: flow_sampler(**FLOW | options),
    "classes": lambda **options: flow_sampler(**FLOW | {"conditional": True} | options),
    "generator": lambda **options: sliced_generator(**FLOW | {"conditional": True} | options),
    "paths": lambda **options: trajectory_sampler(**SKETCH | LARGER | options),
    "mfld": lambda **options: trajectory_sampler(**MFLD | options),
}
EVERY = pytest.mark.parametrize("kind", [*KINDS])
KINDS["table"] = lambda **options: DPTableSynthesizer(n_particles=100, **options)
METHODS = {
    "flow": {"sample": (), "score": (X,)},
    "classes": {"sample": (), "sample_labeled": (), "score": (X,)},
    "table": {"sample": (), "score": (X,)},
    "paths": {"sample": (), "sample_frame": (), "sample_marginal": (1.3,), "score": (X, T)},
}
CASES = [(kind, name) for kind, methods in METHODS.items() for name in methods]


@pytest.fixture(scope="module")
def fitted():
    return {kind: KINDS[kind](epsilon=np.inf).fit(X, T) for kind in METHODS}


def drawn(value):
    """Whatever a method returns, as one array."""
    parts = value if isinstance(value, tuple) else (value,)
    return np.concatenate([np.ravel(part) for part in parts])


@pytest.mark.parametrize(("kind", "name"), CASES)
def test_a_method_needs_a_fit_and_a_number_and_follows_its_seed(kind, name, fitted):
    arguments = METHODS[kind][name]
    with pytest.raises(AttributeError, match="not fitted yet"):
        getattr(KINDS[kind](), name)(*arguments)
    if name == "score":
        return
    draw = getattr(fitted[kind], name)
    one, same, other, free = (
        drawn(draw(*arguments, n_samples=9, random_state=state)) for state in (3, 3, 4, None)
    )
    np.testing.assert_array_equal(one, same)
    assert not np.array_equal(one, other)
    assert not np.array_equal(one, free)
    for n_samples in (0, -1, 2.5, "3", None):
        with pytest.raises((TypeError, ValueError), match="^n_samples "):
            draw(*arguments, n_samples=n_samples)


@EVERY
def test_a_seeded_fit_repeats_itself_and_warns_once(kind):
    one, *others = (quiet_fit(KINDS[kind](random_state=k), X, T) for k in (5, 5, 6))
    same, other = (
        np.array_equal(one.sample(9, random_state=0), k.sample(9, random_state=0)) for k in others
    )
    assert same
    assert not other
    with pytest.warns(PrivacyWarning, match="(Sampler|Generator): `random_state`") as shown:
        one.fit(X, T)
    assert sum("random_state" in str(each.message) for each in shown) == 1


@EVERY
def test_frames_in_frames_out(kind):
    named = KINDS[kind]().fit(FRAME, pd.Series(T))
    draw = getattr(named, "sample_marginal", named.sample)
    arguments = () if draw == named.sample else (1.3,)
    rows = draw(*arguments, n_samples=4)
    assert isinstance(rows, pd.DataFrame)
    assert list(rows.columns) == list(named.feature_names_in_) == ["a", "b"]
    assert named.score(FRAME, T) < 0
    with pytest.raises(ValueError, match="feature names should match"):
        named.score(FRAME.rename(columns={"a": "z"}), T)
    again = named.fit(X.tolist(), T)
    assert not hasattr(again, "feature_names_in_")
    assert isinstance(draw(*arguments, n_samples=4), np.ndarray)
    again.fit(pd.DataFrame(X), T)
    assert list(draw(*arguments, n_samples=4).columns) == [0, 1]


@pytest.mark.parametrize("kind", ["flow", "paths"])
def test_units_of_the_data_come_back(kind):
    """Bounds that are far from the unit cube, one a feature."""
    low, high = np.array([0, 1000.0]), np.array([1, 3000.0])
    rows = low + (high - low) * (X + 1) / 2
    particles = KINDS[kind](epsilon=np.inf, bounds=(low, high)).fit(rows, T).particles_
    points = particles.reshape(-1, 2)
    assert np.all((points >= low - 1e-6) & (points <= high + 1e-6))
    gaps = (points.mean(axis=0) - rows.mean(axis=0)) / (high - low)
    np.testing.assert_allclose(gaps, 0, atol=0.05)


@EVERY
@pytest.mark.parametrize("n_features", [1, 8])
def test_any_number_of_features(kind, n_features):
    rows = RNG.uniform(-1, 1, (800, n_features))
    sampler = KINDS[kind]().fit(rows, T)
    assert sampler.n_features_in_ == n_features
    found = sampler.sample(30)
    assert found.shape[-1] == n_features
    assert np.all(np.abs(found) <= 1 + 1e-9)


@pytest.mark.parametrize("kind", METHODS)
def test_scores_fall_with_the_distance(kind, fitted):
    score = fitted[kind].score
    assert 0 > score(X, T) > score(X + 0.2, T) > score(X + 0.5, T)


def interrupt(monkeypatch, kind, estimator, *given, error=KeyboardInterrupt):
    """Break off the flow of a fit, after its release."""

    def stop(*args, **kwargs):
        raise error

    flow = (sketch_mechanism, "coupled_flow") if kind == "paths" else (NumpyDrift, "residual")
    with monkeypatch.context() as patch:
        patch.setattr(*flow, stop)
        with pytest.raises(error):
            estimator.fit(*given)
    return estimator


@pytest.mark.parametrize(("kind", "name"), [case for case in CASES if case[0] != "table"])
def test_an_interrupted_flow_keeps_the_release_that_was_paid_for(kind, name, monkeypatch):
    """The first method that needs particles completes it, also in another process."""
    budget = PrivacyBudget(np.inf)
    broken_off = KINDS[kind](epsilon=np.inf, budget=budget)
    error = MemoryError if name == "score" else KeyboardInterrupt
    interrupt(monkeypatch, kind, broken_off, X, T, error=error)
    assert broken_off.privacy_spent_.epsilon == np.inf
    assert not hasattr(broken_off, "particles_")
    other = pickle.loads(pickle.dumps(broken_off)).set_params(n_particles=50)
    getattr(other, name)(*METHODS[kind][name])
    assert other.particles_.shape[-2:] == (50, 2)
    assert other.score(X, T) > -0.3
    assert len(budget.history()) == 1


@pytest.mark.parametrize("kind", [kind for kind in METHODS if kind != "table"])
def test_an_interrupted_refit_has_the_new_release_and_nothing_old(kind, monkeypatch):
    later = T > 0
    refitted = KINDS[kind](epsilon=np.inf).fit(X, T)
    if kind == "classes":
        refitted.set_params(conditional=False)
    interrupt(monkeypatch, kind, refitted, -X[later], T[later])
    for name in ("particles_", "particle_labels_", "classes_", "path_", "displacements_"):
        assert not hasattr(refitted, name)
    assert refitted.score(-X[later], T[later]) > -0.3
    if kind == "paths":
        assert refitted.sample(3).shape == (3, 4, 2)


@pytest.mark.parametrize(
    ("kind", "changes", "gone"),
    [
        ("classes", {"mechanism": "presample", "conditional": False}, "sketch_ particle_labels_"),
        ("classes", {"conditional": False}, "classes_ particle_labels_"),
        ("generator", {"conditional": False}, "classes_"),
        ("flow", {"mechanism": "presample"}, "sketch_"),
        ("paths", {"mechanism": "mfld"}, "sketch_"),
        ("mfld", {"mechanism": "sketch"}, "noise_multiplier_"),
    ],
)
def test_a_refit_keeps_nothing_of_another_mechanism_or_of_classes(kind, changes, gone):
    refitted = KINDS[kind]().fit(X, T)
    assert all(hasattr(refitted, name) for name in gone.split())
    refitted.set_params(**changes).fit(X, T)
    assert not any(hasattr(refitted, name) for name in gone.split())
    assert len(refitted.sample(9)) == 9
    if hasattr(refitted, "sample_labeled"):
        with pytest.raises(ValueError, match="fitted with conditional=True"):
            refitted.sample_labeled(3)


@pytest.mark.parametrize("kind", [DPSlicedFlowSampler, DPSlicedGenerator])
def test_a_sketch_of_chunks_becomes_a_sampler_at_no_cost(kind, tmp_path):
    rng = np.random.default_rng(4)
    X, y = rng.normal(0.3, 0.1, (3000, 2)), np.arange(3000) % 2
    X[y == 1] -= 0.6
    budget = PrivacyBudget(epsilon=5.0)
    terms = {"epsilon": 3.0, "budget": budget, "bounds": (-1, 1)}
    sketch = SlicedSketch(conditional=True, classes=[0, 1], **terms)
    sampler = kind(conditional=True, epsilon=0.1, n_steps=60)  # of no release
    for rows, labels in zip(np.split(X, 3), np.split(y, 3), strict=True):
        sketch.partial_fit(pd.DataFrame(rows, columns=["a", "b"]), labels)
        with pytest.raises(OpenSketchError):
            sampler.fit_sketch(sketch)
    sketch.close().save(tmp_path / "sketch.safetensors")
    sampler.fit_sketch(SlicedSketch.load(tmp_path / "sketch.safetensors"))
    drawn, labels = sampler.sample_labeled(1000, random_state=0)
    assert list(drawn.columns) == ["a", "b"]
    for label, centre in ((0, 0.3), (1, -0.3)):
        np.testing.assert_allclose(drawn[labels == label].mean(), centre, atol=0.06)
    assert sampler.privacy_spent_.epsilon == 3.0
    assert len(budget.history()) == 1
    rows = kind({DPSlicedFlowSampler: "resample"}.get(kind, "smoothing"), conditional=True)
    for other in (kind(), rows):
        with pytest.raises(ValueError, match="fit_sketch needs"):
            other.fit_sketch(sketch)
    assert not hasattr(other, "n_samples_")
