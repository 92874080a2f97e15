"""
A hospital's CSV: a copy for everybody
======================================

*For a data scientist and a data-protection officer.* A hospital has a CSV file with a row per
patient. It may hand out a synthetic copy of the file, made of a few noisy counts, with a guarantee
for each patient. Five steps lead from the file to the documents that the officer signs. They do not
need Python: each step is also a command (:doc:`/command_line`) and a page to click, ``skdpot ui``.

========================  =========================================================================
what goes in              one CSV file, one row per patient, texts as people write them
what is spent             ε = 1 of the study's ε = 3, once; sampling and reports cost nothing
for the officer           the report on privacy, the report on quality, and the list of what was
                          made public
========================  =========================================================================
"""

# %%
# The file
# --------
# Twenty thousand invented patients. Dates are written in two ways, costs with a currency and
# answers in words. Older people and smokers are admitted more often and stay longer.

import tempfile
import warnings
from dataclasses import replace
from pathlib import Path

import matplotlib.pyplot as plt
import numpy as np
import pandas as pd
from sklearn.ensemble import HistGradientBoostingClassifier
from sklearn.metrics import roc_auc_score

from skdpot import DPTableSynthesizer, PrivacyBudget, TableSchema
from skdpot.audit import privacy_report
from skdpot.metrics import MarginalsDisplay, PrivacyUtilityDisplay
from skdpot.preprocessing import LessEqual, NumericColumn

plt.style.use("skdpot.pictures")
rng = np.random.default_rng(0)
folder = Path(tempfile.mkdtemp())


def patients(n_rows: int) -> pd.DataFrame:
    """Return invented patients."""
    age = np.clip(rng.normal(50, 18, n_rows), 18, 95).round().astype(int)
    smoker = rng.random(n_rows) < np.where(age < 40, 0.35, 0.2)
    pressure = rng.normal(105 + 0.4 * age + 8 * smoker, 12).round().astype(int)
    risk = 1 / (1 + np.exp(6.0 - 0.06 * age - 1.5 * smoker - 0.01 * pressure))
    chronic = rng.random(n_rows) < risk
    ward = np.where(smoker & (rng.random(n_rows) < 0.6), "lung", "general")
    ward = np.where((age > 70) & (rng.random(n_rows) < 0.5), "geriatric", ward)
    days = np.where(chronic, rng.gamma(2.0, 2 + age / 20), rng.gamma(1.5, 1, n_rows)).round()
    admitted = pd.Timestamp("2024-01-01") + pd.to_timedelta(rng.integers(0, 330, n_rows), "D")
    cost = (300 * (1 + days) * rng.lognormal(0, 0.4, n_rows)).round(2)
    table = {"age": age, "smoker": smoker, "pressure": pressure, "ward": ward}
    table |= {"admitted": admitted, "discharged": admitted + pd.to_timedelta(days, "D")}
    return pd.DataFrame(table | {"cost": cost, "chronic": np.where(chronic, "yes", "no")})


def as_typed_in(rows: pd.DataFrame) -> pd.DataFrame:
    """Return the rows as texts, the way several people typed them."""
    forms = np.where(rng.random(len(rows)) < 0.5, "%Y-%m-%d", "%d.%m.%Y")
    return rows.assign(
        patient_id=[f"P{number:06}" for number in rng.permutation(len(rows))],
        smoker=np.where(rows.smoker, rng.choice(["yes", "Y"], len(rows)), "no"),
        admitted=[day.strftime(form) for day, form in zip(rows.admitted, forms, strict=True)],
        cost=[f"{amount:,.2f} EUR" for amount in rows.cost],
    )


as_typed_in(patients(20_000)).to_csv(folder / "patients.csv", index=False)
private = pd.read_csv(folder / "patients.csv", dtype=str)
private.head()

# %%
# 1. Say what is public
# ---------------------
# The guarantee covers the values, not the form of the table: names and kinds of columns, bounds and
# categories are public. ``TableSchema.guess`` (``skdpot schema patients.csv``) proposes them. **It
# reads the values**, which no budget covers, so someone has to check and confirm each line of this
# table. It goes to the officer.

with warnings.catch_warnings():
    warnings.simplefilter("ignore")  # what it warns of stands in the table below
    schema = TableSchema.guess(private)
for note in schema.notes:
    print("-", note)
schema.to_frame()

# %%
# We make two changes. The oldest patient and the highest cost must not set a bound, so we state
# bounds from common knowledge. One fact about all hospitals is worth a rule: nobody is discharged
# before being admitted. A rule costs nothing and holds in every synthetic row.

schema = schema.replace(
    NumericColumn("age", lower=18, upper=100, integer=True),
    NumericColumn("cost", lower=0, upper=100_000, log_scale=True, written="1,234.50 EUR"),
)
schema = replace(schema, rules=[LessEqual("admitted", "discharged", largest=120)]).confirm()
text = schema.to_json(folder / "schema.json")

# %%
# 2. Set up the budget of the study
# ---------------------------------
# A budget caps everything that is ever released about these patients. It is kept in a file, which
# later fits continue. A fit that it cannot pay for is refused before it draws any noise. δ is far
# below one over the number of patients. :doc:`/privacy_in_ten_minutes` explains how to choose both.

