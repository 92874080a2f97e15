"""The examples of engines release the same, bit for bit."""

import re
import shutil
import subprocess
import sys
from importlib.util import find_spec
from pathlib import Path

import pytest

EXAMPLES = Path(__file__).resolve().parents[3] / "examples" / "engines"
NEEDED = {"files": "pyarrow", "duckdb": "duckdb", "dask": "distributed", "spark": "pyspark"}


def printed(engine: str, *arguments: str) -> str:
    if any(find_spec(name) is None for name in ("pyarrow", NEEDED[engine])):
        pytest.skip(f"{NEEDED[engine]} is not installed")
    if engine == "spark" and shutil.which("java") is None:
        pytest.skip("there is no Java")
    command = [sys.executable, str(EXAMPLES / f"with_{engine}.py"), *arguments]
    done = subprocess.run(command, capture_output=True, text=True, timeout=300)
    assert done.returncode == 0, done.stderr
    return done.stdout


@pytest.fixture(scope="module")
def ledger(tmp_path_factory):
    return str(tmp_path_factory.mktemp("ledger") / "budget")


@pytest.fixture(scope="module")
def of_files(ledger):
    return printed("files", "--ledger", ledger)


@pytest.mark.slow
@pytest.mark.parametrize("engine", ["duckdb", "dask", "spark"])
def test_engines_release_the_same_and_charge_one_budget(engine, of_files, ledger):
    expected, before = of_files.rsplit("=", 1)
    found, left = printed(engine, "--ledger", ledger).rsplit("=", 1)
    assert len(re.findall(r"[0-9a-f]{64}", expected)) == 2
    assert found == expected
    assert float(left) < float(before) - 0.1
