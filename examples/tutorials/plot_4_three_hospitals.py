"""
Three hospitals compare their patients
======================================

*For a study of several parties.* Three hospitals want to know whether their patients are alike
before they train a model together. None hands rows to another, and there is no trusted server.

======================  ===========================================================================
what goes in            a table of numbers in each hospital, the same columns in the same units
what is spent           ε = 1 in each hospital, from its own ledger, once for all comparisons
what leaves a hospital  one message: noisy counts along public directions
what comes back         the distances of all pairs, with intervals
======================  ===========================================================================
"""

# %%
# Three hospitals
# ---------------
# *North* and *South* treat similar people; the patients of *East* are ten years older. The
# hospitals agree on the bounds before anyone looks at data. They are public, and values beyond them
# are clipped.

import tempfile
import warnings
from pathlib import Path

import matplotlib.pyplot as plt
import numpy as np
import pandas as pd

from skdpot import PrivacyBudget, PrivateWassersteinDistance
from skdpot.exceptions import NotPrivateWarning, ProtocolRefusedError
from skdpot.federated import Party
from skdpot.mechanisms import Sliced
from skdpot.metrics import sliced_wasserstein_distance

plt.style.use("skdpot.pictures")
folder = Path(tempfile.mkdtemp())
rng = np.random.default_rng(0)
BOUNDS = {"age": (18, 98), "pressure": (80, 220), "weight": (40, 160)}
N_ROWS = {"North": 8000, "South": 4000, "East": 6000}


def patients(n_rows, mean_age):
    """Return invented patients."""
    age = rng.normal(mean_age, 12, n_rows)
    pressure = rng.normal(100 + 0.6 * age, 12)
    weight = rng.normal(78, 13, n_rows)
    rows = np.stack([age, pressure, weight], axis=1)
    return pd.DataFrame(rows.clip(*np.transpose(list(BOUNDS.values()))), columns=list(BOUNDS))


rows = {name: patients(n, 60 if name == "East" else 50) for name, n in N_ROWS.items()}

# %%
# Each hospital decides for itself
# --------------------------------
# A `~skdpot.federated.Party` holds the rows of one hospital and answers requests. Its owner sets
# the privacy parameters, the budget and the protocols that it takes part in; no request changes
# them. The ledger is a file of the hospital, so later comparisons take earlier ones into account.

parties = [
    Party(
        name,
        table,
        epsilon=1.0,
        delta=1e-6,
        allows=("sliced",),
        budget=PrivacyBudget(epsilon=2.0, delta=1e-6, ledger=folder / f"{name}.db"),
    )
    for name, table in rows.items()
]

# %%
# One message each, all distances
# -------------------------------
# All agree on bounds, on public directions (a shared seed) and on the protocol. Each hospital
# charges its ledger, draws its noise, and publishes one sketch. Anyone can compute all distances
# from the three sketches, now and later. The distance is the sliced Wasserstein distance SW₂
# between populations, with each column scaled by its bounds.

lower, upper = np.transpose(list(BOUNDS.values()))
comparison = PrivateWassersteinDistance(Sliced(shared_seed=2026), bounds=(lower, upper))
distances, errors = comparison.pairwise_distances(parties, return_std=True)
print(distances.round(3).to_string())
print("standard errors:")
print(errors.round(3).to_string())

# %%
# Asking again costs nothing: the answer is the same message. The ledgers hold one charge each.

again = comparison.pairwise_distances(parties)
print("same distances:", np.allclose(distances, again))
for name in rows:
    print(name, PrivacyBudget.from_ledger(folder / f"{name}.db"))

# %%
# How good is it?
# ---------------
# These rows are invented, so we may compare with the distances of the tables themselves, which are
# no ground truth either: tables of two equal populations differ by chance. The sketch estimates the
# distance of *populations*, which is zero for North and South.

scaled = {name: 2 * (table - lower) / (upper - lower) - 1 for name, table in rows.items()}
pairs = [("North", "South"), ("North", "East"), ("South", "East")]
private = np.array([distances.loc[pair] for pair in pairs])
exact = [sliced_wasserstein_distance(scaled[a], scaled[b]) for a, b in pairs]
error = np.array([errors.loc[pair] for pair in pairs])

figure, ax = plt.subplots(figsize=(6, 2.9))
ax.errorbar(private, range(3), xerr=2 * error, fmt="o", capsize=4, label="private, ± 2 errors")
ax.plot(exact, range(3), "|", color="C1", ms=20, mew=2.5, label="tables, without privacy")
ax.set_yticks(range(3), [" – ".join(pair) for pair in pairs])
ax.set(xlabel="sliced Wasserstein distance", xlim=(-0.01, 0.19), ylim=(-0.6, 2.6))
ax.set_title("East differs; North and South do not, within the noise")
ax.legend(loc="center")
plt.show()

# %%
# A request for rows is refused
# -----------------------------
# TriangleWad and FedWad are protocols from the literature that promise privacy but reveal every row
# (:ref:`sphx_glr_auto_examples_plot_who_learns_what.py`). A party that did not allow them refuses
# every such request before its rows are read.

with warnings.catch_warnings():
    warnings.simplefilter("ignore", NotPrivateWarning)
    try:
        PrivateWassersteinDistance("triangle", bounds=(lower, upper)).pairwise_distances(parties)
    except ProtocolRefusedError as refusal:
        print(refusal)

# %%
# What to hand to the officer
# ---------------------------
# Each hospital's officer gets the statement of its one release, and the ledger stays there.

(spent,) = parties[0].privacy_spent
print(f"North: ε = {spent.epsilon:g}, δ = {spent.delta:g}")
print(*(f"- public: {fact}" for fact in spent.assumptions), sep="\n")

# %%
# In practice
# -----------
# Here all parties live in one process. ``examples/federated`` runs the same over a network, with
# Flower; ``skdpot distance north.csv south.csv east.csv`` compares files in one place.
#
# What to do when it is not good enough
# -------------------------------------
# * *The intervals are too wide.* Compare fewer columns: the noise of each direction grows with
#   their number. More rows help most, as the noise falls with n (:doc:`/how_good`).
# * *The bounds are far wider than the data.* Agree on narrower ones, from common knowledge.
# * *You want one sketch of all rows,* with hardly more noise than that of one hospital: see
#   :ref:`secure-sums`.
# * *You want to know which columns differ:* `~skdpot.SlicedSketch` has the
#   distribution functions of each.
