"""What the picture of trajectories draws, panel by panel."""

import matplotlib as mpl
import matplotlib.pyplot as plt
import numpy as np
import pytest
from sklearn.base import BaseEstimator
from sklearn.exceptions import NotFittedError

from skdpot.datasets import one_point_a_person
from skdpot.datasets.trajectories import branching_paths
from skdpot.metrics import TrajectoryDisplay

TIMES = np.linspace(2.0, 4.0, 11)
PATHS, _ = branching_paths(200, np.linspace(0, 1, 11), random_state=0)
X, t = one_point_a_person(PATHS, TIMES, random_state=0)
TRUE = {"true_paths": PATHS, "true_times": TIMES}
SEEN = {"points": X, "point_times": t}


class Straight(BaseEstimator):
    """A sampler that has three knots and joins its particles by lines."""

    def fit(self, X, t=None):
        self.times_ = np.array([2.0, 3.0, 4.0])
        self.particles_ = PATHS[:60, [0, 5, 10]].swapaxes(0, 1)
        self.asked_ = []
        return self

    def sample(self, n, times, random_state=None):
        self.asked_.append((n, list(times), random_state))
        return PATHS[:n, np.searchsorted(TIMES, times)]


@pytest.fixture(autouse=True)
def backend():
    before = mpl.get_backend()
    plt.switch_backend("Agg")
    yield
    plt.close("all")
    plt.switch_backend(before)


def titles(display):
    return [ax.get_title() for ax in display.axes_]


def ends(collection, n_paths):
    """First and last points of the drawn paths."""
    pieces = np.array(collection.get_segments()).reshape(n_paths, -1, 2, 2)
    np.testing.assert_allclose(pieces[:, 1:, 0], pieces[:, :-1, 1])
    return pieces[:, 0, 0], pieces[:, -1, 1]


def test_four_panels():
    sampler = Straight().fit(X, t)
    display = TrajectoryDisplay.from_estimator(sampler, X, t, n_paths=30, random_state=3, **TRUE)
    assert sampler.asked_ == [(30, [2.0, 3.0, 4.0], 3)]
    assert list(display.panels_) == ["true", "seen", "means", "recovered"]
    assert titles(display) == ["true paths", "points seen", "private means", "recovered paths"]
    for panel, rows in {"true": PATHS[:30], "recovered": PATHS[:30, [0, 5, 10]]}.items():
        first, last = ends(display.panels_[panel], 30)
        np.testing.assert_allclose(first, rows[:, 0])
        np.testing.assert_allclose(last, rows[:, -1])
    seen = display.panels_["seen"]
    points = sorted(map(tuple, np.column_stack([seen.get_offsets(), seen.get_array()])))
    np.testing.assert_allclose(points, sorted(map(tuple, np.column_stack([X, t]))))
    expected = PATHS[:60, [0, 5, 10]].mean(axis=0)
    np.testing.assert_allclose(display.panels_["means"].get_offsets(), expected)
    assert display.figure_ is display.axes_[0].figure
    assert display.figure_.get_suptitle() == "Straight"
    assert display.axes_[0].get_ylabel() == "feature 1"


def test_colour_is_time_in_every_panel():
    display = TrajectoryDisplay.from_paths(PATHS[:, 3:7], TIMES[3:7], **SEEN, **TRUE)
    assert {panel.get_clim() for panel in display.panels_.values()} == {(2.0, 4.0)}
    for panel in ("true", "recovered"):
        shades = display.panels_[panel].get_array().reshape(50, -1)
        np.testing.assert_allclose(shades, np.tile(shades[0], (50, 1)))
        assert (np.diff(shades[0]) > 0).all()
    assert display.panels_["true"].get_array().min() < 2.05
    np.testing.assert_array_equal(display.panels_["means"].get_array(), TIMES[3:7])
    assert display.colorbar_.ax.get_ylabel() == "time"
    # The palest end of the colours is left out unless one asks for it.
    light = display.panels_["seen"].cmap(1.0)[:3]
    assert np.mean(light) < 0.6
    again = display.plot(cmap="viridis")
    assert again.panels_["seen"].cmap.name == "viridis"


