"""``kill -9`` in the middle of fits: no release without its charge."""

import os
import signal
import subprocess
import sys
import textwrap
import time

import pytest

from skdpot import PrivacyBudget

pytestmark = pytest.mark.skipif(not hasattr(os, "fork"), reason="needs fork")

# Imports once, then forks a child a round; each child fits until it is killed.
WORKER = textwrap.dedent(
    """
    import os, sys, time, warnings
    import numpy as np
    import torch
    from skdpot import DPSlicedFlowSampler, PrivacyBudget
    from skdpot.mechanisms import Sketch

    ledger, releases, n_rounds = sys.argv[1], sys.argv[2], int(sys.argv[3])
    torch.set_num_threads(1)
    X = np.random.default_rng(0).uniform(-1, 1, (40, 2))
    sketch = Sketch(n_projections=2, n_bins=8)
    options = dict(mechanism=sketch, bounds=(-1, 1), n_steps=2, n_particles=5)
    DPSlicedFlowSampler(**options).fit(X)  # warm caches, outside of the ledger
    for number in range(n_rounds):
        child = os.fork()
        if child == 0:
            budget = PrivacyBudget(1e4, ledger=ledger)
            file = os.open(releases, os.O_WRONLY | os.O_APPEND | os.O_CREAT)
            os.write(1, f"{os.getpid()}\\n".encode())
            while True:
                fitted = DPSlicedFlowSampler(budget=budget, **options).fit(X)
                os.write(file, f"{fitted.sketch_.statistic_[0, 0, 0]}\\n".encode())
        os.waitpid(child, 0)
    """
)


def _size(path):
    return path.stat().st_size if path.exists() else 0


def test_a_killed_process_leaves_no_release_without_a_charge(tmp_path):
    """Ten children are killed 0 to 27 ms after their first release; a fit takes a few ms."""
    ledger, releases = tmp_path / "ledger.sqlite", tmp_path / "releases"
    budget = PrivacyBudget(1e4, ledger=ledger)
    n_rounds = 10
    command = [sys.executable, "-c", WORKER, str(ledger), str(releases), str(n_rounds)]
    with subprocess.Popen(command, stdout=subprocess.PIPE, text=True) as parent:
        for number in range(n_rounds):
            before = _size(releases)
            child = int(parent.stdout.readline())
            while _size(releases) == before and parent.poll() is None:
                time.sleep(0.001)
            time.sleep(0.003 * number)
            os.kill(child, signal.SIGKILL)
        assert parent.wait(timeout=60) == 0
    n_releases = len(releases.read_text().splitlines())
    n_charges = len(budget.history())
    assert n_releases >= n_rounds
    assert n_releases <= n_charges <= n_releases + n_rounds
    # The ledger survived and still works.
    assert budget.epsilon_spent() > 0
