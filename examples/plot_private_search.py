"""
Private hyper-parameter search
==============================

Which network, which learning rate, how many steps? Trying them out reads private rows once for
every candidate, and choosing the best of them reads the rows once more. `PrivateSearchCV` does
both within one (ε, δ). We compare it with a classifier that nobody tuned, and with a grid search
that ignores privacy.
"""

# %%
# What a search will cost, before it starts
# -----------------------------------------
# Two moons: a straight line, which is the default of `FairPrivateClassifier`, gets at most about
# 88 % of them right. Whether a small network is better *under noise*, and how to train it, depends
# on the data and on ε.
#
# The plan needs the number of rows and nothing else. The search makes a random number of trials,
# which stays secret, and each of them may spend two thirds of ε, however many there are: only the
# best one is released.

import matplotlib.pyplot as plt
import numpy as np
from sklearn.datasets import make_moons
from sklearn.model_selection import GridSearchCV, ShuffleSplit

from skdpot import FairPrivateClassifier
from skdpot.estimators.private_search import PrivateSearchCV
from skdpot.mechanisms import SketchedOutputs

N_ROWS, N_RUNS, EPSILONS = 3000, 4, (0.3, 1.0, 3.0)

X, y = make_moons(N_ROWS, noise=0.2, random_state=0)
X_test, y_test = make_moons(N_ROWS, noise=0.2, random_state=1)

WHOLE = SketchedOutputs(batch_fraction=1.0)
classifier = FairPrivateClassifier(alpha=0.0, mechanism=WHOLE)
candidates = {
    "module": ["linear", "mlp"],
    "mechanism__learning_rate": [0.1, 0.3],
    "mechanism__n_steps": [40, 80],
}
search = PrivateSearchCV(classifier, candidates, epsilon=1.0, n_trials=10)
print(search.plan(X))

# %%
# The search
# ----------
# ``best_score_`` is the noisy share of held-out rows that the winner got right. It is private, and
# it flatters a little, being the best of several. There are no scores of other candidates: they
# are not paid for.

search.fit(X, y)
print(search.best_params_, f"score {search.best_score_:.3f}")
print(search.privacy_spent_)

# %%
# Against a default, and against a grid without privacy
# -----------------------------------------------------
# All accuracies are measured on a second sample, which is ours to look at. The grid trains every
# candidate without noise and keeps the best on held-out rows: nothing protects its choice or its
# model. The default spends the whole ε on one fit of all rows.


def accuracy(fitted):
    """Share of the second sample that is classified right."""
    return fitted.score(X_test, y_test)


searched = {
    epsilon: [
        accuracy(PrivateSearchCV(classifier, candidates, epsilon, n_trials=10).fit(X, y))
        for _ in range(N_RUNS)
    ]
    for epsilon in EPSILONS
}
default = {
    epsilon: [
        accuracy(FairPrivateClassifier(alpha=0.0, mechanism=WHOLE, epsilon=epsilon).fit(X, y))
        for _ in range(N_RUNS)
    ]
    for epsilon in EPSILONS
}
noiseless = FairPrivateClassifier(alpha=0.0, mechanism=WHOLE, epsilon=np.inf)
grid = accuracy(GridSearchCV(noiseless, candidates, cv=ShuffleSplit(1, random_state=0)).fit(X, y))

# %%
# The search finds the network that the default is not. How good a winner is varies a lot: a search
# makes a few trials, and one that happens to draw no good candidate cannot return one (the plan
# says how probable that is). More trials, or fewer hopeless candidates, help; both are choices that
# can be made without looking at the rows. Where a default is good already, as it is for data that
# a straight line divides, it is the better buy: it spends all of ε on one fit.

figure, axes = plt.subplots(figsize=(7, 4.2), layout="constrained")
axes.axhline(grid, color="#6b7280", linestyle="--", linewidth=1.2)
axes.annotate(
    "grid search without privacy",
    (0.02, grid),
    xycoords=("axes fraction", "data"),
    xytext=(0, 4),
    textcoords="offset points",
    color="#4b5563",
)
for name, runs, colour in (
    ("private search", searched, "#2a9d8f"),
    ("default, not tuned", default, "#d1495b"),
):
    means = [np.mean(runs[epsilon]) for epsilon in EPSILONS]
    axes.plot(EPSILONS, means, color=colour, marker="o", label=name)
    for epsilon in EPSILONS:
        axes.plot([epsilon] * N_RUNS, runs[epsilon], "o", color=colour, alpha=0.35, markersize=4)
axes.set_xscale("log")
axes.set_xticks(EPSILONS, [f"{epsilon:g}" for epsilon in EPSILONS])
axes.minorticks_off()
axes.set_xlabel("ε of everything together")
axes.set_ylabel("accuracy on public rows")
axes.set_ylim(0.82, 1.0)
axes.legend(loc="upper right", frameon=False)
axes.spines[["top", "right"]].set_visible(False)
plt.show()
