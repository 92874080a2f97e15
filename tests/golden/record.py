"""The frozen record: what events cost, and what seeded fits and audits give.

``events.json``, ``fits.json`` and ``audits.json`` hold numbers that were recorded once;
``test_golden.py`` computes them anew and compares. A changed number is a changed behaviour: it is
a bug, or it is explained in the changelog. ``--new`` records what is new in all parts, or in those
named; without it everything is recorded again::

    python -m tests.golden.record [--new] [events] [fits] [audits]

Constructor calls are in `tests.golden.events`, `tests.golden.fits` and `tests.golden.audits`.
Mend them when the interface changes; the numbers stay. A part that is renamed is renamed in the
JSON file by hand.

Tolerances: integers, texts and numbers on a lattice are compared by a hash (SHA-256) of their
bytes. Of other arrays the shape, mean, standard deviation, quantiles and a weighted sum, which
depends on the order, are compared with a tolerance relative to the largest absolute value:
1e-9 for accounts in closed form, 1e-8 for accounts by composed loss distributions (the code
rounds them up by 1e-9), 1e-6 for arrays of float64, and 2e-5 for what went through float32 or what
sorting makes of last digits (3e-3 for a flow along many directions). So the record holds on other
processors as well.
"""

import hashlib
import json
import math
import sys
import warnings
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any

import numpy as np

from tests.golden.audits import AUDITS
from tests.golden.events import event_figures
from tests.golden.fits import CASES, Exact, Single

__all__ = ["differences", "event_differences", "fit_record", "recorded"]

FOLDER = Path(__file__).parent
PARTS = ("events", "fits", "audits")
CLOSED, SAMPLED, DOUBLE = 1e-9, 1e-8, 1e-6
FEW = 6  # numbers that are written down as they are


def summary(value: Any) -> dict[str, Any]:
    """Return what is recorded of one output."""
    if isinstance(value, Exact):
        values = value.values
        content = json.dumps(values.tolist() if isinstance(values, np.ndarray) else values)
        found = {"sha256": hashlib.sha256(content.encode()).hexdigest()}
        return found | {"shape": list(np.shape(values)) if isinstance(values, np.ndarray) else []}
    tolerance = value.tolerance if isinstance(value, Single) else DOUBLE
    array = np.asarray(value.values if isinstance(value, Single) else value)
    if array.dtype.kind in "bUO":
        return summary(Exact(array))
    array = array.astype(float)
    numbers = array[np.isfinite(array)].ravel()
    found = {"shape": list(array.shape), "tolerance": tolerance}
    if array.size <= FEW:
        return found | {"numbers": [float(number) for number in array.ravel()]}
    statistics = [0.0] * 8
    if numbers.size:
        weights = np.cos(np.arange(numbers.size))  # the order counts
        quantiles = np.quantile(numbers, [0.0, 0.25, 0.5, 0.75, 1.0])
        ordered = float(weights @ numbers) / math.sqrt(numbers.size)
        statistics = [numbers.mean(), numbers.std(), *quantiles, ordered]
    return found | {
        "finite": int(numbers.size),
        "statistics": [float(number) for number in statistics],
    }


def _agree(due: float, found: float, tolerance: float) -> bool:
    if not (math.isfinite(due) and math.isfinite(found)):
        return due == found or (math.isnan(due) and math.isnan(found))
    return abs(due - found) <= tolerance


def differences(due: Mapping[str, Any], found: Mapping[str, Any]) -> list[str]:
    """Say which outputs differ from the recorded ones, and how."""
    told = [f"{name}: recorded, but not there" for name in due if name not in found]
    told += [f"{name}: there, but not recorded" for name in found if name not in due]
    for name in set(due) & set(found):
        old, new = due[name], found[name]
        if "sha256" in old or "sha256" in new or old["shape"] != new["shape"]:
            if old != new:
                told.append(f"{name}: {old} was recorded, found {new}")
            continue
        key = "numbers" if "numbers" in old else "statistics"
        tolerance = old["tolerance"] * max(map(abs, filter(math.isfinite, old[key])), default=0.0)
        close = all(_agree(*pair, tolerance) for pair in zip(old[key], new[key], strict=True))
        if not close or old.get("finite") != new.get("finite"):
            told.append(f"{name}: {old[key]} was recorded, found {new[key]}")
    return sorted(told)


def fit_record(make: Callable[[], Mapping[str, Any]]) -> dict[str, Any]:
    """Return the summary of one case."""
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        return {name: summary(value) for name, value in make().items()}


def event_differences(
    due: Mapping[str, Mapping[str, Any]], found: Mapping[str, Mapping[str, Any]]
) -> list[str]:
    """Say which events are missing or new, and which figures differ from the recorded ones."""
    told = [f"{event}: recorded or found, not both" for event in set(due) ^ set(found)]
    for event in set(due) & set(found):
        relative, absolute = (SAMPLED, 1e-13) if event.startswith("sampled") else (CLOSED, 0.0)
        for name in set(due[event]) | set(found[event]):
            old, new = due[event].get(name), found[event].get(name)
            same = old == new
            if isinstance(old, float | int) and isinstance(new, float | int):
                same = _agree(old, new, relative * abs(old) + absolute)
            if not same:
                told.append(f"{event}, {name}: {old} was recorded, found {new}")
    return sorted(told)


def recorded(part: str) -> dict[str, dict[str, Any]]:
    """Read one part of the record."""
    found: dict[str, dict[str, Any]] = json.loads((FOLDER / f"{part}.json").read_text())
    return found


def _record(part: str, kept: Mapping[str, Any]) -> None:
    """Write one part of the record; cases of `kept` stay as they are."""
    if part == "events":
        events = event_figures(sampled=True) | event_figures(sampled=False)
        found = {name: kept.get(name, figures) for name, figures in events.items()}
    else:
        cases = CASES if part == "fits" else AUDITS
        found = {n: kept[n] if n in kept else fit_record(f) for n, f in cases.items()}
    lines = [  # one output per line: what changes is seen in a diff
        f"{json.dumps(case)}: {{\n"
        + ",\n".join(f"  {json.dumps(name)}: {json.dumps(v)}" for name, v in outputs.items())
        + "\n}"
        for case, outputs in found.items()
    ]
    (FOLDER / f"{part}.json").write_text("{\n" + ",\n".join(lines) + "\n}\n")


if __name__ == "__main__":
    only_new = "--new" in sys.argv
    for chosen in [part for part in PARTS if part in sys.argv] or PARTS:
        _record(chosen, recorded(chosen) if only_new else {})
