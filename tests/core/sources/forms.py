"""The same rows in every form that a fit takes, divided at random."""

from dataclasses import dataclass
from typing import Any

import numpy as np
import pandas as pd
import pytest

from skdpot.sources.exact_counts import ExactCounts
from skdpot.sources.source import Source

pa = pytest.importorskip("pyarrow")
ds = pytest.importorskip("pyarrow.dataset")
pq = pytest.importorskip("pyarrow.parquet")

N = 120
RNG = np.random.default_rng(2020)
TABLE = pd.DataFrame(RNG.normal(size=(N, 3)), columns=["a", "b", "c"])
TABLE["label"] = RNG.choice(["u", "v", "w"], N, p=[0.5, 0.3, 0.2])
TABLE["least"] = RNG.integers(0, 20, N)
TABLE["most"] = TABLE["least"] + RNG.integers(0, 20, N)
TABLE["day"] = pd.Timestamp("2021-03-01") + pd.to_timedelta(RNG.integers(0, 900, N), unit="D")
TABLE["text"] = RNG.choice(np.array(["red", "green", "blue", None], dtype=object), N)
NUMBERS = ["a", "b", "c"]


def cuts(n_rows: int, rng: np.random.Generator) -> list[slice]:
    """Divide rows at random places; some parts are empty."""
    places = np.sort(rng.integers(0, n_rows + 1, rng.integers(0, 9)))
    places = np.concatenate([[0], places, places[-1:], [n_rows]]).astype(int)
    return [slice(*pair) for pair in zip(places[:-1], places[1:], strict=True)]


@dataclass(eq=False)
class Parts(Source):
    """A user's own source, of parts that are counted in any order, and added up in any."""

    rows: Any
    parts: list[slice]
    rng: np.random.Generator

    @property
    def head(self):
        return self.rows[:0]

    def sum(self, count):
        found = [count(self.rows[self.parts[k]]) for k in self.rng.permutation(len(self.parts))]
        while len(found) > 1:
            one = found.pop(self.rng.integers(len(found)))
            found.append(one + found.pop(self.rng.integers(len(found))))
        return ExactCounts.unpacked(found[0].packed())


def own(rows, path, rng):
    return Parts(rows, cuts(len(rows), rng), rng)


def one_row_each(rows, path, rng):
    return Parts(rows, [slice(k, k + 1) for k in range(len(rows))], rng)


def parts_of(rows, rng):
    table = pa.Table.from_pandas(rows, preserve_index=False)
    return table.schema, [table[part] for part in cuts(len(rows), rng)]


def parquet(rows, path, rng):
    for k, part in enumerate(parts_of(rows, rng)[1]):
        pq.write_table(part, path / f"{k}.parquet", row_group_size=int(rng.integers(1, 50)))
    return path


def csv(rows, path, rng):
    for k, part in enumerate(cuts(len(rows), rng)):
        rows[part].to_csv(path / f"{k}.csv", index=False, float_format="%.17g")
    return str(path / "*.csv")


def dataset(rows, path, rng):
    parquet(rows, path, rng)
    return ds.dataset(path)


def reader(rows, path, rng):
    schema, parts = parts_of(rows, rng)
    batches = [batch for part in parts for batch in part.to_batches()]
    return pa.RecordBatchReader.from_batches(schema, batches)


def arrow(rows, path, rng):
    schema, parts = parts_of(rows, rng)
    return pa.concat_tables([schema.empty_table(), *parts])


def duckdb(rows, path, rng):
    import duckdb

    return duckdb.sql(f"SELECT * FROM '{parquet(rows, path, rng)}/*.parquet' ORDER BY random()")


def lazy(rows, path, rng):
    import polars as pl

    return pl.scan_parquet(sorted(parquet(rows, path, rng).iterdir()))


def dask(rows, path, rng):
    import dask.dataframe as dd

    places = sorted({0, *(part.start for part in cuts(len(rows), rng))} - {len(rows)})
    return dd.from_pandas(rows, sort=False, npartitions=1).repartition(
        divisions=[*places, len(rows) - 1]
    )


def dask_many(rows, path, rng):
    """More partitions than are added at once, some of them empty."""
    import dask.dataframe as dd

    found = dd.from_pandas(rows, npartitions=20)
    empty = found.partitions[7].map_partitions(lambda part: part[:0])
    return dd.concat([found.partitions[9:], empty, found.partitions[:9]])


def dask_array(rows, path, rng):
    import dask.array as da

    return da.from_array(rows.to_numpy(), chunks=(int(rng.integers(1, 60)), 2))


FORMS = (own, one_row_each, parquet, csv, dataset, reader, duckdb, lazy, dask, dask_many)
