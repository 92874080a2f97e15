"""What the pictures of a sketch and of a flow towards it draw."""

from types import SimpleNamespace

import numpy as np
import pandas as pd
import pytest

from skdpot.metrics import FlowDisplay, SketchDisplay
from skdpot.release.decoding import measured_cdf
from tests.flat_options import flow_sampler

RNG = np.random.default_rng(8124)
NAMES = ["age", "income", "height"]
X = pd.DataFrame(RNG.uniform([0, 10, -5], [4, 30, 5], size=(300, 3)), columns=NAMES)
Y = np.where(X["age"] > 2, "old", "young")
DIRECTIONS = np.array([[0, 1.0, 0], [-1.0, 0, 0], [0.6, 0, -0.8], [2 / 3, 1 / 3, -2 / 3]])
OPTIONS = {"bounds": ([0, 10, -5], [4, 30, 5]), "projections": DIRECTIONS, "n_bins": 8}


@pytest.fixture(scope="module")
def sampler():
    return flow_sampler(epsilon=2.0, n_steps=2, conditional=True, **OPTIONS).fit(X, Y)


@pytest.mark.parametrize("label", [None, "old"])
def test_lines_are_the_sketch_and_bands_are_its_noise(sampler, label):
    display = SketchDisplay.from_estimator(sampler, label=label)
    table, (center, scale) = sampler.sketch_.table(label), np.transpose([[2, 20, 0], [2, 10, 5]]).T
    measured, deviations = measured_cdf(sampler.sketch_, label)
    # In the units of the data along axes; against one with the signs of the values changed.
    edges = [center[1] + scale[1] * table.edges[0], -center[0] + scale[0] * table.edges[1]]
    for k, (line, band) in enumerate(zip(display.lines_, display.bands_, strict=True)):
        where = [*edges, *table.edges[2:]][k]
        np.testing.assert_allclose(line.get_xydata(), np.column_stack([where, table.cdf[k]]))
        corners = pd.DataFrame(band.get_paths()[0].vertices, columns=["x", "y"]).round(12)
        limits = corners.groupby("x")["y"].agg(["min", "max"])
        np.testing.assert_allclose(limits.index, np.sort(where))
        expected = measured[k][:, np.newaxis] + np.outer(2 * deviations[k], [-1, 1])
        np.testing.assert_allclose(limits, np.clip(expected, 0, 1), atol=1e-9)
        assert (limits["max"] > limits["min"]).sum() >= 5
    due = ["income", "−1.00 age", "−0.80 height + 0.60 age", "0.67 age − 0.67 height + …"]
    assert display.names == due
    assert display.public_lines_ == []
    chosen = SketchDisplay.from_estimator(sampler, projections=[3, 0], label=label)
    np.testing.assert_allclose(chosen.lines_[0].get_ydata(), table.cdf[3])


def test_public_rows_are_drawn_on_the_same_scale(sampler):
    lines = SketchDisplay.from_estimator(sampler, X=X[:50]).public_lines_
    mapped = sampler.sketch_.bounds_.to_ball(X[:50].to_numpy()) @ DIRECTIONS[2]
    for line, rows in zip(lines, (X["income"][:50], -X["age"][:50], mapped), strict=False):
        np.testing.assert_allclose(line.get_xdata()[1:-1], np.sort(rows))
        np.testing.assert_allclose(line.get_ydata()[1:-1], np.arange(1, 51) / 50)


# --- a flow --------------------------------------------------------------------------------------

STEPS = np.array([0, 1, 5, 20])
PARTICLES = RNG.normal(size=(4, 60, 3))


def trace(classes=("a", "b"), particles=PARTICLES):
    """States of a flow; particles of several classes with their distances to a sketch."""
    names = np.array(classes)
    distances = RNG.random((len(names), 4)) if len(names) else None
    labels = np.repeat(names, 60 // len(names)) if len(names) else None
    states = {"steps": STEPS, "particles": particles, "labels": labels}
    return SimpleNamespace(**states, distances=distances, classes=names)


def titles(display):
    return [ax.get_title() for ax in display.axes_]


def test_a_panel_per_step_one_of_public_rows_and_one_of_the_distances():
    states, rows = trace(), RNG.normal(size=(9, 3)) + 20
    display = FlowDisplay.from_trace(states, X=rows)
    due = ["start", "1 step", "5 steps", "20 steps", "public rows", "SW₂ to the sketch"]
    assert titles(display) == due
    assert list(display.points_) == STEPS.tolist()
    for k, drawn in enumerate(display.points_.values()):
        for members, collection in zip((slice(0, 30), slice(30, 60)), drawn, strict=True):
            np.testing.assert_allclose(collection.get_offsets(), PARTICLES[k, members, :2])
    np.testing.assert_allclose(display.public_points_.get_offsets(), rows[:, :2])
    for curve, values in zip(display.curves_, states.distances, strict=True):
        np.testing.assert_array_equal(curve.get_xydata(), np.column_stack([STEPS, values]))
    assert titles(FlowDisplay.from_trace(states, steps=[5], distances=False)) == ["5 steps"]
    # More classes than colours, and none, are one cloud.
    for classes in (range(10), ()):
        display = FlowDisplay.from_trace(trace(classes))
        assert [len(drawn) for drawn in display.points_.values()] == [1, 1, 1, 1]


def test_the_plane_is_chosen():
    plain = trace(())
    by_name = FlowDisplay.from_trace(plain, plane=("c", 0), feature_names=["a", "b", "c"])
    np.testing.assert_allclose(by_name.points_[0][0].get_offsets(), PARTICLES[0][:, [2, 0]])
    own = FlowDisplay.from_trace(plain, plane=np.array([[3.0, 4.0, 0.0], [0, 0, -2.0]]))
    expected = PARTICLES[0] @ np.array([[0.6, 0.8, 0], [0, 0, -1.0]]).T
    np.testing.assert_allclose(own.points_[0][0].get_offsets(), expected)
    assert own.names == ["0.80 feature 1 + 0.60 feature 0", "−1.00 feature 2"]
    random = FlowDisplay.from_trace(plain, plane="random", random_state=0).plane
    np.testing.assert_allclose(random @ random.T, np.eye(2), atol=1e-12)
    # A single feature is drawn against the share of particles below.
    line = FlowDisplay.from_trace(trace((), PARTICLES[:, :, :1]))
    where = np.asarray(line.points_[20][0].get_offsets())
    due = np.column_stack([np.sort(PARTICLES[3, :, 0]), (np.arange(60) + 0.5) / 60])
    np.testing.assert_allclose(where[np.argsort(where[:, 0])], due)


def test_paths_join_the_states_of_a_particle():
    display = FlowDisplay.from_trace(trace(), kind="paths", max_paths=7)
    pieces = np.array(display.paths_.get_segments()).reshape(7, 3, 2, 2)
    ways = PARTICLES[:, np.linspace(0, 59, 7).round().astype(int), :2].swapaxes(0, 1)
    np.testing.assert_allclose(pieces, np.stack([ways[:, :-1], ways[:, 1:]], axis=2))
    assert list(display.points_) == [20]


def test_a_sampler_is_traced(sampler):
    display = FlowDisplay.from_estimator(sampler, n_particles=80, random_state=3)
    traced = sampler.trace(n_particles=80, random_state=3)
    np.testing.assert_array_equal(display.particles, traced.particles)
    np.testing.assert_array_equal(display.distances, traced.distances)
