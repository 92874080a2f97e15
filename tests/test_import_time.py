"""What is not needed is not loaded: torch takes seconds, and a budget or a sketch does without."""

import os
import subprocess
import sys

import pytest

LIGHT = [
    "ClientContribution",
    "DPSlicedFlowSampler",
    "PrivacyBudget",
    "PrivateScaler",
    "PrivateSearchCV",
    "PrivateTrajectorySampler",
    "PrivateWassersteinDistance",
    "SlicedSketch",
]
HEAVY = ("torch", "skorch", "ot", "matplotlib", "matplotlib.pyplot")
SLOW = (*HEAVY, "sklearn", "scipy.stats", "scipy.optimize", "scipy.signal", "pandas", "jinja2")


def run(code, heavy=HEAVY):
    """Run code in a fresh interpreter; return the heavy modules that it has loaded."""
    report = f"import sys; print('loaded', *(name for name in {heavy!r} if name in sys.modules))"
    command = [sys.executable, "-c", f"{code}\n{report}"]
    environment = os.environ | {"OMP_NUM_THREADS": "1"}
    output = subprocess.run(command, capture_output=True, text=True, check=True, env=environment)
    return output.stdout.splitlines()[-1].split()[1:]


def test_the_package_alone_loads_nothing():
    code = "import sys, skdpot; print('loaded', *sys.modules)"
    output = subprocess.run([sys.executable, "-c", code], capture_output=True, check=True)
    assert not {b"numpy", b"sklearn", b"torch"} & set(output.stdout.split())


BUDGET = """
from skdpot import PrivacyBudget
from skdpot.privacy import GaussianEvent
budget = PrivacyBudget(3.0, ledger={path!r})
budget.spend(GaussianEvent(sigma=20.0, sensitivity=1.0), label="mean")
assert budget.remaining() > 0.0 and budget.epsilon_spent() > 0.0
"""


def test_a_budget_and_its_ledger_load_neither_pandas_nor_scikit_learn(tmp_path):
    path = str(tmp_path / "study.db")
    assert run(BUDGET.format(path=path), SLOW) == []
    code = f"from skdpot import PrivacyBudget\nPrivacyBudget.from_ledger({path!r}).remaining()"
    assert run(code, SLOW) == []


def test_events_and_accounts_load_neither_pandas_nor_scikit_learn():
    names = "Event, GaussianEvent, SampledGaussianEvent, compose, gdp_delta, gdp_epsilon, gdp_mu"
    code = f"from skdpot.privacy import {names}\ncompose(GaussianEvent(sigma=9.0, sensitivity=1.0))"
    assert run(code, SLOW) == []


def test_the_command_budget_loads_neither_pandas_nor_scikit_learn(tmp_path):
    path = str(tmp_path / "study.db")
    run(BUDGET.format(path=path))
    code = f"from skdpot.cli.main import main\nassert main(['budget', {path!r}]) == 0"
    assert run(code, SLOW) == []


def test_the_program_loads_a_command_when_it_is_called():
    assert run("import skdpot.cli.main", SLOW) == []


def test_names_and_displays_that_do_without_torch():
    code = f"from skdpot import {', '.join(LIGHT)}\nimport skdpot.metrics, skdpot.datasets"
    assert run(code) == []


@pytest.mark.skipif(sys.platform != "linux", reason="other systems ask torch for a GPU")
def test_a_flow_on_the_cpu_does_without_torch():
    code = """
import numpy as np
from skdpot import DPSlicedFlowSampler
X = np.random.default_rng(0).uniform(-1, 1, size=(300, 2))
sampler = DPSlicedFlowSampler(bounds=(-1, 1), n_steps=5, device="cpu").fit(X)
assert sampler.sample(3).shape == (3, 2)
sampler.score(X)
"""
    assert run(code) == []


def test_networks_say_that_they_need_torch():
    code = """
import sys

class Without:
    def find_spec(self, name, *args):
        if name == "torch":
            raise ModuleNotFoundError("No module named 'torch'", name="torch")

sys.meta_path.insert(0, Without())
import skdpot
skdpot.PrivacyBudget, skdpot.DPTableSynthesizer, skdpot.SlicedSketch
try:
    skdpot.DPSlicedGenerator
except ImportError as error:
    assert "pip install torch skorch" in str(error)
else:
    raise SystemExit("no error")
"""
    assert run(code) == []
