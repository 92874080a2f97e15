"""
A private copy of a table
=========================

A hospital has a table of patients with numbers, categories, dates and missing values. It can
publish a synthetic copy: rows drawn from a few noisy counts, with a privacy guarantee for each
patient. How accurate is the copy?
"""

# %%
# The table
# ---------
# The table holds twenty thousand artificial patients. Older people and smokers are admitted more
# often and stay longer. The length of the stay is missing for patients who were not admitted.

import matplotlib.pyplot as plt
import numpy as np
import pandas as pd
from sklearn.ensemble import HistGradientBoostingClassifier
from sklearn.metrics import roc_auc_score

from skdpot import DPTableSynthesizer, PrivacyBudget, TableSchema
from skdpot.metrics import MarginalsDisplay, PrivacyUtilityDisplay
from skdpot.preprocessing import (
    BooleanColumn,
    CategoricalColumn,
    DatetimeColumn,
    NumericColumn,
)

rng = np.random.default_rng(0)


def patients(n_rows: int) -> pd.DataFrame:
    """Return artificial patients."""
    age = np.clip(rng.normal(50, 18, n_rows), 18, 95).round().astype(int)
    smokes = rng.random(n_rows) < np.where(age < 40, 0.35, 0.2)
    pressure = rng.normal(105 + 0.4 * age + 8 * smokes, 12).round(1)
    risk = 1 / (1 + np.exp(5.5 - 0.05 * age - 1.2 * smokes - 0.01 * pressure))
    admitted = rng.random(n_rows) < risk
    ward = np.select(
        [~admitted, smokes & (rng.random(n_rows) < 0.7), age > 65],
        ["none", "lung", "geriatric"],
        "general",
    )
    days = np.where(admitted, rng.gamma(2.0, 1 + age / 40).round(1), np.nan)
    seen = pd.Timestamp("2024-01-01") + pd.to_timedelta(rng.integers(0, 366, n_rows), unit="D")
    return pd.DataFrame(
        {
            "age": age,
            "smokes": smokes,
            "pressure": pressure,
            "admitted": admitted,
            "ward": ward,
            "days": days,
            "seen": seen.as_unit("s"),
        }
    )


private, public = patients(20_000), patients(10_000)
private.head()

# %%
# What is public
# --------------
# A schema states what is public: the types, bounds and categories of the columns, from general
# knowledge and not from these rows. Everything else is estimated privately, at a part of the
# budget.

schema = TableSchema(
    [
        NumericColumn("age", lower=18, upper=95, integer=True),
        BooleanColumn("smokes"),
        NumericColumn("pressure"),  # bounds are estimated
        BooleanColumn("admitted"),
        CategoricalColumn("ward", categories=["none", "general", "lung", "geriatric"]),
        NumericColumn("days", lower=0, upper=60, missing=True),
        DatetimeColumn("seen", lower="2024-01-01", upper="2024-12-31", resolution="D"),
    ]
)
schema.to_frame()

# %%
# One fit, any number of rows
# ---------------------------
# `target` names the most important column: pairs with it get a larger share of the budget.

budget = PrivacyBudget(epsilon=1.0, delta=1e-6)
synthesizer = DPTableSynthesizer(
    schema, epsilon=1.0, delta=1e-6, target="admitted", budget=budget
).fit(private)
synthetic = synthesizer.sample(len(private))
synthesizer.privacy_spent_

# %%
synthetic.head()

# %%
# Comparison with public rows
# ---------------------------
# The public rows come from the same distribution as the private ones, so this plot reveals nothing
# about the private rows. Darker squares are pairs of columns whose joint distributions differ more.

display = MarginalsDisplay.from_frames(public, synthetic, pairs="total_variation")
display.figure_.savefig("private_table.png", dpi=100)
plt.show()

# %%
# Conditional sampling
# --------------------
# We draw any number of smokers over sixty. How often are they admitted, in the copy and in reality?

asked = synthesizer.sample(5000, conditions={"smokes": True, "age": (60, None)})
real = public[public.smokes & (public.age >= 60)]
pd.DataFrame(
    {
        "synthetic": asked[["admitted", "age", "pressure", "days"]].mean(),
        "real": real[["admitted", "age", "pressure", "days"]].mean(),
    }
).round(2)

# %%
# The quality report compares synthetic rows with the released noisy counts, at no privacy cost.

synthesizer.quality_report()

# %%
# A model trained on synthetic rows
# ---------------------------------
# A model predicts admissions. It is trained on synthetic rows and tested on real ones, for three
# copies per epsilon.


def auc(rows: pd.DataFrame) -> float:
    """Return the AUC on public rows of a model trained on the given rows."""
    features = ["age", "smokes", "pressure"]
    model = HistGradientBoostingClassifier(max_iter=50, random_state=0)
    model.fit(rows[features], rows.admitted)
    return roc_auc_score(public.admitted, model.predict_proba(public[features])[:, 1])


results = [{"epsilon": np.inf, "AUC on real rows": auc(private)}]
for epsilon in (0.1, 0.3, 1.0, 3.0):
    for _ in range(3):
        copy = DPTableSynthesizer(schema, epsilon=epsilon, delta=1e-6, target="admitted").fit(
            private
        )
        results.append({"epsilon": epsilon, "AUC on real rows": auc(copy.sample(20_000))})
PrivacyUtilityDisplay.from_frame(pd.DataFrame(results), score="AUC on real rows", floor=0.5)
plt.show()
