"""
The methods of ``bench_tables.py``, and how each is run in a process of its own.

What is given to whom: all know the same schema. Libraries that model marginals see codes in the
same public bins (`table_task.PublicBins`), which costs them nothing; dpmm can also bin the raw
values by itself, out of the same ε. Settings other than the default are named here, with why.

dpmm, SmartNoise and OpenDP protect against a row added or removed. skdpot's noise hides a row that
is replaced by any other (n is public), which takes √2 times the noise on the same counts.
"""

from __future__ import annotations

import json
import os
import subprocess
import sys
from collections.abc import Mapping
from dataclasses import dataclass, field
from functools import cached_property
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd
from table_task import PublicBins, TableTask

__all__ = [
    "INSTALL",
    "METHODS",
    "Cell",
    "Method",
    "PeerError",
    "costs_path",
    "run_cell",
    "table_path",
]

WORKER = Path(__file__).with_name("table_worker.py")
INSTALL = {
    "dpmm": "pip install dpmm  (Python 3.10 or 3.11)",
    "smartnoise": "pip install torch==2.13.0, then smartnoise-synth",
    "opendp": "pip install 'opendp[mbi]' pandas",
}
ADD_REMOVE, REPLACE_ONE = "add/remove", "replace-one"


@dataclass(frozen=True)
class Method:
    """
    A way to make a synthetic table.

    Attributes
    ----------
    library : str
        Key of ``table_worker.LIBRARIES``.
    model : str
        Model of that library.
    options : mapping
        Settings, passed on as they are.
    bins : str
        "public": codes in public bins; "own": raw values, bounds and categories; "none": raw
        values and our schema.
    relation : str
        Neighbouring relation of ε.
    samplings : tuple of str
        Ways in which one fit is sampled, the library's own ("") first.
    """

    library: str
    model: str = ""
    options: Mapping[str, Any] = field(default_factory=dict)
    bins: str = "public"
    relation: str = ADD_REMOVE
    samplings: tuple[str, ...] = ("",)


# By default AIM plans 16 rounds a column (224 for Adult) and stops earlier when it has spent all;
# with 36 planned it takes minutes.
_ROUNDS = {"rounds": 36}
_AIM = {"gen_kwargs": _ROUNDS, "max_model_size": 80}
_MBI = ("", "mended")
METHODS = {
    "marginals": Method("marginals", relation=REPLACE_ONE),
    "skdpot": Method("skdpot", bins="none", relation=REPLACE_ONE),
    "skdpot, rules": Method("skdpot", bins="none", relation=REPLACE_ONE),  # in the schema
    "dpmm AIM": Method("dpmm", "aim", _AIM),
    "dpmm AIM, triples": Method("dpmm", "aim", {**_AIM, "gen_kwargs": {**_ROUNDS, "degree": 3}}),
    "dpmm AIM, own bins": Method("dpmm", "aim", {**_AIM, "proc_epsilon": 0.1}, bins="own"),
    "dpmm MST": Method("dpmm", "mst"),
    "dpmm MST, own bins": Method("dpmm", "mst", {"proc_epsilon": 0.1}, bins="own"),
    "dpmm PrivBayes": Method("dpmm", "priv-bayes"),
    "OpenDP MST": Method("opendp", "mst", samplings=_MBI),
    "SmartNoise MST": Method("smartnoise", "mst", samplings=_MBI),
    "SmartNoise AIM": Method("smartnoise", "aim", _ROUNDS, samplings=_MBI),
}


class PeerError(RuntimeError):
    """A library failed; the message is the end of what it said."""


@dataclass(frozen=True)
class Cell:
    """One fit: a method, ε, δ, a seed, and the bins that it is given."""

    method: str
    epsilon: float
    delta: float
    seed: int
    n_bins: int

    @property
    def stem(self) -> str:
        """Name of the files of this cell, without suffix."""
        name = self.method.lower().replace(",", "").replace(" ", "-")
        return f"{name}_{self.epsilon:g}_{self.seed}"

    @cached_property
    def settings(self) -> Method:
        """What the method's name stands for."""
        return METHODS[self.method]


