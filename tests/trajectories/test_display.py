"""What the picture of trajectories draws, panel by panel."""

import matplotlib.pyplot as plt
import numpy as np
import pytest
from sklearn.base import BaseEstimator

from skdpot.datasets import one_point_per_person
from skdpot.metrics import TrajectoryDisplay
from skdpot.trajectories.moving_clusters import branching_paths
from skdpot.trajectories.sampler import SimulatedEstimate

TIMES = np.linspace(2.0, 4.0, 11)
PATHS, _ = branching_paths(200, np.linspace(0, 1, 11), random_state=0)
X, t = one_point_per_person(PATHS, TIMES, random_state=0)
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
    for panel, rows in {"true": PATHS[:30], "recovered": PATHS[:30, [0, 5, 10]]}.items():
        np.testing.assert_allclose(
            ends(display.panels_[panel], 30), rows[:, [0, -1]].swapaxes(0, 1)
        )
    seen = display.panels_["seen"]
    points = sorted(map(tuple, np.column_stack([seen.get_offsets(), seen.get_array()])))
    np.testing.assert_allclose(points, sorted(map(tuple, np.column_stack([X, t]))))
    expected = PATHS[:60, [0, 5, 10]].mean(axis=0)
    np.testing.assert_allclose(display.panels_["means"].get_offsets(), expected)
    assert list(display.plot(panels=["recovered", "seen"]).panels_) == ["recovered", "seen"]
    assert list(display.plot(ax=plt.subplots()[1]).panels_) == ["recovered"]


def test_colour_is_time_in_every_panel():
    display = TrajectoryDisplay.from_paths(PATHS[:, 3:7], TIMES[3:7], **SEEN, **TRUE)
    assert {panel.get_clim() for panel in display.panels_.values()} == {(2.0, 4.0)}
    for panel in ("true", "recovered"):
        shades = display.panels_[panel].get_array().reshape(50, -1)
        assert (np.diff(shades, axis=1) > 0).all()
    np.testing.assert_array_equal(display.panels_["means"].get_array(), TIMES[3:7])


def test_only_what_is_there_is_drawn():
    display = TrajectoryDisplay.from_paths(PATHS, TIMES)
    np.testing.assert_allclose(display.means, PATHS.mean(axis=0))
    assert len(ends(display.plot(n_paths=7).panels_["recovered"], 7)[0]) == 7
    display = TrajectoryDisplay.from_paths(PATHS[:, 5:6], [3.0])  # one time is a cloud
    np.testing.assert_allclose(display.panels_["recovered"].get_offsets(), PATHS[:50, 5])


def test_features_are_chosen_and_one_is_drawn_against_time():
    options = {"feature_names": ["x", "y"], "features": "y", **SEEN}
    display = TrajectoryDisplay.from_paths(PATHS, TIMES, **options)
    assert display.features == (1,)
    for end, k in zip(ends(display.panels_["recovered"], 50), (0, -1), strict=True):
        due = np.column_stack([np.full(50, TIMES[k]), PATHS[:50, k, 1]])
        np.testing.assert_allclose(end, due)


@pytest.mark.parametrize("n_features", [1, 2])
def test_times_may_be_dates(n_features):
    days = np.arange("2020-01-01", "2020-01-12", dtype="datetime64[D]")
    display = TrajectoryDisplay.from_paths(PATHS[..., :n_features], days)
    display.figure_.canvas.draw()
    axis = display.axes_[0].xaxis if n_features == 1 else display.colorbar_.ax.yaxis
    assert "05" in [label.get_text() for label in axis.get_ticklabels()]
    assert axis.get_offset_text().get_text() == "2020-Jan"


def test_intervals_of_means_are_bars_or_a_band():
    means = PATHS[:, [0, 5, 10]].mean(axis=0)
    ends = np.stack([means - 0.2, means + np.array([0.1, 0.9])])
    given = {"means": means, "mean_times": [2.0, 3.0, 4.0], "mean_intervals": ends}
    display = TrajectoryDisplay.from_paths(PATHS, TIMES, **given)
    (bars,) = display.axes_[0].containers
    across, up = (np.array(lines.get_segments()) for lines in bars.lines[2])
    np.testing.assert_allclose(across[:, :, 0], ends[:, :, 0].T)
    np.testing.assert_allclose(up[:, :, 1], ends[:, :, 1].T)
    low, high = display.axes_[0].get_ylim()
    assert low < ends[0, :, 1].min() < ends[1, :, 1].max() < high
    band = TrajectoryDisplay.from_paths(PATHS, TIMES, features=1, **given).axes_[0].collections[0]
    corners = band.get_paths()[0].vertices
    assert {2.0, 4.0} <= set(corners[:, 0])
    assert corners[:, 1].max() == pytest.approx(ends[1, :, 1].max())
    with pytest.raises(ValueError, match=r"mean_intervals must have shape \(2, 3, 2\)"):
        TrajectoryDisplay.from_paths(PATHS, TIMES, **given | {"mean_intervals": ends[:, :2]})


def test_the_sampler_is_asked_for_intervals():
    class Certain(Straight):
        def estimate(self):
            means = self.particles_.mean(axis=1)
            return SimulatedEstimate.of(means, means + np.linspace(-0.1, 0.1, 9)[:, None, None])

    sampler = Certain().fit(X, t)
    display = TrajectoryDisplay.from_estimator(sampler, confidence=0.9)
    np.testing.assert_allclose(display.mean_intervals, sampler.estimate().interval(0.9))
    assert display.axes_[0].get_title() == "private means, 90 % intervals"
    np.testing.assert_allclose(display.panels_["means"].get_offsets(), sampler.estimate().value)
