"""What the picture of a flow draws: states in a plane, paths, public rows and distances."""

from types import SimpleNamespace

import matplotlib as mpl
import matplotlib.pyplot as plt
import numpy as np
import pytest
from matplotlib.colors import to_hex
from sklearn.exceptions import NotFittedError

from skdpot import DPSlicedFlowSampler, SlicedSketch
from skdpot.metrics import FlowDisplay
from skdpot.metrics._panels import COLORS
from tests.flat_options import flow_sampler

RNG = np.random.default_rng(2201)
STEPS = np.array([0, 1, 5, 20])
PARTICLES = RNG.normal(size=(4, 60, 3))
LABELS = np.repeat(["a", "b"], 30)
DISTANCES = np.array([[0.4, 0.3, 0.2, 0.1], [0.5, 0.4, 0.3, 0.2]])
TRACE = SimpleNamespace(
    steps=STEPS,
    particles=PARTICLES,
    labels=LABELS,
    distances=DISTANCES,
    classes=np.array(["a", "b"]),
)
PLAIN = SimpleNamespace(steps=STEPS, particles=PARTICLES, labels=None, distances=None, classes=None)


@pytest.fixture(autouse=True)
def backend():
    before = mpl.get_backend()
    plt.switch_backend("Agg")
    yield
    plt.close("all")
    plt.switch_backend(before)


def titles(display):
    return [ax.get_title() for ax in display.axes_]


def test_a_panel_a_step_and_one_of_the_distances():
    display = FlowDisplay.from_trace(TRACE)
    assert titles(display) == ["start", "1 step", "5 steps", "20 steps", "SW₂ to the sketch"]
    assert list(display.points_) == [0, 1, 5, 20]
    for k, drawn in enumerate(display.points_.values()):
        for members, collection, color in zip(
            (slice(0, 30), slice(30, 60)), drawn, COLORS, strict=False
        ):
            np.testing.assert_allclose(collection.get_offsets(), PARTICLES[k, members, :2])
            assert to_hex(collection.get_facecolor()[0]) == color.lower()
    for curve, values, color in zip(display.curves_, DISTANCES, COLORS, strict=False):
        np.testing.assert_array_equal(curve.get_xdata(), STEPS)
        np.testing.assert_array_equal(curve.get_ydata(), values)
        assert curve.get_color() == color
    texts = [text.get_text() for text in display.figure_.legends[0].get_texts()]
    assert texts == ["a", "b"]
    assert len({ax.get_xlim() for ax in display.axes_[:4]}) == 1
    assert display.paths_ is display.public_points_ is None


def test_without_classes_and_sketch_there_are_particles_alone():
    display = FlowDisplay.from_trace(PLAIN, name="plain")
    assert titles(display) == ["start", "1 step", "5 steps", "20 steps"]
    assert display.curves_ == []
    assert display.figure_.legends == []
    assert display.figure_.get_suptitle() == "plain"
    np.testing.assert_allclose(display.points_[5][0].get_offsets(), PARTICLES[2, :, :2])
    assert display.axes_[0].get_xlabel() == "feature 0"
    assert display.axes_[0].get_ylabel() == "feature 1"


def test_steps_are_chosen():
    display = FlowDisplay.from_trace(TRACE, steps=[5], distances=False)
    assert titles(display) == ["5 steps"]
    long = SimpleNamespace(**vars(PLAIN) | {
        "steps": np.arange(10), "particles": np.zeros((10, 4, 2)) + np.arange(10)[:, None, None],
    })  # fmt: skip
    assert list(FlowDisplay.from_trace(long).points_) == [0, 2, 5, 9]


def test_the_plane_is_chosen():
    by_name = FlowDisplay.from_trace(PLAIN, plane=("c", 0), feature_names=["a", "b", "c"])
    np.testing.assert_allclose(by_name.points_[0][0].get_offsets(), PARTICLES[0][:, [2, 0]])
    assert by_name.axes_[0].get_xlabel() == "c"
    directions = np.array([[3.0, 4.0, 0.0], [0, 0, -2.0]])
    own = FlowDisplay.from_trace(PLAIN, plane=directions)
    expected = PARTICLES[0] @ np.array([[0.6, 0.8, 0], [0, 0, -1.0]]).T
    np.testing.assert_allclose(own.points_[0][0].get_offsets(), expected)
    assert own.names == ["0.80 feature 1 + 0.60 feature 0", "−1.00 feature 2"]
    first, again, other = (
        FlowDisplay.from_trace(PLAIN, plane="random", random_state=seed).plane for seed in (0, 0, 1)
    )
    np.testing.assert_allclose(first @ first.T, np.eye(2), atol=1e-12)
    np.testing.assert_array_equal(first, again)
    assert np.abs(first - other).max() > 0.01


