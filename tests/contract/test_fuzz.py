"""Fuzzing of the public surface: whatever is passed, nothing leaks, nothing is charged in vain.

Six things hold of every call. An error is one of the documented ones. A refused call charges
nothing and changes nothing. No private value is in any text: errors with all that hangs on them,
warnings, logs, output, representations. A call that succeeds gives finite numbers of the promised
shape and charges once. Nobody's arrays are written to. It ends soon and in little memory.

The default run tries a few cases a callable, the same ones every time. More, and new ones::

    SKDPOT_FUZZ=20000 python -m pytest -n 0 tests/contract/test_fuzz.py

``examples/benchmarks/bench_fuzz.py`` goes on after a failure and counts.
"""

import os

import pytest
from hypothesis import HealthCheck, Phase, given, settings
from hypothesis import strategies as st

from tests.contract.fuzz_cases import CASES

EXHAUSTIVE = int(os.environ.get("SKDPOT_FUZZ", "0"))


@pytest.mark.slow
@pytest.mark.usefixtures("few_synthetic_rows")
@pytest.mark.parametrize("name", CASES)
def test_whatever_is_passed(name: str) -> None:
    case = CASES[name]

    @settings(
        max_examples=EXHAUSTIVE or case.examples,
        derandomize=not EXHAUSTIVE,
        deadline=None,
        database=None,
        phases=(Phase.generate, Phase.shrink) if EXHAUSTIVE else (Phase.generate,),
        suppress_health_check=list(HealthCheck),
    )
    @given(st.data())
    def run(data: st.DataObject) -> None:
        case.check(data.draw)

    run()
