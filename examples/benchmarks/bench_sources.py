"""
Rows in batches: how fast are they counted, and in how much memory?
===================================================================

Each command prints lines of ``doc/sources_bench.txt``. Times are processor seconds of all threads
and processes, of which the smallest of several runs is printed: what runs beside does not change
them much. ``OMP_NUM_THREADS=2 python examples/benchmarks/bench_sources.py COMMAND``:

``sketch [ROWS]``
    A sketch of float32 rows in memory, in batches, and of partitions in the memory of two workers
    of Dask. Ten million rows by default.
``memory [ROWS ...]``
    The largest resident memory of a sketch of rows that are made while they are read.
``tables [ROWS ...]``
    A synthesizer of 15 columns of Parquet: each pass, the memory, and the size of its counts. Files
    are written by another process, 63 MB for a million rows, below the directory ``SCRATCH``.
``reduction [BYTES]``
    Adding up 1,000 and 10,000 partial counts at the driver, and along a tree.
``pair [spark]``
    Counting a pair of categories in a million rows, beside other libraries.
``pairs [ROWS]``
    Counting all pairs of eight columns of Parquet in one pass, beside other libraries.
"""

import itertools
import os
import resource
import subprocess
import sys
import tempfile
import time
import warnings
from collections.abc import Callable
from functools import partial
from pathlib import Path

import numpy as np
import pandas as pd
import pyarrow as pa
import pyarrow.parquet as pq

from skdpot import DPTableSynthesizer, SlicedSketch
from skdpot.preprocessing import CategoricalColumn, DatetimeColumn, NumericColumn, TableSchema
from skdpot.sources import ExactCounts, Source, SourceRows, source_of
from skdpot.tables.contingency import Marginal, exact_counts

SKETCH = {"epsilon": 1.0, "bounds": (-3, 3), "n_projections": 64, "n_bins": 64}
BATCH = 2**17
TEXTS = (3, 8, 20, 50)  # categories of the text columns


def least(call: Callable[[], object], repeats: int, clock: Callable[[], float]) -> float:
    """Return the smallest time of several calls."""
    times = []
    for _ in range(repeats):
        start = clock()
        call()
        times.append(clock() - start)
    return min(times)


def peak() -> float:
    """Return the largest resident memory of this process so far, in GB."""
    return resource.getrusage(resource.RUSAGE_SELF).ru_maxrss / 2**20


class Batches(Source):
    """Parts of an array."""

    head = None

    def __init__(self, rows: np.ndarray) -> None:
        self.rows, self.head = rows, rows[:0]

    def sum(self, count: Callable[[np.ndarray], ExactCounts]) -> ExactCounts:
        """Count them."""
        starts = range(0, len(self.rows), BATCH)
        return ExactCounts.total(count(self.rows[k : k + BATCH]) for k in starts)


