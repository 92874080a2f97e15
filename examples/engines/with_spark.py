"""Release a sketch and tables of a Spark DataFrame, counted by `mapInArrow` in two workers.

``python examples/engines/with_spark.py``. Needs ``pip install ".[spark]"`` and Java 17.
"""

import os
import sys

from common import private_files, release
from pyspark.sql import SparkSession

# The Python of the executors, which must have skdpot installed.
os.environ.setdefault("PYSPARK_PYTHON", sys.executable)

builder = SparkSession.builder.master("local[2]")
for option in ("spark.ui.enabled", "spark.ui.showConsoleProgress"):
    builder = builder.config(option, "false")

with private_files() as folder:
    spark = builder.getOrCreate()
    try:
        release(spark.read.parquet(str(folder)))
    finally:
        spark.stop()
