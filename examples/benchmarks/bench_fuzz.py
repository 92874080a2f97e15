"""
Fuzz the public surface for as long as one likes, and count.

Every callable of ``tests/contract/fuzz_cases.py`` is tried until its share of the time is over,
with other cases every time. Unlike the tests this goes on after a failure; it prints what failed
and where, and writes the counts to a table. Run it in the root of the project::

    python examples/benchmarks/bench_fuzz.py --minutes 10 --output doc/fuzz.csv
"""

from __future__ import annotations

import argparse
import re
import sys
import time
import traceback
from collections import Counter
from pathlib import Path

import pandas as pd

sys.path.insert(0, str(Path(__file__).resolve().parents[2]))

from hypothesis import HealthCheck, Phase, given, settings
from hypothesis import strategies as st
from hypothesis.errors import HypothesisException, StopTest

from tests.contract.fuzz_cases import CASES
from tests.contract.fuzz_harness import COUNTS, TooSlowError


def place_of(error: BaseException) -> str:
    """Name the line of the package in which an error began, and the error."""
    cause = error.__cause__ or error
    frames = [f for f in traceback.extract_tb(cause.__traceback__) if "/skdpot/" in f.filename]
    where = f"{Path(frames[-1].filename).name}:{frames[-1].lineno}" if frames else "no line of ours"
    text = re.sub(r"[0-9]+", "#", str(cause))[:110].replace("\n", " ")
    return f"{type(cause).__name__} at {where}: {text}"


def fuzz(name: str, seconds: float, n_examples: int, failures: dict[str, list[str]]) -> None:
    """Try one callable until the time is over."""
    deadline = time.monotonic() + seconds
    while time.monotonic() < deadline:

        @settings(
            max_examples=n_examples,
            deadline=None,
            database=None,
            phases=(Phase.generate,),
            suppress_health_check=list(HealthCheck),
        )
        @given(st.data())
        def run(data: st.DataObject) -> None:
            try:
                CASES[name].check(data.draw)
            except (StopTest, HypothesisException):
                raise
            except (Exception, TooSlowError) as error:
                notes = "; ".join(getattr(error, "__notes__", ()))
                key = f"{name}: {place_of(error)}"
                if key not in failures:
                    print(f"! {key}\n        {notes[:700]}", flush=True)
                failures.setdefault(key, []).append(notes)

        run()


def main() -> None:
    """Fuzz everything for equal times."""
    parser = argparse.ArgumentParser(description=__doc__.split("\n\n")[0])
    parser.add_argument("--minutes", type=float, default=10.0)
    parser.add_argument("--only", default="", help="part of the names of what is tried")
    parser.add_argument("--output", type=Path)
    options = parser.parse_args()
    names = [name for name in CASES if options.only in name]
    failures: dict[str, list[str]] = {}
    rows = []
    for name in names:
        COUNTS.clear()
        begun = time.monotonic()
        fuzz(name, 60 * options.minutes / len(names), 60, failures)
        total: Counter[str] = Counter()
        for (called, verdict), count in COUNTS.items():
            if not called.endswith(", read"):
                total[verdict] += count
        rows.append(
            {
                "callable": name,
                "cases": total["accepted"] + total["refused"],
                "accepted": total["accepted"],
                "refused": total["refused"],
                "failed": sum(len(v) for k, v in failures.items() if k.startswith(f"{name}: ")),
                "seconds": round(time.monotonic() - begun, 1),
            }
        )
        print(rows[-1], flush=True)
    table = pd.DataFrame(rows)
    print(table.drop(columns="callable").sum())
    if options.output:
        table.to_csv(options.output, index=False)
    for key, notes in sorted(failures.items(), key=lambda item: -len(item[1])):
        print(f"{len(notes):5d} x {key}\n        {min(notes, key=len)[:500]}")


if __name__ == "__main__":
    main()
