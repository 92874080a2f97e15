"""
Rows on a cluster
=================

*For a data engineer with files that do not fit into memory.* The same estimators take a directory
of Parquet files, a DataFrame of Dask or of Spark. The rows stay where they are: workers count, the
counts are added up exactly, and the noise is drawn once.

=====================  ============================================================================
what goes in           a path, a query or a distributed DataFrame instead of X
what is spent          the same ε as for rows in memory: the release is the same, to the last bit
what to hand on        what the fit released; never the counts, which are exact
=====================  ============================================================================
"""

# %%
# A month of visits in eight files
# --------------------------------
# 200,000 invented visits, one row per person, written as Parquet.

import shutil
import tempfile
import time
import warnings
from pathlib import Path

import dask.dataframe as dd
import matplotlib.pyplot as plt
import numpy as np
import pandas as pd
from sklearn.base import clone

from skdpot import DPTableSynthesizer, PrivacyBudget, SlicedSketch, TableSchema
from skdpot.exceptions import PrivacyWarning
from skdpot.preprocessing import CategoricalColumn, NumericColumn

plt.style.use("skdpot.pictures")
folder = Path(tempfile.mkdtemp())
for part in range(8):
    rng = np.random.default_rng(part)
    age = rng.integers(18, 91, 25_000)
    pressure = rng.normal(100 + age / 2, 12).clip(80, 220)
    ward = np.where(
        rng.random(len(age)) < age / 150, "inner", rng.choice(["eye", "bone"], len(age))
    )
    table = pd.DataFrame({"age": age, "pressure": pressure, "ward": ward})
    table.to_parquet(folder / f"visits{part}.parquet", index=False)

# %%
# The same call for every source of rows
# --------------------------------------
# The schema is written by hand: a guess would read values (:doc:`/tables`). One ledger pays for all
# fits.

schema = TableSchema(
    [
        NumericColumn("age", lower=18, upper=90, integer=True),
        NumericColumn("pressure", lower=80, upper=220),
        CategoricalColumn("ward", categories=["inner", "eye", "bone"]),
    ]
)
budget = PrivacyBudget(epsilon=2.0, delta=1e-7, ledger=folder / "study.db")
visits = dd.read_parquet(folder / "*.parquet")  # or spark.read.parquet(...), or a path
start = time.perf_counter()
synthesizer = DPTableSynthesizer(schema, epsilon=1.0, delta=1e-7, budget=budget).fit(visits)
seconds = time.perf_counter() - start
print(f"{synthesizer.n_samples_:,} rows in {visits.npartitions} partitions: {seconds:.0f} s")
print(f"left: ε = {budget.remaining():.2f} of {budget.epsilon:g}")
synthesizer.sample(5)

# %%
# The release does not depend on the engine
# -----------------------------------------
# With one seed, rows in memory, in files and in Dask give the same sketch to the last bit. **A real
# release has no seed:** anyone who knows it can remove the noise. These three are not charged
# because the rows are invented.

numbers = {"bounds": ([18, 80], [90, 220]), "conditional": True, "delta": 1e-7}
in_memory = visits.compute()
unprotected = SlicedSketch(**numbers, random_state=0)
with warnings.catch_warnings():
    warnings.simplefilter("ignore", PrivacyWarning)  # of the seed
    sketches = {
        "memory": clone(unprotected).fit(in_memory[["age", "pressure"]], in_memory["ward"]),
        "files": clone(unprotected).fit(str(folder / "*.parquet"), "ward"),
        "Dask": clone(unprotected).fit(visits, "ward"),
    }
first = sketches["memory"].statistic_
for name, sketch in sketches.items():
    print(f"{name:8} same release: {np.array_equal(sketch.statistic_, first)}")

# %%
# On a real cluster the client is the only change: ``Client("tcp://scheduler:8786")`` before the
# fit, or a SparkSession. ``examples/engines`` has programs for files, DuckDB, Dask and Spark.
#
# How good is it?
# ---------------
# With 200,000 rows the noise at ε = 1 is invisible: it is that of a few rows, whatever their
# number. The report compares with the released counts, without a pass over the rows.

drawn = synthesizer.sample(50_000, random_state=0)
figure, ax = plt.subplots(figsize=(6, 3.4))
edges = np.arange(18.5, 91, 4)
for label, ages, style in (
    ("real rows", in_memory.age, {"color": "0.78"}),
    ("synthetic rows", drawn.age, {"histtype": "step", "lw": 2, "color": "C0"}),
):
    inner = (in_memory if label == "real rows" else drawn).ward == "inner"
    ax.hist(ages[inner], edges, density=True, label=label, **style)
ax.set(xlabel="age of patients in the inner ward", yticks=[])
ax.set_title("200,000 rows: the noise of ε = 1 cannot be seen")
ax.legend(loc="upper left")
plt.show()
print(synthesizer.quality_report(random_state=0).columns.round(4).to_string())

# %%
# What to tell the officer
# ------------------------
# Noise protects what leaves the process of the fit. **Inside the cluster nothing is noisy:** the
# memory of workers, their spill directories, and messages between machines are as private as the
# rows (:doc:`/sources`). Hand over ``privacy_report(synthesizer)``, as in
# :ref:`sphx_glr_auto_examples_tutorials_plot_1_hospital_table.py`.
#
# What to do when it does not work
# --------------------------------
# * *Files have different data types.* The fit refuses them before the charge and names the file.
# * *A person has several rows.* ``unit=`` needs rows in memory. Let the engine take one row of each
#   person, the same in every pass.
# * *Reading is slow.* A fit makes a few passes: ``visits.persist()`` keeps the rows in the workers.
# * *A worker dies.* Its partition is counted again, once. If the engine gives up after the charge,
#   the charge stays.

shutil.rmtree(folder)