def sketch(n_rows: int = 10**7) -> None:
    """Compare memory, batches and Dask."""
    import dask.array as da
    import psutil
    from distributed import Client, LocalCluster

    with LocalCluster(2, threads_per_worker=1, dashboard_address=":0") as cluster, Client(cluster):
        rng = da.random.default_rng(0)
        lazy = rng.uniform(-3, 3, (n_rows, 16), chunks=(-(-n_rows // 32), 16)).astype("float32")
        parts = lazy.persist()
        rows = np.asarray(parts)
        workers = [psutil.Process(w.pid) for w in cluster.workers.values()]
        workers += [child for w in workers for child in w.children(recursive=True)]

        def clock() -> float:
            times = (w.cpu_times() for w in workers)
            return time.process_time() + sum(t.user + t.system for t in times)

        forms = {"in memory": rows, "in batches": Batches(rows), "Dask, 2 workers": parts}
        found: dict[str, list[tuple[float, float]]] = {name: [] for name in forms}
        tables = set()
        for _ in range(3):
            for name, form in forms.items():
                start, wall = clock(), time.perf_counter()
                fitted = SlicedSketch(**SKETCH, random_state=0).fit(form)
                found[name].append((clock() - start, time.perf_counter() - wall))
                tables.add(fitted.statistic_.tobytes())
    base = min(found["in memory"])[0]
    for name, times in found.items():
        spent, wall = (min(column) for column in zip(*times, strict=True))
        ratio = f"{spent / base:.2f} times memory"
        print(f"{name:16} {spent:6.2f} CPU s  {wall:6.2f} s elapsed  {ratio}", flush=True)
    print(f"the same release: {len(tables) == 1}")


class Stream(Source):
    """Rows that are made when they are read."""

    head = pd.DataFrame(np.empty((0, 4), dtype=np.float32), columns=list("abcd"))

    def __init__(self, n_rows: int) -> None:
        self.n_rows = n_rows

    def sum(self, count: Callable[[pd.DataFrame], ExactCounts]) -> ExactCounts:
        """Make and count them."""
        return ExactCounts.total(count(self.made(k)) for k in range(0, self.n_rows, BATCH))

    def made(self, start: int) -> pd.DataFrame:
        """Return a batch."""
        rows = np.random.default_rng(start).random((min(BATCH, self.n_rows - start), 4), np.float32)
        return pd.DataFrame(rows, columns=self.head.columns)


def memory(*sizes: int) -> None:
    """Print the memory of one process for each number of rows."""
    if len(sizes) == 1:
        before, start = peak(), time.process_time()
        SlicedSketch(epsilon=1.0, bounds=(0, 1), n_projections=8, n_bins=64).fit(Stream(sizes[0]))
        spent = time.process_time() - start
        print(f"{sizes[0]:>13,} rows {spent:8.1f} CPU s  peak {peak():.3f} GB, {before:.3f} before")
        return
    for size in sizes or (10**6, 10**7, 10**8):
        subprocess.run([sys.executable, __file__, "memory", str(size)], check=True)


def mixed_table(n_rows: int, seed: int) -> pa.Table:
    """Return columns of each kind that depend on a hidden group."""
    rng = np.random.default_rng(seed)
    group = rng.integers(0, 4, n_rows)
    columns = {}
    for place, size in enumerate(TEXTS):
        codes = ((3 * group + rng.integers(0, size, n_rows)) % size).astype(np.int32)
        texts = pa.DictionaryArray.from_arrays(codes, [f"value {k:02d}" for k in range(size)])
        columns[f"text{place}"] = texts if place % 2 else texts.cast(pa.string())
    columns["age"] = np.clip(rng.normal(30 + 8 * group, 10), 0, 100).astype(np.int64)
    columns["visits"] = rng.poisson(2 + group).astype(np.int32)
    columns["code"] = rng.integers(0, 1000, n_rows).astype(np.int16)
    columns["label"] = (rng.random(n_rows) < 0.2 + 0.15 * group).astype(np.int64)
    for place in range(4):
        columns[f"amount{place}"] = rng.lognormal(0.5 * group + place, 1, n_rows)
    columns["score"] = rng.normal(group, 1).astype(np.float32)
    days = (15_000 + rng.integers(0, 3_000, n_rows)).astype(np.int32)
    columns["day"] = pa.array(days).cast(pa.date32())
    times = 1_300_000_000_000_000 + rng.integers(0, 10**14, n_rows)
    columns["time"] = pa.array(times).cast(pa.timestamp("us"))
    return pa.table(columns)


def mixed_schema() -> TableSchema:
    """Return what is public of it."""
    return TableSchema(
        [
            *(
                CategoricalColumn(f"text{j}", categories=[f"value {k:02d}" for k in range(size)])
                for j, size in enumerate(TEXTS)
            ),
            NumericColumn("age", lower=0, upper=100, integer=True),
            NumericColumn("visits", lower=0, upper=30, integer=True),
            NumericColumn("code", lower=0, upper=1000, integer=True),
            CategoricalColumn("label", categories=[0, 1]),
            *(NumericColumn(f"amount{j}", lower=0, upper=1000) for j in range(4)),
            NumericColumn("score", lower=-5, upper=10),
            DatetimeColumn("day", lower="2010-01-01", upper="2020-01-01", resolution="D"),
            DatetimeColumn("time", lower="2010-01-01", upper="2015-01-01"),
        ]
    )


class Timed(Source):
    """Prints what each pass over another source takes, and the size of its counts."""

    head = None

    def __init__(self, source: Source, n_rows: int) -> None:
        self.source, self.n_rows, self.head = source, n_rows, source.head

    def select(self, names: tuple[str, ...]) -> Source:
        """Read less."""
        return Timed(self.source.select(names), self.n_rows)

    def sum(self, count: Callable[[object], ExactCounts]) -> ExactCounts:
        """Count, and print."""
        start, wall = time.process_time(), time.perf_counter()
        found = self.source.sum(count)
        spent, wall = time.process_time() - start, time.perf_counter() - wall
        millions, size = self.n_rows / 1e6, len(found.packed())
        print(
            f"  pass: {spent / millions:5.2f} CPU s per 10^6 rows, {wall:6.1f} s elapsed, "
            f"{size:>9,} bytes of counts, peak {peak():.2f} GB",
            flush=True,
        )
        return found


def written(folder: str, n_files: int) -> None:
    """Write files of a million rows, each of its own."""
    for place in range(n_files):
        rows = mixed_table(10**6, place)
        pq.write_table(rows, Path(folder, f"{place:03d}.parquet"), row_group_size=BATCH)


def fitted(folder: str, n_files: int) -> None:
    """Fit a synthesizer to the first of these files."""
    paths = sorted(Path(folder).glob("*.parquet"))[:n_files]
    n_rows, size = 10**6 * n_files, sum(path.stat().st_size for path in paths) / 1e9
    print(f"{n_rows:,} rows x 15 columns, {size:.1f} GB in {n_files} files", flush=True)
    before, start, wall = peak(), time.process_time(), time.perf_counter()
    source = Timed(source_of(paths), n_rows)
    DPTableSynthesizer(mixed_schema(), epsilon=1.0, target="label").fit(source)
    spent, wall = time.process_time() - start, time.perf_counter() - wall
    print(f"{spent:.0f} CPU s, {wall:.0f} s elapsed, peak {peak():.2f} GB, {before:.2f} before")


def tables(*sizes: int) -> None:
    """Write the rows and fit synthesizers to some of them, in a process each."""
    with tempfile.TemporaryDirectory(dir=os.environ.get("SCRATCH")) as folder:
        files = [size // 10**6 for size in sizes or (10**6, 10**7, 10**8)]
        for what, number in (("written", max(files)), *(("fitted", n) for n in files)):
            subprocess.run([sys.executable, __file__, what, folder, str(number)], check=True)


def reduction(n_bytes: int = 2_000_000) -> None:
    """Add up partial counts of a size."""
    part = ExactCounts((np.ones(n_bytes // 8, dtype=np.int64),), 10**5).packed()

    def added(messages: list[bytes]) -> bytes:
        return ExactCounts.total(map(ExactCounts.unpacked, messages)).packed()

    for n_parts in (1_000, 10_000):
        flat = least(lambda n=n_parts: added([part] * n), 2, time.process_time)
        each = least(lambda: added([part] * 8), 5, time.process_time)
        depth, nodes, left = 0, 0, n_parts
        while left > 1:
            left = -(-left // 8)
            depth, nodes = depth + 1, nodes + left
        print(
            f"{n_parts:>6,} partials of {n_bytes:,} bytes: {flat:6.2f} CPU s at the driver; "
            f"a tree of eights: {nodes * each:6.2f} CPU s, {depth * each * 1e3:4.0f} ms in sequence"
        )


def _coded(batch: dict, columns: tuple) -> tuple[np.ndarray, None]:
    codes = [column.grid().codes(batch[column.name]) for column in columns]
    return np.stack(codes).T, None


def pair(engine: str = "") -> None:
    """Count two columns of 8 and 12 categories."""
    import duckdb
    import polars as pl

    n_rows, sizes = 10**6, (8, 12)
    rng = np.random.default_rng(0)
    codes = [rng.integers(0, size, n_rows).astype(np.int32) for size in sizes]
    names = [[f"value {k:02d}" for k in range(size)] for size in sizes]
    coded = {
        c: pa.DictionaryArray.from_arrays(own, found)
        for c, own, found in zip("ab", codes, names, strict=True)
    }
    marginal = Marginal((0, 1), tuple(map(np.arange, sizes)))
    held = np.asfortranarray(np.stack(codes, axis=1))

    def ours(table: pa.Table, schema: TableSchema) -> None:
        rows = SourceRows(source_of(table.to_reader(BATCH)), n_rows, (schema.read,))
        exact_counts(rows.map(partial(_coded, columns=schema.columns)), [marginal])

    def by_numpy(table: pa.Table, texts: bool) -> None:
        for batch in table.to_batches(BATCH):
            found = [c.dictionary_encode().indices if texts else c for c in batch.columns]
            first, second = (np.asarray(c) for c in found)
            np.bincount(first * np.int32(sizes[1]) + second, minlength=96)

    integers = pa.table({"a": codes[0], "b": codes[1]})
    texts = pa.table({c: own.cast(pa.string()) for c, own in coded.items()})
    of_integers = TableSchema(
        [
            NumericColumn(c, lower=0, upper=k - 1, integer=True)
            for c, k in zip("ab", sizes, strict=True)
        ]
    )
    of_texts = TableSchema(
        [CategoricalColumn(c, categories=own) for c, own in zip("ab", names, strict=True)]
    )
    query = "select a, b, count(*) from table_ group by a, b"
    kernel = {"ours, of codes": lambda: exact_counts(held, [marginal])}
    for kind, table, schema in (
        ("integers", integers, of_integers),
        ("texts", texts, of_texts),
    ):
        link = duckdb.connect()
        link.execute("set threads to 1")
        link.register("table_", table)
        frame = pl.from_arrow(table)
        calls = kernel | {
            "ours, of Arrow": partial(ours, table, schema),
            "numpy over Arrow": partial(by_numpy, table, kind == "texts"),
            "DuckDB": lambda link=link: link.sql(query).fetchall(),
            "polars": lambda frame=frame: frame.group_by("a", "b").len(),
        }
        for name, call in calls.items():
            print(f"{kind:9} {name:17} {1e3 * least(call, 7, time.process_time):7.1f} CPU ms")
    if engine == "spark":
        _pair_in_spark(integers)


def pairs(n_rows: int = 10**6) -> None:
    """Count all pairs of four columns of texts and four of integers in a file of Parquet."""
    import duckdb
    import polars as pl

    sizes = dict(zip("abcdefgh", (3, 8, 20, 50, 2, 12, 24, 100), strict=True))
    rng, columns, known = np.random.default_rng(0), {}, []
    for name, size in sizes.items():
        codes = rng.integers(0, size, n_rows).astype(np.int32)
        texts = [f"value {k:02d}" for k in range(size)]
        if name < "e":
            columns[name] = pa.DictionaryArray.from_arrays(codes, texts).cast(pa.string())
            known.append(CategoricalColumn(name, categories=texts))
        else:
            columns[name] = pa.array(codes)
            known.append(NumericColumn(name, lower=0, upper=size - 1, integer=True))
    schema, places = TableSchema(known), list(itertools.combinations(range(len(sizes)), 2))
    cells = [np.arange(size) for size in sizes.values()]
    marginals = [Marginal(pair, tuple(cells[place] for place in pair)) for pair in places]
    with tempfile.TemporaryDirectory() as folder:
        path = f"{folder}/rows.parquet"
        pq.write_table(pa.table(columns), path, row_group_size=BATCH)
        sets = ", ".join(f"({a}, {b})" for a, b in itertools.combinations(sizes, 2))
        query = f"select *, count(*) from '{path}' group by grouping sets ({sets})"
        link = duckdb.connect()
        link.execute("set threads to 1")

        def ours() -> None:
            rows = SourceRows(source_of(path), n_rows, (schema.read,))
            exact_counts(rows.map(partial(_coded, columns=schema.columns)), marginals)

        def by_polars() -> None:
            frame = pl.scan_parquet(path)
            pl.collect_all([frame.group_by(*p).len() for p in itertools.combinations(sizes, 2)])

        calls = {"ours": ours, "polars": by_polars}
        calls["DuckDB"] = lambda: link.sql(query).fetchall()
        for name, call in calls.items():
            print(f"{name:7} {1e3 * least(call, 3, time.process_time):7.0f} CPU ms")


def _pair_in_spark(table: pa.Table) -> None:
    """Compare Spark's own grouping with counts of Arrow batches, on one core."""
    os.environ["PYSPARK_PYTHON"] = sys.executable
    from pyspark.sql import SparkSession

    session = SparkSession.builder.master("local[1]").config("spark.ui.enabled", "false")
    session = session.config("spark.sql.shuffle.partitions", "1").getOrCreate()
    session.sparkContext.setLogLevel("ERROR")
    with tempfile.TemporaryDirectory() as folder:
        many = pa.concat_tables([table] * 20)
        pq.write_table(many, f"{folder}/rows.parquet", row_group_size=BATCH)
        frame = session.read.parquet(folder)

        def count(batches):
            total = np.zeros(96, dtype=np.int64)
            for batch in batches:
                first, second = (np.asarray(column) for column in batch.columns)
                total += np.bincount(first * 12 + second, minlength=96)
            yield pa.record_batch({"counts": total})

        calls = {
            "groupBy": lambda: frame.groupBy("a", "b").count().collect(),
            "mapInArrow": lambda: frame.mapInArrow(count, "counts long").collect(),
        }
        found = {name: least(call, 5, time.perf_counter) for name, call in calls.items()}
    for name, wall in found.items():
        print(f"Spark {name:11} {1e3 * wall / 20:7.1f} ms elapsed per 10^6 rows of 2 x 10^7")


if __name__ == "__main__":
    warnings.simplefilter("ignore")  # of privacy
    calls = (sketch, memory, tables, written, fitted, reduction, pair, pairs)
    commands = {call.__name__: call for call in calls}
    commands[sys.argv[1]](
        *(int(float(word)) if word[0].isdigit() else word for word in sys.argv[2:])
    )
