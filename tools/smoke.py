"""Use an installed package as a newcomer would: every public name, and one fit of each kind.

python smoke.py [--without-torch]      the second: what must work where torch is not installed
"""

import sys
import tempfile
from importlib.util import find_spec
from pathlib import Path
from warnings import filterwarnings

import numpy as np
import pandas as pd

import skdpot
from skdpot.preprocessing import CategoricalColumn, NumericColumn, TableSchema

filterwarnings("ignore", category=UserWarning)  # few rows: noise hides them
rng = np.random.default_rng(0)
X = rng.uniform(-1, 1, (300, 2))
y = (X[:, 0] > 0).astype(int)
table = pd.DataFrame({"age": rng.integers(18, 90, 500), "smokes": rng.choice(["no", "yes"], 500)})
schema = TableSchema(
    [
        NumericColumn("age", lower=18, upper=90),
        CategoricalColumn("smokes", categories=["no", "yes"]),
    ]
)

budget = skdpot.PrivacyBudget(epsilon=3.0, delta=1e-5)
synthesizer = skdpot.DPTableSynthesizer(schema, epsilon=1.0, budget=budget).fit(table)
with tempfile.TemporaryDirectory() as folder:
    synthesizer.save(Path(folder) / "table.skdpot")
    read = skdpot.DPTableSynthesizer.load(Path(folder) / "table.skdpot")
assert read.sample(10).shape == (10, 2)
assert 0 < budget.remaining() < 3.0
sampler = skdpot.DPSlicedFlowSampler(bounds=(-1, 1), n_steps=5, device="cpu").fit(X)
assert sampler.sample(7).shape == (7, 2)
here, there = (
    skdpot.PrivateWassersteinDistance(bounds=(-1, 1)).fit(rows) for rows in (X, X + 0.01)
)
assert there.compare(here.publish()).distance >= 0

if "--without-torch" in sys.argv:
    assert find_spec("torch") is None
    print("budgets, tables, flows and distances work without torch")
else:
    print(*(getattr(skdpot, name).__name__ for name in skdpot.__all__))
    fair = skdpot.FairPrivateClassifier(epsilon=3.0, device="cpu")
    fair.fit(X, y, sensitive_features=rng.integers(0, 2, 300))
    assert fair.predict(X).shape == (300,)
