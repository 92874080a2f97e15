"""
A tour of the displays
======================

What did the sketch measure, and how large is its noise? How did the particles reach their final
positions? Do the synthetic rows resemble real rows? How much of the privacy budget is left, and
what would a larger one gain? Each question has a display, with the interface of scikit-learn's
displays.
"""

# %%
# Private and public flowers
# --------------------------
# Two thirds of the irises are private. The others play the part of public rows from the same
# population: everything that is drawn from real rows without noise uses the public rows only.

import matplotlib.pyplot as plt
from sklearn.datasets import load_digits, load_iris
from sklearn.decomposition import PCA
from sklearn.linear_model import LogisticRegression
from sklearn.model_selection import train_test_split

from skdpot import DPSlicedFlowSampler, PrivacyBudget, SlicedSketch
from skdpot.mechanisms import Sketch
from skdpot.metrics import (
    BudgetDisplay,
    FlowDisplay,
    MarginalsDisplay,
    PrivacyUtilityDisplay,
    SketchDisplay,
    train_synthetic_test_real,
)

plt.style.use("skdpot.pictures")
iris = load_iris(as_frame=True)
X = iris.data.rename(columns=lambda name: name.removesuffix(" (cm)"))
y = iris.target_names[iris.target]
X_private, X_public, y_private, y_public = train_test_split(X, y, test_size=1 / 3, random_state=0)
budget = PrivacyBudget(epsilon=12.0, delta=1e-4)
sampler = DPSlicedFlowSampler(
    Sketch(n_bins=16),
    epsilon=8.0,
    delta=1e-4,
    bounds=([4, 2, 1, 0], [8, 4.5, 7, 2.6]),
    conditional=True,
    budget=budget,
)
sampler.fit(X_private, y_private)

# %%
# What the sketch measures
# ------------------------
# There is one panel per direction; the first four directions are the axes. The band is the
# measurement plus or minus two standard deviations of the noise. At each bin edge it contains the
# true share with probability 95 %. The line is the estimate of the sketch from all directions
# together.

SketchDisplay.from_estimator(sampler, X=X_public)
plt.show()

# %%
# How the flow moves particles
# ----------------------------
# The flow depends on the data through the sketch only. Running it again and recording its states
# costs no privacy.

FlowDisplay.from_estimator(
    sampler, plane=("petal length", "petal width"), X=X_public, random_state=0
)
plt.show()

# %%
# The paths of individual particles, in one panel.

FlowDisplay.from_estimator(
    sampler, plane=("sepal length", "petal length"), kind="paths", random_state=0
)
plt.show()

# %%
# Real beside synthetic rows
# --------------------------
# Here the species is a column like any other. TV is the total variation distance. With fifty real
# flowers in eight bins, the distance to another sample of fifty real flowers would not be 0 either.
# The map shows the differences between correlations; ``pairs="total_variation"`` shows the
# distances between joint distributions.

rows, species = sampler.sample_labeled(1000, random_state=0)
MarginalsDisplay.from_frames(
    X_public.assign(species=y_public),
    rows.assign(species=species),
    bins=8,
    pairs="correlation",
)
plt.show()

# %%
# The privacy budget
# ------------------
# We fit two more estimators to the same flowers. The total epsilon is less than the sum of the
# epsilons; the bars show how much each fit adds.

SlicedSketch(epsilon=4.0, delta=1e-4, bounds=(0, 8), budget=budget).fit(X_private)
DPSlicedFlowSampler(epsilon=5.0, delta=1e-4, bounds=(0, 8), n_steps=50, budget=budget).fit(
    X_private
)
BudgetDisplay.from_budget(budget)
plt.show()

# %%
# Utility against epsilon
# -----------------------
# How well does a classifier recognize handwritten digits when it is trained on synthetic digits
# only? The digits here are public. Such a sweep should be run on public rows: on private rows every
# fit is charged, and all fits together cost more than the largest epsilon (``display.spent`` tells
# how much). Fits with a small epsilon warn that the noise hides the data.

digits = load_digits()
codes = PCA(8, random_state=0).fit_transform(digits.data)
parts = train_test_split(codes, digits.target, test_size=0.4, random_state=0)
codes_train, codes_test, digits_train, digits_test = parts


def accuracy(sampler, codes, labels):
    """Return the accuracy on real digits of a classifier trained on synthetic ones."""
    made = sampler.sample_labeled(500, random_state=0)
    return train_synthetic_test_real(LogisticRegression(max_iter=1000), *made, codes, labels)


digits_sampler = DPSlicedFlowSampler(bounds=(-45, 45), conditional=True, n_steps=60)
plain = LogisticRegression(max_iter=1000).fit(codes_train, digits_train)
display = PrivacyUtilityDisplay.from_estimator(
    digits_sampler,
    codes_train,
    digits_train,
    X_test=codes_test,
    y_test=digits_test,
    epsilons=[0.3, 1.0, 3.0, 10.0],
    scoring=accuracy,
    reference=plain.score(codes_test, digits_test),
    floor=0.1,
    score_name="accuracy on real digits",
)
print(f"All fits together would cost epsilon = {display.spent.epsilon:.1f}.")
plt.show()

# %%
# The numbers behind a plot are attributes of its display. ``PrivacyUtilityDisplay.from_frame``
# draws your own results from a table with one row per fit; rows with an infinite epsilon give the
# line without privacy.

print(display.points_.round(3).to_string())
