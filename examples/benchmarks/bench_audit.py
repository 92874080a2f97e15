"""
Audits: what one run over a thousand canaries proves about each mechanism.

Every estimator is fitted once a claimed epsilon on made-up rows of which most are canaries, and an
attacker who knows everything but the coins guesses which canaries are in. The table gives the
lower bounds of epsilon that the guesses prove, and the share of the guesses that were right,
and what the residuals show of the noise once the coins are open.

The cases are those of ``tests/contract/test_audit.py``.

    OMP_NUM_THREADS=1 python examples/benchmarks/bench_audit.py --output doc/audits.csv
"""

from __future__ import annotations

import argparse
import math
import sys
import warnings
from collections.abc import Iterator
from dataclasses import replace
from importlib import import_module
from pathlib import Path
from time import perf_counter
from typing import Any

import pandas as pd
from tqdm import tqdm

from skdpot.audit.claims import lower_text
from skdpot.exceptions import FairnessWarning, PrivacyWarning

ROOT = Path(__file__).resolve().parents[2]
EPSILONS = (1.0, 3.0, 10.0, math.inf)


def cases() -> tuple[Any, dict[str, Any]]:
    """Return the module of the contract test and its cases."""
    sys.path.insert(0, str(ROOT))
    module = import_module("tests.contract.test_audit")
    return module, module.CASES


def rows(epsilons: tuple[float, ...], only: str) -> Iterator[dict[str, Any]]:
    """Audit every case with every ε and yield the rows of the table."""
    module, every = cases()
    chosen = {name: case for name, case in every.items() if only.lower() in name.lower()}
    for name, case in tqdm(chosen.items()):
        for epsilon in epsilons:
            # A case without noise only is not of interest with noise, nor the other way round.
            if all(math.isinf(epsilon) != math.isinf(other) for other in case.epsilons):
                continue
            start = perf_counter()
            result = module.audited(case, epsilon)
            yield {
                "mechanism": name,
                "claimed": _number(result.epsilon),
                "99.9 %": _bound(result, 0.999),
                "95 %": _bound(result, 0.95),
                "normal": _known(result.gaussian_epsilon_lower, result.epsilon),
                "seen below": _known(result.power, result.epsilon),
                "canaries": result.n_canaries,
                "right": f"{result.n_correct} of {result.n_guesses}",
                "seconds": f"{perf_counter() - start:.1f}",
            }


def _bound(result: Any, confidence: float) -> str:
    return lower_text(replace(result, confidence=confidence).epsilon_lower)


def _known(value: float | None, claim: float) -> str:
    if math.isinf(claim):
        return ""
    return "unknown" if value is None else f"{math.floor(100 * value) / 100:.2f}"


def _number(epsilon: float) -> str:
    return "∞" if math.isinf(epsilon) else f"{epsilon:.3g}"


def main() -> None:
    """Read the command line, print the table and write it."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--epsilons", type=float, nargs="+", default=EPSILONS)
    parser.add_argument("--only", default="", help="part of the names of the cases to run")
    parser.add_argument("--output", type=Path, help="CSV to write")
    given = parser.parse_args()
    for category in (PrivacyWarning, FairnessWarning):
        warnings.simplefilter("ignore", category)
    table = pd.DataFrame(rows(tuple(given.epsilons), given.only))
    print(table.to_string(index=False))
    if given.output is not None:
        table.to_csv(given.output, index=False)


if __name__ == "__main__":
    main()
