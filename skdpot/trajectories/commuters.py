"""Made-up people who commute in a city with a river and two bridges."""

from dataclasses import dataclass, field

import numpy as np
from numpy.typing import ArrayLike

from skdpot._utils.arguments import check_count, check_real
from skdpot._utils.finite import as_finite
from skdpot.trajectories.observed_once import draw_seen_once

# Streets and avenues lie at whole numbers from 0 to this one.
_CITY = 8.0
_BRIDGES = np.array([2.0, 6.0])
# Avenues along the two banks of the river.
_BANKS = (3.0, 5.0)
# Blocks per hour.
_SPEED = 12.0
_SHARE_AT_HOME = 0.2


@dataclass(frozen=True)
class Commuters:
    """Law of people who live west of a river, work east of it, and move along streets.

    Positions are in units of half the side of the city, from -1 to 1. Times are hours of a day. A
    fifth of the people stay at home. The others leave for work in the morning and return in the
    evening, along streets and avenues and over the nearer of two bridges. A receiver adds a normal
    displacement that is constant for each person.
    """

    noise_variance: float = 2e-4
    homes: np.ndarray = field(default_factory=lambda: np.array([[1.0, 2.0], [1.5, 6.0]]))

    def sample_paths(
        self, n_paths: int, times: ArrayLike, rng: np.random.Generator
    ) -> tuple[np.ndarray, np.ndarray]:
        """Draw paths (n_paths, n_times, 2) and groups: 0 at home, otherwise the bridge, 1 or 2."""
        n_paths = check_count(n_paths, "n_paths")
        deviation = np.sqrt(check_real(self.noise_variance, "noise_variance"))
        stamps = np.atleast_1d(as_finite(times, "times"))
        quarter = rng.integers(2, size=n_paths)
        home = self.homes[quarter] + rng.normal(0, [0.6, 0.8], (n_paths, 2))
        work = np.array([6.5, 5.0]) + rng.normal(0, [0.5, 0.9], (n_paths, 2))
        home = np.column_stack([np.clip(home[:, 0], 0, 2.8), _nearest_street(home[:, 1])])
        work = np.column_stack([np.clip(work[:, 0], 5.2, _CITY), _nearest_street(work[:, 1])])
        detours = np.abs(home[:, 1:] - _BRIDGES) + np.abs(work[:, 1:] - _BRIDGES)
        bridge = np.argmin(detours + 1e-6 * rng.random(detours.shape), axis=1)
        commutes = rng.random(n_paths) >= _SHARE_AT_HOME
        leave, back = rng.normal(7.5, 0.7, n_paths), rng.normal(17.0, 0.9, n_paths)
        corners = _route(home, work, _BRIDGES[bridge])
        lengths = np.abs(np.diff(corners, axis=1)).sum(axis=2)
        since = np.cumsum(np.pad(lengths, ((0, 0), (1, 0))), axis=1)
        whole = since[:, -1:]
        out = (stamps - leave[:, None]) * _SPEED
        distance = np.clip(out, 0, whole) - np.clip((stamps - back[:, None]) * _SPEED, 0, whole)
        distance *= commutes[:, None]
        routes = zip(distance, since, corners, strict=True)
        paths = np.stack([_positions_on_route(*route) for route in routes])
        noise = deviation * rng.standard_normal((n_paths, 1, 2))
        return paths / (_CITY / 2) - 1 + noise, np.where(commutes, 1 + bridge, 0)

    def in_river(self, points: ArrayLike, margin: float = 0.4) -> np.ndarray:
        """Return which points lie between the banks and off the bridges, by a margin in blocks."""
        x, y = np.moveaxis((as_finite(points, "points") + 1) * (_CITY / 2), -1, 0)
        off_bridges = np.abs(y[..., None] - _BRIDGES).min(axis=-1) > margin
        between = (x > _BANKS[0] + margin) & (x < _BANKS[1] - margin)
        return np.asarray(between & off_bridges)


def _nearest_street(y: np.ndarray) -> np.ndarray:
    """Return the positions of the nearest streets."""
    return np.clip(np.rint(y), 0, _CITY)


def _route(home: np.ndarray, work: np.ndarray, bridge: np.ndarray) -> np.ndarray:
    """Return the corners of the routes from home to work, shape (n, 6, 2)."""
    west, east = np.full(len(home), _BANKS[0]), np.full(len(home), _BANKS[1])
    corners = [[west, home[:, 1]], [west, bridge], [east, bridge], [east, work[:, 1]]]
    inner = [np.column_stack(corner) for corner in corners]
    return np.stack([home, *inner, work], axis=1)


def _positions_on_route(distance: np.ndarray, since: np.ndarray, corners: np.ndarray) -> np.ndarray:
    """Return positions at distances (n_times,) along a route with these corners."""
    return np.column_stack([np.interp(distance, since, corners[:, j]) for j in range(2)])


def make_commuting_trajectories(
    n_per_time: int | ArrayLike = 1000,
    n_times: int = 17,
    *,
    noise_variance: float = 2e-4,
    random_state: int | np.random.RandomState | None = None,
) -> tuple[np.ndarray, np.ndarray, np.ndarray, Commuters]:
    """Make positions of people in a city, each person located once in a day.

    People live in two quarters west of a river and work in one east of it. They move along streets
    and avenues over two bridges. Routes turn at right angles, everyone returns to their own home,
    and nobody is in the river: three properties that a diffusion does not have.

    Parameters
    ----------
    n_per_time : int or array-like of shape (n_times,), default=1000
        Number of people located at each time.
    n_times : int, default=17
        Number of time stamps T, equally spaced from 5 to 21 o'clock.
    noise_variance : float, default=2e-4
        Variance of the error of a position in each coordinate, in squared units of half the city.
    random_state : int, RandomState or None, default=None
        Makes the data reproducible.

    Returns
    -------
    X : ndarray of shape (n, 2)
        One position per person, from -1 to 1 (but for the error).
    t : ndarray of shape (n,)
        Their hours, in increasing order.
    group : ndarray of shape (n,)
        0 stays at home, 1 commutes over the southern bridge, 2 over the northern.
    law : Commuters
        The law of the paths: ``sample_paths`` draws whole paths and groups, ``in_river`` says which
        points lie in the river, where nobody can be.

    Raises
    ------
    TypeError, ValueError
        If a parameter is of another type or out of its range.

    Privacy
    -------
    The data are synthetic.

    Examples
    --------
    >>> from skdpot.datasets import make_commuting_trajectories
    >>> X, t, group, law = make_commuting_trajectories(100, random_state=0)
    >>> X.shape
    (1700, 2)
    >>> bool(law.in_river(X).any())
    False
    """
    law = Commuters(check_real(noise_variance, "noise_variance"))
    times = np.linspace(5.0, 21.0, check_count(n_times, "n_times"))
    return *draw_seen_once(law, n_per_time, times, random_state), law