def test_panels_share_their_limits_and_a_lost_point_does_not_widen_them():
    points = np.vstack([np.repeat(X, 5, axis=0), [[90.0, 90.0]]])
    stamps = np.append(np.repeat(t, 5), 2.0)
    display = TrajectoryDisplay.from_paths(PATHS, TIMES, points=points, point_times=stamps, **TRUE)
    assert len({(*ax.get_xlim(), *ax.get_ylim()) for ax in display.axes_}) == 1
    low, high = display.axes_[0].get_xlim()
    assert low < PATHS[:50, :, 0].min()
    assert PATHS[:50, :, 0].max() < high < 2.0
    assert all(ax.get_aspect() == 1.0 for ax in display.axes_)


def test_only_what_is_there_is_drawn():
    display = TrajectoryDisplay.from_paths(PATHS, TIMES)
    assert list(display.panels_) == ["means", "recovered"]
    assert titles(display) == ["means", "recovered paths"]
    np.testing.assert_allclose(display.means, PATHS.mean(axis=0))
    assert len(ends(display.panels_["recovered"], 50)[0]) == 50
    assert len(ends(display.plot(n_paths=7).panels_["recovered"], 7)[0]) == 7


def test_at_most_so_many_points_and_no_time_hides_another():
    order = np.argsort(t, kind="stable")
    in_order = {"points": X[order], "point_times": t[order]}
    display = TrajectoryDisplay.from_paths(PATHS, TIMES, **in_order, max_points=50)
    shades = display.panels_["seen"].get_array()
    assert len(shades) == 50
    assert len(np.unique(shades)) > 5
    assert (np.diff(shades) < 0).any()
    again = TrajectoryDisplay.from_paths(PATHS, TIMES, **in_order, max_points=50)
    first, second = (one.panels_["seen"].get_offsets() for one in (display, again))
    np.testing.assert_array_equal(first, second)


def test_axes_that_are_given():
    figure, axes = plt.subplots(1, 3)
    options = {"panels": ["recovered", "seen", "true"], "name": "ours"}
    display = TrajectoryDisplay.from_paths(PATHS, TIMES, **SEEN, **TRUE, ax=axes, **options)
    assert display.figure_ is figure
    assert titles(display) == ["recovered paths", "points seen", "true paths"]
    # The title of a figure is its owner's.
    assert figure.get_suptitle() == ""
    _, ax = plt.subplots()
    single = display.plot(ax=ax)
    assert list(single.panels_) == ["recovered"]
    assert single.axes_.tolist() == [ax]
    assert single.colorbar_ is not None
    assert display.plot(ax=ax, colorbar=False).colorbar_ is None
    assert list(display.plot(ax=ax, panels=["seen"]).panels_) == ["seen"]


def test_one_feature_is_drawn_against_time():
    display = TrajectoryDisplay.from_paths(PATHS[..., 1:], TIMES, points=X[:, 1:], point_times=t)
    first, last = ends(display.panels_["recovered"], 50)
    np.testing.assert_allclose(first, np.column_stack([np.full(50, 2.0), PATHS[:50, 0, 1]]))
    np.testing.assert_allclose(last, np.column_stack([np.full(50, 4.0), PATHS[:50, -1, 1]]))
    assert display.colorbar_ is None
    assert display.axes_[0].get_xlabel() == "time"
    assert display.axes_[0].get_ylabel() == "feature 0"
    assert display.axes_[0].get_aspect() == "auto"


def test_features_are_chosen_by_number_or_name():
    wide = np.concatenate([PATHS, 5 * PATHS[..., :1]], axis=2)
    names = ["x", "y", "z"]
    default = TrajectoryDisplay.from_paths(wide, TIMES, feature_names=names)
    assert default.features == (0, 1)
    chosen = TrajectoryDisplay.from_paths(wide, TIMES, feature_names=names, features=["z", 1])
    assert chosen.features == (2, 1)
    np.testing.assert_allclose(ends(chosen.panels_["recovered"], 50)[0], wide[:50, 0, [2, 1]])
    assert chosen.axes_[0].get_xlabel() == "z"
    assert chosen.axes_[0].get_ylabel() == "y"
    alone = TrajectoryDisplay.from_paths(wide, TIMES, feature_names=names, features="z")
    assert alone.features == (2,)
    assert alone.axes_[0].get_ylabel() == "z"