budget = PrivacyBudget(epsilon=3.0, delta=1e-6, ledger=folder / "study.db")

# %%
# 3. Fit once, draw any number of rows
# ------------------------------------
# ``target`` names the column that matters most. Only ``fit`` reads the patients.

synthesizer = DPTableSynthesizer(schema, epsilon=1.0, delta=1e-6, target="chronic", budget=budget)
synthesizer.fit(private)
synthetic = synthesizer.sample(len(private))
synthetic.to_csv(folder / "synthetic.csv", index=False)
spent = synthesizer.privacy_spent_
print(f"Spent: ε = {spent.epsilon:g} at δ = {spent.delta:g}, for one record replaced by another")
print(*(f"- public: {fact}" for fact in spent.assumptions), sep="\n")
print(f"Left for one more fit: ε = {budget.remaining():.2f} of {budget.epsilon:g}")
synthetic.head()

# %%
# Values come back clean: ISO dates, plain amounts, true and false. The rule holds in each row:

print("discharged before admitted:", int((synthetic.discharged < synthetic.admitted).sum()))

# %%
# Rows under a condition, here old smokers, come from the same fit at no cost.

old_smokers = synthesizer.sample(1000, conditions={"smoker": True, "age": (60, None)})
old_smokers[["age", "pressure", "cost"]].describe().loc[["mean", "min", "max"]].round(1)

# %%
# 4. How good is it?
# ------------------
# *Without looking at the patients again:* the report on quality compares synthetic rows with the
# noisy counts that were released, so it can be published with them. It also says what such counts
# cannot show. ``to_html`` writes a page.

quality = synthesizer.quality_report(random_state=0)
quality.to_html(folder / "quality.html")
quality

# %%
# *Beside real rows:* this tutorial can invent more patients, and treats them as public. At a
# hospital, rows that may be read without noise are rare, and this picture must not be published.

public = patients(10_000)
shown = ["age", "pressure", "cost", "ward", "smoker", "chronic"]
figure, axes = plt.subplots(2, 3, figsize=(8.4, 5.2))
display = MarginalsDisplay.from_frames(public, synthetic, columns=shown, ax=axes)
figure.suptitle("At ε = 1 every column of 20,000 patients keeps its shape", x=0.01, ha="left")
figure.savefig("private_table.png")
plt.show()

# %%
# *For the task:* who is chronically ill? A model is trained on synthetic rows only and tested on
# real ones. This is also a way to choose ε: on a public table that resembles the private one,
# before the private one is read. Here the fits are charged to no budget, because the rows are
# invented.


def auc(rows: pd.DataFrame) -> float:
    """Return the AUC, on real rows, of a model that was trained on the given ones."""
    features = ["age", "smoker", "pressure"]
    model = HistGradientBoostingClassifier(max_iter=50, random_state=0)
    model.fit(rows[features], rows.chronic == "yes")
    return roc_auc_score(public.chronic == "yes", model.predict_proba(public[features])[:, 1])


results = []
for epsilon in (0.1, 0.3, 1.0, 3.0):
    for _ in range(2):
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")  # at 0.1 the noise is near the counts
            copy = DPTableSynthesizer(schema, epsilon=epsilon, delta=1e-6, target="chronic").fit(
                private
            )
        results.append({"epsilon": epsilon, "AUC on real rows": auc(copy.sample(20_000))})
plain = DPTableSynthesizer(schema, epsilon=np.inf).fit(private).sample(20_000)
results.append({"epsilon": np.inf, "AUC on real rows": auc(plain)})
figure, ax = plt.subplots(figsize=(6, 3.6))
PrivacyUtilityDisplay.from_frame(pd.DataFrame(results), score="AUC on real rows", floor=0.5, ax=ax)
ax.set_title("At ε = 1 the copy predicts as well as the real rows; at 0.1 it does not")
plt.show()

# %%
# 5. What the officer gets
# ------------------------
# The report on privacy states what was released, who is protected and how well, what is assumed to
# be public, what is left of the budget, and what an attack on a copy of the fit found. It reads no
# private row.

report = privacy_report(synthesizer, budget=budget, random_state=0)
report.to_html(folder / "privacy.html")
report

# %%
# Hand over ``privacy.html``, ``quality.html``, ``schema.json`` (what became public) and
# ``synthetic.csv``. Keep ``patients.csv`` and the ledger ``study.db``.
#
# What to do when it is not good enough
# -------------------------------------
# * *A column is too noisy.* Leave out columns that nobody needs: all columns share the budget.
#   :doc:`/how_good` shows what to expect of n rows and d columns.
# * *A relation is lost.* Name the column that it is about as ``target``, or state a rule, if the
#   relation is common knowledge.
# * *Bounds are far too wide, or categories are lumped as "other".* State both: what is public costs
#   nothing.
# * *One number is needed exactly.* Do not take it from synthetic rows: the noisy counts themselves,
#   ``synthesizer.marginals_``, have standard errors.
# * *Nothing helps.* Spend more of the budget once, on one better fit, rather than twice on two.
