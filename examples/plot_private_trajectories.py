"""
Private trajectories from one point per person
==============================================

Thousands of people draw a digit with a pen. Of each of them we see the pen once, at one random
moment. Where does the pen go? Nobody's path was seen, yet the crowd at all the moments together
tells a lot, and we publish what it tells under differential privacy.

We repeat the figures of the paper "Private continuous-time synthetic trajectory generation via
mean-field Langevin dynamics": its strokes of handwritten digits, at its (ε, δ) = (2, 1e-3), and its
crowd on three branches, at (1, 1e-6) in place of its (1, 1e-2). The fits of strokes warn that 1e-3
is not below one over the number of people: for a release of your own take a tenth of that at most.
"""

# %%
# People who write
# ----------------
# With the file ``mnist_strokes.npz`` (MNIST as pen strokes, by E. D. de Jong) in a folder
# ``shared/data`` here or above, the strokes are real. Without it, we generate people who write
# a 3, each in their own size, slant and place.

import time
from pathlib import Path

import matplotlib.pyplot as plt
import numpy as np
import pandas as pd

from skdpot import PrivateTrajectorySampler
from skdpot.datasets import make_branching_trajectories, one_point_per_person
from skdpot.datasets.trajectories import branch_of, branching_paths
from skdpot.metrics import (
    TrajectoryDisplay,
    marginal_wasserstein_distances,
    path_sliced_wasserstein_distance,
)
from skdpot.metrics.distances import resample_paths

rng = np.random.default_rng(0)


def generated_strokes(n_people, n_times=12):
    """Two arcs that make a 3, as each person writes it; in the unit square."""
    half = n_times // 2
    upper = np.radians(np.linspace(150, -80, half))
    lower = np.radians(np.linspace(80, -150, n_times - half))
    arcs = [0.16 * np.column_stack([np.cos(upper), np.sin(upper)]) + [0.0, 0.17]]
    arcs += [0.20 * np.column_stack([np.cos(lower), np.sin(lower)]) - [0.0, 0.19]]
    digit = np.concatenate(arcs) * rng.normal(1.0, 0.1, (n_people, 1, 1))
    digit[:, :, 0] += rng.normal(0.2, 0.2, (n_people, 1)) * digit[:, :, 1]
    place = rng.normal([0.5, 0.5], 0.03, (n_people, 1, 2))
    return np.clip(digit + place + rng.normal(0, 0.02, digit.shape), 0, 1)


here = Path.cwd()
files = [folder / "shared/data/mnist_strokes.npz" for folder in (here, *here.parents)]
found = next((file for file in files if file.exists()), None)
if found is None:
    strokes = {"3, generated": generated_strokes(6000)}
else:
    with np.load(found) as file:
        # Thousandths of the unit square.
        strokes = {str(k): file[f"digit_{k}"] / 1000 for k in (2, 3, 7)}

# %%
# Fit and sample
# --------------
# ``X`` holds one point per person and ``t`` its time stamp. The stamps are public; the points are
# protected: had any one person drawn another digit, what we publish would hardly change. That
# the pen stays on the sheet, the unit square, is public as well, and so costs nothing.
#
# The estimator releases one noisy sketch a time. All that follows is post-processing: particles
# at each time that agree with its sketch, and plans of entropic optimal transport that join the
# particles of neighbouring times to paths. ``diffusivity`` says how much a pen wanders: a matter of
# public knowledge, for single points do not tell. We have the whole strokes, tried five
# values on them, and took 0.1 in place of the default of 0.05.

EPSILON, DELTA = 2.0, 1e-3
N_CHECKED = 500  # points a time and paths for the distances below


def one_pixel(points):
    """Spread points of the grid of 28 × 28 pixels, for the picture alone."""
    return points + rng.uniform(-0.5, 0.5, points.shape) / 28


def measure(sampler, paths, times, checked=N_CHECKED):
    """Errors of a fitted sampler against two sets of true paths, the second one for scale."""
    truth, other = rng.permutation(paths)[: 2 * checked].reshape(2, checked, *paths.shape[1:])
    points, stamps = truth.swapaxes(0, 1).reshape(-1, 2), np.repeat(times, checked)
    grid = np.linspace(0, 1, 30)
    fine, again = resample_paths(truth, times, grid), resample_paths(other, times, grid)
    drawn = resample_paths(sampler.sample(checked, times), times, grid)

    def second_sample(stamp, n):
        return other[:n, np.searchsorted(times, stamp)]

    table = [
        marginal_wasserstein_distances(points, stamps, sample)["squared_wasserstein"].mean()
        for sample in (sampler.sample_marginal, second_sample)
    ]
    return (
        *table,
        path_sliced_wasserstein_distance(fine, drawn),
        path_sliced_wasserstein_distance(fine, again),
    )


