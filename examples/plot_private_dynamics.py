"""
Cells that differentiate, and commuters in a city
=================================================

Two populations that move, and of which nobody is seen twice. A cell is destroyed when its genes are
counted. A person is located once in a day. The true paths are known, because both populations are
simulated: gene counts by a published model of single-cell data, and people on the streets of a city
with a river. We publish both under differential privacy and compare.
"""

# %%
# Cells: two fates
# ----------------
# Each cell is of another donor. Counts of 200 genes, with dropout, are projected on public
# directions. All cells move along one trunk and then to one of two fates.

import matplotlib.pyplot as plt
import numpy as np

from skdpot import PrivateTrajectorySampler
from skdpot.datasets import make_commuting_trajectories, make_lineage_trajectories
from skdpot.metrics import TrajectoryDisplay

plt.style.use("skdpot.pictures")
rng = np.random.default_rng(0)


def draw(sampler, X, t, law, name, title, features=None):
    """Draw true paths, points and recovered paths, and save the figure."""
    fine = np.linspace(t.min(), t.max(), 65)
    truth, _ = law.sample_paths(50, fine, rng)
    figure, axes = plt.subplots(1, 3, figsize=(7.6, 2.9), layout="compressed")
    display = TrajectoryDisplay.from_estimator(
        sampler, X, t, times=fine, true_paths=truth, true_times=fine, features=features, ax=axes,
        panels=["true", "seen", "recovered"], colorbar=False, random_state=0,
    )  # fmt: skip
    for ax in axes:
        ax.set(xticks=[], yticks=[], xlabel="", ylabel="")
        ax.spines[:].set_visible(False)
    figure.colorbar(display.panels_["recovered"], ax=axes, label="time", shrink=0.8, pad=0.02)
    figure.suptitle(title, x=0.01, ha="left")
    figure.savefig(name)
    plt.show()


X, t, _, law = make_lineage_trajectories(800, 10, n_features=3, random_state=0)
cells = PrivateTrajectorySampler(
    epsilon=1.0, delta=1e-6, bounds=(-1.2, 1.2), coupling="exact", diffusivity=0.005
)
cells.fit(X, t)
draw(
    cells, X, t, law, "private_lineage.png",
    "The fork of a lineage comes back from cells seen once, at ε = 1", features=(0, 1),
)  # fmt: skip

# %%
# Which share of the cells has the second fate? The answer has an error: that of the noise and of
# the cells that were not seen. ``estimate`` finds it from simulated fits, at no privacy cost. The
# places of the two fates are public, as in a reference atlas.

ends, fate = law.sample_paths(2000, [1.0], rng)
first, second = (ends[fate == k, 0].mean(axis=0) for k in (0, 1))


def share_of_second_fate(fitted):
    """Return the share of the last particles that are nearer to the second fate."""
    last = fitted.particles_[-1]
    nearer = np.linalg.norm(last - second, axis=1) < np.linalg.norm(last - first, axis=1)
    return nearer.mean()


found = cells.estimate(share_of_second_fate, n_simulations=8)
low, high = found.interval(0.95)
print(f"second fate: {found.value:.3f}, interval {low:.3f} to {high:.3f}; true share 0.400")

# %%
# Commuters: what the points do not tell
# --------------------------------------
# People live west of a river and work east of it. They move along streets and over two bridges,
# from home to work and back.

X, t, _, law = make_commuting_trajectories(1000, random_state=0)
city = PrivateTrajectorySampler(epsilon=1.0, delta=1e-6, bounds=(-1.2, 1.2), diffusivity=0.01)
city.fit(X, t)
draw(city, X, t, law, "private_commuters.png", "Commuters: morning and evening, at ε = 1")

# %%
# The distributions at each hour are close. Paths are another matter: streets, bridges and the way
# back to one's own home are not in single points, and no diffusion has them. Some points are where
# nobody can be. We count those in the river at the hours and between them, and how far from where
# they started people end, as a share of the spread of homes. In the true city both are 0.

hours = city.times_
middle = (hours[1:] + hours[:-1]) / 2
for label, times in (("at the hours", hours), ("between them", middle)):
    drawn = city.sample(2000, times, random_state=0)
    print(f"in the river, {label}: {100 * law.in_river(drawn).mean():.1f} %")
whole = city.sample(2000, random_state=0)
away = np.linalg.norm(whole[:, -1] - whole[:, 0], axis=1).mean()
print(f"from home in the evening: {away / whole[:, 0].std(axis=0).mean():.2f} spreads")
