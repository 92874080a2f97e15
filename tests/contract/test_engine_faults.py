"""Whatever happens to an engine, a release is the same to the last bit and was charged once.

The faults are in `tests.contract.engine_faults`, which also writes the table of the user guide.
"""

import shutil
import sys
from pathlib import Path

import pytest

from tests.contract.engine_faults import ENGINES, FAULTS, N_PARTS, faults_of, injected

pytestmark = [
    pytest.mark.slow,
    pytest.mark.skipif(sys.platform == "win32", reason="faults are made as POSIX does"),
]

ROOT = Path(__file__).parents[2]
TABLE = ROOT / "doc" / "engine_faults.csv"
# How often is fitted, charged and released; whoever lost a driver after the charge fits again.
COSTS = {
    "every worker killed after the charge": (1, 1, 0),
    "a task that fails after the charge": (1, 1, 0),
    "the driver killed before the charge": (2, 1, 1),
    "the driver killed after the charge": (2, 2, 1),
    "the driver killed before it stored the release": (2, 2, 1),
}


@pytest.mark.parametrize("engine", ENGINES)
def test_a_release_is_the_same_and_charged_once(engine):
    pytest.importorskip({"Dask": "distributed", "Spark": "pyspark"}.get(engine, "pyarrow"))
    if engine == "Spark" and shutil.which("java") is None:
        pytest.skip("Spark needs Java")
    outcomes = injected(engine)
    assert [outcome["fault"] for outcome in outcomes] == faults_of(engine)
    for outcome in outcomes:
        name = outcome["fault"]
        tried, spent, released = COSTS.get(name, (1, 1, 1))
        assert (outcome["tried"], outcome["spent"]) == (tried, spent), outcome
        assert outcome["released"] == outcome["same"] == released, outcome
        if "killed" in name or "duplicated" in name:  # what was lost is counted again
            assert outcome["counted"] > 2 * N_PARTS or not released, outcome
        assert "disk" not in outcome["error"]


def test_the_table_lists_these_faults():
    listed = [line.split(",")[0].strip('"') for line in TABLE.read_text().splitlines()[1:]]
    assert [name.split(",")[0] for name in FAULTS] == listed