figure, axes = plt.subplots(
    len(strokes), 4, figsize=(11, 2.45 * len(strokes) + 0.4), squeeze=False, layout="compressed"
)
rows = []
for position, (digit, paths) in enumerate(strokes.items()):
    row = axes[position]
    times = np.linspace(0, 1, paths.shape[1])
    X, t = one_point_per_person(paths, times)
    start = time.perf_counter()
    sampler = PrivateTrajectorySampler(
        mechanism="sketch",
        epsilon=EPSILON,
        delta=DELTA,
        bounds=(0.0, 1.0),
        diffusivity=0.1,
    )
    sampler.fit(X, t)
    seconds = time.perf_counter() - start
    rows.append((digit, len(X), len(times), *measure(sampler, paths, times), seconds))
    display = TrajectoryDisplay.from_estimator(
        sampler, one_pixel(X), t, true_paths=paths, true_times=times, ax=row,
        panels=["true", "seen", "means", "recovered"], colorbar=False,
    )  # fmt: skip
    row[0].set_ylabel(f"digit {digit}", fontsize="large")
    for ax in row:
        ax.set(xlim=(-0.02, 0.98), ylim=(-0.02, 0.98), xticks=[], yticks=[], xlabel="")
        ax.set_title("" if position else ax.get_title())
figure.colorbar(display.panels_["recovered"], ax=axes, label="time", shrink=0.6, pad=0.02)
figure.savefig("private_trajectories.png", dpi=100)
plt.show()

# %%
# The digits can be read from the recovered paths. In figures: the squared Wasserstein distance of
# the points at a time, averaged over the times, and the sliced distance of whole paths. The
# columns of the truth are what a second sample of real people of the same size would score.

table = pd.DataFrame(
    rows,
    columns=[
        "digit", "people", "times", "W2² of a time", "its truth", "sliced W2 of paths",
        "their truth", "seconds",
    ],
).set_index("digit")  # fmt: skip
print(table.round(4).to_string())
print(f"spent: ε = {sampler.privacy_spent_.epsilon:g}, δ = {sampler.privacy_spent_.delta:g}")

# %%
# What the data cannot tell
# -------------------------
# Paths have more to them than their points: two crowds that cross and two crowds that meet and
# turn back look alike at every moment. The plans choose the paths that move least, up to the
# wandering that ``diffusivity`` allows. That is right for a pen, and a choice all the same. The
# distances of whole paths in the table show what it misses: somebody who writes large writes large
# all along, and points of different people do not tell.

# %%
# Three branches
# --------------
# A third of the crowd takes the upper half circle, a third the straight line and a third the
# lower half. Exact plans (``coupling="exact"``) keep the branches apart better than entropic ones.

times = np.linspace(0, 1, 10)
X, t, _ = make_branching_trajectories(3000, 10, random_state=0)
truth, _ = branching_paths(50, np.linspace(0, 1, 60), random_state=1)
sampler = PrivateTrajectorySampler(
    mechanism="sketch", epsilon=1.0, delta=1e-6, bounds=(-1.5, 1.5), coupling="exact"
)
sampler.fit(X, t)
display = TrajectoryDisplay.from_estimator(
    sampler, X, t, true_paths=truth, true_times=np.linspace(0, 1, 60), name="three branches, ε = 1"
)
display.figure_.savefig("private_branches.png", dpi=100)
plt.show()

# The branches meet at both ends: there a point tells nothing of its branch.
middle = times[(times > 0.2) & (times < 0.8)]
branches = branch_of(sampler.sample(3000, middle), middle)
shares = np.bincount(branches[:, len(middle) // 2], minlength=3) / len(branches)
changed = np.mean((branches[:, 1:] != branches[:, :-1]).any(axis=1))
print(f"upper, straight, lower: {shares.round(3)}; paths that change branch: {changed:.1%}")