def test_a_single_time_is_a_cloud():
    display = TrajectoryDisplay.from_paths(PATHS[:, 5:6], [3.0])
    np.testing.assert_allclose(display.panels_["recovered"].get_offsets(), PATHS[:50, 5])
    display.figure_.canvas.draw()


def test_times_of_the_picture_can_be_others_than_the_knots():
    sampler = Straight().fit(X)
    display = TrajectoryDisplay.from_estimator(sampler, times=TIMES, name="mine", n_paths=5)
    assert sampler.asked_ == [(5, TIMES.tolist(), None)]
    assert display.name == "mine"
    np.testing.assert_array_equal(display.mean_times, [2.0, 3.0, 4.0])


@pytest.mark.parametrize("n_features", [1, 2])
def test_times_may_be_dates(n_features):
    days = np.arange("2020-01-01", "2020-01-12", dtype="datetime64[D]")
    display = TrajectoryDisplay.from_paths(
        PATHS[..., :n_features], days, points=X[:, :n_features], point_times=days[:1].repeat(200)
    )
    np.testing.assert_array_equal(np.diff(display.times), np.ones(10))
    display.figure_.canvas.draw()
    axis = display.axes_[0].xaxis if n_features == 1 else display.colorbar_.ax.yaxis
    labels = [label.get_text() for label in axis.get_ticklabels()]
    assert "05" in labels
    assert axis.get_offset_text().get_text() == "2020-Jan"


def test_feature_names_of_the_estimator():
    sampler = Straight().fit(X)
    sampler.feature_names_in_ = np.array(["width", "height"], dtype=object)
    display = TrajectoryDisplay.from_estimator(sampler, features=["height", "width"], n_paths=5)
    assert display.axes_[0].get_xlabel() == "height"


def test_everything_is_inside_the_figure():
    display = TrajectoryDisplay.from_paths(PATHS, TIMES, **SEEN, **TRUE, name="all of it")
    display.figure_.canvas.draw()
    frame = display.figure_.bbox
    tight = display.figure_.get_tightbbox().transformed(display.figure_.dpi_scale_trans)
    assert frame.x0 - 1 <= tight.x0
    assert frame.y0 - 1 <= tight.y0
    assert tight.x1 <= frame.x1 + 1
    assert tight.y1 <= frame.y1 + 1


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ({"points": X}, "points and point_times must be given together"),
        ({"point_times": t}, "points and point_times must be given together"),
        ({"true_paths": PATHS}, "true_paths and true_times must be given together"),
        ({"means": X}, "means and mean_times must be given together"),
        ({"points": X, "point_times": t[:-1]}, "inconsistent numbers of samples"),
        ({"points": X[:, :1], "point_times": t}, "points have 1 features and the recovered"),
        ({"true_paths": PATHS, "true_times": TIMES[:4]}, "true_paths have 11 times and true_t"),
        ({"true_paths": PATHS, "true_times": -TIMES}, "true_times must increase strictly"),
        ({"features": 2}, "features=2 must be one or two of the numbers 0 to 1"),
        ({"features": "z", "feature_names": ["x", "y"]}, r"or of the names \['x', 'y'\]"),
        ({"features": [0, 1, 1]}, r"features=\[0, 1, 1\] must be one or two"),
        ({"panels": ["seen"]}, r"panels must be among \['means', 'recovered'\]"),
        ({"panels": []}, r"panels must be among \['means', 'recovered'\]"),
    ],
)
def test_what_is_refused(options, message):
    with pytest.raises(ValueError, match=message):
        TrajectoryDisplay.from_paths(PATHS, TIMES, **options)


def test_axes_and_samplers_that_are_refused():
    _, axes = plt.subplots(1, 3)
    with pytest.raises(ValueError, match=r"ax holds 3 Axes and there are 2 panels"):
        TrajectoryDisplay.from_paths(PATHS, TIMES, ax=axes)
    with pytest.raises(NotFittedError, match="not fitted"):
        TrajectoryDisplay.from_estimator(Straight())
    with pytest.raises(ValueError, match="times must increase strictly"):
        TrajectoryDisplay.from_estimator(Straight().fit(X), times=[3.0, 2.0], n_paths=5)
