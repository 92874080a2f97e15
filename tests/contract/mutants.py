"""Defects of privacy that somebody could write, each with the test that catches it.

``python -m tests.contract.mutants --csv doc/mutants.csv`` injects them one by one and writes what
the tests say; `test_mutants` does the same in every run of the tests.
"""

import argparse
import csv
from dataclasses import dataclass

from tests.contract.defects import (
    audit,
    cli,
    core,
    distance,
    fair,
    nets,
    privacy,
    release,
    sampling,
    search,
    tables,
    trajectories,
)
from tests.contract.injection import Injection, Outcome, run_tests

__all__ = ["BY_AUDIT", "FILES", "MUTANTS", "Mutant", "results"]

DEFECTS = {
    1: "half of the noise",
    2: "no clipping",
    3: "noise drawn again and charged once",
    4: "charged after the release",
    5: "a change of class not counted",
    6: "particles clipped one by one",
    7: "sampling rate understated",
    8: "delta ignored",
    9: "an unstable sort",
    10: "sizes of the data in the place of batch sizes",
    11: "batches cut from one permutation",
    12: "released in the order of the data",
    13: "BatchNorm let in",
    14: "truncated blocks of directions taken for whole ones",
    15: "two snapshots of an open sketch",
    16: "the factor of the lattice forgotten",
    17: "private bounds charged nothing",
    18: "several rows of a person counted as one",
    19: "a refused call has charged",
    20: "a normal approximation as the account",
    21: "what an audit forgives",
    22: "categories told that few have",
    23: "more of a table than was counted",
    24: "a search that tells of its trials",
    25: "a private number beside the gate of releases",
    26: "a step of a pipeline that learns without noise",
    27: "one record changes how others are read",
    28: "a sensitivity that some records exceed",
    29: "planned fits that are not paid for",
    30: "batches counted wrongly, or told of",
}


@dataclass(frozen=True)
class Mutant:
    """One defect.

    Parameters
    ----------
    defect : int
        Which of `DEFECTS` it is.
    name : str
        Where that happens.
    inject : callable
        Makes the package behave so.
    caught_by : str
        The test that must fail, from ``tests/`` on.
    """

    defect: int
    name: str
    inject: Injection
    caught_by: str

    def __str__(self) -> str:
        return f"{self.defect}: {DEFECTS[self.defect]}, {self.name}"


_ROOMS = (
    audit,
    cli,
    core,
    distance,
    fair,
    nets,
    privacy,
    release,
    sampling,
    search,
    tables,
    trajectories,
)
MUTANTS = tuple(
    Mutant(defect, name, inject, f"tests/{test}")
    for defect in DEFECTS
    for room in _ROOMS
    for inject, tests in room.INJECTIONS.get(defect, ())
    for name, test in tests.items()
)
# The fits of an audit are many. What it finds is found by a quick test too, so audits run for the
# table alone.
BY_AUDIT = "tests/contract/test_claims_by_audit.py"
FILES = tuple(dict.fromkeys(mutant.caught_by.split("::")[0] for mutant in MUTANTS))


def results(
    file: str, n_healthy: int | None = None
) -> tuple[dict[str, Outcome], list[tuple[Mutant, Outcome]]]:
    """Inject all mutants that tests of one file catch.

    Parameters
    ----------
    file : str
        One of `FILES`.
    n_healthy : int, optional
        How many of the tests are run without a mutant too; by default all.

    Returns
    -------
    healthy : dict of str to Outcome
        What named tests come to without a mutant.
    hurt : list of (Mutant, Outcome)
        What they come to with each.
    """
    own = [mutant for mutant in MUTANTS if mutant.caught_by.startswith(f"{file}::")]
    healthy, hurt = run_tests([(mutant.caught_by, mutant.inject) for mutant in own], n_healthy)
    return healthy, list(zip(own, hurt, strict=True))


_COLUMNS = ("mutant", "injected into", "what it changes", "caught by", "what the test says")


def _write_table(path: str) -> None:
    found = []
    for file in FILES:
        healthy, hurt = results(file)
        found += [(mutant, healthy[mutant.caught_by], outcome) for mutant, outcome in hurt]
    found.sort(key=lambda result: MUTANTS.index(result[0]))
    with open(path, "w", newline="", encoding="utf-8") as file:
        writer = csv.writer(file, lineterminator="\n")
        writer.writerow(_COLUMNS)
        for mutant, healthy, hurt in found:
            verdict = hurt.says if healthy.healthy and hurt.caught else "NOT CAUGHT"
            writer.writerow(
                (
                    f"{mutant.defect}. {DEFECTS[mutant.defect]}: {mutant.name}",
                    "; ".join(f"``{place}``" for place in mutant.inject.where.split("; ")),
                    " ".join(mutant.inject.says.split()),
                    f"``{mutant.caught_by.removeprefix('tests/')}``",
                    f"``{verdict}``",
                )
            )


if __name__ == "__main__":
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--csv", required=True, help="where to write the table")
    _write_table(parser.parse_args().csv)
