"""
Private trajectories from one point per person
==============================================

Thousands of people draw a digit with a pen. We observe each pen once, at one random time. What
paths do the pens take? No path was observed, but the distributions of the points at all times
contain much information about them, which we publish under differential privacy.

We reproduce the figures of the paper "Private continuous-time synthetic trajectory generation via
mean-field Langevin dynamics": its strokes of handwritten digits, at its (ε, δ) = (2, 1e-3), and its
population on three branches, at (1, 1e-6) in place of its (1, 1e-2). The fits to the strokes warn
that 1e-3 is not below one over the number of people; for a real release, use at most a tenth of
that bound.
"""

# %%
# The strokes
# -----------
# The strokes are real if the file ``mnist_strokes.npz`` (MNIST as pen strokes, by E. D. de Jong) is
# in a folder ``shared/data`` of the working directory or of one of its parents. Otherwise we
# generate people who write a 3, with random sizes, slants and positions.

import time
from pathlib import Path

import matplotlib.pyplot as plt
import numpy as np
import pandas as pd

from skdpot import PrivateTrajectorySampler
from skdpot.datasets import make_branching_trajectories, one_point_per_person
from skdpot.metrics import (
    TrajectoryDisplay,
    marginal_wasserstein_distances,
    path_sliced_wasserstein_distance,
)
from skdpot.trajectories.moving_clusters import branch_of, branching_paths
from skdpot.trajectories.path_metrics import resample_paths

plt.style.use("skdpot.pictures")
rng = np.random.default_rng(0)


def generated_strokes(n_people, n_times=12):
    """Return a 3 made of two arcs for each person, in the unit square."""
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
# ``X`` holds one point per person and ``t`` its time stamp. The time stamps are public. The points
# are protected: if any one person had drawn another digit, the release would hardly change. The
# bounds of the sheet, the unit square, are public as well and cost nothing.
#
# The estimator releases one noisy sketch per time. Everything else is post-processing: particles
# at each time that fit its sketch, and entropic optimal transport plans that join the particles of
# neighboring times into paths. ``diffusivity`` is the variance per unit of time with which a pen
# deviates. It must come from public knowledge, because single points do not determine it. Here we
# have whole strokes; we tried five values on them and chose 0.1 in place of the default 0.05.

EPSILON, DELTA = 2.0, 1e-3
N_CHECKED = 500  # points per time, and paths, for the distances below


def one_pixel(points):
    """Jitter points on the grid of 28 × 28 pixels, for the plot only."""
    return points + rng.uniform(-0.5, 0.5, points.shape) / 28


def measure(sampler, paths, times, checked=N_CHECKED):
    """Return the errors of a sampler and, for comparison, those of a second sample of the truth."""
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
    len(strokes), 3, figsize=(7, 2.05 * len(strokes) + 0.6), squeeze=False, layout="compressed"
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
        panels=["true", "seen", "recovered"], colorbar=False,
    )  # fmt: skip
    row[0].set_ylabel(f"digit {digit}", fontsize="large")
    for ax in row:
        ax.set(xlim=(-0.02, 0.98), ylim=(-0.02, 0.98), xticks=[], yticks=[], xlabel="")
        ax.spines[:].set_visible(False)
        if position:
            ax.set_title("")
figure.colorbar(display.panels_["recovered"], ax=axes, label="time", shrink=0.6, pad=0.02)
figure.suptitle("One point per person; whole strokes come back at ε = 2", x=0.01, ha="left")
figure.savefig("private_trajectories.png")
plt.show()

# %%
# The recovered paths are legible as digits. The table shows the squared Wasserstein distance
# between the points at each time, averaged over the times, and the sliced distance between whole
# paths. For comparison, the columns of the truth show the distances of a second sample of real
# people of the same size.

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
# What the data do not determine
# ------------------------------
# The distributions of points do not determine the paths: two groups that cross and two groups that
# meet and turn back have the same points at every time. The plans choose the paths that move least,
# up to the deviations that ``diffusivity`` allows. This is reasonable for a pen, but it is a
# choice. The distances between whole paths in the table show what is lost: a person who writes
# large does so at all times, which points of different people cannot show.

# %%
# Three branches
# --------------
# A third of the population takes the upper half circle, a third the straight line and a third the
# lower half circle. Exact plans (``coupling="exact"``) separate the branches better than entropic
# ones.

times = np.linspace(0, 1, 10)
X, t, _ = make_branching_trajectories(3000, 10, random_state=0)
truth, _ = branching_paths(50, np.linspace(0, 1, 60), random_state=1)
sampler = PrivateTrajectorySampler(
    mechanism="sketch", epsilon=1.0, delta=1e-6, bounds=(-1.5, 1.5), coupling="exact"
)
sampler.fit(X, t)
figure, axes = plt.subplots(1, 3, figsize=(7.6, 2.7), layout="compressed")
display = TrajectoryDisplay.from_estimator(
    sampler, X, t, true_paths=truth, true_times=np.linspace(0, 1, 60), ax=axes,
    panels=["true", "seen", "recovered"], colorbar=False,
)  # fmt: skip
for ax in axes:
    ax.set(xticks=[], yticks=[], xlabel="", ylabel="")
    ax.spines[:].set_visible(False)
figure.colorbar(display.panels_["recovered"], ax=axes, label="time", shrink=0.8, pad=0.02)
figure.suptitle("Single points show the three branches again, at ε = 1", x=0.01, ha="left")
figure.savefig("private_branches.png")
plt.show()

# The branches meet at both ends, where a point does not determine its branch.
middle = times[(times > 0.2) & (times < 0.8)]
branches = branch_of(sampler.sample(3000, middle), middle)
shares = np.bincount(branches[:, len(middle) // 2], minlength=3) / len(branches)
changed = np.mean((branches[:, 1:] != branches[:, :-1]).any(axis=1))
print(f"upper, straight, lower: {shares.round(3)}; paths that change branch: {changed:.1%}")
