"""
Pictures of everything
======================

What did the sketch see, and how far may noise have moved it? How did the particles get to where
they are? Are the synthetic rows like real ones, how much privacy is left, and what would more of it
buy? Each question has a display, made and drawn like those of scikit-learn.
"""

# %%
# Private and public flowers
# --------------------------
# Two thirds of the irises are private. The others stand for public rows of the same kind: whatever
# is drawn from real rows without noise must come from them.

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

iris = load_iris(as_frame=True)
X = iris.data.rename(columns=lambda name: name.removesuffix(" (cm)"))
y = iris.target_names[iris.target]
X_private, X_public, y_private, y_public = train_test_split(
    X, y, test_size=1 / 3, stratify=y, random_state=0
)
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
# What the sketch knows
# ---------------------
# One panel a direction: the first four are the axes. The band is what was measured, give or take
# two standard deviations of the noise, and holds the true share at each bin edge with probability
# 95 %; the line is the sketch's estimate from all directions together.

SketchDisplay.from_estimator(sampler, X=X_public)
plt.show()

# %%
# How the flow gets there
# -----------------------
# The flow only looks at the sketch, so it can be run again and watched: that is free.

FlowDisplay.from_estimator(
    sampler, plane=("petal length", "petal width"), X=X_public, random_state=0
)
plt.show()

# %%
# The paths of single particles, in one picture.

FlowDisplay.from_estimator(
    sampler, plane=("sepal length", "petal length"), kind="paths", random_state=0
)
plt.show()

# %%
# Real beside synthetic rows
# --------------------------
# The species is a column like the others here. TV is the total variation distance: with fifty real
# flowers in eight bins not even another fifty real ones would be at distance 0. The map shows how
# correlations differ; ``pairs="total_variation"`` shows how far joint distributions are apart.

rows, species = sampler.sample_labeled(1000, random_state=0)
MarginalsDisplay.from_frames(
    X_public.assign(species=y_public),
    rows.assign(species=species),
    bins=8,
    pairs="correlation",
)
plt.show()

# %%
# What has been spent
# -------------------
# Two more fits to the same flowers. Epsilons do not add up: the bars show what each fit has really
# added.

SlicedSketch(epsilon=4.0, delta=1e-4, bounds=(0, 8), budget=budget).fit(X_private)
DPSlicedFlowSampler(epsilon=5.0, delta=1e-4, bounds=(0, 8), n_steps=50, budget=budget).fit(
    X_private
)
BudgetDisplay.from_budget(budget)
plt.show()

# %%
# What less privacy would buy
# ---------------------------
# How well does a classifier recognise handwritten digits when it has seen synthetic ones alone? The
# digits here are public, and that is the place for such a sweep: on private rows every one of its
# fits has to be paid for, and together they cost more than the largest epsilon
# (``display.spent`` says how much). Fits with a small epsilon warn that noise hides the data.

digits = load_digits()
codes = PCA(8, random_state=0).fit_transform(digits.data)
parts = train_test_split(codes, digits.target, test_size=0.4, random_state=0)
codes_train, codes_test, digits_train, digits_test = parts


def accuracy(sampler, codes, labels):
    """Accuracy on real digits of a classifier that has learned from synthetic ones."""
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
print(f"All of these fits together would cost epsilon = {display.spent.epsilon:.1f}.")
plt.show()

# %%
# The figures behind a picture are attributes of its display. Results of a study of one's own, a
# table with a row a fit, are drawn by ``PrivacyUtilityDisplay.from_frame``; rows with an infinite
# epsilon are its line without privacy.

print(display.points_.round(3).to_string())
