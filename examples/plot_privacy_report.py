"""
A report for the data-protection officer
========================================

We publish a private copy of the measurements of breast tumors, together with a report for the
data-protection officer: what was released, whom it protects and how well, which assumptions the
guarantee makes, and what attacks on it find.
"""

# %%
# A private copy
# --------------
# Each of the 569 rows is a patient. We use seven measurements of the tumor, and whether it was
# malignant. Half of the patients are private. The others play the part of public rows from the same
# population, which cost no privacy. The bounds of the logarithms of the measurements are assumed to
# be known from earlier studies.

import matplotlib.pyplot as plt
import numpy as np
from sklearn.datasets import load_breast_cancer
from sklearn.model_selection import train_test_split

from skdpot import DPSlicedFlowSampler, PrivacyBudget
from skdpot.audit import privacy_report, synthetic_membership
from skdpot.mechanisms import Sketch

plt.style.use("skdpot.pictures")
data = load_breast_cancer()
names = ["mean radius", "mean texture", "mean smoothness", "mean compactness", "mean symmetry",
         "worst texture", "worst smoothness"]  # fmt: skip
columns = [list(data.feature_names).index(name) for name in names]
X, y = np.log(data.data[:, columns]), data.target
low = np.log([6, 9, 0.05, 0.015, 0.1, 11, 0.07])
high = np.log([30, 40, 0.17, 0.36, 0.31, 50, 0.23])
X_private, X_public, y_private, y_public = train_test_split(X, y, test_size=0.5, random_state=0)

budget = PrivacyBudget(epsilon=3.0, delta=1e-5)
sampler = DPSlicedFlowSampler(
    Sketch(classes=[0, 1]), epsilon=2.0, bounds=(low, high), conditional=True, budget=budget
)
sampler.fit(X_private, y_private)

# %%
# The report
# ----------
# A notebook displays the report; ``report.to_html("report.html")`` writes a single self-contained
# file that can be printed. The report touches no private row: the audit attacks a copy of the
# sampler that is fitted to artificial rows, and the other attacks and the utility metrics use
# public rows only.

report = privacy_report(sampler, X_public, y_holdout=y_public, random_state=0)
report

# %%
# For a record of processing activities, the same facts are available as a table or a dict.

print(report.to_frame().query("section in ('spent', 'audits', 'cautions')").to_string())

# %%
# Attacks without and with noise
# ------------------------------
# Without noise the same sampler copies the data: with ``epsilon=float("inf")`` its particles end up
# next to the rows, and attacks that see only synthetic rows find most of the patients. With noise
# they do little better than guessing. This is not a proof, because these attackers know little; the
# guarantee comes from the noise.

found = {}
for name, epsilon in (("without noise", np.inf), ("ε = 2", 2.0)):
    copy = DPSlicedFlowSampler(epsilon=epsilon, bounds=(low, high)).fit(X_private)
    found[name] = synthetic_membership(copy, X_private, X_public, random_state=0).to_frame()
    print(name)
    print(found[name][["auc", "tpr_at_0.01", "tpr_at_0.1"]].round(3).to_string())

# %%
# Each attack is set to suspect one non-member in ten. Guessing then also finds one patient in ten.

figure, ax = plt.subplots(figsize=(6.4, 3.5))
for color, (name, attacks) in zip(("C1", "C0"), found.items(), strict=True):
    rates = attacks[["tpr_at_0.1", "tpr_at_0.1_low", "tpr_at_0.1_high"]].to_numpy().T
    around = np.abs(rates[1:] - rates[0])
    ax.errorbar(rates[0], attacks.index, xerr=around, fmt="o", capsize=3, color=color, label=name)
ax.axvline(0.1, color="0.4", ls=":", lw=1.4, label="guessing")
ax.grid(axis="y")
ax.set(xlim=(0, 1.02), xlabel="patients found, at 10 % false alarms")
ax.set_xticks(ticks := np.linspace(0, 1, 6), [f"{tick:.0%}" for tick in ticks])
ax.invert_yaxis()
figure.legend(loc="outside lower center", ncols=3)
figure.suptitle("At ε = 2 attacks stay near guessing", x=0.01, ha="left")
figure.savefig("privacy_report_attacks.png")
plt.show()
