"""What the picture of a flow draws: states in a plane, paths, public rows and distances."""

from types import SimpleNamespace

import numpy as np

from skdpot.metrics import FlowDisplay
from tests.flat_options import flow_sampler

RNG = np.random.default_rng(2201)
STEPS = np.array([0, 1, 5, 20])
PARTICLES = RNG.normal(size=(4, 60, 3))


def trace(classes=("a", "b"), particles=PARTICLES):
    """States of a flow; particles of several classes with their distances to a sketch."""
    states = {"steps": STEPS, "particles": particles}
    if classes is None:
        return SimpleNamespace(**states, labels=None, distances=None, classes=None)
    distances = RNG.random((len(classes), 4))
    labels = np.repeat(classes, 60 // len(classes))
    return SimpleNamespace(**states, labels=labels, distances=distances, classes=np.array(classes))


def titles(display):
    return [ax.get_title() for ax in display.axes_]


def test_a_panel_a_step_and_one_of_the_distances():
    states = trace()
    display = FlowDisplay.from_trace(states)
    assert titles(display) == ["start", "1 step", "5 steps", "20 steps", "SW₂ to the sketch"]
    assert list(display.points_) == [0, 1, 5, 20]
    for k, drawn in enumerate(display.points_.values()):
        for members, collection in zip((slice(0, 30), slice(30, 60)), drawn, strict=True):
            np.testing.assert_allclose(collection.get_offsets(), PARTICLES[k, members, :2])
    for curve, values in zip(display.curves_, states.distances, strict=True):
        np.testing.assert_array_equal(curve.get_xdata(), STEPS)
        np.testing.assert_array_equal(curve.get_ydata(), values)
    assert titles(FlowDisplay.from_trace(states, steps=[5], distances=False)) == ["5 steps"]
    # More classes than colours, and none, are one cloud.
    for classes in (range(10), None):
        display = FlowDisplay.from_trace(trace(classes))
        assert [len(drawn) for drawn in display.points_.values()] == [1, 1, 1, 1]


def test_the_plane_is_chosen():
    plain = trace(None)
    by_name = FlowDisplay.from_trace(plain, plane=("c", 0), feature_names=["a", "b", "c"])
    np.testing.assert_allclose(by_name.points_[0][0].get_offsets(), PARTICLES[0][:, [2, 0]])
    assert by_name.names == ["c", "a"]
    own = FlowDisplay.from_trace(plain, plane=np.array([[3.0, 4.0, 0.0], [0, 0, -2.0]]))
    expected = PARTICLES[0] @ np.array([[0.6, 0.8, 0], [0, 0, -1.0]]).T
    np.testing.assert_allclose(own.points_[0][0].get_offsets(), expected)
    assert own.names == ["0.80 feature 1 + 0.60 feature 0", "−1.00 feature 2"]
    random = FlowDisplay.from_trace(plain, plane="random", random_state=0).plane
    np.testing.assert_allclose(random @ random.T, np.eye(2), atol=1e-12)


def test_one_feature_is_drawn_against_the_share_below():
    display = FlowDisplay.from_trace(trace(None, PARTICLES[:, :, :1]))
    where = np.asarray(display.points_[20][0].get_offsets())
    order = np.argsort(where[:, 0])
    np.testing.assert_allclose(where[order, 0], np.sort(PARTICLES[3, :, 0]))
    np.testing.assert_allclose(where[order, 1], (np.arange(60) + 0.5) / 60)


def test_paths_join_the_states_of_a_particle():
    display = FlowDisplay.from_trace(trace(), kind="paths", max_paths=7)
    pieces = np.array(display.paths_.get_segments()).reshape(7, 3, 2, 2)
    chosen = np.linspace(0, 59, 7).round().astype(int)
    np.testing.assert_allclose(pieces[:, :, 0], PARTICLES[:3, chosen, :2].swapaxes(0, 1))
    np.testing.assert_allclose(pieces[:, :, 1], PARTICLES[1:, chosen, :2].swapaxes(0, 1))
    assert list(display.points_) == [20]


def test_public_rows_have_a_panel():
    rows = RNG.normal(size=(9, 3)) + 20
    display = FlowDisplay.from_trace(trace(), X=rows, plane=(1, 2))
    assert titles(display)[-2:] == ["public rows", "SW₂ to the sketch"]
    np.testing.assert_allclose(display.public_points_.get_offsets(), rows[:, 1:])


def test_a_sampler_is_traced():
    X = RNG.uniform(-1, 1, size=(400, 2))
    options = {"bounds": (-1, 1), "n_projections": 6, "n_steps": 12, "conditional": True}
    sampler = flow_sampler(epsilon=4.0, **options).fit(X, (X[:, 0] > 0).astype(int))
    display = FlowDisplay.from_estimator(sampler, n_particles=80, random_state=3)
    traced = sampler.trace(n_particles=80, random_state=3)
    np.testing.assert_array_equal(display.particles, traced.particles)
    np.testing.assert_array_equal(display.distances, traced.distances)
