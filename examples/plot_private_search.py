"""
Private hyper-parameter search
==============================

Which network, which learning rate, how many steps? Evaluating candidates reads the private rows
once per candidate, and choosing the best one reads them again. `PrivateSearchCV` does both within a
single (ε, δ). We compare it with a classifier that is not tuned, and with a grid search without
privacy.
"""

# %%
# The cost of a search, before it starts
# --------------------------------------
# The data are two moons. A straight line, the default of `FairPrivateClassifier`, classifies at
# most about 88 % of them correctly. Whether a small network is better *under noise*, and how to
# train it, depends on the data and on ε.
#
# The plan depends on the data through the number of rows only. The search makes a random, secret
# number of trials. Each trial may spend two thirds of ε, whatever their number, because only the
# best one is released.

import matplotlib.pyplot as plt
import numpy as np
from sklearn.datasets import make_moons
from sklearn.model_selection import GridSearchCV, ShuffleSplit

from skdpot import FairPrivateClassifier
from skdpot.mechanisms import SketchedOutputs
from skdpot.search.private_search import PrivateSearchCV

plt.style.use("skdpot.pictures")
N_ROWS, N_RUNS, EPSILONS = 3000, 4, (0.3, 1.0, 3.0)

X, y = make_moons(N_ROWS, noise=0.2, random_state=0)
X_test, y_test = make_moons(N_ROWS, noise=0.2, random_state=1)

WHOLE = SketchedOutputs(alpha=0.0, batch_fraction=1.0)
classifier = FairPrivateClassifier(mechanism=WHOLE)
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
# ``best_score_`` is the noisy accuracy of the winner on held-out rows. It is private, and slightly
# optimistic, because it is the best of several. The scores of the other candidates are not
# released: the budget does not pay for them.

search.fit(X, y)
print(search.best_params_, f"score {search.best_score_:.3f}")
print(search.privacy_spent_)

# %%
# Comparison with the default and with a grid search without privacy
# ------------------------------------------------------------------
# All accuracies are measured on a second sample, which is public. The grid search trains every
# candidate without noise and keeps the best one on held-out rows: neither its choice nor its model
# is private. The default spends the whole ε on one fit to all rows.


def accuracy(fitted):
    """Return the accuracy on the second sample."""
    return fitted.score(X_test, y_test)


searched = {
    epsilon: [
        accuracy(PrivateSearchCV(classifier, candidates, epsilon=epsilon, n_trials=10).fit(X, y))
        for _ in range(N_RUNS)
    ]
    for epsilon in EPSILONS
}
default = {
    epsilon: [
        accuracy(FairPrivateClassifier(mechanism=WHOLE, epsilon=epsilon).fit(X, y))
        for _ in range(N_RUNS)
    ]
    for epsilon in EPSILONS
}
noiseless = FairPrivateClassifier(mechanism=WHOLE, epsilon=np.inf)
grid = accuracy(GridSearchCV(noiseless, candidates, cv=ShuffleSplit(1, random_state=0)).fit(X, y))

# %%
# The search finds the network, which the default does not use. The accuracy of the winner varies a
# lot: a search makes few trials, and if it draws no good candidate it cannot return one (the plan
# gives the probability). More trials or fewer poor candidates help; both can be chosen without
# looking at the rows. Where the default is a good model, as for linearly separable data, it is
# preferable, because it spends all of ε on one fit.

figure, axes = plt.subplots(figsize=(6.2, 3.9))
axes.axhline(grid, color="0.45", linestyle="--", linewidth=1.2)
axes.text(0.29, grid + 0.003, "grid search without privacy", color="0.35")
for name, runs, marker in (("private search", searched, "o"), ("default, not tuned", default, "s")):
    (line,) = axes.plot(
        EPSILONS, [np.mean(runs[epsilon]) for epsilon in EPSILONS], marker=marker, label=name
    )
    for epsilon in EPSILONS:
        axes.plot([epsilon] * N_RUNS, runs[epsilon], marker, c=line.get_color(), alpha=0.35, ms=4)
axes.set(xscale="log", xlabel="total ε", ylabel="accuracy on public rows", ylim=(0.82, 1.0))
axes.set_xticks(EPSILONS, [f"{epsilon:g}" for epsilon in EPSILONS])
axes.minorticks_off()
axes.set_title("Where the default is a poor model, a search pays off")
axes.legend(loc="lower right")
plt.show()
