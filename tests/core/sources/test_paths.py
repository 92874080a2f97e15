"""Paths are read as the programs that write them mean it."""

import numpy as np
import pandas as pd
import pytest

from skdpot import SlicedSketch

ROWS = pd.DataFrame(np.random.default_rng(0).uniform(size=(60, 2)), columns=["a", "b"])


@pytest.mark.parametrize(
    ("name", "write"),
    [
        ("part-00000-5e.c000.snappy.parquet", "to_parquet"),  # as Spark writes them
        ("part-00000-5e.c000.gz.parquet", "to_parquet"),
        ("2024.01.csv", "to_csv"),
        ("2024.01.csv.gz", "to_csv"),
    ],
)
def test_directories_of_engines(tmp_path, name, write):
    pytest.importorskip("pyarrow")
    # What a failed attempt of Spark leaves behind would be counted twice.
    places = ["year=1", "year=2.parquet", "_temporary/0", ".tmp"]
    for place in places:
        (tmp_path / place).mkdir(parents=True)
        getattr(ROWS, write)(tmp_path / place / name, index=False)
    for name in ("_SUCCESS", "_metadata.csv", "._SUCCESS.crc", "notes.txt"):
        (tmp_path / name).write_text("a,b\nno,number\n")
    assert SlicedSketch(bounds=(0, 1)).fit(tmp_path).n_samples_ == 2 * len(ROWS)


@pytest.mark.parametrize("name", [None, "person"])
def test_an_index_of_pandas_is_no_feature(tmp_path, name):
    pytest.importorskip("pyarrow")
    for part, rows in enumerate((ROWS[:20], ROWS[20:])):
        rows.set_index(pd.Index(rows.index * 7.0, name=name)).to_parquet(
            tmp_path / f"{part}.parquet"
        )
    sketch = SlicedSketch(bounds=(0, 1)).fit(tmp_path)
    assert sketch.feature_names_in_.tolist() == ["a", "b"]
