"""
A fair and private classifier in a pipeline
===========================================

*For an engineer with a DataFrame and a scikit-learn pipeline.* A bank decides about loans. The
decisions should be favourable about as often for women as for men, and the model must not reveal
what any one applicant filled in.

=====================  ============================================================================
what goes in           a DataFrame with numbers and categories, a label, and the group of each row
what is spent          ε = 0.2 for the scales of two columns and ε = 1 for the classifier, from one
                       budget of 1.2, which has some left: ε of several releases add up to less
what to hand on        the fitted pipeline, ``privacy_spent_`` of its steps, and the frontier of
                       accuracy and fairness, which is private too
=====================  ============================================================================
"""

# %%
# The table
# ---------
# Twelve thousand invented applicants. Income is higher for men on average, so a model that
# maximizes accuracy favours men. **The group of each person is public** (see :doc:`/not_private`);
# all other columns and the label are protected.

import matplotlib.pyplot as plt
import numpy as np
import pandas as pd
from sklearn.compose import ColumnTransformer
from sklearn.frozen import FrozenEstimator
from sklearn.linear_model import LogisticRegression
from sklearn.pipeline import make_pipeline
from sklearn.preprocessing import FunctionTransformer, MinMaxScaler, OneHotEncoder, StandardScaler

from skdpot import FairPrivateClassifier, PrivacyBudget, PrivateScaler, check_pipeline
from skdpot.metrics import disparate_impact
from skdpot.preprocessing import finite_rows

plt.style.use("skdpot.pictures")
WORK = ["employed", "freelance", "none"]


def applicants(n_rows, seed):
    """Return invented applicants, and who of them paid back."""
    rng = np.random.default_rng(seed)
    sex = rng.choice(["woman", "man"], n_rows)
    work = rng.choice(WORK, n_rows, p=[0.7, 0.2, 0.1])
    income = rng.lognormal(7.7, 0.4, n_rows) * np.where(sex == "man", 1.6, 1.0)
    debt = rng.gamma(2.0, 900, n_rows)
    years = rng.integers(0, 30, n_rows)
    score = income / 900 - debt / 1500 + years / 15 - 1.5 * (work == "none") - 2.5
    paid = rng.random(n_rows) < 1 / (1 + np.exp(-score))
    table = {"income": income, "debt": debt, "years": years, "work": work}
    return pd.DataFrame(table), paid.astype(int), sex


X, y, sex = applicants(12_000, seed=0)
X_test, y_test, sex_test = applicants(12_000, seed=1)  # plays the part of public rows
X.head()

# %%
# A pipeline without leaks
# ------------------------
# Each step that learns from the rows must be charged. ``PrivateScaler`` learns centres and scales
# privately. The scale of ``years`` is public: the scaler is fitted to 0 and 30 years and frozen, so
# that it never sees a row. ``finite_rows`` stands before it, because scikit-learn's scaler would
# quote a text that it finds among numbers. An encoder with declared categories learns nothing
# either. `~skdpot.check_pipeline` refuses a pipeline with a step that would learn without noise.

budget = PrivacyBudget(epsilon=1.2, delta=1e-6)
public = MinMaxScaler((-1, 1)).fit(pd.DataFrame({"years": [0, 30]}))
known = make_pipeline(FunctionTransformer(finite_rows), FrozenEstimator(public))
words = OneHotEncoder(categories=[WORK], sparse_output=False, handle_unknown="ignore")
prepare = ColumnTransformer(
    [
        ("amounts", PrivateScaler(epsilon=0.2, delta=1e-6, budget=budget), ["income", "debt"]),
        ("years", known, ["years"]),
        ("words", words, ["work"]),
    ]
)
classifier = FairPrivateClassifier(level=0.8, epsilon=1.0, delta=1e-6, budget=budget)
model = check_pipeline(make_pipeline(prepare, classifier))

try:
    check_pipeline(make_pipeline(StandardScaler(), classifier))
except ValueError as error:
    print("refused:", error)

# %%
# One fit
# -------
# ``level=0.8`` asks for the "four-fifths rule": the rate of favourable decisions in one group is at
# least 0.8 of that in the other. The group is passed to the step that needs it.

model.fit(X, y, fairprivateclassifier__sensitive_features=sex)
fitted = model[-1]
print(budget.history()[["label", "epsilon"]].round(2).to_string(index=False))
print(f"spent ε = {budget.epsilon_spent():.2f}; left for one more fit: {budget.remaining():.2f}")

# %%
# How good is it, and how fair?
# -----------------------------
# *Before any test:* ``frontier_`` states the accuracy and the fairness of 21 rules, with standard
# errors, from the release alone. It is private and can be published.

columns = ["level", "accuracy", "accuracy_se", "disparate_impact", "disparate_impact_se"]
print(fitted.frontier_.loc[::4, columns].round(3).to_string(index=False))

# %%
# *On public rows:* the same figures, and those of two models without privacy. Other rules of the
# same fit cost nothing: ``with_constraint`` returns a copy. Accuracy on *private* rows would not be
# private.


def measured(decided):
    """Return the accuracy and the disparate impact of decisions on the public rows."""
    impact = disparate_impact(decided, sensitive_features=sex_test)
    return np.mean(decided == y_test), impact


prepared = model[0].transform(X_test)
levels = (0.0, 0.6, 0.7, 0.8, 0.9, 0.95)
ours = [measured(fitted.with_constraint(level=level).predict(prepared)) for level in levels]
plain = make_pipeline(
    ColumnTransformer([("words", words, ["work"])], remainder=StandardScaler()),
    LogisticRegression(),
)
unfair = measured(plain.fit(X, y).predict(X_test))
table = pd.DataFrame(ours, index=levels, columns=["accuracy", "disparate impact"])
print(table.rename_axis("level").round(3))

figure, ax = plt.subplots(figsize=(6, 3.8))
accuracies, impacts = np.transpose(ours)
ax.plot(impacts, accuracies, "o-", label="one private fit, ε = 1, six levels")
ax.plot(*unfair[::-1], "s", color="C1", label="not private, not fair: logistic regression")
ax.axvline(0.8, color="0.5", ls=":", lw=1.2)
ax.text(0.805, ax.get_ylim()[1], "four-fifths rule", color="0.4", va="top")
ax.set(xlabel="disparate impact (1 is parity)", ylabel="accuracy on public rows")
ax.set_title("Fairness costs some accuracy, privacy hardly any")
ax.legend(loc="lower left")
plt.show()

# %%
# What to hand on
# ---------------
# The fitted pipeline may leave the bank, because its parameters are releases. So may ``frontier_``
# and the statements of its steps.

for step in (model[0].named_transformers_["amounts"], fitted):
    spent = step.privacy_spent_
    print(f"{type(step).__name__}: ε = {spent.epsilon:g}, δ = {spent.delta:g}")

# %%
# What to do when it is not good enough
# -------------------------------------
# * *The test misses the level.* It is kept up to the noise of the counts: ask for a little more
#   (``level=0.85``), at no cost, and look at the standard errors of ``frontier_``.
# * *Accuracy is far below that without privacy.* Scale with public bounds where you know them, and
#   leave out columns. :doc:`/how_good` has figures by n and ε.
# * *Another notion of fairness:* ``fitted.with_constraint("equalized_odds", level=0.95,
#   measure="difference")`` is free as well.
# * *The decision may use the group:* ``group_aware=True`` is more accurate near parity
#   (:doc:`/fair`). Whether it is lawful is another question.
# * *You have scores of somebody else's model:* `~skdpot.FairPrivatePostProcessor`.
