"""
Fair and private regression with two targets
============================================

A regressor predicts a point in the unit square, and its predictions should have the same
distribution in two groups of people. This compares two distributions in the plane, not decisions at
a threshold. The paper "Learning with differentially private (sliced) Wasserstein gradients"
compares them by the sliced Wasserstein distance. We reproduce its figure 9.
"""

# %%
# The data, and what is public
# ----------------------------
# The target is uniform on the unit square. 70 % of group 0 lie below the diagonal from (0, 1) to
# (1, 0), and 70 % of group 1 above it. Eight features are noisy copies of the target, and eight are
# noisy copies of the group.
#
# Privacy protects the features and the target of each person, but not the group: the set of groups,
# their sizes and the group of each person are *public*. The targets are known to lie in [0, 1], so
# ``target_bounds=(0, 1)`` costs nothing; by default a part of the budget would be spent on
# estimating their range. By construction the features lie in about [-1, 2]; real features should be
# scaled first, by ranges that are known without looking at the data.
#
# We use 24,000 people, where the paper has 30,000. As in the paper, δ = 0.1/n. The errors are
# measured on a second sample, which is public; metrics of private test rows would not be private.

import matplotlib.pyplot as plt
import numpy as np
import pandas as pd
from scipy.stats import gaussian_kde

from skdpot import FairPrivateRegressor
from skdpot.datasets import make_biased_regression
from skdpot.metrics import wasserstein_parity

plt.style.use("skdpot.pictures")
N_ROWS = 24_000
LEVELS, EPSILONS = (0.0, 0.5, 0.8, 1.0), (np.inf, 1.0, 0.5)
GROUPS = {"A = 0": ("#0072B2", "-"), "A = 1": ("#D55E00", "--")}

X, Y, group = make_biased_regression(N_ROWS, random_state=0)
X_test, Y_test, group_test = make_biased_regression(N_ROWS, random_state=1)
group, group_test = np.array(list(GROUPS))[group], np.array(list(GROUPS))[group_test]

# %%
# Train once, choose afterwards
# -----------------------------
# A network is trained for its error alone; ``module="mlp"`` has one hidden layer of 64 units. Then
# the distributions of its predictions in each group are released, and maps that move them to one
# distribution for both groups, their Wasserstein barycentre. ``with_level`` returns a copy that
# goes a share of the way. It costs nothing: what was released is fixed.

regressors = {}
for epsilon in EPSILONS:
    regressor = FairPrivateRegressor(
        epsilon=epsilon, delta=0.1 / N_ROWS, module="mlp", target_bounds=(0, 1)
    )
    regressor.fit(X, Y, sensitive_features=group)
    for level in LEVELS:
        regressors[epsilon, level] = regressor.with_level(level)
print(regressors[1.0, 1.0].privacy_spent_)

# %%
# The frontier of risk and unfairness is known before any test: it follows from the release, with
# standard errors.

print(regressors[1.0, 1.0].frontier_.iloc[::5].round(4).to_string(index=False))

# %%
# The four levels of an ε are one fit with one charge. To publish regressors of several ε, let the
# fits share a ``PrivacyBudget``, which adds up their costs.
#
# Evaluate
# --------
# The error is the root mean squared distance between prediction and target. OD, the metric of the
# paper, is the share of predictions above the diagonal in a group. W is the sliced Wasserstein
# distance between the predictions of the groups.


def measure(predicted):
    """Return the error and the parity of predictions for the test set."""
    above = predicted.sum(axis=1) > 1
    return {
        "error": np.sqrt(np.mean(np.sum((predicted - Y_test) ** 2, axis=1))),
        **{f"OD, {name}": above[group_test == name].mean() for name in GROUPS},
        "W": wasserstein_parity(predicted, sensitive_features=group_test),
    }


predictions = {key: regressor.predict(X_test) for key, regressor in regressors.items()}
table = pd.DataFrame({key: measure(predicted) for key, predicted in predictions.items()}).T
table.index.names = ["ε", "level"]
print(table.round(3).to_string())

# %%
# Plot the predictions
# --------------------
# Points are test predictions without privacy and at ε = 0.5. A line encloses the densest half of
# the predictions of a group. The titles show the share above the diagonal in both groups.
#
# At level 0 the network has learned the triangles of the groups. As the level grows the outlines
# approach each other, and at level 1 both groups have nearly the same distribution at every ε.

AXIS = np.linspace(0, 1, 41)
GRID = np.stack(np.meshgrid(AXIS, AXIS))


def outline(axis, points, color, style):
    """Draw the level set of a density that contains half of the points."""
    density = gaussian_kde(points.T, bw_method=0.3)
    levels = [np.median(density(points.T))]
    heights = density(GRID.reshape(2, -1)).reshape(GRID.shape[1:])
    axis.contour(AXIS, AXIS, heights, levels=levels, colors=color, linestyles=style, linewidths=2)


def draw(axis, predicted, figures):
    """Draw the predictions of both groups."""
    axis.plot([0, 1], [1, 0], color="black", lw=0.8, ls=":")
    shown = slice(0, 800)
    colors = [GROUPS[name][0] for name in group_test[shown]]
    axis.scatter(*predicted[shown].T, s=5, c=colors, alpha=0.35, lw=0)
    for name, (color, style) in GROUPS.items():
        outline(axis, predicted[group_test == name][:3000], color, style)
    above = " and ".join(f"{figures[f'OD, {name}']:.0%}" for name in GROUPS)
    axis.set_title(f"above: {above}", fontsize=10)
    axis.set(xlim=(0, 1), ylim=(0, 1), aspect="equal", xticks=[0, 1], yticks=[0, 1])


SHOWN = (np.inf, 0.5)
figure, axes = plt.subplots(2, 4, figsize=(8.4, 5.2), sharex=True, sharey=True)
for row, epsilon in zip(axes, SHOWN, strict=True):
    for axis, level in zip(row, LEVELS, strict=True):
        draw(axis, predictions[epsilon, level], table.loc[(epsilon, level)])
    row[0].set_ylabel(f"ε = {epsilon:g}".replace("inf", "∞") + "\nsecond target")
for axis, level in zip(axes[-1], LEVELS, strict=True):
    axis.set_xlabel(f"first target\nlevel {level:g}")
handles = [plt.Line2D([], [], color=color, ls=style) for color, style in GROUPS.values()]
handles.append(plt.Line2D([], [], color="black", lw=0.8, ls=":"))
figure.legend(handles, [*GROUPS, "diagonal"], loc="outside lower center", ncols=3)
figure.suptitle(
    "At level 1 both groups get similar predictions, also with noise", x=0.01, ha="left"
)
figure.savefig("fair_regression.png")
plt.show()