def run_cell(
    cell: Cell, task: TableTask, folder: Path, python: str | None, timeout: float | None
) -> None:
    """
    Fit and sample in a new process; leave synthetic tables and costs in a folder.

    Parameters
    ----------
    cell : Cell
        What to run.
    task : TableTask
        Whose training rows to copy.
    folder : Path
        Where ``<stem>.json`` (costs) and ``<stem>.csv``, ``<stem>.<sampling>.csv`` go.
    python : str or None
        Interpreter with the library; None is this one.
    timeout : float or None
        Most seconds.

    Raises
    ------
    PeerError
        If the library fails or takes too long.
    """
    bins = PublicBins(task.schema, cell.n_bins)
    job = folder / f"{cell.stem}.job"
    job.write_text(json.dumps(_job(cell, task, bins, folder)), encoding="utf-8")
    command = [python or sys.executable, str(WORKER), str(job)]
    environment = os.environ | {"OMP_NUM_THREADS": os.environ.get("OMP_NUM_THREADS", "1")}
    try:
        subprocess.run(
            command, check=True, capture_output=True, text=True, timeout=timeout, env=environment
        )
    except subprocess.CalledProcessError as error:
        said = [line for line in error.stderr.splitlines() if any(map(str.isalpha, line))]
        raise PeerError(said[-1] if said else f"exit status {error.returncode}") from error
    except subprocess.TimeoutExpired as error:
        raise PeerError(f"not done after {timeout:g} s") from error
    if cell.settings.bins == "public":
        _decode(cell, bins, folder)
    # Last, so that a cell with costs is a whole one.
    (folder / f"{cell.stem}.costs").replace(costs_path(folder, cell))


def _job(cell: Cell, task: TableTask, bins: PublicBins, folder: Path) -> dict[str, Any]:
    """Write the training rows as the method wants them, and describe the work."""
    method = cell.settings
    train = folder / f"train_{method.bins}.csv"
    rows = bins.encode(task.train) if method.bins == "public" else task.train
    schema = folder / "schema.json"
    task.schema.to_json(schema)
    domain: dict[str, Any] = bins.sizes
    if method.bins == "own":  # dpmm takes numbers for numbers
        rows = rows.astype(dict.fromkeys(task.categories, "str"))
        domain = {
            name: {"categories": list(map(str, values))} for name, values in task.categories.items()
        }
        for name in task.numeric:
            column = task.schema[name]
            domain[name] = {"lower": column.lower, "upper": column.upper}
    rows.to_csv(train, index=False)
    words = [name for name, values in rows.items() if not pd.api.types.is_numeric_dtype(values)]
    return {
        "library": method.library,
        "model": method.model,
        "options": dict(method.options),
        "bins": method.bins,
        "epsilon": cell.epsilon,
        "delta": cell.delta,
        "seed": cell.seed,
        "n_bins": cell.n_bins,
        "target": task.target,
        "schema": str(schema),
        "domain": domain,
        "train": str(train),
        # A category that is called NA is not a missing value.
        "read": {"dtype": dict.fromkeys(words, "str"), "keep_default_na": False, "na_values": ""},
        "n_rows": len(task.train),
    }


def _decode(cell: Cell, bins: PublicBins, folder: Path) -> None:
    """Replace codes by values in the tables of a cell."""
    for sampling in cell.settings.samplings:
        path = table_path(folder, cell, sampling)
        decoded = bins.decode(pd.read_csv(path), np.random.default_rng(cell.seed))
        decoded.to_csv(path, index=False)


def costs_path(folder: Path, cell: Cell) -> Path:
    """Return where the costs of a finished cell lie."""
    return folder / f"{cell.stem}.json"


def table_path(folder: Path, cell: Cell, sampling: str) -> Path:
    """Return where a synthetic table lies."""
    return folder / (f"{cell.stem}.{sampling}.csv" if sampling else f"{cell.stem}.csv")
