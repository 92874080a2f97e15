"""Faults of an engine that counts rows, and what they cost.

``python -m tests.contract.engine_faults doc/engine_faults.csv`` makes all and writes the table:
workers and drivers are killed, tasks are retried, computed twice and duplicated, for real. The fit
is a sketch, with a seed, of rows on two workers: it passes over them twice, charged in between.
"""

import csv
import json
import os
import signal
import sqlite3
import subprocess
import sys
import tempfile
import time
import warnings
from collections.abc import Callable, Iterable, Iterator, Sequence
from concurrent.futures import FIRST_COMPLETED, ProcessPoolExecutor, wait
from contextlib import closing, contextmanager
from dataclasses import asdict, dataclass, field
from functools import partial
from pathlib import Path
from queue import Empty, Queue
from threading import Thread
from typing import Any

import numpy as np
import pandas as pd

from skdpot import PrivacyBudget, SlicedSketch
from skdpot.sources import ExactCounts, Source

N_PARTS = 6
RNG = np.random.default_rng(20)
ROWS = pd.DataFrame(RNG.normal(size=(60, 2)), columns=["a", "b"])
ROWS["part"] = np.repeat(np.arange(N_PARTS), len(ROWS) // N_PARTS)
PARTS = [ROWS[ROWS["part"] == k] for k in range(N_PARTS)]
OPTIONS: dict[str, Any] = {"epsilon": 1.0, "bounds": (-9, 9), "random_state": 0}
FIRST, SECOND = 1, 2  # passes: before the charge, and after it
DEADLINE = 180  # seconds for one fault, which takes two to ten on an idle machine


@dataclass
class Scene:
    """A ledger in a directory, and what a fault has cost.

    Fits were `tried`; `spent` of them are in the ledger, `released` gave something to somebody, and
    `same` of these gave what a fit of rows in memory gives, to the last bit. `counted` is how often
    a part was counted; `error` is what the last refused fit said.
    """

    fault: str
    engine: str
    directory: Path = field(repr=False)
    tried: int = 0
    spent: int = 0
    released: int = 0
    same: int = 0
    counted: int = 0
    error: str = ""

    def fit(self, X: Any) -> None:
        """Fit in this process."""
        self.tried += 1
        try:
            self.compare(fitted(X, self.directory))
        except ValueError as error:
            self.error = f"{type(error).__name__}: {error}"

    def fit_in_child(self, address: str, *, stored: bool = True) -> None:
        """Fit in a driver of its own, which works with the cluster."""
        self.tried += 1
        found = self.directory / "release.npy"
        module = [sys.executable, "-m", "tests.contract.engine_faults"]
        code = subprocess.run(
            [*module, "driver", address, str(self.directory), str(int(stored))],
            stderr=subprocess.DEVNULL,
            check=False,
        ).returncode
        if code:
            self.error = f"the driver was killed ({signal.Signals(-code).name})"
        if found.exists():
            self.compare(np.load(found))

    def compare(self, statistic: np.ndarray) -> None:
        """Note a release."""
        self.released += 1
        self.same += np.array_equal(statistic, expected())

    def outcome(self) -> dict[str, Any]:
        """What it has cost, by the ledger and by what parts noted when they were counted."""
        with closing(sqlite3.connect(self.directory / "ledger")) as connection:
            self.spent = int(connection.execute("SELECT count(*) FROM charges").fetchone()[0])
        self.counted = sum(p.stat().st_size for p in self.directory.glob("part-*"))
        return {k: str(v) if k == "directory" else v for k, v in asdict(self).items()}


def budget_in(directory: Path) -> PrivacyBudget:
    """Return a budget that a process may take up again."""
    return PrivacyBudget(9.0, ledger=directory / "ledger")


def fitted(X: Any, directory: Path) -> np.ndarray:
    """Fit a sketch, and return its table."""
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        return SlicedSketch(**OPTIONS, budget=budget_in(directory)).fit(X).statistic_


def expected() -> np.ndarray:
    """Return what a fit of rows in memory releases."""
    with tempfile.TemporaryDirectory() as directory:
        return fitted(ROWS, Path(directory))


# ------------------------------------------------------------------------- traps among the rows


@dataclass
class Trap:
    """Passes rows on, and springs when those of some parts come for the n-th time.

    `springs` says what happens then, by part. With `always` it happens each time from then on.
    """

    directory: str
    springs: dict[str, str] = field(default_factory=dict)
    at: int = 0
    always: bool = False

    def __call__(self, rows: pd.DataFrame) -> pd.DataFrame:
        if not len(rows) or not {"a", "b", "part"} <= set(rows):
            return rows
        part = str(rows["part"].iloc[0])
        with open(f"{self.directory}/part-{part}", "ab") as file:
            file.write(b"x")
            file.flush()
            number = file.tell()
        if part in self.springs and (number == self.at or (self.always and number > self.at)):
            self.spring(self.springs[part])
        return rows

    def spring(self, action: str) -> None:
        """Do the damage."""
        if action == "raise":
            raise OSError("a disk that was full for a moment")
        if action == "kill driver":
            os.kill(int(Path(self.directory, "driver").read_text()), signal.SIGKILL)
            time.sleep(0.2)
        else:
            time.sleep(0.5)  # others of this worker are done, and nobody else has their counts
            os.kill(os.getpid(), signal.SIGKILL)

    def in_arrow(self, batches: Iterator[Any]) -> Iterator[Any]:
        """Do this to batches of Arrow."""
        for batch in batches:
            self(batch.to_pandas())
            yield batch


def dask_rows(trap: Trap) -> Any:
    """Return partitions of rows, each with the trap in it."""
    import dask.dataframe as dd

    rows = dd.from_pandas(ROWS, npartitions=N_PARTS, sort=False)
    return rows.map_partitions(trap, meta=ROWS[:0])


@contextmanager
def dask_cluster() -> Iterator[str]:
    """Start two workers in processes of their own, and a client of them; yield their address."""
    import dask
    from distributed import Client, LocalCluster

    options = {
        "distributed.scheduler.allowed-failures": 1,
        "distributed.worker.multiprocessing-method": "forkserver",  # they start in no time
    }
    with (
        dask.config.set(options),
        LocalCluster(
            n_workers=2, threads_per_worker=1, dashboard_address=":0", silence_logs=50
        ) as cluster,
        Client(cluster),
    ):
        yield cluster.scheduler_address


def drive(address: str, directory: Path, stored: bool) -> None:
    """Be a driver: fit on a cluster, and store the release unless killed before."""
    from distributed import Client

    (directory / "driver").write_text(str(os.getpid()))
    trap = Trap(**json.loads((directory / "trap").read_text()))
    with Client(address):
        found = fitted(dask_rows(trap), directory)
        if not stored:
            os.kill(os.getpid(), signal.SIGKILL)
        np.save(directory / "release.npy", found)


@dataclass
class Speculative(Source):
    """Counts every part in two processes at once, and takes the counts of the faster one."""

    trap: Trap
    pool: ProcessPoolExecutor
    head = ROWS[:0]

    def sum(self, count: Callable[[Any], ExactCounts]) -> ExactCounts:
        """Count all parts."""
        work = partial(_counted, count, self.trap)
        twice = [[self.pool.submit(work, part) for _ in range(2)] for part in PARTS]
        done = [wait(pair, return_when=FIRST_COMPLETED).done.pop().result() for pair in twice]
        return ExactCounts.total(map(ExactCounts.unpacked, done))


def _counted(count: Callable[[Any], ExactCounts], trap: Trap, part: pd.DataFrame) -> bytes:
    return count(trap(part)).packed()


# ---------------------------------------------------------------------------------- the faults

FAULTS: dict[str, tuple[str, Callable[[Scene, Any], None]]] = {}


def fault(name: str, engine: str) -> Callable[[Callable[[Scene, Any], None]], None]:
    """Register a fault of an engine."""

    def register(inject: Callable[[Scene, Any], None]) -> None:
        FAULTS[name] = engine, inject

    return register


def by_worker(scene: Scene, address: str, action: str = "", **trap: Any) -> None:
    springs = {str(N_PARTS - 1): action}
    scene.fit(dask_rows(Trap(str(scene.directory), springs, **trap)))


def by_driver(scene: Scene, address: str, at: int = 0, stored: bool = True) -> None:
    trap = Trap(str(scene.directory), {"2": "kill driver"}, at)
    (scene.directory / "trap").write_text(json.dumps(asdict(trap)))
    scene.fit_in_child(address, stored=stored)
    scene.fit(dask_rows(Trap(str(scene.directory))))  # somebody tries again


DASK: dict[str, Callable[[Scene, Any], None]] = {
    "none": by_worker,
    "a worker killed in the pass before the charge": partial(by_worker, at=FIRST, action="kill"),
    "a worker killed in the pass after the charge": partial(by_worker, at=SECOND, action="kill"),
    "every worker killed after the charge": partial(
        by_worker, at=SECOND, action="kill", always=True
    ),
    "a task that fails after the charge": partial(by_worker, at=SECOND, action="raise"),
    "the driver killed before the charge": partial(by_driver, at=FIRST),
    "the driver killed after the charge": partial(by_driver, at=SECOND),
    "the driver killed before it stored the release": partial(by_driver, stored=False),
}
FAULTS |= {name: ("Dask", inject) for name, inject in DASK.items()}


@fault("every task duplicated, the faster one counts", "processes")
def _duplicated(scene: Scene, pool: ProcessPoolExecutor) -> None:
    scene.fit(Speculative(Trap(str(scene.directory)), pool))


@fault("a task that fails once, and a worker killed, after the charge", "Spark")
def _in_spark(scene: Scene, session: Any) -> None:
    rows = session.createDataFrame(ROWS)
    trap = Trap(str(scene.directory), {"1": "raise", "4": "kill"}, SECOND)
    scene.fit(rows.mapInArrow(trap.in_arrow, rows.schema))


@contextmanager
def spark_session() -> Iterator[Any]:
    """Start Spark in this process, which tries each task up to four times."""
    from pyspark.sql import SparkSession

    os.environ["PYSPARK_PYTHON"] = sys.executable
    options = {"ui.enabled": "false", "ui.showConsoleProgress": "false", "log.level": "OFF"}
    builder = SparkSession.builder.master("local[2,4]")
    options["sql.execution.arrow.maxRecordsPerBatch"] = str(len(PARTS[0]))
    for name, value in options.items():
        builder = builder.config(f"spark.{name}", value)
    session = builder.getOrCreate()
    try:
        yield session
    finally:
        session.stop()


ENGINES: dict[str, Callable[[], Any]] = {
    "Dask": dask_cluster,
    "processes": lambda: ProcessPoolExecutor(2),
    "Spark": spark_session,
}


def faults_of(engine: str) -> list[str]:
    """Return the names of the faults of an engine."""
    return [name for name, (where, _) in FAULTS.items() if where == engine]


def inject_all(engine: str, faults: Sequence[str]) -> Iterator[dict[str, Any]]:
    """Make faults of an engine, each in a new directory, and yield what each has cost."""
    with ENGINES[engine]() as cluster:
        for name in faults:
            with tempfile.TemporaryDirectory(ignore_cleanup_errors=True) as directory:
                budget_in(Path(directory))
                scene = Scene(name, engine, Path(directory))
                FAULTS[name][1](scene, cluster)
                yield scene.outcome()


def injected(engine: str) -> list[dict[str, Any]]:
    """Make all faults of an engine in processes of their own, with a deadline for each.

    Engines recover from killed processes in real time, which a busy machine can delay. A fault that
    misses its deadline is made once more, with a new cluster.

    Raises
    ------
    TimeoutError
        If a fault misses the deadline twice.
    """
    outcomes: list[dict[str, Any]] = []
    missed: set[str] = set()
    while waiting := faults_of(engine)[len(outcomes) :]:
        outcomes += _within_deadlines(engine, waiting)
        late = faults_of(engine)[len(outcomes) :][:1]
        if missed & set(late):
            raise TimeoutError(f"{engine}, {late[0]}: not over within {DEADLINE} s, twice")
        missed |= set(late)
    return outcomes


def _within_deadlines(engine: str, faults: Sequence[str]) -> list[dict[str, Any]]:
    """Return the outcomes of the first faults: of those before one that is late."""
    lines: Queue[str] = Queue()
    with (
        tempfile.TemporaryFile("w+") as errors,
        subprocess.Popen(
            [sys.executable, "-m", "tests.contract.engine_faults", "-", engine, *faults],
            cwd=Path(__file__).parents[2],
            stdout=subprocess.PIPE,
            stderr=errors,
            text=True,
            start_new_session=True,
        ) as process,
    ):
        assert process.stdout is not None
        Thread(target=_hand_over, args=(process.stdout, lines), daemon=True).start()
        outcomes = []
        try:
            while len(outcomes) < len(faults):
                line = lines.get(timeout=DEADLINE)
                if not line:
                    errors.seek(0)
                    raise RuntimeError(f"{engine}, {faults[len(outcomes)]}: {errors.read()}")
                outcomes.append(json.loads(line))
        except Empty:
            pass
        finally:
            os.killpg(process.pid, signal.SIGKILL)
    return outcomes


def _hand_over(stream: Iterable[str], lines: "Queue[str]") -> None:
    for line in stream:
        lines.put(line)
    lines.put("")  # the process has ended


def main(target: str, *wanted: str) -> None:
    """Write the table, or print the outcomes of one engine's faults as they come."""
    if target == "-":
        engine, *faults = wanted
        for outcome in inject_all(engine, faults):
            sys.stdout.write(json.dumps(outcome) + "\n")
            sys.stdout.flush()
        return
    outcomes = [outcome for engine in wanted or ENGINES for outcome in injected(engine)]
    columns = ["fault", "engine", "tried", "spent", "released", "same", "lost", "told"]
    with Path(target).open("w", newline="") as file:
        writer = csv.writer(file, lineterminator="\n")
        writer.writerow(columns)
        for one in outcomes:
            one |= {"lost": one["spent"] - one["released"], "told": one["error"].partition(". ")[0]}
            writer.writerow([one[name] for name in columns])


if __name__ == "__main__":
    from tests.contract import engine_faults as here  # workers find traps by this name

    if sys.argv[1:2] == ["driver"]:
        here.drive(sys.argv[2], Path(sys.argv[3]), sys.argv[4] == "1")
    else:
        here.main(*(sys.argv[1:] or ["-"]))