def test_one_feature_is_drawn_against_the_share_below():
    flat = SimpleNamespace(**vars(PLAIN) | {"particles": PARTICLES[:, :, :1]})
    display = FlowDisplay.from_trace(flat)
    where = np.asarray(display.points_[20][0].get_offsets())
    order = np.argsort(where[:, 0])
    np.testing.assert_allclose(where[order, 0], np.sort(PARTICLES[3, :, 0]))
    np.testing.assert_allclose(where[order, 1], (np.arange(60) + 0.5) / 60)
    assert display.axes_[0].get_ylabel() == "share of particles below"


def test_paths_join_the_states_of_a_particle():
    display = FlowDisplay.from_trace(TRACE, kind="paths", max_paths=7)
    pieces = np.array(display.paths_.get_segments()).reshape(7, 3, 2, 2)
    np.testing.assert_allclose(pieces[:, 1:, 0], pieces[:, :-1, 1])
    chosen = np.linspace(0, 59, 7).round().astype(int)
    np.testing.assert_allclose(pieces[:, 0, 0], PARTICLES[0, chosen, :2])
    np.testing.assert_allclose(pieces[:, -1, 1], PARTICLES[-1, chosen, :2])
    shades = display.paths_.get_array().reshape(7, 3)
    assert (np.diff(shades, axis=1) > 0).all()
    assert list(display.points_) == [20]
    assert len(display.axes_) == 2


def test_public_rows_have_a_panel():
    rows = RNG.normal(size=(9, 3)) + 20
    display = FlowDisplay.from_trace(TRACE, X=rows, plane=(1, 2))
    assert titles(display)[-2:] == ["public rows", "SW₂ to the sketch"]
    np.testing.assert_allclose(display.public_points_.get_offsets(), rows[:, 1:])
    # All panels show the same part of the plane, and the rows are in it.
    assert len({ax.get_xlim() for ax in display.axes_[:5]}) == 1
    assert display.axes_[0].get_xlim()[1] > 18
    with pytest.raises(ValueError, match="X has 2 features and the particles have 3"):
        FlowDisplay.from_trace(TRACE, X=rows[:, :2])


def test_more_classes_than_colours_are_one_cloud():
    classes = np.arange(10)
    many = SimpleNamespace(
        steps=STEPS,
        particles=PARTICLES,
        labels=np.repeat(classes, 6),
        distances=np.ones((10, 4)),
        classes=classes,
    )
    display = FlowDisplay.from_trace(many)
    assert [len(drawn) for drawn in display.points_.values()] == [1, 1, 1, 1]
    assert len(display.curves_) == 10
    assert display.figure_.legends == []


def test_a_sampler_is_traced():
    X = RNG.uniform(-1, 1, size=(400, 2))
    y = (X[:, 0] > 0).astype(int)
    options = {"bounds": (-1, 1), "n_projections": 6, "n_steps": 12, "conditional": True}
    sampler = flow_sampler(epsilon=4.0, **options).fit(X, y)
    display = FlowDisplay.from_estimator(sampler, n_particles=80, random_state=3)
    trace = sampler.trace(n_particles=80, random_state=3)
    np.testing.assert_array_equal(display.particles, trace.particles)
    np.testing.assert_array_equal(display.distances, trace.distances)
    assert next(iter(display.points_)) == 0
    assert list(display.points_)[-1] == 12
    assert display.name == "DPSlicedFlowSampler"


def test_axes_that_are_given():
    figure, axes = plt.subplots(1, 2)
    display = FlowDisplay.from_trace(TRACE, ax=axes, kind="paths", name="not shown")
    assert display.figure_ is figure
    assert figure.get_suptitle() == ""
    assert [text.get_text() for text in axes[0].get_legend().get_texts()] == ["a", "b"]
    with pytest.raises(ValueError, match="ax holds 2 Axes and there are 5 panels"):
        FlowDisplay.from_trace(TRACE, ax=axes)


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ({"kind": "film"}, "kind='film' must be 'panels' or 'paths'"),
        ({"steps": [2]}, r"steps must be among those of the trace, \[0, 1, 5, 20\]"),
        ({"steps": []}, "steps must be among"),
        ({"plane": (0, 3)}, r"features=\(0, 3\) must be one or two of the numbers 0 to 2"),
        ({"plane": np.ones((2, 2))}, r"plane has shape \(2, 2\)"),
        ({"plane": np.zeros((2, 3))}, "none of them zero"),
        ({"plane": np.eye(3)}, r"plane has shape \(3, 3\)"),
    ],
)
def test_what_is_refused(options, message):
    with pytest.raises(ValueError, match=message):
        FlowDisplay.from_trace(TRACE, **options)


def test_estimators_that_are_refused():
    with pytest.raises(TypeError, match="SlicedSketch has no method trace"):
        FlowDisplay.from_estimator(SlicedSketch())
    with pytest.raises(NotFittedError):
        FlowDisplay.from_estimator(DPSlicedFlowSampler())
