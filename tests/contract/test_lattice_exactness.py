"""The lattice noise: fresh for every draw, on a lattice that no data choose.

Its law is in `tests/core/privacy/test_noise.py`; that all that is released is on its lattice, in
`test_draws_are_charged`. Those tests that use the operating system's entropy fail by chance with
the probability `RARE`.
"""

import json
import math
import os
import subprocess
import sys
import textwrap
import warnings

import numpy as np
import pytest
from scipy import stats

from skdpot import SlicedSketch
from skdpot._utils import streams as rng_module
from skdpot._utils.streams import SecretStream
from skdpot.exceptions import PrivacyWarning
from skdpot.privacy.noise import MAX_TABLE_S, discrete_gaussian
from tests.contract.test_draws_are_charged import hostile_rows

RARE = 1e-8
ROWS = hostile_rows(np.zeros((120, 3)))
SLICES = np.vstack([np.eye(3), np.ones((1, 3)) / math.sqrt(3)])


def quietly(make):
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", PrivacyWarning)
        return make()


def fitted(rows=ROWS, labels=None, **parameters):
    parameters = {"bounds": (-1, 1), "projections": SLICES, "n_bins": 16} | parameters
    return quietly(lambda: SlicedSketch(**parameters).fit(rows, labels))


def test_the_lattice_is_the_same_for_all_data():
    """It follows from public parameters, so that it cannot tell data sets apart."""
    lattices = {
        fitted(rows, epsilon=0.9).privacy_spent_.event.lattice
        for rows in (ROWS, -ROWS[::-1], np.zeros((120, 3)), np.full((120, 3), 5e-324))
    }
    assert len(lattices) == 1
    # And the remainders in units of a coarser lattice have one law: no data leave a mark.
    first, second = (
        np.concatenate([fitted(rows, epsilon=0.9, n_bins=64).statistic_.ravel() for _ in range(20)])
        for rows in (ROWS, np.full((120, 3), 0.1 + 1e-17))
    )
    fine = lattices.pop()
    table = [
        np.bincount((np.rint(v / fine) % 16).astype(int), minlength=16) for v in (first, second)
    ]
    assert stats.chi2_contingency(np.array(table)).pvalue > RARE


# --------------------------------------------------------------- bytes are used once


@pytest.fixture
def entropy(monkeypatch):
    """All that was read from the operating system, and how much of it."""
    read, original = [], rng_module.os.urandom

    def urandom(n_bytes):
        data = original(n_bytes)
        read.append(data)
        return data

    fake = type(os)("os")
    fake.__dict__.update(os.__dict__, urandom=urandom)
    monkeypatch.setattr(rng_module, "os", fake)
    return read


@pytest.mark.parametrize("s", [1.0, 10.0, 1e4, 2.0**35])
def test_every_draw_reads_bytes_of_its_own(s, entropy):
    stream = SecretStream()
    draws = [discrete_gaussian(s, 500, stream) for _ in range(4)]
    leaves = 1 if s <= MAX_TABLE_S else 2
    word = 8 if leaves == 1 else 2  # of a wide draw most parts take two bytes
    words = [data for data in entropy if len(data) == word * 500]
    assert len(words) >= 4 * leaves
    assert len(set(entropy)) == len(entropy)
    if word == 8:
        every_word = np.frombuffer(b"".join(words), dtype=np.uint64)
        assert len(np.unique(every_word)) == len(every_word)
    for i, first in enumerate(draws):
        for second in draws[:i]:
            assert abs(np.corrcoef(first, second)[0, 1]) < 0.3  # 1e-11 by chance


def test_each_fit_and_each_event_of_a_fit_reads_bytes_of_its_own(entropy):
    for _ in range(2):
        quietly(lambda: SlicedSketch(bounds="private", n_projections=3, n_bins=8).fit(ROWS))
    long = [data for data in entropy if len(data) >= 64]
    assert len(long) >= 4
    blocks = [data[i : i + 16] for data in long for i in range(0, len(data) - 15, 16)]
    assert len(set(blocks)) == len(blocks)


FORKS = """
import json, os, sys
import numpy as np
from skdpot._utils.streams import SecretStream
from skdpot.privacy.noise import gaussian_noise, lattice_noise

stream = SecretStream()
before = lattice_noise(50.0, 200, stream, lattice=1.0, mu=1.0)

def draw():
    lattice = lattice_noise(50.0, 200, stream, lattice=1.0, mu=1.0)
    return [lattice.tolist(), gaussian_noise(1.0, 200, stream).tolist()]

found = []
for _ in range(3):
    ends = os.pipe()
    pid = os.fork()
    if pid == 0:
        os.write(ends[1], json.dumps(draw()).encode())
        os._exit(0)
    found.append(json.loads(os.read(ends[0], 10**6)))
    os.waitpid(pid, 0)
found.append(draw())
sys.stdout.write(json.dumps(found))
"""


@pytest.mark.slow
@pytest.mark.skipif(not hasattr(os, "fork"), reason="needs os.fork")
def test_forked_children_never_draw_the_same_noise():
    done = subprocess.run(
        [sys.executable, "-c", textwrap.dedent(FORKS)],
        capture_output=True,
        text=True,
        timeout=60,
        check=False,
    )
    assert done.returncode == 0, done.stderr
    found = json.loads(done.stdout)
    for i, first in enumerate(found):
        for second in found[:i]:
            for a, b in zip(first, second, strict=True):
                assert abs(np.corrcoef(a, b)[0, 1]) < 0.5  # 1e-12 by chance
